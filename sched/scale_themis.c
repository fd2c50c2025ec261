/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/scale_themis.h"

#include <string.h>

#include "base/align.h"

#define UNREACHED UINT32_MAX

/* A way to run a stage: what it takes and costs. */
struct way {
    uint32_t taken_ms, cost;
    struct leat_scale_choice choice;
};

struct ways {
    uint32_t count;
    struct way all[LEAT_SCALE_CORES_MAX * LEAT_SCALE_BATCH_MAX];
};

/* By latency of the stages so far: the least cost, and the way in which the last of them ran. */
struct cell {
    uint32_t cost;
    uint32_t way;
};

struct table {
    struct ways *ways;  /* by stage */
    struct cell *cells; /* by stage and latency, objective_ms + 1 of each */
};

static size_t
ways_bytes(const struct leat_themis_pipeline *pipeline)
{
    return leat_round_up(pipeline->stage_count * sizeof(struct ways), LEAT_CACHE_LINE);
}

size_t
leat_themis_bytes(const struct leat_themis_pipeline *pipeline)
{
    return ways_bytes(pipeline) + (size_t)pipeline->stage_count * (pipeline->objective_ms + 1) * sizeof(struct cell);
}

static struct table
table_in(const struct leat_themis_pipeline *pipeline, void *memory)
{
    return (struct table){.ways = memory, .cells = (struct cell *)((char *)memory + ways_bytes(pipeline))};
}

int64_t
leat_themis_latency_ms(const struct leat_themis_stage *stage, uint32_t batch, uint32_t cores)
{
    return (int64_t)leat_scale_latency_ms(&stage->latency, batch, cores);
}

double
leat_themis_least_ms(const struct leat_themis_stage *stage)
{
    double least_ms = 0;

    for (uint32_t cores = 1; cores <= stage->cores_max; cores++) {
        for (uint32_t batch = 1; batch <= stage->batch_max; batch++) {
            const double ms = leat_scale_latency_ms(&stage->latency, batch, cores);
            least_ms = ms > 0 && (least_ms == 0 || ms < least_ms) ? ms : least_ms;
        }
    }
    return least_ms;
}

uint32_t
leat_themis_queue_ms(uint32_t batch, uint32_t rate_qps)
{
    return 1000 * (batch - 1) / rate_qps;
}

/* Latency with the wait for a batch, and whole queries a second of one instance; false: of no use. */
static bool
judge(const struct leat_themis_stage *stage, uint32_t batch, uint32_t cores, uint32_t rate_qps, uint32_t *ret_taken_ms,
      uint32_t *ret_served_qps)
{
    const int64_t taken_ms = leat_themis_latency_ms(stage, batch, cores) + leat_themis_queue_ms(batch, rate_qps);

    if (leat_scale_latency_ms(&stage->latency, batch, cores) <= 0 || taken_ms < 1 || taken_ms > 1000 * (int64_t)batch) {
        return false;
    }
    *ret_taken_ms = (uint32_t)taken_ms;
    *ret_served_qps = 1000 * batch / (uint32_t)taken_ms;
    return true;
}

/* Of two that take the same, only the cheaper, or the first, can be part of an answer. */
static void
offer(struct ways *ways, uint32_t taken_ms, uint32_t cost, struct leat_scale_choice choice)
{
    for (uint32_t w = 0; w < ways->count; w++) {
        if (ways->all[w].taken_ms == taken_ms) {
            if (cost < ways->all[w].cost) {
                ways->all[w] = (struct way){taken_ms, cost, choice};
            }
            return;
        }
    }
    ways->all[ways->count++] = (struct way){taken_ms, cost, choice};
}

/* One step of the programs: from each latency of the stages before, the longest first, by each way of this one. */
static void
explore(const struct ways *ways, const struct cell *before, struct cell *cells, uint32_t objective_ms, uint32_t cost_max)
{
    for (uint32_t t = 0; t <= objective_ms; t++) {
        cells[t].cost = UNREACHED;
    }
    for (uint32_t t = objective_ms; t > 0; t--) {
        if (before[t].cost > cost_max) {
            continue; /* not reached, mostly */
        }
        for (uint32_t w = 0; w < ways->count; w++) {
            const uint32_t to = t + ways->all[w].taken_ms, cost = before[t].cost + ways->all[w].cost;
            if (to <= objective_ms && cost < cells[to].cost) {
                cells[to] = (struct cell){cost, w};
            }
        }
    }
}

static void
explore_first(const struct ways *ways, struct cell *cells, uint32_t objective_ms)
{
    for (uint32_t t = 0; t <= objective_ms; t++) {
        cells[t].cost = UNREACHED;
    }
    for (uint32_t w = 0; w < ways->count; w++) {
        if (ways->all[w].taken_ms <= objective_ms) {
            cells[ways->all[w].taken_ms] = (struct cell){ways->all[w].cost, w};
        }
    }
}

static enum leat_status
solve(const struct leat_themis_pipeline *pipeline, const struct table *table, uint32_t cost_max,
      struct leat_scale_plan *ret_plan)
{
    const uint32_t last = pipeline->stage_count - 1, objective_ms = pipeline->objective_ms;
    const size_t row = (size_t)objective_ms + 1;
    uint32_t best_ms = 0, best_cost = UNREACHED;

    explore_first(&table->ways[0], table->cells, objective_ms);
    for (uint32_t s = 1; s <= last; s++) {
        explore(&table->ways[s], table->cells + (s - 1) * row, table->cells + s * row, objective_ms, cost_max);
    }
    for (uint32_t t = 0; t < objective_ms; t++) {
        const uint32_t cost = table->cells[last * row + t].cost;
        if (cost < best_cost) {
            best_cost = cost;
            best_ms = t;
        }
    }
    if (best_cost == UNREACHED) {
        return LEAT_ERR_NOT_FOUND;
    }
    ret_plan->cost = best_cost;
    ret_plan->latency_ms = best_ms;
    for (uint32_t s = pipeline->stage_count; s-- > 0;) {
        const struct way *way = &table->ways[s].all[table->cells[s * row + best_ms].way];
        ret_plan->stages[s] = way->choice;
        best_ms -= way->taken_ms;
    }
    return LEAT_OK;
}

/* The fewest cores, and of these the smallest batch, that the model has a time for. */
static bool
find_least(const struct leat_themis_stage *stage, uint32_t cores_max, struct leat_scale_choice *ret_choice)
{
    for (uint32_t cores = 1; cores <= cores_max; cores++) {
        for (uint32_t batch = 1; batch <= stage->batch_max; batch++) {
            if (leat_scale_latency_ms(&stage->latency, batch, cores) > 0) {
                *ret_choice = (struct leat_scale_choice){.instances = 1, .cores = cores, .batch = batch};
                return true;
            }
        }
    }
    return false;
}

/* Nothing comes: the least there is. */
static enum leat_status
idle(const struct leat_themis_pipeline *pipeline, bool one_core, struct leat_scale_plan *ret_plan)
{
    struct leat_scale_plan plan = {0};
    int64_t latency_ms = 0;

    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        const struct leat_themis_stage *stage = &pipeline->stages[s];
        struct leat_scale_choice *choice = &plan.stages[s];
        if (!find_least(stage, one_core ? 1 : stage->cores_max, choice)) {
            return LEAT_ERR_NOT_FOUND;
        }
        plan.cost += choice->cores;
        latency_ms += leat_themis_latency_ms(stage, choice->batch, choice->cores);
    }
    plan.latency_ms = latency_ms < UINT32_MAX ? (uint32_t)latency_ms : UINT32_MAX;
    *ret_plan = plan;
    return LEAT_OK;
}

enum leat_status
leat_themis_horizontal(const struct leat_themis_pipeline *pipeline, uint32_t rate_qps, void *memory,
                       struct leat_scale_plan *ret_plan)
{
    const struct table table = table_in(pipeline, memory);

    if (rate_qps == 0) {
        return idle(pipeline, true, ret_plan);
    }
    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        table.ways[s].count = 0;
        for (uint32_t batch = 1; batch <= pipeline->stages[s].batch_max; batch++) {
            uint32_t taken_ms, served_qps;
            if (judge(&pipeline->stages[s], batch, 1, rate_qps, &taken_ms, &served_qps)) {
                const uint32_t instances = (rate_qps + served_qps - 1) / served_qps;
                offer(&table.ways[s], taken_ms, instances, (struct leat_scale_choice){instances, 1, batch});
            }
        }
    }
    return solve(pipeline, &table, UNREACHED - 1, ret_plan);
}

/* Sets the ways of all stages; false: one has none. Returns the least that all of them take together. */
static bool
find_vertical(const struct leat_themis_pipeline *pipeline, uint32_t rate_qps, const uint32_t *instances, struct ways *ways,
              uint64_t *ret_least_ms)
{
    *ret_least_ms = 0;
    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        uint32_t least_ms = UINT32_MAX;
        ways[s].count = 0;
        for (uint32_t cores = 1; cores <= pipeline->stages[s].cores_max; cores++) {
            for (uint32_t batch = 1; batch <= pipeline->stages[s].batch_max; batch++) {
                uint32_t taken_ms, served_qps;
                if (judge(&pipeline->stages[s], batch, cores, rate_qps, &taken_ms, &served_qps) &&
                    (uint64_t)served_qps * instances[s] >= rate_qps) {
                    offer(&ways[s], taken_ms, cores, (struct leat_scale_choice){instances[s], cores, batch});
                    least_ms = taken_ms < least_ms ? taken_ms : least_ms;
                }
            }
        }
        if (ways[s].count == 0) {
            return false;
        }
        *ret_least_ms += least_ms;
    }
    return true;
}

/* Whether the stages before the last never have more cores than count. */
static bool
is_small(const struct leat_themis_pipeline *pipeline)
{
    uint32_t cores = 0;
    for (uint32_t s = 0; s + 1 < pipeline->stage_count; s++) {
        cores += pipeline->stages[s].cores_max;
    }
    return cores <= LEAT_THEMIS_PREFIX_CORES_MAX;
}

enum leat_status
leat_themis_vertical(const struct leat_themis_pipeline *pipeline, uint32_t rate_qps, const uint32_t *instances, void *memory,
                     struct leat_scale_plan *ret_plan)
{
    const struct table table = table_in(pipeline, memory);
    uint64_t least_ms;

    if (rate_qps == 0) {
        return idle(pipeline, false, ret_plan);
    }
    if (!find_vertical(pipeline, rate_qps, instances, table.ways, &least_ms) || least_ms >= pipeline->objective_ms) {
        return LEAT_ERR_NOT_FOUND;
    }
    return solve(pipeline, &table, LEAT_THEMIS_PREFIX_CORES_MAX, ret_plan);
}

/* Whether there is a plan; it is solved for only where the quickest ways of all stages may be too many cores together. */
static bool
is_carried(const struct leat_themis_pipeline *pipeline, uint32_t rate_qps, const uint32_t *instances, void *memory)
{
    struct leat_scale_plan plan;
    uint64_t least_ms;

    if (!is_small(pipeline)) {
        return leat_themis_vertical(pipeline, rate_qps, instances, memory, &plan) == LEAT_OK;
    }
    return find_vertical(pipeline, rate_qps, instances, table_in(pipeline, memory).ways, &least_ms) &&
           least_ms < pipeline->objective_ms;
}

enum leat_status
leat_themis_vertical_grown(const struct leat_themis_pipeline *pipeline, uint32_t rate_qps, const uint32_t *instances,
                           void *memory, struct leat_scale_plan *ret_plan, uint32_t *ret_added)
{
    struct leat_scale_plan plan;
    uint32_t added[LEAT_SCALE_STAGES_MAX] = {0};
    enum leat_status status = leat_themis_vertical(pipeline, rate_qps, instances, memory, &plan);

    if (status != LEAT_OK) {
        uint32_t enough_qps = 1, too_much_qps = rate_qps;
        while (too_much_qps - enough_qps > 1) {
            const uint32_t middle_qps = enough_qps + (too_much_qps - enough_qps) / 2;
            if (is_carried(pipeline, middle_qps, instances, memory)) {
                enough_qps = middle_qps;
            } else {
                too_much_qps = middle_qps;
            }
        }
        if (rate_qps <= enough_qps || leat_themis_vertical(pipeline, enough_qps, instances, memory, &plan) != LEAT_OK) {
            return LEAT_ERR_NOT_FOUND;
        }
        const uint32_t rest_qps = rate_qps - enough_qps;
        for (uint32_t s = 0; s < pipeline->stage_count; s++) {
            struct leat_scale_choice *choice = &plan.stages[s];
            uint32_t taken_ms, served_qps;
            if (!judge(&pipeline->stages[s], choice->batch, choice->cores, rest_qps, &taken_ms, &served_qps)) {
                return LEAT_ERR_NOT_FOUND;
            }
            added[s] = (rest_qps + served_qps - 1) / served_qps;
            choice->instances += added[s];
        }
    }
    *ret_plan = plan;
    memcpy(ret_added, added, pipeline->stage_count * sizeof(added[0]));
    return LEAT_OK;
}

/* ---- From decision to decision ------------------------------------------------------------------ */

enum leat_status
leat_themis_decide(struct leat_themis_state *state, const struct leat_themis_pipeline *pipeline,
                   const struct leat_scale_plan *current, uint32_t rate_qps, uint32_t predicted_qps, void *memory,
                   enum leat_themis_kind *ret_kind, struct leat_scale_plan *ret_plan)
{
    uint32_t instances[LEAT_SCALE_STAGES_MAX], added[LEAT_SCALE_STAGES_MAX];
    struct leat_scale_plan now, next, vertical;

    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        instances[s] = current->stages[s].instances;
    }
    enum leat_status status = leat_themis_horizontal(pipeline, rate_qps, memory, &now);
    if (status == LEAT_OK) {
        status = leat_themis_horizontal(pipeline, predicted_qps, memory, &next);
    }
    const bool horizontal = status == LEAT_OK;
    status = leat_themis_vertical_grown(pipeline, rate_qps, instances, memory, &vertical, added);
    if (status != LEAT_OK) {
        return status;
    }
    bool stable = horizontal;
    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        stable = stable && added[s] == 0 && vertical.stages[s].cores <= current->stages[s].cores &&
                 now.stages[s].instances >= next.stages[s].instances;
    }
    if (!stable) {
        state->stable = 0;
        for (uint32_t s = 0; s < pipeline->stage_count; s++) {
            struct leat_scale_choice *choice = &vertical.stages[s];
            choice->instances = instances[s] + added[s]; /* at a rate of 0, too */
            choice->cores = choice->cores > current->stages[s].cores ? choice->cores : current->stages[s].cores;
        }
        *ret_kind = LEAT_THEMIS_VERTICAL;
        *ret_plan = vertical;
    } else if (state->stable < state->settle_decisions) {
        state->stable++;
        *ret_kind = LEAT_THEMIS_KEEP;
        *ret_plan = *current;
    } else {
        state->stable = 0;
        *ret_kind = LEAT_THEMIS_HORIZONTAL;
        *ret_plan = now;
    }
    return LEAT_OK;
}
