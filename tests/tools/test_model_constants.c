/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     An input of a file that `leat model add --constant` or the configuration gives a number to is none of the model's, and
 *          decides what is computed; `leat model show` says it, and it outlives a kill. What is wrong is refused with what would
 *          be right, and nothing is added.
 * Method   leatd and leat as processes; a model whose input `rate` decides between outputs of other ranks.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/model_builder.h"
#include "tests/system/leatd.h"
#include "tests/tools/command.h"

static struct leatd leatd;
static struct command command;

#define LEAT(exit_code, text, ...)                                          \
    command_expect(&command, leatd.socket_path, exit_code, text, (const char *const[]){__VA_ARGS__, NULL})

/* y = rate is 16000 ? -(x without axis 1) : gain x */
static char *
write_model(void)
{
    static const int64_t axes[1] = {1}, fast = 16000;
    struct builder b, inner[2];
    size_t size;
    char *path = malloc(strlen(leatd.root.path) + 16);

    EXPECT(path != NULL);
    (void)sprintf(path, "%s/rate.onnx", leatd.root.path);
    builder_init(&inner[0], 13);
    (void)builder_node(&inner[0], "Squeeze", "x axes", "s");
    (void)builder_node(&inner[0], "Neg", "s", "t");
    builder_output(&inner[0], "t");
    builder_init(&inner[1], 13);
    (void)builder_node(&inner[1], "Mul", "x gain", "e");
    builder_output(&inner[1], "e");
    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 1, 4));
    (void)builder_input(&b, "rate", 7, NULL, 0);
    (void)builder_input(&b, "gain", 1, DIMS(4));
    (void)builder_constant(&b, "axes", 7, axes, DIMS(1));
    (void)builder_constant(&b, "fast", 7, &fast, NULL, 0);
    (void)builder_node(&b, "Equal", "rate fast", "c");
    Onnx__NodeProto *node = builder_node(&b, "If", "c", "y");
    builder_graph(&b, node, "then_branch", &inner[0]);
    builder_graph(&b, node, "else_branch", &inner[1]);
    builder_output(&b, "y");
    const void *bytes = builder_pack(&b, &size);
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    builder_fini(&b);
    builder_fini(&inner[0]);
    builder_fini(&inner[1]);
    return path;
}

static void
test_mistakes(const char *file)
{
    static const char *const malformed[] = {"rate", "=3", "rate=", "rate=16k", "rate=true", "rate=nan", "rate=99999999999999999999", ""};

    LEAT(3, "its branches yield different types or ranks", "model", "add", "m", file);
    LEAT(3, "no input is called 'sr', so it cannot be constant; inputs are 'x', 'rate', 'gain'", "model", "add", "m", file, "--constant",
         "sr=16000");
    LEAT(3, "input 'rate' is of type i64, which has whole numbers from -9223372036854775808 to 9223372036854775807, and not 0.5", "model",
         "add", "m", file, "--constant", "rate=0.5");
    LEAT(3, "input 'x' cannot be constant: dimension 0 of it counts items", "model", "add", "m", file, "--constant", "x=1");
    LEAT(2, "--constant: 'rate' is given two values", "model", "add", "m", file, "--constant", "rate=1", "--constant", "rate=1");
    LEAT(2, "--synthetic takes no --constant", "model", "add", "m", "--synthetic", "{}", "--constant", "rate=1");
    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++) {
        LEAT(2, "is not INPUT=VALUE with a number, as sr=16000 or x=0.5", "model", "add", "m", file, "--constant", malformed[i]);
    }
    LEAT(0, "", "model", "list", "--json");
    EXPECT(strstr(command.out, "\"m\"") == NULL);
}

/* The one input that is left, and the output, of that rank. */
static void
expect_tensors(const char *model, size_t rank)
{
    json_t *listed, *tensors = NULL;
    size_t m;

    LEAT(0, "", "model", "list", "--json");
    json_t *reply = json_loads(command.out, 0, NULL);
    json_array_foreach(json_object_get(reply, "models"), m, listed) {
        if (strcmp(json_string_value(json_object_get(listed, "name")), model) == 0) {
            tensors = json_object_get(listed, "tensors");
        }
    }
    EXPECT(json_array_size(tensors) == 2);
    EXPECT(strcmp(json_string_value(json_object_get(json_array_get(tensors, 0), "name")), "x") == 0);
    EXPECT(json_array_size(json_object_get(json_array_get(tensors, 1), "dims")) == rank);
    json_decref(reply);
}

/* The constants as they were given, and what they decide. */
static void
expect_served(const char *model, const char *constants, size_t rank)
{
    char line[128];

    (void)snprintf(line, sizeof(line), "    constant inputs %s\n", constants);
    LEAT(0, line, "model", "show", model);
    expect_tensors(model, rank);
    LEAT(0, "\"ok\"", "run", model, "--items", "3", "--json");
    LEAT(0, "points", "model", "show", model, "--json");
    json_t *shown = json_loads(command.out, 0, NULL);
    EXPECT(json_is_integer(json_object_get(json_object_get(shown, "constants"), "rate")));
    json_decref(shown);
}

int
main(void)
{
    char yaml[512];

    leat_test_init();
    leatd_init(&leatd);
    char *file = write_model();
    leatd_start(&leatd, "");
    test_mistakes(file);
    LEAT(0, "added fast", "model", "add", "fast", file, "--constant", "rate=16000", "--constant", "gain=1");
    LEAT(0, "added slow", "model", "add", "slow", file, "--constant", "rate=8000", "--constant", "gain=-0.5", "--backend", "reference");
    expect_served("fast", "rate=16000, gain=1", 2);
    expect_served("slow", "rate=8000, gain=-0.5", 3);
    LEAT(0, "nodes", "model", "inspect", file, "--constant", "rate=16000", "--runs", "1");
    LEAT(0, "nodes", "model", "inspect", "slow", "--runs", "1");
    leatd_end(&leatd, SIGKILL);
    (void)snprintf(yaml, sizeof(yaml), "models: [{name: fixed, path: %s, constants: [rate=8000, gain=2]}]\n", file);
    leatd_start(&leatd, yaml);
    expect_served("fast", "rate=16000, gain=1", 2);
    expect_served("slow", "rate=8000, gain=-0.5", 3);
    expect_served("fixed", "rate=8000, gain=2", 3);
    leatd_end(&leatd, SIGTERM);
    leatd_fini(&leatd);
    free(file);
    return 0;
}
