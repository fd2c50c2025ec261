/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    while (*at == ' ') {
        at++;
    }
    return at;
}

static enum leat_status
parse_shape(const char *text, struct npy_array *array)
{
    if (*text++ != '(') {
        return LEAT_FAIL(LEAT_ERR_PROTO, "its shape is no tuple");
    }
    array->elements = 1;
    for (;;) {
        while (*text == ' ' || *text == ',') {
            text++;
        }
        if (*text == ')') {
            return LEAT_OK;
        }
        char *end;
        const long long dim = strtoll(text, &end, 10);
        if (end == text || dim < 0 || array->rank == LEAT_RANK_MAX ||
            !leat_mul_u64(array->elements, (uint64_t)dim, &array->elements) || array->elements > UINT64_C(1) << 40) {
            return LEAT_FAIL(LEAT_ERR_PROTO, "its shape is malformed, too large or has more than %d dimensions",
                             LEAT_RANK_MAX);
        }
        array->dims[array->rank++] = dim;
        text = end;
    }
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
    return parse_shape(shape, array);
}

static enum leat_status
read_file(FILE *file, struct npy_array *array)
{
    unsigned char start[12];
    char header[HEADER_MAX + 1];

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
    if (length > HEADER_MAX || fread(header, 1, length, file) != length) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "it ends in its header");
    }
    header[length] = '\0';
    const enum leat_status status = parse_header(header, array);
    if (status != LEAT_OK) {
        return status;
    }
    const size_t bytes = array->elements * leat_dtype_bytes(array->dtype);
    array->data = malloc(bytes + 1);
    if (array->data == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for its %zu bytes", bytes);
    }
    if (fread(array->data, 1, bytes, file) != bytes) {
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
    const enum leat_status status = read_file(file, &array);
    (void)fclose(file);
    if (status != LEAT_OK) {
        free(array.data);
        return leat_err_prefix(status, "%s", path);
    }
    *ret_array = array;
    return LEAT_OK;
}

enum leat_status
npy_write(const char *path, const struct npy_array *array)
{
    char header[512];
    const char *descr = NULL;

    for (size_t i = 0; i < LEAT_COUNT_OF(types); i++) {
        descr = types[i].dtype == array->dtype ? types[i].descr : descr;
    }
    if (descr == NULL) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "%s: element type %s has no .npy name", path,
                         leat_dtype_text(array->dtype));
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
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot create %s", path);
    }
    const unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(used & 0xff),
                                     (unsigned char)(used >> 8)};
    const size_t bytes = array->elements * leat_dtype_bytes(array->dtype);
    const bool written = fwrite(start, 1, sizeof(start), file) == sizeof(start) &&
                         fwrite(header, 1, (size_t)used, file) == (size_t)used &&
                         fwrite(array->data, 1, bytes, file) == bytes;
    if (fclose(file) != 0 || !written) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot write %s", path);
    }
    return LEAT_OK;
}

void
npy_free(struct npy_array *array)
{
    free(array->data);
    *array = (struct npy_array){0};
}
