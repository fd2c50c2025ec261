/* SPDX-License-Identifier: Apache-2.0 */
/* leat scale plan: what a pipeline's stages are to have for one rate, by the scaler's program or by those of Themis. */
#include "tools/cli/scale_plan.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "sched/scaler.h"
#include "tools/cli/cli.h"
#include "tools/simulate/stages_table.h"

#define VERB "scale"

enum { MODE_LEAT, MODE_PAPER, MODES };
static const char *const mode_names[MODES] = {"leat", "paper"};

enum { SCALING_BOTH, SCALING_VERTICAL, SCALING_HORIZONTAL, SCALINGS };
static const char *const scaling_names[SCALINGS] = {"both", "vertical", "horizontal"};

struct asked {
    const char *stages_path, *pipeline_name, *revision, *instances_text;
    uint64_t objective_ns, cores;
    double rate_qps, deviations;
    uint32_t mode, scaling;
    bool scaling_given, cores_given, deviations_given, json;
    uint32_t instances[LEAT_SCALE_STAGES_MAX];
    struct leat_themis_pipeline pipeline;
};

struct planned {
    struct leat_scale_choice stages[LEAT_SCALE_STAGES_MAX];
    uint32_t added[LEAT_SCALE_STAGES_MAX]; /* of the instances: to be started */
    uint64_t cost;
    double latency_ms, demand_qps;
};

void
scale_plan_print_options(void)
{
    const struct leat_scaler_options defaults = LEAT_SCALER_OPTIONS_INIT;

    (void)printf(
        "  --stages FILE      CSV with a row for each stage, as of leat simulate --stages: alpha, "
        "beta,\n"
        "                     gamma, zeta (ms: a batch of b on c cores takes alpha b/c + beta b +\n"
        "                     gamma/c + zeta), max_batch, max_cores\n"
        "  --pipeline NAME    of several in the file, which then has a column pipeline\n"
        "  --revision NAME    of several in the file, which then has a column revision\n"
        "  --objective TIME   from arrival to the last stage's answer; whole milliseconds\n"
        "  --rate QPS         that comes; with --mode paper a whole number\n"
        "  --mode NAME        leat (default): as the scaler does, the least cores of all "
        "instances, where\n"
        "                     a query waits for the next free instance at most; paper: by the "
        "programs\n"
        "                     of Themis, where a batch waits to fill, in whole milliseconds and "
        "whole\n"
        "                     queries a second, shorter than the objective\n"
        "  --scaling NAME     vertical: cores of the instances that there are; horizontal: "
        "instances of\n"
        "                     one core; both (leat only, its default). Where the most cores are "
        "too few,\n"
        "                     vertical of paper adds instances to the plan of the rate that they "
        "carry\n"
        "  --instances N,...  that there are, of each stage (vertical; default 1)\n"
        "  --cores N          leat: that there are (default 96)\n"
        "  --deviations D     leat: how far above the rate it plans, in deviations of what "
        "arrives\n"
        "                     within the objective (default %g)\n",
        defaults.deviations);
}

static void
print_help(void)
{
    (void)printf("usage: leat scale plan --stages FILE --objective TIME --rate QPS [OPTION...]\n\n"
                 "Prints cores, instances and batches of a pipeline's stages that carry a rate in "
                 "time at the\n"
                 "least cost, and how long a query takes at most. Needs no daemon.\n\n");
    scale_plan_print_options();
    (void)printf("  --json             one JSON object\n"
                 "  --help\n\n"
                 "Cost is the cores of all instances with leat, the instances with paper and "
                 "horizontal, the\n"
                 "cores of one instance of each stage with paper and vertical.\n\n"
                 "example: leat scale plan --stages stages.csv --objective 780ms --rate 20 --mode "
                 "paper --scaling vertical\n");
}

/* ---- Options ----------------------------------------------------------------------------------- */

static bool
find_name(const char *const *names, uint32_t count, const char *name, uint32_t *ret_index)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            *ret_index = i;
            return true;
        }
    }
    return false;
}

/* -1: go on. */
static int
parse(int argc, char **argv, struct asked *asked)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"stages", required_argument, NULL, 's'},
                                            {"pipeline", required_argument, NULL, 'p'},
                                            {"revision", required_argument, NULL, 'R'},
                                            {"objective", required_argument, NULL, 'o'},
                                            {"rate", required_argument, NULL, 'r'},
                                            {"mode", required_argument, NULL, 'm'},
                                            {"scaling", required_argument, NULL, 'S'},
                                            {"instances", required_argument, NULL, 'i'},
                                            {"cores", required_argument, NULL, 'c'},
                                            {"deviations", required_argument, NULL, 'D'},
                                            {NULL, 0, NULL, 0}};
    int option;

    opterr = 0;
    optind = 1;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        bool taken = true;
        switch (option) {
        case 'h':
            print_help();
            return EXIT_DONE;
        case 'j':
            asked->json = true;
            break;
        case 's':
            asked->stages_path = optarg;
            break;
        case 'p':
            asked->pipeline_name = optarg;
            break;
        case 'R':
            asked->revision = optarg;
            break;
        case 'o':
            taken = parse_duration_ns(optarg, &asked->objective_ns) && asked->objective_ns > 0;
            break;
        case 'r':
            taken = parse_double(optarg, 0, 1e6, &asked->rate_qps);
            break;
        case 'm':
            taken = find_name(mode_names, MODES, optarg, &asked->mode);
            break;
        case 'S':
            asked->scaling_given = taken =
                find_name(scaling_names, SCALINGS, optarg, &asked->scaling);
            break;
        case 'i':
            asked->instances_text = optarg;
            break;
        case 'c':
            asked->cores_given = taken = parse_u64(optarg, 1, LEAT_JOINT_CORES_MAX, &asked->cores);
            break;
        case 'D':
            asked->deviations_given = taken = parse_double(optarg, 0, 100, &asked->deviations);
            break;
        default:
            taken = false;
            break;
        }
        if (!taken) {
            return option_error(VERB, argv);
        }
    }
    return argc == optind ? -1 : usage_error(VERB, "'%s' is no option", argv[optind]);
}

/* -1: go on. */
static int
check(const struct asked *asked)
{
    if (asked->stages_path == NULL || asked->objective_ns == 0 || asked->rate_qps < 0) {
        return usage_error(VERB, "plan needs --stages, --objective and --rate");
    }
    if (asked->objective_ns % 1000000 != 0 || asked->objective_ns > UINT64_C(1000000000000)) {
        return usage_error(VERB, "--objective: whole milliseconds, at most 1000 s");
    }
    if (asked->mode == MODE_PAPER && asked->scaling == SCALING_BOTH) {
        return usage_error(
            VERB, asked->scaling_given
                      ? "--scaling both: not with --mode paper, which has vertical and horizontal"
                      : "--mode paper needs --scaling vertical or horizontal");
    }
    if (asked->mode == MODE_PAPER && asked->rate_qps != (double)(uint32_t)asked->rate_qps) {
        return usage_error(VERB, "--rate: --mode paper takes whole queries a second");
    }
    if (asked->mode == MODE_PAPER && (asked->cores_given || asked->deviations_given)) {
        return usage_error(VERB, "%s: not with --mode paper",
                           asked->cores_given ? "--cores" : "--deviations");
    }
    if (asked->instances_text != NULL && asked->scaling != SCALING_VERTICAL) {
        return usage_error(VERB, "--instances: with --scaling vertical only");
    }
    return -1;
}

/* One number for each stage. */
static bool
read_instances(struct asked *asked)
{
    const char *text = asked->instances_text;

    for (uint32_t s = 0; s < asked->pipeline.stage_count; s++) {
        char number[16];
        uint64_t instances = 1;
        if (text != NULL) {
            const size_t length = strcspn(text, ",");
            const bool last = s + 1 == asked->pipeline.stage_count;
            if (length >= sizeof(number) || text[length] != (last ? '\0' : ',')) {
                return false;
            }
            (void)snprintf(number, sizeof(number), "%.*s", (int)length, text);
            if (!parse_u64(number, 1, 4096, &instances)) {
                return false;
            }
            text += length + 1;
        }
        asked->instances[s] = (uint32_t)instances;
    }
    return true;
}

/* ---- Plans ------------------------------------------------------------------------------------- */

static enum leat_status
not_in_time(const struct asked *asked)
{
    return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "no plan carries %g queries a second within %g ms",
                     asked->rate_qps, (double)asked->objective_ns / 1e6);
}

static enum leat_status
plan_of_paper(const struct asked *asked, struct planned *ret_planned)
{
    const uint32_t rate_qps = (uint32_t)asked->rate_qps;
    struct planned planned = {.demand_qps = rate_qps};
    struct leat_scale_plan plan;
    void *const memory = malloc(leat_themis_bytes(&asked->pipeline));

    if (memory == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to plan with");
    }
    const enum leat_status status =
        asked->scaling == SCALING_VERTICAL
            ? leat_themis_vertical_grown(&asked->pipeline, rate_qps, asked->instances, memory,
                                         &plan, planned.added)
            : leat_themis_horizontal(&asked->pipeline, rate_qps, memory, &plan);
    free(memory);
    if (status != LEAT_OK) {
        return not_in_time(asked);
    }
    memcpy(planned.stages, plan.stages, sizeof(planned.stages));
    planned.cost = plan.cost;
    planned.latency_ms = plan.latency_ms;
    *ret_planned = planned;
    return LEAT_OK;
}

static enum leat_status
plan_of_leat(const struct asked *asked, struct planned *ret_planned)
{
    const struct leat_joint_box box = {.class_count = 1, .classes = {{(uint32_t)asked->cores, 1}}};
    struct leat_joint_application joint;
    struct leat_joint_answer answer;
    struct planned planned = {0};
    uint64_t *latency_ns;
    enum leat_status status = stages_joint_make(&asked->pipeline, &joint, &latency_ns);

    if (status != LEAT_OK) {
        return status;
    }
    joint.demand_qps = leat_joint_demand(asked->rate_qps, asked->objective_ns, asked->deviations);
    for (uint32_t s = 0; s < joint.stage_count; s++) {
        struct leat_joint_stage *stage = &joint.stages[s];
        stage->cores_max = asked->scaling == SCALING_HORIZONTAL ? 1 : stage->cores_max;
        if (asked->scaling == SCALING_VERTICAL) {
            stage->instances_min = stage->instances_max = asked->instances[s];
        }
    }
    void *const memory =
        aligned_alloc(LEAT_CACHE_LINE, leat_round_up(leat_joint_bytes(&box, 1), LEAT_CACHE_LINE));
    if (memory == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to plan with");
        goto err_free_latency;
    }
    planned.cost = leat_joint_solve(&box, &joint, 1, memory, &answer);
    planned.demand_qps = joint.demand_qps;
    planned.latency_ms = (double)answer.latency_ns / 1e6;
    for (uint32_t s = 0; s < joint.stage_count; s++) {
        const struct leat_joint_choice *choice = &answer.stages[s];
        planned.stages[s] =
            (struct leat_scale_choice){choice->instances, choice->cores, choice->batch};
    }
    if (answer.share < LEAT_JOINT_SHARES) {
        status = not_in_time(asked);
    } else {
        *ret_planned = planned;
    }
    free(memory);
err_free_latency:
    free(latency_ns);
    return status;
}

/* ---- Output ------------------------------------------------------------------------------------ */

static void
print_object(const struct asked *asked, const struct planned *planned)
{
    json_t *stages = json_array();

    for (uint32_t s = 0; s < asked->pipeline.stage_count; s++) {
        const struct leat_scale_choice *choice = &planned->stages[s];
        (void)json_array_append_new(
            stages, json_pack("{s:i, s:i, s:i, s:i}", "instances", (int)choice->instances,
                              "added_instances", (int)planned->added[s], "cores",
                              (int)choice->cores, "batch", (int)choice->batch));
    }
    print_json(json_pack(
        "{s:s, s:s, s:f, s:f, s:f, s:I, s:f, s:o}", "mode", mode_names[asked->mode], "scaling",
        scaling_names[asked->scaling], "rate_qps", asked->rate_qps, "demand_qps",
        planned->demand_qps, "objective_ms", (double)asked->objective_ns / 1e6, "cost",
        (json_int_t)planned->cost, "latency_ms", planned->latency_ms, "stages", stages));
}

static void
print_plan(const struct asked *asked, const struct planned *planned)
{
    uint64_t cores = 0, added = 0;

    for (uint32_t s = 0; s < asked->pipeline.stage_count; s++) {
        cores += (uint64_t)planned->stages[s].instances * planned->stages[s].cores;
        added += planned->added[s];
    }
    (void)printf("%s, %s: %g queries a second within %g ms", mode_names[asked->mode],
                 scaling_names[asked->scaling], asked->rate_qps, (double)asked->objective_ns / 1e6);
    if (asked->mode == MODE_LEAT) {
        (void)printf(", planned for %.1f", planned->demand_qps);
    }
    (void)printf(
        "\ncost %llu, latency %g ms at most%s, %llu cores in all\n\n%5s  %9s  %8s  %10s  %5s\n",
        (unsigned long long)planned->cost, planned->latency_ms,
        added > 0 ? " without the instances to start" : "", (unsigned long long)cores, "stage",
        "instances", "of these", "cores each", "batch");
    (void)printf("%5s  %9s  %8s\n", "", "", "to start");
    for (uint32_t s = 0; s < asked->pipeline.stage_count; s++) {
        const struct leat_scale_choice *choice = &planned->stages[s];
        (void)printf("%5u  %9u  %8u  %10u  %5u\n", s + 1, choice->instances, planned->added[s],
                     choice->cores, choice->batch);
    }
}

int
scale_plan(int argc, char **argv)
{
    const struct leat_scaler_options defaults = LEAT_SCALER_OPTIONS_INIT;
    struct asked asked = {.cores = 96, .deviations = defaults.deviations, .rate_qps = -1};
    struct planned planned;
    int exit_code = parse(argc, argv, &asked);

    exit_code = exit_code < 0 ? check(&asked) : exit_code;
    if (exit_code >= 0) {
        return exit_code;
    }
    if (stages_table_read(asked.stages_path, asked.pipeline_name, asked.revision, &asked.pipeline) != LEAT_OK) {
        return report_failure(VERB);
    }
    asked.pipeline.objective_ms = (uint32_t)(asked.objective_ns / 1000000);
    if (!read_instances(&asked)) {
        return usage_error(
            VERB, "--instances: %u numbers from 1 to 4096, one for each stage, such as 2,1",
            asked.pipeline.stage_count);
    }
    if ((asked.mode == MODE_PAPER ? plan_of_paper : plan_of_leat)(&asked, &planned) != LEAT_OK) {
        return report_failure(VERB);
    }
    if (asked.json) {
        print_object(&asked, &planned);
    } else {
        print_plan(&asked, &planned);
    }
    return EXIT_DONE;
}
