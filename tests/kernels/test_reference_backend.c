/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The reference backend answers every segment of every batch as if it were alone, writes nothing
 *          beyond its memory, allocates nothing while it runs, and survives any payload.
 * Method   A small recommender (two embedding look-ups, Concat, Gemm): all splits of up to 7 items against
 *          single items; scratch and outputs exactly as large as promised (for the address sanitizer),
 *          filled with rubbish; indices out of range; a count of allocations around the run.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/graph.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define COUNT_ALLOCATIONS 1
/* The C library's allocator under its other name: every malloc of this program comes through here. */
extern void *__libc_malloc(size_t size);
static size_t allocations;

void *
malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}
#endif

enum { ITEMS_MAX = 7, USERS = 5, WIDTH = 3, DENSE = 2, OUT = 4 };

static const struct leat_backend *const backend = &leat_backend_reference;

struct fixture {
    struct leat_model *model;
    struct leat_plan *plan;
    void *scratch;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
};

static void
random_floats(uint64_t *random, float *data, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        data[i] = (float)(leat_test_random(random) % 1000) / 500.0f - 1.0f;
    }
}

/* user i64[N], dense f32[N][DENSE] -> y f32[N][OUT] */
static struct leat_graph *
recommender(void)
{
    struct builder b;
    struct leat_graph *graph = NULL;
    uint64_t random = leat_test_seed;
    float table[USERS * WIDTH], weights[(2 * WIDTH + DENSE) * OUT], bias[OUT];

    random_floats(&random, table, LEAT_COUNT_OF(table));
    random_floats(&random, weights, LEAT_COUNT_OF(weights));
    random_floats(&random, bias, LEAT_COUNT_OF(bias));
    builder_init(&b, 13);
    (void)builder_input(&b, "user", 7, DIMS(-1));
    (void)builder_input(&b, "dense", 1, DIMS(-1, DENSE));
    (void)builder_constant(&b, "table", 1, table, DIMS(USERS, WIDTH));
    (void)builder_constant(&b, "w", 1, weights, DIMS(2 * WIDTH + DENSE, OUT));
    (void)builder_constant(&b, "bias", 1, bias, DIMS(OUT));
    (void)builder_node(&b, "Gather", "table user", "e");
    (void)builder_node(&b, "Tanh", "e", "t");
    (void)builder_int(&b, builder_node(&b, "Concat", "e dense t", "c"), "axis", 1);
    (void)builder_node(&b, "Gemm", "c w bias", "g");
    (void)builder_node(&b, "Relu", "g", "y");
    builder_output(&b, "y");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    builder_fini(&b);
    return graph;
}

static void
fixture_init(struct fixture *f)
{
    struct leat_model_source source = {.graph = recommender(), .infos = f->infos};

    EXPECT(leat_graph_signature(source.graph, f->infos, &source.input_count,
                                &source.output_count) == LEAT_OK);
    EXPECT(source.input_count == 2 && source.output_count == 1);
    EXPECT(f->infos[0].item_bytes == 8 && f->infos[1].item_bytes == 8 &&
           f->infos[2].item_bytes == 16);
    EXPECT(backend->model_load(&source, &f->model) == LEAT_OK);
    leat_graph_destroy(
        (struct leat_graph *)(uintptr_t)source.graph); /* the model needs it no more */
    EXPECT(backend->model_bytes(f->model) > sizeof(float) * USERS * WIDTH);
    EXPECT(backend->plan_build(f->model, &(struct leat_plan_options){.items = ITEMS_MAX}, &f->plan) == LEAT_OK);
    f->scratch = aligned_alloc(64, (size_t)leat_round_up(backend->plan_scratch_bytes(f->plan), 64));
    EXPECT(f->scratch != NULL);
}

static void
fixture_fini(struct fixture *f)
{
    free(f->scratch);
    backend->plan_destroy(f->plan);
    backend->model_destroy(f->model);
}

/* Runs items cut into segments after each bit that is set in `cuts`; y is written item after item. */
static enum leat_status
run(const struct fixture *f, uint32_t items, uint32_t cuts, const int64_t *users,
    const float *dense, float *y)
{
    struct leat_segment segments[ITEMS_MAX] = {0};
    void *blocks[ITEMS_MAX][3];
    uint32_t count = 0, first[ITEMS_MAX] = {0};

    for (uint32_t i = 0; i < items; i++) {
        if (i > 0 && (cuts >> (i - 1) & 1) != 0) {
            count++;
            first[count] = i;
        }
        segments[count].items++;
    }
    count++;
    for (uint32_t s = 0; s < count; s++) {
        const size_t n = segments[s].items;
        for (int t = 0; t < 3; t++) {
            /* Exactly as large as the signature says, and no larger: the sanitizer watches the end. */
            blocks[s][t] = malloc(n * f->infos[t].item_bytes);
            EXPECT(blocks[s][t] != NULL);
            segments[s].tensors[t] = blocks[s][t];
        }
        memcpy(blocks[s][0], users + first[s], n * sizeof(*users));
        memcpy(blocks[s][1], dense + first[s] * DENSE, n * DENSE * sizeof(*dense));
        memset(blocks[s][2], 0x5a, n * OUT * sizeof(*y));
    }
    memset(f->scratch, 0xff, backend->plan_scratch_bytes(f->plan));
#ifdef COUNT_ALLOCATIONS
    const size_t before = allocations;
#endif
    const enum leat_status status = backend->plan_run(f->plan, segments, count, f->scratch, NULL);
#ifdef COUNT_ALLOCATIONS
    EXPECT(allocations == before);
#endif
    for (uint32_t s = 0; s < count; s++) {
        memcpy(y + first[s] * OUT, blocks[s][2], segments[s].items * OUT * sizeof(*y));
        for (int t = 0; t < 3; t++) {
            free(blocks[s][t]);
        }
    }
    return status;
}

static void
test_every_split_gives_the_same(const struct fixture *f)
{
    int64_t users[ITEMS_MAX];
    float dense[ITEMS_MAX * DENSE], alone[ITEMS_MAX * OUT], together[ITEMS_MAX * OUT];
    uint64_t random = leat_test_seed;

    random_floats(&random, dense, LEAT_COUNT_OF(dense));
    for (int i = 0; i < ITEMS_MAX; i++) {
        users[i] =
            (int64_t)(leat_test_random(&random) % (2 * USERS)) - USERS; /* negative counts back */
        EXPECT(run(f, 1, 0, users + i, dense + i * DENSE, alone + i * OUT) == LEAT_OK);
    }
    for (uint32_t items = 1; items <= ITEMS_MAX; items++) {
        for (uint32_t cuts = 0; cuts < 1u << (items - 1); cuts++) {
            EXPECT(run(f, items, cuts, users, dense, together) == LEAT_OK);
            EXPECT(memcmp(alone, together, items * OUT * sizeof(float)) == 0);
        }
    }
}

static void
test_bad_indices_fail_the_batch_only(const struct fixture *f)
{
    static const int64_t bad[] = {USERS, -USERS - 1, INT64_MAX, INT64_MIN, INT64_C(1) << 32};
    int64_t users[ITEMS_MAX] = {0};
    float dense[ITEMS_MAX * DENSE] = {0}, y[ITEMS_MAX * OUT];

    for (size_t i = 0; i < LEAT_COUNT_OF(bad); i++) {
        for (int at = 0; at < ITEMS_MAX; at++) {
            users[at] = bad[i];
            EXPECT(run(f, ITEMS_MAX, 0x15, users, dense, y) == LEAT_ERR_SHAPE);
            for (size_t k = 0; k < LEAT_COUNT_OF(y); k++) {
                uint32_t bits;
                memcpy(&bits, &y[k], sizeof(bits));
                EXPECT(bits == 0x5a5a5a5a); /* a failed batch writes no output */
            }
            users[at] = 0;
        }
    }
    EXPECT(run(f, ITEMS_MAX, 0, users, dense, y) == LEAT_OK);
}

static void
test_limits(const struct fixture *f)
{
    struct leat_segment segment = {.items = 0};
    struct leat_plan *plan = NULL;

    EXPECT(backend->plan_run(f->plan, &segment, 1, f->scratch, NULL) == LEAT_ERR_INVALID);
    segment.items = ITEMS_MAX + 1;
    EXPECT(backend->plan_run(f->plan, &segment, 1, f->scratch, NULL) == LEAT_ERR_INVALID);
    const struct leat_plan_options none = {.items = 0}, many = {.items = LEAT_ITEMS_MAX + 1};
    EXPECT(backend->plan_build(f->model, &none, &plan) == LEAT_ERR_INVALID);
    EXPECT(backend->plan_build(f->model, &many, &plan) == LEAT_ERR_INVALID);
    EXPECT(plan == NULL);
    backend->plan_destroy(NULL);
    backend->model_destroy(NULL);
}

int
main(void)
{
    struct fixture f = {0};

    leat_test_init();
    fixture_init(&f);
    test_every_split_gives_the_same(&f);
    test_bad_indices_fail_the_batch_only(&f);
    test_limits(&f);
    fixture_fini(&f);
    return 0;
}
