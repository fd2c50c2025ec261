/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of two computed matrices, or of as many pairs of them, with AVX2: oneDNN's lock a mutex in each run, and copy
 * both sides first, which takes as long as small ones are multiplied for, and longer.
 *
 * Numerics   A sum's terms are added in one order, whatever the number of matrices and of members.
 */
#define CPU_VECTOR_BITS 256
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/held.h"
#include "kernels/cpu/program.h"

enum {
    ROWS = 4, /* that share what is read of the second side */
    WIDTH = 2 * CPU_LANES,
    RIGHT_BYTES_MOST = 32 << 10, /* of a matrix: it stays in the first-level cache while its rows are read again */
    SHARED_LEAST = 65536,         /* multiplications that are worth a team */
};

enum { LEFT, RIGHT, RESULT, ARGS }; /* of a step */

/* outer matrices of either side, of which one may stand for all: its step is 0 elements then. */
enum { ROW_COUNT, INNER, COLUMNS, LEFT_STEP, RIGHT_STEP };

/* Of `rows` rows, WIDTH columns or, unless they are whole, `left`. Both are constant but for `left`. */
CPU_INLINE void
multiply_block(const struct cpu_step *step, const float *x, const float *w, float *y, int64_t left, const bool whole, const int rows)
{
    const int64_t inner = step->dims[INNER], columns = step->dims[COLUMNS];
    cpu_floats sums[ROWS][2];

#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        sums[r][0] = sums[r][1] = CPU_V(setzero)();
    }
    for (int64_t k = 0; k < inner; k++) {
        const float *row = w + k * columns;
        const cpu_floats first = whole ? CPU_V(loadu)(row) : cpu_load_first(row, left);
        const cpu_floats second = whole ? CPU_V(loadu)(row + CPU_LANES) : left > CPU_LANES ? cpu_load_first(row + CPU_LANES, left - CPU_LANES) : CPU_V(setzero)();
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const cpu_floats all = CPU_V(set1)(x[r * inner + k]);
            sums[r][0] = CPU_V(fmadd)(all, first, sums[r][0]);
            sums[r][1] = CPU_V(fmadd)(all, second, sums[r][1]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        float *to = y + r * columns;
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++, to += CPU_LANES) {
            const int64_t there = whole ? CPU_LANES : left - v * CPU_LANES;
            if (there > 0) {
                const cpu_floats sum = step->node->fused_add == LEAT_VALUE_NONE ? sums[r][v] : CPU_V(add)(sums[r][v], cpu_load_first(to, there));
                cpu_store_first(to, there, cpu_held(step->node, sum));
            }
        }
    }
}

CPU_INLINE void
multiply_rows(const struct cpu_step *step, const float *x, const float *w, float *y, const int rows)
{
    const int64_t columns = step->dims[COLUMNS];
    int64_t c = 0;

    for (; c + WIDTH <= columns; c += WIDTH) {
        multiply_block(step, x, w + c, y + c, WIDTH, true, rows);
    }
    if (c < columns) {
        multiply_block(step, x, w + c, y + c, columns - c, false, rows);
    }
    if (cpu_activation_runs_here(step->node->fused_activation)) {
        cpu_activate(step->node->fused_activation, y, (size_t)(rows * columns));
    }
}

static size_t
groups_of(const struct cpu_step *step)
{
    return (size_t)((step->dims[ROW_COUNT] + ROWS - 1) / ROWS);
}

/* By ROWS rows of a matrix, or what is left of it. */
CPU_KERNEL static void
multiply_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const int64_t rows = step->dims[ROW_COUNT], inner = step->dims[INNER], columns = step->dims[COLUMNS];
    const size_t groups = groups_of(step);

    for (size_t g = begin; g < end; g++) {
        const int64_t matrix = (int64_t)(g / groups), row = (int64_t)(g % groups) * ROWS;
        const float *x = (const float *)call->pointers[LEFT] + matrix * step->dims[LEFT_STEP] + row * inner;
        const float *w = (const float *)call->pointers[RIGHT] + matrix * step->dims[RIGHT_STEP];
        float *y = (float *)call->pointers[RESULT] + (matrix * rows + row) * columns;
        switch (rows - row) {
        case 1: multiply_rows(step, x, w, y, 1); break;
        case 2: multiply_rows(step, x, w, y, 2); break;
        case 3: multiply_rows(step, x, w, y, 3); break;
        default: multiply_rows(step, x, w, y, ROWS);
        }
    }
}

static enum leat_status
multiply(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    const size_t each = (size_t)(ROWS * step->dims[INNER] * step->dims[COLUMNS]);

    cpu_share(call, multiply_part, step->outer * groups_of(step), SHARED_LEAST / each + 1);
    return LEAT_OK;
}

/* How many matrices a value is. */
static int64_t
matrices_of(const struct leat_value *value)
{
    return (int64_t)leat_value_elements(value) / (value->dims[value->rank - 2] * value->dims[value->rank - 1]);
}

enum leat_status
cpu_lower_small_product(struct cpu_builder *b)
{
    const struct leat_node *node = b->node;
    const struct leat_value *x = leat_node_input(b->graph, node, 0), *w = leat_node_input(b->graph, node, 1);
    const struct leat_value *y = leat_node_output(b->graph, node, 0);
    const int64_t rows = y->dims[y->rank - 2], inner = x->dims[x->rank - 1], columns = y->dims[y->rank - 1];
    const int64_t all = matrices_of(y), left = matrices_of(x), right = matrices_of(w);
    const dnnl_memory_desc_t value_md = cpu_value_md(y);
    struct cpu_arg args[ARGS] = {{0, CPU_NONE}, {0, CPU_NONE}, {0, CPU_NONE}};
    struct cpu_step *step;

    if (cpu_vector_lanes() != CPU_HALF || cpu_model_type(b->model) != dnnl_f32 || (left != all && left != 1) ||
        (right != all && right != 1) || inner * columns * (int64_t)sizeof(float) > RIGHT_BYTES_MOST) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_plain(b, node->inputs[0], &args[LEFT].tensor);
    if (status == LEAT_OK) {
        status = cpu_plain(b, node->inputs[1], &args[RIGHT].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_destination(b, &value_md, &args[RESULT].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, multiply, args, ARGS, &step);
    }
    if (status == LEAT_OK) {
        step->outer = (size_t)all;
        step->dims[ROW_COUNT] = rows;
        step->dims[INNER] = inner;
        step->dims[COLUMNS] = columns;
        step->dims[LEFT_STEP] = left == 1 ? 0 : rows * inner;
        step->dims[RIGHT_STEP] = right == 1 ? 0 : inner * columns;
        cpu_set_output(b, 0, args[RESULT].tensor);
    }
    return status;
}
