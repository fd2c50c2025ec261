/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/ramsis_world.h - RAMSIS' two tasks on a virtual clock: policies for one, and what each scheme makes of a load.
 *
 * A world is a task with workers, an objective and circumstances, and the policies made for it; a case is one load or trace
 * in it. Policies are solved, and cases simulated, on all threads. All functions end the process where something fails.
 */
#ifndef LEAT_BENCH_RAMSIS_WORLD_H
#define LEAT_BENCH_RAMSIS_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/policy_solve.h"
#include "tools/simulate/rates.h"
#include "tools/simulate/variants.h"

enum ramsis_scheme {
    RAMSIS_PAPER,     /* selector mdp, policies of mode paper, queries dealt */
    RAMSIS_JELLYFISH,
    RAMSIS_SWITCHING,
    RAMSIS_GREEDY,
    RAMSIS_FIXED,     /* the most accurate variant that sustains the load by itself */
    RAMSIS_INFAAS,
    RAMSIS_LEAT,      /* selector mdp, policies as the daemon makes them but for the same rates as RAMSIS_PAPER */
    RAMSIS_LEAT_DROP, /* the same, and late queries are dropped */
    RAMSIS_DAEMON,    /* as in the daemon: its own rates, and its load monitor where others know the load */
    RAMSIS_DAEMON_DROP,
    RAMSIS_DEALT,     /* RAMSIS_PAPER's queues, accuracy less penalties a query */
    RAMSIS_LEAT_PROMPT, /* RAMSIS_LEAT that never holds queries back while a worker is idle */
    RAMSIS_PAPER_TOLD, /* RAMSIS_PAPER, RAMSIS_LEAT with policies made for the circumstances */
    RAMSIS_LEAT_TOLD,
    RAMSIS_SCHEMES
};

#define RAMSIS_LATE_PENALTY LEAT_POLICY_PENALTY
#define RAMSIS_SEEDS_MAX    16u
#define RAMSIS_RATES_MAX    20u
#define RAMSIS_PAPER_QUEUE  32u
#define RAMSIS_PAPER_BINS   100u

struct ramsis_program {
    uint32_t threads, seeds, first_seed;
    uint64_t duration_ns;           /* of a constant load */
    uint64_t switching_duration_ns; /* of a simulation for ModelSwitching's table */
    bool quiet;
};

struct ramsis_world {
    const struct ramsis_program *program;
    const char *task;
    const struct variants_table *table;
    uint32_t workers;
    uint64_t objective_ns;
    double noise_share, dispersion; /* 0, 1: none */
    uint32_t rates_qps[RAMSIS_RATES_MAX];
    uint32_t rate_count;
    struct leat_policy *policies[RAMSIS_SCHEMES]; /* free()'d with the world, NULL where a scheme has none of its own */
};

/* One scheme, one case. */
struct ramsis_outcome {
    double accuracy, violation; /* of all seeds' queries together */
    double low_accuracy, high_accuracy, low_violation, high_violation; /* of the seeds */
    double net;   /* of all queries: accuracy in time less RAMSIS_LATE_PENALTY for each violation */
    double response_ms; /* mean, of queries served */
    uint64_t queries;
};

struct ramsis_case {
    const struct ramsis_world *world;
    uint32_t rate_qps;         /* 0: rates */
    const struct rates *rates;
    uint64_t duration_ns;
    uint32_t schemes; /* bits */
    uint32_t fixed_variant;
    double bound;          /* of net */
    double bound_accuracy; /* of accuracy, where all queries are in time; NAN: they cannot be */
    struct ramsis_outcome outcomes[RAMSIS_SCHEMES];
};

/* Makes the policies that these schemes want and it has not. `base`, whose are as good, may be NULL. */
void ramsis_world_make(struct ramsis_world *world, uint32_t schemes, const struct ramsis_world *base);
void ramsis_world_free(struct ramsis_world *world, const struct ramsis_world *base);

/* Fills in what was found. `what` is for the terminal. */
void ramsis_cases_run(const struct ramsis_program *program, const char *what, struct ramsis_case *cases, uint32_t count);

/* Queries a second that workers can answer in time, whatever the accuracy. */
double ramsis_capacity_qps(const struct ramsis_world *world);

/* What it takes to make policies. */
struct ramsis_cost {
    double paper_s, dealt_s, pool_s;             /* a rate, CPU time, of the rates the mean */
    double paper_all_s, pool_all_s, switching_s; /* all rates, on all threads */
    uint64_t paper_bytes, pool_bytes;            /* of an action table of one rate */
    uint64_t paper_all_bytes, pool_all_bytes;
    uint32_t rate_count;
};
void ramsis_cost_measure(struct ramsis_world *world, struct ramsis_cost *ret_cost);

void ramsis_need(enum leat_status status);
void *ramsis_memory(size_t count, size_t size); /* zeros */
double ramsis_seconds(void);

#endif /* LEAT_BENCH_RAMSIS_WORLD_H */
