/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "sched/policy.h"
#include "sched/profile.h"

static const char measures[] =
    "Measures   Time of one decision of each router on one core. Shaped as in Kairos: four classes of workers,\n"
    "           queries of 1 to 1000 items with 350 ms, predictions from profiles. Workers all idle, half of them, or\n"
    "           only one.\n"
    "Beside it  fcfs, which does the least a router can.\n"
    "Does not   dispatch: each decision is another of 64 situations, none follows from the one before.\n"
    "Method     One thread, the routers taking turns, a window each; every call timed, so the clock's own time, told\n"
    "           too, is in all figures. Medians over windows of each window's median and 99th percentile.";

enum { SITUATIONS = 64, CLASSES = 4, PENDING_MAX = 1000, WORKERS_MAX = 256, SAMPLES_MAX = 1 << 16, ROUTERS_MAX = 16 };

static const struct shape {
    const char *name;
    uint32_t pending, workers;
    uint32_t busy; /* of the workers, in the mean; but the first is always idle */
    const struct leat_router *goal_of;
    double goal_us; /* of its median, at most */
} shapes[] = {
    {"1 x 12, idle", 1, 12, 0, &leat_router_fcfs, 0.1},
    {"20 x 20, idle", 20, 20, 0, &leat_router_matching, 3},
    {"20 x 20, half busy", 20, 20, 10, &leat_router_matching, 3},
    {"20 x 20, one idle", 20, 20, 20, &leat_router_matching, 3},
    {"1000 x 20, idle", 1000, 20, 0, NULL, 0},
    {"1000 x 20, half busy", 1000, 20, 10, NULL, 0},
    {"1000 x 20, one idle", 1000, 20, 20, NULL, 0},
    {"1000 x 256, half busy", 1000, 256, 128, &leat_router_matching, 1000},
    {"1000 x 256, one idle", 1000, 256, 256, &leat_router_matching, 1000},
};

static struct leat_profile profiles[CLASSES];
static struct leat_sched_query queries[SITUATIONS][PENDING_MAX];
static struct leat_sched_worker workers[SITUATIONS][WORKERS_MAX];
static uint64_t samples_ns[SAMPLES_MAX];
static uint64_t random_state = 1;
static volatile uint32_t sink;

static uint64_t
below(uint64_t bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % bound;
}

static uint64_t
predict(const void *of, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct leat_profile *profile = of;
    (void)application;
    (void)variant;
    return leat_profile_predict(&profile[worker_class], items);
}

static uint64_t
predict_mean(const void *of, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct leat_profile *profile = of;
    (void)application;
    (void)variant;
    return leat_profile_mean(&profile[worker_class], items);
}

static uint32_t
query_items(void)
{
    const uint64_t r = 1 + below(99);
    return (uint32_t)(r <= 8 ? 1 + below(99) : r <= 30 ? 200 + below(400) : r <= 35 ? 600 + below(400) : 100 + below(100));
}

static void
make_profiles(void)
{
    static const uint64_t base_ns[CLASSES] = {20000000, 15000000, 18000000, 25000000};
    static const uint64_t item_ns[CLASSES] = {100000, 350000, 300000, 500000};
    for (uint32_t c = 0; c < CLASSES; c++) {
        for (uint32_t items = 1; items <= 1024; items *= 2) {
            leat_profile_set(&profiles[c], items, base_ns[c] + item_ns[c] * items);
        }
    }
}

static void
make_situations(const struct shape *shape, uint64_t now_ns)
{
    for (uint32_t s = 0; s < SITUATIONS; s++) {
        for (uint32_t i = 0; i < shape->pending; i++) {
            const uint64_t arrival_ns = now_ns - (shape->pending - i) * (200000000 / shape->pending);
            queries[s][i] = (struct leat_sched_query){
                .arrival_ns = arrival_ns, .deadline_ns = arrival_ns + 350000000, .items = query_items(), .ordinal = i};
        }
        for (uint32_t w = 0; w < shape->workers; w++) {
            const bool busy = w > 0 && below(shape->workers) < shape->busy;
            const uint64_t r = below(100); /* 15, 25, 30 and 30 percent */
            workers[s][w] = (struct leat_sched_worker){
                .free_at_ns = busy ? now_ns + below(100000000) : 0,
                .outstanding = busy,
                .depth = 2,
                .worker_class = r < 15 ? 0 : r < 40 ? 1 : r < 70 ? 2 : 3,
            };
        }
    }
}

static struct bench_latency
route_window(const struct leat_clock *clock, uint64_t window_ns, const struct shape *shape,
             const struct leat_router *router, void *state, uint64_t now_ns)
{
    const uint64_t end_ns = leat_clock_now(clock) + window_ns;
    struct leat_route_pair pairs[WORKERS_MAX];
    uint64_t count = 0, before_ns;

    do {
        const uint32_t s = (uint32_t)count % SITUATIONS;
        const struct leat_route_input input = {
            .now_ns = now_ns,
            .pending = queries[s],
            .pending_count = shape->pending,
            .workers = workers[s],
            .worker_count = shape->workers,
            .class_count = CLASSES,
            .items_max = 1000,
            .predict = predict,
            .mean = predict_mean,
            .profiles = profiles,
        };
        before_ns = leat_clock_now(clock);
        if (router != NULL) {
            const uint32_t routed = router->route(state, &input, pairs, WORKERS_MAX);
            LEAT_ASSERT(routed <= shape->workers);
            sink = routed;
        }
        samples_ns[count++] = leat_clock_now(clock) - before_ns;
    } while (before_ns < end_ns && count < SAMPLES_MAX);
    return bench_order(samples_ns, count);
}

static void
print_rows(const struct bench_options *options, const char *subject, const double *median, const double *high,
           const double *ratio, double goal_us)
{
    struct bench_row row = {.subject = subject, .metric = "p50", .unit = "us", .windows = options->windows,
                            .value = bench_median(median, options->windows) / 1e3};
    if (goal_us > 0) {
        row.goal = BENCH_AT_MOST;
        row.target = goal_us;
    } else if (ratio != NULL) {
        row.peer = "fcfs";
        row.ratio = bench_median(ratio, options->windows);
    }
    bench_print(options, &row);
    bench_print(options, &(struct bench_row){.subject = subject, .metric = "p99", .unit = "us", .windows = options->windows,
                                             .value = bench_median(high, options->windows) / 1e3});
}

static void
measure_shape(const struct bench_options *options, const struct leat_clock *clock, const struct shape *shape, void **states)
{
    static double median[ROUTERS_MAX + 1][BENCH_WINDOWS_MAX], high[ROUTERS_MAX + 1][BENCH_WINDOWS_MAX];
    static double ratio[ROUTERS_MAX][BENCH_WINDOWS_MAX];
    const uint64_t now_ns = UINT64_C(1000000000000);
    uint32_t count = 0, fcfs = 0;
    char subject[96];

    make_situations(shape, now_ns);
    for (; leat_router_at(count) != NULL; count++) {
        fcfs = leat_router_at(count) == &leat_router_fcfs ? count : fcfs;
    }
    LEAT_ASSERT(count <= ROUTERS_MAX);
    for (uint32_t w = 0; w < options->windows; w++) {
        for (uint32_t r = 0; r <= count; r++) { /* the last is the clock alone */
            const struct bench_latency latency =
                route_window(clock, options->window_ns, shape, leat_router_at(r), r < count ? states[r] : NULL, now_ns);
            median[r][w] = (double)latency.p50;
            high[r][w] = (double)latency.p99;
        }
        for (uint32_t r = 0; r < count; r++) {
            ratio[r][w] = median[r][w] / median[fcfs][w];
        }
    }
    for (uint32_t r = 0; r < count; r++) {
        (void)snprintf(subject, sizeof(subject), "%s, %s", leat_router_at(r)->name, shape->name);
        print_rows(options, subject, median[r], high[r], r == fcfs ? NULL : ratio[r],
                   leat_router_at(r) == shape->goal_of ? shape->goal_us : 0);
    }
    (void)snprintf(subject, sizeof(subject), "the clock, %s", shape->name);
    print_rows(options, subject, median[count], high[count], NULL, 0);
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "route", .windows = 12, .window_ns = 20000000};
    void *states[ROUTERS_MAX] = {NULL};
    struct leat_clock clock;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    leat_clock_init(&clock);
    make_profiles();
    for (uint32_t r = 0; leat_router_at(r) != NULL; r++) {
        const struct leat_router *router = leat_router_at(r);
        LEAT_ASSERT(r < ROUTERS_MAX);
        states[r] = calloc(1, router->state_bytes + 1);
        LEAT_ASSERT(states[r] != NULL);
        LEAT_MUST(router->init == NULL || router->init(states[r], &(struct leat_router_options){0}) == LEAT_OK);
    }
    for (size_t s = 0; s < LEAT_COUNT_OF(shapes); s++) {
        measure_shape(&options, &clock, &shapes[s], states);
    }
    for (uint32_t r = 0; r < ROUTERS_MAX; r++) {
        free(states[r]);
    }
    bench_note_load(&options);
    return 0;
}
