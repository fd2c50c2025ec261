/* SPDX-License-Identifier: Apache-2.0 */
/* Tan, Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", table 1 (B0). */
#include "base/align.h"
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

static const struct {
    int64_t expansion, kernel, stride, channels, repeats;
} stages[] = {
    {1, 3, 1, 16, 1}, {6, 3, 2, 24, 2}, {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
    {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1},
};

#define BRANCH_GAIN 0.5

static struct onnx_tensor
conv_bn(struct onnx_builder *b, const char *name, struct onnx_tensor x, struct layer_window window, double gain)
{
    x = layer_conv(b, layer_part(name, "0").text, x, window);
    return layer_batch_norm(b, layer_part(name, "1").text, x, gain);
}

static struct onnx_tensor
squeeze_and_excite(struct onnx_builder *b, struct onnx_tensor x, int64_t squeezed)
{
    const int64_t channels = x.dims[1];
    struct onnx_tensor s = layer_global_average_pool(b, "se.avgpool", x);

    s = layer_conv(b, "se.fc1", s, (struct layer_window){.outputs = squeezed, .kernel = 1, .stride = 1, .bias = true});
    s = layer_conv(b, "se.fc2", layer_silu(b, "se.silu", s),
                   (struct layer_window){.outputs = channels, .kernel = 1, .stride = 1, .bias = true});
    return layer_mul(b, "se.mul", x, layer_sigmoid(b, "se.sigmoid", s));
}

static struct onnx_tensor
block(struct onnx_builder *b, struct onnx_tensor x, int64_t expansion, int64_t kernel, int64_t stride,
      int64_t channels)
{
    const bool shortcut = stride == 1 && x.dims[1] == channels;
    const int64_t hidden = x.dims[1] * expansion;
    const int64_t squeezed = x.dims[1] / 4 > 0 ? x.dims[1] / 4 : 1;
    struct onnx_tensor y = x;

    if (expansion != 1) {
        y = conv_bn(b, "expand", y, (struct layer_window){.outputs = hidden, .kernel = 1, .stride = 1}, 1.0);
        y = layer_silu(b, "act1", y);
    }
    y = conv_bn(b, "depthwise", y, (struct layer_window){.outputs = hidden, .kernel = kernel, .stride = stride,
                                                         .pad = kernel / 2, .groups = hidden}, 1.0);
    y = squeeze_and_excite(b, layer_silu(b, "act2", y), squeezed);
    y = conv_bn(b, "project", y, (struct layer_window){.outputs = channels, .kernel = 1, .stride = 1},
                shortcut ? BRANCH_GAIN : 1.0);
    return shortcut ? layer_add(b, "add", x, y) : y;
}

void
zoo_build_efficientnet_b0(struct onnx_builder *b, enum zoo_size size)
{
    const bool full = size == ZOO_SIZE_FULL;
    const int64_t image = full ? 224 : 64, divisor = full ? 1 : 8;
    struct onnx_tensor x = onnx_builder_input(b, "input", (const int64_t[]){3, image, image}, 3);

    onnx_builder_scope(b, "features.0");
    x = conv_bn(b, "conv", x, (struct layer_window){.outputs = full ? 32 : 6, .kernel = 3, .stride = 2, .pad = 1}, 1.0);
    x = layer_silu(b, "silu", x);
    for (size_t s = 0; s < LEAT_COUNT_OF(stages); s++) {
        for (int64_t i = 0; i < stages[s].repeats; i++) {
            onnx_builder_scope(b, "features.%zu.%d", s + 1, (int)i);
            /* Two channels would not carry what makes an item different. */
            const int64_t channels = stages[s].channels / divisor < 4 ? 4 : stages[s].channels / divisor;
            x = block(b, x, stages[s].expansion, stages[s].kernel, i == 0 ? stages[s].stride : 1, channels);
        }
    }
    onnx_builder_scope(b, "features.%zu", LEAT_COUNT_OF(stages) + 1);
    x = conv_bn(b, "conv", x, (struct layer_window){.outputs = 1280 / divisor, .kernel = 1, .stride = 1}, 1.0);
    x = layer_global_average_pool(b, "avgpool", layer_silu(b, "silu", x));
    onnx_builder_scope(b, "classifier");
    x = layer_gemm(b, "1", layer_flatten(b, "flatten", x), full ? 1000 : 10);
    onnx_builder_output(b, x, "output");
}
