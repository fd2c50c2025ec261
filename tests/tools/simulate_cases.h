/* SPDX-License-Identifier: Apache-2.0 */
/* tests/tools/simulate_cases.h - tables and workloads for tests of the simulator, made up rather than measured. */
#ifndef LEAT_TESTS_TOOLS_SIMULATE_CASES_H
#define LEAT_TESTS_TOOLS_SIMULATE_CASES_H

#include "base/align.h"
#include "tests/leat_test.h"
#include "tools/simulate/simulate.h"

static uint64_t random_state;
static struct simulate_run *run;

static inline uint64_t
below(uint64_t bound)
{
    return leat_test_random(&random_state) % bound;
}

static inline double
uniform(double low, double high)
{
    return low + (high - low) * (double)(leat_test_random(&random_state) >> 11) * 0x1p-53;
}

static inline void
expect_ok(enum leat_status status)
{
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(status == LEAT_OK);
}

static inline void
cases_start(void)
{
    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    random_state = leat_test_seed;
    expect_ok(simulate_run_create(&run));
}

static inline struct simulate_result
simulate(const struct simulate_options *options)
{
    struct simulate_result result;
    expect_ok(simulate_run(run, options, &result));
    return result;
}

/* Sizes step, 2 * step, ... All samples are 0: to be filled, cell by cell, and finished. */
static inline struct simulate_table
empty_table(uint32_t class_count, uint32_t size_count, uint32_t step, uint32_t sample_count)
{
    const size_t cells = (size_t)class_count * size_count;
    struct simulate_table table = {
        .class_count = class_count, .size_count = size_count, .items_max = size_count * step, .sample_count = sample_count};

    table.sizes = calloc(size_count, sizeof(*table.sizes));
    table.row_of_items = calloc(table.items_max + 1, sizeof(*table.row_of_items));
    table.samples_ns = calloc(cells * sample_count, sizeof(*table.samples_ns));
    table.mean_ns = calloc(cells, sizeof(*table.mean_ns));
    EXPECT(table.sizes != NULL && table.row_of_items != NULL && table.samples_ns != NULL && table.mean_ns != NULL);
    for (uint32_t row = 0; row < size_count; row++) {
        table.sizes[row] = (row + 1) * step;
    }
    for (uint32_t items = 1; items <= table.items_max; items++) {
        table.row_of_items[items] = (uint16_t)((items - 1) / step);
    }
    return table;
}

static inline int
compare_times(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static inline void
finish_table(struct simulate_table *table)
{
    for (size_t cell = 0; cell < (size_t)table->class_count * table->size_count; cell++) {
        uint64_t *samples_ns = table->samples_ns + cell * table->sample_count, sum_ns = 0;
        qsort(samples_ns, table->sample_count, sizeof(*samples_ns), compare_times);
        for (uint32_t s = 0; s < table->sample_count; s++) {
            sum_ns += samples_ns[s];
        }
        table->mean_ns[cell] = sum_ns / table->sample_count;
    }
}

/* A fixed time and one for each item, both random by class; samples up to `spread` around; all multiples of grid_ns. */
static inline struct simulate_table
random_table(uint32_t class_count, uint32_t sample_count, double spread, uint64_t grid_ns)
{
    struct simulate_table table = empty_table(class_count, 1 + (uint32_t)below(12), 1 + (uint32_t)below(40), sample_count);
    uint64_t *sample_ns = table.samples_ns;

    for (uint32_t class = 0; class < class_count; class ++) {
        const double fixed_ns = uniform(1e5, 3e6), item_ns = uniform(2e3, 4e4);
        for (uint32_t row = 0; row < table.size_count; row++) {
            for (uint32_t s = 0; s < sample_count; s++) {
                const double ns = (fixed_ns + item_ns * table.sizes[row]) * uniform(1 - spread, 1 + spread);
                *sample_ns++ = ((uint64_t)ns / grid_ns + 1) * grid_ns;
            }
        }
    }
    finish_table(&table);
    return table;
}

/* One class, on which all takes as long. */
static inline struct simulate_table
constant_table(uint64_t ns)
{
    struct simulate_table table = empty_table(1, 1, 1, 1);

    table.samples_ns[0] = ns;
    finish_table(&table);
    return table;
}

/* Uniform over all that the table knows: items_max of them, to be freed. */
static inline struct leat_pool_size *
uniform_sizes(const struct simulate_table *table)
{
    struct leat_pool_size *sizes = calloc(table->items_max, sizeof(*sizes));

    EXPECT(sizes != NULL);
    for (uint32_t i = 0; i < table->items_max; i++) {
        sizes[i] = (struct leat_pool_size){.items = i + 1, .weight = 1};
    }
    return sizes;
}

/* Of uniform sizes. */
static inline struct simulate_workload
random_workload(const struct simulate_table *table, uint32_t query_count, enum arrivals_kind arrivals)
{
    struct leat_pool_size *sizes = uniform_sizes(table);
    struct simulate_workload workload;

    const struct simulate_workload_options options = {
        .seed = leat_test_random(&random_state), .query_count = query_count, .arrivals = arrivals,
        .sizes = {.sizes = sizes, .count = table->items_max},
        .burst_factor = 4, .burst_share = 0.2, .burst_mean_queries = 10};
    expect_ok(simulate_workload_make(&options, &workload));
    free(sizes);
    return workload;
}

static inline void
free_case(struct simulate_table *table, struct simulate_workload *workload)
{
    simulate_workload_free(workload);
    simulate_table_free(table);
}

static inline struct leat_pool_mix
random_mix(uint32_t class_count, uint32_t each_max)
{
    struct leat_pool_mix mix = {{0}};
    for (uint32_t class = 0; class < class_count; class ++) {
        mix.count[class] = (uint16_t)below(each_max + 1);
    }
    mix.count[below(class_count)]++;
    return mix;
}

static inline uint64_t
cell_mean_ns(const struct simulate_table *table, uint32_t class, uint32_t items)
{
    return table->mean_ns[class * table->size_count + table->row_of_items[items]];
}

/* What the workers of a mix serve if all are always busy, each on sizes as they come. */
static inline double
busy_qps(const struct simulate_table *table, const struct simulate_workload *workload, const struct leat_pool_mix *mix)
{
    double qps = 0;
    for (uint32_t class = 0; class < table->class_count; class ++) {
        double sum_ns = 0;
        for (uint32_t i = 0; i < workload->count; i++) {
            sum_ns += (double)cell_mean_ns(table, class, workload->items[i]);
        }
        qps += mix->count[class] * 1e9 * workload->count / sum_ns;
    }
    return qps;
}

#endif /* LEAT_TESTS_TOOLS_SIMULATE_CASES_H */
