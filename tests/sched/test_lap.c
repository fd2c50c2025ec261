/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     leat_lap finds least assignments, from nothing and from guesses, on every shape and with ties.
 * Oracle   Small problems: all assignments are tried. Every problem: the duals prove the answer (see lap.h), checked by
 *          code that shares nothing with the solver.
 * Method   Random problems of several families, and guesses, with whose answers the cost from nothing is compared. Families with many equal and nearly equal costs are those on which floating-point
 *          solvers are known to run for ever.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "sched/lap.h"
#include "tests/leat_test.h"

enum { SIZE_MAX_TESTED = 512, SMALL = 7 };

static uint64_t random_state;
static int64_t *cost;
static uint32_t capacity[SIZE_MAX_TESTED];
static struct leat_lap *lap, *fresh;

static uint64_t
below(uint64_t bound)
{
    return leat_test_random(&random_state) % bound;
}

/* ---- Families of costs ------------------------------------------------------------------------- */

enum family { UNIFORM, FEW_VALUES, EQUAL, KAIROS_SAME, KAIROS_BUSY, HUGE_VALUES, FAMILIES };

/* Sizes as in the artifact of the Kairos paper: mostly 100 to 200, some small, a tail to 1000. */
static int64_t
query_size(void)
{
    const uint64_t r = 1 + below(99);
    return (int64_t)(r <= 8 ? 1 + below(99) : r <= 30 ? 200 + below(400) : r <= 35 ? 600 + below(400) : 100 + below(100));
}

/* Four types of workers with a line each; all of one type alike, or each busy for a while; late ones are dear. */
static void
fill_kairos(const struct leat_lap_problem *problem, bool busy)
{
    static const int64_t base_ns[] = {20000000, 15000000, 18000000, 25000000}, item_ns[] = {100000, 350000, 300000, 500000};
    static const int64_t percent[] = {100, 33, 38, 23};
    static uint32_t type[SIZE_MAX_TESTED];
    static int64_t left_ns[SIZE_MAX_TESTED];

    for (uint32_t j = 0; j < problem->columns; j++) {
        type[j] = (uint32_t)below(4);
        left_ns[j] = busy && below(2) == 0 ? (int64_t)below(100000000) : 0;
    }
    for (uint32_t i = 0; i < problem->rows; i++) {
        const int64_t size = query_size(), waited_ns = (int64_t)below(200000000);
        for (uint32_t j = 0; j < problem->columns; j++) {
            int64_t ns = left_ns[j] + base_ns[type[j]] + item_ns[type[j]] * size;
            ns = ns + waited_ns > 343000000 ? 3500000000 : ns;
            cost[(size_t)i * problem->stride + j] = ns * percent[type[j]] / 100;
        }
    }
}

static void
fill_costs(const struct leat_lap_problem *problem, enum family family)
{
    if (family == KAIROS_SAME || family == KAIROS_BUSY) {
        fill_kairos(problem, family == KAIROS_BUSY);
        return;
    }
    for (size_t at = 0; at < (size_t)problem->rows * problem->stride; at++) {
        switch (family) {
        case UNIFORM: cost[at] = (int64_t)below(1000000); break;
        case FEW_VALUES: cost[at] = (int64_t)below(4); break;
        case EQUAL: cost[at] = 7; break;
        default: cost[at] = below(3) == 0 ? LEAT_LAP_COST_MAX : (int64_t)below((uint64_t)LEAT_LAP_COST_MAX + 1); break;
        }
    }
}

/* ---- Oracles ----------------------------------------------------------------------------------- */

static int64_t
cost_at(const struct leat_lap_problem *problem, uint32_t row, uint32_t column)
{
    return problem->cost[(size_t)row * problem->stride + column];
}

static int64_t
total(const struct leat_lap *solved, const struct leat_lap_problem *problem)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < problem->rows; i++) {
        sum += cost_at(problem, i, leat_lap_column_of(solved, i));
    }
    return sum;
}

static void
expect_proven(const struct leat_lap *solved, const struct leat_lap_problem *problem)
{
    static uint32_t used[SIZE_MAX_TESTED];
    uint64_t room = 0;

    memset(used, 0, sizeof(used));
    for (uint32_t i = 0; i < problem->rows; i++) {
        const uint32_t column = leat_lap_column_of(solved, i);
        EXPECT(column < problem->columns);
        used[column]++;
        for (uint32_t j = 0; j < problem->columns; j++) {
            EXPECT(leat_lap_row_dual(solved, i) + leat_lap_column_dual(solved, j) <= cost_at(problem, i, j));
        }
        EXPECT(leat_lap_row_dual(solved, i) + leat_lap_column_dual(solved, column) == cost_at(problem, i, column));
    }
    for (uint32_t j = 0; j < problem->columns; j++) {
        const uint32_t holds = problem->capacity != NULL ? problem->capacity[j] : 1;
        EXPECT(used[j] <= holds);
        room += holds - used[j];
    }
    for (uint32_t j = 0; j < problem->columns && room > 0; j++) {
        const uint32_t holds = problem->capacity != NULL ? problem->capacity[j] : 1;
        EXPECT(leat_lap_column_dual(solved, j) <= 0);
        EXPECT(used[j] == holds || leat_lap_column_dual(solved, j) == 0);
    }
}

static int64_t
least_of_all(const struct leat_lap_problem *problem, uint32_t row, uint32_t *room)
{
    int64_t best = INT64_MAX;
    if (row == problem->rows) {
        return 0;
    }
    for (uint32_t j = 0; j < problem->columns; j++) {
        if (room[j] > 0) {
            room[j]--;
            const int64_t rest = least_of_all(problem, row + 1, room);
            room[j]++;
            if (rest != INT64_MAX && rest + cost_at(problem, row, j) < best) {
                best = rest + cost_at(problem, row, j);
            }
        }
    }
    return best;
}

/* ---- Cases ------------------------------------------------------------------------------------- */

static struct leat_lap_problem
make_problem(uint32_t rows, uint32_t columns, const uint32_t *holds)
{
    return (struct leat_lap_problem){.rows = rows,
                                     .columns = columns,
                                     .stride = (uint32_t)leat_round_up(columns, LEAT_LAP_LANES),
                                     .cost = cost,
                                     .capacity = holds};
}

static void
test_small_ones_against_all_assignments(void)
{
    for (uint32_t rows = 0; rows <= SMALL; rows++) {
        for (uint32_t columns = 1; columns <= SMALL; columns++) {
            for (int round = 0; round < 60; round++) {
                uint32_t room[SMALL], sum = 0;
                const bool single = round % 2 == 0;
                for (uint32_t j = 0; j < columns; j++) {
                    capacity[j] = single ? 1 : 1 + (uint32_t)below(3);
                    room[j] = capacity[j];
                    sum += capacity[j];
                }
                if (rows > sum) {
                    continue;
                }
                const struct leat_lap_problem problem =
                    make_problem(rows, columns, single && round % 4 == 0 ? NULL : capacity);
                fill_costs(&problem, (enum family)(round / 2 % FAMILIES));
                leat_lap_solve(lap, &problem);
                expect_proven(lap, &problem);
                EXPECT(total(lap, &problem) == least_of_all(&problem, 0, room));
            }
        }
    }
}

static void
test_sizes_and_families(void)
{
    static const uint32_t sizes[][2] = {{1, 1},   {8, 8},    {16, 16}, {20, 20},   {20, 100},  {63, 64},
                                        {64, 64}, {65, 200}, {128, 1}, {256, 256}, {300, 511}, {512, 512}};
    for (size_t s = 0; s < LEAT_COUNT_OF(sizes); s++) {
        for (int family = 0; family < FAMILIES; family++) {
            const struct leat_lap_problem problem =
                make_problem(sizes[s][0] < sizes[s][1] ? sizes[s][0] : sizes[s][1], sizes[s][1], NULL);
            fill_costs(&problem, (enum family)family);
            leat_lap_solve(lap, &problem);
            expect_proven(lap, &problem);
        }
    }
}

/* Identical columns given once, with their number, cost as much as given one by one. */
static void
test_alike_columns_given_once(void)
{
    for (int round = 0; round < 40; round++) {
        const uint32_t kinds = 1 + (uint32_t)below(6), each = 1 + (uint32_t)below(40);
        const uint32_t rows = 1 + (uint32_t)below(kinds * each);
        for (uint32_t j = 0; j < kinds; j++) {
            capacity[j] = each;
        }
        const struct leat_lap_problem few = make_problem(rows, kinds, capacity);
        fill_costs(&few, round % 2 == 0 ? KAIROS_SAME : FEW_VALUES);
        leat_lap_solve(lap, &few);
        expect_proven(lap, &few);
        const int64_t least = total(lap, &few);

        const uint32_t columns = kinds * each, stride = (uint32_t)leat_round_up(columns, LEAT_LAP_LANES);
        int64_t *all = aligned_alloc(LEAT_CACHE_LINE, (size_t)rows * stride * sizeof(*all));
        EXPECT(all != NULL);
        for (uint32_t i = 0; i < rows; i++) {
            for (uint32_t j = 0; j < stride; j++) {
                all[(size_t)i * stride + j] = cost_at(&few, i, j / each < kinds ? j / each : 0);
            }
        }
        const struct leat_lap_problem many = {.rows = rows, .columns = columns, .stride = stride, .cost = all};
        leat_lap_solve(lap, &many);
        expect_proven(lap, &many);
        EXPECT(total(lap, &many) == least);
        free(all);
    }
}

static void
test_as_many_rows_as_there_can_be(void)
{
    for (int family = 0; family < FAMILIES; family++) {
        const uint32_t kinds = 5, each = LEAT_LAP_MAX / 4;
        for (uint32_t j = 0; j < kinds; j++) {
            capacity[j] = j < 2 ? each / 2 : each; /* no room is left */
        }
        const struct leat_lap_problem problem = make_problem(LEAT_LAP_MAX, kinds, capacity);
        fill_costs(&problem, (enum family)family);
        leat_lap_solve(lap, &problem);
        expect_proven(lap, &problem);
    }
}

/* However wrong the guess, the answer is of least cost; a guess that was right is the answer. */
static void
test_from_guesses(void)
{
    static int64_t price[SIZE_MAX_TESTED];
    static uint32_t column[SIZE_MAX_TESTED];

    for (int round = 0; round < 3000; round++) {
        const uint32_t columns = 1 + (uint32_t)below(round % 100 == 0 ? 128 : 16);
        const int64_t range = below(2) == 0 ? 4 : LEAT_LAP_COST_MAX;
        uint32_t rows = 0;
        for (uint32_t j = 0; j < columns; j++) {
            capacity[j] = 1 + (uint32_t)below(1 + (uint64_t)(round % 2) * 3);
            rows += capacity[j];
            price[j] = (int64_t)below(2 * (uint64_t)range + 1) - range;
            price[j] = below(3) == 0 ? (price[j] < 0 ? -range : range) : price[j];
        }
        for (uint32_t i = 0; i < rows; i++) {
            column[i] = below(4) == 0 ? LEAT_LAP_NONE : (uint32_t)below(columns);
        }
        const struct leat_lap_problem problem = make_problem(rows, columns, capacity);
        fill_costs(&problem, (enum family)(round / 2 % FAMILIES));
        leat_lap_solve_from(lap, &problem, price, column);
        expect_proven(lap, &problem);
        leat_lap_solve(fresh, &problem);
        EXPECT(total(lap, &problem) == total(fresh, &problem));
        for (uint32_t j = 0; j < columns; j++) {
            price[j] = leat_lap_column_dual(fresh, j);
        }
        for (uint32_t i = 0; i < rows; i++) {
            column[i] = leat_lap_column_of(fresh, i);
        }
        leat_lap_solve_from(lap, &problem, price, column);
        for (uint32_t i = 0; i < rows; i++) {
            EXPECT(leat_lap_column_of(lap, i) == column[i] && leat_lap_row_dual(lap, i) == leat_lap_row_dual(fresh, i));
        }
    }
}

/* What two well-known solvers in floating point do not end on. */
static void
test_alike_types_by_the_thousand(void)
{
    for (int round = 0; round < 100000; round++) {
        const uint32_t size = 8 + (uint32_t)below(17);
        const struct leat_lap_problem problem = make_problem(size, size, NULL);
        fill_kairos(&problem, round % 2 == 0);
        leat_lap_solve(lap, &problem);
        if (round % 50 == 0) {
            expect_proven(lap, &problem);
        }
    }
}

int
main(void)
{
    const size_t bytes = leat_round_up(leat_lap_bytes(LEAT_LAP_MAX, SIZE_MAX_TESTED), LEAT_CACHE_LINE);
    leat_test_init();
    random_state = leat_test_seed;
    cost = aligned_alloc(LEAT_CACHE_LINE, (size_t)SIZE_MAX_TESTED * SIZE_MAX_TESTED * sizeof(*cost));
    void *first = aligned_alloc(LEAT_CACHE_LINE, bytes), *second = aligned_alloc(LEAT_CACHE_LINE, bytes);
    EXPECT(cost != NULL && first != NULL && second != NULL);
    memset(cost, 0, (size_t)SIZE_MAX_TESTED * SIZE_MAX_TESTED * sizeof(*cost));
    lap = leat_lap_init(first, LEAT_LAP_MAX, SIZE_MAX_TESTED);
    fresh = leat_lap_init(second, LEAT_LAP_MAX, SIZE_MAX_TESTED);
    test_small_ones_against_all_assignments();
    test_sizes_and_families();
    test_alike_columns_given_once();
    test_as_many_rows_as_there_can_be();
    test_from_guesses();
    test_alike_types_by_the_thousand();
    free(cost);
    free(first);
    free(second);
    return 0;
}
