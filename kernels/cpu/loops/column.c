/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with one column, which end many recommenders: of each row the sum of its products with one vector. oneDNN's
 * lock a mutex in each run.
 *
 * Numerics   A row's terms are added in one order, whatever the number of rows and of members.
 */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/column.h"
#include "kernels/cpu/loops/product.h"

enum {
    PART = 16,           /* rows: whole vectors of either width */
    SHARED_LEAST = 16384 /* elements that are worth a team */
};

enum { X, WEIGHTS, Y, BIAS, ARGS }; /* of a step; without the bias, if there is none */

/* x has `count` rows of `inner` floats. By PART rows. */
static void
multiply_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t first = begin * PART, last = end * PART < step->count ? end * PART : step->count;
    const struct cpu_column column = {.node = step->node,
                                      .weights = call->pointers[WEIGHTS],
                                      .width = step->inner,
                                      .bias = step->arg_count > BIAS ? *(const float *)call->pointers[BIAS] : 0};
    const float *x = call->pointers[X];
    float *y = call->pointers[Y];

    (cpu_has_avx512() ? cpu_column_avx512 : cpu_column_avx2)(&column, x + first * step->inner, last - first, y + first);
}

static enum leat_status
multiply(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    cpu_share(call, multiply_part, (step->count + PART - 1) / PART, SHARED_LEAST / (PART * step->inner) + 1);
    return LEAT_OK;
}

enum leat_status
cpu_lower_column(struct cpu_builder *b, const struct cpu_product *product)
{
    const struct leat_node *node = b->node;
    const dnnl_memory_desc_t vector = cpu_plain_md(&product->inner, 1);
    const dnnl_memory_desc_t value_md = cpu_value_md(leat_node_output(b->graph, node, 0));
    struct cpu_arg args[ARGS] = {[BIAS] = {0, product->bias}};
    struct cpu_step *step;

    if (product->columns != 1 || cpu_vector_lanes() == 0) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_plain(b, node->inputs[0], &args[X].tensor);
    if (status == LEAT_OK) {
        status = cpu_destination(b, &value_md, &args[Y].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_constant_as(b, node->inputs[1], &vector, &vector, &args[WEIGHTS].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, multiply, args, product->has_bias ? ARGS : BIAS, &step);
    }
    if (status == LEAT_OK) {
        step->count = (size_t)product->rows;
        step->inner = (size_t)product->inner;
        cpu_set_output(b, 0, args[Y].tensor);
    }
    return status;
}
