/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     With every router that does not deal, no query goes to a worker of a class that is barred for it; where none is
 *          barred, the pairs are the router's own; and while all workers are idle somebody gets one, with a router that queues
 *          while a worker is that may take one of the queries.
 * Method   Random queries and workers; routers with a state have one for each side of a comparison.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "sched/route_caps.h"
#include "tests/leat_test.h"

enum { CLASSES = 3, WORKERS = 6, QUERIES = 40, ROUNDS = LEAT_TEST_ROUNDS(2000) };

static uint64_t random_state;
static struct leat_route_view view;

static uint64_t
below(uint64_t bound)
{
    return leat_test_random(&random_state) % bound;
}

static uint64_t
predict(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    (void)profiles, (void)application, (void)variant;
    return 1000000 + (uint64_t)items * 300000 * (1 + worker_class);
}

static void
draw(struct leat_sched_query *queries, struct leat_sched_worker *workers, bool caps, bool idle, struct leat_route_input *input)
{
    const uint64_t now_ns = 1000000000;
    *input = (struct leat_route_input){.now_ns = now_ns,
                                       .pending = queries,
                                       .pending_count = 1 + (uint32_t)below(below(2) == 0 ? 2 : QUERIES),
                                       .workers = workers,
                                       .worker_count = WORKERS,
                                       .class_count = CLASSES,
                                       .items_max = 64,
                                       .predict = predict,
                                       .mean = predict};
    for (uint32_t w = 0; w < WORKERS; w++) {
        const uint32_t outstanding = idle ? 0 : (uint32_t)below(3);
        workers[w] = (struct leat_sched_worker){.worker_class = (uint16_t)(w % CLASSES),
                                                .depth = 2,
                                                .outstanding = outstanding,
                                                .free_at_ns = outstanding > 0 ? now_ns + below(20000000) : now_ns};
    }
    for (uint32_t q = 0; q < input->pending_count; q++) {
        queries[q] = (struct leat_sched_query){.arrival_ns = now_ns - (QUERIES - q) * 1000,
                                               .deadline_ns = below(3) == 0 ? LEAT_NO_DEADLINE : now_ns + below(below(2) == 0 ? 2000000 : 50000000),
                                               .items = 1 + (uint32_t)below(below(2) == 0 ? 2 : 64),
                                               .ordinal = q,
                                               .barred_classes = caps && below(2) == 0 ? (uint8_t)below((1 << CLASSES) - 1) : 0};
    }
}

/* Is there an idle worker for one of the queries? */
static bool
somebody_fits(const struct leat_route_input *input)
{
    for (uint32_t w = 0; w < input->worker_count; w++) {
        for (uint32_t q = 0; q < input->pending_count && input->workers[w].outstanding == 0; q++) {
            if ((input->pending[q].barred_classes >> input->workers[w].worker_class & 1) == 0) {
                return true;
            }
        }
    }
    return false;
}

static void
test_router(const struct leat_router *router)
{
    struct leat_sched_query queries[QUERIES];
    struct leat_sched_worker workers[WORKERS];
    struct leat_route_pair pairs[WORKERS], own[WORKERS];
    struct leat_route_input input;
    void *state = calloc(1, router->state_bytes + 1), *own_state = calloc(1, router->state_bytes + 1);
    uint32_t barred = 0;

    EXPECT(state != NULL && own_state != NULL);
    if (router->init != NULL) {
        EXPECT(router->init(state, &(struct leat_router_options){0}) == LEAT_OK);
        EXPECT(router->init(own_state, &(struct leat_router_options){0}) == LEAT_OK);
    }
    for (int round = 0; round < ROUNDS; round++) {
        draw(queries, workers, false, below(2) == 0, &input);
        const uint32_t plain = leat_route_within_caps(router, state, &input, &view, pairs, WORKERS);
        EXPECT(router->route(own_state, &input, own, WORKERS) == plain && memcmp(pairs, own, plain * sizeof(own[0])) == 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        const bool idle = below(2) == 0;
        uint64_t taken = 0, used = 0;
        draw(queries, workers, true, idle, &input);
        const uint32_t count = leat_route_within_caps(router, state, &input, &view, pairs, WORKERS);
        EXPECT(count <= WORKERS && (count > 0 || !(idle || (router->queues && somebody_fits(&input)))));
        for (uint32_t p = 0; p < count; p++) {
            const uint32_t q = pairs[p].query, w = pairs[p].worker;
            EXPECT(q < input.pending_count && w < WORKERS && workers[w].outstanding < workers[w].depth);
            EXPECT((taken >> q & 1) == 0 && (used >> w & 1) == 0);
            EXPECT((queries[q].barred_classes >> workers[w].worker_class & 1) == 0);
            taken |= UINT64_C(1) << q;
            used |= UINT64_C(1) << w;
            barred += queries[q].barred_classes != 0;
        }
    }
    EXPECT(barred > ROUNDS / 10);
    free(state);
    free(own_state);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    for (size_t r = 0; leat_router_at(r) != NULL; r++) {
        if (!leat_router_at(r)->deals) {
            test_router(leat_router_at(r));
        }
    }
    return 0;
}
