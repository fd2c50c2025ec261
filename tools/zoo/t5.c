/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", section
 * 2.1, size small: encoder, and decoder without a cache, which gives the scores of the next token at every
 * position of the target; sampling is the caller's. Positions enter as a learned bias of the scores, by distance.
 */
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

#define BUCKETS      32
#define DISTANCE_MAX 128
#define EPSILON      1e-6f
#define MASKED       -3.4028235e38f

struct t5 {
    struct onnx_builder *b;
    int64_t vocabulary, width, head_width, heads, hidden;
    int layers;
};

static struct t5
make(struct onnx_builder *b, enum zoo_size size)
{
    const struct t5 full = {b, 32128, 512, 64, 8, 2048, 6};
    const struct t5 test = {b, 200, 16, 4, 4, 32, 6};
    return size == ZOO_SIZE_FULL ? full : test;
}

/* Root mean square, no mean taken off. */
static struct onnx_tensor
norm(const struct t5 *net, const char *name, struct onnx_tensor x)
{
    struct onnx_builder *b = net->b;
    struct onnx_tensor weight = {.rank = 1, .dims = {net->width}, .power = 1.0};
    struct onnx_tensor y = layer_binary(b, "Pow", layer_part(name, "pow").text, x,
                                        layer_scalar(b, layer_part(name, "two").text, 2.0f));

    weight.name = onnx_builder_uniform(b, layer_part(name, "weight").text, weight.dims, 1, 0.75, 1.25);
    y = layer_reduce(b, "ReduceMean", layer_part(name, "mean").text, y, x.rank - 1, true);
    y = layer_binary(b, "Add", layer_part(name, "add").text, y,
                     layer_scalar(b, layer_part(name, "epsilon").text, EPSILON));
    y = layer_unary(b, "Sqrt", layer_part(name, "sqrt").text, y);
    y = layer_binary(b, "Div", layer_part(name, "div").text, layer_scalar(b, layer_part(name, "one").text, 1.0f), y);
    x = layer_binary(b, "Mul", layer_part(name, "mul").text, x, y);
    x.power = 1.0;
    return layer_mul(b, layer_part(name, "mul_1").text, weight, x);
}

/*
 * From distance (key less query) to bucket: one for each near one, wider and wider beyond half of the buckets;
 * in the encoder half of all for each direction. The logarithm of distance 0 is taken but not used.
 */
static struct onnx_tensor
bucket(struct onnx_builder *b, struct onnx_tensor distance, bool both_ways)
{
    const int64_t buckets = both_ways ? BUCKETS / 2 : BUCKETS;
    const int64_t exact = buckets / 2;
    struct onnx_tensor side = {0}, far;

    if (both_ways) {
        side = layer_binary(b, "Greater", "bucket.greater", distance, layer_integer(b, "bucket.zero", 0));
        side = layer_cast(b, "bucket.side", side, ONNX_TYPE_I64);
        side = layer_binary(b, "Mul", "bucket.side_mul", side, layer_integer(b, "bucket.half", buckets));
        distance = layer_unary(b, "Abs", "bucket.abs", distance);
    } else {
        distance = layer_binary(b, "Min", "bucket.min", distance, layer_integer(b, "bucket.zero", 0));
        distance = layer_unary(b, "Neg", "bucket.neg", distance);
    }
    const struct onnx_tensor near =
        layer_binary(b, "Less", "bucket.less", distance, layer_integer(b, "bucket.exact", exact));
    far = layer_cast(b, "bucket.float", distance, ONNX_TYPE_F32);
    far = layer_binary(b, "Div", "bucket.div", far, layer_scalar(b, "bucket.div.by", (float)exact));
    far = layer_unary(b, "Log", "bucket.log", far);
    /* ln(DISTANCE_MAX / exact): ln 16 in the encoder, ln 8 in the decoder */
    far = layer_binary(b, "Div", "bucket.div_1", far,
                       layer_scalar(b, "bucket.div_1.by", both_ways ? 2.7725887f : 2.0794415f));
    far = layer_binary(b, "Mul", "bucket.mul", far, layer_scalar(b, "bucket.mul.by", (float)(buckets - exact)));
    far = layer_cast(b, "bucket.long", far, ONNX_TYPE_I64);
    far = layer_binary(b, "Add", "bucket.add", far, layer_integer(b, "bucket.add.to", exact));
    far = layer_binary(b, "Min", "bucket.min_1", far, layer_integer(b, "bucket.last", buckets - 1));
    far = layer_where(b, "bucket.where", near, distance, far);
    return both_ways ? layer_binary(b, "Add", "bucket.add_1", side, far) : far;
}

/* f32[1][heads][length][length] */
static struct onnx_tensor
position_bias(const struct t5 *net, struct onnx_tensor ids, int64_t length, bool both_ways)
{
    struct onnx_builder *b = net->b;
    const struct onnx_tensor positions = layer_range(b, "position_bias.range", ids, length);
    struct onnx_tensor x = layer_binary(b, "Sub", "position_bias.sub",
                                        layer_unsqueeze(b, "position_bias.keys", positions, 0),
                                        layer_unsqueeze(b, "position_bias.queries", positions, 1));

    x = layer_embedding(b, "relative_attention_bias", bucket(b, x, both_ways), BUCKETS, net->heads, 0.5);
    x = layer_transpose(b, "position_bias.permute", x, (const int64_t[]){2, 0, 1});
    return layer_unsqueeze(b, "position_bias.unsqueeze", x, 0);
}

/* f32[1][1][length][length]: nothing where the key is not after the query. */
static struct onnx_tensor
causal_mask(const struct t5 *net, struct onnx_tensor ids, int64_t length)
{
    struct onnx_builder *b = net->b;
    const struct onnx_tensor positions = layer_range(b, "causal.range", ids, length);
    struct onnx_tensor x = layer_binary(b, "LessOrEqual", "causal.less",
                                        layer_unsqueeze(b, "causal.keys", positions, 0),
                                        layer_unsqueeze(b, "causal.queries", positions, 1));

    x = layer_cast(b, "causal.cast", x, ONNX_TYPE_F32);
    x = layer_unsqueeze(b, "causal.unsqueeze_1", layer_unsqueeze(b, "causal.unsqueeze", x, 0), 0);
    x = layer_binary(b, "Sub", "causal.sub", layer_scalar(b, "causal.one", 1.0f), x);
    return layer_binary(b, "Mul", "causal.mul", x, layer_scalar(b, "causal.masked", MASKED));
}

static struct onnx_tensor
attention(const struct t5 *net, const char *name, struct onnx_tensor x, struct onnx_tensor memory,
          const struct onnx_tensor *bias)
{
    struct onnx_builder *b = net->b;
    const int64_t inner = net->heads * net->head_width;
    /* Scores are not divided: small queries stand in for it. */
    const struct onnx_tensor q =
        layer_linear_gain(b, layer_part(name, "q").text, x, inner, false, 1.0 / (double)net->head_width);
    const struct onnx_tensor k = layer_linear(b, layer_part(name, "k").text, memory, inner, false);
    const struct onnx_tensor v = layer_linear(b, layer_part(name, "v").text, memory, inner, false);

    x = layer_attention(b, name, q, k, v, (struct layer_attention){.heads = net->heads, .bias = bias});
    return layer_linear(b, layer_part(name, "o").text, x, net->width, false);
}

static struct onnx_tensor
feed_forward(const struct t5 *net, const char *name, struct onnx_tensor x)
{
    struct onnx_builder *b = net->b;

    x = layer_relu(b, layer_part(name, "relu").text,
                   layer_linear(b, layer_part(name, "wi").text, x, net->hidden, false));
    return layer_linear(b, layer_part(name, "wo").text, x, net->width, false);
}

void
zoo_build_t5_small_encoder(struct onnx_builder *b, enum zoo_size size)
{
    const struct t5 net = make(b, size);
    const int64_t sequence = onnx_builder_symbol(b, "sequence", size == ZOO_SIZE_FULL ? 128 : 24);
    const struct onnx_tensor ids = onnx_builder_indices(b, "input_ids", &sequence, 1, net.vocabulary);
    const struct onnx_tensor ones = onnx_builder_indices(b, "attention_mask", &sequence, 1, 2);

    const struct onnx_tensor mask = layer_attention_mask(b, "mask", ones, MASKED);
    struct onnx_tensor x = layer_embedding(b, "embed_tokens", ids, net.vocabulary, net.width, 1.0);
    const struct onnx_tensor bias = layer_add(b, "bias", position_bias(&net, ids, sequence, true), mask);
    for (int i = 0; i < net.layers; i++) {
        onnx_builder_scope(b, "block.%d", i);
        const struct onnx_tensor y = norm(&net, "layer.0.layer_norm", x);
        x = layer_add(b, "layer.0.add", x, attention(&net, "layer.0.SelfAttention", y, y, &bias));
        x = layer_add(b, "layer.1.add", x,
                      feed_forward(&net, "layer.1.DenseReluDense", norm(&net, "layer.1.layer_norm", x)));
    }
    onnx_builder_scope(b, "%s", "");
    onnx_builder_output(b, norm(&net, "final_layer_norm", x), "last_hidden_state");
}

void
zoo_build_t5_small_decoder(struct onnx_builder *b, enum zoo_size size)
{
    const struct t5 net = make(b, size);
    const int64_t target = onnx_builder_symbol(b, "target", size == ZOO_SIZE_FULL ? 16 : 12);
    const int64_t sequence = onnx_builder_symbol(b, "sequence", size == ZOO_SIZE_FULL ? 128 : 24);
    const struct onnx_tensor ids = onnx_builder_indices(b, "input_ids", &target, 1, net.vocabulary);
    const struct onnx_tensor memory =
        onnx_builder_input(b, "encoder_hidden_states", (const int64_t[]){sequence, net.width}, 2);
    const struct onnx_tensor ones = onnx_builder_indices(b, "encoder_attention_mask", &sequence, 1, 2);

    const struct onnx_tensor mask = layer_attention_mask(b, "mask", ones, MASKED);
    struct onnx_tensor shared = {.rank = 2, .dims = {net.vocabulary, net.width}, .power = 1.0};
    shared.name = onnx_builder_normal(b, "shared.weight", shared.dims, 2, 0.0, 1.0);
    struct onnx_tensor x = layer_gather(b, "embed_tokens", shared, ids);
    const struct onnx_tensor bias = layer_add(b, "bias", position_bias(&net, ids, target, false),
                                              causal_mask(&net, ids, target));
    for (int i = 0; i < net.layers; i++) {
        onnx_builder_scope(b, "block.%d", i);
        const struct onnx_tensor y = norm(&net, "layer.0.layer_norm", x);
        x = layer_add(b, "layer.0.add", x, attention(&net, "layer.0.SelfAttention", y, y, &bias));
        x = layer_add(b, "layer.1.add", x, attention(&net, "layer.1.EncDecAttention",
                                                     norm(&net, "layer.1.layer_norm", x), memory, &mask));
        x = layer_add(b, "layer.2.add", x,
                      feed_forward(&net, "layer.2.DenseReluDense", norm(&net, "layer.2.layer_norm", x)));
    }
    onnx_builder_scope(b, "%s", "");
    x = norm(&net, "final_layer_norm", x);
    /* Scores come from the table of the inputs, after a division by the square root of its width. */
    x = layer_binary(b, "Mul", "scale", x, layer_scalar(b, "scale.by", size == ZOO_SIZE_FULL ? 0.04419417f : 0.25f));
    x = layer_matmul(b, "lm_head", x, layer_transpose(b, "lm_head.transpose", shared, (const int64_t[]){1, 0}));
    onnx_builder_output(b, x, "logits");
}
