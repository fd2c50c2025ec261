/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Laxity: keep dear workers for what only they can do in time, and let nobody wait until only they can.
 *
 * Classes stand in the order of the price of their time (below). Whenever workers are idle:
 *   1. From the dearest class down, queries that no cheaper class could still serve in time, by earliest deadline. The
 *      cheapest class has no cheaper one; there the order is deadline - 0.7 * time, between earliest deadline and
 *      least laxity (deadline - time) first: large queries are the first that a cheap class can no longer serve, but when
 *      time is short, small ones are the cheaper to save.
 *   2. Idle workers that are left, from the cheapest class up, take the largest query that they can serve in time: its advantage
 *      from a fast worker is the largest. Holding a dear worker back for what might come lost in every experiment.
 *   3. Late is late: a query that nobody can serve in time any more runs when nothing else can, and only where its time
 *      costs about the least.
 *
 * The price of a class's time is the dual of the fluid problem behind all routing here: serve as many queries a second as
 * possible, each size on classes that meet its objective, no class busier than its workers. The dual says
 *      maximise  E[min over classes of price * time]  subject to  sum over workers of price = 1,
 * and is solved along the way by multiplicative weights: each dispatched query goes, in thought, to its cheapest class, and
 * prices move up where the load is above the mean, down where below.
 */
#include "sched/policy.h"

#include <string.h>

#include "base/align.h"

#ifndef WINDOW
#define WINDOW 128u
#endif
#ifndef ALPHA
#define ALPHA 7
#endif
#ifndef ALPHA_DEAR
#define ALPHA_DEAR 0
#endif /* the oldest queries, that is how many are looked at */
#define BEST_EFFORT_NS  (UINT64_C(1) << 60) /* what has no deadline comes after all that has one, oldest first */
#define TIME_MAX_NS     (UINT64_C(1) << 58)
#define PRICE_STEP      (1.0 / 1024)
#define PRICE_MIN       1e-6
#define LATE_TOLERANCE  1.1 /* prices are estimates */

struct laxity {
    bool priced;
    uint32_t counts[LEAT_SCHED_CLASSES_MAX]; /* of workers, when prices were last normalised */
    double prices[LEAT_SCHED_CLASSES_MAX];   /* sum of counts * prices = 1 */
    double query_cost_ns;                    /* EWMA of min over classes of price * time */
};

/* What one call knows. */
struct view {
    const struct leat_route_input *input;
    struct leat_route_pair *pairs;
    uint32_t pair_count, pairs_max, pending;
    uint32_t counts[LEAT_SCHED_CLASSES_MAX]; /* workers of each class */
    uint32_t idle[LEAT_SCHED_CLASSES_MAX];
    uint32_t order[LEAT_SCHED_CLASSES_MAX], order_count; /* classes that have workers, dearest first */
    uint64_t soonest_ns[LEAT_SCHED_CLASSES_MAX];         /* when one of the class is free */
    uint64_t free_ns[LEAT_SCHED_WORKERS_MAX];            /* 0: idle */
    bool taken[WINDOW];
    uint64_t deadline_ns[WINDOW];
    uint64_t mean_ns[LEAT_SCHED_CLASSES_MAX][WINDOW], high_ns[LEAT_SCHED_CLASSES_MAX][WINDOW];
};

static uint64_t
time_ns(const struct leat_route_input *input, leat_predict_fn predict, uint32_t class, uint32_t items)
{
    const uint64_t ns = predict(input->profiles, input->application, input->variant, (uint16_t)class, items);
    return ns < TIME_MAX_NS ? ns : TIME_MAX_NS;
}

static void
find_soonest(struct view *view, uint32_t class)
{
    const struct leat_route_input *input = view->input;
    uint64_t soonest = UINT64_MAX;
    for (uint32_t w = 0; w < input->worker_count; w++) {
        if (input->workers[w].worker_class == class && view->free_ns[w] < soonest) {
            soonest = view->free_ns[w];
        }
    }
    view->soonest_ns[class] = soonest < input->now_ns ? input->now_ns : soonest;
}

/* False when nobody is idle. */
static bool
look_at_workers(struct view *view)
{
    const struct leat_route_input *input = view->input;
    uint32_t idle = 0;

    memset(view->counts, 0, sizeof(view->counts));
    memset(view->idle, 0, sizeof(view->idle));
    for (uint32_t w = 0; w < input->worker_count; w++) {
        const struct leat_sched_worker *worker = &input->workers[w];
        const bool is_idle = worker->outstanding == 0 && worker->depth > 0;
        view->counts[worker->worker_class]++;
        view->idle[worker->worker_class] += is_idle;
        idle += is_idle;
        view->free_ns[w] = is_idle                            ? 0
                           : worker->free_at_ns > input->now_ns ? worker->free_at_ns
                                                                : input->now_ns + 1; /* overdue */
    }
    return idle > 0;
}

static void
look_at_queries(struct view *view)
{
    const struct leat_route_input *input = view->input;
    for (uint32_t q = 0; q < view->pending; q++) {
        const struct leat_sched_query *query = &input->pending[q];
        const uint64_t last = query->arrival_ns + BEST_EFFORT_NS;
        view->deadline_ns[q] = query->deadline_ns < last ? query->deadline_ns : last;
        for (uint32_t o = 0; o < view->order_count; o++) {
            const uint32_t class = view->order[o];
            view->mean_ns[class][q] = time_ns(input, input->mean, class, query->items);
            view->high_ns[class][q] = time_ns(input, input->predict, class, query->items);
        }
    }
    memset(view->taken, 0, view->pending * sizeof(view->taken[0]));
}

/* ---- Prices ------------------------------------------------------------------------------------ */

/* Before anything was seen: a class is worth its speed at the largest size. */
static void
first_prices(struct laxity *laxity, const struct leat_route_input *input)
{
    for (uint32_t class = 0; class < LEAT_SCHED_CLASSES_MAX; class ++) {
        const uint64_t ns = class < input->class_count ? time_ns(input, input->mean, class, input->items_max) : 0;
        laxity->prices[class] = 1.0 / (double)(ns > 0 ? ns : 1);
    }
    laxity->query_cost_ns = 0;
    laxity->priced = true;
}

static void
normalise_prices(struct laxity *laxity, const uint32_t *counts)
{
    double sum = 0;
    for (uint32_t class = 0; class < LEAT_SCHED_CLASSES_MAX; class ++) {
        laxity->prices[class] = laxity->prices[class] > PRICE_MIN ? laxity->prices[class] : PRICE_MIN;
        sum += counts[class] * laxity->prices[class];
    }
    for (uint32_t class = 0; class < LEAT_SCHED_CLASSES_MAX; class ++) {
        laxity->prices[class] /= sum;
    }
    memcpy(laxity->counts, counts, sizeof(laxity->counts));
}

/* One step of multiplicative weights, with the query that was just given away. */
static void
learn_prices(struct laxity *laxity, const struct view *view, uint32_t q)
{
    const struct leat_sched_query *query = &view->input->pending[q];
    uint32_t cheapest = LEAT_SCHED_CLASSES_MAX;
    double cost_ns = 0;

    for (uint32_t o = 0; o < view->order_count; o++) {
        const uint32_t class = view->order[o];
        if (query->arrival_ns + view->high_ns[class][q] > view->deadline_ns[q]) {
            continue; /* not even at once */
        }
        const double ns = laxity->prices[class] * (double)view->mean_ns[class][q];
        if (cheapest == LEAT_SCHED_CLASSES_MAX || ns < cost_ns) {
            cheapest = class;
            cost_ns = ns;
        }
    }
    if (cheapest == LEAT_SCHED_CLASSES_MAX || cost_ns <= 0) {
        return;
    }
    laxity->query_cost_ns =
        laxity->query_cost_ns > 0 ? laxity->query_cost_ns + (cost_ns - laxity->query_cost_ns) / 64 : cost_ns;
    for (uint32_t o = 0; o < view->order_count; o++) {
        const uint32_t class = view->order[o];
        double load = 0; /* 1 where this class is as busy as the system can be on average */
        if (class == cheapest) {
            load = (double)view->mean_ns[class][q] / (view->counts[class] * laxity->query_cost_ns);
            load = load < 1 / (8 * PRICE_STEP) ? load : 1 / (8 * PRICE_STEP);
        }
        laxity->prices[class] *= 1 + PRICE_STEP * (load - 1);
    }
    normalise_prices(laxity, view->counts);
}

static void
sort_classes(const struct laxity *laxity, struct view *view)
{
    view->order_count = 0;
    for (uint32_t class = 0; class < view->input->class_count; class ++) {
        if (view->counts[class] == 0) {
            continue;
        }
        uint32_t at = view->order_count++;
        for (; at > 0 && laxity->prices[view->order[at - 1]] < laxity->prices[class]; at--) {
            view->order[at] = view->order[at - 1];
        }
        view->order[at] = class;
    }
}

double
leat_laxity_price(const void *state, uint32_t worker_class)
{
    const struct laxity *laxity = state;
    LEAT_ASSERT(worker_class < LEAT_SCHED_CLASSES_MAX);
    return laxity->prices[worker_class];
}

/* ---- Choice ------------------------------------------------------------------------------------ */

static bool
in_time(const struct view *view, uint32_t class, uint64_t start_ns, uint32_t q)
{
    return start_ns + view->high_ns[class][q] <= view->deadline_ns[q];
}

/* Could a class that is cheaper than the one at `place` still serve it in time? */
static bool
cheaper_can(const struct view *view, uint32_t place, uint32_t q)
{
    for (uint32_t o = place + 1; o < view->order_count; o++) {
        if (in_time(view, view->order[o], view->soonest_ns[view->order[o]], q)) {
            return true;
        }
    }
    return false;
}

static bool
is_late(const struct view *view, uint32_t q)
{
    for (uint32_t o = 0; o < view->order_count; o++) {
        if (in_time(view, view->order[o], view->input->now_ns, q)) {
            return false;
        }
    }
    return true;
}

static bool
costs_least(const struct laxity *laxity, const struct view *view, uint32_t class, uint32_t q)
{
    const double here = laxity->prices[class] * (double)view->mean_ns[class][q];
    for (uint32_t o = 0; o < view->order_count; o++) {
        const uint32_t other = view->order[o];
        if (here > LATE_TOLERANCE * laxity->prices[other] * (double)view->mean_ns[other][q]) {
            return false;
        }
    }
    return true;
}

enum step { NEEDED, WELCOME, LATE };

/* The query with the least key for a worker of the class at `place`; `pending` for none. Ties: the oldest. */
static uint32_t
choose(const struct laxity *laxity, const struct view *view, enum step step, uint32_t place)
{
    const uint32_t class = view->order[place];
    const bool cheapest = place + 1 == view->order_count;
    uint32_t best = view->pending;
    uint64_t best_key = UINT64_MAX;

    for (uint32_t q = 0; q < view->pending; q++) {
        if (view->taken[q] || in_time(view, class, view->input->now_ns, q) == (step == LATE)) {
            continue;
        }
        uint64_t key;
        switch (step) {
        case NEEDED:
            if (cheaper_can(view, place, q)) {
                continue;
            }
            key = view->deadline_ns[q] + TIME_MAX_NS - (cheapest ? view->mean_ns[class][q] / 10 * 7 : 0);
            break;
        case WELCOME:
            key = UINT32_MAX - view->input->pending[q].items;
            break;
        default:
            if (!is_late(view, q) || !costs_least(laxity, view, class, q)) {
                continue;
            }
            key = view->mean_ns[class][q];
            break;
        }
        if (key < best_key) {
            best_key = key;
            best = q;
        }
    }
    return best;
}

static void
give(struct laxity *laxity, struct view *view, uint32_t q, uint32_t class)
{
    const struct leat_route_input *input = view->input;
    uint32_t worker = 0;

    while (input->workers[worker].worker_class != class || view->free_ns[worker] != 0) {
        worker++;
        LEAT_ASSERT(worker < input->worker_count);
    }
    view->pairs[view->pair_count++] = (struct leat_route_pair){.query = q, .worker = worker};
    view->taken[q] = true;
    view->idle[class]--;
    view->free_ns[worker] = input->now_ns + 1 + view->mean_ns[class][q];
    find_soonest(view, class);
    learn_prices(laxity, view, q);
}

static uint32_t
laxity_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    struct laxity *laxity = state;
    struct view view;

    view.input = input;
    view.pairs = pairs;
    view.pairs_max = pairs_max;
    view.pair_count = 0;
    view.pending = input->pending_count < WINDOW ? input->pending_count : WINDOW;
    LEAT_ASSERT(input->class_count <= LEAT_SCHED_CLASSES_MAX && input->worker_count <= LEAT_SCHED_WORKERS_MAX);
    if (view.pending == 0 || !look_at_workers(&view)) {
        return 0;
    }
    if (!laxity->priced) {
        first_prices(laxity, input);
    }
    if (memcmp(laxity->counts, view.counts, sizeof(view.counts)) != 0) {
        normalise_prices(laxity, view.counts);
    }
    sort_classes(laxity, &view);
    for (uint32_t o = 0; o < view.order_count; o++) {
        find_soonest(&view, view.order[o]);
    }
    look_at_queries(&view);
    for (enum step step = NEEDED; step <= LATE; step++) {
        for (uint32_t o = 0; o < view.order_count; o++) {
            const uint32_t place = step == NEEDED ? o : view.order_count - 1 - o;
            const uint32_t class = view.order[place];
            while (view.idle[class] > 0 && view.pair_count < pairs_max) {
                const uint32_t q = choose(laxity, &view, step, place);
                if (q == view.pending) {
                    break;
                }
                give(laxity, &view, q, class);
            }
        }
    }
    return view.pair_count;
}

const struct leat_router leat_router_laxity = {
    .name = "laxity", .state_bytes = sizeof(struct laxity), .per_query = true, .route = laxity_route};
