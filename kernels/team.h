/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/team.h - the pinned threads of one worker: the calling leader plus helpers.
 *
 * Role     Runs one function on every member, fork-join. The leader is the worker's own thread.
 * Threads  create, run, divide, resize, set_spin, set_yield, yield and destroy on the leader's thread only, pin on any. The function
 *          runs on all members; it must not call run() on the same team.
 * Size     Between two runs it can become any up to size_max: members 0..size-1 run, the others sleep, whatever spin_ns is.
 * Pauses   Between two runs of the leader's, whoever set_yield() named may use the team for something else.
 * Hot path run() and take() neither allocates nor locks. Whoever waits spins for spin_ns, then parks: helpers
 *          between runs, the leader for the last helper. An idle team burns nothing.
 */
#ifndef LEAT_KERNELS_TEAM_H
#define LEAT_KERNELS_TEAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

#define LEAT_TEAM_MAX 256u

struct leat_team;

struct leat_team_options {
    const uint32_t *cpus; /* [size], one logical CPU per member, cpus[0] the leader's; NULL: unpinned */
    uint32_t size;        /* members, 1..LEAT_TEAM_MAX */
    uint32_t size_max;    /* that it can grow to: threads are made for as many; 0: size */
    uint64_t spin_ns;     /* how long an idle helper spins before it parks; 0 parks at once */
    void (*enter)(uint32_t node); /* called once on each helper's thread before all else; NULL: nothing */
    uint32_t node;                /* for enter */
    uint32_t worker_class;        /* what leat_team_class says: a number of the caller's */
};

/* Pins the calling thread to cpus[0] and starts size_max - 1 helpers, those beyond size on its CPU. */
LEAT_MUST_CHECK enum leat_status leat_team_create(const struct leat_team_options *options,
                                                  struct leat_team **ret_team);
uint32_t leat_team_size(const struct leat_team *team); /* 1 for NULL */
uint32_t leat_team_class(const struct leat_team *team); /* 0 for NULL */
/* 1..size_max members from the next run on, and what leat_team_class then says. */
void leat_team_resize(struct leat_team *team, uint32_t size, uint32_t worker_class);
/* Moves member 1..size_max-1 to a CPU, whatever it does. */
LEAT_MUST_CHECK enum leat_status leat_team_pin(struct leat_team *team, uint32_t member, uint32_t cpu);
/* Where member 1..size_max-1 was put last; UINT32_MAX: nowhere, the team was made unpinned. Any thread. */
uint32_t leat_team_cpu(const struct leat_team *team, uint32_t member);
/* The kernel's number of a member's thread; waits until that runs. Any thread. */
pid_t leat_team_thread(struct leat_team *team, uint32_t member);
/* Calls body(context, member, size) on every member and returns when all are done. */
void leat_team_run(struct leat_team *team, void (*body)(void *context, uint32_t member, uint32_t size),
                   void *context);
/*
 * Before a run whose body takes parts: members 0..members-1 have equal shares of parts 0..parts-1, in order. For what a slow
 * member may not hold up: a core whose hyperthread or whose time somebody else uses too.
 */
void leat_team_divide(struct leat_team *team, uint32_t members, uint32_t parts);
/*
 * Inside such a body: the next part of the member's own share, then the last one of another's. False: all are taken. Whoever
 * takes a part, it is taken once.
 */
bool leat_team_take(struct leat_team *team, uint32_t member, uint32_t *ret_part);
/*
 * Inside a body: waits until members 0..members-1 have all called it, each with the same number. The
 * others must not call it.
 */
void leat_team_barrier(struct leat_team *team, uint32_t members);
/* What yield() is to call from now on; NULL: nothing. */
void leat_team_set_yield(struct leat_team *team, void (*yield)(void *context), void *context);
/* Does yield() call anything? False for NULL. */
bool leat_team_yields(const struct leat_team *team);
/* Outside a body. The team has the size that it had when it returns. */
void leat_team_yield(struct leat_team *team);
/* Changes spin_ns, also for helpers that are spinning. */
void leat_team_set_spin(struct leat_team *team, uint64_t spin_ns);
void leat_team_destroy(struct leat_team *team); /* accepts NULL */

#endif /* LEAT_KERNELS_TEAM_H */
