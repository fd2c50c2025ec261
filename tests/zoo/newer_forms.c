/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/zoo/newer_forms.h"

#include <stdio.h>
#include <string.h>

#include "base/align.h"

enum { F32 = 1, I32 = 6, I64 = 7 };

static void
integers(struct builder *b, const char *name, const int64_t *values, size_t count)
{
    const int64_t dims[] = {(int64_t)count};
    (void)builder_constant(b, name, I64, values, dims, 1);
}

static void
floats(struct builder *b, const char *name, const float *values, int64_t count)
{
    (void)builder_constant(b, name, F32, values, &count, 1);
}

/* y: what `count` nodes made, one after another, each as rows of the items. */
static void
join(struct builder *b, uint32_t count)
{
    char part[16], row[16], rows[128] = "";

    for (uint32_t i = 0; i < count; i++) {
        (void)snprintf(part, sizeof(part), "part%u", i);
        (void)snprintf(row, sizeof(row), "row%u ", i);
        (void)strcat(rows, row);
        row[strlen(row) - 1] = '\0';
        (void)builder_node(b, "Flatten", part, row);
    }
    (void)builder_int(b, builder_node(b, "Concat", rows, "y"), "axis", 1);
    builder_output(b, "y");
}

#define FLOATS(...) (const float[]){__VA_ARGS__}, sizeof((const float[]){__VA_ARGS__}) / sizeof(float)

/* ---- Reduce*: axes are an input ----------------------------------------------------------------- */

static const char *const reductions[] = {"ReduceL1",  "ReduceL2",   "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
                                         "ReduceMean", "ReduceMin", "ReduceProd",   "ReduceSumSquare"};

static void
reduce(struct builder *b, bool newer)
{
    char inputs[32], output[16];

    (void)builder_node(b, "Exp", "x", "positive"); /* for logarithms */
    integers(b, "axes", DIMS(-1, 1));
    for (uint32_t r = 0; r < LEAT_COUNT_OF(reductions); r++) {
        (void)snprintf(output, sizeof(output), "part%u", r);
        const bool logarithm = strcmp(reductions[r], "ReduceLogSum") == 0;
        (void)snprintf(inputs, sizeof(inputs), "%s%s", logarithm ? "positive" : "x", newer ? " axes" : "");
        Onnx__NodeProto *node = builder_node(b, reductions[r], inputs, output);
        (void)builder_int(b, node, "keepdims", r % 2);
        if (!newer) {
            (void)builder_ints(b, node, "axes", DIMS(-1, 1));
        }
    }
    join(b, LEAT_COUNT_OF(reductions));
}

static void
reduce_newer(struct builder *b)
{
    reduce(b, true);
}

static void
reduce_older(struct builder *b)
{
    reduce(b, false);
}

/* Over no axes: what is not a reduction remains. */
static void
reduce_none_newer(struct builder *b)
{
    integers(b, "none", NULL, 0);
    (void)builder_int(b, builder_node(b, "ReduceSumSquare", "x none", "y"), "noop_with_empty_axes", 1);
    (void)builder_int(b, builder_node(b, "ReduceMax", "x", "z"), "noop_with_empty_axes", 1);
    builder_output(b, "y");
    builder_output(b, "z");
}

static void
reduce_none_older(struct builder *b)
{
    (void)builder_node(b, "Mul", "x x", "y");
    (void)builder_node(b, "Identity", "x", "z");
    builder_output(b, "y");
    builder_output(b, "z");
}

/* ---- Split, Pad, Resize ------------------------------------------------------------------------- */

static void
split(struct builder *b, bool newer)
{
    Onnx__NodeProto *even = builder_node(b, "Split", "x", "a c");
    (void)builder_int(b, even, "axis", 1);
    if (newer) {
        (void)builder_int(b, even, "num_outputs", 2);
    }
    integers(b, "sizes", DIMS(3, 3, 1));
    Onnx__NodeProto *uneven = builder_node(b, "Split", newer ? "x" : "x sizes", "d e f");
    (void)builder_int(b, uneven, "axis", -1);
    if (newer) {
        (void)builder_int(b, uneven, "num_outputs", 3);
    }
    for (const char *const *name = (const char *const[]){"a", "c", "d", "e", "f", NULL}; *name != NULL; name++) {
        builder_output(b, *name);
    }
}

static void
split_newer(struct builder *b)
{
    split(b, true);
}

static void
split_older(struct builder *b)
{
    split(b, false);
}

static void
pad(struct builder *b, bool newer)
{
    static const float fill = 1.5f;

    (void)builder_constant(b, "fill", F32, &fill, NULL, 0);
    integers(b, "axes", DIMS(3, -2));
    if (newer) {
        integers(b, "pads", DIMS(1, 0, 2, -1));
        integers(b, "inner", DIMS(2, 1, 3, 2));
    } else {
        integers(b, "pads", DIMS(0, 0, 0, 1, 0, 0, -1, 2));
        integers(b, "inner", DIMS(0, 0, 1, 2, 0, 0, 2, 3));
    }
    (void)builder_node(b, "Pad", newer ? "x pads fill axes" : "x pads fill", "y");
    (void)builder_string(b, builder_node(b, "Pad", newer ? "x inner  axes" : "x inner", "z"), "mode", "reflect");
    builder_output(b, "y");
    builder_output(b, "z");
}

static void
pad_newer(struct builder *b)
{
    pad(b, true);
}

static void
pad_older(struct builder *b)
{
    pad(b, false);
}

static void
wrap_newer(struct builder *b)
{
    integers(b, "pads", DIMS(2, 3));
    integers(b, "axes", DIMS(3));
    (void)builder_string(b, builder_node(b, "Pad", "x pads  axes", "y"), "mode", "wrap");
    builder_output(b, "y");
    integers(b, "mixed", DIMS(-1, 3, 7, -2));
    integers(b, "inner", DIMS(2, 3));
    (void)builder_string(b, builder_node(b, "Pad", "x mixed  inner", "z"), "mode", "wrap");
    builder_output(b, "z");
}

static void
wrap_older(struct builder *b)
{
    integers(b, "last", DIMS(-2));
    integers(b, "end", DIMS(7));
    integers(b, "start", DIMS(0));
    integers(b, "three", DIMS(3));
    integers(b, "axis", DIMS(3));
    (void)builder_node(b, "Slice", "x last end axis", "left");
    (void)builder_node(b, "Slice", "x start three axis", "right");
    (void)builder_int(b, builder_node(b, "Concat", "left x right", "y"), "axis", 3);
    builder_output(b, "y");
    integers(b, "rows", DIMS(1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2)); /* of 0 to 5 the first is cropped */
    integers(b, "columns", DIMS(2, 3, 4, 0, 1, 2, 3, 4));          /* of 0 to 6 the last two */
    (void)builder_int(b, builder_node(b, "Gather", "x rows", "w"), "axis", 2);
    (void)builder_int(b, builder_node(b, "Gather", "w columns", "z"), "axis", 3);
    builder_output(b, "z");
}

static void
resize(struct builder *b, bool newer)
{
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    char output[16];

    if (newer) {
        floats(b, "scales", FLOATS(2.0f, 1.5f));
        integers(b, "sizes", DIMS(9, 5));
    } else {
        floats(b, "scales", FLOATS(1.0f, 1.0f, 1.5f, 2.0f));
        integers(b, "heights", DIMS(9));
        integers(b, "widths", DIMS(5));
        integers(b, "zero", DIMS(0));
        integers(b, "two", DIMS(2));
        (void)builder_node(b, "Shape", "x", "shape");
        (void)builder_node(b, "Slice", "shape zero two", "outer");
        (void)builder_int(b, builder_node(b, "Concat", "outer widths heights", "sizes"), "axis", 0);
    }
    for (uint32_t m = 0; m < 2 * LEAT_COUNT_OF(modes); m++) {
        (void)snprintf(output, sizeof(output), "part%u", m);
        Onnx__NodeProto *node = builder_node(b, "Resize", m % 2 == 0 ? "x  scales" : "x   sizes", output);
        (void)builder_string(b, node, "mode", modes[m / 2]);
        if (newer) {
            (void)builder_ints(b, node, "axes", DIMS(-1, 2));
            (void)builder_int(b, node, "antialias", 0);
            (void)builder_string(b, node, "keep_aspect_ratio_policy", "stretch");
        }
    }
    join(b, 2 * LEAT_COUNT_OF(modes));
}

static void
resize_newer(struct builder *b)
{
    resize(b, true);
}

static void
resize_older(struct builder *b)
{
    resize(b, false);
}

/* ---- Windows ------------------------------------------------------------------------------------ */

static Onnx__NodeProto *
window(struct builder *b, const char *op, const char *inputs, const char *output)
{
    Onnx__NodeProto *node = builder_node(b, op, inputs, output);
    (void)builder_ints(b, node, "kernel_shape", DIMS(2, 3));
    (void)builder_ints(b, node, "dilations", DIMS(3, 2));
    (void)builder_ints(b, node, "pads", DIMS(1, 1, 1, 1));
    return node;
}

/* The ends of windows lie in the padding, that counts or does not. */
static void
average_newer(struct builder *b)
{
    (void)builder_int(b, window(b, "AveragePool", "x", "y"), "count_include_pad", 1);
    (void)window(b, "AveragePool", "x", "z");
    builder_output(b, "y");
    builder_output(b, "z");
}

static void
average_older(struct builder *b)
{
    static const float zero = 0.0f;
    float share[4 * 6];

    for (size_t i = 0; i < LEAT_COUNT_OF(share); i++) {
        share[i] = 1.0f / 6.0f;
    }
    (void)builder_constant(b, "share", F32, share, DIMS(4, 1, 2, 3));
    (void)builder_constant(b, "zero", F32, &zero, NULL, 0);
    (void)builder_node(b, "Mul", "x zero", "nothing");
    (void)builder_node(b, "Exp", "nothing", "ones");
    (void)builder_int(b, window(b, "Conv", "x share", "y"), "group", 4);
    (void)builder_int(b, window(b, "Conv", "ones share", "filled"), "group", 4);
    (void)builder_node(b, "Div", "y filled", "z");
    builder_output(b, "y");
    builder_output(b, "z");
}

static void
norm_newer(struct builder *b)
{
    (void)builder_int(b, window(b, "LpPool", "x", "y"), "p", 2);
    builder_output(b, "y");
}

static void
norm_older(struct builder *b)
{
    float one[4 * 6];

    for (size_t i = 0; i < LEAT_COUNT_OF(one); i++) {
        one[i] = 1.0f;
    }
    (void)builder_constant(b, "one", F32, one, DIMS(4, 1, 2, 3));
    (void)builder_node(b, "Mul", "x x", "squares");
    (void)builder_int(b, window(b, "Conv", "squares one", "sums"), "group", 4);
    (void)builder_node(b, "Sqrt", "sums", "y");
    builder_output(b, "y");
}

/* ---- GridSample, ScatterElements, quantisation -------------------------------------------------- */

static void
sample(struct builder *b, const char *linear, const char *cubic)
{
    (void)builder_input(b, "g", F32, DIMS(-1, 3, 5, 2));
    (void)builder_node(b, "GridSample", "x g", "y");
    (void)builder_string(b, builder_node(b, "GridSample", "x g", "z"), "mode", linear);
    (void)builder_string(b, builder_node(b, "GridSample", "x g", "v"), "mode", cubic);
    (void)builder_string(b, builder_node(b, "GridSample", "x g", "w"), "mode", "nearest");
    for (const char *const *name = (const char *const[]){"y", "z", "v", "w", NULL}; *name != NULL; name++) {
        builder_output(b, *name);
    }
}

static void
sample_newer(struct builder *b)
{
    sample(b, "linear", "cubic");
}

static void
sample_older(struct builder *b)
{
    sample(b, "bilinear", "bicubic");
}

/* All of u go to channel 1. */
static void
scatter_newer(struct builder *b)
{
    static const float zero = 0.0f;
    static const int64_t one = 1;

    (void)builder_input(b, "u", F32, DIMS(-1, 2, 6, 7));
    (void)builder_constant(b, "zero", F32, &zero, NULL, 0);
    (void)builder_constant(b, "one", I64, &one, NULL, 0);
    (void)builder_node(b, "Mul", "u zero", "nothing");
    (void)builder_int(b, builder_node(b, "Cast", "nothing", "first"), "to", I64);
    (void)builder_node(b, "Add", "first one", "places");
    for (int max = 0; max < 2; max++) {
        Onnx__NodeProto *node = builder_node(b, "ScatterElements", "x places u", max ? "z" : "y");
        (void)builder_int(b, node, "axis", 1);
        (void)builder_string(b, node, "reduction", max ? "max" : "min");
        builder_output(b, max ? "z" : "y");
    }
}

static void
scatter_older(struct builder *b)
{
    (void)builder_input(b, "u", F32, DIMS(-1, 2, 6, 7));
    integers(b, "parts", DIMS(1, 1, 2));
    (void)builder_int(b, builder_node(b, "Split", "x parts", "p q r"), "axis", 1);
    (void)builder_int(b, builder_node(b, "Split", "u", "s t"), "axis", 1);
    (void)builder_node(b, "Min", "q s t", "least");
    (void)builder_node(b, "Max", "q s t", "most");
    (void)builder_int(b, builder_node(b, "Concat", "p least r", "y"), "axis", 1);
    (void)builder_int(b, builder_node(b, "Concat", "p most r", "z"), "axis", 1);
    builder_output(b, "y");
    builder_output(b, "z");
}

static void
quantise(struct builder *b, bool newer)
{
    static const float scale = 0.02f;
    static const uint8_t zero = 100;

    (void)builder_constant(b, "scale", F32, &scale, NULL, 0);
    (void)builder_constant(b, "zero", 2, &zero, NULL, 0);
    Onnx__NodeProto *node = builder_node(b, "QuantizeLinear", "x scale zero", "q");
    if (newer) {
        (void)builder_int(b, node, "block_size", 0);
        (void)builder_int(b, node, "output_dtype", 0);
        (void)builder_int(b, node, "saturate", 1);
    }
    node = builder_node(b, "DequantizeLinear", "q scale zero", "d");
    if (newer) {
        (void)builder_int(b, node, "block_size", 0);
    }
    node = builder_node(b, "Cast", "d", "i");
    (void)builder_int(b, node, "to", I32);
    if (newer) {
        (void)builder_int(b, node, "saturate", 1);
    }
    (void)builder_int(b, builder_node(b, "Cast", "i", "y"), "to", F32);
    builder_output(b, "d");
    builder_output(b, "y");
}

static void
quantise_newer(struct builder *b)
{
    quantise(b, true);
}

static void
quantise_older(struct builder *b)
{
    quantise(b, false);
}

/* Rounding modes are for types that are not here. */
static void
cast(struct builder *b, bool newer)
{
    static const float none = 0.0f;

    Onnx__NodeProto *node = builder_node(b, "Cast", "x", "i");
    (void)builder_int(b, node, "to", I32);
    (void)builder_constant(b, "none", F32, &none, DIMS(1));
    Onnx__NodeProto *like = builder_node(b, "CastLike", "i none", "y");
    if (newer) {
        (void)builder_string(b, node, "round_mode", "down");
        (void)builder_string(b, like, "round_mode", "up");
    }
    builder_output(b, "y");
}

static void
cast_newer(struct builder *b)
{
    cast(b, true);
}

static void
cast_older(struct builder *b)
{
    cast(b, false);
}

static void
precise(struct builder *b, bool newer)
{
    static const float scale = 0.02f;
    static const uint8_t zero = 100;

    (void)builder_constant(b, "scale", F32, &scale, NULL, 0);
    (void)builder_constant(b, "zero", 2, &zero, NULL, 0);
    Onnx__NodeProto *quantise = builder_node(b, "QuantizeLinear", "x scale zero", "q");
    Onnx__NodeProto *back = builder_node(b, "DequantizeLinear", "q scale zero", "y");
    if (newer) {
        (void)builder_int(b, quantise, "precision", 1); /* f32, as it is */
        (void)builder_int(b, back, "output_dtype", 1);
    }
    builder_output(b, "y");
}

static void
precise_newer(struct builder *b)
{
    precise(b, true);
}

static void
precise_older(struct builder *b)
{
    precise(b, false);
}

/* The number of a column is added. */
static void
count(struct builder *b, bool newer)
{
    static const float bounds[3] = {0, 7, 1};

    (void)builder_constant(b, "start", F32, &bounds[0], NULL, 0);
    (void)builder_constant(b, "limit", F32, &bounds[1], NULL, 0);
    (void)builder_constant(b, "delta", F32, &bounds[2], NULL, 0);
    Onnx__NodeProto *node = builder_node(b, "Range", "start limit delta", "r");
    if (newer) {
        (void)builder_int(b, node, "stash_type", F32);
    }
    (void)builder_node(b, "Add", "x r", "y");
    builder_output(b, "y");
}

static void
count_newer(struct builder *b)
{
    count(b, true);
}

static void
count_older(struct builder *b)
{
    count(b, false);
}

/* Of real numbers along the axis before the last and another, each of a length of its own, with parts behind. */
static void
transform(struct builder *b, bool newer)
{
    static const int64_t length = 9;
    static const int64_t along = -3;

    integers(b, "last", DIMS(-1));
    (void)builder_constant(b, "length", I64, &length, NULL, 0);
    (void)builder_constant(b, "along", I64, &along, NULL, 0);
    (void)builder_node(b, "Unsqueeze", "x last", "signal");
    Onnx__NodeProto *first = builder_node(b, "DFT", "signal", "spectrum");
    Onnx__NodeProto *second = builder_node(b, "DFT", newer ? "spectrum length along" : "spectrum length", "y");
    (void)builder_int(b, first, "onesided", 1);
    (void)builder_int(b, second, "inverse", 1);
    if (!newer) {
        (void)builder_int(b, first, "axis", 3);
        (void)builder_int(b, second, "axis", 2);
    }
    builder_output(b, "y");
}

static void
transform_newer(struct builder *b)
{
    transform(b, true);
}

static void
transform_older(struct builder *b)
{
    transform(b, false);
}

/* Columns 0 to 5, of which there is an even number. */
static void
gather_blocks(struct builder *b, bool newer)
{
    integers(b, "parts", DIMS(6, 1));
    (void)builder_int(b, builder_node(b, "Split", "x parts", "most last"), "axis", 3);
    Onnx__NodeProto *node = builder_node(b, "SpaceToDepth", "most", "y");
    (void)builder_int(b, node, "blocksize", 2);
    if (newer) {
        (void)builder_string(b, node, "mode", "DCR");
    }
    builder_output(b, "y");
}

static void
gather_blocks_newer(struct builder *b)
{
    gather_blocks(b, true);
}

static void
gather_blocks_older(struct builder *b)
{
    gather_blocks(b, false);
}

const struct newer_form newer_forms[] = {
    {"Reduce* with axes", 18,
     "node 'part0' (operator ReduceL1): it has 2 inputs; 1 to 1 are possible at opsets 1 to 17",
     reduce_newer, reduce_older},
    {"Reduce* over no axes", 18,
     "node 'y' (operator ReduceSumSquare): it has 2 inputs; 1 to 1 are possible at opsets 1 to 17",
     reduce_none_newer, reduce_none_older},
    {"Split in parts", 18,
     "node 'a' (operator Split): attribute 'num_outputs' is not supported at opsets 13 to 17",
     split_newer, split_older},
    {"Pad of some axes", 18,
     "node 'y' (operator Pad): it has 4 inputs; 2 to 3 are possible at opsets 11 to 17",
     pad_newer, pad_older},
    {"Pad wrapped around", 19, "node 'y' (operator Pad): mode 'wrap' is not supported", wrap_newer, wrap_older},
    {"Resize of some axes", 18,
     "node 'part0' (operator Resize): attribute 'axes' is not supported at opsets 11 to 17",
     resize_newer, resize_older},
    {"AveragePool dilated", 19,
     "node 'y' (operator AveragePool): attribute 'dilations' is not supported at opsets 7 to 18",
     average_newer, average_older},
    {"LpPool dilated", 18,
     "node 'y' (operator LpPool): attribute 'dilations' is not supported at opsets 2 to 17",
     norm_newer, norm_older},
    {"GridSample renamed", 20, "node 'z' (operator GridSample): its mode is not a known one", sample_newer, sample_older},
    {"DFT along an axis that is an input", 20,
     "node 'y' (operator DFT): it has 3 inputs; 1 to 2 are possible at opsets 17 to 19",
     transform_newer, transform_older},
    {"ScatterElements of extremes", 18,
     "node 'y' (operator ScatterElements): reduction 'min' is not supported",
     scatter_newer, scatter_older},
    {"QuantizeLinear with defaults", 21,
     "node 'q' (operator QuantizeLinear): attribute 'block_size' is not supported at opsets 19 to 20",
     quantise_newer, quantise_older},
    {"QuantizeLinear with more defaults", 23,
     "node 'q' (operator QuantizeLinear): attribute 'precision' is not supported at opsets 21 to 22",
     precise_newer, precise_older},
    {"Cast with modes of rounding", 24,
     "node 'i' (operator Cast): attribute 'round_mode' is not supported at opsets 19 to 23",
     cast_newer, cast_older},
    {"Range counted in f32", 27,
     "node 'r' (operator Range): attribute 'stash_type' is not supported at opsets 11 to 26",
     count_newer, count_older},
    {"SpaceToDepth by name", 28,
     "node 'y' (operator SpaceToDepth): attribute 'mode' is not supported at opsets 1 to 27",
     gather_blocks_newer, gather_blocks_older},
};
const size_t newer_form_count = LEAT_COUNT_OF(newer_forms);

static void
build(void (*form)(struct builder *b), int64_t opset, struct builder *b)
{
    builder_init(b, opset);
    (void)builder_input(b, "x", F32, DIMS(-1, 4, 6, 7));
    form(b);
}

void
newer_form_build(const struct newer_form *form, int64_t opset, struct builder *b)
{
    build(form->newer, opset, b);
}

void
newer_form_build_older(const struct newer_form *form, struct builder *b)
{
    build(form->older, 17, b);
}
