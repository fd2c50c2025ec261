/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of two computed matrices of any sizes, either of them transposed, or of as many pairs as broadcasting makes, with AVX2:
 * oneDNN's lock a mutex and allocate in each run. The second matrix is copied into panels, a block at a time.
 *
 * Blocks     Of INNERS terms: a panel of them stays in the first-level cache, those of COLUMNS_MOST columns and BLOCK_ROWS rows in
 *            the second-level one.
 * Numerics   A sum's terms are added in one order, whatever the number of matrices and of members; with few rows beside a transposed
 *            second side in another than with more.
 * Threads    Members divide matrices, columns and rows, and copy what they multiply, each into scratch of its own.
 */
#define CPU_VECTOR_BITS 256
#include <string.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/held.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"
#include "kernels/team.h"

enum {
    INNERS = 256,
    COLUMNS_MOST = 16 * CPU_PANEL,
    BLOCK_ROWS = 16 * CPU_ROWS,
    MEMBER_LEAST = 65536, /* multiplications that are worth a member of a team */
    UNITS = 2,            /* for each of them: what divides evenly is not so important then */
    FEW_ROWS = 12,        /* for which the second matrix is read where it lies, */
    AHEAD = 8,            /* such rows of that asked for before, */
    AT_ONCE = 8,          /* and multiplied at a time by a single row */
    DOT_ROWS = 4,         /* the same where its columns lie as rows */
};

enum { LEFT, RIGHT, RESULT, SCRATCH, BIAS, ARGS }; /* of a step; the last only where there is a bias */

struct product {
    const struct leat_node *node;
    int64_t rows, inner, columns, matrices;
    bool left_across, right_across; /* transposed */
    /* Axes of the result in front of its matrices, and how far apart matrices of either side are along them: 0 where one stands for all. */
    uint32_t rank;
    int64_t dims[LEAT_RANK_MAX], left_steps[LEAT_RANK_MAX], right_steps[LEAT_RANK_MAX];
    /* Units that members take, in this order. */
    uint32_t members;
    int64_t row_units, column_units;
};

static void
find_steps(const struct leat_value *value, const struct leat_value *y, int64_t *ret_steps)
{
    int64_t step = value->dims[value->rank - 1] * value->dims[value->rank - 2];

    for (uint32_t d = y->rank - 2; d-- > 0;) {
        const uint32_t missing = y->rank - value->rank;
        const int64_t count = d < missing ? 1 : value->dims[d - missing];
        ret_steps[d] = count == 1 ? 0 : step;
        step *= count;
    }
}

static int64_t
panels_of(const struct product *p)
{
    return (p->columns + CPU_PANEL - 1) / CPU_PANEL;
}

/* Columns first: of their own each member copies no others. */
static void
divide(struct product *p, uint32_t threads)
{
    const double all = (double)p->matrices * (double)p->rows * (double)p->inner * (double)p->columns;
    const double worth = all / MEMBER_LEAST;

    p->members = worth < 1 ? 1 : worth < threads ? (uint32_t)worth : threads;
    const int64_t units = p->members > 1 ? (int64_t)UNITS * p->members : 1, panels = panels_of(p);
    const int64_t least = (p->columns + COLUMNS_MOST - 1) / COLUMNS_MOST, wanted = (units + p->matrices - 1) / p->matrices;
    p->column_units = wanted < least ? least : wanted < panels ? wanted : panels;
    const int64_t left = (wanted + p->column_units - 1) / p->column_units, blocks = (p->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    p->row_units = left < 1 ? 1 : left < blocks ? left : blocks;
}

static struct product
product_of(const struct leat_graph *graph, const struct leat_node *node, uint32_t threads)
{
    const struct leat_value *x = leat_node_input(graph, node, 0), *w = leat_node_input(graph, node, 1), *y = leat_node_output(graph, node, 0);
    const bool gemm = node->op->kind == LEAT_OP_GEMM;
    struct product p = {.node = node,
                        .left_across = gemm && leat_node_int(node, "transA", 0) != 0,
                        .right_across = gemm && leat_node_int(node, "transB", 0) != 0,
                        .rows = y->dims[y->rank - 2],
                        .columns = y->dims[y->rank - 1],
                        .matrices = 1,
                        .rank = y->rank - 2};

    p.inner = x->dims[x->rank - (p.left_across ? 2 : 1)];
    for (uint32_t d = 0; d < p.rank; d++) {
        p.dims[d] = y->dims[d];
        p.matrices *= y->dims[d];
    }
    find_steps(x, y, p.left_steps);
    find_steps(w, y, p.right_steps);
    divide(&p, threads);
    return p;
}

/* ---- Copies ----------------------------------------------------------------------------------------- */

/* Rows of columns, `stride` apart, become rows of panels, `inners` of them a panel, with zeros behind the last column. */
CPU_KERNEL static void
pack(const float *from, int64_t stride, int64_t inners, int64_t columns, float *ret_panels)
{
    for (int64_t k = 0; k < inners; k++, from += stride) {
        float *to = ret_panels + k * CPU_PANEL;
        for (int64_t c = 0; c < columns; c += CPU_PANEL, to += inners * CPU_PANEL) {
            CPU_V(store)(to, cpu_load_first(from + c, columns - c));
            CPU_V(store)(to + CPU_LANES, columns - c > CPU_LANES ? cpu_load_first(from + c + CPU_LANES, columns - c - CPU_LANES) : CPU_V(setzero)());
        }
    }
}

/*
 * to[r][c] = from[c][r]: of `rows` and `columns` of the copy, filled up with zeros to whole vectors of columns. What `from` and `to`
 * have in a row is so many numbers apart.
 */
CPU_INLINE void
transpose(const float *from, int64_t from_stride, int64_t rows, int64_t columns, float *to, int64_t to_stride)
{
    for (int64_t r = 0; r < rows; r += CPU_LANES) {
        cpu_floats x[CPU_LANES];
#pragma GCC unroll 8
        for (int64_t c = 0; c < CPU_LANES; c++) {
            x[c] = c < columns ? cpu_load_first(from + c * from_stride + r, rows - r) : CPU_V(setzero)();
        }
        cpu_transpose(x);
        for (int64_t i = 0; i < CPU_LANES && r + i < rows; i++) {
            CPU_V(storeu)(to + (r + i) * to_stride, x[i]);
        }
    }
}

/* The same of columns that are rows there. */
CPU_KERNEL static void
pack_across(const float *from, int64_t stride, int64_t inners, int64_t columns, float *ret_panels)
{
    for (int64_t c = 0; c < columns; c += CPU_PANEL, ret_panels += inners * CPU_PANEL) {
        transpose(from + c * stride, stride, inners, columns - c, ret_panels, CPU_PANEL);
        if (columns - c > CPU_LANES) {
            transpose(from + (c + CPU_LANES) * stride, stride, inners, columns - c - CPU_LANES, ret_panels + CPU_LANES, CPU_PANEL);
        }
    }
}

/* Rows that are columns there, INNERS apart. */
CPU_KERNEL static void
pack_rows(const float *from, int64_t stride, int64_t rows, int64_t inners, float *ret_rows)
{
    for (int64_t k = 0; k < inners; k += CPU_LANES) {
        transpose(from + k * stride, stride, rows, inners - k, ret_rows + k, INNERS);
    }
}

/* ---- Sums ------------------------------------------------------------------------------------------- */

/* What all tiles of a block have in common. */
struct part {
    const struct product *p;
    int64_t inners, row_stride; /* of the left side */
    const float *bias;          /* of the first column; NULL: none */
    bool first, last;
};

/* `count` rows, a constant, and `left` columns, or more, of a panel, of `vectors`, a constant. */
CPU_INLINE void
tile(const struct part *part, const float *x, const float *panel, const float *bias, float *y, int64_t left, const int vectors,
     const int count)
{
    const int64_t columns = part->p->columns;
    const bool adds = !part->first || part->p->node->fused_add != LEAT_VALUE_NONE;
    cpu_floats sums[CPU_ROWS][CPU_VECTORS];
    const float *rows[CPU_ROWS];

#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
        const cpu_floats start = bias != NULL ? cpu_load_first(bias + v * CPU_LANES, left - v * CPU_LANES) : CPU_V(setzero)();
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            sums[r][v] = start;
            if (adds) {
                sums[r][v] = CPU_V(add)(start, cpu_load_first(y + r * columns + v * CPU_LANES, left - v * CPU_LANES));
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
        rows[r] = x + r * part->row_stride;
    }
    cpu_product_in_steps(rows, part->inners, panel, panel, CPU_NO_STEP, sums, vectors, count);
#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const cpu_floats sum = part->last ? cpu_held(part->p->node, sums[r][v]) : sums[r][v];
            cpu_store_first(y + r * columns + v * CPU_LANES, left - v * CPU_LANES, sum);
        }
    }
}

CPU_INLINE void
tiles(const struct part *part, const float *x, int64_t count, const float *panel, const float *bias, float *y, int64_t left,
      const int vectors)
{
    const int64_t groups = cpu_groups(count);

    for (int64_t g = 0; g < groups; g++) {
        const int64_t r = count * g / groups;
        const float *from = x + r * part->row_stride;
        float *to = y + r * part->p->columns;
        switch (count * (g + 1) / groups - r) {
        case 1: tile(part, from, panel, bias, to, left, vectors, 1); break;
        case 2: tile(part, from, panel, bias, to, left, vectors, 2); break;
        case 3: tile(part, from, panel, bias, to, left, vectors, 3); break;
        case 4: tile(part, from, panel, bias, to, left, vectors, 4); break;
        case 5: tile(part, from, panel, bias, to, left, vectors, 5); break;
        default: tile(part, from, panel, bias, to, left, vectors, CPU_ROWS); break;
        }
    }
}

/* `count` rows, a constant, times so many vectors of the second matrix as it lies; both together are twelve sums at most. */
CPU_INLINE void
stream(const struct part *part, const float *x, const float *w, const float *bias, float *y, const int vectors, const int count)
{
    const int64_t columns = part->p->columns;
    const bool adds = !part->first || part->p->node->fused_add != LEAT_VALUE_NONE;
    cpu_floats sums[CPU_ROWS][2 * CPU_VECTORS];

#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
        const cpu_floats start = bias != NULL ? CPU_V(loadu)(bias + v * CPU_LANES) : CPU_V(setzero)();
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            sums[r][v] = adds ? CPU_V(add)(start, CPU_V(loadu)(y + r * columns + v * CPU_LANES)) : start;
        }
    }
    for (int64_t k = 0; k < part->inners; k++, w += columns) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v += CPU_LINE / CPU_LANES) {
            _mm_prefetch((const char *)(w + AHEAD * columns + v * CPU_LANES), _MM_HINT_T0);
        }
        cpu_floats all[CPU_ROWS];
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            all[r] = CPU_V(set1)(x[r * part->row_stride + k]);
        }
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            const cpu_floats weights = CPU_V(loadu)(w + v * CPU_LANES);
#pragma GCC unroll 6
            for (int r = 0; r < count; r++) {
                sums[r][v] = CPU_V(fmadd)(all[r], weights, sums[r][v]);
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            CPU_V(storeu)(y + r * columns + v * CPU_LANES, part->last ? cpu_held(part->p->node, sums[r][v]) : sums[r][v]);
        }
    }
}

/* Two rows and more, but few: as far as there are columns for all vectors. How many that is. */
CPU_KERNEL static int64_t
stream_block(const struct part *part, const float *x, int64_t count, const float *w, float *y, int64_t columns)
{
    const int64_t wide = count <= CPU_ROWS / 2 ? 2 * CPU_PANEL : CPU_PANEL, groups = cpu_groups(count);
    int64_t c = 0;

    for (; c + wide <= columns; c += wide) {
        const float *bias = part->first && part->bias != NULL ? part->bias + c : NULL;
        if (count <= CPU_ROWS / 2) {
            switch (count) {
            case 2: stream(part, x, w + c, bias, y + c, 2 * CPU_VECTORS, 2); break;
            default: stream(part, x, w + c, bias, y + c, 2 * CPU_VECTORS, 3);
            }
            continue;
        }
        for (int64_t g = 0; g < groups; g++) { /* of three rows at least */
            const int64_t r = count * g / groups;
            const float *from = x + r * part->row_stride;
            float *to = y + r * part->p->columns + c;
            switch (count * (g + 1) / groups - r) {
            case 3: stream(part, from, w + c, bias, to, CPU_VECTORS, 3); break;
            case 4: stream(part, from, w + c, bias, to, CPU_VECTORS, 4); break;
            case 5: stream(part, from, w + c, bias, to, CPU_VECTORS, 5); break;
            default: stream(part, from, w + c, bias, to, CPU_VECTORS, CPU_ROWS); break;
            }
        }
    }
    return c;
}

/* A single row times `inners` rows, a constant, of the second matrix, and so many vectors of them. */
CPU_INLINE void
add_rows(const struct part *part, const float *x, const float *w, const float *bias, bool adds, bool last, float *y, int64_t left,
         const int vectors, const int inners)
{
    cpu_floats sums[CPU_VECTORS];

#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
        const int64_t c = v * CPU_LANES;
        sums[v] = bias != NULL ? cpu_load_first(bias + c, left - c) : CPU_V(setzero)();
        sums[v] = adds ? CPU_V(add)(sums[v], cpu_load_first(y + c, left - c)) : sums[v];
    }
#pragma GCC unroll 8
    for (int i = 0; i < inners; i++) {
        const cpu_floats all = CPU_V(set1)(x[i]);
        _mm_prefetch((const char *)(w + (i + AT_ONCE) * part->p->columns), _MM_HINT_T1);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            sums[v] = CPU_V(fmadd)(all, cpu_load_first(w + i * part->p->columns + v * CPU_LANES, left - v * CPU_LANES), sums[v]);
        }
    }
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
        cpu_store_first(y + v * CPU_LANES, left - v * CPU_LANES, last ? cpu_held(part->p->node, sums[v]) : sums[v]);
    }
}

/* A single row: of the second matrix some rows at a time, whole ones, as memory has them. */
CPU_KERNEL static void
stream_row(const struct part *part, const float *x, const float *w, float *y, int64_t columns)
{
    const bool adds = !part->first || part->p->node->fused_add != LEAT_VALUE_NONE;

    for (int64_t k = 0, inners; k < part->inners; k += inners) {
        inners = part->inners - k < AT_ONCE ? 1 : AT_ONCE;
        const float *bias = k == 0 && part->first ? part->bias : NULL, *from = w + k * part->p->columns;
        const bool last = part->last && k + inners == part->inners;
        int64_t c = 0;
        for (; c + CPU_PANEL <= columns && inners == AT_ONCE; c += CPU_PANEL) {
            add_rows(part, x + k, from + c, bias != NULL ? bias + c : NULL, k > 0 || adds, last, y + c, CPU_PANEL, CPU_VECTORS, AT_ONCE);
        }
        for (; c < columns && inners == AT_ONCE; c += CPU_LANES) {
            add_rows(part, x + k, from + c, bias != NULL ? bias + c : NULL, k > 0 || adds, last, y + c, columns - c, 1, AT_ONCE);
        }
        for (; c < columns; c += CPU_LANES) {
            add_rows(part, x + k, from + c, bias != NULL ? bias + c : NULL, k > 0 || adds, last, y + c, columns - c, 1, 1);
        }
    }
}

/* A row times four columns that are rows there, so far apart: sums of every eighth term, then of these. */
CPU_INLINE void
dot_four(const float *x, const float *w, int64_t stride, int64_t inner, float *ret_sums)
{
    cpu_floats sums[4] = {CPU_V(setzero)(), CPU_V(setzero)(), CPU_V(setzero)(), CPU_V(setzero)()};

    for (int64_t k = 0; k < inner; k += CPU_LANES) {
        const cpu_floats some = cpu_load_first(x + k, inner - k);
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) {
            sums[c] = CPU_V(fmadd)(some, cpu_load_first(w + c * stride + k, inner - k), sums[c]);
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        ret_sums[c] = cpu_sum(sums[c]);
    }
}

/* Few rows times columns that are rows there, of all terms. */
CPU_KERNEL static void
dot_rows(const struct part *part, const float *x, int64_t count, const float *w, float *y, int64_t columns)
{
    const int64_t inner = part->p->inner;

    for (int64_t c = 0; c < columns; c += 4) {
        const int64_t left = columns - c < 4 ? columns - c : 4;
        for (int64_t r = 0; r < count; r++) {
            float *to = y + r * part->p->columns + c, sums[CPU_LANES] = {0};
            for (int64_t i = 0; i < left; i += left == 4 ? 4 : 1) { /* of fewer each by itself */
                float four[4];
                dot_four(x + r * inner, w + (c + i) * inner, left == 4 ? inner : 0, inner, four);
                memcpy(sums + i, four, sizeof(four));
            }
            cpu_floats sum = CPU_V(loadu)(sums);
            sum = part->bias != NULL ? CPU_V(add)(sum, cpu_load_first(part->bias + c, left)) : sum;
            sum = part->p->node->fused_add != LEAT_VALUE_NONE ? CPU_V(add)(sum, cpu_load_first(to, left)) : sum;
            cpu_store_first(to, left, cpu_held(part->p->node, sum));
        }
    }
}

/* Rows of a block times all panels. */
CPU_KERNEL static void
multiply_block(const struct part *part, const float *x, int64_t count, const float *panels, float *y, int64_t columns)
{
    for (int64_t c = 0; c < columns; c += CPU_PANEL, panels += part->inners * CPU_PANEL) {
        const float *bias = part->first && part->bias != NULL ? part->bias + c : NULL;
        if (columns - c > CPU_LANES) {
            tiles(part, x, count, panels, bias, y + c, columns - c, 2);
        } else {
            tiles(part, x, count, panels, bias, y + c, columns - c, 1);
        }
    }
}

/* ---- Runs ------------------------------------------------------------------------------------------- */

/* Of a member: the panels, and rows where these are columns of the left side. */
static size_t
scratch_bytes(const struct product *p)
{
    const int64_t inner = p->inner < INNERS ? p->inner : INNERS, panels = (panels_of(p) + p->column_units - 1) / p->column_units;
    const int64_t rows = p->left_across ? BLOCK_ROWS * INNERS : 0;

    return (size_t)(inner * panels * CPU_PANEL + rows) * sizeof(float);
}

/* The rows first_row..last_row and columns first..last of a matrix. */
static void
add_slices(const struct product *p, const float *x, const float *w, const float *bias, float *y, int64_t first_row, int64_t last_row,
           int64_t first, int64_t last, float *scratch)
{
    const int64_t columns = last - first;
    float *rows = scratch, *panels = scratch + (p->left_across ? BLOCK_ROWS * INNERS : 0);

    for (int64_t k = 0; k < p->inner; k += INNERS) {
        const int64_t inners = p->inner - k < INNERS ? p->inner - k : INNERS;
        struct part part = {p, inners, p->left_across ? INNERS : p->inner, bias != NULL ? bias + first : NULL, k == 0,
                            k + inners == p->inner};
        int64_t done = 0;
        if (p->rows == 1 && !p->right_across) {
            stream_row(&part, x + k, w + k * p->columns + first, y + first, columns);
            done = columns;
        } else if (p->rows <= FEW_ROWS && !p->left_across && !p->right_across) {
            done = stream_block(&part, x + first_row * p->inner + k, last_row - first_row, w + k * p->columns + first,
                                y + first_row * p->columns + first, columns);
            part.bias = part.bias != NULL ? part.bias + done : NULL;
        }
        if (done == columns) {
            continue;
        }
        if (p->right_across) {
            pack_across(w + first * p->inner + k, p->inner, inners, columns, panels);
        } else {
            pack(w + k * p->columns + first + done, p->columns, inners, columns - done, panels);
        }
        for (int64_t r = first_row, count; r < last_row; r += count) {
            count = last_row - r < BLOCK_ROWS ? last_row - r : BLOCK_ROWS;
            if (p->left_across) {
                pack_rows(x + k * p->rows + r, p->rows, count, inners, rows);
            }
            multiply_block(&part, p->left_across ? rows : x + r * p->inner + k, count, panels,
                           y + r * p->columns + first + done, columns - done);
        }
    }
}

static void
multiply_unit(const struct product *p, const float *x, const float *w, const float *bias, float *y, int64_t first_row, int64_t last_row,
              int64_t first, int64_t last, float *scratch)
{
    if (p->rows <= DOT_ROWS && p->right_across && !p->left_across) {
        const struct part all = {p, p->inner, p->inner, bias != NULL ? bias + first : NULL, true, true};
        dot_rows(&all, x + first_row * p->inner, last_row - first_row, w + first * p->inner, y + first_row * p->columns + first, last - first);
    } else {
        add_slices(p, x, w, bias, y, first_row, last_row, first, last, scratch);
    }
    for (int64_t r = first_row; r < last_row && cpu_activation_runs_here(p->node->fused_activation); r++) {
        cpu_activate(p->node->fused_activation, y + r * p->columns + first, (size_t)(last - first));
    }
}

struct work {
    const struct cpu_call *call;
    struct product p;
};

static void
run_member(void *context, uint32_t member, uint32_t size)
{
    const struct work *work = context;
    const struct product *p = &work->p;
    void *const *pointers = work->call->pointers;
    const int64_t units = p->matrices * p->column_units * p->row_units, members = p->members;
    const int64_t panels = panels_of(p);
    float *scratch = (float *)pointers[SCRATCH] + member * (scratch_bytes(p) / sizeof(float));

    (void)size;
    if (member >= p->members) {
        return;
    }
    for (int64_t u = units * member / members; u < units * (member + 1) / members; u++) {
        const int64_t matrix = u / p->column_units / p->row_units, column = u / p->row_units % p->column_units, row = u % p->row_units;
        const int64_t first = panels * column / p->column_units * CPU_PANEL, end = panels * (column + 1) / p->column_units * CPU_PANEL;
        const float *x = pointers[LEFT], *w = pointers[RIGHT];
        for (int64_t d = (int64_t)p->rank - 1, left = matrix; d >= 0; left /= p->dims[d], d--) {
            x += left % p->dims[d] * p->left_steps[d];
            w += left % p->dims[d] * p->right_steps[d];
        }
        multiply_unit(p, x, w, work->call->step->arg_count > BIAS ? pointers[BIAS] : NULL,
                      (float *)pointers[RESULT] + matrix * p->rows * p->columns, p->rows * row / p->row_units,
                      p->rows * (row + 1) / p->row_units, first, end < p->columns ? end : p->columns, scratch);
    }
}

static enum leat_status
multiply(const struct cpu_call *call)
{
    struct work work = {call, product_of(call->program->graph, call->step->node, call->program->threads)};

    if (work.p.members > 1) {
        leat_team_run(call->team, run_member, &work);
    } else {
        run_member(&work, 0, 1);
    }
    return LEAT_OK;
}

enum leat_status
cpu_lower_packed_product(struct cpu_builder *b, const uint32_t *bias)
{
    const struct leat_node *node = b->node;
    const dnnl_memory_desc_t none = {.ndims = 0}, value_md = cpu_value_md(leat_node_output(b->graph, node, 0));
    struct cpu_arg args[ARGS] = {[BIAS] = {0, bias != NULL ? *bias : CPU_NONE}};
    struct cpu_step *step;

    if (cpu_vector_lanes() != CPU_HALF) {
        return LEAT_AGAIN;
    }
    const struct product p = product_of(b->graph, node, b->program->threads);
    enum leat_status status = cpu_plain(b, node->inputs[0], &args[LEFT].tensor);
    if (status == LEAT_OK) {
        status = cpu_plain(b, node->inputs[1], &args[RIGHT].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &none, p.members * scratch_bytes(&p), &args[SCRATCH].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_destination(b, &value_md, &args[RESULT].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, multiply, args, bias != NULL ? ARGS : BIAS, &step);
    }
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, args[RESULT].tensor);
    }
    return status;
}
