/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/variants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "sched/batch.h"
#include "sched/candidates.h"
#include "sched/load.h"
#include "sched/policy_table.h"
#include "sched/reserve.h"
#include "tools/simulate/events.h"
#include "tools/simulate/random.h"

#define SECOND_NS   1e9
#define NOISE_SEED  UINT64_C(0x9e3779b97f4a7c15) /* so that service times are not drawn from the arrivals' numbers */
#define QUEUE_START 64u

/* As in the dispatcher. */
#define LOOK_AGAIN_NS 1000000u /* what a router leaves for later though a worker has room is shown to it again */
#define AHEAD_NS      LOOK_AGAIN_NS /* so long before a worker is free it is given a batch that more could join */
#define OVERRUN_SHARE 16u      /* a batch beyond its prediction is taken to go on for this part of it */

/* What waits: entries[head, tail), oldest first and without a gap, as policies want to see it. */
struct queue {
    struct leat_sched_query *entries;
    uint32_t head, tail, capacity;
};

struct batch {
    uint64_t end_ns, predicted_ns;
    uint64_t run_ns, arrived_ns; /* as it will turn out; its oldest query */
    uint32_t variant, queries;
    bool online; /* not of what is served late */
};

struct worker {
    uint64_t free_ns;               /* when all that it holds is done */
    uint64_t ends_ns;               /* of what runs, as predicted */
    uint64_t behind_ns;             /* predicted time of what it holds beyond that */
    struct batch batches[SIMULATE_DEPTH_MAX]; /* ring of [first, first + outstanding); the first one runs */
    uint32_t first;
    struct leat_instance_worker shared; /* by its instances */
};

struct variants_run {
    const struct variants_options *options;
    struct variants_result *result;
    uint64_t now_ns, next_ns; /* next_ns: of the next arrival */
    struct arrivals arrivals;
    uint64_t random; /* of service times */
    struct leat_load load;
    struct leat_reserve reserve;
    double rate_cycle_s; /* of rates that change: when they last began */
    uint32_t rate_step;

    struct queue queues[LEAT_SCHED_WORKERS_MAX]; /* the first is all there is, unless the router deals */
    struct queue late[LEAT_SCHED_WORKERS_MAX];   /* SERVE_LAST: what of each cannot be in time, with no deadline any more */
    uint64_t least_ns;                           /* that any variant takes for one query */
    uint64_t waiting;
    struct leat_sched_variant variants[LEAT_SCHED_VARIANTS_MAX];
    const char *names[LEAT_SCHED_VARIANTS_MAX];
    struct leat_sched_worker sched[LEAT_SCHED_WORKERS_MAX];
    struct worker workers[LEAT_SCHED_WORKERS_MAX];
    struct leat_instance instances[LEAT_SCHED_WORKERS_MAX][LEAT_SCHED_VARIANTS_MAX];
    uint32_t out_count; /* of instances that are not active, where the selector follows them */
    uint32_t idle_count, room_count;
    struct event heap[LEAT_SCHED_WORKERS_MAX]; /* ends of running batches */
    uint32_t heap_count;
    uint64_t evaluate_ns; /* instances are */
    bool held; /* a selector has left queries before an idle worker */
    bool gone[LEAT_SCHED_PENDING_MAX]; /* of the queries that the router was shown; all false between its answers */

    uint64_t *response_ns; /* [served] */
    uint64_t response_capacity;
    void *router_state, *selector_state;
};

/* ---- Queues ------------------------------------------------------------------------------------ */

static enum leat_status
queue_push(struct queue *queue, const struct leat_sched_query *query)
{
    if (queue->tail == queue->capacity) {
        const uint32_t count = queue->tail - queue->head;
        if (count > queue->capacity / 2 || queue->capacity == 0) {
            const uint32_t capacity = queue->capacity > 0 ? 2 * queue->capacity : QUEUE_START;
            struct leat_sched_query *entries = realloc(queue->entries, capacity * sizeof(*entries));
            if (entries == NULL) {
                return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u waiting queries", capacity);
            }
            queue->entries = entries;
            queue->capacity = capacity;
        }
        memmove(queue->entries, queue->entries + queue->head, count * sizeof(*queue->entries));
        queue->head = 0;
        queue->tail = count;
    }
    queue->entries[queue->tail++] = *query;
    return LEAT_OK;
}

static uint32_t
queue_count(const struct queue *queue)
{
    return queue->tail - queue->head;
}

/* How many of a queue policies see. */
static uint32_t
shown_count(const struct queue *queue)
{
    const uint32_t count = queue_count(queue);
    return count < LEAT_SCHED_PENDING_MAX ? count : LEAT_SCHED_PENDING_MAX;
}

/* Those past their deadline are at the front: all have the same objective. */
static void
drop_expired(struct variants_run *run, struct queue *queue)
{
    while (queue->head < queue->tail && queue->entries[queue->head].deadline_ns <= run->now_ns) {
        queue->head++;
        run->waiting--;
        run->result->expired++;
    }
}

/* Those that cannot be in time any more are at the front, too. */
static enum leat_status
put_last(struct variants_run *run, struct queue *queue)
{
    struct queue *late = &run->late[queue - run->queues];
    enum leat_status status = LEAT_OK;

    while (status == LEAT_OK && queue->head < queue->tail &&
           queue->entries[queue->head].deadline_ns < run->now_ns + run->least_ns) {
        struct leat_sched_query query = queue->entries[queue->head++];
        query.deadline_ns = LEAT_NO_DEADLINE;
        status = queue_push(late, &query);
    }
    return status;
}

/* Takes out what is marked as gone, `count` queries up to the one at `last`, and clears the marks. */
static void
remove_gone(struct variants_run *run, struct queue *queue, uint32_t last, uint32_t count)
{
    uint32_t to = last;

    if (count == last + 1) { /* all of them */
        memset(run->gone, 0, count);
        queue->head += count;
        return;
    }
    for (uint32_t at = last + 1; at-- > 0;) {
        if (!run->gone[at]) {
            queue->entries[queue->head + to--] = queue->entries[queue->head + at];
        }
    }
    memset(run->gone, 0, last + 1);
    queue->head += count;
}

/* ---- Workers ----------------------------------------------------------------------------------- */

static uint64_t
predict(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct variants_table *table = profiles;

    (void)application, (void)worker_class;
    return table->rows[variant].latency_ns[(items < VARIANTS_LATENCY_MAX ? items : VARIANTS_LATENCY_MAX) - 1];
}

/* Its batches are one more or less. */
static void
count_room(struct variants_run *run, struct leat_sched_worker *sched, int32_t change)
{
    run->idle_count -= sched->outstanding == 0;
    run->room_count -= sched->outstanding < sched->depth;
    sched->outstanding += (uint32_t)change;
    run->idle_count += sched->outstanding == 0;
    run->room_count += sched->outstanding < sched->depth;
}

static enum leat_status
keep_response(struct variants_run *run, uint64_t response_ns)
{
    if (run->result->served == run->response_capacity) {
        const uint64_t capacity = run->response_capacity > 0 ? 2 * run->response_capacity : 4096;
        uint64_t *longer = realloc(run->response_ns, capacity * sizeof(*longer));
        if (longer == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %llu response times", (unsigned long long)capacity);
        }
        run->response_ns = longer;
        run->response_capacity = capacity;
    }
    run->response_ns[run->result->served++] = response_ns;
    run->result->response_sum_ns += response_ns;
    return LEAT_OK;
}

/* A batch of these queries, whose fate is known at once. */
static enum leat_status
dispatch(struct variants_run *run, const struct leat_sched_query *queries, uint32_t count, uint32_t variant, uint32_t w)
{
    const struct variants_options *options = run->options;
    const uint64_t predicted_ns = predict(options->table, 0, variant, 0, count);
    const uint32_t accuracy_ppm = options->table->rows[variant].accuracy_ppm;
    struct variants_result *result = run->result;
    struct leat_sched_worker *sched = &run->sched[w];
    struct worker *worker = &run->workers[w];
    uint64_t service_ns = predicted_ns, in_time = 0;

    LEAT_ASSERT(w < options->worker_count && sched->outstanding < sched->depth);
    if (options->noise_share > 0) {
        const double drawn_ns = (double)predicted_ns * (1 + options->noise_share * random_normal(&run->random));
        service_ns = drawn_ns > 1 ? (uint64_t)drawn_ns : 1;
    }
    const uint64_t start_ns = sched->outstanding > 0 ? worker->free_ns : run->now_ns, end_ns = start_ns + service_ns;
    worker->batches[(worker->first + sched->outstanding) % SIMULATE_DEPTH_MAX] =
        (struct batch){.end_ns = end_ns,
                       .predicted_ns = predicted_ns,
                       .run_ns = service_ns,
                       .arrived_ns = queries[0].arrival_ns,
                       .variant = variant,
                       .queries = count,
                       .online = queries[0].deadline_ns != LEAT_NO_DEADLINE};
    leat_instance_begin(&run->instances[w][variant]);
    worker->free_ns = end_ns;
    if (sched->outstanding == 0) {
        worker->ends_ns = run->now_ns + predicted_ns;
        events_push(run->heap, &run->heap_count, (struct event){.at_ns = end_ns, .worker = w});
    } else {
        worker->behind_ns += predicted_ns;
    }
    sched->free_at_ns = worker->ends_ns + worker->behind_ns;
    count_room(run, sched, 1);

    for (uint32_t q = 0; q < count; q++) {
        const enum leat_status status = keep_response(run, end_ns - queries[q].arrival_ns);
        if (status != LEAT_OK) {
            return status;
        }
        in_time += queries[q].deadline_ns != LEAT_NO_DEADLINE && end_ns <= queries[q].deadline_ns;
    }
    run->waiting -= count;
    result->late += count - in_time;
    result->accuracy_sum += in_time * accuracy_ppm;
    result->of_variant[variant].queries += count;
    result->of_variant[variant].in_time += in_time;
    result->of_variant[variant].batches++;
    result->batches++;
    result->batches_of[count]++;
    const uint64_t until_ns = end_ns < options->duration_ns ? end_ns : options->duration_ns;
    result->busy_ns += until_ns > start_ns ? until_ns - start_ns : 0;
    return LEAT_OK;
}

/* The soonest end of a batch. Returns its worker. */
static uint32_t
complete(struct variants_run *run)
{
    const uint32_t w = run->heap[0].worker;
    struct leat_sched_worker *sched = &run->sched[w];
    struct worker *worker = &run->workers[w];
    const struct batch *ended = &worker->batches[worker->first];
    const struct leat_instance_batch batch = {.run_ns = ended->run_ns,
                                              .profiled_ns = ended->predicted_ns,
                                              .response_ns = run->now_ns - ended->arrived_ns,
                                              .items = ended->queries};

    const struct leat_selector *selector = run->options->selector;
    const struct leat_policy *policy = run->options->selector_options.policy;
    if (selector->when_idle && ended->online) {
        leat_reserve_learn(&run->reserve, ended->run_ns, ended->predicted_ns, policy != NULL ? policy->spread_permille : 0);
    }
    if (selector->ended != NULL && ended->online) {
        selector->ended(run->selector_state, ended->variant, ended->queries, ended->run_ns);
    }
    leat_instance_end(&run->instances[w][ended->variant], &worker->shared, run->now_ns, &batch);
    events_pop(run->heap, &run->heap_count);
    worker->first = (worker->first + 1) % SIMULATE_DEPTH_MAX;
    worker->ends_ns = run->now_ns;
    count_room(run, sched, -1);
    if (sched->outstanding > 0) {
        const struct batch *next = &worker->batches[worker->first];
        worker->ends_ns += next->predicted_ns;
        worker->behind_ns -= next->predicted_ns;
        events_push(run->heap, &run->heap_count, (struct event){.at_ns = next->end_ns, .worker = w});
    }
    sched->free_at_ns = worker->ends_ns + worker->behind_ns;
    return w;
}

/* No busy worker is to look free because its batch takes longer than was predicted. */
static void
extend_overruns(struct variants_run *run)
{
    if (run->options->noise_share <= 0 && (run->heap_count == 0 || run->heap[0].at_ns > run->now_ns)) {
        return; /* all are as predicted */
    }
    for (uint32_t w = 0; w < run->options->worker_count; w++) {
        struct worker *worker = &run->workers[w];
        if (run->sched[w].outstanding > 0 && worker->ends_ns <= run->now_ns) {
            worker->ends_ns = run->now_ns + 1 + worker->batches[worker->first].predicted_ns / OVERRUN_SHARE;
            run->sched[w].free_at_ns = worker->ends_ns + worker->behind_ns;
        }
    }
}

/* Once an interval, before the first decision from then on: what lies between does not see them. */
static void
evaluate_instances(struct variants_run *run)
{
    const struct variants_options *options = run->options;

    if (!options->selector->follows_instances || run->now_ns < run->evaluate_ns) {
        return;
    }
    const struct leat_instance_demand demand = {
        .rate_qps = leat_load_rate_qps(&run->load, run->now_ns),
        .waiting_items = run->waiting < UINT32_MAX ? (uint32_t)run->waiting : UINT32_MAX,
        .worker_count = options->worker_count,
    };
    const struct leat_instance_limits *limits =
        options->worker_count > 1 ? &leat_instance_limits_default : &leat_instance_limits_alone;
    run->out_count = 0;
    for (uint32_t w = 0; w < options->worker_count; w++) {
        for (uint32_t v = 0; v < options->table->count; v++) {
            run->out_count += leat_instance_evaluate(&run->instances[w][v], &run->workers[w].shared, limits, &demand) !=
                              LEAT_INSTANCE_ACTIVE;
        }
    }
    run->evaluate_ns = run->now_ns + LEAT_INSTANCE_INTERVAL_NS;
}

/* ---- Decisions --------------------------------------------------------------------------------- */

/* What the rates say of now, or what they have been found to be. */
static uint32_t
rate_qps(struct variants_run *run)
{
    const struct variants_options *options = run->options;
    double qps = options->arrivals.rate_qps;

    if (!options->load_known) {
        return leat_load_rate_qps(&run->load, run->now_ns);
    }
    if (options->arrivals.kind == ARRIVALS_RATES) {
        const struct rates *rates = options->arrivals.rates;
        const double now_s = (double)run->now_ns / SECOND_NS;
        while (now_s >= run->rate_cycle_s + rates->steps[run->rate_step].end_s) {
            if (++run->rate_step == rates->count) {
                run->rate_cycle_s += rates->steps[rates->count - 1].end_s;
                run->rate_step = 0;
            }
        }
        qps = rates->steps[run->rate_step].qps;
    }
    return (uint32_t)ceil(qps);
}

struct outcome {
    uint32_t last, count; /* what has gone: so many, up to this one */
    bool batched;         /* with queries that later pairs may name */
};

/* How many of the shown queries from the `at`-th on have not gone, without a gap. */
static uint32_t
run_length(const struct variants_run *run, const struct outcome *outcome, uint32_t at, uint32_t shown)
{
    const bool *end = outcome->count > 0 ? memchr(&run->gone[at], true, shown - at) : NULL;
    return end != NULL ? (uint32_t)(end - &run->gone[at]) : shown - at;
}

/* What a selector is shown of these queries, on no worker yet. */
static struct leat_select_input
select_input(struct variants_run *run, const struct leat_sched_query *pending, uint32_t pending_count, uint32_t waiting_count)
{
    return (struct leat_select_input){
        .now_ns = run->now_ns,
        .pending = pending,
        .pending_count = pending_count,
        .waiting_count = waiting_count,
        .variants = run->variants,
        .variant_count = run->options->table->count,
        .worker_count = run->options->worker_count,
        .idle_count = run->idle_count,
        .rate_qps = rate_qps(run),
        .rising_qps = run->options->load_known ? rate_qps(run) : leat_load_rising_qps(&run->load, run->now_ns),
        .predict = predict,
        .profiles = run->options->table,
        .reserve_ns = leat_reserve_ns(&run->reserve, run->options->objective_ns),
    };
}

/* Asks the selector what the worker is to make of the query, and hands it over. */
static enum leat_status
carry_out(struct variants_run *run, struct queue *queue, uint32_t shown, struct leat_route_pair pair,
          struct outcome *outcome)
{
    const struct variants_options *options = run->options;
    const struct leat_sched_query *pending = &queue->entries[queue->head + pair.query];
    LEAT_ASSERT(pair.query < shown && pair.worker < options->worker_count && !run->gone[pair.query]);
    if (pending->deadline_ns == LEAT_NO_DEADLINE && run->sched[pair.worker].outstanding > 0) {
        return LEAT_OK; /* what is late goes behind nothing that runs */
    }
    struct leat_select_input input =
        select_input(run, pending, run_length(run, outcome, pair.query, shown), queue_count(queue) - pair.query);
    input.worker = &run->sched[pair.worker];
    input.instances = options->selector->follows_instances ? run->instances[pair.worker] : NULL;
    const bool late = options->selector->when_idle && pending->deadline_ns == LEAT_NO_DEADLINE;
    const struct leat_selection selection =
        late ? leat_batch_of_late(&input) : options->selector->select(run->selector_state, &input);
    const uint32_t first = pair.query + selection.skip;

    run->result->decisions++;
    if (selection.hold) {
        run->held = true;
        return LEAT_OK;
    }
    if (selection.queries == 0) {
        run->gone[pair.query] = true;
        outcome->last = pair.query > outcome->last ? pair.query : outcome->last;
        outcome->count++;
        run->waiting--;
        run->result->rejected++;
        return LEAT_OK;
    }
    LEAT_ASSERT(selection.variant < options->table->count && selection.skip + selection.queries <= input.pending_count);
    const enum leat_status status =
        dispatch(run, pending + selection.skip, selection.queries, selection.variant, pair.worker);
    memset(&run->gone[first], true, selection.queries);
    const uint32_t last = first + selection.queries - 1;
    outcome->last = last > outcome->last ? last : outcome->last;
    outcome->count += selection.queries;
    outcome->batched = selection.queries > 1 || selection.skip > 0;
    return status;
}

/* As in the dispatcher. */
static bool
idle_only(const struct variants_run *run)
{
    return !run->options->router->queues || run->options->selector->when_idle;
}

static bool
has_room(const struct variants_run *run)
{
    return (idle_only(run) ? run->idle_count : run->room_count) > 0;
}

static void
narrow(struct variants_run *run, const struct queue *queue, struct leat_route_input *route,
       struct leat_sched_worker *candidates)
{
    const struct leat_select_input select = select_input(run, route->pending, route->pending_count, queue_count(queue));
    const struct leat_candidates_input input = {
        .selector = run->options->selector,
        .selector_state = run->selector_state,
        .select = &select,
        .workers = route->workers,
        .worker_count = run->options->worker_count,
        .instances = run->instances[0],
        .stride = LEAT_SCHED_VARIANTS_MAX,
        .idle_only = idle_only(run),
    };

    leat_candidates_show(&input, candidates);
    route->workers = candidates;
}

/* As in the dispatcher, too: behind a batch that is not about to end none is made of queries that others could join. */
static void
show_later(const struct variants_run *run, const struct queue *queue, struct leat_route_input *route,
           struct leat_sched_worker *candidates)
{
    if (idle_only(run) || run->options->selector->single || run->room_count == run->idle_count ||
        queue_count(queue) >= run->variants[0].items_max) {
        return;
    }
    for (uint32_t w = 0; w < run->options->worker_count; w++) {
        candidates[w] = run->sched[w];
        if (candidates[w].outstanding > 0 && candidates[w].free_at_ns > run->now_ns + AHEAD_NS) {
            candidates[w].depth = candidates[w].outstanding;
        }
    }
    route->workers = candidates;
}

/* One question to the router about this queue and what follows from its answer. Says whether anything left the queue. */
static enum leat_status
ask(struct variants_run *run, struct queue *queue, bool *ret_any)
{
    const struct variants_options *options = run->options;
    struct leat_route_pair pairs[LEAT_SCHED_WORKERS_MAX];
    struct leat_sched_worker candidates[LEAT_SCHED_WORKERS_MAX];
    struct outcome outcome = {0};
    enum leat_status status = LEAT_OK;

    if (options->late == VARIANTS_DROP_LATE) {
        drop_expired(run, queue);
    }
    if (options->late == VARIANTS_SERVE_LATE_LAST) {
        status = put_last(run, queue);
        queue = queue_count(queue) > 0 || run->idle_count == 0 ? queue : &run->late[queue - run->queues];
    }
    if (queue->head == queue->tail || !has_room(run) || status != LEAT_OK) {
        return status;
    }
    extend_overruns(run);
    const uint32_t shown = shown_count(queue);
    struct leat_route_input input = {
        .now_ns = run->now_ns,
        .pending = &queue->entries[queue->head],
        .pending_count = options->router->deals ? 1 : shown, /* the rest is the same worker's */
        .workers = run->sched,
        .worker_count = options->worker_count,
        .class_count = 1,
        .items_max = run->variants[0].items_max,
        .predict = predict,
        .mean = predict,
        .profiles = options->table,
    };
    show_later(run, queue, &input, candidates);
    if (run->out_count > 0 && options->router->narrowed && options->selector->rank_worker != NULL) {
        narrow(run, queue, &input, candidates);
    }
    const uint32_t count = options->router->route(run->router_state, &input, pairs, options->worker_count);
    for (uint32_t i = 0; i < count && !outcome.batched && status == LEAT_OK; i++) {
        status = carry_out(run, queue, shown, pairs[i], &outcome);
    }
    if (outcome.count > 0) {
        remove_gone(run, queue, outcome.last, outcome.count);
        *ret_any = true;
    }
    return status;
}

/* Questions until nothing follows. What is dealt to other workers is as it was, unless a selector holds queries back. */
static enum leat_status
decide(struct variants_run *run, struct queue *queue)
{
    const struct variants_options *options = run->options;
    enum leat_status status = LEAT_OK;
    bool any;

    do {
        any = false;
        if (!options->router->deals || !run->held) {
            status = ask(run, queue, &any);
            continue;
        }
        for (uint32_t w = 0; w < options->worker_count && status == LEAT_OK; w++) {
            status = ask(run, &run->queues[w], &any);
        }
    } while (any && status == LEAT_OK);
    return status;
}

/* ---- A run ------------------------------------------------------------------------------------- */

static void
draw_arrival(struct variants_run *run)
{
    const double next_s = arrivals_next(&run->arrivals);
    const double next_ns = next_s * SECOND_NS;
    run->next_ns = next_s >= 0 && next_ns < 0x1p63 ? (uint64_t)next_ns : UINT64_MAX;
}

/* Returns the queue that it joined. */
static enum leat_status
arrive(struct variants_run *run, struct queue **ret_queue)
{
    const struct variants_options *options = run->options;
    const struct leat_sched_query query = {
        .arrival_ns = run->now_ns,
        .deadline_ns = run->now_ns + options->objective_ns,
        .items = 1,
        .ordinal = (uint32_t)run->result->arrived,
    };
    struct queue *queue = &run->queues[options->router->deals ? query.ordinal % options->worker_count : 0];

    leat_load_arrive(&run->load, run->now_ns, 1);
    run->result->arrived++;
    run->waiting++;
    draw_arrival(run);
    *ret_queue = queue;
    return queue_push(queue, &query);
}

/* Event by event. Unless a selector holds back, what was dealt waits for busy workers only. */
static enum leat_status
go(struct variants_run *run)
{
    const struct variants_options *options = run->options;
    const bool deals = options->router->deals;
    uint64_t look_ns = UINT64_MAX;
    enum leat_status status = LEAT_OK;

    draw_arrival(run);
    while (status == LEAT_OK) {
        const uint64_t end_ns = run->heap_count > 0 ? run->heap[0].at_ns : UINT64_MAX;
        struct queue *queue = &run->queues[0];
        uint64_t now_ns = run->next_ns < end_ns ? run->next_ns : end_ns;
        now_ns = look_ns < now_ns ? look_ns : now_ns;
        if (now_ns >= options->duration_ns) {
            break;
        }
        run->now_ns = now_ns;
        if (run->next_ns == now_ns) {
            status = arrive(run, &queue);
        } else if (end_ns == now_ns) {
            const uint32_t w = complete(run);
            queue = &run->queues[deals ? w : 0];
        }
        if (options->abort_waiting > 0 && run->waiting >= options->abort_waiting) {
            run->result->aborted = true;
            break;
        }
        evaluate_instances(run);
        status = status == LEAT_OK ? decide(run, queue) : status;
        look_ns = (!deals || run->held) && run->waiting > 0 && has_room(run) ? now_ns + LOOK_AGAIN_NS : UINT64_MAX;
    }
    return status;
}

/* The value that would be at `rank` if they were sorted; values are moved. N. Wirth's form of Hoare's selection. */
static uint64_t
select_rank(uint64_t *values, uint64_t count, uint64_t rank)
{
    int64_t low = 0, high = (int64_t)count - 1;
    const int64_t at = (int64_t)rank;

    while (low < high) {
        const uint64_t pivot = values[at];
        int64_t left = low, right = high;
        while (left <= right) {
            while (values[left] < pivot) {
                left++;
            }
            while (values[right] > pivot) {
                right--;
            }
            if (left <= right) {
                const uint64_t value = values[left];
                values[left++] = values[right];
                values[right--] = value;
            }
        }
        low = right < at ? left : low;
        high = at < left ? right : high;
    }
    return values[rank];
}

/* What is left when the time is over. */
static void
finish(struct variants_run *run)
{
    const struct variants_options *options = run->options;
    struct variants_result *result = run->result;

    result->end_ns = result->aborted ? run->now_ns : options->duration_ns;
    run->now_ns = result->end_ns;
    for (uint32_t i = 0; i < (options->router->deals ? options->worker_count : 1); i++) {
        struct queue *queue = &run->queues[i];
        if (options->late == VARIANTS_DROP_LATE) {
            drop_expired(run, queue);
        }
        for (uint32_t q = queue->head; q < queue->tail; q++) {
            const bool last = options->late == VARIANTS_SERVE_LATE_LAST;
            result->waiting_late += queue->entries[q].deadline_ns <= run->now_ns ||
                                    (last && queue->entries[q].deadline_ns < run->now_ns + run->least_ns);
        }
        result->waiting_late += queue_count(&run->late[i]);
    }
    result->waiting = run->waiting;
    if (result->served > 0) {
        result->p50_ns = select_rank(run->response_ns, result->served, (result->served - 1) / 2);
        result->p99_ns = select_rank(run->response_ns, result->served, (result->served * 99 + 99) / 100 - 1);
        result->max_ns = select_rank(run->response_ns, result->served, result->served - 1);
    }
}

static enum leat_status
check(const struct variants_options *options)
{
    const struct arrivals *arrivals = &options->arrivals;
    const bool unknown = options->load_known && arrivals->kind == ARRIVALS_FILE;

    if (options->worker_count < 1 || options->worker_count > LEAT_SCHED_WORKERS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%u workers: there can be 1 to %u", options->worker_count,
                         LEAT_SCHED_WORKERS_MAX);
    }
    if (options->worker_depth > SIMULATE_DEPTH_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a worker that holds %u batches: it can hold %u", options->worker_depth,
                         SIMULATE_DEPTH_MAX);
    }
    if (options->batch_max > VARIANTS_LATENCY_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "batches of %u: they can have %u queries", options->batch_max,
                         VARIANTS_LATENCY_MAX);
    }
    if (options->objective_ns == 0 || options->objective_ns > INT64_MAX || options->duration_ns > INT64_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "an objective of 0, or that or a duration beyond 292 years");
    }
    if (unknown) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "the true rate of arrivals from a file is not known");
    }
    return LEAT_OK;
}

/* A policy's state in memory of its own, started. */
static enum leat_status
make_states(struct variants_run *run)
{
    const struct variants_options *options = run->options;
    struct leat_selector_options selector_options = options->selector_options;
    enum leat_status status = LEAT_OK;

    free(run->router_state);
    free(run->selector_state);
    run->router_state = calloc(1, options->router->state_bytes + 1);
    run->selector_state = calloc(1, options->selector->state_bytes + 1);
    if (run->router_state == NULL || run->selector_state == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the state of router '%s' or selector '%s'", options->router->name,
                         options->selector->name);
    }
    if (options->router->init != NULL) {
        status = options->router->init(run->router_state, &options->router_options);
    }
    selector_options.objective_ns = options->objective_ns;
    selector_options.worker_count = options->worker_count;
    selector_options.variant_names = run->names;
    selector_options.variant_count = options->table->count;
    if (status == LEAT_OK && options->selector->init != NULL) {
        status = options->selector->init(run->selector_state, &selector_options);
    }
    return status;
}

static enum leat_status
prepare(struct variants_run *run)
{
    const struct variants_options *options = run->options;
    const uint32_t held = options->worker_depth > 0 ? options->worker_depth : 1;

    for (uint32_t v = 0; v < options->table->count; v++) {
        run->variants[v] = (struct leat_sched_variant){
            .accuracy_ppm = options->table->rows[v].accuracy_ppm,
            .items_max = options->batch_max > 0 ? options->batch_max : VARIANTS_BATCH_MAX,
            .ready = true,
        };
        run->names[v] = options->table->rows[v].name;
        const uint64_t single_ns = options->table->rows[v].latency_ns[0];
        run->least_ns = v == 0 || single_ns < run->least_ns ? single_ns : run->least_ns;
    }
    for (uint32_t w = 0; w < options->worker_count; w++) {
        run->sched[w] = (struct leat_sched_worker){.depth = options->router->queues ? held : 1};
        run->workers[w].free_ns = run->workers[w].ends_ns = run->workers[w].behind_ns = 0;
        run->workers[w].first = 0;
        run->workers[w].shared = (struct leat_instance_worker){0};
        for (uint32_t v = 0; v < options->table->count; v++) {
            run->instances[w][v] = (struct leat_instance){0};
            leat_instance_turn(&run->instances[w][v], NULL, LEAT_INSTANCE_ACTIVE);
        }
        run->queues[w].head = run->queues[w].tail = 0;
        run->late[w].head = run->late[w].tail = 0;
    }
    run->idle_count = run->room_count = options->worker_count;
    run->heap_count = 0;
    run->waiting = 0;
    run->held = false;
    run->out_count = 0;
    run->now_ns = 0;
    run->evaluate_ns = 0;
    run->rate_cycle_s = 0;
    run->rate_step = 0;
    run->random = options->seed ^ NOISE_SEED;
    run->arrivals = options->arrivals;
    arrivals_start(&run->arrivals, options->seed);
    leat_load_init(&run->load, options->load_window_ns, 0);
    return make_states(run);
}

enum leat_status
variants_simulate(struct variants_run *run, const struct variants_options *options, struct variants_result *ret_result)
{
    enum leat_status status = check(options);

    if (status != LEAT_OK) {
        return status;
    }
    memset(ret_result, 0, sizeof(*ret_result));
    run->options = options;
    run->result = ret_result;
    status = prepare(run);
    status = status == LEAT_OK ? go(run) : status;
    if (status == LEAT_OK) {
        finish(run);
    }
    return status;
}

enum leat_status
variants_run_create(struct variants_run **ret_run)
{
    struct variants_run *run = calloc(1, sizeof(*run));
    if (run == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a simulation");
    }
    *ret_run = run;
    return LEAT_OK;
}

void
variants_run_destroy(struct variants_run *run)
{
    if (run == NULL) {
        return;
    }
    for (uint32_t i = 0; i < LEAT_SCHED_WORKERS_MAX; i++) {
        free(run->queues[i].entries);
        free(run->late[i].entries);
    }
    free(run->response_ns);
    free(run->router_state);
    free(run->selector_state);
    free(run);
}

/* ---- Results ----------------------------------------------------------------------------------- */

double
variants_accuracy(const struct variants_table *table, const struct variants_result *result)
{
    const uint64_t in_time = result->served - result->late;
    uint32_t least_ppm = UINT32_MAX;

    if (!result->aborted && in_time > 0) {
        return (double)result->accuracy_sum / (double)in_time / 1e6;
    }
    for (uint32_t v = 0; v < table->count; v++) {
        least_ppm = table->rows[v].accuracy_ppm < least_ppm ? table->rows[v].accuracy_ppm : least_ppm;
    }
    return least_ppm / 1e6;
}

double
variants_violation(const struct variants_result *result)
{
    const uint64_t unserved = result->expired + result->rejected + result->waiting_late;
    const uint64_t all = result->served + unserved;

    return result->aborted ? 1 : all > 0 ? (double)(result->late + unserved) / (double)all : 0;
}

double
variants_utilisation(const struct variants_options *options, const struct variants_result *result)
{
    const double available_ns = (double)result->end_ns * options->worker_count;
    const double share = available_ns > 0 ? (double)result->busy_ns / available_ns : 0;

    return share < 1 ? share : 1;
}
