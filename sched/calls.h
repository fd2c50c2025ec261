/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/calls.h - how many items a stage of a pipeline is asked for each item of the first stage, lately.
 *
 * Role     By how many came to both since the last count, not by their rates: whoever looks late, seldom or at one stage
 *          after the other counts in a later look what one lacks. What is asked of the stage beside the pipeline counts as
 *          well, for its workers serve that too.
 * Memory   The mean at first; half of what is known is of the last LEAT_CALLS_ITEMS items of the first stage, then.
 * Threads  One owner.
 */
#ifndef LEAT_SCHED_CALLS_H
#define LEAT_SCHED_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#define LEAT_CALLS_ITEMS 256u
#define LEAT_CALLS_MIN   (1.0 / 64)
#define LEAT_CALLS_MAX   64.0

struct leat_calls {
    double each;  /* LEAT_CALLS_MIN..LEAT_CALLS_MAX */
    double known; /* items of the first stage that it is known of, LEAT_CALLS_ITEMS at most */
    uint64_t first_seen, own_seen;
    bool seen;
};
#define LEAT_CALLS_INIT {.each = 1}

/*
 * Items that came so far to the first stage and were not refused there, and that came to this one. Either less than before:
 * another application is there.
 */
void leat_calls_count(struct leat_calls *calls, uint64_t first, uint64_t own);

#endif /* LEAT_SCHED_CALLS_H */
