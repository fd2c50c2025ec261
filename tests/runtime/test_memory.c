/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Arenas are mapped, sealable and whole; prefaulting makes pages present without changing them; each
 *          node's malloc comes from a heap of its own, whatever the thread's cache holds.
 */
#include "runtime/memory.h"
#include "tests/leat_test.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if LEAT_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

static size_t
present_pages(void *address, size_t bytes)
{
    static unsigned char present[4096];
    size_t count = 0;
    EXPECT(bytes / 4096 <= sizeof(present) && mincore(address, bytes, present) == 0);
    for (size_t i = 0; i < bytes / 4096; i++) {
        count += present[i] & 1;
    }
    return count;
}

static void
test_arena(size_t bytes)
{
    struct leat_notes notes = {.count = 0};
    enum leat_page_kind pages;
    unsigned char *memory;
    void *address;
    int fd;

    EXPECT(leat_memory_create("leat-test", bytes, &fd, &address, &pages, &notes) == LEAT_OK);
    EXPECT(notes.count >= 1 && notes.items[notes.count - 1].text[0] != '\0');
    EXPECT(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    EXPECT(ftruncate(fd, 0) != 0);
    memory = address;
    memory[0] = 1;
    memory[bytes - 1] = 2;
    EXPECT(leat_memory_prefault(address, bytes) == LEAT_OK);
    EXPECT(present_pages(address, bytes) == bytes / 4096);
    EXPECT(memory[0] == 1 && memory[bytes - 1] == 2 && memory[bytes / 2] == 0);
    EXPECT(munmap(address, bytes) == 0 && close(fd) == 0);
}

static void
test_prefault_of_private_memory(void)
{
    enum { BYTES = 1 << 20 };
    void *address = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(address != MAP_FAILED && present_pages(address, BYTES) == 0);
    EXPECT(leat_memory_prefault(address, BYTES) == LEAT_OK);
    EXPECT(present_pages(address, BYTES) == BYTES / 4096);
    EXPECT(munmap(address, BYTES) == 0);
    EXPECT(leat_memory_prefault(address, 0) == LEAT_OK);
}

static void
test_binding_works_or_says_why(void)
{
    struct leat_notes notes = {.count = 0};
    void *address = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool bound = leat_memory_bind(address, 4096, 0, &notes);
    EXPECT(bound == (notes.count == 0));
    EXPECT(!leat_memory_bind(address, 4096, LEAT_CPU_MAX, &notes) && notes.count >= 1);
    EXPECT(munmap(address, 4096) == 0);
}

/* The arena that a block comes from. */
static unsigned
arena_of(void *block)
{
    unsigned arena = UINT_MAX;
#if LEAT_JEMALLOC
    size_t bytes = sizeof(arena);
    EXPECT(mallctl("arenas.lookup", &arena, &bytes, &block, sizeof(block)) == 0);
#else
    EXPECT(block != NULL);
#endif
    return arena;
}

/* Node 1 need not exist: its heap does, and its memory works. */
static void
test_heaps_of_nodes(void)
{
    enum { BLOCKS = 200, NODES = 2 };
    static unsigned char *blocks[NODES][BLOCKS];
    unsigned arenas[NODES];
    void *before = malloc(100);

    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t node = 0; node < NODES; node++) {
            leat_memory_enter_node(node);
            for (int i = 0; i < BLOCKS; i++) {
                const size_t bytes = i % 50 == 0 ? 3000000 : 100; /* the thread's cache holds such small ones */
                blocks[node][i] = malloc(bytes);
                EXPECT(blocks[node][i] != NULL);
                memset(blocks[node][i], i & 0xff, bytes);
                EXPECT(i == 0 || arena_of(blocks[node][i]) == arena_of(blocks[node][0]));
            }
            leat_memory_leave_node();
            EXPECT(round == 0 || arena_of(blocks[node][0]) == arenas[node]);
            arenas[node] = arena_of(blocks[node][0]);
        }
        void *after = malloc(100);
        EXPECT(arena_of(after) == arena_of(before));
        free(after);
        for (int i = 0; i < BLOCKS; i++) {
            EXPECT(blocks[0][i][99] == (i & 0xff) && blocks[1][i][99] == (i & 0xff));
            free(blocks[0][i]);
            free(blocks[1][i]);
        }
    }
#if LEAT_JEMALLOC
    EXPECT(arenas[0] != arenas[1] && arenas[0] != arena_of(before));
#endif
    free(before);
}

int
main(void)
{
    leat_test_init();
    test_arena(4096);
    test_arena(4 << 20);
    test_arena((4 << 20) + 4096);
    test_prefault_of_private_memory();
    test_binding_works_or_says_why();
    test_heaps_of_nodes();
    return 0;
}
