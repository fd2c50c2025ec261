/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs that whoever imports a file gives a number to: they become initialisers before any node is looked at, so that shapes,
 * and which branch of an If runs, may follow from them.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/graph_build.h"
#include "kernels/onnx/importer.h"
#include "kernels/reference/element.h"

const struct leat_constant_input *
leat_onnx_constant_input(const struct importer *importer, const char *input)
{
    const struct leat_onnx_source *source = importer->files->source;

    for (uint32_t c = 0; c < source->constant_count; c++) {
        if (strcmp(source->constants[c].name, input) == 0) {
            return &source->constants[c];
        }
    }
    return NULL;
}

/* 'a', 'b' */
static void
list_inputs(const struct importer *importer, char *text, size_t bytes)
{
    const struct entry *entries = leat_onnx_input_entries(importer);
    size_t used = 0;

    (void)snprintf(text, bytes, "none");
    for (size_t i = 0; i < importer->proto->n_input && used < bytes; i++) {
        if (leat_onnx_find(importer, entries[i].name) == &entries[i]) {
            used += (size_t)snprintf(text + used, bytes - used, "%s'%.64s'", used > 0 ? ", " : "", entries[i].name);
        }
    }
}

enum leat_status
leat_onnx_check_constant_inputs(const struct importer *importer)
{
    const struct leat_onnx_source *source = importer->files->source;
    char text[256];

    for (uint32_t c = 0; c < source->constant_count; c++) {
        const struct leat_constant_input *given = &source->constants[c];
        const struct entry *entry = leat_onnx_find(importer, given->name);
        if (entry == NULL || entry->source == SOURCE_NODE) {
            list_inputs(importer, text, sizeof(text));
            return LEAT_FAIL(LEAT_ERR_INVALID, "no input is called '%.64s', so it cannot be constant; inputs are %s", given->name,
                             text);
        }
        if (entry->source == SOURCE_INITIALISER) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "'%.64s' is constant in the file already", given->name);
        }
        if (leat_onnx_constant_input(importer, given->name) != given) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "input '%.64s' is given two constants", given->name);
        }
    }
    return LEAT_OK;
}

static enum leat_status
check_shape(const struct leat_graph *graph, const struct leat_value *value)
{
    for (uint32_t d = 0; d < value->rank; d++) {
        if (value->dims[d] == LEAT_DIM_BATCH) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "input '%.64s' cannot be constant: dimension %u of it counts items, which each "
                                               "query has as many of as it likes",
                             value->name, d);
        }
        if (value->dims[d] < 0) {
            const char *name = graph->symbols[LEAT_DIM_SYMBOL(0) - value->dims[d]];
            return LEAT_FAIL(LEAT_ERR_INVALID, "input '%.64s' cannot be constant while dimension %u of it is free: give '%.64s' a "
                                               "value (--dim %.64s=N)",
                             value->name, d, name, name);
        }
    }
    return LEAT_OK;
}

/* What a type has, of whole numbers that can be given. */
static void
tell_range(uint32_t dtype, char *text, size_t bytes)
{
    const uint32_t bits = 8 * (uint32_t)leat_dtype_bytes(dtype);
    const bool is_signed = dtype == LEAT_DTYPE_I8 || dtype == LEAT_DTYPE_I16 || dtype == LEAT_DTYPE_I32 || dtype == LEAT_DTYPE_I64;
    const int64_t most = dtype == LEAT_DTYPE_BOOL ? 1 : bits == 64 ? INT64_MAX : (INT64_C(1) << (is_signed ? bits - 1 : bits)) - 1;

    (void)snprintf(text, bytes, "%" PRId64 " to %" PRId64, is_signed ? -most - 1 : 0, most);
}

/* 16000.0 is a whole number, too, up to where a double has all of them. */
static struct leat_constant_input
as_whole(const struct leat_constant_input *given)
{
    struct leat_constant_input whole = *given;

    if (!given->is_whole && fabs(given->real) <= 0x1p53 && given->real == trunc(given->real)) {
        whole.is_whole = true;
        whole.whole = (int64_t)given->real;
    }
    return whole;
}

/* As an element of that type, which is to have it: floats round it. */
static enum leat_status
make_element(const struct leat_value *value, const struct leat_constant_input *number_given, void *ret_element)
{
    const bool is_float = leat_dtype_is_float(value->dtype);
    const struct leat_constant_input whole = as_whole(number_given), *given = is_float ? number_given : &whole;
    const struct leat_number number = {.is_float = !given->is_whole,
                                       .is_negative = given->is_whole && given->whole < 0,
                                       .real = given->real,
                                       .bits = (uint64_t)given->whole};
    char range[64];

    leat_number_write(value->dtype, ret_element, 0, &number);
    const struct leat_number kept = leat_number_read(value->dtype, ret_element, 0);
    if (is_float) {
        return isfinite(kept.real) ? LEAT_OK
                                   : LEAT_FAIL(LEAT_ERR_INVALID, "input '%.64s' is of type %s, which has no number as large as %g",
                                               value->name, leat_dtype_text(value->dtype), leat_number_real(&number));
    }
    if (given->is_whole && kept.bits == number.bits && kept.is_negative == number.is_negative) {
        return LEAT_OK;
    }
    tell_range(value->dtype, range, sizeof(range));
    return given->is_whole
               ? LEAT_FAIL(LEAT_ERR_INVALID, "input '%.64s' is of type %s, which has whole numbers from %s, and not %" PRId64,
                           value->name, leat_dtype_text(value->dtype), range, given->whole)
               : LEAT_FAIL(LEAT_ERR_INVALID, "input '%.64s' is of type %s, which has whole numbers from %s, and not %g", value->name,
                           leat_dtype_text(value->dtype), range, given->real);
}

static enum leat_status
make_constant(struct leat_graph *graph, uint32_t index, const struct leat_constant_input *given)
{
    const struct leat_value *value = &graph->values[index];
    const size_t size = leat_dtype_bytes(value->dtype);
    uint64_t element;
    void *data;

    LEAT_ASSERT(size <= sizeof(element));
    enum leat_status status = check_shape(graph, value);
    if (status == LEAT_OK) {
        status = make_element(value, given, &element);
    }
    if (status == LEAT_OK) {
        status = leat_graph_make_constant(graph, index, &data);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const size_t count = leat_value_elements(&graph->values[index]);
    for (size_t i = 0; i < count; i++) {
        memcpy((unsigned char *)data + i * size, &element, size);
    }
    return LEAT_OK;
}

enum leat_status
leat_onnx_make_constant_inputs(struct importer *importer)
{
    struct leat_graph *graph = importer->graph;
    const struct entry *entries = leat_onnx_input_entries(importer);
    uint32_t *left = leat_graph_alloc(graph, graph->input_count, sizeof(*left)), kept = 0;
    enum leat_status status = left != NULL ? LEAT_OK : leat_graph_shortage(graph);

    for (size_t i = 0; i < importer->proto->n_input && status == LEAT_OK; i++) {
        if (leat_onnx_find(importer, entries[i].name) != &entries[i]) {
            continue;
        }
        const struct leat_constant_input *given = leat_onnx_constant_input(importer, entries[i].name);
        if (given == NULL) {
            left[kept++] = entries[i].value;
        } else {
            status = make_constant(graph, entries[i].value, given);
        }
    }
    return status == LEAT_OK ? leat_graph_set_inputs(graph, left, kept) : status;
}
