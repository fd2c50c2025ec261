/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/simulate/parallel.h - many independent runs on all cores, with results that do not depend on how many those are.
 *
 * Job i may write what belongs to i and read what belongs to nobody; the first failure by number wins.
 */
#ifndef LEAT_TOOLS_SIMULATE_PARALLEL_H
#define LEAT_TOOLS_SIMULATE_PARALLEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tools/simulate/simulate.h"

/* Of the affinity mask. */
uint32_t simulate_core_count(void);

typedef enum leat_status (*simulate_job)(struct simulate_run *run, uint32_t index, void *context);

/*
 * job(index) for every index below count, on `threads` threads, each with a run object of its own. *stop, where stop is not
 * NULL, is looked at between jobs: LEAT_AGAIN. Anyone may set it, a signal handler too. Blocks. `done`, where not NULL,
 * counts jobs as they end.
 */
LEAT_MUST_CHECK enum leat_status simulate_parallel(uint32_t threads, uint32_t count, simulate_job job, void *context,
                                                   const _Atomic bool *stop, _Atomic uint32_t *done);

#endif /* LEAT_TOOLS_SIMULATE_PARALLEL_H */
