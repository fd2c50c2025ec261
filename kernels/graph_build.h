/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/graph_build.h - making and rewriting graphs: for the importer, passes and tests, not backends.
 *
 * Ownership  Everything returned lives in the graph's arena. Payloads are reference counted: a graph
 *            holds one reference per constant value and drops it in leat_graph_destroy().
 * Threads    One thread builds. Copying or specialising a finished graph may happen on any thread: only
 *            the payloads' reference counts are written, atomically.
 * Failure    A failed call may leave unreferenced values behind; the graph stays destroyable.
 */
#ifndef LEAT_KERNELS_GRAPH_BUILD_H
#define LEAT_KERNELS_GRAPH_BUILD_H

#include "kernels/graph.h"

/* An empty graph. `name` is copied. */
LEAT_MUST_CHECK enum leat_status leat_graph_create(const char *name, int64_t opset,
                                                   struct leat_graph **ret_graph);

/* One for an attribute of a node of `around`, in whose memory it lives. */
LEAT_MUST_CHECK enum leat_status leat_graph_create_inner(struct leat_graph *around, const char *name,
                                                         struct leat_graph **ret_graph);

/* After NULL the first graph inside a graph, then the next; NULL after the last. Those of nodes that are gone are too. */
const struct leat_graph *leat_graph_inner(const struct leat_graph *graph, const struct leat_graph *last);

/* count * size zeroed bytes, 16-byte aligned; NULL, with the error recorded, when there are none. */
void *leat_graph_alloc(struct leat_graph *graph, size_t count, size_t size);

/* Why that, or leat_graph_text(), last gave NULL: LEAT_ERR_LIMIT, of a graph or of the model, or LEAT_ERR_NOMEM. */
LEAT_MUST_CHECK enum leat_status leat_graph_shortage(const struct leat_graph *graph);

/* A copy in valid UTF-8: control characters and stray bytes become '?', for terminals, logs and JSON. */
const char *leat_graph_text(struct leat_graph *graph, const char *text);

/* A value without payload. `name` is already in the arena or static. */
LEAT_MUST_CHECK enum leat_status leat_graph_add_value(struct leat_graph *graph, const char *name,
                                                      uint32_t dtype, uint32_t rank,
                                                      const int64_t *dims, uint32_t *ret_index);

/* A constant; `data` is copied, or NULL for zeros. Every dim is known. */
LEAT_MUST_CHECK enum leat_status leat_graph_add_constant(struct leat_graph *graph, const char *name,
                                                         uint32_t dtype, uint32_t rank,
                                                         const int64_t *dims, const void *data,
                                                         uint32_t *ret_index);

/* Gives a value of known shape its payload, zeroed: the caller fills *ret_data before anyone reads. */
LEAT_MUST_CHECK enum leat_status leat_graph_make_constant(struct leat_graph *graph, uint32_t index,
                                                          void **ret_data);

/* The same with these elements; `mapped`: they lie in a private, read-only mapping of a file, and need not stay resident. */
LEAT_MUST_CHECK enum leat_status leat_graph_copy_constant(struct leat_graph *graph, uint32_t index, const void *data,
                                                          bool mapped);

/* The elements of a constant that no other graph shares, for a pass to change where no other node reads it; else NULL. */
void *leat_graph_own_constant(const struct leat_graph *graph, uint32_t index);

/* Gives a value of known shape a payload in a mapping, all in it. */
void leat_graph_map_constant(struct leat_graph *graph, uint32_t index, struct leat_mapping *mapping, size_t offset);

/* A constant in a mapping is in memory of its own from now on, in this graph. LEAT_ERR_PROTO as leat_mapping_read(). */
LEAT_MUST_CHECK enum leat_status leat_graph_unmap_constant(struct leat_graph *graph, uint32_t index);

/* A constant that is not leat_value_in_place() is from now on, in this graph: in memory of its own. All of them. */
LEAT_MUST_CHECK enum leat_status leat_graph_settle_constant(struct leat_graph *graph, uint32_t index);
LEAT_MUST_CHECK enum leat_status leat_graph_settle(struct leat_graph *graph);

/* What its constants and those of all graphs inside may take together from now on, and those of its copies; 0: anything. */
void leat_graph_limit_memory(struct leat_graph *graph, uint64_t bytes_max);

/* Value `index` of known shape shares the payload of `from`, of a graph inside or around, and gets its type and shape. */
void leat_graph_share_constant(struct leat_graph *graph, uint32_t index, const struct leat_value *from);

/* Shares the payload of `from`, of another graph, where it is the same as that of constant `index`. */
bool leat_graph_unify_constant(struct leat_graph *graph, uint32_t index, const struct leat_value *from);

/* Captured constants become constants of the node's graphs. */
void leat_graph_absorb(struct leat_node *node, const struct leat_graph *graph);

/*
 * If, Loop and Scan nodes whose branch or number of iterations is known are replaced by what is inside, as often as it runs.
 * Values keep their indices. `graph` is inferred.
 */
LEAT_MUST_CHECK enum leat_status leat_graph_unroll(struct leat_graph *graph, bool *ret_changed);

/* Takes the nodes out of the graph, for a pass that makes a longer list. The array stays as it is. */
struct leat_node *leat_graph_take_nodes(struct leat_graph *graph, uint32_t *ret_count);
/* Appends a node of this graph as it is. */
LEAT_MUST_CHECK enum leat_status leat_graph_put_node(struct leat_graph *graph, const struct leat_node *node);
/* Attributes of a node of another graph into this one; map[v] is its value v here. */
LEAT_MUST_CHECK enum leat_status leat_graph_copy_attributes(struct leat_graph *graph, const struct leat_node *from,
                                                            const uint32_t *map, struct leat_attribute **ret_attributes);
/* What passes have fused onto a node of another graph; map as above, or NULL: values are the same. */
void leat_node_copy_fused(struct leat_node *node, const struct leat_node *from, const uint32_t *map);

/* Appends a node; arrays are copied. The operator's arity and attribute schema are checked. */
LEAT_MUST_CHECK enum leat_status
leat_graph_add_node(struct leat_graph *graph, const struct leat_op *op, const char *name,
                    const uint32_t *inputs, uint32_t input_count, const uint32_t *outputs,
                    uint32_t output_count, const struct leat_attribute *attributes,
                    uint32_t attribute_count);

LEAT_MUST_CHECK enum leat_status leat_graph_set_inputs(struct leat_graph *graph,
                                                       const uint32_t *inputs, uint32_t count);
LEAT_MUST_CHECK enum leat_status leat_graph_set_outputs(struct leat_graph *graph,
                                                        const uint32_t *outputs, uint32_t count);

/* A copy in its own arena that shares the payloads. */
LEAT_MUST_CHECK enum leat_status leat_graph_copy(const struct leat_graph *graph,
                                                 struct leat_graph **ret_graph);

/* As leat_graph_bind(), but infers nothing: of a graph that has inputs and no nodes yet. */
LEAT_MUST_CHECK enum leat_status leat_graph_give_dims(struct leat_graph *graph, const struct leat_dim_value *values,
                                                      uint32_t count);

/* Infers dtype and shape of one node's outputs from its inputs; all of them, in order. */
LEAT_MUST_CHECK enum leat_status leat_graph_infer_node(struct leat_graph *graph,
                                                       struct leat_node *node);
LEAT_MUST_CHECK enum leat_status leat_graph_infer(struct leat_graph *graph);

/* The same, and sets *ret_mixes_items when an output item depends on other items of the batch. */
LEAT_MUST_CHECK enum leat_status leat_graph_infer_mixing(struct leat_graph *graph,
                                                         struct leat_node *node,
                                                         bool *ret_mixes_items);

/*
 * Infers all shapes in order and computes the nodes whose inputs are all constant, where that is cheap, and those that are
 * known though not all of their inputs are (kernels/entries.h), and unrolls what that decides; values keep their indices. A failure leaves a graph that is fit for leat_graph_destroy() only.
 */
LEAT_MUST_CHECK enum leat_status leat_graph_fold(struct leat_graph *graph, bool *ret_changed);

/* What folding notes of each value; all zero: there is no room yet. leat_folding_fini() frees it, whatever became of init. */
struct leat_folding {
    uint32_t count;
    void **data;        /* contents are of no use */
    uint32_t *producer; /* node index, or UINT32_MAX */
};
LEAT_MUST_CHECK enum leat_status leat_folding_init(struct leat_folding *folding, uint32_t count);
void leat_folding_fini(struct leat_folding *folding);

/* The same for the nodes from `first` on; those before went through it with the same `folding`, which has room for all values. */
LEAT_MUST_CHECK enum leat_status leat_graph_fold_from(struct leat_graph *graph, uint32_t first, struct leat_folding *folding,
                                                      bool *ret_changed);

/*
 * Computes a node of one output, if its inputs are constants and what memory is left allows it: then the node is to go.
 * `data` has room for a pointer per value; its contents are of no use.
 */
LEAT_MUST_CHECK enum leat_status leat_graph_fold_node(struct leat_graph *graph, const struct leat_node *node, void **data,
                                                      bool *ret_folded);

/*
 * Products of 8-bit numbers (QLinearConv, QLinearMatMul) that are not to stay become what passes make them of; folds
 * their weights. What has computed scales stays in any case. A failure leaves a graph that is fit for
 * leat_graph_destroy() only.
 */
LEAT_MUST_CHECK enum leat_status leat_graph_split_quantised(struct leat_graph *graph,
                                                            bool (*stays)(const struct leat_graph *graph,
                                                                          const struct leat_node *node));

/* False when folding `bytes` more, here or in graphs inside, could exhaust memory; otherwise they are accounted for. */
bool leat_graph_may_fold(struct leat_graph *graph, uint64_t bytes);

/* Removes nodes whose op is NULL, keeping the order. */
void leat_graph_sweep_nodes(struct leat_graph *graph);

/* Drops the values whose `keep` is false (nothing refers to them); map[old] is the new index. */
void leat_graph_keep_values(struct leat_graph *graph, const bool *keep, uint32_t *map);

/* How often each value is read: by node inputs, fused adds and graph outputs. `uses` has value_count entries. */
void leat_graph_count_uses(const struct leat_graph *graph, uint32_t *uses);

/* Some shape depends on tensor contents: only leat_reference_run() can run it. */
bool leat_graph_is_bounded(const struct leat_graph *graph);

/* The size of an input, or of the fused addend, depends on tensor contents. */
bool leat_node_reads_bounded(const struct leat_graph *graph, const struct leat_node *node);

bool leat_value_is_known(const struct leat_value *value); /* no symbolic or unknown dimension */

/*
 * Checks the promises of graph.h: indices in range, order, one producer per value, arity, attributes,
 * sizes. For tests and the fuzzer; a failure after a successful import or pass is a bug.
 */
LEAT_MUST_CHECK enum leat_status leat_graph_check(const struct leat_graph *graph);

#endif /* LEAT_KERNELS_GRAPH_BUILD_H */
