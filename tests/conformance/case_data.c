/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/case_data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/onnx/onnx.h"
#include "kernels/reference/reference.h"
#include "tests/leat_test.h"

#define RTOL 1e-3
#define ATOL 1e-7

void *
case_read_file(const char *path, size_t *ret_size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return NULL;
    }
    EXPECT(fseek(file, 0, SEEK_END) == 0);
    const long size = ftell(file);
    EXPECT(size >= 0 && fseek(file, 0, SEEK_SET) == 0);
    void *bytes = malloc((size_t)size + 1);
    EXPECT(bytes != NULL && fread(bytes, 1, (size_t)size, file) == (size_t)size);
    (void)fclose(file);
    *ret_size = (size_t)size;
    return bytes;
}

enum leat_status
case_load_tensors(const char *set, const char *stem, struct case_tensors *ret)
{
    *ret = (struct case_tensors){0};
    EXPECT(leat_graph_create(stem, LEAT_OPSET_MAX, &ret->holder) == LEAT_OK);
    for (enum leat_status status = LEAT_OK; ret->count < CASE_TENSORS_MAX; ret->count++) {
        char path[1024];
        size_t size = 0;
        ProtobufCMessage *message = NULL;
        (void)snprintf(path, sizeof(path), "%s/%s_%u.pb", set, stem, ret->count);
        void *bytes = case_read_file(path, &size);
        if (bytes == NULL) {
            return LEAT_OK;
        }
        status = leat_onnx_unpack(&onnx__tensor_proto__descriptor, bytes, size, 0, &message);
        if (status == LEAT_OK) {
            status =
                leat_onnx_tensor(ret->holder, NULL, "tensor", (const Onnx__TensorProto *)(void *)message,
                                 &ret->index[ret->count]);
        }
        leat_onnx_free(message);
        free(bytes);
        if (status != LEAT_OK) {
            return status;
        }
    }
    EXPECT(ret->count < CASE_TENSORS_MAX);
    return LEAT_OK;
}

static double
element(const struct leat_value *value, const void *data, size_t i)
{
    switch (value->dtype) {
    case LEAT_DTYPE_F32:
        return (double)((const float *)data)[i];
    case LEAT_DTYPE_F64:
        return ((const double *)data)[i];
    default:
        return NAN;
    }
}

bool
case_is_near(const struct leat_value *expected, const void *data, bool sums, const char *name)
{
    const size_t count = leat_value_elements(expected);
    double greatest = 1;
    if (expected->dtype != LEAT_DTYPE_F32 && expected->dtype != LEAT_DTYPE_F64) {
        const bool same = memcmp(expected->data, data, expected->data_bytes) == 0;
        if (!same) {
            (void)fprintf(stderr, "%s: elements of type %s differ\n", name,
                          leat_dtype_text(expected->dtype));
        }
        return same;
    }
    for (size_t i = 0; i < count && sums; i++) {
        const double want = fabs(element(expected, expected->data, i));
        greatest = isfinite(want) ? fmax(greatest, want) : greatest;
    }
    for (size_t i = 0; i < count; i++) {
        const double want = element(expected, expected->data, i), have = element(expected, data, i);
        const bool good = isnan(want)   ? isnan(have)
                          : isinf(want) ? have == want
                                        : fabs(have - want) <= ATOL * greatest + RTOL * fabs(want);
        if (!good) {
            (void)fprintf(stderr, "%s: element %zu is %.9g, expected %.9g\n", name, i, have, want);
            return false;
        }
    }
    return true;
}

bool
case_has_shape(const struct leat_value *have, const struct leat_value *want, const char *name)
{
    bool same = have->dtype == want->dtype && have->rank == want->rank;
    for (uint32_t d = 0; same && d < have->rank; d++) {
        same = have->dims[d] == want->dims[d];
    }
    if (!same) {
        (void)fprintf(stderr, "%s: an output has another type or shape than expected\n", name);
    }
    return same;
}

enum leat_status
case_run(const struct leat_graph *graph, const struct case_tensors *inputs, uint32_t constants, struct case_tensors *ret_outputs)
{
    const void *in[CASE_TENSORS_MAX];
    void *out[CASE_TENSORS_MAX];
    struct leat_shape shapes[CASE_TENSORS_MAX];
    size_t scratch_bytes;

    EXPECT(graph->output_count <= CASE_TENSORS_MAX);
    for (uint32_t i = 0, k = 0; i < inputs->count; i++) {
        if ((constants >> i & 1u) == 0) {
            in[k++] = case_tensor(inputs, i)->data;
        }
    }
    for (uint32_t o = 0; o < graph->output_count; o++) {
        out[o] = calloc(1, leat_value_bytes(&graph->values[graph->outputs[o]]) + 1);
        EXPECT(out[o] != NULL);
    }
    EXPECT(leat_reference_scratch_bytes(graph, &scratch_bytes) == LEAT_OK);
    void *scratch = aligned_alloc(64, (size_t)leat_round_up(scratch_bytes + 64, 64));
    EXPECT(scratch != NULL);
    const enum leat_status status = leat_reference_run(graph, in, out, scratch, shapes);
    *ret_outputs = (struct case_tensors){0};
    EXPECT(leat_graph_create("outputs", LEAT_OPSET_MAX, &ret_outputs->holder) == LEAT_OK);
    for (uint32_t o = 0; o < graph->output_count; o++) {
        if (status == LEAT_OK) {
            EXPECT(leat_graph_add_constant(ret_outputs->holder, "output", shapes[o].dtype, shapes[o].rank, shapes[o].dims, out[o],
                                           &ret_outputs->index[ret_outputs->count++]) == LEAT_OK);
        }
        free(out[o]);
    }
    free(scratch);
    return status;
}

void
case_bind_inputs(struct leat_graph *graph, const struct case_tensors *inputs, uint32_t constants)
{
    uint32_t kept[CASE_TENSORS_MAX], count = 0;

    for (uint32_t i = 0; i < graph->input_count; i++) {
        const struct leat_value *from = case_tensor(inputs, i);
        struct leat_value *value = &graph->values[graph->inputs[i]];
        value->rank = from->rank;
        memcpy(value->dims, from->dims, sizeof(value->dims));
        if ((constants >> i & 1u) != 0) {
            void *data;
            EXPECT(leat_graph_make_constant(graph, graph->inputs[i], &data) == LEAT_OK);
            memcpy(data, from->data, from->data_bytes);
        } else {
            kept[count++] = graph->inputs[i];
        }
    }
    EXPECT(leat_graph_set_inputs(graph, kept, count) == LEAT_OK);
}

enum leat_status
case_try(const struct leat_graph *imported, const struct case_tensors *inputs, uint32_t constants,
         enum leat_status (*use)(struct leat_graph *graph), struct leat_graph **ret_graph)
{
    struct leat_graph *graph = NULL;

    EXPECT(leat_graph_copy(imported, &graph) == LEAT_OK);
    case_bind_inputs(graph, inputs, constants);
    const enum leat_status status = use(graph);
    if (status != LEAT_OK) {
        leat_graph_destroy(graph);
        return status;
    }
    *ret_graph = graph;
    return LEAT_OK;
}

enum leat_status
case_use(const struct leat_graph *imported, const struct case_tensors *inputs, uint32_t wanted,
         enum leat_status (*use)(struct leat_graph *graph), struct leat_graph **ret_graph, uint32_t *ret_constants)
{
    const uint32_t count = imported->input_count;
    enum leat_status status = LEAT_ERR_UNSUPPORTED;

    for (uint32_t constants = 0; constants <= count; constants++) {
        for (uint32_t mask = 1u << count; mask-- > 0;) {
            if ((uint32_t)__builtin_popcount(mask) != constants || (mask & wanted) != wanted) {
                continue;
            }
            status = case_try(imported, inputs, mask, use, ret_graph);
            if (status == LEAT_OK) {
                *ret_constants = mask;
                return LEAT_OK;
            }
        }
    }
    return status;
}
