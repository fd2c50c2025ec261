/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/validation.h - how accurate a variant is, and what ranges its values have, found by running a set through it.
 *
 * Role     Of a set with labels, top-1: an answer is right when the largest value of its first output, over the last dimension,
 *          stands where the label says. Of one without, agreement with f32: where that output has scores of classes, the
 *          largest stands where it does in the file's own precision; else each output is within LEAT_AGREEMENT_DISTANCE of what
 *          that gives, as the length of the difference to that of the f32 output.
 * Trust    The set's file is a client's, and may change while it is read: that costs the client a wrong accuracy.
 * Threads  Any control thread.
 */
#ifndef LEAT_RUNTIME_VALIDATION_H
#define LEAT_RUNTIME_VALIDATION_H

#include <jansson.h>
#include <stdatomic.h>

#include "runtime/registry.h"
#include "runtime/variant.h"

/* An array in a file: elements in C order, little endian. */
struct leat_validation_array {
    uint64_t offset; /* in the file */
    uint32_t dtype;
    uint32_t rank; /* 1..LEAT_RANK_MAX */
    int64_t dims[LEAT_RANK_MAX];
};

#define LEAT_AGREEMENT_DISTANCE 0.05

struct leat_validation_input {
    const char *name; /* of the model's input; the caller's; NULL where there is one only */
    struct leat_validation_array array; /* the first dimension counts items */
};

struct leat_validation_set {
    int fd;
    struct leat_validation_input inputs[LEAT_TENSORS_MAX]; /* in any order */
    uint32_t input_count;
    bool has_labels;
    struct leat_validation_array labels; /* a whole number for each item */
};

/*
 * LEAT_ERR_SHAPE, with both shapes in words, where the set is not for such a variant, or the model refuses an item;
 * LEAT_ERR_INVALID where a label is none of its classes; LEAT_AGAIN once *stop is not 0. `cores` run it. `exact`: the same model
 * in f32, which a set without labels is compared with; NULL: this is the one.
 */
LEAT_MUST_CHECK enum leat_status leat_validate(const struct leat_variant *variant, const struct leat_variant *exact,
                                               const struct leat_target *signature, const struct leat_validation_set *set,
                                               uint32_t cores, const _Atomic uint32_t *stop,
                                               struct leat_registry_validation *ret_validation);

/*
 * What int8 needs to know of a model: {name: [least, most]} of values of its graph, see kernels/cpu/calibrate.h, from the first
 * LEAT_CALIBRATION_ITEMS items of the set; of a model of sequences, at all its lengths, in short ones from the beginnings of the
 * items: short sequences have other values. A new reference; NULL where the file is quantised itself: it runs as it says, and there
 * is no int8 of it. LEAT_ERR_UNSUPPORTED where the set says nothing of ranges; other errors as of leat_validate(). One core runs it.
 */
#define LEAT_CALIBRATION_ITEMS 512u
LEAT_MUST_CHECK enum leat_status leat_calibrate(const struct leat_variant_source *source, const struct leat_validation_set *set,
                                                const _Atomic uint32_t *stop, json_t **ret_ranges);

#endif /* LEAT_RUNTIME_VALIDATION_H */
