/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/onnx_mutate.h"

#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/onnx/onnx.h"
#include "kernels/op.h"
#include "tests/leat_test.h"

#define MESSAGES_MAX     65536u
#define STRINGS_MAX      8192u
#define ARENA_BYTES      ((size_t)64 << 20)
#define TENSOR_BYTES_MAX (UINT64_C(64) << 10) /* of one that is grown to its new shape */

static const int64_t numbers[] = {0,  1,  2,  3,   4,   5,    7,         8,          16,        17,        64,
                                  -1, -2, -3, -17, 255, 1024, INT32_MAX, INT32_MIN,  INT64_MAX, INT64_MIN, INT64_C(1) << 32,
                                  65536};
static const double reals[] = {0, -0.0, 1, -1, 0.5, 2, 1e-30, 1e30, -1e30, 3.5, 65504, 1e38, 255, -128};

struct mutator {
    uint64_t random;
    ProtobufCMessage **messages; /* the model and all that is in it */
    uint32_t message_count;
    char **strings;
    uint32_t string_count;
};

static uint32_t
below(struct mutator *m, size_t bound)
{
    return bound == 0 ? 0 : (uint32_t)(leat_test_random(&m->random) % bound);
}

/* ---- Memory: all of one change, given back at once --------------------------------------------------- */

static _Alignas(16) unsigned char arena[ARENA_BYTES];
static size_t arena_used;

static void *
arena_alloc(void *limit, size_t size)
{
    const size_t most = limit != NULL ? *(const size_t *)limit : sizeof(arena);
    if (size > most || arena_used > most - size) {
        return NULL;
    }
    void *memory = arena + arena_used;
    arena_used += (size_t)leat_round_up(size, 16);
    return memory;
}

static void
arena_free(void *limit, void *memory)
{
    (void)limit;
    (void)memory;
}

static size_t unpacked_max = ARENA_BYTES / 2;
static ProtobufCAllocator allocator = {.alloc = arena_alloc, .free = arena_free, .allocator_data = &unpacked_max};

/* Zeroed. */
static void *
take(size_t size)
{
    void *memory = arena_alloc(NULL, size);
    LEAT_ASSERT(memory != NULL);
    return memset(memory, 0, size);
}

static void *
longer(const void *old, size_t old_bytes, size_t bytes)
{
    void *memory = take(bytes);
    if (old_bytes > 0) {
        memcpy(memory, old, old_bytes < bytes ? old_bytes : bytes);
    }
    return memory;
}

static char *
text_copy(const char *text)
{
    return longer(text, strlen(text) + 1, strlen(text) + 1);
}

/* ---- What is there ---------------------------------------------------------------------------------- */

static void *
member(ProtobufCMessage *message, unsigned offset)
{
    return (unsigned char *)message + offset;
}

static void
collect(struct mutator *m, ProtobufCMessage *message)
{
    if (m->message_count >= MESSAGES_MAX) {
        return;
    }
    m->messages[m->message_count++] = message;
    for (unsigned f = 0; f < message->descriptor->n_fields; f++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[f];
        const bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
        if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 &&
            *(uint32_t *)member(message, field->quantifier_offset) != field->id) {
            continue;
        }
        const size_t count = repeated ? *(size_t *)member(message, field->quantifier_offset) : 1;
        void **items = repeated ? *(void ***)member(message, field->offset) : (void **)member(message, field->offset);
        for (size_t i = 0; i < count; i++) {
            if (field->type == PROTOBUF_C_TYPE_MESSAGE && items[i] != NULL) {
                collect(m, items[i]);
            } else if (field->type == PROTOBUF_C_TYPE_STRING && items[i] != NULL && m->string_count < STRINGS_MAX) {
                m->strings[m->string_count++] = items[i];
            }
        }
    }
}

/* One of a type, or NULL. */
static void *
any_of(struct mutator *m, const ProtobufCMessageDescriptor *descriptor)
{
    const uint32_t start = below(m, m->message_count);
    for (uint32_t i = 0; i < m->message_count; i++) {
        ProtobufCMessage *message = m->messages[(start + i) % m->message_count];
        if (message->descriptor == descriptor) {
            return message;
        }
    }
    return NULL;
}

/* A deep copy, or NULL of what is too large. */
static ProtobufCMessage *
clone(const ProtobufCMessage *message)
{
    const size_t size = protobuf_c_message_get_packed_size(message);
    if (size > TENSOR_BYTES_MAX) {
        return NULL;
    }
    uint8_t *bytes = take(size + 1);
    (void)protobuf_c_message_pack(message, bytes);
    return protobuf_c_message_unpack(message->descriptor, &allocator, size, bytes);
}

/* ---- Numbers and strings ---------------------------------------------------------------------------- */

static int64_t
other_number(struct mutator *m, int64_t value)
{
    switch (below(m, 6)) {
    case 0:
        return (int64_t)((uint64_t)value + 1);
    case 1:
        return (int64_t)((uint64_t)value - 1);
    case 2:
        return (int64_t)((uint64_t)value * 2);
    case 3:
        return (int64_t)(0 - (uint64_t)value);
    case 4:
        return (int64_t)below(m, 6);
    default:
        return numbers[below(m, LEAT_COUNT_OF(numbers))];
    }
}

static const char *
any_string(struct mutator *m)
{
    const struct leat_op *op = &leat_ops[below(m, leat_op_count)];
    switch (below(m, 8)) {
    case 0:
        return op->name;
    case 1:
        return op->attributes->name != NULL ? op->attributes->name : "axis";
    case 2:
        return "";
    default:
        return m->string_count > 0 ? m->strings[below(m, m->string_count)] : "";
    }
}

static void
change_bytes(struct mutator *m, ProtobufCBinaryData *bytes)
{
    if (bytes->len == 0 || below(m, 4) == 0) {
        const size_t length = below(m, 2) == 0 ? bytes->len / 2 : bytes->len + 1 + below(m, 16);
        bytes->data = longer(bytes->data, bytes->len, length + 1);
        if (length > bytes->len) {
            memset(bytes->data + bytes->len, (int)below(m, 256), length - bytes->len);
        }
        bytes->len = length;
        return;
    }
    const size_t at = below(m, bytes->len);
    const int64_t number = numbers[below(m, LEAT_COUNT_OF(numbers))];
    const size_t room = bytes->len - at;
    memcpy(bytes->data + at, &number, room < sizeof(number) ? room : sizeof(number));
}

static size_t
element_bytes(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
        return 8;
    default:
        return 4; /* onnx.proto has no bool */
    }
}

/* False when nothing changed. */
static bool
change_element(struct mutator *m, ProtobufCType type, void *place)
{
    switch (type) {
    case PROTOBUF_C_TYPE_STRING:
        *(char **)place = text_copy(any_string(m));
        return true;
    case PROTOBUF_C_TYPE_BYTES:
        change_bytes(m, place);
        return true;
    case PROTOBUF_C_TYPE_FLOAT:
        *(float *)place = (float)reals[below(m, LEAT_COUNT_OF(reals))];
        return true;
    case PROTOBUF_C_TYPE_DOUBLE:
        *(double *)place = reals[below(m, LEAT_COUNT_OF(reals))];
        return true;
    case PROTOBUF_C_TYPE_MESSAGE:
        return false;
    default:
        if (element_bytes(type) == 8) {
            *(int64_t *)place = other_number(m, *(int64_t *)place);
        } else {
            *(int32_t *)place = (int32_t)other_number(m, *(int32_t *)place);
        }
        return true;
    }
}

/* ---- Any field ------------------------------------------------------------------------------------- */

static void
insert(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, const void *element)
{
    const size_t size = element_bytes(field->type);
    size_t *count = member(message, field->quantifier_offset);
    void **array = member(message, field->offset);
    *array = longer(*array, *count * size, (*count + 1) * size);
    memcpy((unsigned char *)*array + *count * size, element, size);
    (*count)++;
}

static bool
change_repeated(struct mutator *m, ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const size_t size = element_bytes(field->type);
    size_t *count = member(message, field->quantifier_offset);
    unsigned char *array = *(unsigned char **)member(message, field->offset), held[sizeof(ProtobufCBinaryData)] = {0};
    const size_t at = below(m, *count), other = below(m, *count);

    switch (below(m, 4)) {
    case 0: /* one more */
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            ProtobufCMessage *from = any_of(m, field->descriptor);
            ProtobufCMessage *copy = from != NULL ? clone(from) : NULL;
            if (copy == NULL) {
                return false;
            }
            memcpy(held, &copy, sizeof(copy));
        } else {
            if (field->type == PROTOBUF_C_TYPE_STRING) {
                *(char **)(void *)held = text_copy("");
            }
            (void)change_element(m, field->type, held);
        }
        insert(message, field, held);
        return true;
    case 1: /* one less */
        if (*count == 0) {
            return false;
        }
        memmove(array + at * size, array + (at + 1) * size, (*count - at - 1) * size);
        (*count)--;
        return true;
    case 2:
        if (*count < 2) {
            return false;
        }
        memcpy(held, array + at * size, size);
        memcpy(array + at * size, array + other * size, size);
        memcpy(array + other * size, held, size);
        return at != other;
    default:
        return *count > 0 && change_element(m, field->type, array + at * size);
    }
}

static bool
change_field(struct mutator *m, ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    void *place = member(message, field->offset);
    uint32_t *quantifier = member(message, field->quantifier_offset);

    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        return change_repeated(m, message, field);
    }
    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) {
        if (*quantifier != field->id) {
            return false;
        }
    } else if (field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE) {
        *(protobuf_c_boolean *)quantifier = below(m, 8) != 0;
    }
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        ProtobufCMessage *from = any_of(m, field->descriptor);
        *(ProtobufCMessage **)place = from != NULL && below(m, 4) != 0 ? clone(from) : NULL;
        return true;
    }
    if (field->type == PROTOBUF_C_TYPE_BYTES && ((ProtobufCBinaryData *)place)->data == NULL) {
        ((ProtobufCBinaryData *)place)->len = 0;
    }
    return change_element(m, field->type, place);
}

static bool
change_anything(struct mutator *m)
{
    ProtobufCMessage *message = m->messages[below(m, m->message_count)];
    return message->descriptor->n_fields > 0 &&
           change_field(m, message, &message->descriptor->fields[below(m, message->descriptor->n_fields)]);
}

/* ---- What keeps most models whole --------------------------------------------------------------------- */

static Onnx__NodeProto *
any_node(struct mutator *m)
{
    return any_of(m, &onnx__node_proto__descriptor);
}

static bool
change_edge(struct mutator *m)
{
    Onnx__NodeProto *node = any_node(m), *other = any_node(m);
    if (node == NULL || node->n_input == 0) {
        return false;
    }
    char **place = &node->input[below(m, node->n_input)];
    if (below(m, 8) == 0) {
        *place = text_copy("");
    } else if (other->n_output > 0 && below(m, 2) == 0) {
        *place = text_copy(other->output[below(m, other->n_output)]);
    } else if (other->n_input > 0) {
        *place = text_copy(other->input[below(m, other->n_input)]);
    }
    return true;
}

static bool
change_operator(struct mutator *m)
{
    Onnx__NodeProto *node = any_node(m);
    if (node == NULL) {
        return false;
    }
    node->op_type = text_copy(leat_ops[below(m, leat_op_count)].name);
    if (below(m, 2) == 0) {
        node->n_attribute = 0;
    }
    return true;
}

/* An attribute as the operator's row has it. */
static bool
add_attribute(struct mutator *m)
{
    Onnx__NodeProto *node = any_node(m);
    size_t o = 0;
    while (node != NULL && o < leat_op_count && (node->op_type == NULL || strcmp(leat_ops[o].name, node->op_type) != 0)) {
        o++;
    }
    if (node == NULL || o == leat_op_count) {
        return false;
    }
    const struct leat_op_attribute *schema = leat_ops[o].attributes;
    for (uint32_t skip = below(m, 6); skip > 0 && schema->name != NULL; skip--) {
        schema++;
    }
    if (schema->name == NULL || schema->kind == LEAT_ATTRIBUTE_GRAPH) {
        return false; /* add_subgraph() does those */
    }
    static const int types[] = {
        [LEAT_ATTRIBUTE_INT] = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT,
        [LEAT_ATTRIBUTE_FLOAT] = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT,
        [LEAT_ATTRIBUTE_STRING] = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING,
        [LEAT_ATTRIBUTE_INTS] = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS,
        [LEAT_ATTRIBUTE_FLOATS] = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS,
        [LEAT_ATTRIBUTE_STRINGS] = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS,
        [LEAT_ATTRIBUTE_TENSOR] = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR,
    };
    Onnx__AttributeProto *attribute = take(sizeof(*attribute));
    onnx__attribute_proto__init(attribute);
    attribute->name = text_copy(schema->name);
    attribute->has_type = 1;
    attribute->type = (Onnx__AttributeProto__AttributeType)types[schema->kind];
    attribute->has_i = attribute->has_f = 1;
    attribute->i = other_number(m, 1);
    attribute->f = (float)reals[below(m, LEAT_COUNT_OF(reals))];
    attribute->n_ints = schema->kind == LEAT_ATTRIBUTE_INTS ? below(m, 6) : 0;
    attribute->ints = take((attribute->n_ints + 1) * sizeof(*attribute->ints));
    for (size_t i = 0; i < attribute->n_ints; i++) {
        attribute->ints[i] = below(m, 3) == 0 ? other_number(m, 1) : (int64_t)below(m, 5);
    }
    if (schema->kind == LEAT_ATTRIBUTE_TENSOR) {
        const ProtobufCMessage *tensor = any_of(m, &onnx__tensor_proto__descriptor);
        attribute->t = tensor != NULL ? (Onnx__TensorProto *)(void *)clone(tensor) : NULL;
    }
    insert(&node->base, protobuf_c_message_descriptor_get_field_by_name(node->base.descriptor, "attribute"), &attribute);
    return true;
}

/* A new shape or type, and mostly as many bytes as it takes. */
static bool
change_tensor(struct mutator *m)
{
    Onnx__TensorProto *tensor = any_of(m, &onnx__tensor_proto__descriptor);
    if (tensor == NULL) {
        return false;
    }
    if (below(m, 4) == 0) {
        tensor->data_type = (int32_t)below(m, 18);
    } else if (tensor->n_dims > 0) {
        tensor->dims[below(m, tensor->n_dims)] = below(m, 4) == 0 ? other_number(m, 1) : (int64_t)below(m, 9);
    }
    uint64_t bytes = leat_dtype_bytes(leat_dtype_from_onnx(tensor->data_type));
    for (size_t d = 0; d < tensor->n_dims; d++) {
        bytes = tensor->dims[d] < 0 || !leat_mul_u64(bytes, (uint64_t)tensor->dims[d], &bytes) ? UINT64_MAX : bytes;
    }
    if (bytes <= TENSOR_BYTES_MAX && below(m, 8) != 0) {
        tensor->raw_data.data = longer(tensor->raw_data.data, tensor->raw_data.len, bytes + 1);
        for (uint64_t i = tensor->raw_data.len; i < bytes; i++) {
            tensor->raw_data.data[i] = (uint8_t)(i % 8 == 0 ? below(m, 4) : 0);
        }
        tensor->raw_data.len = bytes;
        tensor->has_raw_data = 1;
        tensor->n_float_data = tensor->n_int32_data = tensor->n_int64_data = tensor->n_double_data = 0;
        tensor->n_uint64_data = 0;
    }
    return true;
}

static bool
make_external(struct mutator *m)
{
    static const char *const keys[] = {"location", "offset", "length", "checksum"};
    static const char *const values[] = {"weights", "../weights", "/etc/passwd", "a/../../b", "0",
                                         "64",      "4096",       "-1",          "",          "18446744073709551615",
                                         "4",       "16",         "9223372036854775807"};
    Onnx__TensorProto *tensor = any_of(m, &onnx__tensor_proto__descriptor);
    if (tensor == NULL) {
        return false;
    }
    tensor->has_data_location = 1;
    tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    tensor->has_raw_data = (protobuf_c_boolean)(below(m, 8) == 0);
    for (size_t k = 0; k < LEAT_COUNT_OF(keys); k++) {
        Onnx__StringStringEntryProto *entry = take(sizeof(*entry));
        onnx__string_string_entry_proto__init(entry);
        entry->key = text_copy(keys[k]);
        entry->value = text_copy(k == 0 && below(m, 2) == 0 ? "weights" : values[below(m, LEAT_COUNT_OF(values))]);
        if (below(m, 4) != 0) {
            insert(&tensor->base, protobuf_c_message_descriptor_get_field_by_name(tensor->base.descriptor, "external_data"),
                   &entry);
        }
    }
    return true;
}

static bool
change_dimension(struct mutator *m)
{
    Onnx__TensorShapeProto__Dimension *dim = any_of(m, &onnx__tensor_shape_proto__dimension__descriptor);
    if (dim == NULL) {
        return false;
    }
    dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    dim->dim_value = below(m, 3) == 0 ? other_number(m, 1) : (int64_t)below(m, 9);
    if (below(m, 3) == 0) {
        dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        dim->dim_param = text_copy("n");
    }
    return true;
}

static bool
change_opset(struct mutator *m)
{
    Onnx__OperatorSetIdProto *opset = any_of(m, &onnx__operator_set_id_proto__descriptor);
    if (opset != NULL) {
        opset->version = (int64_t)below(m, LEAT_OPSET_MAX + 3);
    }
    return opset != NULL;
}

/* Another output of the graph: something that a node computes. */
static bool
add_output(struct mutator *m)
{
    Onnx__GraphProto *graph = any_of(m, &onnx__graph_proto__descriptor);
    const Onnx__NodeProto *node = any_node(m);
    if (graph == NULL || node == NULL || node->n_output == 0) {
        return false;
    }
    Onnx__ValueInfoProto *info = take(sizeof(*info));
    onnx__value_info_proto__init(info);
    info->name = text_copy(node->output[below(m, node->n_output)]);
    insert(&graph->base, protobuf_c_message_descriptor_get_field_by_name(graph->base.descriptor, "output"), &info);
    return true;
}

/* A node that reads what is there: the last output of the graph becomes its own. */
static bool
add_node(struct mutator *m)
{
    Onnx__GraphProto *graph = any_of(m, &onnx__graph_proto__descriptor);
    if (graph == NULL || graph->n_output == 0) {
        return false;
    }
    const struct leat_op *op = &leat_ops[below(m, leat_op_count)];
    Onnx__ValueInfoProto *last = graph->output[below(m, graph->n_output)];
    Onnx__NodeProto *node = take(sizeof(*node));
    char *name = take(16);
    onnx__node_proto__init(node);
    node->op_type = text_copy(op->name);
    node->input = take((8) * sizeof(*node->input));
    node->output = take((1) * sizeof(*node->output));
    node->input[node->n_input++] = text_copy(last->name != NULL ? last->name : "");
    for (uint32_t i = 1; i < 8 && i < op->input_max && (i < op->input_min || below(m, 3) == 0); i++) {
        const Onnx__NodeProto *from = any_node(m);
        const Onnx__TensorProto *tensor = any_of(m, &onnx__tensor_proto__descriptor);
        const char *text = from != NULL && from->n_output > 0 && below(m, 2) == 0 ? from->output[0]
                           : tensor != NULL && tensor->name != NULL               ? tensor->name
                                                                                  : "";
        node->input[node->n_input++] = text_copy(text);
    }
    (void)snprintf(name, 16, "m%08x", (unsigned)leat_test_random(&m->random));
    node->output[node->n_output++] = name;
    last->name = text_copy(name);
    insert(&graph->base, protobuf_c_message_descriptor_get_field_by_name(graph->base.descriptor, "node"), &node);
    return true;
}

/* A graph inside a node: one that is there, into an attribute of it. */
static bool
add_subgraph(struct mutator *m)
{
    static const char *const names[] = {"then_branch", "else_branch", "body"};
    static const char *const ops[] = {"If", "If", "Loop", "Scan"};
    Onnx__NodeProto *node = any_node(m);
    ProtobufCMessage *graph = any_of(m, &onnx__graph_proto__descriptor);
    ProtobufCMessage *copy = node != NULL && graph != NULL ? clone(graph) : NULL;
    if (copy == NULL) {
        return false;
    }
    Onnx__AttributeProto *attribute = take(sizeof(*attribute));
    onnx__attribute_proto__init(attribute);
    attribute->name = text_copy(names[below(m, LEAT_COUNT_OF(names))]);
    attribute->has_type = 1;
    attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH;
    attribute->g = (Onnx__GraphProto *)(void *)copy;
    if (below(m, 2) == 0) {
        node->op_type = text_copy(ops[below(m, LEAT_COUNT_OF(ops))]);
    }
    insert(&node->base, protobuf_c_message_descriptor_get_field_by_name(node->base.descriptor, "attribute"), &attribute);
    return true;
}

/* ---- Functions, and constants of nodes ---------------------------------------------------------------- */

static void
append(ProtobufCMessage *message, const char *field, const void *element)
{
    insert(message, protobuf_c_message_descriptor_get_field_by_name(message->descriptor, field), element);
}

static char *
new_name(struct mutator *m)
{
    char *name = take(16);
    (void)snprintf(name, 16, "m%08x", (unsigned)leat_test_random(&m->random));
    return name;
}

static void
import_domain(Onnx__OperatorSetIdProto ***imports, size_t *count, const char *domain, int64_t version)
{
    Onnx__OperatorSetIdProto *set = take(sizeof(*set));
    onnx__operator_set_id_proto__init(set);
    set->domain = text_copy(domain);
    set->has_version = 1;
    set->version = version;
    *imports = longer(*imports, *count * sizeof(**imports), (*count + 1) * sizeof(**imports));
    (*imports)[(*count)++] = set;
}

/* The function is given some of its attributes by the node that calls it, or by default. */
static void
lift_attribute(struct mutator *m, Onnx__FunctionProto *function, Onnx__NodeProto *inner, Onnx__NodeProto *caller, size_t a)
{
    Onnx__AttributeProto *attribute = inner->attribute[a];
    const ProtobufCMessage *copy = attribute->g == NULL && attribute->name != NULL ? clone(&attribute->base) : NULL;
    if (copy == NULL || below(m, 2) == 0) {
        return;
    }
    Onnx__AttributeProto *reference = take(sizeof(*reference));
    onnx__attribute_proto__init(reference);
    reference->name = attribute->name;
    reference->has_type = attribute->has_type;
    reference->type = attribute->type;
    reference->ref_attr_name = attribute->name;
    inner->attribute[a] = reference;
    switch (below(m, 4)) {
    case 0: /* by default alone */
        append(&function->base, "attribute_proto", &copy);
        break;
    case 1: /* and by the caller, too */
        append(&function->base, "attribute_proto", &copy);
        append(&caller->base, "attribute", &copy);
        break;
    case 2:
        append(&function->base, "attribute", &attribute->name);
        append(&caller->base, "attribute", &copy);
        break;
    default: /* by nobody */
        append(&function->base, "attribute", &attribute->name);
        break;
    }
}

/* A node becomes a call of a function that does what it did. */
static bool
make_function(struct mutator *m)
{
    Onnx__ModelProto *model = (Onnx__ModelProto *)(void *)m->messages[0];
    Onnx__NodeProto *node = any_node(m), *inner = node != NULL ? (Onnx__NodeProto *)(void *)clone(&node->base) : NULL;
    if (inner == NULL) {
        return false;
    }
    Onnx__FunctionProto *function = take(sizeof(*function));
    onnx__function_proto__init(function);
    function->name = new_name(m);
    function->domain = text_copy(below(m, 8) == 0 ? "" : "fuzz");
    for (size_t i = 0; i < inner->n_input; i++) {
        char *name = new_name(m);
        append(&function->base, "input", &name);
        inner->input[i] = name;
    }
    for (size_t o = 0; o < inner->n_output; o++) {
        append(&function->base, "output", &inner->output[o]);
    }
    node->n_attribute = 0;
    for (size_t a = 0; a < inner->n_attribute; a++) {
        lift_attribute(m, function, inner, node, a);
    }
    append(&function->base, "node", &inner);
    for (size_t i = 0; i < model->n_opset_import; i++) {
        append(&function->base, "opset_import", &model->opset_import[i]);
    }
    node->op_type = function->name;
    node->domain = function->domain;
    append(&model->base, "functions", &function);
    import_domain(&model->opset_import, &model->n_opset_import, function->domain, 1);
    return true;
}

static bool
call_function(struct mutator *m)
{
    Onnx__NodeProto *node = any_node(m);
    const Onnx__FunctionProto *function = any_of(m, &onnx__function_proto__descriptor);
    if (node == NULL || function == NULL || function->name == NULL) {
        return false;
    }
    node->op_type = function->name;
    node->domain = function->domain;
    while (node->n_output < function->n_output && below(m, 4) != 0) {
        char *name = new_name(m);
        append(&node->base, "output", &name);
    }
    return true;
}

/* What an initialiser holds, or numbers, as a node has them. */
static bool
make_constant(struct mutator *m)
{
    static const char *const forms[] = {"value",     "sparse_value", "value_float",  "value_floats",
                                        "value_int", "value_ints",   "value_string", "value_strings"};
    static const int types[] = {
        ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR,
        ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT,  ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS,
        ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT,    ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS,
        ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS};
    Onnx__GraphProto *graph = any_of(m, &onnx__graph_proto__descriptor);
    const uint32_t form = below(m, LEAT_COUNT_OF(forms));
    if (graph == NULL || graph->n_initializer == 0) {
        return false;
    }
    const size_t at = below(m, graph->n_initializer);
    Onnx__TensorProto *tensor = graph->initializer[at];
    Onnx__AttributeProto *attribute = take(sizeof(*attribute));
    onnx__attribute_proto__init(attribute);
    attribute->name = text_copy(forms[form]);
    attribute->has_type = attribute->has_i = attribute->has_f = 1;
    attribute->type = (Onnx__AttributeProto__AttributeType)types[form];
    attribute->t = form == 0 ? tensor : NULL;
    const ProtobufCMessage *sparse = form == 1 ? any_of(m, &onnx__sparse_tensor_proto__descriptor) : NULL;
    attribute->sparse_tensor = sparse != NULL ? (Onnx__SparseTensorProto *)(void *)clone(sparse) : NULL;
    attribute->i = below(m, 2) == 0 ? (int64_t)below(m, 4) : other_number(m, 1);
    attribute->f = (float)reals[below(m, LEAT_COUNT_OF(reals))];
    for (uint32_t count = below(m, 5); count > 0; count--) {
        const float f = (float)reals[below(m, LEAT_COUNT_OF(reals))];
        const int64_t i = (int64_t)below(m, 4);
        append(&attribute->base, "floats", &f);
        append(&attribute->base, "ints", &i);
    }
    Onnx__NodeProto *node = take(sizeof(*node));
    char *name = text_copy(tensor->name != NULL ? tensor->name : "");
    onnx__node_proto__init(node);
    node->op_type = text_copy("Constant");
    append(&node->base, "output", &name);
    append(&node->base, "attribute", &attribute);
    append(&graph->base, "node", &node);
    graph->initializer[at] = graph->initializer[--graph->n_initializer];
    return true;
}

/* What else the node can compute, such as where maxima are. */
static bool
add_result(struct mutator *m)
{
    Onnx__NodeProto *node = any_node(m);
    Onnx__GraphProto *graph = any_of(m, &onnx__graph_proto__descriptor);
    if (node == NULL || graph == NULL) {
        return false;
    }
    char *name = new_name(m);
    append(&node->base, "output", &name);
    if (below(m, 4) != 0) {
        Onnx__ValueInfoProto *info = take(sizeof(*info));
        onnx__value_info_proto__init(info);
        info->name = name;
        append(&graph->base, "output", &info);
    }
    return true;
}

static bool
change(struct mutator *m)
{
    static bool (*const ways[])(struct mutator *) = {
        change_anything, change_anything, change_anything, change_edge,   change_operator, add_attribute, change_tensor,
        change_tensor,   make_external,   change_dimension, change_opset, add_output,      add_node,      add_node,
        add_subgraph,    make_function,   call_function, make_constant,   add_result,
    };
    return ways[below(m, LEAT_COUNT_OF(ways))](m);
}

size_t
onnx_mutate(uint8_t *data, size_t size, size_t max_size, uint64_t seed)
{
    static ProtobufCMessage *messages[MESSAGES_MAX];
    static char *strings[STRINGS_MAX];
    struct mutator m = {.random = seed, .messages = messages, .strings = strings};
    ProtobufCMessage *model = NULL;

    arena_used = 0;
    if (leat_onnx_scan(&onnx__model_proto__descriptor, data, size) == LEAT_OK) {
        model = protobuf_c_message_unpack(&onnx__model_proto__descriptor, &allocator, size, data);
    }
    if (model == NULL) {
        return 0;
    }
    for (uint32_t changes = 1 + below(&m, 4); changes > 0; changes--) {
        bool changed = false;
        m.message_count = m.string_count = 0;
        collect(&m, model);
        for (int tries = 0; tries < 16 && !changed; tries++) {
            changed = change(&m);
        }
    }
    const size_t packed = protobuf_c_message_get_packed_size(model);
    if (packed > 0 && packed <= max_size) {
        (void)protobuf_c_message_pack(model, data);
    }
    return packed <= max_size ? packed : 0;
}
