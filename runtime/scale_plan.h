/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/scale_plan.h - which worker has how many cores for which application, from how many each is to have.
 *
 * Role      The scaler orders numbers; here they become workers. Who serves an application goes on, instances that go
 *           are those that have not begun, new ones are workers that nobody has, where cores are, first for who has
 *           none; rather one that has let go of its cores than one that has not. A worker's cores are of its pool, a node's of
 *           one class: what that lacks its workers go without.
 * Owner     A worker is one application's, or nobody's. Who is nobody's is parked, or has the least that it can have, where
 *           applications leave that.
 * Starting  An instance that gets no queries yet has the least that its worker can have.
 * Units     A size is a number of cores that a worker can have: bit c - 1 of `sizes` for c, up to LEAT_SCALE_CORES_MAX.
 * Threads   None; a pure function.
 */
#ifndef LEAT_RUNTIME_SCALE_PLAN_H
#define LEAT_RUNTIME_SCALE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/scale.h"

#define LEAT_SCALE_NOBODY UINT32_MAX

struct leat_scale_worker {
    uint32_t pool, class; /* of the caller's, from 0; workers of a pool are of one class */
    uint32_t sizes;
    uint32_t cores;       /* that it is to have so far; 0: parked */
    uint32_t has;         /* with what it has not let go of yet; 0: nothing runs there */
    uint32_t application; /* or LEAT_SCALE_NOBODY */
    bool starting;
};

struct leat_scale_wanted {
    uint32_t instances, cores, class;
    bool delays; /* new instances start, and the caller says when they have; else they serve at once */
};

struct leat_scale_plan_input {
    const struct leat_scale_worker *workers;
    uint32_t worker_count;
    const uint32_t *free_cores; /* [pool_count]: that nobody has and that may be given */
    uint32_t pool_count;
    const struct leat_scale_wanted *wanted; /* [application_count] */
    uint32_t application_count;
    bool parks; /* what is nobody's holds no cores */
};

/* `ret_workers` is as long as the input's, and may be the same array. */
void leat_scale_assign(const struct leat_scale_plan_input *input, struct leat_scale_worker *ret_workers);

/* The least number of cores that it can have, and the most that is no more than `cores`; 0: there is none. */
uint32_t leat_scale_least(uint32_t sizes);
uint32_t leat_scale_most(uint32_t sizes, uint32_t cores);

#endif /* LEAT_RUNTIME_SCALE_PLAN_H */
