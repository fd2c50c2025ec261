/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A budget's mixes are all found, bounds are the paper's, ranks and the choice are as stated, and Kairos+
 *          finds the best mix by measuring no more than it must.
 * Oracle   Mixes: all counts are tried. Bounds: bounds.csv, computed elsewhere from the equations, and cases worked out
 *          by hand. Rates: queries one by one. Order and choice: other algorithms. Kairos+: everything is measured.
 * Method   The paper's numbers; random spaces, tables and evaluators with a printed seed.
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "sched/pool.h"
#include "tests/leat_test.h"
#include "tests/sched/kairos.h"

enum { CANDIDATES_MAX = 1 << 16 };

static uint64_t random_state;
static struct kairos kairos;
static struct leat_pool_candidate candidates[CANDIDATES_MAX];

static uint64_t
below(uint64_t bound)
{
    return leat_test_random(&random_state) % bound;
}

static bool
is_near(double value, double expected)
{
    return fabs(value - expected) <= 1e-9 * fabs(expected);
}

static bool
is_mix(const struct leat_pool_candidate *candidate, uint16_t a, uint16_t b, uint16_t c, uint16_t d)
{
    const struct leat_pool_mix mix = {{a, b, c, d}};
    return memcmp(&candidate->mix, &mix, sizeof(mix)) == 0;
}

static uint32_t
enumerate(const struct leat_pool_space *space)
{
    uint32_t count;
    EXPECT(leat_pool_enumerate(space, candidates, CANDIDATES_MAX, &count) == LEAT_OK);
    return count;
}

/* ---- What a budget buys ------------------------------------------------------------------------ */

/* Goes through all counts, whatever they cost, and expects those to be listed that the budget buys, in this order. */
static uint32_t
expect_from(const struct leat_pool_space *space, uint32_t class, struct leat_pool_mix *mix, uint64_t cost, uint32_t at,
            uint32_t count)
{
    if (class == space->class_count) {
        if (mix->count[space->base] == 0 || cost > space->budget) {
            return at;
        }
        EXPECT(at < count && memcmp(&candidates[at].mix, mix, sizeof(*mix)) == 0);
        EXPECT(candidates[at].cost == cost && candidates[at].bound_qps == 0 && !candidates[at].pruned);
        return at + 1;
    }
    for (uint32_t n = 0; n <= space->classes[class].count_max; n++) {
        mix->count[class] = (uint16_t)n;
        at = expect_from(space, class + 1, mix, cost + n * space->classes[class].price, at, count);
    }
    mix->count[class] = 0;
    return at;
}

static void
test_all_mixes_of_random_spaces(void)
{
    for (int round = 0; round < 2000; round++) {
        struct leat_pool_space space = {.class_count = 1 + (uint32_t)below(LEAT_POOL_CLASSES_MAX)};
        struct leat_pool_mix mix = {{0}};
        const uint64_t price_max = 1 + below(40), count_max = space.class_count > 5 ? 2 : 5;
        uint32_t counted = 0;

        space.base = (uint32_t)below(space.class_count);
        space.budget = below(100);
        for (uint32_t c = 0; c < space.class_count; c++) {
            space.classes[c] = (struct leat_pool_class){below(price_max), (uint16_t)below(count_max + 1)};
        }
        const uint32_t count = enumerate(&space);
        EXPECT(expect_from(&space, 0, &mix, 0, 0, count) == count);
        EXPECT(leat_pool_enumerate(&space, NULL, CANDIDATES_MAX, &counted) == LEAT_OK && counted == count);
        EXPECT(leat_pool_enumerate(&space, candidates, count, &counted) == LEAT_OK && counted == count);
        if (count > 0) {
            counted = 12345;
            EXPECT(leat_pool_enumerate(&space, candidates, count - 1, &counted) == LEAT_ERR_LIMIT && counted == 12345);
        }
    }
}

static void
test_edges_of_spaces(void)
{
    /* Sums of these prices overflow. */
    struct leat_pool_space space = {.class_count = 2, .budget = UINT64_MAX,
                                    .classes = {{UINT64_MAX / 2, UINT16_MAX}, {UINT64_MAX / 3, UINT16_MAX}}};
    uint32_t count;
    EXPECT(enumerate(&space) == 3); /* (1,0), (1,1), (2,0) */
    EXPECT(is_mix(&candidates[1], 1, 1, 0, 0) && candidates[1].cost == UINT64_MAX / 2 + UINT64_MAX / 3);
    EXPECT(is_mix(&candidates[2], 2, 0, 0, 0));

    space = (struct leat_pool_space){.class_count = 8, .budget = UINT64_MAX, .classes = {{0, UINT16_MAX}}};
    for (uint32_t c = 0; c < 8; c++) { /* 65536^8 mixes: the limit ends it */
        space.classes[c] = (struct leat_pool_class){1, UINT16_MAX};
    }
    EXPECT(leat_pool_enumerate(&space, NULL, 1000000, &count) == LEAT_ERR_LIMIT);
    space.classes[0] = (struct leat_pool_class){1, 0};
    EXPECT(enumerate(&space) == 0);
    space.classes[0] = (struct leat_pool_class){2, 1};
    space.budget = 1;
    EXPECT(enumerate(&space) == 0);

    space.base = 8;
    EXPECT(leat_pool_enumerate(&space, candidates, CANDIDATES_MAX, &count) == LEAT_ERR_INVALID);
    space.class_count = 9;
    EXPECT(leat_pool_enumerate(&space, candidates, CANDIDATES_MAX, &count) == LEAT_ERR_INVALID);
    space.class_count = 0;
    space.base = 0;
    EXPECT(leat_pool_enumerate(&space, candidates, CANDIDATES_MAX, &count) == LEAT_ERR_INVALID);
}

/* ---- The paper's numbers ----------------------------------------------------------------------- */

static void
test_bounds_of_the_paper(void)
{
    const uint32_t count = enumerate(&kairos.space);
    EXPECT(count == KAIROS_MIXES);
    for (uint32_t i = 0; i < count; i++) {
        EXPECT(memcmp(&candidates[i].mix, &kairos.mixes[i], sizeof(candidates[i].mix)) == 0);
        for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
            EXPECT(is_near(leat_pool_bound(&kairos.rates[m], &candidates[i].mix), kairos.bounds_qps[m][i]));
        }
    }
}

/* Which class has which number changes nothing. */
static void
test_bounds_with_classes_in_any_order(void)
{
    for (int round = 0; round < 24; round++) {
        uint32_t to[KAIROS_TYPES] = {0, 1, 2, 3};
        for (uint32_t t = KAIROS_TYPES; t > 1; t--) {
            const uint32_t other = (uint32_t)below(t), kept = to[t - 1];
            to[t - 1] = to[other];
            to[other] = kept;
        }
        for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
            const struct leat_pool_rates *from = &kairos.rates[m];
            struct leat_pool_rates rates = {.class_count = KAIROS_TYPES, .base = to[0], .base_qps = from->base_qps};
            for (uint32_t k = 0; k < KAIROS_TYPES; k++) {
                rates.auxiliary[to[k]] = from->auxiliary[k];
                for (uint32_t c = 0; c < KAIROS_TYPES; c++) {
                    rates.auxiliary[to[k]].small_qps[to[c]] = from->auxiliary[k].small_qps[c];
                }
            }
            for (uint32_t i = 0; i < KAIROS_MIXES; i++) {
                struct leat_pool_mix mix = {{0}};
                for (uint32_t t = 0; t < KAIROS_TYPES; t++) {
                    mix.count[to[t]] = kairos.mixes[i].count[t];
                }
                EXPECT(is_near(leat_pool_bound(&rates, &mix), kairos.bounds_qps[m][i]));
            }
        }
    }
}

static void
test_choices_of_the_paper(void)
{
    static const struct {
        uint16_t mix[KAIROS_TYPES];
        uint32_t rank;
    } expected[KAIROS_MODELS] = {
        {{1, 0, 13, 0}, 0}, {{1, 0, 13, 0}, 0}, {{1, 0, 13, 0}, 0}, {{2, 0, 8, 1}, 2}, {{2, 0, 9, 0}, 0},
    };
    for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
        const uint32_t count = enumerate(&kairos.space);
        EXPECT(leat_pool_rank(&kairos.rates[m], candidates, count) == LEAT_OK);
        const struct leat_pool_candidate *chosen = leat_pool_select(candidates, count, kairos.space.base);
        EXPECT(chosen == &candidates[expected[m].rank]);
        EXPECT(is_mix(chosen, expected[m].mix[0], expected[m].mix[1], expected[m].mix[2], expected[m].mix[3]));
        EXPECT(chosen->cost <= 2500000);
    }
}

/* ---- Bounds worked out by hand ----------------------------------------------------------------- */

static void
test_bounds_by_hand(void)
{
    /* The base is class 1. Half the queries are small for class 0, and take the base a fifth of its time. */
    const struct leat_pool_rates rates = {
        .class_count = 3, .base = 1, .base_qps = 80,
        .auxiliary = {[0] = {100, 0.5, 0.2, {20, 0, 10}}, [2] = {50, 0.25, 0.1, {0, 0, 12}}},
    };
    static const struct {
        struct leat_pool_mix mix;
        double qps;
    } cases[] = {
        {{{0, 1, 0}}, 80}, /* bases alone */
        {{{0, 3, 0}}, 240},
        /* Qb+ = 80 * 0.5 / 0.8 = 50. One auxiliary: 20 / 0.5 + (1 - 20 / 50) * 80 */
        {{{1, 1, 0}}, 88},
        /* Both kinds: (20 + 10) / 0.5 + (1 - 30 / 50) * 80 */
        {{{1, 1, 1}}, 92},
        /* What they bring along is as much as the base can take: 50 / 0.5 */
        {{{2, 1, 1}}, 100},
        {{{9, 1, 0}}, 100},
        {{{9, 2, 0}}, 200},
        /* Class 2 alone: Qb+ = 80 * 0.75 / 0.9 = 66.67, 12 / 0.25 + (1 - 36 / 66.67) * 80 */
        {{{0, 1, 1}}, 84.8},
    };
    for (size_t i = 0; i < LEAT_COUNT_OF(cases); i++) {
        EXPECT(is_near(leat_pool_bound(&rates, &cases[i].mix), cases[i].qps));
    }

    struct leat_pool_rates edge = rates;
    const struct leat_pool_mix mix = {{3, 2, 1}};
    edge.auxiliary[0] = (struct leat_pool_auxiliary){UINT32_MAX, 1, 1, {20, 0, 10}}; /* good for everything */
    EXPECT(leat_pool_bound(&edge, &mix) == 3 * 20 + 2 * 80 + 10);
    edge.auxiliary[0] = edge.auxiliary[2] = (struct leat_pool_auxiliary){1, 0, 0, {0}}; /* good for nothing */
    EXPECT(leat_pool_bound(&edge, &mix) == 2 * 80);
    edge = rates;
    edge.auxiliary[2] = (struct leat_pool_auxiliary){100, 0.5, 0.2, {1, 0, 1}}; /* as large a share: the first counts */
    EXPECT(is_near(leat_pool_bound(&edge, &(struct leat_pool_mix){{1, 1, 1}}), 92));
}

static void
test_rates_out_of_range(void)
{
    const struct leat_pool_rates good = kairos.rates[0];
    const double bad[] = {-1, NAN, INFINITY};
    const uint32_t count = enumerate(&kairos.space);

    for (size_t i = 0; i < LEAT_COUNT_OF(bad); i++) {
        struct leat_pool_rates rates = good;
        rates.base_qps = bad[i];
        EXPECT(leat_pool_rank(&rates, candidates, count) == LEAT_ERR_INVALID);
        rates = good;
        rates.auxiliary[1].small_share = bad[i];
        EXPECT(leat_pool_rank(&rates, candidates, count) == LEAT_ERR_INVALID);
        rates = good;
        rates.auxiliary[1].base_time_share = bad[i];
        EXPECT(leat_pool_rank(&rates, candidates, count) == LEAT_ERR_INVALID);
        rates = good;
        rates.auxiliary[1].small_qps[3] = bad[i];
        EXPECT(leat_pool_rank(&rates, candidates, count) == LEAT_ERR_INVALID);
    }
    struct leat_pool_rates rates = good;
    rates.base_qps = 0;
    EXPECT(leat_pool_rank(&rates, candidates, count) == LEAT_ERR_INVALID);
    rates = good;
    rates.auxiliary[1].base_time_share = 1; /* of 0.985 of the queries */
    EXPECT(leat_pool_rank(&rates, candidates, count) == LEAT_ERR_INVALID);
    rates = good;
    rates.class_count = 9;
    EXPECT(leat_pool_rank(&rates, candidates, count) == LEAT_ERR_INVALID);
    EXPECT(leat_pool_rank(&good, candidates, count) == LEAT_OK);
}

/* ---- Order and choice -------------------------------------------------------------------------- */

/* Distinct mixes, with few values of everything, so that ties are frequent. */
static uint32_t
make_tied_candidates(void)
{
    struct leat_pool_space space = {.class_count = 3, .base = 1};
    for (uint32_t c = 0; c < 3; c++) { /* all of them free */
        space.classes[c].count_max = (uint16_t)(c == space.base ? 1 + below(4) : below(6));
    }
    const uint32_t count = enumerate(&space);
    for (uint32_t i = 0; i < count; i++) {
        candidates[i].bound_qps = (double)below(4);
        candidates[i].cost = below(3);
    }
    for (uint32_t i = count; i > 1; i--) { /* in any order */
        const uint32_t j = (uint32_t)below(i);
        const struct leat_pool_candidate kept = candidates[i - 1];
        candidates[i - 1] = candidates[j];
        candidates[j] = kept;
    }
    return count;
}

static int
compare(const void *left, const void *right)
{
    const struct leat_pool_candidate *a = left, *b = right;
    if (a->bound_qps != b->bound_qps) {
        return a->bound_qps > b->bound_qps ? -1 : 1;
    }
    if (a->cost != b->cost) {
        return a->cost < b->cost ? -1 : 1;
    }
    for (uint32_t c = 0; c < 3; c++) {
        if (a->mix.count[c] != b->mix.count[c]) {
            return a->mix.count[c] < b->mix.count[c] ? -1 : 1;
        }
    }
    return 0;
}

static void
test_order_with_ties(void)
{
    static struct leat_pool_candidate sorted[6 * 4 * 6];
    for (int round = 0; round < 1000; round++) {
        const uint32_t count = make_tied_candidates();
        EXPECT(count <= LEAT_COUNT_OF(sorted));
        memcpy(sorted, candidates, count * sizeof(*sorted));
        qsort(sorted, count, sizeof(*sorted), compare);
        leat_pool_sort(candidates, count);
        for (uint32_t i = 0; i < count; i++) {
            EXPECT(compare(&sorted[i], &candidates[i]) == 0);
        }
    }
    leat_pool_sort(candidates, 0);
}

/* n |x|^2 - 2 x * (sum of y) + sum of |y|^2 is the sum of squared distances from x to all y. */
static const struct leat_pool_candidate *
middle(uint32_t count)
{
    int64_t sums[3] = {0}, squares = 0, least = INT64_MAX;
    const struct leat_pool_candidate *chosen = NULL;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t c = 0; c < 3; c++) {
            const int64_t n = candidates[i].mix.count[c];
            sums[c] += n;
            squares += n * n;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        int64_t sum = squares;
        for (uint32_t c = 0; c < 3; c++) {
            const int64_t n = candidates[i].mix.count[c];
            sum += count * n * n - 2 * n * sums[c];
        }
        if (sum < least) {
            least = sum;
            chosen = &candidates[i];
        }
    }
    return chosen;
}

static void
test_choice(void)
{
    uint32_t firsts = 0, middles = 0;
    for (int round = 0; round < 3000; round++) {
        const uint32_t all = make_tied_candidates(), count = 1 + (uint32_t)below(all < 15 ? all : 15);
        bool same = true;
        leat_pool_sort(candidates, all);
        for (uint32_t i = 0; i < count && i < 3; i++) {
            same &= candidates[i].mix.count[1] == candidates[0].mix.count[1];
        }
        const struct leat_pool_candidate *chosen = leat_pool_select(candidates, count, 1);
        EXPECT(chosen == (same ? &candidates[0] : middle(count < 10 ? count : 10)));
        firsts += same;
        middles += !same && chosen != &candidates[0];
    }
    EXPECT(firsts > 100 && middles > 100);
}

/* ---- Rates from latencies and sizes ------------------------------------------------------------ */

enum { ITEMS_MAX = 40, QUERIES_MAX = 400 };

struct table {
    uint64_t high_ns[LEAT_POOL_CLASSES_MAX][ITEMS_MAX + 1], mean_ns[LEAT_POOL_CLASSES_MAX][ITEMS_MAX + 1];
};

static uint64_t
high_of(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct table *table = profiles;
    EXPECT(application == 3 && variant == 7);
    return table->high_ns[worker_class][items];
}

static uint64_t
mean_of(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct table *table = profiles;
    EXPECT(application == 3 && variant == 7);
    return table->mean_ns[worker_class][items];
}

/* Query by query. */
static void
expect_rates(const struct leat_pool_rates *rates, const struct table *table, const uint32_t *queries, uint32_t count,
             uint64_t objective_ns)
{
    double all_ns = 0;
    for (uint32_t q = 0; q < count; q++) {
        all_ns += (double)table->mean_ns[rates->base][queries[q]];
    }
    EXPECT(is_near(rates->base_qps, count / (all_ns / 1e9)));
    for (uint32_t k = 0; k < rates->class_count; k++) {
        uint32_t cut_items = 1, small = 0;
        double base_ns = 0;
        for (bool late = false; !late && cut_items <= ITEMS_MAX; cut_items += !late) {
            for (uint32_t q = 0; q < count; q++) {
                late |= queries[q] == cut_items && table->high_ns[k][cut_items] > objective_ns;
            }
        }
        for (uint32_t q = 0; q < count; q++) {
            small += queries[q] < cut_items;
            base_ns += queries[q] < cut_items ? (double)table->mean_ns[rates->base][queries[q]] : 0;
        }
        const struct leat_pool_auxiliary *auxiliary = &rates->auxiliary[k];
        EXPECT(auxiliary->cut_items == (cut_items <= ITEMS_MAX ? cut_items : UINT32_MAX));
        EXPECT(is_near(auxiliary->small_share, (double)small / count));
        EXPECT(is_near(auxiliary->base_time_share, base_ns / all_ns));
        EXPECT(k != rates->base || (auxiliary->small_share == 1 && auxiliary->base_time_share == 1));
        for (uint32_t c = 0; c < rates->class_count; c++) {
            double ns = 0;
            for (uint32_t q = 0; q < count; q++) {
                ns += queries[q] < cut_items ? (double)table->mean_ns[c][queries[q]] : 0;
            }
            EXPECT(is_near(auxiliary->small_qps[c], small > 0 ? small / (ns / 1e9) : 0));
        }
    }
}

static void
test_rates_from_tables(void)
{
    for (int round = 0; round < 2000; round++) {
        struct leat_pool_space space = {.class_count = 1 + (uint32_t)below(LEAT_POOL_CLASSES_MAX)};
        struct leat_pool_size sizes[ITEMS_MAX];
        struct leat_pool_rates rates;
        static struct table table;
        static uint32_t queries[QUERIES_MAX];
        const uint64_t objective_ns = 1000 + below(100000);
        const bool means = below(2) == 0;
        uint32_t size_count = 0, count = 0;

        space.base = (uint32_t)below(space.class_count);
        for (uint32_t c = 0; c < space.class_count; c++) {
            const uint64_t first_ns = 1 + below(1000), item_ns = below(2 * objective_ns / ITEMS_MAX);
            for (uint32_t items = 1; items <= ITEMS_MAX; items++) { /* not quite monotone */
                const uint64_t ns = first_ns + item_ns * items + below(objective_ns / 10);
                table.high_ns[c][items] = c == space.base && ns > objective_ns ? objective_ns : ns;
                table.mean_ns[c][items] = means ? 1 + below(table.high_ns[c][items]) : table.high_ns[c][items];
            }
        }
        while (size_count == 0 || (size_count < ITEMS_MAX && below(12) != 0)) { /* a size may come twice */
            const uint32_t items = 1 + (uint32_t)below(ITEMS_MAX), weight = (uint32_t)below(10) + (size_count == 0);
            sizes[size_count++] = (struct leat_pool_size){items, weight};
            for (uint32_t n = 0; n < weight; n++) {
                queries[count++] = items;
            }
        }
        EXPECT(count <= QUERIES_MAX);
        const struct leat_pool_workload workload = {.predict = high_of, .mean = means ? mean_of : NULL, .profiles = &table,
                                                    .application = 3, .variant = 7, .objective_ns = objective_ns,
                                                    .sizes = sizes, .size_count = size_count};
        EXPECT(leat_pool_rates(&space, &workload, &rates) == LEAT_OK);
        EXPECT(rates.class_count == space.class_count && rates.base == space.base);
        expect_rates(&rates, &table, queries, count, objective_ns);
    }
}

static void
test_rates_refused(void)
{
    static struct table table;
    struct leat_pool_space space = {.class_count = 2};
    struct leat_pool_size sizes[] = {{10, 1}, {20, 1}, {30, 0}};
    struct leat_pool_workload workload = {.predict = high_of, .mean = mean_of, .profiles = &table, .application = 3,
                                          .variant = 7, .objective_ns = 100, .sizes = sizes, .size_count = 3};
    struct leat_pool_rates rates;

    for (uint32_t c = 0; c < 2; c++) { /* nothing is asked about a size that never comes */
        table.high_ns[c][10] = table.high_ns[c][20] = 100;
        table.mean_ns[c][10] = table.mean_ns[c][20] = 50;
    }
    EXPECT(leat_pool_rates(&space, &workload, &rates) == LEAT_OK && rates.base_qps == 2e7);

    struct leat_pool_rates kept = rates;
    table.high_ns[0][20] = 101; /* base late */
    EXPECT(leat_pool_rates(&space, &workload, &rates) == LEAT_ERR_INVALID);
    table.high_ns[0][20] = 0; /* unknown */
    EXPECT(leat_pool_rates(&space, &workload, &rates) == LEAT_ERR_INVALID);
    table.high_ns[0][20] = 100;
    table.mean_ns[1][20] = 0;
    EXPECT(leat_pool_rates(&space, &workload, &rates) == LEAT_ERR_INVALID);
    table.mean_ns[1][20] = 50;
    static const double bad[] = {-1, NAN, INFINITY};
    for (size_t i = 0; i < LEAT_COUNT_OF(bad); i++) {
        sizes[1].weight = bad[i];
        EXPECT(leat_pool_rates(&space, &workload, &rates) == LEAT_ERR_INVALID);
    }
    sizes[0].weight = sizes[1].weight = 0;
    EXPECT(leat_pool_rates(&space, &workload, &rates) == LEAT_ERR_INVALID);
    sizes[0] = (struct leat_pool_size){0, 1};
    EXPECT(leat_pool_rates(&space, &workload, &rates) == LEAT_ERR_INVALID);
    sizes[0] = (struct leat_pool_size){10, 1};
    space.base = 2;
    EXPECT(leat_pool_rates(&space, &workload, &rates) == LEAT_ERR_INVALID);
    EXPECT(memcmp(&rates, &kept, sizeof(rates)) == 0);
    space.base = 1;
    EXPECT(leat_pool_rates(&space, &workload, &rates) == LEAT_OK);
}

/* ---- Kairos+ ----------------------------------------------------------------------------------- */

enum { SEARCHED_MAX = 400 };
enum evaluator { MEASURES, RACES };

static double throughput[SEARCHED_MAX]; /* of candidates, by their index */

static bool
is_part_of(const struct leat_pool_mix *part, const struct leat_pool_mix *whole)
{
    for (uint32_t c = 0; c < LEAT_POOL_CLASSES_MAX; c++) {
        if (part->count[c] > whole->count[c]) {
            return false;
        }
    }
    return true;
}

/* Runs the search to its end. A race tells no more than who won, and by how much at least. Returns mixes measured. */
static uint32_t
search_for(uint32_t count, enum evaluator evaluator, double best_qps, uint32_t *visited)
{
    const struct leat_pool_candidate *candidate;
    struct leat_pool_search search;
    uint32_t measured = 0;

    leat_pool_search_init(&search, candidates, count);
    while ((candidate = leat_pool_search_next(&search)) != NULL) {
        const uint32_t i = (uint32_t)(candidate - candidates);
        EXPECT(leat_pool_search_next(&search) == candidate && measured == search.measured);
        /* The least that is needed: it may still be the best, and is no part of one that was measured. */
        EXPECT(candidate->bound_qps > search.best_qps && (evaluator == RACES || candidate->bound_qps >= best_qps));
        for (uint32_t v = 0; v < measured; v++) {
            EXPECT(visited[v] < i && !is_part_of(&candidate->mix, &candidates[visited[v]].mix));
        }
        const double incumbent_qps = search.best == NULL ? 0 : throughput[search.best - candidates];
        if (evaluator == MEASURES) {
            leat_pool_search_report(&search, throughput[i]);
        } else if (throughput[i] > incumbent_qps) {
            leat_pool_search_report(&search, (incumbent_qps + throughput[i]) / 2);
        } else {
            leat_pool_search_not_better(&search);
        }
        visited[measured++] = i;
        EXPECT(search.measured == measured);
    }
    if (best_qps > 0) {
        EXPECT(throughput[search.best - candidates] == best_qps);
        EXPECT(evaluator == RACES || search.best_qps == best_qps);
    } else {
        EXPECT(search.best == NULL && search.best_qps == 0);
    }
    EXPECT(leat_pool_search_next(&search) == NULL);
    return measured;
}

static double
best_of_all(uint32_t count)
{
    double best_qps = 0;
    for (uint32_t i = 0; i < count; i++) {
        best_qps = throughput[i] > best_qps ? throughput[i] : best_qps;
    }
    return best_qps;
}

/* Throughput: the largest of random values of all parts of a mix, so more never serve less. Bounds: any above it. */
static void
test_search_with_any_evaluator(void)
{
    static uint64_t values[SEARCHED_MAX];
    static uint32_t visited[SEARCHED_MAX], raced[SEARCHED_MAX];
    uint64_t searched = 0, measured = 0;

    for (int round = 0; round < 3000; round++) {
        struct leat_pool_space space = {.class_count = 1 + (uint32_t)below(4), .budget = 1 + below(60)};
        const uint64_t value_max = 1 + below(3) * below(1000), slack_max = 1 + below(2) * below(1 + value_max);
        for (uint32_t c = 0; c < space.class_count; c++) {
            space.classes[c] = (struct leat_pool_class){1 + below(20), (uint16_t)(1 + below(6))};
        }
        space.base = (uint32_t)below(space.class_count);
        uint32_t count;
        if (leat_pool_enumerate(&space, candidates, SEARCHED_MAX, &count) != LEAT_OK) {
            continue;
        }
        for (uint32_t i = 0; i < count; i++) { /* parts come before the whole */
            values[i] = below(value_max);
            for (uint32_t j = 0; j < i; j++) {
                if (values[j] > values[i] && is_part_of(&candidates[j].mix, &candidates[i].mix)) {
                    values[i] = values[j];
                }
            }
            candidates[i].bound_qps = (double)(values[i] + below(slack_max));
            candidates[i].cost = values[i]; /* goes along when sorted */
        }
        leat_pool_sort(candidates, count);
        for (uint32_t i = 0; i < count; i++) {
            throughput[i] = (double)candidates[i].cost;
        }
        const double best_qps = best_of_all(count);
        const uint32_t few = search_for(count, MEASURES, best_qps, visited);
        EXPECT(search_for(count, RACES, best_qps, raced) >= few);
        searched += count;
        measured += few;
    }
    printf("Kairos+ measured %.1f %% of random mixes\n", 100.0 * (double)measured / (double)searched);
    EXPECT(measured * 4 < searched);
}

/*
 * The paper's bounds, which do not always grow with the mix: throughput is what 0.95 of the bounds of all mixes that hold
 * this one allow, so that more never serve less.
 */
static void
test_search_with_the_bounds_of_the_paper(void)
{
    static uint32_t visited[KAIROS_MIXES], raced[KAIROS_MIXES];
    for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
        const uint32_t count = enumerate(&kairos.space);
        EXPECT(leat_pool_rank(&kairos.rates[m], candidates, count) == LEAT_OK);
        for (uint32_t i = 0; i < count; i++) {
            throughput[i] = INFINITY;
            for (uint32_t j = 0; j < count; j++) {
                if (is_part_of(&candidates[i].mix, &candidates[j].mix)) {
                    throughput[i] = fmin(throughput[i], 0.95 * candidates[j].bound_qps);
                }
            }
        }
        const double best_qps = best_of_all(count);
        const uint32_t measured = search_for(count, MEASURES, best_qps, visited);
        EXPECT(measured * 20 <= count);
        const uint32_t in_races = search_for(count, RACES, best_qps, raced);
        printf("Kairos+ on %s: %u of %u mixes measured, %u raced\n", kairos_models[m], measured, count, in_races);
    }
}

/* A race that is lost tells as much as a measured value that is no better. */
static void
test_not_better_is_a_lesser_value(void)
{
    struct leat_pool_search a, b;
    const uint32_t count = enumerate(&kairos.space);
    static struct leat_pool_candidate others[KAIROS_MIXES];
    EXPECT(leat_pool_rank(&kairos.rates[3], candidates, count) == LEAT_OK);
    memcpy(others, candidates, sizeof(others));
    leat_pool_search_init(&a, candidates, count);
    leat_pool_search_init(&b, others, count);
    EXPECT(leat_pool_search_next(&a) == &candidates[0] && leat_pool_search_next(&b) == &others[0]);
    leat_pool_search_report(&a, 0); /* serves nothing */
    leat_pool_search_not_better(&b);
    EXPECT(a.best == NULL && b.best == NULL);
    for (bool first = true; leat_pool_search_next(&a) != NULL; first = false) {
        EXPECT(leat_pool_search_next(&a) - candidates == leat_pool_search_next(&b) - others);
        if (first) {
            leat_pool_search_report(&a, 900);
            leat_pool_search_report(&b, 900);
        } else {
            leat_pool_search_report(&a, 900); /* as good is not better */
            leat_pool_search_not_better(&b);
        }
    }
    EXPECT(leat_pool_search_next(&b) == NULL && a.measured == b.measured && a.measured > 2);
    EXPECT(a.best - candidates == b.best - others && a.best_qps == 900);
    EXPECT(a.best == &candidates[1]); /* not part of the first */

    leat_pool_search_init(&a, candidates, 0);
    EXPECT(leat_pool_search_next(&a) == NULL && a.best == NULL);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    printf("seed %llu\n", (unsigned long long)leat_test_seed);
    kairos_read(&kairos);
    test_all_mixes_of_random_spaces();
    test_edges_of_spaces();
    test_bounds_of_the_paper();
    test_bounds_with_classes_in_any_order();
    test_choices_of_the_paper();
    test_bounds_by_hand();
    test_rates_out_of_range();
    test_order_with_ties();
    test_choice();
    test_rates_from_tables();
    test_rates_refused();
    test_search_with_any_evaluator();
    test_search_with_the_bounds_of_the_paper();
    test_not_better_is_a_lesser_value();
    return 0;
}
