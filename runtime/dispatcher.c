/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/dispatcher_private.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/slice.h"
#include "sched/batch.h"
#include "sched/candidates.h"
#include "sched/policy_table.h"
#include "sched/route_caps.h"
#include "sched/select.h"

enum {
    REQUESTS_PER_ROUND = 32, /* taken from one session before the next gets its turn */
    QUEUE_BURST = 32,
    SLEEP_MAX_MS = 250,    /* so that the watchdog sees progress while nothing happens */
    SPINS_PER_CLOCK = 16,
    LOOK_AGAIN_NS = 1000000, /* what a router leaves for later though a worker has room is shown to it again */
    AHEAD_NS = LOOK_AGAIN_NS, /* so long before a worker is free it is given a batch that is better made late */
    BESIDE_SHARE = 8,        /* a batch that is not online is to take at most this part of the tightest objective; an offline
                                one, of the briefest query, too */
    YIELDING_SHARE = 2,      /* the same, of one that gives way in short steps */
    SHORT_PERMILLE = 125,    /* of a batch: a step that takes no more is short */
    STEPS_KEPT = 4,          /* what a batch says of steps counts for this part */
    ASKED_LATELY = 10,       /* evaluations without an online query, after which an application is not being asked */
    NOBODY = UINT32_MAX, /* no variant */
    EVALUATIONS_PER_ROUND = 256, /* of instances and applications, so that a round stays short */
};

/* ---- Answers from the dispatcher itself ------------------------------------------------------- */

/* What comes closest to a query that is refused. */
struct closest {
    uint16_t variant; /* UINT16_MAX: nothing */
    uint16_t worker;  /* of a class that lacks a price; UINT16_MAX: that is no matter */
    uint32_t accuracy_ppm, cost_nano;
    uint64_t exec_ns;
};
static const struct closest nothing_close = {.variant = UINT16_MAX, .worker = UINT16_MAX};

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

/* The session of an accepted query; its memory is mapped as long as in_flight counts the query. */
static struct leat_daemon_session *
session_at(const struct leat_dispatcher *dispatcher, uint16_t index)
{
    return atomic_load_explicit(&dispatcher->options.tables->sessions[index], memory_order_relaxed);
}

static struct leat_waiting_slot *
slot_of(const struct leat_dispatcher *dispatcher, const struct leat_query_entry *entry)
{
    return &session_at(dispatcher, entry->session)->dispatcher.slots[entry->slot];
}

/* A query stops waiting: a cancel does not find it any more. */
/* NULL: it is no stage's. */
static struct stage_query *
stage_of(struct leat_dispatcher *dispatcher, const struct leat_query_entry *entry)
{
    return LEAT_UNLIKELY(entry->session == LEAT_PIPELINE_SESSION) ? &dispatcher->pipelines.queries[entry->slot] : NULL;
}

static void
leave_slot(const struct leat_dispatcher *dispatcher, const struct leat_query_entry *entry)
{
    struct leat_waiting_slot *slot = slot_of(dispatcher, entry);
    if (LEAT_LIKELY(slot->ticket_low == entry->ticket_low)) { /* else the client used the slot again meanwhile */
        slot->state = LEAT_SLOT_IDLE;
    }
}

static bool
was_cancelled(const struct leat_dispatcher *dispatcher, const struct leat_query_entry *entry)
{
    const struct leat_waiting_slot *slot = slot_of(dispatcher, entry);
    return slot->state == LEAT_SLOT_CANCELLED && slot->ticket_low == entry->ticket_low;
}

/* Ends an accepted query that never reached a worker. */
static void
finish_close_to(struct leat_dispatcher *dispatcher, const struct leat_query_entry *entry, enum leat_outcome outcome,
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
    finish_close_to(dispatcher, entry, outcome, reason, nothing_close);
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

/* Predicted time of `items` on a worker of the class, in the variant that the selector would try first. */
static uint64_t
predict(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct leat_application *app = profiles;
    (void)application;
    return leat_profile_predict(&app->profiles[variant][worker_class], items);
}

static uint64_t
predict_mean(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct leat_application *app = profiles;
    (void)application;
    return leat_profile_mean(&app->profiles[variant][worker_class], items);
}

static uint64_t
cost_nano(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    (void)application;
    return leat_application_cost_nano(profiles, variant, worker_class, items);
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

/*
 * The fastest ready variant that suits the query: what it is admitted by, for any other takes longer. NOBODY where none
 * suits; *ret_reason then says what it asks too much of, and *ret_closest which variant comes closest to that.
 */
static uint32_t
fastest_for(const struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank,
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
 * Each slot may hold a query, and each worker may have answered as many as there are slots without its report having been
 * read: it reports behind its answers, and may be held up in between, while their slots are used again.
 */
static uint32_t
in_flight_max(const struct leat_dispatcher *dispatcher, const struct leat_daemon_session *session)
{
    return (1 + dispatcher->options.worker_count) * session->slots;
}

static bool poll_workers(struct leat_dispatcher *dispatcher);

/*
 * Reports that came since the round began are read before a query is refused: slots of what they tell may be in use again. Who
 * goes beyond what is allowed makes the dispatcher look at each worker for each of the few requests that it takes in a round.
 */
static bool
is_let_in(struct leat_dispatcher *dispatcher, const struct leat_daemon_session *session)
{
    const uint32_t most = in_flight_max(dispatcher, session);

    return LEAT_LIKELY(session->dispatcher.in_flight < most) ||
           (poll_workers(dispatcher) && session->dispatcher.in_flight < most);
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

static void decide_for(struct leat_dispatcher *dispatcher, struct leat_application *app, enum leat_rank rank);
static struct leat_route_input route_input(struct leat_dispatcher *dispatcher, const struct leat_application *app,
                                           enum leat_rank rank);
static void probe(struct leat_dispatcher *dispatcher, struct leat_application *app, uint32_t place);

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

/* When nobody is to begin it any more. Of a stage's query its run says that, even where the application serves late. */
static uint64_t
give_up_at(const struct leat_dispatcher *dispatcher, const struct leat_application *app,
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
    note_late_expiry(app, give_up_at(dispatcher, app, entry));
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
        decide_for(dispatcher, app, rank);
    }
    struct leat_sched_query query = leat_waiting_query(entry, dispatcher->now_ns);
    enum leat_reason reason;
    struct closest closest;
    const uint32_t variant = fastest_for(dispatcher, app, rank, &query, &reason, &closest);
    if (LEAT_UNLIKELY(variant == NOBODY)) {
        bump(&app->counters.rejected, 1);
        finish_close_to(dispatcher, entry, LEAT_OUTCOME_REJECTED, reason, closest);
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
            struct leat_route_input route = route_input(dispatcher, app, rank);
            route.variant = variant;
            probed = leat_probing_find(app->probing, &route, query.items, entry->deadline_ns, lost);
        }
        if (LEAT_UNLIKELY(lost && probed == LEAT_PROBING_NONE)) {
            closest = close_by(dispatcher, app, rank, variant, query.items);
            if (online) {
                refuse_late(dispatcher, app, entry, late_at(dispatcher, app, variant, &query) > dispatcher->now_ns);
            }
            bump(&app->counters.rejected, 1);
            finish_close_to(dispatcher, entry, LEAT_OUTCOME_REJECTED, LEAT_REASON_DEADLINE, closest);
            return;
        }
    }
    if (app->drop_late) {
        app->next_expiry_ns = entry->deadline_ns < app->next_expiry_ns ? entry->deadline_ns : app->next_expiry_ns;
    }
    leat_dispatcher_deal(dispatcher, app, rank, &query);
    enter(dispatcher, app, waiting, entry, &query);
    if (LEAT_UNLIKELY(probed != LEAT_PROBING_NONE)) {
        probe(dispatcher, app, probed);
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
    const uint32_t variant = fastest_for(sweep->dispatcher, sweep->app, sweep->rank, query, &reason, &closest);
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
    const uint64_t end_ns = give_up_at(sweep->dispatcher, app, entry);
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

/* ---- Deciding and handing over ---------------------------------------------------------------- */

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

/* The worker has one batch more, or one less. */
static void
count_batch(struct leat_dispatcher *dispatcher, uint32_t worker_index, int by)
{
    dispatcher->sched_workers[worker_index].outstanding += (uint32_t)by;
    leat_dispatcher_note_room(dispatcher, worker_index);
}

static const struct batch_record *
oldest_batch(const struct leat_dispatcher *dispatcher, uint32_t worker_index)
{
    const struct worker_record *record = &dispatcher->records[worker_index];
    return &record->batches[(record->batch_tail - dispatcher->sched_workers[worker_index].outstanding) &
                            (LEAT_WORKER_BATCHES - 1)];
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

static void
learn_steps(struct leat_application *app, uint32_t variant, uint32_t step_permille)
{
    const uint32_t kept = app->step_permille[variant], seen = step_permille > 0 ? step_permille : 1;

    app->step_permille[variant] = (uint16_t)(kept == 0 ? seen : ((STEPS_KEPT - 1) * kept + seen) / STEPS_KEPT);
}

/* The batch is the worker's, and no other is to be counted on before it. */
static void
note_yielding(struct leat_dispatcher *dispatcher, uint32_t worker_index, bool yielding)
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
    count_batch(dispatcher, worker_index, 1);
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
        cell->deadline_ns = give_up_at(dispatcher, app, entry);
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
        note_yielding(dispatcher, worker_index, true);
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
        (void)fastest_for(dispatcher, app, rank, &route->pending[pair.query], &reason, &closest);
        bump(&app->counters.rejected, 1);
        finish_close_to(dispatcher, &list->entries[list->head + pair.query], LEAT_OUTCOME_REJECTED, reason, closest);
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

static struct leat_route_input
route_input(struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank)
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

/* Gives the online query that came last to the worker at this place among those that serve it, whatever the router would say. */
static void
probe(struct leat_dispatcher *dispatcher, struct leat_application *app, uint32_t place)
{
    const struct leat_route_input route = route_input(dispatcher, app, LEAT_RANK_ONLINE);
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
    struct leat_route_input route = route_input(dispatcher, app, rank);
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

/*
 * Decides for one rank of an application until its router leaves what waits for later. A queue that stays as it is, before workers that
 * stay as they are, is shown again only where a worker has room: time alone may change a router's mind.
 */
static void
decide_for(struct leat_dispatcher *dispatcher, struct leat_application *app, enum leat_rank rank)
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
        decide_for(dispatcher, app, rank);
        app->decided_ranks |= bit;
    }
}

/*
 * Every application with waiting queries gets decisions until no worker has room for it. What runs of pipelines have begun is ended
 * before others begin: a run that waits between two stages may be too late for the second, and the first was for nothing.
 */
static void
decide_all(struct leat_dispatcher *dispatcher)
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

/* ---- Reports from the workers ----------------------------------------------------------------- */

void
leat_dispatcher_keep_reserve(struct leat_application *app)
{
    const uint64_t objective_ns = app->policy != NULL ? app->policy->objective_ns : app->latency_ns;
    atomic_store_explicit(&app->reserve_ns, leat_reserve_ns(&app->reserve, objective_ns), memory_order_relaxed);
}

/* What it ended later than predicted says how early the next ones are to end. */
static void
learn_reserve(const struct leat_dispatcher *dispatcher, struct leat_application *app, const struct batch_record *batch)
{
    const uint64_t took_ns = dispatcher->now_ns - batch->handed_ns;

    if (batch->predicted_ns > 0) {
        leat_reserve_learn(&app->reserve, took_ns, batch->predicted_ns, app->policy != NULL ? app->policy->spread_permille : 0);
        leat_dispatcher_keep_reserve(app);
    }
}

static void
publish_lag(const struct leat_dispatcher *dispatcher, uint32_t worker_index)
{
    const bool behind = dispatcher->records[worker_index].lag.behind;
    _Atomic bool *published = &dispatcher->options.workers[worker_index]->behind;

    if (LEAT_UNLIKELY(atomic_load_explicit(published, memory_order_relaxed) != behind)) {
        atomic_store_explicit(published, behind, memory_order_relaxed);
    }
}

/* What the batch says of its instance, and of its worker: nothing, where not all of it ran as it should. */
static void
end_batch(struct leat_dispatcher *dispatcher, struct leat_application *app, uint32_t worker_index,
          const struct batch_record *batch, const struct leat_done_cell *done)
{
    struct worker_record *record = &dispatcher->records[worker_index];
    const bool whole = done->queries > done->expired + done->refused && done->failed == 0;
    const uint16_t class = done->shape.worker_class;
    const uint64_t waited_ns = batch->arrived_ns + done->paused_ns; /* it may have ended behind the time of this round */
    const struct leat_instance_batch ended = {
        .run_ns = done->exec_ns,
        .profiled_ns = whole ? leat_instances_expected_ns(&app->instances, batch->variant, class, done->items,
                                                          &app->profiles[batch->variant][class])
                             : 0,
        .response_ns = dispatcher->now_ns > waited_ns ? dispatcher->now_ns - waited_ns : 0,
        .items = done->items,
    };
    leat_instance_end(&leat_instances_of(&app->instances, worker_index)[batch->variant], &record->shared,
                      dispatcher->now_ns, &ended);
    if (batch->online && batch->ready_ns > 0 && ended.profiled_ns > 0) { /* who waits for what is offline has time */
        leat_lag_note(&record->lag, worker_index, &dispatcher->usual_lag,
                      &(struct leat_lag_begin){.slept = batch->slept,
                                               .lag_ns = done->start_ns > batch->ready_ns ? done->start_ns - batch->ready_ns : 0,
                                               .profiled_ns = ended.profiled_ns});
        publish_lag(dispatcher, worker_index);
    }
}

void
leat_dispatcher_end_resize(struct leat_dispatcher *dispatcher, uint32_t worker_index, uint64_t effect_ns)
{
    struct worker_record *record = &dispatcher->records[worker_index];
    const struct leat_event event = {.kind = LEAT_EVENT_RESIZED, .resize = record->resize};

    record->resize->effect_ns = effect_ns;
    record->resize = NULL;
    leat_dispatcher_send(dispatcher, &event);
}

/* The last of those that may have begun in a shape before. */
static void
take_last_of_shape(struct leat_dispatcher *dispatcher, uint32_t worker_index, const struct leat_done_cell *done)
{
    const struct leat_team_shape shape = dispatcher->records[worker_index].resize->shape;
    const bool taken = done->shape.cores == shape.cores && done->shape.worker_class == shape.worker_class;

    leat_dispatcher_end_resize(dispatcher, worker_index,
                               taken ? done->start_ns : done->start_ns + done->exec_ns + done->paused_ns);
}

/* What the batch says of its variant, its instance and its class. Nobody waits for that: who is free gets work first. */
static void
learn(struct leat_dispatcher *dispatcher, const struct lesson *lesson)
{
    const struct batch_record *batch = &lesson->batch;
    const struct leat_done_cell *done = &lesson->done;
    struct leat_application *app = dispatcher->applications[batch->application];
    const uint32_t ran = done->queries - done->expired - done->refused;
    const uint16_t class = done->shape.worker_class;

    bump(&app->counters.busy_ns, batch->online ? done->exec_ns : 0);
    bump(&app->counters.expired, done->expired);
    bump(&app->counters.rejected, done->refused);
    bump(&dispatcher->statistics.rejected_malformed, done->refused);
    app->late_queries += batch->online ? done->expired : 0;
    bump(&app->counters.failed, done->failed);
    bump(&app->counters.ok, ran - done->failed);
    if (app->selector->when_idle && batch->online && ran > 0 && class == batch->class) {
        learn_reserve(dispatcher, app, batch);
    }
    if (app->selector->ended != NULL && batch->online && ran > 0 && done->failed == 0) {
        app->selector->ended(app->selector_state, batch->variant, done->items, done->exec_ns);
    }
    leat_probing_end(&app->probing[batch->class], batch->probe, dispatcher->now_ns, batch->predicted_ns,
                     done->exec_ns);
    if (ran > 0 && done->failed == 0) {
        leat_profile_learn(&app->profiles[batch->variant][class], done->items, done->exec_ns);
    }
    if (LEAT_UNLIKELY(done->gave_way) && ran > 0 && done->failed == 0) {
        learn_steps(app, batch->decided, done->step_permille);
    }
    if (LEAT_LIKELY(app->instances.all != NULL)) {
        end_batch(dispatcher, app, lesson->worker, batch, done);
    }
}

static void
learn_all(struct leat_dispatcher *dispatcher)
{
    for (uint32_t i = 0; i < dispatcher->lesson_count; i++) {
        learn(dispatcher, &dispatcher->lessons[i]);
    }
    dispatcher->lesson_count = 0;
}

/* Of a batch that gave way, which nothing was predicted of. */
static void
take_yielding(struct leat_dispatcher *dispatcher, uint32_t worker_index, const struct leat_done_cell *done)
{
    struct worker_record *record = &dispatcher->records[worker_index];

    LEAT_ASSERT(leat_worker_set_has(&dispatcher->yielding, worker_index));
    for (uint32_t i = 0; i < done->queries; i++) {
        struct leat_daemon_session *session = session_at(dispatcher, record->yielding.sessions[i]);
        LEAT_ASSERT(session->dispatcher.in_flight > 0);
        session->dispatcher.in_flight--;
    }
    note_yielding(dispatcher, worker_index, false);
    record->yielding.ends = false;
    leat_dispatcher_note_room(dispatcher, worker_index);
}

/* Of a batch that passed one that gives way, which that is not to do for ever. */
static void
note_passed(struct leat_dispatcher *dispatcher, uint32_t worker_index, uint64_t exec_ns)
{
    struct worker_record *record = &dispatcher->records[worker_index];

    record->yielding.passed_ns += exec_ns;
    if (record->yielding.passed_ns >= LEAT_DISPATCHER_PAUSES_NS) {
        leat_dispatcher_end_yielding(dispatcher, worker_index);
    }
}

/* Of the worker's oldest batch; returns how many of its queries are of stages. */
static uint32_t
take_oldest(struct leat_dispatcher *dispatcher, uint32_t worker_index, const struct leat_done_cell *done)
{
    struct worker_record *record = &dispatcher->records[worker_index];
    struct leat_sched_worker *sched = &dispatcher->sched_workers[worker_index];
    uint32_t of_stages = 0;

    LEAT_ASSERT(sched->outstanding > 0);
    for (uint32_t i = 0; i < done->queries; i++) {
        const uint16_t index = record->queries[record->queries_head & (LEAT_WORKER_QUEUE - 1)].session;
        of_stages += index == LEAT_PIPELINE_SESSION;
        struct leat_daemon_session *session = session_at(dispatcher, index);
        LEAT_ASSERT(session->dispatcher.in_flight > 0);
        session->dispatcher.in_flight--;
        record->queries_head++;
    }
    count_batch(dispatcher, worker_index, -1);
    record->ends_ns = dispatcher->now_ns;
    if (sched->outstanding > 0) { /* the next one began about now */
        const uint64_t next_ns = oldest_batch(dispatcher, worker_index)->predicted_ns;
        record->ends_ns += next_ns;
        record->behind_ns -= next_ns;
    }
    sched->free_at_ns = record->ends_ns + record->behind_ns;
    return of_stages;
}

/* What it says of queries and workers, who may be waited for. The rest is to be learnt. */
static void
take_report(struct leat_dispatcher *dispatcher, uint32_t worker_index, struct lesson *lesson)
{
    struct worker_record *record = &dispatcher->records[worker_index];
    const struct leat_done_cell *done = &lesson->done;
    uint32_t of_stages = 0;

    lesson->worker = worker_index;
    lesson->batch = done->gave_way ? record->yielding.batch : *oldest_batch(dispatcher, worker_index);
    struct leat_application *app = dispatcher->applications[lesson->batch.application];
    LEAT_ASSERT(app != NULL && app->running >= done->queries);
    app->running -= done->queries;
    if (LEAT_UNLIKELY(done->gave_way)) {
        take_yielding(dispatcher, worker_index, done);
    } else {
        LEAT_ASSERT(app->running_batches > 0);
        app->running_batches--;
        of_stages = take_oldest(dispatcher, worker_index, done);
        if (LEAT_UNLIKELY(leat_worker_set_has(&dispatcher->yielding, worker_index))) {
            note_passed(dispatcher, worker_index, done->exec_ns);
        }
    }
    if (LEAT_UNLIKELY(record->resize != NULL) && --record->resize->batches == 0) {
        take_last_of_shape(dispatcher, worker_index, done);
    }
    if (LEAT_UNLIKELY(of_stages > 0)) {
        leat_dispatcher_take_answers(dispatcher, worker_index, &lesson->batch, done);
    }
}

static bool
poll_workers(struct leat_dispatcher *dispatcher)
{
    bool any = false;

    for (uint32_t w = 0; w < dispatcher->options.worker_count; w++) {
        while (leat_worker_poll_done(dispatcher->options.workers[w], &dispatcher->lessons[dispatcher->lesson_count].done)) {
            take_report(dispatcher, w, &dispatcher->lessons[dispatcher->lesson_count]);
            if (LEAT_UNLIKELY(++dispatcher->lesson_count == LESSONS)) {
                learn_all(dispatcher);
            }
            any = true;
        }
    }
    return any;
}

/* ---- Instances -------------------------------------------------------------------------------- */

/* An application's, from the worker on that the last round left off at; false when the budget did not do for all. */
static bool
evaluate_application(struct leat_dispatcher *dispatcher, struct leat_application *app, uint32_t *budget)
{
    const uint64_t items = app->waiting[LEAT_RANK_ONLINE].items + app->waiting[LEAT_RANK_LATE].items;
    const struct leat_instance_demand demand = {
        .rate_qps = leat_load_rate_qps(&app->load, dispatcher->now_ns),
        .waiting_items = (uint32_t)(items < UINT32_MAX ? items : UINT32_MAX),
        .worker_count = app->serving[LEAT_RANK_ONLINE].count,
    };
    const struct leat_instance_demand nothing = {.worker_count = demand.worker_count}; /* of those that run what is offline alone */
    uint32_t *worker = &dispatcher->evaluation.worker;

    for (; *worker < app->instances.worker_count; ++*worker) {
        if (*budget < app->instances.variant_count) {
            return false;
        }
        *budget -= app->instances.variant_count;
        const bool asked = leat_worker_set_has(&app->serving[LEAT_RANK_ONLINE].set, *worker);
        if (leat_instances_evaluate(&app->instances, *worker, &dispatcher->records[*worker].shared,
                                    asked ? &demand : &nothing)) {
            leat_dispatcher_tell_jump(dispatcher, app);
        }
    }
    for (uint32_t v = 0; v < app->instances.variant_count; v++) {
        for (uint32_t class = 0; class < dispatcher->class_count; class++) {
            leat_instances_doubt(&app->instances, v, class, app->sched_variants[v].items_max, &app->profiles[v][class]);
        }
    }
    return true;
}

/* What one query takes at the least, of those that are asked. */
static void
note_briefest(struct leat_dispatcher *dispatcher, struct leat_application *app)
{
    app->asked_lately = app->load.queries != app->queries_seen ? ASKED_LATELY : app->asked_lately - (app->asked_lately > 0);
    app->queries_seen = app->load.queries;
    for (uint32_t v = 0; v < app->variant_count && app->asked_lately > 0; v++) {
        const uint64_t time_ns = leat_application_least_ns(app, v, 1, dispatcher->class_count, 0);
        if (time_ns > 0 && time_ns < dispatcher->evaluation.briefest_ns) {
            dispatcher->evaluation.briefest_ns = time_ns;
        }
    }
}

/* All instances once an interval, a part of them in each round until all had their turn; true while some have not. */
static bool
evaluate_instances(struct leat_dispatcher *dispatcher)
{
    uint32_t budget = EVALUATIONS_PER_ROUND;

    if (LEAT_LIKELY(dispatcher->now_ns < dispatcher->evaluation.at_ns)) {
        return false;
    }
    for (; dispatcher->evaluation.application < dispatcher->application_top; dispatcher->evaluation.application++) {
        struct leat_application *app = dispatcher->applications[dispatcher->evaluation.application];
        if (budget == 0 || (app != NULL && !evaluate_application(dispatcher, app, &budget))) {
            return true;
        }
        if (app != NULL) {
            note_briefest(dispatcher, app);
        }
        dispatcher->evaluation.worker = 0;
        budget -= budget > 0;
    }
    dispatcher->briefest_ns = dispatcher->evaluation.briefest_ns;
    dispatcher->evaluation.briefest_ns = LEAT_NO_DEADLINE;
    dispatcher->usual_lag = (struct leat_lag_usual){0};
    for (uint32_t w = 0; w < dispatcher->options.worker_count; w++) {
        leat_lag_age(&dispatcher->records[w].lag, w, &dispatcher->usual_lag);
        publish_lag(dispatcher, w);
    }
    dispatcher->evaluation.application = 0;
    dispatcher->evaluation.at_ns = dispatcher->now_ns + LEAT_INSTANCE_INTERVAL_NS;
    return false;
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
    bool any = poll_workers(dispatcher);
    for (uint32_t i = 0; i < dispatcher->active_count; i++) {
        any = poll_session(dispatcher, dispatcher->active[i]) || any;
    }
    any = leat_dispatcher_make_queries(dispatcher) || any;
    sweep_lists(dispatcher); /* after the last cancel, before the first decision */
    any = drain_queue(dispatcher) || any;
    decide_all(dispatcher);
    learn_all(dispatcher);
    any = leat_dispatcher_take_refusals(dispatcher) || any;
    any = evaluate_instances(dispatcher) || any;
    any = poll_commands(dispatcher) || any;
    if (LEAT_UNLIKELY(dispatcher->closing_count > 0 || dispatcher->removing_count > 0 || dispatcher->draining)) {
        leat_dispatcher_settle(dispatcher);
    }
    bump(&dispatcher->statistics.rounds, 1);
    return any;
}

/* Asserts that nothing waits in an application's list that the round should have taken out of it. */
static void
check_waiting(const struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank)
{
    const struct leat_waiting *waiting = &app->waiting[rank];
    uint64_t items = 0, positions = 0, barred = 0;

    for (uint32_t i = waiting->head; i < waiting->tail; i++) {
        const struct leat_query_entry *entry = &waiting->entries[i];
        const bool taken_back = entry->session == LEAT_PIPELINE_SESSION && app->sweep_due; /* after the last sweep */
        LEAT_ASSERT(entry->application == app->id && (rank == LEAT_RANK_OFFLINE) == entry->offline);
        LEAT_ASSERT(taken_back || !was_cancelled(dispatcher, entry));
        LEAT_ASSERT(rank != LEAT_RANK_LATE || waiting->queries[i].deadline_ns == LEAT_NO_DEADLINE);
        LEAT_ASSERT(app->sweep_due || !session_at(dispatcher, entry->session)->dispatcher.closing);
        LEAT_ASSERT(!app->drop_late || app->next_expiry_ns <= entry->deadline_ns);
        LEAT_ASSERT(rank != LEAT_RANK_LATE || app->next_expiry_ns <= app->late_expiry_ns);
        items += waiting->queries[i].items;
        positions += (uint64_t)waiting->queries[i].items * waiting->queries[i].length;
        barred += waiting->queries[i].barred_classes != 0;
    }
    LEAT_ASSERT(barred == waiting->barred && items == waiting->items && positions == waiting->positions);
    LEAT_ASSERT(leat_waiting_count(waiting) <= app->waiting_max && app->queued[rank] == 0);
}

static bool
waits(const struct leat_waiting *waiting, const struct leat_daemon_session *session, uint32_t slot)
{
    for (uint32_t i = waiting->head; i < waiting->tail; i++) {
        const struct leat_query_entry *entry = &waiting->entries[i];
        if (entry->session == session->index && entry->slot == slot &&
            entry->ticket_low == session->dispatcher.slots[slot].ticket_low) {
            return true;
        }
    }
    return false;
}

/* Asserts that what a cancel would find in the session's slots does wait. */
static void
check_slots(const struct leat_dispatcher *dispatcher, const struct leat_daemon_session *session)
{
    for (uint32_t s = 0; s < session->slots; s++) {
        const struct leat_waiting_slot *slot = &session->dispatcher.slots[s];
        bool found = false;
        LEAT_ASSERT(slot->state != LEAT_SLOT_CANCELLED || session->index == LEAT_PIPELINE_SESSION);
        if (slot->state == LEAT_SLOT_IDLE) {
            continue;
        }
        if (slot->application >= LEAT_PIPELINE_TARGET) {
            leat_dispatcher_check_run_slot(dispatcher, session, s);
            continue;
        }
        const struct leat_application *app = dispatcher->applications[slot->application];
        LEAT_ASSERT(app != NULL);
        for (uint32_t rank = 0; rank < LEAT_RANKS && !found; rank++) {
            found = waits(&app->waiting[rank], session, s);
        }
        LEAT_ASSERT(found);
    }
}

/* Asserts that those serve it that do: its own, with those for all for what is offline; or those for all, or whoever is for anybody. */
static void
check_serving(const struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank)
{
    const struct leat_serving *serving = &app->serving[rank];
    uint32_t own = 0, common = 0, count = 0, classes = 0;

    for (uint32_t w = 0; w < dispatcher->options.worker_count; w++) {
        own += dispatcher->records[w].owner == app->id;
        common += dispatcher->records[w].owner == LEAT_WORKER_FOR_ALL;
    }
    for (uint32_t w = 0; w < dispatcher->options.worker_count; w++) {
        const uint16_t owner = dispatcher->records[w].owner;
        const bool for_all = owner == LEAT_WORKER_FOR_ALL;
        const bool serves = own > 0      ? owner == app->id || (rank == LEAT_RANK_OFFLINE && for_all)
                            : common > 0 ? for_all
                                         : owner != LEAT_WORKER_FOR_NOBODY;
        LEAT_ASSERT(leat_worker_set_has(&serving->set, w) == serves && (!serves || serving->at[count] == w));
        classes |= (uint32_t)serves << dispatcher->records[w].class;
        count += serves;
    }
    LEAT_ASSERT(count > 0 && count == serving->count && classes == serving->classes && serving->own == (own > 0));
}

/* Queries that the applications hold, waiting or running; asserts that the busy list names those that wait, once. */
static uint64_t
check_applications(const struct leat_dispatcher *dispatcher)
{
    uint64_t held = 0, busy = 0;

    LEAT_ASSERT(dispatcher->busy_count <= LEAT_APPLICATIONS_MAX);
    for (uint32_t id = 0; id < dispatcher->application_top; id++) {
        const struct leat_application *app = dispatcher->applications[id];
        uint32_t named = 0;
        for (uint32_t b = 0; b < dispatcher->busy_count; b++) {
            named += dispatcher->busy[b] == id;
        }
        LEAT_ASSERT(named <= 1 && named == (app != NULL && app->busy));
        busy += named;
        if (app == NULL) {
            continue;
        }
        const uint32_t waiting = leat_waiting_total(app->waiting);
        LEAT_ASSERT(app->id == id && (waiting == 0 || (app->busy && !app->removing)));
        LEAT_ASSERT(app->busy || !app->sweep_due);
        for (uint32_t rank = 0; rank < LEAT_RANKS; rank++) {
            check_serving(dispatcher, app, rank);
            check_waiting(dispatcher, app, rank);
        }
        held += waiting + app->running;
    }
    LEAT_ASSERT(busy == dispatcher->busy_count);
    return held;
}

void
leat_dispatcher_check(const struct leat_dispatcher *dispatcher)
{
    const struct leat_central_queue *queue = &dispatcher->queue;
    const uint64_t queued = atomic_load_explicit(&queue->tail, memory_order_relaxed) - queue->head;
    const uint64_t held = check_applications(dispatcher);
    uint64_t in_flight = 0;

    for (uint32_t i = 0; i < dispatcher->active_count + dispatcher->closing_count; i++) {
        const bool closing = i >= dispatcher->active_count;
        const struct leat_daemon_session *session =
            closing ? dispatcher->closing[i - dispatcher->active_count] : dispatcher->active[i];
        LEAT_ASSERT(session_at(dispatcher, session->index) == session && session->dispatcher.closing == closing);
        LEAT_ASSERT(session->dispatcher.in_flight <= in_flight_max(dispatcher, session));
        in_flight += session->dispatcher.in_flight;
        if (queued == 0) { /* else the query may be in the central queue */
            check_slots(dispatcher, session);
        }
    }
    const uint64_t runs = leat_dispatcher_check_pipelines(dispatcher);
    if (dispatcher->pipelines.session != NULL) {
        in_flight += dispatcher->pipelines.session->dispatcher.in_flight;
        if (queued == 0) {
            check_slots(dispatcher, dispatcher->pipelines.session);
        }
    }
    LEAT_ASSERT(in_flight == queued + held + runs);
    for (uint32_t w = 0; w < dispatcher->options.worker_count; w++) {
        const struct leat_worker *worker = dispatcher->options.workers[w];
        const struct worker_record *record = &dispatcher->records[w];
        const bool yielding = worker->dispatcher.yielding;
        const uint32_t outstanding = dispatcher->sched_workers[w].outstanding;
        LEAT_ASSERT(leat_worker_set_has(&dispatcher->yielding, w) == yielding);
        LEAT_ASSERT(outstanding + yielding == worker->dispatcher.batches);
        LEAT_ASSERT(worker->dispatcher.work_position - record->queries_head <= worker->dispatcher.queries - yielding);
        LEAT_ASSERT(yielding || worker->dispatcher.work_position - record->queries_head == worker->dispatcher.queries);
        LEAT_ASSERT(worker->dispatcher.queries <= LEAT_WORKER_QUEUE);
        LEAT_ASSERT(worker->dispatcher.batches <= LEAT_WORKER_BATCHES);
        LEAT_ASSERT(outstanding > 1 || record->behind_ns == 0);
        LEAT_ASSERT(record->class == dispatcher->sched_workers[w].worker_class);
        LEAT_ASSERT(record->resize == NULL ||
                    (record->resize->batches > 0 && record->resize->batches <= worker->dispatcher.batches));
        const uint32_t depth = dispatcher->sched_workers[w].depth;
        const bool ends = record->yielding.ends;
        LEAT_ASSERT(!ends || yielding);
        LEAT_ASSERT(leat_worker_set_has(&dispatcher->idle, w) == (outstanding == 0 && depth > 0 && !ends));
        LEAT_ASSERT(leat_worker_set_has(&dispatcher->room, w) == (outstanding < depth && !ends));
        LEAT_ASSERT(record->owner >= LEAT_APPLICATIONS_MAX || dispatcher->applications[record->owner] != NULL);
    }
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
