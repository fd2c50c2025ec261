/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions of floats along any axes, plain, LpNormalization and MeanVarianceNormalization. A unit of work is WIDTH results side by side where the last axis
 * stays, else one result, whose terms are added up in WIDTH lanes: both are runs of terms of WIDTH floats. Where there are vectors of
 * AVX2 or AVX-512 rows of one result are for them (rows.h).
 *
 * Numerics  Sums are of TERMS floats at most, and sums of these in double; products are in double. Of squares that come to more than
 *           floats are, or to so little that some may have been lost, the sum is made again in double. A NaN is greater and less than
 *           all, as in the reference function.
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/rows.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"

enum { LANES = 4, VECTORS = 8, WIDTH = LANES * VECTORS, TERMS = 64, SHORT = 8, SHARED_LEAST = 8192 /* terms for each member of a team */ };

#define SQUARES_LEAST 1e-20 /* in so much a square that is less than floats are is nothing */
#define NORM_LEAST    1e-30 /* neither it nor its reciprocal is beyond floats */

#define INLINE static inline __attribute__((always_inline)) /* the way is a constant */

typedef float vector __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t choice __attribute__((vector_size(LANES * sizeof(int32_t))));

enum way { ADD, ADD_MAGNITUDES, ADD_SQUARES, ADD_EXPONENTIALS, MULTIPLY, GREATEST, LEAST };

/* ---- Terms ------------------------------------------------------------------------------------------ */

INLINE vector
combine(enum way way, vector so_far, vector x)
{
    switch (way) {
    case ADD:
        return so_far + x;
    case ADD_MAGNITUDES:
        return so_far + (vector)((choice)x & INT32_MAX);
    case ADD_SQUARES:
        return so_far + x * x;
    default:
        break;
    }
    /* x is beyond, or no number */
    const choice beyond = (way == GREATEST ? x > so_far : x < so_far) | ~(x >= x);
    return (vector)((beyond & (choice)x) | (~beyond & (choice)so_far));
}

/* Into WIDTH floats `so_far`: as many of each of `terms` terms, `stride` apart. */
INLINE void
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

INLINE float
combine_two(enum way way, float so_far, float x)
{
    switch (way) {
    case ADD:
        return so_far + x;
    case ADD_MAGNITUDES:
        return so_far + fabsf(x);
    case ADD_SQUARES:
        return so_far + x * x;
    default:
        return isnan(x) || (way == GREATEST ? x > so_far : x < so_far) ? x : so_far;
    }
}

INLINE void
add_narrow(enum way way, float *so_far, const float *x, size_t terms, size_t stride, size_t width)
{
    for (size_t t = 0; t < terms; t++, x += stride) {
        for (size_t l = 0; l < width; l++) {
            so_far[l] = combine_two(way, so_far[l], x[l]);
        }
    }
}

INLINE void
add_terms(enum way way, float *so_far, const float *x, size_t terms, size_t stride, size_t width)
{
    if (width == WIDTH) {
        add_wide(way, so_far, x, terms, stride);
    } else {
        add_narrow(way, so_far, x, terms, stride, width);
    }
}

INLINE void
multiply_terms(double *totals, const float *x, size_t terms, size_t stride, size_t width)
{
    for (size_t t = 0; t < terms; t++, x += stride) {
        for (size_t l = 0; l < width; l++) {
            totals[l] *= (double)x[l];
        }
    }
}

static bool
has_vectors(void)
{
#if defined(__x86_64__)
    return cpu_vector_lanes() > 0;
#else
    return false;
#endif
}

/* There are vectors. */
static void
add_exponentials(double *totals, const float *x, size_t terms, size_t stride, size_t width, const float *less)
{
#if defined(__x86_64__)
    if (cpu_has_avx512()) {
        cpu_add_exponentials_avx512(x, terms, stride, width, less, totals);
    } else {
        cpu_add_exponentials_avx2(x, terms, stride, width, less, totals);
    }
#else
    (void)totals, (void)x, (void)terms, (void)stride, (void)width, (void)less;
#endif
}

/* What a unit has come to; `totals` are of sums and products. Of exponentials so_far is the greatest, which is taken off first. */
struct unit {
    float so_far[WIDTH];
    double totals[WIDTH];
};

INLINE void
start(enum way way, struct unit *unit, size_t width)
{
    for (size_t l = 0; l < width; l++) {
        unit->so_far[l] = way == GREATEST ? -INFINITY : way == LEAST ? INFINITY : 0;
        unit->totals[l] = way == MULTIPLY;
    }
}

INLINE void
add_run(enum way way, struct unit *unit, const float *x, size_t terms, size_t stride, size_t width)
{
    if (way == GREATEST || way == LEAST) {
        add_terms(way, unit->so_far, x, terms, stride, width);
        return;
    }
    if (way == MULTIPLY) {
        if (width == WIDTH) {
            multiply_terms(unit->totals, x, terms, stride, WIDTH);
        } else {
            multiply_terms(unit->totals, x, terms, stride, width);
        }
        return;
    }
    if (way == ADD_EXPONENTIALS) {
        add_exponentials(unit->totals, x, terms, stride, width, unit->so_far);
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
INLINE bool
takes_rows(enum way way, const struct cpu_step *step)
{
    return way != MULTIPLY && step->inner == 0 && (step->dims[step->rank - 1] >= SHORT || way == ADD_EXPONENTIALS) && has_vectors();
}

/* Such a one, into lane 0. */
INLINE void
add_row(enum way way, struct unit *unit, const float *x, size_t terms)
{
#if defined(__x86_64__)
    const bool wide = cpu_has_avx512();
    float row;

    switch (way) {
    case ADD:
        unit->totals[0] += wide ? cpu_row_total_avx512(x, terms) : cpu_row_total_avx2(x, terms);
        return;
    case ADD_MAGNITUDES:
        unit->totals[0] += wide ? cpu_row_magnitudes_avx512(x, terms) : cpu_row_magnitudes_avx2(x, terms);
        return;
    case ADD_SQUARES:
        unit->totals[0] += wide ? cpu_row_squares_avx512(x, terms) : cpu_row_squares_avx2(x, terms);
        return;
    case ADD_EXPONENTIALS:
        unit->totals[0] +=
            wide ? cpu_row_exponentials_avx512(x, terms, unit->so_far[0]) : cpu_row_exponentials_avx2(x, terms, unit->so_far[0]);
        return;
    case GREATEST:
        row = wide ? cpu_row_greatest_avx512(x, terms) : cpu_row_greatest_avx2(x, terms);
        break;
    default:
        row = wide ? cpu_row_least_avx512(x, terms) : cpu_row_least_avx2(x, terms);
        break;
    }
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

/* From one row of terms along the last axis that goes to the next; false behind the last. */
static inline bool
next_row(const struct cpu_step *step, int64_t at[LEAT_RANK_MAX], const float **x)
{
    for (size_t d = step->rank - 1; d-- > step->outer;) {
        *x += step->strides[d];
        if (++at[d] < step->dims[d]) {
            return true;
        }
        *x -= step->strides[d] * step->dims[d];
        at[d] = 0;
    }
    return false;
}

INLINE void
add_all(enum way way, const struct cpu_step *step, const float *x, size_t width, bool rows, struct unit *unit)
{
    const size_t last = step->rank - 1, terms = (size_t)step->dims[last];
    int64_t at[LEAT_RANK_MAX] = {0};

    do {
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
    } while (next_row(step, at, &x));
}

/* Of one result, in double. */
static double
add_exactly(const struct cpu_step *step, const float *x)
{
    const size_t last = step->rank - 1;
    int64_t at[LEAT_RANK_MAX] = {0};
    double sum = 0;

    do {
        for (int64_t t = 0; t < step->dims[last]; t++) {
            const double term = (double)x[t * step->strides[last]];
            sum += term * term;
        }
    } while (next_row(step, at, &x));
    return sum;
}

/* Of the terms from x on. */
INLINE float
result(enum way way, const struct cpu_step *step, const struct unit *unit, size_t lane, const float *x, double divisor)
{
    double total = unit->totals[lane];

    if (way == GREATEST || way == LEAST) {
        return unit->so_far[lane];
    }
    if (way == ADD_SQUARES && (total < SQUARES_LEAST || isinf(total))) {
        total = add_exactly(step, x);
    }
    switch (step->node->op->kind) {
    case LEAT_OP_REDUCE_L2:
        return (float)sqrt(total);
    case LEAT_OP_REDUCE_LOG_SUM:
        return (float)log(total);
    case LEAT_OP_REDUCE_LOG_SUM_EXP:
        return (float)(log(total) + (double)unit->so_far[lane]);
    case LEAT_OP_REDUCE_MEAN:
        return (float)(total / divisor);
    default:
        return (float)total;
    }
}

/* A result of few terms side by side, without lanes. */
INLINE float
reduce_short(enum way way, const struct cpu_step *step, const float *x, size_t terms, double divisor)
{
    struct unit unit;

    start(way, &unit, 1);
    for (size_t t = 0; t < terms; t++) {
        const double term = (double)x[t];
        if (way == GREATEST || way == LEAST) {
            unit.so_far[0] = combine_two(way, unit.so_far[0], x[t]);
        } else if (way == MULTIPLY) {
            unit.totals[0] *= term;
        } else {
            unit.totals[0] += way == ADD_MAGNITUDES ? fabs(term) : way == ADD_SQUARES ? term * term : term;
        }
    }
    return result(way, step, &unit, 0, x, divisor);
}

/* Of `width` results, or of one in as many lanes: into lane 0. */
INLINE void
reduce_unit(enum way way, const struct cpu_step *step, const float *x, size_t width, bool rows, struct unit *unit)
{
    start(way, unit, width);
    add_all(way, step, x, width, rows, unit);
    for (size_t l = 1; l < width && step->inner == 0; l++) {
        unit->so_far[0] = combine_two(way, unit->so_far[0], unit->so_far[l]);
        unit->totals[0] = way == MULTIPLY ? unit->totals[0] * unit->totals[l] : unit->totals[0] + unit->totals[l];
    }
}

/* The greatest first: it is the result where it is infinite or no number. */
static void
reduce_exponentials(const struct cpu_step *step, const float *x, size_t width, bool rows, struct unit *unit)
{
    float most[WIDTH];

    reduce_unit(GREATEST, step, x, width, rows, unit);
    memcpy(most, unit->so_far, sizeof(most));
    for (size_t l = 0; l < width; l++) {
        unit->so_far[l] = isfinite(most[l]) ? most[l] : 0;
    }
    add_all(ADD_EXPONENTIALS, step, x, width, rows, unit);
    for (size_t l = 0; l < width; l++) {
        if (!isfinite(most[l])) {
            unit->so_far[l] = most[l];
            unit->totals[l] = 1;
        }
    }
}

INLINE void
reduce_units(enum way way, const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t blocks = step->inner > 0 ? (step->inner + WIDTH - 1) / WIDTH : 1;
    const size_t terms = (size_t)step->dims[step->rank - 1];
    const bool rows = takes_rows(way, step);
    double divisor = 1;
    struct unit unit;

    for (uint32_t d = (uint32_t)step->outer; d < step->rank && step->node->op->kind == LEAT_OP_REDUCE_MEAN; d++) {
        divisor *= (double)step->dims[d];
    }
    for (size_t u = begin; u < end; u++) {
        const size_t o = u / blocks, first = u % blocks * WIDTH;
        const float *x = (const float *)call->pointers[0] + begin_of(step, o) + first;
        float *y = (float *)call->pointers[1] + (step->inner > 0 ? o * step->inner + first : o);
        if (step->inner == 0 && terms < WIDTH && !rows && step->rank == step->outer + 1) {
            *y = reduce_short(way, step, x, terms, divisor);
            continue;
        }
        const size_t side = step->inner - first < WIDTH ? step->inner - first : WIDTH;
        const size_t width = step->inner > 0 ? side : rows ? 1 : terms < WIDTH ? terms : WIDTH;
        if (way == ADD_EXPONENTIALS) {
            reduce_exponentials(step, x, width, rows, &unit);
        } else {
            reduce_unit(way, step, x, width, rows, &unit);
        }
        for (size_t l = 0; l < (step->inner > 0 ? width : 1); l++) {
            y[l] = result(way, step, &unit, l, x + l, divisor);
        }
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
    case LEAT_OP_REDUCE_L1:
        reduce_units(ADD_MAGNITUDES, call, begin, end);
        break;
    case LEAT_OP_REDUCE_L2:
    case LEAT_OP_REDUCE_SUM_SQUARE:
        reduce_units(ADD_SQUARES, call, begin, end);
        break;
    case LEAT_OP_REDUCE_LOG_SUM_EXP:
        reduce_units(ADD_EXPONENTIALS, call, begin, end);
        break;
    case LEAT_OP_REDUCE_PROD:
        reduce_units(MULTIPLY, call, begin, end);
        break;
    default: /* sums, means and logarithms of sums */
        reduce_units(ADD, call, begin, end);
    }
}

/* How many there are, and how many terms each has. */
static size_t
units_of(const struct cpu_step *step, size_t *ret_terms)
{
    size_t units = 1;

    *ret_terms = step->inner > 0 ? WIDTH : 1;
    for (size_t d = 0; d < step->rank; d++) {
        if (d >= step->outer) {
            *ret_terms *= (size_t)step->dims[d];
        } else if (step->inner > 0 && d + 1 == step->outer) {
            units *= (step->inner + WIDTH - 1) / WIDTH;
        } else {
            units *= (size_t)step->dims[d];
        }
    }
    return units;
}

static enum leat_status
reduce(const struct cpu_call *call)
{
    size_t terms;
    const size_t units = units_of(call->step, &terms);

    cpu_share(call, reduce_part, units, 1 + SHARED_LEAST / terms);
    return LEAT_OK;
}

/* ---- MeanVarianceNormalization ------------------------------------------------------------------------ */

#if defined(__x86_64__)
#define DEVIATION_MORE 1e-9 /* is added to a deviation */

/* Columns, or with width 0 a row. */
struct normalisation {
    size_t width;
    float middle[WIDTH], by[WIDTH], shift[WIDTH];
    double sums[WIDTH], squares[WIDTH];
};

static void
add_moments(const struct cpu_step *step, const float *x, struct normalisation *n)
{
    const size_t last = step->rank - 1, terms = (size_t)step->dims[last], stride = (size_t)step->strides[last];
    int64_t at[LEAT_RANK_MAX] = {0};

    memset(n->sums, 0, sizeof(n->sums));
    memset(n->squares, 0, sizeof(n->squares));
    do {
        if (n->width > 0) {
            (cpu_has_avx512() ? cpu_add_column_moments_avx512 : cpu_add_column_moments_avx2)(x, terms, stride, n->width, n->middle,
                                                                                             n->sums, n->squares);
        } else {
            (cpu_has_avx512() ? cpu_add_moments_avx512 : cpu_add_moments_avx2)(x, terms, n->middle[0], n->sums, n->squares);
        }
    } while (next_row(step, at, &x));
}

/* Of one result, in double: where floats do not hold the sums or what is left of numbers less their mean. */
static void
centre_exactly(const struct cpu_step *step, const float *x, double terms, float *y)
{
    const size_t last = step->rank - 1;
    const int64_t stride = step->strides[last];
    double mean = 0, squares = 0, by = 0;

    for (int round = 0; round < 3; round++) {
        int64_t at[LEAT_RANK_MAX] = {0};
        const float *row = x;
        do {
            for (int64_t t = 0; t < step->dims[last]; t++) {
                const double d = (double)row[t * stride] - mean;
                if (round == 0) {
                    squares += d; /* of the numbers, so far */
                } else if (round == 1) {
                    squares += d * d;
                } else {
                    y[row - x + t * stride] = (float)(d * by);
                }
            }
        } while (next_row(step, at, &row));
        if (round == 0) {
            mean = squares / terms;
            squares = 0;
        } else {
            by = 1 / (sqrt(squares / terms) + DEVIATION_MORE);
        }
    }
}

static void
move_all(const struct cpu_step *step, const float *x, const struct normalisation *n, float *y)
{
    const size_t last = step->rank - 1, terms = (size_t)step->dims[last], stride = (size_t)step->strides[last];
    const float *const begin = x;
    int64_t at[LEAT_RANK_MAX] = {0};

    do {
        float *to = y + (x - begin);
        if (n->width > 0) {
            (cpu_has_avx512() ? cpu_move_columns_avx512 : cpu_move_columns_avx2)(x, terms, stride, n->width, n->middle, n->by, n->shift, to);
        } else {
            (cpu_has_avx512() ? cpu_move_row_avx512 : cpu_move_row_avx2)(x, terms, n->middle[0], n->by[0], n->shift[0], to);
        }
    } while (next_row(step, at, &x));
}

/*
 * args: x, y, which are apart. The mean of what is left of numbers less a float beside their mean makes up for what that is beside it,
 * and the float nearest to both is what they are moved by: of numbers that are all the same, to 0.
 */
static void
centre_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t blocks = step->inner > 0 ? (step->inner + WIDTH - 1) / WIDTH : 1;
    struct normalisation n;
    double terms = 1;

    for (uint32_t d = (uint32_t)step->outer; d < step->rank; d++) {
        terms *= (double)step->dims[d];
    }
    for (size_t u = begin; u < end; u++) {
        const size_t first = u % blocks * WIDTH, at = begin_of(step, u / blocks) + first, side = step->inner - first;
        const float *x = (const float *)call->pointers[0] + at;
        float *y = (float *)call->pointers[1] + at;
        bool far[WIDTH] = {false};
        n.width = step->inner == 0 ? 0 : side < WIDTH ? side : WIDTH;
        const size_t results = n.width > 0 ? n.width : 1;
        memset(n.middle, 0, sizeof(n.middle));
        add_moments(step, x, &n);
        for (size_t l = 0; l < results; l++) {
            n.middle[l] = (float)(n.sums[l] / terms);
        }
        add_moments(step, x, &n);
        for (size_t l = 0; l < results; l++) {
            const double near = n.sums[l] / terms, mean = (double)n.middle[l] + near;
            const double variance = n.squares[l] / terms - near * near;
            const double by = 1 / (sqrt(variance < 0 ? 0 : variance) + DEVIATION_MORE);
            far[l] = !isfinite(n.squares[l]);
            n.middle[l] = (float)mean;
            n.by[l] = (float)by;
            n.shift[l] = (float)(((double)n.middle[l] - mean) * by);
        }
        move_all(step, x, &n, y);
        for (size_t l = 0; l < results; l++) {
            if (far[l]) {
                centre_exactly(step, x + l, terms, y + l);
            }
        }
    }
}

static enum leat_status
centre(const struct cpu_call *call)
{
    size_t terms;
    const size_t units = units_of(call->step, &terms);

    cpu_share(call, centre_part, units, 1 + SHARED_LEAST / terms);
    return LEAT_OK;
}
#endif

/* ---- LpNormalization -------------------------------------------------------------------------------- */

/* Of one row, of terms `stride` apart, as the reference function has it. */
static void
normalise_exactly(const float *x, size_t terms, size_t stride, bool euclidean, float *y)
{
    double sum = 0;

    for (size_t t = 0; t < terms; t++) {
        const double term = (double)x[t * stride];
        sum += euclidean ? term * term : fabs(term);
    }
    const double norm = euclidean ? sqrt(sum) : sum;
    for (size_t t = 0; t < terms; t++) {
        y[t * stride] = norm == 0 ? 0 : (float)((double)x[t * stride] / norm);
    }
}

/* A step's: outer times dims[0] terms of `inner` columns, the axes as a reduction's. Units are as there. */
INLINE void
normalise_units(enum way way, const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t terms = (size_t)step->dims[step->rank - 1], columns = step->inner > 0 ? step->inner : 1;
    const size_t blocks = (columns + WIDTH - 1) / WIDTH;
    const bool rows = takes_rows(way, step), euclidean = way == ADD_SQUARES;
    float by[WIDTH];
    struct unit unit;

    for (size_t u = begin; u < end; u++) {
        const size_t at = u / blocks * terms * columns + u % blocks * WIDTH, left = columns - u % blocks * WIDTH;
        const size_t width = left < WIDTH ? left : WIDTH;
        const float *x = (const float *)call->pointers[0] + at;
        float *y = (float *)call->pointers[1] + at;
        bool odd = false;
        reduce_unit(way, step, x, step->inner > 0 || rows ? width : terms < WIDTH ? terms : WIDTH, rows, &unit);
        for (size_t l = 0; l < width; l++) {
            const double norm = euclidean ? sqrt(unit.totals[l]) : unit.totals[l];
            const bool fits = norm > (euclidean ? sqrt(SQUARES_LEAST) : NORM_LEAST) && norm < 1 / NORM_LEAST;
            by[l] = fits ? (float)(1 / norm) : 0;
            odd = odd || !fits;
        }
        for (size_t t = 0; t < terms && step->inner > 0; t++) {
            for (size_t l = 0; l < width; l++) {
                y[t * columns + l] = x[t * columns + l] * by[l];
            }
        }
        for (size_t t = 0; t < terms && step->inner == 0; t++) {
            y[t] = x[t] * by[0];
        }
        for (size_t l = 0; l < width && odd; l++) {
            if (by[l] == 0) {
                normalise_exactly(x + l, terms, columns, euclidean, y + l);
            }
        }
    }
}

/* args: x, y, which are apart. */
static void
normalise_part(const struct cpu_call *call, size_t begin, size_t end)
{
    if (leat_node_int(call->step->node, "p", 2) == 2) {
        normalise_units(ADD_SQUARES, call, begin, end);
    } else {
        normalise_units(ADD_MAGNITUDES, call, begin, end);
    }
}

static enum leat_status
normalise(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    const size_t blocks = step->inner > 0 ? (step->inner + WIDTH - 1) / WIDTH : 1;

    cpu_share(call, normalise_part, step->count * blocks,
              1 + SHARED_LEAST / ((size_t)step->dims[step->rank - 1] * (step->inner > 0 ? WIDTH : 1)));
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

static enum leat_status
add_reduction(struct cpu_builder *b, uint32_t mask, enum leat_status (*kernel)(const struct cpu_call *call))
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0);
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
        status = cpu_add_kernel(b, kernel, args, 2, &step);
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

enum leat_status
cpu_lower_reduce(struct cpu_builder *b)
{
    const bool exponentials = b->node->op->kind == LEAT_OP_REDUCE_LOG_SUM_EXP;
    return exponentials && !has_vectors() ? LEAT_AGAIN : add_reduction(b, leat_reduce_axes(b->graph, b->node), reduce);
}

enum leat_status
cpu_lower_mean_variance(struct cpu_builder *b)
{
#if defined(__x86_64__)
    return has_vectors() ? add_reduction(b, leat_mean_variance_axes(b->graph, b->node), centre) : LEAT_AGAIN;
#else
    (void)b;
    return LEAT_AGAIN;
#endif
}

enum leat_status
cpu_lower_lp_normalization(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0);
    struct cpu_arg args[2] = {{0, 0}};
    size_t inner = 1;
    struct cpu_step *step;

    if (x->dtype != LEAT_DTYPE_F32 || leat_value_elements(x) == 0) {
        return LEAT_AGAIN;
    }
    const uint32_t axis = (uint32_t)leat_node_axis(b->node, -1, x->rank);
    for (uint32_t d = axis + 1; d < x->rank; d++) {
        inner *= (size_t)x->dims[d];
    }
    enum leat_status status = cpu_plain(b, b->node->inputs[0], &args[0].tensor);
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, normalise, args, 2, &step);
    }
    if (status == LEAT_OK) { /* one axis goes, and that beside it stays */
        step->outer = inner > 1;
        step->rank = 1 + (uint32_t)step->outer;
        step->inner = inner > 1 ? inner : 0;
        step->dims[0] = (int64_t)inner;
        step->strides[0] = 1;
        step->dims[step->outer] = x->dims[axis];
        step->strides[step->outer] = (int64_t)inner;
        step->count = leat_value_elements(x) / ((size_t)x->dims[axis] * inner);
    }
    return status;
}
