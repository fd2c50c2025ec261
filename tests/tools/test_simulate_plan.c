/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The mix that races choose serves what the best of all mixes does, but for what a race may overlook; threads
 *          change nothing; what fails or is stopped says so.
 * Oracle   Every mix measured on the thorough workload, to the same tolerance.
 * Method   Random pools of up to 60 mixes, tables and workloads with a printed seed. Threads that must meet wait for
 *          each other.
 */
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/tools/simulate_cases.h"
#include "tools/simulate/parallel.h"
#include "tools/simulate/plan.h"

enum { MIXES_MAX = 60, JOBS = 1000 };

#define FINE          0.004 /* plan.c's tolerance of what it answers */
#define OVERLOOKED    0.03  /* of the best rate: mixes that do not keep up with 0.97 of it are dropped */

/* ---- Threads ----------------------------------------------------------------------------------- */

struct counting {
    _Atomic uint32_t calls[JOBS];
    _Atomic uint32_t total;
    uint32_t fails[2];       /* these jobs fail, the first not before the second has */
    _Atomic bool failed;
    uint32_t stops_at;       /* after so many calls */
    _Atomic bool stop;
};

static enum leat_status
count_job(struct simulate_run *of_thread, uint32_t index, void *context)
{
    struct counting *counting = context;

    EXPECT(of_thread != NULL && index < JOBS);
    atomic_fetch_add(&counting->calls[index], 1);
    if (atomic_fetch_add(&counting->total, 1) + 1 == counting->stops_at) {
        atomic_store(&counting->stop, true);
    }
    if (index == counting->fails[0]) {
        while (counting->fails[1] < JOBS && !atomic_load(&counting->failed)) {
            (void)sched_yield();
        }
        return LEAT_FAIL(LEAT_ERR_LIMIT, "job %u fails", index);
    }
    if (index == counting->fails[1]) {
        (void)LEAT_FAIL(LEAT_ERR_INVALID, "job %u fails", index);
        atomic_store(&counting->failed, true);
        return LEAT_ERR_INVALID;
    }
    return LEAT_OK;
}

static void
test_each_once(void)
{
    static const uint32_t threads[] = {0, 1, 2, 4, 7, 5000};
    static const uint32_t counts[] = {0, 1, 3, JOBS};

    for (size_t t = 0; t < LEAT_COUNT_OF(threads); t++) {
        for (size_t c = 0; c < LEAT_COUNT_OF(counts); c++) {
            static struct counting counting;
            _Atomic uint32_t done = 0;
            memset(&counting, 0, sizeof(counting));
            counting.fails[0] = counting.fails[1] = JOBS;
            expect_ok(simulate_parallel(threads[t], counts[c], count_job, &counting, &counting.stop, &done));
            EXPECT(done == counts[c]);
            for (uint32_t i = 0; i < JOBS; i++) {
                EXPECT(counting.calls[i] == (i < counts[c]));
            }
        }
    }
    EXPECT(simulate_core_count() >= 1);
}

static void
test_first_failure(void)
{
    for (uint32_t round = 0; round < 50; round++) {
        static struct counting counting;
        memset(&counting, 0, sizeof(counting));
        counting.fails[0] = round;
        counting.fails[1] = round + 1 + (uint32_t)below(3);
        EXPECT(simulate_parallel(2 + round % 3, JOBS, count_job, &counting, NULL, NULL) == LEAT_ERR_LIMIT);
        char text[32];
        (void)snprintf(text, sizeof(text), "job %u fails", round);
        EXPECT(strcmp(leat_error_text(), text) == 0);
        for (uint32_t i = 0; i < JOBS; i++) {
            EXPECT(counting.calls[i] <= 1 && (i > round || counting.calls[i] == 1));
        }
    }
}

static void
test_stop(void)
{
    for (uint32_t round = 0; round < 20; round++) {
        static struct counting counting;
        const uint32_t threads = 1 + round % 4;
        _Atomic uint32_t done = 0;
        memset(&counting, 0, sizeof(counting));
        counting.fails[0] = counting.fails[1] = JOBS;
        counting.stops_at = 1 + (uint32_t)below(JOBS / 2);
        EXPECT(simulate_parallel(threads, JOBS, count_job, &counting, &counting.stop, &done) == LEAT_AGAIN);
        EXPECT(done == counting.total && (threads > 1 || done == counting.stops_at));
    }
    struct counting failing = {.fails = {5, JOBS}, .stops_at = 6}; /* an error is told, although it was stopped too */
    EXPECT(simulate_parallel(1, JOBS, count_job, &failing, &failing.stop, NULL) == LEAT_ERR_LIMIT);
}

/* ---- Plans ------------------------------------------------------------------------------------- */

struct pool {
    struct simulate_table table;
    struct simulate_workload brief, thorough;
    struct leat_pool_candidate candidates[MIXES_MAX];
    uint32_t candidate_count;
    uint64_t objective_ns;
};

static uint64_t
predict(const void *profiles, uint16_t application, uint32_t variant, uint16_t class, uint32_t items)
{
    (void)application, (void)variant;
    return cell_mean_ns(profiles, class, items);
}

/* False where a budget buys too few mixes or too many. Without bounds that tell anything, the smallest mixes come first. */
static bool
make_pool(struct pool *pool, uint32_t class_count, bool bounds)
{
    struct leat_pool_space space = {.class_count = class_count, .base = 0, .budget = 4 + below(12)};
    struct leat_pool_size *sizes;
    struct leat_pool_rates rates;

    memset(pool, 0, sizeof(*pool));
    pool->table = random_table(class_count, 20, 0.1, 1);
    pool->thorough = random_workload(&pool->table, 4000, ARRIVALS_POISSON);
    pool->brief = random_workload(&pool->table, 2000, ARRIVALS_POISSON);
    sizes = uniform_sizes(&pool->table);
    for (uint32_t class = 0; class < class_count; class ++) {
        space.classes[class] = (struct leat_pool_class){.price = 1 + below(5), .count_max = 6};
    }
    const uint64_t largest_ns = cell_mean_ns(&pool->table, 0, pool->table.items_max);
    pool->objective_ns = largest_ns + largest_ns * (20 + below(200)) / 100;
    const struct leat_pool_workload workload = {.predict = predict, .profiles = &pool->table, .sizes = sizes,
                                                .size_count = pool->table.items_max, .objective_ns = pool->objective_ns};
    const bool usable = leat_pool_enumerate(&space, pool->candidates, MIXES_MAX, &pool->candidate_count) == LEAT_OK &&
                        pool->candidate_count >= 4;
    for (uint32_t c = 0; c < pool->candidate_count && usable; c++) {
        pool->candidates[c].bound_qps = 1e9;
    }
    if (usable && bounds) {
        expect_ok(leat_pool_rates(&space, &workload, &rates));
        expect_ok(leat_pool_rank(&rates, pool->candidates, pool->candidate_count));
    }
    free(sizes);
    return usable;
}

static void
free_pool(struct pool *pool)
{
    simulate_workload_free(&pool->brief);
    simulate_workload_free(&pool->thorough);
    simulate_table_free(&pool->table);
}

static struct simulate_plan_options
options_of(struct pool *pool, const struct leat_router *router)
{
    return (struct simulate_plan_options){
        .run = {.table = &pool->table, .router = router, .objective_ns = pool->objective_ns, .percentile = 95,
                .violation_share = 0.01},
        .brief = &pool->brief, .thorough = &pool->thorough, .candidates = pool->candidates,
        .candidate_count = pool->candidate_count, .threads = 1};
}

static const struct leat_router *
router_in_turn(uint32_t turn)
{
    uint32_t count = 0;
    while (leat_router_at(count) != NULL) {
        count++;
    }
    return leat_router_at(turn % count);
}

static double
measure(const struct simulate_plan_options *options, const struct leat_pool_mix *mix)
{
    struct simulate_options at = options->run;
    double qps;
    at.mix = *mix;
    at.workload = options->thorough;
    expect_ok(simulate_throughput(run, &at, FINE, &qps));
    return qps;
}

static void
test_against_all(void)
{
    static struct pool pool;
    uint32_t pools = 0, exact = 0, mixes = 0, raced = 0;
    double worst = 1;

    while (pools < LEAT_TEST_ROUNDS(8)) {
        if (make_pool(&pool, 2 + (uint32_t)below(2), pools % 2 == 0)) {
            struct simulate_plan_options options = options_of(&pool, router_in_turn(pools));
            struct simulate_plan plan, again;
            double best_qps = 0;

            expect_ok(simulate_plan(&options, &plan));
            for (uint32_t c = 0; c < pool.candidate_count; c++) {
                best_qps = fmax(best_qps, measure(&options, &pool.candidates[c].mix));
            }
            EXPECT(plan.rate_qps == measure(&options, &plan.mix));
            EXPECT(plan.raced <= pool.candidate_count && plan.finalists <= plan.measured && plan.measured <= plan.raced);
            EXPECT(plan.rate_qps >= best_qps * (1 - OVERLOOKED));
            worst = best_qps > 0 ? fmin(worst, plan.rate_qps / best_qps) : worst;
            for (uint32_t threads = 2; threads <= 4; threads += 2) {
                options.threads = threads;
                expect_ok(simulate_plan(&options, &again));
                EXPECT(memcmp(&again.mix, &plan.mix, sizeof(plan.mix)) == 0 && again.rate_qps == plan.rate_qps);
                EXPECT(again.raced == plan.raced && again.measured == plan.measured && again.finalists == plan.finalists);
            }
            exact += plan.rate_qps == best_qps;
            mixes += pool.candidate_count;
            raced += plan.raced;
            pools++;
        }
        free_pool(&pool);
    }
    printf("%u of %u plans are the best of all, the worst has %.4f of its rate; %u of %u mixes were raced\n", exact, pools,
           worst, raced, mixes);
    EXPECT(LEAT_TEST_SHARE > 1 || (exact > pools / 2 && raced < mixes)); /* of few nothing can be said */
}

static _Atomic bool stop;
static uint32_t calls_left;

/* Raises the flag on the way. */
static uint32_t
stopping_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    if (calls_left > 0 && --calls_left == 0) {
        atomic_store(&stop, true);
    }
    return leat_router_fcfs.route(state, input, pairs, pairs_max);
}

static void
test_ends(void)
{
    static const struct leat_router stopping = {.name = "stopping", .queues = true, .route = stopping_route};
    static struct pool pool;
    struct simulate_plan plan = {.rate_qps = -1};

    while (!make_pool(&pool, 2, true)) {
        free_pool(&pool);
    }
    struct simulate_plan_options options = options_of(&pool, &stopping);
    expect_ok(simulate_plan(&options, &plan)); /* nobody asked it to stop */
    options.stop = &stop;
    plan.rate_qps = -1;
    for (int round = 0; round < 10; round++) {
        atomic_store(&stop, round == 0);
        calls_left = round == 0 ? 0 : 1 + (uint32_t)below(20000);
        EXPECT(simulate_plan(&options, &plan) == LEAT_AGAIN);
    }
    atomic_store(&stop, false);
    options.candidate_count = 0;
    EXPECT(simulate_plan(&options, &plan) == LEAT_ERR_INVALID && strstr(leat_error_text(), "no mix") != NULL);
    options.candidate_count = pool.candidate_count;
    pool.candidates[0].mix.count[0] = 300;
    EXPECT(simulate_plan(&options, &plan) == LEAT_ERR_LIMIT && strstr(leat_error_text(), "256 workers") != NULL);
    EXPECT(plan.rate_qps == -1);
    free_pool(&pool);
}

/* A mix that serves nothing in time is no reason to fail. */
static void
test_hopeless(void)
{
    static struct pool pool;
    struct simulate_plan plan;

    while (!make_pool(&pool, 2, true)) {
        free_pool(&pool);
    }
    struct simulate_plan_options options = options_of(&pool, &leat_router_fcfs);
    options.run.objective_ns = 1000;
    expect_ok(simulate_plan(&options, &plan));
    EXPECT(plan.rate_qps == 0 && plan.raced == pool.candidate_count);
    free_pool(&pool);
}

int
main(void)
{
    cases_start();
    test_each_once();
    test_first_failure();
    test_stop();
    test_against_all();
    test_ends();
    test_hopeless();
    simulate_run_destroy(run);
    return 0;
}
