/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/variant.h - from a model file or a synthetic description to something that workers can run.
 *
 * Role     Import, optimise, load into a backend and build a plan per power-of-two batch, once per NUMA node that
 *          has workers; measure each plan with a team of each size, unless that is known: the first profiles. The teams are
 *          not pinned. All of it is slow and happens on control threads.
 * Threads  Any control thread; independent calls do not disturb one another.
 */
#ifndef LEAT_RUNTIME_VARIANT_H
#define LEAT_RUNTIME_VARIANT_H

#include "runtime/application.h"
#include "runtime/measured.h"

/* One that a model's weights lie in beside its own. */
struct leat_variant_file {
    const char *name; /* as the model calls it */
    int fd;           /* open for reading; the caller's, until the model is loaded */
    uint64_t bytes;
    char sha256[65]; /* "" where it is not kept */
};

struct leat_mapping;

/*
 * A model's file, for as long as weights stay there: source.onnx, onnx_bytes and onnx_mapping. Closes fd, whatever it returns;
 * LEAT_ERR_PROTO where the file is empty.
 */
LEAT_MUST_CHECK enum leat_status leat_variant_map_file(int fd, const char *name, struct leat_mapping **ret_mapping,
                                                       const void **ret_bytes, size_t *ret_count);

struct leat_variant_source {
    const char *name;
    const char *backend;     /* name of the backend */
    const void *onnx;        /* the file, or NULL for synthetic */
    size_t onnx_bytes;
    struct leat_mapping *onnx_mapping; /* of the file, where it may stay; NULL: it is other memory */
    const char *onnx_sha256; /* of a file that the daemon's store has taken; NULL: it has not */
    const struct leat_variant_file *files; /* of weights; mapped, not read */
    uint32_t file_count;                   /* at most LEAT_ONNX_FILES_MAX */
    /*
     * May be NULL. Of a file: {"precision": "f32" (unless given) or another that the backend has here, "dims": {name: value} of
     * dimensions that the file leaves free, or {name: [value, ...]} of the one that is the length of sequences, ascending,
     * "constants": {name: number} of inputs that are the same in all queries,
     * "items_bound": why items_max is what it is, "given" unless it was chosen, "ranges": {name: [least, most]} of values, as
     * leat_calibrate() finds them, without which there is no int8}. Else the backend's own.
     */
    const char *options_json;
    uint32_t items_max;      /* largest batch, 1..LEAT_ITEMS_MAX */
    uint32_t accuracy_ppm;   /* 0: unknown */
    const struct leat_tensor_info *infos; /* synthetic only: inputs, then outputs */
    uint32_t input_count, output_count;   /* synthetic only */
    const uint32_t *team_sizes; /* by worker class; the daemon fills them in */
    const char *const *class_names; /* by worker class, likewise; may be NULL */
    uint32_t team_size_count;   /* classes; at most LEAT_WORKER_CLASSES_MAX; 0: one core */
    uint32_t runs; /* how many of them at once; 0 means 1 */
    uint64_t memory_bytes_max; /* of a copy and one run: LEAT_ERR_LIMIT beyond it; 0: without a limit */
    uint32_t trips_max;        /* iterations of all loops in one run, of a file whose graph is known here; 0: LEAT_TRIPS_MAX */
    /*
     * What one item may take, of a file whose graph is known here, and LEAT_VARIANT_BATCH_ITEMS times that a batch that
     * somebody asked for: LEAT_ERR_LIMIT beyond it, before anything runs. 0: without a limit.
     */
    uint32_t item_gflop_max;
    bool kept; /* acknowledged before: item_gflop_max, which keeps new ones from holding up others, does not go for it */
    const uint32_t *nodes; /* NUMA nodes that get a copy each, in the order of the workers' `copy` */
    uint32_t node_count;   /* 0: one copy, anywhere */
    const char *host;      /* this machine, as leat_measured_host says; NULL: not known */
    const struct leat_measured *measured; /* what is known already; goes for this machine where its host says so, or "" */
};

struct leat_loaded_variant {
    struct leat_variant *variant;
    struct leat_target signature; /* id unset */
    struct leat_profile profiles[LEAT_WORKER_CLASSES_MAX]; /* measured, by worker class */
    struct leat_profile shorter_profiles[LEAT_LENGTHS_MAX - 1][LEAT_WORKER_CLASSES_MAX]; /* of its shorter variants */
    size_t scratch_bytes;         /* the most that any of its plans needs */
    size_t model_bytes;           /* of all copies */
    uint64_t load_ns; /* without measuring */
    struct leat_measured measured; /* of all classes; to be freed */
    bool measured_anew;            /* at least for one class of workers it was not known */
};

#define LEAT_VARIANT_BATCH_ITEMS 32u

/* Why there is no int8 of some files. */
#define LEAT_VARIANT_QUANTISED "its file is quantised, and runs as it says: there is no int8 of it"

/* As its options say; f32 where they say nothing sensible, which loading complains of, and of what has no file. */
enum leat_precision leat_variant_precision(const struct leat_variant_source *source);

/* On failure nothing is held and the error text names the model and the cause. */
LEAT_MUST_CHECK enum leat_status leat_variant_load(const struct leat_variant_source *source,
                                                   struct leat_loaded_variant *ret_loaded);
void leat_variant_destroy(struct leat_variant *variant); /* accepts NULL */

/*
 * The optimised graph of a file that leat imports, with the dimensions that the options give, and its signature; or the graphs of
 * all lengths: one of the two is NULL. *ret_one_by_one: it is to be run for one item at a time.
 */
struct leat_sequence;
LEAT_MUST_CHECK enum leat_status leat_variant_import(const struct leat_variant_source *source, struct leat_graph **ret_graph,
                                                     struct leat_sequence **ret_sequence, struct leat_target *ret_signature,
                                                     bool *ret_one_by_one);

/*
 * The largest batches that pay, of [count] sources of one model that differ in their options, 1..LEAT_PRECISION_COUNT of them; for
 * batches in at most latency_max_ns, and bytes_max of scratch and tensors for all runs at once; see runtime/variant_choice.h. A
 * size is measured of all that have memory for it, until none of them is to be doubled. `items_given`: the largest batch, where
 * only the times are wanted; else 0. items_max of the sources is not read. Takes as long as it takes to load the models and run
 * all sizes some tens of times, or half a second each, at every doubling and once more.
 */
LEAT_MUST_CHECK enum leat_status leat_variant_choose_items(const struct leat_variant_source *sources, uint32_t count,
                                                           uint32_t items_given, uint64_t latency_max_ns, uint64_t bytes_max,
                                                           struct leat_batch_choice *ret_choices);

/*
 * Fills in profiles and measured times of a loaded variant that has none: what source->measured tells, as far as that goes for
 * this machine; the rest is measured. On failure it has none.
 */
LEAT_MUST_CHECK enum leat_status leat_variant_profile(const struct leat_variant_source *source,
                                                      struct leat_loaded_variant *loaded);

/* The last of a variant's plans, and how many items plan `bucket` of it is for: 2^bucket, the last one items_max. */
uint32_t leat_variant_top_plan(const struct leat_variant *variant);
uint32_t leat_variant_plan_items(const struct leat_variant *variant, uint32_t bucket);

/*
 * Adds the points of a team of so many cores. Where the backend knows the times by itself, of every size that profiles have a
 * knot for; else each plan is run on what kernels/made_inputs.h says of indices, drawn anew each time, of lengths and of
 * counts, with zeros beside them; where the model refuses that, on zeros, and where it refuses those, on ones:
 * LEAT_ERR_SHAPE where it refuses all. All plans take turns, so that a machine that stalls for a moment spoils a few runs
 * of each instead of all of one; a plan whose first run took less than a tenth of a second is run five times at least. See
 * leat_measured_summarise for what becomes of runs that were held up.
 */
LEAT_MUST_CHECK enum leat_status leat_variant_measure(const struct leat_variant *variant, uint32_t worker_class,
                                                      const char *class_name, uint32_t cores,
                                                      struct leat_measured *measured);

/*
 * Runs plans of the copies from `first_copy` on once, on the same inputs, smallest first, until that took 20 ms: what a first run finds cold,
 * pages of code and of tables, is warm then. Nothing is run where the backend knows the times by itself.
 */
LEAT_MUST_CHECK enum leat_status leat_variant_warm(const struct leat_variant *variant, uint32_t first_copy,
                                                   uint32_t worker_class, uint32_t cores);

/*
 * Runs the plans for up to so many items on a worker that runs and has scratch for them, each once, or with some draws of
 * indices: on its core, whose own caches and pages of heap no other thread fills. All of it begins before until_ns,
 * monotonic. LEAT_AGAIN: there were to be more runs, but it had batches to run until then, or the runs took as long; else
 * why the last one failed. ret_runs, always: how many there were, without those that the model refused.
 */
struct leat_worker;
LEAT_MUST_CHECK enum leat_status leat_variant_warm_worker(const struct leat_variant *variant, struct leat_worker *worker,
                                                          uint32_t worker_class, uint32_t items, uint64_t until_ns,
                                                          uint32_t *ret_runs);

/*
 * Adds what all batches take on a team of so many cores that no class of workers has, under the class "N cores"; with plans of its
 * own, for a plan knows the sizes of the teams that run it. LEAT_ERR_INVALID where the backend's times do not go by cores.
 */
LEAT_MUST_CHECK enum leat_status leat_variant_measure_team(const struct leat_variant *variant, uint32_t cores,
                                                           struct leat_measured *measured);

/* A plan whose runs are timed beside those of others. */
struct leat_timed_plan {
    const struct leat_variant *variant;
    struct leat_plan *plan;
    uint32_t items;
    uint64_t *least_ns; /* by class of workers: the answer */
    uint64_t spent_ns; /* while they are timed */
};

/*
 * Runs [count] >= 1 plans on such inputs, in turns, by a team of so many cores, which are among their sizes, until five times in a row
 * no least time falls by a hundredth, or a plan was run for half a second. The variants have one backend and one signature.
 */
LEAT_MUST_CHECK enum leat_status leat_variant_time_plans(struct leat_timed_plan *plans, uint32_t count, uint32_t worker_class,
                                                         uint32_t cores);

#endif /* LEAT_RUNTIME_VARIANT_H */
