/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/simulate/autoscale.h - discrete-event simulation of applications whose variants are loaded and unloaded while they serve.
 *
 * Source    F. Romero et al., "INFaaS: Automated Model-less Inference Serving", USENIX ATC 2021, section 6.
 * Model     An application is one first-in-first-out queue before instances of its variants; an instance runs one batch at a time, for as long
 *           as its variant's line says. It serves a loading time after it is ordered, and is paid for from the order until it is gone, which
 *           it is when idle. The fastest idle instance takes what waits; a slower one only what it ends in time. Instances on one
 *           device do not disturb one another.
 * Policies  `static` has what carries the highest rate of the trace, all the time, as far as there is room; `replicate` has more and fewer of the
 *           variant that is cheapest by the instance. Both are of one hardware, where that has a variant in time, else of whatever has.
 *           `infaas` is the paper's heuristic, `leat` ours (sched/autoscale.h), `ilp` the integer program, solved at every decision; what
 *           is not proved within its limit is the cheaper of what was found and what leat finds, and is counted.
 * Start     All begin with what they want for the first rate.
 * Rates     Those of the last two seconds; `leat` and `ilp` go by a longer time where the difference may be chance, and by
 *           the highest rate of late.
 * Drops     A query is dropped when an instance would take it that would end it later than a multiple of its objective; it counts as a
 *           violation, like what is late, and what is still inside at the end.
 * Repeats   All randomness follows from the seed; queries are the same for all policies.
 * Units     Nanoseconds; rates in queries a second; costs in the price of a gigabyte of memory and second, normalised as in the paper.
 */
#ifndef LEAT_TOOLS_SIMULATE_AUTOSCALE_H
#define LEAT_TOOLS_SIMULATE_AUTOSCALE_H

#include "sched/autoscale.h"
#include "tools/simulate/arrivals.h"
#include "tools/simulate/second.h"

enum autoscale_hardware { AUTOSCALE_CPU, AUTOSCALE_INFERENTIA, AUTOSCALE_GPU, AUTOSCALE_HARDWARE };
extern const double autoscale_gb_s_prices[AUTOSCALE_HARDWARE]; /* 6.2 of the paper */

#define AUTOSCALE_APPLICATIONS_MAX 64u
#define AUTOSCALE_NAME_MAX         48u
#define AUTOSCALE_PRICE_UNIT       1e-6 /* that prices of leat_autoscale_variant are in */

struct autoscale_application {
    char name[AUTOSCALE_NAME_MAX];
    uint64_t objective_ns;
    double share; /* of all queries; any unit */
    uint32_t variant_count;
    struct leat_autoscale_variant variants[LEAT_AUTOSCALE_VARIANTS_MAX]; /* uses: CPU cores, Inferentia cores, hundredths of GPUs */
    enum autoscale_hardware hardware[LEAT_AUTOSCALE_VARIANTS_MAX];
};

struct autoscale_table {
    uint32_t count;
    struct autoscale_application applications[AUTOSCALE_APPLICATIONS_MAX];
};

/*
 * A CSV file with a row for each variant: application, objective_ms, share, variant, hardware (cpu, inferentia, gpu), batch_ms and item_ms (a
 * batch of b takes batch_ms + b item_ms), max_batch, memory_gb, cpu_cores, inferentia_cores, gpu_share, load_s. Rows of an application
 * follow one another, and say the same objective and share. Errors name file and line.
 */
LEAT_MUST_CHECK enum leat_status autoscale_table_read(const char *path, struct autoscale_table *ret_table);

enum autoscale_policy {
    AUTOSCALE_STATIC_CPU,
    AUTOSCALE_STATIC_GPU,
    AUTOSCALE_REPLICATE_CPU,
    AUTOSCALE_REPLICATE_GPU,
    AUTOSCALE_INFAAS,
    AUTOSCALE_LEAT,
    AUTOSCALE_ILP,
    AUTOSCALE_POLICIES,
};
extern const char *const autoscale_policy_names[AUTOSCALE_POLICIES];

/*
 * Sets the aims to the integer program's optimum; false: not proved with nodes_max subproblems, aims are the best that was found, or zeros.
 * Called from several threads.
 */
typedef bool (*autoscale_exact)(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
                                struct leat_autoscale_application *applications, uint32_t count, bool beside, uint32_t nodes_max);

struct autoscale_options {
    const struct autoscale_table *table;
    enum autoscale_policy policy;
    autoscale_exact exact; /* `ilp` needs it */
    struct leat_autoscale_box box;
    struct leat_autoscale_options leat; /* of leat and ilp; of the others headroom and load_weight_per_s */
    struct arrivals arrivals; /* of all applications; at rates that change */
    uint64_t duration_ns, seed, period_ns /* between decisions */;
    uint64_t
        hold_ns; /* leat, ilp: how long a rate is remembered, to the next decision at least; 0: not at all */
    uint64_t
        steady_ns; /* leat, ilp: that longer time; two seconds, and they see what the others see, or more */
    double drop_multiple; /* of the objective; 0: never */
};

struct autoscale_result {
    uint64_t queries, in_time, late, dropped, left;
    double cost;                /* from the first to the last arrival's second */
    double costs[AUTOSCALE_HARDWARE];
    uint64_t starts, decisions;
    uint64_t programs, unproved; /* ilp: that were to be solved; of these those whose answer is not proved to be the best */
    uint64_t p50_ns, p99_ns;    /* of what was answered */
    struct simulate_second *seconds; /* [second_count] */
    uint32_t second_count;
};

LEAT_MUST_CHECK enum leat_status autoscale_simulate(const struct autoscale_options *options, struct autoscale_result *ret_result);
void autoscale_result_free(struct autoscale_result *result); /* accepts zeros */

#endif /* LEAT_TOOLS_SIMULATE_AUTOSCALE_H */
