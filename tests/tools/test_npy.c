/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What npy_write wrote, npy_read reads, as it reads what NumPy writes; any other file is an error that says what
 *          is wrong with it. An array fits a tensor when type and shape agree behind the first dimension.
 * Method   Random arrays there and back; headers of each version and malformed ones by hand; every truncation and every
 *          changed byte of a good file.
 */
#include "tests/runtime/fake_root.h"
#include "base/npy.h"

#include "base/align.h"

static struct fake_root root;
static char path[160];

static void
write_bytes(const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && (count == 0 || fwrite(bytes, count, 1, file) == 1) && fclose(file) == 0);
}

/* A file of version 1, 2 or 3 with this header and so many bytes of data, numbered. Returns its size. */
static size_t
write_npy(unsigned char version, const char *header, size_t data_bytes)
{
    unsigned char bytes[1024] = {0x93, 'N', 'U', 'M', 'P', 'Y', version, 0};
    const size_t length = strlen(header), start = version == 1 ? 10 : 12;

    EXPECT(start + length + data_bytes <= sizeof(bytes));
    bytes[8] = (unsigned char)length;
    bytes[9] = (unsigned char)(length >> 8);
    memcpy(bytes + start, header, length);
    for (size_t i = 0; i < data_bytes; i++) {
        bytes[start + length + i] = (unsigned char)i;
    }
    write_bytes(bytes, start + length + data_bytes);
    return start + length + data_bytes;
}

static void
test_there_and_back(uint64_t *random)
{
    for (uint32_t dtype = 1; dtype <= LEAT_DTYPE_MAX; dtype++) {
        for (uint32_t rank = 0; rank <= LEAT_RANK_MAX; rank++) {
            struct npy_array array = {.dtype = dtype, .rank = rank, .elements = 1}, back;
            for (uint32_t d = 0; d < rank; d++) {
                array.dims[d] = (int64_t)(leat_test_random(random) % 4);
                array.elements *= (uint64_t)array.dims[d];
            }
            const size_t bytes = array.elements * leat_dtype_bytes(dtype);
            array.data = malloc(bytes + 1);
            EXPECT(array.data != NULL);
            for (size_t i = 0; i < bytes; i++) {
                ((unsigned char *)array.data)[i] = (unsigned char)leat_test_random(random);
            }
            if (dtype == LEAT_DTYPE_BF16) { /* NumPy has no name for it */
                EXPECT(npy_write(path, &array) == LEAT_ERR_UNSUPPORTED);
            } else {
                EXPECT(npy_write(path, &array) == LEAT_OK && npy_read(path, &back) == LEAT_OK);
                EXPECT(back.dtype == dtype && back.rank == rank && back.elements == array.elements);
                EXPECT(memcmp(back.dims, array.dims, sizeof(back.dims)) == 0 && memcmp(back.data, array.data, bytes) == 0);
                npy_free(&back);
            }
            npy_free(&array);
        }
    }
}

static void
test_headers(void)
{
    static const struct {
        const char *header;
        unsigned char version;
        uint32_t data_bytes;
        enum leat_status status;
        uint32_t rank, elements;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", 1, 24, LEAT_OK, 2, 6},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", 2, 24, LEAT_OK, 2, 6},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", 3, 24, LEAT_OK, 2, 6},
        {"{'descr':'|u1','fortran_order':False,'shape':(5,)}", 1, 5, LEAT_OK, 1, 5},
        {"{'shape': (), 'fortran_order': False, 'descr': '<i8'}", 1, 8, LEAT_OK, 0, 1},
        {"{'descr': '|b1', 'fortran_order': False, 'shape': (0, 7), }", 1, 0, LEAT_OK, 2, 0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }", 1, 4, LEAT_ERR_PROTO, 0, 0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }", 4, 5, LEAT_ERR_UNSUPPORTED, 0, 0},
        {"{'descr': '|u1', 'fortran_order': True, 'shape': (5,), }", 1, 5, LEAT_ERR_UNSUPPORTED, 0, 0},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", 1, 4, LEAT_ERR_UNSUPPORTED, 0, 0},
        {"{'descr': '<f48', 'fortran_order': False, 'shape': (1,), }", 1, 4, LEAT_ERR_UNSUPPORTED, 0, 0},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 1, 4, LEAT_ERR_UNSUPPORTED, 0, 0},
        {"{'descr': '|u1', 'fortran_order': False, }", 1, 5, LEAT_ERR_PROTO, 0, 0},
        {"{'descr': '|u1', 'shape': (5,), }", 1, 5, LEAT_ERR_PROTO, 0, 0},
        {"{'fortran_order': False, 'shape': (5,), }", 1, 5, LEAT_ERR_PROTO, 0, 0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': 5, }", 1, 5, LEAT_ERR_PROTO, 0, 0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (5", 1, 5, LEAT_ERR_PROTO, 0, 0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (2 3)}", 1, 6, LEAT_ERR_PROTO, 0, 0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (,)}", 1, 6, LEAT_ERR_PROTO, 0, 0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (2,,3)}", 1, 6, LEAT_ERR_PROTO, 0, 0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (-2,)}", 1, 6, LEAT_ERR_PROTO, 0, 0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (x,)}", 1, 6, LEAT_ERR_PROTO, 0, 0},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,)}", 1, 6, LEAT_ERR_PROTO, 0, 0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 1, 6, LEAT_ERR_PROTO, 0, 0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,)}", 1, 6, LEAT_ERR_PROTO, 0, 0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1)}", 1, 1, LEAT_OK, 8, 1},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 1, 1, LEAT_ERR_PROTO, 0, 0},
        {"", 1, 0, LEAT_ERR_PROTO, 0, 0},
    };
    for (size_t i = 0; i < LEAT_COUNT_OF(cases); i++) {
        struct npy_array array;
        (void)write_npy(cases[i].version, cases[i].header, cases[i].data_bytes);
        const enum leat_status status = npy_read(path, &array);
        if (status != cases[i].status) {
            (void)fprintf(stderr, "version %u, %s: %s\n", cases[i].version, cases[i].header,
                          status == LEAT_OK ? "taken" : leat_error_text());
        }
        EXPECT(status == cases[i].status);
        if (status == LEAT_OK) {
            EXPECT(array.rank == cases[i].rank && array.elements == cases[i].elements);
            npy_free(&array);
        } else {
            EXPECT(strncmp(leat_error_text(), path, strlen(path)) == 0); /* names the file */
        }
    }
    EXPECT(npy_read("/nonexistent/a.npy", &(struct npy_array){0}) == LEAT_ERR_SYS);
}

/* Any file gives an array or an error; a sanitizer sees what else it would do. */
static void
test_damaged(uint64_t *random)
{
    static const char header[] = "{'descr': '<i2', 'fortran_order': False, 'shape': (3, 4, 2), }\n";
    unsigned char good[256], bad[256];
    struct npy_array array;

    const size_t size = write_npy(1, header, 48);
    FILE *file = fopen(path, "rb");
    EXPECT(file != NULL && size <= sizeof(good) && fread(good, size, 1, file) == 1 && fclose(file) == 0);
    for (size_t length = 0; length < size; length++) {
        write_bytes(good, length);
        EXPECT(npy_read(path, &array) == LEAT_ERR_PROTO);
    }
    for (size_t at = 0; at < size - 48; at++) {
        for (int n = 0; n < 8; n++) {
            memcpy(bad, good, size);
            bad[at] = (unsigned char)leat_test_random(random);
            write_bytes(bad, size);
            if (npy_read(path, &array) == LEAT_OK) {
                EXPECT(array.rank <= LEAT_RANK_MAX && array.elements * leat_dtype_bytes(array.dtype) <= size);
                npy_free(&array);
            }
        }
    }
}

static void
test_fitting(void)
{
    const struct leat_tensor_info image = {.dtype = LEAT_DTYPE_F32, .rank = 4, .dims = {-1, 1, 28, 28}, .item_bytes = 3136};
    const struct leat_tensor_info number = {.dtype = LEAT_DTYPE_I64, .rank = 1, .dims = {-1}, .item_bytes = 8};
    static const struct {
        struct npy_array array;
        bool image, number;
    } cases[] = {
        {{.dtype = LEAT_DTYPE_F32, .rank = 4, .dims = {3, 1, 28, 28}}, true, false},
        {{.dtype = LEAT_DTYPE_F32, .rank = 4, .dims = {0, 1, 28, 28}}, true, false}, /* none, but such */
        {{.dtype = LEAT_DTYPE_U8, .rank = 4, .dims = {3, 1, 28, 28}}, false, false},
        {{.dtype = LEAT_DTYPE_F32, .rank = 4, .dims = {3, 28, 1, 28}}, false, false},
        {{.dtype = LEAT_DTYPE_F32, .rank = 3, .dims = {1, 28, 28}}, false, false},
        {{.dtype = LEAT_DTYPE_F32, .rank = 2, .dims = {1, 784}}, false, false},
        {{.dtype = LEAT_DTYPE_F32, .rank = 1, .dims = {784}}, false, false},
        {{.dtype = LEAT_DTYPE_I64, .rank = 1, .dims = {784}}, false, true},
        {{.dtype = LEAT_DTYPE_I64, .rank = 0}, false, false},
    };
    for (size_t i = 0; i < LEAT_COUNT_OF(cases); i++) {
        EXPECT(npy_holds_items(&cases[i].array, &image) == cases[i].image);
        EXPECT(npy_holds_items(&cases[i].array, &number) == cases[i].number);
    }
    EXPECT(strcmp(npy_shape(image.dtype, image.dims, image.rank).text, "f32[N,1,28,28]") == 0);
    EXPECT(strcmp(npy_shape(LEAT_DTYPE_U8, NULL, 0).text, "u8[]") == 0);
    const int64_t long_dims[LEAT_RANK_MAX] = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX,
                                              INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
    EXPECT(strlen(npy_shape(LEAT_DTYPE_F32, long_dims, LEAT_RANK_MAX).text) == 5 + 8 * 19 + 7);
}

int
main(void)
{
    leat_test_init();
    uint64_t random = leat_test_seed;
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    fake_root_init(&root);
    (void)snprintf(path, sizeof(path), "%s/array.npy", root.path);
    test_there_and_back(&random);
    test_headers();
    test_damaged(&random);
    test_fitting();
    fake_root_fini(&root);
    return 0;
}
