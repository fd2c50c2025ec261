/* SPDX-License-Identifier: Apache-2.0 */
/* tests/sched/autoscale_world.h - applications and boxes for sched/autoscale.h: random ones, and measured ones. */
#ifndef LEAT_TESTS_AUTOSCALE_WORLD_H
#define LEAT_TESTS_AUTOSCALE_WORLD_H

#include "sched/autoscale.h"

#define AUTOSCALE_SCARCE 1u /* resources for about half to all of the load */
#define AUTOSCALE_SMALL  2u /* few variants, few instances: all answers can be listed */

struct autoscale_world {
    struct leat_autoscale_box box;
    uint32_t count;
    struct leat_autoscale_application applications[LEAT_AUTOSCALE_APPLICATIONS_MAX];
    struct leat_autoscale_variant variants[LEAT_AUTOSCALE_APPLICATIONS_MAX][LEAT_AUTOSCALE_VARIANTS_MAX];
};

/*
 * CPU cores, accelerator cores and hundredths of GPUs; latencies, loading times and prices as far apart as in INFaaS' evaluation, some
 * instances of something running.
 */
void autoscale_world_draw(struct autoscale_world *world, uint32_t applications, uint32_t flags, uint64_t *random_state);

/* ResNets on 1 to 20 cores (tests/sched/data/infaas): each depth an application, each number of cores a variant. False: no file. */
bool autoscale_world_read(struct autoscale_world *world, const char *folder);

#endif /* LEAT_TESTS_AUTOSCALE_WORLD_H */
