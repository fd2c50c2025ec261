/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/validation.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/cpu/calibrate.h"
#include "kernels/team.h"

#define SAMPLES_MAX INT64_C(1000000000)

/* One run through the set. */
struct pass {
    const struct leat_variant *variant;
    const struct leat_target *signature;
    const struct leat_validation_set *set;
    uint64_t classes;
    void *scratch;
    unsigned char *tensors[LEAT_TENSORS_MAX]; /* of a batch */
    unsigned char *labels;                    /* likewise */
    struct leat_team *team;
    struct sha256_ctx inputs_sha, labels_sha;
    uint64_t right;
};

/* ---- Does the set suit the variant? ------------------------------------------------------------- */

struct shape {
    char text[160];
};

static struct shape
shape_of(uint32_t dtype, const int64_t *dims, uint32_t rank)
{
    struct shape shape;
    size_t used = (size_t)snprintf(shape.text, sizeof(shape.text), "%s[", leat_dtype_text(dtype));

    for (uint32_t d = 0; d < rank && used < sizeof(shape.text); d++) {
        used += (size_t)(dims[d] < 0 ? snprintf(shape.text + used, sizeof(shape.text) - used, "%sN", d > 0 ? "," : "")
                                     : snprintf(shape.text + used, sizeof(shape.text) - used, "%s%lld", d > 0 ? "," : "",
                                                (long long)dims[d]));
    }
    if (used < sizeof(shape.text)) {
        (void)snprintf(shape.text + used, sizeof(shape.text) - used, "]");
    }
    return shape;
}

static bool
is_whole(uint32_t dtype)
{
    return dtype == LEAT_DTYPE_I8 || dtype == LEAT_DTYPE_U8 || dtype == LEAT_DTYPE_I16 || dtype == LEAT_DTYPE_U16 ||
           dtype == LEAT_DTYPE_I32 || dtype == LEAT_DTYPE_U32 || dtype == LEAT_DTYPE_I64 || dtype == LEAT_DTYPE_U64;
}

/* How many classes the first output has scores of; 0 where it is no list of scores. */
static uint64_t
count_classes(const struct leat_tensor_info *output)
{
    const bool known = is_whole(output->dtype) || output->dtype == LEAT_DTYPE_F32 || output->dtype == LEAT_DTYPE_F64;

    for (uint32_t d = 1; d + 1 < output->rank; d++) {
        if (output->dims[d] != 1) {
            return 0;
        }
    }
    return known && output->rank >= 2 && output->dims[output->rank - 1] >= 2 ? (uint64_t)output->dims[output->rank - 1] : 0;
}

static enum leat_status
check_set(const struct leat_target *signature, const struct leat_validation_set *set, uint64_t *ret_classes)
{
    const struct leat_validation_array *inputs = &set->inputs, *labels = &set->labels;
    const struct leat_tensor_info *input = &signature->tensors[0], *output = &signature->tensors[signature->input_count];

    if (signature->input_count != 1) {
        return LEAT_FAIL(LEAT_ERR_SHAPE, "validation: the model has %u inputs; only one can be validated",
                         signature->input_count);
    }
    *ret_classes = count_classes(output);
    if (*ret_classes == 0) {
        return LEAT_FAIL(LEAT_ERR_SHAPE, "validation: the model's output '%s' is %s, no list of scores of classes", output->name,
                         shape_of(output->dtype, output->dims, output->rank).text);
    }
    if (inputs->dtype != input->dtype || inputs->rank != input->rank ||
        memcmp(inputs->dims + 1, input->dims + 1, (input->rank - 1) * sizeof(input->dims[0])) != 0) {
        return LEAT_FAIL(LEAT_ERR_SHAPE, "validation: the inputs are %s, the model's input '%s' is %s",
                         shape_of(inputs->dtype, inputs->dims, inputs->rank).text, input->name,
                         shape_of(input->dtype, input->dims, input->rank).text);
    }
    if (!is_whole(labels->dtype) || labels->rank != 1 || labels->dims[0] != inputs->dims[0]) {
        return LEAT_FAIL(LEAT_ERR_SHAPE, "validation: the labels are %s; there must be a whole number for each of %lld inputs",
                         shape_of(labels->dtype, labels->dims, labels->rank).text, (long long)inputs->dims[0]);
    }
    return inputs->dims[0] >= 1 && inputs->dims[0] <= SAMPLES_MAX
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_SHAPE, "validation: there are no inputs, or more than %lld", (long long)SAMPLES_MAX);
}

/* ---- Elements ----------------------------------------------------------------------------------- */

/* A whole number; negative ones and those beyond 2^63 become UINT64_MAX. */
static uint64_t
whole_at(const unsigned char *data, uint32_t dtype, uint64_t at)
{
    const size_t bytes = leat_dtype_bytes(dtype);
    const bool is_signed =
        dtype == LEAT_DTYPE_I8 || dtype == LEAT_DTYPE_I16 || dtype == LEAT_DTYPE_I32 || dtype == LEAT_DTYPE_I64;
    uint64_t value = 0;

    memcpy(&value, data + at * bytes, bytes);
    return value >> (8 * bytes - 1) != 0 && (is_signed || bytes == 8) ? UINT64_MAX : value;
}

static double
score_at(const unsigned char *data, uint32_t dtype, uint64_t at)
{
    const unsigned char *element = data + at * leat_dtype_bytes(dtype);
    float f32;
    double f64;
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;

    switch (dtype) {
    case LEAT_DTYPE_F32: memcpy(&f32, element, sizeof(f32)); return (double)f32;
    case LEAT_DTYPE_F64: memcpy(&f64, element, sizeof(f64)); return f64;
    case LEAT_DTYPE_I8: memcpy(&i8, element, sizeof(i8)); return i8;
    case LEAT_DTYPE_I16: memcpy(&i16, element, sizeof(i16)); return i16;
    case LEAT_DTYPE_I32: memcpy(&i32, element, sizeof(i32)); return i32;
    case LEAT_DTYPE_I64: memcpy(&i64, element, sizeof(i64)); return (double)i64;
    default: return (double)whole_at(data, dtype, at);
    }
}

/* The first of the largest. */
static uint64_t
class_of(const unsigned char *scores, uint32_t dtype, uint64_t item, uint64_t classes)
{
    uint64_t best = 0;
    for (uint64_t c = 1; c < classes; c++) {
        if (score_at(scores, dtype, item * classes + c) > score_at(scores, dtype, item * classes + best)) {
            best = c;
        }
    }
    return best;
}

/* ---- The run ------------------------------------------------------------------------------------ */

static enum leat_status
read_part(const struct leat_validation_set *set, uint64_t offset, unsigned char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = pread(set->fd, data + done, bytes - done, (off_t)(offset + done));
        if (got == 0) {
            return LEAT_FAIL(LEAT_ERR_PROTO, "validation: the file ends before the data that its shapes need");
        }
        if (got < 0 && errno != EINTR) {
            return LEAT_FAIL(LEAT_ERR_SYS, "validation: cannot read the data");
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return LEAT_OK;
}

static enum leat_status
run_batch(struct pass *pass, uint64_t first, uint32_t items)
{
    const struct leat_variant *variant = pass->variant;
    const struct leat_validation_array *labels = &pass->set->labels;
    const uint32_t score_dtype = pass->signature->tensors[1].dtype;
    const size_t input_bytes = (size_t)(variant->item_bytes[0] * items), label_bytes = leat_dtype_bytes(labels->dtype);
    struct leat_segment segment = {.items = items};

    enum leat_status status =
        read_part(pass->set, pass->set->inputs.offset + first * variant->item_bytes[0], pass->tensors[0], input_bytes);
    if (status == LEAT_OK) {
        status = read_part(pass->set, labels->offset + first * label_bytes, pass->labels, items * label_bytes);
    }
    if (status != LEAT_OK) {
        return status;
    }
    sha256_update(&pass->inputs_sha, input_bytes, pass->tensors[0]);
    sha256_update(&pass->labels_sha, items * label_bytes, pass->labels);
    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        segment.tensors[t] = pass->tensors[t];
    }
    const struct leat_plan *plan = variant->copies[0].plans[leat_variant_top_plan(variant)];
    status = variant->backend->plan_run(plan, &segment, 1, pass->scratch, pass->team);
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "validation: items from %llu on", (unsigned long long)first);
    }
    for (uint32_t i = 0; i < items; i++) {
        const uint64_t label = whole_at(pass->labels, labels->dtype, i);
        if (label >= pass->classes) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "validation: the label of item %llu is none of the model's %llu classes",
                             (unsigned long long)(first + i), (unsigned long long)pass->classes);
        }
        pass->right += class_of(pass->tensors[1], score_dtype, i, pass->classes) == label;
    }
    return LEAT_OK;
}

static enum leat_status
make_memory(struct pass *pass)
{
    const struct leat_variant *variant = pass->variant;
    const struct leat_plan *plan = variant->copies[0].plans[leat_variant_top_plan(variant)];
    const size_t scratch_bytes = variant->backend->plan_scratch_bytes(plan);
    bool good = true;

    pass->scratch = aligned_alloc(4096, leat_round_up(scratch_bytes + 1, 4096));
    pass->labels = calloc(variant->items_max, sizeof(uint64_t));
    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        pass->tensors[t] = aligned_alloc(4096, leat_round_up(variant->item_bytes[t] * variant->items_max, 4096));
        good = good && pass->tensors[t] != NULL;
    }
    return good && pass->scratch != NULL && pass->labels != NULL ? LEAT_OK
                                                                 : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to validate");
}

static void
write_digest(struct sha256_ctx *context, char text[65])
{
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_digest(context, sizeof(digest), digest);
    for (size_t i = 0; i < sizeof(digest); i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", digest[i]);
    }
}

enum leat_status
leat_validate(const struct leat_variant *variant, const struct leat_target *signature, const struct leat_validation_set *set,
              uint32_t cores, const _Atomic uint32_t *stop, struct leat_registry_validation *ret_validation)
{
    struct pass pass = {.variant = variant, .signature = signature, .set = set};
    struct leat_registry_validation validation = {0};

    enum leat_status status = check_set(signature, set, &pass.classes);
    if (status != LEAT_OK) {
        return status;
    }
    sha256_init(&pass.inputs_sha);
    sha256_init(&pass.labels_sha);
    status = make_memory(&pass);
    if (status == LEAT_OK && cores > 1) {
        status = leat_team_create(&(struct leat_team_options){.size = cores}, &pass.team);
    }
    validation.samples = (uint64_t)set->inputs.dims[0];
    for (uint64_t first = 0; first < validation.samples && status == LEAT_OK; first += variant->items_max) {
        const uint64_t left = validation.samples - first;
        status = atomic_load_explicit(stop, memory_order_relaxed) != 0
                     ? LEAT_FAIL(LEAT_AGAIN, "the daemon is shutting down")
                     : run_batch(&pass, first, left < variant->items_max ? (uint32_t)left : variant->items_max);
    }
    leat_team_destroy(pass.team);
    free(pass.scratch);
    free(pass.labels);
    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        free(pass.tensors[t]);
    }
    if (status == LEAT_OK) {
        write_digest(&pass.inputs_sha, validation.inputs_sha256);
        write_digest(&pass.labels_sha, validation.labels_sha256);
        validation.accuracy_ppm = (uint32_t)((pass.right * 1000000 + validation.samples / 2) / validation.samples);
        validation.measured_s = (uint64_t)time(NULL);
        *ret_validation = validation;
    }
    return status;
}

/* ---- Calibration -------------------------------------------------------------------------------- */

static enum leat_status
run_calibration(struct leat_calibration *calibration, const struct leat_validation_set *set, size_t batch_bytes, uint32_t count,
                const _Atomic uint32_t *stop)
{
    unsigned char *batch = aligned_alloc(4096, leat_round_up(batch_bytes, 4096));
    const void *const inputs[1] = {batch};
    enum leat_status status = batch != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to calibrate");

    for (uint32_t b = 0; b < count && status == LEAT_OK; b++) {
        status = atomic_load_explicit(stop, memory_order_relaxed) != 0
                     ? LEAT_FAIL(LEAT_AGAIN, "the daemon is shutting down")
                     : read_part(set, set->inputs.offset + b * batch_bytes, batch, batch_bytes);
        if (status == LEAT_OK) {
            status = leat_calibration_run(calibration, inputs);
        }
    }
    free(batch);
    return status;
}

static enum leat_status
write_ranges(const struct leat_calibration *calibration, json_t **ret_ranges)
{
    json_t *ranges = json_object();
    bool good = ranges != NULL;

    for (uint32_t i = 0; i < leat_calibration_count(calibration) && good; i++) {
        const struct leat_range range = leat_calibration_range(calibration, i);
        good = json_object_set_new(ranges, range.name, json_pack("[f, f]", (double)range.least, (double)range.most)) == 0;
    }
    if (!good) {
        json_decref(ranges);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for ranges");
    }
    *ret_ranges = ranges;
    return LEAT_OK;
}

enum leat_status
leat_calibrate(const struct leat_variant_source *source, const struct leat_validation_set *set, const _Atomic uint32_t *stop,
               json_t **ret_ranges)
{
    enum { BATCH = 8 };
    struct leat_calibration *calibration = NULL;
    struct leat_target signature;
    struct leat_graph *graph;
    uint64_t classes;

    enum leat_status status = leat_variant_import(source, &graph, &signature);
    if (status != LEAT_OK) {
        return status;
    }
    status = check_set(&signature, set, &classes);
    const uint32_t samples = set->inputs.dims[0] < (int64_t)LEAT_CALIBRATION_ITEMS ? (uint32_t)set->inputs.dims[0]
                                                                                    : LEAT_CALIBRATION_ITEMS;
    const uint32_t items = samples < BATCH ? 1 : BATCH;
    if (status == LEAT_OK) {
        status = leat_calibration_create(graph, items, &calibration);
    }
    if (status == LEAT_OK) {
        status = run_calibration(calibration, set, (size_t)signature.tensors[0].item_bytes * items, samples / items, stop);
    }
    if (status == LEAT_OK) {
        status = write_ranges(calibration, ret_ranges);
    }
    leat_calibration_destroy(calibration);
    leat_graph_destroy(graph);
    return status;
}
