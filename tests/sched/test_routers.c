/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     threshold, edf, clockwork, dealt and shortest_queue do what sched/policy.h says, and no router ever answers what
 *          cannot be.
 * Method   Random small worlds against statements of the rules that compare what was chosen with all that could have been.
 */
#include "sched/threshold.h"
#include "tests/sched/route_worlds.h"

enum { ROUNDS = LEAT_TEST_ROUNDS(60000), ROUTERS_MAX = 16 };

static uint64_t
wait_ns(const struct world *world, uint32_t w)
{
    const struct leat_sched_worker *worker = &world->workers[w];
    const bool waits = worker->outstanding > 0 && worker->free_at_ns > world->input.now_ns;
    return waits ? worker->free_at_ns - world->input.now_ns : 0;
}

static bool
has_room(const struct world *world, uint32_t w)
{
    return world->workers[w].outstanding < world->workers[w].depth;
}

static uint32_t
least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- All routers ------------------------------------------------------------------------------- */

/* Two of each, which see the same and must say the same: whatever the values, and valid. */
static void
test_all_answer_validly(void)
{
    void *states[ROUTERS_MAX][2];
    struct leat_route_pair pairs[2][WORLD_WORKERS];
    struct world world;
    uint32_t routers = 0;

    for (; leat_router_at(routers) != NULL; routers++) {
        EXPECT(routers < ROUTERS_MAX);
        for (int twin = 0; twin < 2; twin++) {
            states[routers][twin] = world_router_state(leat_router_at(routers), &(struct leat_router_options){0});
        }
    }
    for (int round = 0; round < ROUNDS; round++) {
        if (below(2) == 0) {
            world_draw(&world);
        } else {
            world_draw_extreme(&world);
        }
        for (uint32_t r = 0; r < routers; r++) {
            const struct leat_router *router = leat_router_at(r);
            const uint32_t pairs_max = (uint32_t)below(WORLD_WORKERS + 1);
            const uint32_t count = router->route(states[r][0], &world.input, pairs[0], pairs_max);
            world_check(&world, pairs[0], count, pairs_max);
            EXPECT(router->route(states[r][1], &world.input, pairs[1], pairs_max) == count);
            EXPECT(memcmp(pairs[0], pairs[1], count * sizeof(pairs[0][0])) == 0);
        }
    }
    for (uint32_t r = 0; r < routers; r++) {
        free(states[r][0]);
        free(states[r][1]);
    }
}

static void
test_names(void)
{
    EXPECT(leat_router_find("threshold") == &leat_router_threshold && !leat_router_threshold.queues);
    EXPECT(leat_router_find("matching") == &leat_router_matching && !leat_router_matching.queues);
    EXPECT(leat_router_find("edf") == &leat_router_edf && leat_router_edf.queues);
    EXPECT(leat_router_find("clockwork") == &leat_router_clockwork && leat_router_clockwork.queues);
    EXPECT(leat_router_find("dealt") == &leat_router_dealt && leat_router_dealt.deals && !leat_router_dealt.queues);
    EXPECT(leat_router_find("shortest_queue") == &leat_router_shortest_queue && leat_router_shortest_queue.queues);
}

/* ---- shortest_queue ---------------------------------------------------------------------------- */

static void
test_shortest_queue(void)
{
    struct leat_route_pair pair;
    struct world world;
    uint32_t answered = 0;

    for (int round = 0; round < ROUNDS; round++) {
        world_draw(&world);
        const uint32_t count = leat_router_shortest_queue.route(NULL, &world.input, &pair, 1);
        bool room = false;
        for (uint32_t w = 0; w < world.input.worker_count; w++) {
            room = room || has_room(&world, w);
        }
        EXPECT(count == (room && world.input.pending_count > 0 ? 1 : 0));
        if (count == 0) {
            continue;
        }
        answered++;
        EXPECT(pair.query == 0);
        for (uint32_t w = 0; w < world.input.worker_count; w++) {
            if (has_room(&world, w) && w != pair.worker) { /* nobody was better */
                const uint32_t theirs = world.workers[w].outstanding, ours = world.workers[pair.worker].outstanding;
                const uint64_t their_wait = wait_ns(&world, w), our_wait = wait_ns(&world, pair.worker);
                EXPECT(ours < theirs ||
                       (ours == theirs && (our_wait < their_wait || (our_wait == their_wait && pair.worker < w))));
            }
        }
    }
    EXPECT(answered > ROUNDS / 4);
}

/* ---- dealt ------------------------------------------------------------------------------------- */

/* By worker: the first that is its own, if it is idle. */
static void
test_dealt(void)
{
    struct leat_route_pair pairs[WORLD_WORKERS], expected[WORLD_WORKERS];
    struct world world;
    uint32_t several = 0, idle_without = 0, cut = 0;

    for (int round = 0; round < ROUNDS; round++) {
        world_draw(&world);
        const uint32_t pairs_max = (uint32_t)below(WORLD_WORKERS + 1);
        const uint32_t count = leat_router_dealt.route(NULL, &world.input, pairs, pairs_max);
        uint32_t due = 0, own = 0;
        for (uint32_t w = 0; w < world.input.worker_count; w++) {
            if (world.workers[w].outstanding > 0 || world.workers[w].depth == 0) {
                continue;
            }
            uint32_t q = 0;
            while (q < world.input.pending_count && world.queries[q].ordinal % world.input.worker_count != w) {
                q++;
            }
            if (q == world.input.pending_count) {
                idle_without += world.input.pending_count > 0;
                continue;
            }
            own++;
            if (due < pairs_max) {
                expected[due++] = (struct leat_route_pair){.query = q, .worker = w};
            }
        }
        EXPECT(count == due && memcmp(pairs, expected, due * sizeof(*pairs)) == 0);
        several += due > 1;
        cut += due < own;
    }
    EXPECT(several > ROUNDS / 100 && idle_without > ROUNDS / 100 && cut > ROUNDS / 100);
}

/* ---- clockwork --------------------------------------------------------------------------------- */

/* Is `a` a better place for the query than `b`? Both have room. */
static bool
clockwork_prefers(const struct world *world, const struct leat_sched_query *query, uint32_t a, uint32_t b)
{
    const uint16_t class_a = world->workers[a].worker_class, class_b = world->workers[b].worker_class;
    const uint64_t start_a = world->input.now_ns + wait_ns(world, a), start_b = world->input.now_ns + wait_ns(world, b);
    const bool in_time_a = start_a + world->predicted_ns[class_a][query->items] <= query->deadline_ns;
    const bool in_time_b = start_b + world->predicted_ns[class_b][query->items] <= query->deadline_ns;
    const uint64_t end_a = start_a + world->mean_ns[class_a][query->items];
    const uint64_t end_b = start_b + world->mean_ns[class_b][query->items];
    if (in_time_a != in_time_b) {
        return in_time_a;
    }
    return end_a < end_b || (end_a == end_b && a < b);
}

static int
clockwork_choice(const struct world *world, const struct leat_sched_query *query)
{
    for (uint32_t a = 0; a < world->input.worker_count; a++) {
        bool first = has_room(world, a);
        for (uint32_t b = 0; first && b < world->input.worker_count; b++) {
            first = a == b || !has_room(world, b) || clockwork_prefers(world, query, a, b);
        }
        if (first) {
            return (int)a;
        }
    }
    return -1;
}

static void
test_clockwork(void)
{
    struct leat_route_pair pairs[WORLD_WORKERS];
    struct world world;
    uint32_t several = 0, cut_short = 0;

    for (int round = 0; round < ROUNDS; round++) {
        const uint32_t pairs_max = 1 + (uint32_t)below(WORLD_WORKERS);
        uint32_t used = 0;
        world_draw(&world);
        const uint32_t count = leat_router_clockwork.route(NULL, &world.input, pairs, pairs_max);
        world_check(&world, pairs, count, pairs_max);
        for (uint32_t p = 0; p < count; p++) {
            EXPECT(pairs[p].query == p);
            EXPECT((int)pairs[p].worker == clockwork_choice(&world, &world.queries[p]));
            used |= UINT32_C(1) << pairs[p].worker;
        }
        if (count < least(pairs_max, world.input.pending_count)) { /* only because that worker was given one already */
            const int next = clockwork_choice(&world, &world.queries[count]);
            EXPECT(next < 0 || (used >> next & 1) != 0);
            cut_short += next >= 0;
        }
        several += count > 1;
    }
    EXPECT(several > ROUNDS / 100 && cut_short > ROUNDS / 100);
}

/* ---- edf --------------------------------------------------------------------------------------- */

#define HORIZON_NS UINT64_C(10000000)

/* Would the worker take query `a` before query `b`? */
static bool
edf_prefers(const struct world *world, uint32_t w, uint32_t a, uint32_t b)
{
    const uint64_t *predicted_ns = world->predicted_ns[world->workers[w].worker_class];
    const uint64_t start_ns = world->input.now_ns + wait_ns(world, w);
    uint32_t rank[2];
    int64_t last_start_ns[2];

    for (int side = 0; side < 2; side++) {
        const struct leat_sched_query *query = &world->queries[side == 0 ? a : b];
        const uint64_t end_ns = start_ns + predicted_ns[query->items];
        rank[side] = query->deadline_ns == LEAT_NO_DEADLINE ? 1 : end_ns <= query->deadline_ns ? 0 : 2;
        last_start_ns[side] = rank[side] == 1 ? 0 : (int64_t)(query->deadline_ns - predicted_ns[query->items]);
    }
    if (rank[0] != rank[1]) {
        return rank[0] < rank[1];
    }
    return last_start_ns[0] < last_start_ns[1] || (last_start_ns[0] == last_start_ns[1] && a < b);
}

/* The same world with times 16 times as long, so that waits are around the horizon. */
static void
stretch(struct world *world)
{
    world->input.now_ns *= 16;
    for (uint32_t c = 0; c < WORLD_CLASSES; c++) {
        for (uint32_t k = 1; k <= WORLD_ITEMS; k++) {
            world->predicted_ns[c][k] *= 16;
        }
    }
    for (uint32_t i = 0; i < world->input.pending_count; i++) {
        struct leat_sched_query *query = &world->queries[i];
        query->arrival_ns *= 16;
        query->deadline_ns = query->deadline_ns == LEAT_NO_DEADLINE ? LEAT_NO_DEADLINE : query->deadline_ns * 16;
    }
    for (uint32_t w = 0; w < world->input.worker_count; w++) {
        const bool edge = world->workers[w].outstanding > 0 && below(4) == 0;
        world->workers[w].free_at_ns =
            edge ? world->input.now_ns + HORIZON_NS + below(2) : world->workers[w].free_at_ns * 16;
    }
}

static void
test_edf(void)
{
    struct leat_route_pair pairs[WORLD_WORKERS];
    struct world world;
    uint32_t late = 0, several = 0, too_far = 0;
    void *state = world_router_state(&leat_router_edf, NULL);

    for (int round = 0; round < ROUNDS; round++) {
        const uint32_t pairs_max = 1 + (uint32_t)below(WORLD_WORKERS);
        uint32_t eligible = 0, taken = 0;
        world_draw(&world);
        stretch(&world);
        const uint32_t count = leat_router_edf.route(state, &world.input, pairs, pairs_max);
        world_check(&world, pairs, count, pairs_max);
        for (uint32_t w = 0; w < world.input.worker_count; w++) {
            eligible += has_room(&world, w) && wait_ns(&world, w) <= HORIZON_NS;
            too_far += has_room(&world, w) && wait_ns(&world, w) > HORIZON_NS;
        }
        EXPECT(count == least(least(pairs_max, world.input.pending_count), eligible));
        for (uint32_t p = 0; p < count; p++) {
            const uint32_t w = pairs[p].worker;
            EXPECT(wait_ns(&world, w) <= HORIZON_NS);
            if (p > 0) { /* soonest free first */
                const uint64_t before = wait_ns(&world, pairs[p - 1].worker);
                EXPECT(before < wait_ns(&world, w) || (before == wait_ns(&world, w) && pairs[p - 1].worker < w));
            }
            taken |= UINT32_C(1) << pairs[p].query;
            for (uint32_t i = 0; i < world.input.pending_count; i++) {
                EXPECT((taken >> i & 1) != 0 || edf_prefers(&world, w, pairs[p].query, i));
            }
            late += world.input.now_ns > world.queries[pairs[p].query].deadline_ns;
        }
        several += count > 1;
    }
    EXPECT(late > ROUNDS / 100 && several > ROUNDS / 100 && too_far > ROUNDS / 100);
    free(state);
}

/* ---- threshold --------------------------------------------------------------------------------- */

static uint64_t
class_rank(const struct world *world, uint32_t class)
{
    return world->mean_ns[class][WORLD_ITEMS] - 1; /* unknown last */
}

/* Is class `a` before class `b`? */
static bool
class_before(const struct world *world, uint32_t a, uint32_t b)
{
    return class_rank(world, a) < class_rank(world, b) || (class_rank(world, a) == class_rank(world, b) && a < b);
}

static void
test_threshold(void)
{
    struct leat_route_pair pairs[WORLD_WORKERS], expected[WORLD_WORKERS];
    struct world world;
    uint32_t split = 0, as_fcfs = 0, skipped = 0;

    for (int round = 0; round < ROUNDS; round++) {
        const uint32_t items = (uint32_t)below(WORLD_ITEMS + 2), pairs_max = 1 + (uint32_t)below(WORLD_WORKERS);
        const uint32_t above = items == 0 ? WORLD_ITEMS / 2 : items;
        uint32_t classes = 0, base = 0, used = 0, due = 0;
        void *state = world_router_state(&leat_router_threshold, &(struct leat_router_options){.threshold_items = items});

        world_draw(&world);
        const uint32_t count = leat_router_threshold.route(state, &world.input, pairs, pairs_max);
        free(state);
        world_check(&world, pairs, count, pairs_max);
        for (uint32_t w = 0; w < world.input.worker_count; w++) {
            const uint32_t class = world.workers[w].worker_class;
            if (world.workers[w].depth > 0) {
                base = classes == 0 || class_before(&world, class, base) ? class : base;
                classes |= UINT32_C(1) << class;
            }
        }
        if ((classes & (classes - 1)) == 0) {
            due = leat_router_fcfs.route(NULL, &world.input, expected, pairs_max);
            as_fcfs += due;
        }
        for (uint32_t i = 0; (classes & (classes - 1)) != 0 && i < world.input.pending_count && due < pairs_max; i++) {
            int best = -1;
            for (uint32_t w = 0; w < world.input.worker_count; w++) {
                const struct leat_sched_worker *worker = &world.workers[w];
                const bool right_side = (worker->worker_class == base) == (world.queries[i].items > above);
                const bool free_now = worker->outstanding == 0 && worker->depth > 0 && (used >> w & 1) == 0;
                if (right_side && free_now &&
                    (best < 0 || class_before(&world, worker->worker_class, world.workers[best].worker_class))) {
                    best = (int)w;
                }
            }
            if (best >= 0) {
                used |= UINT32_C(1) << best;
                skipped += i > due;
                split += due > 0;
                expected[due++] = (struct leat_route_pair){.query = i, .worker = (uint32_t)best};
            }
        }
        EXPECT(count == due && memcmp(pairs, expected, count * sizeof(*pairs)) == 0);
    }
    EXPECT(split > ROUNDS / 100 && as_fcfs > ROUNDS / 100 && skipped > ROUNDS / 100);
}

/* Every curve of four points and four heights: the answer is the first of the highest before the first step down. */
static void
test_threshold_search(void)
{
    enum { POINTS = 4, HEIGHTS = 4 };
    static const uint32_t items[POINTS] = {7, 3, 9, 1};
    struct leat_threshold_search search;

    for (uint32_t curve = 0; curve < HEIGHTS * HEIGHTS * HEIGHTS * HEIGHTS; curve++) {
        uint32_t height[POINTS], top = 0, end = 1;
        for (uint32_t p = 0, left = curve; p < POINTS; p++, left /= HEIGHTS) {
            height[p] = left % HEIGHTS;
        }
        while (end < POINTS && height[end] >= height[end - 1]) {
            top = height[end] > height[top] ? end : top;
            end++;
        }
        leat_threshold_search_init(&search, items, POINTS, 1);
        uint32_t measured = 0;
        while (leat_threshold_search_next(&search) != 0) {
            EXPECT(leat_threshold_search_next(&search) == items[measured]);
            leat_threshold_search_report(&search, height[measured++]);
        }
        EXPECT(measured == (end < POINTS ? end + 1 : POINTS)); /* the step down had to be measured */
        EXPECT(search.best_qps == height[top] && search.best_items == (height[top] > 0 ? items[top] : 0));
    }
}

static void
test_threshold_search_standard(void)
{
    static const uint32_t standard[] = {96, 128, 192, 256, 384, 512, 640, 768, 1000};
    for (uint32_t items_max = 1; items_max < 1200; items_max++) {
        struct leat_threshold_search search;
        uint32_t tried = 0;
        leat_threshold_search_init(&search, NULL, 0, items_max);
        for (; leat_threshold_search_next(&search) != 0; tried++) {
            EXPECT(leat_threshold_search_next(&search) == standard[tried] && standard[tried] < items_max);
            leat_threshold_search_report(&search, 1 + tried);
        }
        EXPECT(tried == 9 || standard[tried] >= items_max);
        EXPECT(search.best_items == (tried == 0 ? 0 : standard[tried - 1]));
    }
}

int
main(void)
{
    leat_test_init();
    world_random = leat_test_seed;
    test_names();
    test_all_answer_validly();
    test_shortest_queue();
    test_dealt();
    test_clockwork();
    test_edf();
    test_threshold();
    test_threshold_search();
    test_threshold_search_standard();
    return 0;
}
