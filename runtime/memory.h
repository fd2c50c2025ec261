/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/memory.h - where memory lies and in which pages; every fallback has a named reason.
 *
 * Role     NUMA placement of mappings, huge pages for tensor arenas, one heap per NUMA node, prefaulting.
 * Failure  Placement and huge pages are improvements: where the kernel refuses, the memory works as it is, and
 *          the note says why. Only missing memory is an error.
 * Threads  Control threads. A heap's alloc and free may be called from any.
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

enum leat_page_kind {
    LEAT_PAGES_SMALL = 0,
    LEAT_PAGES_TRANSPARENT = 1, /* shmem huge pages where the kernel finds them */
    LEAT_PAGES_HUGETLB = 2,     /* from the reserved pool */
};

/*
 * A memfd of `bytes` for a tensor arena, sealable and not sealed yet, and the pages that it got: hugetlb if
 * `bytes` is a multiple of 2 MiB and the pool has that many free, else transparent where the kernel's shmem
 * setting allows, else small. The mapping of *ret_address is read-write, shared, not yet prefaulted.
 */
LEAT_MUST_CHECK enum leat_status leat_memory_create(const char *name, size_t bytes, int *ret_fd,
                                                    void **ret_address, enum leat_page_kind *ret_pages,
                                                    struct leat_notes *notes);

/* A heap whose memory prefers one node: weights and plans. */
struct leat_heap;
LEAT_MUST_CHECK enum leat_status leat_heap_create(uint32_t node, struct leat_heap **ret_heap);
/* NULL when out of memory. `alignment` is a power of two; bytes > 0. */
void *leat_heap_alloc(struct leat_heap *heap, size_t bytes, size_t alignment);
void leat_heap_free(struct leat_heap *heap, void *memory); /* accepts NULL */
/* Bytes given out; exact with jemalloc's sizes, 0 without it. */
size_t leat_heap_bytes(const struct leat_heap *heap);
/* Everything allocated from it is gone. Accepts NULL. */
void leat_heap_destroy(struct leat_heap *heap);

#endif /* LEAT_RUNTIME_MEMORY_H */
