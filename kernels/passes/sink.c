/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transposes move below operators that take each element of their result from its own place, where that leaves fewer of
 * them: Relu(Transpose(x)) is Transpose(Relu(x)), and the Transpose back that reads it ends both.
 *
 * A value is `turned` by perm P where a Transpose by P makes it, or such an operator whose operands are all turned by P,
 * have one element or are constants, which can be permuted. Operators that touch by turned values are a region: it moves
 * as a whole. What would go are Transposes in front that nobody else reads, and those behind that are inverses; what would
 * come is one for each result that others read. A region moves where fewer come than go, so this ends; where that puts a
 * symbolic axis is shape inference's to say. Of regions that share a Transpose, behind one and in front of the other, one
 * moves in a round.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/padding/padding.h"
#include "kernels/passes/passes.h"

#define PERMS_MAX  32u /* different ones that move; those beyond stay */
#define ROUNDS_MAX 16u
#define NOT_TURNED UINT8_MAX

struct perm {
    uint32_t rank, axes[LEAT_RANK_MAX];
};

/* Of a region, by the value that stands for it. */
struct region {
    uint32_t operators, come, go;
    uint64_t bytes; /* of constants that are to be permuted */
    bool stays;
};

struct sink {
    struct leat_graph *graph;
    uint32_t values, nodes; /* at a round's start */
    struct perm perms[PERMS_MAX];
    uint32_t perm_count;
    struct leat_pass_index index;
    uint8_t *turned;         /* per value: which perm, or NOT_TURNED */
    uint32_t *others;        /* per value: how often it is read by what neither is in a region nor a Transpose */
    uint32_t *parent;        /* per value: union-find */
    uint32_t *before;        /* per turned value of a region that moves: what it is before its Transpose */
    struct region *regions;  /* per value */
    bool *inside;            /* per node */
};

static bool
is_plain(const struct leat_node *node, enum leat_op_kind kind)
{
    return node->op->kind == kind && node->fused_add == LEAT_VALUE_NONE &&
           node->fused_activation == LEAT_ACTIVATION_NONE;
}

static struct perm
perm_of(const struct leat_graph *graph, const struct leat_node *transpose)
{
    struct perm perm = {.rank = leat_node_input(graph, transpose, 0)->rank};
    leat_transpose_perm(transpose, perm.rank, perm.axes);
    return perm;
}

static bool
is_identity(const struct perm *perm)
{
    bool identity = true;
    for (uint32_t d = 0; d < perm->rank; d++) {
        identity = identity && perm->axes[d] == d;
    }
    return identity;
}

/* Of what is turned by `first`, turned by `then`. */
static struct perm
compose(const struct perm *first, const struct perm *then)
{
    struct perm both = {.rank = first->rank};

    LEAT_ASSERT(first->rank == then->rank);
    for (uint32_t d = 0; d < first->rank; d++) {
        both.axes[d] = first->axes[then->axes[d]];
    }
    return both;
}

static uint8_t
number_perm(struct sink *sink, const struct perm *perm)
{
    for (uint32_t p = 0; p < sink->perm_count; p++) {
        if (sink->perms[p].rank == perm->rank && memcmp(sink->perms[p].axes, perm->axes, sizeof(perm->axes)) == 0) {
            return (uint8_t)p;
        }
    }
    if (sink->perm_count == PERMS_MAX || is_identity(perm)) {
        return NOT_TURNED;
    }
    sink->perms[sink->perm_count] = *perm;
    return (uint8_t)sink->perm_count++;
}

static bool
is_turned(const struct sink *sink, uint32_t value)
{
    return value != LEAT_VALUE_NONE && value < sink->values && sink->turned[value] != NOT_TURNED;
}

/* An operand that is the same whatever the order of axes. */
static bool
has_one_element(const struct leat_value *value)
{
    return value->rank == 0 || (value->data != NULL && leat_value_elements(value) == 1);
}

/* A constant that is broadcast to the result, and so can be permuted with it: what CastLike reads but the type of need not be. */
static bool
can_be_turned(const struct leat_value *x, const struct leat_value *y)
{
    bool can = x->data != NULL && x->rank <= y->rank;

    for (uint32_t d = 0; can && d < x->rank; d++) {
        can = x->dims[d] == 1 || x->dims[d] == y->dims[y->rank - x->rank + d];
    }
    return can;
}

/* ---- Regions ------------------------------------------------------------------------------------------- */

/* Which perm the operator's operands and result are turned by; NOT_TURNED where they are not all. */
static uint8_t
turned_operator(const struct sink *sink, const struct leat_node *node)
{
    const struct leat_value *y = leat_node_output(sink->graph, node, 0);
    uint8_t perm = NOT_TURNED;

    if (!padding_is_elementwise(node->op->kind) || !is_plain(node, node->op->kind) || node->output_count != 1 ||
        y->bounded || (node->op->kind == LEAT_OP_PRELU && node->op->until < 7)) { /* slopes of channels */
        return NOT_TURNED;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        const uint8_t own = is_turned(sink, node->inputs[i]) ? sink->turned[node->inputs[i]] : NOT_TURNED;
        if (own != NOT_TURNED && perm != NOT_TURNED && own != perm) {
            return NOT_TURNED;
        }
        perm = own != NOT_TURNED ? own : perm;
    }
    if (perm == NOT_TURNED || y->rank != sink->perms[perm].rank) {
        return NOT_TURNED;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct leat_value *x = leat_node_input(sink->graph, node, i);
        if (x != NULL && !is_turned(sink, node->inputs[i]) && !has_one_element(x) && !can_be_turned(x, y)) {
            return NOT_TURNED;
        }
    }
    return perm;
}

static void
find_turned(struct sink *sink)
{
    struct leat_graph *graph = sink->graph;

    memset(sink->turned, NOT_TURNED, sink->values);
    memcpy(sink->others, sink->index.uses, sink->values * sizeof(*sink->others));
    for (uint32_t n = 0; n < sink->nodes; n++) {
        const struct leat_node *node = &graph->nodes[n];
        const bool transpose = is_plain(node, LEAT_OP_TRANSPOSE);
        uint8_t perm;
        if (transpose) {
            const struct perm own = perm_of(graph, node);
            perm = graph->values[node->inputs[0]].bounded ? NOT_TURNED : number_perm(sink, &own);
        } else {
            perm = turned_operator(sink, node);
        }
        sink->inside[n] = !transpose && perm != NOT_TURNED;
        for (uint32_t i = 0; i < node->input_count && (transpose || sink->inside[n]); i++) {
            if (is_turned(sink, node->inputs[i])) { /* which an operand that is left out is not */
                sink->others[node->inputs[i]]--;
            }
        }
        if (perm != NOT_TURNED) {
            sink->turned[node->outputs[0]] = perm;
        }
    }
}

/* An operator whose result only others read is in no region where its operand may as well be what is transposed. */
static void
leave_out(struct sink *sink)
{
    for (uint32_t n = sink->nodes; n-- > 0;) {
        const struct leat_node *node = &sink->graph->nodes[n];
        const uint32_t y = node->outputs[0];
        uint32_t more = 0;
        if (!sink->inside[n] || sink->others[y] == 0 || sink->others[y] < sink->index.uses[y]) {
            continue;
        }
        for (uint32_t i = 0; i < node->input_count; i++) {
            bool again = false;
            for (uint32_t k = 0; k < i; k++) {
                again = again || node->inputs[k] == node->inputs[i];
            }
            more += !again && is_turned(sink, node->inputs[i]) && sink->others[node->inputs[i]] == 0;
        }
        if (more > 1) {
            continue;
        }
        sink->inside[n] = false;
        sink->turned[y] = NOT_TURNED;
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (is_turned(sink, node->inputs[i])) {
                sink->others[node->inputs[i]]++;
            }
        }
    }
}

static uint32_t
find_root(struct sink *sink, uint32_t value)
{
    while (sink->parent[value] != value) {
        sink->parent[value] = sink->parent[sink->parent[value]];
        value = sink->parent[value];
    }
    return value;
}

static struct region *
region_of(struct sink *sink, uint32_t value)
{
    return is_turned(sink, value) ? &sink->regions[find_root(sink, value)] : NULL;
}

static void
join(struct sink *sink)
{
    for (uint32_t v = 0; v < sink->values; v++) {
        sink->parent[v] = v;
        sink->regions[v] = (struct region){0};
    }
    for (uint32_t n = 0; n < sink->nodes; n++) {
        const struct leat_node *node = &sink->graph->nodes[n];
        for (uint32_t i = 0; i < node->input_count && sink->inside[n]; i++) {
            if (is_turned(sink, node->inputs[i])) {
                sink->parent[find_root(sink, node->inputs[i])] = find_root(sink, node->outputs[0]);
            }
        }
    }
}

static void
count_operator(struct sink *sink, const struct leat_node *node)
{
    struct region *region = region_of(sink, node->outputs[0]);

    region->operators++;
    region->come += sink->others[node->outputs[0]] > 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct leat_value *x = leat_node_input(sink->graph, node, i);
        if (x != NULL && !is_turned(sink, node->inputs[i]) && !has_one_element(x) &&
            !leat_add_u64(region->bytes, leat_value_bytes(x), &region->bytes)) {
            region->stays = true;
        }
    }
}

static void
count_transpose(struct sink *sink, const struct leat_node *node)
{
    struct region *behind = region_of(sink, node->outputs[0]), *in_front = region_of(sink, node->inputs[0]);

    if (behind != NULL) {
        behind->go += sink->others[node->outputs[0]] == 0;
        behind->stays = behind->stays || behind == in_front;
    }
    if (in_front != NULL) {
        const struct perm own = perm_of(sink->graph, node);
        const struct perm both = compose(&sink->perms[sink->turned[node->inputs[0]]], &own);
        in_front->go += is_identity(&both);
    }
}

static bool
may_move(const struct region *region)
{
    return region != NULL && region->operators > 0 && !region->stays && region->come < region->go;
}

/* Of two regions with a Transpose between them one stays: by a number that spreads, for rows of them to end soon. */
static void
keep_apart(struct sink *sink)
{
    for (uint32_t n = 0; n < sink->nodes; n++) {
        const struct leat_node *node = &sink->graph->nodes[n];
        struct region *behind = is_plain(node, LEAT_OP_TRANSPOSE) ? region_of(sink, node->outputs[0]) : NULL;
        struct region *in_front = behind != NULL ? region_of(sink, node->inputs[0]) : NULL;
        if (may_move(behind) && may_move(in_front)) {
            const uint32_t a = (uint32_t)(behind - sink->regions) * 2654435761u,
                           b = (uint32_t)(in_front - sink->regions) * 2654435761u;
            (a > b ? behind : in_front)->stays = true;
        }
    }
}

/* What is to move; false when nothing is. */
static bool
choose(struct sink *sink)
{
    bool any = false;

    find_turned(sink);
    leave_out(sink);
    join(sink);
    for (uint32_t n = 0; n < sink->nodes; n++) {
        const struct leat_node *node = &sink->graph->nodes[n];
        if (sink->inside[n]) {
            count_operator(sink, node);
        } else if (is_plain(node, LEAT_OP_TRANSPOSE)) {
            count_transpose(sink, node);
        }
    }
    keep_apart(sink);
    for (uint32_t v = 0; v < sink->values; v++) {
        struct region *region = &sink->regions[v];
        region->stays = !may_move(region) || !leat_graph_may_fold(sink->graph, region->bytes);
        any = any || !region->stays;
    }
    return any;
}

/* ---- Moving ---------------------------------------------------------------------------------------------- */

static bool
moves(struct sink *sink, uint32_t value)
{
    const struct region *region = region_of(sink, value);
    return region != NULL && !region->stays;
}

/* Constant `from`, which is broadcast to what is turned by `perm`, as it is before that. */
static enum leat_status
turn_back(struct leat_graph *graph, const struct perm *perm, uint32_t from, uint32_t *ret)
{
    enum leat_status status = leat_graph_settle_constant(graph, from);
    if (status != LEAT_OK) {
        return status;
    }
    const struct leat_value old = graph->values[from];
    const size_t size = leat_dtype_bytes(old.dtype), count = leat_value_elements(&old);
    int64_t dims[LEAT_RANK_MAX];
    size_t step[LEAT_RANK_MAX], stride = 1, place = 0; /* in `from`, for one along each axis of the result */
    int64_t at[LEAT_RANK_MAX] = {0};
    void *data;

    LEAT_ASSERT(old.rank <= perm->rank);
    for (uint32_t i = perm->rank; i-- > 0;) {
        const uint32_t lead = perm->rank - old.rank;
        dims[perm->axes[i]] = i < lead ? 1 : old.dims[i - lead];
        step[perm->axes[i]] = stride;
        stride *= (size_t)dims[perm->axes[i]];
    }
    status = leat_graph_add_value(graph, old.name, old.dtype, perm->rank, dims, ret);
    if (status == LEAT_OK) {
        status = leat_graph_make_constant(graph, *ret, &data);
    }
    for (size_t k = 0; k < count && status == LEAT_OK; k++) {
        memcpy((char *)data + k * size, (const char *)old.data + place * size, size);
        for (uint32_t d = perm->rank; d-- > 0;) {
            place += step[d];
            if (++at[d] < dims[d]) {
                break;
            }
            place -= (size_t)dims[d] * step[d];
            at[d] = 0;
        }
    }
    return status;
}

static enum leat_status
put_transpose(struct leat_graph *graph, const char *name, uint32_t from, const struct perm *perm, uint32_t to)
{
    int64_t *axes = leat_graph_alloc(graph, perm->rank, sizeof(*axes));
    const struct leat_attribute attribute = {
        .name = "perm", .kind = LEAT_ATTRIBUTE_INTS, .count = perm->rank, .ints = axes};

    if (axes == NULL) {
        return leat_graph_shortage(graph);
    }
    for (uint32_t d = 0; d < perm->rank; d++) {
        axes[d] = (int64_t)perm->axes[d];
    }
    const enum leat_status status =
        leat_graph_add_node(graph, leat_op_find("Transpose", graph->opset), name, &from, 1, &to, 1, &attribute, 1);
    return status == LEAT_OK ? leat_graph_infer_node(graph, &graph->nodes[graph->node_count - 1]) : status;
}

static enum leat_status
put_operator(struct sink *sink, struct leat_node *node)
{
    struct leat_graph *graph = sink->graph;
    const uint32_t y = node->outputs[0];
    const struct perm *perm = &sink->perms[sink->turned[y]];
    const struct leat_value old = graph->values[y];
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < node->input_count && status == LEAT_OK; i++) {
        const struct leat_value *x = leat_node_input(graph, node, i);
        if (is_turned(sink, node->inputs[i])) {
            node->inputs[i] = sink->before[node->inputs[i]];
        } else if (x != NULL && !has_one_element(x)) {
            status = turn_back(graph, perm, node->inputs[i], &node->inputs[i]);
        }
    }
    if (status == LEAT_OK) {
        status = leat_graph_add_value(graph, old.name, old.dtype, old.rank, old.dims, &sink->before[y]);
    }
    if (status != LEAT_OK) {
        return status;
    }
    node->outputs[0] = sink->before[y];
    status = leat_graph_infer_node(graph, node);
    if (status == LEAT_OK) {
        status = leat_graph_put_node(graph, node);
    }
    return status == LEAT_OK && sink->others[y] > 0 ? put_transpose(graph, node->name, sink->before[y], perm, y) : status;
}

static enum leat_status
put_node(struct sink *sink, struct leat_node *node, bool inside)
{
    struct leat_graph *graph = sink->graph;

    if (inside && moves(sink, node->outputs[0])) {
        return put_operator(sink, node);
    }
    if (!is_plain(node, LEAT_OP_TRANSPOSE)) {
        return leat_graph_put_node(graph, node);
    }
    if (moves(sink, node->inputs[0])) {
        const struct perm own = perm_of(graph, node);
        const struct perm both = compose(&sink->perms[sink->turned[node->inputs[0]]], &own);
        return put_transpose(graph, node->name, sink->before[node->inputs[0]], &both, node->outputs[0]);
    }
    if (moves(sink, node->outputs[0])) {
        sink->before[node->outputs[0]] = node->inputs[0];
        return sink->others[node->outputs[0]] > 0 ? leat_graph_put_node(graph, node) : LEAT_OK;
    }
    return leat_graph_put_node(graph, node);
}

static enum leat_status
move(struct sink *sink)
{
    enum leat_status status = LEAT_OK;
    uint32_t count;

    struct leat_node *nodes = leat_graph_take_nodes(sink->graph, &count);
    for (uint32_t n = 0; n < count && status == LEAT_OK; n++) {
        status = put_node(sink, &nodes[n], sink->inside[n]);
    }
    return status;
}

/* ---- Rounds ------------------------------------------------------------------------------------------------ */

static void
release(struct sink *sink)
{
    free(sink->turned);
    free(sink->others);
    free(sink->parent);
    free(sink->before);
    free(sink->regions);
    free(sink->inside);
    leat_pass_index_destroy(&sink->index);
}

static enum leat_status
run_round(struct leat_graph *graph, bool *ret_moved)
{
    struct sink sink = {.graph = graph, .values = graph->value_count, .nodes = graph->node_count};
    const size_t values = (size_t)sink.values + 1;

    enum leat_status status = leat_pass_index_create(graph, &sink.index);
    if (status != LEAT_OK) {
        return status;
    }
    sink.turned = calloc(values, sizeof(*sink.turned));
    sink.others = calloc(values, sizeof(*sink.others));
    sink.parent = calloc(values, sizeof(*sink.parent));
    sink.before = calloc(values, sizeof(*sink.before));
    sink.regions = calloc(values, sizeof(*sink.regions));
    sink.inside = calloc((size_t)sink.nodes + 1, sizeof(*sink.inside));
    if (sink.turned == NULL || sink.others == NULL || sink.parent == NULL || sink.before == NULL ||
        sink.regions == NULL || sink.inside == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a pass over %u values", graph->value_count);
    } else {
        *ret_moved = choose(&sink);
        status = *ret_moved ? move(&sink) : LEAT_OK;
    }
    release(&sink);
    return status;
}

/* There is a Transpose, and room for what moving makes: a value for each operand and result. */
static bool
is_worth_it(const struct leat_graph *graph)
{
    uint64_t values = graph->value_count;
    bool any = false;

    for (uint32_t n = 0; n < graph->node_count; n++) {
        any = any || graph->nodes[n].op->kind == LEAT_OP_TRANSPOSE;
        values += (uint64_t)graph->nodes[n].input_count + 1;
    }
    return any && values <= LEAT_GRAPH_VALUES_MAX;
}

LEAT_PASS_FUNCTION(sink_transposes)
{
    enum leat_status status = LEAT_OK;
    bool moved = true, removed;

    *ret_changed = false;
    for (uint32_t round = 0; round < ROUNDS_MAX && moved && status == LEAT_OK && is_worth_it(graph); round++) {
        status = run_round(graph, &moved);
        *ret_changed = *ret_changed || (status == LEAT_OK && moved);
    }
    return status == LEAT_OK && *ret_changed ? leat_pass_remove_transposes(graph, &removed) : status;
}
