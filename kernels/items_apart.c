/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/items_apart.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/batch_size.h"
#include "kernels/infer/infer.h"
#include "kernels/op.h"
#include "kernels/window.h"

/* ---- Dims ------------------------------------------------------------------------------------------- */

/* How many elements of an item there are along the axis; 0: it is none of the batch. False: nobody can tell. */
static bool
find_dim(const struct leat_batch_probe *probe, uint32_t value, uint32_t d, int64_t *ret_each)
{
    const int64_t a = probe->a->values[value].dims[d], b = probe->b->values[value].dims[d];
    const int64_t each = a / probe->a->items;

    *ret_each = a == b || each * probe->a->items != a || each * probe->b->items != b ? 0 : each;
    return a == b || *ret_each > 0;
}

static void
mark_dims(const struct leat_batch_probe *probe, uint32_t value)
{
    const struct leat_value *a = &probe->a->values[value], *b = &probe->b->values[value];
    struct leat_value *marked = &probe->marked->values[value];

    marked->dtype = a->dtype;
    marked->rank = a->rank;
    for (uint32_t d = 0; d < a->rank; d++) {
        marked->dims[d] = a->dims[d] == b->dims[d] ? a->dims[d] : LEAT_DIM_BATCH;
    }
}

/* Each dim is the same in both copies, or the same multiple of how many items they are for. */
static bool
has_known_dims(const struct leat_batch_probe *probe, uint32_t value)
{
    int64_t each;
    bool known = true;

    for (uint32_t d = 0; d < probe->a->values[value].rank; d++) {
        known = known && find_dim(probe, value, d, &each);
    }
    return known;
}

/* Axes of the batch have as many elements of an item each, or *each is 0: that is not known yet. */
static bool
has_parts_of(const struct leat_batch_probe *probe, uint32_t value, int64_t *each)
{
    bool same = true;

    for (uint32_t d = 0; d < probe->marked->values[value].rank; d++) {
        int64_t here;
        if (find_dim(probe, value, d, &here) && here > 0) {
            same = same && (*each == 0 || *each == here);
            *each = here;
        }
    }
    return same;
}

/* Elements of one slice along the batch axis, of the dims before it; 0 when there is no batch axis. */
static size_t
elements_before_batch(const struct leat_value *value)
{
    size_t before = 1;
    for (uint32_t d = 0; d < value->rank; d++) {
        if (value->dims[d] == LEAT_DIM_BATCH) {
            return before;
        }
        before *= (size_t)value->dims[d];
    }
    return 0;
}

/* ---- Operators that take places or sizes ------------------------------------------------------------ */

/* Entry i of starts, ends, axes or steps, which Slice has as attributes or as inputs; false where there is none. */
static bool
slice_entry(const struct leat_batch_probe *probe, const struct leat_node *node, const char *name,
            uint32_t input, uint32_t i, struct leat_batch_line *ret)
{
    const struct leat_attribute *given = leat_node_attribute(node, name);
    const struct leat_value *list = leat_node_input(probe->a, node, input);

    if (given != NULL && i < given->count) {
        *ret =
            (struct leat_batch_line){.is_constant = true, .is_whole = true, .base = given->ints[i]};
        return true;
    }
    return list != NULL && i < leat_value_elements(list) &&
           leat_batch_line_at(probe, node->inputs[input], i, ret);
}

static bool
is_zero(const struct leat_batch_line *line)
{
    return line->is_whole && line->base == 0 && line->per == 0;
}

/* Along the batch, cut i of a Slice takes all items in their order; along another axis, the same places in each batch. */
static void
check_cut(const struct leat_batch_probe *probe, const struct leat_node *node,
          const struct leat_slice *slice, uint32_t i, bool *ret_in_order, bool *ret_known)
{
    const uint32_t from = node->inputs[0];
    const struct leat_value *x = &probe->marked->values[from];
    struct leat_batch_line start, end, step, axis, whole = {.is_whole = true};

    const bool steps = slice_entry(probe, node, "steps", 4, i, &step),
               axes = slice_entry(probe, node, "axes", 3, i, &axis);
    if (!slice_entry(probe, node, "starts", 1, i, &start) ||
        !slice_entry(probe, node, "ends", 2, i, &end) || (steps && !step.is_constant) ||
        (axes && !axis.is_constant)) {
        *ret_known = false;
        return;
    }
    const int64_t named = axes ? axis.base : (int64_t)i;
    const uint32_t d = (uint32_t)(named < 0 ? named + (int64_t)x->rank : named);
    if (x->dims[d] != LEAT_DIM_BATCH) {
        *ret_known = *ret_known && start.is_constant && end.is_constant;
        return;
    }
    const bool by_one = !steps || (step.is_whole && step.base == 1);
    const bool to_end = end.is_constant && slice->whole[d];
    *ret_in_order = *ret_in_order && by_one && is_zero(&start) &&
                    find_dim(probe, from, d, &whole.per) &&
                    (to_end || leat_batch_line_reaches(&end, &whole));
}

static enum leat_status
check_slice(const struct leat_batch_probe *probe, const struct leat_node *node, bool *ret_in_order,
            bool *ret_known)
{
    const struct leat_attribute *given = leat_node_attribute(node, "starts");
    const struct leat_value *starts = leat_node_input(probe->a, node, 1);
    struct leat_slice slice;

    *ret_in_order = true;
    /* Where it is known, all lists are as long, and axes are in range. */
    const enum leat_status status = leat_slice_of(probe->a, node, &slice, ret_known);
    const uint32_t cuts = status != LEAT_OK || !*ret_known ? 0
                          : given != NULL                  ? given->count
                                                           : (uint32_t)leat_value_elements(starts);
    for (uint32_t i = 0; i < cuts; i++) {
        check_cut(probe, node, &slice, i, ret_in_order, ret_known);
    }
    return status;
}

/*
 * A Tile or Resize that is no longer or shorter than its input takes each element from its own place: unless it cuts out a
 * region. Repeats and sizes are lines, so two copies tell. Of scales, inference knows 1, and others may be rounded.
 */
static bool
keeps_batch(const struct leat_batch_probe *probe, const struct leat_node *node)
{
    const struct leat_attribute *place =
        leat_node_attribute(node, "coordinate_transformation_mode");
    const struct leat_value *given = leat_node_input(probe->a, node, 3);
    const struct leat_value *x = &probe->marked->values[node->inputs[0]],
                            *y = leat_node_output(probe->a, node, 0);
    const bool sizes = node->op->kind == LEAT_OP_RESIZE && given != NULL &&
                       leat_value_elements(given) > 0 &&
                       (place == NULL || strcmp(place->s, "tf_crop_and_resize") != 0);
    bool keeps = (node->op->kind == LEAT_OP_TILE || sizes) && x->rank == y->rank;

    for (uint32_t d = 0; keeps && d < x->rank; d++) {
        keeps = x->dims[d] != LEAT_DIM_BATCH ||
                (probe->a->values[node->inputs[0]].dims[d] == y->dims[d] &&
                 probe->b->values[node->inputs[0]].dims[d] ==
                     leat_node_output(probe->b, node, 0)->dims[d]);
    }
    return keeps;
}

/* Axes that are none of the batch get as many elements in each. */
static bool
resizes_alike(const struct leat_batch_probe *probe, const struct leat_node *node)
{
    const struct leat_value *x = leat_node_input(probe->marked, node, 0),
                            *y = leat_node_output(probe->marked, node, 0);
    bool alike = true;

    for (uint32_t d = 0; d < x->rank; d++) {
        alike = alike && (x->dims[d] == LEAT_DIM_BATCH || y->dims[d] != LEAT_DIM_BATCH);
    }
    return alike;
}

/* The input says a shape, in which lines may be: the dims that they make are looked at. */
static bool
says_shape(const struct leat_node *node, uint32_t i)
{
    switch (node->op->kind) {
    case LEAT_OP_CONSTANT_OF_SHAPE:
        return true;
    case LEAT_OP_EXPAND:
    case LEAT_OP_RESHAPE:
    case LEAT_OP_TILE:
        return i == 1;
    case LEAT_OP_RESIZE:
        return i == 3;
    case LEAT_OP_SLICE: /* looked at by themselves */
        return i == 1 || i == 2;
    default:
        return false;
    }
}

/*
 * Entries of the target that rise or fall are the output's dims, in both copies. Such a dim is a multiple of the number of
 * items, so the entry is for all: it is nowhere 0 or -1, nor 1 that another dim is broadcast along.
 */
static bool
has_said_dims(const struct leat_batch_probe *probe, const struct leat_node *node)
{
    const struct leat_value *target = leat_node_input(probe->a, node, 1);
    const struct leat_value *a = leat_node_output(probe->a, node, 0),
                            *b = leat_node_output(probe->b, node, 0);

    if (target == NULL || probe->roles[node->inputs[1]] != LEAT_BATCH_NUMBERS) {
        return true;
    }
    const uint32_t count = (uint32_t)leat_value_elements(target);
    bool said = count <= a->rank; /* an Expand's is aligned at the end */
    for (uint32_t i = 0; said && i < count; i++) {
        const uint32_t d = a->rank - count + i;
        struct leat_batch_line line;
        said = leat_batch_line_at(probe, node->inputs[1], i, &line) &&
               (line.is_constant || (a->dims[d] == line.base + line.per * probe->a->items &&
                                     b->dims[d] == line.base + line.per * probe->b->items));
    }
    return said;
}

/* What it yields are dims, one of which is the batch. */
static bool
tells_batch(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    int64_t start = 0, end = 0;

    if (node->op->kind == LEAT_OP_SHAPE) {
        leat_shape_range(node, x->rank, &start, &end);
    } else if (node->op->kind == LEAT_OP_SIZE) {
        end = x->rank;
    }
    return leat_has_batch(x, (uint32_t)start, (uint32_t)(end > start ? end : start));
}

/* ---- Places of maxima ------------------------------------------------------------------------------- */

static bool
has_any_batch(const struct leat_value *value)
{
    return leat_has_batch(value, 0, value->rank);
}

/* Nobody reads it but as the places of a MaxUnpool. */
static bool
is_for_unpooling(const struct leat_graph *graph, uint32_t value)
{
    bool good = true;

    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        for (uint32_t i = 0; i < node->input_count; i++) {
            good = good &&
                   (node->inputs[i] != value || (node->op->kind == LEAT_OP_MAX_UNPOOL && i == 1));
        }
        good = good && node->fused_add != value;
    }
    for (uint32_t o = 0; o < graph->output_count; o++) {
        good = good && graph->outputs[o] != value;
    }
    return good;
}

/* The places are those that a MaxPool found in a tensor as large as the unpooled one: each item's are in its own part. */
static bool
unpools_what_was_pooled(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_node *pool = NULL;
    int64_t dims[LEAT_RANK_MAX];

    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *other = &graph->nodes[n];
        if (other->op->kind == LEAT_OP_MAX_POOL && other->output_count > 1 &&
            other->outputs[1] == node->inputs[1]) {
            pool = other;
        }
    }
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *from = pool != NULL ? leat_node_input(graph, pool, 0) : NULL;
    bool same =
        from != NULL && from->rank == x->rank && leat_unpool_shape(graph, node, dims) == LEAT_OK;
    for (uint32_t d = 0; same && d < x->rank; d++) {
        same = dims[d] == from->dims[d];
    }
    return same;
}

/* They number the elements of the whole batch, so they are an item's own only from one operator to the other. */
static bool
mixes_places(const struct leat_graph *graph, const struct leat_node *node)
{
    switch (node->op->kind) {
    case LEAT_OP_MAX_POOL:
        return node->output_count > 1 && node->outputs[1] != LEAT_VALUE_NONE &&
               has_any_batch(leat_node_input(graph, node, 0)) &&
               !is_for_unpooling(graph, node->outputs[1]);
    case LEAT_OP_MAX_UNPOOL:
        return has_any_batch(leat_node_input(graph, node, 0)) &&
               !unpools_what_was_pooled(graph, node);
    default:
        return false;
    }
}

/* ---- Nodes ------------------------------------------------------------------------------------------ */

/* Along two axes of the batch a part is that of two items; arranged anew, nobody could tell of which. */
static bool
has_several_batches(const struct leat_batch_probe *probe, const struct leat_node *node)
{
    bool several = false;

    for (uint32_t o = 0; o < node->output_count; o++) {
        const uint32_t v = node->outputs[o];
        uint32_t axes = 0;
        for (uint32_t d = 0; v != LEAT_VALUE_NONE && d < probe->marked->values[v].rank; d++) {
            axes += probe->marked->values[v].dims[d] == LEAT_DIM_BATCH;
        }
        several = several || axes > 1;
    }
    return several;
}

static bool
is_folded(const struct leat_batch_probe *probe, const struct leat_node *node)
{
    return node->outputs[0] != LEAT_VALUE_NONE && probe->a->values[node->outputs[0]].data != NULL &&
           probe->b->values[node->outputs[0]].data != NULL;
}

/* Items meet in it, as far as inference and the dims tell. */
static enum leat_status
check_mixing(const struct leat_batch_probe *probe, struct leat_node *node, bool *ret_mixes,
             bool *ret_known)
{
    const enum leat_op_kind kind = node->op->kind;
    int64_t each = 0;
    bool in_order = true;

    *ret_mixes = false;
    *ret_known = true;
    enum leat_status status = leat_graph_infer_mixing(probe->marked, node, ret_mixes);
    for (uint32_t o = 0; o < node->output_count; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE) {
            mark_dims(probe, node->outputs[o]);
            *ret_known = *ret_known && has_known_dims(probe, node->outputs[o]);
        }
    }
    if (status != LEAT_OK) {
        return status;
    }
    if (kind == LEAT_OP_RESHAPE || kind == LEAT_OP_EXPAND) {
        *ret_known = *ret_known && has_said_dims(probe, node);
    }
    if (kind == LEAT_OP_SLICE) {
        bool known;
        status = check_slice(probe, node, &in_order, &known);
        *ret_mixes = !in_order;
        *ret_known = *ret_known && known;
    } else if (kind == LEAT_OP_RESHAPE || kind == LEAT_OP_FLATTEN) {
        /* Row-major order keeps items whole only when the same number of elements comes before the batch. */
        *ret_mixes = elements_before_batch(leat_node_input(probe->marked, node, 0)) !=
                     elements_before_batch(leat_node_output(probe->marked, node, 0));
        return status;
    } else {
        *ret_mixes = (*ret_mixes && !keeps_batch(probe, node)) || mixes_places(probe->marked, node);
        *ret_known = *ret_known && (kind != LEAT_OP_RESIZE || resizes_alike(probe, node));
    }
    if (kind == LEAT_OP_SHAPE || kind == LEAT_OP_SIZE || leat_node_has_graphs(node)) {
        return status;
    }
    /* An axis of two elements for each item beside one of three: what stands at the same place is not the same item's. */
    for (uint32_t i = 0; i <= node->input_count; i++) {
        const uint32_t v = i < node->input_count ? node->inputs[i] : node->fused_add;
        *ret_mixes = *ret_mixes || (v != LEAT_VALUE_NONE && !has_parts_of(probe, v, &each));
    }
    for (uint32_t o = 0; o < node->output_count; o++) {
        *ret_mixes = *ret_mixes || (node->outputs[o] != LEAT_VALUE_NONE &&
                                    !has_parts_of(probe, node->outputs[o], &each));
    }
    return status;
}

/* By what it reads; captures are for the graphs inside. */
static enum leat_batch_role
role_of(const struct leat_batch_probe *probe, const struct leat_node *node, bool mixes, bool known)
{
    const uint32_t own = leat_node_own_inputs(node);
    const bool folded = is_folded(probe, node);
    bool numbers = false;

    for (uint32_t i = 0; i <= own; i++) {
        const uint32_t v = i < own ? node->inputs[i] : node->fused_add;
        if (v == LEAT_VALUE_NONE) {
            continue;
        }
        known = known && probe->roles[v] != LEAT_BATCH_OTHER;
        numbers = numbers || (probe->roles[v] == LEAT_BATCH_NUMBERS && !says_shape(node, i));
    }
    if (!known || mixes || ((numbers || tells_batch(probe->marked, node)) && !folded)) {
        return LEAT_BATCH_OTHER;
    }
    return tells_batch(probe->marked, node) ? leat_batch_describe(probe, node)
           : numbers                        ? leat_batch_compute(probe, node)
                                            : LEAT_BATCH_APART;
}

/* Grows where inference unrolls what is inside. */
static uint64_t
count_inside(const struct leat_node *node)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < node->attribute_count; i++) {
        count += node->attributes[i].kind == LEAT_ATTRIBUTE_GRAPH
                     ? node->attributes[i].graph->value_count
                     : 0;
    }
    return count;
}

static enum leat_status check_inside(const struct leat_batch_probe *probe, struct leat_node *node);

static enum leat_status
check_node(const struct leat_batch_probe *probe, struct leat_node *node)
{
    const bool folded = is_folded(probe, node);
    const uint64_t inside = count_inside(node);
    bool mixes, known;

    enum leat_status status = check_mixing(probe, node, &mixes, &known);
    known = known && count_inside(node) == inside; /* or its values are not those of the copies */
    if (status != LEAT_OK && (!folded || status == LEAT_ERR_NOMEM)) {
        return status;
    }
    enum leat_batch_role role =
        status == LEAT_OK ? role_of(probe, node, mixes, known) : LEAT_BATCH_OTHER;
    if (role == LEAT_BATCH_APART && has_several_batches(probe, node)) {
        role = LEAT_BATCH_OTHER;
        mixes = true;
    }
    for (uint32_t o = 0; o < node->output_count; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE) {
            probe->roles[node->outputs[o]] = role;
        }
    }
    if (folded) {
        return LEAT_OK; /* whoever reads it decides */
    }
    if (mixes) {
        return LEAT_NODE_FAIL(
            node, LEAT_ERR_UNSUPPORTED,
            "it mixes the items of a batch, which may belong to different clients");
    }
    if (role != LEAT_BATCH_APART) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                              "it computes with how many items a batch has, or with their order in "
                              "it: some may belong to other "
                              "clients");
    }
    return leat_node_has_graphs(node) ? check_inside(probe, node) : LEAT_OK;
}

/* ---- Graphs ----------------------------------------------------------------------------------------- */

/* Roles of inputs and constants are set. `what` has outputs. */
static enum leat_status
check_graph(const struct leat_batch_probe *probe, const char *what)
{
    struct leat_graph *marked = probe->marked;
    enum leat_status status = LEAT_OK;

    for (uint32_t v = 0; v < marked->value_count; v++) {
        /* Specialising keeps the indices. */
        if (probe->a->values[v].rank != probe->b->values[v].rank) {
            return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "the rank of '%.64s' depends on the batch",
                             probe->a->values[v].name);
        }
        mark_dims(probe, v);
    }
    for (uint32_t n = 0; n < marked->node_count && status == LEAT_OK; n++) {
        status = check_node(probe, &marked->nodes[n]);
    }
    for (uint32_t o = 0; o < marked->output_count && status == LEAT_OK; o++) {
        if (probe->roles[marked->outputs[o]] != LEAT_BATCH_APART) {
            status = LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                               "%s '%.64s' tells how many items a batch has, or their order in it: "
                               "some may belong to other "
                               "clients",
                               what, marked->values[marked->outputs[o]].name);
        }
    }
    return status;
}

/* The node of a copy that yields the same; NULL where it was unrolled. */
static const struct leat_node *
find_node(const struct leat_graph *copy, const struct leat_node *node)
{
    for (uint32_t n = 0; n < copy->node_count; n++) {
        if (copy->nodes[n].op == node->op && copy->nodes[n].outputs[0] == node->outputs[0]) {
            return &copy->nodes[n];
        }
    }
    return NULL;
}

static enum leat_status
check_inner(const struct leat_batch_probe *probe, const struct leat_node *node,
            const struct leat_attribute *attribute, const uint32_t *captured)
{
    const struct leat_node *node_a = find_node(probe->a, node), *node_b = find_node(probe->b, node);
    struct leat_batch_probe inside = {.marked = attribute->graph};
    uint32_t unused;

    if (node_a != NULL && node_b != NULL) {
        inside.a = leat_node_graph(node_a, attribute->name, &unused);
        inside.b = leat_node_graph(node_b, attribute->name, &unused);
    }
    /* Where a graph was unrolled in some of them, values are not the same ones in all. */
    if (inside.a == NULL || inside.b == NULL ||
        inside.a->value_count != inside.marked->value_count ||
        inside.b->value_count != inside.marked->value_count) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                              "how often it runs, or what runs in it, is decided by how many items "
                              "a batch has: some may belong "
                              "to other clients");
    }
    inside.roles =
        calloc((size_t)inside.marked->value_count + 1, sizeof(*inside.roles)); /* APART */
    if (inside.roles == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to follow shapes");
    }
    for (uint32_t c = 0; c < attribute->count; c++) {
        inside.roles[inside.marked->inputs[inside.marked->input_count - attribute->count + c]] =
            probe->roles[captured[c]];
    }
    const enum leat_status status = check_graph(&inside, "inside, output");
    free(inside.roles);
    return status == LEAT_OK ? LEAT_OK : leat_node_failed(node, status);
}

/* The graphs of a node that both copies run as it is: what it is given, and yields each time, are items' own. */
static enum leat_status
check_inside(const struct leat_batch_probe *probe, struct leat_node *node)
{
    const uint32_t *captured = node->inputs + leat_node_own_inputs(node);
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < node->attribute_count && status == LEAT_OK; i++) {
        const struct leat_attribute *attribute = &node->attributes[i];
        if (attribute->kind == LEAT_ATTRIBUTE_GRAPH) {
            status = leat_node_runs(probe->marked, node, attribute)
                         ? check_inner(probe, node, attribute, captured)
                         : LEAT_OK;
            captured += attribute->count;
        }
    }
    return status;
}

enum leat_status
leat_items_apart(const struct leat_graph *graph, const struct leat_graph *a,
                 const struct leat_graph *b)
{
    struct leat_batch_probe probe = {.a = a, .b = b};

    LEAT_ASSERT(a->items != b->items);
    enum leat_status status = leat_graph_copy(graph, &probe.marked);
    if (status != LEAT_OK) {
        return status;
    }
    probe.roles = calloc((size_t)graph->value_count + 1, sizeof(*probe.roles)); /* APART */
    status = probe.roles != NULL ? check_graph(&probe, "output")
                                 : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to follow shapes");
    free(probe.roles);
    leat_graph_destroy(probe.marked);
    return status;
}
