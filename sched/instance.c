/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/instance.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/align.h"
#include "base/status.h"

#define SECOND_NS UINT64_C(1000000000)
#define PERMILLE  1000u
#define RATIO_MAX 64u /* of one batch */
#define AGE_MAX   UINT8_MAX

__extension__ typedef unsigned __int128 wide;

const struct leat_instance_limits leat_instance_limits_default = {
    .slow_permille = 2500, .busy_permille = 500, .backlog_permille = 800, .clear_permille = 1500, .decay_permille = 1500};
const struct leat_instance_limits leat_instance_limits_alone = {
    .slow_permille = 4000, .busy_permille = 900, .backlog_permille = 1100, .clear_permille = 1500, .decay_permille = 15000};

/* ---- Evidence ---------------------------------------------------------------------------------- */

static uint32_t
narrow(wide value)
{
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

static uint32_t
ratio_permille(uint64_t part, uint64_t whole)
{
    return whole > 0 ? narrow((wide)part * PERMILLE / whole) : 0;
}

static void
begin_window(struct leat_instance *instance, const struct leat_instance_worker *worker)
{
    instance->profiled_ns = instance->run_ns = instance->response_ns = 0;
    instance->worst_profiled_ns = instance->worst_run_ns = 0;
    instance->items = instance->batches = 0;
    instance->busy_seen_ns = worker->busy_ns;
    instance->ended_seen_ns = worker->ended_ns;
}

void
leat_instance_turn(struct leat_instance *instance, const struct leat_instance_worker *worker, enum leat_instance_state state)
{
    static const struct leat_instance_worker unused;

    LEAT_ASSERT(state <= LEAT_INSTANCE_ACTIVE);
    *instance = (struct leat_instance){.running = instance->running, .state = (uint8_t)state, .age = AGE_MAX};
    begin_window(instance, worker != NULL ? worker : &unused);
}

void
leat_instance_begin(struct leat_instance *instance)
{
    LEAT_ASSERT(instance->running < UINT16_MAX);
    instance->running++;
}

/* What counts of a time: not what any batch is allowed, and RATIO_MAX of the profiled at most. */
static uint64_t
counted_ns(uint64_t time_ns, uint64_t profiled_ns)
{
    const uint64_t over_ns = time_ns > profiled_ns ? time_ns - profiled_ns : 0;
    const uint64_t left_ns = time_ns - (over_ns < LEAT_INSTANCE_ALLOWANCE_NS ? over_ns : LEAT_INSTANCE_ALLOWANCE_NS);
    uint64_t most_ns;
    if (__builtin_mul_overflow(profiled_ns, RATIO_MAX, &most_ns)) {
        most_ns = UINT64_MAX;
    }
    return left_ns < most_ns ? left_ns : most_ns;
}

/* How much longer than profiled; below 0: not at all. */
static int64_t
excess_ns(uint64_t run_ns, uint64_t profiled_ns)
{
    return (int64_t)(run_ns - profiled_ns);
}

void
leat_instance_end(struct leat_instance *instance, struct leat_instance_worker *worker, uint64_t now_ns,
                  const struct leat_instance_batch *batch)
{
    LEAT_ASSERT(instance->running > 0 && (batch->items > 0 || batch->profiled_ns == 0));
    instance->running--;
    instance->fresh = 1;
    worker->busy_ns += batch->run_ns;
    worker->ended_ns = now_ns;
    if (batch->profiled_ns == 0) {
        return;
    }
    const uint64_t run_ns = counted_ns(batch->run_ns, batch->profiled_ns);
    if (instance->batches == 0 || excess_ns(run_ns, batch->profiled_ns) >
                                      excess_ns(instance->worst_run_ns, instance->worst_profiled_ns)) {
        instance->worst_run_ns = run_ns;
        instance->worst_profiled_ns = batch->profiled_ns;
    }
    instance->profiled_ns += batch->profiled_ns;
    instance->run_ns += run_ns;
    instance->response_ns += counted_ns(batch->response_ns, batch->profiled_ns);
    instance->items += batch->items;
    instance->batches++;
}

static void
take_verdict(struct leat_instance *instance, const struct leat_instance_worker *worker)
{
    instance->slow_permille = ratio_permille(instance->run_ns - instance->worst_run_ns,
                                             instance->profiled_ns - instance->worst_profiled_ns);
    instance->response_permille = ratio_permille(instance->response_ns, instance->profiled_ns);
    instance->busy_permille =
        ratio_permille(worker->busy_ns - instance->busy_seen_ns, worker->ended_ns - instance->ended_seen_ns);
    instance->item_ns = instance->profiled_ns / instance->items;
    begin_window(instance, worker);
}

/* ---- States ------------------------------------------------------------------------------------ */

/* What is asked of the application, beside the peak of all workers: what comes, and what waits beside an interval of it. */
struct pressure {
    uint32_t rate_permille, backlog_permille;
};

static struct pressure
measure(const struct leat_instance *instance, const struct leat_instance_demand *demand)
{
    const wide each_ns = (wide)instance->item_ns * PERMILLE / demand->worker_count;
    return (struct pressure){
        .rate_permille = narrow(each_ns * demand->rate_qps / SECOND_NS),
        .backlog_permille = narrow(each_ns * demand->waiting_items / LEAT_INSTANCE_INTERVAL_NS),
    };
}

static enum leat_instance_state
judge(const struct leat_instance *instance, const struct leat_instance_limits *limits,
      const struct leat_instance_demand *demand, uint32_t batches)
{
    const struct pressure pressure = measure(instance, demand);
    const bool held = instance->state != LEAT_INSTANCE_ACTIVE && instance->age < instance->hold;

    if (instance->slow_permille > limits->slow_permille) {
        return LEAT_INSTANCE_INTERFERED;
    }
    if (instance->state == LEAT_INSTANCE_INTERFERED && (held || instance->slow_permille >= limits->clear_permille)) {
        return LEAT_INSTANCE_INTERFERED;
    }
    if ((instance->response_permille > limits->slow_permille && instance->busy_permille >= limits->busy_permille &&
         batches >= LEAT_INSTANCE_QUEUE_BATCHES) ||
        pressure.backlog_permille > limits->backlog_permille) {
        return LEAT_INSTANCE_OVERLOADED;
    }
    if (instance->state == LEAT_INSTANCE_OVERLOADED &&
        (held || instance->response_permille >= limits->clear_permille || pressure.rate_permille >= PERMILLE)) {
        return LEAT_INSTANCE_OVERLOADED;
    }
    return LEAT_INSTANCE_ACTIVE;
}

static void
enter(struct leat_instance *instance, enum leat_instance_state state)
{
    if (instance->state == LEAT_INSTANCE_ACTIVE) {
        const uint32_t twice = instance->hold < LEAT_INSTANCE_HOLD_MAX / 2 ? 2u * instance->hold : LEAT_INSTANCE_HOLD_MAX;
        instance->hold = (uint8_t)(instance->age <= instance->hold ? twice : 1);
    }
    instance->state = (uint8_t)state;
    instance->age = 0;
}

enum leat_instance_state
leat_instance_evaluate(struct leat_instance *instance, const struct leat_instance_worker *worker,
                       const struct leat_instance_limits *limits, const struct leat_instance_demand *demand)
{
    const uint32_t batches = instance->batches;
    const bool verdict = batches >= LEAT_INSTANCE_BATCHES;
    const bool active = instance->state == LEAT_INSTANCE_ACTIVE;
    const bool quiet = !instance->fresh && instance->running == 0;

    LEAT_ASSERT(demand->worker_count >= 1 && limits->decay_permille > PERMILLE);
    instance->fresh = 0;
    instance->quiet = (uint8_t)(quiet ? instance->quiet + (instance->quiet < UINT8_MAX) : 0);
    if (active && !verdict && instance->quiet >= LEAT_INSTANCE_QUIET) {
        begin_window(instance, worker); /* what comes is no more of the same */
    }
    if (instance->state < LEAT_INSTANCE_ACTIVE || (active && !verdict)) {
        return instance->state;
    }
    instance->age = (uint8_t)(instance->age + (instance->age < AGE_MAX));
    if (verdict) {
        take_verdict(instance, worker);
    } else if (quiet) {
        instance->slow_permille = (uint32_t)((uint64_t)instance->slow_permille * PERMILLE / limits->decay_permille);
        instance->response_permille = 0;
        begin_window(instance, worker); /* what it was told long ago does not count any more */
    } else {
        return instance->state;
    }
    const enum leat_instance_state state = judge(instance, limits, demand, batches);
    if (state != instance->state) {
        enter(instance, state);
    }
    return state;
}

uint32_t
leat_instance_peak_qps(const struct leat_instance *instance)
{
    return instance->item_ns > 0 ? narrow(SECOND_NS / instance->item_ns) : 0;
}

const char *
leat_instance_state_text(enum leat_instance_state state)
{
    static const char *const texts[] = {"inactive", "loading", "active", "overloaded", "interfered"};

    LEAT_ASSERT((size_t)state < LEAT_COUNT_OF(texts));
    return texts[state];
}
