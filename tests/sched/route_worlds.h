/* SPDX-License-Identifier: Apache-2.0 */
/* tests/sched/route_worlds.h - worlds for routers, small random ones, and what every router's answer must respect. */
#ifndef LEAT_TESTS_SCHED_ROUTE_WORLDS_H
#define LEAT_TESTS_SCHED_ROUTE_WORLDS_H

#include <stdlib.h>
#include <string.h>

#include "sched/policy.h"
#include "tests/leat_test.h"

enum { WORLD_WORKERS = 6, WORLD_QUERIES = 14, WORLD_CLASSES = 3, WORLD_ITEMS = 5 }; /* drawn here, at most */
enum { WORLD_WORKERS_MAX = 24, WORLD_QUERIES_MAX = 200, WORLD_ITEMS_MAX = 16 };

/* Times are whole units, so that a share of one in 1/65536 is a whole number of nanoseconds. */
#define WORLD_UNIT_NS UINT64_C(65536)

struct world {
    struct leat_sched_query queries[WORLD_QUERIES_MAX];
    struct leat_sched_worker workers[WORLD_WORKERS_MAX];
    uint64_t mean_ns[LEAT_SCHED_CLASSES_MAX][WORLD_ITEMS_MAX + 1];
    uint64_t predicted_ns[LEAT_SCHED_CLASSES_MAX][WORLD_ITEMS_MAX + 1];
    struct leat_route_input input; /* of all this */
};

static uint64_t world_random;

static inline uint64_t
below(uint64_t bound)
{
    return leat_test_random(&world_random) % bound;
}

static inline void
world_expect_known(const struct world *world, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    EXPECT(application == 3 && variant == 1);
    EXPECT(worker_class < world->input.class_count && items >= 1 && items <= world->input.items_max);
}

static inline uint64_t
world_mean(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct world *world = profiles;
    world_expect_known(world, application, variant, worker_class, items);
    return world->mean_ns[worker_class][items];
}

static inline uint64_t
world_predict(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct world *world = profiles;
    world_expect_known(world, application, variant, worker_class, items);
    return world->predicted_ns[worker_class][items];
}

static inline void
world_connect(struct world *world, uint64_t now_ns, uint32_t pending_count, uint32_t worker_count, uint32_t class_count,
              uint32_t items_max)
{
    world->input = (struct leat_route_input){
        .now_ns = now_ns,
        .pending = world->queries,
        .pending_count = pending_count,
        .workers = world->workers,
        .worker_count = worker_count,
        .class_count = class_count,
        .items_max = items_max,
        .variant = 1,
        .application = 3,
        .predict = world_predict,
        .mean = world_mean,
        .profiles = world,
    };
}

/* Few different values, so ties are common; now is 100 units. One time in eight is unknown. */
static inline void
world_draw(struct world *world)
{
    const uint32_t classes = 1 + (uint32_t)below(WORLD_CLASSES);

    memset(world, 0, sizeof(*world));
    world_connect(world, 100 * WORLD_UNIT_NS, (uint32_t)below(1 + below(WORLD_QUERIES + 1)),
                  WORLD_WORKERS - (uint32_t)below(1 + below(WORLD_WORKERS + 1)), WORLD_CLASSES, WORLD_ITEMS);
    for (uint32_t c = 0; c < WORLD_CLASSES; c++) {
        for (uint32_t k = 1; k <= WORLD_ITEMS; k++) {
            world->mean_ns[c][k] = below(8) == 0 ? 0 : (1 + below(20)) * WORLD_UNIT_NS;
            world->predicted_ns[c][k] = world->mean_ns[c][k] + below(4) * WORLD_UNIT_NS;
        }
    }
    for (uint32_t w = 0; w < world->input.worker_count; w++) {
        world->workers[w] = (struct leat_sched_worker){
            .free_at_ns = (80 + below(45)) * WORLD_UNIT_NS,
            .outstanding = (uint32_t)(below(2) * below(4)),
            .depth = (uint32_t)below(5),
            .worker_class = (uint16_t)below(classes),
        };
        if (world->workers[w].outstanding == 0) {
            world->workers[w].free_at_ns = below(101) * WORLD_UNIT_NS;
        }
    }
    const uint32_t first = below(8) == 0 ? UINT32_MAX - 3 : (uint32_t)below(100);
    uint64_t arrival_ns = 0;
    for (uint32_t i = 0; i < world->input.pending_count; i++) {
        arrival_ns = below(2) == 0 ? arrival_ns : arrival_ns + below(100 - arrival_ns / WORLD_UNIT_NS) * WORLD_UNIT_NS;
        world->queries[i] = (struct leat_sched_query){
            .arrival_ns = arrival_ns,
            .deadline_ns = below(4) == 0 ? LEAT_NO_DEADLINE : arrival_ns + below(120) * WORLD_UNIT_NS,
            .items = 1 + (uint32_t)below(WORLD_ITEMS),
            .ordinal = first + i * (1 + (uint32_t)below(2)), /* some have gone, and not always from the front */
        };
    }
}

/* Any value, the edges above all. */
static inline uint64_t
world_extreme(void)
{
    static const uint64_t values[] = {0,          1,          2,           UINT64_C(1) << 45,    UINT64_C(1) << 46,
                                      (UINT64_C(1) << 63) - 1, UINT64_C(1) << 63, UINT64_MAX - 1, UINT64_MAX};
    return below(4) == 0 ? leat_test_random(&world_random) >> below(64) : values[below(sizeof(values) / sizeof(*values))];
}

/* Any times at all; but now has room above it, so that a while after it is after it. */
static inline void
world_draw_extreme(struct world *world)
{
    world_draw(world);
    world->input.now_ns = world_extreme() >> 2;
    for (uint32_t c = 0; c < WORLD_CLASSES; c++) {
        for (uint32_t k = 1; k <= WORLD_ITEMS; k++) {
            world->mean_ns[c][k] = world_extreme();
            world->predicted_ns[c][k] = world_extreme();
        }
    }
    for (uint32_t w = 0; w < world->input.worker_count; w++) {
        world->workers[w].free_at_ns = world_extreme();
    }
    for (uint32_t i = 0; i < world->input.pending_count; i++) {
        world->queries[i].arrival_ns = world_extreme();
        world->queries[i].deadline_ns = world_extreme();
    }
}

/* At most so many pairs, each query and each worker once, only workers with room: what sched/policy.h asks of all. */
static inline void
world_check(const struct world *world, const struct leat_route_pair *pairs, uint32_t count, uint32_t pairs_max)
{
    uint32_t queries = 0, workers = 0;
    EXPECT(count <= pairs_max);
    for (uint32_t p = 0; p < count; p++) {
        EXPECT(pairs[p].query < world->input.pending_count && pairs[p].worker < world->input.worker_count);
        EXPECT(world->workers[pairs[p].worker].outstanding < world->workers[pairs[p].worker].depth);
        EXPECT((queries >> pairs[p].query & 1) == 0 && (workers >> pairs[p].worker & 1) == 0);
        queries |= UINT32_C(1) << pairs[p].query;
        workers |= UINT32_C(1) << pairs[p].worker;
    }
}

/* Zeroed memory, aligned as malloc does and no better. */
static inline void *
world_router_state(const struct leat_router *router, const struct leat_router_options *options)
{
    void *state = calloc(1, router->state_bytes + 1);
    EXPECT(state != NULL);
    EXPECT(router->init == NULL || router->init(state, options) == LEAT_OK);
    return state;
}

#endif /* LEAT_TESTS_SCHED_ROUTE_WORLDS_H */
