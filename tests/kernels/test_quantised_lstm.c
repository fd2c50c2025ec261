/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     DynamicQuantizeLSTM (com.microsoft) is the LSTM of the weights that its numbers of 8 bits stand for, whatever they are
 *          multiplied by; weights that are not constant, or do not fit, are errors that say so.
 * Method   Both forms of the same network in every backend, bit by bit, with weights that are worked out here; and files that are wrong
 *          in one way each.
 */
#include <string.h>

#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { STEPS = 3, ITEMS = 2, INPUTS = 5, STATE = 4, GATES = 4 * STATE, WEIGHTS_MAX = 2 * GATES * INPUTS, SCALES_MAX = 2 * GATES };

static uint64_t random_state;

/* Of inputs, or of the state: in 8 bits [directions][inputs][gates], and as an LSTM has them, [directions][gates][inputs]. */
struct weights {
    int64_t inputs;
    uint8_t bytes[WEIGHTS_MAX], zeros[SCALES_MAX];
    float scales[SCALES_MAX], floats[WEIGHTS_MAX];
};

static void
draw(struct weights *w, int64_t inputs, int64_t directions, bool is_signed, bool by_gate)
{
    const size_t scales = (size_t)directions * (by_gate ? GATES : 1);

    w->inputs = inputs;
    for (size_t i = 0; i < sizeof(w->bytes); i++) {
        w->bytes[i] = (uint8_t)leat_test_random(&random_state);
    }
    for (size_t s = 0; s < scales; s++) {
        w->zeros[s] = (uint8_t)leat_test_random(&random_state);
        w->scales[s] = (float)(1 + leat_test_random(&random_state) % 7) / 1000.0f;
    }
    for (size_t d = 0; d < (size_t)directions; d++) {
        for (size_t i = 0; i < (size_t)inputs; i++) {
            for (size_t g = 0; g < GATES; g++) {
                const size_t s = by_gate ? d * GATES + g : d;
                const uint8_t x = w->bytes[(d * (size_t)inputs + i) * GATES + g], zero = w->zeros[s];
                const int difference = is_signed ? (int8_t)x - (int8_t)zero : x - zero;
                w->floats[(d * GATES + g) * (size_t)inputs + i] = (float)difference * w->scales[s];
            }
        }
    }
}

static void
add_quantised(struct builder *b, const char *const names[3], const struct weights *w, int64_t directions, bool is_signed, bool by_gate)
{
    const int type = is_signed ? ONNX_I8 : ONNX_U8;

    (void)builder_constant(b, names[0], type, w->bytes, DIMS(directions, w->inputs, GATES));
    (void)builder_constant(b, names[1], ONNX_F32, w->scales, (const int64_t[]){directions, GATES}, by_gate ? 2 : 1);
    (void)builder_constant(b, names[2], type, w->zeros, (const int64_t[]){directions, GATES}, by_gate ? 2 : 1);
}

/* y[steps][directions][items][state] and the last states. */
static void
answer(const struct leat_backend *backend, struct builder *b, const float *x, float *y, float *h)
{
    struct leat_graph *graph = import_graph(b);
    struct loaded loaded;

    EXPECT(graph->node_count == 1 && graph->nodes[0].op->kind == LEAT_OP_LSTM);
    load(backend, graph, &loaded);
    EXPECT(run(&loaded, (const void *const[]){x}, (void *const[]){y, h}) == LEAT_OK);
    unload(&loaded);
    leat_graph_destroy(graph);
}

static void
test_form(const struct leat_backend *backend, int64_t directions, bool is_signed, bool by_gate, bool biased)
{
    enum { RESULTS = STEPS * 2 * ITEMS * STATE, LAST = 2 * ITEMS * STATE };
    struct weights w, r;
    float x[STEPS * ITEMS * INPUTS], bias[2 * 2 * GATES], y[2][RESULTS] = {{0}}, h[2][LAST] = {{0}};

    draw(&w, INPUTS, directions, is_signed, by_gate);
    draw(&r, STATE, directions, is_signed, by_gate);
    for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); i++) {
        x[i] = (float)(leat_test_random(&random_state) % 2000) / 1000.0f - 1;
    }
    for (size_t i = 0; i < sizeof(bias) / sizeof(bias[0]); i++) {
        bias[i] = (float)(leat_test_random(&random_state) % 2000) / 1000.0f - 1;
    }
    for (int form = 0; form < 2; form++) {
        struct builder b;
        Onnx__NodeProto *node;
        builder_init(&b, 13);
        (void)builder_input(&b, "x", ONNX_F32, DIMS(STEPS, ITEMS, INPUTS));
        (void)builder_constant(&b, "b", ONNX_F32, bias, DIMS(directions, 2 * GATES));
        if (form == 0) {
            (void)builder_constant(&b, "w", ONNX_F32, w.floats, DIMS(directions, GATES, INPUTS));
            (void)builder_constant(&b, "r", ONNX_F32, r.floats, DIMS(directions, GATES, STATE));
            node = builder_node(&b, "LSTM", biased ? "x w r b" : "x w r", "y h");
        } else {
            add_quantised(&b, (const char *const[]){"w", "ws", "wz"}, &w, directions, is_signed, by_gate);
            add_quantised(&b, (const char *const[]){"r", "rs", "rz"}, &r, directions, is_signed, by_gate);
            node = builder_node(&b, "DynamicQuantizeLSTM", biased ? "x w r b - - - - ws wz rs rz" : "x w r - - - - - ws wz rs rz", "y h");
            node->domain = strcpy(builder_alloc(&b, 16), "com.microsoft");
        }
        (void)builder_int(&b, node, "hidden_size", STATE);
        (void)builder_string(&b, node, "direction", directions == 2 ? "bidirectional" : "reverse");
        builder_output(&b, "y");
        builder_output(&b, "h");
        answer(backend, &b, x, y[form], h[form]);
        builder_fini(&b);
    }
    EXPECT(memcmp(y[0], y[1], sizeof(y[0])) == 0 && memcmp(h[0], h[1], sizeof(h[0])) == 0);
    EXPECT(y[0][0] != 0 && h[0][0] != 0);
}

static void
test_refused(void)
{
    static const struct {
        const char *inputs, *text;
        enum leat_status status;
    } cases[] = {
        {"x v r - - - - - ws wz rs rz", "node 'y' (operator DynamicQuantizeLSTM): 'v' is not constant", LEAT_ERR_UNSUPPORTED},
        {"x w r - - - - - ws rz rs rz", "'w' is no weights of 8 bits", LEAT_ERR_SHAPE},
        {"x w r - - - - - ws wz ws wz", "'r' is no weights of 8 bits", LEAT_ERR_SHAPE},
        {"x w x - - - - - ws wz rs rz", "'x' is not constant", LEAT_ERR_UNSUPPORTED},
        {"x ws r - - - - - ws wz rs rz", "'ws' is no weights of 8 bits", LEAT_ERR_SHAPE},
        {"x w r - - - - - ws wz rs -", "are left out", LEAT_ERR_PROTO},
        {"x w r - - - - - ws wz", "10 inputs", LEAT_ERR_PROTO},
    };
    struct weights w, r;

    draw(&w, INPUTS, 1, true, true);
    draw(&r, STATE, 1, false, false);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct leat_graph *graph = NULL;
        struct builder b;
        builder_init(&b, 13);
        (void)builder_input(&b, "x", ONNX_F32, DIMS(STEPS, ITEMS, INPUTS));
        (void)builder_input(&b, "v", ONNX_I8, DIMS(1, INPUTS, GATES));
        add_quantised(&b, (const char *const[]){"w", "ws", "wz"}, &w, 1, true, true);
        add_quantised(&b, (const char *const[]){"r", "rs", "rz"}, &r, 1, false, false);
        Onnx__NodeProto *node = builder_node(&b, "DynamicQuantizeLSTM", cases[i].inputs, "y");
        node->domain = strcpy(builder_alloc(&b, 16), "com.microsoft");
        (void)builder_int(&b, node, "hidden_size", STATE);
        builder_output(&b, "y");
        const enum leat_status status = builder_import(&b, &graph);
        if (status != cases[i].status || strstr(leat_error_text(), cases[i].text) == NULL) {
            (void)fprintf(stderr, "status %d, text \"%s\"; wanted \"%s\"\n", (int)status, leat_error_text(), cases[i].text);
        }
        EXPECT(status == cases[i].status && strstr(leat_error_text(), cases[i].text) != NULL && graph == NULL);
        builder_fini(&b);
    }
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    for (int form = 0; form < 16; form++) {
        test_form(&leat_backend_reference, 1 + form % 2, form / 2 % 2 != 0, form / 4 % 2 != 0, form / 8 != 0);
        if (leat_backend_find("cpu") != NULL) {
            test_form(leat_backend_find("cpu"), 1 + form % 2, form / 2 % 2 != 0, form / 4 % 2 != 0, form / 8 != 0);
        }
    }
    test_refused();
    return 0;
}
