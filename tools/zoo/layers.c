/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/layers.h"

#include <math.h>
#include <stdio.h>

/* The variance of a rectified normal variable, as a share of the variable's own. */
#define RECTIFIED 0.34
/* The same of x sigmoid(x) for a variance near 1. */
#define SMOOTHLY_RECTIFIED 0.31

struct part_name
layer_part(const char *layer, const char *what)
{
    struct part_name name;
    const int length = snprintf(name.text, sizeof(name.text), "%s.%s", layer, what);
    LEAT_ASSERT(length > 0 && (size_t)length < sizeof(name.text));
    return name;
}

struct onnx_tensor
layer_unary(struct onnx_builder *b, const char *op, const char *name, struct onnx_tensor x)
{
    x.name = onnx_node_output(onnx_builder_node(b, op, name, &x.name, 1));
    return x;
}

struct onnx_tensor
layer_binary(struct onnx_builder *b, const char *op, const char *name, struct onnx_tensor x, struct onnx_tensor y)
{
    struct onnx_tensor result = {.rank = x.rank > y.rank ? x.rank : y.rank, .power = x.power};

    for (uint32_t d = 0; d < result.rank; d++) {
        const uint32_t skip_x = result.rank - x.rank, skip_y = result.rank - y.rank;
        const int64_t from_x = d < skip_x ? 1 : x.dims[d - skip_x];
        const int64_t from_y = d < skip_y ? 1 : y.dims[d - skip_y];
        LEAT_ASSERT(from_x == from_y || from_x == 1 || from_y == 1);
        result.dims[d] = from_x == 1 ? from_y : from_x;
    }
    result.name = onnx_node_output(onnx_builder_node(b, op, name, (const char *[]){x.name, y.name}, 2));
    return result;
}

struct onnx_tensor
layer_scalar(struct onnx_builder *b, const char *name, float value)
{
    return (struct onnx_tensor){.name = onnx_builder_constant_float(b, name, value),
                                .power = (double)value * (double)value};
}

struct onnx_tensor
layer_integer(struct onnx_builder *b, const char *name, int64_t value)
{
    return (struct onnx_tensor){.name = onnx_builder_constant_integers(b, name, &value, 0), .power = 1.0};
}

/* Height and width of the window at `axis` of an image. */
static int64_t
kernel_at(struct layer_window window, uint32_t axis)
{
    return axis == 3 && window.kernel_width != 0 ? window.kernel_width : window.kernel;
}

static int64_t
pad_at(struct layer_window window, uint32_t axis)
{
    return axis == 3 && window.kernel_width != 0 ? window.pad_width : window.pad;
}

static void
slide(const struct onnx_builder *b, struct onnx_tensor *x, struct layer_window window)
{
    for (uint32_t d = 2; d < 4; d++) {
        const int64_t pad = pad_at(window, d);
        const int64_t from = onnx_builder_extent(b, x->dims[d]);
        const int64_t space = from + 2 * pad - kernel_at(window, d);
        int64_t windows = space / window.stride + 1;
        LEAT_ASSERT(space >= 0);
        if (window.ceil_mode && space % window.stride != 0 && windows * window.stride < from + pad) {
            windows++; /* it begins inside the image or its leading padding */
        }
        LEAT_ASSERT(x->dims[d] > 0 || (d == 2 && onnx_builder_extent(b, window.height) == windows));
        x->dims[d] = x->dims[d] > 0 ? windows : window.height;
    }
}

/* The share of a window's elements along an axis that lie inside the image, not on its padding, on average. */
static double
covered(const struct onnx_builder *b, struct onnx_tensor x, struct layer_window window, uint32_t axis)
{
    const int64_t extent = onnx_builder_extent(b, x.dims[axis]), kernel = kernel_at(window, axis);
    const int64_t windows = (extent + 2 * pad_at(window, axis) - kernel) / window.stride + 1;
    int64_t inside = 0;

    for (int64_t w = 0; w < windows; w++) {
        for (int64_t k = 0; k < kernel; k++) {
            const int64_t at = w * window.stride + k - pad_at(window, axis);
            inside += at >= 0 && at < extent;
        }
    }
    return (double)inside / (double)(windows * kernel);
}

static void
window_attributes(struct onnx_node *node, struct layer_window window)
{
    const int64_t kernel[2] = {kernel_at(window, 2), kernel_at(window, 3)};
    const int64_t pads[4] = {pad_at(window, 2), pad_at(window, 3), pad_at(window, 2), pad_at(window, 3)};

    onnx_node_ints(node, "kernel_shape", kernel, 2);
    onnx_node_ints(node, "pads", pads, 4);
    onnx_node_ints(node, "strides", (const int64_t[]){window.stride, window.stride}, 2);
}

struct onnx_tensor
layer_conv(struct onnx_builder *b, const char *name, struct onnx_tensor x, struct layer_window window)
{
    const int64_t groups = window.groups == 0 ? 1 : window.groups;
    LEAT_ASSERT(x.rank == 4 && x.dims[1] % groups == 0 && window.outputs % groups == 0);
    const int64_t dims[4] = {window.outputs, x.dims[1] / groups, kernel_at(window, 2), kernel_at(window, 3)};
    const int64_t fan_in = dims[1] * dims[2] * dims[3];
    const double gain = window.gain > 0.0 ? window.gain : 2.0;
    const char *inputs[3] = {x.name};
    uint32_t input_count = 2;

    inputs[1] = onnx_builder_filters(b, layer_part(name, "weight").text, dims, 4, sqrt(gain / (double)fan_in));
    if (window.bias) {
        inputs[input_count++] = onnx_builder_normal(b, layer_part(name, "bias").text, dims, 1, 0.0, 0.05);
    }
    struct onnx_node *node = onnx_builder_node(b, "Conv", name, inputs, input_count);
    onnx_node_ints(node, "dilations", (const int64_t[]){1, 1}, 2);
    onnx_node_int(node, "group", groups);
    window_attributes(node, window);

    x.power *= gain * covered(b, x, window, 2) * covered(b, x, window, 3);
    slide(b, &x, window);
    x.dims[1] = window.outputs;
    x.name = onnx_node_output(node);
    onnx_builder_count(b, window.outputs * onnx_builder_extent(b, x.dims[2]) * x.dims[3] * fan_in);
    return x;
}

struct onnx_tensor
layer_batch_norm(struct onnx_builder *b, const char *name, struct onnx_tensor x, double gain)
{
    return layer_batch_norm_epsilon(b, name, x, gain, 1e-5f);
}

struct onnx_tensor
layer_batch_norm_epsilon(struct onnx_builder *b, const char *name, struct onnx_tensor x, double gain, float epsilon)
{
    const int64_t dims[1] = {x.dims[1]};
    const char *inputs[5] = {x.name};

    inputs[1] = onnx_builder_uniform(b, layer_part(name, "weight").text, dims, 1, 0.75 * gain, 1.25 * gain);
    inputs[2] = onnx_builder_normal(b, layer_part(name, "bias").text, dims, 1, 0.0, 0.1 * gain);
    inputs[3] = onnx_builder_normal(b, layer_part(name, "running_mean").text, dims, 1, 0.0, 0.1 * sqrt(x.power));
    inputs[4] = onnx_builder_uniform(b, layer_part(name, "running_var").text, dims, 1, 0.75 * x.power, 1.25 * x.power);
    onnx_builder_discount(b, 2 * x.dims[1]); /* running statistics are not learned */
    struct onnx_node *node = onnx_builder_node(b, "BatchNormalization", name, inputs, 5);
    onnx_node_float(node, "epsilon", epsilon);
    onnx_node_float(node, "momentum", 0.9f);

    x.name = onnx_node_output(node);
    x.power = gain * gain;
    return x;
}

struct onnx_tensor
layer_relu(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    x.power *= RECTIFIED;
    return layer_unary(b, "Relu", name, x);
}

struct onnx_tensor
layer_relu6(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    const char *inputs[3] = {x.name};

    inputs[1] = onnx_builder_scalar(b, layer_part(name, "min").text, 0.0f);
    inputs[2] = onnx_builder_scalar(b, layer_part(name, "max").text, 6.0f);
    x.name = onnx_node_output(onnx_builder_node(b, "Clip", name, inputs, 3));
    x.power *= RECTIFIED;
    return x;
}

struct onnx_tensor
layer_max_pool(struct onnx_builder *b, const char *name, struct onnx_tensor x, struct layer_window window)
{
    struct onnx_node *node = onnx_builder_node(b, "MaxPool", name, &x.name, 1);

    onnx_node_int(node, "ceil_mode", window.ceil_mode);
    window_attributes(node, window);
    slide(b, &x, window);
    x.name = onnx_node_output(node);
    return x;
}

struct onnx_tensor
layer_average_pool(struct onnx_builder *b, const char *name, struct onnx_tensor x, struct layer_window window)
{
    struct onnx_node *node = onnx_builder_node(b, "AveragePool", name, &x.name, 1);

    onnx_node_int(node, "count_include_pad", 1);
    window_attributes(node, window);
    slide(b, &x, window);
    x.name = onnx_node_output(node);
    x.power *= 0.4; /* neighbours resemble each other */
    return x;
}

struct onnx_tensor
layer_add(struct onnx_builder *b, const char *name, struct onnx_tensor x, struct onnx_tensor y)
{
    x.power += y.power;
    return layer_binary(b, "Add", name, x, y);
}

struct onnx_tensor
layer_mul(struct onnx_builder *b, const char *name, struct onnx_tensor x, struct onnx_tensor y)
{
    x.power *= y.power;
    return layer_binary(b, "Mul", name, x, y);
}

struct onnx_tensor
layer_global_average_pool(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    /* Averaging leaves little but the differences between channels. */
    x.power *= 0.1;
    x = layer_unary(b, "GlobalAveragePool", name, x);
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

    inputs[1] = onnx_builder_integers(b, layer_part(name, "shape").text, (const int64_t[]){0, -1}, 2);
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

    inputs[1] = onnx_builder_filters(b, layer_part(name, "weight").text, dims, 2, sqrt(2.0 / (double)dims[1]));
    inputs[2] = onnx_builder_normal(b, layer_part(name, "bias").text, dims, 1, 0.0, 0.05);
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
layer_columns(struct onnx_builder *b, const char *name, struct onnx_tensor x, int64_t first, int64_t count)
{
    LEAT_ASSERT(x.rank == 2);
    x = layer_slice(b, layer_part(name, "slice").text, x, 1, first, first + count);
    return count > 1 ? x : layer_squeeze(b, layer_part(name, "squeeze").text, x, 1);
}

struct onnx_tensor
layer_gather(struct onnx_builder *b, const char *name, struct onnx_tensor table, struct onnx_tensor ids)
{
    LEAT_ASSERT(table.rank == 2 && ids.rank < ONNX_RANK_MAX);
    ids.name = onnx_node_output(onnx_builder_node(b, "Gather", name, (const char *[]){table.name, ids.name}, 2));
    ids.dims[ids.rank++] = table.dims[1];
    ids.power = table.power;
    return ids;
}

struct onnx_tensor
layer_embedding(struct onnx_builder *b, const char *name, struct onnx_tensor ids, int64_t rows,
                int64_t width, double deviation)
{
    struct onnx_tensor table = {.rank = 2, .dims = {rows, width}, .power = deviation * deviation};

    table.name = onnx_builder_normal(b, layer_part(name, "weight").text, table.dims, 2, 0.0, deviation);
    return layer_gather(b, name, table, ids);
}

struct onnx_tensor
layer_concat(struct onnx_builder *b, const char *name, uint32_t axis, const struct onnx_tensor *parts,
             uint32_t count)
{
    struct onnx_tensor whole = parts[0];
    const char *inputs[ONNX_NODE_INPUTS];

    LEAT_ASSERT(count > 0 && count <= ONNX_NODE_INPUTS);
    whole.dims[axis] = 0;
    whole.power = 0.0;
    for (uint32_t i = 0; i < count; i++) {
        LEAT_ASSERT(parts[i].rank == whole.rank && axis < whole.rank && parts[i].dims[axis] > 0);
        inputs[i] = parts[i].name;
        whole.dims[axis] += parts[i].dims[axis];
        whole.power += parts[i].power * (double)parts[i].dims[axis];
    }
    whole.power /= (double)whole.dims[axis];
    struct onnx_node *node = onnx_builder_node(b, "Concat", name, inputs, count);
    onnx_node_int(node, "axis", axis);
    whole.name = onnx_node_output(node);
    return whole;
}

struct onnx_tensor
layer_softmax(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    struct onnx_node *node = onnx_builder_node(b, "Softmax", name, &x.name, 1);

    onnx_node_int(node, "axis", x.rank - 1);
    x.name = onnx_node_output(node);
    x.power = 1.0 / (double)onnx_builder_extent(b, x.dims[x.rank - 1]);
    return x;
}

struct onnx_tensor
layer_leaky_relu(struct onnx_builder *b, const char *name, struct onnx_tensor x, float slope)
{
    struct onnx_node *node = onnx_builder_node(b, "LeakyRelu", name, &x.name, 1);

    onnx_node_float(node, "alpha", slope);
    x.name = onnx_node_output(node);
    x.power *= RECTIFIED + 0.25 * (double)slope;
    return x;
}

struct onnx_tensor
layer_sigmoid(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    x.power = 0.25;
    return layer_unary(b, "Sigmoid", name, x);
}

struct onnx_tensor
layer_tanh(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    x.power = x.power / (1.0 + x.power);
    return layer_unary(b, "Tanh", name, x);
}

struct onnx_tensor
layer_prelu(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    const int64_t dims[1] = {x.dims[x.rank - 1]};
    const char *inputs[2] = {x.name};

    inputs[1] = onnx_builder_uniform(b, layer_part(name, "slope").text, dims, 1, 0.1, 0.4);
    x.name = onnx_node_output(onnx_builder_node(b, "PRelu", name, inputs, 2));
    x.power *= RECTIFIED + 0.1;
    return x;
}

struct onnx_tensor
layer_silu(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    const struct onnx_tensor gate = layer_sigmoid(b, layer_part(name, "sigmoid").text, x);
    struct onnx_tensor y = layer_binary(b, "Mul", layer_part(name, "mul").text, x, gate);
    y.power = x.power * SMOOTHLY_RECTIFIED;
    return y;
}

struct onnx_tensor
layer_hard_sigmoid(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    struct onnx_node *node = onnx_builder_node(b, "HardSigmoid", name, &x.name, 1);

    onnx_node_float(node, "alpha", 1.0f / 6.0f);
    x.name = onnx_node_output(node);
    x.power = 0.25;
    return x;
}

struct onnx_tensor
layer_hard_swish(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    const struct onnx_tensor gate = layer_hard_sigmoid(b, layer_part(name, "hardsigmoid").text, x);
    struct onnx_tensor y = layer_binary(b, "Mul", layer_part(name, "mul").text, x, gate);
    y.power = x.power * SMOOTHLY_RECTIFIED;
    return y;
}

struct onnx_tensor
layer_gelu(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    struct onnx_tensor y = layer_binary(b, "Div", layer_part(name, "div").text, x,
                                        layer_scalar(b, layer_part(name, "sqrt2").text, 1.41421356f));

    y = layer_unary(b, "Erf", layer_part(name, "erf").text, y);
    y = layer_binary(b, "Add", layer_part(name, "add").text, y, layer_scalar(b, layer_part(name, "one").text, 1.0f));
    y = layer_binary(b, "Mul", layer_part(name, "mul").text, x, y);
    y = layer_binary(b, "Mul", layer_part(name, "mul_1").text, y, layer_scalar(b, layer_part(name, "half").text, 0.5f));
    y.power = x.power * RECTIFIED;
    return y;
}
