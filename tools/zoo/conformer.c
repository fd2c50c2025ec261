/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gulati et al., "Conformer: Convolution-augmented Transformer for Speech Recognition", section 2, at the size that
 * NeMo calls Conformer-CTC small, with its CTC head: f32[N][frames / 4][tokens] of log-probabilities. The mask says
 * which frames are sound; attention and the convolution over time leave the others out. Distances enter attention
 * as in Dai et al., "Transformer-XL", section 3.3 and appendix B. In operator set 17.
 */
#include <math.h>

#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

enum { LAYERS = 16, KERNEL = 31 };

#define EPSILON 1e-5f
#define MASKED  -10000.0f

struct conformer {
    struct onnx_builder *b;
    int64_t width, heads, bands, tokens;
    int64_t length_max; /* after subsampling */
    int64_t length, distances, twice; /* symbols: T, 2 T - 1, 2 T */
    struct onnx_tensor bias;     /* of attention scores: f32[N][1][1][T] */
    struct onnx_tensor silence;  /* bool[N][1][T] */
    struct onnx_tensor encoding; /* of distances, from the largest to the smallest: f32[1][2 T - 1][width] */
};

static struct onnx_tensor
feed_forward(const struct conformer *net, const char *name, struct onnx_tensor x)
{
    struct onnx_builder *b = net->b;
    struct onnx_tensor y = layer_layer_norm(b, layer_part(name, "norm").text, x, EPSILON);

    y = layer_linear(b, layer_part(name, "linear1").text, y, 4 * net->width, true);
    y = layer_silu(b, layer_part(name, "swish").text, y);
    y = layer_linear(b, layer_part(name, "linear2").text, y, net->width, true);
    y.power *= 0.25;
    y = layer_binary(b, "Mul", layer_part(name, "mul").text, y, layer_scalar(b, layer_part(name, "half").text, 0.5f));
    return layer_add(b, layer_part(name, "add").text, x, y);
}

/* From scores by distance to scores by key: row i moves T - 1 - i to the left. */
static struct onnx_tensor
shift(const struct conformer *net, struct onnx_tensor x)
{
    struct onnx_builder *b = net->b;
    const int64_t pads[8] = {0, 0, 0, 1, 0, 0, 0, 0};
    const int64_t turned[4] = {ONNX_BATCH, net->heads, net->twice, net->length};
    const int64_t back[4] = {ONNX_BATCH, net->heads, net->length, net->distances};
    const char *inputs[5] = {x.name};

    inputs[1] = onnx_builder_constant_integers(b, "self_attn.shift.pads", pads, 8);
    x.name = onnx_node_output(onnx_builder_node(b, "Pad", "self_attn.shift.pad", inputs, 2));
    x.dims[3] = net->twice;
    x = layer_view(b, "self_attn.shift.turned", x, turned, 4);
    inputs[0] = x.name;
    inputs[1] = onnx_builder_constant_integers(b, "self_attn.shift.starts", (const int64_t[]){1}, 1);
    inputs[2] = onnx_builder_constant_integers(b, "self_attn.shift.ends", (const int64_t[]){INT64_MAX}, 1);
    inputs[3] = onnx_builder_constant_integers(b, "self_attn.shift.axes", (const int64_t[]){2}, 1);
    inputs[4] = onnx_builder_constant_integers(b, "self_attn.shift.steps", (const int64_t[]){1}, 1);
    x.name = onnx_node_output(onnx_builder_node(b, "Slice", "self_attn.shift.drop", inputs, 5));
    x.dims[2] = net->distances;
    x = layer_view(b, "self_attn.shift.back", x, back, 4);
    const char *length = layer_extent_list(b, "self_attn.shift.length", net->bias, net->length);
    return layer_slice_to(b, "self_attn.shift.keys", x, 3, length, net->length);
}

/* The query, plus a learned constant: f32[N][heads][T][width of a head]. */
static struct onnx_tensor
biased_query(const struct conformer *net, const char *name, struct onnx_tensor q)
{
    struct onnx_builder *b = net->b;
    struct onnx_tensor bias = {.rank = 2, .dims = {net->heads, net->width / net->heads}, .power = 0.1};

    bias.name = onnx_builder_normal(b, name, bias.dims, 2, 0.0, 0.3);
    return layer_transpose(b, layer_part(name, "permute").text,
                           layer_binary(b, "Add", layer_part(name, "add").text, q, bias),
                           (const int64_t[]){0, 2, 1, 3});
}

static struct onnx_tensor
attention(const struct conformer *net, struct onnx_tensor x)
{
    struct onnx_builder *b = net->b;
    const int64_t head_width = net->width / net->heads;
    const int64_t apart[4] = {ONNX_BATCH, net->length, net->heads, head_width};
    struct onnx_tensor y = layer_layer_norm(b, "norm_self_att", x, EPSILON);
    struct onnx_tensor q = layer_linear(b, "self_attn.linear_q", y, net->width, true);
    struct onnx_tensor k = layer_linear(b, "self_attn.linear_k", y, net->width, true);
    struct onnx_tensor v = layer_linear(b, "self_attn.linear_v", y, net->width, true);
    struct onnx_tensor p = layer_linear(b, "self_attn.linear_pos", net->encoding, net->width, false);

    q = layer_view(b, "self_attn.q.view", q, apart, 4);
    k = layer_split_heads(b, "self_attn.k", k, net->heads, true);
    v = layer_split_heads(b, "self_attn.v", v, net->heads, false);
    p = layer_split_heads(b, "self_attn.p", p, net->heads, true);
    const struct onnx_tensor content =
        layer_matmul(b, "self_attn.content", biased_query(net, "self_attn.pos_bias_u", q), k);
    struct onnx_tensor scores = layer_matmul(b, "self_attn.distance", biased_query(net, "self_attn.pos_bias_v", q), p);
    scores = layer_add(b, "self_attn.add", content, shift(net, scores));
    scores = layer_binary(b, "Div", "self_attn.div", scores,
                          layer_scalar(b, "self_attn.div.by", (float)sqrt((double)head_width)));
    scores = layer_softmax(b, "self_attn.softmax", layer_binary(b, "Add", "self_attn.mask", scores, net->bias));
    y = layer_matmul(b, "self_attn.context", scores, v);
    y.power = 0.2;
    y = layer_linear(b, "self_attn.linear_out", layer_merge_heads(b, "self_attn.merge", y), net->width, true);
    return layer_add(b, "self_attn.residual", x, y);
}

static struct onnx_tensor
convolution(const struct conformer *net, struct onnx_tensor x)
{
    struct onnx_builder *b = net->b;
    const struct layer_window point = {.outputs = net->width, .kernel = 1, .stride = 1, .bias = true, .gain = 1.0};
    const struct layer_window deep = {.outputs = net->width, .kernel = KERNEL, .stride = 1, .pad = KERNEL / 2,
                                      .groups = net->width, .bias = true, .gain = 1.0};
    struct layer_window wide = point;
    struct onnx_tensor halves[2];
    struct onnx_tensor y = layer_layer_norm(b, "norm_conv", x, EPSILON);

    wide.outputs = 2 * net->width;
    y = layer_transpose(b, "conv.transpose", y, (const int64_t[]){0, 2, 1});
    y = layer_conv1d(b, "conv.pointwise_conv1", y, wide, net->length);
    layer_split(b, "conv.split", y, 1, (const int64_t[]){net->width, net->width}, 2, halves);
    y = layer_mul(b, "conv.glu", halves[0], layer_sigmoid(b, "conv.gate", halves[1]));
    const struct onnx_tensor zero = layer_scalar(b, "conv.zero", 0.0f);
    const char *inputs[3] = {net->silence.name, zero.name, y.name};
    y.name = onnx_node_output(onnx_builder_node(b, "Where", "conv.silence", inputs, 3));
    y = layer_batch_norm(b, "conv.batch_norm", layer_conv1d(b, "conv.depthwise_conv", y, deep, net->length), 1.0);
    y = layer_conv1d(b, "conv.pointwise_conv2", layer_silu(b, "conv.swish", y), point, net->length);
    return layer_add(b, "conv.add", x, layer_transpose(b, "conv.transpose_1", y, (const int64_t[]){0, 2, 1}));
}

/* Two convolutions of stride 2, a quarter of the frames and of the bands. */
static struct onnx_tensor
subsample(const struct conformer *net, struct onnx_tensor x, int64_t half_length)
{
    struct onnx_builder *b = net->b;
    struct layer_window window = {.outputs = net->width, .kernel = 3, .stride = 2, .pad = 1, .bias = true,
                                  .height = half_length};

    x = layer_unsqueeze(b, "unsqueeze", x, 1);
    x = layer_relu(b, "conv.relu1", layer_conv(b, "conv.0", x, window));
    window.height = net->length;
    x = layer_relu(b, "conv.relu2", layer_conv(b, "conv.2", x, window));
    const int64_t flat[3] = {ONNX_BATCH, net->length, x.dims[1] * x.dims[3]};
    x = layer_view(b, "flat", layer_transpose(b, "transpose", x, (const int64_t[]){0, 2, 1, 3}), flat, 3);
    return layer_linear(b, "out", x, net->width, true);
}

/* The middle of a table that reaches from length_max - 1 to 1 - length_max. */
static struct onnx_tensor
encode_distances(const struct conformer *net)
{
    struct onnx_builder *b = net->b;
    struct onnx_tensor table = {.rank = 3, .dims = {1, 2 * net->length_max - 1, net->width}, .power = 1.0};
    const int64_t first = net->length_max, end = net->length_max - 1;
    const char *inputs[5], *terms[2];

    /* Random instead of sinusoids: sines may differ in the last bit from host to host. */
    table.name = onnx_builder_normal(b, "pe", table.dims, 3, 0.0, 1.0);
    onnx_builder_discount(b, table.dims[1] * table.dims[2]);
    inputs[0] = table.name;
    terms[1] = layer_extent_list(b, "length", net->bias, net->length);
    terms[0] = onnx_builder_constant_integers(b, "first", &first, 1);
    inputs[1] = onnx_node_output(onnx_builder_node(b, "Sub", "starts", terms, 2));
    terms[0] = onnx_builder_constant_integers(b, "end", &end, 1);
    inputs[2] = onnx_node_output(onnx_builder_node(b, "Add", "ends", terms, 2));
    inputs[3] = onnx_builder_constant_integers(b, "axes", (const int64_t[]){1}, 1);
    inputs[4] = onnx_builder_constant_integers(b, "steps", (const int64_t[]){1}, 1);
    table.name = onnx_node_output(onnx_builder_node(b, "Slice", "slice", inputs, 5));
    table.dims[1] = net->distances;
    return table;
}

void
zoo_build_conformer_ctc_small(struct onnx_builder *b, enum zoo_size size)
{
    const bool full = size == ZOO_SIZE_FULL;
    const int64_t frames = full ? 400 : 32;
    struct conformer net = {.b = b, .width = full ? 176 : 8, .heads = full ? 4 : 2, .bands = full ? 80 : 8,
                            .tokens = full ? 1025 : 20, .length_max = full ? 512 : 32};

    onnx_builder_opset(b, 17);
    const int64_t time = onnx_builder_symbol(b, "frames", frames);
    const int64_t half = onnx_builder_symbol(b, "frames_2", (frames + 1) / 2);
    net.length = onnx_builder_symbol(b, "frames_4", (frames + 3) / 4);
    net.distances = onnx_builder_symbol(b, "distances", 2 * ((frames + 3) / 4) - 1);
    net.twice = onnx_builder_symbol(b, "frames_4_twice", 2 * ((frames + 3) / 4));
    struct onnx_tensor x = onnx_builder_input(b, "features", (const int64_t[]){time, net.bands}, 2);
    const struct onnx_tensor mask = onnx_builder_indices(b, "mask", &time, 1, 2);

    onnx_builder_scope(b, "mask");
    const struct onnx_tensor sound = layer_stride(b, "stride", mask, 1, 4, net.length);
    net.bias = layer_attention_mask(b, "attention", sound, MASKED);
    net.silence = layer_binary(b, "Equal", "silence", sound, layer_integer(b, "zero", 0));
    net.silence = layer_unsqueeze(b, "unsqueeze", net.silence, 1);
    onnx_builder_scope(b, "pos_enc");
    net.encoding = encode_distances(&net);
    onnx_builder_scope(b, "pre_encode");
    x = subsample(&net, x, half);
    for (int i = 0; i < LAYERS; i++) {
        onnx_builder_scope(b, "layers.%d", i);
        x = attention(&net, feed_forward(&net, "feed_forward1", x));
        x = feed_forward(&net, "feed_forward2", convolution(&net, x));
        x = layer_layer_norm(b, "norm_out", x, EPSILON);
    }
    onnx_builder_scope(b, "decoder");
    x = layer_linear(b, "linear", x, net.tokens, true);
    struct onnx_node *node = onnx_builder_node(b, "LogSoftmax", "log_softmax", &x.name, 1);
    onnx_node_int(node, "axis", 2);
    x.name = onnx_node_output(node);
    onnx_builder_output(b, x, "logprobs");
}
