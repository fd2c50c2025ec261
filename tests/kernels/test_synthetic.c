/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A synthetic batch takes the profiled time, never less and not much more; the profile is read as
 *          the options say, and told as they do; a batch of time 0 touches nothing; wrong options are refused.
 * Method   Times are bounded below exactly. Above, a run is repeated until it is on time: other load can make any
 *          number of runs late, and a backend that always is late never gets through.
 */
#include <pthread.h>
#include <string.h>

#include "base/align.h"
#include "base/clock.h"
#include "kernels/backend.h"
#include "kernels/team.h"
#include "tests/leat_test.h"

enum { LATE_NS = 2000000 };

static const struct leat_backend *const backend = &leat_backend_synthetic;

static const struct leat_tensor_info infos[2] = {
    {.name = "x", .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, 24}, .item_bytes = 24},
    {.name = "y", .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, 16}, .item_bytes = 16},
};

static enum leat_status
load(const char *options, struct leat_model **ret_model)
{
    static const char *const classes[] = {"fast", "slow"};
    static const uint32_t cores[] = {1, 2};
    const struct leat_model_source source = {.options_json = options,
                                             .infos = infos,
                                             .input_count = 1,
                                             .output_count = 1,
                                             .class_names = classes,
                                             .class_cores = cores,
                                             .class_count = 2};
    return backend->model_load(&source, ret_model);
}

/* Runs `items` until it is on time; returns how often. Each run takes at least `expected_ns`. */
static uint64_t
run_until_on_time(const struct leat_plan *plan, uint32_t items, uint64_t expected_ns, struct leat_team *team)
{
    static unsigned char x[64 * 24], y[64 * 16];
    const struct leat_segment segment = {.items = items, .tensors = {x, y}};
    uint64_t took_ns, runs = 0;

    do {
        const uint64_t start_ns = leat_monotonic_ns();
        EXPECT(backend->plan_run(plan, &segment, 1, NULL, team) == LEAT_OK);
        took_ns = leat_monotonic_ns() - start_ns;
        EXPECT(took_ns >= expected_ns);
        runs++;
    } while (took_ns > expected_ns + LATE_NS);
    return runs;
}

/* Returns how many runs it took. */
static uint64_t
expect_times(const char *options, const uint32_t *items, const uint64_t *expected_ns, size_t count,
             struct leat_team *team)
{
    const struct leat_plan_options plan_options = {.items = 64};
    struct leat_model *model;
    struct leat_plan *plan;
    uint64_t runs = 0;

    EXPECT(load(options, &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &plan_options, &plan) == LEAT_OK);
    for (size_t i = 0; i < count; i++) {
        runs += run_until_on_time(plan, items[i], expected_ns[i], team);
    }
    backend->plan_destroy(plan);
    backend->model_destroy(model);
    return runs;
}

static void
test_profiles(void)
{
    static const uint32_t items[] = {1, 2, 3, 4, 6, 8, 16};
    static const uint64_t affine_ns[] = {3500000, 4000000, 4500000, 5000000, 6000000, 7000000, 11000000};
    /* (2, 4 ms), (4, 6 ms), (8, 18 ms): flat before, linear between, the last slope (3 ms) beyond. */
    static const uint64_t points_ns[] = {4000000, 4000000, 5000000, 6000000, 12000000, 18000000, 42000000};

    (void)expect_times("{\"latency_ns\": 3000000, \"per_item_ns\": 500000}", items, affine_ns, LEAT_COUNT_OF(items), NULL);
    (void)expect_times("{\"points\": [{\"items\": 2, \"latency_ns\": 4000000}, {\"items\": 4, \"latency_ns\": 6000000},"
                 " {\"items\": 8, \"latency_ns\": 18000000}]}",
                 items, points_ns, LEAT_COUNT_OF(items), NULL);
    (void)expect_times("{\"points\": [{\"items\": 4, \"latency_ns\": 5000000}]}", items,
                       (const uint64_t[]){5000000, 5000000}, 2, NULL);
}

static uint64_t
process_cpu_ns(void)
{
    struct timespec t;
    EXPECT(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void
burn_once(struct leat_team *team)
{
    const struct leat_plan_options plan_options = {.items = 1};
    const struct leat_segment segment = {.items = 1};
    struct leat_model *model;
    struct leat_plan *plan;

    EXPECT(load("{\"latency_ns\": 20000000, \"mode\": \"burn\"}", &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &plan_options, &plan) == LEAT_OK);
    const uint64_t start_ns = leat_monotonic_ns();
    EXPECT(backend->plan_run(plan, &segment, 1, NULL, team) == LEAT_OK);
    EXPECT(leat_monotonic_ns() - start_ns >= 20000000);
    backend->plan_destroy(plan);
    backend->model_destroy(model);
}

/* A part of the time is divided among the members of the team. */
static void
test_parallel_times(void)
{
    static const uint32_t items[] = {1, 4};
    static const uint64_t expected_ns[2][2] = {{8000000, 14000000}, {5000000, 8000000}};

    for (uint32_t size = 1; size <= 2; size++) {
        struct leat_team *team;
        EXPECT(leat_team_create(&(struct leat_team_options){.size = size}, &team) == LEAT_OK);
        (void)expect_times("{\"latency_ns\": 2000000, \"parallel_ns\": 4000000, \"parallel_per_item_ns\": 2000000}", items,
                           expected_ns[size - 1], LEAT_COUNT_OF(items), team);
        leat_team_destroy(team);
    }
}

/* What sleeping and burning cost in CPU time, on a team of two. */
static void
test_modes(void)
{
    static const uint32_t items[] = {1};
    static const uint64_t expected_ns[] = {20000000};
    struct leat_team *team;

    EXPECT(leat_team_create(&(struct leat_team_options){.size = 2}, &team) == LEAT_OK);
    uint64_t before_ns = process_cpu_ns();
    const uint64_t runs = expect_times("{\"latency_ns\": 20000000, \"mode\": \"sleep\"}", items, expected_ns, 1, team);
    EXPECT(process_cpu_ns() - before_ns < runs * 5000000);
    /* Two threads of 20 ms; on a busy box they may share one CPU, but not for ever. */
    uint64_t used_ns;
    do {
        before_ns = process_cpu_ns();
        burn_once(team);
        used_ns = process_cpu_ns() - before_ns;
    } while (used_ns <= 22000000);
    leat_team_destroy(team);
}

static void
test_payload_of_each_segment(void)
{
    const struct leat_plan_options plan_options = {.items = 8};
    unsigned char x[2][3 * 24], y[2][3 * 16 + 1], untouched[3 * 16 + 1];
    struct leat_model *model;
    struct leat_plan *plan;

    for (size_t i = 0; i < sizeof(x); i++) {
        x[i / sizeof(x[0])][i % sizeof(x[0])] = (unsigned char)(i + 1);
    }
    memset(y, 0xee, sizeof(y));
    memset(untouched, 0xee, sizeof(untouched));
    const struct leat_segment segments[2] = {{.items = 3, .tensors = {x[0], y[0]}}, {.items = 2, .tensors = {x[1], y[1]}}};
    EXPECT(load("{\"payload\": \"copy\"}", &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &plan_options, &plan) == LEAT_OK);
    EXPECT(backend->plan_run(plan, segments, 2, NULL, NULL) == LEAT_OK);
    EXPECT(memcmp(y[0], x[0], 3 * 16) == 0 && y[0][3 * 16] == 0xee);
    EXPECT(memcmp(y[1], x[1], 2 * 16) == 0 && y[1][2 * 16] == 0xee);
    backend->plan_destroy(plan);
    backend->model_destroy(model);

    memset(y, 0xee, sizeof(y));
    EXPECT(load("{\"payload\": \"read\"}", &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &plan_options, &plan) == LEAT_OK);
    EXPECT(backend->plan_run(plan, segments, 2, NULL, NULL) == LEAT_OK);
    for (size_t i = 0; i < 2; i++) {
        uint64_t words[3 * 24 / sizeof(uint64_t)], sum = 0;
        memcpy(words, x[i], sizeof(words));
        for (size_t w = 0; w < segments[i].items * 24 / sizeof(words[0]); w++) {
            sum += words[w];
        }
        EXPECT(memcmp(y[i], &sum, sizeof(sum)) == 0 && memcmp(y[i] + sizeof(sum), untouched, sizeof(untouched) - 8) == 0);
    }
    backend->plan_destroy(plan);
    backend->model_destroy(model);

    /* Left alone, it is not touched: the pointers need not even be there. */
    const struct leat_segment nowhere = {.items = 3};
    memset(y, 0xee, sizeof(y));
    EXPECT(load(NULL, &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &plan_options, &plan) == LEAT_OK);
    EXPECT(backend->plan_run(plan, segments, 2, NULL, NULL) == LEAT_OK);
    EXPECT(memcmp(y[0], untouched, sizeof(untouched)) == 0);
    EXPECT(backend->plan_run(plan, &nowhere, 1, NULL, NULL) == LEAT_OK);
    backend->plan_destroy(plan);
    backend->model_destroy(model);
}

#define ROW(items, samples) "{\"items\": " #items ", \"samples_ns\": [" samples "]}"
#define TABLES(fast, slow) "\"tables\": {\"fast\": [" fast "], \"slow\": [" slow "]}"

/* Each class has its own times, those of the next size that was measured. */
static void
test_tables(void)
{
    static const uint32_t items[] = {1, 4, 5, 8};
    const char *options = "{" TABLES(ROW(4, "2000000") "," ROW(8, "4000000"), ROW(8, "7000000")) "}";
    const struct leat_plan_options good = {.items = 8}, larger = {.items = 9};
    static const uint64_t expected_ns[2][4] = {{2000000, 2000000, 4000000, 4000000}, {7000000, 7000000, 7000000, 7000000}};
    struct leat_model *model;
    struct leat_plan *plan = NULL;

    EXPECT(backend->times_by_class && load(options, &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &larger, &plan) == LEAT_ERR_INVALID && plan == NULL);
    EXPECT(backend->plan_build(model, &good, &plan) == LEAT_OK);
    for (uint32_t class = 0; class < 2; class++) {
        struct leat_team *team;
        EXPECT(leat_team_create(&(struct leat_team_options){.size = 1, .worker_class = class}, &team) == LEAT_OK);
        EXPECT(leat_team_class(team) == class && leat_team_class(NULL) == 0);
        for (size_t i = 0; i < LEAT_COUNT_OF(items); i++) {
            (void)run_until_on_time(plan, items[i], expected_ns[class][i], team);
        }
        leat_team_destroy(team);
    }
    backend->plan_destroy(plan);
    backend->model_destroy(model);
}

/* The n-th run has the n-th draw: what the seed says must be long is long, and not all are. */
static void
test_draws_follow_from_the_seed(void)
{
    enum { RUNS = 100 };
    const struct leat_plan_options plan_options = {.items = 1};
    const struct leat_segment segment = {.items = 1};
    uint32_t short_runs = 0, long_runs = 0;
    uint64_t state = 77;
    struct leat_model *model;
    struct leat_plan *plan;

    EXPECT(load("{\"seed\": 77, " TABLES(ROW(1, "0, 1000000"), ROW(1, "0")) "}", &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &plan_options, &plan) == LEAT_OK);
    for (int i = 0; i < RUNS; i++) {
        const bool expected_long = leat_test_random(&state) >> 63 != 0; /* the upper half of draws, the second sample */
        const uint64_t start_ns = leat_monotonic_ns();
        EXPECT(backend->plan_run(plan, &segment, 1, NULL, NULL) == LEAT_OK);
        const uint64_t took_ns = leat_monotonic_ns() - start_ns;
        EXPECT(!expected_long || took_ns >= 1000000);
        long_runs += expected_long;
        short_runs += took_ns < 1000000;
    }
    EXPECT(long_runs > RUNS / 4 && short_runs > 0);
    backend->plan_destroy(plan);
    backend->model_destroy(model);
}

static void
expect_known(const char *options, uint32_t worker_class, uint32_t items, struct leat_plan_times expected)
{
    const struct leat_plan_options plan_options = {.items = 8};
    struct leat_plan_times times;
    struct leat_model *model;
    struct leat_plan *plan;

    EXPECT(load(options, &model) == LEAT_OK && backend->plan_build(model, &plan_options, &plan) == LEAT_OK);
    EXPECT(backend->plan_times(plan, worker_class, items, &times));
    EXPECT(times.mean_ns == expected.mean_ns && times.p50_ns == expected.p50_ns);
    EXPECT(times.p95_ns == expected.p95_ns && times.p99_ns == expected.p99_ns);
    backend->plan_destroy(plan);
    backend->model_destroy(model);
}

/* What runs take is known without any, by class and size; not where time goes into payload too. */
static void
test_times_are_known(void)
{
    const struct leat_plan_options plan_options = {.items = 1};
    const char *sampled = "{" TABLES(ROW(4, "30, 10, 20, 40") "," ROW(8, "7"), ROW(8, "5, 1")) "}";
    struct leat_plan_times times;
    struct leat_model *model;
    struct leat_plan *plan;

    expect_known("{\"latency_ns\": 9, \"per_item_ns\": 2}", 1, 3, (struct leat_plan_times){15, 15, 15, 15});
    expect_known("{\"latency_ns\": 9, \"per_item_ns\": 2, \"parallel_ns\": 10, \"parallel_per_item_ns\": 4}", 0, 3,
                 (struct leat_plan_times){37, 37, 37, 37});
    expect_known("{\"latency_ns\": 9, \"per_item_ns\": 2, \"parallel_ns\": 10, \"parallel_per_item_ns\": 4}", 1, 3,
                 (struct leat_plan_times){26, 26, 26, 26});
    expect_known(sampled, 0, 1, (struct leat_plan_times){25, 20, 40, 40});
    expect_known(sampled, 0, 4, (struct leat_plan_times){25, 20, 40, 40});
    expect_known(sampled, 0, 5, (struct leat_plan_times){7, 7, 7, 7});
    expect_known(sampled, 1, 5, (struct leat_plan_times){3, 1, 5, 5});
    EXPECT(load("{\"latency_ns\": 9, \"payload\": \"read\"}", &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &plan_options, &plan) == LEAT_OK);
    EXPECT(!backend->plan_times(plan, 0, 1, &times));
    backend->plan_destroy(plan);
    backend->model_destroy(model);
}

static void
test_wrong_options(void)
{
    static const char *const wrong[] = {
        "", "[]", "{", "{\"latency\": 1}", "{\"latency_ns\": -1}", "{\"latency_ns\": 1.5}", "{\"latency_ns\": \"1\"}",
        "{\"mode\": \"nap\"}", "{\"payload\": \"eat\"}", "{\"payload\": true}", "{\"mode\": 1}", "{\"points\": []}",
        "{\"points\": 3}",
        "{\"points\": [{\"items\": 0, \"latency_ns\": 1}]}", "{\"points\": [{\"items\": 65537, \"latency_ns\": 1}]}",
        "{\"points\": [{\"items\": 2, \"latency_ns\": 1}, {\"items\": 2, \"latency_ns\": 1}]}",
        "{\"seed\": -1}", "{" TABLES(ROW(1, ""), ROW(1, "1")) "}", "{" TABLES(ROW(1, "1"), ROW(1, "-1")) "}",
        "{" TABLES(ROW(1, "1"), ROW(1, "1.5")) "}", "{" TABLES(ROW(0, "1"), ROW(1, "1")) "}",
        "{\"parallel_ns\": 1, " TABLES(ROW(1, "1"), ROW(1, "1")) "}", "{\"parallel_per_item_ns\": -1}",
        "{" TABLES(ROW(2, "1") "," ROW(2, "1"), ROW(1, "1")) "}", "{" TABLES(ROW(1, "1"), "3") "}",
    };
    for (size_t i = 0; i < LEAT_COUNT_OF(wrong); i++) {
        struct leat_model *model = NULL;
        EXPECT(load(wrong[i], &model) == LEAT_ERR_INVALID && model == NULL);
    }
    struct leat_model *model = NULL;
    EXPECT(load("{\"tables\": {\"fast\": [" ROW(1, "1") "]}}", &model) == LEAT_ERR_NOT_FOUND && model == NULL);
    EXPECT(load("{\"tables\": 3}", &model) == LEAT_ERR_NOT_FOUND && model == NULL);
}

int
main(void)
{
    leat_test_init();
    test_profiles();
    test_parallel_times();
    test_modes();
    test_payload_of_each_segment();
    test_tables();
    test_draws_follow_from_the_seed();
    test_times_are_known();
    test_wrong_options();
    EXPECT(leat_backend_find("synthetic") == backend && leat_backend_find("cpu") == &leat_backend_cpu);
    EXPECT(leat_backend_find("reference") == &leat_backend_reference && leat_backend_find("none") == NULL);
    return 0;
}
