/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/status.h"
#include "sched/scale_joint_private.h"

/*
 * A cell is a number of cores of each class, counted as the digits of a number are: so the cells of two that share the machine add up,
 * and so do their indices.
 */
struct term {
    uint64_t *latency_ns; /* by cell, of exactly these cores; UINT64_MAX: there is no such way */
    uint32_t *how;        /* by cell: of a stage, a packed choice; of others, the left one's cell */
    int8_t kind;          /* as in the application */
    uint32_t left, right; /* terms */
};

struct solver {
    const struct leat_joint_box *box;
    uint32_t cells, stride[LEAT_JOINT_CLASSES_MAX];
    struct term terms[LEAT_JOINT_TERMS_MAX];
    uint64_t *least_ns;       /* by cell: of these cores or fewer */
    uint32_t *left, *right;   /* cells worth looking at */
    uint64_t *shed, *shed_by; /* by cell: of the applications so far, and one more */
    struct offer *offers;     /* of one application */
    uint8_t *batches;         /* by instances, less one */
    uint32_t *taken;          /* by application and cell: its offer */
    uint64_t steps_left;      /* 0: no more is looked at, and nothing found counts */
};

/* A cell that carries this share of an application, and no part of which does. */
struct offer {
    uint32_t cell, share;
};

static uint32_t
cells_of(const struct leat_joint_box *box)
{
    uint64_t cells = 1;
    for (uint32_t k = 0; k < box->class_count; k++) {
        cells *= box->classes[k].cores + 1ull;
        LEAT_ASSERT(cells <= UINT64_C(1) << 20);
    }
    return (uint32_t)cells;
}

static size_t
lay_out(struct solver *solver, size_t cells, uint32_t count, char *memory)
{
    size_t at = 0;

    *solver = (struct solver){.cells = (uint32_t)cells};
    for (uint32_t t = 0; t < LEAT_JOINT_TERMS_MAX; t++) {
        solver->terms[t].latency_ns = leat_joint_carve(memory, &at, cells * sizeof(uint64_t));
        solver->terms[t].how = leat_joint_carve(memory, &at, cells * sizeof(uint32_t));
    }
    solver->least_ns = leat_joint_carve(memory, &at, cells * sizeof(uint64_t));
    solver->left = leat_joint_carve(memory, &at, cells * sizeof(uint32_t));
    solver->right = leat_joint_carve(memory, &at, cells * sizeof(uint32_t));
    solver->batches = leat_joint_carve(memory, &at, cells);
    solver->shed = leat_joint_carve(memory, &at, cells * sizeof(uint64_t));
    solver->shed_by = leat_joint_carve(memory, &at, cells * sizeof(uint64_t));
    solver->offers = leat_joint_carve(
        memory, &at, cells * sizeof(struct offer) * LEAT_JOINT_SHARES + sizeof(struct offer));
    solver->taken = leat_joint_carve(memory, &at, cells * sizeof(uint32_t) * 2 * count);
    return at;
}

size_t
leat_joint_cells_bytes(uint32_t cells, uint32_t application_count)
{
    struct solver solver;
    return lay_out(&solver, cells, application_count, NULL);
}

static bool
spend(struct solver *solver, uint64_t steps)
{
    solver->steps_left = solver->steps_left > steps ? solver->steps_left - steps : 0;
    return solver->steps_left > 0;
}

static uint32_t
cores_of(const struct solver *solver, uint32_t cell, uint32_t k)
{
    return cell / solver->stride[k] % (solver->box->classes[k].cores + 1);
}

static bool
fit_together(const struct solver *solver, uint32_t a, uint32_t b)
{
    for (uint32_t k = 0; k < solver->box->class_count; k++) {
        if (cores_of(solver, a, k) + cores_of(solver, b, k) > solver->box->classes[k].cores) {
            return false;
        }
    }
    return true;
}

/* ---- Stages and terms --------------------------------------------------------------------------- */

static uint32_t
pack(uint32_t worker_class, uint32_t cores, uint32_t batch)
{
    return worker_class << 16 | cores << 8 | batch;
}

static bool
carries(double demand_qps, uint64_t run_ns, uint32_t batch, uint32_t instances)
{
    return (double)instances * batch * 1e9 >= demand_qps * (double)run_ns;
}

/* The fewest instances that carry the demand with the batch. */
static uint32_t
fewest_instances(double demand_qps, uint64_t run_ns, uint32_t batch)
{
    const double about = demand_qps * (double)run_ns / (batch * 1e9);
    uint32_t n = about > 1 ? (uint32_t)about : 1; /* the quotient is rounded */

    while (n > 1 && carries(demand_qps, run_ns, batch, n - 1)) {
        n--;
    }
    while (!carries(demand_qps, run_ns, batch, n)) {
        n++;
    }
    return n;
}

/*
 * The batch of least time in which n instances carry the demand, of equal ones the smallest: batches[n - 1], or 0.
 * latency_ns: of c cores, by batch. Times of limit_ns and more are none.
 */
static void
list_batches(const uint64_t *latency_ns, uint32_t batch_max, double demand_qps, uint64_t limit_ns,
             uint32_t instances_max, uint8_t *batches)
{
    uint32_t fewest = instances_max + 1;
    uint64_t fewest_ns = 0; /* in which so many instances run a batch */
    uint8_t best = 0;

    memset(batches, 0, instances_max);
    for (uint32_t b = 1; b <= batch_max; b++) {
        const uint64_t run_ns = latency_ns[b - 1];
        const bool slower = run_ns >= fewest_ns; /* then it is of use where fewer instances do */
        if (run_ns == 0 || run_ns >= limit_ns ||
            !carries(demand_qps, run_ns, b, slower ? fewest - 1 : instances_max)) {
            continue;
        }
        const uint32_t n = fewest_instances(demand_qps, run_ns, b);
        if (batches[n - 1] == 0 || run_ns < latency_ns[batches[n - 1] - 1]) {
            batches[n - 1] = (uint8_t)b;
        }
        if (n < fewest) {
            fewest = n;
            fewest_ns = run_ns;
        }
    }
    for (uint32_t n = fewest - 1; n < instances_max; n++) { /* what fewer carry, more do */
        const uint8_t own = batches[n];
        const bool better =
            own != 0 && (best == 0 || latency_ns[own - 1] < latency_ns[best - 1] ||
                         (latency_ns[own - 1] == latency_ns[best - 1] && own < best));
        best = better ? own : best;
        batches[n] = best;
    }
}

static void
solve_stage(const struct solver *solver, const struct leat_joint_stage *stage, double demand_qps,
            uint64_t latency_max_ns, struct term *term)
{
    memset(term->latency_ns, 0xff, solver->cells * sizeof(term->latency_ns[0]));
    for (uint32_t k = 0; k < solver->box->class_count; k++) {
        const uint32_t cores = solver->box->classes[k].cores;
        for (uint32_t c = stage->cores_min;
             stage->latency_ns[k] != NULL && c <= stage->cores_max && c <= cores; c++) {
            const uint64_t *latency_ns = stage->latency_ns[k] + (size_t)(c - 1) * stage->batch_max;
            const uint32_t most =
                cores / c < stage->instances_max ? cores / c : stage->instances_max;
            list_batches(latency_ns, stage->batch_max, demand_qps, latency_max_ns, most,
                         solver->batches);
            for (uint32_t n = stage->instances_min; n <= most; n++) {
                const uint32_t cell = n * c * solver->stride[k], batch = solver->batches[n - 1];
                const uint64_t run_ns = batch > 0 ? latency_ns[batch - 1] : UINT64_MAX;
                if (run_ns < term->latency_ns[cell] &&
                    run_ns + (run_ns + n - 1) / n < term->latency_ns[cell]) {
                    term->latency_ns[cell] = run_ns + (run_ns + n - 1) / n;
                    term->how[cell] = pack(k, c, batch);
                }
            }
        }
    }
}

/* Fills in least_ns, and lists the cells that are better than all that have no more of anything. */
static uint32_t
list_better(struct solver *solver, const struct term *term, uint64_t latency_max_ns, uint32_t *list)
{
    uint32_t count = 0;

    for (uint32_t cell = 0; cell < solver->cells; cell++) {
        uint64_t least_ns = UINT64_MAX;
        for (uint32_t k = 0; k < solver->box->class_count; k++) {
            if (cores_of(solver, cell, k) > 0) {
                const uint64_t ns = solver->least_ns[cell - solver->stride[k]];
                least_ns = ns < least_ns ? ns : least_ns;
            }
        }
        const uint64_t own_ns = term->latency_ns[cell];
        if (own_ns < least_ns && own_ns <= latency_max_ns) {
            list[count++] = cell;
        }
        solver->least_ns[cell] = own_ns < least_ns ? own_ns : least_ns;
    }
    return count;
}

static void
solve_join(struct solver *solver, struct term *term, uint64_t latency_max_ns)
{
    const struct term *left = &solver->terms[term->left], *right = &solver->terms[term->right];
    const uint32_t left_count = list_better(solver, left, latency_max_ns, solver->left);
    const uint32_t right_count = list_better(solver, right, latency_max_ns, solver->right);

    memset(term->latency_ns, 0xff, solver->cells * sizeof(term->latency_ns[0]));
    if (!spend(solver, 3ull * solver->cells + (uint64_t)left_count * right_count)) {
        return;
    }
    for (uint32_t l = 0; l < left_count; l++) {
        const uint32_t at = solver->left[l];
        const uint64_t left_ns = left->latency_ns[at];
        for (uint32_t r = 0; r < right_count; r++) {
            const uint64_t right_ns = right->latency_ns[solver->right[r]];
            const uint64_t longest_ns = left_ns > right_ns ? left_ns : right_ns;
            const uint64_t ns = term->kind == LEAT_JOINT_SERIES ? left_ns + right_ns : longest_ns;
            const uint32_t cell = at + solver->right[r];
            if (fit_together(solver, at, solver->right[r]) && ns < term->latency_ns[cell]) {
                term->latency_ns[cell] = ns;
                term->how[cell] = at;
            }
        }
    }
}

/* The terms of an application that is to carry this share. The last one is the whole. */
static const struct term *
solve_terms(struct solver *solver, const struct leat_joint_application *application, uint32_t share)
{
    const double demand_qps = application->demand_qps * share / LEAT_JOINT_SHARES;
    uint32_t stack[LEAT_JOINT_TERMS_MAX], depth = 0;

    for (uint32_t t = 0; t < application->term_count; t++) {
        struct term *term = &solver->terms[t];
        term->kind = application->terms[t];
        if (term->kind >= 0) {
            const struct leat_joint_stage *stage = &application->stages[term->kind];
            (void)spend(solver, solver->cells + 8ull * stage->cores_max * stage->batch_max);
            solve_stage(solver, stage, demand_qps * stage->calls, application->objective_ns, term);
        } else {
            LEAT_ASSERT(depth >= 2);
            term->right = stack[--depth];
            term->left = stack[--depth];
            solve_join(solver, term, application->objective_ns);
        }
        stack[depth++] = t;
    }
    LEAT_ASSERT(depth == 1);
    return &solver->terms[application->term_count - 1];
}

/* What each stage has where the term has the cores of the cell. */
static void
choose(const struct solver *solver, uint32_t t, uint32_t cell, struct leat_joint_choice *choices)
{
    const struct term *term = &solver->terms[t];

    if (term->kind < 0) {
        choose(solver, term->left, term->how[cell], choices);
        choose(solver, term->right, cell - term->how[cell], choices);
        return;
    }
    const uint32_t how = term->how[cell], worker_class = how >> 16, cores = how >> 8 & 0xff;
    choices[term->kind] =
        (struct leat_joint_choice){.worker_class = worker_class,
                                   .instances = cores_of(solver, cell, worker_class) / cores,
                                   .cores = cores,
                                   .batch = how & 0xff};
}

/* ---- Applications -------------------------------------------------------------------------------- */

/* The cells that carry the share in time, and of which no part does. */
static uint32_t
offer_share(struct solver *solver, const struct leat_joint_application *application, uint32_t share,
            struct offer *offers)
{
    const uint64_t objective_ns = application->objective_ns;
    uint32_t count = 0;

    if (share == 0) {
        offers[0] = (struct offer){0, 0};
        return 1;
    }
    (void)list_better(solver, solve_terms(solver, application, share), objective_ns, solver->left);
    for (uint32_t cell = 0; cell < solver->cells; cell++) {
        bool least = solver->least_ns[cell] <= objective_ns;
        for (uint32_t k = 0; k < solver->box->class_count && least; k++) {
            least = cores_of(solver, cell, k) == 0 ||
                    solver->least_ns[cell - solver->stride[k]] > objective_ns;
        }
        if (least) {
            offers[count++] = (struct offer){cell, share};
        }
    }
    return count;
}

/* Puts one more application beside those so far, in each of the ways that it offers. */
static void
add_application(struct solver *solver, const struct leat_joint_application *application,
                uint32_t share_min, uint32_t *taken)
{
    uint32_t count = 0;

    for (uint32_t share = LEAT_JOINT_SHARES + 1; share-- > share_min && solver->steps_left > 0;) {
        count += offer_share(solver, application, share, solver->offers + count);
    }
    memset(solver->shed_by, 0xff, solver->cells * sizeof(solver->shed_by[0]));
    if (!spend(solver, (uint64_t)solver->cells * count)) {
        return;
    }
    for (uint32_t cell = 0; cell < solver->cells; cell++) {
        for (uint32_t o = 0; o < count && solver->shed[cell] != UINT64_MAX; o++) {
            const struct offer *offer = &solver->offers[o];
            const uint64_t shed = solver->shed[cell] + leat_joint_shed(application, offer->share);
            const uint32_t to = cell + offer->cell;
            if (fit_together(solver, cell, offer->cell) && shed < solver->shed_by[to]) {
                solver->shed_by[to] = shed;
                taken[2 * to] = offer->cell;
                taken[2 * to + 1] = offer->share;
            }
        }
    }
    memcpy(solver->shed, solver->shed_by, solver->cells * sizeof(solver->shed[0]));
}

static uint64_t
price_of(const struct solver *solver, uint32_t cell)
{
    uint64_t price = 0;
    for (uint32_t k = 0; k < solver->box->class_count; k++) {
        price += (uint64_t)cores_of(solver, cell, k) * solver->box->classes[k].price;
    }
    return price;
}

/* Sheds no application below the share; returns the best cell for all of them, or one past the last. */
static uint32_t
pack_all(struct solver *solver, const struct leat_joint_application *applications, uint32_t count,
         uint32_t share_min)
{
    uint32_t best = solver->cells;

    memset(solver->shed, 0xff, solver->cells * sizeof(solver->shed[0]));
    solver->shed[0] = 0;
    for (uint32_t a = 0; a < count; a++) {
        add_application(solver, &applications[a], share_min,
                        solver->taken + (size_t)a * 2 * solver->cells);
    }
    for (uint32_t cell = 0; cell < solver->cells; cell++) {
        const uint64_t shed = solver->shed[cell];
        if (shed != UINT64_MAX &&
            (best == solver->cells || shed < solver->shed[best] ||
             (shed == solver->shed[best] && price_of(solver, cell) < price_of(solver, best)))) {
            best = cell;
        }
    }
    return best;
}

bool
leat_joint_cells_solve(const struct leat_joint_box *box,
                       const struct leat_joint_application *applications, uint32_t count,
                       uint64_t steps_max, void *memory, struct leat_joint_answer *ret_answers,
                       uint64_t *ret_price)
{
    struct solver solver;

    (void)lay_out(&solver, cells_of(box), count, memory);
    solver.box = box;
    for (uint32_t k = 0, stride = 1; k < box->class_count; k++) {
        solver.stride[k] = stride;
        stride *= box->classes[k].cores + 1;
    }
    solver.steps_left = steps_max;
    uint32_t cell = pack_all(&solver, applications, count, LEAT_JOINT_SHARES);
    if (cell == solver.cells) {
        cell = pack_all(&solver, applications, count, 0);
    }
    if (solver.steps_left == 0) {
        return false;
    }
    solver.steps_left = UINT64_MAX; /* what is found is told */
    *ret_price = price_of(&solver, cell);
    for (uint32_t a = count; a-- > 0;) {
        const uint32_t *taken = solver.taken + (size_t)a * 2 * solver.cells + 2 * cell;
        struct leat_joint_answer *answer = &ret_answers[a];
        *answer = (struct leat_joint_answer){.share = taken[1]};
        if (answer->share > 0) {
            const struct term *whole = solve_terms(&solver, &applications[a], answer->share);
            choose(&solver, applications[a].term_count - 1, taken[0], answer->stages);
            answer->latency_ns = whole->latency_ns[taken[0]];
        }
        cell -= taken[0];
    }
    return true;
}
