/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/winograd.h"

#include <string.h>

#include "base/status.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/product.h"
#include "kernels/cpu/loops/winograd_stages.h"

enum {
    TILE = CPU_WINOGRAD_TILE,
    POINTS = CPU_WINOGRAD_POINTS,
    GROUP = CPU_WINOGRAD_GROUP,
    BLOCK_BYTES = 1 << 20,   /* of one block's tiles: half of a second-level cache of 2 MiB */
    BLOCK_LEAST = 96,        /* tiles, where the weights do not stay in that cache: they are read for each block */
    WEIGHTS_BYTES = 4 << 20, /* such weights */
    LANES_MAX = 16,
};

static const struct cpu_winograd_stages *
stages_here(void)
{
    return cpu_has_avx512() ? &cpu_winograd_avx512 : &cpu_winograd_avx2;
}

/* ---- Weights ---------------------------------------------------------------------------------------- */

static int64_t
groups_of(int64_t outputs)
{
    return (outputs + GROUP - 1) / GROUP;
}

size_t
cpu_winograd_weights_bytes(int64_t inputs, int64_t outputs)
{
    return (size_t)(groups_of(outputs) * POINTS * inputs * GROUP) * sizeof(float);
}

void
cpu_winograd_pack(const float *weights, int64_t inputs, int64_t outputs, float *ret_packed)
{
    stages_here()->pack(weights, inputs, outputs, ret_packed);
}

/* ---- Tiles ------------------------------------------------------------------------------------------ */

static struct cpu_winograd_blocking
blocking_of(const struct cpu_winograd *conv)
{
    struct cpu_winograd_blocking b = {.down = (conv->out_height + TILE - 1) / TILE, .across = (conv->out_width + TILE - 1) / TILE};
    int64_t block = BLOCK_BYTES / (int64_t)sizeof(float) / POINTS / (conv->inputs + GROUP) + 1;

    b.tiles = conv->items * b.down * b.across;
    if (block < BLOCK_LEAST && cpu_winograd_weights_bytes(conv->inputs, conv->outputs) > WEIGHTS_BYTES) {
        block = BLOCK_LEAST;
    }
    const int64_t blocks = (b.tiles + block - 1) / block; /* of the same size, or nearly */
    b.block = (b.tiles + blocks - 1) / blocks;
    b.block = (b.block + CPU_ROWS - 1) / CPU_ROWS * CPU_ROWS;
    b.input_plane = b.block * conv->inputs + CPU_LINE;
    b.product_plane = b.block * GROUP + CPU_LINE;
    return b;
}

size_t
cpu_winograd_scratch_bytes(const struct cpu_winograd *conv)
{
    const struct cpu_winograd_blocking b = blocking_of(conv);
    const int64_t floats = POINTS * (b.input_plane + b.product_plane) + 2 * LANES_MAX;
    return (size_t)floats * sizeof(float);
}

void
cpu_winograd_run(const struct cpu_winograd *conv, const float *source, const float *packed, const float *bias,
                 float *result, float *scratch, uint32_t member, uint32_t members, const struct cpu_pause *pause)
{
    const struct cpu_winograd_blocking b = blocking_of(conv);
    const int64_t begin = b.tiles * member / members, end = b.tiles * (member + 1) / members;
    const int64_t groups = groups_of(conv->outputs);
    const struct cpu_winograd_stages *stages = stages_here();
    const float *end_of_weights = packed + groups * POINTS * conv->inputs * GROUP;
    float *inputs = scratch, *products = inputs + POINTS * b.input_plane;
    float *zeros = products + POINTS * b.product_plane, *sink = zeros + LANES_MAX;

    memset(zeros, 0, 2 * LANES_MAX * sizeof(float));
    for (int64_t first = begin; first < end; first += b.block) {
        const int64_t count = end - first < b.block ? end - first : b.block;
        stages->gather(conv, &b, source, zeros, first, count, inputs);
        for (int64_t group = 0; group < groups; group++) {
            const float *weights = packed + group * POINTS * conv->inputs * GROUP;
            const int64_t rest = conv->outputs - group * GROUP, outputs = rest < GROUP ? rest : GROUP;
            for (int64_t point = 0; point < POINTS; point++) {
                for (int64_t c = 0; c < conv->inputs; c += CPU_WINOGRAD_CHANNELS) {
                    const int64_t left = conv->inputs - c, channels = left < CPU_WINOGRAD_CHANNELS ? left : CPU_WINOGRAD_CHANNELS;
                    const float *next = weights + channels * GROUP;
                    stages->multiply(inputs + point * b.input_plane + c, conv->inputs, channels, weights,
                                     next < end_of_weights ? next : packed, c == 0, count, outputs,
                                     products + point * b.product_plane);
                    weights = next;
                }
            }
            stages->scatter(conv, &b, products, bias, group * GROUP, first, count, result, sink);
            if (pause != NULL && (group + 1 < groups || first + b.block < end)) {
                pause->call(pause->context);
            }
        }
    }
}
