/* SPDX-License-Identifier: Apache-2.0 */
/* A model's graphs, timed step by step in turns, so that a machine that stalls spoils a few runs of each. */
#include "tools/cli/inspect.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/clock.h"
#include "kernels/cost.h"
#include "kernels/cpu/calibrate.h"
#include "kernels/made_inputs.h"
#include "kernels/op.h"
#include "kernels/team.h"

enum { RUNS_MIN = 5, RUNS_MAX = INSPECT_RUNS_MAX, TEAM_SPIN_NS = 50000 };
static const uint64_t runs_ns = 2000000000; /* unless a number of runs is given */

/* ---- Passes ------------------------------------------------------------------------------------- */

static int
compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of a graph's nodes, in order; NULL: no memory. */
static const char **
list_names(const struct leat_graph *graph)
{
    const char **names = calloc((size_t)graph->node_count + 1, sizeof(*names));

    for (uint32_t n = 0; names != NULL && n < graph->node_count; n++) {
        names[n] = graph->nodes[n].name;
    }
    if (names != NULL) {
        qsort(names, graph->node_count, sizeof(*names), compare_names);
    }
    return names;
}

/* Notes of those that are in `nodes` and not in the graph that this took them away. */
static enum leat_status
note_gone(struct inspected_graph *before, const struct leat_graph *graph, const char *by)
{
    const char **names = list_names(graph);

    if (names == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to inspect a model");
    }
    for (uint32_t n = 0; n < before->graph->node_count; n++) {
        struct inspected_node *node = &before->nodes[n];
        if (node->gone_by == NULL &&
            bsearch(&node->node->name, names, graph->node_count, sizeof(*names), compare_names) == NULL) {
            node->gone_by = by;
        }
    }
    free(names);
    return LEAT_OK;
}

static enum leat_status
run_passes(struct inspected *inspected)
{
    enum leat_status status = LEAT_OK;

    LEAT_ASSERT(leat_all_pass_count <= LEAT_COUNT_OF(inspected->passes));
    for (size_t p = 0; p < leat_all_pass_count && status == LEAT_OK; p++) {
        const uint64_t bit = UINT64_C(1) << p, plans = UINT64_MAX << leat_pass_count;
        status = leat_graph_optimise(inspected->after.source, inspected->order->passes & (bit | plans));
        if (status == LEAT_OK && (inspected->order->passes & bit) != 0) {
            inspected->passes[inspected->pass_count++] =
                (struct inspected_pass){.name = leat_passes[p].name, .node_count = inspected->after.source->node_count};
            status = note_gone(&inspected->before, inspected->after.source, leat_passes[p].name);
        }
    }
    return status;
}

/* ---- Graphs ------------------------------------------------------------------------------------- */

static void
close_graph(struct inspected_graph *graph)
{
    leat_inspection_destroy(graph->inspection);
    leat_graph_destroy(graph->source);
    free(graph->nodes);
}

static enum leat_status
import(const struct inspect_order *order, struct inspected_graph *graph, uint32_t *ret_node_count)
{
    const struct leat_onnx_source source = {.bytes = order->file,
                                            .byte_count = order->file_bytes,
                                            .folder_fd = -1,
                                            .files = order->files,
                                            .file_count = order->file_count,
                                            .batch = order->batch,
                                            .dims = order->dims,
                                            .dim_count = order->dim_count,
                                            .constants = order->constants,
                                            .constant_count = order->constant_count,
                                            .memory_bytes_max = order->memory_bytes_max,
                                            .trips_max = order->trips_max};
    enum leat_status status = leat_onnx_import_from(&source, &graph->source);
    const char *name;
    json_t *range;

    if (status == LEAT_OK) {
        *ret_node_count = graph->source->node_count;
        status = leat_graph_bind(graph->source, NULL, 0);
    }
    for (uint32_t s = 0; status == LEAT_OK && s < graph->source->symbol_count; s++) {
        if (graph->source->symbols[s] != NULL) {
            status = LEAT_FAIL(LEAT_ERR_INVALID, "dimension '%.64s' is free: --dim %.64s=N gives it a value",
                               graph->source->symbols[s], graph->source->symbols[s]);
        }
    }
    json_object_foreach((json_t *)(uintptr_t)order->ranges, name, range) { /* only read */
        if (status == LEAT_OK) {
            (void)leat_graph_set_range(graph->source,
                                       &(struct leat_range){.name = name,
                                                            .least = (float)json_number_value(json_array_get(range, 0)),
                                                            .most = (float)json_number_value(json_array_get(range, 1))});
        }
    }
    return status;
}

/* What no daemon could serve is shown all the same. */
static enum leat_status
find_one_by_one(struct inspected *inspected)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    const struct leat_graph *graph = inspected->before.source;
    uint32_t inputs, outputs;

    inspected->one_by_one = leat_graph_signature(graph, infos, &inputs, &outputs) != LEAT_OK &&
                            leat_graph_signature_of_one(graph, infos, &inputs, &outputs) == LEAT_OK;
    return inspected->one_by_one && inspected->order->items > 1
               ? LEAT_FAIL(LEAT_ERR_INVALID, "it is run for one item at a time: there are no batches of %u", inspected->order->items)
               : LEAT_OK;
}

static enum leat_status
plan(const struct inspect_order *order, struct inspected_graph *graph)
{
    enum leat_status status =
        leat_inspection_create(graph->source, order->precision, order->items, order->cores, &graph->inspection);

    if (status != LEAT_OK) {
        return status;
    }
    graph->graph = leat_inspection_graph(graph->inspection);
    graph->planned_bytes = leat_inspection_planned_bytes(graph->inspection);
    graph->bound_bytes = leat_inspection_bound_bytes(graph->inspection);
    graph->model_bytes = leat_inspection_model_bytes(graph->inspection);
    for (uint32_t i = 0; i < graph->graph->input_count; i++) {
        graph->copied += leat_inspection_copies(graph->inspection, i);
    }
    graph->nodes = calloc((size_t)graph->graph->node_count + 1, sizeof(*graph->nodes));
    if (graph->nodes == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to inspect a model");
    }
    for (uint32_t n = 0; n < graph->graph->node_count; n++) {
        const struct leat_cost cost = leat_node_cost(graph->graph, &graph->graph->nodes[n]);
        graph->nodes[n].node = &graph->graph->nodes[n];
        graph->nodes[n].flop = cost.product_flop > UINT64_MAX - cost.other_flop ? UINT64_MAX : cost.product_flop + cost.other_flop;
        graph->nodes[n].bytes = cost.bytes;
    }
    return status;
}

/* ---- Times -------------------------------------------------------------------------------------- */

/* The runs of one graph. */
struct timing {
    struct inspected_graph *graph;
    uint32_t step_count;
    uint64_t *marks_ns; /* [step_count + 1] of the run under way */
    double *samples_ns; /* [step_count + 1][RUNS_MAX] steps, then whole runs */
    void *inputs[LEAT_TENSORS_MAX];
    const struct leat_made_range *ranges; /* of inputs */
    enum leat_filling filling;
    uint64_t drawn; /* numbers so far: the same of both graphs */
};

static void
note_time(void *context, uint32_t count)
{
    struct timing *timing = context;
    timing->marks_ns[count] = leat_monotonic_ns();
}

/* Floats from -1 to 1, unless all is to be zeros or ones. */
static void
fill_inputs(struct timing *timing)
{
    const struct leat_graph *graph = timing->graph->graph;
    uint64_t state = 1;

    for (uint32_t i = 0; i < graph->input_count; i++) {
        const struct leat_value *value = &graph->values[graph->inputs[i]];
        const size_t elements = leat_value_elements(value);
        leat_made_fill(timing->filling, value->dtype, timing->ranges[i], elements, &timing->drawn, timing->inputs[i]);
        for (size_t e = 0; timing->filling == LEAT_FILLING_DRAWN && value->dtype == LEAT_DTYPE_F32 && e < elements; e++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            ((float *)timing->inputs[i])[e] = (float)(state >> 40) / 8388608.0f - 1.0f;
        }
    }
}

/* Other rows than in the run before, which are in the caches; what cannot differ stays. */
static void
draw_again(struct timing *timing)
{
    const struct leat_graph *graph = timing->graph->graph;

    for (uint32_t i = 0; timing->filling == LEAT_FILLING_DRAWN && i < graph->input_count; i++) {
        const struct leat_value *value = &graph->values[graph->inputs[i]];
        if (timing->ranges[i].end - timing->ranges[i].least > 1) {
            leat_made_fill(timing->filling, value->dtype, timing->ranges[i], leat_value_elements(value), &timing->drawn,
                           timing->inputs[i]);
        }
    }
}

static enum leat_status
make_inputs(struct timing *timing)
{
    const struct leat_graph *graph = timing->graph->graph;

    for (uint32_t i = 0; i < graph->input_count; i++) {
        const size_t bytes = leat_value_bytes(&graph->values[graph->inputs[i]]);
        timing->inputs[i] = aligned_alloc(64, (size_t)leat_round_up(bytes + 1, 64));
        if (timing->inputs[i] == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to inspect a model");
        }
    }
    fill_inputs(timing);
    return LEAT_OK;
}

static enum leat_status
open_timing(struct inspected_graph *graph, const struct leat_made_range *ranges, enum leat_filling filling,
            struct timing *timing)
{
    *timing = (struct timing){.graph = graph, .ranges = ranges, .filling = filling};
    timing->step_count = leat_inspection_step_count(graph->inspection);
    timing->marks_ns = calloc((size_t)timing->step_count + 1, sizeof(*timing->marks_ns));
    timing->samples_ns = calloc(((size_t)timing->step_count + 1) * RUNS_MAX, sizeof(*timing->samples_ns));
    if (timing->marks_ns == NULL || timing->samples_ns == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to inspect a model");
    }
    return make_inputs(timing);
}

static void
close_timing(struct timing *timing)
{
    for (uint32_t i = 0; i < LEAT_TENSORS_MAX; i++) {
        free(timing->inputs[i]);
    }
    free(timing->marks_ns);
    free(timing->samples_ns);
}

/* Once step by step, once as a whole; run 0 warms up and is written over. */
static enum leat_status
take_turn(struct timing *timing, struct leat_team *team, uint32_t run)
{
    const void *const *inputs = (const void *const *)timing->inputs;
    struct leat_inspection *inspection = timing->graph->inspection;
    const uint32_t place = run > 0 ? run - 1 : 0;

    draw_again(timing);
    enum leat_status status = leat_inspection_run(inspection, inputs, team, note_time, timing);
    for (uint32_t s = 0; s < timing->step_count; s++) {
        timing->samples_ns[s * RUNS_MAX + place] = (double)(timing->marks_ns[s + 1] - timing->marks_ns[s]);
    }
    draw_again(timing);
    const uint64_t start_ns = leat_monotonic_ns();
    if (status == LEAT_OK) {
        status = leat_inspection_run(inspection, inputs, team, NULL, NULL);
    }
    timing->samples_ns[timing->step_count * RUNS_MAX + place] = (double)(leat_monotonic_ns() - start_ns);
    return status;
}

static int
compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double
median(double *samples, uint32_t count)
{
    qsort(samples, count, sizeof(*samples), compare_doubles);
    return count % 2 != 0 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
}

static void
sum_up(struct timing *timing, uint32_t runs)
{
    struct inspected_graph *graph = timing->graph;
    double *longest = calloc((size_t)graph->graph->node_count + 1, sizeof(*longest));

    LEAT_ASSERT(longest != NULL);
    for (uint32_t s = 0; s < timing->step_count; s++) {
        const double ns = median(timing->samples_ns + s * RUNS_MAX, runs);
        struct leat_inspection_step step;
        leat_inspection_step(graph->inspection, s, &step);
        if (step.node == LEAT_VALUE_NONE) {
            graph->ends_ns += ns;
            continue;
        }
        struct inspected_node *node = &graph->nodes[step.node];
        node->ns += ns;
        node->convert_ns += step.converts ? ns : 0;
        if (ns >= longest[step.node] || node->kernel[0] == '\0') {
            longest[step.node] = ns;
            memcpy(node->kernel, step.kernel, sizeof(node->kernel));
        }
    }
    graph->run_ns = median(timing->samples_ns + timing->step_count * RUNS_MAX, runs);
    free(longest);
}

/* Before and after the passes, on the same inputs. */
static enum leat_status
time_filled(struct inspected *inspected, const struct leat_made_range *ranges, enum leat_filling filling,
            struct leat_team *team)
{
    struct timing timings[2] = {{.graph = NULL}};
    struct inspected_graph *graphs[2] = {&inspected->before, &inspected->after};
    const uint32_t wanted = inspected->order->runs;
    enum leat_status status = LEAT_OK;
    uint32_t runs = 0;

    for (int g = 0; g < 2 && status == LEAT_OK; g++) {
        status = open_timing(graphs[g], ranges, filling, &timings[g]);
    }
    for (int g = 0; g < 2 && status == LEAT_OK; g++) {
        status = take_turn(&timings[g], team, 0);
    }
    const uint64_t start_ns = leat_monotonic_ns();
    while (status == LEAT_OK && (wanted > 0 ? runs < wanted
                                            : runs < RUNS_MIN ||
                                                  (runs < RUNS_MAX && leat_monotonic_ns() - start_ns < runs_ns))) {
        runs++;
        for (int g = 0; g < 2 && status == LEAT_OK; g++) {
            status = take_turn(&timings[g], team, runs);
        }
    }
    inspected->runs = runs;
    for (int g = 0; g < 2; g++) {
        if (status == LEAT_OK) {
            sum_up(&timings[g], runs);
        }
        close_timing(&timings[g]);
    }
    return status;
}

/* On what the daemon would measure it on. */
static enum leat_status
time_graphs(struct inspected *inspected, struct leat_team *team)
{
    struct leat_made_range ranges[LEAT_TENSORS_MAX];

    enum leat_status status = leat_graph_made_ranges(inspected->before.graph, ranges);
    if (status == LEAT_OK) {
        status = time_filled(inspected, ranges, LEAT_FILLING_DRAWN, team);
    }
    while (status == LEAT_ERR_SHAPE && inspected->filling != LEAT_FILLING_ONES) {
        (void)snprintf(inspected->refused, sizeof(inspected->refused), "%s", leat_error_text());
        inspected->filling++;
        status = time_filled(inspected, ranges, inspected->filling, team);
    }
    return status;
}

/* The first CPUs that this process may use. */
static enum leat_status
choose_cpus(struct inspected *inspected)
{
    const uint32_t cores = inspected->order->cores;
    uint32_t count = 0;
    cpu_set_t usable;

    if (sched_getaffinity(0, sizeof(usable), &usable) != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "which CPUs may be used");
    }
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE && count < cores; cpu++) {
        if (CPU_ISSET(cpu, &usable)) {
            inspected->cpus[count++] = cpu;
        }
    }
    return count == cores ? LEAT_OK : LEAT_FAIL(LEAT_ERR_INVALID, "%u cores; there are %u", cores, count);
}

static enum leat_status
measure(struct inspected *inspected)
{
    struct leat_team *team = NULL;
    cpu_set_t before;

    enum leat_status status = choose_cpus(inspected);
    if (status != LEAT_OK) {
        return status;
    }
    LEAT_MUST(sched_getaffinity(0, sizeof(before), &before) == 0);
    const struct leat_team_options options = {
        .cpus = inspected->cpus, .size = inspected->order->cores, .spin_ns = TEAM_SPIN_NS};
    status = leat_team_create(&options, &team);
    if (status == LEAT_OK) {
        status = time_graphs(inspected, team);
    }
    leat_team_destroy(team);
    LEAT_MUST(sched_setaffinity(0, sizeof(before), &before) == 0);
    return status;
}

/* ---- The whole ---------------------------------------------------------------------------------- */

enum leat_status
inspect_model(const struct inspect_order *order, struct inspected *ret_inspected)
{
    struct inspected inspected = {.order = order};

    LEAT_ASSERT(order->cores >= 1 && order->cores <= INSPECT_CORES_MAX && order->runs <= RUNS_MAX);
    enum leat_status status = LEAT_OK;
    if ((leat_backend_precisions(&leat_backend_cpu) & LEAT_PRECISION_BIT(order->precision)) == 0) {
        status = LEAT_FAIL(LEAT_ERR_DEVICE, "backend 'cpu' does not have %s on this processor",
                           leat_precision_text(order->precision));
    }
    if (status == LEAT_OK) {
        status = import(order, &inspected.before, &inspected.file_nodes);
    }
    if (status == LEAT_OK) {
        status = find_one_by_one(&inspected);
    }
    if (status == LEAT_OK) {
        status = import(order, &inspected.after, &inspected.file_nodes);
    }
    if (status == LEAT_OK) {
        status = plan(order, &inspected.before);
    }
    if (status == LEAT_OK) {
        status = run_passes(&inspected);
    }
    if (status == LEAT_OK) {
        status = plan(order, &inspected.after);
    }
    if (status == LEAT_OK) {
        status = leat_inspection_numbers(inspected.after.inspection, inspected.before.source, &inspected.numbers);
    }
    if (status == LEAT_OK) {
        status = note_gone(&inspected.before, inspected.after.graph, "known shapes");
    }
    if (status == LEAT_OK) {
        status = measure(&inspected);
    }
    if (status != LEAT_OK) {
        inspect_free(&inspected);
        return status;
    }
    *ret_inspected = inspected;
    return LEAT_OK;
}

void
inspect_free(struct inspected *inspected)
{
    close_graph(&inspected->before);
    close_graph(&inspected->after);
}

double
inspect_total_ns(const struct inspected_graph *graph)
{
    double ns = graph->ends_ns;
    for (uint32_t n = 0; n < graph->graph->node_count; n++) {
        ns += graph->nodes[n].ns;
    }
    return ns;
}

double
inspect_total_flop(const struct inspected_graph *graph)
{
    double flop = 0;
    for (uint32_t n = 0; n < graph->graph->node_count; n++) {
        flop += (double)graph->nodes[n].flop;
    }
    return flop;
}

const char *
inspect_shape(const struct leat_graph *graph, const struct leat_node *node, char *text, size_t bytes)
{
    const struct leat_value *value = leat_node_output(graph, node, 0);
    size_t used = 0;

    if (value == NULL) {
        return strncpy(text, "-", bytes);
    }
    used = (size_t)snprintf(text, bytes, "%s[", leat_dtype_text(value->dtype));
    for (uint32_t d = 0; d < value->rank && used < bytes; d++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", d > 0 ? "," : "", (long long)value->dims[d]);
    }
    if (used < bytes) {
        (void)snprintf(text + used, bytes - used, "]");
    }
    return text;
}
