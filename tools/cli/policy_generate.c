/* SPDX-License-Identifier: Apache-2.0 */
/* leat policy generate: from measured times and accuracies to a file that selector mdp, or model_switching, follows. */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "base/clock.h"
#include "sched/mdp_pool.h"
#include "sched/policy_solve.h"
#include "tools/cli/cli.h"
#include "tools/cli/output.h"
#include "tools/cli/policy.h"
#include "tools/simulate/parallel.h"
#include "tools/simulate/profiles.h"
#include "tools/simulate/switching.h"

#define RATE_MAX_QPS   1000000000u
#define DISPERSION_MAX 1000.0
#define PENALTY_MAX    1000.0
#define SPREAD_MAX     10.0
#define PENALTY_UNSET  (-1.0)

struct generation {
    /* What was asked. */
    struct simulate_profiles_options profiles_options;
    const char *variants_text, *rates_text, *out_path;
    struct leat_policy_problem problem;
    uint64_t workers, queue_max, slack_bins, batch_max, idle_levels, held_max, model_queue_max, jobs,
        cores; /* 0: the mode's */
    bool switching; /* instead of the problem's mode */
    bool prompt;    /* the opposite of the problem's hold, which is for LEAT alone */
    bool json, help;

    /* What is known. */
    char *variants; /* variants_text, cut */
    const char *names[LEAT_POLICY_VARIANTS_MAX];
    struct simulate_profiles profiles;
    double *filled_us;  /* [profiles.count][latency_items] */
    double *latency_us; /* [variant_count][latency_items], the fastest variant first */
    double accuracy[LEAT_POLICY_VARIANTS_MAX];
    uint32_t rates_qps[LEAT_POLICY_RUNGS_MAX], rung_count;

    /* What follows. */
    struct leat_policy *policy;
    pthread_mutex_t lock;
    uint32_t solved; /* W: all, with the lock */
    bool shown;      /* on a terminal only */
};

/* ---- Options ----------------------------------------------------------------------------------- */

/* One of the words, in the order of the enum that it is for. */
static bool
parse_word(const char *text, const char *const *words, uint32_t count, uint32_t *ret_word)
{
    for (uint32_t w = 0; w < count; w++) {
        if (strcmp(text, words[w]) == 0) {
            *ret_word = w;
            return true;
        }
    }
    return false;
}

static bool
parse_words(int option, const char *text, struct leat_policy_problem *problem)
{
    static const char *const modes[] = {"paper", "dealt", "leat"}, *const batchings[] = {"maximal", "variable", "powers"};
    static const char *const grids[] = {"fixed", "latency"}, *const splits[] = {"round_robin", "shortest_queue"};
    static const char *const lates[] = {"serve", "drop"};
    uint32_t word;

    switch (option) {
    case 'M':
        if (!parse_word(text, modes, LEAT_COUNT_OF(modes), &word)) {
            return false;
        }
        problem->mode = (enum leat_policy_mode)word;
        return true;
    case 'B':
        if (!parse_word(text, batchings, LEAT_COUNT_OF(batchings), &word)) {
            return false;
        }
        problem->batching = (enum leat_mdp_batching)word;
        return true;
    case 'G':
        if (!parse_word(text, grids, LEAT_COUNT_OF(grids), &word)) {
            return false;
        }
        problem->grid = (enum leat_mdp_grid)word;
        return true;
    case 'S':
        if (!parse_word(text, splits, LEAT_COUNT_OF(splits), &word)) {
            return false;
        }
        problem->split = (enum leat_mdp_split)word;
        return true;
    default:
        if (!parse_word(text, lates, LEAT_COUNT_OF(lates), &word)) {
            return false;
        }
        problem->drops_late = word == 1;
        return true;
    }
}

static bool
parse_generate_options(int argc, char **argv, struct generation *generation)
{
    static const struct option known[] = {
        {"help", no_argument, NULL, 'h'},
        {"json", no_argument, NULL, 'j'},
        {"profiles", required_argument, NULL, 'p'},
        {"accuracies", required_argument, NULL, 'a'},
        {"task", required_argument, NULL, 't'},
        {"cores", required_argument, NULL, 'c'},
        {"statistic", required_argument, NULL, 's'},
        {"variants", required_argument, NULL, 'm'},
        {"objective", required_argument, NULL, 'O'},
        {"workers", required_argument, NULL, 'w'},
        {"rates", required_argument, NULL, 'r'},
        {"output", required_argument, NULL, 'o'},
        {"mode", required_argument, NULL, 'M'},
        {"late", required_argument, NULL, 'L'},
        {"penalty", required_argument, NULL, 'P'},
        {"dispersion", required_argument, NULL, 'D'},
        {"queue", required_argument, NULL, 'q'},
        {"slack-bins", required_argument, NULL, 'b'},
        {"batch", required_argument, NULL, 'x'},
        {"idle-levels", required_argument, NULL, 'l'},
        {"held", required_argument, NULL, 'H'},
        {"model-queue", required_argument, NULL, 'Q'},
        {"prompt", no_argument, NULL, 'y'},
        {"spread", required_argument, NULL, 'd'},
        {"batching", required_argument, NULL, 'B'},
        {"grid", required_argument, NULL, 'G'},
        {"split", required_argument, NULL, 'S'},
        {"jobs", required_argument, NULL, 'J'},
        {NULL, 0, NULL, 0},
    };
    struct leat_policy_problem *problem = &generation->problem;
    bool good = true;
    int option;

    *generation =
        (struct generation){.problem = {.mode = LEAT_POLICY_LEAT, .dispersion = 1, .late_penalty = PENALTY_UNSET},
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .variants_text = "all"};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "ho:", known, NULL)) != -1) {
        switch (option) {
        case 'h': generation->help = true; break;
        case 'j': generation->json = true; break;
        case 'p': generation->profiles_options.path = optarg; break;
        case 'a': generation->profiles_options.accuracies_path = optarg; break;
        case 't': generation->profiles_options.task = optarg; break;
        case 'c': good = parse_u64(optarg, 1, 4096, &generation->cores); break;
        case 's': generation->profiles_options.statistic = optarg; break;
        case 'm': generation->variants_text = optarg; break;
        case 'O': good = parse_duration_ns(optarg, &problem->objective_ns) && problem->objective_ns > 0; break;
        case 'w': good = parse_u64(optarg, 1, LEAT_POLICY_WORKERS_MAX, &generation->workers); break;
        case 'r': generation->rates_text = optarg; break;
        case 'o': generation->out_path = optarg; break;
        case 'P': good = parse_double(optarg, 0, PENALTY_MAX, &problem->late_penalty); break;
        case 'D': good = parse_double(optarg, 1, DISPERSION_MAX, &problem->dispersion); break;
        case 'q': good = parse_u64(optarg, 1, LEAT_POLICY_QUEUE_MAX, &generation->queue_max); break;
        case 'b': good = parse_u64(optarg, 1, LEAT_POLICY_BINS_MAX, &generation->slack_bins); break;
        case 'x': good = parse_u64(optarg, 1, LEAT_POLICY_QUEUE_MAX, &generation->batch_max); break;
        case 'Q': good = parse_u64(optarg, 1, LEAT_MDP_POOL_MODEL_QUEUE_MAX, &generation->model_queue_max); break;
        case 'l': good = parse_u64(optarg, 1, LEAT_POLICY_LEVELS_MAX, &generation->idle_levels); break;
        case 'H': good = parse_u64(optarg, 1, LEAT_POLICY_HELD_MAX, &generation->held_max); break;
        case 'd': good = parse_double(optarg, 0, SPREAD_MAX, &problem->latency_spread); break;
        case 'y': generation->prompt = true; break;
        case 'J': good = parse_u64(optarg, 1, 256, &generation->jobs); break;
        case 'M':
            generation->switching = strcmp(optarg, "switching") == 0;
            good = generation->switching || parse_words(option, optarg, problem);
            break;
        case 'B':
        case 'G':
        case 'S':
        case 'L': good = parse_words(option, optarg, problem); break;
        default: good = false; break;
        }
    }
    if (!good) {
        (void)option_error("policy", argv);
    }
    return good;
}

/* What it chooses by is a simulation that knows nothing of all the others. */
static bool
check_switching_options(struct generation *generation)
{
    const struct leat_policy_problem *problem = &generation->problem;

    if (generation->queue_max + generation->slack_bins + generation->batch_max + generation->idle_levels +
                generation->held_max + generation->model_queue_max >
            0 ||
        generation->prompt || problem->drops_late || problem->latency_spread > 0 || problem->dispersion > 1 ||
        problem->late_penalty != PENALTY_UNSET || problem->batching != LEAT_MDP_MAXIMAL ||
        problem->grid != LEAT_MDP_FIXED || problem->split != LEAT_MDP_ROUND_ROBIN) {
        (void)usage_error("policy", "--mode switching goes by simulation: none of --late to --split is for it");
        return false;
    }
    generation->profiles_options.cores = (uint32_t)generation->cores;
    return true;
}

static bool
check_generate_options(int argc, char **argv, struct generation *generation)
{
    struct leat_policy_problem *problem = &generation->problem;
    const bool pool = problem->mode == LEAT_POLICY_LEAT;

    if (optind != argc) {
        (void)usage_error("policy", "generate takes no '%s'", argv[optind]);
        return false;
    }
    if (generation->profiles_options.path == NULL || problem->objective_ns == 0 || generation->workers == 0 ||
        generation->rates_text == NULL || generation->out_path == NULL) {
        (void)usage_error("policy", "generate needs --profiles, --objective, --workers, --rates and --output");
        return false;
    }
    if (generation->switching) {
        return check_switching_options(generation);
    }
    if (!pool &&
        (generation->batch_max + generation->idle_levels + generation->held_max + generation->model_queue_max > 0 ||
         generation->prompt || problem->latency_spread > 0)) {
        (void)usage_error("policy",
                          "--batch, --idle-levels, --held, --model-queue, --prompt and --spread are for --mode leat");
        return false;
    }
    if (pool && (problem->batching != LEAT_MDP_MAXIMAL || problem->grid != LEAT_MDP_FIXED ||
                 problem->split != LEAT_MDP_ROUND_ROBIN)) {
        (void)usage_error("policy", "--batching, --grid and --split are for --mode dealt and paper");
        return false;
    }
    if (!pool && generation->queue_max > LEAT_MDP_QUEUE_MAX) {
        (void)usage_error("policy", "--queue is %u at most for --mode dealt and paper", LEAT_MDP_QUEUE_MAX);
        return false;
    }
    generation->profiles_options.cores = (uint32_t)generation->cores;
    problem->worker_count = (uint32_t)generation->workers;
    problem->hold = pool && !generation->prompt;
    if (problem->late_penalty == PENALTY_UNSET) {
        problem->late_penalty = pool ? LEAT_POLICY_PENALTY : POLICY_PENALTY_DEALT;
    }
    problem->queue_max = generation->queue_max > 0 ? (uint32_t)generation->queue_max : pool ? 64 : 32;
    problem->slack_bins = generation->slack_bins > 0 ? (uint32_t)generation->slack_bins : pool ? 64 : 100;
    if (pool) {
        const uint32_t batch_max = generation->batch_max > 0 ? (uint32_t)generation->batch_max : 32;
        const uint32_t held_max = generation->held_max > 0 ? (uint32_t)generation->held_max : 16;
        problem->latency_items = batch_max < problem->queue_max ? batch_max : problem->queue_max;
        problem->idle_levels = generation->idle_levels > 0 ? (uint32_t)generation->idle_levels : 8;
        problem->model_queue_max = (uint32_t)generation->model_queue_max;
        problem->held_max = held_max < problem->queue_max ? held_max : problem->queue_max;
    } else {
        problem->latency_items = problem->queue_max + 1;
    }
    return true;
}

/* ---- What is known ----------------------------------------------------------------------------- */

/* FROM:TO:STEP, or a rate alone. */
static bool
parse_rate_range(const char *text, uint64_t ret_range[3])
{
    char copy[64], *rest = copy;
    uint32_t count = 0;

    if (strlen(text) >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, text, strlen(text) + 1);
    for (const char *part; (part = strsep(&rest, ":")) != NULL; count++) {
        if (count == 3 || !parse_u64(part, 1, RATE_MAX_QPS, &ret_range[count])) {
            return false;
        }
    }
    if (count == 1) {
        ret_range[1] = ret_range[0];
        ret_range[2] = 1;
    }
    return count != 2 && ret_range[0] <= ret_range[1];
}

static int
read_rates(struct generation *generation)
{
    char *copy = strdup(generation->rates_text), *rest = copy;
    int exit_code = copy != NULL ? EXIT_DONE : EXIT_FAILED;

    for (const char *part; exit_code == EXIT_DONE && (part = strsep(&rest, ",")) != NULL;) {
        uint64_t range[3];
        if (!parse_rate_range(part, range)) {
            exit_code = usage_error("policy", "--rates: '%s' is neither a rate nor FROM:TO:STEP", part);
            break;
        }
        for (uint64_t rate = range[0]; rate <= range[1]; rate += range[2]) {
            if (generation->rung_count == LEAT_POLICY_RUNGS_MAX) {
                exit_code = usage_error("policy", "--rates: there can be %u", LEAT_POLICY_RUNGS_MAX);
                break;
            }
            if (generation->rung_count > 0 && rate <= generation->rates_qps[generation->rung_count - 1]) {
                exit_code = usage_error("policy", "--rates: they are to rise, but %llu comes after %u",
                                        (unsigned long long)rate, generation->rates_qps[generation->rung_count - 1]);
                break;
            }
            generation->rates_qps[generation->rung_count++] = (uint32_t)rate;
        }
    }
    free(copy);
    return exit_code;
}

static int
read_variants(struct generation *generation)
{
    struct simulate_profiles_options *options = &generation->profiles_options;
    const bool front = strcmp(generation->variants_text, "front") == 0;

    if (!front && strcmp(generation->variants_text, "all") != 0) {
        generation->variants = strdup(generation->variants_text);
        char *rest = generation->variants;
        for (const char *name; rest != NULL && (name = strsep(&rest, ",")) != NULL;) {
            if (options->name_count == LEAT_POLICY_VARIANTS_MAX) {
                return usage_error("policy", "--variants: there can be %u", LEAT_POLICY_VARIANTS_MAX);
            }
            generation->names[options->name_count++] = name;
        }
        options->names = generation->names;
    }
    if (simulate_profiles_read(options, &generation->profiles) != LEAT_OK) {
        return report_failure("policy");
    }
    if (front) {
        simulate_profiles_keep_front(&generation->profiles);
    }
    if (generation->profiles.count > LEAT_POLICY_VARIANTS_MAX) {
        return usage_error("policy", "there are %u variants, but a policy can have %u: say which with --variants",
                           generation->profiles.count, LEAT_POLICY_VARIANTS_MAX);
    }
    return EXIT_DONE;
}

/* Enters a variant among those before it: the fastest for one item first, then the less accurate. */
static void
enter_variant(struct generation *generation, uint32_t v)
{
    struct leat_policy_problem *problem = &generation->problem;
    const size_t items = problem->latency_items;
    const double *own_us = &generation->filled_us[v * items];
    const double accuracy = generation->profiles.variants[v].accuracy;
    uint32_t at = problem->variant_count++;

    for (; at > 0; at--) {
        const double *before_us = &generation->latency_us[(at - 1) * items];
        if (before_us[0] < own_us[0] || (before_us[0] == own_us[0] && generation->accuracy[at - 1] <= accuracy)) {
            break;
        }
        generation->accuracy[at] = generation->accuracy[at - 1];
        generation->names[at] = generation->names[at - 1];
        memcpy(&generation->latency_us[at * items], before_us, items * sizeof(*before_us));
    }
    generation->accuracy[at] = accuracy;
    generation->names[at] = generation->profiles.variants[v].name;
    memcpy(&generation->latency_us[at * items], own_us, items * sizeof(*own_us));
}

static int
read_latencies(struct generation *generation)
{
    struct leat_policy_problem *problem = &generation->problem;
    const struct simulate_profiles *profiles = &generation->profiles;
    const uint32_t items = problem->latency_items;
    const uint32_t filled = problem->mode == LEAT_POLICY_LEAT || items < 3 ? items : problem->queue_max;

    generation->filled_us = calloc((size_t)profiles->count * items, sizeof(*generation->filled_us));
    generation->latency_us = calloc((size_t)profiles->count * items, sizeof(*generation->latency_us));
    if (generation->filled_us == NULL || generation->latency_us == NULL) {
        (void)LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the times");
        return report_failure("policy");
    }
    for (uint32_t v = 0; v < profiles->count; v++) {
        if (simulate_profile_fill(&profiles->variants[v], filled, items, &generation->filled_us[(size_t)v * items]) != LEAT_OK) {
            return report_failure("policy");
        }
    }
    for (uint32_t v = 0; v < profiles->count; v++) {
        enter_variant(generation, v);
    }
    problem->names = generation->names;
    problem->accuracy = generation->accuracy;
    problem->latency_us = generation->latency_us;
    return leat_policy_problem_check(problem, generation->rung_count) == LEAT_OK ? EXIT_DONE : report_failure("policy");
}

/* ---- Solving ----------------------------------------------------------------------------------- */

static void
step_progress(struct generation *generation)
{
    LEAT_MUST(pthread_mutex_lock(&generation->lock) == 0);
    generation->solved++;
    if (generation->shown) {
        (void)fprintf(stderr, "\rsolved %u of %u%s", generation->solved, generation->rung_count,
                      generation->solved == generation->rung_count ? "\r\033[K" : " ");
    }
    LEAT_MUST(pthread_mutex_unlock(&generation->lock) == 0);
}

/* The highest rates first: as a rule they take longest. */
static enum leat_status
solve_rung(struct simulate_run *run, uint32_t index, void *context)
{
    struct generation *generation = context;
    const uint32_t rung = generation->rung_count - 1 - index;
    const size_t bytes = leat_policy_solve_bytes(&generation->problem, generation->rates_qps[rung]);

    (void)run;
    void *memory = bytes < SIZE_MAX / 2 ? aligned_alloc(64, leat_round_up(bytes, 64)) : NULL;
    if (memory == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM,
                         "no memory for solving at %u queries a second: fewer --jobs, a shorter --queue or fewer "
                         "--slack-bins need less",
                         generation->rates_qps[rung]);
    }
    leat_policy_solve(memory, &generation->problem, generation->policy, rung);
    free(memory);
    step_progress(generation);
    return LEAT_OK;
}

static int
solve(struct generation *generation)
{
    const struct leat_policy_problem *problem = &generation->problem;
    const uint32_t threads = generation->jobs > 0 ? (uint32_t)generation->jobs : simulate_core_count();

    generation->shown = isatty(STDERR_FILENO) != 0;
    void *memory = aligned_alloc(64, leat_round_up(leat_policy_problem_bytes(problem, generation->rung_count), 64));
    if (memory == NULL) {
        (void)LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the policy");
        return report_failure("policy");
    }
    enum leat_status status =
        leat_policy_begin(memory, problem, generation->rates_qps, generation->rung_count, &generation->policy);
    if (status != LEAT_OK) {
        free(memory);
        return report_failure("policy");
    }
    status = simulate_parallel(threads, generation->rung_count, solve_rung, generation, NULL, NULL);
    if (status == LEAT_OK) {
        status = leat_policy_seal(generation->policy);
    }
    return status == LEAT_OK ? EXIT_DONE : report_failure("policy");
}

/* By simulating each variant at each rate. */
static int
switch_models(struct generation *generation)
{
    struct variants_table table;

    if (variants_table_make(&generation->profiles, &table) != LEAT_OK) {
        return report_failure("policy");
    }
    const struct switching_options options = {
        .table = &table,
        .rates_qps = generation->rates_qps,
        .rate_count = generation->rung_count,
        .worker_count = (uint32_t)generation->workers,
        .objective_ns = generation->problem.objective_ns,
        .seed = 1,
        .threads = (uint32_t)generation->jobs,
    };
    const enum leat_status status = switching_generate(&options, &generation->policy);
    variants_table_free(&table);
    return status == LEAT_OK ? EXIT_DONE : report_failure("policy");
}

static void
put_block(const void *of, FILE *out)
{
    const struct leat_policy *policy = of;
    (void)fwrite(policy, 1, policy->bytes, out);
}

static void
report(const struct generation *generation, uint64_t took_ns)
{
    if (generation->json) {
        json_t *object = policy_json(generation->policy);
        (void)json_object_set_new(object, "path", json_string(generation->out_path));
        (void)json_object_set_new(object, "solving_ns", json_integer((json_int_t)took_ns));
        print_json(object);
        return;
    }
    policy_print_rungs(generation->policy);
    (void)printf("\n%s: %u variants, %u rates, %s, in %s\n", generation->out_path, generation->policy->variant_count,
                 generation->policy->rung_count, format_bytes((double)generation->policy->bytes).text,
                 format_ns((double)took_ns).text);
}

static void
free_generation(struct generation *generation)
{
    free(generation->policy);
    free(generation->variants);
    free(generation->filled_us);
    free(generation->latency_us);
    simulate_profiles_free(&generation->profiles);
}

int
policy_generate(int argc, char **argv)
{
    static struct generation generation;
    int exit_code = EXIT_USAGE;

    if (!parse_generate_options(argc, argv, &generation)) {
        return EXIT_USAGE;
    }
    if (generation.help) {
        policy_print_help();
        return EXIT_DONE;
    }
    exit_code = check_generate_options(argc, argv, &generation) ? EXIT_DONE : EXIT_USAGE;
    exit_code = exit_code == EXIT_DONE ? output_check("policy", "--output", generation.out_path) : exit_code;
    exit_code = exit_code == EXIT_DONE ? read_rates(&generation) : exit_code;
    exit_code = exit_code == EXIT_DONE ? read_variants(&generation) : exit_code;
    exit_code = exit_code == EXIT_DONE && !generation.switching ? read_latencies(&generation) : exit_code;
    const uint64_t start_ns = leat_monotonic_ns();
    if (exit_code == EXIT_DONE) {
        exit_code = generation.switching ? switch_models(&generation) : solve(&generation);
    }
    const uint64_t took_ns = leat_monotonic_ns() - start_ns;
    const struct output file = {.path = generation.out_path, .write = put_block};
    if (exit_code == EXIT_DONE && output_write(&file, 1, generation.policy) != LEAT_OK) {
        exit_code = report_failure("policy");
    }
    if (exit_code == EXIT_DONE) {
        report(&generation, took_ns);
    }
    free_generation(&generation);
    return exit_code;
}
