/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of pipelines: which stage begins when, with what, and what their answers come to. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/dispatcher_private.h"
#include "sched/select.h"

/* What becomes of one stage in a run. Bits of the run's say how far it is. */
struct stage_progress {
    uint64_t behind_ns;        /* what the stages behind it take at the least */
    uint64_t from_ns;          /* it and those */
    uint64_t ready_ns;         /* its sources were there */
    uint64_t start_ns, end_ns; /* of the first and of the last of its queries */
    uint64_t cap_nano;         /* of the run's cap, what this stage may still cost */
    uint64_t least_nano;       /* what it costs at the least; 0: unknown, or there is no cap */
    uint32_t items;            /* that no query was made of yet */
    uint32_t coming;           /* that are expected, of an online run */
    uint32_t outstanding;      /* queries */
    uint32_t accuracy_ppm;     /* the least of its answers */
    uint32_t floor_ppm;        /* that they reach, once it has begun */
    uint16_t at_item, at; /* where it repeats, the next query begins at the at-th of what item at_item of the run has */
    uint16_t sizes[LEAT_SIZES_MAX]; /* where it does not repeat, as its answer has them */
};

struct leat_pipeline_run {
    struct leat_pipeline *pipeline; /* NULL: the run is free */
    struct {
        struct leat_pipeline_run *next, *previous;
    } links[RUN_LISTS]; /* of free ones, next in RUN_LIVE alone */
    uint64_t submit_ns;
    uint64_t aim_ns;   /* its objective: its stages are due so that it ends by then, as long as it can */
    uint64_t end_ns;   /* it is dropped where it cannot end by then */
    uint64_t cap_nano; /* that no stage has got; UINT64_MAX: there is no cap */
    uint32_t units[LEAT_TENSORS_MAX];
    uint32_t ticket_low, accuracy_floor_ppm;
    uint32_t items;
    uint16_t session, slot;
    uint16_t first_query; /* of those that are outstanding; NO_QUERY: none */
    uint16_t failed_stage;
    uint8_t outcome, reason; /* of a run that was stopped */
    bool offline;
    bool stopped; /* no query is made any more: it ends when none is outstanding */
    bool late;    /* it is one of pipeline->late_running */
    uint8_t listed; /* among the open ones of this rank; LEAT_RANKS: it is not */
    /* Bit s: the sources of stage s are there; queries of it are still to be made; it has ended. */
    uint32_t begun, open, ended;
    uint32_t ran;         /* bit s: it has ended, and had items */
    uint32_t outstanding; /* queries of all its stages */
    uint32_t again;       /* of those, to be pushed again */
    uint32_t late_queries; /* of those */
    struct stage_progress stages[LEAT_PIPELINE_STAGES_MAX];
};

__extension__ typedef unsigned __int128 wide;

enum {
    NO_QUERY = UINT16_MAX,
    EACH_MEAN_SHIFT = 4,
    LOOKS_PER_ROUND = 64, /* at runs of a rank with queries still to be made, so that a round stays short */
};
_Static_assert(LEAT_SLOTS_MAX < NO_QUERY, "any slot can be told from none");
_Static_assert(LEAT_PIPELINE_RUNS_MAX <= 1u << 14, "a slot names any run");

/* ---- Control side ----------------------------------------------------------------------------- */

uint32_t
leat_pipeline_offline_max(const struct leat_pipeline *pipeline)
{
    return pipeline->runs_max / 2;
}

enum leat_status
leat_pipeline_init_runs(struct leat_pipeline *pipeline)
{
    LEAT_ASSERT(pipeline->runs_max >= 1 && pipeline->runs_max <= LEAT_PIPELINE_RUNS_MAX && pipeline->runs == NULL);
    pipeline->runs = malloc(pipeline->runs_max * sizeof(pipeline->runs[0]));
    if (pipeline->runs == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u runs of a pipeline", pipeline->runs_max);
    }
    memset(pipeline->runs, 0, pipeline->runs_max * sizeof(pipeline->runs[0]));
    pipeline->free_runs = NULL;
    for (uint32_t r = pipeline->runs_max; r-- > 0;) {
        pipeline->runs[r].links[RUN_LIVE].next = pipeline->free_runs;
        pipeline->free_runs = &pipeline->runs[r];
    }
    return LEAT_OK;
}

void
leat_pipeline_fini_runs(struct leat_pipeline *pipeline)
{
    LEAT_ASSERT(pipeline->running == 0);
    free(pipeline->runs);
    pipeline->runs = pipeline->free_runs = NULL;
}

/* ---- Lists ------------------------------------------------------------------------------------ */

static void
list_append(struct run_list *list, enum run_list_kind kind, struct leat_pipeline_run *run)
{
    run->links[kind].next = NULL;
    run->links[kind].previous = list->last;
    if (list->last != NULL) {
        list->last->links[kind].next = run;
    } else {
        list->first = run;
    }
    list->last = run;
}

static void
list_remove(struct run_list *list, enum run_list_kind kind, struct leat_pipeline_run *run)
{
    struct leat_pipeline_run *next = run->links[kind].next, *previous = run->links[kind].previous;

    *(previous != NULL ? &previous->links[kind].next : &list->first) = next;
    *(next != NULL ? &next->links[kind].previous : &list->last) = previous;
}

/* Those before `first` come last. */
static void
list_rotate(struct run_list *list, enum run_list_kind kind, struct leat_pipeline_run *first)
{
    struct leat_pipeline_run *last = first->links[kind].previous;

    if (last != NULL) {
        last->links[kind].next = NULL;
        first->links[kind].previous = NULL;
        list->first->links[kind].previous = list->last;
        list->last->links[kind].next = list->first;
        list->first = first;
        list->last = last;
    }
}

static uint64_t
before(uint64_t end_ns, uint64_t ns)
{
    return end_ns == LEAT_NO_DEADLINE ? LEAT_NO_DEADLINE : end_ns > ns ? end_ns - ns : 0;
}

/* Are queries of it still to be made, or to be pushed again? */
static bool
is_open(const struct leat_pipeline_run *run)
{
    return run->open != 0 || run->again > 0;
}

/* Is some of it late, or too late to be made in time? Then nothing that it asks for beside that makes it end in time. */
static bool
is_late(const struct leat_dispatcher *dispatcher, const struct leat_pipeline_run *run)
{
    bool late = run->late_queries > 0;

    for (uint32_t left = run->aim_ns != run->end_ns ? run->open : 0; left != 0 && !late; left &= left - 1) {
        late = dispatcher->now_ns > before(run->aim_ns, run->stages[__builtin_ctz(left)].from_ns);
    }
    return late;
}

/* Into the list that it is to be in now, if any. */
static void
list_open(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run)
{
    struct run_list *open = dispatcher->pipelines.open;
    const uint32_t rank = !is_open(run)              ? LEAT_RANKS
                          : run->offline             ? LEAT_RANK_OFFLINE
                          : is_late(dispatcher, run) ? LEAT_RANK_LATE
                                                     : LEAT_RANK_ONLINE;

    if (rank == run->listed) {
        return;
    }
    if (run->listed < LEAT_RANKS) {
        list_remove(&open[run->listed], RUN_OPEN, run);
    }
    if (rank < LEAT_RANKS) {
        list_append(&open[rank], RUN_OPEN, run);
    }
    run->listed = (uint8_t)rank;
}

/* Is there one for it? What is late, and what is offline, holds half of them at the most, and both three quarters: others find some. */
static bool
has_slot(const struct pipelines *pipelines, enum leat_rank rank)
{
    const uint32_t slots = pipelines->session->slots, late = pipelines->late_queries, offline = pipelines->offline_queries;

    return pipelines->free_query != NO_QUERY &&
           (rank == LEAT_RANK_ONLINE ||
            ((rank == LEAT_RANK_LATE ? late : offline) < (slots + 1) / 2 && late + offline < slots - slots / 4));
}

/* One more of its queries is late. What waits of it elsewhere is to do so among the late, too, and hears of it from the first. */
static void
note_late(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run)
{
    const struct leat_waiting_slot *slots = dispatcher->pipelines.session->dispatcher.slots;
    const struct stage_query *queries = dispatcher->pipelines.queries;
    const bool first = run->late_queries == 0;

    dispatcher->pipelines.late_queries++;
    run->late_queries++;
    for (uint16_t q = first ? run->first_query : NO_QUERY; q != NO_QUERY; q = queries[q].next) {
        struct leat_application *app = dispatcher->applications[slots[q].application];
        if (!queries[q].late && slots[q].state == LEAT_SLOT_WAITS && app->busy) {
            app->sweep_due = true;
        }
    }
}

static void
take_query(struct leat_dispatcher *dispatcher, const struct stage_query *what)
{
    struct pipelines *pipelines = &dispatcher->pipelines;
    struct leat_pipeline_run *run = what->run;
    const uint16_t slot = pipelines->free_query;
    struct stage_query *query = &pipelines->queries[slot];

    LEAT_ASSERT(slot != NO_QUERY && query->run == NULL);
    pipelines->free_query = query->next;
    *query = *what;
    query->next = run->first_query;
    query->previous = NO_QUERY;
    if (run->first_query != NO_QUERY) {
        pipelines->queries[run->first_query].previous = slot;
    }
    run->first_query = slot;
    pipelines->offline_queries += run->offline;
    run->outstanding++;
    run->stages[what->stage].outstanding++;
    if (LEAT_UNLIKELY(what->late)) {
        note_late(dispatcher, run);
    }
}

static void
give_query(struct leat_dispatcher *dispatcher, uint16_t slot)
{
    struct pipelines *pipelines = &dispatcher->pipelines;
    struct stage_query *query = &pipelines->queries[slot];
    struct leat_pipeline_run *run = query->run;

    *(query->previous != NO_QUERY ? &pipelines->queries[query->previous].next : &run->first_query) = query->next;
    if (query->next != NO_QUERY) {
        pipelines->queries[query->next].previous = query->previous;
    }
    pipelines->offline_queries -= run->offline;
    pipelines->late_queries -= query->late;
    run->late_queries -= query->late;
    run->outstanding--;
    run->stages[query->stage].outstanding--;
    query->run = NULL;
    query->next = pipelines->free_query;
    pipelines->free_query = slot;
}

/* ---- The end of a run ------------------------------------------------------------------------- */

static uint32_t
all_stages(const struct leat_pipeline *pipeline)
{
    return (UINT32_C(1) << pipeline->stage_count) - 1;
}

static struct leat_daemon_session *
client_of(const struct leat_dispatcher *dispatcher, const struct leat_pipeline_run *run)
{
    return atomic_load_explicit(&dispatcher->options.tables->sessions[run->session], memory_order_relaxed);
}

static void
write_stage_times(const struct leat_pipeline_run *run, struct leat_daemon_session *client)
{
    const struct leat_pipeline *pipeline = run->pipeline;
    const uint32_t tensor = pipeline->target.input_count + pipeline->target.output_count - 1;
    uint64_t(*rows)[2] = (void *)(client->arena + (uint64_t)run->units[tensor] * LEAT_TENSOR_ALIGN);

    for (uint32_t i = 0; i < run->items; i++) {
        for (uint32_t s = 0; s < pipeline->stage_count; s++) {
            const struct stage_progress *progress = &run->stages[s];
            (*rows)[0] = progress->start_ns - progress->ready_ns;
            (*rows)[1] = progress->end_ns - progress->start_ns;
            rows++;
        }
    }
}

/* When the last of its queries ended; a worker may end within the round. */
static uint64_t
over_ns(const struct leat_dispatcher *dispatcher, const struct leat_pipeline_run *run)
{
    uint64_t over_ns = dispatcher->now_ns;

    for (uint32_t s = 0; s < run->pipeline->stage_count; s++) {
        over_ns = run->stages[s].end_ns > over_ns ? run->stages[s].end_ns : over_ns;
    }
    return over_ns;
}

/* From when its first query began until the last has ended. */
static struct leat_wire_response
response_of(const struct leat_dispatcher *dispatcher, const struct leat_pipeline_run *run)
{
    const struct leat_pipeline *pipeline = run->pipeline;
    struct leat_wire_response response = {
        .ticket_low = run->ticket_low,
        .slot = run->slot,
        .outcome = run->outcome,
        .reason = run->reason,
        .variant = run->failed_stage,
        .worker = UINT16_MAX,
    };
    uint64_t start_ns = UINT64_MAX, end_ns = 0;

    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        const struct stage_progress *progress = &run->stages[s];
        if (progress->end_ns > 0) {
            start_ns = progress->start_ns < start_ns ? progress->start_ns : start_ns;
            end_ns = progress->end_ns > end_ns ? progress->end_ns : end_ns;
        }
    }
    const uint64_t ended_ns = over_ns(dispatcher, run);
    response.total_ns = ended_ns > run->submit_ns ? ended_ns - run->submit_ns : 0;
    response.queue_ns = end_ns > 0 ? start_ns - run->submit_ns : response.total_ns;
    response.exec_ns = end_ns > 0 ? end_ns - start_ns : 0;
    if (run->outcome == LEAT_OUTCOME_OK) {
        double accuracy = 1;
        for (uint32_t s = 0; s < pipeline->stage_count; s++) {
            accuracy *= run->stages[s].accuracy_ppm / 1e6;
        }
        response.accuracy_ppm = (uint32_t)(accuracy * 1e6 + 0.5);
        for (uint32_t i = 0; i < run->items * pipeline->size_count; i++) {
            const uint32_t item = i / pipeline->size_count, size = i % pipeline->size_count, s = pipeline->size_of[size];
            response.sizes[i] = run->stages[s].sizes[item * pipeline->stages[s].size_count + pipeline->size_at[size]];
        }
    }
    return response;
}

static void
count_outcome(struct leat_pipeline *pipeline, uint8_t outcome)
{
    switch (outcome) {
    case LEAT_OUTCOME_OK:
        bump(&pipeline->counters.ok, 1);
        break;
    case LEAT_OUTCOME_REJECTED:
        bump(&pipeline->counters.rejected, 1);
        break;
    case LEAT_OUTCOME_EXPIRED:
        bump(&pipeline->counters.expired, 1);
        break;
    case LEAT_OUTCOME_CANCELLED:
        bump(&pipeline->counters.cancelled, 1);
        break;
    default:
        bump(&pipeline->counters.failed, 1);
        break;
    }
}

/* Answers the client, whose memory nothing of the run touches any more. */
static void
end_run(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run)
{
    struct leat_pipeline *pipeline = run->pipeline;
    struct leat_daemon_session *client = client_of(dispatcher, run);
    struct leat_waiting_slot *slot = &client->dispatcher.slots[run->slot];

    LEAT_ASSERT(run->outstanding == 0 && run->open == 0 && client->dispatcher.in_flight > 0 && pipeline->running > 0);
    client->dispatcher.in_flight--;
    if (slot->ticket_low == run->ticket_low) { /* else the client used the slot again meanwhile */
        slot->state = LEAT_SLOT_IDLE;
    }
    count_outcome(pipeline, run->outcome);
    bump(&pipeline->counters.late, run->outcome == LEAT_OUTCOME_OK && over_ns(dispatcher, run) > run->aim_ns);
    if (!client->dispatcher.closing) {
        if (run->outcome == LEAT_OUTCOME_OK) {
            write_stage_times(run, client);
        }
        const struct leat_wire_response response = response_of(dispatcher, run);
        leat_daemon_session_respond(client, 0, &response);
        leat_daemon_session_ring(client);
    }
    for (uint32_t left = run->ran; left != 0; left &= left - 1) {
        const uint32_t s = (uint32_t)__builtin_ctz(left);
        leat_histogram_add(&pipeline->times[s].queue_ns, run->stages[s].start_ns - run->stages[s].ready_ns);
        leat_histogram_add(&pipeline->times[s].exec_ns, run->stages[s].end_ns - run->stages[s].start_ns);
    }
    list_remove(&dispatcher->pipelines.live, RUN_LIVE, run);
    run->pipeline = NULL;
    run->links[RUN_LIVE].next = pipeline->free_runs;
    pipeline->free_runs = run;
    pipeline->running--;
    pipeline->offline_running -= run->offline;
    pipeline->late_running -= run->late;
    atomic_store_explicit(&pipeline->counters.running, pipeline->running, memory_order_relaxed);
}

static void
end_run_if_over(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run)
{
    if (run->outstanding == 0 && (run->stopped || run->ended == all_stages(run->pipeline))) {
        end_run(dispatcher, run);
    }
}

/* What its later stages are to ask of their applications; offline runs wait for all others anyway. */
static void
set_coming(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run, uint32_t s, uint32_t items)
{
    uint64_t *coming = &dispatcher->pipelines.coming[run->pipeline->stages[s].application];
    if (run->offline) {
        return;
    }
    *coming += items - (uint64_t)run->stages[s].coming;
    run->stages[s].coming = items;
}

/* It asks for nothing that goes before others. */
static void
expect_nothing(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run)
{
    for (uint32_t s = 0; s < run->pipeline->stage_count; s++) {
        set_coming(dispatcher, run, s, 0);
    }
}

/*
 * It waits among those that are late from now on. Such runs wait for as long as others keep the workers busy, and would hold all that
 * there can be: where half of them are late, one that has only come is not to.
 */
static bool
be_late(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run)
{
    struct leat_pipeline *pipeline = run->pipeline;

    expect_nothing(dispatcher, run);
    if (run->offline || run->late) {
        return true;
    }
    if (run->ended == 0 && pipeline->late_running >= (pipeline->runs_max + 1) / 2) {
        return false;
    }
    run->late = true;
    pipeline->late_running++;
    return true;
}

/* No further query is made of it, and those that wait are to leave their lists. */
static void
stop_run(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run, enum leat_outcome outcome,
         enum leat_reason reason, uint32_t stage)
{
    struct leat_waiting_slot *slots = dispatcher->pipelines.session->dispatcher.slots;
    const struct stage_query *queries = dispatcher->pipelines.queries;
    uint16_t next;

    LEAT_ASSERT(!run->stopped);
    run->stopped = true;
    run->outcome = (uint8_t)outcome;
    run->reason = (uint8_t)reason;
    run->failed_stage = (uint16_t)stage;
    expect_nothing(dispatcher, run);
    run->open = run->again = 0;
    list_open(dispatcher, run);
    for (uint16_t q = run->first_query; q != NO_QUERY; q = next) {
        next = queries[q].next;
        if (queries[q].again) {
            give_query(dispatcher, q);
        } else if (slots[q].state == LEAT_SLOT_WAITS) {
            leat_dispatcher_take_back(dispatcher, &slots[q]);
        }
    }
}

/* ---- Stages ----------------------------------------------------------------------------------- */

static struct leat_application *
application_of(const struct leat_dispatcher *dispatcher, const struct leat_pipeline_stage *stage)
{
    struct leat_application *app = dispatcher->applications[stage->application];
    LEAT_ASSERT(app != NULL); /* as long as the pipeline is there */
    return app;
}

static bool
is_repeating(const struct leat_pipeline_stage *stage)
{
    return stage->each_stage != UINT32_MAX;
}

/* Of each of the run's items, how many of the stage's: as its source's answer says. */
static uint32_t
items_of(const struct leat_pipeline_run *run, const struct leat_pipeline_stage *stage, uint32_t item)
{
    const uint32_t source = stage->each_stage;
    return run->stages[source].sizes[item * run->pipeline->stages[source].size_count + stage->each_size];
}

/* The variant that is admitted by: the fastest that is accurate enough; variant_count: there is none. */
static uint32_t
fastest_variant(const struct leat_application *app, const struct leat_sched_query *query)
{
    for (uint32_t i = 0; i < app->variant_count; i++) {
        const struct leat_sched_variant *variant = &app->sched_variants[app->by_time[i]];
        if (variant->ready && leat_select_fits(variant, query)) {
            return app->by_time[i];
        }
    }
    return app->variant_count;
}

/* What these items take on average at the least, where a worker is idle. */
static uint64_t
least_ns(const struct leat_application *app, const struct leat_sched_query *query, enum leat_rank rank)
{
    const uint32_t variant = fastest_variant(app, query);
    uint64_t least = UINT64_MAX;

    for (uint32_t left = variant < app->variant_count ? app->serving[rank].classes : 0; left != 0; left &= left - 1) {
        const uint64_t time_ns = leat_profile_mean(&app->profiles[variant][__builtin_ctz(left)], query->items);
        least = time_ns < least ? time_ns : least;
    }
    return least == UINT64_MAX ? 0 : least;
}

/* What a query costs at the least in any variant that is accurate enough; 0: unknown. */
static uint32_t
least_nano(const struct leat_application *app, const struct leat_sched_query *query)
{
    uint32_t least = UINT32_MAX;

    for (uint32_t v = 0; v < app->variant_count; v++) {
        const struct leat_sched_variant *variant = &app->sched_variants[v];
        const bool fits = variant->ready && leat_select_fits(variant, query);
        const uint32_t nano = fits ? leat_application_least_nano(app, v, query->items) : 0;
        least = nano > 0 && nano < least ? nano : least;
    }
    return least == UINT32_MAX ? 0 : least;
}

/* Has its source told how many items it has? */
static bool
is_counted(const struct leat_pipeline_run *run, uint32_t s)
{
    const struct leat_pipeline_stage *stage = &run->pipeline->stages[s];
    return !is_repeating(stage) || (run->ended >> stage->each_stage & 1) != 0;
}

/* As many items as the stage will have: as lately, and one at the least, as long as that is not known. */
static uint32_t
expected_items(const struct leat_pipeline_run *run, uint32_t s)
{
    const struct leat_pipeline_stage *stage = &run->pipeline->stages[s];
    uint32_t items = 0;

    if (!is_repeating(stage)) {
        return run->items;
    }
    for (uint32_t i = 0; i < run->items && is_counted(run, s); i++) {
        items += items_of(run, stage, i);
    }
    if (!is_counted(run, s)) {
        items = (uint32_t)((uint64_t)run->pipeline->each_mean[s] * run->items >> 8);
        items = items > 0 ? items : 1;
    }
    return items;
}

/* Of those, how many its largest query has. */
static uint32_t
largest_query(const struct leat_pipeline_run *run, uint32_t s)
{
    const struct leat_pipeline_stage *stage = &run->pipeline->stages[s];
    uint32_t items = is_repeating(stage) && is_counted(run, s) ? 0 : expected_items(run, s);

    for (uint32_t i = 0; i < run->items && is_repeating(stage) && is_counted(run, s); i++) {
        const uint32_t own = items_of(run, stage, i);
        items = own > items ? own : items;
    }
    return !is_repeating(stage) || items < stage->each_items ? items : stage->each_items;
}

static uint32_t
best_accuracy(const struct leat_application *app)
{
    uint32_t best_ppm = 0;

    for (uint32_t v = 0; v < app->variant_count; v++) {
        const struct leat_sched_variant *variant = &app->sched_variants[v];
        best_ppm = variant->ready && variant->accuracy_ppm > best_ppm ? variant->accuracy_ppm : best_ppm;
    }
    return best_ppm;
}

/*
 * What a stage is to reach so that the product of all does: as little as those leave that have ended, by what they had, those that
 * have begun, by what they reach, and all others at their best.
 */
static uint32_t
floor_of(const struct leat_dispatcher *dispatcher, const struct leat_pipeline_run *run, uint32_t s)
{
    const struct leat_pipeline *pipeline = run->pipeline;
    double others = 1;

    if (LEAT_LIKELY(run->accuracy_floor_ppm == 0)) {
        return 0;
    }
    if ((run->begun >> s & 1) != 0) {
        return run->stages[s].floor_ppm;
    }
    for (uint32_t o = 0; o < pipeline->stage_count; o++) {
        const struct stage_progress *progress = &run->stages[o];
        if (o != s) {
            others *= ((run->ended >> o & 1) != 0   ? progress->accuracy_ppm
                       : (run->begun >> o & 1) != 0 ? progress->floor_ppm
                                                    : best_accuracy(application_of(dispatcher, &pipeline->stages[o]))) /
                      1e6;
        }
    }
    const double floor_ppm = ceil(run->accuracy_floor_ppm / others - 1e-6); /* which is what dividing loses, at the most */
    return floor_ppm < FLOOR_MAX_PPM ? (uint32_t)floor_ppm : FLOOR_MAX_PPM;
}

static struct leat_sched_query
query_of(const struct leat_dispatcher *dispatcher, const struct leat_pipeline_run *run, uint32_t s)
{
    const struct leat_application *app = application_of(dispatcher, &run->pipeline->stages[s]);
    return (struct leat_sched_query){.items = largest_query(run, s),
                                     .accuracy_floor_ppm = floor_of(dispatcher, run, s),
                                     .length = (uint16_t)app->target.length_max};
}

/*
 * How long the longest chain of stages behind each takes at the least. A stage is due so long before the run's end: who
 * admits, orders and drops its queries by that deadline does so by the run's. To be looked at again when more is known of
 * the items.
 */
static void
look_ahead(const struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run)
{
    const struct leat_pipeline *pipeline = run->pipeline;
    const enum leat_rank rank = run->offline ? LEAT_RANK_OFFLINE : LEAT_RANK_ONLINE;
    uint64_t behind_ns[LEAT_PIPELINE_STAGES_MAX] = {0};

    for (uint32_t s = run->aim_ns != LEAT_NO_DEADLINE ? pipeline->stage_count : 0; s-- > 0;) {
        const struct leat_pipeline_stage *stage = &pipeline->stages[s];
        const struct leat_sched_query query = query_of(dispatcher, run, s);
        const uint64_t own_ns = query.items > 0 ? least_ns(application_of(dispatcher, stage), &query, rank) : 0;
        const uint64_t from_ns = behind_ns[s] + own_ns;
        run->stages[s].behind_ns = behind_ns[s];
        run->stages[s].from_ns = from_ns;
        for (uint32_t left = stage->after; left != 0; left &= left - 1) {
            uint64_t *source_ns = &behind_ns[__builtin_ctz(left)];
            *source_ns = from_ns > *source_ns ? from_ns : *source_ns;
        }
    }
}

static void
plan(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run)
{
    for (uint32_t s = 0; s < run->pipeline->stage_count; s++) {
        run->stages[s] = (struct stage_progress){.accuracy_ppm = UINT32_MAX};
        set_coming(dispatcher, run, s, expected_items(run, s));
        if (LEAT_UNLIKELY(run->cap_nano != UINT64_MAX)) {
            const struct leat_application *app = application_of(dispatcher, &run->pipeline->stages[s]);
            const struct leat_sched_query query = query_of(dispatcher, run, s);
            const uint32_t queries = (expected_items(run, s) + query.items - 1) / query.items;
            run->stages[s].least_nano = (uint64_t)least_nano(app, &query) * queries;
        }
    }
    look_ahead(dispatcher, run);
}

/* Does a stage repeat for what this one finds? */
static bool
tells_items(const struct leat_pipeline *pipeline, uint32_t s)
{
    uint32_t behind = s + 1;
    while (behind < pipeline->stage_count && pipeline->stages[behind].each_stage != s) {
        behind++;
    }
    return behind < pipeline->stage_count;
}

/* What is left of the cap is divided among the stages that have not begun, in proportion to what they cost at the least. */
static void
give_share(struct leat_pipeline_run *run, uint32_t s)
{
    uint64_t sum = 0;

    for (uint32_t left = all_stages(run->pipeline) & ~run->begun; left != 0; left &= left - 1) {
        sum += run->stages[__builtin_ctz(left)].least_nano;
    }
    const uint64_t least = run->stages[s].least_nano;
    /* What has no price is refused for that, and not for the cap. */
    const uint64_t share = least > 0 ? (uint64_t)((wide)run->cap_nano * least / sum) : run->cap_nano;
    run->stages[s].cap_nano = share;
    run->cap_nano -= share;
}

static void
end_stage(struct leat_pipeline_run *run, uint32_t s)
{
    struct stage_progress *progress = &run->stages[s];

    run->ended |= UINT32_C(1) << s;
    run->cap_nano += run->cap_nano != UINT64_MAX ? progress->cap_nano : 0;
    if (progress->accuracy_ppm == UINT32_MAX) { /* it had no items: nothing was wrong with them */
        progress->accuracy_ppm = 1000000;
        progress->start_ns = progress->end_ns = progress->ready_ns;
        return;
    }
    run->ran |= UINT32_C(1) << s;
}

/* How many there are on average decides what is expected of the next runs. */
static void
learn_items(struct leat_pipeline *pipeline, uint32_t s, uint32_t count)
{
    const int64_t mean = pipeline->each_mean[s], seen = (int64_t)count << 8;
    pipeline->each_mean[s] = (uint32_t)(mean == 0 ? seen : mean + (seen - mean) / (1 << EACH_MEAN_SHIFT));
}

/* Its sources are there. */
static void
begin_stage(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run, uint32_t s)
{
    struct leat_pipeline *pipeline = run->pipeline;
    const struct leat_pipeline_stage *stage = &pipeline->stages[s];
    struct stage_progress *progress = &run->stages[s];

    if (LEAT_UNLIKELY(run->cap_nano != UINT64_MAX)) {
        give_share(run, s);
    }
    progress->floor_ppm = floor_of(dispatcher, run, s);
    run->begun |= UINT32_C(1) << s;
    set_coming(dispatcher, run, s, 0);
    progress->ready_ns = run->submit_ns;
    for (uint32_t left = stage->after; left != 0; left &= left - 1) {
        const uint64_t end_ns = run->stages[__builtin_ctz(left)].end_ns;
        progress->ready_ns = end_ns > progress->ready_ns ? end_ns : progress->ready_ns;
    }
    progress->start_ns = UINT64_MAX;
    LEAT_ASSERT(!is_repeating(stage) || (run->ended >> stage->each_stage & 1) != 0);
    progress->items = is_repeating(stage) ? 0 : run->items;
    for (uint32_t i = 0; i < run->items && is_repeating(stage); i++) {
        const uint32_t count = items_of(run, stage, i);
        if (LEAT_UNLIKELY(count > stage->each_max)) { /* its engine broke its word, and there is no room for them */
            stop_run(dispatcher, run, LEAT_OUTCOME_FAILED, LEAT_REASON_DEVICE, stage->each_stage);
            return;
        }
        learn_items(pipeline, s, count);
        progress->items += count;
    }
    if (progress->items == 0) {
        end_stage(run, s);
        return;
    }
    run->open |= UINT32_C(1) << s;
    list_open(dispatcher, run);
}

/* Those from `first` on whose sources have all ended. One without items ends at once; what that lets begin is behind it. */
static void
begin_stages(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run, uint32_t first)
{
    for (uint32_t s = first; s < run->pipeline->stage_count && !run->stopped; s++) {
        if ((run->begun >> s & 1) == 0 && (run->pipeline->stages[s].after & ~run->ended) == 0) {
            begin_stage(dispatcher, run, s);
        }
    }
}

/* Where the stage's items from the start-th on lie. */
static void
place_tensors(const struct leat_pipeline_run *run, const struct leat_pipeline_stage *stage, uint32_t start,
              uint32_t *units)
{
    const struct leat_pipeline *pipeline = run->pipeline;
    const uint64_t workspace =
        pipeline->workspaces_unit + (uint64_t)(run - pipeline->runs) * (pipeline->workspace_bytes / LEAT_TENSOR_ALIGN);

    for (uint32_t t = 0; t < stage->input_count + stage->output_count; t++) {
        const struct leat_pipeline_tensor *tensor = &stage->tensors[t];
        const uint64_t behind = start * stage->item_bytes[t];
        const bool own = tensor->place == LEAT_PIPELINE_WORKSPACE;
        const uint64_t unit = own ? workspace + tensor->index : run->units[tensor->index];
        LEAT_ASSERT(behind % LEAT_TENSOR_ALIGN == 0 && unit + behind / LEAT_TENSOR_ALIGN < LEAT_PIPELINE_UNIT);
        units[t] = (uint32_t)(unit + behind / LEAT_TENSOR_ALIGN) | (own ? LEAT_PIPELINE_UNIT : 0);
    }
}

/* Of a repeating stage, how many items the next query has: all of one item of the run's, at most each_items. */
static uint32_t
next_items(const struct leat_pipeline_run *run, const struct leat_pipeline_stage *stage, struct stage_progress *progress,
           uint32_t *ret_start)
{
    while (progress->at == items_of(run, stage, progress->at_item)) {
        progress->at_item++;
        progress->at = 0;
    }
    const uint32_t left = items_of(run, stage, progress->at_item) - progress->at;
    *ret_start = progress->at_item * stage->each_max + progress->at;
    return left < stage->each_items ? left : stage->each_items;
}

/*
 * Is there room for its query in the application's list, behind what is on the way there? The first query of a run does not
 * ask, unless it is late already: it is a client's who comes, and refused where the list is full. What has begun waits for
 * its room, behind clients who ask the application itself, until its run cannot end by its last moment.
 */
static bool
has_room(const struct leat_application *app, const struct stage_query *query)
{
    const enum leat_rank rank = leat_dispatcher_stage_rank(query);
    const bool first = query->run->ended == 0 && query->run->outstanding == 0 && rank != LEAT_RANK_LATE;
    return first || leat_waiting_count(&app->waiting[rank]) + app->queued[rank] < app->waiting_max;
}

/* What waits for room is in nobody's list: who scales the application hears of it here. */
static void
tell_held(struct leat_dispatcher *dispatcher, const struct leat_pipeline_run *run, uint32_t s)
{
    if (!run->offline) {
        leat_dispatcher_tell_jump(dispatcher, application_of(dispatcher, &run->pipeline->stages[s]));
    }
}

enum made {
    MADE,
    MADE_LATER, /* no slot is free, or the application's list or the central queue is full */
    MADE_NONE,  /* the run was stopped */
};

uint64_t
leat_dispatcher_stage_end(const struct leat_dispatcher *dispatcher, uint16_t slot)
{
    const struct stage_query *query = &dispatcher->pipelines.queries[slot];
    return before(query->run->end_ns, query->run->stages[query->stage].behind_ns);
}

enum leat_rank
leat_dispatcher_stage_rank(const struct stage_query *query)
{
    return query->run->offline ? LEAT_RANK_OFFLINE : query->late ? LEAT_RANK_LATE : LEAT_RANK_ONLINE;
}

bool
leat_dispatcher_stage_be_late(struct leat_dispatcher *dispatcher, struct stage_query *query)
{
    struct leat_pipeline_run *run = query->run;

    if (!be_late(dispatcher, run)) {
        return false;
    }
    if (!run->offline && !query->late) {
        query->late = true;
        note_late(dispatcher, run);
        list_open(dispatcher, run);
    }
    return true;
}

bool
leat_dispatcher_stage_follows(const struct stage_query *query)
{
    return query->run->late_queries > 0 && !query->late;
}

uint32_t
leat_dispatcher_stage_depth(const struct stage_query *query)
{
    return query->run->pipeline->stages[query->stage].depth;
}

uint64_t
leat_dispatcher_run_end(const struct stage_query *query)
{
    return query->run->aim_ns;
}

bool
leat_dispatcher_stage_ahead(const struct leat_dispatcher *dispatcher, const struct stage_query *query, uint32_t index,
                            struct leat_stage_ahead *ret_ahead)
{
    const struct leat_pipeline_run *run = query->run;
    const struct leat_pipeline *pipeline = run->pipeline;
    const uint32_t depth = pipeline->stages[query->stage].depth;

    if (index >= pipeline->stage_count) {
        return false;
    }
    const struct leat_pipeline_stage *stage = &pipeline->stages[index];
    *ret_ahead = (struct leat_stage_ahead){
        .application = application_of(dispatcher, stage),
        .after = stage->after,
        .behind = stage->depth > depth && (run->begun >> index & 1) == 0,
        .items = run->stages[index].coming,
        .others_items = dispatcher->pipelines.coming[stage->application],
    };
    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        const bool same = pipeline->stages[s].application == stage->application;
        ret_ahead->others_items -= same ? run->stages[s].coming : 0;
        ret_ahead->again = ret_ahead->again || (same && s < index && pipeline->stages[s].depth > depth);
    }
    return true;
}

/* It cannot end in time any more if a query of the stage only comes now. */
static bool
stop_if_late(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run, uint32_t s)
{
    if (LEAT_LIKELY(dispatcher->now_ns <= before(run->end_ns, run->stages[s].from_ns))) {
        return false;
    }
    if (run->ended == 0 && run->outstanding == 0) { /* nothing of it has been asked */
        stop_run(dispatcher, run, LEAT_OUTCOME_REJECTED, LEAT_REASON_DEADLINE, s);
    } else {
        stop_run(dispatcher, run, LEAT_OUTCOME_EXPIRED, LEAT_REASON_NONE, s);
    }
    return true;
}

/* Into the central queue, of this slot; false: that is full. */
static bool
push_query(struct leat_dispatcher *dispatcher, const struct stage_query *query, uint32_t slot)
{
    const struct leat_pipeline_run *run = query->run;
    const struct leat_pipeline_stage *stage = &run->pipeline->stages[query->stage];
    struct leat_daemon_session *session = dispatcher->pipelines.session;
    struct leat_application *app = application_of(dispatcher, stage);
    struct leat_query_entry entry = {
        .submit_ns = run->stages[query->stage].ready_ns,
        .deadline_ns = before(query->aims ? run->aim_ns : run->end_ns, run->stages[query->stage].behind_ns),
        .items_less_1 = (uint16_t)(query->items - 1),
        .accuracy_floor_ppm = run->stages[query->stage].floor_ppm & FLOOR_MAX_PPM,
        .cost_cap = query->cap_code & LEAT_WIRE_COST_MAX,
        .offline = run->offline,
        .ticket_low = run->session,
        .session = LEAT_PIPELINE_SESSION,
        .slot = slot & (LEAT_SLOTS_MAX - 1),
        .application = stage->application & (LEAT_APPLICATIONS_MAX - 1),
        .length = app->target.length_max & LEAT_LENGTH_MAX,
    };

    place_tensors(run, stage, query->start,
                  stage->input_count + stage->output_count <= LEAT_WIRE_UNITS ? entry.units : session->lists[slot].units);
    if (LEAT_UNLIKELY(leat_central_queue_push(&dispatcher->queue, &entry, 1) == LEAT_AGAIN)) {
        return false;
    }
    app->queued[leat_dispatcher_stage_rank(query)]++;
    session->dispatcher.in_flight++;
    session->dispatcher.slots[slot] =
        (struct leat_waiting_slot){.ticket_low = run->session, .application = stage->application, .state = LEAT_SLOT_WAITS};
    bump(&app->counters.accepted, 1);
    leat_histogram_add(&app->sizes, query->items);
    return true;
}

/* It was late when it came, and there is no room for another such. */
static void
turn_late_away(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run, uint32_t s)
{
    struct leat_application *app = application_of(dispatcher, &run->pipeline->stages[s]);

    leat_load_arrive(&app->load, dispatcher->now_ns, run->items);
    leat_dispatcher_turn_away(dispatcher, app, run->items);
    stop_run(dispatcher, run, LEAT_OUTCOME_REJECTED, LEAT_REASON_QUEUE_FULL, s);
}

/* Makes the stage's next query, which aims at the objective if that can still be met. */
static enum made
make_query(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run, uint32_t s)
{
    struct pipelines *pipelines = &dispatcher->pipelines;
    const struct leat_pipeline_stage *stage = &run->pipeline->stages[s];
    struct stage_progress *progress = &run->stages[s];
    const bool capped = run->cap_nano != UINT64_MAX;
    uint32_t items = progress->items, start = 0;

    if (LEAT_UNLIKELY(stop_if_late(dispatcher, run, s))) {
        return MADE_NONE;
    }
    if (is_repeating(stage)) {
        items = next_items(run, stage, progress, &start);
    }
    const bool late = is_late(dispatcher, run), aims = run->aim_ns != run->end_ns && !late;
    const uint64_t share = capped ? progress->cap_nano * items / progress->items : 0;
    const uint16_t cap_code = capped ? leat_wire_cost_code(share < UINT32_MAX ? (uint32_t)share : UINT32_MAX) : 0;
    if (LEAT_UNLIKELY(capped && cap_code == 0)) {
        stop_run(dispatcher, run, LEAT_OUTCOME_REJECTED, LEAT_REASON_COST, s);
        return MADE_NONE;
    }
    const struct stage_query query = {
        .run = run,
        .items = items,
        .start = start,
        .cap_nano = capped ? leat_wire_cost_nano(cap_code) : 0,
        .cap_code = cap_code,
        .stage = (uint8_t)s,
        .aims = aims,
        .late = late && !run->offline,
    };
    const enum leat_rank rank = leat_dispatcher_stage_rank(&query);
    if (LEAT_UNLIKELY(rank == LEAT_RANK_LATE && !be_late(dispatcher, run))) {
        turn_late_away(dispatcher, run, s);
        return MADE_NONE;
    }
    if (LEAT_UNLIKELY(!has_slot(pipelines, rank) || !has_room(application_of(dispatcher, stage), &query) ||
                      !push_query(dispatcher, &query, pipelines->free_query))) {
        tell_held(dispatcher, run, s);
        return MADE_LATER;
    }
    take_query(dispatcher, &query);
    progress->cap_nano -= query.cap_nano;
    progress->items -= items;
    progress->at = (uint16_t)(progress->at + items);
    return MADE;
}

/* Pushes again what is to be, as far as there is room. */
static enum made
make_again(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run)
{
    struct stage_query *queries = dispatcher->pipelines.queries;

    for (uint16_t q = run->first_query; run->again > 0; q = queries[q].next) {
        LEAT_ASSERT(q != NO_QUERY);
        const uint32_t s = queries[q].stage;
        if (!queries[q].again) {
            continue;
        }
        if (LEAT_UNLIKELY(stop_if_late(dispatcher, run, s))) {
            return MADE_NONE;
        }
        if (!has_room(application_of(dispatcher, &run->pipeline->stages[s]), &queries[q]) ||
            !push_query(dispatcher, &queries[q], q)) {
            tell_held(dispatcher, run, s);
            return MADE_LATER;
        }
        queries[q].again = false;
        run->again--;
    }
    return MADE;
}

/* Makes the queries of stages that have begun, as far as there is room; true when there were any, or it was stopped. */
static bool
make_queries(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run)
{
    bool any = run->again > 0;

    if (LEAT_UNLIKELY(any)) {
        const uint32_t again = run->again;
        if (make_again(dispatcher, run) == MADE_NONE) {
            return true;
        }
        any = run->again < again;
    }
    for (uint32_t left = run->open; left != 0; left &= left - 1) {
        const uint32_t s = (uint32_t)__builtin_ctz(left);
        enum made made = MADE;
        while (run->stages[s].items > 0 && (made = make_query(dispatcher, run, s)) == MADE) {
            any = true;
        }
        if (made == MADE_NONE) {
            return true;
        }
        run->open &= ~((uint32_t)(made == MADE) << s);
    }
    list_open(dispatcher, run);
    return any;
}

/* By rank. One that has to wait holds up no other; where many of its rank do, the next round goes on behind them. */
bool
leat_dispatcher_make_queries(struct leat_dispatcher *dispatcher)
{
    struct pipelines *pipelines = &dispatcher->pipelines;
    bool any = false;

    for (enum leat_rank rank = 0; rank < LEAT_RANKS; rank++) {
        struct leat_pipeline_run *run = pipelines->open[rank].first, *next;
        for (uint32_t looks = 0; run != NULL && looks < LOOKS_PER_ROUND; looks++) {
            next = run->links[RUN_OPEN].next;
            any = make_queries(dispatcher, run) || any;
            end_run_if_over(dispatcher, run);
            run = next;
        }
        if (run != NULL && has_slot(pipelines, rank)) { /* else whoever waits longest gets the next */
            list_rotate(&pipelines->open[rank], RUN_OPEN, run);
        }
    }
    return any;
}

/* ---- Answers ---------------------------------------------------------------------------------- */

/* What has become of a stage's query. */
struct stage_answer {
    uint64_t start_ns, end_ns; /* not before its sources were there */
    const uint16_t *sizes;     /* as an answer has them; NULL: it tells none */
    uint32_t accuracy_ppm;
    uint16_t variant, worker_class;
    uint8_t outcome, reason;
};

static void
take_ok(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run, const struct stage_query *query,
        const struct stage_answer *answer)
{
    struct stage_progress *progress = &run->stages[query->stage];
    const struct leat_pipeline_stage *stage = &run->pipeline->stages[query->stage];

    progress->start_ns = answer->start_ns < progress->start_ns ? answer->start_ns : progress->start_ns;
    progress->end_ns = answer->end_ns > progress->end_ns ? answer->end_ns : progress->end_ns;
    progress->accuracy_ppm = answer->accuracy_ppm < progress->accuracy_ppm ? answer->accuracy_ppm : progress->accuracy_ppm;
    if (answer->sizes != NULL && !is_repeating(stage)) {
        memcpy(progress->sizes, answer->sizes, sizeof(progress->sizes));
    }
    if (LEAT_UNLIKELY(query->cap_nano > 0)) {
        const struct leat_application *app = application_of(dispatcher, stage);
        const uint64_t cost_nano = leat_application_cost_nano(app, answer->variant, answer->worker_class, query->items);
        progress->cap_nano += cost_nano < query->cap_nano ? query->cap_nano - cost_nano : 0;
    }
}

/* It was dropped for the objective, and its run is not to be: it comes again, late. */
static bool
ask_again(struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run, struct stage_query *query,
          const struct stage_answer *answer)
{
    const bool dropped = answer->outcome == LEAT_OUTCOME_EXPIRED ||
                         (answer->outcome == LEAT_OUTCOME_REJECTED && answer->reason == LEAT_REASON_DEADLINE);

    if (LEAT_LIKELY(!dropped || !query->aims || run->stopped)) {
        return false;
    }
    query->aims = false;
    if (!leat_dispatcher_stage_be_late(dispatcher, query)) {
        leat_dispatcher_turn_away(dispatcher, application_of(dispatcher, &run->pipeline->stages[query->stage]), query->items);
        stop_run(dispatcher, run, LEAT_OUTCOME_REJECTED, LEAT_REASON_QUEUE_FULL, query->stage);
        return false;
    }
    query->again = true;
    run->again++;
    list_open(dispatcher, run);
    return true;
}

static void
take_answer(struct leat_dispatcher *dispatcher, uint16_t slot, const struct stage_answer *answer)
{
    struct stage_query *query = &dispatcher->pipelines.queries[slot];
    struct leat_pipeline_run *run = query->run;
    const uint32_t s = query->stage;

    LEAT_ASSERT(run != NULL && dispatcher->pipelines.session->dispatcher.slots[slot].state == LEAT_SLOT_IDLE);
    if (LEAT_LIKELY(answer->outcome == LEAT_OUTCOME_OK)) {
        take_ok(dispatcher, run, query, answer);
    }
    if (LEAT_UNLIKELY(ask_again(dispatcher, run, query, answer))) {
        return;
    }
    give_query(dispatcher, slot);
    if (LEAT_UNLIKELY(answer->outcome != LEAT_OUTCOME_OK && !run->stopped)) {
        stop_run(dispatcher, run, answer->outcome, answer->reason, s);
    }
    if (!run->stopped && run->stages[s].outstanding == 0 && (run->open >> s & 1) == 0) {
        end_stage(run, s);
        if (tells_items(run->pipeline, s)) {
            look_ahead(dispatcher, run);
        }
        begin_stages(dispatcher, run, s + 1);
    }
    end_run_if_over(dispatcher, run);
}

/* From the lane's next answer, which has been published; it comes from a worker of the class, or from no worker. */
static void
take_next_answer(struct leat_dispatcher *dispatcher, uint32_t lane, uint16_t worker_class)
{
    struct pipelines *pipelines = &dispatcher->pipelines;
    const uint64_t position = pipelines->taken[lane]++;
    const struct leat_wire_response *cell =
        &pipelines->session->lanes[(size_t)lane * pipelines->session->slots + (position & (pipelines->session->slots - 1))];

    LEAT_ASSERT(atomic_load_explicit(&cell->sequence, memory_order_relaxed) == position + 1);
    const struct stage_query *query = &pipelines->queries[cell->slot];
    LEAT_ASSERT(query->run != NULL && cell->ticket_low == query->run->session);
    const uint64_t ready_ns = query->run->stages[query->stage].ready_ns;
    take_answer(dispatcher, cell->slot,
                &(struct stage_answer){.start_ns = ready_ns + cell->queue_ns,
                                       .end_ns = ready_ns + cell->total_ns,
                                       .sizes = cell->sizes,
                                       .accuracy_ppm = cell->accuracy_ppm,
                                       .variant = cell->variant,
                                       .worker_class = worker_class,
                                       .outcome = cell->outcome,
                                       .reason = cell->reason});
}

void
leat_dispatcher_take_answers(struct leat_dispatcher *dispatcher, uint32_t worker_index, const struct batch_record *batch,
                             const struct leat_done_cell *done)
{
    const struct worker_record *record = &dispatcher->records[worker_index];
    const struct leat_variant *variant = dispatcher->applications[batch->application]->variants[batch->variant];
    struct stage_answer answer = {.accuracy_ppm = variant->accuracy_ppm,
                                  .variant = batch->variant,
                                  .worker_class = done->shape.worker_class,
                                  .outcome = LEAT_OUTCOME_OK};

    for (uint64_t position = record->queries_head - done->queries; position != record->queries_head; position++) {
        const uint32_t at = position & (LEAT_WORKER_QUEUE - 1);
        if (record->queries[at].session != LEAT_PIPELINE_SESSION) {
            continue;
        }
        if (LEAT_UNLIKELY(!done->tells_all)) { /* which of them it is, the answer says */
            take_next_answer(dispatcher, 1 + worker_index, done->shape.worker_class);
            continue;
        }
        const uint16_t slot = record->queries[at].slot;
        const struct stage_query *query = &dispatcher->pipelines.queries[slot];
        LEAT_ASSERT(query->run != NULL);
        const uint64_t ready_ns = query->run->stages[query->stage].ready_ns, end_ns = done->start_ns + done->exec_ns;
        answer.start_ns = done->start_ns > ready_ns ? done->start_ns : ready_ns;
        answer.end_ns = end_ns > ready_ns ? end_ns : ready_ns;
        take_answer(dispatcher, slot, &answer);
    }
}

bool
leat_dispatcher_take_refusals(struct leat_dispatcher *dispatcher)
{
    const struct leat_daemon_session *session = dispatcher->pipelines.session;
    bool any = false;

    while (session != NULL && dispatcher->pipelines.taken[0] != session->lane_positions[0].next) {
        take_next_answer(dispatcher, 0, 0);
        any = true;
    }
    return any;
}

/* ---- What clients ask ------------------------------------------------------------------------- */

struct leat_pipeline *
leat_dispatcher_pipeline(const struct leat_dispatcher *dispatcher, uint32_t target)
{
    const uint32_t index = target - LEAT_PIPELINE_TARGET;
    return index < LEAT_PIPELINES_MAX ? dispatcher->pipelines.all[index] : NULL;
}

/* Units of its queries have a bit less than a client's. */
static bool
units_fit(const struct leat_pipeline *pipeline, const struct leat_wire_request *request, const uint32_t *units)
{
    for (uint32_t t = 0; t < pipeline->target.input_count + pipeline->target.output_count; t++) {
        const uint64_t bytes = pipeline->target.tensors[t].item_bytes * request->items;
        if (units[t] + bytes / LEAT_TENSOR_ALIGN >= LEAT_PIPELINE_UNIT) {
            return false;
        }
    }
    return true;
}

/* Is there one for it? */
static bool
has_run(const struct leat_pipeline *pipeline, bool offline)
{
    return pipeline->free_runs != NULL && (!offline || pipeline->offline_running < leat_pipeline_offline_max(pipeline));
}

/* Could its first stage run it, however much that has to do? */
static bool
suits_first_stage(const struct leat_dispatcher *dispatcher, const struct leat_pipeline_run *run,
                  const struct leat_wire_request *request)
{
    const struct leat_application *app = application_of(dispatcher, &run->pipeline->stages[0]);
    const struct leat_sched_query query = {.items = request->items,
                                           .accuracy_floor_ppm = floor_of(dispatcher, run, 0),
                                           .length = (uint16_t)app->target.length_max};
    const uint32_t nano = request->cost_cap != 0 ? least_nano(app, &query) : 0;

    return fastest_variant(app, &query) < app->variant_count &&
           (request->cost_cap == 0 || (nano > 0 && nano <= leat_wire_cost_nano(request->cost_cap)));
}

/* Does a stage's application have queries that wait for workers, in its list or behind a batch? They are its runs', or keep these waiting. */
static bool
waits_for_workers(const struct leat_dispatcher *dispatcher, const struct leat_pipeline *pipeline)
{
    bool waits = false;

    for (uint32_t s = 0; s < pipeline->stage_count && !waits; s++) {
        const struct leat_application *app = application_of(dispatcher, &pipeline->stages[s]);
        const struct leat_serving *serving = &app->serving[LEAT_RANK_ONLINE];
        waits = leat_waiting_count(&app->waiting[LEAT_RANK_ONLINE]) + leat_waiting_count(&app->waiting[LEAT_RANK_LATE]) > 0;
        for (uint32_t i = 0; i < serving->count && !waits; i++) {
            waits = dispatcher->sched_workers[serving->at[i]].outstanding > 1;
        }
    }
    return waits;
}

/* Could it end by its aim, if workers were idle? */
static bool
would_be_in_time(const struct leat_dispatcher *dispatcher, struct leat_pipeline_run *run)
{
    uint64_t longest_ns = 0;

    look_ahead(dispatcher, run);
    for (uint32_t s = 0; s < run->pipeline->stage_count; s++) {
        longest_ns = run->stages[s].from_ns > longest_ns ? run->stages[s].from_ns : longest_ns;
    }
    return before(run->aim_ns, longest_ns) >= dispatcher->now_ns;
}

/*
 * It came to its first stage, by which whoever scales knows how much comes to the pipeline. Where others wait for workers it is late,
 * too, as what a full list has no room for: with more workers some of these would have ended. Where nothing waits all that there is room
 * for runs: room is short then, and no core makes more of it.
 */
static void
turn_away(struct leat_dispatcher *dispatcher, struct leat_pipeline *pipeline, const struct leat_wire_request *request,
          uint64_t aim_ns)
{
    struct leat_application *app = application_of(dispatcher, &pipeline->stages[0]);
    struct leat_pipeline_run run = {.pipeline = pipeline,
                                    .aim_ns = aim_ns,
                                    .items = request->items,
                                    .accuracy_floor_ppm = request->accuracy_floor_ppm};

    if (suits_first_stage(dispatcher, &run, request)) {
        leat_load_arrive(&app->load, dispatcher->now_ns, request->items);
        app->late_queries += waits_for_workers(dispatcher, pipeline) && would_be_in_time(dispatcher, &run);
        leat_dispatcher_turn_away(dispatcher, app, request->items);
    }
}

enum leat_reason
leat_dispatcher_begin_run(struct leat_dispatcher *dispatcher, struct leat_pipeline *pipeline,
                          struct leat_daemon_session *client, const struct leat_wire_request *request, const uint32_t *units,
                          uint64_t submit_ns)
{
    struct leat_pipeline_run *run = pipeline->free_runs;
    const bool offline = (request->flags & LEAT_WIRE_OFFLINE) != 0;
    const uint64_t default_ns = offline ? 0 : pipeline->latency_ns;
    const uint64_t latency_ns = request->latency_us != 0 ? (uint64_t)request->latency_us * 1000 : default_ns;
    const uint32_t lives = pipeline->late == LEAT_PIPELINE_DROP_THRICE ? 3 : 1;
    const bool endless = latency_ns == 0 || pipeline->late == LEAT_PIPELINE_SERVE;
    const uint64_t aim_ns = latency_ns == 0 ? LEAT_NO_DEADLINE : submit_ns + latency_ns;

    if (!units_fit(pipeline, request, units)) {
        bump(&pipeline->counters.rejected, 1);
        return LEAT_REASON_TENSOR;
    }
    if (LEAT_UNLIKELY(!has_run(pipeline, offline))) {
        if (!offline) {
            turn_away(dispatcher, pipeline, request, aim_ns);
        }
        bump(&pipeline->counters.rejected, 1);
        return LEAT_REASON_QUEUE_FULL;
    }
    pipeline->free_runs = run->links[RUN_LIVE].next;
    *run = (struct leat_pipeline_run){
        .pipeline = pipeline,
        .submit_ns = submit_ns,
        .aim_ns = aim_ns,
        .end_ns = endless ? LEAT_NO_DEADLINE : submit_ns + lives * latency_ns,
        .cap_nano = request->cost_cap != 0 ? leat_wire_cost_nano(request->cost_cap) : UINT64_MAX,
        .ticket_low = request->ticket_low,
        .accuracy_floor_ppm = request->accuracy_floor_ppm < FLOOR_MAX_PPM ? request->accuracy_floor_ppm : FLOOR_MAX_PPM,
        .items = request->items,
        .session = client->index,
        .slot = request->slot,
        .first_query = NO_QUERY,
        .failed_stage = UINT16_MAX,
        .outcome = LEAT_OUTCOME_OK,
        .offline = offline,
        .listed = LEAT_RANKS,
    };
    memcpy(run->units, units, (pipeline->target.input_count + pipeline->target.output_count) * sizeof(run->units[0]));
    plan(dispatcher, run);
    list_append(&dispatcher->pipelines.live, RUN_LIVE, run);
    client->dispatcher.in_flight++;
    client->dispatcher.slots[request->slot] =
        (struct leat_waiting_slot){.ticket_low = request->ticket_low,
                                   .application = request->target,
                                   .state = LEAT_SLOT_WAITS,
                                   .run = (run - pipeline->runs) & (LEAT_PIPELINE_RUNS_MAX - 1)};
    bump(&pipeline->counters.accepted, 1);
    pipeline->running++;
    pipeline->offline_running += offline;
    atomic_store_explicit(&pipeline->counters.running, pipeline->running, memory_order_relaxed);
    begin_stages(dispatcher, run, 0);
    return LEAT_REASON_NONE;
}

/* Is there something of it that is not with a worker? */
static bool
can_be_stopped(const struct leat_dispatcher *dispatcher, const struct leat_pipeline_run *run)
{
    bool waits = run->begun != all_stages(run->pipeline) || is_open(run);

    for (uint16_t q = run->first_query; q != NO_QUERY && !waits; q = dispatcher->pipelines.queries[q].next) {
        waits = dispatcher->pipelines.session->dispatcher.slots[q].state == LEAT_SLOT_WAITS;
    }
    return waits;
}

void
leat_dispatcher_cancel_run(struct leat_dispatcher *dispatcher, const struct leat_daemon_session *client,
                           uint32_t slot_index)
{
    const struct leat_waiting_slot *slot = &client->dispatcher.slots[slot_index];
    struct leat_pipeline_run *run = &leat_dispatcher_pipeline(dispatcher, slot->application)->runs[slot->run];

    LEAT_ASSERT(run->pipeline != NULL && run->session == client->index && run->slot == slot_index);
    if (!run->stopped && can_be_stopped(dispatcher, run)) {
        stop_run(dispatcher, run, LEAT_OUTCOME_CANCELLED, LEAT_REASON_NONE, UINT16_MAX);
        end_run_if_over(dispatcher, run);
    }
}

void
leat_dispatcher_leave_runs(struct leat_dispatcher *dispatcher, const struct leat_daemon_session *client)
{
    struct leat_pipeline_run *next;

    for (struct leat_pipeline_run *run = dispatcher->pipelines.live.first; run != NULL; run = next) {
        next = run->links[RUN_LIVE].next;
        if (run->session == client->index && !run->stopped) {
            stop_run(dispatcher, run, LEAT_OUTCOME_CANCELLED, LEAT_REASON_NONE, UINT16_MAX);
            end_run_if_over(dispatcher, run);
        }
    }
}

/* ---- Pipelines come and go -------------------------------------------------------------------- */

/* The first pipeline comes: what its queries belong to is there from now on. */
static void
take_session(struct leat_dispatcher *dispatcher)
{
    struct pipelines *pipelines = &dispatcher->pipelines;
    struct leat_daemon_session *session =
        atomic_load_explicit(&dispatcher->options.tables->sessions[LEAT_PIPELINE_SESSION], memory_order_relaxed);

    LEAT_ASSERT(session != NULL && session->index == LEAT_PIPELINE_SESSION);
    LEAT_ASSERT(session->lane_count > dispatcher->options.worker_count && session->slots <= LEAT_SLOTS_MAX);
    LEAT_ASSERT(pipelines->session == NULL || pipelines->session == session);
    if (pipelines->session == NULL) {
        pipelines->session = session;
        for (uint32_t q = 0; q < session->slots; q++) {
            pipelines->queries[q] = (struct stage_query){.next = q + 1 < session->slots ? (uint16_t)(q + 1) : NO_QUERY};
        }
        pipelines->free_query = 0;
    }
}

/* Asserts what the rest relies on. */
static void
check_description(const struct leat_dispatcher *dispatcher, const struct leat_pipeline *pipeline)
{
    const struct leat_target *target = &pipeline->target;
    const uint32_t tensors = target->input_count + target->output_count;

    LEAT_ASSERT(pipeline->stage_count >= 1 && pipeline->stage_count <= LEAT_PIPELINE_STAGES_MAX && pipeline->runs != NULL);
    LEAT_ASSERT(target->items_max >= 1 && target->items_max <= LEAT_PIPELINE_ITEMS_MAX && target->length_max == 0);
    LEAT_ASSERT(target->output_count >= 1 && tensors <= LEAT_TENSORS_MAX);
    LEAT_ASSERT(target->tensors[tensors - 1].item_bytes == pipeline->stage_count * 2 * sizeof(uint64_t));
    LEAT_ASSERT(pipeline->size_count == 0 || target->items_max * pipeline->size_count <= LEAT_SIZES_MAX);
    LEAT_ASSERT(pipeline->workspace_bytes % LEAT_TENSOR_ALIGN == 0);
    LEAT_ASSERT(pipeline->workspaces_unit + pipeline->runs_max * (pipeline->workspace_bytes / LEAT_TENSOR_ALIGN) <=
                dispatcher->pipelines.session->arena_bytes / LEAT_TENSOR_ALIGN);
    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        const struct leat_pipeline_stage *stage = &pipeline->stages[s];
        const struct leat_application *app = application_of(dispatcher, stage);
        const uint32_t items_max = is_repeating(stage) ? stage->each_items : target->items_max; /* of its queries */
        LEAT_ASSERT(stage->after >> s == 0 && items_max >= 1 && items_max <= app->target.items_max);
        LEAT_ASSERT(stage->size_count * items_max <= LEAT_SIZES_MAX);
        if (is_repeating(stage)) {
            LEAT_ASSERT(stage->each_stage < s && stage->each_max >= 1);
            LEAT_ASSERT(!is_repeating(&pipeline->stages[stage->each_stage]));
            LEAT_ASSERT(stage->each_size < pipeline->stages[stage->each_stage].size_count);
        }
    }
    for (uint32_t i = 0; i < pipeline->size_count; i++) {
        LEAT_ASSERT(pipeline->size_of[i] < pipeline->stage_count && !is_repeating(&pipeline->stages[pipeline->size_of[i]]));
        LEAT_ASSERT(pipeline->size_at[i] < pipeline->stages[pipeline->size_of[i]].size_count);
    }
}

void
leat_dispatcher_add_pipeline(struct leat_dispatcher *dispatcher, struct leat_pipeline *pipeline)
{
    LEAT_ASSERT(pipeline->index < LEAT_PIPELINES_MAX && dispatcher->pipelines.all[pipeline->index] == NULL);
    take_session(dispatcher);
    check_description(dispatcher, pipeline);
    dispatcher->pipelines.all[pipeline->index] = pipeline;
    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        struct leat_pipeline_stage *stage = &pipeline->stages[s];
        stage->depth = 0;
        for (uint32_t left = stage->after; left != 0; left &= left - 1) {
            const uint32_t source_depth = pipeline->stages[__builtin_ctz(left)].depth;
            stage->depth = source_depth + 1 > stage->depth ? source_depth + 1 : stage->depth;
        }
    }
}

void
leat_dispatcher_remove_pipeline(struct leat_dispatcher *dispatcher, struct leat_pipeline *pipeline)
{
    LEAT_ASSERT(dispatcher->pipelines.all[pipeline->index] == pipeline && !pipeline->removing);
    pipeline->removing = true;
    dispatcher->removing_count++;
}

void
leat_dispatcher_settle_pipelines(struct leat_dispatcher *dispatcher)
{
    for (uint32_t i = 0; i < LEAT_PIPELINES_MAX; i++) {
        struct leat_pipeline *pipeline = dispatcher->pipelines.all[i];
        if (pipeline != NULL && pipeline->removing && pipeline->running == 0) {
            const struct leat_event event = {.kind = LEAT_EVENT_PIPELINE_GONE, .pipeline = pipeline};
            dispatcher->pipelines.all[i] = NULL;
            dispatcher->removing_count--;
            leat_dispatcher_send(dispatcher, &event);
        }
    }
}

/* ---- Checking --------------------------------------------------------------------------------- */

static void
check_run(const struct leat_dispatcher *dispatcher, const struct leat_pipeline_run *run)
{
    const struct leat_daemon_session *client = client_of(dispatcher, run);
    uint32_t listed = 0, counted = 0, open = 0, again = 0, late = 0;

    for (uint16_t q = run->first_query; q != NO_QUERY; q = dispatcher->pipelines.queries[q].next) {
        LEAT_ASSERT(dispatcher->pipelines.queries[q].run == run);
        again += dispatcher->pipelines.queries[q].again;
        late += dispatcher->pipelines.queries[q].late;
        listed++;
    }
    for (uint32_t rank = 0; rank < LEAT_RANKS; rank++) {
        for (const struct leat_pipeline_run *other = dispatcher->pipelines.open[rank].first; other != NULL;
             other = other->links[RUN_OPEN].next) {
            open += other == run;
            LEAT_ASSERT(other != run || rank == run->listed);
        }
    }
    LEAT_ASSERT(late == run->late_queries && (late == 0 || run->late));
    LEAT_ASSERT(!is_open(run) || (run->listed == LEAT_RANK_OFFLINE) == run->offline);
    LEAT_ASSERT(!is_open(run) || late == 0 || run->listed == LEAT_RANK_LATE);
    for (uint32_t s = 0; s < run->pipeline->stage_count; s++) {
        const struct stage_progress *progress = &run->stages[s];
        counted += progress->outstanding;
        LEAT_ASSERT((run->begun >> s & 1) != 0 || progress->outstanding == 0);
        LEAT_ASSERT(progress->coming == 0 || ((run->begun >> s & 1) == 0 && !run->stopped && !run->offline));
        LEAT_ASSERT((run->ended >> s & 1) == 0 || progress->outstanding + progress->items == 0);
        LEAT_ASSERT(run->stopped || (run->open >> s & 1) == (progress->items > 0));
    }
    LEAT_ASSERT(listed == run->outstanding && counted == listed && again == run->again && open == is_open(run));
    LEAT_ASSERT((run->open & ~run->begun) == 0 && (run->ended & ~run->begun) == 0 && (run->open & run->ended) == 0);
    LEAT_ASSERT(run->outstanding > 0 || run->open != 0); /* else it would have ended */
    LEAT_ASSERT(client != NULL && client->dispatcher.in_flight > 0 && (run->stopped || !client->dispatcher.closing));
}

uint64_t
leat_dispatcher_check_pipelines(const struct leat_dispatcher *dispatcher)
{
    const struct pipelines *pipelines = &dispatcher->pipelines;
    uint64_t runs = 0, running = 0, outstanding = 0, again = 0, offline = 0, late = 0, free_queries = 0;

    if (pipelines->session == NULL) {
        LEAT_ASSERT(pipelines->live.first == NULL);
        return 0;
    }
    uint32_t offline_runs[LEAT_PIPELINES_MAX] = {0}, late_runs[LEAT_PIPELINES_MAX] = {0};
    uint64_t coming[LEAT_APPLICATIONS_MAX] = {0};
    for (const struct leat_pipeline_run *run = pipelines->live.first; run != NULL; run = run->links[RUN_LIVE].next) {
        check_run(dispatcher, run);
        offline_runs[run->pipeline->index] += run->offline;
        late_runs[run->pipeline->index] += run->late;
        outstanding += run->outstanding;
        again += run->again;
        offline += run->offline ? run->outstanding : 0;
        late += run->late_queries;
        for (uint32_t s = 0; s < run->pipeline->stage_count; s++) {
            coming[run->pipeline->stages[s].application] += run->stages[s].coming;
        }
        runs++;
    }
    LEAT_ASSERT(memcmp(coming, pipelines->coming, sizeof(coming)) == 0);
    for (uint32_t i = 0; i < LEAT_PIPELINES_MAX; i++) {
        const struct leat_pipeline *pipeline = pipelines->all[i];
        uint32_t count = 0;
        for (const struct leat_pipeline_run *run = pipeline != NULL ? pipeline->free_runs : NULL; run != NULL;
             run = run->links[RUN_LIVE].next) {
            LEAT_ASSERT(run->pipeline == NULL);
            count++;
        }
        LEAT_ASSERT(pipeline == NULL || count + pipeline->running == pipeline->runs_max);
        LEAT_ASSERT(pipeline == NULL || pipeline->offline_running == offline_runs[i]);
        LEAT_ASSERT(pipeline == NULL || pipeline->late_running == late_runs[i]);
        running += pipeline != NULL ? pipeline->running : 0;
    }
    for (uint16_t q = pipelines->free_query; q != NO_QUERY; q = pipelines->queries[q].next) {
        LEAT_ASSERT(pipelines->queries[q].run == NULL && pipelines->session->dispatcher.slots[q].state == LEAT_SLOT_IDLE);
        free_queries++;
    }
    LEAT_ASSERT(runs == running && outstanding + free_queries == pipelines->session->slots);
    LEAT_ASSERT(pipelines->session->dispatcher.in_flight == outstanding - again && pipelines->offline_queries == offline);
    LEAT_ASSERT(pipelines->late_queries == late);
    return runs;
}

void
leat_dispatcher_check_run_slot(const struct leat_dispatcher *dispatcher, const struct leat_daemon_session *client,
                               uint32_t slot_index)
{
    const struct leat_waiting_slot *slot = &client->dispatcher.slots[slot_index];
    const struct leat_pipeline *pipeline = leat_dispatcher_pipeline(dispatcher, slot->application);
    LEAT_ASSERT(pipeline != NULL && slot->run < pipeline->runs_max);
    const struct leat_pipeline_run *run = &pipeline->runs[slot->run];
    LEAT_ASSERT(run->pipeline == pipeline && run->session == client->index && run->slot == slot_index &&
                run->ticket_low == slot->ticket_low);
}
