/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/team.h and kernels/cpu/openmp.h over libgomp, for bench_team alone: a program that has these has no others, and
 * oneDNN's regions are libgomp's own. Where threads are pinned and how they wait is said by its environment (OMP_PLACES,
 * OMP_WAIT_POLICY). Teams are of one size.
 */
#include <omp.h>
#include <stdlib.h>

#include "kernels/cpu/openmp.h"
#include "kernels/team.h"

struct leat_team {
    uint32_t size;
};

static _Thread_local uint32_t next_threads; /* of the next region; 0: one */

enum leat_status
leat_team_create(const struct leat_team_options *options, struct leat_team **ret_team)
{
    struct leat_team *team = malloc(sizeof(*team));

    if (team == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a team of %u", options->size);
    }
    team->size = options->size;
    *ret_team = team;
    return LEAT_OK;
}

uint32_t
leat_team_size(const struct leat_team *team)
{
    return team != NULL ? team->size : 1;
}

void
leat_team_run(struct leat_team *team, void (*body)(void *context, uint32_t member, uint32_t size), void *context)
{
#pragma omp parallel num_threads((int)team->size)
    body(context, (uint32_t)omp_get_thread_num(), team->size);
}

void
leat_team_barrier(struct leat_team *team, uint32_t members)
{
    LEAT_ASSERT(members == team->size);
#pragma omp barrier
}

/* Nobody is to come in between. */
bool
leat_team_yields(const struct leat_team *team)
{
    (void)team;
    return false;
}

void
leat_team_yield(struct leat_team *team)
{
    (void)team;
}

void
leat_team_destroy(struct leat_team *team)
{
    free(team);
}

uint32_t
leat_openmp_pretend(uint32_t threads)
{
    const uint32_t before = next_threads;

    next_threads = threads;
    omp_set_num_threads(threads > 0 ? (int)threads : 1);
    return before;
}

void
leat_openmp_enter(struct leat_team *team, uint32_t threads)
{
    LEAT_ASSERT(threads <= leat_team_size(team));
    (void)leat_openmp_pretend(threads);
}

void
leat_openmp_leave(void)
{
    (void)leat_openmp_pretend(0);
}

/* Its threads are what they are. */
void
leat_openmp_divide(uint32_t parts)
{
    (void)parts;
}
