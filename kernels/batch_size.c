/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/batch_size.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/infer/infer.h"

/* ---- Constants -------------------------------------------------------------------------------------- */

struct slices {
    uint32_t rank;
    uint32_t behind; /* axes from here on are none of the batch */
    int64_t period[LEAT_RANK_MAX]; /* elements of one item along an axis; all of an axis that is not the batch */
};

/* All elements of a part of a constant, from some axis on. */
struct part {
    const int64_t *dims;
    const unsigned char *data;
    size_t bytes;
};

/* Items have as many elements of an axis in both copies, or one each. */
static void
find_slices(const struct leat_graph *a, const struct leat_graph *b, uint32_t value,
            struct slices *ret)
{
    const struct leat_value *x = &a->values[value], *y = &b->values[value];

    *ret = (struct slices){.rank = x->rank};
    for (uint32_t d = 0; d < x->rank; d++) {
        const bool same = x->dims[d] == y->dims[d];
        const int64_t each = x->dims[d] / a->items;
        const bool multiple =
            each > 0 && each * a->items == x->dims[d] && each * b->items == y->dims[d];
        ret->period[d] = same ? x->dims[d] : multiple ? each : 1;
        ret->behind = same ? ret->behind : d + 1;
    }
}

/* Each slice of `whole` along the batch is what `first` has as its first. */
static bool
repeats(const struct slices *slices, uint32_t d, struct part whole, struct part first)
{
    if (d == slices->behind) {
        return memcmp(whole.data, first.data, whole.bytes) == 0;
    }
    const size_t bytes = whole.bytes / (size_t)whole.dims[0],
                 first_bytes = first.bytes / (size_t)first.dims[0];
    for (int64_t i = 0; i < whole.dims[0]; i++) {
        const size_t from = (size_t)(i % slices->period[d]);
        const struct part x = {whole.dims + 1, whole.data + (size_t)i * bytes, bytes};
        const struct part y = {first.dims + 1, first.data + from * first_bytes, first_bytes};
        if (!repeats(slices, d + 1, x, y)) {
            return false;
        }
    }
    return true;
}

static bool
follows_batch(const struct leat_graph *a, const struct leat_graph *b, uint32_t value)
{
    const struct leat_value *x = &a->values[value], *y = &b->values[value];
    struct slices slices;

    if (x->data == y->data) { /* shared, and perhaps in a file */
        return false;
    }
    if (x->data_bytes == 0 || y->data_bytes == 0) {
        return x->data_bytes != y->data_bytes;
    }
    const struct part few = {x->dims, x->data, x->data_bytes},
                      many = {y->dims, y->data, y->data_bytes};
    find_slices(a, b, value, &slices);
    return !repeats(&slices, 0, few, few) || !repeats(&slices, 0, many, few);
}

void
leat_values_follow_batch(const struct leat_graph *marked, const struct leat_graph *a,
                         const struct leat_graph *b, bool *ret_follows)
{
    for (uint32_t v = 0; v < marked->value_count; v++) {
        const bool folded = marked->values[v].data == NULL && a->values[v].data != NULL &&
                            b->values[v].data != NULL;
        ret_follows[v] = folded && follows_batch(a, b, v);
    }
}

/* ---- Nodes ------------------------------------------------------------------------------------------ */

static bool
says_shape(const struct leat_node *node, uint32_t i)
{
    switch (node->op->kind) {
    case LEAT_OP_CONSTANT_OF_SHAPE:
    case LEAT_OP_EYE_LIKE:
    case LEAT_OP_SHAPE:
    case LEAT_OP_SIZE:
        return true;
    case LEAT_OP_EXPAND:
    case LEAT_OP_RESHAPE:
    case LEAT_OP_TILE:
        return i == 1;
    default:
        return false;
    }
}

/* Along axes that are not the batch, a Slice takes the same places in both copies. */
static enum leat_status
slices_alike(const struct leat_graph *marked, const struct leat_node *node,
             const struct leat_graph *a, const struct leat_graph *b, bool *ret)
{
    const struct leat_value *x = leat_node_input(marked, node, 0);
    struct leat_slice few, many;
    bool known = false;

    *ret = false;
    enum leat_status status = leat_slice_of(a, node, &few, &known);
    if (status == LEAT_OK && known) {
        status = leat_slice_of(b, node, &many, &known);
    }
    if (status != LEAT_OK || !known) {
        return status;
    }
    *ret = true;
    for (uint32_t d = 0; d < x->rank; d++) {
        *ret = *ret && (x->dims[d] == LEAT_DIM_BATCH ||
                        (few.start[d] == many.start[d] && few.step[d] == many.step[d] &&
                         few.count[d] == many.count[d]));
    }
    return LEAT_OK;
}

/* The sizes that a Resize is given differ for the batch alone. */
static bool
resizes_alike(const struct leat_graph *marked, const struct leat_node *node,
              const struct leat_graph *a, const struct leat_graph *b)
{
    const struct leat_value *x = leat_node_input(marked, node, 0);
    const struct leat_value *few = leat_node_output(a, node, 0),
                            *many = leat_node_output(b, node, 0);
    bool alike = true;

    for (uint32_t d = 0; d < x->rank; d++) {
        alike = alike && (x->dims[d] == LEAT_DIM_BATCH || few->dims[d] == many->dims[d]);
    }
    return alike;
}

/* What it yields in a run follows a dim that is not known before. */
static bool
tells_batch(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    int64_t start = 0, end = 0;
    bool tells = false;

    if (node->op->kind == LEAT_OP_SHAPE) {
        leat_shape_range(node, x->rank, &start, &end);
    } else if (node->op->kind == LEAT_OP_SIZE || node->op->kind == LEAT_OP_EYE_LIKE) {
        end = x->rank;
    }
    for (int64_t d = start; d < end; d++) {
        tells = tells || x->dims[d] < 0;
    }
    return tells;
}

static enum leat_status follow_graphs(const struct leat_graph *graph, const struct leat_node *node,
                                      const bool *follows, bool *ret_follows);

/*
 * Inside a node nothing is known of how many items there are: what is computed from shapes follows the batch, and whatever
 * is not computed from constants may be an item's.
 */
static enum leat_status
follow_inside(const struct leat_graph *graph, bool *follows, bool *ret_follows)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t n = 0; n < graph->node_count && status == LEAT_OK; n++) {
        const struct leat_node *node = &graph->nodes[n];
        bool any = tells_batch(graph, node), items = leat_node_has_graphs(node);
        for (uint32_t i = 0; i <= node->input_count; i++) {
            const uint32_t v = i < node->input_count ? node->inputs[i] : node->fused_add;
            if (v != LEAT_VALUE_NONE && !says_shape(node, i)) {
                any = any || follows[v];
                items = items || (!follows[v] && graph->values[v].data == NULL);
            }
        }
        for (uint32_t o = 0; o < node->output_count; o++) {
            if (node->outputs[o] != LEAT_VALUE_NONE) {
                follows[node->outputs[o]] = any;
            }
        }
        *ret_follows = *ret_follows || (any && items);
        status = follow_graphs(graph, node, follows, ret_follows);
    }
    for (uint32_t o = 0; o < graph->output_count; o++) {
        *ret_follows = *ret_follows || follows[graph->outputs[o]];
    }
    return status;
}

/* The graphs inside of a node; `follows` is of the values around it. */
static enum leat_status
follow_graphs(const struct leat_graph *graph, const struct leat_node *node, const bool *follows,
              bool *ret_follows)
{
    enum leat_status status = LEAT_OK;
    uint32_t captured = leat_node_own_inputs(node);

    for (uint32_t i = 0; i < node->attribute_count && status == LEAT_OK; i++) {
        const struct leat_attribute *attribute = &node->attributes[i];
        if (attribute->kind != LEAT_ATTRIBUTE_GRAPH) {
            continue;
        }
        const struct leat_graph *inner = attribute->graph;
        const uint32_t declared = inner->input_count - attribute->count;
        bool *inside = calloc((size_t)inner->value_count + 1, sizeof(*inside));
        if (inside == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to follow shapes");
        }
        for (uint32_t c = 0; c < attribute->count; c++) {
            inside[inner->inputs[declared + c]] = follows[node->inputs[captured + c]];
        }
        captured += attribute->count;
        status = leat_node_runs(graph, node, attribute) ? follow_inside(inner, inside, ret_follows)
                                                        : LEAT_OK;
        free(inside);
    }
    return status;
}

enum leat_status
leat_node_follows_batch(const struct leat_graph *marked, const struct leat_node *node,
                        const struct leat_graph *a, const struct leat_graph *b, const bool *follows,
                        bool *ret_follows)
{
    const uint32_t own = leat_node_own_inputs(node);
    enum leat_status status = LEAT_OK;
    bool slices = false;

    *ret_follows = tells_batch(marked, node) ||
                   (node->fused_add != LEAT_VALUE_NONE && follows[node->fused_add]);
    for (uint32_t i = 0; i < own; i++) {
        if (node->inputs[i] == LEAT_VALUE_NONE || !follows[node->inputs[i]] ||
            says_shape(node, i)) {
            continue;
        }
        if (node->op->kind == LEAT_OP_SLICE && i > 0) {
            slices = true;
        } else if (node->op->kind != LEAT_OP_RESIZE || i != 3 ||
                   !resizes_alike(marked, node, a, b)) {
            *ret_follows = true;
        }
    }
    if (slices && !*ret_follows) {
        status = slices_alike(marked, node, a, b, &slices);
        *ret_follows = !slices;
    }
    return status == LEAT_OK ? follow_graphs(marked, node, follows, ret_follows) : status;
}
