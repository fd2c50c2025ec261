/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/op.h - the operator table: what each ONNX operator takes, what shape it yields, what it means.
 *
 * Role       One row per operator and opset range. The importer checks nodes against it, shape inference
 *            and the reference backend run through it, a fast backend switches on `kind`. An operator
 *            that is not in the table cannot be in a graph.
 * Shapes     infer sees LEAT_DIM_BATCH, LEAT_DIM_UNKNOWN and symbols before specialisation and only concrete dims
 *            after; it answers for both.
 *            A shape that depends on tensor contents is `bounded`: the reference function says what it is in a run.
 * Trust      reference is memory-safe for any payload; what a payload gets wrong (an index out of range)
 *            is LEAT_ERR_SHAPE.
 */
#ifndef LEAT_KERNELS_OP_H
#define LEAT_KERNELS_OP_H

#include "kernels/graph.h"

enum leat_op_kind {
    LEAT_OP_ABS,
    LEAT_OP_ACOS,
    LEAT_OP_ACOSH,
    LEAT_OP_ADD,
    LEAT_OP_AND,
    LEAT_OP_ARG_MAX,
    LEAT_OP_ARG_MIN,
    LEAT_OP_ASIN,
    LEAT_OP_ASINH,
    LEAT_OP_ATAN,
    LEAT_OP_ATANH,
    LEAT_OP_ATTENTION,
    LEAT_OP_AVERAGE_POOL,
    LEAT_OP_BATCH_NORMALIZATION,
    LEAT_OP_BIT_SHIFT,
    LEAT_OP_BLACKMAN_WINDOW,
    LEAT_OP_CAST,
    LEAT_OP_CAST_LIKE,
    LEAT_OP_CEIL,
    LEAT_OP_CELU,
    LEAT_OP_CLIP,
    LEAT_OP_COMPRESS,
    LEAT_OP_CONCAT,
    LEAT_OP_CONSTANT,
    LEAT_OP_CONSTANT_OF_SHAPE,
    LEAT_OP_CONV,
    LEAT_OP_CONV_INTEGER,
    LEAT_OP_CONV_TRANSPOSE,
    LEAT_OP_COS,
    LEAT_OP_COSH,
    LEAT_OP_CUM_SUM,
    LEAT_OP_DEPTH_TO_SPACE,
    LEAT_OP_DEQUANTIZE_LINEAR,
    LEAT_OP_DET,
    LEAT_OP_DFT,
    LEAT_OP_DIV,
    LEAT_OP_DROPOUT,
    LEAT_OP_DYNAMIC_QUANTIZE_LINEAR,
    LEAT_OP_EINSUM,
    LEAT_OP_ELU,
    LEAT_OP_EMBEDDING_BAG,
    LEAT_OP_EQUAL,
    LEAT_OP_ERF,
    LEAT_OP_EXP,
    LEAT_OP_EXPAND,
    LEAT_OP_EYE_LIKE,
    LEAT_OP_FLATTEN,
    LEAT_OP_FLOOR,
    LEAT_OP_GATHER,
    LEAT_OP_GATHER_ELEMENTS,
    LEAT_OP_GATHER_ND,
    LEAT_OP_GELU,
    LEAT_OP_GEMM,
    LEAT_OP_GLOBAL_AVERAGE_POOL,
    LEAT_OP_GLOBAL_LP_POOL,
    LEAT_OP_GLOBAL_MAX_POOL,
    LEAT_OP_GREATER,
    LEAT_OP_GREATER_OR_EQUAL,
    LEAT_OP_GRID_SAMPLE,
    LEAT_OP_GRU,
    LEAT_OP_HAMMING_WINDOW,
    LEAT_OP_HANN_WINDOW,
    LEAT_OP_HARDMAX,
    LEAT_OP_HARD_SIGMOID,
    LEAT_OP_HARD_SWISH,
    LEAT_OP_IDENTITY,
    LEAT_OP_IF,
    LEAT_OP_INSTANCE_NORMALIZATION,
    LEAT_OP_IS_INF,
    LEAT_OP_IS_NAN,
    LEAT_OP_LAYER_NORMALIZATION,
    LEAT_OP_LEAKY_RELU,
    LEAT_OP_LESS,
    LEAT_OP_LESS_OR_EQUAL,
    LEAT_OP_LOG,
    LEAT_OP_LOG_SOFTMAX,
    LEAT_OP_LOOP,
    LEAT_OP_LP_NORMALIZATION,
    LEAT_OP_LP_POOL,
    LEAT_OP_LRN,
    LEAT_OP_LSTM,
    LEAT_OP_MATMUL,
    LEAT_OP_MATMUL_INTEGER,
    LEAT_OP_MATMUL_INTEGER_TO_FLOAT,
    LEAT_OP_MAX,
    LEAT_OP_MAX_POOL,
    LEAT_OP_MAX_UNPOOL,
    LEAT_OP_MEAN,
    LEAT_OP_MEAN_VARIANCE_NORMALIZATION,
    LEAT_OP_MEL_WEIGHT_MATRIX,
    LEAT_OP_MIN,
    LEAT_OP_MOD,
    LEAT_OP_MUL,
    LEAT_OP_NEG,
    LEAT_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS,
    LEAT_OP_NON_MAX_SUPPRESSION,
    LEAT_OP_NON_ZERO,
    LEAT_OP_NOT,
    LEAT_OP_ONE_HOT,
    LEAT_OP_OR,
    LEAT_OP_PAD,
    LEAT_OP_POW,
    LEAT_OP_PRELU,
    LEAT_OP_QLINEAR_ADD,
    LEAT_OP_QLINEAR_CONV,
    LEAT_OP_QLINEAR_LOOKUP,
    LEAT_OP_QLINEAR_MATMUL,
    LEAT_OP_QLINEAR_MUL,
    LEAT_OP_QUANTIZE_LINEAR,
    LEAT_OP_RANGE,
    LEAT_OP_RECIPROCAL,
    LEAT_OP_REDUCE_L1,
    LEAT_OP_REDUCE_L2,
    LEAT_OP_REDUCE_LOG_SUM,
    LEAT_OP_REDUCE_LOG_SUM_EXP,
    LEAT_OP_REDUCE_MAX,
    LEAT_OP_REDUCE_MEAN,
    LEAT_OP_REDUCE_MIN,
    LEAT_OP_REDUCE_PROD,
    LEAT_OP_REDUCE_SUM,
    LEAT_OP_REDUCE_SUM_SQUARE,
    LEAT_OP_RELU,
    LEAT_OP_RESHAPE,
    LEAT_OP_RESIZE,
    LEAT_OP_REVERSE_SEQUENCE,
    LEAT_OP_RNN,
    LEAT_OP_ROI_ALIGN,
    LEAT_OP_ROUND,
    LEAT_OP_SCAN,
    LEAT_OP_SCATTER,
    LEAT_OP_SCATTER_ELEMENTS,
    LEAT_OP_SCATTER_ND,
    LEAT_OP_SELU,
    LEAT_OP_SHAPE,
    LEAT_OP_SHRINK,
    LEAT_OP_SIGMOID,
    LEAT_OP_SIGN,
    LEAT_OP_SIN,
    LEAT_OP_SINH,
    LEAT_OP_SIZE,
    LEAT_OP_SLICE,
    LEAT_OP_SOFTMAX,
    LEAT_OP_SOFTMAX_CROSS_ENTROPY_LOSS,
    LEAT_OP_SOFTPLUS,
    LEAT_OP_SOFTSIGN,
    LEAT_OP_SPACE_TO_DEPTH,
    LEAT_OP_SPLIT,
    LEAT_OP_SQRT,
    LEAT_OP_SQUEEZE,
    LEAT_OP_STFT,
    LEAT_OP_SUB,
    LEAT_OP_SUM,
    LEAT_OP_SWISH,
    LEAT_OP_TAN,
    LEAT_OP_TANH,
    LEAT_OP_THRESHOLDED_RELU,
    LEAT_OP_TILE,
    LEAT_OP_TOP_K,
    LEAT_OP_TRANSPOSE,
    LEAT_OP_TRILU,
    LEAT_OP_UNIQUE,
    LEAT_OP_UNSQUEEZE,
    LEAT_OP_UPSAMPLE,
    LEAT_OP_WHERE,
    LEAT_OP_XOR,
};

/* Does not look at more than shapes and a few cheap elements: may be computed ahead when constant. */
#define LEAT_OP_FOLDABLE 1u
/*
 * An input may say where it reads or writes, how often it runs, how large its result is or what it divides by: whoever runs it
 * checks that, and test_indexing_operators has a row for it.
 */
#define LEAT_OP_INDEXING 2u

struct leat_op_attribute {
    const char *name;
    enum leat_attribute_kind kind;
    bool required;
};

/* One output as shape inference sees it. */
struct leat_shape {
    uint32_t dtype, rank;
    int64_t dims[LEAT_RANK_MAX];
    bool bounded; /* see leat_value; inputs that are bounded make all outputs so */
    uint32_t open; /* see leat_value */
};

/* What one reference call reads and writes: data[v] is the payload of value v. */
struct leat_eval {
    const struct leat_graph *graph; /* shapes are concrete */
    const struct leat_node *node;
    void *const *data;
    /*
     * graph->values, where the dims of bounded outputs become what they are in this run; NULL when the caller
     * has no place for that: then an operator with bounded outputs fails.
     */
    struct leat_value *values;
    void *workspace; /* 64-byte aligned, of op->workspace_bytes(); contents undefined */
    uint32_t *trips; /* what is left of trips_max in this run; NULL: all of it */
};

struct leat_op {
    const char *name;
    enum leat_op_kind kind;
    uint32_t since, until; /* opsets, inclusive */
    uint32_t input_min;    /* inputs [0, input_min) must be there; later ones may be omitted */
    uint32_t input_max;
    uint32_t output_max; /* output 0 is always there */
    uint32_t types;      /* bit d: enum leat_dtype d is allowed for input 0 */
    uint32_t flags;
    const struct leat_op_attribute *attributes; /* ends with a NULL name */
    /* `outputs` has output_count entries, filled on success. *mixes_items: see leat_graph_signature(). */
    enum leat_status (*infer)(const struct leat_graph *graph, const struct leat_node *node,
                              struct leat_shape *outputs, bool *mixes_items);
    enum leat_status (*reference)(const struct leat_eval *eval);
    /* What reference needs besides its tensors, with all shapes known. NULL: nothing. Not for FOLDABLE ones. */
    size_t (*workspace_bytes)(const struct leat_graph *graph, const struct leat_node *node);
    const char *doc;
};

extern const struct leat_op leat_ops[];
extern const size_t leat_op_count;

/* NULL when the table has no such operator at that opset. */
const struct leat_op *leat_op_find(const char *name, int64_t opset);

/* An operator that passes make and no file has; NULL when there is none of that kind. */
const struct leat_op *leat_op_fused(enum leat_op_kind kind);

/* True when some opset in the table has an operator of that name; the first and the last that do. */
bool leat_op_known(const char *name, uint32_t *ret_oldest, uint32_t *ret_newest);

/* Arity, omitted inputs, attribute names and kinds of a node against its row. */
LEAT_MUST_CHECK enum leat_status leat_op_check(const struct leat_node *node);

/* Records "node 'x' (operator Y): ..." and returns `status`. */
#define LEAT_NODE_FAIL(node, status, ...) \
    (leat_err_record((status), __VA_ARGS__), leat_node_failed((node), (status)))
enum leat_status leat_node_failed(const struct leat_node *node, enum leat_status status) LEAT_COLD;

/* ONNX TensorProto.DataType to enum leat_dtype; LEAT_DTYPE_NONE for those without one (strings, complex). */
uint32_t leat_dtype_from_onnx(int64_t data_type);

/* The element of a one-element constant of type f32, f64, i32 or i64; false when it is anything else. */
bool leat_value_scalar(const struct leat_value *value, double *ret);

/*
 * Canonical parameters of operators whose ONNX form varies with the opset. Each wants a node that was
 * inferred successfully; for backends and passes on specialised graphs.
 */

/* Softmax, LogSoftmax, Hardmax: x seen as [outer][axis][inner], normalised over axis (with opset < 13 inner is 1). */
struct leat_softmax_extent {
    size_t outer, axis, inner;
};
void leat_softmax_extent(const struct leat_graph *graph, const struct leat_node *node,
                         struct leat_softmax_extent *ret);

/* Clip: false when a bound is computed at run time. Missing bounds are -inf and +inf. */
bool leat_clip_bounds(const struct leat_graph *graph, const struct leat_node *node, float *ret_min,
                      float *ret_max);

/* `axis` attribute, negative ones counted from the end of `rank`. */
int64_t leat_node_axis(const struct leat_node *node, int64_t otherwise, uint32_t rank);
/* Of a DFT, where it is known: from opset 20 on it is an input, and the last of the signal by default. */
uint32_t leat_dft_axis(const struct leat_graph *graph, const struct leat_node *node);

/* Reduce*: bit a is set when axis a is reduced. */
uint32_t leat_reduce_axes(const struct leat_graph *graph, const struct leat_node *node);

/* Slice: output element i of an axis is input element start + i * step; whole: nothing is cut off. */
struct leat_slice {
    int64_t start[LEAT_RANK_MAX], step[LEAT_RANK_MAX], count[LEAT_RANK_MAX];
    bool whole[LEAT_RANK_MAX];
};
/* *ret_known is false, and *ret untouched, while the bounds are not constant. */
LEAT_MUST_CHECK enum leat_status leat_slice_of(const struct leat_graph *graph, const struct leat_node *node,
                                               struct leat_slice *ret, bool *ret_known);

/* Pad: what each axis gets at either end, and loses where that is negative. *ret_known as above. */
struct leat_pads {
    int64_t begin[LEAT_RANK_MAX], end[LEAT_RANK_MAX];
};
LEAT_MUST_CHECK enum leat_status leat_pads_of(const struct leat_graph *graph, const struct leat_node *node,
                                              struct leat_pads *ret, bool *ret_known);

/* Split: the sizes of all outputs along its axis, those that nobody reads too; false when they are not known. */
bool leat_split_sizes(const struct leat_graph *graph, const struct leat_node *node,
                      int64_t sizes[LEAT_NODE_OUTPUTS_MAX]);

/* RoiAlign: samples along each axis of a cell; a region that asks for more fails its batch. */
#define LEAT_ROI_SAMPLES_MAX 128

/* MeanVarianceNormalization: bit a is set when the mean is taken over axis a. */
uint32_t leat_mean_variance_axes(const struct leat_graph *graph, const struct leat_node *node);

/* Shape: the axes [start, end) that it describes, clamped to [0, rank]. */
void leat_shape_range(const struct leat_node *node, uint32_t rank, int64_t *ret_start, int64_t *ret_end);

/* A graph that the operator requires. *ret_captured: which of the node's inputs its first capture is. */
struct leat_graph *leat_node_graph(const struct leat_node *node, const char *name, uint32_t *ret_captured);
bool leat_node_has_graphs(const struct leat_node *node);
/* The node's inputs before the captures. */
uint32_t leat_node_own_inputs(const struct leat_node *node);

/* If: false while tensor contents decide. */
bool leat_if_condition(const struct leat_graph *graph, const struct leat_node *node, bool *ret);

/* False for the branch of an If that never runs: its shapes are of no account. */
bool leat_node_runs(const struct leat_graph *graph, const struct leat_node *node, const struct leat_attribute *attribute);

/* Loop: how often it runs; false while tensor contents decide. INT64_MAX: without end. */
bool leat_loop_trips(const struct leat_graph *graph, const struct leat_node *node, int64_t *ret);

/* Scan: input or output i of those that it walks along; for outputs `rank` is that of the whole. */
struct leat_scan_walk {
    uint32_t axis;
    bool backwards;
};
bool leat_scan_input(const struct leat_node *node, uint32_t i, uint32_t rank, struct leat_scan_walk *ret);
bool leat_scan_output(const struct leat_node *node, uint32_t i, uint32_t rank, struct leat_scan_walk *ret);
uint32_t leat_scan_states(const struct leat_node *node);

/* Transpose: output axis i is input axis perm[i]. */
void leat_transpose_perm(const struct leat_node *node, uint32_t rank, uint32_t perm[LEAT_RANK_MAX]);

#endif /* LEAT_KERNELS_OP_H */
