/* SPDX-License-Identifier: Apache-2.0 */
/* What the dispatcher is told: sessions, applications and pipelines come and go, once nothing refers to them any more. */
#include <string.h>
#include <sys/epoll.h>

#include "runtime/dispatcher_private.h"

static void
add_session(struct leat_dispatcher *dispatcher, struct leat_daemon_session *session)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = session};

    LEAT_ASSERT(dispatcher->active_count < LEAT_SESSIONS_MAX);
    LEAT_MUST(epoll_ctl(dispatcher->epoll_fd, EPOLL_CTL_ADD, session->wake_fd, &event) == 0);
    dispatcher->active[dispatcher->active_count++] = session;
}

/* What waits of a dead session is dropped in the next round; what runs finishes into memory that stays mapped. */
static void
close_session(struct leat_dispatcher *dispatcher, struct leat_daemon_session *session)
{
    session->dispatcher.closing = true;
    atomic_store_explicit(&session->dead, true, memory_order_relaxed);
    atomic_store_explicit(&session->rings->state, LEAT_WIRE_CLOSED, memory_order_relaxed); /* publishes nothing */
    for (uint32_t i = 0; i < dispatcher->active_count; i++) {
        if (dispatcher->active[i] == session) {
            dispatcher->active[i] = dispatcher->active[--dispatcher->active_count];
            break;
        }
    }
    LEAT_MUST(epoll_ctl(dispatcher->epoll_fd, EPOLL_CTL_DEL, session->wake_fd, NULL) == 0);
    bump(&dispatcher->statistics.abandoned, session->dispatcher.in_flight);
    if (session->dispatcher.in_flight > 0) {
        leat_dispatcher_leave_runs(dispatcher, session);
    }
    for (uint32_t b = 0; b < dispatcher->busy_count && session->dispatcher.in_flight > 0; b++) {
        dispatcher->applications[dispatcher->busy[b]]->sweep_due = true;
    }
    dispatcher->closing[dispatcher->closing_count++] = session;
}

static bool
refuse(void *context, const struct leat_query_entry *entry, const struct leat_sched_query *query)
{
    (void)query;
    leat_dispatcher_finish(context, entry, LEAT_OUTCOME_REJECTED, LEAT_REASON_TARGET);
    return false;
}

/* To be called whenever an application or a pipeline comes, changes or goes. */
static void
find_tightest(struct leat_dispatcher *dispatcher)
{
    dispatcher->tightest_ns = LEAT_NO_DEADLINE;
    for (uint32_t id = 0; id < dispatcher->application_top; id++) {
        const struct leat_application *app = dispatcher->applications[id];
        if (app != NULL && !app->removing && app->latency_ns != 0 && app->latency_ns < dispatcher->tightest_ns) {
            dispatcher->tightest_ns = app->latency_ns;
        }
    }
    for (uint32_t p = 0; p < LEAT_PIPELINES_MAX; p++) {
        const struct leat_pipeline *pipeline = dispatcher->pipelines.all[p];
        if (pipeline != NULL && !pipeline->removing && pipeline->latency_ns != 0 && pipeline->latency_ns < dispatcher->tightest_ns) {
            dispatcher->tightest_ns = pipeline->latency_ns;
        }
    }
}

/* It goes once nothing of it runs: what gives way is not to wait for others meanwhile. */
static void
hurry(struct leat_dispatcher *dispatcher, const struct leat_application *app)
{
    dispatcher->removing_count++;
    for (uint32_t w = 0; w < dispatcher->options.worker_count; w++) {
        if (dispatcher->records[w].yielding.batch.application == app->id) {
            leat_dispatcher_end_yielding(dispatcher, w);
        }
    }
}

static void
remove_application(struct leat_dispatcher *dispatcher, struct leat_application *app)
{
    app->removing = true;
    find_tightest(dispatcher);
    hurry(dispatcher, app);
    for (uint32_t rank = 0; rank < LEAT_RANKS; rank++) {
        leat_waiting_filter(&app->waiting[rank], refuse, dispatcher);
    }
}

/* What it knows of a variant that the other has too, unless that shall begin anew. */
static void
pass_profiles_on(const struct leat_application *app, struct leat_application *successor)
{
    for (uint32_t v = 0; v < successor->variant_count + successor->shorter_count; v++) {
        for (uint32_t own = 0; own < app->variant_count + app->shorter_count && (successor->fresh >> v & 1) == 0; own++) {
            if (app->variants[own] == successor->variants[v]) {
                successor->step_permille[v] = app->step_permille[own];
                if (app->instances.all != NULL) {
                    leat_instances_pass_on(&app->instances, own, &successor->instances, v);
                }
                for (uint32_t class = 0; class < LEAT_WORKER_CLASSES_MAX; class++) {
                    const uint32_t quantile_ppm = successor->profiles[v][class].quantile_ppm;
                    if (app->profiles[own][class].quantile_ppm == quantile_ppm) {
                        successor->profiles[v][class] = app->profiles[own][class];
                    } else {
                        leat_profile_init(&successor->profiles[v][class], quantile_ppm, &app->profiles[own][class]);
                    }
                }
            }
        }
    }
}

static void
pass_counters_on(const struct leat_application_counters *from, struct leat_application_counters *to)
{
    const _Atomic uint64_t *const old[] = {&from->accepted,  &from->ok,     &from->rejected, &from->expired,
                                           &from->cancelled, &from->failed, &from->batches,  &from->busy_ns};
    _Atomic uint64_t *const new[] = {&to->accepted, &to->ok, &to->rejected, &to->expired, &to->cancelled, &to->failed, &to->batches,
                                     &to->busy_ns};

    for (size_t c = 0; c < LEAT_COUNT_OF(old); c++) {
        bump(new[c], atomic_load_explicit(old[c], memory_order_relaxed));
    }
}

static void
pass_waiting_on(struct leat_dispatcher *dispatcher, const struct leat_application *app, struct leat_application *successor,
                enum leat_rank rank)
{
    const struct leat_waiting *from = &app->waiting[rank];
    struct leat_waiting *to = &successor->waiting[rank];

    for (uint32_t i = from->head; i < from->tail; i++) {
        if (leat_waiting_count(to) < successor->waiting_max) {
            struct leat_sched_query query = from->queries[i];
            query.barred_classes = leat_dispatcher_barred_classes(successor, rank, &query);
            leat_dispatcher_deal(dispatcher, successor, rank, &query);
            leat_waiting_push(to, &from->entries[i], &query);
        } else {
            bump(&successor->counters.rejected, 1);
            leat_dispatcher_finish(dispatcher, &from->entries[i], LEAT_OUTCOME_REJECTED, LEAT_REASON_QUEUE_FULL);
        }
    }
}

/* Nothing of it runs: the successor has its place from now on. */
static void
take_over(struct leat_dispatcher *dispatcher, struct leat_application *app)
{
    struct leat_application *successor = app->successor;

    LEAT_ASSERT(app->running == 0 && successor->id == app->id && !app->removing);
    app->successor = NULL;
    pass_counters_on(&app->counters, &successor->counters);
    pass_profiles_on(app, successor);
    leat_histogram_merge(&successor->sizes, &app->sizes);
    successor->load = app->load;
    successor->turned_away_items = app->turned_away_items;
    successor->late_queries = app->late_queries;
    successor->jump_items = app->jump_items;
    successor->queries_seen = app->queries_seen;
    successor->asked_lately = app->asked_lately;
    successor->reserve = app->reserve;
    memcpy(successor->serving, app->serving, sizeof(successor->serving));
    successor->decided_ranks = app->decided_ranks;
    leat_dispatcher_keep_reserve(successor);
    successor->busy = app->busy;
    successor->sweep_due = app->busy;
    successor->next_expiry_ns = successor->late_expiry_ns = app->busy ? 0 : LEAT_NO_DEADLINE; /* the next sweep finds it */
    for (uint32_t rank = 0; rank < LEAT_RANKS; rank++) {
        pass_waiting_on(dispatcher, app, successor, rank);
    }
    dispatcher->applications[app->id] = successor;
    find_tightest(dispatcher);
}

static void
copy_profiles(struct leat_dispatcher *dispatcher, struct leat_profile_copy *copy)
{
    struct leat_application *app = dispatcher->applications[copy->application];
    const struct leat_event event = {.kind = LEAT_EVENT_PROFILES_COPIED, .profiles = copy};

    copy->found = app != NULL && strcmp(app->name, copy->name) == 0 && copy->variant < app->variant_count + app->shorter_count;
    if (copy->found) {
        memcpy(copy->profiles, app->profiles[copy->variant], sizeof(copy->profiles));
        copy->rate_qps = leat_load_rate_qps(&app->load, dispatcher->now_ns);
        copy->rising_qps = leat_load_rising_qps(&app->load, dispatcher->now_ns);
        copy->waiting_items = app->waiting[LEAT_RANK_ONLINE].items;
        app->jump_items = copy->jump_items > 0 ? copy->waiting_items + copy->jump_items : app->jump_items;
        copy->dispersion_ppm = leat_load_dispersion_ppm(&app->load, dispatcher->now_ns);
        copy->queries = app->load.queries;
        copy->items = app->load.items;
        copy->admitted_items = app->load.items - app->turned_away_items;
        copy->late_queries = app->late_queries;
    }
    leat_dispatcher_send(dispatcher, &event);
}

static void
set_policy(struct leat_dispatcher *dispatcher, struct leat_policy_change *change)
{
    struct leat_application *app = dispatcher->applications[change->application];
    const struct leat_event event = {.kind = LEAT_EVENT_POLICY_SET, .policy = change};

    change->done = app != NULL && app->generation == change->generation;
    if (change->done) {
        void *state = app->selector_state;
        struct leat_policy *policy = app->policy;
        app->selector_state = change->state;
        app->policy = change->policy;
        for (uint32_t rank = 0; rank < LEAT_RANKS; rank++) {
            app->waiting[rank].look_at_ns = 0; /* it may want what the last one left */
        }
        change->state = state;
        change->policy = policy;
    }
    leat_dispatcher_send(dispatcher, &event);
}

/* A cap holds for the classes that have workers, and a number for one of these: they are other ones now. */
static void
bar_again(const struct leat_dispatcher *dispatcher, struct leat_application *app)
{
    for (uint32_t rank = 0; rank < LEAT_RANKS; rank++) {
        struct leat_waiting *waiting = &app->waiting[rank];
        waiting->barred = 0;
        for (uint32_t i = waiting->head; i < waiting->tail; i++) {
            struct leat_sched_query *query = &waiting->queries[i];
            query->barred_classes = leat_dispatcher_barred_classes(app, rank, query);
            waiting->barred += query->barred_classes != 0;
            leat_dispatcher_deal(dispatcher, app, rank, query);
        }
    }
}

struct leat_serving
leat_dispatcher_serving(const struct leat_dispatcher *dispatcher, uint32_t application, enum leat_rank rank)
{
    struct leat_serving serving = {.count = 0};
    uint32_t own = 0, common = 0;

    for (uint32_t w = 0; w < dispatcher->options.worker_count; w++) {
        own += dispatcher->records[w].owner == application;
        common += dispatcher->records[w].owner == LEAT_WORKER_FOR_ALL;
    }
    for (uint32_t w = 0; w < dispatcher->options.worker_count; w++) {
        const uint16_t owner = dispatcher->records[w].owner;
        const bool for_all = owner == LEAT_WORKER_FOR_ALL;
        const bool beside = for_all && rank == LEAT_RANK_OFFLINE; /* those that it has of its own */
        if (own > 0 ? owner == application || beside : common > 0 ? for_all : owner != LEAT_WORKER_FOR_NOBODY) {
            leat_worker_set_put(&serving.set, w, true);
            serving.at[serving.count++] = (uint8_t)w;
            serving.classes |= UINT32_C(1) << dispatcher->records[w].class;
        }
    }
    serving.own = own > 0;
    LEAT_ASSERT(serving.count > 0); /* control leaves somebody for them */
    return serving;
}

static void
find_serving(const struct leat_dispatcher *dispatcher, struct leat_application *app, bool has_own)
{
    for (uint32_t rank = 0; rank < LEAT_RANKS; rank++) {
        app->serving[rank] = has_own ? leat_dispatcher_serving(dispatcher, app->id, rank) : dispatcher->rest;
    }
}

/* Workers serve others, or are of other classes, than when decisions were made for what waits. */
static void
serve_anew(struct leat_dispatcher *dispatcher)
{
    bool has_own[LEAT_APPLICATIONS_MAX] = {false};

    for (uint32_t w = 0; w < dispatcher->options.worker_count; w++) {
        const uint16_t owner = dispatcher->records[w].owner;
        if (owner < LEAT_APPLICATIONS_MAX) {
            has_own[owner] = true;
        }
    }
    dispatcher->changes++;
    dispatcher->rest = leat_dispatcher_serving(dispatcher, LEAT_APPLICATIONS_MAX, LEAT_RANK_ONLINE);
    for (uint32_t id = 0; id < dispatcher->application_top; id++) {
        struct leat_application *app = dispatcher->applications[id];
        if (app != NULL) {
            find_serving(dispatcher, app, has_own[id]);
        }
    }
    for (uint32_t b = 0; b < dispatcher->busy_count; b++) {
        struct leat_application *app = dispatcher->applications[dispatcher->busy[b]];
        bar_again(dispatcher, app);
        app->next_expiry_ns = 0; /* what can be in time has changed: the next sweep finds it */
        for (uint32_t rank = 0; rank < LEAT_RANKS; rank++) {
            app->waiting[rank].look_at_ns = 0;
        }
    }
}

static void
dedicate(struct leat_dispatcher *dispatcher, struct leat_dedication *dedication)
{
    const struct leat_event event = {.kind = LEAT_EVENT_DEDICATED, .dedication = dedication};

    for (uint32_t w = 0; w < dispatcher->options.worker_count; w++) {
        uint16_t *owner = &dedication->owners[w];
        if (*owner < LEAT_APPLICATIONS_MAX &&
            (dispatcher->applications[*owner] == NULL || dispatcher->applications[*owner]->removing)) {
            *owner = LEAT_WORKER_FOR_ALL;
        }
        dispatcher->records[w].owner = *owner;
    }
    serve_anew(dispatcher);
    leat_dispatcher_send(dispatcher, &event);
}

/* Its workers are for all. */
static void
release_workers(struct leat_dispatcher *dispatcher, uint32_t application)
{
    bool any = false;

    for (uint32_t w = 0; w < dispatcher->options.worker_count; w++) {
        if (dispatcher->records[w].owner == application) {
            dispatcher->records[w].owner = LEAT_WORKER_FOR_ALL;
            any = true;
        }
    }
    if (any) {
        serve_anew(dispatcher);
    }
}

static void
resize_worker(struct leat_dispatcher *dispatcher, struct leat_resize *resize)
{
    struct worker_record *record = &dispatcher->records[resize->worker];
    struct leat_sched_worker *sched = &dispatcher->sched_workers[resize->worker];

    LEAT_ASSERT(resize != record->resize && resize->shape.worker_class < dispatcher->class_count);
    if (record->resize != NULL) {
        record->resize->replaced = true;
        leat_dispatcher_end_resize(dispatcher, resize->worker, dispatcher->now_ns);
    }
    resize->batches = leat_worker_reshape(dispatcher->options.workers[resize->worker], resize->shape);
    record->class = sched->worker_class = resize->shape.worker_class;
    sched->depth = resize->shape.cores > 0 ? dispatcher->options.worker_depth : 0;
    leat_dispatcher_end_yielding(dispatcher, resize->worker); /* which keeps to the shape that it began in */
    leat_dispatcher_note_room(dispatcher, resize->worker);
    leat_dispatcher_predict_again(dispatcher, resize->worker);
    serve_anew(dispatcher);
    record->resize = resize;
    resize->replaced = false;
    resize->idle = resize->batches == 0;
    if (resize->idle) {
        leat_dispatcher_end_resize(dispatcher, resize->worker, dispatcher->now_ns);
    }
}

void
leat_dispatcher_obey(struct leat_dispatcher *dispatcher, const struct leat_command *command)
{
    switch (command->kind) {
    case LEAT_COMMAND_ADD_SESSION:
        add_session(dispatcher, command->session);
        break;
    case LEAT_COMMAND_CLOSE_SESSION:
        close_session(dispatcher, command->session);
        break;
    case LEAT_COMMAND_ADD_APPLICATION: {
        struct leat_application *app = command->application;
        LEAT_ASSERT(app->id < LEAT_APPLICATIONS_MAX && dispatcher->applications[app->id] == NULL);
        app->next_expiry_ns = app->late_expiry_ns = LEAT_NO_DEADLINE;
        leat_load_init(&app->load, LEAT_LOAD_WINDOW_NS, dispatcher->now_ns);
        find_serving(dispatcher, app, false);
        dispatcher->applications[app->id] = app;
        dispatcher->application_top =
            app->id >= dispatcher->application_top ? app->id + 1u : dispatcher->application_top;
        find_tightest(dispatcher);
        break;
    }
    case LEAT_COMMAND_REMOVE_APPLICATION:
        remove_application(dispatcher, command->application);
        break;
    case LEAT_COMMAND_REPLACE_APPLICATION:
        dispatcher->applications[command->application->id]->successor = command->application;
        hurry(dispatcher, command->application); /* it has the other's id */
        break;
    case LEAT_COMMAND_COPY_PROFILES:
        copy_profiles(dispatcher, command->profiles);
        break;
    case LEAT_COMMAND_SET_POLICY:
        set_policy(dispatcher, command->policy);
        break;
    case LEAT_COMMAND_RESIZE:
        resize_worker(dispatcher, command->resize);
        break;
    case LEAT_COMMAND_DEDICATE:
        dedicate(dispatcher, command->dedication);
        break;
    case LEAT_COMMAND_HOLD_BACK:
        dispatcher->held_back = command->held_back;
        dispatcher->changes++; /* what waits is decided for again */
        break;
    case LEAT_COMMAND_ADD_PIPELINE:
        leat_dispatcher_add_pipeline(dispatcher, command->pipeline);
        find_tightest(dispatcher);
        break;
    case LEAT_COMMAND_REMOVE_PIPELINE:
        leat_dispatcher_remove_pipeline(dispatcher, command->pipeline);
        find_tightest(dispatcher);
        break;
    case LEAT_COMMAND_DRAIN:
        dispatcher->draining = true;
        break;
    case LEAT_COMMAND_STOP:
        dispatcher->stop = true;
        break;
    }
}

/* ---- Things that end once nothing refers to them any more ------------------------------------- */

void
leat_dispatcher_settle(struct leat_dispatcher *dispatcher)
{
    for (uint32_t i = 0; i < dispatcher->closing_count;) {
        struct leat_daemon_session *session = dispatcher->closing[i];
        if (session->dispatcher.in_flight > 0) {
            i++;
            continue;
        }
        dispatcher->closing[i] = dispatcher->closing[--dispatcher->closing_count];
        const struct leat_event event = {.kind = LEAT_EVENT_SESSION_GONE, .session = session};
        leat_dispatcher_send(dispatcher, &event);
    }
    if (dispatcher->removing_count > 0) {
        leat_dispatcher_settle_pipelines(dispatcher);
    }
    for (uint32_t id = 0; dispatcher->removing_count > 0 && id < dispatcher->application_top; id++) {
        struct leat_application *app = dispatcher->applications[id];
        if (app == NULL || (!app->removing && app->successor == NULL) || app->running > 0) {
            continue;
        }
        const struct leat_event event = {.kind = LEAT_EVENT_APPLICATION_GONE, .application = app};
        dispatcher->removing_count--;
        if (app->successor != NULL) {
            take_over(dispatcher, app);
            leat_dispatcher_send(dispatcher, &event);
            continue;
        }
        for (uint32_t b = 0; b < dispatcher->busy_count; b++) {
            if (dispatcher->busy[b] == id) {
                dispatcher->busy[b] = dispatcher->busy[--dispatcher->busy_count];
                break;
            }
        }
        dispatcher->applications[id] = NULL;
        release_workers(dispatcher, id);
        leat_dispatcher_send(dispatcher, &event);
    }
    const bool waits = dispatcher->busy_count > 0 || dispatcher->pipelines.live.first != NULL;
    if (dispatcher->draining && !dispatcher->drained_sent && !waits) {
        for (uint32_t w = 0; w < dispatcher->options.worker_count; w++) {
            if (dispatcher->options.workers[w]->dispatcher.batches > 0) {
                return;
            }
        }
        dispatcher->drained_sent = true;
        const struct leat_event event = {.kind = LEAT_EVENT_DRAINED};
        leat_dispatcher_send(dispatcher, &event);
    }
}
