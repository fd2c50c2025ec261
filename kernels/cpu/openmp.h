/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/openmp.h - the OpenMP calls of oneDNN, answered by the calling worker's own team.
 *
 * Role     Debian's oneDNN is an OpenMP build. The executable defines the few entry points that it calls,
 *          so the dynamic linker binds libdnnl.so to these and libgomp starts no thread: the worker's
 *          pinned threads do the work, park with it, and there are never more of them.
 *          Everything that links kernels gets the link options that export the symbols.
 * Threads  Everything here is per thread. A thread without a team (control threads, and other users of
 *          OpenMP in the process) gets regions of one thread, which OpenMP allows.
 * Departs  Nested regions run on the thread that meets them. The thread number and count of a region are
 *          right inside its function and what that calls, nothing else of libgomp's state is.
 */
#ifndef LEAT_KERNELS_CPU_OPENMP_H
#define LEAT_KERNELS_CPU_OPENMP_H

#include <stdint.h>

struct leat_team;

/*
 * From here to leave, regions on this thread run on members 0..threads-1 of `team`, and the answer to
 * "how many threads" is `threads`. NULL is a team of one.
 */
void leat_openmp_enter(struct leat_team *team, uint32_t threads);
void leat_openmp_leave(void);

/*
 * From here to the next call, regions have up to `parts` threads for each member, which are parts that members take as
 * they get to them (leat_team_take), and the answer to "how many threads" is as many. 1, as it is at first: a member is a
 * thread. A function that waits for the others (a barrier) must not run in parts: they do not run at the same time.
 */
void leat_openmp_divide(uint32_t parts);

/*
 * Without a team: the answer to "how many threads" while kernels are made for a team elsewhere; regions
 * still run alone. Returns what it was before, 0 for nothing.
 */
uint32_t leat_openmp_pretend(uint32_t threads);

/* How many regions have run on a team of more than one thread from this thread: for tests. */
uint64_t leat_openmp_regions(void);

#endif /* LEAT_KERNELS_CPU_OPENMP_H */
