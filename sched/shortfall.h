/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/shortfall.h - how much more than what comes is to be planned for, since what should do did not.
 *
 * Role     Who plans cores goes by rates and by what batches take. Load that comes in bursts, a selector that makes other
 *          batches than were planned with, or whatever else no plan knows shows in the queries that are late though the plan
 *          says that all are in time: then demand counts for more, step by step, until they are not.
 * Up       By as much as was late, an eighth at the least, twice at the most, where in LEAT_SHORTFALL_LOOKS looks in a row with nothing
 *          under way more than one in LEAT_SHORTFALL_LATE was, and there is something left to give.
 * Down     By an eighth after ten such spells in a row in which that was not so; when one step down was followed by
 *          a step up, after twice as many from then on, up to 640.
 * Threads  One owner.
 */
#ifndef LEAT_SCHED_SHORTFALL_H
#define LEAT_SCHED_SHORTFALL_H

#include <stdbool.h>
#include <stdint.h>

#define LEAT_SHORTFALL_LOOKS 10u
#define LEAT_SHORTFALL_LATE  20u
#define LEAT_SHORTFALL_MAX   4.0

struct leat_shortfall {
    double factor; /* of demand: 1..LEAT_SHORTFALL_MAX */
    uint32_t looks; /* of this spell */
    uint32_t calm, patience; /* spells in a row without reason to step up; before a step down */
    bool stepped_down; /* last */
    uint64_t queries_seen, late_seen; /* when the spell began */
};
#define LEAT_SHORTFALL_INIT {.factor = 1, .patience = 10}

/*
 * Queries that came so far, and those that were refused, expired or waited too long though one alone would have been in time.
 * settled: all that was decided is in force, and was at the last look; more: workers or cores are left.
 */
void leat_shortfall_look(struct leat_shortfall *shortfall, uint64_t queries, uint64_t late, bool settled, bool more);

#endif /* LEAT_SCHED_SHORTFALL_H */
