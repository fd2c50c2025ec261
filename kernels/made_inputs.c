/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/made_inputs.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/op.h"

/* ---- Ranges ------------------------------------------------------------------------------------- */

/* What a value is for: numbers below `end`. An end of 0 says nothing. */
struct use {
    int64_t end;
    bool most;    /* end - 1 alone */
    bool guessed; /* it gives way to what is known */
};

static struct use
both(struct use a, struct use b)
{
    if (a.end == 0 || b.end == 0) {
        return a.end == 0 ? b : a;
    }
    if (a.guessed != b.guessed) {
        return a.guessed ? b : a;
    }
    return (struct use){.end = a.end < b.end ? a.end : b.end, .most = a.most || b.most, .guessed = a.guessed};
}

/* Of an operator that gives what it is given, whole or in parts; all of its results together. */
static struct use
use_of_results(const struct leat_node *node, const struct use *uses)
{
    struct use use = {.end = 0};

    for (uint32_t o = 0; o < node->output_count; o++) {
        use = both(use, node->outputs[o] != LEAT_VALUE_NONE ? uses[node->outputs[o]] : use);
    }
    return use;
}

static struct use
index_of_rows(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *table = leat_node_input(graph, node, 0);
    const int64_t axis = leat_node_axis(node, 0, table->rank);
    return (struct use){.end = axis >= 0 && axis < table->rank && table->dims[axis] > 0 ? table->dims[axis] : 0};
}

static struct use
length_along(const struct leat_value *x, int64_t axis)
{
    const bool known = axis >= 0 && axis < x->rank && x->dims[axis] > 0 && x->dims[axis] < INT32_MAX;
    return (struct use){.end = known ? x->dims[axis] + 1 : 0, .most = true};
}

static int64_t
greatest_divisor(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *divisors = leat_node_input(graph, node, 1);
    int64_t greatest = 0;

    if (divisors->data == NULL || !leat_value_in_place(divisors) ||
        (divisors->dtype != LEAT_DTYPE_I64 && divisors->dtype != LEAT_DTYPE_I32)) {
        return 0;
    }
    for (size_t i = 0; i < leat_value_elements(divisors); i++) {
        const int64_t divisor = divisors->dtype == LEAT_DTYPE_I64 ? ((const int64_t *)divisors->data)[i]
                                                                  : ((const int32_t *)divisors->data)[i];
        greatest = divisor > greatest ? divisor : greatest;
    }
    return greatest;
}

static void
narrow(struct use *uses, const struct leat_node *node, uint32_t input, struct use use)
{
    if (input < node->input_count && node->inputs[input] != LEAT_VALUE_NONE) {
        uses[node->inputs[input]] = both(uses[node->inputs[input]], use);
    }
}

/* From what is known of a node's results to its inputs. */
static void
go_back(const struct leat_graph *graph, const struct leat_node *node, struct use *uses)
{
    struct use use = use_of_results(node, uses);

    switch (node->op->kind) {
    case LEAT_OP_GATHER:
    case LEAT_OP_GATHER_ELEMENTS:
        narrow(uses, node, 1, index_of_rows(graph, node));
        narrow(uses, node, 0, use);
        break;
    case LEAT_OP_EMBEDDING_BAG:
        narrow(uses, node, 1, index_of_rows(graph, node));
        break;
    case LEAT_OP_GRU:
    case LEAT_OP_LSTM:
    case LEAT_OP_RNN:
        narrow(uses, node, 4, length_along(leat_node_input(graph, node, 0), leat_node_int(node, "layout", 0)));
        break;
    case LEAT_OP_REVERSE_SEQUENCE:
        narrow(uses, node, 1, length_along(leat_node_input(graph, node, 0), leat_node_int(node, "time_axis", 0)));
        narrow(uses, node, 0, use);
        break;
    case LEAT_OP_LOOP:
        narrow(uses, node, 0, (struct use){.end = LEAT_MADE_TRIPS + 1, .most = true, .guessed = true});
        narrow(uses, node, 1, (struct use){.end = 2, .most = true, .guessed = true});
        break;
    case LEAT_OP_MOD:
        if (use.end > 0) {
            use.end = greatest_divisor(graph, node);
            narrow(uses, node, 0, use);
        }
        break;
    case LEAT_OP_CONCAT:
    case LEAT_OP_MAX:
    case LEAT_OP_MIN:
        for (uint32_t i = 0; i < node->input_count; i++) {
            narrow(uses, node, i, use);
        }
        break;
    case LEAT_OP_CAST:
    case LEAT_OP_CLIP:
    case LEAT_OP_EXPAND:
    case LEAT_OP_FLATTEN:
    case LEAT_OP_IDENTITY:
    case LEAT_OP_REDUCE_MAX:
    case LEAT_OP_REDUCE_MIN:
    case LEAT_OP_RESHAPE:
    case LEAT_OP_SLICE:
    case LEAT_OP_SPLIT:
    case LEAT_OP_SQUEEZE:
    case LEAT_OP_TILE:
    case LEAT_OP_TRANSPOSE:
    case LEAT_OP_UNSQUEEZE:
        narrow(uses, node, 0, use);
        break;
    default:
        break;
    }
}

/* A condition is no number, and nothing else is known to be one. */
static bool
takes(uint32_t dtype, struct use use)
{
    return dtype == LEAT_DTYPE_BOOL ? use.end == 2 && use.most : dtype == LEAT_DTYPE_I64 || dtype == LEAT_DTYPE_I32;
}

enum leat_status
leat_graph_made_ranges(const struct leat_graph *graph, struct leat_made_range *ret_ranges)
{
    struct use *uses = calloc((size_t)graph->value_count + 1, sizeof(*uses));

    if (uses == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to look for a model's tables");
    }
    for (uint32_t n = graph->node_count; n-- > 0;) {
        go_back(graph, &graph->nodes[n], uses);
    }
    for (uint32_t i = 0; i < graph->input_count; i++) {
        const struct use use = uses[graph->inputs[i]];
        ret_ranges[i] = (struct leat_made_range){0, 0};
        if (use.end > 0 && takes(graph->values[graph->inputs[i]].dtype, use)) {
            ret_ranges[i] = (struct leat_made_range){.least = use.most ? use.end - 1 : 0, .end = use.end};
        }
    }
    free(uses);
    return LEAT_OK;
}

/* ---- Numbers ------------------------------------------------------------------------------------ */

const char *
leat_filling_text(enum leat_filling filling)
{
    static const char *const texts[] = {
        [LEAT_FILLING_DRAWN] = "drawn numbers", [LEAT_FILLING_ZEROS] = "zeros", [LEAT_FILLING_ONES] = "ones"};
    return texts[filling];
}

static int64_t
draw(struct leat_made_range range, uint64_t n)
{
    uint64_t x = (n + 1) * UINT64_C(0x9e3779b97f4a7c15); /* number 0 is like any other */
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return range.least + (int64_t)((x >> 32) % (uint64_t)(range.end - range.least));
}

static void
fill_with_draws(uint32_t dtype, struct leat_made_range range, size_t elements, uint64_t *drawn, void *ret_elements)
{
    for (size_t i = 0; i < elements; i++) {
        const int64_t number = draw(range, (*drawn)++);
        switch (dtype) {
        case LEAT_DTYPE_I64: ((int64_t *)ret_elements)[i] = number; break;
        case LEAT_DTYPE_I32: ((int32_t *)ret_elements)[i] = (int32_t)number; break;
        default: ((uint8_t *)ret_elements)[i] = number != 0; break;
        }
    }
}

static void
fill_with_ones(uint32_t dtype, size_t elements, unsigned char *ret_elements)
{
    static const float f32 = 1;
    static const double f64 = 1;
    static const uint16_t f16 = 0x3c00, bf16 = 0x3f80;
    static const uint64_t whole = 1; /* little endian */
    const size_t bytes = leat_dtype_bytes(dtype);
    const void *one = &whole;

    switch (dtype) {
    case LEAT_DTYPE_F32: one = &f32; break;
    case LEAT_DTYPE_F64: one = &f64; break;
    case LEAT_DTYPE_F16: one = &f16; break;
    case LEAT_DTYPE_BF16: one = &bf16; break;
    default: break;
    }
    for (size_t i = 0; i < elements; i++) {
        memcpy(ret_elements + i * bytes, one, bytes);
    }
}

void
leat_made_fill(enum leat_filling filling, uint32_t dtype, struct leat_made_range range, size_t elements, uint64_t *drawn,
               void *ret_elements)
{
    if (filling == LEAT_FILLING_ONES) {
        fill_with_ones(dtype, elements, ret_elements);
    } else if (filling == LEAT_FILLING_DRAWN && range.end > 0) {
        fill_with_draws(dtype, range, elements, drawn, ret_elements);
    } else {
        memset(ret_elements, 0, elements * leat_dtype_bytes(dtype));
    }
}
