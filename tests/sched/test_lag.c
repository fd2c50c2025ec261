/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A worker that is kept from waking is behind while it is, however short its batches; one that is as quick or slow
 *          to wake as the others never is, idle or busy, on machines that are quick to wake their threads and on such as
 *          are not; nor are any where all are disturbed alike for long.
 *          So it is whoever gets most of the hand-overs.
 * Method   Random machines, each with its own times of waking, their spread, and stalls now and then; workers that are
 *          asleep the more often the less they have to do. Then rules at their limits.
 */
#include "sched/lag.h"
#include "tests/leat_test.h"

#include <math.h>
#include <string.h>

#include "base/align.h"

enum { WORKERS_MAX = 8, MACHINES = 200, HAND_OVERS = 20000, INTERVAL = 500 };
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
    double first;               /* how often one gets it before those that follow; 0: whoever comes */
    uint32_t hand_overs;
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
    machine.first = uniform() < 0.5 ? 0 : 0.4 + 0.5 * uniform();
    for (uint32_t w = 0; w < machine.count; w++) {
        machine.asleep[w] = w % 3 == 0 ? uniform() : w % 3 == 1 ? 1 : 0.01;
    }
}

static void
age(void)
{
    machine.usual = (struct leat_lag_usual){0};
    for (uint32_t w = 0; w < machine.count; w++) {
        leat_lag_age(&machine.lags[w], w, &machine.usual);
    }
}

static uint32_t
whose_turn(void)
{
    uint32_t w = 0;

    if (machine.first == 0) {
        return (uint32_t)(uniform() * machine.count);
    }
    while (w + 1 < machine.count && uniform() > machine.first) {
        w++;
    }
    return w;
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
    leat_lag_note(&machine.lags[w], w, &machine.usual,
                  &(struct leat_lag_begin){.slept = slept, .lag_ns = (uint64_t)lag_ns, .profiled_ns = machine.profiled_ns});
    if (++machine.hand_overs % INTERVAL == 0) {
        age();
    }
}

/* Who is behind during so many hand-overs, as bits. */
static uint32_t
hand_over_many(uint32_t hand_overs)
{
    uint32_t behind = 0;

    for (uint32_t i = 0; i < hand_overs; i++) {
        const uint32_t w = whose_turn();
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

/* The first is behind nearly always, and no other is. */
static void
expect_first_behind(void)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < 100; i++) {
        const uint32_t behind = hand_over_many(LEAT_LAG_BATCHES * machine.count);
        EXPECT((behind & ~1u) == 0);
        found += behind == 1 && machine.lags[0].behind;
    }
    EXPECT(found >= 95); /* it may be quick by chance */
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
        const bool later = uniform() < 0.5; /* or from the start */
        EXPECT(!later || hand_over_many(HAND_OVERS) == 0);
        machine.disturbed = 0.98;
        (void)hand_over_many(later ? 4 * LEAT_LAG_BATCHES * machine.count : HAND_OVERS);
        expect_first_behind();
        (void)hand_over_many(HAND_OVERS); /* however long */
        expect_first_behind();
        machine.disturbed = 0;
        (void)hand_over_many(8 * LEAT_LAG_BATCHES * machine.count);
        EXPECT(hand_over_many(HAND_OVERS) == 0);
        machine.disturbed = 0.98; /* on all cores it becomes usual */
        machine.all_disturbed = true;
        (void)hand_over_many(HAND_OVERS);
        EXPECT(hand_over_many(HAND_OVERS) == 0);
    }
}

/* So many hand-overs to a worker that lag as long. */
static bool
note(uint32_t w, uint32_t count, uint64_t lag_ns, uint64_t profiled_ns)
{
    for (uint32_t i = 0; i < count; i++) {
        leat_lag_note(&machine.lags[w], w, &machine.usual,
                      &(struct leat_lag_begin){.lag_ns = lag_ns, .profiled_ns = profiled_ns});
    }
    return machine.lags[w].behind;
}

/* The second of two workers is known. */
static void
begin_at(uint64_t usual_ns)
{
    memset(&machine, 0, sizeof(machine));
    machine.count = 2;
    machine.lags[1] = (struct leat_lag){.usual_ns = {usual_ns}, .learned = {LEAT_LAG_LEARNED}};
    age();
}

static void
test_limits(void)
{
    static const struct {
        uint64_t usual_ns, lag_ns, profiled_ns;
        uint32_t late;
        bool behind;
    } cases[] = {
        {64, 8 * 64 + LEAT_LAG_ALLOWANCE_NS + 1, 1000, 13, true},
        {64, 8 * 64 + LEAT_LAG_ALLOWANCE_NS + 1, 1000, 12, false},
        {64, 8 * 64 + LEAT_LAG_ALLOWANCE_NS, 1000, 16, false},
        {1000000, 8000001 + LEAT_LAG_ALLOWANCE_NS, 1000, 16, true}, /* beside what is usual */
        {1000000, 8000000 + LEAT_LAG_ALLOWANCE_NS, 1000, 16, false},
        {64, 3000003, 2000000, 16, true}, /* a half more than the batch should run */
        {64, 3000000, 2000000, 16, false},
    };

    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        begin_at(cases[c].usual_ns);
        EXPECT(!note(0, LEAT_LAG_BATCHES - cases[c].late, 0, cases[c].profiled_ns));
        EXPECT(note(0, cases[c].late, cases[c].lag_ns, cases[c].profiled_ns) == cases[c].behind);
    }
}

/* Nothing is late before it is known what is usual of another; a verdict that nothing confirms is forgotten. */
static void
test_evidence(void)
{
    memset(&machine, 0, sizeof(machine));
    machine.count = 2;
    EXPECT(!note(1, LEAT_LAG_LEARNED - 1, 64, 1000));
    age();
    EXPECT(!note(0, 2 * LEAT_LAG_BATCHES, 5000000, 1000)); /* too little is known of the other */
    EXPECT(!note(1, 1, 64, 1000));
    EXPECT(!note(0, 2 * LEAT_LAG_BATCHES, 5000000, 1000)); /* until the interval ends */
    age();
    EXPECT(note(0, LEAT_LAG_BATCHES, 5000000, 1000));
    EXPECT(!note(0, LEAT_LAG_BATCHES, 0, 1000) && note(0, LEAT_LAG_BATCHES, 5000000, 1000));
    EXPECT(!note(1, LEAT_LAG_BATCHES, 64, 1000));
    for (uint32_t i = 1; i < LEAT_LAG_QUIET; i++) {
        age();
        EXPECT(machine.lags[0].behind && machine.usual.known[false] == 1);
    }
    age(); /* the other gets no batches either */
    EXPECT(!machine.lags[0].behind && machine.usual.known[false] == 0);
    EXPECT(!note(0, 2 * LEAT_LAG_BATCHES, 5000000, 1000));
}

/* Who is known alone is compared with nobody, and who is the least with the second; what is so no more is learned anew. */
static void
test_usual(void)
{
    memset(&machine, 0, sizeof(machine));
    machine.count = 3;
    EXPECT(!note(0, LEAT_LAG_LEARNED, 64, 1000));
    age();
    EXPECT(machine.usual.known[false] == 1 && !note(0, 2 * LEAT_LAG_BATCHES, 5000000, 1000));
    age();
    EXPECT(machine.usual.known[false] == 0); /* it was late by what was usual of itself */
    for (uint32_t w = 0; w < 3; w++) {
        machine.lags[w] =
            (struct leat_lag){.usual_ns = {[true] = 300000 - 100000 * w}, .learned = {[true] = LEAT_LAG_LEARNED}};
    }
    age();
    EXPECT(note(0, LEAT_LAG_BATCHES, 1300001, 1000) && !note(0, LEAT_LAG_BATCHES, 1300000, 1000)); /* by who slept */
    EXPECT(note(1, LEAT_LAG_BATCHES, 1300001, 1000) && !note(1, LEAT_LAG_BATCHES, 1300000, 1000));
    EXPECT(note(2, LEAT_LAG_BATCHES, 2100001, 1000) && !note(2, LEAT_LAG_BATCHES, 2100000, 1000));
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    test_limits();
    test_evidence();
    test_usual();
    test_healthy();
    test_disturbed();
    return 0;
}
