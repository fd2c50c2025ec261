/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/padding/padding.h - the proof that how far a sequence is padded does not change its answer.
 *
 * Role       The graphs of one model for several lengths, and a query whose sequence has n positions: inputs are zeros from
 *            position n on. Every value that depends on payload has to be the same at positions below n in all graphs that are
 *            long enough (up to the order of summation); a node for which that does not follow is refused. What is followed
 *            of a value for that: which axes count positions, where it is exactly zero from n on (its *tail*), where a softmax
 *            leaves nothing of the tail, and what it is at excluded and at counted positions, where it was made of a mask alone.
 * Masks      A mask is an input with one number for each position: 1 says that it counts, 0, as in the tail, that it does not.
 *            A score that is LEAT_PADDING_MARGIN less in the tail than at some counted position vanishes in a softmax: e^x is 0 in
 *            f32 for x < -104. That holds while scores without their mask differ by less than margin - 104, and, where they are cut
 *            off below, lie within margin - 104 of 0; and where a mask has a 1: whoever gathers inputs sees to it. What the graph
 *            itself adds to scores and multiplies them by is no assumption but followed; where it is not, they are cut off in vain.
 * Bounds     Proved where weights and everything at positions below n are finite, without overflow; zeros of the tail are never
 *            multiplied by what may be infinite or no number. Constants with positions are looked through, other weights are not.
 */
#ifndef LEAT_KERNELS_PADDING_H
#define LEAT_KERNELS_PADDING_H

#include "kernels/op.h"

#define LEAT_PADDING_MARGIN 1000.0
#define LEAT_PADDING_USUAL  (LEAT_PADDING_MARGIN - 104) /* a score is less than that */

enum padding_sign {
    PADDING_ANY,
    PADDING_NOT_NEGATIVE,
    PADDING_POSITIVE,
};

/*
 * An element is a score, less than LEAT_PADDING_USUAL from 0, plus a number from `least` to `most`; infinite where that is not
 * followed. Inputs are scores, products, softmax and normalisations make new ones; constants and masks are numbers alone.
 */
struct padding_offset {
    double least, most;
};

/* The tail along axis d: elements whose index d is n or more, while those of all other axes of the sequence are less. */
struct padding_state {
    uint32_t axes;   /* bit d: axis d counts positions */
    uint32_t zero;   /* bit d: the tail along d is 0 */
    uint32_t resting; /* of 8-bit numbers; bit d: the tail along d is the zero point `rest` */
    double rest;
    uint32_t masked; /* bit d: the tail along d is `margin` less than some element below n of the same row */
    double margin;   /* what the graph adds to some positions alone is off it */
    uint64_t masks;  /* bit i: `masked` because of input i */
    struct padding_offset offset; /* of that element, or where nothing is masked, of all */
    bool of_masks;   /* made of masks and constants alone */
    bool constant;   /* made of constants alone */
    bool even;       /* and less than LEAT_PADDING_MARGIN apart, as far as that is followed */
    bool uneven;     /* a mask may be in it in a way that is not followed: no margin holds */
    bool varies;     /* it is another one for each length: of no use but as a shape */
    bool finite;     /* everywhere, but for a masked tail of an infinite margin */
    enum padding_sign sign;
    bool bounded; /* whole numbers: of all elements, the tail too */
    double least, most;
    /* Element p along mask_axis is a function of element p of input `mask` alone: `off` of 0, `on` of 1. */
    bool known;
    double off, on;
    uint32_t mask; /* LEAT_VALUE_NONE: one number everywhere */
    uint32_t mask_axis;
};

_Static_assert(LEAT_TENSORS_MAX <= 64, "a bit for each input");

struct padding {
    struct leat_graph *const *graphs; /* [count] for one item, with the same nodes and values */
    const uint32_t *lengths;
    uint32_t count;
    const struct leat_graph *graph; /* the last one, the longest */
    struct padding_state *states;   /* [value_count] */
    uint64_t masks_needed;          /* bit i: input i, if a softmax is to leave its tail out */
    uint64_t used_as_numbers;       /* bit i: of input i, not as a mask */
};

/*
 * `graphs` are for one item and the lengths, ascending, at least two. *ret_masks: bit i is set when input i is a mask that
 * has to have a 1 below n. LEAT_ERR_UNSUPPORTED names the node where the proof fails.
 */
LEAT_MUST_CHECK enum leat_status leat_padding_check(struct leat_graph *const *graphs, const uint32_t *lengths, uint32_t count,
                                                    uint64_t *ret_masks);

/* ---- Between the files of this folder ------------------------------------------------------------- */

/* The state of input i, or NULL when it is omitted. */
const struct padding_state *padding_input(const struct padding *p, const struct leat_node *node, uint32_t i);

/* Fills the states of the node's outputs, whose `axes` are there already. */
LEAT_MUST_CHECK enum leat_status padding_apply(struct padding *p, const struct leat_node *node);
LEAT_MUST_CHECK enum leat_status padding_elementwise(struct padding *p, const struct leat_node *node);
bool padding_is_elementwise(enum leat_op_kind kind);
/* QuantizeLinear and DequantizeLinear. */
LEAT_MUST_CHECK enum leat_status padding_convert(struct padding *p, const struct leat_node *node);

/* Axes along which the tail of 8-bit numbers is their zero point, which is input `zero_input`, so that it stands for 0. */
uint32_t padding_resting(const struct padding *p, const struct leat_node *node, uint32_t input, uint32_t zero_input);
void padding_rest(struct padding_state *out, uint32_t axes, double zero);
/* The zero point, 0 where it is omitted; false when it is not one constant. */
bool padding_zero_point(const struct padding *p, const struct leat_node *node, uint32_t input, double *ret);
/* Constant, finite and positive, so that 0 stays 0. */
bool padding_scales_hold(const struct padding *p, const struct leat_node *node, uint32_t input);

struct padding_offset padding_offset_lost(void); /* not followed */
struct padding_offset padding_offset_of(double least, double most); /* nor where one is no number */
struct padding_offset padding_offset_sum(struct padding_offset a, struct padding_offset b);
struct padding_offset padding_offset_product(struct padding_offset a, struct padding_offset b);
struct padding_offset padding_offset_hull(struct padding_offset a, struct padding_offset b); /* one or the other */

/* Nothing larger or smaller can come out of these. */
void padding_set_bounds(struct padding_state *state, double least, double most);

/* Element i of a constant, as a number; false when its type is not followed, or it lies in a file. */
bool padding_element(const struct leat_value *value, size_t i, double *ret);

/* Broadcasting spreads positions of a value, that has `shift` axes less than the result, over what are none. */
bool padding_loses_positions(const struct padding_state *in, uint32_t shift, const struct padding_state *out);

/* Zero times any of it is zero. */
bool padding_tail_is_finite(const struct padding_state *state);

/* Nobody may read input `mask` as numbers and as a mask. */
void padding_use_as_numbers(struct padding *p, const struct padding_state *state);

#endif /* LEAT_KERNELS_PADDING_H */
