/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A worker that is kept from waking is behind while it is, however short its batches; one that is as quick or slow
 *          to wake as the others never is, idle or busy, on machines that are quick to wake their threads and on such as
 *          are not; nor are any where all are disturbed alike for long.
 * Method   Random machines, each with its own times of waking, their spread, and stalls now and then; workers that are
 *          asleep the more often the less they have to do. Then rules at their limits.
 */
#include "sched/lag.h"
#include "tests/leat_test.h"

#include <math.h>
#include <string.h>

#include "base/align.h"

enum { WORKERS_MAX = 8, MACHINES = 400, HAND_OVERS = 20000 };
#define SLICE_NS 3000000.0 /* of a scheduler, and more: until whoever has the core lets go */

static uint64_t random_state;

static double
uniform(void)
{
    return ((double)(leat_test_random(&random_state) >> 11) + 0.5) * 0x1p-53;
}

/* With this median; the logarithm is spread by a normal distribution. */
static double
spread_about(double median, double spread)
{
    return median * exp(spread * sqrt(-2 * log(uniform())) * cos(2 * M_PI * uniform()));
}

static struct machine {
    double lag_ns[2], spread, stall_share;
    uint32_t count;
    double asleep[WORKERS_MAX]; /* how often each is, when it gets a batch */
    double disturbed;           /* how often the first is kept from running */
    bool all_disturbed;
    struct leat_lag lags[WORKERS_MAX];
    struct leat_lag_usual usual;
    uint64_t profiled_ns;
} machine;

static void
draw_machine(void)
{
    memset(&machine, 0, sizeof(machine));
    machine.count = 1 + (uint32_t)(uniform() * WORKERS_MAX);
    machine.lag_ns[false] = exp(log(100) + uniform() * log(50));    /* 0.1 to 5 us */
    machine.lag_ns[true] = exp(log(5000) + uniform() * log(400));   /* 5 us to 2 ms */
    machine.spread = uniform();
    machine.stall_share = 0.05 * uniform();
    machine.profiled_ns = (uint64_t)exp(log(2000) + uniform() * log(500)); /* 2 us to 1 ms */
    for (uint32_t w = 0; w < machine.count; w++) {
        machine.asleep[w] = w % 3 == 0 ? uniform() : w % 3 == 1 ? 1 : 0.01;
    }
}

static void
hand_over(uint32_t w)
{
    const bool slept = uniform() < machine.asleep[w];
    double lag_ns = spread_about(machine.lag_ns[slept], machine.spread);

    if (uniform() < machine.stall_share) {
        lag_ns += 20e6 * uniform();
    }
    if ((w == 0 || machine.all_disturbed) && uniform() < machine.disturbed) {
        lag_ns += SLICE_NS * (1 + uniform());
    }
    leat_lag_note(&machine.lags[w], &machine.usual,
                  &(struct leat_lag_begin){.slept = slept, .lag_ns = (uint64_t)lag_ns, .profiled_ns = machine.profiled_ns});
}

/* Who is behind during so many hand-overs to whoever comes, as bits. */
static uint32_t
hand_over_many(uint32_t hand_overs)
{
    uint32_t behind = 0;

    for (uint32_t i = 0; i < hand_overs; i++) {
        const uint32_t w = (uint32_t)(uniform() * machine.count);
        hand_over(w);
        behind |= (uint32_t)machine.lags[w].behind << w;
    }
    return behind;
}

static void
test_healthy(void)
{
    for (uint32_t m = 0; m < MACHINES; m++) {
        draw_machine();
        EXPECT(hand_over_many(HAND_OVERS) == 0);
        machine.asleep[0] = 0; /* what it has to do changes */
        EXPECT(hand_over_many(HAND_OVERS) == 0);
        machine.asleep[0] = 1;
        EXPECT(hand_over_many(HAND_OVERS) == 0);
    }
}

static void
test_disturbed(void)
{
    for (uint32_t m = 0; m < MACHINES; m++) {
        draw_machine();
        machine.count = 2 + m % (WORKERS_MAX - 1);
        for (uint32_t w = 0; w < machine.count; w++) {
            machine.asleep[w] = 0.9;
        }
        machine.lag_ns[true] = fmin(machine.lag_ns[true], SLICE_NS / 40); /* else a slice is nothing unusual */
        EXPECT(hand_over_many(HAND_OVERS) == 0);
        machine.disturbed = 0.98;
        (void)hand_over_many(4 * LEAT_LAG_BATCHES * machine.count);
        uint32_t found = 0;
        for (uint32_t i = 0; i < 100; i++) {
            const uint32_t behind = hand_over_many(LEAT_LAG_BATCHES * machine.count);
            EXPECT((behind & ~1u) == 0);
            found += behind == 1 && machine.lags[0].behind;
        }
        EXPECT(found >= 95); /* it may be quick by chance */
        machine.disturbed = 0;
        (void)hand_over_many(8 * LEAT_LAG_BATCHES * machine.count);
        EXPECT(hand_over_many(HAND_OVERS) == 0);
        machine.disturbed = 0.98; /* on all cores it becomes usual */
        machine.all_disturbed = true;
        (void)hand_over_many(HAND_OVERS);
        EXPECT(hand_over_many(HAND_OVERS) == 0);
    }
}

/* So many hand-overs that lag as long. */
static bool
note(uint32_t count, uint64_t lag_ns, uint64_t profiled_ns)
{
    for (uint32_t i = 0; i < count; i++) {
        leat_lag_note(&machine.lags[0], &machine.usual,
                      &(struct leat_lag_begin){.lag_ns = lag_ns, .profiled_ns = profiled_ns});
    }
    return machine.lags[0].behind;
}

static void
begin_at(uint64_t usual_ns)
{
    memset(&machine, 0, sizeof(machine));
    machine.usual = (struct leat_lag_usual){.lag_ns = {usual_ns}, .learned = {LEAT_LAG_LEARNED}};
}

static void
test_limits(void)
{
    static const struct {
        uint64_t usual_ns, lag_ns, profiled_ns;
        uint32_t late;
        bool behind;
    } cases[] = {
        {64, 8 * 64 + LEAT_LAG_ALLOWANCE_NS + 1000, 1000, 13, true},
        {64, 8 * 64 + LEAT_LAG_ALLOWANCE_NS + 1000, 1000, 12, false},
        {64, 8 * 64 + LEAT_LAG_ALLOWANCE_NS, 1000, 16, false},
        {1000000, 11500000, 1000, 16, true}, /* beside what is usual, which rises meanwhile */
        {1000000, 8400000, 1000, 16, false},
        {64, 3000003, 2000000, 16, true}, /* a half more than the batch should run */
        {64, 3000000, 2000000, 16, false},
    };

    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        begin_at(cases[c].usual_ns);
        EXPECT(!note(LEAT_LAG_BATCHES - cases[c].late, 0, cases[c].profiled_ns));
        EXPECT(note(cases[c].late, cases[c].lag_ns, cases[c].profiled_ns) == cases[c].behind);
    }
}

/* Nothing is late before it is known what is usual; a verdict that nothing confirms is forgotten, with what led to it. */
static void
test_evidence(void)
{
    memset(&machine, 0, sizeof(machine));
    EXPECT(!note(1, 64, 1000));
    for (uint32_t i = 1; i < LEAT_LAG_LEARNED; i++) {
        EXPECT(!note(1, UINT64_MAX, 1000) && machine.lags[0].late == 0);
    }
    EXPECT(!note(1, UINT64_MAX, 1000) && machine.usual.lag_ns[true] == 0);
    begin_at(64);
    EXPECT(note(LEAT_LAG_BATCHES, 5000000, 1000));
    EXPECT(note(LEAT_LAG_BATCHES - 1, 5000000, 1000));
    for (uint32_t i = 1; i < LEAT_LAG_QUIET; i++) {
        leat_lag_age(&machine.lags[0]);
        EXPECT(machine.lags[0].behind);
    }
    leat_lag_age(&machine.lags[0]);
    EXPECT(!machine.lags[0].behind && !note(1, 5000000, 1000));
    EXPECT(note(LEAT_LAG_BATCHES - 1, 5000000, 1000));
    EXPECT(!note(LEAT_LAG_BATCHES, 0, 1000));
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    test_limits();
    test_evidence();
    test_healthy();
    test_disturbed();
    return 0;
}
