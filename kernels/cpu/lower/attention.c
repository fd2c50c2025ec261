/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention, heads where they lie in their tensors: on a kernel of our own with AVX-512 or AVX2, else as two matrix products of
 * oneDNN's and the softmax between them.
 */
#include <math.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/attention.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"
#include "kernels/team.h"

enum { QUERIES, KEYS, VALUES, MASK, ARGS }; /* operands, in the order of the node */

static struct cpu_attention
attention_of(const struct leat_graph *graph, const struct leat_node *node)
{
    const int64_t *q = leat_node_input(graph, node, QUERIES)->dims, *k = leat_node_input(graph, node, KEYS)->dims;
    const struct leat_value *mask = leat_node_input(graph, node, MASK);
    const int64_t heads = leat_node_int(node, "heads", 1);
    struct cpu_attention a = {
        .items = q[0], .heads = heads, .rows = q[1], .keys = k[1], .depth = q[2] / heads,
        .width = leat_node_input(graph, node, VALUES)->dims[2] / heads, .scale = leat_node_float(node, "scale", 1.0f)};

    int64_t stride = a.keys;
    for (uint32_t d = mask != NULL ? mask->rank - 1 : 0; d-- > 0;) { /* axis 3 has the keys */
        const uint32_t axis = 4 - mask->rank + d;
        a.mask_strides[axis] = mask->dims[d] != 1 ? stride : 0;
        stride *= mask->dims[d];
    }
    return a;
}

/* ---- On our own kernel -------------------------------------------------------------------------------- */

#if defined(__x86_64__)
/* args: result, scratch, then the operands. */
enum { RESULT, SCRATCH, OPERANDS };

struct work {
    const struct cpu_call *call;
    struct cpu_attention attention;
};

static void
attend_member(void *context, uint32_t member, uint32_t size)
{
    const struct work *work = context;
    const struct cpu_call *call = work->call;
    const uint32_t members = call->program->threads;
    void *const *p = call->pointers, *const *operands = p + OPERANDS;

    (void)size;
    if (member < members) {
        cpu_attention_run(&work->attention, operands[QUERIES], operands[KEYS], operands[VALUES],
                          call->step->arg_count > OPERANDS + MASK ? operands[MASK] : NULL, p[RESULT],
                          (unsigned char *)p[SCRATCH] + member * cpu_attention_scratch_bytes(&work->attention), member, members);
    }
}

static enum leat_status
attend(const struct cpu_call *call)
{
    struct work work = {call, attention_of(call->program->graph, call->step->node)};

    if (call->program->threads > 1) {
        leat_team_run(call->team, attend_member, &work);
    } else {
        attend_member(&work, 0, 1);
    }
    return LEAT_OK;
}

static enum leat_status
add_own(struct cpu_builder *b, const struct cpu_attention *a)
{
    const dnnl_memory_desc_t none = {.ndims = 0};
    const uint32_t operands = leat_node_input(b->graph, b->node, MASK) != NULL ? ARGS : MASK;
    struct cpu_arg args[OPERANDS + ARGS] = {{0, 0}};
    struct cpu_step *step;

    enum leat_status status = LEAT_OK;
    for (uint32_t i = 0; i < operands && status == LEAT_OK; i++) {
        status = cpu_plain(b, b->node->inputs[i], &args[OPERANDS + i].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[RESULT].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &none, b->program->threads * cpu_attention_scratch_bytes(a), &args[SCRATCH].tensor);
    }
    return status == LEAT_OK ? cpu_add_kernel(b, attend, args, OPERANDS + operands, &step) : status;
}
#endif

/* ---- On oneDNN's products ------------------------------------------------------------------------------- */

static void
softmax_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_attention a = attention_of(call->program->graph, call->step->node);
    const float *mask = call->step->arg_count > 1 ? call->pointers[1] : NULL;

    for (size_t n = begin; n < end; n++) {
        const int64_t row = (int64_t)n % a.rows, head = (int64_t)n / a.rows % a.heads, item = (int64_t)n / a.rows / a.heads;
        const int64_t masked = item * a.mask_strides[0] + head * a.mask_strides[1] + row * a.mask_strides[2];
        const float *added = mask != NULL ? mask + masked : NULL;
        float *x = (float *)call->pointers[0] + n * (size_t)a.keys, most = -INFINITY, sum = 0;
        for (int64_t j = 0; j < a.keys; j++) {
            x[j] = x[j] * a.scale + (added != NULL ? added[j] : 0);
            most = x[j] > most ? x[j] : most;
        }
        for (int64_t j = 0; j < a.keys; j++) {
            x[j] = expf(x[j] - most);
            sum += x[j];
        }
        for (int64_t j = 0; j < a.keys; j++) {
            x[j] /= sum;
        }
    }
}

/* args: scores, mask. `count` rows of them. */
static enum leat_status
softmax(const struct cpu_call *call)
{
    cpu_share(call, softmax_part, call->step->count, 1);
    return LEAT_OK;
}

/* [items][heads][rows][columns] where the heads of a row lie side by side; a matrix has its rows across with `across`. */
static dnnl_memory_desc_t
heads_md(const struct cpu_attention *a, int64_t rows, int64_t columns, bool across)
{
    const int64_t dims[4] = {a->items, a->heads, across ? columns : rows, across ? rows : columns};
    const int64_t step = a->heads * columns, strides[4] = {rows * step, columns, across ? 1 : step, across ? step : 1};
    return cpu_strided_md(dims, strides, 4);
}

/* dst = src weights, of these tensors as they are described. */
static enum leat_status
add_product(struct cpu_builder *b, uint32_t src, const dnnl_memory_desc_t *src_md, uint32_t weights,
            const dnnl_memory_desc_t *weights_md, uint32_t dst, const dnnl_memory_desc_t *dst_md)
{
    struct cpu_arg args[3] = {{DNNL_ARG_SRC, 0}, {DNNL_ARG_WEIGHTS, 0}, {DNNL_ARG_DST, 0}};
    dnnl_matmul_desc_t product;
    dnnl_primitive_desc_t pd;

    enum leat_status status = cpu_view(b, src, src_md, &args[0].tensor);
    if (status == LEAT_OK) {
        status = cpu_view(b, weights, weights_md, &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_view(b, dst, dst_md, &args[2].tensor);
    }
    if (status == LEAT_OK) {
        status = CPU_TRY(b, "matrix product", dnnl_matmul_desc_init(&product, src_md, weights_md, NULL, dst_md));
    }
    if (status == LEAT_OK) {
        status = cpu_describe(b, &product, false, &pd);
    }
    return status == LEAT_OK ? cpu_add_primitive(b, pd, args, 3) : status;
}

static enum leat_status
add_products(struct cpu_builder *b, const struct cpu_attention *a)
{
    const int64_t dims[4] = {a->items, a->heads, a->rows, a->keys};
    const dnnl_memory_desc_t scores_md = cpu_plain_md(dims, 4), q_md = heads_md(a, a->rows, a->depth, false);
    const dnnl_memory_desc_t k_md = heads_md(a, a->keys, a->depth, true), v_md = heads_md(a, a->keys, a->width, false);
    const dnnl_memory_desc_t y_md = heads_md(a, a->rows, a->width, false);
    const dnnl_memory_desc_t value_md = cpu_value_md(leat_node_output(b->graph, b->node, 0));
    const bool masked = leat_node_input(b->graph, b->node, MASK) != NULL;
    uint32_t operands[ARGS], scores, result;
    struct cpu_step *step;

    enum leat_status status = LEAT_OK;
    for (uint32_t i = 0; i < (masked ? ARGS : MASK) && status == LEAT_OK; i++) {
        status = cpu_plain(b, b->node->inputs[i], &operands[i]);
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &scores_md, dnnl_memory_desc_get_size(&scores_md), &scores);
    }
    if (status == LEAT_OK) {
        status = add_product(b, operands[QUERIES], &q_md, operands[KEYS], &k_md, scores, &scores_md);
    }
    if (status == LEAT_OK) {
        const struct cpu_arg args[2] = {{0, scores}, {0, masked ? operands[MASK] : 0}};
        status = cpu_add_kernel(b, softmax, args, masked ? 2 : 1, &step);
    }
    if (status == LEAT_OK) {
        step->count = (size_t)(a->items * a->heads * a->rows);
        status = cpu_new_tensor(b, &value_md, dnnl_memory_desc_get_size(&value_md), &result);
    }
    if (status == LEAT_OK) {
        status = add_product(b, scores, &scores_md, operands[VALUES], &v_md, result, &y_md);
    }
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, result);
    }
    return status;
}

enum leat_status
cpu_lower_attention(struct cpu_builder *b)
{
    const struct cpu_attention a = attention_of(b->graph, b->node);

    if (a.items < 1 || a.rows < 1 || a.keys < 1) {
        return LEAT_AGAIN;
    }
#if defined(__x86_64__)
    if (cpu_vector_lanes() > 0) {
        return add_own(b, &a);
    }
#endif
    return add_products(b, &a);
}
