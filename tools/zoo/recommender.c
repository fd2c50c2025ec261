/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recommender in the manner of He et al., "Neural Collaborative Filtering" (the MLP path, figure 2) and
 * Cheng et al., "Wide & Deep Learning for Recommender Systems": embeddings and dense features go through
 * a tower; one weight per user and per item is the wide part; the sum is a click probability.
 */
#include "base/align.h"
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

struct recommender {
    int64_t users, items, width, dense;
    int64_t tower[3];
};

void
zoo_build_mlp_recommender(struct onnx_builder *b, enum zoo_size size)
{
    static const struct recommender full = {100000, 50000, 64, 13, {512, 256, 128}};
    static const struct recommender test = {500, 200, 8, 13, {32, 16, 8}};
    static const char *const layers[] = {"tower.0", "tower.1", "tower.2"};
    static const char *const relus[] = {"relu.0", "relu.1", "relu.2"};
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
    for (size_t i = 0; i < LEAT_COUNT_OF(layers); i++) {
        x = layer_relu(b, relus[i], layer_gemm(b, layers[i], x, net->tower[i]));
    }
    x = layer_gemm(b, "fc", x, 1);

    onnx_builder_scope(b, "wide");
    x = layer_add(b, "add_user", x, layer_flatten(b, "user.flatten", layer_embedding(b, "user", user, net->users, 1, 0.5)));
    x = layer_add(b, "add_item", x, layer_flatten(b, "item.flatten", layer_embedding(b, "item", item, net->items, 1, 0.5)));
    onnx_builder_scope(b, "%s", "");
    onnx_builder_output(b, layer_sigmoid(b, "sigmoid", x), "score");
}
