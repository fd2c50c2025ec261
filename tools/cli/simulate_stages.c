/* SPDX-License-Identifier: Apache-2.0 */
/* leat simulate --stages: a pipeline whose stages are scaled while it serves, on a virtual clock, with the daemon's own code. */
#include "tools/cli/simulate_stages.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/align.h"
#include "runtime/pipeline_spec.h"
#include "tools/cli/cli.h"
#include "tools/cli/simulate_course.h"
#include "tools/cli/simulate_forecast.h"
#include "tools/simulate/stages.h"
#include "tools/simulate/stages_table.h"

#define VERB      "simulate"
#define SECOND_NS UINT64_C(1000000000)

/* A pipeline as the daemon takes it. */
struct graph {
    char path[4096], *trace; /* NULL: as all */
    struct leat_pipeline_spec spec;
    struct rates rates; /* of a trace of its own */
};

struct scaling {
    struct course course;
    const char *stages_path, *pipeline_name, *revision, *forecast_name;
    uint64_t objective_ns, start_ns, resize_ns, hold_ns, period_ns, settle, cores;
    double noise_share, dispersion, deviations;
    bool whole_batches;

    struct graph graphs[STAGES_PIPELINES_MAX];
    uint32_t graph_count;

    struct stages_pipeline pipelines[STAGES_PIPELINES_MAX];
    uint32_t pipeline_count;
    struct forecaster forecaster;
};

static struct scaling *
scaling_of(struct course *course)
{
    return (struct scaling *)course;
}

static const struct scaling *
scaling_in(const struct course *course)
{
    return (const struct scaling *)course;
}

/* ---- Options ----------------------------------------------------------------------------------- */

void
simulate_stages_help(void)
{
    (void)printf(
        "usage: leat simulate --stages FILE [--objective TIME | --graph FILE...] --trace FILE [OPTION...]\n\n"
        "A pipeline of stages, each with instances of so many cores, under a load that changes: how many queries violate the\n"
        "objective, and how many cores that takes, by who scales it. Every figure is simulated. Needs no daemon.\n\n"
        "  --stages FILE           CSV with a row for each stage: alpha, beta, gamma, zeta (ms: a batch of b on c cores takes\n"
        "                          alpha b/c + beta b + gamma/c + zeta), max_batch, max_cores\n"
        "  --pipeline NAME         of several in the file, which then has a column pipeline\n"
        "  --revision NAME         of several in the file, which then has a column revision\n"
        "  --objective TIME        from arrival to the last stage's answer, such as 780ms; whole milliseconds\n"
        "  --graph FILE[,TRACE]    a pipeline as `leat pipeline add` takes it: stages that fan out, join and repeat. Its latency_ms\n"
        "                          is the objective, else --objective. Stages are then the rows of their applications, by a\n"
        "                          column application, and what repeats has items_min to items_max items of a query, by\n"
        "                          columns of these names. May be given up to 16 times: all share the cores of one box. With a\n"
        "                          trace of its own it follows that. For --scaler none and leat, and chains for the others,\n"
        "                          which do not share\n\n"
        "  --scaler NAME,...       to compare: none, fa2 (instances of one core), fa2-slack (the same, by leat's model of latency\n"
        "                          and its deviations), sponge (cores of one instance), themis (the paper's rules), leat (default: all\n"
        "                          but none and fa2-slack; none and leat where a pipeline is no chain)\n"
        "  --resize-delay TIME     from the order to new cores (default 100ms)\n"
        "  --start-delay TIME      from the order to a new instance (default 5s)\n"
        "  --settle N              themis, fa2, fa2-slack: calm decisions before instances replace cores, or go (default 10)\n"
        "  --deviations D          leat, fa2-slack: how far above the rate it plans, in deviations of a window's arrivals (default %g)\n"
        "  --hold TIME             leat: how long it remembers a rate (default 10s)\n"
        "  --period TIME           leat: between two decisions (default 100ms); the others decide once a second\n"
        "  --forecast NAME|FILE    themis, leat: what they are told of the highest second of the next ten: last (of the highest\n"
        "                          of the last six times ten seconds), mean, maximum, trend, quantile50, quantile90, quantile99,\n"
        "                          a model FILE.onnx of these six, oracle: what will come, or none: leat nothing, themis last\n"
        "                          (default: none)\n"
        "  --cores N               that leat, and fa2-slack, may give (default 96)\n\n"
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
        ((struct leat_scaler_options)LEAT_SCALER_OPTIONS_INIT).deviations);
}

static const struct option options[] = {
    {"stages", required_argument, NULL, 's'},
    {"pipeline", required_argument, NULL, 'p'},
    {"revision", required_argument, NULL, 'v'},
    {"objective", required_argument, NULL, 'o'},
    {"graph", required_argument, NULL, 'g'},
    {"resize-delay", required_argument, NULL, 'r'},
    {"start-delay", required_argument, NULL, 'b'},
    {"settle", required_argument, NULL, 't'},
    {"deviations", required_argument, NULL, 'D'},
    {"hold", required_argument, NULL, 'H'},
    {"period", required_argument, NULL, 'P'},
    {"forecast", required_argument, NULL, 'f'},
    {"cores", required_argument, NULL, 'c'},
    {"dispersion", required_argument, NULL, 'i'},
    {"batches", required_argument, NULL, 'B'},
    {"service-noise", required_argument, NULL, 'N'},
    COURSE_OPTIONS("scaler"),
};

static bool
take_graph(struct scaling *scaling, const char *text)
{
    struct graph *graph = &scaling->graphs[scaling->graph_count];

    if (scaling->graph_count == STAGES_PIPELINES_MAX || strlen(text) >= sizeof(graph->path)) {
        return false;
    }
    (void)strcpy(graph->path, text);
    graph->trace = strchr(graph->path, ',');
    if (graph->trace != NULL) {
        *graph->trace++ = '\0';
    }
    scaling->graph_count++;
    return true;
}

static bool
take(struct course *course, int option)
{
    struct scaling *scaling = scaling_of(course);

    switch (option) {
    case 's': scaling->stages_path = optarg; return true;
    case 'p': scaling->pipeline_name = optarg; return true;
    case 'v': scaling->revision = optarg; return true;
    case 'o': return course_parse_ns(optarg, &scaling->objective_ns);
    case 'g': return take_graph(scaling, optarg);
    case 'r': return course_parse_ns(optarg, &scaling->resize_ns);
    case 'b': return course_parse_ns(optarg, &scaling->start_ns);
    case 't': return parse_u64(optarg, 0, 1000000, &scaling->settle);
    case 'D': return parse_double(optarg, 0, 100, &scaling->deviations);
    case 'H': return course_parse_ns(optarg, &scaling->hold_ns) && scaling->hold_ns > 0;
    case 'P': return course_parse_ns(optarg, &scaling->period_ns) && scaling->period_ns >= SECOND_NS / 1000;
    case 'f': scaling->forecast_name = optarg; return true;
    case 'c': return parse_u64(optarg, 1, 1024, &scaling->cores);
    case 'i': return parse_double(optarg, 1, ARRIVALS_DISPERSION_MAX, &scaling->dispersion);
    case 'B':
        scaling->whole_batches = strcmp(optarg, "whole") == 0;
        return scaling->whole_batches || strcmp(optarg, "waiting") == 0;
    case 'N': return parse_share(optarg, &scaling->noise_share);
    default: return false;
    }
}

static bool
forecast_is(const struct scaling *scaling, const char *name)
{
    return scaling->forecast_name != NULL && strcmp(scaling->forecast_name, name) == 0;
}

/* Whether scalers are told what the forecaster says. */
static bool
listens(const struct scaling *scaling)
{
    return scaling->forecast_name != NULL && !forecast_is(scaling, "none");
}

static int
check(struct course *course)
{
    struct scaling *scaling = scaling_of(course);

    if (scaling->stages_path == NULL) {
        return usage_error(VERB, "--stages is needed");
    }
    if (scaling->objective_ns == 0 && scaling->graph_count == 0) {
        return usage_error(VERB, "--objective is needed");
    }
    if (scaling->pipeline_name != NULL && scaling->graph_count > 0) {
        return usage_error(VERB, "--pipeline names stages in a row, and --graph has others");
    }
    if (scaling->objective_ns % 1000000 != 0 || scaling->objective_ns > 1000 * SECOND_NS) {
        return usage_error(VERB, "--objective: whole milliseconds, at most 1000 s");
    }
    if (scaling->hold_ns / scaling->period_ns < 1 || scaling->hold_ns / scaling->period_ns > LEAT_SCALER_HOLD_MAX) {
        return usage_error(VERB, "--hold: 1 to %u periods", LEAT_SCALER_HOLD_MAX);
    }
    return EXIT_DONE;
}

static enum leat_status
read_spec(const char *path, struct leat_pipeline_spec *ret_spec)
{
    json_error_t error;
    json_t *object = json_load_file(path, JSON_REJECT_DUPLICATES, &error);

    if (object == NULL) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s:%d: %s", path, error.line, error.text);
    }
    const enum leat_status status = leat_pipeline_spec_read(object, ret_spec);
    json_decref(object);
    return status == LEAT_OK ? LEAT_OK : leat_err_prefix(status, "%s", path);
}

/* The first stage that repeats for the same things; its own place: none before. */
static uint32_t
first_alike(const struct leat_pipeline_spec *spec, uint32_t s)
{
    for (uint32_t other = 0; other < s && spec->stages[s].repeats; other++) {
        const struct leat_pipeline_source *each = &spec->stages[other].each;
        if (spec->stages[other].repeats && each->stage == spec->stages[s].each.stage &&
            strcmp(each->tensor, spec->stages[s].each.tensor) == 0) {
            return other;
        }
    }
    return s;
}

static enum leat_status
read_graph_stage(const struct scaling *scaling, const struct leat_pipeline_spec *spec, uint32_t s,
                 struct stages_pipeline *pipeline)
{
    const struct leat_pipeline_spec_stage *stage = &spec->stages[s];
    struct stages_items *items = &pipeline->items[s];

    const enum leat_status status = stages_table_find(scaling->stages_path, stage->application, scaling->revision,
                                                      &pipeline->table.stages[s], &items->min, &items->max);
    if (status != LEAT_OK) {
        return status;
    }
    if (stage->repeats && items->max == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s: stage '%s' repeats, and columns items_min and items_max do not say how often",
                         scaling->stages_path, stage->name);
    }
    items->min = stage->repeats ? items->min : 1;
    items->max = stage->repeats ? items->max : 1;
    items->same = first_alike(spec, s);
    pipeline->after[s] = stage->after;
    return LEAT_OK;
}

/* With its own trace or all's. */
static enum leat_status
read_graph(const struct scaling *scaling, struct graph *graph, struct stages_pipeline *ret_pipeline)
{
    enum leat_status status = read_spec(graph->path, &graph->spec);
    if (status != LEAT_OK) {
        return status;
    }
    const uint64_t objective_ns = graph->spec.latency_ns > 0 ? graph->spec.latency_ns : scaling->objective_ns;
    if (objective_ns == 0 || objective_ns % 1000000 != 0 || objective_ns > 1000 * SECOND_NS) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s: latency_ms, or else --objective, must be whole milliseconds, at most 1000 s",
                         graph->path);
    }
    struct stages_pipeline pipeline = {.weight = 1};
    pipeline.table.stage_count = graph->spec.stage_count;
    pipeline.table.objective_ms = (uint32_t)(objective_ns / 1000000);
    for (uint32_t s = 0; s < graph->spec.stage_count && status == LEAT_OK; s++) {
        status = read_graph_stage(scaling, &graph->spec, s, &pipeline);
    }
    if (status == LEAT_OK && graph->trace != NULL) {
        status = rates_read(graph->trace, 0, &graph->rates);
    }
    *ret_pipeline = pipeline;
    return status;
}

static enum leat_status
read_pipelines(struct scaling *scaling)
{
    enum leat_status status = LEAT_OK;

    scaling->pipeline_count = scaling->graph_count > 0 ? scaling->graph_count : 1;
    if (scaling->graph_count == 0) {
        struct leat_themis_pipeline table;
        status = stages_table_read(scaling->stages_path, scaling->pipeline_name, scaling->revision, &table);
        if (status == LEAT_OK) {
            table.objective_ms = (uint32_t)(scaling->objective_ns / 1000000);
            stages_chain(&table, &scaling->pipelines[0]);
        }
    }
    for (uint32_t g = 0; g < scaling->graph_count && status == LEAT_OK; g++) {
        status = read_graph(scaling, &scaling->graphs[g], &scaling->pipelines[g]);
    }
    for (uint32_t p = 0; p < scaling->pipeline_count && status == LEAT_OK; p++) {
        const struct graph *graph = &scaling->graphs[p];
        scaling->pipelines[p].arrivals = (struct arrivals){
            .kind = ARRIVALS_RATES,
            .rates = graph->trace != NULL ? &graph->rates : &scaling->course.rates,
            .dispersion = scaling->dispersion,
        };
    }
    return status;
}

static int
read_inputs(struct course *course)
{
    struct scaling *scaling = scaling_of(course);

    if (read_pipelines(scaling) != LEAT_OK) {
        return report_failure(VERB);
    }
    for (uint32_t p = 0; p < scaling->pipeline_count && course->subject_text == NULL; p++) {
        if (!stages_is_chain(&scaling->pipelines[p])) { /* the others know none */
            course->subjects[0] = STAGES_NONE;
            course->subjects[1] = STAGES_LEAT;
            course->subject_count = 2;
        }
    }
    if (scaling->forecast_name != NULL && !forecast_is(scaling, "oracle") && !forecast_is(scaling, "none") &&
        forecaster_open(scaling->forecast_name, &leat_backend_reference, (uint32_t)course->threads, &scaling->forecaster) != LEAT_OK) {
        return report_failure(VERB);
    }
    return EXIT_DONE;
}

/* ---- Runs -------------------------------------------------------------------------------------- */

static enum leat_status
run(struct course *course, uint32_t subject, uint64_t seed, void *ret_result)
{
    struct scaling *scaling = scaling_of(course);
    const struct stages_options asked = {
        .pipelines = scaling->pipelines,
        .pipeline_count = scaling->pipeline_count,
        .scaler = (enum stages_scaler)subject,
        .duration_ns = course->duration_ns,
        .seed = seed,
        .start_ns = scaling->start_ns,
        .resize_ns = scaling->resize_ns,
        .settle_decisions = (uint32_t)scaling->settle,
        .whole_batches = scaling->whole_batches,
        .drop_multiple = course->drop_multiple,
        .noise_share = scaling->noise_share,
        .leat = {.deviations = scaling->deviations,
                 .hold = (uint32_t)(scaling->hold_ns / scaling->period_ns),
                 .settle = ((struct leat_scaler_options)LEAT_SCALER_OPTIONS_INIT).settle},
        .leat_period_ns = scaling->period_ns,
        .box_cores = (uint32_t)scaling->cores,
        .forecast = listens(scaling) ? forecaster_qps : NULL,
        .forecast_context = &scaling->forecaster,
        .oracle = forecast_is(scaling, "oracle"),
    };

    const enum leat_status status = stages_simulate(&asked, ret_result);
    if (status == LEAT_OK && atomic_load_explicit(&scaling->forecaster.failed, memory_order_relaxed)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s cannot be run on this load", scaling->forecast_name);
    }
    return status;
}

static void
free_result(void *result)
{
    stages_result_free(result);
}

/* ---- Results ----------------------------------------------------------------------------------- */

enum quantity { VIOLATION, VIOLATION_WORST, DROPPED, CORES, CORES_MOST, P50_NS, P99_NS, STARTS, RESIZES };

static const char *const keys[] = {
    [VIOLATION] = "violation_share",
    [VIOLATION_WORST] = "violation_share_worst", /* of a pipeline */
    [DROPPED] = "dropped_share",
    [CORES] = "cores_mean",
    [CORES_MOST] = "cores_max",
    [P50_NS] = "latency_p50_ns",
    [P99_NS] = "latency_p99_ns",
    [STARTS] = "instances_started",
    [RESIZES] = "resizes",
};

static double
value_of(const void *of, uint32_t key)
{
    const struct stages_result *result = of;
    const double queries = result->queries > 0 ? (double)result->queries : NAN;
    double most = 0;

    switch ((enum quantity)key) {
    case VIOLATION: return (double)(result->queries - result->in_time) / queries;
    case VIOLATION_WORST:
        for (uint32_t p = 0; p < STAGES_PIPELINES_MAX; p++) {
            const struct stages_share *share = &result->shares[p];
            most = share->queries > 0 ? fmax(most, (double)(share->queries - share->in_time) / (double)share->queries) : most;
        }
        return most;
    case DROPPED: return (double)result->dropped / queries;
    case CORES: return result->core_s / result->second_count;
    case CORES_MOST:
        return (double)result->cores_most;
    case P50_NS: return (double)result->p50_ns;
    case P99_NS: return (double)result->p99_ns;
    case STARTS: return (double)result->starts;
    case RESIZES: return (double)result->resizes;
    }
    return NAN;
}

static const struct simulate_second *
seconds_of(const void *of, uint32_t *ret_count)
{
    const struct stages_result *result = of;
    *ret_count = result->second_count;
    return result->seconds;
}

static void
describe(const struct course *course, char *text, size_t room)
{
    const struct scaling *scaling = scaling_in(course);
    char drops[64] = "nothing is dropped";

    if (course->drop_multiple > 0) {
        (void)snprintf(drops, sizeof(drops), "dropped when %g objectives old", course->drop_multiple);
    }
    if (scaling->pipeline_count > 1 || scaling->graph_count > 0) {
        uint32_t stages = 0;
        for (uint32_t p = 0; p < scaling->pipeline_count; p++) {
            stages += scaling->pipelines[p].table.stage_count;
        }
        (void)snprintf(text, room, "%u pipelines of %u stages on %u cores, %s; cores take %s, instances %s",
                       scaling->pipeline_count, stages, (uint32_t)scaling->cores, drops,
                       format_ns((double)scaling->resize_ns).text, format_ns((double)scaling->start_ns).text);
        return;
    }
    (void)snprintf(text, room, "%s%s%u stages, objective %s, %s; cores take %s, instances %s",
                   scaling->pipeline_name != NULL ? scaling->pipeline_name : "", scaling->pipeline_name != NULL ? ", " : "",
                   scaling->pipelines[0].table.stage_count, format_ns((double)scaling->objective_ns).text, drops,
                   format_ns((double)scaling->resize_ns).text, format_ns((double)scaling->start_ns).text);
}

static void
print_table(const struct course *course, const char *conditions)
{
    (void)printf("simulated: %s\n"
                 "           violations: %% of queries late, dropped or left; mean, least and most of seeds; rest: means of seeds\n\n"
                 "%-9s  %10s %8s %8s  %9s  %6s %6s  %9s %9s  %7s %7s\n",
                 conditions, "scaler", "violations", "least", "most", "dropped %", "cores", "most", "p50", "p99", "starts", "resizes");
    for (uint32_t i = 0; i < course->subject_count; i++) {
        const struct course_spread violation = course_spread_of(course, i, VIOLATION);
        (void)printf("%-9s  %10.4f %8.4f %8.4f  %9.4f  %6.1f %6.1f  %9s", course_subject_name(course, i),
                     100 * violation.mean, 100 * violation.min, 100 * violation.max, 100 * course_spread_of(course, i, DROPPED).mean,
                     course_spread_of(course, i, CORES).mean, course_spread_of(course, i, CORES_MOST).mean,
                     format_ns(course_spread_of(course, i, P50_NS).mean).text);
        (void)printf(" %9s  %7.0f %7.0f\n", format_ns(course_spread_of(course, i, P99_NS).mean).text, course_spread_of(course, i, STARTS).mean,
                     course_spread_of(course, i, RESIZES).mean);
    }
    for (uint32_t i = 0; i < course->subject_count && scaling_in(course)->pipeline_count > 1; i++) {
        (void)printf("%s%-9s  %10.4f %% violations of the pipeline that has most\n", i == 0 ? "\n" : "", course_subject_name(course, i),
                     100 * course_spread_of(course, i, VIOLATION_WORST).mean);
    }
}

static json_t *
list_graphs(const struct scaling *scaling)
{
    json_t *list = json_array();

    for (uint32_t g = 0; g < scaling->graph_count; g++) {
        const struct graph *graph = &scaling->graphs[g];
        (void)json_array_append_new(list, json_pack("{s:s, s:s?, s:s, s:I, s:i}", "path", graph->path, "trace", graph->trace, "name",
                                                    graph->spec.name, "objective_ns",
                                                    (json_int_t)scaling->pipelines[g].table.objective_ms * 1000000, "stages",
                                                    (int)graph->spec.stage_count));
    }
    return list;
}

static void
add_members(const struct course *course, json_t *object)
{
    const struct scaling *scaling = scaling_in(course);

    set_member(object, "stages", json_string(scaling->stages_path));
    set_member(object, "pipeline", scaling->pipeline_name != NULL ? json_string(scaling->pipeline_name) : NULL);
    set_member(object, "revision", scaling->revision != NULL ? json_string(scaling->revision) : NULL);
    set_member(object, "graphs", scaling->graph_count > 0 ? list_graphs(scaling) : NULL);
    set_member(object, "objective_ns", scaling->objective_ns > 0 ? json_integer((json_int_t)scaling->objective_ns) : NULL);
    set_member(object, "resize_delay_ns", json_integer((json_int_t)scaling->resize_ns));
    set_member(object, "start_delay_ns", json_integer((json_int_t)scaling->start_ns));
    set_member(object, "batches", json_string(scaling->whole_batches ? "whole" : "waiting"));
    set_member(object, "service_noise_share", json_real(scaling->noise_share));
    set_member(object, "dispersion", json_real(scaling->dispersion));
    set_member(object, "deviations", json_real(scaling->deviations));
    set_member(object, "hold_ns", json_integer((json_int_t)scaling->hold_ns));
    set_member(object, "period_ns", json_integer((json_int_t)scaling->period_ns));
    set_member(object, "forecast", scaling->forecast_name != NULL ? json_string(scaling->forecast_name) : NULL);
    set_member(object, "settle_decisions", json_integer((json_int_t)scaling->settle));
    set_member(object, "cores", json_integer((json_int_t)scaling->cores));
}

int
simulate_stages(int argc, char **argv)
{
    static const struct course_kind kind = {
        .subject = "scaler",
        .used = "cores",
        .used_title = "Cores over time (simulated)",
        .used_label = "cores held",
        .names = stages_scaler_names,
        .name_count = STAGES_SCALERS,
        .first = STAGES_FA2,
        .end = STAGES_FA2_SLACK,
        .keys = keys,
        .key_count = LEAT_COUNT_OF(keys),
        .options = options,
        .result_bytes = sizeof(struct stages_result),
        .help = simulate_stages_help,
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
    static const struct leat_scaler_options defaults = LEAT_SCALER_OPTIONS_INIT;
    static struct scaling scaling;

    scaling = (struct scaling){.start_ns = 5 * SECOND_NS,
                               .resize_ns = SECOND_NS / 10,
                               .period_ns = SECOND_NS / 10,
                               .hold_ns = defaults.hold * (SECOND_NS / 10),
                               .settle = 10,
                               .cores = 96,
                               .dispersion = 1,
                               .deviations = defaults.deviations};
    const int exit_code = course_main(&kind, &scaling.course, argc, argv);
    forecaster_close(&scaling.forecaster);
    for (uint32_t g = 0; g < scaling.graph_count; g++) {
        rates_free(&scaling.graphs[g].rates);
    }
    return exit_code;
}
