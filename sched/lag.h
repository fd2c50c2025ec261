/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/lag.h - whether a worker begins what it is handed much later than workers do here.
 *
 * Role       Batches shorter than a slice of the kernel's scheduler run undisturbed beside whatever else wants their core:
 *            their worker is kept from waking instead, and queries wait where no profile shows it. Who was awake and who
 *            slept have each their own usual lag, from hand-over to begin.
 * Usual      Of each worker three of four hand-overs lag more. It goes up by a part in 64 with each of these and down by
 *            three with each of the others. A worker is compared with the least of the others', as it was at the end of the
 *            last interval, so it does not matter who gets most of the hand-overs; who was awake also with what is usual
 *            of those who slept, where that is less or all there is. What holds for all becomes usual, and is no reason to
 *            move anybody. One that is alone, or is the only one that gets batches, is not compared.
 * Verdict    A batch is late that lags eight times as much as is usual and LEAT_LAG_ALLOWANCE_NS besides, and by more than
 *            one and a half times what it should run: it takes as long as one that runs 2.5 times as long, which is
 *            interference (sched/instance.h). Of LEAT_LAG_BATCHES more than LEAT_LAG_LATE_MAX are late where the worker is
 *            behind: a healthy one's lags are spread like all others', so some are late by chance, but not nearly all.
 * Evidence   Batches that were handed to a worker which had none. Behind others there is nothing to wake, and a worker that
 *            is busy all the time is disturbed within its batches too. Where as many of them are late by what is usual of
 *            the worker itself, that is so no more, and learned anew: else who seldom gets batches would keep the others
 *            behind. After LEAT_LAG_QUIET intervals without a verdict all of a worker is forgotten.
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
#define LEAT_LAG_LEARNED      256u /* hand-overs of a kind, before which nothing is usual */
#define LEAT_LAG_QUIET        10u

/* Of one; zeroes at first. Kinds: who was awake, who slept. */
struct leat_lag {
    uint64_t usual_ns[2];
    uint32_t learned[2];   /* hand-overs, LEAT_LAG_LEARNED at most */
    uint8_t batches, late; /* since the last verdict */
    uint8_t unlike;        /* of these, late by what was usual of it */
    uint8_t quiet;         /* intervals since */
    bool behind;           /* the last verdict */
};

/* The least of what is usual of each worker, by kind; zeroes: nothing is known. */
struct leat_lag_usual {
    uint64_t least_ns[2], second_ns[2];
    uint32_t least_of[2]; /* whose the least is */
    uint32_t known[2];    /* of how many workers it is known */
};

struct leat_lag_begin {
    bool slept;
    uint64_t lag_ns;
    uint64_t profiled_ns; /* what the batch should run */
};

/* A batch has begun on the worker of this number. */
void leat_lag_note(struct leat_lag *lag, uint32_t worker, const struct leat_lag_usual *usual,
                   const struct leat_lag_begin *begin);

/* Once an interval, of all workers one after the other. What is usual is gathered anew: from zeroes. */
void leat_lag_age(struct leat_lag *lag, uint32_t worker, struct leat_lag_usual *usual);

#endif /* LEAT_SCHED_LAG_H */
