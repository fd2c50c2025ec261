/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", section 2.2, the encoder of size
 * tiny: two convolutions over 30 seconds of log-Mel frames and a transformer. In operator set 17.
 */
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

#define EPSILON 1e-5f

static struct onnx_tensor
layer(struct onnx_builder *b, struct onnx_tensor x, int64_t heads, int64_t hidden)
{
    const int64_t width = x.dims[2];
    const struct layer_attention options = {.heads = heads, .scale = LAYER_SCALE_QUERY};
    struct onnx_tensor y = layer_layer_norm(b, "self_attn_layer_norm", x, EPSILON);
    const struct onnx_tensor q = layer_linear(b, "self_attn.q_proj", y, width, true);
    const struct onnx_tensor k = layer_linear(b, "self_attn.k_proj", y, width, false);
    const struct onnx_tensor v = layer_linear(b, "self_attn.v_proj", y, width, true);

    y = layer_linear(b, "self_attn.out_proj", layer_attention(b, "self_attn", q, k, v, options), width, true);
    x = layer_add(b, "add", x, y);
    y = layer_linear(b, "fc1", layer_layer_norm(b, "final_layer_norm", x, EPSILON), hidden, true);
    return layer_add(b, "add_1", x, layer_linear(b, "fc2", layer_gelu(b, "gelu", y), width, true));
}

void
zoo_build_whisper_tiny_encoder(struct onnx_builder *b, enum zoo_size size)
{
    const bool full = size == ZOO_SIZE_FULL;
    const int64_t bands = full ? 80 : 8, frames = full ? 3000 : 32, width = full ? 384 : 16, heads = full ? 6 : 2;
    const struct layer_window conv = {.outputs = width, .kernel = 3, .stride = 1, .pad = 1, .bias = true};
    struct layer_window down = conv;
    struct onnx_tensor positions = {.rank = 2, .dims = {frames / 2, width}, .power = 0.5};

    onnx_builder_opset(b, 17);
    struct onnx_tensor x = onnx_builder_input(b, "input_features", (const int64_t[]){bands, frames}, 2);
    down.stride = 2;
    x = layer_gelu(b, "gelu1", layer_conv1d(b, "conv1", x, conv, frames));
    x = layer_gelu(b, "gelu2", layer_conv1d(b, "conv2", x, down, frames / 2));
    x = layer_transpose(b, "permute", x, (const int64_t[]){0, 2, 1});
    /* Random instead of sinusoids: sines may differ in the last bit from host to host. */
    positions.name = onnx_builder_normal(b, "embed_positions.weight", positions.dims, 2, 0.0, 0.7);
    x = layer_add(b, "add", x, positions);
    for (int i = 0; i < 4; i++) {
        onnx_builder_scope(b, "layers.%d", i);
        x = layer(b, x, heads, 4 * width);
    }
    onnx_builder_scope(b, "%s", "");
    onnx_builder_output(b, layer_layer_norm(b, "layer_norm", x, EPSILON), "last_hidden_state");
}
