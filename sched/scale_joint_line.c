/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "sched/scale_joint_private.h"

#define OBJECTIVE_MAX_NS (UINT64_C(1) << 50) /* longer ones, of thirteen days, are no other */
#define KEPT_BYTES_MAX   (UINT64_C(1) << 20) /* of ways, but for one place */

/* ---- What it costs ------------------------------------------------------------------------------------ */

static void
lay_out_ways(struct leat_joint_line *line, uint32_t cores_all, char *memory, size_t *at)
{
    const size_t bytes = sizeof(struct leat_joint_way) * LEAT_SCALE_STAGES_MAX * (cores_all + 1);

    line->kept_count = LEAT_JOINT_SHARES;
    while (line->kept_count > 1 && line->kept_count * bytes > KEPT_BYTES_MAX) {
        line->kept_count /= 2;
    }
    for (uint32_t i = 0; i < line->kept_count; i++) {
        struct leat_joint_way *ways = leat_joint_carve(memory, at, bytes);
        for (uint32_t s = 0; s < LEAT_SCALE_STAGES_MAX && ways != NULL; s++) {
            for (uint32_t k = 0; k < line->box->class_count; k++) {
                line->kept[i].of[s][k] = ways;
                ways += line->box->classes[k].cores;
            }
        }
    }
}

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
    lay_out_ways(line, (uint32_t)steps, memory, at);
    line->best = leat_joint_carve(memory, at, (cores + 1) * sizeof(line->best[0]));
    steps = box->class_count > 1 ? LEAT_JOINT_LINE_MAX + LEAT_JOINT_CLASSES_MAX : steps;
    for (uint32_t k = 0; k < box->class_count; k++) {
        line->costs[k] = leat_joint_carve(memory, at, (cores + 1) * sizeof(line->costs[k][0]));
    }
    line->latency_ns = leat_joint_carve(memory, at, steps * sizeof(line->latency_ns[0]));
    line->how = leat_joint_carve(memory, at, steps * sizeof(line->how[0]));
    line->instances = leat_joint_carve(memory, at, steps * sizeof(line->instances[0]));
    line->batches = leat_joint_carve(memory, at, LEAT_SCALE_STAGES_MAX * sizeof(line->batches[0]));
    line->batch_count =
        leat_joint_carve(memory, at, LEAT_SCALE_STAGES_MAX * sizeof(line->batch_count[0]));
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
        const uint64_t more = prices[k] / unit, more_rest = prices[k] % unit;
        uint64_t cost = 0, rest = 0;
        for (uint32_t c = 0; c <= cores; c++) {
            const uint64_t rounded = cost + (rest > 0);
            line->costs[k][c] =
                (uint32_t)(rounded < end ? rounded : end); /* the end is beyond every limit */
            cost += more + (rest + more_rest >= unit);
            rest += rest + more_rest >= unit ? more_rest - unit : more_rest;
        }
        most += line->costs[k][cores];
    }
    line->most = (uint32_t)(most < end ? most : end - 1);
    line->exact = unit == divisor;
}

/* ---- Stages --------------------------------------------------------------------------------------------- */

/* The batches of one number of cores in order of time, of the same time the smallest first. */
static uint32_t
sort_batches(const uint64_t *latency_ns, uint32_t batch_max, struct leat_joint_batch *batches)
{
    uint32_t count = 0;

    for (uint32_t b = 0; b < batch_max; b++) {
        const double run_ns = (double)(int64_t)latency_ns[b];
        uint32_t i = count;
        if (latency_ns[b] - 1 >= OBJECTIVE_MAX_NS - 1) { /* none, or too long */
            continue;
        }
        for (; i > 0 && batches[i - 1].run_ns > run_ns; i--) {
            batches[i] = batches[i - 1];
        }
        batches[i] = (struct leat_joint_batch){.run_ns = run_ns, .items = (int32_t)b + 1};
        count++;
    }
    return count;
}

static void
sort_all_batches(struct leat_joint_line *line, const struct leat_joint_application *application)
{
    line->sorted = application;
    for (uint32_t s = 0; s < application->stage_count; s++) {
        const struct leat_joint_stage *stage = &application->stages[s];
        for (uint32_t k = 0; k < line->box->class_count; k++) {
            for (uint32_t c = stage->cores_min;
                 stage->latency_ns[k] != NULL && c <= stage->cores_max; c++) {
                const uint64_t *latency_ns =
                    stage->latency_ns[k] + (size_t)(c - 1) * stage->batch_max;
                line->batch_count[s][k][c - 1] =
                    (uint8_t)sort_batches(latency_ns, stage->batch_max, line->batches[s][k][c - 1]);
            }
        }
    }
}

/* Lists what is faster than all that costs less, and than least_ns. */
static void
list_points(struct leat_joint_line *line, uint32_t t, uint32_t limit, uint64_t least_ns)
{
    struct leat_joint_point *points = line->points[t];
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

/*
 * The best ways of the stage with up to so many cores of the class. Of equal ones those of smaller teams stay, too: they
 * come first, which decides where both cost the same.
 */
static uint32_t
list_ways(struct leat_joint_line *line, const struct leat_joint_application *application,
          uint32_t s, uint32_t k, double demand_qps, uint32_t cores, uint64_t none_ns,
          struct leat_joint_way *ways)
{
    const struct leat_joint_stage *stage = &application->stages[s];
    struct leat_joint_way *best = line->best;
    uint64_t least_ns = none_ns;
    uint32_t count = 0, team = 0;

    for (uint32_t m = 0; m <= cores; m++) {
        best[m].latency_ns = none_ns;
    }
    for (uint32_t c = stage->cores_min; c <= stage->cores_max && c <= cores; c++) {
        const struct leat_joint_batch *batch = line->batches[s][k][c - 1],
                                      *end = batch + line->batch_count[s][k][c - 1];
        const uint32_t most = cores / c < stage->instances_max ? cores / c : stage->instances_max;
        for (uint32_t n = most; n >= stage->instances_min;
             n--) { /* the fewer there are, the more items each is to take */
            while (batch < end && (int32_t)n * 1e9 * batch->items < demand_qps * batch->run_ns) {
                batch++;
            }
            if (batch == end || batch->run_ns >= (double)none_ns) {
                break;
            }
            const double waits_ns = (batch->run_ns + (int32_t)n - 1) /
                                    (int32_t)n; /* below 2^53, so it is cut off as it should be */
            const uint64_t latency_ns = (uint64_t)((int64_t)batch->run_ns + (int64_t)waits_ns);
            if (latency_ns < best[n * c].latency_ns) {
                best[n * c] = (struct leat_joint_way){.latency_ns = latency_ns,
                                                      .cores = (uint16_t)(n * c),
                                                      .instances = (uint16_t)n,
                                                      .team = (uint8_t)c,
                                                      .batch = (uint8_t)batch->items};
            }
        }
    }
    for (uint32_t m = 1; m <= cores; m++) {
        if (best[m].latency_ns < least_ns ||
            (best[m].latency_ns == least_ns && best[m].team < team)) {
            least_ns = best[m].latency_ns;
            team = best[m].team;
            ways[count++] = best[m];
        }
    }
    return count;
}

/* Those of the share, as far as they are known. */
static struct leat_joint_ways *
find_ways(struct leat_joint_line *line, const struct leat_joint_application *application,
          uint32_t share)
{
    const size_t a = (size_t)(application - line->applications);
    struct leat_joint_ways *ways =
        &line->kept[(share + 5 * a) % line->kept_count]; /* all shares of one, or one of all */

    if (line->sorted != application) {
        sort_all_batches(line, application);
    }
    if (ways->application != application || ways->share != share) {
        ways->application = application;
        ways->share = share;
        memset(ways->cores, 0, sizeof(ways->cores));
        memset(ways->count, 0, sizeof(ways->count));
    }
    return ways;
}

static void
solve_stage(struct leat_joint_line *line, uint32_t t, struct leat_joint_ways *ways, uint32_t s,
            uint32_t limit)
{
    const struct leat_joint_application *application = ways->application;
    const struct leat_joint_stage *stage = &application->stages[s];
    const double demand_qps =
        application->demand_qps * ways->share / LEAT_JOINT_SHARES * stage->calls;
    const uint64_t none_ns = application->objective_ns < OBJECTIVE_MAX_NS
                                 ? application->objective_ns + 1
                                 : OBJECTIVE_MAX_NS;

    for (uint32_t cost = 0; cost <= limit; cost++) {
        line->latency_ns[cost] = none_ns;
    }
    for (uint32_t k = 0; k < line->box->class_count; k++) {
        uint32_t cores = line->box->classes[k].cores;
        while (line->costs[k][cores] > limit) {
            cores--;
        }
        if (cores > ways->cores[s][k] && stage->latency_ns[k] != NULL) {
            ways->cores[s][k] = cores;
            ways->count[s][k] =
                list_ways(line, application, s, k, demand_qps, cores, none_ns, ways->of[s][k]);
        }
        for (uint32_t i = 0; i < ways->count[s][k] && ways->of[s][k][i].cores <= cores; i++) {
            const struct leat_joint_way *way = &ways->of[s][k][i];
            const uint32_t cost = line->costs[k][way->cores];
            const uint64_t best_ns = line->latency_ns[cost];
            if (way->latency_ns < best_ns ||
                (way->latency_ns == best_ns && line->how[cost] >> 16 == k)) {
                line->latency_ns[cost] = way->latency_ns;
                line->how[cost] = k << 16 | (uint32_t)way->team << 8 | way->batch;
                line->instances[cost] = way->instances;
            }
        }
    }
    list_points(line, t, limit, none_ns);
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
    list_points(line, t, limit,
                tree->limit_ns[t] < OBJECTIVE_MAX_NS ? tree->limit_ns[t] + 1 : OBJECTIVE_MAX_NS);
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
    struct leat_joint_ways *ways = find_ways(line, application, share);
    uint32_t stack[LEAT_JOINT_TERMS_MAX], depth = 0;

    for (uint32_t t = 0; t < application->term_count; t++) {
        ret_tree->kind[t] = application->terms[t];
        if (application->terms[t] >= 0) {
            solve_stage(line, t, ways, (uint32_t)application->terms[t], limit);
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
