/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/variant_choice.h - which variants of a model are worth having, from what was measured of them: pure rules.
 *
 * Role     What goes by the time of a size is the least of its runs: of all that may happen to a run on a machine that others
 *          use too, nothing makes it faster. The runs of all sizes and precisions take turns, so that a machine that is slow
 *          for a while is slow for all of them.
 *          The largest batch is doubled while that pays: until no class of workers does 5 % more items a second by it in
 *          time, or memory ends. Up to 8 items it is enough to be in time: queries have several, and what it costs to hand
 *          over a batch is not in these times. With each size more, and once more before it ends there, all
 *          sizes are measured anew, for a machine may be another by then; one that paid in one of these rounds is taken.
 *          A variant in another precision is kept if there is a size, measured of both, at which it is 5 % faster, and if it
 *          is accurate enough. What a larger batch of the first does in no more time does not count as faster.
 * Units    Nanoseconds, items, bytes, millionths.
 * Threads  One thread at a time for each struct.
 */
#ifndef LEAT_RUNTIME_VARIANT_CHOICE_H
#define LEAT_RUNTIME_VARIANT_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include <leat/tensor.h>

#include "sched/policy.h"

#define LEAT_CHOICE_GAIN_PERCENT 5u /* more items a second, or less time, is faster */
#define LEAT_CHOICE_FREE_ITEMS   8u /* batches of so many need not be faster */

/* Why a largest batch is not larger. */
enum leat_batch_bound {
    LEAT_BATCH_GIVEN,   /* whoever added the model said so */
    LEAT_BATCH_GAIN,    /* twice as many are hardly faster */
    LEAT_BATCH_LATENCY, /* they take longer than is allowed */
    LEAT_BATCH_MEMORY,
    LEAT_BATCH_LIMIT,   /* LEAT_ITEMS_MAX, or as many as an answer can tell the sizes of */
    LEAT_BATCH_BOUND_COUNT,
};

#define LEAT_CHOICE_SIZES 17u /* 1, 2, 4 .. LEAT_ITEMS_MAX */
_Static_assert(LEAT_ITEMS_MAX == 1u << (LEAT_CHOICE_SIZES - 1), "every power of two has its place");

struct leat_batch_choice {
    uint64_t latency_max_ns, bytes_max; /* the caller's, set before the first size, as these are */
    uint32_t class_count;
    uint32_t items_given; /* the largest batch, where it is not to be chosen; else 0 */
    uint32_t items_limit; /* a power of two; 0: LEAT_ITEMS_MAX */
    uint64_t least_ns[LEAT_CHOICE_SIZES][LEAT_SCHED_CLASSES_MAX]; /* the caller's: what 2^s items take; at least 1 */
    uint32_t size_count; /* the caller's: those that were measured */
    bool full; /* there is no memory for twice as many as the last one */
    uint32_t items; /* the largest batch that pays, of the sizes measured; 0 before the first, and never less than before */
    enum leat_batch_bound bound;
};

/* Is there memory for batches of so many? One item always has it. False: larger ones have none either. */
bool leat_batch_choice_fits(struct leat_batch_choice *choice, uint32_t items, uint64_t bytes);

/* Sets `items` and `bound` from at least one size. True: twice as many as the last one are to be looked at too. */
bool leat_batch_choice_decide(struct leat_batch_choice *choice);

/* One word: given, gain, latency, memory or limit. */
const char *leat_batch_bound_text(enum leat_batch_bound bound);
bool leat_batch_bound_find(const char *text, enum leat_batch_bound *ret_bound);

enum leat_variant_verdict {
    LEAT_VARIANT_KEPT,
    LEAT_VARIANT_INACCURATE,
    LEAT_VARIANT_SLOW, /* nowhere faster */
};

/*
 * Is the other one worth having beside the first, which is as the file is? It is not when its accuracy is lower by more than
 * max_loss_ppm, nor when it is faster at none of the sizes that were measured of both and that it would serve. Both were decided.
 */
enum leat_variant_verdict leat_variant_judge(const struct leat_batch_choice *first, uint32_t first_ppm,
                                             const struct leat_batch_choice *other, uint32_t other_ppm, uint32_t max_loss_ppm);

#endif /* LEAT_RUNTIME_VARIANT_CHOICE_H */
