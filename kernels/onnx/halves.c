/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Floats of 16 bits (f16, bf16) where an operator does not compute in them: its operands become f32, and so does
 * everything behind it, up to the graph's outputs and to what the file converts itself. Results are those of f32, not
 * rounded in between.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/half.h"
#include "kernels/infer/infer.h"
#include "kernels/onnx/importer.h"
#include "kernels/op.h"

#define IS_HALF(dtype) ((dtype) == LEAT_DTYPE_F16 || (dtype) == LEAT_DTYPE_BF16)

/* The file's type of a value that is f32 here; LEAT_DTYPE_NONE: it is as in the file. */
static uint32_t
type_in_file(const struct importer *importer, uint32_t value)
{
    return importer->halves != NULL && value != LEAT_VALUE_NONE ? importer->halves[value].in_file : LEAT_DTYPE_NONE;
}

static enum leat_status
widen_constant(struct leat_graph *graph, uint32_t value, uint32_t wide)
{
    struct leat_elements elements = {0};
    void *data;

    enum leat_status status = leat_graph_make_constant(graph, wide, &data);
    if (status == LEAT_OK) {
        status = leat_elements_open(&elements, &graph->values[value]);
    }
    const uint16_t *from = elements.data;
    const size_t count = leat_value_elements(&graph->values[wide]);
    for (size_t i = 0; i < count && status == LEAT_OK; i++) {
        ((float *)data)[i] = leat_half_widen(graph->values[value].dtype, from[i]);
    }
    leat_elements_fini(&elements);
    return status;
}

/* `to` is `from` in another type. */
static enum leat_status
add_cast(struct leat_graph *graph, uint32_t from, uint32_t dtype, uint32_t to)
{
    const int64_t type = dtype == LEAT_DTYPE_F16    ? ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16
                         : dtype == LEAT_DTYPE_BF16 ? ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16
                                                    : ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    const struct leat_attribute attribute = {.name = "to", .kind = LEAT_ATTRIBUTE_INT, .i = type};
    const struct leat_op *op = leat_op_find("Cast", graph->opset);

    if (op == NULL) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "there is no Cast at opset %lld", (long long)graph->opset);
    }
    const enum leat_status status = leat_graph_add_node(graph, op, graph->values[to].name, &from, 1, &to, 1, &attribute, 1);
    return status == LEAT_OK ? leat_graph_infer_node(graph, &graph->nodes[graph->node_count - 1]) : status;
}

/* The value in f32, made once. */
static enum leat_status
widen(struct importer *importer, uint32_t value, uint32_t *ret_wide)
{
    struct leat_graph *graph = importer->graph;
    const struct leat_value narrow = graph->values[value];
    char text[128];

    if (importer->halves == NULL) {
        importer->halves = calloc(LEAT_GRAPH_VALUES_MAX, sizeof(*importer->halves));
    }
    if (importer->halves == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to compute in f32");
    }
    if (importer->halves[value].has_wide) {
        *ret_wide = importer->halves[value].wide;
        return LEAT_OK;
    }
    (void)snprintf(text, sizeof(text), "%.96s, in f32", narrow.name);
    const char *name = leat_graph_text(graph, text);
    if (name == NULL) {
        return leat_graph_shortage(graph);
    }
    enum leat_status status = leat_graph_add_value(graph, name, LEAT_DTYPE_F32, narrow.rank, narrow.dims, ret_wide);
    if (status == LEAT_OK) {
        status = narrow.data != NULL ? widen_constant(graph, value, *ret_wide)
                                     : add_cast(graph, value, LEAT_DTYPE_F32, *ret_wide);
    }
    if (status == LEAT_OK) {
        importer->halves[value].has_wide = true;
        importer->halves[value].wide = *ret_wide;
        importer->halves[*ret_wide].in_file = (uint8_t)narrow.dtype;
    }
    return status;
}

enum leat_status
leat_onnx_widen_inputs(struct importer *importer, const struct leat_op *op, uint32_t *inputs, uint32_t count)
{
    struct leat_graph *graph = importer->graph;
    enum leat_status status = LEAT_OK;
    bool wants = false;

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t dtype = inputs[i] != LEAT_VALUE_NONE ? graph->values[inputs[i]].dtype : LEAT_DTYPE_NONE;
        wants = wants || (i == 0 && IS_HALF(dtype) && (op->types >> dtype & 1u) == 0) ||
                type_in_file(importer, inputs[i]) != LEAT_DTYPE_NONE;
    }
    for (uint32_t i = 0; i < count && wants && status == LEAT_OK; i++) {
        if (inputs[i] != LEAT_VALUE_NONE && IS_HALF(graph->values[inputs[i]].dtype)) {
            status = widen(importer, inputs[i], &inputs[i]);
        }
    }
    return status;
}

void
leat_onnx_note_widened(struct importer *importer, const struct leat_op *op, const uint32_t *inputs,
                       uint32_t input_count, const uint32_t *outputs, uint32_t output_count)
{
    uint32_t in_file = LEAT_DTYPE_NONE;

    for (uint32_t i = 0; i < input_count && in_file == LEAT_DTYPE_NONE; i++) {
        in_file = type_in_file(importer, inputs[i]);
    }
    if (in_file == LEAT_DTYPE_NONE || op->kind == LEAT_OP_CAST) {
        return;
    }
    for (uint32_t o = 0; o < output_count; o++) {
        const uint32_t value = outputs[o];
        if (value != LEAT_VALUE_NONE && importer->graph->values[value].dtype == LEAT_DTYPE_F32) {
            importer->halves[value].in_file = (uint8_t)in_file;
        }
    }
}

enum leat_status
leat_onnx_narrow_output(struct importer *importer, const Onnx__ValueInfoProto *declared, uint32_t *value)
{
    struct leat_graph *graph = importer->graph;
    const Onnx__TypeProto *type = declared->type;
    const bool typed = type != NULL && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && type->tensor_type != NULL;
    const uint32_t in_file = type_in_file(importer, *value);
    char text[128];
    uint32_t narrow;

    /* A file may have f32 there that comes of a Cast that is no more than its operand here. */
    if (in_file == LEAT_DTYPE_NONE || (typed && leat_dtype_from_onnx(type->tensor_type->elem_type) == LEAT_DTYPE_F32)) {
        return LEAT_OK;
    }
    const struct leat_value wide = graph->values[*value];
    (void)snprintf(text, sizeof(text), "%.96s, in f32", wide.name);
    const char *other = leat_graph_text(graph, text);
    if (other == NULL) {
        return leat_graph_shortage(graph);
    }
    enum leat_status status = leat_graph_add_value(graph, wide.name, in_file, wide.rank, wide.dims, &narrow);
    if (status == LEAT_OK) {
        status = add_cast(graph, *value, in_file, narrow);
    }
    if (status == LEAT_OK) {
        graph->values[*value].name = other;
        *value = narrow;
    }
    return status;
}
