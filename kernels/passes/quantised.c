/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Networks that their files have quantised: each operator of floats stands between DequantizeLinear, which makes
 * floats of 8-bit numbers, and QuantizeLinear. Where all scales are constants, an operator of 8-bit numbers takes the
 * place of the three. Numerics: as Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-
 * Arithmetic-Only Inference", CVPR 2018, section 2: whole sums, multiplied by one number and rounded once. What
 * floats round on the way to them may make one step of the result of a product; everything else is the same bit by bit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/passes/passes.h"

/* 8-bit numbers and what they stand for: indices of values. */
struct numbers {
    uint32_t q, scale, zero;
};

struct fusion {
    struct leat_graph *graph;
    struct leat_pass_index index;
    uint32_t zeros[2]; /* of u8 and s8 */
    uint32_t *same;    /* [value_count] what is read instead of a value that has gone, or itself */
    uint32_t numbers
        [2]; /* all u8 and all s8 that there are, in the order of their bits; or LEAT_VALUE_NONE */
    void **data; /* [room] for leat_graph_fold_node() */
    uint32_t room;
    bool changed;
};

static bool
has_8_bits(uint32_t dtype)
{
    return dtype == LEAT_DTYPE_U8 || dtype == LEAT_DTYPE_I8;
}

static bool
is_plain(const struct leat_node *node)
{
    return node->fused_add == LEAT_VALUE_NONE && node->fused_activation == LEAT_ACTIVATION_NONE;
}

/* ---- Results in s8 become such in u8 ------------------------------------------------------------------ */

/* 128 more than each of the zero points, or than 0, where there are none. */
static enum leat_status
shift_zeros(struct leat_graph *graph, struct leat_node *node)
{
    const struct leat_value *old = leat_node_input(graph, node, 2);
    const size_t count = old != NULL ? leat_value_elements(old) : 1;
    uint8_t *shifted = malloc(count + 1);
    uint32_t zeros = LEAT_VALUE_NONE;

    if (shifted == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for zero points");
    }
    for (size_t i = 0; i < count; i++) {
        shifted[i] = (uint8_t)((old != NULL ? ((const int8_t *)old->data)[i] : 0) - INT8_MIN);
    }
    enum leat_status status = leat_graph_add_constant(
        graph, "shifted zero points", LEAT_DTYPE_U8, old != NULL ? old->rank : 0,
        old != NULL ? old->dims : NULL, shifted, &zeros);
    if (status == LEAT_OK) {
        status = leat_pass_set_input(graph, node, 2, zeros);
    }
    free(shifted);
    return status;
}

static bool
has_constant_zeros(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *zeros = leat_node_input(graph, node, 2);
    return zeros == NULL || (zeros->data != NULL && leat_value_in_place(zeros));
}

/* kept[v]: somebody reads the value who would see the difference, or it is not made by a QuantizeLinear. */
static void
find_kept(const struct leat_graph *graph, bool *kept)
{
    memset(kept, true, graph->value_count);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        if (node->op->kind == LEAT_OP_QUANTIZE_LINEAR &&
            leat_node_output(graph, node, 0)->dtype == LEAT_DTYPE_I8) {
            kept[node->outputs[0]] = !has_constant_zeros(graph, node);
        }
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        const bool reads_numbers =
            node->op->kind == LEAT_OP_DEQUANTIZE_LINEAR && has_constant_zeros(graph, node);
        for (uint32_t i = reads_numbers ? 1 : 0; i < node->input_count; i++) {
            if (node->inputs[i] != LEAT_VALUE_NONE) {
                kept[node->inputs[i]] = true;
            }
        }
    }
    for (uint32_t o = 0; o < graph->output_count; o++) {
        kept[graph->outputs[o]] = true;
    }
}

LEAT_PASS_FUNCTION(shift_quantised)
{
    const uint32_t before = graph->value_count;
    bool *kept = malloc((size_t)before + 1);
    enum leat_status status = LEAT_OK;

    if (kept == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a pass over %u values", before);
    }
    find_kept(graph, kept);
    for (uint32_t n = 0; n < graph->node_count && status == LEAT_OK; n++) {
        struct leat_node *node = &graph->nodes[n];
        if (node->op->kind == LEAT_OP_QUANTIZE_LINEAR && !kept[node->outputs[0]]) {
            status = shift_zeros(graph, node);
            graph->values[node->outputs[0]].dtype = LEAT_DTYPE_U8;
            *ret_changed = true;
        } else if (node->op->kind == LEAT_OP_DEQUANTIZE_LINEAR && !kept[node->inputs[0]]) {
            status = shift_zeros(graph, node);
        }
    }
    free(kept);
    return status;
}

/* ---- What stands around an operator ------------------------------------------------------------------- */

/* A constant of one f32 that can be divided by. */
static bool
is_scale(const struct leat_graph *graph, uint32_t value, float *ret)
{
    double scale;

    if (graph->values[value].dtype != LEAT_DTYPE_F32 ||
        !leat_value_in_place(&graph->values[value]) ||
        !leat_value_scalar(&graph->values[value], &scale) || !(scale > 0) || !isfinite(scale)) {
        return false;
    }
    *ret = (float)scale;
    return true;
}

static bool
is_zero_point(const struct leat_graph *graph, uint32_t value)
{
    return graph->values[value].data != NULL && leat_value_elements(&graph->values[value]) == 1;
}

static int32_t
zero_point(const struct leat_graph *graph, uint32_t value)
{
    const void *data = graph->values[value].data;
    return graph->values[value].dtype == LEAT_DTYPE_I8 ? *(const int8_t *)data
                                                       : *(const uint8_t *)data;
}

/* Scale and zero point of a DequantizeLinear or QuantizeLinear of numbers q. */
static struct numbers
numbers_of(const struct fusion *f, const struct leat_node *node, uint32_t q)
{
    const bool has_zero = node->input_count > 2 && node->inputs[2] != LEAT_VALUE_NONE;
    return (struct numbers){
        q, node->inputs[1],
        has_zero ? node->inputs[2] : f->zeros[f->graph->values[q].dtype == LEAT_DTYPE_I8 ? 1 : 0]};
}

/* The 8-bit numbers that the value is made of, with one scale for all. */
static bool
find_numbers(const struct fusion *f, uint32_t value, struct numbers *ret)
{
    const struct leat_node *node =
        leat_pass_producer(f->graph, &f->index, value, LEAT_OP_DEQUANTIZE_LINEAR);
    float scale;

    if (node == NULL || !has_8_bits(f->graph->values[node->inputs[0]].dtype)) {
        return false;
    }
    *ret = numbers_of(f, node, node->inputs[0]);
    return is_scale(f->graph, ret->scale, &scale) && is_zero_point(f->graph, ret->zero);
}

static bool
same_scale(const struct leat_graph *graph, const struct numbers *a, const struct numbers *b)
{
    float scale_a, scale_b;

    return graph->values[a->zero].dtype == graph->values[b->zero].dtype &&
           zero_point(graph, a->zero) == zero_point(graph, b->zero) &&
           is_scale(graph, a->scale, &scale_a) && is_scale(graph, b->scale, &scale_b) &&
           memcmp(&scale_a, &scale_b, sizeof(scale_a)) == 0;
}

/* Zero points that are constants of 0. */
static bool
is_zero(const struct leat_value *zeros)
{
    const uint8_t *bytes = zeros->data;
    bool zero = bytes != NULL && leat_value_in_place(zeros);

    for (size_t i = 0; zero && i < zeros->data_bytes; i++) {
        zero = bytes[i] == 0;
    }
    return zero;
}

/* Weights in s8 about 0, constant, with one scale or one for each element of the axis. */
static bool
find_weights(const struct fusion *f, uint32_t value, uint32_t rank, int64_t axis,
             struct numbers *ret)
{
    const struct leat_graph *graph = f->graph;
    const struct leat_node *node =
        leat_pass_producer(graph, &f->index, value, LEAT_OP_DEQUANTIZE_LINEAR);

    if (node == NULL) {
        return false;
    }
    *ret = numbers_of(f, node, node->inputs[0]);
    const struct leat_value *w = &graph->values[ret->q], *scales = &graph->values[ret->scale],
                            *zeros = &graph->values[ret->zero];
    if (w->data == NULL || w->dtype != LEAT_DTYPE_I8 || (rank != 0 && w->rank != rank) ||
        w->rank == 0 || scales->data == NULL || !leat_value_in_place(scales) || !is_zero(zeros)) {
        return false;
    }
    const size_t count = leat_value_elements(scales);
    for (size_t c = 0; c < count; c++) {
        const float scale = ((const float *)scales->data)[c];
        if (!(scale > 0) || !isfinite(scale)) {
            return false;
        }
    }
    return count == 1 || leat_node_axis(node, 1, w->rank) == axis;
}

/*
 * The bias in whole numbers, a step of which is one of the sums: as the file has it, or rounded, where that is less
 * than a hundredth of a step of the result. False where there is one that cannot be had so.
 */
static bool
find_bias(struct fusion *f, uint32_t value, const struct numbers *x, const struct numbers *w,
          const struct numbers *y, int64_t channels, uint32_t *ret, enum leat_status *ret_status)
{
    struct leat_graph *graph = f->graph;
    const struct leat_node *node =
        leat_pass_producer(graph, &f->index, value, LEAT_OP_DEQUANTIZE_LINEAR);
    const struct leat_value *bias =
        value != LEAT_VALUE_NONE ? &graph->values[node != NULL ? node->inputs[0] : value] : NULL;
    const float *steps = graph->values[w->scale].data;
    const size_t step_count = leat_value_elements(&graph->values[w->scale]);
    float source, result;

    *ret = LEAT_VALUE_NONE;
    if (bias == NULL) {
        return true;
    }
    if (bias->data == NULL || !leat_value_in_place(bias) || bias->rank != 1 ||
        bias->dims[0] != channels || !is_scale(graph, x->scale, &source) ||
        !is_scale(graph, y->scale, &result)) {
        return false;
    }
    if (node != NULL) {
        const struct leat_value *scales = leat_node_input(graph, node, 1);
        const size_t scale_count = leat_value_elements(scales);
        const struct leat_value *zeros = leat_node_input(graph, node, 2);
        if (bias->dtype != LEAT_DTYPE_I32 || scales->data == NULL || !leat_value_in_place(scales) ||
            (zeros != NULL && !is_zero(zeros))) {
            return false;
        }
        for (size_t c = 0; c < (size_t)channels; c++) {
            const double step = (double)source * (double)steps[step_count > 1 ? c : 0];
            const double given = (double)((const float *)scales->data)[scale_count > 1 ? c : 0];
            if (!(fabs(given - step) <= 1e-6 * step)) {
                return false;
            }
        }
        *ret = node->inputs[0];
        return true;
    }
    if (bias->dtype != LEAT_DTYPE_F32) {
        return false;
    }
    int32_t *rounded = malloc(((size_t)channels + 1) * sizeof(*rounded));
    if (rounded == NULL) {
        *ret_status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a bias");
        return false;
    }
    bool fits = true;
    for (size_t c = 0; c < (size_t)channels; c++) {
        const double step = (double)source * (double)steps[step_count > 1 ? c : 0];
        const double quotient = nearbyint((double)((const float *)bias->data)[c] / step);
        fits = fits && fabs(quotient) <= INT32_MAX && step <= 0.02 * (double)result;
        rounded[c] = fits ? (int32_t)quotient : 0;
    }
    if (fits) {
        *ret_status =
            leat_graph_add_constant(graph, "bias", LEAT_DTYPE_I32, 1, &channels, rounded, ret);
    }
    free(rounded);
    return fits && *ret_status == LEAT_OK;
}

/* The node that makes the value, for one reader alone. */
static struct leat_node *
sole_producer(const struct fusion *f, uint32_t value)
{
    if (value == LEAT_VALUE_NONE || value >= f->index.count || f->index.uses[value] != 1 ||
        f->index.producer[value] == UINT32_MAX) {
        return NULL;
    }
    struct leat_node *node = &f->graph->nodes[f->index.producer[value]];
    return node->op != NULL && node->outputs[0] == value && node->output_count == 1 &&
                   is_plain(node)
               ? node
               : NULL;
}

/* An activation between bounds that the numbers have anyway. */
static bool
saturates(const struct fusion *f, const struct leat_node *node, const struct numbers *y)
{
    const bool is_signed = f->graph->values[y->zero].dtype == LEAT_DTYPE_I8;
    float least = 0, most = INFINITY, scale;

    if (node->op->kind != LEAT_OP_RELU &&
        (node->op->kind != LEAT_OP_CLIP || !leat_clip_bounds(f->graph, node, &least, &most) ||
         !(least <= most))) {
        return false;
    }
    const int32_t zero = zero_point(f->graph, y->zero);
    return is_scale(f->graph, y->scale, &scale) &&
           nearbyint((double)(least / scale)) + zero <= (is_signed ? INT8_MIN : 0) &&
           nearbyint((double)(most / scale)) + zero >= (is_signed ? INT8_MAX : UINT8_MAX);
}

/* ---- Operators of 8-bit numbers ------------------------------------------------------------------------- */

/* `last`, a QuantizeLinear, becomes `op` in the name of `node`. */
static enum leat_status
replace(struct fusion *f, struct leat_node *last, const struct leat_node *node,
        const struct leat_op *op, const uint32_t *inputs, uint32_t input_count)
{
    const char *name = node->name;
    const enum leat_status status =
        leat_pass_replace(f->graph, &f->index, last, op, inputs, input_count, node->attributes,
                          node->attribute_count);
    last->name = name;
    f->changed = true;
    return status;
}

static enum leat_status
fuse_product(struct fusion *f, struct leat_node *last, const struct leat_node *node,
             const struct numbers *y)
{
    const struct leat_graph *graph = f->graph;
    const enum leat_op_kind kind = node->op->kind;
    const bool conv = kind == LEAT_OP_CONV, transposed = leat_node_int(node, "transB", 0) != 0;
    const uint32_t bias_value = node->input_count > 2 ? node->inputs[2] : LEAT_VALUE_NONE;
    const struct leat_op *op =
        conv ? leat_op_find("QLinearConv", graph->opset) : leat_op_fused(LEAT_OP_QLINEAR_MATMUL);
    enum leat_status status = LEAT_OK;
    struct numbers x, w;
    uint32_t bias;

    if (op == NULL || !find_numbers(f, node->inputs[0], &x) ||
        !find_weights(f, node->inputs[1], conv ? 0 : 2, conv || transposed ? 0 : 1, &w)) {
        return LEAT_OK;
    }
    if (kind == LEAT_OP_GEMM &&
        (leat_node_int(node, "transA", 0) != 0 || leat_node_float(node, "alpha", 1) != 1.0f ||
         leat_node_float(node, "beta", 1) != 1.0f)) {
        return LEAT_OK;
    }
    if (kind == LEAT_OP_MATMUL && graph->values[x.q].rank < 2) {
        return LEAT_OK;
    }
    const int64_t channels = graph->values[w.q].dims[conv || transposed ? 0 : 1];
    if (!find_bias(f, bias_value, &x, &w, y, channels, &bias, &status)) {
        return status;
    }
    const uint32_t inputs[9] = {x.q,    x.scale,  x.zero,  w.q, w.scale,
                                w.zero, y->scale, y->zero, bias};
    const struct leat_attribute turn = {
        .name = "transB", .kind = LEAT_ATTRIBUTE_INT, .i = transposed};
    struct leat_node named = *node;
    if (!conv) {
        named.attributes = (struct leat_attribute *)(uintptr_t)&turn; /* only read */
        named.attribute_count = 1;
    }
    return replace(f, last, &named, op, inputs, bias != LEAT_VALUE_NONE ? 9 : 8);
}

/* The dims of a are those of the sum; b's are their last ones. */
static bool
repeats(const struct leat_value *a, const struct leat_value *b, const struct leat_value *sum)
{
    bool same = a->rank == sum->rank && b->rank <= a->rank;

    for (uint32_t d = 0; same && d < a->rank; d++) {
        same = a->dims[d] == sum->dims[d] && a->dims[d] != LEAT_DIM_UNKNOWN;
    }
    for (uint32_t d = 0; same && d < b->rank; d++) {
        same = b->dims[d] == a->dims[a->rank - b->rank + d];
    }
    return same;
}

/* The dims of a are those of the sum; b has one element for each channel of each item. */
static bool
spreads(const struct leat_value *a, const struct leat_value *b, const struct leat_value *sum)
{
    bool same = a->rank == sum->rank && b->rank == a->rank && a->rank > 2;

    for (uint32_t d = 0; same && d < a->rank; d++) {
        same = a->dims[d] == sum->dims[d] && a->dims[d] != LEAT_DIM_UNKNOWN && b->dims[d] == (d < 2 ? a->dims[d] : 1);
    }
    return same;
}

static bool
takes_second(const struct leat_value *a, const struct leat_value *b, const struct leat_value *sum)
{
    return repeats(a, b, sum) || spreads(a, b, sum);
}

/* Or a product, element by element. */
static enum leat_status
fuse_sum(struct fusion *f, struct leat_node *last, const struct leat_node *node,
         const struct numbers *y)
{
    const struct leat_value *values = f->graph->values, *sum = leat_node_output(f->graph, node, 0);
    struct numbers a, b;

    if (!find_numbers(f, node->inputs[0], &a) || !find_numbers(f, node->inputs[1], &b)) {
        return LEAT_OK;
    }
    if (!takes_second(&values[a.q], &values[b.q], sum)) {
        const struct numbers swapped = a;
        a = b;
        b = swapped;
    }
    if (!takes_second(&values[a.q], &values[b.q], sum)) {
        return LEAT_OK;
    }
    const uint32_t inputs[8] = {a.q, a.scale, a.zero, b.q, b.scale, b.zero, y->scale, y->zero};
    struct leat_node named = *node;
    named.attribute_count = 0;
    const enum leat_op_kind kind =
        node->op->kind == LEAT_OP_ADD ? LEAT_OP_QLINEAR_ADD : LEAT_OP_QLINEAR_MUL;
    return replace(f, last, &named, leat_op_fused(kind), inputs, 8);
}

/* Numbers that move, or of which the greatest is taken, keep their scale. */
static enum leat_status
fuse_move(struct fusion *f, struct leat_node *last, const struct leat_node *node,
          const struct numbers *y)
{
    const uint32_t operands = node->op->kind == LEAT_OP_CONCAT ? node->input_count : 1;
    enum leat_status status = LEAT_OK;
    bool same = true;

    uint32_t *inputs = malloc(((size_t)node->input_count + 1) * sizeof(*inputs));
    if (inputs == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the inputs of a node");
    }
    for (uint32_t i = 0; i < node->input_count && same; i++) {
        struct numbers x = {.q = node->inputs[i]};
        same =
            i >= operands || (find_numbers(f, node->inputs[i], &x) && same_scale(f->graph, &x, y) &&
                              (node->op->types >> f->graph->values[x.q].dtype & 1u) != 0);
        inputs[i] = x.q;
    }
    if (same) {
        status = replace(f, last, node, node->op, inputs, node->input_count);
    }
    free(inputs);
    return status;
}

/* ---- Functions of one number --------------------------------------------------------------------------- */

enum { NUMBERS = UINT8_MAX + 1, FUNCTIONS_MAX = 8 };

/* The operand of a function of single elements, the others of which are constants; LEAT_VALUE_NONE: it is none. */
static uint32_t
variable_of(const struct leat_graph *graph, const struct leat_node *node)
{
    const uint32_t y_rank = leat_node_output(graph, node, 0)->rank;
    uint32_t variable = LEAT_VALUE_NONE;

    switch (node->op->kind) {
    case LEAT_OP_ABS:
    case LEAT_OP_ADD:
    case LEAT_OP_CLIP:
    case LEAT_OP_DIV:
    case LEAT_OP_ELU:
    case LEAT_OP_ERF:
    case LEAT_OP_EXP:
    case LEAT_OP_GELU:
    case LEAT_OP_HARD_SIGMOID:
    case LEAT_OP_HARD_SWISH:
    case LEAT_OP_LEAKY_RELU:
    case LEAT_OP_LOG:
    case LEAT_OP_MUL:
    case LEAT_OP_NEG:
    case LEAT_OP_POW:
    case LEAT_OP_RECIPROCAL:
    case LEAT_OP_RELU:
    case LEAT_OP_SIGMOID:
    case LEAT_OP_SOFTPLUS:
    case LEAT_OP_SQRT:
    case LEAT_OP_SUB:
    case LEAT_OP_SWISH:
    case LEAT_OP_TANH:
        break;
    default:
        return LEAT_VALUE_NONE;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct leat_value *x = leat_node_input(graph, node, i);
        if (x == NULL) {
            continue;
        }
        if (x->data == NULL && variable == LEAT_VALUE_NONE && x->rank == y_rank) {
            variable = node->inputs[i];
        } else if (x->data == NULL || leat_value_elements(x) != 1 || x->rank > 1) {
            return LEAT_VALUE_NONE;
        }
    }
    return variable;
}

/* What the node makes of vectors of constants; LEAT_VALUE_NONE where that is not to be had. */
static enum leat_status
fold_vector(struct fusion *f, struct leat_node node, uint32_t dtype, uint32_t *ret)
{
    static const int64_t dims[1] = {NUMBERS};
    bool folded = false;

    enum leat_status status = leat_graph_add_value(f->graph, "table", dtype, 1, dims, ret);
    if (status == LEAT_OK && f->graph->value_count > f->room) {
        void **longer = realloc(f->data, 2 * (size_t)f->graph->value_count * sizeof(*longer));
        if (longer == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a pass over %u values",
                             f->graph->value_count);
        }
        f->data = longer;
        f->room = 2 * f->graph->value_count;
    }
    node.outputs = ret;
    if (status == LEAT_OK) {
        status = leat_graph_fold_node(f->graph, &node, f->data, &folded);
    }
    *ret = folded ? *ret : LEAT_VALUE_NONE;
    return status;
}

/* What the node makes of a vector of constants instead of its operand `from`. */
static enum leat_status
apply_to_all(struct fusion *f, const struct leat_node *node, uint32_t from, uint32_t vector,
             uint32_t dtype, uint32_t *ret)
{
    uint32_t inputs[3] = {LEAT_VALUE_NONE, LEAT_VALUE_NONE, LEAT_VALUE_NONE};
    struct leat_node copy = *node;

    if (node->input_count > LEAT_COUNT_OF(inputs)) {
        *ret = LEAT_VALUE_NONE;
        return LEAT_OK;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        inputs[i] = node->inputs[i] == from ? vector : node->inputs[i];
    }
    copy.inputs = inputs;
    return fold_vector(f, copy, dtype, ret);
}

static enum leat_status
add_numbers(struct fusion *f, uint32_t dtype, uint32_t *ret)
{
    static const int64_t dims[1] = {NUMBERS};
    uint32_t *numbers = &f->numbers[dtype == LEAT_DTYPE_I8 ? 1 : 0];
    uint8_t bytes[NUMBERS];
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < NUMBERS; i++) {
        bytes[i] = (uint8_t)i;
    }
    if (*numbers == LEAT_VALUE_NONE) {
        status = leat_graph_add_constant(f->graph, "numbers", dtype, 1, dims, bytes, numbers);
    }
    *ret = *numbers;
    return status;
}

/* All that functions can make of 8-bit numbers is a table. */
static enum leat_status
fuse_functions(struct fusion *f, struct leat_node *last)
{
    const struct leat_node *functions[FUNCTIONS_MAX + 1];
    uint32_t variables[FUNCTIONS_MAX + 1], count = 0, value = last->inputs[0], table;
    struct numbers x;

    while (!find_numbers(f, value, &x)) {
        const struct leat_node *node = sole_producer(f, value);
        value =
            node != NULL && count < FUNCTIONS_MAX ? variable_of(f->graph, node) : LEAT_VALUE_NONE;
        if (value == LEAT_VALUE_NONE) {
            return LEAT_OK;
        }
        functions[count] = node;
        variables[count++] = value;
    }
    if (f->graph->values[x.q].data != NULL) {
        return LEAT_OK; /* constants are folded */
    }
    const struct leat_node *first =
        leat_pass_producer(f->graph, &f->index, value, LEAT_OP_DEQUANTIZE_LINEAR);
    enum leat_status status = add_numbers(f, f->graph->values[x.q].dtype, &table);
    if (status == LEAT_OK) {
        status = apply_to_all(f, first, x.q, table, LEAT_DTYPE_F32, &table);
    }
    for (uint32_t i = count; i-- > 0 && status == LEAT_OK && table != LEAT_VALUE_NONE;) {
        status = apply_to_all(f, functions[i], variables[i], table, LEAT_DTYPE_F32, &table);
    }
    if (status == LEAT_OK && table != LEAT_VALUE_NONE) {
        status = apply_to_all(f, last, last->inputs[0], table,
                              f->graph->values[last->outputs[0]].dtype, &table);
    }
    if (status != LEAT_OK || table == LEAT_VALUE_NONE) {
        return status;
    }
    const uint32_t inputs[2] = {x.q, table};
    struct leat_node named = count > 0 ? *functions[0] : *last;
    named.attribute_count = 0;
    return replace(f, last, &named, leat_op_fused(LEAT_OP_QLINEAR_LOOKUP), inputs, 2);
}

/* The numbers that a table makes these of, and the table; or themselves, and all that they can be. */
static enum leat_status
find_table(struct fusion *f, uint32_t q, uint32_t *ret_from, uint32_t *ret_table)
{
    const struct leat_node *node =
        leat_pass_producer(f->graph, &f->index, q, LEAT_OP_QLINEAR_LOOKUP);

    if (node != NULL) {
        *ret_from = node->inputs[0];
        *ret_table = node->inputs[1];
        return LEAT_OK;
    }
    *ret_from = q;
    return add_numbers(f, f->graph->values[q].dtype, ret_table);
}

/* A sum or product of two functions of the same numbers, such as x sigmoid(x), is one function of them. */
static enum leat_status
fuse_both(struct fusion *f, struct leat_node *last, const struct leat_node *node,
          const struct numbers *y)
{
    uint32_t from_a, from_b, table_a, table_b, table;
    struct numbers a, b;

    if (!find_numbers(f, node->inputs[0], &a) || !find_numbers(f, node->inputs[1], &b)) {
        return LEAT_OK;
    }
    enum leat_status status = find_table(f, a.q, &from_a, &table_a);
    if (status == LEAT_OK) {
        status = find_table(f, b.q, &from_b, &table_b);
    }
    if (status != LEAT_OK || from_a != from_b || f->graph->values[from_a].data != NULL) {
        return status;
    }
    uint32_t operands[8] = {table_a, a.scale, a.zero, table_b, b.scale, b.zero, y->scale, y->zero};
    struct leat_node both = *node;
    both.op = leat_op_fused(node->op->kind == LEAT_OP_ADD ? LEAT_OP_QLINEAR_ADD : LEAT_OP_QLINEAR_MUL);
    both.attribute_count = 0;
    both.inputs = operands;
    both.input_count = LEAT_COUNT_OF(operands);
    status = fold_vector(f, both, f->graph->values[last->outputs[0]].dtype, &table);
    if (status != LEAT_OK || table == LEAT_VALUE_NONE) {
        return status;
    }
    const uint32_t inputs[2] = {from_a, table};
    struct leat_node named = *node;
    named.attribute_count = 0;
    return replace(f, last, &named, leat_op_fused(LEAT_OP_QLINEAR_LOOKUP), inputs, 2);
}

/* Floats of numbers become these numbers again: who reads them reads the former. */
static bool
drop(struct fusion *f, struct leat_node *last, const struct numbers *y)
{
    struct numbers x;

    if (!find_numbers(f, last->inputs[0], &x) || !same_scale(f->graph, &x, y)) {
        return false;
    }
    for (uint32_t o = 0; o < f->graph->output_count; o++) {
        if (f->graph->outputs[o] == y->q) {
            return false;
        }
    }
    f->same[y->q] = x.q;
    f->index.uses[x.q] += f->index.uses[y->q];
    f->index.uses[y->q] = 0;
    f->index.uses[last->inputs[0]]--; /* what made it may go as dead code */
    last->op = NULL;
    f->changed = true;
    return true;
}

static enum leat_status
fuse_with(struct fusion *f, struct leat_node *last, const struct leat_node *node,
          const struct numbers *y)
{
    const struct leat_op *op = last->op;
    enum leat_status status;

    switch (node->op->kind) {
    case LEAT_OP_CONV:
    case LEAT_OP_GEMM:
    case LEAT_OP_MATMUL:
        return fuse_product(f, last, node, y);
    case LEAT_OP_ADD:
    case LEAT_OP_MUL:
        status = fuse_both(f, last, node, y);
        return status == LEAT_OK && last->op == op ? fuse_sum(f, last, node, y) : status;
    case LEAT_OP_CONCAT:
    case LEAT_OP_FLATTEN:
    case LEAT_OP_GATHER:
    case LEAT_OP_MAX_POOL:
    case LEAT_OP_RESHAPE:
    case LEAT_OP_SLICE:
    case LEAT_OP_SQUEEZE:
    case LEAT_OP_TRANSPOSE:
    case LEAT_OP_UNSQUEEZE:
        return fuse_move(f, last, node, y);
    default:
        return LEAT_OK;
    }
}

static enum leat_status
fuse(struct fusion *f, struct leat_node *last)
{
    const struct numbers y = numbers_of(f, last, last->outputs[0]);
    float scale;

    if (!is_scale(f->graph, y.scale, &scale) || !is_zero_point(f->graph, y.zero) ||
        drop(f, last, &y)) {
        return LEAT_OK;
    }
    const struct leat_node *node = sole_producer(f, last->inputs[0]);
    if (node != NULL && saturates(f, node, &y)) {
        node = sole_producer(f, node->inputs[0]);
    }
    const struct leat_op *op = last->op;
    const enum leat_status status = node != NULL ? fuse_with(f, last, node, &y) : LEAT_OK;
    return status == LEAT_OK && last->op == op ? fuse_functions(f, last) : status;
}

static void
rename_inputs(const struct fusion *f, struct leat_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] < f->index.count) { /* neither omitted nor made by this pass */
            node->inputs[i] = f->same[node->inputs[i]];
        }
    }
    if (node->fused_add < f->index.count) {
        node->fused_add = f->same[node->fused_add];
    }
}

LEAT_PASS_FUNCTION(fuse_quantised)
{
    struct fusion f = {.graph = graph, .numbers = {LEAT_VALUE_NONE, LEAT_VALUE_NONE}};
    bool any = false;

    for (uint32_t n = 0; n < graph->node_count; n++) {
        any = any || graph->nodes[n].op->kind == LEAT_OP_QUANTIZE_LINEAR;
    }
    if (!any) {
        return LEAT_OK;
    }
    enum leat_status status =
        leat_graph_add_constant(graph, "zero", LEAT_DTYPE_U8, 0, NULL, NULL, &f.zeros[0]);
    if (status == LEAT_OK) {
        status = leat_graph_add_constant(graph, "zero", LEAT_DTYPE_I8, 0, NULL, NULL, &f.zeros[1]);
    }
    f.same = malloc(((size_t)graph->value_count + 1) * sizeof(*f.same));
    if (status == LEAT_OK && f.same == NULL) {
        status =
            LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a pass over %u values", graph->value_count);
    }
    if (status == LEAT_OK) {
        status = leat_pass_index_create(graph, &f.index);
    }
    if (status != LEAT_OK) {
        free(f.same);
        return status;
    }
    for (uint32_t v = 0; v < graph->value_count; v++) {
        f.same[v] = v;
    }
    for (uint32_t n = 0; n < graph->node_count && status == LEAT_OK; n++) {
        struct leat_node *node = &graph->nodes[n];
        rename_inputs(&f, node);
        if (node->op != NULL && node->op->kind == LEAT_OP_QUANTIZE_LINEAR && is_plain(node)) {
            status = fuse(&f, node);
        }
    }
    leat_pass_index_destroy(&f.index);
    free(f.same);
    free(f.data);
    leat_graph_sweep_nodes(graph);
    *ret_changed = f.changed;
    return status;
}
