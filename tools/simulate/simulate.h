/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/simulate/simulate.h - discrete-event simulation of queries x workers x router on a virtual clock.
 *
 * Role      The router under study is the daemon's own code, called as the dispatcher calls it: at each arrival and each
 *           completion until it gives no more pairs, and a millisecond later where it leaves queries waiting before a worker
 *           with room. One application, one query a batch.
 * Model     A worker serves its batches in order. A service time is drawn from the samples that were measured for (class,
 *           items), rounded up to the next measured size. Predictions come from the same table, or are learned from what
 *           has run. A query that misses the objective is served all the same and counts as a violation.
 * Repeats   All randomness follows from the seed: which sizes, which gaps, which sample. Query i is the same query,
 *           with the same luck, whatever the router, the mix and the rate: gaps are scaled, so runs can be compared.
 * Threads   A workload and a table are read-only and may be shared; a run is one thread's.
 * Units     Nanoseconds; rates in queries a second.
 */
#ifndef LEAT_TOOLS_SIMULATE_H
#define LEAT_TOOLS_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/policy.h"
#include "sched/pool.h"
#include "tools/simulate/arrivals.h"

/* ---- What was measured ------------------------------------------------------------------------- */

#define SIMULATE_NAME_MAX    48u /* bytes, with the NUL */
#define SIMULATE_ITEMS_MAX   65535u
#define SIMULATE_QUERIES_MAX (1u << 26)

/* Service times by class and size. Sizes are the same for all classes of a table. */
struct simulate_table {
    uint32_t class_count;
    char class_names[LEAT_SCHED_CLASSES_MAX][SIMULATE_NAME_MAX];
    uint32_t size_count;
    uint32_t *sizes;         /* [size_count], rising, at most SIMULATE_ITEMS_MAX */
    uint16_t *row_of_items;  /* [items_max + 1]: the first size that is not smaller */
    uint32_t items_max;      /* the last of sizes */
    uint32_t sample_count;   /* of each cell */
    uint64_t *samples_ns;    /* [class_count][size_count][sample_count], rising within a cell */
    uint64_t *mean_ns;       /* [class_count][size_count] */
};

/*
 * Reads a CSV file with the columns model, instance, batch and either the samples s0, s1, ... or mean_ms, in milliseconds,
 * for one model. Classes are those of `classes`, in that order, or with class_count 0 all instances that the model has, in
 * the order of the file. Sizes rise from row to row of an instance. Errors name file and line. LEAT_ERR_INVALID: there is
 * no such model, or a class without rows.
 */
LEAT_MUST_CHECK enum leat_status simulate_table_read(const char *path, const char *model, const char *const *classes,
                                                     uint32_t class_count, struct simulate_table *ret_table);
void simulate_table_free(struct simulate_table *table);

/* The percentile of a cell: 0 < percentile <= 100, nearest rank. */
uint64_t simulate_table_percentile(const struct simulate_table *table, uint32_t worker_class, uint32_t items,
                                   double percentile);

/*
 * The percentile of a cell's times with noise: each sample times 1 + noise_share * a standard normal. To within a millionth;
 * with noise_share 0 it is that of the samples.
 */
uint64_t simulate_table_noisy_percentile(const struct simulate_table *table, uint32_t worker_class, uint32_t items,
                                         double percentile, double noise_share);

/*
 * Samples, rising, where no more is known of times than their mean and a percentile, which are the samples' too: as few as
 * that takes have the percentile's time, all others one below it. Where there is no such time, all have the mean if that is
 * not below the percentile's, else the others 1 ns. 0 < percentile <= 100.
 */
void simulate_samples_make(uint64_t mean_ns, uint64_t predicted_ns, double percentile, uint32_t count, uint64_t *samples_ns);

/*
 * Sizes of queries from a CSV file: a column items, batch, batch_size or batch_bucket, and perhaps one named weight, count,
 * share, probability or probability_estimate; without it each row counts once. Rising, each size once; the caller frees them.
 */
LEAT_MUST_CHECK enum leat_status simulate_sizes_read(const char *path, struct leat_pool_size **ret_sizes,
                                                     uint32_t *ret_count);

/*
 * What the table's classes cost, from the columns instance, price_usd_per_hour and, if there is one, max_count_in_search:
 * ret_classes[class_count], prices in micro-USD an hour. Other instances are passed over.
 */
LEAT_MUST_CHECK enum leat_status simulate_prices_read(const char *path, const struct simulate_table *table,
                                                      struct leat_pool_class *ret_classes);

/* ---- What is asked ----------------------------------------------------------------------------- */

/* Drawn from weights, as read above; with count 0 a Gaussian, rounded, no less than 1. */
struct simulate_sizes {
    const struct leat_pool_size *sizes; /* [count] */
    uint32_t count;
    double gaussian_mean, gaussian_deviation;
};

/* "gaussian:MEAN:DEVIATION", or the path of a file as above. To be freed with simulate_sizes_free. */
LEAT_MUST_CHECK enum leat_status simulate_sizes_parse(const char *text, struct simulate_sizes *ret_sizes);
void simulate_sizes_free(struct simulate_sizes *sizes); /* what simulate_sizes_parse made, or zeros */

/* Draws sizes one by one. It refers to `sizes`. LEAT_ERR_INVALID: a weight, a size, a mean or a deviation out of range. */
struct simulate_draw {
    const struct simulate_sizes *sizes;
    double *sums; /* [sizes->count]: of weights up to this one; NULL: a Gaussian */
};
LEAT_MUST_CHECK enum leat_status simulate_draw_init(const struct simulate_sizes *sizes, struct simulate_draw *ret_draw);
void simulate_draw_fini(struct simulate_draw *draw); /* accepts zeros */
uint32_t simulate_draw_size(const struct simulate_draw *draw, uint64_t *random); /* 1..SIMULATE_ITEMS_MAX */

struct simulate_workload_options {
    uint64_t seed;
    uint32_t query_count; /* 1..SIMULATE_QUERIES_MAX */
    uint32_t items_max;   /* larger draws become this; 0: SIMULATE_ITEMS_MAX */
    struct simulate_sizes sizes; /* unless there are items */
    uint32_t size_change_at;           /* this query is the first whose size comes from later_sizes; 0: none is */
    struct simulate_sizes later_sizes;

    enum arrivals_kind arrivals;
    double burst_factor, burst_share; /* bursty: as in arrivals.h */
    double burst_mean_queries;        /* bursty: in a burst, on average */
    const double *times_s;            /* file: [time_count], not falling; repeated when there are more queries */
    const uint32_t *items;            /* file: [time_count], sizes of its queries, not 0; NULL: drawn */
    uint32_t time_count;
};

/* Queries in order of arrival. */
struct simulate_workload {
    uint32_t count;
    uint32_t clipped;    /* of them drawn larger than items_max, and made that */
    double own_rate_qps; /* of a file; of others 1 */
    double *arrival_s;   /* at a mean rate of one a second: a run scales them */
    uint16_t *items;
    uint32_t *luck;      /* which sample, 0..2^32-1 */
    float *noise;        /* standard normal: how far the service time is off, where that has noise */
};

/* Bit for bit the same for equal options, on every machine with IEEE arithmetic. */
LEAT_MUST_CHECK enum leat_status simulate_workload_make(const struct simulate_workload_options *options,
                                                        struct simulate_workload *ret_workload);
void simulate_workload_free(struct simulate_workload *workload);

/* ---- One run ----------------------------------------------------------------------------------- */

#define SIMULATE_DEPTH_MAX 64u

struct simulate_options {
    const struct simulate_table *table;
    const struct simulate_workload *workload;
    const struct leat_router *router;
    struct leat_router_options router_options;
    struct leat_pool_mix mix;    /* workers by class of the table, lowest class first */
    uint32_t worker_depth;       /* batches that one may hold where the router queues; 0: SIMULATE_DEPTH_MAX */
    double rate_qps;
    uint64_t objective_ns;       /* on arrival to answer */
    double percentile;           /* of predictions that judge whether a query is in time; 0: the mean */
    double noise_share;          /* standard deviation of a prediction's error, as a share of it; 0: none */
    double service_noise_share;  /* the same for service times, on top of what samples vary; 0: none. Percentiles are of
                                    times with it, and wider by noise_share */
    bool learn;                  /* predictions from profiles that know nothing at first, of completions: see below */
    double violation_share;      /* a run that must end above this may stop early */
    bool stop_early;
};

/*
 * With `learn` a run starts as the daemon does with a model that nobody has measured: a profile (sched/profile.h) for each
 * class, which predicts 0 until a first query has run there, and queries that probe a class against its profile
 * (sched/probing.h). The percentile is then 50 to 99.9, or the mean; there is no noise_share, since errors are the profile's.
 */

struct simulate_result {
    uint32_t queries;           /* answered */
    uint32_t violations;        /* of them late */
    bool stopped_early;         /* more violations than allowed are certain; what follows is of a part only */
    uint64_t decisions, pairs;  /* calls of the router, and what they gave */
    uint64_t probes;            /* queries that probed a class instead, with `learn` */
    uint64_t end_ns;            /* of the last answer, on the virtual clock */
    uint64_t p50_ns, p99_ns, max_ns; /* of response times, by nearest rank; 0 with stop_early */
    struct {
        uint64_t queries, busy_ns, violations; /* of queries answered */
    } of_class[LEAT_SCHED_CLASSES_MAX];
};

struct simulate_run; /* memory for runs, reused */
LEAT_MUST_CHECK enum leat_status simulate_run_create(struct simulate_run **ret_run);
void simulate_run_destroy(struct simulate_run *run); /* accepts NULL */

LEAT_MUST_CHECK enum leat_status simulate_run(struct simulate_run *run, const struct simulate_options *options,
                                              struct simulate_result *ret_result);

/* ---- Allowable throughput ---------------------------------------------------------------------- */

/*
 * The highest rate, to within a share of `tolerance`, at which at most violation_share of queries are late. From twice what
 * the workers could serve if each query ran where it runs fastest, rates are tried downwards, at most 10 % apart, until one
 * holds, then between that and the one above by bisection; 0 where none holds down to a thousandth. Routers are known that
 * fail at a low rate and not at a higher one, so bisection alone would go astray. Rates are on a fixed geometric grid: equal
 * inputs give equal answers, the next rate up on the grid does not hold.
 */
LEAT_MUST_CHECK enum leat_status simulate_throughput(struct simulate_run *run, const struct simulate_options *options,
                                                     double tolerance, double *ret_rate_qps);

/*
 * What an oracle reaches that knows all queries: sorted by size, a free worker of the base class takes the largest that is
 * left, any other the smallest as long as it alone is in time; queries over the time until the last is done, 0 if some are
 * left. Times are means; of workers that are free at once the first comes first. `base` is a class. What routers are
 * measured by rather than a router, but no strict bound: it does not ask which class a size gains the most from.
 */
LEAT_MUST_CHECK enum leat_status simulate_oracle(const struct simulate_table *table, const struct simulate_workload *workload,
                                                 const struct leat_pool_mix *mix, uint32_t base, uint64_t objective_ns,
                                                 double *ret_rate_qps);

#endif /* LEAT_TOOLS_SIMULATE_H */
