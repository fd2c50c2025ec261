/* SPDX-License-Identifier: Apache-2.0 */
/* Layer normalisation along the last axis. oneDNN's allocates in each run. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/layer_norm.h"
#include "kernels/cpu/program.h"

enum { SHARED_LEAST = 16384 }; /* elements that are worth a team */

/* args: x, the scale, the shift if there are four, and y; rows of `inner` elements. */
static void
normalise_rows(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t width = step->inner;
    const float epsilon = leat_node_float(step->node, "epsilon", 1e-5f);
    const float *x = call->pointers[0], *scale = call->pointers[1], *shift = step->arg_count > 3 ? call->pointers[2] : NULL;
    float *y = call->pointers[step->arg_count - 1];
    void (*const row)(const float *, const float *, const float *, size_t, float, float *) =
        cpu_has_avx512() ? cpu_normalise_avx512 : cpu_normalise_avx2;

    for (size_t r = begin; r < end; r++) {
        row(x + r * width, scale, shift, width, epsilon, y + r * width);
    }
}

static enum leat_status
normalise(const struct cpu_call *call)
{
    cpu_share(call, normalise_rows, call->step->outer, SHARED_LEAST / call->step->inner);
    return LEAT_OK;
}

bool
cpu_layer_norm_runs_here(void)
{
    return cpu_vector_lanes() > 0;
}

enum leat_status
cpu_add_layer_norm(struct cpu_builder *b, const struct cpu_arg *args, uint32_t arg_count, size_t rows, size_t width)
{
    struct cpu_step *step;

    const enum leat_status status = cpu_add_kernel(b, normalise, args, arg_count, &step);
    if (status == LEAT_OK) {
        step->outer = rows;
        step->inner = width;
    }
    return status;
}
