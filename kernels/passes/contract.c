/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An Einsum of several operands becomes Einsums of two, in that order of all that takes the fewest products: operands are few. What
 * an operand is summed over alone, and its diagonals, go before, by an Einsum of one.
 *
 * Order     Of each set of operands the best of all ways to make it of two sets. It carries those labels that the result or an
 *           operand outside the set carries, too. A size that is not known counts as GUESS. Elements that are written count as
 *           products do.
 *
 * Einsums that sum over an ellipsis stay, for a term can leave out all of its axes, not one, and letters are not broadcast; so do
 * those of which any order has a tensor of too many axes.
 */
#include <math.h>
#include <string.h>

#include "kernels/einsum.h"
#include "kernels/passes/passes.h"

enum { SETS = 1 << LEAT_EINSUM_OPERANDS_MAX, GUESS = 64, TERM_MAX = LEAT_RANK_MAX + 4 };

/* For one Einsum at most, and as many values. */
#define NODES_MAX (2 * LEAT_EINSUM_OPERANDS_MAX - 1)

struct contraction {
    struct leat_einsum einsum;
    uint32_t sets;           /* of operands: one less is the set of all */
    uint64_t labels[SETS];   /* that it carries, as bits */
    double cost[SETS];
    uint32_t left[SETS];     /* the one of the two sets that it is made of */
    bool alone[LEAT_EINSUM_OPERANDS_MAX]; /* the operand is summed over alone, or has diagonals */
};

static bool
is_single(uint32_t set)
{
    return (set & (set - 1)) == 0;
}

static double
volume(const struct leat_einsum *einsum, uint64_t labels)
{
    double product = 1;

    for (; labels != 0; labels &= labels - 1) {
        const int64_t size = einsum->size[__builtin_ctzll(labels)];
        product *= size < 0 ? GUESS : (double)size;
    }
    return product;
}

static void
find_labels(const struct leat_graph *graph, const struct leat_node *node, struct contraction *c)
{
    uint64_t carried[LEAT_EINSUM_OPERANDS_MAX] = {0}, result = 0;

    for (uint32_t d = 0; d < c->einsum.output_rank; d++) {
        result |= UINT64_C(1) << c->einsum.output[d];
    }
    for (uint32_t k = 0; k < node->input_count; k++) {
        for (uint32_t d = 0; d < leat_node_input(graph, node, k)->rank; d++) {
            const uint64_t label = UINT64_C(1) << c->einsum.labels[k][d];
            c->alone[k] = c->alone[k] || (carried[k] & label) != 0;
            carried[k] |= label;
        }
    }
    for (uint32_t set = 1; set < c->sets; set++) {
        uint64_t inside = 0, outside = result;
        for (uint32_t k = 0; k < node->input_count; k++) {
            *((set >> k & 1) != 0 ? &inside : &outside) |= carried[k];
        }
        c->labels[set] = inside & outside;
        if (is_single(set)) {
            const uint32_t k = (uint32_t)__builtin_ctz(set);
            c->alone[k] = c->alone[k] || c->labels[set] != carried[k];
        }
    }
}

/* False where a tensor has too many axes in any order. */
static bool
find_order(struct contraction *c)
{
    for (uint32_t set = 1; set < c->sets; set++) {
        const double written = volume(&c->einsum, c->labels[set]);
        c->cost[set] = is_single(set) ? 0 : (double)INFINITY;
        if (__builtin_popcountll(c->labels[set]) > (int)LEAT_RANK_MAX) {
            continue;
        }
        const uint32_t others = set & (set - 1); /* than the first, which is on the left */
        for (uint32_t right = others; right > 0; right = (right - 1) & others) {
            const uint32_t left = set - right;
            const double cost =
                c->cost[left] + c->cost[right] + volume(&c->einsum, c->labels[left] | c->labels[right]) + written;
            if (cost < c->cost[set]) {
                c->cost[set] = cost;
                c->left[set] = left;
            }
        }
    }
    return c->cost[c->sets - 1] < (double)INFINITY;
}

static bool
sums_ellipsis(const struct leat_einsum *einsum)
{
    uint32_t carried = 0, kept = 0;

    for (uint32_t label = LEAT_EINSUM_LETTERS; label < LEAT_EINSUM_LABELS; label++) {
        carried += einsum->carried[label];
    }
    for (uint32_t d = 0; d < einsum->output_rank; d++) {
        kept += einsum->output[d] >= LEAT_EINSUM_LETTERS;
    }
    return carried != kept;
}

static bool
find_contraction(const struct leat_graph *graph, const struct leat_node *node, struct contraction *c)
{
    bool gains = node->input_count > 2;

    if (!leat_einsum_is_free(graph, node) || node->input_count < 2 ||
        leat_einsum_of(graph, node, &c->einsum) != LEAT_OK || sums_ellipsis(&c->einsum)) {
        return false;
    }
    memset(c->alone, 0, sizeof(c->alone));
    c->sets = 1u << node->input_count;
    find_labels(graph, node, c);
    for (uint32_t k = 0; k < node->input_count; k++) {
        gains = gains || c->alone[k];
    }
    return gains && find_order(c);
}

/* ---- Nodes --------------------------------------------------------------------------------------------- */

struct axes {
    uint32_t count;
    uint8_t labels[LEAT_RANK_MAX];
};

/* Appends those that the set of labels has and *ret has not yet. */
static void
append(const uint8_t *labels, uint32_t count, uint64_t set, struct axes *ret)
{
    for (uint32_t d = 0; d < count; d++) {
        if ((set >> labels[d] & 1) != 0 && memchr(ret->labels, labels[d], ret->count) == NULL) {
            ret->labels[ret->count++] = labels[d];
        }
    }
}

/* What the set carries, in the order in which a product of matrices has it; an ellipsis is one, and comes first. */
static void
order_axes(const struct contraction *c, uint32_t set, const struct axes *left, const struct axes *right, struct axes *ret)
{
    const uint64_t kept = c->labels[set], both = c->labels[c->left[set]] & c->labels[set - c->left[set]];

    ret->count = 0;
    for (uint8_t label = LEAT_EINSUM_LETTERS; label < LEAT_EINSUM_LABELS; label++) {
        append(&label, 1, kept, ret);
    }
    append(left->labels, left->count, kept & both, ret);
    append(left->labels, left->count, kept, ret);
    append(right->labels, right->count, kept, ret);
}

/* Appends a term of the equation. */
static void
write_term(const struct axes *axes, const char *behind, char *equation)
{
    char *to = equation + strlen(equation);

    for (uint32_t d = 0; d < axes->count; d++) {
        const uint8_t label = axes->labels[d];
        if (label < LEAT_EINSUM_LETTERS) {
            *to++ = (char)(label < 26 ? 'a' + label : 'A' + label - 26);
        } else if (d == 0 || axes->labels[d - 1] < LEAT_EINSUM_LETTERS) {
            memcpy(to, "...", 3);
            to += 3;
        }
    }
    memcpy(to, behind, strlen(behind) + 1);
}

/* Of one or two values, whose axes these are. Into *to, or a new value where that is LEAT_VALUE_NONE. */
static enum leat_status
put_einsum(struct leat_graph *graph, const struct leat_node *node, const struct axes *const axes[2], const uint32_t *values,
           uint32_t count, const struct axes *result, uint32_t *to)
{
    struct leat_attribute equation = {.name = "equation", .kind = LEAT_ATTRIBUTE_STRING, .count = 1};
    char text[3 * TERM_MAX] = "";
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < count; i++) {
        write_term(axes[i], i + 1 < count ? "," : "->", text);
    }
    write_term(result, "", text);
    equation.s = leat_graph_text(graph, text);
    if (equation.s == NULL) {
        return leat_graph_shortage(graph);
    }
    if (*to == LEAT_VALUE_NONE) {
        status = leat_graph_add_value(graph, graph->values[node->outputs[0]].name, LEAT_DTYPE_F32, 0, NULL, to);
    }
    if (status == LEAT_OK) {
        status = leat_graph_add_node(graph, node->op, node->name, values, count, to, 1, &equation, 1);
    }
    return status == LEAT_OK ? leat_graph_infer_node(graph, &graph->nodes[graph->node_count - 1]) : status;
}

/* Operand k without what it is summed over alone. */
static enum leat_status
put_single(struct leat_graph *graph, const struct leat_node *node, const struct contraction *c, uint32_t k, uint32_t *ret_value,
           struct axes *ret_axes)
{
    struct axes own = {.count = leat_node_input(graph, node, k)->rank};
    uint32_t result = LEAT_VALUE_NONE;

    memcpy(own.labels, c->einsum.labels[k], own.count);
    ret_axes->count = 0;
    append(own.labels, own.count, c->labels[1u << k], ret_axes);
    *ret_value = node->inputs[k];
    if (!c->alone[k]) {
        return LEAT_OK;
    }
    const enum leat_status status = put_einsum(graph, node, (const struct axes *const[2]){&own, NULL}, ret_value, 1, ret_axes, &result);
    *ret_value = result;
    return status;
}

/* Sets are made in the order of their numbers: each comes behind those that it is made of. */
static enum leat_status
replace(struct leat_graph *graph, const struct leat_node *node, const struct contraction *c)
{
    const uint32_t all = c->sets - 1;
    uint32_t values[SETS];
    struct axes axes[SETS];
    bool made[SETS] = {[SETS - 1] = false};
    enum leat_status status = LEAT_OK;

    made[all] = true;
    for (uint32_t set = all; set > 0; set--) {
        if (made[set] && !is_single(set)) {
            made[c->left[set]] = made[set - c->left[set]] = true;
        }
    }
    for (uint32_t set = 1; set <= all && status == LEAT_OK; set++) {
        if (made[set] && is_single(set)) {
            status = put_single(graph, node, c, (uint32_t)__builtin_ctz(set), &values[set], &axes[set]);
        } else if (made[set]) {
            const uint32_t left = c->left[set], right = set - left;
            order_axes(c, set, &axes[left], &axes[right], &axes[set]);
            if (set == all) {
                axes[set].count = c->einsum.output_rank;
                memcpy(axes[set].labels, c->einsum.output, axes[set].count);
            }
            values[set] = set == all ? node->outputs[0] : LEAT_VALUE_NONE;
            status = put_einsum(graph, node, (const struct axes *const[2]){&axes[left], &axes[right]},
                                (const uint32_t[2]){values[left], values[right]}, 2, &axes[set], &values[set]);
        }
    }
    return status;
}

enum leat_status
leat_einsum_contract(struct leat_graph *graph, bool *ret_changed)
{
    struct contraction contraction;
    uint64_t found = 0;
    uint32_t count;

    for (uint32_t n = 0; n < graph->node_count; n++) {
        found += find_contraction(graph, &graph->nodes[n], &contraction);
    }
    *ret_changed = found > 0 && graph->node_count + found * NODES_MAX <= LEAT_GRAPH_NODES_MAX &&
                   graph->value_count + found * NODES_MAX <= LEAT_GRAPH_VALUES_MAX;
    if (!*ret_changed) {
        return LEAT_OK;
    }
    const struct leat_node *nodes = leat_graph_take_nodes(graph, &count);
    enum leat_status status = LEAT_OK;
    for (uint32_t n = 0; n < count && status == LEAT_OK; n++) {
        if (found > 0 && find_contraction(graph, &nodes[n], &contraction)) {
            found--; /* those that there was room for */
            status = replace(graph, &nodes[n], &contraction);
        } else {
            status = leat_graph_put_node(graph, &nodes[n]);
        }
    }
    return status;
}
