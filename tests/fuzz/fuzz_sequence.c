/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Target    leat_sequence_create, and plans of the reference backend for each length.
 * Input     An ONNX file, byte for byte. Its first free dimension counts positions, the others are 3.
 * Property  No crash, no sanitizer report. What is taken runs at every length to a result or a status, the same bit for bit
 *           whatever is behind the end of a sequence, and the same at all lengths but for the order of sums. That is
 *           promised of finite numbers and moderate scores: a case with large ones proves nothing. What is no number is none at
 *           every length.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/graph_build.h"
#include "kernels/reference/reference.h"
#include "kernels/sequence.h"
#include "tests/fuzz/onnx_mutate.h"

#define RUN_BYTES_MAX    ((size_t)64 << 10) /* larger runs would only be slow */
#define MEMORY_BYTES_MAX (UINT64_C(64) << 20)
#define TRIPS_MAX        256u

/* A length of one broadcasts, and one may divide the others. */
static const struct sequence_lengths {
    uint32_t count, lengths[3];
} choices[] = {{3, {2, 3, 5}}, {2, {1, 8}}, {2, {4, 8}}, {3, {2, 4, 8}}};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    const size_t mutated = onnx_mutate(data, size, max_size, seed);
    if (mutated == 0 && size > 0) { /* no model: bytes */
        data[seed % size] ^= (uint8_t)(1u << (seed >> 8 & 7));
    }
    return mutated > 0 ? mutated : size;
}

/* One byte of the file decides each element: small numbers, a mask among them. */
static void
fill(const struct leat_tensor_info *info, const uint8_t *data, size_t size, size_t start, unsigned char *to)
{
    const size_t bytes = leat_dtype_bytes(info->dtype);

    for (size_t i = 0; i < info->item_bytes / bytes; i++) {
        const uint8_t from = data[(start + i * 7) % size];
        const float small = (float)from / 64 - 1;
        const int64_t index = from % 2;
        switch (info->dtype) {
        case LEAT_DTYPE_F32:
            memcpy(to + i * bytes, &small, bytes);
            break;
        default:
            memcpy(to + i * bytes, &index, bytes);
            break;
        }
    }
}

struct answer {
    enum leat_status status;
    unsigned char *tensors[LEAT_TENSORS_MAX];
};

static void
forget(struct answer *answer)
{
    for (uint32_t t = 0; t < LEAT_TENSORS_MAX; t++) {
        free(answer->tensors[t]);
    }
}

/* A query of one item; what is behind its end follows from `noise`. */
static struct answer
ask(const struct leat_sequence *sequence, const struct leat_plan *plan, void *scratch, uint32_t length, const uint8_t *data,
    size_t size, uint8_t noise)
{
    const uint32_t full = sequence->lengths[sequence->length_count - 1];
    struct leat_segment segment = {.items = 1, .length = length};
    struct answer answer = {.status = LEAT_OK};

    for (uint32_t t = 0; t < sequence->input_count + sequence->output_count; t++) {
        const struct leat_tensor_info *info = &sequence->infos[t];
        unsigned char *block = aligned_alloc(64, (info->item_bytes + 64) / 64 * 64);
        LEAT_ASSERT(block != NULL);
        memset(block, noise, info->item_bytes);
        if (t < sequence->input_count) {
            fill(info, data, size, t, block);
        }
        if (t < sequence->input_count && sequence->axes[t] >= 0) {
            size_t outer = 1;
            for (int32_t d = 1; d < sequence->axes[t]; d++) {
                outer *= (size_t)info->dims[d];
            }
            const size_t row = info->item_bytes / outer, used = row / full * length;
            for (size_t o = 0; o < outer; o++) {
                memset(block + o * row + used, noise, row - used);
            }
        }
        segment.tensors[t] = answer.tensors[t] = block;
    }
    answer.status = leat_backend_reference.plan_run(plan, &segment, 1, scratch, NULL);
    LEAT_ASSERT(answer.status == LEAT_OK || answer.status == LEAT_ERR_SHAPE);
    return answer;
}

static void
compare(const struct leat_sequence *sequence, const struct answer *a, const struct answer *b)
{
    LEAT_ASSERT(a->status == b->status);
    for (uint32_t t = sequence->input_count; t < sequence->input_count + sequence->output_count && a->status == LEAT_OK; t++) {
        LEAT_ASSERT(memcmp(a->tensors[t], b->tensors[t], sequence->infos[t].item_bytes) == 0);
    }
}

static void
compare_lengths(const struct leat_sequence *sequence, const struct answer *a, const struct answer *b)
{
    LEAT_ASSERT(a->status == b->status);
    for (uint32_t t = sequence->input_count; t < sequence->input_count + sequence->output_count && a->status == LEAT_OK; t++) {
        const float *x = (const float *)(const void *)a->tensors[t], *y = (const float *)(const void *)b->tensors[t];
        float largest = 1e-3f, apart = 0;
        for (size_t i = 0; sequence->infos[t].dtype == LEAT_DTYPE_F32 && i < sequence->infos[t].item_bytes / sizeof(float); i++) {
            LEAT_ASSERT((x[i] != x[i]) == (y[i] != y[i]));
            if (!(fabsf(x[i]) < 1e4f && fabsf(y[i]) < 1e4f)) {
                return;
            }
            largest = fmaxf(largest, fabsf(x[i]));
            apart = fmaxf(apart, fabsf(x[i] - y[i]));
        }
        LEAT_ASSERT(apart <= 1e-2f * largest);
    }
}

static bool
is_small(const struct leat_sequence *sequence)
{
    struct leat_graph *concrete = NULL;
    size_t scratch_bytes = SIZE_MAX;

    if (leat_graph_specialise(sequence->graphs[sequence->length_count - 1], 1, &concrete) == LEAT_OK) {
        LEAT_MUST(leat_reference_scratch_bytes(concrete, &scratch_bytes) == LEAT_OK);
        leat_graph_destroy(concrete);
    }
    for (uint32_t t = 0; t < sequence->input_count + sequence->output_count && scratch_bytes < RUN_BYTES_MAX; t++) {
        scratch_bytes += sequence->infos[t].item_bytes;
    }
    return scratch_bytes < RUN_BYTES_MAX;
}

static void
serve(const struct leat_sequence *sequence, const uint8_t *data, size_t size)
{
    const struct leat_backend *backend = &leat_backend_reference;
    struct leat_model_source source = {.precision = LEAT_PRECISION_F32};
    const uint32_t *lengths = sequence->lengths, count = sequence->length_count;
    struct leat_plan *plans[LEAT_LENGTHS_MAX];
    void *scratch[LEAT_LENGTHS_MAX];
    struct leat_model *model;

    leat_sequence_describe(sequence, &source);
    LEAT_MUST(backend->model_load(&source, &model) == LEAT_OK);
    for (uint32_t k = 0; k < count; k++) {
        LEAT_MUST(backend->plan_build(model, &(struct leat_plan_options){.items = 2, .length = lengths[k]}, &plans[k]) == LEAT_OK);
        scratch[k] = aligned_alloc(64, (backend->plan_scratch_bytes(plans[k]) + 64) / 64 * 64);
        LEAT_ASSERT(scratch[k] != NULL);
    }
    for (uint32_t length = 1; length <= lengths[count - 1]; length++) {
        struct answer first = {.status = LEAT_AGAIN};
        for (uint32_t k = 0; k < count; k++) {
            if (lengths[k] < length) {
                continue;
            }
            struct answer a = ask(sequence, plans[k], scratch[k], length, data, size, 0x5a);
            struct answer b = ask(sequence, plans[k], scratch[k], length, data, size, 0xff);
            compare(sequence, &a, &b);
            forget(&b);
            if (first.status != LEAT_AGAIN) {
                compare_lengths(sequence, &first, &a);
            }
            if (first.status == LEAT_AGAIN) {
                first = a;
            } else {
                forget(&a);
            }
        }
        forget(&first);
    }
    for (uint32_t k = 0; k < count; k++) {
        backend->plan_destroy(plans[k]);
        free(scratch[k]);
    }
    backend->model_destroy(model);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct leat_onnx_source source = {
        .bytes = data, .byte_count = size, .folder_fd = -1, .memory_bytes_max = MEMORY_BYTES_MAX, .trips_max = TRIPS_MAX};
    struct leat_dim_value others[LEAT_GRAPH_SYMBOLS_MAX];
    struct leat_sequence *sequence;
    struct leat_graph *graph;

    if (size == 0 || leat_onnx_import_from(&source, &graph) != LEAT_OK) {
        return 0;
    }
    for (uint32_t s = 1; s < graph->symbol_count; s++) {
        others[s - 1] = (struct leat_dim_value){.name = graph->symbols[s], .value = 3};
    }
    const bool bound = graph->symbol_count > 0 && leat_graph_bind(graph, others, graph->symbol_count - 1) == LEAT_OK;
    for (size_t c = 0; c < LEAT_COUNT_OF(choices) && bound; c++) {
        if (leat_sequence_create(graph, graph->symbols[0], choices[c].lengths, choices[c].count, &sequence) == LEAT_OK) {
            if (is_small(sequence)) {
                serve(sequence, data, size);
            }
            leat_sequence_destroy(sequence);
        }
    }
    leat_graph_destroy(graph);
    return 0;
}
