/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

void
zoo_build_mlp(struct onnx_builder *b, enum zoo_size size)
{
    const int64_t features = size == ZOO_SIZE_FULL ? 784 : 49;
    const int64_t hidden = size == ZOO_SIZE_FULL ? 1024 : 64;
    struct onnx_tensor x = onnx_builder_input(b, "input", &features, 1);

    x = layer_relu(b, "relu1", layer_gemm(b, "fc1", x, hidden));
    x = layer_relu(b, "relu2", layer_gemm(b, "fc2", x, hidden));
    x = layer_relu(b, "relu3", layer_gemm(b, "fc3", x, hidden));
    onnx_builder_output(b, layer_softmax(b, "softmax", layer_gemm(b, "fc4", x, 10)), "output");
}
