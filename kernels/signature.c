/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients see of a model, and the proof that the items of a batch do not touch each other.
 *
 * Two concrete copies, for 5 and 7 items, show which dims follow the batch even where a shape is
 * computed by the graph itself (Shape, Gather, Concat, Reshape). With those dims marked, inference runs
 * once more over the symbolic graph and reports operators that combine values along them.
 */
#include <string.h>

#include "kernels/graph_build.h"
#include "kernels/infer/infer.h"
#include "kernels/op.h"

#define PROBE_A 5 /* primes, so that few products of other dims look like one of them */
#define PROBE_B 7

static enum leat_status
describe(const struct leat_value *a, const struct leat_value *b, const char *what,
         struct leat_tensor_info *ret)
{
    struct leat_tensor_info info = {.dtype = a->dtype, .rank = a->rank};
    uint64_t bytes = leat_dtype_bytes(a->dtype);

    if (strlen(a->name) >= sizeof(info.name)) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "%s '%.64s...' has a name over %d bytes", what,
                         a->name, LEAT_TENSOR_NAME_MAX - 1);
    }
    memcpy(info.name, a->name, strlen(a->name));
    if (a->bounded || b->bounded) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "the shape of %s '%.64s' depends on tensor contents",
                         what, a->name);
    }
    if (a->rank == 0 || a->rank != b->rank || a->dims[0] != PROBE_A || b->dims[0] != PROBE_B) {
        return LEAT_FAIL(
            LEAT_ERR_UNSUPPORTED,
            "%s '%.64s' has no leading batch dimension; export the model with a symbolic "
            "first dimension on every input and output",
            what, a->name);
    }
    info.dims[0] = -1;
    for (uint32_t d = 1; d < a->rank; d++) {
        if (a->dims[d] != b->dims[d] || a->dims[d] == 0) {
            return LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                             "dimension %u of %s '%.64s' is empty or depends on the batch", d, what,
                             a->name);
        }
        info.dims[d] = a->dims[d];
        bytes *= (uint64_t)a->dims[d]; /* checked when the shape was inferred */
    }
    info.item_bytes = bytes;
    *ret = info;
    return LEAT_OK;
}

/* Dims of a value as both probes saw them: a number, the batch (or a multiple of it), or unknown. */
static void
mark_dims(const struct leat_value *a, const struct leat_value *b, struct leat_value *ret)
{
    ret->dtype = a->dtype;
    ret->rank = a->rank;
    for (uint32_t d = 0; d < a->rank; d++) {
        ret->dims[d] = a->dims[d] == b->dims[d] ? a->dims[d] : LEAT_DIM_BATCH;
    }
}

/* Elements of one slice along the batch axis, of the dims before it; 0 when there is no batch axis. */
static size_t
elements_before_batch(const struct leat_value *value)
{
    size_t before = 1;
    for (uint32_t d = 0; d < value->rank; d++) {
        if (value->dims[d] == LEAT_DIM_BATCH) {
            return before;
        }
        before *= (size_t)value->dims[d];
    }
    return 0;
}

/*
 * A Slice, Tile or Resize that is no longer or shorter than its input takes each element from its own place,
 * whatever computes its parameters: unless it runs backwards, or cuts out a region.
 */
static bool
takes_items_in_order(const struct leat_graph *marked, const struct leat_node *node)
{
    const struct leat_attribute *place =
        leat_node_attribute(node, "coordinate_transformation_mode");
    const struct leat_value *steps = leat_node_input(marked, node, 4);
    const int64_t *step;
    uint32_t count = 0;

    switch (node->op->kind) {
    case LEAT_OP_TILE:
        return true;
    case LEAT_OP_RESIZE:
        return place == NULL || strcmp(place->s, "tf_crop_and_resize") != 0;
    case LEAT_OP_SLICE:
        if (steps != NULL && !leat_value_ints(steps, &step, &count)) {
            return false;
        }
        while (count > 0 && step[count - 1] > 0) {
            count--;
        }
        return count == 0;
    default:
        return false;
    }
}

/* The batch axis of the first input is as long in the output. */
static bool
keeps_batch(const struct leat_graph *marked, const struct leat_node *node,
            const struct leat_graph *a, const struct leat_graph *b)
{
    const uint32_t from = node->inputs[0], to = node->outputs[0];
    bool keeps = a->values[from].rank == a->values[to].rank;

    for (uint32_t d = 0; keeps && d < marked->values[from].rank; d++) {
        keeps = marked->values[from].dims[d] != LEAT_DIM_BATCH ||
                (a->values[from].dims[d] == a->values[to].dims[d] &&
                 b->values[from].dims[d] == b->values[to].dims[d]);
    }
    return keeps;
}

static enum leat_status
check_node(struct leat_graph *marked, struct leat_node *node, const struct leat_graph *a,
           const struct leat_graph *b)
{
    bool mixes_items = false;

    const enum leat_status status = leat_graph_infer_mixing(marked, node, &mixes_items);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t o = 0; o < node->output_count; o++) {
        const uint32_t v = node->outputs[o];
        if (v != LEAT_VALUE_NONE) {
            mark_dims(&a->values[v], &b->values[v], &marked->values[v]);
        }
    }
    if (mixes_items && takes_items_in_order(marked, node)) {
        mixes_items = !keeps_batch(marked, node, a, b);
    }
    if (node->op->kind == LEAT_OP_RESHAPE || node->op->kind == LEAT_OP_FLATTEN) {
        /* Row-major order keeps items whole only when the same number of elements comes before the batch. */
        mixes_items = elements_before_batch(&marked->values[node->inputs[0]]) !=
                      elements_before_batch(&marked->values[node->outputs[0]]);
    }
    return mixes_items
               ? LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                                "it mixes the items of a batch, which may belong to different "
                                "clients")
               : LEAT_OK;
}

static enum leat_status
check_items_apart(const struct leat_graph *graph, const struct leat_graph *a,
                  const struct leat_graph *b)
{
    struct leat_graph *marked = NULL;
    enum leat_status status = leat_graph_copy(graph, &marked);

    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t v = 0; v < marked->value_count; v++) {
        /* Specialising keeps the indices; what it folded away depends on no item. */
        if (a->values[v].rank == b->values[v].rank) {
            mark_dims(&a->values[v], &b->values[v], &marked->values[v]);
        } else {
            status = LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "the rank of '%.64s' depends on the batch",
                               a->values[v].name);
        }
    }
    for (uint32_t n = 0; n < marked->node_count && status == LEAT_OK; n++) {
        struct leat_node *node = &marked->nodes[n];
        const bool folded = a->values[node->outputs[0]].data != NULL;
        status = folded ? LEAT_OK : check_node(marked, node, a, b);
    }
    leat_graph_destroy(marked);
    return status;
}

static enum leat_status
describe_all(const struct leat_graph *a, const struct leat_graph *b, struct leat_tensor_info *infos)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < a->input_count && status == LEAT_OK; i++) {
        status = describe(&a->values[a->inputs[i]], &b->values[b->inputs[i]], "input", &infos[i]);
    }
    for (uint32_t o = 0; o < a->output_count && status == LEAT_OK; o++) {
        status = describe(&a->values[a->outputs[o]], &b->values[b->outputs[o]], "output",
                          &infos[a->input_count + o]);
    }
    return status;
}

enum leat_status
leat_graph_signature(const struct leat_graph *graph, struct leat_tensor_info *infos,
                     uint32_t *ret_input_count, uint32_t *ret_output_count)
{
    struct leat_tensor_info found[LEAT_TENSORS_MAX];
    struct leat_graph *a = NULL, *b = NULL;
    const uint32_t tensors = graph->input_count + graph->output_count;

    if (graph->input_count == 0 || graph->output_count == 0 || tensors > LEAT_TENSORS_MAX) {
        return LEAT_FAIL(
            LEAT_ERR_UNSUPPORTED,
            "a model with %u inputs and %u outputs; at least one of each and %d together "
            "are possible",
            graph->input_count, graph->output_count, LEAT_TENSORS_MAX);
    }
    enum leat_status status = leat_graph_specialise(graph, PROBE_A, &a);
    if (status == LEAT_OK) {
        status = leat_graph_specialise(graph, PROBE_B, &b);
    }
    if (status == LEAT_OK) {
        status = describe_all(a, b, found);
    }
    if (status == LEAT_OK) {
        status = check_items_apart(graph, a, b);
    }
    leat_graph_destroy(a);
    leat_graph_destroy(b);
    if (status == LEAT_OK) {
        memcpy(infos, found, tensors * sizeof(*infos));
        *ret_input_count = graph->input_count;
        *ret_output_count = graph->output_count;
    }
    return status;
}
