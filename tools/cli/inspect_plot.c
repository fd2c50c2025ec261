/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The picture of a model: its nodes before and after the passes, in order, each with a bar as long as its time; arcs lead from a
 * node to those that read its results and are not next to it, lines from a node to what became of it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/op.h"
#include "tools/cli/cli.h"
#include "tools/cli/inspect.h"
#include "tools/simulate/plot.h"

enum {
    ROW = 14,
    TOP = 116,
    ARCS = 90, /* room for arcs, left of a column */
    NAMES = 250,
    BARS = 220,
    BETWEEN = 60, /* columns */
    NAME_BYTES = 38, /* as many as there is room for */
    MARGIN = 16,
};

struct column {
    FILE *out;
    const struct inspected_graph *graph;
    double x;       /* of the names */
    double most_ns; /* the longest bar, in both columns */
};

enum kind { PRODUCTS, REDUCTIONS, MOVES, OTHERS, KINDS };
static const char *const kind_texts[KINDS] = {"products and convolutions", "reductions and pools", "moves", "others"};

static enum kind
kind_of(const struct inspected_node *node)
{
    const char *name = node->node->op->name;

    if (strstr(name, "Conv") != NULL || strstr(name, "MatMul") != NULL || strcmp(name, "Gemm") == 0 ||
        strcmp(name, "LSTM") == 0 || strcmp(name, "GRU") == 0 || strcmp(name, "RNN") == 0) {
        return PRODUCTS;
    }
    if (strncmp(name, "Reduce", 6) == 0 || strstr(name, "Pool") != NULL || strcmp(name, "Softmax") == 0 ||
        strstr(name, "Normalization") != NULL) {
        return REDUCTIONS;
    }
    return node->flop == 0 ? MOVES : OTHERS;
}

static double
middle_of(uint32_t row)
{
    return TOP + ROW * (row + 0.5);
}

static void
put_text(FILE *out, double x, double y, const char *attributes, const char *text)
{
    (void)fprintf(out, "<text x=\"%.1f\" y=\"%.1f\"%s%s>", x, y, attributes[0] != '\0' ? " " : "", attributes);
    plot_put_text(out, text);
    (void)fputs("</text>\n", out);
}

static void
put_node(const struct column *column, uint32_t n)
{
    const struct inspected_node *node = &column->graph->nodes[n];
    const double y = TOP + ROW * (double)n, left = column->x + NAMES;
    const double wide = column->most_ns > 0 ? BARS * node->ns / column->most_ns : 0;
    const double converts = column->most_ns > 0 ? BARS * node->convert_ns / column->most_ns : 0;
    char shape[96], text[512];

    (void)fputs("<g><title>", column->out);
    (void)snprintf(text, sizeof(text), "%.200s: %s, %s, %.3f MFLOP, %.1f GFLOP/s, %s, %s%s%s", node->node->name,
                   inspect_shape(column->graph->graph, node->node, shape, sizeof(shape)), format_ns(node->ns).text,
                   (double)node->flop / 1e6, node->ns > 0 ? (double)node->flop / node->ns : 0,
                   format_bytes((double)node->bytes).text, node->kernel[0] != '\0' ? node->kernel : "costs nothing",
                   node->gone_by != NULL ? "; gone by " : "", node->gone_by != NULL ? node->gone_by : "");
    plot_put_text(column->out, text);
    (void)fputs("</title>\n", column->out);
    (void)snprintf(text, sizeof(text), "%s%s%s  %.40s", node->node->op->name,
                   node->node->fused_add != LEAT_VALUE_NONE ? " + Add" : "",
                   node->node->fused_activation != LEAT_ACTIVATION_NONE ? " + activation" : "", node->node->name);
    text[NAME_BYTES] = '\0'; /* perhaps inside a character, which is a '?' then */
    put_text(column->out, column->x, y + ROW - 4, node->gone_by != NULL ? "fill=\"#999\"" : "", text);
    (void)fprintf(column->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n", left, y + 2, wide,
                  ROW - 4, plot_colour(kind_of(node)));
    if (converts > 0) {
        (void)fprintf(column->out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"#000\" fill-opacity=\"0.45\"/>\n",
                      left + wide - converts, y + 2, converts, ROW - 4);
    }
    (void)fputs("</g>\n", column->out);
}

/* From each producer that is not the row above. */
static void
put_arcs(const struct column *column, uint32_t n, const uint32_t *producers)
{
    const struct leat_node *node = column->graph->nodes[n].node;

    for (uint32_t i = 0; i <= node->input_count; i++) {
        const uint32_t value = i < node->input_count ? node->inputs[i] : node->fused_add;
        const uint32_t from = value != LEAT_VALUE_NONE ? producers[value] : UINT32_MAX;
        if (from == UINT32_MAX || from + 1 == n) {
            continue;
        }
        const double reach = fmin(ARCS - 10, 8 + 8 * log2((double)(n - from)));
        (void)fprintf(column->out, "<path d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f\"/>\n", column->x - 3, middle_of(from),
                      column->x - 3 - reach, middle_of(from), column->x - 3 - reach, middle_of(n), column->x - 3, middle_of(n));
    }
}

static void
put_column(const struct column *column, const char *title)
{
    const struct leat_graph *graph = column->graph->graph;
    uint32_t *producers = malloc(((size_t)graph->value_count + 1) * sizeof(*producers));
    char text[160];

    put_text(column->out, column->x, TOP - 34, "font-size=\"13\" font-weight=\"bold\"", title);
    (void)snprintf(text, sizeof(text), "%u nodes, %s a run; memory %s, at least %s", graph->node_count,
                   format_ns(column->graph->run_ns).text, format_bytes((double)column->graph->planned_bytes).text,
                   format_bytes((double)column->graph->bound_bytes).text);
    put_text(column->out, column->x, TOP - 18, "fill=\"#555\"", text);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        put_node(column, n);
    }
    if (producers == NULL) {
        return;
    }
    memset(producers, 0xff, ((size_t)graph->value_count + 1) * sizeof(*producers));
    (void)fputs("<g fill=\"none\" stroke=\"#888\" stroke-width=\"0.8\">\n", column->out);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        put_arcs(column, n, producers);
        for (uint32_t o = 0; o < graph->nodes[n].output_count; o++) {
            if (graph->nodes[n].outputs[o] != LEAT_VALUE_NONE) {
                producers[graph->nodes[n].outputs[o]] = n;
            }
        }
    }
    (void)fputs("</g>\n", column->out);
    free(producers);
}

struct place {
    const char *name;
    uint32_t row;
};

static int
compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order != 0 ? order : (x->row > y->row) - (x->row < y->row);
}

static int
compare_name(const void *name, const void *place)
{
    return strcmp(name, ((const struct place *)place)->name);
}

/* From each node that is still there to where it is. */
static void
put_ties(const struct inspected *inspected, FILE *out, double from, double to)
{
    const struct inspected_graph *before = &inspected->before, *after = &inspected->after;
    struct place *places = calloc((size_t)after->graph->node_count + 1, sizeof(*places));

    if (places == NULL) {
        return;
    }
    for (uint32_t n = 0; n < after->graph->node_count; n++) {
        places[n] = (struct place){.name = after->nodes[n].node->name, .row = n};
    }
    qsort(places, after->graph->node_count, sizeof(*places), compare_places);
    (void)fputs("<g stroke=\"#ccc\" stroke-width=\"0.6\">\n", out);
    for (uint32_t n = 0; n < before->graph->node_count; n++) {
        const struct place *place =
            bsearch(before->nodes[n].node->name, places, after->graph->node_count, sizeof(*places), compare_name);
        if (place != NULL) {
            (void)fprintf(out, "<path d=\"M%.1f %.1fL%.1f %.1f\"/>\n", from, middle_of(n), to, middle_of(place->row));
        }
    }
    (void)fputs("</g>\n", out);
    free(places);
}

static void
put_legend(FILE *out)
{
    double x = MARGIN;

    for (uint32_t k = 0; k < KINDS; k++) {
        (void)fprintf(out, "<rect x=\"%.1f\" y=\"46\" width=\"10\" height=\"10\" fill=\"%s\"/>\n", x, plot_colour(k));
        put_text(out, x + 15, 55, "", kind_texts[k]);
        x += 30 + 6.5 * (double)strlen(kind_texts[k]);
    }
    (void)fprintf(out, "<rect x=\"%.1f\" y=\"46\" width=\"10\" height=\"10\" fill=\"#000\" fill-opacity=\"0.45\"/>\n", x);
    put_text(out, x + 15, 55, "", "of which layouts");
}

/* What is above the second column. */
static const char *
without_text(uint64_t passes, char *text, size_t bytes)
{
    const char *name = "";
    uint32_t count = 0;

    for (size_t p = 0; p < leat_all_pass_count; p++) {
        if ((passes >> p & 1) == 0) {
            name = leat_passes[p].name;
            count++;
        }
    }
    (void)(count > 1 ? snprintf(text, bytes, "after the passes, without %u of them", count)
                     : snprintf(text, bytes, "after the passes%s%s", count == 1 ? ", without " : "", name));
    return text;
}

void
inspect_plot(const void *of, FILE *out)
{
    const struct inspected *inspected = of;
    const struct inspect_order *order = inspected->order;
    const uint32_t before = inspected->before.graph->node_count, after = inspected->after.graph->node_count;
    const double columns = MARGIN + ARCS + NAMES + BARS, width = 2 * columns + BETWEEN;
    const double height = TOP + (double)ROW * (before > after ? before : after) + MARGIN;
    struct column column = {.out = out, .graph = &inspected->before, .x = MARGIN + ARCS};
    char text[256];

    for (uint32_t n = 0; n < before; n++) {
        column.most_ns = fmax(column.most_ns, inspected->before.nodes[n].ns);
    }
    for (uint32_t n = 0; n < after; n++) {
        column.most_ns = fmax(column.most_ns, inspected->after.nodes[n].ns);
    }
    (void)fprintf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
                  "font-family=\"sans-serif\" font-size=\"11\" fill=\"#222\" role=\"img\">\n<title>",
                  width, height, width, height);
    (void)snprintf(text, sizeof(text), "Where the time of %.120s goes", order->name);
    plot_put_text(out, text);
    (void)fprintf(out, "</title>\n<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n", width, height);
    put_text(out, MARGIN, 22, "font-size=\"16\" font-weight=\"bold\"", text);
    (void)snprintf(text, sizeof(text), "%u item%s in %s on %u core%s, medians of %u runs; the longest bar is %s", order->items,
                   order->items == 1 ? "" : "s", leat_precision_text(order->precision), order->cores, order->cores == 1 ? "" : "s",
                   inspected->runs, format_ns(column.most_ns).text);
    put_text(out, MARGIN, 38, "fill=\"#555\"", text);
    put_legend(out);
    put_ties(inspected, out, columns + 4, columns + BETWEEN + ARCS - 8);
    put_column(&column, "before the passes");
    column.graph = &inspected->after;
    column.x += columns + BETWEEN - MARGIN;
    put_column(&column, without_text(order->passes, text, sizeof(text)));
    (void)fputs("</svg>\n", out);
}
