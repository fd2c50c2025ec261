/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/switching.h"

#include <math.h>
#include <stdlib.h>

#include "sched/batch.h"
#include "tools/simulate/parallel.h"

#define DURATION_NS   UINT64_C(300000000000)
#define VIOLATION_MAX 0.01
#define ABORT_WAITING 10000u /* as RAMSIS' simulator does */

struct trial {
    double accuracy, violation;
};

struct generation {
    const struct switching_options *options;
    const uint32_t *items; /* [rate_count]: the largest batch */
    struct trial *trials;  /* [rate_count][table->count] */
};

/* ---- The largest batch ------------------------------------------------------------------------- */

static uint64_t
predict(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct variants_table *table = profiles;

    (void)application, (void)worker_class;
    return table->rows[variant].latency_ns[items - 1];
}

static uint32_t
largest_batch(const struct switching_options *options, uint32_t rate_qps)
{
    const struct variants_table *table = options->table;
    struct leat_sched_variant variants[LEAT_SCHED_VARIANTS_MAX];
    const struct leat_sched_worker worker = {.depth = 1};
    struct leat_batch_limits limits;
    uint32_t best = table->count;

    for (uint32_t v = 0; v < table->count; v++) {
        variants[v] = (struct leat_sched_variant){
            .accuracy_ppm = table->rows[v].accuracy_ppm, .items_max = VARIANTS_BATCH_MAX, .ready = true};
    }
    const struct leat_select_input input = {
        .variants = variants,
        .variant_count = table->count,
        .worker = &worker,
        .worker_count = options->worker_count,
        .predict = predict,
        .profiles = table,
    };
    leat_batch_limits(&input, options->objective_ns, rate_qps, 100, &limits);
    for (uint32_t v = 0; v < table->count; v++) {
        if (limits.largest[v] > 0 &&
            (best == table->count || variants[v].accuracy_ppm > variants[best].accuracy_ppm)) {
            best = v;
        }
    }
    return best < table->count ? limits.largest[best] : VARIANTS_BATCH_MAX;
}

/* ---- Trials ------------------------------------------------------------------------------------ */

/* A policy of these rates, with neither a choice nor expectations yet. */
static enum leat_status
make_policy(const struct switching_options *options, const uint32_t *rates_qps, uint32_t rate_count,
            struct leat_policy **ret_policy)
{
    const struct variants_table *table = options->table;
    const struct leat_policy shape = {
        .objective_ns = options->objective_ns,
        .kind = LEAT_POLICY_LOAD,
        .worker_count = options->worker_count,
        .dispersion_permille = 1000,
        .rung_count = rate_count,
        .variant_count = table->count,
        .latency_items = VARIANTS_BATCH_MAX,
    };
    size_t bytes;

    enum leat_status status = leat_policy_bytes(&shape, &bytes);
    if (status != LEAT_OK) {
        return status;
    }
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (memory == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a policy of %zu bytes", bytes);
    }
    struct leat_policy *policy = leat_policy_init(memory, &shape);
    for (uint32_t v = 0; v < table->count && status == LEAT_OK; v++) {
        const struct variants_row *row = &table->rows[v];
        status = leat_policy_set_variant(policy, v, row->name, row->accuracy_ppm, row->latency_ns);
    }
    for (uint32_t i = 0; i < rate_count; i++) {
        const struct leat_policy_rung rung = {
            .rate_qps = rates_qps[i],
            .accuracy_ppm = LEAT_POLICY_UNKNOWN,
            .violation_ppb = LEAT_POLICY_UNKNOWN,
            .bound_ppm = LEAT_POLICY_GAIN_UNKNOWN,
            .gain_ppm = LEAT_POLICY_GAIN_UNKNOWN,
        };
        leat_policy_set_rung(policy, i, &rung);
    }
    if (status != LEAT_OK) {
        free(memory);
        return status;
    }
    *ret_policy = policy;
    return LEAT_OK;
}

/* One variant at one rate, by a policy that has nothing else. */
static enum leat_status
try_variant(struct simulate_run *unused, uint32_t index, void *context)
{
    const struct generation *generation = context;
    const struct switching_options *options = generation->options;
    const uint32_t rate = index / options->table->count, variant = index % options->table->count;
    struct leat_policy *policy = NULL;
    struct variants_run *run = NULL;
    struct variants_result *result = calloc(1, sizeof(*result));

    (void)unused;
    enum leat_status status = result != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a simulation");
    status = status == LEAT_OK ? make_policy(options, &options->rates_qps[rate], 1, &policy) : status;
    if (status == LEAT_OK) {
        const struct leat_policy_action action = {.variant = variant, .items = generation->items[rate]};
        leat_policy_set_action(policy, 0, 1, 0, action);
        status = leat_policy_seal(policy);
    }
    status = status == LEAT_OK ? variants_run_create(&run) : status;
    if (status == LEAT_OK) {
        const struct variants_options simulated = {
            .table = options->table,
            .router = &leat_router_fcfs,
            .selector = &leat_selector_model_switching,
            .selector_options = {.policy = policy},
            .arrivals = {.kind = ARRIVALS_POISSON, .rate_qps = options->rates_qps[rate]},
            .seed = options->seed,
            .worker_count = options->worker_count,
            .objective_ns = options->objective_ns,
            .duration_ns = options->duration_ns > 0 ? options->duration_ns : DURATION_NS,
            .load_known = true,
            .abort_waiting = ABORT_WAITING,
        };
        status = variants_simulate(run, &simulated, result);
    }
    if (status == LEAT_OK) {
        generation->trials[index] = (struct trial){.accuracy = variants_accuracy(options->table, result),
                                                   .violation = variants_violation(result)};
    }
    variants_run_destroy(run);
    free(policy);
    free(result);
    return status;
}

/* ---- The table --------------------------------------------------------------------------------- */

static void
choose(const struct generation *generation, uint32_t rate, struct leat_policy *policy)
{
    const struct switching_options *options = generation->options;
    const struct trial *trials = &generation->trials[rate * options->table->count];
    uint32_t best = options->table->count;

    for (uint32_t v = 0; v < options->table->count; v++) {
        if (trials[v].violation < VIOLATION_MAX &&
            (best == options->table->count || trials[v].accuracy > trials[best].accuracy)) {
            best = v;
        }
    }
    best = best < options->table->count ? best : 0;
    const struct leat_policy_rung rung = {
        .rate_qps = options->rates_qps[rate],
        .accuracy_ppm = (uint32_t)lround(trials[best].accuracy * 1e6),
        .violation_ppb = (uint32_t)lround(trials[best].violation * 1e9),
        .bound_ppm = LEAT_POLICY_GAIN_UNKNOWN,
        .gain_ppm = LEAT_POLICY_GAIN_UNKNOWN,
    };
    const struct leat_policy_action action = {.variant = best, .items = generation->items[rate]};
    leat_policy_set_rung(policy, rate, &rung);
    leat_policy_set_action(policy, rate, 1, 0, action);
}

enum leat_status
switching_generate(const struct switching_options *options, struct leat_policy **ret_policy)
{
    struct leat_policy *policy = NULL;

    if (options->rate_count < 1 || options->rate_count > LEAT_POLICY_RUNGS_MAX || options->rates_qps[0] == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%u rates: there are to be 1 to %u, above 0", options->rate_count,
                         LEAT_POLICY_RUNGS_MAX);
    }
    uint32_t *items = calloc(options->rate_count, sizeof(*items));
    struct trial *trials = calloc((size_t)options->rate_count * options->table->count, sizeof(*trials));
    struct generation generation = {.options = options, .items = items, .trials = trials};
    enum leat_status status = items != NULL && trials != NULL
                                  ? make_policy(options, options->rates_qps, options->rate_count, &policy)
                                  : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u rates", options->rate_count);
    for (uint32_t i = 0; i < options->rate_count && status == LEAT_OK; i++) {
        items[i] = largest_batch(options, options->rates_qps[i]);
    }
    if (status == LEAT_OK) {
        const uint32_t threads = options->threads > 0 ? options->threads : simulate_core_count();
        status = simulate_parallel(threads, options->rate_count * options->table->count, try_variant, &generation,
                                   options->stop, NULL);
    }
    for (uint32_t i = 0; i < options->rate_count && status == LEAT_OK; i++) {
        choose(&generation, i, policy);
    }
    status = status == LEAT_OK ? leat_policy_seal(policy) : status;
    free(items);
    free(trials);
    if (status != LEAT_OK) {
        free(policy);
        return status;
    }
    *ret_policy = policy;
    return LEAT_OK;
}
