/* SPDX-License-Identifier: Apache-2.0 */
/* leat simulate --stages: a pipeline whose stages are scaled while it serves, on a virtual clock, with the daemon's own code. */
#include "tools/cli/simulate_stages.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "tools/cli/cli.h"
#include "tools/cli/output.h"
#include "tools/simulate/parallel.h"
#include "tools/simulate/stages_table.h"

#define VERB        "simulate"
#define THREADS_MAX 256u
#define SECOND_NS   UINT64_C(1000000000)

/* ---- Options ----------------------------------------------------------------------------------- */

void
simulate_stages_help(void)
{
    (void)printf(
        "usage: leat simulate --stages FILE --objective TIME --trace FILE [OPTION...]\n\n"
        "A pipeline of stages, each with instances of so many cores, under a load that changes: how many queries violate the\n"
        "objective, and how many cores that takes, by who scales it. Every figure is simulated. Needs no daemon.\n\n"
        "  --stages FILE           CSV with a row for each stage: alpha, beta, gamma, zeta (ms: a batch of b on c cores takes\n"
        "                          alpha b/c + beta b + gamma/c + zeta), max_batch, max_cores\n"
        "  --pipeline NAME         of several in the file, which then has a column pipeline\n"
        "  --objective TIME        from arrival to the last stage's answer, such as 780ms; whole milliseconds\n\n"
        "  --scaler NAME,...       to compare: none, fa2 (instances of one core), sponge (cores of one instance), themis (the\n"
        "                          paper's rules), leat (default: all but none)\n"
        "  --resize-delay TIME     from the order to new cores (default 100ms)\n"
        "  --start-delay TIME      from the order to a new instance (default 5s)\n"
        "  --settle N              themis, fa2: calm decisions before instances replace cores, or go (default 10)\n"
        "  --deviations D          leat: how far above the rate it plans, in deviations of a window's arrivals (default %g)\n"
        "  --hold TIME             leat: how long it remembers a rate (default 1s; without a forecast 10s)\n"
        "  --period TIME           leat: between two decisions (default 100ms); the others decide once a second\n"
        "  --forecast NAME|FILE    themis, leat: what they are told of the highest second of the next ten: last (of the highest\n"
        "                          of the last six times ten seconds), mean, maximum, trend, quantile50, quantile90, quantile99,\n"
        "                          a model FILE.onnx of these six, oracle: what will come, or none: leat nothing, themis last\n"
        "                          (default: themis last, leat %s)\n"
        "  --cores N               that leat may give (default 96)\n\n"
        "  --trace FILE            Poisson arrivals at rates that change: CSV with start_s and qps, or a rate a second, one\n"
        "                          a line; as they are or, with --rate QPS, scaled to that mean\n"
        "  --duration TIME         (default: of the trace)\n"
        "  --dispersion D          arrivals in clusters: counts with D times the variance (default 1)\n"
        "  --batches waiting|whole an idle instance takes what waits (default), or waits for a whole batch, as the paper's\n"
        "                          dispatcher does\n"
        "  --drop MULTIPLE         what is as old as that many objectives is dropped before a stage; 0: never (default 1)\n"
        "  --service-noise SHARE   standard deviation of service times, as a share\n"
        "  --seed N, --seeds N     the first seed (default 1) and how many (default 1); queries come the same for all\n\n"
        "  --json                  one JSON object\n"
        "  --csv FILE              one line a second, scaler and seed\n"
        "  --svg FILE              a figure: cores over time\n"
        "  --violations-svg FILE   a figure: violations over time\n"
        "  --threads N             (default: cores of the affinity mask); results do not depend on it\n\n"
        "example: leat simulate --stages stages.csv --pipeline video --objective 780ms --trace rates.txt --seeds 5\n",
        ((struct leat_scaler_options)LEAT_SCALER_OPTIONS_INIT).deviations, leat_forecast_name(LEAT_FORECAST_DEFAULT));
}

static bool
parse_ns(const char *text, uint64_t *ret_ns)
{
    return parse_duration_ns(text, ret_ns) && *ret_ns <= UINT64_C(1000000) * SECOND_NS;
}

static bool
parse_options(int argc, char **argv, struct scaling *scaling)
{
    static const struct option known[] = {
        {"help", no_argument, NULL, 'h'},
        {"json", no_argument, NULL, 'j'},
        {"stages", required_argument, NULL, 's'},
        {"pipeline", required_argument, NULL, 'p'},
        {"objective", required_argument, NULL, 'o'},
        {"scaler", required_argument, NULL, 'S'},
        {"resize-delay", required_argument, NULL, 'r'},
        {"start-delay", required_argument, NULL, 'b'},
        {"settle", required_argument, NULL, 't'},
        {"deviations", required_argument, NULL, 'D'},
        {"hold", required_argument, NULL, 'H'},
        {"period", required_argument, NULL, 'P'},
        {"forecast", required_argument, NULL, 'f'},
        {"cores", required_argument, NULL, 'c'},
        {"trace", required_argument, NULL, 'T'},
        {"rate", required_argument, NULL, 'R'},
        {"duration", required_argument, NULL, 'u'},
        {"dispersion", required_argument, NULL, 'i'},
        {"batches", required_argument, NULL, 'B'},
        {"drop", required_argument, NULL, 'd'},
        {"service-noise", required_argument, NULL, 'N'},
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

    *scaling = (struct scaling){.start_ns = 5 * SECOND_NS,
                                .resize_ns = SECOND_NS / 10,
                                .period_ns = SECOND_NS / 10,
                                .seed = 1,
                                .seed_count = 1,
                                .settle = 10,
                                .cores = 96,
                                .drop_multiple = 1,
                                .dispersion = 1,
                                .forecaster = {.simple = LEAT_FORECAST_DEFAULT},
                                .deviations = ((struct leat_scaler_options)LEAT_SCALER_OPTIONS_INIT).deviations,
                                .threads = simulate_core_count()};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 'h': scaling->help = true; break;
        case 'j': scaling->json = true; break;
        case 's': scaling->stages_path = optarg; break;
        case 'p': scaling->pipeline_name = optarg; break;
        case 'o': good = parse_ns(optarg, &scaling->objective_ns); break;
        case 'S':
            free(scaling->scaler_text);
            scaling->scaler_text = strdup(optarg);
            good = scaling->scaler_text != NULL;
            break;
        case 'r': good = parse_ns(optarg, &scaling->resize_ns); break;
        case 'b': good = parse_ns(optarg, &scaling->start_ns); break;
        case 't': good = parse_u64(optarg, 0, 1000000, &scaling->settle); break;
        case 'D': good = parse_double(optarg, 0, 100, &scaling->deviations); break;
        case 'H': good = parse_ns(optarg, &scaling->hold_ns) && scaling->hold_ns > 0; break;
        case 'P': good = parse_ns(optarg, &scaling->period_ns) && scaling->period_ns >= SECOND_NS / 1000; break;
        case 'f': scaling->forecast_name = optarg; break;
        case 'c': good = parse_u64(optarg, 1, 1024, &scaling->cores); break;
        case 'T': scaling->trace_path = optarg; break;
        case 'R': good = parse_double(optarg, 1e-3, RATES_QPS_MAX, &scaling->rate_qps); break;
        case 'u': good = parse_ns(optarg, &scaling->duration_ns); break;
        case 'i': good = parse_double(optarg, 1, ARRIVALS_DISPERSION_MAX, &scaling->dispersion); break;
        case 'B':
            scaling->whole_batches = strcmp(optarg, "whole") == 0;
            good = scaling->whole_batches || strcmp(optarg, "waiting") == 0;
            break;
        case 'd': good = parse_double(optarg, 0, 1000, &scaling->drop_multiple); break;
        case 'N': good = parse_share(optarg, &scaling->noise_share); break;
        case 'e': good = parse_u64(optarg, 0, UINT64_MAX - SCALING_SEEDS_MAX, &scaling->seed); break;
        case 'E': good = parse_u64(optarg, 1, SCALING_SEEDS_MAX, &scaling->seed_count); break;
        case 'C': scaling->csv_path = optarg; break;
        case 'V': scaling->svg_path = optarg; break;
        case 'W': scaling->violations_svg_path = optarg; break;
        case 'j' + 256: good = parse_u64(optarg, 1, THREADS_MAX, &scaling->threads); break;
        default: good = false; break;
        }
    }
    if (!good) {
        (void)usage_error(VERB, "'%s' is no option, or its value is missing or out of range", argv[optind - 1]);
    } else if (optind != argc && !scaling->help) {
        (void)usage_error(VERB, "'%s' is no option", argv[optind]);
        good = false;
    }
    return good;
}

static bool
forecast_is(const struct scaling *scaling, const char *name)
{
    return scaling->forecast_name != NULL && strcmp(scaling->forecast_name, name) == 0;
}

/* Whether a scaler is told what the forecaster says. */
static bool
listens(const struct scaling *scaling, enum stages_scaler scaler)
{
    return scaling->forecast_name == NULL ? scaler == STAGES_LEAT : !forecast_is(scaling, "none");
}

static int
check_options(struct scaling *scaling)
{
    const struct {
        const char *name;
        bool given;
    } needed[] = {
        {"--stages", scaling->stages_path != NULL},
        {"--objective", scaling->objective_ns > 0},
        {"--trace", scaling->trace_path != NULL},
    };

    for (size_t i = 0; i < LEAT_COUNT_OF(needed); i++) {
        if (!needed[i].given) {
            return usage_error(VERB, "%s is needed", needed[i].name);
        }
    }
    if (scaling->objective_ns % 1000000 != 0 || scaling->objective_ns > 1000 * SECOND_NS) {
        return usage_error(VERB, "--objective: whole milliseconds, at most 1000 s");
    }
    if (scaling->hold_ns == 0) {
        scaling->hold_ns = (forecast_is(scaling, "none") ? 10 : 1) * SECOND_NS;
    }
    if (scaling->hold_ns / scaling->period_ns < 1 || scaling->hold_ns / scaling->period_ns > LEAT_SCALER_HOLD_MAX) {
        return usage_error(VERB, "--hold: 1 to %u periods", LEAT_SCALER_HOLD_MAX);
    }
    return EXIT_DONE;
}

/* ---- Inputs: EXIT_DONE, or what went wrong is said --------------------------------------------- */

static int
fail(void)
{
    (void)fprintf(stderr, "leat simulate: %s\n", leat_error_text());
    return EXIT_FAILED;
}

static int
read_inputs(struct scaling *scaling)
{
    if (stages_table_read(scaling->stages_path, scaling->pipeline_name, &scaling->pipeline) != LEAT_OK ||
        rates_read(scaling->trace_path, 0, &scaling->rates) != LEAT_OK) {
        return fail();
    }
    if (scaling->forecast_name != NULL && !forecast_is(scaling, "oracle") && !forecast_is(scaling, "none") &&
        forecaster_open(scaling->forecast_name, &leat_backend_reference, (uint32_t)scaling->threads, &scaling->forecaster) != LEAT_OK) {
        return fail();
    }
    scaling->pipeline.objective_ms = (uint32_t)(scaling->objective_ns / 1000000);
    if (scaling->rate_qps > 0) {
        rates_scale(&scaling->rates, scaling->rate_qps / rates_mean_qps(&scaling->rates));
    }
    if (scaling->duration_ns == 0) {
        scaling->duration_ns = (uint64_t)(scaling->rates.steps[scaling->rates.count - 1].end_s * 1e9);
    }
    return EXIT_DONE;
}

static int
add_scaler(struct scaling *scaling, const char *name)
{
    for (enum stages_scaler known = STAGES_NONE; known < STAGES_SCALERS; known++) {
        if (strcmp(name, stages_scaler_names[known]) == 0 && scaling->scaler_count < STAGES_SCALERS) {
            scaling->scalers[scaling->scaler_count++] = known;
            return EXIT_DONE;
        }
    }
    return usage_error(VERB, "--scaler: '%s' is none, or there are too many", name);
}

static int
read_scalers(struct scaling *scaling)
{
    char *rest = NULL;
    int exit_code = EXIT_DONE;

    for (enum stages_scaler known = STAGES_FA2; known < STAGES_SCALERS && scaling->scaler_text == NULL; known++) {
        exit_code = add_scaler(scaling, stages_scaler_names[known]);
    }
    for (char *name = scaling->scaler_text != NULL ? strtok_r(scaling->scaler_text, ",", &rest) : NULL;
         name != NULL && exit_code == EXIT_DONE; name = strtok_r(NULL, ",", &rest)) {
        exit_code = add_scaler(scaling, name);
    }
    return exit_code != EXIT_DONE || scaling->scaler_count > 0 ? exit_code : usage_error(VERB, "--scaler: no name");
}

/* ---- Runs -------------------------------------------------------------------------------------- */

static enum leat_status
run_case(struct simulate_run *unused, uint32_t index, void *context)
{
    struct scaling *scaling = context;
    const enum stages_scaler scaler = scaling->scalers[index / scaling->seed_count];
    const struct stages_options options = {
        .pipeline = &scaling->pipeline,
        .scaler = scaler,
        .arrivals = {.kind = ARRIVALS_RATES, .rates = &scaling->rates, .dispersion = scaling->dispersion},
        .duration_ns = scaling->duration_ns,
        .seed = scaling->seed + index % scaling->seed_count,
        .start_ns = scaling->start_ns,
        .resize_ns = scaling->resize_ns,
        .settle_decisions = (uint32_t)scaling->settle,
        .whole_batches = scaling->whole_batches,
        .drop_multiple = scaling->drop_multiple,
        .noise_share = scaling->noise_share,
        .leat = {.deviations = scaling->deviations,
                 .hold = (uint32_t)(scaling->hold_ns / scaling->period_ns),
                 .settle = ((struct leat_scaler_options)LEAT_SCALER_OPTIONS_INIT).settle},
        .leat_period_ns = scaling->period_ns,
        .box_cores = (uint32_t)scaling->cores,
        .forecast = listens(scaling, scaler) ? forecaster_qps : NULL,
        .forecast_context = &scaling->forecaster,
        .oracle = forecast_is(scaling, "oracle"),
    };

    (void)unused;
    return stages_simulate(&options, &scaling->results[index]);
}

static int
run_all(struct scaling *scaling)
{
    const uint32_t count = scaling->scaler_count * (uint32_t)scaling->seed_count;

    scaling->results = calloc(count, sizeof(*scaling->results));
    if (scaling->results == NULL) {
        (void)LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u runs", count);
        return fail();
    }
    if (simulate_parallel((uint32_t)scaling->threads, count, run_case, scaling, NULL, NULL) != LEAT_OK) {
        return fail();
    }
    if (atomic_load_explicit(&scaling->forecaster.failed, memory_order_relaxed)) {
        (void)LEAT_FAIL(LEAT_ERR_INVALID, "%s cannot be run on this load", scaling->forecast_name);
        return fail();
    }
    return EXIT_DONE;
}

static void
free_scaling(struct scaling *scaling)
{
    for (uint32_t i = 0; scaling->results != NULL && i < scaling->scaler_count * scaling->seed_count; i++) {
        stages_result_free(&scaling->results[i]);
    }
    free(scaling->results);
    free(scaling->scaler_text);
    forecaster_close(&scaling->forecaster);
    rates_free(&scaling->rates);
}

int
simulate_stages(int argc, char **argv)
{
    static int (*const steps[])(struct scaling *) = {read_scalers, read_inputs, run_all};
    static struct scaling scaling;
    int exit_code = EXIT_USAGE;

    if (parse_options(argc, argv, &scaling)) {
        if (scaling.help) {
            simulate_stages_help();
            free_scaling(&scaling);
            return EXIT_DONE;
        }
        exit_code = check_options(&scaling);
    }
    const struct {
        const char *option, *path;
    } files[] = {{"--csv", scaling.csv_path}, {"--svg", scaling.svg_path}, {"--violations-svg", scaling.violations_svg_path}};
    for (size_t i = 0; i < LEAT_COUNT_OF(files) && exit_code == EXIT_DONE; i++) {
        exit_code = output_check(VERB, files[i].option, files[i].path);
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(steps) && exit_code == EXIT_DONE; i++) {
        exit_code = steps[i](&scaling);
    }
    if (exit_code == EXIT_DONE) {
        scaling_report(&scaling);
        exit_code = scaling_write_files(&scaling) == LEAT_OK ? EXIT_DONE : fail();
    }
    free_scaling(&scaling);
    return exit_code;
}
