/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/dispatcher_private.h"

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
