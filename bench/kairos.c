/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/kairos.c - Kairos' evaluation, simulated: which router and which mix serve five models best for a budget.
 *
 * Measures  Allowable throughput (99 of 100 queries within the objective) of each scheme on the mix that is best for it, out
 *           of all that the budget buys; of chosen mixes; and how schemes bear a larger budget, a longer objective, other
 *           sizes, errors of prediction, times that nobody has measured and a change of sizes under way.
 * Not       A machine's time: all of it is on a virtual clock, with service times that the authors of Kairos measured.
 * Output    A page in Markdown and its figures into a folder; figures are SVG.
 */
#include <getopt.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/align.h"
#include "base/status.h"
#include "bench/kairos_page.h"
#include "sched/threshold.h"
#include "tools/simulate/parallel.h"
#include "tools/simulate/plan.h"
#include "tools/simulate/simulate.h"

#define QUERIES        20000u
#define SMOKE_QUERIES  500u
#define BRIEF_SHARE    5u /* a brief workload is this part of a whole one */
#define FINE           0.004
#define ROUGH          0.01
#define SHORTLIST      12u /* mixes, best on one seed, that are measured on all */
#define BUDGET         UINT64_C(2500000)
#define LARGE_BUDGET   UINT64_C(10000000)
#define MIXES_MAX      200000u
#define VIOLATIONS     0.01
#define JUDGE_BY       95.0 /* percentile of predictions for all schemes but Kairos' own, which goes by means */

const char *const kairos_scheme_names[KAIROS_SCHEMES] = {
    "homogeneous", "fcfs", "threshold", "clockwork", "edf", "matching", "matching, by percentile", "laxity", "oracle",
    "oracle, spared 1 %"};
static const char *const router_names[KAIROS_SCHEMES] = {
    "fcfs", "fcfs", "threshold", "clockwork", "edf", "matching", "matching", "laxity", NULL, NULL};
static const char *const class_names[] = {"g4dn.xlarge", "c5n.2xlarge", "r5n.large", "t3.xlarge"};
enum { CLASSES = LEAT_COUNT_OF(class_names), BASE = 0 };

static const struct {
    const char *name;
    uint64_t objective_ns;
} models[KAIROS_MODELS] = {{"ncf", UINT64_C(5000000)},
                           {"rm2", UINT64_C(350000000)},
                           {"wnd", UINT64_C(25000000)},
                           {"mtwnd", UINT64_C(25000000)},
                           {"dien", UINT64_C(35000000)}};

/* One model under one set of circumstances. */
struct world {
    const struct simulate_table *table;
    uint64_t objective_ns;
    struct leat_pool_space space;
    const struct leat_pool_size *sizes; /* for bounds */
    uint32_t size_count;
    struct simulate_workload workloads[2 * KAIROS_SEEDS_MAX]; /* seed_count that choose mixes, then as many that judge */
    struct simulate_workload spared[2 * KAIROS_SEEDS_MAX];    /* their queries but the largest of those that may be late */
    uint32_t seed_count;
    struct simulate_workload brief;
    double noise_share;
    bool learn;
    struct leat_pool_candidate *candidates; /* ranked */
    uint32_t candidate_count;
};

struct program {
    const char *data, *output;
    uint32_t threads, seeds, first_seed, queries;
    bool quiet;
    struct simulate_table tables[KAIROS_MODELS];
    struct leat_pool_size *sizes;
    uint32_t size_count;
    struct leat_pool_class prices[CLASSES];
};

static void
need(enum leat_status status)
{
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "bench_kairos: %s\n", leat_error_text());
        exit(1);
    }
}

static void *
need_memory(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) {
        (void)fprintf(stderr, "bench_kairos: no memory\n");
        exit(1);
    }
    return memory;
}

static void
say(const struct program *program, const char *what, const char *of)
{
    if (!program->quiet) {
        (void)fprintf(stderr, "%-60s\r%s %s", "", what, of);
    }
}

/* ---- Worlds ------------------------------------------------------------------------------------ */

static uint64_t
mean_of(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct simulate_table *table = profiles;
    (void)application, (void)variant;
    return table->mean_ns[(size_t)worker_class * table->size_count + table->row_of_items[items]];
}

static int
compare_items(const void *a, const void *b)
{
    return *(const uint16_t *)a - *(const uint16_t *)b;
}

/* For the oracle, which looks at items only. */
static void
spare_largest(const struct simulate_workload *workload, struct simulate_workload *ret_spared)
{
    uint16_t *items = need_memory(workload->count, sizeof(*items));
    memcpy(items, workload->items, workload->count * sizeof(*items));
    qsort(items, workload->count, sizeof(*items), compare_items);
    *ret_spared = (struct simulate_workload){
        .count = workload->count - (uint32_t)(VIOLATIONS * workload->count), .items = items};
}

struct circumstances {
    uint64_t budget;
    double objective_factor;
    double noise_share;
    bool learn; /* times from completions alone */
    bool gaussian;
    uint32_t change_at;
    bool bursts;
};

static void
make_world(const struct program *program, uint32_t model, const struct circumstances *circumstances,
           struct world *ret_world)
{
    struct world world = {
        .table = &program->tables[model],
        .objective_ns = (uint64_t)((double)models[model].objective_ns * circumstances->objective_factor),
        .space = {.class_count = CLASSES, .base = BASE, .budget = circumstances->budget},
        .seed_count = program->seeds,
        .noise_share = circumstances->noise_share,
        .learn = circumstances->learn,
    };
    for (uint32_t class = 0; class < CLASSES; class ++) {
        world.space.classes[class] = program->prices[class];
        if (circumstances->budget > BUDGET) { /* the published maxima are what the smaller budget buys at most */
            world.space.classes[class].count_max = (uint16_t)(circumstances->budget / program->prices[class].price);
        }
    }
    const struct simulate_sizes measured = {.sizes = program->sizes, .count = program->size_count};
    const struct simulate_sizes gaussian = {.gaussian_mean = KAIROS_GAUSSIAN_MEAN,
                                            .gaussian_deviation = KAIROS_GAUSSIAN_DEVIATION};
    struct simulate_workload_options options = {
        .query_count = program->queries,
        .items_max = world.table->items_max,
        .sizes = circumstances->gaussian ? gaussian : measured,
        .size_change_at = circumstances->change_at,
        .later_sizes = gaussian,
        .arrivals = circumstances->bursts ? ARRIVALS_BURSTY : ARRIVALS_POISSON,
        .burst_factor = KAIROS_BURST_FACTOR,
        .burst_share = 0.1,
        .burst_mean_queries = KAIROS_BURST_QUERIES,
    };
    for (uint32_t seed = 0; seed < 2 * world.seed_count; seed++) {
        options.seed = program->first_seed + seed;
        need(simulate_workload_make(&options, &world.workloads[seed]));
        spare_largest(&world.workloads[seed], &world.spared[seed]);
    }
    options.seed = program->first_seed + 1000;
    options.query_count = program->queries / BRIEF_SHARE;
    options.size_change_at = 0;
    need(simulate_workload_make(&options, &world.brief));

    /* Bounds come from the queries before a change, as a planner would have seen them. */
    const uint32_t seen = circumstances->change_at > 0 ? circumstances->change_at : program->queries;
    struct leat_pool_size *sizes = need_memory(world.table->items_max, sizeof(*sizes));
    for (uint32_t i = 0; i < world.table->items_max; i++) {
        sizes[i].items = i + 1;
    }
    for (uint32_t i = 0; i < seen; i++) {
        sizes[world.workloads[0].items[i] - 1].weight++;
    }
    world.sizes = sizes;
    world.size_count = world.table->items_max;

    world.candidates = need_memory(MIXES_MAX, sizeof(*world.candidates));
    need(leat_pool_enumerate(&world.space, world.candidates, MIXES_MAX, &world.candidate_count));
    const struct leat_pool_workload workload = {
        .predict = mean_of,
        .profiles = world.table,
        .objective_ns = world.objective_ns,
        .sizes = world.sizes,
        .size_count = world.size_count,
    };
    struct leat_pool_rates rates;
    need(leat_pool_rates(&world.space, &workload, &rates));
    need(leat_pool_rank(&rates, world.candidates, world.candidate_count));
    *ret_world = world;
}

static void
free_world(struct world *world)
{
    for (uint32_t seed = 0; seed < 2 * world->seed_count; seed++) {
        simulate_workload_free(&world->workloads[seed]);
        free(world->spared[seed].items);
    }
    simulate_workload_free(&world->brief);
    free((void *)world->sizes);
    free(world->candidates);
}

/* ---- Throughput -------------------------------------------------------------------------------- */

static struct simulate_options
options_for(const struct world *world, enum kairos_scheme scheme, const struct leat_pool_mix *mix)
{
    const struct leat_router *router = leat_router_find(router_names[scheme]);
    LEAT_ASSERT(router != NULL);
    return (struct simulate_options){
        .table = world->table,
        .router = router,
        .router_options.by_percentile = scheme == KAIROS_MATCHING_HIGH,
        .worker_depth = router == &leat_router_fcfs ? 1 : 0, /* first come, first served: one queue for all workers */
        .mix = *mix,
        .objective_ns = world->objective_ns,
        .percentile = scheme == KAIROS_MATCHING ? 0 : JUDGE_BY,
        .noise_share = world->noise_share,
        .learn = world->learn,
        .violation_share = VIOLATIONS,
    };
}

static enum leat_status
throughput(struct simulate_run *run, struct simulate_options *options, double tolerance, double *ret_qps)
{
    if (strcmp(options->router->name, "threshold") != 0) {
        return simulate_throughput(run, options, tolerance, ret_qps);
    }
    /* Hill climbing over thresholds, each tried on this workload. */
    struct leat_threshold_search search;
    uint32_t items;
    leat_threshold_search_init(&search, NULL, 0, options->table->items_max);
    while ((items = leat_threshold_search_next(&search)) != 0) {
        double qps;
        options->router_options.threshold_items = items;
        const enum leat_status status = simulate_throughput(run, options, tolerance, &qps);
        if (status != LEAT_OK) {
            return status;
        }
        leat_threshold_search_report(&search, qps);
    }
    *ret_qps = search.best_qps;
    return LEAT_OK;
}

struct measuring {
    const struct world *world;
    enum kairos_scheme scheme;
    const struct leat_pool_mix *mixes; /* [jobs / seeds] */
    double tolerance;
    uint32_t first_seed, seeds;
    double *qps; /* [mix][seed] */
};

static enum leat_status
measure_job(struct simulate_run *run, uint32_t index, void *context)
{
    const struct measuring *measuring = context;
    const struct world *world = measuring->world;
    const struct leat_pool_mix *mix = &measuring->mixes[index / measuring->seeds];
    const uint32_t seed = measuring->first_seed + index % measuring->seeds;
    const struct simulate_workload *workload = &world->workloads[seed];

    if (measuring->scheme == KAIROS_ORACLE) {
        return simulate_oracle(world->table, workload, mix, BASE, world->objective_ns, &measuring->qps[index]);
    }
    if (measuring->scheme == KAIROS_ORACLE_SPARED) {
        const struct simulate_workload *spared = &world->spared[seed];
        const enum leat_status status =
            simulate_oracle(world->table, spared, mix, BASE, world->objective_ns, &measuring->qps[index]);
        measuring->qps[index] *= (double)workload->count / spared->count;
        return status;
    }
    struct simulate_options options = options_for(world, measuring->scheme, mix);
    options.workload = workload;
    return throughput(run, &options, measuring->tolerance, &measuring->qps[index]);
}

/* Mean, least and most over seeds, of each mix: choices[count], whose mixes are given. */
static void
measure(const struct program *program, const struct world *world, enum kairos_scheme scheme,
        struct kairos_choice *choices, uint32_t count, uint32_t first_seed, uint32_t seeds, double tolerance)
{
    struct leat_pool_mix *mixes = need_memory(count, sizeof(*mixes));
    for (uint32_t m = 0; m < count; m++) {
        mixes[m] = choices[m].mix;
    }
    struct measuring measuring = {.world = world,
                                  .scheme = scheme,
                                  .mixes = mixes,
                                  .tolerance = tolerance,
                                  .first_seed = first_seed,
                                  .seeds = seeds,
                                  .qps = need_memory((size_t)count * seeds, sizeof(double))};
    need(simulate_parallel(program->threads, count * seeds, measure_job, &measuring, NULL, NULL));
    for (uint32_t m = 0; m < count; m++) {
        struct kairos_choice *choice = &choices[m];
        choice->qps = choice->high_qps = 0;
        choice->low_qps = INFINITY;
        for (uint32_t seed = 0; seed < seeds; seed++) {
            const double qps = measuring.qps[(size_t)m * seeds + seed];
            choice->qps += qps / seeds;
            choice->low_qps = qps < choice->low_qps ? qps : choice->low_qps;
            choice->high_qps = qps > choice->high_qps ? qps : choice->high_qps;
        }
    }
    free(measuring.qps);
    free(mixes);
}

/* By the seeds that judge. */
static void
judge(const struct program *program, const struct world *world, enum kairos_scheme scheme, struct kairos_choice *choice)
{
    measure(program, world, scheme, choice, 1, world->seed_count, world->seed_count, FINE);
}

static double
judge_mix(const struct program *program, const struct world *world, enum kairos_scheme scheme,
          const struct leat_pool_mix *mix)
{
    struct kairos_choice choice = {.mix = *mix};
    judge(program, world, scheme, &choice);
    return choice.qps;
}

/* Every mix on one seed, the best on all that choose. rough_qps[candidate_count] gets the former. */
static struct kairos_choice
search_all(const struct program *program, const struct world *world, enum kairos_scheme scheme, double *rough_qps)
{
    const uint32_t count = world->candidate_count;
    struct kairos_choice *all = need_memory(count, sizeof(*all)), finalists[SHORTLIST], best;
    uint32_t finalist_count = 0;

    for (uint32_t c = 0; c < count; c++) {
        all[c].mix = world->candidates[c].mix;
    }
    measure(program, world, scheme, all, count, 0, 1, ROUGH);
    for (uint32_t c = 0; c < count; c++) {
        rough_qps[c] = all[c].qps;
        uint32_t place = finalist_count < SHORTLIST ? finalist_count++ : SHORTLIST;
        for (; place > 0 && finalists[place - 1].qps < all[c].qps; place--) {
            if (place < SHORTLIST) {
                finalists[place] = finalists[place - 1];
            }
        }
        if (place < SHORTLIST) {
            finalists[place] = all[c];
        }
    }
    measure(program, world, scheme, finalists, finalist_count, 0, world->seed_count, FINE);
    best = finalists[0];
    for (uint32_t f = 1; f < finalist_count; f++) {
        best = finalists[f].qps > best.qps ? finalists[f] : best;
    }
    free(all);
    judge(program, world, scheme, &best);
    best.evaluations = count;
    return best;
}

/* ---- Choices of a mix -------------------------------------------------------------------------- */

static double
seconds(void)
{
    struct timespec now;
    LEAT_MUST(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static struct kairos_choice
choose_by_rule(const struct program *program, const struct world *world, enum kairos_scheme scheme)
{
    const double before = seconds();
    const struct leat_pool_mix mix = leat_pool_select(world->candidates, world->candidate_count, BASE)->mix;
    struct kairos_choice choice = {.mix = mix, .seconds = seconds() - before};
    judge(program, world, scheme, &choice);
    return choice;
}

/* Kairos+, its evaluator a simulation. */
static struct kairos_choice
choose_by_search(const struct program *program, const struct world *world, enum kairos_scheme scheme)
{
    struct leat_pool_candidate *candidates = need_memory(world->candidate_count, sizeof(*candidates));
    const struct leat_pool_candidate *candidate;
    struct leat_pool_search search;
    const double before = seconds();

    memcpy(candidates, world->candidates, world->candidate_count * sizeof(*candidates));
    leat_pool_search_init(&search, candidates, world->candidate_count);
    while ((candidate = leat_pool_search_next(&search)) != NULL) {
        struct kairos_choice measured = {.mix = candidate->mix};
        measure(program, world, scheme, &measured, 1, 0, world->seed_count, FINE);
        leat_pool_search_report(&search, measured.qps);
    }
    struct kairos_choice choice = {
        .mix = search.best->mix, .evaluations = search.measured, .seconds = seconds() - before};
    free(candidates);
    judge(program, world, scheme, &choice);
    return choice;
}

/* leat's: all mixes raced on a brief workload, finalists on one of those that the verdict is from no more than others. */
static struct kairos_choice
choose_by_racing(const struct program *program, const struct world *world, enum kairos_scheme scheme)
{
    const struct simulate_plan_options options = {
        .run = options_for(world, scheme, &world->candidates[0].mix),
        .brief = &world->brief,
        .thorough = &world->workloads[0],
        .candidates = world->candidates,
        .candidate_count = world->candidate_count,
        .threads = program->threads,
    };
    struct simulate_plan plan;
    const double before = seconds();
    need(simulate_plan(&options, &plan));
    struct kairos_choice choice = {.mix = plan.mix, .evaluations = plan.raced, .seconds = seconds() - before};
    judge(program, world, scheme, &choice);
    return choice;
}

/* ---- The evaluation ---------------------------------------------------------------------------- */

/* Four base workers, which the budget exceeds: what the rest would buy is credited in proportion. */
static struct kairos_choice
homogeneous(const struct program *program, const struct world *world)
{
    const uint64_t price = world->space.classes[BASE].price;
    const uint64_t count = world->space.budget / price;
    struct leat_pool_mix mix = {.count[BASE] = (uint16_t)count};
    const double credit = (double)world->space.budget / (double)(count * price);
    struct kairos_choice choice = {.mix = mix};
    judge(program, world, KAIROS_HOMOGENEOUS, &choice);
    choice.qps *= credit;
    choice.low_qps *= credit;
    choice.high_qps *= credit;
    return choice;
}

static void
evaluate_model(const struct program *program, uint32_t model, struct kairos_result *result)
{
    const struct circumstances circumstances = {.budget = BUDGET, .objective_factor = 1};
    struct world world;

    make_world(program, model, &circumstances, &world);
    result->name = models[model].name;
    result->objective_ns = world.objective_ns;
    result->mix_count = world.candidate_count;
    LEAT_ASSERT(world.candidate_count <= KAIROS_MIXES_MAX);
    for (uint32_t c = 0; c < world.candidate_count; c++) {
        result->bounds_qps[c] = world.candidates[c].bound_qps;
    }
    for (uint32_t scheme = KAIROS_HOMOGENEOUS; scheme < KAIROS_SCHEMES; scheme++) {
        say(program, result->name, kairos_scheme_names[scheme]);
        result->best[scheme] = scheme == KAIROS_HOMOGENEOUS ? homogeneous(program, &world)
                                                            : search_all(program, &world, scheme, result->all_qps[scheme]);
    }
    static const enum kairos_scheme planned[KAIROS_PLANNED] = {KAIROS_MATCHING, KAIROS_LAXITY};
    for (uint32_t p = 0; p < KAIROS_PLANNED; p++) {
        say(program, result->name, "choosing mixes");
        result->rule[p] = choose_by_rule(program, &world, planned[p]);
        result->search[p] = choose_by_search(program, &world, planned[p]);
        result->race[p] = choose_by_racing(program, &world, planned[p]);
    }
    for (uint32_t scheme = 0; scheme < KAIROS_SCHEMES; scheme++) {
        result->same_mix_qps[scheme] =
            scheme == KAIROS_HOMOGENEOUS
                ? 0
                : judge_mix(program, &world, scheme, &result->best[KAIROS_MATCHING].mix);
    }
    /* How violations grow with the rate, all schemes on the mix that is best for matching. */
    struct simulate_run *run;
    need(simulate_run_create(&run));
    for (enum kairos_scheme scheme = KAIROS_FCFS; scheme < KAIROS_ORACLE; scheme++) {
        struct simulate_options options = options_for(&world, scheme, &result->best[KAIROS_MATCHING].mix);
        double qps;
        options.workload = &world.workloads[0];
        need(throughput(run, &options, FINE, &qps)); /* it finds a threshold */
        for (uint32_t i = 0; i < KAIROS_CURVE; i++) {
            struct simulate_result outcome;
            options.rate_qps = result->best[KAIROS_ORACLE].qps * (0.5 + 0.5 * i / (KAIROS_CURVE - 1));
            need(simulate_run(run, &options, &outcome));
            result->curve_rates_qps[i] = options.rate_qps;
            result->curve[scheme][i] = (double)outcome.violations / outcome.queries;
        }
    }
    simulate_run_destroy(run);
    free_world(&world);
}

/* Schemes on mixes that were raced for them, or with `keep` on the mixes that were best in ordinary circumstances. */
static void
evaluate_circumstances(const struct program *program, const struct circumstances *circumstances, bool keep,
                       const struct kairos_result *results, uint32_t model_count, struct kairos_trial *trial)
{
    static const enum kairos_scheme schemes[KAIROS_TRIED] = {KAIROS_FCFS,          KAIROS_CLOCKWORK, KAIROS_MATCHING,
                                                             KAIROS_MATCHING_HIGH, KAIROS_LAXITY,    KAIROS_ORACLE};
    for (uint32_t model = 0; model < model_count; model++) {
        struct world world;
        say(program, trial->title, models[model].name);
        make_world(program, model, circumstances, &world);
        trial->homogeneous_qps[model] = homogeneous(program, &world).qps;
        for (uint32_t s = 0; s < KAIROS_TRIED; s++) {
            struct kairos_choice choice = results[model].best[schemes[s]];
            if (keep) {
                judge(program, &world, schemes[s], &choice);
            } else if (schemes[s] == KAIROS_ORACLE) {
                choice.mix = trial->choices[model][s - 1].mix; /* laxity's: all of a large budget would take long */
                judge(program, &world, schemes[s], &choice);
            } else {
                choice = choose_by_racing(program, &world, schemes[s]);
            }
            trial->choices[model][s] = choice;
        }
        free_world(&world);
    }
}

/* ---- The program ------------------------------------------------------------------------------- */

static void
read_data(struct program *program)
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/latency_samples.csv", program->data);
    if (access(path, R_OK) != 0) {
        (void)fprintf(stderr, "bench_kairos: skipped: %s is not there; --data names the folder of Kairos' measurements\n",
                      path);
        exit(77);
    }
    for (uint32_t model = 0; model < KAIROS_MODELS; model++) {
        need(simulate_table_read(path, models[model].name, class_names, CLASSES, &program->tables[model]));
    }
    (void)snprintf(path, sizeof(path), "%s/batch_distribution.csv", program->data);
    need(simulate_sizes_read(path, &program->sizes, &program->size_count));
    (void)snprintf(path, sizeof(path), "%s/instances.csv", program->data);
    need(simulate_prices_read(path, &program->tables[0], program->prices));
}

static void
free_data(struct program *program)
{
    for (uint32_t model = 0; model < KAIROS_MODELS; model++) {
        simulate_table_free(&program->tables[model]);
    }
    free(program->sizes);
}

int
main(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"data", required_argument, NULL, 'd'},  {"output", required_argument, NULL, 'o'},
        {"seeds", required_argument, NULL, 's'}, {"threads", required_argument, NULL, 't'},
        {"smoke", no_argument, NULL, 'S'},       {"help", no_argument, NULL, 'h'},
        {"seed", required_argument, NULL, 'f'},  {NULL, 0, NULL, 0}};
    const char *data = getenv("LEAT_DATA"); /* where the other published measurements lie too */
    char folder[2048];
    (void)snprintf(folder, sizeof(folder), "%s/kairos", data != NULL ? data : "../shared/data");
    struct program program = {
        .output = "docs/results", .seeds = 3, .first_seed = 1, .queries = QUERIES, .threads = simulate_core_count()};
    bool smoke = false;
    int option;

    while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        switch (option) {
        case 'd': program.data = optarg; break;
        case 'o': program.output = optarg; break;
        case 's': program.seeds = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'f': program.first_seed = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 't': program.threads = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'S':
            smoke = true;
            program.seeds = 1;
            program.queries = SMOKE_QUERIES;
            break;
        case 'h':
            (void)printf("usage: bench_kairos [--data FOLDER] [--output FOLDER] [--seed N] [--seeds N] [--threads N]\n"
                         "Simulates Kairos' evaluation and writes kairos.md and its figures into the output folder.\n"
                         "  --data FOLDER    measurements (latency_samples.csv, ...), default %s\n"
                         "  --output FOLDER  default %s\n"
                         "  --seed N         the first seed, default 1\n"
                         "  --seeds N        workloads that figures are means of, 1 to %d, default 3; mixes are chosen on as\n"
                         "                   many others\n"
                         "  --threads N      default: all cores\n",
                         folder, program.output, KAIROS_SEEDS_MAX);
            return 0;
        default: return 2;
        }
    }
    if (optind < argc) {
        (void)fprintf(stderr, "bench_kairos: '%s' is not understood; see --help\n", argv[optind]);
        return 2;
    }
    if (program.seeds < 1 || program.seeds > KAIROS_SEEDS_MAX || program.threads < 1) {
        (void)fprintf(stderr, "bench_kairos: --seeds is 1 to %d, --threads at least 1\n", KAIROS_SEEDS_MAX);
        return 2;
    }
    program.quiet = !isatty(STDERR_FILENO);
    if (program.data == NULL) {
        program.data = smoke ? LEAT_TESTS_KAIROS_FOLDER : folder; /* an excerpt does for the former */
    }
    if (!smoke && access(program.output, W_OK | X_OK) != 0) {
        (void)fprintf(stderr, "bench_kairos: the folder %s is not there, or may not be written to\n", program.output);
        return 1;
    }
    read_data(&program);

    const double before = seconds();
    struct kairos_page page = {.seeds = program.seeds, .queries = QUERIES};
    page.results = need_memory(KAIROS_MODELS, sizeof(*page.results));
    for (uint32_t model = 0; model < (smoke ? 1 : KAIROS_MODELS); model++) {
        evaluate_model(&program, model, &page.results[model]);
    }
    if (smoke) {
        const struct circumstances unknown = {.budget = BUDGET, .objective_factor = 1, .learn = true};
        struct kairos_trial trial = {.title = "no prior profile"};
        evaluate_circumstances(&program, &unknown, true, page.results, 1, &trial);
        const bool good = page.results[0].best[KAIROS_LAXITY].qps > page.results[0].best[KAIROS_HOMOGENEOUS].qps &&
                          trial.choices[0][KAIROS_TRIED_LAXITY].qps > trial.homogeneous_qps[0];
        free(page.results);
        free_data(&program);
        return good ? 0 : 1;
    }
    static const struct {
        const char *title;
        struct circumstances circumstances;
        bool keep;
    } trials[KAIROS_TRIALS] = {
        {"10 USD an hour", {.budget = LARGE_BUDGET, .objective_factor = 1}, false},
        {"objective 20 % longer", {.budget = BUDGET, .objective_factor = 1.2}, false},
        {"objective three times as long", {.budget = BUDGET, .objective_factor = 3}, false},
        {"bursts", {.budget = BUDGET, .objective_factor = 1, .bursts = true}, false},
        {"Gaussian sizes", {.budget = BUDGET, .objective_factor = 1, .gaussian = true}, false},
        {"predictions off by 5 %", {.budget = BUDGET, .objective_factor = 1, .noise_share = 0.05}, true},
        {"predictions off by 10 %", {.budget = BUDGET, .objective_factor = 1, .noise_share = 0.1}, true},
        {"no prior profile", {.budget = BUDGET, .objective_factor = 1, .learn = true}, true},
        {"sizes change half-way", {.budget = BUDGET, .objective_factor = 1, .change_at = QUERIES / 2}, true},
    };
    for (uint32_t t = 0; t < KAIROS_TRIALS; t++) {
        page.trials[t].title = trials[t].title;
        evaluate_circumstances(&program, &trials[t].circumstances, trials[t].keep, page.results, KAIROS_MODELS,
                               &page.trials[t]);
    }
    page.seconds = seconds() - before;
    page.threads = program.threads;
    need(kairos_page_write(&page, program.output));
    free(page.results);
    free_data(&program);
    return 0;
}
