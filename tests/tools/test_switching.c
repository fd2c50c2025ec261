/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     ModelSwitching's table has the variants and batches that tools/simulate/switching.h says, on any number of
 *           threads.
 * Method   Random tables: every variant is simulated here by a selector of the test's own, and the rule applied anew.
 */
#include "tools/simulate/switching.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/leat_test.h"

enum { VARIANTS = 4, RATES = 5, ROUNDS = 12 };

static uint64_t random_state;

static double
uniform(double low, double high)
{
    return low + (high - low) * (double)(leat_test_random(&random_state) >> 11) * 0x1p-53;
}

static uint32_t only_variant, only_items;

static struct leat_selection
select_only(void *state, const struct leat_select_input *input)
{
    (void)state;
    return (struct leat_selection){.variant = only_variant,
                                   .queries = input->pending_count < only_items ? input->pending_count : only_items};
}

/* The largest batch of the most accurate variant, the last, that has one that keeps up and is quick. */
static uint32_t
expected_items(const struct variants_table *table, double rate_qps, uint32_t worker_count, double objective_ns)
{
    for (uint32_t v = table->count; v-- > 0;) {
        for (uint32_t b = 32; b >= 1; b--) {
            const double latency_ns = (double)table->rows[v].latency_ns[b - 1];
            if (b * 1e9 / latency_ns >= rate_qps / worker_count && latency_ns <= objective_ns / 2) {
                return b;
            }
        }
    }
    return 32;
}

static uint32_t
check_rung(const struct switching_options *options, struct variants_run *run, const struct leat_policy *policy,
           uint32_t rung)
{
    static struct variants_result result;
    const struct leat_selector only = {.name = "only", .select = select_only};
    const uint32_t rate_qps = options->rates_qps[rung];
    double best_accuracy = 0, best_violation = 1, accuracy_of_first = 0, violation_of_first = 0;
    uint32_t best = VARIANTS;

    only_items = expected_items(options->table, rate_qps, options->worker_count, (double)options->objective_ns);
    for (uint32_t v = 0; v < VARIANTS; v++) {
        only_variant = v;
        const struct variants_options simulated = {
            .table = options->table,
            .router = &leat_router_fcfs,
            .selector = &only,
            .arrivals = {.kind = ARRIVALS_POISSON, .rate_qps = rate_qps},
            .seed = options->seed,
            .worker_count = options->worker_count,
            .objective_ns = options->objective_ns,
            .duration_ns = options->duration_ns,
            .abort_waiting = 10000,
        };
        EXPECT(variants_simulate(run, &simulated, &result) == LEAT_OK);
        const double accuracy = variants_accuracy(options->table, &result), violation = variants_violation(&result);
        accuracy_of_first = v == 0 ? accuracy : accuracy_of_first;
        violation_of_first = v == 0 ? violation : violation_of_first;
        if (violation < 0.01 && accuracy > best_accuracy) {
            best = v;
            best_accuracy = accuracy;
            best_violation = violation;
        }
    }
    const bool none = best == VARIANTS;
    const struct leat_policy_action action = leat_policy_unpack(leat_policy_actions(policy, rung)[1]);
    const struct leat_policy_rung *row = leat_policy_rung(policy, rung);
    EXPECT(action.variant == (none ? 0 : best) && action.items == only_items && row->rate_qps == rate_qps);
    EXPECT(fabs(row->accuracy_ppm / 1e6 - (none ? accuracy_of_first : best_accuracy)) < 1e-6);
    EXPECT(fabs(row->violation_ppb / 1e9 - (none ? violation_of_first : best_violation)) < 1e-9);
    return none ? VARIANTS : best;
}

static void
test_random_tables(void)
{
    struct variants_run *run;
    uint32_t chosen[VARIANTS + 1] = {0};

    EXPECT(variants_run_create(&run) == LEAT_OK);
    for (int round = 0; round < ROUNDS; round++) {
        struct variants_table table = {.count = VARIANTS, .rows = calloc(VARIANTS, sizeof(*table.rows))};
        uint32_t rates_qps[RATES];
        struct leat_policy *policy, *again;
        EXPECT(table.rows != NULL);
        for (uint32_t v = 0; v < VARIANTS; v++) {
            const double base_ns = uniform(1e6, 2e6) * (v + 1), item_ns = uniform(0.3e6, 2e6) * (v + 1);
            (void)snprintf(table.rows[v].name, sizeof(table.rows[v].name), "v%u", v);
            table.rows[v].accuracy_ppm = 500000 + v * 100000;
            for (uint32_t b = 1; b <= VARIANTS_LATENCY_MAX; b++) {
                table.rows[v].latency_ns[b - 1] = (uint64_t)(base_ns + item_ns * b);
            }
        }
        for (uint32_t i = 0; i < RATES; i++) {
            rates_qps[i] = 150 + i * 400 + (uint32_t)uniform(0, 300);
        }
        struct switching_options options = {
            .table = &table,
            .rates_qps = rates_qps,
            .rate_count = RATES,
            .worker_count = 3,
            .objective_ns = (uint64_t)uniform(15e6, 40e6),
            .duration_ns = UINT64_C(2000000000),
            .seed = leat_test_seed + (uint64_t)round,
            .threads = 3,
        };
        EXPECT(switching_generate(&options, &policy) == LEAT_OK);
        options.threads = 1;
        EXPECT(switching_generate(&options, &again) == LEAT_OK);
        EXPECT(policy->bytes == again->bytes && memcmp(policy, again, policy->bytes) == 0);
        EXPECT(policy->kind == LEAT_POLICY_LOAD && policy->rung_count == RATES && policy->worker_count == 3);
        for (uint32_t rung = 0; rung < RATES; rung++) {
            chosen[check_rung(&options, run, policy, rung)]++;
        }
        free(policy);
        free(again);
        variants_table_free(&table);
    }
    for (uint32_t v = 0; v <= VARIANTS; v++) {
        (void)printf("%s %u: %u\n", v < VARIANTS ? "variant" : "none passes of", v, chosen[v]);
    }
    EXPECT(chosen[0] > 0 && chosen[1] > 0 && chosen[VARIANTS] > 0);
    variants_run_destroy(run);
}

static void
test_refuses(void)
{
    struct variants_row row = {.name = "one", .accuracy_ppm = 1};
    const struct variants_table table = {.count = 1, .rows = &row};
    const uint32_t rates_qps[] = {0, 2, 2};
    struct switching_options options = {
        .table = &table, .rates_qps = rates_qps, .worker_count = 1, .objective_ns = 1000000, .duration_ns = 1000000};
    struct leat_policy *policy;

    for (uint32_t b = 0; b < VARIANTS_LATENCY_MAX; b++) {
        row.latency_ns[b] = 1000;
    }
    EXPECT(switching_generate(&options, &policy) == LEAT_ERR_INVALID); /* no rates */
    options.rate_count = 1;
    EXPECT(switching_generate(&options, &policy) == LEAT_ERR_INVALID); /* 0 */
    options.rates_qps++;
    EXPECT(switching_generate(&options, &policy) == LEAT_OK);
    free(policy);
    options.rate_count = 2;
    EXPECT(switching_generate(&options, &policy) < 0); /* not rising */
    options.rate_count = 1;
    options.worker_count = 0;
    EXPECT(switching_generate(&options, &policy) == LEAT_ERR_INVALID);
    const _Atomic bool stop = true;
    options.worker_count = 1;
    options.stop = &stop;
    EXPECT(switching_generate(&options, &policy) == LEAT_AGAIN);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    test_random_tables();
    test_refuses();
    return 0;
}
