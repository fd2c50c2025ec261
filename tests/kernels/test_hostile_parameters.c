/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Tensors that say how large a result is, or which part of an input it takes, may hold anything: as constants of the
 *          file they give a model that runs in every backend or an error, and as payload an error of that batch at the most.
 * Method   One operator per case, with parameters that are right; then each number of each of them is every hostile one in turn.
 *          What would be large is not run.
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

#define ONNX_BOOL        9
#define PARAMETERS_MAX   5u
#define NUMBERS_MAX      6u
#define RUN_BYTES_MAX    ((size_t)4 << 20)
#define PARAMETER_SCALAR 0

struct parameter {
    const char *name;
    int type;
    int64_t count; /* PARAMETER_SCALAR: one, of rank 0 */
    double numbers[NUMBERS_MAX];
};

struct parametric {
    const char *op;
    int64_t opset;
    int64_t x[4]; /* dims of input x, f32, ending with 0; none when x[0] is 0 */
    const char *inputs, *outputs;
    const char *attribute; /* an integer one, or NULL */
    int64_t value;
    struct parameter parameters[PARAMETERS_MAX]; /* ends with a NULL name */
};

static const struct parametric cases[] = {
    {"Slice", 13, {2, 3, 4}, "x starts ends axes steps", "y", NULL, 0,
     {{"starts", ONNX_I64, 2, {0, 1}}, {"ends", ONNX_I64, 2, {2, 3}}, {"axes", ONNX_I64, 2, {0, 1}}, {"steps", ONNX_I64, 2, {1, 1}}}},
    {"Slice", 10, {2, 3, 4}, "x starts ends axes", "y", NULL, 0,
     {{"starts", ONNX_I32, 1, {1}}, {"ends", ONNX_I32, 1, {3}}, {"axes", ONNX_I32, 1, {2}}}},
    {"Range", 11, {0}, "s l d", "y", NULL, 0,
     {{"s", ONNX_I64, PARAMETER_SCALAR, {0}}, {"l", ONNX_I64, PARAMETER_SCALAR, {5}}, {"d", ONNX_I64, PARAMETER_SCALAR, {1}}}},
    {"Range", 11, {0}, "s l d", "y", NULL, 0,
     {{"s", ONNX_F32, PARAMETER_SCALAR, {0}}, {"l", ONNX_F32, PARAMETER_SCALAR, {5}}, {"d", ONNX_F32, PARAMETER_SCALAR, {0.5}}}},
    {"Tile", 13, {2, 3, 4}, "x r", "y", NULL, 0, {{"r", ONNX_I64, 3, {1, 2, 1}}}},
    {"Expand", 13, {2, 1, 4}, "x s", "y", NULL, 0, {{"s", ONNX_I64, 3, {1, 3, 4}}}},
    {"Reshape", 14, {2, 3, 4}, "x s", "y", NULL, 0, {{"s", ONNX_I64, 3, {6, 2, 2}}}},
    {"Reshape", 14, {2, 3, 4}, "x s", "y", "allowzero", 1, {{"s", ONNX_I64, 2, {6, 4}}}},
    {"TopK", 11, {2, 3, 4}, "x k", "y z", "axis", 1, {{"k", ONNX_I64, 1, {2}}}},
    {"Pad", 13, {2, 3, 4}, "x p", "y", NULL, 0, {{"p", ONNX_I64, 6, {0, 1, 0, 1, 0, 2}}}},
    {"Pad", 18, {2, 3, 4}, "x p - a", "y", NULL, 0, {{"p", ONNX_I64, 4, {1, 0, 2, -1}}, {"a", ONNX_I64, 2, {2, 0}}}},
    {"ConstantOfShape", 9, {0}, "s", "y", NULL, 0, {{"s", ONNX_I64, 3, {2, 3, 4}}}},
    {"OneHot", 13, {0}, "i d v", "y", NULL, 0,
     {{"i", ONNX_I64, 3, {0, 2, 1}}, {"d", ONNX_I64, PARAMETER_SCALAR, {4}}, {"v", ONNX_F32, 2, {0, 1}}}},
    {"Squeeze", 13, {1, 3, 1}, "x a", "y", NULL, 0, {{"a", ONNX_I64, 2, {0, 2}}}},
    {"Unsqueeze", 13, {2, 3}, "x a", "y", NULL, 0, {{"a", ONNX_I64, 2, {0, 2}}}},
    {"Split", 13, {2, 3}, "x s", "y z", "axis", 1, {{"s", ONNX_I64, 2, {1, 2}}}},
    {"ReduceSum", 13, {2, 3, 4}, "x a", "y", "keepdims", 0, {{"a", ONNX_I64, 2, {0, 2}}}},
    {"ReduceMax", 18, {2, 3, 4}, "x a", "y", "keepdims", 0, {{"a", ONNX_I64, 2, {0, 2}}}},
    {"ReduceLogSumExp", 18, {2, 3, 4}, "x a", "y", "noop_with_empty_axes", 1, {{"a", ONNX_I64, 2, {0, 2}}}},
    {"Resize", 13, {1, 2, 4}, "x - s", "y", NULL, 0, {{"s", ONNX_F32, 3, {1, 1, 1.5}}}},
    {"Resize", 13, {1, 2, 4}, "x - - z", "y", NULL, 0, {{"z", ONNX_I64, 3, {1, 2, 7}}}},
    {"Upsample", 9, {1, 2, 4}, "x s", "y", NULL, 0, {{"s", ONNX_F32, 3, {1, 1, 2}}}},
    {"Compress", 11, {2, 3}, "x c", "y", "axis", 1, {{"c", ONNX_BOOL, 3, {1, 0, 1}}}},
    {"Clip", 13, {2, 3}, "x lo hi", "y", NULL, 0,
     {{"lo", ONNX_F32, PARAMETER_SCALAR, {0}}, {"hi", ONNX_F32, PARAMETER_SCALAR, {6}}}},
    {"CumSum", 14, {2, 3}, "x a", "y", NULL, 0, {{"a", ONNX_I64, PARAMETER_SCALAR, {1}}}},
    {"Trilu", 14, {2, 3}, "x k", "y", NULL, 0, {{"k", ONNX_I64, PARAMETER_SCALAR, {1}}}},
    {"HannWindow", 17, {0}, "n", "y", NULL, 0, {{"n", ONNX_I64, PARAMETER_SCALAR, {8}}}},
    {"DFT", 17, {1, 8, 1}, "x n", "y", NULL, 0, {{"n", ONNX_I64, PARAMETER_SCALAR, {8}}}},
    {"DFT", 20, {1, 8, 1}, "x n a", "y", NULL, 0,
     {{"n", ONNX_I64, PARAMETER_SCALAR, {8}}, {"a", ONNX_I64, PARAMETER_SCALAR, {1}}}},
    {"STFT", 17, {1, 16, 1}, "x step - n", "y", NULL, 0,
     {{"step", ONNX_I64, PARAMETER_SCALAR, {4}}, {"n", ONNX_I64, PARAMETER_SCALAR, {8}}}},
    {"MelWeightMatrix", 17, {0}, "m n r lo hi", "y", NULL, 0,
     {{"m", ONNX_I64, PARAMETER_SCALAR, {4}}, {"n", ONNX_I64, PARAMETER_SCALAR, {16}}, {"r", ONNX_I64, PARAMETER_SCALAR, {8000}},
      {"lo", ONNX_F32, PARAMETER_SCALAR, {0}}, {"hi", ONNX_F32, PARAMETER_SCALAR, {4000}}}},
    {"Gather", 13, {4, 3}, "x i", "y", "axis", 0, {{"i", ONNX_I64, 3, {0, 3, -4}}}},
    {"GatherND", 13, {4, 3}, "x i", "y", NULL, 0, {{"i", ONNX_I64, 2, {3, 2}}}},
    {"ReverseSequence", 10, {4, 3}, "x n", "y", "time_axis", 0, {{"n", ONNX_I64, 3, {4, 1, 0}}}},
};

static const double hostile[] = {0,    1,     -1,   2,          3,   7,    255,  65536, 2147483647.0, -2147483648.0, 4294967296.0,
                                 1e12, -1e12, 4e18, -9.3e18, 9.3e18, 1e30, -1e30, 1e-30, INFINITY,     -INFINITY,     NAN};

static int64_t
as_integer(double number)
{
    return number >= 9.2e18 ? INT64_MAX : number <= -9.2e18 ? INT64_MIN : number == number ? (int64_t)number : 0;
}

/* Numbers of a parameter as its type has them; returns how many. */
static size_t
encode(const struct parameter *parameter, void *to)
{
    const size_t count = parameter->count == PARAMETER_SCALAR ? 1 : (size_t)parameter->count;
    for (size_t i = 0; i < count; i++) {
        const double number = parameter->numbers[i];
        const int64_t integer = as_integer(number);
        switch (parameter->type) {
        case ONNX_F32:
            ((float *)to)[i] = (float)number;
            break;
        case ONNX_I32:
            ((int32_t *)to)[i] = integer > INT32_MAX ? INT32_MAX : integer < INT32_MIN ? INT32_MIN : (int32_t)integer;
            break;
        case ONNX_BOOL:
            ((uint8_t *)to)[i] = (uint8_t)integer;
            break;
        default:
            ((int64_t *)to)[i] = integer;
        }
    }
    return count;
}

static size_t
rank_of(const struct parametric *c)
{
    size_t rank = 0;
    while (rank < 4 && c->x[rank] != 0) {
        rank++;
    }
    return rank;
}

/* Cases without x have it as an input beside. */
static enum leat_status
import_case(const struct parametric *c, const struct parameter *parameters, bool constant, struct leat_graph **ret_graph)
{
    int64_t numbers[NUMBERS_MAX];
    struct builder b;

    builder_init(&b, c->opset);
    (void)builder_input(&b, "x", ONNX_F32, c->x, rank_of(c));
    for (const struct parameter *p = parameters; p < parameters + PARAMETERS_MAX && p->name != NULL; p++) {
        (void)encode(p, numbers);
        if (constant) {
            (void)builder_constant(&b, p->name, p->type, numbers, &p->count, p->count == PARAMETER_SCALAR ? 0 : 1);
        } else {
            (void)builder_input(&b, p->name, p->type, &p->count, p->count == PARAMETER_SCALAR ? 0 : 1);
        }
    }
    Onnx__NodeProto *node = builder_node(&b, c->op, c->inputs, c->outputs);
    if (c->attribute != NULL) {
        (void)builder_int(&b, node, c->attribute, c->value);
    }
    (void)builder_node(&b, "Identity", "x", "same");
    builder_output(&b, "y");
    if (strcmp(c->outputs, "y") != 0) {
        builder_output(&b, "z");
    }
    builder_output(&b, "same");
    const enum leat_status status = builder_import(&b, ret_graph);
    builder_fini(&b);
    return status;
}

static bool
is_small(const struct leat_graph *graph)
{
    size_t bytes;

    EXPECT(leat_reference_scratch_bytes(graph, &bytes) == LEAT_OK);
    for (uint32_t v = 0; v < graph->value_count && bytes <= RUN_BYTES_MAX; v++) {
        bytes += leat_value_bytes(&graph->values[v]);
    }
    return bytes <= RUN_BYTES_MAX;
}

/* By the reference functions: shapes may shrink. */
static enum leat_status
run_graph(const struct leat_graph *graph, const void *const *inputs)
{
    struct leat_shape shapes[3];
    void *outputs[3];
    size_t bytes;

    EXPECT(leat_reference_scratch_bytes(graph, &bytes) == LEAT_OK);
    void *scratch = aligned_alloc(64, (bytes + 64) / 64 * 64);
    EXPECT(scratch != NULL && graph->output_count <= 3);
    for (uint32_t o = 0; o < graph->output_count; o++) {
        outputs[o] = malloc(leat_value_bytes(&graph->values[graph->outputs[o]]) + 1);
        EXPECT(outputs[o] != NULL);
    }
    const enum leat_status status = leat_reference_run(graph, inputs, outputs, scratch, shapes);
    for (uint32_t o = 0; o < graph->output_count; o++) {
        free(outputs[o]);
    }
    free(scratch);
    return status;
}

/* Through every backend. */
static void
serve(const struct leat_graph *graph, const void *const *inputs, enum leat_status wanted)
{
    static const char *const names[] = {"reference", "cpu"};
    for (size_t i = 0; i < LEAT_COUNT_OF(names); i++) {
        const struct leat_backend *backend = leat_backend_find(names[i]);
        struct loaded loaded;
        void *outputs[3];
        if (backend == NULL) {
            continue;
        }
        load(backend, graph, &loaded);
        for (uint32_t o = 0; o < graph->output_count; o++) {
            outputs[o] = malloc(leat_value_bytes(&graph->values[graph->outputs[o]]) + 1);
            EXPECT(outputs[o] != NULL);
        }
        const enum leat_status status = run(&loaded, inputs, outputs);
        EXPECT(status == wanted);
        for (uint32_t o = 0; o < graph->output_count; o++) {
            free(outputs[o]);
        }
        unload(&loaded);
    }
}

/* LEAT_OK when it ran; any refusal that comes before a run is good. */
static enum leat_status
try(const struct parametric *c, const struct parameter *parameters, bool constant)
{
    static const float x[64] = {1, 2, 3};
    int64_t numbers[PARAMETERS_MAX][NUMBERS_MAX];
    const void *inputs[1 + PARAMETERS_MAX] = {x};
    struct leat_graph *graph = NULL, *concrete = NULL;
    enum leat_status result = LEAT_ERR_SHAPE;

    for (uint32_t p = 0; p < PARAMETERS_MAX && parameters[p].name != NULL; p++) {
        (void)encode(&parameters[p], numbers[p]);
        inputs[1 + p] = numbers[p];
    }
    if (import_case(c, parameters, constant, &graph) != LEAT_OK || leat_graph_specialise(graph, 1, &concrete) != LEAT_OK) {
        leat_graph_destroy(graph);
        return LEAT_ERR_SHAPE;
    }
    EXPECT(leat_graph_check(concrete) == LEAT_OK);
    if (is_small(concrete)) {
        result = run_graph(concrete, inputs);
        EXPECT(result == LEAT_OK || result == LEAT_ERR_SHAPE);
        bool empty = false; /* a batch has items of some bytes */
        for (uint32_t o = 0; o < concrete->output_count; o++) {
            empty = empty || leat_value_bytes(&concrete->values[concrete->outputs[o]]) == 0;
        }
        if (!leat_graph_is_bounded(concrete) && !empty) {
            serve(concrete, inputs, result);
        }
    }
    leat_graph_destroy(concrete);
    leat_graph_destroy(graph);
    return result;
}

static void
test_case(const struct parametric *c)
{
    struct parameter parameters[PARAMETERS_MAX];

    memcpy(parameters, c->parameters, sizeof(parameters));
    if (try(c, parameters, true) != LEAT_OK) {
        (void)fprintf(stderr, "%s at opset %lld does not even run with good parameters: %s\n", c->op, (long long)c->opset,
                      leat_error_text());
        EXPECT(false);
    }
    for (int constant = 0; constant < 2; constant++) {
        for (uint32_t p = 0; p < PARAMETERS_MAX && parameters[p].name != NULL; p++) {
            const uint32_t count = parameters[p].count == PARAMETER_SCALAR ? 1 : (uint32_t)parameters[p].count;
            for (uint32_t i = 0; i < count; i++) {
                const double good = parameters[p].numbers[i];
                for (size_t h = 0; h < LEAT_COUNT_OF(hostile); h++) {
                    parameters[p].numbers[i] = hostile[h];
                    (void)try(c, parameters, constant == 1);
                }
                parameters[p].numbers[i] = good;
            }
        }
    }
    EXPECT(try(c, parameters, true) == LEAT_OK);
}

int
main(void)
{
    leat_test_init();
    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        test_case(&cases[c]);
    }
    return 0;
}
