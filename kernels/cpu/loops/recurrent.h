/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/recurrent.h - RNN, GRU and LSTM, in vectors of AVX-512 or else of AVX2.
 *
 * Method     What the inputs add to the gates is computed for many steps at once, then one step after another adds what the
 *            state before it gives. Members of a team divide directions or else the units of the state, so that each reads
 *            its part of the weights in all steps, and then wait for each other once a step (twice where a GRU resets its
 *            state before the product).
 * Shapes     As kernels/recurrent.h says; the weights are packed.
 * Numerics   Sums are f32, in the order of their terms, and do not depend on the number of members or items; sigmoid and tanh
 *            as kernels/cpu/loops/exponential.h says. Functions that few models have (kernels/recurrent.h from Affine on) are calls of
 *            one vector each.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_RECURRENT_H
#define LEAT_KERNELS_CPU_LOOPS_RECURRENT_H

#include <stddef.h>

#include "kernels/recurrent.h"
#include "kernels/team.h"

struct cpu_recurrent {
    struct leat_recurrent geometry;
    bool coupled;     /* of an LSTM: the forget gate is what the input gate leaves */
    bool reset_after; /* of a GRU: the reset gate multiplies the product with the state, not the state */
    float clip;       /* what f and g see is in -clip..clip; 0: whatever it is */
};

/* NULL where the node has none, but for x, weights and y. */
struct cpu_recurrent_operands {
    const float *x, *weights, *recurrence; /* both packed */
    const float *bias, *first_h, *first_c, *peepholes;
    const int32_t *lengths; /* [batch], 0..steps */
    float *y, *last_h, *last_c;
};

/* Of W or R: f32[directions][gates * hidden][inner]. */
size_t cpu_recurrent_weights_bytes(const struct leat_recurrent *g, int64_t inner);
void cpu_recurrent_pack(uint32_t directions, uint32_t gates, int64_t hidden, int64_t inner, const float *weights, float *ret_packed);

/* For all members of `threads` together, aligned to 64 bytes. */
size_t cpu_recurrent_scratch_bytes(const struct cpu_recurrent *r, uint32_t threads);
/* How many of `threads` are worth their waiting for each other. */
uint32_t cpu_recurrent_members(const struct cpu_recurrent *r, uint32_t threads);
/* One member's part; `team` may be NULL where there is one. */
void cpu_recurrent_run(const struct cpu_recurrent *r, const struct cpu_recurrent_operands *o, void *scratch,
                       struct leat_team *team, uint32_t member, uint32_t members);

#endif /* LEAT_KERNELS_CPU_LOOPS_RECURRENT_H */
