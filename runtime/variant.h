/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/variant.h - from a model file or a synthetic description to something that workers can run.
 *
 * Role     Import, optimise, load into a backend and build a plan per power-of-two batch, once per NUMA node that
 *          has workers; measure each plan with a team of each size: the first profiles. The teams are not pinned. All
 *          of it is slow and happens on control threads.
 * Threads  Any control thread; independent calls do not disturb one another.
 */
#ifndef LEAT_RUNTIME_VARIANT_H
#define LEAT_RUNTIME_VARIANT_H

#include "runtime/application.h"

struct leat_variant_source {
    const char *name;
    const char *backend;     /* name of the backend */
    const void *onnx;        /* the file, or NULL for synthetic */
    size_t onnx_bytes;
    const char *options_json; /* for the backend; may be NULL */
    uint32_t items_max;      /* largest batch, 1..LEAT_ITEMS_MAX */
    uint32_t accuracy_ppm;   /* 0: unknown */
    const struct leat_tensor_info *infos; /* synthetic only: inputs, then outputs */
    uint32_t input_count, output_count;   /* synthetic only */
    const uint32_t *team_sizes; /* by worker class; the daemon fills them in */
    const char *const *class_names; /* by worker class, likewise; may be NULL */
    uint32_t team_size_count;   /* classes; at most LEAT_WORKER_CLASSES_MAX; 0: one core */
    uint32_t runs; /* how many of them at once; 0 means 1 */
    const uint32_t *nodes; /* NUMA nodes that get a copy each, in the order of the workers' `copy` */
    uint32_t node_count;   /* 0: one copy, anywhere */
};

struct leat_loaded_variant {
    struct leat_variant *variant;
    struct leat_target signature; /* id unset */
    struct leat_profile profiles[LEAT_WORKER_CLASSES_MAX]; /* measured, by worker class */
    size_t scratch_bytes;         /* the most that any of its plans needs */
    size_t model_bytes;           /* of all copies */
    uint64_t load_ns;
};

/* On failure nothing is held and the error text names the model and the cause. */
LEAT_MUST_CHECK enum leat_status leat_variant_load(const struct leat_variant_source *source,
                                                   struct leat_loaded_variant *ret_loaded);
void leat_variant_destroy(struct leat_variant *variant); /* accepts NULL */

#endif /* LEAT_RUNTIME_VARIANT_H */
