/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/resize.h - a Resize or Upsample node with its scales and modes resolved.
 *
 * Units    scale is output elements per input element. Sizes come from the shapes of the node's tensors.
 */
#ifndef LEAT_KERNELS_RESIZE_H
#define LEAT_KERNELS_RESIZE_H

#include "kernels/op.h"

enum leat_resize_mode { LEAT_RESIZE_NEAREST, LEAT_RESIZE_LINEAR, LEAT_RESIZE_CUBIC };

/* How an output place x becomes one of the input; see the ONNX description of Resize for the formulas. */
enum leat_resize_place {
    LEAT_PLACE_HALF_PIXEL,
    LEAT_PLACE_PYTORCH_HALF_PIXEL,
    LEAT_PLACE_ALIGN_CORNERS,
    LEAT_PLACE_ASYMMETRIC,
    LEAT_PLACE_TF_HALF_PIXEL_FOR_NN,
    LEAT_PLACE_TF_CROP_AND_RESIZE,
};

enum leat_resize_round {
    LEAT_ROUND_PREFER_FLOOR,
    LEAT_ROUND_PREFER_CEIL,
    LEAT_ROUND_FLOOR,
    LEAT_ROUND_CEIL,
};

struct leat_resize {
    enum leat_resize_mode mode;
    enum leat_resize_place place;
    enum leat_resize_round round;
    bool exclude_outside;
    double cubic_a, extrapolation;
    int64_t out[LEAT_RANK_MAX]; /* LEAT_DIM_UNKNOWN or LEAT_DIM_BATCH where not known yet */
    double scale[LEAT_RANK_MAX];
};

/* *ret_known is false, and *ret incomplete, while scales or sizes are not constant. */
LEAT_MUST_CHECK enum leat_status leat_resize_of(const struct leat_graph *graph, const struct leat_node *node,
                                                struct leat_resize *ret, bool *ret_known);

/* Which places of an axis of the input one of the output is a sum of, and with which weights. */
#define LEAT_RESIZE_TAPS_MAX 4u

struct leat_resize_taps {
    uint32_t count;
    bool outside; /* tf_crop_and_resize: the extrapolation value stands here */
    size_t index[LEAT_RESIZE_TAPS_MAX];
    double weight[LEAT_RESIZE_TAPS_MAX];
};

/* Of place i of axis d. x: the input, of known dims; roi: what tf_crop_and_resize reads, else NULL. */
void leat_resize_taps(const struct leat_resize *resize, const struct leat_value *x, const float *roi, uint32_t d, int64_t i,
                      struct leat_resize_taps *ret);

#endif /* LEAT_KERNELS_RESIZE_H */
