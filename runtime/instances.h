/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/instances.h - the instances of an application, one for each variant on each worker, and their states for all to see.
 *
 * Role     The dispatcher keeps them by sched/instance.h. What profiles have learned is no measure of how slow a worker has
 *          become, since they follow it: batches are compared with what was measured when the model was loaded. Where
 *          their payload decides how long they take, that says nothing, and they are compared with what others took.
 * Threads  [C] control side, before the dispatcher has the application and after.  [D] the dispatcher.  [A] any.
 */
#ifndef LEAT_RUNTIME_INSTANCES_H
#define LEAT_RUNTIME_INSTANCES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "sched/instance.h"
#include "sched/profile.h"

#define LEAT_WORKER_CLASSES_MAX 8u
#define LEAT_INSTANCES_QUIET    30u /* evaluations without a batch, after which what a profile has learned is doubted */

#define LEAT_INSTANCES_LEARNT   64u /* batches of a class, after which it is known what they take that are as long as their payload says */

/* What a class of workers has run of a variant, as last evaluated. */
struct leat_instances_runs {
    uint32_t number; /* of its profile's observations */
    uint32_t quiet;  /* evaluations since it last changed */
};

struct leat_instances {
    struct leat_profile (*measured)[LEAT_WORKER_CLASSES_MAX]; /* [variant_count] */
    struct leat_instances_runs (*runs)[LEAT_WORKER_CLASSES_MAX]; /* [variant_count]. [D] */
    struct leat_instance *all;                                /* [worker_count][variant_count] */
    _Atomic uint8_t *states; /* of all, as last evaluated. W: dispatcher, relaxed  R: anyone */
    uint32_t worker_count, variant_count;
    bool by_payload; /* how long an item takes depends on what is in it. The caller's to set, as above */
    uint32_t out_count; /* of all, as last evaluated: those that are not active. [D] */
};

/* [C] All active. The measured profiles are the caller's to fill in, and know nothing until then. */
LEAT_MUST_CHECK enum leat_status leat_instances_init(struct leat_instances *instances, uint32_t worker_count,
                                                     uint32_t variant_count);
void leat_instances_fini(struct leat_instances *instances); /* [C] accepts zeroes */

/* [D] Evaluates those on one worker. Has one become overloaded that was not? */
bool leat_instances_evaluate(struct leat_instances *instances, uint32_t worker, const struct leat_instance_worker *shared,
                             const struct leat_instance_demand *demand);

/*
 * [D] What a batch of the variant should take on a worker of the class: what was measured. Where payload decides, that was
 * on one that finds nothing to do, and it is what the class has learned, from all its workers, once that is
 * LEAT_INSTANCES_LEARNT batches; 0, before: nothing can be said.
 */
uint64_t leat_instances_expected_ns(const struct leat_instances *instances, uint32_t variant, uint32_t worker_class, uint32_t items,
                                    const struct leat_profile *learned);

/*
 * [D] Once an interval: what the class's profile of a variant has learned gives way to what was measured, where it is slower by a
 * tenth for one item or for items_max and nothing has run for LEAT_INSTANCES_QUIET intervals. A few batches that ran while something
 * held up the machine would else keep a variant from ever running again, and so from being known better.
 */
void leat_instances_doubt(struct leat_instances *instances, uint32_t variant, uint32_t worker_class, uint32_t items_max,
                          struct leat_profile *profile);

/* [D] What is known of a variant of one application is known of that of another; nothing of either runs. */
void leat_instances_pass_on(const struct leat_instances *from, uint32_t from_variant, struct leat_instances *to,
                            uint32_t to_variant);

/* [A] As last evaluated. */
enum leat_instance_state leat_instances_state(const struct leat_instances *instances, uint32_t worker, uint32_t variant);

/* [A] How many instances of the variant are in each state; they add up to worker_count. */
void leat_instances_count(const struct leat_instances *instances, uint32_t variant, uint32_t ret_counts[LEAT_INSTANCE_STATES]);

/* [D] Those on one worker, by variant. */
static inline struct leat_instance *
leat_instances_of(const struct leat_instances *instances, uint32_t worker)
{
    return &instances->all[(size_t)worker * instances->variant_count];
}

#endif /* LEAT_RUNTIME_INSTANCES_H */
