/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/dispatcher_private.h"

#include "sched/batch.h"
#include "sched/candidates.h"
#include "sched/route_caps.h"
#include "sched/select.h"

enum {
    AHEAD_NS = LOOK_AGAIN_NS, /* so long before a worker is free it is given a batch that is better made late */
    BESIDE_SHARE = 8,        /* a batch that is not online is to take at most this part of the tightest objective; an offline
                                one, of the briefest query, too */
    YIELDING_SHARE = 2,      /* the same, of one that gives way in short steps */
    SHORT_PERMILLE = 125,    /* of a batch: a step that takes no more is short */
};

void
leat_dispatcher_note_room(struct leat_dispatcher *dispatcher, uint32_t worker_index)
{
    const struct leat_sched_worker *worker = &dispatcher->sched_workers[worker_index];

    const bool ends = dispatcher->records[worker_index].yielding.ends;

    leat_worker_set_put(&dispatcher->idle, worker_index, worker->outstanding == 0 && worker->depth > 0 && !ends);
    leat_worker_set_put(&dispatcher->room, worker_index, worker->outstanding < worker->depth && !ends);
    dispatcher->changes++;
}

void
leat_dispatcher_end_yielding(struct leat_dispatcher *dispatcher, uint32_t worker_index)
{
    struct worker_record *record = &dispatcher->records[worker_index];

    if (leat_worker_set_has(&dispatcher->yielding, worker_index) && !record->yielding.ends) {
        record->yielding.ends = true;
        leat_dispatcher_note_room(dispatcher, worker_index);
    }
}

void
leat_dispatcher_count_batch(struct leat_dispatcher *dispatcher, uint32_t worker_index, int by)
{
    dispatcher->sched_workers[worker_index].outstanding += (uint32_t)by;
    leat_dispatcher_note_room(dispatcher, worker_index);
}

/* No busy worker is to look free because its batch takes longer than was predicted. */
static void
extend_overruns(struct leat_dispatcher *dispatcher)
{
    for (uint32_t w = 0; w < dispatcher->options.worker_count; w++) {
        struct worker_record *record = &dispatcher->records[w];
        struct leat_sched_worker *sched = &dispatcher->sched_workers[w];
        if (sched->outstanding > 0 && record->ends_ns <= dispatcher->now_ns) {
            record->ends_ns = dispatcher->now_ns + 1 + oldest_batch(dispatcher, w)->predicted_ns / OVERRUN_SHARE;
            sched->free_at_ns = record->ends_ns + record->behind_ns;
        }
    }
}

void
leat_dispatcher_predict_again(struct leat_dispatcher *dispatcher, uint32_t worker_index)
{
    struct worker_record *record = &dispatcher->records[worker_index];
    struct leat_sched_worker *sched = &dispatcher->sched_workers[worker_index];

    record->behind_ns = 0;
    for (uint32_t behind = 1; behind < sched->outstanding; behind++) { /* the oldest goes on as it began */
        struct batch_record *batch =
            &record->batches[(record->batch_tail - sched->outstanding + behind) & (LEAT_WORKER_BATCHES - 1)];
        const struct leat_application *app = dispatcher->applications[batch->application];
        batch->class = record->class;
        batch->predicted_ns = predict_mean(app, app->id, batch->variant, batch->class, batch->items);
        record->behind_ns += batch->predicted_ns;
    }
    sched->free_at_ns = sched->outstanding > 0 ? record->ends_ns + record->behind_ns : dispatcher->now_ns;
}

/* What a selector is shown: the queries of the waiting list at these places. A batch may hold fewer. */
struct offer {
    uint32_t count;
    const uint16_t *at; /* [count] */
};

/* May the selected queries be a batch that gives way? */
static bool
may_yield(const struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank,
          const struct offer *offer, struct leat_selection selection)
{
    const struct leat_waiting *waiting = &app->waiting[rank];

    if (rank != LEAT_RANK_OFFLINE || !app->variants[selection.variant]->backend->yields ||
        dispatcher->options.worker_depth == LEAT_WORKER_BATCHES) { /* there is one more */
        return false;
    }
    for (uint32_t i = 0; i < selection.queries; i++) { /* their answers are taken in the order of reports */
        if (waiting->entries[waiting->head + offer->at[selection.skip + i]].session == LEAT_PIPELINE_SESSION) {
            return false;
        }
    }
    return true;
}

/* Whoever comes waits for a step at the worst. How long these are is known once batches have ended. */
static bool
has_short_steps(const struct leat_application *app, uint32_t variant)
{
    return app->step_permille[variant] > 0 && app->step_permille[variant] <= SHORT_PERMILLE;
}

void
leat_dispatcher_note_yielding(struct leat_dispatcher *dispatcher, uint32_t worker_index, bool yielding)
{
    leat_worker_set_put(&dispatcher->yielding, worker_index, yielding);
    dispatcher->changes++;
}

/* It was handed over, and is the last of the worker's. */
static void
note_handed(struct leat_dispatcher *dispatcher, struct leat_application *app, uint32_t worker_index, uint64_t predicted_ns)
{
    struct worker_record *record = &dispatcher->records[worker_index];
    struct leat_sched_worker *sched = &dispatcher->sched_workers[worker_index];

    if (sched->outstanding == 0) {
        record->ends_ns = dispatcher->now_ns + predicted_ns;
    } else {
        record->behind_ns += predicted_ns;
    }
    sched->free_at_ns = record->ends_ns + record->behind_ns;
    leat_dispatcher_count_batch(dispatcher, worker_index, 1);
    app->running_batches++;
}

/* Gives the worker a batch of those offered queries that were selected, and marks them. */
static void
hand_over(struct leat_dispatcher *dispatcher, struct leat_application *app, const struct leat_waiting *waiting,
          const struct offer *offer, uint32_t worker_index, struct leat_selection selection, bool gives_way)
{
    struct leat_worker *worker = dispatcher->options.workers[worker_index];
    struct worker_record *record = &dispatcher->records[worker_index];
    const bool at_once = worker->dispatcher.batches == 0;
    const struct leat_query_entry *entries = &waiting->entries[waiting->head];
    const uint16_t *at = offer->at + selection.skip;
    const uint32_t decided = selection.variant;
    uint32_t items = 0, length = 0;

    for (uint32_t i = 0; i < selection.queries; i++) {
        length = entries[at[i]].length > length ? entries[at[i]].length : length;
    }
    selection.variant = leat_application_shorten(app, selection.variant, length);
    for (uint32_t i = 0; i < selection.queries; i++) {
        struct leat_work_cell *cell = leat_worker_cell(worker, i);
        const struct leat_query_entry *entry = &entries[at[i]];
        cell->submit_ns = entry->submit_ns;
        cell->deadline_ns = leat_dispatcher_give_up_at(dispatcher, app, entry);
        memcpy(cell->units, entry->units, sizeof(cell->units));
        cell->items_less_1 = entry->items_less_1;
        cell->ticket_low = entry->ticket_low;
        cell->session = entry->session & 0x3fff; /* below LEAT_SESSIONS_MAX */
        cell->offline = entry->offline;
        cell->gives_way = gives_way;
        cell->slot = entry->slot;
        cell->variant = app->variants[selection.variant]->index;
        cell->application_variant = (uint8_t)selection.variant;
        cell->length = entry->length;
        const uint64_t position = worker->dispatcher.work_position + i;
        record->queries[position & (LEAT_WORKER_QUEUE - 1)].session = entry->session;
        record->queries[position & (LEAT_WORKER_QUEUE - 1)].slot = entry->slot;
        record->yielding.sessions[i] = gives_way ? entry->session : record->yielding.sessions[i];
        items += entry->items_less_1 + 1u;
    }
    const uint64_t predicted_ns = predict_mean(app, app->id, selection.variant, record->class, items);
    struct batch_record *batch =
        gives_way ? &record->yielding.batch : &record->batches[record->batch_tail & (LEAT_WORKER_BATCHES - 1)];
    *batch = (struct batch_record){
        .predicted_ns = predicted_ns,
        .handed_ns = dispatcher->now_ns,
        .arrived_ns = entries[at[0]].offline ? dispatcher->now_ns : waiting->queries[waiting->head + at[0]].arrival_ns,
        .ready_ns = at_once ? leat_clock_now(&dispatcher->options.tables->clock) : 0,
        .application = app->id,
        .variant = (uint8_t)selection.variant,
        .decided = (uint8_t)decided,
        .online = waiting == &app->waiting[LEAT_RANK_ONLINE],
        .class = record->class,
        .items = items,
    };
    if (LEAT_LIKELY(app->instances.all != NULL)) {
        leat_instance_begin(&leat_instances_of(&app->instances, worker_index)[selection.variant]);
    }
    batch->slept = leat_worker_submit(worker, selection.queries);
    if (LEAT_UNLIKELY(gives_way)) {
        record->queries_head += selection.queries;
        record->yielding.passed_ns = 0;
        leat_dispatcher_note_yielding(dispatcher, worker_index, true);
    } else {
        record->batch_tail++;
        note_handed(dispatcher, app, worker_index, predicted_ns);
    }
    app->running += selection.queries;
    bump(&app->counters.batches, 1);
    /* Not among the cells, whose lines come from the worker's cache: other stores in between make that slower. */
    for (uint32_t i = 0; i < selection.queries; i++) {
        leave_slot(dispatcher, &entries[at[i]]);
        dispatcher->marks[at[i] / 64] |= UINT64_C(1) << at[i] % 64;
    }
}

/* How many queries from the `at`-th on, at most `count`, have not left the list. */
static uint32_t
unmarked_run(const uint64_t *marks, uint32_t at, uint32_t count)
{
    uint32_t run = 0;
    while (run < count) {
        const uint32_t q = at + run;
        const uint64_t word = marks[q / 64] >> q % 64;
        if (word != 0) {
            run += (uint32_t)__builtin_ctzll(word);
            break;
        }
        run += 64 - q % 64;
    }
    return run < count ? run : count;
}

/* The queries from the `at`-th on, as far as none has left. */
static struct offer
offer_run(const struct leat_dispatcher *dispatcher, uint32_t at, uint32_t count)
{
    return (struct offer){.count = unmarked_run(dispatcher->marks, at, count), .at = dispatcher->places + at};
}

/* Do the same plans hold the sequences of both? */
static bool
alike(const struct leat_application *app, const struct leat_sched_query *a, const struct leat_sched_query *b)
{
    return app->target.length_count <= 1 || leat_application_bucket(app, a->length) == leat_application_bucket(app, b->length);
}

/* The queries from the `at`-th on that the same plans hold; those of other lengths between them are passed over. */
static struct offer
offer_alike(struct leat_dispatcher *dispatcher, const struct leat_application *app, const struct leat_route_input *route, uint32_t at)
{
    const uint32_t end = at + unmarked_run(dispatcher->marks, at, route->pending_count - at);
    uint32_t count = 0;

    for (uint32_t q = at; q < end && count < LEAT_BATCH_QUERIES; q++) {
        if (alike(app, &route->pending[at], &route->pending[q])) {
            dispatcher->dealt_at[count] = (uint16_t)q;
            dispatcher->dealt[count++] = route->pending[q];
        }
    }
    return (struct offer){.count = count, .at = dispatcher->dealt_at};
}

/* Of the queries from the pair's on the worker's own; returns how many it has, offered or not. */
static uint32_t
offer_dealt(struct leat_dispatcher *dispatcher, const struct leat_application *app, const struct leat_route_input *route,
            struct leat_route_pair pair, struct offer *ret_offer)
{
    uint32_t own = 0, count = 0;

    for (uint32_t q = pair.query; q < route->pending_count; q++) {
        if (route->pending[q].ordinal % route->worker_count != pair.worker) {
            continue;
        }
        own++;
        if (count < LEAT_BATCH_QUERIES && alike(app, &route->pending[pair.query], &route->pending[q])) {
            dispatcher->dealt_at[count] = (uint16_t)q;
            dispatcher->dealt[count++] = route->pending[q];
        }
    }
    *ret_offer = (struct offer){.count = count, .at = dispatcher->dealt_at};
    return own;
}

enum pair_fate {
    PAIR_SKIPPED, /* the worker's ring is full, or the selector waits for more */
    PAIR_DONE,
    PAIR_BATCHED, /* with queries behind the routed one, which later pairs may name */
};

/* That the application may count on. */
static uint32_t
own_workers(const struct leat_application *app, enum leat_rank rank)
{
    const struct leat_serving *serving = &app->serving[rank];
    const uint32_t own = atomic_load_explicit(&app->worker_count, memory_order_relaxed);
    return own > 0 && own < serving->count && !serving->own ? own : serving->count;
}

/* Of the workers that serve it, those that may run what is offline: all, where none is left or its router has given each its own. */
static struct leat_worker_set
not_held_back(const struct leat_dispatcher *dispatcher, const struct leat_application *app)
{
    const struct leat_worker_set *serving = &app->serving[LEAT_RANK_OFFLINE].set;
    const struct leat_worker_set left = leat_worker_set_without(serving, &dispatcher->held_back);
    return leat_worker_set_is_empty(&left) || app->router->deals ? *serving : left;
}

/* Of the workers that serve it; of what is offline, those that it is not held back from and that have no other batch that gives way. */
static struct leat_worker_set
serving_workers(const struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank)
{
    if (rank != LEAT_RANK_OFFLINE) {
        return app->serving[rank].set;
    }
    const struct leat_worker_set allowed = not_held_back(dispatcher, app);
    return leat_worker_set_without(&allowed, &dispatcher->yielding);
}

/* Of those, those that nothing of an earlier rank waits for. */
static struct leat_worker_set
open_workers(const struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank)
{
    const struct leat_worker_set serving = serving_workers(dispatcher, app, rank);
    return leat_worker_set_without(&serving, &dispatcher->spoken_for);
}

/* Of those. Who has a share finds as many idle as run nothing of its own, if there are so many, and one for what it decides now. */
static uint32_t
own_idle(const struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank)
{
    const struct leat_worker_set open = open_workers(dispatcher, app, rank);
    const uint32_t own = own_workers(app, rank), idle = leat_worker_set_count_common(&dispatcher->idle, &open);
    const uint32_t left = own > app->running_batches ? own - app->running_batches : 1;
    return own < app->serving[rank].count && left < idle ? left : idle;
}

/* What a selector is shown of these queries, on no worker yet. */
static struct leat_select_input
select_input(const struct leat_dispatcher *dispatcher, struct leat_application *app, enum leat_rank rank,
             const struct leat_sched_query *pending, uint32_t pending_count, uint32_t waiting_count)
{
    return (struct leat_select_input){
        .now_ns = dispatcher->now_ns,
        .pending = pending,
        .pending_count = pending_count,
        .waiting_count = waiting_count,
        .variants = app->sched_variants,
        .variant_count = app->variant_count,
        .worker_count = own_workers(app, rank),
        .idle_count = own_idle(dispatcher, app, rank),
        .rate_qps = leat_load_rate_qps(&app->load, dispatcher->now_ns),
        .rising_qps = leat_load_rising_qps(&app->load, dispatcher->now_ns),
        .application = app->id,
        .predict = predict,
        .cost = cost_nano,
        .profiles = app,
        .reserve_ns = atomic_load_explicit(&app->reserve_ns, memory_order_relaxed),
    };
}

/* Asks the selector what the worker, known by its place among those that serve the rank, is to make of the query; hands it over. */
static enum pair_fate
carry_out(struct leat_dispatcher *dispatcher, struct leat_application *app, enum leat_rank rank,
          const struct leat_route_input *route, struct leat_route_pair pair)
{
    const struct leat_waiting *list = &app->waiting[rank];
    LEAT_ASSERT(pair.query < route->pending_count && pair.worker < route->worker_count);
    LEAT_ASSERT((dispatcher->marks[pair.query / 64] >> pair.query % 64 & 1) == 0);
    const uint32_t worker_index = app->serving[rank].at[pair.worker];
    const struct leat_sched_worker *sched = &dispatcher->sched_workers[worker_index];
    LEAT_ASSERT(sched->outstanding < sched->depth);
    const uint32_t room = LEAT_WORKER_QUEUE - dispatcher->options.workers[worker_index]->dispatcher.queries;
    const uint32_t most = room < LEAT_BATCH_QUERIES ? room : LEAT_BATCH_QUERIES;
    const uint32_t behind = route->pending_count - pair.query;
    uint32_t waiting = leat_waiting_count(list) - pair.query;
    const bool chosen = app->router->deals || app->target.length_count > 1; /* which are shown to the selector: not all in a row */
    struct offer offer;
    if (LEAT_LIKELY(!chosen)) {
        offer = offer_run(dispatcher, pair.query, behind);
    } else if (app->router->deals) {
        waiting = offer_dealt(dispatcher, app, route, pair, &offer);
    } else {
        offer = offer_alike(dispatcher, app, route, pair.query);
    }
    if (most == 0 || (rank > LEAT_RANK_ONLINE && sched->outstanding > 0)) {
        return PAIR_SKIPPED;
    }
    struct leat_select_input select = select_input(
        dispatcher, app, rank, chosen ? dispatcher->dealt : route->pending + pair.query, offer.count, waiting);
    select.worker = sched;
    select.instances = app->instances.all != NULL ? leat_instances_of(&app->instances, worker_index) : NULL;
    struct leat_selection selection = rank == LEAT_RANK_LATE && app->selector->when_idle
                                          ? leat_batch_of_late(&select)
                                          : app->selector->select(app->selector_state, &select);
    if (selection.hold) {
        return PAIR_SKIPPED;
    }
    if (selection.queries == 0) {
        dispatcher->marks[pair.query / 64] |= UINT64_C(1) << pair.query % 64;
        /* Its variant has gone since it was admitted. */
        enum leat_reason reason = LEAT_REASON_ACCURACY;
        struct closest closest = nothing_close;
        (void)leat_dispatcher_fastest_for(dispatcher, app, rank, &route->pending[pair.query], &reason, &closest);
        bump(&app->counters.rejected, 1);
        leat_dispatcher_finish_close_to(dispatcher, &list->entries[list->head + pair.query], LEAT_OUTCOME_REJECTED, reason, closest);
        return PAIR_DONE;
    }
    LEAT_ASSERT(selection.variant < app->variant_count && selection.skip + selection.queries <= offer.count);
    selection.queries = selection.queries < most ? selection.queries : most;
    const bool gives_way = may_yield(dispatcher, app, rank, &offer, selection);
    if (rank > LEAT_RANK_ONLINE) { /* whoever comes next is to wait no longer for it */
        const uint64_t bound_ns = rank == LEAT_RANK_OFFLINE && dispatcher->briefest_ns < dispatcher->tightest_ns
                                      ? dispatcher->briefest_ns
                                      : dispatcher->tightest_ns;
        const bool gives_way_soon = gives_way && has_short_steps(app, selection.variant);
        selection.queries = leat_batch_within(&select, selection, bound_ns / (gives_way_soon ? YIELDING_SHARE : BESIDE_SHARE));
    }
    hand_over(dispatcher, app, list, &offer, worker_index, selection, gives_way);
    const bool alone = selection.queries == 1 && selection.skip == 0;
    return alone || app->router->deals ? PAIR_DONE : PAIR_BATCHED; /* nobody else's pair names what was dealt to this worker */
}

static bool
wants_idle(const struct leat_application *app)
{
    return !app->router->queues || app->selector->when_idle;
}

/*
 * Nobody's work goes behind a batch while others wait for its end, and what is not online never does: whoever comes next would
 * wait for it too. Others are those that have a worker in common with it.
 */
static bool
idle_only(const struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank)
{
    return rank > LEAT_RANK_ONLINE || wants_idle(app) || leat_worker_set_meet(&dispatcher->idle_wanted, &app->serving[rank].set);
}

/* Is there a worker among these that the router might choose? */
static bool
has_room(const struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank,
         const struct leat_worker_set *among)
{
    return leat_worker_set_meet(idle_only(dispatcher, app, rank) ? &dispatcher->idle : &dispatcher->room, among);
}

/* The classes of which one that is open to it runs nothing at all. */
static uint32_t
idle_classes(const struct leat_dispatcher *dispatcher, const struct leat_serving *serving)
{
    uint32_t classes = 0;

    for (uint32_t i = 0; i < serving->count; i++) {
        const uint32_t w = serving->at[i];
        const bool idle = leat_worker_set_has(&dispatcher->idle, w) && !leat_worker_set_has(&dispatcher->yielding, w) &&
                          !leat_worker_set_has(&dispatcher->spoken_for, w);
        classes |= (uint32_t)idle << dispatcher->sched_workers[w].worker_class;
    }
    return classes;
}

/* Is the oldest query that waits one of a run? */
static bool
is_of_run(const struct leat_waiting *waiting)
{
    return leat_waiting_count(waiting) > 0 && LEAT_UNLIKELY(waiting->entries[waiting->head].session == LEAT_PIPELINE_SESSION);
}

/*
 * Is a batch of what waits better made later than behind another? One that more could join would be small, and its queries would wait
 * for two batches. One of runs would go before later stages of those that the batch before it brings further, which are to go first.
 */
static bool
is_better_later(const struct leat_application *app, enum leat_rank rank)
{
    const struct leat_waiting *waiting = &app->waiting[rank];
    const bool full = waiting->items >= app->variants[app->by_time[0]]->items_max ||
                      leat_waiting_count(waiting) >= LEAT_BATCH_QUERIES;

    return !wants_idle(app) && !app->selector->single && (!full || is_of_run(waiting));
}

/*
 * For that, behind what the worker has. Who ends within the time that it takes to hear of it and to answer is kept busy all the same.
 * Others may not go behind it sooner either where somebody is held back: they would always be there first, and no worker ever idle.
 */
static bool
is_too_early(const struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank, uint32_t w)
{
    const struct leat_sched_worker *worker = &dispatcher->sched_workers[w];
    const bool better_later = is_better_later(app, rank), of_run = better_later && is_of_run(&app->waiting[rank]);

    return worker->outstanding > 0 &&
           (((better_later || leat_worker_set_has(&dispatcher->held, w)) &&
             worker->free_at_ns > dispatcher->now_ns + AHEAD_NS) ||
            ((of_run || leat_worker_set_has(&dispatcher->run_waits, w)) && oldest_batch(dispatcher, w)->predicted_ns > AHEAD_NS));
}

/*
 * What its router is shown of workers: those that serve it, without depth where something of an earlier rank waits for
 * them, where it is held back, or where a batch would have to give way though another worker of the class is idle; and without
 * room where it is too early for a batch.
 */
static const struct leat_sched_worker *
show_workers(struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank)
{
    const struct leat_serving *serving = &app->serving[rank];
    const struct leat_worker_set behind = leat_worker_set_without(&dispatcher->room, &dispatcher->idle);
    const bool may_be_early = !leat_worker_set_is_empty(&behind) &&
                              (is_better_later(app, rank) || leat_worker_set_meet(&dispatcher->held, &serving->set) ||
                               leat_worker_set_meet(&dispatcher->run_waits, &serving->set));

    if (LEAT_LIKELY(!may_be_early && serving->count == dispatcher->options.worker_count &&
                    !leat_worker_set_meet(&serving->set, &dispatcher->spoken_for) &&
                    (rank != LEAT_RANK_OFFLINE || leat_worker_set_is_empty(&dispatcher->held_back)) &&
                    leat_worker_set_is_empty(&dispatcher->yielding))) {
        return dispatcher->sched_workers;
    }
    const uint32_t classes = rank == LEAT_RANK_OFFLINE ? UINT32_MAX
                             : app->router->deals      ? 0
                                                       : idle_classes(dispatcher, serving);
    const struct leat_worker_set allowed = rank == LEAT_RANK_OFFLINE ? not_held_back(dispatcher, app) : serving->set;
    for (uint32_t i = 0; i < serving->count; i++) {
        const uint32_t w = serving->at[i];
        dispatcher->shown[i] = dispatcher->sched_workers[w];
        if (dispatcher->records[w].yielding.ends) {
            dispatcher->shown[i].free_at_ns = leat_dispatcher_yielding_end(dispatcher, &dispatcher->records[w]);
            dispatcher->shown[i].outstanding = dispatcher->shown[i].depth; /* as busy as can be */
        }
        if (may_be_early && is_too_early(dispatcher, app, rank, w)) {
            dispatcher->shown[i].depth = dispatcher->shown[i].outstanding;
        }
        if (leat_worker_set_has(&dispatcher->spoken_for, w) || !leat_worker_set_has(&allowed, w) ||
            (leat_worker_set_has(&dispatcher->yielding, w) && (classes >> dispatcher->shown[i].worker_class & 1) != 0)) {
            dispatcher->shown[i].depth = 0;
        }
    }
    return dispatcher->shown;
}

struct leat_route_input
leat_dispatcher_route_input(struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank)
{
    const struct leat_waiting *list = &app->waiting[rank];
    const uint32_t waiting = leat_waiting_count(list);
    return (struct leat_route_input){
        .now_ns = dispatcher->now_ns,
        .pending = &list->queries[list->head],
        .pending_count = waiting < LEAT_SCHED_PENDING_MAX ? waiting : LEAT_SCHED_PENDING_MAX,
        .workers = show_workers(dispatcher, app, rank),
        .worker_count = app->serving[rank].count,
        .class_count = dispatcher->class_count,
        .items_max = app->variants[0]->items_max,
        .application = app->id,
        .predict = predict,
        .mean = predict_mean,
        .profiles = app,
    };
}

/* Where instances of the application are out of service, its router is to choose from the workers that suit its selector best. */
static void
narrow(struct leat_dispatcher *dispatcher, struct leat_application *app, enum leat_rank rank,
       struct leat_route_input *route)
{
    const struct leat_select_input select =
        select_input(dispatcher, app, rank, route->pending, route->pending_count, leat_waiting_count(&app->waiting[rank]));
    const struct leat_candidates_input input = {
        .selector = app->selector,
        .selector_state = app->selector_state,
        .select = &select,
        .workers = route->workers,
        .worker_count = route->worker_count,
        .at = app->serving[rank].at,
        .instances = app->instances.all,
        .stride = app->instances.variant_count,
        .idle_only = idle_only(dispatcher, app, rank),
    };

    leat_candidates_show(&input, dispatcher->shown);
    route->workers = dispatcher->shown;
}

void
leat_dispatcher_probe(struct leat_dispatcher *dispatcher, struct leat_application *app, uint32_t place)
{
    const struct leat_route_input route = leat_dispatcher_route_input(dispatcher, app, LEAT_RANK_ONLINE);
    const struct leat_route_pair pair = {.query = route.pending_count - 1, .worker = place};
    const uint32_t worker_index = app->serving[LEAT_RANK_ONLINE].at[place];
    struct worker_record *record = &dispatcher->records[worker_index];

    LEAT_ASSERT(route.pending_count == leat_waiting_count(&app->waiting[LEAT_RANK_ONLINE])); /* leat_probing_find() sees to it */
    (void)carry_out(dispatcher, app, LEAT_RANK_ONLINE, &route, pair);
    leat_waiting_remove(&app->waiting[LEAT_RANK_ONLINE], dispatcher->marks);
    if (dispatcher->sched_workers[worker_index].outstanding > 0) { /* else no variant serves it */
        record->batches[(record->batch_tail - 1) & (LEAT_WORKER_BATCHES - 1)].probe = true;
        leat_probing_begin(&app->probing[record->class]);
    }
}

/* One question to the application's router and what follows from its answer; false when nothing did. */
static bool
decide(struct leat_dispatcher *dispatcher, struct leat_application *app, enum leat_rank rank)
{
    const struct leat_worker_set open = open_workers(dispatcher, app, rank);
    bool any = false;

    if (!has_room(dispatcher, app, rank, &open)) {
        return false;
    }
    struct leat_route_input route = leat_dispatcher_route_input(dispatcher, app, rank);
    const uint64_t begin_ns = leat_clock_now(&dispatcher->options.tables->clock);
    if (LEAT_UNLIKELY(app->instances.out_count > 0) && app->router->narrowed && app->selector->rank_worker != NULL) {
        narrow(dispatcher, app, rank, &route);
    }
    const uint32_t count =
        LEAT_LIKELY(app->waiting[rank].barred == 0 || app->router->deals)
            ? app->router->route(app->router_state, &route, dispatcher->pairs, route.worker_count)
            : leat_route_within_caps(app->router, app->router_state, &route, &dispatcher->view, dispatcher->pairs,
                                     route.worker_count);
    LEAT_ASSERT(count <= route.worker_count);
    for (uint32_t i = 0; i < count; i++) {
        const enum pair_fate fate = carry_out(dispatcher, app, rank, &route, dispatcher->pairs[i]);
        any = any || fate != PAIR_SKIPPED;
        if (fate == PAIR_BATCHED) {
            break;
        }
    }
    leat_waiting_remove(&app->waiting[rank], dispatcher->marks);
    leat_histogram_add(&dispatcher->decision_ns, leat_clock_now(&dispatcher->options.tables->clock) - begin_ns);
    return any;
}

void
leat_dispatcher_decide_for(struct leat_dispatcher *dispatcher, struct leat_application *app, enum leat_rank rank)
{
    struct leat_waiting *waiting = &app->waiting[rank];

    if (LEAT_UNLIKELY(app->successor != NULL)) { /* which decides once nothing runs any more */
        waiting->look_at_ns = LEAT_NO_DEADLINE;
        return;
    }
    if (waiting->changes_seen == dispatcher->changes && waiting->look_at_ns > dispatcher->now_ns) {
        return;
    }
    extend_overruns(dispatcher);
    while (leat_waiting_count(waiting) > 0 && decide(dispatcher, app, rank)) {
        bump(&dispatcher->statistics.decisions, 1);
    }
    waiting->changes_seen = dispatcher->changes;
    /* Of all that serve it: what waits for some of them now may leave without using them. */
    const struct leat_worker_set all = serving_workers(dispatcher, app, rank);
    waiting->look_at_ns = has_room(dispatcher, app, rank, &all) ? dispatcher->now_ns + LOOK_AGAIN_NS : LEAT_NO_DEADLINE;
}

/*
 * The workers that may not take what is of this rank: what goes before it waits for them, whoever left it for later. What waits for
 * others only holds nothing up here. But where a router deals, that is for workers that are busy.
 */
static struct leat_worker_set
spoken_for(const struct leat_dispatcher *dispatcher, enum leat_rank rank)
{
    struct leat_worker_set set = {{0}};

    for (uint32_t b = 0; b < dispatcher->busy_count && rank > 0; b++) {
        const struct leat_application *app = dispatcher->applications[dispatcher->busy[b]];
        for (uint32_t before = 0; before < rank; before++) {
            if (leat_waiting_count(&app->waiting[before]) > 0 && !app->router->deals) {
                leat_worker_set_add(&set, &app->serving[before].set);
            }
        }
    }
    return set;
}

/*
 * Those who want idle workers speak for them, and those who are held back for theirs. Returns how far the furthest of online queries is,
 * *ret_first the first that has not begun.
 */
static uint32_t
look_at_busy(struct leat_dispatcher *dispatcher, uint32_t *ret_first)
{
    uint32_t furthest = 0;

    *ret_first = dispatcher->busy_count;
    dispatcher->idle_wanted = dispatcher->held = dispatcher->run_waits = (struct leat_worker_set){{0}};
    for (uint32_t b = dispatcher->busy_count; b-- > 0;) {
        const struct leat_application *app = dispatcher->applications[dispatcher->busy[b]];
        const uint32_t progress = leat_dispatcher_progress(dispatcher, app);
        const struct leat_waiting *waiting = &app->waiting[LEAT_RANK_ONLINE];
        const bool later = leat_waiting_count(waiting) > 0 && is_better_later(app, LEAT_RANK_ONLINE);
        if (leat_waiting_count(waiting) > 0 && wants_idle(app)) {
            leat_worker_set_add(&dispatcher->idle_wanted, &app->serving[LEAT_RANK_ONLINE].set);
        } else if (later) {
            leat_worker_set_add(is_of_run(waiting) ? &dispatcher->run_waits : &dispatcher->held, &app->serving[LEAT_RANK_ONLINE].set);
        }
        furthest = progress > furthest ? progress : furthest;
        *ret_first = progress == 0 ? b : *ret_first;
    }
    return furthest;
}

static void
decide_for_busy(struct leat_dispatcher *dispatcher, struct leat_application *app, enum leat_rank rank)
{
    const struct leat_worker_set open = open_workers(dispatcher, app, rank);
    const uint8_t bit = (uint8_t)(1u << rank);

    app->decided_ranks &= (uint8_t)~bit;
    if (!leat_worker_set_is_empty(&open)) {
        leat_dispatcher_decide_for(dispatcher, app, rank);
        app->decided_ranks |= bit;
    }
}

void
leat_dispatcher_decide_all(struct leat_dispatcher *dispatcher)
{
    uint32_t first, kept = 0;

    if (dispatcher->busy_count == 0) {
        return;
    }
    const uint32_t furthest = look_at_busy(dispatcher, &first);
    for (uint32_t rank = 0; rank < LEAT_RANKS; rank++) {
        dispatcher->spoken_for = spoken_for(dispatcher, rank);
        for (uint32_t progress = rank == LEAT_RANK_ONLINE ? furthest : 0, last = false; !last; progress--) {
            last = progress == 0;
            for (uint32_t b = 0; b < dispatcher->busy_count; b++) {
                struct leat_application *app = dispatcher->applications[dispatcher->busy[b]];
                if (LEAT_LIKELY(last) || leat_dispatcher_progress(dispatcher, app) == progress) {
                    decide_for_busy(dispatcher, app, rank);
                }
            }
        }
    }
    dispatcher->spoken_for = (struct leat_worker_set){{0}};
    const uint16_t turned = first < dispatcher->busy_count ? dispatcher->busy[first] : LEAT_APPLICATIONS_MAX;
    for (uint32_t b = 0; b < dispatcher->busy_count; b++) {
        struct leat_application *app = dispatcher->applications[dispatcher->busy[b]];
        const uint32_t waiting = leat_waiting_total(app->waiting);
        atomic_store_explicit(&app->counters.waiting, waiting, memory_order_relaxed);
        app->busy = waiting > 0;
        app->sweep_due = app->sweep_due && app->busy;
        if (app->busy && app->id != turned) {
            dispatcher->busy[kept++] = app->id;
        }
    }
    /* To the end of the list, so that the same application is not always first to find a worker free. */
    if (turned < LEAT_APPLICATIONS_MAX && dispatcher->applications[turned]->busy) {
        dispatcher->busy[kept++] = turned;
    }
    dispatcher->busy_count = kept;
}
