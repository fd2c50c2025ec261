/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The simulator of scaled stages waits as queueing theory says, loses no query, accounts for cores and delays, and repeats
 *          itself; on the paper's trace leat violates a tenth of what FA2 and Sponge do, at no more cores than Themis.
 * Method   Erlang's distribution of waits before one server with constant times; runs of all scalers on a machine's delays
 *          that are 0, long and in between; the trace of the paper's experiments (tests/sched/data/themis).
 */
#include <math.h>
#include <string.h>

#include "tests/leat_test.h"
#include "tests/sched/themis.h"
#include "tools/simulate/stages.h"
#include "tools/simulate/stages_table.h"

#define SECOND_NS UINT64_C(1000000000)

static struct stages_options
options_of(const struct leat_themis_pipeline *pipeline, enum stages_scaler scaler, const struct rates *rates, uint64_t seed)
{
    return (struct stages_options){.pipeline = pipeline,
                                   .scaler = scaler,
                                   .arrivals = {.kind = ARRIVALS_RATES, .rates = rates, .dispersion = 1},
                                   .duration_ns = (uint64_t)rates->steps[rates->count - 1].end_s * SECOND_NS,
                                   .seed = seed,
                                   .start_ns = 5 * SECOND_NS,
                                   .resize_ns = SECOND_NS / 10,
                                   .settle_decisions = pipeline->objective_ms < 1000 ? 5 : 10,
                                   .drop_multiple = 1,
                                   .leat = LEAT_SCALER_OPTIONS_INIT,
                                   .leat_period_ns = SECOND_NS / 10,
                                   .box_cores = 96};
}

/* ---- Theory ------------------------------------------------------------------------------------------- */

/* Share of queries that wait no longer, before a server that is busy for `load` of the time (Erlang, 1909); times in services. */
static double
erlang_wait(double load, double t)
{
    double sum = 0;
    for (int k = 0; k <= (int)t; k++) {
        const double x = load * (t - k);
        sum += (k % 2 ? -1 : 1) * exp(k * log(x > 0 ? x : 1e-300) - lgamma(k + 1) + x);
    }
    return (1 - load) * sum;
}

static void
test_waits_of_one_server(void)
{
    const struct leat_themis_pipeline pipeline = {.stages = {{{0, 0, 0, 10}, 1, 1}}, .stage_count = 1, .objective_ms = 1000};

    for (double load = 0.3; load < 0.85; load += 0.25) {
        struct rates_step step = {.end_s = 4000, .qps = 100 * load};
        struct stages_options options = options_of(&pipeline, STAGES_NONE, &(struct rates){&step, 1}, leat_test_seed);
        struct stages_result result;
        double p99 = 0, p50 = 0;

        EXPECT(stages_simulate(&options, &result) == LEAT_OK);
        while (erlang_wait(load, p99) < 0.99) {
            p99 += 0.001;
        }
        while (erlang_wait(load, p50) < 0.5) {
            p50 += 0.001;
        }
        EXPECT(fabs((double)result.p99_ns / 1e7 - (1 + p99)) < 0.05 * (1 + p99));
        EXPECT(fabs((double)result.p50_ns / 1e7 - (1 + p50)) < 0.02 * (1 + p50));
        EXPECT(fabs(result.core_s - 4000) < 1e-6);
        stages_result_free(&result);
    }
}

/* ---- Whatever the scaler ----------------------------------------------------------------------------- */

static void
check_sums(const struct stages_options *options, const struct stages_result *result)
{
    uint64_t arrived = 0, violated = 0;
    double core_s = 0;

    EXPECT(result->in_time + result->late + result->dropped + result->left == result->queries);
    EXPECT(options->drop_multiple > 0 || result->dropped == 0);
    for (uint32_t n = 0; n < result->second_count; n++) {
        arrived += result->seconds[n].arrived;
        violated += result->seconds[n].violated;
        core_s += result->seconds[n].used;
        EXPECT(result->seconds[n].used > 0.999 * options->pipeline->stage_count);
    }
    EXPECT(arrived == result->queries && violated == result->late + result->dropped);
    EXPECT(fabs(core_s - result->core_s) < 1e-6 * core_s);
}

static void
test_nothing_is_lost(void)
{
    struct rates_step steps[30];
    const struct rates rates = {steps, 30};
    uint64_t random_state = leat_test_seed;

    for (uint32_t round = 0; round < 12; round++) {
        const struct leat_themis_pipeline *pipeline = &themis_pipelines[round % THEMIS_PIPELINES];
        for (uint32_t n = 0; n < 30; n++) {
            steps[n] = (struct rates_step){.end_s = 4 * (n + 1), .qps = 1 + (double)(leat_test_random(&random_state) % 60)};
        }
        for (enum stages_scaler scaler = STAGES_NONE; scaler < STAGES_SCALERS; scaler++) {
            static const uint64_t delays_ns[] = {0, 3, 50000000, 5000000000, 20000000000};
            struct stages_options options = options_of(pipeline, scaler, &rates, round);
            struct stages_result result, again;
            options.start_ns = delays_ns[leat_test_random(&random_state) % 5];
            options.resize_ns = delays_ns[leat_test_random(&random_state) % 5];
            options.drop_multiple = (double)(leat_test_random(&random_state) % 4);
            options.whole_batches = leat_test_random(&random_state) % 2;
            options.noise_share = leat_test_random(&random_state) % 2 ? 0.1 : 0;
            options.box_cores = 4 + (uint32_t)(leat_test_random(&random_state) % 60);
            EXPECT(stages_simulate(&options, &result) == LEAT_OK && stages_simulate(&options, &again) == LEAT_OK);
            check_sums(&options, &result);
            for (uint32_t n = 0; n < result.second_count && scaler == STAGES_LEAT; n++) {
                EXPECT(result.seconds[n].used <= options.box_cores + 1e-6 || options.resize_ns > 0);
            }
            EXPECT(again.in_time == result.in_time && again.p99_ns == result.p99_ns && again.core_s == result.core_s);
            stages_result_free(&result);
            stages_result_free(&again);
        }
    }
}

/* ---- The paper's trace --------------------------------------------------------------------------------- */

static void
test_the_trace(const char *folder)
{
    static const char *const names[THEMIS_PIPELINES] = {"video", "sentiment", "nlp"};

    for (uint32_t p = 0; p < THEMIS_PIPELINES; p++) {
        char path[512];
        struct rates rates;
        struct leat_themis_pipeline pipeline;
        (void)snprintf(path, sizeof(path), "%s/stages.csv", folder);
        EXPECT(stages_table_read(path, names[p], &pipeline) == LEAT_OK && pipeline.stage_count == themis_pipelines[p].stage_count);
        for (uint32_t s = 0; s < pipeline.stage_count; s++) {
            EXPECT(memcmp(&pipeline.stages[s], &themis_pipelines[p].stages[s], sizeof(pipeline.stages[s])) == 0);
        }
        (void)snprintf(path, sizeof(path), "%s/%s.rates", folder, names[p]);
        EXPECT(rates_read(path, 0, &rates) == LEAT_OK && rates.count == 660);
        double violations[STAGES_SCALERS] = {0}, cores[STAGES_SCALERS] = {0};
        for (enum stages_scaler scaler = STAGES_FA2; scaler < STAGES_SCALERS; scaler++) {
            for (uint64_t seed = 1; seed <= 2; seed++) {
                struct stages_options options = options_of(&themis_pipelines[p], scaler, &rates, seed);
                struct stages_result result;
                EXPECT(stages_simulate(&options, &result) == LEAT_OK);
                check_sums(&options, &result);
                violations[scaler] += (double)(result.queries - result.in_time) / (double)result.queries / 2;
                cores[scaler] += result.core_s / 660 / 2;
                stages_result_free(&result);
            }
            (void)printf("%s, %s: %.3f %% violations on %.1f cores\n", names[p], stages_scaler_names[scaler],
                         100 * violations[scaler], cores[scaler]);
        }
        EXPECT(10 * violations[STAGES_LEAT] <= violations[STAGES_FA2] && 10 * violations[STAGES_LEAT] <= violations[STAGES_SPONGE]);
        EXPECT(cores[STAGES_LEAT] <= cores[STAGES_THEMIS]);
        EXPECT(violations[STAGES_LEAT] <= (p == THEMIS_VIDEO ? 0.001 : 0.005));
        rates_free(&rates);
    }
}

int
main(int argc, char **argv)
{
    leat_test_init();
    EXPECT(argc == 2);
    test_waits_of_one_server();
    test_nothing_is_lost();
    test_the_trace(argv[1]);
    return 0;
}
