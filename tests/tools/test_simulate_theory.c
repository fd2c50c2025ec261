/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Simulated queues behave as queueing theory says they do.
 * Oracle   L. Kleinrock, "Queueing Systems, volume 1", 1975: M/M/1 and M/M/c (Erlang's C, response times); A. Erlang, "The
 *          theory of probabilities and telephone conversations", 1909: waiting times of M/D/1.
 * Method   Each figure is a mean of RUNS independent runs, and is to be within 6 of its own standard errors, as these runs
 *          show them: by Student's t of RUNS - 1 degrees, once in a million. On top comes what an empty start takes away:
 *          RELAXATION queries of a run, each off by as much as can be. A tolerance above 6 % would tell too little, and
 *          fails.
 */
#include <math.h>

#include "tests/tools/simulate_cases.h"

enum { RUNS = 32, QUERIES = 50000, EXPONENTIAL_SAMPLES = 1 << 16 };

static uint32_t waited; /* queries that were not served as soon as they came */

/* Oldest query to an idle worker: one queue for all. */
static uint32_t
central_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    (void)state, (void)pairs_max;
    for (uint32_t w = 0; w < input->worker_count; w++) {
        if (input->workers[w].outstanding == 0) {
            pairs[0] = (struct leat_route_pair){.query = 0, .worker = w};
            waited += input->now_ns > input->pending[0].arrival_ns;
            return 1;
        }
    }
    return 0;
}

static const struct leat_router central = {.name = "central", .route = central_route};

static struct simulate_table
service_times(bool exponential)
{
    struct simulate_table table = empty_table(1, 1, 1, exponential ? EXPONENTIAL_SAMPLES : 1);
    for (uint32_t s = 0; s < table.sample_count; s++) {
        table.samples_ns[s] = exponential ? (uint64_t)(-1e6 * log1p(-(s + 0.5) / EXPONENTIAL_SAMPLES)) : 1000000;
    }
    finish_table(&table);
    return table;
}

/* ---- What theory says; time in mean service times ---------------------------------------------- */

static double
erlang_c(uint32_t servers, double load)
{
    double blocked = 1; /* Erlang's B, by its recursion */
    for (uint32_t n = 1; n <= servers; n++) {
        blocked = load * blocked / (n + load * blocked);
    }
    return blocked / (1 - load / servers * (1 - blocked));
}

/* P(response > t); servers - 1 - load is not 0. */
static double
mmc_later_than(uint32_t servers, double load, double t)
{
    const double spare = servers - 1 - load;
    return exp(-t) * (1 + erlang_c(servers, load) * (1 - exp(-t * spare)) / spare);
}

static double
md1_later_than(double load, double t)
{
    double sum = 0, factorial = 1;
    if (t < 1) {
        return 1;
    }
    for (uint32_t k = 0; k <= (uint32_t)(t - 1); k++) {
        const double x = load * (k - (t - 1)); /* <= 0 */
        factorial *= k > 0 ? k : 1;
        sum += pow(x, k) / factorial * exp(-x);
    }
    return 1 - (1 - load) * sum;
}

struct theory {
    uint32_t servers;
    double load;
    bool exponential;
};

static double
later_than(const struct theory *theory, double t)
{
    return theory->exponential ? mmc_later_than(theory->servers, theory->load, t) : md1_later_than(theory->load, t);
}

static double
quantile(const struct theory *theory, double share)
{
    double low = 0, high = 20; /* beyond, the sum for M/D/1 cancels */
    for (int i = 0; i < 100; i++) {
        const double middle = (low + high) / 2;
        *(later_than(theory, middle) > 1 - share ? &low : &high) = middle;
    }
    return low;
}

/* ---- Comparison -------------------------------------------------------------------------------- */

/* `bias` is what the start may change. */
static void
expect_near(const char *name, const struct theory *theory, const double *values, double expected, double bias)
{
    double sum = 0, squares = 0;
    for (uint32_t r = 0; r < RUNS; r++) {
        sum += values[r];
    }
    for (uint32_t r = 0; r < RUNS; r++) {
        squares += (values[r] - sum / RUNS) * (values[r] - sum / RUNS);
    }
    const double tolerance = 6 * sqrt(squares / (RUNS - 1) / RUNS) + bias;
    printf("%s/%u, load %.2f, %s: %.5f, theory %.5f +- %.5f\n", theory->exponential ? "M/M" : "M/D", theory->servers,
           theory->load, name, sum / RUNS, expected, tolerance);
    EXPECT(tolerance < 0.06 * expected);
    EXPECT(fabs(sum / RUNS - expected) < tolerance);
}

static void
compare(const struct theory *theory)
{
    static double waits[RUNS], later[RUNS], p50[RUNS], p99[RUNS];
    const double share = theory->load / theory->servers;
    /* The slowest part of an empty system's way to equilibrium; Kleinrock's 1 / (1 - sqrt(rho))^2 service times. */
    const double relaxation = theory->load / pow(1 - sqrt(share), 2) / QUERIES;
    struct simulate_table table = service_times(theory->exponential);
    const double unit_ns = (double)table.mean_ns[0];
    const double late_t = quantile(theory, 0.8);

    for (uint32_t r = 0; r < RUNS; r++) {
        struct simulate_workload workload = random_workload(&table, QUERIES, ARRIVALS_POISSON);
        const struct simulate_options options = {
            .table = &table, .workload = &workload, .router = &central, .mix = {{(uint16_t)theory->servers}},
            .rate_qps = theory->load * 1e9 / unit_ns, .objective_ns = (uint64_t)(late_t * unit_ns)};
        waited = 0;
        const struct simulate_result result = simulate(&options);
        waits[r] = waited / (double)QUERIES;
        later[r] = result.violations / (double)QUERIES;
        p50[r] = (double)result.p50_ns / unit_ns;
        p99[r] = (double)result.p99_ns / unit_ns;
        simulate_workload_free(&workload);
    }
    const double wait = theory->exponential ? erlang_c(theory->servers, theory->load) : theory->load;
    expect_near("waiting probability", theory, waits, wait, wait * relaxation);
    expect_near("later than the 80th percentile", theory, later, 0.2, 0.2 * relaxation);
    if (theory->exponential) { /* with fixed times, half of all responses may be one time */
        expect_near("median", theory, p50, quantile(theory, 0.5), quantile(theory, 0.5) * relaxation);
    }
    expect_near("99th percentile", theory, p99, quantile(theory, 0.99), quantile(theory, 0.99) * relaxation);
    simulate_table_free(&table);
}

int
main(void)
{
    static const struct theory theories[] = {{1, 0.5, false}, {1, 0.7, false}, {1, 0.5, true},
                                             {3, 2.1, true},  {8, 6.0, true}};

    cases_start();
    EXPECT(fabs(erlang_c(1, 0.6) - 0.6) < 1e-12 && fabs(erlang_c(2, 1) - 1.0 / 3) < 1e-12);
    EXPECT(fabs(mmc_later_than(1, 0.6, 2) - exp(-0.8)) < 1e-12);
    EXPECT(fabs(md1_later_than(0.6, 1) - 0.6) < 1e-12);
    for (size_t i = 0; i < LEAT_COUNT_OF(theories); i++) {
        compare(&theories[i]);
    }
    simulate_run_destroy(run);
    return 0;
}
