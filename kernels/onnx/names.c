/* SPDX-License-Identifier: Apache-2.0 */
/* What each name of a graph stands for, and an order in which its nodes can be computed. */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/onnx/importer.h"

static int
compare_entries(const void *left, const void *right)
{
    const struct entry *a = *(struct entry *const *)left, *b = *(struct entry *const *)right;
    const int names = strcmp(a->name, b->name);
    return names != 0 ? names : (a->source > b->source) - (a->source < b->source);
}

struct entry *
leat_onnx_find(const struct importer *importer, const char *name)
{
    uint32_t low = 0, high = importer->entry_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (strcmp(importer->sorted[middle]->name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < importer->entry_count && strcmp(importer->sorted[low]->name, name) == 0
               ? importer->sorted[low]
               : NULL;
}

/* Counts first, so that the arrays can be allocated. */
static enum leat_status
count_definitions(struct importer *importer, size_t *ret_list)
{
    const Onnx__GraphProto *proto = importer->proto;
    uint64_t total = (uint64_t)proto->n_initializer + proto->n_sparse_initializer + proto->n_input;

    if (proto->n_node > LEAT_GRAPH_NODES_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%zu nodes, the limit is %u", proto->n_node,
                         LEAT_GRAPH_NODES_MAX);
    }
    *ret_list = 1;
    for (size_t n = 0; n < proto->n_node; n++) {
        const Onnx__NodeProto *node = proto->node[n];
        struct leat_onnx_number room;
        if (node->n_input > LEAT_NODE_ARITY_MAX || node->n_output > LEAT_NODE_ARITY_MAX) {
            return LEAT_FAIL(LEAT_ERR_LIMIT, "node '%.64s' (operator %.64s) has more than %u inputs or outputs",
                             leat_onnx_node_name(node, n, &room), leat_onnx_text(node->op_type), LEAT_NODE_ARITY_MAX);
        }
        total += node->n_output;
        *ret_list =
            node->n_input + node->n_output > *ret_list ? node->n_input + node->n_output : *ret_list;
    }
    if (total > LEAT_GRAPH_VALUES_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%llu values, the limit is %u", (unsigned long long)total,
                         LEAT_GRAPH_VALUES_MAX);
    }
    importer->entry_count = (uint32_t)total;
    return LEAT_OK;
}

static enum leat_status
allocate(struct importer *importer)
{
    size_t list = 0;
    const enum leat_status status = count_definitions(importer, &list);
    if (status != LEAT_OK) {
        return status;
    }
    importer->entries = calloc((size_t)importer->entry_count + 1, sizeof(*importer->entries));
    importer->sorted = calloc((size_t)importer->entry_count + 1, sizeof(*importer->sorted));
    importer->order = calloc(importer->proto->n_node + 1, sizeof(*importer->order));
    importer->lists = calloc(list, sizeof(*importer->lists));
    if (importer->entries == NULL || importer->sorted == NULL || importer->order == NULL ||
        importer->lists == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to import a model of %u values",
                         importer->entry_count);
    }
    return LEAT_OK;
}

static void
define(struct importer *importer, const char *name, enum source source, uint32_t node)
{
    importer->entries[importer->entry_count] = (struct entry){
        .name = leat_onnx_text(name), .source = source, .node = node, .value = LEAT_VALUE_NONE};
    importer->sorted[importer->entry_count] = &importer->entries[importer->entry_count];
    importer->entry_count++;
}

/* All definitions, sorted; a name that is defined twice is an error. */
static enum leat_status
collect_names(struct importer *importer)
{
    const Onnx__GraphProto *proto = importer->proto;

    importer->entry_count = 0;
    for (size_t i = 0; i < proto->n_initializer; i++) {
        define(importer, proto->initializer[i]->name, SOURCE_INITIALISER, 0);
    }
    for (size_t i = 0; i < proto->n_sparse_initializer; i++) {
        const Onnx__TensorProto *values = proto->sparse_initializer[i]->values;
        define(importer, values != NULL ? values->name : NULL, SOURCE_INITIALISER, 0);
    }
    for (size_t i = 0; i < proto->n_input; i++) {
        define(importer, proto->input[i]->name, SOURCE_INPUT, 0);
    }
    for (size_t i = 0; i < importer->entry_count; i++) {
        if (importer->entries[i].name[0] == '\0') {
            return LEAT_FAIL(LEAT_ERR_PROTO, "an initialiser or graph input has no name");
        }
    }
    for (size_t n = 0; n < proto->n_node; n++) {
        for (size_t o = 0; o < proto->node[n]->n_output; o++) {
            if (leat_onnx_text(proto->node[n]->output[o])[0] != '\0') {
                define(importer, proto->node[n]->output[o], SOURCE_NODE, (uint32_t)n);
            }
        }
    }
    qsort(importer->sorted, importer->entry_count, sizeof(struct entry *), compare_entries);
    for (uint32_t i = 1; i < importer->entry_count; i++) {
        const struct entry *a = importer->sorted[i - 1], *b = importer->sorted[i];
        /* An initialiser may also be listed as an input: it is then the input's default. */
        if (strcmp(a->name, b->name) != 0 || (a->source == SOURCE_INITIALISER && b->source == SOURCE_INPUT)) {
            continue;
        }
        if (b->source != SOURCE_NODE) {
            return LEAT_FAIL(LEAT_ERR_PROTO, "value '%.64s' is defined twice", a->name);
        }
        struct leat_onnx_number room;
        return LEAT_FAIL(LEAT_ERR_PROTO, "node '%.64s' (operator %.64s): value '%.64s' is defined twice",
                         leat_onnx_node_name(proto->node[b->node], b->node, &room), leat_onnx_text(proto->node[b->node]->op_type),
                         b->name);
    }
    return LEAT_OK;
}

/* ---- Order ------------------------------------------------------------------------------------------ */

struct sorter {
    struct importer *importer;
    uint32_t *waiting; /* [count] inputs not yet computed */
    uint32_t *first;   /* [count + 2] first[n] .. first[n + 1] become the readers of n */
    uint32_t *readers; /* NULL while they are counted */
    uint64_t edges;
};

static bool
is_defined_around(const struct importer *importer, const char *name)
{
    while (importer->call == NULL && importer->parent != NULL) { /* a function sees nothing around it */
        importer = importer->parent;
        if (leat_onnx_find(importer, name) != NULL) {
            return true;
        }
    }
    return false;
}

/* Node n reads `name`, itself or in a graph inside it; what is not found there is looked up again by that graph. */
static enum leat_status
add_read(struct sorter *sorter, uint32_t n, const char *name, bool inside)
{
    const struct entry *entry = name[0] != '\0' ? leat_onnx_find(sorter->importer, name) : NULL;

    if (name[0] != '\0' && entry == NULL && !inside && !is_defined_around(sorter->importer, name)) {
        const Onnx__NodeProto *node = sorter->importer->proto->node[n];
        struct leat_onnx_number room;
        return LEAT_FAIL(LEAT_ERR_PROTO, "node '%.64s' (operator %.64s) reads '%.64s', which nothing defines",
                         leat_onnx_node_name(node, n, &room), leat_onnx_text(node->op_type), name);
    }
    if (entry == NULL || entry->source != SOURCE_NODE || (inside && entry->node == n)) {
        return LEAT_OK;
    }
    if (sorter->readers == NULL) {
        sorter->first[entry->node + 2]++;
        sorter->edges++;
    } else {
        sorter->readers[sorter->first[entry->node + 1]++] = n;
        sorter->waiting[n]++;
    }
    return LEAT_OK;
}

/* The scan of the file bounds how deep graphs lie in one another. */
static enum leat_status
add_reads(struct sorter *sorter, uint32_t n, const Onnx__NodeProto *node, bool inside)
{
    enum leat_status status = LEAT_OK;

    for (size_t i = 0; i < node->n_input && status == LEAT_OK; i++) {
        status = add_read(sorter, n, leat_onnx_text(node->input[i]), inside);
    }
    for (size_t a = 0; a < node->n_attribute && status == LEAT_OK; a++) {
        const Onnx__GraphProto *graph = node->attribute[a]->g;
        for (size_t i = 0; graph != NULL && i < graph->n_node && status == LEAT_OK; i++) {
            status = add_reads(sorter, n, graph->node[i], true);
        }
        for (size_t o = 0; graph != NULL && o < graph->n_output && status == LEAT_OK; o++) {
            status = add_read(sorter, n, leat_onnx_text(graph->output[o]->name), true);
        }
    }
    return status;
}

/* Two passes over the edges: count the readers of each producer, then list them. */
static enum leat_status
list_readers(struct sorter *sorter, uint32_t count)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t n = 0; n < count && status == LEAT_OK; n++) {
        status = add_reads(sorter, n, sorter->importer->proto->node[n], false);
    }
    for (uint32_t n = 0; n < count; n++) {
        sorter->first[n + 2] += sorter->first[n + 1];
    }
    if (status == LEAT_OK) {
        sorter->readers = calloc((size_t)sorter->edges + 1, sizeof(*sorter->readers));
        status = sorter->readers == NULL ? LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to sort %u nodes", count) : LEAT_OK;
    }
    for (uint32_t n = 0; n < count && status == LEAT_OK; n++) {
        status = add_reads(sorter, n, sorter->importer->proto->node[n], false);
    }
    return status;
}

/* Kahn's algorithm: repeatedly the nodes whose producers are all placed. Most files are in order already. */
static enum leat_status
place_nodes(struct sorter *sorter, uint32_t count)
{
    uint32_t *order = sorter->importer->order, *waiting = sorter->waiting, placed = 0, n = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (waiting[i] == 0) {
            order[placed++] = i;
        }
    }
    for (uint32_t done = 0; done < placed; done++) {
        for (uint32_t r = sorter->first[order[done]]; r < sorter->first[order[done] + 1]; r++) {
            if (--waiting[sorter->readers[r]] == 0) {
                order[placed++] = sorter->readers[r];
            }
        }
    }
    if (placed == count) {
        return LEAT_OK;
    }
    while (waiting[n] == 0) {
        n++;
    }
    struct leat_onnx_number room;
    return LEAT_FAIL(LEAT_ERR_PROTO, "node '%.64s' (operator %.64s) is part of or behind a cycle",
                     leat_onnx_node_name(sorter->importer->proto->node[n], n, &room),
                     leat_onnx_text(sorter->importer->proto->node[n]->op_type));
}

static enum leat_status
sort_nodes(struct importer *importer)
{
    const uint32_t count = (uint32_t)importer->proto->n_node;
    struct sorter sorter = {.importer = importer,
                            .waiting = calloc((size_t)count + 1, sizeof(uint32_t)),
                            .first = calloc((size_t)count + 2, sizeof(uint32_t))};
    enum leat_status status = LEAT_OK;

    if (sorter.waiting == NULL || sorter.first == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to sort %u nodes", count);
    } else {
        status = list_readers(&sorter, count);
    }
    if (status == LEAT_OK) {
        status = place_nodes(&sorter, count);
    }
    free(sorter.waiting);
    free(sorter.first);
    free(sorter.readers);
    return status;
}

enum leat_status
leat_onnx_names_init(struct importer *importer)
{
    enum leat_status status = allocate(importer);

    if (status == LEAT_OK) {
        status = collect_names(importer);
    }
    return status == LEAT_OK ? sort_nodes(importer) : status;
}

void
leat_onnx_names_fini(struct importer *importer)
{
    free(importer->entries);
    free(importer->sorted);
    free(importer->order);
    free(importer->lists);
}
