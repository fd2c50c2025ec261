/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", table 1 and figures 5 to 7,
 * with torchvision's channels. Without the auxiliary classifier, which serves training only.
 */
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

struct net {
    struct onnx_builder *b;
    int64_t divisor; /* of all channels */
};

/* Padded so that stride 1 keeps the size, unless `valid`. */
struct shape {
    int64_t height, width, stride;
    bool valid;
};

static const struct shape point = {1, 1, 1, false}, square3 = {3, 3, 1, false}, square5 = {5, 5, 1, false};
static const struct shape row3 = {1, 3, 1, false}, column3 = {3, 1, 1, false};
static const struct shape row7 = {1, 7, 1, false}, column7 = {7, 1, 1, false};
static const struct shape valid3 = {3, 3, 1, true}, down3 = {3, 3, 2, true};
static const struct layer_window average3 = {.kernel = 3, .stride = 1, .pad = 1};
static const struct layer_window maximum3 = {.kernel = 3, .stride = 2};

static struct onnx_tensor
conv(const struct net *net, const char *name, struct onnx_tensor x, int64_t outputs, struct shape shape)
{
    const struct layer_window window = {
        .outputs = outputs / net->divisor, .kernel = shape.height, .kernel_width = shape.width,
        .stride = shape.stride, .pad = shape.valid ? 0 : shape.height / 2,
        .pad_width = shape.valid ? 0 : shape.width / 2,
    };

    x = layer_conv(net->b, layer_part(name, "conv").text, x, window);
    x = layer_batch_norm_epsilon(net->b, layer_part(name, "bn").text, x, 1.0, 0.001f);
    return layer_relu(net->b, layer_part(name, "relu").text, x);
}

/* Figure 5. */
static struct onnx_tensor
block_a(const struct net *net, const char *name, struct onnx_tensor x, int64_t pool)
{
    struct onnx_tensor parts[4];

    onnx_builder_scope(net->b, "%s", name);
    parts[0] = conv(net, "branch1x1", x, 64, point);
    parts[1] = conv(net, "branch5x5_2", conv(net, "branch5x5_1", x, 48, point), 64, square5);
    parts[2] = conv(net, "branch3x3dbl_2", conv(net, "branch3x3dbl_1", x, 64, point), 96, square3);
    parts[2] = conv(net, "branch3x3dbl_3", parts[2], 96, square3);
    parts[3] = conv(net, "branch_pool", layer_average_pool(net->b, "avgpool", x, average3), pool, point);
    return layer_concat(net->b, "concat", 1, parts, 4);
}

/* From 35x35 to 17x17. */
static struct onnx_tensor
reduce_b(const struct net *net, const char *name, struct onnx_tensor x)
{
    struct onnx_tensor parts[3];

    onnx_builder_scope(net->b, "%s", name);
    parts[0] = conv(net, "branch3x3", x, 384, down3);
    parts[1] = conv(net, "branch3x3dbl_2", conv(net, "branch3x3dbl_1", x, 64, point), 96, square3);
    parts[1] = conv(net, "branch3x3dbl_3", parts[1], 96, down3);
    parts[2] = layer_max_pool(net->b, "maxpool", x, maximum3);
    return layer_concat(net->b, "concat", 1, parts, 3);
}

/* Figure 6. */
static struct onnx_tensor
block_c(const struct net *net, const char *name, struct onnx_tensor x, int64_t c)
{
    struct onnx_tensor parts[4];

    onnx_builder_scope(net->b, "%s", name);
    parts[0] = conv(net, "branch1x1", x, 192, point);
    parts[1] = conv(net, "branch7x7_2", conv(net, "branch7x7_1", x, c, point), c, row7);
    parts[1] = conv(net, "branch7x7_3", parts[1], 192, column7);
    parts[2] = conv(net, "branch7x7dbl_2", conv(net, "branch7x7dbl_1", x, c, point), c, column7);
    parts[2] = conv(net, "branch7x7dbl_4", conv(net, "branch7x7dbl_3", parts[2], c, row7), c, column7);
    parts[2] = conv(net, "branch7x7dbl_5", parts[2], 192, row7);
    parts[3] = conv(net, "branch_pool", layer_average_pool(net->b, "avgpool", x, average3), 192, point);
    return layer_concat(net->b, "concat", 1, parts, 4);
}

/* From 17x17 to 8x8. */
static struct onnx_tensor
reduce_d(const struct net *net, const char *name, struct onnx_tensor x)
{
    struct onnx_tensor parts[3];

    onnx_builder_scope(net->b, "%s", name);
    parts[0] = conv(net, "branch3x3_2", conv(net, "branch3x3_1", x, 192, point), 320, down3);
    parts[1] = conv(net, "branch7x7x3_2", conv(net, "branch7x7x3_1", x, 192, point), 192, row7);
    parts[1] = conv(net, "branch7x7x3_4", conv(net, "branch7x7x3_3", parts[1], 192, column7), 192, down3);
    parts[2] = layer_max_pool(net->b, "maxpool", x, maximum3);
    return layer_concat(net->b, "concat", 1, parts, 3);
}

/* Figure 7. */
static struct onnx_tensor
block_e(const struct net *net, const char *name, struct onnx_tensor x)
{
    struct onnx_tensor parts[4], pair[2];

    onnx_builder_scope(net->b, "%s", name);
    parts[0] = conv(net, "branch1x1", x, 320, point);
    parts[1] = conv(net, "branch3x3_1", x, 384, point);
    pair[0] = conv(net, "branch3x3_2a", parts[1], 384, row3);
    pair[1] = conv(net, "branch3x3_2b", parts[1], 384, column3);
    parts[1] = layer_concat(net->b, "concat_3x3", 1, pair, 2);
    parts[2] = conv(net, "branch3x3dbl_2", conv(net, "branch3x3dbl_1", x, 448, point), 384, square3);
    pair[0] = conv(net, "branch3x3dbl_3a", parts[2], 384, row3);
    pair[1] = conv(net, "branch3x3dbl_3b", parts[2], 384, column3);
    parts[2] = layer_concat(net->b, "concat_3x3dbl", 1, pair, 2);
    parts[3] = conv(net, "branch_pool", layer_average_pool(net->b, "avgpool", x, average3), 192, point);
    return layer_concat(net->b, "concat", 1, parts, 4);
}

void
zoo_build_inceptionv3(struct onnx_builder *b, enum zoo_size size)
{
    const bool full = size == ZOO_SIZE_FULL;
    const struct net *net = &(struct net){.b = b, .divisor = full ? 1 : 16};
    const int64_t image = full ? 299 : 75;
    struct onnx_tensor x = onnx_builder_input(b, "input", (const int64_t[]){3, image, image}, 3);

    x = conv(net, "Conv2d_2a_3x3", conv(net, "Conv2d_1a_3x3", x, 32, down3), 32, valid3);
    x = layer_max_pool(b, "maxpool1", conv(net, "Conv2d_2b_3x3", x, 64, square3), maximum3);
    x = conv(net, "Conv2d_4a_3x3", conv(net, "Conv2d_3b_1x1", x, 80, point), 192, valid3);
    x = layer_max_pool(b, "maxpool2", x, maximum3);
    x = block_a(net, "Mixed_5b", x, 32);
    x = block_a(net, "Mixed_5c", x, 64);
    x = block_a(net, "Mixed_5d", x, 64);
    x = reduce_b(net, "Mixed_6a", x);
    x = block_c(net, "Mixed_6b", x, 128);
    x = block_c(net, "Mixed_6c", x, 160);
    x = block_c(net, "Mixed_6d", x, 160);
    x = block_c(net, "Mixed_6e", x, 192);
    x = reduce_d(net, "Mixed_7a", x);
    x = block_e(net, "Mixed_7b", x);
    x = block_e(net, "Mixed_7c", x);
    onnx_builder_scope(b, "%s", "");
    x = layer_flatten(b, "flatten", layer_global_average_pool(b, "avgpool", x));
    onnx_builder_output(b, layer_gemm(b, "fc", x, full ? 1000 : 10), "output");
}
