/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Models in floats of 16 bits are those in f32 with the same weights, their inputs widened and their outputs
 *          rounded: where an operator does not compute in 16 bits, and behind it. What only moves stays as it is.
 * Method   All 65536 numbers of both types as constants, against the conversion that the reference functions use. A
 *          network with all that may go with it, on both backends, against its twin in f32. Graphs of a few nodes, whose
 *          types are looked at.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/reference/element.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { ONNX_F16 = 10, ONNX_BF16 = 16, ALL = 1 << 16, CHANNELS = 4, SIDE = 6, ELEMENTS = CHANNELS * SIDE * SIDE };

static const int types[2] = {ONNX_F16, ONNX_BF16};
static const uint32_t dtypes[2] = {LEAT_DTYPE_F16, LEAT_DTYPE_BF16};

/* ---- Constants ------------------------------------------------------------------------------------- */

static void
test_all_numbers(int kind)
{
    static uint16_t data[ALL];
    struct builder b;

    for (uint32_t i = 0; i < ALL; i++) {
        data[i] = (uint16_t)i;
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", types[kind], DIMS(-1, ALL));
    (void)builder_constant(&b, "w", types[kind], data, DIMS(ALL));
    (void)builder_node(&b, "Add", "x w", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    builder_fini(&b);
    const struct leat_node *add = &graph->nodes[1];
    EXPECT(graph->node_count == 3 && add->op->kind == LEAT_OP_ADD);
    const struct leat_value *w = leat_node_input(graph, add, 1);
    EXPECT(w->dtype == LEAT_DTYPE_F32 && strcmp(w->name, "w, in f32") == 0);
    for (uint32_t i = 0; i < ALL; i++) {
        const float wide = ((const float *)w->data)[i], wanted = (float)leat_element_real(dtypes[kind], data, i);
        EXPECT(isnan(wanted) ? isnan(wide) : memcmp(&wide, &wanted, sizeof(wide)) == 0);
    }
    leat_graph_destroy(graph);
}

/* Both ways, in whole vectors and in what is left, as the reference functions have it; any NaN is one. */
static void
test_conversions(int kind)
{
    enum { FLOATS = 5003 };
    static uint16_t data[ALL], y[FLOATS], expected_y[FLOATS];
    static float wide[ALL], expected[ALL], floats[FLOATS];
    const struct leat_backend *const backends[] = {&leat_backend_reference, &leat_backend_cpu};
    uint64_t random = leat_test_seed + 2;
    struct loaded loaded;
    struct builder b;

    for (uint32_t i = 0; i < ALL; i++) {
        data[i] = (uint16_t)i;
    }
    for (size_t i = 0; i < FLOATS; i++) {
        const uint32_t bits = (uint32_t)leat_test_random(&random);
        memcpy(&floats[i], &bits, sizeof(bits));
        if (i % 2 != 0) { /* halfway between two, and around the ends */
            leat_element_set_real(LEAT_DTYPE_F32, floats, i, ldexp((double)(bits % 4096) + 0.5, (int)(bits >> 12) % 42 - 36));
        }
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", types[kind], DIMS(1, ALL - 7));
    (void)builder_input(&b, "f", ONNX_F32, DIMS(1, FLOATS));
    (void)builder_int(&b, builder_node(&b, "Cast", "x", "wide"), "to", ONNX_F32);
    (void)builder_int(&b, builder_node(&b, "Cast", "f", "y"), "to", types[kind]);
    builder_output(&b, "wide");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    builder_fini(&b);
    for (size_t k = 0; k < LEAT_COUNT_OF(backends); k++) {
        load(backends[k], graph, &loaded);
        EXPECT(run(&loaded, (const void *[]){data + 7, floats},
                   (void *[]){k == 0 ? expected : wide, k == 0 ? expected_y : y}) == LEAT_OK);
        unload(&loaded);
    }
    for (size_t i = 0; i < ALL - 7; i++) {
        EXPECT(isnan(expected[i]) ? isnan(wide[i]) : memcmp(&wide[i], &expected[i], sizeof(wide[i])) == 0);
    }
    for (size_t i = 0; i < FLOATS; i++) {
        EXPECT(isnan(floats[i]) ? isnan(leat_element_real(dtypes[kind], y, i)) : y[i] == expected_y[i]);
    }
    EXPECT(count_plain_loops(graph, LEAT_OP_CAST) <= 1);
    leat_graph_destroy(graph);
}

/* ---- A network ------------------------------------------------------------------------------------- */

/* Random numbers of that type; in f32, the same ones. */
static void
add_weights(struct builder *b, const char *name, int type, int kind, const int64_t *dims, size_t rank, uint64_t *random)
{
    uint16_t halves[ELEMENTS * CHANNELS];
    float wide[ELEMENTS * CHANNELS];
    size_t count = 1;

    for (size_t d = 0; d < rank; d++) {
        count *= (size_t)dims[d];
    }
    EXPECT(count <= ELEMENTS * CHANNELS);
    for (size_t i = 0; i < count; i++) {
        leat_element_set_real(dtypes[kind], halves, i, (double)(leat_test_random(random) % 2000) / 1000 - 1);
        wide[i] = (float)leat_element_real(dtypes[kind], halves, i);
    }
    (void)builder_constant(b, name, type, type == ONNX_F32 ? (const void *)wide : halves, dims, rank);
}

/* Moves, products, a constant that only Where reads, and one that two nodes do. */
static struct leat_graph *
make_network(int type, int kind)
{
    uint64_t random = leat_test_seed;
    bool where[CHANNELS];
    struct builder b;

    for (int i = 0; i < CHANNELS; i++) {
        where[i] = i % 2 != 0;
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", type, DIMS(1, SIDE, SIDE, CHANNELS));
    (void)builder_ints(&b, builder_node(&b, "Transpose", "x", "planes"), "perm", DIMS(0, 3, 1, 2));
    add_weights(&b, "w", type, kind, DIMS(CHANNELS, CHANNELS, 3, 3), &random);
    add_weights(&b, "bias", type, kind, DIMS(CHANNELS), &random);
    add_weights(&b, "other", type, kind, DIMS(CHANNELS, 1, 1), &random);
    (void)builder_constant(&b, "where", ONNX_BOOL, where, DIMS(CHANNELS, 1, 1));
    (void)builder_ints(&b, builder_node(&b, "Conv", "planes w bias", "sums"), "pads", DIMS(1, 1, 1, 1));
    (void)builder_node(&b, "Relu", "sums", "some");
    (void)builder_node(&b, "Where", "where some other", "chosen");
    (void)builder_node(&b, "Mul", "chosen planes", "product");
    (void)builder_node(&b, "Add", "product other", "y");
    (void)builder_node(&b, "GlobalAveragePool", "some", "means");
    builder_output(&b, "y");
    builder_output(&b, "means");
    struct leat_graph *graph = import_graph(&b);
    builder_fini(&b);
    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
    return graph;
}

static void
test_network(int kind)
{
    static const struct leat_backend *const backends[] = {&leat_backend_reference, &leat_backend_cpu};
    static const size_t counts[2] = {ELEMENTS, CHANNELS};
    uint16_t x[ELEMENTS], y[ELEMENTS], means[CHANNELS];
    float wide_x[ELEMENTS], wide_y[ELEMENTS], wide_means[CHANNELS];
    struct leat_graph *narrow = make_network(types[kind], kind), *wide = make_network(ONNX_F32, kind);
    const void *outputs[2] = {y, means};
    const float *wanted[2] = {wide_y, wide_means};
    uint64_t random = leat_test_seed + 1;
    struct loaded loaded;

    EXPECT(strcmp(narrow->values[narrow->outputs[0]].name, "y") == 0);
    EXPECT(strcmp(narrow->values[narrow->outputs[1]].name, "means") == 0);
    for (size_t i = 0; i < ELEMENTS; i++) {
        leat_element_set_real(dtypes[kind], x, i, (double)(leat_test_random(&random) % 2000) / 1000 - 1);
        wide_x[i] = (float)leat_element_real(dtypes[kind], x, i);
    }
    for (size_t k = 0; k < LEAT_COUNT_OF(backends); k++) {
        load(backends[k], wide, &loaded);
        EXPECT(run(&loaded, (const void *[]){wide_x}, (void *[]){wide_y, wide_means}) == LEAT_OK);
        unload(&loaded);
        load(backends[k], narrow, &loaded);
        for (uint32_t t = 0; t < 3; t++) {
            EXPECT(loaded.infos[t].dtype == dtypes[kind]);
        }
        EXPECT(run(&loaded, (const void *[]){x}, (void *[]){y, means}) == LEAT_OK);
        unload(&loaded);
        for (size_t o = 0; o < 2; o++) {
            for (size_t i = 0; i < counts[o]; i++) {
                uint16_t rounded[4]; /* room for any type */
                leat_element_set_real(dtypes[kind], rounded, 0, wanted[o][i]);
                EXPECT(((const uint16_t *)outputs[o])[i] == rounded[0]);
            }
        }
    }
    leat_graph_destroy(narrow);
    leat_graph_destroy(wide);
}

/* ---- Types ----------------------------------------------------------------------------------------- */

static void
start(struct builder *b)
{
    builder_init(b, 13);
    (void)builder_input(b, "x", ONNX_F16, DIMS(-1, 4));
}

static void
expect_types(struct builder *b, const char *output, uint32_t dtype, uint32_t nodes)
{
    builder_output(b, output);
    struct leat_graph *graph = import_graph(b);
    EXPECT(leat_graph_check(graph) == LEAT_OK);
    const struct leat_value *value = &graph->values[graph->outputs[graph->output_count - 1]];
    if (graph->node_count != nodes || value->dtype != dtype) {
        (void)fprintf(stderr, "%s: %u nodes, %s\n", output, graph->node_count, leat_dtype_text(value->dtype));
    }
    EXPECT(graph->node_count == nodes && value->dtype == dtype && strcmp(value->name, output) == 0);
    leat_graph_destroy(graph);
    builder_fini(b);
}

static void
test_types(void)
{
    struct builder b;

    start(&b); /* moves, and what has a form for 16 bits */
    (void)builder_node(&b, "Identity", "x", "a");
    (void)builder_node(&b, "Max", "a x", "y");
    expect_types(&b, "y", LEAT_DTYPE_F16, 2);

    start(&b); /* one Cast for both readers, one for the output */
    (void)builder_node(&b, "Relu", "x", "a");
    (void)builder_node(&b, "Sigmoid", "x", "b");
    (void)builder_node(&b, "Mul", "a b", "y");
    expect_types(&b, "y", LEAT_DTYPE_F16, 5);

    start(&b); /* the file's own conversions stay */
    (void)builder_node(&b, "Relu", "x", "a");
    (void)builder_int(&b, builder_node(&b, "Cast", "a", "y"), "to", ONNX_F32);
    expect_types(&b, "y", LEAT_DTYPE_F32, 3);

    start(&b);
    (void)builder_node(&b, "Relu", "x", "a");
    (void)builder_int(&b, builder_node(&b, "Cast", "a", "y"), "to", ONNX_F16);
    expect_types(&b, "y", LEAT_DTYPE_F16, 3);

    start(&b); /* a value that is an output and is read */
    (void)builder_node(&b, "Relu", "x", "a");
    (void)builder_node(&b, "Identity", "a", "y");
    builder_output(&b, "a");
    expect_types(&b, "y", LEAT_DTYPE_F16, 5);

    start(&b); /* other results are no floats */
    (void)builder_node(&b, "Relu", "x", "a");
    (void)builder_node(&b, "Shape", "a", "y");
    expect_types(&b, "y", LEAT_DTYPE_I64, 3);
}

static void
test_refused(void)
{
    static const uint16_t many[1 << 16];
    struct leat_onnx_source source = {.folder_fd = -1, .memory_bytes_max = sizeof(many) + 1000};
    struct leat_graph *graph = NULL;
    struct builder b;

    start(&b);
    (void)builder_constant(&b, "w", ONNX_F16, many, DIMS(4, 1 << 14));
    (void)builder_node(&b, "MatMul", "x w", "y");
    builder_output(&b, "y");
    source.bytes = builder_pack(&b, &source.byte_count);
    EXPECT(leat_onnx_import_from(&source, &graph) == LEAT_ERR_LIMIT && graph == NULL);
    EXPECT(strstr(leat_error_text(), "node 'y' (operator MatMul): with 'w, in f32' the model's constants take") != NULL);
    source.memory_bytes_max = 3 * sizeof(many);
    EXPECT(leat_onnx_import_from(&source, &graph) == LEAT_OK);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

int
main(void)
{
    leat_test_init();
    for (int kind = 0; kind < 2; kind++) {
        test_all_numbers(kind);
        test_conversions(kind);
        test_network(kind);
    }
    test_types();
    test_refused();
    return 0;
}
