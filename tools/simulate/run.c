/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/status.h"
#include "sched/probing.h"
#include "sched/profile.h"
#include "tools/simulate/events.h"

#define ERRORS       4096u /* standard normals for errors of prediction; a power of two */
#define LOOK_EVERY   256u  /* arrivals between two looks at whether the run is lost */
#define NOTHING      UINT32_MAX

/* As in the dispatcher. */
#define LOOK_AGAIN_NS  1000000u /* what a router leaves for later though a worker has room is shown to it again */
#define OVERRUN_SHARE  16u      /* a batch beyond its prediction is taken to go on for this part of it */
#define LOOKS_IDLE_MAX 1024u    /* in vain, with all workers idle and nothing to come: the router will not change its mind */

struct batch {
    uint64_t predicted_ns; /* on average, when it was given */
    uint32_t query;
    bool probe;
};

struct worker {
    uint64_t started_ns, ends_ns;            /* of what runs; the end as predicted */
    uint64_t behind_ns;                      /* as predicted, of what waits here */
    struct batch batches[SIMULATE_DEPTH_MAX]; /* ring of [first, first + outstanding); the first one runs */
    uint32_t first;
};

struct simulate_run {
    /* Of the workload; grown as needed. */
    struct leat_sched_query *pending; /* [head, tail) waits, oldest first */
    uint32_t *pending_ids;            /* which query of the workload */
    uint64_t *response_ns;
    uint32_t capacity;
    uint32_t head, tail;

    uint64_t *high_ns; /* [class_count][size_count], at the percentile; the mean is the table's */
    size_t high_capacity;
    float errors[ERRORS];
    float errors_sorted[ERRORS];
    struct leat_profile learned[LEAT_SCHED_CLASSES_MAX];
    struct leat_probing probing[LEAT_SCHED_CLASSES_MAX];

    const struct simulate_options *options;
    uint32_t worker_count, room_count; /* room_count: of workers that may be given a batch */
    struct leat_sched_worker sched[LEAT_SCHED_WORKERS_MAX];
    struct worker workers[LEAT_SCHED_WORKERS_MAX];
    struct event heap[LEAT_SCHED_WORKERS_MAX]; /* ends of running batches, soonest first */
    uint32_t heap_count;
    void *router_state;
    size_t router_state_capacity;
    uint64_t now_ns;
    uint64_t epoch; /* of errors: each decision predicts anew */
};

/* ---- Prediction -------------------------------------------------------------------------------- */

static inline size_t
cell_of(const struct simulate_table *table, uint32_t worker_class, uint32_t items)
{
    const uint32_t row = table->row_of_items[items < table->items_max ? items : table->items_max];
    return (size_t)worker_class * table->size_count + row;
}

/*
 * A percentile that is learned from what came true holds the predictor's own errors too.
 */
static double
error_margin(const struct simulate_run *run)
{
    const double share = run->options->noise_share, percentile = run->options->percentile;
    if (share <= 0 || percentile <= 0) {
        return 1;
    }
    const double margin = 1 + share * (double)run->errors_sorted[(uint32_t)(percentile / 100 * (ERRORS - 1))];
    return margin > 0 ? margin : 0;
}

static uint64_t
with_error(const struct simulate_run *run, uint64_t ns, size_t cell)
{
    const double share = run->options->noise_share;
    if (share <= 0) {
        return ns;
    }
    const float error = run->errors[(run->epoch + cell) & (ERRORS - 1)];
    const double noisy = (double)ns * (1.0 + share * (double)error);
    return noisy > 1 ? (uint64_t)noisy : 1;
}

static uint64_t
predict_high(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct simulate_run *run = profiles;
    const size_t cell = cell_of(run->options->table, worker_class, items);
    (void)application, (void)variant;
    return with_error(run, run->high_ns[cell], cell);
}

static uint64_t
predict_mean(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct simulate_run *run = profiles;
    const size_t cell = cell_of(run->options->table, worker_class, items);
    (void)application, (void)variant;
    return with_error(run, run->options->table->mean_ns[cell], cell);
}

static uint64_t
learned_high(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct simulate_run *run = profiles;
    (void)application, (void)variant;
    return leat_profile_predict(&run->learned[worker_class], items);
}

static uint64_t
learned_mean(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct simulate_run *run = profiles;
    (void)application, (void)variant;
    return leat_profile_mean(&run->learned[worker_class], items);
}

/* ---- Workers ----------------------------------------------------------------------------------- */

static uint64_t
mean_ns_of(const struct simulate_run *run, uint32_t query, uint32_t w)
{
    const struct simulate_table *table = run->options->table;
    const uint16_t worker_class = run->sched[w].worker_class;
    const uint32_t items = run->options->workload->items[query];
    return run->options->learn ? leat_profile_mean(&run->learned[worker_class], items)
                               : table->mean_ns[cell_of(table, worker_class, items)];
}

/* The next query of the worker's queue begins. */
static void
start(struct simulate_run *run, uint32_t w)
{
    const struct simulate_options *options = run->options;
    struct worker *worker = &run->workers[w];
    const struct batch *batch = &worker->batches[worker->first];
    const uint32_t query = batch->query;
    const size_t cell = cell_of(options->table, run->sched[w].worker_class, options->workload->items[query]);
    const uint64_t sample = (uint64_t)options->workload->luck[query] * options->table->sample_count >> 32;
    uint64_t ns = options->table->samples_ns[cell * options->table->sample_count + sample];

    if (options->service_noise_share > 0) {
        const double factor = 1.0 + options->service_noise_share * (double)options->workload->noise[query];
        ns = factor > 0 ? (uint64_t)((double)ns * factor) : 0;
    }
    worker->started_ns = run->now_ns;
    worker->ends_ns = run->now_ns + batch->predicted_ns;
    events_push(run->heap, &run->heap_count, (struct event){.at_ns = run->now_ns + (ns > 0 ? ns : 1), .worker = w});
}

static void
give(struct simulate_run *run, uint32_t query, uint32_t w, bool probe)
{
    struct leat_sched_worker *sched = &run->sched[w];
    struct worker *worker = &run->workers[w];

    LEAT_ASSERT(query != NOTHING && w < run->worker_count && sched->outstanding < sched->depth);
    const struct batch batch = {.predicted_ns = mean_ns_of(run, query, w), .query = query, .probe = probe};
    worker->batches[(worker->first + sched->outstanding) % SIMULATE_DEPTH_MAX] = batch;
    if (sched->outstanding++ == 0) {
        start(run, w);
    } else {
        worker->behind_ns += batch.predicted_ns;
    }
    run->room_count -= sched->outstanding == sched->depth;
    sched->free_at_ns = worker->ends_ns + worker->behind_ns;
}

/* Returns the query that is done. */
static uint32_t
complete(struct simulate_run *run, uint32_t w)
{
    struct leat_sched_worker *sched = &run->sched[w];
    struct worker *worker = &run->workers[w];
    const struct batch batch = worker->batches[worker->first];
    const uint64_t service_ns = run->now_ns - worker->started_ns;

    worker->first = (worker->first + 1) % SIMULATE_DEPTH_MAX;
    worker->ends_ns = run->now_ns;
    run->room_count += sched->outstanding == sched->depth;
    if (--sched->outstanding > 0) {
        worker->behind_ns -= worker->batches[worker->first].predicted_ns;
        start(run, w);
    }
    sched->free_at_ns = worker->ends_ns + worker->behind_ns;
    if (run->options->learn) {
        leat_probing_end(&run->probing[sched->worker_class], batch.probe, run->now_ns, batch.predicted_ns,
                         service_ns);
        leat_profile_learn(&run->learned[sched->worker_class], run->options->workload->items[batch.query], service_ns);
    }
    return batch.query;
}

/* No busy worker is to look free because its batch takes longer than was predicted. */
static void
extend_overruns(struct simulate_run *run)
{
    for (uint32_t w = 0; w < run->worker_count; w++) {
        struct worker *worker = &run->workers[w];
        if (run->sched[w].outstanding > 0 && worker->ends_ns <= run->now_ns) {
            worker->ends_ns = run->now_ns + 1 + worker->batches[worker->first].predicted_ns / OVERRUN_SHARE;
            run->sched[w].free_at_ns = worker->ends_ns + worker->behind_ns;
        }
    }
}

/* ---- Decisions --------------------------------------------------------------------------------- */

/* Takes out what was given away, up to the one at `last`, in one pass. */
static void
remove_given(struct simulate_run *run, uint32_t last, uint32_t count)
{
    uint32_t to = run->head + last;
    for (uint32_t at = to + 1; at-- > run->head;) {
        if (run->pending_ids[at] != NOTHING) {
            run->pending[to] = run->pending[at];
            run->pending_ids[to] = run->pending_ids[at];
            to--;
        }
    }
    run->head += count;
}

static struct leat_route_input
route_input(const struct simulate_run *run)
{
    const struct simulate_options *options = run->options;
    const uint32_t waiting = run->tail - run->head;
    return (struct leat_route_input){
        .now_ns = run->now_ns,
        .pending = &run->pending[run->head],
        .pending_count = waiting < LEAT_SCHED_PENDING_MAX ? waiting : LEAT_SCHED_PENDING_MAX,
        .workers = run->sched,
        .worker_count = run->worker_count,
        .class_count = options->table->class_count,
        .items_max = options->table->items_max,
        .predict = options->learn ? learned_high : predict_high,
        .mean = options->learn ? learned_mean : predict_mean,
        .profiles = run,
    };
}

static void
decide(struct simulate_run *run, struct simulate_result *result)
{
    const struct simulate_options *options = run->options;
    struct leat_route_pair pairs[LEAT_SCHED_WORKERS_MAX];

    if (run->head < run->tail && run->room_count > 0) {
        extend_overruns(run);
    }
    while (run->head < run->tail && run->room_count > 0) {
        const struct leat_route_input input = route_input(run);
        run->epoch += 61; /* odd: all errors are used before one returns */
        const uint32_t count = options->router->route(run->router_state, &input, pairs, run->worker_count);
        result->decisions++;
        if (count == 0) {
            return;
        }
        result->pairs += count;
        uint32_t last = 0;
        for (uint32_t i = 0; i < count; i++) {
            LEAT_ASSERT(pairs[i].query < input.pending_count);
            uint32_t *query = &run->pending_ids[run->head + pairs[i].query];
            give(run, *query, pairs[i].worker, false);
            *query = NOTHING;
            last = pairs[i].query > last ? pairs[i].query : last;
        }
        remove_given(run, last, count);
    }
}

/* It waits, or a class of workers is probed with it. */
static void
arrive(struct simulate_run *run, uint32_t query, struct simulate_result *result)
{
    const struct simulate_options *options = run->options;
    const uint64_t deadline_ns = run->now_ns + options->objective_ns;
    const uint32_t items = options->workload->items[query];

    if (options->learn && options->table->class_count > 1) {
        const struct leat_route_input input = route_input(run);
        const uint32_t w = leat_probing_find(run->probing, &input, items, deadline_ns, false);
        if (w != LEAT_PROBING_NONE) {
            give(run, query, w, true);
            leat_probing_begin(&run->probing[run->sched[w].worker_class]);
            result->probes++;
            return;
        }
    }
    run->pending[run->tail] = (struct leat_sched_query){
        .arrival_ns = run->now_ns, .deadline_ns = deadline_ns, .items = items, .ordinal = query};
    run->pending_ids[run->tail++] = query;
}

static int
compare_float(const void *a, const void *b)
{
    const float left = *(const float *)a, right = *(const float *)b;
    return (left > right) - (left < right);
}

/* ---- A run ------------------------------------------------------------------------------------- */

enum leat_status
simulate_run_create(struct simulate_run **ret_run)
{
    struct simulate_run *run = calloc(1, sizeof(*run));
    if (run == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a simulation");
    }
    /* Standard normals, by sums of twelve uniforms: the same on every machine. */
    uint64_t random = 1;
    for (uint32_t i = 0; i < ERRORS; i++) {
        double sum = -6;
        for (uint32_t k = 0; k < 12; k++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            sum += (double)(random >> 11) * 0x1p-53;
        }
        run->errors[i] = run->errors_sorted[i] = (float)sum;
    }
    qsort(run->errors_sorted, ERRORS, sizeof(run->errors_sorted[0]), compare_float);
    *ret_run = run;
    return LEAT_OK;
}

void
simulate_run_destroy(struct simulate_run *run)
{
    if (run == NULL) {
        return;
    }
    free(run->pending);
    free(run->pending_ids);
    free(run->response_ns);
    free(run->high_ns);
    free(run->router_state);
    free(run);
}

/* At least `count` elements; what was there is lost. */
static bool
grow(void *array, size_t count, size_t size)
{
    void **place = array;
    free(*place);
    *place = calloc(count > 0 ? count : 1, size);
    return *place != NULL;
}

static enum leat_status
forget(struct simulate_run *run)
{
    const struct simulate_options *options = run->options;
    const double ppm = round(options->percentile * 1e4);

    if (options->noise_share > 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "predictions that are learned have no errors but their own");
    }
    if (ppm != 0 && !(ppm >= LEAT_PROFILE_QUANTILE_MIN && ppm <= LEAT_PROFILE_QUANTILE_MAX)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a profile learns percentiles from 50 to 99.9, or the mean, not %g",
                         options->percentile);
    }
    for (uint32_t class = 0; class < LEAT_SCHED_CLASSES_MAX; class ++) {
        leat_profile_init(&run->learned[class], ppm != 0 ? (uint32_t)ppm : LEAT_PROFILE_MEAN, NULL);
    }
    memset(run->probing, 0, sizeof(run->probing));
    return LEAT_OK;
}

static enum leat_status
prepare(struct simulate_run *run, const struct simulate_options *options)
{
    const struct simulate_table *table = options->table;
    const size_t cells = (size_t)table->class_count * table->size_count;

    run->options = options;
    if (run->capacity < options->workload->count) {
        run->capacity = 0;
        if (!grow(&run->pending, options->workload->count, sizeof(*run->pending)) ||
            !grow(&run->pending_ids, options->workload->count, sizeof(*run->pending_ids)) ||
            !grow(&run->response_ns, options->workload->count, sizeof(*run->response_ns))) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a simulation of %u queries", options->workload->count);
        }
        run->capacity = options->workload->count;
    }
    if (run->high_capacity < cells) {
        run->high_capacity = 0;
        if (!grow(&run->high_ns, cells, sizeof(*run->high_ns))) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a table of %zu cells", cells);
        }
        run->high_capacity = cells;
    }
    const double margin = error_margin(run);
    for (uint32_t class = 0; class < table->class_count; class ++) {
        for (uint32_t row = 0; row < table->size_count; row++) {
            const size_t cell = (size_t)class * table->size_count + row;
            const uint64_t ns = options->percentile > 0
                                    ? simulate_table_noisy_percentile(table, class, table->sizes[row],
                                                                      options->percentile, options->service_noise_share)
                                    : table->mean_ns[cell];
            run->high_ns[cell] = (uint64_t)((double)ns * margin);
        }
    }
    const size_t state_bytes = options->router->state_bytes;
    if (run->router_state_capacity < state_bytes) {
        run->router_state_capacity = 0;
        free(run->router_state);
        run->router_state = aligned_alloc(LEAT_ISOLATE, (state_bytes + LEAT_ISOLATE - 1) / LEAT_ISOLATE * LEAT_ISOLATE);
        if (run->router_state == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for router '%s'", options->router->name);
        }
        run->router_state_capacity = state_bytes;
    }
    if (state_bytes > 0) {
        memset(run->router_state, 0, state_bytes);
    }

    run->head = run->tail = 0;
    run->heap_count = 0;
    run->now_ns = 0;
    run->epoch = 0;
    run->worker_count = 0;
    if (options->worker_depth > SIMULATE_DEPTH_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a worker that holds %u batches: it can hold %u", options->worker_depth,
                         SIMULATE_DEPTH_MAX);
    }
    const uint32_t held = options->worker_depth > 0 ? options->worker_depth : SIMULATE_DEPTH_MAX;
    const uint32_t depth = options->router->queues ? held : 1;
    for (uint32_t class = 0; class < LEAT_POOL_CLASSES_MAX; class ++) {
        if (class >= table->class_count && options->mix.count[class] > 0) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "the mix has workers of class %u, but there are %u classes", class,
                             table->class_count);
        }
        for (uint32_t i = 0; i < options->mix.count[class]; i++) {
            if (run->worker_count == LEAT_SCHED_WORKERS_MAX) {
                return LEAT_FAIL(LEAT_ERR_LIMIT, "the mix has more than %u workers", LEAT_SCHED_WORKERS_MAX);
            }
            run->workers[run->worker_count].behind_ns = 0;
            run->workers[run->worker_count].first = 0;
            run->sched[run->worker_count++] =
                (struct leat_sched_worker){.depth = depth, .worker_class = (uint16_t)class};
        }
    }
    if (run->worker_count == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "the mix has no workers");
    }
    run->room_count = run->worker_count;
    if (options->learn) {
        const enum leat_status status = forget(run);
        if (status != LEAT_OK) {
            return status;
        }
    }
    return options->router->init != NULL ? options->router->init(run->router_state, &options->router_options) : LEAT_OK;
}

/* How many that wait are late whatever happens; they stand in front, since all have one objective. */
static uint32_t
lost_count(const struct simulate_run *run)
{
    uint32_t low = run->head, high = run->tail;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (run->pending[middle].deadline_ns < run->now_ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low - run->head;
}

static int
compare_u64(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* Nearest ranks: p99 meets the objective if and only if no more than one in a hundred is late. */
static void
summarise(struct simulate_run *run, struct simulate_result *result)
{
    if (result->queries == 0) {
        return;
    }
    qsort(run->response_ns, result->queries, sizeof(run->response_ns[0]), compare_u64);
    result->p50_ns = run->response_ns[(result->queries - 1) / 2];
    result->p99_ns = run->response_ns[((uint64_t)result->queries * 99 + 99) / 100 - 1];
    result->max_ns = run->response_ns[result->queries - 1];
}

/* How many of `count` may be late: the most whose share is not above violation_share. */
static uint64_t
allowance(double violation_share, uint32_t count)
{
    uint64_t allowed = (uint64_t)(violation_share * count) + 1; /* rounded, perhaps to one too many */
    while (allowed > 0 && (double)allowed / count > violation_share) {
        allowed--;
    }
    return allowed;
}

enum leat_status
simulate_run(struct simulate_run *run, const struct simulate_options *options, struct simulate_result *ret_result)
{
    const struct simulate_workload *workload = options->workload;
    struct simulate_result result = {0};
    const uint64_t allowed = allowance(options->violation_share, workload->count);

    const enum leat_status status = prepare(run, options);
    if (status != LEAT_OK) {
        return status;
    }
    if (!(options->rate_qps > 0)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a rate of %g queries a second cannot be simulated", options->rate_qps);
    }
    const double gap_ns = 1e9 / options->rate_qps;
    uint32_t next = 0, looks = 0;
    uint64_t next_ns = workload->count > 0 ? (uint64_t)(workload->arrival_s[0] * gap_ns) : 0;
    uint64_t look_ns = UINT64_MAX;

    while (result.queries < workload->count) {
        const uint64_t end_ns = run->heap_count > 0 ? run->heap[0].at_ns : UINT64_MAX;
        if (end_ns <= next_ns && end_ns <= look_ns) {
            LEAT_ASSERT(run->heap_count > 0);
            const uint32_t w = run->heap[0].worker;
            events_pop(run->heap, &run->heap_count);
            run->now_ns = end_ns;
            const uint16_t class = run->sched[w].worker_class;
            result.of_class[class].busy_ns += end_ns - run->workers[w].started_ns;
            const uint32_t query = complete(run, w);
            const uint64_t response_ns = run->now_ns - (uint64_t)(workload->arrival_s[query] * gap_ns);
            const bool late = response_ns > options->objective_ns;
            run->response_ns[result.queries++] = response_ns;
            result.violations += late;
            result.of_class[class].queries++;
            result.of_class[class].violations += late;
            if (options->stop_early && result.violations > allowed) {
                result.stopped_early = true;
                break;
            }
        } else if (next_ns <= look_ns) {
            run->now_ns = next_ns;
            arrive(run, next++, &result);
            next_ns = next < workload->count ? (uint64_t)(workload->arrival_s[next] * gap_ns) : UINT64_MAX;
            if (options->stop_early && next % LOOK_EVERY == 0 && result.violations + lost_count(run) > allowed) {
                result.stopped_early = true;
                break;
            }
        } else {
            run->now_ns = look_ns;
            looks = run->heap_count == 0 && next == workload->count ? looks + 1 : 0;
            if (looks > LOOKS_IDLE_MAX) {
                return LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                                 "router '%s' leaves %u queries waiting though all workers are idle",
                                 options->router->name, run->tail - run->head);
            }
        }
        decide(run, &result);
        look_ns = run->head < run->tail && run->room_count > 0 ? run->now_ns + LOOK_AGAIN_NS : UINT64_MAX;
    }
    result.end_ns = run->now_ns;
    if (!options->stop_early) {
        summarise(run, &result);
    }
    *ret_result = result;
    return LEAT_OK;
}
