/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/winograd_stages.h - what a block of tiles goes through in winograd.c, once for each width of vectors.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_WINOGRAD_STAGES_H
#define LEAT_KERNELS_CPU_LOOPS_WINOGRAD_STAGES_H

#include "kernels/cpu/loops/winograd.h"

enum {
    CPU_WINOGRAD_TILE = 4,                     /* results of a tile, a side */
    CPU_WINOGRAD_SEEN = CPU_WINOGRAD_TILE + 2, /* of the source, a side */
    CPU_WINOGRAD_POINTS = CPU_WINOGRAD_SEEN * CPU_WINOGRAD_SEEN,
    CPU_WINOGRAD_GROUP = 64,     /* outputs that are multiplied and written before the next ones */
    CPU_WINOGRAD_CHANNELS = 128, /* inputs that are multiplied at a time */
};

/* How the work is cut: blocks of tiles that go through all three stages while they are in the cache. */
struct cpu_winograd_blocking {
    int64_t down, across, tiles; /* of an item, of an item, of all */
    int64_t block;               /* tiles, a multiple of CPU_ROWS */
    /* In floats, each a cache line longer than a power of two at most: 36 streams must not fall into one set. */
    int64_t input_plane, product_plane;
};

struct cpu_winograd_stages {
    /*
     * [groups][points][parts of CPU_WINOGRAD_CHANNELS inputs][panels of the group][inputs of the part][CPU_PANEL], with zeros behind
     * the last output. Nothing of it is read soon: whole lines go past the caches, of which the points of an input would
     * share one set.
     */
    void (*pack)(const float *weights, int64_t inputs, int64_t outputs, float *ret_packed);
    /* [points][block][inputs] of `count` tiles from `first` on. `zeros` has a vector of them. */
    void (*gather)(const struct cpu_winograd *conv, const struct cpu_winograd_blocking *b, const float *source, const float *zeros,
                   int64_t first, int64_t count, float *ret);
    /*
     * `count` tiles times `channels` inputs of a group of `outputs`, at one point; `first` where these inputs are the first
     * ones. While it runs, the next weights come into the second-level cache.
     */
    void (*multiply)(const float *inputs, int64_t stride, int64_t channels, const float *weights, const float *next, bool first,
                     int64_t count, int64_t outputs, float *products);
    /* Results of `count` tiles, outputs from `channel` on. `sink` takes a vector. */
    void (*scatter)(const struct cpu_winograd *conv, const struct cpu_winograd_blocking *b, const float *products, const float *bias,
                    int64_t channel, int64_t first, int64_t count, float *result, float *sink);
};

extern const struct cpu_winograd_stages cpu_winograd_avx512, cpu_winograd_avx2;

#endif /* LEAT_KERNELS_CPU_LOOPS_WINOGRAD_STAGES_H */
