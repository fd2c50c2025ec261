/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/zoo/layers.h - layers as PyTorch's exporter writes them, shapes worked out.
 *
 * Shapes    Images are f32[N][channels][height][width], features f32[N][width], sequences
 *           f32[N][length][width] with a symbol for the length.
 * Numerics  Weights are He-initialised and, in convolutions and Gemm, centred: what all inputs of a filter
 *           have in common, such as the positive mean after a rectifier, would otherwise drown the
 *           differences between items. Every tensor carries an estimate of its variance, and the running
 *           statistics of a normalisation scatter around it, so values stay in range through any depth
 *           untrained.
 * Opsets    Where the operator set moved an argument from an attribute to an input, the builder's version
 *           decides.
 */
#ifndef LEAT_TOOLS_ZOO_LAYERS_H
#define LEAT_TOOLS_ZOO_LAYERS_H

#include "tools/zoo/onnx_builder.h"

struct layer_window {
    int64_t outputs; /* channels; unused by pooling */
    int64_t kernel, stride, pad;
    int64_t kernel_width, pad_width; /* where kernel_width is not 0, kernel and pad are those of the height */
    int64_t groups;                  /* 0 means 1 */
    bool bias;
    bool ceil_mode; /* of pooling: the last window may reach beyond the padding */
    int64_t height; /* what becomes of the height where that is a symbol */
    double gain;    /* of a convolution: output variance over input variance; 0 means 2 */
};

/* A part of a layer, such as "conv1.weight". */
struct part_name {
    char text[80];
};
struct part_name layer_part(const char *layer, const char *what);

/* layers.c: images, features, elementwise. */
struct onnx_tensor layer_conv(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                              struct layer_window window);
/* `gain` is the mean of the learned scale: 1, or less on a branch that is added to a long chain. */
struct onnx_tensor layer_batch_norm(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                                    double gain);
struct onnx_tensor layer_batch_norm_epsilon(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                                            double gain, float epsilon);
struct onnx_tensor layer_max_pool(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                                  struct layer_window window);
struct onnx_tensor layer_average_pool(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                                      struct layer_window window);
struct onnx_tensor layer_global_average_pool(struct onnx_builder *b, const char *name, struct onnx_tensor x);
/* Both give f32[N][everything else], one by Flatten, one by Reshape to [0, -1]. */
struct onnx_tensor layer_flatten(struct onnx_builder *b, const char *name, struct onnx_tensor x);
struct onnx_tensor layer_reshape(struct onnx_builder *b, const char *name, struct onnx_tensor x);
struct onnx_tensor layer_gemm(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                              int64_t outputs);
/* i64[N][columns] to i64[N] or, where `count` is more than 1, to i64[N][count]. */
struct onnx_tensor layer_columns(struct onnx_builder *b, const char *name, struct onnx_tensor x, int64_t first,
                                 int64_t count);
/* ids is i64[...]; the result is f32[...][width]. */
struct onnx_tensor layer_embedding(struct onnx_builder *b, const char *name, struct onnx_tensor ids,
                                   int64_t rows, int64_t width, double deviation);
/* Rows of a table that several look-ups share. */
struct onnx_tensor layer_gather(struct onnx_builder *b, const char *name, struct onnx_tensor table,
                                struct onnx_tensor ids);
struct onnx_tensor layer_concat(struct onnx_builder *b, const char *name, uint32_t axis,
                                const struct onnx_tensor *parts, uint32_t count);
struct onnx_tensor layer_softmax(struct onnx_builder *b, const char *name, struct onnx_tensor x); /* last axis */

struct onnx_tensor layer_relu(struct onnx_builder *b, const char *name, struct onnx_tensor x);
struct onnx_tensor layer_relu6(struct onnx_builder *b, const char *name, struct onnx_tensor x); /* Clip */
struct onnx_tensor layer_leaky_relu(struct onnx_builder *b, const char *name, struct onnx_tensor x, float slope);
struct onnx_tensor layer_sigmoid(struct onnx_builder *b, const char *name, struct onnx_tensor x);
struct onnx_tensor layer_tanh(struct onnx_builder *b, const char *name, struct onnx_tensor x);
struct onnx_tensor layer_prelu(struct onnx_builder *b, const char *name, struct onnx_tensor x);
struct onnx_tensor layer_silu(struct onnx_builder *b, const char *name, struct onnx_tensor x);
struct onnx_tensor layer_hard_sigmoid(struct onnx_builder *b, const char *name, struct onnx_tensor x);
struct onnx_tensor layer_hard_swish(struct onnx_builder *b, const char *name, struct onnx_tensor x);
struct onnx_tensor layer_gelu(struct onnx_builder *b, const char *name, struct onnx_tensor x); /* by Erf */

/* With NumPy's broadcasting. */
struct onnx_tensor layer_add(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                             struct onnx_tensor y);
struct onnx_tensor layer_mul(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                             struct onnx_tensor y);
/* Any operator of two inputs, and of one whose output is shaped like its input; both keep x.power. */
struct onnx_tensor layer_binary(struct onnx_builder *b, const char *op, const char *name, struct onnx_tensor x,
                                struct onnx_tensor y);
struct onnx_tensor layer_unary(struct onnx_builder *b, const char *op, const char *name, struct onnx_tensor x);
/* Constant nodes of rank 0, f32 and i64. */
struct onnx_tensor layer_scalar(struct onnx_builder *b, const char *name, float value);
struct onnx_tensor layer_integer(struct onnx_builder *b, const char *name, int64_t value);

/* layers_shape.c: what moves elements and computes shapes. */
/*
 * x with other dims, as tensor.view() is traced: the shape is put together at run time from x's own shape
 * (for symbols, of which each must be among x.dims) and constants.
 */
struct onnx_tensor layer_view(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                              const int64_t *dims, uint32_t rank);
/* The extent of a symbol of x's shape: i64[1]. */
const char *layer_extent_list(struct onnx_builder *b, const char *name, struct onnx_tensor x, int64_t symbol);
/* The shape itself: i64[rank]. */
const char *layer_shape(struct onnx_builder *b, const char *name, struct onnx_tensor x, const int64_t *dims,
                        uint32_t rank);
/* The same with a constant shape, in which the one symbol among dims is -1. */
struct onnx_tensor layer_reshape_to(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                                    const int64_t *dims, uint32_t rank);
struct onnx_tensor layer_transpose(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                                   const int64_t *order);
struct onnx_tensor layer_unsqueeze(struct onnx_builder *b, const char *name, struct onnx_tensor x, uint32_t axis);
struct onnx_tensor layer_squeeze(struct onnx_builder *b, const char *name, struct onnx_tensor x, uint32_t axis);
/* Elements first to end - 1 of an axis, which is no symbol. */
struct onnx_tensor layer_slice(struct onnx_builder *b, const char *name, struct onnx_tensor x, uint32_t axis,
                               int64_t first, int64_t end);
/* The first of an axis, as many as the symbol says, whose extent is `extent`, i64[1]. */
struct onnx_tensor layer_slice_to(struct onnx_builder *b, const char *name, struct onnx_tensor x, uint32_t axis,
                                  const char *extent, int64_t symbol);
/* 0, 1, ... up to the extent of a symbol of x's shape: i64[symbol]. */
struct onnx_tensor layer_range(struct onnx_builder *b, const char *name, struct onnx_tensor x, int64_t symbol);
struct onnx_tensor layer_where(struct onnx_builder *b, const char *name, struct onnx_tensor condition,
                               struct onnx_tensor x, struct onnx_tensor y);
/* Every `step`th of an axis; `extent` is how many there are, a number or a symbol. */
struct onnx_tensor layer_stride(struct onnx_builder *b, const char *name, struct onnx_tensor x, uint32_t axis,
                                int64_t step, int64_t extent);
/* One element of an axis, which disappears. */
struct onnx_tensor layer_select(struct onnx_builder *b, const char *name, struct onnx_tensor x, uint32_t axis,
                                int64_t index);
/* Into `count` parts of the given extents. */
void layer_split(struct onnx_builder *b, const char *name, struct onnx_tensor x, uint32_t axis,
                 const int64_t *extents, uint32_t count, struct onnx_tensor *ret_parts);
struct onnx_tensor layer_reduce(struct onnx_builder *b, const char *op, const char *name, struct onnx_tensor x,
                                uint32_t axis, bool keep);
struct onnx_tensor layer_cast(struct onnx_builder *b, const char *name, struct onnx_tensor x, enum onnx_type type);
struct onnx_tensor layer_matmul(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                                struct onnx_tensor y);

/* layers_sequence.c: transformers and recurrences. */
/* MatMul and Add over the last axis; the variance stays, or is multiplied by `gain`. */
struct onnx_tensor layer_linear(struct onnx_builder *b, const char *name, struct onnx_tensor x, int64_t outputs,
                                bool bias);
struct onnx_tensor layer_linear_gain(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                                     int64_t outputs, bool bias, double gain);
/* Over the last axis: one operator from operator set 17 on, nine before. */
struct onnx_tensor layer_layer_norm(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                                    float epsilon);

enum layer_attention_scale { LAYER_SCALE_NONE, LAYER_SCALE_QUERY, LAYER_SCALE_SCORES };

struct layer_attention {
    int64_t heads;
    enum layer_attention_scale scale; /* where 1/sqrt(width of a head) comes in */
    const struct onnx_tensor *bias;   /* added to the scores, such as a mask; may be NULL */
};

/* q is f32[N][s][heads * w]; k and v are f32[N][t][heads * w]; the result is shaped like q. */
struct onnx_tensor layer_attention(struct onnx_builder *b, const char *name, struct onnx_tensor q,
                                   struct onnx_tensor k, struct onnx_tensor v, struct layer_attention options);
/* f32[N][s][heads * w] to f32[N][heads][s][w], or to f32[N][heads][w][s]; and the first way back. */
struct onnx_tensor layer_split_heads(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                                     int64_t heads, bool transposed);
struct onnx_tensor layer_merge_heads(struct onnx_builder *b, const char *name, struct onnx_tensor x);
/* (1 - mask) times a large negative number, from i64[N][s] of 0 and 1 to f32[N][1][1][s]. */
struct onnx_tensor layer_attention_mask(struct onnx_builder *b, const char *name, struct onnx_tensor mask,
                                        float masked);
/* Convolution of f32[N][channels][length]; `length` is what becomes of the length, a number or a symbol. */
struct onnx_tensor layer_conv1d(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                                struct layer_window window, int64_t length);

struct layer_recurrent {
    const char *op; /* "LSTM" or "GRU" */
    int64_t hidden;
    bool bidirectional;
    bool reset_before;   /* of a GRU: the state is reset before its product, as in TensorFlow */
    const char *lengths; /* i32[N]; may be NULL */
};

/*
 * x is f32[length][N][width], the result f32[length][N][directions * hidden]. The last state, where wanted, is
 * f32[directions][N][hidden]. Initial states are zeros, made at run time for the batch.
 */
struct onnx_tensor layer_recurrent(struct onnx_builder *b, const char *name, struct onnx_tensor x,
                                   struct layer_recurrent options, struct onnx_tensor *ret_last);

#endif /* LEAT_TOOLS_ZOO_LAYERS_H */
