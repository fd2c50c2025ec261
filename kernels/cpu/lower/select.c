/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ArgMax, ArgMin and Hardmax of floats along any axis, and TopK along the last one. As in the reference functions a NaN is beyond every
 * number, but in Hardmax neither more nor less, 0 is no more than -0, and of equal ones the first comes first.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/rows.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"

enum { LANES = 4, VECTORS = 4, WIDTH = LANES * VECTORS, SHARED_LEAST = 8192 /* elements for each member of a team */ };

typedef float vector __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t places __attribute__((vector_size(LANES * sizeof(int32_t))));

/* ---- The place of the greatest or the least ----------------------------------------------------------- */

static bool
is_beyond(float x, float best, bool greatest)
{
    return !isnan(best) && (isnan(x) || (greatest ? x > best : x < best));
}

/* `last`: of equal ones the last. */
static size_t
place_one_by_one(const float *x, size_t count, bool greatest, bool last)
{
    size_t place = 0;

    for (size_t i = 1; i < count; i++) {
        if (last ? !is_beyond(x[place], x[i], greatest) : is_beyond(x[i], x[place], greatest)) {
            place = i;
        }
    }
    return place;
}

static size_t
place_of(const float *x, size_t count, bool greatest, bool last)
{
#if defined(__x86_64__)
    if (!last && cpu_vector_lanes() > 0) {
        const bool wide = cpu_has_avx512();
        const float best = greatest ? (wide ? cpu_row_greatest_avx512(x, count) : cpu_row_greatest_avx2(x, count))
                                    : (wide ? cpu_row_least_avx512(x, count) : cpu_row_least_avx2(x, count));
        /* Of numbers those that are beyond what comes before the best are it. */
        const float bound = isnan(best) ? (greatest ? INFINITY : -INFINITY) : nextafterf(best, greatest ? -INFINITY : INFINITY);
        const size_t place = wide ? cpu_row_first_beyond_avx512(x, count, bound, greatest)
                                  : cpu_row_first_beyond_avx2(x, count, bound, greatest);
        return place < count ? place : 0; /* nothing comes before infinity: all are it */
    }
#endif
    return place_one_by_one(x, count, greatest, last);
}

/* Of WIDTH columns, `stride` apart, of which `width` are there. */
static inline void
place_columns(const float *x, size_t count, size_t stride, size_t width, bool greatest, bool last, int64_t *y)
{
    vector best[VECTORS] = {{0}}, next[VECTORS] = {{0}};
    places place[VECTORS] = {{0}};
    int32_t each[WIDTH];

    memcpy(best, x, width * sizeof(*x));
    for (size_t t = 1; t < count; t++) {
        memcpy(next, x + t * stride, width * sizeof(*x));
        for (size_t v = 0; v < VECTORS; v++) {
            const places number = best[v] >= best[v], other = next[v] >= next[v];
            const places more = greatest ? next[v] > best[v] : next[v] < best[v];
            const places less = greatest ? best[v] > next[v] : best[v] < next[v];
            const places take = last ? ~(less | (~number & other)) : more | (number & ~other);
            best[v] = (vector)((take & (places)next[v]) | (~take & (places)best[v]));
            place[v] = (take & (int32_t)t) | (~take & place[v]);
        }
    }
    memcpy(each, place, sizeof(each));
    for (size_t l = 0; l < width; l++) {
        y[l] = each[l];
    }
}

/* f32[outer][count][inner] -> i64[outer][inner]. args: x, y. A unit is WIDTH columns of one of the outer ones. */
static void
place_units(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t inner = step->inner, count = step->count, blocks = (inner + WIDTH - 1) / WIDTH;
    const bool greatest = step->node->op->kind == LEAT_OP_ARG_MAX;
    const bool last = leat_node_int(step->node, "select_last_index", 0) != 0;

    for (size_t u = begin; u < end; u++) {
        const size_t o = u / blocks, first = u % blocks * WIDTH, width = inner - first < WIDTH ? inner - first : WIDTH;
        const float *x = (const float *)call->pointers[0] + o * count * inner + first;
        int64_t *y = (int64_t *)call->pointers[1] + o * inner + first;
        if (inner == 1) {
            *y = (int64_t)place_of(x, count, greatest, last);
        } else if (width == WIDTH) {
            place_columns(x, count, inner, WIDTH, greatest, last, y);
        } else {
            place_columns(x, count, inner, width, greatest, last, y);
        }
    }
}

static enum leat_status
find_places(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    const size_t blocks = (step->inner + WIDTH - 1) / WIDTH, width = step->inner < WIDTH ? step->inner : WIDTH;

    cpu_share(call, place_units, step->outer * blocks, 1 + SHARED_LEAST / (step->count * width));
    return LEAT_OK;
}

/* Of WIDTH columns, where NaN is neither more nor less. */
static inline void
mark_columns(const float *x, size_t count, size_t stride, size_t width, float *y)
{
    vector best[VECTORS] = {{0}}, next[VECTORS] = {{0}};
    places place[VECTORS] = {{0}};
    int32_t each[WIDTH];

    memcpy(best, x, width * sizeof(*x));
    for (size_t t = 0; t < count; t++) {
        memcpy(next, x + t * stride, width * sizeof(*x));
        for (size_t v = 0; v < VECTORS; v++) {
            const places more = next[v] > best[v];
            best[v] = (vector)((more & (places)next[v]) | (~more & (places)best[v]));
            place[v] = (more & (int32_t)t) | (~more & place[v]);
        }
        for (size_t l = 0; l < width; l++) {
            y[t * stride + l] = 0;
        }
    }
    memcpy(each, place, sizeof(each));
    for (size_t l = 0; l < width; l++) {
        y[(size_t)each[l] * stride + l] = 1;
    }
}

static void
mark_row(const float *x, size_t count, float *y)
{
    size_t place = place_of(x, count, true, false);

    if (isnan(x[place])) {
        place = 0;
        for (size_t i = 1; i < count; i++) {
            place = x[i] > x[place] ? i : place;
        }
    }
    memset(y, 0, count * sizeof(*y));
    y[place] = 1;
}

/* f32[outer][count][inner]. args: x, y. Units as above. */
static void
mark_units(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t inner = step->inner, count = step->count, blocks = (inner + WIDTH - 1) / WIDTH;

    for (size_t u = begin; u < end; u++) {
        const size_t first = u % blocks * WIDTH, at = u / blocks * count * inner + first;
        const float *x = (const float *)call->pointers[0] + at;
        float *y = (float *)call->pointers[1] + at;
        if (inner == 1) {
            mark_row(x, count, y);
        } else if (inner - first >= WIDTH) {
            mark_columns(x, count, inner, WIDTH, y);
        } else {
            mark_columns(x, count, inner, inner - first, y);
        }
    }
}

static enum leat_status
mark_places(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    const size_t blocks = (step->inner + WIDTH - 1) / WIDTH, width = step->inner < WIDTH ? step->inner : WIDTH;

    cpu_share(call, mark_units, step->outer * blocks, 1 + SHARED_LEAST / (step->count * width));
    return LEAT_OK;
}

enum leat_status
cpu_lower_hardmax(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0);
    struct leat_softmax_extent extent;
    struct cpu_arg args[2] = {{0, 0}};
    struct cpu_step *step;

    leat_softmax_extent(b->graph, b->node, &extent);
    if (x->dtype != LEAT_DTYPE_F32 || leat_value_elements(x) == 0 || extent.axis > INT32_MAX) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_plain(b, b->node->inputs[0], &args[0].tensor);
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, mark_places, args, 2, &step);
    }
    if (status == LEAT_OK) {
        step->outer = extent.outer;
        step->count = extent.axis;
        step->inner = extent.inner;
    }
    return status;
}

/* x as [outer][count][inner] around `axis`. */
static void
set_axes(struct cpu_step *step, const struct leat_value *x, uint32_t axis)
{
    step->inner = 1;
    for (uint32_t d = axis + 1; d < x->rank; d++) {
        step->inner *= (size_t)x->dims[d];
    }
    step->count = (size_t)x->dims[axis];
    step->outer = leat_value_elements(x) / (step->count * step->inner);
}

enum leat_status
cpu_lower_arg_extreme(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0);
    struct cpu_arg args[2] = {{0, 0}};
    struct cpu_step *step;

    if (x->dtype != LEAT_DTYPE_F32 || x->rank == 0 || leat_value_elements(x) == 0) {
        return LEAT_AGAIN;
    }
    const uint32_t axis = (uint32_t)leat_node_axis(b->node, 0, x->rank);
    if (x->dims[axis] > INT32_MAX) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_plain(b, b->node->inputs[0], &args[0].tensor);
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, find_places, args, 2, &step);
    }
    if (status == LEAT_OK) {
        set_axes(step, x, axis);
    }
    return status;
}

/* ---- TopK --------------------------------------------------------------------------------------------- */

/* The more it is, the sooner x[place] comes. No two are equal: whatever way the most are found, they are the same. */
static inline uint64_t
rank_of(float x, size_t place, bool greatest)
{
    uint32_t bits;

    x = x == 0 ? 0 : x; /* without a sign */
    memcpy(&bits, &x, sizeof(bits));
    bits = bits >> 31 != 0 ? ~bits : bits | UINT32_C(1) << 31;
    bits = isnan(x) ? UINT32_MAX : greatest ? bits : ~bits;
    return (uint64_t)bits << 32 | (uint32_t)~place;
}

static inline size_t
place_in(uint64_t rank)
{
    return (uint32_t)~rank;
}

/* The first that is beyond the bound, or is no number. */
static size_t
next_beyond(const float *x, size_t from, size_t count, float bound, bool greatest)
{
#if defined(__x86_64__)
    if (cpu_has_avx512()) {
        return from + cpu_row_first_beyond_avx512(x + from, count - from, bound, greatest);
    }
    if (cpu_has_avx2()) {
        return from + cpu_row_first_beyond_avx2(x + from, count - from, bound, greatest);
    }
#endif
    while (from < count && (greatest ? x[from] <= bound : x[from] >= bound)) {
        from++;
    }
    return from;
}

/* A heap of the most, the least of them in front (Williams, 1964). */
static void
sift_down(uint64_t *heap, size_t root, size_t count)
{
    const uint64_t moved = heap[root];

    for (size_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
        child += child + 1 < count && heap[child + 1] < heap[child];
        if (moved <= heap[child]) {
            break;
        }
        heap[root] = heap[child];
        root = child;
    }
    heap[root] = moved;
}

/* `heap` has room for k. */
static void
select_row(const float *x, size_t count, size_t k, bool greatest, uint64_t *heap)
{
    for (size_t i = 0; i < k; i++) {
        heap[i] = rank_of(x[i], i, greatest);
    }
    for (size_t root = k / 2; root-- > 0;) {
        sift_down(heap, root, k);
    }
    for (size_t i = k; i < count; i++) {
        const float least = x[place_in(heap[0])];
        i = isnan(least) ? count : next_beyond(x, i, count, least, greatest);
        if (i < count) {
            heap[0] = rank_of(x[i], i, greatest);
            sift_down(heap, 0, k);
        }
    }
    for (size_t end = k; end-- > 1;) {
        const uint64_t least = heap[0];
        heap[0] = heap[end];
        heap[end] = least;
        sift_down(heap, 0, end);
    }
}

/* f32[outer][count] -> f32[outer][inner], i64[outer][inner]. args: x, values, places, which are the heap before. */
static void
select_rows(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t k = step->inner;
    const bool greatest = leat_node_int(step->node, "largest", 1) != 0;

    for (size_t o = begin; o < end; o++) {
        const float *x = (const float *)call->pointers[0] + o * step->count;
        float *values = (float *)call->pointers[1] + o * k;
        uint64_t *places_found = (uint64_t *)call->pointers[2] + o * k;
        select_row(x, step->count, k, greatest, places_found);
        for (size_t i = 0; i < k; i++) {
            places_found[i] = place_in(places_found[i]);
            values[i] = x[places_found[i]];
        }
    }
}

static enum leat_status
select_most(const struct cpu_call *call)
{
    cpu_share(call, select_rows, call->step->outer, 1 + SHARED_LEAST / call->step->count);
    return LEAT_OK;
}

enum leat_status
cpu_lower_top_k(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *y = leat_node_output(b->graph, b->node, 0);
    const dnnl_memory_desc_t none = {.ndims = 0};
    struct cpu_arg args[3] = {{0, 0}};
    struct cpu_step *step;

    if (x->dtype != LEAT_DTYPE_F32 || x->rank == 0 || leat_value_elements(y) == 0 ||
        leat_node_axis(b->node, -1, x->rank) + 1 != x->rank || x->dims[x->rank - 1] > INT32_MAX) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_plain(b, b->node->inputs[0], &args[0].tensor);
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = leat_node_output(b->graph, b->node, 1) != NULL
                     ? cpu_plain_output(b, 1, &args[2].tensor)
                     : cpu_new_tensor(b, &none, leat_value_elements(y) * sizeof(int64_t), &args[2].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, select_most, args, 3, &step);
    }
    if (status == LEAT_OK) {
        set_axes(step, x, x->rank - 1);
        step->inner = (size_t)y->dims[y->rank - 1];
    }
    return status;
}
