/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", section 2,
 * in the shape that Gupta et al., "DeepRecSys", table I, call RMC2: tables with many look-ups each, whose rows
 * are added up. Rows are bounded so that all tables together take less than a gigabyte.
 */
#include <math.h>
#include <stdio.h>

#include "base/align.h"
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

enum { TABLES = 32, VECTORS = TABLES + 1, PAIRS = VECTORS * (VECTORS - 1) / 2 };

struct dlrm {
    int64_t rows, look_ups, dense;
    int64_t bottom[3]; /* the last is the width of the tables */
    int64_t top[2];
};

static struct onnx_tensor
tower(struct onnx_builder *b, const char *scope, struct onnx_tensor x, const int64_t *widths, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        onnx_builder_scope(b, "%s.%zu", scope, i);
        x = layer_relu(b, "relu", layer_gemm(b, "fc", x, widths[i]));
    }
    return x;
}

/* Dot products of each two vectors. */
static struct onnx_tensor
interact(struct onnx_builder *b, const struct onnx_tensor *vectors, int64_t width)
{
    const int64_t apart[3] = {ONNX_BATCH, VECTORS, width}, flat[2] = {ONNX_BATCH, VECTORS * VECTORS};
    int64_t below_diagonal[PAIRS];
    size_t pairs = 0;
    const char *inputs[2];

    for (int64_t i = 0; i < VECTORS; i++) {
        for (int64_t j = 0; j < i; j++) {
            below_diagonal[pairs++] = i * VECTORS + j;
        }
    }
    LEAT_ASSERT(pairs == PAIRS);
    struct onnx_tensor x = layer_view(b, "apart", layer_concat(b, "concat", 1, vectors, VECTORS), apart, 3);
    x = layer_matmul(b, "bmm", x, layer_transpose(b, "transpose", x, (const int64_t[]){0, 2, 1}));
    x = layer_view(b, "flat", x, flat, 2);
    inputs[0] = x.name;
    inputs[1] = onnx_builder_integers(b, "pairs", below_diagonal, PAIRS);
    struct onnx_node *node = onnx_builder_node(b, "Gather", "gather", inputs, 2);
    onnx_node_int(node, "axis", 1);
    x.name = onnx_node_output(node);
    x.dims[1] = PAIRS;
    return x;
}

void
zoo_build_dlrm_rm2(struct onnx_builder *b, enum zoo_size size)
{
    static const struct dlrm full = {200000, 80, 256, {256, 128, 32}, {512, 128}};
    static const struct dlrm test = {50, 3, 16, {16, 8, 4}, {32, 8}};
    const struct dlrm *net = size == ZOO_SIZE_FULL ? &full : &test;
    const int64_t width = net->bottom[2];
    const struct onnx_tensor dense = onnx_builder_input(b, "dense", &net->dense, 1);
    const struct onnx_tensor ids =
        onnx_builder_indices(b, "indices", (const int64_t[]){TABLES * net->look_ups}, 1, net->rows);
    struct onnx_tensor vectors[VECTORS];

    vectors[0] = tower(b, "bottom", dense, net->bottom, LEAT_COUNT_OF(net->bottom));
    for (int64_t t = 0; t < TABLES; t++) {
        onnx_builder_scope(b, "table.%d", (int)t);
        struct onnx_tensor x = layer_columns(b, "indices", ids, t * net->look_ups, net->look_ups);
        x = layer_embedding(b, "embedding", x, net->rows, width, 0.5 / sqrt((double)net->look_ups));
        vectors[t + 1] = layer_reduce(b, "ReduceSum", "sum", x, 1, false);
        vectors[t + 1].power = 0.25;
    }
    onnx_builder_scope(b, "interaction");
    const struct onnx_tensor parts[2] = {vectors[0], interact(b, vectors, width)};
    struct onnx_tensor x = layer_concat(b, "concat_dense", 1, parts, 2);
    x = tower(b, "top", x, net->top, LEAT_COUNT_OF(net->top));
    onnx_builder_scope(b, "%s", "");
    onnx_builder_output(b, layer_sigmoid(b, "sigmoid", layer_gemm(b, "out", x, 1)), "score");
}
