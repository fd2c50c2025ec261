/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/measured.h - how long batches of a variant take, as they were measured: what is kept, shown, exported and imported,
 * and what profiles start from.
 *
 * Units      Nanoseconds, items, bytes, seconds since the Epoch.
 * Ownership  The points are the struct's own, freed by leat_measured_free. All zeroes is one without points.
 */
#ifndef LEAT_RUNTIME_MEASURED_H
#define LEAT_RUNTIME_MEASURED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/profile.h"

#define LEAT_MEASURED_CLASS_BYTES 32u /* of a class of workers' name, with the closing zero */
#define LEAT_MEASURED_HOST_BYTES  192u

/*
 * Of how times come about, beside the version, which changes with releases alone. To be raised with every change after
 * which kept times are no longer what a model would take: kernels, passes or plans that make something faster or slower, what
 * models are measured on (kernels/made_inputs.h), how runs are timed and summarised. Then kept models are measured anew.
 */
#define LEAT_MEASURED_METHOD 2

struct leat_measured_point {
    char worker_class[LEAT_MEASURED_CLASS_BYTES]; /* "*": any */
    uint32_t cores;                               /* of one worker; 0: any */
    uint32_t items;                               /* 1..LEAT_ITEMS_MAX */
    uint32_t length;                              /* of sequences; 0: the model has none */
    uint32_t runs;                                /* that the times are of; 0: not known */
    uint64_t mean_ns, p50_ns, p95_ns, p99_ns;
};

struct leat_measured {
    char host[LEAT_MEASURED_HOST_BYTES]; /* machine, version and method; "": elsewhere, as whoever imported them says */
    uint64_t measured_s;
    uint64_t load_ns;    /* from a file to something that runs; 0: not known */
    uint64_t peak_bytes; /* of one copy and one worker: weights, scratch, tensors of the largest batch; 0: not known */
    struct leat_measured_point *points; /* [count] */
    uint32_t count;
};

LEAT_MUST_CHECK enum leat_status leat_measured_add(struct leat_measured *measured, const struct leat_measured_point *point);
LEAT_MUST_CHECK enum leat_status leat_measured_copy(const struct leat_measured *measured, struct leat_measured *ret_copy);
void leat_measured_free(struct leat_measured *measured); /* accepts zeroes, and leaves them */

/*
 * The first of the points that says how long `items` with sequences of `length` take on such workers; NULL where there is none.
 * `by_class`: workers of one size differ by their class.
 */
const struct leat_measured_point *leat_measured_find(const struct leat_measured *measured, const char *worker_class,
                                                     uint32_t cores, bool by_class, uint32_t length, uint32_t items);

/* Tells the profile what such workers take. False, and nothing is told, where the largest batch was not measured on them. */
bool leat_measured_teach(const struct leat_measured *measured, const char *worker_class, uint32_t cores, bool by_class,
                         uint32_t length, uint32_t items_max, struct leat_profile *profile);

/*
 * Statistics of [count] >= 1 times, which are sorted. What took more than thrice the median is the machine's doing and left
 * out. Percentiles are interpolated between ranks.
 */
void leat_measured_summarise(uint64_t *samples_ns, uint32_t count, struct leat_measured_point *point);

/* What times depend on, in words: processor, CPUs that may be used, caches, version of leat, LEAT_MEASURED_METHOD. */
void leat_measured_host(uint32_t usable_cpus, char ret_host[LEAT_MEASURED_HOST_BYTES]);

#endif /* LEAT_RUNTIME_MEASURED_H */
