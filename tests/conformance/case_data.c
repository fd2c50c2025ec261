/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/case_data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/onnx/onnx.h"
#include "tests/leat_test.h"

#define RTOL 1e-3
#define ATOL 1e-7

void *
case_read_file(const char *path, size_t *ret_size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return NULL;
    }
    EXPECT(fseek(file, 0, SEEK_END) == 0);
    const long size = ftell(file);
    EXPECT(size >= 0 && fseek(file, 0, SEEK_SET) == 0);
    void *bytes = malloc((size_t)size + 1);
    EXPECT(bytes != NULL && fread(bytes, 1, (size_t)size, file) == (size_t)size);
    (void)fclose(file);
    *ret_size = (size_t)size;
    return bytes;
}

enum leat_status
case_load_tensors(const char *set, const char *stem, struct case_tensors *ret)
{
    *ret = (struct case_tensors){0};
    EXPECT(leat_graph_create(stem, LEAT_OPSET_MAX, &ret->holder) == LEAT_OK);
    for (enum leat_status status = LEAT_OK; ret->count < CASE_TENSORS_MAX; ret->count++) {
        char path[1024];
        size_t size = 0;
        ProtobufCMessage *message = NULL;
        (void)snprintf(path, sizeof(path), "%s/%s_%u.pb", set, stem, ret->count);
        void *bytes = case_read_file(path, &size);
        if (bytes == NULL) {
            return LEAT_OK;
        }
        status = leat_onnx_unpack(&onnx__tensor_proto__descriptor, bytes, size, 0, &message);
        if (status == LEAT_OK) {
            status =
                leat_onnx_tensor(ret->holder, NULL, "tensor", (const Onnx__TensorProto *)(void *)message,
                                 &ret->index[ret->count]);
        }
        leat_onnx_free(message);
        free(bytes);
        if (status != LEAT_OK) {
            return status;
        }
    }
    EXPECT(ret->count < CASE_TENSORS_MAX);
    return LEAT_OK;
}

static double
element(const struct leat_value *value, const void *data, size_t i)
{
    switch (value->dtype) {
    case LEAT_DTYPE_F32:
        return (double)((const float *)data)[i];
    case LEAT_DTYPE_F64:
        return ((const double *)data)[i];
    default:
        return NAN;
    }
}

bool
case_is_near(const struct leat_value *expected, const void *data, bool sums, const char *name)
{
    const size_t count = leat_value_elements(expected);
    double greatest = 1;
    if (expected->dtype != LEAT_DTYPE_F32 && expected->dtype != LEAT_DTYPE_F64) {
        const bool same = memcmp(expected->data, data, expected->data_bytes) == 0;
        if (!same) {
            (void)fprintf(stderr, "%s: elements of type %s differ\n", name,
                          leat_dtype_text(expected->dtype));
        }
        return same;
    }
    for (size_t i = 0; i < count && sums; i++) {
        const double want = fabs(element(expected, expected->data, i));
        greatest = isfinite(want) ? fmax(greatest, want) : greatest;
    }
    for (size_t i = 0; i < count; i++) {
        const double want = element(expected, expected->data, i), have = element(expected, data, i);
        const bool good = isnan(want)   ? isnan(have)
                          : isinf(want) ? have == want
                                        : fabs(have - want) <= ATOL * greatest + RTOL * fabs(want);
        if (!good) {
            (void)fprintf(stderr, "%s: element %zu is %.9g, expected %.9g\n", name, i, have, want);
            return false;
        }
    }
    return true;
}

bool
case_has_shape(const struct leat_shape *have, const struct leat_value *want, const char *name)
{
    bool same = have->dtype == want->dtype && have->rank == want->rank;
    for (uint32_t d = 0; same && d < have->rank; d++) {
        same = have->dims[d] == want->dims[d];
    }
    if (!same) {
        (void)fprintf(stderr, "%s: an output has another type or shape than expected\n", name);
    }
    return same;
}

void
case_bind_inputs(struct leat_graph *graph, const struct case_tensors *inputs, uint32_t constants)
{
    uint32_t kept[CASE_TENSORS_MAX], count = 0;

    for (uint32_t i = 0; i < graph->input_count; i++) {
        const struct leat_value *from = case_tensor(inputs, i);
        struct leat_value *value = &graph->values[graph->inputs[i]];
        value->rank = from->rank;
        memcpy(value->dims, from->dims, sizeof(value->dims));
        if ((constants >> i & 1u) != 0) {
            void *data;
            EXPECT(leat_graph_make_constant(graph, graph->inputs[i], &data) == LEAT_OK);
            memcpy(data, from->data, from->data_bytes);
        } else {
            kept[count++] = graph->inputs[i];
        }
    }
    EXPECT(leat_graph_set_inputs(graph, kept, count) == LEAT_OK);
}

enum leat_status
case_try(const struct leat_graph *imported, const struct case_tensors *inputs, uint32_t constants,
         enum leat_status (*use)(struct leat_graph *graph), struct leat_graph **ret_graph)
{
    struct leat_graph *graph = NULL;

    EXPECT(leat_graph_copy(imported, &graph) == LEAT_OK);
    case_bind_inputs(graph, inputs, constants);
    const enum leat_status status = use(graph);
    if (status != LEAT_OK) {
        leat_graph_destroy(graph);
        return status;
    }
    *ret_graph = graph;
    return LEAT_OK;
}

enum leat_status
case_use(const struct leat_graph *imported, const struct case_tensors *inputs, uint32_t wanted,
         enum leat_status (*use)(struct leat_graph *graph), struct leat_graph **ret_graph, uint32_t *ret_constants)
{
    const uint32_t count = imported->input_count;
    enum leat_status status = LEAT_ERR_UNSUPPORTED;

    for (uint32_t constants = 0; constants <= count; constants++) {
        for (uint32_t mask = 1u << count; mask-- > 0;) {
            if ((uint32_t)__builtin_popcount(mask) != constants || (mask & wanted) != wanted) {
                continue;
            }
            status = case_try(imported, inputs, mask, use, ret_graph);
            if (status == LEAT_OK) {
                *ret_constants = mask;
                return LEAT_OK;
            }
        }
    }
    return status;
}

/* A constant of `holder` that is `from` in doubles, or as it is. */
static uint32_t
widen(struct leat_graph *holder, const struct leat_value *from, bool wide)
{
    uint32_t index;

    EXPECT(leat_graph_add_constant(holder, from->name, wide ? LEAT_DTYPE_F64 : from->dtype, from->rank, from->dims,
                                   wide ? NULL : from->data, &index) == LEAT_OK);
    /* The cast drops const: nobody else has this payload yet. */
    double *to = (double *)(uintptr_t)holder->values[index].data;
    for (size_t i = 0; wide && i < leat_value_elements(from); i++) {
        to[i] = (double)((const float *)from->data)[i];
    }
    return index;
}

static void
widen_tensors(const struct case_tensors *tensors, const struct leat_graph *graph, const uint32_t *values,
              struct case_tensors *ret)
{
    *ret = (struct case_tensors){.count = tensors->count};
    EXPECT(leat_graph_create("doubles", LEAT_OPSET_MAX, &ret->holder) == LEAT_OK);
    for (uint32_t i = 0; i < tensors->count; i++) {
        const struct leat_value *from = case_tensor(tensors, i);
        ret->index[i] =
            widen(ret->holder, from, from->dtype == LEAT_DTYPE_F32 && graph->values[values[i]].dtype == LEAT_DTYPE_F64);
    }
}

static void
replace(uint32_t *values, uint32_t count, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < count; i++) {
        values[i] = values[i] == from ? to : values[i];
    }
}

/* Whoever reads the constant, reads it in doubles. */
static void
widen_constant(struct leat_graph *graph, uint32_t index)
{
    const struct leat_value from = graph->values[index];
    const uint32_t wide = widen(graph, &from, true);

    replace(graph->outputs, graph->output_count, index, wide);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        struct leat_node *node = &graph->nodes[n];
        replace(node->inputs, node->input_count, index, wide);
        for (uint32_t a = 0; a < node->attribute_count; a++) {
            if (node->attributes[a].kind == LEAT_ATTRIBUTE_TENSOR) {
                replace(&node->attributes[a].value, 1, index, wide);
            }
        }
    }
}

bool
case_in_doubles(const struct leat_graph *imported, const struct case_tensors *inputs, const struct case_tensors *outputs,
                struct leat_graph **ret_graph, struct case_tensors *ret_inputs, struct case_tensors *ret_outputs)
{
    struct leat_graph *graph = NULL;
    bool has_floats = false, has_graphs = false;

    for (uint32_t n = 0; n < imported->node_count; n++) {
        has_graphs = has_graphs || leat_node_has_graphs(&imported->nodes[n]);
    }
    for (uint32_t i = 0; i < imported->input_count; i++) {
        has_floats = has_floats || imported->values[imported->inputs[i]].dtype == LEAT_DTYPE_F32;
    }
    if (!has_floats || has_graphs) {
        return false;
    }
    EXPECT(leat_graph_copy(imported, &graph) == LEAT_OK);
    for (uint32_t v = 0; v < imported->value_count; v++) {
        if (graph->values[v].dtype == LEAT_DTYPE_F32 && graph->values[v].data != NULL) {
            widen_constant(graph, v);
        }
    }
    for (uint32_t i = 0; i < graph->input_count; i++) {
        struct leat_value *value = &graph->values[graph->inputs[i]];
        value->dtype = value->dtype == LEAT_DTYPE_F32 ? LEAT_DTYPE_F64 : value->dtype;
    }
    if (leat_graph_infer(graph) != LEAT_OK) {
        leat_graph_destroy(graph);
        return false;
    }
    widen_tensors(inputs, graph, graph->inputs, ret_inputs);
    widen_tensors(outputs, graph, graph->outputs, ret_outputs);
    *ret_graph = graph;
    return true;
}
