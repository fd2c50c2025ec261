/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Residual networks: He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", table 1. As in
 * the widespread "v1.5", a bottleneck strides in its 3x3 convolution, not in its first 1x1. ResNeXt: Xie et
 * al., "Aggregated Residual Transformations for Deep Neural Networks", table 1.
 */
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

enum { STAGES = 4 };

struct resnet {
    int64_t image, width, classes; /* width: channels of the first stage */
    int64_t expansion;             /* 1 for basic blocks, 4 for bottlenecks */
    int64_t groups;                /* 0 means 1; where there are more, the 3x3 convolution is twice as wide */
    int blocks[STAGES];
};

/* Of the last scale in a block: sixteen summed branches then stay in the range of the first. */
#define BRANCH_GAIN 0.35

static struct onnx_tensor
conv_bn(struct onnx_builder *b, int index, struct onnx_tensor x, struct layer_window window, double gain)
{
    const char *const convs[] = {"conv1", "conv2", "conv3"};
    const char *const norms[] = {"bn1", "bn2", "bn3"};

    return layer_batch_norm(b, norms[index], layer_conv(b, convs[index], x, window), gain);
}

static struct onnx_tensor
block(struct onnx_builder *b, const struct resnet *net, struct onnx_tensor x, int64_t width, int64_t stride)
{
    const int64_t outputs = width * net->expansion;
    const int64_t inner = net->groups > 1 ? 2 * width : width;
    const struct layer_window point = {.outputs = inner, .kernel = 1, .stride = 1};
    const struct layer_window wide = {.outputs = inner, .kernel = 3, .stride = stride, .pad = 1,
                                      .groups = net->groups};
    struct onnx_tensor y, side = x;

    if (net->expansion == 1) {
        struct layer_window second = wide;
        second.stride = 1;
        y = layer_relu(b, "relu1", conv_bn(b, 0, x, wide, 1.0));
        y = conv_bn(b, 1, y, second, BRANCH_GAIN);
    } else {
        struct layer_window last = point;
        last.outputs = outputs;
        y = layer_relu(b, "relu1", conv_bn(b, 0, x, point, 1.0));
        y = layer_relu(b, "relu2", conv_bn(b, 1, y, wide, 1.0));
        y = conv_bn(b, 2, y, last, BRANCH_GAIN);
    }
    if (stride != 1 || x.dims[1] != outputs) {
        const struct layer_window project = {.outputs = outputs, .kernel = 1, .stride = stride};
        side = layer_batch_norm(b, "downsample.1", layer_conv(b, "downsample.0", x, project), 1.0);
    }
    const struct onnx_tensor sum = layer_add(b, "add", y, side);
    y = layer_relu(b, "relu", sum);
    y.power = 0.7 * sum.power; /* most of the sum is the shortcut, which is positive already */
    return y;
}

static void
build(struct onnx_builder *b, const struct resnet *net)
{
    struct onnx_tensor x = onnx_builder_input(b, "input", (const int64_t[]){3, net->image, net->image}, 3);

    x = conv_bn(b, 0, x, (struct layer_window){.outputs = net->width, .kernel = 7, .stride = 2, .pad = 3}, 1.0);
    x = layer_relu(b, "relu", x);
    x = layer_max_pool(b, "maxpool", x, (struct layer_window){.kernel = 3, .stride = 2, .pad = 1});
    for (int stage = 0; stage < STAGES; stage++) {
        for (int i = 0; i < net->blocks[stage]; i++) {
            onnx_builder_scope(b, "layer%d.%d", stage + 1, i);
            x = block(b, net, x, net->width << stage, stage > 0 && i == 0 ? 2 : 1);
        }
    }
    onnx_builder_scope(b, "%s", "");
    x = layer_flatten(b, "flatten", layer_global_average_pool(b, "avgpool", x));
    onnx_builder_output(b, layer_gemm(b, "fc", x, net->classes), "output");
}

void
zoo_build_resnet18(struct onnx_builder *builder, enum zoo_size size)
{
    struct resnet net = {.image = 224, .width = 64, .classes = 1000, .expansion = 1, .blocks = {2, 2, 2, 2}};

    if (size == ZOO_SIZE_TEST) {
        net.image = 64;
        net.width = 4;
        net.classes = 10;
    }
    build(builder, &net);
}

void
zoo_build_resnet50(struct onnx_builder *builder, enum zoo_size size)
{
    struct resnet net = {.image = 224, .width = 64, .classes = 1000, .expansion = 4, .blocks = {3, 4, 6, 3}};

    if (size == ZOO_SIZE_TEST) {
        net.image = 64;
        net.width = 3;
        net.classes = 10;
    }
    build(builder, &net);
}

void
zoo_build_resnext50(struct onnx_builder *builder, enum zoo_size size)
{
    struct resnet net = {.image = 224, .width = 64, .classes = 1000, .expansion = 4, .groups = 32,
                         .blocks = {3, 4, 6, 3}};

    if (size == ZOO_SIZE_TEST) {
        net.image = 64;
        net.width = 3;
        net.groups = 3;
        net.classes = 10;
    }
    build(builder, &net);
}
