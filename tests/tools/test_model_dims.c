/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A model whose file leaves dimensions free is served once they are given values, by `leat model add --dim` or in the
 *          configuration; `leat model show` says them, and they outlive a restart. What is missing, wrong, double or too large
 *          is refused with its name, and nothing is added. A dimension that is not the first may be said to count items. An output that
 *          is not as its file says is served as it is, and told.
 * Method   leatd and leat as processes; models of leat-zoo in their test size.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/model_builder.h"
#include "tests/system/leatd.h"
#include "tests/tools/command.h"
#include "tests/tools/zoo_file.h"

static struct leatd leatd;
static struct command command;

#define LEAT(exit_code, text, ...)                                          \
    command_expect(&command, leatd.socket_path, exit_code, text, (const char *const[]){__VA_ARGS__, NULL})

static void
expect_sequence(const char *model, json_int_t length)
{
    char wanted[64];

    LEAT(0, "points", "model", "show", model, "--json");
    json_t *shown = json_loads(command.out, 0, NULL);
    EXPECT(json_integer_value(json_object_get(json_object_get(shown, "dims"), "sequence")) == length);
    json_decref(shown);
    (void)snprintf(wanted, sizeof(wanted), "    dimensions sequence=%lld\n", (long long)length);
    LEAT(0, wanted, "model", "show", model);
}

static void
test_add(const char *gru, const char *bert, const char *words)
{
    LEAT(3, "dimension 1 of input 'input_ids' is free, it is called 'sequence': give it a value (--dim sequence=N)", "model", "add",
         "gru", gru);
    LEAT(3, "beside the batch, free is 'sequence'", "model", "add", "gru", gru, "--dim", "frames=8");
    LEAT(3, "an output is larger than 1099511627776 bytes", "model", "add", "words", words, "--dim", "sequence=2147483647");
    LEAT(3, "node ", "model", "add", "bert", bert, "--dim", "sequence=33"); /* it has 32 positions */
    LEAT(2, "--dim: 'sequence' is given two values", "model", "add", "gru", gru, "--dim", "sequence=8", "--dim", "sequence=8");
    LEAT(2, "--synthetic takes no --dim", "model", "add", "gru", "--synthetic", "{}", "--dim", "sequence=8");
    static const char *const malformed[] = {"sequence", "=8", "sequence=", "sequence=0", "sequence=-1", "sequence=2147483648",
                                            "sequence=8x", ""};
    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++) {
        LEAT(2, "is malformed", "model", "add", "gru", gru, "--dim", malformed[i]);
    }
    LEAT(0, "", "model", "list", "--json");
    EXPECT(strstr(command.out, "gru") == NULL && strstr(command.out, "bert") == NULL && strstr(command.out, "words") == NULL);

    LEAT(0, "added gru", "model", "add", "gru", gru, "--dim", "sequence=8");
    LEAT(0, "added bert", "model", "add", "bert", bert, "--dim", "sequence=32", "--items-max", "auto");
    LEAT(0, "added shorter", "model", "add", "shorter", bert, "--dim", "sequence=7", "--backend", "reference");
    LEAT(0, "i64[N,7]", "model", "list");
}

static void
expect_served(void)
{
    expect_sequence("gru", 8);
    expect_sequence("bert", 32);
    expect_sequence("shorter", 7);
    LEAT(0, "\"ok\"", "run", "gru", "--items", "2", "--json");
    LEAT(0, "\"ok\"", "run", "bert", "--items", "1", "--json");
    LEAT(0, "\"ok\"", "run", "shorter", "--items", "3", "--json");
}

/* What a client of its own says instead of leat. */
static void
test_requests(void)
{
    static const struct {
        const char *request, *text;
    } wrong[] = {
        {"{\"op\":\"model-add\",\"name\":\"m\",\"options\":{\"dims\":{\"s\":1,\"s\":2}}}", "duplicate"},
        {"{\"op\":\"model-add\",\"name\":\"m\",\"options\":{\"dims\":{\"s\":99999999999999999999}}}", "too big"},
    };
    struct leat_session *session = leatd_open_session(&leatd, 4, 65536);

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        json_t *answer = leatd_request(session, wrong[i].request);
        EXPECT(json_integer_value(json_object_get(answer, "status")) < 0);
        EXPECT(strstr(json_string_value(json_object_get(answer, "error")), wrong[i].text) != NULL);
        json_decref(answer);
    }
    leat_close(session);
}

/* Packs it, and is done with it. */
static char *
save(struct builder *b, const char *name)
{
    char *path = malloc(strlen(leatd.root.path) + strlen(name) + 2);
    size_t size;

    EXPECT(path != NULL);
    (void)sprintf(path, "%s/%s", leatd.root.path, name);
    const void *bytes = builder_pack(b, &size);
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    builder_fini(b);
    return path;
}

/* ---- Outputs that are not what the file says ---------------------------------------------------- */

#define MISDECLARED "output 'y' of node 'y' is [?,4], and not [?,7] as the file says"

static char *
write_misdeclared(const char *output)
{
    struct builder b;

    builder_init(&b, 14);
    (void)builder_input(&b, "x", 1, DIMS(-1, 4));
    (void)builder_node(&b, "Relu", "x", output);
    builder_output(&b, output);
    b.outputs[0]->type = builder_input(&b, "other", 1, DIMS(-1, 7))->type;
    b.graph.n_input--;
    return save(&b, "lies.onnx");
}

/* It is served, and what is wrong with it is said wherever it is shown. */
static void
test_misdeclared(void)
{
    char *path = write_misdeclared("y");
    LEAT(0, "\n" MISDECLARED "\n", "model", "inspect", path, "--runs", "1");
    LEAT(0, "\"misdeclared\":\"" MISDECLARED "\"", "model", "inspect", path, "--runs", "1", "--json");
    LEAT(0, "\n    " MISDECLARED "\n", "model", "add", "lies", path);
    LEAT(0, "\n    " MISDECLARED "\n", "model", "list");
    LEAT(0, "\n    " MISDECLARED "\n", "model", "show", "lies");
    LEAT(0, "\"misdeclared\":\"" MISDECLARED "\"", "model", "show", "lies", "--json");
    LEAT(0, "\"ok\"", "run", "lies", "--items", "2", "--json");
    LEAT(0, "removed", "model", "remove", "lies");
    free(path);
}

/* A name is cut to 64 bytes, which of characters of three bytes leaves a third of one. */
static void
test_misdeclared_long(void)
{
    char name[3 * 30 + 1] = "";

    for (int i = 0; i < 30; i++) {
        (void)strcat(name, "\xe8\xaa\x9e");
    }
    char *path = write_misdeclared(name);
    LEAT(0, "\"misdeclared\":\"output '", "model", "inspect", path, "--runs", "1", "--json");
    LEAT(0, "?' of node '", "model", "add", "lies", path);
    LEAT(0, "\"misdeclared\":\"output '", "model", "show", "lies", "--json");
    LEAT(0, "removed", "model", "remove", "lies");
    free(path);
}

/* ---- Sequences before items --------------------------------------------------------------------- */

/* An LSTM of x[M][N][4], as PyTorch has it by default: M steps of N items. */
static char *
write_sequence_first(void)
{
    struct builder b;

    builder_init(&b, 14);
    (void)builder_input(&b, "x", 1, DIMS(-2, -1, 4));
    (void)builder_constant(&b, "w", 1, NULL, DIMS(1, 8, 4));
    (void)builder_constant(&b, "r", 1, NULL, DIMS(1, 8, 2));
    (void)builder_constant(&b, "one", 7, (const int64_t[]){1}, DIMS(1));
    (void)builder_int(&b, builder_node(&b, "LSTM", "x w r", "all"), "hidden_size", 2);
    (void)builder_node(&b, "Squeeze", "all one", "y");
    builder_output(&b, "y");
    return save(&b, "lstm.onnx");
}

static void
add_sequence_first(const char *lstm)
{
    LEAT(3, "no free dimension of an input is called 'batch': it cannot count items", "model", "add", "lstm", lstm, "--dim",
         "batch=items", "--dim", "M=6");
    LEAT(3, "or once \"items\"", "model", "add", "lstm", lstm, "--dim", "N=items", "--dim", "M=items");
    LEAT(3, "it is called 'M': give it a value (--dim M=N)", "model", "add", "lstm", lstm, "--dim", "N=items");
    LEAT(2, "is malformed", "model", "add", "lstm", lstm, "--dim", "N=items,4");
    LEAT(0, "added lstm", "model", "add", "lstm", lstm, "--dim", "N=items", "--dim", "M=6");
    LEAT(0, "added lengths", "model", "add", "lengths", lstm, "--dim", "N=items", "--dim", "M=3,6");
    LEAT(0, "f32[N,6,4]", "model", "list");
    LEAT(0, "nodes", "model", "inspect", lstm, "--dim", "N=items", "--dim", "M=6", "--items", "3", "--runs", "1");
}

static void
expect_sequence_first(const char *model, const char *dims)
{
    LEAT(0, dims, "model", "show", model);
    EXPECT(strstr(command.out, "one item at a time") == NULL);
    LEAT(0, "\"ok\"", "run", model, "--items", "3", "--json");
}

int
main(void)
{
    char yaml[1024];

    leat_test_init();
    leatd_init(&leatd);
    char *gru = zoo_file(leatd.root.path, "gru-classifier"), *bert = zoo_file(leatd.root.path, "bert-tiny"), *words = zoo_file(leatd.root.path, "lstm-lm");
    leatd_start(&leatd, "");
    test_add(gru, bert, words);
    test_requests();
    test_misdeclared();
    test_misdeclared_long();
    expect_served();
    char *lstm = write_sequence_first();
    add_sequence_first(lstm);
    expect_sequence_first("lstm", "    dimensions N=items, M=6\n");
    leatd_end(&leatd, SIGKILL);
    (void)snprintf(yaml, sizeof(yaml),
                   "models: [{name: fixed, path: %s, dims: [sequence=5]}, {name: kept, path: %s, dims: [M=5, N=items]}]\n", gru, lstm);
    leatd_start(&leatd, yaml);
    expect_served();
    expect_sequence_first("lstm", "    dimensions N=items, M=6\n");
    expect_sequence_first("lengths", "    dimensions N=items, M=3,6\n");
    expect_sequence_first("kept", "    dimensions M=5, N=items\n");
    expect_sequence("fixed", 5);
    LEAT(0, "\"ok\"", "run", "fixed", "--json");
    LEAT(0, "removed bert", "model", "remove", "bert");
    leatd_end(&leatd, SIGTERM);
    leatd_fini(&leatd);
    free(lstm);
    free(gru);
    free(bert);
    free(words);
    return 0;
}
