/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc/tensor_arena.h - hands out pieces of the session's arena; two-level segregated fit.
 *
 * Time      Constant, but for a take when no block of a larger class is free: it then looks through the free blocks of
 *           its own class, so that it fails only where no run is long enough. `longest` looks through one class as well.
 * Role      Bookkeeping only: it never touches the arena, all of its state is private to the client, so
 *           the daemon cannot corrupt it and payload writes cannot either.
 * Source    M. Masmano et al., "TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004;
 *           here block records live in a side array with one entry per unit, touched at block starts only.
 * Units     LEAT_TENSOR_ALIGN bytes. Offsets and sizes are unit counts below 2^31.
 * Threads   One at a time.
 */
#ifndef LEAT_IPC_TENSOR_ARENA_H
#define LEAT_IPC_TENSOR_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define LEAT_ARENA_NONE UINT32_MAX

struct leat_tensor_arena;

/* An arena of `units` free units, 1 <= units < 2^31. */
LEAT_MUST_CHECK enum leat_status leat_tensor_arena_create(uint32_t units, struct leat_tensor_arena **ret_arena);
void leat_tensor_arena_destroy(struct leat_tensor_arena *arena); /* accepts NULL */

/* The first unit of `units` (>= 1) free ones, now taken; LEAT_ARENA_NONE when no free run is long enough. */
uint32_t leat_tensor_arena_take(struct leat_tensor_arena *arena, uint32_t units);

/* Gives back what take returned. False, and no effect, for anything else. */
bool leat_tensor_arena_give(struct leat_tensor_arena *arena, uint32_t unit);

/* Free units in all, and the longest free run; for messages and tests. */
uint32_t leat_tensor_arena_free_units(const struct leat_tensor_arena *arena);
uint32_t leat_tensor_arena_longest(const struct leat_tensor_arena *arena);

#endif /* LEAT_IPC_TENSOR_ARENA_H */
