/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/sequence.h - one model bound to several lengths of its sequences, and how the tensors of a query lie in each.
 *
 * Role       A free dimension that counts the positions of a sequence gets a few lengths instead of one value. The largest is
 *            the full length: clients know the model by that one's signature. A query says how many positions it has, and
 *            runs at the smallest length that holds the longest query of its batch; that its answer is the same at all
 *            of them is proved when the model is bound (kernels/padding/padding.h).
 * Ownership  A sequence owns its graphs. Constants that are the same at several lengths are one payload.
 * Threads    As graphs: one thread makes it, then it is read-only.
 */
#ifndef LEAT_KERNELS_SEQUENCE_H
#define LEAT_KERNELS_SEQUENCE_H

#include <leat/backend.h>

#include "kernels/graph.h"

struct leat_sequence {
    uint32_t length_count;
    uint32_t lengths[LEAT_LENGTHS_MAX]; /* ascending */
    struct leat_graph *graphs[LEAT_LENGTHS_MAX];
    /* The signature at full length, inputs first. */
    uint32_t input_count, output_count;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    int32_t axes[LEAT_TENSORS_MAX]; /* which dimension is the length; -1: none */
    uint64_t masks;                 /* bit i: see leat_model_source */
};

/*
 * Binds copies of `graph`, in which `name` is the only free dimension beside the batch. 2..LEAT_LENGTHS_MAX lengths of up to LEAT_LENGTH_MAX, ascending.
 * LEAT_ERR_INVALID when they are not, or as leat_graph_bind() says; LEAT_ERR_UNSUPPORTED, naming node and operator, where
 * padding could change an answer; or as leat_graph_signature() says.
 */
LEAT_MUST_CHECK enum leat_status leat_sequence_create(const struct leat_graph *graph, const char *name, const uint32_t *lengths,
                                                      uint32_t length_count, struct leat_sequence **ret_sequence);
/* Accepts NULL. */
void leat_sequence_destroy(struct leat_sequence *sequence);

/* leat_graph_optimise() of all graphs. After a failure it is fit for leat_sequence_destroy() only. */
LEAT_MUST_CHECK enum leat_status leat_sequence_optimise(struct leat_sequence *sequence, uint64_t mask);

/* Everything that a source says of graphs and signature; the sequence outlives the load. */
void leat_sequence_describe(const struct leat_sequence *sequence, struct leat_model_source *source);

/* ---- For backends that compute on contiguous batches ------------------------------------------------ */

/* How the tensors of an item lie in a segment and in plans. A tensor with positions is [outer][length][inner] bytes. */
struct leat_item_layout {
    uint32_t tensor_count;
    uint32_t full_length; /* 0: the model has no sequences */
    uint64_t masks;
    struct {
        size_t item_bytes; /* in a segment */
        size_t outer, inner_bytes; /* outer is 0: it has no positions */
        uint32_t dtype;
    } tensors[LEAT_TENSORS_MAX];
};

/*
 * Copies of the source's graphs: one for each length, or one of length 0. All of ret_graphs[0..*ret_count) are the
 * caller's, after a failure too. LEAT_ERR_PROTO when weights were gone from their file while the source's graphs were made.
 */
LEAT_MUST_CHECK enum leat_status leat_source_copy_graphs(const struct leat_model_source *source,
                                                         struct leat_graph *ret_graphs[LEAT_LENGTHS_MAX],
                                                         uint32_t ret_lengths[LEAT_LENGTHS_MAX], uint32_t *ret_count);

/*
 * Constants of `graph` that are, at the same index, those of `from` become one payload: where the same was done to both
 * graphs, all but those that depend on the length.
 */
void leat_graph_unify(struct leat_graph *graph, const struct leat_graph *from);

/* The elements of a constant, wherever it is one. */
struct leat_payload {
    const void *data;
    size_t bytes; /* 0: they are mapped */
};
/* Of all constants of graphs and of the graphs inside them, each once, by address. The caller frees *ret_payloads. */
LEAT_MUST_CHECK enum leat_status leat_graphs_payloads(struct leat_graph *const *graphs, uint32_t count,
                                                      struct leat_payload **ret_payloads, size_t *ret_count);
bool leat_payloads_have(const struct leat_payload *payloads, size_t count, const void *data);
size_t leat_payloads_bytes(const struct leat_payload *payloads, size_t count);

/* Which one a plan's options mean; 0 is the last. LEAT_ERR_INVALID: none. */
LEAT_MUST_CHECK enum leat_status leat_length_find(const uint32_t *lengths, uint32_t count, uint32_t length, uint32_t *ret_which);

void leat_item_layout_init(struct leat_item_layout *layout, const struct leat_model_source *source);

/* Of tensor t in a plan for `length` positions. */
size_t leat_item_bytes(const struct leat_item_layout *layout, uint32_t t, uint32_t length);

/* No segment is longer than the plan. */
bool leat_items_fit(const struct leat_item_layout *layout, uint32_t length, const struct leat_segment *segments, uint32_t count);

/*
 * leat_segments_gather() and leat_segments_scatter() of tensors that have `length` positions in the batch: of an item
 * those that it has, and zeros. An input that is a mask and has no 1 among them gets ones there.
 */
void leat_items_gather(const struct leat_item_layout *layout, uint32_t length, const struct leat_segment *segments, uint32_t count,
                       uint32_t t, uint32_t missing, unsigned char *to);
void leat_items_scatter(const struct leat_item_layout *layout, uint32_t length, const struct leat_segment *segments, uint32_t count,
                        uint32_t t, const unsigned char *from);

#endif /* LEAT_KERNELS_SEQUENCE_H */
