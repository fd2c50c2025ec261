/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A model may have LEAT_TENSORS_MAX inputs and outputs, as recommenders with an input for each feature do; one more
 *          is refused.
 * Method   Each output is a sum of looked-up rows and of an input that others read as well, so whoever takes one tensor for
 *          another answers wrong. Both backends, queries of several sizes in one batch, alone and with a team, against the sums.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/cpu/inspect.h"
#include "kernels/graph_build.h"
#include "kernels/team.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"

enum { F32 = 1, I64 = 7, DENSE = 12, FEATURES = (LEAT_TENSORS_MAX - DENSE) / 2, OUTPUTS = FEATURES };
enum { ROWS = 50, WIDTH = 16, BAG = 8, QUERIES = 3, ITEMS = 6, TEAM = 2 };
_Static_assert(DENSE + FEATURES + OUTPUTS == LEAT_TENSORS_MAX, "as many as there can be");

static const uint32_t items_of[QUERIES] = {1, 3, 2};
static float tables[FEATURES][ROWS * WIDTH];
static int64_t bags[FEATURES][ITEMS * BAG];
static float dense[DENSE][ITEMS * WIDTH];

static struct leat_graph *
build(uint32_t features)
{
    struct leat_graph *graph;
    struct builder b;

    builder_init(&b, 13);
    (void)builder_constant(&b, "bag", I64, (const int64_t[]){1}, DIMS(1));
    for (uint32_t d = 0; d < DENSE; d++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "d%u", d);
        (void)builder_input(&b, name, F32, DIMS(-1, WIDTH));
    }
    for (uint32_t f = 0; f < features; f++) {
        char index[16], table[16], names[40], rows[16], sums[16], output[16];
        (void)snprintf(index, sizeof(index), "f%u", f);
        (void)snprintf(table, sizeof(table), "t%u", f);
        (void)snprintf(names, sizeof(names), "%s %s", table, index);
        (void)snprintf(rows, sizeof(rows), "r%u", f);
        (void)snprintf(sums, sizeof(sums), "s%u", f);
        (void)snprintf(output, sizeof(output), "o%u", f);
        (void)builder_input(&b, index, I64, DIMS(-1, BAG));
        (void)builder_constant(&b, table, F32, tables[f % FEATURES], DIMS(ROWS, WIDTH));
        (void)builder_node(&b, "Gather", names, rows);
        (void)snprintf(names, sizeof(names), "%s bag", rows);
        (void)builder_int(&b, builder_node(&b, "ReduceSum", names, sums), "keepdims", 0);
        (void)snprintf(names, sizeof(names), "%s d%u", sums, f % DENSE);
        (void)builder_node(&b, "Add", names, output);
        builder_output(&b, output);
    }
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    builder_fini(&b);
    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
    return graph;
}

static float
expected(uint32_t feature, uint32_t item, uint32_t column)
{
    float sum = 0;

    for (uint32_t k = 0; k < BAG; k++) {
        sum += tables[feature][bags[feature][item * BAG + k] * WIDTH + column];
    }
    return sum + dense[feature % DENSE][item * WIDTH + column];
}

static void
expect_answers(const float *output, uint32_t feature, uint32_t first, uint32_t items)
{
    for (uint32_t i = 0; i < items; i++) {
        for (uint32_t c = 0; c < WIDTH; c++) {
            EXPECT(fabsf(output[i * WIDTH + c] - expected(feature, first + i, c)) < 1e-4F);
        }
    }
}

static void
test_answers(const struct leat_graph *graph, const struct leat_backend *backend, struct leat_team *team)
{
    const uint32_t team_size = leat_team_size(team);
    const struct leat_plan_options options = {.items = 8, .team_sizes = &team_size, .team_size_count = 1};
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.graph = graph, .infos = infos};
    struct leat_segment queries[QUERIES];
    struct leat_model *model;
    struct leat_plan *plan;
    uint32_t first = 0;

    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    EXPECT(source.input_count == DENSE + FEATURES && source.output_count == OUTPUTS);
    EXPECT(backend->model_load(&source, &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &options, &plan) == LEAT_OK);
    void *scratch = aligned_alloc(64, (backend->plan_scratch_bytes(plan) + 64) / 64 * 64);
    EXPECT(scratch != NULL);
    for (uint32_t q = 0; q < QUERIES; q++) {
        queries[q] = (struct leat_segment){.items = items_of[q]};
        for (uint32_t t = 0; t < LEAT_TENSORS_MAX; t++) {
            const size_t bytes = items_of[q] * infos[t].item_bytes;
            void *block = malloc(bytes);
            EXPECT(block != NULL);
            if (t < DENSE) {
                memcpy(block, &dense[t][first * WIDTH], bytes);
            } else if (t < DENSE + FEATURES) {
                memcpy(block, &bags[t - DENSE][first * BAG], bytes);
            }
            queries[q].tensors[t] = block;
        }
        first += items_of[q];
    }
    EXPECT(first == ITEMS);
    EXPECT(backend->plan_run(plan, queries, QUERIES, scratch, team) == LEAT_OK);
    first = 0;
    for (uint32_t q = 0; q < QUERIES; q++) {
        for (uint32_t t = 0; t < LEAT_TENSORS_MAX; t++) {
            if (t >= DENSE + FEATURES) {
                expect_answers(queries[q].tensors[t], t - DENSE - FEATURES, first, items_of[q]);
            }
            free((void *)(uintptr_t)queries[q].tensors[t]);
        }
        first += items_of[q];
    }
    free(scratch);
    backend->plan_destroy(plan);
    backend->model_destroy(model);
}

/* A feature more is two tensors more. */
static void
test_limit(void)
{
    struct leat_graph *graph = build(FEATURES + 1);
    struct leat_inspection *inspection;

    EXPECT(leat_inspection_create(graph, LEAT_PRECISION_F32, 1, 1, &inspection) == LEAT_ERR_LIMIT);
    EXPECT(strstr(leat_error_text(), "64") != NULL);
    leat_graph_destroy(graph);
}

int
main(void)
{
    struct leat_team *team;
    uint64_t random;

    leat_test_init();
    random = leat_test_seed;
    for (uint32_t f = 0; f < FEATURES; f++) {
        for (size_t i = 0; i < LEAT_COUNT_OF(tables[f]); i++) {
            tables[f][i] = (float)(leat_test_random(&random) % 2000) / 1000 - 1;
        }
        for (size_t i = 0; i < LEAT_COUNT_OF(bags[f]); i++) {
            bags[f][i] = (int64_t)(leat_test_random(&random) % ROWS);
        }
    }
    for (uint32_t d = 0; d < DENSE; d++) {
        for (size_t i = 0; i < LEAT_COUNT_OF(dense[d]); i++) {
            dense[d][i] = (float)(leat_test_random(&random) % 2000) / 1000 - 1;
        }
    }
    EXPECT(leat_team_create(&(struct leat_team_options){.size = TEAM, .spin_ns = 20000}, &team) == LEAT_OK);
    struct leat_graph *graph = build(FEATURES);
    test_answers(graph, &leat_backend_reference, NULL);
    test_answers(graph, &leat_backend_cpu, NULL);
    test_answers(graph, &leat_backend_cpu, team);
    leat_graph_destroy(graph);
    leat_team_destroy(team);
    test_limit();
    return 0;
}
