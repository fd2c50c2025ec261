/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Runs of pipelines: chains, fans, diamonds and repeating stages give right answers; objectives, accuracy floors, caps
 *          on costs and offline work hold for all stages together; a cancel or the client's end stops a run at any moment;
 *          tables that are full delay or refuse, and lose nothing; a run that waits holds up no other; one that is late and
 *          goes on makes nobody late who is not, in any of its stages, and is answered by its last moment; late and offline runs leave
 *          half of all to others, and three quarters of what stages ask together, and what is refused for want of a run is load, and late where workers are what is short.
 * Method   tests/runtime/pipeline_steps.h: step by step, every answer compared with an evaluation of the DAG.
 */
#include <string.h>

#include "runtime/dispatcher_private.h"
#include "tests/leat_test.h"
#include "tests/runtime/pipeline_steps.h"

enum { NONE = PIPELINE_STEPS_NONE, QUERIES = PIPELINE_STEPS_QUERIES };
#define MS UINT64_C(1000000)

/* Each stage after the one before; stage s takes s + 1 ms. */
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
                                                          .each = NONE,
                                                          .output = s == stage_count - 1,
                                                          .time_ns = (s + 1) * MS,
                                                          .accuracy_ppm = 900000};
    }
    return options;
}

/* The second stage repeats for what the first finds. */
static struct pipeline_steps_options
repeating(void)
{
    struct pipeline_steps_options options = chain(3);
    options.stages[0].varies = options.stages[0].output = options.stages[1].output = true;
    options.stages[1].each = 0;
    for (uint32_t s = 0; s < 3; s++) {
        options.stages[s].time_ns = MS;
    }
    return options;
}

static void
ask(uint32_t number, const struct pipeline_steps_ask *what)
{
    pipeline_steps.queries[number].fails_at = NONE;
    pipeline_steps_submit(number, what);
}

static void
submit(uint32_t number, uint32_t items)
{
    ask(number, &(struct pipeline_steps_ask){.items = items});
}

static const struct leat_wire_response *
answer_of(uint32_t number)
{
    EXPECT(!pipeline_steps.queries[number].under_way);
    return &pipeline_steps.queries[number].answer;
}

static bool
ended(uint32_t number, enum leat_outcome outcome, enum leat_reason reason, uint32_t stage)
{
    const struct leat_wire_response *answer = answer_of(number);
    return answer->outcome == outcome && answer->reason == reason && answer->variant == stage;
}

static bool
is_ok(uint32_t number)
{
    return ended(number, LEAT_OUTCOME_OK, LEAT_REASON_NONE, UINT16_MAX);
}

/* ---- Shapes ----------------------------------------------------------------------------------- */

static void
test_chain(void)
{
    const struct pipeline_steps_options options = chain(3);

    pipeline_steps_start(&options);
    submit(0, 2);
    pipeline_steps_settle();
    const struct leat_wire_response *answer = answer_of(0);
    EXPECT(is_ok(0) && pipeline_steps.batches == 3);
    EXPECT(answer->accuracy_ppm == 729000 && answer->batch_items == 0 && answer->cost_nano == 0);
    for (uint32_t s = 0; s < 3; s++) {
        EXPECT(pipeline_steps_ran_ns(0, s) == 2 * (s + 1) * MS && pipeline_steps_queued_ns(0, s) < MS);
    }
    EXPECT(answer->queue_ns == pipeline_steps_queued_ns(0, 0) && answer->exec_ns >= 12 * MS && answer->exec_ns < 13 * MS);
    EXPECT(answer->total_ns >= answer->queue_ns + answer->exec_ns);
    for (uint32_t n = 0; n < QUERIES; n++) { /* runs share batches */
        submit(n, 1 + n % 4);
    }
    pipeline_steps_settle();
    EXPECT(pipeline_steps.largest_batch > 1);
    for (uint32_t n = 0; n < QUERIES; n++) {
        EXPECT(is_ok(n));
    }
    const struct leat_pipeline *pipeline = &pipeline_steps.pipeline;
    EXPECT(atomic_load(&pipeline->counters.accepted) == 1 + QUERIES && atomic_load(&pipeline->counters.ok) == 1 + QUERIES);
    EXPECT(leat_histogram_summarise(&pipeline->times[2].exec_ns).count == 1 + QUERIES);
    EXPECT(leat_histogram_summarise(&pipeline->times[0].queue_ns).count == 1 + QUERIES);
    pipeline_steps_stop();
}

static void
test_diamond(void)
{
    struct pipeline_steps_options options = chain(4);

    options.worker_count = 2;
    options.stages[2].after = 1; /* 0, then 1 and 2 side by side, then 3 */
    options.stages[3].after = 6;
    pipeline_steps_start(&options);
    submit(0, 3);
    pipeline_steps_round(1);
    EXPECT(pipeline_steps_run(0) || pipeline_steps_run(1));
    pipeline_steps_round(1);
    for (uint32_t w = 0; w < 2; w++) {
        EXPECT(pipeline_steps.workers[w]->dispatcher.batches == 1 && pipeline_steps_run(w));
        EXPECT(pipeline_steps.queries[0].under_way);
    }
    pipeline_steps_settle();
    EXPECT(is_ok(0) && pipeline_steps.batches == 4 && answer_of(0)->accuracy_ppm == 656100);
    pipeline_steps_stop();

    options = chain(5); /* one read by three, whose answers are all outputs; and one that waits for all */
    for (uint32_t s = 1; s < 4; s++) {
        options.stages[s].after = 1;
        options.stages[s].output = true;
    }
    options.stages[4].after = 15;
    pipeline_steps_start(&options);
    for (uint32_t n = 0; n < QUERIES; n++) {
        submit(n, 4);
    }
    pipeline_steps_settle();
    for (uint32_t n = 0; n < QUERIES; n++) {
        EXPECT(is_ok(n));
    }
    pipeline_steps_stop();
}

static void
test_repeating(void)
{
    const struct pipeline_steps_options options = repeating();
    const uint32_t founds[] = {0, 1, 4, 5, 8};

    for (uint32_t f = 0; f < LEAT_COUNT_OF(founds); f++) {
        for (uint32_t items = 1; items <= 4; items++) {
            pipeline_steps_start(&options);
            pipeline_steps.found = founds[f];
            submit(0, items);
            pipeline_steps_settle();
            const uint32_t queries = items * ((founds[f] + options.each_items - 1) / options.each_items);
            EXPECT(is_ok(0) && answer_of(0)->sizes[items - 1] == founds[f]);
            EXPECT(pipeline_steps.largest_batch == (queries > 1 ? queries : 1) &&
                   pipeline_steps.batches == 2 + (founds[f] > 0));
            EXPECT(answer_of(0)->accuracy_ppm == (founds[f] > 0 ? 729000 : 810000));
            EXPECT(pipeline_steps_ran_ns(0, 1) == items * founds[f] * MS);
            pipeline_steps_stop();
        }
    }
}

/* What is to be found decides how early the first stage is due, as it was lately. */
static void
test_expected_items(void)
{
    struct pipeline_steps_options options = repeating();

    options.each_items = 8;
    options.latency_ns = 9 * MS + MS / 2;
    pipeline_steps_start(&options);
    pipeline_steps.found = 8; /* 1 + 8 + 1 ms, but nothing is known of it yet */
    submit(0, 1);
    pipeline_steps_settle();
    EXPECT(ended(0, LEAT_OUTCOME_EXPIRED, LEAT_REASON_NONE, 1)); /* once it is, the rest of the time does not do */
    submit(0, 1);
    pipeline_steps_settle();
    EXPECT(ended(0, LEAT_OUTCOME_REJECTED, LEAT_REASON_DEADLINE, 0));
    pipeline_steps.found = 0;
    ask(0, &(struct pipeline_steps_ask){.latency_us = 100000});
    pipeline_steps_settle();
    submit(1, 1); /* eight less often */
    pipeline_steps_settle();
    EXPECT(is_ok(0) && is_ok(1));
    pipeline_steps_stop();
}

/* What is found decides how late the stages behind may begin, whatever was found lately. */
static void
test_found_items(void)
{
    struct pipeline_steps_options options = repeating();

    options.each_items = 8;
    options.latency_ns = 12 * MS;
    for (uint32_t shape = 0; shape < 2; shape++) {
        if (shape == 1) { /* a stage between them, which is in time if few were found */
            options.stages[1].each = NONE;
            options.stages[2].each = 0;
            options.stages[2].after = 3;
        }
        for (uint32_t found = 0; found < 3; found++) {
            pipeline_steps_start(&options);
            pipeline_steps.found = 8;
            ask(0, &(struct pipeline_steps_ask){.latency_us = 100000});
            pipeline_steps_settle();
            EXPECT(is_ok(0));
            pipeline_steps.found = found < 2 ? found : 8;
            submit(0, 1);
            pipeline_steps_round(1);
            EXPECT(pipeline_steps_run(0));
            pipeline_steps_round(5 * MS);
            pipeline_steps_settle();
            EXPECT(found < 2 ? is_ok(0) : ended(0, LEAT_OUTCOME_EXPIRED, LEAT_REASON_NONE, 1));
            pipeline_steps_stop();
        }
    }
}

/* ---- Objectives ------------------------------------------------------------------------------- */

/* After its first stage a run stands still for so long. */
static void
stand_still(const struct pipeline_steps_options *options, uint64_t ns)
{
    pipeline_steps_start(options);
    submit(0, 1);
    pipeline_steps_round(1);
    EXPECT(pipeline_steps_run(0));
    pipeline_steps_round(ns);
    pipeline_steps_settle();
    pipeline_steps_stop();
}

static void
test_deadlines(void)
{
    struct pipeline_steps_options options = chain(3);

    options.latency_ns = 10 * MS;
    for (uint32_t drop_late = 0; drop_late < 2; drop_late++) {
        options.drop_late = drop_late > 0;
        options.late = LEAT_PIPELINE_DROP; /* the second stage and the third take 5 ms */
        stand_still(&options, 3 * MS);
        EXPECT(is_ok(0) && pipeline_steps.batches == 3);
        stand_still(&options, 5 * MS);
        EXPECT(ended(0, LEAT_OUTCOME_EXPIRED, LEAT_REASON_NONE, 1) && pipeline_steps.batches == 1);
        EXPECT(answer_of(0)->exec_ns == MS);
        options.late = LEAT_PIPELINE_DROP_THRICE;
        stand_still(&options, 23 * MS);
        EXPECT(is_ok(0) && pipeline_steps.batches == 3);
        stand_still(&options, 25 * MS);
        EXPECT(ended(0, LEAT_OUTCOME_EXPIRED, LEAT_REASON_NONE, 1) && pipeline_steps.batches == 1);
        options.late = LEAT_PIPELINE_SERVE;
        stand_still(&options, 1000 * MS);
        EXPECT(is_ok(0) && pipeline_steps.batches == 3);

        options.late = LEAT_PIPELINE_DROP;
        pipeline_steps_start(&options);
        ask(0, &(struct pipeline_steps_ask){.latency_us = 5500}); /* 1 + 2 + 3 ms */
        ask(1, &(struct pipeline_steps_ask){.latency_us = 6500});
        pipeline_steps_settle();
        EXPECT(ended(0, LEAT_OUTCOME_REJECTED, LEAT_REASON_DEADLINE, 0) && is_ok(1));
        pipeline_steps_stop();
    }
}

/* A query that waits in its application's list expires there, and that is the run's end. */
static void
test_expires_waiting(void)
{
    struct pipeline_steps_options options = chain(2);

    options.latency_ns = 12 * MS;
    options.drop_late = true;
    pipeline_steps_start(&options);
    submit(0, 1);
    pipeline_steps_round(1);
    submit(1, 1); /* waits behind it */
    pipeline_steps_round(1);
    EXPECT(leat_waiting_total(pipeline_steps.apps[0].waiting) == 1);
    pipeline_steps_round(11 * MS);
    EXPECT(ended(1, LEAT_OUTCOME_EXPIRED, LEAT_REASON_NONE, 0) && pipeline_steps.queries[0].under_way);
    pipeline_steps_settle();
    EXPECT(ended(0, LEAT_OUTCOME_EXPIRED, LEAT_REASON_NONE, 0)); /* by the worker */
    pipeline_steps_stop();
}

/*
 * A run waits behind another's batch for so long that it can, or cannot, end by its last moment. Where its application
 * serves late queries late, it waits among these, and is given up all the same.
 */
static void
test_gives_up_waiting(void)
{
    struct pipeline_steps_options options = chain(2); /* of 1 and 2 ms */

    options.latency_ns = 10 * MS;
    for (uint32_t choice = 0; choice < 8; choice++) {
        const bool late = choice % 2 > 0;
        const uint64_t last = choice < 4 ? 10 * MS : 30 * MS;
        options.drop_late = choice / 2 % 2 > 0;
        options.late = choice < 4 ? LEAT_PIPELINE_DROP : LEAT_PIPELINE_DROP_THRICE;
        pipeline_steps_start(&options);
        ask(0, &(struct pipeline_steps_ask){.latency_us = 1000000});
        pipeline_steps_round(1);
        submit(1, 1);
        pipeline_steps_round(1);
        EXPECT(leat_waiting_total(pipeline_steps.apps[0].waiting) == 1);
        pipeline_steps_cancel(0); /* after its first stage, which takes 1 ms */
        pipeline_steps_round(late ? last - 3 * MS : last - 5 * MS);
        pipeline_steps_round(1);
        pipeline_steps_settle();
        EXPECT(ended(0, LEAT_OUTCOME_CANCELLED, LEAT_REASON_NONE, UINT16_MAX) && pipeline_steps.batches == (late ? 1 : 3));
        EXPECT(late ? ended(1, LEAT_OUTCOME_EXPIRED, LEAT_REASON_NONE, 0) : is_ok(1));
        EXPECT(pipeline_steps.queries[1].ran[0] == (late ? 0 : 1));
        pipeline_steps_stop();
    }
}

/* Where late runs go on, queries aim at the objective first, and come again as late. */
static void
test_aims(void)
{
    struct pipeline_steps_options options = chain(3);

    options.latency_ns = 24 * MS;
    for (uint32_t choice = 0; choice < 4; choice++) {
        options.drop_late = choice % 2 > 0;
        options.late = choice < 2 ? LEAT_PIPELINE_DROP_THRICE : LEAT_PIPELINE_SERVE;
        pipeline_steps_start(&options);
        const struct leat_waiting *waiting = pipeline_steps.apps[0].waiting;
        submit(0, 1);
        pipeline_steps_round(1);
        const uint64_t submit_ns = pipeline_steps.now_ns;
        submit(1, 1); /* waits behind it */
        pipeline_steps_round(1);
        EXPECT(leat_waiting_count(&waiting[LEAT_RANK_ONLINE]) == 1);
        EXPECT(waiting[LEAT_RANK_ONLINE].entries[waiting[LEAT_RANK_ONLINE].head].deadline_ns == submit_ns + 19 * MS);
        pipeline_steps_round(20 * MS);
        pipeline_steps_round(1);
        EXPECT(leat_waiting_total(waiting) == 1 && leat_waiting_count(&waiting[LEAT_RANK_LATE]) == 1);
        if (options.drop_late) {
            const uint64_t due_ns = choice < 2 ? submit_ns + 67 * MS : LEAT_NO_DEADLINE;
            EXPECT(waiting[LEAT_RANK_LATE].entries[waiting[LEAT_RANK_LATE].head].deadline_ns == due_ns);
        }
        pipeline_steps_settle();
        EXPECT(is_ok(0) && is_ok(1) && atomic_load(&pipeline_steps.pipeline.counters.late) == 2);
        submit(0, 1);
        pipeline_steps_settle();
        EXPECT(is_ok(0) && atomic_load(&pipeline_steps.pipeline.counters.late) == 2);
        submit(0, 1);
        pipeline_steps_round(1);
        submit(1, 1);
        pipeline_steps_round(1);
        pipeline_steps_round(20 * MS); /* it was dropped, and not yet pushed again */
        pipeline_steps_cancel(1);
        pipeline_steps_settle();
        EXPECT(is_ok(0) && ended(1, LEAT_OUTCOME_CANCELLED, LEAT_REASON_NONE, UINT16_MAX));
        pipeline_steps_stop();
    }
}

/* A run that is late at its second stage, too, waits until nobody does who can be in time, and is answered all the same. */
static void
test_late_go_last(void)
{
    struct pipeline_steps_options options = chain(3);
    const struct pipeline_steps_query *queries = pipeline_steps.queries;

    options.latency_ns = 24 * MS;
    for (uint32_t choice = 0; choice < 4; choice++) {
        options.drop_late = choice % 2 > 0;
        options.late = choice < 2 ? LEAT_PIPELINE_DROP_THRICE : LEAT_PIPELINE_SERVE;
        pipeline_steps_start(&options);
        submit(0, 1);
        pipeline_steps_round(1);
        EXPECT(pipeline_steps_run(0));
        pipeline_steps_round(24 * MS); /* the worker, or the dispatcher, stood still */
        EXPECT(pipeline_steps_run(0)); /* nobody else waited */
        ask(1, &(struct pipeline_steps_ask){.latency_us = 1000000});
        pipeline_steps_round(1);
        EXPECT(leat_waiting_count(&pipeline_steps.apps[2].waiting[LEAT_RANK_LATE]) == 1);
        submit(2, 1);
        pipeline_steps_settle();
        for (uint32_t n = 0; n < 3; n++) {
            EXPECT(is_ok(n) && (n == 0 || queries[n].stop_ns[2] <= queries[0].start_ns[2]));
        }
        EXPECT(atomic_load(&pipeline_steps.pipeline.counters.late) == 1);
        pipeline_steps_stop();
    }
}

/* Late runs beyond those that their application's list holds wait for room there. */
static void
test_late_without_room(void)
{
    struct pipeline_steps_options options = chain(2);

    options.latency_ns = 20 * MS;
    options.late = LEAT_PIPELINE_SERVE;
    options.waiting_max = 2;
    for (uint32_t drop_late = 0; drop_late < 2; drop_late++) {
        options.drop_late = drop_late > 0;
        pipeline_steps_start(&options);
        submit(0, 1);
        pipeline_steps_round(1);
        for (uint32_t n = 1; n < 8; n++) { /* late when they come */
            ask(n, &(struct pipeline_steps_ask){.latency_us = 2000});
        }
        pipeline_steps_round(1);
        pipeline_steps_round(1);
        submit(8, 1);
        submit(9, 1);
        pipeline_steps_round(1);
        pipeline_steps_round(1);
        EXPECT(leat_waiting_count(&pipeline_steps.apps[0].waiting[LEAT_RANK_LATE]) == 2);
        EXPECT(leat_waiting_count(&pipeline_steps.apps[0].waiting[LEAT_RANK_ONLINE]) == 2);
        pipeline_steps_round(20 * MS); /* these are late, too, and find no room */
        pipeline_steps_round(1);
        EXPECT(leat_waiting_total(pipeline_steps.apps[0].waiting) == 2);
        pipeline_steps_settle();
        for (uint32_t n = 0; n < 10; n++) {
            EXPECT(is_ok(n));
        }
        pipeline_steps_stop();
    }
}

/* One that comes as late has the last room, and another that becomes late meanwhile waits for room. */
static void
test_late_have_room(void)
{
    struct pipeline_steps_options options = chain(2);
    const struct leat_waiting *waiting = pipeline_steps.apps[0].waiting;

    options.latency_ns = 20 * MS;
    options.late = LEAT_PIPELINE_SERVE;
    options.waiting_max = 2;
    pipeline_steps_start(&options);
    submit(0, 1);
    pipeline_steps_round(1);
    ask(1, &(struct pipeline_steps_ask){.latency_us = 2000});
    pipeline_steps_round(1);
    submit(2, 1);
    pipeline_steps_round(1);
    EXPECT(leat_waiting_count(&waiting[LEAT_RANK_LATE]) == 1 && leat_waiting_count(&waiting[LEAT_RANK_ONLINE]) == 1);
    ask(3, &(struct pipeline_steps_ask){.latency_us = 2000});
    pipeline_steps_round(20 * MS);
    EXPECT(leat_waiting_count(&waiting[LEAT_RANK_LATE]) == 2 && leat_waiting_count(&waiting[LEAT_RANK_ONLINE]) == 0);
    pipeline_steps_settle();
    for (uint32_t n = 0; n < 4; n++) {
        EXPECT(is_ok(n));
    }
    pipeline_steps_stop();
}

/* However long others keep the worker, a late run is answered when it cannot end any more; it was turned away then. */
static void
test_late_expire(void)
{
    struct pipeline_steps_options options = chain(2);
    const struct leat_application *first = &pipeline_steps.apps[0];

    options.latency_ns = 10 * MS;
    options.late = LEAT_PIPELINE_DROP_THRICE;
    for (uint32_t drop_late = 0; drop_late < 2; drop_late++) {
        options.drop_late = drop_late > 0;
        pipeline_steps_start(&options);
        ask(0, &(struct pipeline_steps_ask){.latency_us = 1000000});
        pipeline_steps_round(1);
        submit(1, 1);
        pipeline_steps_round(1);
        pipeline_steps_round(9 * MS);
        pipeline_steps_round(1);
        EXPECT(leat_waiting_count(&first->waiting[LEAT_RANK_LATE]) == 1);
        pipeline_steps_round(18 * MS);
        EXPECT(pipeline_steps.queries[1].under_way && first->turned_away_items == 0);
        pipeline_steps_round(MS);
        pipeline_steps_round(1);
        EXPECT(ended(1, LEAT_OUTCOME_EXPIRED, LEAT_REASON_NONE, 0) && pipeline_steps.batches == 0);
        EXPECT(first->load.queries == 2 && first->turned_away_items == 1);
        pipeline_steps_settle();
        EXPECT(is_ok(0));
        pipeline_steps_stop();
    }
}

/* What late runs are to ask of later stages is nothing that others have to wait for: who comes then is let in. */
static void
test_late_ask_nothing(uint32_t latency_us, bool drop_late)
{
    struct pipeline_steps_options options = chain(2); /* of 1 and 2 ms */
    const struct leat_waiting *waiting = pipeline_steps.apps[0].waiting;

    options.latency_ns = 20 * MS;
    options.late = LEAT_PIPELINE_SERVE;
    options.drop_late = drop_late;
    options.waiting_max = 2; /* and two wait for room */
    options.stages[0].items_max = options.stages[1].items_max = 4; /* so many take 12 ms */
    pipeline_steps_start(&options);
    ask(0, &(struct pipeline_steps_ask){.latency_us = 1000000});
    pipeline_steps_round(1);
    for (uint32_t n = 1; n < 5; n++) {
        ask(n, &(struct pipeline_steps_ask){.items = 4, .latency_us = latency_us});
    }
    pipeline_steps_round(1);
    pipeline_steps_round(1);
    EXPECT(leat_waiting_count(&waiting[LEAT_RANK_LATE]) == 2);
    submit(5, 1);
    pipeline_steps_round(1);
    EXPECT(leat_waiting_count(&waiting[LEAT_RANK_ONLINE]) == 1);
    pipeline_steps_settle();
    for (uint32_t n = 0; n < 6; n++) {
        EXPECT(is_ok(n));
    }
    pipeline_steps_stop();
}

/* A run for which there is no time goes behind all that have it, and is load, where its application serves late. */
static void
test_lost(void)
{
    struct pipeline_steps_options options = chain(2); /* of 1 and 2 ms */
    const struct leat_application *first = &pipeline_steps.apps[0];

    options.latency_ns = 10 * MS;
    options.late = LEAT_PIPELINE_SERVE;
    pipeline_steps_start(&options);
    ask(0, &(struct pipeline_steps_ask){.items = 4, .latency_us = 1000000});
    pipeline_steps_round(1);
    submit(1, 1); /* the first has a stage of 8 ms to come, which goes before it */
    pipeline_steps_round(1);
    EXPECT(leat_waiting_count(&first->waiting[LEAT_RANK_LATE]) == 1 && leat_waiting_count(&first->waiting[LEAT_RANK_ONLINE]) == 0);
    EXPECT(first->load.queries == 2 && first->late_queries == 1 && first->turned_away_items == 0);
    pipeline_steps_settle();
    EXPECT(is_ok(0) && is_ok(1) && first->load.queries == 2 && first->late_queries == 1);
    pipeline_steps_stop();
}

/* Times spread: a run that could be in time on average, and is not predicted to be, is load as well. */
static void
test_lost_by_spread(void)
{
    struct pipeline_steps_options options = chain(2); /* of 1 and 2 ms */
    const struct leat_application *first = &pipeline_steps.apps[0];

    options.latency_ns = 4 * MS;
    options.late = LEAT_PIPELINE_SERVE;
    pipeline_steps_start(&options);
    first->profiles[0][0].knots[1].predicted *= 3;
    submit(0, 1);
    pipeline_steps_round(1);
    EXPECT(first->load.queries == 1 && first->turned_away_items == 0);
    pipeline_steps_settle();
    EXPECT(is_ok(0) && first->load.queries == 1);
    pipeline_steps_stop();
}

/*
 * Those that are late, whether when they come or for what others are to do, hold half of the runs that there can be, so that who can be
 * in time finds one; who comes late then is refused, and was load that was turned away.
 */
static void
test_late_leave_runs(void)
{
    struct pipeline_steps_options options = chain(2); /* of 1 and 2 ms */
    const struct leat_application *first = &pipeline_steps.apps[0];

    options.latency_ns = 10 * MS;
    options.late = LEAT_PIPELINE_SERVE;
    options.runs_max = 4;
    for (uint32_t choice = 0; choice < 4; choice++) {
        const bool at_once = choice / 2 > 0;
        options.drop_late = choice % 2 > 0;
        pipeline_steps_start(&options);
        ask(0, &(struct pipeline_steps_ask){.items = 4, .latency_us = 1000000});
        pipeline_steps_round(1);
        for (uint32_t n = 1; n < 4; n++) {
            ask(n, &(struct pipeline_steps_ask){.latency_us = at_once ? 2000 : 0});
            pipeline_steps_round(1);
            pipeline_steps_round(1);
            EXPECT(leat_waiting_count(&first->waiting[LEAT_RANK_LATE]) == (n < 3 ? n : 2));
        }
        EXPECT(ended(3, LEAT_OUTCOME_REJECTED, LEAT_REASON_QUEUE_FULL, 0));
        EXPECT(first->load.queries == 4 && first->turned_away_items == 1);
        ask(4, &(struct pipeline_steps_ask){.latency_us = 1000000});
        pipeline_steps_round(1);
        EXPECT(pipeline_steps.queries[4].under_way && leat_waiting_count(&first->waiting[LEAT_RANK_ONLINE]) == 1);
        pipeline_steps_settle();
        for (uint32_t n = 0; n < 5; n++) {
            EXPECT(n == 3 || is_ok(n));
        }
        EXPECT(pipeline_steps.pipeline.late_running == 0);
        pipeline_steps_stop();
    }
}

/* Two stages side by side, of 1 ms, and one of 10 ms behind one of these, `slow`. */
static struct pipeline_steps_options
beside(uint32_t slow)
{
    struct pipeline_steps_options options = chain(3);

    options.stages[1].after = 0;
    options.stages[2].after = 1 << slow;
    options.stages[1 - slow].output = true;
    options.stages[1].time_ns = MS;
    options.stages[2].time_ns = 10 * MS;
    return options;
}

static uint32_t
waiting_of(uint32_t stage, enum leat_rank rank)
{
    return leat_waiting_count(&pipeline_steps.apps[stage].waiting[rank]);
}

/* Where one branch is late, the other waits among the late, too: from the beginning, and where it waits already. */
static void
test_late_beside(void)
{
    for (uint32_t choice = 0; choice < 16; choice++) {
        const bool at_once = choice / 8 > 0;
        struct pipeline_steps_options options = beside(choice % 2);
        options.late = choice / 2 % 2 > 0 ? LEAT_PIPELINE_DROP_THRICE : LEAT_PIPELINE_SERVE;
        options.drop_late = choice / 4 % 2 > 0;
        pipeline_steps_start(&options);
        ask(0, &(struct pipeline_steps_ask){.latency_us = 1000000});
        pipeline_steps_round(1); /* one of its stages runs, the other waits */
        ask(1, &(struct pipeline_steps_ask){.latency_us = at_once ? 5000 : 80000});
        pipeline_steps_round(1);
        if (!at_once) {
            EXPECT(waiting_of(0, LEAT_RANK_LATE) + waiting_of(1, LEAT_RANK_LATE) == 0);
            EXPECT(waiting_of(0, LEAT_RANK_ONLINE) + waiting_of(1, LEAT_RANK_ONLINE) == 3);
            pipeline_steps_round(72 * MS); /* the quick one has time until 79, or 80 */
            EXPECT(waiting_of(1 - choice % 2, LEAT_RANK_LATE) == 1 || leat_dispatcher_sleep_ms(pipeline_steps.dispatcher) == 0);
            pipeline_steps_round(1);
        }
        EXPECT(waiting_of(0, LEAT_RANK_LATE) == 1 && waiting_of(1, LEAT_RANK_LATE) == 1);
        EXPECT(waiting_of(0, LEAT_RANK_ONLINE) + waiting_of(1, LEAT_RANK_ONLINE) == 1);
        EXPECT(pipeline_steps.dispatcher->pipelines.late_queries == 2);
        submit(2, 1);
        pipeline_steps_settle();
        const struct pipeline_steps_query *queries = pipeline_steps.queries;
        for (uint32_t n = 0; n < 3; n++) {
            EXPECT(is_ok(n) || (n == 1 && at_once && options.late == LEAT_PIPELINE_DROP_THRICE)); /* others take more than 15 ms */
            EXPECT(n == 1 || queries[n].stop_ns[0] <= queries[1].start_ns[0]);
            EXPECT(n == 1 || queries[n].stop_ns[1] <= queries[1].start_ns[1]);
        }
        pipeline_steps_stop();
    }
}

/* Likewise where one is only predicted to be late, for what others are to do; nor has the other a slot that the late one has not. */
static void
test_lost_beside(void)
{
    for (uint32_t choice = 0; choice < 4; choice++) {
        struct pipeline_steps_options options = beside(choice % 2);
        options.late = LEAT_PIPELINE_SERVE;
        options.drop_late = choice / 2 > 0;
        options.stage_slots = 8;
        pipeline_steps_start(&options);
        ask(0, &(struct pipeline_steps_ask){.items = 4, .latency_us = 1000000});
        pipeline_steps_round(1);
        ask(1, &(struct pipeline_steps_ask){.latency_us = 30000}); /* 11 ms, and the first has 40 to come */
        pipeline_steps_round(1);
        if (choice > 0) { /* the quick one came before the slow one, or that was refused first */
            pipeline_steps_round(1);
        }
        EXPECT(waiting_of(0, LEAT_RANK_LATE) == 1 && waiting_of(1, LEAT_RANK_LATE) == 1);
        for (uint32_t n = 2; n < 4; n++) {
            ask(n, &(struct pipeline_steps_ask){.latency_us = 5000});
            pipeline_steps_round(1);
            pipeline_steps_round(1);
            EXPECT(waiting_of(0, LEAT_RANK_LATE) == 2 && waiting_of(1, LEAT_RANK_LATE) == 2);
            EXPECT(waiting_of(0, LEAT_RANK_ONLINE) + waiting_of(1, LEAT_RANK_ONLINE) == 1);
        }
        pipeline_steps_settle();
        for (uint32_t n = 0; n < 4; n++) {
            EXPECT(is_ok(n));
        }
        pipeline_steps_stop();
    }
}

/* One becomes late as it comes to its application, and the other comes behind it in the same round. */
static void
test_follows_at_once(void)
{
    struct pipeline_steps_options options = beside(0);

    options.late = LEAT_PIPELINE_SERVE;
    pipeline_steps_start(&options);
    ask(0, &(struct pipeline_steps_ask){.latency_us = 1000000});
    for (uint32_t roots = 0; roots < 2; roots++) {
        pipeline_steps_round(1);
        EXPECT(pipeline_steps_run(0));
    }
    pipeline_steps_round(1); /* its last stage runs, for 10 ms */
    pipeline_steps.apps[0].profiles[0][0].knots[1].predicted *= 20; /* times spread: the slow one may take more than 15 */
    ask(1, &(struct pipeline_steps_ask){.latency_us = 25000});
    pipeline_steps_round(1);
    EXPECT(waiting_of(0, LEAT_RANK_LATE) == 1 && waiting_of(1, LEAT_RANK_LATE) == 1);
    pipeline_steps_settle();
    EXPECT(is_ok(0) && is_ok(1));
    pipeline_steps_stop();
}

/* One that waited among the late, by what was predicted, and can be in time after all, aims again. */
static void
test_late_in_time(void)
{
    struct pipeline_steps_options options = chain(2); /* of 1 and 2 ms */
    const struct pipelines *pipelines;
    uint32_t seen = 0;

    options.latency_ns = 10 * MS;
    options.late = LEAT_PIPELINE_SERVE;
    pipeline_steps_start(&options);
    pipelines = &pipeline_steps.dispatcher->pipelines;
    ask(0, &(struct pipeline_steps_ask){.items = 4, .latency_us = 1000000});
    pipeline_steps_round(1);
    submit(1, 1); /* the first has a stage of 8 ms to come, which goes before it */
    pipeline_steps_round(1);
    EXPECT(waiting_of(0, LEAT_RANK_LATE) == 1 && pipelines->late_queries == 1);
    pipeline_steps_cancel(0);
    EXPECT(pipeline_steps_run(0));
    pipeline_steps_round(1);
    EXPECT(pipeline_steps_run(0));
    pipeline_steps_round(1);
    for (uint32_t q = 0; q < options.stage_slots; q++) {
        const struct stage_query *query = &pipelines->queries[q];
        seen += query->run != NULL && query->stage == 1 && query->aims && !query->late;
    }
    EXPECT(seen == 1 && pipelines->late_queries == 0);
    pipeline_steps_settle();
    EXPECT(is_ok(1) && atomic_load(&pipeline_steps.pipeline.counters.late) == 0);
    pipeline_steps_stop();
}

/* However many late runs wait for room, one that is in time is looked at in the round in which it comes. */
static void
test_late_held(void)
{
    enum { LATE = 100 };
    struct pipeline_steps_options options = chain(2);

    options.late = LEAT_PIPELINE_SERVE;
    options.slots = PIPELINE_STEPS_SLOTS_MAX;
    options.runs_max = 2 * LATE;
    options.stage_slots = 256;
    options.waiting_max = 2;
    pipeline_steps_start(&options);
    ask(0, &(struct pipeline_steps_ask){.latency_us = 1000000});
    pipeline_steps_round(1);
    for (uint32_t n = 1; n <= LATE; n++) {
        ask(n, &(struct pipeline_steps_ask){.latency_us = 2000});
    }
    for (uint32_t round = 0; round < 4; round++) {
        pipeline_steps_round(1);
    }
    EXPECT(pipeline_steps.pipeline.late_running == LATE && waiting_of(0, LEAT_RANK_LATE) == 2);
    for (uint32_t n = LATE + 1; n < LATE + 3; n++) {
        ask(n, &(struct pipeline_steps_ask){.latency_us = 1000000});
        pipeline_steps_round(1);
        EXPECT(waiting_of(0, LEAT_RANK_ONLINE) == n - LATE);
    }
    pipeline_steps_settle();
    for (uint32_t n = 0; n < LATE + 3; n++) {
        EXPECT(is_ok(n));
    }
    pipeline_steps_stop();
}

/* What is late, and what is offline, holds half of the slots of stages' queries, and both three quarters. */
static void
test_late_leave_slots(void)
{
    struct pipeline_steps_options options = chain(2);

    options.late = LEAT_PIPELINE_SERVE;
    options.stage_slots = 8;
    for (uint32_t choice = 0; choice < 2; choice++) {
        const bool late_first = choice == 0;
        pipeline_steps_start(&options);
        const struct pipelines *pipelines = &pipeline_steps.dispatcher->pipelines;
        ask(0, &(struct pipeline_steps_ask){.latency_us = 1000000});
        pipeline_steps_round(1);
        for (uint32_t n = 1; n < 15; n++) {
            const bool late = (n < 8) == late_first;
            ask(n, &(struct pipeline_steps_ask){.latency_us = late ? 2000 : 0, .offline = !late});
            pipeline_steps_round(1);
        }
        EXPECT(pipelines->late_queries == (late_first ? 4 : 2) && pipelines->offline_queries == (late_first ? 2 : 4));
        ask(15, &(struct pipeline_steps_ask){.latency_us = 1000000});
        pipeline_steps_round(1);
        EXPECT(waiting_of(0, LEAT_RANK_ONLINE) == 1);
        pipeline_steps_settle();
        for (uint32_t n = 0; n < 16; n++) {
            EXPECT(is_ok(n));
        }
        EXPECT(pipelines->late_queries == 0 && pipelines->offline_queries == 0);
        pipeline_steps_stop();
    }
}

/* What comes again without its aim is load once, and turned away only if it finds no time then either. */
static void
test_aims_are_one_load(void)
{
    struct pipeline_steps_options options = chain(3);
    const struct leat_application *first = &pipeline_steps.apps[0];

    options.latency_ns = 24 * MS;
    options.drop_late = true;
    options.late = LEAT_PIPELINE_SERVE;
    pipeline_steps_start(&options);
    submit(0, 1);
    pipeline_steps_round(1);
    submit(1, 1); /* waits behind it */
    pipeline_steps_round(1);
    pipeline_steps_round(20 * MS);
    pipeline_steps_round(1);
    EXPECT(atomic_load(&first->counters.expired) == 1 && atomic_load(&first->counters.accepted) == 3);
    EXPECT(first->load.queries == 2 && first->load.items == 2);
    pipeline_steps_settle();
    EXPECT(is_ok(0) && is_ok(1));

    const uint64_t accepted = atomic_load(&first->counters.accepted);
    pipeline_steps.apps[0].jump_items = 1000;
    ask(0, &(struct pipeline_steps_ask){.items = 4, .latency_us = 1000000});
    ask(1, &(struct pipeline_steps_ask){.items = 4, .latency_us = 1000000});
    pipeline_steps_round(1);
    for (uint32_t n = 2; n < 6; n++) { /* each is to end in 24 ms, and there are 48 to do before */
        submit(n, 1);
    }
    pipeline_steps_round(1);
    pipeline_steps_round(1);
    EXPECT(atomic_load(&first->counters.rejected) == 4 && atomic_load(&first->counters.accepted) == accepted + 6 + 4);
    EXPECT(first->load.queries == 8 && first->load.items == 14 && first->turned_away_items == 0);
    EXPECT(pipeline_steps.jumps == 1);
    pipeline_steps_settle();
    for (uint32_t n = 0; n < 6; n++) {
        EXPECT(is_ok(n));
    }
    EXPECT(first->load.queries == 8 && first->turned_away_items == 0);
    EXPECT(pipeline_steps.apps[1].load.queries == 8 && pipeline_steps.apps[2].load.queries == 8);
    pipeline_steps_stop();
}

static void
test_offline(void)
{
    const struct pipeline_steps_options options = chain(3);

    pipeline_steps_start(&options);
    ask(0, &(struct pipeline_steps_ask){.offline = true});
    submit(1, 1);
    pipeline_steps_settle();
    const struct pipeline_steps_query *queries = pipeline_steps.queries;
    EXPECT(is_ok(0) && is_ok(1) && queries[0].start_ns[0] >= queries[1].stop_ns[2]);
    pipeline_steps_stop();
}

/* ---- Accuracies and costs --------------------------------------------------------------------- */

static void
test_accuracy(void)
{
    struct pipeline_steps_options options = chain(2);

    options.stages[0].accuracy_ppm = 950000;
    options.stages[1].accuracy_ppm = 800000;
    options.stages[1].slow_accuracy_ppm = 940000;
    pipeline_steps_start(&options);
    submit(0, 1);
    ask(1, &(struct pipeline_steps_ask){.accuracy_floor_ppm = 760001});
    ask(2, &(struct pipeline_steps_ask){.accuracy_floor_ppm = 893000});
    ask(3, &(struct pipeline_steps_ask){.accuracy_floor_ppm = 893001});
    pipeline_steps_settle();
    EXPECT(is_ok(0) && is_ok(1) && answer_of(0)->accuracy_ppm >= 760000 && answer_of(1)->accuracy_ppm == 893000);
    EXPECT(is_ok(2) && answer_of(2)->accuracy_ppm == 893000);
    EXPECT(ended(3, LEAT_OUTCOME_REJECTED, LEAT_REASON_ACCURACY, 0));
    pipeline_steps_stop();

    options.stages[0].accuracy_ppm = 0; /* unknown */
    pipeline_steps_start(&options);
    submit(0, 1);
    pipeline_steps_settle();
    EXPECT(is_ok(0) && answer_of(0)->accuracy_ppm == 0);
    pipeline_steps_stop();
}

/* A millisecond of a worker costs 278 of 10^-9. */
static void
test_costs(void)
{
    struct pipeline_steps_options options = chain(3);

    options.priced = true;
    pipeline_steps_start(&options);
    ask(0, &(struct pipeline_steps_ask){.cost_cap_nano = 278 * 6 * 11 / 10});
    ask(1, &(struct pipeline_steps_ask){.cost_cap_nano = 278 * 5});
    ask(2, &(struct pipeline_steps_ask){.cost_cap_nano = 1});
    pipeline_steps_settle();
    EXPECT(is_ok(0) && ended(1, LEAT_OUTCOME_REJECTED, LEAT_REASON_COST, 0));
    EXPECT(ended(2, LEAT_OUTCOME_REJECTED, LEAT_REASON_COST, 0));
    pipeline_steps_stop();

    options = repeating(); /* a third of the cap each, and what the first leaves goes to both others */
    options.priced = true;
    pipeline_steps_start(&options);
    pipeline_steps.found = 4;
    ask(0, &(struct pipeline_steps_ask){.cost_cap_nano = 278 * 10});
    pipeline_steps_settle();
    EXPECT(is_ok(0));
    pipeline_steps_stop();
    pipeline_steps_start(&options);
    pipeline_steps.found = 5;
    ask(0, &(struct pipeline_steps_ask){.cost_cap_nano = 278 * 10});
    pipeline_steps_settle();
    EXPECT(ended(0, LEAT_OUTCOME_REJECTED, LEAT_REASON_COST, 1));
    pipeline_steps_stop();

    options.priced = false;
    pipeline_steps_start(&options);
    ask(0, &(struct pipeline_steps_ask){.cost_cap_nano = 1000000});
    pipeline_steps_settle();
    EXPECT(ended(0, LEAT_OUTCOME_REJECTED, LEAT_REASON_PRICE, 0));
    pipeline_steps_stop();
}

/* ---- Ends ------------------------------------------------------------------------------------- */

/* A round, then what the worker has got, and so on. */
static void
move(uint32_t moves)
{
    for (uint32_t m = 0; m < moves; m++) {
        if (m % 2 == 0) {
            pipeline_steps_round(1);
        } else {
            EXPECT(pipeline_steps_run(0));
        }
    }
}

static void
test_cancel_at_any_moment(void)
{
    const struct pipeline_steps_options options = chain(3);

    for (uint32_t moves = 0; moves < 8; moves++) { /* before the fifth there is a stage that no worker has got */
        pipeline_steps_start(&options);
        submit(0, 1);
        move(moves);
        pipeline_steps_cancel(0);
        pipeline_steps_settle();
        EXPECT(moves < 5 ? ended(0, LEAT_OUTCOME_CANCELLED, LEAT_REASON_NONE, UINT16_MAX) : is_ok(0));
        EXPECT(pipeline_steps.batches == (moves < 5 ? (moves + 1) / 2 : 3));
        submit(0, 1); /* the slot is free again */
        pipeline_steps_settle();
        EXPECT(is_ok(0));
        pipeline_steps_stop();
    }
}

/* The last stages of a diamond: one runs, the other waits for the worker. */
static void
test_cancel_takes_back_what_waits(void)
{
    struct pipeline_steps_options options = chain(3);

    options.stages[2].after = 1;
    options.stages[1].output = true;
    pipeline_steps_start(&options);
    submit(0, 1);
    move(3);
    EXPECT(leat_waiting_total(pipeline_steps.apps[1].waiting) + leat_waiting_total(pipeline_steps.apps[2].waiting) == 1);
    pipeline_steps_cancel(0);
    pipeline_steps_round(1);
    EXPECT(leat_waiting_total(pipeline_steps.apps[1].waiting) + leat_waiting_total(pipeline_steps.apps[2].waiting) == 0);
    EXPECT(pipeline_steps.queries[0].under_way); /* until what runs has ended */
    pipeline_steps_settle();
    EXPECT(ended(0, LEAT_OUTCOME_CANCELLED, LEAT_REASON_NONE, UINT16_MAX) && pipeline_steps.batches == 2);
    pipeline_steps_stop();
}

static void
test_close_at_any_moment(void)
{
    const struct pipeline_steps_options options = chain(3);

    for (uint32_t moves = 0; moves < 7; moves++) {
        pipeline_steps_start(&options);
        submit(0, 1);
        move(moves);
        const uint32_t batches = pipeline_steps.batches;
        pipeline_steps_close(0);
        pipeline_steps_settle();
        EXPECT(pipeline_steps.batches == batches &&
               pipeline_steps.pipeline.running == 0); /* nothing ran for who has left */
        EXPECT(pipeline_steps_is_open(0));
        submit(0, 1);
        pipeline_steps_settle();
        EXPECT(is_ok(0));
        pipeline_steps_stop();
    }
}

static void
test_failures(void)
{
    struct pipeline_steps_options options = chain(4);

    options.stages[2].after = 1;
    options.stages[3].after = 6;
    pipeline_steps_start(&options);
    for (uint32_t s = 0; s < 4; s++) {
        for (uint32_t n = 0; n < QUERIES; n++) { /* the others of its batches go on */
            pipeline_steps.queries[n].fails_at = n == s ? s : NONE;
            pipeline_steps_submit(n, &(struct pipeline_steps_ask){.items = 1});
        }
        pipeline_steps_settle();
        for (uint32_t n = 0; n < QUERIES; n++) {
            EXPECT(n == s ? ended(n, LEAT_OUTCOME_FAILED, LEAT_REASON_PAYLOAD, s) : is_ok(n));
        }
        EXPECT(pipeline_steps.queries[s].ran[3] == 0);
    }
    submit(0, 1);
    pipeline_steps.device_fails = true;
    pipeline_steps_settle();
    EXPECT(ended(0, LEAT_OUTCOME_FAILED, LEAT_REASON_DEVICE, 0));
    pipeline_steps_stop();
}

/* ---- Tables that are full --------------------------------------------------------------------- */

static void
test_full_tables(void)
{
    struct pipeline_steps_options options = repeating();
    uint32_t refused = 0;

    options.stage_slots = options.queue_capacity = 2; /* delay */
    pipeline_steps_start(&options);
    for (uint32_t n = 0; n < QUERIES; n++) {
        submit(n, 4);
    }
    pipeline_steps_settle();
    for (uint32_t n = 0; n < QUERIES; n++) {
        EXPECT(is_ok(n));
    }
    pipeline_steps_stop();

    options = chain(2);
    options.waiting_max = 1; /* refuses */
    pipeline_steps_start(&options);
    for (uint32_t n = 0; n < QUERIES; n++) {
        submit(n, 1);
    }
    pipeline_steps_settle();
    for (uint32_t n = 0; n < QUERIES; n++) {
        refused += ended(n, LEAT_OUTCOME_REJECTED, LEAT_REASON_QUEUE_FULL, 0);
        EXPECT(is_ok(n) || answer_of(n)->reason == LEAT_REASON_QUEUE_FULL);
    }
    EXPECT(refused > 0 && refused < QUERIES);
    pipeline_steps_stop();

    options = chain(2);
    options.runs_max = 3;
    pipeline_steps_start(&options);
    for (uint32_t n = 0; n < QUERIES; n++) {
        submit(n, 1);
    }
    pipeline_steps_round(1);
    EXPECT(pipeline_steps.pipeline.running == 3);
    pipeline_steps_settle();
    for (uint32_t n = 0; n < QUERIES; n++) {
        EXPECT(n < 3 ? is_ok(n) : ended(n, LEAT_OUTCOME_REJECTED, LEAT_REASON_QUEUE_FULL, UINT16_MAX));
    }
    pipeline_steps_stop();
}

/* A stage with more queries than its application's list holds waits for room there, a few at a time. */
static void
test_wide_stage(void)
{
    struct pipeline_steps_options options = repeating();

    options.each_items = 2;
    options.waiting_max = 4;
    for (uint32_t offline = 0; offline < 2; offline++) {
        pipeline_steps_start(&options);
        pipeline_steps.found = 8;
        pipeline_steps.apps[1].jump_items = 1000; /* more than there is room for: what has none yet is a jump, where it is load */
        ask(0, &(struct pipeline_steps_ask){.items = 4, .offline = offline > 0});
        pipeline_steps_settle();
        EXPECT(is_ok(0) && pipeline_steps.queries[0].ran[1] == 32);
        EXPECT(pipeline_steps.jumps == (offline == 0));
        pipeline_steps_stop();
    }
    options.latency_ns = 20 * MS; /* then it expires there */
    pipeline_steps_start(&options);
    pipeline_steps.found = 8;
    submit(0, 4);
    pipeline_steps_settle();
    EXPECT(ended(0, LEAT_OUTCOME_EXPIRED, LEAT_REASON_NONE, 1));
    pipeline_steps_stop();
}

/* Until the query was answered. */
static void
settle_one(uint32_t number)
{
    while (pipeline_steps.queries[number].under_way) {
        pipeline_steps_round(1);
        (void)pipeline_steps_run(0);
    }
}

/* A run that has to wait holds up no other: not where a list is full, and not where offline runs could take all slots. */
static void
test_held_up(void)
{
    struct pipeline_steps_options options = repeating();

    options.each_items = 2;
    options.waiting_max = 4;
    pipeline_steps_start(&options);
    pipeline_steps.found = 8;
    submit(0, 4);
    move(3);
    pipeline_steps.found = 0;
    submit(1, 1);
    settle_one(1);
    EXPECT(is_ok(1) && pipeline_steps.queries[0].under_way);
    pipeline_steps_stop();
    EXPECT(is_ok(0));

    options.waiting_max = 64;
    options.stage_slots = 8;
    options.latency_ns = 40 * MS;
    pipeline_steps_start(&options);
    pipeline_steps.found = 8;
    for (uint32_t n = 0; n < 8; n++) {
        ask(n, &(struct pipeline_steps_ask){.items = 4, .offline = true});
    }
    move(21); /* the worker has some of them */
    pipeline_steps.found = 1;
    submit(8, 1);
    pipeline_steps_round(1);
    EXPECT(leat_waiting_count(&pipeline_steps.apps[0].waiting[LEAT_RANK_ONLINE]) == 1); /* in a slot that was left */
    settle_one(8);
    EXPECT(is_ok(8));
    for (uint32_t n = 0; n < 8; n++) {
        EXPECT(pipeline_steps.queries[n].under_way);
    }
    pipeline_steps_stop();
    for (uint32_t n = 0; n < 8; n++) {
        EXPECT(is_ok(n));
    }
}

/*
 * Offline runs, however many are asked for, are half of all at the most. An online one that is refused for want of a run is
 * load, which an offline one is not, nor one that would be refused anyway.
 */
static void
test_offline_leaves_runs(void)
{
    struct pipeline_steps_options options = chain(2);
    const struct leat_application *first = &pipeline_steps.apps[0];

    options.runs_max = 5;
    pipeline_steps_start(&options);
    pipeline_steps.apps[0].jump_items = 1000; /* as whoever scales asks */
    for (uint32_t n = 0; n < 8; n++) {
        ask(n, &(struct pipeline_steps_ask){.offline = true});
    }
    pipeline_steps_round(1);
    EXPECT(pipeline_steps.pipeline.running == 2 && pipeline_steps.pipeline.offline_running == 2);
    for (uint32_t n = 2; n < 8; n++) {
        EXPECT(ended(n, LEAT_OUTCOME_REJECTED, LEAT_REASON_QUEUE_FULL, UINT16_MAX));
    }
    for (uint32_t n = 8; n < 11; n++) {
        submit(n, 1);
    }
    pipeline_steps_round(1);
    pipeline_steps_round(1);
    EXPECT(pipeline_steps.pipeline.running == 5 && first->load.queries == 3 && pipeline_steps.jumps == 0);
    ask(11, &(struct pipeline_steps_ask){.accuracy_floor_ppm = 990000}); /* these would be refused anyway */
    ask(12, &(struct pipeline_steps_ask){.cost_cap_nano = 1000});
    pipeline_steps_round(1);
    EXPECT(first->load.queries == 3 && pipeline_steps.jumps == 0);
    submit(13, 2);
    submit(14, 1);
    pipeline_steps_round(1);
    EXPECT(first->load.queries == 5 && first->load.items == 6 && first->turned_away_items == 3);
    EXPECT(pipeline_steps.jumps == 1);
    for (uint32_t n = 11; n < 15; n++) {
        EXPECT(ended(n, LEAT_OUTCOME_REJECTED, LEAT_REASON_QUEUE_FULL, UINT16_MAX));
    }
    pipeline_steps_settle();
    for (uint32_t n = 0; n < 11; n++) {
        EXPECT(n >= 2 && n < 8 ? !is_ok(n) : is_ok(n));
    }
    EXPECT(pipeline_steps.apps[1].load.queries == 3 && pipeline_steps.apps[1].turned_away_items == 0);
    ask(0, &(struct pipeline_steps_ask){.offline = true});
    pipeline_steps_settle();
    EXPECT(is_ok(0) && pipeline_steps.pipeline.offline_running == 0);
    pipeline_steps_stop();

    options.runs_max = 1; /* which is for others */
    pipeline_steps_start(&options);
    ask(0, &(struct pipeline_steps_ask){.offline = true});
    submit(1, 1);
    pipeline_steps_settle();
    EXPECT(ended(0, LEAT_OUTCOME_REJECTED, LEAT_REASON_QUEUE_FULL, UINT16_MAX) && is_ok(1));
    pipeline_steps_stop();
}

/*
 * Of two runs that there is room for, one waits for the worker: who is refused meanwhile is late, unless it would have been so on an idle
 * one. Where both run, however late others are refused, nothing but room is short.
 */
static void
test_refused_runs_are_late(uint32_t worker_count, uint32_t worker_depth, uint32_t waiting, bool waits_late)
{
    struct pipeline_steps_options options = chain(2);
    const struct leat_application *apps = pipeline_steps.apps;

    options.runs_max = 2;
    options.worker_count = worker_count;
    options.worker_depth = worker_depth;
    options.latency_ns = 50 * MS;
    options.late = waits_late ? LEAT_PIPELINE_SERVE : LEAT_PIPELINE_DROP;
    pipeline_steps_start(&options);
    for (uint32_t n = 0; n < 2; n++) {
        ask(n, &(struct pipeline_steps_ask){.latency_us = n == 1 && waits_late ? 1000 : 0});
        pipeline_steps_round(1);
        pipeline_steps_round(1);
    }
    const enum leat_rank rank = waits_late ? LEAT_RANK_LATE : LEAT_RANK_ONLINE;
    EXPECT(pipeline_steps.pipeline.running == 2 && leat_waiting_count(&apps[0].waiting[rank]) == waiting);
    ask(2, &(struct pipeline_steps_ask){.latency_us = 2900}); /* both stages take 3 ms */
    pipeline_steps_round(1);
    EXPECT(apps[0].load.queries == 3 && apps[0].late_queries == 0);
    ask(3, &(struct pipeline_steps_ask){.latency_us = 3100});
    submit(4, 1);
    pipeline_steps_round(1);
    for (uint32_t n = 2; n < 5; n++) {
        EXPECT(ended(n, LEAT_OUTCOME_REJECTED, LEAT_REASON_QUEUE_FULL, UINT16_MAX));
    }
    EXPECT(apps[0].load.queries == 5 && apps[0].late_queries == (worker_count == 1 ? 2 : 0) && apps[1].late_queries == 0);
    pipeline_steps_settle();
    EXPECT(is_ok(0) && is_ok(1));
    pipeline_steps_stop();
}

/* ---- Pipelines come and go -------------------------------------------------------------------- */

static void
test_removal(void)
{
    const struct pipeline_steps_options options = chain(3);

    pipeline_steps_start(&options);
    submit(0, 1);
    move(3);
    pipeline_steps_command(
        &(struct leat_command){.kind = LEAT_COMMAND_REMOVE_PIPELINE, .pipeline = &pipeline_steps.pipeline});
    EXPECT(!pipeline_steps.gone);
    submit(1, 1);
    pipeline_steps_round(1);
    EXPECT(ended(1, LEAT_OUTCOME_REJECTED, LEAT_REASON_TARGET, UINT16_MAX));
    pipeline_steps_settle();
    EXPECT(is_ok(0) && pipeline_steps.gone);
    submit(0, 1);
    pipeline_steps_settle();
    EXPECT(ended(0, LEAT_OUTCOME_REJECTED, LEAT_REASON_TARGET, UINT16_MAX));
    submit(0, 1); /* its client has heard of the one that the next command adds */
    pipeline_steps_add_again();
    pipeline_steps_settle();
    EXPECT(is_ok(0));
    pipeline_steps_stop();
}

static void
test_drain(void)
{
    struct pipeline_steps_options options = chain(3);

    pipeline_steps_start(&options);
    submit(0, 1);
    move(2);
    pipeline_steps_command(&(struct leat_command){.kind = LEAT_COMMAND_DRAIN});
    submit(1, 1);
    pipeline_steps_round(1);
    EXPECT(ended(1, LEAT_OUTCOME_REJECTED, LEAT_REASON_DRAINING, UINT16_MAX) && !pipeline_steps.drained);
    pipeline_steps_settle();
    EXPECT(is_ok(0) && pipeline_steps.drained);
    pipeline_steps_stop();

    options.queue_capacity = 2; /* runs that wait for room there, while nothing waits anywhere else */
    pipeline_steps_start(&options);
    for (uint32_t n = 0; n < 6; n++) {
        ask(n, &(struct pipeline_steps_ask){.accuracy_floor_ppm = 990000});
    }
    pipeline_steps_command(&(struct leat_command){.kind = LEAT_COMMAND_DRAIN});
    EXPECT(pipeline_steps.queries[5].under_way && !pipeline_steps.drained);
    pipeline_steps_settle();
    EXPECT(ended(5, LEAT_OUTCOME_REJECTED, LEAT_REASON_ACCURACY, 0) && pipeline_steps.drained);
    pipeline_steps_stop();
}

int
main(void)
{
    leat_test_init();
    test_chain();
    test_diamond();
    test_repeating();
    test_expected_items();
    test_found_items();
    test_deadlines();
    test_expires_waiting();
    test_gives_up_waiting();
    test_aims();
    test_late_go_last();
    test_late_without_room();
    test_late_have_room();
    test_late_expire();
    test_late_ask_nothing(10000, true); /* they come as late */
    test_late_ask_nothing(14000, true); /* they are refused, since another's second stage goes before them, and come again */
    test_late_ask_nothing(14000, false);
    test_lost();
    test_lost_by_spread();
    test_late_leave_runs();
    test_late_beside();
    test_lost_beside();
    test_follows_at_once();
    test_late_in_time();
    test_late_held();
    test_late_leave_slots();
    test_aims_are_one_load();
    test_offline();
    test_accuracy();
    test_costs();
    test_cancel_at_any_moment();
    test_cancel_takes_back_what_waits();
    test_close_at_any_moment();
    test_failures();
    test_full_tables();
    test_wide_stage();
    test_held_up();
    test_offline_leaves_runs();
    test_refused_runs_are_late(1, 1, 1, false);
    test_refused_runs_are_late(1, 1, 1, true);
    test_refused_runs_are_late(1, 2, 0, false); /* it waits behind the other's batch */
    test_refused_runs_are_late(2, 1, 0, false);
    test_removal();
    test_drain();
    return 0;
}
