/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/calibrate.h - the ranges that values of a model have, for precisions of whole numbers.
 *
 * Role       Runs the model in f32 on the cpu backend and counts what convolutions and products read and make. A range reaches
 *            from the least to the greatest element that was seen, but for the outermost one in LEAT_CALIBRATION_BEYOND on either
 *            side, and has 0 in it: one large element must not make the steps of all others coarse. Elements that are not finite
 *            are in none.
 *            The same graph and inputs give the same ranges, in whatever order the batches come.
 * Threads    One thread at a time, for all of one calibration.
 */
#ifndef LEAT_KERNELS_CPU_CALIBRATE_H
#define LEAT_KERNELS_CPU_CALIBRATE_H

#include "base/status.h"
#include "kernels/graph.h"

#define LEAT_CALIBRATION_BEYOND 100000u

struct leat_calibration;

struct leat_range {
    const char *name;  /* of the value; lives as long as the calibration */
    float least, most; /* least <= 0 <= most, one of them not 0, both finite */
};

/*
 * For batches of so many items of a graph that was optimised and has no free dimensions but the batch. LEAT_ERR_LIMIT where that
 * takes more than the graph's limit leaves.
 */
LEAT_MUST_CHECK enum leat_status leat_calibration_create(const struct leat_graph *graph,
                                                         uint32_t items,
                                                         struct leat_calibration **ret_calibration);
void leat_calibration_destroy(struct leat_calibration *calibration); /* accepts NULL */

/* An optimised graph that multiplies numbers of 8 bits, or rounds to 8 bits what is no input, for no output, as its file says. */
bool leat_graph_is_quantised(const struct leat_graph *graph);

/* One batch; `inputs` as the graph has them, densely packed. */
LEAT_MUST_CHECK enum leat_status leat_calibration_run(struct leat_calibration *calibration,
                                                      const void *const *inputs);

/* A convolution or product multiplies that input of the graph as it is: its range is the input's. */
bool leat_calibration_reads(const struct leat_calibration *calibration, uint32_t input);

/*
 * What convolutions and products have as their first side was finite in all batches. Other values need not be: a mask that attention adds is -inf
 * where it hides something.
 */
bool leat_calibration_is_finite(const struct leat_calibration *calibration);

/* Of values that were not 0 throughout, after the last batch. */
uint32_t leat_calibration_count(const struct leat_calibration *calibration);
struct leat_range leat_calibration_range(const struct leat_calibration *calibration, uint32_t i);

/* Values of that name get the range; false where there is none. */
bool leat_graph_set_range(struct leat_graph *graph, const struct leat_range *range);

#endif /* LEAT_KERNELS_CPU_CALIBRATE_H */
