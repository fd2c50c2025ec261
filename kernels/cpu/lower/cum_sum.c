/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CumSum of floats and whole numbers along a known axis, some columns side by side. Sums of floats are in double, as in the reference
 * function.
 */
#include "kernels/cpu/program.h"
#include "kernels/op.h"

enum { WIDTH = 32, SHARED_LEAST = 8192 /* elements for each member of a team */ };

/* Of `width` columns, a constant or any; from one term to the next it is `step` elements. */
#define SUM_FUNCTION(name, type, sum_type)                                                                                \
    static inline void name##_columns(const type *restrict x, type *restrict y, size_t count, ptrdiff_t step,             \
                                      const size_t width, const bool exclusive)                                           \
    {                                                                                                                     \
        sum_type sums[WIDTH] = {0};                                                                                       \
        for (size_t i = 0; i < count; i++, x += step, y += step) {                                                        \
            for (size_t l = 0; l < width; l++) {                                                                          \
                const sum_type before = sums[l];                                                                          \
                sums[l] = before + (sum_type)x[l];                                                                        \
                y[l] = (type)(exclusive ? before : sums[l]);                                                              \
            }                                                                                                             \
        }                                                                                                                 \
    }                                                                                                                     \
    static void name(const void *in, void *out, size_t from, size_t count, ptrdiff_t step, size_t width, bool exclusive)  \
    {                                                                                                                     \
        const type *x = (const type *)in + from;                                                                          \
        type *y = (type *)out + from;                                                                                     \
        if (width == 1) {                                                                                                 \
            name##_columns(x, y, count, step, 1, exclusive);                                                              \
        } else if (width == WIDTH && !exclusive) {                                                                        \
            name##_columns(x, y, count, step, WIDTH, false);                                                              \
        } else {                                                                                                          \
            name##_columns(x, y, count, step, width, exclusive);                                                          \
        }                                                                                                                 \
    }
SUM_FUNCTION(sum_f32, float, double)
SUM_FUNCTION(sum_i32, int32_t, uint32_t)
SUM_FUNCTION(sum_i64, int64_t, uint64_t)

/* [outer][count][inner]. args: x, y. A unit is WIDTH columns of one of the outer ones. */
static void
sum_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t inner = step->inner, count = step->count, blocks = (inner + WIDTH - 1) / WIDTH;
    const bool exclusive = leat_node_int(step->node, "exclusive", 0) != 0, reverse = leat_node_int(step->node, "reverse", 0) != 0;
    const uint32_t dtype = leat_node_output(call->program->graph, step->node, 0)->dtype;
    void (*const sum)(const void *, void *, size_t, size_t, ptrdiff_t, size_t, bool) =
        dtype == LEAT_DTYPE_F32   ? sum_f32
        : dtype == LEAT_DTYPE_I32 ? sum_i32
                                  : sum_i64;

    for (size_t u = begin; u < end; u++) {
        const size_t first = u % blocks * WIDTH, from = u / blocks * count * inner + first;
        sum(call->pointers[0], call->pointers[1], from + (reverse ? (count - 1) * inner : 0), count,
            reverse ? -(ptrdiff_t)inner : (ptrdiff_t)inner, inner - first < WIDTH ? inner - first : WIDTH, exclusive);
    }
}

static enum leat_status
sum_up(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    const size_t blocks = (step->inner + WIDTH - 1) / WIDTH, width = step->inner < WIDTH ? step->inner : WIDTH;

    cpu_share(call, sum_part, step->outer * blocks, 1 + SHARED_LEAST / (step->count * width));
    return LEAT_OK;
}

enum leat_status
cpu_lower_cum_sum(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0);
    struct cpu_arg args[2] = {{0, 0}};
    struct cpu_step *step;
    double along;

    if ((x->dtype != LEAT_DTYPE_F32 && x->dtype != LEAT_DTYPE_I32 && x->dtype != LEAT_DTYPE_I64) || x->rank == 0 ||
        leat_value_elements(x) == 0 || !leat_value_scalar(leat_node_input(b->graph, b->node, 1), &along)) {
        return LEAT_AGAIN;
    }
    const uint32_t axis = (uint32_t)((int64_t)along + (along < 0 ? x->rank : 0));
    enum leat_status status = cpu_plain(b, b->node->inputs[0], &args[0].tensor);
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, sum_up, args, 2, &step);
    }
    if (status == LEAT_OK) {
        step->inner = 1;
        for (uint32_t d = axis + 1; d < x->rank; d++) {
            step->inner *= (size_t)x->dims[d];
        }
        step->count = (size_t)x->dims[axis];
        step->outer = leat_value_elements(x) / (step->count * step->inner);
    }
    return status;
}
