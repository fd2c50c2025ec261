/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences of tensors, of which it is known while the file is read how many there are: operators of sequences are computed
 * here, on lists of values, and a graph has nodes of the tensors alone. Where a loop or a branch carries one, or a query brings it,
 * what runs says how many there are: such files are refused.
 */
#include <stdio.h>
#include <string.h>

#include "base/align.h"
#include "kernels/onnx/importer.h"
#include "kernels/op.h"

enum { SINCE = 11, AXES_ARE_INPUTS = 13 /* and sizes: of Unsqueeze and Split */ };

/* A node while it is added. */
struct maker {
    struct importer *importer;
    const Onnx__NodeProto *node;
    const char *name; /* of the node, and of what it is made of */
};

struct operator {
    const char *name;
    uint32_t input_min, input_max;
    enum leat_status (*add)(const struct maker *maker, struct entry *output);
};

/* ---- What nodes say --------------------------------------------------------------------------------------------- */

static const char *
input_name(const struct maker *maker, size_t input)
{
    return input < maker->node->n_input ? leat_onnx_text(maker->node->input[input]) : "";
}

static enum leat_status
read_int(const struct maker *maker, const char *name, bool required, int64_t *value)
{
    const Onnx__NodeProto *node = maker->node;

    for (size_t a = 0; a < node->n_attribute; a++) {
        const Onnx__AttributeProto *attribute = NULL;
        Onnx__AttributeProto room;
        if (strcmp(leat_onnx_text(node->attribute[a]->name), name) != 0) {
            continue;
        }
        const enum leat_status status = leat_onnx_dereference(maker->importer, node->attribute[a], &room, &attribute);
        if (status != LEAT_OK) {
            return status;
        }
        if (attribute != NULL) {
            *value = attribute->i;
            required = false;
        }
    }
    return required ? LEAT_FAIL(LEAT_ERR_PROTO, "attribute '%s' is missing", name) : LEAT_OK;
}

static enum leat_status
find_tensors(const struct maker *maker, size_t input, const struct tensors **ret)
{
    const char *name = input_name(maker, input);
    const struct entry *entry = leat_onnx_find(maker->importer, name);

    if (entry != NULL && entry->tensors != NULL) {
        *ret = entry->tensors;
        return LEAT_OK;
    }
    return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "'%.64s' is no sequence that the same graph makes, of as many tensors in each run",
                     name);
}

static enum leat_status
find_tensor(const struct maker *maker, size_t input, uint32_t *ret)
{
    const char *name = input_name(maker, input);
    const enum leat_status status = leat_onnx_resolve(maker->importer, name, ret);

    return status == LEAT_OK && *ret == LEAT_VALUE_NONE ? LEAT_FAIL(LEAT_ERR_PROTO, "input %zu is left out", input) : status;
}

/* Input `input`, which has to be whole numbers that are known. */
static enum leat_status
find_numbers(const struct maker *maker, size_t input, uint32_t *ret)
{
    struct importer *importer = maker->importer;
    struct leat_graph *graph = importer->graph;

    enum leat_status status = find_tensor(maker, input, ret);
    if (status == LEAT_OK && graph->values[*ret].data == NULL && importer->parent == NULL) {
        status = leat_onnx_fold(importer);
    }
    if (status == LEAT_OK && graph->values[*ret].data != NULL) {
        status = leat_graph_settle_constant(graph, *ret);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const struct leat_value *value = &graph->values[*ret];
    if (value->data == NULL) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "'%.64s' is not constant: it says how many tensors there are, or which",
                         input_name(maker, input));
    }
    return (value->dtype == LEAT_DTYPE_I64 || value->dtype == LEAT_DTYPE_I32) && value->rank <= 1
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_SHAPE, "'%.64s' is no whole number, nor a list of such", input_name(maker, input));
}

static int64_t
number(const struct leat_value *value, size_t i)
{
    return value->dtype == LEAT_DTYPE_I64 ? ((const int64_t *)value->data)[i] : ((const int32_t *)value->data)[i];
}

/* Of one that there is, or, where a tensor is to come in front of it, one behind the last, which it is without the input too. */
static enum leat_status
find_position(const struct maker *maker, size_t input, uint32_t count, bool inserts, uint32_t *ret)
{
    const int64_t places = (int64_t)count + inserts;
    int64_t position = places - 1;
    uint32_t given;

    if (input_name(maker, input)[0] != '\0') {
        const enum leat_status status = find_numbers(maker, input, &given);
        if (status != LEAT_OK) {
            return status;
        }
        const struct leat_value *value = &maker->importer->graph->values[given];
        if (leat_value_elements(value) != 1) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "'%.64s' is not one number", input_name(maker, input));
        }
        position = number(value, 0);
        position += position < 0 && position >= -(int64_t)count ? (int64_t)count : 0;
    }
    if (position < 0 || position >= places) {
        return LEAT_FAIL(LEAT_ERR_SHAPE, "there is no place %lld in a sequence of %u", (long long)position, count);
    }
    *ret = (uint32_t)position;
    return LEAT_OK;
}

/* ---- What is made ------------------------------------------------------------------------------------------------ */

/*
 * "sequence.i", or "sequence.i#n" where the file has something of that name itself. No two are the same: what is behind the last
 * '.' or '#' differs, or what is before it.
 */
static const char *
element_name(const struct maker *maker, const char *sequence, uint32_t i)
{
    struct importer *importer = maker->importer;
    const struct call *call = leat_onnx_call_around(importer);
    const size_t bytes = strlen(sequence) + 32, path = call != NULL ? strlen(call->name) + 1 : 0; /* which the file's names have not */
    char *name = leat_graph_alloc(importer->graph, bytes, 1);
    const size_t end = name != NULL ? (size_t)snprintf(name, bytes, "%s.%u", sequence, i) : 0;

    while (name != NULL && path < end && leat_onnx_find(importer, name + path) != NULL) {
        (void)snprintf(name + end, bytes - end, "#%u", importer->renamed++);
    }
    return name;
}

static enum leat_status
put(const struct maker *maker, const char *type, uint32_t *inputs, uint32_t input_count, const char *name,
    const struct leat_attribute *attributes, uint32_t attribute_count, uint32_t *ret)
{
    struct leat_graph *graph = maker->importer->graph;
    const struct leat_op *op = leat_op_find(type, graph->opset);

    LEAT_ASSERT(op != NULL);
    if (name == NULL) {
        return leat_graph_shortage(graph);
    }
    const enum leat_status status = leat_graph_add_value(graph, name, LEAT_DTYPE_F32, 0, NULL, ret);
    return status == LEAT_OK ? leat_onnx_put_node(maker->importer, op, maker->name, inputs, input_count, ret, 1, attributes,
                                                  attribute_count)
                             : status;
}

static enum leat_status
add_numbers(const struct maker *maker, uint32_t rank, int64_t value, uint32_t *ret)
{
    return leat_graph_add_constant(maker->importer->graph, maker->name, LEAT_DTYPE_I64, rank, (const int64_t[]){1}, &value, ret);
}

/* Room for as many, and the sequence that `output` is. */
static enum leat_status
make_tensors(const struct maker *maker, struct entry *output, uint64_t count, uint32_t **ret_values)
{
    struct leat_graph *graph = maker->importer->graph;

    if (count > LEAT_NODE_ARITY_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "a sequence of %llu tensors, the limit is %u", (unsigned long long)count,
                         LEAT_NODE_ARITY_MAX);
    }
    struct tensors *tensors = leat_graph_alloc(graph, 1, sizeof(*tensors));
    *ret_values = tensors != NULL ? leat_graph_alloc(graph, count, sizeof(**ret_values)) : NULL;
    if (*ret_values == NULL) {
        return leat_graph_shortage(graph);
    }
    *tensors = (struct tensors){.count = (uint32_t)count, .values = *ret_values};
    output->tensors = tensors;
    return LEAT_OK;
}

/* ---- Operators --------------------------------------------------------------------------------------------------- */

struct split {
    uint32_t x;
    uint32_t sizes; /* a constant; LEAT_VALUE_NONE: one each */
    int64_t axis, size; /* -1: unknown */
    bool drops; /* the axis */
};

/* NULL: one each. */
static const struct leat_value *
sizes_of(const struct maker *maker, const struct split *split)
{
    return split->sizes != LEAT_VALUE_NONE ? &maker->importer->graph->values[split->sizes] : NULL;
}

/* What the numbers in the file say, or the graph around, where shapes are known while it is read. */
static enum leat_status
measure(const struct maker *maker, struct split *split)
{
    struct importer *importer = maker->importer;
    struct leat_graph *graph = importer->graph;
    const bool given = split->sizes != LEAT_VALUE_NONE && sizes_of(maker, split)->rank == 1;
    int64_t axis = 0;

    enum leat_status status = read_int(maker, "axis", false, &axis);
    split->axis = axis;
    split->size = -1;
    if (status != LEAT_OK || importer->parent != NULL) {
        return status != LEAT_OK || given ? status
                                          : LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "in a graph inside a node all sizes have to be given");
    }
    for (int tries = 0; tries < 2 && status == LEAT_OK && split->size < 0; tries++) {
        const struct leat_value *x = &graph->values[split->x];
        if (axis < -(int64_t)x->rank || axis >= (int64_t)x->rank) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "axis %lld of a tensor of rank %u", (long long)axis, x->rank);
        }
        split->axis = axis + (axis < 0 ? (int64_t)x->rank : 0);
        split->size = x->dims[split->axis];
        status = tries == 0 && split->size < 0 ? leat_onnx_fold(importer) : LEAT_OK;
    }
    return status == LEAT_OK && split->size < 0 && !given
               ? LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "dimension %lld of '%.64s' is free: it says how many tensors there are",
                           (long long)split->axis, input_name(maker, 0))
               : status;
}

/* The elements of the axis from first to end. */
static enum leat_status
add_part(const struct maker *maker, const struct split *split, int64_t first, int64_t end, const char *name, uint32_t *ret)
{
    uint32_t inputs[4] = {split->x};
    const struct leat_attribute axis = {.name = "axis", .kind = LEAT_ATTRIBUTE_INT, .i = split->axis};

    enum leat_status status = add_numbers(maker, split->drops ? 0 : 1, first, &inputs[1]);
    if (split->drops) {
        return status == LEAT_OK ? put(maker, "Gather", inputs, 2, name, &axis, 1, ret) : status;
    }
    if (status == LEAT_OK) {
        status = add_numbers(maker, 1, end, &inputs[2]);
    }
    if (status == LEAT_OK) {
        status = add_numbers(maker, 1, split->axis, &inputs[3]);
    }
    return status == LEAT_OK ? put(maker, "Slice", inputs, 4, name, NULL, 0, ret) : status;
}

/* How many parts there are of what size: as many elements each but for the last, or as many as the list says. */
static enum leat_status
count_parts(const struct maker *maker, const struct split *split, uint64_t *ret)
{
    const struct leat_value *sizes = sizes_of(maker, split);
    int64_t sum = 0;

    if (sizes == NULL || sizes->rank == 0) {
        const int64_t each = sizes != NULL ? number(sizes, 0) : 1;
        if (each < 1) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "parts of %lld elements", (long long)each);
        }
        *ret = (uint64_t)split->size / (uint64_t)each + (split->size % each != 0);
        return LEAT_OK;
    }
    *ret = leat_value_elements(sizes);
    for (size_t i = 0; i < *ret; i++) {
        if (number(sizes, i) < 0 || number(sizes, i) > LEAT_DIM_MAX || sum > LEAT_DIM_MAX) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "a part of %lld elements", (long long)number(sizes, i));
        }
        sum += number(sizes, i);
    }
    return split->size < 0 || sum == split->size
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_SHAPE, "parts of %lld elements in all of %lld", (long long)sum, (long long)split->size);
}

/* One node for all parts: while it is not known how many elements they are in all, Split sees to it that they are all. */
static enum leat_status
add_split(const struct maker *maker, const struct split *split, uint32_t count, uint32_t *values)
{
    struct leat_graph *graph = maker->importer->graph;
    const struct leat_op *op = leat_op_find("Split", graph->opset);
    const bool is_input = graph->opset >= AXES_ARE_INPUTS;
    int64_t *sizes = leat_graph_alloc(graph, count, sizeof(*sizes));
    enum leat_status status = LEAT_OK;
    uint32_t inputs[2] = {split->x};

    LEAT_ASSERT(op != NULL);
    if (count > LEAT_NODE_OUTPUTS_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%u parts of a tensor whose size is not known, the limit is %u", count,
                         LEAT_NODE_OUTPUTS_MAX);
    }
    if (sizes == NULL) {
        return leat_graph_shortage(graph);
    }
    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        const char *name = element_name(maker, maker->name, i);
        sizes[i] = number(sizes_of(maker, split), i);
        status = name == NULL ? leat_graph_shortage(graph) : leat_graph_add_value(graph, name, LEAT_DTYPE_F32, 0, NULL, &values[i]);
    }
    if (status == LEAT_OK && is_input) {
        status = leat_graph_add_constant(graph, maker->name, LEAT_DTYPE_I64, 1, (const int64_t[]){count}, sizes, &inputs[1]);
    }
    const struct leat_attribute attributes[] = {{.name = "axis", .kind = LEAT_ATTRIBUTE_INT, .i = split->axis},
                                                {.name = "split", .kind = LEAT_ATTRIBUTE_INTS, .count = count, .ints = sizes}};
    return status == LEAT_OK ? leat_onnx_put_node(maker->importer, op, maker->name, inputs, is_input ? 2 : 1, values, count,
                                                  attributes, is_input ? 1 : 2)
                             : status;
}

static enum leat_status
split_to_sequence(const struct maker *maker, struct entry *output)
{
    struct split split = {.sizes = LEAT_VALUE_NONE};
    int64_t keeps = 1, first = 0;
    uint32_t *values = NULL;
    uint64_t count = 0;

    enum leat_status status = find_tensor(maker, 0, &split.x);
    if (status == LEAT_OK && input_name(maker, 1)[0] != '\0') {
        status = find_numbers(maker, 1, &split.sizes);
    }
    if (status == LEAT_OK) {
        status = read_int(maker, "keepdims", false, &keeps);
    }
    if (status == LEAT_OK) {
        status = measure(maker, &split);
    }
    if (status == LEAT_OK) {
        status = count_parts(maker, &split, &count);
    }
    if (status == LEAT_OK) {
        status = make_tensors(maker, output, count, &values);
    }
    if (status == LEAT_OK && split.size < 0) {
        return add_split(maker, &split, (uint32_t)count, values);
    }
    split.drops = split.sizes == LEAT_VALUE_NONE && keeps == 0;
    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        const struct leat_value *list = sizes_of(maker, &split);
        const int64_t each = list != NULL ? number(list, list->rank == 1 ? i : 0) : 1;
        /* The last one may have less: a slice ends with its axis. */
        status = add_part(maker, &split, first, first + each, element_name(maker, maker->name, i), &values[i]);
        first += each;
    }
    return status;
}

static enum leat_status
sequence_construct(const struct maker *maker, struct entry *output)
{
    uint32_t *values = NULL;

    enum leat_status status = make_tensors(maker, output, maker->node->n_input, &values);
    for (size_t i = 0; i < maker->node->n_input && status == LEAT_OK; i++) {
        status = find_tensor(maker, i, &values[i]);
    }
    return status;
}

static enum leat_status
sequence_empty(const struct maker *maker, struct entry *output)
{
    uint32_t *values;
    return make_tensors(maker, output, 0, &values);
}

static enum leat_status
sequence_at(const struct maker *maker, struct entry *output)
{
    const struct tensors *from = NULL;
    uint32_t position = 0;

    enum leat_status status = find_tensors(maker, 0, &from);
    if (status == LEAT_OK) {
        status = find_position(maker, 1, from->count, false, &position);
    }
    if (status != LEAT_OK) {
        return status;
    }
    uint32_t input = from->values[position];
    return put(maker, "Identity", &input, 1, leat_onnx_value_name(maker->importer, output), NULL, 0, &output->value);
}

static enum leat_status
sequence_length(const struct maker *maker, struct entry *output)
{
    const char *name = leat_onnx_value_name(maker->importer, output);
    const struct tensors *from = NULL;

    const enum leat_status status = find_tensors(maker, 0, &from);
    if (status != LEAT_OK) {
        return status;
    }
    const int64_t length = from->count;
    return name == NULL ? leat_graph_shortage(maker->importer->graph)
                        : leat_graph_add_constant(maker->importer->graph, name, LEAT_DTYPE_I64, 0, NULL, &length, &output->value);
}

static enum leat_status
sequence_insert(const struct maker *maker, struct entry *output)
{
    const struct tensors *from = NULL;
    uint32_t *values = NULL, inserted = 0, position = 0;

    enum leat_status status = find_tensors(maker, 0, &from);
    if (status == LEAT_OK) {
        status = find_tensor(maker, 1, &inserted);
    }
    if (status == LEAT_OK) {
        status = find_position(maker, 2, from->count, true, &position);
    }
    if (status == LEAT_OK) {
        status = make_tensors(maker, output, (uint64_t)from->count + 1, &values);
    }
    for (uint32_t i = 0; status == LEAT_OK && i <= from->count; i++) {
        values[i] = i == position ? inserted : from->values[i - (i > position)];
    }
    return status;
}

static enum leat_status
sequence_erase(const struct maker *maker, struct entry *output)
{
    const struct tensors *from = NULL;
    uint32_t *values = NULL, position = 0;

    enum leat_status status = find_tensors(maker, 0, &from);
    if (status == LEAT_OK) {
        status = find_position(maker, 1, from->count, false, &position);
    }
    if (status == LEAT_OK) {
        status = make_tensors(maker, output, (uint64_t)from->count - 1, &values);
    }
    for (uint32_t i = 0; status == LEAT_OK && i + 1 < from->count; i++) {
        values[i] = from->values[i + (i >= position)];
    }
    return status;
}

static enum leat_status
add_axis(const struct maker *maker, int64_t axis, uint32_t x, uint32_t *ret)
{
    struct leat_graph *graph = maker->importer->graph;
    const bool is_input = graph->opset >= AXES_ARE_INPUTS;
    int64_t *axes = leat_graph_alloc(graph, 1, sizeof(*axes));
    uint32_t inputs[2] = {x};

    if (axes == NULL) {
        return leat_graph_shortage(graph);
    }
    *axes = axis;
    const struct leat_attribute attribute = {.name = "axes", .kind = LEAT_ATTRIBUTE_INTS, .count = 1, .ints = axes};
    const enum leat_status status = is_input ? add_numbers(maker, 1, axis, &inputs[1]) : LEAT_OK;
    return status == LEAT_OK ? put(maker, "Unsqueeze", inputs, is_input ? 2 : 1, maker->name, &attribute, is_input ? 0 : 1, ret)
                             : status;
}

static enum leat_status
concat_from_sequence(const struct maker *maker, struct entry *output)
{
    struct leat_graph *graph = maker->importer->graph;
    const struct tensors *from = NULL;
    int64_t axis = 0, is_new = 0;

    enum leat_status status = find_tensors(maker, 0, &from);
    if (status == LEAT_OK) {
        status = read_int(maker, "axis", true, &axis);
    }
    if (status == LEAT_OK) {
        status = read_int(maker, "new_axis", false, &is_new);
    }
    if (status == LEAT_OK && from->count == 0) {
        status = LEAT_FAIL(LEAT_ERR_SHAPE, "there is nothing in the sequence");
    }
    uint32_t *inputs = status == LEAT_OK ? leat_graph_alloc(graph, from->count, sizeof(*inputs)) : NULL;
    if (inputs == NULL) {
        return status == LEAT_OK ? leat_graph_shortage(graph) : status;
    }
    for (uint32_t i = 0; i < from->count && status == LEAT_OK; i++) {
        inputs[i] = from->values[i];
        status = is_new != 0 ? add_axis(maker, axis, from->values[i], &inputs[i]) : LEAT_OK;
    }
    const struct leat_attribute along = {.name = "axis", .kind = LEAT_ATTRIBUTE_INT, .i = axis};
    return status == LEAT_OK ? put(maker, "Concat", inputs, from->count, leat_onnx_value_name(maker->importer, output), &along, 1,
                                   &output->value)
                             : status;
}

static const struct operator operators[] = {
    {"ConcatFromSequence", 1, 1, concat_from_sequence},
    {"SequenceAt", 2, 2, sequence_at},
    {"SequenceConstruct", 1, LEAT_NODE_ARITY_MAX, sequence_construct},
    {"SequenceEmpty", 0, 0, sequence_empty},
    {"SequenceErase", 1, 2, sequence_erase},
    {"SequenceInsert", 2, 3, sequence_insert},
    {"SequenceLength", 1, 1, sequence_length},
    {"SplitToSequence", 1, 2, split_to_sequence},
};

static const struct operator *
find_operator(const struct importer *importer, const Onnx__NodeProto *node)
{
    const char *domain = leat_onnx_text(node->domain);
    const struct operator *found = NULL;

    if ((domain[0] != '\0' && strcmp(domain, "ai.onnx") != 0) || importer->graph->opset < SINCE) {
        return NULL;
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(operators); i++) {
        found = strcmp(operators[i].name, leat_onnx_text(node->op_type)) == 0 ? &operators[i] : found;
    }
    return found;
}

bool
leat_onnx_is_of_tensors(const struct importer *importer, const Onnx__NodeProto *node)
{
    return find_operator(importer, node) != NULL;
}

enum leat_status
leat_onnx_add_of_tensors(struct importer *importer, const Onnx__NodeProto *node, const char *name)
{
    const struct operator *operator = find_operator(importer, node);
    const struct maker maker = {.importer = importer, .node = node, .name = name};

    if (node->n_input < operator->input_min || node->n_input > operator->input_max || node->n_output != 1) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "%zu inputs and %zu outputs", node->n_input, node->n_output);
    }
    struct entry *output = leat_onnx_find(importer, leat_onnx_text(node->output[0]));
    return output == NULL ? LEAT_FAIL(LEAT_ERR_PROTO, "it has no output") : operator->add(&maker, output);
}

enum leat_status
leat_onnx_copy_tensors(struct importer *importer, const struct entry *entry, uint32_t *values)
{
    const char *name = leat_onnx_value_name(importer, entry);
    const struct maker maker = {.importer = importer, .name = name};
    enum leat_status status = name != NULL ? LEAT_OK : leat_graph_shortage(importer->graph);

    for (uint32_t i = 0; i < entry->tensors->count && status == LEAT_OK; i++) {
        uint32_t input = entry->tensors->values[i];
        status = put(&maker, "Identity", &input, 1, element_name(&maker, name, i), NULL, 0, &values[i]);
    }
    return status;
}
