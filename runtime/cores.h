/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/cores.h - the owner of the cores that workers run on: who has which, and which one is next.
 *
 * Role       Starts from a placement. What the configuration has two workers share they share; no core that
 *            anybody has is ever given to another worker. A worker gets cores of its own pool, those that share an
 *            L3 with its leader first, of these the nearest to it, and gives those back that it got last: so
 *            its leader and memory stay where they are. One that gave back all gets the nearest to where its leader was.
 * Pools      What the workers of one class on one node have, and can be given, is a pool. A core that no worker was placed
 *            on is of the pool of the nearest one that was, of its own kind if there is any; on a node without workers it
 *            is nobody's.
 * Gone       A core whose CPU threads cannot run on now, since it is offline or was taken from the daemon's group, is given
 *            to nobody. Who has it keeps it until it is replaced, or given back.
 * Units      A core is named by the one CPU of it that a thread of leat runs on (runtime/topology.h).
 * Ownership  A copy of what it needs; topology and placement may go after create.
 * Threads    None of its own and no lock: one caller at a time. Pure: it pins nobody.
 */
#ifndef LEAT_RUNTIME_CORES_H
#define LEAT_RUNTIME_CORES_H

#include "runtime/topology.h"

struct leat_cores;

LEAT_MUST_CHECK enum leat_status leat_cores_create(const struct leat_topology *topology, const struct leat_placement *placement,
                                                   struct leat_cores **ret_cores);
void leat_cores_destroy(struct leat_cores *cores); /* accepts NULL */

/* What the worker has, its leader's first, in the order in which it got them. */
uint32_t leat_cores_of(const struct leat_cores *cores, uint32_t worker, const uint32_t **ret_cpus);
/* Cores of the node that nobody has and that may be given: a CPU quota may allow fewer than there are. */
uint32_t leat_cores_free(const struct leat_cores *cores, uint32_t node);
/* Their CPUs, whatever the quota; `cpus` has room for LEAT_CPU_MAX. */
uint32_t leat_cores_free_cpus(const struct leat_cores *cores, uint32_t *cpus);
/* The same of a pool, and of all of them together: each may be less than it seems for the quota's sake. */
uint32_t leat_cores_free_of(const struct leat_cores *cores, uint32_t pool);
uint32_t leat_cores_free_pools(const struct leat_cores *cores);
/* Cores that the worker alone was placed on, and that nobody has. */
uint32_t leat_cores_free_home(const struct leat_cores *cores, uint32_t worker);
uint32_t leat_cores_node(const struct leat_cores *cores, uint32_t worker);
uint32_t leat_cores_pool(const struct leat_cores *cores, uint32_t worker);
uint32_t leat_cores_pool_count(const struct leat_cores *cores); /* no more than workers */

/* Has each of two workers a core that shares its L3, or its node's memory, with one of the other's? */
bool leat_cores_near(const struct leat_cores *cores, uint32_t worker, uint32_t other);

/* Has another thread of leat, or another pool, one of its cores too? The configuration said so then. */
bool leat_cores_shared(const struct leat_cores *cores, uint32_t worker);

/* Gives it one more; `home_first`: one that it alone was placed on, if any is free. LEAT_ERR_BUSY where none of its pool is free. */
LEAT_MUST_CHECK enum leat_status leat_cores_give(struct leat_cores *cores, uint32_t worker, bool home_first, uint32_t *ret_cpu);
/* The one that it got last is nobody's. Returns its CPU. */
uint32_t leat_cores_take_back(struct leat_cores *cores, uint32_t worker);

/*
 * As many other cores of its pool as it has, that nobody has: `cpus` has room for as many. The nearest first, and those that
 * somebody was moved away from and nobody has had since last. LEAT_ERR_BUSY where there are fewer, or it shares its own.
 */
LEAT_MUST_CHECK enum leat_status leat_cores_choose_others(const struct leat_cores *cores, uint32_t worker, uint32_t *cpus);
/* It has those now, and nobody what it had. */
void leat_cores_move(struct leat_cores *cores, uint32_t worker, const uint32_t *cpus);
/* Each has what the other had: as many of one pool, that nobody else has. */
void leat_cores_swap(struct leat_cores *cores, uint32_t worker, uint32_t other);

/* Which CPUs threads can run on, [LEAT_CPU_MAX]; at first on all. True where that is another of some core than it was. */
bool leat_cores_note_present(struct leat_cores *cores, const bool *present);
/* CPUs of cores that are gone, whoever has them; `cpus` has room for LEAT_CPU_MAX. */
uint32_t leat_cores_gone(const struct leat_cores *cores, uint32_t *cpus);
/* By how many workers can have fewer of a pool for that: those beyond a CPU quota are not missed. */
uint32_t leat_cores_gone_of(const struct leat_cores *cores, uint32_t pool);
/* What the worker has and is not gone, and what is; `cpus` has room for as many as it has. */
uint32_t leat_cores_present_of(const struct leat_cores *cores, uint32_t worker, uint32_t *cpus);
uint32_t leat_cores_gone_from(const struct leat_cores *cores, uint32_t worker, uint32_t *cpus);
/*
 * Instead of what it has and is gone it has the nearest that are free, as far as there are any and it may have `others`;
 * the rest comes last, to be given back first. True where that changed anything; never where it shares its cores.
 */
bool leat_cores_replace_gone(struct leat_cores *cores, uint32_t worker, bool others);

/* Asserts that each core has as many users as there are who say so, and that what was given is no other's. */
void leat_cores_check(const struct leat_cores *cores);

#endif /* LEAT_RUNTIME_CORES_H */
