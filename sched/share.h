/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/share.h - how many workers an application may count on, where several are busy at once.
 *
 * Role      A policy that takes all workers for its application's own chooses variants that are too slow for the sum of the
 *           loads. Each gets the part that its demand is of all: equal shares of what is asked leave each the same headroom.
 * Demand    Workers' time asked for in a unit of time, in thousandths of a worker. Of an application whose selector goes by the
 *           number of workers (flexible) it is what the load takes at the least, in the variant and batch that are fastest
 *           for an item: what it takes now would only say how much it was given. Of the others it is what they take. What is
 *           offline or late takes what is left, and asks for nothing.
 * Division  Others' demand is theirs; what is left is divided among the flexible ones in proportion, one worker at the least. If
 *           little is left, all is divided in proportion among all, so that whoever asks too much takes from everybody.
 * Change    Demands are means of which the last look is a half; the first look at one that asked for nothing counts whole, and gives
 *           it its part at once. From then on what is in force changes when the part has been another one for three looks
 *           running: by a quarter, and by three quarters of a worker; or when it is all, to the last.
 * Sum       Shares of those that ask add up to the workers at most, where a worker for whoever's part is less than one does not
 *           count: whoever has most beyond its part gives one up, at once, until they do.
 * Numerics  Integers.
 */
#ifndef LEAT_SCHED_SHARE_H
#define LEAT_SCHED_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#define LEAT_SHARE_DEMAND_MAX UINT64_C(1000000000) /* of one application; what is more counts as that */
#define LEAT_SHARE_LOOKS      3u

struct leat_share {
    uint32_t workers; /* in force */
    uint32_t looks;   /* in a row at which it was to be another */
    bool busy;        /* it asked for something at the last division */
    uint64_t demand_permille;
};

/* A look that saw this demand. */
void leat_share_look(struct leat_share *share, uint64_t seen_permille);

/*
 * Once after each look: divides worker_count workers, of which others ask for other_permille, among all flexible applications,
 * 2^16 at most. Who asks for nothing keeps what there is; `workers` of the others becomes 1..worker_count.
 */
void leat_share_divide(struct leat_share *const shares[], uint32_t count, uint64_t other_permille, uint32_t worker_count);

#endif /* LEAT_SCHED_SHARE_H */
