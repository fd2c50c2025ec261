/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/graph.h - a model as a list of nodes in execution order; what passes rewrite and backends read.
 *
 * Role       ONNX import makes one with a symbolic batch (dims[0] == LEAT_DIM_BATCH on inputs) and names for
 *            the other free dimensions of inputs (LEAT_DIM_SYMBOL). leat_graph_bind() gives those their values,
 *            for good. Passes rewrite it in place. leat_graph_specialise() copies it for a concrete number of
 *            items with every shape known, constants folded: that copy is what a backend plans.
 * Ownership  Everything that a graph points at lives in the graph's own arena and dies with it, except
 *            constant payloads, which are reference counted and shared with specialised copies.
 * Trust      A graph comes from an untrusted file. After a successful import or pass every index in it
 *            is in range, nodes are topologically sorted, arity and attribute types match the operator
 *            table, and every product of dims fits in size_t.
 * Threads    One thread builds or rewrites; afterwards it is read-only and any thread may read.
 * Shapes     dims are row-major; element counts exclude nothing. Rank 0 is a scalar of one element.
 */
#ifndef LEAT_KERNELS_GRAPH_H
#define LEAT_KERNELS_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <leat/tensor.h>

#include "base/status.h"

#define LEAT_DIM_BATCH   INT64_C(-1)   /* the symbolic batch; only before specialisation */
#define LEAT_DIM_UNKNOWN INT64_C(-2)   /* not known before specialisation */
#define LEAT_DIM_SYMBOL(s) (INT64_C(-3) - (int64_t)(s)) /* graph->symbols[s]; only until that is bound */
#define LEAT_VALUE_NONE  UINT32_MAX    /* an omitted optional input */

/* What an untrusted file may ask for. With these no sum or product of two int64 sizes overflows. */
#define LEAT_GRAPH_NODES_MAX    65536u
#define LEAT_GRAPH_VALUES_MAX   262144u
#define LEAT_NODE_ARITY_MAX     4096u                    /* inputs of one node (Concat has many) */
#define LEAT_NODE_OUTPUTS_MAX   64u                      /* of one node (Split has many) */
#define LEAT_DIM_MAX            INT64_C(0x7fffffff)      /* of one known dimension */
#define LEAT_GRAPH_SYMBOLS_MAX  64u                      /* free dimensions with different names */
#define LEAT_VALUE_BYTES_MAX    (UINT64_C(1) << 40)      /* of one value with a known shape */
#define LEAT_TRIPS_MAX          4096u                    /* of a graph that says nothing else */
#define LEAT_OPSET_MIN          1 /* most operators of the table start at 6 or 7 */
#define LEAT_OPSET_MAX          28 /* the newest that every row of the table was compared with */

/* A tensor in the graph: an input, a constant or the result of one node. */
struct leat_value {
    const char *name;
    uint32_t dtype; /* enum leat_dtype */
    uint32_t rank;  /* 0..LEAT_RANK_MAX */
    int64_t dims[LEAT_RANK_MAX];
    bool bounded; /* the dims are upper bounds: tensor contents decide, or decided about an input */
    uint32_t open; /* bit d: its own node finds out in a run what dims[d] is */
    float least, most; /* least <= 0 <= most: of its elements, as calibration saw them; both 0: not known */
    const void *data; /* constant payload, densely packed; NULL when computed. Not leat_value_in_place(): see leat_elements_open() */
    size_t data_bytes;
    struct leat_mapping *mapping; /* that data lies in; NULL when it is memory of its own */
};

enum leat_attribute_kind {
    LEAT_ATTRIBUTE_INT,
    LEAT_ATTRIBUTE_FLOAT,
    LEAT_ATTRIBUTE_STRING,
    LEAT_ATTRIBUTE_INTS,
    LEAT_ATTRIBUTE_FLOATS,
    LEAT_ATTRIBUTE_STRINGS,
    LEAT_ATTRIBUTE_TENSOR,
    LEAT_ATTRIBUTE_GRAPH,
};

struct leat_attribute {
    const char *name;
    enum leat_attribute_kind kind;
    uint32_t count; /* of ints, floats, strings or captures */
    union {
        int64_t i;
        float f;
        const char *s;
        const int64_t *ints;
        const float *floats;
        const char *const *strings;
        uint32_t value; /* TENSOR: index of a constant value */
        /*
         * GRAPH: dies with the graph that the node is in. Its last `count` inputs are captures: values of the graph around.
         * Those of all attributes, in order, are the node's last inputs.
         */
        struct {
            struct leat_graph *graph;
            const uint32_t *captured; /* while it is imported */
        };
    };
};

struct leat_op; /* kernels/op.h: one row of the operator table */

/*
 * What a pass fused onto a node's first output, applied in this order after the node's own result:
 * bias is already an ordinary input; then `+ value[add]`, which has the shape of the output; then the
 * activation. f32 only.
 */
enum leat_activation {
    LEAT_ACTIVATION_NONE,
    LEAT_ACTIVATION_RELU,
    LEAT_ACTIVATION_CLIP,
    LEAT_ACTIVATION_SIGMOID,
    LEAT_ACTIVATION_TANH,
    LEAT_ACTIVATION_SWISH,      /* x / (1 + e^-x) */
    LEAT_ACTIVATION_HARD_SWISH, /* x max(0, min(1, x / 6 + 1 / 2)) */
    LEAT_ACTIVATION_GELU,       /* x (1 + erf(x / sqrt(2))) / 2 */
    LEAT_ACTIVATION_GELU_TANH,  /* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
    LEAT_ACTIVATION_LEAKY_RELU, /* slope x below 0, else x */
};
#define LEAT_ACTIVATION_COUNT (LEAT_ACTIVATION_LEAKY_RELU + 1) /* no enumerator: a switch over all of them needs no case for it */

struct leat_node {
    const struct leat_op *op;
    const char *name; /* as in the file, else that of its first output that has one, else its number there */
    uint32_t input_count, output_count, attribute_count;
    uint32_t *inputs;  /* value indices or LEAT_VALUE_NONE */
    uint32_t *outputs; /* value indices or LEAT_VALUE_NONE */
    struct leat_attribute *attributes;
    uint32_t fused_add; /* value index, or LEAT_VALUE_NONE */
    enum leat_activation fused_activation;
    float clip_min, clip_max; /* of LEAT_ACTIVATION_CLIP */
    float slope;              /* of LEAT_ACTIVATION_LEAKY_RELU */
};

struct leat_graph {
    const char *name;
    uint32_t value_count, node_count, input_count, output_count;
    struct leat_value *values;
    struct leat_node *nodes; /* topologically sorted */
    uint32_t *inputs;        /* value indices, without initialisers */
    uint32_t *outputs;
    uint32_t symbol_count;
    const char *symbols[LEAT_GRAPH_SYMBOLS_MAX]; /* different names; NULL where it is bound */
    int64_t items;           /* 0 before specialisation, then the concrete batch */
    uint32_t trips_max;      /* of Loop and Scan, nested ones too, all together in one run; leat_graph_work() goes by it */
    bool batch_named;        /* by whoever imported it: see leat_graph_lead_batch() */
    const char *misdeclared; /* in words: an output has other dimensions than its file says; NULL: none */
    uint32_t planned_without; /* LEAT_PLANS_*: what backends leave out as they plan it */
    bool repeats;            /* inside a Loop or Scan: before specialisation, a state's free dims may be the first iteration's alone */
    int64_t opset;           /* LEAT_OPSET_MIN..LEAT_OPSET_MAX; with the name it picks the operator row */
    struct leat_graph_arena *arena; /* private */
};

/*
 * Builds a graph from an ONNX file in memory. On failure *ret_graph is untouched and the error text
 * names the node and the operator. `bytes` may be read-only and can go away afterwards.
 * A free first dimension of an input is the batch, and so is another one of the same name. What else is free is a
 * symbol, called as the file calls it, or "input.axis" where it has no name, or "?" for one.
 */
LEAT_MUST_CHECK enum leat_status leat_onnx_import(const void *bytes, size_t byte_count,
                                                  struct leat_graph **ret_graph);

/* A file that tensors lie in, by the name that the model has for it, open for reading. */
struct leat_onnx_file {
    char *name;
    int fd;
};
#define LEAT_ONNX_FILES_MAX 64u /* of a model */

/*
 * Opens those that a model names, each once, below a folder; `ret_files` has room for LEAT_ONNX_FILES_MAX. What is no ONNX has
 * none. leat_onnx_close_files() closes them and frees their names.
 */
LEAT_MUST_CHECK enum leat_status leat_onnx_open_files(const void *bytes, size_t byte_count, int folder_fd,
                                                      struct leat_onnx_file *ret_files, uint32_t *ret_count);
void leat_onnx_close_files(struct leat_onnx_file *files, uint32_t count);

/* A free dimension is to be `value`, 1..LEAT_DIM_MAX. */
struct leat_dim_value {
    const char *name;
    int64_t value;
};

/* An input is to be that number, in all of its elements. */
struct leat_constant_input {
    const char *name;
    bool is_whole; /* it is `whole`, else `real` */
    int64_t whole;
    double real;
};
#define LEAT_CONSTANT_INPUTS_MAX 64u /* of a model */

/*
 * The same of a model whose weights may lie in other files. Those of floats that take LEAT_MAPPED_BYTES_MIN or more are mapped
 * (kernels/mapping.h) where they are aligned to 64 bytes in their file, or nobody minds that they are not: what multiplies by
 * weights (Conv, MatMul, Gemm) keeps them in a layout of its own, and look-ups read a table element by element. Everything else is
 * copied. In a model's own file, where that is mapped, large weights of Conv, MatMul and Gemm stay, aligned or not.
 */
struct leat_onnx_source {
    const void *bytes;
    size_t byte_count;
    struct leat_mapping *mapping; /* of the model's file, `bytes` is all of it; NULL: it is other memory */
    int folder_fd;             /* of the model; -1: none is looked for there. The caller's */
    const struct leat_onnx_file *files; /* that are open; looked for first. Likewise */
    uint32_t file_count;
    uint64_t memory_bytes_max; /* of what is copied or computed, LEAT_ERR_LIMIT beyond it; 0: without a limit */
    uint32_t trips_max;        /* iterations in one run; 0: LEAT_TRIPS_MAX */
    const char *batch;         /* which free dimension counts items, wherever in an input it is; NULL: the first of each */
    const struct leat_dim_value *dims; /* of others: as leat_graph_bind(), which is still to be called, but before shapes are inferred, */
    uint32_t dim_count;                /* for what a file has may make sense with some sizes alone */
    const struct leat_constant_input *constants; /* inputs that are none for whoever runs the model, but initialisers */
    uint32_t constant_count;
    size_t mapped_bytes_min;   /* of weights that stay in the model's file; 0: LEAT_MAPPED_BYTES_MIN */
};
#define LEAT_MAPPED_BYTES_MIN ((size_t)64 << 10)
LEAT_MUST_CHECK enum leat_status leat_onnx_import_from(const struct leat_onnx_source *source,
                                                       struct leat_graph **ret_graph);

/* Weights of it or of a graph inside were gone from their file while they were read: what was computed with it is wrong. */
bool leat_graph_is_damaged(const struct leat_graph *graph);

/* What a graph may take, with what backends make of it: nothing that is mapped counts. UINT64_MAX: anything. */
uint64_t leat_graph_memory_max(const struct leat_graph *graph);

/*
 * Replaces symbols by values, infers all shapes and folds constants. Symbols without a value stay. LEAT_ERR_INVALID,
 * and the graph is as before, when a name is no symbol of it or is there twice, or a value is out of range; otherwise
 * after a failure it is fit for leat_graph_destroy() only.
 */
LEAT_MUST_CHECK enum leat_status leat_graph_bind(struct leat_graph *graph, const struct leat_dim_value *values,
                                                 uint32_t count);

/*
 * Of a graph whose batch was named: inputs and outputs that have it elsewhere get it as their first dimension, and Transposes
 * between them and what the file has. It needs all other dimensions; leat_graph_bind() does it when the last of them has its
 * value. An output keeps what it has where two numbers of items do not tell which dimension that is.
 */
LEAT_MUST_CHECK enum leat_status leat_graph_lead_batch(struct leat_graph *graph);

/*
 * A copy with every LEAT_DIM_BATCH replaced by `items`, all shapes inferred, constants folded. A graph
 * whose inputs have no symbolic dimension keeps its own shapes. 1 <= items <= LEAT_ITEMS_MAX.
 * LEAT_ERR_UNSUPPORTED when a shape depends on tensor contents, or an input on a symbol.
 */
LEAT_MUST_CHECK enum leat_status leat_graph_specialise(const struct leat_graph *graph, int64_t items,
                                                       struct leat_graph **ret_graph);

/* Accepts NULL. */
void leat_graph_destroy(struct leat_graph *graph);

/*
 * The signature that clients see; `infos` has room for LEAT_TENSORS_MAX. LEAT_ERR_UNSUPPORTED when a
 * tensor has no leading batch dimension, a free inner dimension, or there are too many, or when a node
 * mixes items of a batch (a softmax over the batch, say) or computes with how many there are, or with their order: queries of
 * different clients share batches.
 */
LEAT_MUST_CHECK enum leat_status leat_graph_signature(const struct leat_graph *graph,
                                                      struct leat_tensor_info *infos,
                                                      uint32_t *ret_input_count,
                                                      uint32_t *ret_output_count);

/*
 * The same of a model that is run for one item at a time, for those that the above refuses: items of a batch may meet, inputs
 * may have no batch, and sizes of outputs may depend on tensor contents (leat_tensor_info.varying). A first dimension of 1 stands
 * for the items; what has another first one gets one for the items in front. LEAT_ERR_UNSUPPORTED where an answer could not tell
 * the sizes.
 */
LEAT_MUST_CHECK enum leat_status leat_graph_signature_of_one(const struct leat_graph *graph,
                                                             struct leat_tensor_info *infos,
                                                             uint32_t *ret_input_count,
                                                             uint32_t *ret_output_count);

/*
 * Writes one item of an output to where a client wants it: `from` is densely packed in the `dims` that a run gave it, `bound` is
 * the value as it was planned, `to` has info->item_bytes. *ret_size is set where the output varies. LEAT_ERR_SHAPE when another
 * dimension is not as the signature says.
 */
LEAT_MUST_CHECK enum leat_status leat_signature_store(const struct leat_tensor_info *info, const struct leat_value *bound,
                                                      const int64_t *dims, const void *from, void *to,
                                                      uint16_t *ret_size);

/* What the cpu backend does to whole plans. */
enum {
    LEAT_PLANS_LAYOUTS = 1, /* results stay as their kernels make them; without: each is made plain, and converted for each reader */
    LEAT_PLANS_IN_PLACE = 2, /* results in the memory of an operand; without: none shares any */
    LEAT_PLANS_MEMORY = 4,  /* what does not live at once has the same memory; without: everything has its own */
    LEAT_PLANS_ALL = 7,
};

/*
 * One step of the optimiser; the list in kernels/passes.c is the order they run in. Those that rewrite graphs come first,
 * leat_pass_count of them; then those that plans are made with, in the order of LEAT_PLANS_*: `run` is NULL.
 */
struct leat_pass {
    const char *name;
    const char *doc;
    enum leat_status (*run)(struct leat_graph *graph, bool *ret_changed);
};
extern const struct leat_pass leat_passes[];
extern const size_t leat_pass_count, leat_all_pass_count;

/*
 * Runs every pass whose bit is set in `mask` (bit i is leat_passes[i]), and has plans made with those alone; ~0 for all. Branches of
 * Ifs are graphs like others.
 */
LEAT_MUST_CHECK enum leat_status leat_graph_optimise(struct leat_graph *graph, uint64_t mask);
/* A mask for the above: all but those in `names`, with commas between them. LEAT_ERR_INVALID lists the names that there are. */
LEAT_MUST_CHECK enum leat_status leat_passes_without(const char *names, uint64_t *ret_mask);

/*
 * A constant's elements, 64-byte aligned: they are read where they lie, or were read from their file for the time being, into
 * memory that those opened one after the other share. All zero at first.
 */
struct leat_elements {
    const void *data; /* of the one opened last */
    void *copy;
    size_t copy_bytes; /* that have room there */
};
/* LEAT_ERR_PROTO when the file is not as it was. Whatever becomes of it, leat_elements_fini() frees the memory. */
LEAT_MUST_CHECK enum leat_status leat_elements_open(struct leat_elements *elements, const struct leat_value *value);
void leat_elements_fini(struct leat_elements *elements);
/* A constant whose data is 64-byte aligned: elements may be read there. What is not lies in a file. */
bool leat_value_in_place(const struct leat_value *value);
/* A constant whose data is aligned as its elements are: one by one, they may be read there. Otherwise only bytes may. */
bool leat_value_has_elements(const struct leat_value *value);

/* Helpers for backends and passes. */
const struct leat_attribute *leat_node_attribute(const struct leat_node *node, const char *name);
int64_t leat_node_int(const struct leat_node *node, const char *name, int64_t otherwise);
float leat_node_float(const struct leat_node *node, const char *name, float otherwise);
size_t leat_value_elements(const struct leat_value *value); /* of a fully known shape */
size_t leat_value_bytes(const struct leat_value *value);
/* NULL when input i is omitted or beyond the last. */
const struct leat_value *leat_node_input(const struct leat_graph *graph, const struct leat_node *node,
                                         uint32_t i);
const struct leat_value *leat_node_output(const struct leat_graph *graph, const struct leat_node *node,
                                          uint32_t i);

#endif /* LEAT_KERNELS_GRAPH_H */
