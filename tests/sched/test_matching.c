/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     matching dispatches what some least-cost matching gives to idle workers, as sched/policy.h states the costs.
 * Method   Random small worlds. The least cost by dynamic programming over sets of workers, once free and once bound to
 *          the answer: idle workers have exactly the pairs that came back. The two must be equal. In large worlds, which
 *          are solved another way, the least costs are leat_lap's, from nothing and with a column for each worker.
 */
#include "base/align.h"
#include "sched/lap.h"
#include "tests/sched/route_worlds.h"

enum { ROUNDS = LEAT_TEST_ROUNDS(60000), LARGE_ROUNDS = 100 };
#define IMPOSSIBLE (INT64_MAX / 4)

static void *state;
static int64_t cost[WORLD_QUERIES][WORLD_WORKERS];

static bool
takes_part(const struct world *world, uint32_t w)
{
    return world->input.workers[w].depth > 0;
}

/* C in 1/65536, by class. */
static void
weigh_classes(const struct world *world, int64_t weight[WORLD_CLASSES])
{
    uint64_t base_ns = 0;
    for (uint32_t w = 0; w < world->input.worker_count; w++) {
        const uint64_t ns = world->mean_ns[world->input.workers[w].worker_class][WORLD_ITEMS];
        if (takes_part(world, w) && ns > 0 && (base_ns == 0 || ns < base_ns)) {
            base_ns = ns;
        }
    }
    for (uint32_t class = 0; class < WORLD_CLASSES; class++) {
        const uint64_t ns = world->mean_ns[class][WORLD_ITEMS];
        weight[class] = ns == 0 ? 65536 : (int64_t)(65536 * base_ns / ns);
    }
}

static int64_t
cost_of(const struct world *world, const int64_t weight[WORLD_CLASSES], uint32_t i, uint32_t w)
{
    const struct leat_sched_query *query = &world->input.pending[i];
    const struct leat_sched_worker *worker = &world->input.workers[w];
    int64_t ns = (int64_t)world->mean_ns[worker->worker_class][query->items];

    if (worker->outstanding > 0 && worker->free_at_ns > world->input.now_ns) {
        ns += (int64_t)(worker->free_at_ns - world->input.now_ns);
    }
    const int64_t objective_ns = (int64_t)(query->deadline_ns - query->arrival_ns);
    const int64_t response_ns = ns + (int64_t)(world->input.now_ns - query->arrival_ns);
    if (query->deadline_ns != LEAT_NO_DEADLINE && response_ns * 100 > objective_ns * 98) {
        ns = ns > objective_ns * 10 ? ns : objective_ns * 10;
    }
    return weight[worker->worker_class] * ns / 65536;
}

static void
make_cost(const struct world *world)
{
    int64_t weight[WORLD_CLASSES];

    weigh_classes(world, weight);
    for (uint32_t i = 0; i < world->input.pending_count; i++) {
        for (uint32_t w = 0; w < world->input.worker_count; w++) {
            cost[i][w] = cost_of(world, weight, i, w);
        }
    }
}

static uint32_t
rows_of(const struct world *world)
{
    uint32_t workers = 0;
    for (uint32_t w = 0; w < world->input.worker_count; w++) {
        workers += takes_part(world, w);
    }
    return world->input.pending_count < 2 * workers ? world->input.pending_count : 2 * workers;
}

/* The least cost of as many pairs as there can be. If bound, idle workers have just the given pairs. */
static int64_t
least_cost(const struct world *world, const struct leat_route_pair *pairs, uint32_t count, bool bound)
{
    enum { SETS = 1 << WORLD_WORKERS };
    static int64_t least[SETS], before[SETS];
    uint32_t workers = 0;

    for (uint32_t w = 0; w < world->input.worker_count; w++) {
        workers += takes_part(world, w);
    }
    for (uint32_t set = 0; set < SETS; set++) {
        least[set] = set == 0 ? 0 : IMPOSSIBLE;
    }
    for (uint32_t i = 0; i < rows_of(world); i++) {
        int only = -1;
        for (uint32_t p = 0; bound && p < count; p++) {
            only = pairs[p].query == i ? (int)pairs[p].worker : only;
        }
        memcpy(before, least, sizeof(before));
        for (uint32_t set = 0; set < SETS; set++) {
            least[set] = only >= 0 ? IMPOSSIBLE : before[set]; /* this query waits */
            for (uint32_t w = 0; w < world->input.worker_count; w++) {
                const bool allowed = only >= 0 ? (uint32_t)only == w : !bound || world->workers[w].outstanding > 0;
                if (takes_part(world, w) && allowed && (set >> w & 1) != 0) {
                    const int64_t with = before[set & ~(UINT32_C(1) << w)] + cost[i][w];
                    least[set] = with < least[set] ? with : least[set];
                }
            }
        }
    }
    const uint32_t pairs_due = rows_of(world) < workers ? rows_of(world) : workers;
    int64_t best = IMPOSSIBLE;
    for (uint32_t set = 0; set < SETS; set++) {
        if ((uint32_t)__builtin_popcount(set) == pairs_due && least[set] < best) {
            best = least[set];
        }
    }
    return best;
}

/* Oldest first; of a class the lowest idle workers in turn; no query before an older one that costs the same everywhere. */
static void
check_order(const struct world *world, const struct leat_route_pair *pairs, uint32_t count)
{
    uint32_t routed = 0, used = 0;
    for (uint32_t p = 0; p < count; p++) {
        const uint16_t class = world->workers[pairs[p].worker].worker_class;
        EXPECT(p == 0 || pairs[p].query > pairs[p - 1].query);
        for (uint32_t w = 0; w < pairs[p].worker; w++) {
            const struct leat_sched_worker *lower = &world->workers[w];
            EXPECT(lower->worker_class != class || lower->depth == 0 || lower->outstanding > 0 || (used >> w & 1) != 0);
        }
        used |= UINT32_C(1) << pairs[p].worker;
        routed |= UINT32_C(1) << pairs[p].query;
    }
    for (uint32_t p = 0; p < count; p++) {
        for (uint32_t older = 0; older < pairs[p].query; older++) {
            EXPECT((routed >> older & 1) != 0 || memcmp(cost[older], cost[pairs[p].query], sizeof(cost[0])) != 0);
        }
    }
}

static void
test_least_cost(void)
{
    struct leat_route_pair pairs[WORLD_WORKERS], fewer[WORLD_WORKERS];
    struct world world;
    uint32_t with_waiting = 0, with_rest = 0, with_busy_chosen = 0;

    for (int round = 0; round < ROUNDS; round++) {
        world_draw(&world);
        make_cost(&world);
        const uint32_t count = leat_router_matching.route(state, &world.input, pairs, WORLD_WORKERS);
        uint32_t idle = 0;
        world_check(&world, pairs, count, WORLD_WORKERS);
        for (uint32_t w = 0; w < world.input.worker_count; w++) {
            idle += takes_part(&world, w) && world.workers[w].outstanding == 0;
        }
        for (uint32_t p = 0; p < count; p++) {
            EXPECT(world.workers[pairs[p].worker].outstanding == 0 && pairs[p].query < rows_of(&world));
        }
        if (idle == 0) {
            EXPECT(count == 0);
            continue;
        }
        EXPECT(least_cost(&world, pairs, count, true) == least_cost(&world, NULL, 0, false));
        check_order(&world, pairs, count);
        const uint32_t some = (uint32_t)below(WORLD_WORKERS);
        EXPECT(leat_router_matching.route(state, &world.input, fewer, some) == (count < some ? count : some));
        EXPECT(memcmp(pairs, fewer, (count < some ? count : some) * sizeof(*pairs)) == 0);
        with_waiting += count < idle && count < world.input.pending_count;
        with_rest += rows_of(&world) < world.input.pending_count;
        with_busy_chosen += count == 0 && world.input.pending_count > 0;
    }
    EXPECT(with_waiting > ROUNDS / 40 && with_rest > ROUNDS / 20 && with_busy_chosen > ROUNDS / 200);
}

/* Workers of one class, all free as far as is known: those that are idle come before those that are overdue. */
static void
test_idle_before_overdue(void)
{
    struct leat_route_pair pairs[WORLD_WORKERS];
    struct world world;

    for (int round = 0; round < ROUNDS / 10; round++) {
        uint32_t idle = 0;
        world_draw(&world);
        for (uint32_t w = 0; w < world.input.worker_count; w++) {
            world.workers[w].worker_class = 1;
            world.workers[w].free_at_ns = below(101) * WORLD_UNIT_NS;
            idle += takes_part(&world, w) && world.workers[w].outstanding == 0;
        }
        const uint32_t count = leat_router_matching.route(state, &world.input, pairs, WORLD_WORKERS);
        EXPECT(count == (idle < world.input.pending_count ? idle : world.input.pending_count));
    }
}

/* Worked out by hand: the large query gains most from the fast worker, though the small one is older. */
static void
test_example(void)
{
    struct leat_route_pair pairs[2];
    struct world world;

    memset(&world, 0, sizeof(world));
    world_connect(&world, 0, 2, 2, WORLD_CLASSES, WORLD_ITEMS);
    for (uint32_t k = 1; k <= WORLD_ITEMS; k++) {
        world.mean_ns[0][k] = 3 * k * WORLD_UNIT_NS;
        world.mean_ns[1][k] = (k + 1) * WORLD_UNIT_NS; /* C of the other is 6/15 */
    }
    for (uint32_t i = 0; i < 2; i++) {
        world.queries[i] = (struct leat_sched_query){.deadline_ns = LEAT_NO_DEADLINE, .items = i == 0 ? 1 : WORLD_ITEMS};
        world.workers[i] = (struct leat_sched_worker){.depth = 1, .worker_class = (uint16_t)i};
    }
    EXPECT(leat_router_matching.route(state, &world.input, pairs, 2) == 2);
    EXPECT(pairs[0].query == 0 && pairs[0].worker == 0 && pairs[1].query == 1 && pairs[1].worker == 1);
    world.queries[0].deadline_ns = 3 * WORLD_UNIT_NS; /* in time on the slow one, but not by two percent */
    EXPECT(leat_router_matching.route(state, &world.input, pairs, 2) == 2 && pairs[0].worker == 1);
    world.queries[0].deadline_ns = 3 * WORLD_UNIT_NS * 50 / 49 + 1; /* now it is */
    EXPECT(leat_router_matching.route(state, &world.input, pairs, 2) == 2 && pairs[0].worker == 0);
}

static void
test_extremes(void)
{
    struct leat_route_pair pairs[WORLD_WORKERS];
    struct world world;

    for (int round = 0; round < ROUNDS; round++) {
        world_draw_extreme(&world);
        const uint32_t count = leat_router_matching.route(state, &world.input, pairs, WORLD_WORKERS);
        bool idle = false, busy = false;
        world_check(&world, pairs, count, WORLD_WORKERS);
        for (uint32_t w = 0; w < world.input.worker_count; w++) {
            idle = idle || (takes_part(&world, w) && world.workers[w].outstanding == 0);
            busy = busy || (takes_part(&world, w) && world.workers[w].outstanding > 0);
        }
        EXPECT(count > 0 || !idle || busy || world.input.pending_count == 0); /* somebody always moves on */
    }
}

/* More workers than a world has, and a query for each at least. */
static void
draw_large(struct world *world, struct leat_sched_query *queries, struct leat_sched_worker *workers)
{
    const uint64_t busy = below(11), objective = 20 + below(200);

    world_draw(world);
    world->input.worker_count = 64 + (uint32_t)below(LEAT_SCHED_WORKERS_MAX - 63);
    world->input.pending_count = world->input.worker_count + (uint32_t)below(world->input.worker_count + 100);
    world->input.workers = workers;
    world->input.pending = queries;
    for (uint32_t w = 0; w < world->input.worker_count; w++) {
        workers[w] = (struct leat_sched_worker){.free_at_ns = (90 + below(100)) * WORLD_UNIT_NS,
                                                .outstanding = w > 0 && below(10) < busy,
                                                .depth = w == 0 || below(20) > 0,
                                                .worker_class = (uint16_t)below(WORLD_CLASSES)};
    }
    for (uint32_t i = 0; i < world->input.pending_count; i++) {
        const uint64_t arrival_ns = 100 * i / world->input.pending_count * WORLD_UNIT_NS;
        queries[i] = (struct leat_sched_query){
            .arrival_ns = arrival_ns,
            .deadline_ns = below(8) == 0 ? LEAT_NO_DEADLINE : arrival_ns + (objective + below(2) * 10) * WORLD_UNIT_NS,
            .items = 1 + (uint32_t)below(WORLD_ITEMS)};
    }
}

/* The least cost of a large world; with pairs, that of a matching where idle workers have just these. */
static int64_t
large_least_cost(const struct world *world, const struct leat_route_pair *pairs, uint32_t count)
{
    enum { ROWS = 2 * LEAT_SCHED_WORKERS_MAX, STRIDE = LEAT_SCHED_WORKERS_MAX + LEAT_LAP_LANES };
    static _Alignas(LEAT_CACHE_LINE) int64_t large_cost[ROWS * STRIDE];
    static _Alignas(LEAT_CACHE_LINE) unsigned char memory[1 << 18];
    struct leat_lap_problem problem = {.rows = rows_of(world), .stride = STRIDE, .cost = large_cost};
    uint32_t capacity[STRIDE];
    int64_t weight[WORLD_CLASSES], sum = 0;

    weigh_classes(world, weight);
    for (uint32_t w = 0; w < world->input.worker_count; w++) {
        const bool bound = pairs != NULL && world->input.workers[w].outstanding == 0;
        if (takes_part(world, w)) {
            for (uint32_t i = 0; i < problem.rows; i++) {
                large_cost[i * STRIDE + problem.columns] = bound ? LEAT_LAP_COST_MAX : cost_of(world, weight, i, w);
            }
            for (uint32_t p = 0; bound && p < count; p++) {
                if (pairs[p].worker == w) {
                    large_cost[pairs[p].query * STRIDE + problem.columns] = cost_of(world, weight, pairs[p].query, w);
                }
            }
            capacity[problem.columns++] = 1;
        }
    }
    if (problem.rows > problem.columns) {
        for (uint32_t i = 0; i < problem.rows; i++) {
            large_cost[i * STRIDE + problem.columns] = 0;
        }
        capacity[problem.columns] = problem.rows - problem.columns;
        problem.columns++;
    }
    problem.capacity = capacity;
    EXPECT(leat_lap_bytes(ROWS, STRIDE) <= sizeof(memory));
    struct leat_lap *lap = leat_lap_init(memory, ROWS, STRIDE);
    leat_lap_solve(lap, &problem);
    for (uint32_t i = 0; i < problem.rows; i++) {
        sum += large_cost[i * STRIDE + leat_lap_column_of(lap, i)];
    }
    return sum;
}

static void
test_least_cost_of_many(void)
{
    static struct leat_sched_query queries[LEAT_SCHED_PENDING_MAX];
    static struct leat_sched_worker workers[LEAT_SCHED_WORKERS_MAX];
    struct leat_route_pair pairs[LEAT_SCHED_WORKERS_MAX];
    struct world world;

    for (int round = 0; round < LARGE_ROUNDS; round++) {
        draw_large(&world, queries, workers);
        const uint32_t count = leat_router_matching.route(state, &world.input, pairs, LEAT_SCHED_WORKERS_MAX);
        EXPECT(large_least_cost(&world, pairs, count) == large_least_cost(&world, NULL, 0));
        for (uint32_t w = 0; w < world.input.worker_count; w++) {
            workers[w].free_at_ns = world_extreme();
        }
        for (uint32_t i = 0; i < world.input.pending_count; i++) {
            queries[i].arrival_ns = world_extreme();
            queries[i].deadline_ns = world_extreme();
        }
        const uint32_t of_extremes = leat_router_matching.route(state, &world.input, pairs, LEAT_SCHED_WORKERS_MAX);
        EXPECT(of_extremes == count); /* every worker gets a query, so all that are idle do */
    }
}

/* As many workers and queries as there may be: the state holds them. Costs are those of fcfs' order, so it is known. */
static void
test_largest(void)
{
    static struct leat_sched_query queries[LEAT_SCHED_PENDING_MAX];
    static struct leat_sched_worker workers[LEAT_SCHED_WORKERS_MAX];
    static struct leat_route_pair pairs[LEAT_SCHED_WORKERS_MAX];
    struct world world;

    world_draw(&world);
    for (uint32_t i = 0; i < LEAT_SCHED_PENDING_MAX; i++) {
        queries[i] = (struct leat_sched_query){.deadline_ns = LEAT_NO_DEADLINE, .items = 1 + (uint32_t)below(WORLD_ITEMS)};
    }
    for (uint32_t idle = 0; idle <= LEAT_SCHED_WORKERS_MAX; idle += 64) {
        for (uint32_t w = 0; w < LEAT_SCHED_WORKERS_MAX; w++) {
            workers[w] = (struct leat_sched_worker){.free_at_ns = (100 + below(50)) * WORLD_UNIT_NS,
                                                    .outstanding = w >= idle,
                                                    .depth = 1,
                                                    .worker_class = (uint16_t)(w % WORLD_CLASSES)};
        }
        world.input.pending = queries;
        world.input.workers = workers;
        world.input.worker_count = LEAT_SCHED_WORKERS_MAX;
        for (uint32_t pending = 1; pending <= LEAT_SCHED_PENDING_MAX; pending *= 4) {
            world.input.pending_count = pending;
            const uint32_t count = leat_router_matching.route(state, &world.input, pairs, LEAT_SCHED_WORKERS_MAX);
            EXPECT(pending > LEAT_SCHED_WORKERS_MAX ? count == idle : count <= pending);
            for (uint32_t p = 0; p < count; p++) {
                EXPECT(workers[pairs[p].worker].outstanding == 0 && pairs[p].query < 2 * LEAT_SCHED_WORKERS_MAX);
            }
        }
    }
}

int
main(void)
{
    leat_test_init();
    world_random = leat_test_seed;
    state = world_router_state(&leat_router_matching, &(struct leat_router_options){0});
    test_example();
    test_least_cost();
    test_idle_before_overdue();
    test_extremes();
    test_least_cost_of_many();
    test_largest();
    free(state);
    return 0;
}
