/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a query that arrives now will have ended: who is let in by that is in time, and who is not takes nobody's time. What is
 * let in and late has cost others theirs, so under more load than workers can do, most of what they do would be for nothing.
 */
#include <string.h>

#include "runtime/dispatcher_private.h"

#define SECOND_NS UINT64_C(1000000000)

/* ---- Workers ------------------------------------------------------------------------------------ */

uint64_t
leat_dispatcher_yielding_end(const struct leat_dispatcher *dispatcher, const struct worker_record *record)
{
    const struct batch_record *batch = &record->yielding.batch;
    const uint64_t ends_ns = batch->handed_ns + record->yielding.passed_ns + batch->predicted_ns;
    const uint64_t overrun_ns = dispatcher->now_ns + 1 + batch->predicted_ns / OVERRUN_SHARE;

    return (ends_ns > dispatcher->now_ns ? ends_ns : overrun_ns) + record->behind_ns;
}

static void
swap(uint64_t *a, uint64_t *b)
{
    const uint64_t kept = *a;
    *a = *b;
    *b = kept;
}

/* The n-th least of them, from 0. Reorders them. O(count) on average. */
static uint64_t
nth_least(uint64_t *times, uint32_t count, uint32_t n)
{
    uint32_t first = 0, last = count - 1;

    LEAT_ASSERT(n < count);
    while (first < last) {
        const uint64_t pivot = times[first + (last - first) / 2];
        uint32_t low = first, high = last;
        for (;;) {
            while (times[low] < pivot) {
                low++;
            }
            while (times[high] > pivot) {
                high--;
            }
            if (low >= high) {
                break;
            }
            swap(&times[low++], &times[high--]);
        }
        if (n <= high) {
            last = high;
        } else {
            first = high + 1;
        }
    }
    return times[n];
}

/* When a worker of each class is free for what comes next, once so many of them have taken a batch; UINT64_MAX: there is none. */
static void
find_free(const struct leat_dispatcher *dispatcher, const struct leat_serving *serving, uint32_t taken,
          uint64_t ret_free_ns[LEAT_WORKER_CLASSES_MAX])
{
    uint64_t times[LEAT_SCHED_WORKERS_MAX];

    memset(ret_free_ns, 0xff, LEAT_WORKER_CLASSES_MAX * sizeof(*ret_free_ns));
    for (uint32_t i = 0; i < serving->count; i++) {
        const struct leat_sched_worker *worker = &dispatcher->sched_workers[serving->at[i]];
        const struct worker_record *record = &dispatcher->records[serving->at[i]];
        const uint64_t known_ns = LEAT_UNLIKELY(record->yielding.ends) ? leat_dispatcher_yielding_end(dispatcher, record)
                                  : worker->outstanding > 0            ? worker->free_at_ns
                                                                       : 0;
        uint64_t *free_ns = &ret_free_ns[worker->worker_class];
        times[i] = known_ns > dispatcher->now_ns ? known_ns : dispatcher->now_ns;
        *free_ns = times[i] < *free_ns ? times[i] : *free_ns;
    }
    if (taken > 0) {
        const uint64_t next_ns = nth_least(times, serving->count, taken);
        for (uint32_t class = 0; class < LEAT_WORKER_CLASSES_MAX; class++) {
            ret_free_ns[class] = ret_free_ns[class] > next_ns ? ret_free_ns[class] : next_ns;
        }
    }
}

/* ---- Other work --------------------------------------------------------------------------------- */

static uint64_t
batch_ns(const struct leat_application *app, uint32_t class)
{
    const uint32_t variant = app->by_time[0];
    return leat_profile_predict(&app->profiles[variant][class], app->variants[variant]->items_max);
}

/* How long workers are at so many online items of an application, in batches as large as can be, shared by all that serve it. */
static uint64_t
shared_ns(const struct leat_application *app, uint32_t class, uint64_t items)
{
    const uint64_t workers = app->serving[LEAT_RANK_ONLINE].count, most = app->variants[app->by_time[0]]->items_max;
    return items > 0 ? items * batch_ns(app, class) / (most * workers) : 0;
}

static bool
meet(const struct leat_application *a, const struct leat_application *b)
{
    return leat_worker_set_meet(&a->serving[LEAT_RANK_ONLINE].set, &b->serving[LEAT_RANK_ONLINE].set);
}

uint32_t
leat_dispatcher_progress(const struct leat_dispatcher *dispatcher, const struct leat_application *app)
{
    const struct leat_waiting *waiting = &app->waiting[LEAT_RANK_ONLINE];
    const struct leat_query_entry *oldest = &waiting->entries[waiting->head];
    const bool hurries = leat_waiting_count(waiting) > 0 && oldest->deadline_ns != LEAT_NO_DEADLINE;

    return hurries && LEAT_UNLIKELY(oldest->session == LEAT_PIPELINE_SESSION)
               ? leat_dispatcher_stage_depth(&dispatcher->pipelines.queries[oldest->slot])
               : 0;
}

/* What comes in so long, as lately. */
static uint64_t
items_in(const struct leat_dispatcher *dispatcher, struct leat_application *app, uint64_t time_ns)
{
    return leat_load_rate_qps(&app->load, dispatcher->now_ns) * time_ns / SECOND_NS;
}

/*
 * What workers that serve the application do for others within the time in which they do so many batches of its own: all that waits
 * further on in pipelines than its query does, since that goes first, and of what has come as far, or comes meanwhile, as many batches as
 * take turns with these and its own.
 */
static uint64_t
others_ns(const struct leat_dispatcher *dispatcher, const struct leat_application *app, uint32_t class, uint64_t batches,
          uint64_t time_ns, uint32_t progress)
{
    uint64_t sum_ns = 0;

    for (uint32_t b = 0; b < dispatcher->busy_count; b++) {
        struct leat_application *other = dispatcher->applications[dispatcher->busy[b]];
        const uint64_t items = other->waiting[LEAT_RANK_ONLINE].items;
        const uint32_t others_progress = leat_dispatcher_progress(dispatcher, other);
        if (other == app || items == 0 || others_progress < progress || !meet(other, app)) {
            continue;
        }
        if (others_progress > progress) {
            sum_ns += shared_ns(other, class, items);
        } else {
            const uint64_t all_ns = shared_ns(other, class, items + items_in(dispatcher, other, time_ns));
            const uint64_t turns_ns = (batches + 1) * batch_ns(other, class);
            sum_ns += all_ns < turns_ns ? all_ns : turns_ns;
        }
    }
    return sum_ns;
}

/* And what runs that have begun ask of them in later stages than the query's, which does not wait yet: that goes first, too. */
static uint64_t
coming_ns(const struct leat_dispatcher *dispatcher, const struct leat_application *app, uint32_t class,
          const struct stage_query *stage)
{
    uint64_t sum_ns = 0;
    struct leat_stage_ahead ahead;

    for (uint32_t s = 0; leat_dispatcher_stage_ahead(dispatcher, stage, s, &ahead); s++) {
        sum_ns += ahead.behind && !ahead.again && meet(ahead.application, app)
                      ? shared_ns(ahead.application, class, ahead.others_items)
                      : 0;
    }
    return sum_ns;
}

/* ---- A query ------------------------------------------------------------------------------------ */

/*
 * How long all workers that serve it take for so many batches each on average, whoever takes how many: who is quick takes more. They
 * go on at their classes' paces, so a backlog before slow workers and a quick one is not gone at the pace of the quick.
 */
static uint64_t
rounds_ns(const struct leat_dispatcher *dispatcher, const struct leat_application *app, const struct leat_serving *serving,
          uint32_t variant, uint32_t items, uint64_t rounds)
{
    uint32_t workers[LEAT_WORKER_CLASSES_MAX] = {0};
    double batches_a_ns = 0;

    for (uint32_t i = 0; i < serving->count; i++) {
        workers[dispatcher->sched_workers[serving->at[i]].worker_class]++;
    }
    for (uint32_t left = serving->classes; left != 0; left &= left - 1) {
        const uint32_t class = (uint32_t)__builtin_ctz(left);
        const uint64_t time_ns = leat_profile_predict(&app->profiles[variant][class], items);
        batches_a_ns += time_ns > 0 ? workers[class] / (double)time_ns : 0;
    }
    return batches_a_ns > 0 ? (uint64_t)((double)(rounds * serving->count) / batches_a_ns) : 0;
}

/* Waiting queries that go before another. */
struct backlog {
    uint64_t queries, items, positions;
};

/* When a query is predicted to end, in a batch of so many items. */
struct ending {
    uint64_t ns;
    uint32_t items;
};

/*
 * The soonest that a query which arrives now can end in this variant on any worker that serves it, after the backlog, whose
 * sequences are taken to be of their mean length. Its own batch has what is left of the backlog, and what comes until it
 * begins: who were let in for less would be late by the others, or keep them out of the batch, and small batches do not keep
 * up with the load.
 */
static struct ending
ending_after(const struct leat_dispatcher *dispatcher, struct leat_application *app, enum leat_rank rank, struct backlog backlog,
             uint32_t variant, const struct leat_sched_query *query, const struct stage_query *stage)
{
    const struct leat_serving *serving = &app->serving[rank];
    const bool joins = !app->selector->single, each = !joins && backlog.queries > 0;
    const uint32_t batch_items = each ? (uint32_t)(backlog.items / backlog.queries) : app->variants[variant]->items_max;
    const uint64_t batches = each ? backlog.queries : backlog.items / batch_items, rounds = batches / serving->count;
    const uint32_t ahead = rounds > 0 && app->shorter_count == 0 && app->target.length_count > 1
                               ? leat_application_shorten(app, variant, (uint32_t)(backlog.positions / backlog.items))
                               : variant;
    const bool online = rank == LEAT_RANK_ONLINE;
    uint64_t free_ns[LEAT_WORKER_CLASSES_MAX];
    struct ending soonest = {.ns = UINT64_MAX};

    find_free(dispatcher, serving, (uint32_t)(batches % serving->count), free_ns);
    const bool deals = app->router->deals; /* to each as many */
    const uint64_t before_ns = rounds > 0 && !deals ? rounds_ns(dispatcher, app, serving, ahead, batch_items, rounds) : 0;
    for (uint32_t class = 0; class < LEAT_WORKER_CLASSES_MAX; class++) {
        if (free_ns[class] == UINT64_MAX || (query->barred_classes >> class & 1) != 0) {
            continue;
        }
        uint64_t start_ns = free_ns[class], items = query->items;
        start_ns += rounds > 0 && deals ? rounds * leat_profile_predict(&app->profiles[ahead][class], batch_items) : before_ns;
        start_ns += online ? others_ns(dispatcher, app, class, rounds, start_ns - dispatcher->now_ns,
                                       stage != NULL ? leat_dispatcher_stage_depth(stage) : 0)
                           : 0;
        start_ns += online && stage != NULL ? coming_ns(dispatcher, app, class, stage) : 0;
        if (joins) {
            items += backlog.items % batch_items + (online ? items_in(dispatcher, app, start_ns - dispatcher->now_ns) : 0);
            items = items < batch_items ? items : batch_items;
        }
        const uint64_t end_ns = start_ns + leat_profile_predict(&app->profiles[variant][class], (uint32_t)items);
        if (end_ns < soonest.ns) {
            soonest = (struct ending){.ns = end_ns, .items = (uint32_t)items};
        }
    }
    return soonest;
}

/* ---- A run -------------------------------------------------------------------------------------- */

/* When a later stage of so many items, whose sources are there by `ready_ns`, has ended: behind all that waits or comes before. */
static uint64_t
end_of_stage(const struct leat_dispatcher *dispatcher, const struct leat_stage_ahead *ahead, uint64_t ready_ns, uint64_t items)
{
    const struct leat_application *app = ahead->application;
    const uint32_t variant = app->by_time[0], most = app->variants[variant]->items_max;
    const uint64_t before = app->waiting[LEAT_RANK_ONLINE].items + ahead->others_items;
    uint64_t free_ns[LEAT_WORKER_CLASSES_MAX], soonest_ns = UINT64_MAX;

    find_free(dispatcher, &app->serving[LEAT_RANK_ONLINE], 0, free_ns);
    for (uint32_t class = 0; class < LEAT_WORKER_CLASSES_MAX; class++) {
        if (free_ns[class] == UINT64_MAX) {
            continue;
        }
        const uint64_t after_ns = free_ns[class] + shared_ns(app, class, before);
        const uint64_t start_ns = after_ns > ready_ns ? after_ns : ready_ns;
        const uint64_t end_ns =
            start_ns + leat_profile_predict(&app->profiles[variant][class], items < most ? (uint32_t)items : most);
        soonest_ns = end_ns < soonest_ns ? end_ns : soonest_ns;
    }
    return soonest_ns;
}

/*
 * Can the run whose first stage ends like this be in time with all others? A stage behind has the queries in its batch that it had in the
 * first. Who is in a later stage is asked no more: what it has cost is spent, so it goes on as long as it can be in time.
 */
static bool
run_is_in_time(const struct leat_dispatcher *dispatcher, const struct stage_query *stage, struct ending first, uint64_t due_ns)
{
    uint64_t ends_ns[LEAT_PIPELINE_STAGES_MAX] = {0};
    struct leat_stage_ahead ahead;

    if (leat_dispatcher_stage_depth(stage) > 0) {
        return true;
    }
    for (uint32_t s = 0; leat_dispatcher_stage_ahead(dispatcher, stage, s, &ahead); s++) {
        uint64_t ready_ns = first.ns;
        if (!ahead.behind || ahead.items == 0) {
            ends_ns[s] = first.ns;
            continue;
        }
        for (uint32_t left = ahead.after; left != 0; left &= left - 1) {
            const uint64_t source_ns = ends_ns[__builtin_ctz(left)];
            ready_ns = source_ns > ready_ns ? source_ns : ready_ns;
        }
        const uint64_t mates = first.items > stage->items ? first.items / stage->items : 1;
        ends_ns[s] = end_of_stage(dispatcher, &ahead, ready_ns, ahead.items * mates);
        if (ends_ns[s] > due_ns) {
            return false;
        }
    }
    return true;
}

bool
leat_dispatcher_can_be_in_time(const struct leat_dispatcher *dispatcher, struct leat_application *app, enum leat_rank rank,
                               uint32_t variant, const struct leat_sched_query *query, const struct stage_query *stage)
{
    const struct leat_waiting *own = &app->waiting[rank];
    const uint32_t waiting = leat_waiting_count(own);
    const uint32_t looked_at = waiting < app->router->reorders ? waiting : app->router->reorders;
    const struct leat_sched_query *queries = &own->queries[own->head];
    struct backlog backlog = {0};

    for (uint32_t r = 0; r <= rank; r++) {
        backlog.queries += leat_waiting_count(&app->waiting[r]);
        backlog.items += app->waiting[r].items;
        backlog.positions += app->waiting[r].positions;
    }
    struct ending ending = ending_after(dispatcher, app, rank, backlog, variant, query, stage);
    if (LEAT_UNLIKELY(ending.ns > query->deadline_ns && looked_at > 0)) {
        for (uint32_t q = 0; q < looked_at; q++) {
            if (queries[q].deadline_ns > query->deadline_ns) {
                backlog.queries--;
                backlog.items -= queries[q].items;
                backlog.positions -= (uint64_t)queries[q].items * queries[q].length;
            }
        }
        ending = ending_after(dispatcher, app, rank, backlog, variant, query, stage);
    }
    return ending.ns <= query->deadline_ns &&
           (LEAT_LIKELY(stage == NULL) || rank != LEAT_RANK_ONLINE ||
            run_is_in_time(dispatcher, stage, ending, leat_dispatcher_run_end(stage)));
}
