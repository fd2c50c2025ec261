/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A pipeline whose load steps up to four times and back violates few objectives during the step where cores follow the load: at
 *          most a third of what it violates where nobody scales, and where new instances, which take their time, are all that helps;
 *          and ends on the cores that it began with.
 * Method   A detector, and a classifier that is asked for each of what it found, on three cores, of which one for each stage carries the
 *          load before the step and not that in it, which is bench/themis_live on a virtual clock (scaled.h); and two stages on six
 *          cores, where batches pay. Queries come at random (Poisson), and batches take up to so much more or less than profiles say.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/leat_test.h"
#include "tests/runtime/pipeline_steps.h"
#include "tests/runtime/scaled.h"

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)

enum { WORKERS_MAX = 6, TIMES = 4, LAPS = 3 / LEAT_TEST_SHARE + 1 };

static const uint64_t phases_ns[] = {6 * SECOND, 10 * SECOND,
                                     2 * SECOND}; /* before the step, in it, after it */
static const uint64_t calm_ns = 4 * SECOND;       /* then, in which nothing comes */
static const double spread = 0.15,
                    load = 1.4; /* in the step, over what one core for each stage carries */
static const double speed_of_two = 1.7, speed_of_four = 2.6; /* cores, beside one */

static const struct house {
    const char *name;
    struct pipeline_steps_stage stages[2];
    uint32_t objective; /* times what a query takes alone */
    uint32_t worker_count, cores, sizes;
} houses[] = {
    {.name = "a detector and a classifier",
     .stages = {{.each = PIPELINE_STEPS_NONE,
                 .varies = true,
                 .output = true,
                 .time_ns = 5 * MS,
                 .items_max = 1},
                {.after = 1,
                 .each = 0,
                 .output = true,
                 .batch_ns = MS,
                 .time_ns = MS / 4,
                 .items_max = PIPELINE_STEPS_EACH_MAX}},
     .objective = 6,
     .worker_count = 3,
     .cores = 3,
     .sizes = 3},
    {.name = "batches",
     .stages =
         {{.each = PIPELINE_STEPS_NONE, .batch_ns = 2 * MS, .time_ns = 2 * MS, .items_max = 4},
          {.after = 1,
           .each = PIPELINE_STEPS_NONE,
           .output = true,
           .batch_ns = 2 * MS,
           .time_ns = 2 * MS,
           .items_max = 4}},
     .objective = 6,
     .worker_count = 6,
     .cores = 6,
     .sizes = 11},
};

static const struct mode {
    const char *name;
    bool fixed, horizontal;
    uint64_t delay_ns;
} modes[] = {{.name = "off", .fixed = true},
             {.name = "horizontal, 5 s", .horizontal = true, .delay_ns = 5 * SECOND},
             {.name = "horizontal, 0.4 s", .horizontal = true, .delay_ns = 400 * MS},
             {.name = "leat"}};

static struct {
    bool busy;
    struct leat_team_shape shape; /* that its batch began in */
    uint64_t start_ns, end_ns;
    int64_t longer_ns;
} workers[WORKERS_MAX];

static struct outcome {
    uint32_t asked, violated, asked_else, violated_else; /* in the step; before and after */
    uint32_t cores_at_step, cores_at_end, changes;
} outcome;

static uint64_t arrivals_state, random_state; /* arrivals are the same in all modes */

static double
uniform(uint64_t *state)
{
    return ((double)(leat_test_random(state) >> 11) + 0.5) / 9007199254740992.0;
}

static void
set_clock(uint64_t now_ns)
{
    pipeline_steps.now_ns = pipeline_steps.tables.clock.base_ns = now_ns;
}

/* ---- Workers ------------------------------------------------------------------------------------------- */

static void
begin_batches(const struct pipeline_steps_options *options)
{
    for (uint32_t w = 0; w < options->worker_count; w++) {
        const struct batch_record *batch =
            pipeline_steps.dispatcher->sched_workers[w].outstanding > 0 ? oldest_batch(pipeline_steps.dispatcher, w) : NULL;
        if (workers[w].busy || batch == NULL) {
            continue;
        }
        const struct pipeline_steps_stage *stage = &options->stages[batch->application];
        workers[w].busy = true;
        workers[w].shape = leat_worker_unpack_shape(
            atomic_load_explicit(&pipeline_steps.workers[w]->shape, memory_order_relaxed));
        const double speed = options->speed[workers[w].shape.worker_class];
        const double time_ns = (double)(stage->batch_ns + stage->time_ns * batch->items) / speed;
        workers[w].longer_ns = (int64_t)((2 * uniform(&random_state) - 1) * spread * time_ns);
        workers[w].start_ns = pipeline_steps.now_ns;
        workers[w].end_ns =
            pipeline_steps.now_ns + (uint64_t)(time_ns + (double)workers[w].longer_ns) + 1;
    }
}

/* It runs in the shape that it began in, whatever the worker was told meanwhile. */
static void
end_batch(uint32_t w)
{
    struct leat_worker *worker = pipeline_steps.workers[w];
    const uint32_t told = atomic_load_explicit(&worker->shape, memory_order_relaxed);
    const uint64_t now_ns = pipeline_steps.now_ns; /* commands move the clock, too */

    set_clock(workers[w].start_ns);
    pipeline_steps.longer_ns = workers[w].longer_ns;
    (void)leat_worker_reshape(worker, workers[w].shape);
    EXPECT(pipeline_steps_run(w));
    atomic_store_explicit(&worker->shape, told, memory_order_relaxed);
    pipeline_steps.longer_ns = 0; /* of one of which nothing was run any more */
    EXPECT(pipeline_steps.tables.clock.base_ns <= workers[w].end_ns);
    set_clock(workers[w].end_ns > now_ns ? workers[w].end_ns : now_ns);
    workers[w].busy = false;
}

/* ---- The load ------------------------------------------------------------------------------------------ */

/* The arrival after that at `at_ns`, of phases from `begin_ns` on; UINT64_MAX: none comes any more. */
static uint64_t
arrive(uint64_t at_ns, uint64_t begin_ns, double rate_qps)
{
    uint64_t end_ns = begin_ns;

    for (size_t p = 0; p < LEAT_COUNT_OF(phases_ns); p++) {
        end_ns += phases_ns[p];
        if (at_ns < end_ns) {
            const double rate = p == 1 ? TIMES * rate_qps : rate_qps;
            const uint64_t next_ns = at_ns + (uint64_t)(-log(uniform(&arrivals_state)) / rate * 1e9);
            if (next_ns < end_ns) {
                return next_ns;
            }
            at_ns = end_ns; /* a Poisson process has no memory */
        }
    }
    return UINT64_MAX;
}

static void
count(bool in_step, bool violated)
{
    *(in_step ? &outcome.asked : &outcome.asked_else) += 1;
    *(in_step ? &outcome.violated : &outcome.violated_else) += violated;
}

static void
play(const struct pipeline_steps_options *options, double rate_qps)
{
    const uint64_t begin_ns = pipeline_steps.now_ns, step_ns = begin_ns + phases_ns[0],
                   back_ns = step_ns + phases_ns[1], end_ns = back_ns + phases_ns[2] + calm_ns;
    uint64_t arrival_ns = arrive(begin_ns, begin_ns, rate_qps);
    bool due[PIPELINE_STEPS_QUERIES] = {false}, in_step[PIPELINE_STEPS_QUERIES];

    memset(workers, 0, sizeof(workers));
    outcome = (struct outcome){0};
    while (pipeline_steps.now_ns < end_ns) {
        uint64_t next = pipeline_steps.now_ns + MS < end_ns ? pipeline_steps.now_ns + MS : end_ns;
        uint32_t ends = options->worker_count;
        next = arrival_ns < next ? arrival_ns : next;
        next = scaled_due_ns() < next ? scaled_due_ns() : next;
        next = next > pipeline_steps.now_ns ? next : pipeline_steps.now_ns;
        for (uint32_t w = 0; w < options->worker_count; w++) {
            if (workers[w].busy && workers[w].end_ns <= next) {
                next = workers[w].end_ns;
                ends = w;
            }
        }
        outcome.cores_at_step =
            pipeline_steps.now_ns < step_ns ? scaled.cores : outcome.cores_at_step;
        if (ends < options->worker_count) {
            end_batch(ends);
        } else {
            set_clock(next);
        }
        while (arrival_ns <= pipeline_steps.now_ns) {
            const bool stepped = arrival_ns >= step_ns && arrival_ns < back_ns;
            uint32_t n = 0;
            arrival_ns = arrive(arrival_ns, begin_ns, rate_qps);
            while (n < PIPELINE_STEPS_QUERIES && pipeline_steps.queries[n].under_way) {
                n++;
            }
            if (n == PIPELINE_STEPS_QUERIES) {
                count(stepped, true); /* it finds no slot */
                continue;
            }
            pipeline_steps.found = (uint32_t)(uniform(&arrivals_state) * (PIPELINE_STEPS_EACH_MAX + 1));
            pipeline_steps.queries[n].fails_at = PIPELINE_STEPS_NONE;
            pipeline_steps_submit(n, &(struct pipeline_steps_ask){0});
            due[n] = true;
            in_step[n] = stepped;
            pipeline_steps_round(0); /* at once, before its slot might be looked for again */
        }
        for (uint32_t s = 0; s <= options->stage_count; s++) { /* what ends one begins the next */
            pipeline_steps_round(0);
        }
        scaled_keep();
        begin_batches(options);
        for (uint32_t n = 0; n < PIPELINE_STEPS_QUERIES; n++) {
            if (due[n] && !pipeline_steps.queries[n].under_way) {
                const struct leat_wire_response *answer = &pipeline_steps.queries[n].answer;
                count(in_step[n],
                      answer->outcome != LEAT_OUTCOME_OK || answer->total_ns > options->latency_ns);
                due[n] = false;
            }
        }
    }
    for (uint32_t n = 0; n < PIPELINE_STEPS_QUERIES; n++) {
        EXPECT(!due[n]); /* all have their answers since nothing comes any more */
    }
    outcome.cores_at_end = scaled.cores;
    outcome.changes = scaled.changes;
    for (uint32_t w = 0; w < options->worker_count; w++) {
        if (workers[w].busy) {
            end_batch(w);
        }
    }
}

/* Items of a second that one core does. */
static double
capacity_qps(const struct pipeline_steps_stage *stage)
{
    return stage->items_max * 1e9 / (double)(stage->batch_ns + stage->items_max * stage->time_ns);
}

/* All begin with a core for each stage. */
static void
play_mode(const struct house *house, const struct mode *mode, uint64_t seed)
{
    struct pipeline_steps_options options = {.stage_count = 2,
                                             .stages = {house->stages[0], house->stages[1]},
                                             .runs_max = PIPELINE_STEPS_QUERIES,
                                             .each_items = PIPELINE_STEPS_EACH_MAX,
                                             .worker_count = house->worker_count,
                                             .worker_depth = 2,
                                             .stage_slots = 2 * PIPELINE_STEPS_QUERIES,
                                             .queue_capacity = 256,
                                             .waiting_max = 256,
                                             .class_count = 3,
                                             .speed = {1, speed_of_two, speed_of_four},
                                             .event = scaled_take};
    const uint32_t sizes = mode->fixed || mode->horizontal ? 1 : house->sizes;
    struct leat_scale_worker first[WORKERS_MAX];

    for (uint32_t s = 0; s < 2; s++) {
        const struct pipeline_steps_stage *stage = &house->stages[s];
        const uint32_t items = stage->each != PIPELINE_STEPS_NONE ? PIPELINE_STEPS_EACH_MAX : 1;
        options.latency_ns += house->objective * (stage->batch_ns + items * stage->time_ns);
    }
    for (uint32_t w = 0; w < house->worker_count; w++) {
        first[w] = (struct leat_scale_worker){
            .sizes = sizes, .cores = w < 2, .application = w < 2 ? w : LEAT_SCALE_NOBODY};
    }
    arrivals_state = seed;
    random_state = seed + 1000;
    pipeline_steps_start(&options);
    scaled_begin(&(struct scaled_options){
        .dispatcher = pipeline_steps.dispatcher,
        .tables = &pipeline_steps.tables,
        .command = pipeline_steps_command,
        .stage_count = 2,
        .stages = {{.application = 0, .items_max = house->stages[0].items_max},
                   {.application = 1, .items_max = house->stages[1].items_max}},
        .objective_ns = options.latency_ns,
        .worker_count = house->worker_count,
        .cores = house->cores,
        .sizes = sizes,
        .fixed = mode->fixed,
        .delay_ns = mode->delay_ns,
        .hold = 10});
    scaled_arrange(first);
    play(&options, load / TIMES * capacity_qps(&house->stages[0]));
    pipeline_steps_stop();
    scaled_end();
}

static void
test_house(const struct house *house)
{
    double violated[LEAT_COUNT_OF(modes)] = {0}, violated_else = 0; /* of leat */

    (void)printf("%s\n", house->name);
    for (uint32_t lap = 0; lap < LAPS; lap++) {
        for (size_t m = 0; m < LEAT_COUNT_OF(modes); m++) {
            play_mode(house, &modes[m], leat_test_seed + lap);
            violated[m] += outcome.violated / (double)outcome.asked / LAPS;
            violated_else += m + 1 == LEAT_COUNT_OF(modes) ? outcome.violated_else / (double)outcome.asked_else / LAPS : 0;
            (void)printf("%-18s %5.2f %% of %u in the step, %u of %u else; cores %u when it began, "
                         "%u in the end; %u changes\n",
                         modes[m].name, 100.0 * outcome.violated / outcome.asked, outcome.asked,
                         outcome.violated_else, outcome.asked_else, outcome.cores_at_step,
                         outcome.cores_at_end, outcome.changes);
            EXPECT(outcome.cores_at_end == 2);
        }
    }
    const double leat = violated[LEAT_COUNT_OF(modes) - 1];
    EXPECT(leat <= 0.001 && violated_else <= 0.001);
    for (size_t m = 0; m + 1 < LEAT_COUNT_OF(modes); m++) {
        EXPECT(leat <= violated[m] / 3);
    }
}

int
main(void)
{
    leat_test_init();
    for (size_t h = 0; h < LEAT_COUNT_OF(houses); h++) {
        test_house(&houses[h]);
    }
    return 0;
}
