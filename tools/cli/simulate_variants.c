/* SPDX-License-Identifier: Apache-2.0 */
/* leat simulate --profiles: variants, batches and selectors on a virtual clock, with the daemon's own code. */
#include "tools/cli/simulate_variants.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "tools/cli/cli.h"
#include "tools/cli/output.h"
#include "tools/cli/policy.h"
#include "tools/simulate/parallel.h"

#define VERB        "simulate"
#define THREADS_MAX 256u
#define RUNS_MAX    100000u

/* ---- Options ----------------------------------------------------------------------------------- */

void
simulate_variants_help(void)
{
    (void)printf(
        "usage: leat simulate --profiles FILE --objective TIME --workers N --rate RATES [OPTION...]\n\n"
        "One application with several variants, before workers that are alike, on a virtual clock, with the code that\n"
        "decides in the daemon: how accurate are the answers that come in time, and how many queries are late, by selector\n"
        "and rate? Queries have one item. Every figure is simulated. Needs no daemon.\n\n"
        "  --profiles FILE         CSV with model or variant, batch_size or items, p95_us (or ms, or ns), perhaps accuracy\n"
        "  --accuracies FILE       CSV with model and accuracy, where they are not in the profiles\n"
        "  --task NAME, --cores N  of the profiles\n"
        "  --statistic NAME        of the latencies (default p95)\n"
        "  --variants LIST         A,B,... or front: what no other variant is as accurate as and no slower for one item\n"
        "                          (default: all)\n"
        "  --batch-max N           largest batch (default %u; where a policy of kind queue is followed, %u)\n\n"
        "  --selector NAME,...     to compare (default jellyfish):\n"
        "                          %s",
        VARIANTS_BATCH_MAX, VARIANTS_LATENCY_MAX, leat_selector_at(0)->name);
    for (size_t i = 1; leat_selector_at(i) != NULL; i++) {
        (void)printf(", %s", leat_selector_at(i)->name);
    }
    (void)printf(
        "\n"
        "  --policy FILE           of 'leat policy generate': for mdp or model_switching; repeat to compare\n"
        "  --rate-step QPS         jellyfish: between rungs of load (default %u)\n"
        "  --router NAME           (default: dealt where a policy of kind queue is followed, else fcfs)\n"
        "  --objective TIME        latency objective, such as 150ms\n"
        "  --workers N             1 to %u\n"
        "  --depth N               batches that a worker may hold where the router queues (default 1)\n"
        "  --late serve|last|drop  what waits until it is late: served in its turn (default), or behind all that can be in\n"
        "                          time, as the daemon does, or dropped\n"
        "  --service-noise SHARE   standard deviation of service times, as a share of the profile's\n\n"
        "  --rate RATES            queries a second: numbers and ranges FROM:TO:STEP, with commas, rising\n"
        "  --arrivals KIND         poisson (default), constant, bursty (MMPP), or a file of times in seconds, one a line,\n"
        "                          as they are or, with --rate, stretched to it\n"
        "  --trace FILE            Poisson at rates that change: CSV with start_s and qps, or a rate a second, one a\n"
        "                          line; as they are or, with --rate, scaled to that mean\n"
        "  --trace-cycle TIME      after which the trace begins anew (default: at its end)\n"
        "  --dispersion D          Poisson arrivals and traces in clusters: counts with D times the variance (default 1)\n"
        "  --burst-factor F, --burst-share S, --burst-mean TIME\n"
        "                          bursty: rate in a burst over rate outside (default 5), fraction of time in bursts\n"
        "                          (0.1), mean length of a burst (1s)\n"
        "  --load measured|known   what selectors are told: the daemon's monitor's finding, or the true rate (default:\n"
        "                          known, with a trace or a file measured)\n"
        "  --window TIME           of the monitor (default 500ms)\n"
        "  --duration TIME         of a run (default 30s)\n"
        "  --abort N               a run is lost where so many wait (default 0: never)\n"
        "  --seed N, --seeds N     the first seed (default 1) and how many (default 1); queries come the same for all\n\n"
        "  --json                  one JSON object\n"
        "  --csv FILE              one line a run\n"
        "  --svg FILE              a figure: accuracy over rate\n"
        "  --late-svg FILE         a figure: share of late queries over rate\n"
        "  --threads N             (default: cores of the affinity mask); results do not depend on it\n\n"
        "example: leat simulate --profiles latency_profiles.csv --accuracies accuracies.csv --task image \\\n"
        "             --variants front --objective 150ms --workers 60 --rate 400:4000:400 \\\n"
        "             --selector jellyfish,greedy --seeds 3\n",
        LEAT_SELECTOR_RATE_STEP_QPS, LEAT_SCHED_WORKERS_MAX);
}

static bool
parse_late(const char *text, enum variants_late *ret_late)
{
    *ret_late = VARIANTS_SERVE_LATE;
    while (*ret_late < VARIANTS_DROP_LATE && strcmp(text, simulate_late_text(*ret_late)) != 0) {
        ++*ret_late;
    }
    return strcmp(text, simulate_late_text(*ret_late)) == 0;
}

/* One of two words. */
static bool
parse_either(const char *text, const char *no, const char *yes, bool *ret)
{
    *ret = strcmp(text, yes) == 0;
    return *ret || strcmp(text, no) == 0;
}

static bool
parse_positive_ns(const char *text, uint64_t *ret_ns)
{
    return parse_duration_ns(text, ret_ns) && *ret_ns > 0 && *ret_ns <= INT64_MAX;
}

static bool
parse_seconds(const char *text, double *ret_s)
{
    uint64_t ns;
    const bool good = parse_positive_ns(text, &ns);
    *ret_s = good ? (double)ns / 1e9 : *ret_s;
    return good;
}

static bool
parse_options(int argc, char **argv, struct survey *survey)
{
    static const struct option known[] = {
        {"help", no_argument, NULL, 'h'},
        {"json", no_argument, NULL, 'j'},
        {"profiles", required_argument, NULL, 'p'},
        {"accuracies", required_argument, NULL, 'a'},
        {"task", required_argument, NULL, 't'},
        {"cores", required_argument, NULL, 'c'},
        {"statistic", required_argument, NULL, 'S'},
        {"variants", required_argument, NULL, 'v'},
        {"batch-max", required_argument, NULL, 'b'},
        {"selector", required_argument, NULL, 's'},
        {"policy", required_argument, NULL, 'P'},
        {"rate-step", required_argument, NULL, 'Q'},
        {"router", required_argument, NULL, 'r'},
        {"objective", required_argument, NULL, 'o'},
        {"workers", required_argument, NULL, 'w'},
        {"depth", required_argument, NULL, 'd'},
        {"late", required_argument, NULL, 'l'},
        {"service-noise", required_argument, NULL, 'N'},
        {"rate", required_argument, NULL, 'R'},
        {"rates", required_argument, NULL, 'R'},
        {"arrivals", required_argument, NULL, 'A'},
        {"trace", required_argument, NULL, 'T'},
        {"trace-cycle", required_argument, NULL, 'y'},
        {"dispersion", required_argument, NULL, 'D'},
        {"burst-factor", required_argument, NULL, 'F'},
        {"burst-share", required_argument, NULL, 'B'},
        {"burst-mean", required_argument, NULL, 'M'},
        {"load", required_argument, NULL, 'L'},
        {"window", required_argument, NULL, 'W'},
        {"duration", required_argument, NULL, 'u'},
        {"abort", required_argument, NULL, 'x'},
        {"seed", required_argument, NULL, 'e'},
        {"seeds", required_argument, NULL, 'E'},
        {"csv", required_argument, NULL, 'C'},
        {"svg", required_argument, NULL, 'V'},
        {"late-svg", required_argument, NULL, 'Z'},
        {"threads", required_argument, NULL, 'j' + 256},
        {NULL, 0, NULL, 0},
    };
    bool good = true;
    int option;

    *survey = (struct survey){.arrivals_text = "poisson",
                              .duration_ns = UINT64_C(30000000000),
                              .seed = 1,
                              .seed_count = 1,
                              .depth = 1,
                              .dispersion = 1,
                              .burst_factor = 5,
                              .burst_share = 0.1,
                              .burst_mean_s = 1,
                              .threads = simulate_core_count()};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 'h': survey->help = true; break;
        case 'j': survey->json = true; break;
        case 'p': survey->profiles_path = optarg; break;
        case 'a': survey->accuracies_path = optarg; break;
        case 't': survey->task = optarg; break;
        case 'c': good = parse_u64(optarg, 1, UINT32_MAX, &survey->cores); break;
        case 'S': survey->statistic = optarg; break;
        case 'v': good = append_text(&survey->variants_text, optarg); break;
        case 'b': good = parse_u64(optarg, 1, VARIANTS_LATENCY_MAX, &survey->batch_max); break;
        case 's': good = append_text(&survey->selector_text, optarg); break;
        case 'P':
            good = survey->policy_count < SURVEY_POLICIES_MAX;
            survey->policies[good ? survey->policy_count++ : 0].path = optarg;
            break;
        case 'Q': good = parse_u64(optarg, 1, UINT32_MAX, &survey->step_qps); break;
        case 'r': survey->router_name = optarg; break;
        case 'o': good = parse_positive_ns(optarg, &survey->objective_ns); break;
        case 'w': good = parse_u64(optarg, 1, LEAT_SCHED_WORKERS_MAX, &survey->worker_count); break;
        case 'd': good = parse_u64(optarg, 1, SIMULATE_DEPTH_MAX, &survey->depth); break;
        case 'l': good = parse_late(optarg, &survey->late); break;
        case 'N': good = parse_share(optarg, &survey->noise_share); break;
        case 'R': good = append_text(&survey->rate_text, optarg); break;
        case 'A': survey->arrivals_text = optarg; break;
        case 'T': survey->trace_path = optarg; break;
        case 'y': good = parse_positive_ns(optarg, &survey->cycle_ns); break;
        case 'D': good = parse_double(optarg, 1, ARRIVALS_DISPERSION_MAX, &survey->dispersion); break;
        case 'F': good = parse_double(optarg, 1.001, 1e6, &survey->burst_factor); break;
        case 'B': good = parse_double(optarg, 0.001, 0.999, &survey->burst_share); break;
        case 'M': good = parse_seconds(optarg, &survey->burst_mean_s); break;
        case 'L':
            good = parse_either(optarg, "measured", "known", &survey->load_known);
            survey->load_given = true;
            break;
        case 'W': good = parse_positive_ns(optarg, &survey->window_ns); break;
        case 'u': good = parse_positive_ns(optarg, &survey->duration_ns); break;
        case 'x': good = parse_u64(optarg, 0, UINT32_MAX, &survey->abort_waiting); break;
        case 'e': good = parse_u64(optarg, 0, UINT64_MAX - SURVEY_SEEDS_MAX, &survey->seed); break;
        case 'E': good = parse_u64(optarg, 1, SURVEY_SEEDS_MAX, &survey->seed_count); break;
        case 'C': survey->csv_path = optarg; break;
        case 'V': survey->svg_path = optarg; break;
        case 'Z': survey->late_svg_path = optarg; break;
        case 'j' + 256: good = parse_u64(optarg, 1, THREADS_MAX, &survey->threads); break;
        default: good = false; break;
        }
    }
    if (!good) {
        (void)option_error(VERB, argv);
    } else if (optind != argc && !survey->help) {
        (void)usage_error(VERB, "'%s' is no option", argv[optind]);
        good = false;
    }
    return good;
}

/* What has to be said, and what contradicts itself. */
static int
check_options(const struct survey *survey)
{
    const struct {
        const char *name;
        bool given;
    } needed[] = {
        {"--profiles", survey->profiles_path != NULL},
        {"--objective", survey->objective_ns > 0},
        {"--workers", survey->worker_count > 0},
    };

    for (size_t i = 0; i < LEAT_COUNT_OF(needed); i++) {
        if (!needed[i].given) {
            return usage_error(VERB, "%s is needed", needed[i].name);
        }
    }
    if (survey->trace_path != NULL && strcmp(survey->arrivals_text, "poisson") != 0) {
        return usage_error(VERB, "--trace and --arrivals %s contradict one another", survey->arrivals_text);
    }
    if (survey->cycle_ns > 0 && survey->trace_path == NULL) {
        return usage_error(VERB, "--trace-cycle without --trace");
    }
    if (survey->dispersion > 1 && strcmp(survey->arrivals_text, "poisson") != 0) {
        return usage_error(VERB, "--dispersion is for Poisson arrivals and traces");
    }
    return EXIT_DONE;
}

/* ---- Inputs: EXIT_DONE, or what went wrong is said --------------------------------------------- */

static int
read_table(struct survey *survey)
{
    const char *names[SIMULATE_VARIANTS_MAX];
    const bool front = survey->variants_text != NULL && strcmp(survey->variants_text, "front") == 0;
    struct simulate_profiles_options options = {
        .path = survey->profiles_path,
        .accuracies_path = survey->accuracies_path,
        .task = survey->task,
        .statistic = survey->statistic,
        .cores = (uint32_t)survey->cores,
        .names = names,
    };
    struct simulate_profiles profiles;
    char *rest = NULL;

    for (char *name = survey->variants_text != NULL && !front ? strtok_r(survey->variants_text, ",", &rest) : NULL;
         name != NULL; name = strtok_r(NULL, ",", &rest)) {
        if (options.name_count == SIMULATE_VARIANTS_MAX) {
            return usage_error(VERB, "--variants: there can be %u", SIMULATE_VARIANTS_MAX);
        }
        names[options.name_count++] = name;
    }
    if (simulate_profiles_read(&options, &profiles) != LEAT_OK) {
        return report_failure(VERB);
    }
    if (front) {
        simulate_profiles_keep_front(&profiles);
    }
    const enum leat_status status = variants_table_make(&profiles, &survey->table);
    simulate_profiles_free(&profiles);
    return status == LEAT_OK ? EXIT_DONE : report_failure(VERB);
}

static int
read_policies(struct survey *survey)
{
    for (uint32_t i = 0; i < survey->policy_count; i++) {
        struct survey_policy *policy = &survey->policies[i];
        if (policy_read(policy->path, &policy->policy) != LEAT_OK) {
            return report_failure(VERB);
        }
        if (policy->policy->objective_ns != survey->objective_ns) {
            (void)fprintf(stderr, "leat simulate: note: %s was made for an objective of %s\n", policy->path,
                          format_ns((double)policy->policy->objective_ns).text);
        }
    }
    return EXIT_DONE;
}

static bool
follows(const struct leat_selector *selector, const struct leat_policy *policy)
{
    return selector == &leat_selector_model_switching ? policy->kind == LEAT_POLICY_LOAD
           : selector == &leat_selector_mdp           ? policy->kind != LEAT_POLICY_LOAD
                                                      : false;
}

static int
add_subject(struct survey *survey, const struct leat_selector *selector, const struct survey_policy *policy)
{
    const bool dealt = policy != NULL && policy->policy->kind == LEAT_POLICY_QUEUE;
    const char *router_name = survey->router_name != NULL ? survey->router_name : dealt ? "dealt" : LEAT_ROUTER_DEFAULT;
    const uint32_t batch_max = dealt ? VARIANTS_LATENCY_MAX : VARIANTS_BATCH_MAX;
    const struct leat_router *router = leat_router_find(router_name);

    if (router == NULL) {
        return router_error(VERB, router_name);
    }
    if (survey->subject_count == SURVEY_SUBJECTS_MAX) {
        return usage_error(VERB, "--selector: at most %d, policies counted", SURVEY_SUBJECTS_MAX);
    }
    struct survey_subject *subject = &survey->subjects[survey->subject_count++];
    *subject = (struct survey_subject){
        .selector = selector,
        .router = router,
        .policy = policy != NULL ? policy->policy : NULL,
        .batch_max = survey->batch_max > 0 ? (uint32_t)survey->batch_max : batch_max,
    };
    const char *slash = policy != NULL ? strrchr(policy->path, '/') : NULL;
    const char *base = policy == NULL ? "" : slash != NULL ? slash + 1 : policy->path;
    (void)snprintf(subject->name, sizeof(subject->name), "%s%s%s", selector->name, policy != NULL ? " " : "", base);
    return EXIT_DONE;
}

static int
read_subjects(struct survey *survey)
{
    bool used[SURVEY_POLICIES_MAX] = {false};
    char *rest = NULL;

    if (survey->selector_text == NULL && !append_text(&survey->selector_text, "jellyfish")) {
        (void)LEAT_FAIL(LEAT_ERR_NOMEM, "no memory");
        return report_failure(VERB);
    }
    for (char *name = strtok_r(survey->selector_text, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        const struct leat_selector *selector = leat_selector_find(name);
        if (selector == NULL) {
            return usage_error(VERB, "there is no selector '%s'", name);
        }
        const bool needs = selector == &leat_selector_model_switching || selector == &leat_selector_mdp;
        int exit_code = needs ? EXIT_DONE : add_subject(survey, selector, NULL);
        bool any = !needs;
        for (uint32_t i = 0; i < survey->policy_count && exit_code == EXIT_DONE; i++) {
            if (follows(selector, survey->policies[i].policy)) {
                exit_code = add_subject(survey, selector, &survey->policies[i]);
                used[i] = any = true;
            }
        }
        if (exit_code != EXIT_DONE) {
            return exit_code;
        }
        if (!any) {
            return usage_error(VERB, "selector %s needs a --policy of kind %s", name,
                               selector == &leat_selector_mdp ? "queue or pool" : "load");
        }
    }
    for (uint32_t i = 0; i < survey->policy_count; i++) {
        if (!used[i]) {
            return usage_error(VERB, "--policy %s, of kind %s: no --selector follows it", survey->policies[i].path,
                               leat_policy_kind_text(survey->policies[i].policy->kind));
        }
    }
    return survey->subject_count > 0 ? EXIT_DONE : usage_error(VERB, "--selector: no name");
}

static int
add_rate(struct survey *survey, double rate_qps)
{
    if (survey->rate_count == SURVEY_RATES_MAX ||
        (survey->rate_count > 0 && rate_qps <= survey->rates_qps[survey->rate_count - 1])) {
        return usage_error(VERB, "--rate: at most %d, rising", SURVEY_RATES_MAX);
    }
    survey->rates_qps[survey->rate_count++] = rate_qps;
    return EXIT_DONE;
}

/* "400" or "400:4000:400" */
static int
read_rate(struct survey *survey, char *text)
{
    char *rest = NULL;
    const char *from_text = strtok_r(text, ":", &rest), *to_text = strtok_r(NULL, ":", &rest);
    const char *step_text = strtok_r(NULL, ":", &rest);
    double from_qps, to_qps, step_qps;
    int exit_code = EXIT_DONE;

    if (from_text == NULL || !parse_double(from_text, 1e-3, RATES_QPS_MAX, &from_qps)) {
        return usage_error(VERB, "--rate: a rate is a number above 0, or FROM:TO:STEP");
    }
    if (to_text == NULL) {
        return add_rate(survey, from_qps);
    }
    if (step_text == NULL || strtok_r(NULL, ":", &rest) != NULL ||
        !parse_double(to_text, from_qps, RATES_QPS_MAX, &to_qps) ||
        !parse_double(step_text, 1e-3, RATES_QPS_MAX, &step_qps)) {
        return usage_error(VERB, "--rate: a range is FROM:TO:STEP, rising");
    }
    for (uint32_t i = 0; exit_code == EXIT_DONE && from_qps + i * step_qps <= to_qps * (1 + 1e-9); i++) {
        exit_code = add_rate(survey, from_qps + i * step_qps);
    }
    return exit_code;
}

static int
read_rates(struct survey *survey)
{
    char *rest = NULL;
    int exit_code = EXIT_DONE;

    for (char *text = survey->rate_text != NULL ? strtok_r(survey->rate_text, ",", &rest) : NULL;
         text != NULL && exit_code == EXIT_DONE; text = strtok_r(NULL, ",", &rest)) {
        exit_code = read_rate(survey, text);
    }
    return exit_code;
}

/* A trace, a file of times, or neither. Without --rate they go by their own. */
static int
read_arrivals(struct survey *survey)
{
    static const char *const kinds[] = {"poisson", "constant", "bursty", "mmpp"};
    double own_qps = 0;
    bool is_kind = false;

    for (size_t i = 0; i < LEAT_COUNT_OF(kinds); i++) {
        is_kind = is_kind || strcmp(survey->arrivals_text, kinds[i]) == 0;
    }
    if (survey->trace_path != NULL) {
        if (rates_read(survey->trace_path, (double)survey->cycle_ns / 1e9, &survey->rates) != LEAT_OK) {
            return report_failure(VERB);
        }
        own_qps = rates_mean_qps(&survey->rates);
    } else if (!is_kind) {
        if (arrivals_read_file(survey->arrivals_text, &survey->times) != LEAT_OK) {
            return report_failure(VERB);
        }
        if (survey->times.items != NULL) {
            (void)fprintf(stderr, "leat simulate: note: queries have one item here, whatever %s says\n",
                          survey->arrivals_text);
        }
        own_qps = arrivals_own_rate_qps(survey->times.times_s, survey->times.count);
        if (survey->rate_count > 0 && own_qps <= 0) {
            (void)fprintf(stderr, "leat simulate: %s has no rate that could be scaled\n", survey->arrivals_text);
            return EXIT_FAILED;
        }
        if (survey->load_known) {
            return usage_error(VERB, "--load known: not with a file of times");
        }
    }
    if (!survey->load_given) {
        survey->load_known = survey->trace_path == NULL && survey->times.times_s == NULL;
    }
    if (survey->rate_count == 0) {
        if (survey->trace_path == NULL && is_kind) {
            return usage_error(VERB, "--rate is needed");
        }
        survey->rates_qps[survey->rate_count++] = own_qps;
    }
    return EXIT_DONE;
}

/* A trace for each rate. */
static int
scale_trace(struct survey *survey)
{
    if (survey->trace_path == NULL) {
        return EXIT_DONE;
    }
    survey->scaled = calloc(survey->rate_count, sizeof(*survey->scaled));
    bool good = survey->scaled != NULL;
    for (uint32_t i = 0; i < survey->rate_count && good; i++) {
        const size_t bytes = survey->rates.count * sizeof(*survey->rates.steps);
        struct rates *scaled = &survey->scaled[i];
        scaled->steps = malloc(bytes);
        good = scaled->steps != NULL;
        if (good) {
            memcpy(scaled->steps, survey->rates.steps, bytes);
            scaled->count = survey->rates.count;
            rates_scale(scaled, survey->rates_qps[i] / rates_mean_qps(&survey->rates));
        }
    }
    if (!good) {
        (void)LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for traces");
        return report_failure(VERB);
    }
    return EXIT_DONE;
}

/* ---- Runs -------------------------------------------------------------------------------------- */

static struct arrivals
arrivals_of(const struct survey *survey, uint32_t rate)
{
    const double rate_qps = survey->rates_qps[rate];

    if (survey->trace_path != NULL) {
        return (struct arrivals){
            .kind = ARRIVALS_RATES, .rates = &survey->scaled[rate], .dispersion = survey->dispersion};
    }
    if (survey->times.times_s != NULL) {
        return (struct arrivals){.kind = ARRIVALS_FILE,
                                 .rate_qps = survey->rate_text != NULL ? rate_qps : 0,
                                 .times_s = survey->times.times_s,
                                 .time_count = survey->times.count};
    }
    const bool poisson = strcmp(survey->arrivals_text, "poisson") == 0;
    const bool constant = strcmp(survey->arrivals_text, "constant") == 0;
    return (struct arrivals){
        .kind = poisson ? ARRIVALS_POISSON : constant ? ARRIVALS_CONSTANT : ARRIVALS_BURSTY,
        .rate_qps = rate_qps,
        .dispersion = survey->dispersion,
        .burst_factor = survey->burst_factor,
        .burst_share = survey->burst_share,
        .burst_mean_s = survey->burst_mean_s,
    };
}

struct variants_options
survey_options(const struct survey *survey, uint32_t subject, uint32_t rate, uint64_t seed)
{
    const struct survey_subject *of = &survey->subjects[subject];
    return (struct variants_options){
        .table = &survey->table,
        .router = of->router,
        .selector = of->selector,
        .selector_options = {.policy = of->policy, .rate_step_qps = (uint32_t)survey->step_qps},
        .arrivals = arrivals_of(survey, rate),
        .seed = survey->seed + seed,
        .worker_count = (uint32_t)survey->worker_count,
        .worker_depth = (uint32_t)survey->depth,
        .batch_max = of->batch_max,
        .objective_ns = survey->objective_ns,
        .duration_ns = survey->duration_ns,
        .load_window_ns = survey->window_ns,
        .load_known = survey->load_known,
        .late = survey->late,
        .noise_share = survey->noise_share,
        .abort_waiting = (uint32_t)survey->abort_waiting,
    };
}

static enum leat_status
run_case(struct simulate_run *unused, uint32_t index, void *context)
{
    struct survey *survey = context;
    const uint64_t seed = index % survey->seed_count;
    const uint32_t rate = (uint32_t)(index / survey->seed_count) % survey->rate_count;
    const uint32_t subject = (uint32_t)(index / survey->seed_count) / survey->rate_count;
    const struct variants_options options = survey_options(survey, subject, rate, seed);
    struct variants_run *run;

    (void)unused;
    enum leat_status status = variants_run_create(&run);
    if (status == LEAT_OK) {
        status = variants_simulate(run, &options, &survey->results[index]);
        variants_run_destroy(run);
    }
    return status;
}

static int
run_all(struct survey *survey)
{
    const uint64_t count = survey->subject_count * survey->rate_count * survey->seed_count;

    if (count > RUNS_MAX) {
        return usage_error(VERB, "%llu runs: there can be %u", (unsigned long long)count, RUNS_MAX);
    }
    const double queries = survey->rates_qps[survey->rate_count - 1] * (double)survey->duration_ns / 1e9;
    if (queries > SIMULATE_QUERIES_MAX) {
        return usage_error(VERB, "%.3g queries in a run; there can be %.3g: a lower --rate, or a shorter --duration", queries,
                           (double)SIMULATE_QUERIES_MAX);
    }
    survey->results = calloc(count, sizeof(*survey->results));
    if (survey->results == NULL) {
        (void)LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %llu runs", (unsigned long long)count);
        return report_failure(VERB);
    }
    const uint32_t threads = (uint32_t)survey->threads;
    return simulate_parallel(threads, (uint32_t)count, run_case, survey, NULL, NULL) == LEAT_OK ? EXIT_DONE : report_failure(VERB);
}

static void
free_survey(struct survey *survey)
{
    for (uint32_t i = 0; survey->scaled != NULL && i < survey->rate_count; i++) {
        rates_free(&survey->scaled[i]);
    }
    for (uint32_t i = 0; i < survey->policy_count; i++) {
        free(survey->policies[i].policy);
    }
    free(survey->scaled);
    free(survey->results);
    free(survey->variants_text);
    free(survey->selector_text);
    free(survey->rate_text);
    rates_free(&survey->rates);
    arrivals_trace_free(&survey->times);
    variants_table_free(&survey->table);
}

int
simulate_variants(int argc, char **argv)
{
    static int (*const steps[])(struct survey *) = {read_table, read_policies, read_subjects, read_rates,
                                                    read_arrivals, scale_trace, run_all};
    static struct survey survey;
    int exit_code = EXIT_USAGE;

    if (parse_options(argc, argv, &survey)) {
        if (survey.help) {
            simulate_variants_help();
            free_survey(&survey);
            return EXIT_DONE;
        }
        exit_code = check_options(&survey);
    }
    const struct {
        const char *option, *path;
    } files[] = {{"--csv", survey.csv_path}, {"--svg", survey.svg_path}, {"--late-svg", survey.late_svg_path}};
    for (size_t i = 0; i < LEAT_COUNT_OF(files) && exit_code == EXIT_DONE; i++) {
        exit_code = output_check(VERB, files[i].option, files[i].path);
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(steps) && exit_code == EXIT_DONE; i++) {
        exit_code = steps[i](&survey);
    }
    if (exit_code == EXIT_DONE) {
        survey_report(&survey);
        exit_code = survey_write_files(&survey) == LEAT_OK ? EXIT_DONE : report_failure(VERB);
    }
    free_survey(&survey);
    return exit_code;
}
