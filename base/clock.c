/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdbool.h>

static bool
tsc_is_invariant(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(0x80000007u, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1u << 8)) != 0;
}

/* One (ticks, ns) pair whose two readings lie closest together out of several tries. */
static void
read_pair(uint64_t *ticks, uint64_t *ns)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 16; i++) {
        const uint64_t before = __rdtsc();
        const uint64_t middle_ns = leat_monotonic_ns();
        const uint64_t after = __rdtsc();
        if (after - before < best) {
            best = after - before;
            *ticks = before + (after - before) / 2;
            *ns = middle_ns;
        }
    }
}
#endif

void
leat_clock_init(struct leat_clock *clock)
{
    *clock = (struct leat_clock){.kind = LEAT_CLOCK_MONOTONIC};
#if defined(__x86_64__)
    if (!tsc_is_invariant()) {
        return;
    }
    uint64_t ticks0 = 0, ns0 = 0, ticks1 = 0, ns1 = 0;
    read_pair(&ticks0, &ns0);
    while (leat_monotonic_ns() - ns0 < UINT64_C(10000000)) {
        leat_spin_pause();
    }
    read_pair(&ticks1, &ns1);
    if (ticks1 <= ticks0 || ns1 <= ns0) {
        return; /* a TSC that runs backwards is no clock */
    }
    const uint64_t mult = ((ns1 - ns0) << LEAT_CLOCK_SHIFT) / (ticks1 - ticks0);
    if (mult == 0 || mult > UINT32_MAX) {
        return;
    }
    *clock = (struct leat_clock){LEAT_CLOCK_TSC, (uint32_t)mult, ticks1, ns1};
#endif
}
