/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/clock.h - one time line in nanoseconds for every process on the box, read in ten of them.
 *
 * Role     The daemon calibrates the invariant TSC against CLOCK_MONOTONIC once and passes the result
 *          to its clients, so a stamp made in one process can be compared in another. Where the TSC
 *          is not invariant, both sides read CLOCK_MONOTONIC instead.
 * Units    Nanoseconds. Only differences over at most hours mean anything: the line drifts against
 *          CLOCK_MONOTONIC by the calibration error (parts in 10^5), so no absolute time of it ever
 *          reaches a user.
 * Threads  The struct is constant after init; any thread may read it.
 */
#ifndef LEAT_BASE_CLOCK_H
#define LEAT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum leat_clock_kind { LEAT_CLOCK_MONOTONIC = 0, LEAT_CLOCK_TSC = 1 };

struct leat_clock {
    uint32_t kind;     /* enum leat_clock_kind */
    uint32_t mult;     /* ns = ((ticks - base_ticks) * mult) >> 24, plus base_ns */
    uint64_t base_ticks;
    uint64_t base_ns;
};

#define LEAT_CLOCK_SHIFT 24

static inline uint64_t
leat_monotonic_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail: the id is valid, t is ours */
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static inline uint64_t
leat_clock_now(const struct leat_clock *clock)
{
#if defined(__x86_64__)
    if (clock->kind == LEAT_CLOCK_TSC) {
        __extension__ const unsigned __int128 ticks = __rdtsc() - clock->base_ticks;
        return (uint64_t)((ticks * clock->mult) >> LEAT_CLOCK_SHIFT) + clock->base_ns;
    }
#endif
    return leat_monotonic_ns();
}

/* Tells the core that this is a spin loop. */
static inline void
leat_spin_pause(void)
{
#if defined(__x86_64__)
    _mm_pause();
#endif
}

/* Measures the TSC rate for about 10 ms, or falls back to CLOCK_MONOTONIC where it is not invariant. */
void leat_clock_init(struct leat_clock *clock);

#endif /* LEAT_BASE_CLOCK_H */
