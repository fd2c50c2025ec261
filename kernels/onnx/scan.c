/* SPDX-License-Identifier: Apache-2.0 */
/* Protobuf's wire format, walked once before protobuf-c unpacks it, and unpacking in bounded memory. */
#include <stdlib.h>

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

static enum leat_status scan_message(const ProtobufCMessageDescriptor *descriptor,
                                     struct cursor cursor, unsigned depth);

static enum leat_status
malformed(const ProtobufCMessageDescriptor *descriptor)
{
    return LEAT_FAIL(LEAT_ERR_PROTO, "not an ONNX file: a %s in it is cut short or malformed",
                     descriptor->short_name);
}

/* One length-delimited field; the cursor stands on its length. */
static enum leat_status
scan_bytes(const ProtobufCMessageDescriptor *descriptor, const ProtobufCFieldDescriptor *field,
           struct cursor *cursor, uint64_t *seen, unsigned depth)
{
    uint64_t length;

    if (!read_varint(cursor, &length)) {
        return malformed(descriptor);
    }
    const uint8_t *start = cursor->at;
    if (!skip(cursor, length)) {
        return malformed(descriptor);
    }
    const struct cursor inner = {start, cursor->at};
    if (field == NULL || field->type != PROTOBUF_C_TYPE_MESSAGE) {
        return LEAT_OK;
    }
    const unsigned index = (unsigned)(field - descriptor->fields);
    LEAT_ASSERT(index < FIELDS_MAX);
    if (field->label != PROTOBUF_C_LABEL_REPEATED && (*seen >> index & 1) != 0) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "not an ONNX file: field %s of a %s is there twice",
                         field->name, descriptor->short_name);
    }
    *seen |= UINT64_C(1) << index;
    return scan_message(field->descriptor, inner, depth + 1);
}

static enum leat_status
scan_message(const ProtobufCMessageDescriptor *descriptor, struct cursor cursor, unsigned depth)
{
    uint64_t seen = 0; /* bit i: singular message field i was there */

    if (depth > LEAT_ONNX_DEPTH_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "messages are nested more than %u deep",
                         LEAT_ONNX_DEPTH_MAX);
    }
    while (cursor.at < cursor.end) {
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
            const enum leat_status status = scan_bytes(descriptor, field, &cursor, &seen, depth);
            if (status != LEAT_OK) {
                return status;
            }
            good = true;
            break;
        }
        default: /* groups are not in onnx.proto */
            break;
        }
        if (!good) {
            return malformed(descriptor);
        }
    }
    return LEAT_OK;
}

enum leat_status
leat_onnx_scan(const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t byte_count)
{
    const struct cursor cursor = {bytes, (const uint8_t *)bytes + byte_count};
    return byte_count == 0 ? LEAT_OK : scan_message(descriptor, cursor, 1);
}

/* What protobuf-c may still take. Its structures are up to a hundred times their bytes on the wire. */
static void *
budget_alloc(void *budget, size_t size)
{
    size_t *left = budget;
    if (size > *left) {
        return NULL;
    }
    *left -= size;
    return malloc(size);
}

static void
budget_free(void *budget, void *pointer)
{
    (void)budget; /* what was given back is not reused: the budget bounds the sum, not the peak */
    free(pointer);
}

enum leat_status
leat_onnx_unpack(const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t byte_count,
                 ProtobufCMessage **ret_message)
{
    if (byte_count > LEAT_ONNX_BYTES_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%zu bytes are more than a protobuf message can have",
                         byte_count);
    }
    const enum leat_status status = leat_onnx_scan(descriptor, bytes, byte_count);
    if (status != LEAT_OK) {
        return status;
    }
    size_t budget = ((size_t)256 << 20) + 10 * byte_count;
    ProtobufCAllocator allocator = {
        .alloc = budget_alloc, .free = budget_free, .allocator_data = &budget};
    ProtobufCMessage *message =
        protobuf_c_message_unpack(descriptor, &allocator, byte_count, bytes);
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
