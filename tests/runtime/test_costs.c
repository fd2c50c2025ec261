/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A query with a cap on its cost is served by a variant on a class of workers where it costs no more, under every
 *          router, or refused if and only if there is none: then the cheapest variant and its cost are named, and a class
 *          without a price where there is one. Queries without a cap do not care.
 * Method   Two classes of workers, one fast and dear, whose times and prices say what each query costs; random queries.
 */
#include "base/align.h"
#include "ipc/wire.h"
#include "tests/leat_test.h"
#include "tests/runtime/steps.h"

enum { WORKERS = 4, VARIANTS = 2, QUERIES = 300, BURST = 20 };

static const uint16_t classes[WORKERS] = {0, 1, 0, 1};
static const uint64_t per_item_ns[2] = {1000000, 3000000};
static uint64_t random_state;
static uint64_t price_micro[2];

struct asked {
    uint32_t items, cap_nano, latency_us;
};

/* In 10^-9, rounded up; UINT64_MAX: the class has no price. */
static uint64_t
cost_of(uint32_t variant, uint32_t class, uint32_t items)
{
    const uint64_t micro_hours = (variant + 1) * items * per_item_ns[class] * price_micro[class];
    return price_micro[class] > 0 ? (micro_hours + 3599999999) / 3600000000 : UINT64_MAX;
}

static void
check(const struct asked *asked, const struct leat_wire_response *answer, bool drop_late, uint32_t counts[4])
{
    uint64_t least = UINT64_MAX;

    for (uint32_t class = 0; class < 2; class++) {
        least = cost_of(0, class, asked->items) < least ? cost_of(0, class, asked->items) : least;
    }
    if (asked->cap_nano == 0 || least <= asked->cap_nano) {
        if (answer->outcome == LEAT_OUTCOME_REJECTED) { /* it could not be in time any more, and is not to be served late */
            EXPECT(drop_late && answer->reason == LEAT_REASON_DEADLINE && asked->latency_us > 0 && answer->worker == UINT16_MAX);
            EXPECT(answer->cost_nano == (least == UINT64_MAX ? 0 : least));
            return;
        }
        EXPECT(answer->outcome == LEAT_OUTCOME_OK || (answer->outcome == LEAT_OUTCOME_EXPIRED && asked->latency_us > 0));
        if (answer->outcome == LEAT_OUTCOME_OK) {
            EXPECT(asked->cap_nano == 0 || cost_of(answer->variant, classes[answer->worker], asked->items) <= asked->cap_nano);
            counts[asked->cap_nano == 0 ? 0 : 1 + classes[answer->worker]]++;
        }
        return;
    }
    EXPECT(answer->outcome == LEAT_OUTCOME_REJECTED && answer->variant == 0);
    EXPECT(answer->cost_nano == (least == UINT64_MAX ? 0 : least));
    if (price_micro[0] > 0 && price_micro[1] > 0) {
        EXPECT(answer->reason == LEAT_REASON_COST && answer->worker == UINT16_MAX);
    } else {
        EXPECT(answer->reason == LEAT_REASON_PRICE && price_micro[classes[answer->worker]] == 0);
    }
    counts[3]++;
}

static void
test_router(const struct leat_router *router, const struct leat_selector *selector, uint64_t dear_micro, uint64_t cheap_micro,
            bool drop_late)
{
    const struct steps_options options = {.worker_count = WORKERS,
                                          .classes = classes,
                                          .worker_depth = 2,
                                          .sessions = 1,
                                          .router = router,
                                          .selector = selector,
                                          .drop_late = drop_late,
                                          .variant_count = VARIANTS,
                                          .per_item_ns = {per_item_ns[0], per_item_ns[1]}};
    struct asked asked[QUERIES];
    uint32_t counts[4] = {0}; /* served without a cap, with one by class; refused */

    steps_start(&options);
    steps.app.price_micro[0] = price_micro[0] = dear_micro;
    steps.app.price_micro[1] = price_micro[1] = cheap_micro;
    for (uint32_t first = 0; first < QUERIES; first += BURST) {
        for (uint32_t q = first; q < first + BURST; q++) {
            const uint32_t cap = (uint32_t)(leat_test_random(&random_state) % 40) * 1000;
            asked[q] = (struct asked){.items = 1u << leat_test_random(&random_state) % 3,
                                      .cap_nano = leat_wire_cost_nano(leat_wire_cost_code(cap)),
                                      .latency_us = leat_test_random(&random_state) % 2 == 0 ? 0 : drop_late ? 60000 : 500};
            steps_submit_capped(q, asked[q].items, asked[q].latency_us, cap);
        }
        steps_round(1);
        leat_dispatcher_check(steps.dispatcher);
        while (steps.app.running > 0 || leat_waiting_total(steps.app.waiting) > 0) {
            for (uint32_t w = 0; w < WORKERS; w++) {
                (void)steps_run(w);
            }
            steps_round(1000001);
            leat_dispatcher_check(steps.dispatcher);
        }
    }
    for (uint32_t q = 0; q < QUERIES; q++) {
        struct leat_wire_response answer;
        EXPECT(steps_answer(q, &answer));
        check(&asked[q], &answer, drop_late, counts);
    }
    EXPECT(counts[0] > 0 && counts[3] > QUERIES / 20);
    EXPECT((counts[1] + counts[2] > 0) == (dear_micro > 0 || cheap_micro > 0));
    steps_stop();
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    for (size_t r = 0; leat_router_at(r) != NULL; r++) {
        const struct leat_router *router = leat_router_at(r);
        test_router(router, &leat_selector_single, 18000000, 3600000, true); /* 5 and 3 in 10^6 for an item */
        for (uint32_t drop_late = 0; drop_late < 2; drop_late++) {
            test_router(router, &leat_selector_fixed, 18000000, 3600000, drop_late == 1);
            test_router(router, &leat_selector_fixed, 0, 3600000, drop_late == 1);
            test_router(router, &leat_selector_fixed, 18000000, 0, drop_late == 1);
            test_router(router, &leat_selector_fixed, 0, 0, drop_late == 1);
        }
    }
    return 0;
}
