/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Workers serve whom they are for: nothing is handed to a worker that was not its application's at that moment or, of
 *          what is offline, for all and not held back; nor to one that a query of an earlier rank waits for; whatever the router, while masks,
 *          sizes, workers held back and parked ones change under load. What was handed over before still runs where it was; nothing waits for ever. Applications that have no worker in common do not hold up one another, by rank or by
 *          what their routers want, and each is told of its own workers only. Who has nothing to do sleeps.
 * Method   Steps on a clock that stands still, against a model of who serves whom that shares no code with the dispatcher.
 */
#include "runtime/dispatcher_private.h"

#include <string.h>

#include "tests/leat_test.h"
#include "tests/runtime/steps.h"

enum { WORKERS = 4, APPLICATIONS = 3, DEPTH = 2, ROUNDS = 400, BURST = 6, PATIENCE = 100000 };
enum { SESSIONS = 2 * APPLICATIONS }; /* online and offline queries of each */

#define OFFLINE UINT32_MAX
#define ALL     LEAT_WORKER_FOR_ALL
#define NOBODY  LEAT_WORKER_FOR_NOBODY

static const uint16_t classes[WORKERS] = {0, 0, 1, 1};
static struct leat_dedication dedication;
static struct leat_resize resizes[WORKERS];

static void
start_with(const struct leat_router *router, const struct leat_router *others, const struct leat_selector *selector, bool drop_late)
{
    const struct steps_options options = {.worker_count = WORKERS,
                                          .classes = classes,
                                          .worker_depth = DEPTH,
                                          .sessions = SESSIONS,
                                          .router = router,
                                          .selector = selector,
                                          .other_count = APPLICATIONS - 1,
                                          .other_routers = {others, others},
                                          .drop_late = drop_late,
                                          .per_item_ns = {3000000, 1000000}};
    steps_start(&options);
}

/* ---- Commands, and their events, which come in order ------------------------------------------------ */

static void
command(const struct leat_command *order)
{
    leat_dispatcher_command(steps.dispatcher, order);
    steps_round(1);
    leat_dispatcher_check(steps.dispatcher);
}

static void
dedicate(uint16_t first, uint16_t second, uint16_t third, uint16_t fourth)
{
    const uint16_t owners[WORKERS] = {first, second, third, fourth};
    struct leat_event event;

    memcpy(dedication.owners, owners, sizeof(owners));
    command(&(struct leat_command){.kind = LEAT_COMMAND_DEDICATE, .dedication = &dedication});
    EXPECT(leat_dispatcher_poll_event(steps.dispatcher, &event));
    EXPECT(event.kind == LEAT_EVENT_DEDICATED && event.dedication == &dedication);
}

static void
hold_back(uint64_t workers)
{
    command(&(struct leat_command){.kind = LEAT_COMMAND_HOLD_BACK, .held_back = {{workers}}});
}

static void
resize(uint16_t worker, uint16_t cores)
{
    resizes[worker] = (struct leat_resize){.worker = worker, .shape = {.cores = cores, .worker_class = classes[worker]}};
    command(&(struct leat_command){.kind = LEAT_COMMAND_RESIZE, .resize = &resizes[worker]});
}

static bool
is_resized(uint16_t worker)
{
    struct leat_event event;

    if (!leat_dispatcher_poll_event(steps.dispatcher, &event)) {
        return false;
    }
    EXPECT(event.kind == LEAT_EVENT_RESIZED && event.resize == &resizes[worker]);
    return true;
}

/* ---- What is where ---------------------------------------------------------------------------------- */

static uint32_t
batches_of(uint32_t worker)
{
    return steps.dispatcher->sched_workers[worker].outstanding;
}

static bool
has_batches(uint32_t first, uint32_t second, uint32_t third, uint32_t fourth)
{
    return batches_of(0) == first && batches_of(1) == second && batches_of(2) == third && batches_of(3) == fourth;
}

static void
run_all(void)
{
    for (uint32_t left = 1, rounds = 0; left > 0; rounds++) {
        EXPECT(rounds < PATIENCE);
        left = 0;
        for (uint32_t w = 0; w < WORKERS; w++) {
            left += steps_run(w);
        }
        steps_round(1000001); /* a router looks again */
        leat_dispatcher_check(steps.dispatcher);
        left += leat_waiting_total(steps.app.waiting);
        for (uint32_t a = 0; a < APPLICATIONS - 1; a++) {
            left += leat_waiting_total(steps.others[a].waiting);
        }
        for (uint32_t w = 0; w < WORKERS; w++) {
            left += batches_of(w);
        }
    }
}

static void
expect_answers(uint32_t from, uint32_t to, enum leat_outcome outcome)
{
    struct leat_wire_response response;

    for (uint32_t number = from; number < to; number++) {
        EXPECT(steps_answer(number, &response) && response.outcome == outcome);
    }
}

/* ---- Examples --------------------------------------------------------------------------------------- */

/* Own workers are one's own alone, others are everybody else's, and for nobody is for nobody. */
static void
test_own(void)
{
    start_with(&leat_router_fcfs, NULL, &leat_selector_single, false);
    dedicate(0, ALL, ALL, NOBODY);
    for (uint32_t q = 0; q < 3; q++) {
        steps_submit_to(0, q, 1, 0);
    }
    steps_round(1);
    EXPECT(has_batches(2, 0, 0, 0)); /* the third waits, though others are idle */
    for (uint32_t q = 3; q < 10; q++) {
        steps_submit_to(q % 2 == 0 ? 1 : 2, q, 1, 0);
    }
    steps_round(1);
    EXPECT(has_batches(2, 2, 2, 0));
    run_all();
    expect_answers(0, 10, LEAT_OUTCOME_OK);
    dedicate(0, 0, 0, 0); /* nobody is left for the others, so they share */
    steps_submit_to(1, 10, 1, 0);
    steps_round(1);
    EXPECT(batches_of(0) + batches_of(1) + batches_of(2) + batches_of(3) == 1);
    dedicate(NOBODY, NOBODY, 2, NOBODY);
    for (uint32_t q = 11; q < 14; q++) {
        steps_submit_to(q % 3, q, 1, 0);
    }
    steps_round(1);
    EXPECT(batches_of(2) >= 2 && batches_of(3) <= 1);
    run_all();
    expect_answers(10, 14, LEAT_OUTCOME_OK);
    steps_stop();
}

/* What a worker has been given it runs, whoever it is for by then. */
static void
test_handed_over(void)
{
    struct leat_wire_response response;

    start_with(&leat_router_fcfs, NULL, &leat_selector_single, false);
    dedicate(1, NOBODY, NOBODY, NOBODY);
    steps_submit_to(1, 0, 1, 0);
    steps_submit_to(1, 1, 1, 0);
    steps_round(1);
    EXPECT(has_batches(2, 0, 0, 0));
    dedicate(0, 1, NOBODY, NOBODY);
    steps_submit_to(1, 2, 1, 0);
    steps_submit_to(0, 3, 1, 0);
    steps_round(1);
    EXPECT(has_batches(2, 1, 0, 0));
    EXPECT(steps_run(0) && steps_run(0) && !steps_run(0));
    steps_round(1);
    EXPECT(has_batches(1, 1, 0, 0));
    expect_answers(0, 2, LEAT_OUTCOME_OK);
    run_all();
    EXPECT(steps_answer(2, &response) && response.worker == 1);
    EXPECT(steps_answer(3, &response) && response.worker == 0);
    steps_stop();
}

/* An application that goes leaves its workers to all, and one that is not there gets none. */
static void
test_gone(void)
{
    struct leat_event event;

    start_with(&leat_router_fcfs, NULL, &leat_selector_single, false);
    dedicate(2, ALL, 7, 1);
    EXPECT(dedication.owners[0] == 2 && dedication.owners[2] == ALL && dedication.owners[3] == 1);
    command(&(struct leat_command){.kind = LEAT_COMMAND_REMOVE_APPLICATION, .application = &steps.others[1]});
    EXPECT(leat_dispatcher_poll_event(steps.dispatcher, &event) && event.kind == LEAT_EVENT_APPLICATION_GONE);
    EXPECT(steps.dispatcher->records[0].owner == ALL && steps.app.serving[LEAT_RANK_ONLINE].count == 3 &&
           steps.others[0].serving[LEAT_RANK_ONLINE].count == 1);
    leat_dispatcher_check(steps.dispatcher);
    dedicate(2, 2, 2, 1);
    EXPECT(steps.app.serving[LEAT_RANK_ONLINE].count == 3);
    steps_stop();
}

/* Who is let in goes by the application's own workers, not by idle ones of others. */
static void
test_admission(void)
{
    start_with(&leat_router_fcfs, NULL, &leat_selector_single, true);
    dedicate(ALL, 0, ALL, ALL);
    steps_submit_to(0, 0, 1, 4000);
    steps_round(1);
    steps_submit_to(0, 1, 1, 4000);
    steps_submit_to(1, 2, 1, 4000);
    steps_round(1);
    expect_answers(1, 2, LEAT_OUTCOME_REJECTED);
    EXPECT(batches_of(1) == 1);
    run_all();
    expect_answers(0, 1, LEAT_OUTCOME_OK);
    expect_answers(2, 3, LEAT_OUTCOME_OK);
    steps_stop();
}

/* Offline queries of one do not wait for online ones of another that has other workers, but for the workers in common. */
static void
test_ranks(void)
{
    start_with(&leat_router_fcfs, NULL, &leat_selector_single, false);
    dedicate(0, 1, 1, NOBODY);
    for (uint32_t q = 0; q < 4; q++) {
        steps_submit_to(0, q, 1, 0);
    }
    steps_submit_to(1, 4, 1, OFFLINE);
    steps_submit_to(2, 5, 1, OFFLINE); /* which shares all of them */
    steps_submit_to(2, 6, 1, OFFLINE);
    steps_round(1);
    EXPECT(leat_waiting_total(steps.app.waiting) == 2);
    EXPECT(has_batches(2, 1, 1, 0) && leat_waiting_total(steps.others[1].waiting) == 1);
    run_all();
    expect_answers(0, 7, LEAT_OUTCOME_OK);
    steps_stop();
}

/*
 * What is offline goes to workers for all, too, and only there while online queries wait for the application's own, each of
 * which waits for one offline batch at the most.
 */
static void
test_offline_beside(void)
{
    start_with(&leat_router_fcfs, NULL, &leat_selector_single, false);
    dedicate(0, ALL, ALL, NOBODY);
    for (uint32_t q = 0; q < 4; q++) {
        steps_submit_to(0, q, 1, OFFLINE);
    }
    steps_round(1);
    EXPECT(has_batches(1, 1, 1, 0) && leat_waiting_total(steps.app.waiting) == 1);
    run_all();
    for (uint32_t q = 4; q < 7; q++) {
        steps_submit_to(0, q, 1, 0);
    }
    for (uint32_t q = 7; q < 10; q++) {
        steps_submit_to(0, q, 1, OFFLINE);
    }
    steps_round(1);
    EXPECT(has_batches(2, 1, 1, 0) && leat_waiting_count(&steps.app.waiting[LEAT_RANK_ONLINE]) == 1);
    run_all();
    for (uint32_t q = 10; q < 15; q++) {
        steps_submit_to(1, q, 1, 0); /* one of these waits for workers for all */
    }
    steps_submit_to(0, 15, 1, OFFLINE);
    steps_submit_to(0, 16, 1, OFFLINE);
    steps_round(1);
    EXPECT(has_batches(1, 2, 2, 0) && leat_waiting_total(steps.app.waiting) == 1);
    run_all();
    for (uint32_t q = 17; q < 25; q++) {
        steps_submit_to(0, q, 1, OFFLINE);
    }
    steps_round(1);
    steps_submit_to(0, 25, 1, 0);
    steps_round(1);
    EXPECT(has_batches(2, 1, 1, 0) && steps_run(0) && steps_run(0));
    expect_answers(25, 26, LEAT_OUTCOME_OK);
    run_all();
    expect_answers(0, 25, LEAT_OUTCOME_OK);
    steps_stop();
}

/*
 * What is offline goes to no worker that it is held back from, though others are busy, nobody looks again until one is not, and
 * what runs there ends; what is online goes there all the same. Who would have none left, or whose router deals, has all.
 */
static void
test_held_back(void)
{
    static const struct leat_router *const routers[] = {&leat_router_fcfs, &leat_router_laxity, &leat_router_dealt};

    for (size_t r = 0; r < LEAT_COUNT_OF(routers); r++) {
        const bool deals = routers[r]->deals;
        start_with(routers[r], NULL, &leat_selector_single, false);
        dedicate(0, ALL, ALL, ALL);
        hold_back(1 << 1 | 1 << 2);
        for (uint32_t q = 0; q < 4; q++) {
            steps_submit_to(1, q, 1, OFFLINE);
        }
        steps_round(1);
        EXPECT(deals ? has_batches(0, 1, 1, 1) : has_batches(0, 0, 0, 1) && leat_waiting_total(steps.others[0].waiting) == 3);
        EXPECT(deals || leat_dispatcher_sleep_ms(steps.dispatcher) > 10); /* not only until a router looks again */
        hold_back(1 << 1);
        steps_round(1);
        EXPECT(deals || has_batches(0, 0, 1, 1));
        hold_back(0xf);
        steps_round(1);
        EXPECT(has_batches(0, 1, 1, 1));
        run_all();
        expect_answers(0, 4, LEAT_OUTCOME_OK);
        hold_back(1 << 1 | 1 << 2);
        for (uint32_t q = 4; q < 7; q++) {
            steps_submit_to(1, q, 1, 0);
        }
        steps_round(1);
        EXPECT(has_batches(0, 1, 1, 1));
        run_all();
        expect_answers(4, 7, LEAT_OUTCOME_OK);
        hold_back(1 << 0); /* which is the first one's own, who has those for all beside it */
        for (uint32_t q = 7; q < 11; q++) {
            steps_submit_to(0, q, 1, OFFLINE);
        }
        steps_round(1);
        EXPECT(has_batches(deals, 1, 1, 1));
        run_all();
        expect_answers(7, 11, LEAT_OUTCOME_OK);
        steps_stop();
    }
}

/* A query of two items is left for later. */
static struct leat_selection
hold_pairs(void *state, const struct leat_select_input *input)
{
    return input->pending[0].items == 2 ? (struct leat_selection){.hold = true} : leat_selector_single.select(state, input);
}

/* An idle worker that an online query waits for is no offline one's, until that query has gone without it, though nothing else changes. */
static void
test_held(void)
{
    struct leat_selector selector = leat_selector_single;
    struct leat_wire_response response;

    selector.select = hold_pairs;
    start_with(&leat_router_fcfs, NULL, &selector, true);
    dedicate(0, ALL, NOBODY, NOBODY);
    steps_submit_to(1, 0, 2, 20000);
    steps_submit_to(0, 1, 1, OFFLINE);
    steps_submit_to(0, 2, 1, OFFLINE);
    steps_round(1);
    EXPECT(has_batches(1, 0, 0, 0) && leat_waiting_count(&steps.app.waiting[LEAT_RANK_OFFLINE]) == 1);
    steps_round(10000000);
    EXPECT(has_batches(1, 0, 0, 0));
    steps_round(10000000);
    EXPECT(has_batches(1, 1, 0, 0) && steps_answer(0, &response) && response.outcome == LEAT_OUTCOME_EXPIRED);
    run_all();
    expect_answers(1, 3, LEAT_OUTCOME_OK);
    steps_stop();
}

/* Late queries wait for online ones, while workers for all have nothing to do: nobody has to look again before one ends. */
static void
test_sleep(void)
{
    start_with(&leat_router_fcfs, NULL, &leat_selector_single, false);
    dedicate(0, ALL, NOBODY, NOBODY);
    for (uint32_t q = 0; q < 3; q++) {
        steps_submit_to(0, q, 1, 0);
    }
    steps_submit_to(0, 3, 1, 1000);
    steps_round(1);
    EXPECT(!steps_round(1) && leat_waiting_count(&steps.app.waiting[LEAT_RANK_ONLINE]) == 1);
    EXPECT(leat_waiting_count(&steps.app.waiting[LEAT_RANK_LATE]) == 1 && has_batches(2, 0, 0, 0));
    EXPECT(leat_dispatcher_sleep_ms(steps.dispatcher) > 0);
    run_all();
    expect_answers(0, 4, LEAT_OUTCOME_OK);
    steps_stop();
}

/* One whose router waits for idle workers keeps another's from queues of their own no longer. */
static void
test_idle_wanted(void)
{
    start_with(&leat_router_laxity, &leat_router_round_robin, &leat_selector_single, false);
    dedicate(0, 1, 1, NOBODY);
    for (uint32_t q = 0; q < 4; q++) {
        steps_submit_to(0, q, 1, 0);
    }
    for (uint32_t q = 4; q < 8; q++) {
        steps_submit_to(1, q, 1, 0);
    }
    steps_round(1);
    EXPECT(has_batches(1, 2, 2, 0));
    run_all();
    expect_answers(0, 8, LEAT_OUTCOME_OK);
    steps_stop();
}

static uint32_t told_workers, told_idle, told_class;

static struct leat_selection
note_and_select(void *state, const struct leat_select_input *input)
{
    told_workers = input->worker_count;
    told_idle = input->idle_count;
    told_class = input->worker->worker_class;
    return leat_selector_single.select(state, input);
}

/* Selectors count the application's own workers, or its share of those that are for all. */
static void
test_counts(void)
{
    struct leat_selector selector = leat_selector_single;

    selector.select = note_and_select;
    start_with(&leat_router_fcfs, NULL, &selector, false);
    dedicate(0, ALL, ALL, ALL);
    steps_submit_to(1, 0, 1, 0);
    steps_round(1);
    EXPECT(told_workers == 3 && told_idle == 3);
    atomic_store_explicit(&steps.others[0].worker_count, 2, memory_order_relaxed);
    steps_submit_to(1, 1, 1, 0);
    steps_round(1);
    EXPECT(told_workers == 2 && told_idle == 1);
    atomic_store_explicit(&steps.others[0].worker_count, WORKERS, memory_order_relaxed);
    steps_submit_to(1, 2, 1, 0);
    steps_round(1);
    EXPECT(told_workers == 3 && told_idle == 1);
    steps_submit_to(0, 3, 1, 0);
    steps_round(1);
    EXPECT(told_workers == 1 && told_idle == 1 && told_class == 0);
    run_all();
    atomic_store_explicit(&steps.others[0].worker_count, 1, memory_order_relaxed); /* which was for all */
    dedicate(0, 1, 1, 1);
    steps_submit_to(1, 4, 1, 0);
    steps_round(1);
    EXPECT(told_workers == 3 && told_idle == 3);
    run_all();
    expect_answers(0, 5, LEAT_OUTCOME_OK);
    steps_stop();
}

/* A parked worker ends what it has, in the shape that it had, and says so then; awake it serves again. */
static void
test_parked(void)
{
    start_with(&leat_router_fcfs, NULL, &leat_selector_single, false);
    dedicate(0, NOBODY, NOBODY, NOBODY);
    steps_submit_to(0, 0, 1, 0);
    steps_submit_to(0, 1, 1, 0);
    steps_round(1);
    dedicate(NOBODY, 0, NOBODY, NOBODY);
    resize(0, 0);
    EXPECT(!is_resized(0) && has_batches(2, 0, 0, 0));
    EXPECT(steps_run(0));
    steps_round(1);
    EXPECT(!is_resized(0));
    EXPECT(steps_run(0));
    steps_round(1);
    EXPECT(is_resized(0) && !resizes[0].idle);
    expect_answers(0, 2, LEAT_OUTCOME_OK);
    dedicate(0, NOBODY, NOBODY, ALL); /* it is asleep still: who has it waits */
    steps_submit_to(0, 2, 1, 0);
    steps_round(1);
    EXPECT(has_batches(0, 0, 0, 0));
    resize(0, 1);
    EXPECT(is_resized(0) && resizes[0].idle);
    steps_round(1);
    EXPECT(has_batches(1, 0, 0, 0));
    run_all();
    expect_answers(2, 3, LEAT_OUTCOME_OK);
    steps_stop();
}

/* ---- At random --------------------------------------------------------------------------------------- */

struct model {
    uint16_t owners[WORKERS];
    uint64_t handed[WORKERS]; /* queries, when it was looked at last */
    bool parked[WORKERS], resizing[WORKERS];
    uint64_t held_back; /* a bit for each */
};

static bool
serves(const struct model *model, uint32_t worker, uint32_t application, bool offline)
{
    bool own = false, common = false;

    for (uint32_t w = 0; w < WORKERS; w++) {
        own = own || model->owners[w] == application;
        common = common || model->owners[w] == ALL;
    }
    const bool for_all = model->owners[worker] == ALL;
    return model->owners[worker] != NOBODY &&
           (own ? model->owners[worker] == application || (offline && for_all) : !common || for_all);
}

static const struct leat_application *
application(uint32_t number)
{
    return number == 0 ? &steps.app : &steps.others[number - 1];
}

static bool
may_have(const struct model *model, uint32_t worker, uint32_t number, bool offline)
{
    bool left = false;

    for (uint32_t w = 0; w < WORKERS; w++) {
        left = left || (serves(model, w, number, true) && (model->held_back >> w & 1) == 0);
    }
    const bool held = offline && left && !application(number)->router->deals && (model->held_back >> worker & 1) != 0;
    return !model->parked[worker] && !held && serves(model, worker, number, offline);
}

/* Does a query that is online, or was, wait for the worker? */
static bool
is_waited_for(const struct model *model, uint32_t worker)
{
    bool waited_for = false;

    for (uint32_t a = 0; a < APPLICATIONS; a++) {
        const struct leat_application *app = application(a);
        const uint32_t waiting =
            leat_waiting_count(&app->waiting[LEAT_RANK_ONLINE]) + leat_waiting_count(&app->waiting[LEAT_RANK_LATE]);
        waited_for = waited_for || (waiting > 0 && !app->router->deals && may_have(model, worker, a, false));
    }
    return waited_for;
}

/* A round, in which commands come last; all queries that it hands over go where the model has them. */
static void
round_of(struct model *model)
{
    const bool any = steps_round(1000001);
    leat_dispatcher_check(steps.dispatcher);
    EXPECT(any || leat_dispatcher_sleep_ms(steps.dispatcher) > 0);
    for (uint32_t w = 0; w < WORKERS; w++) {
        const struct worker_record *record = &steps.dispatcher->records[w];
        for (; model->handed[w] < steps.workers[w]->dispatcher.work_position; model->handed[w]++) {
            const uint32_t session = record->queries[model->handed[w] & (LEAT_WORKER_QUEUE - 1)].session;
            const bool offline = session % 2 == 1;
            EXPECT(may_have(model, w, session / 2, offline));
            EXPECT(!offline || !is_waited_for(model, w));
        }
    }
}

/* Owners and sizes as control would change them: who is parked is nobody's first, and somebody is always left. */
static void
change(struct model *model, uint64_t *random)
{
    const uint32_t worker = (uint32_t)(leat_test_random(random) % WORKERS);
    static const uint16_t choices[] = {0, 1, 2, ALL, ALL, NOBODY};
    struct model next = *model;
    uint32_t awake = 0;

    if (model->resizing[worker]) {
        return;
    }
    const bool park = !model->parked[worker] && leat_test_random(random) % 3 == 0;
    const bool wake = model->parked[worker] && leat_test_random(random) % 2 == 0;
    for (uint32_t w = 0; w < WORKERS; w++) {
        if (leat_test_random(random) % 2 == 0 && !next.parked[w]) {
            next.owners[w] = choices[leat_test_random(random) % LEAT_COUNT_OF(choices)];
        }
    }
    next.owners[worker] = park ? NOBODY : wake ? ALL : next.owners[worker];
    for (uint32_t w = 0; w < WORKERS; w++) {
        awake += next.owners[w] != NOBODY && !(next.parked[w] && w != worker);
    }
    if (awake == 0) {
        return;
    }
    memcpy(dedication.owners, next.owners, sizeof(next.owners));
    leat_dispatcher_command(steps.dispatcher,
                            &(struct leat_command){.kind = LEAT_COMMAND_DEDICATE, .dedication = &dedication});
    round_of(model);
    memcpy(model->owners, next.owners, sizeof(next.owners));
    if (park || wake) {
        resizes[worker] = (struct leat_resize){.worker = (uint16_t)worker,
                                               .shape = {.cores = wake, .worker_class = classes[worker]}};
        leat_dispatcher_command(steps.dispatcher,
                                &(struct leat_command){.kind = LEAT_COMMAND_RESIZE, .resize = &resizes[worker]});
        model->resizing[worker] = true;
        round_of(model);
        model->parked[worker] = park;
    }
}

static void
hold_back_at_random(struct model *model, uint64_t *random)
{
    const uint64_t workers = leat_test_random(random) % (1 << WORKERS) & leat_test_random(random);

    leat_dispatcher_command(steps.dispatcher, &(struct leat_command){.kind = LEAT_COMMAND_HOLD_BACK, .held_back = {{workers}}});
    round_of(model);
    model->held_back = workers;
}

static void
take_events(struct model *model)
{
    struct leat_event event;

    while (leat_dispatcher_poll_event(steps.dispatcher, &event)) {
        EXPECT(event.kind == LEAT_EVENT_DEDICATED || event.kind == LEAT_EVENT_RESIZED);
        if (event.kind == LEAT_EVENT_RESIZED) {
            EXPECT(model->resizing[event.resize->worker]);
            EXPECT(event.resize->shape.cores > 0 || batches_of(event.resize->worker) == 0);
            model->resizing[event.resize->worker] = false;
        }
    }
}

static void
test_random(const struct leat_router *router, const struct leat_router *others, bool drop_late, uint64_t *random)
{
    struct model model = {.owners = {ALL, ALL, ALL, ALL}};
    uint32_t asked[SESSIONS] = {0}, done[SESSIONS] = {0};

    start_with(router, others, &leat_selector_fixed, drop_late);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct leat_wire_response response;
        for (uint64_t more = leat_test_random(random) % BURST; more > 0; more--) {
            static const uint32_t latencies[] = {0, 0, 5000, 20000, OFFLINE, OFFLINE};
            const uint32_t latency_us = latencies[leat_test_random(random) % LEAT_COUNT_OF(latencies)];
            const uint32_t number = (uint32_t)(leat_test_random(random) % APPLICATIONS);
            const uint32_t session = 2 * number + (latency_us == OFFLINE);
            if (asked[session] < STEPS_SLOTS) {
                steps_submit_to(number, session * STEPS_SLOTS + asked[session]++, 1 + (uint32_t)(leat_test_random(random) % 3),
                                latency_us);
            }
        }
        if (leat_test_random(random) % 4 == 0) {
            change(&model, random);
        }
        if (leat_test_random(random) % 4 == 0) {
            hold_back_at_random(&model, random);
        }
        (void)steps_run((uint32_t)(leat_test_random(random) % WORKERS));
        round_of(&model);
        take_events(&model);
        for (uint32_t s = 0; s < SESSIONS; s++) {
            while (done[s] < asked[s] && steps_answer(s * STEPS_SLOTS + done[s], &response)) {
                done[s]++; /* about in order: the rest is found at the end */
            }
            asked[s] = done[s] == asked[s] ? done[s] = 0 : asked[s]; /* slots anew */
        }
    }
    hold_back(0);
    run_all();
    take_events(&model);
    for (uint32_t s = 0; s < SESSIONS; s++) {
        for (; done[s] < asked[s]; done[s]++) {
            struct leat_wire_response response;
            EXPECT(steps_answer(s * STEPS_SLOTS + done[s], &response));
        }
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        EXPECT(!model.resizing[w]);
    }
    steps_stop();
}

int
main(void)
{
    uint64_t random;

    leat_test_init();
    random = leat_test_seed;
    test_own();
    test_handed_over();
    test_gone();
    test_admission();
    test_ranks();
    test_offline_beside();
    test_held();
    test_held_back();
    test_sleep();
    test_idle_wanted();
    test_counts();
    test_parked();
    for (size_t r = 0; leat_router_at(r) != NULL; r++) {
        for (size_t o = 0; leat_router_at(o) != NULL; o++) {
            test_random(leat_router_at(r), leat_router_at(o), (r + o) % 2 == 0, &random);
        }
    }
    return 0;
}
