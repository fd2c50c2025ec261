/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Convolutions by groups of any sizes, along one to three axes, with any strides, gaps and paddings, give on the cpu backend what
 *          the reference backend gives, the same bits for teams of any size, and none is on oneDNN's gemm, which locks, where there is AVX2.
 * Method   Random shapes, beside the reference backend; weights and biases that are constant, and some that are computed.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/inspect.h"
#include "kernels/cpu/isa.h"
#include "tests/kernels/drawn_numbers.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { ROUNDS = LEAT_TEST_ROUNDS(300), TEAM = 3 };

static struct builder b;

static size_t
product(const int64_t *dims, size_t rank)
{
    size_t count = 1;
    for (size_t d = 0; d < rank; d++) {
        count *= (size_t)dims[d];
    }
    return count;
}

static bool
has_avx2_alone(void)
{
#if defined(__x86_64__)
    return cpu_vector_lanes() == 8;
#else
    return false;
#endif
}

static void
expect_no_gemm(const struct leat_graph *graph)
{
#if defined(__x86_64__)
    struct leat_inspection *inspection = NULL;
    struct leat_inspection_step step;

    EXPECT(leat_inspection_create(graph, LEAT_PRECISION_F32, 1, 1, &inspection) == LEAT_OK);
    for (uint32_t s = 0; s < leat_inspection_step_count(inspection) && cpu_has_avx2(); s++) {
        leat_inspection_step(inspection, s, &step);
        EXPECT(strstr(step.kernel, "gemm") == NULL || strstr(step.kernel, "brgemm") != NULL);
    }
    leat_inspection_destroy(inspection);
#else
    (void)graph;
#endif
}

/* Its dims in x, the weights and y, two in front of `rank` spatial ones; strides, gaps and paddings, all of them before those behind. */
struct shape {
    size_t rank;
    int64_t x[5], w[5], y[5], strides[3], dilations[3], pads[6], groups;
};

static struct shape
random_shape(void)
{
    struct shape s = {.rank = (size_t)between(1, 3), .groups = between(1, 5)};
    const bool by_channels = between(0, 3) == 0;

    s.x[0] = s.y[0] = between(1, 3);
    s.w[1] = by_channels ? 1 : between(1, 9);
    s.x[1] = s.w[1] * s.groups;
    s.w[0] = s.y[1] = s.groups * (by_channels ? 1 : between(1, 9));
    for (size_t d = 0; d < s.rank; d++) {
        const bool last = d + 1 == s.rank;
        s.w[2 + d] = between(1, last ? 5 : 3);
        s.strides[d] = between(1, 3);
        s.dilations[d] = between(0, 2) == 0 ? between(2, 4) : 1;
        const int64_t reach = (s.w[2 + d] - 1) * s.dilations[d] + 1;
        s.pads[d] = between(0, reach - 1);
        s.pads[s.rank + d] = between(0, reach - 1);
        s.x[2 + d] = between(1, last ? 90 : 9);
        if (s.x[2 + d] + s.pads[d] + s.pads[s.rank + d] < reach) {
            s.x[2 + d] = reach;
        }
        s.y[2 + d] = (s.x[2 + d] + s.pads[d] + s.pads[s.rank + d] - reach) / s.strides[d] + 1;
    }
    return s;
}

static void
test_shape(const struct shape *s)
{
    static const char *const activations[] = {NULL, "Relu", "Sigmoid", "HardSwish", "LeakyRelu", "Clip"};
    const size_t dims = 2 + s->rank, counts[2] = {product(s->x, dims), product(s->y, dims)};
    const bool bias = between(0, 1) != 0, side = between(0, 1) != 0;
    const char *activation = activations[between(0, (int64_t)LEAT_COUNT_OF(activations) - 1)], *last = "p";
    const bool computed = between(0, 3) == 0;
    const float low = (float)between(-1000, 0) / 1000, high = (float)between(0, 1000) / 1000;
    float *weights = floats(product(s->w, dims)), *vector = floats((size_t)s->w[0]);

    builder_init(&b, 14);
    (void)builder_input(&b, "x", ONNX_F32, s->x, dims);
    (void)builder_input(&b, "side", ONNX_F32, s->y, dims);
    if (computed) {
        (void)builder_input(&b, "w", ONNX_F32, s->w, dims);
        (void)builder_input(&b, "bias", ONNX_F32, DIMS(s->w[0]));
    } else {
        (void)builder_constant(&b, "w", ONNX_F32, weights, s->w, dims);
        (void)builder_constant(&b, "bias", ONNX_F32, vector, DIMS(s->w[0]));
    }
    (void)builder_constant(&b, "low", ONNX_F32, &low, NULL, 0);
    (void)builder_constant(&b, "high", ONNX_F32, &high, NULL, 0);
    Onnx__NodeProto *node = builder_node(&b, "Conv", bias ? "x w bias" : "x w", "p");
    (void)builder_int(&b, node, "group", s->groups);
    (void)builder_ints(&b, node, "strides", s->strides, s->rank);
    (void)builder_ints(&b, node, "dilations", s->dilations, s->rank);
    (void)builder_ints(&b, node, "pads", s->pads, 2 * s->rank);
    if (side) {
        (void)builder_node(&b, "Add", "p side", "sum");
        last = "sum";
    }
    if (activation != NULL) {
        char operands[32];
        (void)snprintf(operands, sizeof(operands), strcmp(activation, "Clip") == 0 ? "%s low high" : "%s", last);
        (void)builder_node(&b, activation, operands, "y");
        last = "y";
    }
    builder_output(&b, last);
    struct leat_graph *plain = import_graph(&b), *fused = import_graph(&b);
    EXPECT(leat_graph_optimise(fused, ~UINT64_C(0)) == LEAT_OK);
    float *x = floats(counts[0]), *addend = floats(counts[1]), *want = floats(counts[1]), *have = floats(counts[1]), *first = floats(counts[1]);
    const void *const inputs[4] = {x, addend, weights, vector};
    struct loaded loaded;
    load(&leat_backend_reference, plain, &loaded);
    EXPECT(run(&loaded, inputs, (void *const[]){want}) == LEAT_OK);
    unload(&loaded);
    for (uint32_t size = 1; size <= TEAM; size++) {
        struct leat_team *team;
        EXPECT(leat_team_create(&(struct leat_team_options){.size = size, .spin_ns = 20000}, &team) == LEAT_OK);
        load_for_team(&leat_backend_cpu, fused, team, &loaded);
        for (int again = 0; again < 2; again++) {
            EXPECT(run(&loaded, inputs, (void *const[]){have}) == LEAT_OK);
            for (size_t i = 0; i < counts[1] && size == 1; i++) {
                EXPECT(fabsf(have[i] - want[i]) <= 1e-4f * (1 + fabsf(want[i])));
            }
            if (size == 1 && again == 0) {
                memcpy(first, have, counts[1] * sizeof(*have));
            }
            EXPECT(!has_avx2_alone() || memcmp(first, have, counts[1] * sizeof(*have)) == 0); /* of oneDNN's others nobody says so */
        }
        unload(&loaded);
        leat_team_destroy(team);
    }
    expect_no_gemm(fused);
    free(weights);
    free(vector);
    free(x);
    free(addend);
    free(want);
    free(have);
    free(first);
    leat_graph_destroy(plain);
    leat_graph_destroy(fused);
    builder_fini(&b);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    for (int round = 0; round < ROUNDS; round++) {
        const struct shape s = random_shape();
        test_shape(&s);
    }
    return 0;
}
