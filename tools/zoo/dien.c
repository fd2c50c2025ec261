/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zhou et al., "Deep Interest Evolution Network for Click-Through Rate Prediction", sections 4.3 and 4.4, at the
 * size of its Amazon Books experiment. A GRU reads what a user clicked; a second one, whose update gate is scaled
 * by the attention between the target and each click, follows the interest in the target. As TensorFlow's
 * exporter writes it in operator set 11: the second unit is no standard one and becomes a Scan. Clicks of
 * item 0 are padding.
 */
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

#define MASKED -4294967295.0f

struct dien {
    int64_t users, items, categories, width, history;
    int64_t attention[2], tower[2];
};

static struct onnx_tensor
subtract_from_one(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    return layer_binary(b, "Sub", name, layer_scalar(b, layer_part(name, "one").text, 1.0f), x);
}

/* f32[N][T]: how much each click matters for the target; 0 for padding. */
static struct onnx_tensor
attention(struct onnx_builder *b, const struct dien *net, struct onnx_tensor target, struct onnx_tensor clicks,
          struct onnx_tensor padding)
{
    struct onnx_tensor q = layer_prelu(b, "prelu", layer_linear(b, "query", target, clicks.dims[2], true));
    const char *repeats = onnx_builder_integers(b, "repeats", (const int64_t[]){1, net->history}, 2);

    q.name = onnx_node_output(onnx_builder_node(b, "Tile", "tile", (const char *[]){q.name, repeats}, 2));
    q.dims[1] *= net->history;
    const struct onnx_tensor tiled = layer_reshape_to(b, "tiled", q, clicks.dims, 3);
    const struct onnx_tensor parts[4] = {tiled, clicks, layer_binary(b, "Sub", "sub", tiled, clicks),
                                         layer_mul(b, "mul", tiled, clicks)};
    struct onnx_tensor x = layer_concat(b, "concat", 2, parts, 4);
    const int64_t flat[2] = {ONNX_BATCH, net->history};

    x = layer_sigmoid(b, "sigmoid1", layer_linear(b, "dense1", x, net->attention[0], true));
    x = layer_sigmoid(b, "sigmoid2", layer_linear(b, "dense2", x, net->attention[1], true));
    x = layer_reshape_to(b, "flat", layer_linear(b, "dense3", x, 1, true), flat, 2);
    x = layer_where(b, "where", padding, layer_scalar(b, "masked", MASKED), x);
    return layer_softmax(b, "softmax", x);
}

/* Last state f32[N][width] over clicks f32[T][N][width] and scores f32[T][N][1]. */
static struct onnx_tensor
evolve(struct onnx_builder *b, struct onnx_tensor clicks, struct onnx_tensor scores)
{
    const int64_t width = clicks.dims[2];
    const int64_t row[2] = {ONNX_BATCH, width}, one[2] = {ONNX_BATCH, 1};
    const char *shape = layer_shape(b, "initial", clicks, row, 2);
    struct onnx_node *zeros = onnx_builder_node(b, "ConstantOfShape", "initial", &shape, 1);
    struct onnx_tensor gates[2];

    onnx_node_scalar(zeros, "value", 0.0f, 1);
    onnx_builder_body_begin(b, "body");
    const struct onnx_tensor h = onnx_builder_body_input(b, "state", row, 2);
    const struct onnx_tensor click = onnx_builder_body_input(b, "click", row, 2);
    const struct onnx_tensor score = onnx_builder_body_input(b, "score_of_click", one, 2);
    struct onnx_tensor x = layer_concat(b, "concat", 1, (const struct onnx_tensor[]){click, h}, 2);
    x = layer_sigmoid(b, "sigmoid", layer_linear(b, "gates", x, 2 * width, true));
    layer_split(b, "split", x, 1, (const int64_t[]){width, width}, 2, gates);
    const struct onnx_tensor kept = layer_mul(b, "reset", gates[0], h);
    x = layer_concat(b, "concat_1", 1, (const struct onnx_tensor[]){click, kept}, 2);
    x = layer_tanh(b, "tanh", layer_linear(b, "candidate", x, width, true));
    const struct onnx_tensor update = layer_mul(b, "attend", gates[1], subtract_from_one(b, "unattended", score));
    x = layer_mul(b, "new", subtract_from_one(b, "rest", update), x);
    x = layer_add(b, "add", layer_mul(b, "old", update, h), x);
    onnx_builder_output(b, x, "next_state");
    struct onnx_body *body = onnx_builder_body_end(b);

    struct onnx_node *scan = onnx_builder_node(
        b, "Scan", "scan", (const char *[]){onnx_node_output(zeros), clicks.name, scores.name}, 3);
    onnx_node_body(scan, "body", body);
    onnx_node_int(scan, "num_scan_inputs", 2);
    onnx_builder_count(b, (onnx_builder_extent(b, clicks.dims[0]) - 1) * 2 * width * 3 * width); /* of further steps */
    return (struct onnx_tensor){.name = onnx_node_output(scan), .rank = 2, .dims = {ONNX_BATCH, width}, .power = 0.15};
}

void
zoo_build_dien(struct onnx_builder *b, enum zoo_size size)
{
    static const struct dien full = {543060, 367983, 1601, 18, 100, {80, 40}, {200, 80}};
    static const struct dien test = {300, 200, 20, 4, 8, {16, 8}, {16, 8}};
    const struct dien *net = size == ZOO_SIZE_FULL ? &full : &test;
    const int64_t times_first[3] = {1, 0, 2};

    onnx_builder_opset(b, 11);
    const struct onnx_tensor user = onnx_builder_indices(b, "user", &net->history, 0, net->users);
    const struct onnx_tensor item = onnx_builder_indices(b, "item", &net->history, 0, net->items);
    const struct onnx_tensor category = onnx_builder_indices(b, "category", &net->history, 0, net->categories);
    const struct onnx_tensor items = onnx_builder_indices(b, "clicked_items", &net->history, 1, net->items);
    const struct onnx_tensor categories =
        onnx_builder_indices(b, "clicked_categories", &net->history, 1, net->categories);

    onnx_builder_scope(b, "embedding");
    struct onnx_tensor tables[2] = {{.rank = 2, .dims = {net->items, net->width}, .power = 1.0},
                                    {.rank = 2, .dims = {net->categories, net->width}, .power = 1.0}};
    tables[0].name = onnx_builder_normal(b, "items", tables[0].dims, 2, 0.0, 1.0);
    tables[1].name = onnx_builder_normal(b, "categories", tables[1].dims, 2, 0.0, 1.0);
    const struct onnx_tensor pair[2] = {layer_gather(b, "item", tables[0], item),
                                        layer_gather(b, "category", tables[1], category)};
    const struct onnx_tensor pairs[2] = {layer_gather(b, "clicked_item", tables[0], items),
                                         layer_gather(b, "clicked_category", tables[1], categories)};
    const struct onnx_tensor target = layer_concat(b, "target", 1, pair, 2);
    const struct onnx_tensor clicks = layer_concat(b, "clicks", 2, pairs, 2);
    const struct onnx_tensor padding = layer_binary(b, "Equal", "padding", items, layer_integer(b, "none", 0));
    struct onnx_tensor parts[5] = {layer_embedding(b, "user", user, net->users, net->width, 1.0), target};

    onnx_builder_scope(b, "rnn_1");
    struct onnx_tensor interests = layer_transpose(b, "transpose", clicks, times_first);
    interests = layer_recurrent(b, "gru", interests, (struct layer_recurrent){.op = "GRU", .hidden = 2 * net->width,
                                                                              .reset_before = true}, NULL);
    interests = layer_transpose(b, "transpose_1", interests, times_first);

    onnx_builder_scope(b, "attention");
    struct onnx_tensor scores = attention(b, net, target, interests, padding);
    onnx_builder_scope(b, "rnn_2");
    scores = layer_transpose(b, "transpose", layer_unsqueeze(b, "expand", scores, 2), times_first);
    parts[4] = evolve(b, layer_transpose(b, "transpose_1", interests, times_first), scores);

    onnx_builder_scope(b, "fcn");
    parts[2] = layer_reduce(b, "ReduceSum", "sum", clicks, 1, false);
    parts[2].power = (double)net->history;
    parts[3] = layer_mul(b, "mul", target, parts[2]);
    struct onnx_tensor x = layer_concat(b, "concat", 1, parts, 5);
    x = layer_batch_norm_epsilon(b, "bn1", x, 1.0, 0.001f);
    x = layer_prelu(b, "prelu1", layer_linear(b, "f1", x, net->tower[0], true));
    x = layer_prelu(b, "prelu2", layer_linear(b, "f2", x, net->tower[1], true));
    onnx_builder_output(b, layer_softmax(b, "softmax", layer_linear(b, "f3", x, 2, true)), "probabilities");
}
