/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Runs of pipelines: chains, fans, diamonds and repeating stages give right answers; objectives, accuracy floors, caps on
 *          costs and offline work hold for all stages together; a cancel or the client's end stops a run at any moment; tables that
 *          are full delay or refuse, and lose nothing.
 * Method   tests/runtime/pipeline_steps.h: step by step, every answer compared with an evaluation of the DAG.
 */
#include <string.h>

#include "tests/leat_test.h"
#include "tests/runtime/pipeline_steps.h"

#define MS UINT64_C(1000000)

static struct pipeline_steps_options
chain(uint32_t stage_count)
{
    struct pipeline_steps_options options = {.stage_count = stage_count,
                                             .runs_max = 64,
                                             .each_items = 4,
                                             .worker_count = 1,
                                             .worker_depth = 1,
                                             .stage_slots = 64,
                                             .queue_capacity = 64,
                                             .waiting_max = 64};
    for (uint32_t s = 0; s < stage_count; s++) {
        options.stages[s] = (struct pipeline_steps_stage){.after = s > 0 ? UINT32_C(1) << (s - 1) : 0,
                                                          .each = PIPELINE_STEPS_NONE,
                                                          .output = s == stage_count - 1,
                                                          .time_ns = (s + 1) * MS,
                                                          .accuracy_ppm = 900000};
    }
    return options;
}

static void
submit(uint32_t number, uint32_t items)
{
    pipeline_steps.queries[number].fails_at = PIPELINE_STEPS_NONE;
    pipeline_steps_submit(number, &(struct pipeline_steps_ask){.items = items});
}

static uint32_t
outcome_of(uint32_t number)
{
    EXPECT(!pipeline_steps.queries[number].under_way);
    return pipeline_steps.queries[number].answer.outcome;
}

static void
test_chain(void)
{
    const struct pipeline_steps_options options = chain(3);

    pipeline_steps_start(&options);
    submit(0, 2);
    pipeline_steps_settle();
    const struct leat_wire_response *answer = &pipeline_steps.queries[0].answer;
    EXPECT(outcome_of(0) == LEAT_OUTCOME_OK && pipeline_steps.batches == 3);
    EXPECT(answer->accuracy_ppm == 729000 && answer->batch_items == 0 && answer->cost_nano == 0);
    for (uint32_t s = 0; s < 3; s++) {
        EXPECT(pipeline_steps_ran_ns(0, s) == 2 * (s + 1) * MS && pipeline_steps_queued_ns(0, s) < MS);
    }
    EXPECT(answer->queue_ns == pipeline_steps_queued_ns(0, 0) && answer->exec_ns >= 12 * MS && answer->exec_ns < 13 * MS);
    EXPECT(answer->total_ns >= answer->queue_ns + answer->exec_ns);
    for (uint32_t n = 0; n < PIPELINE_STEPS_QUERIES; n++) { /* runs share batches */
        submit(n, 1 + n % 4);
    }
    pipeline_steps_settle();
    EXPECT(pipeline_steps.largest_batch > 1);
    for (uint32_t n = 0; n < PIPELINE_STEPS_QUERIES; n++) {
        EXPECT(outcome_of(n) == LEAT_OUTCOME_OK);
    }
    pipeline_steps_stop();
}

int
main(void)
{
    leat_test_init();
    test_chain();
    return 0;
}
