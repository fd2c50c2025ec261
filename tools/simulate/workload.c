/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/simulate.h"

#include <stdlib.h>

#include "tools/simulate/random.h"

/* ---- Sizes ------------------------------------------------------------------------------------- */

static enum leat_status
draw_sizes(const struct simulate_workload_options *options, uint64_t random, uint16_t *items, uint32_t *ret_clipped)
{
    const uint32_t items_max = options->items_max > 0 ? options->items_max : SIMULATE_ITEMS_MAX;
    struct simulate_draw draws[2] = {{0}};
    const bool changes = options->size_change_at > 0;
    uint32_t clipped = 0;

    enum leat_status status = simulate_draw_init(&options->sizes, &draws[0]);
    if (status == LEAT_OK && changes) {
        status = simulate_draw_init(&options->later_sizes, &draws[1]);
    }
    for (uint32_t i = 0; status == LEAT_OK && i < options->query_count; i++) {
        const uint32_t size = simulate_draw_size(&draws[changes && i >= options->size_change_at], &random);
        items[i] = (uint16_t)(size < items_max ? size : items_max);
        clipped += size > items_max;
    }
    *ret_clipped = clipped;
    simulate_draw_fini(&draws[0]);
    simulate_draw_fini(&draws[1]);
    return status;
}

/* Those of the trace's queries, as often as it takes. */
static void
repeat_sizes(const struct simulate_workload_options *options, uint16_t *items)
{
    const uint32_t items_max = options->items_max > 0 ? options->items_max : SIMULATE_ITEMS_MAX;

    for (uint32_t i = 0; i < options->query_count; i++) {
        const uint32_t size = options->items[i % options->time_count];
        LEAT_ASSERT(size > 0);
        items[i] = (uint16_t)(size < items_max ? size : items_max);
    }
}

/* ---- Arrivals ---------------------------------------------------------------------------------- */

/* A file at one a second on average, as often as it takes: the gap between two rounds is the mean one. */
static enum leat_status
repeat_times(const struct simulate_workload_options *options, double *arrival_s, double *ret_rate_qps)
{
    const double *times_s = options->times_s;
    const uint32_t count = options->time_count;

    for (uint32_t i = 1; i < count; i++) {
        if (!(times_s[i] >= times_s[i - 1])) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "arrival %u is before the one above", i);
        }
    }
    if (count < 2 || !(times_s[count - 1] - times_s[0] > 0)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "no time passes between the first arrival and the last");
    }
    const double rate_qps = arrivals_own_rate_qps(times_s, count);
    for (uint32_t i = 0; i < options->query_count; i++) {
        arrival_s[i] = (double)(i / count) * count + (times_s[i % count] - times_s[0]) * rate_qps;
    }
    *ret_rate_qps = rate_qps;
    return LEAT_OK;
}

static enum leat_status
draw_arrivals(const struct simulate_workload_options *options, uint64_t seed, double *arrival_s, double *ret_rate_qps)
{
    struct arrivals arrivals = {.kind = options->arrivals, .rate_qps = 1};

    if (options->arrivals == ARRIVALS_FILE) {
        return repeat_times(options, arrival_s, ret_rate_qps);
    }
    if (options->arrivals == ARRIVALS_BURSTY) {
        const double factor = options->burst_factor, share = options->burst_share;
        if (!(factor > 1 && factor <= 1e6) || !(share > 0 && share < 1) ||
            !(options->burst_mean_queries >= 0.01 && options->burst_mean_queries <= 1e9)) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "bursts %g times as fast, for a share %g of the time, of %g queries", factor,
                             share, options->burst_mean_queries);
        }
        arrivals.burst_factor = factor;
        arrivals.burst_share = share;
        arrivals.burst_mean_s = options->burst_mean_queries * (1 - share + share * factor) / factor;
    }
    arrivals_start(&arrivals, seed);
    for (uint32_t i = 0; i < options->query_count; i++) {
        arrival_s[i] = arrivals_next(&arrivals);
    }
    *ret_rate_qps = 1;
    return LEAT_OK;
}

/* ---- Workload ---------------------------------------------------------------------------------- */

enum leat_status
simulate_workload_make(const struct simulate_workload_options *options, struct simulate_workload *ret_workload)
{
    const uint32_t count = options->query_count;
    struct simulate_workload workload = {.count = count};

    if (count == 0 || count > SIMULATE_QUERIES_MAX || options->items_max > SIMULATE_ITEMS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%u queries of at most %u items: there can be 1 to %u, of at most %u", count,
                         options->items_max, SIMULATE_QUERIES_MAX, SIMULATE_ITEMS_MAX);
    }
    workload.arrival_s = calloc(count, sizeof(*workload.arrival_s));
    workload.items = calloc(count, sizeof(*workload.items));
    workload.luck = calloc(count, sizeof(*workload.luck));
    workload.noise = calloc(count, sizeof(*workload.noise));
    enum leat_status status = LEAT_OK;
    if (workload.arrival_s == NULL || workload.items == NULL || workload.luck == NULL || workload.noise == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u queries", count);
    }
    /* A stream for each, so that none depends on how many numbers another takes. */
    uint64_t seed = options->seed;
    const uint64_t size_seed = random_u64(&seed), arrival_seed = random_u64(&seed);
    uint64_t luck = random_u64(&seed), noise = random_u64(&seed);
    if (status == LEAT_OK) {
        status = draw_arrivals(options, arrival_seed, workload.arrival_s, &workload.own_rate_qps);
    }
    if (status == LEAT_OK && options->arrivals == ARRIVALS_FILE && options->items != NULL) {
        repeat_sizes(options, workload.items);
    } else if (status == LEAT_OK) {
        status = draw_sizes(options, size_seed, workload.items, &workload.clipped);
    }
    if (status != LEAT_OK) {
        simulate_workload_free(&workload);
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        workload.luck[i] = (uint32_t)(random_u64(&luck) >> 32);
        workload.noise[i] = (float)random_normal(&noise);
    }
    *ret_workload = workload;
    return LEAT_OK;
}

void
simulate_workload_free(struct simulate_workload *workload)
{
    free(workload->arrival_s);
    free(workload->items);
    free(workload->luck);
    free(workload->noise);
    *workload = (struct simulate_workload){0};
}
