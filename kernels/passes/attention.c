/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vaswani et al., "Attention Is All You Need", section 3.2, as exporters write it: queries, keys and values are split into
 * heads by Reshape and Transpose, Softmax(scale Q K^T + mask) V is computed for each head, and heads are put together again.
 */
#include "kernels/passes/passes.h"

struct attention {
    uint32_t inputs[4]; /* queries, keys, values, mask */
    bool has_mask;
    int64_t heads;
    double scale;
};

static bool
is_transpose(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t y, const uint32_t wanted[4],
             uint32_t *ret_x)
{
    const struct leat_node *node = leat_pass_producer(graph, index, y, LEAT_OP_TRANSPOSE);
    uint32_t perm[LEAT_RANK_MAX];

    if (node == NULL || graph->values[y].rank != 4) {
        return false;
    }
    leat_transpose_perm(node, 4, perm);
    *ret_x = node->inputs[0];
    return perm[0] == wanted[0] && perm[1] == wanted[1] && perm[2] == wanted[2] && perm[3] == wanted[3];
}

/* [items][length][heads * depth] and [items][length][heads][depth] in the same order, of known sizes but for the items. */
static bool
is_split(const struct leat_graph *graph, uint32_t whole, uint32_t split, int64_t *heads)
{
    const struct leat_value *x = &graph->values[whole], *y = &graph->values[split];

    if (x->rank != 3 || y->rank != 4 || x->dtype != LEAT_DTYPE_F32 || (x->dims[0] < 1 && x->dims[0] != LEAT_DIM_BATCH) ||
        x->dims[1] < 1 || y->dims[1] != x->dims[1] || y->dims[2] < 1 || y->dims[3] < 1 ||
        y->dims[2] * y->dims[3] != x->dims[2] || (*heads != 0 && *heads != y->dims[2])) {
        return false;
    }
    *heads = y->dims[2];
    return true;
}

/* y is x with its heads apart and its axes as `perm` has them. */
static bool
has_heads(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t y, const uint32_t perm[4],
          int64_t *heads, uint32_t *ret_x)
{
    uint32_t split;

    if (!is_transpose(graph, index, y, perm, &split)) {
        return false;
    }
    const struct leat_node *reshape = leat_pass_producer(graph, index, split, LEAT_OP_RESHAPE);
    if (reshape == NULL || !is_split(graph, reshape->inputs[0], split, heads)) {
        return false;
    }
    *ret_x = reshape->inputs[0];
    return true;
}

static bool
has_keys(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t y, int64_t *heads, uint32_t *ret_x)
{
    uint32_t inner;
    return has_heads(graph, index, y, (const uint32_t[4]){0, 2, 3, 1}, heads, ret_x) ||
           (is_transpose(graph, index, y, (const uint32_t[4]){0, 1, 3, 2}, &inner) &&
            has_heads(graph, index, inner, (const uint32_t[4]){0, 2, 1, 3}, heads, ret_x));
}

/* A factor or divisor of one element goes into the scale. */
static uint32_t
without_scale(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t y, double *scale)
{
    const struct leat_node *quotient = leat_pass_producer(graph, index, y, LEAT_OP_DIV);
    const struct leat_node *product = leat_pass_producer(graph, index, y, LEAT_OP_MUL);
    double factor;

    if (quotient != NULL && graph->values[quotient->inputs[1]].rank <= 1 &&
        leat_value_scalar(&graph->values[quotient->inputs[1]], &factor) && factor != 0) {
        *scale /= factor;
        return quotient->inputs[0];
    }
    for (uint32_t side = 0; product != NULL && side < 2; side++) {
        if (graph->values[product->inputs[side]].rank <= 1 &&
            leat_value_scalar(&graph->values[product->inputs[side]], &factor)) {
            *scale *= factor;
            return product->inputs[1 - side];
        }
    }
    return y;
}

/* Is broadcast to [items][heads][queries][keys], which it does not enlarge, and has all keys. */
static bool
is_mask(const struct leat_value *mask, const int64_t scores[4])
{
    bool fits = mask->dtype == LEAT_DTYPE_F32 && mask->rank >= 1 && mask->rank <= 4 && mask->dims[mask->rank - 1] == scores[3];
    for (uint32_t d = 0; fits && d < mask->rank; d++) {
        fits = mask->dims[d] == 1 || mask->dims[d] == scores[4 - mask->rank + d];
    }
    return fits;
}

/* scores = scale Q K^T */
static bool
has_scores(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t scores, struct attention *a)
{
    const uint32_t product = without_scale(graph, index, scores, &a->scale);
    const struct leat_node *node = leat_pass_producer(graph, index, product, LEAT_OP_MATMUL);

    if (node == NULL || node->input_count != 2) {
        return false;
    }
    const uint32_t q = without_scale(graph, index, node->inputs[0], &a->scale);
    const uint32_t k = without_scale(graph, index, node->inputs[1], &a->scale);
    if (!has_heads(graph, index, q, (const uint32_t[4]){0, 2, 1, 3}, &a->heads, &a->inputs[0]) ||
        !has_keys(graph, index, k, &a->heads, &a->inputs[1])) {
        return false;
    }
    const struct leat_value *x = &graph->values[a->inputs[0]], *y = &graph->values[a->inputs[1]];
    return x->dims[0] == y->dims[0] && x->dims[2] == y->dims[2];
}

/* What goes into Softmax. */
static bool
has_masked_scores(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t x, struct attention *a)
{
    const struct leat_node *add = leat_pass_producer(graph, index, x, LEAT_OP_ADD);
    const struct attention before = *a;

    if (has_scores(graph, index, x, a)) {
        return true;
    }
    for (uint32_t side = 0; add != NULL && side < 2; side++) {
        *a = before;
        if (!has_scores(graph, index, add->inputs[side], a)) {
            continue;
        }
        const struct leat_value *q = &graph->values[a->inputs[0]], *k = &graph->values[a->inputs[1]];
        a->inputs[3] = add->inputs[1 - side];
        a->has_mask = true;
        return is_mask(&graph->values[a->inputs[3]], (const int64_t[4]){q->dims[0], a->heads, q->dims[1], k->dims[1]});
    }
    return false;
}

static bool
is_attention(const struct leat_graph *graph, const struct leat_pass_index *index, const struct leat_node *node,
             struct attention *a)
{
    uint32_t context;

    if (node->op->kind != LEAT_OP_RESHAPE || graph->values[node->outputs[0]].bounded ||
        !is_transpose(graph, index, node->inputs[0], (const uint32_t[4]){0, 2, 1, 3}, &context) ||
        !is_split(graph, node->outputs[0], node->inputs[0], &a->heads)) {
        return false;
    }
    const struct leat_node *product = leat_pass_producer(graph, index, context, LEAT_OP_MATMUL);
    if (product == NULL || product->input_count != 2) {
        return false;
    }
    const struct leat_node *softmax = leat_pass_producer(graph, index, product->inputs[0], LEAT_OP_SOFTMAX);
    if (softmax == NULL || graph->values[product->inputs[0]].rank != 4 ||
        leat_node_axis(softmax, graph->opset < 13 ? 1 : -1, 4) != 3 ||
        !has_masked_scores(graph, index, softmax->inputs[0], a) ||
        !has_heads(graph, index, product->inputs[1], (const uint32_t[4]){0, 2, 1, 3}, &a->heads, &a->inputs[2])) {
        return false;
    }
    const struct leat_value *q = &graph->values[a->inputs[0]], *k = &graph->values[a->inputs[1]];
    const struct leat_value *v = &graph->values[a->inputs[2]], *y = &graph->values[node->outputs[0]];
    return v->dims[0] == q->dims[0] && v->dims[1] == k->dims[1] && y->dims[0] == q->dims[0];
}

static enum leat_status
fuse(struct leat_graph *graph, struct leat_pass_index *index, struct leat_node *node, bool *ret_done)
{
    struct attention a = {.scale = 1};

    if (!is_attention(graph, index, node, &a)) {
        return LEAT_OK;
    }
    const struct leat_attribute attributes[2] = {
        {.name = "heads", .kind = LEAT_ATTRIBUTE_INT, .count = 1, .i = a.heads},
        {.name = "scale", .kind = LEAT_ATTRIBUTE_FLOAT, .count = 1, .f = (float)a.scale},
    };
    *ret_done = true;
    return leat_pass_replace(graph, index, node, leat_op_fused(LEAT_OP_ATTENTION), a.inputs, a.has_mask ? 4 : 3, attributes, 2);
}

LEAT_PASS_FUNCTION(fuse_attention)
{
    return leat_pass_each(graph, fuse, ret_changed);
}
