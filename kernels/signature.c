/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients see of a model.
 *
 * Two concrete copies, for 5 and 7 items, show which dims follow the batch even where a shape is computed by the graph
 * itself (Shape, Gather, Concat, Reshape). That this holds for any number of items, and that items do not touch each
 * other, is proved with them (kernels/items_apart.h).
 *
 * A model that fails there can be run for one item at a time. Then sizes may depend on tensor contents: copies for one item in
 * which every node that finds a size in a run finds one less, and as little as it can, show which dims of outputs follow. One
 * less alone does not: of the first k of n rows there are as many.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/graph_build.h"
#include "kernels/infer/infer.h"
#include "kernels/items_apart.h"
#include "kernels/op.h"

#define PROBE_A 5 /* primes, so that few products of other dims look like one of them */
#define PROBE_B 7

static enum leat_status
describe(const struct leat_value *a, const struct leat_value *b, const char *what,
         struct leat_tensor_info *ret)
{
    struct leat_tensor_info info = {.dtype = a->dtype, .rank = a->rank};
    uint64_t bytes = leat_dtype_bytes(a->dtype);

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

/* Names are the file's, or their first bytes, no part of a character among them. */
static enum leat_status
set_names(const struct leat_graph *graph, struct leat_tensor_info *infos)
{
    const char *whole[LEAT_TENSORS_MAX];

    for (uint32_t t = 0; t < graph->input_count + graph->output_count; t++) {
        const uint32_t v = t < graph->input_count ? graph->inputs[t] : graph->outputs[t - graph->input_count];
        const char *name = graph->values[v].name;
        size_t bytes = strlen(name);
        if (bytes >= sizeof(infos[t].name)) {
            bytes = sizeof(infos[t].name) - 1;
            while ((name[bytes] & 0xc0) == 0x80) {
                bytes--;
            }
        }
        memcpy(infos[t].name, name, bytes); /* and zeros, as described */
        whole[t] = name;
        for (uint32_t before = 0; before < t; before++) {
            if (strcmp(infos[before].name, infos[t].name) == 0 && strcmp(whole[before], name) != 0) {
                return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "two inputs or outputs have names that begin with '%s', and no more fits",
                                 infos[t].name);
            }
        }
    }
    return LEAT_OK;
}

static enum leat_status
check_counts(const struct leat_graph *graph)
{
    const uint32_t tensors = graph->input_count + graph->output_count;
    return graph->input_count > 0 && graph->output_count > 0 && tensors <= LEAT_TENSORS_MAX
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                           "a model with %u inputs and %u outputs; at least one of each and %d together "
                           "are possible",
                           graph->input_count, graph->output_count, LEAT_TENSORS_MAX);
}

enum leat_status
leat_graph_signature(const struct leat_graph *graph, struct leat_tensor_info *infos,
                     uint32_t *ret_input_count, uint32_t *ret_output_count)
{
    struct leat_tensor_info found[LEAT_TENSORS_MAX];
    struct leat_graph *a = NULL, *b = NULL;
    const uint32_t tensors = graph->input_count + graph->output_count;

    enum leat_status status = check_counts(graph);
    if (status == LEAT_OK) {
        status = leat_graph_specialise(graph, PROBE_A, &a);
    }
    if (status == LEAT_OK) {
        status = leat_graph_specialise(graph, PROBE_B, &b);
    }
    if (status == LEAT_OK) {
        status = describe_all(a, b, found);
    }
    if (status == LEAT_OK) {
        status = leat_items_apart(graph, a, b);
    }
    if (status == LEAT_OK) {
        status = set_names(graph, found);
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

/* ---- One item at a time ---------------------------------------------------------------------------- */

/* Shapes as they are when no node finds as much as it could, nor more than `cap`. */
static enum leat_status
infer_less(struct leat_graph *less, int64_t cap)
{
    for (uint32_t n = 0; n < less->node_count; n++) {
        struct leat_node *node = &less->nodes[n];
        const enum leat_status status =
            leat_node_reads_bounded(less, node) ? leat_graph_infer_node(less, node) : LEAT_OK;
        if (status != LEAT_OK) {
            return status;
        }
        for (uint32_t o = 0; o < node->output_count; o++) {
            if (node->outputs[o] == LEAT_VALUE_NONE) {
                continue;
            }
            struct leat_value *value = &less->values[node->outputs[o]];
            for (uint32_t d = 0; d < value->rank; d++) {
                const int64_t most = value->dims[d];
                const bool open = (value->open >> d & 1u) != 0;
                const int64_t fewer = most > 2 ? most - 1 : 0; /* 1 of 2 would be broadcast */
                value->dims[d] = !open ? most : fewer < cap ? fewer : cap;
            }
        }
    }
    return LEAT_OK;
}

static enum leat_status
copy_less(const struct leat_graph *one, int64_t cap, struct leat_graph **ret_less)
{
    struct leat_graph *less;
    enum leat_status status = leat_graph_copy(one, &less);

    if (status != LEAT_OK) {
        return status;
    }
    status = infer_less(less, cap);
    if (status != LEAT_OK) {
        leat_graph_destroy(less);
        return status;
    }
    *ret_less = less;
    return LEAT_OK;
}

/* Where nothing is found; where the model cannot be run so, as little as it can, by doubling. NULL where it needs all. */
static enum leat_status
copy_least(const struct leat_graph *one, struct leat_graph **ret_least)
{
    enum leat_status status = copy_less(one, 0, ret_least);

    for (int64_t cap = 1; status != LEAT_OK && status != LEAT_ERR_NOMEM && cap <= LEAT_SIZE_MAX; cap *= 2) {
        status = copy_less(one, cap, ret_least);
    }
    return status == LEAT_ERR_NOMEM ? status : LEAT_OK;
}

/* A first dimension of 1 that does not vary stands for the items; without one, they come in front. */
static enum leat_status
describe_one(const struct leat_value *one, uint32_t varying_dims, const char *what, struct leat_tensor_info *ret)
{
    const bool leads = one->rank > 0 && one->dims[0] == 1 && (varying_dims & 1u) == 0;
    struct leat_value five = *one, seven;

    if (!leads) {
        if (one->rank == LEAT_RANK_MAX) {
            return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "%s '%.64s' has no dimension left for items", what,
                             one->name);
        }
        five.rank++;
        memmove(five.dims + 1, one->dims, one->rank * sizeof(five.dims[0]));
    }
    five.bounded = false;
    seven = five;
    five.dims[0] = PROBE_A;
    seven.dims[0] = PROBE_B;
    return describe(&five, &seven, what, ret);
}

/* Bit d: dims[d] of the output is another in `less`. */
static enum leat_status
compare(const struct leat_value *one, const struct leat_value *less, uint32_t *varying_dims)
{
    if (one->rank != less->rank) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "the rank of output '%.64s' depends on tensor contents", one->name);
    }
    for (uint32_t d = 0; d < one->rank; d++) {
        *varying_dims |= one->dims[d] != less->dims[d] ? 1u << d : 0;
    }
    return LEAT_OK;
}

/* At most one may. */
static enum leat_status
set_varying(const struct leat_value *one, uint32_t varying_dims, struct leat_tensor_info *info)
{
    if (varying_dims == 0) {
        return LEAT_OK;
    }
    const uint32_t d = (uint32_t)__builtin_ctz(varying_dims);
    if (varying_dims != 1u << d) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "more than one dimension of output '%.64s' depends on tensor contents",
                         one->name);
    }
    if (one->dims[d] > LEAT_SIZE_MAX) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                         "dimension %u of output '%.64s' depends on tensor contents and can become %lld; an "
                         "answer can tell up to %u",
                         d, one->name, (long long)one->dims[d], LEAT_SIZE_MAX);
    }
    info->varying = d + info->rank - one->rank;
    return LEAT_OK;
}

/* `least` may be NULL. */
static enum leat_status
describe_outputs(const struct leat_graph *one, const struct leat_graph *less, const struct leat_graph *least,
                 struct leat_tensor_info *infos)
{
    uint32_t varying = 0;

    for (uint32_t o = 0; o < one->output_count; o++) {
        const struct leat_value *most = &one->values[one->outputs[o]];
        uint32_t varying_dims = 0;
        enum leat_status status = compare(most, &less->values[less->outputs[o]], &varying_dims);
        if (status == LEAT_OK && least != NULL) {
            status = compare(most, &least->values[least->outputs[o]], &varying_dims);
        }
        if (status == LEAT_OK) {
            status = describe_one(most, varying_dims, "output", &infos[o]);
        }
        if (status == LEAT_OK) {
            status = set_varying(most, varying_dims, &infos[o]);
        }
        if (status != LEAT_OK) {
            return status;
        }
        varying += infos[o].varying != 0;
    }
    return varying <= LEAT_SIZES_MAX
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "sizes of %u outputs depend on tensor contents; an answer tells up to %u",
                           varying, LEAT_SIZES_MAX);
}

enum leat_status
leat_graph_signature_of_one(const struct leat_graph *graph, struct leat_tensor_info *infos,
                            uint32_t *ret_input_count, uint32_t *ret_output_count)
{
    struct leat_tensor_info found[LEAT_TENSORS_MAX];
    struct leat_graph *one = NULL, *less = NULL, *least = NULL;

    enum leat_status status = check_counts(graph);
    if (status == LEAT_OK) {
        status = leat_graph_specialise(graph, 1, &one);
    }
    if (status == LEAT_OK) {
        status = copy_less(one, INT64_MAX, &less);
    }
    if (status == LEAT_OK) {
        status = copy_least(one, &least);
    }
    for (uint32_t i = 0; i < graph->input_count && status == LEAT_OK; i++) {
        status = describe_one(&one->values[one->inputs[i]], 0, "input", &found[i]);
    }
    if (status == LEAT_OK) {
        status = describe_outputs(one, less, least, found + graph->input_count);
    }
    if (status == LEAT_OK) {
        status = set_names(graph, found);
    }
    leat_graph_destroy(one);
    leat_graph_destroy(less);
    leat_graph_destroy(least);
    if (status == LEAT_OK) {
        memcpy(infos, found, (graph->input_count + graph->output_count) * sizeof(*infos));
        *ret_input_count = graph->input_count;
        *ret_output_count = graph->output_count;
    }
    return status;
}

enum leat_status
leat_signature_store(const struct leat_tensor_info *info, const struct leat_value *bound, const int64_t *dims,
                     const void *from, void *to, uint16_t *ret_size)
{
    const uint32_t in_front = info->rank - bound->rank;
    size_t outer = 1, room = leat_dtype_bytes(bound->dtype), used = room;

    for (uint32_t d = 0; d < bound->rank; d++) {
        const bool varies = info->varying != 0 && d + in_front == info->varying;
        if (LEAT_UNLIKELY(dims[d] != bound->dims[d] && !varies)) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "dimension %u of output '%.64s' is %lld instead of %lld", d, bound->name,
                             (long long)dims[d], (long long)bound->dims[d]);
        }
        if (d + in_front < info->varying) {
            outer *= (size_t)dims[d];
        } else {
            room *= (size_t)bound->dims[d];
            used *= (size_t)dims[d];
        }
        if (varies) {
            LEAT_ASSERT(dims[d] >= 0 && dims[d] <= bound->dims[d]);
            *ret_size = (uint16_t)dims[d];
        }
    }
    for (size_t i = 0; i < outer; i++) {
        memcpy((unsigned char *)to + i * room, (const unsigned char *)from + i * used, used);
        memset((unsigned char *)to + i * room + used, 0, room - used);
    }
    return LEAT_OK;
}
