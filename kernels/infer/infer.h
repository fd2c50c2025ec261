/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/infer/infer.h - shape inference functions of the operator table, one per family of operators.
 *
 * Shapes   A dim is known (>= 0), LEAT_DIM_BATCH, LEAT_DIM_UNKNOWN or a symbol: one that is not known either, but
 *          equals itself. A function that combines values along an axis of size LEAT_DIM_BATCH sets *mixes_items.
 */
#ifndef LEAT_KERNELS_INFER_INFER_H
#define LEAT_KERNELS_INFER_INFER_H

#include "kernels/op.h"

#define LEAT_INFER_FUNCTION(name)                                                                   \
    enum leat_status leat_infer_##name(const struct leat_graph *graph, const struct leat_node *node, \
                                       struct leat_shape *outputs, bool *mixes_items)
LEAT_INFER_FUNCTION(arg_reduce);
LEAT_INFER_FUNCTION(attention);
LEAT_INFER_FUNCTION(batch_normalization);
LEAT_INFER_FUNCTION(bit_shift);
LEAT_INFER_FUNCTION(broadcast); /* operands of one type */
LEAT_INFER_FUNCTION(cast);
LEAT_INFER_FUNCTION(cast_like);
LEAT_INFER_FUNCTION(clip);
LEAT_INFER_FUNCTION(compare);
LEAT_INFER_FUNCTION(compress);
LEAT_INFER_FUNCTION(concat);
LEAT_INFER_FUNCTION(constant);
LEAT_INFER_FUNCTION(constant_of_shape);
LEAT_INFER_FUNCTION(conv);
LEAT_INFER_FUNCTION(conv_integer);
LEAT_INFER_FUNCTION(conv_transpose);
LEAT_INFER_FUNCTION(cum_sum);
LEAT_INFER_FUNCTION(depth_to_space);
LEAT_INFER_FUNCTION(dequantize_linear);
LEAT_INFER_FUNCTION(det);
LEAT_INFER_FUNCTION(dft);
LEAT_INFER_FUNCTION(dropout);
LEAT_INFER_FUNCTION(dynamic_quantize);
LEAT_INFER_FUNCTION(einsum);
LEAT_INFER_FUNCTION(expand);
LEAT_INFER_FUNCTION(eye_like);
LEAT_INFER_FUNCTION(flatten);
LEAT_INFER_FUNCTION(gather);
LEAT_INFER_FUNCTION(gather_elements);
LEAT_INFER_FUNCTION(gather_nd);
LEAT_INFER_FUNCTION(gemm);
LEAT_INFER_FUNCTION(global_lp_pool);
LEAT_INFER_FUNCTION(global_pool);
LEAT_INFER_FUNCTION(grid_sample);
LEAT_INFER_FUNCTION(if);
LEAT_INFER_FUNCTION(instance_normalization);
LEAT_INFER_FUNCTION(layer_normalization);
LEAT_INFER_FUNCTION(loss);
LEAT_INFER_FUNCTION(loop);
LEAT_INFER_FUNCTION(lp_normalization);
LEAT_INFER_FUNCTION(lp_pool);
LEAT_INFER_FUNCTION(lrn);
LEAT_INFER_FUNCTION(matmul);
LEAT_INFER_FUNCTION(matmul_integer);
LEAT_INFER_FUNCTION(matmul_integer_to_float);
LEAT_INFER_FUNCTION(max_unpool);
LEAT_INFER_FUNCTION(mean_variance);
LEAT_INFER_FUNCTION(mel_weights);
LEAT_INFER_FUNCTION(mod);
LEAT_INFER_FUNCTION(non_max_suppression);
LEAT_INFER_FUNCTION(non_zero);
LEAT_INFER_FUNCTION(one_hot);
LEAT_INFER_FUNCTION(pad);
LEAT_INFER_FUNCTION(pool);
LEAT_INFER_FUNCTION(pow);
LEAT_INFER_FUNCTION(prelu);
LEAT_INFER_FUNCTION(qlinear_add);
LEAT_INFER_FUNCTION(qlinear_conv);
LEAT_INFER_FUNCTION(qlinear_lookup);
LEAT_INFER_FUNCTION(qlinear_matmul);
LEAT_INFER_FUNCTION(quantize_linear);
LEAT_INFER_FUNCTION(range);
LEAT_INFER_FUNCTION(recurrent);
LEAT_INFER_FUNCTION(reduce);
LEAT_INFER_FUNCTION(reshape);
LEAT_INFER_FUNCTION(resize);
LEAT_INFER_FUNCTION(reverse_sequence);
LEAT_INFER_FUNCTION(roi_align);
LEAT_INFER_FUNCTION(embedding_bag);
LEAT_INFER_FUNCTION(same); /* output 0 like input 0 */
LEAT_INFER_FUNCTION(same_bool); /* the same with elements of type bool */
LEAT_INFER_FUNCTION(scan);
LEAT_INFER_FUNCTION(scatter_elements);
LEAT_INFER_FUNCTION(scatter_nd);
LEAT_INFER_FUNCTION(shape);
LEAT_INFER_FUNCTION(size);
LEAT_INFER_FUNCTION(slice);
LEAT_INFER_FUNCTION(softmax);
LEAT_INFER_FUNCTION(space_to_depth);
LEAT_INFER_FUNCTION(split);
LEAT_INFER_FUNCTION(squeeze);
LEAT_INFER_FUNCTION(stft);
LEAT_INFER_FUNCTION(tile);
LEAT_INFER_FUNCTION(top_k);
LEAT_INFER_FUNCTION(transpose);
LEAT_INFER_FUNCTION(trilu);
LEAT_INFER_FUNCTION(unique);
LEAT_INFER_FUNCTION(unsqueeze);
LEAT_INFER_FUNCTION(where);
LEAT_INFER_FUNCTION(window_function);

/* The shape of a value. */
struct leat_shape leat_shape_of(const struct leat_value *value);

/* NumPy broadcasting of one dim, symbols included; false when they do not fit. */
bool leat_dim_broadcast(int64_t a, int64_t b, int64_t *ret, bool *mixes_items);

/* Product of dims [from, to): the batch or a symbol when it is exactly that, else known or unknown. */
int64_t leat_dims_product(const int64_t *dims, uint32_t from, uint32_t to);

/* The shape of a matrix product with NumPy's rules, with a's type. */
LEAT_MUST_CHECK enum leat_status leat_infer_product(const struct leat_node *node, const struct leat_value *a,
                                                    const struct leat_value *b, struct leat_shape *out,
                                                    bool *mixes_items);

/* The i64 elements of a constant one-dimensional (or scalar) value; false when it is not one. */
bool leat_value_ints(const struct leat_value *value, const int64_t **ret, uint32_t *ret_count);

/* The same, i32 or i64 and copied; false also when there are more than `max`. */
bool leat_read_ints(const struct leat_value *value, uint32_t max, int64_t *ret, uint32_t *ret_count);

/* A shape of which only the rank is known. */
struct leat_shape leat_unknown_shape(uint32_t dtype, uint32_t rank);

/* True when one of the dims [from, to) is the batch. */
bool leat_has_batch(const struct leat_value *value, uint32_t from, uint32_t to);

/* Bits of leat_op.types and of the checks below. */
#define LEAT_TYPE(dtype) (1u << LEAT_DTYPE_##dtype)
#define LEAT_TYPE_INDEX  (LEAT_TYPE(I32) | LEAT_TYPE(I64))
#define LEAT_TYPE_ANY    (~0u)

/*
 * Input i, when it is there, has one of `types` and a rank in [rank_min, rank_max]; is a vector of `size`
 * elements (any number when negative); has rank 0, or rank 1 and one element.
 */
LEAT_MUST_CHECK enum leat_status leat_check_input(const struct leat_graph *graph, const struct leat_node *node,
                                                  uint32_t i, uint32_t types, uint32_t rank_min, uint32_t rank_max);
LEAT_MUST_CHECK enum leat_status leat_check_vector(const struct leat_graph *graph, const struct leat_node *node,
                                                   uint32_t i, uint32_t types, int64_t size);
LEAT_MUST_CHECK enum leat_status leat_check_scalar(const struct leat_graph *graph, const struct leat_node *node,
                                                   uint32_t i, uint32_t types);

/* A scalar, or a vector of `channels` elements. */
LEAT_MUST_CHECK enum leat_status leat_check_by_channel(const struct leat_graph *graph, const struct leat_node *node,
                                                       uint32_t i, uint32_t types, int64_t channels);

/* Input i is a shape: an i64 vector. LEAT_ERR_UNSUPPORTED when the number of its entries is not known or too large. */
LEAT_MUST_CHECK enum leat_status leat_check_shape(const struct leat_graph *graph, const struct leat_node *node,
                                                  uint32_t i, uint32_t *ret_rank);

/* An axis attribute or element into [0, rank); LEAT_ERR_SHAPE with text when out of range. */
LEAT_MUST_CHECK enum leat_status leat_axis_resolve(const struct leat_node *node, int64_t axis,
                                                   uint32_t rank, uint32_t *ret);

/*
 * Axes by attribute (older opsets) or input 1. *ret is NULL when there are none, and also when they are
 * computed; then *ret_computed is true and only their number is known.
 */
LEAT_MUST_CHECK enum leat_status leat_read_axes(const struct leat_graph *graph, const struct leat_node *node,
                                                const int64_t **ret, uint32_t *ret_count, bool *ret_computed);

/* Bit a is set when axis a of `rank` is named; none may be named twice. */
LEAT_MUST_CHECK enum leat_status leat_axes_mask(const struct leat_node *node, const int64_t *axes, uint32_t count,
                                                uint32_t rank, uint32_t *ret_mask);

#endif /* LEAT_KERNELS_INFER_INFER_H */
