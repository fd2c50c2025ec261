/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     fcfs, round_robin, fixed and single do what sched/policy.h says, on every small input we can think of.
 * Method   Random worlds against brute-force statements of the rules that share no code with them.
 */
#include "sched/policy.h"
#include "tests/leat_test.h"

#include <string.h>

#include "base/align.h"

enum { WORKERS = 6, QUERIES = 12, VARIANTS = 3, ROUNDS = LEAT_TEST_ROUNDS(100000) };

static uint64_t random_state;

static uint64_t
below(uint64_t bound)
{
    return leat_test_random(&random_state) % bound;
}

/* Time by items, not always growing: learned curves have dips. */
static uint64_t
predict_table(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class,
              uint32_t items)
{
    const uint64_t *table = profiles;
    (void)application;
    return table[(variant * 2 + worker_class) * 64 + items];
}

static uint32_t
random_workers(struct leat_sched_worker *workers)
{
    const uint32_t count = (uint32_t)below(WORKERS + 1);
    for (uint32_t w = 0; w < count; w++) {
        workers[w] = (struct leat_sched_worker){
            .free_at_ns = below(2000),
            .outstanding = (uint32_t)below(4),
            .depth = (uint32_t)below(4),
            .worker_class = (uint16_t)below(2),
        };
    }
    return count;
}

static void
random_queries(struct leat_sched_query *queries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        queries[i] = (struct leat_sched_query){
            .arrival_ns = i,
            .deadline_ns = below(4) == 0 ? LEAT_NO_DEADLINE : below(2500),
            .items = 1 + (uint32_t)below(5),
            .accuracy_floor_ppm = below(8) == 0 ? 800000 : 0,
        };
    }
}

/* The lists name every policy that sched/policy.h declares, in the order of a dictionary, so none twice. */
static void
test_names(void)
{
    static const struct leat_router *const routers[] = {
        &leat_router_fcfs,        &leat_router_round_robin, &leat_router_laxity,         &leat_router_matching,
        &leat_router_threshold,   &leat_router_edf,         &leat_router_shortest_queue, &leat_router_clockwork,
        &leat_router_dealt,
    };
    static const struct leat_selector *const selectors[] = {&leat_selector_fixed, &leat_selector_single,
                                                            &leat_selector_jellyfish, &leat_selector_greedy,
                                                            &leat_selector_mdp, &leat_selector_model_switching,
                                                            &leat_selector_infaas};

    for (size_t i = 0; i < LEAT_COUNT_OF(routers); i++) {
        EXPECT(leat_router_find(routers[i]->name) == routers[i]);
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(selectors); i++) {
        EXPECT(leat_selector_find(selectors[i]->name) == selectors[i]);
    }
    EXPECT(leat_router_find("laxity") == &leat_router_laxity && leat_selector_find("fixed") == &leat_selector_fixed);
    EXPECT(leat_router_find("") == NULL && leat_selector_find("fcfs") == NULL);
    EXPECT(leat_router_default(1) == &leat_router_fcfs && leat_router_default(2) != NULL);
    EXPECT(leat_router_default(2) == leat_router_find(LEAT_ROUTER_DEFAULT_MIXED));
    for (size_t i = 0; leat_router_at(i) != NULL; i++) {
        const struct leat_router *router = leat_router_at(i);
        const bool batched = router == &leat_router_fcfs || router == &leat_router_round_robin ||
                             router == &leat_router_shortest_queue || router == &leat_router_dealt;
        EXPECT(leat_selector_default(1, router, false) == &leat_selector_fixed);
        EXPECT(leat_selector_default(1, router, true) ==
               (router == &leat_router_fcfs ? &leat_selector_mdp : &leat_selector_fixed));
        EXPECT(leat_selector_default(2, router, i % 2) == (batched ? &leat_selector_fixed : &leat_selector_single));
    }
    for (size_t i = 1; leat_router_at(i) != NULL; i++) {
        EXPECT(strcmp(leat_router_at(i - 1)->name, leat_router_at(i)->name) < 0);
    }
    for (size_t i = 1; leat_selector_at(i) != NULL; i++) {
        EXPECT(strcmp(leat_selector_at(i - 1)->name, leat_selector_at(i)->name) < 0);
    }
    EXPECT(leat_router_at(SIZE_MAX) == NULL && leat_selector_at(SIZE_MAX) == NULL);
}

static void
test_fcfs_picks_idle_then_soonest(void)
{
    struct leat_sched_worker workers[WORKERS];
    struct leat_sched_query queries[QUERIES];
    struct leat_route_pair pairs[4];
    uint64_t class_ns[2 * 64] = {0};
    uint32_t answered = 0;

    for (int round = 0; round < ROUNDS; round++) {
        const uint32_t pending = (uint32_t)below(3);
        random_queries(queries, pending);
        const struct leat_route_input input = {
            .now_ns = 1000,
            .pending = queries,
            .pending_count = pending,
            .workers = workers,
            .worker_count = random_workers(workers),
            .class_count = 2,
            .items_max = 1,
            .mean = predict_table,
            .profiles = class_ns,
        };
        class_ns[1] = below(3);      /* 0: unknown */
        class_ns[64 + 1] = below(3); /* of class 1 */
        const uint64_t rank_ns[2] = {class_ns[1] - 1, class_ns[64 + 1] - 1}; /* unknown last */
        const uint32_t count = leat_router_fcfs.route(NULL, &input, pairs, 4);
        bool room = false;
        for (uint32_t w = 0; w < input.worker_count; w++) {
            room = room || workers[w].outstanding < workers[w].depth;
        }
        EXPECT(count == (room && pending > 0 ? 1 : 0));
        if (count == 0) {
            continue;
        }
        const struct leat_sched_worker *chosen = &workers[pairs[0].worker];
        EXPECT(pairs[0].query == 0 && pairs[0].worker < input.worker_count);
        EXPECT(chosen->outstanding < chosen->depth);
        for (uint32_t w = 0; w < input.worker_count; w++) { /* nobody was better */
            if (workers[w].outstanding < workers[w].depth && w != pairs[0].worker) {
                const bool idle = workers[w].outstanding == 0;
                const bool chosen_idle = chosen->outstanding == 0;
                const uint64_t rank = rank_ns[workers[w].worker_class], chosen_rank = rank_ns[chosen->worker_class];
                EXPECT(!idle || (chosen_idle && (chosen_rank < rank || (chosen_rank == rank && pairs[0].worker < w))));
                EXPECT(idle || chosen_idle || workers[w].free_at_ns > chosen->free_at_ns ||
                       (workers[w].free_at_ns == chosen->free_at_ns && pairs[0].worker < w));
            }
        }
        answered++;
        EXPECT(leat_router_fcfs.route(NULL, &input, pairs, 0) == 0);
    }
    EXPECT(answered > ROUNDS / 10);
}

static void
test_round_robin_takes_turns(void)
{
    unsigned char state[64] = {0};
    struct leat_sched_worker workers[WORKERS];
    struct leat_sched_query query = {.items = 1, .deadline_ns = LEAT_NO_DEADLINE};
    struct leat_route_pair pair;
    uint32_t last = UINT32_MAX; /* who was served last */
    uint32_t served = 0;

    EXPECT(leat_router_round_robin.state_bytes <= sizeof(state));
    if (leat_router_round_robin.init != NULL) {
        EXPECT(leat_router_round_robin.init(state, &(struct leat_router_options){0}) == LEAT_OK);
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct leat_route_input input = {
            .pending = &query,
            .pending_count = 1,
            .workers = workers,
            .predict = predict_table,
        };
        (void)random_workers(workers);
        input.worker_count = WORKERS;
        const uint32_t count = leat_router_round_robin.route(state, &input, &pair, 1);
        /* The oracle: the first with room after the one served last, in a circle. */
        uint32_t expected = UINT32_MAX;
        for (uint32_t i = 1; i <= WORKERS && expected == UINT32_MAX; i++) {
            const uint32_t w = (last + i) % WORKERS; /* UINT32_MAX + 1 is worker 0 */
            if (workers[w].outstanding < workers[w].depth) {
                expected = w;
            }
        }
        EXPECT(count == (expected == UINT32_MAX ? 0 : 1));
        if (count == 1) {
            EXPECT(pair.query == 0 && pair.worker == expected);
            last = expected;
            served++;
        }
    }
    EXPECT(served > ROUNDS / 2);

    /* Workers go away: the turn may point past the end. */
    const struct leat_sched_worker one = {.depth = 1};
    const struct leat_route_input input = {
        .pending = &query, .pending_count = 1, .workers = &one, .worker_count = 1};
    EXPECT(leat_router_round_robin.route(state, &input, &pair, 1) == 1 && pair.worker == 0);
    const struct leat_route_input nobody = {.pending = &query, .pending_count = 1};
    EXPECT(leat_router_round_robin.route(state, &nobody, &pair, 1) == 0);
}

static uint64_t
start_of(const struct leat_select_input *input)
{
    return input->worker->free_at_ns > input->now_ns ? input->worker->free_at_ns : input->now_ns;
}

static bool
has_room(const struct leat_select_input *input, uint32_t v, uint32_t first, uint32_t k)
{
    uint32_t items = 0;
    for (uint32_t i = first; i < first + k; i++) {
        items += input->pending[i].items;
        if (input->pending[i].accuracy_floor_ppm > input->variants[v].accuracy_ppm) {
            return false;
        }
    }
    return items <= input->variants[v].items_max;
}

static uint64_t
end_of(const struct leat_select_input *input, uint32_t v, uint64_t start, uint32_t first, uint32_t k)
{
    uint32_t items = 0;
    for (uint32_t i = first; i < first + k; i++) {
        items += input->pending[i].items;
    }
    return start + predict_table(input->profiles, 0, v, input->worker->worker_class, items);
}

/* Is a batch of k queries from `first` on allowed by the statement in policy.h? */
static bool
batch_allowed(const struct leat_select_input *input, uint32_t v, uint64_t start, uint32_t first, uint32_t k)
{
    for (uint32_t i = first; i < first + k; i++) {
        const uint64_t deadline = input->pending[i].deadline_ns;
        if (end_of(input, v, start, i, 1) <= deadline && end_of(input, v, start, first, k) > deadline) {
            return false;
        }
    }
    return true;
}

/* The largest batch that is allowed, of those that there is room for. */
static uint32_t
largest(const struct leat_select_input *input, uint32_t v, uint64_t start, uint32_t first, uint32_t *ret_room)
{
    uint32_t k = 1, room = 0;
    while (first + room < input->pending_count && has_room(input, v, first, room + 1)) {
        room++;
        k = batch_allowed(input, v, start, first, room) ? room : k;
    }
    *ret_room = room;
    return k;
}

/* Does a batch of k from `first` on, kept small for one of them, make the next one late? */
static bool
harms(const struct leat_select_input *input, uint32_t v, uint32_t first, uint32_t k)
{
    const uint64_t end = end_of(input, v, start_of(input), first, k);
    const uint64_t next = start_of(input) + (end - start_of(input)) / input->worker_count;
    uint32_t room;
    const uint32_t behind = largest(input, v, next, first + k, &room);
    return input->idle_count <= 1 &&
           (behind < room || end_of(input, v, next, first + k, behind) > input->pending[first + k].deadline_ns);
}

/* Of those that alone would be in time, the first; of none, 0. */
static uint32_t
first_in_time(const struct leat_select_input *input, uint32_t v)
{
    for (uint32_t i = 0; i < input->pending_count; i++) {
        if (has_room(input, v, i, 1) && end_of(input, v, start_of(input), i, 1) <= input->pending[i].deadline_ns) {
            return i;
        }
    }
    return 0;
}

static void
test_selectors_match_brute_force(void)
{
    static uint64_t table[VARIANTS * 2 * 64];
    struct leat_sched_query queries[QUERIES];
    struct leat_sched_variant variants[VARIANTS];
    uint32_t batches = 0, refused = 0, hopeless_first = 0, given_up = 0, kept = 0, skipped = 0;

    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < LEAT_COUNT_OF(table); i++) {
            const uint64_t items = i % 64;
            table[i] = below(3) == 0 ? below(1500) : 100 + items * 40; /* with dips and spikes */
        }
        const uint32_t pending = 1 + (uint32_t)below(QUERIES);
        random_queries(queries, pending);
        for (uint32_t v = 0; v < VARIANTS; v++) {
            variants[v] = (struct leat_sched_variant){
                .accuracy_ppm = 700000 + (uint32_t)below(3) * 100000,
                .items_max = 1 + (uint32_t)below(16),
                .ready = below(4) != 0,
            };
        }
        const struct leat_sched_worker worker = {.free_at_ns = below(2000),
                                                 .worker_class = (uint16_t)below(2)};
        const struct leat_select_input input = {
            .now_ns = 1000,
            .pending = queries,
            .pending_count = pending,
            .variants = variants,
            .variant_count = (uint32_t)below(VARIANTS + 1),
            .worker = &worker,
            .worker_count = 1 + (uint32_t)below(3),
            .idle_count = (uint32_t)below(3),
            .predict = predict_table,
            .profiles = table,
        };
        const struct leat_selection got = leat_selector_fixed.select(NULL, &input);

        uint32_t v = 0, k = 0, room = 0, first = 0, other;
        for (; v < input.variant_count; v++) {
            if (variants[v].ready && variants[v].items_max >= queries[0].items &&
                variants[v].accuracy_ppm >= queries[0].accuracy_floor_ppm) {
                break;
            }
        }
        if (v < input.variant_count) {
            first = first_in_time(&input, v);
            k = largest(&input, v, start_of(&input), first, &room);
            EXPECT(k >= 1); /* alone is always allowed */
            EXPECT(got.variant == v && got.skip >= first);
        }
        if (got.skip > first) { /* as few as it takes for a batch that is larger, and not kept small */
            EXPECT(k < room && harms(&input, v, first, k) && got.queries > k);
            EXPECT(got.queries == largest(&input, v, start_of(&input), got.skip, &room) && got.queries == room);
            EXPECT(largest(&input, v, start_of(&input), got.skip - 1, &other) < other);
            given_up++;
        } else {
            EXPECT(got.queries == k);
            kept += k < room;
        }
        const struct leat_selection single = leat_selector_single.select(NULL, &input);
        EXPECT(single.queries == (k > 0) && (k == 0 || (single.variant == v && single.skip == first)));
        batches += k > 1;
        refused += k == 0;
        hopeless_first += k > 1 && queries[0].deadline_ns < 1000;
        skipped += first > 0;
    }
    EXPECT(batches > ROUNDS / 10 && refused > ROUNDS / 100 && hopeless_first > ROUNDS / 100);
    EXPECT(given_up > ROUNDS / 100 && kept > ROUNDS / 100 && skipped > ROUNDS / 100);
}

static void
test_fixed_survives_extreme_times(void)
{
    uint64_t table[VARIANTS * 2 * 64];
    const struct leat_sched_query queries[2] = {
        {.deadline_ns = UINT64_MAX - 1, .items = 1}, {.deadline_ns = LEAT_NO_DEADLINE, .items = 1}};
    const struct leat_sched_variant variant = {.items_max = 8, .ready = true};
    const struct leat_sched_worker worker = {.free_at_ns = UINT64_MAX - 10};
    const struct leat_select_input input = {
        .pending = queries, .pending_count = 2, .variants = &variant, .variant_count = 1,
        .worker = &worker, .worker_count = 1, .predict = predict_table, .profiles = table};

    memset(table, 0xff, sizeof(table));
    const struct leat_selection hopeless = leat_selector_fixed.select(NULL, &input);
    EXPECT(hopeless.skip == 1 && hopeless.queries == 1); /* who has no deadline is never late */
    table[1] = 1; /* alone the first is in time, two would wrap round */
    const struct leat_selection alone = leat_selector_fixed.select(NULL, &input);
    EXPECT(alone.skip == 0 && alone.queries == 1);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    test_names();
    test_fcfs_picks_idle_then_soonest();
    test_round_robin_takes_turns();
    test_selectors_match_brute_force();
    test_fixed_survives_extreme_times();
    return 0;
}
