/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What the outside suite has no case for: shapes that depend on tensor contents are followed through a graph
 *          and refused where clients would see them; some operators give the numbers that their definition gives.
 * Method   Models of fixed shapes, in scratch memory exactly as large as promised (for the address sanitizer).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

/* ---- Shapes that depend on contents ------------------------------------------------------------------------- */

/* All elements but 0, through their indices: NonZero, and what follows from it, has another size in every run. */
static struct leat_graph *
elements_but_zero(void)
{
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(3, 4));
    (void)builder_node(&b, "NonZero", "x", "columns");
    (void)builder_node(&b, "Transpose", "columns", "rows");
    (void)builder_node(&b, "GatherND", "x rows", "found");
    (void)builder_node(&b, "Shape", "rows", "size");
    (void)builder_int(&b, builder_node(&b, "TopK", "found one", "best where"), "axis", 0);
    (void)builder_constant(&b, "one", ONNX_I64, (const int64_t[]){1}, DIMS(1));
    builder_output(&b, "found");
    builder_output(&b, "size");
    builder_output(&b, "best");
    struct leat_graph *graph = import_graph(&b);
    builder_fini(&b);
    return graph;
}

/*
 * A transform of as many numbers as are found: any length up to the bound, also those that take more memory than it does. The sum of all
 * results is n times the first number, which is the index of the first that is found.
 */
static void
test_bounded_transforms(void)
{
    enum { BOUND = 64 };
    struct leat_graph *concrete = NULL;
    struct leat_shape shapes[1];
    float x[BOUND], y[2 * BOUND];
    size_t scratch_bytes;
    struct builder b;

    builder_init(&b, 17);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(1, BOUND));
    (void)builder_constant(&b, "one", ONNX_I64, (const int64_t[]){1}, NULL, 0);
    (void)builder_constant(&b, "shape", ONNX_I64, (const int64_t[]){1, -1, 1}, DIMS(3));
    (void)builder_node(&b, "NonZero", "x", "found");
    (void)builder_node(&b, "Gather", "found one", "columns");
    (void)builder_int(&b, builder_node(&b, "Cast", "columns", "numbers"), "to", ONNX_F32);
    (void)builder_node(&b, "Reshape", "numbers shape", "signal");
    (void)builder_node(&b, "DFT", "signal", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    builder_fini(&b);
    EXPECT(leat_graph_specialise(graph, 1, &concrete) == LEAT_OK);
    EXPECT(leat_reference_scratch_bytes(concrete, &scratch_bytes) == LEAT_OK);
    void *scratch = malloc(scratch_bytes); /* no byte more, for the address sanitizer */
    EXPECT(scratch != NULL);
    for (int64_t n = 0; n <= BOUND; n++) {
        double sum = 0;
        for (int64_t i = 0; i < BOUND; i++) {
            x[i] = i >= BOUND - n;
        }
        EXPECT(leat_reference_run(concrete, (const void *const[]){x}, (void *const[]){y}, scratch, shapes) == LEAT_OK);
        EXPECT(shapes[0].rank == 3 && shapes[0].dims[1] == n);
        for (int64_t k = 0; k < n; k++) {
            sum += (double)y[2 * k];
        }
        EXPECT(fabs(sum - (double)(n * (BOUND - n))) < 1e-2);
    }
    free(scratch);
    leat_graph_destroy(concrete);
    leat_graph_destroy(graph);
}

static void
test_bounded_shapes(void)
{
    struct leat_graph *graph = elements_but_zero(), *concrete = NULL;
    struct leat_shape shapes[3];
    float x[12], found[12], best[1];
    int64_t size[2];
    const void *inputs[1] = {x};
    void *outputs[3] = {found, size, best};
    uint64_t random = leat_test_seed;
    size_t scratch_bytes;

    EXPECT(leat_graph_specialise(graph, 1, &concrete) == LEAT_OK);
    EXPECT(leat_graph_check(concrete) == LEAT_OK);
    EXPECT(leat_reference_scratch_bytes(concrete, &scratch_bytes) == LEAT_OK);
    void *scratch = malloc(scratch_bytes); /* no byte more, for the address sanitizer */
    EXPECT(scratch != NULL && (uintptr_t)scratch % 16 == 0);
    for (int round = 0; round < 200; round++) {
        float want[12], greatest = 0;
        size_t count = 0;
        for (int i = 0; i < 12; i++) {
            x[i] = round == 0 || leat_test_random(&random) % 3 != 0
                       ? 0
                       : (float)(1 + leat_test_random(&random) % 100);
            if (x[i] != 0) {
                want[count++] = x[i];
                greatest = x[i] > greatest ? x[i] : greatest;
            }
        }
        const enum leat_status status =
            leat_reference_run(concrete, inputs, outputs, scratch, shapes);
        EXPECT(status == (count > 0 ? LEAT_OK : LEAT_ERR_SHAPE)); /* the best of none */
        if (status == LEAT_OK) {
            EXPECT(shapes[0].rank == 1 && shapes[0].dims[0] == (int64_t)count);
            EXPECT(memcmp(found, want, count * sizeof(*want)) == 0);
            EXPECT(size[0] == (int64_t)count && size[1] == 2);
            EXPECT(shapes[2].dims[0] == 1 && best[0] == greatest);
        }
    }
    free(scratch);
    leat_graph_destroy(concrete);
    leat_graph_destroy(graph);
}

/* Clients could not tell how much of an output is theirs: no backend plans such a model. */
static void
test_bounded_shapes_are_refused(const struct leat_backend *backend)
{
    const struct leat_plan_options options = {.items = 1};
    struct leat_tensor_info infos[4];
    uint32_t input_count, output_count;
    struct leat_graph *graph = elements_but_zero();
    struct leat_model *model = NULL;
    struct leat_plan *plan = NULL;

    EXPECT(leat_graph_signature(graph, infos, &input_count, &output_count) == LEAT_ERR_UNSUPPORTED);
    infos[0] = info_of(&graph->values[graph->inputs[0]]);
    for (uint32_t o = 0; o < 3; o++) {
        infos[1 + o] = info_of(&graph->values[graph->outputs[o]]);
    }
    const struct leat_model_source source = {
        .graph = graph, .infos = infos, .input_count = 1, .output_count = 3};
    enum leat_status status = backend->model_load(&source, &model);
    if (status == LEAT_OK) {
        status = backend->plan_build(model, &options, &plan);
    }
    EXPECT(status == LEAT_ERR_UNSUPPORTED && plan == NULL);
    EXPECT(strstr(leat_error_text(), "depends on tensor contents") != NULL);
    backend->model_destroy(model);
    leat_graph_destroy(graph);
}

/* ---- Values ------------------------------------------------------------------------------------------------- */

static void
test_lp_normalization(const struct leat_backend *backend)
{
    static const float x[] = {3, -4, 0, 0, 1, 1},
                       l2[] = {0.6f, -0.8f, 0, 0, 0.70710678f, 0.70710678f},
                       l1[] = {3.0f / 7, -4.0f / 7, 0, 0, 0.5f, 0.5f};
    for (int64_t p = 1; p <= 2; p++) {
        float y[6];
        const void *inputs[1] = {x};
        void *outputs[1] = {y};
        struct builder b;
        struct loaded loaded;

        builder_init(&b, 13);
        (void)builder_input(&b, "x", ONNX_F32, DIMS(3, 2));
        (void)builder_int(&b, builder_node(&b, "LpNormalization", "x", "y"), "p", p);
        builder_output(&b, "y");
        struct leat_graph *graph = import_graph(&b);
        load(backend, graph, &loaded);
        EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
        for (int i = 0; i < 6; i++) {
            EXPECT(fabsf(y[i] - (p == 1 ? l1 : l2)[i]) < 1e-6f);
        }
        unload(&loaded);
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
}

/* Two windows of three, and all four at once: p = 1 and p = 2. */
static void
test_lp_pool(const struct leat_backend *backend)
{
    static const float x[] = {3, -4, 0, 12};
    static const float windows[2][2] = {{7, 16}, {5, 12.649111f}}, whole[2] = {19, 13};
    for (int64_t p = 1; p <= 2; p++) {
        float y[2], z[1];
        const void *inputs[1] = {x};
        void *outputs[2] = {y, z};
        struct builder b;
        struct loaded loaded;

        builder_init(&b, 13);
        (void)builder_input(&b, "x", ONNX_F32, DIMS(1, 1, 4));
        Onnx__NodeProto *node = builder_node(&b, "LpPool", "x", "y");
        (void)builder_ints(&b, node, "kernel_shape", DIMS(3));
        (void)builder_int(&b, node, "p", p);
        (void)builder_int(&b, builder_node(&b, "GlobalLpPool", "x", "z"), "p", p);
        builder_output(&b, "y");
        builder_output(&b, "z");
        struct leat_graph *graph = import_graph(&b);
        load(backend, graph, &loaded);
        EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
        EXPECT(fabsf(y[0] - windows[p - 1][0]) < 1e-5f && fabsf(y[1] - windows[p - 1][1]) < 1e-5f);
        EXPECT(fabsf(z[0] - whole[p - 1]) < 1e-5f);
        unload(&loaded);
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
}

/* The functions of both directions, and their parameters. */
struct functions {
    const char *names;
    size_t alphas, betas;
    float alpha[3], beta[2];
};

static enum leat_status
import_functions(const struct functions *f, struct leat_graph **ret)
{
    static const float one[2] = {1, 1}, none[2] = {0, 0};
    struct builder b;

    builder_init(&b, 14);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(1, 5, 1));
    (void)builder_constant(&b, "w", ONNX_F32, one, DIMS(2, 1, 1));
    (void)builder_constant(&b, "r", ONNX_F32, none, DIMS(2, 1, 1));
    Onnx__NodeProto *node = builder_node(&b, "RNN", "x w r", "y");
    (void)builder_string(&b, node, "direction", "bidirectional");
    builder_strings(&b, node, "activations", f->names);
    if (f->alphas > 0) {
        builder_floats(&b, node, "activation_alpha", f->alpha, f->alphas);
    }
    if (f->betas > 0) {
        builder_floats(&b, node, "activation_beta", f->beta, f->betas);
    }
    builder_output(&b, "y");
    const enum leat_status status = builder_import(&b, ret);
    builder_fini(&b);
    return status;
}

/* y of one step and one unit without state: with weights of 1 it is the function of x. Lists are of those functions that take one. */
static void
test_recurrent_functions(const struct leat_backend *backend)
{
    static const float x[5] = {-3, -0.5f, 0.5f, 3, NAN};
    static const struct {
        struct functions functions;
        float want[2][5];
    } cases[] = {
        {{.names = "Relu HardSigmoid"}, {{0, 0, 0.5f, 3, NAN}, {0, 0.4f, 0.6f, 1, NAN}}},
        {{"HardSigmoid Affine", 2, 1, {0.5f, 2}, {0.25f}}, {{0, 0, 0.5f, 1, NAN}, {-6, -1, 1, 6, NAN}}},
        {{"hardsigmoid affine", 2, 2, {0.5f, 2}, {0.25f, 1}}, {{0, 0, 0.5f, 1, NAN}, {-5, 0, 2, 7, NAN}}},
        {{.names = "Affine LeakyRelu"}, {{-3, -0.5f, 0.5f, 3, NAN}, {-0.03f, -0.005f, 0.5f, 3, NAN}}},
        {{"Softsign LeakyRelu", 1, 0, {0.5f}, {0}}, {{-0.75f, -1 / 3.0f, 1 / 3.0f, 0.75f, NAN}, {-1.5f, -0.25f, 0.5f, 3, NAN}}},
        {{.names = "Elu ThresholdedRelu"}, {{-0.95021293f, -0.39346934f, 0.5f, 3, NAN}, {0, 0, 0, 3, 0}}},
        {{"ThresholdedRelu Elu", 2, 0, {-1, 2}, {0}}, {{0, -0.5f, 0.5f, 3, 0}, {-1.9004259f, -0.78693868f, 0.5f, 3, NAN}}},
        {{"Softplus ScaledTanh", 1, 1, {2}, {0.5f}},
         {{0.048587352f, 0.47407698f, 0.97407698f, 3.0485874f, NAN}, {-1.8102965f, -0.48983732f, 0.48983732f, 1.8102965f, NAN}}},
    };

    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        float y[10];
        const void *inputs[1] = {x};
        void *outputs[1] = {y};
        struct leat_graph *graph;
        struct loaded loaded;

        EXPECT(import_functions(&cases[c].functions, &graph) == LEAT_OK);
        load(backend, graph, &loaded);
        EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
        for (size_t i = 0; i < 10; i++) {
            const float want = cases[c].want[i / 5][i % 5];
            EXPECT(isnan(want) ? isnan(y[i]) : fabsf(y[i] - want) < 1e-6f);
        }
        unload(&loaded);
        leat_graph_destroy(graph);
    }
}

/* Numbers that no function takes are of no account; lists must not have more than functions take, and ScaledTanh has no default. */
static void
test_recurrent_parameters(void)
{
    static const struct {
        struct functions functions;
        const char *error; /* NULL: taken */
    } cases[] = {
        {{"Tanh Sigmoid", 2, 2, {1, 1}, {0, 0}}, NULL},
        {{"Tanh Affine", 2, 0, {1, 1}, {0}}, "activation_alpha has 2 numbers for the 1 functions"},
        {{"HardSigmoid Elu", 2, 2, {1, 1}, {0, 0}}, "activation_beta has 2 numbers for the 1 functions"},
        {{"ScaledTanh Tanh", 1, 0, {1}, {0}}, "activation_beta has no finite number for the function ScaledTanh"},
        {{"Elu Tanh", 1, 0, {INFINITY}, {0}}, "activation_alpha has no finite number for the function Elu"},
        {{.names = "Tanh Gelu"}, "activation 'Gelu' is not supported"},
        {{.names = "Tanh"}, "1 activations, not 2"},
    };

    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        struct leat_graph *graph = NULL;
        const enum leat_status status = import_functions(&cases[c].functions, &graph);
        if (cases[c].error == NULL) {
            EXPECT(status == LEAT_OK);
            leat_graph_destroy(graph);
        } else {
            EXPECT(status == LEAT_ERR_UNSUPPORTED && strstr(leat_error_text(), cases[c].error) != NULL);
        }
    }
}

/* The names of the functions that are the default change nothing; others than we have are refused. */
static void
test_recurrent_defaults(void)
{
    static const char *const names[] = {NULL, "Sigmoid Tanh Tanh", "Sigmoid Tanh Gelu",
                                        "Sigmoid"};
    float weights[4 * 3 * 3], x[2 * 3], y[4][2 * 3];
    uint64_t random = leat_test_seed;

    for (size_t i = 0; i < LEAT_COUNT_OF(weights) + LEAT_COUNT_OF(x); i++) {
        float *to = i < LEAT_COUNT_OF(weights) ? &weights[i] : &x[i - LEAT_COUNT_OF(weights)];
        *to = (float)(leat_test_random(&random) % 200) / 100 - 1;
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(names); i++) {
        struct leat_graph *graph = NULL;
        const void *inputs[1] = {x};
        void *outputs[1] = {y[i]};
        struct builder b;
        struct loaded loaded;

        builder_init(&b, 14);
        (void)builder_input(&b, "x", ONNX_F32, DIMS(2, 1, 3));
        (void)builder_constant(&b, "w", ONNX_F32, weights, DIMS(1, 12, 3));
        Onnx__NodeProto *node = builder_node(&b, "LSTM", "x w w", "y");
        if (names[i] != NULL) {
            builder_strings(&b, node, "activations", names[i]);
        }
        builder_output(&b, "y");
        const enum leat_status status = builder_import(&b, &graph);
        EXPECT(status == (i < 2 ? LEAT_OK : LEAT_ERR_UNSUPPORTED));
        if (status == LEAT_OK) {
            load(&leat_backend_reference, graph, &loaded);
            EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
            EXPECT(memcmp(y[0], y[i], sizeof(y[0])) == 0);
            unload(&loaded);
            leat_graph_destroy(graph);
        }
        builder_fini(&b);
    }
}

int
main(void)
{
    static const char *const names[] = {"reference", "cpu"};

    leat_test_init();
    test_bounded_shapes();
    test_bounded_transforms();
    test_recurrent_defaults();
    test_recurrent_parameters();
    for (size_t i = 0; i < LEAT_COUNT_OF(names); i++) {
        const struct leat_backend *backend = leat_backend_find(names[i]);
        EXPECT(backend != NULL || i > 0);
        if (backend != NULL) {
            test_bounded_shapes_are_refused(backend);
            test_lp_normalization(backend);
            test_lp_pool(backend);
            test_recurrent_functions(backend);
        }
    }
    return 0;
}
