/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     laxity gives what the head of sched/router_laxity.c says, and its prices solve the problem stated there.
 * Method   Random worlds against a ranking of all pairs of query and worker, of which the best is taken again and again;
 *          invariants beside it. Prices against a search of the dual over grids. Hostile values. Work to the end.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "tests/sched/route_worlds.h"

enum { CLASSES = 4, WORKERS_MAX = WORLD_WORKERS_MAX, QUERIES_MAX = WORLD_QUERIES_MAX, ITEMS = WORLD_ITEMS_MAX };
enum { LOOKED_AT = 128, OVERDUE = 32, TENURE = 20000 /* queries */ };

#define UNIT_NS UINT64_C(1000)
#define NOW_NS  (1000 * UNIT_NS)

static void *state; /* of the router */

static void
forget(void)
{
    memset(state, 0, leat_router_laxity.state_bytes);
}

/* ---- Random worlds ----------------------------------------------------------------------------- */

/*
 * Times need not grow with size. No multiples of 11 units: then no product of a first price and a time is just 1.1 times
 * another, where rounding would decide.
 */
static uint64_t
draw_time(void)
{
    const uint64_t units = below(10) == 0 ? 0 : 1 + below(40);
    return (units % 11 == 0 && units > 0 ? units + 1 : units) * UNIT_NS;
}

static void
draw_times(struct world *world)
{
    for (uint32_t c = 0; c < LEAT_SCHED_CLASSES_MAX; c++) {
        for (uint32_t k = 1; k <= ITEMS; k++) {
            world->mean_ns[c][k] = draw_time();
            world->predicted_ns[c][k] = below(8) == 0 ? 0 : world->mean_ns[c][k] + below(4) * UNIT_NS;
        }
    }
}

static void
draw_workers(struct world *world)
{
    for (uint32_t w = 0; w < world->input.worker_count; w++) {
        const bool idle = below(2) == 0;
        world->workers[w].outstanding = idle ? 0 : (uint32_t)below(4);
        world->workers[w].free_at_ns = idle ? below(NOW_NS) : NOW_NS - 5 * UNIT_NS + below(40) * UNIT_NS;
    }
}

/* Some have no deadline, some are late already, most have about as long as they take; or nearly all are late. */
static void
draw_queries(struct world *world)
{
    const bool overload = below(3) == 0;
    uint64_t arrival_ns = NOW_NS - 100 * UNIT_NS;
    for (uint32_t q = 0; q < world->input.pending_count; q++) {
        arrival_ns += below(2) * below((NOW_NS - arrival_ns) / UNIT_NS + 1) / 4 * UNIT_NS;
        const uint64_t soon_ns = NOW_NS - (overload ? 55 : 10) * UNIT_NS + below(60) * UNIT_NS;
        world->queries[q] = (struct leat_sched_query){
            .arrival_ns = arrival_ns,
            .deadline_ns = below(4) == 0 && !overload ? LEAT_NO_DEADLINE : soon_ns - below(8),
            .items = 1 + (uint32_t)below(ITEMS),
        };
    }
}

static void
draw_world(struct world *world, uint32_t queries_max, uint32_t workers_max)
{
    const uint32_t classes = 1 + (uint32_t)below(CLASSES);

    memset(world, 0, sizeof(*world));
    world_connect(world, NOW_NS, (uint32_t)below(queries_max + 1), (uint32_t)below(workers_max + 1), classes, ITEMS);
    for (uint32_t w = 0; w < world->input.worker_count; w++) {
        world->workers[w].worker_class = (uint16_t)below(classes);
        world->workers[w].depth = below(8) == 0 ? 0 : 1 + (uint32_t)below(3);
    }
    draw_times(world);
    draw_workers(world);
    draw_queries(world);
}

/* ---- The rules --------------------------------------------------------------------------------- */

static bool
takes_work(const struct world *world, uint32_t w)
{
    return world->workers[w].depth > 0;
}

static bool
is_idle(const struct world *world, uint32_t w)
{
    return takes_work(world, w) && world->workers[w].outstanding == 0;
}

static bool
has_workers(const struct world *world, uint32_t class)
{
    for (uint32_t w = 0; w < world->input.worker_count; w++) {
        if (takes_work(world, w) && world->workers[w].worker_class == class) {
            return true;
        }
    }
    return false;
}

static uint64_t
deadline_of(const struct leat_sched_query *query)
{
    const uint64_t last_ns = query->arrival_ns + (UINT64_C(1) << 60);
    return query->deadline_ns < last_ns ? query->deadline_ns : last_ns;
}

/* By its deadline, if it starts then. */
static bool
in_time(const struct world *world, uint32_t q, uint32_t class, uint64_t start_ns)
{
    const struct leat_sched_query *query = &world->queries[q];
    return start_ns + world->predicted_ns[class][query->items] <= deadline_of(query);
}

static bool
in_time_now(const struct world *world, uint32_t q, uint32_t class)
{
    return in_time(world, q, class, world->input.now_ns);
}

/* With `margin_ns` to spare. Whoever of the class is free first; who is busy, at the next instant at the earliest. */
static bool
in_time_with_wait(const struct world *world, uint32_t q, uint32_t class, int64_t margin_ns)
{
    for (uint32_t w = 0; w < world->input.worker_count; w++) {
        const struct leat_sched_worker *worker = &world->workers[w];
        const uint64_t next_ns = world->input.now_ns + 1;
        const uint64_t free_ns = worker->free_at_ns < next_ns ? next_ns : worker->free_at_ns;
        const uint64_t start_ns = is_idle(world, w) ? world->input.now_ns : free_ns;
        if (takes_work(world, w) && worker->worker_class == class && in_time(world, q, class, start_ns) &&
            (margin_ns <= 0 || in_time(world, q, class, start_ns + (uint64_t)margin_ns))) {
            return true;
        }
    }
    return false;
}

static bool
dearer(const double *prices, uint32_t a, uint32_t b)
{
    return prices[a] > prices[b] || (prices[a] == prices[b] && a < b);
}

/* Who is to be served first? As a number of few digits: the least first. */
struct rank {
    int64_t digits[5]; /* step, class in the order of the step, key in the step, query, worker */
};

static bool
ranks_before(const struct rank *a, const struct rank *b)
{
    for (size_t i = 0; i < LEAT_COUNT_OF(a->digits); i++) {
        if (a->digits[i] != b->digits[i]) {
            return a->digits[i] < b->digits[i];
        }
    }
    return false;
}

static bool
has_idle(const struct world *world, uint32_t class)
{
    for (uint32_t w = 0; w < world->input.worker_count; w++) {
        if (is_idle(world, w) && world->workers[w].worker_class == class) {
            return true;
        }
    }
    return false;
}

/* While a dearer worker is idle, twice what the percentile is above the mean. */
static int64_t
margin_of(const struct world *world, const double *prices, uint32_t q, uint32_t class)
{
    const uint32_t items = world->queries[q].items;
    for (uint32_t c = 0; c < world->input.class_count; c++) {
        if (dearer(prices, c, class) && has_idle(world, c)) {
            return 2 * ((int64_t)world->predicted_ns[class][items] - (int64_t)world->mean_ns[class][items]);
        }
    }
    return 0;
}

/* The cheapest class that will surely have it in time, else the cheapest that will; class_count for none. */
static uint32_t
home_of(const struct world *world, const double *prices, uint32_t q)
{
    const uint32_t none = world->input.class_count;
    uint32_t sure = none, unsure = none;
    for (uint32_t c = 0; c < world->input.class_count; c++) {
        if (!has_workers(world, c)) {
            continue;
        }
        if (in_time_with_wait(world, q, c, margin_of(world, prices, q, c)) && (sure == none || dearer(prices, sure, c))) {
            sure = c;
        }
        if (in_time_with_wait(world, q, c, 0) && (unsure == none || dearer(prices, unsure, c))) {
            unsure = c;
        }
    }
    return sure != none ? sure : unsure;
}

static bool
is_late(const struct world *world, uint32_t q)
{
    for (uint32_t c = 0; c < world->input.class_count; c++) {
        if (has_workers(world, c) && in_time_now(world, q, c)) {
            return false;
        }
    }
    return true;
}

/* False when that idle worker will not have that query. */
static bool
rank_of(const struct world *world, const double *prices, uint32_t q, uint32_t w, bool flood, struct rank *ret_rank)
{
    const uint32_t class = world->workers[w].worker_class, items = world->queries[q].items;
    const int64_t mean_ns = (int64_t)world->mean_ns[class][items];
    int64_t dearer_classes = 0, cheaper_classes = 0;
    bool least = true;

    for (uint32_t c = 0; c < world->input.class_count; c++) {
        if (has_workers(world, c)) {
            dearer_classes += dearer(prices, c, class);
            cheaper_classes += dearer(prices, class, c);
            least = least && prices[class] * (double)mean_ns <= 1.1 * (prices[c] * (double)world->mean_ns[c][items]);
        }
    }
    if (is_late(world, q)) {
        *ret_rank = (struct rank){{least ? 3 : 4, cheaper_classes, 0, q, w}};
        return least || flood;
    }
    if (home_of(world, prices, q) == class) {
        const int64_t share_ns = cheaper_classes == 0 ? mean_ns / 10 * 7 : 0;
        *ret_rank = (struct rank){{1, dearer_classes, (int64_t)deadline_of(&world->queries[q]) - share_ns, q, w}};
        return in_time_now(world, q, class);
    }
    *ret_rank = (struct rank){{2, cheaper_classes, -(int64_t)items, q, w}};
    return in_time_now(world, q, class);
}

/* Which queries are looked at: the oldest, and of those past their deadline a few. */
static uint32_t
look(const struct world *world, bool *seen)
{
    uint32_t count = 0, overdue = 0;
    for (uint32_t q = 0; q < world->input.pending_count; q++) {
        const bool past = world->queries[q].deadline_ns < world->input.now_ns;
        seen[q] = count < LOOKED_AT && (!past || overdue < OVERDUE);
        overdue += past;
        count += seen[q];
    }
    return count;
}

static uint32_t
rules(const struct world *world, const double *prices, struct leat_route_pair *pairs, uint32_t pairs_max, uint32_t *steps)
{
    static bool allowed[QUERIES_MAX][WORKERS_MAX];
    static struct rank ranks[QUERIES_MAX][WORKERS_MAX];
    const uint32_t queries = world->input.pending_count;
    uint32_t count = 0, late = 0;
    bool seen[QUERIES_MAX];

    (void)look(world, seen);
    for (uint32_t q = 0; q < queries; q++) {
        late += seen[q] && is_late(world, q);
    }
    for (uint32_t q = 0; q < queries; q++) {
        for (uint32_t w = 0; w < world->input.worker_count; w++) {
            allowed[q][w] = seen[q] && is_idle(world, w) &&
                            rank_of(world, prices, q, w, late > world->input.worker_count, &ranks[q][w]);
        }
    }
    for (; count < pairs_max; count++) {
        uint32_t best_q = queries, best_w = 0;
        for (uint32_t q = 0; q < queries; q++) {
            for (uint32_t w = 0; w < world->input.worker_count; w++) {
                if (allowed[q][w] && (best_q == queries || ranks_before(&ranks[q][w], &ranks[best_q][best_w]))) {
                    best_q = q;
                    best_w = w;
                }
            }
        }
        if (best_q == queries) {
            break;
        }
        pairs[count] = (struct leat_route_pair){.query = best_q, .worker = best_w};
        steps[ranks[best_q][best_w].digits[0] - 1]++;
        for (uint32_t w = 0; w < world->input.worker_count; w++) {
            allowed[best_q][w] = false;
        }
        for (uint32_t q = 0; q < queries; q++) {
            allowed[q][best_w] = false;
        }
    }
    return count;
}

/* What must hold whatever the order: stated apart from the rules. */
static void
check_invariants(const struct world *world, const struct leat_route_pair *pairs, uint32_t count, uint32_t pairs_max)
{
    const uint32_t queries = world->input.pending_count;
    bool given[QUERIES_MAX] = {false}, works[WORKERS_MAX] = {false}, seen[QUERIES_MAX];

    EXPECT(count <= pairs_max && look(world, seen) <= LOOKED_AT);
    for (uint32_t p = 0; p < count; p++) {
        EXPECT(pairs[p].query < queries && seen[pairs[p].query] && pairs[p].worker < world->input.worker_count);
        EXPECT(!given[pairs[p].query] && !works[pairs[p].worker] && is_idle(world, pairs[p].worker));
        given[pairs[p].query] = works[pairs[p].worker] = true;
    }
    for (uint32_t q = 0; q < queries; q++) {
        if (!seen[q]) {
            continue;
        }
        /* Nobody idles in vain. */
        for (uint32_t w = 0; w < world->input.worker_count && !given[q] && count < pairs_max; w++) {
            EXPECT(!is_idle(world, w) || works[w] || !in_time_now(world, q, world->workers[w].worker_class));
        }
        for (uint32_t p = 0; p < count && !given[q]; p++) { /* nobody late before anybody in time, on the same worker */
            const uint32_t class = world->workers[pairs[p].worker].worker_class;
            EXPECT(in_time_now(world, pairs[p].query, class) || !in_time_now(world, q, class));
        }
    }
}

/* Of a router that has seen nothing. */
static void
fresh_prices(const struct world *world, double *prices)
{
    uint64_t fastest_ns = UINT64_MAX;
    for (uint32_t c = 0; c < world->input.class_count; c++) {
        const uint64_t ns = world->mean_ns[c][ITEMS];
        fastest_ns = has_workers(world, c) && ns > 0 && ns < fastest_ns ? ns : fastest_ns;
    }
    for (uint32_t c = 0; c < world->input.class_count; c++) {
        const uint64_t ns = world->mean_ns[c][ITEMS];
        prices[c] = ns == 0 || fastest_ns == UINT64_MAX ? 1 : (double)fastest_ns / (double)ns;
    }
}

static void
expect_rules(uint32_t rounds, uint32_t queries_max, uint32_t workers_max)
{
    static struct world world;
    struct leat_route_pair got[WORKERS_MAX], want[WORKERS_MAX];
    double prices[LEAT_SCHED_CLASSES_MAX];
    uint32_t steps[4] = {0}, refused = 0, learned = 0;

    for (uint32_t round = 0; round < rounds; round++) {
        draw_world(&world, queries_max, workers_max);
        forget();
        fresh_prices(&world, prices);
        for (uint32_t turn = 0; turn < 4; turn++) { /* the same classes, so prices go on */
            const uint32_t pairs_max = below(4) == 0 ? (uint32_t)below(workers_max + 1) : workers_max;
            const uint32_t count = leat_router_laxity.route(state, &world.input, got, pairs_max);
            check_invariants(&world, got, count, pairs_max);
            EXPECT(count == rules(&world, prices, want, pairs_max, steps));
            EXPECT(memcmp(got, want, count * sizeof(got[0])) == 0);
            refused += count == 0;
            for (uint32_t c = 0; c < world.input.class_count && count > 0; c++) {
                learned += turn > 0 && leat_laxity_price(state, c) != prices[c];
                prices[c] = leat_laxity_price(state, c);
            }
            draw_workers(&world);
            draw_queries(&world);
        }
    }
    EXPECT(steps[0] > rounds && steps[1] > rounds / 20 && steps[2] > rounds / 10 && steps[3] > 0);
    EXPECT(refused > 0 && learned > rounds / 2);
}

static void
test_rules(void)
{
    expect_rules(LEAT_TEST_ROUNDS(40000), 8, 6);
    expect_rules(300, QUERIES_MAX, WORKERS_MAX);
}

/* ---- Queries without a deadline, and late ones ----------------------------------------------- */

/* Of two queries that wait for one worker of the only class, which goes first? */
static uint32_t
first_of(const struct leat_sched_query *queries, uint64_t ns_an_item)
{
    static struct world world;
    struct leat_route_pair pair;

    memset(&world, 0, sizeof(world));
    world_connect(&world, NOW_NS, 2, 1, 1, ITEMS);
    memcpy(world.queries, queries, 2 * sizeof(*queries));
    world.workers[0].depth = 1;
    for (uint32_t k = 1; k <= ITEMS; k++) {
        world.mean_ns[0][k] = world.predicted_ns[0][k] = k * ns_an_item;
    }
    forget();
    EXPECT(leat_router_laxity.route(state, &world.input, &pair, 1) == 1);
    return pair.query;
}

static void
test_without_deadline(void)
{
    struct leat_sched_query queries[2] = {{.arrival_ns = 1000, .deadline_ns = LEAT_NO_DEADLINE, .items = 1},
                                          {.arrival_ns = 2000, .deadline_ns = LEAT_NO_DEADLINE, .items = 1}};

    EXPECT(first_of(queries, 100) == 0); /* of one size: the oldest */
    queries[1].items = 1 + 14;
    EXPECT(first_of(queries, 100) == 0); /* larger, but 0.7 * 1400 < 1000 */
    queries[1].items = 1 + 15;
    EXPECT(first_of(queries, 100) == 1); /* 0.7 * 1500 > 1000 */
    queries[1].items = 1;
    queries[1].deadline_ns = NOW_NS + (UINT64_C(1) << 59);
    EXPECT(first_of(queries, 100) == 1); /* any deadline is before none, */
    queries[1].deadline_ns = NOW_NS + (UINT64_C(1) << 61);
    EXPECT(first_of(queries, 100) == 0); /* but what is later than 2^60 ns is none, */
    queries[1].deadline_ns = NOW_NS;
    EXPECT(first_of(queries, 100) == 0); /* and late is later still */
}

/* Nothing new comes: all are served, the late ones too, and at no time does everybody idle while queries wait. */
static void
test_all_are_served(void)
{
    static struct world world;
    struct leat_route_pair pairs[WORKERS_MAX];
    uint32_t late = 0;

    for (int round = 0; round < 1000; round++) {
        draw_world(&world, QUERIES_MAX, WORKERS_MAX);
        forget();
        uint32_t working = 0, able = 0;
        for (uint32_t w = 0; w < world.input.worker_count; w++) {
            world.workers[w].outstanding = 0;
            able += world.workers[w].depth > 0;
        }
        while (able > 0 && world.input.pending_count + working > 0) {
            const uint32_t count = leat_router_laxity.route(state, &world.input, pairs, WORKERS_MAX);
            check_invariants(&world, pairs, count, WORKERS_MAX);
            EXPECT(count > 0 || working > 0);
            for (uint32_t p = 0; p < count; p++) {
                struct leat_sched_worker *worker = &world.workers[pairs[p].worker];
                struct leat_sched_query *query = &world.queries[pairs[p].query];
                worker->outstanding = 1;
                worker->free_at_ns = world.input.now_ns + 1 + world.mean_ns[worker->worker_class][query->items];
                late += world.input.now_ns > query->deadline_ns;
                query->items = 0; /* it has left */
            }
            working += count;
            uint32_t left = 0;
            for (uint32_t q = 0; q < world.input.pending_count; q++) {
                if (world.queries[q].items > 0) {
                    world.queries[left++] = world.queries[q];
                }
            }
            world.input.pending_count = left;
            uint32_t first = WORKERS_MAX;
            for (uint32_t w = 0; w < world.input.worker_count; w++) {
                if (world.workers[w].outstanding > 0 &&
                    (first == WORKERS_MAX || world.workers[w].free_at_ns < world.workers[first].free_at_ns)) {
                    first = w;
                }
            }
            if (count == 0 && first < WORKERS_MAX) {
                world.input.now_ns = world.workers[first].free_at_ns;
                world.workers[first].outstanding = 0;
                working--;
            }
        }
    }
    EXPECT(late > 1000);
}

/* ---- Extreme times ----------------------------------------------------------------------------- */

/*
 * Where on the time line makes no difference. Close to its end no deadline is a close one, so there only as many are
 * served.
 */
static void
test_any_epoch(void)
{
    static const uint64_t epochs[] = {UINT64_C(1) << 61, (UINT64_C(1) << 62) - NOW_NS, UINT64_C(1) << 62,
                                      (UINT64_C(1) << 63) - NOW_NS, UINT64_C(1) << 63, UINT64_MAX - 2 * NOW_NS};
    static struct world world;
    struct leat_route_pair pairs[WORKERS_MAX], moved[WORKERS_MAX];
    uint32_t answered = 0;

    for (int round = 0; round < LEAT_TEST_ROUNDS(10000); round++) {
        draw_world(&world, 12, 8);
        forget();
        const uint32_t count = leat_router_laxity.route(state, &world.input, pairs, WORKERS_MAX);
        const uint64_t epoch_ns = epochs[below(LEAT_COUNT_OF(epochs))];
        world.input.now_ns += epoch_ns;
        for (uint32_t q = 0; q < world.input.pending_count; q++) {
            struct leat_sched_query *query = &world.queries[q];
            query->arrival_ns += epoch_ns;
            query->deadline_ns += query->deadline_ns == LEAT_NO_DEADLINE ? 0 : epoch_ns;
        }
        for (uint32_t w = 0; w < world.input.worker_count; w++) {
            world.workers[w].free_at_ns += epoch_ns;
        }
        forget();
        EXPECT(leat_router_laxity.route(state, &world.input, moved, WORKERS_MAX) == count);
        EXPECT(epoch_ns == epochs[LEAT_COUNT_OF(epochs) - 1] || memcmp(pairs, moved, count * sizeof(pairs[0])) == 0);
        answered += count > 0;
    }
    EXPECT(answered > LEAT_TEST_ROUNDS(10000) / 2);
}

static void
test_huge_times(void)
{
    static struct world world;
    struct leat_route_pair pair;

    memset(&world, 0, sizeof(world));
    world_connect(&world, NOW_NS, 2, 1, 1, ITEMS);
    world.workers[0].depth = 1;
    for (int shift = 0; shift < 64; shift++) {
        for (uint32_t k = 1; k <= ITEMS; k++) {
            world.mean_ns[0][k] = world.predicted_ns[0][k] = UINT64_C(1) << shift;
        }
        world.queries[0] = (struct leat_sched_query){.deadline_ns = NOW_NS + (UINT64_C(1) << 40), .items = 2};
        world.queries[1] = (struct leat_sched_query){.arrival_ns = 1, .deadline_ns = LEAT_NO_DEADLINE, .items = 1};
        forget();
        EXPECT(leat_router_laxity.route(state, &world.input, &pair, 1) == 1);
        EXPECT(pair.query == (shift <= 40 ? 0 : 1)); /* late is later than no deadline */
    }
}

/* ---- Prices ------------------------------------------------------------------------------------ */

static double
price_sum(const struct world *world)
{
    double sum = 0;
    for (uint32_t w = 0; w < world->input.worker_count; w++) {
        sum += takes_work(world, w) ? leat_laxity_price(state, world->workers[w].worker_class) : 0;
    }
    return sum;
}

static bool
near(double a, double b, double share)
{
    return a <= b * (1 + share) && b <= a * (1 + share);
}

/*
 * The first prices, and what the first query does to them: those of the class where it costs least rises by what its
 * load is over the mean, at most an eighth; what nobody could have done in time, or is done in no time, teaches
 * nothing.
 */
static void
test_first_lesson(void)
{
    static struct world world;
    struct leat_route_pair pair;
    double prices[LEAT_SCHED_CLASSES_MAX];
    uint32_t taught = 0, capped = 0;

    for (int round = 0; round < 40000; round++) { /* with a sanitizer, too: of loads beyond the cap there are few */
        draw_world(&world, 0, WORKERS_MAX);
        const uint64_t scale = UINT64_C(1) << below(30); /* a microsecond to 12 hours */
        uint32_t counts[LEAT_SCHED_CLASSES_MAX] = {0};
        for (uint32_t w = 0; w < world.input.worker_count; w++) {
            world.workers[w].outstanding = 0;
            counts[world.workers[w].worker_class] += world.workers[w].depth > 0;
        }
        for (uint32_t c = 0; c < CLASSES; c++) {
            world.mean_ns[c][ITEMS] *= scale;
        }
        world.input.pending_count = 1;
        world.queries[0] = (struct leat_sched_query){.arrival_ns = NOW_NS - 3 * UNIT_NS,
                                                     .items = 1 + (uint32_t)below(ITEMS)};
        world.queries[0].deadline_ns = NOW_NS + below(30) * UNIT_NS - 5 * UNIT_NS;
        forget();
        if (leat_router_laxity.route(state, &world.input, &pair, 1) == 0) {
            for (uint32_t c = 0; c < LEAT_SCHED_CLASSES_MAX; c++) {
                EXPECT(leat_laxity_price(state, c) == 0); /* nobody there */
            }
            continue;
        }
        fresh_prices(&world, prices);
        double sum = 0, cost = -1;
        uint32_t where = 0;
        bool tie = false; /* or so near that rounding decides */
        bool hopeless = true; /* then all classes may have it */
        for (uint32_t c = 0; c < world.input.class_count; c++) {
            hopeless = hopeless && !(counts[c] > 0 && in_time(&world, 0, c, world.queries[0].arrival_ns));
        }
        for (uint32_t c = 0; c < world.input.class_count; c++) {
            const double here = prices[c] * (double)world.mean_ns[c][world.queries[0].items];
            sum += counts[c] * prices[c];
            if (counts[c] > 0 && (hopeless || in_time(&world, 0, c, world.queries[0].arrival_ns))) {
                tie = cost >= 0 && (near(here, cost, 1e-9) || (tie && here > cost));
                where = cost < 0 || here < cost ? c : where;
                cost = cost < 0 || here < cost ? here : cost;
            }
        }
        if (tie) {
            continue;
        }
        if (cost > 0) {
            const double load = sum / (counts[where] * prices[where]);
            for (uint32_t c = 0; c < world.input.class_count; c++) {
                prices[c] *= c != where ? 1 - 1 / 1024.0 : load < 128 ? 1 + (load - 1) / 1024 : 1 + 127 / 1024.0;
            }
            taught++;
            capped += load > 128;
        }
        sum = 0;
        for (uint32_t c = 0; c < world.input.class_count; c++) {
            sum += counts[c] * prices[c];
        }
        for (uint32_t c = 0; c < world.input.class_count; c++) {
            EXPECT(counts[c] == 0 || near(leat_laxity_price(state, c), prices[c] / sum, 1e-3 / 1024));
        }
    }
    EXPECT(taught > 10000 && capped > 0);
}

/* A class that is known later, or comes later, finds its place. */
static void
test_latecomers(void)
{
    static struct world world;
    struct leat_route_pair pair;

    memset(&world, 0, sizeof(world));
    world_connect(&world, NOW_NS, 1, 2, 2, ITEMS);
    for (uint32_t w = 0; w < 3; w++) {
        world.workers[w] = (struct leat_sched_worker){.depth = 1, .worker_class = (uint16_t)w};
    }
    world.queries[0] = (struct leat_sched_query){.arrival_ns = NOW_NS, .deadline_ns = NOW_NS - 1, .items = 1};
    world.mean_ns[1][ITEMS] = 400;
    world.mean_ns[2][ITEMS] = 100;
    forget();
    EXPECT(leat_router_laxity.route(state, &world.input, &pair, 1) == 1);
    EXPECT(near(leat_laxity_price(state, 0), leat_laxity_price(state, 1), 1e-9)); /* as dear as the fastest that is known */
    world.mean_ns[0][ITEMS] = 800;
    EXPECT(leat_router_laxity.route(state, &world.input, &pair, 1) == 1);
    EXPECT(near(2 * leat_laxity_price(state, 0), leat_laxity_price(state, 1), 1e-9));
    world.input.class_count = world.input.worker_count = 3;
    EXPECT(leat_router_laxity.route(state, &world.input, &pair, 1) == 1);
    EXPECT(near(4 * leat_laxity_price(state, 1), leat_laxity_price(state, 2), 1e-9));
    EXPECT(near(price_sum(&world), 1, 1e-9));

    /* One that was away when prices began anew is a latecomer too. */
    forget();
    world.workers[2].depth = 0;
    EXPECT(leat_router_laxity.route(state, &world.input, &pair, 1) == 1);
    world.workers[0].depth = 0;
    world.workers[2].depth = 1;
    EXPECT(leat_router_laxity.route(state, &world.input, &pair, 1) == 1);
    world.workers[0].depth = 1;
    EXPECT(leat_router_laxity.route(state, &world.input, &pair, 1) == 1);
    EXPECT(near(8 * leat_laxity_price(state, 0), leat_laxity_price(state, 2), 1e-9));
    EXPECT(near(price_sum(&world), 1, 1e-9));
}

static void
test_prices_under_hostile_input(void)
{
    static struct world world;
    static const uint64_t extremes[] = {0, 1, 2, UINT64_C(1) << 45, UINT64_C(1) << 58, UINT64_C(1) << 63, UINT64_MAX};
    struct leat_route_pair pairs[WORKERS_MAX];
    uint32_t answered = 0;

    forget();
    draw_world(&world, 40, WORKERS_MAX);
    for (int round = 0; round < LEAT_TEST_ROUNDS(200000); round++) {
        if (below(8) == 0) {
            draw_world(&world, 40, WORKERS_MAX); /* other workers, other classes, another number of classes */
        }
        if (below(4) == 0) {
            const uint32_t c = (uint32_t)below(LEAT_SCHED_CLASSES_MAX), only = (uint32_t)below(3);
            for (uint32_t k = 1; k <= ITEMS; k++) {
                const uint64_t any_ns = leat_test_random(&world_random) >> below(64);
                const uint64_t ns = below(2) == 0 ? extremes[below(LEAT_COUNT_OF(extremes))] : any_ns;
                world.mean_ns[c][k] = only == 0 ? 0 : ns;
                world.predicted_ns[c][k] = only == 1 ? world.mean_ns[c][k] : 0;
            }
        }
        draw_workers(&world);
        draw_queries(&world);
        for (uint32_t q = 0; q < world.input.pending_count && below(4) == 0; q++) {
            world.queries[q].items = ITEMS;
        }
        const uint32_t count = leat_router_laxity.route(state, &world.input, pairs, WORKERS_MAX);
        EXPECT(count == 0 || near(price_sum(&world), 1, 1e-9));
        for (uint32_t c = 0; c < LEAT_SCHED_CLASSES_MAX; c++) {
            const double price = leat_laxity_price(state, c);
            EXPECT(price >= 0 && price <= 1);
            EXPECT(count == 0 || !has_workers(&world, c) || price > 1e-9);
        }
        answered += count > 0;
    }
    EXPECT(answered > LEAT_TEST_ROUNDS(200000) / 2);
}

/* ---- The dual ---------------------------------------------------------------------------------- */

struct market {
    uint32_t class_count;
    uint32_t workers[3];
    double base_ns[3], item_ns[3];
    double weights[ITEMS + 1];
    uint64_t objective_ns;
};

/* E[min over classes of price * time], of those that can do it in time or, where there are none, of all; per worker. */
static double
dual_value(const struct market *market, const double *prices)
{
    double sum = 0, all = 0;
    for (uint32_t k = 1; k <= ITEMS; k++) {
        double cost = -1, hopeless_cost = -1;
        for (uint32_t c = 0; c < market->class_count; c++) {
            const double ns = (double)(uint64_t)(market->base_ns[c] + k * market->item_ns[c]), here = prices[c] * ns;
            if (ns <= (double)market->objective_ns && (cost < 0 || here < cost)) {
                cost = here;
            }
            hopeless_cost = hopeless_cost < 0 || here < hopeless_cost ? here : hopeless_cost;
        }
        sum += market->weights[k] * (cost < 0 ? hopeless_cost : cost);
        all += market->weights[k];
    }
    return sum / all;
}

/* The best on a grid of prices that make up 1, then on finer ones around it; the value is concave. */
static double
dual_optimum(const struct market *market, double *ret_prices)
{
    enum { GRID = 20 };
    double centre[2] = {0.5, 0.5}, best = -1;

    for (double step = 0.5 / GRID; step > 1e-5; step /= 2) {
        const double from[2] = {centre[0] - GRID * step, centre[1] - GRID * step};
        for (int i = 0; i <= 2 * GRID; i++) {
            for (int j = 0; j <= (market->class_count == 3 ? 2 * GRID : 0); j++) {
                const double first = from[0] + i * step, second = market->class_count == 3 ? from[1] + j * step : 1 - first;
                double prices[3] = {first, second, 1 - first - second};
                if (first < 0 || second < 0 || (market->class_count == 3 && prices[2] < 0)) {
                    continue;
                }
                for (uint32_t c = 0; c < market->class_count; c++) {
                    prices[c] /= market->workers[c];
                }
                const double value = dual_value(market, prices);
                if (value > best) {
                    best = value;
                    centre[0] = first;
                    centre[1] = second;
                    memcpy(ret_prices, prices, sizeof(prices));
                }
            }
        }
    }
    return best;
}

/* As many queries as a tenure, each to a pool that idles; returns the mean price of each class over the last quarter. */
static void
trade(const struct market *market, double *ret_prices)
{
    static struct world world;
    struct leat_route_pair pair;
    double all = 0;

    memset(&world, 0, sizeof(world));
    world_connect(&world, NOW_NS, 1, 0, market->class_count, ITEMS);
    for (uint32_t c = 0; c < market->class_count; c++) {
        for (uint32_t w = 0; w < market->workers[c]; w++) {
            world.workers[world.input.worker_count++] = (struct leat_sched_worker){.depth = 1, .worker_class = (uint16_t)c};
        }
        for (uint32_t k = 1; k <= ITEMS; k++) {
            world.mean_ns[c][k] = world.predicted_ns[c][k] = (uint64_t)(market->base_ns[c] + k * market->item_ns[c]);
        }
        ret_prices[c] = 0;
    }
    for (uint32_t k = 1; k <= ITEMS; k++) {
        all += market->weights[k];
    }
    for (uint32_t i = 0; i < TENURE; i++) {
        double at = (double)(leat_test_random(&world_random) >> 11) * 0x1p-53 * all;
        uint32_t items = 1;
        for (; items < ITEMS && at >= market->weights[items]; items++) {
            at -= market->weights[items];
        }
        world.queries[0] = (struct leat_sched_query){
            .arrival_ns = NOW_NS, .deadline_ns = NOW_NS + market->objective_ns, .items = items};
        EXPECT(leat_router_laxity.route(state, &world.input, &pair, 1) == 1);
        for (uint32_t c = 0; c < market->class_count; c++) {
            ret_prices[c] += i >= TENURE / 4 * 3 ? leat_laxity_price(state, c) / (TENURE / 4.0) : 0;
        }
    }
    EXPECT(near(price_sum(&world), 1, 1e-9));
}

static void
draw_weights(struct market *market)
{
    for (uint32_t k = 1; k <= ITEMS; k++) {
        market->weights[k] = below(3) == 0 ? 0 : (double)(1 + below(20));
    }
    market->weights[1 + below(ITEMS)] = 20;
}

/* A dear class with a large fixed part, cheap ones that grow faster, as accelerators beside cores. */
static void
draw_market(struct market *market, uint32_t class_count)
{
    *market = (struct market){.class_count = class_count, .objective_ns = 50000 + below(100000)};
    for (uint32_t c = 0; c < class_count; c++) {
        market->workers[c] = 1 + (uint32_t)below(6);
        market->base_ns[c] = (double)(1000 + below(20000));
        market->item_ns[c] = (double)(500 + below(10000));
    }
    draw_weights(market);
}

/*
 * An accelerator beside one or two kinds of cores, which cannot do the largest sizes in time. At first there are none
 * of these, then all sizes are alike: there is more that only the accelerator can do, and it is worth more.
 */
static void
test_price_ratios(void)
{
    for (uint32_t classes = 2; classes <= 3; classes++) {
        struct market market = {.class_count = classes,
                                .workers = {2, 6, 4},
                                .base_ns = {20000, 12000, 15000},
                                .item_ns = {2000, 9000, 7000},
                                .objective_ns = 125000};
        double prices[3], best[3], before = 0;

        forget();
        for (int tenure = 0; tenure < 2; tenure++) {
            for (uint32_t k = 1; k <= ITEMS; k++) {
                market.weights[k] = tenure == 1 || k <= ITEMS / 2;
            }
            trade(&market, prices);
            (void)dual_optimum(&market, best);
            for (uint32_t c = 1; c < classes; c++) {
                EXPECT(near(prices[0] / prices[c], best[0] / best[c], 0.05));
            }
            EXPECT(prices[0] / prices[1] > 1.2 * before);
            before = prices[0] / prices[1];
        }
    }
}

/*
 * In any market nearly as good as the best prices, and again when sizes change. Where nobody needed a class its price must
 * grow from almost nothing, so a few markets take longer.
 */
static void
test_prices_solve_the_dual(void)
{
    enum { MARKETS = 40, TENURES = 5 };
    double prices[3], best_prices[3];
    uint32_t good[2] = {0};

    for (int round = 0; round < MARKETS; round++) {
        struct market market;
        draw_market(&market, 2 + (uint32_t)below(2));
        forget();
        for (int change = 0; change < 2; change++) {
            double best = dual_optimum(&market, best_prices), value = 0;
            for (int tenure = 0; tenure < TENURES; tenure++) {
                trade(&market, prices);
                value = dual_value(&market, prices);
                EXPECT(value > 0.75 * best && value < 1.001 * best);
                good[change] += tenure == 0 && value > 0.98 * best;
            }
            EXPECT(value > 0.9 * best);
            draw_weights(&market);
        }
    }
    EXPECT(good[0] > MARKETS * 8 / 10 && good[1] > MARKETS * 8 / 10);
}

int
main(void)
{
    leat_test_init();
    world_random = leat_test_seed;
    state = calloc(1, leat_router_laxity.state_bytes);
    EXPECT(state != NULL && leat_router_laxity.init == NULL);
    test_rules();
    test_without_deadline();
    test_all_are_served();
    test_any_epoch();
    test_huge_times();
    test_first_lesson();
    test_latecomers();
    test_prices_under_hostile_input();
    test_price_ratios();
    test_prices_solve_the_dual();
    free(state);
    return 0;
}
