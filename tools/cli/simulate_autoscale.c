/* SPDX-License-Identifier: Apache-2.0 */
/* leat simulate --autoscale: applications whose variants come and go, on a virtual clock. */
#include "tools/cli/simulate_autoscale.h"

#include <math.h>
#include <stdio.h>

#include "base/align.h"
#include "tools/cli/cli.h"
#include "tools/cli/simulate_course.h"

#define VERB      "simulate"
#define SECOND_NS UINT64_C(1000000000)

struct serving {
    struct course course;
    const char *table_path;
    uint64_t period_ns, hold_ns, steady_ns, cpu_cores, inferentia_cores;
    double gpus;
    struct leat_autoscale_options options;
    autoscale_exact exact;
    struct autoscale_table table;
};

static const struct leat_autoscale_options defaults = LEAT_AUTOSCALE_OPTIONS_INIT;

static struct serving *
serving_of(struct course *course)
{
    return (struct serving *)course;
}

static const struct serving *
serving_in(const struct course *course)
{
    return (const struct serving *)course;
}

/* ---- Options ----------------------------------------------------------------------------------- */

void
simulate_autoscale_help(void)
{
    (void)printf(
        "usage: leat simulate --autoscale FILE --trace FILE [OPTION...]\n\n"
        "Applications that several variants can answer, on CPUs and accelerators of different prices, under a load that changes:\n"
        "what serving costs and how many queries violate their objectives, by who loads and unloads. Every figure is\n"
        "simulated. Needs no daemon.\n\n"
        "  --autoscale FILE        CSV with a row for each variant: application, objective_ms, share (of queries), variant,\n"
        "                          hardware (cpu, inferentia, gpu), batch_ms, item_ms (a batch of b takes batch_ms + b item_ms),\n"
        "                          max_batch, memory_gb, cpu_cores, inferentia_cores, gpu_share, load_s. An instance costs\n"
        "                          %g, %g or %g for each GB and second on these\n"
        "  --policy NAME,...       to compare: static-cpu, static-gpu (what carries the highest rate, all the time),\n"
        "                          replicate-cpu, replicate-gpu (more or fewer of the variant that is cheapest), infaas (the\n"
        "                          paper's heuristic), leat; default: these. ilp (the paper's integer program at each\n"
        "                          decision) where the program has GLPK, which infaas_ilp of bench has\n"
        "  --cpu-cores N           that there are (default 8)\n"
        "  --inferentia-cores N    (default 4)\n"
        "  --gpus N                shares of them add up to that (default 1)\n"
        "  --headroom H            capacity over load (default %g)\n"
        "  --deviations D          leat, ilp: of what comes within an objective, above the load, where that is more (default %g)\n"
        "  --load-weight L         what a second of loading costs, in prices of a second (default %g)\n"
        "  --hold TIME             leat, ilp: how long they remember a rate at least (default 30s); 0s: not at all\n"
        "  --steady TIME           leat, ilp: the time whose rate they go by where that of the last two seconds differs from it\n"
        "                          by no more than chance (default 20s); 2s: they see what the others see\n"
        "  --period TIME           between two decisions (default 1s)\n\n"
        "  --trace FILE            Poisson arrivals of all applications at rates that change: CSV with start_s and qps, or a\n"
        "                          rate a second, one a line; as they are or, with --rate QPS, scaled to that mean\n"
        "  --duration TIME         (default: of the trace)\n"
        "  --drop MULTIPLE         what would end later than that many objectives is dropped; 0: never (default 1)\n"
        "  --seed N, --seeds N     the first seed (default 1) and how many (default 1); queries come the same for all\n\n"
        "  --json                  one JSON object\n"
        "  --csv FILE              one line a second, policy and seed\n"
        "  --svg FILE              a figure: cost over time\n"
        "  --violations-svg FILE   a figure: violations over time\n"
        "  --threads N             (default: cores of the affinity mask); results do not depend on it\n\n"
        "example: leat simulate --autoscale variants.csv --trace rates.txt --policy infaas,leat --seeds 5\n",
        autoscale_gb_s_prices[AUTOSCALE_CPU], autoscale_gb_s_prices[AUTOSCALE_INFERENTIA], autoscale_gb_s_prices[AUTOSCALE_GPU],
        defaults.headroom, defaults.deviations, defaults.load_weight_per_s);
}

static const struct option options[] = {
    {"autoscale", required_argument, NULL, 'a'},
    {"cpu-cores", required_argument, NULL, 'c'},
    {"inferentia-cores", required_argument, NULL, 'i'},
    {"gpus", required_argument, NULL, 'g'},
    {"headroom", required_argument, NULL, 'H'},
    {"deviations", required_argument, NULL, 'D'},
    {"load-weight", required_argument, NULL, 'L'},
    {"hold", required_argument, NULL, 'O'},
    {"steady", required_argument, NULL, 'S'},
    {"period", required_argument, NULL, 'P'},
    COURSE_OPTIONS("policy"),
};

static bool
take(struct course *course, int option)
{
    struct serving *serving = serving_of(course);

    switch (option) {
    case 'a': serving->table_path = optarg; return true;
    case 'c': return parse_u64(optarg, 0, 100000, &serving->cpu_cores);
    case 'i': return parse_u64(optarg, 0, 100000, &serving->inferentia_cores);
    case 'g': return parse_double(optarg, 0, 10000, &serving->gpus);
    case 'H': return parse_double(optarg, 1, 100, &serving->options.headroom);
    case 'D': return parse_double(optarg, 0, 100, &serving->options.deviations);
    case 'L': return parse_double(optarg, 0, 1000, &serving->options.load_weight_per_s);
    case 'O': return course_parse_ns(optarg, &serving->hold_ns);
    case 'S':
        return course_parse_ns(optarg, &serving->steady_ns) && serving->steady_ns >= 2 * SECOND_NS;
    case 'P': return course_parse_ns(optarg, &serving->period_ns) && serving->period_ns >= SECOND_NS / 1000;
    default: return false;
    }
}

static int
check(struct course *course)
{
    return serving_in(course)->table_path != NULL ? EXIT_DONE : usage_error(VERB, "--autoscale is needed");
}

static int
read_inputs(struct course *course)
{
    struct serving *serving = serving_of(course);

    for (uint32_t i = 0; i < course->subject_count; i++) {
        if (course->subjects[i] == AUTOSCALE_ILP && serving->exact == NULL) {
            return usage_error(VERB, "--policy: ilp: this program has no solver of integer programs, infaas_ilp of bench has");
        }
    }
    return autoscale_table_read(serving->table_path, &serving->table) == LEAT_OK ? EXIT_DONE : report_failure(VERB);
}

/* ---- Runs -------------------------------------------------------------------------------------- */

static enum leat_status
run(struct course *course, uint32_t subject, uint64_t seed, void *ret_result)
{
    const struct serving *serving = serving_in(course);
    const struct autoscale_options asked = {
        .table = &serving->table,
        .policy = (enum autoscale_policy)subject,
        .exact = serving->exact,
        .box = {.resource_count = AUTOSCALE_HARDWARE,
                .totals = {(uint32_t)serving->cpu_cores, (uint32_t)serving->inferentia_cores,
                           (uint32_t)lround(100 * serving->gpus)}},
        .leat = serving->options,
        .arrivals = {.kind = ARRIVALS_RATES, .rates = &course->rates, .dispersion = 1},
        .duration_ns = course->duration_ns,
        .seed = seed,
        .period_ns = serving->period_ns,
        .hold_ns = serving->hold_ns,
        .steady_ns = serving->steady_ns,
        .drop_multiple = course->drop_multiple,
    };

    return autoscale_simulate(&asked, ret_result);
}

static void
free_result(void *result)
{
    autoscale_result_free(result);
}

/* ---- Results ----------------------------------------------------------------------------------- */

enum quantity { COST, COST_CPU, COST_INFERENTIA, COST_GPU, VIOLATION, DROPPED, IN_TIME_QPS, ANSWERED_QPS, P50_NS, P99_NS, STARTS, PROGRAMS, UNPROVED };

static const char *const keys[] = {
    [COST] = "cost",
    [COST_CPU] = "cost_cpu",
    [COST_INFERENTIA] = "cost_inferentia",
    [COST_GPU] = "cost_gpu",
    [VIOLATION] = "violation_share",
    [DROPPED] = "dropped_share",
    [IN_TIME_QPS] = "in_time_qps",
    [ANSWERED_QPS] = "answered_qps",
    [P50_NS] = "latency_p50_ns",
    [P99_NS] = "latency_p99_ns",
    [STARTS] = "instances_started",
    [PROGRAMS] = "programs",
    [UNPROVED] = "programs_unproved",
};

static double
value_of(const void *of, uint32_t key)
{
    const struct autoscale_result *result = of;
    const double queries = result->queries > 0 ? (double)result->queries : NAN;

    switch ((enum quantity)key) {
    case COST: return result->cost;
    case COST_CPU: return result->costs[AUTOSCALE_CPU];
    case COST_INFERENTIA: return result->costs[AUTOSCALE_INFERENTIA];
    case COST_GPU: return result->costs[AUTOSCALE_GPU];
    case VIOLATION: return (double)(result->queries - result->in_time) / queries;
    case DROPPED: return (double)result->dropped / queries;
    case IN_TIME_QPS: return (double)result->in_time / result->second_count;
    case ANSWERED_QPS: return (double)(result->in_time + result->late) / result->second_count;
    case P50_NS: return (double)result->p50_ns;
    case P99_NS: return (double)result->p99_ns;
    case STARTS: return (double)result->starts;
    case PROGRAMS: return (double)result->programs;
    case UNPROVED: return (double)result->unproved;
    }
    return NAN;
}

static const struct simulate_second *
seconds_of(const void *of, uint32_t *ret_count)
{
    const struct autoscale_result *result = of;
    *ret_count = result->second_count;
    return result->seconds;
}

static void
describe(const struct course *course, char *text, size_t room)
{
    const struct serving *serving = serving_in(course);
    char drops[64] = "nothing is dropped";

    if (course->drop_multiple > 0) {
        (void)snprintf(drops, sizeof(drops), "dropped when it would end later than %g objectives", course->drop_multiple);
    }
    (void)snprintf(text, room,
                   "%u application%s, %s; %llu CPU cores, %llu Inferentia cores, %g GPUs",
                   serving->table.count, serving->table.count == 1 ? "" : "s", drops, (unsigned long long)serving->cpu_cores,
                   (unsigned long long)serving->inferentia_cores, serving->gpus);
}

static void
print_table(const struct course *course, const char *conditions)
{
    (void)printf("simulated: %s\n"
                 "           cost: of all of it, with the part of GPUs; violations: %% of queries late, dropped or left; mean, least and\n"
                 "           most of seeds; rest: means of seeds\n\n"
                 "%-13s  %10s %10s %10s  %10s %8s %8s  %9s %9s %9s  %6s\n",
                 conditions, "policy", "cost", "of GPUs", "most", "violations", "least", "most", "in time/s", "p50", "p99", "starts");
    for (uint32_t i = 0; i < course->subject_count; i++) {
        const struct course_spread violation = course_spread_of(course, i, VIOLATION), cost = course_spread_of(course, i, COST);
        (void)printf("%-13s  %10.4g %10.4g %10.4g  %10.4f %8.4f %8.4f  %9.1f %9s", course_subject_name(course, i),
                     cost.mean, course_spread_of(course, i, COST_GPU).mean, cost.max, 100 * violation.mean, 100 * violation.min,
                     100 * violation.max, course_spread_of(course, i, IN_TIME_QPS).mean,
                     format_ns(course_spread_of(course, i, P50_NS).mean).text);
        (void)printf(" %9s  %6.0f\n", format_ns(course_spread_of(course, i, P99_NS).mean).text, course_spread_of(course, i, STARTS).mean);
    }
}

static void
add_members(const struct course *course, json_t *object)
{
    const struct serving *serving = serving_in(course);

    set_member(object, "variants", json_string(serving->table_path));
    set_member(object, "applications", json_integer((json_int_t)serving->table.count));
    set_member(object, "cpu_cores", json_integer((json_int_t)serving->cpu_cores));
    set_member(object, "inferentia_cores", json_integer((json_int_t)serving->inferentia_cores));
    set_member(object, "gpus", json_real(serving->gpus));
    set_member(object, "headroom", json_real(serving->options.headroom));
    set_member(object, "deviations", json_real(serving->options.deviations));
    set_member(object, "load_weight_per_s", json_real(serving->options.load_weight_per_s));
    set_member(object, "hold_ns", json_integer((json_int_t)serving->hold_ns));
    set_member(object, "steady_ns", json_integer((json_int_t)serving->steady_ns));
    set_member(object, "period_ns", json_integer((json_int_t)serving->period_ns));
}

int
simulate_autoscale(int argc, char **argv, autoscale_exact exact)
{
    static const struct course_kind kind = {
        .subject = "policy",
        .used = "cost",
        .used_title = "Cost over time (simulated)",
        .used_label = "cost of a second, normalised",
        .names = autoscale_policy_names,
        .name_count = AUTOSCALE_POLICIES,
        .first = 0,
        .end = AUTOSCALE_ILP,
        .keys = keys,
        .key_count = LEAT_COUNT_OF(keys),
        .options = options,
        .result_bytes = sizeof(struct autoscale_result),
        .help = simulate_autoscale_help,
        .take = take,
        .check = check,
        .read = read_inputs,
        .run = run,
        .free_result = free_result,
        .value = value_of,
        .seconds = seconds_of,
        .describe = describe,
        .add_members = add_members,
        .print_table = print_table,
    };
    static struct serving serving;

    serving = (struct serving){.period_ns = SECOND_NS,
                               .hold_ns = 30 * SECOND_NS,
                               .steady_ns = 20 * SECOND_NS,
                               .cpu_cores = 8,
                               .inferentia_cores = 4,
                               .gpus = 1,
                               .options = defaults,
                               .exact = exact};
    return course_main(&kind, &serving.course, argc, argv);
}
