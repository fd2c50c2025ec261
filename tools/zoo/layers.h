/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/zoo/layers.h - layers as PyTorch's exporter writes them in operator set 13, shapes worked out.
 *
 * Shapes    Images are f32[N][channels][height][width], features f32[N][width].
 * Numerics  Weights are He-initialised and centred: what all inputs of a filter have in common, such as
 *           the positive mean after a rectifier, would otherwise drown the differences between items.
 *           Every tensor carries an estimate of its variance, and the running statistics of a
 *           normalisation scatter around it, so values stay in range through any depth untrained.
 */
#ifndef LEAT_TOOLS_ZOO_LAYERS_H
#define LEAT_TOOLS_ZOO_LAYERS_H

#include "tools/zoo/onnx_builder.h"

struct layer_window {
    int64_t outputs; /* channels; unused by pooling */
    int64_t kernel, stride, pad;
    int64_t groups; /* 0 means 1 */
    bool bias;
};

struct onnx_tensor layer_conv(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                              struct layer_window window);
/* `gain` is the mean of the learned scale: 1, or less on a branch that is added to a long chain. */
struct onnx_tensor layer_batch_norm(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                                    double gain);
struct onnx_tensor layer_relu(struct onnx_builder *b, const char *name, struct onnx_tensor x);
struct onnx_tensor layer_relu6(struct onnx_builder *b, const char *name, struct onnx_tensor x); /* Clip */
struct onnx_tensor layer_max_pool(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                                  struct layer_window window);
struct onnx_tensor layer_add(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                             struct onnx_tensor y);
struct onnx_tensor layer_global_average_pool(struct onnx_builder *b, const char *name, struct onnx_tensor x);
/* Both give f32[N][everything else], one by Flatten, one by Reshape to [0, -1]. */
struct onnx_tensor layer_flatten(struct onnx_builder *b, const char *name, struct onnx_tensor x);
struct onnx_tensor layer_reshape(struct onnx_builder *b, const char *name, struct onnx_tensor x);
struct onnx_tensor layer_gemm(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                              int64_t outputs);
/* ids is i64[N][1]; the result is f32[N][1][width]. */
struct onnx_tensor layer_embedding(struct onnx_builder *b, const char *name, struct onnx_tensor ids,
                                   int64_t rows, int64_t width, double deviation);
struct onnx_tensor layer_concat(struct onnx_builder *b, const char *name, const struct onnx_tensor *parts,
                                uint32_t count);
struct onnx_tensor layer_sigmoid(struct onnx_builder *b, const char *name, struct onnx_tensor x);
struct onnx_tensor layer_softmax(struct onnx_builder *b, const char *name, struct onnx_tensor x);

#endif /* LEAT_TOOLS_ZOO_LAYERS_H */
