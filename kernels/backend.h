/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/backend.h - what a way of running models must offer; CPU, reference and synthetic are three.
 *
 * Role       model_load turns a graph into weights in the backend's own layout, shared read-only by the
 *            workers of a NUMA node. plan_build makes an immutable plan for up to `items` items. plan_run
 *            executes one batch on the calling worker's cores.
 * Threads    model_load and plan_build run on control threads, off the hot path, and may be slow.
 *            plan_run may be called at the same time by as many workers as the plan was built for, each
 *            with its own scratch and team.
 * Hot path   plan_run neither allocates, locks nor makes system calls (synthetic's timer apart).
 * Trust      Tensor payload is untrusted and may change while plan_run reads it. Segments have been
 *            checked against the signature: every pointer is valid for items * item_bytes.
 * Failure    plan_run returns LEAT_ERR_* for this batch only; the worker goes on.
 */
#ifndef LEAT_KERNELS_BACKEND_H
#define LEAT_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <leat/tensor.h>

#include "base/status.h"

#define LEAT_BACKEND_ABI 4u

struct leat_graph;
struct leat_model; /* a backend's own */
struct leat_plan;  /* a backend's own */
struct leat_team;  /* kernels/team.h: the threads of one worker; NULL means the calling thread alone */

/* One query's share of a batch. Pointers are to items * item_bytes of each tensor, 64-byte aligned. */
struct leat_segment {
    uint32_t items;
    const void *tensors[LEAT_TENSORS_MAX]; /* inputs first, then outputs (written by plan_run) */
};

/* Of what a model multiplies; its inputs, outputs and sums are as the graph has them. */
enum leat_precision {
    LEAT_PRECISION_F32,  /* as in the file */
    LEAT_PRECISION_BF16, /* f32's range, 8 bits of precision */
    LEAT_PRECISION_COUNT,
};

#define LEAT_PRECISION_BIT(precision) (UINT32_C(1) << (precision))

struct leat_model_source {
    const struct leat_graph *graph;      /* imported and optimised; NULL for synthetic */
    enum leat_precision precision;       /* one of those that the backend has here */
    const char *options_json;            /* backend options, e.g. synthetic's profile; NULL for none */
    const struct leat_tensor_info *infos; /* signature: inputs, then outputs */
    uint32_t input_count, output_count;
    const char *const *class_names;      /* of workers: leat_team_class counts in it; may be NULL */
    uint32_t class_count;
};

/*
 * What a plan is made for. A vendor library chooses kernels and blocking for a number of threads, so the
 * team sizes that will run the plan are named ahead: a run uses the largest of them that its team has,
 * and one thread when there is none.
 */
struct leat_plan_options {
    uint32_t items;              /* batches of 1..items, at most LEAT_ITEMS_MAX */
    const uint32_t *team_sizes;  /* any order, each 1..LEAT_TEAM_MAX; may be NULL */
    uint32_t team_size_count;
    uint32_t runs;               /* plan_run calls under way at once; 0 means 1 */
};

/* Of runs of one size on one class of workers. */
struct leat_plan_times {
    uint64_t mean_ns, p50_ns, p95_ns, p99_ns;
};

struct leat_backend {
    uint32_t abi; /* LEAT_BACKEND_ABI */
    const char *name;
    bool times_by_class; /* how long a run takes depends on the team's class, not on its size alone */
    uint32_t (*precisions)(void); /* LEAT_PRECISION_BIT of those that pay on this machine; NULL: f32 alone */

    enum leat_status (*model_load)(const struct leat_model_source *source, struct leat_model **ret_model);
    void (*model_destroy)(struct leat_model *model); /* every plan of it is gone; accepts NULL */
    size_t (*model_bytes)(const struct leat_model *model);

    enum leat_status (*plan_build)(struct leat_model *model, const struct leat_plan_options *options,
                                   struct leat_plan **ret_plan);
    void (*plan_destroy)(struct leat_plan *plan); /* accepts NULL */
    /* What one concurrent plan_run needs; 64-byte aligned, contents undefined between runs. */
    size_t (*plan_scratch_bytes)(const struct leat_plan *plan);

    /*
     * Runs one batch: segments[0..count) in order, their items adding up to at most the plan's.
     * `scratch` has plan_scratch_bytes() bytes; a worker that keeps using the same block runs fastest.
     * LEAT_ERR_BUSY when more runs are under way than the plan was built for.
     */
    enum leat_status (*plan_run)(const struct leat_plan *plan, const struct leat_segment *segments,
                                 uint32_t count, void *scratch, struct leat_team *team);

    /*
     * What runs of 1..the plan's items take on a team of that class, where the backend knows it without any. False,
     * for all sizes of a plan: that has to be measured. May be NULL, which says so of all plans. Control threads.
     */
    bool (*plan_times)(const struct leat_plan *plan, uint32_t worker_class, uint32_t items,
                       struct leat_plan_times *ret_times);
};

extern const struct leat_backend leat_backend_reference; /* plain loops: the oracle */
extern const struct leat_backend leat_backend_cpu;       /* oneDNN */
extern const struct leat_backend leat_backend_synthetic; /* occupies its worker for a profiled time */

/*
 * For backends that compute on contiguous batches: collects tensor `t` of all segments into `to`, and repeats the last
 * item `missing` times behind them; spreads what stands in `from` over the segments' tensor `t`.
 */
void leat_segments_gather(const struct leat_segment *segments, uint32_t count, uint32_t t, size_t item_bytes,
                          uint32_t missing, unsigned char *to);
void leat_segments_scatter(const struct leat_segment *segments, uint32_t count, uint32_t t, size_t item_bytes,
                           const unsigned char *from);

/* NULL when there is no backend of that name. */
const struct leat_backend *leat_backend_find(const char *name);

uint32_t leat_backend_precisions(const struct leat_backend *backend);
const char *leat_precision_text(enum leat_precision precision); /* "f32" */
bool leat_precision_find(const char *text, enum leat_precision *ret_precision);

#endif /* LEAT_KERNELS_BACKEND_H */
