/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     RNN, GRU and LSTM give on the cpu backend what the reference backend gives, and the same bits on teams of any size.
 * Method   Random nodes: directions, layouts, functions, clips, lengths, first states, peepholes, coupled gates, resets before
 *          and after the product, with and without each operand and result; sizes below, at and above those of vectors, panels
 *          and chunks; payloads with NaN and infinities, which must come out where they do in the reference. In vectors of
 *          AVX-512, and of AVX2 where the processor has no other or is told so: test_recurrent_without_avx512.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/isa.h"
#include "tests/kernels/drawn_numbers.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { ROUNDS = LEAT_TEST_ROUNDS(150), LARGE_ROUNDS = 6, TEAM = 3, OUTPUTS = 3 };

static bool
one_in(int64_t n)
{
    return between(1, n) == 1;
}

/* Each about 1 / `scale`. */
static float *
scaled(size_t count, float scale)
{
    float *data = floats(count);
    for (size_t i = 0; i < count; i++) {
        data[i] /= scale;
    }
    return data;
}

static void
constant(struct builder *b, const char *name, float scale, const int64_t *dims, size_t rank)
{
    size_t count = 1;
    for (size_t d = 0; d < rank; d++) {
        count *= (size_t)dims[d];
    }
    float *data = scaled(count, scale);
    (void)builder_constant(b, name, ONNX_F32, data, dims, rank);
    free(data);
}

/* A node, and the payloads of the inputs of its graph. */
struct subject {
    struct leat_graph *graph;
    const void *inputs[LEAT_TENSORS_MAX];
    uint32_t input_count;
    bool chosen; /* its functions are not those by default */
};

static void
add_input(struct builder *b, struct subject *s, const char *name, const int64_t *dims, size_t rank)
{
    size_t count = 1;
    for (size_t d = 0; d < rank; d++) {
        count *= (size_t)dims[d];
    }
    (void)builder_input(b, name, ONNX_F32, dims, rank);
    s->inputs[s->input_count++] = floats(count);
}

static void
add_lengths(struct builder *b, struct subject *s, int64_t batch, int64_t steps)
{
    int32_t *lengths = malloc((size_t)batch * sizeof(*lengths));
    EXPECT(lengths != NULL);
    for (int64_t i = 0; i < batch; i++) {
        lengths[i] = (int32_t)between(0, steps);
    }
    (void)builder_input(b, "n", ONNX_I32, DIMS(batch));
    s->inputs[s->input_count++] = lengths;
}

/* Of gates only such as are in 0..1, for states grow without bound through others, and so do errors. Parameters are near the
 * usual ones; those at the end of a list may be left to their defaults, which ScaledTanh does not have. ThresholdedRelu jumps,
 * and so may a result where sums differ by their last bits: see test_operators.c. */
static void
add_functions(struct builder *b, Onnx__NodeProto *node, int64_t directions, int64_t each)
{
    static const struct {
        const char *name;
        int64_t parameters;
    } functions[] = {{"Sigmoid", 0},   {"HardSigmoid", 2}, {"Tanh", 0},     {"Relu", 0},       {"Softsign", 0},       {"Affine", 2},
                     {"LeakyRelu", 1}, {"Elu", 1},         {"Softplus", 0}, {"ScaledTanh", 2}};
    char list[128] = "";
    float parameters[2][6];
    size_t counts[2] = {0, 0};
    bool scaled = false;

    for (int64_t i = 0; i < directions * each; i++) {
        const size_t used = strlen(list);
        const bool of_gates = each > 1 && i % each == 0;
        const size_t function = (size_t)between(0, of_gates ? 1 : (int64_t)LEAT_COUNT_OF(functions) - 1);
        EXPECT(snprintf(list + used, sizeof(list) - used, "%s%s", i > 0 ? " " : "", functions[function].name) <
               (int)(sizeof(list) - used));
        for (int64_t p = 0; p < functions[function].parameters; p++) {
            parameters[p][counts[p]++] = (float)between(100, 400) / 1000;
        }
        scaled = scaled || strcmp(functions[function].name, "ScaledTanh") == 0;
    }
    builder_strings(b, node, "activations", list);
    for (int p = 0; p < 2; p++) {
        const size_t given = scaled ? counts[p] : (size_t)between(0, (int64_t)counts[p]);
        if (given > 0) {
            builder_floats(b, node, p == 0 ? "activation_alpha" : "activation_beta", parameters[p], given);
        }
    }
}

static struct subject
make(bool large)
{
    static const char *const ops[] = {"RNN", "GRU", "LSTM"}, *const ways[] = {"forward", "reverse", "bidirectional"};
    const size_t op = (size_t)between(0, 2), way = (size_t)between(0, 2);
    const int64_t gates = op == 2 ? 4 : op == 1 ? 3 : 1, directions = way == 2 ? 2 : 1, layout = between(0, 1);
    const int64_t steps = between(1, 9), batch = large ? between(1, 60) : between(1, 9);
    const int64_t input = large ? between(1, 300) : between(1, 20), hidden = large ? between(60, 300) : between(1, 40);
    const float scale = sqrtf((float)(input + hidden)) / 2;
    const bool lengths = one_in(3), first_h = one_in(2), first_c = op == 2 && one_in(2), peepholes = op == 2 && one_in(3);
    const int64_t state[3] = {layout ? batch : directions, layout ? directions : batch, hidden};
    struct subject s = {.input_count = 0};
    struct builder b;
    char operands[48];

    builder_init(&b, 14);
    add_input(&b, &s, "x", DIMS(layout ? batch : steps, layout ? steps : batch, input));
    constant(&b, "w", scale, DIMS(directions, gates * hidden, input));
    constant(&b, "r", scale, DIMS(directions, gates * hidden, hidden));
    constant(&b, "b", 1, DIMS(directions, 2 * gates * hidden));
    constant(&b, "p", 1, DIMS(directions, 3 * hidden));
    if (lengths) {
        add_lengths(&b, &s, batch, steps);
    }
    if (first_h) {
        add_input(&b, &s, "h0", state, 3);
    }
    if (first_c) { /* a constant: together with it inputs and outputs would be more than LEAT_TENSORS_MAX */
        constant(&b, "c0", 1, state, 3);
    }
    (void)snprintf(operands, sizeof(operands), "x w r %s %s %s%s%s", one_in(4) ? "-" : "b", lengths ? "n" : "-",
                   first_h ? "h0" : "-", op == 2 ? first_c ? " c0" : " -" : "", peepholes ? " p" : "");
    Onnx__NodeProto *node = builder_node(&b, ops[op], operands, op == 2 ? "y h c" : "y h");
    (void)builder_string(&b, node, "direction", ways[way]);
    (void)builder_int(&b, node, "hidden_size", hidden);
    (void)builder_int(&b, node, "layout", layout);
    if (one_in(3)) {
        (void)builder_float(&b, node, "clip", 0.5f);
    }
    s.chosen = one_in(2);
    if (s.chosen) {
        add_functions(&b, node, directions, op == 2 ? 3 : op == 1 ? 2 : 1);
    }
    if (op == 1) {
        (void)builder_int(&b, node, "linear_before_reset", between(0, 1));
    } else if (op == 2) {
        (void)builder_int(&b, node, "input_forget", between(0, 1));
    }
    builder_output(&b, "y");
    if (one_in(2)) {
        builder_output(&b, "h");
    }
    if (op == 2 && one_in(2)) {
        builder_output(&b, "c");
    }
    s.graph = import_graph(&b);
    builder_fini(&b);
    return s;
}

static void
answer(const struct leat_backend *backend, const struct subject *s, struct leat_team *team, float *outputs[OUTPUTS])
{
    struct loaded loaded;

    for (uint32_t o = 0; o < s->graph->output_count; o++) {
        outputs[o] = floats(leat_value_elements(&s->graph->values[s->graph->outputs[o]]));
    }
    load_for_team(backend, s->graph, team, &loaded);
    EXPECT(run(&loaded, s->inputs, (void *const *)outputs) == LEAT_OK);
    unload(&loaded);
}

static bool
is_near(float have, float want)
{
    return isnan(want) ? isnan(have) : have == want || fabsf(have - want) <= 2e-5f * (1 + fabsf(want));
}

/* Something that is no number, or too large a one, in one place of x: what comes of it comes where it does in the reference. */
static void
spoil(const struct subject *s)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 1e30f};
    const struct leat_value *x = &s->graph->values[s->graph->inputs[0]];

    /* Functions without a bound make of it what is too large for f32 but not for the reference's f64. */
    ((float *)(uintptr_t)s->inputs[0])[between(0, (int64_t)leat_value_elements(x) - 1)] = odd[s->chosen ? 0 : between(0, 3)];
}

static void
test_nodes(struct leat_team *team, bool large)
{
    struct subject s = make(large);
    float *want[OUTPUTS], *alone[OUTPUTS], *together[OUTPUTS];

    if (one_in(4)) {
        spoil(&s);
    }
    EXPECT(!cpu_has_avx2() || count_plain_loops(s.graph, s.graph->nodes[0].op->kind) == 0);
    answer(&leat_backend_reference, &s, NULL, want);
    answer(&leat_backend_cpu, &s, NULL, alone);
    answer(&leat_backend_cpu, &s, team, together);
    for (uint32_t o = 0; o < s.graph->output_count; o++) {
        const size_t count = leat_value_elements(&s.graph->values[s.graph->outputs[o]]);
        EXPECT(memcmp(alone[o], together[o], count * sizeof(float)) == 0);
        for (size_t i = 0; i < count; i++) {
            EXPECT(is_near(alone[o][i], want[o][i]));
        }
        free(want[o]);
        free(alone[o]);
        free(together[o]);
    }
    for (uint32_t i = 0; i < s.input_count; i++) {
        free((void *)(uintptr_t)s.inputs[i]);
    }
    leat_graph_destroy(s.graph);
}

int
main(void)
{
    struct leat_team *teams[TEAM];

    leat_test_init();
    random_state = leat_test_seed;
    for (uint32_t t = 1; t < TEAM; t++) {
        EXPECT(leat_team_create(&(struct leat_team_options){.size = t + 1}, &teams[t]) == LEAT_OK);
    }
    for (int round = 0; round < ROUNDS; round++) {
        test_nodes(teams[1 + round % (TEAM - 1)], false);
    }
    for (int round = 0; round < LARGE_ROUNDS; round++) {
        test_nodes(teams[1 + round % (TEAM - 1)], true);
    }
    for (uint32_t t = 1; t < TEAM; t++) {
        leat_team_destroy(teams[t]);
    }
    return 0;
}
