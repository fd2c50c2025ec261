/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/variant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include <time.h>
#include <unistd.h>

#include "base/align.h"
#include "base/clock.h"
#include "kernels/cost.h"
#include "kernels/cpu/calibrate.h"
#include "kernels/graph.h"
#include "kernels/made_inputs.h"
#include "kernels/mapping.h"
#include "kernels/sequence.h"
#include "runtime/memory.h"

#define RANGE_MAX 3.4e38 /* about the greatest float */

enum leat_status
leat_variant_map_file(int fd, const char *name, struct leat_mapping **ret_mapping, const void **ret_bytes, size_t *ret_count)
{
    struct leat_mapping *mapping = NULL;

    const enum leat_status status = leat_mapping_create(fd, name, &mapping);
    (void)close(fd);
    if (status != LEAT_OK) {
        return status;
    }
    *ret_bytes = leat_mapping_data(mapping, ret_count);
    if (*ret_count == 0) {
        leat_mapping_release(mapping);
        return LEAT_FAIL(LEAT_ERR_PROTO, "the file '%.64s' is empty", name);
    }
    *ret_mapping = mapping;
    return LEAT_OK;
}

static enum leat_status
build_plans(const struct leat_variant_source *source, const struct leat_variant *variant, struct leat_variant_copy *copy,
            struct leat_loaded_variant *loaded)
{
    for (uint32_t bucket = 0; bucket <= leat_variant_top_plan(variant); bucket++) {
        const struct leat_plan_options options = {
            .items = leat_variant_plan_items(variant, bucket),
            .team_sizes = source->team_sizes,
            .team_size_count = source->team_size_count,
            .runs = (variant->backend->yields ? 2 : 1) * source->runs, /* one passes another on the same worker */
            .length = variant->length,
        };
        const enum leat_status status = variant->backend->plan_build(copy->model, &options, &copy->plans[bucket]);
        if (status != LEAT_OK) {
            return leat_err_prefix(status, "batch of %u", options.items);
        }
        const size_t scratch = variant->backend->plan_scratch_bytes(copy->plans[bucket]);
        loaded->scratch_bytes = scratch > loaded->scratch_bytes ? scratch : loaded->scratch_bytes;
        const uint64_t bytes = (uint64_t)variant->backend->model_bytes(copy->model) + scratch;
        if (source->memory_bytes_max > 0 && bytes > source->memory_bytes_max) {
            return LEAT_FAIL(LEAT_ERR_LIMIT, "a batch of %u takes %llu bytes with the weights, limits.model_memory is %llu",
                             options.items, (unsigned long long)bytes, (unsigned long long)source->memory_bytes_max);
        }
    }
    return LEAT_OK;
}

enum leat_status
leat_variant_measure_team(const struct leat_variant *variant, uint32_t cores, struct leat_measured *measured)
{
    struct leat_variant_copy copy = {.model = variant->copies[0].model};
    struct leat_variant shadow = *variant;
    struct leat_loaded_variant loaded = {0};
    const struct leat_variant_source source = {.team_sizes = &cores, .team_size_count = 1};
    char name[LEAT_MEASURED_CLASS_BYTES];

    if (variant->backend->times_by_class) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "times of backend '%s' do not depend on cores", variant->backend->name);
    }
    shadow.copies = &copy;
    shadow.copy_count = 1;
    (void)snprintf(name, sizeof(name), "%u cores", cores);
    shadow.shorter_count = 0;
    enum leat_status status = build_plans(&source, &shadow, &copy, &loaded);
    if (status == LEAT_OK) {
        status = leat_variant_measure(&shadow, 0, name, cores, measured);
    }
    for (uint32_t bucket = 0; bucket < LEAT_PLANS_MAX; bucket++) {
        if (copy.plans[bucket] != NULL) {
            variant->backend->plan_destroy(copy.plans[bucket]);
        }
    }
    return status;
}

/* Of one copy and one worker. */
static uint64_t
peak_bytes(const struct leat_loaded_variant *loaded)
{
    const struct leat_variant *variant = loaded->variant;
    uint64_t bytes = loaded->model_bytes / variant->copy_count + loaded->scratch_bytes;

    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        bytes += variant->item_bytes[t] * variant->items_max;
    }
    return bytes;
}

/* What the worker class takes for one of the loaded variants, its own or a shorter one. */
static enum leat_status
profile_class(const struct leat_variant_source *source, const struct leat_variant *variant, uint32_t class, uint32_t cores,
              struct leat_loaded_variant *loaded, struct leat_profile *profile)
{
    const char *name = source->class_names != NULL ? source->class_names[class] : "";
    const bool by_class = variant->backend->times_by_class;

    if (leat_measured_teach(&loaded->measured, name, cores, by_class, variant->length, variant->items_max, profile)) {
        return leat_variant_warm(variant, 0, class, cores);
    }
    const enum leat_status status = leat_variant_measure(variant, class, name, cores, &loaded->measured);
    loaded->measured_anew = true;
    if (status != LEAT_OK) {
        return status;
    }
    LEAT_MUST(leat_measured_teach(&loaded->measured, name, cores, by_class, variant->length, variant->items_max, profile));
    return leat_variant_warm(variant, 1, class, cores); /* the first copy has run */
}

enum leat_status
leat_variant_profile(const struct leat_variant_source *source, struct leat_loaded_variant *loaded)
{
    static const uint32_t alone[] = {1};
    const struct leat_measured *known = source->measured;
    const uint32_t *sizes = source->team_size_count > 0 ? source->team_sizes : alone;
    const uint32_t count = source->team_size_count > 0 ? source->team_size_count : 1;
    const char *host = source->host != NULL ? source->host : "";
    enum leat_status status = LEAT_OK;

    LEAT_ASSERT(count <= LEAT_WORKER_CLASSES_MAX);
    if (known != NULL && (known->host[0] == '\0' || strcmp(known->host, host) == 0)) {
        status = leat_measured_copy(known, &loaded->measured);
    }
    for (uint32_t class = 0; class < count && status == LEAT_OK; class++) {
        status = profile_class(source, loaded->variant, class, sizes[class], loaded, &loaded->profiles[class]);
        for (uint32_t s = 0; s < loaded->variant->shorter_count && status == LEAT_OK; s++) {
            status = profile_class(source, loaded->variant->shorter[s], class, sizes[class], loaded,
                                   &loaded->shorter_profiles[s][class]);
        }
    }
    if (status != LEAT_OK) {
        leat_measured_free(&loaded->measured);
    } else if (loaded->measured_anew) {
        (void)snprintf(loaded->measured.host, sizeof(loaded->measured.host), "%s", host);
        loaded->measured.measured_s = (uint64_t)time(NULL);
        loaded->measured.load_ns = loaded->load_ns;
        loaded->measured.peak_bytes = peak_bytes(loaded);
    }
    return status;
}

/* A backend's word on a file, of which nobody else knows what is in it. */
static enum leat_status
check_tensor(const struct leat_backend *backend, const struct leat_tensor_info *info, bool is_output)
{
    uint64_t bytes = leat_dtype_bytes(info->dtype);
    bool good = bytes > 0 && info->rank >= 1 && info->rank <= LEAT_RANK_MAX && info->dims[0] == -1 &&
                memchr(info->name, '\0', sizeof(info->name)) != NULL;

    good = good && info->varying < info->rank && info->reserved == 0 &&
           (info->varying == 0 || (is_output && info->dims[info->varying] <= (int64_t)LEAT_SIZE_MAX));
    for (uint32_t d = 1; good && d < info->rank; d++) {
        good = info->dims[d] > 0 && leat_mul_u64(bytes, (uint64_t)info->dims[d], &bytes) && bytes <= LEAT_VALUE_BYTES_MAX;
    }
    return good && bytes == info->item_bytes
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_SHAPE, "backend '%s' says of tensor '%.64s' what cannot be", backend->name, info->name);
}

static enum leat_status
ask_for_signature(const struct leat_model_source *source, const struct leat_backend *backend, struct leat_target *signature)
{
    uint32_t inputs = 0, outputs = 0;

    memset(signature->tensors, 0, sizeof(signature->tensors));
    enum leat_status status = backend->model_describe(source, signature->tensors, &inputs, &outputs);
    if (status == LEAT_OK && (inputs < 1 || outputs < 1 || inputs > LEAT_TENSORS_MAX || outputs > LEAT_TENSORS_MAX - inputs)) {
        status = LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "%u inputs and %u outputs; at least one of each, and up to %u in all, can be had",
                           inputs, outputs, LEAT_TENSORS_MAX);
    }
    for (uint32_t t = 0; t < inputs + outputs && status == LEAT_OK; t++) {
        status = check_tensor(backend, &signature->tensors[t], t >= inputs);
    }
    if (status == LEAT_OK && leat_signature_sizes(signature->tensors, inputs + outputs) > LEAT_SIZES_MAX) {
        status = LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "more than %u outputs vary", LEAT_SIZES_MAX);
    }
    if (status == LEAT_OK) {
        signature->input_count = inputs;
        signature->output_count = outputs;
    }
    return status;
}

/* What a model is in: a graph, or one for each of its lengths. Both NULL: a backend describes it by itself. */
struct graphs {
    struct leat_graph *graph;
    struct leat_sequence *sequence;
};

static void
destroy_graphs(struct graphs *graphs)
{
    leat_graph_destroy(graphs->graph);
    leat_sequence_destroy(graphs->sequence);
    *graphs = (struct graphs){0};
}

/* The graph gives way to one for each length. */
static enum leat_status
bind_lengths(const char *name, const json_t *array, struct graphs *graphs)
{
    uint32_t lengths[LEAT_LENGTHS_MAX], count = 0;

    for (; count < json_array_size(array); count++) {
        LEAT_ASSERT(count < LEAT_LENGTHS_MAX); /* read_lengths */
        lengths[count] = (uint32_t)json_integer_value(json_array_get(array, count));
    }
    const enum leat_status status = leat_sequence_create(graphs->graph, name, lengths, count, &graphs->sequence);
    leat_graph_destroy(graphs->graph);
    graphs->graph = NULL;
    return status;
}

/* What the options say of free dimensions: {"batch": "items", "height": 224, "sequence": [64, 128]}. */
struct given_dims {
    json_t *json; /* that has the names; to be released */
    const char *batch, *sequence; /* which dimension counts items, and which has several lengths; NULL: none is named */
    struct leat_dim_value values[LEAT_GRAPH_SYMBOLS_MAX];
    uint32_t count;
};

static enum leat_status
take_dims(const struct leat_variant *variant, struct given_dims *ret)
{
    const char *name;
    json_t *value;

    *ret = (struct given_dims){.json = variant->dims_json != NULL ? json_loads(variant->dims_json, 0, NULL) : json_object()};
    json_object_foreach(ret->json, name, value) {
        LEAT_ASSERT(ret->count < LEAT_COUNT_OF(ret->values)); /* read_options */
        if (json_is_array(value)) {
            ret->sequence = name;
        } else if (json_is_string(value)) {
            ret->batch = name;
        } else if (json_is_integer(value)) {
            ret->values[ret->count++] = (struct leat_dim_value){.name = name, .value = json_integer_value(value)};
        }
    }
    return ret->json != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for dimensions");
}

/* Likewise of inputs. */
struct given_constants {
    json_t *json; /* that has their names; to be released */
    struct leat_constant_input values[LEAT_CONSTANT_INPUTS_MAX];
    uint32_t count;
};

static enum leat_status
take_constants(const struct leat_variant *variant, struct given_constants *ret)
{
    const char *name;
    json_t *value;

    *ret = (struct given_constants){
        .json = variant->constants_json != NULL ? json_loads(variant->constants_json, 0, NULL) : json_object()};
    json_object_foreach(ret->json, name, value) {
        LEAT_ASSERT(ret->count < LEAT_COUNT_OF(ret->values)); /* read_options */
        ret->values[ret->count++] = (struct leat_constant_input){.name = name,
                                                                 .is_whole = json_is_integer(value),
                                                                 .whole = json_integer_value(value),
                                                                 .real = json_real_value(value)};
    }
    return ret->json != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for constants");
}

/* What a backend that describes files gets of them. */
struct given {
    struct leat_model_file files[LEAT_ONNX_FILES_MAX];
    struct leat_model_dim dims[LEAT_GRAPH_SYMBOLS_MAX];
    uint32_t dim_count;
    json_t *dims_json; /* that has their names; to be released */
};

static enum leat_status
give(const struct leat_variant_source *source, const struct leat_variant *variant, struct given *ret)
{
    const char *name;
    json_t *value;

    LEAT_ASSERT(source->file_count <= LEAT_ONNX_FILES_MAX);
    for (uint32_t f = 0; f < source->file_count; f++) {
        ret->files[f] = (struct leat_model_file){.name = source->files[f].name, .fd = source->files[f].fd};
    }
    ret->dim_count = 0;
    ret->dims_json = variant->dims_json != NULL ? json_loads(variant->dims_json, 0, NULL) : json_object();
    json_object_foreach(ret->dims_json, name, value) {
        LEAT_ASSERT(ret->dim_count < LEAT_COUNT_OF(ret->dims)); /* read_options */
        if (json_is_array(value) && variant->backend->model_describe != NULL) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "backend '%s' takes one value of dimension '%.64s', not several",
                             variant->backend->name, name);
        }
        if (json_is_string(value) && variant->backend->model_describe != NULL) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "backend '%s' takes a value of dimension '%.64s': items are counted by the first one",
                             variant->backend->name, name);
        }
        ret->dims[ret->dim_count++] = (struct leat_model_dim){.name = name, .value = json_integer_value(value)};
    }
    return ret->dims_json != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for dimensions");
}

/* One whose items may meet is run for one of them at a time. */
static enum leat_status
sign(struct leat_variant *variant, const struct graphs *graphs, struct leat_target *signature)
{
    const struct leat_sequence *sequence = graphs->sequence;

    if (sequence == NULL) {
        enum leat_status status =
            leat_graph_signature(graphs->graph, signature->tensors, &signature->input_count, &signature->output_count);
        variant->one_by_one = status != LEAT_OK && status != LEAT_ERR_NOMEM;
        if (variant->one_by_one) {
            status = leat_graph_signature_of_one(graphs->graph, signature->tensors, &signature->input_count,
                                                 &signature->output_count);
        }
        return status;
    }
    signature->input_count = sequence->input_count;
    signature->output_count = sequence->output_count;
    memcpy(signature->tensors, sequence->infos, sizeof(signature->tensors));
    signature->length_count = sequence->length_count;
    signature->length_max = sequence->lengths[sequence->length_count - 1];
    memcpy(signature->lengths, sequence->lengths, sequence->length_count * sizeof(signature->lengths[0]));
    for (uint32_t t = 0; t < signature->input_count + signature->output_count; t++) {
        signature->length_axes[t] = (uint8_t)(sequence->axes[t] > 0 ? sequence->axes[t] : 0);
    }
    return LEAT_OK;
}

/* Fills in the graphs and the signature from the file, or from the synthetic description. */
static enum leat_status
describe(const struct leat_variant_source *source, struct leat_variant *variant, struct graphs *graphs,
         struct leat_target *signature)
{
    const struct leat_backend *backend = variant->backend;

    *graphs = (struct graphs){0};
    if (source->onnx == NULL) {
        LEAT_ASSERT(source->input_count + source->output_count <= LEAT_TENSORS_MAX);
        signature->input_count = source->input_count;
        signature->output_count = source->output_count;
        memcpy(signature->tensors, source->infos,
               (source->input_count + source->output_count) * sizeof(signature->tensors[0]));
        return LEAT_OK;
    }
    if (backend->model_describe != NULL) {
        struct given given;
        const enum leat_status status = give(source, variant, &given);
        const struct leat_model_source described = {.file = source->onnx,
                                                    .file_bytes = source->onnx_bytes,
                                                    .files = given.files,
                                                    .file_count = source->file_count,
                                                    .dims = given.dims,
                                                    .dim_count = given.dim_count};
        const enum leat_status answer = status == LEAT_OK ? ask_for_signature(&described, backend, signature) : status;
        json_decref(given.dims_json);
        return answer;
    }
    struct leat_onnx_file files[LEAT_ONNX_FILES_MAX];
    struct leat_onnx_source file = {.bytes = source->onnx,
                                          .byte_count = source->onnx_bytes,
                                          .mapping = source->onnx_mapping,
                                          .folder_fd = -1,
                                          .files = files,
                                          .file_count = source->file_count,
                                          .memory_bytes_max = source->memory_bytes_max,
                                          .trips_max = source->trips_max};

    LEAT_ASSERT(source->file_count <= LEAT_ONNX_FILES_MAX);
    for (uint32_t f = 0; f < source->file_count; f++) {
        files[f] = (struct leat_onnx_file){.name = (char *)(uintptr_t)source->files[f].name, /* only read */
                                           .fd = source->files[f].fd};
    }
    struct given_dims dims;
    struct given_constants constants;
    enum leat_status status = take_dims(variant, &dims);
    if (status == LEAT_OK) {
        status = take_constants(variant, &constants);
    }
    if (status == LEAT_OK) {
        file.batch = dims.batch;
        file.dims = dims.values;
        file.dim_count = dims.count;
        file.constants = constants.values;
        file.constant_count = constants.count;
        status = leat_onnx_import_from(&file, &graphs->graph);
        json_decref(constants.json);
    }
    if (status == LEAT_OK && graphs->graph->misdeclared != NULL) {
        variant->misdeclared = strdup(graphs->graph->misdeclared);
        status = variant->misdeclared != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a variant");
    }
    if (status == LEAT_OK) {
        status = leat_graph_bind(graphs->graph, NULL, 0);
    }
    if (status == LEAT_OK && dims.sequence != NULL) {
        status = bind_lengths(dims.sequence, json_object_get(dims.json, dims.sequence), graphs);
    }
    json_decref(dims.json);
    if (status == LEAT_OK) {
        status = sign(variant, graphs, signature);
    }
    if (status == LEAT_OK) {
        status = graphs->sequence != NULL ? leat_sequence_optimise(graphs->sequence, UINT64_MAX)
                                          : leat_graph_optimise(graphs->graph, UINT64_MAX);
    }
    if (status != LEAT_OK) {
        destroy_graphs(graphs);
    }
    return status;
}

/* One with plans for shorter sequences than the variant's. */
static enum leat_status
add_shorter(struct leat_variant *variant, uint32_t length)
{
    struct leat_variant *shorter = calloc(1, sizeof(*shorter));

    if (shorter == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a variant");
    }
    (void)snprintf(shorter->name, sizeof(shorter->name), "%.*s@%u", LEAT_NAME_MAX - 1, variant->name, length);
    shorter->length = length;
    variant->shorter[variant->shorter_count++] = shorter;
    return LEAT_OK;
}

/* [32, 64, 128] */
static enum leat_status
read_lengths(const json_t *array, const char *name, struct leat_variant *variant)
{
    const size_t count = json_array_size(array);
    json_int_t before = 0;
    bool good = count >= 2 && count <= LEAT_LENGTHS_MAX && variant->length == 0;
    enum leat_status status = LEAT_OK;

    for (size_t l = 0; l < count && good; l++) {
        const json_int_t length = json_integer_value(json_array_get(array, l));
        good = length > before && length <= LEAT_LENGTH_MAX;
        before = length;
    }
    if (!good) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "dimension '%s' is to have several lengths: one dimension may, 2 to %u of them, each of "
                                           "1 to %u, the longest last",
                         name, LEAT_LENGTHS_MAX, LEAT_LENGTH_MAX);
    }
    if (!variant->backend->takes_lengths) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "backend '%s' runs no sequences of several lengths: give '%s' one value",
                         variant->backend->name, name);
    }
    for (size_t l = 0; l + 1 < count && status == LEAT_OK; l++) {
        status = add_shorter(variant, (uint32_t)json_integer_value(json_array_get(array, l)));
    }
    variant->length = (uint32_t)before;
    return status;
}

/* {"sequence": 128, "batch": "items"}; what the file makes of it is seen when it is imported. */
static enum leat_status
read_dims(const json_t *dims, struct leat_variant *variant)
{
    const char *name;
    json_t *value;
    bool good = json_is_object(dims) && json_object_size(dims) <= LEAT_GRAPH_SYMBOLS_MAX;
    uint32_t batches = 0;

    json_object_foreach((json_t *)(uintptr_t)dims, name, value) { /* only read */
        const bool counts = json_is_string(value) && strcmp(json_string_value(value), "items") == 0;
        good = good && (json_is_integer(value) || json_is_array(value) || counts);
        batches += counts;
    }
    if (!good || batches > 1) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'dims' of the options must be whole numbers, lengths, or once \"items\", by the names "
                                           "of at most %u dimensions",
                         LEAT_GRAPH_SYMBOLS_MAX);
    }
    json_object_foreach((json_t *)(uintptr_t)dims, name, value) {
        const enum leat_status status = json_is_array(value) ? read_lengths(value, name, variant) : LEAT_OK;
        if (status != LEAT_OK) {
            return status;
        }
    }
    variant->dims_json = json_object_size(dims) > 0 ? json_dumps(dims, JSON_COMPACT) : NULL;
    return json_object_size(dims) == 0 || variant->dims_json != NULL ? LEAT_OK
                                                                     : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for dimensions");
}

/* {"sr": 16000}; what the file makes of it is seen when it is imported. */
static enum leat_status
read_constants(const json_t *constants, struct leat_variant *variant)
{
    const char *name;
    json_t *value;
    bool good = json_is_object(constants) && json_object_size(constants) <= LEAT_CONSTANT_INPUTS_MAX;

    json_object_foreach((json_t *)(uintptr_t)constants, name, value) { /* only read */
        good = good && json_is_number(value);
    }
    if (!good) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'constants' of the options must be numbers, by the names of at most %u inputs",
                         LEAT_CONSTANT_INPUTS_MAX);
    }
    if (json_object_size(constants) == 0) {
        return LEAT_OK;
    }
    if (variant->backend->model_describe != NULL) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "backend '%s' reads files by itself, and has no constants for their inputs: "
                                               "cpu and reference do",
                         variant->backend->name);
    }
    variant->constants_json = json_dumps(constants, JSON_COMPACT);
    return variant->constants_json != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for constants");
}

/* {"conv1": [-1.5, 2]}; names that the file does not have do no harm. */
static enum leat_status
read_ranges(const json_t *ranges, struct leat_variant *variant)
{
    const char *name;
    json_t *range;
    bool good = json_is_object(ranges) && json_object_size(ranges) <= LEAT_GRAPH_VALUES_MAX;

    json_object_foreach((json_t *)(uintptr_t)ranges, name, range) { /* only read */
        const double least = json_number_value(json_array_get(range, 0)), most = json_number_value(json_array_get(range, 1));
        good = good && json_array_size(range) == 2 && json_is_number(json_array_get(range, 0)) &&
               json_is_number(json_array_get(range, 1)) && least <= 0 && most >= 0 && most - least > 0 && most <= RANGE_MAX &&
               least >= -RANGE_MAX;
    }
    if (!good) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'ranges' of the options must be [least, most] by the names of values, with 0 between them");
    }
    variant->ranges_json = json_dumps(ranges, JSON_COMPACT);
    return variant->ranges_json != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for ranges");
}

static enum leat_status
set_ranges(const struct leat_variant *variant, struct leat_graph *graph)
{
    json_t *ranges = variant->ranges_json != NULL ? json_loads(variant->ranges_json, 0, NULL) : NULL, *range;
    const char *name;

    if (variant->precision != LEAT_PRECISION_INT8) {
        json_decref(ranges);
        return LEAT_OK;
    }
    if (ranges == NULL) {
        return leat_graph_is_quantised(graph)
                   ? LEAT_FAIL(LEAT_ERR_INVALID, LEAT_VARIANT_QUANTISED)
                   : LEAT_FAIL(LEAT_ERR_INVALID, "int8 is calibrated on a validation set, and there is none");
    }
    json_object_foreach(ranges, name, range) {
        (void)leat_graph_set_range(graph, &(struct leat_range){.name = name,
                                                               .least = (float)json_number_value(json_array_get(range, 0)),
                                                               .most = (float)json_number_value(json_array_get(range, 1))});
    }
    json_decref(ranges);
    return LEAT_OK;
}

enum leat_precision
leat_variant_precision(const struct leat_variant_source *source)
{
    json_t *options = source->options_json != NULL ? json_loads(source->options_json, 0, NULL) : NULL;
    const char *text = json_string_value(json_object_get(options, "precision"));
    enum leat_precision precision = LEAT_PRECISION_F32;

    if (source->onnx == NULL || text == NULL || !leat_precision_find(text, &precision)) {
        precision = LEAT_PRECISION_F32;
    }
    json_decref(options);
    return precision;
}

/* What the options say of a model from a file. */
static enum leat_status
read_options(const struct leat_variant_source *source, struct leat_variant *variant)
{
    json_t *options = source->options_json != NULL ? json_loads(source->options_json, 0, NULL) : json_object();
    const json_t *precision = json_object_get(options, "precision"), *bound = json_object_get(options, "items_bound");
    const json_t *dims = json_object_get(options, "dims"), *ranges = json_object_get(options, "ranges");
    const json_t *constants = json_object_get(options, "constants");
    const char *text = precision != NULL ? json_string_value(precision) : leat_precision_text(LEAT_PRECISION_F32);
    enum leat_status status = LEAT_OK;

    if (options == NULL || text == NULL || !leat_precision_find(text, &variant->precision)) {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "there is no precision '%.32s' (f32, bf16, int8)", text != NULL ? text : "");
    } else if ((leat_backend_precisions(variant->backend) & LEAT_PRECISION_BIT(variant->precision)) == 0) {
        status = LEAT_FAIL(LEAT_ERR_DEVICE, "backend '%s' does not have %s on this processor", variant->backend->name, text);
    } else if (bound != NULL && (!json_is_string(bound) ||
                                 !leat_batch_bound_find(json_string_value(bound), &variant->items_bound))) {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "'items_bound' of the options is malformed");
    } else if (dims != NULL) {
        status = read_dims(dims, variant);
    }
    if (status == LEAT_OK && constants != NULL) {
        status = read_constants(constants, variant);
    }
    if (status == LEAT_OK && ranges != NULL) {
        status = read_ranges(ranges, variant);
    }
    json_decref(options);
    return status;
}

/*
 * What runs that nobody asked for, those that measure and warm up, take for indices, lengths and counts. It is the same at
 * all lengths of a sequence: what is along one takes no sequence_lens (kernels/padding/rules.c).
 */
static enum leat_status
find_ranges(struct leat_variant *variant, const struct graphs *graphs)
{
    const struct leat_graph *graph =
        graphs->sequence != NULL ? graphs->sequence->graphs[graphs->sequence->length_count - 1] : graphs->graph;
    return graph != NULL ? leat_graph_made_ranges(graph, variant->made_ranges) : LEAT_OK;
}

/*
 * Measuring a model runs it, its largest batch too, and no other is loaded meanwhile: what takes too long is refused before
 * that. Batches that are chosen by their times are not looked at: sizes are tried as long as they are in time. Nor are kept
 * models: what was acknowledged comes back, whatever limit and measurements there are now.
 */
static enum leat_status
check_work(const struct leat_variant_source *source, const struct leat_variant *variant, const struct graphs *graphs)
{
    const struct leat_graph *graph =
        graphs->sequence != NULL ? graphs->sequence->graphs[graphs->sequence->length_count - 1] : graphs->graph;
    const double most = (double)source->item_gflop_max;
    const uint32_t items = variant->items_bound == LEAT_BATCH_GIVEN ? variant->items_max : 1;
    struct leat_graph *single;

    if (graph == NULL || source->kept || source->item_gflop_max == 0) {
        return LEAT_OK;
    }
    const enum leat_status status = leat_graph_specialise(graph, 1, &single);
    if (status != LEAT_OK) {
        return status;
    }
    const double gflop = (double)leat_graph_work(single) / 1e9;
    leat_graph_destroy(single);
    if (gflop > most) {
        return LEAT_FAIL(LEAT_ERR_LIMIT,
                         "an item takes as long as %.0f GFLOP of products, limits.item_gflop is %u: raise it for models that "
                         "may take so long to load",
                         gflop, source->item_gflop_max);
    }
    if (gflop * items > most * LEAT_VARIANT_BATCH_ITEMS) {
        return LEAT_FAIL(LEAT_ERR_LIMIT,
                         "a batch of %u takes as long as %.0f GFLOP of products, more than %u times limits.item_gflop, which "
                         "is %u: raise it, or ask for smaller batches",
                         items, gflop * items, LEAT_VARIANT_BATCH_ITEMS, source->item_gflop_max);
    }
    return LEAT_OK;
}

/* Imports the file again for each copy: what a backend uses as it is, like large tables, must lie on the node too. */
static enum leat_status
load_model(const struct leat_variant_source *source, struct leat_variant *variant, struct leat_variant_copy *copy,
           struct leat_loaded_variant *loaded)
{
    struct graphs graphs;
    struct given given = {.dims_json = NULL};
    enum leat_status status = describe(source, variant, &graphs, &loaded->signature);

    if (status == LEAT_OK && graphs.graph != NULL) {
        status = set_ranges(variant, graphs.graph);
    }
    for (uint32_t l = 0; graphs.sequence != NULL && l < graphs.sequence->length_count && status == LEAT_OK; l++) {
        status = set_ranges(variant, graphs.sequence->graphs[l]);
    }
    if (status == LEAT_OK) {
        status = find_ranges(variant, &graphs);
    }
    if (status == LEAT_OK) {
        status = check_work(source, variant, &graphs);
    }
    if (status == LEAT_OK) {
        status = give(source, variant, &given);
    }
    if (status != LEAT_OK) {
        json_decref(given.dims_json);
        destroy_graphs(&graphs);
        return status;
    }
    variant->input_count = loaded->signature.input_count;
    variant->tensor_count = variant->input_count + loaded->signature.output_count;
    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        variant->item_bytes[t] = loaded->signature.tensors[t].item_bytes;
        variant->dtypes[t] = loaded->signature.tensors[t].dtype;
    }
    variant->size_count = leat_signature_sizes(loaded->signature.tensors, variant->tensor_count);
    if (variant->size_count > 0 && variant->items_max > LEAT_SIZES_MAX / variant->size_count) {
        variant->items_max = LEAT_SIZES_MAX / variant->size_count;
        variant->items_bound = LEAT_BATCH_LIMIT;
    }
    struct leat_model_source model_source = {
        .graph = graphs.graph,
        .file = source->onnx,
        .file_bytes = source->onnx_bytes,
        .files = given.files,
        .file_count = source->file_count,
        .dims = given.dims,
        .dim_count = given.dim_count,
        .precision = variant->precision,
        .options_json = source->options_json,
        .infos = loaded->signature.tensors,
        .input_count = loaded->signature.input_count,
        .output_count = loaded->signature.output_count,
        .one_by_one = variant->one_by_one,
        .class_names = source->class_names,
        .class_cores = source->class_names != NULL ? source->team_sizes : NULL,
        .class_count = source->class_names != NULL ? source->team_size_count : 0,
    };
    if (graphs.sequence != NULL) {
        leat_sequence_describe(graphs.sequence, &model_source);
    }
    status = variant->backend->model_load(&model_source, &copy->model);
    json_decref(given.dims_json);
    destroy_graphs(&graphs);
    return status;
}

/* The c-th copy of a variant, and of those for shorter sequences, which have plans of their own for its model. */
static enum leat_status
load_copy(const struct leat_variant_source *source, struct leat_variant *variant, uint32_t c, struct leat_loaded_variant *loaded)
{
    struct leat_variant_copy *copy = &variant->copies[c];
    enum leat_status status = load_model(source, variant, copy, loaded);

    if (status == LEAT_OK) {
        status = build_plans(source, variant, copy, loaded);
    }
    for (uint32_t s = 0; s < variant->shorter_count && status == LEAT_OK; s++) {
        struct leat_variant *shorter = variant->shorter[s];
        shorter->input_count = variant->input_count;
        shorter->tensor_count = variant->tensor_count;
        shorter->items_max = variant->items_max;
        shorter->items_bound = variant->items_bound;
        memcpy(shorter->item_bytes, variant->item_bytes, sizeof(shorter->item_bytes));
        memcpy(shorter->dtypes, variant->dtypes, sizeof(shorter->dtypes));
        memcpy(shorter->made_ranges, variant->made_ranges, sizeof(shorter->made_ranges));
        shorter->copies[c].model = copy->model;
        status = build_plans(source, shorter, &shorter->copies[c], loaded);
        status = status == LEAT_OK ? status : leat_err_prefix(status, "length %u", shorter->length);
    }
    if (status == LEAT_OK) {
        loaded->model_bytes += variant->backend->model_bytes(copy->model);
    }
    return status;
}

static enum leat_status
load_copies(const struct leat_variant_source *source, struct leat_variant *variant, struct leat_loaded_variant *loaded)
{
    const uint32_t count = source->node_count > 0 ? source->node_count : 1;

    for (uint32_t s = 0; s <= variant->shorter_count; s++) {
        struct leat_variant *own = s < variant->shorter_count ? variant->shorter[s] : variant;
        own->copies = calloc(count, sizeof(*own->copies));
        if (own->copies == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u copies", count);
        }
        own->copy_count = count;
    }
    for (uint32_t c = 0; c < count; c++) {
        if (source->node_count > 0) {
            leat_memory_enter_node(source->nodes[c]);
        }
        const enum leat_status status = load_copy(source, variant, c, loaded);
        leat_memory_leave_node();
        if (status != LEAT_OK) {
            return status;
        }
    }
    return LEAT_OK;
}

/* One without copies yet; the caller prefixes the error with the model's name. */
static enum leat_status
new_variant(const struct leat_variant_source *source, struct leat_variant **ret_variant)
{
    const struct leat_backend *backend = leat_backend_find(source->backend);
    char names[256];
    if (backend == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no backend '%s' (%s)", source->backend,
                         leat_backend_names(names, sizeof(names)));
    }
    struct leat_variant *variant = calloc(1, sizeof(*variant));
    if (variant == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a model");
    }
    (void)strncpy(variant->name, source->name, sizeof(variant->name) - 1);
    variant->backend = backend;
    variant->items_max = source->items_max;
    variant->accuracy_ppm = source->accuracy_ppm;
    const enum leat_status status = source->onnx != NULL ? read_options(source, variant) : LEAT_OK;
    if (status != LEAT_OK) {
        leat_variant_destroy(variant);
        return status;
    }
    for (uint32_t s = 0; s < variant->shorter_count; s++) {
        variant->shorter[s]->backend = backend;
        variant->shorter[s]->precision = variant->precision;
        variant->shorter[s]->accuracy_ppm = variant->accuracy_ppm;
    }
    *ret_variant = variant;
    return LEAT_OK;
}

enum leat_status
leat_variant_import(const struct leat_variant_source *source, struct leat_graph **ret_graph, struct leat_sequence **ret_sequence,
                    struct leat_target *ret_signature, bool *ret_one_by_one)
{
    struct leat_variant *variant;
    struct graphs graphs;

    enum leat_status status = new_variant(source, &variant);
    if (status != LEAT_OK) {
        return status;
    }
    status = describe(source, variant, &graphs, ret_signature);
    if (status == LEAT_OK) { /* whoever imports it runs it */
        status = check_work(source, variant, &graphs);
        if (status != LEAT_OK) {
            destroy_graphs(&graphs);
        }
    }
    const bool one_by_one = variant->one_by_one;
    leat_variant_destroy(variant);
    if (status == LEAT_OK && graphs.graph == NULL && graphs.sequence == NULL) {
        status = LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "backend '%s' has a graph of no model", source->backend);
    }
    if (status == LEAT_OK) {
        *ret_graph = graphs.graph;
        *ret_sequence = graphs.sequence;
        *ret_one_by_one = one_by_one;
    }
    return status;
}

enum leat_status
leat_variant_load(const struct leat_variant_source *source, struct leat_loaded_variant *ret_loaded)
{
    struct leat_loaded_variant loaded = {0};
    struct leat_variant *variant = NULL;
    const uint64_t start_ns = leat_monotonic_ns();

    LEAT_ASSERT(source->items_max >= 1 && source->items_max <= LEAT_ITEMS_MAX);
    enum leat_status status = new_variant(source, &variant);
    loaded.variant = variant;
    if (status == LEAT_OK) {
        status = load_copies(source, variant, &loaded);
    }
    loaded.load_ns = leat_monotonic_ns() - start_ns;
    if (status == LEAT_OK) {
        status = leat_variant_profile(source, &loaded);
    }
    if (status != LEAT_OK) {
        leat_variant_destroy(variant);
        return leat_err_prefix(status, "model '%s'", source->name);
    }
    loaded.signature.items_max = variant->items_max;
    *ret_loaded = loaded;
    return LEAT_OK;
}

/* ---- The largest batch -------------------------------------------------------------------------- */

/* One source, as far as it was looked at. */
struct candidate {
    const struct leat_variant_source *source;
    struct leat_variant *variant;
    struct leat_batch_choice *choice;
    uint64_t bytes; /* of the last size */
};

static enum leat_status
open_candidate(struct candidate *candidate)
{
    struct leat_loaded_variant loaded = {0};
    struct leat_variant *variant = NULL;

    const enum leat_status status = new_variant(candidate->source, &variant);
    if (status != LEAT_OK) {
        return status;
    }
    candidate->variant = variant;
    variant->copies = calloc(1, sizeof(*variant->copies));
    if (variant->copies == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a copy");
    }
    variant->copy_count = 1;
    const enum leat_status loading = load_model(candidate->source, variant, &variant->copies[0], &loaded);
    candidate->choice->items_limit = variant->size_count > 0 ? LEAT_SIZES_MAX / variant->size_count : LEAT_ITEMS_MAX;
    return loading;
}

/* The plan of the next size is its variant's; LEAT_AGAIN: there is no memory for it. */
static enum leat_status
add_size(struct candidate *candidate)
{
    const struct leat_variant_source *source = candidate->source;
    struct leat_variant *variant = candidate->variant;
    struct leat_batch_choice *choice = candidate->choice;
    const uint32_t items = 1u << choice->size_count;
    const struct leat_plan_options options = {
        .items = items, .team_sizes = source->team_sizes, .team_size_count = source->team_size_count, .length = variant->length};
    struct leat_plan **plan = &variant->copies[0].plans[choice->size_count];

    /* Twice the batch takes about twice the memory: what is far too large is not made. */
    if (!leat_batch_choice_fits(choice, items, candidate->bytes)) {
        return LEAT_AGAIN;
    }
    const enum leat_status status = variant->backend->plan_build(variant->copies[0].model, &options, plan);
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "batch of %u", items);
    }
    candidate->bytes = variant->backend->plan_scratch_bytes(*plan);
    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        candidate->bytes += variant->item_bytes[t] * items;
    }
    candidate->bytes *= source->runs > 0 ? source->runs : 1;
    if (!leat_batch_choice_fits(choice, items, candidate->bytes)) {
        return LEAT_AGAIN;
    }
    choice->size_count++;
    return LEAT_OK;
}

/* A round of all sizes, with one more or not; LEAT_AGAIN: twice as many are to be looked at too. */
static enum leat_status
look_at_sizes(struct candidate *candidates, uint32_t count, bool one_more)
{
    struct leat_timed_plan plans[LEAT_PRECISION_COUNT * LEAT_CHOICE_SIZES];
    const struct leat_variant_source *source = candidates[0].source;
    enum leat_status status = LEAT_OK;
    uint32_t plan_count = 0;
    bool more = false;

    for (uint32_t i = 0; i < count; i++) {
        struct candidate *candidate = &candidates[i];
        status = one_more ? add_size(candidate) : LEAT_OK;
        if (status != LEAT_OK && status != LEAT_AGAIN) {
            return status;
        }
        for (uint32_t size = 0; size < candidate->choice->size_count; size++) {
            plans[plan_count++] = (struct leat_timed_plan){.variant = candidate->variant,
                                                           .plan = candidate->variant->copies[0].plans[size],
                                                           .items = 1u << size,
                                                           .least_ns = candidate->choice->least_ns[size]};
        }
    }
    status = LEAT_OK;
    for (uint32_t c = 0; c < candidates[0].choice->class_count && status == LEAT_OK; c++) {
        status = leat_variant_time_plans(plans, plan_count, c, source->team_size_count > 0 ? source->team_sizes[c] : 1);
    }
    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        more = leat_batch_choice_decide(candidates[i].choice) || more;
    }
    return more ? LEAT_AGAIN : status;
}

enum leat_status
leat_variant_choose_items(const struct leat_variant_source *sources, uint32_t count, uint32_t items_given,
                          uint64_t latency_max_ns, uint64_t bytes_max, struct leat_batch_choice *ret_choices)
{
    struct candidate candidates[LEAT_PRECISION_COUNT] = {{.variant = NULL}};
    struct leat_batch_choice choices[LEAT_PRECISION_COUNT];
    enum leat_status status = LEAT_OK;

    LEAT_ASSERT(count >= 1 && count <= LEAT_PRECISION_COUNT);
    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        choices[i] = (struct leat_batch_choice){.latency_max_ns = latency_max_ns,
                                                .bytes_max = bytes_max,
                                                .class_count = sources[i].team_size_count > 0 ? sources[i].team_size_count : 1,
                                                .items_given = items_given};
        candidates[i] = (struct candidate){.source = &sources[i], .choice = &choices[i]};
        status = open_candidate(&candidates[i]);
    }
    if (status == LEAT_OK) {
        do {
            status = look_at_sizes(candidates, count, true);
            status = status == LEAT_OK ? look_at_sizes(candidates, count, false) : status;
        } while (status == LEAT_AGAIN);
    }
    for (uint32_t i = 0; i < count; i++) {
        leat_variant_destroy(candidates[i].variant);
    }
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "model '%s'", sources[0].name);
    }
    memcpy(ret_choices, choices, count * sizeof(choices[0]));
    return LEAT_OK;
}

static void
destroy_plans(const struct leat_variant *variant)
{
    for (uint32_t c = 0; c < variant->copy_count; c++) {
        for (uint32_t bucket = 0; bucket < LEAT_PLANS_MAX; bucket++) {
            if (variant->copies[c].plans[bucket] != NULL) {
                variant->backend->plan_destroy(variant->copies[c].plans[bucket]);
            }
        }
    }
}

void
leat_variant_destroy(struct leat_variant *variant)
{
    if (variant == NULL) {
        return;
    }
    for (uint32_t s = 0; s < variant->shorter_count; s++) {
        destroy_plans(variant->shorter[s]);
        free(variant->shorter[s]->copies);
        free(variant->shorter[s]);
    }
    destroy_plans(variant);
    for (uint32_t c = 0; c < variant->copy_count; c++) {
        if (variant->copies[c].model != NULL) {
            variant->backend->model_destroy(variant->copies[c].model);
        }
    }
    free(variant->copies);
    free(variant->dims_json);
    free(variant->constants_json);
    free(variant->misdeclared);
    free(variant->ranges_json);
    free(variant);
}
