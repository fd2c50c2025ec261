/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Models with several inputs get bf16 and int8 too: calibrated on, and measured by, a set with an array for each input;
 *          with labels by accuracy, without them by agreement with f32, and `leat` says which. One that loses more than is
 *          allowed is refused; what was measured is kept over a restart. Models of one item are calibrated on one at a time,
 *          and what a file has quantised itself is not quantised again. Sets that are not for the model, or whose indices it
 *          refuses, are no one's measure.
 * Method   leatd and leat as processes; a BERT and a recommender of leat-zoo in their test size, and a classifier of two inputs
 *          whose labels are computed here, on inputs that are drawn. What calibration sees of some sets is next to nothing: the
 *          rest is far beyond the ranges, and int8 loses much.
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/npy.h"
#include "base/align.h"
#include "base/npy.h"
#include "kernels/backend.h"
#include "tests/kernels/model_builder.h"
#include "tests/system/leatd.h"
#include "tests/tools/command.h"
#include "tests/tools/zoo_file.h"

enum { ITEMS = 640, CALIBRATED = 512, SEQUENCE = 16, FEATURES = 64, CLASSES = 10, LAYERS = 3 };

static struct leatd leatd;
static struct command command;
static uint64_t random_state;

#define LEAT(exit_code, text, ...)                                          \
    command_expect(&command, leatd.socket_path, exit_code, text, (const char *const[]){__VA_ARGS__, NULL})

static const char *
path_of(const char *name)
{
    static char paths[8][256];
    static unsigned next;
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof(paths[0]), "%s/%s.npy", leatd.root.path, name);
    return path;
}

/* ITEMS rows of so many numbers from `least` on, below `most`; 0: one number each, of rank 1. */
static void
write_numbers(const char *name, int64_t columns, uint64_t least, uint64_t most)
{
    struct npy_array array = {.dtype = LEAT_DTYPE_I64, .rank = columns > 0 ? 2 : 1, .dims = {ITEMS, columns}};

    array.elements = ITEMS * (uint64_t)(columns > 0 ? columns : 1);
    int64_t *numbers = array.data = calloc(array.elements, sizeof(*numbers));
    EXPECT(numbers != NULL);
    for (uint64_t i = 0; i < array.elements; i++) {
        numbers[i] = (int64_t)(least + leat_test_random(&random_state) % (most - least));
    }
    EXPECT(npy_write(path_of(name), &array) == LEAT_OK);
    npy_free(&array);
}

/* The first `faint` rows are next to nothing. */
static void
write_floats(const char *name, int64_t columns, uint64_t faint)
{
    struct npy_array array = {
        .dtype = LEAT_DTYPE_F32, .rank = 2, .dims = {ITEMS, columns}, .elements = ITEMS * (uint64_t)columns};
    float *floats = array.data = calloc(array.elements, sizeof(*floats));

    EXPECT(floats != NULL);
    for (uint64_t i = 0; i < array.elements; i++) {
        floats[i] = (float)(leat_test_random(&random_state) % 2001) / 1000 - 1;
        floats[i] *= i < faint * (uint64_t)columns ? 1e-4f : 1;
    }
    EXPECT(npy_write(path_of(name), &array) == LEAT_OK);
    npy_free(&array);
}

static json_t *
show(const char *name)
{
    LEAT(0, "precision", "model", "show", name, "--json");
    json_t *object = json_loads(command.out, 0, NULL);
    EXPECT(json_is_object(object));
    return object;
}

/* What was measured of it is the same after a restart. */
static void
expect_kept(const char *name)
{
    json_t *before = show(name);
    leatd_end(&leatd, SIGKILL);
    leatd_start(&leatd, "");
    json_t *after = show(name);
    EXPECT(json_equal(before, after));
    json_decref(before);
    json_decref(after);
}

/* `loss_most`: what may be lost at most by a set without labels. */
static void
expect_agreement(const char *name, const char *precision, double loss_most)
{
    json_t *model = show(name);
    const json_t *validation = json_object_get(model, "validation");

    EXPECT(strcmp(json_string_value(json_object_get(model, "precision")), precision) == 0);
    EXPECT(leatd_number(validation, "samples") == ITEMS && json_object_get(validation, "accuracy_ppm") == NULL);
    EXPECT(strlen(json_string_value(json_object_get(validation, "inputs_sha256"))) == 64);
    EXPECT(json_object_get(validation, "labels_sha256") == NULL && leatd_number(model, "accuracy_ppm") == 0);
    EXPECT((double)leatd_number(validation, "agreement_ppm") >= 1e6 * (1 - loss_most));
    json_decref(model);
    LEAT(0, "640 agree with f32", "model", "show", name);
}

static bool
has(enum leat_precision precision)
{
    return (leat_backend_precisions(&leat_backend_cpu) & LEAT_PRECISION_BIT(precision)) != 0;
}

/* ---- A recommender, whose one score is no list of classes --------------------------------------- */

static void
test_recommender(void)
{
    char *file = zoo_file(leatd.root.path, "mlp-recommender"), set[1024], wrong[1024];

    write_numbers("user", 1, 0, 500);
    write_numbers("item", 1, 0, 200);
    write_floats("dense", 13, 0);
    write_numbers("labels", 0, 0, 2);
    (void)snprintf(set, sizeof(set), "dense=%s,user=%s,item=%s", path_of("dense"), path_of("user"), path_of("item"));
    LEAT(0, "100.00 % of 640 agree with f32", "model", "add", "plain", file, "--validation", set);
    expect_agreement("plain", "f32", 0);
    expect_kept("plain");
    LEAT(0, "removed plain", "model", "remove", "plain");
    if (has(LEAT_PRECISION_BF16)) {
        LEAT(0, "agree with f32", "model", "add", "rec", file, "--precision", "bf16", "--validation", set, "--max-loss", "0.1");
        expect_agreement("rec", "bf16", 0.1);
        expect_kept("rec");
        LEAT(0, "removed rec", "model", "remove", "rec");
    }
    if (has(LEAT_PRECISION_INT8)) {
        LEAT(0, "agree with f32", "model", "add", "rec", file, "--precision", "int8", "--validation", set, "--max-loss", "0.5");
        expect_agreement("rec", "int8", 0.5);
        expect_kept("rec");
        LEAT(0, "removed rec", "model", "remove", "rec");
    }
    (void)snprintf(wrong, sizeof(wrong), "%s,%s", set, path_of("labels"));
    LEAT(3, "is f32[N,1], no list of scores of classes; a set for it has no labels", "model", "add", "rec", file, "--validation",
         wrong);
    (void)snprintf(wrong, sizeof(wrong), "dense=%s,user=%s", path_of("dense"), path_of("user"));
    LEAT(3, "there are 2 inputs, the model has 3", "model", "add", "rec", file, "--validation", wrong);
    (void)snprintf(wrong, sizeof(wrong), "dense=%s,user=%s,thing=%s", path_of("dense"), path_of("user"), path_of("item"));
    LEAT(3, "there is nothing for the model's input 'item'", "model", "add", "rec", file, "--validation", wrong);
    (void)snprintf(wrong, sizeof(wrong), "dense=%s,user=%s,user=%s", path_of("dense"), path_of("user"), path_of("item"));
    LEAT(3, "'inputs' must have different names", "model", "add", "rec", file, "--validation", wrong);
    (void)snprintf(wrong, sizeof(wrong), "dense=%s,user=%s,item=%s", path_of("dense"), path_of("user"), path_of("dense"));
    LEAT(3, "the inputs are f32[640,13], the model's input 'item' is i64[N,1]", "model", "add", "rec", file, "--validation", wrong);
    (void)snprintf(wrong, sizeof(wrong), "%s,%s,%s", set, path_of("labels"), path_of("labels"));
    LEAT(1, "is not INPUTS.npy,LABELS.npy, or NAME=INPUTS.npy", "model", "add", "rec", file, "--validation", wrong);

    write_numbers("item", 1, 200, 400); /* none of these is in the table */
    LEAT(3, "validation: items from 0 on", "model", "add", "rec", file, "--validation", set);
    LEAT(3, "there is no model 'rec'", "model", "show", "rec");
    free(file);
}

/* ---- A classifier of two inputs ----------------------------------------------------------------- */

/* y = x times a layer's weights, and the larger of that and 0. */
static void
run_layer(const float *weights, size_t width, const double *x, double *y)
{
    for (size_t c = 0; c < width; c++) {
        y[c] = 0;
        for (size_t f = 0; f < FEATURES; f++) {
            y[c] += x[f] * (double)weights[f * width + c];
        }
        y[c] = y[c] > 0 ? y[c] : 0;
    }
}

/* How the classifier is written. */
enum form {
    PLAIN,
    ONE_ITEM,   /* a shape says that there is one item alone */
    QUANTISED,  /* what the middle layer reads is rounded to 8 bits */
    WITH_BYTES, /* the result is, which nobody multiplies */
    APART,      /* the first layer reads one input alone; the labels are not its */
    MASKED,     /* likewise; the other is added in front of Softmax, which the middle layer reads */
};

/* Both are added and go through three layers, of which the middle one can be int8; the labels are the largest of what comes out. */
static char *
write_classifier(uint64_t faint, enum form form)
{
    struct npy_array a, b, labels = {.dtype = LEAT_DTYPE_I64, .rank = 1, .dims = {ITEMS}, .elements = ITEMS};
    static float weights[LAYERS][FEATURES * FEATURES]; /* the last has fewer */
    struct builder builder;
    size_t size;
    char *path;

    for (size_t i = 0; i < LAYERS * LEAT_COUNT_OF(weights[0]); i++) {
        weights[i / LEAT_COUNT_OF(weights[0])][i % LEAT_COUNT_OF(weights[0])] =
            (float)(leat_test_random(&random_state) % 2001) / 1000 - 1;
    }
    write_floats("a", FEATURES, faint);
    write_floats("b", FEATURES, faint);
    EXPECT(npy_read(path_of("a"), &a) == LEAT_OK && npy_read(path_of("b"), &b) == LEAT_OK);
    int64_t *label = labels.data = calloc(ITEMS, sizeof(*label));
    EXPECT(label != NULL);
    for (uint32_t i = 0; i < ITEMS; i++) {
        double x[FEATURES], hidden[FEATURES], scores[CLASSES];
        for (uint32_t f = 0; f < FEATURES; f++) {
            x[f] = (double)((const float *)a.data)[i * FEATURES + f] + (double)((const float *)b.data)[i * FEATURES + f];
        }
        run_layer(weights[0], FEATURES, x, hidden);
        run_layer(weights[1], FEATURES, hidden, x);
        run_layer(weights[2], CLASSES, x, scores);
        for (uint32_t c = 1; c < CLASSES; c++) {
            label[i] = scores[c] > scores[label[i]] ? c : label[i];
        }
    }
    EXPECT(npy_write(path_of("classes"), &labels) == LEAT_OK);
    npy_free(&a);
    npy_free(&b);
    npy_free(&labels);

    builder_init(&builder, 13);
    (void)builder_input(&builder, "a", ONNX_TYPE_F32, DIMS(-1, FEATURES));
    (void)builder_input(&builder, "b", ONNX_TYPE_F32, DIMS(-1, FEATURES));
    (void)builder_constant(&builder, "w0", ONNX_TYPE_F32, weights[0], DIMS(FEATURES, FEATURES));
    (void)builder_constant(&builder, "w1", ONNX_TYPE_F32, weights[1], DIMS(FEATURES, FEATURES));
    (void)builder_constant(&builder, "w2", ONNX_TYPE_F32, weights[2], DIMS(FEATURES, CLASSES));
    (void)builder_constant(&builder, "one", ONNX_TYPE_I64, (const int64_t[]){1, FEATURES}, DIMS(2));
    (void)builder_node(&builder, "Add", "a b", "sum");
    (void)builder_node(&builder, form == ONE_ITEM ? "Reshape" : "Identity", form == ONE_ITEM ? "sum one" : "sum", "x");
    (void)builder_node(&builder, "MatMul", form >= APART ? "a w0" : "x w0", "z0");
    (void)builder_node(&builder, form >= APART ? "Add" : "Identity", form >= APART ? "z0 b" : "z0", "y0");
    (void)builder_node(&builder, form == MASKED ? "Softmax" : "Relu", "y0", "x1");
    (void)builder_constant(&builder, "scale", ONNX_TYPE_F32, (const float[]){0.25f}, NULL, 0);
    (void)builder_constant(&builder, "zero", 2 /* u8 */, (const uint8_t[]){0}, NULL, 0);
    (void)builder_node(&builder, "QuantizeLinear", "x1 scale zero", "q1");
    (void)builder_node(&builder, "DequantizeLinear", "q1 scale zero", "r1");
    (void)builder_node(&builder, "MatMul", form == QUANTISED ? "r1 w1" : "x1 w1", "y1");
    (void)builder_node(&builder, "Relu", "y1", "x2");
    (void)builder_node(&builder, "MatMul", "x2 w2", "y2");
    (void)builder_node(&builder, "Relu", "y2", "y");
    builder_output(&builder, "y");
    if (form == WITH_BYTES) {
        (void)builder_node(&builder, "QuantizeLinear", "y scale zero", "bytes");
        builder_output(&builder, "bytes");
    }
    const void *bytes = builder_pack(&builder, &size);
    EXPECT(asprintf(&path, "%s/classifier.onnx", leatd.root.path) > 0);
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    builder_fini(&builder);
    return path;
}

static void
test_classifier(void)
{
    char *file = write_classifier(0, PLAIN), alone[1024], labelled[1024];

    (void)snprintf(alone, sizeof(alone), "b=%s,a=%s", path_of("b"), path_of("a"));
    (void)snprintf(labelled, sizeof(labelled), "%s,%s", alone, path_of("classes"));
    LEAT(0, "100.00 % of 640 right", "model", "add", "two", file, "--validation", labelled);
    json_t *model = show("two");
    const json_t *validation = json_object_get(model, "validation");
    EXPECT(leatd_number(validation, "accuracy_ppm") == 1000000 && json_object_get(validation, "agreement_ppm") == NULL);
    EXPECT(leatd_number(model, "accuracy_ppm") == 1000000);
    json_decref(model);
    expect_kept("two");
    LEAT(0, "removed two", "model", "remove", "two");
    if (has(LEAT_PRECISION_BF16)) {
        LEAT(0, "agree with f32", "model", "add", "two", file, "--precision", "bf16", "--validation", alone, "--max-loss", "0.05");
        expect_agreement("two", "bf16", 0.05);
        LEAT(0, "removed two", "model", "remove", "two");
    }
    if (has(LEAT_PRECISION_INT8)) {
        LEAT(0, "of 640 right", "model", "add", "two", file, "--precision", "int8", "--validation", labelled, "--max-loss",
             "0.05");
        LEAT(0, "removed two", "model", "remove", "two");
        free(file);
        file = write_classifier(CALIBRATED, PLAIN);
        LEAT(3, "in int8 its agreement with f32 is", "model", "add", "two", file, "--precision", "int8", "--validation", alone);
        LEAT(3, "in int8 its accuracy is", "model", "add", "two", file, "--precision", "int8", "--validation", labelled);
        LEAT(3, "there is no model 'two'", "model", "show", "two");
        LEAT(0, "added two", "model", "add", "two", file, "--variants", "--validation", alone);
        EXPECT(strstr(command.out, "left out two-int8: its agreement with f32 is") != NULL);
        LEAT(0, "removed two", "model", "remove", "two");
    }
    free(file);
}

/* A file's element at that place of item `item` is this, or all are that from there on. */
static void
spoil(const char *name, uint64_t at, float value, bool all)
{
    struct npy_array array;

    EXPECT(npy_read(path_of(name), &array) == LEAT_OK && array.dtype == LEAT_DTYPE_F32 && at < array.elements);
    for (uint64_t i = at; i < (all ? array.elements : at + 1); i++) {
        ((float *)array.data)[i] = value;
    }
    EXPECT(npy_write(path_of(name), &array) == LEAT_OK);
    npy_free(&array);
}

/* Of all variants the others are added, in words and as JSON. */
static void
expect_left_out(const char *file, const char *set, const char *reason)
{
    char told[256];

    (void)snprintf(told, sizeof(told), "left out two-int8: %s", reason);
    LEAT(0, told, "model", "add", "two", file, "--variants", "--validation", set);
    EXPECT(strstr(command.out, "added two: ") != NULL);
    LEAT(0, "agree with f32", "model", "show", "two");
    LEAT(3, "there is no model 'two-int8'", "model", "show", "two-int8");
    LEAT(0, "removed two", "model", "remove", "two");
    LEAT(0, "", "model", "add", "two", file, "--variants", "--validation", set, "--json");
    json_t *answer = json_loads(command.out, 0, NULL);
    const json_t *left_out = json_array_get(json_object_get(answer, "left_out"), 0);
    EXPECT(json_array_size(json_object_get(answer, "models")) >= 1);
    EXPECT(strcmp(json_string_value(json_object_get(left_out, "name")), "two-int8") == 0);
    EXPECT(strcmp(json_string_value(json_object_get(left_out, "precision")), "int8") == 0);
    EXPECT(strstr(json_string_value(json_object_get(left_out, "reason")), reason) != NULL);
    json_decref(answer);
    LEAT(0, "removed two", "model", "remove", "two");
}

/* int8 goes by no set that says nothing of ranges; f32 is measured on any. */
static void
test_useless_sets(void)
{
    static const char useless[] = "is one number throughout the 512 items that int8 takes its ranges from: give a set";
    char *file = write_classifier(0, PLAIN), set[1024];

    (void)snprintf(set, sizeof(set), "b=%s,a=%s", path_of("b"), path_of("a"));
    if (has(LEAT_PRECISION_INT8)) {
        spoil("b", 0, 0.5f, true); /* it is added to another, which varies */
        LEAT(0, "added two", "model", "add", "two", file, "--precision", "int8", "--validation", set, "--max-loss", "0.5");
        LEAT(0, "removed two", "model", "remove", "two");
        spoil("a", 0, -0.5f, true);
        LEAT(3, useless, "model", "add", "two", file, "--precision", "int8", "--validation", set);
        expect_left_out(file, set, "input 'a' is one number throughout the 512 items");
        LEAT(0, "added two", "model", "add", "two", file, "--validation", set);
        LEAT(0, "removed two", "model", "remove", "two");
        write_floats("a", FEATURES, 0);
        spoil("a", 3 * FEATURES + 7, NAN, false);
        LEAT(3, "element 7 of input 'a' of item 3 is not finite, and int8 takes its ranges from the set", "model", "add", "two", file,
             "--precision", "int8", "--validation", set);
        spoil("a", 3 * FEATURES + 7, -INFINITY, false);
        LEAT(3, "there is no model 'two'", "model", "show", "two");
        expect_left_out(file, set, "element 7 of input 'a' of item 3 is not finite");
        free(file);
        file = write_classifier(0, APART);
        spoil("b", 0, 0, true);
        LEAT(0, "added two", "model", "add", "two", file, "--precision", "int8", "--validation", set, "--max-loss", "0.5");
        LEAT(0, "removed two", "model", "remove", "two");
        write_floats("b", FEATURES, 0);
        spoil("a", 0, 0, true); /* which a product reads: that the other varies is no help */
        LEAT(3, "input 'a' is one number throughout", "model", "add", "two", file, "--precision", "int8", "--validation", set);
    }
    free(file);
}

/* Masks are not finite where they hide something; what they make of that is. */
static void
test_masks(void)
{
    char *file = write_classifier(0, MASKED), set[1024];
    struct npy_array array;

    (void)snprintf(set, sizeof(set), "b=%s,a=%s", path_of("b"), path_of("a"));
    EXPECT(npy_read(path_of("b"), &array) == LEAT_OK);
    for (uint64_t i = 0; i < array.elements; i++) {
        ((float *)array.data)[i] = i % FEATURES > i / FEATURES % (FEATURES - 1) ? -INFINITY : 0;
    }
    EXPECT(npy_write(path_of("b"), &array) == LEAT_OK);
    npy_free(&array);
    if (has(LEAT_PRECISION_INT8)) {
        LEAT(0, "added masked", "model", "add", "masked", file, "--precision", "int8", "--validation", set, "--max-loss", "0.1");
        expect_agreement("masked", "int8", 0.1);
        expect_kept("masked");
        LEAT(0, "removed masked", "model", "remove", "masked");
        spoil("b", 3 * FEATURES, INFINITY, false);
        LEAT(3, "is not finite, and int8 takes its ranges from the set", "model", "add", "masked", file, "--precision", "int8",
             "--validation", set);
    }
    free(file);
}

/* What can be run for one item only is calibrated on one after the other. */
static void
test_one_item(void)
{
    char *file = write_classifier(0, ONE_ITEM), labelled[1024];

    (void)snprintf(labelled, sizeof(labelled), "b=%s,a=%s,%s", path_of("b"), path_of("a"), path_of("classes"));
    if (has(LEAT_PRECISION_INT8)) {
        LEAT(0, "of 640 right", "model", "add", "two", file, "--precision", "int8", "--validation", labelled, "--max-loss",
             "0.05");
        LEAT(0, "removed two", "model", "remove", "two");
    }
    free(file);
}

/* What a file has quantised itself runs as it says, in whatever precision: int8 of it would be the same, or worse. */
static void
test_quantised(void)
{
    char *file = write_classifier(0, QUANTISED), labelled[1024];

    (void)snprintf(labelled, sizeof(labelled), "b=%s,a=%s,%s", path_of("b"), path_of("a"), path_of("classes"));
    if (has(LEAT_PRECISION_INT8)) {
        LEAT(3, "model 'two': its file is quantised, and runs as it says: there is no int8 of it", "model", "add", "two", file,
             "--precision", "int8", "--validation", labelled);
        LEAT(3, "model 'two': its file is quantised", "model", "add", "two", file, "--precision", "int8");
        LEAT(3, "there is no model 'two'", "model", "show", "two");
        LEAT(0, "left out two-int8: its file is quantised", "model", "add", "two", file, "--variants", "--validation", labelled);
        LEAT(3, "there is no model 'two-int8'", "model", "show", "two-int8");
        LEAT(0, "removed two", "model", "remove", "two");
        free(file);
        file = write_classifier(0, WITH_BYTES);
        LEAT(0, "of 640 right", "model", "add", "two", file, "--precision", "int8", "--validation", labelled, "--max-loss",
             "0.05");
        LEAT(0, "removed two", "model", "remove", "two");
    }
    free(file);
}

/* ---- A BERT ------------------------------------------------------------------------------------- */

static void
test_bert(void)
{
    char *file = zoo_file(leatd.root.path, "bert-tiny"), set[1024];

    write_numbers("ids", SEQUENCE, 0, 200);
    write_numbers("mask", SEQUENCE, 1, 2);
    write_numbers("types", SEQUENCE, 0, 2);
    (void)snprintf(set, sizeof(set), "input_ids=%s,attention_mask=%s,token_type_ids=%s", path_of("ids"), path_of("mask"),
                   path_of("types"));
    LEAT(0, "100.00 % of 640 agree with f32", "model", "add", "bert", file, "--dim", "sequence=16", "--validation", set);
    LEAT(0, "removed bert", "model", "remove", "bert");
    if (has(LEAT_PRECISION_BF16)) {
        LEAT(0, "agree with f32", "model", "add", "bert", file, "--dim", "sequence=16", "--precision", "bf16", "--validation", set,
             "--max-loss", "0.2");
        expect_agreement("bert", "bf16", 0.2);
        expect_kept("bert");
        LEAT(0, "removed bert", "model", "remove", "bert");
    }
    if (has(LEAT_PRECISION_INT8)) {
        LEAT(0, "agree with f32", "model", "add", "bert", file, "--dim", "sequence=16", "--precision", "int8", "--validation",
             set, "--max-loss", "1");
        expect_agreement("bert", "int8", 1);
        expect_kept("bert");
        LEAT(0, "removed bert", "model", "remove", "bert");
    }
    LEAT(0, "added all", "model", "add", "all", file, "--dim", "sequence=16", "--variants", "--validation", set);
    LEAT(0, "agree with f32", "model", "show", "all");
    free(file);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    leatd_init(&leatd);
    leatd_start(&leatd, "");
    test_recommender();
    test_classifier();
    test_useless_sets();
    test_masks();
    test_one_item();
    test_quantised();
    test_bert();
    leatd_end(&leatd, SIGTERM);
    leatd_fini(&leatd);
    return 0;
}
