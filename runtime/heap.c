/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/heap.c - one jemalloc arena per NUMA node; the faces are in runtime/memory.h.
 *
 * The arena's extents come from jemalloc's own hook and are bound to the node before first use.
 */
#include "runtime/memory.h"

#if LEAT_JEMALLOC

#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/log.h"

/* Lives as long as the process: blocks of it may. */
struct heap {
    extent_hooks_t hooks; /* first: jemalloc passes its address to the hooks */
    extent_hooks_t *original;
    struct heap *next;
    uint32_t node;
    unsigned arena;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct heap *heaps;

static _Thread_local unsigned arena_before;
static _Thread_local bool inside;

static void *
alloc_extent(extent_hooks_t *hooks, void *new_address, size_t size, size_t alignment, bool *zero,
             bool *commit, unsigned arena)
{
    struct heap *heap = (struct heap *)(void *)hooks;
    struct leat_notes ignored = {.count = 0}; /* create_heap has said it, and this is inside malloc */
    void *extent =
        heap->original->alloc(hooks, new_address, size, alignment, zero, commit, arena);

    if (extent != NULL) {
        (void)leat_memory_bind(extent, size, heap->node, &ignored);
    }
    return extent;
}

/* Says once per node whether its memory will lie there. */
static void
report_binding(uint32_t node)
{
    struct leat_notes notes = {.count = 0};
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED) {
        return;
    }
    (void)leat_memory_bind(page, 4096, node, &notes);
    LEAT_MUST(munmap(page, 4096) == 0);
    for (uint32_t i = 0; i < notes.count; i++) {
        const bool harmless = strcmp(notes.items[i].name, "numa_one_node") == 0;
        leat_log(harmless ? LEAT_LOG_DEBUG : LEAT_LOG_WARNING, "%s", notes.items[i].text);
    }
}

static struct heap *
create_heap(uint32_t node)
{
    struct heap *heap = calloc(1, sizeof(*heap));
    size_t bytes = sizeof(heap->arena), pointer_bytes = sizeof(heap->original);
    int error = -1;

    if (heap != NULL) {
        error = mallctl("arena.0.extent_hooks", &heap->original, &pointer_bytes, NULL, 0);
    }
    if (error == 0) {
        heap->hooks = *heap->original;
        heap->hooks.alloc = alloc_extent;
        heap->node = node;
        extent_hooks_t *hooks = &heap->hooks;
        error = mallctl("arenas.create", &heap->arena, &bytes, &hooks, sizeof(hooks));
    }
    if (error != 0) {
        leat_log(LEAT_LOG_WARNING, "jemalloc gives no arena to node %u (error %d): memory lies anywhere", node, error);
        free(heap);
        return NULL;
    }
    report_binding(node);
    return heap;
}

static struct heap *
heap_of(uint32_t node)
{
    LEAT_MUST(pthread_mutex_lock(&mutex) == 0);
    struct heap *heap = heaps;
    while (heap != NULL && heap->node != node) {
        heap = heap->next;
    }
    if (heap == NULL) {
        heap = create_heap(node);
        if (heap != NULL) {
            heap->next = heaps;
            heaps = heap;
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&mutex) == 0);
    return heap;
}

/* The thread's cache holds blocks of the arena that it had. */
static void
switch_arena(unsigned arena, unsigned *ret_before)
{
    size_t bytes = sizeof(*ret_before);
    LEAT_MUST(mallctl("thread.arena", ret_before, &bytes, &arena, sizeof(arena)) == 0);
    (void)mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
}

void
leat_memory_enter_node(uint32_t node)
{
    LEAT_ASSERT(!inside);
    const struct heap *heap = heap_of(node);
    if (heap != NULL) {
        switch_arena(heap->arena, &arena_before);
        inside = true;
    }
}

void
leat_memory_leave_node(void)
{
    unsigned ignored;
    if (inside) {
        switch_arena(arena_before, &ignored);
        inside = false;
    }
}

#else

void
leat_memory_enter_node(uint32_t node)
{
    (void)node;
}

void
leat_memory_leave_node(void)
{
}

#endif
