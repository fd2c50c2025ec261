/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The dispatcher tells instances what happens to them and evaluates all of them in time; selector infaas avoids a
 *          variant where it has become slower than its profile, and only there, until it is not any more; and a worker that
 *          has no other, as long as others have room.
 *          A worker that is kept from beginning is known as such.
 * Method   The dispatcher driven round by round, with workers that are as slow as the test says.
 */
#include <stdio.h>
#include <string.h>

#include "sched/lag.h"
#include "tests/leat_test.h"
#include "tests/runtime/steps.h"

enum { WORKERS = 2, VARIANTS = 2, SIMILAR = 4 };

static const uint16_t classes[LEAT_SCHED_WORKERS_MAX];
static uint32_t served[SIMILAR][VARIANTS];
static uint64_t random_state;

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

/* A query for each worker, so often and so long after each other; what each answered by which variant goes to `served`. */
static void
serve_apart(uint32_t times, uint64_t apart_ns)
{
    struct leat_wire_response response;

    memset(served, 0, sizeof(served));
    for (uint32_t i = 0; i < times; i++) {
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
        EXPECT(steps.now_ns < begin_ns + apart_ns);
        steps_round(begin_ns + apart_ns - steps.now_ns);
        leat_dispatcher_check(steps.dispatcher);
    }
}

static void
serve_lightly(uint32_t seconds)
{
    serve_apart(50 * seconds, 20000000);
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

/*
 * Where payload decides how long a batch takes, and all take five times as long as those that were measured, nobody is
 * disturbed; who takes five times as long as the others is.
 */
static void
test_by_payload(bool by_payload)
{
    const struct steps_options options = {
        .worker_count = WORKERS,
        .classes = classes,
        .worker_depth = 1,
        .sessions = 1,
        .router = &leat_router_fcfs,
        .selector = &leat_selector_single,
        .variant_count = 1,
        .latency_ns = {500000},
    };
    steps_start(&options);
    steps.app.instances.by_payload = by_payload;
    steps.slow[0][0] = steps.slow[1][0] = 5;
    for (uint32_t i = 0; i < 20 * LEAT_INSTANCE_BATCHES; i++) { /* as few as make verdicts */
        serve_apart(1, LEAT_INSTANCE_INTERVAL_NS / LEAT_INSTANCE_BATCHES);
        if (by_payload) {
            expect_counts(0, WORKERS, 0, 0);
        }
    }
    serve_lightly(10);
    if (!by_payload) {
        expect_counts(0, 0, 0, WORKERS);
    }
    steps.slow[1][0] = 25;
    serve_lightly(2);
    EXPECT(state_of(1, 0) == LEAT_INSTANCE_INTERFERED);
    EXPECT(state_of(0, 0) == (by_payload ? LEAT_INSTANCE_ACTIVE : LEAT_INSTANCE_INTERFERED));
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
    struct leat_event event;

    steps_start(&options);
    steps.app.jump_items = UINT64_MAX; /* whoever scales it wants to hear of a jump, and as many never wait */
    serve_heavily(1, 5);
    EXPECT(state_of(0, 0) == LEAT_INSTANCE_ACTIVE); /* busy, but nothing waits */
    EXPECT(!leat_dispatcher_poll_event(steps.dispatcher, &event));
    serve_heavily(20, 5);
    expect_counts(0, 0, 1, 0);
    EXPECT(leat_dispatcher_poll_event(steps.dispatcher, &event) && event.kind == LEAT_EVENT_JUMP);
    EXPECT(!leat_dispatcher_poll_event(steps.dispatcher, &event)); /* once, until it is asked for anew */
    EXPECT(leat_instance_peak_qps(&leat_instances_of(&steps.app.instances, 0)[0]) == 333);
    for (int i = 0; i < 40; i++) {
        steps_round(LEAT_INSTANCE_INTERVAL_NS / 10); /* also while nothing comes at all */
    }
    expect_counts(0, 1, 0, 0);
    steps_stop();
}

/* So many online queries, and OFFLINE others, wait all the time, or are run by one worker each. */
static void
serve_both(uint32_t queries, uint32_t seconds)
{
    enum { OFFLINE = 4 };
    const uint64_t end_ns = steps.now_ns + seconds * LEAT_INSTANCE_INTERVAL_NS;
    struct leat_wire_response response;

    for (uint32_t q = 0; q < queries; q++) {
        steps_submit(q, 1, 0);
    }
    for (uint32_t q = 0; q < OFFLINE; q++) {
        steps_submit_offline(STEPS_SLOTS + q, 1);
    }
    for (bool any = true; any;) {
        steps_round(0);
        any = steps_run(0);
        any = steps_run(1) || any;
        for (uint32_t q = 0; q < queries && steps.now_ns < end_ns; q++) {
            if (steps_answer(q, &response)) {
                EXPECT(response.worker == 0);
                steps_submit(q, 1, 0);
            }
        }
        for (uint32_t q = 0; q < OFFLINE && steps.now_ns < end_ns; q++) {
            if (steps_answer(STEPS_SLOTS + q, &response)) {
                steps_submit_offline(STEPS_SLOTS + q, 1);
            }
        }
        EXPECT(state_of(1, 0) == LEAT_INSTANCE_ACTIVE);
        steps_round(0);
    }
    for (uint32_t q = 0; q < queries; q++) {
        (void)steps_answer(q, &response);
    }
    for (uint32_t q = 0; q < OFFLINE; q++) {
        (void)steps_answer(STEPS_SLOTS + q, &response);
    }
}

/* A worker that runs what is offline alone is not asked for what waits for others. */
static void
test_offline_instance_is_not_overloaded(void)
{
    const struct steps_options options = {
        .worker_count = WORKERS,
        .classes = classes,
        .worker_depth = 2,
        .sessions = 2,
        .router = &leat_router_fcfs,
        .selector = &leat_selector_single,
        .latency_ns = {3000000},
    };
    static struct leat_dedication dedication = {.owners = {0, LEAT_WORKER_FOR_ALL}};
    struct leat_event event;

    steps_start(&options);
    leat_dispatcher_command(steps.dispatcher, &(struct leat_command){.kind = LEAT_COMMAND_DEDICATE, .dedication = &dedication});
    steps_round(0);
    EXPECT(leat_dispatcher_poll_event(steps.dispatcher, &event) && event.kind == LEAT_EVENT_DEDICATED);
    serve_both(500, 5);
    expect_counts(0, 1, 1, 0);
    steps_stop();
}

/* ---- One variant on several workers ------------------------------------------------------------- */

#define RUN_NS UINT64_C(1000000)

static struct {
    uint64_t next_ns;          /* the next query comes */
    uint64_t ends_ns[SIMILAR]; /* of what the worker runs; 0: nothing */
    uint32_t asked, answered;  /* queries, ever */
    uint64_t response_ns;      /* of those answered, summed */
    uint32_t most;             /* batches that a worker held */
} stream;

static uint64_t
run_ns(uint32_t w)
{
    return RUN_NS * (steps.slow[w][0] > 0 ? steps.slow[w][0] : 1);
}

/* The worker, whose batch ends now, has run it meanwhile: there is one clock, which running moves on. */
static void
end_batch(uint32_t w)
{
    steps.now_ns = stream.ends_ns[w] - run_ns(w);
    steps.tables.clock.base_ns = steps.now_ns;
    EXPECT(steps_run(w) && steps.now_ns == stream.ends_ns[w]);
    stream.ends_ns[w] = 0;
}

/* What the dispatcher has handed over begins. */
static void
begin_batches(void)
{
    for (uint32_t w = 0; w < SIMILAR; w++) {
        const uint32_t batches = steps.workers[w]->dispatcher.batches;
        if (stream.ends_ns[w] == 0 && batches > 0) {
            stream.ends_ns[w] = steps.now_ns + run_ns(w);
        }
        stream.most = batches > stream.most ? batches : stream.most;
    }
}

/* For so many seconds queries come at random that as many workers as `load` would be busy with; then all are answered. */
static void
serve_stream(double load, uint32_t seconds)
{
    const uint64_t end_ns = steps.now_ns + seconds * LEAT_INSTANCE_INTERVAL_NS;
    struct leat_wire_response response;

    memset(served, 0, sizeof(served));
    stream.response_ns = 0;
    stream.next_ns = steps.now_ns;
    while (stream.next_ns < end_ns || stream.answered < stream.asked) {
        uint32_t first = SIMILAR; /* to end; SIMILAR: the next query comes before */
        uint64_t at_ns = stream.next_ns < end_ns ? stream.next_ns : UINT64_MAX;
        for (uint32_t w = 0; w < SIMILAR; w++) {
            if (stream.ends_ns[w] > 0 && stream.ends_ns[w] < at_ns) {
                at_ns = stream.ends_ns[w];
                first = w;
            }
        }
        if (first < SIMILAR) {
            end_batch(first);
            steps_round(0);
        } else {
            steps_round(at_ns - steps.now_ns);
            steps_submit(stream.asked++ % STEPS_SLOTS, 1, 0);
            steps_round(0);
            stream.next_ns += leat_test_random(&random_state) % (uint64_t)(2 * RUN_NS / load);
        }
        begin_batches();
        while (stream.answered < stream.asked && steps_answer(stream.answered % STEPS_SLOTS, &response)) {
            EXPECT(response.outcome == LEAT_OUTCOME_OK);
            served[response.worker][0]++;
            stream.response_ns += response.total_ns;
            stream.answered++;
        }
        EXPECT(stream.asked - stream.answered < STEPS_SLOTS);
    }
}

static void
start_similar(const struct leat_router *router, const struct leat_selector *selector)
{
    const struct steps_options options = {
        .worker_count = SIMILAR,
        .classes = classes,
        .worker_depth = 2,
        .sessions = 1,
        .router = router,
        .selector = selector,
        .latency_ns = {RUN_NS},
    };
    steps_start(&options);
    steps.app.sched_variants[0].items_max = 1;
    memset(&stream, 0, sizeof(stream));
}

static uint32_t
served_by_all(void)
{
    uint32_t all = 0;
    for (uint32_t w = 0; w < SIMILAR; w++) {
        all += served[w][0];
    }
    return all;
}

/* The others have room for all that comes: it is shown as interfered, left alone but for a try now and then, and comes back. */
static void
test_slow_worker_is_left_alone(const struct leat_router *router)
{
    const struct leat_selector *const selectors[] = {&leat_selector_infaas, &leat_selector_single};
    uint64_t response_ns[2];

    for (size_t s = 0; s < 2; s++) {
        start_similar(router, selectors[s]);
        serve_stream(1.6, 5);
        EXPECT(served[0][0] > served_by_all() / 8);
        expect_counts(0, SIMILAR, 0, 0);

        steps.slow[0][0] = 6;
        serve_stream(1.6, 3);
        EXPECT(state_of(0, 0) == LEAT_INSTANCE_INTERFERED);
        expect_counts(0, SIMILAR - 1, 0, 1);
        serve_stream(1.6, 100);
        response_ns[s] = stream.response_ns / served_by_all();
        if (s == 0) {
            EXPECT(served[0][0] > 0 && served[0][0] < served_by_all() / 50);
            EXPECT(steps.app.instances.out_count == (state_of(0, 0) != LEAT_INSTANCE_ACTIVE));
        }

        steps.slow[0][0] = 1;
        serve_stream(1.6, 2 * LEAT_INSTANCE_HOLD_MAX);
        expect_counts(0, SIMILAR, 0, 0);
        EXPECT(steps.app.instances.out_count == 0);
        serve_stream(1.6, 5);
        EXPECT(served[0][0] > served_by_all() / 8);
        steps_stop();
    }
    EXPECT(response_ns[0] < 2 * RUN_NS && response_ns[0] < response_ns[1] * 2 / 3); /* selector single is blind */
}

/* The others cannot do it alone, or are no better: what is interfered serves too, and nothing waits for ever. */
static void
test_slow_workers_serve(const struct leat_router *router)
{
    start_similar(router, &leat_selector_infaas);
    steps.slow[0][0] = 3;
    serve_stream(3.1, 30);
    EXPECT(served[0][0] > served_by_all() / 50 && served[0][0] < served_by_all() / 8 && stream.most == 2);
    steps_stop();

    start_similar(router, &leat_selector_infaas);
    for (uint32_t w = 0; w < SIMILAR; w++) {
        steps.slow[w][0] = 3;
    }
    atomic_store_explicit(&steps.app.worker_count, 1, memory_order_relaxed); /* its share, which bounds nothing */
    serve_stream(1.1, 30);
    for (uint32_t w = 0; w < SIMILAR; w++) {
        EXPECT(served[w][0] > served_by_all() / 12);
    }
    steps_stop();
}

/* Nothing goes behind a batch where the selector wants to be asked while a worker is idle: the slow one is, and serves. */
static void
test_slow_worker_is_idle(void)
{
    struct leat_selector waiting = leat_selector_infaas;

    waiting.when_idle = true;
    start_similar(&leat_router_fcfs, &waiting);
    steps.slow[0][0] = 3;
    serve_stream(2.5, 30);
    EXPECT(state_of(0, 0) == LEAT_INSTANCE_INTERFERED);
    EXPECT(served[0][0] > served_by_all() / 50 && served[0][0] < served_by_all() / 8 && stream.most == 1);
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
    leat_instances_of(&to, 0)[2].state = LEAT_INSTANCE_INTERFERED;
    to.out_count = 1;
    leat_instances_pass_on(&from, 1, &to, 2);
    EXPECT(to.out_count == 1);
    for (uint32_t v = 0; v < 4; v++) {
        leat_instances_count(&to, v, counts);
        EXPECT(counts[LEAT_INSTANCE_OVERLOADED] == (v == 2) && counts[LEAT_INSTANCE_ACTIVE] == 3u - (v == 2));
    }
    EXPECT(leat_instances_of(&to, 1)[2].item_ns == 7 && leat_instances_of(&to, 0)[2].item_ns == 0);
    leat_instances_fini(&from);
    leat_instances_fini(&to);
}

static bool
is_behind(uint32_t w)
{
    return atomic_load_explicit(&steps.workers[w]->behind, memory_order_relaxed);
}

/* To a query for each worker. */
static void
expect_answers(void)
{
    struct leat_wire_response response;

    for (uint32_t q = 0; q < WORKERS; q++) {
        EXPECT(steps_answer(q, &response) && response.outcome == LEAT_OUTCOME_OK);
    }
}

/* So many times a query for each worker; the last one begins so much later than it could. */
static void
serve_late(uint32_t times, uint64_t late_ns)
{
    for (uint32_t i = 0; i < times; i++) {
        for (uint32_t q = 0; q < WORKERS; q++) {
            steps_submit(q, 1, 0);
            steps_round(0);
        }
        for (uint32_t w = 0; w < WORKERS; w++) {
            steps_round(w == WORKERS - 1 ? late_ns : 0);
            EXPECT(steps_run(w));
            steps_round(0);
        }
        expect_answers();
    }
}

/* An offline query for each worker, begun at once. */
static void
serve_offline(void)
{
    for (uint32_t q = 0; q < WORKERS; q++) {
        steps_submit_offline(q, 1);
        steps_round(0);
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        EXPECT(steps_run(w));
    }
    steps_round(0);
    expect_answers();
}

/* A worker that begins late is behind, though its batches take no longer than they should, and no other is. */
static void
test_late_worker_is_behind(void)
{
    const struct steps_options options = {
        .worker_count = WORKERS,
        .classes = classes,
        .worker_depth = 1,
        .sessions = 1,
        .router = &leat_router_fcfs,
        .selector = &leat_selector_fixed,
        .latency_ns = {10000},
    };
    const uint32_t last = WORKERS - 1;

    steps_start(&options);
    serve_late(LEAT_LAG_LEARNED, 0);
    steps_round(LEAT_INSTANCE_INTERVAL_NS); /* then it is known what is usual */
    EXPECT(!is_behind(0) && !is_behind(last));
    serve_late(2 * LEAT_LAG_BATCHES, 5000000);
    EXPECT(!is_behind(0) && is_behind(last) && state_of(last, 0) == LEAT_INSTANCE_ACTIVE);
    serve_late(2 * LEAT_LAG_BATCHES, 0);
    EXPECT(!is_behind(0) && !is_behind(last));
    serve_late(2 * LEAT_LAG_BATCHES, 5000000);
    EXPECT(is_behind(last));
    for (uint32_t i = 0; i < 2 * LEAT_LAG_BATCHES; i++) { /* what is offline has time, and says nothing */
        serve_offline();
        serve_late(1, 5000000);
    }
    EXPECT(!is_behind(0) && is_behind(last));
    for (uint32_t i = 0; i <= LEAT_LAG_QUIET; i++) { /* nothing says so any more */
        steps_round(LEAT_INSTANCE_INTERVAL_NS);
    }
    EXPECT(!is_behind(last));
    steps_stop();
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    test_slow_instance_is_avoided();
    test_no_way_out();
    test_by_payload(false);
    test_by_payload(true);
    test_slow_worker_is_left_alone(&leat_router_fcfs);
    test_slow_worker_is_left_alone(&leat_router_shortest_queue);
    test_slow_workers_serve(&leat_router_fcfs);
    test_slow_workers_serve(&leat_router_shortest_queue);
    test_slow_worker_is_idle();
    test_saturated_instance_is_overloaded();
    test_offline_instance_is_not_overloaded();
    test_many();
    test_pass_on();
    test_late_worker_is_behind();
    return 0;
}
