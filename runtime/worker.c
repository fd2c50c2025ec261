/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/worker.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/large.h"
#include "base/slice.h"
#include "kernels/team.h"
#include "runtime/memory.h"
#include "runtime/pipeline.h"

enum { SPINS_PER_CLOCK = 32 };

/* Of one batch; first touched by the thread. */
struct batch {
    struct leat_segment segments[LEAT_BATCH_QUERIES];
    uint16_t sizes[LEAT_BATCH_QUERIES][LEAT_SIZES_MAX]; /* of each query's answer, where outputs vary */
    struct leat_work_cell queries[LEAT_BATCH_QUERIES]; /* private copies of the batch's cells */
    uint64_t paused_ns; /* so far */
};

/* What the thread alone needs. */
struct leat_worker_run {
    struct leat_worker *worker;
    struct leat_team *team;
    uint32_t shape; /* as last read */
    uint64_t work_position;
    uint64_t done_position;
    uint64_t opened; /* sessions ever opened, when it looked last */
    uint64_t spin_budget_ns; /* adaptive */
    uint64_t team_spin_ns;   /* what the team was told last */
    bool yielding;           /* inside `yields` */
    struct {
        uint64_t began_ns, longest_ns;
    } step; /* of the one that gives way: the one that it is at, and of those before */
    struct batch batch, yields; /* yields: the one that gives way */
};

/* ---- One batch -------------------------------------------------------------------------------- */

static void
respond(struct leat_worker_run *run, const struct leat_work_cell *query, const struct leat_wire_response *response)
{
    struct leat_daemon_session *session =
        atomic_load_explicit(&run->worker->options.tables->sessions[query->session], memory_order_relaxed);
    leat_daemon_session_respond(session, 1 + run->worker->options.index, response);
}

static struct leat_wire_response
response_to(const struct leat_work_cell *query, uint8_t outcome, uint64_t start_ns, uint64_t end_ns, uint32_t worker)
{
    return (struct leat_wire_response){
        .ticket_low = query->ticket_low,
        .slot = query->slot,
        .outcome = outcome,
        .variant = query->application_variant,
        .worker = (uint16_t)worker,
        .queue_ns = start_ns > query->submit_ns ? start_ns - query->submit_ns : 0,
        .exec_ns = end_ns - start_ns,
        .total_ns = end_ns > query->submit_ns ? end_ns - query->submit_ns : 0,
    };
}

/* A stage's query of a pipeline is not the client's own, whose place in the table its ticket is. */
static struct leat_daemon_session *
client_of_run(const struct leat_worker_run *run, const struct leat_work_cell *query)
{
    return atomic_load_explicit(&run->worker->options.tables->sessions[query->ticket_low], memory_order_relaxed);
}

static bool
is_of_dead_run(const struct leat_worker_run *run, const struct leat_work_cell *query)
{
    return LEAT_UNLIKELY(query->session == LEAT_PIPELINE_SESSION) &&
           atomic_load_explicit(&client_of_run(run, query)->dead, memory_order_relaxed);
}

/*
 * Of a stage's query: what is not the client's lies in the daemon's own memory. The synthetic backend leaves outputs as they are,
 * or most of them. In a workspace that is what a query of another client left there, and the next stage may show it; so those are
 * zeros first.
 */
static void
place_stage_tensors(struct leat_worker_run *run, const struct leat_daemon_session *session, const struct leat_work_cell *query,
                    const struct leat_variant *variant, struct leat_segment *segment)
{
    unsigned char *arena = client_of_run(run, query)->arena;
    const uint32_t *units =
        variant->tensor_count > LEAT_WIRE_UNITS ? session->lists[query->slot].units : query->units;

    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        const bool own = (units[t] & LEAT_PIPELINE_UNIT) != 0;
        unsigned char *tensor =
            (own ? session->arena : arena) + (uint64_t)(units[t] & ~LEAT_PIPELINE_UNIT) * LEAT_TENSOR_ALIGN;
        segment->tensors[t] = tensor;
        if (own && t >= variant->input_count && variant->backend == &leat_backend_synthetic) {
            memset(tensor, 0, variant->item_bytes[t] * segment->items);
        }
    }
}

/* By the client's list, which the dispatcher found sound. False: it is not any more. */
static bool
place_listed_tensors(const struct leat_daemon_session *session, const struct leat_work_cell *query,
                     const struct leat_variant *variant, struct leat_segment *segment)
{
    uint32_t units[LEAT_TENSORS_MAX];
    uint64_t bytes[LEAT_TENSORS_MAX];

    leat_daemon_session_copy_list(session, query->slot, variant->tensor_count, units);
    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        segment->tensors[t] = session->arena + (uint64_t)units[t] * LEAT_TENSOR_ALIGN;
        bytes[t] = variant->item_bytes[t] * segment->items;
    }
    return leat_daemon_session_holds(session, units, bytes, variant->input_count, variant->tensor_count);
}

static bool
fill_segment(struct leat_worker_run *run, const struct leat_daemon_session *session, const struct leat_work_cell *query,
             const struct leat_variant *variant, struct leat_segment *segment)
{
    segment->items = query->items_less_1 + 1u;
    segment->length = query->length;
    LEAT_ASSERT(segment->items * variant->size_count <= LEAT_SIZES_MAX || variant->size_count == 0);
    if (LEAT_UNLIKELY(query->session == LEAT_PIPELINE_SESSION)) {
        place_stage_tensors(run, session, query, variant, segment);
        return true;
    }
    if (LEAT_UNLIKELY(variant->tensor_count > LEAT_WIRE_UNITS)) {
        return place_listed_tensors(session, query, variant, segment);
    }
    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        segment->tensors[t] = session->arena + (uint64_t)query->units[t] * LEAT_TENSOR_ALIGN;
    }
    return true;
}

/*
 * Makes segments of the batch's queries, but of those that are too late, whose client is gone or whose list has changed; returns
 * how many are left to run; to the report, their items and what became of the others.
 */
static uint32_t
fill_segments(struct leat_worker_run *run, struct batch *batch, const struct leat_variant *variant, uint32_t count,
              uint64_t now_ns, struct leat_done_cell *report)
{
    struct leat_shared_tables *tables = run->worker->options.tables;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct leat_work_cell *query = &batch->queries[i];
        struct leat_daemon_session *session =
            atomic_load_explicit(&tables->sessions[query->session], memory_order_relaxed);
        struct leat_segment *segment = &batch->segments[kept];
        if (LEAT_UNLIKELY(atomic_load_explicit(&session->dead, memory_order_relaxed))) {
            continue;
        }
        const bool expired = query->deadline_ns <= now_ns || is_of_dead_run(run, query);
        if (LEAT_UNLIKELY(expired || !fill_segment(run, session, query, variant, segment))) {
            struct leat_wire_response response =
                response_to(query, expired ? LEAT_OUTCOME_EXPIRED : LEAT_OUTCOME_REJECTED, now_ns, now_ns,
                            run->worker->options.index);
            response.reason = expired ? LEAT_REASON_NONE : LEAT_REASON_TENSOR;
            report->refused += !expired;
            leat_daemon_session_respond(session, 1 + run->worker->options.index, &response);
            leat_daemon_session_ring(session);
            continue;
        }
        segment->sizes = variant->size_count > 0 ? batch->sizes[kept] : NULL;
        report->items += segment->items;
        if (kept != i) {
            batch->queries[kept] = *query;
        }
        kept++;
    }
    report->expired = count - kept - report->refused;
    return kept;
}

/* Rings each client of the batch once, when its queries stand together. Of stages' queries the report tells. */
static void
ring_clients(struct leat_worker_run *run, const struct batch *batch, uint32_t count)
{
    struct leat_shared_tables *tables = run->worker->options.tables;
    for (uint32_t i = 0; i < count; i++) {
        if ((i + 1 < count && batch->queries[i + 1].session == batch->queries[i].session) ||
            batch->queries[i].session == LEAT_PIPELINE_SESSION) {
            continue;
        }
        leat_daemon_session_ring(
            atomic_load_explicit(&tables->sessions[batch->queries[i].session], memory_order_relaxed));
    }
}

static uint8_t
reason_of(enum leat_status status)
{
    return status == LEAT_ERR_SHAPE ? LEAT_REASON_PAYLOAD : LEAT_REASON_DEVICE;
}

static void
report_done(struct leat_worker_run *run, const struct leat_done_cell *report)
{
    struct leat_worker *worker = run->worker;
    struct leat_done_cell *cell = &worker->done[run->done_position & (LEAT_WORKER_BATCHES - 1)];
    const size_t body = offsetof(struct leat_done_cell, start_ns);

    memcpy((char *)cell + body, (const char *)report + body, sizeof(*cell) - body);
    run->done_position++;
    atomic_store_explicit(&cell->sequence, run->done_position, memory_order_release); /* D0 */
    if (LEAT_UNLIKELY(leat_bell_ring(worker->options.dispatcher_bell) != LEAT_BELL_AWAKE)) {
        const uint64_t one = 1;
        const ssize_t written = write(worker->options.dispatcher_event, &one, sizeof(one));
        (void)written;
    }
}

/* The plan that holds a batch: bucket b is the smallest with 2^b >= items. */
static const struct leat_plan *
plan_for(const struct leat_worker_run *run, const struct leat_variant *variant, uint32_t items)
{
    const uint32_t bucket = items == 1 ? 0 : 32u - (uint32_t)__builtin_clz(items - 1);
    return variant->copies[run->worker->options.copy].plans[bucket];
}

/* To query i of the batch. */
static void
respond_to(struct leat_worker_run *run, const struct batch *batch, uint32_t i, const struct leat_variant *variant,
           enum leat_status status, uint32_t batch_items, uint64_t start_ns, uint64_t end_ns)
{
    const struct leat_work_cell *query = &batch->queries[i];
    /* Pauses count as waiting. */
    struct leat_wire_response response = response_to(query, status == LEAT_OK ? LEAT_OUTCOME_OK : LEAT_OUTCOME_FAILED,
                                                     start_ns + batch->paused_ns, end_ns, run->worker->options.index);
    response.reason = status == LEAT_OK ? LEAT_REASON_NONE : reason_of(status);
    response.batch_items = batch_items;
    response.accuracy_ppm = variant->accuracy_ppm;
    if (LEAT_UNLIKELY(variant->size_count > 0) && status == LEAT_OK) {
        memcpy(response.sizes, batch->sizes[i], batch->segments[i].items * variant->size_count * sizeof(response.sizes[0]));
    }
    respond(run, query, &response);
}

/*
 * Some query's values were refused, and the batch with it. Others in the batch may be of other clients: each
 * query gets its own run, so that nobody can spoil a stranger's answer. Returns how many failed.
 */
static uint32_t
run_one_by_one(struct leat_worker_run *run, const struct batch *batch, const struct leat_variant *variant, uint32_t count,
               uint64_t start_ns, void *scratch)
{
    uint32_t failed = 0;

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t items = batch->segments[i].items;
        const enum leat_status status =
            variant->backend->plan_run(plan_for(run, variant, items), &batch->segments[i], 1, scratch, run->team);
        respond_to(run, batch, i, variant, status, items, start_ns,
                   leat_clock_now(&run->worker->options.tables->clock));
        failed += status != LEAT_OK;
    }
    return failed;
}

static uint32_t
pack_shape(struct leat_team_shape shape)
{
    return (uint32_t)shape.worker_class << 16 | shape.cores;
}

/* The team has another size from here on where the dispatcher said so. */
static struct leat_team_shape
take_shape(struct leat_worker_run *run)
{
    const uint32_t packed = atomic_load_explicit(&run->worker->shape, memory_order_relaxed) & ~LEAT_WORKER_PARKED;
    const struct leat_team_shape shape = leat_worker_unpack_shape(packed);

    if (LEAT_UNLIKELY(packed != run->shape)) {
        run->shape = packed;
        if (run->team != NULL) {
            leat_team_resize(run->team, shape.cores, shape.worker_class);
        }
    }
    return shape;
}

/* A block of scratch: what it replaces, which a running batch may still use, and so many bytes twice behind itself. */
struct scratch_header {
    _Alignas(LEAT_CACHE_LINE) struct scratch_header *older;
    size_t bytes;
};

/* The second half is for what gives way: where nothing does, hardly a page of it exists. */
static void *
scratch_for(const struct leat_worker_run *run, const struct batch *batch)
{
    unsigned char *scratch = atomic_load_explicit(&run->worker->scratch, memory_order_acquire); /* G1 */
    const struct scratch_header *header = (void *)scratch;

    return batch == &run->yields && scratch != NULL ? scratch + (header - 1)->bytes : scratch;
}

static bool
work_ready(const struct leat_worker_run *run)
{
    const struct leat_work_cell *cell = &run->worker->work[run->work_position & (LEAT_WORKER_QUEUE - 1)];
    return atomic_load_explicit(&cell->sequence, memory_order_acquire) == run->work_position + 1; /* W1 */
}

/* Copies the next batch out of the ring, which must have one; returns its number of queries. */
static uint32_t
take_batch(struct leat_worker_run *run, struct batch **ret_batch)
{
    const struct leat_work_cell *cells = run->worker->work, *first = &cells[run->work_position & (LEAT_WORKER_QUEUE - 1)];
    const uint32_t count = first->queries_less_1 + 1u;
    struct batch *batch = first->gives_way ? &run->yields : &run->batch;

    LEAT_ASSERT(!run->yielding || batch != &run->yields);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(&batch->queries[i], &cells[(run->work_position + i) & (LEAT_WORKER_QUEUE - 1)], sizeof(batch->queries[i]));
    }
    run->work_position += count;
    *ret_batch = batch;
    return count;
}

/* One of the worker's statistics, of which it is the only writer. */
static void
bump(_Atomic uint64_t *statistic, uint64_t more)
{
    atomic_store_explicit(statistic, atomic_load_explicit(statistic, memory_order_relaxed) + more, memory_order_relaxed);
}

static void run_next(struct leat_worker_run *run);

/* Something has come behind what gives way, and may pass it: in its shape alone, whose plan is under way. */
static bool
may_pass(const struct leat_worker_run *run)
{
    return work_ready(run) &&
           (atomic_load_explicit(&run->worker->shape, memory_order_relaxed) & ~LEAT_WORKER_PARKED) == run->shape;
}

static void
end_step(struct leat_worker_run *run, uint64_t now_ns)
{
    const uint64_t took_ns = now_ns - run->step.began_ns;

    run->step.longest_ns = took_ns > run->step.longest_ns ? took_ns : run->step.longest_ns;
    run->step.began_ns = now_ns;
}

static uint16_t
longest_step_permille(const struct leat_worker_run *run, uint64_t exec_ns)
{
    return (uint16_t)(run->step.longest_ns < exec_ns ? run->step.longest_ns * 1000 / exec_ns : 1000);
}

/* Between two steps of what gives way: runs what has come since. */
static void
give_way(void *context)
{
    struct leat_worker_run *run = context;
    struct leat_worker *worker = run->worker;
    const struct leat_clock *clock = &worker->options.tables->clock;

    const uint64_t begin_ns = leat_clock_now(clock), before_ns = run->yields.paused_ns;
    end_step(run, begin_ns);
    if (LEAT_LIKELY(!may_pass(run))) {
        return;
    }
    leat_team_set_yield(run->team, NULL, NULL);
    do {
        run_next(run);
        run->yields.paused_ns = before_ns + leat_clock_now(clock) - begin_ns;
    } while (may_pass(run));
    run->step.began_ns = begin_ns + run->yields.paused_ns - before_ns;
    bump(&worker->statistics.pauses, 1);
    leat_team_set_yield(run->team, give_way, run);
}

/* A worker without a thread has no team, and nobody who could hand it anything meanwhile. */
static void
set_yielding(struct leat_worker_run *run, const struct batch *batch, bool yielding)
{
    if (batch == &run->yields && run->team != NULL) {
        run->yielding = yielding;
        leat_team_set_yield(run->team, yielding ? give_way : NULL, run);
    }
}

static void
run_batch(struct leat_worker_run *run, struct batch *batch, uint32_t count)
{
    struct leat_worker *worker = run->worker;
    struct leat_shared_tables *tables = worker->options.tables;
    const uint64_t start_ns = leat_clock_now(&tables->clock);
    struct leat_done_cell report = {.start_ns = start_ns,
                                    .queries = count,
                                    .shape = run->yielding ? leat_worker_unpack_shape(run->shape) : take_shape(run),
                                    .gave_way = batch == &run->yields};

    const struct leat_variant *variant =
        atomic_load_explicit(&tables->variants[batch->queries[0].variant], memory_order_relaxed);

    batch->paused_ns = 0;
    const uint32_t kept = fill_segments(run, batch, variant, count, start_ns, &report);
    const uint32_t items = report.items;
    if (kept > 0) {
        void *scratch = scratch_for(run, batch);
        const struct leat_plan *plan = plan_for(run, variant, items);
        if (report.gave_way) {
            run->step.began_ns = start_ns;
            run->step.longest_ns = 0;
        }
        set_yielding(run, batch, true);
        const enum leat_status status = variant->backend->plan_run(plan, batch->segments, kept, scratch, run->team);
        const uint64_t end_ns = leat_clock_now(&tables->clock), paused_ns = batch->paused_ns;

        if (LEAT_UNLIKELY(status == LEAT_ERR_SHAPE && kept > 1)) {
            report.failed = run_one_by_one(run, batch, variant, kept, start_ns, scratch);
        } else {
            report.tells_all = kept == count && status == LEAT_OK && variant->size_count == 0;
            for (uint32_t i = 0; i < kept; i++) {
                if (!report.tells_all || batch->queries[i].session != LEAT_PIPELINE_SESSION) {
                    respond_to(run, batch, i, variant, status, items, start_ns, end_ns);
                }
            }
            report.failed = status != LEAT_OK ? kept : 0;
        }
        set_yielding(run, batch, false);
        ring_clients(run, batch, kept);
        report.exec_ns = end_ns - start_ns - paused_ns;
        report.paused_ns = paused_ns;
        if (report.gave_way) {
            end_step(run, end_ns);
            report.step_permille = longest_step_permille(run, report.exec_ns);
        }
        bump(&worker->statistics.busy_ns, report.exec_ns);
        bump(&worker->statistics.offline_ns, batch->queries[0].offline ? report.exec_ns : 0);
    }
    bump(&worker->statistics.batches, 1);
    report_done(run, &report);
}

static void
run_next(struct leat_worker_run *run)
{
    struct batch *batch;
    const uint32_t count = take_batch(run, &batch);
    run_batch(run, batch, count);
}

/* ---- Errands ---------------------------------------------------------------------------------- */

/* On control's stack: it waits until the worker has not taken it, or is done with it. */
struct leat_worker_errand {
    const struct leat_backend *backend;
    const struct leat_plan *plan;
    const struct leat_segment *segment;
    bool done;
    enum leat_status status; /* of the run, and why */
    char text[160];
    pthread_cond_t changed;
};

static bool
is_parked(const struct leat_worker *worker)
{
    return (atomic_load_explicit(&worker->shape, memory_order_relaxed) & LEAT_WORKER_PARKED) != 0;
}

static bool
errand_waits(const struct leat_worker *worker)
{
    return LEAT_UNLIKELY(atomic_load_explicit(&worker->errand_waits, memory_order_relaxed));
}

/* The caller holds the mutex. */
static void
set_errand(struct leat_worker *worker, struct leat_worker_errand *errand)
{
    worker->errand = errand;
    atomic_store_explicit(&worker->errand_waits, errand != NULL, memory_order_relaxed);
}

/* As a batch runs; what it answers is nobody's business. */
static void
run_errand(struct leat_worker_run *run)
{
    struct leat_worker *worker = run->worker;

    LEAT_MUST(pthread_mutex_lock(&worker->errand_mutex) == 0);
    struct leat_worker_errand *errand = worker->errand; /* NULL: control did not wait any longer */
    set_errand(worker, NULL);
    worker->on_errand = errand != NULL; /* before it looks at its shape: see leat_worker_on_errand */
    LEAT_MUST(pthread_mutex_unlock(&worker->errand_mutex) == 0);
    if (errand == NULL) {
        return;
    }
    if (!is_parked(worker)) {
        (void)take_shape(run);
        errand->status =
            errand->backend->plan_run(errand->plan, errand->segment, 1, scratch_for(run, &run->batch), run->team);
    }
    if (errand->status != LEAT_OK) {
        (void)snprintf(errand->text, sizeof(errand->text), "%s", leat_error_text());
    }
    LEAT_MUST(pthread_mutex_lock(&worker->errand_mutex) == 0);
    errand->done = true;
    worker->on_errand = false;
    LEAT_MUST(pthread_cond_signal(&errand->changed) == 0);
    LEAT_MUST(pthread_mutex_unlock(&worker->errand_mutex) == 0);
}

/* ---- The thread ------------------------------------------------------------------------------- */

bool
leat_worker_step(struct leat_worker *worker)
{
    struct leat_worker_run *run = worker->run;

    if (!work_ready(run)) {
        return false;
    }
    run_next(run);
    return true;
}

/*
 * Fetches what the first query of a session that opens meanwhile will need. Only prefetched: the session may have gone
 * again, and its memory with it.
 */
static void
expect(struct leat_worker_run *run)
{
    const struct leat_shared_tables *tables = run->worker->options.tables;
    const uint64_t count = atomic_load_explicit(&tables->opened.count, memory_order_relaxed);

    if (LEAT_UNLIKELY(count != run->opened)) {
        const struct leat_daemon_session *session =
            atomic_load_explicit(&tables->opened.session, memory_order_relaxed);
        const uint32_t lane = 1 + run->worker->options.index;
        run->opened = count;
        __builtin_prefetch(session);
        __builtin_prefetch(&session->lane_positions[lane], 1);
        __builtin_prefetch(atomic_load_explicit(&tables->opened.lanes, memory_order_relaxed) +
                               (size_t)lane * atomic_load_explicit(&tables->opened.slots, memory_order_relaxed), 1);
    }
}

/* Sleeps until the dispatcher rings; the budget learns whether spinning a little longer would have paid. */
static void
park(struct leat_worker_run *run)
{
    struct leat_worker *worker = run->worker;
    const struct leat_clock *clock = &worker->options.tables->clock;

    leat_bell_announce(&worker->bell, LEAT_BELL_FUTEX);
    if (work_ready(run) || errand_waits(worker) || atomic_load_explicit(&worker->stop, memory_order_relaxed)) {
        leat_bell_withdraw(&worker->bell);
        return;
    }
    const uint64_t before_ns = leat_clock_now(clock);
    leat_bell_futex_sleep(&worker->bell, false, UINT64_MAX);
    leat_bell_withdraw(&worker->bell);
    bump(&worker->statistics.parks, 1);
    const uint64_t slept_ns = leat_clock_now(clock) - before_ns;
    const uint64_t ceiling_ns = atomic_load_explicit(&worker->options.tables->spin_ns, memory_order_relaxed);
    if (slept_ns < 2 * ceiling_ns) {
        run->spin_budget_ns = run->spin_budget_ns * 2 + 1000 < ceiling_ns ? run->spin_budget_ns * 2 + 1000 : ceiling_ns;
    } else {
        run->spin_budget_ns /= 2;
    }
}

/* The helpers spin under the ceiling that the leader finds, and not at all while the worker is parked. */
static void
adjust_team(struct leat_worker_run *run)
{
    if (LEAT_UNLIKELY(is_parked(run->worker)) && run->shape != 0) {
        leat_team_resize(run->team, 1, leat_team_class(run->team));
        run->shape = 0; /* the next batch, whatever its shape, makes the team anew */
    }
    const uint64_t ceiling_ns = atomic_load_explicit(&run->worker->options.tables->spin_ns, memory_order_relaxed);
    if (LEAT_UNLIKELY(ceiling_ns != run->team_spin_ns)) {
        run->team_spin_ns = ceiling_ns;
        leat_team_set_spin(run->team, ceiling_ns);
    }
}

/* True when there is work; false to stop. */
static bool
await_work(struct leat_worker_run *run)
{
    struct leat_worker *worker = run->worker;
    const struct leat_shared_tables *tables = worker->options.tables;

    for (;;) {
        if (work_ready(run)) {
            return true;
        }
        if (errand_waits(worker)) {
            run_errand(run);
            continue;
        }
        if (atomic_load_explicit(&worker->stop, memory_order_acquire)) { /* Z1 */
            return false;
        }
        adjust_team(run);
        if (leat_spin_budget(tables, run->spin_budget_ns) > 0 && !is_parked(worker)) {
            const uint64_t begin_ns = leat_clock_now(&tables->clock);
            do {
                for (int i = 0; i < SPINS_PER_CLOCK; i++) {
                    if (work_ready(run)) {
                        return true;
                    }
                    expect(run);
                    leat_spin_pause();
                }
            } while (leat_clock_now(&tables->clock) - begin_ns < leat_spin_budget(tables, run->spin_budget_ns) &&
                     !is_parked(worker) && !errand_waits(worker) &&
                     !atomic_load_explicit(&worker->stop, memory_order_relaxed));
        }
        park(run);
    }
}

struct start_report {
    struct leat_worker *worker;
    enum leat_status status;
    char text[256];
    _Atomic uint32_t ready;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

static void
announce_start(struct start_report *report, enum leat_status status)
{
    LEAT_MUST(pthread_mutex_lock(&report->mutex) == 0);
    report->status = status;
    (void)strncpy(report->text, status == LEAT_OK ? "" : leat_error_text(), sizeof(report->text) - 1);
    atomic_store_explicit(&report->ready, 1, memory_order_relaxed);
    LEAT_MUST(pthread_cond_signal(&report->changed) == 0);
    LEAT_MUST(pthread_mutex_unlock(&report->mutex) == 0);
}

static void *
worker_main(void *argument)
{
    struct start_report *report = argument;
    struct leat_worker *worker = report->worker;
    const struct leat_worker_options *options = &worker->options;
    const struct leat_team_options team_options = {
        .cpus = options->cpus,
        .size = options->core_count,
        .size_max = options->cores_max,
        .spin_ns = worker->run->team_spin_ns,
        .enter = leat_memory_enter_node,
        .node = options->node,
        .worker_class = options->worker_class,
    };
    struct leat_worker_run *run = worker->run;
    char name[16];

    (void)snprintf(name, sizeof(name), "leat-worker-%u", options->index % 100);
    (void)pthread_setname_np(pthread_self(), name);
    leat_slice_shorten();
    leat_memory_enter_node(options->node); /* for what libraries allocate in a run; helpers do the same */
    memset(&run->batch, 0, sizeof(run->batch)); /* the pages exist before the first batch needs them */
    memset(&run->yields, 0, sizeof(run->yields));
    const enum leat_status status = leat_team_create(&team_options, &run->team);
    announce_start(report, status); /* `report` is the starter's: not to be touched from here on */
    if (status != LEAT_OK) {
        return NULL;
    }
    while (await_work(run)) {
        (void)leat_worker_step(worker);
    }
    leat_team_destroy(run->team);
    run->team = NULL;
    return NULL;
}

/* ---- Control side ----------------------------------------------------------------------------- */

enum leat_status
leat_worker_create(const struct leat_worker_options *options, struct leat_worker **ret_worker)
{
    leat_memory_enter_node(options->node);
    struct leat_worker *worker = aligned_alloc(LEAT_ISOLATE, leat_round_up(sizeof(*worker), LEAT_ISOLATE));
    void *work = aligned_alloc(LEAT_ISOLATE, LEAT_WORKER_QUEUE * sizeof(worker->work[0]));
    void *done = aligned_alloc(LEAT_ISOLATE, LEAT_WORKER_BATCHES * sizeof(worker->done[0]));
    struct leat_worker_run *run = malloc(sizeof(*run));
    leat_memory_leave_node();
    if (worker == NULL) {
        free(work);
        free(done);
        free(run);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a worker");
    }
    memset(worker, 0, sizeof(*worker));
    LEAT_MUST(pthread_mutex_init(&worker->errand_mutex, NULL) == 0);
    worker->options = *options;
    worker->work = work;
    worker->done = done;
    worker->run = run;
    if (work == NULL || done == NULL || run == NULL) {
        leat_worker_destroy(worker);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a worker's rings");
    }
    memset(worker->work, 0, LEAT_WORKER_QUEUE * sizeof(worker->work[0]));
    memset(worker->done, 0, LEAT_WORKER_BATCHES * sizeof(worker->done[0]));
    worker->run->worker = worker;
    worker->run->team = NULL;
    worker->run->yielding = false;
    worker->run->shape =
        pack_shape((struct leat_team_shape){.cores = (uint16_t)options->core_count, .worker_class = (uint16_t)options->worker_class});
    atomic_init(&worker->shape, worker->run->shape);
    worker->run->work_position = worker->run->done_position = worker->run->opened = 0;
    worker->run->spin_budget_ns = worker->run->team_spin_ns =
        atomic_load_explicit(&options->tables->spin_ns, memory_order_relaxed);
    *ret_worker = worker;
    return LEAT_OK;
}

enum leat_status
leat_worker_start(struct leat_worker *worker)
{
    struct start_report report = {
        .worker = worker, .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

    LEAT_ASSERT(!worker->running);
    const int error = pthread_create(&worker->thread, NULL, worker_main, &report);
    if (error != 0) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "cannot start worker %u: %s", worker->options.index, strerror(error));
    }
    LEAT_MUST(pthread_mutex_lock(&report.mutex) == 0);
    while (atomic_load_explicit(&report.ready, memory_order_relaxed) == 0) {
        LEAT_MUST(pthread_cond_wait(&report.changed, &report.mutex) == 0);
    }
    LEAT_MUST(pthread_mutex_unlock(&report.mutex) == 0);
    if (report.status != LEAT_OK) {
        LEAT_MUST(pthread_join(worker->thread, NULL) == 0);
        return LEAT_FAIL(report.status, "worker %u: %s", worker->options.index, report.text);
    }
    worker->running = true;
    return LEAT_OK;
}

enum leat_status
leat_worker_pin(struct leat_worker *worker, uint32_t member, uint32_t cpu)
{
    LEAT_ASSERT(worker->running);
    if (worker->options.cpus == NULL) {
        return LEAT_OK;
    }
    if (member > 0) {
        return leat_team_pin(worker->run->team, member, cpu);
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    const int error = pthread_setaffinity_np(worker->thread, sizeof(set), &set);
    return error == 0 ? LEAT_OK
                      : LEAT_FAIL(LEAT_ERR_SYS, "cannot pin worker %u to CPU %u: %s", worker->options.index, cpu, strerror(error));
}

uint32_t
leat_worker_threads(struct leat_worker *worker, pid_t *threads)
{
    const uint32_t most = worker->options.cores_max, count = most != 0 ? most : worker->options.core_count;

    LEAT_ASSERT(worker->running);
    for (uint32_t member = 0; member < count; member++) {
        threads[member] = leat_team_thread(worker->run->team, member);
    }
    return count;
}

enum leat_status
leat_worker_reserve(struct leat_worker *worker, size_t bytes)
{
    if (bytes <= worker->scratch_bytes) {
        return LEAT_OK;
    }
    const size_t grown = leat_round_up(bytes > 2 * worker->scratch_bytes ? bytes : 2 * worker->scratch_bytes, 4096);
    leat_memory_enter_node(worker->options.node);
    struct scratch_header *header = leat_large_alloc(sizeof(*header) + 2 * grown);
    leat_memory_leave_node();
    if (header == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %zu bytes of scratch", grown);
    }
    memset(header + 1, 0, grown); /* the pages exist before the first batch needs them */
    void *old = atomic_load_explicit(&worker->scratch, memory_order_relaxed);
    header->bytes = grown;
    header->older = old != NULL ? (struct scratch_header *)old - 1 : NULL;
    atomic_store_explicit(&worker->scratch, header + 1, memory_order_release); /* G0 */
    worker->scratch_bytes = grown;
    return LEAT_OK;
}

static void
wake(struct leat_worker *worker)
{
    if (leat_bell_ring(&worker->bell) != LEAT_BELL_AWAKE) {
        leat_bell_futex_wake(&worker->bell, false);
    }
}

enum leat_status
leat_worker_warm(struct leat_worker *worker, const struct leat_backend *backend, const struct leat_plan *plan,
                 const struct leat_segment *segment, uint64_t until_ns)
{
    struct leat_worker_errand errand = {.backend = backend, .plan = plan, .segment = segment};
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000), .tv_nsec = (long)(until_ns % 1000000000)};
    pthread_condattr_t attributes;
    int waited = 0;

    LEAT_ASSERT(worker->running);
    LEAT_MUST(pthread_condattr_init(&attributes) == 0 && pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    LEAT_MUST(pthread_cond_init(&errand.changed, &attributes) == 0 && pthread_condattr_destroy(&attributes) == 0);
    LEAT_MUST(pthread_mutex_lock(&worker->errand_mutex) == 0);
    const bool mine = worker->errand == NULL;
    if (mine) {
        set_errand(worker, &errand);
        wake(worker);
    }
    while (mine && worker->errand == &errand && waited != ETIMEDOUT) {
        waited = pthread_cond_timedwait(&errand.changed, &worker->errand_mutex, &until);
    }
    const bool taken = mine && worker->errand != &errand;
    if (mine && !taken) {
        set_errand(worker, NULL);
    }
    while (taken && !errand.done) { /* for as long as a batch takes */
        LEAT_MUST(pthread_cond_wait(&errand.changed, &worker->errand_mutex) == 0);
    }
    LEAT_MUST(pthread_mutex_unlock(&worker->errand_mutex) == 0);
    LEAT_MUST(pthread_cond_destroy(&errand.changed) == 0);
    if (!taken) {
        return LEAT_AGAIN;
    }
    return errand.status == LEAT_OK ? LEAT_OK : LEAT_FAIL(errand.status, "%s", errand.text);
}

bool
leat_worker_on_errand(struct leat_worker *worker)
{
    LEAT_MUST(pthread_mutex_lock(&worker->errand_mutex) == 0);
    const bool on_errand = worker->on_errand;
    LEAT_MUST(pthread_mutex_unlock(&worker->errand_mutex) == 0);
    return on_errand;
}

void
leat_worker_stop(struct leat_worker *worker)
{
    if (!worker->running) {
        return;
    }
    atomic_store_explicit(&worker->stop, true, memory_order_release); /* Z0; the bell wakes who sleeps */
    wake(worker);
    LEAT_MUST(pthread_join(worker->thread, NULL) == 0);
    worker->running = false;
}

void
leat_worker_destroy(struct leat_worker *worker)
{
    if (worker == NULL) {
        return;
    }
    LEAT_ASSERT(!worker->running);
    void *scratch = atomic_load_explicit(&worker->scratch, memory_order_relaxed);
    struct scratch_header *header = scratch != NULL ? (struct scratch_header *)scratch - 1 : NULL;
    while (header != NULL) {
        struct scratch_header *older = header->older;
        free(header);
        header = older;
    }
    LEAT_MUST(pthread_mutex_destroy(&worker->errand_mutex) == 0);
    free(worker->work);
    free(worker->done);
    free(worker->run);
    free(worker);
}

/* ---- Dispatcher side -------------------------------------------------------------------------- */

/* Of the batches that are not taken in yet, the one that is so many behind the first. */
static bool
is_reported(const struct leat_worker *worker, uint32_t behind)
{
    const uint64_t position = worker->dispatcher.done_position + behind;
    const struct leat_done_cell *cell = &worker->done[position & (LEAT_WORKER_BATCHES - 1)];

    return atomic_load_explicit(&cell->sequence, memory_order_acquire) == position + 1; /* D1 */
}

uint32_t
leat_worker_reshape(struct leat_worker *worker, struct leat_team_shape shape)
{
    const uint32_t before = atomic_load_explicit(&worker->shape, memory_order_relaxed);
    const uint32_t outstanding = worker->dispatcher.batches;
    uint32_t reported = 0;

    atomic_store_explicit(&worker->shape, shape.cores > 0 ? pack_shape(shape) : before | LEAT_WORKER_PARKED, memory_order_relaxed);
    if (shape.cores == 0) {
        if (leat_bell_ring(&worker->bell) != LEAT_BELL_AWAKE) { /* its helpers may spin still */
            leat_bell_futex_wake(&worker->bell, false);
        }
        return outstanding;
    }
    LEAT_BELL_FENCE(worker->options.dispatcher_bell); /* H0 */
    while (reported < outstanding && is_reported(worker, reported)) {
        reported++;
    }
    const uint32_t awaited = reported + 1 + worker->dispatcher.yielding; /* what gives way, and one that passed it */
    return awaited < outstanding ? awaited : outstanding;
}

bool
leat_worker_submit(struct leat_worker *worker, uint32_t queries)
{
    struct leat_work_cell *first = leat_worker_cell(worker, 0);

    LEAT_ASSERT(queries >= 1 && queries <= LEAT_BATCH_QUERIES && leat_worker_has_room(worker, queries));
    first->queries_less_1 = (uint8_t)(queries - 1);
    /* The cells behind the first hold stale sequences of an earlier lap, so only W0 makes the batch visible. */
    atomic_store_explicit(&first->sequence, worker->dispatcher.work_position + 1, memory_order_release); /* W0 */
    worker->dispatcher.work_position += queries;
    worker->dispatcher.queries += queries;
    worker->dispatcher.batches++;
    LEAT_ASSERT(!first->gives_way || worker->dispatcher.batches == 1);
    worker->dispatcher.yielding = worker->dispatcher.yielding || first->gives_way;
    const bool slept = leat_bell_ring(&worker->bell) != LEAT_BELL_AWAKE;
    if (LEAT_UNLIKELY(slept)) {
        leat_bell_futex_wake(&worker->bell, false);
    }
    return slept;
}

bool
leat_worker_done_ready(const struct leat_worker *worker)
{
    return is_reported(worker, 0);
}

bool
leat_worker_poll_done(struct leat_worker *worker, struct leat_done_cell *ret_done)
{
    if (!leat_worker_done_ready(worker)) {
        return false;
    }
    memcpy(ret_done, &worker->done[worker->dispatcher.done_position & (LEAT_WORKER_BATCHES - 1)], sizeof(*ret_done));
    LEAT_ASSERT(ret_done->queries >= 1 && ret_done->queries <= worker->dispatcher.queries);
    worker->dispatcher.done_position++;
    worker->dispatcher.queries -= ret_done->queries;
    worker->dispatcher.batches--;
    worker->dispatcher.yielding = worker->dispatcher.yielding && !ret_done->gave_way;
    return true;
}
