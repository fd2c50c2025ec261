/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/cxx_heap.h"

#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/status.h"

/* The Itanium C++ ABI's names of operator new(size_t), new(size_t, nothrow), delete(void *) and its sized form. */
LEAT_PUBLIC void *leat_cxx_new(size_t size) __asm__("_Znwm");
LEAT_PUBLIC void *leat_cxx_new_nothrow(size_t size, const void *tag) __asm__("_ZnwmRKSt9nothrow_t");
LEAT_PUBLIC void leat_cxx_delete(void *block) __asm__("_ZdlPv");
LEAT_PUBLIC void leat_cxx_delete_sized(void *block, size_t size) __asm__("_ZdlPvm");

/* libstdc++: throws std::bad_alloc, which is what operator new has to do. */
_Noreturn extern void leat_cxx_throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv");

/* Class c keeps blocks of at least CLASS_BYTES << c bytes. */
enum { CLASS_BYTES = 64, CLASSES = 7, KEPT_MAX = 64 };

struct block {
    struct block *next;
};

struct cache {
    bool in_run, registered;
    struct block *kept[CLASSES];
    unsigned count[CLASSES];
};

static _Thread_local struct cache cache;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void
release(void *argument)
{
    struct cache *mine = argument;
    for (int c = 0; c < CLASSES; c++) {
        for (struct block *block = mine->kept[c], *next; block != NULL; block = next) {
            next = block->next;
            free(block);
        }
        mine->kept[c] = NULL;
        mine->count[c] = 0;
    }
    mine->registered = false;
}

static void
make_key(void)
{
    LEAT_MUST(pthread_key_create(&key, release) == 0);
}

void
leat_cxx_heap_enter(void)
{
    LEAT_ASSERT(!cache.in_run);
    if (LEAT_UNLIKELY(!cache.registered)) {
        LEAT_MUST(pthread_once(&once, make_key) == 0);
        LEAT_MUST(pthread_setspecific(key, &cache) == 0);
        cache.registered = true;
    }
    cache.in_run = true;
}

void
leat_cxx_heap_leave(void)
{
    LEAT_ASSERT(cache.in_run);
    cache.in_run = false;
}

static void *
take(size_t size)
{
    if (!cache.in_run || size > (size_t)CLASS_BYTES << (CLASSES - 1)) {
        const size_t room =
            size <= SIZE_MAX - LEAT_CXX_HEAP_ROOM_BYTES ? LEAT_CXX_HEAP_ROOM_BYTES : 0;
        return malloc(size + room);
    }
    int c = 0;
    while ((size_t)CLASS_BYTES << c < size) {
        c++;
    }
    struct block *block = cache.kept[c];
    if (block == NULL) {
        return malloc((size_t)CLASS_BYTES << c);
    }
    cache.kept[c] = block->next;
    cache.count[c]--;
    return block;
}

void *
leat_cxx_new(size_t size)
{
    void *block = take(size);
    if (LEAT_UNLIKELY(block == NULL)) {
        leat_cxx_throw_bad_alloc();
    }
    return block;
}

void *
leat_cxx_new_nothrow(size_t size, const void *tag)
{
    (void)tag;
    return take(size);
}

void
leat_cxx_delete(void *pointer)
{
    if (pointer == NULL || !cache.in_run) {
        free(pointer);
        return;
    }
    const size_t usable = malloc_usable_size(pointer);
    int c = CLASSES - 1;
    while (c >= 0 && (size_t)CLASS_BYTES << c > usable) {
        c--;
    }
    /* A block of twice the largest class or more would be wasted on small requests. */
    if (c < 0 || usable >= (size_t)CLASS_BYTES << CLASSES || cache.count[c] == KEPT_MAX) {
        free(pointer);
        return;
    }
    struct block *block = pointer;
    block->next = cache.kept[c];
    cache.kept[c] = block;
    cache.count[c]++;
}

void
leat_cxx_delete_sized(void *block, size_t size)
{
    (void)size;
    leat_cxx_delete(block);
}
