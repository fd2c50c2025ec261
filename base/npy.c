/* SPDX-License-Identifier: Apache-2.0 */
#include "base/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/align.h"
#include "base/status.h"

enum { HEADER_MAX = 4096 };

static const struct {
    const char *descr;
    uint32_t dtype;
} types[] = {
    {"<f4", LEAT_DTYPE_F32}, {"<f2", LEAT_DTYPE_F16}, {"<f8", LEAT_DTYPE_F64}, {"|i1", LEAT_DTYPE_I8},
    {"|u1", LEAT_DTYPE_U8},  {"<i2", LEAT_DTYPE_I16}, {"<u2", LEAT_DTYPE_U16}, {"<i4", LEAT_DTYPE_I32},
    {"<u4", LEAT_DTYPE_U32}, {"<i8", LEAT_DTYPE_I64}, {"<u8", LEAT_DTYPE_U64}, {"|b1", LEAT_DTYPE_BOOL},
};

static const char *
skip_blanks(const char *text)
{
    return text + strspn(text, " ");
}

/* Text after "'key':" in the header's dictionary, leading blanks skipped; NULL when it is not there. */
static const char *
value_of(const char *header, const char *key)
{
    char quoted[32];
    (void)snprintf(quoted, sizeof(quoted), "'%s':", key);
    const char *at = strstr(header, quoted);
    if (at == NULL) {
        return NULL;
    }
    at += strlen(quoted);
    return skip_blanks(at);
}

/* "()", "(3,)", "(3, 4)": numbers with commas between them, and perhaps one behind the last. */
static bool
parse_shape(const char *text, struct npy_array *array)
{
    if (*text != '(') {
        return false;
    }
    array->elements = 1;
    text = skip_blanks(text + 1);
    while (*text != ')') {
        char *end;
        const long long dim = strtoll(text, &end, 10);
        if (end == text || dim < 0 || array->rank == LEAT_RANK_MAX ||
            !leat_mul_u64(array->elements, (uint64_t)dim, &array->elements) || array->elements > UINT64_C(1) << 40) {
            return false;
        }
        array->dims[array->rank++] = dim;
        text = skip_blanks(end);
        if (*text == ',') {
            text = skip_blanks(text + 1);
        } else if (*text != ')') {
            return false;
        }
    }
    return true;
}

static enum leat_status
parse_header(const char *header, struct npy_array *array)
{
    const char *descr = value_of(header, "descr");
    const char *order = value_of(header, "fortran_order");
    const char *shape = value_of(header, "shape");

    if (descr == NULL || order == NULL || shape == NULL) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "its header lacks descr, fortran_order or shape");
    }
    if (strncmp(order, "False", 5) != 0) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "it is in Fortran order; save it with numpy.ascontiguousarray");
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(types); i++) {
        if (descr[0] == '\'' && strncmp(descr + 1, types[i].descr, 3) == 0 && descr[4] == '\'') {
            array->dtype = types[i].dtype;
        }
    }
    if (array->dtype == LEAT_DTYPE_NONE) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "its element type %.8s is not supported", descr);
    }
    if (!parse_shape(shape, array)) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "its shape is no tuple of numbers, is too large or has more than %d dimensions",
                         LEAT_RANK_MAX);
    }
    return LEAT_OK;
}

/* False when the file is known to end before `bytes` more; only a regular file tells. */
static bool
may_hold(FILE *file, uint64_t bytes)
{
    struct stat info;
    const long at = ftell(file);

    return fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode) || at < 0 ||
           (info.st_size >= at && (uint64_t)(info.st_size - at) >= bytes);
}

enum leat_status
npy_read_header(FILE *file, struct npy_array *ret_array)
{
    unsigned char start[12];
    char header[HEADER_MAX + 1];
    struct npy_array array = {0};

    if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6) != 0) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "it is no .npy file");
    }
    size_t length = (size_t)start[8] | (size_t)start[9] << 8;
    if (start[6] >= 2) {
        if (fread(start + 10, 1, 2, file) != 2) {
            return LEAT_FAIL(LEAT_ERR_PROTO, "it ends in its header");
        }
        length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    }
    if (start[6] < 1 || start[6] > 3 || length > HEADER_MAX) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "its version %u or its header of %zu bytes is not supported", start[6],
                         length);
    }
    if (fread(header, 1, length, file) != length) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "it ends in its header");
    }
    header[length] = '\0';
    const enum leat_status status = parse_header(header, &array);
    if (status == LEAT_OK) {
        *ret_array = array;
    }
    return status;
}

enum leat_status
npy_read_data(FILE *file, struct npy_array *array)
{
    const size_t bytes = array->elements * leat_dtype_bytes(array->dtype);
    const bool whole = may_hold(file, bytes);

    array->data = whole ? malloc(bytes + 1) : NULL;
    if (whole && array->data == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for its %zu bytes", bytes);
    }
    if (!whole || fread(array->data, 1, bytes, file) != bytes) {
        free(array->data);
        array->data = NULL;
        return LEAT_FAIL(LEAT_ERR_PROTO, "it has fewer than the %zu bytes of data that its shape needs", bytes);
    }
    return LEAT_OK;
}

enum leat_status
npy_read(const char *path, struct npy_array *ret_array)
{
    struct npy_array array = {0};
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot open %s", path);
    }
    enum leat_status status = npy_read_header(file, &array);
    if (status == LEAT_OK) {
        status = npy_read_data(file, &array);
    }
    (void)fclose(file);
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "%s", path);
    }
    *ret_array = array;
    return LEAT_OK;
}

/* NULL, with a text, where the format has none. */
static const char *
descr_of(uint32_t dtype)
{
    for (size_t i = 0; i < LEAT_COUNT_OF(types); i++) {
        if (types[i].dtype == dtype) {
            return types[i].descr;
        }
    }
    (void)LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "element type %s has no .npy name", leat_dtype_text(dtype));
    return NULL;
}

enum leat_status
npy_write_file(FILE *file, const struct npy_array *array)
{
    const char *descr = descr_of(array->dtype);
    char header[512];

    if (descr == NULL) {
        return LEAT_ERR_UNSUPPORTED;
    }
    int used = snprintf(header, sizeof(header), "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (uint32_t i = 0; i < array->rank; i++) {
        used += snprintf(header + used, sizeof(header) - (size_t)used, "%lld,", (long long)array->dims[i]);
    }
    used += snprintf(header + used, sizeof(header) - (size_t)used, "), }");
    while ((used + 11) % 64 != 0) {
        header[used++] = ' ';
    }
    header[used++] = '\n';
    const unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(used & 0xff),
                                     (unsigned char)(used >> 8)};
    const size_t bytes = array->elements * leat_dtype_bytes(array->dtype);
    if (fwrite(start, 1, sizeof(start), file) != sizeof(start) || fwrite(header, 1, (size_t)used, file) != (size_t)used ||
        fwrite(array->data, 1, bytes, file) != bytes || fflush(file) != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot write its %zu bytes", bytes);
    }
    return LEAT_OK;
}

enum leat_status
npy_write(const char *path, const struct npy_array *array)
{
    FILE *file = descr_of(array->dtype) != NULL ? fopen(path, "wb") : NULL;

    if (file == NULL) {
        return descr_of(array->dtype) == NULL ? leat_err_prefix(LEAT_ERR_UNSUPPORTED, "%s", path)
                                              : LEAT_FAIL(LEAT_ERR_SYS, "cannot create %s", path);
    }
    const enum leat_status status = npy_write_file(file, array);
    if (fclose(file) != 0 && status == LEAT_OK) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot write %s", path);
    }
    return status == LEAT_OK ? LEAT_OK : leat_err_prefix(status, "%s", path);
}

bool
npy_holds_items(const struct npy_array *array, const struct leat_tensor_info *info)
{
    return array->dtype == info->dtype && array->rank == info->rank &&
           memcmp(array->dims + 1, info->dims + 1, (info->rank - 1) * sizeof(info->dims[0])) == 0;
}

struct npy_shape
npy_shape(uint32_t dtype, const int64_t *dims, uint32_t rank)
{
    struct npy_shape shape;
    size_t used = (size_t)snprintf(shape.text, sizeof(shape.text), "%s[", leat_dtype_text(dtype));

    for (uint32_t d = 0; d < rank; d++) { /* 8 dimensions of at most 20 characters fit */
        char *at = shape.text + used;
        const size_t room = sizeof(shape.text) - used;
        const char *comma = d > 0 ? "," : "";
        used += (size_t)(dims[d] < 0 ? snprintf(at, room, "%sN", comma)
                                     : snprintf(at, room, "%s%lld", comma, (long long)dims[d]));
    }
    (void)snprintf(shape.text + used, sizeof(shape.text) - used, "]");
    return shape;
}

void
npy_free(struct npy_array *array)
{
    free(array->data);
    *array = (struct npy_array){0};
}
