/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ONNX file to graph: names become indices, nodes are put in order and checked against the operator
 * table, shapes are inferred.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/onnx/onnx.h"
#include "kernels/op.h"

enum source { SOURCE_INITIALISER, SOURCE_INPUT, SOURCE_NODE };

/* One definition of a name. */
struct entry {
    const char *name; /* as in the file */
    enum source source;
    uint32_t node;  /* of SOURCE_NODE */
    uint32_t value; /* in the graph */
};

struct importer {
    struct leat_graph *graph;
    const Onnx__GraphProto *proto;
    struct entry *entries; /* initialisers, inputs, node outputs: in the file's order */
    struct entry **sorted; /* by name, initialisers before inputs of the same name */
    uint32_t entry_count;
    uint32_t *order; /* node indices of the file, producers first */
    uint32_t *lists; /* room for the inputs and outputs of one node */
    const char *batch; /* what the file calls the batch; "": nothing */
    void **data;       /* of leat_graph_fold_from(); NULL until it is needed */
    uint32_t folded;   /* nodes of the graph that are as far folded as they can be */
};

static const char *
or_empty(const char *text)
{
    return text != NULL ? text : "";
}

static int
compare_entries(const void *left, const void *right)
{
    const struct entry *a = *(struct entry *const *)left, *b = *(struct entry *const *)right;
    const int names = strcmp(a->name, b->name);
    return names != 0 ? names : (a->source > b->source) - (a->source < b->source);
}

static struct entry *
find(const struct importer *importer, const char *name)
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
    uint64_t total = (uint64_t)proto->n_initializer + proto->n_input;

    if (proto->n_node > LEAT_GRAPH_NODES_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%zu nodes, the limit is %u", proto->n_node,
                         LEAT_GRAPH_NODES_MAX);
    }
    *ret_list = 1;
    for (size_t n = 0; n < proto->n_node; n++) {
        const Onnx__NodeProto *node = proto->node[n];
        if (node->n_input > LEAT_NODE_ARITY_MAX || node->n_output > LEAT_NODE_ARITY_MAX) {
            return LEAT_FAIL(LEAT_ERR_LIMIT, "node '%.64s' has more than %u inputs or outputs",
                             or_empty(node->name), LEAT_NODE_ARITY_MAX);
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
        .name = or_empty(name), .source = source, .node = node, .value = LEAT_VALUE_NONE};
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
            if (or_empty(proto->node[n]->output[o])[0] != '\0') {
                define(importer, proto->node[n]->output[o], SOURCE_NODE, (uint32_t)n);
            }
        }
    }
    qsort(importer->sorted, importer->entry_count, sizeof(struct entry *), compare_entries);
    for (uint32_t i = 1; i < importer->entry_count; i++) {
        const struct entry *a = importer->sorted[i - 1], *b = importer->sorted[i];
        /* An initialiser may also be listed as an input: it is then the input's default. */
        if (strcmp(a->name, b->name) == 0 &&
            !(a->source == SOURCE_INITIALISER && b->source == SOURCE_INPUT)) {
            return LEAT_FAIL(LEAT_ERR_PROTO, "value '%.64s' is defined twice", a->name);
        }
    }
    return LEAT_OK;
}

/* Kahn's algorithm: repeatedly the nodes whose producers are all placed. Most files are in order already. */
static enum leat_status
sort_nodes(struct importer *importer)
{
    const Onnx__GraphProto *proto = importer->proto;
    const uint32_t count = (uint32_t)proto->n_node;
    uint64_t edges = 0;
    enum leat_status status = LEAT_OK;

    for (uint32_t n = 0; n < count; n++) {
        edges += proto->node[n]->n_input;
    }
    uint32_t *waiting = calloc((size_t)count + 1, sizeof(*waiting)); /* inputs not yet computed */
    uint32_t *first = calloc((size_t)count + 2, sizeof(*first));     /* of a producer's readers */
    uint32_t *readers = calloc((size_t)edges + 1, sizeof(*readers));
    if (waiting == NULL || first == NULL || readers == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to sort %u nodes", count);
        goto out;
    }
    /* Two passes over the edges: count the readers of each producer, then list them. */
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t n = 0; n < count; n++) {
            for (size_t i = 0; i < proto->node[n]->n_input; i++) {
                const char *name = or_empty(proto->node[n]->input[i]);
                const struct entry *entry = name[0] != '\0' ? find(importer, name) : NULL;
                if (name[0] != '\0' && entry == NULL) {
                    status = LEAT_FAIL(
                        LEAT_ERR_PROTO,
                        "node '%.64s' (operator %.64s) reads '%.64s', which nothing defines",
                        or_empty(proto->node[n]->name), or_empty(proto->node[n]->op_type), name);
                    goto out;
                }
                if (entry == NULL || entry->source != SOURCE_NODE) {
                    continue;
                }
                if (pass == 0) {
                    first[entry->node + 2]++;
                } else {
                    readers[first[entry->node + 1]++] = n;
                    waiting[n]++;
                }
            }
        }
        for (uint32_t n = 0; pass == 0 && n < count; n++) {
            first[n + 2] += first[n + 1];
        }
    }
    /* first[n] .. first[n + 1] are now the readers of n. */
    uint32_t placed = 0;
    for (uint32_t n = 0; n < count; n++) {
        if (waiting[n] == 0) {
            importer->order[placed++] = n;
        }
    }
    for (uint32_t done = 0; done < placed; done++) {
        const uint32_t n = importer->order[done];
        for (uint32_t r = first[n]; r < first[n + 1]; r++) {
            if (--waiting[readers[r]] == 0) {
                importer->order[placed++] = readers[r];
            }
        }
    }
    if (placed < count) {
        uint32_t n = 0;
        while (waiting[n] == 0) {
            n++;
        }
        status =
            LEAT_FAIL(LEAT_ERR_PROTO, "node '%.64s' (operator %.64s) is part of or behind a cycle",
                      or_empty(proto->node[n]->name), or_empty(proto->node[n]->op_type));
    }
out:
    free(waiting);
    free(first);
    free(readers);
    return status;
}

static enum leat_status
add_initialisers(struct importer *importer)
{
    for (size_t i = 0; i < importer->proto->n_initializer; i++) {
        const char *name = leat_graph_text(importer->graph, importer->entries[i].name);
        if (name == NULL) {
            return LEAT_ERR_NOMEM;
        }
        const enum leat_status status = leat_onnx_tensor(
            importer->graph, name, importer->proto->initializer[i], &importer->entries[i].value);
        if (status != LEAT_OK) {
            return status;
        }
    }
    return LEAT_OK;
}

/* NULL when the dimension has a number; else its name, perhaps "". */
static const char *
free_name(const Onnx__TensorShapeProto__Dimension *dim)
{
    switch (dim->value_case) {
    case ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE:
        return dim->dim_value >= 0 ? NULL : "";
    case ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM:
        return or_empty(dim->dim_param);
    default:
        return "";
    }
}

/* A free dimension of input `input` that is not its first: the batch or a symbol. */
static enum leat_status
find_symbol(const struct importer *importer, const char *given, const char *input, size_t axis,
            int64_t *ret_dim)
{
    struct leat_graph *graph = importer->graph;
    char number[96];

    if (given[0] != '\0' && strcmp(given, importer->batch) == 0) {
        *ret_dim = LEAT_DIM_BATCH;
        return LEAT_OK;
    }
    (void)snprintf(number, sizeof(number), "%.64s.%zu", input, axis);
    const char *name = leat_graph_text(graph, given[0] != '\0' ? given : number);
    if (name == NULL) {
        return LEAT_ERR_NOMEM;
    }
    uint32_t s = 0;
    while (s < graph->symbol_count && strcmp(graph->symbols[s], name) != 0) {
        s++;
    }
    if (s == LEAT_GRAPH_SYMBOLS_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "input '%.64s': there are more than %u free dimensions",
                         input, LEAT_GRAPH_SYMBOLS_MAX);
    }
    if (s == graph->symbol_count) {
        graph->symbols[graph->symbol_count++] = name;
    }
    *ret_dim = LEAT_DIM_SYMBOL(s);
    return LEAT_OK;
}

/* The first dimension, when it has no number, is the batch; others without one are symbols. */
static enum leat_status
read_input_shape(const struct importer *importer, const char *name,
                 const Onnx__TensorShapeProto *shape, uint32_t dtype, int64_t *dims)
{
    uint64_t bytes = leat_dtype_bytes(dtype);

    if (shape->n_dim > LEAT_RANK_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "input '%.64s' has rank %zu, the limit is %d", name,
                         shape->n_dim, LEAT_RANK_MAX);
    }
    for (size_t d = 0; d < shape->n_dim; d++) {
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[d];
        const char *given = free_name(dim);
        if (given == NULL) {
            if (dim->dim_value > LEAT_DIM_MAX ||
                (dim->dim_value > 0 && (!leat_mul_u64(bytes, (uint64_t)dim->dim_value, &bytes) ||
                                        bytes > LEAT_VALUE_BYTES_MAX))) {
                return LEAT_FAIL(LEAT_ERR_LIMIT, "input '%.64s' is too large: dimension %lld", name,
                                 (long long)dim->dim_value);
            }
            dims[d] = dim->dim_value;
        } else if (d == 0) {
            dims[d] = LEAT_DIM_BATCH;
        } else {
            const enum leat_status status = find_symbol(importer, given, name, d, &dims[d]);
            if (status != LEAT_OK) {
                return status;
            }
        }
    }
    return LEAT_OK;
}

static enum leat_status
add_input(struct importer *importer, struct entry *entry, const Onnx__TypeProto *type)
{
    int64_t dims[LEAT_RANK_MAX];

    if (type == NULL || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
        type->tensor_type == NULL || type->tensor_type->shape == NULL) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "input '%.64s' is not a tensor with a shape",
                         entry->name);
    }
    const uint32_t dtype = leat_dtype_from_onnx(type->tensor_type->elem_type);
    if (dtype == LEAT_DTYPE_NONE) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                         "input '%.64s' has the ONNX type %d, which is not supported", entry->name,
                         (int)type->tensor_type->elem_type);
    }
    const Onnx__TensorShapeProto *shape = type->tensor_type->shape;
    const enum leat_status status = read_input_shape(importer, entry->name, shape, dtype, dims);
    if (status != LEAT_OK) {
        return status;
    }
    const char *name = leat_graph_text(importer->graph, entry->name);
    return name == NULL ? LEAT_ERR_NOMEM
                        : leat_graph_add_value(importer->graph, name, dtype, (uint32_t)shape->n_dim,
                                               dims, &entry->value);
}

/* What the file calls the batch: the first input with a free first dimension says so. */
static const char *
find_batch(const struct importer *importer)
{
    const struct entry *entries = importer->entries + importer->proto->n_initializer;

    for (size_t i = 0; i < importer->proto->n_input; i++) {
        const Onnx__TypeProto *type = importer->proto->input[i]->type;
        if (find(importer, entries[i].name) == &entries[i] && type != NULL &&
            type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && type->tensor_type != NULL &&
            type->tensor_type->shape != NULL && type->tensor_type->shape->n_dim > 0) {
            const char *name = free_name(type->tensor_type->shape->dim[0]);
            if (name != NULL) {
                return name;
            }
        }
    }
    return "";
}

static enum leat_status
add_inputs(struct importer *importer)
{
    struct entry *entries = importer->entries + importer->proto->n_initializer;
    const uint32_t count = (uint32_t)importer->proto->n_input;
    uint32_t *inputs = leat_graph_alloc(importer->graph, count, sizeof(*inputs));
    uint32_t kept = 0;

    if (inputs == NULL) {
        return LEAT_ERR_NOMEM;
    }
    importer->batch = find_batch(importer);
    for (uint32_t i = 0; i < count; i++) {
        if (find(importer, entries[i].name) != &entries[i]) {
            continue; /* the name leads to its initialiser */
        }
        const enum leat_status status =
            add_input(importer, &entries[i], importer->proto->input[i]->type);
        if (status != LEAT_OK) {
            return status;
        }
        inputs[kept++] = entries[i].value;
    }
    return leat_graph_set_inputs(importer->graph, inputs, kept);
}

static enum leat_status
find_operator(const struct importer *importer, const Onnx__NodeProto *proto, const char *name,
              const struct leat_op **ret_op)
{
    const char *domain = or_empty(proto->domain), *type = or_empty(proto->op_type);
    const bool standard = domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0;

    *ret_op = standard ? leat_op_find(type, importer->graph->opset) : NULL;
    if (*ret_op != NULL) {
        return LEAT_OK;
    }
    if (standard && leat_op_known(type)) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                         "node '%.64s' (operator %.64s) is not supported at opset %lld", name, type,
                         (long long)importer->graph->opset);
    }
    return LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                     "node '%.64s' (operator %.64s, domain '%.32s') is not supported; "
                     "docs/operators.md lists the operators that are",
                     name, type, domain);
}

/* The kind that a TYPE stands for; false for graphs, lists of strings and the like. */
static bool
attribute_kind(const Onnx__AttributeProto *proto, const struct leat_op *op,
               enum leat_attribute_kind *ret)
{
    switch (proto->has_type ? proto->type : ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
        *ret = LEAT_ATTRIBUTE_FLOAT;
        return true;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
        *ret = LEAT_ATTRIBUTE_INT;
        return true;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
        *ret = LEAT_ATTRIBUTE_STRING;
        return true;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
        *ret = LEAT_ATTRIBUTE_FLOATS;
        return true;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
        *ret = LEAT_ATTRIBUTE_INTS;
        return true;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS:
        *ret = LEAT_ATTRIBUTE_STRINGS;
        return true;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
        *ret = LEAT_ATTRIBUTE_TENSOR;
        return true;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED:
        /* The first files had no type: it is what the operator expects. */
        for (const struct leat_op_attribute *schema = op->attributes; schema->name != NULL;
             schema++) {
            if (strcmp(schema->name, or_empty(proto->name)) == 0) {
                *ret = schema->kind;
                return true;
            }
        }
        return false;
    default:
        return false;
    }
}

static enum leat_status
copy_bytes(struct leat_graph *graph, const ProtobufCBinaryData *bytes, const char **ret)
{
    char *copy;
    if (bytes->len > LEAT_NODE_ARITY_MAX ||
        (bytes->len > 0 && memchr(bytes->data, 0, bytes->len) != NULL)) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "a string is too long or has a zero byte in it");
    }
    copy = leat_graph_alloc(graph, bytes->len + 1, 1);
    if (copy == NULL) {
        return LEAT_ERR_NOMEM;
    }
    if (bytes->len > 0) {
        memcpy(copy, bytes->data, bytes->len);
    }
    *ret = leat_graph_text(graph, copy);
    return *ret != NULL ? LEAT_OK : LEAT_ERR_NOMEM;
}

static enum leat_status
copy_numbers(struct leat_graph *graph, const void *from, size_t count, size_t size,
             const void **ret, uint32_t *ret_count)
{
    if (count > LEAT_NODE_ARITY_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "a list of %zu numbers, the limit is %u", count,
                         LEAT_NODE_ARITY_MAX);
    }
    void *copy = leat_graph_alloc(graph, count, size);
    if (copy == NULL) {
        return LEAT_ERR_NOMEM;
    }
    if (count > 0) {
        memcpy(copy, from, count * size);
    }
    *ret = copy;
    *ret_count = (uint32_t)count;
    return LEAT_OK;
}

static enum leat_status
copy_strings(struct leat_graph *graph, const Onnx__AttributeProto *proto,
             struct leat_attribute *ret)
{
    enum leat_status status = LEAT_OK;

    if (proto->n_strings > LEAT_NODE_ARITY_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "a list of %zu strings, the limit is %u", proto->n_strings,
                         LEAT_NODE_ARITY_MAX);
    }
    const char **strings = leat_graph_alloc(graph, proto->n_strings, sizeof(*strings));
    if (strings == NULL) {
        return LEAT_ERR_NOMEM;
    }
    for (size_t i = 0; i < proto->n_strings && status == LEAT_OK; i++) {
        status = copy_bytes(graph, &proto->strings[i], &strings[i]);
    }
    ret->strings = strings;
    ret->count = (uint32_t)proto->n_strings;
    return status;
}

static enum leat_status
read_attribute(struct leat_graph *graph, const struct leat_op *op,
               const Onnx__AttributeProto *proto, struct leat_attribute *ret)
{
    const void *numbers = NULL;
    enum leat_status status = LEAT_OK;

    *ret = (struct leat_attribute){.name = leat_graph_text(graph, or_empty(proto->name))};
    if (ret->name == NULL) {
        return LEAT_ERR_NOMEM;
    }
    if (or_empty(proto->ref_attr_name)[0] != '\0' || !attribute_kind(proto, op, &ret->kind)) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "its type is not supported");
    }
    switch (ret->kind) {
    case LEAT_ATTRIBUTE_INT:
        ret->i = proto->i;
        break;
    case LEAT_ATTRIBUTE_FLOAT:
        ret->f = proto->f;
        break;
    case LEAT_ATTRIBUTE_STRING:
        status = copy_bytes(graph, &proto->s, &ret->s);
        break;
    case LEAT_ATTRIBUTE_INTS:
        status = copy_numbers(graph, proto->ints, proto->n_ints, sizeof(*proto->ints), &numbers,
                              &ret->count);
        ret->ints = numbers;
        break;
    case LEAT_ATTRIBUTE_FLOATS:
        status = copy_numbers(graph, proto->floats, proto->n_floats, sizeof(*proto->floats),
                              &numbers, &ret->count);
        ret->floats = numbers;
        break;
    case LEAT_ATTRIBUTE_STRINGS:
        status = copy_strings(graph, proto, ret);
        break;
    case LEAT_ATTRIBUTE_TENSOR:
        status = proto->t == NULL ? LEAT_FAIL(LEAT_ERR_PROTO, "there is no tensor in it")
                                  : leat_onnx_tensor(graph, ret->name, proto->t, &ret->value);
        break;
    }
    return status;
}

/* Constant: one attribute out of several, directly as a constant value without a node. */
static enum leat_status
add_constant(struct importer *importer, const Onnx__NodeProto *proto, struct entry *output)
{
    struct leat_graph *graph = importer->graph;
    const char *name = leat_graph_text(graph, output->name);
    if (name == NULL) {
        return LEAT_ERR_NOMEM;
    }
    if (proto->n_attribute != 1 || proto->n_input != 0 || proto->n_output != 1) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "it needs exactly one attribute, one output and no input");
    }
    const Onnx__AttributeProto *attribute = proto->attribute[0];
    const char *kind = or_empty(attribute->name);
    if (strcmp(kind, "value") == 0 && attribute->t != NULL) {
        return leat_onnx_tensor(graph, name, attribute->t, &output->value);
    }
    const int64_t count[1] = {
        (int64_t)(strcmp(kind, "value_ints") == 0 ? attribute->n_ints : attribute->n_floats)};
    if (strcmp(kind, "value_float") == 0) {
        return leat_graph_add_constant(graph, name, LEAT_DTYPE_F32, 0, NULL, &attribute->f,
                                       &output->value);
    }
    if (strcmp(kind, "value_int") == 0) {
        return leat_graph_add_constant(graph, name, LEAT_DTYPE_I64, 0, NULL, &attribute->i,
                                       &output->value);
    }
    if (strcmp(kind, "value_floats") == 0) {
        return leat_graph_add_constant(graph, name, LEAT_DTYPE_F32, 1, count, attribute->floats,
                                       &output->value);
    }
    if (strcmp(kind, "value_ints") == 0) {
        return leat_graph_add_constant(graph, name, LEAT_DTYPE_I64, 1, count, attribute->ints,
                                       &output->value);
    }
    return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "attribute '%.64s' is not supported", kind);
}

static enum leat_status
read_attributes(struct importer *importer, const Onnx__NodeProto *proto, const struct leat_op *op,
                struct leat_attribute **ret)
{
    if (proto->n_attribute > LEAT_NODE_ARITY_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "it has %zu attributes", proto->n_attribute);
    }
    *ret = leat_graph_alloc(importer->graph, proto->n_attribute, sizeof(**ret));
    if (*ret == NULL) {
        return LEAT_ERR_NOMEM;
    }
    for (size_t a = 0; a < proto->n_attribute; a++) {
        const enum leat_status status =
            read_attribute(importer->graph, op, proto->attribute[a], &(*ret)[a]);
        if (status != LEAT_OK) {
            return leat_err_prefix(status, "attribute '%.64s'",
                                   or_empty(proto->attribute[a]->name));
        }
    }
    return LEAT_OK;
}

/* Inputs to indices and outputs to new values; sort_nodes() made sure that all inputs are there. */
static enum leat_status
resolve_names(struct importer *importer, const Onnx__NodeProto *proto)
{
    uint32_t *next = importer->lists;

    for (size_t i = 0; i < proto->n_input; i++) {
        const char *name = or_empty(proto->input[i]);
        *next++ = name[0] != '\0' ? find(importer, name)->value : LEAT_VALUE_NONE;
    }
    for (size_t o = 0; o < proto->n_output; o++, next++) {
        const char *name = or_empty(proto->output[o]);
        *next = LEAT_VALUE_NONE;
        if (name[0] == '\0') {
            /* The first output is always there; some operators (LSTM) may have it that nobody reads it. */
            if (o == 0 && proto->n_output > 1) {
                const enum leat_status status = leat_graph_add_value(
                    importer->graph, "(unread)", LEAT_DTYPE_F32, 0, NULL, next);
                if (status != LEAT_OK) {
                    return status;
                }
            }
            continue;
        }
        struct entry *entry = find(importer, name);
        const char *copy = leat_graph_text(importer->graph, name);
        const enum leat_status status =
            copy == NULL ? LEAT_ERR_NOMEM
                         : leat_graph_add_value(importer->graph, copy, LEAT_DTYPE_F32, 0, NULL,
                                                &entry->value);
        if (status != LEAT_OK) {
            return status;
        }
        *next = entry->value;
    }
    return LEAT_OK;
}

/*
 * A rank can depend on numbers that the file computes from constants. They are computed only where a shape
 * cannot be inferred otherwise, and every node once.
 */
static enum leat_status
infer_last(struct importer *importer)
{
    struct leat_graph *graph = importer->graph;
    bool changed;

    enum leat_status status = leat_graph_infer_node(graph, &graph->nodes[graph->node_count - 1]);
    if (status != LEAT_ERR_UNSUPPORTED) {
        return status;
    }
    if (importer->data == NULL) {
        importer->data = calloc(LEAT_GRAPH_VALUES_MAX, sizeof(*importer->data));
    }
    if (importer->data == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to fold constants");
    }
    status = leat_graph_fold_from(graph, importer->folded, importer->data, &changed);
    importer->folded = graph->node_count;
    return status;
}

static enum leat_status
add_ordinary(struct importer *importer, const Onnx__NodeProto *proto, const struct leat_op *op,
             const char *name)
{
    struct leat_graph *graph = importer->graph;
    struct leat_attribute *attributes = NULL;

    enum leat_status status = read_attributes(importer, proto, op, &attributes);
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "node '%.64s' (operator %s)", name, op->name);
    }
    status = resolve_names(importer, proto);
    if (status == LEAT_OK) {
        status = leat_graph_add_node(graph, op, name, importer->lists, (uint32_t)proto->n_input,
                                     importer->lists + proto->n_input, (uint32_t)proto->n_output,
                                     attributes, (uint32_t)proto->n_attribute);
    }
    return status == LEAT_OK ? infer_last(importer) : status;
}

static enum leat_status
add_node(struct importer *importer, const Onnx__NodeProto *proto)
{
    const char *output = proto->n_output > 0 ? or_empty(proto->output[0]) : "";
    const char *given = or_empty(proto->name);
    const char *name = leat_graph_text(importer->graph, given[0] != '\0' ? given : output);
    const struct leat_op *op;

    if (name == NULL) {
        return LEAT_ERR_NOMEM;
    }
    const enum leat_status status = find_operator(importer, proto, name, &op);
    if (status != LEAT_OK) {
        return status;
    }
    if (op->kind != LEAT_OP_CONSTANT) {
        return add_ordinary(importer, proto, op, name);
    }
    if (output[0] == '\0') {
        return LEAT_FAIL(LEAT_ERR_PROTO, "node '%.64s' (operator Constant): it has no output",
                         name);
    }
    const enum leat_status made = add_constant(importer, proto, find(importer, output));
    return made == LEAT_OK ? LEAT_OK
                           : leat_err_prefix(made, "node '%.64s' (operator Constant)", name);
}

static enum leat_status
add_outputs(struct importer *importer)
{
    const uint32_t count = (uint32_t)importer->proto->n_output;
    if (importer->proto->n_output == 0 || importer->proto->n_output > LEAT_NODE_ARITY_MAX) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "a graph with %zu outputs", importer->proto->n_output);
    }
    uint32_t *outputs = leat_graph_alloc(importer->graph, count, sizeof(*outputs));
    if (outputs == NULL) {
        return LEAT_ERR_NOMEM;
    }
    for (uint32_t o = 0; o < count; o++) {
        const char *name = or_empty(importer->proto->output[o]->name);
        const struct entry *entry = find(importer, name);
        if (entry == NULL) {
            return LEAT_FAIL(LEAT_ERR_PROTO, "output '%.64s' is never computed", name);
        }
        outputs[o] = entry->value;
    }
    return leat_graph_set_outputs(importer->graph, outputs, count);
}

static enum leat_status
import_graph(struct importer *importer)
{
    enum leat_status status = allocate(importer);

    if (importer->proto->n_sparse_initializer > 0) {
        status = LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "sparse initialisers are not supported");
    }
    if (status == LEAT_OK) {
        status = collect_names(importer);
    }
    if (status == LEAT_OK) {
        status = sort_nodes(importer);
    }
    if (status == LEAT_OK) {
        status = add_initialisers(importer);
    }
    if (status == LEAT_OK) {
        status = add_inputs(importer);
    }
    for (size_t n = 0; n < importer->proto->n_node && status == LEAT_OK; n++) {
        status = add_node(importer, importer->proto->node[importer->order[n]]);
    }
    return status == LEAT_OK ? add_outputs(importer) : status;
}

static enum leat_status
find_opset(const Onnx__ModelProto *model, int64_t *ret)
{
    for (size_t i = 0; i < model->n_opset_import; i++) {
        const char *domain = or_empty(model->opset_import[i]->domain);
        if (domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0) {
            *ret = model->opset_import[i]->version;
            if (*ret < LEAT_OPSET_MIN || *ret > LEAT_OPSET_MAX) {
                return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "opset %lld is not supported; %d to %d are",
                                 (long long)*ret, LEAT_OPSET_MIN, LEAT_OPSET_MAX);
            }
            return LEAT_OK;
        }
    }
    return LEAT_FAIL(LEAT_ERR_PROTO, "the file names no opset of the standard operators");
}

static enum leat_status
import_model(const Onnx__ModelProto *model, struct leat_graph **ret_graph)
{
    struct importer importer = {.proto = model->graph};
    int64_t opset = 0;

    if (model->graph == NULL) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "there is no graph in the file");
    }
    enum leat_status status = find_opset(model, &opset);
    if (status == LEAT_OK) {
        status = leat_graph_create(or_empty(model->graph->name), opset, &importer.graph);
    }
    if (status == LEAT_OK) {
        status = import_graph(&importer);
    }
    free(importer.entries);
    free(importer.sorted);
    free(importer.order);
    free(importer.lists);
    free(importer.data);
    if (status != LEAT_OK) {
        leat_graph_destroy(importer.graph);
        return status;
    }
    *ret_graph = importer.graph;
    return LEAT_OK;
}

enum leat_status
leat_onnx_import(const void *bytes, size_t byte_count, struct leat_graph **ret_graph)
{
    ProtobufCMessage *message = NULL;

    enum leat_status status =
        leat_onnx_unpack(&onnx__model_proto__descriptor, bytes, byte_count, &message);
    if (status == LEAT_OK) {
        status = import_model((const Onnx__ModelProto *)(const void *)message, ret_graph);
    }
    leat_onnx_free(message);
    return status;
}
