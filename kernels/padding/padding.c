/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/padding/padding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/graph_build.h"

#define UNIFORM_ELEMENTS_MAX ((size_t)1 << 20) /* constants that are looked through */
#define OFFSET_ELEMENTS_MAX  ((size_t)1 << 18) /* and those without positions that are added to scores */

const struct padding_state *
padding_input(const struct padding *p, const struct leat_node *node, uint32_t i)
{
    return i < node->input_count && node->inputs[i] != LEAT_VALUE_NONE ? &p->states[node->inputs[i]] : NULL;
}

void
padding_use_as_numbers(struct padding *p, const struct padding_state *state)
{
    if (state->known && state->mask != LEAT_VALUE_NONE) {
        p->used_as_numbers |= UINT64_C(1) << state->mask;
    }
}

/* ---- How far from scores ----------------------------------------------------------------------------- */

struct padding_offset
padding_offset_lost(void)
{
    return (struct padding_offset){-INFINITY, INFINITY};
}

struct padding_offset
padding_offset_of(double least, double most)
{
    return least <= most ? (struct padding_offset){least, most} : padding_offset_lost();
}

struct padding_offset
padding_offset_sum(struct padding_offset a, struct padding_offset b)
{
    return padding_offset_of(a.least + b.least, a.most + b.most);
}

struct padding_offset
padding_offset_product(struct padding_offset a, struct padding_offset b)
{
    const double x[4] = {a.least * b.least, a.least * b.most, a.most * b.least, a.most * b.most};

    for (uint32_t i = 0; i < LEAT_COUNT_OF(x); i++) {
        if (isnan(x[i])) {
            return padding_offset_lost();
        }
    }
    return padding_offset_of(fmin(fmin(x[0], x[1]), fmin(x[2], x[3])), fmax(fmax(x[0], x[1]), fmax(x[2], x[3])));
}

struct padding_offset
padding_offset_hull(struct padding_offset a, struct padding_offset b)
{
    return padding_offset_of(fmin(a.least, b.least), fmax(a.most, b.most));
}

/* ---- Which axes count positions ---------------------------------------------------------------------- */

/* False when a dimension depends on the length in another way than being it. */
static bool
find_axes(const struct padding *p, uint32_t v, uint32_t *ret_axes)
{
    const struct leat_value *longest = &p->graph->values[v];

    *ret_axes = 0;
    for (uint32_t d = 0; d < longest->rank; d++) {
        bool same = true, length = true;
        for (uint32_t k = 0; k < p->count; k++) {
            const struct leat_value *value = &p->graphs[k]->values[v];
            if (value->rank != longest->rank) {
                return false;
            }
            same = same && value->dims[d] == longest->dims[d];
            length = length && value->dims[d] == (int64_t)p->lengths[k];
        }
        if (!same && !length) {
            return false;
        }
        *ret_axes |= (uint32_t)!same << d;
    }
    return true;
}

/* ---- Constants ----------------------------------------------------------------------------------------- */

/* The shorter one is what the longer one has at the same places. */
static bool
is_prefix(const struct leat_value *shorter, const struct leat_value *longer)
{
    const size_t bytes = leat_dtype_bytes(shorter->dtype), elements = leat_value_elements(shorter);
    int64_t index[LEAT_RANK_MAX] = {0};
    const uint32_t rank = shorter->rank;

    if (shorter->data == longer->data || elements == 0) {
        return true;
    }
    const size_t row = rank > 0 ? (size_t)shorter->dims[rank - 1] : 1;
    for (size_t from = 0; from < elements; from += row) {
        size_t at = 0;
        for (uint32_t d = 0; d < rank; d++) {
            at = at * (size_t)longer->dims[d] + (size_t)index[d];
        }
        if (memcmp((const unsigned char *)shorter->data + from * bytes, (const unsigned char *)longer->data + at * bytes,
                   row * bytes) != 0) {
            return false;
        }
        for (uint32_t d = rank > 0 ? rank - 1 : 0; d-- > 0;) {
            if (++index[d] < shorter->dims[d]) {
                break;
            }
            index[d] = 0;
        }
    }
    return true;
}

static bool
is_uniform(const struct leat_value *value)
{
    const size_t bytes = leat_dtype_bytes(value->dtype), elements = leat_value_elements(value);
    const unsigned char *data = value->data;

    return elements > 0 && elements <= UNIFORM_ELEMENTS_MAX && memcmp(data, data + bytes, (elements - 1) * bytes) == 0;
}

bool
padding_element(const struct leat_value *value, size_t i, double *ret)
{
    const void *data = value->data;

    if (!leat_value_in_place(value)) {
        return false;
    }
    switch (value->dtype) {
    case LEAT_DTYPE_BOOL:
        *ret = ((const uint8_t *)data)[i] != 0;
        return true;
    case LEAT_DTYPE_I8:
        *ret = ((const int8_t *)data)[i];
        return true;
    case LEAT_DTYPE_U8:
        *ret = ((const uint8_t *)data)[i];
        return true;
    case LEAT_DTYPE_F32:
        *ret = (double)((const float *)data)[i];
        return true;
    case LEAT_DTYPE_F64:
        *ret = ((const double *)data)[i];
        return true;
    case LEAT_DTYPE_I32:
        *ret = ((const int32_t *)data)[i];
        return true;
    case LEAT_DTYPE_I64:
        *ret = (double)((const int64_t *)data)[i];
        return true;
    default:
        return false;
    }
}

/* Of a constant with positions: what its tail may have. */
static void
look_through(const struct leat_value *value, struct padding_state *state)
{
    const size_t elements = leat_value_elements(value);
    const size_t length = value->rank > 0 ? (size_t)value->dims[value->rank - 1] : 1;
    const bool infinite = state->masked != 0 && isinf(state->margin);
    double x, least = INFINITY, most = -INFINITY;

    if (elements == 0) {
        return;
    }
    if (!padding_element(value, 0, &x)) {
        state->finite = value->dtype >= LEAT_DTYPE_I8; /* whole numbers */
        return;
    }
    for (size_t i = 0; i < elements; i++) {
        const bool excluded = infinite && i % length > i / length % length;
        (void)padding_element(value, i, &x);
        state->finite = state->finite && (excluded || x - x == 0);
        least = x < least ? x : least;
        most = x > most ? x : most;
    }
    if (value->dtype == LEAT_DTYPE_I32 || value->dtype == LEAT_DTYPE_I64) {
        padding_set_bounds(state, least, most);
        return;
    }
    state->uneven = state->masked == 0 && !(most - least < LEAT_PADDING_MARGIN);
}

/* The constant's own elements; of all that have positions, as what they add to scores comes off the margins of masks. */
static struct padding_offset
offset_of_constant(const struct leat_value *value, bool has_positions)
{
    const size_t elements = leat_value_elements(value);
    double x, least = INFINITY, most = -INFINITY;

    if (elements > OFFSET_ELEMENTS_MAX && !has_positions) {
        return padding_offset_lost();
    }
    for (size_t i = 0; i < elements; i++) {
        if (!padding_element(value, i, &x) || isnan(x)) {
            return padding_offset_lost();
        }
        least = fmin(least, x);
        most = fmax(most, x);
    }
    return padding_offset_of(least, most);
}

/* The last axis, where of the axis before it only positions that are not later count, as in a causal mask. */
static void
find_causal(const struct leat_value *value, struct padding_state *state)
{
    const uint32_t both = value->rank >= 2 ? 3u << (value->rank - 2) : 0;
    const size_t elements = leat_value_elements(value);
    const float *data = value->data;
    float margin = INFINITY;
    double least = INFINITY, most = -INFINITY;

    if (value->dtype != LEAT_DTYPE_F32 || !leat_value_in_place(value) || both == 0 || (state->axes & both) != both) {
        return;
    }
    const size_t length = (size_t)value->dims[value->rank - 1];
    for (size_t row = 0; row < elements / length; row++) {
        const float *scores = data + row * length;
        const size_t query = row % length;
        least = fmin(least, (double)scores[query]);
        most = fmax(most, (double)scores[query]);
        for (size_t key = query + 1; key < length; key++) {
            const float less = scores[query] - scores[key];
            margin = less < margin || less != less ? less : margin;
        }
    }
    if (margin >= (float)LEAT_PADDING_MARGIN && state->axes == both) {
        state->masked = UINT32_C(1) << (value->rank - 1);
        state->margin = (double)margin;
        state->offset = padding_offset_of(least, most);
    }
}

static void
describe_constant(const struct padding *p, uint32_t v, struct padding_state *state)
{
    const struct leat_value *value = &p->graph->values[v];

    *state = (struct padding_state){.constant = true, .finite = true, .mask = LEAT_VALUE_NONE};
    state->even = value->dtype == LEAT_DTYPE_I8 || value->dtype == LEAT_DTYPE_U8;
    state->varies = !find_axes(p, v, &state->axes);
    for (uint32_t k = 0; k < p->count && !state->varies; k++) {
        state->varies = !is_prefix(&p->graphs[k]->values[v], value);
    }
    if (!state->varies && is_uniform(value)) {
        state->known = padding_element(value, 0, &state->off);
        state->on = state->off;
        if (state->known) {
            padding_set_bounds(state, state->off, state->off);
        }
        state->finite = !state->known || state->off - state->off == 0;
        state->zero = state->known && state->off == 0 ? state->axes : 0;
        state->sign = state->known && state->off > 0    ? PADDING_POSITIVE
                      : state->known && state->off >= 0 ? PADDING_NOT_NEGATIVE
                                                        : PADDING_ANY;
    }
    state->offset = state->known ? padding_offset_of(state->off, state->off) : offset_of_constant(value, state->axes != 0);
    if (!state->varies) {
        find_causal(value, state);
    }
    if (state->axes != 0 && !state->varies && !state->known) {
        look_through(value, state);
    }
}

/* ---- The whole graph ------------------------------------------------------------------------------------ */

static bool
same_strings(const struct leat_attribute *a, const struct leat_attribute *b)
{
    for (uint32_t i = 0; i < a->count; i++) {
        if (strcmp(a->strings[i], b->strings[i]) != 0) {
            return false;
        }
    }
    return true;
}

static bool
same_attribute(const struct leat_graph *graph_a, const struct leat_attribute *a, const struct leat_graph *graph_b,
               const struct leat_attribute *b)
{
    if (a->kind != b->kind || strcmp(a->name, b->name) != 0) {
        return false;
    }
    switch (a->kind) {
    case LEAT_ATTRIBUTE_INT:
        return a->i == b->i;
    case LEAT_ATTRIBUTE_FLOAT:
        return memcmp(&a->f, &b->f, sizeof(a->f)) == 0;
    case LEAT_ATTRIBUTE_STRING:
        return strcmp(a->s, b->s) == 0;
    case LEAT_ATTRIBUTE_INTS:
        return a->count == b->count && (a->count == 0 || memcmp(a->ints, b->ints, a->count * sizeof(*a->ints)) == 0);
    case LEAT_ATTRIBUTE_FLOATS:
        return a->count == b->count && (a->count == 0 || memcmp(a->floats, b->floats, a->count * sizeof(*a->floats)) == 0);
    case LEAT_ATTRIBUTE_STRINGS:
        return a->count == b->count && same_strings(a, b);
    case LEAT_ATTRIBUTE_TENSOR: {
        const struct leat_value *x = &graph_a->values[a->value], *y = &graph_b->values[b->value];
        return x->dtype == y->dtype && x->rank == y->rank && memcmp(x->dims, y->dims, x->rank * sizeof(*x->dims)) == 0 &&
               x->data_bytes == y->data_bytes &&
               (x->data == y->data || x->data_bytes == 0 || memcmp(x->data, y->data, x->data_bytes) == 0);
    }
    case LEAT_ATTRIBUTE_GRAPH: /* what is inside is not followed */
    default:
        return false;
    }
}

static bool
same_attributes(const struct leat_graph *graph_a, const struct leat_node *a, const struct leat_graph *graph_b,
                const struct leat_node *b)
{
    for (uint32_t i = 0; i < a->attribute_count && a->attribute_count == b->attribute_count; i++) {
        if (!same_attribute(graph_a, &a->attributes[i], graph_b, &b->attributes[i])) {
            return false;
        }
    }
    return a->attribute_count == b->attribute_count;
}

static bool
same_node(const struct leat_node *a, const struct leat_node *b)
{
    return a->op == b->op && a->input_count == b->input_count && a->output_count == b->output_count &&
           memcmp(a->inputs, b->inputs, a->input_count * sizeof(*a->inputs)) == 0 &&
           memcmp(a->outputs, b->outputs, a->output_count * sizeof(*a->outputs)) == 0;
}

static enum leat_status
check_same_nodes(const struct padding *p)
{
    for (uint32_t k = 0; k < p->count; k++) {
        const struct leat_graph *graph = p->graphs[k];
        for (uint32_t n = 0; n < p->graph->node_count; n++) {
            if (n >= graph->node_count || !same_node(&graph->nodes[n], &p->graph->nodes[n]) ||
                (graph != p->graph && !same_attributes(graph, &graph->nodes[n], p->graph, &p->graph->nodes[n]))) {
                return LEAT_NODE_FAIL(&p->graph->nodes[n], LEAT_ERR_UNSUPPORTED,
                                      "which nodes the model has depends on the length of the sequence");
            }
        }
        if (graph->node_count != p->graph->node_count || graph->value_count != p->graph->value_count) {
            return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "which nodes the model has depends on the length of the sequence");
        }
        for (uint32_t v = 0; v < graph->value_count; v++) {
            if ((graph->values[v].data == NULL) != (p->graph->values[v].data == NULL)) {
                return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "whether '%.64s' is constant depends on the length of the sequence",
                                 graph->values[v].name);
            }
        }
    }
    return LEAT_OK;
}

static enum leat_status
describe_inputs(struct padding *p)
{
    for (uint32_t i = 0; i < p->graph->input_count; i++) {
        const uint32_t v = p->graph->inputs[i];
        const struct leat_value *value = &p->graph->values[v];
        struct padding_state *state = &p->states[v];
        *state = (struct padding_state){.finite = true, .mask = LEAT_VALUE_NONE};
        if (!find_axes(p, v, &state->axes)) {
            return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "a dimension of input '%.64s' depends on the length of the sequence",
                             value->name);
        }
        state->zero = state->axes;
        for (uint32_t d = 0; d < value->rank; d++) {
            if (state->axes == UINT32_C(1) << d && leat_value_elements(value) == (size_t)value->dims[d]) {
                state->known = true;
                state->on = 1;
                state->offset = padding_offset_of(0, 1);
                state->of_masks = true;
                state->mask = i;
                state->mask_axis = d;
            }
        }
    }
    return LEAT_OK;
}

/* What is made of masks stays so; a look-up and what brings all numbers to one size make others of them. */
static void
carry_masks(struct padding *p, const struct leat_node *node)
{
    const enum leat_op_kind kind = node->op->kind;
    const bool evens = kind == LEAT_OP_SOFTMAX || kind == LEAT_OP_LAYER_NORMALIZATION;
    bool masks = false, others = false, uneven = false;

    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct padding_state *in = padding_input(p, node, i);
        if (in == NULL || (kind == LEAT_OP_GATHER && i > 0)) {
            continue;
        }
        masks = masks || in->of_masks;
        others = others || (!in->of_masks && !in->constant);
        uneven = uneven || in->uneven;
    }
    for (uint32_t o = 0; o < node->output_count; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE) {
            struct padding_state *out = &p->states[node->outputs[o]];
            for (uint32_t i = 0; i < node->input_count; i++) { /* excluded here, but no longer there */
                const struct padding_state *in = padding_input(p, node, i);
                uneven = uneven || (in != NULL && in->masked != 0 && out->masked == 0);
            }
            out->of_masks = masks && !others && !evens;
            out->uneven = (out->uneven || uneven || (masks && others)) && !evens;
        }
    }
}

/* What C or the shift of a normalisation adds to what is new. */
static struct padding_offset
added(const struct padding *p, const struct leat_node *node, float factor)
{
    const struct padding_state *by = padding_input(p, node, 2);
    const struct padding_offset none = {0, 0}, times = {(double)factor, (double)factor};

    return by != NULL ? padding_offset_product(by->offset, times) : none;
}

/* Others have seen to elementwise operators, to those of 8 bits and to what moves elements; what is not here is not followed. */
static void
carry_offsets(const struct padding *p, const struct leat_node *node)
{
    struct padding_offset offset = {0, 0};
    double point;

    switch (node->op->kind) {
    case LEAT_OP_SOFTMAX:
    case LEAT_OP_MATMUL_INTEGER:
        break;
    case LEAT_OP_MATMUL:
        offset = added(p, node, 1);
        break;
    case LEAT_OP_GEMM:
        offset = added(p, node, leat_node_float(node, "beta", 1));
        break;
    case LEAT_OP_LAYER_NORMALIZATION:
        offset = added(p, node, 1);
        break;
    case LEAT_OP_QLINEAR_MATMUL:
        if (!padding_zero_point(p, node, 7, &point)) {
            return;
        }
        offset = padding_offset_of(point, point);
        break;
    case LEAT_OP_CONCAT:
        offset = padding_input(p, node, 0)->offset;
        for (uint32_t i = 1; i < node->input_count; i++) {
            offset = padding_offset_hull(offset, padding_input(p, node, i)->offset);
        }
        break;
    case LEAT_OP_GATHER:
    case LEAT_OP_REDUCE_MAX:
    case LEAT_OP_REDUCE_MEAN:
    case LEAT_OP_REDUCE_MIN:
        offset = padding_input(p, node, 0)->offset;
        break;
    default:
        return;
    }
    p->states[node->outputs[0]].offset = offset;
}

/* Of a value that was masked one element alone is followed. */
static void
lose_offsets(const struct padding *p, const struct leat_node *node)
{
    bool masked = false;

    for (uint32_t i = 0; i < node->input_count; i++) {
        masked = masked || (padding_input(p, node, i) != NULL && padding_input(p, node, i)->masked != 0);
    }
    for (uint32_t o = 0; o < node->output_count && masked && node->op->kind != LEAT_OP_SOFTMAX; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE && p->states[node->outputs[o]].masked == 0) {
            p->states[node->outputs[o]].offset = padding_offset_lost();
        }
    }
}

/* What folding left is not looked through: numbers behind the end may be anything. */
static void
carry_constants(struct padding *p, const struct leat_node *node)
{
    bool constant = node->input_count > 0;

    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct padding_state *in = padding_input(p, node, i);
        constant = constant && (in == NULL || in->constant);
    }
    for (uint32_t o = 0; o < node->output_count && constant; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE) {
            struct padding_state *out = &p->states[node->outputs[o]];
            out->constant = true;
            out->offset = out->known ? out->offset : padding_offset_lost();
            out->uneven = out->uneven || (out->axes != 0 && !out->known && !out->even);
        }
    }
}

static enum leat_status
check_node(struct padding *p, const struct leat_node *node)
{
    for (uint32_t o = 0; o < node->output_count; o++) {
        const uint32_t v = node->outputs[o];
        if (v == LEAT_VALUE_NONE) {
            continue;
        }
        p->states[v] = (struct padding_state){.finite = true, .offset = padding_offset_lost(), .mask = LEAT_VALUE_NONE};
        if (!find_axes(p, v, &p->states[v].axes)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                                  "a size of its result depends on the length of the sequence, but is another one");
        }
    }
    const enum leat_status status = padding_apply(p, node);
    if (!padding_is_elementwise(node->op->kind)) {
        carry_masks(p, node);
        carry_offsets(p, node);
    }
    lose_offsets(p, node);
    carry_constants(p, node);
    for (uint32_t o = 0; o < node->output_count; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE && p->states[node->outputs[o]].axes == 0) {
            p->states[node->outputs[o]].finite = true; /* there is no tail */
        }
    }
    return status;
}

static enum leat_status
check_graph(struct padding *p)
{
    for (uint32_t v = 0; v < p->graph->value_count; v++) {
        if (p->graph->values[v].data != NULL) {
            describe_constant(p, v, &p->states[v]);
        }
    }
    enum leat_status status = describe_inputs(p);
    for (uint32_t n = 0; n < p->graph->node_count && status == LEAT_OK; n++) {
        status = check_node(p, &p->graph->nodes[n]);
    }
    for (uint32_t o = 0; o < p->graph->output_count && status == LEAT_OK; o++) {
        padding_use_as_numbers(p, &p->states[p->graph->outputs[o]]);
        if (p->states[p->graph->outputs[o]].varies) {
            status = LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "output '%.64s' depends on how far the sequence is padded",
                               p->graph->values[p->graph->outputs[o]].name);
        }
    }
    for (uint32_t i = 0; i < p->graph->input_count && status == LEAT_OK; i++) {
        if ((p->masks_needed & p->used_as_numbers) >> i & 1) {
            status = LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                               "input '%.64s' says which positions count, but is not a mask alone: padding could change answers",
                               p->graph->values[p->graph->inputs[i]].name);
        }
    }
    return status;
}

enum leat_status
leat_padding_check(struct leat_graph *const *graphs, const uint32_t *lengths, uint32_t count, uint64_t *ret_masks)
{
    struct padding p = {.graphs = graphs, .lengths = lengths, .count = count, .graph = graphs[count - 1]};

    LEAT_ASSERT(count >= 2);
    enum leat_status status = check_same_nodes(&p);
    if (status != LEAT_OK) {
        return status;
    }
    p.states = calloc((size_t)p.graph->value_count + 1, sizeof(*p.states));
    if (p.states == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to check padding");
    }
    status = check_graph(&p);
    free(p.states);
    if (status == LEAT_OK) {
        *ret_masks = p.masks_needed;
    }
    return status;
}
