/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Models whose items may meet in a batch, and those with outputs as large as tensor contents say, are run for one item
 *          at a time: no answer depends on another item, sizes are told, what is behind is zeros, and no payload breaks that.
 * Method   Each model in every backend, as batches of several segments with random and hostile payload, against what a few
 *          lines compute or leat_reference_run() says of each item alone. Blocks are exactly as large as the signature says, for
 *          the address sanitizer.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/op.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"


static const struct leat_backend *backends[2];
static uint32_t backend_count;

struct served {
    const struct leat_backend *backend;
    struct leat_graph *graph;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t inputs, outputs, sizes;
    struct leat_model *model;
    struct leat_plan *plan;
    void *scratch;
};

/* The graph becomes its own. */
static void
serve(const struct leat_backend *backend, struct leat_graph *graph, uint32_t items, struct served *ret)
{
    *ret = (struct served){.backend = backend, .graph = graph};
    const enum leat_status known = leat_graph_signature_of_one(graph, ret->infos, &ret->inputs, &ret->outputs);
    if (known != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(known == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
    ret->sizes = leat_signature_sizes(ret->infos, ret->inputs + ret->outputs);
    const struct leat_model_source source = {.graph = graph,
                                             .infos = ret->infos,
                                             .input_count = ret->inputs,
                                             .output_count = ret->outputs,
                                             .one_by_one = true};
    EXPECT(backend->model_load(&source, &ret->model) == LEAT_OK);
    EXPECT(backend->plan_build(ret->model, &(struct leat_plan_options){.items = items}, &ret->plan) == LEAT_OK);
    const size_t bytes = (size_t)leat_round_up(backend->plan_scratch_bytes(ret->plan) + 64, 64);
    ret->scratch = aligned_alloc(64, bytes);
    EXPECT(ret->scratch != NULL);
    memset(ret->scratch, 0xa5, bytes);
}

static void
stop(struct served *s)
{
    free(s->scratch);
    s->backend->plan_destroy(s->plan);
    s->backend->model_destroy(s->model);
    leat_graph_destroy(s->graph);
}

/* A query with blocks of its own; outputs are full of something. */
static struct leat_segment
make_segment(const struct served *s, uint32_t items)
{
    struct leat_segment segment = {.items = items, .sizes = calloc((size_t)items * s->sizes + 1, sizeof(uint16_t))};

    for (uint32_t t = 0; t < s->inputs + s->outputs; t++) {
        void *block = malloc(items * s->infos[t].item_bytes);
        EXPECT(block != NULL && segment.sizes != NULL);
        memset(block, 0x5a, items * s->infos[t].item_bytes);
        segment.tensors[t] = block;
    }
    return segment;
}

static void *
item_of(const struct served *s, const struct leat_segment *segment, uint32_t t, uint32_t item)
{
    return (unsigned char *)(uintptr_t)segment->tensors[t] + item * s->infos[t].item_bytes;
}

static void
free_segment(const struct served *s, struct leat_segment *segment)
{
    for (uint32_t t = 0; t < s->inputs + s->outputs; t++) {
        free((void *)(uintptr_t)segment->tensors[t]);
    }
    free(segment->sizes);
}

static enum leat_status
run_segments(const struct served *s, const struct leat_segment *segments, uint32_t count)
{
    return s->backend->plan_run(s->plan, segments, count, s->scratch, NULL);
}

/* ---- Sizes that contents decide ------------------------------------------------------------------- */

/* Where x[item][3][4] is not 0: columns[3][n], and what is there: found[n]; and how often. */
static struct leat_graph *
elements_but_zero(void)
{
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, 3, 4));
    (void)builder_node(&b, "NonZero", "x", "columns");
    (void)builder_node(&b, "Transpose", "columns", "rows");
    (void)builder_node(&b, "GatherND", "x rows", "some");
    (void)builder_node(&b, "Relu", "some", "found");
    (void)builder_node(&b, "Size", "some", "count");
    builder_output(&b, "columns");
    builder_output(&b, "found");
    builder_output(&b, "count");
    struct leat_graph *graph = import_graph(&b);
    builder_fini(&b);
    return graph;
}

static void
check_but_zero(const struct served *s, const struct leat_segment *segment, uint32_t item)
{
    const float *x = item_of(s, segment, 0, item), *found = item_of(s, segment, 2, item);
    const int64_t *columns = item_of(s, segment, 1, item), *count = item_of(s, segment, 3, item);
    int64_t n = 0;

    for (int64_t i = 0; i < 12; i++) {
        if (x[i] != 0) { /* a NaN is not */
            EXPECT(columns[n] == 0 && columns[12 + n] == i / 4 && columns[24 + n] == i % 4);
            EXPECT(isnan(x[i]) || found[n] == (x[i] > 0 ? x[i] : 0));
            n++;
        }
    }
    EXPECT(*count == n && segment->sizes[2 * item] == n && segment->sizes[2 * item + 1] == n);
    for (int64_t i = n; i < 12; i++) {
        EXPECT(columns[i] == 0 && columns[12 + i] == 0 && columns[24 + i] == 0 && found[i] == 0);
    }
}

static void
test_non_zero(const struct leat_backend *backend)
{
    struct leat_segment segments[3];
    uint64_t random = leat_test_seed;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t inputs, outputs;
    struct served s;

    serve(backend, elements_but_zero(), 4, &s);
    EXPECT(leat_graph_signature(s.graph, infos, &inputs, &outputs) == LEAT_ERR_UNSUPPORTED);
    EXPECT(s.inputs == 1 && s.outputs == 3 && s.sizes == 2);
    EXPECT(s.infos[0].rank == 3 && s.infos[0].dims[0] == -1 && s.infos[0].item_bytes == 48 && s.infos[0].varying == 0);
    EXPECT(s.infos[1].rank == 3 && s.infos[1].dims[1] == 3 && s.infos[1].dims[2] == 12 && s.infos[1].varying == 2);
    EXPECT(s.infos[2].rank == 2 && s.infos[2].dims[1] == 12 && s.infos[2].varying == 1 && s.infos[2].item_bytes == 48);
    EXPECT(s.infos[3].rank == 1 && s.infos[3].dims[0] == -1 && s.infos[3].varying == 0 && s.infos[3].item_bytes == 8);
    for (int round = 0; round < 200; round++) {
        for (uint32_t q = 0; q < 3; q++) {
            segments[q] = make_segment(&s, q == 0 ? 2 : 1);
            float *x = item_of(&s, &segments[q], 0, 0);
            for (uint32_t i = 0; i < 12 * segments[q].items; i++) {
                const uint64_t bits = leat_test_random(&random);
                x[i] = round == 0 || (round > 1 && bits % 3 == 0) ? 0 : bits % 17 == 0 ? NAN : (float)(bits % 200) - 99.5f;
            }
        }
        EXPECT(run_segments(&s, segments, 3) == LEAT_OK);
        for (uint32_t q = 0; q < 3; q++) {
            for (uint32_t i = 0; i < segments[q].items; i++) {
                check_but_zero(&s, &segments[q], i);
            }
        }
        EXPECT(segments[1].sizes[0] == (round == 0 ? 0 : round == 1 ? 12 : segments[1].sizes[0]));
        uint16_t *const told = segments[1].sizes;
        segments[1].sizes = NULL; /* nobody asks */
        EXPECT(run_segments(&s, segments + 1, 1) == LEAT_OK);
        segments[1].sizes = told;
        for (uint32_t q = 0; q < 3; q++) {
            free_segment(&s, &segments[q]);
        }
    }
    stop(&s);
}

/* Of the elements that are not 0: where the first three are, where every other one is, and the largest where that is asked for. */
static struct leat_graph *
first_few(bool largest)
{
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, 8));
    (void)builder_constant(&b, "zero", ONNX_I64, (const int64_t[]){0}, DIMS(1));
    (void)builder_constant(&b, "one", ONNX_I64, (const int64_t[]){1}, DIMS(1));
    (void)builder_constant(&b, "two", ONNX_I64, (const int64_t[]){2}, DIMS(1));
    (void)builder_constant(&b, "three", ONNX_I64, (const int64_t[]){3}, DIMS(1));
    (void)builder_constant(&b, "last", ONNX_I64, (const int64_t[]){INT64_MAX}, DIMS(1));
    (void)builder_node(&b, "NonZero", "x", "columns");
    (void)builder_node(&b, "Transpose", "columns", "rows");
    (void)builder_node(&b, "Slice", "rows zero three zero", "first");
    (void)builder_node(&b, "Slice", "rows zero last zero two", "every");
    (void)builder_node(&b, "GatherND", "x rows", "found");
    builder_output(&b, "first");
    builder_output(&b, "every");
    if (largest) { /* which fails where there is none */
        (void)builder_node(&b, "TopK", "found one", "most place");
        builder_output(&b, "most");
    }
    struct leat_graph *graph = import_graph(&b);
    builder_fini(&b);
    return graph;
}

static void
test_first_few(const struct leat_backend *backend, bool largest)
{
    struct served s;

    serve(backend, first_few(largest), 9, &s);
    EXPECT(s.sizes == 2 && s.infos[1].varying == 1 && s.infos[2].varying == 1);
    EXPECT(s.infos[1].dims[1] == 3 && s.infos[2].dims[1] == 4);
    EXPECT(!largest || (s.infos[3].rank == 1 && s.infos[3].varying == 0));
    struct leat_segment segment = make_segment(&s, 9);
    for (uint32_t n = 0; n <= 8; n++) { /* the last n elements of item n */
        float *x = item_of(&s, &segment, 0, n);
        for (uint32_t i = 0; i < 8; i++) {
            x[i] = i >= 8 - n || (largest && n == 0 && i == 0) ? (float)(i + 1) : 0;
        }
    }
    EXPECT(run_segments(&s, &segment, 1) == LEAT_OK);
    for (uint16_t n = largest ? 1 : 0; n <= 8; n++) {
        const uint16_t few = n < 3 ? n : 3, *sizes = segment.sizes + (size_t)2 * n;
        const int64_t *first = item_of(&s, &segment, 1, n), *every = item_of(&s, &segment, 2, n);
        EXPECT(sizes[0] == few && sizes[1] == (n + 1) / 2);
        EXPECT(!largest || *(const float *)item_of(&s, &segment, 3, n) == 8);
        for (int64_t i = 0; i < 3; i++) {
            EXPECT(first[2 * i] == 0 && first[2 * i + 1] == (i < few ? 8 - n + i : 0));
        }
        for (int64_t i = 0; i < 4; i++) {
            EXPECT(every[2 * i + 1] == (i < sizes[1] ? 8 - n + 2 * i : 0));
        }
    }
    memset(item_of(&s, &segment, 0, 0), 0, 32);
    EXPECT(run_segments(&s, &segment, 1) == (largest ? LEAT_ERR_SHAPE : LEAT_OK));
    free_segment(&s, &segment);
    stop(&s);
}

/* ---- Boxes ---------------------------------------------------------------------------------------- */

enum { PLACES = 6, CLASSES = 2 };

/* pairs[n][3] of boxes, scores and a limit that all come with the item; picked[n][4] are the boxes themselves, moved by 1. */
static struct leat_graph *
best_boxes(void)
{
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "boxes", ONNX_F32, DIMS(-1, PLACES, 4));
    (void)builder_input(&b, "scores", ONNX_F32, DIMS(-1, CLASSES, PLACES));
    (void)builder_input(&b, "limit", ONNX_I64, DIMS(-1));
    (void)builder_constant(&b, "overlap", ONNX_F32, (const float[]){0.5f}, DIMS(1));
    (void)builder_constant(&b, "least", ONNX_F32, (const float[]){0.25f}, DIMS(1));
    (void)builder_constant(&b, "one", ONNX_F32, (const float[]){1}, NULL, 0);
    (void)builder_constant(&b, "which", ONNX_I64, (const int64_t[]){0, 2}, DIMS(2));
    (void)builder_int(&b, builder_node(&b, "ReduceMax", "limit", "most"), "keepdims", 0);
    (void)builder_node(&b, "NonMaxSuppression", "boxes scores most overlap least", "pairs");
    (void)builder_int(&b, builder_node(&b, "Gather", "pairs which", "places"), "axis", 1);
    (void)builder_node(&b, "GatherND", "boxes places", "best");
    (void)builder_node(&b, "Add", "best one", "picked");
    builder_output(&b, "pairs");
    builder_output(&b, "picked");
    struct leat_graph *graph = import_graph(&b);
    builder_fini(&b);
    return graph;
}

static void
fill_boxes(const struct served *s, const struct leat_segment *segment, int round, uint64_t *random)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -0.0f, 1e-40f};
    static const int64_t limits[] = {0, 1, 2, PLACES, PLACES + 1, INT64_MAX, -1, INT64_MIN};

    for (uint32_t i = 0; i < segment->items; i++) {
        float *boxes = item_of(s, segment, 0, i), *scores = item_of(s, segment, 1, i);
        int64_t *limit = item_of(s, segment, 2, i);
        *limit = round == 1 ? INT64_MAX : limits[leat_test_random(random) % LEAT_COUNT_OF(limits)];
        for (int p = 0; p < 4 * PLACES; p++) {
            const uint64_t bits = leat_test_random(random);
            boxes[p] = round == 1 ? (float)(p / 4 * 100 + (p % 4 >= 2 ? 10 : 0)) /* all apart */
                       : round > 2 && bits % 5 == 0 ? odd[bits / 5 % LEAT_COUNT_OF(odd)]
                                                    : (float)(bits % 64);
        }
        for (int p = 0; p < CLASSES * PLACES; p++) {
            const uint64_t bits = leat_test_random(random);
            scores[p] = round == 0   ? 0.25f /* not above it */
                        : round == 1 ? 0.5f
                        : round == 2 ? NAN
                        : bits % 6 == 0 ? odd[bits / 6 % LEAT_COUNT_OF(odd)]
                                        : (float)(bits % 100) / 100;
        }
    }
}

/* As one item, in a graph of its own that no pass has seen. */
static void
check_boxes(const struct served *s, const struct leat_graph *one, void *scratch, const struct leat_segment *segment, uint32_t i)
{
    static const unsigned char nothing[CLASSES * PLACES * 4 * 8];
    const void *inputs[3] = {item_of(s, segment, 0, i), item_of(s, segment, 1, i), item_of(s, segment, 2, i)};
    int64_t pairs[CLASSES * PLACES * 3];
    float picked[CLASSES * PLACES * 4];
    struct leat_shape shapes[2];

    EXPECT(leat_reference_run(one, inputs, (void *[]){pairs, picked}, scratch, shapes) == LEAT_OK);
    const size_t rows = (size_t)shapes[0].dims[0];
    EXPECT(segment->sizes[2 * i] == rows && segment->sizes[2 * i + 1] == rows && rows <= (size_t)CLASSES * PLACES);
    const int64_t *got_pairs = item_of(s, segment, 3, i);
    const float *got = item_of(s, segment, 4, i);
    EXPECT(memcmp(got_pairs, pairs, rows * 3 * sizeof(*pairs)) == 0);
    EXPECT(memcmp(got_pairs + 3 * rows, nothing, (CLASSES * PLACES - rows) * 3 * sizeof(*pairs)) == 0);
    for (size_t r = 0; r < rows; r++) {
        EXPECT(got_pairs[3 * r] == 0); /* the item's own */
        for (size_t c = 0; c < 4; c++) {
            EXPECT(got[4 * r + c] == picked[4 * r + c] || (isnan(got[4 * r + c]) && isnan(picked[4 * r + c])));
        }
    }
    EXPECT(memcmp(got + 4 * rows, nothing, (CLASSES * PLACES - rows) * 4 * sizeof(*got)) == 0);
}

static void
test_boxes(const struct leat_backend *backend)
{
    struct leat_graph *plain = best_boxes(), *one = NULL;
    uint64_t random = leat_test_seed;
    struct leat_segment segments[2];
    struct served s;
    size_t bytes;

    EXPECT(leat_graph_specialise(plain, 1, &one) == LEAT_OK && leat_reference_scratch_bytes(one, &bytes) == LEAT_OK);
    void *scratch = aligned_alloc(64, (size_t)leat_round_up(bytes, 64));
    serve(backend, best_boxes(), 2, &s);
    EXPECT(s.sizes == 2 && s.infos[3].dims[1] == CLASSES * PLACES && s.infos[3].varying == 1 && s.infos[4].varying == 1);
    for (int round = 0; round < 300; round++) {
        for (uint32_t q = 0; q < 2; q++) {
            segments[q] = make_segment(&s, 1);
            fill_boxes(&s, &segments[q], round, &random);
        }
        EXPECT(run_segments(&s, segments, 2) == LEAT_OK);
        for (uint32_t q = 0; q < 2; q++) {
            check_boxes(&s, one, scratch, &segments[q], 0);
            EXPECT(round != 0 || segments[q].sizes[0] == 0);
            EXPECT(round != 1 || segments[q].sizes[0] == CLASSES * PLACES);
            EXPECT(round != 2 || segments[q].sizes[0] == 0);
            free_segment(&s, &segments[q]);
        }
    }
    stop(&s);
    free(scratch);
    leat_graph_destroy(one);
    leat_graph_destroy(plain);
}

/* ---- Counts and conditions ------------------------------------------------------------------------ */

/* x doubles as often as the item says: the last, and all of them. */
static struct leat_graph *
doubles(struct builder *b, struct builder *body)
{
    builder_init(body, 13);
    (void)builder_input(body, "i", ONNX_I64, NULL, 0);
    (void)builder_input(body, "go", ONNX_BOOL, NULL, 0);
    (void)builder_input(body, "s", ONNX_F32, DIMS(1, 4));
    (void)builder_node(body, "Add", "s s", "s2");
    (void)builder_node(body, "Identity", "s2", "each");
    (void)builder_node(body, "Identity", "go", "on");
    builder_output(body, "on");
    builder_output(body, "s2");
    builder_output(body, "each");
    builder_init(b, 13);
    (void)builder_input(b, "x", ONNX_F32, DIMS(-1, 4));
    (void)builder_input(b, "times", ONNX_I64, DIMS(-1));
    (void)builder_int(b, builder_node(b, "ReduceMax", "times", "count"), "keepdims", 0);
    builder_graph(b, builder_node(b, "Loop", "count - x", "last all"), "body", body);
    builder_output(b, "last");
    builder_output(b, "all");
    return import_graph(b);
}

static void
test_loop(const struct leat_backend *backend)
{
    static const int64_t counts[] = {0, 1, 7, LEAT_TRIPS_MAX, -1, INT64_MIN};
    struct leat_segment segments[LEAT_COUNT_OF(counts)];
    struct builder b, body;
    struct served s;

    serve(backend, doubles(&b, &body), LEAT_COUNT_OF(counts), &s);
    EXPECT(s.sizes == 1 && s.infos[2].rank == 2 && s.infos[2].dims[1] == 4 && s.infos[2].varying == 0);
    EXPECT(s.infos[3].rank == 4 && s.infos[3].dims[1] == LEAT_TRIPS_MAX && s.infos[3].varying == 1);
    for (uint32_t q = 0; q < LEAT_COUNT_OF(counts); q++) {
        segments[q] = make_segment(&s, 1);
        memcpy(item_of(&s, &segments[q], 0, 0), (const float[]){1, -2, 0, (float)q}, 16);
        memcpy(item_of(&s, &segments[q], 1, 0), &counts[q], 8);
    }
    /* Each has all iterations for itself. */
    EXPECT(run_segments(&s, segments, LEAT_COUNT_OF(counts)) == LEAT_OK);
    for (uint32_t q = 0; q < LEAT_COUNT_OF(counts); q++) {
        const uint16_t steps = counts[q] > 0 ? (uint16_t)counts[q] : 0;
        const float *last = item_of(&s, &segments[q], 2, 0), *all = item_of(&s, &segments[q], 3, 0);
        EXPECT(segments[q].sizes[0] == steps);
        EXPECT(last[0] == ldexpf(1, steps) && last[1] == -ldexpf(2, steps) && last[3] == ldexpf((float)q, steps));
        for (int step = 0; step < (int)LEAT_TRIPS_MAX; step++) {
            EXPECT(all[4 * step] == (step < steps ? ldexpf(1, step + 1) : 0));
            EXPECT(all[4 * step + 1] == (step < steps ? -ldexpf(2, step + 1) : 0));
        }
    }
    /* One that wants more fails, and the batch with it; the others do not, without it. */
    memcpy(item_of(&s, &segments[2], 1, 0), (const int64_t[]){INT64_MAX}, 8);
    EXPECT(run_segments(&s, segments, LEAT_COUNT_OF(counts)) == LEAT_ERR_SHAPE);
    EXPECT(run_segments(&s, segments + 2, 1) == LEAT_ERR_SHAPE);
    EXPECT(run_segments(&s, segments, 2) == LEAT_OK && segments[1].sizes[0] == 1);
    for (uint32_t q = 0; q < LEAT_COUNT_OF(counts); q++) {
        free_segment(&s, &segments[q]);
    }
    stop(&s);
    builder_fini(&b);
    builder_fini(&body);
}

/* A softmax over the batch: alone, an item's is 1 everywhere; in a batch it would not be. */
static void
test_mixed(const struct leat_backend *backend)
{
    struct leat_segment segments[2];
    struct builder b;
    struct served s;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, 3));
    (void)builder_int(&b, builder_node(&b, "Softmax", "x", "y"), "axis", 0);
    (void)builder_node(&b, "ReduceMax", "x", "most"); /* of all, kept as [1][1] */
    builder_output(&b, "y");
    builder_output(&b, "most");
    serve(backend, import_graph(&b), 5, &s);
    EXPECT(s.sizes == 0 && s.infos[1].rank == 2 && s.infos[1].dims[1] == 3 && s.infos[2].rank == 2 && s.infos[2].dims[1] == 1);
    for (uint32_t q = 0; q < 2; q++) {
        segments[q] = make_segment(&s, 2 + q);
        for (uint32_t i = 0; i < 3 * segments[q].items; i++) {
            ((float *)item_of(&s, &segments[q], 0, 0))[i] = (float)(10 * q + i);
        }
    }
    EXPECT(run_segments(&s, segments, 2) == LEAT_OK);
    EXPECT(s.backend->plan_run(s.plan, (const struct leat_segment[]){segments[0], segments[1], segments[0]}, 3, s.scratch, NULL) ==
           LEAT_ERR_INVALID); /* 7 items of 5 */
    for (uint32_t q = 0; q < 2; q++) {
        for (uint32_t i = 0; i < segments[q].items; i++) {
            const float *y = item_of(&s, &segments[q], 1, i), *most = item_of(&s, &segments[q], 2, i);
            EXPECT(y[0] == 1 && y[1] == 1 && y[2] == 1 && *most == (float)(10 * q + 3 * i + 2));
        }
        free_segment(&s, &segments[q]);
    }
    stop(&s);
    builder_fini(&b);
}

/* What has no batch, as what a step of a recurrent model remembers, and a number beside it: items come in front. */
static void
test_without_batch(const struct leat_backend *backend)
{
    static const int64_t three = 3;
    struct leat_segment segments[2];
    struct builder b;
    struct served s;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, 4));
    (void)builder_input(&b, "state", ONNX_F32, DIMS(2, 1, 4));
    (void)builder_input(&b, "times", ONNX_I64, NULL, 0);
    (void)builder_constant(&b, "three", ONNX_I64, &three, NULL, 0);
    (void)builder_node(&b, "Add", "state x", "next");
    (void)builder_node(&b, "Mul", "times three", "threefold");
    builder_output(&b, "next");
    builder_output(&b, "threefold");
    serve(backend, import_graph(&b), 5, &s);
    EXPECT(s.infos[0].rank == 2 && s.infos[1].rank == 4 && s.infos[2].rank == 1 && s.infos[3].rank == 4 && s.infos[4].rank == 1);
    EXPECT(s.infos[1].dims[0] == -1 && s.infos[1].dims[1] == 2 && s.infos[1].item_bytes == 8 * sizeof(float));
    EXPECT(s.infos[2].dims[0] == -1 && s.infos[2].item_bytes == sizeof(int64_t));
    for (uint32_t q = 0; q < 2; q++) {
        segments[q] = make_segment(&s, 2 + q);
        for (uint32_t i = 0; i < segments[q].items; i++) {
            for (uint32_t k = 0; k < 8; k++) {
                ((float *)item_of(&s, &segments[q], 0, i))[k % 4] = (float)(100 * q + 10 * i + k % 4);
                ((float *)item_of(&s, &segments[q], 1, i))[k] = (float)(1000 * k);
            }
            *(int64_t *)item_of(&s, &segments[q], 2, i) = 10 * q + i;
        }
    }
    EXPECT(run_segments(&s, segments, 2) == LEAT_OK);
    for (uint32_t q = 0; q < 2; q++) {
        for (uint32_t i = 0; i < segments[q].items; i++) {
            for (uint32_t k = 0; k < 8; k++) {
                EXPECT(((float *)item_of(&s, &segments[q], 3, i))[k] == (float)(1000 * k + 100 * q + 10 * i + k % 4));
            }
            EXPECT(*(int64_t *)item_of(&s, &segments[q], 4, i) == 3 * (10 * q + i));
        }
        free_segment(&s, &segments[q]);
    }
    stop(&s);
    builder_fini(&b);
}

/* A file for one item, and a condition in it. */
static void
test_if(const struct leat_backend *backend)
{
    struct builder b, yes, no;
    struct served s;

    builder_init(&yes, 13);
    (void)builder_node(&yes, "Neg", "x", "t");
    builder_output(&yes, "t");
    builder_init(&no, 13);
    (void)builder_node(&no, "Concat", "x x", "e");
    (void)builder_int(&no, no.nodes[0], "axis", 1);
    builder_output(&no, "e");
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(1, 2));
    (void)builder_input(&b, "c", ONNX_BOOL, DIMS(1));
    Onnx__NodeProto *node = builder_node(&b, "If", "c", "y");
    builder_graph(&b, node, "then_branch", &yes);
    builder_graph(&b, node, "else_branch", &no);
    builder_output(&b, "y");
    serve(backend, import_graph(&b), 2, &s);
    EXPECT(s.sizes == 1 && s.infos[2].rank == 2 && s.infos[2].dims[1] == 4 && s.infos[2].varying == 1);
    struct leat_segment segment = make_segment(&s, 2);
    memcpy(item_of(&s, &segment, 0, 0), (const float[]){1, 2, 3, 4}, 16);
    memcpy(item_of(&s, &segment, 1, 0), (const uint8_t[]){7, 0}, 2);
    EXPECT(run_segments(&s, &segment, 1) == LEAT_OK && segment.sizes[0] == 2 && segment.sizes[1] == 4);
    EXPECT(memcmp(item_of(&s, &segment, 2, 0), (const float[]){-1, -2, 0, 0, 3, 4, 3, 4}, 32) == 0);
    free_segment(&s, &segment);
    stop(&s);
    builder_fini(&b);
    builder_fini(&yes);
    builder_fini(&no);
}

/* ---- What an answer cannot tell ------------------------------------------------------------------- */

static void
expect_refused(struct builder *b, const char *text)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_graph *graph = import_graph(b);
    uint32_t inputs, outputs;

    const enum leat_status status = leat_graph_signature_of_one(graph, infos, &inputs, &outputs);
    if (status != LEAT_ERR_UNSUPPORTED || strstr(leat_error_text(), text) == NULL) {
        (void)fprintf(stderr, "status %d, '%s'\n", (int)status, leat_error_text());
    }
    EXPECT(status == LEAT_ERR_UNSUPPORTED && strstr(leat_error_text(), text) != NULL);
    leat_graph_destroy(graph);
    builder_fini(b);
}

static void
test_refused(void)
{
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, 256, 256));
    (void)builder_node(&b, "NonZero", "x", "y");
    builder_output(&b, "y");
    expect_refused(&b, "dimension 1 of output 'y' depends on tensor contents and can become 65536; an answer can tell up to 65535");

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, 4));
    (void)builder_node(&b, "NonZero", "x", "where");
    (void)builder_int(&b, builder_node(&b, "Cast", "where", "floats"), "to", ONNX_F32);
    (void)builder_node(&b, "Transpose", "floats", "turned");
    (void)builder_node(&b, "MatMul", "turned floats", "y");
    builder_output(&b, "y");
    expect_refused(&b, "more than one dimension of output 'y' depends on tensor contents");

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, 4));
    (void)builder_node(&b, "NonZero", "x", "y0");
    builder_output(&b, "y0");
    for (int o = 1; o < 5; o++) {
        char from[8], to[8];
        (void)snprintf(from, sizeof(from), "y%d", o - 1);
        (void)snprintf(to, sizeof(to), "y%d", o);
        (void)builder_node(&b, "Neg", from, to);
        builder_output(&b, to);
    }
    expect_refused(&b, "sizes of 5 outputs depend on tensor contents; an answer tells up to 4");

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(2, 1, 1, 1, 1, 1, 1, 1));
    (void)builder_node(&b, "Relu", "x", "y");
    builder_output(&b, "y");
    expect_refused(&b, "input 'x' has no dimension left for items");
}

int
main(void)
{
    leat_test_init();
    backends[backend_count++] = &leat_backend_reference;
    if (leat_backend_find("cpu") != NULL) {
        backends[backend_count++] = leat_backend_find("cpu");
    }
    for (uint32_t i = 0; i < backend_count; i++) {
        test_non_zero(backends[i]);
        test_first_few(backends[i], false);
        test_first_few(backends[i], true);
        test_boxes(backends[i]);
        test_loop(backends[i]);
        test_mixed(backends[i]);
        test_without_batch(backends[i]);
        test_if(backends[i]);
    }
    test_refused();
    return 0;
}
