/* SPDX-License-Identifier: Apache-2.0 */
/* leat simulate: queries, workers and routers on a virtual clock, with the code that decides in the daemon. */
#include "tools/cli/simulate.h"

#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "tools/cli/cli.h"
#include "tools/cli/output.h"
#include "tools/cli/simulate_autoscale.h"
#include "tools/cli/simulate_stages.h"
#include "tools/cli/simulate_variants.h"
#include "tools/simulate/parallel.h"

#define QUERIES_MAX 50000000u /* of all seeds: they are held in memory */
#define THREADS_MAX 256u
#define DEPTH       2u /* the daemon's worker_queue_depth unless told otherwise */

/* ---- Options ----------------------------------------------------------------------------------- */

static void
print_simulate_help(void)
{
    (void)printf(
        "usage: leat simulate --profile FILE --model NAME --sizes SIZES --mix MIX --objective TIME [OPTION...]\n"
        "       leat simulate --profiles FILE ...: selectors among variants, and batches, instead; see below\n"
        "       leat simulate --stages FILE ...: a pipeline whose stages are scaled, instead; see below\n"
        "       leat simulate --autoscale FILE ...: variants that come and go, instead; see below\n\n"
        "Queries, workers and routers on a virtual clock, with the code that decides in the daemon. Finds the highest rate at\n"
        "which a router keeps the objective, or with --rate what it does at given rates. Every figure is simulated.\n"
        "One query is one batch; a query that is late is served all the same. Needs no daemon.\n\n"
        "  --profile FILE          measured times: CSV with model, instance, batch and s0, s1, ... or mean_ms, in ms\n"
        "  --model NAME            of the profile\n"
        "  --classes A,B,...       instances of the profile, in this order (default: all, as in the file)\n"
        "  --mix MIX               workers: A=2,C=5 or 2,0,5 in order of classes; repeat to compare\n"
        "  --prices FILE           CSV with instance, price_usd_per_hour: says what a mix costs\n\n"
        "  --sizes SIZES           items of queries: CSV with items and perhaps weight, or gaussian:MEAN:DEVIATION\n"
        "  --later-sizes SIZES     from query number --change-at on\n"
        "  --change-at N\n"
        "  --arrivals KIND         poisson (default), constant, bursty (MMPP), or a file of times in seconds, one a line,\n"
        "                          which is scaled to the rate; a number behind each time is the query's size\n"
        "  --burst-factor F        bursty: rate in a burst over rate outside (default 5)\n"
        "  --burst-share S         bursty: fraction of time in bursts (default 0.1)\n"
        "  --burst-queries N       bursty: queries of a burst on average (default 100)\n"
        "  --queries N             of a run (default 20000)\n"
        "  --seed N, --seeds N     the first seed (default 1) and how many (default 1); one run each. A query is the same\n"
        "                          for all routers, mixes and rates\n\n"
        "  --router NAME,...       routers to compare, or all (default):\n"
        "                          %s",
        leat_router_at(0)->name);
    for (size_t i = 1; leat_router_at(i) != NULL; i++) {
        (void)printf(", %s", leat_router_at(i)->name);
    }
    (void)printf(
        ";\n"
        "                          oracle: what one reaches that knows all queries, without --rate\n"
        "  --threshold ITEMS       threshold: queries above it go to the base class\n"
        "  --depth N               batches that a worker may hold where the router queues, as worker_queue_depth of leatd,\n"
        "                          1 to %u (default %u, as there)\n"
        "  --base CLASS            of the oracle (default: the first class)\n"
        "  --objective TIME        latency objective, such as 350ms\n"
        "  --violations SHARE      of queries that may be late, such as 1%% (default): the objective holds at p99\n"
        "  --percentile P          of predictions that judge whether a query is in time, or mean (default 95, as in the\n"
        "                          daemon; matching goes by the mean in any case)\n"
        "  --prediction-noise SHARE, --service-noise SHARE\n"
        "                          standard deviation of errors of prediction, and of service times beyond the samples;\n"
        "                          percentiles of predictions are of times with both\n"
        "  --learn                 predictions not from the profile but learned from what has run, from nothing on, with probes\n"
        "                          of classes that it speaks against, as in the daemon; --percentile 50 to 99.9, or mean\n\n"
        "  --rate QPS,...          run at these rates, rising; 'own' is that of a file of arrivals\n"
        "  --tolerance SHARE       how near throughput is found (default 0.5%%)\n\n"
        "  --json                  one JSON object\n"
        "  --csv FILE              one line a run\n"
        "  --svg FILE              a figure: throughput by router and mix, or share of late queries over rate\n"
        "  --threads N             (default: cores of the affinity mask); results do not depend on it\n\n"
        "example: leat simulate --profile latency_samples.csv --model rm2 --sizes batch_distribution.csv \\\n"
        "             --mix 3,1,3,0 --objective 350ms --router fcfs,oracle --seeds 5 --svg rm2.svg\n\n",
        SIMULATE_DEPTH_MAX, DEPTH);
}

static bool
parse_simulate_options(int argc, char **argv, struct study *study)
{
    static const struct option known[] = {
        {"help", no_argument, NULL, 'h'},
        {"json", no_argument, NULL, 'j'},
        {"profile", required_argument, NULL, 'p'},
        {"model", required_argument, NULL, 'm'},
        {"classes", required_argument, NULL, 'c'},
        {"mix", required_argument, NULL, 'x'},
        {"prices", required_argument, NULL, '$'},
        {"sizes", required_argument, NULL, 's'},
        {"later-sizes", required_argument, NULL, 'S'},
        {"change-at", required_argument, NULL, 'A'},
        {"arrivals", required_argument, NULL, 'a'},
        {"burst-factor", required_argument, NULL, 'F'},
        {"burst-share", required_argument, NULL, 'B'},
        {"burst-queries", required_argument, NULL, 'M'},
        {"queries", required_argument, NULL, 'q'},
        {"seed", required_argument, NULL, 'e'},
        {"seeds", required_argument, NULL, 'E'},
        {"router", required_argument, NULL, 'r'},
        {"threshold", required_argument, NULL, 't'},
        {"depth", required_argument, NULL, 'd'},
        {"base", required_argument, NULL, 'b'},
        {"objective", required_argument, NULL, 'o'},
        {"violations", required_argument, NULL, 'v'},
        {"percentile", required_argument, NULL, 'P'},
        {"prediction-noise", required_argument, NULL, 'n'},
        {"service-noise", required_argument, NULL, 'N'},
        {"learn", no_argument, NULL, 'l'},
        {"rate", required_argument, NULL, 'R'},
        {"tolerance", required_argument, NULL, 'T'},
        {"csv", required_argument, NULL, 'C'},
        {"svg", required_argument, NULL, 'V'},
        {"threads", required_argument, NULL, 'j' + 256},
        {NULL, 0, NULL, 0},
    };
    bool good = true;
    int option;

    *study = (struct study){
        .arrivals_text = "poisson", .query_count = 20000, .seed = 1, .seed_count = 1, .depth = DEPTH, .threads = simulate_core_count(),
        .violation_share = 0.01, .percentile = 95, .tolerance = 0.005, .burst_factor = 5, .burst_share = 0.1, .burst_mean_queries = 100};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 'h': study->help = true; break;
        case 'j': study->json = true; break;
        case 'p': study->profile_path = optarg; break;
        case 'm': study->model = optarg; break;
        case 'c': study->classes_text = optarg; break;
        case 'x':
            good = study->mix_count < STUDY_MIXES_MAX;
            study->mix_texts[good ? study->mix_count++ : 0] = optarg;
            break;
        case '$': study->prices_path = optarg; break;
        case 's': study->sizes_text = optarg; break;
        case 'S': study->later_sizes_text = optarg; break;
        case 'A': good = parse_u64(optarg, 1, QUERIES_MAX, &study->change_at); break;
        case 'a': study->arrivals_text = optarg; break;
        case 'F': good = parse_double(optarg, 1.001, 1e6, &study->burst_factor); break;
        case 'B': good = parse_double(optarg, 0.001, 0.999, &study->burst_share); break;
        case 'M': good = parse_double(optarg, 0.01, 1e9, &study->burst_mean_queries); break;
        case 'q': good = parse_u64(optarg, 1, QUERIES_MAX, &study->query_count); break;
        case 'e': good = parse_u64(optarg, 0, UINT64_MAX - STUDY_SEEDS_MAX, &study->seed); break;
        case 'E': good = parse_u64(optarg, 1, STUDY_SEEDS_MAX, &study->seed_count); break;
        case 'r': good = append_text(&study->router_text, optarg); break;
        case 't': good = parse_u64(optarg, 1, SIMULATE_ITEMS_MAX, &study->threshold_items); break;
        case 'd': good = parse_u64(optarg, 1, SIMULATE_DEPTH_MAX, &study->depth); break;
        case 'b': study->base_text = optarg; break;
        case 'o': good = parse_duration_ns(optarg, &study->objective_ns) && study->objective_ns > 0; break;
        case 'v': good = parse_share(optarg, &study->violation_share); break;
        case 'P':
            study->percentile = 0;
            good = strcmp(optarg, "mean") == 0 || parse_double(optarg, 0.001, 100, &study->percentile);
            break;
        case 'n': good = parse_share(optarg, &study->noise_share); break;
        case 'N': good = parse_share(optarg, &study->service_noise_share); break;
        case 'l': study->learn = true; break;
        case 'R': good = append_text(&study->rate_text, optarg); break;
        case 'T': good = parse_share(optarg, &study->tolerance) && study->tolerance >= 1e-4 && study->tolerance <= 0.5; break;
        case 'C': study->csv_path = optarg; break;
        case 'V': study->svg_path = optarg; break;
        case 'j' + 256: good = parse_u64(optarg, 1, THREADS_MAX, &study->threads); break;
        default: good = false; break;
        }
    }
    if (!good) {
        (void)option_error("simulate", argv);
    } else if (optind != argc && !study->help) {
        (void)usage_error("simulate", "'%s' is no option", argv[optind]);
        good = false;
    }
    return good;
}

/* What has to be said, and what contradicts itself. */
static bool
check_simulate_options(const struct study *study)
{
    const struct {
        const char *name;
        bool given;
    } needed[] = {
        {"--profile", study->profile_path != NULL}, {"--model", study->model != NULL},
        {"--mix", study->mix_count > 0},            {"--objective", study->objective_ns > 0},
    };

    for (size_t i = 0; i < LEAT_COUNT_OF(needed); i++) {
        if (!needed[i].given) {
            (void)usage_error("simulate", "%s is needed", needed[i].name);
            return false;
        }
    }
    if ((study->later_sizes_text != NULL) != (study->change_at > 0)) {
        (void)usage_error("simulate", "--later-sizes and --change-at go together");
        return false;
    }
    if (study->change_at >= study->query_count) {
        (void)usage_error("simulate", "--change-at is not below --queries");
        return false;
    }
    if (study->learn && study->noise_share > 0) {
        (void)usage_error("simulate", "--learn and --prediction-noise contradict each other: what is learned has its own errors");
        return false;
    }
    if (study->learn && study->percentile != 0 && !(study->percentile >= 50 && study->percentile <= 99.9)) {
        (void)usage_error("simulate", "--percentile: what can be learned is 50 to 99.9, or mean");
        return false;
    }
    if (study->query_count * study->seed_count > QUERIES_MAX) {
        (void)usage_error("simulate", "--queries times --seeds is above %u", QUERIES_MAX);
        return false;
    }
    return true;
}

/* ---- Inputs: EXIT_DONE, or what went wrong is said --------------------------------------------- */

static int
find_class(const struct simulate_table *table, const char *name)
{
    for (uint32_t c = 0; c < table->class_count; c++) {
        if (strcmp(table->class_names[c], name) == 0) {
            return (int)c;
        }
    }
    return -1;
}

static int
read_profile(struct study *study)
{
    const char *names[LEAT_SCHED_CLASSES_MAX];
    uint32_t count = 0;
    char *copy = NULL, *rest = NULL;

    if (study->classes_text != NULL) {
        copy = strdup(study->classes_text);
        if (copy == NULL) {
            (void)LEAT_FAIL(LEAT_ERR_NOMEM, "no memory");
            return report_failure("simulate");
        }
        for (char *name = strtok_r(copy, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
            if (count == LEAT_SCHED_CLASSES_MAX) {
                free(copy);
                return usage_error("simulate", "--classes: there can be %u", LEAT_SCHED_CLASSES_MAX);
            }
            names[count++] = name;
        }
    }
    const enum leat_status status = simulate_table_read(study->profile_path, study->model, names, count, &study->table);
    free(copy);
    if (status != LEAT_OK) {
        return report_failure("simulate");
    }
    if (study->base_text != NULL) {
        const int base = find_class(&study->table, study->base_text);
        if (base < 0) {
            return usage_error("simulate", "--base: there is no class '%s'", study->base_text);
        }
        study->base = (uint32_t)base;
    }
    if (study->prices_path != NULL && simulate_prices_read(study->prices_path, &study->table, study->prices) != LEAT_OK) {
        return report_failure("simulate");
    }
    return EXIT_DONE;
}

static int
parse_sizes(const struct study *study, const char *option, const char *text, struct simulate_sizes *ret_sizes)
{
    const enum leat_status status = simulate_sizes_parse(text, ret_sizes);

    if (status != LEAT_OK) {
        return status == LEAT_ERR_INVALID ? usage_error("simulate", "%s: %s", option, leat_error_text()) : report_failure("simulate");
    }
    if (ret_sizes->count > 0 && ret_sizes->sizes[ret_sizes->count - 1].items > study->table.items_max) {
        (void)fprintf(stderr, "leat simulate: %s has a query of %u items, but the profile ends at %u\n", text,
                      ret_sizes->sizes[ret_sizes->count - 1].items, study->table.items_max);
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}

static int
read_trace(struct study *study)
{
    struct simulate_workload_options *workload = &study->workload;

    const enum leat_status status = arrivals_read_file(study->arrivals_text, &study->trace);
    if (status != LEAT_OK) {
        return report_status("simulate", "--arrivals, neither constant, poisson nor bursty", status);
    }
    for (size_t i = 0; study->trace.items != NULL && i < study->trace.count; i++) {
        if (study->trace.items[i] > study->table.items_max) {
            (void)fprintf(stderr, "leat simulate: %s has a query of %u items, but the profile ends at %u\n",
                          study->arrivals_text, study->trace.items[i], study->table.items_max);
            return EXIT_FAILED;
        }
    }
    workload->arrivals = ARRIVALS_FILE;
    workload->times_s = study->trace.times_s;
    workload->items = study->trace.items;
    workload->time_count = study->trace.count < UINT32_MAX ? (uint32_t)study->trace.count : UINT32_MAX;
    return EXIT_DONE;
}

static int
read_sizes(struct study *study)
{
    if (study->trace.items != NULL) {
        return study->sizes_text == NULL && study->later_sizes_text == NULL
                   ? EXIT_DONE
                   : usage_error("simulate", "%s has the sizes of its queries: no --sizes", study->arrivals_text);
    }
    if (study->sizes_text == NULL) {
        return usage_error("simulate", "--sizes is needed");
    }
    int exit_code = parse_sizes(study, "--sizes", study->sizes_text, &study->workload.sizes);
    if (exit_code == EXIT_DONE && study->later_sizes_text != NULL) {
        exit_code = parse_sizes(study, "--later-sizes", study->later_sizes_text, &study->workload.later_sizes);
    }
    return exit_code;
}

static int
read_workload(struct study *study)
{
    static const struct {
        const char *name;
        enum arrivals_kind kind;
    } kinds[] = {{"constant", ARRIVALS_CONSTANT}, {"poisson", ARRIVALS_POISSON}, {"bursty", ARRIVALS_BURSTY}, {"mmpp", ARRIVALS_BURSTY}};
    bool is_kind = false;

    study->workload = (struct simulate_workload_options){
        .query_count = (uint32_t)study->query_count,
        .items_max = study->table.items_max,
        .size_change_at = (uint32_t)study->change_at,
        .burst_factor = study->burst_factor,
        .burst_share = study->burst_share,
        .burst_mean_queries = study->burst_mean_queries,
    };
    for (size_t i = 0; i < LEAT_COUNT_OF(kinds); i++) {
        if (strcmp(study->arrivals_text, kinds[i].name) == 0) {
            study->workload.arrivals = kinds[i].kind;
            is_kind = true;
        }
    }
    const int exit_code = is_kind ? EXIT_DONE : read_trace(study);
    return exit_code == EXIT_DONE ? read_sizes(study) : exit_code;
}

/* "A=2,C=5", or counts in order of classes. */
static bool
parse_mix(const struct simulate_table *table, const char *text, struct leat_pool_mix *ret_mix)
{
    struct leat_pool_mix mix = {{0}};
    char item[SIMULATE_NAME_MAX + 8];
    bool named[LEAT_SCHED_CLASSES_MAX] = {false};
    uint64_t count, total = 0;

    for (uint32_t i = 0; *text != '\0'; i++) {
        const size_t length = strcspn(text, ",");
        if (length >= sizeof(item)) {
            return false;
        }
        memcpy(item, text, length);
        item[length] = '\0';
        char *equals = strrchr(item, '=');
        int class = (int)i;
        if (equals != NULL) {
            *equals = '\0';
            class = find_class(table, item);
        }
        if (class < 0 || class >= (int)table->class_count || named[class] ||
            !parse_u64(equals != NULL ? equals + 1 : item, 0, LEAT_SCHED_WORKERS_MAX, &count)) {
            return false;
        }
        named[class] = true;
        mix.count[class] = (uint16_t)count;
        total += count;
        text += length + (text[length] == ',');
    }
    *ret_mix = mix;
    return total > 0 && total <= LEAT_SCHED_WORKERS_MAX;
}

static int
read_mixes(struct study *study)
{
    for (uint32_t i = 0; i < study->mix_count; i++) {
        if (!parse_mix(&study->table, study->mix_texts[i], &study->mixes[i])) {
            (void)fprintf(stderr, "leat simulate: the classes of %s are:", study->profile_path);
            for (uint32_t c = 0; c < study->table.class_count; c++) {
                (void)fprintf(stderr, " %s", study->table.class_names[c]);
            }
            (void)fputc('\n', stderr);
            return usage_error("simulate", "--mix %s: CLASS=COUNT,... or counts in order of classes, 1 to %u workers in all",
                               study->mix_texts[i], LEAT_SCHED_WORKERS_MAX);
        }
    }
    return EXIT_DONE;
}

static bool
add_router(struct study *study, const struct leat_router *router)
{
    for (uint32_t i = 0; i < study->router_count; i++) {
        if (study->routers[i] == router) {
            return true;
        }
    }
    if (study->router_count == STUDY_ROUTERS_MAX) {
        return false;
    }
    study->routers[study->router_count++] = router;
    return true;
}

static int
read_routers(struct study *study)
{
    char *rest = NULL;

    if (study->router_text == NULL && !append_text(&study->router_text, "all")) {
        (void)LEAT_FAIL(LEAT_ERR_NOMEM, "no memory");
        return report_failure("simulate");
    }
    for (char *name = strtok_r(study->router_text, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        const bool all = strcmp(name, "all") == 0, oracle = strcmp(name, "oracle") == 0;
        if (!all && !oracle && leat_router_find(name) == NULL) {
            return router_error("simulate", name);
        }
        if (oracle && study->rate_count > 0) {
            return usage_error("simulate", "an oracle has a throughput, but no rate: leave one of them out");
        }
        bool room = true;
        for (size_t i = 0; all && leat_router_at(i) != NULL; i++) {
            room = room && add_router(study, leat_router_at(i));
        }
        room = all ? room : add_router(study, leat_router_find(name)); /* NULL for the oracle */
        LEAT_ASSERT(room);
    }
    return study->router_count > 0 ? EXIT_DONE : usage_error("simulate", "--router: no name");
}

static int
read_rates(struct study *study)
{
    char *rest = NULL;

    for (char *text = study->rate_text != NULL ? strtok_r(study->rate_text, ",", &rest) : NULL; text != NULL;
         text = strtok_r(NULL, ",", &rest)) {
        double rate_qps = 0;
        if (strcmp(text, "own") == 0) {
            if (study->workload.arrivals != ARRIVALS_FILE) {
                return usage_error("simulate", "only a file of arrivals has a rate of its own");
            }
            rate_qps = study->workloads[0].own_rate_qps;
        } else if (!parse_double(text, 1e-6, 1e9, &rate_qps)) {
            return usage_error("simulate", "--rate: '%s' is no rate", text);
        }
        if (study->rate_count == STUDY_RATES_MAX ||
            (study->rate_count > 0 && rate_qps <= study->rates_qps[study->rate_count - 1])) {
            return usage_error("simulate", "--rate: at most %d, rising", STUDY_RATES_MAX);
        }
        study->rates_qps[study->rate_count++] = rate_qps;
    }
    return study->rate_text == NULL || study->rate_count > 0 ? EXIT_DONE : usage_error("simulate", "--rate: no rate");
}

/* ---- Runs -------------------------------------------------------------------------------------- */

struct progress {
    struct study *study;
    pthread_mutex_t lock;
    uint32_t done, count; /* W: all, with the lock */
    bool shown;           /* on a terminal only */
};

static void
step_progress(struct progress *progress)
{
    if (progress->shown) {
        LEAT_MUST(pthread_mutex_lock(&progress->lock) == 0);
        progress->done++;
        (void)fprintf(stderr, "\rsimulated %u of %u%s", progress->done, progress->count,
                      progress->done == progress->count ? "\r\033[K" : " ");
        LEAT_MUST(pthread_mutex_unlock(&progress->lock) == 0);
    }
}

static enum leat_status
make_workload(struct simulate_run *run, uint32_t index, void *context)
{
    struct study *study = context;
    struct simulate_workload_options options = study->workload;

    (void)run;
    options.seed = study->seed + index;
    return simulate_workload_make(&options, &study->workloads[index]);
}

static enum leat_status
run_case(struct simulate_run *run, uint32_t index, void *context)
{
    struct progress *progress = context;
    struct study *study = progress->study;
    const uint32_t rates = study->rate_count > 0 ? study->rate_count : 1, seeds = (uint32_t)study->seed_count;
    const uint32_t seed = index % seeds, rate = index / seeds % rates;
    const uint32_t router = index / seeds / rates % study->router_count, mix = index / seeds / rates / study->router_count;
    struct study_run *found = &study_runs(study, mix, router, rate)[seed];
    struct simulate_options options = {
        .table = &study->table,
        .workload = &study->workloads[seed],
        .router = study->routers[router],
        .router_options = {.threshold_items = (uint32_t)study->threshold_items},
        .mix = study->mixes[mix],
        .worker_depth = (uint32_t)study->depth,
        .objective_ns = study->objective_ns,
        .percentile = study->percentile,
        .noise_share = study->noise_share,
        .service_noise_share = study->service_noise_share,
        .learn = study->learn,
        .violation_share = study->violation_share,
    };
    enum leat_status status = LEAT_OK;

    if (options.router == NULL) {
        status = simulate_oracle(&study->table, options.workload, &options.mix, study->base, study->objective_ns,
                                 &found->rate_qps);
    } else if (study->rate_count == 0) {
        status = simulate_throughput(run, &options, study->tolerance, &found->rate_qps);
    } else {
        found->rate_qps = study->rates_qps[rate];
    }
    if (status == LEAT_OK && options.router != NULL && found->rate_qps > 0) {
        options.rate_qps = found->rate_qps;
        status = simulate_run(run, &options, &found->result);
    }
    step_progress(progress);
    return status;
}

static int
simulate(struct study *study)
{
    struct progress progress = {.study = study, .lock = PTHREAD_MUTEX_INITIALIZER, .shown = isatty(STDERR_FILENO) != 0};
    const uint32_t threads = (uint32_t)study->threads, seeds = (uint32_t)study->seed_count;

    study->workloads = calloc(seeds, sizeof(*study->workloads));
    if (study->workloads == NULL) {
        (void)LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u seeds", seeds);
        return report_failure("simulate");
    }
    if (simulate_parallel(threads, seeds, make_workload, study, NULL, NULL) != LEAT_OK) {
        return report_failure("simulate");
    }
    int exit_code = read_rates(study);
    if (exit_code == EXIT_DONE) {
        exit_code = read_routers(study);
    }
    if (exit_code != EXIT_DONE) {
        return exit_code;
    }
    progress.count = study->mix_count * study->router_count * (study->rate_count > 0 ? study->rate_count : 1) * seeds;
    study->runs = calloc(progress.count, sizeof(*study->runs));
    if (study->runs == NULL) {
        (void)LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u runs", progress.count);
        return report_failure("simulate");
    }
    return simulate_parallel(threads, progress.count, run_case, &progress, NULL, NULL) == LEAT_OK ? EXIT_DONE : report_failure("simulate");
}

static void
check_run_length(const struct study *study)
{
    const size_t per_router = study->seed_count;
    double most_qps = 0;

    for (size_t i = 0; study->rate_count == 0 && i < study->mix_count * study->router_count * per_router; i++) {
        const bool routed = study->routers[i / per_router % study->router_count] != NULL; /* an oracle has no ends */
        most_qps = routed && study->runs[i].rate_qps > most_qps ? study->runs[i].rate_qps : most_qps;
    }
    warn_of_short_runs("simulate", most_qps, study->objective_ns, study->query_count, true);
}

static void
free_study(struct study *study)
{
    for (uint64_t s = 0; study->workloads != NULL && s < study->seed_count; s++) {
        simulate_workload_free(&study->workloads[s]);
    }
    free(study->workloads);
    free(study->runs);
    simulate_sizes_free(&study->workload.sizes);
    simulate_sizes_free(&study->workload.later_sizes);
    arrivals_trace_free(&study->trace);
    free(study->router_text);
    free(study->rate_text);
    simulate_table_free(&study->table);
}

int
verb_simulate(int argc, char **argv)
{
    static struct study study;
    int exit_code = EXIT_USAGE;

    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--profiles", strlen("--profiles")) == 0) {
            return simulate_variants(argc, argv);
        }
        if (strncmp(argv[i], "--stages", strlen("--stages")) == 0) {
            return simulate_stages(argc, argv);
        }
        if (strncmp(argv[i], "--autoscale", strlen("--autoscale")) == 0) {
            return simulate_autoscale(argc, argv, NULL);
        }
    }
    if (parse_simulate_options(argc, argv, &study)) {
        if (study.help) {
            print_simulate_help();
            simulate_variants_help();
            simulate_stages_help();
            simulate_autoscale_help();
            exit_code = EXIT_DONE;
            goto out;
        }
        exit_code = check_simulate_options(&study) ? EXIT_DONE : EXIT_USAGE;
    }
    exit_code = exit_code == EXIT_DONE ? output_check("simulate", "--csv", study.csv_path) : exit_code;
    exit_code = exit_code == EXIT_DONE ? output_check("simulate", "--svg", study.svg_path) : exit_code;
    exit_code = exit_code == EXIT_DONE ? read_profile(&study) : exit_code;
    exit_code = exit_code == EXIT_DONE ? read_workload(&study) : exit_code;
    exit_code = exit_code == EXIT_DONE ? read_mixes(&study) : exit_code;
    exit_code = exit_code == EXIT_DONE ? simulate(&study) : exit_code;
    if (exit_code == EXIT_DONE) {
        study_report(&study);
        check_run_length(&study);
        exit_code = study_write_files(&study) == LEAT_OK ? EXIT_DONE : report_failure("simulate");
    }
out:
    free_study(&study);
    return exit_code;
}
