/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/lag.h - whether a worker begins what it is handed much later than workers do here.
 *
 * Role       Batches shorter than a slice of the kernel's scheduler run undisturbed beside whatever else wants their core:
 *            their worker is kept from waking instead, and queries wait where no profile shows it. Who was awake and who
 *            slept have each their own usual lag, from hand-over to begin, which is learned of all workers together.
 * Usual      Three of four hand-overs lag more. It goes up by a part in 64 with each of these and down by three with each
 *            of the others, so it stays what it is while fewer than three of four workers are disturbed. What holds for all
 *            of them becomes usual, and is no reason to move anybody; one that is alone is only compared with itself
 *            before.
 * Verdict    A batch is late that lags eight times as much as is usual and LEAT_LAG_ALLOWANCE_NS besides, and by more than
 *            one and a half times what it should run: it takes as long as one that runs 2.5 times as long, which is
 *            interference (sched/instance.h). Of LEAT_LAG_BATCHES more than LEAT_LAG_LATE_MAX are late where the worker is
 *            behind: a healthy one's lags are spread like all others', so some are late by chance, but not nearly all.
 * Evidence   Batches that were handed to a worker which had none. Behind others there is nothing to wake, and a worker that
 *            is busy all the time is disturbed within its batches too. After LEAT_LAG_QUIET intervals without a verdict all
 *            is forgotten.
 * Departures The allowance is not learned: who rests long is woken from deeper idle states of its processor, which takes
 *            hundreds of microseconds, than others from whom what is usual is learned.
 * Cost       Additions and a comparison or two a batch.
 * Units      Nanoseconds.
 * Threads    One owner.
 */
#ifndef LEAT_SCHED_LAG_H
#define LEAT_SCHED_LAG_H

#include <stdbool.h>
#include <stdint.h>

#define LEAT_LAG_ALLOWANCE_NS UINT64_C(500000)
#define LEAT_LAG_BATCHES      16u
#define LEAT_LAG_LATE_MAX     12u
#define LEAT_LAG_LEARNED      256u /* hand-overs of a kind, before which nothing is late */
#define LEAT_LAG_QUIET        10u

/* Of all workers; zeroes at first. */
struct leat_lag_usual {
    uint64_t lag_ns[2]; /* of who was awake, of who slept */
    uint32_t learned[2];
};

/* Of one; zeroes at first. */
struct leat_lag {
    uint8_t batches, late; /* since the last verdict */
    uint8_t quiet;         /* intervals since */
    bool behind;           /* the last verdict */
};

struct leat_lag_begin {
    bool slept;
    uint64_t lag_ns;
    uint64_t profiled_ns; /* what the batch should run */
};

/* A batch has begun. */
void leat_lag_note(struct leat_lag *lag, struct leat_lag_usual *usual, const struct leat_lag_begin *begin);

/* Once an interval. */
void leat_lag_age(struct leat_lag *lag);

#endif /* LEAT_SCHED_LAG_H */
