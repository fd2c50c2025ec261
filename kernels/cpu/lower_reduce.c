/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ReduceMax, ReduceMin, ReduceSum and ReduceMean of floats along any axes, plain. A unit of work is WIDTH results side by side
 * where the last axis stays, else one result, whose terms are added up in WIDTH lanes: both are runs of terms of WIDTH floats.
 * Where there are vectors of AVX2 or AVX-512 rows of one result are for them (rows.h).
 *
 * Numerics  Sums are of TERMS floats at most, and sums of these in double. A NaN is greater and less than all, as in the reference
 *           function.
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/program.h"
#include "kernels/cpu/rows.h"
#include "kernels/op.h"

enum { LANES = 4, VECTORS = 8, WIDTH = LANES * VECTORS, TERMS = 64, SHORT = 8, SHARED_LEAST = 8192 /* terms for each member of a team */ };

typedef float vector __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t choice __attribute__((vector_size(LANES * sizeof(int32_t))));

enum way { ADD, GREATEST, LEAST };

/* ---- Terms ------------------------------------------------------------------------------------------ */

static inline vector
combine(enum way way, vector so_far, vector x)
{
    if (way == ADD) {
        return so_far + x;
    }
    /* x is beyond, or no number */
    const choice beyond = (way == GREATEST ? x > so_far : x < so_far) | ~(x >= x);
    return (vector)((beyond & (choice)x) | (~beyond & (choice)so_far));
}

/* Into WIDTH floats `so_far`: as many of each of `terms` terms, `stride` apart. */
static inline void
add_wide(enum way way, float *so_far, const float *x, size_t terms, size_t stride)
{
    vector lanes[VECTORS], next;

    memcpy(lanes, so_far, sizeof(lanes));
    for (size_t t = 0; t < terms; t++, x += stride) {
#pragma GCC unroll 8
        for (size_t v = 0; v < VECTORS; v++) {
            memcpy(&next, x + v * LANES, sizeof(next));
            lanes[v] = combine(way, lanes[v], next);
        }
    }
    memcpy(so_far, lanes, sizeof(lanes));
}

static inline float
combine_two(enum way way, float so_far, float x)
{
    return way == ADD                                              ? so_far + x
           : isnan(x) || (way == GREATEST ? x > so_far : x < so_far) ? x : so_far;
}

static inline void
add_narrow(enum way way, float *so_far, const float *x, size_t terms, size_t stride, size_t width)
{
    for (size_t t = 0; t < terms; t++, x += stride) {
        for (size_t l = 0; l < width; l++) {
            so_far[l] = combine_two(way, so_far[l], x[l]);
        }
    }
}

static inline void
add_terms(enum way way, float *so_far, const float *x, size_t terms, size_t stride, size_t width)
{
    if (width == WIDTH) {
        add_wide(way, so_far, x, terms, stride);
    } else {
        add_narrow(way, so_far, x, terms, stride, width);
    }
}

/* What a unit has come to; `totals` are of sums. */
struct unit {
    float so_far[WIDTH];
    double totals[WIDTH];
};

static inline void
start(enum way way, struct unit *unit, size_t width)
{
    for (size_t l = 0; l < width; l++) {
        unit->so_far[l] = way == GREATEST ? -INFINITY : way == LEAST ? INFINITY : 0;
        unit->totals[l] = 0;
    }
}

static inline void
add_run(enum way way, struct unit *unit, const float *x, size_t terms, size_t stride, size_t width)
{
    if (way != ADD) {
        add_terms(way, unit->so_far, x, terms, stride, width);
        return;
    }
    for (size_t t = 0; t < terms; t += TERMS) {
        memset(unit->so_far, 0, width * sizeof(*unit->so_far));
        add_terms(way, unit->so_far, x + t * stride, terms - t < TERMS ? terms - t : TERMS, stride, width);
        for (size_t l = 0; l < width; l++) {
            unit->totals[l] += (double)unit->so_far[l];
        }
    }
}

/* ---- Units ------------------------------------------------------------------------------------------ */

/*
 * A step's: rank axes, the first `outer` of them stay and the others go, neighbours of one kind made one, in strides of x; the last
 * axis of x is the last of its kind. inner: results side by side, 0 where the last axis goes; count: results.
 */

/* Rows that go are for the vectors of rows.h. */
static inline bool
takes_rows(const struct cpu_step *step)
{
#if defined(__x86_64__)
    return step->inner == 0 && step->dims[step->rank - 1] >= SHORT && cpu_vector_lanes() > 0;
#else
    return false;
#endif
}

/* Such a one, into lane 0. */
static inline void
add_row(enum way way, struct unit *unit, const float *x, size_t terms)
{
#if defined(__x86_64__)
    const bool wide = cpu_has_avx512();

    if (way == ADD) {
        unit->totals[0] += wide ? cpu_row_total_avx512(x, terms) : cpu_row_total_avx2(x, terms);
        return;
    }
    const float row = way == GREATEST ? (wide ? cpu_row_greatest_avx512(x, terms) : cpu_row_greatest_avx2(x, terms))
                                      : (wide ? cpu_row_least_avx512(x, terms) : cpu_row_least_avx2(x, terms));
    unit->so_far[0] = combine_two(way, unit->so_far[0], row);
#else
    add_run(way, unit, x, terms, 1, 1);
#endif
}

/* Where the units of result `o` of the axes that stay begin, but for the last where results are side by side. */
static size_t
begin_of(const struct cpu_step *step, size_t o)
{
    size_t at = 0;

    for (size_t d = step->outer - (step->inner > 0); d-- > 0; o /= (size_t)step->dims[d]) {
        if (d == 0) {
            return at + o * (size_t)step->strides[d]; /* without a division, which takes as long as a short row */
        }
        at += o % (size_t)step->dims[d] * (size_t)step->strides[d];
    }
    return at;
}

static inline void
add_all(enum way way, const struct cpu_step *step, const float *x, size_t width, struct unit *unit)
{
    const size_t last = step->rank - 1, terms = (size_t)step->dims[last];
    const bool rows = takes_rows(step);
    int64_t at[LEAT_RANK_MAX] = {0};

    for (;;) {
        if (step->inner > 0) {
            add_run(way, unit, x, terms, (size_t)step->strides[last], width);
        } else if (rows) {
            add_row(way, unit, x, terms);
        } else {
            if (terms >= WIDTH) {
                add_run(way, unit, x, terms / WIDTH, WIDTH, WIDTH);
            }
            add_run(way, unit, x + terms / WIDTH * WIDTH, 1, 0, terms % WIDTH);
        }
        size_t d = last;
        while (d-- > step->outer) {
            x += step->strides[d];
            if (++at[d] < step->dims[d]) {
                break;
            }
            x -= step->strides[d] * step->dims[d];
            at[d] = 0;
        }
        if (d == SIZE_MAX || d < step->outer) {
            return;
        }
    }
}

static inline float
result(enum way way, const struct unit *unit, size_t lane, double divisor)
{
    return way == ADD ? (float)(unit->totals[lane] / divisor) : unit->so_far[lane];
}

/* A result of few terms side by side, without lanes. */
static inline float
reduce_short(enum way way, const float *x, size_t terms, double divisor)
{
    float best = x[0];
    double sum = (double)x[0];

    for (size_t t = 1; t < terms; t++) {
        if (way == ADD) {
            sum += (double)x[t];
        } else {
            best = combine_two(way, best, x[t]);
        }
    }
    return way == ADD ? (float)(sum / divisor) : best;
}

static inline void
reduce_units(enum way way, const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t blocks = step->inner > 0 ? (step->inner + WIDTH - 1) / WIDTH : 1;
    const bool rows = takes_rows(step);
    double divisor = 1;
    struct unit unit;

    for (uint32_t d = (uint32_t)step->outer; d < step->rank && step->node->op->kind == LEAT_OP_REDUCE_MEAN; d++) {
        divisor *= (double)step->dims[d];
    }
    for (size_t u = begin; u < end; u++) {
        const size_t o = u / blocks, first = u % blocks * WIDTH;
        const float *x = (const float *)call->pointers[0] + begin_of(step, o) + first;
        float *y = (float *)call->pointers[1] + (step->inner > 0 ? o * step->inner + first : o);
        if (step->inner > 0) {
            const size_t width = step->inner - first < WIDTH ? step->inner - first : WIDTH;
            start(way, &unit, width);
            add_all(way, step, x, width, &unit);
            for (size_t l = 0; l < width; l++) {
                y[l] = result(way, &unit, l, divisor);
            }
            continue;
        }
        const size_t terms = (size_t)step->dims[step->rank - 1], width = rows ? 1 : terms < WIDTH ? terms : WIDTH;
        if (terms < WIDTH && !rows && step->rank == step->outer + 1) {
            *y = reduce_short(way, x, terms, divisor);
            continue;
        }
        start(way, &unit, width);
        if (rows && step->rank == step->outer + 1) {
            add_row(way, &unit, x, terms);
        } else {
            add_all(way, step, x, width, &unit);
        }
        for (size_t l = 1; l < width; l++) {
            unit.so_far[0] = combine_two(way, unit.so_far[0], unit.so_far[l]);
            unit.totals[0] += unit.totals[l];
        }
        *y = result(way, &unit, 0, divisor);
    }
}

/* args: x, y. */
static void
reduce_part(const struct cpu_call *call, size_t begin, size_t end)
{
    switch (call->step->node->op->kind) {
    case LEAT_OP_REDUCE_MAX:
        reduce_units(GREATEST, call, begin, end);
        break;
    case LEAT_OP_REDUCE_MIN:
        reduce_units(LEAST, call, begin, end);
        break;
    default:
        reduce_units(ADD, call, begin, end);
    }
}

static enum leat_status
reduce(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    size_t units = 1, terms = step->inner > 0 ? WIDTH : 1;

    for (size_t d = 0; d < step->rank; d++) {
        if (d >= step->outer) {
            terms *= (size_t)step->dims[d];
        } else if (step->inner > 0 && d + 1 == step->outer) {
            units *= (step->inner + WIDTH - 1) / WIDTH;
        } else {
            units *= (size_t)step->dims[d];
        }
    }
    cpu_share(call, reduce_part, units, 1 + SHARED_LEAST / terms);
    return LEAT_OK;
}

/* ---- Lowering --------------------------------------------------------------------------------------- */

/* The axes of x that stay (or that go), neighbours made one; axes of one element are neither. */
static uint32_t
gather_axes(const struct leat_value *x, uint32_t mask, bool going, int64_t *dims, int64_t *strides)
{
    int64_t stride = 1, all_dims[LEAT_RANK_MAX], all_strides[LEAT_RANK_MAX];
    uint32_t count = 0;
    bool joins = false;

    for (uint32_t d = x->rank; d-- > 0; stride *= x->dims[d]) {
        if (x->dims[d] == 1) {
            continue;
        }
        if (((mask >> d & 1u) != 0) != going) {
            joins = false;
        } else if (joins) {
            all_dims[count - 1] *= x->dims[d];
        } else {
            all_dims[count] = x->dims[d];
            all_strides[count++] = stride;
            joins = true;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        dims[i] = all_dims[count - 1 - i];
        strides[i] = all_strides[count - 1 - i];
    }
    return count;
}

enum leat_status
cpu_lower_reduce(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0);
    const uint32_t mask = leat_reduce_axes(b->graph, b->node);
    struct cpu_arg args[2] = {{0, 0}};
    int64_t dims[LEAT_RANK_MAX], strides[LEAT_RANK_MAX];
    struct cpu_step *step;

    if (x->dtype != LEAT_DTYPE_F32 || leat_value_elements(x) == 0) {
        return LEAT_AGAIN;
    }
    const uint32_t stay = gather_axes(x, mask, false, dims, strides);
    const uint32_t go = gather_axes(x, mask, true, dims + stay, strides + stay);
    if (go == 0) {
        return LEAT_AGAIN; /* of one element each */
    }
    enum leat_status status = cpu_plain(b, b->node->inputs[0], &args[0].tensor);
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, reduce, args, 2, &step);
    }
    if (status == LEAT_OK) {
        step->rank = stay + go;
        step->outer = stay;
        step->inner = stay > 0 && strides[stay - 1] == 1 ? (size_t)dims[stay - 1] : 0;
        memcpy(step->dims, dims, step->rank * sizeof(*dims));
        memcpy(step->strides, strides, step->rank * sizeof(*strides));
    }
    return status;
}
