/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Simulations of variants are what tools/simulate/variants.h says: the same decisions as a simulator without any
 *           cleverness takes, every query ends once, and a queue behaves as theory knows it to.
 * Method   Random small runs beside a naive simulator that looks at all queries at every event; each router's and
 *           selector's answer is kept and compared. M/D/1 for long runs. RAMSIS' own tables where LEAT_DATA
 *           names a directory with the published measurements.
 */
#include "tools/simulate/variants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "sched/instance.h"
#include "sched/load.h"
#include "tests/leat_test.h"

enum { QUERIES = 6000, DECISIONS = QUERIES, WORKERS = 7, VARIANTS = 4, ROUNDS = LEAT_TEST_ROUNDS(4000) };

#define STEP_NS UINT64_C(1953125) /* 1/512 s */

static uint64_t random_state;
static struct variants_run *run;

static uint64_t
below(uint64_t bound)
{
    return leat_test_random(&random_state) % bound;
}

static double
uniform(double low, double high)
{
    return low + (high - low) * (double)(leat_test_random(&random_state) >> 11) * 0x1p-53;
}

/* ---- What was decided -------------------------------------------------------------------------- */

/* One answer of a router's pair and of the selector to it. */
struct decision {
    uint64_t now_ns;
    uint32_t ordinal, worker; /* of the pair */
    uint32_t waiting, pending, idle, rate_qps;
    struct leat_selection selection;
};

static struct record {
    struct decision decisions[DECISIONS];
    uint32_t count;
} records[2], *recording;

/*
 * A selector that answers anything that is allowed: it holds, skips, refuses and takes some. By what it is shown, so
 * twice the same.
 */
static struct leat_selection
select_oddly(void *state, const struct leat_select_input *input)
{
    uint64_t mixed = input->now_ns * 31 + input->pending[0].ordinal * 7 + input->waiting_count;
    struct leat_selection selection = {.variant = (uint32_t)(leat_test_random(&mixed) % input->variant_count)};

    (void)state;
    if (leat_test_random(&mixed) % 8 == 0) {
        return (struct leat_selection){.hold = leat_test_random(&mixed) % 2 == 0};
    }
    if (leat_test_random(&mixed) % 3 == 0) {
        selection.skip = (uint32_t)(leat_test_random(&mixed) % input->pending_count);
    }
    selection.queries = 1 + (uint32_t)(leat_test_random(&mixed) % (input->pending_count - selection.skip));
    return selection;
}

static const struct leat_selector odd = {.name = "odd", .select = select_oddly};

/* What is being recorded passes through these. */
static const struct leat_selector *inner;
static const struct leat_router *inner_router;
static struct leat_route_pair last_pairs[WORKERS]; /* of the router's last answer; selectors are asked in this order */
static uint32_t last_ordinals[WORKERS], next_pair;

static enum leat_status
init_recorded_router(void *state, const struct leat_router_options *options)
{
    return inner_router->init != NULL ? inner_router->init(state, options) : LEAT_OK;
}

static uint32_t
route_recorded(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    const uint32_t count = inner_router->route(state, input, pairs, pairs_max);
    EXPECT(count <= WORKERS);
    for (uint32_t i = 0; i < count; i++) {
        last_pairs[i] = pairs[i];
        last_ordinals[i] = input->pending[pairs[i].query].ordinal;
    }
    next_pair = 0;
    return count;
}

static enum leat_status
init_recorded(void *state, const struct leat_selector_options *options)
{
    return inner->init != NULL ? inner->init(state, options) : LEAT_OK;
}

static struct leat_selection
select_recorded(void *state, const struct leat_select_input *input)
{
    const struct leat_selection selection = inner->select(state, input);
    EXPECT(recording->count < DECISIONS);
    if (selection.hold) { /* where the router deals, it is asked so in a different order */
        next_pair++;
        return selection;
    }
    struct decision *decision = &recording->decisions[recording->count++];
    memset(decision, 0, sizeof(*decision));
    decision->now_ns = input->now_ns;
    decision->ordinal = input->pending[0].ordinal;
    decision->worker = last_pairs[next_pair].worker;
    EXPECT(last_ordinals[next_pair++] == decision->ordinal);
    decision->waiting = input->waiting_count;
    decision->pending = input->pending_count;
    decision->idle = input->idle_count;
    decision->rate_qps = input->rate_qps;
    decision->selection.variant = selection.variant;
    decision->selection.queries = selection.queries;
    decision->selection.skip = selection.skip;
    return selection;
}

/* ---- Worlds ------------------------------------------------------------------------------------ */

static void
make_table(struct variants_table *table, uint32_t count)
{
    table->count = count;
    table->rows = calloc(count, sizeof(*table->rows));
    EXPECT(table->rows != NULL);
    for (uint32_t v = 0; v < count; v++) {
        const double base_ns = uniform(1e6, 4e6) * (v + 1), item_ns = uniform(0.1e6, 1e6) * (v + 1);
        (void)snprintf(table->rows[v].name, sizeof(table->rows[v].name), "v%u", v);
        table->rows[v].accuracy_ppm = 500000 + v * 100000;
        for (uint32_t b = 1; b <= VARIANTS_LATENCY_MAX; b++) {
            /* Coarse, so that ends and arrivals coincide. */
            table->rows[v].latency_ns[b - 1] = (uint64_t)((base_ns + item_ns * b) / 1e5) * 100000;
        }
    }
}

static struct rates_step random_steps[3];
static const struct rates random_rates = {.steps = random_steps, .count = 3};

static struct arrivals
random_arrivals(double rate_qps)
{
    struct arrivals arrivals = {.kind = (enum arrivals_kind[]){ARRIVALS_POISSON, ARRIVALS_BURSTY, ARRIVALS_CONSTANT,
                                                              ARRIVALS_RATES}[below(4)],
                                .rate_qps = rate_qps,
                                .burst_factor = 5,
                                .burst_share = 0.2,
                                .burst_mean_s = 0.02,
                                .rates = &random_rates};
    for (uint32_t i = 0; i < 3; i++) {
        random_steps[i] = (struct rates_step){.end_s = 0.02 + 0.03 * i, .qps = i == 1 ? 0 : rate_qps * uniform(0.3, 3)};
    }
    if (below(3) == 0) {
        arrivals.dispersion = uniform(1, 8);
    }
    return arrivals;
}

/* ---- The naive simulator ----------------------------------------------------------------------- */

struct naive_query {
    uint64_t arrival_ns, deadline_ns;
    bool gone;
};

struct naive_batch {
    uint64_t start_ns, end_ns;
};

struct naive {
    const struct variants_options *options;
    struct naive_query queries[QUERIES];
    uint32_t arrived;
    struct naive_batch batches[WORKERS][QUERIES]; /* all that it ever had */
    uint32_t batch_count[WORKERS], done_count[WORKERS];
    struct leat_load load;
    void *router_state, *selector_state;
    uint64_t now_ns, responses_ns[QUERIES];
    struct variants_result result;
};

static struct naive naive;

static uint64_t
naive_predict(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct variants_table *table = profiles;
    EXPECT(application == 0 && worker_class == 0 && variant < table->count && items >= 1 && items <= VARIANTS_LATENCY_MAX);
    return table->rows[variant].latency_ns[items - 1];
}

static void
naive_workers(struct leat_sched_worker *workers, uint32_t *ret_idle)
{
    const struct variants_options *options = naive.options;
    *ret_idle = 0;
    for (uint32_t w = 0; w < options->worker_count; w++) {
        const uint32_t depth = options->router->queues && options->worker_depth > 0 ? options->worker_depth : 1;
        workers[w] = (struct leat_sched_worker){.depth = depth};
        workers[w].outstanding = naive.batch_count[w] - naive.done_count[w];
        if (workers[w].outstanding > 0) {
            const struct naive_batch *first = &naive.batches[w][naive.done_count[w]];
            uint64_t free_ns = first->end_ns;
            if (free_ns <= naive.now_ns) { /* it ends now, but that has not been heard yet */
                free_ns = naive.now_ns + 1 + (first->end_ns - first->start_ns) / 16;
            }
            for (uint32_t b = naive.done_count[w] + 1; b < naive.batch_count[w]; b++) {
                free_ns += naive.batches[w][b].end_ns - naive.batches[w][b].start_ns;
            }
            workers[w].free_at_ns = free_ns;
        } else if (naive.batch_count[w] > 0) {
            workers[w].free_at_ns = naive.batches[w][naive.batch_count[w] - 1].end_ns;
        }
        *ret_idle += workers[w].outstanding == 0;
    }
}

/* Is it among those that wait behind all that can be in time? */
static bool
naive_is_last(uint32_t q)
{
    bool last = naive.options->late == VARIANTS_SERVE_LATE_LAST;
    for (uint32_t v = 0; v < naive.options->table->count && last; v++) {
        last = naive.queries[q].deadline_ns < naive.now_ns + naive.options->table->rows[v].latency_ns[0];
    }
    return last;
}

/* What is late goes alone, in the variant that is done with it soonest, where the selector would weigh accuracy against time. */
static struct leat_selection
naive_select(const struct leat_select_input *input, bool last)
{
    const struct variants_options *options = naive.options;
    struct leat_selection selection = {.queries = 1};
    if (!last || !options->selector->when_idle) {
        return options->selector->select(naive.selector_state, input);
    }
    for (uint32_t v = 1; v < options->table->count; v++) {
        if (options->table->rows[v].latency_ns[0] < options->table->rows[selection.variant].latency_ns[0]) {
            selection.variant = v;
        }
    }
    return selection;
}

/* What the selector makes of a pair; false when that ends the round. */
static bool
naive_carry_out(const struct leat_sched_query *shown, uint32_t shown_count, struct leat_route_pair pair, bool *ret_any)
{
    const struct variants_options *options = naive.options;
    struct leat_sched_query pending[LEAT_SCHED_PENDING_MAX];
    struct leat_sched_worker workers[WORKERS];
    struct leat_sched_variant variants[VARIANTS];
    uint32_t count = 0, waiting = 0, idle;

    naive_workers(workers, &idle);
    const bool last = naive_is_last(shown[pair.query].ordinal);
    if (last && workers[pair.worker].outstanding > 0) {
        return true;
    }
    for (uint32_t q = pair.query; q < shown_count; q++) { /* up to the next that has gone, or the worker's own */
        const bool own = shown[q].ordinal % options->worker_count == pair.worker;
        if (options->router->deals ? own : true) {
            if (naive.queries[shown[q].ordinal].gone) {
                break;
            }
            pending[count++] = shown[q];
        }
    }
    if (options->router->deals) {
        for (uint32_t q = shown[pair.query].ordinal; q < naive.arrived; q++) {
            waiting += !naive.queries[q].gone && q % options->worker_count == pair.worker && naive_is_last(q) == last;
        }
    } else { /* what goes in this round stays in the list until it ends */
        waiting = shown_count - pair.query;
        for (uint32_t q = shown[shown_count - 1].ordinal + 1; q < naive.arrived; q++) {
            waiting += !naive.queries[q].gone && naive_is_last(q) == last;
        }
    }
    for (uint32_t v = 0; v < options->table->count; v++) {
        variants[v] = (struct leat_sched_variant){.accuracy_ppm = options->table->rows[v].accuracy_ppm,
                                                  .items_max = options->batch_max > 0 ? options->batch_max : 32,
                                                  .ready = true};
    }
    const struct leat_select_input input = {
        .now_ns = naive.now_ns,
        .pending = pending,
        .pending_count = count,
        .waiting_count = waiting,
        .variants = variants,
        .variant_count = options->table->count,
        .worker = &workers[pair.worker],
        .worker_count = options->worker_count,
        .idle_count = idle,
        .rate_qps = options->load_known ? (uint32_t)ceil(options->arrivals.rate_qps)
                                        : leat_load_rate_qps(&naive.load, naive.now_ns),
        .rising_qps = options->load_known ? (uint32_t)ceil(options->arrivals.rate_qps)
                                          : leat_load_rising_qps(&naive.load, naive.now_ns),
        .predict = naive_predict,
        .profiles = options->table,
    };
    const struct leat_selection selection = naive_select(&input, last);
    naive.result.decisions++;
    if (selection.hold) {
        return true;
    }
    *ret_any = true;
    if (selection.queries == 0) {
        naive.queries[pending[0].ordinal].gone = true;
        naive.result.rejected++;
        return true;
    }
    EXPECT(selection.skip + selection.queries <= count);
    const uint64_t latency_ns = options->table->rows[selection.variant].latency_ns[selection.queries - 1];
    const uint32_t held = naive.batch_count[pair.worker]++;
    struct naive_batch *batch = &naive.batches[pair.worker][held];
    batch->start_ns = held > naive.done_count[pair.worker] ? batch[-1].end_ns : naive.now_ns;
    batch->end_ns = batch->start_ns + latency_ns;
    if (batch->start_ns < options->duration_ns) {
        const bool beyond = batch->end_ns > options->duration_ns;
        naive.result.busy_ns += (beyond ? options->duration_ns : batch->end_ns) - batch->start_ns;
    }
    naive.result.batches++;
    naive.result.batches_of[selection.queries]++;
    naive.result.of_variant[selection.variant].batches++;
    for (uint32_t i = 0; i < selection.queries; i++) {
        struct naive_query *query = &naive.queries[pending[selection.skip + i].ordinal];
        const bool late = batch->end_ns > query->deadline_ns;
        query->gone = true;
        naive.responses_ns[naive.result.served++] = batch->end_ns - query->arrival_ns;
        naive.result.response_sum_ns += batch->end_ns - query->arrival_ns;
        naive.result.late += late;
        naive.result.accuracy_sum += late ? 0 : options->table->rows[selection.variant].accuracy_ppm;
        naive.result.of_variant[selection.variant].queries++;
        naive.result.of_variant[selection.variant].in_time += !late;
    }
    return (selection.queries == 1 && selection.skip == 0) || options->router->deals;
}

static uint32_t
naive_waiting(void)
{
    uint32_t waiting = 0;
    for (uint32_t q = 0; q < naive.arrived; q++) {
        waiting += !naive.queries[q].gone;
    }
    return waiting;
}

static void
naive_expire(void)
{
    for (uint32_t q = 0; q < naive.arrived && naive.options->late == VARIANTS_DROP_LATE; q++) {
        if (!naive.queries[q].gone && naive.queries[q].deadline_ns <= naive.now_ns) {
            naive.queries[q].gone = true;
            naive.result.expired++;
        }
    }
}

static bool
naive_has_room(void)
{
    struct leat_sched_worker workers[WORKERS];
    const bool queues = naive.options->router->queues && !naive.options->selector->when_idle;
    uint32_t idle;
    bool room = false;

    naive_workers(workers, &idle);
    for (uint32_t w = 0; w < naive.options->worker_count; w++) {
        room = room || workers[w].outstanding < (queues ? workers[w].depth : 1);
    }
    return room;
}

static void
naive_decide(void)
{
    const struct variants_options *options = naive.options;
    struct leat_sched_query shown[LEAT_SCHED_PENDING_MAX];
    struct leat_sched_worker workers[WORKERS];
    struct leat_route_pair pairs[WORKERS];

    naive_expire();
    for (;;) {
        const uint32_t stride = options->router->deals ? options->worker_count : 1;
        bool in_time[WORKERS] = {false}; /* such a one waits, where queries are dealt of that worker's */
        uint32_t count = 0, idle;
        naive_workers(workers, &idle);
        for (uint32_t q = 0; q < naive.arrived; q++) {
            in_time[q % stride] = in_time[q % stride] || (!naive.queries[q].gone && !naive_is_last(q));
        }
        for (uint32_t q = 0; q < naive.arrived && count < LEAT_SCHED_PENDING_MAX; q++) {
            if (naive.queries[q].gone) {
                continue;
            }
            const bool last = naive_is_last(q);
            if (!last || (idle > 0 && !in_time[q % stride])) {
                shown[count++] = (struct leat_sched_query){.arrival_ns = naive.queries[q].arrival_ns,
                                                           .deadline_ns =
                                                               last ? LEAT_NO_DEADLINE : naive.queries[q].deadline_ns,
                                                           .items = 1,
                                                           .ordinal = q};
            }
        }
        if (count == 0 || !naive_has_room()) {
            return;
        }
        for (uint32_t w = 0; w < options->worker_count; w++) { /* what more can join is no batch until just before it begins */
            const bool joined = !options->selector->single && !options->selector->when_idle &&
                                count < (options->batch_max > 0 ? options->batch_max : 32);
            const bool early = workers[w].outstanding > 0 && workers[w].free_at_ns > naive.now_ns + 1000000;
            workers[w].depth = joined && early ? workers[w].outstanding : workers[w].depth;
        }
        const struct leat_route_input input = {
            .now_ns = naive.now_ns,
            .pending = shown,
            .pending_count = count,
            .workers = workers,
            .worker_count = options->worker_count,
            .class_count = 1,
            .items_max = options->batch_max > 0 ? options->batch_max : 32,
            .predict = naive_predict,
            .mean = naive_predict,
            .profiles = options->table,
        };
        const uint32_t found = options->router->route(naive.router_state, &input, pairs, options->worker_count);
        bool any = false;
        for (uint32_t i = 0; i < found; i++) {
            if (!naive_carry_out(shown, count, pairs[i], &any)) {
                break;
            }
        }
        if (!any) {
            return;
        }
    }
}

static int
compare_u64(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void
naive_simulate(const struct variants_options *options)
{
    struct arrivals arrivals = options->arrivals;
    const struct leat_selector_options selector_options = {.objective_ns = options->objective_ns,
                                                           .worker_count = options->worker_count};
    uint64_t look_ns = UINT64_MAX;

    memset(&naive, 0, sizeof(naive));
    naive.options = options;
    naive.router_state = calloc(1, options->router->state_bytes + 1);
    naive.selector_state = calloc(1, options->selector->state_bytes + 1);
    EXPECT(naive.router_state != NULL && naive.selector_state != NULL);
    EXPECT(options->router->init == NULL || options->router->init(naive.router_state, &options->router_options) == LEAT_OK);
    EXPECT(options->selector->init == NULL || options->selector->init(naive.selector_state, &selector_options) == LEAT_OK);
    leat_load_init(&naive.load, options->load_window_ns, 0);
    arrivals_start(&arrivals, options->seed);
    uint64_t next_ns = (uint64_t)(arrivals_next(&arrivals) * 1e9);
    for (;;) {
        uint64_t end_ns = UINT64_MAX;
        uint32_t ending = 0;
        for (uint32_t w = 0; w < options->worker_count; w++) {
            if (naive.done_count[w] < naive.batch_count[w] && naive.batches[w][naive.done_count[w]].end_ns < end_ns) {
                end_ns = naive.batches[w][naive.done_count[w]].end_ns;
                ending = w;
            }
        }
        const uint64_t event_ns = next_ns <= end_ns ? next_ns : end_ns;
        naive.now_ns = look_ns < event_ns ? look_ns : event_ns;
        if (naive.now_ns >= options->duration_ns) {
            naive.now_ns = options->duration_ns;
            break;
        }
        if (next_ns == naive.now_ns) {
            EXPECT(naive.arrived < QUERIES);
            naive.queries[naive.arrived++] =
                (struct naive_query){.arrival_ns = next_ns, .deadline_ns = next_ns + options->objective_ns};
            leat_load_arrive(&naive.load, next_ns, 1);
            next_ns = (uint64_t)(arrivals_next(&arrivals) * 1e9);
        } else if (end_ns == naive.now_ns) {
            naive.done_count[ending]++;
        }
        if (options->abort_waiting > 0 && naive_waiting() >= options->abort_waiting) {
            naive.result.aborted = true;
            break;
        }
        naive_decide();
        look_ns = naive_waiting() > 0 && naive_has_room() ? naive.now_ns + 1000000 : UINT64_MAX;
    }
    naive_expire();
    naive.result.arrived = naive.arrived;
    naive.result.end_ns = naive.now_ns;
    naive.result.waiting = naive_waiting();
    for (uint32_t q = 0; q < naive.arrived; q++) {
        naive.result.waiting_late +=
            !naive.queries[q].gone && (naive.queries[q].deadline_ns <= naive.now_ns || naive_is_last(q));
    }
    const uint64_t served = naive.result.served;
    if (served > 0) {
        qsort(naive.responses_ns, served, sizeof(naive.responses_ns[0]), compare_u64);
        naive.result.p50_ns = naive.responses_ns[(served - 1) / 2];
        naive.result.p99_ns = naive.responses_ns[(uint64_t)ceil((double)served * 0.99 - 1e-9) - 1];
        naive.result.max_ns = naive.responses_ns[served - 1];
    }
    free(naive.router_state);
    free(naive.selector_state);
}

/* ---- Both -------------------------------------------------------------------------------------- */

static void
conserves(const struct variants_result *result)
{
    uint64_t queries = 0, in_time = 0, batches = 0, by_size = 0, sized = 0;

    EXPECT(result->arrived == result->served + result->expired + result->rejected + result->waiting);
    for (uint32_t v = 0; v < LEAT_SCHED_VARIANTS_MAX; v++) {
        queries += result->of_variant[v].queries;
        in_time += result->of_variant[v].in_time;
        batches += result->of_variant[v].batches;
    }
    for (uint32_t b = 0; b <= VARIANTS_LATENCY_MAX; b++) {
        by_size += result->batches_of[b];
        sized += b * result->batches_of[b];
    }
    EXPECT(queries == result->served && in_time == result->served - result->late);
    EXPECT(batches == result->batches && by_size == result->batches && sized == result->served);
    EXPECT(result->waiting_late <= result->waiting);
}

static struct variants_options
random_case(struct variants_table *table)
{
    make_table(table, 1 + (uint32_t)below(VARIANTS));
    const double busy_qps = uniform(0.3, 2.5) * 600;
    struct variants_options options = {
        .table = table,
        .router = leat_router_find("fcfs"),
        .arrivals = random_arrivals(busy_qps),
        .seed = below(UINT64_MAX),
        .worker_count = 1 + (uint32_t)below(WORKERS),
        .worker_depth = (uint32_t)below(4),
        .batch_max = below(3) == 0 ? 1 + (uint32_t)below(40) : 0,
        .objective_ns = 2000000 + below(60000000),
        .duration_ns = 300000000 + below(500000000),
        .load_window_ns = below(2) == 0 ? 0 : 20000000,
        .late = (enum variants_late)below(1 + VARIANTS_DROP_LATE),
        .abort_waiting = below(4) == 0 ? 20 + (uint32_t)below(100) : 0,
    };
    if (below(4) == 0) { /* all in step: arrivals, ends and deadlines coincide */
        options.arrivals = (struct arrivals){.kind = ARRIVALS_CONSTANT, .rate_qps = 512};
        options.objective_ns = STEP_NS * (1 + below(6));
        for (uint32_t v = 0; v < table->count; v++) {
            const uint64_t base_ns = STEP_NS * (1 + below(3));
            for (uint32_t b = 0; b < VARIANTS_LATENCY_MAX; b++) {
                table->rows[v].latency_ns[b] = base_ns + b / 2 * STEP_NS;
            }
        }
    }
    options.load_known = options.arrivals.kind != ARRIVALS_RATES && below(3) == 0;
    return options;
}

static struct variants_result simulated;

static void
expect_same(struct variants_options options, const struct leat_selector *selector)
{
    const struct leat_selector recorded = {
        .name = selector->name, .when_idle = selector->when_idle, .state_bytes = selector->state_bytes, .init = init_recorded,
        .select = select_recorded};

    struct leat_router recorded_router = *options.router;
    recorded_router.init = init_recorded_router;
    recorded_router.route = route_recorded;
    inner = selector;
    inner_router = options.router;
    options.selector = &recorded;
    options.router = &recorded_router;
    records[0].count = records[1].count = 0;
    recording = &records[0];
    EXPECT(variants_simulate(run, &options, &simulated) == LEAT_OK);
    recording = &records[1];
    naive_simulate(&options);
    conserves(&simulated);
    for (uint32_t i = 0; i < records[0].count && i < records[1].count; i++) {
        const struct decision *ours = &records[0].decisions[i], *theirs = &records[1].decisions[i];
        EXPECT(memcmp(ours, theirs, sizeof(*ours)) == 0);
    }
    EXPECT(records[0].count == records[1].count);
    EXPECT(simulated.decisions >= records[0].count && naive.result.decisions >= records[0].count);
    naive.result.decisions = simulated.decisions; /* how often it was held back is another matter */
    EXPECT(memcmp(&simulated, &naive.result, sizeof(simulated)) == 0);
}

/* Routers that wait, look ahead, answer with several pairs or deal; selectors that are usual and one that is not. */
static void
test_against_naive(void)
{
    const struct leat_selector *const selectors[] = {leat_selector_find("jellyfish"), leat_selector_find("greedy"),
                                                     leat_selector_find("fixed"), leat_selector_find("single"), &odd};
    uint64_t late = 0, expired = 0, rejected = 0, waiting = 0, aborted = 0, batched = 0;
    uint32_t routers = 0;

    while (leat_router_at(routers) != NULL) {
        routers++;
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct variants_table table;
        struct variants_options options = random_case(&table);
        options.router = leat_router_at((uint32_t)round % routers);
        expect_same(options, selectors[below(LEAT_COUNT_OF(selectors))]);
        late += simulated.late > 0;
        expired += simulated.expired > 0;
        rejected += simulated.rejected > 0;
        waiting += simulated.waiting > 0;
        aborted += simulated.aborted;
        batched += simulated.batches < simulated.served;
        variants_table_free(&table);
    }
    (void)printf("of %d runs with late %llu, expired %llu, refused %llu, waiting %llu, aborted %llu, batches %llu\n",
                 ROUNDS, (unsigned long long)late, (unsigned long long)expired, (unsigned long long)rejected,
                 (unsigned long long)waiting, (unsigned long long)aborted, (unsigned long long)batched);
    EXPECT(late > ROUNDS / 8 && expired > ROUNDS / 50 && rejected > ROUNDS / 20 && waiting > ROUNDS / 10);
    EXPECT(aborted > ROUNDS / 200 && batched > ROUNDS / 5);
}

/* More wait than are shown at once: what is dealt and what is central, all served late. */
static void
test_deep_queues(void)
{
    for (int round = 0; round < 8; round++) {
        struct variants_table table;
        struct variants_options options = random_case(&table);
        options.arrivals = (struct arrivals){.kind = ARRIVALS_POISSON, .rate_qps = 12000};
        options.duration_ns = 350000000;
        options.worker_count = 1 + (uint32_t)below(3);
        options.late = VARIANTS_SERVE_LATE;
        options.abort_waiting = 0;
        options.batch_max = 2;
        options.load_known = false;
        options.router = leat_router_find("fcfs");
        expect_same(options, round % 2 == 0 ? leat_selector_find("jellyfish") : leat_selector_find("fixed"));
        EXPECT(simulated.waiting > 2 * LEAT_SCHED_PENDING_MAX);
        options.worker_count = 1; /* then the router, too, is shown what its worker is */
        options.router = leat_router_find("dealt");
        expect_same(options, leat_selector_find("greedy"));
        EXPECT(simulated.waiting > 2 * LEAT_SCHED_PENDING_MAX);
        variants_table_free(&table);
    }
}

/* How often infaas was shown the instance of what it chose in each state; what it ranked since, and how often that differed. */
static uint32_t seen[LEAT_INSTANCE_STATES], ranked, narrowed;
static uint64_t least_rank, most_rank;

static uint64_t
rank_seen(void *state, const struct leat_select_input *input)
{
    const uint64_t rank = leat_selector_infaas.rank_worker(state, input);

    EXPECT(input->instances != NULL && input->worker->outstanding < input->worker->depth);
    least_rank = ranked == 0 || rank < least_rank ? rank : least_rank;
    most_rank = ranked == 0 || rank > most_rank ? rank : most_rank;
    ranked++;
    return rank;
}

static struct leat_selection
select_seen(void *state, const struct leat_select_input *input)
{
    const struct leat_selection selection = leat_selector_infaas.select(state, input);
    EXPECT(input->instances != NULL);
    seen[input->instances[selection.variant].state]++;
    EXPECT(ranked == 0 || leat_selector_infaas.rank_worker(state, input) == least_rank);
    narrowed += ranked > 0 && least_rank < most_rank;
    ranked = 0;
    return selection;
}

static struct leat_selection
select_unseen(void *state, const struct leat_select_input *input)
{
    EXPECT(input->instances == NULL);
    return leat_selector_infaas.select(state, input);
}

/* Instances are active under a light load, the same as if nothing were known of them; overloaded under a heavy one. */
static void
test_instances(void)
{
    static const struct leat_selector seeing = {
        .name = "seeing", .follows_instances = true, .select = select_seen, .rank_worker = rank_seen};
    static const struct leat_selector blind = {.name = "blind", .select = select_unseen};
    static struct variants_result unseen;
    struct variants_table table;

    make_table(&table, 2);
    struct variants_options options = {
        .table = &table,
        .router = leat_router_find("fcfs"),
        .selector = &seeing,
        .arrivals = {.kind = ARRIVALS_POISSON},
        .seed = leat_test_seed,
        .worker_count = 3,
        .objective_ns = UINT64_C(60000000000),
        .duration_ns = UINT64_C(30000000000),
        .batch_max = 1,
        .late = VARIANTS_DROP_LATE,
    };
    const double capacity_qps = 3e9 / (double)(table.rows[0].latency_ns[0] < table.rows[1].latency_ns[0]
                                                   ? table.rows[0].latency_ns[0]
                                                   : table.rows[1].latency_ns[0]);
    memset(seen, 0, sizeof(seen));
    options.arrivals.rate_qps = 0.3 * capacity_qps;
    EXPECT(variants_simulate(run, &options, &simulated) == LEAT_OK && simulated.served > 100);
    EXPECT(seen[LEAT_INSTANCE_ACTIVE] == simulated.decisions && narrowed == 0);
    options.selector = &blind;
    EXPECT(variants_simulate(run, &options, &unseen) == LEAT_OK);
    EXPECT(memcmp(&simulated, &unseen, sizeof(unseen)) == 0);

    memset(seen, 0, sizeof(seen));
    options.selector = &seeing;
    options.arrivals.rate_qps = 1.5 * capacity_qps;
    EXPECT(variants_simulate(run, &options, &simulated) == LEAT_OK);
    EXPECT(seen[LEAT_INSTANCE_OVERLOADED] > simulated.decisions * 8 / 10 && seen[LEAT_INSTANCE_INTERFERED] == 0);
    EXPECT(simulated.batches > 0.9 * 30 * capacity_qps); /* with nothing slower than before */

    for (size_t r = 0; r < 2; r++) { /* between the two some are overloaded: the router is shown the others */
        options.router = leat_router_find(r == 0 ? "fcfs" : "shortest_queue");
        options.worker_depth = 2;
        options.arrivals.rate_qps = 0.95 * capacity_qps;
        narrowed = 0;
        EXPECT(variants_simulate(run, &options, &simulated) == LEAT_OK);
        EXPECT(narrowed > 100 && simulated.served > 0.9 * 30 * 0.9 * capacity_qps);
    }
    variants_table_free(&table);
}

/* Equal inputs, equal results; and noise, which the naive one does not have, loses no query and moves no mean. */
static void
test_repeats_and_noise(void)
{
    static struct variants_result again;
    struct variants_table table;

    make_table(&table, 2);
    struct variants_options options = {
        .table = &table,
        .router = leat_router_find("fcfs"),
        .selector = leat_selector_find("jellyfish"),
        .arrivals = {.kind = ARRIVALS_POISSON, .rate_qps = 400},
        .seed = leat_test_seed,
        .worker_count = 6,
        .worker_depth = 2,
        .objective_ns = 30000000,
        .duration_ns = UINT64_C(60000000000),
    };
    EXPECT(variants_simulate(run, &options, &simulated) == LEAT_OK);
    const uint64_t arrived = simulated.arrived;
    options.noise_share = 0.2;
    EXPECT(variants_simulate(run, &options, &simulated) == LEAT_OK);
    EXPECT(variants_simulate(run, &options, &again) == LEAT_OK);
    EXPECT(memcmp(&simulated, &again, sizeof(again)) == 0);
    EXPECT(simulated.arrived == arrived); /* they come when they come */
    conserves(&simulated);
    options.seed++;
    EXPECT(variants_simulate(run, &options, &again) == LEAT_OK);
    EXPECT(memcmp(&simulated, &again, sizeof(again)) != 0);

    /* Of one query at a time on one worker: busy for what was drawn. */
    options.selector = leat_selector_find("single");
    options.worker_count = 1;
    options.arrivals.rate_qps = 0.5 * 1e9 / (double)table.rows[0].latency_ns[0];
    EXPECT(variants_simulate(run, &options, &simulated) == LEAT_OK);
    const double mean_ns = (double)simulated.busy_ns / (double)simulated.served;
    const double deviation_ns = 0.2 * (double)table.rows[0].latency_ns[0];
    EXPECT(fabs(mean_ns - (double)table.rows[0].latency_ns[0]) < 6 * deviation_ns / sqrt((double)simulated.served));
    variants_table_free(&table);
}

/* In services, of the queries served. */
static double
mean_wait(double service_ns)
{
    return (double)simulated.response_sum_ns / (double)simulated.served / service_ns - 1;
}

/* One query a batch, one variant: M/D/1 waits rho / (2 (1 - rho)) services on average (F. Pollaczek, 1930). */
static void
test_theory(void)
{
    struct variants_table table;

    make_table(&table, 1);
    for (uint32_t percent = 30; percent <= 90; percent += 20) {
        const double rho = percent / 100.0, service_ns = (double)table.rows[0].latency_ns[0];
        struct variants_options options = {
            .table = &table,
            .router = leat_router_find("fcfs"),
            .selector = leat_selector_find("single"),
            .arrivals = {.kind = ARRIVALS_POISSON, .rate_qps = rho * 1e9 / service_ns},
            .seed = leat_test_seed,
            .worker_count = 1,
            .objective_ns = (uint64_t)service_ns,
            .duration_ns = (uint64_t)(service_ns * 4e5),
        };
        EXPECT(variants_simulate(run, &options, &simulated) == LEAT_OK);
        conserves(&simulated);
        const double waited = mean_wait(service_ns);
        const double expected = rho / (2 * (1 - rho));
        (void)printf("M/D/1 at %.1f: waits %.4f services, %.4f expected\n", rho, waited, expected);
        EXPECT(fabs(waited / expected - 1) < (percent < 80 ? 0.03 : 0.12));
        EXPECT(fabs(variants_utilisation(&options, &simulated) - rho) < 0.01);
        /* An arrival finds the worker idle, and so is in time, as often as it is. */
        EXPECT(fabs(variants_violation(&simulated) - rho) < 0.01);
        EXPECT(fabs(variants_accuracy(&table, &simulated) - 0.5) < 1e-12);
        options.worker_count = 2;
        options.arrivals.rate_qps *= 2;
        EXPECT(variants_simulate(run, &options, &simulated) == LEAT_OK);
        const double together = mean_wait(service_ns);
        options.router = leat_router_find("dealt"); /* when all take as long, workers become free in turn anyway */
        EXPECT(variants_simulate(run, &options, &simulated) == LEAT_OK);
        EXPECT(fabs(together - mean_wait(service_ns)) < 1e-3 && together < waited);
    }
    variants_table_free(&table);
}

/* The selector is told what is true of the present step, and later of the next. */
static uint32_t seen_qps[8];

static struct leat_selection
select_and_look(void *state, const struct leat_select_input *input)
{
    (void)state;
    seen_qps[input->now_ns / 500000000] |= input->rate_qps;
    return (struct leat_selection){.queries = 1};
}

static void
test_known_rate(void)
{
    struct rates_step steps[] = {{.end_s = 0.5, .qps = 100}, {.end_s = 1.0, .qps = 0}, {.end_s = 1.5, .qps = 511.5}};
    const struct rates rates = {.steps = steps, .count = 3};
    const struct leat_selector looking = {.name = "looking", .select = select_and_look};
    struct variants_table table;

    make_table(&table, 1);
    memset(table.rows[0].latency_ns, 0, sizeof(table.rows[0].latency_ns));
    for (uint32_t b = 0; b < VARIANTS_LATENCY_MAX; b++) {
        table.rows[0].latency_ns[b] = 1;
    }
    struct variants_options options = {
        .table = &table,
        .router = leat_router_find("fcfs"),
        .selector = &looking,
        .arrivals = {.kind = ARRIVALS_RATES, .rates = &rates},
        .seed = leat_test_seed,
        .worker_count = 1,
        .objective_ns = 1,
        .duration_ns = UINT64_C(4000000000),
        .load_known = true,
    };
    EXPECT(variants_simulate(run, &options, &simulated) == LEAT_OK);
    const uint32_t expected[8] = {100, 0, 512, 100, 0, 512, 100, 0};
    EXPECT(memcmp(seen_qps, expected, sizeof(expected)) == 0);
    EXPECT(simulated.served == simulated.arrived && simulated.late == 0);

    options.arrivals = (struct arrivals){.kind = ARRIVALS_FILE, .times_s = (const double[]){0.25, 0.5}, .time_count = 2};
    EXPECT(variants_simulate(run, &options, &simulated) == LEAT_ERR_INVALID);
    options.load_known = false;
    EXPECT(variants_simulate(run, &options, &simulated) == LEAT_OK && simulated.arrived == 2 && simulated.served == 2);
    options.worker_count = 0;
    EXPECT(variants_simulate(run, &options, &simulated) == LEAT_ERR_INVALID);
    options.worker_count = LEAT_SCHED_WORKERS_MAX + 1;
    EXPECT(variants_simulate(run, &options, &simulated) == LEAT_ERR_INVALID);
    options.worker_count = 1;
    options.worker_depth = SIMULATE_DEPTH_MAX + 1;
    EXPECT(variants_simulate(run, &options, &simulated) == LEAT_ERR_INVALID);
    options.worker_depth = 0;
    options.batch_max = VARIANTS_LATENCY_MAX + 1;
    EXPECT(variants_simulate(run, &options, &simulated) == LEAT_ERR_INVALID);
    variants_table_free(&table);
}

static void
test_table(void)
{
    uint32_t items[] = {1, 2, 4, 40};
    double latency_us[] = {3, 2, 6, 1000};
    struct simulate_profile profile = {
        .name = "one", .accuracy = 0.7654321, .count = 4, .items = items, .latency_us = latency_us};
    const struct simulate_profiles profiles = {.count = 1, .variants = &profile};
    struct variants_table table;

    EXPECT(variants_table_make(&profiles, &table) == LEAT_OK && table.count == 1);
    const struct variants_row *row = &table.rows[0];
    EXPECT(strcmp(row->name, "one") == 0 && row->accuracy_ppm == 765432);
    EXPECT(row->latency_ns[0] == 2000 && row->latency_ns[1] == 2000 && row->latency_ns[3] == 6000);
    for (uint32_t b = 1; b < 32; b++) { /* the line through (1, 3), (2, 2), (4, 6) has slope 8/7 */
        EXPECT(row->latency_ns[b] >= row->latency_ns[b - 1]);
        EXPECT(b == 1 || b == 3 || row->latency_ns[b] == (uint64_t)llround(1e3 * (11.0 / 3 + 8.0 / 7 * (b + 1 - 7.0 / 3))));
    }
    EXPECT(row->latency_ns[1023] > row->latency_ns[127] && row->latency_ns[127] > row->latency_ns[31]);
    variants_table_free(&table);
    items[0] = 2;
    profile.count = 1; /* then 3 us for 2 and fewer, and proportional above */
    EXPECT(variants_table_make(&profiles, &table) == LEAT_OK);
    row = &table.rows[0];
    EXPECT(row->latency_ns[0] == 3000 && row->latency_ns[1] == 3000 && row->latency_ns[2] == 4500);
    EXPECT(row->latency_ns[31] == 48000 && row->latency_ns[127] == 192000);
    variants_table_free(&table);
    items[0] = 31; /* 3 us for 31 and 200 for 32: nothing is left for 1 */
    items[1] = 32;
    latency_us[1] = 200;
    profile.count = 2;
    EXPECT(variants_table_make(&profiles, &table) == LEAT_ERR_INVALID && strstr(leat_error_text(), "'one'") != NULL);
}

/* Jellyfish+ on RAMSIS' own measurements: one variant for each load, no violations until none keeps up. */
static void
test_published_tables(void)
{
    static const double image[] = {.80608, .80608, .73004, .73004, .73004, .73004, .57972, .57972, .57972, .57972};
    static const double text[] = {.776, .748, .748, .748, .748, .748, .702, .702, .702, .702};
    const char *directory = getenv("LEAT_DATA");
    char profiles_path[4200], accuracies_path[4200];

    if (directory == NULL) {
        (void)printf("skipped, published tables: LEAT_DATA names no directory\n");
        return;
    }
    (void)snprintf(profiles_path, sizeof(profiles_path), "%s/ramsis/latency_profiles.csv", directory);
    (void)snprintf(accuracies_path, sizeof(accuracies_path), "%s/ramsis/accuracies.csv", directory);
    FILE *file = fopen(profiles_path, "r");
    if (file == NULL) {
        (void)printf("skipped, published tables: no %s\n", profiles_path);
        return;
    }
    (void)fclose(file);
    for (uint32_t task = 0; task < 2; task++) {
        const struct simulate_profiles_options source = {
            .path = profiles_path, .accuracies_path = accuracies_path, .task = task == 0 ? "image" : "text"};
        struct simulate_profiles profiles;
        struct variants_table table;
        EXPECT(simulate_profiles_read(&source, &profiles) == LEAT_OK);
        if (task == 0) { /* 26 models; of text all five */
            simulate_profiles_keep_front(&profiles);
        }
        EXPECT(variants_table_make(&profiles, &table) == LEAT_OK && table.count == (task == 0 ? 9 : 5));
        for (uint32_t i = 0; i < 10; i++) {
            struct variants_options options = {
                .table = &table,
                .router = leat_router_find("fcfs"),
                .selector = leat_selector_find("jellyfish"),
                .arrivals = {.kind = ARRIVALS_POISSON, .rate_qps = 400.0 * (i + 1)},
                .seed = leat_test_seed,
                .worker_count = task == 0 ? 60 : 20,
                .objective_ns = task == 0 ? 150000000 : 100000000,
                .duration_ns = UINT64_C(10000000000),
                .load_known = true,
            };
            EXPECT(variants_simulate(run, &options, &simulated) == LEAT_OK);
            EXPECT(fabs(variants_accuracy(&table, &simulated) - (task == 0 ? image : text)[i]) < 1e-9);
            const double violation = variants_violation(&simulated);
            EXPECT(task == 0 && i >= 8 ? violation > 0.2 : violation == 0);
            options.selector = leat_selector_find("greedy"); /* it spends what it will need */
            EXPECT(variants_simulate(run, &options, &simulated) == LEAT_OK);
            conserves(&simulated);
            EXPECT(i > 0 || (variants_accuracy(&table, &simulated) > (task == 0 ? image : text)[i]));
            EXPECT(task == 1 || i == 0 || variants_violation(&simulated) > 0.1);
        }
        variants_table_free(&table);
        simulate_profiles_free(&profiles);
    }
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    EXPECT(variants_run_create(&run) == LEAT_OK);
    test_against_naive();
    test_deep_queues();
    test_repeats_and_noise();
    test_instances();
    test_theory();
    test_known_rate();
    test_table();
    test_published_tables();
    variants_run_destroy(run);
    return 0;
}
