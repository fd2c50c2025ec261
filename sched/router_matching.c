/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Least-cost matching of waiting queries and workers. O(queries^2 * columns), queries <= twice the workers.
 *
 * Each decision is solved from nothing. From the last one's prices and pairs, 20 x 20 takes 0.6 us instead of 1.6 us, of
 * 3 us in all, and 500 x 256 a hundredth. But a least-cost matching is seldom the only one, since it often makes no
 * difference which query of a class goes first: 7 of 10 decisions, 19 of 20 at 256 workers, then dispatch another
 * query. An answer would depend on all that came before it.
 */
#include "sched/route.h"

#include <string.h>

#include "base/align.h"
#include "sched/lap.h"

enum { QUERIES_MAX = 2 * LEAT_SCHED_WORKERS_MAX, COLUMNS_MAX = LEAT_SCHED_WORKERS_MAX + 1 };
enum { STRIDE_MAX = (COLUMNS_MAX + LEAT_LAP_LANES - 1) / LEAT_LAP_LANES * LEAT_LAP_LANES };
enum { LAP_BYTES = 64 * QUERIES_MAX + 128 * STRIDE_MAX }; /* more than leat_lap_bytes says */
enum { COLUMNS_MANY = 96, GROUP_COLUMNS = 8 };
enum { GROUPS_MAX = LEAT_SCHED_WORKERS_MAX / GROUP_COLUMNS + 2 * LEAT_SCHED_CLASSES_MAX + 1 };
enum { GROUPS_STRIDE_MAX = (GROUPS_MAX + LEAT_LAP_LANES - 1) / LEAT_LAP_LANES * LEAT_LAP_LANES };
enum { WEIGHT_BITS = 16 };

#define TIME_MAX (LEAT_LAP_COST_MAX / 2) /* a wait and an execution together stay a cost; more counts as this */

/*
 * Columns are where a query may go. Idle workers of a class are alike, so they are one column that holds as many; these
 * come first. Then each busy worker. When there are more queries than workers, the last column holds the rest at no cost.
 */
struct matching {
    _Alignas(LEAT_CACHE_LINE) int64_t cost[QUERIES_MAX * STRIDE_MAX];
    _Alignas(LEAT_CACHE_LINE) unsigned char lap_memory[LAP_BYTES];
    struct leat_lap *lap;
    struct leat_lap_problem problem;
    bool by_percentile;
    uint32_t worker_count; /* of those that take work at all */
    uint32_t idle_columns;
    uint32_t worker_columns;                   /* all but that for the rest */
    uint32_t class_mask;                       /* bit by class that has workers */
    int64_t weight[LEAT_SCHED_CLASSES_MAX];    /* C, in 1/2^WEIGHT_BITS */
    uint32_t capacity[COLUMNS_MAX];
    uint32_t class_of[COLUMNS_MAX];
    int64_t wait_ns[COLUMNS_MAX];
    int64_t weighted_wait_ns[COLUMNS_MAX];
    uint32_t column[QUERIES_MAX]; /* the answer */

    /* A coarser problem, which comes first where columns are many; untouched where they are few. */
    _Alignas(LEAT_CACHE_LINE) int64_t coarse_cost[QUERIES_MAX * GROUPS_STRIDE_MAX];
    struct leat_lap_problem coarse; /* a column a group */
    uint32_t group_count;
    uint32_t group_capacity[GROUPS_MAX];
    uint32_t group_columns[GROUPS_MAX];
    uint32_t group[GROUPS_MAX][GROUP_COLUMNS]; /* its columns, by wait */
    int64_t price[COLUMNS_MAX];
};

/* The caller's memory may be aligned for any basic type only. */
static struct matching *
matching_at(void *state)
{
    return (struct matching *)leat_round_up((uintptr_t)state, LEAT_CACHE_LINE);
}

static enum leat_status
matching_init(void *state, const struct leat_router_options *options)
{
    struct matching *matching = matching_at(state);
    matching->by_percentile = options->by_percentile;
    LEAT_ASSERT(leat_lap_bytes(QUERIES_MAX, COLUMNS_MAX) <= sizeof(matching->lap_memory));
    matching->lap = leat_lap_init(matching->lap_memory, QUERIES_MAX, COLUMNS_MAX);
    return LEAT_OK;
}

static int64_t
bounded_ns(uint64_t time_ns)
{
    return time_ns < (uint64_t)TIME_MAX ? (int64_t)time_ns : TIME_MAX;
}

static int64_t
weighted(const struct matching *matching, uint32_t class, int64_t time_ns)
{
    return (matching->weight[class] * time_ns) >> WEIGHT_BITS;
}

/* ---- Columns ----------------------------------------------------------------------------------- */

static void
weigh_classes(struct matching *matching, const struct leat_route_input *input)
{
    int64_t class_ns[LEAT_SCHED_CLASSES_MAX], base_ns = TIME_MAX;

    for (uint32_t left = matching->class_mask; left != 0; left &= left - 1) {
        const uint32_t class = (uint32_t)__builtin_ctz(left);
        const uint64_t known_ns = leat_route_class_ns(input, class);
        class_ns[class] = known_ns == UINT64_MAX ? 0 : bounded_ns(known_ns);
        base_ns = class_ns[class] > 0 && class_ns[class] < base_ns ? class_ns[class] : base_ns;
    }
    for (uint32_t left = matching->class_mask; left != 0; left &= left - 1) {
        const uint32_t class = (uint32_t)__builtin_ctz(left);
        const int64_t weight = class_ns[class] > 0 ? (base_ns << WEIGHT_BITS) / class_ns[class] : 1 << WEIGHT_BITS;
        matching->weight[class] = weight > 0 ? weight : 1;
    }
}

static void
add_column(struct matching *matching, uint32_t class, uint32_t capacity, uint64_t wait_ns)
{
    const uint32_t j = matching->problem.columns++;
    matching->class_of[j] = class;
    matching->capacity[j] = capacity;
    matching->wait_ns[j] = bounded_ns(wait_ns);
    matching->weighted_wait_ns[j] = weighted(matching, class, matching->wait_ns[j]);
}

/* False when no worker is idle: nothing could be dispatched. */
static bool
make_columns(struct matching *matching, const struct leat_route_input *input)
{
    uint32_t idle[LEAT_SCHED_CLASSES_MAX] = {0};

    LEAT_ASSERT(input->worker_count <= LEAT_SCHED_WORKERS_MAX);
    matching->problem.columns = matching->worker_count = matching->class_mask = 0;
    uint32_t idle_mask = 0;
    for (uint32_t w = 0; w < input->worker_count; w++) {
        const struct leat_sched_worker *worker = &input->workers[w];
        if (worker->depth > 0) {
            LEAT_ASSERT(worker->worker_class < LEAT_SCHED_CLASSES_MAX);
            matching->worker_count++;
            matching->class_mask |= UINT32_C(1) << worker->worker_class;
            idle[worker->worker_class] += worker->outstanding == 0;
            idle_mask |= (uint32_t)(worker->outstanding == 0) << worker->worker_class;
        }
    }
    if (idle_mask == 0) {
        return false;
    }
    weigh_classes(matching, input);
    for (uint32_t left = idle_mask; left != 0; left &= left - 1) {
        const uint32_t class = (uint32_t)__builtin_ctz(left);
        add_column(matching, class, idle[class], 0);
    }
    matching->idle_columns = matching->problem.columns;
    for (uint32_t w = 0; w < input->worker_count; w++) {
        const struct leat_sched_worker *worker = &input->workers[w];
        if (worker->depth > 0 && worker->outstanding > 0) {
            add_column(matching, worker->worker_class, 1, leat_route_wait_ns(input, worker));
        }
    }
    return true;
}

/* ---- Costs ------------------------------------------------------------------------------------- */

/* A query that would wait longer than spare_ns in a class is late there and costs late_ns at least. All three by class. */
struct terms {
    int64_t cost_ns[LEAT_SCHED_CLASSES_MAX]; /* of its execution */
    int64_t spare_ns[LEAT_SCHED_CLASSES_MAX];
    int64_t late_ns[LEAT_SCHED_CLASSES_MAX];
};

static void
make_terms(const struct matching *matching, const struct leat_route_input *input, const struct leat_sched_query *query,
           struct terms *terms)
{
    int64_t slack_ns = 2 * TIME_MAX, late_ns = 0; /* left for waiting and execution; no deadline: always enough */

    if (query->deadline_ns != LEAT_NO_DEADLINE) {
        const uint64_t objective_ns = query->deadline_ns > query->arrival_ns ? query->deadline_ns - query->arrival_ns : 0;
        const uint64_t margin_ns = objective_ns / 50 + (objective_ns % 50 != 0); /* xi = 0.98 */
        const uint64_t safe_ns = matching->by_percentile ? objective_ns : objective_ns - margin_ns;
        const uint64_t waited_ns = input->now_ns > query->arrival_ns ? input->now_ns - query->arrival_ns : 0;
        const uint64_t left_ns = safe_ns - waited_ns;
        slack_ns = waited_ns > safe_ns ? -1 : left_ns < (uint64_t)slack_ns ? (int64_t)left_ns : slack_ns;
        late_ns = objective_ns < (uint64_t)LEAT_LAP_COST_MAX / 10 ? (int64_t)objective_ns * 10 : LEAT_LAP_COST_MAX;
    }
    for (uint32_t left = matching->class_mask; left != 0; left &= left - 1) {
        const uint32_t class = (uint32_t)__builtin_ctz(left);
        const int64_t time_ns = bounded_ns(
            input->mean(input->profiles, input->application, input->variant, (uint16_t)class, query->items));
        terms->cost_ns[class] = weighted(matching, class, time_ns);
        terms->spare_ns[class] = slack_ns - time_ns;
        if (matching->by_percentile) {
            terms->spare_ns[class] = slack_ns - bounded_ns(input->predict(input->profiles, input->application,
                                                                          input->variant, (uint16_t)class, query->items));
        }
        terms->late_ns[class] = weighted(matching, class, late_ns);
    }
}

static void
make_problem(struct matching *matching, const struct leat_route_input *input)
{
    struct leat_lap_problem *problem = &matching->problem;
    const uint32_t columns = problem->columns, queries = input->pending_count;

    problem->rows = queries < 2 * matching->worker_count ? queries : 2 * matching->worker_count;
    matching->worker_columns = columns;
    if (problem->rows > matching->worker_count) {
        matching->capacity[problem->columns++] = problem->rows - matching->worker_count;
    }
    problem->stride = (uint32_t)leat_round_up(problem->columns, LEAT_LAP_LANES);
    problem->cost = matching->cost;
    problem->capacity = matching->capacity;
    for (uint32_t i = 0; i < problem->rows; i++) {
        int64_t *row = matching->cost + (size_t)i * problem->stride;
        struct terms terms;
        make_terms(matching, input, &input->pending[i], &terms);
        for (uint32_t j = 0; j < columns; j++) {
            const uint32_t class = matching->class_of[j];
            const int64_t cost_ns = terms.cost_ns[class] + matching->weighted_wait_ns[j];
            const bool late = matching->wait_ns[j] > terms.spare_ns[class];
            row[j] = late && cost_ns < terms.late_ns[class] ? terms.late_ns[class] : cost_ns;
        }
        if (columns < problem->columns) {
            row[columns] = 0; /* left over */
        }
    }
}

/* ---- Many columns: coarsely first -------------------------------------------------------------- */

/*
 * To queries that are late on none of them, busy workers of a class differ by their waits alone, which prices make good:
 * a few that are free at nearly the same time are nearly one column. So little a problem is soon solved, and its prices
 * and assignment are where the whole one starts: left to do there is what lateness changes within a group. It is worth
 * it for many columns, and only possible where every worker gets a query.
 */

/* Appends a column to a group. */
static void
add_to_group(struct matching *matching, uint32_t g, uint32_t j)
{
    matching->group[g][matching->group_columns[g]++] = j;
    matching->group_capacity[g] += matching->capacity[j];
}

static uint32_t
add_group(struct matching *matching)
{
    const uint32_t g = matching->group_count++;
    LEAT_ASSERT(g < GROUPS_MAX);
    matching->group_columns[g] = matching->group_capacity[g] = 0;
    return g;
}

/* Busy workers of a class by GROUP_COLUMNS, those that are free soonest first; all other columns alone. */
static void
make_groups(struct matching *matching)
{
    uint32_t soonest[COLUMNS_MAX], group_of_class[LEAT_SCHED_CLASSES_MAX];
    const uint32_t idle = matching->idle_columns, columns = matching->worker_columns;

    matching->group_count = 0;
    for (uint32_t j = 0; j < matching->problem.columns; j++) {
        if (j < idle || j >= columns) {
            add_to_group(matching, add_group(matching), j);
        }
    }
    for (uint32_t j = idle; j < columns; j++) {
        uint32_t at = j;
        for (; at > idle && matching->wait_ns[soonest[at - 1]] > matching->wait_ns[j]; at--) {
            soonest[at] = soonest[at - 1];
        }
        soonest[at] = j;
    }
    memset(group_of_class, 0xff, sizeof(group_of_class));
    for (uint32_t at = idle; at < columns; at++) {
        uint32_t *g = &group_of_class[matching->class_of[soonest[at]]];
        if (*g == UINT32_MAX || matching->group_columns[*g] == GROUP_COLUMNS) {
            *g = add_group(matching);
        }
        add_to_group(matching, *g, soonest[at]);
    }
}

/* A group costs what its first column does. */
static void
make_coarse(struct matching *matching)
{
    struct leat_lap_problem *coarse = &matching->coarse;

    make_groups(matching);
    *coarse = (struct leat_lap_problem){.rows = matching->problem.rows,
                                        .columns = matching->group_count,
                                        .stride = (uint32_t)leat_round_up(matching->group_count, LEAT_LAP_LANES),
                                        .cost = matching->coarse_cost,
                                        .capacity = matching->group_capacity};
    for (uint32_t i = 0; i < coarse->rows; i++) {
        const int64_t *row = matching->cost + (size_t)i * matching->problem.stride;
        for (uint32_t g = 0; g < coarse->columns; g++) {
            matching->coarse_cost[(size_t)i * coarse->stride + g] = row[matching->group[g][0]];
        }
    }
}

/* On the last of a group it costs no more than on the first: it is late on all of them. */
static bool
is_late_in(const struct matching *matching, uint32_t i, uint32_t g)
{
    const int64_t *row = matching->cost + (size_t)i * matching->problem.stride;
    const uint32_t last = matching->group_columns[g] - 1;
    return row[matching->group[g][0]] == row[matching->group[g][last]];
}

/* Prices, and a column for each query, from the coarse solution. In a group, who is late has the longest waits. */
static void
guess(struct matching *matching)
{
    uint32_t on_time_count[GROUPS_MAX] = {0}, late_count[GROUPS_MAX] = {0};

    for (uint32_t i = 0; i < matching->problem.rows; i++) {
        const uint32_t g = leat_lap_column_of(matching->lap, i), n = matching->group_columns[g];
        uint32_t place = 0;
        if (n > 1) {
            place = is_late_in(matching, i, g) ? n - ++late_count[g] : on_time_count[g]++;
        }
        matching->column[i] = matching->group[g][place];
    }
    for (uint32_t g = 0; g < matching->group_count; g++) {
        const uint32_t *columns = matching->group[g], n = matching->group_columns[g], late = late_count[g];
        const int64_t dual = leat_lap_column_dual(matching->lap, g);
        for (uint32_t k = 0; k < n; k++) {
            const uint32_t as = columns[k + late < n ? k : n - late]; /* for who is late all waits are alike */
            const int64_t price = dual + matching->weighted_wait_ns[as] - matching->weighted_wait_ns[columns[0]];
            matching->price[columns[k]] = price < LEAT_LAP_COST_MAX ? price : LEAT_LAP_COST_MAX;
        }
    }
}

/* ---- The answer -------------------------------------------------------------------------------- */

static void
solve(struct matching *matching)
{
    const struct leat_lap_problem *problem = &matching->problem;

    if (problem->columns >= COLUMNS_MANY && problem->rows >= matching->worker_count) {
        make_coarse(matching);
        leat_lap_solve(matching->lap, &matching->coarse);
        guess(matching);
        leat_lap_solve_from(matching->lap, problem, matching->price, matching->column);
    } else {
        leat_lap_solve(matching->lap, problem);
    }
    for (uint32_t i = 0; i < problem->rows; i++) {
        matching->column[i] = leat_lap_column_of(matching->lap, i);
    }
}

/* Queries that cost the same everywhere, such as those of one size without deadlines, are dispatched in turn. */
static void
prefer_older(struct matching *matching)
{
    const uint32_t rows = matching->problem.rows, stride = matching->problem.stride;
    const size_t row_bytes = matching->problem.columns * sizeof(*matching->cost);
    uint32_t dispatched[QUERIES_MAX], count = 0;

    for (uint32_t i = 0; i < rows; i++) {
        if (matching->column[i] < matching->idle_columns) {
            dispatched[count++] = i;
        }
    }
    for (uint32_t old = 0; old < rows; old++) {
        const int64_t *of_old = matching->cost + (size_t)old * stride;
        for (uint32_t d = count; matching->column[old] >= matching->idle_columns && d > 0 && dispatched[d - 1] > old; d--) {
            const uint32_t young = dispatched[d - 1];
            const int64_t *of_young = matching->cost + (size_t)young * stride;
            if (matching->column[young] < matching->idle_columns && of_old[0] == of_young[0] &&
                memcmp(of_old, of_young, row_bytes) == 0) {
                const uint32_t waits = matching->column[old];
                matching->column[old] = matching->column[young];
                matching->column[young] = waits;
            }
        }
    }
}

/* The pairs whose worker is idle, oldest query first; within a class they take the lowest-numbered workers in turn. */
static uint32_t
write_pairs(const struct matching *matching, const struct leat_route_input *input, struct leat_route_pair *pairs,
            uint32_t pairs_max)
{
    uint32_t next[LEAT_SCHED_CLASSES_MAX] = {0}, count = 0;

    for (uint32_t i = 0; i < matching->problem.rows && count < pairs_max; i++) {
        if (matching->column[i] < matching->idle_columns) {
            const uint32_t class = matching->class_of[matching->column[i]];
            uint32_t w = next[class];
            while (input->workers[w].worker_class != class || !leat_route_is_idle(&input->workers[w])) {
                w++;
                LEAT_ASSERT(w < input->worker_count);
            }
            next[class] = w + 1;
            pairs[count++] = (struct leat_route_pair){.query = i, .worker = w};
        }
    }
    return count;
}

static uint32_t
matching_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    struct matching *matching = matching_at(state);

    if (input->pending_count == 0 || pairs_max == 0 || !make_columns(matching, input)) {
        return 0;
    }
    make_problem(matching, input);
    solve(matching);
    prefer_older(matching);
    return write_pairs(matching, input, pairs, pairs_max);
}

const struct leat_router leat_router_matching = {
    .name = "matching",
    .state_bytes = sizeof(struct matching) + LEAT_CACHE_LINE,
    .per_query = true,
    .init = matching_init,
    .route = matching_route,
};
