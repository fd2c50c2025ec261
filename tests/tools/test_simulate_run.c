/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A run is what simulate.h says, to the nanosecond: who serves whom and when, what a router sees, what is late.
 * Oracle   One class: the recursion of Kiefer and Wolfowitz, no events in it. All routers, several classes, queues at
 *          workers: a second simulator, which keeps no state that it can work out anew, by scans over everything. When to
 *          stop early: the run that does not. Noise: what a router observes, against the normal distribution. Learning: the
 *           second simulator, with profiles and probes of its own; what a router observes at first and in the end.
 * Method   Random tables, workloads, mixes and rates with a printed seed.
 */
#include <math.h>
#include <string.h>

#include "sched/profile.h"
#include "tests/tools/simulate_cases.h"

enum { QUERIES_MAX = 4000, WORKERS = 40, ERRORS_SEEN = 4096 };

static uint64_t
arrival_ns(const struct simulate_options *options, uint32_t query)
{
    return (uint64_t)(options->workload->arrival_s[query] * (1e9 / options->rate_qps));
}

static uint64_t
service_ns(const struct simulate_options *options, uint32_t query, uint32_t class)
{
    const struct simulate_table *table = options->table;
    const uint32_t row = table->row_of_items[options->workload->items[query]];
    const uint32_t sample = (uint32_t)floor(options->workload->luck[query] * 0x1p-32 * table->sample_count);
    uint64_t ns = table->samples_ns[(class * table->size_count + row) * table->sample_count + sample];

    if (options->service_noise_share > 0) {
        const double noisy = (double)ns * (1 + options->service_noise_share * (double)options->workload->noise[query]);
        ns = noisy < 0 ? 0 : (uint64_t)noisy;
    }
    return ns < 1 ? 1 : ns;
}

/* The least time that at least `percent` of all do not exceed. Sorted. */
static uint64_t
rank_ns(const uint64_t *sorted_ns, uint32_t count, uint32_t percent)
{
    uint32_t i = 0;
    while ((uint64_t)(i + 1) * 100 < (uint64_t)count * percent) {
        i++;
    }
    return sorted_ns[i];
}

static void
expect_responses(const struct simulate_options *options, const struct simulate_result *result, uint64_t *responses_ns,
                 uint32_t count)
{
    uint32_t late = 0;
    for (uint32_t i = 0; i < count; i++) {
        late += responses_ns[i] > options->objective_ns;
    }
    qsort(responses_ns, count, sizeof(*responses_ns), compare_times);
    EXPECT(result->queries == count && result->violations == late && !result->stopped_early);
    EXPECT(result->p50_ns == rank_ns(responses_ns, count, 50));
    EXPECT(result->p99_ns == rank_ns(responses_ns, count, 99));
    EXPECT(result->max_ns == responses_ns[count - 1]);
    EXPECT((result->p99_ns > options->objective_ns) == (late > count * 0.01));
}

/* ---- One class: a recursion -------------------------------------------------------------------- */

/* Each query in turn to a worker: the one that is free first, or in turn. False if one had more than it may hold. */
static bool
recursion(const struct simulate_options *options, bool in_turn, uint64_t *responses_ns, uint64_t *ret_end_ns)
{
    uint64_t free_ns[WORKERS] = {0}, ends_ns[WORKERS][SIMULATE_DEPTH_MAX] = {{0}}, served[WORKERS] = {0};
    const uint32_t workers = options->mix.count[0];
    bool fits = true;

    *ret_end_ns = 0;
    for (uint32_t i = 0; i < options->workload->count; i++) {
        const uint64_t at_ns = arrival_ns(options, i);
        uint32_t w = in_turn ? i % workers : 0;
        for (uint32_t other = 0; !in_turn && other < workers; other++) {
            w = free_ns[other] < free_ns[w] ? other : w;
        }
        free_ns[w] = (free_ns[w] > at_ns ? free_ns[w] : at_ns) + service_ns(options, i, 0);
        responses_ns[i] = free_ns[w] - at_ns;
        *ret_end_ns = free_ns[w] > *ret_end_ns ? free_ns[w] : *ret_end_ns;
        uint64_t *end_ns = &ends_ns[w][served[w]++ % SIMULATE_DEPTH_MAX];
        fits = fits && *end_ns <= at_ns;
        *end_ns = free_ns[w];
    }
    return fits;
}

static void
test_one_class(void)
{
    enum { CENTRAL, AT_WORKERS, IN_TURN }; /* where a query waits: AT_WORKERS by predictions that are exact */
    static uint64_t responses_ns[QUERIES_MAX];
    uint32_t compared[3] = {0};

    for (int round = 0; round < LEAT_TEST_ROUNDS(400); round++) {
        const int kind = round % 3;
        struct simulate_table table = random_table(1, kind == AT_WORKERS ? 1 : 1 + (uint32_t)below(20), 0.9, 1);
        struct simulate_workload workload =
            random_workload(&table, 1 + (uint32_t)below(QUERIES_MAX), (enum arrivals_kind)below(3));
        struct simulate_options options = {
            .table = &table, .workload = &workload, .mix = {{(uint16_t)(1 + below(8))}},
            .router = kind == IN_TURN ? &leat_router_round_robin : &leat_router_fcfs, .worker_depth = kind == CENTRAL,
            .service_noise_share = kind == AT_WORKERS ? 0 : uniform(0, 0.8), .objective_ns = (uint64_t)uniform(1e6, 2e7)};
        uint64_t end_ns;

        options.rate_qps = busy_qps(&table, &workload, &options.mix) * uniform(0.1, kind == CENTRAL ? 2 : 0.95);
        if (recursion(&options, kind == IN_TURN, responses_ns, &end_ns) || kind == CENTRAL) {
            const struct simulate_result result = simulate(&options);
            EXPECT(result.end_ns == end_ns);
            expect_responses(&options, &result, responses_ns, workload.count);
            compared[kind]++;
        }
        free_case(&table, &workload);
    }
    EXPECT(compared[CENTRAL] > LEAT_TEST_ROUNDS(100) && compared[AT_WORKERS] > LEAT_TEST_ROUNDS(40) &&
           compared[IN_TURN] > LEAT_TEST_ROUNDS(40));
}

/* ---- All routers: a second simulator ----------------------------------------------------------- */

struct naive {
    const struct simulate_options *options;
    uint64_t now_ns;
    uint32_t arrived, answered;
    struct naive_query {
        uint32_t worker; /* WORKERS: it waits centrally */
        uint32_t turn;   /* the how manyth that was given away */
        uint64_t end_ns; /* 0: does not run, or not yet */
        uint64_t predicted_end_ns, started_ns, response_ns;
        uint64_t learned_ns; /* its mean time, as known when it was given away */
        bool done, probe;
    } queries[QUERIES_MAX];
    uint32_t classes[WORKERS], worker_count, given;
    struct leat_profile profiles[LEAT_SCHED_CLASSES_MAX];
    uint32_t condemned[LEAT_SCHED_CLASSES_MAX]; /* since the last probe */
    uint32_t right[LEAT_SCHED_CLASSES_MAX];     /* probes in a row that took what was predicted */
    uint64_t rests_ns[LEAT_SCHED_CLASSES_MAX];  /* until then, no probe */
    struct simulate_result result;
    uint64_t responses_ns[QUERIES_MAX];
};

static uint64_t
naive_mean(const void *profiles, uint16_t application, uint32_t variant, uint16_t class, uint32_t items)
{
    const struct naive *naive = profiles;
    EXPECT(application == 0 && variant == 0);
    if (naive->options->learn) {
        return leat_profile_mean(&naive->profiles[class], items);
    }
    return cell_mean_ns(naive->options->table, class, items);
}

static uint64_t
naive_predict(const void *profiles, uint16_t application, uint32_t variant, uint16_t class, uint32_t items)
{
    const struct naive *naive = profiles;
    if (naive->options->learn) {
        return leat_profile_predict(&naive->profiles[class], items);
    }
    return naive->options->percentile > 0
               ? simulate_table_noisy_percentile(naive->options->table, class, items, naive->options->percentile,
                                                 naive->options->service_noise_share)
               : naive_mean(profiles, application, variant, class, items);
}

static uint64_t
naive_mean_of(const struct naive *naive, uint32_t query, uint32_t worker)
{
    return naive->options->learn
               ? naive->queries[query].learned_ns
               : cell_mean_ns(naive->options->table, naive->classes[worker], naive->options->workload->items[query]);
}

/* Of those that a worker holds, the one that was given to it first; QUERIES_MAX: it is idle. */
static uint32_t
naive_first(const struct naive *naive, uint32_t worker)
{
    uint32_t first = QUERIES_MAX;
    for (uint32_t q = 0; q < naive->arrived; q++) {
        const struct naive_query *query = &naive->queries[q];
        if (query->worker == worker && !query->done &&
            (first == QUERIES_MAX || query->turn < naive->queries[first].turn)) {
            first = q;
        }
    }
    return first;
}

static void
naive_start(struct naive *naive, uint32_t worker)
{
    const uint32_t q = naive_first(naive, worker);
    if (q < QUERIES_MAX && naive->queries[q].end_ns == 0) {
        naive->queries[q].started_ns = naive->now_ns;
        naive->queries[q].end_ns = naive->now_ns + service_ns(naive->options, q, naive->classes[worker]);
        naive->queries[q].predicted_end_ns = naive->now_ns + naive_mean_of(naive, q, worker);
    }
}

static void
naive_give(struct naive *naive, uint32_t q, uint32_t worker)
{
    naive->queries[q].worker = worker;
    naive->queries[q].turn = naive->given++;
    naive->queries[q].learned_ns =
        leat_profile_mean(&naive->profiles[naive->classes[worker]], naive->options->workload->items[q]);
    naive_start(naive, worker);
}

/* What has just arrived probes the first class that it may. */
static void
naive_probe(struct naive *naive, uint32_t q)
{
    const uint32_t class_count = naive->options->table->class_count;
    bool probes = false;

    for (uint32_t class = 0; naive->options->learn && class_count > 1 && class < class_count; class ++) {
        const uint64_t ns = leat_profile_predict(&naive->profiles[class], naive->options->workload->items[q]);
        bool under_way = false;
        for (uint32_t other = 0; other < q; other++) {
            const struct naive_query *query = &naive->queries[other];
            under_way = under_way || (query->probe && !query->done && naive->classes[query->worker] == class);
        }
        if (ns <= naive->options->objective_ns || ++naive->condemned[class] <= 16) {
            continue;
        }
        naive->condemned[class] = 16;
        for (uint32_t w = 0; w < naive->worker_count && !probes && !under_way && naive->now_ns >= naive->rests_ns[class]; w++) {
            if (naive->classes[w] == class && naive_first(naive, w) == QUERIES_MAX) {
                naive->condemned[class] = 0;
                naive->queries[q].probe = probes = true;
                naive->result.probes++;
                naive_give(naive, q, w);
            }
        }
    }
}

/* True when the router may be asked. */
static bool
naive_look(struct naive *naive, struct leat_sched_worker *workers, struct leat_sched_query *pending, uint32_t *ids,
           uint32_t *ret_count)
{
    const uint32_t held = naive->options->worker_depth > 0 ? naive->options->worker_depth : SIMULATE_DEPTH_MAX;
    uint32_t count = 0;
    bool room = false;

    memset(workers, 0, WORKERS * sizeof(*workers));
    for (uint32_t w = 0; w < naive->worker_count; w++) {
        workers[w].worker_class = (uint16_t)naive->classes[w];
        workers[w].depth = naive->options->router->queues ? held : 1;
    }
    for (uint32_t q = 0; q < naive->arrived; q++) {
        const struct naive_query *query = &naive->queries[q];
        const uint64_t at_ns = arrival_ns(naive->options, q);
        if (query->worker == WORKERS && count < LEAT_SCHED_PENDING_MAX) {
            ids[count] = q;
            pending[count++] =
                (struct leat_sched_query){.arrival_ns = at_ns,
                                          .deadline_ns = at_ns + naive->options->objective_ns,
                                          .items = naive->options->workload->items[q],
                                          .ordinal = q};
        }
        if (query->worker < WORKERS && !query->done) {
            struct leat_sched_worker *worker = &workers[query->worker];
            worker->outstanding++;
            worker->free_at_ns +=
                query->end_ns > 0 ? query->predicted_end_ns : naive_mean_of(naive, q, query->worker);
        }
    }
    for (uint32_t w = 0; w < naive->worker_count; w++) {
        room = room || workers[w].outstanding < workers[w].depth;
    }
    *ret_count = count;
    return room && count > 0;
}

/* True when queries are left before a worker with room. */
static bool
naive_decide(struct naive *naive, void *state)
{
    struct leat_sched_worker workers[WORKERS];
    struct leat_sched_query pending[LEAT_SCHED_PENDING_MAX];
    struct leat_route_pair pairs[WORKERS];
    uint32_t ids[LEAT_SCHED_PENDING_MAX], waiting;
    bool first = true;

    while (naive_look(naive, workers, pending, ids, &waiting)) {
        for (uint32_t w = 0; w < naive->worker_count && first; w++) {
            const uint32_t running = naive_first(naive, w);
            if (running < QUERIES_MAX && naive->queries[running].predicted_end_ns <= naive->now_ns) {
                naive->queries[running].predicted_end_ns = naive->now_ns + 1 + naive_mean_of(naive, running, w) / 16;
            }
        }
        if (first) {
            first = false;
            continue;
        }
        const struct leat_route_input input = {
            .now_ns = naive->now_ns, .pending = pending, .pending_count = waiting, .workers = workers,
            .worker_count = naive->worker_count, .class_count = naive->options->table->class_count,
            .items_max = naive->options->table->items_max, .predict = naive_predict, .mean = naive_mean, .profiles = naive};
        const uint32_t count = naive->options->router->route(state, &input, pairs, naive->worker_count);
        naive->result.decisions++;
        naive->result.pairs += count;
        if (count == 0) {
            return true;
        }
        for (uint32_t i = 0; i < count; i++) {
            EXPECT(pairs[i].query < waiting && pairs[i].worker < naive->worker_count);
            EXPECT(naive->queries[ids[pairs[i].query]].worker == WORKERS);
            EXPECT(workers[pairs[i].worker].outstanding++ < workers[pairs[i].worker].depth);
            naive_give(naive, ids[pairs[i].query], pairs[i].worker);
        }
    }
    return false;
}

static void
naive_end(struct naive *naive, uint32_t q)
{
    struct naive_query *query = &naive->queries[q];
    const uint32_t class = naive->classes[query->worker];

    naive->now_ns = query->end_ns;
    query->done = true;
    const uint64_t response_ns = naive->now_ns - arrival_ns(naive->options, q);
    naive->responses_ns[naive->answered++] = response_ns;
    naive->result.of_class[class].queries++;
    naive->result.of_class[class].busy_ns += naive->now_ns - query->started_ns;
    naive->result.of_class[class].violations += response_ns > naive->options->objective_ns;
    leat_profile_learn(&naive->profiles[class], naive->options->workload->items[q], naive->now_ns - query->started_ns);
    if (query->probe) {
        const bool right = naive->now_ns - query->started_ns >= query->learned_ns - query->learned_ns / 4;
        naive->right[class] = right ? naive->right[class] + 1 : 0;
    }
    const uint32_t doublings = naive->right[class] < 4 ? 2 * naive->right[class] : 8;
    naive->rests_ns[class] = naive->now_ns + ((16 * (naive->now_ns - query->started_ns)) << doublings);
    naive_start(naive, query->worker);
}

/* Ends before arrivals, of ends the lower worker first, looks without either last. */
static void
naive_run(struct naive *naive, const struct simulate_options *options)
{
    void *state = calloc(1, options->router->state_bytes + 1);
    uint64_t look_ns = UINT64_MAX;

    EXPECT(state != NULL);
    memset(naive, 0, sizeof(*naive));
    naive->options = options;
    for (uint32_t q = 0; q < QUERIES_MAX; q++) {
        naive->queries[q].worker = WORKERS;
    }
    for (uint32_t class = 0; class < options->table->class_count; class ++) {
        for (uint32_t i = 0; i < options->mix.count[class]; i++) {
            naive->classes[naive->worker_count++] = class;
        }
    }
    for (uint32_t class = 0; class < LEAT_SCHED_CLASSES_MAX; class ++) {
        naive->profiles[class].quantile_ppm =
            options->percentile > 0 ? (uint32_t)(options->percentile * 10000 + 0.5) : LEAT_PROFILE_MEAN;
    }
    if (options->router->init != NULL) {
        expect_ok(options->router->init(state, &options->router_options));
    }
    while (naive->answered < options->workload->count) {
        uint32_t ending = QUERIES_MAX;
        uint64_t next_ns = look_ns;
        if (naive->arrived < options->workload->count && arrival_ns(options, naive->arrived) <= next_ns) {
            next_ns = arrival_ns(options, naive->arrived);
        }
        for (uint32_t w = 0; w < naive->worker_count; w++) {
            const uint32_t q = naive_first(naive, w);
            const uint64_t end_ns = q < QUERIES_MAX ? naive->queries[q].end_ns : UINT64_MAX;
            if (end_ns < next_ns || (end_ns == next_ns && q < QUERIES_MAX && ending == QUERIES_MAX)) {
                ending = q;
                next_ns = end_ns;
            }
        }
        EXPECT(next_ns < UINT64_MAX && next_ns >= naive->now_ns);
        naive->now_ns = next_ns;
        if (ending < QUERIES_MAX) {
            naive_end(naive, ending);
        } else if (naive->arrived < options->workload->count && arrival_ns(options, naive->arrived) == next_ns) {
            naive_probe(naive, naive->arrived++);
        }
        look_ns = naive_decide(naive, state) ? naive->now_ns + 1000000 : UINT64_MAX;
    }
    free(state);
}

/* With times on a grid, much happens at once: ties count. */
static struct simulate_options
random_case(struct simulate_table *table, struct simulate_workload *workload, uint32_t queries_max)
{
    static const double percentiles[] = {0, 0, 50, 95, 99, 100};
    const bool grid = below(3) == 0;

    *table = random_table(1 + (uint32_t)below(4), 1 + (uint32_t)below(10), below(3) == 0 ? 0 : uniform(0, 0.5),
                          grid ? 250000 : 1);
    *workload = random_workload(table, 1 + (uint32_t)below(queries_max),
                                grid ? ARRIVALS_CONSTANT : (enum arrivals_kind)below(3));
    struct simulate_options options = {
        .table = table, .workload = workload, .mix = random_mix(table->class_count, 4),
        .router_options = {.threshold_items = (uint32_t)below(table->items_max + 1)},
        .worker_depth = (uint32_t)below(6), .objective_ns = (uint64_t)uniform(1e6, 2e7),
        .percentile = percentiles[below(LEAT_COUNT_OF(percentiles))],
        .service_noise_share = below(2) == 0 ? 0 : uniform(0, 0.5)};
    options.rate_qps = busy_qps(table, workload, &options.mix) * uniform(0.3, below(4) == 0 ? 3 : 1.2);
    if (grid) {
        options.rate_qps = 1e9 / (250000 * ceil(1e9 / options.rate_qps / 250000));
    }
    return options;
}

static struct simulate_result
expect_same(const struct simulate_options *options)
{
    static struct naive naive;
    const struct simulate_result result = simulate(options);

    naive_run(&naive, options);
    EXPECT(result.decisions == naive.result.decisions && result.pairs == naive.result.pairs);
    EXPECT(result.probes == naive.result.probes && result.pairs + result.probes == options->workload->count);
    EXPECT(result.end_ns == naive.now_ns);
    EXPECT(memcmp(result.of_class, naive.result.of_class, sizeof(result.of_class)) == 0);
    expect_responses(options, &result, naive.responses_ns, options->workload->count);
    return result;
}

static void
test_all_routers(void)
{
    const struct leat_router *router;

    for (size_t r = 0; (router = leat_router_at(r)) != NULL; r++) {
        for (int round = 0; round < LEAT_TEST_ROUNDS(40); round++) {
            struct simulate_table table;
            struct simulate_workload workload;
            struct simulate_options options = random_case(&table, &workload, 300);
            options.router = router;
            options.learn = below(2) == 0;
            options.percentile = options.learn && options.percentile == 100 ? 99.9 : options.percentile;
            (void)expect_same(&options);
            free_case(&table, &workload);
        }
    }
}

/* A class that is never in time gets some queries all the same, one at a time; who knows its times gives it none. */
static void
test_probes(void)
{
    uint64_t probes = 0;

    for (int round = 0; round < 10; round++) {
        struct simulate_table table = random_table(2, 1 + (uint32_t)below(5), 0.2, 1);
        struct simulate_workload workload = random_workload(&table, 1000, ARRIVALS_POISSON);
        const size_t cells = (size_t)table.size_count * table.sample_count;
        for (size_t s = 0; s < cells; s++) {
            table.samples_ns[cells + s] = 10 * table.samples_ns[s];
        }
        finish_table(&table);
        struct simulate_options options = {.table = &table, .workload = &workload, .router = &leat_router_laxity,
                                           .mix = {{2, 3}}, .percentile = round % 2 == 0 ? 95 : 0,
                                           .objective_ns = 2 * table.mean_ns[table.size_count - 1]};
        options.rate_qps = uniform(0.01, 0.4) * busy_qps(&table, &workload, &options.mix);
        EXPECT(expect_same(&options).probes == 0);
        options.learn = true;
        const struct simulate_result result = expect_same(&options);
        EXPECT(result.probes * 16 <= workload.count && result.of_class[1].queries >= result.probes);
        probes += result.probes;
        free_case(&table, &workload);
    }
    printf("%llu probes\n", (unsigned long long)probes);
    EXPECT(probes > 10);
}

/* More wait than are shown to a router at once. */
static void
test_long_queue(void)
{
    const struct leat_router *router;

    for (size_t r = 0; (router = leat_router_at(r)) != NULL; r++) {
        struct simulate_table table = random_table(2, 5, 0.5, 1);
        struct simulate_workload workload = random_workload(&table, 1100, ARRIVALS_POISSON);
        struct simulate_options options = {.table = &table, .workload = &workload, .router = router, .mix = {{2, 1}},
                                           .worker_depth = 3, .objective_ns = 10000000};
        options.rate_qps = 50 * busy_qps(&table, &workload, &options.mix);
        (void)expect_same(&options);
        free_case(&table, &workload);
    }
}

/* ---- Stopping early ---------------------------------------------------------------------------- */

static void
expect_verdict(struct simulate_options options, double violation_share, uint32_t violations)
{
    options.violation_share = violation_share;
    options.stop_early = true;
    const struct simulate_result early = simulate(&options);
    EXPECT(early.stopped_early == (violations / (double)options.workload->count > violation_share));
    EXPECT(early.stopped_early || (early.violations == violations && early.queries == options.workload->count));
    EXPECT(early.violations <= violations && early.p50_ns == 0 && early.p99_ns == 0 && early.max_ns == 0);
}

static void
test_stop_early(void)
{
    uint32_t stopped = 0, total = 0;

    for (int round = 0; round < LEAT_TEST_ROUNDS(120); round++) {
        struct simulate_table table;
        struct simulate_workload workload;
        struct simulate_options options = random_case(&table, &workload, round % 10 == 0 ? 3000 : 600);
        for (size_t r = 0; (options.router = leat_router_at(r)) != NULL; r++) {
            const struct simulate_result full = simulate(&options);
            const double share = (double)below(100) / 100;
            expect_verdict(options, share, full.violations);
            stopped += full.violations > share * workload.count;
            total++;
            expect_verdict(options, full.violations / (double)workload.count, full.violations); /* just allowed */
            if (full.violations > 0) {
                expect_verdict(options, (full.violations - 1) / (double)workload.count, full.violations);
                expect_verdict(options, nextafter(full.violations / (double)workload.count, 0), full.violations);
            }
        }
        free_case(&table, &workload);
    }
    EXPECT(stopped > total / 10 && stopped < total - total / 10);
}

/* It stops when it is certain, not when it is over. */
static void
test_stops_soon(void)
{
    struct simulate_table table = random_table(1, 1, 0, 1);
    struct simulate_workload workload = random_workload(&table, 20000, ARRIVALS_CONSTANT);
    struct simulate_options options = {.table = &table, .workload = &workload, .router = &leat_router_laxity, .mix = {{1}},
                                       .objective_ns = 10000000, .violation_share = 0.01, .stop_early = true};

    options.rate_qps = 100 * busy_qps(&table, &workload, &options.mix);
    const struct simulate_result result = simulate(&options);
    EXPECT(result.stopped_early && result.queries < 300); /* in 1000 arrivals 10 are served, and 200 are lost */
    free_case(&table, &workload);
}

/* ---- Routers made for the test ----------------------------------------------------------------- */

/* Takes what it has seen for 3.5 ms. */
static uint32_t
patient_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    (void)state, (void)pairs_max;
    pairs[0] = (struct leat_route_pair){0, 0};
    return input->workers[0].outstanding == 0 && input->now_ns >= input->pending[0].arrival_ns + 3500000;
}

static uint32_t
idle_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    (void)state, (void)input, (void)pairs, (void)pairs_max;
    return 0;
}

/* What is left for later is looked at each millisecond; what is left for ever is an error. */
static void
test_left_for_later(void)
{
    static const struct leat_router patient = {.name = "patient", .route = patient_route};
    static const struct leat_router idle = {.name = "idle", .queues = true, .route = idle_route};
    struct simulate_table table = random_table(1, 1, 0, 1);
    struct simulate_workload workload = random_workload(&table, 50, ARRIVALS_CONSTANT);
    struct simulate_options options = {.table = &table, .workload = &workload, .router = &patient, .mix = {{1}},
                                       .objective_ns = 10000000, .rate_qps = 10};
    uint64_t responses_ns[50];
    struct simulate_result result;

    result = simulate(&options);
    for (uint32_t i = 0; i < 50; i++) {
        responses_ns[i] = 4000000 + service_ns(&options, i, 0);
    }
    expect_responses(&options, &result, responses_ns, 50);
    EXPECT(result.decisions == 50 * 5 && result.pairs == 50);
    options.router = &idle;
    EXPECT(simulate_run(run, &options, &result) == LEAT_ERR_UNSUPPORTED);
    EXPECT(strstr(leat_error_text(), "'idle' leaves 50 queries") != NULL);
    free_case(&table, &workload);
}

static struct observed {
    const struct simulate_table *table;
    double mean[ERRORS_SEEN], high[ERRORS_SEEN]; /* predictions of the first cell, as shares of its mean */
    uint32_t count;
    bool same;    /* predictions of one decision agree */
    bool correct; /* predictions are the table's, to the nanosecond */
    double percentile;
} observed;

static uint32_t
observing_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    const struct simulate_table *table = observed.table;

    for (uint16_t class = 0; class < input->class_count; class ++) {
        for (uint32_t items = 1; items <= input->items_max; items++) {
            const uint64_t mean_ns = input->mean(input->profiles, 0, 0, class, items);
            const uint64_t high_ns = input->predict(input->profiles, 0, 0, class, items);
            EXPECT(mean_ns >= 1 && high_ns >= 1);
            observed.same = observed.same && mean_ns == input->mean(input->profiles, 0, 0, class, items);
            observed.correct = observed.correct && mean_ns == cell_mean_ns(table, class, items) &&
                               high_ns == simulate_table_percentile(table, class, items, observed.percentile);
        }
    }
    if (observed.count < ERRORS_SEEN) {
        observed.mean[observed.count] = (double)input->mean(input->profiles, 0, 0, 0, 1) / (double)table->mean_ns[0];
        observed.high[observed.count++] = (double)input->predict(input->profiles, 0, 0, 0, 1) / (double)table->mean_ns[0];
    }
    return leat_router_fcfs.route(state, input, pairs, pairs_max);
}

static const struct leat_router observing = {.name = "observing", .route = observing_route};

/* Errors are 4096 draws that come round: tolerances are six standard deviations of as many. */
static void
expect_errors(double share, double percentile)
{
    const double at_percentile = percentile == 95 ? 1.6448536269514722 : 0; /* of the normal distribution */
    const double density = exp(-at_percentile * at_percentile / 2) / sqrt(2 * 3.14159265358979);
    double sum = 0, squares = 0, products = 0, within = 0;

    EXPECT(observed.count == ERRORS_SEEN && observed.same && !observed.correct);
    for (uint32_t i = 0; i < ERRORS_SEEN; i++) {
        const double error = (observed.mean[i] - 1) / share;
        sum += error;
        squares += error * error;
        products += i > 0 ? error * (observed.mean[i - 1] - 1) / share : 0;
        within += fabs(error) < 1;
        EXPECT(i == 0 || observed.mean[i] != observed.mean[i - 1]);
        const double margin = observed.high[i] / observed.mean[i];
        const double off = (margin - 1) / share - at_percentile;
        EXPECT(fabs(off) < 6 * sqrt(percentile * (100 - percentile)) / 100 / density / sqrt(ERRORS_SEEN));
    }
    EXPECT(fabs(sum / ERRORS_SEEN) < 6 / sqrt(ERRORS_SEEN));
    EXPECT(fabs(squares / ERRORS_SEEN - 1) < 6 * sqrt(2.0 / ERRORS_SEEN));
    EXPECT(fabs(products / ERRORS_SEEN) < 6 / sqrt(ERRORS_SEEN));
    EXPECT(fabs(within / ERRORS_SEEN - erf(sqrt(0.5))) < 6 * sqrt(0.22 / ERRORS_SEEN));
}

static void
test_prediction_noise(void)
{
    struct simulate_table table = empty_table(2, 3, 10, 1);
    for (uint32_t cell = 0; cell < 6; cell++) {
        table.samples_ns[cell] = UINT64_C(1000000000) * (cell + 1); /* so long that rounding is far below noise */
    }
    finish_table(&table);
    struct simulate_workload workload = random_workload(&table, ERRORS_SEEN, ARRIVALS_POISSON);
    struct simulate_options options = {.table = &table, .workload = &workload, .router = &observing, .mix = {{2, 1}},
                                       .rate_qps = 0.1, .objective_ns = 1000000000};

    for (int round = 0; round < 8; round++) {
        static const double percentiles[] = {50, 95};
        const double share = round < 2 ? 0 : round < 4 ? 5 : uniform(0.01, 0.15);
        options.noise_share = share;
        options.percentile = percentiles[round % 2];
        observed = (struct observed){.table = &table, .same = true, .correct = true, .percentile = options.percentile};
        const struct simulate_result result = simulate(&options);
        EXPECT(result.queries == workload.count);
        if (share == 0) {
            EXPECT(observed.same && observed.correct);
        } else if (share < 1) { /* beyond, predictions that would be below zero are cut off */
            expect_errors(share, options.percentile);
        }
    }
    options.noise_share = 2;
    options.percentile = 1; /* of an error that is below -100 % */
    EXPECT(simulate(&options).queries == workload.count);
    free_case(&table, &workload);
}

static void
test_service_noise(void)
{
    enum { COUNT = 50000 };
    struct simulate_table table = constant_table(1000000);
    struct simulate_workload workload = random_workload(&table, COUNT, ARRIVALS_CONSTANT);
    struct simulate_options options = {.table = &table, .workload = &workload, .router = &leat_router_fcfs, .mix = {{1}},
                                       .rate_qps = 100, .objective_ns = 1000000};

    struct simulate_result result = simulate(&options);
    EXPECT(result.violations == 0 && result.p50_ns == 1000000 && result.max_ns == 1000000);
    EXPECT(result.of_class[0].busy_ns == (uint64_t)COUNT * 1000000);
    options.service_noise_share = 0.125;
    for (double z = -2; z <= 2.5; z += 0.5) { /* nobody waits: what is late was served for longer than the objective */
        const double late = erfc(z / sqrt(2)) / 2;
        options.objective_ns = (uint64_t)(1000000 * (1 + 0.125 * z));
        result = simulate(&options);
        EXPECT(fabs(result.violations / (double)COUNT - late) < 6 * sqrt(late * (1 - late) / COUNT));
    }
    options.service_noise_share = 3; /* nothing takes less than a nanosecond */
    result = simulate(&options);
    EXPECT(result.queries == COUNT && result.of_class[0].busy_ns > (uint64_t)COUNT * 1000000);
    free_case(&table, &workload);
}

/* What a query takes is above the predicted percentile as often as that says, whatever samples and noise are. */
static void
test_percentile_of_noisy_times(void)
{
    enum { COUNT = 50000 };

    for (int round = 0; round < 12; round++) {
        static const double percentiles[] = {50, 80, 95, 99};
        const double percentile = percentiles[round % 4], late = 1 - percentile / 100;
        struct simulate_table table = random_table(1, round < 4 ? 1 : 20, 0.5, 1);
        struct simulate_workload workload = random_workload(&table, COUNT, ARRIVALS_CONSTANT);
        struct simulate_options options = {.table = &table,
                                           .workload = &workload,
                                           .router = &observing,
                                           .mix = {{1}},
                                           .rate_qps = 1,
                                           .percentile = percentile,
                                           .service_noise_share = uniform(0.02, 0.4)};

        for (uint32_t i = 0; i < COUNT; i++) {
            workload.items[i] = 1;
        }
        observed = (struct observed){.table = &table, .same = true};
        EXPECT(simulate(&options).queries == COUNT);
        options.objective_ns = (uint64_t)(observed.high[0] * (double)table.mean_ns[0] + 0.5);
        EXPECT(fabs(simulate(&options).violations / (double)COUNT - late) < 6 * sqrt(late * (1 - late) / COUNT));
        const double before = observed.high[0];
        options.noise_share = 0.1; /* of predictions: wider by that, as without noise of times; test_prediction_noise() */
        double widened = 0;
        observed = (struct observed){.table = &table, .same = true};
        (void)simulate(&options);
        for (uint32_t i = 0; i < ERRORS_SEEN; i++) {
            widened += observed.high[i] / observed.mean[i] / before / ERRORS_SEEN;
        }
        static const double deviates[] = {0, 0.8416, 1.6449, 2.3263};
        EXPECT(fabs(widened - 1 - 0.1 * deviates[round % 4]) < 0.03);
        free_case(&table, &workload);
    }
}

static struct {
    uint64_t mean_ns[2][8], high_ns[2][8]; /* of what is known when a router is asked: [class][row] */
    bool known_at_first;
    uint32_t count;
} told;

static uint32_t
told_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    for (uint16_t class = 0; class < 2; class ++) {
        for (uint32_t row = 0; row < 8; row++) {
            told.mean_ns[class][row] = input->mean(input->profiles, 0, 0, class, 10 * (row + 1));
            told.high_ns[class][row] = input->predict(input->profiles, 0, 0, class, 10 * (row + 1));
            told.known_at_first |= told.count == 0 && (told.mean_ns[class][row] != 0 || told.high_ns[class][row] != 0);
        }
    }
    told.count++;
    return leat_router_shortest_queue.route(state, input, pairs, pairs_max);
}

/* Nothing is known at first, and of a class that has no workers for ever; the rest is known in the end, with its noise. */
static void
test_learns(void)
{
    static const struct leat_router router = {.name = "told", .queues = true, .route = told_route};
    struct simulate_table table = empty_table(2, 8, 10, 1);

    for (uint32_t cell = 0; cell < 16; cell++) {
        table.samples_ns[cell] = cell < 8 ? 500000 + 100000 * cell : 3000000 + 700000 * (cell - 8);
    }
    finish_table(&table);
    for (int round = 0; round < 4; round++) {
        struct simulate_workload workload = random_workload(&table, 20000, ARRIVALS_POISSON);
        struct simulate_options options = {.table = &table, .workload = &workload, .router = &router, .learn = true,
                                           .mix = {{1, (uint16_t)(round < 2 ? 2 : 0)}}, .percentile = round % 2 == 0 ? 95 : 0,
                                           .service_noise_share = 0.1, .objective_ns = UINT64_C(1000000000)};
        for (uint32_t i = 0; i < workload.count; i++) {
            workload.items[i] = (uint16_t)(10 * (1 + (workload.items[i] - 1) / 10));
        }
        options.rate_qps = 0.5 * busy_qps(&table, &workload, &options.mix);
        memset(&told, 0, sizeof(told));
        EXPECT(simulate(&options).probes == 0); /* all is in time */
        EXPECT(!told.known_at_first && told.count >= workload.count);
        for (uint32_t class = 0; class < 2; class ++) {
            double sum = 0; /* one percentile that is learned by steps is not exact, their average nearly */
            for (uint32_t row = 0; row < 8; row++) {
                const double mean = (double)told.mean_ns[class][row] / (double)table.mean_ns[class * 8 + row];
                const double margin = (double)told.high_ns[class][row] / (double)table.mean_ns[class * 8 + row];
                EXPECT(options.mix.count[class] > 0 ? fabs(mean - 1) < 0.07 : mean == 0);
                EXPECT(round % 2 == 0 && mean > 0 ? fabs(margin - 1.164) < 0.3 : margin == mean);
                sum += margin;
            }
            EXPECT(round % 2 != 0 || sum == 0 || fabs(sum / 8 - 1.164) < 0.12);
        }
        simulate_workload_free(&workload);
    }
    simulate_table_free(&table);
}

/* ---- What cannot be simulated ------------------------------------------------------------------ */

static bool
refused(struct simulate_options options, enum leat_status status, const char *text)
{
    struct simulate_result result;
    return simulate_run(run, &options, &result) == status && strstr(leat_error_text(), text) != NULL;
}

static void
test_refused(void)
{
    struct simulate_table table = random_table(2, 1, 0, 1);
    struct simulate_workload workload = random_workload(&table, 10, ARRIVALS_CONSTANT);
    const struct simulate_options good = {.table = &table, .workload = &workload, .router = &leat_router_fcfs,
                                          .mix = {{200, 56}}, .rate_qps = 10, .objective_ns = 1000000};
    struct simulate_options bad = good;

    EXPECT(simulate(&good).queries == 10);
    bad.rate_qps = 0;
    EXPECT(refused(bad, LEAT_ERR_INVALID, "rate of 0"));
    bad.rate_qps = NAN;
    EXPECT(refused(bad, LEAT_ERR_INVALID, "rate of"));
    bad = good;
    bad.mix = (struct leat_pool_mix){{0}};
    EXPECT(refused(bad, LEAT_ERR_INVALID, "no workers"));
    bad.mix.count[2] = 1;
    EXPECT(refused(bad, LEAT_ERR_INVALID, "class 2"));
    bad.mix = (struct leat_pool_mix){{200, 57}};
    EXPECT(refused(bad, LEAT_ERR_LIMIT, "256"));
    bad = good;
    bad.worker_depth = SIMULATE_DEPTH_MAX + 1;
    EXPECT(refused(bad, LEAT_ERR_INVALID, "65 batches"));
    bad = good;
    bad.learn = true;
    EXPECT(simulate(&bad).queries == 10);
    bad.noise_share = 0.1;
    EXPECT(refused(bad, LEAT_ERR_INVALID, "no errors but their own"));
    bad.noise_share = 0;
    bad.percentile = 49;
    EXPECT(refused(bad, LEAT_ERR_INVALID, "from 50 to 99.9"));
    bad.percentile = 99.95;
    EXPECT(refused(bad, LEAT_ERR_INVALID, "not 99.95"));
    EXPECT(simulate(&good).queries == 10);
    free_case(&table, &workload);
    simulate_run_destroy(NULL);
}

int
main(void)
{
    cases_start();
    test_one_class();
    test_all_routers();
    test_probes();
    test_long_queue();
    test_stop_early();
    test_stops_soon();
    test_left_for_later();
    test_prediction_noise();
    test_service_noise();
    test_percentile_of_noisy_times();
    test_learns();
    test_refused();
    simulate_run_destroy(run);
    return 0;
}
