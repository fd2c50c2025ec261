/* SPDX-License-Identifier: Apache-2.0 */
/* Simonyan, Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", table 1, column D. */
#include <stdio.h>

#include "base/align.h"
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

/* Channels of the 3x3 convolutions; 0 is a max pool. */
static const int64_t features[] = {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0};

/* There is no normalisation: each layer makes up for what its rectifier takes. */
#define GAIN 2.9

void
zoo_build_vgg16(struct onnx_builder *b, enum zoo_size size)
{
    const bool full = size == ZOO_SIZE_FULL;
    const int64_t image = full ? 224 : 32, divisor = full ? 1 : 16;
    const int64_t hidden = full ? 4096 : 32;
    struct onnx_tensor x = onnx_builder_input(b, "input", (const int64_t[]){3, image, image}, 3);

    for (size_t i = 0; i < LEAT_COUNT_OF(features); i++) {
        onnx_builder_scope(b, "features.%zu", i);
        if (features[i] == 0) {
            x = layer_max_pool(b, "maxpool", x, (struct layer_window){.kernel = 2, .stride = 2});
        } else {
            x = layer_conv(b, "conv", x, (struct layer_window){.outputs = features[i] / divisor, .kernel = 3,
                                                               .stride = 1, .pad = 1, .bias = true, .gain = GAIN});
            x = layer_relu(b, "relu", x);
        }
    }
    onnx_builder_scope(b, "classifier");
    x = layer_flatten(b, "flatten", x);
    x = layer_relu(b, "relu1", layer_gemm(b, "fc1", x, hidden));
    x = layer_relu(b, "relu2", layer_gemm(b, "fc2", x, hidden));
    onnx_builder_output(b, layer_gemm(b, "fc3", x, full ? 1000 : 10), "output");
}
