/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/pool.h"

#include <float.h>
#include <stddef.h>

#define SAME_BASE 3u  /* the first ones, whose base counts are compared */
#define NEAREST   10u /* the first ones, among which the middle one is chosen */

/* ---- What a budget buys ------------------------------------------------------------------------ */

static enum leat_status
check_space(const struct leat_pool_space *space)
{
    if (space->class_count < 1 || space->class_count > LEAT_POOL_CLASSES_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%u worker classes; a pool has 1 to %u", space->class_count,
                         LEAT_POOL_CLASSES_MAX);
    }
    if (space->base >= space->class_count) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "base class %u of %u", space->base, space->class_count);
    }
    return LEAT_OK;
}

/* The next mix in order; false past the last. Sums of prices stay within the budget, so nothing overflows. */
static bool
next_mix(const struct leat_pool_space *space, struct leat_pool_mix *mix, uint64_t *left)
{
    for (uint32_t c = space->class_count; c-- > 0;) {
        const struct leat_pool_class *class = &space->classes[c];
        const uint16_t least = c == space->base ? 1 : 0;
        if (mix->count[c] < class->count_max && class->price <= *left) {
            mix->count[c]++;
            *left -= class->price;
            return true;
        }
        *left += class->price * (uint64_t)(mix->count[c] - least);
        mix->count[c] = least;
    }
    return false;
}

enum leat_status
leat_pool_enumerate(const struct leat_pool_space *space, struct leat_pool_candidate *candidates,
                    uint32_t candidates_max, uint32_t *ret_count)
{
    struct leat_pool_mix mix = {{0}};
    uint32_t count = 0;

    const enum leat_status status = check_space(space);
    if (status != LEAT_OK) {
        return status;
    }
    const struct leat_pool_class *base = &space->classes[space->base];
    uint64_t left = space->budget;
    bool more = base->count_max >= 1 && base->price <= left;
    if (more) {
        mix.count[space->base] = 1;
        left -= base->price;
    }
    for (; more; more = next_mix(space, &mix, &left)) {
        if (count == candidates_max) {
            return LEAT_FAIL(LEAT_ERR_LIMIT, "the budget buys more than %u mixes; lower it or the counts of workers",
                             candidates_max);
        }
        if (candidates != NULL) {
            candidates[count] = (struct leat_pool_candidate){.mix = mix, .cost = space->budget - left};
        }
        count++;
    }
    *ret_count = count;
    return LEAT_OK;
}

/* ---- What classes are good for ----------------------------------------------------------------- */

static enum leat_status
predict(const struct leat_pool_workload *workload, leat_predict_fn function, uint32_t class, uint32_t items,
        uint64_t *ret_ns)
{
    *ret_ns = function(workload->profiles, workload->application, workload->variant, (uint16_t)class, items);
    if (*ret_ns == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "nothing is known of %u items on worker class %u; measure it first", items,
                         class);
    }
    return LEAT_OK;
}

/* Each class's first size that misses the objective. */
static enum leat_status
find_cuts(const struct leat_pool_workload *workload, struct leat_pool_rates *rates)
{
    for (uint32_t c = 0; c < rates->class_count; c++) {
        uint32_t *cut_items = &rates->auxiliary[c].cut_items;
        *cut_items = UINT32_MAX;
        for (uint32_t s = 0; s < workload->size_count; s++) {
            const struct leat_pool_size *size = &workload->sizes[s];
            uint64_t ns;
            if (size->weight == 0) {
                continue;
            }
            const enum leat_status status = predict(workload, workload->predict, c, size->items, &ns);
            if (status != LEAT_OK) {
                return status;
            }
            if (ns > workload->objective_ns && size->items < *cut_items) {
                *cut_items = size->items;
            }
        }
    }
    if (rates->auxiliary[rates->base].cut_items != UINT32_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "base class %u misses the objective of %llu ns at %u items; choose another",
                         rates->base, (unsigned long long)workload->objective_ns,
                         rates->auxiliary[rates->base].cut_items);
    }
    return LEAT_OK;
}

/* Weighted times of the queries that are small for one class. */
struct sums {
    double weight;
    double time_ns[LEAT_POOL_CLASSES_MAX]; /* on each class */
};

/* of[base], for which all queries are small, sums up everything. */
static enum leat_status
add_times(const struct leat_pool_workload *workload, const struct leat_pool_rates *rates, struct sums *of)
{
    const leat_predict_fn mean = workload->mean != NULL ? workload->mean : workload->predict;

    for (uint32_t s = 0; s < workload->size_count; s++) {
        const struct leat_pool_size *size = &workload->sizes[s];
        uint64_t mean_ns[LEAT_POOL_CLASSES_MAX];
        if (size->weight == 0) {
            continue;
        }
        for (uint32_t c = 0; c < rates->class_count; c++) {
            const enum leat_status status = predict(workload, mean, c, size->items, &mean_ns[c]);
            if (status != LEAT_OK) {
                return status;
            }
        }
        for (uint32_t k = 0; k < rates->class_count; k++) {
            if (size->items >= rates->auxiliary[k].cut_items) {
                continue;
            }
            of[k].weight += size->weight;
            for (uint32_t c = 0; c < rates->class_count; c++) {
                of[k].time_ns[c] += size->weight * (double)mean_ns[c];
            }
        }
    }
    return LEAT_OK;
}

static double
rate_qps(double weight, double time_ns)
{
    return weight > 0 ? weight * 1e9 / time_ns : 0;
}

enum leat_status
leat_pool_rates(const struct leat_pool_space *space, const struct leat_pool_workload *workload,
                struct leat_pool_rates *ret_rates)
{
    struct leat_pool_rates rates = {.class_count = space->class_count, .base = space->base};
    struct sums of[LEAT_POOL_CLASSES_MAX] = {0};
    bool any = false;

    enum leat_status status = check_space(space);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t s = 0; s < workload->size_count; s++) {
        const struct leat_pool_size *size = &workload->sizes[s];
        if (size->items == 0 || !(size->weight >= 0 && size->weight <= DBL_MAX)) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "size %u of the distribution: %u items with weight %g", s, size->items,
                             size->weight);
        }
        any |= size->weight > 0;
    }
    if (!any) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "the distribution of sizes has no query");
    }
    status = find_cuts(workload, &rates);
    if (status != LEAT_OK) {
        return status;
    }
    status = add_times(workload, &rates, of);
    if (status != LEAT_OK) {
        return status;
    }
    const struct sums *all = &of[rates.base];
    rates.base_qps = rate_qps(all->weight, all->time_ns[rates.base]);
    for (uint32_t k = 0; k < rates.class_count; k++) {
        struct leat_pool_auxiliary *auxiliary = &rates.auxiliary[k];
        auxiliary->small_share = of[k].weight / all->weight;
        auxiliary->base_time_share = of[k].time_ns[rates.base] / all->time_ns[rates.base];
        for (uint32_t c = 0; c < rates.class_count; c++) {
            auxiliary->small_qps[c] = rate_qps(of[k].weight, of[k].time_ns[c]);
        }
    }
    *ret_rates = rates;
    return LEAT_OK;
}

/* ---- Bound, rank and choice -------------------------------------------------------------------- */

double
leat_pool_bound(const struct leat_pool_rates *rates, const struct leat_pool_mix *mix)
{
    const struct leat_pool_auxiliary *strongest = NULL;
    double small_qps = 0; /* of all auxiliaries together */

    for (uint32_t c = 0; c < rates->class_count; c++) {
        const struct leat_pool_auxiliary *auxiliary = &rates->auxiliary[c];
        if (c != rates->base && mix->count[c] > 0 &&
            (strongest == NULL || auxiliary->small_share > strongest->small_share)) {
            strongest = auxiliary;
        }
    }
    const double base_qps = mix->count[rates->base] * rates->base_qps;
    if (strongest == NULL || strongest->small_share == 0) {
        return base_qps;
    }
    for (uint32_t c = 0; c < rates->class_count; c++) {
        if (c != rates->base) {
            small_qps += mix->count[c] * strongest->small_qps[c];
        }
    }
    const double small_share = strongest->small_share;
    if (small_share == 1) { /* none has to go to the base */
        return small_qps + base_qps;
    }
    const double large_qps = base_qps * (1 - small_share) / (1 - strongest->base_time_share);
    const double brought_qps = small_qps * (1 - small_share) / small_share; /* large ones that come with them, eq. 14 */
    if (large_qps <= brought_qps) {
        return large_qps / (1 - small_share);
    }
    return small_qps / small_share + (1 - brought_qps / large_qps) * base_qps;
}

static bool
within(double value, double most)
{
    return value >= 0 && value <= most; /* false for what is no number */
}

static enum leat_status
check_rates(const struct leat_pool_rates *rates)
{
    const struct leat_pool_space space = {.class_count = rates->class_count, .base = rates->base};
    const enum leat_status status = check_space(&space);
    if (status != LEAT_OK) {
        return status;
    }
    if (!(rates->base_qps > 0 && rates->base_qps <= DBL_MAX)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "base class %u serves %g queries/s", rates->base, rates->base_qps);
    }
    for (uint32_t k = 0; k < rates->class_count; k++) {
        const struct leat_pool_auxiliary *auxiliary = &rates->auxiliary[k];
        if (k == rates->base) {
            continue;
        }
        if (!within(auxiliary->small_share, 1) || !within(auxiliary->base_time_share, 1) ||
            (auxiliary->small_share < 1 && auxiliary->base_time_share == 1)) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "worker class %u: %g of the queries in %g of the base's time", k,
                             auxiliary->small_share, auxiliary->base_time_share);
        }
        for (uint32_t c = 0; c < rates->class_count; c++) {
            if (!within(auxiliary->small_qps[c], DBL_MAX)) {
                return LEAT_FAIL(LEAT_ERR_INVALID, "worker class %u serves %g queries/s of those small for class %u", c,
                                 auxiliary->small_qps[c], k);
            }
        }
    }
    return LEAT_OK;
}

/* A total order: no two mixes are equal. */
static bool
before(const struct leat_pool_candidate *a, const struct leat_pool_candidate *b)
{
    if (a->bound_qps != b->bound_qps) {
        return a->bound_qps > b->bound_qps;
    }
    if (a->cost != b->cost) {
        return a->cost < b->cost;
    }
    for (uint32_t c = 0; c < LEAT_POOL_CLASSES_MAX; c++) {
        if (a->mix.count[c] != b->mix.count[c]) {
            return a->mix.count[c] < b->mix.count[c];
        }
    }
    return false;
}

/* Puts `moved` where it belongs in the heap below `at`, which is free; the last in order is on top. */
static void
sift_down(struct leat_pool_candidate *heap, uint32_t count, uint32_t at, struct leat_pool_candidate moved)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= count) {
            break;
        }
        if (child + 1 < count && before(&heap[child], &heap[child + 1])) {
            child++;
        }
        if (!before(&moved, &heap[child])) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

void
leat_pool_sort(struct leat_pool_candidate *candidates, uint32_t count)
{
    /* By heap: qsort may allocate, and takes longer where the input is bad for it. */
    LEAT_ASSERT(count <= UINT32_MAX / 2);
    for (uint32_t at = count / 2; at-- > 0;) {
        sift_down(candidates, count, at, candidates[at]);
    }
    for (uint32_t end = count; end > 1;) {
        end--;
        const struct leat_pool_candidate moved = candidates[end];
        candidates[end] = candidates[0];
        sift_down(candidates, end, 0, moved);
    }
}

enum leat_status
leat_pool_rank(const struct leat_pool_rates *rates, struct leat_pool_candidate *candidates, uint32_t count)
{
    const enum leat_status status = check_rates(rates);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        candidates[i].bound_qps = leat_pool_bound(rates, &candidates[i].mix);
    }
    leat_pool_sort(candidates, count);
    return LEAT_OK;
}

static uint64_t
squared_distance(const struct leat_pool_mix *a, const struct leat_pool_mix *b)
{
    uint64_t sum = 0;
    for (uint32_t c = 0; c < LEAT_POOL_CLASSES_MAX; c++) {
        const int64_t difference = (int64_t)a->count[c] - b->count[c];
        sum += (uint64_t)(difference * difference);
    }
    return sum;
}

const struct leat_pool_candidate *
leat_pool_select(const struct leat_pool_candidate *candidates, uint32_t count, uint32_t base)
{
    const uint32_t first = count < SAME_BASE ? count : SAME_BASE, near = count < NEAREST ? count : NEAREST;
    const struct leat_pool_candidate *chosen = &candidates[0];
    uint64_t least = UINT64_MAX;
    uint32_t same = 0;

    LEAT_ASSERT(count >= 1 && base < LEAT_POOL_CLASSES_MAX);
    while (same < first && candidates[same].mix.count[base] == candidates[0].mix.count[base]) {
        same++;
    }
    if (same == first) {
        return chosen;
    }
    for (uint32_t i = 0; i < near; i++) {
        uint64_t sum = 0;
        for (uint32_t j = 0; j < near; j++) {
            sum += squared_distance(&candidates[i].mix, &candidates[j].mix);
        }
        if (sum < least) {
            least = sum;
            chosen = &candidates[i];
        }
    }
    return chosen;
}

/* ---- Kairos+ ----------------------------------------------------------------------------------- */

/* Ranked as they are, bounds that do not exceed the incumbent are the last ones. */
static void
drop_low_bounds(struct leat_pool_search *search)
{
    while (search->count > 0 && search->candidates[search->count - 1].bound_qps <= search->best_qps) {
        search->count--;
    }
}

void
leat_pool_search_init(struct leat_pool_search *search, struct leat_pool_candidate *candidates, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        LEAT_ASSERT(i == 0 || candidates[i].bound_qps <= candidates[i - 1].bound_qps);
        candidates[i].pruned = false;
    }
    *search = (struct leat_pool_search){.candidates = candidates, .count = count};
    drop_low_bounds(search);
}

const struct leat_pool_candidate *
leat_pool_search_next(struct leat_pool_search *search)
{
    while (search->at < search->count && search->candidates[search->at].pruned) {
        search->at++;
    }
    return search->at < search->count ? &search->candidates[search->at] : NULL;
}

static bool
has_no_more(const struct leat_pool_mix *mix, const struct leat_pool_mix *than)
{
    for (uint32_t c = 0; c < LEAT_POOL_CLASSES_MAX; c++) {
        if (mix->count[c] > than->count[c]) {
            return false;
        }
    }
    return true;
}

void
leat_pool_search_not_better(struct leat_pool_search *search)
{
    const struct leat_pool_candidate *measured = leat_pool_search_next(search);

    LEAT_ASSERT(measured != NULL); /* a report answers what was asked for */
    search->measured++;
    for (uint32_t i = search->at; i < search->count; i++) { /* itself among them */
        search->candidates[i].pruned |= has_no_more(&search->candidates[i].mix, &measured->mix);
    }
}

void
leat_pool_search_report(struct leat_pool_search *search, double qps)
{
    const struct leat_pool_candidate *measured = leat_pool_search_next(search);

    LEAT_ASSERT(qps >= 0);
    leat_pool_search_not_better(search);
    if (qps > search->best_qps) {
        search->best_qps = qps;
        search->best = measured;
        drop_low_bounds(search);
    }
}
