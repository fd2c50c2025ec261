/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Arenas are mapped, sealable and whole; prefaulting makes pages present without changing them; a heap
 *          gives aligned, separate memory and takes all of it back.
 */
#include "runtime/memory.h"
#include "tests/leat_test.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

static void
test_heap(void)
{
    enum { BLOCKS = 500 };
    static unsigned char *blocks[BLOCKS];
    static size_t sizes[BLOCKS];
    struct leat_heap *heap;
    uint64_t random = leat_test_seed;

    EXPECT(leat_heap_create(0, &heap) == LEAT_OK);
    for (int i = 0; i < BLOCKS; i++) {
        const size_t alignment = (size_t)1 << (leat_test_random(&random) % 13);
        sizes[i] = 1 + leat_test_random(&random) % (i % 50 == 0 ? 3000000 : 5000);
        blocks[i] = leat_heap_alloc(heap, sizes[i], alignment);
        EXPECT(blocks[i] != NULL && (uintptr_t)blocks[i] % alignment == 0);
        memset(blocks[i], i & 0xff, sizes[i]);
    }
    for (int i = 0; i < BLOCKS; i++) {
        EXPECT(blocks[i][0] == (i & 0xff) && blocks[i][sizes[i] - 1] == (i & 0xff));
        leat_heap_free(heap, blocks[i]);
    }
    leat_heap_free(heap, NULL);
    EXPECT(leat_heap_bytes(heap) == 0);
    leat_heap_destroy(heap);
    leat_heap_destroy(NULL);
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
    test_heap();
    return 0;
}
