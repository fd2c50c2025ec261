/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     `leat model inspect` runs a model on what the daemon measures it on: rows of whole tables, sequences of full
 *          length; what refuses those is run on zeros, and what refuses zeros on ones, and both forms of the report say so.
 *          What refuses all of them is an error that names the node. What is over a limit is an error of the command alone.
 * Method   Small models, one for each.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "tests/kernels/model_builder.h"
#include "tests/tools/command.h"

enum { F32 = 1, I32 = 6, I64 = 7, ROWS = 100000, STEPS = 64, HIDDEN = 256 };

static struct command command;
static struct builder b; /* one model at a time */
static char path[4096];

#define LEAT(exit_code, text, ...) \
    command_expect(&command, "none.sock", exit_code, text, (const char *const[]){__VA_ARGS__, NULL})

/* The model becomes a file. */
static void
finish(const char *output)
{
    size_t size;

    builder_output(&b, output);
    const void *bytes = builder_pack(&b, &size);
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    builder_fini(&b);
}

/* What its inputs were filled with; *ret_ns is a run. */
static void
expect_filled(const char *with, double *ret_ns)
{
    LEAT(0, "", "model", "inspect", path, "--runs", "7", "--json");
    json_t *seen = json_loads(command.out, 0, NULL);
    EXPECT(seen != NULL && strcmp(json_string_value(json_object_get(seen, "filled_with")), with) == 0);
    *ret_ns = json_number_value(json_object_get(json_object_get(seen, "after"), "run_ns"));
    json_decref(seen);
}

/* ids: i64[N][4] of a table whose first row is 0, and others 1; one is divided by what is found there. */
static void
test_rows(void)
{
    static int64_t table[ROWS];
    double ns;

    for (int row = 1; row < ROWS; row++) {
        table[row] = 1;
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "ids", I64, DIMS(-1, 4));
    (void)builder_constant(&b, "table", I64, table, DIMS(ROWS));
    (void)builder_constant(&b, "one", I64, (const int64_t[]){1}, DIMS(1));
    (void)builder_node(&b, "Gather", "table ids", "found");
    (void)builder_node(&b, "Div", "one found", "y");
    finish("y");
    expect_filled("drawn numbers", &ns);
    LEAT(0, "before: ", "model", "inspect", path, "--runs", "1");
    EXPECT(strstr(command.out, "run on ") == NULL);
}

/* `lens` is the input itself, or a sum, which nothing is known of. */
static double
time_sequence(bool known)
{
    double ns;

    builder_init(&b, 14);
    (void)builder_input(&b, "lens", I32, DIMS(-1));
    (void)builder_input(&b, "x", F32, DIMS(-1, STEPS, HIDDEN));
    (void)builder_constant(&b, "w", F32, NULL, DIMS(1, 3 * HIDDEN, HIDDEN));
    (void)builder_ints(&b, builder_node(&b, "Transpose", "x", "steps"), "perm", (const int64_t[]){1, 0, 2}, 3);
    (void)builder_node(&b, "Add", "lens lens", "twice");
    (void)builder_int(&b, builder_node(&b, "GRU", known ? "steps w w - lens" : "steps w w - twice", "- h"), "hidden_size",
                      HIDDEN);
    (void)builder_constant(&b, "axis", I64, (const int64_t[]){0}, DIMS(1));
    (void)builder_node(&b, "Squeeze", "h axis", "y");
    finish("y");
    expect_filled("drawn numbers", &ns);
    return ns;
}

/* a: i64[N][4] by itself, so ones alone do; or by what is always 0. */
static void
test_refusals(void)
{
    double ns;

    builder_init(&b, 13);
    (void)builder_input(&b, "a", I64, DIMS(-1, 4));
    (void)builder_node(&b, "Div", "a a", "y");
    finish("y");
    expect_filled("ones", &ns);
    LEAT(0, "run on ones: it refuses zeros: node 'y' (operator Div): ", "model", "inspect", path, "--runs", "1");

    builder_init(&b, 13); /* twice a row of one table is one of the other, which has one alone */
    (void)builder_input(&b, "ids", I64, DIMS(-1, 64));
    (void)builder_constant(&b, "table", F32, NULL, DIMS(ROWS, 2));
    (void)builder_constant(&b, "first", F32, NULL, DIMS(1, 2));
    (void)builder_node(&b, "Gather", "table ids", "row");
    (void)builder_node(&b, "Add", "ids ids", "twice");
    (void)builder_node(&b, "Gather", "first twice", "other");
    (void)builder_node(&b, "Add", "row other", "y");
    finish("y");
    expect_filled("zeros", &ns);
    LEAT(0, "run on zeros: it refuses drawn numbers: node ", "model", "inspect", path, "--runs", "1");

    builder_init(&b, 13);
    (void)builder_input(&b, "a", I64, DIMS(-1, 4));
    (void)builder_node(&b, "Sub", "a a", "none");
    (void)builder_node(&b, "Div", "a none", "y");
    finish("y");
    LEAT(1, "node 'y' (operator Div): ", "model", "inspect", path);
}

/* No daemon is asked, so none has refused anything. */
static void
test_limits(void)
{
    builder_init(&b, 13);
    (void)builder_input(&b, "x", F32, DIMS(-1, 1, 1, 1, 1, 1, 1, 1, 1));
    (void)builder_node(&b, "Relu", "x", "y");
    finish("y");
    LEAT(1, "input 'x' has rank 9", "model", "inspect", path);

    builder_init(&b, 13);
    (void)builder_input(&b, "x", F32, DIMS(-1, 1000, 1000));
    (void)builder_node(&b, "Relu", "x", "y");
    finish("y");
    LEAT(1, "the model's limit leaves 1048576", "model", "inspect", path, "--memory", "1MiB");
    LEAT(1, "cannot reach the daemon", "model", "inspect", "nobody");
}

int
main(void)
{
    char folder[] = "/tmp/leat-inspect-XXXXXX";

    leat_test_init();
    EXPECT(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof(path), "%s/model.onnx", folder);
    test_rows();
    const double full_ns = time_sequence(true);
    EXPECT(full_ns > 2 * time_sequence(false));
    test_refusals();
    test_limits();
    EXPECT(unlink(path) == 0 && rmdir(folder) == 0);
    return 0;
}
