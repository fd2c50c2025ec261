/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operands that are spread over each other: sums, differences, products and quotients of floats where oneDNN has but plain loops
 * or nothing, the greater and the lesser of two, powers, PRelu, comparisons, logic, shifts, remainders, and Where. One step walks through the
 * result, whose axes each operand goes through with strides of its own.
 */
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/loops/loops.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"

enum { OPERANDS_MAX = 3, LANES = 4, SHARED_LEAST = 4096 /* elements for each member of a team */ };

typedef float vector __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t choice __attribute__((vector_size(LANES * sizeof(int32_t))));

/* The result's axes, those that all operands go through alike made one; strides in elements, 0 along what is spread. */
struct walk {
    uint32_t rank;
    int64_t dims[LEAT_RANK_MAX], strides[OPERANDS_MAX][LEAT_RANK_MAX];
};

static bool
goes_on(const struct walk *walk, const int64_t *strides, uint32_t operands, int64_t dim)
{
    bool same = walk->rank > 0;
    for (uint32_t i = 0; i < operands && same; i++) {
        same = walk->strides[i][walk->rank - 1] == strides[i] * dim;
    }
    return same;
}

static struct walk
walk_of(const struct leat_graph *graph, const struct leat_node *node, uint32_t operands)
{
    const struct leat_value *y = leat_node_output(graph, node, 0);
    int64_t all[LEAT_RANK_MAX][OPERANDS_MAX] = {{0}};
    struct walk walk = {.rank = 0};

    for (uint32_t i = 0; i < operands; i++) {
        const struct leat_value *x = leat_node_input(graph, node, i);
        int64_t stride = 1;
        for (uint32_t d = x->rank; d-- > 0; stride *= x->dims[d]) {
            all[y->rank - x->rank + d][i] = x->dims[d] != 1 ? stride : 0;
        }
    }
    for (uint32_t d = 0; d < y->rank; d++) {
        if (y->dims[d] == 1) {
            continue;
        }
        if (goes_on(&walk, all[d], operands, y->dims[d])) {
            walk.dims[walk.rank - 1] *= y->dims[d];
        } else {
            walk.dims[walk.rank++] = y->dims[d];
        }
        for (uint32_t i = 0; i < operands; i++) {
            walk.strides[i][walk.rank - 1] = all[d][i];
        }
    }
    if (walk.rank == 0) {
        walk.dims[walk.rank++] = 1;
    }
    return walk;
}

/* Where a row, what the last axis has, begins in each operand. */
struct place {
    int64_t at[LEAT_RANK_MAX], offsets[OPERANDS_MAX];
};

static struct place
place_of(const struct walk *walk, uint32_t operands, size_t row)
{
    struct place place = {.offsets = {0}};

    for (uint32_t d = walk->rank - 1; d-- > 0; row /= (size_t)walk->dims[d]) {
        place.at[d] = (int64_t)(row % (size_t)walk->dims[d]);
        for (uint32_t i = 0; i < operands; i++) {
            place.offsets[i] += place.at[d] * walk->strides[i][d];
        }
    }
    return place;
}

static void
next_place(const struct walk *walk, uint32_t operands, struct place *place)
{
    for (uint32_t d = walk->rank - 1; d-- > 0;) {
        const bool over = ++place->at[d] == walk->dims[d];
        for (uint32_t i = 0; i < operands; i++) {
            place->offsets[i] += walk->strides[i][d] - (over ? walk->strides[i][d] * walk->dims[d] : 0);
        }
        if (!over) {
            break;
        }
        place->at[d] = 0;
    }
}

/* ---- Arithmetic ------------------------------------------------------------------------------------- */

static inline vector
load(const float *x, int64_t stride, int64_t i)
{
    vector v;
    if (stride != 0) {
        memcpy(&v, x + i, sizeof(v));
        return v;
    }
    return (vector){0} + x[0];
}

/* q where it is beyond p, or is no number; nothing is beyond what is none. */
static inline vector
choose(vector p, vector q, choice beyond)
{
    const choice takes = beyond | ~(q >= q);
    return (vector)((takes & (choice)q) | (~takes & (choice)p));
}

static inline float
choose_one(float p, float q, bool beyond)
{
    return beyond || q != q ? q : p;
}

#define ROW_FUNCTION(name, of_vectors, of_floats)                                                                         \
    static bool name(const void *a, int64_t a_stride, const void *b, int64_t b_stride, void *y, int64_t count)            \
    {                                                                                                                     \
        const float *in_a = a, *in_b = b;                                                                                 \
        float *out = y;                                                                                                   \
        int64_t i = 0;                                                                                                    \
        for (; i + LANES <= count; i += LANES) {                                                                          \
            const vector p = load(in_a, a_stride, i), q = load(in_b, b_stride, i), r = of_vectors;                        \
            memcpy(out + i, &r, sizeof(r));                                                                               \
        }                                                                                                                 \
        for (; i < count; i++) {                                                                                          \
            const float p = in_a[i * a_stride], q = in_b[i * b_stride];                                                   \
            out[i] = of_floats;                                                                                           \
        }                                                                                                                 \
        return true;                                                                                                      \
    }
ROW_FUNCTION(add_row, p + q, p + q)
ROW_FUNCTION(subtract_row, p - q, p - q)
ROW_FUNCTION(multiply_row, p *q, p *q)
ROW_FUNCTION(divide_row, p / q, p / q)
ROW_FUNCTION(slope_row, (vector)(((p < 0) & (choice)(p * q)) | (~(p < 0) & (choice)p)), p < 0 ? p * q : p)
ROW_FUNCTION(greatest_row, choose(p, q, q > p), choose_one(p, q, q > p))
ROW_FUNCTION(least_row, choose(p, q, q < p), choose_one(p, q, q < p))

static cpu_loop
function_of_floats(enum leat_op_kind kind)
{
    switch (kind) {
    case LEAT_OP_ADD:
        return add_row;
    case LEAT_OP_SUB:
        return subtract_row;
    case LEAT_OP_MUL:
        return multiply_row;
    case LEAT_OP_DIV:
        return divide_row;
    case LEAT_OP_MAX:
        return greatest_row;
    case LEAT_OP_MIN:
        return least_row;
    case LEAT_OP_PRELU:
        return slope_row;
    default:
        return NULL;
    }
}

/* Of operands of this type; NULL: there is none. */
static cpu_loop
function_of(const struct leat_node *node, uint32_t dtype)
{
    const cpu_loop floats = dtype == LEAT_DTYPE_F32 ? function_of_floats(node->op->kind) : NULL;
    return floats != NULL ? floats : cpu_loop_of(node, dtype);
}

/* args: operands, result. count: rows. */
static bool
compute_rows(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct leat_node *node = call->step->node;
    const struct walk walk = walk_of(call->program->graph, node, 2);
    const uint32_t dtype = leat_node_input(call->program->graph, node, 0)->dtype, last = walk.rank - 1;
    const cpu_loop function = function_of(node, dtype);
    const int64_t count = walk.dims[last], bytes = (int64_t)leat_dtype_bytes(dtype);
    struct place place = place_of(&walk, 2, begin);
    unsigned char *y = (unsigned char *)call->pointers[2] + begin * (size_t)count * call->step->element_bytes;

    bool good = true;
    for (size_t row = begin; row < end && good; row++, y += (size_t)count * call->step->element_bytes) {
        good = function((const unsigned char *)call->pointers[0] + place.offsets[0] * bytes, walk.strides[0][last],
                        (const unsigned char *)call->pointers[1] + place.offsets[1] * bytes, walk.strides[1][last], y, count);
        next_place(&walk, 2, &place);
    }
    return good;
}

static enum leat_status
run_arithmetic(const struct cpu_call *call)
{
    return cpu_share_checked(call, compute_rows, call->step->count, SHARED_LEAST / call->step->inner + 1)
               ? LEAT_OK
               : LEAT_NODE_FAIL(call->step->node, LEAT_ERR_SHAPE, "an integer modulo zero");
}

/* args: operands in one layout, or one element, and the result. count: what it has. */
static void
compute_flat(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct leat_node *node = call->step->node;
    const float *x[2];
    int64_t strides[2];

    for (uint32_t i = 0; i < 2; i++) {
        strides[i] = leat_value_elements(leat_node_input(call->program->graph, node, i)) != 1;
        x[i] = (const float *)call->pointers[i] + (strides[i] != 0 ? begin : 0);
    }
    (void)function_of(node, LEAT_DTYPE_F32)(x[0], strides[0], x[1], strides[1], (float *)call->pointers[2] + begin, (int64_t)(end - begin));
}

static enum leat_status
run_flat(const struct cpu_call *call)
{
    cpu_share(call, compute_flat, call->step->count, SHARED_LEAST);
    return LEAT_OK;
}

/* ---- Where ------------------------------------------------------------------------------------------ */

/* Elements of 4 or 8 bytes; without branches, which truths would mislead. */
static void
choose_row(const uint8_t *truths, const unsigned char *a, const unsigned char *b, const int64_t strides[OPERANDS_MAX],
           unsigned char *y, int64_t count, size_t bytes)
{
    for (int64_t i = 0; i < count && bytes == 4; i++) {
        uint32_t yes, no;
        memcpy(&yes, a + i * strides[1] * 4, 4);
        memcpy(&no, b + i * strides[2] * 4, 4);
        const uint32_t mask = (uint32_t)0 - (truths[i * strides[0]] != 0), chosen = (yes & mask) | (no & ~mask);
        memcpy(y + i * 4, &chosen, 4);
    }
    for (int64_t i = 0; i < count && bytes == 8; i++) {
        uint64_t yes, no;
        memcpy(&yes, a + i * strides[1] * 8, 8);
        memcpy(&no, b + i * strides[2] * 8, 8);
        const uint64_t mask = (uint64_t)0 - (truths[i * strides[0]] != 0), chosen = (yes & mask) | (no & ~mask);
        memcpy(y + i * 8, &chosen, 8);
    }
}

static void
choose_rows(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct walk walk = walk_of(call->program->graph, call->step->node, 3);
    const uint32_t last = walk.rank - 1;
    const int64_t count = walk.dims[last];
    const int64_t strides[OPERANDS_MAX] = {walk.strides[0][last], walk.strides[1][last], walk.strides[2][last]};
    const size_t bytes = call->step->element_bytes;
    struct place place = place_of(&walk, 3, begin);

    for (size_t row = begin; row < end; row++) {
        choose_row((const uint8_t *)call->pointers[0] + place.offsets[0],
                   (const unsigned char *)call->pointers[1] + place.offsets[1] * (int64_t)bytes,
                   (const unsigned char *)call->pointers[2] + place.offsets[2] * (int64_t)bytes, strides,
                   (unsigned char *)call->pointers[3] + row * (size_t)count * bytes, count, bytes);
        next_place(&walk, 3, &place);
    }
}

static enum leat_status
run_where(const struct cpu_call *call)
{
    cpu_share(call, choose_rows, call->step->count, SHARED_LEAST / call->step->inner + 1);
    return LEAT_OK;
}

/* ---- Lowering --------------------------------------------------------------------------------------- */

static enum leat_status
add_step(struct cpu_builder *b, enum leat_status (*kernel)(const struct cpu_call *call), uint32_t operands)
{
    const struct leat_value *y = leat_node_output(b->graph, b->node, 0);
    struct cpu_arg args[OPERANDS_MAX + 1] = {{0, 0}};
    enum leat_status status = LEAT_OK;
    struct cpu_step *step;

    if (leat_value_elements(y) == 0) {
        return LEAT_AGAIN;
    }
    for (uint32_t i = 0; i < operands && status == LEAT_OK; i++) {
        status = cpu_plain(b, b->node->inputs[i], &args[i].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[operands].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, kernel, args, operands + 1, &step);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const struct walk walk = walk_of(b->graph, b->node, operands);
    step->inner = (size_t)walk.dims[walk.rank - 1];
    step->count = leat_value_elements(y) / step->inner;
    step->element_bytes = leat_dtype_bytes(y->dtype);
    return LEAT_OK;
}

enum leat_status
cpu_lower_broadcast(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0);

    if (b->node->input_count != 2 || function_of(b->node, x->dtype) == NULL || leat_node_input(b->graph, b->node, 1)->dtype != x->dtype ||
        (b->node->op->kind == LEAT_OP_PRELU && b->node->op->until < 7)) { /* whose slopes were the channels' */
        return LEAT_AGAIN;
    }
    return add_step(b, run_arithmetic, 2);
}

static bool
is_whole(const struct leat_value *x, const struct leat_value *y)
{
    return x->rank == y->rank && leat_value_elements(x) == leat_value_elements(y);
}

/* In f32 and without channels that are not there: those have to stay 0. */
static enum leat_status
find_layout(struct cpu_builder *b, uint32_t value, uint32_t *ret_tensor)
{
    const enum leat_status status = cpu_best(b, value, ret_tensor);

    if (status == LEAT_OK) {
        const dnnl_memory_desc_t *md = &b->program->tensors[*ret_tensor].md;
        if (md->data_type != dnnl_f32 || memcmp(md->dims, md->padded_dims, (size_t)md->ndims * sizeof(md->dims[0])) != 0) {
            return cpu_plain(b, value, ret_tensor);
        }
    }
    return status;
}

/* What has all elements, beside as many or one, stays in the layout that it has. */
enum leat_status
cpu_lower_extreme(struct cpu_builder *b)
{
    const struct leat_value *y = leat_node_output(b->graph, b->node, 0);
    struct cpu_arg args[3] = {{0, 0}};
    struct cpu_step *step;

    if (b->node->input_count != 2 || y->dtype != LEAT_DTYPE_F32 || leat_value_elements(y) == 0) {
        return LEAT_AGAIN;
    }
    const uint32_t first = is_whole(leat_node_input(b->graph, b->node, 0), y) ? 0 : 1, second = 1 - first;
    const struct leat_value *other = leat_node_input(b->graph, b->node, second);
    if (!is_whole(leat_node_input(b->graph, b->node, first), y) || (!is_whole(other, y) && leat_value_elements(other) != 1)) {
        return add_step(b, run_arithmetic, 2);
    }
    enum leat_status status = find_layout(b, b->node->inputs[first], &args[first].tensor);
    if (status != LEAT_OK) {
        return status;
    }
    const dnnl_memory_desc_t md = b->program->tensors[args[first].tensor].md;
    const size_t bytes = dnnl_memory_desc_get_size(&md);
    status = is_whole(other, y) ? cpu_in_layout(b, b->node->inputs[second], &md, &args[second].tensor)
                                : cpu_plain(b, b->node->inputs[second], &args[second].tensor);
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &md, bytes, &args[2].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, run_flat, args, 3, &step);
    }
    if (status == LEAT_OK) {
        step->count = bytes / sizeof(float);
        cpu_set_output(b, 0, args[2].tensor);
    }
    return status;
}

enum leat_status
cpu_lower_where(struct cpu_builder *b)
{
    const size_t bytes = leat_dtype_bytes(leat_node_output(b->graph, b->node, 0)->dtype);
    return bytes == 4 || bytes == 8 ? add_step(b, run_where, 3) : LEAT_AGAIN;
}
