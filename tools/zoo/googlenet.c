/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Szegedy et al., "Going Deeper with Convolutions", table 1, with batch normalisation, and with 3x3 where the
 * paper has 5x5, as torchvision has it. Without the auxiliary classifiers, which serve training only.
 */
#include "base/align.h"
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

struct inception {
    const char *name;
    int64_t point, reduce3, wide3, reduce5, wide5, pool;
    int64_t pool_before; /* kernel of a max pool of stride 2 before the block, or 0 */
};

static const struct inception blocks[] = {
    {"inception3a", 64, 96, 128, 16, 32, 32, 3},    {"inception3b", 128, 128, 192, 32, 96, 64, 0},
    {"inception4a", 192, 96, 208, 16, 48, 64, 3},   {"inception4b", 160, 112, 224, 24, 64, 64, 0},
    {"inception4c", 128, 128, 256, 24, 64, 64, 0},  {"inception4d", 112, 144, 288, 32, 64, 64, 0},
    {"inception4e", 256, 160, 320, 32, 128, 128, 0}, {"inception5a", 256, 160, 320, 32, 128, 128, 2},
    {"inception5b", 384, 192, 384, 48, 128, 128, 0},
};

static struct onnx_tensor
conv(struct onnx_builder *b, const char *name, struct onnx_tensor x, int64_t outputs, int64_t kernel, int64_t stride)
{
    x = layer_conv(b, layer_part(name, "conv").text, x,
                   (struct layer_window){.outputs = outputs, .kernel = kernel, .stride = stride, .pad = kernel / 2});
    x = layer_batch_norm_epsilon(b, layer_part(name, "bn").text, x, 1.0, 0.001f);
    return layer_relu(b, layer_part(name, "relu").text, x);
}

static struct onnx_tensor
block(struct onnx_builder *b, struct onnx_tensor x, const struct inception *net, int64_t divisor)
{
    const struct layer_window pool = {.kernel = 3, .stride = 1, .pad = 1, .ceil_mode = true};
    const struct onnx_tensor parts[4] = {
        conv(b, "branch1", x, net->point / divisor, 1, 1),
        conv(b, "branch2.1", conv(b, "branch2.0", x, net->reduce3 / divisor, 1, 1), net->wide3 / divisor, 3, 1),
        conv(b, "branch3.1", conv(b, "branch3.0", x, net->reduce5 / divisor, 1, 1), net->wide5 / divisor, 3, 1),
        conv(b, "branch4.1", layer_max_pool(b, "branch4.0", x, pool), net->pool / divisor, 1, 1),
    };
    return layer_concat(b, "concat", 1, parts, 4);
}

void
zoo_build_googlenet(struct onnx_builder *b, enum zoo_size size)
{
    const bool full = size == ZOO_SIZE_FULL;
    const int64_t image = full ? 224 : 64, divisor = full ? 1 : 8;
    struct layer_window pool = {.kernel = 3, .stride = 2, .ceil_mode = true};
    struct onnx_tensor x = onnx_builder_input(b, "input", (const int64_t[]){3, image, image}, 3);

    x = layer_max_pool(b, "maxpool1", conv(b, "conv1", x, 64 / divisor, 7, 2), pool);
    x = conv(b, "conv3", conv(b, "conv2", x, 64 / divisor, 1, 1), 192 / divisor, 3, 1);
    for (size_t i = 0; i < LEAT_COUNT_OF(blocks); i++) {
        onnx_builder_scope(b, "%s", blocks[i].name);
        pool.kernel = blocks[i].pool_before;
        if (pool.kernel != 0) {
            x = layer_max_pool(b, "maxpool", x, pool);
        }
        x = block(b, x, &blocks[i], divisor);
    }
    onnx_builder_scope(b, "%s", "");
    x = layer_flatten(b, "flatten", layer_global_average_pool(b, "avgpool", x));
    onnx_builder_output(b, layer_gemm(b, "fc", x, full ? 1000 : 10), "output");
}
