/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offset assignment for buffers with known lifetimes, greedily: one after the other, each at the lowest gap between the
 * buffers already placed that live at the same time. Largest first (Pisarchyk and Lee, "Efficient Memory Management for
 * Deep Neural Net Inference", MLSys 2020, section 5.2); while that takes more than lives at once, the buffer that came to lie
 * highest goes first and all are placed again; then the same from other orders (by breadth is that paper's section 5.3). The best
 * placement is kept. Before all that, and alone where there are too many buffers for it: in the order of time, each at the lowest gap
 * between those that live then, as far as a search that looks at no more than so many from the bottom, then from the top,
 * finds one.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/program.h"

struct key {
    uint64_t rank, bytes; /* falling */
    uint32_t index;       /* rising */
};

enum order { BY_SIZE, BY_BREADTH, BY_AREA, ORDERS };

enum { ROUNDS_MAX = 256 }; /* of one order */

/* Buffers that live, by rising offset; the ends of the list are buffer `count`. */
struct neighbours {
    uint32_t below, above;
};

static int
compare_keys(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->rank != y->rank) {
        return x->rank > y->rank ? -1 : 1;
    }
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return (x->index > y->index) - (x->index < y->index);
}

/* `placed` holds indices by rising offset. */
static size_t
lowest_gap(const struct cpu_buffer *buffers, const uint32_t *placed, uint32_t count, const struct cpu_buffer *buffer)
{
    size_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct cpu_buffer *other = &buffers[placed[i]];
        if (other->last < buffer->first || buffer->last < other->first) {
            continue;
        }
        if (at + buffer->bytes <= other->offset) {
            return at;
        }
        const size_t end = other->offset + other->bytes;
        at = end > at ? end : at;
    }
    return at;
}

/* live[s]: bytes that live at step s, for all steps up to the last; returns the most. */
static size_t
sum_live(const struct cpu_buffer *buffers, uint32_t count, uint32_t steps, size_t *live)
{
    size_t sum = 0, most = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (buffers[i].first != CPU_NONE) {
            live[buffers[i].first] += buffers[i].bytes;
            live[buffers[i].last + 1] -= buffers[i].bytes; /* the sums come out right modulo 2^64 */
        }
    }
    for (uint32_t s = 0; s < steps; s++) {
        sum += live[s];
        live[s] = sum;
        most = sum > most ? sum : most;
    }
    return most;
}

static size_t
breadth(const struct cpu_buffer *buffer, const size_t *live)
{
    size_t most = 0;
    for (uint32_t s = buffer->first; s <= buffer->last; s++) {
        most = live[s] > most ? live[s] : most;
    }
    return most;
}

static uint32_t
sort_keys(const struct cpu_buffer *buffers, uint32_t count, const size_t *live, enum order order, struct key *keys)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct cpu_buffer *buffer = &buffers[i];
        if (buffer->first == CPU_NONE || buffer->bytes == 0) {
            continue;
        }
        const uint64_t life = (uint64_t)buffer->last - buffer->first + 1;
        const uint64_t rank = order == BY_BREADTH ? breadth(buffer, live) : order == BY_AREA ? life * buffer->bytes : 0;
        keys[used++] = (struct key){.rank = rank, .bytes = buffer->bytes, .index = i};
    }
    qsort(keys, used, sizeof(*keys), compare_keys);
    return used;
}

/* Offsets in the order of the keys; returns the bytes needed. */
static size_t
place(struct cpu_buffer *buffers, const struct key *keys, uint32_t count, uint32_t *placed)
{
    size_t total = 0;

    for (uint32_t k = 0; k < count; k++) {
        struct cpu_buffer *buffer = &buffers[keys[k].index];
        buffer->offset = lowest_gap(buffers, placed, k, buffer);
        total = buffer->offset + buffer->bytes > total ? buffer->offset + buffer->bytes : total;
        uint32_t at = k;
        while (at > 0 && buffers[placed[at - 1]].offset > buffer->offset) {
            placed[at] = placed[at - 1];
            at--;
        }
        placed[at] = keys[k].index;
    }
    return total;
}

static int
compare_firsts(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return compare_keys(a, b);
}

/* Among the highest: the lowest above which `bytes` fit, or else the highest. */
static uint32_t
find_high_gap(const struct cpu_buffer *buffers, const struct neighbours *live, uint32_t none, size_t bytes, uint64_t *looks)
{
    uint32_t found = live[none].below, above = found;

    for (uint32_t i = 0; i < CPU_LOOKS_EACH && live[above].below != none; i++) {
        const uint32_t below = live[above].below;
        ++*looks;
        if (buffers[below].offset + buffers[below].bytes + bytes <= buffers[above].offset) {
            found = below;
        }
        above = below;
    }
    return found;
}

/* The live one above which `bytes` fit; `none`: at the bottom. */
static uint32_t
find_gap(const struct cpu_buffer *buffers, const struct neighbours *live, uint32_t none, size_t bytes, uint64_t *looks)
{
    size_t end = 0;
    uint32_t below = none;

    for (uint32_t i = 0; live[below].above != none; i++) {
        const uint32_t above = live[below].above;
        ++*looks;
        if (end + bytes <= buffers[above].offset) {
            return below;
        }
        if (i == CPU_LOOKS_EACH - 1) {
            return find_high_gap(buffers, live, none, bytes, looks);
        }
        end = buffers[above].offset + buffers[above].bytes;
        below = above;
    }
    return below;
}

/*
 * Offsets in the order of time; returns the bytes needed. `keys` and `live` have room for one more than the buffers, `dying` for each
 * step: the last to die there, and `next` of each buffer the one before.
 */
static size_t
place_by_time(struct cpu_buffer *buffers, uint32_t count, uint32_t steps, struct key *keys, struct neighbours *live, uint32_t *dying,
              uint32_t *next, uint64_t *looks)
{
    uint32_t used = 0, step = 0;
    size_t total = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (buffers[i].first != CPU_NONE && buffers[i].bytes > 0) {
            keys[used++] = (struct key){.rank = buffers[i].first, .bytes = buffers[i].bytes, .index = i};
        }
    }
    qsort(keys, used, sizeof(*keys), compare_firsts);
    live[count] = (struct neighbours){count, count};
    for (uint32_t s = 0; s < steps; s++) {
        dying[s] = count;
    }
    for (uint32_t k = 0; k < used; k++) {
        struct cpu_buffer *buffer = &buffers[keys[k].index];
        for (; step < buffer->first; step++) {
            for (uint32_t dead = dying[step]; dead != count; dead = next[dead]) {
                live[live[dead].below].above = live[dead].above;
                live[live[dead].above].below = live[dead].below;
            }
        }
        const uint32_t below = find_gap(buffers, live, count, buffer->bytes, looks), above = live[below].above;
        buffer->offset = below != count ? buffers[below].offset + buffers[below].bytes : 0;
        total = buffer->offset + buffer->bytes > total ? buffer->offset + buffer->bytes : total;
        live[keys[k].index] = (struct neighbours){below, above};
        live[below].above = live[above].below = keys[k].index;
        next[keys[k].index] = dying[buffer->last];
        dying[buffer->last] = keys[k].index;
    }
    return total;
}

/* The one that ends at `total` becomes the first; false where it is. */
static bool
raise_highest(const struct cpu_buffer *buffers, struct key *keys, uint32_t count, size_t total)
{
    uint32_t k = 0;
    while (k < count && buffers[keys[k].index].offset + buffers[keys[k].index].bytes < total) {
        k++;
    }
    if (k == 0 || k == count) {
        return false;
    }
    const struct key highest = keys[k];
    memmove(keys + 1, keys, k * sizeof(*keys));
    keys[0] = highest;
    return true;
}

static uint32_t
count_steps(const struct cpu_buffer *buffers, uint32_t count)
{
    uint32_t steps = 0;
    for (uint32_t i = 0; i < count; i++) {
        steps = buffers[i].first != CPU_NONE && buffers[i].last >= steps ? buffers[i].last + 1 : steps;
    }
    return steps;
}

enum leat_status
cpu_place_apart(struct cpu_buffer *buffers, uint32_t count, size_t *ret_bytes)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        buffers[i].bytes = (size_t)leat_round_up(buffers[i].bytes, CPU_ALIGN);
        buffers[i].offset = bytes;
        if (buffers[i].first != CPU_NONE && __builtin_add_overflow(bytes, buffers[i].bytes, &bytes)) {
            return LEAT_FAIL(LEAT_ERR_LIMIT, "without memory that results share a plan takes more than there can be");
        }
    }
    *ret_bytes = bytes;
    return LEAT_OK;
}

enum leat_status
cpu_live_bytes(const struct cpu_buffer *buffers, uint32_t count, size_t *ret_bytes)
{
    const uint32_t steps = count_steps(buffers, count);
    size_t *live = calloc((size_t)steps + 1, sizeof(*live));

    if (live == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    *ret_bytes = sum_live(buffers, count, steps, live);
    free(live);
    return LEAT_OK;
}

/* Offsets of the best placement. */
static void
keep(const struct cpu_buffer *buffers, uint32_t count, size_t *best)
{
    for (uint32_t i = 0; i < count; i++) {
        best[i] = buffers[i].offset;
    }
}

enum leat_status
cpu_place_buffers(struct cpu_buffer *buffers, uint32_t count, size_t *ret_bytes, uint64_t *ret_looks)
{
    const uint32_t steps = count_steps(buffers, count);
    size_t *live = calloc((size_t)steps + 1, sizeof(*live)), *best = calloc((size_t)count + 1, sizeof(*best));
    uint32_t *placed = malloc(((size_t)count + 1) * sizeof(*placed)), *dying = malloc(((size_t)steps + 1) * sizeof(*dying));
    struct neighbours *neighbours = malloc(((size_t)count + 1) * sizeof(*neighbours));
    struct key *keys = malloc(((size_t)count + 1) * sizeof(*keys));
    const bool room = live != NULL && best != NULL && placed != NULL && dying != NULL && neighbours != NULL && keys != NULL;
    const uint64_t work = (uint64_t)count * count + 1;
    size_t least = SIZE_MAX, bound = 0;
    uint64_t tried = 0, looks = 0;

    for (uint32_t i = 0; i < count; i++) {
        buffers[i].bytes = (size_t)leat_round_up(buffers[i].bytes, CPU_ALIGN);
    }
    if (room) {
        bound = sum_live(buffers, count, steps, live);
        least = place_by_time(buffers, count, steps, keys, neighbours, dying, placed, &looks);
        keep(buffers, count, best);
    }
    for (uint32_t order = 0; room && least > bound && work <= CPU_LOOKS_MAX && order < ORDERS; order++) {
        const uint32_t used = sort_keys(buffers, count, live, order, keys);
        for (uint32_t round = 0; least > bound && round < ROUNDS_MAX &&
                               (tried == 0 || tried + work <= CPU_LOOKS_MAX / ORDERS * (order + 1)); round++) {
            const size_t total = place(buffers, keys, used, placed);
            if (total < least) {
                least = total;
                keep(buffers, count, best);
            }
            tried += work;
            if (!raise_highest(buffers, keys, used, total)) {
                break;
            }
        }
    }
    for (uint32_t i = 0; room && i < count; i++) {
        buffers[i].offset = best[i];
    }
    free(live);
    free(best);
    free(placed);
    free(dying);
    free(neighbours);
    free(keys);
    if (!room) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    *ret_bytes = least;
    *ret_looks = looks + tried;
    return LEAT_OK;
}
