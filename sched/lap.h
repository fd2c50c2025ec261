/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/lap.h - linear assignment: each row to one column at least total cost, a column taking as many as it holds.
 *
 * Source    R. Jonker, A. Volgenant, "A shortest augmenting path algorithm for dense and sparse linear assignment
 *           problems", Computing 38 (1987): column reduction, augmenting row reduction, shortest augmenting paths.
 *           Columns that hold several rows make it a transportation problem: identical columns are given once, with
 *           their number as capacity, and cost one column's work. A row then evicts nobody: the price cut is only sound
 *           for a column of one row. Column reduction is only sound when no room is left in the end. Ours is the order
 *           of rows: where most columns have the same rows cheapest, the row whose best column is dearest chooses
 *           first.
 * Exact     Costs are integers, every loop is bounded: no instance runs for ever, and equal inputs give equal answers
 *           on every machine. Of equal choices a column with room wins, then the lowest number.
 * Memory    The caller's, from leat_lap_bytes; nothing is allocated. The state between calls is the last solution.
 * Units     Whatever the caller's are, nanoseconds as a rule: 0 <= cost <= LEAT_LAP_COST_MAX.
 * Duals     u[row] + v[column] <= cost, with equality where assigned; if there is room left anywhere, v <= 0, and
 *           v = 0 in columns with room. That proves the assignment optimal (linear programming duality).
 * Threads   None of its own; one state, one thread at a time.
 */
#ifndef LEAT_SCHED_LAP_H
#define LEAT_SCHED_LAP_H

#include <stddef.h>
#include <stdint.h>

#define LEAT_LAP_MAX      1024u                 /* rows, columns */
#define LEAT_LAP_LANES    8u                    /* costs of a row are padded to a multiple of it */
#define LEAT_LAP_COST_MAX (INT64_C(1) << 46)    /* 19 hours of nanoseconds */
#define LEAT_LAP_NONE     UINT32_MAX

struct leat_lap_problem {
    uint32_t rows;            /* 0..LEAT_LAP_MAX, at most what all columns hold together */
    uint32_t columns;         /* 1..LEAT_LAP_MAX */
    uint32_t stride;          /* from row to row, a multiple of LEAT_LAP_LANES, at least columns */
    const int64_t *cost;      /* [rows][stride], 64-byte aligned; beyond `columns` any value in range */
    const uint32_t *capacity; /* [columns], each at least 1; NULL: 1 each */
};

struct leat_lap;

/* 64-byte aligned memory for problems of at most this size. */
size_t leat_lap_bytes(uint32_t rows_max, uint32_t columns_max);
struct leat_lap *leat_lap_init(void *memory, uint32_t rows_max, uint32_t columns_max);

/* From nothing. */
void leat_lap_solve(struct leat_lap *lap, const struct leat_lap_problem *problem);

/*
 * From a guess, where no room is left in the end: prices of columns, between -LEAT_LAP_COST_MAX and LEAT_LAP_COST_MAX, and
 * a column of each row, LEAT_LAP_NONE for none. The answer is of least cost whatever they are; the nearer they are to the
 * duals and the assignment of one, the sooner it is there. Of several answers it may be another than from nothing.
 */
void leat_lap_solve_from(struct leat_lap *lap, const struct leat_lap_problem *problem, const int64_t *price,
                         const uint32_t *column);

/* Of the last solution. */
uint32_t leat_lap_column_of(const struct leat_lap *lap, uint32_t row);
int64_t leat_lap_row_dual(const struct leat_lap *lap, uint32_t row);       /* u */
int64_t leat_lap_column_dual(const struct leat_lap *lap, uint32_t column); /* v */

#endif /* LEAT_SCHED_LAP_H */
