/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/lag.h"

#define STEP       64u /* a part of it */
#define MUCH_TIMES 8u
#define LAG_MAX_NS (UINT64_C(1) << 40) /* beyond, it makes no difference */
#define UNKNOWN    UINT64_MAX

static void
learn(struct leat_lag *lag, const struct leat_lag_begin *begin)
{
    uint64_t *usual_ns = &lag->usual_ns[begin->slept];

    if (lag->learned[begin->slept] == 0) {
        *usual_ns = begin->lag_ns;
    } else if (begin->lag_ns > *usual_ns) {
        *usual_ns += *usual_ns / STEP + 1;
    } else {
        *usual_ns -= *usual_ns / STEP * 3;
    }
    *usual_ns = *usual_ns < LAG_MAX_NS ? *usual_ns : LAG_MAX_NS;
    lag->learned[begin->slept] += lag->learned[begin->slept] < LEAT_LAG_LEARNED;
}

static uint64_t
of_others(const struct leat_lag_usual *usual, uint32_t worker, bool slept)
{
    const bool least = usual->known[slept] > 0 && usual->least_of[slept] != worker;

    return least ? usual->least_ns[slept] : usual->known[slept] > 1 ? usual->second_ns[slept] : UNKNOWN;
}

static bool
is_much(uint64_t lag_ns, uint64_t usual_ns)
{
    return usual_ns != UNKNOWN && lag_ns > MUCH_TIMES * usual_ns + LEAT_LAG_ALLOWANCE_NS;
}

static bool
is_late(const struct leat_lag_usual *usual, uint32_t worker, const struct leat_lag_begin *begin)
{
    const uint64_t slept_ns = of_others(usual, worker, true);
    const uint64_t awake_ns = begin->slept ? UNKNOWN : of_others(usual, worker, false);

    return is_much(begin->lag_ns, awake_ns < slept_ns ? awake_ns : slept_ns) &&
           begin->lag_ns - begin->lag_ns / 3 > begin->profiled_ns;
}

static bool
is_unlike(const struct leat_lag *lag, const struct leat_lag_begin *begin)
{
    return lag->learned[begin->slept] > 0 && is_much(begin->lag_ns, lag->usual_ns[begin->slept]);
}

void
leat_lag_note(struct leat_lag *lag, uint32_t worker, const struct leat_lag_usual *usual,
              const struct leat_lag_begin *begin)
{
    lag->batches++;
    lag->late += is_late(usual, worker, begin);
    lag->unlike += is_unlike(lag, begin);
    learn(lag, begin);
    if (lag->batches == LEAT_LAG_BATCHES) {
        if (lag->unlike > LEAT_LAG_LATE_MAX) {
            lag->learned[false] = lag->learned[true] = 0;
        }
        lag->behind = lag->late > LEAT_LAG_LATE_MAX;
        lag->batches = lag->late = lag->unlike = lag->quiet = 0;
    }
}

static void
gather(struct leat_lag_usual *usual, uint32_t worker, bool slept, uint64_t usual_ns)
{
    const bool first = usual->known[slept]++ == 0;

    if (first || usual_ns < usual->least_ns[slept]) {
        usual->second_ns[slept] = first ? UNKNOWN : usual->least_ns[slept];
        usual->least_ns[slept] = usual_ns;
        usual->least_of[slept] = worker;
    } else if (usual_ns < usual->second_ns[slept]) {
        usual->second_ns[slept] = usual_ns;
    }
}

void
leat_lag_age(struct leat_lag *lag, uint32_t worker, struct leat_lag_usual *usual)
{
    if (++lag->quiet >= LEAT_LAG_QUIET) {
        *lag = (struct leat_lag){0};
    }
    for (uint32_t slept = 0; slept < 2; slept++) {
        if (lag->learned[slept] == LEAT_LAG_LEARNED) {
            gather(usual, worker, slept != 0, lag->usual_ns[slept]);
        }
    }
}
