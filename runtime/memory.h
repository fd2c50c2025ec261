/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/memory.h - where memory lies and in which pages; every fallback has a named reason.
 *
 * Role     NUMA placement of mappings, huge pages for tensor arenas, one heap per NUMA node, prefaulting.
 * Failure  Placement and huge pages are improvements: where the kernel refuses, the memory works as it is, and
 *          the note says why. Only missing memory is an error.
 * Threads  Any thread.
 */
#ifndef LEAT_RUNTIME_MEMORY_H
#define LEAT_RUNTIME_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/topology.h"

/* Prefers `node` for the pages of a mapping that come from now on. True when it was done; a note if not. */
bool leat_memory_bind(void *address, size_t bytes, uint32_t node, struct leat_notes *notes);

/* Makes every page present and writable, keeping its contents. `address` and `bytes` are whole pages. */
LEAT_MUST_CHECK enum leat_status leat_memory_prefault(void *address, size_t bytes);

/*
 * Gives the pages of a shared mapping back to the system, also those that another process maps: it reads zeros then.
 * Whole pages, as for prefault.
 */
LEAT_MUST_CHECK enum leat_status leat_memory_take_back(void *address, size_t bytes);

enum leat_page_kind {
    LEAT_PAGES_SMALL = 0,
    LEAT_PAGES_TRANSPARENT = 1, /* shmem huge pages where the kernel finds them */
};

/*
 * A memfd of `bytes` for a tensor arena, sealable and not sealed yet, and the pages that it got: transparent
 * huge ones where the kernel's shmem setting allows, else small. Never of the reserved pool: a client could punch a hole
 * into them that nothing is left to fill, and the daemon's next store there would be its end. The mapping of
 * *ret_address is read-write, shared, not yet prefaulted.
 */
LEAT_MUST_CHECK enum leat_status leat_memory_create(const char *name, size_t bytes, int *ret_fd,
                                                    void **ret_address, enum leat_page_kind *ret_pages,
                                                    struct leat_notes *notes);

/*
 * From enter to leave, malloc on this thread takes memory that prefers `node`: weights and plans, wherever a library
 * allocates them. One jemalloc arena per node, made at the first use and kept. Blocks may be freed anywhere, any
 * time. Enter does not nest; a thread that belongs to a node never leaves. Without jemalloc (sanitizers bring their
 * own allocator), or where an arena cannot be made, memory lies where it is first touched; the log says the latter.
 */
void leat_memory_enter_node(uint32_t node);
void leat_memory_leave_node(void);

#endif /* LEAT_RUNTIME_MEMORY_H */
