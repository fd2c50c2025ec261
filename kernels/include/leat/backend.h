/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat/backend.h - what a way of running models must offer, and how a shared library brings one to the daemon.
 *
 * Role       model_load turns a graph, or a file, into weights in the backend's own layout, shared read-only by the
 *            workers of a NUMA node. plan_build makes an immutable plan for up to `items` items. plan_run
 *            executes one batch on the calling worker's cores.
 * Plug-ins   A shared library exports one symbol, `leat_backend_plugin`, and is named in the daemon's configuration
 *            (`backends`). It needs no other header than those of leat/, links nothing of leat, and calls leat through
 *            struct leat_backend_host alone. It is loaded once, before models are, and never unloaded. Its code has all
 *            rights of the daemon: so its file and all folders above it must belong to root or to the daemon's own
 *            user, and nobody else may write to them but in folders that have the sticky bit.
 * Threads    model_describe, model_load and plan_build run on control threads, off the hot path, and may be slow. Of one model
 *            there is one such call at a time, but plans of it that were built before may run meanwhile.
 *            plan_run may be called at the same time by as many workers as the plan was built for, each
 *            with its own scratch and team. A backend starts no threads of its own that are busy between runs: workers
 *            have cores to themselves.
 * Pauses     A backend that says `yields` calls team_yield between the steps of a run, and inside long ones if it likes, on the
 *            thread that called plan_run and with no member of the team at work. There the worker may run something more urgent,
 *            of the same plan too, with the same team and other scratch, and then goes on. Who does not yield is not paused.
 * Sequences  A model may have one dimension beside the batch that says how long a sequence is, and a query may use only its
 *            first `length` positions. Tensors in a segment have the signature's shape whatever the length is. What an input
 *            has behind the length is not read and counts as zeros, in an output it is written as zeros: so an answer depends
 *            on the first `length` positions alone, and leat has proved of the graphs that it is the same in every plan.
 *            A backend that does not say `takes_lengths` gets no such model.
 * Sizes      An output of a signature may vary (leat_tensor_info.varying). plan_run writes as much of it as an item has, zeros
 *            behind that, and how much that is to the segment's `sizes`.
 * Hot path   plan_run neither allocates, locks nor makes system calls. What cannot keep to that says so: synthetic has
 *            a timer, and onnxruntime does as ONNX Runtime does.
 * Trust      Tensor payload is untrusted and may change while plan_run reads it. Segments have been
 *            checked against the signature: every pointer is valid for items * item_bytes. Files are untrusted too.
 * Failure    plan_run returns LEAT_ERR_* for this batch only; the worker goes on. LEAT_ERR_SHAPE says that the payload is at fault
 *            (an index out of range): a batch of several queries is then run again query by query, and those that fail so once
 *            more end with LEAT_REASON_PAYLOAD. After any other all end with LEAT_REASON_DEVICE. Other calls leave what they would return
 *            untouched and record why they failed.
 */
#ifndef LEAT_BACKEND_H
#define LEAT_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <leat/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with everything below: a library that was built for another number is not loaded. */
#define LEAT_BACKEND_ABI 13u

struct leat_graph; /* private to leat */
struct leat_model; /* a backend's own */
struct leat_plan;  /* a backend's own */
struct leat_team;  /* the threads of one worker; NULL means the calling thread alone */

/* One query's share of a batch. Pointers are to items * item_bytes of each tensor, 64-byte aligned. */
struct leat_segment {
    uint32_t items;
    uint32_t length; /* of the sequences of its items, 1..the plan's; 0: full, and where the model has none */
    const void *tensors[LEAT_TENSORS_MAX]; /* inputs first, then outputs (written by plan_run) */
    uint16_t *sizes; /* [items][outputs that vary], written by plan_run; NULL: nobody asks */
};

/* Of what a model multiplies; its inputs, outputs and sums are as the graph has them. */
enum leat_precision {
    LEAT_PRECISION_F32,  /* as in the file */
    LEAT_PRECISION_BF16, /* f32's range, 8 bits of precision */
    LEAT_PRECISION_INT8, /* whole numbers of 8 bits, in steps that the graph says: there is no other source for it */
    LEAT_PRECISION_COUNT,
};

#define LEAT_PRECISION_BIT(precision) (UINT32_C(1) << (precision))

/* A file that weights of a model lie in, beside its own: what the model calls it, and open for reading, for leat to close. */
struct leat_model_file {
    const char *name;
    int fd;
};

/* What a dimension that a file leaves free is to be. */
struct leat_model_dim {
    const char *name;
    int64_t value;
};

/* What it points to is there until the call returns: what a model needs later it copies. */
struct leat_model_source {
    const struct leat_graph *graph;      /* imported and optimised; NULL for synthetic and where the backend describes files */
    const void *file;                    /* as it was given; NULL for synthetic */
    size_t file_bytes;
    /* For a backend that describes files: */
    const struct leat_model_file *files; /* that the model has beside its own */
    uint32_t file_count;
    const struct leat_model_dim *dims;   /* that whoever added the model gave */
    uint32_t dim_count;
    enum leat_precision precision;       /* one of those that the backend has here */
    const char *options_json;            /* backend options, e.g. synthetic's profile; NULL for none */
    const struct leat_tensor_info *infos; /* signature: inputs, then outputs */
    uint32_t input_count, output_count;
    bool one_by_one; /* items of the graph may meet in a batch, or sizes depend on their contents: it is run for one at a time */
    const char *const *class_names;      /* of workers: leat_team_class counts in it; may be NULL */
    const uint32_t *class_cores;         /* of one worker of each class, likewise; NULL where class_names is */
    uint32_t class_count;
    /* Of a model with sequences; else length_count is 0 and the others are NULL. */
    uint32_t length_count;
    const uint32_t *lengths;             /* that plans are made for, ascending; the last is the full length, that of `infos` */
    const struct leat_graph *const *graphs; /* for each of them, as `graph`, which is the last; constants share memory */
    const int32_t *sequence_axes;        /* of each tensor in `infos`: which dimension is the length; -1: none is */
    uint64_t mask_inputs;                /* bit i: input i has a 1 for each position that counts. Without any below a query's length,
                                            all of them count: the answer would else be made of padding */
};

/*
 * What a plan is made for. A vendor library chooses kernels and blocking for a number of threads, so the
 * team sizes that will run the plan are named ahead: a run uses the largest of them that its team has,
 * and one thread when there is none.
 */
struct leat_plan_options {
    uint32_t items;              /* batches of 1..items, at most LEAT_ITEMS_MAX */
    const uint32_t *team_sizes;  /* any order, each 1..256; may be NULL */
    uint32_t team_size_count;
    uint32_t runs;               /* plan_run calls under way at once; 0 means 1 */
    uint32_t length;             /* one of the model's: no segment of a run is longer; 0: the full length */
};

/* Of runs of one size on one class of workers. */
struct leat_plan_times {
    uint64_t mean_ns, p50_ns, p95_ns, p99_ns;
};

struct leat_backend {
    uint32_t abi; /* LEAT_BACKEND_ABI */
    const char *name;
    bool takes_lengths;  /* it runs models with sequences */
    bool yields;         /* plan_run calls team_yield between its steps, each a small part of it */
    bool times_by_class; /* how long a run takes depends on the team's class, not on its size alone */
    uint32_t (*precisions)(void); /* LEAT_PRECISION_BIT of those that pay on this machine; NULL: f32 alone */

    /*
     * Of a backend that reads files by itself, whatever is in them: the signature of the model in one, of whose source file, files and
     * dims are set; `ret_infos` has room for LEAT_TENSORS_MAX. At least one input and output, dims[0] of each -1, the others known. Queries of different clients share
     * batches: no item's answer may depend on another item. NULL: files are ONNX, imported by leat, which sees to that.
     */
    enum leat_status (*model_describe)(const struct leat_model_source *source, struct leat_tensor_info *ret_infos,
                                       uint32_t *ret_input_count, uint32_t *ret_output_count);
    enum leat_status (*model_load)(const struct leat_model_source *source, struct leat_model **ret_model);
    void (*model_destroy)(struct leat_model *model); /* every plan of it is gone; accepts NULL */
    /*
     * The memory that the model takes now: weights in all their layouts, and what its plans share beside them. Not what is mapped
     * from files, nor what a plan has alone. Asked after each plan_build, against limits.model_memory, and for reports.
     */
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

/* ---- Plug-ins ------------------------------------------------------------------------------------ */

#if defined(__GNUC__)
#define LEAT_BACKEND_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define LEAT_BACKEND_PRINTF(text, first)
#endif

/* What leat does for a plug-in; there for good. */
struct leat_backend_host {
    uint32_t abi; /* LEAT_BACKEND_ABI */

    /* Records why a call fails, for people, and returns `status`. Any thread; not where plan_run is to be fast. */
    enum leat_status (*fail)(enum leat_status status, const char *format, ...) LEAT_BACKEND_PRINTF(2, 3);

    /* How many threads plan_run may use, itself one of them, and the class of their worker; 1 and 0 for NULL. */
    uint32_t (*team_size)(const struct leat_team *team);
    uint32_t (*team_class)(const struct leat_team *team);
    /* The CPU of a member beside the calling one, 1..team_size-1, which may change between runs; UINT32_MAX: it is not pinned. */
    uint32_t (*team_cpu)(const struct leat_team *team, uint32_t member);
    /* Calls body(context, member, size) on each, pinned to its core, and returns when all are done. It neither allocates nor locks. */
    void (*team_run)(struct leat_team *team, void (*body)(void *context, uint32_t member, uint32_t size), void *context);
    /* Inside a body: waits until members 0..members-1 have all called it; the others must not. */
    void (*team_barrier)(struct leat_team *team, uint32_t members);
    /* Between two steps of plan_run: runs what is more urgent, if there is anything. The team is the same afterwards. */
    void (*team_yield)(struct leat_team *team);

    /*
     * For backends that compute on contiguous batches: collects tensor `t` of all segments into `to`, and repeats the last
     * item `missing` times behind them; spreads what stands in `from` over the segments' tensor `t`. `to` has room for
     * item_bytes of each item and missing one, `from` has as much of each item.
     */
    void (*segments_gather)(const struct leat_segment *segments, uint32_t count, uint32_t t, size_t item_bytes, uint32_t missing,
                            unsigned char *to);
    void (*segments_scatter)(const struct leat_segment *segments, uint32_t count, uint32_t t, size_t item_bytes,
                             const unsigned char *from);

    /*
     * dlopen() of a library that the plug-in needs, for good, under the rules that hold for the plug-in itself where `name` has a
     * slash; else as the loader finds it. Control threads.
     */
    enum leat_status (*library_open)(const char *name, void **ret_handle);
};

struct leat_backend_plugin {
    uint32_t abi; /* LEAT_BACKEND_ABI; looked at before anything else */
    /*
     * Called once. `options` is what the configuration says, "" for nothing. The backend, whose `name` the configuration's
     * replaces, and `host` are there for good; `options` until it returns.
     */
    enum leat_status (*open)(const struct leat_backend_host *host, const char *options,
                             const struct leat_backend **ret_backend);
};

#define LEAT_BACKEND_SYMBOL "leat_backend_plugin"
extern LEAT_PUBLIC const struct leat_backend_plugin leat_backend_plugin;

#ifdef __cplusplus
}
#endif
#endif /* LEAT_BACKEND_H */
