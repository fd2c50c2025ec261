/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "sched/scale_joint_private.h"

#define OBJECTIVE_MAX_NS (UINT64_C(1) << 50) /* longer ones, of thirteen days, are no other */

/* ---- What it costs ------------------------------------------------------------------------------------ */

void
leat_joint_line_lay_out(struct leat_joint_line *line, const struct leat_joint_box *box,
                        char *memory, size_t *at)
{
    size_t steps = 1, cores = 0;

    for (uint32_t k = 0; k < box->class_count; k++) {
        steps += box->classes[k].cores;
        cores = box->classes[k].cores > cores ? box->classes[k].cores : cores;
    }
    *line = (struct leat_joint_line){.box = box};
    steps = box->class_count > 1 ? LEAT_JOINT_LINE_MAX + LEAT_JOINT_CLASSES_MAX : steps;
    for (uint32_t k = 0; k < box->class_count; k++) {
        line->costs[k] = leat_joint_carve(memory, at, (cores + 1) * sizeof(line->costs[k][0]));
    }
    line->latency_ns = leat_joint_carve(memory, at, steps * sizeof(line->latency_ns[0]));
    line->how = leat_joint_carve(memory, at, steps * sizeof(line->how[0]));
    line->instances = leat_joint_carve(memory, at, steps * sizeof(line->instances[0]));
    line->batches = leat_joint_carve(memory, at, cores);
    for (uint32_t t = 0; t < LEAT_JOINT_TERMS_MAX; t++) {
        line->points[t] = leat_joint_carve(memory, at, steps * sizeof(line->points[t][0]));
    }
}

static uint64_t
common_divisor(uint64_t a, uint64_t b)
{
    while (b > 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void
leat_joint_line_set(struct leat_joint_line *line, const uint64_t *prices, uint64_t spent_max)
{
    const struct leat_joint_box *box = line->box;
    const bool one = box->class_count == 1;
    const uint64_t end = one ? UINT32_MAX : LEAT_JOINT_LINE_MAX + LEAT_JOINT_CLASSES_MAX;
    uint64_t sum = 0, divisor = 0, most = 0;

    for (uint32_t k = 0; k < box->class_count; k++) {
        sum += prices[k] * box->classes[k].cores;
        divisor = common_divisor(prices[k], divisor);
    }
    const uint64_t spent = spent_max < sum ? spent_max : sum;
    const uint64_t unit = one ? divisor : (spent / divisor / LEAT_JOINT_LINE_MAX + 1) * divisor;
    for (uint32_t k = 0; k < box->class_count; k++) {
        const uint32_t cores = box->classes[k].cores;
        for (uint32_t c = 0; c <= cores; c++) {
            const uint64_t cost = (c * prices[k] + unit - 1) / unit;
            line->costs[k][c] = (uint32_t)(cost < end ? cost : end); /* the end is beyond every limit */
        }
        most += line->costs[k][cores];
    }
    line->most = (uint32_t)(most < end ? most : end - 1);
    line->exact = unit == divisor;
}

/* ---- Stages --------------------------------------------------------------------------------------------- */

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

uint32_t
leat_joint_batches(const uint64_t *latency_ns, uint32_t batch_max, double demand_qps,
                   uint64_t limit_ns, uint32_t instances_max, uint8_t *batches)
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
    return fewest;
}

/* Lists what is faster than all that costs less, and in time. */
static void
list_points(struct leat_joint_line *line, uint32_t t, uint32_t limit, uint64_t objective_ns)
{
    struct leat_joint_point *points = line->points[t];
    uint64_t least_ns = objective_ns < OBJECTIVE_MAX_NS ? objective_ns + 1 : OBJECTIVE_MAX_NS;
    uint32_t count = 0;

    for (uint32_t cost = 0; cost <= limit; cost++) {
        if (line->latency_ns[cost] < least_ns) {
            least_ns = line->latency_ns[cost];
            points[count++] = (struct leat_joint_point){.latency_ns = least_ns,
                                                        .cost = cost,
                                                        .how = line->how[cost],
                                                        .instances = line->instances[cost]};
        }
    }
    line->point_count[t] = count;
}

static void
solve_stage(struct leat_joint_line *line, uint32_t t, const struct leat_joint_stage *stage,
            double demand_qps, uint32_t limit, uint64_t objective_ns)
{
    const uint64_t none_ns = objective_ns < OBJECTIVE_MAX_NS ? objective_ns + 1 : OBJECTIVE_MAX_NS;

    for (uint32_t cost = 0; cost <= limit; cost++) {
        line->latency_ns[cost] = none_ns;
    }
    for (uint32_t k = 0; k < line->box->class_count; k++) {
        const uint32_t *costs = line->costs[k];
        uint32_t cores = line->box->classes[k].cores;
        while (costs[cores] > limit) {
            cores--;
        }
        for (uint32_t c = stage->cores_min;
             stage->latency_ns[k] != NULL && c <= stage->cores_max && c <= cores; c++) {
            const uint64_t *latency_ns = stage->latency_ns[k] + (size_t)(c - 1) * stage->batch_max;
            const uint32_t most =
                cores / c < stage->instances_max ? cores / c : stage->instances_max;
            const uint32_t fewest = leat_joint_batches(latency_ns, stage->batch_max, demand_qps,
                                                       none_ns, most, line->batches);
            for (uint32_t n = fewest > stage->instances_min ? fewest : stage->instances_min;
                 n <= most; n++) {
                const uint32_t batch = line->batches[n - 1], cost = costs[n * c];
                const uint64_t run_ns = latency_ns[batch - 1], best_ns = line->latency_ns[cost];
                if (run_ns >= best_ns || run_ns > (best_ns - run_ns - 1) * n) {
                    continue; /* as run_ns + run_ns / n, rounded up, is no less */
                }
                line->latency_ns[cost] = run_ns + (run_ns + n - 1) / n;
                line->how[cost] = k << 16 | c << 8 | batch;
                line->instances[cost] = n;
            }
        }
    }
    list_points(line, t, limit, objective_ns);
}

/* ---- Terms ---------------------------------------------------------------------------------------------- */

struct tree {
    int8_t kind[LEAT_JOINT_TERMS_MAX];
    uint32_t left[LEAT_JOINT_TERMS_MAX], right[LEAT_JOINT_TERMS_MAX];
    uint32_t least[LEAT_JOINT_TERMS_MAX],
        limit[LEAT_JOINT_TERMS_MAX]; /* cost; what others leave of it */
    uint64_t least_ns[LEAT_JOINT_TERMS_MAX], limit_ns[LEAT_JOINT_TERMS_MAX]; /* latency */
};

static uint64_t
join(int8_t kind, uint64_t left_ns, uint64_t right_ns)
{
    return kind == LEAT_JOINT_SERIES ? left_ns + right_ns : left_ns > right_ns ? left_ns : right_ns;
}

/* Tells what each term may cost and take where all others do with their least. False: that is too much. */
static bool
bound(const struct leat_joint_line *line, struct tree *tree, uint32_t term_count, uint32_t limit,
      uint64_t limit_ns)
{
    for (uint32_t t = 0; t < term_count; t++) {
        if (tree->kind[t] >= 0) {
            tree->least[t] = line->points[t][0].cost;
            tree->least_ns[t] = line->points[t][line->point_count[t] - 1].latency_ns;
        } else {
            const uint32_t left = tree->left[t], right = tree->right[t];
            tree->least[t] = tree->least[left] + tree->least[right];
            tree->least_ns[t] = join(tree->kind[t], tree->least_ns[left], tree->least_ns[right]);
        }
    }
    tree->limit[term_count - 1] = limit;
    tree->limit_ns[term_count - 1] = limit_ns;
    if (tree->least[term_count - 1] > limit || tree->least_ns[term_count - 1] > limit_ns) {
        return false;
    }
    for (uint32_t t = term_count; t-- > 0;) {
        const bool series = tree->kind[t] == LEAT_JOINT_SERIES;
        const uint32_t left = tree->left[t], right = tree->right[t];
        if (tree->kind[t] < 0) {
            tree->limit[left] = tree->limit[t] - tree->least[right];
            tree->limit[right] = tree->limit[t] - tree->least[left];
            tree->limit_ns[left] = tree->limit_ns[t] - (series ? tree->least_ns[right] : 0);
            tree->limit_ns[right] = tree->limit_ns[t] - (series ? tree->least_ns[left] : 0);
        }
    }
    return true;
}

/* Leaves out points beyond what a term may cost and take, then evenly those beyond `most`. False: none is left. */
static bool
trim(struct leat_joint_line *line, const struct tree *tree, uint32_t t, uint32_t most)
{
    struct leat_joint_point *points = line->points[t];
    uint32_t first = 0, end = line->point_count[t];

    while (first < end && points[first].latency_ns > tree->limit_ns[t]) {
        first++;
    }
    while (end > first && points[end - 1].cost > tree->limit[t]) {
        end--;
    }
    const uint32_t count = end - first, kept = count < most ? count : most;
    for (uint32_t i = 0; i < kept; i++) {
        points[i] = points[first + (kept > 1 ? (uint64_t)i * (count - 1) / (kept - 1) : 0)];
    }
    line->point_count[t] = kept;
    return kept > 0;
}

static bool
trim_both(struct leat_joint_line *line, const struct tree *tree, uint32_t t, uint32_t pairs_max)
{
    const uint32_t left = tree->left[t], right = tree->right[t],
                   most = pairs_max > 4 ? (uint32_t)sqrt(pairs_max) : 2;

    if (!trim(line, tree, left, UINT32_MAX) || !trim(line, tree, right, UINT32_MAX)) {
        return false;
    }
    return (uint64_t)line->point_count[left] * line->point_count[right] <= pairs_max ||
           (trim(line, tree, left, most) && trim(line, tree, right, most));
}

/* The dearer the left one is, the cheaper is the first right one that is in time with it. */
static void
solve_join(struct leat_joint_line *line, const struct tree *tree, uint32_t t)
{
    const uint32_t left = tree->left[t], right = tree->right[t], limit = tree->limit[t];
    const struct leat_joint_point *lefts = line->points[left], *rights = line->points[right];
    uint32_t first = line->point_count[right];

    memset(line->latency_ns, 0xff, (limit + 1) * sizeof(line->latency_ns[0]));
    for (uint32_t l = 0; l < line->point_count[left]; l++) {
        const uint64_t left_ns = lefts[l].latency_ns;
        while (first > 0 &&
               join(tree->kind[t], left_ns, rights[first - 1].latency_ns) <= tree->limit_ns[t]) {
            first--;
        }
        for (uint32_t r = first;
             r < line->point_count[right] && lefts[l].cost + rights[r].cost <= limit; r++) {
            const uint64_t ns = join(tree->kind[t], left_ns, rights[r].latency_ns);
            const uint32_t cost = lefts[l].cost + rights[r].cost;
            if (ns < line->latency_ns[cost]) {
                line->latency_ns[cost] = ns;
                line->how[cost] = l << 16 | r;
            }
        }
    }
    list_points(line, t, limit, tree->limit_ns[t]);
}

/* The cheapest pair that is in time, of these the fastest: one point, if any. */
static void
join_cheapest(struct leat_joint_line *line, const struct tree *tree, uint32_t t)
{
    const uint32_t left = tree->left[t], right = tree->right[t];
    const struct leat_joint_point *lefts = line->points[left], *rights = line->points[right];
    struct leat_joint_point best = {.latency_ns = UINT64_MAX, .cost = tree->limit[t]};

    for (uint32_t l = 0, r = line->point_count[right]; l < line->point_count[left]; l++) {
        while (r > 0 && join(tree->kind[t], lefts[l].latency_ns, rights[r - 1].latency_ns) <=
                            tree->limit_ns[t]) {
            r--;
        }
        if (r == line->point_count[right]) {
            continue;
        }
        const uint64_t ns = join(tree->kind[t], lefts[l].latency_ns, rights[r].latency_ns);
        const uint32_t cost = lefts[l].cost + rights[r].cost;
        if (cost < best.cost || (cost == best.cost && ns < best.latency_ns)) {
            best = (struct leat_joint_point){.latency_ns = ns, .cost = cost, .how = l << 16 | r};
        }
    }
    line->points[t][0] = best;
    line->point_count[t] = best.latency_ns != UINT64_MAX;
}

static void
choose(const struct leat_joint_line *line, const struct tree *tree, uint32_t t,
       const struct leat_joint_point *point, struct leat_joint_choice *choices)
{
    if (tree->kind[t] < 0) {
        const uint32_t left = tree->left[t], right = tree->right[t];
        choose(line, tree, left, &line->points[left][point->how >> 16], choices);
        choose(line, tree, right, &line->points[right][point->how & 0xffff], choices);
        return;
    }
    choices[tree->kind[t]] = (struct leat_joint_choice){.worker_class = point->how >> 16,
                                                        .instances = point->instances,
                                                        .cores = point->how >> 8 & 0xff,
                                                        .batch = point->how & 0xff};
}

/* False: a stage does not carry its demand in time, whatever it costs. */
static bool
solve_stages(struct leat_joint_line *line, const struct leat_joint_application *application,
             uint32_t share, uint32_t limit, struct tree *ret_tree)
{
    const double demand_qps = application->demand_qps * share / LEAT_JOINT_SHARES;
    uint32_t stack[LEAT_JOINT_TERMS_MAX], depth = 0;

    for (uint32_t t = 0; t < application->term_count; t++) {
        ret_tree->kind[t] = application->terms[t];
        if (application->terms[t] >= 0) {
            const struct leat_joint_stage *stage = &application->stages[application->terms[t]];
            solve_stage(line, t, stage, demand_qps * stage->calls, limit,
                        application->objective_ns);
            if (line->point_count[t] == 0) {
                return false;
            }
        } else {
            LEAT_ASSERT(depth >= 2);
            ret_tree->right[t] = stack[--depth];
            ret_tree->left[t] = stack[--depth];
        }
        stack[depth++] = t;
    }
    LEAT_ASSERT(depth == 1);
    return true;
}

bool
leat_joint_line_solve(struct leat_joint_line *line,
                      const struct leat_joint_application *application, uint32_t share,
                      uint32_t limit, uint32_t pairs_max, struct leat_joint_answer *ret_answer,
                      uint32_t *ret_cost)
{
    const uint32_t whole = application->term_count - 1;
    struct tree tree;

    LEAT_ASSERT(limit <= line->most && share >= 1 && share <= LEAT_JOINT_SHARES);
    if (!solve_stages(line, application, share, limit, &tree) ||
        !bound(line, &tree, whole + 1, limit, application->objective_ns)) {
        return false;
    }
    for (uint32_t t = 0; t <= whole; t++) {
        if (tree.kind[t] < 0 && !trim_both(line, &tree, t, t < whole ? pairs_max : UINT32_MAX)) {
            return false;
        }
        if (tree.kind[t] < 0) {
            (t < whole ? solve_join : join_cheapest)(line, &tree, t);
        }
        if (line->point_count[t] == 0) {
            return false;
        }
    }
    const struct leat_joint_point *point = &line->points[whole][0]; /* the cheapest */
    *ret_answer = (struct leat_joint_answer){.share = share, .latency_ns = point->latency_ns};
    choose(line, &tree, whole, point, ret_answer->stages);
    *ret_cost = point->cost;
    return true;
}
