/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/dispatcher_private.h"

#include "sched/policy_table.h"

enum {
    STEPS_KEPT = 4,          /* what a batch says of steps counts for this part */
    ASKED_LATELY = 10,       /* evaluations without an online query, after which an application is not being asked */
    EVALUATIONS_PER_ROUND = 256, /* of instances and applications, so that a round stays short */
};

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

static void
learn_steps(struct leat_application *app, uint32_t variant, uint32_t step_permille)
{
    const uint32_t kept = app->step_permille[variant], seen = step_permille > 0 ? step_permille : 1;

    app->step_permille[variant] = (uint16_t)(kept == 0 ? seen : ((STEPS_KEPT - 1) * kept + seen) / STEPS_KEPT);
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

void
leat_dispatcher_learn_all(struct leat_dispatcher *dispatcher)
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
    leat_dispatcher_note_yielding(dispatcher, worker_index, false);
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
    leat_dispatcher_count_batch(dispatcher, worker_index, -1);
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

bool
leat_dispatcher_poll_workers(struct leat_dispatcher *dispatcher)
{
    bool any = false;

    for (uint32_t w = 0; w < dispatcher->options.worker_count; w++) {
        while (leat_worker_poll_done(dispatcher->options.workers[w], &dispatcher->lessons[dispatcher->lesson_count].done)) {
            take_report(dispatcher, w, &dispatcher->lessons[dispatcher->lesson_count]);
            if (LEAT_UNLIKELY(++dispatcher->lesson_count == LESSONS)) {
                leat_dispatcher_learn_all(dispatcher);
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

bool
leat_dispatcher_evaluate_instances(struct leat_dispatcher *dispatcher)
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
