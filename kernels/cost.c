/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cost.h"

#include "kernels/einsum.h"
#include "kernels/graph_build.h"
#include "kernels/op.h"
#include "kernels/window.h"

enum class {
    COMPUTES, /* each element of its results */
    PRODUCT,
    READS,    /* each element of its first operand */
    MOVES,
    LOOKS_UP, /* elements of its first operand, as many as it returns */
    RESHAPES,
};

static enum class
class_of(enum leat_op_kind kind)
{
    switch (kind) {
    case LEAT_OP_ATTENTION:
    case LEAT_OP_CONV:
    case LEAT_OP_CONV_INTEGER:
    case LEAT_OP_QLINEAR_CONV:
    case LEAT_OP_CONV_TRANSPOSE:
    case LEAT_OP_DET:
    case LEAT_OP_EINSUM:
    case LEAT_OP_GEMM:
    case LEAT_OP_MATMUL:
    case LEAT_OP_MATMUL_INTEGER:
    case LEAT_OP_MATMUL_INTEGER_TO_FLOAT:
    case LEAT_OP_QLINEAR_MATMUL:
    case LEAT_OP_GRU:
    case LEAT_OP_LSTM:
    case LEAT_OP_RNN:
        return PRODUCT;
    case LEAT_OP_ARG_MAX:
    case LEAT_OP_ARG_MIN:
    case LEAT_OP_GLOBAL_AVERAGE_POOL:
    case LEAT_OP_GLOBAL_LP_POOL:
    case LEAT_OP_GLOBAL_MAX_POOL:
    case LEAT_OP_REDUCE_L1:
    case LEAT_OP_REDUCE_L2:
    case LEAT_OP_REDUCE_LOG_SUM:
    case LEAT_OP_REDUCE_LOG_SUM_EXP:
    case LEAT_OP_REDUCE_MAX:
    case LEAT_OP_REDUCE_MEAN:
    case LEAT_OP_REDUCE_MIN:
    case LEAT_OP_REDUCE_PROD:
    case LEAT_OP_REDUCE_SUM:
    case LEAT_OP_REDUCE_SUM_SQUARE:
    case LEAT_OP_TOP_K:
    case LEAT_OP_UNIQUE:
        return READS;
    case LEAT_OP_CAST:
    case LEAT_OP_CAST_LIKE:
    case LEAT_OP_COMPRESS:
    case LEAT_OP_CONCAT:
    case LEAT_OP_CONSTANT:
    case LEAT_OP_CONSTANT_OF_SHAPE:
    case LEAT_OP_DEPTH_TO_SPACE:
    case LEAT_OP_EXPAND:
    case LEAT_OP_EYE_LIKE:
    case LEAT_OP_ONE_HOT:
    case LEAT_OP_PAD:
    case LEAT_OP_RANGE:
    case LEAT_OP_REVERSE_SEQUENCE:
    case LEAT_OP_SCATTER:
    case LEAT_OP_SCATTER_ELEMENTS:
    case LEAT_OP_SCATTER_ND:
    case LEAT_OP_SHAPE:
    case LEAT_OP_SIZE:
    case LEAT_OP_SLICE:
    case LEAT_OP_SPACE_TO_DEPTH:
    case LEAT_OP_SPLIT:
    case LEAT_OP_TILE:
    case LEAT_OP_TRANSPOSE:
    case LEAT_OP_TRILU:
    case LEAT_OP_WHERE:
        return MOVES;
    case LEAT_OP_GATHER:
    case LEAT_OP_GATHER_ELEMENTS:
    case LEAT_OP_GATHER_ND:
        return LOOKS_UP;
    case LEAT_OP_DROPOUT:
    case LEAT_OP_FLATTEN:
    case LEAT_OP_IDENTITY:
    case LEAT_OP_RESHAPE:
    case LEAT_OP_SQUEEZE:
    case LEAT_OP_UNSQUEEZE:
        return RESHAPES;
    default:
        return COMPUTES;
    }
}

static uint64_t
plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t
times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t
elements(const struct leat_value *value)
{
    return value != NULL ? leat_value_elements(value) : 0;
}

/* Of the dims from `first` on. */
static uint64_t
volume(const struct leat_value *value, uint32_t first)
{
    uint64_t product = 1;
    for (uint32_t d = first; value != NULL && d < value->rank; d++) {
        product = times(product, (uint64_t)value->dims[d]);
    }
    return product;
}

/* One for each combination of places along all labels. */
static uint64_t
einsum_products(const struct leat_graph *graph, const struct leat_node *node)
{
    struct leat_einsum einsum;
    uint64_t products = 1;

    if (leat_einsum_of(graph, node, &einsum) != LEAT_OK) {
        return 0;
    }
    for (uint32_t label = 0; label < LEAT_EINSUM_LABELS; label++) {
        products = times(products, einsum.carried[label] ? (uint64_t)einsum.size[label] : 1);
    }
    return products;
}

/* ---- Transforms ------------------------------------------------------------------------------------- */

enum { RADIX_MAX = 31 };

/* Of one of so many points, in passes over radices. Returns what is left of `points` that no radix divides. */
static uint64_t
count_passes(uint64_t points, uint64_t *flop)
{
    uint64_t rest = points;

    for (; rest % 4 == 0; rest /= 4) { /* eight sums of complex numbers, three factors */
        *flop = plus(*flop, times(points / 4, 8 * 2 + 3 * 6));
    }
    for (; rest % 2 == 0; rest /= 2) {
        *flop = plus(*flop, times(points / 2, 2 * 2 + 6));
    }
    for (uint64_t radix = 3; radix <= RADIX_MAX; radix += 2) { /* what two that are as far from either end have in common, once */
        const uint64_t half = radix / 2, sums = half * (4 + 2 + half * 8 + 4);
        for (; rest % radix == 0; rest /= radix) {
            *flop = plus(*flop, times(points / radix, sums + (radix - 1) * 6));
        }
    }
    return rest;
}

/* Of complex points; a length with a larger prime factor is a convolution: a transform, its inverse, and products around them. */
static uint64_t
transform_flop(uint64_t points)
{
    uint64_t flop = 0, size = 1;

    if (count_passes(points, &flop) == 1) {
        return flop;
    }
    while (size < 2 * points - 1) {
        size *= 2;
    }
    flop = 0;
    (void)count_passes(size, &flop);
    return plus(times(2, flop), times(6, plus(times(2, points), size)));
}

/* Of real signals of even length two numbers are one point, and each result is made of two. */
static uint64_t
transforms_flop(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *x = leat_node_input(graph, node, 0), *y = leat_node_output(graph, node, 0);
    const bool frames = node->op->kind == LEAT_OP_STFT;
    const uint32_t axis = frames ? 2 : leat_dft_axis(graph, node);
    const struct leat_value *window = frames ? leat_node_input(graph, node, 2) : NULL;
    double length = window != NULL ? (double)window->dims[0] : (double)x->dims[frames ? 1 : axis];

    (void)leat_value_scalar(leat_node_input(graph, node, frames ? 3 : 1), &length);
    if (elements(y) == 0 || length < 1) {
        return 0;
    }
    const uint64_t points = (uint64_t)length, bins = (uint64_t)y->dims[axis], count = elements(y) / 2 / bins;
    const bool halved = x->dims[x->rank - 1] == 1 && points % 2 == 0;
    const uint64_t each = halved ? plus(transform_flop(points / 2), times(14, points / 2 + 1)) : transform_flop(points);
    return times(count, window != NULL ? plus(each, times((uint64_t)x->dims[x->rank - 1], points)) : each);
}

static uint64_t
multiply_adds(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *x = leat_node_input(graph, node, 0), *w = leat_node_input(graph, node, 1);
    const struct leat_value *y = leat_node_output(graph, node, 0);

    switch (node->op->kind) {
    case LEAT_OP_QLINEAR_CONV:
        w = leat_node_input(graph, node, 3);
        return times(elements(y), volume(w, 1));
    case LEAT_OP_CONV:
    case LEAT_OP_CONV_INTEGER:
        return times(elements(y), volume(w, 1));
    case LEAT_OP_CONV_TRANSPOSE:
        return times(elements(x), volume(w, 1));
    case LEAT_OP_DET: /* of matrices [n][n] */
        return times(elements(x), (uint64_t)x->dims[x->rank - 1]);
    case LEAT_OP_EINSUM:
        return einsum_products(graph, node);
    case LEAT_OP_GEMM:
        return times(elements(y), (uint64_t)x->dims[leat_node_int(node, "transA", 0) != 0 ? 0 : 1]);
    case LEAT_OP_ATTENTION: /* queries and results, each with every key */
        return times(plus(elements(x), elements(y)), (uint64_t)w->dims[1]);
    case LEAT_OP_MATMUL:
    case LEAT_OP_MATMUL_INTEGER:
    case LEAT_OP_MATMUL_INTEGER_TO_FLOAT:
    case LEAT_OP_QLINEAR_MATMUL:
        return x->rank > 0 ? times(elements(y), (uint64_t)x->dims[x->rank - 1]) : 0;
    default: /* recurrences: X [steps][items][inputs], W and R once for each step and item */
        return times(times((uint64_t)x->dims[0], (uint64_t)x->dims[1]),
                     plus(elements(w), elements(leat_node_input(graph, node, 2))));
    }
}

static bool
is_pool(enum leat_op_kind kind)
{
    return kind == LEAT_OP_AVERAGE_POOL || kind == LEAT_OP_MAX_POOL || kind == LEAT_OP_LP_POOL;
}

/* Each box of each class with those that are selected before it, at worst. */
static uint64_t
compared_boxes(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *scores = leat_node_input(graph, node, 1), *selected = leat_node_output(graph, node, 0);
    const uint64_t classes = times((uint64_t)scores->dims[0], (uint64_t)scores->dims[1]);

    return classes > 0 ? times(elements(scores), (uint64_t)selected->dims[0] / classes + 1) : 0;
}

/* Points of a region under one result; as many as the region has at most, where that is not said. */
static uint64_t
sampled_points(const struct leat_graph *graph, const struct leat_node *node)
{
    const uint64_t ratio = (uint64_t)leat_node_int(node, "sampling_ratio", 0);
    return ratio > 0 ? times(ratio, ratio) : volume(leat_node_input(graph, node, 0), 2);
}

static uint64_t
computed(const struct leat_graph *graph, const struct leat_node *node)
{
    uint64_t flop = 0;

    if (node->op->kind == LEAT_OP_NON_MAX_SUPPRESSION) {
        return compared_boxes(graph, node);
    }

    for (uint32_t o = 0; o < node->output_count; o++) {
        flop = plus(flop, elements(leat_node_output(graph, node, o)));
    }
    if (is_pool(node->op->kind)) {
        struct leat_window window;
        if (leat_window_of(graph, node, &window) == LEAT_OK) {
            for (uint32_t d = 0; d < LEAT_WINDOW_RANK; d++) {
                flop = times(flop, (uint64_t)window.kernel[d]);
            }
        }
    }
    return node->op->kind == LEAT_OP_ROI_ALIGN ? times(flop, sampled_points(graph, node))
           : node->op->kind == LEAT_OP_LRN     ? times(flop, (uint64_t)leat_node_int(node, "size", 1))
                                               : flop;
}

static uint64_t
moved_bytes(const struct leat_graph *graph, const struct leat_node *node, bool looks_up)
{
    uint64_t bytes = 0;

    for (uint32_t o = 0; o < node->output_count; o++) {
        const struct leat_value *output = leat_node_output(graph, node, o);
        bytes = plus(bytes, output != NULL ? leat_value_bytes(output) : 0);
    }
    bytes = looks_up ? times(bytes, 2) : bytes;
    for (uint32_t i = looks_up ? 1 : 0; i < node->input_count; i++) {
        const struct leat_value *input = leat_node_input(graph, node, i);
        bytes = plus(bytes, input != NULL ? leat_value_bytes(input) : 0);
    }
    return node->fused_add != LEAT_VALUE_NONE ? plus(bytes, leat_value_bytes(&graph->values[node->fused_add])) : bytes;
}

struct leat_cost
leat_node_cost(const struct leat_graph *graph, const struct leat_node *node)
{
    const enum class class = class_of(node->op->kind);
    const uint64_t results = elements(leat_node_output(graph, node, 0));
    struct leat_cost cost = {0};

    if (node->op->kind == LEAT_OP_DFT || node->op->kind == LEAT_OP_STFT) {
        cost.product_flop = transforms_flop(graph, node);
    } else if (class == PRODUCT) {
        cost.product_flop = times(2, multiply_adds(graph, node));
    } else if (class == READS) {
        cost.other_flop = elements(leat_node_input(graph, node, 0));
    } else if (class == COMPUTES) {
        cost.other_flop = computed(graph, node);
    }
    if (node->fused_add != LEAT_VALUE_NONE) {
        cost.other_flop = plus(cost.other_flop, results);
    }
    if (node->fused_activation != LEAT_ACTIVATION_NONE) {
        cost.other_flop = plus(cost.other_flop, results);
    }
    if (class != RESHAPES) {
        cost.bytes = moved_bytes(graph, node, class == LOOKS_UP);
    }
    return cost;
}

#define ITERATIONS_OPEN UINT64_MAX /* contents decide how many there are */

/* How often what is in the node's graphs runs, where its own graph runs once. */
static uint64_t
iterations_of(const struct leat_graph *graph, const struct leat_node *node)
{
    struct leat_scan_walk walk;
    int64_t trips;

    if (node->op->kind == LEAT_OP_LOOP) {
        return leat_loop_trips(graph, node, &trips) ? (uint64_t)trips : ITERATIONS_OPEN;
    }
    if (node->op->kind == LEAT_OP_SCAN) {
        const struct leat_value *first = leat_node_input(graph, node, leat_scan_states(node));
        return leat_scan_input(node, 0, first->rank, &walk) ? (uint64_t)first->dims[walk.axis] : ITERATIONS_OPEN;
    }
    return 1;
}

static bool
is_loop(const struct leat_node *node)
{
    return node->op->kind == LEAT_OP_LOOP || node->op->kind == LEAT_OP_SCAN;
}

/* One in a branch that never runs may have shapes that nobody knows. */
static bool
is_known(const struct leat_graph *graph, const struct leat_node *node)
{
    bool known = true;

    for (uint32_t i = 0; i < node->input_count; i++) {
        known = known && (node->inputs[i] == LEAT_VALUE_NONE || leat_value_is_known(&graph->values[node->inputs[i]]));
    }
    for (uint32_t o = 0; o < node->output_count; o++) {
        known = known && (node->outputs[o] == LEAT_VALUE_NONE || leat_value_is_known(&graph->values[node->outputs[o]]));
    }
    return known;
}

/* The graph of attribute `a`, if it has one and that runs. */
static const struct leat_graph *
graph_in(const struct leat_graph *graph, const struct leat_node *node, uint32_t a)
{
    const struct leat_attribute *attribute = &node->attributes[a];
    const bool runs = attribute->kind == LEAT_ATTRIBUTE_GRAPH && leat_node_runs(graph, node, attribute);
    return runs ? attribute->graph : NULL;
}

/*
 * Products that are plain loops; of Einsums those that are left by the passes. Transforms count as such, since a backend or a
 * processor may have no other, nor has any for doubles.
 */
static bool
multiplies_slowly(enum leat_op_kind kind)
{
    return kind == LEAT_OP_DET || kind == LEAT_OP_DFT || kind == LEAT_OP_EINSUM || kind == LEAT_OP_STFT;
}

/*
 * What a node takes, in FLOP of products. The factors are rough: a core multiplies tens of floats in the time in which a plain
 * loop does one, or in which some bytes come from memory.
 */
static uint64_t
node_work(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_cost cost = leat_node_cost(graph, node);
    const bool slow = multiplies_slowly(node->op->kind), moves = class_of(node->op->kind) == MOVES;
    const uint64_t products = slow ? times(cost.product_flop, LEAT_WORK_OF_LOOPS) : cost.product_flop;

    return plus(plus(products, times(cost.other_flop, LEAT_WORK_OF_LOOPS)), moves ? times(cost.bytes, LEAT_WORK_OF_BYTES) : 0);
}

static bool
has_graphs(const struct leat_node *node)
{
    return is_loop(node) || node->op->kind == LEAT_OP_IF;
}

/* With branches, and without what is in loops. */
static uint64_t
work_outside_loops(const struct leat_graph *graph)
{
    uint64_t work = 0;

    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        if (!is_known(graph, node)) {
            continue;
        }
        work = plus(work, has_graphs(node) ? 0 : node_work(graph, node));
        for (uint32_t a = 0; a < node->attribute_count && !is_loop(node); a++) {
            const struct leat_graph *branch = graph_in(graph, node, a);
            work = plus(work, branch != NULL ? work_outside_loops(branch) : 0);
        }
    }
    return work;
}

/* Of all loops of a run, those inside others too; what they compute is what one iteration does outside the loops in it. */
struct loops {
    uint64_t trips_max; /* of all of them together */
    uint64_t most;      /* that one iteration takes */
    uint64_t open_most; /* likewise, where contents decide how many there are */
    uint64_t beyond;    /* what iterations whose number is known take, of each what exceeds open_most */
};

static void
note_body(struct loops *loops, const struct leat_graph *body, uint64_t iterations)
{
    const uint64_t work = work_outside_loops(body);
    const bool open = iterations == ITERATIONS_OPEN;

    loops->most = work > loops->most ? work : loops->most;
    loops->open_most = open && work > loops->open_most ? work : loops->open_most;
    if (!open && work > loops->open_most) {
        loops->beyond = plus(loops->beyond, times(iterations, work - loops->open_most));
    }
}

static void
count_loops(const struct leat_graph *graph, uint64_t iterations, struct loops *loops)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        const uint64_t each = is_known(graph, node) ? iterations_of(graph, node) : 0;
        const bool open = iterations == ITERATIONS_OPEN || each == ITERATIONS_OPEN;
        const uint64_t product = times(iterations, each);
        const uint64_t inside = open ? ITERATIONS_OPEN : product < loops->trips_max ? product : loops->trips_max;
        for (uint32_t a = 0; a < node->attribute_count && each > 0; a++) {
            const struct leat_graph *inner = graph_in(graph, node, a);
            if (inner != NULL && is_loop(node)) {
                note_body(loops, inner, inside);
            }
            if (inner != NULL) {
                count_loops(inner, inside, loops);
            }
        }
    }
}

/*
 * Iterations whose number is known are as many as that says. All others together are trips_max at most, each the costliest
 * of those at worst; and no run has more than trips_max of the costliest of all.
 */
uint64_t
leat_graph_work(const struct leat_graph *graph)
{
    struct loops loops = {.trips_max = graph->trips_max};

    count_loops(graph, 1, &loops);
    loops.beyond = 0; /* now that open_most is known */
    count_loops(graph, 1, &loops);
    const uint64_t single = plus(times(loops.trips_max, loops.open_most), loops.beyond);
    const uint64_t bound = times(loops.trips_max, loops.most);
    return plus(work_outside_loops(graph), single < bound ? single : bound);
}
