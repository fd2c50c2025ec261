/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/dispatcher_private.h"

#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/slice.h"
#include "sched/select.h"

enum {
    REQUESTS_PER_ROUND = 32, /* taken from one session before the next gets its turn */
    QUEUE_BURST = 32,
    SLEEP_MAX_MS = 250, /* so that the watchdog sees progress while nothing happens */
};

/* ---- Answers from the dispatcher itself ------------------------------------------------------- */

static void
answer(struct leat_dispatcher *dispatcher, struct leat_daemon_session *session, uint16_t slot, uint32_t ticket_low,
       uint64_t submit_ns, enum leat_outcome outcome, enum leat_reason reason, struct closest closest)
{
    const uint64_t waited_ns = dispatcher->now_ns > submit_ns ? dispatcher->now_ns - submit_ns : 0;
    const struct leat_wire_response response = {
        .ticket_low = ticket_low,
        .slot = slot,
        .outcome = (uint8_t)outcome,
        .reason = (uint8_t)reason,
        .queue_ns = waited_ns,
        .exec_ns = closest.exec_ns,
        .total_ns = waited_ns,
        .accuracy_ppm = closest.accuracy_ppm,
        .variant = closest.variant,
        .worker = closest.worker,
        .cost_nano = closest.cost_nano,
    };
    leat_daemon_session_respond(session, 0, &response);
    leat_daemon_session_ring(session);
}

void
leat_dispatcher_send(struct leat_dispatcher *dispatcher, const struct leat_event *event)
{
    const uint64_t tail = atomic_load_explicit(&dispatcher->event_tail, memory_order_relaxed);
    const uint64_t one = 1;

    dispatcher->events[tail % EVENTS] = *event;
    atomic_store_explicit(&dispatcher->event_tail, tail + 1, memory_order_release); /* K4 */
    const ssize_t written = write(dispatcher->control_fd, &one, sizeof(one));
    (void)written;
}

/* NULL: it is no stage's. */
static struct stage_query *
stage_of(struct leat_dispatcher *dispatcher, const struct leat_query_entry *entry)
{
    return LEAT_UNLIKELY(entry->session == LEAT_PIPELINE_SESSION) ? &dispatcher->pipelines.queries[entry->slot] : NULL;
}

void
leat_dispatcher_finish_close_to(struct leat_dispatcher *dispatcher, const struct leat_query_entry *entry, enum leat_outcome outcome,
                                enum leat_reason reason, struct closest closest)
{
    struct leat_daemon_session *session = session_at(dispatcher, entry->session);

    LEAT_ASSERT(session->dispatcher.in_flight > 0);
    session->dispatcher.in_flight--;
    leave_slot(dispatcher, entry);
    if (!session->dispatcher.closing) {
        answer(dispatcher, session, entry->slot, entry->ticket_low, entry->submit_ns, outcome, reason, closest);
    }
}

void
leat_dispatcher_finish(struct leat_dispatcher *dispatcher, const struct leat_query_entry *entry, enum leat_outcome outcome,
                       enum leat_reason reason)
{
    leat_dispatcher_finish_close_to(dispatcher, entry, outcome, reason, nothing_close);
}

/* ---- Taking requests in ----------------------------------------------------------------------- */

/* Where the tensors lie, and whether they may lie there. */
static bool
tensors_are_sound(const struct leat_daemon_session *session, const struct leat_target *target,
                  const struct leat_wire_request *request, uint32_t ret_units[LEAT_TENSORS_MAX])
{
    const uint32_t count = target->input_count + target->output_count;
    uint64_t bytes[LEAT_TENSORS_MAX];

    memcpy(ret_units, request->units, sizeof(request->units));
    if (LEAT_UNLIKELY(count > LEAT_WIRE_UNITS)) {
        leat_daemon_session_copy_list(session, request->slot, count, ret_units);
    }
    for (uint32_t i = 0; i < count; i++) { /* item_bytes <= 2^40 and items <= 2^16 */
        bytes[i] = target->tensors[i].item_bytes * request->items;
    }
    return leat_daemon_session_holds(session, ret_units, bytes, target->input_count, count);
}

/* Of these classes of workers those where the variant breaks the query's cap: a bit for each. */
static uint32_t
barred_by(const struct leat_application *app, uint32_t variant, const struct leat_sched_query *query, uint32_t classes)
{
    uint32_t barred = 0;
    for (uint32_t left = query->cost_cap_nano > 0 ? classes : 0; left != 0; left &= left - 1) {
        const uint16_t class = (uint16_t)__builtin_ctz(left);
        barred |= (uint32_t)(cost_nano(app, app->id, variant, class, query->items) > query->cost_cap_nano) << class;
    }
    return barred;
}

/* Those where all variants that fit do. Where all classes are, no router is to keep it waiting: it is refused when decided. */
uint8_t
leat_dispatcher_barred_classes(const struct leat_application *app, enum leat_rank rank, const struct leat_sched_query *query)
{
    const uint32_t classes = app->serving[rank].classes;
    uint32_t barred = query->cost_cap_nano > 0 ? classes : 0;
    for (uint32_t v = 0; v < app->variant_count && barred != 0; v++) {
        if (app->sched_variants[v].ready && leat_select_fits(&app->sched_variants[v], query)) {
            barred &= barred_by(app, v, query, classes);
        }
    }
    return (uint8_t)(barred == classes ? 0 : barred);
}

static struct closest
close_by(const struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank, uint32_t variant,
         uint32_t items)
{
    return (struct closest){.variant = (uint16_t)variant,
                            .worker = UINT16_MAX,
                            .accuracy_ppm = app->sched_variants[variant].accuracy_ppm,
                            .cost_nano = leat_application_least_nano(app, variant, items),
                            .exec_ns = leat_application_least_ns(app, variant, items, dispatcher->class_count,
                                                                 ~app->serving[rank].classes)};
}

/* The first worker that serves it whose class has no price; UINT16_MAX: all have. */
static uint16_t
unpriced_worker(const struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank)
{
    const struct leat_serving *serving = &app->serving[rank];
    uint32_t i = 0;
    while (i < serving->count && app->price_micro[dispatcher->records[serving->at[i]].class] > 0) {
        i++;
    }
    return i < serving->count ? serving->at[i] : UINT16_MAX;
}

uint32_t
leat_dispatcher_fastest_for(const struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank,
                            const struct leat_sched_query *query, enum leat_reason *ret_reason, struct closest *ret_closest)
{
    const uint32_t classes = app->serving[rank].classes;
    struct closest cheapest = nothing_close; /* of those that fit */
    uint32_t accurate = NOBODY, enough = NOBODY; /* the most accurate; the largest of those that are accurate enough */

    for (uint32_t i = 0; i < app->variant_count; i++) {
        const uint32_t v = app->by_time[i];
        const struct leat_sched_variant *variant = &app->sched_variants[v];
        if (!variant->ready || !leat_select_holds(variant, query)) {
            continue;
        }
        if (LEAT_LIKELY(leat_select_fits(variant, query))) {
            if (LEAT_LIKELY(query->cost_cap_nano == 0 || barred_by(app, v, query, classes) != classes)) {
                return v;
            }
            const struct closest close = close_by(dispatcher, app, rank, v, query->items);
            if (cheapest.variant == UINT16_MAX || (close.cost_nano > 0 && close.cost_nano < cheapest.cost_nano)) {
                cheapest = close;
            }
        } else if (variant->accuracy_ppm >= query->accuracy_floor_ppm) {
            enough = enough == NOBODY || variant->items_max > app->sched_variants[enough].items_max ? v : enough;
        } else if (accurate == NOBODY || variant->accuracy_ppm > app->sched_variants[accurate].accuracy_ppm) {
            accurate = v;
        }
    }
    if (cheapest.variant != UINT16_MAX) {
        cheapest.worker = unpriced_worker(dispatcher, app, rank);
        *ret_reason = cheapest.worker == UINT16_MAX ? LEAT_REASON_COST : LEAT_REASON_PRICE;
        *ret_closest = cheapest;
        return NOBODY;
    }
    const uint32_t v = enough != NOBODY ? enough : accurate;
    *ret_reason = enough != NOBODY ? LEAT_REASON_ITEMS : LEAT_REASON_ACCURACY;
    *ret_closest = v == NOBODY ? nothing_close : close_by(dispatcher, app, rank, v, query->items);
    return NOBODY;
}

/*
 * Reports that came since the round began are read before a query is refused: slots of what they tell may be in use again. Who
 * goes beyond what is allowed makes the dispatcher look at each worker for each of the few requests that it takes in a round.
 */
static bool
is_let_in(struct leat_dispatcher *dispatcher, const struct leat_daemon_session *session)
{
    const uint32_t most = in_flight_max(dispatcher, session);

    return LEAT_LIKELY(session->dispatcher.in_flight < most) ||
           (leat_dispatcher_poll_workers(dispatcher) && session->dispatcher.in_flight < most);
}

/*
 * What is wrong with a request to a target, NULL for one that is not there; LEAT_REASON_NONE if nothing, and its tensors lie
 * where ret_units says. The order of the checks matters: later ones rely on earlier ones.
 */
static enum leat_reason
check_request(struct leat_dispatcher *dispatcher, const struct leat_daemon_session *session,
              const struct leat_wire_request *request, const struct leat_target *target, uint32_t ret_units[LEAT_TENSORS_MAX])
{
    if (dispatcher->draining) {
        return LEAT_REASON_DRAINING;
    }
    if (LEAT_UNLIKELY((request->flags & ~LEAT_WIRE_OFFLINE) != 0 || request->cost_cap > LEAT_WIRE_COST_MAX)) {
        return LEAT_REASON_MALFORMED;
    }
    if (target == NULL) {
        return LEAT_REASON_TARGET;
    }
    if (request->items == 0 || request->items > target->items_max) {
        return LEAT_REASON_ITEMS;
    }
    if (LEAT_UNLIKELY(request->length > target->length_max)) {
        return LEAT_REASON_LENGTH;
    }
    if (!tensors_are_sound(session, target, request, ret_units)) {
        return LEAT_REASON_TENSOR;
    }
    if (!is_let_in(dispatcher, session)) {
        return LEAT_REASON_IN_FLIGHT;
    }
    return LEAT_REASON_NONE;
}

static void
refuse(struct leat_dispatcher *dispatcher, struct leat_daemon_session *session, const struct leat_wire_request *request,
       uint64_t submit_ns, enum leat_reason reason)
{
    answer(dispatcher, session, request->slot, request->ticket_low, submit_ns, LEAT_OUTCOME_REJECTED, reason, nothing_close);
}

/* A stamp from the future would be the client's lie or a clock step: it counts as now. */
static uint64_t
submitted_ns(const struct leat_dispatcher *dispatcher, const struct leat_wire_request *request)
{
    return request->submit_ns < dispatcher->now_ns ? request->submit_ns : dispatcher->now_ns;
}

static void
accept_run(struct leat_dispatcher *dispatcher, struct leat_daemon_session *session, const struct leat_wire_request *request)
{
    struct leat_pipeline *pipeline = leat_dispatcher_pipeline(dispatcher, request->target);
    const uint64_t submit_ns = submitted_ns(dispatcher, request);
    uint32_t units[LEAT_TENSORS_MAX];
    enum leat_reason reason = check_request(dispatcher, session, request,
                                            pipeline != NULL && !pipeline->removing ? &pipeline->target : NULL, units);

    if (LEAT_LIKELY(reason == LEAT_REASON_NONE)) {
        reason = leat_dispatcher_begin_run(dispatcher, pipeline, session, request, units, submit_ns);
    } else if (reason != LEAT_REASON_DRAINING) {
        bump(&dispatcher->statistics.rejected_malformed, 1);
    }
    if (LEAT_UNLIKELY(reason != LEAT_REASON_NONE)) {
        refuse(dispatcher, session, request, submit_ns, reason);
    }
}

static bool drain_queue(struct leat_dispatcher *dispatcher);

static void
accept_request(struct leat_dispatcher *dispatcher, struct leat_daemon_session *session,
               const struct leat_wire_request *request)
{
    struct leat_application *app = request->target < dispatcher->application_top ? dispatcher->applications[request->target] : NULL;
    const uint64_t submit_ns = submitted_ns(dispatcher, request);
    uint32_t units[LEAT_TENSORS_MAX];
    enum leat_reason reason =
        check_request(dispatcher, session, request, app != NULL && !app->removing ? &app->target : NULL, units);

    if (LEAT_LIKELY(reason == LEAT_REASON_NONE)) {
        const uint32_t floor_ppm = request->accuracy_floor_ppm < FLOOR_MAX_PPM ? request->accuracy_floor_ppm : FLOOR_MAX_PPM;
        struct leat_query_entry entry = {
            .submit_ns = submit_ns,
            .deadline_ns = LEAT_NO_DEADLINE,
            .items_less_1 = (uint16_t)(request->items - 1),
            .accuracy_floor_ppm = floor_ppm & FLOOR_MAX_PPM,
            .cost_cap = request->cost_cap & LEAT_WIRE_COST_MAX,
            .offline = (request->flags & LEAT_WIRE_OFFLINE) != 0,
            .ticket_low = request->ticket_low,
            .session = session->index & (LEAT_SESSIONS_MAX - 1),
            .slot = request->slot & (LEAT_SLOTS_MAX - 1),
            .application = app->id & (LEAT_APPLICATIONS_MAX - 1),
            .length = (request->length > 0 ? request->length : app->target.length_max) & LEAT_LENGTH_MAX,
        };
        const uint64_t default_ns = entry.offline ? 0 : app->latency_ns;
        const uint64_t latency_ns = request->latency_us != 0 ? (uint64_t)request->latency_us * 1000 : default_ns;
        if (latency_ns != 0) {
            entry.deadline_ns = submit_ns + latency_ns;
        }
        memcpy(entry.units, request->units, sizeof(entry.units));
        enum leat_status pushed = leat_central_queue_push(&dispatcher->queue, &entry, 1);
        if (LEAT_UNLIKELY(pushed == LEAT_AGAIN) && drain_queue(dispatcher)) { /* many sessions in one round */
            pushed = leat_central_queue_push(&dispatcher->queue, &entry, 1);
        }
        if (LEAT_LIKELY(pushed == LEAT_OK)) {
            session->dispatcher.in_flight++;
            session->dispatcher.slots[request->slot] = (struct leat_waiting_slot){
                .ticket_low = request->ticket_low, .application = app->id, .state = LEAT_SLOT_WAITS};
            app->queued[entry.offline ? LEAT_RANK_OFFLINE : LEAT_RANK_ONLINE]++;
            bump(&app->counters.accepted, 1);
            leat_histogram_add(&app->sizes, request->items);
            return;
        }
        reason = LEAT_REASON_QUEUE_FULL;
        bump(&app->counters.rejected, 1);
    } else if (reason != LEAT_REASON_DRAINING) {
        bump(&dispatcher->statistics.rejected_malformed, 1);
    }
    refuse(dispatcher, session, request, submit_ns, reason);
}

/* ---- From the central queue into the applications' waiting lists ------------------------------ */

/* That it comes to: an online client's query, if it is late, is found to be so only then. */
static enum leat_rank
rank_of(struct leat_dispatcher *dispatcher, const struct leat_query_entry *entry)
{
    const struct stage_query *stage = stage_of(dispatcher, entry);
    return LEAT_UNLIKELY(stage != NULL) ? leat_dispatcher_stage_rank(stage)
           : entry->offline             ? LEAT_RANK_OFFLINE
                                        : LEAT_RANK_ONLINE;
}

/* Its number, by which it is one worker's where the router deals; those that are too dear for it are passed over. */
void
leat_dispatcher_deal(const struct leat_dispatcher *dispatcher, struct leat_application *app, enum leat_rank rank,
                     struct leat_sched_query *query)
{
    const struct leat_serving *serving = &app->serving[rank];
    struct leat_waiting *waiting = &app->waiting[rank];

    if (LEAT_UNLIKELY(app->router->deals && query->barred_classes != 0)) {
        for (uint32_t tried = 0; tried < serving->count; tried++) {
            const uint32_t worker = serving->at[waiting->ordinal % serving->count];
            if ((query->barred_classes >> dispatcher->records[worker].class & 1) == 0) {
                break;
            }
            waiting->ordinal++;
        }
    }
    query->ordinal = waiting->ordinal++;
}

void
leat_dispatcher_tell_jump(struct leat_dispatcher *dispatcher, struct leat_application *app)
{
    const struct leat_event event = {.kind = LEAT_EVENT_JUMP};

    if (app->jump_items > 0) {
        app->jump_items = 0;
        leat_dispatcher_send(dispatcher, &event);
    }
}

void
leat_dispatcher_turn_away(struct leat_dispatcher *dispatcher, struct leat_application *app, uint32_t items)
{
    app->turned_away_items += items;
    leat_dispatcher_tell_jump(dispatcher, app); /* what is refused never waits */
}

static void
enter(struct leat_dispatcher *dispatcher, struct leat_application *app, struct leat_waiting *waiting,
      const struct leat_query_entry *entry, const struct leat_sched_query *query)
{
    if (!app->busy) { /* its list may have been emptied since it was entered: by a cancel, say */
        app->busy = true;
        dispatcher->busy[dispatcher->busy_count++] = app->id;
    }
    waiting->look_at_ns = 0;
    leat_waiting_push(waiting, entry, query);
    if (LEAT_UNLIKELY(app->jump_items > 0 && app->waiting[LEAT_RANK_ONLINE].items >= app->jump_items)) {
        leat_dispatcher_tell_jump(dispatcher, app);
    }
}

/* From when on an online query cannot be in time even alone, by the fastest variant that suits it. */
static uint64_t
late_at(const struct leat_dispatcher *dispatcher, const struct leat_application *app, uint32_t variant,
        const struct leat_sched_query *query)
{
    const uint64_t time_ns =
        leat_application_least_ns(app, variant, query->items, dispatcher->class_count,
                                  query->barred_classes | ~app->serving[LEAT_RANK_ONLINE].classes);
    return query->deadline_ns > time_ns ? query->deadline_ns - time_ns + 1 : 0;
}

uint64_t
leat_dispatcher_give_up_at(const struct leat_dispatcher *dispatcher, const struct leat_application *app,
                           const struct leat_query_entry *entry)
{
    if (app->drop_late) {
        return entry->deadline_ns;
    }
    return LEAT_UNLIKELY(entry->session == LEAT_PIPELINE_SESSION) ? leat_dispatcher_stage_end(dispatcher, entry->slot)
                                                                  : LEAT_NO_DEADLINE;
}

static void
note_late_expiry(struct leat_application *app, uint64_t end_ns)
{
    app->late_expiry_ns = end_ns < app->late_expiry_ns ? end_ns : app->late_expiry_ns;
    app->next_expiry_ns = end_ns < app->next_expiry_ns ? end_ns : app->next_expiry_ns;
}

/* Beside what is on the way there. */
static bool
has_late_room(const struct leat_application *app)
{
    return leat_waiting_count(&app->waiting[LEAT_RANK_LATE]) + app->queued[LEAT_RANK_LATE] < app->waiting_max;
}

/* Is it a run's that is late elsewhere, so that it is to wait among the late, too? Where these have no room for it, it stays. */
static bool
follows_late(struct leat_dispatcher *dispatcher, const struct leat_application *app, const struct leat_query_entry *entry)
{
    const struct stage_query *stage = stage_of(dispatcher, entry);
    return LEAT_UNLIKELY(stage != NULL) && leat_dispatcher_stage_follows(stage) && has_late_room(app);
}

/*
 * It is late, and served when nobody waits who is not. Where there is no room for it, beside what is on the way there, it ends:
 * a run's, which was pushed as late where there was room, finds it.
 */
static void
put_last(struct leat_dispatcher *dispatcher, struct leat_application *app, const struct leat_query_entry *entry,
         const struct leat_sched_query *query)
{
    struct leat_waiting *late = &app->waiting[LEAT_RANK_LATE];
    struct stage_query *stage = stage_of(dispatcher, entry);
    struct leat_sched_query last = *query;

    if (!has_late_room(app)) {
        bump(&app->counters.expired, 1);
        leat_dispatcher_finish(dispatcher, entry, LEAT_OUTCOME_EXPIRED, LEAT_REASON_NONE);
        return;
    }
    if (LEAT_UNLIKELY(stage != NULL && !leat_dispatcher_stage_be_late(dispatcher, stage))) {
        leat_dispatcher_turn_away(dispatcher, app, query->items);
        bump(&app->counters.rejected, 1);
        leat_dispatcher_finish(dispatcher, entry, LEAT_OUTCOME_REJECTED, LEAT_REASON_QUEUE_FULL);
        return;
    }
    last.deadline_ns = LEAT_NO_DEADLINE;
    leat_dispatcher_deal(dispatcher, app, LEAT_RANK_LATE, &last);
    enter(dispatcher, app, late, entry, &last);
    note_late_expiry(app, leat_dispatcher_give_up_at(dispatcher, app, entry));
}

/* It is load, once: also where it is asked again without its aim. */
static void
arrive(struct leat_dispatcher *dispatcher, struct leat_application *app, const struct leat_query_entry *entry)
{
    struct stage_query *stage = stage_of(dispatcher, entry);

    if (LEAT_LIKELY(stage == NULL || !stage->arrived)) {
        leat_load_arrive(&app->load, dispatcher->now_ns, entry->items_less_1 + 1);
    }
    if (stage != NULL) {
        stage->arrived = true;
    }
}

/* There is no time for it; what is asked again without its aim may be let in then. */
static void
refuse_late(struct leat_dispatcher *dispatcher, struct leat_application *app, const struct leat_query_entry *entry, bool would_do)
{
    const struct stage_query *stage = stage_of(dispatcher, entry);

    app->late_queries += would_do;
    if (LEAT_UNLIKELY(stage != NULL && stage->aims)) {
        leat_dispatcher_tell_jump(dispatcher, app);
    } else {
        leat_dispatcher_turn_away(dispatcher, app, entry->items_less_1 + 1);
    }
}

/*
 * Is there no time for a run's query, whose application serves late? Runs that are all let in begin when they are late for the stages
 * behind.
 */
static bool
is_lost(struct leat_dispatcher *dispatcher, struct leat_application *app, uint32_t variant, const struct leat_sched_query *query,
        const struct leat_query_entry *entry)
{
    const struct stage_query *stage = stage_of(dispatcher, entry);

    if (LEAT_LIKELY(stage == NULL) ||
        leat_dispatcher_can_be_in_time(dispatcher, app, LEAT_RANK_ONLINE, variant, query, stage)) {
        return false;
    }
    app->late_queries++;
    leat_dispatcher_tell_jump(dispatcher, app);
    return true;
}

static void
enqueue(struct leat_dispatcher *dispatcher, const struct leat_query_entry *entry)
{
    struct leat_application *app = dispatcher->applications[entry->application];
    const struct leat_daemon_session *session = session_at(dispatcher, entry->session);
    const enum leat_rank rank = rank_of(dispatcher, entry);

    if (LEAT_LIKELY(app != NULL)) {
        LEAT_ASSERT(app->queued[rank] > 0);
        app->queued[rank]--;
    }
    if (LEAT_UNLIKELY(app == NULL || app->removing)) {
        leat_dispatcher_finish(dispatcher, entry, LEAT_OUTCOME_REJECTED, LEAT_REASON_TARGET);
        return;
    }
    if (LEAT_UNLIKELY(session->dispatcher.closing)) {
        leat_dispatcher_finish(dispatcher, entry, LEAT_OUTCOME_CANCELLED, LEAT_REASON_NONE);
        return;
    }
    if (LEAT_UNLIKELY(was_cancelled(dispatcher, entry))) {
        bump(&app->counters.cancelled, 1);
        leat_dispatcher_finish(dispatcher, entry, LEAT_OUTCOME_CANCELLED, LEAT_REASON_NONE);
        return;
    }
    const bool online = rank == LEAT_RANK_ONLINE;
    struct leat_waiting *waiting = &app->waiting[rank];
    if (LEAT_UNLIKELY(online && leat_waiting_count(waiting) >= app->waiting_max)) {
        leat_dispatcher_decide_for(dispatcher, app, rank);
    }
    struct leat_sched_query query = leat_waiting_query(entry, dispatcher->now_ns);
    enum leat_reason reason;
    struct closest closest;
    const uint32_t variant = leat_dispatcher_fastest_for(dispatcher, app, rank, &query, &reason, &closest);
    if (LEAT_UNLIKELY(variant == NOBODY)) {
        bump(&app->counters.rejected, 1);
        leat_dispatcher_finish_close_to(dispatcher, entry, LEAT_OUTCOME_REJECTED, reason, closest);
        return;
    }
    query.barred_classes = leat_dispatcher_barred_classes(app, rank, &query);
    if (online && !app->drop_late && entry->deadline_ns != LEAT_NO_DEADLINE) {
        const uint64_t late_ns = late_at(dispatcher, app, variant, &query);
        if (late_ns <= dispatcher->now_ns || is_lost(dispatcher, app, variant, &query, entry)) {
            if (LEAT_UNLIKELY(stage_of(dispatcher, entry) != NULL)) { /* a run's is load all the same */
                arrive(dispatcher, app, entry);
            }
            put_last(dispatcher, app, entry, &query);
            return;
        }
        app->next_expiry_ns = late_ns < app->next_expiry_ns ? late_ns : app->next_expiry_ns;
    }
    if (rank != LEAT_RANK_OFFLINE) { /* what finds no room is load, too; what no variant suits, or only time that is left, is none */
        arrive(dispatcher, app, entry);
    }
    if (LEAT_UNLIKELY(rank == LEAT_RANK_LATE || (online && follows_late(dispatcher, app, entry)))) {
        put_last(dispatcher, app, entry, &query);
        return;
    }
    if (LEAT_UNLIKELY(leat_waiting_count(waiting) >= app->waiting_max)) {
        if (online) {
            app->late_queries++;
            leat_dispatcher_turn_away(dispatcher, app, query.items);
        }
        bump(&app->counters.rejected, 1);
        leat_dispatcher_finish(dispatcher, entry, LEAT_OUTCOME_REJECTED, LEAT_REASON_QUEUE_FULL);
        return;
    }
    uint32_t probed = LEAT_PROBING_NONE;
    if (entry->deadline_ns != LEAT_NO_DEADLINE) {
        const bool lost = app->drop_late && !leat_dispatcher_can_be_in_time(dispatcher, app, rank, variant, &query, stage_of(dispatcher, entry));
        /* Else it runs there anyway, or later; and where the router deals, another worker may be the one that it is for. */
        if (online && query.barred_classes == 0 && app->successor == NULL && !app->router->deals &&
            (dispatcher->class_count > 1 || lost)) {
            struct leat_route_input route = leat_dispatcher_route_input(dispatcher, app, rank);
            route.variant = variant;
            probed = leat_probing_find(app->probing, &route, query.items, entry->deadline_ns, lost);
        }
        if (LEAT_UNLIKELY(lost && probed == LEAT_PROBING_NONE)) {
            closest = close_by(dispatcher, app, rank, variant, query.items);
            if (online) {
                refuse_late(dispatcher, app, entry, late_at(dispatcher, app, variant, &query) > dispatcher->now_ns);
            }
            bump(&app->counters.rejected, 1);
            leat_dispatcher_finish_close_to(dispatcher, entry, LEAT_OUTCOME_REJECTED, LEAT_REASON_DEADLINE, closest);
            return;
        }
    }
    if (app->drop_late) {
        app->next_expiry_ns = entry->deadline_ns < app->next_expiry_ns ? entry->deadline_ns : app->next_expiry_ns;
    }
    leat_dispatcher_deal(dispatcher, app, rank, &query);
    enter(dispatcher, app, waiting, entry, &query);
    if (LEAT_UNLIKELY(probed != LEAT_PROBING_NONE)) {
        leat_dispatcher_probe(dispatcher, app, probed);
    }
}

struct sweep {
    struct leat_dispatcher *dispatcher;
    struct leat_application *app;
    enum leat_rank rank;
    uint64_t next_expiry_ns; /* of what stays */
};

/* False when it is late, and goes to the others that are. */
static bool
goes_on_in_time(struct sweep *sweep, const struct leat_query_entry *entry, const struct leat_sched_query *query)
{
    enum leat_reason reason;
    struct closest closest;

    if (sweep->rank != LEAT_RANK_ONLINE || query->deadline_ns == LEAT_NO_DEADLINE) {
        return true;
    }
    const uint32_t variant = leat_dispatcher_fastest_for(sweep->dispatcher, sweep->app, sweep->rank, query, &reason, &closest);
    const uint64_t late_ns = variant != NOBODY ? late_at(sweep->dispatcher, sweep->app, variant, query) : query->deadline_ns;
    if (late_ns <= sweep->dispatcher->now_ns) {
        sweep->app->late_queries++;
        put_last(sweep->dispatcher, sweep->app, entry, query);
        return false;
    }
    sweep->next_expiry_ns = late_ns < sweep->next_expiry_ns ? late_ns : sweep->next_expiry_ns;
    return true;
}

/* Is it a run's that waits among the late, and that nobody had time for there either? */
static bool
is_given_up(const struct sweep *sweep, const struct leat_query_entry *entry)
{
    return sweep->rank == LEAT_RANK_LATE && entry->session == LEAT_PIPELINE_SESSION &&
           leat_dispatcher_stage_end(sweep->dispatcher, entry->slot) <= sweep->dispatcher->now_ns;
}

/* Ends a waiting query that was cancelled, is too late, or whose session closes; true when it stays where it is. */
static bool
goes_on_waiting(void *context, const struct leat_query_entry *entry, const struct leat_sched_query *query)
{
    struct sweep *sweep = context;
    struct leat_application *app = sweep->app;

    if (session_at(sweep->dispatcher, entry->session)->dispatcher.closing) {
        leat_dispatcher_finish(sweep->dispatcher, entry, LEAT_OUTCOME_CANCELLED, LEAT_REASON_NONE);
        return false;
    }
    if (was_cancelled(sweep->dispatcher, entry)) {
        bump(&app->counters.cancelled, 1);
        leat_dispatcher_finish(sweep->dispatcher, entry, LEAT_OUTCOME_CANCELLED, LEAT_REASON_NONE);
        return false;
    }
    const uint64_t end_ns = leat_dispatcher_give_up_at(sweep->dispatcher, app, entry);
    if (end_ns <= sweep->dispatcher->now_ns) {
        app->late_queries += sweep->rank == LEAT_RANK_ONLINE;
        if (LEAT_UNLIKELY(is_given_up(sweep, entry))) {
            leat_dispatcher_turn_away(sweep->dispatcher, app, query->items);
        }
        bump(&app->counters.expired, 1);
        leat_dispatcher_finish(sweep->dispatcher, entry, LEAT_OUTCOME_EXPIRED, LEAT_REASON_NONE);
        return false;
    }
    uint64_t *expiry_ns = sweep->rank == LEAT_RANK_LATE ? &app->late_expiry_ns : &sweep->next_expiry_ns;
    if (sweep->rank == LEAT_RANK_ONLINE && follows_late(sweep->dispatcher, app, entry)) {
        put_last(sweep->dispatcher, app, entry, query);
        return false;
    }
    *expiry_ns = end_ns < *expiry_ns ? end_ns : *expiry_ns;
    return app->drop_late || goes_on_in_time(sweep, entry, query);
}

/*
 * Takes out of the lists what is not to wait any longer. Once a round, and at most one pass over each list: however
 * many queries clients cancel, let expire or leave behind, that is what they can make a round cost.
 */
static void
sweep_lists(struct leat_dispatcher *dispatcher)
{
    for (uint32_t b = 0; b < dispatcher->busy_count; b++) {
        struct leat_application *app = dispatcher->applications[dispatcher->busy[b]];
        struct sweep sweep = {.dispatcher = dispatcher, .app = app, .next_expiry_ns = LEAT_NO_DEADLINE};
        if (app->sweep_due || app->next_expiry_ns <= dispatcher->now_ns) {
            const bool all = app->sweep_due || app->drop_late || app->late_expiry_ns <= dispatcher->now_ns;
            app->late_expiry_ns = all ? LEAT_NO_DEADLINE : app->late_expiry_ns;
            app->sweep_due = false; /* and due again, where what becomes late here is of a run that waits here, too */
            /* The last rank first: what becomes late is not to be looked at twice. Time moves nothing beyond the first else. */
            for (uint32_t rank = all ? LEAT_RANKS : 1; rank-- > 0;) {
                sweep.rank = rank;
                bump(&dispatcher->statistics.swept, leat_waiting_count(&app->waiting[rank]));
                leat_waiting_filter(&app->waiting[rank], goes_on_waiting, &sweep);
                app->waiting[rank].look_at_ns = 0;
            }
            app->next_expiry_ns =
                app->late_expiry_ns < sweep.next_expiry_ns ? app->late_expiry_ns : sweep.next_expiry_ns;
        }
    }
}

static bool
drain_queue(struct leat_dispatcher *dispatcher)
{
    struct leat_query_entry burst[QUEUE_BURST];
    bool any = false;

    for (;;) {
        const uint64_t count = leat_central_queue_pop(&dispatcher->queue, burst, QUEUE_BURST);
        for (uint64_t i = 0; i < count; i++) {
            enqueue(dispatcher, &burst[i]);
        }
        any = any || count > 0;
        if (count < QUEUE_BURST) {
            return any;
        }
    }
}

void
leat_dispatcher_take_back(struct leat_dispatcher *dispatcher, struct leat_waiting_slot *slot)
{
    struct leat_application *app = dispatcher->applications[slot->application];

    slot->state = LEAT_SLOT_CANCELLED;
    if (app != NULL && app->busy) {
        app->sweep_due = true;
    }
}

/*
 * Constant time, whatever it names and whatever waits, but for what its own run has waiting: the query is only marked here. It leaves
 * its list when the list is swept, or is not entered in it; either comes later in this round.
 */
static void
cancel(struct leat_dispatcher *dispatcher, const struct leat_daemon_session *session,
       const struct leat_wire_request *request)
{
    struct leat_waiting_slot *slot = &session->dispatcher.slots[request->slot];

    if (slot->state == LEAT_SLOT_IDLE || slot->ticket_low != request->ticket_low) {
        return; /* it runs, or has ended: its one completion is on its way */
    }
    if (LEAT_UNLIKELY(slot->application >= LEAT_PIPELINE_TARGET)) {
        leat_dispatcher_cancel_run(dispatcher, session, request->slot);
        return;
    }
    leat_dispatcher_take_back(dispatcher, slot);
}

static bool
command_ready(const struct leat_dispatcher *dispatcher)
{
    return atomic_load_explicit(&dispatcher->command_tail, memory_order_acquire) != /* K1 */
           atomic_load_explicit(&dispatcher->command_head, memory_order_relaxed);
}

/*
 * Does the request name what a waiting command may add? Its client can have heard of an application or a pipeline before the command
 * that adds it is obeyed, but not before it was given: S1 has made it visible.
 */
static bool
is_ahead_of_a_command(const struct leat_dispatcher *dispatcher, const struct leat_wire_request *request)
{
    const bool known = request->target < dispatcher->application_top ? dispatcher->applications[request->target] != NULL
                                                                     : leat_dispatcher_pipeline(dispatcher, request->target) != NULL;
    return LEAT_UNLIKELY(!known) && (request->flags & LEAT_WIRE_CANCEL) == 0 && command_ready(dispatcher);
}

/* Takes up to REQUESTS_PER_ROUND requests from one session. */
static bool
poll_session(struct leat_dispatcher *dispatcher, struct leat_daemon_session *session)
{
    const uint64_t mask = (uint64_t)session->slots * LEAT_SUBMIT_CELLS_PER_SLOT - 1;

    for (uint32_t n = 0; n < REQUESTS_PER_ROUND; n++) {
        const uint64_t position = session->dispatcher.submit_position;
        const struct leat_wire_request *cell = &session->submit_cells[position & mask];
        if (atomic_load_explicit(&cell->sequence, memory_order_acquire) != position + 1) { /* S1 */
            return n > 0;
        }
        LEAT_TSAN_ASKED(session);
        struct leat_wire_request request; /* copied once; the client can go on writing to the original */
        memcpy(&request, cell, sizeof(request));
        if (is_ahead_of_a_command(dispatcher, &request)) {
            return true; /* it is looked at again in the next round */
        }
        session->dispatcher.submit_position++;
        if (LEAT_UNLIKELY(request.slot >= session->slots)) {
            bump(&dispatcher->statistics.rejected_malformed, 1);
            continue; /* there is no slot to answer to */
        }
        if (LEAT_UNLIKELY((request.flags & LEAT_WIRE_CANCEL) != 0)) {
            if (request.flags == LEAT_WIRE_CANCEL && request.cost_cap == 0) {
                cancel(dispatcher, session, &request);
            } else {
                bump(&dispatcher->statistics.rejected_malformed, 1); /* a cancel has no answer of its own */
            }
        } else if (LEAT_UNLIKELY(request.target >= LEAT_PIPELINE_TARGET)) {
            accept_run(dispatcher, session, &request);
        } else {
            accept_request(dispatcher, session, &request);
        }
    }
    return true;
}

/* ---- Commands --------------------------------------------------------------------------------- */

static bool
poll_commands(struct leat_dispatcher *dispatcher)
{
    if (LEAT_LIKELY(!command_ready(dispatcher))) {
        return false;
    }
    const uint64_t head = atomic_load_explicit(&dispatcher->command_head, memory_order_relaxed);
    const struct leat_command command = dispatcher->commands[head & (COMMANDS - 1)];
    atomic_store_explicit(&dispatcher->command_head, head + 1, memory_order_release); /* K2 */
    leat_dispatcher_obey(dispatcher, &command);
    return true;
}

/* ---- Sleeping --------------------------------------------------------------------------------- */

static bool
anything_ready(const struct leat_dispatcher *dispatcher)
{
    if (command_ready(dispatcher)) {
        return true;
    }
    for (uint32_t w = 0; w < dispatcher->options.worker_count; w++) {
        if (leat_worker_done_ready(dispatcher->options.workers[w])) {
            return true;
        }
    }
    for (uint32_t i = 0; i < dispatcher->active_count; i++) {
        const struct leat_daemon_session *session = dispatcher->active[i];
        const uint64_t position = session->dispatcher.submit_position;
        const uint64_t mask = (uint64_t)session->slots * LEAT_SUBMIT_CELLS_PER_SLOT - 1;
        if (atomic_load_explicit(&session->submit_cells[position & mask].sequence, memory_order_relaxed) ==
            position + 1) { /* relaxed: only a look; S1 comes when it is taken */
            return true;
        }
    }
    return false;
}

/* What has no worker to be decided for waits for what goes before it, which is looked at in time. */
int
leat_dispatcher_sleep_ms(const struct leat_dispatcher *dispatcher)
{
    const struct run_list *open = dispatcher->pipelines.open;
    uint64_t next_ns = LEAT_NO_DEADLINE;

    for (uint32_t rank = 0; rank < LEAT_RANKS; rank++) { /* what waits for room may become too late */
        next_ns = LEAT_UNLIKELY(open[rank].first != NULL) ? dispatcher->now_ns + LOOK_AGAIN_NS : next_ns;
    }
    for (uint32_t b = 0; b < dispatcher->busy_count; b++) {
        const struct leat_application *app = dispatcher->applications[dispatcher->busy[b]];
        next_ns = app->sweep_due ? 0 : app->next_expiry_ns < next_ns ? app->next_expiry_ns : next_ns;
        for (uint32_t rank = 0; rank < LEAT_RANKS; rank++) {
            const struct leat_waiting *waiting = &app->waiting[rank];
            const bool looked = (app->decided_ranks >> rank & 1) != 0 && leat_waiting_count(waiting) > 0;
            const uint64_t look_ns = looked ? waiting->look_at_ns : LEAT_NO_DEADLINE;
            next_ns = look_ns < next_ns ? look_ns : next_ns;
        }
    }
    if (next_ns <= dispatcher->now_ns) {
        return 0;
    }
    const uint64_t ms = (next_ns - dispatcher->now_ns) / 1000000 + 1;
    return ms < SLEEP_MAX_MS ? (int)ms : SLEEP_MAX_MS;
}

static void
sleep_until_rung(struct leat_dispatcher *dispatcher)
{
    struct epoll_event event;
    uint64_t ignored;
    const struct leat_clock *clock = &dispatcher->options.tables->clock;

    leat_bell_announce(&dispatcher->bell, LEAT_BELL_EVENT);
    for (uint32_t i = 0; i < dispatcher->active_count; i++) {
        leat_bell_announce(&dispatcher->active[i]->rings->daemon_bell, LEAT_BELL_EVENT);
    }
    if (!anything_ready(dispatcher)) {
        const uint64_t before_ns = leat_clock_now(clock);
        const int woken = epoll_wait(dispatcher->epoll_fd, &event, 1, leat_dispatcher_sleep_ms(dispatcher));
        const uint64_t slept_ns = leat_clock_now(clock) - before_ns;
        const uint64_t ceiling_ns = atomic_load_explicit(&dispatcher->options.tables->spin_ns, memory_order_relaxed);
        if (woken > 0 && slept_ns < 2 * ceiling_ns) {
            const uint64_t doubled_ns = 2 * dispatcher->spin_budget_ns + 1000;
            dispatcher->spin_budget_ns = doubled_ns < ceiling_ns ? doubled_ns : ceiling_ns;
        } else {
            dispatcher->spin_budget_ns /= 2;
        }
        bump(&dispatcher->statistics.parks, 1);
    }
    leat_bell_withdraw(&dispatcher->bell);
    for (uint32_t i = 0; i < dispatcher->active_count; i++) {
        leat_bell_withdraw(&dispatcher->active[i]->rings->daemon_bell);
    }
    const ssize_t got = read(dispatcher->event_fd, &ignored, sizeof(ignored)); /* non-blocking, ours alone */
    (void)got;
}

/* ---- The thread ------------------------------------------------------------------------------- */

bool
leat_dispatcher_round(struct leat_dispatcher *dispatcher, uint64_t now_ns)
{
    dispatcher->now_ns = now_ns;
    bool any = leat_dispatcher_poll_workers(dispatcher);
    for (uint32_t i = 0; i < dispatcher->active_count; i++) {
        any = poll_session(dispatcher, dispatcher->active[i]) || any;
    }
    any = leat_dispatcher_make_queries(dispatcher) || any;
    sweep_lists(dispatcher); /* after the last cancel, before the first decision */
    any = drain_queue(dispatcher) || any;
    leat_dispatcher_decide_all(dispatcher);
    leat_dispatcher_learn_all(dispatcher);
    any = leat_dispatcher_take_refusals(dispatcher) || any;
    any = leat_dispatcher_evaluate_instances(dispatcher) || any;
    any = poll_commands(dispatcher) || any;
    if (LEAT_UNLIKELY(dispatcher->closing_count > 0 || dispatcher->removing_count > 0 || dispatcher->draining)) {
        leat_dispatcher_settle(dispatcher);
    }
    bump(&dispatcher->statistics.rounds, 1);
    return any;
}

static void *
dispatcher_main(void *argument)
{
    struct leat_dispatcher *dispatcher = argument;
    const struct leat_clock *clock = &dispatcher->options.tables->clock;
    uint64_t idle_since_ns = leat_clock_now(clock);

    (void)pthread_setname_np(pthread_self(), "leat-dispatch");
    leat_slice_shorten();
    while (!dispatcher->stop) {
        if (leat_dispatcher_round(dispatcher, leat_clock_now(clock))) {
            idle_since_ns = dispatcher->now_ns;
        } else if (dispatcher->now_ns - idle_since_ns >=
                   leat_spin_budget(dispatcher->options.tables, dispatcher->spin_budget_ns)) {
            sleep_until_rung(dispatcher);
            idle_since_ns = leat_clock_now(clock);
        } else {
            leat_spin_pause();
        }
    }
    return NULL;
}

/* ---- Control side ----------------------------------------------------------------------------- */

enum leat_status
leat_dispatcher_create(const struct leat_dispatcher_options *options, struct leat_dispatcher **ret_dispatcher)
{
    LEAT_ASSERT(options->worker_count >= 1 && options->worker_count <= LEAT_SCHED_WORKERS_MAX);
    LEAT_ASSERT(options->worker_depth >= 1 && options->worker_depth <= LEAT_WORKER_BATCHES);
    LEAT_ASSERT(leat_is_power_of_two(options->queue_capacity));

    struct leat_dispatcher *dispatcher =
        aligned_alloc(LEAT_ISOLATE, leat_round_up(sizeof(*dispatcher), LEAT_ISOLATE));
    if (dispatcher == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the dispatcher");
    }
    memset(dispatcher, 0, sizeof(*dispatcher));
    dispatcher->options = *options;
    dispatcher->spin_budget_ns = atomic_load_explicit(&options->tables->spin_ns, memory_order_relaxed);
    dispatcher->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    dispatcher->control_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    dispatcher->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    LEAT_MUST(pthread_mutex_init(&dispatcher->command_mutex, NULL) == 0);
    dispatcher->records = calloc(options->worker_count, sizeof(dispatcher->records[0]));
    dispatcher->queue_cells =
        aligned_alloc(LEAT_ISOLATE, options->queue_capacity * sizeof(dispatcher->queue_cells[0]));
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    if (dispatcher->event_fd < 0 || dispatcher->control_fd < 0 || dispatcher->epoll_fd < 0 ||
        epoll_ctl(dispatcher->epoll_fd, EPOLL_CTL_ADD, dispatcher->event_fd, &event) != 0) {
        (void)LEAT_FAIL(LEAT_ERR_SYS, "cannot make the dispatcher's descriptors");
        leat_dispatcher_destroy(dispatcher);
        return LEAT_ERR_SYS;
    }
    if (dispatcher->records == NULL || dispatcher->queue_cells == NULL) {
        leat_dispatcher_destroy(dispatcher);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a central queue of %u queries", options->queue_capacity);
    }
    memset(dispatcher->queue_cells, 0, options->queue_capacity * sizeof(dispatcher->queue_cells[0]));
    leat_central_queue_init(&dispatcher->queue, dispatcher->queue_cells, options->queue_capacity);
    for (uint32_t w = 0; w < options->worker_count; w++) {
        dispatcher->records[w].class = options->worker_classes[w];
        dispatcher->records[w].owner = LEAT_WORKER_FOR_ALL;
        if (dispatcher->class_count <= options->worker_classes[w]) {
            dispatcher->class_count = options->worker_classes[w] + 1u;
        }
        dispatcher->sched_workers[w] = (struct leat_sched_worker){
            .depth = options->worker_depth, .worker_class = options->worker_classes[w]};
        leat_dispatcher_note_room(dispatcher, w);
    }
    dispatcher->rest = leat_dispatcher_serving(dispatcher, LEAT_APPLICATIONS_MAX, LEAT_RANK_ONLINE);
    LEAT_ASSERT(options->class_count == 0 || options->class_count >= dispatcher->class_count);
    dispatcher->class_count = options->class_count != 0 ? options->class_count : dispatcher->class_count;
    dispatcher->tightest_ns = LEAT_NO_DEADLINE;
    dispatcher->briefest_ns = LEAT_NO_DEADLINE;
    dispatcher->evaluation.briefest_ns = LEAT_NO_DEADLINE;
    for (uint32_t q = 0; q < LEAT_SCHED_PENDING_MAX; q++) {
        dispatcher->places[q] = (uint16_t)q;
    }
    *ret_dispatcher = dispatcher;
    return LEAT_OK;
}

struct leat_bell *
leat_dispatcher_bell(struct leat_dispatcher *dispatcher)
{
    return &dispatcher->bell;
}

int
leat_dispatcher_event_fd(const struct leat_dispatcher *dispatcher)
{
    return dispatcher->event_fd;
}

int
leat_dispatcher_control_fd(const struct leat_dispatcher *dispatcher)
{
    return dispatcher->control_fd;
}

enum leat_status
leat_dispatcher_start(struct leat_dispatcher *dispatcher)
{
    pthread_attr_t attributes;

    LEAT_ASSERT(!dispatcher->running);
    LEAT_MUST(pthread_attr_init(&attributes) == 0);
    if (dispatcher->options.cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)dispatcher->options.cpu, &set);
        LEAT_MUST(pthread_attr_setaffinity_np(&attributes, sizeof(set), &set) == 0);
    }
    const int error = pthread_create(&dispatcher->thread, &attributes, dispatcher_main, dispatcher);
    LEAT_MUST(pthread_attr_destroy(&attributes) == 0);
    if (error != 0) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "cannot start the dispatcher on CPU %d: %s", dispatcher->options.cpu,
                         strerror(error));
    }
    dispatcher->running = true;
    return LEAT_OK;
}

enum leat_status
leat_dispatcher_hold(struct leat_dispatcher *dispatcher, const uint32_t *cpus, uint32_t count, bool *ret_changed)
{
    cpu_set_t wanted, now;

    LEAT_ASSERT(dispatcher->running && count > 0);
    *ret_changed = false;
    CPU_ZERO(&wanted);
    for (uint32_t i = 0; i < count; i++) {
        CPU_SET((size_t)cpus[i], &wanted);
    }
    if (dispatcher->options.cpu < 0 ||
        (pthread_getaffinity_np(dispatcher->thread, sizeof(now), &now) == 0 && CPU_EQUAL(&wanted, &now))) {
        return LEAT_OK;
    }
    const int error = pthread_setaffinity_np(dispatcher->thread, sizeof(wanted), &wanted);
    *ret_changed = error == 0;
    return error == 0 ? LEAT_OK : LEAT_FAIL(LEAT_ERR_SYS, "cannot pin the dispatcher: %s", strerror(error));
}

void
leat_dispatcher_stop(struct leat_dispatcher *dispatcher)
{
    if (dispatcher->running) {
        const struct leat_command stop = {.kind = LEAT_COMMAND_STOP};
        leat_dispatcher_command(dispatcher, &stop);
        LEAT_MUST(pthread_join(dispatcher->thread, NULL) == 0);
        dispatcher->running = false;
    }
}

void
leat_dispatcher_destroy(struct leat_dispatcher *dispatcher)
{
    if (dispatcher == NULL) {
        return;
    }
    LEAT_ASSERT(!dispatcher->running);
    const int fds[] = {dispatcher->event_fd, dispatcher->control_fd, dispatcher->epoll_fd};
    for (size_t i = 0; i < LEAT_COUNT_OF(fds); i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    LEAT_MUST(pthread_mutex_destroy(&dispatcher->command_mutex) == 0);
    free(dispatcher->records);
    free(dispatcher->queue_cells);
    free(dispatcher);
}

void
leat_dispatcher_command(struct leat_dispatcher *dispatcher, const struct leat_command *command)
{
    LEAT_MUST(pthread_mutex_lock(&dispatcher->command_mutex) == 0);
    const uint64_t tail = atomic_load_explicit(&dispatcher->command_tail, memory_order_relaxed);
    while (tail - atomic_load_explicit(&dispatcher->command_head, memory_order_acquire) == COMMANDS) { /* K3 */
        (void)sched_yield(); /* the dispatcher obeys one command a round */
    }
    dispatcher->commands[tail & (COMMANDS - 1)] = *command;
    atomic_store_explicit(&dispatcher->command_tail, tail + 1, memory_order_release); /* K0 */
    LEAT_MUST(pthread_mutex_unlock(&dispatcher->command_mutex) == 0);
    if (leat_bell_ring(&dispatcher->bell) != LEAT_BELL_AWAKE) {
        const uint64_t one = 1;
        const ssize_t written = write(dispatcher->event_fd, &one, sizeof(one));
        (void)written;
    }
}

bool
leat_dispatcher_poll_event(struct leat_dispatcher *dispatcher, struct leat_event *ret_event)
{
    uint64_t ignored;
    const ssize_t got = read(dispatcher->control_fd, &ignored, sizeof(ignored));
    (void)got;
    if (atomic_load_explicit(&dispatcher->event_tail, memory_order_acquire) == dispatcher->event_head) { /* K5 */
        return false;
    }
    *ret_event = dispatcher->events[dispatcher->event_head++ % EVENTS];
    return true;
}

void
leat_dispatcher_statistics(const struct leat_dispatcher *dispatcher, struct leat_dispatcher_statistics *ret_statistics)
{
    *ret_statistics = (struct leat_dispatcher_statistics){
        .rounds = atomic_load_explicit(&dispatcher->statistics.rounds, memory_order_relaxed),
        .parks = atomic_load_explicit(&dispatcher->statistics.parks, memory_order_relaxed),
        .rejected_malformed = atomic_load_explicit(&dispatcher->statistics.rejected_malformed, memory_order_relaxed),
        .decisions = atomic_load_explicit(&dispatcher->statistics.decisions, memory_order_relaxed),
        .abandoned = atomic_load_explicit(&dispatcher->statistics.abandoned, memory_order_relaxed),
        .swept = atomic_load_explicit(&dispatcher->statistics.swept, memory_order_relaxed),
    };
}

const struct leat_histogram *
leat_dispatcher_decision_times(const struct leat_dispatcher *dispatcher)
{
    return &dispatcher->decision_ns;
}
