/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/onnx/onnx.h - the steps of the ONNX import, for the files in this folder.
 *
 * Trust    Every number and string comes from an untrusted file. leat_onnx_scan() runs before
 *          protobuf-c sees the bytes: it bounds nesting (protobuf-c recurses without limit) and refuses
 *          repeated singular messages (protobuf-c merges them in quadratic time).
 * Memory   The elements of a large tensor stay where they are in the file until they are copied into the graph: protobuf-c would
 *          copy them once more.
 */
#ifndef LEAT_KERNELS_ONNX_ONNX_H
#define LEAT_KERNELS_ONNX_ONNX_H

#include <onnx.pb-c.h>
#include <stdbool.h>

#include "kernels/graph_build.h"

#define LEAT_ONNX_BYTES_MAX INT32_MAX /* protobuf's own limit */
#define LEAT_ONNX_DEPTH_MAX 28u       /* messages inside messages; a plain model needs 7, a graph inside another 3 more */
#define LEAT_ONNX_LOOPS_MAX 3u        /* Loop and Scan inside each other */

/* Wire-level check of one serialised message. */
LEAT_MUST_CHECK enum leat_status leat_onnx_scan(const ProtobufCMessageDescriptor *descriptor,
                                                const void *bytes, size_t byte_count);

/*
 * Fails for a message that a bounded amount of memory cannot hold, LEAT_ERR_LIMIT: what the file's size lets expect, and a
 * model's limit, `memory_bytes_max`, 0 without one, but 16 MiB in any case. See leat_onnx_free(). Raw data of a tensor from
 * LEAT_ONNX_IN_PLACE_MIN bytes on stay in `bytes`, which have to outlive the message: leat_onnx_raw() finds them. Fields that
 * the descriptors do not have are gone.
 */
#define LEAT_ONNX_IN_PLACE_MIN 4096u
LEAT_MUST_CHECK enum leat_status leat_onnx_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                  const void *bytes, size_t byte_count, uint64_t memory_bytes_max,
                                                  ProtobufCMessage **ret_message);
void leat_onnx_free(ProtobufCMessage *message);

/* Of no message in onnx.proto; fixed64 each. */
#define LEAT_ONNX_FIELD_PLACE  UINT64_C(50001)
#define LEAT_ONNX_FIELD_LENGTH UINT64_C(50002)
/* False where the tensor has no raw data. It is a part of a message that leat_onnx_unpack() made. */
bool leat_onnx_raw(const Onnx__TensorProto *tensor, ProtobufCBinaryData *ret_raw);

/* The ONNX type, for error texts; room has 32 bytes. */
const char *leat_onnx_type_text(int64_t type, char *room);

/* Files beside the model that tensors lie in: each is mapped once. */
struct leat_onnx_files {
    const struct leat_onnx_source *source; /* whose files and folder they are */
    bool graphs_inside;                   /* of some node: what they read has to be aligned */
    size_t in_place_min;                  /* floats of as many bytes stay in the model's own file, where that is mapped */
    uint32_t count;
    const char *names[LEAT_ONNX_FILES_MAX]; /* of the unpacked message */
    struct leat_mapping *mappings[LEAT_ONNX_FILES_MAX];
};
void leat_onnx_files_close(struct leat_onnx_files *files);

/*
 * A TensorProto as a constant of the graph. `name` is in the arena and for error texts. `files` may be NULL: then data in
 * other files are refused.
 */
LEAT_MUST_CHECK enum leat_status leat_onnx_tensor(struct leat_graph *graph, struct leat_onnx_files *files,
                                                  const char *name, const Onnx__TensorProto *tensor,
                                                  uint32_t *ret_index);

/* The product of dims, which may be anything, as a tensor of that type can have it. `name` is for error texts, as below. */
LEAT_MUST_CHECK enum leat_status leat_onnx_shape(const char *name, size_t rank, const int64_t *dims, uint32_t dtype,
                                                 uint64_t *ret_elements);

/* Its data are not in the message: in another file, or in several parts. */
bool leat_onnx_is_elsewhere(const Onnx__TensorProto *tensor);

/* Where a tensor that has its data itself has them: raw, or in the field of its type. */
struct leat_onnx_elements {
    const Onnx__TensorProto *tensor;
    uint32_t dtype;
    size_t count;
    bool is_raw;
    const unsigned char *raw;
    size_t raw_bytes;
};
/* LEAT_ERR_PROTO unless there are exactly `count` of them. */
LEAT_MUST_CHECK enum leat_status leat_onnx_find_elements(const char *name, const Onnx__TensorProto *tensor, uint32_t dtype,
                                                         uint64_t count, struct leat_onnx_elements *ret);
/* `to` has room for them, densely packed. */
void leat_onnx_copy_elements(const struct leat_onnx_elements *elements, void *to);

/* A SparseTensorProto as a constant with all its elements; `name` is in the arena. */
LEAT_MUST_CHECK enum leat_status leat_onnx_sparse(struct leat_graph *graph, const char *name,
                                                  const Onnx__SparseTensorProto *sparse, uint32_t *ret_index);

/* Where a tensor whose data lie elsewhere has them, in the message. */
struct leat_onnx_place {
    const char *location;
    uint64_t offset, length;
    bool has_length;
};
LEAT_MUST_CHECK enum leat_status leat_onnx_place(const char *name, const Onnx__TensorProto *tensor,
                                                 struct leat_onnx_place *ret_place);

/* Value `index` of the graph, of known shape, from the file that the tensor names. */
LEAT_MUST_CHECK enum leat_status leat_onnx_external(struct leat_graph *graph, struct leat_onnx_files *files,
                                                    const Onnx__TensorProto *tensor, uint32_t index);

#endif /* LEAT_KERNELS_ONNX_ONNX_H */
