/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/window.h - where the sliding windows of a convolution or pooling lie, auto_pad resolved.
 *
 * Shapes   Always three spatial dimensions (depth, height, width): a 1-D or 2-D operator has leading
 *          dimensions of 1 with kernel 1, stride 1 and no padding.
 * Units    Elements. Output o covers input o * stride - pad_begin + k * dilation for k in [0, kernel).
 */
#ifndef LEAT_KERNELS_WINDOW_H
#define LEAT_KERNELS_WINDOW_H

#include "kernels/graph.h"

#define LEAT_WINDOW_RANK       3u
#define LEAT_WINDOW_VOLUME_MAX (INT64_C(1) << 20) /* kernel elements: a file of 100 bytes must not run for hours */

struct leat_window {
    uint32_t rank; /* spatial dimensions of the operator: 1..3; the last `rank` entries are its own */
    int64_t in[LEAT_WINDOW_RANK]; /* LEAT_DIM_UNKNOWN or LEAT_DIM_BATCH where not known yet */
    int64_t out[LEAT_WINDOW_RANK];
    int64_t kernel[LEAT_WINDOW_RANK];
    int64_t stride[LEAT_WINDOW_RANK];
    int64_t dilation[LEAT_WINDOW_RANK];
    int64_t pad_begin[LEAT_WINDOW_RANK];
    int64_t pad_end[LEAT_WINDOW_RANK]; /* as given; with ceil_mode the last window may reach further */
};

/*
 * Of a convolution or pooling node: `x` is its input. A convolution's kernel comes from its weights. On a
 * node that was inferred with known shapes it cannot fail.
 */
LEAT_MUST_CHECK enum leat_status leat_window_of(const struct leat_graph *graph,
                                                const struct leat_node *node, struct leat_window *ret);

/*
 * Of a ConvTranspose: input i and kernel k reach output i * stride - pad_begin + k * dilation. out is the
 * operator's output, which may be larger than what is reached.
 */
LEAT_MUST_CHECK enum leat_status leat_transposed_window_of(const struct leat_graph *graph,
                                                           const struct leat_node *node,
                                                           struct leat_window *ret);

/* Of a MaxUnpool: the shape that its indices refer to; the output may have another one. */
LEAT_MUST_CHECK enum leat_status leat_unpool_shape(const struct leat_graph *graph,
                                                   const struct leat_node *node,
                                                   int64_t ret[LEAT_RANK_MAX]);

#endif /* LEAT_KERNELS_WINDOW_H */
