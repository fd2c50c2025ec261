/* SPDX-License-Identifier: Apache-2.0 */
/* tests/runtime/pipeline_house.h - signatures of applications for pipelines in tests, without any model. */
#ifndef LEAT_TESTS_PIPELINE_HOUSE_H
#define LEAT_TESTS_PIPELINE_HOUSE_H

#include <string.h>

#include "base/align.h"
#include "ipc/wire.h"
#include "runtime/pipeline_spec.h"

#define HOUSE_F32(tensor_name, ...)  HOUSE_TENSOR(tensor_name, LEAT_DTYPE_F32, 4, 0, __VA_ARGS__)
#define HOUSE_MANY(tensor_name, ...) HOUSE_TENSOR(tensor_name, LEAT_DTYPE_F32, 4, 1, __VA_ARGS__)
#define HOUSE_TENSOR(tensor_name, type, element, varies, ...)                                                           \
    {                                                                                                                   \
        .name = tensor_name, .dtype = type, .rank = (uint32_t)(1 + sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
        .dims = {-1, __VA_ARGS__}, .item_bytes = element, .varying = varies                                             \
    }

enum { HOUSE_MANY_INPUTS = LEAT_TENSORS_MAX / 2 + 1 };

struct house_application {
    const char *name;
    struct leat_target target;
};

static struct house_application house_applications[] = {
    {"detect",
     {.id = 1,
      .items_max = 1,
      .input_count = 1,
      .output_count = 3,
      .tensors = {HOUSE_F32("images", 3, 64, 64), HOUSE_MANY("boxes", 16, 4), HOUSE_MANY("scores", 16),
                  HOUSE_MANY("crops", 16, 3, 32, 32)}}},
    {"classify",
     {.id = 2,
      .items_max = 8,
      .input_count = 1,
      .output_count = 1,
      .tensors = {HOUSE_F32("x", 3, 32, 32), HOUSE_F32("prob", 10)}}},
    {"classify4",
     {.id = 3,
      .items_max = 4,
      .input_count = 1,
      .output_count = 1,
      .tensors = {HOUSE_F32("x", 3, 32, 32), HOUSE_F32("prob", 10)}}},
    {"map",
     {.id = 4, .items_max = 4, .input_count = 1, .output_count = 1, .tensors = {HOUSE_F32("x", 16), HOUSE_F32("y", 16)}}},
    {"join",
     {.id = 5,
      .items_max = 6,
      .input_count = 2,
      .output_count = 2,
      .tensors = {HOUSE_F32("left", 16), HOUSE_F32("right", 16), HOUSE_F32("sum", 16), HOUSE_F32("rest", 3)}}},
    {"whole",
     {.id = 6, .items_max = 4, .input_count = 1, .output_count = 1, .tensors = {HOUSE_F32("x", 16, 4), HOUSE_F32("y", 2)}}},
    {"text",
     {.id = 7,
      .items_max = 4,
      .input_count = 1,
      .output_count = 1,
      .length_max = 128,
      .length_count = 1,
      .lengths = {128},
      .tensors = {HOUSE_F32("x", 128), HOUSE_F32("y", 16)}}},
    {"counts",
     {.id = 8,
      .items_max = 4,
      .input_count = 1,
      .output_count = 1,
      .tensors = {HOUSE_F32("x", 3, 32, 32), HOUSE_MANY("y", 5, 2)}}},
    {"deep",
     {.id = 9,
      .items_max = 64,
      .input_count = 1,
      .output_count = 1,
      .tensors = {HOUSE_F32("x", 3, 32, 32), HOUSE_F32("y", 1, 1, 1, 1, 1, 1, 2)}}},
    {"bits",
     {.id = 10,
      .items_max = 4,
      .input_count = 1,
      .output_count = 1,
      .tensors = {HOUSE_TENSOR("x", LEAT_DTYPE_I32, 4, 0, 16), HOUSE_F32("y", 16)}}},
    {"find",
     {.id = 11,
      .items_max = 4,
      .input_count = 1,
      .output_count = 1,
      .tensors = {HOUSE_F32("x", 16), HOUSE_MANY("found", 6, 16)}}},
    {"wide",
     {.id = 12,
      .items_max = 1,
      .input_count = 1,
      .output_count = 1,
      .tensors = {HOUSE_F32("x", 16), HOUSE_TENSOR("y", LEAT_DTYPE_F32, 4, 2, 2, 9)}}},
    {"many", /* house_init makes the others like the first: i0, i1, ... and y0, y1, ... */
     {.id = 13,
      .items_max = 4,
      .input_count = HOUSE_MANY_INPUTS,
      .output_count = LEAT_TENSORS_MAX - HOUSE_MANY_INPUTS,
      .tensors = {HOUSE_F32("i0", 16)}}},
    {"boxes2",
     {.id = 14,
      .items_max = 8,
      .input_count = 2,
      .output_count = 1,
      .tensors = {HOUSE_F32("box", 4), HOUSE_F32("prob", 10), HOUSE_F32("y", 16)}}},
};

static const struct leat_target *
house_find(void *context, const char *application)
{
    (void)context;
    for (size_t a = 0; a < LEAT_COUNT_OF(house_applications); a++) {
        if (strcmp(house_applications[a].name, application) == 0) {
            return &house_applications[a].target;
        }
    }
    return NULL;
}

static const struct leat_pipeline_house house = {.find = house_find, .memory_bytes = UINT64_C(64) << 20};

/* Before anything else: bytes of items follow from dimensions. */
static inline void
house_init(void)
{
    for (size_t a = 0; a < LEAT_COUNT_OF(house_applications); a++) {
        struct leat_target *target = &house_applications[a].target;
        for (uint32_t t = 1; t < LEAT_TENSORS_MAX && strcmp(house_applications[a].name, "many") == 0; t++) {
            target->tensors[t] = target->tensors[0];
            (void)snprintf(target->tensors[t].name, sizeof(target->tensors[t].name), "%c%u", t < HOUSE_MANY_INPUTS ? 'i' : 'y',
                           t < HOUSE_MANY_INPUTS ? t : t - HOUSE_MANY_INPUTS);
        }
        for (uint32_t t = 0; t < target->input_count + target->output_count; t++) {
            struct leat_tensor_info *info = &target->tensors[t];
            info->item_bytes = leat_dtype_bytes(info->dtype);
            for (uint32_t d = 1; d < info->rank; d++) {
                info->item_bytes *= (uint64_t)info->dims[d];
            }
        }
    }
}

#endif /* LEAT_TESTS_PIPELINE_HOUSE_H */
