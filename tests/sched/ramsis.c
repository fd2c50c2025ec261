/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sched/ramsis.h"

#include <stdio.h>
#include <string.h>

#include "base/csv.h"
#include "sched/latency_table.h"

#define FOLDER LEAT_TESTS_RAMSIS_FOLDER

enum { NAME_BYTES = 32 };

static void
next_name(const struct leat_csv *csv, const char *column, char *ret_name)
{
    uint32_t number;
    LEAT_MUST(leat_csv_need(csv, column, &number) == LEAT_OK);
    LEAT_MUST(leat_csv_name(csv, number, ret_name, NAME_BYTES) == LEAT_OK);
}

static double
next_number(const struct leat_csv *csv, const char *column)
{
    uint32_t number;
    double value;
    LEAT_MUST(leat_csv_need(csv, column, &number) == LEAT_OK);
    LEAT_MUST(leat_csv_number(csv, number, 0, 1e9, &value) == LEAT_OK);
    return value;
}

static void
read_latencies(const char *task, const char *model, double *ret_latency_us)
{
    uint32_t batch[RAMSIS_QUEUE], count = 0;
    double p95_us[RAMSIS_QUEUE];
    char name[NAME_BYTES];
    struct leat_csv csv;

    LEAT_MUST(leat_csv_open(FOLDER "/p95.csv", &csv) == LEAT_OK);
    while (leat_csv_next(&csv) == LEAT_OK) {
        next_name(&csv, "task", name);
        if (strcmp(name, task) != 0) {
            continue;
        }
        next_name(&csv, "model", name);
        if (strcmp(name, model) == 0) {
            LEAT_ASSERT(count < RAMSIS_QUEUE);
            batch[count] = (uint32_t)next_number(&csv, "batch");
            p95_us[count++] = next_number(&csv, "p95_us");
        }
    }
    leat_csv_close(&csv);
    LEAT_MUST(leat_latency_table_fill(batch, p95_us, count, RAMSIS_QUEUE, ret_latency_us) == LEAT_OK);
    LEAT_MUST(leat_latency_table_extend(RAMSIS_QUEUE, RAMSIS_BATCHES, ret_latency_us) == LEAT_OK);
}

void
ramsis_read(const char *task, struct ramsis_task *ret_task)
{
    char name[NAME_BYTES];
    struct leat_csv csv;

    const bool image = strcmp(task, "image") == 0;
    *ret_task = (struct ramsis_task){
        .name = task, .worker_count = image ? 60 : 20, .objective_us = image ? 150000 : 100000};
    LEAT_MUST(leat_csv_open(FOLDER "/accuracies.csv", &csv) == LEAT_OK);
    while (leat_csv_next(&csv) == LEAT_OK) {
        next_name(&csv, "task", name);
        if (strcmp(name, task) == 0) {
            const uint32_t variant = ret_task->variant_count++;
            LEAT_ASSERT(variant < LEAT_MDP_VARIANTS_MAX);
            ret_task->accuracy[variant] = next_number(&csv, "accuracy") / 100;
            next_name(&csv, "model", name);
            read_latencies(task, name, ret_task->latency_us[variant]);
        }
    }
    leat_csv_close(&csv);
    LEAT_ASSERT(ret_task->variant_count > 0);
}

void
ramsis_read_trace(double ret_qps[RAMSIS_TRACE_SECONDS])
{
    uint32_t second = 0;
    double qps = 0;
    struct leat_csv csv;

    LEAT_MUST(leat_csv_open(FOLDER "/twitter_trace.csv", &csv) == LEAT_OK);
    while (leat_csv_next(&csv) == LEAT_OK) {
        const uint32_t start = (uint32_t)next_number(&csv, "start_s");
        LEAT_ASSERT(start >= second && start < RAMSIS_TRACE_SECONDS);
        for (; second < start; second++) {
            ret_qps[second] = qps;
        }
        qps = next_number(&csv, "qps");
    }
    leat_csv_close(&csv);
    LEAT_ASSERT(second == RAMSIS_TRACE_SECONDS - 1);
    ret_qps[second] = qps;
}

struct leat_mdp_problem
ramsis_problem(const struct ramsis_task *task, double qps)
{
    return (struct leat_mdp_problem){.variant_count = task->variant_count,
                                     .worker_count = task->worker_count,
                                     .queue_max = RAMSIS_QUEUE,
                                     .slack_bins = 100,
                                     .latency_stride = RAMSIS_BATCHES,
                                     .accuracy = task->accuracy,
                                     .latency_us = task->latency_us[0],
                                     .objective_us = task->objective_us,
                                     .rate_per_us = qps / 1e6,
                                     .dispersion = 1};
}

void
ramsis_interpolate(const struct ramsis_task *task, uint32_t count, struct ramsis_task *ret_task)
{
    *ret_task = (struct ramsis_task){.name = task->name,
                                     .worker_count = task->worker_count,
                                     .objective_us = task->objective_us,
                                     .variant_count = count};
    for (uint32_t v = 0; v < count; v++) {
        const double at = (double)v * (task->variant_count - 1) / (count - 1);
        const uint32_t below = at < task->variant_count - 1 ? (uint32_t)at : task->variant_count - 2;
        const double share = at - below;
        ret_task->accuracy[v] = (1 - share) * task->accuracy[below] + share * task->accuracy[below + 1];
        for (uint32_t b = 0; b < RAMSIS_BATCHES; b++) {
            ret_task->latency_us[v][b] =
                (1 - share) * task->latency_us[below][b] + share * task->latency_us[below + 1][b];
        }
    }
}
