/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/layers.h"

#include <math.h>
#include <string.h>

struct onnx_tensor
layer_linear_gain(struct onnx_builder *b, const char *name, struct onnx_tensor x, int64_t outputs, bool bias,
                  double gain)
{
    const int64_t inputs = x.dims[x.rank - 1];
    struct onnx_tensor weight = {.rank = 2, .dims = {inputs, outputs}, .power = gain / (double)inputs};

    weight.name = onnx_builder_normal(b, layer_part(name, "weight").text, weight.dims, 2, 0.0, sqrt(weight.power));
    x = layer_matmul(b, layer_part(name, "MatMul").text, x, weight);
    if (bias) {
        struct onnx_tensor offset = {.rank = 1, .dims = {outputs}, .power = x.power};
        offset.name = onnx_builder_normal(b, layer_part(name, "bias").text, offset.dims, 1, 0.0, 0.05 * sqrt(x.power));
        x = layer_binary(b, "Add", layer_part(name, "Add").text, offset, x);
    }
    return x;
}

struct onnx_tensor
layer_linear(struct onnx_builder *b, const char *name, struct onnx_tensor x, int64_t outputs, bool bias)
{
    return layer_linear_gain(b, name, x, outputs, bias, 1.0);
}

struct onnx_tensor
layer_layer_norm(struct onnx_builder *b, const char *name, struct onnx_tensor x, float epsilon)
{
    const uint32_t last = x.rank - 1;
    struct onnx_tensor weight = {.rank = 1, .dims = {x.dims[last]}, .power = 1.0}, bias = weight;

    weight.name = onnx_builder_uniform(b, layer_part(name, "weight").text, weight.dims, 1, 0.75, 1.25);
    bias.name = onnx_builder_normal(b, layer_part(name, "bias").text, bias.dims, 1, 0.0, 0.1);
    if (onnx_builder_opset_version(b) >= 17) {
        struct onnx_node *node = onnx_builder_node(b, "LayerNormalization", name,
                                                   (const char *[]){x.name, weight.name, bias.name}, 3);
        onnx_node_int(node, "axis", -1);
        onnx_node_float(node, "epsilon", epsilon);
        x.name = onnx_node_output(node);
        x.power = 1.0;
        return x;
    }
    struct onnx_tensor y = layer_reduce(b, "ReduceMean", layer_part(name, "mean").text, x, last, true);
    x = layer_binary(b, "Sub", layer_part(name, "sub").text, x, y);
    y = layer_binary(b, "Pow", layer_part(name, "pow").text, x, layer_scalar(b, layer_part(name, "two").text, 2.0f));
    y = layer_reduce(b, "ReduceMean", layer_part(name, "variance").text, y, last, true);
    y = layer_binary(b, "Add", layer_part(name, "add").text, y,
                     layer_scalar(b, layer_part(name, "epsilon").text, epsilon));
    y = layer_unary(b, "Sqrt", layer_part(name, "sqrt").text, y);
    x = layer_binary(b, "Div", layer_part(name, "div").text, x, y);
    x.power = 1.0;
    x = layer_binary(b, "Mul", layer_part(name, "mul").text, x, weight);
    return layer_binary(b, "Add", layer_part(name, "add_1").text, x, bias);
}

struct onnx_tensor
layer_split_heads(struct onnx_builder *b, const char *name, struct onnx_tensor x, int64_t heads, bool transposed)
{
    const int64_t dims[4] = {x.dims[0], x.dims[1], heads, x.dims[2] / heads};

    LEAT_ASSERT(x.rank == 3 && x.dims[2] % heads == 0);
    x = layer_view(b, layer_part(name, "view").text, x, dims, 4);
    return layer_transpose(b, layer_part(name, "permute").text, x,
                           transposed ? (const int64_t[]){0, 2, 3, 1} : (const int64_t[]){0, 2, 1, 3});
}

struct onnx_tensor
layer_merge_heads(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    const int64_t dims[3] = {x.dims[0], x.dims[2], x.dims[1] * x.dims[3]};

    LEAT_ASSERT(x.rank == 4);
    x = layer_transpose(b, layer_part(name, "permute").text, x, (const int64_t[]){0, 2, 1, 3});
    return layer_view(b, layer_part(name, "view").text, x, dims, 3);
}

static struct onnx_tensor
divide(struct onnx_builder *b, const char *name, struct onnx_tensor x, double divisor)
{
    x.power /= divisor * divisor;
    return layer_binary(b, "Div", name, x, layer_scalar(b, layer_part(name, "by").text, (float)divisor));
}

struct onnx_tensor
layer_attention(struct onnx_builder *b, const char *name, struct onnx_tensor q, struct onnx_tensor k,
                struct onnx_tensor v, struct layer_attention options)
{
    const double divisor = sqrt((double)(q.dims[2] / options.heads));
    const double power = v.power;

    q = layer_split_heads(b, layer_part(name, "q").text, q, options.heads, false);
    if (options.scale == LAYER_SCALE_QUERY) {
        q = divide(b, layer_part(name, "scale").text, q, divisor);
    }
    k = layer_split_heads(b, layer_part(name, "k").text, k, options.heads, true);
    v = layer_split_heads(b, layer_part(name, "v").text, v, options.heads, false);
    struct onnx_tensor x = layer_matmul(b, layer_part(name, "scores").text, q, k);
    if (options.scale == LAYER_SCALE_SCORES) {
        x = divide(b, layer_part(name, "scale").text, x, divisor);
    }
    if (options.bias != NULL) {
        x = layer_binary(b, "Add", layer_part(name, "bias").text, x, *options.bias);
    }
    x = layer_softmax(b, layer_part(name, "softmax").text, x);
    x = layer_matmul(b, layer_part(name, "context").text, x, v);
    x.power = 0.2 * power; /* of a mean over some ten others */
    return layer_merge_heads(b, layer_part(name, "merge").text, x);
}

struct onnx_tensor
layer_attention_mask(struct onnx_builder *b, const char *name, struct onnx_tensor mask, float masked)
{
    struct onnx_tensor x = layer_unsqueeze(b, layer_part(name, "unsqueeze").text, mask, 1);

    x = layer_unsqueeze(b, layer_part(name, "unsqueeze_1").text, x, 2);
    x = layer_cast(b, layer_part(name, "cast").text, x, ONNX_TYPE_F32);
    x = layer_binary(b, "Sub", layer_part(name, "sub").text, layer_scalar(b, layer_part(name, "one").text, 1.0f), x);
    return layer_binary(b, "Mul", layer_part(name, "mul").text, x,
                        layer_scalar(b, layer_part(name, "masked").text, masked));
}

struct onnx_tensor
layer_conv1d(struct onnx_builder *b, const char *name, struct onnx_tensor x, struct layer_window window,
             int64_t length)
{
    const int64_t groups = window.groups == 0 ? 1 : window.groups;
    LEAT_ASSERT(x.rank == 3 && x.dims[1] % groups == 0 && window.outputs % groups == 0);
    const int64_t dims[3] = {window.outputs, x.dims[1] / groups, window.kernel};
    const int64_t fan_in = dims[1] * dims[2];
    const double gain = window.gain > 0.0 ? window.gain : 2.0;
    const char *inputs[3] = {x.name};
    uint32_t input_count = 2;

    inputs[1] = onnx_builder_filters(b, layer_part(name, "weight").text, dims, 3, sqrt(gain / (double)fan_in));
    if (window.bias) {
        inputs[input_count++] = onnx_builder_normal(b, layer_part(name, "bias").text, dims, 1, 0.0, 0.05);
    }
    struct onnx_node *node = onnx_builder_node(b, "Conv", name, inputs, input_count);
    onnx_node_ints(node, "dilations", (const int64_t[]){1}, 1);
    onnx_node_int(node, "group", groups);
    onnx_node_ints(node, "kernel_shape", &window.kernel, 1);
    onnx_node_ints(node, "pads", (const int64_t[]){window.pad, window.pad}, 2);
    onnx_node_ints(node, "strides", &window.stride, 1);

    const int64_t from = onnx_builder_extent(b, x.dims[2]), to = onnx_builder_extent(b, length);
    LEAT_ASSERT(to == (from + 2 * window.pad - window.kernel) / window.stride + 1);
    x.dims[1] = window.outputs;
    x.dims[2] = length;
    x.name = onnx_node_output(node);
    x.power *= gain;
    onnx_builder_count(b, window.outputs * to * fan_in);
    return x;
}

/* f32[directions][N][hidden] of zeros. */
static const char *
zero_state(struct onnx_builder *b, const char *name, struct onnx_tensor x, int64_t directions, int64_t hidden)
{
    const int64_t dims[3] = {directions, x.dims[1], hidden};
    const char *shape = layer_shape(b, name, x, dims, 3);
    struct onnx_node *node = onnx_builder_node(b, "ConstantOfShape", name, &shape, 1);

    onnx_node_scalar(node, "value", 0.0f, 1);
    return onnx_node_output(node);
}

struct onnx_tensor
layer_recurrent(struct onnx_builder *b, const char *name, struct onnx_tensor x, struct layer_recurrent options,
                struct onnx_tensor *ret_last)
{
    const bool lstm = strcmp(options.op, "LSTM") == 0;
    const int64_t hidden = options.hidden, directions = options.bidirectional ? 2 : 1, gates = lstm ? 4 : 3;
    const int64_t width = x.dims[2];
    const int64_t w[3] = {directions, gates * hidden, width}, r[3] = {directions, gates * hidden, hidden};
    const int64_t bias[2] = {directions, 2 * gates * hidden};
    const double bound = 1.0 / sqrt((double)hidden);
    const char *inputs[7] = {x.name};

    LEAT_ASSERT(x.rank == 3 && (lstm || strcmp(options.op, "GRU") == 0));
    inputs[1] = onnx_builder_normal(b, layer_part(name, "weight_ih").text, w, 3, 0.0,
                                    sqrt(1.0 / (x.power * (double)width)));
    inputs[2] = onnx_builder_uniform(b, layer_part(name, "weight_hh").text, r, 3, -bound, bound);
    inputs[3] = onnx_builder_uniform(b, layer_part(name, "bias").text, bias, 2, -bound, bound);
    inputs[4] = options.lengths;
    inputs[5] = zero_state(b, layer_part(name, "h0").text, x, directions, hidden);
    if (lstm) {
        inputs[6] = zero_state(b, layer_part(name, "c0").text, x, directions, hidden);
    }
    struct onnx_node *node = onnx_builder_node_outputs(b, options.op, name, inputs, lstm ? 7 : 6, lstm ? 3 : 2);
    onnx_node_string(node, "direction", options.bidirectional ? "bidirectional" : "forward");
    onnx_node_int(node, "hidden_size", hidden);
    if (!lstm) {
        onnx_node_int(node, "linear_before_reset", !options.reset_before);
    }
    onnx_builder_count(b, onnx_builder_extent(b, x.dims[0]) * onnx_builder_extent(b, x.dims[1]) * directions * gates *
                              hidden * (width + hidden));

    struct onnx_tensor y = {.name = onnx_node_output(node), .rank = 4, .power = 0.15};
    y.dims[0] = x.dims[0];
    y.dims[1] = directions;
    y.dims[2] = x.dims[1];
    y.dims[3] = hidden;
    if (ret_last != NULL) {
        *ret_last = (struct onnx_tensor){.name = onnx_node_output_at(node, 1), .rank = 3, .power = y.power};
        memcpy(ret_last->dims, y.dims + 1, 3 * sizeof(*y.dims));
    }
    if (directions == 1) {
        return layer_squeeze(b, layer_part(name, "squeeze").text, y, 1);
    }
    y = layer_transpose(b, layer_part(name, "transpose").text, y, (const int64_t[]){0, 2, 1, 3});
    const char *shape =
        onnx_builder_constant_integers(b, layer_part(name, "shape").text, (const int64_t[]){0, 0, -1}, 3);
    y.name = onnx_node_output(onnx_builder_node(b, "Reshape", layer_part(name, "reshape").text,
                                                (const char *[]){y.name, shape}, 2));
    y.rank = 3;
    y.dims[2] = directions * hidden;
    return y;
}
