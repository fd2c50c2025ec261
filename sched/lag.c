/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/lag.h"

#define STEP       64u /* a part of it */
#define MUCH_TIMES 8u
#define LAG_MAX_NS (UINT64_C(1) << 40) /* beyond, it makes no difference */

static void
learn(struct leat_lag_usual *usual, const struct leat_lag_begin *begin)
{
    uint64_t *lag_ns = &usual->lag_ns[begin->slept];

    if (usual->learned[begin->slept]++ == 0) {
        *lag_ns = begin->lag_ns;
    } else if (begin->lag_ns > *lag_ns) {
        *lag_ns += *lag_ns / STEP + 1;
    } else {
        *lag_ns -= *lag_ns / STEP * 3;
    }
    *lag_ns = *lag_ns < LAG_MAX_NS ? *lag_ns : LAG_MAX_NS;
    usual->learned[begin->slept] -= usual->learned[begin->slept] > LEAT_LAG_LEARNED;
}

static bool
is_late(const struct leat_lag_usual *usual, const struct leat_lag_begin *begin)
{
    return usual->learned[begin->slept] == LEAT_LAG_LEARNED &&
           begin->lag_ns > MUCH_TIMES * usual->lag_ns[begin->slept] + LEAT_LAG_ALLOWANCE_NS &&
           begin->lag_ns - begin->lag_ns / 3 > begin->profiled_ns;
}

void
leat_lag_note(struct leat_lag *lag, struct leat_lag_usual *usual, const struct leat_lag_begin *begin)
{
    lag->batches++;
    lag->late += is_late(usual, begin);
    learn(usual, begin);
    if (lag->batches == LEAT_LAG_BATCHES) {
        *lag = (struct leat_lag){.behind = lag->late > LEAT_LAG_LATE_MAX};
    }
}

void
leat_lag_age(struct leat_lag *lag)
{
    if (++lag->quiet >= LEAT_LAG_QUIET) {
        *lag = (struct leat_lag){0};
    }
}
