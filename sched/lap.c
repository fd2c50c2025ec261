/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/lap.h"

#include <stdbool.h>
#include <string.h>

#include "base/align.h"
#include "base/status.h"

/*
 * Everything that is compared carries its column in the low bits, so that a minimum names its place: a key is
 * value << TAG_BITS | FULL if the column has no room | column. Duals and distances are kept shifted, low bits zero.
 */
enum { TAG_BITS = 11, COLUMN_MASK = 1023, FULL = 1024 };
#define TAG_MASK (((int64_t)1 << TAG_BITS) - 1)
#define NEVER    (INT64_C(1) << 60) /* above every key */
#define CLOSED   (-NEVER * 2)       /* a price that no key stays below NEVER with */
_Static_assert(LEAT_LAP_MAX <= FULL, "a column fits its bits");
/* From guessed prices, a reduced cost comes to four times the greatest cost at most, and the way there to three times. */
_Static_assert((LEAT_LAP_COST_MAX << TAG_BITS) * 7 + TAG_MASK < NEVER, "a key stays below NEVER");

struct leat_lap {
    uint32_t rows_max, columns_max; /* the latter rounded up to lanes */
    uint32_t rows, columns, padded;
    uint32_t room; /* rows that could still be taken */

    /* By column, padded. */
    int64_t *price;   /* v; CLOSED in padding */
    int64_t *tag;     /* column, with FULL if it is */
    int64_t *key;     /* best way there in this search; NEVER once done */
    int64_t *barred;  /* price, or CLOSED once done */
    int64_t *origin;  /* row that the best way comes from */
    uint32_t *count;  /* rows in it */
    uint32_t *holds;  /* its capacity */
    uint32_t *first;  /* row, LEAT_LAP_NONE at the end */
    uint32_t *done;   /* columns in the order in which a search closed them */
    int64_t *distance; /* of done[i] */

    /* By row. */
    int64_t *dual;            /* u */
    uint32_t *column;         /* LEAT_LAP_NONE: none */
    uint32_t *next, *previous; /* in the same column */
    uint32_t *waiting;         /* rows to be assigned, a stack */
};

/* ---- Memory ----------------------------------------------------------------------------------- */

static void *
carve(uintptr_t *at, size_t bytes)
{
    void *piece = (void *)*at;
    *at += leat_round_up(bytes, LEAT_CACHE_LINE);
    return piece;
}

/* Lays everything out from `memory` on, or from 0 on to learn the size. */
static size_t
lay_out(struct leat_lap *lap, uintptr_t memory, uint32_t rows, uint32_t columns)
{
    uintptr_t at = memory;
    (void)carve(&at, sizeof(*lap));
    lap->price = carve(&at, columns * sizeof(*lap->price));
    lap->tag = carve(&at, columns * sizeof(*lap->tag));
    lap->key = carve(&at, columns * sizeof(*lap->key));
    lap->barred = carve(&at, columns * sizeof(*lap->barred));
    lap->origin = carve(&at, columns * sizeof(*lap->origin));
    lap->count = carve(&at, columns * sizeof(*lap->count));
    lap->holds = carve(&at, columns * sizeof(*lap->holds));
    lap->first = carve(&at, columns * sizeof(*lap->first));
    lap->done = carve(&at, columns * sizeof(*lap->done));
    lap->distance = carve(&at, columns * sizeof(*lap->distance));
    lap->dual = carve(&at, rows * sizeof(*lap->dual));
    lap->column = carve(&at, rows * sizeof(*lap->column));
    lap->next = carve(&at, rows * sizeof(*lap->next));
    lap->previous = carve(&at, rows * sizeof(*lap->previous));
    lap->waiting = carve(&at, rows * sizeof(*lap->waiting));
    return at - memory;
}

size_t
leat_lap_bytes(uint32_t rows_max, uint32_t columns_max)
{
    struct leat_lap lap;
    return lay_out(&lap, 0, rows_max, (uint32_t)leat_round_up(columns_max, LEAT_LAP_LANES));
}

struct leat_lap *
leat_lap_init(void *memory, uint32_t rows_max, uint32_t columns_max)
{
    struct leat_lap *lap = memory;
    LEAT_ASSERT((uintptr_t)memory % LEAT_CACHE_LINE == 0);
    LEAT_ASSERT(rows_max <= LEAT_LAP_MAX && columns_max >= 1 && columns_max <= LEAT_LAP_MAX);
    memset(lap, 0, sizeof(*lap));
    lap->rows_max = rows_max;
    lap->columns_max = (uint32_t)leat_round_up(columns_max, LEAT_LAP_LANES);
    (void)lay_out(lap, (uintptr_t)memory, rows_max, lap->columns_max);
    return lap;
}

/* ---- Loops over the columns of one row: what all the time goes into ---------------------------- */

#define INLINE static inline __attribute__((always_inline))

/* The number of columns with padding, in words that let the compiler see that whole vectors are left. */
INLINE uint32_t
padded(const struct leat_lap *lap)
{
    return lap->padded & ~(LEAT_LAP_LANES - 1);
}

/* The least of (cost - price), tagged, but for `passed`: tagged too, so it stands once; NEVER passes none over. */
INLINE int64_t
least_but(const struct leat_lap *lap, const int64_t *restrict cost, int64_t passed)
{
    const uint32_t lanes = padded(lap);
    const int64_t *restrict price = __builtin_assume_aligned(lap->price, LEAT_CACHE_LINE);
    const int64_t *restrict tag = __builtin_assume_aligned(lap->tag, LEAT_CACHE_LINE);
    int64_t best = NEVER;
    cost = __builtin_assume_aligned(cost, LEAT_CACHE_LINE);
    for (uint32_t j = 0; j < lanes; j++) {
        const int64_t value = (cost[j] << TAG_BITS) - price[j] + tag[j];
        const int64_t other = value == passed ? NEVER : value;
        best = other < best ? other : best;
    }
    return best;
}

INLINE int64_t
least(const struct leat_lap *lap, const int64_t *restrict cost)
{
    return least_but(lap, cost, NEVER);
}

/* Ways onward from `row`, whose own way costs base more than its dual says; returns the least key of all. */
INLINE int64_t
relax(const struct leat_lap *lap, const int64_t *restrict cost, int64_t base, int64_t row)
{
    const uint32_t lanes = padded(lap);
    const int64_t *restrict barred = __builtin_assume_aligned(lap->barred, LEAT_CACHE_LINE);
    const int64_t *restrict tag = __builtin_assume_aligned(lap->tag, LEAT_CACHE_LINE);
    int64_t *restrict key = __builtin_assume_aligned(lap->key, LEAT_CACHE_LINE);
    int64_t *restrict origin = __builtin_assume_aligned(lap->origin, LEAT_CACHE_LINE);
    int64_t best = NEVER;
    cost = __builtin_assume_aligned(cost, LEAT_CACHE_LINE);
    for (uint32_t j = 0; j < lanes; j++) {
        const int64_t value = (cost[j] << TAG_BITS) - barred[j] + base + tag[j];
        const int64_t known = key[j];
        const int64_t lower = value < known ? value : known;
        origin[j] = value < known ? row : origin[j];
        key[j] = lower;
        best = lower < best ? lower : best;
    }
    return best;
}

/* ---- Columns and their rows ------------------------------------------------------------------- */

INLINE void
mark_room(struct leat_lap *lap, uint32_t column)
{
    lap->tag[column] = column | (lap->count[column] >= lap->holds[column] ? FULL : 0);
}

INLINE void
put(struct leat_lap *lap, uint32_t row, uint32_t column)
{
    const uint32_t old = lap->first[column];
    lap->column[row] = column;
    lap->previous[row] = LEAT_LAP_NONE;
    lap->next[row] = old;
    if (old != LEAT_LAP_NONE) {
        lap->previous[old] = row;
    }
    lap->first[column] = row;
    lap->count[column]++;
}

INLINE void
take_out(struct leat_lap *lap, uint32_t row)
{
    const uint32_t column = lap->column[row], before = lap->previous[row], after = lap->next[row];
    if (before != LEAT_LAP_NONE) {
        lap->next[before] = after;
    } else {
        lap->first[column] = after;
    }
    if (after != LEAT_LAP_NONE) {
        lap->previous[after] = before;
    }
    lap->column[row] = LEAT_LAP_NONE;
    lap->count[column]--;
}

INLINE const int64_t *
costs_of(const struct leat_lap_problem *problem, uint32_t row)
{
    return problem->cost + (size_t)row * problem->stride;
}

/* ---- Shortest augmenting paths ---------------------------------------------------------------- */

INLINE void
begin_search(struct leat_lap *lap)
{
    const uint32_t lanes = padded(lap);
    for (uint32_t j = 0; j < lanes; j++) {
        lap->key[j] = NEVER;
        lap->barred[j] = lap->price[j];
    }
}

/* Closes `column` at `distance` and goes on from all its rows; returns the least key, NEVER if it has none. */
INLINE int64_t
close_column(struct leat_lap *lap, const struct leat_lap_problem *problem, uint32_t column, int64_t distance,
             uint32_t *done_count)
{
    int64_t best = NEVER;
    lap->done[*done_count] = column;
    lap->distance[(*done_count)++] = distance;
    lap->key[column] = NEVER;
    lap->barred[column] = CLOSED;
    for (uint32_t row = lap->first[column]; row != LEAT_LAP_NONE; row = lap->next[row]) {
        best = relax(lap, costs_of(problem, row), distance - lap->dual[row], row);
    }
    return best;
}

/* Prices of the columns that a search of this length closed fall by what was left of it, and their rows' duals rise. */
INLINE void
lower_closed(struct leat_lap *lap, uint32_t done_count, int64_t length)
{
    for (uint32_t d = 0; d < done_count; d++) {
        const uint32_t closed = lap->done[d];
        const int64_t fall = length - lap->distance[d];
        lap->price[closed] -= fall;
        for (uint32_t r = lap->first[closed]; r != LEAT_LAP_NONE; r = lap->next[r]) {
            lap->dual[r] += fall;
        }
    }
}

/* Moves the rows along the way that ends in `sink`; the last of them is `row`. */
INLINE void
shift_rows(struct leat_lap *lap, uint32_t sink, uint32_t row)
{
    uint32_t to = sink;
    for (;;) {
        const uint32_t moving = (uint32_t)lap->origin[to];
        const uint32_t from = lap->column[moving];
        if (from != LEAT_LAP_NONE) {
            take_out(lap, moving);
        }
        put(lap, moving, to);
        if (moving == row) {
            return;
        }
        to = from;
    }
}

/* Assigns a row whose dual is feasible, moving others along the shortest way to a column with room. */
INLINE void
augment(struct leat_lap *lap, const struct leat_lap_problem *problem, uint32_t row)
{
    uint32_t done_count = 0, sink;
    int64_t distance, best;

    begin_search(lap);
    best = relax(lap, costs_of(problem, row), -lap->dual[row], row);
    for (;;) {
        sink = (uint32_t)best & COLUMN_MASK;
        distance = best & ~TAG_MASK;
        if ((best & FULL) == 0) {
            break;
        }
        best = close_column(lap, problem, sink, distance, &done_count);
    }
    lap->dual[row] += distance;
    lower_closed(lap, done_count, distance);
    shift_rows(lap, sink, row);
    mark_room(lap, sink);
    lap->room--;
}

/* ---- From nothing ------------------------------------------------------------------------------ */

INLINE void
start(struct leat_lap *lap, const struct leat_lap_problem *problem)
{
    uint32_t room = 0;

    LEAT_ASSERT(problem->rows <= lap->rows_max && problem->columns >= 1 && problem->columns <= lap->columns_max);
    lap->rows = problem->rows;
    lap->columns = problem->columns;
    lap->padded = (problem->columns + LEAT_LAP_LANES - 1) / LEAT_LAP_LANES * LEAT_LAP_LANES;
    for (uint32_t j = 0; j < lap->padded; j++) {
        const bool real = j < lap->columns;
        lap->holds[j] = !real ? 0 : problem->capacity != NULL ? problem->capacity[j] : 1;
        room += lap->holds[j];
        lap->price[j] = real ? 0 : CLOSED;
        lap->count[j] = 0;
        lap->first[j] = LEAT_LAP_NONE;
        lap->tag[j] = j;
    }
    LEAT_ASSERT(lap->rows <= room);
    lap->room = room;
    for (uint32_t i = 0; i < lap->rows; i++) {
        lap->column[i] = LEAT_LAP_NONE;
    }
}

INLINE void
assign(struct leat_lap *lap, uint32_t row, uint32_t column)
{
    put(lap, row, column);
    mark_room(lap, column);
    lap->room--;
}

/* Column reduction: each column costs what its cheapest row does, and goes to that row if no later column did. */
INLINE void
reduce_columns(struct leat_lap *lap, const struct leat_lap_problem *problem)
{
    const uint32_t lanes = padded(lap);
    int64_t *restrict price = __builtin_assume_aligned(lap->price, LEAT_CACHE_LINE);
    int64_t *restrict origin = __builtin_assume_aligned(lap->origin, LEAT_CACHE_LINE);

    for (uint32_t j = 0; j < lanes; j++) {
        origin[j] = NEVER;
    }
    for (uint32_t i = 0; i < lap->rows; i++) {
        const int64_t *restrict cost = __builtin_assume_aligned(costs_of(problem, i), LEAT_CACHE_LINE);
        for (uint32_t j = 0; j < lanes; j++) {
            const int64_t value = (cost[j] << TAG_BITS) + i;
            origin[j] = value < origin[j] ? value : origin[j];
        }
    }
    for (uint32_t j = lap->columns; j-- > 0;) {
        const uint32_t row = (uint32_t)origin[j] & COLUMN_MASK;
        price[j] = origin[j] & ~TAG_MASK;
        if (lap->column[row] == LEAT_LAP_NONE) {
            lap->dual[row] = 0;
            assign(lap, row, j);
        }
    }
}

/* Puts the rows without a column on the stack, the first of them on top; returns their number. */
INLINE uint32_t
stack_rows(struct leat_lap *lap)
{
    uint32_t open = 0;
    for (uint32_t i = lap->rows; i-- > 0;) {
        if (lap->column[i] == LEAT_LAP_NONE) {
            lap->waiting[open++] = i;
        }
    }
    return open;
}

/*
 * Puts the row whose best column is the dearest on top. Where rows differ in size and columns in speed, all rows like
 * the same columns best, and those that gain most from them now come first: few have to move again.
 */
INLINE void
order_rows(struct leat_lap *lap, const struct leat_lap_problem *problem, uint32_t open)
{
    const uint32_t lanes = (lap->rows + LEAT_LAP_LANES - 1) & ~(LEAT_LAP_LANES - 1);
    int64_t *restrict dearness = __builtin_assume_aligned(lap->dual, LEAT_CACHE_LINE); /* 0: has a column */

    for (uint32_t i = lap->rows; i < lanes; i++) {
        dearness[i] = 0;
    }
    for (uint32_t o = 0; o < open; o++) {
        const uint32_t row = lap->waiting[o];
        dearness[row] = (least(lap, costs_of(problem, row)) & ~TAG_MASK) + LEAT_LAP_MAX - row;
    }
    for (uint32_t i = 0; i < lap->rows; i++) {
        if (dearness[i] > 0) {
            int64_t dearer = 0;
            for (uint32_t k = 0; k < lanes; k++) {
                dearer += dearness[k] > dearness[i];
            }
            lap->waiting[open - 1 - (uint32_t)dearer] = i;
        }
    }
}

/*
 * Gives each row its best column. Where that is taken, its price falls until the next best is as good, and the row that had
 * it goes on looking: a bounded number of times, and only for a column of one row. Else others move along a shortest way.
 */
INLINE void
reduce_rows(struct leat_lap *lap, const struct leat_lap_problem *problem, uint32_t open)
{
    uint32_t evictions = lap->rows;

    while (open > 0) {
        const uint32_t row = lap->waiting[--open];
        const int64_t *cost = costs_of(problem, row);
        const int64_t first = least(lap, cost);
        const uint32_t column = (uint32_t)first & COLUMN_MASK;
        lap->dual[row] = first & ~TAG_MASK;
        if ((first & FULL) == 0) {
            assign(lap, row, column);
            continue;
        }
        const int64_t second = lap->holds[column] == 1 && evictions > 0 ? least_but(lap, cost, first) : first;
        const int64_t gap = (second & ~TAG_MASK) - lap->dual[row];
        if (gap == 0) {
            augment(lap, problem, row);
            continue;
        }
        const uint32_t evicted = lap->first[column];
        evictions--;
        lap->dual[row] += gap;
        lap->price[column] -= gap;
        take_out(lap, evicted);
        put(lap, row, column);
        lap->waiting[open++] = evicted;
    }
}

INLINE void
solve(struct leat_lap *lap, const struct leat_lap_problem *problem)
{
    start(lap, problem);
    const bool all_taken = lap->rows == lap->room; /* in the end: then prices may be above 0 */
    if (all_taken) {
        reduce_columns(lap, problem);
    }
    const uint32_t open = stack_rows(lap);
    if (all_taken && open > lap->rows / 2) { /* columns mostly agree on the cheapest rows: rows do differ in size */
        order_rows(lap, problem, open);
    }
    reduce_rows(lap, problem, open);
}

/* ---- From a guess ------------------------------------------------------------------------------- */

/* Prices are guesses, and so is each row's column. A row keeps it if no other is better and there is room. */
INLINE void
solve_from(struct leat_lap *lap, const struct leat_lap_problem *problem)
{
    uint32_t open = 0;

    for (uint32_t i = lap->rows; i-- > 0;) {
        const int64_t *cost = costs_of(problem, i);
        const uint32_t guess = lap->column[i];
        const int64_t first = least(lap, cost) & ~TAG_MASK;
        lap->column[i] = LEAT_LAP_NONE;
        if (guess != LEAT_LAP_NONE && lap->count[guess] < lap->holds[guess] &&
            (cost[guess] << TAG_BITS) - lap->price[guess] == first) {
            lap->dual[i] = first;
            assign(lap, i, guess);
        } else {
            lap->waiting[open++] = i;
        }
    }
    reduce_rows(lap, problem, open);
}

/* ---- Entrances: everything above twice, for what the processor has ----------------------------- */

INLINE void
operate(bool guessed, struct leat_lap *lap, const struct leat_lap_problem *problem)
{
    if (guessed) {
        solve_from(lap, problem);
    } else {
        solve(lap, problem);
    }
}

#if defined(__x86_64__)
#if defined(__clang__)
#define WIDE __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,bmi2")))
#else
#define WIDE __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,bmi2,prefer-vector-width=512")))
#endif
static WIDE void
operate_wide(bool guessed, struct leat_lap *lap, const struct leat_lap_problem *problem)
{
    operate(guessed, lap, problem);
}
#endif

static void
operate_plain(bool guessed, struct leat_lap *lap, const struct leat_lap_problem *problem)
{
    operate(guessed, lap, problem);
}

static void
dispatch(bool guessed, struct leat_lap *lap, const struct leat_lap_problem *problem)
{
    LEAT_ASSERT(problem->stride % LEAT_LAP_LANES == 0 && problem->stride >= problem->columns);
    LEAT_ASSERT((uintptr_t)problem->cost % LEAT_CACHE_LINE == 0);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("bmi2")) {
        operate_wide(guessed, lap, problem);
        return;
    }
#endif
    operate_plain(guessed, lap, problem);
}

void
leat_lap_solve(struct leat_lap *lap, const struct leat_lap_problem *problem)
{
    dispatch(false, lap, problem);
}

void
leat_lap_solve_from(struct leat_lap *lap, const struct leat_lap_problem *problem, const int64_t *price,
                    const uint32_t *column)
{
    start(lap, problem);
    LEAT_ASSERT(lap->rows == lap->room);
    for (uint32_t j = 0; j < lap->columns; j++) {
        LEAT_ASSERT(price[j] >= -LEAT_LAP_COST_MAX && price[j] <= LEAT_LAP_COST_MAX);
        lap->price[j] = price[j] * (1 << TAG_BITS);
    }
    for (uint32_t i = 0; i < lap->rows; i++) {
        LEAT_ASSERT(column[i] < lap->columns || column[i] == LEAT_LAP_NONE);
        lap->column[i] = column[i];
    }
    dispatch(true, lap, problem);
}

/* ---- The answer -------------------------------------------------------------------------------- */

uint32_t
leat_lap_column_of(const struct leat_lap *lap, uint32_t row)
{
    return lap->column[row];
}

int64_t
leat_lap_row_dual(const struct leat_lap *lap, uint32_t row)
{
    return lap->dual[row] >> TAG_BITS;
}

int64_t
leat_lap_column_dual(const struct leat_lap *lap, uint32_t column)
{
    return lap->price[column] >> TAG_BITS;
}
