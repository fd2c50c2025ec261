/* SPDX-License-Identifier: Apache-2.0 */
/* Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", table 2. */
#include "base/align.h"
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

static const struct {
    int64_t expansion, channels, repeats, stride;
} stages[] = {
    {1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1},
};

/* Of the last scale in a block that has a shortcut: the chain of sums stays in range. */
#define BRANCH_GAIN 0.5

static struct onnx_tensor
conv_bn_relu6(struct onnx_builder *b, int index, struct onnx_tensor x, struct layer_window window)
{
    const char *const convs[] = {"conv1", "conv2"};
    const char *const norms[] = {"bn1", "bn2"};
    const char *const clips[] = {"relu6_1", "relu6_2"};

    return layer_relu6(b, clips[index], layer_batch_norm(b, norms[index], layer_conv(b, convs[index], x, window), 1.0));
}

static struct onnx_tensor
inverted_residual(struct onnx_builder *b, struct onnx_tensor x, int64_t expansion, int64_t outputs, int64_t stride)
{
    const bool shortcut = stride == 1 && x.dims[1] == outputs;
    const int64_t hidden = x.dims[1] * expansion;
    struct onnx_tensor y = x;

    if (expansion != 1) {
        y = conv_bn_relu6(b, 0, y, (struct layer_window){.outputs = hidden, .kernel = 1, .stride = 1});
    }
    y = conv_bn_relu6(b, 1, y, (struct layer_window){.outputs = hidden, .kernel = 3, .stride = stride, .pad = 1,
                                                     .groups = hidden});
    y = layer_conv(b, "conv3", y, (struct layer_window){.outputs = outputs, .kernel = 1, .stride = 1});
    y = layer_batch_norm(b, "bn3", y, shortcut ? BRANCH_GAIN : 1.0);
    return shortcut ? layer_add(b, "add", x, y) : y;
}

static void
mobilenetv2(struct onnx_builder *b, enum zoo_size size, int64_t pixels)
{
    const int64_t image = size == ZOO_SIZE_FULL ? pixels : 64;
    const int64_t divisor = size == ZOO_SIZE_FULL ? 1 : 8;
    struct onnx_tensor x = onnx_builder_input(b, "input", (const int64_t[]){3, image, image}, 3);
    int index = 1;

    onnx_builder_scope(b, "features.0");
    x = conv_bn_relu6(b, 0, x, (struct layer_window){.outputs = 32 / divisor, .kernel = 3, .stride = 2, .pad = 1});
    for (size_t s = 0; s < LEAT_COUNT_OF(stages); s++) {
        for (int64_t i = 0; i < stages[s].repeats; i++) {
            onnx_builder_scope(b, "features.%d", index++);
            x = inverted_residual(b, x, stages[s].expansion, stages[s].channels / divisor,
                                  i == 0 ? stages[s].stride : 1);
        }
    }
    onnx_builder_scope(b, "features.%d", index);
    x = conv_bn_relu6(b, 0, x, (struct layer_window){.outputs = 1280 / divisor, .kernel = 1, .stride = 1});
    onnx_builder_scope(b, "classifier");
    x = layer_reshape(b, "reshape", layer_global_average_pool(b, "avgpool", x));
    onnx_builder_output(b, layer_gemm(b, "fc", x, size == ZOO_SIZE_FULL ? 1000 : 10), "output");
}

void
zoo_build_mobilenetv2(struct onnx_builder *b, enum zoo_size size)
{
    mobilenetv2(b, size, 224);
}

void
zoo_build_mobilenetv2_64(struct onnx_builder *b, enum zoo_size size)
{
    mobilenetv2(b, size, 64);
}
