/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ONNX file to graph: names become indices, nodes are put in order and checked against the operator
 * table, shapes are inferred.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/infer/infer.h"
#include "kernels/mapping.h"
#include "kernels/onnx/importer.h"
#include "kernels/op.h"

/* A constant of a type that graphs do not have is none of them: nobody may read it, and dead code does not matter. */
static bool
set_aside(struct entry *entry, const Onnx__TensorProto *tensor)
{
    const bool foreign = tensor->has_data_type && tensor->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__UNDEFINED &&
                         leat_dtype_from_onnx(tensor->data_type) == LEAT_DTYPE_NONE;
    entry->foreign_type = foreign ? tensor->data_type : 0;
    return foreign;
}

/* The node reads that value, or a graph inside it does. */
static bool
reads(const Onnx__NodeProto *node, const char *name)
{
    bool found = false;

    for (size_t i = 0; i < node->n_input && !found; i++) {
        found = strcmp(leat_onnx_text(node->input[i]), name) == 0;
    }
    for (size_t a = 0; a < node->n_attribute && !found; a++) {
        const Onnx__GraphProto *graph = node->attribute[a]->g;
        for (size_t n = 0; graph != NULL && n < graph->n_node && !found; n++) {
            found = reads(graph->node[n], name);
        }
    }
    return found;
}

/* A tensor tells little about where in a model something is wrong: the first node that reads it does. */
static enum leat_status
name_reader(const struct importer *importer, const char *name, enum leat_status status)
{
    for (size_t n = 0; n < importer->proto->n_node; n++) {
        const Onnx__NodeProto *node = importer->proto->node[n];
        struct leat_onnx_number room;
        if (reads(node, name)) {
            return leat_err_prefix(status, "node '%.64s' (operator %.64s) reads '%.64s'", leat_onnx_node_name(node, n, &room),
                                   leat_onnx_text(node->op_type), name);
        }
    }
    return status;
}

enum { PATH_BYTES = 512 }; /* at most: a name may be a file long, and of thousands of calls */

const char *
leat_onnx_path(const struct importer *importer, const char *name)
{
    const struct call *call = leat_onnx_call_around(importer);
    char path[PATH_BYTES + 2];

    if (call == NULL) {
        return leat_graph_text(importer->graph, name);
    }
    if (snprintf(path, sizeof(path), "%s/%s", call->name, name) > PATH_BYTES) {
        size_t bytes = PATH_BYTES;
        while ((path[bytes] & 0xc0) == 0x80) { /* no part of a character; call->name has none */
            bytes--;
        }
        path[bytes] = '\0';
    }
    return leat_graph_text(importer->graph, path);
}

const char *
leat_onnx_value_name(const struct importer *importer, const struct entry *entry)
{
    return entry->shown != NULL ? entry->shown : leat_onnx_path(importer, entry->name);
}

static enum leat_status
add_initialiser(struct importer *importer, struct entry *entry, const Onnx__TensorProto *tensor,
                const Onnx__SparseTensorProto *sparse)
{
    if (tensor != NULL && set_aside(entry, tensor)) {
        return LEAT_OK;
    }
    const char *name = leat_onnx_path(importer, entry->name);
    if (name == NULL) {
        return leat_graph_shortage(importer->graph);
    }
    const enum leat_status status =
        sparse != NULL ? leat_onnx_sparse(importer->graph, name, sparse, &entry->value)
                       : leat_onnx_tensor(importer->graph, importer->files, name, tensor, &entry->value);
    return status == LEAT_OK ? LEAT_OK : name_reader(importer, entry->name, status);
}

static enum leat_status
add_initialisers(struct importer *importer)
{
    const Onnx__GraphProto *proto = importer->proto;
    struct entry *sparse = importer->entries + proto->n_initializer;
    enum leat_status status = LEAT_OK;

    for (size_t i = 0; i < proto->n_initializer && status == LEAT_OK; i++) {
        status = add_initialiser(importer, &importer->entries[i], proto->initializer[i], NULL);
    }
    for (size_t i = 0; i < proto->n_sparse_initializer && status == LEAT_OK; i++) {
        status = add_initialiser(importer, &sparse[i], proto->sparse_initializer[i]->values, proto->sparse_initializer[i]);
    }
    return status;
}

/* NULL when the dimension has a number; else its name, perhaps "". */
static const char *
free_name(const Onnx__TensorShapeProto__Dimension *dim)
{
    switch (dim->value_case) {
    case ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE:
        return dim->dim_value >= 0 ? NULL : "";
    case ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM:
        return strcmp(leat_onnx_text(dim->dim_param), "?") == 0 ? "" : leat_onnx_text(dim->dim_param); /* PaddlePaddle for none */
    default:
        return "";
    }
}

/* Whoever adds the model says what it is. */
static bool
has_value(const struct importer *importer, const char *name)
{
    const struct leat_onnx_source *source = importer->files->source;
    bool has = false;

    for (uint32_t v = 0; v < source->dim_count && !has; v++) {
        has = strcmp(source->dims[v].name, name) == 0;
    }
    return has;
}

enum { SYMBOL_BYTES = 96 };

/* What the file calls a free dimension, else INPUT.AXIS. */
static const char *
symbol_name(const char *given, const char *input, size_t axis, char number[SYMBOL_BYTES])
{
    (void)snprintf(number, SYMBOL_BYTES, "%.64s.%zu", input, axis);
    return given[0] != '\0' ? given : number;
}

/* A free dimension of input `input`: the batch or a symbol. Unless the batch is named, the first of an input is it. */
static enum leat_status
find_symbol(const struct importer *importer, const char *given, const char *input, size_t axis,
            int64_t *ret_dim)
{
    struct leat_graph *graph = importer->graph;
    char number[SYMBOL_BYTES];

    const char *name = leat_graph_text(graph, symbol_name(given, input, axis, number));
    if (name == NULL) {
        return leat_graph_shortage(graph);
    }
    const bool is_batch = importer->batch[0] != '\0' && strcmp(graph->batch_named ? name : given, importer->batch) == 0;
    if ((is_batch || (axis == 0 && !graph->batch_named)) && !has_value(importer, name)) {
        *ret_dim = LEAT_DIM_BATCH;
        return LEAT_OK;
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
        char text[32];
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "input '%.64s' has the ONNX type %s, which is not supported%s", entry->name,
                         leat_onnx_type_text(type->tensor_type->elem_type, text),
                         leat_onnx_constant_input(importer, entry->name) != NULL ? ": only an input of numbers can be constant" : "");
    }
    const Onnx__TensorShapeProto *shape = type->tensor_type->shape;
    const enum leat_status status = read_input_shape(importer, entry->name, shape, dtype, dims);
    if (status != LEAT_OK) {
        return status;
    }
    const char *name = leat_graph_text(importer->graph, entry->name);
    return name == NULL ? leat_graph_shortage(importer->graph)
                        : leat_graph_add_value(importer->graph, name, dtype, (uint32_t)shape->n_dim,
                                               dims, &entry->value);
}

/* What the file calls the batch: the first input whose first dimension is free, and given no value, says so. */
static const char *
find_batch(const struct importer *importer)
{
    const struct entry *entries = leat_onnx_input_entries(importer);
    char number[SYMBOL_BYTES];

    for (size_t i = 0; i < importer->proto->n_input; i++) {
        const Onnx__TypeProto *type = importer->proto->input[i]->type;
        if (leat_onnx_find(importer, entries[i].name) == &entries[i] && type != NULL &&
            type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && type->tensor_type != NULL &&
            type->tensor_type->shape != NULL && type->tensor_type->shape->n_dim > 0) {
            const char *name = free_name(type->tensor_type->shape->dim[0]);
            if (name != NULL && !has_value(importer, symbol_name(name, entries[i].name, 0, number))) {
                return name;
            }
        }
    }
    return "";
}

/* What an inner graph is given has the type and shape of what it is called with: inference fills them in. */
static enum leat_status
add_inner_input(struct importer *importer, struct entry *entry)
{
    const char *name = leat_onnx_path(importer, entry->name);
    return name == NULL ? leat_graph_shortage(importer->graph)
                        : leat_graph_add_value(importer->graph, name, LEAT_DTYPE_F32, 0, NULL, &entry->value);
}

static bool
has_batch(const struct leat_graph *graph)
{
    bool has = false;

    for (uint32_t i = 0; i < graph->input_count; i++) {
        const struct leat_value *input = &graph->values[graph->inputs[i]];
        has = has || leat_has_batch(input, 0, input->rank);
    }
    return has;
}

static enum leat_status
add_inputs(struct importer *importer)
{
    struct entry *entries = leat_onnx_input_entries(importer);
    const uint32_t count = (uint32_t)importer->proto->n_input;
    uint32_t *inputs = leat_graph_alloc(importer->graph, count, sizeof(*inputs));
    uint32_t kept = 0;

    if (inputs == NULL) {
        return leat_graph_shortage(importer->graph);
    }
    const char *named = importer->parent == NULL && importer->files != NULL ? importer->files->source->batch : NULL;
    importer->graph->batch_named = named != NULL;
    importer->batch = named != NULL ? named : find_batch(importer);
    for (uint32_t i = 0; i < count; i++) {
        if (leat_onnx_find(importer, entries[i].name) != &entries[i]) {
            continue; /* the name leads to its initialiser */
        }
        const enum leat_status status = importer->parent != NULL
                                            ? add_inner_input(importer, &entries[i])
                                            : add_input(importer, &entries[i], importer->proto->input[i]->type);
        if (status != LEAT_OK) {
            return status;
        }
        inputs[kept++] = entries[i].value;
    }
    const enum leat_status status = leat_graph_set_inputs(importer->graph, inputs, kept);
    return status == LEAT_OK && named != NULL && !has_batch(importer->graph)
               ? LEAT_FAIL(LEAT_ERR_INVALID, "no free dimension of an input is called '%.64s': it cannot count items", named)
               : status;
}

/* The standard says that what is in a function means the same at the model's opset. Where that may not be so, it is refused. */
static enum leat_status
check_opset(const struct importer *importer, const struct leat_op *op, const char *name)
{
    const struct call *call = leat_onnx_call_around(importer);
    const int64_t opset = importer->graph->opset;

    if (call == NULL || call->opset == opset ||
        (call->opset >= LEAT_ONNX_ALIKE_OPSET && opset >= LEAT_ONNX_ALIKE_OPSET && leat_op_find(op->name, call->opset) == op)) {
        return LEAT_OK;
    }
    return LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                     "node '%.64s' (operator %s): opset %lld of the function that it is in may mean another operator than the "
                     "model's, %lld",
                     name, op->name, (long long)call->opset, (long long)opset);
}

static enum leat_status
find_operator(const struct importer *importer, const Onnx__NodeProto *proto, const char *name,
              const struct leat_op **ret_op)
{
    const char *domain = leat_onnx_text(proto->domain), *type = leat_onnx_text(proto->op_type);
    const bool standard = domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0;
    const int64_t opset = importer->graph->opset;
    uint32_t oldest, newest;

    *ret_op = standard ? leat_op_find(type, opset) : NULL;
    if (*ret_op != NULL) {
        return check_opset(importer, *ret_op, name);
    }
    if (standard && leat_op_known(type, &oldest, &newest)) {
        const bool newer = opset > (int64_t)newest;
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "node '%.64s' (operator %.64s) is not supported at opset %lld: %s %u", name,
                         type, (long long)opset, newer ? "up to" : "from", newer ? newest : oldest);
    }
    return LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                     "node '%.64s' (operator %.64s, domain '%.32s') is not supported; "
                     "docs/operators.md lists the operators that are",
                     name, type, domain);
}

static bool
schema_kind(const Onnx__AttributeProto *proto, const struct leat_op *op, enum leat_attribute_kind *ret)
{
    for (const struct leat_op_attribute *schema = op->attributes; schema->name != NULL; schema++) {
        if (strcmp(schema->name, leat_onnx_text(proto->name)) == 0) {
            *ret = schema->kind;
            return true;
        }
    }
    return false;
}

/* The kind that a TYPE stands for; false for lists of graphs, sparse tensors and the like. */
static bool
attribute_kind(const Onnx__AttributeProto *proto, const struct leat_op *op,
               enum leat_attribute_kind *ret)
{
    enum leat_attribute_kind expected;

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
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH:
        *ret = LEAT_ATTRIBUTE_GRAPH;
        return schema_kind(proto, op, &expected) && expected == LEAT_ATTRIBUTE_GRAPH;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED:
        /* The first files had no type: it is what the operator expects. */
        return schema_kind(proto, op, ret);
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
        return leat_graph_shortage(graph);
    }
    if (bytes->len > 0) {
        memcpy(copy, bytes->data, bytes->len);
    }
    *ret = leat_graph_text(graph, copy);
    return *ret != NULL ? LEAT_OK : leat_graph_shortage(graph);
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
        return leat_graph_shortage(graph);
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
        return leat_graph_shortage(graph);
    }
    for (size_t i = 0; i < proto->n_strings && status == LEAT_OK; i++) {
        status = copy_bytes(graph, &proto->strings[i], &strings[i]);
    }
    ret->strings = strings;
    ret->count = (uint32_t)proto->n_strings;
    return status;
}

static enum leat_status read_inner_graph(struct importer *importer, const struct leat_op *op, const Onnx__GraphProto *proto,
                                         struct leat_attribute *ret);

static enum leat_status
read_attribute(struct importer *importer, const struct leat_op *op, const Onnx__AttributeProto *proto,
               struct leat_attribute *ret)
{
    struct leat_graph *graph = importer->graph;
    const void *numbers = NULL;
    enum leat_status status = LEAT_OK;

    *ret = (struct leat_attribute){.name = leat_graph_text(graph, leat_onnx_text(proto->name))};
    if (ret->name == NULL) {
        return leat_graph_shortage(graph);
    }
    if (!attribute_kind(proto, op, &ret->kind)) {
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
                                  : leat_onnx_tensor(graph, importer->files, ret->name, proto->t, &ret->value);
        break;
    case LEAT_ATTRIBUTE_GRAPH:
        status = proto->g == NULL ? LEAT_FAIL(LEAT_ERR_PROTO, "there is no graph in it")
                                  : read_inner_graph(importer, op, proto->g, ret);
        break;
    }
    return status;
}

/* Constant: one attribute out of several, directly as a constant value without a node. */
static enum leat_status
add_constant(struct importer *importer, const Onnx__NodeProto *proto, struct entry *output)
{
    struct leat_graph *graph = importer->graph;
    const char *name = leat_onnx_value_name(importer, output);
    const Onnx__AttributeProto *attribute = NULL;
    Onnx__AttributeProto room;
    enum leat_status status = LEAT_OK;
    if (name == NULL) {
        return leat_graph_shortage(graph);
    }
    if (proto->n_attribute == 1) {
        status = leat_onnx_dereference(importer, proto->attribute[0], &room, &attribute);
    }
    if (status != LEAT_OK) {
        return status;
    }
    if (attribute == NULL || proto->n_input != 0 || proto->n_output != 1) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "it needs exactly one attribute, one output and no input");
    }
    const char *kind = leat_onnx_text(attribute->name);
    if (strcmp(kind, "value_string") == 0 || strcmp(kind, "value_strings") == 0) {
        output->foreign_type = ONNX__TENSOR_PROTO__DATA_TYPE__STRING;
        return LEAT_OK;
    }
    if (strcmp(kind, "value") == 0 && attribute->t != NULL) {
        if (set_aside(output, attribute->t)) {
            return LEAT_OK;
        }
        return leat_onnx_tensor(graph, importer->files, name, attribute->t, &output->value);
    }
    if (strcmp(kind, "sparse_value") == 0 && attribute->sparse_tensor != NULL) {
        const Onnx__TensorProto *values = attribute->sparse_tensor->values;
        return values != NULL && set_aside(output, values)
                   ? LEAT_OK
                   : leat_onnx_sparse(graph, name, attribute->sparse_tensor, &output->value);
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
                struct leat_attribute **ret, uint32_t *ret_count)
{
    uint32_t count = 0;

    if (proto->n_attribute > LEAT_NODE_ARITY_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "it has %zu attributes", proto->n_attribute);
    }
    *ret = leat_graph_alloc(importer->graph, proto->n_attribute, sizeof(**ret));
    if (*ret == NULL) {
        return leat_graph_shortage(importer->graph);
    }
    for (size_t a = 0; a < proto->n_attribute; a++) {
        const Onnx__AttributeProto *attribute = NULL;
        Onnx__AttributeProto room;
        enum leat_status status = leat_onnx_dereference(importer, proto->attribute[a], &room, &attribute);
        if (status == LEAT_OK && attribute != NULL) {
            status = read_attribute(importer, op, attribute, &(*ret)[count++]);
        }
        if (status != LEAT_OK) {
            return leat_err_prefix(status, "attribute '%.64s'",
                                   leat_onnx_text(proto->attribute[a]->name));
        }
    }
    *ret_count = count;
    return LEAT_OK;
}

enum leat_status
leat_onnx_resolve(struct importer *importer, const char *name, uint32_t *ret)
{
    const struct entry *entry = leat_onnx_find(importer, name);
    uint32_t outer = LEAT_VALUE_NONE;

    if (entry != NULL && entry->foreign_type != 0) {
        char type[32];
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "'%.64s' is a constant of the ONNX type %s, which is not supported", name,
                         leat_onnx_type_text(entry->foreign_type, type));
    }
    if (entry != NULL && entry->tensors != NULL) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "'%.64s' is a sequence, which operators of sequences alone can read", name);
    }
    if (entry != NULL) {
        *ret = entry->value;
        return entry->value != LEAT_VALUE_NONE || entry->left_out
                   ? LEAT_OK
                   : LEAT_FAIL(LEAT_ERR_PROTO, "'%.64s' is read before it is computed", name);
    }
    if (importer->parent == NULL || importer->call != NULL) { /* nothing around is seen */
        return LEAT_FAIL(LEAT_ERR_PROTO, "nothing defines '%.64s'", name);
    }
    for (uint32_t c = 0; c < importer->capture_count; c++) {
        if (strcmp(importer->captures[c].name, name) == 0) {
            *ret = importer->captures[c].inner;
            return LEAT_OK;
        }
    }
    enum leat_status status = leat_onnx_resolve(importer->parent, name, &outer);
    if (status == LEAT_OK && outer == LEAT_VALUE_NONE) {
        *ret = LEAT_VALUE_NONE;
        return LEAT_OK;
    }
    if (status == LEAT_OK && importer->capture_count == LEAT_ONNX_CAPTURES_MAX) {
        status = LEAT_FAIL(LEAT_ERR_LIMIT, "a graph reads more than %u values of those around it", LEAT_ONNX_CAPTURES_MAX);
    }
    const char *copy = status == LEAT_OK ? leat_onnx_path(importer, name) : NULL;
    if (status == LEAT_OK) {
        status = copy == NULL ? leat_graph_shortage(importer->graph)
                              : leat_graph_add_value(importer->graph, copy, LEAT_DTYPE_F32, 0, NULL, ret);
    }
    if (status == LEAT_OK) {
        importer->captures[importer->capture_count++] = (struct capture){.name = name, .outer = outer, .inner = *ret};
    }
    return status;
}

/* Inputs to indices and outputs to new values. */
static enum leat_status
resolve_names(struct importer *importer, const Onnx__NodeProto *proto)
{
    uint32_t *next = importer->lists;

    for (size_t i = 0; i < proto->n_input; i++, next++) {
        const char *name = leat_onnx_text(proto->input[i]);
        *next = LEAT_VALUE_NONE;
        const enum leat_status status = name[0] != '\0' ? leat_onnx_resolve(importer, name, next) : LEAT_OK;
        if (status != LEAT_OK) {
            return status;
        }
    }
    for (size_t o = 0; o < proto->n_output; o++, next++) {
        const char *name = leat_onnx_text(proto->output[o]);
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
        struct entry *entry = leat_onnx_find(importer, name);
        const char *shown = leat_onnx_value_name(importer, entry);
        const enum leat_status status =
            shown == NULL ? leat_graph_shortage(importer->graph)
                          : leat_graph_add_value(importer->graph, shown, LEAT_DTYPE_F32, 0, NULL,
                                                 &entry->value);
        if (status != LEAT_OK) {
            return status;
        }
        *next = entry->value;
    }
    return LEAT_OK;
}

enum leat_status
leat_onnx_fold(struct importer *importer)
{
    enum leat_status status = LEAT_OK;
    bool changed;

    if (importer->folding.count == 0) {
        status = leat_folding_init(&importer->folding, LEAT_GRAPH_VALUES_MAX);
    }
    if (status == LEAT_OK) {
        status = leat_graph_fold_from(importer->graph, importer->folded, &importer->folding, &changed);
        importer->folded = importer->graph->node_count;
    }
    return status;
}

/*
 * A rank can depend on numbers that the file computes from constants. They are computed only where a shape
 * cannot be inferred otherwise, and every node once. In front of graphs inside a node they always are: the branch that never
 * runs may not even fit.
 */
static enum leat_status
infer_last(struct importer *importer)
{
    struct leat_graph *graph = importer->graph;
    struct leat_node *node = &graph->nodes[graph->node_count - 1];

    if (!leat_node_has_graphs(node)) {
        const enum leat_status status = leat_graph_infer_node(graph, node);
        if (status != LEAT_ERR_UNSUPPORTED) {
            return status;
        }
    }
    return leat_onnx_fold(importer);
}

/* What the node's graphs capture stands behind its own inputs. */
static enum leat_status
append_captures(struct importer *importer, const struct leat_attribute *attributes, uint32_t attribute_count,
                uint32_t **inputs, uint32_t *input_count)
{
    uint32_t total = 0, *longer, next = *input_count;

    for (uint32_t a = 0; a < attribute_count; a++) {
        total += attributes[a].kind == LEAT_ATTRIBUTE_GRAPH ? attributes[a].count : 0;
    }
    if (total == 0) {
        return LEAT_OK;
    }
    longer = leat_graph_alloc(importer->graph, (size_t)*input_count + total, sizeof(*longer));
    if (longer == NULL) {
        return leat_graph_shortage(importer->graph);
    }
    memcpy(longer, *inputs, *input_count * sizeof(*longer));
    for (uint32_t a = 0; a < attribute_count; a++) {
        if (attributes[a].kind == LEAT_ATTRIBUTE_GRAPH) {
            memcpy(longer + next, attributes[a].captured, attributes[a].count * sizeof(*longer));
            next += attributes[a].count;
        }
    }
    *inputs = longer;
    *input_count = next;
    return LEAT_OK;
}

/* An inner graph is inferred with the node that it is part of. */
static enum leat_status
put_node(struct importer *importer, const struct leat_op *op, const char *name, const uint32_t *inputs, uint32_t input_count,
         const uint32_t *outputs, uint32_t output_count, const struct leat_attribute *attributes, uint32_t attribute_count)
{
    struct leat_graph *graph = importer->graph;

    enum leat_status status =
        leat_graph_add_node(graph, op, name, inputs, input_count, outputs, output_count, attributes, attribute_count);
    if (status != LEAT_OK || importer->parent != NULL) {
        return status;
    }
    leat_graph_absorb(&graph->nodes[graph->node_count - 1], graph);
    status = infer_last(importer);
    if (status == LEAT_OK && importer->halves != NULL) {
        leat_onnx_note_widened(importer, op, inputs, input_count, outputs, output_count);
    }
    return status;
}

enum leat_status
leat_onnx_put_node(struct importer *importer, const struct leat_op *op, const char *name, uint32_t *inputs, uint32_t input_count,
                   const uint32_t *outputs, uint32_t output_count, const struct leat_attribute *attributes,
                   uint32_t attribute_count)
{
    const enum leat_status status =
        importer->parent == NULL ? leat_onnx_widen_inputs(importer, op, inputs, input_count) : LEAT_OK;
    return status == LEAT_OK ? put_node(importer, op, name, inputs, input_count, outputs, output_count, attributes,
                                        attribute_count)
                             : leat_err_prefix(status, "node '%.64s' (operator %s)", name, op->name);
}

static enum leat_status
add_ordinary(struct importer *importer, const Onnx__NodeProto *proto, const struct leat_op *op,
             const char *name)
{
    struct leat_attribute *attributes = NULL;
    uint32_t *inputs = importer->lists;
    uint32_t input_count = (uint32_t)proto->n_input, attribute_count = 0;

    enum leat_status status = read_attributes(importer, proto, op, &attributes, &attribute_count);
    if (status == LEAT_OK) {
        status = resolve_names(importer, proto);
    }
    if (status == LEAT_OK) {
        status = append_captures(importer, attributes, attribute_count, &inputs, &input_count);
    }
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "node '%.64s' (operator %s)", name, op->name);
    }
    const uint32_t *outputs = importer->lists + proto->n_input;
    return inputs != importer->lists /* with graphs inside */
               ? put_node(importer, op, name, inputs, input_count, outputs, (uint32_t)proto->n_output, attributes, attribute_count)
               : leat_onnx_put_node(importer, op, name, inputs, input_count, outputs, (uint32_t)proto->n_output, attributes,
                                    attribute_count);
}

/* Behind the inputs of an LSTM it has the scales and zero points of two of them. */
static enum leat_status
add_quantised_lstm(struct importer *importer, const Onnx__NodeProto *proto, const char *name)
{
    enum { W = 1, R = 2, INPUTS = 8, ALL = INPUTS + 4 };
    const struct leat_op *op = leat_op_find("LSTM", importer->graph->opset);
    struct leat_attribute *attributes = NULL;
    uint32_t attribute_count = 0, *inputs = importer->lists;

    if (op == NULL || proto->n_input != ALL) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "%zu inputs, or an opset without LSTM", proto->n_input);
    }
    enum leat_status status = read_attributes(importer, proto, op, &attributes, &attribute_count);
    if (status == LEAT_OK) {
        status = resolve_names(importer, proto);
    }
    if (status == LEAT_OK) {
        status = leat_onnx_dequantise_weights(importer, &inputs[W], inputs[INPUTS], inputs[INPUTS + 1]);
    }
    if (status == LEAT_OK) {
        status = leat_onnx_dequantise_weights(importer, &inputs[R], inputs[INPUTS + 2], inputs[INPUTS + 3]);
    }
    return status == LEAT_OK ? leat_onnx_put_node(importer, op, name, inputs, INPUTS, inputs + ALL, (uint32_t)proto->n_output,
                                                  attributes, attribute_count)
                             : status;
}

/* What the table of operators has not, and becomes nodes of such that it has. */
static enum leat_status
add_other(struct importer *importer, const Onnx__NodeProto *proto, const char *name)
{
    const enum leat_status status = leat_onnx_is_quantised_lstm(proto) ? add_quantised_lstm(importer, proto, name)
                                                                       : leat_onnx_add_of_tensors(importer, proto, name);
    return status == LEAT_OK ? LEAT_OK
                             : leat_err_prefix(status, "node '%.64s' (operator %.64s)", name, leat_onnx_text(proto->op_type));
}

enum leat_status
leat_onnx_add_node(struct importer *importer, const Onnx__NodeProto *proto, size_t number)
{
    struct leat_onnx_number room;
    const char *output = proto->n_output > 0 ? leat_onnx_text(proto->output[0]) : "";
    const char *name = leat_onnx_path(importer, leat_onnx_node_name(proto, number, &room));
    const struct leat_op *op;

    if (name == NULL) {
        return leat_graph_shortage(importer->graph);
    }
    const enum leat_status status = find_operator(importer, proto, name, &op);
    const struct function *function = op == NULL ? leat_onnx_find_function(importer->functions, proto) : NULL;
    if (function != NULL) {
        return leat_onnx_add_call(importer, proto, name, function);
    }
    if (op == NULL && (leat_onnx_is_of_tensors(importer, proto) || leat_onnx_is_quantised_lstm(proto))) {
        return add_other(importer, proto, name);
    }
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
    const enum leat_status made = add_constant(importer, proto, leat_onnx_find(importer, output));
    return made == LEAT_OK ? LEAT_OK
                           : leat_err_prefix(made, "node '%.64s' (operator Constant)", name);
}

/* Of an outermost graph's output that is a sequence, else NULL. */
static const struct tensors *
tensors_of(const struct importer *importer, const Onnx__ValueInfoProto *output)
{
    const struct entry *entry = importer->parent == NULL ? leat_onnx_find(importer, leat_onnx_text(output->name)) : NULL;
    return entry != NULL ? entry->tensors : NULL;
}

/* How many values they are: a sequence is as many outputs. */
static uint64_t
count_outputs(const struct importer *importer)
{
    uint64_t count = 0;

    for (size_t o = 0; o < importer->proto->n_output; o++) {
        const struct tensors *tensors = tensors_of(importer, importer->proto->output[o]);
        count += tensors != NULL ? tensors->count : 1;
    }
    return count;
}

static enum leat_status
find_output(struct importer *importer, const char *name, uint32_t *ret)
{
    if (leat_onnx_find(importer, name) == NULL && importer->parent == NULL) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "output '%.64s' is never computed", name);
    }
    const enum leat_status status = leat_onnx_resolve(importer, name, ret);
    return status == LEAT_OK && *ret == LEAT_VALUE_NONE
               ? LEAT_FAIL(LEAT_ERR_PROTO, "output '%.64s' of a graph is an input of a function that is left out", name)
               : status;
}

/* A number that the file has for a dimension: 0, and what is below, is what exporters write for one that they do not know. */
static bool
has_number(const Onnx__TensorShapeProto__Dimension *dim)
{
    return dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && dim->dim_value > 0;
}

static bool
fits(const struct leat_value *value, const Onnx__TensorShapeProto *said)
{
    bool fits = said->n_dim == value->rank;

    for (uint32_t d = 0; fits && d < value->rank && !value->bounded; d++) {
        fits = !has_number(said->dim[d]) || value->dims[d] < 0 || said->dim[d]->dim_value == value->dims[d];
    }
    return fits;
}

/* "[4,?,2]" */
static const char *
dims_text(const int64_t *dims, uint32_t rank, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");

    for (uint32_t d = 0; d < rank && used + 32 < bytes; d++) {
        used += (size_t)(dims[d] > 0 ? snprintf(text + used, bytes - used, "%s%lld", d > 0 ? "," : "", (long long)dims[d])
                                     : snprintf(text + used, bytes - used, "%s?", d > 0 ? "," : ""));
    }
    (void)snprintf(text + used, bytes - used, "]");
    return text;
}

/* The name of what makes the value; "" for an input or a constant. */
static const char *
maker_of(const struct leat_graph *graph, uint32_t value)
{
    for (uint32_t n = graph->node_count; n-- > 0;) {
        for (uint32_t o = 0; o < graph->nodes[n].output_count; o++) {
            if (graph->nodes[n].outputs[o] == value) {
                return graph->nodes[n].name;
            }
        }
    }
    return "";
}

/*
 * Dimensions of outputs that inference knows to be others than the file says. ONNX Runtime warns of them and runs the file, and some
 * that people publish are such; so it is served with what inference knows, and said. Of several outputs the first is named. What
 * sizes from outside the file made of it is for whoever gave them. No dimensions at all are what tools leave that took them away. What
 * the file says of values inside is nobody's contract, and is not looked at.
 */
static enum leat_status
compare_dims(const struct importer *importer, const char *name, uint32_t output, const Onnx__TensorShapeProto *said)
{
    const struct leat_onnx_source *source = importer->files->source;
    struct leat_graph *graph = importer->graph;
    const struct leat_value *value = &graph->values[output];
    int64_t dims[LEAT_RANK_MAX];
    char text[768], have[256], want[256];
    uint32_t rank = 0;

    if (source->dim_count > 0 || source->constant_count > 0 || graph->misdeclared != NULL || said == NULL || said->n_dim == 0 ||
        fits(value, said)) {
        return LEAT_OK;
    }
    for (; rank < said->n_dim && rank < LEAT_RANK_MAX; rank++) {
        dims[rank] = has_number(said->dim[rank]) ? said->dim[rank]->dim_value : 0;
    }
    (void)snprintf(text, sizeof(text), "output '%.64s' of node '%.64s' is %s, and not %s as the file says", name,
                   maker_of(graph, output), dims_text(value->dims, value->rank, have, sizeof(have)),
                   dims_text(dims, rank, want, sizeof(want)));
    graph->misdeclared = leat_graph_text(graph, text);
    return graph->misdeclared != NULL ? LEAT_OK : leat_graph_shortage(graph);
}

/* The file may say of an output what it is. Its type is what clients will read: it is true. Those of graphs inside are not known yet. */
static enum leat_status
check_output_type(const struct importer *importer, const Onnx__ValueInfoProto *declared, uint32_t output)
{
    const Onnx__TypeProto *type = declared->type;
    const uint32_t dtype = importer->graph->values[output].dtype;
    char text[32];

    if (importer->parent != NULL || type == NULL || type->value_case == ONNX__TYPE_PROTO__VALUE__NOT_SET) {
        return LEAT_OK;
    }
    if (type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || type->tensor_type == NULL) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "output '%.64s' is a tensor, and not what the file says", leat_onnx_text(declared->name));
    }
    const int32_t said = type->tensor_type->elem_type;
    if (said != ONNX__TENSOR_PROTO__DATA_TYPE__UNDEFINED && leat_dtype_from_onnx(said) != dtype) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "output '%.64s' has type %s, and not %s as the file says", leat_onnx_text(declared->name),
                         leat_dtype_text(dtype), leat_onnx_type_text(said, text));
    }
    return compare_dims(importer, leat_onnx_text(declared->name), output, type->tensor_type->shape);
}

static enum leat_status
add_output(struct importer *importer, const Onnx__ValueInfoProto *declared, uint32_t *outputs, uint32_t *count)
{
    const char *name = leat_onnx_text(declared->name);
    const struct tensors *tensors = tensors_of(importer, declared);
    const uint32_t first = *count;

    enum leat_status status = tensors != NULL ? leat_onnx_copy_tensors(importer, leat_onnx_find(importer, name), &outputs[first])
                                              : find_output(importer, name, &outputs[first]);
    *count += tensors != NULL ? tensors->count : 1;
    for (uint32_t o = first; o < *count && status == LEAT_OK && importer->halves != NULL; o++) {
        status = leat_onnx_narrow_output(importer, declared, &outputs[o]);
    }
    return status == LEAT_OK && tensors == NULL ? check_output_type(importer, declared, outputs[first]) : status;
}

static enum leat_status
add_outputs(struct importer *importer)
{
    const uint64_t count = count_outputs(importer);
    enum leat_status status = LEAT_OK;
    uint32_t added = 0;

    if (count == 0 || count > LEAT_NODE_ARITY_MAX) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "a graph with %llu outputs", (unsigned long long)count);
    }
    uint32_t *outputs = leat_graph_alloc(importer->graph, count, sizeof(*outputs));
    if (outputs == NULL) {
        return leat_graph_shortage(importer->graph);
    }
    for (size_t o = 0; o < importer->proto->n_output && status == LEAT_OK; o++) {
        status = add_output(importer, importer->proto->output[o], outputs, &added);
    }
    return status == LEAT_OK ? leat_graph_set_outputs(importer->graph, outputs, added) : status;
}

static enum leat_status
import_graph(struct importer *importer)
{
    enum leat_status status = leat_onnx_names_init(importer);

    if (status == LEAT_OK && importer->parent == NULL) {
        status = leat_onnx_check_constant_inputs(importer);
    }
    if (status == LEAT_OK) {
        status = add_initialisers(importer);
    }
    if (status == LEAT_OK) {
        status = add_inputs(importer);
    }
    if (status == LEAT_OK && importer->parent == NULL) {
        status = leat_graph_give_dims(importer->graph, importer->files->source->dims, importer->files->source->dim_count);
    }
    if (status == LEAT_OK && importer->parent == NULL && importer->files->source->constant_count > 0) {
        status = leat_onnx_make_constant_inputs(importer);
    }
    for (size_t n = 0; n < importer->proto->n_node && status == LEAT_OK; n++) {
        status = leat_onnx_add_node(importer, importer->proto->node[importer->order[n]], importer->order[n]);
    }
    return status == LEAT_OK ? add_outputs(importer) : status;
}

static void
importer_fini(struct importer *importer)
{
    leat_onnx_names_fini(importer);
    leat_folding_fini(&importer->folding);
    free(importer->halves);
    free(importer->captures);
}

/* The captures become the last inputs of the inner graph, and `ret` says which outer values they are. */
static enum leat_status
end_inner_graph(struct importer *inner, struct leat_attribute *ret)
{
    struct leat_graph *graph = inner->graph, *outer = inner->parent->graph;
    const uint32_t declared = graph->input_count, count = inner->capture_count;
    uint32_t *inputs = leat_graph_alloc(graph, (size_t)declared + count, sizeof(*inputs));
    uint32_t *captured = leat_graph_alloc(outer, count, sizeof(*captured));

    if (inputs == NULL || captured == NULL) {
        return leat_graph_shortage(inputs == NULL ? graph : outer);
    }
    memcpy(inputs, graph->inputs, declared * sizeof(*inputs));
    for (uint32_t c = 0; c < count; c++) {
        inputs[declared + c] = inner->captures[c].inner;
        captured[c] = inner->captures[c].outer;
    }
    ret->graph = graph;
    ret->count = count;
    ret->captured = captured;
    return leat_graph_set_inputs(graph, inputs, declared + count);
}

static enum leat_status
read_inner_graph(struct importer *importer, const struct leat_op *op, const Onnx__GraphProto *proto, struct leat_attribute *ret)
{
    struct importer inner = {.parent = importer,
                             .files = importer->files,
                             .functions = importer->functions,
                             .proto = proto,
                             .graphs = importer->graphs + 1,
                             .loops = importer->loops + (op->kind != LEAT_OP_IF),
                             .captures = calloc(LEAT_ONNX_CAPTURES_MAX, sizeof(*inner.captures))};

    enum leat_status status =
        inner.captures == NULL ? LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to import a graph inside a node")
        : inner.loops > LEAT_ONNX_LOOPS_MAX
            ? LEAT_FAIL(LEAT_ERR_LIMIT, "there are more than %u loops in each other", LEAT_ONNX_LOOPS_MAX)
        : inner.graphs > LEAT_ONNX_GRAPHS_MAX
            ? LEAT_FAIL(LEAT_ERR_LIMIT, "there are more than %u graphs in each other", LEAT_ONNX_GRAPHS_MAX)
            : leat_graph_create_inner(importer->graph, leat_onnx_text(proto->name), &inner.graph);
    if (status == LEAT_OK) {
        status = import_graph(&inner);
    }
    if (status == LEAT_OK) {
        status = end_inner_graph(&inner, ret);
    }
    importer_fini(&inner);
    return status;
}

/* Loops and branches that constants decide go at once: what is left mixes the items of a batch. */
static enum leat_status
unroll(struct leat_graph *graph)
{
    bool changed = false;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (leat_node_has_graphs(&graph->nodes[n])) {
            return leat_graph_fold(graph, &changed);
        }
    }
    return LEAT_OK;
}

static enum leat_status
find_opset(const Onnx__ModelProto *model, int64_t *ret)
{
    for (size_t i = 0; i < model->n_opset_import; i++) {
        const char *domain = leat_onnx_text(model->opset_import[i]->domain);
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

static bool
has_graphs(Onnx__NodeProto *const *nodes, size_t count)
{
    for (size_t n = 0; n < count; n++) {
        for (size_t a = 0; a < nodes[n]->n_attribute; a++) {
            if (nodes[n]->attribute[a]->g != NULL) {
                return true;
            }
        }
    }
    return false;
}

/*
 * Weights of convolutions and products stay where they lie: they are packed for the kernels. So do tables of look-ups in other
 * files, if their elements are aligned: a row is read element by element. In the model's own file they do not, wherever they
 * lie, for tables get huge pages.
 */
static bool
may_stay(const struct leat_node *node, uint32_t input, const struct leat_value *value, const struct leat_mapping *own)
{
    switch (node->op->kind) {
    case LEAT_OP_CONV:
    case LEAT_OP_GEMM:
    case LEAT_OP_MATMUL:
    case LEAT_OP_MATMUL_INTEGER:
        return input == 1;
    case LEAT_OP_GATHER:
        return input == 0 && value->mapping != own && leat_value_has_elements(value);
    default:
        return false;
    }
}

/* What lies in another file and is aligned for all, stays for all. */
static enum leat_status
settle(struct leat_graph *graph, const struct leat_mapping *own, uint32_t index)
{
    const struct leat_value *value = &graph->values[index];
    const bool stays = value->mapping == NULL || (value->mapping != own && leat_value_in_place(value));

    return stays ? LEAT_OK : leat_graph_unmap_constant(graph, index);
}

static enum leat_status
settle_others(struct leat_graph *graph, const struct leat_mapping *own)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t n = 0; n < graph->node_count && status == LEAT_OK; n++) {
        const struct leat_node *node = &graph->nodes[n];
        for (uint32_t i = 0; i < node->input_count && status == LEAT_OK; i++) {
            const uint32_t v = node->inputs[i];
            const bool stays = v == LEAT_VALUE_NONE || may_stay(node, i, &graph->values[v], own);
            status = stays ? LEAT_OK : settle(graph, own, v);
        }
    }
    for (uint32_t o = 0; o < graph->output_count && status == LEAT_OK; o++) {
        status = settle(graph, own, graph->outputs[o]);
    }
    return status;
}

static enum leat_status
import_model(const Onnx__ModelProto *model, const struct leat_onnx_source *source, struct leat_graph **ret_graph)
{
    struct leat_onnx_files files = {.source = source};
    struct functions functions = {.sorted = NULL};
    struct importer importer = {.proto = model->graph, .files = &files, .functions = &functions};
    int64_t opset = 0;

    if (model->graph == NULL) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "there is no graph in the file");
    }
    /* Constants that inner graphs read are theirs too: there, all are in place. */
    files.graphs_inside = has_graphs(model->graph->node, model->graph->n_node);
    for (size_t f = 0; f < model->n_functions; f++) {
        files.graphs_inside |= has_graphs(model->functions[f]->node, model->functions[f]->n_node);
    }
    files.in_place_min = files.graphs_inside            ? SIZE_MAX
                         : source->mapped_bytes_min > 0 ? source->mapped_bytes_min
                                                        : LEAT_MAPPED_BYTES_MIN;
    enum leat_status status = find_opset(model, &opset);
    if (status == LEAT_OK) {
        status = leat_onnx_functions_init(&functions, model);
    }
    if (status == LEAT_OK) {
        status = leat_graph_create(leat_onnx_text(model->graph->name), opset, &importer.graph);
    }
    if (status == LEAT_OK) {
        leat_graph_limit_memory(importer.graph, source->memory_bytes_max);
        importer.graph->trips_max = source->trips_max > 0 ? source->trips_max : LEAT_TRIPS_MAX;
        status = import_graph(&importer);
    }
    if (status == LEAT_OK) {
        status = unroll(importer.graph);
    }
    if (status == LEAT_OK) {
        status = settle_others(importer.graph, source->mapping);
    }
    const bool cut = source->mapping != NULL && leat_mapping_is_damaged(source->mapping);
    if (status == LEAT_OK && (cut || leat_graph_is_damaged(importer.graph))) {
        status = LEAT_FAIL(LEAT_ERR_PROTO, "a file of weights has become shorter");
    }
    importer_fini(&importer);
    leat_onnx_functions_fini(&functions);
    leat_onnx_files_close(&files);
    if (status != LEAT_OK) {
        leat_graph_destroy(importer.graph);
        return status;
    }
    *ret_graph = importer.graph;
    return LEAT_OK;
}

enum leat_status
leat_onnx_import_from(const struct leat_onnx_source *source, struct leat_graph **ret_graph)
{
    ProtobufCMessage *message = NULL;

    enum leat_status status =
        leat_onnx_unpack(&onnx__model_proto__descriptor, source->bytes, source->byte_count, source->memory_bytes_max,
                         &message);
    if (status == LEAT_OK && source->mapping != NULL) {
        leat_mapping_give_back(source->mapping); /* the system maps more than what was read */
    }
    if (status == LEAT_OK) {
        status = import_model((const Onnx__ModelProto *)(const void *)message, source, ret_graph);
    }
    if (source->mapping != NULL) {
        leat_mapping_give_back(source->mapping);
    }
    leat_onnx_free(message);
    return status;
}

enum leat_status
leat_onnx_import(const void *bytes, size_t byte_count, struct leat_graph **ret_graph)
{
    const struct leat_onnx_source source = {.bytes = bytes, .byte_count = byte_count, .folder_fd = -1};
    return leat_onnx_import_from(&source, ret_graph);
}
