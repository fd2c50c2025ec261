/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "tools/simulate/events.h"
#include "tools/simulate/random.h"
#include "tools/simulate/stages_table.h"

#define SECOND_NS UINT64_C(1000000000)
#define BUCKET_NS UINT64_C(100000000) /* that arrivals are counted by */

const char *const stages_scaler_names[STAGES_SCALERS] = {"none", "fa2", "sponge", "themis", "leat"};

enum instance_state { ABSENT, STARTING, READY, LEAVING /* at the end of its batch */ };

struct instance {
    enum instance_state state;
    uint32_t cores;
    uint64_t due_ns;  /* of its start, or of its batch's end: events at other times are of what was there before */
    uint32_t running; /* queries of its batch; 0: idle */
    uint32_t batch[LEAT_SCALE_BATCH_MAX];
};

struct stage {
    struct instance instances[STAGES_INSTANCES_MAX];
    uint32_t cores, batch;     /* of each that is ready */
    uint32_t cores_ordered;
    uint64_t cores_at_ns;      /* when they are in force */
    uint32_t *queue;           /* [query_count]: every query passes once */
    uint32_t head, tail;
};

/* Numbers of events: first instances of all stages, then: */
enum { EVENT_CORES = LEAT_SCALE_STAGES_MAX * STAGES_INSTANCES_MAX, EVENT_DECIDE = EVENT_CORES + LEAT_SCALE_STAGES_MAX };

struct run {
    const struct stages_options *options;
    const struct leat_themis_pipeline *pipeline;
    struct stages_result *result;
    uint64_t *arrived_ns, *latencies_ns; /* [query_count]; of what was answered */
    uint32_t query_count, next_query;
    uint64_t answered;
    struct stage stages[LEAT_SCALE_STAGES_MAX];
    uint64_t now_ns, held_since_ns, random;
    struct event *heap;
    uint32_t heap_count;
    uint32_t *buckets; /* arrivals by BUCKET_NS */
    uint32_t bucket_count;
    struct leat_scaler_state scaler;
    void *memory;      /* of solvers */
    /* Of scalers. */
    struct leat_themis_state themis;
    struct leat_scale_plan settling; /* Themis: in force once all that starts is ready */
    bool settles;
    uint32_t stable;                 /* FA2: decisions in a row that want fewer instances */
    struct leat_scaler_application leat;
    uint64_t *latency_ns; /* of batches, for the joint program */
};

/* ---- Time and what is held ----------------------------------------------------------------------- */

static uint32_t
cores_held(const struct run *run)
{
    uint32_t cores = 0;
    for (uint32_t s = 0; s < run->pipeline->stage_count; s++) {
        for (uint32_t i = 0; i < STAGES_INSTANCES_MAX; i++) {
            const struct instance *instance = &run->stages[s].instances[i];
            cores += instance->state != ABSENT ? instance->cores : 0;
        }
    }
    return cores;
}

/* Called before anything that is held changes. */
static void
account(struct run *run)
{
    struct stages_result *result = run->result;
    const double cores = cores_held(run);

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

static uint32_t
count_in(const struct run *run, uint32_t s, enum instance_state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < STAGES_INSTANCES_MAX; i++) {
        count += run->stages[s].instances[i].state == state;
    }
    return count;
}

/* ---- Queries --------------------------------------------------------------------------------------- */

static uint64_t
objective_ns(const struct run *run)
{
    return run->pipeline->objective_ms * UINT64_C(1000000);
}

static void
violate(struct run *run, uint32_t query)
{
    const uint64_t second = run->arrived_ns[query] / SECOND_NS;
    run->result->seconds[second].violated++;
}

static void
answer(struct run *run, uint32_t query)
{
    const uint64_t took_ns = run->now_ns - run->arrived_ns[query];

    run->latencies_ns[run->answered++] = took_ns;
    if (took_ns <= objective_ns(run)) {
        run->result->in_time++;
    } else {
        run->result->late++;
        violate(run, query);
    }
}

static uint64_t
service_ns(struct run *run, uint32_t s, uint32_t batch, uint32_t cores)
{
    const double ms = leat_scale_latency_ms(&run->pipeline->stages[s].latency, batch, cores);
    const double noisy_ms = ms * (run->options->noise_share > 0 ? 1 + run->options->noise_share * random_normal(&run->random) : 1);
    return noisy_ms > 0.001 ? (uint64_t)(noisy_ms * 1e6) : 1000;
}

static void
drop_old(struct run *run, struct stage *stage)
{
    const double limit_ns = run->options->drop_multiple * (double)objective_ns(run);

    while (limit_ns > 0 && stage->head < stage->tail) {
        const uint32_t query = stage->queue[stage->head];
        if ((double)(run->now_ns - run->arrived_ns[query]) < limit_ns) {
            return;
        }
        stage->head++;
        run->result->dropped++;
        violate(run, query);
    }
}

static void
dispatch(struct run *run, uint32_t s)
{
    struct stage *stage = &run->stages[s];

    for (uint32_t i = 0; i < STAGES_INSTANCES_MAX; i++) {
        struct instance *instance = &stage->instances[i];
        if (instance->state != READY || instance->running > 0) {
            continue;
        }
        drop_old(run, stage); /* queues are in the order of arrival: what is old is in front */
        const uint32_t waiting = stage->tail - stage->head;
        if (waiting == 0 || (run->options->whole_batches && waiting < stage->batch)) {
            return;
        }
        instance->running = waiting < stage->batch ? waiting : stage->batch;
        memcpy(instance->batch, &stage->queue[stage->head], instance->running * sizeof(instance->batch[0]));
        stage->head += instance->running;
        instance->due_ns = run->now_ns + service_ns(run, s, instance->running, instance->cores);
        push(run, instance->due_ns, s * STAGES_INSTANCES_MAX + i);
    }
}

static void
enqueue(struct run *run, uint32_t s, uint32_t query)
{
    struct stage *stage = &run->stages[s];
    uint32_t at = stage->tail++;

    /* Batches of several instances may end in another order than they came in. */
    for (; at > stage->head && stage->queue[at - 1] > query; at--) {
        stage->queue[at] = stage->queue[at - 1];
    }
    stage->queue[at] = query;
}

/* ---- Orders ---------------------------------------------------------------------------------------- */

static void
order_cores(struct run *run, uint32_t s, uint32_t cores)
{
    struct stage *stage = &run->stages[s];

    if (cores != stage->cores_ordered) {
        stage->cores_ordered = cores;
        stage->cores_at_ns = run->now_ns + run->options->resize_ns;
        push(run, stage->cores_at_ns, EVENT_CORES + s);
        run->result->resizes++;
    }
}

static void
start_instance(struct run *run, uint32_t s, uint32_t cores)
{
    for (uint32_t i = 0; i < STAGES_INSTANCES_MAX; i++) {
        struct instance *instance = &run->stages[s].instances[i];
        if (instance->state == ABSENT) {
            *instance = (struct instance){.state = STARTING, .cores = cores, .due_ns = run->now_ns + run->options->start_ns};
            push(run, instance->due_ns, s * STAGES_INSTANCES_MAX + i);
            run->result->starts++;
            return;
        }
    }
}

/* One that starts goes at once, its event finds nothing; else an idle one; else one at the end of its batch. */
static void
give_back_instance(struct run *run, uint32_t s)
{
    struct instance *best = NULL;

    for (uint32_t i = 0; i < STAGES_INSTANCES_MAX; i++) {
        struct instance *instance = &run->stages[s].instances[i];
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
rate_of(const struct run *run, uint32_t buckets_ago, uint32_t buckets)
{
    const uint64_t present = run->now_ns / BUCKET_NS;
    uint64_t sum = 0;

    for (uint64_t b = 1 + buckets_ago; b <= buckets_ago + buckets && b <= present; b++) {
        sum += present - b < run->bucket_count ? run->buckets[present - b] : 0;
    }
    const uint64_t known = present > buckets_ago ? present - buckets_ago : 0;
    const uint64_t seen = known < buckets ? known : buckets;
    return seen > 0 ? (double)sum * (double)SECOND_NS / (double)(seen * BUCKET_NS) : 0;
}

/* The highest rate of a second in the next ten: as it will be. */
static double
oracle_qps(const struct run *run)
{
    uint32_t most = 0;

    for (uint32_t second = 0, query = run->next_query; second < LEAT_FORECAST_WINDOW_S; second++) {
        const uint32_t first = query;
        while (query < run->query_count && run->arrived_ns[query] < run->now_ns + (second + 1) * SECOND_NS) {
            query++;
        }
        most = query - first > most ? query - first : most;
    }
    return most;
}

/* The same as it is foretold, from whole seconds before now. */
static double
forecast_qps(const struct run *run)
{
    const uint32_t per_second = (uint32_t)(SECOND_NS / BUCKET_NS);
    const uint64_t known_s = run->now_ns / SECOND_NS;
    double maxima_qps[LEAT_FORECAST_WINDOWS];

    if (run->options->oracle) {
        return oracle_qps(run);
    }
    for (uint32_t w = 0; w < LEAT_FORECAST_WINDOWS; w++) {
        double *most_qps = &maxima_qps[LEAT_FORECAST_WINDOWS - 1 - w];
        /* Before it all began: as the window after it. */
        *most_qps = w > 0 && known_s <= LEAT_FORECAST_WINDOW_S * w ? maxima_qps[LEAT_FORECAST_WINDOWS - w] : 0;
        for (uint32_t ago = LEAT_FORECAST_WINDOW_S * w; ago < LEAT_FORECAST_WINDOW_S * (w + 1) && ago < known_s; ago++) {
            const double qps = rate_of(run, ago * per_second, per_second);
            *most_qps = qps > *most_qps ? qps : *most_qps;
        }
    }
    const double qps = run->options->forecast != NULL ? run->options->forecast(run->options->forecast_context, maxima_qps)
                                                      : maxima_qps[LEAT_FORECAST_WINDOWS - 1];
    return fmin(fmax(qps, 0), RATES_QPS_MAX); /* a model may say anything */
}

/* ---- The paper's scalers ------------------------------------------------------------------------------- */

static void
decide_fa2(struct run *run, uint32_t rate_qps)
{
    const uint32_t stage_count = run->pipeline->stage_count;
    struct leat_scale_plan plan;
    bool more = false, fewer = false;

    if (leat_themis_horizontal(run->pipeline, rate_qps, run->memory, &plan) != LEAT_OK) {
        return;
    }
    for (uint32_t s = 0; s < stage_count; s++) {
        const uint32_t has = count_in(run, s, READY) + count_in(run, s, STARTING);
        more = more || plan.stages[s].instances > has;
        fewer = fewer || plan.stages[s].instances < has;
        run->stages[s].batch = plan.stages[s].batch;
    }
    run->stable = fewer && !more ? run->stable + 1 : 0;
    const bool settled = run->stable > run->options->settle_decisions;
    run->stable = settled ? 0 : run->stable;
    for (uint32_t s = 0; s < stage_count; s++) {
        uint32_t has = count_in(run, s, READY) + count_in(run, s, STARTING);
        for (; has < plan.stages[s].instances; has++) {
            start_instance(run, s, 1);
        }
        for (; settled && has > plan.stages[s].instances; has--) {
            give_back_instance(run, s);
        }
    }
}

static void
count_ready(const struct run *run, uint32_t *ret_instances)
{
    for (uint32_t s = 0; s < run->pipeline->stage_count; s++) {
        ret_instances[s] = count_in(run, s, READY);
    }
}

/* One instance a stage, all its life: what cores cannot carry is not carried. */
static void
decide_sponge(struct run *run, uint32_t rate_qps)
{
    uint32_t instances[LEAT_SCALE_STAGES_MAX], added[LEAT_SCALE_STAGES_MAX];
    struct leat_scale_plan plan;

    count_ready(run, instances);
    if (leat_themis_vertical_grown(run->pipeline, rate_qps, instances, run->memory, &plan, added) != LEAT_OK) {
        return;
    }
    for (uint32_t s = 0; s < run->pipeline->stage_count; s++) {
        order_cores(run, s, plan.stages[s].cores);
        run->stages[s].batch = plan.stages[s].batch;
    }
}

/* New instances are ready: the others shrink. */
static void
settle(struct run *run)
{
    for (uint32_t s = 0; s < run->pipeline->stage_count; s++) {
        order_cores(run, s, 1);
        run->stages[s].batch = run->settling.stages[s].batch;
    }
    run->settles = false;
}

static void
decide_themis(struct run *run, uint32_t rate_qps)
{
    const uint32_t stage_count = run->pipeline->stage_count;
    struct leat_scale_plan current, plan;
    uint32_t instances[LEAT_SCALE_STAGES_MAX];
    enum leat_themis_kind kind;

    for (uint32_t s = 0; s < stage_count; s++) {
        if (count_in(run, s, STARTING) > 0) {
            return;
        }
    }
    if (run->settles) {
        settle(run);
        return;
    }
    count_ready(run, instances);
    for (uint32_t s = 0; s < stage_count; s++) {
        current.stages[s] = (struct leat_scale_choice){instances[s], run->stages[s].cores_ordered, run->stages[s].batch};
    }
    if (leat_themis_decide(&run->themis, run->pipeline, &current, rate_qps, (uint32_t)forecast_qps(run), run->memory, &kind, &plan) !=
        LEAT_OK) {
        return;
    }
    for (uint32_t s = 0; s < stage_count && kind != LEAT_THEMIS_KEEP; s++) {
        const struct leat_scale_choice *choice = &plan.stages[s];
        if (kind == LEAT_THEMIS_VERTICAL) {
            order_cores(run, s, choice->cores);
            run->stages[s].batch = choice->batch;
        }
        for (uint32_t has = instances[s]; has < choice->instances; has++) {
            start_instance(run, s, kind == LEAT_THEMIS_VERTICAL ? choice->cores : 1);
        }
        for (uint32_t has = instances[s]; has > choice->instances; has--) {
            give_back_instance(run, s);
        }
    }
    if (kind == LEAT_THEMIS_HORIZONTAL) {
        run->settling = plan;
        run->settles = true;
        decide_themis(run, rate_qps); /* at once, where nothing starts */
    }
}

/* ---- leat's -------------------------------------------------------------------------------------------- */

/* The rate of the last second, or of its last fifth where that is a rise beyond chance. */
static double
rising_qps(const struct run *run)
{
    const double second_qps = rate_of(run, 0, 10), fifth_qps = rate_of(run, 0, 2);
    return fifth_qps > second_qps + 3 * sqrt(second_qps / 0.2) ? fifth_qps : second_qps;
}

static void
decide_leat(struct run *run)
{
    const struct leat_joint_box box = {.class_count = 1, .classes = {{run->options->box_cores, 1}}};
    struct leat_scaler_application *application = &run->leat;

    application->rate_qps = rising_qps(run);
    application->expected_qps = run->options->forecast != NULL || run->options->oracle ? forecast_qps(run) : 0;
    for (uint32_t s = 0; s < run->pipeline->stage_count; s++) {
        const struct stage *stage = &run->stages[s];
        const uint32_t waiting = stage->tail - stage->head;
        application->stages[s] =
            (struct leat_scaler_stage){.ready = count_in(run, s, READY),
                                       .starting = count_in(run, s, STARTING),
                                       .cores = stage->cores_ordered,
                                       .waiting = waiting > stage->batch ? waiting - stage->batch : 0};
    }
    leat_scaler_decide(&run->options->leat, &box, &run->scaler, &application, 1, run->memory);
    for (uint32_t s = 0; s < run->pipeline->stage_count; s++) {
        const struct leat_scaler_order *order = &application->orders[s];
        uint32_t has = application->stages[s].ready + application->stages[s].starting;
        for (; has < order->instances; has++) {
            start_instance(run, s, 1);
        }
        for (; has > order->instances; has--) {
            give_back_instance(run, s);
        }
        order_cores(run, s, order->cores);
        run->stages[s].batch = order->batch;
    }
}

static void
decide(struct run *run)
{
    const uint32_t rate_qps = (uint32_t)rate_of(run, 0, (uint32_t)(2 * SECOND_NS / BUCKET_NS));

    run->result->decisions++;
    switch (run->options->scaler) {
    case STAGES_FA2:
        decide_fa2(run, rate_qps);
        break;
    case STAGES_SPONGE:
        decide_sponge(run, rate_qps);
        break;
    case STAGES_THEMIS:
        decide_themis(run, rate_qps);
        break;
    case STAGES_LEAT:
        decide_leat(run);
        break;
    default:
        break;
    }
    push(run, run->now_ns + (run->options->scaler == STAGES_LEAT ? run->options->leat_period_ns : SECOND_NS), EVENT_DECIDE);
}

/* ---- Events --------------------------------------------------------------------------------------------- */

static void
happen_to_instance(struct run *run, uint32_t s, struct instance *instance)
{
    if (run->now_ns != instance->due_ns) {
        return;
    }
    if (instance->state == STARTING) {
        instance->state = READY;
        instance->cores = run->stages[s].cores;
    } else if (instance->running > 0) {
        for (uint32_t q = 0; q < instance->running; q++) {
            if (s + 1 < run->pipeline->stage_count) {
                enqueue(run, s + 1, instance->batch[q]);
            } else {
                answer(run, instance->batch[q]);
            }
        }
        instance->running = 0;
        instance->state = instance->state == LEAVING ? ABSENT : instance->state;
        instance->cores = run->stages[s].cores;
    }
}

static void
happen(struct run *run, uint32_t what)
{
    if (what == EVENT_DECIDE) {
        decide(run);
    } else if (what >= EVENT_CORES) {
        struct stage *stage = &run->stages[what - EVENT_CORES];
        if (run->now_ns == stage->cores_at_ns) { /* no later order has replaced it */
            stage->cores = stage->cores_ordered;
            for (uint32_t i = 0; i < STAGES_INSTANCES_MAX; i++) {
                struct instance *instance = &stage->instances[i];
                instance->cores = instance->state == READY ? stage->cores : instance->cores;
            }
        }
    } else {
        const uint32_t s = what / STAGES_INSTANCES_MAX;
        happen_to_instance(run, s, &run->stages[s].instances[what % STAGES_INSTANCES_MAX]);
    }
}

static void
arrive(struct run *run)
{
    const uint64_t at_ns = run->arrived_ns[run->next_query];
    run->buckets[at_ns / BUCKET_NS]++;
    run->result->seconds[at_ns / SECOND_NS].arrived++;
    enqueue(run, 0, run->next_query++);
}

static void
play(struct run *run)
{
    const uint64_t last_ns = run->options->duration_ns + objective_ns(run) + 60 * SECOND_NS;

    push(run, SECOND_NS, EVENT_DECIDE);
    while (run->answered + run->result->dropped < run->query_count) {
        const bool arrives = run->next_query < run->query_count &&
                             (run->heap_count == 0 || run->arrived_ns[run->next_query] <= run->heap[0].at_ns);
        const uint64_t at_ns = arrives ? run->arrived_ns[run->next_query] : run->heap[0].at_ns;
        if (at_ns > last_ns) {
            break;
        }
        run->now_ns = at_ns;
        account(run);
        if (arrives) {
            arrive(run);
        } else {
            const uint32_t what = run->heap[0].worker;
            events_pop(run->heap, &run->heap_count);
            happen(run, what);
        }
        for (uint32_t s = 0; s < run->pipeline->stage_count; s++) {
            dispatch(run, s);
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
draw_arrivals(struct run *run)
{
    struct arrivals arrivals = run->options->arrivals;
    uint32_t room = 0;

    arrivals_start(&arrivals, run->options->seed);
    for (;;) {
        const double at_s = arrivals_next(&arrivals);
        const double at_ns = at_s * 1e9;
        if (at_s < 0 || at_ns >= (double)run->options->duration_ns) {
            return LEAT_OK;
        }
        if (run->query_count == room) {
            room = room > 0 ? 2 * room : 4096;
            uint64_t *more = realloc(run->arrived_ns, room * sizeof(more[0]));
            if (more == NULL) {
                return LEAT_ERR_NOMEM;
            }
            run->arrived_ns = more;
        }
        run->arrived_ns[run->query_count++] = (uint64_t)at_ns;
    }
}

static enum leat_status
set_up(struct run *run)
{
    const struct stages_options *options = run->options;
    const struct leat_joint_box box = {.class_count = 1, .classes = {{options->box_cores, 1}}};
    const size_t paper_bytes = leat_themis_bytes(run->pipeline), joint_bytes = leat_joint_bytes(&box, 1);

    enum leat_status status = draw_arrivals(run);
    if (status != LEAT_OK) {
        return status;
    }
    const size_t room = run->query_count + 1;
    run->result->second_count = (uint32_t)((options->duration_ns + SECOND_NS - 1) / SECOND_NS);
    run->result->seconds = calloc(run->result->second_count, sizeof(run->result->seconds[0]));
    run->bucket_count = (uint32_t)(options->duration_ns / BUCKET_NS + 1);
    run->buckets = calloc(run->bucket_count, sizeof(run->buckets[0]));
    run->latencies_ns = malloc(room * sizeof(run->latencies_ns[0]));
    /* Of each instance one, which a later order leaves behind; cores, as often as decided within a resize; the next decision. */
    const size_t resizes = options->resize_ns / (options->leat_period_ns > 0 ? options->leat_period_ns : 1) + 2;
    const size_t starts = options->start_ns / (options->leat_period_ns > 0 ? options->leat_period_ns : 1) + 2;
    run->heap = malloc((run->pipeline->stage_count * (STAGES_INSTANCES_MAX * (starts + 1) + resizes) + 2) * sizeof(run->heap[0]));
    run->memory = aligned_alloc(LEAT_CACHE_LINE,
                                leat_round_up(paper_bytes > joint_bytes ? paper_bytes : joint_bytes, LEAT_CACHE_LINE));
    if (run->result->seconds == NULL || run->buckets == NULL || run->latencies_ns == NULL || run->heap == NULL || run->memory == NULL) {
        return LEAT_ERR_NOMEM;
    }
    for (uint32_t s = 0; s < run->pipeline->stage_count; s++) {
        struct stage *stage = &run->stages[s];
        const uint32_t batch_max = run->pipeline->stages[s].batch_max;
        *stage = (struct stage){.instances = {{.state = READY, .cores = 1}}, .cores = 1, .cores_ordered = 1, .batch = batch_max < 4 ? batch_max : 4};
        stage->queue = malloc(room * sizeof(stage->queue[0]));
        if (stage->queue == NULL) {
            return LEAT_ERR_NOMEM;
        }
    }
    run->themis.settle_decisions = options->settle_decisions;
    run->random = options->seed ^ UINT64_C(0x7374616765730000);
    return stages_joint_make(run->pipeline, &run->leat.joint, &run->latency_ns);
}

enum leat_status
stages_simulate(const struct stages_options *options, struct stages_result *ret_result)
{
    struct stages_result result = {0};
    struct run *run = calloc(1, sizeof(*run));

    if (run == NULL) {
        return LEAT_ERR_NOMEM;
    }
    run->options = options;
    run->pipeline = options->pipeline;
    run->result = &result;
    enum leat_status status = set_up(run);
    if (status == LEAT_OK) {
        play(run);
        result.queries = run->query_count;
        result.left = run->query_count - run->answered - result.dropped;
        qsort(run->latencies_ns, run->answered, sizeof(run->latencies_ns[0]), compare_ns);
        if (run->answered > 0) {
            result.p50_ns = run->latencies_ns[(run->answered - 1) / 2];
            result.p99_ns = run->latencies_ns[(run->answered - 1) * 99 / 100];
        }
        *ret_result = result;
    } else {
        stages_result_free(&result);
    }
    for (uint32_t s = 0; s < LEAT_SCALE_STAGES_MAX; s++) {
        free(run->stages[s].queue);
    }
    free(run->arrived_ns);
    free(run->latencies_ns);
    free(run->buckets);
    free(run->latency_ns);
    free(run->heap);
    free(run->memory);
    free(run);
    return status;
}

void
stages_result_free(struct stages_result *result)
{
    free(result->seconds);
    *result = (struct stages_result){0};
}
