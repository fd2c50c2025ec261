/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/tensor_arena.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/align.h"

/* Size s falls in class (f, t): f = floor(log2 s), t = the next SPLIT_LOG2 bits below the leading one. */
enum { SPLIT_LOG2 = 4, SPLIT = 1 << SPLIT_LOG2, FIRST_LEVELS = 31 };

/* At a block's first unit. A block's last unit repeats its size, so the block after it finds its start. */
struct block {
    uint32_t units;      /* size of the block that starts here; 0: none starts here */
    uint32_t free;       /* 1 when that block is free */
    uint32_t next, prev; /* free list of its class */
};

struct leat_tensor_arena {
    uint32_t units;
    uint32_t free_units;
    uint32_t first_bitmap;                /* bit f: some second_bitmap[f] bit is set */
    uint32_t second_bitmap[FIRST_LEVELS]; /* bit t: heads[f][t] is not empty */
    uint32_t heads[FIRST_LEVELS][SPLIT];
    size_t blocks_bytes;
    struct block *blocks;   /* [units], zero pages until touched */
    uint32_t *last_of;      /* [units]: at a block's last unit, its first unit */
};

struct class_of {
    uint32_t first, second;
};

static struct class_of
class_floor(uint32_t units)
{
    LEAT_ASSERT(units > 0);
    const uint32_t first = 31u - (uint32_t)__builtin_clz(units);
    const uint32_t second = first >= SPLIT_LOG2 ? (units >> (first - SPLIT_LOG2)) & (SPLIT - 1)
                                                : (units << (SPLIT_LOG2 - first)) & (SPLIT - 1);
    return (struct class_of){first, second};
}

static void
list_insert(struct leat_tensor_arena *arena, uint32_t unit)
{
    struct block *block = &arena->blocks[unit];
    const struct class_of at = class_floor(block->units);
    uint32_t *head = &arena->heads[at.first][at.second];

    block->free = 1;
    block->prev = LEAT_ARENA_NONE;
    block->next = *head;
    if (*head != LEAT_ARENA_NONE) {
        arena->blocks[*head].prev = unit;
    }
    *head = unit;
    arena->second_bitmap[at.first] |= 1u << at.second;
    arena->first_bitmap |= 1u << at.first;
}

static void
list_remove(struct leat_tensor_arena *arena, uint32_t unit)
{
    struct block *block = &arena->blocks[unit];
    const struct class_of at = class_floor(block->units);

    LEAT_ASSERT(block->free == 1);
    block->free = 0;
    if (block->next != LEAT_ARENA_NONE) {
        arena->blocks[block->next].prev = block->prev;
    }
    if (block->prev != LEAT_ARENA_NONE) {
        arena->blocks[block->prev].next = block->next;
        return;
    }
    arena->heads[at.first][at.second] = block->next;
    if (block->next == LEAT_ARENA_NONE) {
        arena->second_bitmap[at.first] &= ~(1u << at.second);
        if (arena->second_bitmap[at.first] == 0) {
            arena->first_bitmap &= ~(1u << at.first);
        }
    }
}

static void
block_make(struct leat_tensor_arena *arena, uint32_t unit, uint32_t units)
{
    arena->blocks[unit].units = units;
    arena->blocks[unit].free = 0;
    arena->last_of[unit + units - 1] = unit;
}

enum leat_status
leat_tensor_arena_create(uint32_t units, struct leat_tensor_arena **ret_arena)
{
    LEAT_ASSERT(units >= 1 && units < UINT32_C(1) << FIRST_LEVELS);
    struct leat_tensor_arena *arena = calloc(1, sizeof(*arena));
    if (arena == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for an arena's records");
    }
    arena->units = units;
    arena->blocks_bytes = (size_t)units * (sizeof(struct block) + sizeof(uint32_t));
    void *memory = mmap(NULL, arena->blocks_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        free(arena);
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot map %zu bytes for an arena's records", (size_t)units * 20);
    }
    arena->blocks = memory;
    arena->last_of = (uint32_t *)(arena->blocks + units);
    for (uint32_t f = 0; f < FIRST_LEVELS; f++) {
        for (uint32_t t = 0; t < SPLIT; t++) {
            arena->heads[f][t] = LEAT_ARENA_NONE;
        }
    }
    block_make(arena, 0, units);
    list_insert(arena, 0);
    arena->free_units = units;
    *ret_arena = arena;
    return LEAT_OK;
}

void
leat_tensor_arena_destroy(struct leat_tensor_arena *arena)
{
    if (arena != NULL) {
        LEAT_MUST(munmap(arena->blocks, arena->blocks_bytes) == 0);
        free(arena);
    }
}

/* A free block of a class whose every member has at least `units`, or LEAT_ARENA_NONE. */
static uint32_t
find_fit(const struct leat_tensor_arena *arena, uint32_t units)
{
    /* Round up to the next class boundary, so that any block of the class found is long enough. */
    const uint32_t first = 31u - (uint32_t)__builtin_clz(units);
    const uint32_t step = first >= SPLIT_LOG2 ? (1u << (first - SPLIT_LOG2)) - 1u : 0u;
    const struct class_of from = class_floor(units + step);

    uint32_t f = from.first;
    uint32_t seconds = f < FIRST_LEVELS ? arena->second_bitmap[f] & (~0u << from.second) : 0;
    if (seconds == 0) {
        const uint32_t firsts = f + 1 < FIRST_LEVELS ? arena->first_bitmap & (~0u << (f + 1)) : 0;
        if (firsts != 0) {
            f = (uint32_t)__builtin_ctz(firsts);
            seconds = arena->second_bitmap[f];
        }
    }
    if (seconds != 0) {
        return arena->heads[f][__builtin_ctz(seconds)];
    }
    /* The class of `units` itself may still hold a block that is long enough: the arena is nearly full. */
    const struct class_of own = class_floor(units);
    for (uint32_t unit = arena->heads[own.first][own.second]; unit != LEAT_ARENA_NONE;
         unit = arena->blocks[unit].next) {
        if (arena->blocks[unit].units >= units) {
            return unit;
        }
    }
    return LEAT_ARENA_NONE;
}

uint32_t
leat_tensor_arena_take(struct leat_tensor_arena *arena, uint32_t units)
{
    if (units == 0 || units > arena->free_units) {
        return LEAT_ARENA_NONE;
    }
    const uint32_t unit = find_fit(arena, units);
    if (unit == LEAT_ARENA_NONE) {
        return LEAT_ARENA_NONE;
    }
    const uint32_t whole = arena->blocks[unit].units;
    LEAT_ASSERT(whole >= units);
    list_remove(arena, unit);
    block_make(arena, unit, units);
    if (whole > units) {
        block_make(arena, unit + units, whole - units);
        list_insert(arena, unit + units);
    }
    arena->free_units -= units;
    return unit;
}

bool
leat_tensor_arena_give(struct leat_tensor_arena *arena, uint32_t unit)
{
    if (unit >= arena->units || arena->blocks[unit].units == 0 || arena->blocks[unit].free) {
        return false;
    }
    uint32_t units = arena->blocks[unit].units;
    arena->free_units += units;

    const uint32_t after = unit + units;
    if (after < arena->units && arena->blocks[after].free) {
        list_remove(arena, after);
        units += arena->blocks[after].units;
        arena->blocks[after].units = 0;
    }
    if (unit > 0) {
        const uint32_t before = arena->last_of[unit - 1];
        if (arena->blocks[before].free) {
            list_remove(arena, before);
            units += arena->blocks[before].units;
            arena->blocks[unit].units = 0;
            unit = before;
        }
    }
    block_make(arena, unit, units);
    list_insert(arena, unit);
    return true;
}

uint32_t
leat_tensor_arena_free_units(const struct leat_tensor_arena *arena)
{
    return arena->free_units;
}

uint32_t
leat_tensor_arena_longest(const struct leat_tensor_arena *arena)
{
    if (arena->first_bitmap == 0) {
        return 0;
    }
    const uint32_t f = 31u - (uint32_t)__builtin_clz(arena->first_bitmap);
    const uint32_t t = 31u - (uint32_t)__builtin_clz(arena->second_bitmap[f]);
    uint32_t longest = 0;
    for (uint32_t unit = arena->heads[f][t]; unit != LEAT_ARENA_NONE; unit = arena->blocks[unit].next) {
        longest = arena->blocks[unit].units > longest ? arena->blocks[unit].units : longest;
    }
    return longest;
}
