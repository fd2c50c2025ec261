/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LeCun, Bottou, Bengio, Haffner, "Gradient-Based Learning Applied to Document Recognition", figure 2,
 * with today's rectifiers, max pooling and softmax.
 */
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

void
zoo_build_lenet5(struct onnx_builder *b, enum zoo_size size)
{
    const int64_t image = size == ZOO_SIZE_FULL ? 28 : 16;
    const int64_t divisor = size == ZOO_SIZE_FULL ? 1 : 2;
    const struct layer_window pool = {.kernel = 2, .stride = 2};
    struct onnx_tensor x = onnx_builder_input(b, "input", (const int64_t[]){1, image, image}, 3);

    x = layer_conv(b, "conv1", x, (struct layer_window){.outputs = 6 / divisor, .kernel = 5, .stride = 1, .pad = 2,
                                                        .bias = true});
    x = layer_max_pool(b, "pool1", layer_relu(b, "relu1", x), pool);
    x = layer_conv(b, "conv2", x, (struct layer_window){.outputs = 16 / divisor, .kernel = 5, .stride = 1, .bias = true});
    x = layer_max_pool(b, "pool2", layer_relu(b, "relu2", x), pool);
    x = layer_flatten(b, "flatten", x);
    x = layer_relu(b, "relu3", layer_gemm(b, "fc1", x, 120 / divisor));
    x = layer_relu(b, "relu4", layer_gemm(b, "fc2", x, 84 / divisor));
    onnx_builder_output(b, layer_softmax(b, "softmax", layer_gemm(b, "fc3", x, 10)), "output");
}
