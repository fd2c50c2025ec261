/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/layers.h"

#include <math.h>
#include <stdio.h>

/* The variance of a rectified normal variable, as a share of the variable's own. */
#define RECTIFIED 0.34

/* A part of a layer, such as "conv1.weight". */
struct part_name {
    char text[64];
};

static struct part_name
part(const char *layer, const char *what)
{
    struct part_name name;
    const int length = snprintf(name.text, sizeof(name.text), "%s.%s", layer, what);
    LEAT_ASSERT(length > 0 && (size_t)length < sizeof(name.text));
    return name;
}

/* A node of one input, its output shaped like x. */
static struct onnx_tensor
same_shape(struct onnx_builder *b, const char *op, const char *name, struct onnx_tensor x, double power)
{
    x.name = onnx_node_output(onnx_builder_node(b, op, name, &x.name, 1));
    x.power = power;
    return x;
}

static void
slide(struct onnx_tensor *x, struct layer_window window)
{
    for (uint32_t d = 2; d < 4; d++) {
        x->dims[d] = (x->dims[d] + 2 * window.pad - window.kernel) / window.stride + 1;
        LEAT_ASSERT(x->dims[d] > 0);
    }
}

static void
window_attributes(struct onnx_node *node, struct layer_window window)
{
    onnx_node_ints(node, "kernel_shape", (const int64_t[]){window.kernel, window.kernel}, 2);
    onnx_node_ints(node, "pads", (const int64_t[]){window.pad, window.pad, window.pad, window.pad}, 4);
    onnx_node_ints(node, "strides", (const int64_t[]){window.stride, window.stride}, 2);
}

struct onnx_tensor
layer_conv(struct onnx_builder *b, const char *name, struct onnx_tensor x, struct layer_window window)
{
    const int64_t groups = window.groups == 0 ? 1 : window.groups;
    LEAT_ASSERT(x.rank == 4 && x.dims[1] % groups == 0 && window.outputs % groups == 0);
    const int64_t dims[4] = {window.outputs, x.dims[1] / groups, window.kernel, window.kernel};
    const int64_t fan_in = dims[1] * dims[2] * dims[3];
    const char *inputs[3] = {x.name};
    uint32_t input_count = 2;

    inputs[1] = onnx_builder_filters(b, part(name, "weight").text, dims, 4, sqrt(2.0 / (double)fan_in));
    if (window.bias) {
        inputs[input_count++] = onnx_builder_normal(b, part(name, "bias").text, dims, 1, 0.0, 0.05);
    }
    struct onnx_node *node = onnx_builder_node(b, "Conv", name, inputs, input_count);
    onnx_node_ints(node, "dilations", (const int64_t[]){1, 1}, 2);
    onnx_node_int(node, "group", groups);
    window_attributes(node, window);

    slide(&x, window);
    x.dims[1] = window.outputs;
    x.name = onnx_node_output(node);
    x.power *= 2.0;
    onnx_builder_count(b, window.outputs * x.dims[2] * x.dims[3] * fan_in);
    return x;
}

struct onnx_tensor
layer_batch_norm(struct onnx_builder *b, const char *name, struct onnx_tensor x, double gain)
{
    const int64_t dims[1] = {x.dims[1]};
    const char *inputs[5] = {x.name};

    inputs[1] = onnx_builder_uniform(b, part(name, "weight").text, dims, 1, 0.75 * gain, 1.25 * gain);
    inputs[2] = onnx_builder_normal(b, part(name, "bias").text, dims, 1, 0.0, 0.1 * gain);
    inputs[3] = onnx_builder_normal(b, part(name, "running_mean").text, dims, 1, 0.0, 0.1 * sqrt(x.power));
    inputs[4] = onnx_builder_uniform(b, part(name, "running_var").text, dims, 1, 0.75 * x.power, 1.25 * x.power);
    struct onnx_node *node = onnx_builder_node(b, "BatchNormalization", name, inputs, 5);
    onnx_node_float(node, "epsilon", 1e-5f);
    onnx_node_float(node, "momentum", 0.9f);

    x.name = onnx_node_output(node);
    x.power = gain * gain;
    return x;
}

struct onnx_tensor
layer_relu(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    return same_shape(b, "Relu", name, x, x.power * RECTIFIED);
}

struct onnx_tensor
layer_relu6(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    const char *inputs[3] = {x.name};

    inputs[1] = onnx_builder_scalar(b, part(name, "min").text, 0.0f);
    inputs[2] = onnx_builder_scalar(b, part(name, "max").text, 6.0f);
    x.name = onnx_node_output(onnx_builder_node(b, "Clip", name, inputs, 3));
    x.power *= RECTIFIED;
    return x;
}

struct onnx_tensor
layer_max_pool(struct onnx_builder *b, const char *name, struct onnx_tensor x, struct layer_window window)
{
    struct onnx_node *node = onnx_builder_node(b, "MaxPool", name, &x.name, 1);

    onnx_node_int(node, "ceil_mode", 0);
    window_attributes(node, window);
    slide(&x, window);
    x.name = onnx_node_output(node);
    return x;
}

struct onnx_tensor
layer_add(struct onnx_builder *b, const char *name, struct onnx_tensor x, struct onnx_tensor y)
{
    for (uint32_t d = 0; d < x.rank; d++) {
        LEAT_ASSERT(x.rank == y.rank && x.dims[d] == y.dims[d]);
    }
    x.name = onnx_node_output(onnx_builder_node(b, "Add", name, (const char *[]){x.name, y.name}, 2));
    x.power += y.power;
    return x;
}

struct onnx_tensor
layer_global_average_pool(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    /* Averaging leaves little but the differences between channels. */
    x = same_shape(b, "GlobalAveragePool", name, x, x.power * 0.1);
    x.dims[2] = x.dims[3] = 1;
    return x;
}

/* f32[N][everything else] */
static void
make_flat(struct onnx_tensor *x)
{
    int64_t width = 1;
    for (uint32_t d = 1; d < x->rank; d++) {
        width *= x->dims[d];
    }
    x->rank = 2;
    x->dims[1] = width;
}

struct onnx_tensor
layer_flatten(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    struct onnx_node *node = onnx_builder_node(b, "Flatten", name, &x.name, 1);

    onnx_node_int(node, "axis", 1);
    x.name = onnx_node_output(node);
    make_flat(&x);
    return x;
}

struct onnx_tensor
layer_reshape(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    const char *inputs[2] = {x.name};

    inputs[1] = onnx_builder_integers(b, part(name, "shape").text, (const int64_t[]){0, -1}, 2);
    x.name = onnx_node_output(onnx_builder_node(b, "Reshape", name, inputs, 2));
    make_flat(&x);
    return x;
}

struct onnx_tensor
layer_gemm(struct onnx_builder *b, const char *name, struct onnx_tensor x, int64_t outputs)
{
    LEAT_ASSERT(x.rank == 2);
    const int64_t dims[2] = {outputs, x.dims[1]};
    const char *inputs[3] = {x.name};

    inputs[1] = onnx_builder_filters(b, part(name, "weight").text, dims, 2, sqrt(2.0 / (double)dims[1]));
    inputs[2] = onnx_builder_normal(b, part(name, "bias").text, dims, 1, 0.0, 0.05);
    struct onnx_node *node = onnx_builder_node(b, "Gemm", name, inputs, 3);
    onnx_node_float(node, "alpha", 1.0f);
    onnx_node_float(node, "beta", 1.0f);
    onnx_node_int(node, "transB", 1);

    onnx_builder_count(b, dims[0] * dims[1]);
    x.name = onnx_node_output(node);
    x.dims[1] = outputs;
    x.power *= 2;
    return x;
}

struct onnx_tensor
layer_embedding(struct onnx_builder *b, const char *name, struct onnx_tensor ids, int64_t rows,
                int64_t width, double deviation)
{
    LEAT_ASSERT(ids.rank == 2 && ids.dims[1] == 1);
    const int64_t dims[2] = {rows, width};
    const char *inputs[2] = {NULL, ids.name};

    inputs[0] = onnx_builder_normal(b, part(name, "weight").text, dims, 2, 0.0, deviation);
    return (struct onnx_tensor){.name = onnx_node_output(onnx_builder_node(b, "Gather", name, inputs, 2)),
                                .rank = 3,
                                .dims = {ONNX_BATCH, 1, width},
                                .power = deviation * deviation};
}

struct onnx_tensor
layer_concat(struct onnx_builder *b, const char *name, const struct onnx_tensor *parts, uint32_t count)
{
    struct onnx_tensor whole = {.rank = 2, .dims = {ONNX_BATCH, 0}, .power = 0.0};
    const char *inputs[ONNX_NODE_INPUTS];

    LEAT_ASSERT(count > 0 && count <= ONNX_NODE_INPUTS);
    for (uint32_t i = 0; i < count; i++) {
        LEAT_ASSERT(parts[i].rank == 2);
        inputs[i] = parts[i].name;
        whole.dims[1] += parts[i].dims[1];
        whole.power += parts[i].power * (double)parts[i].dims[1];
    }
    whole.power /= (double)whole.dims[1];
    struct onnx_node *node = onnx_builder_node(b, "Concat", name, inputs, count);
    onnx_node_int(node, "axis", 1);
    whole.name = onnx_node_output(node);
    return whole;
}

struct onnx_tensor
layer_sigmoid(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    return same_shape(b, "Sigmoid", name, x, 0.25);
}

struct onnx_tensor
layer_softmax(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    struct onnx_node *node = onnx_builder_node(b, "Softmax", name, &x.name, 1);

    LEAT_ASSERT(x.rank == 2);
    onnx_node_int(node, "axis", 1);
    x.name = onnx_node_output(node);
    x.power = 1.0 / (double)x.dims[1];
    return x;
}
