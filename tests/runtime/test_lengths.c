/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A query's sequence may be as long as its application says and no longer; none said is the longest. Each batch runs in
 *          the plans for the shortest length that holds its longest sequence, and holds queries of such lengths alone,
 *          whatever waits between them; the oldest goes first. Whether a query can be in time is judged by its own length, and by
 *          the mean length of what waits; where decisions are made as if all were of the longest, only what runs is shorter.
 * Method   The dispatcher and its workers step by step on a clock that stands still, by examples and by random ones.
 */
#include "tests/leat_test.h"
#include "tests/runtime/steps.h"

enum { QUERIES = 400, LONGEST = 128 };
#define MS UINT64_C(1000000)

static const uint16_t classes[2] = {0, 0};

static struct steps_options
options(uint32_t worker_count)
{
    return (struct steps_options){.worker_count = worker_count,
                                  .classes = classes,
                                  .worker_depth = 1,
                                  .sessions = 1,
                                  .router = &leat_router_fcfs,
                                  .selector = &leat_selector_fixed,
                                  .lengths = {32, 64, LONGEST},
                                  .length_count = 3,
                                  .per_item_ns = {MS}};
}

static struct leat_wire_response
answer_of(uint32_t number)
{
    struct leat_wire_response response;
    EXPECT(steps_answer(number, &response));
    return response;
}

/* Runs whatever is left; nothing comes any more. */
static void
finish(void)
{
    do {
        steps_round(1);
    } while (steps_run(0) || (steps.workers[1] != NULL && steps_run(1)));
    steps_round(1);
}

static uint32_t
place_of(uint32_t length)
{
    return length <= 32 ? 1 : length <= 64 ? 2 : 0;
}

static void
test_trust(void)
{
    struct steps_options given = options(2);

    steps_start(&given);
    steps_submit_long(0, 1, 0, LONGEST + 1);
    steps_submit_long(1, 1, 0, LEAT_LENGTH_MAX);
    steps_submit_long(2, 1, 0, 0);
    steps_submit_long(3, 1, 0, LONGEST);
    steps_submit_long(4, 1, 0, 1);
    steps_round(1);
    for (uint32_t n = 0; n < 2; n++) {
        const struct leat_wire_response refused = answer_of(n);
        EXPECT(refused.outcome == LEAT_OUTCOME_REJECTED && refused.reason == LEAT_REASON_LENGTH);
    }
    finish();
    EXPECT(answer_of(2).variant == 0 && answer_of(3).variant == 0 && answer_of(4).variant == 1);
    steps_stop();

    given.length_count = 0; /* a model without sequences */
    steps_start(&given);
    steps_submit_long(0, 1, 0, 1);
    steps_submit_long(1, 1, 0, 0);
    finish();
    EXPECT(answer_of(0).reason == LEAT_REASON_LENGTH);
    EXPECT(answer_of(1).outcome == LEAT_OUTCOME_OK && steps.ran.lengths[0] == 0);
    steps_stop();
}

/* What waits behind the first is taken by lengths, the oldest first. */
static void
test_batches(bool all_alike)
{
    static const uint32_t lengths[] = {100, 20, 128, 33, 32, 64, 65, 1};
    static const uint32_t wanted[3][4] = {{20, 32, 1}, {128, 65}, {33, 64}}; /* in the order of the oldest */
    static const uint32_t counts[3] = {3, 2, 2};
    struct steps_options given = options(1);

    given.all_alike = all_alike;
    steps_start(&given);
    for (uint32_t n = 0; n < 8; n++) {
        steps_submit_long(n, 1, 0, lengths[n]);
        if (n == 0) {
            steps_round(1);
        }
    }
    steps_round(1);
    EXPECT(steps_run(0) && steps.ran.count == 1 && steps.ran.lengths[0] == 100 && steps.ran.variant == 0);
    for (uint32_t b = 0; b < 3; b++) {
        uint32_t longest = 0;
        steps_round(1);
        const uint64_t before_ns = steps.now_ns;
        EXPECT(steps_run(0) && steps.ran.count == counts[b]);
        for (uint32_t i = 0; i < counts[b]; i++) {
            EXPECT(steps.ran.lengths[i] == wanted[b][i]);
            longest = wanted[b][i] > longest ? wanted[b][i] : longest;
        }
        EXPECT(steps.ran.variant == place_of(longest));
        EXPECT(steps.now_ns - before_ns == counts[b] * MS * (longest <= 32 ? 32 : longest <= 64 ? 64 : LONGEST) / LONGEST);
    }
    finish();
    for (uint32_t n = 0; n < 8; n++) {
        const struct leat_wire_response response = answer_of(n);
        EXPECT(response.outcome == LEAT_OUTCOME_OK && response.variant == place_of(lengths[n]));
    }
    steps_stop();
}

/* 0.25 ms at the shortest, 1 ms at the longest. */
static void
test_deadlines(bool all_alike)
{
    struct steps_options given = options(1);

    given.drop_late = true;
    given.selector = &leat_selector_single;
    given.all_alike = all_alike;
    steps_start(&given);
    steps_submit_long(0, 1, 600, 20);
    steps_submit_long(1, 1, 600, 100);
    finish();
    EXPECT(answer_of(0).outcome == (all_alike ? LEAT_OUTCOME_REJECTED : LEAT_OUTCOME_OK));
    struct leat_wire_response response = answer_of(1);
    EXPECT(response.outcome == LEAT_OUTCOME_REJECTED && response.reason == LEAT_REASON_DEADLINE && response.variant == 0);
    EXPECT(response.exec_ns == MS);

    /* The worker is busy for 1 ms, then with what waits: 4 times 0.25 ms or, of the longest, 4 ms. */
    for (uint32_t shorter = 0; shorter < 2; shorter++) {
        for (uint32_t n = 0; n < 5; n++) {
            steps_submit_long(10 + n, 1, 60000, n > 0 && shorter ? 32 : LONGEST);
            steps_round(1);
        }
        steps_submit_long(20, 1, 2500, 32);
        steps_round(1);
        const bool refused = steps_answer(20, &response);
        EXPECT(refused == (all_alike || !shorter));
        EXPECT(!refused || response.reason == LEAT_REASON_DEADLINE);
        finish();
        EXPECT(refused || answer_of(20).outcome == LEAT_OUTCOME_OK);
        for (uint32_t n = 0; n < 5; n++) {
            EXPECT(answer_of(10 + n).outcome == LEAT_OUTCOME_OK);
        }
    }
    steps_stop();
}

/* Every batch that runs is in the right plans; every query is answered once, in the plans of its length. */
static void
test_random(const struct leat_router *router, const struct leat_selector *selector, bool all_alike)
{
    struct steps_options given = options(2);
    static uint32_t lengths[QUERIES];
    uint64_t random = leat_test_seed;
    uint32_t sent = 0, batches = 0;
    bool ran = true;

    given.router = router;
    given.selector = selector;
    given.all_alike = all_alike;
    steps_start(&given);
    while (sent < QUERIES || ran) {
        for (uint64_t burst = leat_test_random(&random) % 8; burst > 0 && sent < QUERIES; burst--, sent++) {
            lengths[sent] = (uint32_t)(leat_test_random(&random) % (LONGEST + 1));
            steps_submit_long(sent, 1 + (uint32_t)(leat_test_random(&random) % 4), 0, lengths[sent]);
        }
        steps_round(1 + leat_test_random(&random) % MS);
        leat_dispatcher_check(steps.dispatcher);
        ran = steps_run((uint32_t)(leat_test_random(&random) % 2)) || steps_run(0) || steps_run(1);
        for (uint32_t i = 0; ran && i < steps.ran.count; i++) {
            EXPECT(place_of(steps.ran.lengths[i]) == steps.ran.variant);
            batches += i == 1;
        }
    }
    steps_round(1);
    for (uint32_t n = 0; n < QUERIES; n++) {
        const struct leat_wire_response response = answer_of(n);
        EXPECT(response.outcome == LEAT_OUTCOME_OK && response.variant == place_of(lengths[n] > 0 ? lengths[n] : LONGEST));
    }
    EXPECT(selector->single || batches > 0);
    steps_stop();
}

int
main(void)
{
    leat_test_init();
    test_trust();
    for (int all_alike = 0; all_alike < 2; all_alike++) {
        test_batches(all_alike);
        test_deadlines(all_alike);
        test_random(&leat_router_fcfs, &leat_selector_fixed, all_alike);
        test_random(&leat_router_fcfs, &leat_selector_greedy, all_alike);
        test_random(&leat_router_fcfs, &leat_selector_infaas, all_alike);
        test_random(&leat_router_dealt, &leat_selector_fixed, all_alike);
        test_random(&leat_router_laxity, &leat_selector_single, all_alike);
        test_random(&leat_router_matching, &leat_selector_fixed, all_alike);
    }
    return 0;
}
