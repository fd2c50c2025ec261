/* SPDX-License-Identifier: Apache-2.0 */
/* Squeeze-and-excite's product: a factor for each channel of each item, the activations with channels last. */
#include "kernels/cpu/product.h"
#include "kernels/cpu/program.h"

enum { SHARED_LEAST = 16384 }; /* elements for each member of a team */

/* args: x, factors, y, which may be x; outer items of `count` pixels of `inner` channels. Rows are pixels. */
CPU_AVX512 static void
scale_rows(const struct cpu_call *call, size_t begin, size_t end)
{
    const size_t channels = call->step->inner;
    const float *x = call->pointers[0], *factors = call->pointers[1];
    float *y = call->pointers[2];

    for (size_t row = begin; row < end; row++) {
        const float *from = x + row * channels, *by = factors + row / call->step->count * channels;
        float *to = y + row * channels;
        for (size_t c = 0; c < channels; c += CPU_LANES) {
            const __mmask16 there = (__mmask16)(channels - c >= CPU_LANES ? 0xffffu : (1u << (channels - c)) - 1);
            _mm512_mask_storeu_ps(to + c, there, _mm512_mul_ps(_mm512_maskz_loadu_ps(there, from + c),
                                                               _mm512_maskz_loadu_ps(there, by + c)));
        }
    }
}

static enum leat_status
scale(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    cpu_share(call, scale_rows, step->outer * step->count, SHARED_LEAST / step->inner + 1);
    return LEAT_OK;
}

enum leat_status
cpu_lower_scale(struct cpu_builder *b, uint32_t value, uint32_t factors)
{
    const struct leat_value *x = &b->graph->values[value], *by = &b->graph->values[factors];
    struct cpu_arg args[3] = {{0, 0}};
    struct cpu_step *step;

    if (x->rank != 4 || by->rank != 4 || by->dims[0] != x->dims[0] || by->dims[1] != x->dims[1] || by->dims[2] != 1 ||
        by->dims[3] != 1 || !__builtin_cpu_supports("avx512f")) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_best(b, value, &args[0].tensor);
    if (status != LEAT_OK) {
        return status;
    }
    const dnnl_memory_desc_t md = b->program->tensors[args[0].tensor].md;
    if (!cpu_has_channels_last(&md)) {
        return LEAT_AGAIN;
    }
    status = cpu_plain(b, factors, &args[1].tensor);
    if (status == LEAT_OK) {
        status = cpu_may_overwrite(b, value, args[0].tensor)
                     ? cpu_view(b, args[0].tensor, &md, &args[2].tensor)
                     : cpu_new_tensor(b, &md, dnnl_memory_desc_get_size(&md), &args[2].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, scale, args, 3, &step);
    }
    if (status == LEAT_OK) {
        step->outer = (size_t)x->dims[0];
        step->count = (size_t)(x->dims[2] * x->dims[3]);
        step->inner = (size_t)x->dims[1];
        cpu_set_output(b, 0, args[2].tensor);
    }
    return status;
}
