/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Whatever a DAG looks like and whatever happens to its runs, every query ends exactly once, with an answer that is
 *          right or a reason that is true; every stage runs at most once, after its sources, and not when it is too late for
 *          it; an accuracy floor is reached, and refused only where no choice of variants does; and nothing is left of it.
 * Method   Random DAGs, random tables that are as small as they may be, and random steps: submit, cancel, close, fail, remove,
 *          move on. The oracle is in tests/runtime/pipeline_steps.h. LEAT_SEED replays.
 */
#include <string.h>

#include "tests/leat_test.h"
#include "tests/runtime/pipeline_steps.h"

enum { WORLDS = 400, MOVES = 300, OUTPUTS_MAX = 4 };
#define OBJECTIVE_NS UINT64_C(40000000)

static uint64_t random_state;
static uint32_t outcomes[8], reasons[16], empty, chunked, reached;

static uint32_t
below(uint32_t bound)
{
    return (uint32_t)(leat_test_random(&random_state) % bound);
}

static bool
one_in(uint32_t count)
{
    return below(count) == 0;
}

static void
draw_dag(struct pipeline_steps_options *options)
{
    uint32_t varying = 0, outputs = 0, read = 0; /* varying: stages that do and do not repeat */

    options->stage_count = 1 + below(LEAT_PIPELINE_STAGES_MAX);
    for (uint32_t s = 0; s < options->stage_count; s++) {
        struct pipeline_steps_stage *stage = &options->stages[s];
        *stage = (struct pipeline_steps_stage){.each = PIPELINE_STEPS_NONE,
                                               .time_ns = 1000 * (1 + below(2000)),
                                               .accuracy_ppm = one_in(8) ? 0 : 900000 + below(100001),
                                               .slow_accuracy_ppm = one_in(4) ? 950000 + below(50001) : 0};
        for (uint32_t n = s > 0 ? below(4) : 0; n > 0; n--) {
            stage->after |= UINT32_C(1) << below(s);
        }
        if (varying != 0 && one_in(2)) {
            while (stage->each == PIPELINE_STEPS_NONE) {
                const uint32_t source = below(s);
                stage->each = (varying >> source & 1) != 0 ? source : PIPELINE_STEPS_NONE;
            }
            stage->after |= UINT32_C(1) << stage->each;
        } else if (one_in(2)) {
            stage->varies = true;
            varying |= UINT32_C(1) << s;
        }
        read |= stage->after;
    }
    for (uint32_t s = 0; s < options->stage_count; s++) {
        options->stages[s].output = outputs < OUTPUTS_MAX && ((read >> s & 1) == 0 || one_in(4));
        outputs += options->stages[s].output;
    }
    if (outputs == 0) {
        options->stages[0].output = true;
    }
}

static struct pipeline_steps_options
draw_options(void)
{
    struct pipeline_steps_options options = {
        .late = (enum leat_pipeline_late)below(3),
        .latency_ns = one_in(2) ? OBJECTIVE_NS : 0,
        .runs_max = 1 + below(2 * PIPELINE_STEPS_QUERIES),
        .each_items = 2 + 2 * below(4),
        .worker_count = 1 + below(3),
        .worker_depth = 1 + below(2),
        .stage_slots = 2u << below(6),
        .queue_capacity = 2u << below(7),
        .waiting_max = one_in(4) ? 1 + below(4) : 256,
        .drop_late = one_in(2),
        .priced = one_in(2),
    };
    draw_dag(&options);
    return options;
}

static void
submit(const struct pipeline_steps_options *options)
{
    const uint32_t number = below(PIPELINE_STEPS_QUERIES);
    struct pipeline_steps_query *query = &pipeline_steps.queries[number];
    const struct pipeline_steps_ask ask = {.items = 1 + below(PIPELINE_STEPS_ITEMS),
                                           .latency_us = one_in(4) ? 1 + below(60000) : 0,
                                           .accuracy_floor_ppm = one_in(16) ? 400000 + below(600000) : 0,
                                           .cost_cap_nano = one_in(8) ? 1 + below(20000) : 0,
                                           .offline = one_in(8)};

    if (query->under_way || !pipeline_steps_is_open(number / PIPELINE_STEPS_SLOTS)) {
        return;
    }
    query->fails_at = one_in(16) ? below(options->stage_count) : PIPELINE_STEPS_NONE;
    pipeline_steps.found = one_in(3) ? below(PIPELINE_STEPS_EACH_MAX + 1) : UINT32_MAX;
    memset(&query->answer, 0, sizeof(query->answer));
    pipeline_steps_submit(number, &ask);
}

/* Of an answer whose stages all run their best variants. */
static uint32_t
best_accuracy(const struct pipeline_steps_options *options)
{
    double best = 1e6;
    for (uint32_t s = 0; s < options->stage_count; s++) {
        const struct pipeline_steps_stage *stage = &options->stages[s];
        best *= (stage->slow_accuracy_ppm > stage->accuracy_ppm ? stage->slow_accuracy_ppm : stage->accuracy_ppm) / 1e6;
    }
    return (uint32_t)(best + 0.5);
}

static void
count_answers(const struct pipeline_steps_options *options)
{
    for (uint32_t n = 0; n < PIPELINE_STEPS_QUERIES; n++) {
        const struct pipeline_steps_query *query = &pipeline_steps.queries[n];
        if (query->under_way || query->answer.outcome == LEAT_OUTCOME_NONE) {
            continue;
        }
        outcomes[query->answer.outcome]++;
        reasons[query->answer.reason]++;
        if (query->answer.outcome == LEAT_OUTCOME_OK) {
            EXPECT(query->answer.accuracy_ppm >= query->ask.accuracy_floor_ppm);
            reached += query->ask.accuracy_floor_ppm > 0;
        }
        EXPECT(query->answer.reason != LEAT_REASON_ACCURACY || best_accuracy(options) < query->ask.accuracy_floor_ppm);
        for (uint32_t s = 0; s < options->stage_count && query->answer.outcome == LEAT_OUTCOME_OK; s++) {
            empty += query->due[s] == 0;
            chunked += options->stages[s].each != PIPELINE_STEPS_NONE && query->due[s] > options->each_items;
        }
        pipeline_steps.queries[n].answer.outcome = LEAT_OUTCOME_NONE;
    }
}

static void
move(const struct pipeline_steps_options *options)
{
    const uint32_t which = below(64), number = below(PIPELINE_STEPS_QUERIES), client = number / PIPELINE_STEPS_SLOTS;

    if (which < 20) {
        submit(options);
    } else if (which < 23) {
        if (pipeline_steps.queries[number].under_way && pipeline_steps_is_open(client) &&
            !pipeline_steps.queries[number].cancelled) {
            pipeline_steps_cancel(number);
        }
    } else if (which == 23) {
        if (pipeline_steps_is_open(client) && one_in(4)) {
            pipeline_steps_close(client);
        }
    } else if (which == 24) {
        pipeline_steps.device_fails = one_in(8);
    } else if (which < 45) {
        pipeline_steps_round(one_in(8) ? below(20000000) : 1 + below(10000));
    } else {
        (void)pipeline_steps_run(below(options->worker_count));
    }
    count_answers(options);
}

int
main(void)
{
    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    random_state = leat_test_seed;
    for (uint32_t world = 0; world < WORLDS; world++) {
        const struct pipeline_steps_options options = draw_options();
        pipeline_steps_start(&options);
        for (uint32_t m = 0; m < MOVES; m++) {
            move(&options);
        }
        if (one_in(2)) { /* while runs are under way */
            pipeline_steps_command(
                &(struct leat_command){.kind = LEAT_COMMAND_REMOVE_PIPELINE, .pipeline = &pipeline_steps.pipeline});
        }
        pipeline_steps_settle();
        count_answers(&options);
        const struct leat_pipeline_counters *counters = &pipeline_steps.pipeline.counters;
        EXPECT(atomic_load(&counters->running) == 0 && atomic_load(&counters->accepted) > 0);
        pipeline_steps_stop();
    }
    for (uint32_t outcome = LEAT_OUTCOME_OK; outcome <= LEAT_OUTCOME_FAILED; outcome++) {
        EXPECT(outcomes[outcome] > 0);
    }
    EXPECT(reasons[LEAT_REASON_DEADLINE] > 0 && reasons[LEAT_REASON_QUEUE_FULL] > 0 && reasons[LEAT_REASON_COST] > 0);
    EXPECT(reasons[LEAT_REASON_ACCURACY] > 0 && reasons[LEAT_REASON_PRICE] > 0 && reasons[LEAT_REASON_PAYLOAD] > 0);
    EXPECT(reasons[LEAT_REASON_DEVICE] > 0 && reasons[LEAT_REASON_TARGET] == 0 && empty > 0 && chunked > 0 && reached > 0);
    (void)printf(
        "%u ok, %u rejected, %u expired, %u cancelled, %u failed; %u stages without items, %u in several queries\n",
        outcomes[1], outcomes[2], outcomes[3], outcomes[4], outcomes[5], empty, chunked);
    return 0;
}
