/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/pipeline_spec.h - a pipeline as somebody describes it, checked, and made into what the dispatcher runs.
 *
 * Role       read() takes a JSON object apart: names, edges and the order of stages. bind() looks up the stages'
 *            applications, checks that what flows between them fits, and says where it lies. One that was read can be bound
 *            whenever its applications are there.
 * Object     {"name": "traffic", "latency_ms": 200, "late": "drop", "in_flight": 64, "items_max": 1,
 *             "stages": [{"name": "detect", "application": "yolo", "inputs": {"images": "input.image"}},
 *                        {"name": "classify", "application": "resnet", "each": "detect.crops",
 *                         "inputs": {"input": "detect.crops"}}],
 *             "outputs": {"boxes": "detect.boxes", "labels": "classify.output"}}
 *            Only stages and outputs are needed, and of a stage its application and inputs; its name is the
 *            application's then. A source is "STAGE.OUTPUT", or "input.NAME", which makes NAME an input of the pipeline.
 * Types      Whoever reads a source must have its element type, rank and dimensions. With `each` a stage is asked for the
 *            elements of a source that varies in its dimension 1, as items of its own; all that it reads must be the same
 *            stage's then and vary likewise, or be of a stage with the same `each`.
 * Memory     Outputs of stages that are none of the pipeline's lie in a workspace. Two of them share memory where one can
 *            only be made once all that read the other must have ended.
 * Trust      The object may be anything: wrong ones get an error that names the place, both ends of an edge and
 *            the way out.
 * Failure    LEAT_ERR_INVALID: malformed, or names that do not exist; LEAT_ERR_NOT_FOUND: an application is not there;
 *            LEAT_ERR_SHAPE: ends of an edge differ; LEAT_ERR_LIMIT; LEAT_ERR_UNSUPPORTED; LEAT_ERR_NOMEM.
 * Threads    Any; nothing is kept.
 */
#ifndef LEAT_RUNTIME_PIPELINE_SPEC_H
#define LEAT_RUNTIME_PIPELINE_SPEC_H

#include <jansson.h>

#include "runtime/pipeline.h"

#define LEAT_PIPELINE_INPUT          UINT32_MAX /* in place of a stage: the client's query */
#define LEAT_PIPELINE_RUNS_DEFAULT   64u
#define LEAT_PIPELINE_LATENCY_MAX_NS (UINT64_C(3600) * 1000000000)

struct leat_pipeline_source {
    uint32_t stage; /* place in the spec, or LEAT_PIPELINE_INPUT */
    char tensor[LEAT_TENSOR_NAME_MAX];
};

struct leat_pipeline_edge {
    char name[LEAT_TENSOR_NAME_MAX]; /* of the application's input, or the pipeline's output */
    struct leat_pipeline_source source;
};

struct leat_pipeline_spec_stage {
    char name[LEAT_NAME_MAX], application[LEAT_NAME_MAX];
    bool repeats;
    struct leat_pipeline_source each; /* where it repeats; a stage's */
    uint32_t edge_count;
    struct leat_pipeline_edge edges[LEAT_TENSORS_MAX];
    uint32_t after; /* bit s: it reads what stage s makes */
};

struct leat_pipeline_spec {
    char name[LEAT_NAME_MAX]; /* "": none was given */
    uint64_t latency_ns;      /* 0: none */
    enum leat_pipeline_late late;
    uint32_t items_max; /* of one query; 0: as many as its stages take */
    uint32_t
        in_flight; /* 0: LEAT_PIPELINE_RUNS_DEFAULT, fewer where these took more than a quarter of the memory, but one */
    uint32_t stage_count;
    struct leat_pipeline_spec_stage stages[LEAT_PIPELINE_STAGES_MAX]; /* each behind those that it reads of */
    uint32_t output_count;
    struct leat_pipeline_edge outputs[LEAT_TENSORS_MAX];
};

/* Where applications are, and how much memory all runs of the pipeline together may take. */
struct leat_pipeline_house {
    const struct leat_target *(*find)(void *context, const char *application); /* NULL: there is none */
    void *context;
    uint64_t memory_bytes;
};

LEAT_MUST_CHECK enum leat_status leat_pipeline_spec_read(const json_t *object, struct leat_pipeline_spec *ret_spec);

/* To be free()'d; its index and place in memory are still to be set. */
LEAT_MUST_CHECK enum leat_status leat_pipeline_bind(const struct leat_pipeline_spec *spec,
                                                    const struct leat_pipeline_house *house,
                                                    struct leat_pipeline **ret_pipeline);

#endif /* LEAT_RUNTIME_PIPELINE_SPEC_H */
