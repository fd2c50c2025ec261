/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     States of instances are what sched/instance.h says; a constant load does not make them flap.
 * Method   Random batches and evaluations against a model that keeps every batch and states the rules in floating point;
 *          then a worker before a queue, on a clock of the test's, that is idle, saturated, slow, or avoided.
 */
#include "sched/instance.h"
#include "tests/leat_test.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/align.h"

enum { WORLDS = 4000, STEPS = 400 };
#define SECOND_NS LEAT_INSTANCE_INTERVAL_NS

static uint64_t random_state;

static uint64_t
below(uint64_t bound)
{
    return leat_test_random(&random_state) % bound;
}

static double
uniform(void)
{
    return (double)(leat_test_random(&random_state) >> 11) * 0x1p-53;
}

/* ---- The rules --------------------------------------------------------------------------------- */

#define ALLOWANCE_NS 100000.0 /* what any batch may take beyond its profile */

static struct {
    struct {
        double run, profiled, response, items;
    } batches[STEPS]; /* since the last verdict */
    uint32_t count, judged;       /* how many; how many the last verdict had */
    double busy, ended;           /* of the worker */
    double busy_then, ended_then; /* at the last verdict */
    double slow, response, busy_share, item; /* what the last verdict found, in 1/1000 rounded down; item in ns */
    uint32_t running, ended_lately, quiet;
    enum leat_instance_state state;
    uint32_t out_for, out_since;        /* evaluations: to be out for; out already */
    uint32_t verdicts;                  /* since it came back */
    bool came_back;
} naive;

static struct leat_instance instance;
static struct leat_instance_worker worker;
static const struct leat_instance_limits *limits;
static uint32_t moves[LEAT_INSTANCE_STATES][LEAT_INSTANCE_STATES], doubled, forgotten;

static void
naive_forget(void)
{
    naive.count = 0;
    naive.busy_then = naive.busy;
    naive.ended_then = naive.ended;
}

static double
allowed(double time, double profiled)
{
    return fmin(time <= profiled ? time : fmax(profiled, time - ALLOWANCE_NS), 64 * profiled);
}

static void
naive_verdict(void)
{
    double run = 0, profiled = 0, response = 0, items = 0, worst_run = 0, worst_profiled = 0;

    for (uint32_t i = 0; i < naive.count; i++) {
        const double of = naive.batches[i].profiled, took = allowed(naive.batches[i].run, of);
        if (i == 0 || took - of > worst_run - worst_profiled) {
            worst_run = took;
            worst_profiled = of;
        }
        run += took;
        response += allowed(naive.batches[i].response, of);
        profiled += of;
        items += naive.batches[i].items;
    }
    naive.judged = naive.count;
    naive.slow = floor((run - worst_run) * 1000 / (profiled - worst_profiled));
    naive.response = floor(response * 1000 / profiled);
    naive.busy_share =
        naive.ended > naive.ended_then ? floor((naive.busy - naive.busy_then) * 1000 / (naive.ended - naive.ended_then)) : 0;
    naive.item = floor(profiled / items);
    naive_forget();
}

static bool
naive_is_out(void)
{
    return naive.state == LEAT_INSTANCE_OVERLOADED || naive.state == LEAT_INSTANCE_INTERFERED;
}

static enum leat_instance_state
naive_judge(const struct leat_instance_demand *demand)
{
    const double a = limits->slow_permille, u = limits->clear_permille;
    const double interval_items = demand->worker_count * 1e9 / naive.item; /* at the peak of all workers */
    const bool slow = naive.slow > a, backed_up = demand->waiting_items * 1000.0 >= (limits->backlog_permille + 1) * interval_items;
    const bool asked = naive.response > a && naive.busy_share >= limits->busy_permille && naive.judged >= 8;
    const bool must_stay = naive_is_out() && naive.out_since < naive.out_for;

    if (slow || (naive.state == LEAT_INSTANCE_INTERFERED && (must_stay || naive.slow >= u))) {
        return LEAT_INSTANCE_INTERFERED;
    }
    if (asked || backed_up) {
        return LEAT_INSTANCE_OVERLOADED;
    }
    const bool at_peak = demand->rate_qps >= interval_items;
    return naive.state == LEAT_INSTANCE_OVERLOADED && (must_stay || naive.response >= u || at_peak) ? LEAT_INSTANCE_OVERLOADED
                                                                                                    : LEAT_INSTANCE_ACTIVE;
}

static void
naive_evaluate(const struct leat_instance_demand *demand)
{
    const bool quiet = naive.running == 0 && naive.ended_lately == 0;

    naive.ended_lately = 0;
    naive.quiet = quiet ? naive.quiet + 1 : 0;
    naive.out_since += naive_is_out();
    if (naive.state < LEAT_INSTANCE_ACTIVE) {
        return;
    }
    if (naive.count >= 3) {
        naive_verdict();
        naive.verdicts += naive.state == LEAT_INSTANCE_ACTIVE;
    } else if (naive_is_out() && quiet) {
        naive.slow = floor(naive.slow * 1000 / limits->decay_permille);
        naive.response = 0;
        naive_forget();
        naive.judged = 0;
    } else {
        if (naive.quiet >= 10) {
            forgotten += naive.count > 0;
            naive_forget();
        }
        return;
    }
    const enum leat_instance_state state = naive_judge(demand);
    if (state == naive.state) {
        return;
    }
    moves[naive.state][state]++;
    if (naive.state == LEAT_INSTANCE_ACTIVE) {
        const bool again = naive.came_back && naive.verdicts <= naive.out_for;
        naive.out_for = again ? (naive.out_for >= 8 ? 16 : 2 * naive.out_for) : 1;
        doubled += again;
    }
    naive.came_back = true;
    naive.state = state;
    naive.out_since = naive.verdicts = 0;
}

static void
naive_turn(enum leat_instance_state state)
{
    const uint32_t running = naive.running;
    const double busy = naive.busy, ended = naive.ended;

    moves[naive.state][state] += naive.state != state;
    memset(&naive, 0, sizeof(naive));
    naive.running = running;
    naive.busy = busy;
    naive.ended = ended;
    naive.state = state;
    naive_forget();
}

/* A world has a mood: how slow batches are, how long queries wait, how many there are. */
struct mood {
    double slow, wait;
    uint32_t batches; /* at most, between evaluations */
    uint64_t gap_ns;
    struct leat_instance_demand demand;
};

static struct mood
draw_mood(void)
{
    static const double slownesses[] = {0.5, 1, 1, 1, 2, 3, 6, 200}, waits[] = {0, 0, 0.3, 2, 5, 100};
    static const uint64_t gaps_ns[] = {0, 0, 1000000, 3000000};
    static const uint32_t batches[] = {0, 0, 3, 12, 24};
    return (struct mood){
        .slow = slownesses[below(LEAT_COUNT_OF(slownesses))],
        .wait = waits[below(LEAT_COUNT_OF(waits))],
        .batches = batches[below(LEAT_COUNT_OF(batches))],
        .gap_ns = gaps_ns[below(LEAT_COUNT_OF(gaps_ns))],
        .demand = {.rate_qps = (uint32_t)below(4) * 1333,
                   .waiting_items = below(6) == 0 ? 5000 : (uint32_t)below(3) * 101,
                   .worker_count = 1 + (uint32_t)below(4)},
    };
}

/* Of models small and not; 0: nothing is known. */
static uint64_t
draw_profiled_ns(void)
{
    return below(20) == 0 ? 0 : below(8) == 0 ? 3000 + below(6000) : 500000 + below(1000000);
}

static void
run_batches(const struct mood *mood, uint64_t *now_ns)
{
    const uint32_t count = mood->batches > 0 ? (uint32_t)below(mood->batches) : 0;

    for (uint32_t i = 0; i < count && naive.count < STEPS; i++) {
        const uint64_t profiled_ns = draw_profiled_ns();
        const double usual_ns = (double)(profiled_ns > 0 ? profiled_ns : 700000);
        const double cold_ns = below(3) == 0 ? 2 * ALLOWANCE_NS * uniform() : 0;
        const uint64_t run_ns = (uint64_t)(mood->slow * usual_ns * (0.9 + 0.2 * uniform()) + cold_ns);
        const struct leat_instance_batch batch = {.run_ns = run_ns,
                                                  .profiled_ns = profiled_ns,
                                                  .response_ns = run_ns + (uint64_t)(mood->wait * 1e6 * uniform()),
                                                  .items = 1 + (uint32_t)below(8)};
        leat_instance_begin(&instance);
        *now_ns += mood->gap_ns + run_ns;
        leat_instance_end(&instance, &worker, *now_ns, &batch);
        naive.ended_lately++;
        naive.busy += (double)run_ns;
        naive.ended = (double)*now_ns;
        if (profiled_ns > 0) {
            naive.batches[naive.count].run = (double)run_ns;
            naive.batches[naive.count].profiled = (double)profiled_ns;
            naive.batches[naive.count].response = (double)batch.response_ns;
            naive.batches[naive.count++].items = batch.items;
        }
    }
}

/* A batch of another variant keeps the worker busy. */
static void
run_other(uint64_t *now_ns)
{
    struct leat_instance other = {.state = LEAT_INSTANCE_ACTIVE};
    const struct leat_instance_batch batch = {.run_ns = below(5000000), .profiled_ns = 1, .response_ns = 1, .items = 1};

    leat_instance_begin(&other);
    *now_ns += batch.run_ns;
    leat_instance_end(&other, &worker, *now_ns, &batch);
    naive.busy += (double)batch.run_ns;
    naive.ended = (double)*now_ns;
}

static void
step(const struct mood *mood, uint64_t *now_ns)
{
    if (naive.running == 0 && below(30) == 0) {
        leat_instance_begin(&instance); /* a long one */
        naive.running = 1;
    } else if (naive.running > 0 && below(4) == 0) {
        const struct leat_instance_batch failed = {0};
        leat_instance_end(&instance, &worker, *now_ns, &failed);
        naive.ended = (double)*now_ns;
        naive.running = 0;
        naive.ended_lately++;
    }
    if (below(5) == 0) {
        run_other(now_ns);
    }
    if (below(2 * STEPS) == 0) {
        const enum leat_instance_state state = below(3);
        leat_instance_turn(&instance, &worker, state);
        naive_turn(state);
    }
    run_batches(mood, now_ns);
    naive_evaluate(&mood->demand);
    EXPECT(leat_instance_evaluate(&instance, &worker, limits, &mood->demand) == naive.state);
    EXPECT(instance.state == naive.state && instance.running == naive.running);
    EXPECT(leat_instance_peak_qps(&instance) == (naive.item > 0 ? (uint32_t)(1e9 / naive.item) : 0));
}

static void
test_rules(void)
{
    for (int round = 0; round < WORLDS; round++) {
        uint64_t now_ns = 1000;
        struct mood mood = draw_mood();
        memset(&instance, 0, sizeof(instance));
        memset(&worker, 0, sizeof(worker));
        memset(&naive, 0, sizeof(naive));
        limits = round % 2 == 0 ? &leat_instance_limits_default : &leat_instance_limits_alone;
        EXPECT(instance.state == LEAT_INSTANCE_INACTIVE);
        leat_instance_turn(&instance, NULL, LEAT_INSTANCE_LOADING);
        naive_turn(LEAT_INSTANCE_LOADING);
        leat_instance_turn(&instance, NULL, LEAT_INSTANCE_ACTIVE);
        naive_turn(LEAT_INSTANCE_ACTIVE);
        for (int s = 0; s < STEPS; s++) {
            if (below(12) == 0) {
                mood = draw_mood();
            }
            step(&mood, &now_ns);
        }
    }
    for (int from = LEAT_INSTANCE_ACTIVE; from <= LEAT_INSTANCE_INTERFERED; from++) {
        for (int to = LEAT_INSTANCE_ACTIVE; to <= LEAT_INSTANCE_INTERFERED; to++) {
            EXPECT(from == to || moves[from][to] > WORLDS / 8);
        }
        EXPECT(moves[from][LEAT_INSTANCE_INACTIVE] > 10);
    }
    EXPECT(doubled > WORLDS / 4 && forgotten > WORLDS / 4);
}

/* ---- A worker at work -------------------------------------------------------------------------- */

/* Queries come at random, or regularly, to one worker with batches of one. */
static struct {
    double profiled_ns, slow, load;
    bool regular, avoided; /* avoided: none come unless the instance is active */
    uint64_t now_ns, next_ns, free_ns;
    uint64_t queue[1 << 20];
    uint32_t head, tail, changes, evaluations_out;
} world;

static double
gap_ns(void)
{
    const double mean_ns = world.profiled_ns / world.load;
    return world.regular ? mean_ns : -mean_ns * log(1 - uniform());
}

static void
start_world(double load, bool regular)
{
    memset(&instance, 0, sizeof(instance));
    memset(&worker, 0, sizeof(worker));
    memset(&world, 0, sizeof(world));
    world.profiled_ns = 1e6;
    world.slow = 1;
    world.load = load;
    world.regular = regular;
    leat_instance_turn(&instance, &worker, LEAT_INSTANCE_ACTIVE);
    limits = &leat_instance_limits_default;
}

/* One interval, and the evaluation at its end. At most as many queries wait as take half a second. */
static void
live(void)
{
    const uint64_t end_ns = world.now_ns + SECOND_NS;
    const uint8_t before = instance.state;
    const struct leat_instance_demand demand = {
        .rate_qps = (uint32_t)(world.load * 1e9 / world.profiled_ns),
        .waiting_items = world.tail - world.head,
        .worker_count = 1};

    for (;;) {
        const bool waits = world.head < world.tail;
        const uint64_t start_ns = !waits ? UINT64_MAX : world.free_ns > world.queue[world.head] ? world.free_ns : world.queue[world.head];
        if (world.next_ns <= start_ns) {
            if (world.next_ns >= end_ns) {
                break;
            }
            if (!(world.avoided && instance.state != LEAT_INSTANCE_ACTIVE) && world.tail - world.head < 500) {
                EXPECT(world.tail < LEAT_COUNT_OF(world.queue));
                world.queue[world.tail++] = world.next_ns;
            }
            world.next_ns += (uint64_t)gap_ns();
            continue;
        }
        const uint64_t run_ns = (uint64_t)(world.profiled_ns * world.slow * (0.95 + 0.1 * uniform()));
        if (start_ns + run_ns >= end_ns) { /* ends in the next one */
            break;
        }
        const struct leat_instance_batch batch = {.run_ns = run_ns,
                                                  .profiled_ns = (uint64_t)world.profiled_ns,
                                                  .response_ns = start_ns + run_ns - world.queue[world.head++],
                                                  .items = 1};
        leat_instance_begin(&instance);
        world.free_ns = start_ns + run_ns;
        leat_instance_end(&instance, &worker, world.free_ns, &batch);
    }
    world.now_ns = end_ns;
    world.changes += leat_instance_evaluate(&instance, &worker, limits, &demand) != before;
    world.evaluations_out += instance.state != LEAT_INSTANCE_ACTIVE;
}

static void
live_for(int intervals)
{
    world.changes = world.evaluations_out = 0;
    world.tail -= world.head;
    memmove(world.queue, world.queue + world.head, world.tail * sizeof(world.queue[0]));
    world.head = 0;
    for (int i = 0; i < intervals; i++) {
        live();
    }
}

static void
test_constant_load(void)
{
    for (int i = 0; i < 60; i++) {
        const double load = 0.05 + 0.025 * (i / 2);
        start_world(load, i % 2 == 1);
        limits = i % 4 < 2 ? &leat_instance_limits_default : &leat_instance_limits_alone;
        live_for(300);
        EXPECT(world.changes <= 3);
        EXPECT(load > 0.5 || world.evaluations_out == 0);
        EXPECT(load < 1.1 || (world.evaluations_out >= 290 && instance.state == LEAT_INSTANCE_OVERLOADED));
        EXPECT(!world.regular || load > 0.9 || world.evaluations_out == 0); /* nothing waits */
        EXPECT(leat_instance_peak_qps(&instance) == 1000);
    }
}

static void
test_saturated_until_the_load_falls(void)
{
    for (int i = 0; i < 20; i++) {
        start_world(0.3, false);
        world.avoided = i % 2 == 1;
        live_for(5);
        EXPECT(instance.state == LEAT_INSTANCE_ACTIVE);
        world.load = 1.2;
        live_for(3);
        EXPECT(instance.state == LEAT_INSTANCE_OVERLOADED && world.changes == 1);
        live_for(50);
        EXPECT(world.changes == 0); /* also while others serve what it would be asked for */
        world.load = 0.3;
        live_for(4);
        EXPECT(instance.state == LEAT_INSTANCE_ACTIVE && world.changes == 1);
    }
}

/* Queries of another variant leave the worker no time: this one's wait, and its peak is out of reach. */
static void
test_peak_is_the_workers(void)
{
    const struct leat_instance_demand demand = {.rate_qps = 1, .worker_count = 1};
    struct leat_instance other;
    uint64_t now_ns = 0;

    start_world(1, true);
    memset(&other, 0, sizeof(other));
    leat_instance_turn(&other, &worker, LEAT_INSTANCE_ACTIVE);
    for (uint32_t i = 0; i < 100; i++) {
        const struct leat_instance_batch batch = {
            .run_ns = 10000000, .profiled_ns = 10000000, .response_ns = 40000000, .items = 1};
        struct leat_instance *one = i % 10 == 0 ? &instance : &other;
        now_ns += batch.run_ns;
        leat_instance_begin(one);
        leat_instance_end(one, &worker, now_ns, &batch);
    }
    EXPECT(leat_instance_evaluate(&instance, &worker, limits, &demand) == LEAT_INSTANCE_OVERLOADED);
    EXPECT(leat_instance_evaluate(&other, &worker, limits, &demand) == LEAT_INSTANCE_OVERLOADED);
}

static void
test_slow_until_it_is_not(void)
{
    for (int i = 0; i < 20; i++) {
        start_world(0.2, i % 2 == 1);
        live_for(5);
        EXPECT(instance.state == LEAT_INSTANCE_ACTIVE);
        world.slow = 3; /* still keeps up */
        live_for(2);
        EXPECT(instance.state == LEAT_INSTANCE_INTERFERED && world.changes == 1);
        live_for(50);
        EXPECT(world.changes == 0);
        world.slow = 2; /* between the two thresholds */
        live_for(50);
        EXPECT(world.changes == 0);
        world.slow = 1;
        live_for(3);
        EXPECT(instance.state == LEAT_INSTANCE_ACTIVE && world.changes == 1);
    }
}

/* Slow and with all the work that it can do: it is not at its profiled peak. */
static void
test_slow_and_busy_is_interfered(void)
{
    start_world(1.2, false);
    world.slow = 3;
    live_for(2);
    EXPECT(instance.state == LEAT_INSTANCE_INTERFERED && instance.busy_permille > 900);
    world.slow = 1;
    live_for(4);
    EXPECT(instance.state == LEAT_INSTANCE_OVERLOADED);
}

/* It is tried again now and then, less and less often, and soon serves once the cause has gone. */
static void
test_avoided_while_slow(void)
{
    for (int i = 0; i < 20; i++) {
        start_world(0.2, false);
        world.avoided = true;
        world.slow = 4;
        live_for(100); /* learns to leave it alone */
        live_for(400);
        EXPECT(instance.hold == LEAT_INSTANCE_HOLD_MAX && world.changes > 20);
        EXPECT(world.evaluations_out > 400 - 400 / LEAT_INSTANCE_HOLD_MAX - 2);
        world.slow = 1;
        live_for(2 * LEAT_INSTANCE_HOLD_MAX);
        live_for(50);
        EXPECT(world.changes == 0 && instance.state == LEAT_INSTANCE_ACTIVE);
        world.slow = 4; /* that was long ago */
        live_for(2);
        EXPECT(instance.hold == 1);
    }
}

/* One hiccup in a second with few queries is not a verdict, and in one with many does not matter. */
static void
test_hiccups(void)
{
    const double loads[] = {0.003, 0.2};

    for (size_t l = 0; l < LEAT_COUNT_OF(loads); l++) {
        start_world(loads[l], true);
        for (int i = 0; i < 100; i++) {
            const struct leat_instance_batch batch = {
                .run_ns = 10000000, .profiled_ns = 1000000, .response_ns = 10000000, .items = 1};
            live();
            if (i % 10 == 0) {
                leat_instance_begin(&instance);
                leat_instance_end(&instance, &worker, world.now_ns, &batch);
            }
        }
        EXPECT(world.changes == 0 && instance.slow_permille > 0);
    }
}

/* One batch of a query that did not wait, `late_ns` beyond its profile. */
static void
run_one(uint64_t *now_ns, uint64_t profiled_ns, uint64_t late_ns)
{
    const struct leat_instance_batch batch = {.run_ns = profiled_ns + late_ns,
                                              .profiled_ns = profiled_ns,
                                              .response_ns = profiled_ns + late_ns,
                                              .items = 1};
    leat_instance_begin(&instance);
    *now_ns += batch.run_ns;
    leat_instance_end(&instance, &worker, *now_ns, &batch);
}

/* Networks of a few microseconds run cold, each time; that is not interference, but what is beyond the allowance is. */
static void
test_small_networks(void)
{
    const struct leat_instance_demand demand = {.rate_qps = 20, .worker_count = 2};
    uint64_t now_ns = 0;

    for (uint64_t profiled_ns = 3000; profiled_ns < 10000; profiled_ns += 1000) {
        start_world(0, true);
        for (int i = 0; i < 1000; i++) {
            run_one(&now_ns, profiled_ns, 20000 + below(80000));
            if (i % 20 == 19) {
                EXPECT(leat_instance_evaluate(&instance, &worker, limits, &demand) == LEAT_INSTANCE_ACTIVE);
                EXPECT(instance.slow_permille == 1000 && instance.response_permille == 1000);
            }
        }
        for (int i = 0; i < 20; i++) {
            run_one(&now_ns, profiled_ns, 100000 + 2 * profiled_ns);
        }
        EXPECT(leat_instance_evaluate(&instance, &worker, limits, &demand) == LEAT_INSTANCE_INTERFERED);
        EXPECT(instance.slow_permille == 3000);
    }
}

/* What is seldom asked for: three batches, unless they are too far apart, tell; one that stalls is no verdict. */
static void
test_few_batches(void)
{
    const struct leat_instance_demand demand = {.rate_qps = 1, .worker_count = 2};
    uint64_t now_ns = 0;

    for (uint32_t apart = 1; apart < 20; apart++) { /* evaluations from one batch to the next */
        start_world(0, true);
        for (uint32_t i = 0; i < 3 * apart; i++) {
            EXPECT(instance.state == LEAT_INSTANCE_ACTIVE);
            if (i % apart == 0) {
                run_one(&now_ns, 1000000, 4000000);
            }
            (void)leat_instance_evaluate(&instance, &worker, limits, &demand);
            if (i == 2 * apart) {
                break;
            }
        }
        EXPECT((instance.state == LEAT_INSTANCE_INTERFERED) == (apart <= LEAT_INSTANCE_QUIET));
        start_world(0, true);
        for (uint32_t i = 0; i < 300 * apart; i++) {
            if (i % apart == 0) {
                run_one(&now_ns, 1000000, i / apart % 3 == 1 ? 60000000 : 0);
            }
            EXPECT(leat_instance_evaluate(&instance, &worker, limits, &demand) == LEAT_INSTANCE_ACTIVE);
        }
    }
}

/* A large model ends three batches a second. Random waiting does not make it overloaded, but a queue that grows does. */
static void
test_large_model(void)
{
    for (int i = 0; i < 20; i++) {
        start_world(0.1 * (i % 3 + 1), false);
        world.profiled_ns = 3e8;
        live_for(300);
        EXPECT(world.evaluations_out <= 12); /* when three wait, which is a second's work */
        world.load = 1.5;
        live_for(60);
        EXPECT(instance.state == LEAT_INSTANCE_OVERLOADED);
    }
}

/* What a batch says that takes longer than evaluations are apart is awaited. */
static void
test_long_batches(void)
{
    const struct leat_instance_demand demand = {.rate_qps = 1, .worker_count = 1};
    const struct leat_instance_batch batch = {
        .run_ns = 12 * SECOND_NS, .profiled_ns = 4 * SECOND_NS, .response_ns = 12 * SECOND_NS, .items = 1};
    uint64_t now_ns = 0;
    uint32_t changes = 0;

    start_world(1, true);
    for (int i = 0; i < 100; i++) {
        leat_instance_begin(&instance);
        for (int s = 0; s < 12; s++) {
            const uint8_t before = instance.state;
            changes += leat_instance_evaluate(&instance, &worker, limits, &demand) != before;
        }
        now_ns += batch.run_ns;
        leat_instance_end(&instance, &worker, now_ns, &batch);
    }
    EXPECT(changes == 1 && instance.state == LEAT_INSTANCE_INTERFERED);
}

static void
test_texts(void)
{
    EXPECT(strcmp(leat_instance_state_text(LEAT_INSTANCE_INACTIVE), "inactive") == 0);
    EXPECT(strcmp(leat_instance_state_text(LEAT_INSTANCE_LOADING), "loading") == 0);
    EXPECT(strcmp(leat_instance_state_text(LEAT_INSTANCE_ACTIVE), "active") == 0);
    EXPECT(strcmp(leat_instance_state_text(LEAT_INSTANCE_OVERLOADED), "overloaded") == 0);
    EXPECT(strcmp(leat_instance_state_text(LEAT_INSTANCE_INTERFERED), "interfered") == 0);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    test_rules();
    test_constant_load();
    test_saturated_until_the_load_falls();
    test_peak_is_the_workers();
    test_slow_until_it_is_not();
    test_slow_and_busy_is_interfered();
    test_avoided_while_slow();
    test_hiccups();
    test_small_networks();
    test_few_batches();
    test_large_model();
    test_long_batches();
    test_texts();
    return 0;
}
