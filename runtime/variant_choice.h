/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/variant_choice.h - which variants of a model are worth having, from what was measured of them: pure rules.
 *
 * Role     The largest batch is doubled while that pays: until no class of workers does 5 % more items a second by it in
 *          time, or memory ends. Up to 8 items it is enough to be in time: queries have several, and what it costs to hand
 *          over a batch is not in these times. A variant in another precision is kept if it is faster somewhere, and
 *          accurate enough.
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
    LEAT_BATCH_LIMIT,   /* LEAT_ITEMS_MAX */
    LEAT_BATCH_BOUND_COUNT,
};

/* One size on one class of workers. */
struct leat_batch_times {
    uint64_t p50_ns; /* what throughput goes by; at least 1 */
    uint64_t p95_ns; /* what has to be in time */
};

struct leat_batch_choice {
    uint64_t latency_max_ns, bytes_max; /* the caller's, set before the first size */
    uint32_t class_count;
    uint32_t items; /* the largest batch that pays, so far; 0 before the first size */
    enum leat_batch_bound bound;
    struct {
        uint32_t items;
        uint64_t p50_ns;
    } best[LEAT_SCHED_CLASSES_MAX]; /* the last size that was faster there, and in time */
};

/* Is there memory for batches of so many? One item always has it. False: that is the bound. */
bool leat_batch_choice_fits(struct leat_batch_choice *choice, uint32_t items, uint64_t bytes);

/*
 * Takes what batches of so many items take on each class: of 1 first, then of twice as many as before. True: twice as many
 * are to be looked at too. False: `items` and `bound` are the answer.
 */
bool leat_batch_choice_take(struct leat_batch_choice *choice, uint32_t items, const struct leat_batch_times *times);

/* One word: given, gain, latency, memory or limit. */
const char *leat_batch_bound_text(enum leat_batch_bound bound);
bool leat_batch_bound_find(const char *text, enum leat_batch_bound *ret_bound);

/* What is known of a variant on one class of workers. */
struct leat_variant_speed {
    uint64_t one_ns; /* a batch of one */
    uint64_t full_ns; /* one of `items` */
    uint32_t items;
};

enum leat_variant_verdict {
    LEAT_VARIANT_KEPT,
    LEAT_VARIANT_INACCURATE,
    LEAT_VARIANT_SLOW, /* nowhere faster */
};

/*
 * Is the other one worth having beside the first, which is as the file is? Both by class of workers. It is not when its
 * accuracy is lower by more than max_loss_ppm, nor when one item takes it as long everywhere and its throughput is no better.
 */
enum leat_variant_verdict leat_variant_judge(const struct leat_variant_speed *first, uint32_t first_ppm,
                                             const struct leat_variant_speed *other, uint32_t other_ppm,
                                             uint32_t class_count, uint32_t max_loss_ppm);

#endif /* LEAT_RUNTIME_VARIANT_CHOICE_H */
