/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/reference/reference.h - running one node or one whole specialised graph with plain loops.
 *
 * Role       What the reference backend, constant folding and the conformance tests share. Slow and
 *            obviously right; one function per operator, found through the operator table.
 * Numerics   Sums are kept in double and rounded once.
 * Trust      Memory-safe for any payload.
 */
#ifndef LEAT_KERNELS_REFERENCE_REFERENCE_H
#define LEAT_KERNELS_REFERENCE_REFERENCE_H

#include "kernels/op.h"

/* One node with what is fused onto it. */
LEAT_MUST_CHECK enum leat_status leat_reference_run_node(const struct leat_eval *eval);

/* The node's fused activation, in place. */
void leat_reference_activate(const struct leat_node *node, float *y, size_t count);

/* What leat_eval.workspace of one node needs; 0 for most. */
size_t leat_reference_workspace_bytes(const struct leat_graph *graph, const struct leat_node *node);
size_t leat_workspace_attention(const struct leat_graph *graph, const struct leat_node *node);
size_t leat_workspace_control(const struct leat_graph *graph, const struct leat_node *node);
size_t leat_workspace_det(const struct leat_graph *graph, const struct leat_node *node);
size_t leat_workspace_dft(const struct leat_graph *graph, const struct leat_node *node);
size_t leat_workspace_resize(const struct leat_graph *graph, const struct leat_node *node);
size_t leat_workspace_non_max_suppression(const struct leat_graph *graph, const struct leat_node *node);
size_t leat_workspace_recurrent(const struct leat_graph *graph, const struct leat_node *node);
size_t leat_workspace_stft(const struct leat_graph *graph, const struct leat_node *node);
size_t leat_workspace_unique(const struct leat_graph *graph, const struct leat_node *node);

/* What leat_reference_run() needs for a specialised graph: its pointer table and all computed values. */
LEAT_MUST_CHECK enum leat_status leat_reference_scratch_bytes(const struct leat_graph *graph,
                                                              size_t *ret_bytes);

/*
 * Runs a specialised graph. *ret_shapes, when it is not NULL, has room for all outputs and receives their shapes:
 * those of bounded values are as small as this run made them, and so is what is written. inputs[i] and outputs[i] are densely packed payloads of graph->inputs[i] and
 * graph->outputs[i]; `scratch` is 64-byte aligned. Neither allocates nor locks.
 */
LEAT_MUST_CHECK enum leat_status leat_reference_run(const struct leat_graph *graph,
                                                    const void *const *inputs, void *const *outputs,
                                                    void *scratch, struct leat_shape *ret_shapes);

/* The same for the graph of a node: *trips is what is left of the run's. An output that is NULL is not wanted. */
LEAT_MUST_CHECK enum leat_status leat_reference_run_inner(const struct leat_graph *graph,
                                                          const void *const *inputs, void *const *outputs,
                                                          void *scratch, struct leat_shape *ret_shapes, uint32_t *trips);

/*
 * Before node n runs: shapes of its outputs from those that its inputs have in this run. `live` is `graph` with values of its own.
 * The memory was planned for the bounds: whatever a shape has become, it must fit.
 */
LEAT_MUST_CHECK enum leat_status leat_reference_shrink_outputs(const struct leat_graph *graph, struct leat_graph *live, uint32_t n);

#define LEAT_REFERENCE_FUNCTION(name) enum leat_status leat_reference_##name(const struct leat_eval *eval)
LEAT_REFERENCE_FUNCTION(abs);
LEAT_REFERENCE_FUNCTION(acos);
LEAT_REFERENCE_FUNCTION(acosh);
LEAT_REFERENCE_FUNCTION(add);
LEAT_REFERENCE_FUNCTION(and);
LEAT_REFERENCE_FUNCTION(arg_max);
LEAT_REFERENCE_FUNCTION(arg_min);
LEAT_REFERENCE_FUNCTION(asin);
LEAT_REFERENCE_FUNCTION(asinh);
LEAT_REFERENCE_FUNCTION(atan);
LEAT_REFERENCE_FUNCTION(atanh);
LEAT_REFERENCE_FUNCTION(attention);
LEAT_REFERENCE_FUNCTION(average_pool);
LEAT_REFERENCE_FUNCTION(batch_normalization);
LEAT_REFERENCE_FUNCTION(bit_shift);
LEAT_REFERENCE_FUNCTION(blackman_window);
LEAT_REFERENCE_FUNCTION(cast);
LEAT_REFERENCE_FUNCTION(ceil);
LEAT_REFERENCE_FUNCTION(celu);
LEAT_REFERENCE_FUNCTION(clip);
LEAT_REFERENCE_FUNCTION(compress);
LEAT_REFERENCE_FUNCTION(concat);
LEAT_REFERENCE_FUNCTION(constant);
LEAT_REFERENCE_FUNCTION(constant_of_shape);
LEAT_REFERENCE_FUNCTION(conv);
LEAT_REFERENCE_FUNCTION(conv_integer);
LEAT_REFERENCE_FUNCTION(conv_transpose);
LEAT_REFERENCE_FUNCTION(copy); /* Identity, Reshape, Flatten, Squeeze, Unsqueeze, ... */
LEAT_REFERENCE_FUNCTION(cos);
LEAT_REFERENCE_FUNCTION(cosh);
LEAT_REFERENCE_FUNCTION(cross_entropy);
LEAT_REFERENCE_FUNCTION(cum_sum);
LEAT_REFERENCE_FUNCTION(depth_to_space);
LEAT_REFERENCE_FUNCTION(dequantize_linear);
LEAT_REFERENCE_FUNCTION(det);
LEAT_REFERENCE_FUNCTION(dft);
LEAT_REFERENCE_FUNCTION(div);
LEAT_REFERENCE_FUNCTION(dropout);
LEAT_REFERENCE_FUNCTION(dynamic_quantize);
LEAT_REFERENCE_FUNCTION(einsum);
LEAT_REFERENCE_FUNCTION(elu);
LEAT_REFERENCE_FUNCTION(equal);
LEAT_REFERENCE_FUNCTION(erf);
LEAT_REFERENCE_FUNCTION(exp);
LEAT_REFERENCE_FUNCTION(expand);
LEAT_REFERENCE_FUNCTION(eye_like);
LEAT_REFERENCE_FUNCTION(floor);
LEAT_REFERENCE_FUNCTION(gather);
LEAT_REFERENCE_FUNCTION(gather_elements);
LEAT_REFERENCE_FUNCTION(gather_nd);
LEAT_REFERENCE_FUNCTION(gemm);
LEAT_REFERENCE_FUNCTION(global_average_pool);
LEAT_REFERENCE_FUNCTION(global_lp_pool);
LEAT_REFERENCE_FUNCTION(global_max_pool);
LEAT_REFERENCE_FUNCTION(greater);
LEAT_REFERENCE_FUNCTION(greater_or_equal);
LEAT_REFERENCE_FUNCTION(grid_sample);
LEAT_REFERENCE_FUNCTION(hamming_window);
LEAT_REFERENCE_FUNCTION(hann_window);
LEAT_REFERENCE_FUNCTION(hard_sigmoid);
LEAT_REFERENCE_FUNCTION(embedding_bag);
LEAT_REFERENCE_FUNCTION(gelu);
LEAT_REFERENCE_FUNCTION(hard_swish);
LEAT_REFERENCE_FUNCTION(swish);
LEAT_REFERENCE_FUNCTION(hardmax);
LEAT_REFERENCE_FUNCTION(if);
LEAT_REFERENCE_FUNCTION(instance_normalization);
LEAT_REFERENCE_FUNCTION(is_inf);
LEAT_REFERENCE_FUNCTION(is_nan);
LEAT_REFERENCE_FUNCTION(layer_normalization);
LEAT_REFERENCE_FUNCTION(leaky_relu);
LEAT_REFERENCE_FUNCTION(less);
LEAT_REFERENCE_FUNCTION(less_or_equal);
LEAT_REFERENCE_FUNCTION(log);
LEAT_REFERENCE_FUNCTION(log_likelihood);
LEAT_REFERENCE_FUNCTION(log_softmax);
LEAT_REFERENCE_FUNCTION(loop);
LEAT_REFERENCE_FUNCTION(lp_normalization);
LEAT_REFERENCE_FUNCTION(lp_pool);
LEAT_REFERENCE_FUNCTION(lrn);
LEAT_REFERENCE_FUNCTION(matmul);
LEAT_REFERENCE_FUNCTION(matmul_integer);
LEAT_REFERENCE_FUNCTION(matmul_integer_to_float);
LEAT_REFERENCE_FUNCTION(max);
LEAT_REFERENCE_FUNCTION(max_pool);
LEAT_REFERENCE_FUNCTION(max_unpool);
LEAT_REFERENCE_FUNCTION(mean);
LEAT_REFERENCE_FUNCTION(mean_variance);
LEAT_REFERENCE_FUNCTION(mel_weights);
LEAT_REFERENCE_FUNCTION(min);
LEAT_REFERENCE_FUNCTION(mod);
LEAT_REFERENCE_FUNCTION(mul);
LEAT_REFERENCE_FUNCTION(neg);
LEAT_REFERENCE_FUNCTION(non_max_suppression);
LEAT_REFERENCE_FUNCTION(non_zero);
LEAT_REFERENCE_FUNCTION(not);
LEAT_REFERENCE_FUNCTION(one_hot);
LEAT_REFERENCE_FUNCTION(or);
LEAT_REFERENCE_FUNCTION(pad);
LEAT_REFERENCE_FUNCTION(pow);
LEAT_REFERENCE_FUNCTION(prelu);
LEAT_REFERENCE_FUNCTION(qlinear_add);
LEAT_REFERENCE_FUNCTION(qlinear_conv);
LEAT_REFERENCE_FUNCTION(qlinear_lookup);
LEAT_REFERENCE_FUNCTION(qlinear_matmul);
LEAT_REFERENCE_FUNCTION(quantize_linear);
LEAT_REFERENCE_FUNCTION(range);
LEAT_REFERENCE_FUNCTION(reciprocal);
LEAT_REFERENCE_FUNCTION(recurrent);
LEAT_REFERENCE_FUNCTION(reduce_l1);
LEAT_REFERENCE_FUNCTION(reduce_l2);
LEAT_REFERENCE_FUNCTION(reduce_log_sum);
LEAT_REFERENCE_FUNCTION(reduce_log_sum_exp);
LEAT_REFERENCE_FUNCTION(reduce_max);
LEAT_REFERENCE_FUNCTION(reduce_mean);
LEAT_REFERENCE_FUNCTION(reduce_min);
LEAT_REFERENCE_FUNCTION(reduce_prod);
LEAT_REFERENCE_FUNCTION(reduce_sum);
LEAT_REFERENCE_FUNCTION(reduce_sum_square);
LEAT_REFERENCE_FUNCTION(relu);
LEAT_REFERENCE_FUNCTION(resize);
LEAT_REFERENCE_FUNCTION(reverse_sequence);
LEAT_REFERENCE_FUNCTION(roi_align);
LEAT_REFERENCE_FUNCTION(round);
LEAT_REFERENCE_FUNCTION(scan);
LEAT_REFERENCE_FUNCTION(scatter_elements);
LEAT_REFERENCE_FUNCTION(scatter_nd);
LEAT_REFERENCE_FUNCTION(selu);
LEAT_REFERENCE_FUNCTION(shape);
LEAT_REFERENCE_FUNCTION(shrink);
LEAT_REFERENCE_FUNCTION(sigmoid);
LEAT_REFERENCE_FUNCTION(sign);
LEAT_REFERENCE_FUNCTION(sin);
LEAT_REFERENCE_FUNCTION(sinh);
LEAT_REFERENCE_FUNCTION(size);
LEAT_REFERENCE_FUNCTION(slice);
LEAT_REFERENCE_FUNCTION(softmax);
LEAT_REFERENCE_FUNCTION(softplus);
LEAT_REFERENCE_FUNCTION(softsign);
LEAT_REFERENCE_FUNCTION(space_to_depth);
LEAT_REFERENCE_FUNCTION(split);
LEAT_REFERENCE_FUNCTION(sqrt);
LEAT_REFERENCE_FUNCTION(stft);
LEAT_REFERENCE_FUNCTION(sub);
LEAT_REFERENCE_FUNCTION(sum);
LEAT_REFERENCE_FUNCTION(tan);
LEAT_REFERENCE_FUNCTION(tanh);
LEAT_REFERENCE_FUNCTION(thresholded_relu);
LEAT_REFERENCE_FUNCTION(tile);
LEAT_REFERENCE_FUNCTION(top_k);
LEAT_REFERENCE_FUNCTION(transpose);
LEAT_REFERENCE_FUNCTION(trilu);
LEAT_REFERENCE_FUNCTION(unique);
LEAT_REFERENCE_FUNCTION(where);
LEAT_REFERENCE_FUNCTION(xor);

/* Inputs and outputs of the node being run, for the files in this folder. */
static inline const struct leat_value *
leat_eval_input(const struct leat_eval *eval, uint32_t i)
{
    return leat_node_input(eval->graph, eval->node, i);
}

static inline const struct leat_value *
leat_eval_output(const struct leat_eval *eval, uint32_t i)
{
    return leat_node_output(eval->graph, eval->node, i);
}

/* The payload of an input that is there. */
static inline const void *
leat_eval_in(const struct leat_eval *eval, uint32_t i)
{
    LEAT_ASSERT(leat_eval_input(eval, i) != NULL);
    return eval->data[eval->node->inputs[i]];
}

static inline void *
leat_eval_out(const struct leat_eval *eval, uint32_t i)
{
    LEAT_ASSERT(leat_eval_output(eval, i) != NULL);
    return eval->data[eval->node->outputs[i]];
}

#endif /* LEAT_KERNELS_REFERENCE_REFERENCE_H */
