/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/served.h"

#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "tests/leat_test.h"

enum { SEGMENTS = 2 };

/* What backends are asked. */
struct trial {
    struct leat_graph *graph;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX]; /* inputs that are live, then outputs */
    uint32_t input_count, output_count;
    uint32_t shares[SEGMENTS]; /* items of each; the second may have none */
    bool one_by_one;           /* each item is all of the recorded tensors */
    uint32_t constants;
    const struct case_tensors *inputs, *outputs;
    const char *name;
};

const char *
served_text(enum served_reason reason)
{
    static const char *const texts[SERVED_REASONS] = {
        [SERVED_NO_REASON] = "",
        [SERVED_NO_INPUT] = "no input is left that may be live",
        [SERVED_EMPTY] = "a tensor is empty",
    };
    return texts[reason];
}

/* ---- One run -------------------------------------------------------------------------------------------------- */

/* Output o as an item of an answer has it: with zeros behind what varies, whose size is *ret_size. */
static void *
expected_item(const struct trial *trial, uint32_t o, struct leat_value *ret, uint16_t *ret_size)
{
    const struct leat_tensor_info *info = &trial->infos[trial->input_count + o];
    const struct leat_value *recorded = case_tensor(trial->outputs, o);
    void *data = calloc(1, info->item_bytes);

    EXPECT(data != NULL && info->dtype == recorded->dtype && info->rank - recorded->rank <= 1);
    *ret = *recorded;
    for (uint32_t d = 0; d < recorded->rank; d++) {
        const int64_t dim = info->dims[d + info->rank - recorded->rank];
        ret->dims[d] = dim == -1 ? 1 : dim;
    }
    EXPECT(leat_signature_store(info, ret, recorded->dims, recorded->data, data, ret_size) == LEAT_OK);
    ret->data = data;
    ret->data_bytes = info->item_bytes;
    return data;
}

static bool
compare_items(const struct trial *trial, const struct leat_segment *segments, bool sums)
{
    const uint16_t *sizes = segments[0].sizes;
    bool good = true;

    for (uint32_t o = 0; o < trial->output_count; o++) {
        struct leat_value expected;
        uint16_t size = 0;
        void *data = expected_item(trial, o, &expected, &size);
        for (uint32_t s = 0; s < SEGMENTS; s++) {
            good = good && case_is_near(&expected, segments[s].tensors[trial->input_count + o], sums, trial->name);
        }
        if (trial->infos[trial->input_count + o].varying != 0) {
            good = good && sizes[0] == size && sizes[LEAT_SIZES_MAX] == size;
            sizes++;
        }
        free(data);
    }
    return good;
}

static bool
compare_batch(const struct trial *trial, const struct leat_segment *segments, bool sums)
{
    bool good = true;

    for (uint32_t o = 0; o < trial->output_count && good; o++) {
        const struct leat_value *expected = case_tensor(trial->outputs, o);
        const uint32_t t = trial->input_count + o;
        char *joined = malloc(expected->data_bytes + 1);
        EXPECT(joined != NULL && trial->infos[t].dtype == expected->dtype &&
               (trial->shares[0] + trial->shares[1]) * trial->infos[t].item_bytes == expected->data_bytes);
        leat_segments_gather(segments, SEGMENTS, t, trial->infos[t].item_bytes, 0, (unsigned char *)joined);
        good = case_is_near(expected, joined, sums, trial->name);
        free(joined);
    }
    return good;
}

static bool
run_plan(const struct leat_backend *backend, const struct leat_plan *plan, const struct trial *trial, bool sums)
{
    const size_t scratch_bytes = (size_t)leat_round_up(backend->plan_scratch_bytes(plan) + 64, 64);
    struct leat_segment segments[SEGMENTS] = {0};
    uint16_t sizes[SEGMENTS][LEAT_SIZES_MAX] = {0};
    void *scratch = aligned_alloc(64, scratch_bytes), *blocks[SEGMENTS][LEAT_TENSORS_MAX] = {0};
    bool good = true;

    EXPECT(scratch != NULL);
    memset(scratch, 0xa5, scratch_bytes);
    for (uint32_t s = 0; s < SEGMENTS; s++) {
        segments[s].items = trial->shares[s];
        segments[s].sizes = sizes[s];
        for (uint32_t t = 0; t < trial->input_count + trial->output_count; t++) {
            const size_t bytes = trial->shares[s] * trial->infos[t].item_bytes;
            blocks[s][t] = aligned_alloc(64, (size_t)leat_round_up(bytes + 1, 64));
            EXPECT(blocks[s][t] != NULL);
            segments[s].tensors[t] = blocks[s][t];
            memset(blocks[s][t], 0x5a, bytes);
        }
    }
    for (uint32_t i = 0, t = 0; i < trial->inputs->count; i++) {
        const char *data = case_tensor(trial->inputs, i)->data;
        if ((trial->constants >> i & 1u) != 0) {
            continue;
        }
        for (uint32_t s = 0; s < SEGMENTS; s++) {
            const size_t bytes = trial->shares[s] * trial->infos[t].item_bytes;
            memcpy(blocks[s][t], data, bytes);
            data += trial->one_by_one ? 0 : bytes;
        }
        t++;
    }
    if (backend->plan_run(plan, segments, trial->shares[1] > 0 ? 2 : 1, scratch, NULL) != LEAT_OK) {
        (void)fprintf(stderr, "%s: backend %s failed: %s\n", trial->name, backend->name, leat_error_text());
        good = false;
    }
    good = good && (trial->one_by_one ? compare_items : compare_batch)(trial, segments, sums);
    for (uint32_t t = 0; t < SEGMENTS * LEAT_TENSORS_MAX; t++) {
        free(blocks[t / LEAT_TENSORS_MAX][t % LEAT_TENSORS_MAX]);
    }
    free(scratch);
    return good;
}

/* Fast transforms are of floats. */
static bool
transforms(const struct leat_backend *backend, const struct leat_graph *graph)
{
    bool has = false;

    for (uint32_t n = 0; n < graph->node_count; n++) {
        has = has || graph->nodes[n].op->kind == LEAT_OP_DFT || graph->nodes[n].op->kind == LEAT_OP_STFT;
    }
    return has && backend != &leat_backend_reference;
}

static bool
run_backend(const struct leat_backend *backend, const struct trial *trial)
{
    const struct leat_model_source source = {.graph = trial->graph,
                                             .infos = trial->infos,
                                             .input_count = trial->input_count,
                                             .output_count = trial->output_count,
                                             .one_by_one = trial->one_by_one};
    const struct leat_plan_options options = {.items = trial->shares[0] + trial->shares[1]};
    struct leat_model *model = NULL;
    struct leat_plan *plan = NULL;

    enum leat_status status = backend->model_load(&source, &model);
    if (status == LEAT_OK) {
        status = backend->plan_build(model, &options, &plan);
    }
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s: backend %s refuses it: %s\n", trial->name, backend->name, leat_error_text());
    }
    const bool good =
        status == LEAT_OK && run_plan(backend, plan, trial, transforms(backend, trial->graph));
    backend->plan_destroy(plan);
    backend->model_destroy(model);
    if (!good) {
        (void)fprintf(stderr, "%s: wrong in backend %s, %s, constants %#x\n", trial->name, backend->name,
                      trial->one_by_one ? "one item at a time" : "as a batch", trial->constants);
    }
    return good;
}

static bool
run_backends(const struct trial *trial)
{
    const bool good = run_backend(&leat_backend_reference, trial);
    return run_backend(&leat_backend_cpu, trial) && good;
}

/* ---- Manners -------------------------------------------------------------------------------------------------- */

static enum leat_status
use_one(struct leat_graph *graph)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t input_count, output_count;

    enum leat_status status = leat_graph_infer(graph);
    if (status == LEAT_OK) {
        status = leat_graph_optimise(graph, ~UINT64_C(0));
    }
    return status == LEAT_OK ? leat_graph_signature_of_one(graph, infos, &input_count, &output_count) : status;
}

/* Not every case works for other batch sizes; those that mix items must not. */
static enum leat_status
use_batch(struct leat_graph *graph)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t input_count, output_count;

    for (uint32_t i = 0; i < graph->input_count; i++) {
        graph->values[graph->inputs[i]].dims[0] = LEAT_DIM_BATCH;
    }
    enum leat_status status = leat_graph_infer(graph);
    if (status == LEAT_OK) {
        status = leat_graph_optimise(graph, ~UINT64_C(0));
    }
    return status == LEAT_OK ? leat_graph_signature(graph, infos, &input_count, &output_count) : status;
}

/* Inputs that a batch of `items` does not have. */
static uint32_t
without_batch(const struct case_tensors *inputs, int64_t items)
{
    uint32_t mask = 0;

    for (uint32_t i = 0; i < inputs->count; i++) {
        const struct leat_value *input = case_tensor(inputs, i);
        mask |= input->rank == 0 || input->dims[0] != items ? 1u << i : 0;
    }
    return mask;
}

/* True, and the size of the batch, when all outputs and an input share their first dimension. */
static bool
has_batch(const struct case_tensors *inputs, const struct case_tensors *outputs, int64_t *ret_items)
{
    for (uint32_t o = 0; o < outputs->count; o++) {
        const struct leat_value *output = case_tensor(outputs, o);
        if (output->rank == 0 || output->dims[0] < 1 || output->dims[0] != case_tensor(outputs, 0)->dims[0]) {
            return false;
        }
    }
    *ret_items = case_tensor(outputs, 0)->dims[0];
    return without_batch(inputs, *ret_items) != (1u << inputs->count) - 1;
}

static enum served_reason
find_reason(const char *name)
{
    static const struct {
        const char *text;
        enum served_reason reason;
    } rows[] = {
        {"0 inputs", SERVED_NO_INPUT},
        {"is empty", SERVED_EMPTY},
    };

    for (size_t r = 0; r < LEAT_COUNT_OF(rows); r++) {
        if (strstr(leat_error_text(), rows[r].text) != NULL) {
            return rows[r].reason;
        }
    }
    (void)fprintf(stderr, "%s: cannot run one item at a time: %s\n", name, leat_error_text());
    EXPECT(false);
    return SERVED_NO_REASON;
}

bool
served_run(const struct leat_graph *imported, const struct case_tensors *inputs, const struct case_tensors *outputs,
           uint32_t constants, const char *name, struct served *ret)
{
    struct trial trial = {.inputs = inputs, .outputs = outputs, .name = name, .shares = {1, 1}, .one_by_one = true};
    int64_t items;
    bool good = true;

    *ret = (struct served){.one = SERVED_NEITHER};
    if (case_use(imported, inputs, 0, use_one, &trial.graph, &trial.constants) == LEAT_OK) {
        EXPECT(leat_graph_signature_of_one(trial.graph, trial.infos, &trial.input_count, &trial.output_count) == LEAT_OK);
        good = run_backends(&trial);
        ret->one = trial.constants == 0 ? SERVED_LIVE : SERVED_CONSTANTS;
        leat_graph_destroy(trial.graph);
    } else {
        EXPECT(case_try(imported, inputs, constants, use_one, &trial.graph) != LEAT_OK);
        ret->reason = find_reason(name);
    }
    if (!has_batch(inputs, outputs, &items)) {
        return good;
    }
    ret->batch = true;
    if (case_use(imported, inputs, without_batch(inputs, items), use_batch, &trial.graph, &trial.constants) == LEAT_OK) {
        EXPECT(leat_graph_signature(trial.graph, trial.infos, &trial.input_count, &trial.output_count) == LEAT_OK);
        trial.one_by_one = false;
        trial.shares[0] = items >= 2 ? (uint32_t)items / 2 : (uint32_t)items;
        trial.shares[1] = (uint32_t)items - trial.shares[0];
        good = run_backends(&trial) && good;
        ret->apart = true;
        leat_graph_destroy(trial.graph);
    }
    return good;
}
