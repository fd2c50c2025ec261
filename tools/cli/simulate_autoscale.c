/* SPDX-License-Identifier: Apache-2.0 */
/* leat simulate --autoscale: applications whose variants come and go, on a virtual clock, with the daemon's own code. */
#include "tools/cli/simulate_autoscale.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "tools/cli/cli.h"
#include "tools/cli/output.h"
#include "tools/simulate/parallel.h"

#define VERB        "simulate"
#define THREADS_MAX 256u
#define SECOND_NS   UINT64_C(1000000000)

static const struct leat_autoscale_options defaults = LEAT_AUTOSCALE_OPTIONS_INIT;

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
        "  --hold TIME             leat, ilp: how long they remember a rate at least (default 30s)\n"
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

static bool
parse_ns(const char *text, uint64_t *ret_ns)
{
    return parse_duration_ns(text, ret_ns) && *ret_ns <= UINT64_C(1000000) * SECOND_NS;
}

static bool
parse_options(int argc, char **argv, struct serving *serving)
{
    static const struct option known[] = {
        {"help", no_argument, NULL, 'h'},
        {"json", no_argument, NULL, 'j'},
        {"autoscale", required_argument, NULL, 'a'},
        {"policy", required_argument, NULL, 'p'},
        {"cpu-cores", required_argument, NULL, 'c'},
        {"inferentia-cores", required_argument, NULL, 'i'},
        {"gpus", required_argument, NULL, 'g'},
        {"headroom", required_argument, NULL, 'H'},
        {"deviations", required_argument, NULL, 'D'},
        {"load-weight", required_argument, NULL, 'L'},
        {"hold", required_argument, NULL, 'O'},
        {"period", required_argument, NULL, 'P'},
        {"trace", required_argument, NULL, 'T'},
        {"rate", required_argument, NULL, 'R'},
        {"duration", required_argument, NULL, 'u'},
        {"drop", required_argument, NULL, 'd'},
        {"seed", required_argument, NULL, 'e'},
        {"seeds", required_argument, NULL, 'E'},
        {"csv", required_argument, NULL, 'C'},
        {"svg", required_argument, NULL, 'V'},
        {"violations-svg", required_argument, NULL, 'W'},
        {"threads", required_argument, NULL, 'j' + 256},
        {NULL, 0, NULL, 0},
    };
    bool good = true;
    int option;

    *serving = (struct serving){.period_ns = SECOND_NS,
                                .hold_ns = 30 * SECOND_NS,
                                .seed = 1,
                                .seed_count = 1,
                                .cpu_cores = 8,
                                .inferentia_cores = 4,
                                .gpus = 1,
                                .drop_multiple = 1,
                                .options = defaults,
                                .threads = simulate_core_count()};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 'h': serving->help = true; break;
        case 'j': serving->json = true; break;
        case 'a': serving->table_path = optarg; break;
        case 'p':
            free(serving->policy_text);
            serving->policy_text = strdup(optarg);
            good = serving->policy_text != NULL;
            break;
        case 'c': good = parse_u64(optarg, 0, 100000, &serving->cpu_cores); break;
        case 'i': good = parse_u64(optarg, 0, 100000, &serving->inferentia_cores); break;
        case 'g': good = parse_double(optarg, 0, 10000, &serving->gpus); break;
        case 'H': good = parse_double(optarg, 1, 100, &serving->options.headroom); break;
        case 'D': good = parse_double(optarg, 0, 100, &serving->options.deviations); break;
        case 'L': good = parse_double(optarg, 0, 1000, &serving->options.load_weight_per_s); break;
        case 'O': good = parse_ns(optarg, &serving->hold_ns); break;
        case 'P': good = parse_ns(optarg, &serving->period_ns) && serving->period_ns >= SECOND_NS / 1000; break;
        case 'T': serving->trace_path = optarg; break;
        case 'R': good = parse_double(optarg, 1e-3, RATES_QPS_MAX, &serving->rate_qps); break;
        case 'u': good = parse_ns(optarg, &serving->duration_ns); break;
        case 'd': good = parse_double(optarg, 0, 1000, &serving->drop_multiple); break;
        case 'e': good = parse_u64(optarg, 0, UINT64_MAX - SERVING_SEEDS_MAX, &serving->seed); break;
        case 'E': good = parse_u64(optarg, 1, SERVING_SEEDS_MAX, &serving->seed_count); break;
        case 'C': serving->csv_path = optarg; break;
        case 'V': serving->svg_path = optarg; break;
        case 'W': serving->violations_svg_path = optarg; break;
        case 'j' + 256: good = parse_u64(optarg, 1, THREADS_MAX, &serving->threads); break;
        default: good = false; break;
        }
    }
    if (!good) {
        (void)usage_error(VERB, "'%s' is no option, or its value is missing or out of range", argv[optind - 1]);
    } else if (optind != argc && !serving->help) {
        (void)usage_error(VERB, "'%s' is no option", argv[optind]);
        good = false;
    }
    return good;
}

/* ---- Inputs: EXIT_DONE, or what went wrong is said --------------------------------------------- */

static int
fail(void)
{
    (void)fprintf(stderr, "leat simulate: %s\n", leat_error_text());
    return EXIT_FAILED;
}

static int
add_policy(struct serving *serving, const char *name)
{
    for (enum autoscale_policy known = 0; known < AUTOSCALE_POLICIES; known++) {
        if (strcmp(name, autoscale_policy_names[known]) != 0 || serving->policy_count == AUTOSCALE_POLICIES) {
            continue;
        }
        if (known == AUTOSCALE_ILP && serving->exact == NULL) {
            return usage_error(VERB, "--policy: ilp: this program has no solver of integer programs, infaas_ilp of bench has");
        }
        serving->policies[serving->policy_count++] = known;
        return EXIT_DONE;
    }
    return usage_error(VERB, "--policy: '%s' is none, or there are too many", name);
}

static int
read_policies(struct serving *serving)
{
    char *rest = NULL;
    int exit_code = EXIT_DONE;

    for (enum autoscale_policy known = 0; known < AUTOSCALE_ILP && serving->policy_text == NULL; known++) {
        exit_code = add_policy(serving, autoscale_policy_names[known]);
    }
    for (char *name = serving->policy_text != NULL ? strtok_r(serving->policy_text, ",", &rest) : NULL;
         name != NULL && exit_code == EXIT_DONE; name = strtok_r(NULL, ",", &rest)) {
        exit_code = add_policy(serving, name);
    }
    return exit_code != EXIT_DONE || serving->policy_count > 0 ? exit_code : usage_error(VERB, "--policy: no name");
}

static int
read_inputs(struct serving *serving)
{
    if (autoscale_table_read(serving->table_path, &serving->table) != LEAT_OK ||
        rates_read(serving->trace_path, 0, &serving->rates) != LEAT_OK) {
        return fail();
    }
    if (serving->rate_qps > 0) {
        rates_scale(&serving->rates, serving->rate_qps / rates_mean_qps(&serving->rates));
    }
    if (serving->duration_ns == 0) {
        serving->duration_ns = (uint64_t)(serving->rates.steps[serving->rates.count - 1].end_s * 1e9);
    }
    return EXIT_DONE;
}

/* ---- Runs -------------------------------------------------------------------------------------- */

static enum leat_status
run_case(struct simulate_run *unused, uint32_t index, void *context)
{
    struct serving *serving = context;
    const struct autoscale_options options = {
        .table = &serving->table,
        .policy = serving->policies[index / serving->seed_count],
        .exact = serving->exact,
        .box = {.resource_count = AUTOSCALE_HARDWARE,
                .totals = {(uint32_t)serving->cpu_cores, (uint32_t)serving->inferentia_cores, (uint32_t)lround(100 * serving->gpus)}},
        .leat = serving->options,
        .arrivals = {.kind = ARRIVALS_RATES, .rates = &serving->rates, .dispersion = 1},
        .duration_ns = serving->duration_ns,
        .seed = serving->seed + index % serving->seed_count,
        .period_ns = serving->period_ns,
        .hold_ns = serving->hold_ns,
        .drop_multiple = serving->drop_multiple,
    };

    (void)unused;
    return autoscale_simulate(&options, &serving->results[index]);
}

static int
run_all(struct serving *serving)
{
    const uint32_t count = serving->policy_count * (uint32_t)serving->seed_count;

    serving->results = calloc(count, sizeof(*serving->results));
    if (serving->results == NULL) {
        (void)LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u runs", count);
        return fail();
    }
    return simulate_parallel((uint32_t)serving->threads, count, run_case, serving, NULL, NULL) == LEAT_OK ? EXIT_DONE : fail();
}

static void
free_serving(struct serving *serving)
{
    for (uint32_t i = 0; serving->results != NULL && i < serving->policy_count * serving->seed_count; i++) {
        autoscale_result_free(&serving->results[i]);
    }
    free(serving->results);
    free(serving->policy_text);
    rates_free(&serving->rates);
}

int
simulate_autoscale(int argc, char **argv, autoscale_exact exact)
{
    static int (*const steps[])(struct serving *) = {read_policies, read_inputs, run_all};
    static struct serving serving;
    int exit_code = EXIT_USAGE;

    if (parse_options(argc, argv, &serving)) {
        if (serving.help) {
            simulate_autoscale_help();
            free_serving(&serving);
            return EXIT_DONE;
        }
        exit_code = serving.table_path == NULL   ? usage_error(VERB, "--autoscale is needed")
                    : serving.trace_path == NULL ? usage_error(VERB, "--trace is needed")
                                                 : EXIT_DONE;
    }
    serving.exact = exact;
    const struct {
        const char *option, *path;
    } files[] = {{"--csv", serving.csv_path}, {"--svg", serving.svg_path}, {"--violations-svg", serving.violations_svg_path}};
    for (size_t i = 0; i < LEAT_COUNT_OF(files) && exit_code == EXIT_DONE; i++) {
        exit_code = output_check(VERB, files[i].option, files[i].path);
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(steps) && exit_code == EXIT_DONE; i++) {
        exit_code = steps[i](&serving);
    }
    if (exit_code == EXIT_DONE) {
        serving_report(&serving);
        exit_code = serving_write_files(&serving) == LEAT_OK ? EXIT_DONE : fail();
    }
    free_serving(&serving);
    return exit_code;
}
