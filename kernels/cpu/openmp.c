/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/openmp.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "kernels/cpu/cxx_heap.h"
#include "kernels/team.h"

/* libgomp's ABI (libgomp_g.h): what the compiler emits for a parallel region. */
#define ENTRY LEAT_PUBLIC __attribute__((used))
ENTRY void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
ENTRY void GOMP_barrier(void);
ENTRY int omp_get_thread_num(void);
ENTRY int omp_get_num_threads(void);
ENTRY int omp_get_max_threads(void);
ENTRY int omp_in_parallel(void);
ENTRY void omp_set_num_threads(int threads);

/* Where a thread is: W and R by that thread alone. */
struct place {
    struct leat_team *team; /* for the next region; NULL inside one */
    uint32_t threads;       /* what the next region gets; 0: one */
    uint32_t parts_less_one;       /* for each of these threads, one less */
    struct leat_team *region_team; /* of the region that it is in */
    uint32_t member, members; /* in that region, or a part and how many; members is 0 outside */
    bool is_part;
    uint64_t regions;
};

static _Thread_local struct place here;

struct region {
    void (*function)(void *);
    void *data;
    struct leat_team *team;
    uint32_t members; /* or parts */
    bool in_parts;
};

static void
run_member(void *context, uint32_t member, uint32_t size)
{
    const struct region *region = context;

    (void)size;
    if (!region->in_parts && member >= region->members) {
        return;
    }
    const struct place before = here;
    here.team = NULL;
    here.region_team = region->team;
    here.member = member;
    here.members = region->members;
    here.is_part = region->in_parts;
    if (member > 0) { /* the leader is inside already, for the whole run */
        leat_cxx_heap_enter();
    }
    if (region->in_parts) {
        while (leat_team_take(region->team, member, &here.member)) {
            region->function(region->data);
        }
    } else {
        region->function(region->data);
    }
    if (member > 0) {
        leat_cxx_heap_leave();
    }
    here = before;
}

/* How many threads a region has at most. */
static uint32_t
threads_most(void)
{
    return here.threads > 1 ? here.threads * (here.parts_less_one + 1) : 1;
}

void
GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags)
{
    struct region region = {.function = function, .data = data, .team = here.team, .members = 1};

    (void)flags; /* binding hints: the team is pinned already */
    if (here.team != NULL && here.members == 0) {
        region.members = threads == 0 || threads > threads_most() ? threads_most() : threads;
        region.in_parts = region.members > here.threads;
    }
    if (region.in_parts) {
        leat_team_divide(region.team, here.threads, region.members);
    }
    if (region.members > 1) {
        leat_team_run(region.team, run_member, &region);
        here.regions++;
    } else {
        region.team = NULL;
        run_member(&region, 0, 1);
    }
}

void
GOMP_barrier(void)
{
    LEAT_ASSERT(!here.is_part);
    if (here.members > 1) {
        leat_team_barrier(here.region_team, here.members);
    }
}

int
omp_get_thread_num(void)
{
    return (int)here.member;
}

int
omp_get_num_threads(void)
{
    return here.members > 1 ? (int)here.members : 1;
}

int
omp_get_max_threads(void)
{
    return here.members == 0 ? (int)threads_most() : 1;
}

int
omp_in_parallel(void)
{
    return here.members > 1;
}

/* The plan decides: a library that asks for another number keeps what it has. */
void
omp_set_num_threads(int threads)
{
    (void)threads;
}

void
leat_openmp_enter(struct leat_team *team, uint32_t threads)
{
    LEAT_ASSERT(here.members == 0 && here.threads == 0);
    LEAT_ASSERT(threads >= 1 && threads <= leat_team_size(team));
    here.team = team;
    here.threads = threads;
}

void
leat_openmp_leave(void)
{
    LEAT_ASSERT(here.members == 0 && here.threads != 0);
    here.team = NULL;
    here.threads = 0;
}

void
leat_openmp_divide(uint32_t parts)
{
    LEAT_ASSERT(here.members == 0 && parts >= 1);
    here.parts_less_one = parts - 1;
}

uint32_t
leat_openmp_pretend(uint32_t threads)
{
    const uint32_t before = here.threads;
    LEAT_ASSERT(here.members == 0 && here.team == NULL);
    here.threads = threads;
    return before;
}

uint64_t
leat_openmp_regions(void)
{
    return here.regions;
}
