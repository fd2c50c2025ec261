/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Laxity: keep dear workers for what only they can do in time, and let nobody wait until only they can.
 *
 * Classes stand in the order of the price of their time (below). The home of a query is the cheapest class that can have
 * it done in time, waiting for a worker included: as the clock runs, a waiting query moves from cheap homes to dear ones.
 * While a dearer worker is idle, a class must be sure of it, if any is, by twice as much as the percentile is above the
 * mean: no query is left to luck without need. Whenever workers are idle they take, of the 128 oldest queries, not more
 * than 32 of which are past their deadline lest they hide the others, ties going to the oldest:
 *   1. From the dearest class down, what is at home with them, by earliest deadline (Liu and Layland, J. ACM 20, 1973). The
 *      cheapest class goes by deadline - 0.7 * time, between that and least laxity, deadline - time (Mok, PhD thesis, MIT
 *      1983): of equal deadlines the largest query is the first that will need a dear class; but when time is short, small
 *      ones are the cheaper to save, as in apparent tardiness cost (Vepsalainen and Morton, Management Science 33, 1987).
 *   2. Those left, from the cheapest class up, what waits for other classes that are busy, if it is in time here: the
 *      largest, which gains the most by a faster worker. Holding a dear worker back for what might come lost in every
 *      experiment.
 *   3. Late is late: what nobody can do in time any more, even at once, runs when nothing else can, oldest first, and
 *      only where it costs, in price * time, about the least: elsewhere it would keep others from being in time. When more
 *      are late than there are workers, all help.
 * So when not all can be in time, large queries are given up first, and what is late may wait for long.
 * A query without a deadline has one 36 years after its arrival. In step 1 it thus comes after all that have one; in step 2
 * size alone counts.
 *
 * The price of a class's time comes from the fluid problem behind all routing: serve as many queries a second as possible,
 * each size on classes that can meet its objective, no class busier than its workers. That is a linear programme. Its dual,
 *      maximise  E[min over classes of price * time]  subject to  sum over workers of price = 1,
 * has the inverse of the highest rate as its optimum, and says who should do what: each size belongs where price * time is
 * least, so by comparative advantage and not where it is fastest. It is solved along the way by multiplicative weights
 * (Arora, Hazan and Kale, Theory of Computing 8, 2012). Each query that is given away goes, in thought, to the class where
 * it costs least of those that could have had it in time when it came, or of all if none could; the price of that class
 * rises by 1/1024 of what its load is over the mean load, and all fall by 1/1024. At rest all classes that are worth
 * anything are equally busy. 20000 queries bring nearly all mixes of classes and sizes within 2 percent of the optimum
 * (tests/sched/test_laxity.c).
 *
 * O(queries * (classes + idle workers) + workers).
 */
#include "sched/policy.h"

#include <string.h>

#include "base/align.h"
#include "sched/route.h"

#define WINDOW         128u               /* queries that are looked at, the oldest; of them */
#define WINDOW_LATE    32u                /* as many are past their deadline: no more, lest they hide what can be in time */
#define DOUBT          2                  /* margins between mean and percentile that make sure */
#define BEST_EFFORT_NS (INT64_C(1) << 60) /* after its arrival: the deadline of what has none, or one still later */
#define TIME_MAX_NS    (UINT64_C(1) << 58)
#define FAR_NS         (UINT64_C(1) << 61) /* from now: what is farther counts as this far */
#define PRICE_STEP     (1.0 / 1024)
#define PRICE_MIN      1e-4  /* what is worth nothing now may be worth something again */
#define LOAD_MAX       128.0 /* one query moves a price by an eighth at most */
#define LATE_TOLERANCE 1.1   /* prices are estimates */

enum { NOWHERE = LEAT_SCHED_CLASSES_MAX, LATE }; /* instead of a place */

struct laxity {
    uint32_t known;                        /* bit by class: its time is in the first prices */
    double prices[LEAT_SCHED_CLASSES_MAX]; /* sum over workers = 1 */
    double query_cost_ns;                  /* EWMA of min over classes of price * time */
};

/* What one call knows. Classes that have workers stand in places, the dearest first. */
struct view {
    const struct leat_route_input *input;
    struct leat_route_pair *pairs;
    uint32_t pair_count, pairs_max, pending;
    uint32_t late;                                       /* of pending, those that nobody can do in time */
    uint32_t present;                                    /* bit by class that has workers */
    uint32_t order[LEAT_SCHED_CLASSES_MAX], order_count; /* class by place */
    uint32_t counts[LEAT_SCHED_CLASSES_MAX];             /* workers by class: those that take work at all, */
    uint32_t idle[LEAT_SCHED_CLASSES_MAX];               /* and of them those with nothing to do; */
    uint32_t next[LEAT_SCHED_CLASSES_MAX];               /* the first of these is not before */
    uint64_t wait_ns[LEAT_SCHED_CLASSES_MAX];            /* until one of the class is free */
    uint32_t idle_place;                                 /* the dearest class that has an idle worker */
    uint32_t given[WINDOW];                              /* by pair: the query */
    uint32_t index[WINDOW];                              /* of a query, into input->pending */
    bool taken[WINDOW];
    uint32_t home[WINDOW];    /* a place; NOWHERE: only a busy class could, if it were not; LATE: nobody could */
    int64_t slack_ns[WINDOW]; /* from now to the deadline */
};

static int64_t
ask(const struct view *view, leat_predict_fn predict, uint32_t class, uint32_t items)
{
    const struct leat_route_input *input = view->input;
    const uint64_t ns = predict(input->profiles, input->application, input->variant, (uint16_t)class, items);
    return (int64_t)(ns < TIME_MAX_NS ? ns : TIME_MAX_NS);
}

static int64_t
mean_ns(const struct view *view, uint32_t class, uint32_t q)
{
    return ask(view, view->input->mean, class, view->input->pending[view->index[q]].items);
}

static int64_t
high_ns(const struct view *view, uint32_t class, uint32_t q)
{
    return ask(view, view->input->predict, class, view->input->pending[view->index[q]].items);
}

static int64_t
from_now(const struct view *view, uint64_t then_ns)
{
    const uint64_t now_ns = view->input->now_ns;
    const uint64_t distance_ns = then_ns > now_ns ? then_ns - now_ns : now_ns - then_ns;
    const int64_t bounded_ns = (int64_t)(distance_ns < FAR_NS ? distance_ns : FAR_NS);
    return then_ns > now_ns ? bounded_ns : -bounded_ns;
}

/* False when nobody is idle. */
static bool
look_at_workers(struct view *view)
{
    const struct leat_route_input *input = view->input;
    uint32_t idle = 0;

    view->present = 0;
    for (uint32_t class = 0; class < LEAT_SCHED_CLASSES_MAX; class++) {
        view->counts[class] = view->idle[class] = view->next[class] = 0;
        view->wait_ns[class] = FAR_NS;
    }
    for (uint32_t w = 0; w < input->worker_count; w++) {
        const struct leat_sched_worker *worker = &input->workers[w];
        const uint32_t class = worker->worker_class;
        if (worker->depth == 0) {
            continue;
        }
        LEAT_ASSERT(class < input->class_count);
        uint64_t wait_ns = leat_route_wait_ns(input, worker);
        if (leat_route_is_idle(worker)) {
            view->idle[class]++;
            idle++;
        } else if (wait_ns == 0) {
            wait_ns = 1; /* overdue */
        }
        view->present |= UINT32_C(1) << class;
        view->counts[class]++;
        view->wait_ns[class] = wait_ns < view->wait_ns[class] ? wait_ns : view->wait_ns[class];
    }
    return idle > 0;
}

/* For its cap: then workers of the class look busy, and are not to be waited for. */
static bool
is_barred(const struct view *view, uint32_t class, uint32_t q)
{
    return (view->input->pending[view->index[q]].barred_classes >> class & 1) != 0;
}

static uint32_t
find_home(const struct view *view, uint32_t q)
{
    uint32_t unsure = NOWHERE;
    bool late = true;
    for (uint32_t place = view->order_count; place-- > 0;) {
        const uint32_t class = view->order[place];
        if (is_barred(view, class, q)) {
            continue;
        }
        const int64_t high = high_ns(view, class, q);
        const int64_t left_ns = view->slack_ns[q] - high, spare_ns = left_ns - (int64_t)view->wait_ns[class];
        if (spare_ns >= 0 && (place <= view->idle_place || spare_ns >= DOUBT * (high - mean_ns(view, class, q)))) {
            return place;
        }
        unsure = spare_ns >= 0 && unsure == NOWHERE ? place : unsure;
        late = late && left_ns < 0;
    }
    return late ? LATE : unsure;
}

static void
look_at_queries(struct view *view)
{
    const struct leat_route_input *input = view->input;
    uint32_t overdue = 0;

    view->pending = view->late = 0;
    view->idle_place = 0;
    while (view->idle[view->order[view->idle_place]] == 0) {
        view->idle_place++; /* there is one: look_at_workers said so */
    }
    for (uint32_t i = 0; i < input->pending_count && view->pending < WINDOW; i++) {
        const struct leat_sched_query *query = &input->pending[i];
        if (query->deadline_ns < input->now_ns && overdue++ >= WINDOW_LATE) {
            continue;
        }
        const uint32_t q = view->pending++;
        const int64_t slack_ns = from_now(view, query->deadline_ns);
        const int64_t most_ns = from_now(view, query->arrival_ns) + BEST_EFFORT_NS;
        view->index[q] = i;
        view->slack_ns[q] = slack_ns < most_ns ? slack_ns : most_ns;
        view->home[q] = find_home(view, q);
        view->late += view->home[q] == LATE;
        view->taken[q] = false;
    }
}

/* ---- Prices ------------------------------------------------------------------------------------ */

/*
 * Until more was seen, a class is worth its speed at the largest size; one of unknown speed as much as the fastest. Prices
 * begin anew when a class is met, and has a time, that none of them is based on.
 */
static void
first_prices(struct laxity *laxity, const struct view *view)
{
    uint64_t ns[LEAT_SCHED_CLASSES_MAX], least_ns = UINT64_MAX;
    uint32_t known = 0;

    for (uint32_t left = view->present; left != 0; left &= left - 1) {
        const uint32_t class = (uint32_t)__builtin_ctz(left);
        ns[class] = leat_route_class_ns(view->input, class);
        least_ns = ns[class] < least_ns ? ns[class] : least_ns;
        known |= (uint32_t)(ns[class] != UINT64_MAX) << class;
    }
    if ((known & ~laxity->known) == 0) {
        return;
    }
    for (uint32_t class = 0; class < LEAT_SCHED_CLASSES_MAX; class++) {
        laxity->prices[class] = (known >> class & 1) != 0 ? (double)least_ns / (double)ns[class] : 1;
    }
    laxity->known = known;
    laxity->query_cost_ns = 0;
}

/* A class without workers keeps the price that it had last. */
static void
normalise_prices(struct laxity *laxity, const struct view *view)
{
    double sum = 0;
    for (uint32_t o = 0; o < view->order_count; o++) {
        const uint32_t class = view->order[o];
        laxity->prices[class] = laxity->prices[class] > PRICE_MIN ? laxity->prices[class] : PRICE_MIN;
        sum += view->counts[class] * laxity->prices[class];
    }
    for (uint32_t o = 0; o < view->order_count; o++) {
        laxity->prices[view->order[o]] /= sum;
    }
}

/* One step of multiplicative weights, with a query that was given away. */
static void
learn_prices(struct laxity *laxity, const struct view *view, uint32_t q)
{
    const int64_t allowed_ns = view->slack_ns[q] - from_now(view, view->input->pending[view->index[q]].arrival_ns);
    uint32_t cheapest = NOWHERE;
    double cost_ns = 0, time_ns = 0;
    bool hopeless = true; /* nobody could have done it in time: then all classes may */

    for (uint32_t o = 0; o < view->order_count; o++) {
        hopeless = hopeless && high_ns(view, view->order[o], q) > allowed_ns;
    }
    for (uint32_t o = 0; o < view->order_count; o++) {
        const uint32_t class = view->order[o];
        const double here_ns = (double)mean_ns(view, class, q), cost_here_ns = laxity->prices[class] * here_ns;
        if ((cheapest == NOWHERE || cost_here_ns < cost_ns) && (hopeless || high_ns(view, class, q) <= allowed_ns)) {
            cheapest = class;
            cost_ns = cost_here_ns;
            time_ns = here_ns;
        }
    }
    if (cost_ns <= 0) {
        return; /* it is not known how long it takes */
    }
    laxity->query_cost_ns =
        laxity->query_cost_ns > 0 ? laxity->query_cost_ns + (cost_ns - laxity->query_cost_ns) / 64 : cost_ns;
    /* 1 where a class is as busy as the system can be on average */
    const double load = time_ns / (view->counts[cheapest] * laxity->query_cost_ns);
    for (uint32_t o = 0; o < view->order_count; o++) {
        const uint32_t class = view->order[o];
        const double excess = (class != cheapest ? 0 : load < LOAD_MAX ? load : LOAD_MAX) - 1;
        laxity->prices[class] *= 1 + PRICE_STEP * excess;
    }
}

static void
sort_classes(const struct laxity *laxity, struct view *view)
{
    view->order_count = 0;
    for (uint32_t left = view->present; left != 0; left &= left - 1) {
        const uint32_t class = (uint32_t)__builtin_ctz(left);
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
costs_least(const struct laxity *laxity, const struct view *view, uint32_t class, uint32_t q)
{
    const double here = laxity->prices[class] * (double)mean_ns(view, class, q);
    for (uint32_t o = 0; o < view->order_count; o++) {
        const uint32_t other = view->order[o];
        if (!is_barred(view, other, q) && here > LATE_TOLERANCE * laxity->prices[other] * (double)mean_ns(view, other, q)) {
            return false;
        }
    }
    return true;
}

enum step { STEP_HOME, STEP_AWAY, STEP_LATE, STEP_FLOOD };

/* Is it for a worker of the class at `place`? If so, the least key goes first. */
static bool
find_key(const struct laxity *laxity, const struct view *view, enum step step, uint32_t place, uint32_t q, int64_t *ret_key)
{
    const uint32_t class = view->order[place], home = view->home[q];
    switch (step) {
    case STEP_HOME:
        if (home != place) {
            return false;
        }
        *ret_key = view->slack_ns[q] - (place + 1 == view->order_count ? mean_ns(view, class, q) / 10 * 7 : 0);
        return true;
    case STEP_AWAY:
        *ret_key = -(int64_t)view->input->pending[view->index[q]].items;
        return home != place && home < NOWHERE && high_ns(view, class, q) <= view->slack_ns[q];
    case STEP_LATE:
        *ret_key = 0; /* the oldest */
        return home == LATE && costs_least(laxity, view, class, q);
    default:
        *ret_key = 0;
        return home == LATE && view->late > view->input->worker_count;
    }
}

static void
give(struct view *view, uint32_t q, uint32_t class)
{
    const struct leat_route_input *input = view->input;
    uint32_t worker = view->next[class];

    while (input->workers[worker].worker_class != class || !leat_route_is_idle(&input->workers[worker])) {
        worker++;
        LEAT_ASSERT(worker < input->worker_count);
    }
    view->next[class] = worker + 1;
    view->given[view->pair_count] = q;
    view->pairs[view->pair_count++] = (struct leat_route_pair){.query = view->index[q], .worker = worker};
    view->taken[q] = true;
    view->idle[class]--;
}

/* Idle workers of the class at `place` take what the step lets them. Ties: the oldest. */
static void
serve(const struct laxity *laxity, struct view *view, enum step step, uint32_t place)
{
    const uint32_t class = view->order[place];
    uint32_t queries[WINDOW], count = 0;
    int64_t keys[WINDOW];

    if (view->idle[class] == 0 || view->pair_count == view->pairs_max) {
        return;
    }
    for (uint32_t q = 0; q < view->pending; q++) {
        if (!view->taken[q] && find_key(laxity, view, step, place, q, &keys[count])) {
            queries[count++] = q;
        }
    }
    while (view->idle[class] > 0 && view->pair_count < view->pairs_max) {
        uint32_t best = count;
        int64_t best_key = INT64_MAX;
        for (uint32_t i = 0; i < count; i++) {
            if (keys[i] < best_key) {
                best = i;
                best_key = keys[i];
            }
        }
        if (best == count) {
            return;
        }
        give(view, queries[best], class);
        keys[best] = INT64_MAX;
    }
}

static uint32_t
laxity_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    struct laxity *laxity = state;
    struct view view;

    view.input = input;
    view.pairs = pairs;
    view.pairs_max = pairs_max < WINDOW ? pairs_max : WINDOW;
    view.pair_count = 0;
    LEAT_ASSERT(input->class_count <= LEAT_SCHED_CLASSES_MAX && input->worker_count <= LEAT_SCHED_WORKERS_MAX);
    if (input->pending_count == 0 || view.pairs_max == 0 || !look_at_workers(&view)) {
        return 0;
    }
    if ((view.present & ~laxity->known) != 0) {
        first_prices(laxity, &view);
    }
    sort_classes(laxity, &view);
    normalise_prices(laxity, &view); /* workers may have come or gone */
    look_at_queries(&view);
    for (uint32_t place = 0; place < view.order_count; place++) {
        serve(laxity, &view, STEP_HOME, place);
    }
    for (enum step step = STEP_AWAY; step <= STEP_FLOOD; step++) {
        for (uint32_t place = view.order_count; place-- > 0;) {
            serve(laxity, &view, step, place);
        }
    }
    for (uint32_t i = 0; i < view.pair_count; i++) {
        learn_prices(laxity, &view, view.given[i]);
    }
    normalise_prices(laxity, &view);
    return view.pair_count;
}

const struct leat_router leat_router_laxity = {
    .name = "laxity",
    .state_bytes = sizeof(struct laxity),
    .per_query = true,
    .reorders = WINDOW,
    .route = laxity_route,
};
