/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/worker_set.h - a set of workers, a bit for each. */
#ifndef LEAT_RUNTIME_WORKER_SET_H
#define LEAT_RUNTIME_WORKER_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/policy.h"

#define LEAT_WORKER_SET_WORDS (LEAT_SCHED_WORKERS_MAX / 64)
_Static_assert(LEAT_SCHED_WORKERS_MAX % 64 == 0, "words are full");

struct leat_worker_set {
    uint64_t words[LEAT_WORKER_SET_WORDS];
};

static inline bool
leat_worker_set_has(const struct leat_worker_set *set, uint32_t worker)
{
    return (set->words[worker / 64] >> worker % 64 & 1) != 0;
}

static inline void
leat_worker_set_put(struct leat_worker_set *set, uint32_t worker, bool in)
{
    uint64_t *word = &set->words[worker / 64];
    *word = (*word & ~(UINT64_C(1) << worker % 64)) | (uint64_t)in << worker % 64;
}

static inline void
leat_worker_set_add(struct leat_worker_set *set, const struct leat_worker_set *more)
{
    for (uint32_t i = 0; i < LEAT_WORKER_SET_WORDS; i++) {
        set->words[i] |= more->words[i];
    }
}

/* Those of a set that are not in the other. */
static inline struct leat_worker_set
leat_worker_set_without(const struct leat_worker_set *set, const struct leat_worker_set *less)
{
    struct leat_worker_set left;
    for (uint32_t i = 0; i < LEAT_WORKER_SET_WORDS; i++) {
        left.words[i] = set->words[i] & ~less->words[i];
    }
    return left;
}

static inline bool
leat_worker_set_is_empty(const struct leat_worker_set *set)
{
    uint64_t any = 0;
    for (uint32_t i = 0; i < LEAT_WORKER_SET_WORDS; i++) {
        any |= set->words[i];
    }
    return any == 0;
}

/* Is any worker in both? */
static inline bool
leat_worker_set_meet(const struct leat_worker_set *a, const struct leat_worker_set *b)
{
    uint64_t common = 0;
    for (uint32_t i = 0; i < LEAT_WORKER_SET_WORDS; i++) {
        common |= a->words[i] & b->words[i];
    }
    return common != 0;
}

/* How many workers are in both. */
static inline uint32_t
leat_worker_set_count_common(const struct leat_worker_set *a, const struct leat_worker_set *b)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < LEAT_WORKER_SET_WORDS; i++) {
        const uint64_t common = a->words[i] & b->words[i];
        count += common != 0 ? (uint32_t)__builtin_popcountll(common) : 0; /* a call, where the processor may be any */
    }
    return count;
}

#endif /* LEAT_RUNTIME_WORKER_SET_H */
