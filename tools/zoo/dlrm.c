/* SPDX-License-Identifier: Apache-2.0 */
/* Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", section 2. */
#include <math.h>
#include <stdio.h>

#include "base/align.h"
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

enum { TABLES = 32, COLUMNS = 26, VECTORS_MAX = TABLES + 1, PAIRS_MAX = VECTORS_MAX * (VECTORS_MAX - 1) / 2 };

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

/* Dot products of each two of `count` vectors, behind the first vector itself. */
static struct onnx_tensor
interact(struct onnx_builder *b, const struct onnx_tensor *vectors, uint32_t count)
{
    const int64_t width = vectors[0].dims[1];
    const int64_t apart[3] = {ONNX_BATCH, count, width}, flat[2] = {ONNX_BATCH, count * count};
    int64_t below_diagonal[PAIRS_MAX];
    uint32_t pairs = 0;
    const char *inputs[2];

    LEAT_ASSERT(count <= VECTORS_MAX);
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < i; j++) {
            below_diagonal[pairs++] = i * count + j;
        }
    }
    onnx_builder_scope(b, "interaction");
    struct onnx_tensor x = layer_view(b, "apart", layer_concat(b, "concat", 1, vectors, count), apart, 3);
    x = layer_matmul(b, "bmm", x, layer_transpose(b, "transpose", x, (const int64_t[]){0, 2, 1}));
    x = layer_view(b, "flat", x, flat, 2);
    inputs[0] = x.name;
    inputs[1] = onnx_builder_integers(b, "pairs", below_diagonal, pairs);
    struct onnx_node *node = onnx_builder_node(b, "Gather", "gather", inputs, 2);
    onnx_node_int(node, "axis", 1);
    x.name = onnx_node_output(node);
    x.dims[1] = pairs;
    return layer_concat(b, "concat_dense", 1, (const struct onnx_tensor[]){vectors[0], x}, 2);
}

static void
score(struct onnx_builder *b, struct onnx_tensor x, const int64_t top[2])
{
    x = tower(b, "top", x, top, 2);
    onnx_builder_scope(b, "%s", "");
    onnx_builder_output(b, layer_sigmoid(b, "sigmoid", layer_gemm(b, "out", x, 1)), "score");
}

/*
 * In the shape that Gupta et al., "DeepRecSys", table I, call RMC2: tables with many look-ups each, whose rows
 * are added up. Rows are bounded so that all tables together take less than a gigabyte.
 */
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
    struct onnx_tensor vectors[TABLES + 1];

    vectors[0] = tower(b, "bottom", dense, net->bottom, LEAT_COUNT_OF(net->bottom));
    for (int64_t t = 0; t < TABLES; t++) {
        onnx_builder_scope(b, "table.%d", (int)t);
        struct onnx_tensor x = layer_columns(b, "indices", ids, t * net->look_ups, net->look_ups);
        x = layer_embedding(b, "embedding", x, net->rows, width, 0.5 / sqrt((double)net->look_ups));
        vectors[t + 1] = layer_reduce(b, "ReduceSum", "sum", x, 1, false);
        vectors[t + 1].power = 0.25;
    }
    score(b, interact(b, vectors, LEAT_COUNT_OF(vectors)), net->top);
}

/*
 * The authors' configuration for Criteo's Kaggle data set: 26 categories, one look-up each, in tables of the
 * data's own sizes, more than 2 GB. Categories are taken modulo these, as with their --max-ind-range.
 */
void
zoo_build_dlrm_criteo(struct onnx_builder *b, enum zoo_size size)
{
    static const int64_t rows_full[COLUMNS] = {
        1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306,
        10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
    };
    static const int64_t bottom_full[4] = {512, 256, 64, 16}, bottom_test[4] = {16, 16, 8, 4};
    static const int64_t top_full[2] = {512, 256}, top_test[2] = {32, 8};
    const bool full = size == ZOO_SIZE_FULL;
    const int64_t *bottom = full ? bottom_full : bottom_test;
    const struct onnx_tensor dense = onnx_builder_input(b, "dense", (const int64_t[]){13}, 1);
    struct onnx_tensor ids =
        onnx_builder_indices(b, "categories", (const int64_t[]){COLUMNS}, 1, full ? 10131227 : 200);
    struct onnx_tensor vectors[COLUMNS + 1], modulus = {.rank = 1, .dims = {COLUMNS}};
    int64_t rows[COLUMNS];

    for (size_t t = 0; t < COLUMNS; t++) {
        rows[t] = full || rows_full[t] < 50 ? rows_full[t] : 50;
    }
    modulus.name = onnx_builder_integers(b, "rows", rows, COLUMNS);
    ids = layer_binary(b, "Mod", "mod", ids, modulus);
    vectors[0] = tower(b, "bottom", dense, bottom, 4);
    for (size_t t = 0; t < COLUMNS; t++) {
        onnx_builder_scope(b, "table.%zu", t);
        vectors[t + 1] = layer_embedding(b, "embedding", layer_columns(b, "category", ids, (int64_t)t, 1), rows[t],
                                         bottom[3], 0.5);
    }
    score(b, interact(b, vectors, LEAT_COUNT_OF(vectors)), full ? top_full : top_test);
}
