/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/align.h"
#include "kernels/op.h"
#include "runtime/json_text.h"
#include "tools/cli/cli.h"
#include "tools/cli/inspect.h"

/* ---- For people --------------------------------------------------------------------------------- */

static double
rate(double amount, double ns)
{
    return ns > 0 ? amount / ns : 0; /* of 10^9 a second */
}

static const char *
fused_text(const struct leat_node *node, char *text, size_t bytes)
{
    static const char *const activations[] = {
        [LEAT_ACTIVATION_NONE] = "",
        [LEAT_ACTIVATION_RELU] = "+Relu",
        [LEAT_ACTIVATION_CLIP] = "+Clip",
        [LEAT_ACTIVATION_SIGMOID] = "+Sigmoid",
        [LEAT_ACTIVATION_TANH] = "+Tanh",
        [LEAT_ACTIVATION_SWISH] = "+Swish",
        [LEAT_ACTIVATION_HARD_SWISH] = "+HardSwish",
        [LEAT_ACTIVATION_GELU] = "+Gelu",
        [LEAT_ACTIVATION_GELU_TANH] = "+Gelu",
        [LEAT_ACTIVATION_LEAKY_RELU] = "+LeakyRelu",
    };
    _Static_assert(LEAT_COUNT_OF(activations) == LEAT_ACTIVATION_COUNT, "each has a name");

    LEAT_ASSERT((uint32_t)node->fused_activation < LEAT_ACTIVATION_COUNT);
    (void)snprintf(text, bytes, "%s%s%s", node->op->name, node->fused_add != LEAT_VALUE_NONE ? "+Add" : "",
                   activations[node->fused_activation]);
    return text;
}

static void
print_graph(const struct inspected_graph *graph, FILE *out)
{
    const double total_ns = inspect_total_ns(graph);
    char operator[64], shape[96];

    (void)fprintf(out, "  %-22s %-36s %-22s %11s %6s %10s %8s %10s %7s  %s\n", "operator", "node", "result", "time", "share",
                  "MFLOP", "GFLOP/s", "KiB", "GB/s", "kernel");
    for (uint32_t n = 0; n < graph->graph->node_count; n++) {
        const struct inspected_node *node = &graph->nodes[n];
        (void)fprintf(out, "  %-22s %-36.36s %-22s %11s %5.1f%% %10.3f %8.1f %10.1f %7.1f  %s%s%s\n",
                      fused_text(node->node, operator, sizeof(operator)), node->node->name,
                      inspect_shape(graph->graph, node->node, shape, sizeof(shape)), format_ns(node->ns).text,
                      total_ns > 0 ? node->ns / total_ns * 100 : 0, (double)node->flop / 1e6, rate((double)node->flop, node->ns),
                      (double)node->bytes / 1024, rate((double)node->bytes, node->ns), node->kernel,
                      node->gone_by != NULL ? "  gone by " : "", node->gone_by != NULL ? node->gone_by : "");
        if (node->convert_ns > 0) {
            (void)fprintf(out, "  %-82s %11s %5.1f%%\n", "  of which layouts", format_ns(node->convert_ns).text,
                          node->convert_ns / total_ns * 100);
        }
    }
    if (graph->ends_ns > 0) {
        (void)fprintf(out, "  %-82s %11s %5.1f%%\n", "results made plain", format_ns(graph->ends_ns).text,
                      graph->ends_ns / total_ns * 100);
    }
}

static void
print_summary(const char *when, const struct inspected_graph *graph, FILE *out)
{
    const double over = graph->bound_bytes > 0 ? (double)graph->planned_bytes / (double)graph->bound_bytes * 100 - 100 : 0;

    (void)fprintf(out,
                  "%s: %u nodes, %s a run, %s step by step, %.4g GFLOP at %.1f GFLOP/s; memory %s, at least %s (+%.1f %%); "
                  "weights %s; inputs copied: %u of %u\n",
                  when, graph->graph->node_count, format_ns(graph->run_ns).text, format_ns(inspect_total_ns(graph)).text,
                  inspect_total_flop(graph) / 1e9, rate(inspect_total_flop(graph), graph->run_ns),
                  format_bytes((double)graph->planned_bytes).text, format_bytes((double)graph->bound_bytes).text, over,
                  format_bytes((double)graph->model_bytes).text, graph->copied, graph->graph->input_count);
}

/* Of a file that is quantised: nothing is in floats there without a word. */
static void
print_numbers(const struct leat_inspection_numbers *numbers, FILE *out)
{
    const char *before = "; in floats:";

    if (numbers->products == 0) {
        return;
    }
    (void)fprintf(out, "  products of 8-bit numbers: %u", numbers->products);
    for (uint32_t why = 0; why < LEAT_IN_FLOATS_COUNT; why++) {
        if (numbers->in_floats[why] > 0) {
            (void)fprintf(out, "%s %u (%s)", before, numbers->in_floats[why], leat_in_floats_text(why));
            before = ",";
        }
    }
    (void)fprintf(out, "\n");
}

void
inspect_print(const struct inspected *inspected, FILE *out)
{
    const struct inspect_order *order = inspected->order;
    uint32_t count = inspected->file_nodes;

    (void)fprintf(out, "%s: %u item%s in %s on %u core%s (CPU", order->name, order->items, order->items == 1 ? "" : "s",
                  leat_precision_text(order->precision), order->cores, order->cores == 1 ? "" : "s");
    for (uint32_t c = 0; c < order->cores; c++) {
        (void)fprintf(out, " %u", inspected->cpus[c]);
    }
    (void)fprintf(out, "), medians of %u runs\n", inspected->runs);
    if (inspected->one_by_one) {
        (void)fprintf(out, "run for one item at a time: items of a batch may meet, or sizes depend on what is in them\n");
    }
    if (inspected->before.source->misdeclared != NULL) {
        (void)fprintf(out, "%s\n", inspected->before.source->misdeclared);
    }
    if (inspected->filling != LEAT_FILLING_DRAWN) {
        (void)fprintf(out, "run on %s: it refuses %s: %s\n", leat_filling_text(inspected->filling),
                      leat_filling_text(inspected->filling - 1), inspected->refused);
    }
    for (size_t p = 0; p < leat_all_pass_count; p++) {
        if ((order->passes >> p & 1) == 0) {
            (void)fprintf(out, "without %s: %s\n", leat_passes[p].name, leat_passes[p].doc);
        }
    }
    (void)fprintf(out, "passes: %u nodes in the file", inspected->file_nodes);
    for (uint32_t p = 0; p < inspected->pass_count; p++) {
        if (inspected->passes[p].node_count != count) {
            count = inspected->passes[p].node_count;
            (void)fprintf(out, "; %u after %s", count, inspected->passes[p].name);
        }
    }
    (void)fprintf(out, "\n");
    print_summary("before", &inspected->before, out);
    print_graph(&inspected->before, out);
    print_summary("after", &inspected->after, out);
    print_numbers(&inspected->numbers, out);
    print_graph(&inspected->after, out);
}

/* ---- As JSON ------------------------------------------------------------------------------------ */

/* The node that computes a value; -1: an input, or a constant. */
static json_int_t
producer_of(const struct leat_graph *graph, uint32_t value, uint32_t before)
{
    for (uint32_t n = before; value != LEAT_VALUE_NONE && n-- > 0;) {
        for (uint32_t o = 0; o < graph->nodes[n].output_count; o++) {
            if (graph->nodes[n].outputs[o] == value) {
                return n;
            }
        }
    }
    return -1;
}

static json_t *
node_json(const struct inspected_graph *graph, uint32_t n)
{
    const struct inspected_node *node = &graph->nodes[n];
    json_t *from = json_array();
    char operator[64], shape[160];

    for (uint32_t i = 0; i <= node->node->input_count; i++) {
        const uint32_t value = i < node->node->input_count ? node->node->inputs[i] : node->node->fused_add;
        const json_int_t producer = producer_of(graph->graph, value, n);
        if (producer >= 0) {
            (void)json_array_append_new(from, json_integer(producer));
        }
    }
    json_t *object =
        json_pack("{s:s, s:s%, s:s, s:f, s:f, s:I, s:I, s:s, s:o}", "op", fused_text(node->node, operator, sizeof(operator)),
                  "name", node->node->name, strlen(node->node->name), "result",
                  inspect_shape(graph->graph, node->node, shape, sizeof(shape)), "time_ns", node->ns, "layouts_ns",
                  node->convert_ns, "flop", (json_int_t)(node->flop & INT64_MAX), "bytes", (json_int_t)(node->bytes & INT64_MAX),
                  "kernel", node->kernel, "from", from);
    if (object == NULL) { /* a name that is not UTF-8 */
        return json_pack("{s:s, s:f}", "op", operator, "time_ns", node->ns);
    }
    if (node->gone_by != NULL) {
        (void)json_object_set_new(object, "gone_by", json_string(node->gone_by));
    }
    return object;
}

static json_t *
graph_json(const struct inspected_graph *graph)
{
    json_t *nodes = json_array();

    for (uint32_t n = 0; n < graph->graph->node_count; n++) {
        (void)json_array_append_new(nodes, node_json(graph, n));
    }
    return json_pack("{s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:i, s:i, s:o}", "run_ns", graph->run_ns, "steps_ns",
                     inspect_total_ns(graph), "ends_ns", graph->ends_ns, "flop", inspect_total_flop(graph), "planned_bytes",
                     (json_int_t)graph->planned_bytes, "bound_bytes", (json_int_t)graph->bound_bytes, "model_bytes",
                     (json_int_t)graph->model_bytes, "inputs", (int)graph->graph->input_count, "inputs_copied",
                     (int)graph->copied, "nodes", nodes);
}

static json_t *
numbers_json(const struct leat_inspection_numbers *numbers)
{
    json_t *reasons = json_array();

    for (uint32_t why = 0; why < LEAT_IN_FLOATS_COUNT; why++) {
        if (numbers->in_floats[why] > 0) {
            (void)json_array_append_new(reasons, json_pack("{s:i, s:s}", "products", (int)numbers->in_floats[why], "why",
                                                           leat_in_floats_text(why)));
        }
    }
    return json_pack("{s:i, s:o}", "products", (int)numbers->products, "in_floats", reasons);
}

void
inspect_print_json(const struct inspected *inspected)
{
    const struct inspect_order *order = inspected->order;
    json_t *passes = json_array(), *without = json_array(), *cpus = json_array();

    for (uint32_t p = 0; p < inspected->pass_count; p++) {
        (void)json_array_append_new(passes, json_pack("{s:s, s:i}", "pass", inspected->passes[p].name, "nodes",
                                                      (int)inspected->passes[p].node_count));
    }
    for (size_t p = 0; p < leat_all_pass_count; p++) {
        if ((order->passes >> p & 1) == 0) {
            (void)json_array_append_new(without, json_string(leat_passes[p].name));
        }
    }
    for (uint32_t c = 0; c < order->cores; c++) {
        (void)json_array_append_new(cpus, json_integer(inspected->cpus[c]));
    }
    json_t *shown = json_pack("{s:s, s:i, s:b, s:s, s:s, s:o, s:i, s:i, s:o, s:o, s:o, s:o, s:o}", "model", order->name, "items",
                         (int)order->items,
                         "one_by_one", (int)inspected->one_by_one,
                         "filled_with", leat_filling_text(inspected->filling),
                         "precision", leat_precision_text(order->precision), "cpus", cpus, "runs", (int)inspected->runs,
                         "nodes_in_file", (int)inspected->file_nodes, "passes", passes, "without", without, "before",
                         graph_json(&inspected->before),
                         "after", graph_json(&inspected->after), "numbers", numbers_json(&inspected->numbers));
    if (inspected->before.source->misdeclared != NULL) {
        (void)json_object_set_new(shown, "misdeclared", leat_json_text(inspected->before.source->misdeclared));
    }
    print_json(shown);
}

void
inspect_list_passes(bool json)
{
    json_t *passes = json_array();

    for (size_t p = 0; p < leat_all_pass_count; p++) {
        if (!json) {
            (void)printf("%-18s %s\n", leat_passes[p].name, leat_passes[p].doc);
        }
        (void)json_array_append_new(
            passes, json_pack("{s:s, s:s}", "pass", leat_passes[p].name, "does", leat_passes[p].doc));
    }
    if (json) {
        print_json(json_pack("{s:O}", "passes", passes));
    }
    json_decref(passes);
}
