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

/* sums[n] += x[k x_step] w[k w_step + n] */
static void
add_products(const float *x, size_t x_step, const float *w, size_t w_step, size_t inner, size_t columns, double sums[LANES])
{
    if (columns < LANES) {
        for (size_t k = 0; k < inner; k++) {
            for (size_t n = 0; n < columns; n++) {
                sums[n] += (double)x[k * x_step] * (double)w[k * w_step + n];
            }
        }
        return;
    }
    for (size_t k = 0; k < inner; k++) {
        const double factor = (double)x[k * x_step];
        for (size_t n = 0; n < LANES; n++) {
            sums[n] += factor * (double)w[k * w_step + n];
        }
    }
}

LEAT_REFERENCE_FUNCTION(gemm)
{
    const struct leat_value *a = leat_eval_input(eval, 0), *b = leat_eval_input(eval, 1);
    const struct leat_value *c = leat_eval_input(eval, 2), *output = leat_eval_output(eval, 0);
    const float *in_a = leat_eval_in(eval, 0), *in_b = leat_eval_in(eval, 1);
    const float *in_c = c != NULL ? leat_eval_in(eval, 2) : NULL;
    const bool trans_a = leat_node_int(eval->node, "transA", 0) != 0;
    const bool trans_b = leat_node_int(eval->node, "transB", 0) != 0;
    const double alpha = (double)leat_node_float(eval->node, "alpha", 1.0f);
    const double beta = (double)leat_node_float(eval->node, "beta", 1.0f);
    const size_t rows = (size_t)output->dims[0], columns = (size_t)output->dims[1];
    const size_t inner = (size_t)a->dims[trans_a ? 0 : 1];
    const size_t a_columns = (size_t)a->dims[1], b_columns = (size_t)b->dims[1];
    float *out = leat_eval_out(eval, 0);

    for (size_t m = 0; m < rows; m++) {
        const float *row = in_a + (trans_a ? m : m * a_columns);
        for (size_t first = 0; first < columns; first += LANES) {
            const size_t count = columns - first < LANES ? columns - first : LANES;
            double sums[LANES] = {0};
            if (!trans_b) {
                add_products(row, trans_a ? a_columns : 1, in_b + first, b_columns, inner, count, sums);
            }
            for (size_t n = 0; n < count; n++) {
                if (trans_b) {
                    for (size_t k = 0; k < inner; k++) {
                        sums[n] += (double)row[trans_a ? k * a_columns : k] * (double)in_b[(first + n) * b_columns + k];
                    }
                }
                sums[n] *= alpha;
                if (in_c != NULL) {
                    sums[n] += beta * (double)in_c[broadcast_index(c, m, first + n)];
                }
                out[m * columns + first + n] = (float)sums[n];
            }
        }
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(matmul)
{
    const struct leat_value *a = leat_eval_input(eval, 0), *b = leat_eval_input(eval, 1);
    const struct leat_value *output = leat_eval_output(eval, 0);
    const float *in_a = leat_eval_in(eval, 0), *in_b = leat_eval_in(eval, 1);
    const float *bias = leat_eval_input(eval, 2) != NULL ? leat_eval_in(eval, 2) : NULL; /* see leat_op_fused() */
    float *out = leat_eval_out(eval, 0);
    const size_t rows = a->rank > 1 ? (size_t)a->dims[a->rank - 2] : 1;
    const size_t inner = (size_t)a->dims[a->rank - 1];
    const size_t columns = b->rank > 1 ? (size_t)b->dims[b->rank - 1] : 1;
    const uint32_t batches = output->rank - (a->rank > 1) - (b->rank > 1);
    size_t count = 1;

    for (uint32_t d = 0; d < batches; d++) {
        count *= (size_t)output->dims[d];
    }
    for (size_t batch = 0; batch < count; batch++) {
        const float *x = in_a + leat_matrix_offset(a, output, batches, batch, rows * inner);
        const float *w = in_b + leat_matrix_offset(b, output, batches, batch, inner * columns);
        for (size_t m = 0; m < rows; m++) {
            for (size_t first = 0; first < columns; first += LANES) {
                const size_t lanes = columns - first < LANES ? columns - first : LANES;
                double sums[LANES] = {0};
                for (size_t n = 0; n < lanes && bias != NULL; n++) {
                    sums[n] = (double)bias[first + n];
                }
                add_products(x + m * inner, 1, w + first, columns, inner, lanes, sums);
                for (size_t n = 0; n < lanes; n++) {
                    *out++ = (float)sums[n];
                }
            }
        }
    }
    return LEAT_OK;
}

/* One row of `count` elements `stride` apart. */
static void
softmax_row(const float *x, float *y, size_t count, size_t stride)
{
    float max = -INFINITY;
    double sum = 0;

    for (size_t i = 0; i < count; i++) {
        max =
            x[i * stride] > max ? x[i * stride] : max; /* false on NaN; the sum below restores it */
    }
    for (size_t i = 0; i < count; i++) {
        sum += exp((double)x[i * stride] - (double)max);
    }
    for (size_t i = 0; i < count; i++) {
        y[i * stride] = (float)(exp((double)x[i * stride] - (double)max) / sum);
    }
}

LEAT_REFERENCE_FUNCTION(softmax)
{
    const float *in = leat_eval_in(eval, 0);
    float *out = leat_eval_out(eval, 0);
    struct leat_softmax_extent extent;

    leat_softmax_extent(eval->graph, eval->node, &extent);
    for (size_t o = 0; o < extent.outer; o++) {
        for (size_t i = 0; i < extent.inner; i++) {
            const size_t first = o * extent.axis * extent.inner + i;
            softmax_row(in + first, out + first, extent.axis, extent.inner);
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
