/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     No operator whose inputs say where it reads or writes, how often it runs, how large its result is or what it divides
 *          by takes payload at its word: in every backend any number is an answer or an error of that batch, also when it
 *          changes while it is read. Those whose inputs say how large a result is want constants.
 * Method   A row for each operator that the table marks (LEAT_OP_INDEXING); one that lacks fails the test. Every hostile
 *          number stands once at each place of each hostile input, in both widths of integers; answers of the
 *          backends are the same bits, and what was tried leaves nothing behind. Then a thread writes to the inputs of runs
 *          while they go on: that is a race by intent, so this test is none for the thread sanitizer.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/op.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { TENSOR_BYTES = 1024, RACES = 200 };

/* What a number that is hostile enough does. */
enum verdict { FAILS, TOLERATED, EITHER, REFUSED };

struct row {
    const char *op;
    int64_t opset;
    /*
     * "name:type[dims]": f is quiet f32, F hostile f32, l and i are hostile i64 and i32, I is either in turns, u is u64, b bool,
     * c a constant of f32. "=v,v" are the numbers of a constant. A name without more is an omitted input.
     */
    const char *inputs;
    const char *attributes; /* "a=1 b=[1,2] c=text" */
    enum verdict verdict;
    int64_t good; /* a number that is right everywhere, of integers and of constants */
    uint32_t outputs;
};

static const struct row rows[] = {
    {"BitShift", 11, "x:u[3] n:u[3]", "direction=LEFT", TOLERATED, 0, 1},
    {"BlackmanWindow", 17, "n:I[]", "", REFUSED, 4, 1},
    {"Compress", 11, "x:f[3,2] c:b[3]", "axis=0", TOLERATED, 0, 1},
    {"Compress", 11, "x:f[3,2] c:b[5]", "", TOLERATED, 0, 1},
    {"ConstantOfShape", 9, "s:l[2]", "", REFUSED, 2, 1},
    {"CumSum", 11, "x:f[3,4] a:I[1]", "", FAILS, 0, 1},
    {"DFT", 17, "x:f[1,4,1] n:I[]", "", REFUSED, 4, 1},
    {"DFT", 20, "x:f[1,4,1] - a:I[]", "", REFUSED, 1, 1},
    {"Div", 7, "x:l[2] d:l[2]", "", EITHER, 1, 1},
    {"Div", 7, "x:i[2] d:i[2]", "", EITHER, 1, 1},
    {"Expand", 8, "x:f[1,3] s:l[2]", "", REFUSED, 1, 1},
    {"GRU", 7, "x:f[3,2,2] w:c[1,6,2] r:c[1,6,2] - n:i[2]", "hidden_size=2", FAILS, 0, 2},
    {"GRU", 14, "x:f[3,2,2] w:c[2,6,2] r:c[2,6,2] - n:i[2]",
     "hidden_size=2 direction=bidirectional", FAILS, 0, 2},
    {"Gather", 6, "x:f[5,3] i:I[4]", "axis=0", FAILS, 0, 1},
    {"Gather", 13, "x:f[5,3] i:I[2,2]", "axis=1", FAILS, 0, 1},
    {"GatherElements", 11, "x:f[3,4] i:I[3,2]", "axis=1", FAILS, 0, 1},
    {"GatherND", 11, "x:f[2,2,2] i:l[3,2]", "", FAILS, 0, 1},
    {"GatherND", 12, "x:f[2,3,2] i:l[2,4,1]", "batch_dims=1", FAILS, 0, 1},
    {"GridSample", 16, "x:f[1,1,3,4] g:F[1,2,2,2]", "", TOLERATED, 0, 1},
    {"GridSample", 16, "x:f[1,1,3,4] g:F[1,2,2,2]", "mode=bicubic padding_mode=reflection",
     TOLERATED, 0, 1},
    {"GridSample", 20, "x:f[1,1,3,4] g:F[1,2,2,2]", "mode=cubic padding_mode=border", TOLERATED, 0, 1},
    {"HammingWindow", 17, "n:I[]", "", REFUSED, 4, 1},
    {"HannWindow", 17, "n:I[]", "", REFUSED, 4, 1},
    {"If", 13, "c:b[1] x:f[3]", "", TOLERATED, 0, 1},
    {"LSTM", 7, "x:f[3,2,2] w:c[1,8,2] r:c[1,8,2] - n:i[2]", "hidden_size=2", FAILS, 0, 3},
    {"LSTM", 14, "x:f[3,2,2] w:c[1,8,2] r:c[1,8,2] - n:i[2]", "hidden_size=2 direction=reverse",
     FAILS, 0, 3},
    {"Loop", 13, "n:l[1] c:b[1] x:f[3]", "", EITHER, 0, 1},
    {"MaxUnpool", 11, "x:f[1,1,2,2] i:l[1,1,2,2]", "kernel_shape=[2,2] strides=[2,2]", FAILS, 0, 1},
    {"MaxUnpool", 11, "x:f[1,1,2,2] i:l[1,1,2,2] s:l[4]=1,1,4,4",
     "kernel_shape=[2,2] strides=[2,2]", REFUSED, 1, 1},
    {"MelWeightMatrix", 17, "m:l[] n:l[] r:l[] lo:F[] hi:F[]", "", REFUSED, 4, 1},
    {"Mod", 10, "x:l[2] d:l[2]", "", EITHER, 1, 1},
    {"Mod", 13, "x:i[2] d:i[2]", "", EITHER, 1, 1},
    {"Mod", 13, "x:i[2] d:i[2]", "fmod=1", EITHER, 1, 1},
    {"NegativeLogLikelihoodLoss", 12, "x:f[3,4] t:I[3]", "", FAILS, 0, 1},
    {"NegativeLogLikelihoodLoss", 13, "x:f[3,4,2] t:I[3,2]", "ignore_index=-1000 reduction=none",
     EITHER, 0, 1},
    {"NonMaxSuppression", 10, "b:F[1,4,4] s:F[1,2,4] n:l[1] t:F[1] u:F[1]", "", TOLERATED, 2, 1},
    {"NonMaxSuppression", 11, "b:F[1,4,4] s:F[1,2,4] n:l[1]", "center_point_box=1", TOLERATED, 2,
     1},
    {"NonZero", 9, "x:I[2,3]", "", TOLERATED, 0, 1},
    {"NonZero", 13, "x:F[2,3]", "", TOLERATED, 0, 1},
    {"OneHot", 9, "i:I[4] d:c[1]=3 v:c[2]=0,1", "", TOLERATED, 0, 1},
    {"OneHot", 11, "i:F[4] d:c[1]=3 v:c[2]=0,1", "axis=0", TOLERATED, 0, 1},
    {"OneHot", 11, "i:I[4] d:I[1] v:c[2]=0,1", "", REFUSED, 3, 1},
    {"Pad", 11, "x:f[2,3] p:l[4]", "", REFUSED, 0, 1},
    {"Pad", 18, "x:f[2,3] p:l[2] - a:I[1]", "", REFUSED, 0, 1},
    {"RNN", 7, "x:f[3,2,2] w:c[1,2,2] r:c[1,2,2] - n:i[2]", "hidden_size=2", FAILS, 0, 2},
    {"RNN", 14, "x:f[3,2,2] w:c[1,2,2] r:c[1,2,2] - n:i[2]", "hidden_size=2", FAILS, 0, 2},
    {"Range", 11, "a:l[] b:l[] c:l[]", "", REFUSED, 1, 1},
    {"Range", 27, "a:l[] b:l[] c:l[]", "", REFUSED, 1, 1},
    {"ReduceL1", 18, "x:f[2,3] a:l[1]", "", REFUSED, 0, 1},
    {"ReduceL2", 18, "x:f[2,3] a:l[1]", "", REFUSED, 0, 1},
    {"ReduceLogSum", 18, "x:f[2,3] a:l[1]", "", REFUSED, 0, 1},
    {"ReduceLogSumExp", 18, "x:f[2,3] a:l[1]", "", REFUSED, 0, 1},
    {"ReduceMax", 18, "x:f[2,3] a:l[1]", "", REFUSED, 0, 1},
    {"ReduceMean", 18, "x:f[2,3] a:l[1]", "", REFUSED, 0, 1},
    {"ReduceMin", 18, "x:f[2,3] a:l[1]", "", REFUSED, 0, 1},
    {"ReduceProd", 18, "x:f[2,3] a:l[1]", "", REFUSED, 0, 1},
    {"ReduceSum", 13, "x:f[2,3] a:l[1]", "", REFUSED, 0, 1},
    {"ReduceSumSquare", 18, "x:f[2,3] a:l[1]", "noop_with_empty_axes=1", REFUSED, 0, 1},
    {"Reshape", 6, "x:f[2,2] s:l[2]", "", REFUSED, 2, 1},
    {"Reshape", 14, "x:f[2,2] s:l[2]", "allowzero=1", REFUSED, 2, 1},
    {"Resize", 10, "x:f[1,1,2,2] s:F[4]", "", REFUSED, 1, 1},
    {"Resize", 13, "x:f[1,1,2,2] - s:F[4]", "", REFUSED, 1, 1},
    {"Resize", 13, "x:f[1,1,2,2] - - s:l[4]=1,1,3,4", "", REFUSED, 1, 1},
    {"Resize", 18, "x:f[1,1,2,2] - s:F[2]", "axes=[2,3]", REFUSED, 1, 1},
    {"Resize", 18, "x:f[1,1,2,2] - - s:l[2]=3,4", "axes=[2,3]", REFUSED, 1, 1},
    {"ReverseSequence", 10, "x:f[4,3] n:l[3]", "time_axis=0 batch_axis=1", FAILS, 0, 1},
    {"ReverseSequence", 13, "x:f[3,4] n:l[3]", "time_axis=1 batch_axis=0", FAILS, 0, 1},
    {"RoiAlign", 10, "x:f[2,1,3,4] r:F[3,4] i:l[3]", "output_height=2 output_width=2", EITHER, 0,
     1},
    {"RoiAlign", 16, "x:f[2,1,3,4] r:f[3,4] i:l[3]", "output_height=2 output_width=2", FAILS, 0, 1},
    {"STFT", 17, "x:f[1,8,1] s:I[] - n:I[]", "", REFUSED, 4, 1},
    {"Scatter", 9, "x:f[3,4] i:I[3,2] u:f[3,2]", "axis=1", FAILS, 0, 1},
    {"ScatterElements", 11, "x:f[3,4] i:I[3,2] u:f[3,2]", "axis=1", FAILS, 0, 1},
    {"ScatterElements", 16, "x:f[3,4] i:I[1,4] u:f[1,4]", "axis=0 reduction=add", FAILS, 0, 1},
    {"ScatterElements", 18, "x:f[3,4] i:I[1,4] u:f[1,4]", "axis=0 reduction=max", FAILS, 0, 1},
    {"ScatterND", 11, "x:f[2,2,3] i:l[3,2] u:f[3,3]", "", FAILS, 0, 1},
    {"ScatterND", 16, "x:f[2,2,3] i:l[3,2] u:f[3,3]", "reduction=mul", FAILS, 0, 1},
    {"ScatterND", 18, "x:f[2,2,3] i:l[3,2] u:f[3,3]", "reduction=min", FAILS, 0, 1},
    {"Slice", 10, "x:f[4,3] a:I[1] b:I[1]", "", REFUSED, 1, 1},
    {"Slice", 13, "x:f[4,3] a:I[1] b:I[1] c:I[1] d:I[1]", "", REFUSED, 1, 1},
    {"SoftmaxCrossEntropyLoss", 12, "x:f[3,4] t:I[3]", "", FAILS, 0, 2},
    {"Split", 13, "x:f[4] s:l[2]", "", REFUSED, 2, 2},
    {"Split", 18, "x:f[4] s:l[2]", "", REFUSED, 2, 2},
    {"Squeeze", 13, "x:f[1,3] a:l[1]", "", REFUSED, 0, 1},
    {"Tile", 6, "x:f[2] r:l[1]", "", REFUSED, 1, 1},
    {"TopK", 10, "x:f[4] k:l[1]", "", REFUSED, 2, 2},
    {"TopK", 11, "x:f[4] k:l[1]", "", REFUSED, 2, 2},
    {"Trilu", 14, "x:f[3,4] k:l[1]", "", TOLERATED, 0, 1},
    {"Trilu", 14, "x:f[3,4] k:l[1]", "upper=0", TOLERATED, 0, 1},
    {"Unique", 11, "x:I[6]", "", TOLERATED, 0, 4},
    {"Unique", 11, "x:F[3,2]", "axis=0 sorted=0", TOLERATED, 0, 4},
    {"Unsqueeze", 13, "x:f[3] a:l[1]", "", REFUSED, 0, 1},
    {"Upsample", 9, "x:f[1,1,2,2] s:F[4]", "", REFUSED, 1, 1},
    {"EmbeddingBag", 13, "x:c[5,40] i:I[3,4]", "", FAILS, 0,
     1}, /* Gather and ReduceSum until a pass has seen them */
};

/* ---- Models ------------------------------------------------------------------------------------------ */

struct input {
    char name[8];
    int type; /* 0: omitted */
    bool is_constant, is_hostile;
    int64_t dims[4];
    size_t rank, elements;
};

static void store(const struct input *input, void *data, size_t i, int64_t integer, float real);

/* Writes one per word; `wide` chooses i64 for I. With `constants` nothing is hostile, and all that was is constant and good. */
static size_t
parse_inputs(const struct row *row, bool wide, bool constants, struct input *inputs,
             int64_t numbers[][512])
{
    char text[256], *words, *rest = NULL;
    size_t count = 0;

    EXPECT(strlen(row->inputs) < sizeof(text));
    (void)strcpy(text, row->inputs);
    for (char *word = strtok_r(text, " ", &words); word != NULL;
         word = strtok_r(NULL, " ", &words), count++) {
        struct input *input = &inputs[count];
        *input = (struct input){.elements = 1};
        char *colon = strchr(word, ':');
        (void)snprintf(input->name, sizeof(input->name), "%.*s",
                       colon != NULL ? (int)(colon - word) : 1, word);
        if (colon == NULL) {
            continue;
        }
        const char type = colon[1];
        input->type = type == 'l' || (type == 'I' && wide) ? ONNX_I64
                      : type == 'i' || type == 'I'         ? ONNX_I32
                      : type == 'u'                        ? ONNX_U64
                      : type == 'b'                        ? ONNX_BOOL
                                                           : ONNX_F32;
        input->is_hostile = type != 'c' && type != 'f' && !constants;
        input->is_constant = type == 'c' || (constants && type != 'f');
        for (char *at = colon + 3; *at != ']'; at = *rest == ',' ? rest + 1 : rest) {
            input->dims[input->rank] = strtoll(at, &rest, 10);
            input->elements *= (size_t)input->dims[input->rank++];
        }
        EXPECT(input->elements <= 512);
        const char *values = strchr(colon, '=');
        for (size_t i = 0; i < input->elements && input->is_constant; i++) {
            const double number = values != NULL ? strtod(values + 1, &rest)
                                  : type == 'c'  ? (double)i / 8
                                                 : (double)row->good;
            store(input, numbers[count], i, (int64_t)number, (float)number);
            values = values != NULL ? rest : NULL;
        }
    }
    return count;
}

static void
add_attributes(struct builder *b, Onnx__NodeProto *node, const char *attributes)
{
    char text[128], *words, *rest;

    EXPECT(strlen(attributes) < sizeof(text));
    (void)strcpy(text, attributes);
    for (char *word = strtok_r(text, " ", &words); word != NULL;
         word = strtok_r(NULL, " ", &words)) {
        char *value = strchr(word, '=');
        int64_t numbers[4];
        size_t count = 0;
        EXPECT(value != NULL);
        *value++ = '\0';
        if (*value == '[') {
            for (char *at = value + 1; *at != ']'; at = *rest == ',' ? rest + 1 : rest) {
                numbers[count++] = strtoll(at, &rest, 10);
            }
            (void)builder_ints(b, node, word, numbers, count);
        } else if (*value == '-' || (*value >= '0' && *value <= '9')) {
            (void)builder_int(b, node, word, strtoll(value, NULL, 10));
        } else {
            (void)builder_string(b, node, word, value);
        }
    }
}

/* LEAT_OK and a graph, or why there is none. */
static enum leat_status
import_row(const struct row *row, bool wide, bool all_constant, struct input *inputs,
           size_t *ret_count, struct leat_graph **ret_graph)
{
    static const char *const results[] = {"", "y", "y y1", "y y1 y2", "y y1 y2 y3"};
    static int64_t constants[8][512];
    char names[64] = "";
    struct builder b, inner[2];
    bool has_inner = false;

    *ret_count = parse_inputs(row, wide, all_constant, inputs, constants);
    builder_init(&b, row->opset);
    for (size_t i = 0; i < *ret_count; i++) {
        (void)strcat(strcat(names, i > 0 ? " " : ""), inputs[i].name);
        if (inputs[i].type == 0) {
            continue;
        }
        if (inputs[i].is_constant) {
            (void)builder_constant(&b, inputs[i].name, inputs[i].type, constants[i], inputs[i].dims,
                                   inputs[i].rank);
        } else {
            (void)builder_input(&b, inputs[i].name, inputs[i].type, inputs[i].dims, inputs[i].rank);
        }
    }
    if (strcmp(row->op, "If") == 0 || strcmp(row->op, "Loop") == 0) {
        const bool loop = row->op[0] == 'L';
        has_inner = true;
        builder_init(&inner[0], row->opset);
        builder_init(&inner[1], row->opset);
        Onnx__NodeProto *node = builder_node(&b, row->op, loop ? "n c x" : "c", "y");
        if (loop) {
            (void)builder_input(&inner[0], "k", ONNX_I64, NULL, 0);
            (void)builder_input(&inner[0], "go", ONNX_BOOL, NULL, 0);
            (void)builder_input(&inner[0], "s", ONNX_F32, DIMS(3));
            (void)builder_node(&inner[0], "Identity", "go", "on");
            (void)builder_node(&inner[0], "Neg", "s", "t");
            builder_output(&inner[0], "on");
        } else {
            (void)builder_node(&inner[0], "Add", "x x", "t"); /* the same bits in all backends, which the negative of 0 is not */
            (void)builder_node(&inner[1], "Abs", "x", "e");
            builder_output(&inner[1], "e");
        }
        builder_output(&inner[0], "t");
        builder_graph(&b, node, loop ? "body" : "then_branch", &inner[0]);
        if (!loop) {
            builder_graph(&b, node, "else_branch", &inner[1]);
        }
    } else if (strcmp(row->op, "EmbeddingBag") == 0) {
        static const int64_t axis[1] = {1};
        (void)builder_constant(&b, "axis", ONNX_I64, axis, DIMS(1));
        (void)builder_node(&b, "Gather", names, "rows");
        (void)builder_int(&b, builder_node(&b, "ReduceSum", "rows axis", "y"), "keepdims", 0);
    } else {
        add_attributes(&b, builder_node(&b, row->op, names, results[row->outputs]),
                       row->attributes);
    }
    for (uint32_t o = 0; o < row->outputs; o++) {
        builder_output(&b, (const char *const[]){"y", "y1", "y2", "y3"}[o]);
    }
    enum leat_status status = builder_import(&b, ret_graph);
    if (status == LEAT_OK) {
        EXPECT(leat_graph_optimise(*ret_graph, UINT64_MAX) == LEAT_OK);
    }
    builder_fini(&b);
    for (int i = 0; i < 2 && has_inner; i++) {
        builder_fini(&inner[i]);
    }
    return status;
}

/* ---- Payload ----------------------------------------------------------------------------------------- */

static const int64_t hostile_integers[] = {
    INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, INT64_C(1) << 32, -(INT64_C(1) << 32), -1000, 1000};
static const float hostile_floats[] = {NAN,     INFINITY, -INFINITY,     3.4e38f, -3.4e38f, 1e30f,
                                       9.3e18f, -9.3e18f, 2147483648.0f, -1,      -1e-40f,  1000};

static size_t
hostile_count(int type)
{
    switch (type) {
    case ONNX_F32:
        return LEAT_COUNT_OF(hostile_floats);
    case ONNX_BOOL:
        return 4;
    default:
        return LEAT_COUNT_OF(hostile_integers);
    }
}

/* Element i of an input, by relaxed stores: another thread may be reading it. */
static void
store(const struct input *input, void *data, size_t i, int64_t integer, float real)
{
    switch (input->type) {
    case ONNX_F32: {
        uint32_t bits;
        memcpy(&bits, &real, sizeof(bits));
        atomic_store_explicit((_Atomic uint32_t *)data + i, bits, memory_order_relaxed);
        break;
    }
    case ONNX_BOOL:
        atomic_store_explicit((_Atomic uint8_t *)data + i, (uint8_t)integer, memory_order_relaxed);
        break;
    case ONNX_I32:
        integer = integer > INT32_MAX ? INT32_MAX : integer < INT32_MIN ? INT32_MIN : integer;
        atomic_store_explicit((_Atomic int32_t *)data + i, (int32_t)integer, memory_order_relaxed);
        break;
    default:
        atomic_store_explicit((_Atomic int64_t *)data + i, integer, memory_order_relaxed);
    }
}

static void
set_good(const struct row *row, const struct input *input, void *data, size_t i)
{
    store(input, data, i, row->good, input->is_hostile ? 0 : (float)(i % 7) / 4 - 0.5f);
}

static void
set_hostile(const struct input *input, void *data, size_t i, size_t h)
{
    static const int64_t truths[] = {1, 255, 2, 128};
    if (input->type == ONNX_F32) {
        store(input, data, i, 0, hostile_floats[h]);
    } else {
        store(input, data, i, input->type == ONNX_BOOL ? truths[h] : hostile_integers[h], 0);
    }
}

/* ---- Runs -------------------------------------------------------------------------------------------- */

/* A row in one backend, or in none: then the reference functions run its graph, whose shapes contents decide. */
struct subject {
    const struct row *row;
    struct input inputs[8]; /* those that the graph has, in its order */
    struct leat_graph *concrete;
    bool planned;
    struct loaded loaded;
    void *scratch;
};

static void
open_subject(const struct row *row, const struct input *inputs, size_t count,
             const struct leat_graph *graph, const struct leat_backend *backend, struct subject *s)
{
    size_t bytes, at = 0;

    *s = (struct subject){.row = row};
    for (size_t i = 0; i < count; i++) {
        if (inputs[i].type != 0 && !inputs[i].is_constant) {
            s->inputs[at++] = inputs[i];
        }
    }
    EXPECT(at == graph->input_count);
    EXPECT(leat_graph_specialise(graph, 1, &s->concrete) == LEAT_OK);
    s->planned = !leat_graph_is_bounded(s->concrete);
    if (s->planned) {
        load(backend, graph, &s->loaded);
        return;
    }
    EXPECT(leat_reference_scratch_bytes(s->concrete, &bytes) == LEAT_OK);
    s->scratch = aligned_alloc(64, (bytes + 64) / 64 * 64);
    EXPECT(s->scratch != NULL);
}

static void
close_subject(struct subject *s)
{
    if (s->planned) {
        unload(&s->loaded);
    }
    free(s->scratch);
    leat_graph_destroy(s->concrete);
}

/* By the reference functions, on inputs where they lie. */
static enum leat_status
run_directly(const struct subject *s, void *scratch, void *const *inputs, void *const *outputs)
{
    struct leat_shape shapes[4];
    return leat_reference_run(s->concrete, (const void *const *)inputs, outputs, scratch, shapes);
}

static enum leat_status
run_subject(const struct subject *s, void *const *inputs, void *const *outputs)
{
    for (uint32_t o = 0; o < s->concrete->output_count; o++) {
        memset(outputs[o], 0x5a, leat_value_bytes(&s->concrete->values[s->concrete->outputs[o]]));
    }
    return s->planned ? run(&s->loaded, (const void *const *)inputs, outputs)
                      : run_directly(s, s->scratch, inputs, outputs);
}

/* Exactly as large as the tensors are. */
static void
make_tensors(const struct subject *s, void **inputs, void **outputs)
{
    for (uint32_t i = 0; i < s->concrete->input_count; i++) {
        inputs[i] = malloc(leat_value_bytes(&s->concrete->values[s->concrete->inputs[i]]));
        EXPECT(inputs[i] != NULL);
        for (size_t e = 0; e < s->inputs[i].elements; e++) {
            set_good(s->row, &s->inputs[i], inputs[i], e);
        }
    }
    for (uint32_t o = 0; o < s->concrete->output_count; o++) {
        outputs[o] = malloc(leat_value_bytes(&s->concrete->values[s->concrete->outputs[o]]));
        EXPECT(outputs[o] != NULL);
    }
}

static void
free_tensors(const struct subject *s, void **inputs, void **outputs)
{
    for (uint32_t i = 0; i < s->concrete->input_count; i++) {
        free(inputs[i]);
    }
    for (uint32_t o = 0; o < s->concrete->output_count; o++) {
        free(outputs[o]);
    }
}

static bool
same_answers(const struct subject *s, void *const *a, void *const *b)
{
    for (uint32_t o = 0; o < s->concrete->output_count; o++) {
        if (memcmp(a[o], b[o], leat_value_bytes(&s->concrete->values[s->concrete->outputs[o]])) !=
            0) {
            return false;
        }
    }
    return true;
}

/* ---- One number after the other ---------------------------------------------------------------------- */

static void
attack(struct subject *subjects, size_t subject_count)
{
    const struct subject *s = &subjects[0];
    void *inputs[2][8], *outputs[2][4], *quiet[4];
    enum verdict verdict = s->row->verdict;

    make_tensors(s, inputs[0], outputs[0]);
    make_tensors(s, inputs[1], outputs[1]);
    for (uint32_t o = 0; o < s->concrete->output_count; o++) {
        quiet[o] = malloc(leat_value_bytes(&s->concrete->values[s->concrete->outputs[o]]));
        EXPECT(quiet[o] != NULL);
    }
    EXPECT(run_subject(s, inputs[0], quiet) == LEAT_OK);
    for (uint32_t i = 0; i < s->concrete->input_count; i++) {
        const struct input *input = &s->inputs[i];
        for (size_t e = 0; e < input->elements && input->is_hostile; e++) {
            for (size_t h = 0; h < hostile_count(input->type); h++) {
                enum leat_status status = LEAT_OK;
                set_hostile(input, inputs[0][i], e, h);
                for (size_t k = 0; k < subject_count; k++) {
                    const enum leat_status got = run_subject(&subjects[k], inputs[0], outputs[k]);
                    status = k == 0 ? got : status;
                    if ((got != LEAT_OK && got != LEAT_ERR_SHAPE) || got != status ||
                        (verdict == FAILS && got == LEAT_OK) ||
                        (verdict == TOLERATED && got != LEAT_OK)) {
                        (void)fprintf(stderr,
                                      "%s at opset %lld, backend %zu: hostile number %zu at "
                                      "element %zu of '%s' gives status %d, %d\n",
                                      s->row->op, (long long)s->row->opset, k, h, e, input->name,
                                      (int)got, (int)status);
                        EXPECT(false);
                    }
                }
                EXPECT(subject_count == 1 || same_answers(s, outputs[0], outputs[1]));
                set_good(s->row, input, inputs[0][i], e);
                for (size_t k = 0; k < subject_count; k++) {
                    EXPECT(run_subject(&subjects[k], inputs[0], outputs[k]) == LEAT_OK);
                    EXPECT(same_answers(s, outputs[k], quiet));
                }
            }
        }
    }
    for (uint32_t o = 0; o < s->concrete->output_count; o++) {
        free(quiet[o]);
    }
    free_tensors(s, inputs[0], outputs[0]);
    free_tensors(s, inputs[1], outputs[1]);
}

/* ---- Numbers that change ------------------------------------------------------------------------------- */

struct writer {
    const struct subject *subject;
    void *const *inputs;
    _Atomic bool stop;
    _Atomic uint64_t written;
};

static void *
write_inputs(void *context)
{
    struct writer *writer = context;
    const struct subject *s = writer->subject;
    uint64_t random = leat_test_seed;

    while (!atomic_load_explicit(&writer->stop, memory_order_relaxed)) {
        const uint32_t i = (uint32_t)(leat_test_random(&random) % s->concrete->input_count);
        const struct input *input = &s->inputs[i];
        const size_t e = leat_test_random(&random) % input->elements;
        if (input->is_hostile && leat_test_random(&random) % 2 == 0) {
            set_hostile(input, writer->inputs[i], e,
                        leat_test_random(&random) % hostile_count(input->type));
        } else {
            set_good(s->row, input, writer->inputs[i], e);
        }
        atomic_fetch_add_explicit(&writer->written, 1, memory_order_relaxed);
    }
    return NULL;
}

static void
race(const struct subject *s)
{
    struct leat_segment segment = {.items = 1};
    void *inputs[8], *outputs[4], *scratch;
    struct writer writer = {.subject = s, .inputs = inputs};
    pthread_t thread;
    size_t bytes;

    make_tensors(s, inputs, outputs);
    for (uint32_t i = 0; i < s->concrete->input_count; i++) {
        segment.tensors[i] = inputs[i];
    }
    for (uint32_t o = 0; o < s->concrete->output_count; o++) {
        segment.tensors[s->concrete->input_count + o] = outputs[o];
    }
    EXPECT(leat_reference_scratch_bytes(s->concrete, &bytes) == LEAT_OK);
    scratch = aligned_alloc(64, (bytes + 64) / 64 * 64);
    EXPECT(scratch != NULL);
    EXPECT(pthread_create(&thread, NULL, write_inputs, &writer) == 0);
    /* As many runs as it takes for the writer to have been at it meanwhile. */
    const uint64_t before = atomic_load_explicit(&writer.written, memory_order_relaxed);
    for (int r = 0;
         r < RACES || atomic_load_explicit(&writer.written, memory_order_relaxed) < before + RACES;
         r++) {
        enum leat_status status = run_directly(s, scratch, inputs, outputs);
        EXPECT(status == LEAT_OK || status == LEAT_ERR_SHAPE);
        if (s->planned) {
            status =
                s->loaded.backend->plan_run(s->loaded.plan, &segment, 1, s->loaded.scratch, NULL);
            EXPECT(status == LEAT_OK || status == LEAT_ERR_SHAPE);
        }
    }
    atomic_store_explicit(&writer.stop, true, memory_order_relaxed);
    EXPECT(pthread_join(thread, NULL) == 0);
    free(scratch);
    free_tensors(s, inputs, outputs);
}

/* ---- Rows -------------------------------------------------------------------------------------------- */

/* A graph whose shape is in its payload gets no plan, and one with the same numbers as constants does. */
static void
expect_refused(const struct row *row, bool wide)
{
    for (int constant = 0; constant < 2; constant++) {
        struct input inputs[8];
        struct leat_graph *graph = NULL, *concrete = NULL;
        size_t count;
        enum leat_status status = import_row(row, wide, constant == 1, inputs, &count, &graph);
        if (status == LEAT_OK) {
            status = leat_graph_specialise(graph, 1, &concrete);
        }
        if ((status == LEAT_OK) != (constant == 1)) {
            (void)fprintf(stderr, "%s at opset %lld, %s: %s\n", row->op, (long long)row->opset,
                          constant == 1 ? "constant" : "payload",
                          status == LEAT_OK ? "planned" : leat_error_text());
            EXPECT(false);
        }
        leat_graph_destroy(concrete);
        leat_graph_destroy(graph);
    }
}

static void
test_row(const struct row *row, bool wide)
{
    static const char *const names[] = {"reference", "cpu"};
    struct input inputs[8];
    struct subject subjects[2];
    struct leat_graph *graph = NULL;
    size_t count, subject_count = 0;

    if (row->verdict == REFUSED) {
        expect_refused(row, wide);
        return;
    }
    const enum leat_status status = import_row(row, wide, false, inputs, &count, &graph);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s at opset %lld: %s\n", row->op, (long long)row->opset,
                      leat_error_text());
    }
    EXPECT(status == LEAT_OK);
    if (strcmp(row->op, "EmbeddingBag") == 0) {
        EXPECT(graph->node_count == 1 && graph->nodes[0].op->kind == LEAT_OP_EMBEDDING_BAG);
    }
    for (size_t n = 0; n < LEAT_COUNT_OF(names); n++) {
        const struct leat_backend *backend = leat_backend_find(names[n]);
        if (backend != NULL && (n == 0 || subjects[0].planned)) {
            open_subject(row, inputs, count, graph, backend, &subjects[subject_count++]);
        }
    }
    attack(subjects, subject_count);
    for (size_t k = 0; k < subject_count; k++) {
        race(&subjects[k]);
        close_subject(&subjects[k]);
    }
    leat_graph_destroy(graph);
}

static bool
has_row(const struct leat_op *op, bool fused)
{
    for (size_t r = 0; r < LEAT_COUNT_OF(rows); r++) {
        if (strcmp(rows[r].op, op->name) == 0 &&
            (fused || leat_op_find(op->name, rows[r].opset) == op)) {
            return true;
        }
    }
    return false;
}

/* Of the table and of those that passes make; and what says of itself that payload can fail it is marked. */
static void
test_every_operator_has_a_row(void)
{
    const struct leat_op *op;
    bool all = true;

    for (size_t i = 0; i < leat_op_count + LEAT_OP_XOR + 1; i++) {
        const bool fused = i >= leat_op_count;
        op = fused ? leat_op_fused((enum leat_op_kind)(i - leat_op_count)) : &leat_ops[i];
        if (op == NULL) {
            continue;
        }
        const bool marked = (op->flags & LEAT_OP_INDEXING) != 0;
        if (marked && !has_row(op, fused)) {
            (void)fprintf(stderr, "%s since opset %u has no row\n", op->name, op->since);
            all = false;
        }
        if (!marked &&
            (strstr(op->doc, "fails the batch") != NULL || strstr(op->doc, "is bounded") != NULL)) {
            (void)fprintf(stderr, "%s since opset %u is not marked as indexing\n", op->name,
                          op->since);
            all = false;
        }
    }
    EXPECT(all);
}

int
main(void)
{
    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    test_every_operator_has_a_row();
    for (size_t r = 0; r < LEAT_COUNT_OF(rows); r++) {
        test_row(&rows[r], true);
        if (strchr(rows[r].inputs, 'I') != NULL) {
            test_row(&rows[r], false);
        }
    }
    return 0;
}
