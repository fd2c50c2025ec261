/* SPDX-License-Identifier: Apache-2.0 */
/* Einsum as one loop per label, and Det by elimination. */
#include <math.h>

#include "kernels/einsum.h"
#include "kernels/reference/element.h"

/* A loop over some labels: where each operand is, and how far one step along a label leads. */
struct loop {
    uint32_t operands, labels;
    uint8_t label[LEAT_EINSUM_LABELS];
    int64_t at[LEAT_EINSUM_LABELS];
    size_t count;
};

static void
loop_add(struct loop *loop, const struct leat_einsum *einsum, uint8_t label)
{
    loop->label[loop->labels++] = label;
    loop->count *= (size_t)einsum->size[label];
}

static void
loop_next(struct loop *loop, const struct leat_einsum *einsum,
          size_t stride[LEAT_EINSUM_OPERANDS_MAX][LEAT_EINSUM_LABELS], size_t *offset)
{
    for (uint32_t i = loop->labels; i-- > 0;) {
        const uint8_t label = loop->label[i];
        const bool wraps = ++loop->at[i] == einsum->size[label];
        for (uint32_t k = 0; k < loop->operands; k++) {
            offset[k] += stride[k][label];
            offset[k] -= wraps ? stride[k][label] * (size_t)einsum->size[label] : 0;
        }
        if (!wraps) {
            return;
        }
        loop->at[i] = 0;
    }
}

LEAT_REFERENCE_FUNCTION(einsum)
{
    const struct leat_value *output = leat_eval_output(eval, 0);
    const uint32_t dtype = output->dtype, operands = eval->node->input_count;
    size_t stride[LEAT_EINSUM_OPERANDS_MAX][LEAT_EINSUM_LABELS] = {{0}};
    size_t offset[LEAT_EINSUM_OPERANDS_MAX] = {0};
    struct loop outer = {.operands = operands, .count = 1}, inner = outer;
    bool is_outer[LEAT_EINSUM_LABELS] = {false};
    struct leat_einsum einsum;

    const enum leat_status status = leat_einsum_of(eval->graph, eval->node, &einsum);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t k = 0; k < operands; k++) {
        const struct leat_value *x = leat_eval_input(eval, k);
        size_t step = 1;
        for (uint32_t d = x->rank; d-- > 0;) {
            /* A label that an operand carries twice runs along its diagonal. */
            const uint8_t label = einsum.labels[k][d];
            stride[k][label] += x->dims[d] == 1 && einsum.size[label] != 1 ? 0 : step;
            step *= (size_t)x->dims[d];
        }
    }
    for (uint32_t d = 0; d < einsum.output_rank; d++) {
        loop_add(&outer, &einsum, einsum.output[d]);
        is_outer[einsum.output[d]] = true;
    }
    for (uint32_t label = 0; label < LEAT_EINSUM_LABELS; label++) {
        if (!is_outer[label] && einsum.carried[label]) {
            loop_add(&inner, &einsum, (uint8_t)label);
        }
    }
    for (size_t i = 0; i < outer.count; i++, loop_next(&outer, &einsum, stride, offset)) {
        double sum = 0;
        uint64_t bits = 0;
        for (size_t j = 0; j < inner.count; j++, loop_next(&inner, &einsum, stride, offset)) {
            double product = 1;
            uint64_t product_bits = 1;
            for (uint32_t k = 0; k < operands; k++) {
                const struct leat_number x =
                    leat_number_read(dtype, leat_eval_in(eval, k), offset[k]);
                product *= x.real;
                product_bits *= x.bits;
            }
            sum += product;
            bits += product_bits;
        }
        if (leat_dtype_is_float(dtype)) {
            leat_element_set_real(dtype, leat_eval_out(eval, 0), i, sum);
        } else {
            leat_element_set_int(dtype, leat_eval_out(eval, 0), i, (int64_t)bits);
        }
    }
    return LEAT_OK;
}

size_t
leat_workspace_det(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    return leat_extent(x, x->rank - 2, x->rank) * sizeof(double);
}

/* The product of the pivots of Gaussian elimination with the largest element of each column. */
static double
determinant(double *a, size_t n)
{
    double product = 1;
    for (size_t k = 0; k < n; k++) {
        size_t pivot = k;
        for (size_t i = k + 1; i < n; i++) {
            pivot = fabs(a[i * n + k]) > fabs(a[pivot * n + k]) ? i : pivot;
        }
        if (a[pivot * n + k] == 0) {
            return 0;
        }
        for (size_t j = 0; j < n && pivot != k; j++) {
            const double swapped = a[k * n + j];
            a[k * n + j] = a[pivot * n + j];
            a[pivot * n + j] = swapped;
        }
        product *= pivot != k ? -a[k * n + k] : a[k * n + k];
        for (size_t i = k + 1; i < n; i++) {
            const double factor = a[i * n + k] / a[k * n + k];
            for (size_t j = k; j < n; j++) {
                a[i * n + j] -= factor * a[k * n + j];
            }
        }
    }
    return product;
}

LEAT_REFERENCE_FUNCTION(det)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const size_t n = (size_t)x->dims[x->rank - 1];
    const size_t count = leat_value_elements(leat_eval_output(eval, 0));
    double *matrix = eval->workspace;

    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < n * n; k++) {
            matrix[k] = leat_element_real(x->dtype, leat_eval_in(eval, 0), i * n * n + k);
        }
        leat_element_set_real(x->dtype, leat_eval_out(eval, 0), i, determinant(matrix, n));
    }
    return LEAT_OK;
}
