/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/heap.c - one jemalloc arena per NUMA node; the faces are in runtime/memory.h.
 *
 * The arena's extents come from jemalloc's own hook and are bound to the node before first use. Without
 * jemalloc (sanitizers bring their own allocator) memory is the C library's, and lies where it is first touched.
 */
#include "runtime/memory.h"

#include <stdlib.h>

#if LEAT_JEMALLOC

#include <jemalloc/jemalloc.h>
#include <stdatomic.h>
#include <stdio.h>

struct leat_heap {
    extent_hooks_t hooks; /* first: jemalloc passes its address to the hooks */
    extent_hooks_t *original;
    uint32_t node;
    unsigned arena;
    _Atomic size_t bytes; /* W: any, relaxed: a sum for reports */
};

static void *
alloc_extent(extent_hooks_t *hooks, void *new_address, size_t size, size_t alignment, bool *zero,
             bool *commit, unsigned arena)
{
    struct leat_heap *heap = (struct leat_heap *)(void *)hooks;
    struct leat_notes ignored = {.count = 0}; /* who placed the arenas has said it already */
    void *extent =
        heap->original->alloc(hooks, new_address, size, alignment, zero, commit, arena);

    if (extent != NULL) {
        (void)leat_memory_bind(extent, size, heap->node, &ignored);
    }
    return extent;
}

enum leat_status
leat_heap_create(uint32_t node, struct leat_heap **ret_heap)
{
    struct leat_heap *heap = calloc(1, sizeof(*heap));
    size_t bytes = sizeof(heap->arena), pointer_bytes = sizeof(heap->original);

    if (heap == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a heap");
    }
    if (mallctl("arena.0.extent_hooks", &heap->original, &pointer_bytes, NULL, 0) != 0) {
        free(heap);
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "jemalloc does not tell its extent hooks");
    }
    heap->hooks = *heap->original;
    heap->hooks.alloc = alloc_extent;
    heap->node = node;
    extent_hooks_t *hooks = &heap->hooks;
    const int error = mallctl("arenas.create", &heap->arena, &bytes, &hooks, sizeof(hooks));
    if (error != 0) {
        free(heap);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "jemalloc cannot make an arena (error %d)", error);
    }
    *ret_heap = heap;
    return LEAT_OK;
}

void *
leat_heap_alloc(struct leat_heap *heap, size_t bytes, size_t alignment)
{
    LEAT_ASSERT(bytes > 0 && alignment > 0 && (alignment & (alignment - 1)) == 0);
    void *memory =
        mallocx(bytes, MALLOCX_ARENA(heap->arena) | MALLOCX_TCACHE_NONE | MALLOCX_ALIGN(alignment));
    if (memory != NULL) {
        atomic_fetch_add_explicit(&heap->bytes, sallocx(memory, 0), memory_order_relaxed);
    }
    return memory;
}

void
leat_heap_free(struct leat_heap *heap, void *memory)
{
    if (memory != NULL) {
        atomic_fetch_sub_explicit(&heap->bytes, sallocx(memory, 0), memory_order_relaxed);
        dallocx(memory, MALLOCX_ARENA(heap->arena) | MALLOCX_TCACHE_NONE);
    }
}

size_t
leat_heap_bytes(const struct leat_heap *heap)
{
    return atomic_load_explicit(&heap->bytes, memory_order_relaxed);
}

void
leat_heap_destroy(struct leat_heap *heap)
{
    char name[48];

    if (heap == NULL) {
        return;
    }
    LEAT_ASSERT(leat_heap_bytes(heap) == 0);
    (void)snprintf(name, sizeof(name), "arena.%u.destroy", heap->arena);
    /* jemalloc may reuse the arena's number, but no longer calls its hooks. */
    if (mallctl(name, NULL, NULL, NULL, 0) == 0) {
        free(heap);
    }
}

#else

struct leat_heap {
    uint32_t node;
};

enum leat_status
leat_heap_create(uint32_t node, struct leat_heap **ret_heap)
{
    struct leat_heap *heap = calloc(1, sizeof(*heap));
    if (heap == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a heap");
    }
    heap->node = node;
    *ret_heap = heap;
    return LEAT_OK;
}

void *
leat_heap_alloc(struct leat_heap *heap, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    LEAT_ASSERT(heap != NULL && bytes > 0 && alignment > 0 && (alignment & (alignment - 1)) == 0);
    const size_t enough = alignment < sizeof(void *) ? sizeof(void *) : alignment;
    return posix_memalign(&memory, enough, bytes) == 0 ? memory : NULL;
}

void
leat_heap_free(struct leat_heap *heap, void *memory)
{
    LEAT_ASSERT(heap != NULL);
    free(memory);
}

size_t
leat_heap_bytes(const struct leat_heap *heap)
{
    LEAT_ASSERT(heap != NULL);
    return 0;
}

void
leat_heap_destroy(struct leat_heap *heap)
{
    free(heap);
}

#endif
