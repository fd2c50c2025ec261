/* SPDX-License-Identifier: Apache-2.0 */
/* Least-cost matching of waiting queries and workers. O(queries^2 * columns), queries <= twice the workers. */
#include "sched/route.h"

#include <string.h>

#include "base/align.h"
#include "sched/lap.h"

enum { QUERIES_MAX = 2 * LEAT_SCHED_WORKERS_MAX, COLUMNS_MAX = LEAT_SCHED_WORKERS_MAX + 1 };
enum { STRIDE_MAX = (COLUMNS_MAX + LEAT_LAP_LANES - 1) / LEAT_LAP_LANES * LEAT_LAP_LANES };
enum { LAP_BYTES = 64 * QUERIES_MAX + 128 * STRIDE_MAX }; /* more than leat_lap_bytes says */
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
    uint32_t class_mask;                       /* bit by class that has workers */
    int64_t weight[LEAT_SCHED_CLASSES_MAX];    /* C, in 1/2^WEIGHT_BITS */
    uint32_t capacity[COLUMNS_MAX];
    uint32_t class_of[COLUMNS_MAX];
    int64_t wait_ns[COLUMNS_MAX];
    int64_t weighted_wait_ns[COLUMNS_MAX];
    uint32_t column[QUERIES_MAX]; /* the answer */
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

/* ---- The answer -------------------------------------------------------------------------------- */

/* Queries that cost the same everywhere, such as those of one size without deadlines, are dispatched in turn. */
static void
prefer_older(struct matching *matching)
{
    const uint32_t rows = matching->problem.rows, stride = matching->problem.stride;
    const size_t row_bytes = matching->problem.columns * sizeof(*matching->cost);

    for (uint32_t old = 0; old < rows; old++) {
        const int64_t *of_old = matching->cost + (size_t)old * stride;
        for (uint32_t young = rows - 1; matching->column[old] >= matching->idle_columns && young > old; young--) {
            const int64_t *of_young = matching->cost + (size_t)young * stride;
            if (matching->column[young] < matching->idle_columns && memcmp(of_old, of_young, row_bytes) == 0) {
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
    leat_lap_solve(matching->lap, &matching->problem);
    for (uint32_t i = 0; i < matching->problem.rows; i++) {
        matching->column[i] = leat_lap_column_of(matching->lap, i);
    }
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
