/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The simulator of variants that come and go loses no query, pays for what is there as long as it is, loads as long as it takes,
 *          and repeats itself; on INFaaS' loads its baselines do what the paper says of them, and leat is late less often than its heuristic.
 * Method   Loads whose cost and throughput can be worked out by hand; all policies on random worlds; the loads of section 6.2 of the paper
 *          (tests/sched/data/infaas).
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "tests/leat_test.h"
#include "tools/simulate/autoscale.h"

#define SECOND_NS UINT64_C(1000000000)

static uint64_t random_state;
static struct autoscale_table resnet50;

static uint32_t
below(uint32_t n)
{
    return (uint32_t)(leat_test_random(&random_state) % n);
}

static struct autoscale_options
options_of(const struct autoscale_table *table, enum autoscale_policy policy, const struct rates *rates, uint64_t seed)
{
    return (struct autoscale_options){
        .table = table,
        .policy = policy,
        .box = {.resource_count = AUTOSCALE_HARDWARE, .totals = {8, 4, 100}},
        .leat = LEAT_AUTOSCALE_OPTIONS_INIT,
        .arrivals = {.kind = ARRIVALS_RATES, .rates = rates, .dispersion = 1},
        .duration_ns = (uint64_t)rates->steps[rates->count - 1].end_s * SECOND_NS,
        .seed = seed,
        .period_ns = SECOND_NS,
        .hold_ns = 30 * SECOND_NS,
        .steady_ns = 20 * SECOND_NS,
        .drop_multiple = 1};
}

static void
check_sums(const struct autoscale_options *options, const struct autoscale_result *result)
{
    uint64_t arrived = 0, violated = 0;
    double cost = 0, costs = 0;

    EXPECT(result->in_time + result->late + result->dropped + result->left == result->queries);
    EXPECT(options->drop_multiple > 0 || result->dropped == 0);
    EXPECT(options->drop_multiple != 1 || result->late == 0); /* what is run ends in time: lines are exact */
    for (uint32_t n = 0; n < result->second_count; n++) {
        arrived += result->seconds[n].arrived;
        violated += result->seconds[n].violated;
        cost += result->seconds[n].used;
    }
    for (uint32_t h = 0; h < AUTOSCALE_HARDWARE; h++) {
        costs += result->costs[h];
    }
    EXPECT(arrived == result->queries && violated == result->late + result->dropped);
    EXPECT(fabs(cost - result->cost) <= 1e-9 * cost && fabs(costs - result->cost) <= 1e-9 * cost);
}

static struct autoscale_result
simulate(const struct autoscale_options *options)
{
    struct autoscale_result result;
    EXPECT(autoscale_simulate(options, &result) == LEAT_OK);
    check_sums(options, &result);
    return result;
}

/* ---- By hand ------------------------------------------------------------------------------------------ */

/* Two CPU instances carry ten a second, whatever comes, and cost as much each second. */
static void
test_too_much_for_cpus(void)
{
    struct rates_step step = {.end_s = 200, .qps = 100};
    const struct rates rates = {&step, 1};
    const struct autoscale_options options = options_of(&resnet50, AUTOSCALE_STATIC_CPU, &rates, leat_test_seed);
    struct autoscale_result result = simulate(&options);

    EXPECT(fabs((double)result.in_time / 200 - 10) < 0.1);
    EXPECT(fabs(result.cost - 200 * 2 * 1.75 * 0.031) < 1e-6 && result.costs[AUTOSCALE_GPU] == 0);
    EXPECT(result.starts == 0);
    autoscale_result_free(&result);
}

/* A step from what one CPU instance carries to what takes the accelerator: late while that loads, and not after. */
static void
test_a_step(void)
{
    struct rates_step steps[] = {{.end_s = 100, .qps = 1}, {.end_s = 300, .qps = 80}};
    const struct rates rates = {steps, 2};

    for (enum autoscale_policy policy = AUTOSCALE_INFAAS; policy <= AUTOSCALE_LEAT; policy++) {
        const struct autoscale_options options = options_of(&resnet50, policy, &rates, leat_test_seed);
        struct autoscale_result result = simulate(&options);
        uint32_t before = 0, during = 0, after = 0;
        for (uint32_t n = 0; n < 300; n++) {
            uint32_t *part = n < 100 ? &before : n < 120 ? &during : &after;
            *part += result.seconds[n].violated;
        }
        EXPECT(before <= 10); /* of 100: 0.6 on average, 4 in the worst of 300 seeds */
        EXPECT(during > 5 * 60 && during < 14 * 80 && after <= 5); /* a CPU's 10 a second meanwhile; 8 s of loading */
        EXPECT(result.starts >= 1 && result.costs[AUTOSCALE_INFERENTIA] > 190 * 1.75 * 0.190);
        EXPECT(result.seconds[50].used < 2.5 * 1.75 * 0.031);
        autoscale_result_free(&result);
    }
}

/*
 * A rate that stays: by two seconds of it leat loads again and again, by more it does not, and what it remembers costs; the others see
 * two and remember nothing, whatever is asked.
 */
static void
test_what_rates_are_seen(void)
{
    struct rates_step step = {.end_s = 300, .qps = 4};
    const struct rates rates = {&step, 1};

    for (enum autoscale_policy policy = AUTOSCALE_INFAAS; policy <= AUTOSCALE_LEAT; policy++) {
        uint64_t starts_by_twenty = 0, starts_by_two = 0;
        double cost = 0, cost_remembered = 0;
        for (uint64_t round = 0; round < 10; round++) {
            struct autoscale_options options =
                options_of(&resnet50, policy, &rates, leat_test_seed + round);
            options.leat.deviations = 0;
            options.hold_ns = 0;
            struct autoscale_result twenty = simulate(&options);
            options.steady_ns = 2 * SECOND_NS;
            struct autoscale_result two = simulate(&options);
            options.hold_ns = 1;
            struct autoscale_result remembered = simulate(&options);
            EXPECT(policy == AUTOSCALE_LEAT ||
                   (two.starts == twenty.starts && two.cost == twenty.cost &&
                    remembered.cost == two.cost));
            cost += two.cost;
            cost_remembered += remembered.cost;
            starts_by_twenty += twenty.starts;
            starts_by_two += two.starts;
            autoscale_result_free(&twenty);
            autoscale_result_free(&two);
            autoscale_result_free(&remembered);
        }
        EXPECT(policy == AUTOSCALE_INFAAS ||
               (starts_by_two > 2 * starts_by_twenty && cost < cost_remembered));
        (void)printf(
            "%s, 4 a second: %llu starts by 20 s, %llu by 2 s; cost %.1f, and %.1f remembered\n",
            autoscale_policy_names[policy], (unsigned long long)starts_by_twenty,
            (unsigned long long)starts_by_two, cost, cost_remembered);
    }
}

/* ---- Whatever the policy ------------------------------------------------------------------------------- */

static void
draw_table(struct autoscale_table *table)
{
    static const struct autoscale_table empty;

    *table = empty;
    table->count = 1 + below(5);
    for (uint32_t a = 0; a < table->count; a++) {
        struct autoscale_application *application = &table->applications[a];
        (void)snprintf(application->name, sizeof(application->name), "a%u", a);
        application->objective_ns = SECOND_NS / 1000 * (20 + below(600));
        application->share = 1 + below(5);
        application->variant_count = 1 + below(5);
        for (uint32_t v = 0; v < application->variant_count; v++) {
            const enum autoscale_hardware hardware = below(AUTOSCALE_HARDWARE);
            application->hardware[v] = hardware;
            application->variants[v] = (struct leat_autoscale_variant){.batch_ns = below(10000000),
                                                                       .item_ns = 500000 + below(hardware == AUTOSCALE_CPU ? 200000000 : 5000000),
                                                                       .load_ns = below(3) * (uint64_t)below(2000000000) * 3,
                                                                       .price = 1000 + below(1000000),
                                                                       .batch_max = 1 + below(16)};
            application->variants[v].uses[hardware] = hardware == AUTOSCALE_GPU ? 10 + below(90) : 1 + below(4);
        }
    }
}

static void
test_nothing_is_lost(void)
{
    static struct autoscale_table table;
    struct rates_step steps[20];
    const struct rates rates = {steps, 20};
    uint64_t dropped = 0, late = 0, starts = 0;

    for (uint32_t round = 0; round < 30; round++) {
        draw_table(&table);
        for (uint32_t n = 0; n < 20; n++) {
            steps[n] = (struct rates_step){.end_s = 3 * (n + 1), .qps = 1 + below(200)};
        }
        for (enum autoscale_policy policy = 0; policy < AUTOSCALE_ILP; policy++) {
            struct autoscale_options options = options_of(&table, policy, &rates, round);
            options.drop_multiple = below(3);
            options.period_ns = SECOND_NS / (1 + below(4));
            struct autoscale_result result = simulate(&options), again = simulate(&options);
            EXPECT(again.in_time == result.in_time && again.p99_ns == result.p99_ns && again.cost == result.cost);
            dropped += result.dropped;
            late += result.late;
            starts += result.starts;
            autoscale_result_free(&result);
            autoscale_result_free(&again);
        }
    }
    EXPECT(dropped > 300 && late > 300 && starts > 60);
}

/* Solvers: one finds nothing, one what leat finds and proves nothing, one proves that. */
static bool
prove_nothing(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
              struct leat_autoscale_application *applications, uint32_t count, bool beside, uint32_t nodes_max)
{
    (void)options, (void)box, (void)beside, (void)nodes_max;
    for (uint32_t a = 0; a < count; a++) {
        memset(applications[a].aim, 0, sizeof(applications[a].aim));
    }
    return false;
}

static bool
find_alone(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
           struct leat_autoscale_application *applications, uint32_t count, bool beside, uint32_t nodes_max)
{
    (void)nodes_max;
    leat_autoscale_solve(options, box, applications, count, beside);
    return false;
}

static bool
prove_all(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
          struct leat_autoscale_application *applications, uint32_t count, bool beside, uint32_t nodes_max)
{
    return !find_alone(options, box, applications, count, beside, nodes_max);
}

/* What is not proved is counted, and is no worse than what leat finds. */
static void
test_what_is_not_proved(void)
{
    static const autoscale_exact solvers[] = {prove_nothing, find_alone, prove_all};
    struct rates_step steps[] = {{.end_s = 30, .qps = 4}, {.end_s = 60, .qps = 900}, {.end_s = 90, .qps = 30}};
    const struct rates rates = {steps, LEAT_COUNT_OF(steps)};
    struct autoscale_options options = options_of(&resnet50, AUTOSCALE_LEAT, &rates, 1);
    struct autoscale_result leat = simulate(&options);

    EXPECT(leat.programs == 0 && leat.unproved == 0);
    options.policy = AUTOSCALE_ILP;
    for (uint32_t s = 0; s < LEAT_COUNT_OF(solvers); s++) {
        options.exact = solvers[s];
        struct autoscale_result result = simulate(&options);
        EXPECT(result.programs > result.decisions); /* some were short */
        EXPECT(result.unproved == (solvers[s] == prove_all ? 0 : result.programs));
        EXPECT(result.cost == leat.cost && result.in_time == leat.in_time && result.starts == leat.starts);
        autoscale_result_free(&result);
    }
    autoscale_result_free(&leat);
}

/* ---- Section 6.2 ---------------------------------------------------------------------------------------- */

struct outcome {
    double cost, violations, in_time_qps;
};

static void
run_load(const char *folder, const char *load, struct outcome *ret_outcomes)
{
    char path[512];
    struct rates rates;

    (void)snprintf(path, sizeof(path), "%s/%s.rates", folder, load);
    EXPECT(rates_read(path, 0, &rates) == LEAT_OK);
    for (enum autoscale_policy policy = 0; policy < AUTOSCALE_ILP; policy++) {
        ret_outcomes[policy] = (struct outcome){0};
        for (uint64_t seed = 1; seed <= 3; seed++) {
            const struct autoscale_options options = options_of(&resnet50, policy, &rates, seed);
            struct autoscale_result result = simulate(&options);
            ret_outcomes[policy].cost += result.cost / 3;
            ret_outcomes[policy].violations += (double)(result.queries - result.in_time) / (double)result.queries / 3;
            ret_outcomes[policy].in_time_qps += (double)result.in_time / result.second_count / 3;
            autoscale_result_free(&result);
        }
        (void)printf("%s, %s: cost %.1f, violations %.3f %%, in time %.1f/s\n", load, autoscale_policy_names[policy],
                     ret_outcomes[policy].cost, 100 * ret_outcomes[policy].violations, ret_outcomes[policy].in_time_qps);
    }
    rates_free(&rates);
}

static void
test_the_papers_loads(const char *folder)
{
    struct outcome of[AUTOSCALE_POLICIES];

    run_load(folder, "flat", of);
    EXPECT(of[AUTOSCALE_STATIC_GPU].cost > 5 * of[AUTOSCALE_LEAT].cost && of[AUTOSCALE_STATIC_GPU].cost > 10 * of[AUTOSCALE_INFAAS].cost);
    EXPECT(of[AUTOSCALE_LEAT].violations < 0.005);
    run_load(folder, "high", of);
    EXPECT(fabs(of[AUTOSCALE_REPLICATE_CPU].in_time_qps - 10) < 0.2); /* the paper: about 10 */
    const double fewer = 1 - of[AUTOSCALE_REPLICATE_GPU].in_time_qps / of[AUTOSCALE_INFAAS].in_time_qps;
    EXPECT(fewer > 0.1 && fewer < 0.2); /* the paper: 15 % */
    EXPECT(of[AUTOSCALE_LEAT].violations < 0.001 && of[AUTOSCALE_LEAT].cost < 1.05 * of[AUTOSCALE_INFAAS].cost);
    run_load(folder, "fluctuating", of);
    EXPECT(of[AUTOSCALE_STATIC_GPU].cost > 3 * of[AUTOSCALE_LEAT].cost); /* the paper: 3 times */
    EXPECT(2 * of[AUTOSCALE_LEAT].violations < of[AUTOSCALE_INFAAS].violations);
}

int
main(int argc, char **argv)
{
    char path[512];

    leat_test_init();
    random_state = leat_test_seed;
    EXPECT(argc == 2);
    (void)snprintf(path, sizeof(path), "%s/resnet50.csv", argv[1]);
    EXPECT(autoscale_table_read(path, &resnet50) == LEAT_OK && resnet50.count == 1 && resnet50.applications[0].variant_count == 4);
    EXPECT(resnet50.applications[0].variants[3].price == 1171794 && resnet50.applications[0].variants[3].uses[AUTOSCALE_GPU] == 50);
    test_too_much_for_cpus();
    test_a_step();
    test_what_rates_are_seen();
    test_nothing_is_lost();
    test_what_is_not_proved();
    test_the_papers_loads(argv[1]);
    return 0;
}
