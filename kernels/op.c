/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/op.h"

#include <math.h>
#include <string.h>

#include "base/align.h"
#include "kernels/infer/infer.h"

const struct leat_op *
leat_op_find(const char *name, int64_t opset)
{
    for (size_t i = 0; i < leat_op_count; i++) {
        const struct leat_op *op = &leat_ops[i];
        if (opset >= (int64_t)op->since && opset <= (int64_t)op->until &&
            strcmp(op->name, name) == 0) {
            return op;
        }
    }
    return NULL;
}

bool
leat_op_known(const char *name, uint32_t *ret_oldest, uint32_t *ret_newest)
{
    uint32_t oldest = 0, newest = 0;
    for (size_t i = 0; i < leat_op_count; i++) {
        if (strcmp(leat_ops[i].name, name) == 0) {
            oldest = oldest == 0 ? leat_ops[i].since : oldest; /* the table is sorted */
            newest = leat_ops[i].until;
        }
    }
    if (newest == 0) {
        return false;
    }
    *ret_oldest = oldest;
    *ret_newest = newest;
    return true;
}

static const char *
kind_text(enum leat_attribute_kind kind)
{
    static const char *const texts[] = {
        [LEAT_ATTRIBUTE_INT] = "INT",       [LEAT_ATTRIBUTE_FLOAT] = "FLOAT",
        [LEAT_ATTRIBUTE_STRING] = "STRING", [LEAT_ATTRIBUTE_INTS] = "INTS",
        [LEAT_ATTRIBUTE_FLOATS] = "FLOATS", [LEAT_ATTRIBUTE_TENSOR] = "TENSOR", [LEAT_ATTRIBUTE_GRAPH] = "GRAPH", [LEAT_ATTRIBUTE_STRINGS] = "STRINGS",
    };
    return texts[kind];
}

static enum leat_status
check_attributes(const struct leat_node *node)
{
    for (uint32_t a = 0; a < node->attribute_count; a++) {
        const struct leat_attribute *attribute = &node->attributes[a];
        const struct leat_op_attribute *schema = node->op->attributes;
        while (schema->name != NULL && strcmp(schema->name, attribute->name) != 0) {
            schema++;
        }
        if (schema->name == NULL) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "attribute '%.64s' is not supported at opsets %u to %u",
                                  attribute->name, node->op->since, node->op->until);
        }
        if (schema->kind != attribute->kind) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "attribute %s has type %s instead of %s",
                                  schema->name, kind_text(attribute->kind),
                                  kind_text(schema->kind));
        }
        if (leat_node_attribute(node, attribute->name) != attribute) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "attribute %s is there twice",
                                  schema->name);
        }
    }
    for (const struct leat_op_attribute *schema = node->op->attributes; schema->name != NULL;
         schema++) {
        if (schema->required && leat_node_attribute(node, schema->name) == NULL) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "attribute %s is missing", schema->name);
        }
    }
    return LEAT_OK;
}

enum leat_status
leat_op_check(const struct leat_node *node)
{
    const struct leat_op *op = node->op;

    if (node->input_count < op->input_min || node->input_count > op->input_max) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "it has %u inputs; %u to %u are possible at opsets %u to %u",
                              node->input_count, op->input_min, op->input_max, op->since, op->until);
    }
    if (node->output_count < 1 || node->output_count > op->output_max) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "it has %u outputs; 1 to %u are possible",
                              node->output_count, op->output_max);
    }
    for (uint32_t i = 0; i < op->input_min; i++) {
        if (node->inputs[i] == LEAT_VALUE_NONE) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "input %u must not be omitted", i);
        }
    }
    if (node->outputs[0] == LEAT_VALUE_NONE) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "output 0 must not be omitted");
    }
    return check_attributes(node);
}

enum leat_status
leat_node_failed(const struct leat_node *node, enum leat_status status)
{
    return leat_err_prefix(status, "node '%.64s' (operator %s)", node->name, node->op->name);
}

uint32_t
leat_dtype_from_onnx(int64_t data_type)
{
    static const uint8_t dtypes[] = {
        [1] = LEAT_DTYPE_F32,   [2] = LEAT_DTYPE_U8,   [3] = LEAT_DTYPE_I8,   [4] = LEAT_DTYPE_U16,
        [5] = LEAT_DTYPE_I16,   [6] = LEAT_DTYPE_I32,  [7] = LEAT_DTYPE_I64,  [9] = LEAT_DTYPE_BOOL,
        [10] = LEAT_DTYPE_F16,  [11] = LEAT_DTYPE_F64, [12] = LEAT_DTYPE_U32, [13] = LEAT_DTYPE_U64,
        [16] = LEAT_DTYPE_BF16,
    };
    return data_type >= 0 && data_type < (int64_t)sizeof(dtypes) ? dtypes[data_type]
                                                                 : LEAT_DTYPE_NONE;
}

bool
leat_value_scalar(const struct leat_value *value, double *ret)
{
    if (value == NULL || value->data == NULL ||
        value->data_bytes != leat_dtype_bytes(value->dtype)) {
        return false;
    }
    switch (value->dtype) {
    case LEAT_DTYPE_F32:
        *ret = (double)*(const float *)value->data;
        return true;
    case LEAT_DTYPE_F64:
        *ret = *(const double *)value->data;
        return true;
    case LEAT_DTYPE_I32:
        *ret = (double)*(const int32_t *)value->data;
        return true;
    case LEAT_DTYPE_I64:
        *ret = (double)*(const int64_t *)value->data;
        return true;
    default:
        return false;
    }
}

int64_t
leat_node_axis(const struct leat_node *node, int64_t otherwise, uint32_t rank)
{
    const int64_t axis = leat_node_int(node, "axis", otherwise);
    return axis < 0 ? axis + (int64_t)rank : axis;
}

uint32_t
leat_dft_axis(const struct leat_graph *graph, const struct leat_node *node)
{
    const bool is_input = node->op->since >= 20;
    const uint32_t rank = leat_node_input(graph, node, 0)->rank;
    double axis = is_input ? -2 : (double)leat_node_int(node, "axis", 1);

    if (is_input) {
        (void)leat_value_scalar(leat_node_input(graph, node, 2), &axis);
    }
    return (uint32_t)(axis < 0 ? axis + rank : axis);
}

void
leat_softmax_extent(const struct leat_graph *graph, const struct leat_node *node,
                    struct leat_softmax_extent *ret)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const bool flat = graph->opset < 13;
    const int64_t axis = leat_node_axis(node, flat ? 1 : -1, x->rank);

    *ret = (struct leat_softmax_extent){.outer = 1, .axis = 1, .inner = 1};
    for (uint32_t d = 0; d < x->rank; d++) {
        if ((int64_t)d < axis) {
            ret->outer *= (size_t)x->dims[d];
        } else if ((int64_t)d == axis || flat) {
            ret->axis *= (size_t)x->dims[d];
        } else {
            ret->inner *= (size_t)x->dims[d];
        }
    }
}

bool
leat_clip_bounds(const struct leat_graph *graph, const struct leat_node *node, float *ret_min,
                 float *ret_max)
{
    double bound;

    *ret_min = leat_node_float(node, "min", -INFINITY);
    *ret_max = leat_node_float(node, "max", INFINITY);
    for (uint32_t i = 1; i < node->input_count; i++) {
        if (node->inputs[i] == LEAT_VALUE_NONE) {
            continue;
        }
        if (!leat_value_scalar(leat_node_input(graph, node, i), &bound)) {
            return false;
        }
        *(i == 1 ? ret_min : ret_max) = (float)bound;
    }
    return true;
}

uint32_t
leat_reduce_axes(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_attribute *attribute = leat_node_attribute(node, "axes");
    const uint32_t rank = leat_node_input(graph, node, 0)->rank;
    const int64_t *axes = attribute != NULL ? attribute->ints : NULL;
    uint32_t mask = 0, count = attribute != NULL ? attribute->count : 0;

    if (attribute == NULL && !leat_value_ints(leat_node_input(graph, node, 1), &axes, &count)) {
        count = 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        mask |= 1u << (axes[i] < 0 ? axes[i] + (int64_t)rank : axes[i]);
    }
    if (count == 0 && leat_node_int(node, "noop_with_empty_axes", 0) != 0) {
        return 0;
    }
    return mask == 0 ? (1u << rank) - 1 : mask;
}

uint32_t
leat_mean_variance_axes(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_attribute *axes = leat_node_attribute(node, "axes");
    const uint32_t rank = leat_node_input(graph, node, 0)->rank;
    uint32_t mask = 0;

    if (axes == NULL) {
        return 1u << 0 | 1u << 2 | 1u << 3;
    }
    for (uint32_t i = 0; i < axes->count; i++) {
        mask |= 1u << (axes->ints[i] < 0 ? axes->ints[i] + (int64_t)rank : axes->ints[i]);
    }
    return mask;
}

void
leat_shape_range(const struct leat_node *node, uint32_t rank, int64_t *ret_start, int64_t *ret_end)
{
    const int64_t size = (int64_t)rank;
    int64_t bounds[2] = {leat_node_int(node, "start", 0), leat_node_int(node, "end", size)};

    for (int i = 0; i < 2; i++) {
        bounds[i] = bounds[i] < 0 ? (bounds[i] < -size ? 0 : bounds[i] + size) : bounds[i];
        bounds[i] = bounds[i] > size ? size : bounds[i];
    }
    *ret_start = bounds[0];
    *ret_end = bounds[1];
}

void
leat_transpose_perm(const struct leat_node *node, uint32_t rank, uint32_t perm[LEAT_RANK_MAX])
{
    const struct leat_attribute *attribute = leat_node_attribute(node, "perm");
    for (uint32_t d = 0; d < rank; d++) {
        perm[d] = attribute != NULL ? (uint32_t)attribute->ints[d] : rank - 1 - d;
    }
}
