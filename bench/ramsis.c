/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/ramsis.c - RAMSIS' evaluation, simulated: which variant and batch, chosen how, gives the most accurate answers in
 * time.
 *
 * Measures  Accuracy of queries in time, and the share of the others, for each selector: at constant loads and on a trace,
 *           with noise, uneven arrivals, fewer models and longer objectives; beside a bound. What making policies takes.
 * Not       A machine's time, but for the making of policies: all else is on a virtual clock, with latencies that the
 *           authors of RAMSIS measured.
 * Output    A page in Markdown and its figures into a folder; figures are SVG. With --json the figures of the page, too.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "bench/ramsis_page.h"
#include "tools/simulate/parallel.h"

#define SECOND_NS UINT64_C(1000000000)
#define TRACE_NS  (300 * SECOND_NS)
#define CYCLE_S   261.0 /* of the published trace: the last of its intervals counts one second */
#define BIT(scheme) (1u << (scheme))

static const char *const image_names[] = {
    "shufflenet_v2_x0_5", "mobilenet_v3_large", "efficientnet_b0",   "efficientnet_b2",  "efficientnet_b3",
    "efficientnet_b4",    "efficientnet_v2_s",  "efficientnet_v2_m", "efficientnet_v2_l"};
static const char *const few_names[] = {"shufflenet_v2_x0_5", "efficientnet_b2", "efficientnet_v2_s"};
static const char *const text_names[] = {"bert_tiny", "bert_mini", "bert_small", "bert_medium", "bert_base"};

static const uint32_t all_schemes = BIT(RAMSIS_PAPER) | BIT(RAMSIS_JELLYFISH) | BIT(RAMSIS_SWITCHING) | BIT(RAMSIS_GREEDY) |
                                    BIT(RAMSIS_FIXED) | BIT(RAMSIS_INFAAS) | BIT(RAMSIS_LEAT) | BIT(RAMSIS_LEAT_DROP) |
                                    BIT(RAMSIS_DAEMON) | BIT(RAMSIS_DAEMON_DROP);

struct program {
    struct ramsis_program run;
    const char *data, *output;
    bool smoke, json;
    struct variants_table image, text, few;
    struct rates trace;
};

/* ---- Data -------------------------------------------------------------------------------------- */

static void
read_table(const char *folder, const char *profile, const char *task, const char *const *names, uint32_t count,
           struct variants_table *ret_table)
{
    char path[4096], accuracies_path[4096];
    struct simulate_profiles profiles;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, profile);
    (void)snprintf(accuracies_path, sizeof(accuracies_path), "%s/accuracies.csv", folder);
    const struct simulate_profiles_options options = {
        .path = path, .accuracies_path = accuracies_path, .task = task, .names = names, .name_count = count};
    ramsis_need(simulate_profiles_read(&options, &profiles));
    ramsis_need(variants_table_make(&profiles, ret_table));
    simulate_profiles_free(&profiles);
}

static void
read_data(struct program *program)
{
    const char *profile = program->smoke ? "p95.csv" : "latency_profiles.csv";
    char path[4096];

    (void)snprintf(path, sizeof(path), "%s/%s", program->data, profile);
    if (access(path, R_OK) != 0) {
        (void)fprintf(stderr, "bench_ramsis: skipped: %s is not there; --data names the folder of RAMSIS' measurements\n",
                      path);
        exit(77);
    }
    read_table(program->data, profile, "image", image_names, LEAT_COUNT_OF(image_names), &program->image);
    read_table(program->data, profile, "image", few_names, LEAT_COUNT_OF(few_names), &program->few);
    read_table(program->data, profile, "text", text_names, LEAT_COUNT_OF(text_names), &program->text);
    if (!program->smoke) {
        (void)snprintf(path, sizeof(path), "%s/twitter_trace.csv", program->data);
        ramsis_need(rates_read(path, CYCLE_S, &program->trace));
    }
}

static void
free_data(struct program *program)
{
    variants_table_free(&program->image);
    variants_table_free(&program->few);
    variants_table_free(&program->text);
    rates_free(&program->trace);
}

/* ---- Worlds and cases -------------------------------------------------------------------------- */

/* RAMSIS' own: 60 workers and 150 ms for image, 20 and 100 ms for text. */
static struct ramsis_world
world_of(const struct program *program, const struct variants_table *table, uint32_t step_qps)
{
    const bool text = table == &program->text;
    struct ramsis_world world = {
        .program = &program->run,
        .task = text ? "text" : "image",
        .table = table,
        .workers = text ? 20 : 60,
        .objective_ns = text ? 100000000 : 150000000,
        .dispersion = 1,
    };

    for (uint32_t rate_qps = step_qps; rate_qps <= RAMSIS_LOADS * RAMSIS_LOAD_STEP_QPS; rate_qps += step_qps) {
        world.rates_qps[world.rate_count++] = rate_qps;
    }
    return world;
}

static void
load_cases(const struct program *program, const struct ramsis_world *world, uint32_t schemes, struct ramsis_case *cases)
{
    for (uint32_t load = 0; load < RAMSIS_LOADS; load++) {
        cases[load] = (struct ramsis_case){
            .world = world,
            .rate_qps = (load + 1) * RAMSIS_LOAD_STEP_QPS,
            .duration_ns = program->run.duration_ns,
            .schemes = schemes,
        };
    }
}

/* ---- The evaluation ---------------------------------------------------------------------------- */

struct evaluation {
    const struct program *program;
    struct ramsis_world tasks[RAMSIS_TASKS], traces[RAMSIS_TRACES];
    struct ramsis_page page; /* refers to worlds */
};

static void
evaluate_loads(struct evaluation *evaluation)
{
    const uint32_t schemes = all_schemes | BIT(RAMSIS_DEALT) | BIT(RAMSIS_LEAT_PROMPT);
    struct ramsis_page *page = &evaluation->page;

    for (uint32_t task = 0; task < RAMSIS_TASKS; task++) {
        struct ramsis_world *world = &evaluation->tasks[task];
        ramsis_world_make(world, schemes, NULL);
        page->capacity_qps[task] = ramsis_capacity_qps(world);
        load_cases(evaluation->program, world, schemes, page->loads[task]);
    }
    ramsis_cases_run(&evaluation->program->run, "constant loads", page->loads[0], RAMSIS_TASKS * RAMSIS_LOADS);
}

static const struct ramsis_world *
base_of_trace(const struct evaluation *evaluation, uint32_t trace)
{
    return evaluation->traces[trace].workers == evaluation->tasks[0].workers ? &evaluation->tasks[0] : NULL;
}

static void
evaluate_traces(struct evaluation *evaluation)
{
    const uint32_t schemes = all_schemes | BIT(RAMSIS_DEALT) | BIT(RAMSIS_LEAT_PROMPT);
    const struct program *program = evaluation->program;
    struct ramsis_case *cases = evaluation->page.traces;

    for (uint32_t t = 0; t < RAMSIS_TRACES; t++) {
        struct ramsis_world *world = &evaluation->traces[t];
        world->workers = 60 + 10 * t;
        ramsis_world_make(world, schemes, base_of_trace(evaluation, t));
        cases[t] = (struct ramsis_case){.world = world,
                                        .rates = &program->trace,
                                        .duration_ns = TRACE_NS,
                                        .schemes = schemes};
    }
    ramsis_cases_run(&program->run, "the trace", cases, RAMSIS_TRACES);
}

/* Circumstances: another table, objective or other arrivals. */
static const struct trial {
    const char *title;
    bool text, few;
    double noise_share, dispersion;
    uint64_t objective_ns; /* 0: the task's own */
} trials[] = {
    {.title = "image, times vary by 5 %", .noise_share = 0.05, .dispersion = 1},
    {.title = "image, times vary by 10 %", .noise_share = 0.1, .dispersion = 1},
    {.title = "text, times vary by 5 %", .text = true, .noise_share = 0.05, .dispersion = 1},
    {.title = "text, times vary by 10 %", .text = true, .noise_share = 0.1, .dispersion = 1},
    {.title = "image, arrivals of dispersion 2", .dispersion = 2},
    {.title = "image, arrivals of dispersion 4", .dispersion = 4},
    {.title = "text, arrivals of dispersion 2", .text = true, .dispersion = 2},
    {.title = "text, arrivals of dispersion 4", .text = true, .dispersion = 4},
    {.title = "image, three models", .few = true, .dispersion = 1},
    {.title = "image, 300 ms", .dispersion = 1, .objective_ns = 300000000},
    {.title = "image, 500 ms", .dispersion = 1, .objective_ns = 500000000},
    {.title = "text, 200 ms", .text = true, .dispersion = 1, .objective_ns = 200000000},
    {.title = "text, 300 ms", .text = true, .dispersion = 1, .objective_ns = 300000000},
};

static void
evaluate_trial(struct evaluation *evaluation, const struct trial *trial, struct ramsis_trial *ret_trial)
{
    const struct program *program = evaluation->program;
    const struct variants_table *table = trial->few ? &program->few : trial->text ? &program->text : &program->image;
    struct ramsis_world world = world_of(program, table, RAMSIS_LOAD_STEP_QPS);
    const bool own_policies = trial->few || trial->objective_ns > 0;
    const struct ramsis_world *base = own_policies ? NULL : &evaluation->tasks[trial->text ? 1 : 0];
    const bool uneven = trial->dispersion > 1, noisy = trial->noise_share > 0;
    const uint32_t told = (uneven ? BIT(RAMSIS_PAPER_TOLD) : 0) | (uneven || noisy ? BIT(RAMSIS_LEAT_TOLD) : 0);

    world.noise_share = trial->noise_share;
    world.dispersion = trial->dispersion;
    world.objective_ns = trial->objective_ns > 0 ? trial->objective_ns : world.objective_ns;
    ramsis_world_make(&world, all_schemes | told, base);
    ret_trial->title = trial->title;
    load_cases(program, &world, all_schemes | told, ret_trial->cases);
    ramsis_cases_run(&program->run, trial->title, ret_trial->cases, RAMSIS_LOADS);
    ramsis_world_free(&world, base);
    for (uint32_t load = 0; load < RAMSIS_LOADS; load++) {
        ret_trial->cases[load].world = NULL; /* it is gone */
    }
}

static void
evaluate(struct evaluation *evaluation)
{
    const struct program *program = evaluation->program;
    struct ramsis_page *page = &evaluation->page;

    evaluation->tasks[0] = world_of(program, &program->image, RAMSIS_LOAD_STEP_QPS / 2);
    evaluation->tasks[1] = world_of(program, &program->text, RAMSIS_LOAD_STEP_QPS / 2);
    for (uint32_t t = 0; t < RAMSIS_TRACES; t++) {
        evaluation->traces[t] = evaluation->tasks[0];
    }
    for (uint32_t task = 0; task < RAMSIS_TASKS; task++) {
        ramsis_cost_measure(&evaluation->tasks[task], &page->costs[task]);
    }
    evaluate_loads(evaluation);
    evaluate_traces(evaluation);
    page->trial_count = LEAT_COUNT_OF(trials);
    _Static_assert(LEAT_COUNT_OF(trials) <= RAMSIS_TRIALS_MAX, "a page has room for them");
    for (uint32_t t = 0; t < page->trial_count; t++) {
        evaluate_trial(evaluation, &trials[t], &page->trials[t]);
    }
}

static void
free_worlds(struct evaluation *evaluation)
{
    for (uint32_t t = 0; t < RAMSIS_TRACES; t++) {
        ramsis_world_free(&evaluation->traces[t], base_of_trace(evaluation, t));
    }
    for (uint32_t task = 0; task < RAMSIS_TASKS; task++) {
        ramsis_world_free(&evaluation->tasks[task], NULL);
    }
}

/* ---- The smoke size ---------------------------------------------------------------------------- */

/*
 * Two seconds of one load of a task: leat is to be better than RAMSIS by more than luck, and nobody better than the bound
 * allows.
 */
static bool
smoke_holds(struct evaluation *evaluation)
{
    const uint32_t schemes = all_schemes | BIT(RAMSIS_DEALT) | BIT(RAMSIS_LEAT_PROMPT);
    bool good = true;

    for (uint32_t task = 0; task < RAMSIS_TASKS; task++) {
        struct ramsis_world *world = &evaluation->tasks[task];
        struct ramsis_case *found = &evaluation->page.loads[task][0];
        *world = world_of(evaluation->program, task == 0 ? &evaluation->program->image : &evaluation->program->text, 2000);
        world->rate_count = 1;
        ramsis_world_make(world, schemes, NULL);
        *found = (struct ramsis_case){.world = world,
                                      .rate_qps = 2000,
                                      .duration_ns = evaluation->program->run.duration_ns,
                                      .schemes = schemes};
        ramsis_cases_run(&evaluation->program->run, "smoke", found, 1);
        good = good && found->outcomes[RAMSIS_LEAT].accuracy > found->outcomes[RAMSIS_PAPER].accuracy &&
               found->outcomes[RAMSIS_LEAT].violation <= 0.001;
        for (enum ramsis_scheme scheme = 0; scheme < RAMSIS_SCHEMES; scheme++) {
            const struct ramsis_outcome *outcome = &found->outcomes[scheme];
            const bool above = outcome->queries > 0 && outcome->net > found->bound + 0.01;
            if (above || (outcome->queries > 0 && (outcome->accuracy <= 0 || outcome->accuracy > 1))) {
                (void)fprintf(stderr, "bench_ramsis: %s: %g of %g\n", ramsis_scheme_names[scheme], outcome->net,
                              found->bound);
                good = false;
            }
        }
        ramsis_world_free(world, NULL);
    }
    return good;
}

/* ---- The program ------------------------------------------------------------------------------- */

int
main(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"data", required_argument, NULL, 'd'},  {"output", required_argument, NULL, 'o'},
        {"seeds", required_argument, NULL, 's'}, {"threads", required_argument, NULL, 't'},
        {"seed", required_argument, NULL, 'f'},  {"smoke", no_argument, NULL, 'S'},
        {"json", no_argument, NULL, 'j'},        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    const char *data = getenv("LEAT_DATA"); /* where the other published measurements lie too */
    char folder[2048];
    (void)snprintf(folder, sizeof(folder), "%s/ramsis", data != NULL ? data : "../shared/data");
    struct program program = {
        .run = {.threads = simulate_core_count(),
                .seeds = 5,
                .first_seed = 1,
                .duration_ns = 30 * SECOND_NS,
                .switching_duration_ns = 300 * SECOND_NS},
        .output = "docs/results",
    };
    int option;

    while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        switch (option) {
        case 'd': program.data = optarg; break;
        case 'o': program.output = optarg; break;
        case 's': program.run.seeds = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'f': program.run.first_seed = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 't': program.run.threads = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'j': program.json = true; break;
        case 'S':
            program.smoke = true;
            program.run.seeds = 1;
            program.run.duration_ns = program.run.switching_duration_ns = 2 * SECOND_NS;
            break;
        case 'h':
            (void)printf("usage: bench_ramsis [--data FOLDER] [--output FOLDER] [--seed N] [--seeds N] [--threads N]\n"
                         "                    [--json]\n"
                         "Simulates RAMSIS' evaluation and writes ramsis.md and its figures into the output folder.\n"
                         "  --data FOLDER    measurements (latency_profiles.csv, ...), default %s\n"
                         "  --output FOLDER  default %s\n"
                         "  --seed N         the first seed, default 1\n"
                         "  --seeds N        runs that figures are of, 1 to %u, default 5; choices are made on another\n"
                         "  --threads N      default: all cores\n"
                         "  --json           the figures as one object a line, too\n",
                         folder, program.output, RAMSIS_SEEDS_MAX);
            return 0;
        default: return 2;
        }
    }
    if (optind < argc) {
        (void)fprintf(stderr, "bench_ramsis: '%s' is not understood; see --help\n", argv[optind]);
        return 2;
    }
    if (program.run.seeds < 1 || program.run.seeds > RAMSIS_SEEDS_MAX || program.run.threads < 1) {
        (void)fprintf(stderr, "bench_ramsis: --seeds is 1 to %u, --threads at least 1\n", RAMSIS_SEEDS_MAX);
        return 2;
    }
    program.run.quiet = !isatty(STDERR_FILENO);
    if (program.data == NULL) {
        program.data = program.smoke ? LEAT_TESTS_RAMSIS_FOLDER : folder; /* an excerpt does for the former */
    }
    if (!program.smoke && access(program.output, W_OK | X_OK) != 0) {
        (void)fprintf(stderr, "bench_ramsis: the folder %s is not there, or may not be written to\n", program.output);
        return 1;
    }
    read_data(&program);

    struct evaluation *evaluation = ramsis_memory(1, sizeof(*evaluation));
    const double before = ramsis_seconds();
    bool good = true;
    evaluation->program = &program;
    if (program.smoke) {
        good = smoke_holds(evaluation);
    } else {
        evaluate(evaluation);
        evaluation->page.seconds = ramsis_seconds() - before;
        evaluation->page.seeds = program.run.seeds;
        evaluation->page.threads = program.run.threads;
        ramsis_need(ramsis_page_write(&evaluation->page, program.output));
        if (program.json) {
            ramsis_page_print_json(&evaluation->page);
        }
        free_worlds(evaluation);
    }
    free(evaluation);
    free_data(&program);
    return good ? 0 : 1;
}
