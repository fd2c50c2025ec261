/* SPDX-License-Identifier: Apache-2.0 */
/* Operators on single elements, and softmax, in whatever layout their operand has. */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/function.h"
#include "kernels/cpu/loops/half.h"
#include "kernels/cpu/loops/loops.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"

enum {
    SHARED_LEAST = 4096, /* elements for each member of a team: fewer are not worth waking it */
    CUBE_BLOCK = 32,     /* of a known size, for the compiler to make vectors of */
    TOTAL_BLOCK = 256    /* whose sums stay in the first-level cache */
};

/* False when oneDNN has no such function of one f32. */
static bool
function_of(const struct leat_graph *graph, const struct leat_node *node, struct cpu_function *ret)
{
    double exponent;

    *ret = (struct cpu_function){.algorithm = dnnl_alg_kind_undef};
    switch (node->op->kind) {
    case LEAT_OP_ABS:
        ret->algorithm = dnnl_eltwise_abs;
        return true;
    case LEAT_OP_CLIP:
        ret->algorithm = dnnl_eltwise_clip;
        return leat_clip_bounds(graph, node, &ret->alpha, &ret->beta) && ret->alpha <= ret->beta;
    case LEAT_OP_EXP:
        ret->algorithm = dnnl_eltwise_exp;
        return true;
    case LEAT_OP_GELU:
        ret->algorithm = leat_node_int(node, "tanh", 0) != 0 ? dnnl_eltwise_gelu_tanh : dnnl_eltwise_gelu_erf;
        return true;
    case LEAT_OP_HARD_SWISH:
        ret->algorithm = dnnl_eltwise_hardswish;
        return true;
    case LEAT_OP_LEAKY_RELU:
        *ret = (struct cpu_function){dnnl_eltwise_relu, leat_node_float(node, "alpha", 0.01f), 0};
        return ret->alpha != 0; /* which oneDNN takes for Relu: NaN and infinities tell them apart */
    case LEAT_OP_NEG:
        *ret = (struct cpu_function){dnnl_eltwise_linear, -1.0f, 0.0f};
        return true;
    case LEAT_OP_POW:
        *ret = (struct cpu_function){dnnl_eltwise_pow, 1.0f, 0.0f};
        if (!leat_value_scalar(leat_node_input(graph, node, 1), &exponent)) {
            return false;
        }
        ret->beta = (float)exponent;
        return leat_node_input(graph, node, 1)->rank <= leat_node_input(graph, node, 0)->rank;
    case LEAT_OP_RECIPROCAL:
        *ret = (struct cpu_function){dnnl_eltwise_pow, 1.0f, -1.0f};
        return true;
    case LEAT_OP_RELU:
        ret->algorithm = dnnl_eltwise_relu;
        return true;
    case LEAT_OP_SIGMOID:
        ret->algorithm = dnnl_eltwise_logistic;
        return true;
    case LEAT_OP_SQRT:
        ret->algorithm = dnnl_eltwise_sqrt;
        return true;
    case LEAT_OP_SWISH:
        *ret = (struct cpu_function){dnnl_eltwise_swish, 1.0f, 0.0f};
        return true;
    case LEAT_OP_TANH:
        ret->algorithm = dnnl_eltwise_tanh;
        return true;
    default:
        return false;
    }
}

static bool
is_f32(const struct leat_value *value)
{
    return value->dtype == LEAT_DTYPE_F32 && leat_value_elements(value) > 0;
}

/* ---- Activations --------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
bool
cpu_activates_apart(const struct cpu_builder *b)
{
    const struct leat_value *y = leat_node_output(b->graph, b->node, 0);
    const enum leat_activation activation = b->node->fused_activation;
    /* What pads channels in oneDNN's layouts must stay 0: sigmoids are 1/2 there, and tanh about 0. */
    return cpu_model_type(b->model) == dnnl_f32 && cpu_activation_runs_here(activation) &&
           ((activation != LEAT_ACTIVATION_SIGMOID && activation != LEAT_ACTIVATION_TANH) ||
            b->node->op->kind != LEAT_OP_CONV || y->dims[1] % 16 == 0);
}

static void
activate_part(const struct cpu_call *call, size_t begin, size_t end)
{
    cpu_activate(call->step->node->fused_activation, (float *)call->pointers[0] + begin, end - begin);
}

/* args: the tensor, of `count` floats. */
static enum leat_status
activate(const struct cpu_call *call)
{
    cpu_share(call, activate_part, call->step->count, SHARED_LEAST);
    return LEAT_OK;
}

enum leat_status
cpu_add_activation(struct cpu_builder *b, uint32_t tensor)
{
    const struct cpu_arg arg = {0, tensor};
    struct cpu_step *step;

    if (!cpu_activates_apart(b)) {
        return LEAT_OK;
    }
    const enum leat_status status = cpu_add_kernel(b, activate, &arg, 1, &step);
    if (status == LEAT_OK) {
        step->count = dnnl_memory_desc_get_size(&b->program->tensors[tensor].md) / sizeof(float);
    }
    return status;
}
#else
bool
cpu_activates_apart(const struct cpu_builder *b)
{
    (void)b;
    return false;
}

enum leat_status
cpu_add_activation(struct cpu_builder *b, uint32_t tensor)
{
    (void)b;
    (void)tensor;
    return LEAT_OK;
}
#endif

/* ---- Single elements ----------------------------------------------------------------------------------- */

/* A primitive with a result in layout `dst`. */
static enum leat_status
add_described(struct cpu_builder *b, dnnl_primitive_desc_t pd, struct cpu_arg *args, uint32_t dst_arg, uint32_t count,
              const dnnl_memory_desc_t *dst)
{
    const enum leat_status status = cpu_new_tensor(b, dst, dnnl_memory_desc_get_size(dst), &args[dst_arg].tensor);
    if (status != LEAT_OK) {
        (void)dnnl_primitive_desc_destroy(pd);
        return status;
    }
    return cpu_add_primitive(b, pd, args, count);
}

/* The same from its descriptor. */
static enum leat_status
add_and_set(struct cpu_builder *b, const_dnnl_op_desc_t op, struct cpu_arg *args, uint32_t dst_arg, uint32_t count,
            const dnnl_memory_desc_t *dst)
{
    dnnl_primitive_desc_t pd;

    const enum leat_status status = cpu_describe(b, op, false, &pd);
    return status == LEAT_OK ? add_described(b, pd, args, dst_arg, count, dst) : status;
}

#if defined(__x86_64__)
static void
function_part(const struct cpu_call *call, size_t begin, size_t end)
{
    cpu_compute(call->step->node, (const float *)call->pointers[0] + begin, (float *)call->pointers[1] + begin, end - begin);
}

/* args: the operand and the result, of `count` floats. */
static enum leat_status
compute_function(const struct cpu_call *call)
{
    cpu_share(call, function_part, call->step->count, SHARED_LEAST);
    return LEAT_OK;
}

/* In the layout that the operand has, unless that pads channels, of which functions are not 0, or is of another type. */
static enum leat_status
lower_own_function(struct cpu_builder *b)
{
    const size_t count = leat_value_elements(leat_node_output(b->graph, b->node, 0));
    struct cpu_arg args[2] = {{0, 0}, {0, 0}};
    struct cpu_step *step;

    if (!cpu_function_runs_here(b->node)) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_best(b, b->node->inputs[0], &args[0].tensor);
    if (status != LEAT_OK) {
        return status;
    }
    dnnl_memory_desc_t md = b->program->tensors[args[0].tensor].md;
    if (md.data_type != dnnl_f32 || dnnl_memory_desc_get_size(&md) != count * sizeof(float)) {
        status = cpu_plain(b, b->node->inputs[0], &args[0].tensor);
        md = b->program->tensors[args[0].tensor].md;
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &md, count * sizeof(float), &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, compute_function, args, 2, &step);
    }
    if (status == LEAT_OK) {
        step->count = count;
        cpu_set_output(b, 0, args[1].tensor);
    }
    return status;
}
#endif

/* ---- Other types ---------------------------------------------------------------------------------------- */

static void
widen_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const uint32_t dtype = leat_node_input(call->program->graph, call->step->node, 0)->dtype;
    cpu_widen(dtype, (const uint16_t *)call->pointers[0] + begin, (float *)call->pointers[1] + begin, end - begin);
}

static void
narrow_part(const struct cpu_call *call, size_t begin, size_t end)
{
    cpu_narrow((const float *)call->pointers[0] + begin, (uint16_t *)call->pointers[1] + begin, end - begin);
}

/* Whole numbers as floats; as in kernels/reference/element.h, any byte but 0 is true. */
#define AS_FLOATS(DTYPE, type, number)          \
    case LEAT_DTYPE_##DTYPE:                    \
        for (size_t i = begin; i < end; i++) {  \
            const type x = ((const type *)in)[i]; \
            out[i] = (float)(number);           \
        }                                       \
        return;

static void
float_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const void *in = call->pointers[0];
    float *out = call->pointers[1];

    switch (leat_node_input(call->program->graph, call->step->node, 0)->dtype) {
        AS_FLOATS(BOOL, uint8_t, x != 0)
        AS_FLOATS(I8, int8_t, x)
        AS_FLOATS(U8, uint8_t, x)
        AS_FLOATS(I32, int32_t, x)
        AS_FLOATS(I64, int64_t, x)
    default:
        LEAT_ASSERT(false && "cpu_lower_cast() lets no other type through");
    }
}

/* As in kernels/reference/element.h: towards 0, what does not fit is the nearest that does, NaN 0; whole numbers wrap. */
#define TRUNCATED(x, type, low, high) \
    ((x) != (x) ? 0 : (double)(x) <= (double)(low) ? (low) : (double)(x) >= (double)(high) ? (high) : (type)(x))
#define AS_WHOLE(FROM, from_type, TO, to_type, number)          \
    case LEAT_DTYPE_##FROM << 8 | LEAT_DTYPE_##TO:              \
        for (size_t i = begin; i < end; i++) {                  \
            const from_type x = ((const from_type *)in)[i];     \
            ((to_type *)out)[i] = (to_type)(number);            \
        }                                                       \
        return;

static void
whole_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct leat_graph *graph = call->program->graph;
    const uint32_t from = leat_node_input(graph, call->step->node, 0)->dtype, to = leat_node_output(graph, call->step->node, 0)->dtype;
    const void *in = call->pointers[0];
    void *out = call->pointers[1];

    switch (from << 8 | to) {
        AS_WHOLE(F32, float, I32, int32_t, TRUNCATED(x, int32_t, INT32_MIN, INT32_MAX))
        AS_WHOLE(F32, float, I64, int64_t, TRUNCATED(x, int64_t, INT64_MIN, INT64_MAX))
        AS_WHOLE(F32, float, BOOL, uint8_t, x != 0)
        AS_WHOLE(I32, int32_t, I64, int64_t, x)
        AS_WHOLE(I32, int32_t, BOOL, uint8_t, x != 0)
        AS_WHOLE(I64, int64_t, I32, uint32_t, x)
        AS_WHOLE(I64, int64_t, BOOL, uint8_t, x != 0)
        AS_WHOLE(BOOL, uint8_t, I32, int32_t, x != 0)
        AS_WHOLE(BOOL, uint8_t, I64, int64_t, x != 0)
    default:
        LEAT_ASSERT(false && "cpu_lower_cast() lets no other pair through");
    }
}

/* args: the operand and the result, of `count` elements. */
static enum leat_status
widen(const struct cpu_call *call)
{
    cpu_share(call, widen_part, call->step->count, SHARED_LEAST);
    return LEAT_OK;
}

static enum leat_status
narrow(const struct cpu_call *call)
{
    cpu_share(call, narrow_part, call->step->count, SHARED_LEAST);
    return LEAT_OK;
}

static enum leat_status
make_floats(const struct cpu_call *call)
{
    cpu_share(call, float_part, call->step->count, SHARED_LEAST);
    return LEAT_OK;
}

static enum leat_status
make_whole(const struct cpu_call *call)
{
    cpu_share(call, whole_part, call->step->count, SHARED_LEAST);
    return LEAT_OK;
}

typedef enum leat_status cast_function(const struct cpu_call *call);

/* NULL: that is left to the reference function. */
static cast_function *
cast_of(uint32_t from, uint32_t to)
{
    const uint32_t whole = 1u << LEAT_DTYPE_BOOL | 1u << LEAT_DTYPE_I8 | 1u << LEAT_DTYPE_U8 | 1u << LEAT_DTYPE_I32 |
                           1u << LEAT_DTYPE_I64;

    const uint32_t between = 1u << LEAT_DTYPE_BOOL | 1u << LEAT_DTYPE_I32 | 1u << LEAT_DTYPE_I64;

    if ((between >> to & 1) != 0 && from != to) {
        return ((between | 1u << LEAT_DTYPE_F32) >> from & 1) != 0 ? make_whole : NULL;
    }
    if (to == LEAT_DTYPE_F16) {
        return from == LEAT_DTYPE_F32 && cpu_narrow_runs_here() ? narrow : NULL;
    }
    return to != LEAT_DTYPE_F32                                  ? NULL
           : from == LEAT_DTYPE_F16 || from == LEAT_DTYPE_BF16 ? widen
           : (whole >> from & 1) != 0                            ? make_floats
                                                                 : NULL;
}

/* From one plain tensor to another. */
static enum leat_status
add_plain(struct cpu_builder *b, cast_function *kernel)
{
    struct cpu_arg args[2] = {{0, 0}, {0, 0}};
    struct cpu_step *step;

    enum leat_status status = cpu_plain(b, b->node->inputs[0], &args[0].tensor);
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, kernel, args, 2, &step);
    }
    if (status == LEAT_OK) {
        step->count = leat_value_elements(leat_node_output(b->graph, b->node, 0));
    }
    return status;
}

enum leat_status
cpu_lower_cast(struct cpu_builder *b)
{
    const uint32_t from = leat_node_input(b->graph, b->node, 0)->dtype, to = leat_node_output(b->graph, b->node, 0)->dtype;
    cast_function *kernel = cast_of(from, to);

    return kernel != NULL ? add_plain(b, kernel) : LEAT_AGAIN;
}

/* ---- Truths --------------------------------------------------------------------------------------------- */

static void
test_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct leat_node *node = call->step->node;
    const size_t bytes = leat_dtype_bytes(leat_node_input(call->program->graph, node, 0)->dtype);
    cpu_loop_test(node, (const unsigned char *)call->pointers[0] + begin * bytes, (uint8_t *)call->pointers[1] + begin, end - begin);
}

static enum leat_status
test(const struct cpu_call *call)
{
    cpu_share(call, test_part, call->step->count, SHARED_LEAST);
    return LEAT_OK;
}

enum leat_status
cpu_lower_test(struct cpu_builder *b)
{
    const uint32_t dtype = leat_node_input(b->graph, b->node, 0)->dtype;
    return dtype == LEAT_DTYPE_F32 || dtype == LEAT_DTYPE_BOOL ? add_plain(b, test) : LEAT_AGAIN;
}

enum leat_status
cpu_lower_unary(struct cpu_builder *b)
{
    struct cpu_arg args[2] = {{DNNL_ARG_SRC, 0}, {DNNL_ARG_DST, 0}};
    struct cpu_function function;
    dnnl_eltwise_desc_t eltwise;

    if (!is_f32(leat_node_output(b->graph, b->node, 0))) {
        return LEAT_AGAIN;
    }
    const bool known = function_of(b->graph, b->node, &function);
#if defined(__x86_64__)
    const enum leat_status own = !known || cpu_model_type(b->model) == dnnl_f32 ? lower_own_function(b) : LEAT_AGAIN;
    if (own != LEAT_AGAIN) {
        return own;
    }
#endif
    if (!known) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_best(b, b->node->inputs[0], &args[0].tensor);
    if (status != LEAT_OK) {
        return status;
    }
    const dnnl_memory_desc_t md = b->program->tensors[args[0].tensor].md;
    status = CPU_TRY(b, "elementwise function",
                     dnnl_eltwise_forward_desc_init(&eltwise, dnnl_forward_inference, function.algorithm, &md,
                                                    function.alpha, function.beta));
    if (status == LEAT_OK) {
        status = add_and_set(b, &eltwise, args, 1, 2, &md);
    }
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, args[1].tensor);
    }
    return status;
}

static bool
same_dims(const struct leat_value *a, const struct leat_value *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0;
}

static void
cube_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const float *x = call->pointers[0];
    float *y = call->pointers[1], block[CUBE_BLOCK];
    size_t i = begin;

    for (; i + CUBE_BLOCK <= end; i += CUBE_BLOCK) {
        for (size_t l = 0; l < CUBE_BLOCK; l++) {
            block[l] = x[i + l] * x[i + l] * x[i + l];
        }
        memcpy(y + i, block, sizeof(block));
    }
    for (; i < end; i++) {
        y[i] = x[i] * x[i] * x[i];
    }
}

static enum leat_status
cube(const struct cpu_call *call)
{
    cpu_share(call, cube_part, call->step->count, SHARED_LEAST);
    return LEAT_OK;
}

/* oneDNN, which has a square and a root, asks the C library for a cube, which GELU written out has. */
enum leat_status
cpu_lower_power(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *y = leat_node_output(b->graph, b->node, 0);
    double exponent;

    if (is_f32(y) && same_dims(x, y) && leat_value_scalar(leat_node_input(b->graph, b->node, 1), &exponent) && exponent == 3) {
        return add_plain(b, cube);
    }
    const enum leat_status status = cpu_lower_unary(b);
    return status == LEAT_AGAIN ? cpu_lower_broadcast(b) : status;
}

/* The second operand with leading dims of 1, plain. */
static enum leat_status
broadcast_operand(struct cpu_builder *b, uint32_t value, uint32_t rank, uint32_t *ret_tensor)
{
    const struct leat_value *v = &b->graph->values[value];
    int64_t dims[LEAT_RANK_MAX];
    uint32_t plain;

    for (uint32_t d = 0; d < rank; d++) {
        dims[d] = d < rank - v->rank ? 1 : v->dims[d - (rank - v->rank)];
    }
    const dnnl_memory_desc_t md = cpu_plain_md(dims, rank);
    const enum leat_status status = cpu_plain(b, value, &plain);
    return status == LEAT_OK ? cpu_view(b, plain, &md, ret_tensor) : status;
}

/* True when the operand, spread over `y`, varies along the channels (axis 1) at most: any layout will do. */
static bool
varies_by_channel(const struct leat_value *operand, const struct leat_value *y)
{
    for (uint32_t d = 0; d < operand->rank; d++) {
        if (operand->dims[d] != 1 && y->rank - operand->rank + d != 1) {
            return false;
        }
    }
    return true;
}

enum leat_status
cpu_lower_binary(struct cpu_builder *b)
{
    const enum leat_op_kind kind = b->node->op->kind;
    const dnnl_alg_kind_t algorithm = kind == LEAT_OP_ADD   ? dnnl_binary_add
                                      : kind == LEAT_OP_SUB ? dnnl_binary_sub
                                      : kind == LEAT_OP_MUL ? dnnl_binary_mul
                                                            : dnnl_binary_div;
    const struct leat_value *y = leat_node_output(b->graph, b->node, 0);
    uint32_t x0 = b->node->inputs[0], x1 = b->node->inputs[1];
    struct cpu_arg args[3] = {{DNNL_ARG_SRC_0, 0}, {DNNL_ARG_SRC_1, 0}, {DNNL_ARG_DST, 0}};
    dnnl_binary_desc_t binary;
    dnnl_primitive_desc_t pd;

    if (!is_f32(y) || y->rank == 0) {
        return LEAT_AGAIN;
    }
    if (!same_dims(&b->graph->values[x0], y) && (kind == LEAT_OP_ADD || kind == LEAT_OP_MUL)) {
        const uint32_t swapped = x0;
        x0 = x1;
        x1 = swapped;
    }
    const struct leat_value *first = &b->graph->values[x0], *second = &b->graph->values[x1];
    if (!same_dims(first, y)) {
        return cpu_lower_broadcast(b); /* oneDNN spreads the second operand only */
    }
#if defined(__x86_64__)
    const enum leat_status scaled = kind == LEAT_OP_MUL ? cpu_lower_scale(b, x0, x1) : LEAT_AGAIN;
    if (scaled != LEAT_AGAIN) {
        return scaled;
    }
#endif
    const bool whole = same_dims(second, y);
    enum leat_status status = whole || varies_by_channel(second, y) ? cpu_best(b, x0, &args[0].tensor)
                                                                    : cpu_plain(b, x0, &args[0].tensor);
    if (status != LEAT_OK) {
        return status;
    }
    const dnnl_memory_desc_t md = b->program->tensors[args[0].tensor].md;
    status = whole ? cpu_in_layout(b, x1, &md, &args[1].tensor) : broadcast_operand(b, x1, y->rank, &args[1].tensor);
    if (status != LEAT_OK) {
        return status;
    }
    const dnnl_memory_desc_t md1 = b->program->tensors[args[1].tensor].md;
    status = CPU_TRY(b, "elementwise operation", dnnl_binary_desc_init(&binary, algorithm, &md, &md1, &md));
    if (status == LEAT_OK) {
        status = cpu_describe(b, &binary, false, &pd);
    }
    if (status == LEAT_OK && cpu_is_plain_loops(pd)) {
        (void)dnnl_primitive_desc_destroy(pd);
        return cpu_lower_broadcast(b);
    }
    if (status == LEAT_OK) {
        status = add_described(b, pd, args, 2, 3, &md);
    }
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, args[2].tensor);
    }
    return status;
}

/* args: the operands, then the output. In double, as the reference functions. */
static void
total_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const uint32_t operands = call->step->arg_count - 1;
    const bool mean = call->step->node->op->kind == LEAT_OP_MEAN;
    const double divisor = mean ? (double)operands : 1;
    float *out = call->pointers[operands];

    for (size_t first = begin; first < end; first += TOTAL_BLOCK) {
        const size_t count = end - first < TOTAL_BLOCK ? end - first : TOTAL_BLOCK;
        double sums[TOTAL_BLOCK] = {0};
        for (uint32_t k = 0; k < operands; k++) {
            const float *in = (const float *)call->pointers[k] + first;
            for (size_t i = 0; i < count; i++) {
                sums[i] += (double)in[i];
            }
        }
        for (size_t i = 0; i < count; i++) {
            out[first + i] = (float)(sums[i] / divisor);
        }
    }
}

static enum leat_status
run_total(const struct cpu_call *call)
{
    cpu_share(call, total_part, call->step->count, SHARED_LEAST / call->step->arg_count + 1);
    return LEAT_OK;
}

enum leat_status
cpu_lower_total(struct cpu_builder *b)
{
    const struct leat_value *y = leat_node_output(b->graph, b->node, 0);
    const uint32_t operands = b->node->input_count;
    struct cpu_step *step;

    for (uint32_t k = 0; k < operands; k++) {
        if (!is_f32(y) || !same_dims(leat_node_input(b->graph, b->node, k), y)) {
            return LEAT_AGAIN;
        }
    }
    struct cpu_arg *args = calloc((size_t)operands + 1, sizeof(*args));
    if (args == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    enum leat_status status = LEAT_OK;
    for (uint32_t k = 0; k < operands && status == LEAT_OK; k++) {
        status = cpu_plain(b, b->node->inputs[k], &args[k].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[operands].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, run_total, args, operands + 1, &step);
    }
    if (status == LEAT_OK) {
        step->count = leat_value_elements(y);
    }
    free(args);
    return status;
}

/* The result under the dims of the value. */
static enum leat_status
set_viewed_output(struct cpu_builder *b, uint32_t tensor)
{
    const dnnl_memory_desc_t md = cpu_value_md(leat_node_output(b->graph, b->node, 0));
    uint32_t output;
    const enum leat_status status = cpu_view(b, tensor, &md, &output);
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, output);
    }
    return status;
}

enum leat_status
cpu_lower_softmax(struct cpu_builder *b)
{
    struct cpu_arg args[2] = {{DNNL_ARG_SRC, 0}, {DNNL_ARG_DST, 0}};
    struct leat_softmax_extent extent;
    const bool logarithm = b->node->op->kind == LEAT_OP_LOG_SOFTMAX;
    dnnl_softmax_desc_t softmax;
    uint32_t plain;

    if (!is_f32(leat_node_output(b->graph, b->node, 0)) || (logarithm && cpu_vector_lanes() == 0)) {
        return LEAT_AGAIN;
    }
    leat_softmax_extent(b->graph, b->node, &extent);
    enum leat_status status = cpu_plain(b, b->node->inputs[0], &plain);
    if (status == LEAT_OK && (extent.inner > 1 || logarithm) && cpu_vector_lanes() > 0) {
        args[0].tensor = plain;
        status = cpu_plain_output(b, 0, &args[1].tensor);
        return status == LEAT_OK ? cpu_add_softmax_columns(b, args, extent.outer, extent.axis, extent.inner) : status;
    }
    const int64_t dims[3] = {(int64_t)extent.outer, (int64_t)extent.axis, (int64_t)extent.inner};
    const dnnl_memory_desc_t md = cpu_plain_md(dims, extent.inner == 1 ? 2 : 3);
    if (status == LEAT_OK) {
        status = cpu_view(b, plain, &md, &args[0].tensor);
    }
    if (status == LEAT_OK) {
        status = CPU_TRY(b, "softmax", dnnl_softmax_forward_desc_init(&softmax, dnnl_forward_inference, &md, 1));
    }
    if (status == LEAT_OK) {
        status = add_and_set(b, &softmax, args, 1, 2, &md);
    }
    return status == LEAT_OK ? set_viewed_output(b, args[1].tensor) : status;
}

/* Scale and shift are vectors along the last axis, and nobody reads mean and deviation. */
enum leat_status
cpu_lower_layer_norm(struct cpu_builder *b)
{
    const struct leat_node *node = b->node;
    const struct leat_value *x = leat_node_input(b->graph, node, 0);
    struct cpu_arg args[4] = {{DNNL_ARG_SRC, 0}, {DNNL_ARG_SCALE, 0}, {DNNL_ARG_SHIFT, 0}, {DNNL_ARG_DST, 0}};
    const bool shifted = leat_node_input(b->graph, node, 2) != NULL;
    const unsigned flags = dnnl_use_scale | (shifted ? dnnl_use_shift : 0);
    dnnl_layer_normalization_desc_t norm;
    uint32_t plain;

    if (!is_f32(x) || x->rank == 0 || leat_node_axis(node, -1, x->rank) + 1 != x->rank || node->input_count > 3) {
        return LEAT_AGAIN;
    }
    for (uint32_t o = 1; o < node->output_count; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE) {
            return LEAT_AGAIN;
        }
    }
    const int64_t width = x->dims[x->rank - 1], dims[2] = {(int64_t)leat_value_elements(x) / width, width};
    for (uint32_t i = 1; i < 2 + (uint32_t)shifted; i++) {
        const struct leat_value *affine = leat_node_input(b->graph, node, i);
        if (affine->rank != 1 || affine->dims[0] != width) {
            return LEAT_AGAIN;
        }
    }
    const dnnl_memory_desc_t md = cpu_plain_md(dims, 2);
    enum leat_status status = cpu_plain(b, node->inputs[0], &plain);
    if (status == LEAT_OK) {
        status = cpu_view(b, plain, &md, &args[0].tensor);
    }
    for (uint32_t i = 1; i < 2 + (uint32_t)shifted && status == LEAT_OK; i++) {
        status = cpu_plain(b, node->inputs[i], &args[i].tensor);
    }
    const uint32_t dst = shifted ? 3 : 2;
    args[dst].id = DNNL_ARG_DST;
    if (status == LEAT_OK && cpu_layer_norm_runs_here()) {
        status = cpu_new_tensor(b, &md, dnnl_memory_desc_get_size(&md), &args[dst].tensor);
        status = status == LEAT_OK ? cpu_add_layer_norm(b, args, dst + 1, (size_t)dims[0], (size_t)width) : status;
        return status == LEAT_OK ? set_viewed_output(b, args[dst].tensor) : status;
    }
    if (status == LEAT_OK) {
        status = CPU_TRY(b, "layer normalisation",
                         dnnl_layer_normalization_forward_desc_init(&norm, dnnl_forward_inference, &md, NULL,
                                                                    leat_node_float(node, "epsilon", 1e-5f), flags));
    }
    if (status == LEAT_OK) {
        status = add_and_set(b, &norm, args, dst, dst + 1, &md);
    }
    return status == LEAT_OK ? set_viewed_output(b, args[dst].tensor) : status;
}
