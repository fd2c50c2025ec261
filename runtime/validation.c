/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/validation.h"

#include <errno.h>
#include <math.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/cpu/calibrate.h"
#include "kernels/sequence.h"
#include "kernels/team.h"

#define SAMPLES_MAX INT64_C(1000000000)

/* What a batch needs of one variant. */
struct side {
    const struct leat_variant *variant;
    void *scratch;
    unsigned char *tensors[LEAT_TENSORS_MAX]; /* inputs are the first side's */
};

/* One run through the set. */
struct pass {
    const struct leat_target *signature;
    const struct leat_validation_set *set;
    struct leat_validation_array inputs[LEAT_TENSORS_MAX]; /* as the model has them */
    uint64_t classes;
    struct side sides[2]; /* the variant, and what it is compared with, whose variant may be NULL */
    uint32_t items_max;
    unsigned char *labels; /* of a batch */
    struct leat_team *team;
    struct sha256_ctx inputs_sha[LEAT_TENSORS_MAX], labels_sha;
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

/* The set's array for that input. */
static const struct leat_validation_array *
find_input(const struct leat_validation_set *set, const char *name)
{
    for (uint32_t i = 0; i < set->input_count; i++) {
        if (set->inputs[i].name == NULL || strcmp(set->inputs[i].name, name) == 0) {
            return &set->inputs[i].array;
        }
    }
    return NULL;
}

static enum leat_status
check_labels(const struct leat_validation_set *set, const struct leat_tensor_info *output, uint64_t classes, int64_t samples)
{
    const struct leat_validation_array *labels = &set->labels;

    if (classes == 0) {
        return LEAT_FAIL(LEAT_ERR_SHAPE,
                         "validation: the model's output '%s' is %s, no list of scores of classes; a set for it has no labels",
                         output->name, shape_of(output->dtype, output->dims, output->rank).text);
    }
    return is_whole(labels->dtype) && labels->rank == 1 && labels->dims[0] == samples
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_SHAPE, "validation: the labels are %s; there must be a whole number for each of %lld inputs",
                           shape_of(labels->dtype, labels->dims, labels->rank).text, (long long)samples);
}

/* Outputs that no score can be read from cannot be compared. */
static enum leat_status
check_outputs(const struct leat_target *signature)
{
    for (uint32_t o = 0; o < signature->output_count; o++) {
        const struct leat_tensor_info *output = &signature->tensors[signature->input_count + o];
        if (!is_whole(output->dtype) && output->dtype != LEAT_DTYPE_F32 && output->dtype != LEAT_DTYPE_F64) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "validation: the model's output '%s' is %s, which is not compared", output->name,
                             shape_of(output->dtype, output->dims, output->rank).text);
        }
    }
    return LEAT_OK;
}

/* Fills in inputs, as the model has them, and classes, 0 where the first output has no scores of any. */
static enum leat_status
check_set(const struct leat_target *signature, const struct leat_validation_set *set, struct leat_validation_array *ret_inputs,
          uint64_t *ret_classes)
{
    if (set->input_count != signature->input_count) {
        return LEAT_FAIL(LEAT_ERR_SHAPE, "validation: there are %u inputs, the model has %u, '%s' first", set->input_count,
                         signature->input_count, signature->tensors[0].name);
    }
    for (uint32_t i = 0; i < signature->input_count; i++) {
        const struct leat_tensor_info *input = &signature->tensors[i];
        const struct leat_validation_array *array = find_input(set, input->name);
        if (array == NULL) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "validation: there is nothing for the model's input '%s'", input->name);
        }
        if (array->dtype != input->dtype || array->rank != input->rank ||
            memcmp(array->dims + 1, input->dims + 1, (input->rank - 1) * sizeof(input->dims[0])) != 0) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "validation: the inputs are %s, the model's input '%s' is %s",
                             shape_of(array->dtype, array->dims, array->rank).text, input->name,
                             shape_of(input->dtype, input->dims, input->rank).text);
        }
        ret_inputs[i] = *array;
        if (array->dims[0] != ret_inputs[0].dims[0]) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "validation: there are %lld items for input '%s' and %lld for '%s'",
                             (long long)array->dims[0], input->name, (long long)ret_inputs[0].dims[0], signature->tensors[0].name);
        }
    }
    const struct leat_tensor_info *output = &signature->tensors[signature->input_count];
    const int64_t samples = ret_inputs[0].dims[0];
    *ret_classes = count_classes(output);
    const enum leat_status status = set->has_labels ? check_labels(set, output, *ret_classes, samples) : check_outputs(signature);
    if (status != LEAT_OK) {
        return status;
    }
    return samples >= 1 && samples <= SAMPLES_MAX
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
read_batch(struct pass *pass, uint64_t first, uint32_t items)
{
    const struct leat_validation_set *set = pass->set;
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < pass->signature->input_count && status == LEAT_OK; i++) {
        const uint64_t item_bytes = pass->signature->tensors[i].item_bytes;
        const size_t bytes = (size_t)(item_bytes * items);
        status = read_part(set, pass->inputs[i].offset + first * item_bytes, pass->sides[0].tensors[i], bytes);
        if (status == LEAT_OK) {
            sha256_update(&pass->inputs_sha[i], bytes, pass->sides[0].tensors[i]);
        }
    }
    if (status == LEAT_OK && set->has_labels) {
        const size_t label_bytes = leat_dtype_bytes(set->labels.dtype);
        status = read_part(set, set->labels.offset + first * label_bytes, pass->labels, items * label_bytes);
        sha256_update(&pass->labels_sha, status == LEAT_OK ? items * label_bytes : 0, pass->labels);
    }
    return status;
}

static enum leat_status
run_side(const struct pass *pass, const struct side *side, uint64_t first, uint32_t items)
{
    const struct leat_variant *variant = side->variant;
    struct leat_segment segment = {.items = items, .length = variant->length};

    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        segment.tensors[t] = t < pass->signature->input_count ? pass->sides[0].tensors[t] : side->tensors[t];
    }
    const struct leat_plan *plan = variant->copies[0].plans[leat_variant_top_plan(variant)];
    const enum leat_status status = variant->backend->plan_run(plan, &segment, 1, side->scratch, pass->team);
    return status == LEAT_OK ? LEAT_OK
                             : leat_err_prefix(status, "validation: items from %llu on", (unsigned long long)first);
}

/* Is what the variant gives near what f32 gives? What is no number is near nothing. */
static bool
is_near(const struct pass *pass, uint32_t item)
{
    for (uint32_t o = 0; o < pass->signature->output_count; o++) {
        const uint32_t t = pass->signature->input_count + o, dtype = pass->signature->tensors[t].dtype;
        const uint64_t elements = pass->signature->tensors[t].item_bytes / leat_dtype_bytes(dtype);
        double difference = 0, whole = 0;
        for (uint64_t e = item * elements; e < (item + UINT64_C(1)) * elements; e++) {
            const double exact = score_at(pass->sides[1].tensors[t], dtype, e);
            const double apart = score_at(pass->sides[0].tensors[t], dtype, e) - exact;
            difference += apart * apart;
            whole += exact * exact;
        }
        if (!(sqrt(difference) <= LEAT_AGREEMENT_DISTANCE * sqrt(whole))) {
            return false;
        }
    }
    return true;
}

static bool
agrees(const struct pass *pass, uint32_t item)
{
    const uint32_t t = pass->signature->input_count, dtype = pass->signature->tensors[t].dtype;

    if (pass->sides[1].variant == NULL) {
        return true;
    }
    return pass->classes > 0 ? class_of(pass->sides[0].tensors[t], dtype, item, pass->classes) ==
                                   class_of(pass->sides[1].tensors[t], dtype, item, pass->classes)
                             : is_near(pass, item);
}

static enum leat_status
run_batch(struct pass *pass, uint64_t first, uint32_t items)
{
    const uint32_t t = pass->signature->input_count, score_dtype = pass->signature->tensors[t].dtype;

    enum leat_status status = read_batch(pass, first, items);
    for (uint32_t s = 0; s < 2 && status == LEAT_OK; s++) {
        status = pass->sides[s].variant != NULL ? run_side(pass, &pass->sides[s], first, items) : LEAT_OK;
    }
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < items; i++) {
        if (!pass->set->has_labels) {
            pass->right += agrees(pass, i);
            continue;
        }
        const uint64_t label = whole_at(pass->labels, pass->set->labels.dtype, i);
        if (label >= pass->classes) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "validation: the label of item %llu is none of the model's %llu classes",
                             (unsigned long long)(first + i), (unsigned long long)pass->classes);
        }
        pass->right += class_of(pass->sides[0].tensors[t], score_dtype, i, pass->classes) == label;
    }
    return LEAT_OK;
}

static enum leat_status
make_side(struct pass *pass, struct side *side)
{
    const struct leat_variant *variant = side->variant;
    const struct leat_plan *plan = variant->copies[0].plans[leat_variant_top_plan(variant)];
    bool good = true;

    side->scratch = aligned_alloc(4096, leat_round_up(variant->backend->plan_scratch_bytes(plan) + 1, 4096));
    for (uint32_t t = side == pass->sides ? 0 : pass->signature->input_count; t < variant->tensor_count; t++) {
        side->tensors[t] = aligned_alloc(4096, leat_round_up(variant->item_bytes[t] * pass->items_max, 4096));
        good = good && side->tensors[t] != NULL;
    }
    return good && side->scratch != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to validate");
}

static enum leat_status
make_memory(struct pass *pass)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t s = 0; s < 2 && status == LEAT_OK; s++) {
        status = pass->sides[s].variant != NULL ? make_side(pass, &pass->sides[s]) : LEAT_OK;
    }
    pass->labels = calloc(pass->items_max, sizeof(uint64_t));
    return status != LEAT_OK || pass->labels != NULL ? status : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to validate");
}

static void
free_memory(struct pass *pass)
{
    for (uint32_t s = 0; s < 2; s++) {
        free(pass->sides[s].scratch);
        for (uint32_t t = 0; t < LEAT_TENSORS_MAX; t++) {
            free(pass->sides[s].tensors[t]);
        }
    }
    free(pass->labels);
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

/* Of one input, its own digest. */
static void
write_inputs_digest(struct pass *pass, char text[65])
{
    struct sha256_ctx all;
    uint8_t digest[SHA256_DIGEST_SIZE];

    if (pass->signature->input_count == 1) {
        write_digest(&pass->inputs_sha[0], text);
        return;
    }
    sha256_init(&all);
    for (uint32_t i = 0; i < pass->signature->input_count; i++) {
        sha256_digest(&pass->inputs_sha[i], sizeof(digest), digest);
        sha256_update(&all, sizeof(digest), digest);
    }
    write_digest(&all, text);
}

enum leat_status
leat_validate(const struct leat_variant *variant, const struct leat_variant *exact, const struct leat_target *signature,
              const struct leat_validation_set *set, uint32_t cores, const _Atomic uint32_t *stop,
              struct leat_registry_validation *ret_validation)
{
    struct pass pass = {.signature = signature, .set = set, .items_max = variant->items_max};
    struct leat_registry_validation validation = {0};

    pass.sides[0].variant = variant;
    pass.sides[1].variant = set->has_labels ? NULL : exact;
    if (pass.sides[1].variant != NULL && exact->items_max < pass.items_max) {
        pass.items_max = exact->items_max;
    }
    enum leat_status status = check_set(signature, set, pass.inputs, &pass.classes);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < signature->input_count; i++) {
        sha256_init(&pass.inputs_sha[i]);
    }
    sha256_init(&pass.labels_sha);
    status = make_memory(&pass);
    if (status == LEAT_OK && cores > 1) {
        status = leat_team_create(&(struct leat_team_options){.size = cores}, &pass.team);
    }
    validation.samples = (uint64_t)pass.inputs[0].dims[0];
    for (uint64_t first = 0; first < validation.samples && status == LEAT_OK; first += pass.items_max) {
        const uint64_t left = validation.samples - first;
        status = atomic_load_explicit(stop, memory_order_relaxed) != 0
                     ? LEAT_FAIL(LEAT_AGAIN, "the daemon is shutting down")
                     : run_batch(&pass, first, left < pass.items_max ? (uint32_t)left : pass.items_max);
    }
    leat_team_destroy(pass.team);
    free_memory(&pass);
    if (status == LEAT_OK) {
        write_inputs_digest(&pass, validation.inputs_sha256);
        if (set->has_labels) {
            write_digest(&pass.labels_sha, validation.labels_sha256);
        }
        validation.accuracy_ppm = (uint32_t)((pass.right * 1000000 + validation.samples / 2) / validation.samples);
        validation.measured_s = (uint64_t)time(NULL);
        *ret_validation = validation;
    }
    return status;
}

/* ---- Calibration -------------------------------------------------------------------------------- */

/* One graph of a model, and how many positions of its sequences items keep: all of `shortest`..`length` in turn. */
struct calibrated {
    const struct leat_graph *graph;
    const struct leat_item_layout *layout;
    const struct leat_tensor_info *infos;
    uint32_t shortest, length;
    bool one_by_one;
    const struct leat_validation_set *set;
    struct leat_validation_array inputs[LEAT_TENSORS_MAX]; /* as the model has them */
    /* Of what was read until now, by input. */
    bool varies[LEAT_TENSORS_MAX], is_finite;
    struct { /* the first element that is not finite */
        uint32_t input;
        size_t element, item;
    } infinite;
    unsigned char firsts[LEAT_TENSORS_MAX][8]; /* elements */
};

static bool
is_finite(const unsigned char *element, uint32_t dtype)
{
    float f32;
    double f64;
    uint16_t half;

    switch (dtype) {
    case LEAT_DTYPE_F32: memcpy(&f32, element, sizeof(f32)); return isfinite(f32);
    case LEAT_DTYPE_F64: memcpy(&f64, element, sizeof(f64)); return isfinite(f64);
    case LEAT_DTYPE_F16: memcpy(&half, element, sizeof(half)); return (half & 0x7c00) != 0x7c00;
    case LEAT_DTYPE_BF16: memcpy(&half, element, sizeof(half)); return (half & 0x7f80) != 0x7f80;
    default: return true;
    }
}

/* Some items of input `t`, of `bytes` each. */
static void
look_at(struct calibrated *calibrated, uint32_t t, uint32_t first, uint32_t items, const unsigned char *data, size_t bytes)
{
    const struct leat_tensor_info *info = &calibrated->infos[t];
    const size_t element = leat_dtype_bytes(info->dtype), all = items * bytes;

    for (size_t at = 0; at < all; at += element) {
        if (calibrated->is_finite && !is_finite(data + at, info->dtype)) {
            calibrated->is_finite = false;
            calibrated->infinite.input = t;
            calibrated->infinite.element = at % bytes / element;
            calibrated->infinite.item = first + at / bytes;
        }
    }
    if (first == 0) {
        memcpy(calibrated->firsts[t], data, element);
    }
    calibrated->varies[t] = calibrated->varies[t] || memcmp(calibrated->firsts[t], data, element) != 0 ||
                            memcmp(data, data + element, all - element) != 0;
}

/*
 * An input that is one number throughout has no range. It may be that it never changes; but where a product reads it, or all inputs
 * are so, int8 would go by nothing. No range comes of what is not finite, either: inputs may be so where no product gets to see it,
 * as masks of attention are.
 */
static enum leat_status
check_ranges(const struct leat_calibration *calibration, const struct calibrated *calibrated, uint32_t items)
{
    uint32_t useless = UINT32_MAX, varying = 0;

    for (uint32_t t = 0; t < calibrated->graph->input_count; t++) {
        varying += calibrated->varies[t];
        useless = !calibrated->varies[t] && leat_calibration_reads(calibration, t) ? t : useless;
    }
    useless = varying == 0 ? 0 : useless;
    if (!calibrated->is_finite && !leat_calibration_is_finite(calibration)) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                         "element %zu of input '%s' of item %zu is not finite, and int8 takes its ranges from the set",
                         calibrated->infinite.element, calibrated->infos[calibrated->infinite.input].name, calibrated->infinite.item);
    }
    return useless == UINT32_MAX
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                           "input '%s' is one number throughout the %u items that int8 takes its ranges from: give a set with "
                           "inputs like those that will be asked",
                           calibrated->infos[useless].name, items);
}

/* Items from `first` on into `data`, as they lie in the set, and as the graph reads them into `batch`. */
static enum leat_status
read_calibration(struct calibrated *calibrated, uint32_t input_count, uint32_t first, uint32_t items,
                 unsigned char *const *data, unsigned char *const *batch)
{
    const struct leat_item_layout *layout = calibrated->layout;

    for (uint32_t t = 0; t < input_count; t++) {
        const size_t full_bytes = layout->tensors[t].item_bytes, bytes = leat_item_bytes(layout, t, calibrated->length);
        const enum leat_status status =
            read_part(calibrated->set, calibrated->inputs[t].offset + first * full_bytes, data[t], full_bytes * items);
        if (status != LEAT_OK) {
            return status;
        }
        look_at(calibrated, t, first, items, data[t], full_bytes);
        for (uint32_t i = 0; i < items; i++) {
            struct leat_segment segment = {.items = 1};
            segment.length = calibrated->shortest + (first + i) % (calibrated->length - calibrated->shortest + 1);
            segment.tensors[t] = data[t] + i * full_bytes;
            leat_items_gather(layout, calibrated->length, &segment, 1, t, 0, batch[t] + i * bytes);
        }
    }
    return LEAT_OK;
}

static enum leat_status
run_calibration(struct leat_calibration *calibration, struct calibrated *calibrated, uint32_t items, uint32_t count,
                const _Atomic uint32_t *stop)
{
    const uint32_t input_count = calibrated->graph->input_count;
    unsigned char *data[LEAT_TENSORS_MAX] = {NULL}, *batch[LEAT_TENSORS_MAX] = {NULL};
    enum leat_status status = LEAT_OK;

    for (uint32_t t = 0; t < input_count && status == LEAT_OK; t++) {
        const size_t bytes = (size_t)leat_round_up(calibrated->layout->tensors[t].item_bytes * items, 4096);
        data[t] = aligned_alloc(4096, bytes);
        batch[t] = aligned_alloc(4096, bytes);
        status = data[t] != NULL && batch[t] != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to calibrate");
    }
    for (uint32_t b = 0; b < count && status == LEAT_OK; b++) {
        status = atomic_load_explicit(stop, memory_order_relaxed) != 0
                     ? LEAT_FAIL(LEAT_AGAIN, "the daemon is shutting down")
                     : read_calibration(calibrated, input_count, b * items, items, data, batch);
        if (status == LEAT_OK) {
            status = leat_calibration_run(calibration, (const void *const *)batch);
        }
    }
    for (uint32_t t = 0; t < input_count; t++) {
        free(data[t]);
        free(batch[t]);
    }
    return status;
}

/* Ranges reach as far as those of any graph of the model. */
static enum leat_status
widen_ranges(const struct leat_calibration *calibration, json_t *ranges)
{
    for (uint32_t i = 0; i < leat_calibration_count(calibration); i++) {
        const struct leat_range range = leat_calibration_range(calibration, i);
        const json_t *before = json_object_get(ranges, range.name);
        const double least = json_number_value(json_array_get(before, 0));
        const double most = json_number_value(json_array_get(before, 1));
        json_t *both = json_pack("[f, f]", fmin(least, (double)range.least), fmax(most, (double)range.most));
        if (json_object_set_new(ranges, range.name, both) != 0) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for ranges");
        }
    }
    return LEAT_OK;
}

static enum leat_status
calibrate_graph(struct calibrated *calibrated, const _Atomic uint32_t *stop, json_t *ranges)
{
    enum { BATCH = 8 };
    const int64_t there = calibrated->inputs[0].dims[0];
    const uint32_t samples = there < (int64_t)LEAT_CALIBRATION_ITEMS ? (uint32_t)there : LEAT_CALIBRATION_ITEMS;
    uint32_t items = samples < BATCH || calibrated->one_by_one ? 1 : BATCH;
    struct leat_calibration *calibration = NULL;

    enum leat_status status = leat_calibration_create(calibrated->graph, items, &calibration);
    if (status == LEAT_ERR_LIMIT && items > 1) { /* the memory that one item takes may do */
        items = 1;
        status = leat_calibration_create(calibrated->graph, items, &calibration);
    }
    if (status == LEAT_OK) {
        status = run_calibration(calibration, calibrated, items, samples / items, stop);
    }
    if (status == LEAT_OK) {
        status = check_ranges(calibration, calibrated, samples / items * items);
    }
    if (status == LEAT_OK) {
        status = widen_ranges(calibration, ranges);
    }
    leat_calibration_destroy(calibration);
    return status;
}

enum leat_status
leat_calibrate(const struct leat_variant_source *source, const struct leat_validation_set *set, const _Atomic uint32_t *stop,
               json_t **ret_ranges)
{
    struct calibrated calibrated = {.set = set, .is_finite = true};
    struct leat_item_layout layout;
    struct leat_target signature;
    struct leat_graph *graph;
    struct leat_sequence *sequence;
    uint64_t classes;

    enum leat_status status = leat_variant_import(source, &graph, &sequence, &signature, &calibrated.one_by_one);
    if (status != LEAT_OK) {
        return status;
    }
    struct leat_model_source model = {
        .infos = signature.tensors, .input_count = signature.input_count, .output_count = signature.output_count};
    if (sequence != NULL) {
        leat_sequence_describe(sequence, &model);
    }
    if (leat_graph_is_quantised(sequence != NULL ? model.graphs[0] : graph)) {
        leat_sequence_destroy(sequence);
        leat_graph_destroy(graph);
        *ret_ranges = NULL;
        return LEAT_OK;
    }
    leat_item_layout_init(&layout, &model);
    calibrated.layout = &layout;
    calibrated.infos = signature.tensors;
    status = check_set(&signature, set, calibrated.inputs, &classes);
    json_t *ranges = json_object();
    if (ranges == NULL && status == LEAT_OK) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for ranges");
    }
    for (uint32_t l = 0; l < (sequence != NULL ? model.length_count : 1) && status == LEAT_OK; l++) {
        calibrated.graph = sequence != NULL ? model.graphs[l] : graph;
        if (sequence != NULL) { /* the longest has items as they are, the others their beginnings: of all lengths that they serve */
            const uint32_t next = l > 0 ? model.lengths[l - 1] + 1 : 1;
            calibrated.length = model.lengths[l];
            calibrated.shortest = l + 1 < model.length_count ? next : calibrated.length;
        }
        status = calibrate_graph(&calibrated, stop, ranges);
    }
    leat_sequence_destroy(sequence);
    leat_graph_destroy(graph);
    if (status != LEAT_OK) {
        json_decref(ranges);
        return status;
    }
    *ret_ranges = ranges;
    return LEAT_OK;
}
