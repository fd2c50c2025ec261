/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "sched/candidates.h"
#include "sched/policy.h"
#include "sched/profile.h"

static const char measures[] =
    "Measures   Which variant, and how many queries: what that choice costs of 64 variants, as many as an application may have,\n"
    "           with their profiles, before 32 waiting queries with accuracy floors, cost caps and deadlines; what it costs to\n"
    "           rank 60 idle workers with 9 variants, before a router chooses, while instances are out of service; and what a\n"
    "           completed batch costs that an instance is told of, and its evaluation.\n"
    "Beside it  The other selectors that choose by profiles.\n"
    "Does not   route, hand anything over, or have other data in the caches.\n"
    "Method     One thread, the subjects taking turns, a window each. Figures are medians over windows of each window's\n"
    "           percentile; a call is timed by itself, and the clock's own time is in it.";

enum { VARIANTS = LEAT_SCHED_VARIANTS_MAX, QUERIES = 32, WORLDS = 256, BATCH_MAX = 32, SAMPLES_MAX = 1 << 18, BLOCK = 4096,
       RANKED = 60, RANKED_VARIANTS = 9 };

static const char *const selectors[] = {"infaas", "greedy", "jellyfish", "fixed"};
enum { SELECTORS = LEAT_COUNT_OF(selectors) };

static struct leat_profile profiles[VARIANTS];
static struct leat_sched_variant variants[VARIANTS];
static struct world {
    struct leat_sched_query queries[QUERIES];
    struct leat_instance instances[VARIANTS];
} worlds[WORLDS];
static struct leat_instance ranked[RANKED][RANKED_VARIANTS];
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
predict(const void *context, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct leat_profile *of = context;
    (void)application, (void)worker_class;
    return leat_profile_predict(&of[variant], items);
}

static uint64_t
cost(const void *context, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    (void)context, (void)application, (void)worker_class;
    return (uint64_t)items * variants[variant].cost_nano;
}

/* The more accurate, the slower and the dearer. */
static void
make_worlds(void)
{
    for (uint32_t v = 0; v < VARIANTS; v++) {
        leat_profile_init(&profiles[v], LEAT_PROFILE_DEFAULT, NULL);
        for (uint32_t items = 1; items <= BATCH_MAX; items *= 2) {
            leat_profile_set(&profiles[v], items, (v + 4) * (300000 + 150000 * items));
        }
        variants[v] = (struct leat_sched_variant){
            .accuracy_ppm = 500000 + 5000 * v, .items_max = BATCH_MAX, .cost_nano = 10 + v, .ready = true};
    }
    for (uint32_t w = 0; w < WORLDS; w++) {
        for (uint32_t q = 0; q < QUERIES; q++) {
            worlds[w].queries[q] = (struct leat_sched_query){
                .arrival_ns = q,
                .deadline_ns = 20000000 + below(100000000),
                .items = 1,
                .accuracy_floor_ppm = below(2) == 0 ? 0 : 500000 + (uint32_t)below(200000),
                .cost_cap_nano = below(4) == 0 ? 40 + (uint32_t)below(40) : 0,
            };
        }
        for (uint32_t v = 0; v < VARIANTS; v++) {
            leat_instance_turn(&worlds[w].instances[v], NULL, LEAT_INSTANCE_ACTIVE);
            worlds[w].instances[v].state = (uint8_t)(below(8) == 0 ? LEAT_INSTANCE_INTERFERED : LEAT_INSTANCE_ACTIVE);
        }
    }
    for (uint32_t w = 0; w < RANKED; w++) {
        memcpy(ranked[w], worlds[w].instances, sizeof(ranked[w]));
    }
}

static struct leat_select_input
input_of(const struct world *world, const struct leat_sched_worker *worker)
{
    return (struct leat_select_input){
        .now_ns = 1000,
        .pending = world->queries,
        .pending_count = 1 + (uint32_t)below(QUERIES),
        .waiting_count = QUERIES,
        .variants = variants,
        .variant_count = VARIANTS,
        .worker = worker,
        .worker_count = 8,
        .idle_count = 1,
        .rate_qps = 100,
        .predict = predict,
        .cost = cost,
        .profiles = profiles,
        .instances = world->instances,
    };
}

static struct bench_latency
select_window(const struct leat_clock *clock, const struct leat_selector *selector, void *state, uint64_t window_ns)
{
    const struct leat_sched_worker worker = {.depth = 1};
    const uint64_t begin_ns = leat_clock_now(clock);
    uint64_t count = 0, before_ns = begin_ns;
    uint32_t sum = 0;

    while (count < SAMPLES_MAX && before_ns - begin_ns < window_ns) {
        const struct leat_select_input input = input_of(&worlds[below(WORLDS)], &worker);
        before_ns = leat_clock_now(clock);
        const struct leat_selection selection = selector->select(state, &input);
        samples_ns[count++] = leat_clock_now(clock) - before_ns;
        LEAT_ASSERT(selection.queries <= input.pending_count && selection.variant < VARIANTS);
        sum += selection.variant;
    }
    sink = sum;
    return bench_order(samples_ns, count);
}

/* Of workers that are all idle. */
static struct bench_latency
rank_window(const struct leat_clock *clock, uint64_t window_ns)
{
    struct leat_sched_worker workers[RANKED], shown[RANKED];
    const uint64_t begin_ns = leat_clock_now(clock);
    uint64_t count = 0, before_ns = begin_ns;
    uint32_t sum = 0;

    for (uint32_t w = 0; w < RANKED; w++) {
        workers[w] = (struct leat_sched_worker){.depth = 1};
    }
    while (count < SAMPLES_MAX && before_ns - begin_ns < window_ns) {
        struct leat_select_input input = input_of(&worlds[below(WORLDS)], NULL);
        input.variant_count = RANKED_VARIANTS;
        const struct leat_candidates_input candidates = {
            .selector = &leat_selector_infaas,
            .select = &input,
            .workers = workers,
            .worker_count = RANKED,
            .instances = ranked[0],
            .stride = RANKED_VARIANTS,
        };
        before_ns = leat_clock_now(clock);
        leat_candidates_show(&candidates, shown);
        samples_ns[count++] = leat_clock_now(clock) - before_ns;
        sum += shown[below(RANKED)].depth;
    }
    sink = sum;
    return bench_order(samples_ns, count);
}

/* A batch, or an evaluation and as many batches as its verdict takes. */
static double
instance_window(const struct leat_clock *clock, bool evaluate, uint64_t window_ns)
{
    static struct leat_instance_worker worker;
    static uint64_t now_ns;
    const struct leat_instance_demand demand = {.rate_qps = 100, .waiting_items = 3, .worker_count = 8};
    const uint64_t begin_ns = leat_clock_now(clock);
    uint64_t count = 0, at_ns = begin_ns;

    while (at_ns - begin_ns < window_ns) {
        for (uint32_t i = 0; i < BLOCK; i++) {
            struct leat_instance *instance = &worlds[i / VARIANTS % WORLDS].instances[i % VARIANTS];
            for (uint32_t b = 0; b < LEAT_INSTANCE_BATCHES; b++) {
                const struct leat_instance_batch batch = {
                    .run_ns = 1000 + b, .profiled_ns = 900, .response_ns = 3000 + i % 64, .items = 4};
                leat_instance_begin(instance);
                leat_instance_end(instance, &worker, now_ns += 1100, &batch);
            }
            if (evaluate) {
                (void)leat_instance_evaluate(instance, &worker, &leat_instance_limits_default, &demand);
            }
        }
        count += BLOCK;
        at_ns = leat_clock_now(clock);
    }
    return (double)(at_ns - begin_ns) / (double)count;
}

static void
print_selector(const struct bench_options *options, uint32_t s, const double *p50, const double *p99, const double *ratio)
{
    bench_print(options, &(struct bench_row){.subject = selectors[s],
                                             .metric = "p50",
                                             .unit = "ns",
                                             .windows = options->windows,
                                             .value = bench_median(p50, options->windows),
                                             .peer = s == 0 ? selectors[1] : NULL,
                                             .ratio = s == 0 ? bench_median(ratio, options->windows) : 0});
    bench_print(options, &(struct bench_row){.subject = selectors[s],
                                             .metric = "p99",
                                             .unit = "ns",
                                             .windows = options->windows,
                                             .value = bench_median(p99, options->windows),
                                             .goal = s == 0 ? BENCH_AT_MOST : BENCH_NO_GOAL,
                                             .target = 10000});
}

int
main(int argc, char **argv)
{
    static double p50[SELECTORS][BENCH_WINDOWS_MAX], p99[SELECTORS][BENCH_WINDOWS_MAX], ratio[BENCH_WINDOWS_MAX];
    static double batch[BENCH_WINDOWS_MAX], verdict[BENCH_WINDOWS_MAX], rank50[BENCH_WINDOWS_MAX], rank99[BENCH_WINDOWS_MAX];
    static _Alignas(LEAT_CACHE_LINE) char states[SELECTORS][1 << 16];
    struct bench_options options = {.name = "select", .windows = 20, .window_ns = 50000000};
    const struct leat_selector_options selector_options = {.objective_ns = 150000000, .worker_count = 8};
    struct leat_clock clock;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    leat_clock_init(&clock);
    make_worlds();
    for (uint32_t s = 0; s < SELECTORS; s++) {
        const struct leat_selector *selector = leat_selector_find(selectors[s]);
        LEAT_MUST(selector->state_bytes <= sizeof(states[s]));
        LEAT_MUST(selector->init == NULL || selector->init(states[s], &selector_options) == LEAT_OK);
    }
    for (uint32_t w = 0; w < options.windows; w++) {
        for (uint32_t s = 0; s < SELECTORS; s++) {
            const struct bench_latency order =
                select_window(&clock, leat_selector_find(selectors[s]), states[s], options.window_ns);
            p50[s][w] = (double)order.p50;
            p99[s][w] = (double)order.p99;
        }
        ratio[w] = p50[1][w] > 0 ? p50[0][w] / p50[1][w] : 0;
        const struct bench_latency ranking = rank_window(&clock, options.window_ns);
        rank50[w] = (double)ranking.p50;
        rank99[w] = (double)ranking.p99;
        const double batches = instance_window(&clock, false, options.window_ns);
        batch[w] = batches / LEAT_INSTANCE_BATCHES;
        verdict[w] = instance_window(&clock, true, options.window_ns) - batches;
    }
    for (uint32_t s = 0; s < SELECTORS; s++) {
        print_selector(&options, s, p50[s], p99[s], ratio);
    }
    bench_print(&options, &(struct bench_row){.subject = "infaas, 60 workers", .metric = "p50", .unit = "ns",
                                              .windows = options.windows, .value = bench_median(rank50, options.windows)});
    bench_print(&options, &(struct bench_row){.subject = "infaas, 60 workers", .metric = "p99", .unit = "ns",
                                              .windows = options.windows, .value = bench_median(rank99, options.windows)});
    bench_print(&options, &(struct bench_row){.subject = "instance, a batch", .metric = "mean", .unit = "ns",
                                              .windows = options.windows, .value = bench_median(batch, options.windows)});
    bench_print(&options, &(struct bench_row){.subject = "instance, a verdict", .metric = "mean", .unit = "ns",
                                              .windows = options.windows, .value = bench_median(verdict, options.windows)});
    bench_note_load(&options);
    return 0;
}
