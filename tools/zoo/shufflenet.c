/* SPDX-License-Identifier: Apache-2.0 */
/* Ma et al., "ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture Design", table 5 (1x). */
#include "base/align.h"
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

static const struct {
    int64_t channels;
    int repeats;
} stages[] = {{116, 4}, {232, 8}, {464, 4}};

static struct onnx_tensor
conv_bn(struct onnx_builder *b, const char *name, struct onnx_tensor x, struct layer_window window)
{
    x = layer_conv(b, layer_part(name, "conv").text, x, window);
    return layer_batch_norm(b, layer_part(name, "bn").text, x, 1.0);
}

/* The two halves of the channels take turns. */
static struct onnx_tensor
shuffle(struct onnx_builder *b, struct onnx_tensor x)
{
    const int64_t apart[5] = {ONNX_BATCH, 2, x.dims[1] / 2, x.dims[2], x.dims[3]};
    const int64_t whole[4] = {ONNX_BATCH, x.dims[1], x.dims[2], x.dims[3]};

    x = layer_view(b, "shuffle.apart", x, apart, 5);
    x = layer_transpose(b, "shuffle.transpose", x, (const int64_t[]){0, 2, 1, 3, 4});
    return layer_view(b, "shuffle.whole", x, whole, 4);
}

static struct onnx_tensor
block(struct onnx_builder *b, struct onnx_tensor x, int64_t outputs, int64_t stride)
{
    const int64_t half = outputs / 2;
    const struct layer_window point = {.outputs = half, .kernel = 1, .stride = 1};
    struct layer_window deep = {.kernel = 3, .stride = stride, .pad = 1};
    struct onnx_tensor parts[2];

    if (stride == 1) {
        layer_split(b, "split", x, 1, (const int64_t[]){half, half}, 2, parts);
    } else {
        deep.outputs = deep.groups = x.dims[1];
        parts[0] = conv_bn(b, "branch1.0", x, deep);
        parts[0] = layer_relu(b, "branch1.relu", conv_bn(b, "branch1.2", parts[0], point));
        parts[1] = x;
    }
    deep.outputs = deep.groups = half;
    parts[1] = layer_relu(b, "branch2.relu1", conv_bn(b, "branch2.0", parts[1], point));
    parts[1] = conv_bn(b, "branch2.3", parts[1], deep);
    parts[1] = layer_relu(b, "branch2.relu2", conv_bn(b, "branch2.5", parts[1], point));
    return shuffle(b, layer_concat(b, "concat", 1, parts, 2));
}

void
zoo_build_shufflenetv2(struct onnx_builder *b, enum zoo_size size)
{
    const bool full = size == ZOO_SIZE_FULL;
    const int64_t image = full ? 224 : 64;
    struct onnx_tensor x = onnx_builder_input(b, "input", (const int64_t[]){3, image, image}, 3);

    x = conv_bn(b, "conv1", x, (struct layer_window){.outputs = full ? 24 : 8, .kernel = 3, .stride = 2, .pad = 1});
    x = layer_max_pool(b, "maxpool", layer_relu(b, "relu1", x),
                       (struct layer_window){.kernel = 3, .stride = 2, .pad = 1});
    for (size_t s = 0; s < LEAT_COUNT_OF(stages); s++) {
        for (int i = 0; i < stages[s].repeats; i++) {
            onnx_builder_scope(b, "stage%zu.%d", s + 2, i);
            x = block(b, x, full ? stages[s].channels : INT64_C(16) << s, i == 0 ? 2 : 1);
        }
    }
    onnx_builder_scope(b, "%s", "");
    x = layer_relu(b, "relu5", conv_bn(b, "conv5", x, (struct layer_window){.outputs = full ? 1024 : 128, .kernel = 1,
                                                                            .stride = 1}));
    x = layer_reduce(b, "ReduceMean", "mean_width", x, 3, false);
    x = layer_reduce(b, "ReduceMean", "mean_height", x, 2, false);
    x.power *= 0.1;
    onnx_builder_output(b, layer_gemm(b, "fc", x, full ? 1000 : 10), "output");
}
