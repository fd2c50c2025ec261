/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/inspect.h - leat model inspect: a model's graph before and after passes, and where its time goes. */
#ifndef LEAT_TOOLS_INSPECT_H
#define LEAT_TOOLS_INSPECT_H

#include <jansson.h>
#include <stdio.h>

#include "kernels/backend.h"
#include "kernels/cpu/inspect.h"
#include "kernels/graph.h"
#include "kernels/made_inputs.h"

enum { INSPECT_CORES_MAX = 64, INSPECT_RUNS_MAX = 101 };
#define INSPECT_MEMORY_BYTES (UINT64_C(32) << 30) /* what limits.model_memory is where nothing is said */

/* What the command line says of it. */
struct inspect_flags {
    const char *socket_path, *svg, *precision; /* precision NULL: not said */
    const char *without; /* names of passes; NULL: none */
    bool json, passes; /* passes: they are listed, nothing is run */
    uint64_t items, runs; /* runs is 0: not said */
    uint32_t cores;
    const json_t *dims; /* values of free dimensions by their names; {}: not said */
    const json_t *constants; /* numbers that inputs always are, likewise */
    uint64_t memory; /* bytes that the model may take; 0: not said */
    uint64_t trips;  /* iterations of all its loops in one run; 0: likewise */
};

/* FILE.onnx or NAME; an exit code. */
int model_inspect(int argc, char **argv, const struct inspect_flags *flags);

struct inspect_order {
    const char *name; /* of the model, to be shown */
    const void *file;
    size_t file_bytes;
    uint32_t items, cores;
    uint32_t runs; /* 0: as many as fit into some seconds */
    enum leat_precision precision;
    uint64_t passes; /* that are run: a mask, as leat_graph_optimise() */
    const struct leat_onnx_file *files; /* of data beside it */
    uint32_t file_count;
    const json_t *ranges; /* of values, as the daemon calibrated it; NULL: none */
    struct leat_dim_value dims[LEAT_GRAPH_SYMBOLS_MAX]; /* of free dimensions */
    const char *batch; /* which of them counts items; NULL: the first of each input */
    uint32_t dim_count;
    struct leat_constant_input constants[LEAT_CONSTANT_INPUTS_MAX]; /* inputs that are none of its graph's */
    uint32_t constant_count;
    uint64_t memory_bytes_max; /* of each of its two graphs, as leat_onnx_source */
    uint32_t trips_max;        /* likewise */
};

struct inspected_node {
    const struct leat_node *node;
    uint64_t flop, bytes;
    double ns, convert_ns; /* medians; the time with conversions between layouts, and theirs */
    const char *gone_by;   /* before the passes: what took it away; NULL: it is still there after them */
    char kernel[64];       /* of the step that takes longest; "": none, it costs nothing */
};

/* A graph as it is run. */
struct inspected_graph {
    struct leat_graph *source;
    struct leat_inspection *inspection;
    const struct leat_graph *graph;
    struct inspected_node *nodes; /* [graph->node_count] */
    double run_ns;  /* median of whole runs, without looking at the clock between steps */
    double ends_ns; /* conversions of results, which are no node's */
    size_t planned_bytes, bound_bytes, model_bytes;
    uint32_t copied; /* inputs of which a batch's items become one block first */
};

struct inspected_pass {
    const char *name;
    uint32_t node_count; /* behind it */
};

struct inspected {
    const struct inspect_order *order;
    uint32_t cpus[INSPECT_CORES_MAX]; /* [order->cores] */
    uint32_t runs;
    uint32_t file_nodes;
    bool one_by_one; /* the daemon runs it for one item at a time */
    enum leat_filling filling; /* of its inputs */
    char refused[160]; /* why it is no earlier one */
    struct inspected_pass passes[64]; /* those that were run */
    uint32_t pass_count;
    struct leat_inspection_numbers numbers;
    struct inspected_graph before, after;
};

/* Of both graphs. The caller has no other threads; it is left where it was. On failure nothing is held. */
LEAT_MUST_CHECK enum leat_status inspect_model(const struct inspect_order *order, struct inspected *ret_inspected);
void inspect_free(struct inspected *inspected);

void inspect_print(const struct inspected *inspected, FILE *out);
void inspect_print_json(const struct inspected *inspected);
void inspect_list_passes(bool json); /* a line each, in the order in which they run */
void inspect_plot(const void *of, FILE *out); /* of a struct inspected; SVG, as tools/simulate/plot.h */

/* Time of all nodes and what is no node's; FLOP of all nodes. */
double inspect_total_ns(const struct inspected_graph *graph);
double inspect_total_flop(const struct inspected_graph *graph);
/* "f32[1,64,112,112]" of a node's first result. */
const char *inspect_shape(const struct leat_graph *graph, const struct leat_node *node, char *text, size_t bytes);

#endif /* LEAT_TOOLS_INSPECT_H */
