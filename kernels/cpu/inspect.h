/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/inspect.h - a program of the cpu backend laid open: its steps, whose time the caller takes, and its memory.
 *
 * Role       What a plan runs, step by step, for people who want to know where time and memory go. The same kernels in the same
 *            order as in a plan; a call between two steps is all that is added.
 * Threads    One thread at a time, for all of one inspection.
 * Failure    As the backend: a graph that it cannot run cannot be inspected.
 */
#ifndef LEAT_KERNELS_CPU_INSPECT_H
#define LEAT_KERNELS_CPU_INSPECT_H

#include "kernels/backend.h"
#include "kernels/graph.h"

struct leat_inspection;

struct leat_inspection_step {
    uint32_t node;   /* of the inspection's graph; LEAT_VALUE_NONE: behind the last one, results become plain */
    bool converts;   /* from one layout into another */
    char kernel[64]; /* what oneDNN calls it, "leat", or "reference": plain loops */
};

/*
 * Of a graph without free dimensions but the batch, before or after passes, for so many items and threads, in a precision that the
 * backend has. LEAT_ERR_LIMIT where it has more than LEAT_TENSORS_MAX inputs and outputs, or takes more than the graph may, with
 * its weights and what a run needs.
 */
LEAT_MUST_CHECK enum leat_status leat_inspection_create(const struct leat_graph *graph, enum leat_precision precision,
                                                        uint32_t items, uint32_t threads,
                                                        struct leat_inspection **ret_inspection);
void leat_inspection_destroy(struct leat_inspection *inspection); /* accepts NULL */

/* With all shapes known; what that made constant is gone. Lives as long as the inspection. */
const struct leat_graph *leat_inspection_graph(const struct leat_inspection *inspection);
uint32_t leat_inspection_step_count(const struct leat_inspection *inspection);
void leat_inspection_step(const struct leat_inspection *inspection, uint32_t step, struct leat_inspection_step *ret_step);

/* A batch's items of that input become one block first; else steps read them where queries have them. */
bool leat_inspection_copies(const struct leat_inspection *inspection, uint32_t input);

/* Of all that is computed in a run: what is planned, and what lives at once at the worst step, less than which cannot do. */
size_t leat_inspection_planned_bytes(const struct leat_inspection *inspection);
size_t leat_inspection_bound_bytes(const struct leat_inspection *inspection);
size_t leat_inspection_model_bytes(const struct leat_inspection *inspection); /* weights, in all their layouts */

/* Why a product of 8-bit numbers is done in floats: the first that holds. */
enum leat_in_floats {
    LEAT_IN_FLOATS_COMPUTED,  /* both factors are computed */
    LEAT_IN_FLOATS_FIRST,     /* the first factor is the constant one */
    LEAT_IN_FLOATS_WEIGHTS,   /* weights are not s8 about 0 */
    LEAT_IN_FLOATS_PROCESSOR, /* it caps sums of 8-bit products */
    LEAT_IN_FLOATS_SHAPE,     /* it does, and no kernel of ours, which are exact, takes these groups or this window */
    LEAT_IN_FLOATS_OTHER,     /* scales, bias or result are not as whole numbers need them */
    LEAT_IN_FLOATS_COUNT
};
const char *leat_in_floats_text(enum leat_in_floats why);

struct leat_inspection_numbers {
    uint32_t products; /* QLinearConv, QLinearMatMul, and Conv, Gemm and MatMul of two results of DequantizeLinear */
    uint32_t in_floats[LEAT_IN_FLOATS_COUNT];
};

/* `file` is the graph before passes, the inspection that of what they made of it. */
LEAT_MUST_CHECK enum leat_status leat_inspection_numbers(const struct leat_inspection *inspection,
                                                         const struct leat_graph *file,
                                                         struct leat_inspection_numbers *ret_numbers);

/*
 * Runs it on `inputs`, as the graph has them, densely packed. mark(context, step) comes right before step 0, right behind each
 * step and so before the next, its argument counting up from 0; NULL: no marks. `team` has at least as many members as threads
 * were named; NULL does for one.
 */
LEAT_MUST_CHECK enum leat_status leat_inspection_run(struct leat_inspection *inspection, const void *const *inputs,
                                                     struct leat_team *team, void (*mark)(void *context, uint32_t count),
                                                     void *context);

#endif /* LEAT_KERNELS_CPU_INSPECT_H */
