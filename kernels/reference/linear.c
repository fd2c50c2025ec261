/* SPDX-License-Identifier: Apache-2.0 */
/* Gemm, MatMul, Softmax and Attention. */
#include <math.h>
#include <string.h>

#include "kernels/reference/element.h"

/* Index of element (row, column) of a matrix product in C, which is broadcast to it. */
static size_t
broadcast_index(const struct leat_value *c, size_t row, size_t column)
{
    const size_t columns = c->rank >= 1 ? (size_t)c->dims[c->rank - 1] : 1;
    const size_t rows = c->rank == 2 ? (size_t)c->dims[0] : 1;
    return (rows == 1 ? 0 : row) * columns + (columns == 1 ? 0 : column);
}

enum { LANES = 16 }; /* columns next to each other that are summed together, each in the order of its products */

/* Of floats and doubles in `real`, of integers modulo 2^64 in `whole`. */
struct sums {
    double real[LANES];
    uint64_t whole[LANES];
};

/* sums[n] += x[k x_step] w[k w_step + n w_next], from elements x_first and w_first on */
struct factors {
    const void *x, *w;
    size_t x_first, x_step, w_first, w_step, w_next;
};

/* clang-format off */
#define PRODUCTS(name, type, wide, field)                                                           \
    static void                                                                                     \
    add_products_of_##name(const struct factors *f, size_t inner, size_t columns, struct sums *sums) \
    {                                                                                               \
        const type *x = (const type *)f->x + f->x_first, *w = (const type *)f->w + f->w_first;      \
        if (columns == LANES && f->w_next == 1) {                                                   \
            for (size_t k = 0; k < inner; k++) {                                                    \
                const wide factor = (wide)x[k * f->x_step];                                         \
                for (size_t n = 0; n < LANES; n++) {                                                \
                    sums->field[n] += factor * (wide)w[k * f->w_step + n];                          \
                }                                                                                   \
            }                                                                                       \
            return;                                                                                 \
        }                                                                                           \
        for (size_t n = 0; n < columns; n++) {                                                      \
            for (size_t k = 0; k < inner; k++) {                                                    \
                sums->field[n] += (wide)x[k * f->x_step] * (wide)w[k * f->w_step + n * f->w_next];  \
            }                                                                                       \
        }                                                                                           \
    }
PRODUCTS(floats, float, double, real)
PRODUCTS(doubles, double, double, real)
PRODUCTS(words, uint32_t, uint64_t, whole) /* of either sign: what is stored are the lower bits */
PRODUCTS(long_words, uint64_t, uint64_t, whole)
/* clang-format on */

static void
add_products(uint32_t dtype, const struct factors *f, size_t inner, size_t columns, struct sums *sums)
{
    switch (dtype) {
    case LEAT_DTYPE_F32:
        add_products_of_floats(f, inner, columns, sums);
        break;
    case LEAT_DTYPE_F64:
        add_products_of_doubles(f, inner, columns, sums);
        break;
    default:
        (leat_dtype_bytes(dtype) == 4 ? add_products_of_words : add_products_of_long_words)(f, inner, columns, sums);
        break;
    }
}

/* y[first + n] is sums[n], of which integers keep the lower bits. */
static void
store_sums(uint32_t dtype, const struct sums *sums, size_t columns, void *y, size_t first)
{
    for (size_t n = 0; n < columns; n++) {
        if (leat_dtype_is_float(dtype)) {
            leat_element_set_real(dtype, y, first + n, sums->real[n]);
        } else {
            leat_element_set_int(dtype, y, first + n, (int64_t)sums->whole[n]);
        }
    }
}

/* alpha times the products, and beta times C. Of integers both are whole numbers. */
static void
scale_and_add(const struct leat_eval *eval, size_t row, size_t first, size_t columns, struct sums *sums)
{
    const struct leat_value *c = leat_eval_input(eval, 2);
    const double alpha = (double)leat_node_float(eval->node, "alpha", 1.0f), beta = (double)leat_node_float(eval->node, "beta", 1.0f);
    const uint32_t dtype = leat_eval_input(eval, 0)->dtype;
    const bool is_float = leat_dtype_is_float(dtype);

    for (size_t n = 0; n < columns; n++) {
        const size_t at = c != NULL ? broadcast_index(c, row, first + n) : 0;
        if (is_float) {
            sums->real[n] *= alpha;
            sums->real[n] += c != NULL ? beta * leat_element_real(dtype, leat_eval_in(eval, 2), at) : 0;
        } else {
            sums->whole[n] *= (uint64_t)(int64_t)alpha;
            sums->whole[n] += c != NULL ? (uint64_t)(int64_t)beta * (uint64_t)leat_element_int(dtype, leat_eval_in(eval, 2), at) : 0;
        }
    }
}

LEAT_REFERENCE_FUNCTION(gemm)
{
    const struct leat_value *a = leat_eval_input(eval, 0), *b = leat_eval_input(eval, 1), *output = leat_eval_output(eval, 0);
    const bool trans_a = leat_node_int(eval->node, "transA", 0) != 0;
    const bool trans_b = leat_node_int(eval->node, "transB", 0) != 0;
    const size_t rows = (size_t)output->dims[0], columns = (size_t)output->dims[1];
    const size_t inner = (size_t)a->dims[trans_a ? 0 : 1];
    const size_t a_columns = (size_t)a->dims[1], b_columns = (size_t)b->dims[1];
    struct factors f = {.x = leat_eval_in(eval, 0),
                        .w = leat_eval_in(eval, 1),
                        .x_step = trans_a ? a_columns : 1,
                        .w_step = trans_b ? 1 : b_columns,
                        .w_next = trans_b ? b_columns : 1};

    for (size_t m = 0; m < rows; m++) {
        f.x_first = trans_a ? m : m * a_columns;
        for (size_t first = 0; first < columns; first += LANES) {
            const size_t count = columns - first < LANES ? columns - first : LANES;
            struct sums sums = {0};
            f.w_first = first * f.w_next;
            add_products(a->dtype, &f, inner, count, &sums);
            scale_and_add(eval, m, first, count, &sums);
            store_sums(a->dtype, &sums, count, leat_eval_out(eval, 0), m * columns + first);
        }
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(matmul)
{
    const struct leat_value *a = leat_eval_input(eval, 0), *b = leat_eval_input(eval, 1);
    const struct leat_value *output = leat_eval_output(eval, 0);
    const float *bias = leat_eval_input(eval, 2) != NULL ? leat_eval_in(eval, 2) : NULL; /* see leat_op_fused() */
    const size_t rows = a->rank > 1 ? (size_t)a->dims[a->rank - 2] : 1;
    const size_t inner = (size_t)a->dims[a->rank - 1];
    const size_t columns = b->rank > 1 ? (size_t)b->dims[b->rank - 1] : 1;
    const uint32_t batches = output->rank - (a->rank > 1) - (b->rank > 1);
    struct factors f = {
        .x = leat_eval_in(eval, 0), .w = leat_eval_in(eval, 1), .x_step = 1, .w_step = columns, .w_next = 1};
    size_t count = 1;

    for (uint32_t d = 0; d < batches; d++) {
        count *= (size_t)output->dims[d];
    }
    for (size_t batch = 0; batch < count; batch++) {
        const size_t x = leat_matrix_offset(a, output, batches, batch, rows * inner);
        const size_t w = leat_matrix_offset(b, output, batches, batch, inner * columns);
        for (size_t m = 0; m < rows; m++) {
            for (size_t first = 0; first < columns; first += LANES) {
                const size_t lanes = columns - first < LANES ? columns - first : LANES;
                struct sums sums = {0};
                for (size_t n = 0; n < lanes && bias != NULL; n++) {
                    sums.real[n] = (double)bias[first + n];
                }
                f.x_first = x + m * inner;
                f.w_first = w + first;
                add_products(a->dtype, &f, inner, lanes, &sums);
                store_sums(a->dtype, &sums, lanes, leat_eval_out(eval, 0), (batch * rows + m) * columns + first);
            }
        }
    }
    return LEAT_OK;
}

/* One row of `count` elements `stride` apart. */
static void
softmax_row(uint32_t dtype, const void *x, void *y, size_t first, size_t count, size_t stride)
{
    double max = -INFINITY, sum = 0;

    for (size_t i = 0; i < count; i++) {
        const double element = leat_element_real(dtype, x, first + i * stride);
        max = element > max ? element : max; /* false on NaN; the sum below restores it */
    }
    for (size_t i = 0; i < count; i++) {
        sum += exp(leat_element_real(dtype, x, first + i * stride) - max);
    }
    for (size_t i = 0; i < count; i++) {
        const size_t at = first + i * stride;
        leat_element_set_real(dtype, y, at, exp(leat_element_real(dtype, x, at) - max) / sum);
    }
}

LEAT_REFERENCE_FUNCTION(softmax)
{
    struct leat_softmax_extent extent;

    leat_softmax_extent(eval->graph, eval->node, &extent);
    for (size_t o = 0; o < extent.outer; o++) {
        for (size_t i = 0; i < extent.inner; i++) {
            softmax_row(leat_eval_input(eval, 0)->dtype, leat_eval_in(eval, 0), leat_eval_out(eval, 0),
                        o * extent.axis * extent.inner + i, extent.axis, extent.inner);
        }
    }
    return LEAT_OK;
}

/* Where the mask lies for query i of a head of an item: its keys are side by side. */
static size_t
mask_offset(const struct leat_value *mask, size_t item, size_t head, size_t i)
{
    const size_t at[3] = {item, head, i};
    size_t offset = 0;

    for (uint32_t d = 0; d < mask->rank; d++) {
        const uint32_t axis = 4 - mask->rank + d;
        offset = offset * (size_t)mask->dims[d] + (axis < 3 && mask->dims[d] != 1 ? at[axis] : 0);
    }
    return offset;
}

size_t
leat_workspace_attention(const struct leat_graph *graph, const struct leat_node *node)
{
    return (size_t)leat_node_input(graph, node, 1)->dims[1] * sizeof(double); /* a row of scores */
}

LEAT_REFERENCE_FUNCTION(attention)
{
    const struct leat_value *q = leat_eval_input(eval, 0), *k = leat_eval_input(eval, 1), *v = leat_eval_input(eval, 2);
    const struct leat_value *mask = leat_eval_input(eval, 3);
    const float *in_q = leat_eval_in(eval, 0), *in_k = leat_eval_in(eval, 1), *in_v = leat_eval_in(eval, 2);
    const float *in_mask = mask != NULL ? leat_eval_in(eval, 3) : NULL;
    const size_t items = (size_t)q->dims[0], rows = (size_t)q->dims[1], keys = (size_t)k->dims[1];
    const size_t heads = (size_t)leat_node_int(eval->node, "heads", 1);
    const size_t depth = (size_t)q->dims[2] / heads, width = (size_t)v->dims[2] / heads;
    const double scale = (double)leat_node_float(eval->node, "scale", 1.0f);
    double *scores = eval->workspace;
    float *out = leat_eval_out(eval, 0);

    for (size_t r = 0; r < items * rows * heads; r++) {
        const size_t head = r % heads, i = r / heads % rows, item = r / heads / rows;
        const float *query = in_q + ((item * rows + i) * heads + head) * depth;
        double max = -INFINITY, sum = 0;
        for (size_t j = 0; j < keys; j++) {
            const float *key = in_k + ((item * keys + j) * heads + head) * depth;
            double score = 0;
            for (size_t d = 0; d < depth; d++) {
                score += (double)query[d] * (double)key[d];
            }
            scores[j] = scale * score + (mask != NULL ? (double)in_mask[mask_offset(mask, item, head, i) + j] : 0);
            max = scores[j] > max ? scores[j] : max;
        }
        for (size_t j = 0; j < keys; j++) {
            scores[j] = exp(scores[j] - max);
            sum += scores[j];
        }
        for (size_t d = 0; d < width; d++) {
            double mean = 0;
            for (size_t j = 0; j < keys; j++) {
                mean += scores[j] * (double)in_v[((item * keys + j) * heads + head) * width + d];
            }
            *out++ = (float)(mean / sum);
        }
    }
    return LEAT_OK;
}
