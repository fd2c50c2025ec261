/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The cpu backend's own convolutions give the sums that the definition says, whatever the shape, padding and
 *          number of members, write their results and scratch and nothing else, and are used where they should be.
 * Method   Random shapes against plain loops in double precision; places before and behind results and scratch hold
 *          what must stay; every number of members must give the same bytes; an item of NaN must not reach its
 *          neighbours. Then networks of one convolution through the backend against the reference backend, with what
 *          may be fused onto it; the program of some of them must hold a step of our own.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/cpu/program.h"
#include "kernels/cpu/winograd.h"
#include "kernels/graph.h"
#include "kernels/op.h"
#include "kernels/team.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"

enum { KERNEL_ROUNDS = 150, NETWORK_ROUNDS = 30, SAMPLES = 1000, GUARD = 64, MEMBERS = 3, TEAM = 2, ITEMS = 4 };

static uint64_t random_state;

static int64_t
between(int64_t low, int64_t high)
{
    return low + (int64_t)(leat_test_random(&random_state) % (uint64_t)(high - low + 1));
}

/* ---- Guarded memory ----------------------------------------------------------------------------- */

static float *
guarded(size_t count)
{
    float *block = aligned_alloc(64, (size_t)leat_round_up((count + (size_t)2 * GUARD) * sizeof(float), 64));
    EXPECT(block != NULL);
    for (size_t i = 0; i < count + (size_t)2 * GUARD; i++) {
        block[i] = 12345.0f;
    }
    return block + GUARD;
}

static float *
guarded_random(size_t count)
{
    float *data = guarded(count);
    for (size_t i = 0; i < count; i++) {
        data[i] = (float)between(-1000, 1000) / 1000.0f;
    }
    return data;
}

static void
release(float *data, size_t count)
{
    for (size_t i = 0; i < GUARD; i++) {
        EXPECT(data[-1 - (ptrdiff_t)i] == 12345.0f && data[count + i] == 12345.0f);
    }
    free(data - GUARD);
}

/* ---- Winograd ----------------------------------------------------------------------------------- */

/* The result at one place; *ret_size is the sum of the terms' sizes. */
static double
sum_at(const struct cpu_winograd *c, const float *source, const float *weights, int64_t item, int64_t y, int64_t x,
       int64_t o, double *ret_size)
{
    double sum = 0;
    *ret_size = 0;
    for (int64_t k = 0; k < 9; k++) {
        const int64_t sy = y + k / 3 - c->pad_top, sx = x + k % 3 - c->pad_left;
        for (int64_t i = 0; i < c->inputs && sy >= 0 && sy < c->height && sx >= 0 && sx < c->width; i++) {
            const double term = (double)source[((item * c->height + sy) * c->width + sx) * c->inputs + i] *
                                (double)weights[(o * c->inputs + i) * 9 + k];
            sum += term;
            *ret_size += fabs(term);
        }
    }
    return sum;
}

static void
check_winograd(const struct cpu_winograd *c, const float *source, const float *weights, const float *bias,
               const float *before, const float *result)
{
    const int64_t results = c->items * c->out_height * c->out_width * c->outputs;
    double largest = 0, error = 0;
    for (int64_t r = 0; r < results; r += between(1, 1 + 2 * results / SAMPLES)) {
        const int64_t o = r % c->outputs, x = r / c->outputs % c->out_width;
        const int64_t y = r / c->outputs / c->out_width % c->out_height;
        double size, sum = sum_at(c, source, weights, r / c->outputs / c->out_width / c->out_height, y, x, o, &size);
        sum += (bias != NULL ? (double)bias[o] : 0) + (c->add ? (double)before[r] : 0);
        sum = fmin(fmax(sum, (double)c->least), (double)c->most);
        largest = fmax(largest, size + 2);
        error = fmax(error, fabs(sum - (double)result[r]));
    }
    EXPECT(error <= 1e-6 * largest);
}

static void
run_winograd(const struct cpu_winograd *c, const float *source, const float *packed, const float *bias,
             const float *before, size_t results, uint32_t members, float *result)
{
    const size_t scratch_count = cpu_winograd_scratch_bytes(c) / sizeof(float);
    float *scratch = guarded(scratch_count);

    memcpy(result, before, results * sizeof(*result));
    for (uint32_t m = members; m-- > 0;) { /* in turn: they share nothing */
        cpu_winograd_run(c, source, packed, bias, result, scratch, m, members);
    }
    release(scratch, scratch_count);
}

static void
test_winograd_shape(const struct cpu_winograd *c, bool has_bias)
{
    const size_t sources = (size_t)(c->items * c->height * c->width * c->inputs);
    const size_t results = (size_t)(c->items * c->out_height * c->out_width * c->outputs);
    const size_t weight_count = (size_t)(c->outputs * c->inputs * 9);
    const size_t packed_count = cpu_winograd_weights_bytes(c->inputs, c->outputs) / sizeof(float);
    float *source = guarded_random(sources), *weights = guarded_random(weight_count);
    float *bias = guarded_random((size_t)c->outputs), *before = guarded_random(results);
    float *packed = guarded(packed_count), *result = guarded(results), *again = guarded(results);

    cpu_winograd_pack(weights, c->inputs, c->outputs, packed);
    run_winograd(c, source, packed, has_bias ? bias : NULL, before, results, 1, result);
    check_winograd(c, source, weights, has_bias ? bias : NULL, before, result);
    for (uint32_t members = 2; members <= MEMBERS; members++) {
        run_winograd(c, source, packed, has_bias ? bias : NULL, before, results, members, again);
        EXPECT(memcmp(result, again, results * sizeof(*result)) == 0);
    }
    /* NaN stays in its item, and is not clamped away. */
    const size_t item = (size_t)between(0, c->items - 1), of_item = sources / (size_t)c->items;
    for (size_t i = 0; i < of_item; i++) {
        source[item * of_item + i] = NAN;
    }
    run_winograd(c, source, packed, has_bias ? bias : NULL, before, results, 1, again);
    for (size_t r = 0; r < results; r++) {
        if (r / (results / (size_t)c->items) != item) {
            EXPECT(memcmp(&result[r], &again[r], sizeof(*result)) == 0);
        }
    }
    if (c->pad_top < c->height && c->pad_left < c->width && c->pad_top <= 2 && c->pad_left <= 2) {
        EXPECT(isnan(again[item * (results / (size_t)c->items)])); /* its first sees a pixel */
    }
    release(source, sources);
    release(weights, weight_count);
    release(bias, (size_t)c->outputs);
    release(before, results);
    release(packed, packed_count);
    release(result, results);
    release(again, results);
}

static void
test_winograd(void)
{
    for (int round = 0; round < KERNEL_ROUNDS; round++) {
        struct cpu_winograd c = {.items = between(1, 3),
                                 .inputs = 16 * between(1, 5),
                                 .outputs = 16 * between(1, 6),
                                 .height = between(1, 13),
                                 .width = between(1, 13),
                                 .pad_top = between(0, 3),
                                 .pad_left = between(0, 3),
                                 .add = between(0, 1) != 0,
                                 .least = between(0, 1) != 0 ? 0 : -INFINITY,
                                 .most = between(0, 2) == 0 ? 1.5f : INFINITY};
        c.out_height = c.height + c.pad_top + between(0, 2) - 2;
        c.out_width = c.width + c.pad_left + between(0, 2) - 2;
        if (c.out_height >= 1 && c.out_width >= 1) {
            test_winograd_shape(&c, between(0, 2) != 0);
        }
    }
    /* More tiles than a block has; and weights that are read in long blocks. */
    test_winograd_shape(&(struct cpu_winograd){3, 16, 16, 50, 50, 50, 50, 1, 1, true, 0, INFINITY}, true);
    test_winograd_shape(&(struct cpu_winograd){7, 192, 160, 14, 14, 14, 14, 1, 1, false, 0, INFINITY}, true);
}

/* ---- Through the backend --------------------------------------------------------------------------- */

/* y = activation(Conv(x) + side), and side a convolution of its own: what networks with shortcuts do. */
struct network {
    int64_t inputs, outputs, image, kernel, stride, pad, groups;
    bool bias, add;
    const char *activation; /* operator, or NULL */
};

static void
add_conv(struct builder *b, const struct network *n, const char *weights, const char *inputs, const char *output)
{
    const int64_t count = n->outputs * (n->inputs / n->groups) * n->kernel * n->kernel;
    float *data = guarded_random((size_t)count);
    Onnx__NodeProto *node = builder_node(b, "Conv", inputs, output);

    (void)builder_constant(b, weights, 1, data, DIMS(n->outputs, n->inputs / n->groups, n->kernel, n->kernel));
    release(data, (size_t)count);
    (void)builder_ints(b, node, "strides", DIMS(n->stride, n->stride));
    (void)builder_ints(b, node, "pads", DIMS(n->pad, n->pad, n->pad, n->pad));
    (void)builder_int(b, node, "group", n->groups);
}

static struct leat_graph *
network_graph(const struct network *n)
{
    float *bias = guarded_random((size_t)n->outputs);
    struct leat_graph *graph = NULL;
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, n->inputs, n->image, n->image));
    (void)builder_constant(&b, "bias", 1, bias, DIMS(n->outputs));
    release(bias, (size_t)n->outputs);
    if (n->add) {
        add_conv(&b, n, "side_weights", "x side_weights", "side");
    }
    add_conv(&b, n, "weights", n->bias ? "x weights bias" : "x weights", "main");
    if (n->add) {
        (void)builder_node(&b, "Add", "main side", "sum");
    }
    const char *last = n->add ? "sum" : "main";
    if (n->activation != NULL) {
        (void)builder_node(&b, n->activation, last, "y");
        last = "y";
    }
    builder_output(&b, last);
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    builder_fini(&b);
    return graph;
}

static uint32_t
own_convolutions(struct leat_model *model, const struct leat_graph *graph, uint32_t items, uint32_t threads)
{
    struct cpu_program *program;
    uint32_t count = 0;

    EXPECT(cpu_program_build(model, graph, items, threads, &program) == LEAT_OK);
    for (uint32_t s = 0; s < program->step_count; s++) {
        const struct cpu_step *step = &program->steps[s];
        count += step->primitive == NULL && step->node != NULL && step->node->op->kind == LEAT_OP_CONV;
    }
    cpu_program_destroy(program);
    return count;
}

static void
answer(const struct leat_backend *backend, const struct leat_model_source *source, struct leat_team *team,
       const float *x, size_t count, float *y)
{
    const uint32_t team_size = TEAM;
    const struct leat_plan_options options = {.items = ITEMS, .team_sizes = &team_size, .team_size_count = 1};
    struct leat_segment segment = {.items = ITEMS, .tensors = {x, y}};
    struct leat_model *model;
    struct leat_plan *plan;
    float *again = guarded(count);

    EXPECT(backend->model_load(source, &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &options, &plan) == LEAT_OK);
    float *scratch = guarded(backend->plan_scratch_bytes(plan) / sizeof(float) + 1);
    EXPECT(backend->plan_run(plan, &segment, 1, scratch, team) == LEAT_OK);
    segment.tensors[1] = again; /* over what the first run has left in the scratch */
    EXPECT(backend->plan_run(plan, &segment, 1, scratch, team) == LEAT_OK);
    EXPECT(memcmp(y, again, count * sizeof(*y)) == 0);
    release(scratch, backend->plan_scratch_bytes(plan) / sizeof(float) + 1);
    release(again, count);
    backend->plan_destroy(plan);
    backend->model_destroy(model);
}

static void
test_network(const struct network *n, struct leat_team *team)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_graph *graph = network_graph(n);
    struct leat_model_source source = {.graph = graph, .infos = infos};

    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    const size_t inputs = ITEMS * infos[0].item_bytes / sizeof(float), outputs = ITEMS * infos[1].item_bytes / sizeof(float);
    float *x = guarded_random(inputs), *expected = guarded(outputs), *y = guarded(outputs);
    answer(&leat_backend_reference, &source, NULL, x, outputs, expected);
    for (int with_team = 0; with_team < 2; with_team++) {
        answer(&leat_backend_cpu, &source, with_team != 0 ? team : NULL, x, outputs, y);
        for (size_t i = 0; i < outputs; i++) {
            EXPECT(fabsf(y[i] - expected[i]) <= 1e-4f * (1 + fabsf(expected[i])));
        }
    }
    release(x, inputs);
    release(expected, outputs);
    release(y, outputs);
    leat_graph_destroy(graph);
}

static void
test_networks(struct leat_team *team)
{
    static const char *const activations[] = {NULL, "Relu", "Sigmoid"};

    for (int round = 0; round < NETWORK_ROUNDS; round++) {
        const int64_t kernel = between(0, 1) != 0 ? 3 : 1;
        const int64_t unit = between(0, 3) != 0 ? 16 : 6, groups = between(0, 5) == 0 ? 2 : 1;
        test_network(&(struct network){.inputs = unit * between(1, 4) * groups,
                                       .outputs = unit * between(1, 5) * groups,
                                       .image = between(3, 13),
                                       .kernel = kernel,
                                       .stride = between(1, 2),
                                       .pad = kernel == 3 ? between(0, 1) : 0,
                                       .groups = groups,
                                       .bias = between(0, 1) != 0,
                                       .add = between(0, 1) != 0,
                                       .activation = activations[between(0, 2)]},
                     team);
    }
}

/* Both convolutions of a block as ResNets have it, and neither where there is too little to do. */
static void
test_choice(void)
{
    const struct network n = {64, 64, 14, 3, 1, 1, 1, true, true, "Relu"};
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_graph *graph = network_graph(&n);
    struct leat_model_source source = {.graph = graph, .infos = infos};
    struct leat_model *model;

    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    EXPECT(leat_backend_cpu.model_load(&source, &model) == LEAT_OK);
    EXPECT(own_convolutions(model, graph, 8, 1) == (cpu_winograd_runs_here() ? 2 : 0));
    EXPECT(own_convolutions(model, graph, 8, 2) == (cpu_winograd_runs_here() ? 2 : 0));
    EXPECT(own_convolutions(model, graph, 1, 16) == 0);
    leat_backend_cpu.model_destroy(model);
    leat_graph_destroy(graph);
}

int
main(void)
{
    struct leat_team *team;

    leat_test_init();
    random_state = leat_test_seed;
    if (cpu_winograd_runs_here()) {
        test_winograd();
    }
    EXPECT(leat_team_create(&(struct leat_team_options){.size = TEAM, .spin_ns = 20000}, &team) == LEAT_OK);
    test_networks(team);
    test_choice();
    leat_team_destroy(team);
    return 0;
}
