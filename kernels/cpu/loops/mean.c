/* SPDX-License-Identifier: Apache-2.0 */
/* Means over all pixels, the activations with channels last. */
#include <string.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/portion.h"
#include "kernels/cpu/loops/product.h"
#include "kernels/cpu/program.h"
#include "kernels/team.h"

/* Adds `count` pixels to sums of `vectors` channels, a constant; two at a time hide each other's latency. */
CPU_INLINE void
add_pixels(const float *pixels, size_t count, size_t channels, float *sums, const int vectors)
{
    __m512 even[CPU_VECTORS], odd[CPU_VECTORS];
    size_t p = 0;

#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        even[v] = _mm512_load_ps(sums + v * CPU_LANES);
        odd[v] = _mm512_setzero_ps();
    }
    for (; p + 2 <= count; p += 2) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            even[v] = _mm512_add_ps(even[v], _mm512_loadu_ps(pixels + p * channels + v * CPU_LANES));
            odd[v] = _mm512_add_ps(odd[v], _mm512_loadu_ps(pixels + (p + 1) * channels + v * CPU_LANES));
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        if (p < count) {
            even[v] = _mm512_add_ps(even[v], _mm512_loadu_ps(pixels + p * channels + v * CPU_LANES));
        }
        _mm512_store_ps(sums + v * CPU_LANES, _mm512_add_ps(even[v], odd[v]));
    }
}

/* The first `some` of their channels. */
CPU_AVX512 static void
add_item(const float *pixels, size_t count, size_t channels, size_t some, float *sums)
{
    size_t c = 0;
    for (; c + CPU_PANEL <= some; c += CPU_PANEL) {
        add_pixels(pixels + c, count, channels, sums + c, CPU_VECTORS);
    }
    for (; c < some; c += CPU_LANES) {
        add_pixels(pixels + c, count, channels, sums + c, 1);
    }
}

static struct cpu_portion
portion_of(const struct cpu_call *call, uint32_t member)
{
    const struct cpu_step *step = call->step;
    return cpu_portion_of((int64_t)step->outer * step->dims[0], (int64_t)step->inner / CPU_LANES, member, call->program->threads);
}

/*
 * outer items of dims[0] rows of dims[1] pixels of `inner` channels; args: x, its means, [members][items][channels] of sums,
 * the first member's where they divide channels.
 */
static void
add_share(void *context, uint32_t member, uint32_t size)
{
    const struct cpu_call *call = context;
    const struct cpu_step *step = call->step;
    const int64_t height = step->dims[0], width = step->dims[1];
    const size_t channels = step->inner;

    (void)size;
    if (member >= call->program->threads) {
        return;
    }
    const struct cpu_portion mine = portion_of(call, member);
    const size_t channel = (size_t)mine.first_vector * CPU_LANES, count = (size_t)mine.last_vector * CPU_LANES - channel;
    float *sums = (float *)call->pointers[2] + (mine.by_rows ? member * step->outer * channels : 0) + channel;
    for (int64_t row = mine.first_row, next; row < mine.last_row; row = next) {
        const int64_t item = row / height, end = (item + 1) * height;
        float *of_item = sums + (size_t)item * channels;
        next = end < mine.last_row ? end : mine.last_row;
        memset(of_item, 0, count * sizeof(*sums));
        add_item((const float *)call->pointers[0] + (size_t)(row * width) * channels + channel,
                 (size_t)((next - row) * width), channels, count, of_item);
    }
}

static enum leat_status
mean(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    const int64_t height = step->dims[0], width = step->dims[1];
    const size_t channels = step->inner;
    const float *sums = call->pointers[2];
    float *means = call->pointers[1];

    if (call->program->threads > 1) {
        leat_team_run(call->team, add_share, (void *)(uintptr_t)call);
    } else {
        add_share((void *)(uintptr_t)call, 0, 1);
    }
    memset(means, 0, step->outer * channels * sizeof(*means));
    for (uint32_t m = 0; m < call->program->threads; m++) {
        const struct cpu_portion share = portion_of(call, m);
        if (m > 0 && !share.by_rows) {
            break;
        }
        /* A member without rows has written nothing: what lies there is of another run. */
        for (int64_t item = share.first_row / height; share.first_row < share.last_row && item * height < share.last_row; item++) {
            const float *part = sums + (m * step->outer + (size_t)item) * channels;
            for (size_t c = 0; c < channels; c++) {
                means[(size_t)item * channels + c] += part[c];
            }
        }
    }
    for (size_t i = 0; i < step->outer * channels; i++) {
        means[i] /= (float)(height * width);
    }
    return LEAT_OK;
}

enum leat_status
cpu_lower_mean(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0);
    const dnnl_memory_desc_t none = {.ndims = 0};
    struct cpu_arg args[3] = {{0, 0}};
    struct cpu_step *step;

    if (x->rank != 4 || x->dims[1] % CPU_LANES != 0 || !cpu_has_avx512()) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_best(b, b->node->inputs[0], &args[0].tensor);
    if (status != LEAT_OK || !cpu_has_channels_last(&b->program->tensors[args[0].tensor].md)) {
        return status == LEAT_OK ? LEAT_AGAIN : status;
    }
    const size_t items = (size_t)x->dims[0], channels = (size_t)x->dims[1];
    status = cpu_plain_output(b, 0, &args[1].tensor);
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &none, b->program->threads * items * channels * sizeof(float), &args[2].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, mean, args, 3, &step);
    }
    if (status == LEAT_OK) {
        step->outer = items;
        step->inner = channels;
        memcpy(step->dims, x->dims + 2, 2 * sizeof(*step->dims));
    }
    return status;
}
