/* SPDX-License-Identifier: Apache-2.0 */
/* Recommenders of embeddings and towers. */
#include <stdio.h>

#include "base/align.h"
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

struct recommender {
    int64_t users, items, width, dense;
    int64_t tower[3];
};

static struct part_name
numbered(const char *name, size_t index)
{
    char number[24];
    (void)snprintf(number, sizeof(number), "%zu", index);
    return layer_part(name, number);
}

/*
 * In the manner of He et al., "Neural Collaborative Filtering" (the MLP path, figure 2) and Cheng et al., "Wide
 * & Deep Learning for Recommender Systems": embeddings and dense features go through a tower; one weight per
 * user and per item is the wide part; the sum is a click probability.
 */
void
zoo_build_mlp_recommender(struct onnx_builder *b, enum zoo_size size)
{
    static const struct recommender full = {100000, 50000, 64, 13, {512, 256, 128}};
    static const struct recommender test = {500, 200, 8, 13, {32, 16, 8}};
    const struct recommender *net = size == ZOO_SIZE_FULL ? &full : &test;
    const int64_t one[1] = {1};

    const struct onnx_tensor user = onnx_builder_indices(b, "user", one, 1, net->users);
    const struct onnx_tensor item = onnx_builder_indices(b, "item", one, 1, net->items);
    const struct onnx_tensor dense = onnx_builder_input(b, "dense", &net->dense, 1);

    onnx_builder_scope(b, "deep");
    const struct onnx_tensor parts[3] = {
        layer_flatten(b, "user.flatten", layer_embedding(b, "user", user, net->users, net->width, 1.0)),
        layer_flatten(b, "item.flatten", layer_embedding(b, "item", item, net->items, net->width, 1.0)),
        dense,
    };
    struct onnx_tensor x = layer_concat(b, "concat", 1, parts, 3);
    for (size_t i = 0; i < LEAT_COUNT_OF(net->tower); i++) {
        x = layer_relu(b, numbered("relu", i).text, layer_gemm(b, numbered("tower", i).text, x, net->tower[i]));
    }
    x = layer_gemm(b, "fc", x, 1);

    onnx_builder_scope(b, "wide");
    x = layer_add(b, "add_user", x,
                  layer_flatten(b, "user.flatten", layer_embedding(b, "user", user, net->users, 1, 0.5)));
    x = layer_add(b, "add_item", x,
                  layer_flatten(b, "item.flatten", layer_embedding(b, "item", item, net->items, 1, 0.5)));
    onnx_builder_scope(b, "%s", "");
    onnx_builder_output(b, layer_sigmoid(b, "sigmoid", x), "score");
}

/*
 * He et al., "Neural Collaborative Filtering", figure 3 (NeuMF), at the size that MLPerf trains on MovieLens-20M:
 * a product of embeddings beside a tower over others.
 */
void
zoo_build_ncf(struct onnx_builder *b, enum zoo_size size)
{
    const bool full = size == ZOO_SIZE_FULL;
    const int64_t users = full ? 138493 : 300, items = full ? 26744 : 200, width = full ? 64 : 8;
    const int64_t tower[3] = {4 * width, 2 * width, width};
    const struct onnx_tensor user = onnx_builder_indices(b, "user", tower, 0, users);
    const struct onnx_tensor item = onnx_builder_indices(b, "item", tower, 0, items);

    const struct onnx_tensor product = layer_mul(b, "mf.mul", layer_embedding(b, "mf_user", user, users, width, 1.0),
                                                 layer_embedding(b, "mf_item", item, items, width, 1.0));
    const struct onnx_tensor pair[2] = {layer_embedding(b, "mlp_user", user, users, 2 * width, 1.0),
                                        layer_embedding(b, "mlp_item", item, items, 2 * width, 1.0)};
    struct onnx_tensor x = layer_concat(b, "mlp.concat", 1, pair, 2);
    for (size_t i = 0; i < LEAT_COUNT_OF(tower); i++) {
        x = layer_relu(b, numbered("relu", i).text, layer_gemm(b, numbered("mlp", i).text, x, tower[i]));
    }
    x = layer_concat(b, "concat", 1, (const struct onnx_tensor[]){product, x}, 2);
    onnx_builder_output(b, layer_sigmoid(b, "sigmoid", layer_gemm(b, "final", x, 1)), "score");
}

enum { TABLES = 26, DENSE = 13, TASKS = 5 }; /* features as in Criteo's data set */

struct tables {
    int64_t rows, width;
    int64_t tower[3];
};
static const struct tables tables_full = {40000, 32, {1024, 512, 256}};
static const struct tables tables_test = {40, 4, {32, 16, 8}};

/* One look-up in each table, and the dense features. */
static struct onnx_tensor
look_up(struct onnx_builder *b, const struct tables *net, struct onnx_tensor ids, struct onnx_tensor dense)
{
    struct onnx_tensor parts[TABLES + 1];

    for (size_t t = 0; t < TABLES; t++) {
        const struct part_name name = numbered("table", t);
        const struct onnx_tensor column = layer_columns(b, name.text, ids, (int64_t)t, 1);
        parts[t] = layer_embedding(b, name.text, column, net->rows, net->width, 1.0);
    }
    parts[TABLES] = dense;
    return layer_concat(b, "concat", 1, parts, TABLES + 1);
}

/*
 * Cheng et al., "Wide & Deep Learning for Recommender Systems", figure 4: a weight for each category is the wide
 * part, three layers over embeddings the deep one. As TensorFlow's exporter writes it in operator set 11.
 */
void
zoo_build_wide_deep(struct onnx_builder *b, enum zoo_size size)
{
    const struct tables *net = size == ZOO_SIZE_FULL ? &tables_full : &tables_test;
    onnx_builder_opset(b, 11);
    const struct onnx_tensor ids = onnx_builder_indices(b, "categories", (const int64_t[]){TABLES}, 1, net->rows);
    const struct onnx_tensor dense = onnx_builder_input(b, "dense", (const int64_t[]){DENSE}, 1);
    const char *weights[TABLES + 1];

    onnx_builder_scope(b, "linear");
    struct onnx_tensor wide = layer_linear(b, "dense", dense, 1, true);
    weights[TABLES] = wide.name;
    for (size_t t = 0; t < TABLES; t++) {
        const struct part_name name = numbered("weights", t);
        const struct onnx_tensor column = layer_columns(b, name.text, ids, (int64_t)t, 1);
        weights[t] = layer_embedding(b, name.text, column, net->rows, 1, 0.2).name;
    }
    wide.name = onnx_node_output(onnx_builder_node(b, "Sum", "sum", weights, TABLES + 1));
    wide.power += TABLES * 0.04;

    onnx_builder_scope(b, "dnn");
    struct onnx_tensor x = look_up(b, net, ids, dense);
    for (size_t i = 0; i < LEAT_COUNT_OF(net->tower); i++) {
        x = layer_linear(b, numbered("hidden", i).text, x, net->tower[i], true);
        x = layer_relu(b, numbered("relu", i).text, x);
    }
    x = layer_linear(b, "logits", x, 1, true);
    onnx_builder_scope(b, "%s", "");
    onnx_builder_output(b, layer_sigmoid(b, "probability", layer_add(b, "add", wide, x)), "score");
}

/*
 * Zhao et al., "Recommending What Video to Watch Next: A Multitask Ranking System", with the shared bottom and
 * towers that Gupta et al., "DeepRecSys", table I, give it (MT-WnD): one tower for each objective.
 */
void
zoo_build_mt_wnd(struct onnx_builder *b, enum zoo_size size)
{
    const struct tables *net = size == ZOO_SIZE_FULL ? &tables_full : &tables_test;
    const struct onnx_tensor ids = onnx_builder_indices(b, "categories", (const int64_t[]){TABLES}, 1, net->rows);
    const struct onnx_tensor dense = onnx_builder_input(b, "dense", (const int64_t[]){DENSE}, 1);
    struct onnx_tensor scores[TASKS];

    onnx_builder_scope(b, "bottom");
    const struct onnx_tensor bottom = look_up(b, net, ids, dense);
    for (int task = 0; task < TASKS; task++) {
        struct onnx_tensor x = bottom;
        onnx_builder_scope(b, "task.%d", task);
        for (size_t i = 0; i < LEAT_COUNT_OF(net->tower); i++) {
            x = layer_relu(b, numbered("relu", i).text, layer_gemm(b, numbered("fc", i).text, x, net->tower[i]));
        }
        scores[task] = layer_sigmoid(b, "sigmoid", layer_gemm(b, "out", x, 1));
    }
    onnx_builder_scope(b, "%s", "");
    onnx_builder_output(b, layer_concat(b, "concat", 1, scores, TASKS), "scores");
}
