/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/relief.h - which worker is to have other cores, because something disturbs it where it is.
 *
 * Role     A worker is disturbed when an instance that it runs is interfered (sched/instance.h): slower than its profile,
 *          and not for being at its peak; or when it begins its batches late (sched/lag.h). Once a second the one of them
 *          that has run most lately is moved: to free cores of its pool or, where these are too few, to those of the worker
 *          with as many there that has run least lately, half as much at the most, which gets its. Whatever is on its cores
 *          then disturbs nobody, or somebody less.
 * Rest     A verdict takes a while, and cores may all be as bad: who was moved stays for LEAT_RELIEF_REST looks, and for
 *          twice as many as the last time, up to LEAT_RELIEF_REST_MAX, when it has to move again within twice as many. Who
 *          could not be moved has no rest for it, and is tried again LEAT_RELIEF_RETRY looks later, and after twice as many
 *          each time that it fails again, up to LEAT_RELIEF_REST: others come between, however many there are that fail.
 * Units    Looks; time that workers ran in nanoseconds.
 * Threads  None of its own. Pure: it moves nobody.
 */
#ifndef LEAT_RUNTIME_RELIEF_H
#define LEAT_RUNTIME_RELIEF_H

#include <stdbool.h>
#include <stdint.h>

#define LEAT_RELIEF_REST     16u
#define LEAT_RELIEF_REST_MAX 256u
#define LEAT_RELIEF_RETRY    2u

struct leat_relief_worker {
    /* The caller's, for each look. */
    uint32_t pool;     /* whose cores it can have (runtime/cores.h) */
    uint32_t cores;    /* 0: it is parked */
    bool disturbed;
    bool fixed;        /* others have its cores too: it stays */
    uint64_t busy_ns;  /* that it ran so far */
    /* Kept from look to look; zeroes at first. */
    uint64_t seen_ns, lately_ns;
    uint32_t rest;  /* looks before it may move again */
    uint32_t last;  /* looks that it was to stay for, when it was moved last; 0: it never was */
    uint32_t since; /* looks since then */
    uint32_t retry; /* looks that it was to wait for when its last move failed; 0: that did not, or it was not disturbed since */
};

struct leat_relief_move {
    uint32_t worker;
    uint32_t other; /* that it changes places with; UINT32_MAX: to free cores */
};

/* One look at all workers; free_cores[pool]. False where all stay. What comes of the move is noted before the next look. */
bool leat_relief_look(struct leat_relief_worker *workers, uint32_t count, const uint32_t *free_cores,
                      struct leat_relief_move *ret_move);
void leat_relief_note(struct leat_relief_worker *workers, const struct leat_relief_move *move, bool moved);

#endif /* LEAT_RUNTIME_RELIEF_H */
