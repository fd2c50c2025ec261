/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The allowable throughput is a rate that holds while the next one on its grid does not, and no rate far above;
 *          the oracle does what its rule says; and neither exceeds what is possible.
 * Oracle   Runs at the rates in question; a finer search; the oracle's rule with nothing but scans. What is possible: the
 *          dual of the fluid problem. For any prices of a nanosecond of each class, the queries that are served in time
 *          cost at least what the cheapest classes ask for them, and the workers' time until the last deadline is worth
 *          no more than its price.
 * Note     The oracle of simulate.h is not a bound: it deals from both ends of the sorted sizes, whatever they would cost
 *          elsewhere. How far routers get beyond it is told, not judged.
 */
#include <math.h>
#include <string.h>

#include "tests/tools/simulate_cases.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define OWN_MALLOC 1
extern void *__libc_malloc(size_t size);
static bool no_memory;

void *
malloc(size_t size)
{
    return no_memory ? NULL : __libc_malloc(size);
}
#endif

static double
throughput(const struct simulate_options *options, double tolerance)
{
    double qps;
    expect_ok(simulate_throughput(run, options, tolerance, &qps));
    return qps;
}

static bool
holds(struct simulate_options options, double rate_qps)
{
    options.rate_qps = rate_qps;
    return simulate(&options).violations / (double)options.workload->count <= options.violation_share;
}

/* Every query where it runs fastest, all workers always busy. */
static double
fluid_qps(const struct simulate_options *options)
{
    double sum_ns = 0, workers = 0;
    for (uint32_t i = 0; i < options->workload->count; i++) {
        double least_ns = INFINITY;
        for (uint32_t class = 0; class < options->table->class_count; class ++) {
            const double ns = (double)cell_mean_ns(options->table, class, options->workload->items[i]);
            least_ns = options->mix.count[class] > 0 && ns < least_ns ? ns : least_ns;
        }
        sum_ns += least_ns;
    }
    for (uint32_t class = 0; class < options->table->class_count; class ++) {
        workers += options->mix.count[class];
    }
    return workers * 1e9 * options->workload->count / sum_ns;
}

/* ---- The answer -------------------------------------------------------------------------------- */

static void
test_answer(void)
{
    struct simulate_run *other;
    uint32_t zeros = 0, rates = 0;

    expect_ok(simulate_run_create(&other));
    for (int round = 0; round < 24; round++) {
        struct simulate_table table = random_table(1 + (uint32_t)below(3), 1 + (uint32_t)below(8), uniform(0, 0.3), 1);
        struct simulate_workload workload = random_workload(&table, 500, (enum arrivals_kind)below(3));
        struct simulate_options options = {.table = &table, .workload = &workload, .mix = random_mix(table.class_count, 3),
                                           .objective_ns = (uint64_t)(round % 6 == 0 ? 5e4 : uniform(3e5, 1e7)),
                                           .percentile = 95, .violation_share = uniform(0, 0.1)};
        for (size_t r = 0; (options.router = leat_router_at(r)) != NULL; r++) {
            const double tolerance = uniform(0.002, 0.2), qps = throughput(&options, tolerance);
            double again;
            if (qps > 0) {
                EXPECT(holds(options, qps) && !holds(options, qps / (1 - tolerance)));
                rates++;
            }
            zeros += qps == 0;
            /* And none above: at most 10 % apart, from twice what flows down to a thousandth. */
            const double stride = fmax(1, floor(log1p(-0.1) / log1p(-tolerance))), top_qps = 2 * fluid_qps(&options);
            for (double s = stride; s < log(1e-3) / log1p(-tolerance); s += stride) {
                const double above_qps = top_qps * pow(1 - tolerance, s);
                if (above_qps < qps * (1 + 1e-9)) {
                    break;
                }
                EXPECT(!holds(options, above_qps));
            }
            expect_ok(simulate_throughput(other, &options, tolerance, &again));
            EXPECT(again == qps);
        }
        free_case(&table, &workload);
    }
    EXPECT(zeros >= 4 * 3 && rates > 40);
    simulate_run_destroy(other);
}

/* One queue and one class: what holds at a rate holds at every lower one, so searches agree within their tolerances. */
static void
test_tolerance(void)
{
    for (int round = 0; round < 40; round++) {
        struct simulate_table table = random_table(1, 10, 0.5, 1);
        struct simulate_workload workload = random_workload(&table, 3000, ARRIVALS_POISSON);
        struct simulate_options options = {.table = &table, .workload = &workload, .router = &leat_router_fcfs,
                                           .mix = {{(uint16_t)(1 + below(8))}}, .worker_depth = 1,
                                           .objective_ns = 2 * table.samples_ns[10 * table.size_count - 1],
                                           .violation_share = 0.01};
        const double fine = throughput(&options, 0.0005);
        EXPECT(fine > 0);
        for (int i = 0; i < 5; i++) {
            const double tolerance = uniform(0.001, 0.3), coarse = throughput(&options, tolerance);
            EXPECT(coarse > fine * (1 - tolerance) && coarse < fine / (1 - 0.0005));
        }
        free_case(&table, &workload);
    }
}

/* Serves nobody before another comes, or a second has passed. */
static uint32_t
sociable_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    (void)state, (void)pairs_max;
    pairs[0] = (struct leat_route_pair){0, 0};
    return input->workers[0].outstanding == 0 &&
           (input->pending_count > 1 || input->now_ns >= input->pending[0].arrival_ns + 1000000000);
}

/* Late at low rates, but not at all at high ones. */
static void
test_fails_when_idle(void)
{
    static const struct leat_router sociable = {.name = "sociable", .route = sociable_route};
    struct simulate_table table = constant_table(1000000);
    struct simulate_workload workload = random_workload(&table, 5000, ARRIVALS_POISSON);
    const struct simulate_options options = {.table = &table, .workload = &workload, .router = &sociable, .mix = {{1}},
                                             .objective_ns = 20000000, .violation_share = 0.01};
    const double qps = throughput(&options, 0.01);

    EXPECT(!holds(options, 30) && !holds(options, 100) && holds(options, 600));
    EXPECT(qps > 600 && holds(options, qps) && !holds(options, qps / 0.99));
    free_case(&table, &workload);
}

static void
test_nothing_in_time(void)
{
    struct simulate_table table = random_table(2, 5, 0.2, 1);
    struct simulate_workload workload = random_workload(&table, 500, ARRIVALS_POISSON);
    struct simulate_options options = {.table = &table, .workload = &workload, .mix = {{2, 2}}, .violation_share = 0.01};

    options.objective_ns = 50000; /* nothing is as fast */
    for (size_t r = 0; (options.router = leat_router_at(r)) != NULL; r++) {
        EXPECT(throughput(&options, 0.01) == 0);
    }
    free_case(&table, &workload);
}

/* 0.1 ms an item on one class, 10 ms whatever the size on the other: together ten times what each could do alone. */
static void
test_comparative_advantage(void)
{
    struct simulate_table table = empty_table(2, 1000, 1, 1);
    for (uint32_t row = 0; row < 1000; row++) {
        table.samples_ns[row] = 10000000;
        table.samples_ns[1000 + row] = 100000 * (row + 1);
    }
    finish_table(&table);
    struct simulate_workload workload = random_workload(&table, 5000, ARRIVALS_POISSON);
    for (uint32_t i = 0; i < workload.count; i++) {
        workload.items[i] = below(100) == 0 ? 1000 : 1;
    }
    const struct simulate_options options = {.table = &table, .workload = &workload, .router = &leat_router_threshold,
                                             .mix = {{1, 1}}, .objective_ns = 100000000, .violation_share = 0.01};
    const double qps = throughput(&options, 0.01);
    EXPECT(qps > 5 * busy_qps(&table, &workload, &options.mix));
    EXPECT(holds(options, qps) && !holds(options, qps / 0.99));
    free_case(&table, &workload);
}

static void
test_refused(void)
{
    struct simulate_table table = random_table(1, 1, 0, 1);
    struct simulate_workload workload = random_workload(&table, 10, ARRIVALS_CONSTANT), empty = workload;
    struct simulate_options options = {.table = &table, .workload = &workload, .router = &leat_router_fcfs, .mix = {{1}},
                                       .objective_ns = 100000000};
    static const double wrong[] = {0, 1, -0.1, NAN};
    double qps = -1;

    for (size_t i = 0; i < LEAT_COUNT_OF(wrong); i++) {
        EXPECT(simulate_throughput(run, &options, wrong[i], &qps) == LEAT_ERR_INVALID);
    }
    empty.count = 0;
    options.workload = &empty;
    EXPECT(simulate_throughput(run, &options, 0.1, &qps) == LEAT_ERR_INVALID);
    options.workload = &workload;
    options.mix.count[0] = 0;
    EXPECT(simulate_throughput(run, &options, 0.1, &qps) == LEAT_ERR_INVALID);
    EXPECT(strstr(leat_error_text(), "no workers") != NULL);
    EXPECT(qps == -1);
    free_case(&table, &workload);
}

/* ---- The oracle -------------------------------------------------------------------------------- */

/* By its rule: all queries are looked at for each that is given away. Ties: the lower worker. */
static double
naive_oracle(const struct simulate_table *table, const struct simulate_workload *workload,
             const struct leat_pool_mix *mix, uint32_t base, uint64_t objective_ns)
{
    enum { WORKERS = 16, QUERIES = 64 };
    uint64_t free_ns[WORKERS] = {0}, end_ns = 0;
    uint32_t classes[WORKERS], workers = 0, left = workload->count;
    bool out[WORKERS] = {false}, given[QUERIES] = {false};

    for (uint32_t class = 0; class < table->class_count; class ++) {
        for (uint32_t i = 0; i < mix->count[class]; i++) {
            classes[workers++] = class;
        }
    }
    while (left > 0) {
        uint32_t w = workers, best = QUERIES;
        for (uint32_t other = 0; other < workers; other++) {
            w = !out[other] && (w == workers || free_ns[other] < free_ns[w]) ? other : w;
        }
        if (w == workers) {
            return 0;
        }
        for (uint32_t q = 0; q < workload->count; q++) {
            const bool better = best == QUERIES || (classes[w] == base ? workload->items[q] > workload->items[best]
                                                                       : workload->items[q] < workload->items[best]);
            best = !given[q] && better ? q : best;
        }
        const uint64_t ns = cell_mean_ns(table, classes[w], workload->items[best]);
        if (classes[w] != base && ns > objective_ns) {
            out[w] = true;
            continue;
        }
        given[best] = true;
        left--;
        free_ns[w] += ns;
        end_ns = free_ns[w] > end_ns ? free_ns[w] : end_ns;
    }
    return workload->count * 1e9 / (double)end_ns;
}

static double
oracle_qps(const struct simulate_table *table, const struct simulate_workload *workload, const struct leat_pool_mix *mix,
           uint32_t base, uint64_t objective_ns)
{
    double qps = -1;
    expect_ok(simulate_oracle(table, workload, mix, base, objective_ns, &qps));
    return qps;
}

static void
test_oracle(void)
{
    uint32_t zeros = 0;

    for (int round = 0; round < LEAT_TEST_ROUNDS(1500); round++) {
        struct simulate_table table = random_table(1 + (uint32_t)below(4), 2, 0.2, below(2) == 0 ? 1 : 500000);
        struct simulate_workload workload = random_workload(&table, 1 + (uint32_t)below(40), ARRIVALS_CONSTANT);
        const struct leat_pool_mix mix = random_mix(table.class_count, 3);
        const uint32_t base = (uint32_t)below(table.class_count);
        const uint64_t objective_ns = (uint64_t)uniform(2e5, 4e6);
        const double qps = oracle_qps(&table, &workload, &mix, base, objective_ns);
        EXPECT(qps == naive_oracle(&table, &workload, &mix, base, objective_ns));
        zeros += qps == 0;
        free_case(&table, &workload);
    }
    EXPECT(zeros > LEAT_TEST_ROUNDS(1500) / 30 && zeros < LEAT_TEST_ROUNDS(1500) / 2);
}

static void
test_oracle_without_memory(void)
{
#ifdef OWN_MALLOC
    struct simulate_table table = random_table(1, 1, 0, 1);
    struct simulate_workload workload = random_workload(&table, 40, ARRIVALS_CONSTANT);
    const struct leat_pool_mix mix = {{1}};
    double qps = -1;

    no_memory = true;
    const enum leat_status status = simulate_oracle(&table, &workload, &mix, 0, 1000000, &qps);
    no_memory = false;
    EXPECT(status == LEAT_ERR_NOMEM && qps == -1 && strstr(leat_error_text(), "40 queries") != NULL);
    free_case(&table, &workload);
#endif
}

/* ---- What is possible -------------------------------------------------------------------------- */

/*
 * The least worth of all but the `spared` dearest queries, in seconds of all workers; the most over random prices. A class
 * may serve what it has within limit_ns; `base`, where there is one, everything.
 */
static double
least_work_s(const struct simulate_table *table, const struct simulate_workload *workload,
             const struct leat_pool_mix *mix, uint64_t limit_ns, uint32_t base, uint32_t spared)
{
    uint64_t *costs = calloc(workload->count, sizeof(*costs));
    double prices[LEAT_POOL_CLASSES_MAX] = {0}, kept[LEAT_POOL_CLASSES_MAX] = {0}, most = 0;

    EXPECT(costs != NULL);
    for (int trial = 0; trial < 400; trial++) {
        double sum = 0, worth = 0;
        for (uint32_t class = 0; class < table->class_count; class ++) {
            prices[class] = trial < 100 ? uniform(0, 1) : kept[class] * exp(uniform(-1, 1) * 20 / trial);
            sum += mix->count[class] * prices[class];
        }
        for (uint32_t i = 0; i < workload->count; i++) {
            double least = INFINITY;
            for (uint32_t class = 0; class < table->class_count; class ++) {
                const uint64_t ns = cell_mean_ns(table, class, workload->items[i]);
                const double cost = prices[class] / sum * (double)ns;
                least = mix->count[class] > 0 && (class == base || ns <= limit_ns) && cost < least ? cost : least;
            }
            EXPECT(least < INFINITY || spared > 0);
            costs[i] = least < 1e15 ? (uint64_t)least : (uint64_t)1e15;
        }
        qsort(costs, workload->count, sizeof(*costs), compare_times);
        for (uint32_t i = 0; i < workload->count - spared; i++) {
            worth += (double)costs[i] * 1e-9;
        }
        if (worth > most) {
            most = worth;
            memcpy(kept, prices, sizeof(kept));
        }
    }
    free(costs);
    return most;
}

static void
test_fluid_bound(void)
{
    double closest = 0, oracle_closest = 0, beyond_oracle = 0;

    for (int round = 0; round < 10; round++) {
        struct simulate_table table = random_table(1 + (uint32_t)below(3), 1, 0, 1); /* no luck: every time is known */
        struct simulate_workload workload = random_workload(&table, 1000, ARRIVALS_POISSON);
        const uint32_t count = workload.count;
        struct simulate_options options = {.table = &table, .workload = &workload, .mix = random_mix(table.class_count, 3),
                                           .violation_share = 0.01};
        options.mix.count[0]++; /* it is to serve all sizes */
        options.objective_ns = (uint64_t)(uniform(1, 4) * (double)table.mean_ns[table.size_count - 1]);
        const uint32_t spared = (uint32_t)(0.01 * count);
        const double work_s = least_work_s(&table, &workload, &options.mix, options.objective_ns, UINT32_MAX, spared);
        const double objective_s = (double)options.objective_ns * 1e-9;
        const double last_s = workload.arrival_s[count - 1]; /* at one a second */
        const double oracle = oracle_qps(&table, &workload, &options.mix, 0, options.objective_ns);
        const double possible = count / least_work_s(&table, &workload, &options.mix, options.objective_ns, 0, 0);
        EXPECT(oracle > 0 && oracle < possible * (1 + 1e-5));
        oracle_closest = fmax(oracle_closest, oracle / possible);
        EXPECT(work_s > 2 * objective_s);
        for (size_t r = 0; (options.router = leat_router_at(r)) != NULL; r++) {
            const double qps = throughput(&options, 0.01), most_qps = last_s / (work_s - objective_s);
            EXPECT(qps < most_qps * (1 + 1e-5));
            closest = fmax(closest, qps / most_qps);
            beyond_oracle = fmax(beyond_oracle, qps / oracle);
        }
        free_case(&table, &workload);
    }
    printf("of what is possible: routers reach %.3f at most, the oracle %.3f; a router reaches %.3f of the oracle\n",
           closest, oracle_closest, beyond_oracle);
    EXPECT(closest > 0.7 && oracle_closest > 0.9);
}

int
main(void)
{
    cases_start();
    test_answer();
    test_tolerance();
    test_fails_when_idle();
    test_nothing_in_time();
    test_comparative_advantage();
    test_refused();
    test_oracle();
    test_oracle_without_memory();
    test_fluid_bound();
    simulate_run_destroy(run);
    return 0;
}
