/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Under more load than workers can do in time, about as much is in time as they can do: of an application, of two that share
 * workers, of one before workers that differ, whatever its router, and of runs of pipelines, whatever becomes of those that are
 * late; where late queries are served, these are answered as well, and where they are dropped most are refused when they come.
 * Played on a virtual clock: queries come at random (Poisson), batches take what profiles say, or up to so much more or less.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/dispatcher_private.h"
#include "tests/leat_test.h"
#include "tests/runtime/pipeline_steps.h"
#include "tests/runtime/steps.h"

#define MS UINT64_C(1000000)

enum { QUERIES = 2000, NUMBERS_MAX = 4096, APPS = 2, ITEMS_MAX = 8 };

static const uint64_t batch_ns[APPS] = {5 * MS, 2 * MS}, item_ns = 2 * MS; /* by application; both the first in steps */
static const uint64_t slowness[] = {1, 3, 6}; /* by class of workers: so many times as long */

/* What is played: of either kind of steps. */
static struct house {
    struct leat_dispatcher *dispatcher;
    uint32_t worker_count, numbers;
    const uint16_t *classes; /* [worker_count]; NULL: all are of the first */
    uint64_t latency_ns;
    double spread; /* batches take up to so much of their time more or less */
    bool is_pipeline, serves_late;
    uint32_t one_in; /* queries that is the second application's; 0: they come in turn */
    bool has_runs;   /* instead: runs, of whose stages the first application has all, and others are the second's */
    enum leat_pipeline_late late; /* of a pipeline */
} house;

static struct outcome {
    uint32_t in_time[APPS], late, refused, expired, kept_out;
    uint32_t without_run; /* of those that were refused */
    uint32_t too_soon;    /* refused or expired though they could have ended by thrice their objective */
    uint32_t too_late;    /* answered long after they could not end by their last moment */
} outcome;

/* What the workers are at. */
static struct {
    bool busy;
    uint64_t start_ns, end_ns;
    int64_t longer_ns;
} workers[LEAT_SCHED_WORKERS_MAX];

static uint64_t random_state;

static double
uniform(void)
{
    return ((double)(leat_test_random(&random_state) >> 11) + 0.5) / 9007199254740992.0;
}

/* ---- Either kind of steps -------------------------------------------------------------------------- */

static uint64_t
now(void)
{
    return house.is_pipeline ? pipeline_steps.now_ns : steps.now_ns;
}

static void
set_clock(uint64_t now_ns)
{
    *(house.is_pipeline ? &pipeline_steps.now_ns : &steps.now_ns) = now_ns;
    (house.is_pipeline ? &pipeline_steps.tables : &steps.tables)->clock.base_ns = now_ns;
}

static void
submit(uint32_t number)
{
    if (house.is_pipeline) {
        pipeline_steps.queries[number].fails_at = PIPELINE_STEPS_NONE;
        pipeline_steps_submit(number, &(struct pipeline_steps_ask){0});
    } else {
        const uint32_t app = number % APPS, target = !house.has_runs ? app : app == 0 ? 1 : LEAT_PIPELINE_TARGET;
        steps_submit_to(target, number, 1, (uint32_t)(house.latency_ns / 1000));
    }
}

static bool
answered(uint32_t number, struct leat_wire_response *ret)
{
    if (!house.is_pipeline) {
        return steps_answer(number, ret);
    }
    *ret = pipeline_steps.queries[number].answer;
    return !pipeline_steps.queries[number].under_way;
}

static void
decide(void)
{
    if (!house.is_pipeline) {
        (void)steps_round(0);
        return;
    }
    for (uint32_t s = 0; s <= pipeline_steps.pipeline.stage_count; s++) { /* what ends one begins the next */
        pipeline_steps_round(0);
    }
}

static void
run(uint32_t worker)
{
    set_clock(workers[worker].start_ns);
    *(house.is_pipeline ? &pipeline_steps.longer_ns : &steps.longer_ns) = workers[worker].longer_ns;
    EXPECT(house.is_pipeline ? pipeline_steps_run(worker) : steps_run(worker));
    /* Earlier, where some were not run any more. */
    EXPECT((house.is_pipeline ? &pipeline_steps.tables : &steps.tables)->clock.base_ns <= workers[worker].end_ns);
    set_clock(workers[worker].end_ns);
    workers[worker].busy = false;
}

/* ---- A load ------------------------------------------------------------------------------------------ */

static uint64_t
time_of(uint32_t worker, const struct batch_record *batch)
{
    const uint64_t time_ns = batch_ns[house.is_pipeline ? batch->application : 0] + batch->items * item_ns;
    return house.classes != NULL ? slowness[house.classes[worker]] * time_ns : time_ns;
}

/* Idle workers begin what they were given. */
static void
begin_batches(void)
{
    for (uint32_t w = 0; w < house.worker_count; w++) {
        const struct worker_record *record = &house.dispatcher->records[w];
        const uint32_t outstanding = house.dispatcher->sched_workers[w].outstanding;
        if (workers[w].busy || outstanding == 0) {
            continue;
        }
        const struct batch_record *batch = &record->batches[(record->batch_tail - outstanding) & (LEAT_WORKER_BATCHES - 1)];
        const uint64_t time_ns = time_of(w, batch);
        workers[w].busy = true;
        workers[w].longer_ns = (int64_t)((2 * uniform() - 1) * house.spread * (double)time_ns);
        workers[w].start_ns = now();
        workers[w].end_ns = now() + time_ns + (uint64_t)workers[w].longer_ns;
    }
}

/* Batches that had begun, or were behind those, end first. */
static void
count(uint32_t number, const struct leat_wire_response *answer)
{
    const bool ok = answer->outcome == LEAT_OUTCOME_OK;
    const uint64_t last_ns = (house.late == LEAT_PIPELINE_DROP_THRICE ? 3 : 1) * house.latency_ns;
    const uint64_t batches_ns = 2 * (batch_ns[0] + ITEMS_MAX * item_ns);

    outcome.in_time[house.is_pipeline ? 0 : number % APPS] += ok && answer->total_ns <= house.latency_ns;
    outcome.late += ok && answer->total_ns > house.latency_ns;
    outcome.refused += answer->outcome == LEAT_OUTCOME_REJECTED;
    outcome.expired += answer->outcome == LEAT_OUTCOME_EXPIRED;
    outcome.without_run += answer->outcome == LEAT_OUTCOME_REJECTED && answer->reason == LEAT_REASON_QUEUE_FULL;
    outcome.too_soon += !ok && answer->reason != LEAT_REASON_QUEUE_FULL &&
                        answer->total_ns + batch_ns[0] + batch_ns[1] + 2 * item_ns < 3 * house.latency_ns;
    outcome.too_late += answer->total_ns > last_ns + batches_ns;
}

/* Is what was not in time answered as it is to be? */
static bool
others_are_right(void)
{
    const uint32_t dropped = outcome.refused + outcome.expired - outcome.without_run;

    if (house.is_pipeline && house.late == LEAT_PIPELINE_DROP_THRICE) {
        return outcome.too_soon + outcome.too_late == 0;
    }
    if (house.serves_late || (house.is_pipeline && house.late == LEAT_PIPELINE_SERVE)) {
        return dropped == 0;
    }
    return outcome.late <= QUERIES / 20 && (!house.is_pipeline || outcome.too_late == 0);
}

/* The next time at which something happens; at the latest when the dispatcher would look again by itself. */
static uint64_t
next_ns(uint64_t arrival_ns, uint32_t *ret_worker)
{
    uint64_t next = now() + MS < arrival_ns ? now() + MS : arrival_ns;

    *ret_worker = house.worker_count;
    for (uint32_t w = 0; w < house.worker_count; w++) {
        if (workers[w].busy && workers[w].end_ns <= next) {
            next = workers[w].end_ns;
            *ret_worker = w;
        }
    }
    return next;
}

/* Queries to `apps` of the applications in turn, or runs. */
static void
play(double rate_qps, uint32_t apps)
{
    static uint32_t out[NUMBERS_MAX], spare[APPS][NUMBERS_MAX];
    uint32_t out_count = 0, spare_count[APPS] = {0}, sent = 0, ends;
    uint64_t arrival_ns = now();

    random_state = leat_test_seed;
    memset(&outcome, 0, sizeof(outcome));
    memset(workers, 0, sizeof(workers));
    for (uint32_t n = 0; n < house.numbers; n++) {
        const uint32_t app = house.is_pipeline ? 0 : n % APPS;
        spare[app][spare_count[app]++] = n;
    }
    while (sent < QUERIES || out_count > 0) {
        const uint64_t next = next_ns(sent < QUERIES ? arrival_ns : UINT64_MAX, &ends);
        if (ends < house.worker_count) {
            run(ends);
        } else {
            set_clock(next);
        }
        while (sent < QUERIES && arrival_ns <= now()) {
            const uint32_t app = house.one_in == 0 ? sent % apps : sent % house.one_in == 0 ? 1U : 0U;
            sent++;
            arrival_ns += (uint64_t)(-log(uniform()) / rate_qps * 1e9);
            if (spare_count[app] == 0) {
                outcome.kept_out++;
                continue;
            }
            out[out_count++] = spare[app][--spare_count[app]];
            submit(out[out_count - 1]);
        }
        decide();
        begin_batches();
        for (uint32_t i = 0; i < out_count;) {
            struct leat_wire_response answer;
            if (!answered(out[i], &answer)) {
                i++;
                continue;
            }
            const uint32_t app = house.is_pipeline ? 0 : out[i] % APPS;
            count(out[i], &answer);
            spare[app][spare_count[app]++] = out[i];
            out[i] = out[--out_count];
        }
    }
}

/* All that came is in time where workers can do that easily, else most of what they can do; each of `apps` has its part of it. */
static void
check(const char *name, double load, uint32_t apps)
{
    const double can = QUERIES / (load > 1 ? load : 1), least = load <= 0.7 ? 0.99 : 0.9;
    uint32_t sum = 0, fewest = QUERIES;

    for (uint32_t a = 0; a < apps; a++) {
        sum += outcome.in_time[a];
        fewest = outcome.in_time[a] < fewest ? outcome.in_time[a] : fewest;
    }
    const bool others = others_are_right();

    if (sum < least * can || fewest < 0.6 * can / apps || !others || outcome.kept_out > QUERIES / 100) {
        (void)fprintf(stderr,
                      "%s, %u workers, %u batches each, spread %.2f, load %.1f: %u in time of %.0f, of an application %u at the "
                      "least, %u late, %u refused (%u for want of a run), %u expired (%u too soon), %u too late, %u found no slot\n",
                      name, house.worker_count, house.dispatcher->options.worker_depth, house.spread, load, sum, can, fewest,
                      outcome.late, outcome.refused, outcome.without_run, outcome.expired, outcome.too_soon, outcome.too_late,
                      outcome.kept_out);
    }
    EXPECT(sum >= least * can && fewest >= 0.6 * can / apps && others && outcome.kept_out <= QUERIES / 100);
}

/* Two stages, one after the other, of the first application. */
static struct leat_pipeline twice;
static struct leat_daemon_session *stages_session;

static void
order(enum leat_command_kind kind)
{
    leat_dispatcher_command(steps.dispatcher, &(struct leat_command){.kind = kind, .pipeline = &twice});
    (void)steps_round(0);
}

static void
add_pipeline(uint32_t worker_count)
{
    const struct leat_session_options options = {.slots = 64, .lane_count = 1 + worker_count, .arena_bytes = 4096};
    char note[160];

    twice = (struct leat_pipeline){
        .stage_count = 2,
        .workspace_bytes = LEAT_TENSOR_ALIGN,
        .runs_max = 32,
        .target = {.id = LEAT_PIPELINE_TARGET, .items_max = 1, .input_count = 1, .output_count = 2},
    };
    twice.target.tensors[2].item_bytes = 4 * sizeof(uint64_t);
    for (uint32_t s = 0; s < 2; s++) {
        twice.stages[s] = (struct leat_pipeline_stage){.after = s, .input_count = 1, .output_count = 1, .each_stage = UINT32_MAX};
        twice.stages[s].tensors[1 - s].place = LEAT_PIPELINE_WORKSPACE;
    }
    twice.stages[1].tensors[1].index = 1;
    EXPECT(leat_daemon_session_create(&options, &stages_session, note) == LEAT_OK && leat_pipeline_init_runs(&twice) == LEAT_OK);
    stages_session->index = LEAT_PIPELINE_SESSION;
    atomic_store_explicit(&steps.tables.sessions[LEAT_PIPELINE_SESSION], stages_session, memory_order_relaxed);
    order(LEAT_COMMAND_ADD_PIPELINE);
}

static void
remove_pipeline(void)
{
    struct leat_event event;

    order(LEAT_COMMAND_REMOVE_PIPELINE);
    while (!leat_dispatcher_poll_event(steps.dispatcher, &event)) {
        (void)steps_round(0);
    }
    EXPECT(event.kind == LEAT_EVENT_PIPELINE_GONE);
    leat_pipeline_fini_runs(&twice);
}

/* The applications of `house` that share workers of one class; what they can do in a second, in batches of the largest size. */
static double
start_applications(uint32_t worker_count, uint32_t depth, bool serves_late)
{
    static const uint16_t classes[LEAT_SCHED_WORKERS_MAX];
    const struct steps_options options = {.worker_count = worker_count,
                                          .classes = classes,
                                          .worker_depth = depth,
                                          .sessions = 4,
                                          .router = &leat_router_fcfs,
                                          .selector = &leat_selector_fixed,
                                          .other_count = APPS - 1,
                                          .drop_late = !serves_late,
                                          .latency_ns = {batch_ns[0]},
                                          .per_item_ns = {item_ns},
                                          .items_max = ITEMS_MAX};

    steps_start(&options);
    return worker_count * ITEMS_MAX * 1e9 / (double)(batch_ns[0] + ITEMS_MAX * item_ns);
}

/* Full batches of one application always wait; of another, whose never are, nearly all is in time beside it, and most runs are. */
static void
play_beside_backlog(uint32_t worker_count, uint32_t depth, bool serves_late, bool has_runs)
{
    const double capacity_qps = start_applications(worker_count, depth, serves_late);

    house = (struct house){.dispatcher = steps.dispatcher,
                           .worker_count = worker_count,
                           .numbers = NUMBERS_MAX,
                           .latency_ns = 120 * MS,
                           .spread = 0.15,
                           .serves_late = serves_late,
                           .one_in = 50,
                           .has_runs = has_runs};
    if (has_runs) {
        add_pipeline(worker_count);
    }
    play(2 * capacity_qps, APPS);
    if (has_runs) {
        remove_pipeline();
    }
    const uint32_t least = QUERIES / 50 * (has_runs ? 7U : 9U) / 10; /* a run waits for the backlog's batches twice */
    if (outcome.in_time[1] < least || outcome.in_time[0] < QUERIES / 2 * 7 / 10) {
        (void)fprintf(stderr, "%u workers, %u batches each: beside a backlog %s %u in time of %u, of the backlog %u of %u\n", worker_count,
                      depth, has_runs ? "runs" : "queries", outcome.in_time[1], QUERIES / 50, outcome.in_time[0], QUERIES / 2);
    }
    EXPECT(outcome.in_time[1] >= least && outcome.in_time[0] >= QUERIES / 2 * 7 / 10);
    steps_stop();
    if (has_runs) {
        leat_daemon_session_destroy(stages_session); /* lives as long as the dispatcher */
    }
}

static const double loads[] = {0.7, 0.5, 1, 1.3, 2, 4}; /* each other one with a sanitizer */

static void
play_applications(uint32_t worker_count, uint32_t depth, uint32_t apps, bool serves_late, double spread)
{
    for (size_t l = 0; l < LEAT_COUNT_OF(loads); l += LEAT_TEST_SHARE > 1 ? 2 : 1) {
        const double capacity_qps = start_applications(worker_count, depth, serves_late);
        house = (struct house){.dispatcher = steps.dispatcher,
                               .worker_count = worker_count,
                               .numbers = NUMBERS_MAX,
                               .latency_ns = 120 * MS,
                               .spread = spread,
                               .serves_late = serves_late};
        play(loads[l] * capacity_qps, apps);
        check(apps == 1 ? "an application" : "two applications", loads[l], apps);
        steps_stop();
    }
}

/* What becomes of runs that are late. Without an end, those take all that there are, and others come as these end. */
static const struct way {
    enum leat_pipeline_late late;
    bool drop_late; /* of the stages' applications */
    uint32_t runs_max;
} ways[] = {
    {LEAT_PIPELINE_DROP, true, 256},
    {LEAT_PIPELINE_DROP_THRICE, true, 128},
    {LEAT_PIPELINE_SERVE, true, 128},
    {LEAT_PIPELINE_DROP, false, 128},
    {LEAT_PIPELINE_DROP_THRICE, false, 128},
    {LEAT_PIPELINE_SERVE, false, 128},
};

/* Where each stage has a worker of its own, that of the first, which takes longer, is the bottleneck. */
static void
play_runs(uint32_t worker_count, uint32_t depth, bool own_workers, double spread, const struct way *way)
{
    static struct leat_dedication dedication = {.owners = {0, 1}};
    const uint64_t both_ns = batch_ns[0] + batch_ns[1] + 2 * ITEMS_MAX * item_ns;
    const uint64_t cycle_ns = own_workers ? batch_ns[0] + ITEMS_MAX * item_ns : both_ns;
    const double capacity_qps = (own_workers ? 1 : worker_count) * ITEMS_MAX * 1e9 / (double)cycle_ns;
    char name[80];

    for (size_t l = 0; l < LEAT_COUNT_OF(loads); l += LEAT_TEST_SHARE > 1 ? 2 : 1) {
        if (way != &ways[0] && loads[l] <= 1) { /* hardly a run is late then */
            continue;
        }
        const struct pipeline_steps_options options = {
            .stage_count = 2,
            .stages = {{.each = PIPELINE_STEPS_NONE,
                        .time_ns = item_ns,
                        .batch_ns = batch_ns[0],
                        .items_max = ITEMS_MAX,
                        .accuracy_ppm = 900000},
                       {.after = 1,
                        .each = PIPELINE_STEPS_NONE,
                        .time_ns = item_ns,
                        .batch_ns = batch_ns[1],
                        .items_max = ITEMS_MAX,
                        .output = true,
                        .accuracy_ppm = 900000}},
            .late = way->late,
            .latency_ns = 120 * MS,
            .slots = PIPELINE_STEPS_SLOTS_MAX,
            .runs_max = way->runs_max,
            .each_items = 2,
            .worker_count = worker_count,
            .worker_depth = depth,
            .stage_slots = PIPELINE_STEPS_QUERIES_MAX,
            .queue_capacity = 256,
            .waiting_max = 256,
            .drop_late = way->drop_late};
        pipeline_steps_start(&options);
        if (own_workers) {
            pipeline_steps_command(&(struct leat_command){.kind = LEAT_COMMAND_DEDICATE, .dedication = &dedication});
        }
        house = (struct house){.dispatcher = pipeline_steps.dispatcher,
                               .worker_count = worker_count,
                               .numbers = PIPELINE_STEPS_QUERIES_MAX,
                               .latency_ns = options.latency_ns,
                               .spread = spread,
                               .is_pipeline = true,
                               .late = way->late};
        play(loads[l] * capacity_qps, 1);
        (void)snprintf(name, sizeof(name), "%u runs, late %d, applications' %s%s", way->runs_max, (int)way->late,
                       way->drop_late ? "dropped" : "served", own_workers ? ", a worker for each stage" : "");
        check(name, loads[l], 1);
        pipeline_steps_stop();
    }
}

/*
 * Workers that differ, and batches of one query. Who waits no longer than the slowest has time for is any worker's, so what they can do is
 * what all of them do together.
 */
static void
play_classes(const struct leat_router *router, const uint16_t *classes, uint32_t worker_count, uint32_t depth, bool serves_late,
             double spread)
{
    double capacity_qps = 0;
    char name[64];

    (void)snprintf(name, sizeof(name), "workers that differ, %s", router->name);
    for (uint32_t w = 0; w < worker_count; w++) {
        capacity_qps += 1e9 / (double)(slowness[classes[w]] * (batch_ns[0] + item_ns));
    }
    for (size_t l = 0; l < LEAT_COUNT_OF(loads); l += LEAT_TEST_SHARE > 1 ? 2 : 1) {
        struct steps_options options = {.worker_count = worker_count,
                                        .classes = classes,
                                        .worker_depth = depth,
                                        .sessions = 4,
                                        .router = router,
                                        .selector = &leat_selector_single,
                                        .other_count = APPS - 1,
                                        .drop_late = !serves_late,
                                        .items_max = ITEMS_MAX};
        for (size_t c = 0; c < LEAT_COUNT_OF(slowness); c++) {
            options.latency_ns[c] = slowness[c] * batch_ns[0];
            options.per_item_ns[c] = slowness[c] * item_ns;
        }
        steps_start(&options);
        house = (struct house){.dispatcher = steps.dispatcher,
                               .worker_count = worker_count,
                               .classes = classes,
                               .numbers = NUMBERS_MAX,
                               .latency_ns = 120 * MS,
                               .spread = spread,
                               .serves_late = serves_late};
        play(loads[l] * capacity_qps, 1);
        check(name, loads[l], 1);
        EXPECT(serves_late || outcome.expired <= QUERIES / 10); /* the others are refused when they come */
        steps_stop();
    }
}

/* Routers that give any query to any worker in all ways; of those that choose for each query, each in one. */
static void
play_routers(uint32_t depth, double spread)
{
    static const uint16_t of_two[] = {0, 1, 1, 1}, of_three[] = {0, 0, 1, 1, 2, 2};
    static const struct leat_router *const routers[] = {&leat_router_fcfs,      &leat_router_shortest_queue, &leat_router_round_robin,
                                                        &leat_router_clockwork, &leat_router_matching,       &leat_router_edf,
                                                        &leat_router_laxity};

    for (size_t r = 0; r < (depth > 1 ? LEAT_COUNT_OF(routers) : 2); r++) {
        for (int serves_late = 0; serves_late < 2; serves_late++) {
            play_classes(routers[r], of_two, LEAT_COUNT_OF(of_two), depth, serves_late, spread);
            play_classes(routers[r], of_three, LEAT_COUNT_OF(of_three), depth, serves_late, spread);
        }
    }
}

/* What is dealt waits for its own worker, whatever others take: a slow one has its share of the backlog, and a quick one no more. */
static void
test_dealt(void)
{
    enum { EACH = 10 };
    static const uint16_t classes[] = {0, 1};
    const struct steps_options options = {.worker_count = 2,
                                          .classes = classes,
                                          .worker_depth = 1,
                                          .sessions = 1,
                                          .router = &leat_router_dealt,
                                          .selector = &leat_selector_single,
                                          .drop_late = true,
                                          .per_item_ns = {MS, 10 * MS}};
    struct leat_wire_response answer;

    steps_start(&options);
    for (uint32_t n = 0; n < 2 * EACH; n++) {
        steps_submit(n, 1, 0);
    }
    steps_submit(2 * EACH, 1, (EACH + 3) * 1000); /* together they would have 1.8 ms for two */
    (void)steps_round(1);
    while (steps_run(0) || steps_round(1)) {
    }
    EXPECT(steps_answer(2 * EACH, &answer) && answer.outcome == LEAT_OUTCOME_OK && answer.total_ns <= (EACH + 3) * MS);
    while (steps_run(1) || steps_round(1)) {
    }
    steps_stop();
}

/* ---- What is told to who scales ---------------------------------------------------------------------- */

/* What is late counts where an idle worker would have had it done in time, and else does not, whatever becomes of it. */
static void
test_late_queries(bool drop_late)
{
    static const uint16_t classes[1];
    const struct steps_options options = {.worker_count = 1,
                                          .classes = classes,
                                          .worker_depth = 1,
                                          .sessions = 1,
                                          .router = &leat_router_fcfs,
                                          .selector = &leat_selector_fixed,
                                          .drop_late = drop_late,
                                          .latency_ns = {5 * MS},
                                          .per_item_ns = {item_ns},
                                          .items_max = ITEMS_MAX};

    steps_start(&options);
    steps_submit(0, 1, 6500); /* it takes 7 ms */
    (void)steps_round(1);
    EXPECT(steps.app.late_queries == 0);
    (void)steps_run(0);
    (void)steps_round(1);
    steps_submit(1, 1, 10000);
    (void)steps_round(1);
    steps_submit(2, 1, 10000); /* behind the first, it is late */
    (void)steps_round(1);
    EXPECT(steps.app.late_queries == drop_late);
    steps_submit(3, 1, 30000);
    (void)steps_round(1);
    EXPECT(steps.app.late_queries == drop_late);
    (void)steps_round(40 * MS); /* the worker was held up */
    EXPECT(steps.app.late_queries == 2);
    while (steps_run(0) || steps_round(1)) { /* which does not begin the second any more */
    }
    EXPECT(steps.app.late_queries == 2u + drop_late);
    steps_stop();
}

int
main(void)
{
    leat_test_init();
    test_dealt();
    test_late_queries(true);
    test_late_queries(false);
    for (uint32_t depth = 1; depth <= 2; depth++) {
        for (uint32_t workers_there = 1; workers_there <= 3; workers_there += 2) {
            for (int way = 0; way < 4; way++) {
                play_beside_backlog(workers_there, depth, (way & 1) != 0, (way & 2) != 0);
            }
        }
        for (int noisy = LEAT_TEST_SHARE > 1; noisy < 2; noisy++) {
            const double spread = noisy * 0.15;
            play_applications(1, depth, 1, false, spread);
            play_applications(1, depth, 1, true, spread);
            play_applications(4, depth, 1, false, spread);
            play_applications(4, depth, 1, true, spread);
            play_applications(1, depth, 2, false, spread);
            play_applications(1, depth, 2, true, spread);
            play_applications(3, depth, 2, false, spread);
            play_applications(3, depth, 2, true, spread);
            if (noisy) {
                play_routers(depth, spread);
            }
            for (size_t w = 0; w < (noisy ? LEAT_COUNT_OF(ways) : 1); w++) {
                if (w == 0 || depth == 2) {
                    play_runs(1, depth, false, spread, &ways[w]);
                    play_runs(2, depth, true, spread, &ways[w]);
                }
                if (w == 0 || depth == 1) {
                    play_runs(2, depth, false, spread, &ways[w]);
                }
            }
        }
    }
    return 0;
}
