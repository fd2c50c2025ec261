/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Operators that take indices, lengths, places or divisors from payload survive any of them in every backend: a
 *          number out of range fails the batch and touches no other memory.
 * Method   One model of fixed shapes per case. Hostile numbers stand once at each place of the index tensor, or at
 *          random where they are places; the edges of the range still work afterwards.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

/* ---- Hostile indices ---------------------------------------------------------------------------------------- */

struct hostile {
    const char *op;
    int64_t opset;
    int64_t x[4], indices[4], updates[4]; /* dims, ending with 0; no updates when updates[0] is 0 */
    int index_type;
    const char *attribute; /* an integer one, or NULL */
    int64_t value;
    int64_t limit;    /* an index from it on is out of range */
    int64_t negative; /* the least index */
    bool tolerant;    /* whatever the index is, the batch succeeds */
};

static size_t
rank_of(const int64_t *dims)
{
    size_t rank = 0;
    while (rank < 4 && dims[rank] != 0) {
        rank++;
    }
    return rank;
}

static size_t
elements_of(const int64_t *dims)
{
    size_t count = 1;
    for (size_t d = 0; d < rank_of(dims); d++) {
        count *= (size_t)dims[d];
    }
    return count;
}

static void
set_index(const struct hostile *h, void *indices, size_t i, int64_t value)
{
    if (h->index_type == ONNX_I32) {
        ((int32_t *)indices)[i] = (int32_t)value;
    } else {
        ((int64_t *)indices)[i] = value;
    }
}

static void
attack(const struct loaded *loaded, const struct hostile *h)
{
    const int64_t bad[] = {h->limit,  h->negative - 1, INT32_MAX,        INT32_MIN,
                           INT64_MAX, INT64_MIN,       INT64_C(1) << 32, -(INT64_C(1) << 32)};
    const size_t count = elements_of(h->indices),
                 values = h->index_type == ONNX_I32 ? 4 : LEAT_COUNT_OF(bad);
    float x[64] = {0}, updates[64] = {0};
    int64_t indices[64] = {0};
    static unsigned char out[4096];
    const void *inputs[3] = {x, indices, updates};
    void *outputs[1] = {out};

    for (size_t v = 0; v < values; v++) {
        for (size_t i = 0; i < count; i++) {
            set_index(h, indices, i, bad[v]);
            const enum leat_status status = run(loaded, inputs, outputs);
            if (status != (h->tolerant ? LEAT_OK : LEAT_ERR_SHAPE)) {
                (void)fprintf(stderr, "%s, %s: index %lld at %zu gives status %d\n", h->op,
                              loaded->backend->name, (long long)bad[v], i, (int)status);
            }
            EXPECT(status == (h->tolerant ? LEAT_OK : LEAT_ERR_SHAPE));
            EXPECT(h->tolerant || (out[0] == 0x5a && out[1] == 0x5a));
            set_index(h, indices, i, 0);
        }
    }
    /* The edges of the range, and whatever was tried before leaves nothing behind. */
    for (size_t i = 0; i < count; i++) {
        set_index(h, indices, i, h->limit - 1);
        EXPECT(run(loaded, inputs, outputs) == LEAT_OK);
        set_index(h, indices, i, h->negative);
        EXPECT(run(loaded, inputs, outputs) == LEAT_OK);
        set_index(h, indices, i, 0);
    }
}

static void
test_hostile_indices(const struct leat_backend *backend)
{
    static const struct hostile cases[] = {
        {"Gather", 13, {5, 3}, {4}, {0}, ONNX_I64, "axis", 0, 5, -5, false},
        {"Gather", 13, {5, 3}, {4}, {0}, ONNX_I32, "axis", 1, 3, -3, false},
        {"GatherElements", 13, {3, 4}, {3, 2}, {0}, ONNX_I64, "axis", 1, 4, -4, false},
        {"GatherElements", 13, {3, 4}, {2, 4}, {0}, ONNX_I32, "axis", 0, 3, -3, false},
        {"GatherND", 13, {2, 2, 2}, {3, 2}, {0}, ONNX_I64, NULL, 0, 2, -2, false},
        {"GatherND", 13, {2, 3, 2}, {2, 4, 1}, {0}, ONNX_I64, "batch_dims", 1, 3, -3, false},
        {"ScatterElements", 13, {3, 4}, {3, 2}, {3, 2}, ONNX_I64, "axis", 1, 4, -4, false},
        {"ScatterElements", 16, {3, 4}, {1, 4}, {1, 4}, ONNX_I32, "axis", 0, 3, -3, false},
        {"Scatter", 9, {3, 4}, {3, 2}, {3, 2}, ONNX_I64, "axis", 1, 4, -4, false},
        {"ScatterND", 13, {2, 2, 3}, {3, 2}, {3, 3}, ONNX_I64, NULL, 0, 2, -2, false},
        {"ReverseSequence", 13, {4, 3}, {3}, {0}, ONNX_I64, "time_axis", 0, 5, 0, false},
        {"CumSum", 13, {3, 4}, {1}, {0}, ONNX_I64, NULL, 0, 2, -2, false},
        {"CumSum", 13, {3, 4}, {1}, {0}, ONNX_I32, NULL, 0, 2, -2, false},
        {"NegativeLogLikelihoodLoss", 13, {3, 4}, {3}, {0}, ONNX_I64, NULL, 0, 4, 0, false},
        {"SoftmaxCrossEntropyLoss", 13, {3, 4}, {3}, {0}, ONNX_I32, NULL, 0, 4, 0, false},
        {"Trilu", 14, {3, 4}, {1}, {0}, ONNX_I64, "upper", 0, 3, -3, true},
        {"Trilu", 14, {3, 4}, {1}, {0}, ONNX_I64, "upper", 1, 3, -3, true},
    };
    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        const struct hostile *h = &cases[c];
        const bool updates = rank_of(h->updates) > 0;
        struct builder b;
        struct loaded loaded;

        builder_init(&b, h->opset);
        (void)builder_input(&b, "x", ONNX_F32, h->x, rank_of(h->x));
        (void)builder_input(&b, "i", h->index_type, h->indices, rank_of(h->indices));
        if (updates) {
            (void)builder_input(&b, "u", ONNX_F32, h->updates, rank_of(h->updates));
        }
        Onnx__NodeProto *node = builder_node(&b, h->op, updates ? "x i u" : "x i", "y");
        if (h->attribute != NULL) {
            (void)builder_int(&b, node, h->attribute, h->value);
        }
        builder_output(&b, "y");
        struct leat_graph *graph = import_graph(&b);
        load(backend, graph, &loaded);
        attack(&loaded, h);
        unload(&loaded);
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
}

/* An index of MaxUnpool may name its own plane only: elements of others may be another client's. */
static void
test_max_unpool(const struct leat_backend *backend)
{
    static const int64_t bad[] = {-1, 16, 32, INT64_MIN, INT64_MAX, INT64_C(1) << 32};
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[32];
    int64_t indices[8];
    const void *inputs[2] = {x, indices};
    void *outputs[1] = {y};
    struct builder b;
    struct loaded loaded;

    builder_init(&b, 11);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(1, 2, 2, 2));
    (void)builder_input(&b, "i", ONNX_I64, DIMS(1, 2, 2, 2));
    Onnx__NodeProto *node = builder_node(&b, "MaxUnpool", "x i", "y");
    (void)builder_ints(&b, node, "kernel_shape", DIMS(2, 2));
    (void)builder_ints(&b, node, "strides", DIMS(2, 2));
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    load(backend, graph, &loaded);
    for (size_t i = 0; i < 8; i++) {
        for (size_t v = 0; v <= LEAT_COUNT_OF(bad); v++) {
            for (size_t k = 0; k < 8; k++) {
                indices[k] = (int64_t)(k / 4 * 16 + k);
            }
            /* The last number of all is in range, but of the other plane. */
            indices[i] = v < LEAT_COUNT_OF(bad) ? bad[v] : i < 4 ? 31 : 0;
            const bool fits =
                indices[i] >= (int64_t)(i / 4 * 16) && indices[i] < (int64_t)(i / 4 * 16 + 16);
            EXPECT(run(&loaded, inputs, outputs) == (fits ? LEAT_OK : LEAT_ERR_SHAPE));
            EXPECT(!fits || y[indices[i]] == x[i]);
        }
    }
    unload(&loaded);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* Lengths of sequences are loop counts. */
static void
test_sequence_lengths(const struct leat_backend *backend)
{
    static const char *const ops[] = {"RNN", "GRU", "LSTM"};
    static const int64_t gates[] = {1, 3, 4};
    static const int32_t bad[] = {4, -1, INT32_MAX, INT32_MIN};
    for (size_t c = 0; c < LEAT_COUNT_OF(ops); c++) {
        float x[3 * 2 * 2] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, y[3 * 2 * 2 * 2];
        int32_t lengths[2] = {3, 0};
        const void *inputs[2] = {x, lengths};
        void *outputs[1] = {y};
        struct builder b;
        struct loaded loaded;

        builder_init(&b, 14);
        (void)builder_input(&b, "x", ONNX_F32, DIMS(3, 2, 2));
        (void)builder_input(&b, "n", ONNX_I32, DIMS(2));
        (void)builder_constant(&b, "w", ONNX_F32, NULL, DIMS(2, gates[c] * 2, 2));
        (void)builder_constant(&b, "r", ONNX_F32, NULL, DIMS(2, gates[c] * 2, 2));
        Onnx__NodeProto *node = builder_node(&b, ops[c], "x w r - n", "y");
        (void)builder_string(&b, node, "direction", "bidirectional");
        (void)builder_int(&b, node, "hidden_size", 2);
        builder_output(&b, "y");
        struct leat_graph *graph = import_graph(&b);
        load(backend, graph, &loaded);
        EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
        for (size_t i = 0; i < 2 * LEAT_COUNT_OF(bad); i++) {
            lengths[i % 2] = bad[i / 2];
            EXPECT(run(&loaded, inputs, outputs) == LEAT_ERR_SHAPE);
            lengths[i % 2] = 0;
        }
        unload(&loaded);
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
}

/* Places in a picture are floats: any of them must do, and an image that is not there fails the batch. */
static void
test_places(const struct leat_backend *backend)
{
    static const float odd[] = {0, -1, 1, 0.5f, 7, -1e9f, 1e30f, -3e38f, INFINITY, -INFINITY, NAN};
    static const char *const modes[] = {"bilinear", "nearest", "bicubic"};
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    float x[2 * 3 * 4], grid[2 * 5 * 2 * 2], y[2 * 5 * 2];
    const void *inputs[2] = {x, grid};
    void *outputs[1] = {y};
    uint64_t random = leat_test_seed;

    for (size_t i = 0; i < LEAT_COUNT_OF(x); i++) {
        x[i] = 1;
    }
    for (int form = 0; form < 18; form++) {
        struct builder b;
        struct loaded loaded;

        builder_init(&b, 16);
        (void)builder_input(&b, "x", ONNX_F32, DIMS(2, 1, 3, 4));
        (void)builder_input(&b, "grid", ONNX_F32, DIMS(2, 5, 2, 2));
        Onnx__NodeProto *node = builder_node(&b, "GridSample", "x grid", "y");
        (void)builder_string(&b, node, "mode", modes[form % 3]);
        (void)builder_string(&b, node, "padding_mode", paddings[form / 3 % 3]);
        (void)builder_int(&b, node, "align_corners", form / 9);
        builder_output(&b, "y");
        struct leat_graph *graph = import_graph(&b);
        load(backend, graph, &loaded);
        for (int round = 0; round < 200; round++) {
            for (size_t i = 0; i < LEAT_COUNT_OF(grid); i++) {
                grid[i] = odd[leat_test_random(&random) % LEAT_COUNT_OF(odd)];
            }
            EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
            for (size_t i = 0; i < LEAT_COUNT_OF(y) && form / 3 % 3 != 0; i++) {
                EXPECT(fabsf(y[i] - 1) < 1e-5f); /* without zeros outside, all is one colour */
            }
        }
        unload(&loaded);
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
}

static void
test_regions(const struct leat_backend *backend)
{
    static const float odd[] = {0, -1, 1, 0.5f, 3, -1e9f, 1e30f, -3e38f, INFINITY, -INFINITY, NAN};
    static const int64_t bad[] = {-1, 2, INT64_MAX, INT64_MIN, INT64_C(1) << 32};
    float x[2 * 3 * 4] = {0}, rois[3 * 4] = {0}, y[3 * 4];
    int64_t images[3] = {0, 1, 0};
    const void *inputs[3] = {x, rois, images};
    void *outputs[1] = {y};
    uint64_t random = leat_test_seed;
    struct builder b;
    struct loaded loaded;

    builder_init(&b, 16);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(2, 1, 3, 4));
    (void)builder_input(&b, "rois", ONNX_F32, DIMS(3, 4));
    (void)builder_input(&b, "images", ONNX_I64, DIMS(3));
    Onnx__NodeProto *node = builder_node(&b, "RoiAlign", "x rois images", "y");
    (void)builder_int(&b, node, "output_height", 2);
    (void)builder_int(&b, node, "output_width", 2);
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    load(backend, graph, &loaded);
    EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
    for (size_t i = 0; i < 3 * LEAT_COUNT_OF(bad); i++) {
        images[i % 3] = bad[i / 3];
        EXPECT(run(&loaded, inputs, outputs) == LEAT_ERR_SHAPE);
        images[i % 3] = 1;
    }
    for (int round = 0; round < 2000; round++) {
        bool finite = true;
        for (size_t i = 0; i < LEAT_COUNT_OF(rois); i++) {
            rois[i] = odd[leat_test_random(&random) % LEAT_COUNT_OF(odd)];
            finite = finite && fabsf(rois[i]) < 10;
        }
        const enum leat_status status = run(&loaded, inputs, outputs);
        EXPECT(status == LEAT_OK || (status == LEAT_ERR_SHAPE && !finite));
        for (size_t i = 0; i < LEAT_COUNT_OF(y) && status == LEAT_OK; i++) {
            EXPECT(y[i] == 0);
        }
    }
    unload(&loaded);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* An index that OneHot does not have turns nothing on. */
static void
test_one_hot(const struct leat_backend *backend)
{
    static const int64_t indices[] = {0, -1, 3, -4, 2, INT64_MAX, INT64_MIN, -3};
    static const int on[] = {0, 2, -1, -1, 2, -1, -1, 0};
    static const float depth[1] = {3}, values[2] = {0, 1};
    float y[8 * 3];
    const void *inputs[1] = {indices};
    void *outputs[1] = {y};
    struct builder b;
    struct loaded loaded;

    builder_init(&b, 13);
    (void)builder_input(&b, "i", ONNX_I64, DIMS(8));
    (void)builder_constant(&b, "depth", ONNX_F32, depth, DIMS(1));
    (void)builder_constant(&b, "values", ONNX_F32, values, DIMS(2));
    (void)builder_node(&b, "OneHot", "i depth values", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    load(backend, graph, &loaded);
    EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < 3; k++) {
            EXPECT(y[i * 3 + k] == (on[i] == k ? 1.0f : 0.0f));
        }
    }
    unload(&loaded);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* Integer division and remainder: zero fails the batch, the smallest integer by -1 does not trap. */
static void
test_divisors(const struct leat_backend *backend)
{
    static const char *const ops[] = {"Div", "Mod"};
    for (size_t c = 0; c < LEAT_COUNT_OF(ops); c++) {
        int64_t x[2] = {INT64_MIN, 7}, d[2] = {-1, 2}, y[2];
        const void *inputs[2] = {x, d};
        void *outputs[1] = {y};
        struct builder b;
        struct loaded loaded;

        builder_init(&b, 13);
        (void)builder_input(&b, "x", ONNX_I64, DIMS(2));
        (void)builder_input(&b, "d", ONNX_I64, DIMS(2));
        (void)builder_node(&b, ops[c], "x d", "y");
        builder_output(&b, "y");
        struct leat_graph *graph = import_graph(&b);
        load(backend, graph, &loaded);
        EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
        EXPECT(y[0] == (c == 0 ? INT64_MIN : 0) && y[1] == (c == 0 ? 3 : 1));
        d[1] = 0;
        EXPECT(run(&loaded, inputs, outputs) == LEAT_ERR_SHAPE);
        unload(&loaded);
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
}

/* Boxes and scores that are no numbers, or no boxes, suppress and select nothing that they should not. */
static void
test_suppression_of_anything(void)
{
    static const float odd[] = {0, -1, 1, 1e30f, -1e30f, INFINITY, -INFINITY, NAN};
    struct builder b;
    struct leat_graph *concrete = NULL;
    struct leat_shape shape;
    float boxes[6 * 4], scores[6];
    int64_t most, rows[6 * 3];
    const void *inputs[3] = {boxes, scores, &most};
    void *outputs[1] = {rows};
    uint64_t random = leat_test_seed;
    size_t scratch_bytes;

    builder_init(&b, 11);
    (void)builder_input(&b, "boxes", ONNX_F32, DIMS(1, 6, 4));
    (void)builder_input(&b, "scores", ONNX_F32, DIMS(1, 1, 6));
    (void)builder_input(&b, "most", ONNX_I64, DIMS(1));
    (void)builder_node(&b, "NonMaxSuppression", "boxes scores most", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    EXPECT(leat_graph_specialise(graph, 1, &concrete) == LEAT_OK);
    EXPECT(leat_reference_scratch_bytes(concrete, &scratch_bytes) == LEAT_OK);
    void *scratch = malloc(scratch_bytes);
    EXPECT(scratch != NULL);
    for (int round = 0; round < 2000; round++) {
        static const int64_t limits[] = {0, 1, 6, 7, -1, INT64_MAX, INT64_MIN};
        for (int i = 0; i < 30; i++) {
            *(i < 24 ? &boxes[i] : &scores[i - 24]) =
                odd[leat_test_random(&random) % LEAT_COUNT_OF(odd)];
        }
        most = limits[leat_test_random(&random) % LEAT_COUNT_OF(limits)];
        EXPECT(leat_reference_run(concrete, inputs, outputs, scratch, &shape) == LEAT_OK);
        EXPECT(shape.dims[0] >= 0 && shape.dims[0] <= (most < 0 ? 0 : most < 6 ? most : 6));
        uint32_t seen = 0;
        for (int64_t r = 0; r < shape.dims[0]; r++) {
            const int64_t box = rows[3 * r + 2];
            EXPECT(rows[3 * r] == 0 && rows[3 * r + 1] == 0 && box >= 0 && box < 6);
            EXPECT((seen >> box & 1u) == 0 && !isnan(scores[box]));
            seen |= 1u << box;
        }
    }
    free(scratch);
    leat_graph_destroy(concrete);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

int
main(void)
{
    static const char *const names[] = {"reference", "cpu"};

    leat_test_init();
    test_suppression_of_anything();
    for (size_t i = 0; i < LEAT_COUNT_OF(names); i++) {
        const struct leat_backend *backend = leat_backend_find(names[i]);
        EXPECT(backend != NULL || i > 0);
        if (backend != NULL) {
            test_hostile_indices(backend);
            test_places(backend);
            test_regions(backend);
            test_max_unpool(backend);
            test_sequence_lengths(backend);
            test_one_hot(backend);
            test_divisors(backend);
        }
    }
    return 0;
}
