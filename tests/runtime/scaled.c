/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/runtime/scaled.h"

#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "runtime/scale_keeper.h"
#include "sched/calls.h"
#include "tests/leat_test.h"

#define INTERVAL_NS UINT64_C(100000000)

struct scaled scaled;
static struct scaled_options options;
static struct leat_joint_box box;
static struct leat_scaler_application application;
static struct leat_scaler_state state;
static struct leat_calls calls[SCALED_STAGES_MAX];
static uint64_t latency_ns[SCALED_STAGES_MAX][LEAT_SCALE_CORES_MAX * LEAT_SCALE_BATCH_MAX];
static uint64_t due_ns[SCALED_WORKERS_MAX]; /* of those that start: when they have */
static struct leat_resize resizes[SCALED_WORKERS_MAX];
static bool resizing[SCALED_WORKERS_MAX];
static struct leat_dedication dedication;
static uint32_t cores_min, cores_max;
static bool jumped, early, changed, dedicating;
static bool planned_anew; /* by the last look in its time, or since */
static uint64_t looked_ns, next_ns, rest_ns;
static void *memory;

static uint64_t
now(void)
{
    return options.tables->clock.base_ns;
}

/* ---- Cores and their owner ------------------------------------------------------------------------------ */

/* As the daemon: an instance serves once it has cores and has started; who is to have none serves nobody. */
static void
dedicate(void)
{
    struct leat_dedication wanted = {.answered = false};
    bool any = false;

    for (uint32_t w = 0; w < options.worker_count; w++) {
        const struct leat_scale_worker *worker = &scaled.workers[w];
        const bool serves = worker->cores > 0 && worker->has > 0 && !worker->starting;
        wanted.owners[w] = !serves                                  ? LEAT_WORKER_FOR_NOBODY
                           : worker->application == LEAT_SCALE_NOBODY
                               ? LEAT_WORKER_FOR_ALL
                               : options.stages[worker->application].application;
        any = any || serves;
    }
    if (any && memcmp(&wanted, &dedication, sizeof(wanted)) != 0) {
        dedicating = true;
        dedication = wanted;
        options.command(
            &(struct leat_command){.kind = LEAT_COMMAND_DEDICATE, .dedication = &dedication});
        EXPECT(!dedicating);
    }
}

static void
resize(uint32_t w, uint32_t cores)
{
    struct leat_team_shape shape = {.cores = (uint16_t)cores,
                                    .worker_class = options.dispatcher->records[w].class};

    shape.worker_class = cores > 0 ? (uint16_t)__builtin_ctz(cores) : shape.worker_class;
    resizing[w] = true;
    resizes[w] = (struct leat_resize){.worker = (uint16_t)w, .shape = shape};
    options.command(&(struct leat_command){.kind = LEAT_COMMAND_RESIZE, .resize = &resizes[w]});
}

/* Everybody as far as can be. */
static void
move_on(void)
{
    uint32_t held = 0;

    for (uint32_t w = 0; w < options.worker_count; w++) {
        held += scaled.workers[w].has;
    }
    EXPECT(held <= options.cores);
    for (uint32_t w = 0; w < options.worker_count; w++) {
        struct leat_scale_worker *worker = &scaled.workers[w];
        if (!resizing[w] && worker->cores < worker->has) {
            resize(w, worker->cores);
        } else if (!resizing[w] && worker->cores > worker->has &&
                   worker->cores - worker->has <= options.cores - held) {
            held += worker->cores - worker->has;
            worker->has = worker->cores;
            resize(w, worker->cores);
        }
    }
    dedicate();
}

/* Until nobody can do more, for now. */
static void
settle(void)
{
    while (changed) {
        changed = false;
        move_on();
    }
}

void
scaled_take(const struct leat_event *event)
{
    if (event->kind == LEAT_EVENT_RESIZED) {
        const uint32_t w = event->resize->worker;
        resizing[w] = false;
        scaled.workers[w].has = event->resize->shape.cores;
        changed = true;
    } else if (event->kind == LEAT_EVENT_DEDICATED) {
        dedicating = false;
    } else if (event->kind == LEAT_EVENT_JUMP) {
        jumped = true;
    }
}

void
scaled_arrange(const struct leat_scale_worker *planned)
{
    scaled.cores = 0;
    for (uint32_t w = 0; w < options.worker_count; w++) {
        struct leat_scale_worker *worker = &scaled.workers[w];
        const uint32_t has = worker->has;
        if (planned[w].starting &&
            !(worker->starting && worker->application == planned[w].application)) {
            due_ns[w] = now() + options.delay_ns;
        }
        *worker = planned[w];
        worker->has = has;
        scaled.cores += worker->cores;
    }
    changed = true;
    settle();
}

/* ---- The keeper ----------------------------------------------------------------------------------------- */

static void
fill_times(uint32_t s, const struct leat_profile_copy *copy)
{
    struct leat_joint_stage *stage = &application.joint.stages[s];
    const uint32_t batch_max = options.stages[s].items_max;

    stage->cores_min = cores_min;
    stage->cores_max = cores_max;
    stage->batch_max = batch_max;
    stage->latency_ns[0] = latency_ns[s];
    for (uint32_t c = 1; c <= cores_max; c++) {
        for (uint32_t items = 1; items <= batch_max; items++) {
            latency_ns[s][(c - 1) * batch_max + items - 1] =
                (options.sizes >> (c - 1) & 1) != 0
                    ? leat_profile_predict(&copy->profiles[__builtin_ctz(c)], items)
                    : 0;
        }
    }
}

static void
look_at(uint32_t s, struct leat_profile_copy *copy)
{
    const struct leat_scaler_order *order = &application.orders[s];
    struct leat_scaler_stage *stage = &application.stages[s];
    uint64_t at_once;

    *stage =
        (struct leat_scaler_stage){.instances_max = options.worker_count - options.stage_count + 1};
    for (uint32_t w = 0; w < options.worker_count; w++) {
        stage->ready += scaled.workers[w].application == s && !scaled.workers[w].starting;
        stage->starting += scaled.workers[w].application == s && scaled.workers[w].starting;
    }
    at_once = (uint64_t)stage->ready * order->batch;
    *copy = (struct leat_profile_copy){.application = options.stages[s].application,
                                       .jump_items = 2 * (at_once > 0 ? at_once : 1)};
    options.command(&(struct leat_command){.kind = LEAT_COMMAND_COPY_PROFILES, .profiles = copy});
    EXPECT(copy->found);
    const uint64_t room = stage->ready > 0 ? order->batch : 0;
    stage->cores = stage->ready > 0 ? order->cores : cores_min;
    stage->waiting = copy->waiting_items > room ? (uint32_t)(copy->waiting_items - room) : 0;
    fill_times(s, copy);
}

/* What is late though it should not be makes the load count for more. */
static void
learn(const struct leat_profile_copy *copies)
{
    bool settled = !planned_anew;
    uint64_t late = 0;

    for (uint32_t s = 0; s < options.stage_count; s++) {
        late += copies[s].late_queries;
    }
    for (uint32_t w = 0; w < options.worker_count; w++) {
        const struct leat_scale_worker *worker = &scaled.workers[w];
        settled = settled && (worker->application == LEAT_SCALE_NOBODY ||
                              (!worker->starting && worker->has == worker->cores));
    }
    if (!early) {
        leat_shortfall_look(&scaled.shortfall, copies[0].queries, late, settled,
                            scaled.cores < options.cores);
        planned_anew = false;
    }
    application.rate_qps = copies[0].rising_qps * scaled.shortfall.factor;
}

static void
carry_out(void)
{
    struct leat_scale_wanted wanted[SCALED_STAGES_MAX];
    struct leat_scale_worker planned[SCALED_WORKERS_MAX];
    uint32_t free_cores = options.cores;

    for (uint32_t s = 0; s < options.stage_count; s++) {
        const struct leat_scaler_order *order = &application.orders[s];
        wanted[s] = (struct leat_scale_wanted){.instances = order->instances,
                                               .cores = order->cores,
                                               .class = order->worker_class,
                                               .delays = options.delay_ns > 0 &&
                                                         application.stages[s].ready > 0};
    }
    for (uint32_t w = 0; w < options.worker_count; w++) {
        free_cores -= scaled.workers[w].cores;
    }
    leat_scale_assign(&(struct leat_scale_plan_input){.workers = scaled.workers,
                                                      .worker_count = options.worker_count,
                                                      .free_cores = &free_cores,
                                                      .pool_count = 1,
                                                      .wanted = wanted,
                                                      .application_count = options.stage_count,
                                                      .parks = true},
                      planned);
    if (memcmp(planned, scaled.workers, options.worker_count * sizeof(planned[0])) != 0) {
        scaled.changes++;
        planned_anew = true;
        scaled_arrange(planned);
    }
}

static void
look(void)
{
    static struct leat_profile_copy copies[SCALED_STAGES_MAX];
    const struct leat_scaler_options asked = {.deviations = 2,
                                              .hold = options.hold,
                                              .settle = 10,
                                              .between = early,
                                              .workers = {options.worker_count}};
    struct leat_scaler_application *const applications[] = {&application};

    for (uint32_t w = 0; w < options.worker_count; w++) {
        const bool started = scaled.workers[w].starting && now() >= due_ns[w];
        scaled.workers[w].starting = scaled.workers[w].starting && !started;
        changed = changed || started;
    }
    for (uint32_t s = 0; s < options.stage_count; s++) {
        look_at(s, &copies[s]);
    }
    application.joint.stages[0].calls = 1;
    for (uint32_t s = 1; s < options.stage_count; s++) {
        leat_calls_count(&calls[s], copies[0].admitted_items, copies[s].items);
        application.joint.stages[s].calls = calls[s].each;
    }
    learn(copies);
    leat_scaler_decide(&asked, &box, &state, applications, 1, memory);
    scaled.core_looks += early ? 0 : scaled.cores;
    scaled.looks += !early;
    carry_out();
    settle();
}

/* Looks before their time that change nothing come ever later; looks in their time shorten that again. */
static void
rest(bool told, bool changes)
{
    if (changes || !told) {
        rest_ns = LEAT_SCALE_REST_NS;
    } else if (early) {
        rest_ns = rest_ns < INTERVAL_NS / 2 ? 2 * rest_ns : INTERVAL_NS;
    } else {
        rest_ns = rest_ns > 2 * LEAT_SCALE_REST_NS ? rest_ns / 2 : LEAT_SCALE_REST_NS;
    }
}

uint64_t
scaled_due_ns(void)
{
    const uint64_t soonest_ns = looked_ns + rest_ns;
    return options.fixed ? UINT64_MAX : jumped && soonest_ns < next_ns ? soonest_ns : next_ns;
}

void
scaled_keep(void)
{
    settle();
    while (scaled_due_ns() <= now()) {
        const bool told = jumped;
        const uint32_t before = scaled.changes;
        early = now() < next_ns;
        looked_ns = now();
        next_ns = early ? next_ns : now() + INTERVAL_NS;
        jumped = false;
        look();
        rest(told, scaled.changes != before);
    }
}

/* ---- Life ------------------------------------------------------------------------------------------------ */

void
scaled_begin(const struct scaled_options *given)
{
    uint32_t after[SCALED_STAGES_MAX] = {0, 1};

    options = *given;
    EXPECT(options.worker_count <= SCALED_WORKERS_MAX && options.stage_count <= SCALED_STAGES_MAX);
    scaled = (struct scaled){.shortfall = LEAT_SHORTFALL_INIT, .cores = options.worker_count};
    application = (struct leat_scaler_application){
        .joint = {.objective_ns = options.objective_ns, .weight = 1}};
    leat_joint_follow(&application.joint, after, options.stage_count);
    state = (struct leat_scaler_state){0};
    box = (struct leat_joint_box){.class_count = 1,
                                  .classes = {{.cores = options.cores, .price = 1}}};
    memory =
        aligned_alloc(LEAT_CACHE_LINE, leat_round_up(leat_joint_bytes(&box, 1), LEAT_CACHE_LINE));
    EXPECT(memory != NULL);
    memset(resizing, 0, sizeof(resizing));
    cores_min = leat_scale_least(options.sizes);
    cores_max = leat_scale_most(options.sizes, LEAT_SCALE_CORES_MAX);
    for (uint32_t s = 0; s < options.stage_count; s++) {
        calls[s] = (struct leat_calls)LEAT_CALLS_INIT;
    }
    dedication = (struct leat_dedication){.answered = false};
    for (uint32_t w = 0; w < options.worker_count; w++) {
        scaled.workers[w] = (struct leat_scale_worker){
            .sizes = options.sizes, .cores = 1, .has = 1, .application = LEAT_SCALE_NOBODY};
        dedication.owners[w] = LEAT_WORKER_FOR_ALL;
    }
    jumped = early = changed = planned_anew = false;
    rest_ns = LEAT_SCALE_REST_NS;
    looked_ns = next_ns = now();
}

void
scaled_end(void)
{
    free(memory);
}
