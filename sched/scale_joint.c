/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/scale_joint.h"

#include <math.h>
#include <string.h>

#include "base/align.h"
#include "base/status.h"
#include "sched/scale_joint_private.h"

/* Bounds of what is looked at, in steps of a nanosecond or a few. */
#define CELLS_STEPS UINT64_C(100000)  /* of all cells */
#define PAIRS_STEPS UINT64_C(2000000) /* of pairs of points of terms */
#define STAGE_STEPS UINT64_C(1000000) /* of batches and instances of stages */
#define PACK_STEPS  UINT64_C(1000000) /* of offers and cells */

#define NEVER \
    (UINT64_C(1) << 63) /* is shed: more than all that can be, and some of that more is no less */

enum {
    KINDS_MAX = 2 * LEAT_JOINT_CLASSES_MAX + 1, /* ways to tell what cores cost */
    HALVES_MAX = 4, /* of the search for the largest share */
    TRIES_MAX = LEAT_JOINT_SHARES - 2 + HALVES_MAX, /* 15 sixteenths, by halves, and then all that is less */
    OFFERS_MAX = KINDS_MAX * TRIES_MAX + 1,
};
_Static_assert(LEAT_JOINT_SHARES == 1 << HALVES_MAX, "shares are halved so often");
_Static_assert(OFFERS_MAX <= UINT8_MAX, "taken_by");

/* A way to carry a share of an application; the first one of each carries nothing. */
struct offer {
    uint32_t cores[LEAT_JOINT_CLASSES_MAX];
    uint64_t shed;
    struct leat_joint_answer answer;
};

struct solver {
    const struct leat_joint_box *box;
    const struct leat_joint_application *applications;
    uint32_t count;
    struct leat_joint_line line;
    struct offer *offers;                          /* [count][OFFERS_MAX] */
    uint32_t offer_count[64], taken[64];           /* by application; offers */
    uint32_t left[LEAT_JOINT_CLASSES_MAX];         /* cores that those taken leave */
    uint32_t unit[LEAT_JOINT_CLASSES_MAX];         /* cores of a step of a cell */
    uint32_t steps[LEAT_JOINT_CLASSES_MAX], cells; /* of all */
    uint64_t *shed, *shed_by; /* by cell: of the applications so far, and one more */
    uint8_t *taken_by;        /* [count][cells_max]: an offer */
    size_t cells_max;
};

void *
leat_joint_carve(char *memory, size_t *at, size_t bytes)
{
    void *block = memory != NULL ? memory + *at : NULL;
    *at += leat_round_up(bytes, LEAT_CACHE_LINE);
    return block;
}

static uint64_t
cells_of(const struct leat_joint_box *box)
{
    uint64_t cells = 1;
    for (uint32_t k = 0; k < box->class_count; k++) {
        cells *= box->classes[k].cores + 1ull;
        LEAT_ASSERT(box->classes[k].cores <= LEAT_JOINT_CORES_MAX);
        LEAT_ASSERT(cells <= UINT64_C(1) << 20);
    }
    return cells;
}

static size_t
lay_out(struct solver *solver, const struct leat_joint_box *box, uint32_t count, char *memory)
{
    const uint64_t cells = cells_of(box);
    size_t at = 0;

    *solver = (struct solver){.box = box, .count = count};
    solver->cells_max = cells;
    leat_joint_line_lay_out(&solver->line, box, memory, &at);
    solver->offers =
        leat_joint_carve(memory, &at, (size_t)count * OFFERS_MAX * sizeof(solver->offers[0]));
    solver->shed = leat_joint_carve(memory, &at, solver->cells_max * sizeof(solver->shed[0]));
    solver->shed_by = leat_joint_carve(memory, &at, solver->cells_max * sizeof(solver->shed_by[0]));
    solver->taken_by = leat_joint_carve(memory, &at, solver->cells_max * count);
    return at;
}
double
leat_joint_demand(double rate_qps, uint64_t window_ns, double deviations)
{
    return rate_qps + deviations * sqrt(rate_qps * 1e9 / (double)window_ns);
}

void
leat_joint_follow(struct leat_joint_application *application, const uint32_t *after,
                  uint32_t stage_count)
{
    uint32_t steps[LEAT_SCALE_STAGES_MAX] = {0}, last = 0;

    LEAT_ASSERT(stage_count >= 1 && stage_count <= LEAT_SCALE_STAGES_MAX);
    for (uint32_t s = 0; s < stage_count; s++) {
        LEAT_ASSERT(after[s] >> s == 0);
        for (uint32_t before = 0; before < s; before++) {
            if ((after[s] >> before & 1) != 0 && steps[before] >= steps[s]) {
                steps[s] = steps[before] + 1;
            }
        }
        last = steps[s] > last ? steps[s] : last;
    }
    application->stage_count = stage_count;
    application->term_count = 0;
    for (uint32_t step = 0; step <= last; step++) {
        bool beside = false;
        for (uint32_t s = 0; s < stage_count; s++) {
            if (steps[s] == step) {
                application->terms[application->term_count++] = (int8_t)s;
                if (beside) {
                    application->terms[application->term_count++] = LEAT_JOINT_PARALLEL;
                }
                beside = true;
            }
        }
        if (step > 0) {
            application->terms[application->term_count++] = LEAT_JOINT_SERIES;
        }
    }
    LEAT_ASSERT(application->term_count == 2 * stage_count - 1);
}

uint64_t
leat_joint_shed(const struct leat_joint_application *application, uint32_t share)
{
    const uint64_t starved = share == 0 ? (uint64_t)(application->starved_qps * 1000 + 0.5) : 0;
    return (uint64_t)(application->demand_qps * 1000 + 0.5) * application->weight * (LEAT_JOINT_SHARES - share) +
           starved * LEAT_JOINT_SHARES;
}

static uint64_t
price_of(const struct leat_joint_box *box, const uint32_t *cores)
{
    uint64_t price = 0;
    for (uint32_t k = 0; k < box->class_count; k++) {
        price += (uint64_t)cores[k] * box->classes[k].price;
    }
    return price;
}

static bool
fits(const struct leat_joint_box *box, const uint32_t *cores, const uint32_t *left)
{
    for (uint32_t k = 0; k < box->class_count; k++) {
        if (cores[k] > left[k]) {
            return false;
        }
    }
    return true;
}

/* ---- Offers ------------------------------------------------------------------------------------------ */

static struct offer *
offers_of(const struct solver *solver, uint32_t a)
{
    return solver->offers + (size_t)a * OFFERS_MAX;
}

/* Pairs of points that each of so many solutions of an application may look at in each of its terms. */
static uint32_t
pairs_max(const struct leat_joint_application *application, uint64_t solutions)
{
    const uint64_t joins = application->stage_count > 2 ? application->stage_count - 2 : 1;
    const uint64_t pairs = PAIRS_STEPS / (solutions * joins);
    return pairs < UINT32_MAX ? (uint32_t)pairs : UINT32_MAX;
}

/* What carries the share within the limit, which becomes its cost. False: nothing does. */
static bool
carry(struct solver *solver, uint32_t a, uint32_t share, uint64_t solutions, uint32_t *limit,
      struct offer *ret_offer)
{
    const struct leat_joint_application *application = &solver->applications[a];

    *ret_offer = (struct offer){.shed = leat_joint_shed(application, share)};
    if (!leat_joint_line_solve(&solver->line, application, share, *limit,
                               pairs_max(application, solutions), &ret_offer->answer, limit)) {
        return false;
    }
    for (uint32_t s = 0; s < application->stage_count; s++) {
        const struct leat_joint_choice *choice = &ret_offer->answer.stages[s];
        ret_offer->cores[choice->worker_class] += choice->instances * choice->cores;
    }
    return true;
}

/* Adds what carries the share within the limit, which becomes its cost. False: nothing does. */
static bool
offer(struct solver *solver, uint32_t a, uint32_t share, uint64_t solutions, uint32_t *limit)
{
    struct offer *offer = &offers_of(solver, a)[solver->offer_count[a]];

    LEAT_ASSERT(solver->offer_count[a] < OFFERS_MAX);
    if (!carry(solver, a, share, solutions, limit, offer)) {
        return false;
    }
    for (uint32_t k = 0; k < solver->box->class_count; k++) {
        if (offer->cores[k] > solver->box->classes[k].cores) {
            return true; /* of another class than there are so many of: nobody's, but there may be a cheaper one */
        }
    }
    solver->offer_count[a]++;
    return true;
}

/* Shares that are offered are multiples of so many sixteenths: of one, unless that takes too many steps. */
static uint32_t
share_step(const struct solver *solver, uint32_t kinds)
{
    const uint32_t list = solver->box->class_count > 1 ? 2 * LEAT_JOINT_LINE_MAX : 0;
    uint64_t steps = 0;
    uint32_t step = 1;

    for (uint32_t a = 0; a < solver->count; a++) {
        for (uint32_t s = 0; s < solver->applications[a].stage_count; s++) {
            const struct leat_joint_stage *stage = &solver->applications[a].stages[s];
            steps += list;
            for (uint32_t k = 0; k < solver->box->class_count; k++) {
                const uint64_t most =
                    4ull *
                    solver->box->classes[k].cores; /* about the sum of the cores by 1, 2, 3 */
                const uint64_t own =
                    (stage->instances_max - stage->instances_min + UINT64_C(1)) * stage->cores_max;
                const uint64_t batches = (uint64_t)stage->cores_max * stage->batch_max;
                steps += stage->latency_ns[k] != NULL ? batches + (own < most ? own : most) : 0;
            }
        }
    }
    while (step < LEAT_JOINT_SHARES && steps * kinds * LEAT_JOINT_SHARES / step > STAGE_STEPS) {
        step *= 2;
    }
    return step;
}

/* Each share for as little as it takes, where that is less than what more of it takes. */
static void
offer_shares(struct solver *solver, uint32_t a, uint32_t step, uint64_t solutions)
{
    uint32_t none = LEAT_JOINT_SHARES / step + 1, first = 0, cost = solver->line.most;

    for (uint32_t share = none - 1; none - first > 1;
         share = (first + none) / 2) { /* the most that is carried */
        uint32_t limit = solver->line.most;
        if (offer(solver, a, share * step, solutions, &limit)) {
            first = share;
            cost = limit;
        } else {
            none = share;
        }
    }
    for (uint32_t share = first; share > 1 && cost > 0;) {
        uint32_t less = cost - 1;
        if (offer(solver, a, --share * step, solutions, &less)) {
            cost = less;
        }
    }
}

/* What cores are to cost: their prices; each class in turn twice that; and eight times. No more is spent than the most. */
static void
set_prices(struct solver *solver, uint32_t kind, uint64_t spent_max)
{
    const uint32_t classes = solver->box->class_count;
    uint64_t prices[LEAT_JOINT_CLASSES_MAX];

    for (uint32_t k = 0; k < classes; k++) {
        const uint64_t times = kind == 1 + k ? 2 : kind == 1 + classes + k ? 8 : 1;
        prices[k] = solver->box->classes[k].price * times;
    }
    leat_joint_line_set(&solver->line, prices, spent_max);
}

/*
 * As much for less, where costs were rounded: in steps as fine as its price allows, and again while it has become so much cheaper
 * that they can be much finer. It may take more cores of a class than there are.
 */
static struct offer
cheapen(struct solver *solver, uint32_t a, const struct offer *offer)
{
    struct offer best = *offer, other;
    uint64_t price = price_of(solver->box, offer->cores), before;

    do {
        before = price;
        set_prices(solver, 0, price);
        uint32_t limit = solver->line.most;
        if (carry(solver, a, offer->answer.share, solver->count, &limit, &other) &&
            price_of(solver->box, other.cores) < price) {
            best = other;
            price = price_of(solver->box, other.cores);
        }
    } while (!solver->line.exact && price <= before / 2);
    return best;
}

/* ---- Who takes which --------------------------------------------------------------------------------- */

static void
take(struct solver *solver, uint32_t a, uint32_t o)
{
    const struct offer *gone = &offers_of(solver, a)[solver->taken[a]],
                       *now = &offers_of(solver, a)[o];

    for (uint32_t k = 0; k < solver->box->class_count; k++) {
        solver->left[k] = solver->left[k] + gone->cores[k] - now->cores[k];
    }
    solver->taken[a] = o;
}

/* All of each application at its least price. False: that is not to be had, or not for all. */
static bool
take_whole(struct solver *solver)
{
    bool all = true;

    for (uint32_t a = 0; a < solver->count && all; a++) {
        struct offer *whole = &offers_of(solver, a)[1];
        if (a == 0 || solver->box->class_count > 1) {
            set_prices(solver, 0, UINT64_MAX);
        }
        uint32_t limit = solver->line.most;
        all = carry(solver, a, LEAT_JOINT_SHARES, solver->count, &limit, whole);
        if (all && !solver->line.exact) {
            *whole = cheapen(solver, a, whole);
        }
        all = all && fits(solver->box, whole->cores, solver->left);
        if (all) {
            take(solver, a, 1);
        }
    }
    return all;
}

/* Cells of so many cores that all offers can be tried in each. */
static void
set_units(struct solver *solver)
{
    const struct leat_joint_box *box = solver->box;
    uint64_t offers = 0, cells;

    for (uint32_t a = 0; a < solver->count; a++) {
        offers += solver->offer_count[a];
    }
    for (uint32_t k = 0; k < box->class_count; k++) {
        solver->unit[k] = 1;
    }
    for (;;) {
        uint32_t most = 0;
        cells = 1;
        for (uint32_t k = 0; k < box->class_count; k++) {
            solver->steps[k] = box->classes[k].cores / solver->unit[k] + 1;
            cells *= solver->steps[k];
            most = solver->steps[k] > solver->steps[most] ? k : most;
        }
        if (cells * offers <= PACK_STEPS || solver->steps[most] == 1 || box->class_count == 1) {
            break;
        }
        solver->unit[most]++;
    }
    solver->cells = (uint32_t)cells;
}

/* Puts an offer beside what is in so many cells of a row: those that differ in the cores of the first class alone. */
static void
try_row(const uint64_t *shed, uint64_t shed_more, uint32_t o, uint32_t cells, uint64_t *shed_by,
        uint8_t *taken)
{
    for (uint32_t x = 0; x < cells; x++) {
        const uint64_t sum = shed[x] + shed_more;
        const bool better = sum < shed_by[x];
        shed_by[x] = better ? sum : shed_by[x];
        taken[x] = better ? (uint8_t)o : taken[x];
    }
}

static uint32_t
steps_of(const struct solver *solver, const struct offer *offer, uint32_t k)
{
    return (offer->cores[k] + solver->unit[k] - 1) / solver->unit[k];
}

/* How many cells further on it is with the offer. False: it does not fit there. */
static bool
move(const struct solver *solver, const struct offer *offer, uint32_t row, uint32_t *ret_cells)
{
    uint32_t stride = solver->steps[0];

    *ret_cells = steps_of(solver, offer, 0);
    for (uint32_t k = 1; k < solver->box->class_count; k++) {
        const uint32_t more = steps_of(solver, offer, k);
        if (row / stride % solver->steps[k] + more >= solver->steps[k]) {
            return false;
        }
        *ret_cells += more * stride;
        stride *= solver->steps[k];
    }
    return true;
}

/* Another offer takes no more of anything, and what it takes the same of, it has first: so this one is never the best. */
static bool
is_needless(const struct solver *solver, uint32_t a, uint32_t o)
{
    const struct offer *offers = offers_of(solver, a);
    bool needless = false;

    for (uint32_t p = 0; p < solver->offer_count[a] && !needless; p++) {
        bool less = offers[p].shed < offers[o].shed || p < o;
        needless = p != o && offers[p].shed <= offers[o].shed;
        for (uint32_t k = 0; k < solver->box->class_count && needless; k++) {
            const uint32_t steps = steps_of(solver, &offers[o], k),
                           other_steps = steps_of(solver, &offers[p], k);
            needless = other_steps <= steps;
            less = less || other_steps < steps;
        }
        needless = needless && less;
    }
    return needless;
}

/* Puts one more application beside those so far, which have up to `most` steps of each class. */
static void
add_application(struct solver *solver, uint32_t a, uint32_t *most)
{
    const uint32_t width = solver->steps[0], last = solver->box->class_count - 1;
    const uint32_t rows_end =
        last == 0 ? width : solver->cells / solver->steps[last] * (most[last] + 1);
    uint8_t *taken = solver->taken_by + (size_t)a * solver->cells_max;
    uint32_t more[LEAT_JOINT_CLASSES_MAX] = {0};

    for (uint32_t cell = 0; cell < solver->cells; cell++) {
        solver->shed_by[cell] = NEVER;
    }
    for (uint32_t o = 0; o < solver->offer_count[a]; o++) {
        const struct offer *offer = &offers_of(solver, a)[o];
        const uint32_t room = width - steps_of(solver, offer, 0);
        uint32_t cells;
        if (is_needless(solver, a, o)) {
            continue;
        }
        for (uint32_t row = 0; row < rows_end; row += width) {
            if (move(solver, offer, row, &cells)) {
                try_row(&solver->shed[row], offer->shed, o, room < most[0] + 1 ? room : most[0] + 1,
                        &solver->shed_by[row + cells], &taken[row + cells]);
            }
        }
        for (uint32_t k = 0; k <= last; k++) {
            const uint32_t steps = steps_of(solver, offer, k);
            more[k] = steps > more[k] ? steps : more[k];
        }
    }
    for (uint32_t k = 0; k <= last; k++) {
        most[k] = most[k] + more[k] < solver->steps[k] ? most[k] + more[k] : solver->steps[k] - 1;
    }
    memcpy(solver->shed, solver->shed_by, solver->cells * sizeof(solver->shed[0]));
}

static uint64_t
cell_price(const struct solver *solver, uint32_t cell)
{
    uint32_t cores[LEAT_JOINT_CLASSES_MAX];

    for (uint32_t k = 0; k < solver->box->class_count; k++) {
        cores[k] = cell % solver->steps[k] * solver->unit[k];
        cell /= solver->steps[k];
    }
    return price_of(solver->box, cores);
}

/* The offers that shed least of all together, and then cost least. */
static void
take_best(struct solver *solver)
{
    uint32_t best = UINT32_MAX, most[LEAT_JOINT_CLASSES_MAX] = {0};

    set_units(solver);
    for (uint32_t cell = 0; cell < solver->cells; cell++) {
        solver->shed[cell] = cell == 0 ? 0 : NEVER;
    }
    for (uint32_t a = 0; a < solver->count; a++) {
        add_application(solver, a, most);
    }
    for (uint32_t cell = 0; cell < solver->cells; cell++) {
        const uint64_t shed = solver->shed[cell];
        if (shed < NEVER &&
            (best == UINT32_MAX || shed < solver->shed[best] ||
             (shed == solver->shed[best] && cell_price(solver, cell) < cell_price(solver, best)))) {
            best = cell;
        }
    }
    for (uint32_t a = solver->count, cell = best; a-- > 0;) {
        const uint32_t o = solver->taken_by[(size_t)a * solver->cells_max + cell];
        uint32_t cells;
        take(solver, a, o);
        LEAT_ASSERT(move(solver, &offers_of(solver, a)[o], 0, &cells) && cells <= cell);
        cell -= cells;
    }
}

struct gain {
    uint64_t shed; /* less than now */
    int64_t price; /* likewise; below 0: it is dearer */
};

/* How much less it sheds than what is taken, and costs. False: neither, or there are no cores for it. */
static bool
betters(const struct solver *solver, uint32_t a, uint32_t o, struct gain *ret_gain)
{
    const struct offer *other = &offers_of(solver, a)[o],
                       *taken = &offers_of(solver, a)[solver->taken[a]];
    const uint64_t price = price_of(solver->box, other->cores),
                   taken_price = price_of(solver->box, taken->cores);
    uint32_t left[LEAT_JOINT_CLASSES_MAX];

    for (uint32_t k = 0; k < solver->box->class_count; k++) {
        left[k] = solver->left[k] + taken->cores[k];
    }
    if (other->shed > taken->shed || (other->shed == taken->shed && price >= taken_price) ||
        !fits(solver->box, other->cores, left)) {
        return false;
    }
    *ret_gain =
        (struct gain){.shed = taken->shed - other->shed, .price = (int64_t)(taken_price - price)};
    return true;
}

/* Takes the offer that most lowers what is shed, of such the one that most lowers the price. False: none does either. */
static bool
take_better(struct solver *solver)
{
    struct gain best = {0}, gain;
    uint32_t who = 0, which = 0;
    bool found = false;

    for (uint32_t a = 0; a < solver->count; a++) {
        for (uint32_t o = 0; o < solver->offer_count[a]; o++) {
            if (betters(solver, a, o, &gain) &&
                (!found || gain.shed > best.shed ||
                 (gain.shed == best.shed && gain.price > best.price))) {
                best = gain;
                who = a;
                which = o;
                found = true;
            }
        }
    }
    if (found) {
        take(solver, who, which);
    }
    return found;
}

/* Cells are of several cores: what they leave goes to who sheds least with it. Ends: each time it is better than before. */
static void
take_rest(struct solver *solver)
{
    while (take_better(solver)) {
    }
}

/* Each share that is taken for less, if there are cores for it. */
static void
take_cheaper(struct solver *solver)
{
    for (uint32_t a = 0; a < solver->count; a++) {
        struct offer *taken = &offers_of(solver, a)[solver->taken[a]];
        if (taken->answer.share == 0) {
            continue;
        }
        const struct offer cheaper = cheapen(solver, a, taken);
        uint32_t left[LEAT_JOINT_CLASSES_MAX];
        for (uint32_t k = 0; k < solver->box->class_count; k++) {
            left[k] = solver->left[k] + taken->cores[k];
        }
        if (fits(solver->box, cheaper.cores, left)) {
            for (uint32_t k = 0; k < solver->box->class_count; k++) {
                solver->left[k] = left[k] - cheaper.cores[k];
            }
            *taken = cheaper;
        }
    }
}

/* ---- All of it ---------------------------------------------------------------------------------------- */

static bool
knows_cells(const struct leat_joint_box *box)
{
    return box->class_count > 1 && cells_of(box) <= LEAT_JOINT_CELLS_MAX;
}

size_t
leat_joint_bytes(const struct leat_joint_box *box, uint32_t application_count)
{
    struct solver solver;
    const size_t bytes = lay_out(&solver, box, application_count, NULL);
    const uint64_t all = cells_of(box);
    const uint32_t some = all < LEAT_JOINT_CELLS_MAX ? (uint32_t)all : LEAT_JOINT_CELLS_MAX; /* of a box with less of it */
    const size_t cells = box->class_count > 1 ? leat_joint_cells_bytes(some, application_count) : 0;
    return bytes > cells ? bytes : cells;
}

uint64_t
leat_joint_solve(const struct leat_joint_box *box,
                 const struct leat_joint_application *applications, uint32_t count, void *memory,
                 struct leat_joint_answer *ret_answers)
{
    struct solver solver;
    uint64_t price = 0;

    LEAT_ASSERT(count >= 1 && count <= 64);
    if (knows_cells(box) && leat_joint_cells_solve(box, applications, count, CELLS_STEPS, memory,
                                                   ret_answers, &price)) {
        return price;
    }
    (void)lay_out(&solver, box, count, memory);
    solver.applications = solver.line.applications = applications;
    for (uint32_t k = 0; k < box->class_count; k++) {
        solver.left[k] = box->classes[k].cores;
    }
    for (uint32_t a = 0; a < count; a++) {
        offers_of(&solver, a)[0] = (struct offer){.shed = leat_joint_shed(&applications[a], 0)};
    }
    if (!take_whole(&solver)) {
        const uint32_t kinds = box->class_count > 1 ? 2 * box->class_count + 1 : 1,
                       step = share_step(&solver, kinds);
        memset(solver.taken, 0, sizeof(solver.taken));
        for (uint32_t a = 0; a < count; a++) {
            solver.offer_count[a] = 1;
            for (uint32_t kind = 0; kind < kinds; kind++) {
                set_prices(&solver, kind, UINT64_MAX);
                offer_shares(&solver, a, step, (uint64_t)count * kinds * LEAT_JOINT_SHARES / step);
            }
        }
        for (uint32_t k = 0; k < box->class_count; k++) {
            solver.left[k] = box->classes[k].cores;
        }
        take_best(&solver);
        take_rest(&solver);
        if (box->class_count > 1) {
            take_cheaper(&solver);
        }
    }
    for (uint32_t a = 0; a < count; a++) {
        const struct offer *taken = &offers_of(&solver, a)[solver.taken[a]];
        ret_answers[a] = taken->answer;
        price += price_of(box, taken->cores);
    }
    return price;
}
