/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The dispatcher tells instances what happens to them and evaluates all of them in time; selector infaas avoids a
 *          variant where it has become slower than its profile, and only there, until it is not any more.
 * Method   The dispatcher driven round by round, with workers that are as slow as the test says.
 */
#include <string.h>

#include "tests/leat_test.h"
#include "tests/runtime/steps.h"

enum { WORKERS = 2, VARIANTS = 2 };

static const uint16_t classes[LEAT_SCHED_WORKERS_MAX];
static uint32_t served[WORKERS][VARIANTS];

static enum leat_instance_state
state_of(uint32_t w, uint32_t v)
{
    const struct leat_instances *instances = &steps.app.instances;
    const uint8_t state = leat_instances_of(instances, w)[v].state;

    EXPECT(atomic_load_explicit(&instances->states[w * instances->variant_count + v], memory_order_relaxed) == state);
    return (enum leat_instance_state)state;
}

static void
expect_counts(uint32_t variant, uint32_t active, uint32_t overloaded, uint32_t interfered)
{
    uint32_t counts[LEAT_INSTANCE_STATES];

    leat_instances_count(&steps.app.instances, variant, counts);
    EXPECT(counts[LEAT_INSTANCE_INACTIVE] == 0 && counts[LEAT_INSTANCE_LOADING] == 0);
    EXPECT(counts[LEAT_INSTANCE_ACTIVE] == active && counts[LEAT_INSTANCE_OVERLOADED] == overloaded);
    EXPECT(counts[LEAT_INSTANCE_INTERFERED] == interfered);
}

/* Every 20 ms a query for each worker, for so many seconds; what each answered by which variant goes to `served`. */
static void
serve_lightly(uint32_t seconds)
{
    struct leat_wire_response response;

    memset(served, 0, sizeof(served));
    for (uint32_t i = 0; i < 50 * seconds; i++) {
        const uint64_t begin_ns = steps.now_ns;
        for (uint32_t q = 0; q < WORKERS; q++) {
            steps_submit(q, 1, 0);
            steps_round(0); /* else they would be one batch */
        }
        for (uint32_t w = 0; w < WORKERS; w++) {
            EXPECT(steps_run(w)); /* one after the other: the clock is one for all */
            steps_round(0);
        }
        for (uint32_t q = 0; q < WORKERS; q++) {
            EXPECT(steps_answer(q, &response) && response.outcome == LEAT_OUTCOME_OK);
            served[response.worker][response.variant]++;
        }
        EXPECT(steps.now_ns < begin_ns + 20000000);
        steps_round(begin_ns + 20000000 - steps.now_ns);
        leat_dispatcher_check(steps.dispatcher);
    }
}

static void
test_slow_instance_is_avoided(void)
{
    const struct steps_options options = {
        .worker_count = WORKERS,
        .classes = classes,
        .worker_depth = 1,
        .sessions = 1,
        .router = &leat_router_fcfs,
        .selector = &leat_selector_infaas,
        .variant_count = VARIANTS, /* the first takes 1 ms and costs 2, the second takes 2 ms and costs 1 */
        .latency_ns = {1000000},
    };
    steps_start(&options);
    serve_lightly(5);
    EXPECT(served[0][0] == 0 && served[1][0] == 0 && served[0][1] == 250 && served[1][1] == 250);
    expect_counts(0, 2, 0, 0);
    expect_counts(1, 2, 0, 0);

    steps.slow[0][1] = 5; /* 10 ms */
    serve_lightly(3);
    EXPECT(state_of(0, 1) == LEAT_INSTANCE_INTERFERED && state_of(0, 0) == LEAT_INSTANCE_ACTIVE);
    expect_counts(0, 2, 0, 0);
    expect_counts(1, 1, 0, 1);
    serve_lightly(1);
    EXPECT(served[0][0] == 50 && served[0][1] == 0 && served[1][1] == 50);
    serve_lightly(100); /* though it is tried now and then, and the profile has learned that it is slow */
    EXPECT(served[0][1] > 0 && served[0][1] < 1000 && served[0][0] > 4000 && served[1][1] == 5000);

    steps.slow[0][1] = 1;
    serve_lightly(2 * LEAT_INSTANCE_HOLD_MAX);
    EXPECT(state_of(0, 1) == LEAT_INSTANCE_ACTIVE);
    serve_lightly(10);
    EXPECT(served[0][1] == 500 && served[1][1] == 500);
    expect_counts(1, 2, 0, 0);
    steps_stop();
}

/* Where both are slow there is nothing to avoid: the faster one serves, in time. */
static void
test_no_way_out(void)
{
    const struct steps_options options = {
        .worker_count = WORKERS,
        .classes = classes,
        .worker_depth = 1,
        .sessions = 1,
        .router = &leat_router_fcfs,
        .selector = &leat_selector_infaas,
        .variant_count = VARIANTS,
        .latency_ns = {1000000},
    };
    steps_start(&options);
    for (uint32_t w = 0; w < WORKERS; w++) {
        steps.slow[w][0] = 6;
        steps.slow[w][1] = 4;
    }
    serve_lightly(10);
    for (uint32_t w = 0; w < WORKERS; w++) {
        EXPECT(served[w][0] + served[w][1] == 500 && served[w][0] > 0 && served[w][1] > 0);
    }
    steps_stop();
}

/* So many queries wait all the time; those that are answered are asked again. */
static void
serve_heavily(uint32_t queries, uint32_t seconds)
{
    const uint64_t end_ns = steps.now_ns + seconds * LEAT_INSTANCE_INTERVAL_NS;
    struct leat_wire_response response;

    for (uint32_t q = 0; q < queries; q++) {
        steps_submit(q, 1, 0);
    }
    for (bool any = true; any;) {
        steps_round(0);
        any = steps_run(0);
        for (uint32_t q = 0; q < queries && steps.now_ns < end_ns; q++) {
            if (steps_answer(q, &response)) {
                steps_submit(q, 1, 0);
            }
        }
        steps_round(0);
    }
    for (uint32_t q = 0; q < queries; q++) {
        (void)steps_answer(q, &response);
    }
}

static void
test_saturated_instance_is_overloaded(void)
{
    const struct steps_options options = {
        .worker_count = 1,
        .classes = classes,
        .worker_depth = 2,
        .sessions = 1,
        .router = &leat_router_fcfs,
        .selector = &leat_selector_single,
        .latency_ns = {3000000},
    };
    steps_start(&options);
    serve_heavily(1, 5);
    EXPECT(state_of(0, 0) == LEAT_INSTANCE_ACTIVE); /* busy, but nothing waits */
    serve_heavily(20, 5);
    expect_counts(0, 0, 1, 0);
    EXPECT(leat_instance_peak_qps(&leat_instances_of(&steps.app.instances, 0)[0]) == 333);
    for (int i = 0; i < 40; i++) {
        steps_round(LEAT_INSTANCE_INTERVAL_NS / 10); /* also while nothing comes at all */
    }
    expect_counts(0, 1, 0, 0);
    steps_stop();
}

/* More instances than one round evaluates: all of them have their turn. */
static void
test_many(void)
{
    const struct steps_options options = {
        .worker_count = LEAT_SCHED_WORKERS_MAX,
        .classes = classes,
        .worker_depth = 1,
        .sessions = 1,
        .router = &leat_router_fcfs,
        .selector = &leat_selector_infaas,
        .variant_count = STEPS_VARIANTS_MAX,
        .latency_ns = {1000000},
    };
    struct leat_instances *instances = &steps.app.instances;
    const struct leat_instance_batch slow = {
        .run_ns = 9000000, .profiled_ns = 1000000, .response_ns = 9000000, .items = 1};
    struct leat_instance_worker shared = {0};
    uint32_t rounds = 0;
    bool all = false;

    steps_start(&options);
    for (uint32_t i = 0; i < 8 * LEAT_SCHED_WORKERS_MAX * STEPS_VARIANTS_MAX; i++) {
        struct leat_instance *instance = &instances->all[i / 8];
        leat_instance_begin(instance);
        leat_instance_end(instance, &shared, steps.now_ns, &slow);
    }
    steps_round(LEAT_INSTANCE_INTERVAL_NS);
    for (; !all && rounds < 10; rounds++) {
        uint32_t counts[LEAT_INSTANCE_STATES];
        all = true;
        for (uint32_t v = 0; v < STEPS_VARIANTS_MAX; v++) {
            leat_instances_count(instances, v, counts);
            EXPECT(counts[LEAT_INSTANCE_ACTIVE] + counts[LEAT_INSTANCE_INTERFERED] == LEAT_SCHED_WORKERS_MAX);
            all = all && counts[LEAT_INSTANCE_ACTIVE] == 0;
        }
        steps_round(1);
    }
    EXPECT(all && rounds > 1); /* a part in each */
    steps_stop();
}

static void
test_pass_on(void)
{
    struct leat_instances from, to;
    uint32_t counts[LEAT_INSTANCE_STATES];

    EXPECT(leat_instances_init(&from, 3, 2) == LEAT_OK && leat_instances_init(&to, 3, 4) == LEAT_OK);
    for (uint32_t v = 0; v < 4; v++) {
        leat_instances_count(&to, v, counts);
        EXPECT(counts[LEAT_INSTANCE_ACTIVE] == 3);
    }
    leat_instances_of(&from, 1)[1].state = LEAT_INSTANCE_OVERLOADED;
    leat_instances_of(&from, 1)[1].item_ns = 7;
    leat_instances_pass_on(&from, 1, &to, 2);
    for (uint32_t v = 0; v < 4; v++) {
        leat_instances_count(&to, v, counts);
        EXPECT(counts[LEAT_INSTANCE_OVERLOADED] == (v == 2) && counts[LEAT_INSTANCE_ACTIVE] == 3u - (v == 2));
    }
    EXPECT(leat_instances_of(&to, 1)[2].item_ns == 7 && leat_instances_of(&to, 0)[2].item_ns == 0);
    leat_instances_fini(&from);
    leat_instances_fini(&to);
}

int
main(void)
{
    leat_test_init();
    test_slow_instance_is_avoided();
    test_no_way_out();
    test_saturated_instance_is_overloaded();
    test_many();
    test_pass_on();
    return 0;
}
