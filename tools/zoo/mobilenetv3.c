/* SPDX-License-Identifier: Apache-2.0 */
/* Howard et al., "Searching for MobileNetV3", table 1 (large). */
#include "base/align.h"
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

static const struct {
    int64_t kernel, hidden, channels;
    bool excite, hard_swish;
    int64_t stride;
} blocks[] = {
    {3, 16, 16, false, false, 1},  {3, 64, 24, false, false, 2},  {3, 72, 24, false, false, 1},
    {5, 72, 40, true, false, 2},   {5, 120, 40, true, false, 1},  {5, 120, 40, true, false, 1},
    {3, 240, 80, false, true, 2},  {3, 200, 80, false, true, 1},  {3, 184, 80, false, true, 1},
    {3, 184, 80, false, true, 1},  {3, 480, 112, true, true, 1},  {3, 672, 112, true, true, 1},
    {5, 672, 160, true, true, 2},  {5, 960, 160, true, true, 1},  {5, 960, 160, true, true, 1},
};

#define BRANCH_GAIN 0.5
#define EPSILON     0.001f

/* Channels are multiples of 8, at least nine tenths of what was asked for. */
static int64_t
make_divisible(int64_t channels)
{
    const int64_t rounded = channels < 8 ? 8 : (channels + 4) / 8 * 8;
    return 10 * rounded < 9 * channels ? rounded + 8 : rounded;
}

static struct onnx_tensor
conv_bn(struct onnx_builder *b, const char *name, struct onnx_tensor x, struct layer_window window, double gain)
{
    x = layer_conv(b, layer_part(name, "0").text, x, window);
    return layer_batch_norm_epsilon(b, layer_part(name, "1").text, x, gain, EPSILON);
}

static struct onnx_tensor
activate(struct onnx_builder *b, const char *name, struct onnx_tensor x, bool hard_swish)
{
    return hard_swish ? layer_hard_swish(b, name, x) : layer_relu(b, name, x);
}

static struct onnx_tensor
squeeze_and_excite(struct onnx_builder *b, struct onnx_tensor x, int64_t squeezed)
{
    const int64_t channels = x.dims[1];
    struct onnx_tensor s = layer_global_average_pool(b, "se.avgpool", x);

    s = layer_conv(b, "se.fc1", s, (struct layer_window){.outputs = squeezed, .kernel = 1, .stride = 1, .bias = true});
    s = layer_conv(b, "se.fc2", layer_relu(b, "se.relu", s),
                   (struct layer_window){.outputs = channels, .kernel = 1, .stride = 1, .bias = true});
    return layer_mul(b, "se.mul", x, layer_hard_sigmoid(b, "se.hardsigmoid", s));
}

void
zoo_build_mobilenetv3_large(struct onnx_builder *b, enum zoo_size size)
{
    const bool full = size == ZOO_SIZE_FULL;
    const int64_t image = full ? 224 : 64, divisor = full ? 1 : 8;
    struct onnx_tensor x = onnx_builder_input(b, "input", (const int64_t[]){3, image, image}, 3);

    onnx_builder_scope(b, "features.0");
    x = conv_bn(b, "conv", x, (struct layer_window){.outputs = 16 / divisor, .kernel = 3, .stride = 2, .pad = 1}, 1.0);
    x = layer_hard_swish(b, "hardswish", x);
    for (size_t i = 0; i < LEAT_COUNT_OF(blocks); i++) {
        const int64_t hidden = blocks[i].hidden / divisor, channels = blocks[i].channels / divisor;
        const int64_t kernel = blocks[i].kernel, stride = blocks[i].stride;
        const bool shortcut = stride == 1 && x.dims[1] == channels;
        struct onnx_tensor y = x;

        onnx_builder_scope(b, "features.%zu", i + 1);
        if (i > 0) { /* every other block expands */
            y = conv_bn(b, "expand", y, (struct layer_window){.outputs = hidden, .kernel = 1, .stride = 1}, 1.0);
            y = activate(b, "act1", y, blocks[i].hard_swish);
        }
        y = conv_bn(b, "depthwise", y, (struct layer_window){.outputs = hidden, .kernel = kernel, .stride = stride,
                                                             .pad = kernel / 2, .groups = hidden}, 1.0);
        y = activate(b, "act2", y, blocks[i].hard_swish);
        if (blocks[i].excite) {
            y = squeeze_and_excite(b, y, full ? make_divisible(hidden / 4) : 4);
        }
        y = conv_bn(b, "project", y, (struct layer_window){.outputs = channels, .kernel = 1, .stride = 1},
                    shortcut ? BRANCH_GAIN : 1.0);
        x = shortcut ? layer_add(b, "add", x, y) : y;
    }
    onnx_builder_scope(b, "features.%zu", LEAT_COUNT_OF(blocks) + 1);
    x = conv_bn(b, "conv", x, (struct layer_window){.outputs = 960 / divisor, .kernel = 1, .stride = 1}, 1.0);
    x = layer_global_average_pool(b, "avgpool", layer_hard_swish(b, "hardswish", x));
    onnx_builder_scope(b, "classifier");
    x = layer_gemm(b, "0", layer_flatten(b, "flatten", x), 1280 / divisor);
    x = layer_gemm(b, "3", layer_hard_swish(b, "hardswish", x), full ? 1000 : 10);
    onnx_builder_output(b, x, "output");
}
