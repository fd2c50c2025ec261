/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax along an axis that is not the last, as detectors have it over bins of distances: oneDNN's takes one element at a time. And
 * its logarithm along any: oneDNN's is off by 1e-6 and more where it should be near 0, above it too.
 */
#include <math.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/rows.h"
#include "kernels/cpu/loops/softmax.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"

enum { BLOCK = 64, SHARED_LEAST = 8192 /* elements for each member of a team */ };

/* args: x and y, [outer][count][inner] along `count`; a unit of work is BLOCK columns of one of the outer ones. */
static void
soften_blocks(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t blocks = (step->inner + BLOCK - 1) / BLOCK;
    const bool logarithm = step->node->op->kind == LEAT_OP_LOG_SOFTMAX;
    void (*const columns)(const float *, size_t, size_t, size_t, size_t, bool, float *) =
        cpu_has_avx512() ? cpu_softmax_columns_avx512 : cpu_softmax_columns_avx2;

    while (begin < end) {
        const size_t outer = begin / blocks, first = begin % blocks, at = outer * step->count * step->inner;
        const size_t past = blocks - first < end - begin ? blocks : first + end - begin;
        columns((const float *)call->pointers[0] + at, step->count, step->inner, first * BLOCK,
                past == blocks ? step->inner : past * BLOCK, logarithm, (float *)call->pointers[1] + at);
        begin += past - first;
    }
}

static enum leat_status
soften(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;

    cpu_share(call, soften_blocks, step->outer * ((step->inner + BLOCK - 1) / BLOCK), 1 + SHARED_LEAST / (BLOCK * step->count));
    return LEAT_OK;
}

/* ln of the sum of e^(x - most): without the greatest itself, whose 1 would take the digits of all others. NaN where that is none. */
static double
logarithm_of_row(const float *x, size_t count, float most)
{
    const bool wide = cpu_has_avx512();
    double (*const sum)(const float *, size_t, float) = wide ? cpu_row_exponentials_avx512 : cpu_row_exponentials_avx2;

    if (!isfinite(most)) {
        return (double)NAN;
    }
    const size_t place = (wide ? cpu_row_first_beyond_avx512 : cpu_row_first_beyond_avx2)(x, count, nextafterf(most, -INFINITY), true);
    return log1p(sum(x, place, most) + sum(x + place + 1, count - place - 1, most));
}

/* args: x and y; a unit of work is a row. */
static void
soften_rows(const struct cpu_call *call, size_t begin, size_t end)
{
    const bool wide = cpu_has_avx512();
    const size_t count = call->step->count;

    for (size_t r = begin; r < end; r++) {
        const float *x = (const float *)call->pointers[0] + r * count;
        const float most = (wide ? cpu_row_greatest_avx512 : cpu_row_greatest_avx2)(x, count);
        (wide ? cpu_move_row_avx512 : cpu_move_row_avx2)(x, count, most, 1, (float)-logarithm_of_row(x, count, most),
                                                        (float *)call->pointers[1] + r * count);
    }
}

static enum leat_status
soften_last(const struct cpu_call *call)
{
    cpu_share(call, soften_rows, call->step->outer, 1 + SHARED_LEAST / call->step->count);
    return LEAT_OK;
}

enum leat_status
cpu_add_softmax_columns(struct cpu_builder *b, const struct cpu_arg args[2], size_t outer, size_t count, size_t inner)
{
    struct cpu_step *step;

    const enum leat_status status = cpu_add_kernel(b, inner > 1 ? soften : soften_last, args, 2, &step);
    if (status == LEAT_OK) {
        step->outer = outer;
        step->count = count;
        step->inner = inner;
    }
    return status;
}
