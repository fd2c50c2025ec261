/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "sched/calls.h"
#include "tools/simulate/events.h"
#include "tools/simulate/random.h"
#include "tools/simulate/stages_table.h"

#define SECOND_NS UINT64_C(1000000000)
#define BUCKET_NS UINT64_C(100000000) /* that arrivals are counted by */

const char *const stages_scaler_names[STAGES_SCALERS] = {"none", "fa2", "sponge", "themis", "leat", "fa2-slack"};

enum instance_state { ABSENT, STARTING, READY, LEAVING /* at the end of its batch */ };

struct instance {
    enum instance_state state;
    uint32_t cores;
    uint64_t ready_in; /* the last decision before it was ready, counted */
    uint64_t due_ns;  /* of its start, or of its batch's end: events at other times are of what was there before */
    uint32_t running; /* items of its batch; 0: idle */
    uint32_t batch[LEAT_SCALE_BATCH_MAX];
};

struct stage {
    struct instance instances[STAGES_INSTANCES_MAX];
    uint32_t used;             /* instances behind these never were */
    uint32_t cores, batch;     /* of each that is ready */
    uint32_t cores_ordered;
    uint64_t cores_at_ns;      /* when they are in force */
    uint64_t ordered_in;       /* the decision that ordered them, counted */
    uint32_t *queue;           /* queries, once for each item; each passes once. Some were dropped elsewhere */
    uint32_t head, tail;
    uint32_t waiting;          /* items of those that were not */
    struct leat_calls calls;   /* where it repeats */
    uint64_t came;             /* items so far */
    double least_ms;           /* that a batch takes */
};

/* A query at a stage. */
struct place {
    uint16_t items, waiting, left; /* that it has there, that no instance has taken, and that have not ended */
    bool begun;
};

/* One pipeline. */
struct line {
    struct run *run;
    const struct stages_pipeline *of;
    const struct leat_themis_pipeline *pipeline;
    struct stages_share *share; /* of the result */
    uint32_t index;
    uint64_t *arrived_ns;  /* [query_count] */
    uint32_t query_count, next_query;
    struct place *places;  /* [query_count][stage_count] */
    uint16_t *ended;       /* [query_count]: stages that have; all bits: it is over */
    struct stage stages[LEAT_SCALE_STAGES_MAX];
    uint32_t *buckets; /* arrivals by BUCKET_NS */
    /* Of scalers. */
    struct leat_themis_state themis;
    struct leat_scale_plan settling; /* Themis: in force once all that starts is ready */
    bool settles;
    uint32_t stable;                 /* FA2: decisions in a row that want fewer instances */
    struct leat_scaler_application leat;
    uint64_t *latency_ns; /* of batches, for the joint program */
};

#define OVER UINT16_MAX

/* Numbers of events: of each line first instances of all stages, then cores of each; behind all lines' the next decision. */
enum {
    EVENT_CORES = LEAT_SCALE_STAGES_MAX * STAGES_INSTANCES_MAX,
    EVENTS_OF_LINE = EVENT_CORES + LEAT_SCALE_STAGES_MAX,
    EVENT_DECIDE = EVENTS_OF_LINE * STAGES_PIPELINES_MAX,
};

struct run {
    const struct stages_options *options;
    struct stages_result *result;
    struct line lines[STAGES_PIPELINES_MAX];
    uint64_t *latencies_ns; /* of what was answered */
    uint64_t query_count, answered;
    uint64_t now_ns, held_since_ns, random;
    struct event *heap;
    uint32_t heap_count;
    uint32_t bucket_count;
    struct leat_scaler_state scaler;
    void *memory;      /* of solvers */
};

/* ---- Time and what is held ----------------------------------------------------------------------- */

/* Of instances that are there, and of those of them that stay: the others end their last batch. */
static uint32_t
cores_held(const struct run *run, uint32_t *ret_staying)
{
    uint32_t cores = 0;

    *ret_staying = 0;
    for (uint32_t l = 0; l < run->options->pipeline_count; l++) {
        const struct line *line = &run->lines[l];
        for (uint32_t s = 0; s < line->pipeline->stage_count; s++) {
            for (uint32_t i = 0; i < line->stages[s].used; i++) {
                const struct instance *instance = &line->stages[s].instances[i];
                cores += instance->state != ABSENT ? instance->cores : 0;
                *ret_staying += instance->state != ABSENT && instance->state != LEAVING ? instance->cores : 0;
            }
        }
    }
    return cores;
}

/* Called before anything that is held changes. */
static void
account(struct run *run)
{
    struct stages_result *result = run->result;
    uint32_t staying;
    const double cores = cores_held(run, &staying);

    if (run->held_since_ns < run->now_ns && staying > result->cores_most) {
        result->cores_most = staying;
    }
    for (uint64_t from_ns = run->held_since_ns; from_ns < run->now_ns;) {
        const uint64_t second = from_ns / SECOND_NS;
        const uint64_t end_ns = (second + 1) * SECOND_NS < run->now_ns ? (second + 1) * SECOND_NS : run->now_ns;
        if (second < result->second_count) {
            result->seconds[second].used += cores * (double)(end_ns - from_ns) / (double)SECOND_NS;
            result->core_s += cores * (double)(end_ns - from_ns) / (double)SECOND_NS;
        }
        from_ns = end_ns;
    }
    run->held_since_ns = run->now_ns;
}

static void
push(struct run *run, uint64_t at_ns, uint32_t what)
{
    events_push(run->heap, &run->heap_count, (struct event){.at_ns = at_ns, .worker = what});
}

static void
push_of(const struct line *line, uint64_t at_ns, uint32_t what)
{
    push(line->run, at_ns, line->index * EVENTS_OF_LINE + what);
}

static uint32_t
count_in(const struct line *line, uint32_t s, enum instance_state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < line->stages[s].used; i++) {
        count += line->stages[s].instances[i].state == state;
    }
    return count;
}

/* ---- Queries --------------------------------------------------------------------------------------- */

static uint64_t
objective_ns(const struct line *line)
{
    return line->pipeline->objective_ms * UINT64_C(1000000);
}

static struct place *
place_of(const struct line *line, uint32_t query, uint32_t s)
{
    return &line->places[(size_t)query * line->pipeline->stage_count + s];
}

static void
violate(struct line *line, uint32_t query)
{
    const uint64_t second = line->arrived_ns[query] / SECOND_NS;
    line->run->result->seconds[second].violated++;
}

static void
answer(struct line *line, uint32_t query)
{
    struct run *run = line->run;
    const uint64_t took_ns = run->now_ns - line->arrived_ns[query];

    run->latencies_ns[run->answered++] = took_ns;
    line->ended[query] = OVER;
    if (took_ns <= objective_ns(line)) {
        run->result->in_time++;
        line->share->in_time++;
    } else {
        run->result->late++;
        violate(line, query);
    }
}

/* What of it waits elsewhere is asked of nobody any more; what runs ends, for nothing. */
static void
drop(struct line *line, uint32_t query)
{
    for (uint32_t s = 0; s < line->pipeline->stage_count; s++) {
        line->stages[s].waiting -= place_of(line, query, s)->waiting;
    }
    line->ended[query] = OVER;
    line->run->result->dropped++;
    violate(line, query);
}

static uint64_t
service_ns(struct line *line, uint32_t s, uint32_t batch, uint32_t cores)
{
    struct run *run = line->run;
    const double said_ms = leat_scale_latency_ms(&line->pipeline->stages[s].latency, batch, cores);
    const double ms = fmax(said_ms, line->stages[s].least_ms);
    const double noisy_ms = ms * (run->options->noise_share > 0 ? 1 + run->options->noise_share * random_normal(&run->random) : 1);
    return noisy_ms > 0.001 ? (uint64_t)(noisy_ms * 1e6) : 1000;
}

/* Queues are in the order of arrival: what is old is in front. */
static void
drop_old(struct line *line, struct stage *stage)
{
    const double limit_ns = line->run->options->drop_multiple * (double)objective_ns(line);

    for (; stage->head < stage->tail; stage->head++) {
        const uint32_t query = stage->queue[stage->head];
        if (line->ended[query] == OVER) {
            continue;
        }
        if (limit_ns <= 0 || (double)(line->run->now_ns - line->arrived_ns[query]) < limit_ns) {
            return;
        }
        drop(line, query);
    }
}

/* As many items as it takes and there are, of queries that go on. */
static void
take_batch(struct line *line, uint32_t s, struct instance *instance)
{
    struct stage *stage = &line->stages[s];

    while (instance->running < stage->batch && stage->head < stage->tail) {
        const uint32_t query = stage->queue[stage->head++];
        if (line->ended[query] != OVER) {
            place_of(line, query, s)->waiting--;
            instance->batch[instance->running++] = query;
        }
    }
    stage->waiting -= instance->running;
}

static void
dispatch(struct line *line, uint32_t s)
{
    struct stage *stage = &line->stages[s];

    for (uint32_t i = 0; i < stage->used; i++) {
        struct instance *instance = &stage->instances[i];
        if (instance->state != READY || instance->running > 0) {
            continue;
        }
        drop_old(line, stage);
        if (stage->waiting == 0 || (line->run->options->whole_batches && stage->waiting < stage->batch)) {
            return;
        }
        take_batch(line, s, instance);
        instance->due_ns = line->run->now_ns + service_ns(line, s, instance->running, instance->cores);
        push_of(line, instance->due_ns, s * STAGES_INSTANCES_MAX + i);
    }
}

static void
enqueue(struct line *line, uint32_t s, uint32_t query)
{
    struct stage *stage = &line->stages[s];
    uint32_t at = stage->tail++;

    /* Batches of several instances may end in another order than they came in. */
    for (; at > stage->head && stage->queue[at - 1] > query; at--) {
        stage->queue[at] = stage->queue[at - 1];
    }
    stage->queue[at] = query;
    stage->waiting++;
    stage->came++;
}

static void end_stage(struct line *line, uint32_t s, uint32_t query);

/* All that it waits for has ended, of which whoever ended last may see what one that ended within that has begun. */
static void
begin_stage(struct line *line, uint32_t s, uint32_t query)
{
    struct place *place = place_of(line, query, s);

    if (place->begun) {
        return;
    }
    place->begun = true;
    place->waiting = place->left = place->items;
    for (uint32_t item = 0; item < place->items; item++) {
        enqueue(line, s, query);
    }
    if (place->items == 0) { /* it ends as it begins */
        end_stage(line, s, query);
    }
}

static void
end_stage(struct line *line, uint32_t s, uint32_t query)
{
    const uint32_t stage_count = line->pipeline->stage_count;

    line->ended[query] |= (uint16_t)(1u << s);
    if (line->ended[query] == (1u << stage_count) - 1) {
        answer(line, query);
        return;
    }
    for (uint32_t next = s + 1; next < stage_count && line->ended[query] != OVER; next++) {
        const uint32_t after = line->of->after[next];
        if ((after >> s & 1) != 0 && (after & ~(uint32_t)line->ended[query]) == 0) {
            begin_stage(line, next, query);
        }
    }
}

/* ---- Orders ---------------------------------------------------------------------------------------- */

/* Whether one that is ready has others than were ordered, and no order is under way. */
static bool
has_other_cores(const struct line *line, uint32_t s)
{
    const struct stage *stage = &line->stages[s];
    bool others = false;

    for (uint32_t i = 0; i < stage->used && stage->cores_at_ns <= line->run->now_ns; i++) {
        others = others || (stage->instances[i].state == READY && stage->instances[i].cores != stage->cores_ordered);
    }
    return others;
}

static void
order_cores(struct line *line, uint32_t s, uint32_t cores)
{
    struct stage *stage = &line->stages[s];

    if (cores != stage->cores_ordered || has_other_cores(line, s)) {
        stage->cores_ordered = cores;
        stage->cores_at_ns = line->run->now_ns + line->run->options->resize_ns;
        stage->ordered_in = line->run->result->decisions;
        push_of(line, stage->cores_at_ns, EVENT_CORES + s);
        line->run->result->resizes++;
    }
}

static void
start_instance(struct line *line, uint32_t s, uint32_t cores)
{
    struct run *run = line->run;

    for (uint32_t i = 0; i < STAGES_INSTANCES_MAX; i++) {
        struct instance *instance = &line->stages[s].instances[i];
        if (instance->state == ABSENT) {
            *instance = (struct instance){.state = STARTING, .cores = cores, .due_ns = run->now_ns + run->options->start_ns};
            line->stages[s].used = i < line->stages[s].used ? line->stages[s].used : i + 1;
            push_of(line, instance->due_ns, s * STAGES_INSTANCES_MAX + i);
            run->result->starts++;
            return;
        }
    }
}

/* One that starts goes at once, its event finds nothing; else an idle one; else one at the end of its batch. */
static void
give_back_instance(struct line *line, uint32_t s)
{
    struct instance *best = NULL;

    for (uint32_t i = 0; i < line->stages[s].used; i++) {
        struct instance *instance = &line->stages[s].instances[i];
        if (instance->state == STARTING) {
            best = instance;
            break;
        }
        if (instance->state == READY && (best == NULL || instance->running == 0)) {
            best = instance;
        }
    }
    if (best != NULL) {
        best->state = best->running > 0 ? LEAVING : ABSENT;
    }
}

/* ---- What scalers see --------------------------------------------------------------------------------- */

/* Of the time before now, in whole buckets. */
static double
rate_of(const struct line *line, uint32_t buckets_ago, uint32_t buckets)
{
    const uint64_t present = line->run->now_ns / BUCKET_NS;
    uint64_t sum = 0;

    for (uint64_t b = 1 + buckets_ago; b <= buckets_ago + buckets && b <= present; b++) {
        sum += present - b < line->run->bucket_count ? line->buckets[present - b] : 0;
    }
    const uint64_t known = present > buckets_ago ? present - buckets_ago : 0;
    const uint64_t seen = known < buckets ? known : buckets;
    return seen > 0 ? (double)sum * (double)SECOND_NS / (double)(seen * BUCKET_NS) : 0;
}

/* The highest rate of a second in the next ten: as it will be. */
static double
oracle_qps(const struct line *line)
{
    uint32_t most = 0;

    for (uint32_t second = 0, query = line->next_query; second < LEAT_FORECAST_WINDOW_S; second++) {
        const uint32_t first = query;
        while (query < line->query_count && line->arrived_ns[query] < line->run->now_ns + (second + 1) * SECOND_NS) {
            query++;
        }
        most = query - first > most ? query - first : most;
    }
    return most;
}

/* The same as it is foretold, from whole seconds before now. */
static double
forecast_qps(const struct line *line)
{
    const uint32_t per_second = (uint32_t)(SECOND_NS / BUCKET_NS);
    const uint64_t known_s = line->run->now_ns / SECOND_NS;
    double maxima_qps[LEAT_FORECAST_WINDOWS];

    if (line->run->options->oracle) {
        return oracle_qps(line);
    }
    for (uint32_t w = 0; w < LEAT_FORECAST_WINDOWS; w++) {
        double *most_qps = &maxima_qps[LEAT_FORECAST_WINDOWS - 1 - w];
        /* Before it all began: as the window after it. */
        *most_qps = w > 0 && known_s <= LEAT_FORECAST_WINDOW_S * w ? maxima_qps[LEAT_FORECAST_WINDOWS - w] : 0;
        for (uint32_t ago = LEAT_FORECAST_WINDOW_S * w; ago < LEAT_FORECAST_WINDOW_S * (w + 1) && ago < known_s; ago++) {
            const double qps = rate_of(line, ago * per_second, per_second);
            *most_qps = qps > *most_qps ? qps : *most_qps;
        }
    }
    const struct stages_options *options = line->run->options;
    const double qps = options->forecast != NULL ? options->forecast(options->forecast_context, maxima_qps)
                                                 : maxima_qps[LEAT_FORECAST_WINDOWS - 1];
    return fmin(fmax(qps, 0), RATES_QPS_MAX); /* a model may say anything */
}

/* ---- The paper's scalers ------------------------------------------------------------------------------- */

/* Instances of one core, as many as carry the rate and leat's deviations above it in time by leat's model. False: none do. */
static bool
plan_with_slack(const struct line *line, uint32_t rate_qps, struct leat_scale_plan *ret_plan)
{
    const struct stages_options *options = line->run->options;
    const struct leat_joint_box box = {.class_count = 1, .classes = {{options->box_cores, 1}}};
    struct leat_joint_application joint = line->leat.joint;
    struct leat_joint_answer answer;

    joint.demand_qps = leat_joint_demand(rate_qps, joint.objective_ns, options->leat.deviations);
    for (uint32_t s = 0; s < joint.stage_count; s++) {
        joint.stages[s].cores_max = 1;
    }
    (void)leat_joint_solve(&box, &joint, 1, line->run->memory, &answer);
    for (uint32_t s = 0; s < joint.stage_count; s++) {
        ret_plan->stages[s] = (struct leat_scale_choice){answer.stages[s].instances, 1, answer.stages[s].batch};
    }
    return answer.stages[0].instances > 0;
}

static void
decide_fa2(struct line *line, uint32_t rate_qps)
{
    const uint32_t stage_count = line->pipeline->stage_count;
    struct leat_scale_plan plan;
    bool more = false, fewer = false;

    const bool planned = line->run->options->scaler == STAGES_FA2_SLACK
                             ? plan_with_slack(line, rate_qps, &plan)
                             : leat_themis_horizontal(line->pipeline, rate_qps, line->run->memory, &plan) == LEAT_OK;
    if (!planned) {
        return;
    }
    for (uint32_t s = 0; s < stage_count; s++) {
        const uint32_t has = count_in(line, s, READY) + count_in(line, s, STARTING);
        more = more || plan.stages[s].instances > has;
        fewer = fewer || plan.stages[s].instances < has;
        line->stages[s].batch = plan.stages[s].batch;
    }
    line->stable = fewer && !more ? line->stable + 1 : 0;
    const bool settled = line->stable > line->run->options->settle_decisions;
    line->stable = settled ? 0 : line->stable;
    for (uint32_t s = 0; s < stage_count; s++) {
        uint32_t has = count_in(line, s, READY) + count_in(line, s, STARTING);
        for (; has < plan.stages[s].instances; has++) {
            start_instance(line, s, 1);
        }
        for (; settled && has > plan.stages[s].instances; has--) {
            give_back_instance(line, s);
        }
    }
}

static void
count_ready(const struct line *line, uint32_t *ret_instances)
{
    for (uint32_t s = 0; s < line->pipeline->stage_count; s++) {
        ret_instances[s] = count_in(line, s, READY);
    }
}

/* One instance a stage, all its life: what cores cannot carry is not carried. */
static void
decide_sponge(struct line *line, uint32_t rate_qps)
{
    uint32_t instances[LEAT_SCALE_STAGES_MAX], added[LEAT_SCALE_STAGES_MAX];
    struct leat_scale_plan plan;

    count_ready(line, instances);
    if (leat_themis_vertical_grown(line->pipeline, rate_qps, instances, line->run->memory, &plan, added) != LEAT_OK) {
        return;
    }
    for (uint32_t s = 0; s < line->pipeline->stage_count; s++) {
        order_cores(line, s, plan.stages[s].cores);
        line->stages[s].batch = plan.stages[s].batch;
    }
}

/* New instances are ready: the others shrink. */
static void
settle(struct line *line)
{
    for (uint32_t s = 0; s < line->pipeline->stage_count; s++) {
        order_cores(line, s, 1);
        line->stages[s].batch = line->settling.stages[s].batch;
    }
    line->settles = false;
}

static void
decide_themis(struct line *line, uint32_t rate_qps)
{
    const uint32_t stage_count = line->pipeline->stage_count;
    struct leat_scale_plan current, plan;
    uint32_t instances[LEAT_SCALE_STAGES_MAX];
    enum leat_themis_kind kind;

    for (uint32_t s = 0; s < stage_count; s++) {
        if (count_in(line, s, STARTING) > 0) {
            return;
        }
    }
    if (line->settles) {
        settle(line);
        return;
    }
    count_ready(line, instances);
    for (uint32_t s = 0; s < stage_count; s++) {
        current.stages[s] = (struct leat_scale_choice){instances[s], line->stages[s].cores_ordered, line->stages[s].batch};
    }
    if (leat_themis_decide(&line->themis, line->pipeline, &current, rate_qps, (uint32_t)forecast_qps(line), line->run->memory,
                           &kind, &plan) != LEAT_OK) {
        return;
    }
    for (uint32_t s = 0; s < stage_count && kind != LEAT_THEMIS_KEEP; s++) {
        const struct leat_scale_choice *choice = &plan.stages[s];
        if (kind == LEAT_THEMIS_VERTICAL) {
            order_cores(line, s, choice->cores);
            line->stages[s].batch = choice->batch;
        }
        for (uint32_t has = instances[s]; has < choice->instances; has++) {
            start_instance(line, s, kind == LEAT_THEMIS_VERTICAL ? choice->cores : 1);
        }
        for (uint32_t has = instances[s]; has > choice->instances; has--) {
            give_back_instance(line, s);
        }
    }
    if (kind == LEAT_THEMIS_HORIZONTAL) {
        line->settling = plan;
        line->settles = true;
        decide_themis(line, rate_qps); /* at once, where nothing starts */
    }
}

/* ---- leat's -------------------------------------------------------------------------------------------- */

/* The rate of the last second, or of its last fifth where that is a rise beyond chance. */
static double
rising_qps(const struct line *line)
{
    const double second_qps = rate_of(line, 0, 10), fifth_qps = rate_of(line, 0, 2);
    return fifth_qps > second_qps + 3 * sqrt(second_qps / 0.2) ? fifth_qps : second_qps;
}

static void
see_stages(struct line *line)
{
    const struct stages_options *options = line->run->options;
    struct leat_scaler_application *application = &line->leat;

    application->rate_qps = rising_qps(line);
    application->expected_qps = options->forecast != NULL || options->oracle ? forecast_qps(line) : 0;
    for (uint32_t s = 0; s < line->pipeline->stage_count; s++) {
        struct stage *stage = &line->stages[s];
        application->stages[s] =
            (struct leat_scaler_stage){.ready = count_in(line, s, READY),
                                       .starting = count_in(line, s, STARTING),
                                       .cores = stage->cores_ordered,
                                       .waiting = stage->waiting > stage->batch ? stage->waiting - stage->batch : 0};
        if (line->of->items[s].min != 1 || line->of->items[s].max != 1) {
            leat_calls_count(&stage->calls, line->next_query, stage->came);
            application->joint.stages[s].calls = stage->calls.each;
        }
    }
}

static void
follow_orders(struct line *line)
{
    const struct leat_scaler_application *application = &line->leat;

    for (uint32_t s = 0; s < line->pipeline->stage_count; s++) {
        const struct leat_scaler_order *order = &application->orders[s];
        uint32_t has = application->stages[s].ready + application->stages[s].starting;
        for (; has < order->instances; has++) {
            start_instance(line, s, 1);
        }
        for (; has > order->instances; has--) {
            give_back_instance(line, s);
        }
        order_cores(line, s, order->cores);
        line->stages[s].batch = order->batch;
    }
}

/* For all pipelines at once. */
static void
decide_leat(struct run *run)
{
    const struct leat_joint_box box = {.class_count = 1, .classes = {{run->options->box_cores, 1}}};
    struct leat_scaler_application *applications[STAGES_PIPELINES_MAX];

    for (uint32_t l = 0; l < run->options->pipeline_count; l++) {
        see_stages(&run->lines[l]);
        applications[l] = &run->lines[l].leat;
    }
    leat_scaler_decide(&run->options->leat, &box, &run->scaler, applications, run->options->pipeline_count, run->memory);
    for (uint32_t l = 0; l < run->options->pipeline_count; l++) {
        follow_orders(&run->lines[l]);
    }
}

/* The papers' scalers know one pipeline each, and no end of cores. */
static void
decide_alone(struct line *line)
{
    const uint32_t rate_qps = (uint32_t)rate_of(line, 0, (uint32_t)(2 * SECOND_NS / BUCKET_NS));

    switch (line->run->options->scaler) {
    case STAGES_FA2:
    case STAGES_FA2_SLACK:
        decide_fa2(line, rate_qps);
        break;
    case STAGES_SPONGE:
        decide_sponge(line, rate_qps);
        break;
    case STAGES_THEMIS:
        decide_themis(line, rate_qps);
        break;
    default:
        break;
    }
}

static void
decide(struct run *run)
{
    const bool leat = run->options->scaler == STAGES_LEAT;

    run->result->decisions++;
    if (leat) {
        decide_leat(run);
    }
    for (uint32_t l = 0; l < run->options->pipeline_count && !leat; l++) {
        decide_alone(&run->lines[l]);
    }
    push(run, run->now_ns + (leat ? run->options->leat_period_ns : SECOND_NS), EVENT_DECIDE);
}

/* ---- Events --------------------------------------------------------------------------------------------- */

static void
happen_to_instance(struct line *line, uint32_t s, struct instance *instance)
{
    if (line->run->now_ns != instance->due_ns) {
        return;
    }
    if (instance->state == STARTING) {
        instance->state = READY;
        instance->ready_in = line->run->result->decisions;
        /* What leat ordered is of those that were ready then: this one has what it started with until the next decision. */
        instance->cores = line->run->options->scaler == STAGES_LEAT ? instance->cores : line->stages[s].cores;
    } else if (instance->running > 0) {
        for (uint32_t i = 0; i < instance->running; i++) {
            const uint32_t query = instance->batch[i];
            if (line->ended[query] != OVER && --place_of(line, query, s)->left == 0) {
                end_stage(line, s, query);
            }
        }
        instance->running = 0;
        instance->state = instance->state == LEAVING ? ABSENT : instance->state;
    }
}

static void
happen(struct line *line, uint32_t what)
{
    if (what >= EVENT_CORES) {
        struct stage *stage = &line->stages[what - EVENT_CORES];
        if (line->run->now_ns == stage->cores_at_ns) { /* no later order has replaced it */
            stage->cores = stage->cores_ordered;
            for (uint32_t i = 0; i < stage->used; i++) {
                struct instance *instance = &stage->instances[i];
                const bool meant = line->run->options->scaler != STAGES_LEAT || instance->ready_in < stage->ordered_in;
                instance->cores = instance->state == READY && meant ? stage->cores : instance->cores;
            }
        }
    } else {
        const uint32_t s = what / STAGES_INSTANCES_MAX;
        happen_to_instance(line, s, &line->stages[s].instances[what % STAGES_INSTANCES_MAX]);
    }
}

static void
arrive(struct line *line)
{
    const uint32_t query = line->next_query++;
    const uint64_t at_ns = line->arrived_ns[query];

    line->buckets[at_ns / BUCKET_NS]++;
    line->run->result->seconds[at_ns / SECOND_NS].arrived++;
    for (uint32_t s = 0; s < line->pipeline->stage_count; s++) {
        if (line->of->after[s] == 0) {
            begin_stage(line, s, query);
        }
    }
}

/* Of whom the next query is; NULL: no more come. */
static struct line *
next_to_arrive(struct run *run)
{
    struct line *next = NULL;

    for (uint32_t l = 0; l < run->options->pipeline_count; l++) {
        struct line *line = &run->lines[l];
        if (line->next_query < line->query_count &&
            (next == NULL || line->arrived_ns[line->next_query] < next->arrived_ns[next->next_query])) {
            next = line;
        }
    }
    return next;
}

static uint64_t
longest_objective_ns(const struct run *run)
{
    uint64_t longest_ns = 0;
    for (uint32_t l = 0; l < run->options->pipeline_count; l++) {
        const uint64_t ns = objective_ns(&run->lines[l]);
        longest_ns = ns > longest_ns ? ns : longest_ns;
    }
    return longest_ns;
}

static void
play(struct run *run)
{
    const uint64_t last_ns = run->options->duration_ns + longest_objective_ns(run) + 60 * SECOND_NS;

    push(run, SECOND_NS, EVENT_DECIDE);
    while (run->answered + run->result->dropped < run->query_count) {
        struct line *next = next_to_arrive(run);
        const bool arrives =
            next != NULL && (run->heap_count == 0 || next->arrived_ns[next->next_query] <= run->heap[0].at_ns);
        const uint64_t at_ns = arrives ? next->arrived_ns[next->next_query] : run->heap[0].at_ns;
        if (at_ns > last_ns) {
            break;
        }
        run->now_ns = at_ns;
        account(run);
        if (arrives) {
            arrive(next);
        } else {
            const uint32_t what = run->heap[0].worker;
            events_pop(run->heap, &run->heap_count);
            if (what == EVENT_DECIDE) {
                decide(run);
            } else {
                happen(&run->lines[what / EVENTS_OF_LINE], what % EVENTS_OF_LINE);
            }
        }
        for (uint32_t l = 0; l < run->options->pipeline_count; l++) {
            for (uint32_t s = 0; s < run->lines[l].pipeline->stage_count; s++) {
                dispatch(&run->lines[l], s);
            }
        }
    }
    run->now_ns = run->now_ns > run->options->duration_ns ? run->now_ns : run->options->duration_ns;
    account(run);
}

/* ---- Set-up ---------------------------------------------------------------------------------------------- */

static int
compare_ns(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static enum leat_status
draw_arrivals(struct line *line)
{
    struct arrivals arrivals = line->of->arrivals;
    uint32_t room = 0;

    arrivals_start(&arrivals, line->run->options->seed + line->index * UINT64_C(0x9e3779b97f4a7c15));
    for (;;) {
        const double at_s = arrivals_next(&arrivals);
        const double at_ns = at_s * 1e9;
        if (at_s < 0 || at_ns >= (double)line->run->options->duration_ns) {
            return LEAT_OK;
        }
        if (line->query_count == room) {
            room = room > 0 ? 2 * room : 4096;
            uint64_t *more = realloc(line->arrived_ns, room * sizeof(more[0]));
            if (more == NULL) {
                return LEAT_ERR_NOMEM;
            }
            line->arrived_ns = more;
        }
        line->arrived_ns[line->query_count++] = (uint64_t)at_ns;
    }
}

/* How many items each query has where: the same whoever scales. Stages with one draw nothing. */
static void
draw_items(struct line *line, uint64_t room[LEAT_SCALE_STAGES_MAX])
{
    uint64_t random = (line->run->options->seed + line->index * UINT64_C(0x9e3779b97f4a7c15)) ^ UINT64_C(0x6974656d73000000);

    for (uint32_t query = 0; query < line->query_count; query++) {
        for (uint32_t s = 0; s < line->pipeline->stage_count; s++) {
            const struct stages_items *items = &line->of->items[s];
            const uint32_t more = items->max > items->min ? (uint32_t)(random_u64(&random) % (items->max - items->min + 1)) : 0;
            place_of(line, query, s)->items =
                items->same != s ? place_of(line, query, items->same)->items : (uint16_t)(items->min + more);
            room[s] += place_of(line, query, s)->items;
        }
    }
}

static enum leat_status
set_up_line(struct line *line)
{
    uint64_t room[LEAT_SCALE_STAGES_MAX] = {0};
    const uint32_t stage_count = line->pipeline->stage_count;

    enum leat_status status = draw_arrivals(line);
    if (status != LEAT_OK) {
        return status;
    }
    line->buckets = calloc(line->run->bucket_count, sizeof(line->buckets[0]));
    line->places = calloc(((size_t)line->query_count + 1) * stage_count, sizeof(line->places[0]));
    line->ended = calloc((size_t)line->query_count + 1, sizeof(line->ended[0]));
    if (line->buckets == NULL || line->places == NULL || line->ended == NULL) {
        return LEAT_ERR_NOMEM;
    }
    draw_items(line, room);
    for (uint32_t s = 0; s < stage_count; s++) {
        struct stage *stage = &line->stages[s];
        const uint32_t batch_max = line->pipeline->stages[s].batch_max;
        *stage = (struct stage){.instances = {{.state = READY, .cores = 1}},
                                .used = 1,
                                .cores = 1,
                                .cores_ordered = 1,
                                .batch = batch_max < 4 ? batch_max : 4,
                                .least_ms = leat_themis_least_ms(&line->pipeline->stages[s]),
                                .calls = LEAT_CALLS_INIT};
        stage->queue = room[s] < UINT32_MAX ? malloc((room[s] + 1) * sizeof(stage->queue[0])) : NULL;
        if (stage->queue == NULL) {
            return LEAT_ERR_NOMEM;
        }
    }
    line->themis.settle_decisions = line->run->options->settle_decisions;
    line->share->queries = line->query_count;
    line->run->query_count += line->query_count;
    status = stages_joint_make(line->pipeline, &line->leat.joint, &line->latency_ns);
    if (status == LEAT_OK) {
        leat_joint_follow(&line->leat.joint, line->of->after, stage_count);
        line->leat.joint.weight = line->of->weight;
    }
    return status;
}

static enum leat_status
set_up(struct run *run)
{
    const struct stages_options *options = run->options;
    const struct leat_joint_box box = {.class_count = 1, .classes = {{options->box_cores, 1}}};
    size_t bytes = leat_joint_bytes(&box, options->pipeline_count), stages = 0;

    run->result->second_count = (uint32_t)((options->duration_ns + SECOND_NS - 1) / SECOND_NS);
    run->result->seconds = calloc(run->result->second_count, sizeof(run->result->seconds[0]));
    run->bucket_count = (uint32_t)(options->duration_ns / BUCKET_NS + 1);
    for (uint32_t l = 0; l < options->pipeline_count; l++) {
        struct line *line = &run->lines[l];
        *line = (struct line){.run = run,
                              .of = &options->pipelines[l],
                              .pipeline = &options->pipelines[l].table,
                              .share = &run->result->shares[l],
                              .index = l};
        const enum leat_status status = set_up_line(line);
        if (status != LEAT_OK) {
            return status;
        }
        const size_t paper_bytes = leat_themis_bytes(line->pipeline);
        bytes = paper_bytes > bytes ? paper_bytes : bytes;
        stages += line->pipeline->stage_count;
    }
    run->latencies_ns = malloc((run->query_count + 1) * sizeof(run->latencies_ns[0]));
    /* Of each instance one, which a later order leaves behind; cores, as often as decided within a resize; the next decision. */
    const size_t resizes = options->resize_ns / (options->leat_period_ns > 0 ? options->leat_period_ns : 1) + 2;
    const size_t starts = options->start_ns / (options->leat_period_ns > 0 ? options->leat_period_ns : 1) + 2;
    run->heap = malloc((stages * (STAGES_INSTANCES_MAX * (starts + 1) + resizes) + 2) * sizeof(run->heap[0]));
    run->memory = aligned_alloc(LEAT_CACHE_LINE, leat_round_up(bytes, LEAT_CACHE_LINE));
    run->random = options->seed ^ UINT64_C(0x7374616765730000);
    return run->result->seconds != NULL && run->latencies_ns != NULL && run->heap != NULL && run->memory != NULL
               ? LEAT_OK
               : LEAT_ERR_NOMEM;
}

static void
free_run(struct run *run)
{
    for (uint32_t l = 0; l < run->options->pipeline_count; l++) {
        struct line *line = &run->lines[l];
        for (uint32_t s = 0; s < LEAT_SCALE_STAGES_MAX; s++) {
            free(line->stages[s].queue);
        }
        free(line->arrived_ns);
        free(line->places);
        free(line->ended);
        free(line->buckets);
        free(line->latency_ns);
    }
    free(run->latencies_ns);
    free(run->heap);
    free(run->memory);
    free(run);
}

static void
count_up(struct run *run)
{
    struct stages_result *result = run->result;

    result->queries = run->query_count;
    result->left = run->query_count - run->answered - result->dropped;
    qsort(run->latencies_ns, run->answered, sizeof(run->latencies_ns[0]), compare_ns);
    if (run->answered > 0) {
        result->p50_ns = run->latencies_ns[(run->answered - 1) / 2];
        result->p99_ns = run->latencies_ns[(run->answered - 1) * 99 / 100];
    }
}

void
stages_chain(const struct leat_themis_pipeline *table, struct stages_pipeline *ret_pipeline)
{
    struct stages_pipeline chain = {.table = *table, .weight = 1};

    for (uint32_t s = 0; s < table->stage_count; s++) {
        chain.after[s] = s > 0 ? 1u << (s - 1) : 0;
        chain.items[s] = (struct stages_items){.min = 1, .max = 1, .same = s};
    }
    *ret_pipeline = chain;
}

bool
stages_is_chain(const struct stages_pipeline *pipeline)
{
    for (uint32_t s = 0; s < pipeline->table.stage_count; s++) {
        if (pipeline->items[s].min != 1 || pipeline->items[s].max != 1 ||
            (pipeline->after[s] & ((1u << s) - 1)) != (s > 0 ? 1u << (s - 1) : 0)) {
            return false;
        }
    }
    return true;
}

static enum leat_status
check_options(const struct stages_options *options)
{
    const bool alone = options->scaler != STAGES_NONE && options->scaler != STAGES_LEAT;

    LEAT_ASSERT(options->pipeline_count >= 1 && options->pipeline_count <= STAGES_PIPELINES_MAX);
    for (uint32_t l = 0; l < options->pipeline_count; l++) {
        if (alone && !stages_is_chain(&options->pipelines[l])) {
            return LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                             "%s is for stages one after another, each asked once: leat and none are for others",
                             stages_scaler_names[options->scaler]);
        }
    }
    return LEAT_OK;
}

enum leat_status
stages_simulate(const struct stages_options *options, struct stages_result *ret_result)
{
    struct stages_result result = {0};

    enum leat_status status = check_options(options);
    if (status != LEAT_OK) {
        return status;
    }
    struct run *run = calloc(1, sizeof(*run));
    if (run == NULL) {
        return LEAT_ERR_NOMEM;
    }
    run->options = options;
    run->result = &result;
    status = set_up(run);
    if (status == LEAT_OK) {
        play(run);
        count_up(run);
        *ret_result = result;
    } else {
        stages_result_free(&result);
    }
    free_run(run);
    return status;
}

void
stages_result_free(struct stages_result *result)
{
    free(result->seconds);
    *result = (struct stages_result){0};
}
