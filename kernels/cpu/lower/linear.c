/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gemm and MatMul. A constant second operand becomes the weights of an inner product, packed once in the
 * layout that oneDNN prefers; two computed operands become a (batched) matrix product.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"

enum { NARROWED_LEAST = 1 << 16 }; /* weights */

/* [rows][columns] over memory with these strides. */
static dnnl_memory_desc_t
matrix_md(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride)
{
    const int64_t dims[2] = {rows, columns}, strides[2] = {row_stride, column_stride};
    return cpu_strided_md(dims, strides, 2);
}

/* The same in another type: not instead of what others read. */
static enum leat_status
narrowed(struct cpu_builder *b, const dnnl_memory_desc_t *md, uint32_t *tensor)
{
    const uint32_t from = *tensor;
    const enum leat_status status = cpu_new_tensor(b, md, dnnl_memory_desc_get_size(md), tensor);
    return status == LEAT_OK ? cpu_add_reorder(b, from, *tensor) : status;
}

/* What an operation sees of source and result. */
struct views {
    dnnl_memory_desc_t source, result;
};

static enum leat_status
describe_quantised(struct cpu_builder *b, const void *context, dnnl_data_type_t source, const dnnl_memory_desc_t *weights,
                   const dnnl_memory_desc_t *bias, dnnl_data_type_t result, void *ret_op)
{
    const struct views *views = context;
    dnnl_memory_desc_t src = views->source, dst = views->result;

    src.data_type = source;
    dst.data_type = result;
    return CPU_TRY(b, "inner product",
                   dnnl_inner_product_forward_desc_init(ret_op, dnnl_forward_inference, &src, weights, bias, &dst));
}

static enum leat_status
lower_quantised(struct cpu_builder *b, const struct cpu_product *p, const dnnl_memory_desc_t *weights_as)
{
    const struct cpu_constant *bias = p->has_bias ? b->program->tensors[p->bias].constant : NULL;
    const struct views views = {matrix_md(p->rows, p->inner, p->inner, 1), matrix_md(p->rows, p->columns, p->columns, 1)};
    const struct cpu_quantised q = {
        .channels = p->columns,
        .weights_mask = 1,
        .weights_as = *weights_as,
        .bias = bias != NULL ? bias->data : NULL,
        .describe = describe_quantised,
        .context = &views,
        .source_as = views.source,
        .result_as = views.result,
    };

    return b->quantised[b->node - b->graph->nodes] && (bias != NULL || !p->has_bias) ? cpu_lower_quantised(b, &q) : LEAT_AGAIN;
}

enum leat_status
cpu_lower_qlinear_matmul(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *w = leat_node_input(b->graph, b->node, 3);
    const bool transposed = leat_node_int(b->node, "transB", 0) != 0;

    if (!cpu_multiplies_whole(b->graph, b->node) || leat_value_elements(x) == 0 || leat_value_elements(w) == 0) {
        return LEAT_AGAIN;
    }
#if defined(__x86_64__)
    if (cpu_qconv_suits(b->graph, b->node, w)) {
        return cpu_lower_qconv(b);
    }
#endif
    const int64_t inner = w->dims[transposed ? 1 : 0], columns = w->dims[transposed ? 0 : 1];
    const int64_t rows = (int64_t)leat_value_elements(x) / inner;
    const struct views views = {matrix_md(rows, inner, inner, 1), matrix_md(rows, columns, columns, 1)};
    dnnl_memory_desc_t weights_as = matrix_md(columns, inner, transposed ? inner : 1, transposed ? 1 : columns);
    weights_as.data_type = dnnl_s8; /* as dense as it was */
    return cpu_lower_qlinear(b, &(struct cpu_qlinear){.channels = columns,
                                                      .weights_as = weights_as,
                                                      .describe = describe_quantised,
                                                      .context = &views,
                                                      .source_as = views.source,
                                                      .result_as = views.result});
}

/* Of a product in floats: beside numbers of 8 bits those of bf16 are exact, and many weights take half the time. */
static dnnl_data_type_t
float_type(const struct cpu_builder *b, const struct cpu_product *p)
{
    const uint32_t bf16 = dnnl_cpu_isa_avx512_core_bf16;
    const bool narrow = cpu_model_is_quantised(b->model) && p->inner * p->columns >= NARROWED_LEAST;

    return narrow && (dnnl_get_effective_cpu_isa() & bf16) == bf16 ? dnnl_bf16 : cpu_model_type(b->model);
}

/* Constant weights: x is read plain as [rows][inner], y made plain. */
static enum leat_status
add_inner_product(struct cpu_builder *b, const struct cpu_product *p)
{
    const struct leat_node *node = b->node;
    const dnnl_memory_desc_t x = matrix_md(p->rows, p->inner, p->inner, 1);
    const dnnl_memory_desc_t dst = matrix_md(p->rows, p->columns, p->columns, 1);
    const dnnl_data_type_t type = float_type(b, p);
    const int64_t w_dims[2] = {p->columns, p->inner};
    const dnnl_memory_desc_t seen_as = p->transposed ? matrix_md(p->columns, p->inner, p->inner, 1)
                                                     : matrix_md(p->columns, p->inner, 1, p->columns);
    const dnnl_memory_desc_t any_w = cpu_any_md(w_dims, 2, type), bias_md = cpu_plain_md(&p->columns, 1);
    struct cpu_arg args[4] = {{DNNL_ARG_SRC, 0}, {DNNL_ARG_WEIGHTS, 0}, {DNNL_ARG_DST, 0}, {DNNL_ARG_BIAS, p->bias}};
    dnnl_memory_desc_t src = x;
    dnnl_inner_product_desc_t product;
    dnnl_primitive_desc_t pd;
    uint32_t plain, output;

    enum leat_status status = lower_quantised(b, p, &seen_as);
#if defined(__x86_64__)
    if (status == LEAT_AGAIN && type == dnnl_f32) {
        status = cpu_lower_own_product(b, p);
    }
    if (status == LEAT_AGAIN && type == dnnl_f32) {
        status = cpu_lower_column(b, p);
    }
#endif
    if (status != LEAT_AGAIN) {
        return status;
    }
    src.data_type = type; /* dense as it was */
    status = CPU_TRY(b, "inner product",
                                      dnnl_inner_product_forward_desc_init(&product, dnnl_forward_inference, &src, &any_w,
                                                                           p->has_bias ? &bias_md : NULL, &dst));
    if (status == LEAT_OK) {
        status = cpu_describe(b, &product, true, &pd);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const dnnl_memory_desc_t weights = cpu_query_md(pd, dnnl_query_weights_md);
    status = cpu_plain(b, node->inputs[0], &plain);
    if (status == LEAT_OK) {
        status = cpu_view(b, plain, &x, &args[0].tensor);
    }
    if (status == LEAT_OK && type != dnnl_f32) {
        status = narrowed(b, &src, &args[0].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_constant_as(b, node->inputs[1], &seen_as, &weights, &args[1].tensor);
    }
    /* The same memory with the dims of the value: MatMul's first operand may have more of them. */
    const dnnl_memory_desc_t value_md = cpu_value_md(leat_node_output(b->graph, node, 0));
    if (status == LEAT_OK) {
        status = cpu_destination(b, &value_md, &output);
    }
    if (status == LEAT_OK) {
        status = cpu_view(b, output, &dst, &args[2].tensor);
    }
    if (status != LEAT_OK) {
        (void)dnnl_primitive_desc_destroy(pd);
        return status;
    }
    status = cpu_add_primitive(b, pd, args, p->has_bias ? 4 : 3);
    if (status == LEAT_OK) {
        status = cpu_add_activation(b, args[2].tensor);
    }
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, output);
    }
    return status;
}

static enum leat_status
add_matmul(struct cpu_builder *b, const dnnl_memory_desc_t *src, const dnnl_memory_desc_t *weights,
           const dnnl_memory_desc_t *bias, uint32_t bias_tensor, const dnnl_memory_desc_t *dst, bool fused)
{
    const struct leat_node *node = b->node;
    struct cpu_arg args[4] = {{DNNL_ARG_SRC, 0}, {DNNL_ARG_WEIGHTS, 0}, {DNNL_ARG_DST, 0}, {DNNL_ARG_BIAS, bias_tensor}};
    const dnnl_memory_desc_t *mds[2] = {src, weights};
    dnnl_primitive_desc_t pd;
    dnnl_matmul_desc_t product;
    uint32_t plain, output;

    enum leat_status status =
        CPU_TRY(b, "matrix product", dnnl_matmul_desc_init(&product, src, weights, bias, dst));
    if (status == LEAT_OK) {
        status = cpu_describe(b, &product, fused, &pd);
    }
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < 2 && status == LEAT_OK; i++) {
        status = cpu_plain(b, node->inputs[i], &plain);
        if (status == LEAT_OK) {
            status = cpu_view(b, plain, mds[i], &args[i].tensor);
        }
    }
    if (status == LEAT_OK) {
        status = cpu_destination(b, dst, &args[2].tensor);
    }
    if (status != LEAT_OK) {
        (void)dnnl_primitive_desc_destroy(pd);
        return status;
    }
    status = cpu_add_primitive(b, pd, args, bias != NULL ? 4 : 3);
    if (status == LEAT_OK) {
        status = cpu_add_activation(b, args[2].tensor);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const dnnl_memory_desc_t value_md = cpu_value_md(leat_node_output(b->graph, node, 0));
    status = cpu_view(b, args[2].tensor, &value_md, &output);
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, output);
    }
    return status;
}

static bool
empty(const struct leat_value *value)
{
    return leat_value_elements(value) == 0;
}

/* beta * C as a vector of `columns` elements; false when C is computed or varies between rows. */
static bool
bias_vector(const struct leat_value *c, float beta, int64_t columns, float *vector)
{
    const size_t count = leat_value_elements(c);
    const bool by_column = count == (size_t)columns && c->rank >= 1 && c->dims[c->rank - 1] == columns;

    if (c->data == NULL || (count != 1 && !by_column)) {
        return false;
    }
    LEAT_ASSERT(leat_value_in_place(c));
    for (int64_t i = 0; i < columns; i++) {
        vector[i] = beta * ((const float *)c->data)[count == 1 ? 0 : i];
    }
    return true;
}

enum leat_status
cpu_lower_gemm(struct cpu_builder *b)
{
    const struct leat_node *node = b->node;
    const struct leat_value *a = leat_node_input(b->graph, node, 0), *w = leat_node_input(b->graph, node, 1);
    const struct leat_value *c = leat_node_input(b->graph, node, 2), *y = leat_node_output(b->graph, node, 0);
    const bool trans_a = leat_node_int(node, "transA", 0) != 0, trans_b = leat_node_int(node, "transB", 0) != 0;
    const float beta = leat_node_float(node, "beta", 1.0f);
    struct cpu_product p = {
        .rows = y->dims[0], .inner = a->dims[trans_a ? 0 : 1], .columns = y->dims[1], .transposed = trans_b};
    enum leat_status status = LEAT_OK;

    if (empty(a) || empty(w) || empty(y) || leat_node_float(node, "alpha", 1.0f) != 1.0f) {
        return LEAT_AGAIN;
    }
    if (c != NULL && beta != 0.0f) {
        float *vector = malloc((size_t)p.columns * sizeof(*vector));
        if (vector == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
        }
        p.has_bias = bias_vector(c, beta, p.columns, vector);
        status = p.has_bias ? cpu_private_vector(b, vector, (size_t)p.columns, &p.bias) : LEAT_AGAIN;
        free(vector);
    }
    if (status != LEAT_OK) {
        return status;
    }
    if (w->data != NULL && !trans_a) {
        return add_inner_product(b, &p);
    }
#if defined(__x86_64__)
    status = trans_a || trans_b || p.has_bias ? LEAT_AGAIN : cpu_lower_small_product(b);
    if (status == LEAT_AGAIN && cpu_model_type(b->model) == dnnl_f32) {
        status = cpu_lower_packed_product(b, p.has_bias ? &p.bias : NULL);
    }
    if (status != LEAT_AGAIN) {
        return status;
    }
    status = LEAT_OK;
#endif
    const dnnl_memory_desc_t src = trans_a ? matrix_md(p.rows, p.inner, 1, p.rows) : matrix_md(p.rows, p.inner, p.inner, 1);
    const dnnl_memory_desc_t weights =
        trans_b ? matrix_md(p.inner, p.columns, 1, p.inner) : matrix_md(p.inner, p.columns, p.columns, 1);
    const dnnl_memory_desc_t dst = matrix_md(p.rows, p.columns, p.columns, 1);
    const dnnl_memory_desc_t bias_md = matrix_md(1, p.columns, p.columns, 1);
    if (p.has_bias) {
        status = cpu_view(b, p.bias, &bias_md, &p.bias);
    }
    return status == LEAT_OK ? add_matmul(b, &src, &weights, p.has_bias ? &bias_md : NULL, p.bias, &dst, true) : status;
}

/* The value with leading dims of 1 up to `rank`. */
static dnnl_memory_desc_t
padded_md(const struct leat_value *value, uint32_t rank)
{
    int64_t dims[LEAT_RANK_MAX];
    for (uint32_t d = 0; d < rank; d++) {
        const uint32_t missing = rank - value->rank;
        dims[d] = d < missing ? 1 : value->dims[d - missing];
    }
    return cpu_plain_md(dims, rank);
}

enum leat_status
cpu_lower_matmul(struct cpu_builder *b)
{
    const struct leat_node *node = b->node;
    const struct leat_value *a = leat_node_input(b->graph, node, 0), *w = leat_node_input(b->graph, node, 1);
    const struct leat_value *y = leat_node_output(b->graph, node, 0);

    if (a->rank < 2 || w->rank < 2 || empty(a) || empty(w) || empty(y)) {
        return LEAT_AGAIN;
    }
    if (w->rank == 2 && w->data != NULL) {
        const int64_t inner = a->dims[a->rank - 1];
        struct cpu_product p = {.rows = (int64_t)leat_value_elements(a) / inner, .inner = inner, .columns = w->dims[1],
                            .has_bias = leat_node_input(b->graph, node, 2) != NULL};
        const enum leat_status status = p.has_bias ? cpu_plain(b, node->inputs[2], &p.bias) : LEAT_OK;
        return status == LEAT_OK ? add_inner_product(b, &p) : status;
    }
    if (leat_node_input(b->graph, node, 2) != NULL) {
        return LEAT_AGAIN;
    }
#if defined(__x86_64__)
    enum leat_status status = cpu_lower_small_product(b);
    if (status == LEAT_AGAIN && cpu_model_type(b->model) == dnnl_f32) {
        status = cpu_lower_packed_product(b, NULL);
    }
    if (status != LEAT_AGAIN) {
        return status;
    }
#endif
    const dnnl_memory_desc_t src = padded_md(a, y->rank), weights = padded_md(w, y->rank), dst = padded_md(y, y->rank);
    return add_matmul(b, &src, &weights, NULL, CPU_NONE, &dst, true);
}
