/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The dispatcher predicts by a worker's new class as soon as it is told, learns by the class that a batch ran in, and
 *          says that a resize is over when no batch of the former shape runs any more and not before; a cap on costs holds for
 *          the classes that workers have then; nothing is lost, whatever the order.
 * Method   Steps on a clock that stands still. That a batch had begun before the worker saw its new shape is made by telling it the
 *          former one again for that batch.
 */
#include "runtime/dispatcher_private.h"
#include "tests/leat_test.h"
#include "tests/runtime/steps.h"

enum { WORKERS = 2, ROUNDS = 2000, BURST = 6 };

static const uint16_t classes[WORKERS] = {0, 1};
static const struct leat_team_shape slow = {.cores = 1, .worker_class = 0}, fast = {.cores = 4, .worker_class = 1};

static void
start(const struct leat_router *router, const struct leat_selector *selector)
{
    const struct steps_options options = {.worker_count = WORKERS,
                                          .classes = classes,
                                          .worker_depth = 2,
                                          .sessions = 1,
                                          .router = router,
                                          .selector = selector,
                                          .drop_late = true,
                                          .per_item_ns = {3000000, 1000000}};
    steps_start(&options);
}

static void
tell(struct leat_resize *resize, uint16_t worker, struct leat_team_shape shape)
{
    *resize = (struct leat_resize){.worker = worker, .shape = shape};
    leat_dispatcher_command(steps.dispatcher, &(struct leat_command){.kind = LEAT_COMMAND_RESIZE, .resize = resize});
    steps_round(1);
    leat_dispatcher_check(steps.dispatcher);
}

/* NULL: none. */
static struct leat_resize *
ended(void)
{
    struct leat_event event;

    if (!leat_dispatcher_poll_event(steps.dispatcher, &event)) {
        return NULL;
    }
    EXPECT(event.kind == LEAT_EVENT_RESIZED);
    return event.resize;
}

static enum leat_outcome
outcome_of(uint32_t number)
{
    struct leat_wire_response response;

    EXPECT(steps_answer(number, &response));
    return (enum leat_outcome)response.outcome;
}

/* Two queries that only a fast worker has done in time: one is given up while the other worker is slow. */
static void
test_predictions_follow(void)
{
    struct leat_resize resize;

    start(&leat_router_laxity, &leat_selector_single);
    steps_submit(0, 2, 2500);
    steps_submit(1, 2, 2500);
    steps_round(1);
    EXPECT(steps_run(1) && !steps_run(0));
    steps_round(1000000);
    EXPECT(outcome_of(0) == LEAT_OUTCOME_OK && outcome_of(1) != LEAT_OUTCOME_OK);
    tell(&resize, 0, fast);
    EXPECT(ended() == &resize && resize.idle && ended() == NULL); /* it had nothing to do */
    steps_submit(2, 2, 2500);
    steps_submit(3, 2, 2500);
    steps_round(1);
    EXPECT(steps_run(1) && steps_run(0));
    steps_round(1);
    EXPECT(outcome_of(2) == LEAT_OUTCOME_OK && outcome_of(3) == LEAT_OUTCOME_OK);
    steps_stop();
}

/* Two batches of the slow worker are under way, and so many of them had begun before it saw that it is fast. */
static void
test_end(uint32_t begun)
{
    const struct leat_profile *profiles;
    struct leat_resize resize;
    uint64_t effect_ns = 0;

    start(&leat_router_fcfs, &leat_selector_single);
    profiles = steps.app.profiles[0];
    const uint32_t known[2] = {profiles[0].number, profiles[1].number};
    for (uint32_t q = 0; q < 4; q++) {
        steps_submit(q, 1, 0);
    }
    steps_round(1);
    EXPECT(steps.dispatcher->sched_workers[0].outstanding == 2);
    EXPECT(steps.dispatcher->sched_workers[0].free_at_ns == steps.now_ns + 6000000);
    tell(&resize, 0, fast);
    EXPECT(ended() == NULL);
    EXPECT(steps.dispatcher->sched_workers[0].free_at_ns == steps.now_ns - 1 + 4000000); /* the first goes on as it began */
    for (uint32_t b = 0; b < 2; b++) {
        leat_worker_reshape(steps.workers[0], b < begun ? slow : fast);
        effect_ns = b == begun ? steps.now_ns : effect_ns;
        EXPECT(steps_run(0));
        leat_worker_reshape(steps.workers[0], fast);
        steps_round(1);
        effect_ns = begun == 2 ? steps.now_ns : effect_ns;
        leat_dispatcher_check(steps.dispatcher);
        EXPECT((ended() != NULL) == (b == begun || (b == 1 && begun == 2)));
    }
    EXPECT(resize.effect_ns == effect_ns && !resize.idle);
    EXPECT(profiles[0].number == known[0] + begun && profiles[1].number == known[1] + 2 - begun);
    while (steps_run(1)) {
        steps_round(1);
    }
    for (uint32_t q = 0; q < 4; q++) {
        EXPECT(outcome_of(q) == LEAT_OUTCOME_OK);
    }
    steps_stop();
}

/* A query that is too dear for the fast class waits for the slow worker, and is refused once that is fast. */
static void
test_caps_follow(void)
{
    struct leat_resize resize;

    start(&leat_router_fcfs, &leat_selector_single);
    steps.app.price_micro[0] = 3600000;  /* 3 in 10^6 for an item */
    steps.app.price_micro[1] = 18000000; /* 5 */
    for (uint32_t q = 0; q < 4; q++) {
        steps_submit_capped(q, 1, 0, 4000);
    }
    steps_round(1);
    EXPECT(steps.dispatcher->sched_workers[0].outstanding == 2 && steps.dispatcher->sched_workers[1].outstanding == 0);
    EXPECT(leat_waiting_total(steps.app.waiting) == 2);
    tell(&resize, 0, fast);
    steps_round(1);
    EXPECT(outcome_of(2) == LEAT_OUTCOME_REJECTED && outcome_of(3) == LEAT_OUTCOME_REJECTED);
    EXPECT(steps_run(0) && steps_run(0));
    steps_round(1);
    EXPECT(outcome_of(0) == LEAT_OUTCOME_OK && outcome_of(1) == LEAT_OUTCOME_OK && ended() == &resize);
    steps_stop();
}

static void
test_random(const struct leat_router *router, uint64_t *random)
{
    struct leat_resize resizes[WORKERS];
    bool under_way[WORKERS] = {false};
    uint32_t asked = 0, done = 0;

    start(router, &leat_selector_fixed);
    steps.app.price_micro[0] = 3600000;
    steps.app.price_micro[1] = 18000000;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct leat_wire_response response;
        for (uint64_t more = leat_test_random(random) % BURST; more > 0 && asked < STEPS_SLOTS; more--) {
            const uint32_t cap = leat_test_random(random) % 2 == 0 ? 0 : (uint32_t)(leat_test_random(random) % 20) * 1000;
            steps_submit_capped(asked++, 1 + (uint32_t)(leat_test_random(random) % 3),
                                leat_test_random(random) % 2 == 0 ? 0 : 20000, cap);
        }
        const uint16_t worker = (uint16_t)(leat_test_random(random) % WORKERS);
        if (!under_way[worker] && leat_test_random(random) % 2 == 0) {
            under_way[worker] = true;
            tell(&resizes[worker], worker, steps.dispatcher->records[worker].class == 0 ? fast : slow);
        }
        (void)steps_run((uint32_t)(leat_test_random(random) % WORKERS));
        steps_round(1000001);
        leat_dispatcher_check(steps.dispatcher);
        for (struct leat_resize *resize; (resize = ended()) != NULL;) {
            EXPECT(under_way[resize->worker]);
            under_way[resize->worker] = false;
        }
        while (done < asked && steps_answer(done, &response)) { /* about in order: the rest is found at the end */
            done++;
        }
        asked = done == asked ? done = 0 : asked; /* slots anew */
    }
    while (steps_run(0) || steps_run(1) || leat_waiting_total(steps.app.waiting) > 0) {
        steps_round(1000001);
        leat_dispatcher_check(steps.dispatcher);
    }
    steps_round(1);
    while (ended() != NULL) {
    }
    for (; done < asked; done++) {
        struct leat_wire_response response;
        EXPECT(steps_answer(done, &response));
    }
    steps_stop();
}

int
main(void)
{
    uint64_t random;

    leat_test_init();
    random = leat_test_seed;
    test_predictions_follow();
    for (uint32_t begun = 0; begun <= 2; begun++) {
        test_end(begun);
    }
    test_caps_follow();
    for (size_t r = 0; leat_router_at(r) != NULL; r++) {
        test_random(leat_router_at(r), &random);
    }
    return 0;
}
