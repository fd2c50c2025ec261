/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What a plan takes to make grows with its size, not with the square of it: a file of a few megabytes may have tens of
 *          thousands of nodes. Placements are right all the same.
 * Method   Constants that double in number: all are found, and no list becomes long. Buffers that double in number, in
 *          chains, alone or above many that stay, all at once, or many at once of which every other one makes room: the
 *          comparisons are counted, the placement takes what it must where that is plain to see, and at most twice that
 *          elsewhere; of a million pairs none that lives together overlaps; test_cpu_backend has all pairs of few.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/constants.h"
#include "kernels/cpu/program.h"
#include "tests/leat_test.h"

enum { MOST = 65536, LIST_MAX = 24, KEPT = 600, PAIRS = 1000000 };

static uint64_t random_state;

static uint32_t
below(uint32_t end)
{
    return (uint32_t)(leat_test_random(&random_state) % end);
}

/* ---- Constants ---------------------------------------------------------------------------------- */

/* Sources that lie `stride` bytes apart. */
static void
test_constants(size_t stride)
{
    struct cpu_constants constants = {.lists = NULL};
    unsigned char *payload = calloc(MOST, stride);

    EXPECT(payload != NULL && cpu_constants_first(&constants, payload) == NULL);
    for (uint32_t made = 0, next = 1024; next <= MOST; next *= 2) {
        uint32_t longest = 0;
        for (; made < next; made++) {
            struct cpu_constant *constant = calloc(1, sizeof(*constant));
            EXPECT(constant != NULL && cpu_constants_make_room(&constants) == LEAT_OK);
            constant->source = payload + made * stride;
            constant->bytes = made;
            cpu_constants_add(&constants, constant);
        }
        for (uint32_t i = 0; i < made; i++) {
            uint32_t length = 0;
            bool found = false;
            for (const struct cpu_constant *c = cpu_constants_first(&constants, payload + i * stride); c != NULL; c = c->next) {
                found = found || (c->source == payload + i * stride && c->bytes == i);
                length++;
            }
            EXPECT(found);
            longest = length > longest ? length : longest;
        }
        EXPECT(constants.count == made && longest <= LIST_MAX);
    }
    EXPECT(cpu_constants_bytes(&constants) >= (size_t)MOST * (MOST - 1) / 2 + MOST * sizeof(struct cpu_constant));
    cpu_constants_fini(&constants);
    free(payload);
}

/* ---- Buffers ------------------------------------------------------------------------------------ */

static bool
overlap(const struct cpu_buffer *a, const struct cpu_buffer *b)
{
    return a->first <= b->last && b->first <= a->last && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Returns what the placement takes beyond the least that any does, *ret_bound. */
static size_t
place(struct cpu_buffer *buffers, uint32_t count, size_t *ret_bound)
{
    size_t bytes, bound;
    uint64_t looks;

    EXPECT(cpu_place_buffers(buffers, count, &bytes, &looks) == LEAT_OK);
    EXPECT(looks <= CPU_LOOKS_MAX + (uint64_t)2 * CPU_LOOKS_EACH * count);
    EXPECT(cpu_live_bytes(buffers, count, &bound) == LEAT_OK && bytes >= bound);
    for (uint32_t i = 0; i < count; i++) {
        EXPECT(buffers[i].offset + buffers[i].bytes <= bytes);
        EXPECT(buffers[i].bytes % CPU_ALIGN == 0 && buffers[i].offset % CPU_ALIGN == 0);
    }
    for (uint32_t pair = 0; pair < PAIRS; pair++) { /* any two, or neighbours in time */
        const uint32_t i = below(count), j = pair % 2 == 0 ? below(count) : (i + 1 + below(4)) % count;
        EXPECT(i == j || !overlap(&buffers[i], &buffers[j]));
    }
    *ret_bound = bound;
    return bytes - bound;
}

static void
test_many_buffers(uint32_t count)
{
    struct cpu_buffer *buffers = calloc(count, sizeof(*buffers));
    size_t bound;

    EXPECT(buffers != NULL);
    for (uint32_t i = 0; i < count; i++) {
        buffers[i] = (struct cpu_buffer){.bytes = 4096, .first = i, .last = i + 1};
    }
    EXPECT(place(buffers, count, &bound) == 0); /* each step reads one and writes one */
    for (uint32_t i = 0; i < count; i++) {
        buffers[i] = (struct cpu_buffer){.bytes = 1 + below(10000), .first = i, .last = count};
    }
    EXPECT(place(buffers, count, &bound) == 0); /* all are there in the end */
    for (uint32_t i = 0; i < count; i++) { /* a chain above many that stay */
        const uint32_t last = i < KEPT ? count : i + 1;
        buffers[i] = (struct cpu_buffer){.bytes = 4096, .first = i, .last = last};
    }
    EXPECT(place(buffers, count, &bound) == 0);
    for (uint32_t i = 0; i < count; i++) { /* of any sizes, and every now and then one more stays */
        const uint32_t last = i < KEPT || i % 16 == 0 ? count : i + 1 + below(4);
        buffers[i] = (struct cpu_buffer){.bytes = 1 + below(10000), .first = i, .last = last};
    }
    EXPECT(place(buffers, count, &bound) <= bound / 8);
    /* The first half is made, every other one of it is not needed any more, and then come larger ones. */
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t last = i >= count / 2 ? count : i % 2 == 0 ? count / 2 - 1 : count;
        buffers[i] = (struct cpu_buffer){.bytes = i < count / 2 ? 64 : 128, .first = i, .last = last};
    }
    EXPECT(place(buffers, count, &bound) <= bound / 4);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t first = below(count), life = below(below(2) == 0 ? 4 : count);
        buffers[i] = (struct cpu_buffer){.bytes = 1 + below(100000), .first = first, .last = first + life};
    }
    EXPECT(place(buffers, count, &bound) <= bound);
    free(buffers);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    test_constants(1);
    test_constants(16);
    test_constants(1024);
    for (uint32_t count = 1024; count <= MOST; count *= 2) {
        test_many_buffers(count);
    }
    return 0;
}
