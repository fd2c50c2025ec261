/* SPDX-License-Identifier: Apache-2.0 */
/* Protobuf's wire format, walked once before protobuf-c unpacks it, and unpacking in bounded memory. */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/onnx/onnx.h"

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

#define FIELDS_MAX 64u /* of one message type of onnx.proto */

struct cursor {
    const uint8_t *at, *end;
};

/* False at the end of the bytes or when a varint is longer than ten bytes. */
static bool
read_varint(struct cursor *cursor, uint64_t *ret)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70 && cursor->at < cursor->end; shift += 7) {
        const uint8_t byte = *cursor->at++;
        value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
        if (byte < 0x80) {
            *ret = value;
            return true;
        }
    }
    return false;
}

static bool
skip(struct cursor *cursor, uint64_t bytes)
{
    if (bytes > (uint64_t)(cursor->end - cursor->at)) {
        return false;
    }
    cursor->at += bytes;
    return true;
}

struct thin;
static enum leat_status scan_message(const ProtobufCMessageDescriptor *descriptor, struct cursor cursor, unsigned depth,
                                     struct thin *thin);

static enum leat_status
malformed(const ProtobufCMessageDescriptor *descriptor)
{
    return LEAT_FAIL(LEAT_ERR_PROTO, "not an ONNX file: a %s in it is cut short or malformed",
                     descriptor->short_name);
}

/* The message without what is not copied: see leat_onnx_unpack(). */
struct thin {
    uint8_t *bytes;
    size_t count, room;
    bool failed; /* no memory */
};

static void
put(struct thin *thin, const void *data, size_t count)
{
    if (thin == NULL || thin->failed) {
        return;
    }
    if (count > thin->room - thin->count) {
        const size_t room = 2 * (thin->count + count) + 4096;
        uint8_t *bytes = realloc(thin->bytes, room);
        if (bytes == NULL) {
            thin->failed = true;
            return;
        }
        thin->bytes = bytes;
        thin->room = room;
    }
    memcpy(thin->bytes + thin->count, data, count);
    thin->count += count;
}

static void
put_varint(struct thin *thin, uint64_t value)
{
    uint8_t bytes[10];
    size_t count = 0;

    for (; value >= 0x80; value >>= 7) {
        bytes[count++] = (uint8_t)(value | 0x80);
    }
    bytes[count++] = (uint8_t)value;
    put(thin, bytes, count);
}

/* Where elements lie in the file, in fields that a TensorProto does not have. */
static void
put_reference(struct thin *thin, const uint8_t *at, uint64_t length)
{
    const uint64_t place = (uintptr_t)at;
    put_varint(thin, LEAT_ONNX_FIELD_PLACE << 3 | WIRE_FIXED64);
    put(thin, &place, sizeof(place));
    put_varint(thin, LEAT_ONNX_FIELD_LENGTH << 3 | WIRE_FIXED64);
    put(thin, &length, sizeof(length));
}

/* The length of what was put from `start` on goes before it. */
static void
put_length_before(struct thin *thin, size_t start)
{
    uint8_t length[10];

    if (thin == NULL || thin->failed) {
        return;
    }
    const size_t count = thin->count - start;
    put_varint(thin, count);
    if (!thin->failed) {
        const size_t prefix = thin->count - start - count;
        memcpy(length, thin->bytes + start + count, prefix);
        memmove(thin->bytes + start + prefix, thin->bytes + start, count);
        memcpy(thin->bytes + start, length, prefix);
    }
}

/* One length-delimited field; the cursor stands on its length, `key` on what is before that. */
static enum leat_status
scan_bytes(const ProtobufCMessageDescriptor *descriptor, const ProtobufCFieldDescriptor *field, const uint8_t *key,
           struct cursor *cursor, uint64_t *seen, unsigned depth, struct thin *thin)
{
    const size_t key_bytes = (size_t)(cursor->at - key);
    uint64_t length;

    if (!read_varint(cursor, &length)) {
        return malformed(descriptor);
    }
    const uint8_t *start = cursor->at;
    if (!skip(cursor, length)) {
        return malformed(descriptor);
    }
    const struct cursor inner = {start, cursor->at};
    if (field == NULL) {
        return LEAT_OK;
    }
    const bool elements = descriptor == &onnx__tensor_proto__descriptor && strcmp(field->name, "raw_data") == 0;
    if (field->type != PROTOBUF_C_TYPE_MESSAGE && !elements) {
        put(thin, key, (size_t)(cursor->at - key));
        return LEAT_OK;
    }
    const unsigned index = (unsigned)(field - descriptor->fields);
    LEAT_ASSERT(index < FIELDS_MAX);
    if (field->label != PROTOBUF_C_LABEL_REPEATED && (*seen >> index & 1) != 0) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "not an ONNX file: field %s of a %s is there twice",
                         field->name, descriptor->short_name);
    }
    *seen |= UINT64_C(1) << index;
    if (elements && length >= LEAT_ONNX_IN_PLACE_MIN) {
        put_reference(thin, start, length);
        return LEAT_OK;
    }
    if (elements) {
        put(thin, key, (size_t)(cursor->at - key));
        return LEAT_OK;
    }
    put(thin, key, key_bytes);
    const size_t before = thin != NULL ? thin->count : 0;
    const enum leat_status status = scan_message(field->descriptor, inner, depth + 1, thin);
    put_length_before(thin, before);
    return status;
}

static enum leat_status
scan_message(const ProtobufCMessageDescriptor *descriptor, struct cursor cursor, unsigned depth, struct thin *thin)
{
    uint64_t seen = 0; /* bit i: singular field i was there */

    if (depth > LEAT_ONNX_DEPTH_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "messages are nested more than %u deep",
                         LEAT_ONNX_DEPTH_MAX);
    }
    while (cursor.at < cursor.end) {
        const uint8_t *start = cursor.at;
        uint64_t key, ignored;
        if (!read_varint(&cursor, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX >> 3) {
            return malformed(descriptor);
        }
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(descriptor, (unsigned)(key >> 3));
        bool good = false;
        switch (key & 7) {
        case WIRE_VARINT:
            good = read_varint(&cursor, &ignored);
            break;
        case WIRE_FIXED64:
            good = skip(&cursor, 8);
            break;
        case WIRE_FIXED32:
            good = skip(&cursor, 4);
            break;
        case WIRE_BYTES: {
            const enum leat_status status = scan_bytes(descriptor, field, start, &cursor, &seen, depth, thin);
            if (status != LEAT_OK) {
                return status;
            }
            continue;
        }
        default: /* groups are not in onnx.proto */
            break;
        }
        if (!good) {
            return malformed(descriptor);
        }
        if (field != NULL) { /* others are left out: none of them is taken for a reference */
            put(thin, start, (size_t)(cursor.at - start));
        }
    }
    return LEAT_OK;
}

enum leat_status
leat_onnx_scan(const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t byte_count)
{
    const struct cursor cursor = {bytes, (const uint8_t *)bytes + byte_count};
    return byte_count == 0 ? LEAT_OK : scan_message(descriptor, cursor, 1, NULL);
}

#define MESSAGE_BYTES_FREE  ((size_t)256 << 20)
#define MESSAGE_BYTES_LEAST ((size_t)16 << 20) /* under any limit; it is gone once the graph is there */

/* What protobuf-c may still take. Its structures are up to a hundred times their bytes on the wire. */
struct budget {
    size_t left;
    bool spent; /* it asked for more */
};

static void *
budget_alloc(void *context, size_t size)
{
    struct budget *budget = context;
    if (size > budget->left) {
        budget->spent = true;
        return NULL;
    }
    budget->left -= size;
    return malloc(size);
}

static void
budget_free(void *context, void *pointer)
{
    (void)context; /* what was given back is not reused: the budget bounds the sum, not the peak */
    free(pointer);
}

enum leat_status
leat_onnx_unpack(const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t byte_count,
                 uint64_t memory_bytes_max, ProtobufCMessage **ret_message)
{
    if (byte_count > LEAT_ONNX_BYTES_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%zu bytes are more than a protobuf message can have",
                         byte_count);
    }
    struct thin thin = {.bytes = NULL};
    const struct cursor cursor = {bytes, (const uint8_t *)bytes + byte_count};
    const enum leat_status status = byte_count == 0 ? LEAT_OK : scan_message(descriptor, cursor, 1, &thin);
    if (status != LEAT_OK || thin.failed) {
        free(thin.bytes);
        return status != LEAT_OK ? status : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to read a file of %zu bytes", byte_count);
    }
    struct budget budget = {.left = MESSAGE_BYTES_FREE + 10 * byte_count};
    if (memory_bytes_max > 0 && memory_bytes_max < budget.left) {
        budget.left = memory_bytes_max > MESSAGE_BYTES_LEAST ? (size_t)memory_bytes_max : MESSAGE_BYTES_LEAST;
    }
    const size_t given = budget.left;
    ProtobufCAllocator allocator = {
        .alloc = budget_alloc, .free = budget_free, .allocator_data = &budget};
    ProtobufCMessage *message =
        protobuf_c_message_unpack(descriptor, &allocator, thin.count, thin.bytes);
    free(thin.bytes);
    if (message == NULL && budget.spent) {
        return LEAT_FAIL(LEAT_ERR_LIMIT,
                         "the file's %zu bytes describe more than its memory may be: a %s of more than %zu bytes", byte_count,
                         descriptor->short_name, given);
    }
    if (message == NULL) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "not an ONNX file: it does not parse as a %s",
                         descriptor->short_name);
    }
    *ret_message = message;
    return LEAT_OK;
}

void
leat_onnx_free(ProtobufCMessage *message)
{
    ProtobufCAllocator allocator = {.alloc = budget_alloc, .free = budget_free};
    if (message != NULL) {
        protobuf_c_message_free_unpacked(message, &allocator);
    }
}

bool
leat_onnx_raw(const Onnx__TensorProto *tensor, ProtobufCBinaryData *ret_raw)
{
    const ProtobufCMessageUnknownField *fields = tensor->base.unknown_fields;
    uint64_t place, length;

    if (tensor->base.n_unknown_fields != 2) {
        *ret_raw = tensor->raw_data;
        return tensor->has_raw_data;
    }
    LEAT_ASSERT(fields[0].tag == LEAT_ONNX_FIELD_PLACE && fields[0].len == sizeof(place));
    LEAT_ASSERT(fields[1].tag == LEAT_ONNX_FIELD_LENGTH && fields[1].len == sizeof(length));
    memcpy(&place, fields[0].data, sizeof(place));
    memcpy(&length, fields[1].data, sizeof(length));
    *ret_raw = (ProtobufCBinaryData){.len = (size_t)length, .data = (uint8_t *)(uintptr_t)place};
    return true;
}
