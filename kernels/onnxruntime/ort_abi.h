/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/onnxruntime/ort_abi.h - the part of ONNX Runtime's C interface that the plug-in calls.
 *
 * Source     The documented C API of ONNX Runtime (OrtGetApiBase, OrtApi), by places: OrtApi is a table of functions that only
 *            grows, so that a place means the same in every version that has it. Gaps are functions that we do not call.
 * Threads    A session may be run by several threads at once; all else here, one thread at a time.
 * Failure    A function that returns a status returns NULL when it worked; the caller releases the others.
 */
#ifndef LEAT_KERNELS_ORT_ABI_H
#define LEAT_KERNELS_ORT_ABI_H

#include <stddef.h>
#include <stdint.h>

#define ORT_VERSION       11u /* that has all functions below but the last: ONNX Runtime 1.11 */
#define ORT_VERSION_FILES 18u /* that has the last one too */

struct ort_allocator;
struct ort_env;
struct ort_memory_info;
struct ort_options;
struct ort_session;
struct ort_status;
struct ort_tensor_info;
struct ort_type_info;
struct ort_value;

enum { ORT_LOG_FATAL = 4 };                                /* what an environment tells standard error at least */
enum { ORT_OPTIMISE_NOTHING = 0, ORT_OPTIMISE_ALL = 99 };
enum { ORT_ARENA_ALLOCATOR = 1, ORT_MEMORY_DEFAULT = 0 };

/* Element types: as in ONNX. */
enum ort_type {
    ORT_F32 = 1,
    ORT_U8 = 2,
    ORT_I8 = 3,
    ORT_U16 = 4,
    ORT_I16 = 5,
    ORT_I32 = 6,
    ORT_I64 = 7,
    ORT_BOOL = 9,
    ORT_F16 = 10,
    ORT_F64 = 11,
    ORT_U32 = 12,
    ORT_U64 = 13,
    ORT_BF16 = 16,
};

/* Starts a thread that calls body(argument), and waits for its end; handles are ours. */
typedef void *(*ort_start_thread)(void *context, void (*body)(void *argument), void *argument);
typedef void (*ort_join_thread)(void *handle);

#define ORT_GAP(from, to) void (*gap_##from[(to) - (from)])(void)

struct ort_api {
    ORT_GAP(0, 2);
    const char *(*status_text)(const struct ort_status *status);
    struct ort_status *(*create_env)(int log_level, const char *name, struct ort_env **ret_env);
    ORT_GAP(4, 8);
    struct ort_status *(*create_session)(const struct ort_env *env, const void *model, size_t model_bytes,
                                         const struct ort_options *options, struct ort_session **ret_session);
    struct ort_status *(*run)(struct ort_session *session, const void *run_options, const char *const *input_names,
                              const struct ort_value *const *inputs, size_t input_count, const char *const *output_names,
                              size_t output_count, struct ort_value **outputs);
    struct ort_status *(*create_options)(struct ort_options **ret_options);
    ORT_GAP(11, 23);
    struct ort_status *(*set_optimisation)(struct ort_options *options, int level);
    struct ort_status *(*set_intra_threads)(struct ort_options *options, int threads);
    struct ort_status *(*set_inter_threads)(struct ort_options *options, int threads);
    ORT_GAP(26, 30);
    struct ort_status *(*input_count)(const struct ort_session *session, size_t *ret_count);
    struct ort_status *(*output_count)(const struct ort_session *session, size_t *ret_count);
    ORT_GAP(32, 33);
    struct ort_status *(*input_type)(const struct ort_session *session, size_t index, struct ort_type_info **ret_info);
    struct ort_status *(*output_type)(const struct ort_session *session, size_t index, struct ort_type_info **ret_info);
    ORT_GAP(35, 36);
    struct ort_status *(*input_name)(const struct ort_session *session, size_t index, struct ort_allocator *allocator,
                                     char **ret_name);
    struct ort_status *(*output_name)(const struct ort_session *session, size_t index, struct ort_allocator *allocator,
                                      char **ret_name);
    ORT_GAP(38, 49);
    struct ort_status *(*create_tensor)(const struct ort_memory_info *memory, void *data, size_t bytes, const int64_t *dims,
                                        size_t rank, enum ort_type type, struct ort_value **ret_value);
    ORT_GAP(50, 55);
    struct ort_status *(*tensor_info)(const struct ort_type_info *type, const struct ort_tensor_info **ret_info); /* NULL: no tensor */
    ORT_GAP(56, 60);
    struct ort_status *(*element_type)(const struct ort_tensor_info *info, enum ort_type *ret_type);
    struct ort_status *(*rank)(const struct ort_tensor_info *info, size_t *ret_rank);
    struct ort_status *(*dims)(const struct ort_tensor_info *info, int64_t *dims, size_t rank); /* -1: not known */
    struct ort_status *(*dim_names)(const struct ort_tensor_info *info, const char **names, size_t rank); /* "": none */
    ORT_GAP(64, 69);
    struct ort_status *(*create_cpu_memory)(int allocator_type, int memory_type, struct ort_memory_info **ret_memory);
    ORT_GAP(70, 76);
    struct ort_status *(*allocator_free)(struct ort_allocator *allocator, void *block);
    ORT_GAP(77, 78);
    struct ort_status *(*default_allocator)(struct ort_allocator **ret_allocator); /* not to be released */
    ORT_GAP(79, 92);
    void (*release_env)(struct ort_env *env);
    void (*release_status)(struct ort_status *status);
    void (*release_memory)(struct ort_memory_info *memory);
    void (*release_session)(struct ort_session *session);
    void (*release_value)(struct ort_value *value);
    ORT_GAP(97, 98);
    void (*release_type_info)(struct ort_type_info *info);
    ORT_GAP(99, 100);
    void (*release_options)(struct ort_options *options);
    ORT_GAP(101, 124);
    struct ort_status *(*set_dim)(struct ort_options *options, const char *name, int64_t value);
    ORT_GAP(125, 130);
    struct ort_status *(*set_config)(struct ort_options *options, const char *key, const char *value);
    ORT_GAP(131, 196);
    struct ort_status *(*set_start_thread)(struct ort_options *options, ort_start_thread start);
    struct ort_status *(*set_thread_context)(struct ort_options *options, void *context);
    struct ort_status *(*set_join_thread)(struct ort_options *options, ort_join_thread join);
    ORT_GAP(199, 279);
    /* Weights that the model looks for in files of these names; the blocks are the caller's, until no session has them. */
    struct ort_status *(*set_files)(struct ort_options *options, const char *const *names, char *const *blocks,
                                    const size_t *bytes, size_t count);
};

#define ORT_PLACE(function, place) \
    _Static_assert(offsetof(struct ort_api, function) == (place) * sizeof(void (*)(void)), "a place of the table")
ORT_PLACE(status_text, 2);
ORT_PLACE(create_session, 8);
ORT_PLACE(create_options, 10);
ORT_PLACE(set_inter_threads, 25);
ORT_PLACE(output_count, 31);
ORT_PLACE(output_type, 34);
ORT_PLACE(output_name, 37);
ORT_PLACE(create_tensor, 49);
ORT_PLACE(tensor_info, 55);
ORT_PLACE(dims, 62);
ORT_PLACE(create_cpu_memory, 69);
ORT_PLACE(allocator_free, 76);
ORT_PLACE(default_allocator, 78);
ORT_PLACE(release_value, 96);
ORT_PLACE(release_type_info, 98);
ORT_PLACE(release_options, 100);
ORT_PLACE(set_config, 130);
ORT_PLACE(dim_names, 63);
ORT_PLACE(set_dim, 124);
ORT_PLACE(set_join_thread, 198);
ORT_PLACE(set_files, 279);

struct ort_api_base {
    const struct ort_api *(*get_api)(uint32_t version); /* NULL: the library is older */
    const char *(*version_text)(void);
};

#define ORT_SYMBOL "OrtGetApiBase"
typedef const struct ort_api_base *(*ort_get_api_base)(void);

#endif /* LEAT_KERNELS_ORT_ABI_H */
