/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     No pass is needed: with any of them left out, and with all of them, every network of leat-zoo gives the answers
 *          that it gives with all passes. None is there for nothing either.
 * Method   Test sizes at nominal lengths, bound before the passes, as the daemon does, and behind them; weights and inputs
 *          by the seed. The reference backend on what the other passes make of a network is as near to itself on what all
 *          make as one pass may be, the cpu backend as near to that as it may be on whole networks; and four times as far
 *          as the network's own answers move when its inputs do by 2^-22, for some of those with random weights amplify
 *          any rounding. A pass that changes nothing among all others changes nothing by being left out, and is not tried.
 *          Plans without results in place, or without memory that several have, give the same bits in every precision, and the
 *          latter take more; without layouts that are handed on they are as near as without any pass, in other precisions than
 *          f32 within 5 % of the largest. Without all three, all values are plain and no two have memory in common.
 *          With a sanitizer each is left out of a fifth of the networks that it has work in, the first of them always.
 *          No network here is quantised or has an Einsum: for the passes that are for these, tests/kernels/test_passes.c
 *          and test_qlinear.c see to the same. None has channels last either: three get Transposes around their Adds and
 *          Relus, as exporters from such frameworks write them, give the same answers with and without the pass that is for
 *          these, and are with it what they were.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/cpu/calibrate.h"
#include "kernels/cpu/program.h"
#include "kernels/graph_build.h"
#include "kernels/op.h"
#include "tests/kernels/drawn_numbers.h"
#include "tests/leat_test.h"
#include "tests/zoo_lengths.h"
#include "tools/zoo/zoo.h"

enum { ITEMS = 3, PASSES_MAX = 64, CHANNELS_LAST = 3 };

struct network {
    const struct zoo_model *model;
    void *file;
    size_t file_bytes;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t input_count, tensor_count;
    bool one_by_one, has_lengths;
    bool channels_last; /* around Adds and Relus */
    int64_t ends[LEAT_TENSORS_MAX]; /* of indices */
    void *inputs[LEAT_TENSORS_MAX]; /* ITEMS items */
    float slack[LEAT_TENSORS_MAX];  /* of outputs: what rounding may come to */
    enum leat_precision precision;
    const struct leat_calibration *calibration; /* for int8 */
};

/* What a backend gives for all items. */
struct answer {
    void *outputs[LEAT_TENSORS_MAX]; /* by tensor; inputs are NULL */
    uint16_t *sizes;                 /* of what varies */
    size_t size_count, scratch_bytes;
};

/* ---- Networks ----------------------------------------------------------------------------------- */

static void
note_ends(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    struct network *network = context;
    (void)model;

    for (uint32_t t = 0; t < summary->input_count; t++) {
        network->ends[t] = summary->inputs[t].end;
    }
}

/* Puts a Transpose of `from` behind the last node; where there is no `to`, into a value of its own, which is returned. */
static uint32_t
put_transpose(struct leat_graph *graph, uint32_t from, const int64_t perm[4], uint32_t to)
{
    const struct leat_value x = graph->values[from];
    const struct leat_attribute attribute = {.name = "perm", .kind = LEAT_ATTRIBUTE_INTS, .count = 4, .ints = perm};

    if (to == LEAT_VALUE_NONE) {
        EXPECT(leat_graph_add_value(graph, x.name, x.dtype, x.rank, x.dims, &to) == LEAT_OK);
    }
    EXPECT(leat_graph_add_node(graph, leat_op_find("Transpose", graph->opset), x.name, &from, 1, &to, 1, &attribute, 1) ==
           LEAT_OK);
    EXPECT(leat_graph_infer_node(graph, &graph->nodes[graph->node_count - 1]) == LEAT_OK);
    return to;
}

static bool
has_channels(const struct leat_graph *graph, const struct leat_node *node)
{
    bool has = node->op->kind == LEAT_OP_ADD || node->op->kind == LEAT_OP_RELU;
    for (uint32_t i = 0; has && i < node->input_count; i++) {
        has = leat_node_input(graph, node, i)->rank == 4 && leat_node_input(graph, node, i)->data == NULL;
    }
    return has;
}

static void
put_channels_last(struct leat_graph *graph)
{
    static const int64_t last[] = {0, 2, 3, 1}, back[] = {0, 3, 1, 2};
    uint32_t count;

    struct leat_node *nodes = leat_graph_take_nodes(graph, &count);
    for (uint32_t n = 0; n < count; n++) {
        struct leat_node node = nodes[n];
        const uint32_t result = node.outputs[0];
        if (!has_channels(graph, &node)) {
            EXPECT(leat_graph_put_node(graph, &node) == LEAT_OK);
            continue;
        }
        for (uint32_t i = 0; i < node.input_count; i++) {
            node.inputs[i] = put_transpose(graph, node.inputs[i], last, LEAT_VALUE_NONE);
        }
        const struct leat_value y = graph->values[result];
        EXPECT(leat_graph_add_value(graph, y.name, y.dtype, y.rank, y.dims, &node.outputs[0]) == LEAT_OK);
        EXPECT(leat_graph_infer_node(graph, &node) == LEAT_OK && leat_graph_put_node(graph, &node) == LEAT_OK);
        (void)put_transpose(graph, node.outputs[0], back, result);
    }
}

static struct leat_graph *
import(const struct network *network)
{
    struct leat_graph *graph = NULL;

    EXPECT(leat_onnx_import(network->file, network->file_bytes, &graph) == LEAT_OK);
    if (network->channels_last) {
        put_channels_last(graph);
    }
    return graph;
}

static void
bind(const struct network *network, struct leat_graph *graph)
{
    EXPECT(zoo_lengths(network->model, ZOO_SIZE_TEST, graph) == LEAT_OK);
}

/* Indices below their end, or f32 in [-1, 1). */
static void
make_inputs(struct network *network)
{
    uint64_t random = leat_test_seed;

    for (uint32_t t = 0; t < network->input_count; t++) {
        const struct leat_tensor_info *info = &network->infos[t];
        network->inputs[t] = aligned(ITEMS * info->item_bytes);
        for (size_t i = 0; i < ITEMS * info->item_bytes / leat_dtype_bytes(info->dtype); i++) {
            const uint64_t bits = leat_test_random(&random);
            if (info->dtype == LEAT_DTYPE_I64) {
                ((int64_t *)network->inputs[t])[i] = (int64_t)(bits % (uint64_t)network->ends[t]);
            } else {
                ((float *)network->inputs[t])[i] = (float)(bits % 2000) / 1000.0f - 1.0f;
            }
        }
    }
}

static void
make_network(const struct zoo_model *model, struct network *network)
{
    uint32_t output_count;

    *network = (struct network){.model = model};
    EXPECT(zoo_write(model, ZOO_SIZE_TEST, leat_test_seed, &network->file, &network->file_bytes) == LEAT_OK);
    EXPECT(zoo_describe(model, ZOO_SIZE_TEST, note_ends, network) == LEAT_OK);
    struct leat_graph *graph = import(network);
    network->has_lengths = graph->symbol_count > 0;
    bind(network, graph);
    enum leat_status status = leat_graph_signature(graph, network->infos, &network->input_count, &output_count);
    if (status == LEAT_ERR_UNSUPPORTED) { /* as the daemon does */
        network->one_by_one = true;
        status = leat_graph_signature_of_one(graph, network->infos, &network->input_count, &output_count);
    }
    EXPECT(status == LEAT_OK);
    network->tensor_count = network->input_count + output_count;
    leat_graph_destroy(graph);
    make_inputs(network);
}

static void
destroy_network(struct network *network)
{
    for (uint32_t t = 0; t < network->input_count; t++) {
        free(network->inputs[t]);
    }
    free(network->file);
}

/* ---- Passes ------------------------------------------------------------------------------------- */

/* Those that change the graph, each behind all that come before it; its lengths are open, or bound. */
static uint64_t
find_busy(const struct network *network, bool open)
{
    struct leat_graph *graph = import(network);
    uint64_t busy = 0;

    if (!open) {
        bind(network, graph);
    }
    for (size_t p = 0; p < leat_pass_count; p++) {
        bool changed = false;
        EXPECT(leat_passes[p].run(graph, &changed) == LEAT_OK);
        if (changed) {
            EXPECT(leat_graph_infer(graph) == LEAT_OK);
            busy |= UINT64_C(1) << p;
        }
    }
    leat_graph_destroy(graph);
    return busy;
}

static void
answer(const struct leat_backend *backend, const struct network *network, bool open, uint64_t passes, struct answer *answer)
{
    struct leat_graph *graph = import(network);
    const struct leat_model_source source = {.graph = graph,
                                             .precision = network->precision,
                                             .infos = network->infos,
                                             .input_count = network->input_count,
                                             .output_count = network->tensor_count - network->input_count,
                                             .one_by_one = network->one_by_one};
    struct leat_segment segment = {.items = ITEMS};
    struct leat_model *model;
    struct leat_plan *plan;

    if (!open) {
        bind(network, graph);
    }
    EXPECT(leat_graph_optimise(graph, passes) == LEAT_OK && leat_graph_check(graph) == LEAT_OK);
    if (open) {
        bind(network, graph);
    }
    for (uint32_t i = 0; network->calibration != NULL && i < leat_calibration_count(network->calibration); i++) {
        const struct leat_range range = leat_calibration_range(network->calibration, i);
        EXPECT(leat_graph_set_range(graph, &range));
    }
    EXPECT(backend->model_load(&source, &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &(struct leat_plan_options){.items = ITEMS}, &plan) == LEAT_OK);
    *answer = (struct answer){.size_count = ITEMS * (size_t)leat_signature_sizes(network->infos, network->tensor_count)};
    answer->sizes = calloc(answer->size_count + 1, sizeof(*answer->sizes));
    EXPECT(answer->sizes != NULL);
    segment.sizes = answer->sizes;
    for (uint32_t t = 0; t < network->tensor_count; t++) {
        if (t >= network->input_count) {
            answer->outputs[t] = aligned(ITEMS * network->infos[t].item_bytes);
            memset(answer->outputs[t], 0x5a, ITEMS * network->infos[t].item_bytes);
        }
        segment.tensors[t] = t < network->input_count ? network->inputs[t] : answer->outputs[t];
    }
    answer->scratch_bytes = backend->plan_scratch_bytes(plan);
    void *scratch = aligned(answer->scratch_bytes);
    EXPECT(backend->plan_run(plan, &segment, 1, scratch, NULL) == LEAT_OK);
    free(scratch);
    backend->plan_destroy(plan);
    backend->model_destroy(model);
    leat_graph_destroy(graph);
}

static void
forget(const struct network *network, struct answer *answer)
{
    for (uint32_t t = network->input_count; t < network->tensor_count; t++) {
        free(answer->outputs[t]);
    }
    free(answer->sizes);
}

/*
 * How far answers are from `expected` when the inputs are moved by 2^-22, up and down in turn. False where that is 5 % of the
 * largest, or another number of boxes: nothing can be said of such answers.
 */
static bool
set_slack(struct network *network, const struct answer *expected)
{
    struct network shaken = *network;
    struct answer moved;
    bool steady = true;

    make_inputs(&shaken);
    for (uint32_t t = 0; t < network->input_count; t++) {
        float *data = shaken.inputs[t];
        const size_t count = shaken.infos[t].dtype == LEAT_DTYPE_F32 ? ITEMS * shaken.infos[t].item_bytes / sizeof(*data) : 0;
        for (size_t i = 0; i < count; i++) {
            data[i] *= i % 2 == 0 ? 1 + 0x1p-22f : 1 - 0x1p-22f;
        }
    }
    answer(&leat_backend_reference, &shaken, false, UINT64_MAX, &moved);
    for (uint32_t t = network->input_count; t < network->tensor_count; t++) {
        const float *want = expected->outputs[t], *have = moved.outputs[t];
        float largest = 0, furthest = 0;
        EXPECT(network->infos[t].dtype == LEAT_DTYPE_F32);
        for (size_t i = 0; i < ITEMS * network->infos[t].item_bytes / sizeof(float); i++) {
            largest = fmaxf(largest, fabsf(want[i]));
            furthest = fmaxf(furthest, fabsf(have[i] - want[i]));
        }
        network->slack[t] = 4 * furthest;
        steady = steady && furthest <= 0.05f * largest;
    }
    steady = steady && memcmp(moved.sizes, expected->sizes, moved.size_count * sizeof(*moved.sizes)) == 0;
    forget(network, &moved);
    for (uint32_t t = 0; t < network->input_count; t++) {
        free(shaken.inputs[t]);
    }
    return steady;
}

/* Within 1e-4 + near |expected| and the slack; of what varies as many as are expected. */
static void
compare(const struct network *network, const struct answer *expected, const struct answer *answer, float near,
        const char *what)
{
    EXPECT(memcmp(answer->sizes, expected->sizes, answer->size_count * sizeof(*answer->sizes)) == 0);
    for (uint32_t t = network->input_count; t < network->tensor_count; t++) {
        const float *want = expected->outputs[t], *have = answer->outputs[t];
        for (size_t i = 0; i < ITEMS * network->infos[t].item_bytes / sizeof(float); i++) {
            if (!(fabsf(have[i] - want[i]) <= 1e-4f + near * fabsf(want[i]) + network->slack[t])) {
                (void)fprintf(stderr, "%s %s: element %zu of %s is %g, not %g\n", network->model->name, what, i,
                              network->infos[t].name, (double)have[i], (double)want[i]);
                EXPECT(!"the answer with all passes");
            }
        }
    }
}

/* What both backends answer without these passes. */
static void
test_passes(const struct network *network, const struct answer *expected, bool open, uint64_t passes, const char *without)
{
    struct answer got;
    char what[128];

    for (int cpu = 0; cpu < 2; cpu++) {
        const struct leat_backend *backend = cpu ? &leat_backend_cpu : &leat_backend_reference;
        (void)snprintf(what, sizeof(what), "without %s%s, on %s", without, open ? ", lengths open" : "", backend->name);
        answer(backend, network, open, passes, &got);
        compare(network, expected, &got, cpu ? 1e-3f : 1e-4f, what);
        forget(network, &got);
    }
}

/* ---- Plans -------------------------------------------------------------------------------------- */

static struct leat_calibration *
calibrate(const struct network *network)
{
    struct leat_graph *graph = import(network);
    struct leat_calibration *calibration;

    bind(network, graph);
    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
    EXPECT(leat_calibration_create(graph, ITEMS, &calibration) == LEAT_OK);
    EXPECT(leat_calibration_run(calibration, (const void *const *)network->inputs) == LEAT_OK);
    leat_graph_destroy(graph);
    return calibration;
}

/* The same bits; with other kernels, as where layouts are not handed on, as near as whole networks are. */
static void
compare_plans(const struct network *network, const struct answer *expected, const struct answer *got, bool other_kernels,
              const char *without)
{
    char what[128];

    (void)snprintf(what, sizeof(what), "in %s without %s", leat_precision_text(network->precision), without);
    if (other_kernels && network->precision == LEAT_PRECISION_F32) {
        compare(network, expected, got, 1e-3f, what);
        return;
    }
    EXPECT(memcmp(got->sizes, expected->sizes, got->size_count * sizeof(*got->sizes)) == 0);
    for (uint32_t t = network->input_count; t < network->tensor_count; t++) {
        const float *want = expected->outputs[t], *have = got->outputs[t];
        float largest = 0, furthest = 0;
        for (size_t i = 0; i < ITEMS * network->infos[t].item_bytes / sizeof(float); i++) {
            largest = fmaxf(largest, fabsf(want[i]));
            furthest = fmaxf(furthest, fabsf(have[i] - want[i]));
        }
        if (!(furthest <= (other_kernels ? 0.05f * largest : 0))) {
            (void)fprintf(stderr, "%s %s: %s is %g of %g off\n", network->model->name, what, network->infos[t].name,
                          (double)furthest, (double)largest);
            EXPECT(!"the answer of a plan with everything");
        }
    }
}

/*
 * Which of the passes of plans change what one takes, in all precisions together: counted where nothing shares memory, but by
 * being looked at in place. They did in `found` networks before.
 */
static uint64_t
test_plans(struct network *network, const uint32_t found[])
{
    const uint64_t memory = UINT64_C(1) << (leat_all_pass_count - 1); /* the last */
    const uint32_t precisions = leat_backend_precisions(&leat_backend_cpu);
    struct leat_calibration *calibration = calibrate(network);
    uint64_t busy = 0;

    for (uint32_t precision = 0; precision < LEAT_PRECISION_COUNT; precision++) {
        struct answer with, apart, without;
        if ((precisions & LEAT_PRECISION_BIT(precision)) == 0 || found[leat_all_pass_count - 1] % LEAT_TEST_SHARE != 0) {
            continue;
        }
        network->precision = (enum leat_precision)precision;
        network->calibration = precision == LEAT_PRECISION_INT8 ? calibration : NULL;
        answer(&leat_backend_cpu, network, false, UINT64_MAX, &with);
        answer(&leat_backend_cpu, network, false, ~memory, &apart);
        compare_plans(network, &with, &apart, false, "plan-memory");
        EXPECT(apart.scratch_bytes > with.scratch_bytes);
        busy |= memory;
        for (size_t p = leat_pass_count; p < leat_all_pass_count - 1; p++) {
            const uint64_t pass = UINT64_C(1) << p;
            const bool other_kernels = strcmp(leat_passes[p].name, "propagate-layouts") == 0;
            answer(&leat_backend_cpu, network, false, ~pass, &without);
            compare_plans(network, &with, &without, other_kernels, leat_passes[p].name);
            forget(network, &without);
            answer(&leat_backend_cpu, network, false, ~pass & ~memory, &without);
            compare_plans(network, &with, &without, other_kernels, "this and plan-memory");
            busy |= without.scratch_bytes != apart.scratch_bytes ? pass : 0;
            forget(network, &without);
        }
        forget(network, &apart);
        forget(network, &with);
    }
    leat_calibration_destroy(calibration);
    network->precision = LEAT_PRECISION_F32;
    network->calibration = NULL;
    return busy;
}

/* Every value is plain, has a buffer of its own, and buffers do not overlap. */
static void
expect_apart(const struct cpu_program *program)
{
    bool *taken = calloc((size_t)program->buffer_count + 1, sizeof(*taken));

    EXPECT(taken != NULL);
    for (uint32_t v = 0; v < program->graph->value_count; v++) {
        const uint32_t tensor = program->plain[v];
        if (tensor != CPU_NONE && program->tensors[tensor].constant == NULL) {
            EXPECT(!taken[program->tensors[tensor].buffer]);
            taken[program->tensors[tensor].buffer] = true;
        }
    }
    for (uint32_t n = 0; n < program->graph->node_count; n++) {
        const struct leat_node *node = &program->graph->nodes[n];
        for (uint32_t o = 0; o < node->output_count; o++) {
            EXPECT(node->outputs[o] == LEAT_VALUE_NONE || program->plain[node->outputs[o]] != CPU_NONE);
        }
    }
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct cpu_buffer *a = &program->buffers[i];
        for (uint32_t k = 0; k < i && a->first != CPU_NONE; k++) {
            const struct cpu_buffer *other = &program->buffers[k];
            EXPECT(other->first == CPU_NONE || a->offset + a->bytes <= other->offset || other->offset + other->bytes <= a->offset);
        }
        EXPECT(a->first == CPU_NONE || a->offset + a->bytes <= program->scratch_bytes);
    }
    free(taken);
}

static void
test_nothing_shared(const struct network *network)
{
    struct leat_graph *graph = import(network);
    const struct leat_model_source source = {.graph = graph,
                                             .infos = network->infos,
                                             .input_count = network->input_count,
                                             .output_count = network->tensor_count - network->input_count,
                                             .one_by_one = network->one_by_one};
    struct cpu_program *program;
    struct leat_model *model;

    bind(network, graph);
    EXPECT(leat_graph_optimise(graph, UINT64_MAX >> (64 - leat_pass_count)) == LEAT_OK);
    EXPECT(leat_backend_cpu.model_load(&source, &model) == LEAT_OK);
    EXPECT(cpu_program_build(model, cpu_model_graph(model), network->one_by_one ? 1 : ITEMS, 1, &program) == LEAT_OK);
    expect_apart(program);
    cpu_program_destroy(program);
    leat_backend_cpu.model_destroy(model);
    leat_graph_destroy(graph);
}

/* Which passes had something to do; 0 where nothing can be said of the answers. They had in `found` networks before. */
static uint64_t
test_network(const struct zoo_model *model, const uint32_t found[])
{
    struct network network;
    struct answer expected;
    uint64_t all = 0;

    make_network(model, &network);
    answer(&leat_backend_reference, &network, false, UINT64_MAX, &expected);
    const bool steady = set_slack(&network, &expected);
    for (int open = 0; open <= (int)network.has_lengths && steady; open++) {
        const uint64_t busy = find_busy(&network, open);
        for (size_t p = 0; p < leat_pass_count; p++) {
            if ((busy >> p & 1) != 0 && found[p] % LEAT_TEST_SHARE == 0) {
                test_passes(&network, &expected, open, ~(UINT64_C(1) << p), leat_passes[p].name);
            }
        }
        all |= busy;
    }
    if (steady) {
        all |= test_plans(&network, found);
        test_nothing_shared(&network);
        test_passes(&network, &expected, false, 0, "all passes");
    } else {
        (void)fprintf(stderr, "%s: its answers jump when its inputs move by 2^-22\n", model->name);
    }
    forget(&network, &expected);
    destroy_network(&network);
    return all;
}

static uint32_t
count_nodes(const struct network *network, uint64_t passes)
{
    struct leat_graph *graph = import(network);

    bind(network, graph);
    EXPECT(leat_graph_optimise(graph, passes) == LEAT_OK && leat_graph_check(graph) == LEAT_OK);
    const uint32_t count = graph->node_count;
    leat_graph_destroy(graph);
    return count;
}

/* Which passes had something to do in what has channels last here and there; 0 where there are none. */
static uint64_t
test_channels_last(const struct zoo_model *model)
{
    uint64_t sinks, busy = 0;
    struct network network;
    struct answer expected;

    EXPECT(leat_passes_without("sink-transposes", &sinks) == LEAT_OK);
    make_network(model, &network);
    const uint32_t before = count_nodes(&network, 0), after = count_nodes(&network, UINT64_MAX);
    network.channels_last = true;
    if (count_nodes(&network, 0) > before) {
        network.channels_last = false;
        answer(&leat_backend_reference, &network, false, UINT64_MAX, &expected);
        (void)set_slack(&network, &expected);
        network.channels_last = true;
        busy = find_busy(&network, false);
        EXPECT(count_nodes(&network, UINT64_MAX) == after && count_nodes(&network, sinks) > after);
        test_passes(&network, &expected, false, UINT64_MAX, "nothing, with channels last");
        test_passes(&network, &expected, false, sinks, "sink-transposes, with channels last");
        forget(&network, &expected);
    }
    destroy_network(&network);
    return busy;
}

/* ---- Names -------------------------------------------------------------------------------------- */

static void
test_names(void)
{
    uint64_t mask = 5;
    char names[1024] = "";
    size_t used = 0;

    for (size_t p = 0; p < leat_all_pass_count; p++) {
        EXPECT(leat_passes[p].doc[0] != '\0');
        EXPECT(leat_passes_without(leat_passes[p].name, &mask) == LEAT_OK && mask == ~(UINT64_C(1) << p));
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", p > 0 ? "," : "", leat_passes[p].name);
    }
    EXPECT(leat_passes_without(names, &mask) == LEAT_OK && mask == ~(UINT64_MAX >> (64 - leat_all_pass_count)));
    EXPECT(leat_passes_without("fuse-add,fuse-add", &mask) == LEAT_OK && __builtin_popcountll(~mask) == 1);
    mask = 5;
    static const char *const wrong[] = {"",          "fuse",     "fuse-adder", "fuse-add,",
                                        ",fuse-add", "Fuse-add", "fuse-add ",  "fuse-add,,fuse-gelu"};
    for (size_t i = 0; i < LEAT_COUNT_OF(wrong); i++) {
        EXPECT(leat_passes_without(wrong[i], &mask) == LEAT_ERR_INVALID && mask == 5);
        for (size_t p = 0; p < leat_all_pass_count; p++) {
            EXPECT(strstr(leat_error_text(), leat_passes[p].name) != NULL);
        }
    }
}

/* No network here is quantised, or has an Einsum. */
static bool
is_for_others(const char *pass)
{
    return strstr(pass, "quantised") != NULL || strcmp(pass, "split-einsums") == 0 || strcmp(pass, "fuse-integers") == 0;
}

int
main(void)
{
    uint32_t found[PASSES_MAX] = {0}, jumpy = 0, channels_last = 0;

    leat_test_init();
    (void)fprintf(stderr, "seed %llu\n", (unsigned long long)leat_test_seed);
    EXPECT(leat_all_pass_count <= PASSES_MAX);
    test_names();
    for (size_t m = 0; m < zoo_model_count; m++) {
        const uint64_t busy = test_network(&zoo_models[m], found);
        jumpy += busy == 0;
        for (size_t p = 0; p < leat_all_pass_count; p++) {
            found[p] += (uint32_t)(busy >> p & 1);
        }
    }
    for (size_t m = 0; m < zoo_model_count && channels_last < CHANNELS_LAST; m++) {
        const uint64_t busy = test_channels_last(&zoo_models[m]);
        channels_last += busy != 0;
        for (size_t p = 0; p < leat_all_pass_count; p++) {
            found[p] += (uint32_t)(busy >> p & 1);
        }
    }
    EXPECT(channels_last == CHANNELS_LAST);
    EXPECT(jumpy <= 3); /* detectors that suppress boxes, once in many seeds */
    for (size_t p = 0; p < leat_all_pass_count; p++) {
        (void)fprintf(stderr, "%s: found work in %u of %zu networks\n", leat_passes[p].name, found[p],
                      zoo_model_count + channels_last);
        EXPECT((found[p] == 0) == is_for_others(leat_passes[p].name));
    }
    return 0;
}
