/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A model whose weights lie in files beside it is served from a copy that the daemon keeps: it outlives its files and
 *          SIGKILL, is removed whole, can be inspected, and may be of more than 2 GiB in little memory. What is missing or leads
 *          out of its folder is refused, and nothing is kept. Weights that are cut short while they are in use fail the batches
 *          of that model, and of no other.
 * Method   leatd and leat as processes. A model adds a row of a table to a bias, so that every answer is known.
 */
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/align.h"
#include "tests/kernels/model_builder.h"
#include "tests/system/leatd.h"
#include "tests/tools/command.h"
#include "tools/zoo/zoo.h"

#define COLUMNS 64
#define ROW     (COLUMNS * 4)
#define ROWS    INT64_C(4096)     /* 1 MiB */
#define MANY    INT64_C(11000000) /* 2.6 GiB */
#define MEMORY  (UINT64_C(64) << 20) /* of a model, as configured */
/* Of the daemon that has a file of 2.6 GiB mapped: sanitizers take some. */
#define RESIDENT_KIB 786432ul

static struct leatd leatd;
static struct command command;

#define LEAT(exit_code, text, ...)                                          \
    command_expect(&command, leatd.socket_path, exit_code, text, (const char *const[]){__VA_ARGS__, NULL})

/* ---- Models --------------------------------------------------------------------------------------- */

static void
path_of(const char *name, char path[256])
{
    (void)snprintf(path, 256, "%s/%s", leatd.root.path, name);
}

static void
write_at(const char *name, const void *bytes, size_t count, off_t offset, off_t size)
{
    char path[256];

    path_of(name, path);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT(fd >= 0 && pwrite(fd, bytes, count, offset) == (ssize_t)count);
    EXPECT((size == 0 || ftruncate(fd, size) == 0) && close(fd) == 0);
}

static void
refer(struct builder *b, Onnx__TensorProto *tensor, const char *location)
{
    Onnx__StringStringEntryProto *entry = builder_alloc(b, sizeof(*entry));

    onnx__string_string_entry_proto__init(entry);
    entry->key = strcpy(builder_alloc(b, 16), "location");
    entry->value = strcpy(builder_alloc(b, strlen(location) + 1), location);
    tensor->external_data = builder_alloc(b, sizeof(*tensor->external_data));
    tensor->external_data[0] = entry;
    tensor->n_external_data = 1;
    tensor->has_data_location = 1;
    tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    tensor->has_raw_data = 0;
    tensor->raw_data.len = 0;
}

/* y[n] = table[i[n]] + bias in `name`.onnx; both lie in files of these names. Column c of the bias is 100 * c. */
static void
write_model(const char *name, int64_t rows, const char *table_name, const char *bias_name)
{
    float bias[COLUMNS];
    struct builder b;
    char file[64];
    size_t size;

    builder_init(&b, 13);
    (void)builder_input(&b, "i", 7, DIMS(-1));
    Onnx__TensorProto *table = builder_constant(&b, "table", 1, NULL, DIMS(0, COLUMNS));
    table->dims[0] = rows;
    refer(&b, table, table_name);
    refer(&b, builder_constant(&b, "bias", 1, NULL, DIMS(COLUMNS)), bias_name);
    (void)builder_node(&b, "Gather", "table i", "row");
    (void)builder_node(&b, "Add", "row bias", "y");
    builder_output(&b, "y");
    const void *bytes = builder_pack(&b, &size);
    (void)snprintf(file, sizeof(file), "%s.onnx", name);
    write_at(file, bytes, size, 0, 0);
    builder_fini(&b);
    for (int c = 0; c < COLUMNS; c++) {
        bias[c] = 100 * (float)c;
    }
    if (bias_name[0] != '.') {
        write_at(bias_name, bias, sizeof(bias), 0, 0);
    }
}

/* Column c of row r is r + c. */
static void
write_row(const char *table_name, int64_t row, int64_t rows)
{
    float values[COLUMNS];

    for (int c = 0; c < COLUMNS; c++) {
        values[c] = (float)(row + c);
    }
    write_at(table_name, values, sizeof(values), row * ROW, rows * ROW);
}

/* ---- Answers -------------------------------------------------------------------------------------- */

static void
expect_row(const char *model, int64_t row, uint32_t outcome)
{
    struct leat_session *session = leatd_open_session(&leatd, 4, 65536);
    struct leat_target target;
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_completion done;
    void *index, *answer;

    EXPECT(leat_find(session, model, &target) == LEAT_OK && target.input_count == 1 && target.output_count == 1);
    EXPECT(leat_tensor_alloc(session, sizeof(row), &index) == LEAT_OK && leat_tensor_alloc(session, ROW, &answer) == LEAT_OK);
    memcpy(index, &row, sizeof(row));
    query.target = target.id;
    query.items = 1;
    query.tensors[0] = index;
    query.tensors[1] = answer;
    EXPECT(leat_run(session, &query, &done) == LEAT_OK);
    if (done.outcome != outcome) {
        (void)fprintf(stderr, "row %lld of '%s': %s, %s\n", (long long)row, model, leat_outcome_text(done.outcome),
                      leat_reason_text(done.reason));
    }
    EXPECT(done.outcome == outcome && (outcome == LEAT_OUTCOME_OK || done.reason == LEAT_REASON_DEVICE));
    for (int c = 0; c < COLUMNS && outcome == LEAT_OUTCOME_OK; c++) {
        EXPECT(((const float *)answer)[c] == (float)(row + c) + 100 * (float)c);
    }
    leat_close(session);
}

static uint32_t
count_kept(char last[256])
{
    char path[256];
    uint32_t count = 0;
    const struct dirent *entry;

    path_of("state/models", path);
    DIR *folder = opendir(path);
    EXPECT(folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        struct stat info;
        if (entry->d_name[0] == '.') {
            continue;
        }
        count++;
        if (last != NULL && fstatat(dirfd(folder), entry->d_name, &info, 0) == 0 && info.st_size == ROWS * ROW) {
            (void)snprintf(last, 256, "%.100s/%.100s", path, entry->d_name);
        }
    }
    EXPECT(closedir(folder) == 0);
    return count;
}

/* ---- Tests ---------------------------------------------------------------------------------------- */

static void
write_table(const char *name)
{
    for (int64_t r = 0; r < ROWS; r++) {
        write_row(name, r, ROWS);
    }
}

/* 2 GFLOP for an item, from a file of some bytes. */
static void
write_slow(char path[256])
{
    struct builder b;
    size_t count;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 1000, 1000));
    (void)builder_node(&b, "MatMul", "x x", "y");
    builder_output(&b, "y");
    const void *bytes = builder_pack(&b, &count);
    write_at("slow.onnx", bytes, count, 0, 0);
    builder_fini(&b);
    path_of("slow.onnx", path);
}

/* What is sent is no file that could be read. */
static void
expect_unread(const char *name, const char *text)
{
    struct leat_session *session = leatd_open_session(&leatd, 1, 4096);
    char request[128], *reply = NULL;
    int ends[2];

    EXPECT(pipe(ends) == 0);
    (void)snprintf(request, sizeof(request), "{\"op\":\"model-add\",\"name\":\"%s\",\"backend\":\"cpu\"}", name);
    EXPECT(leat_admin(session, request, ends[0], &reply) == LEAT_OK && strstr(reply, text) != NULL);
    leat_admin_free(reply);
    leat_close(session);
    EXPECT(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void
test_add(void)
{
    char path[256], folder[256];

    path_of("sub", folder);
    EXPECT(mkdir(folder, 0700) == 0);
    write_table("sub/table.data");
    write_model("table", ROWS, "sub/table.data", "bias.data");
    path_of("table.onnx", path);
    LEAT(0, "and 1.0 MiB in files", "model", "add", "table", path, "--items-max", "4");
    EXPECT(count_kept(NULL) == 3);
    LEAT(0, "file sub/table.data, 1.0 MiB", "model", "show", "table");
    LEAT(0, "\"sha256\"", "model", "show", "table", "--json");
    json_t *shown = json_loads(command.out, 0, NULL);
    const json_t *files = json_object_get(shown, "files");
    EXPECT(json_array_size(files) == 2 && leatd_number(shown, "file_bytes") == ROWS * ROW + ROW);
    json_decref(shown);
    expect_row("table", 0, LEAT_OUTCOME_OK);
    expect_row("table", ROWS - 1, LEAT_OUTCOME_OK);
    LEAT(3, "exists", "model", "add", "table", path);
    expect_unread("table", "a model or application 'table' exists: remove it first");
    expect_unread("chair", "a model must be a regular file");
    LEAT(0, "added other", "model", "add", "other", path, "--backend", "reference");
    EXPECT(count_kept(NULL) == 3); /* each content once */
    write_slow(path);
    LEAT(0, "added slow", "model", "add", "slow", path, "--items-max", "1");

    /* It is the daemon's now, and goes on after its death. */
    path_of("sub/table.data", path);
    EXPECT(unlink(path) == 0 && rmdir(folder) == 0);
    path_of("bias.data", path);
    EXPECT(unlink(path) == 0);
    leatd_end(&leatd, SIGKILL);
    leatd_start(&leatd, "limits: {model_memory: 64MiB, item_gflop: 1}\n");
    EXPECT(count_kept(NULL) == 4);
    LEAT(0, "\"ok\"", "run", "slow", "--json"); /* over a limit that is newer than it is */
    LEAT(0, "removed slow", "model", "remove", "slow");
    EXPECT(count_kept(NULL) == 3);
    expect_row("table", 5, LEAT_OUTCOME_OK);
    expect_row("other", ROWS - 1, LEAT_OUTCOME_OK);
    LEAT(0, "Gather", "model", "inspect", "table", "--runs", "1");
    LEAT(0, "removed other", "model", "remove", "other");
    EXPECT(count_kept(NULL) == 3);
    expect_row("table", 7, LEAT_OUTCOME_OK);
}

static void
test_refused(void)
{
    char path[256];

    write_model("lost", ROWS, "nowhere.data", "bias.data");
    path_of("lost.onnx", path);
    LEAT(1, "tensor 'table': cannot open 'nowhere.data' in the model's folder", "model", "add", "lost", path);
    LEAT(1, "cannot open 'nowhere.data'", "model", "inspect", path);
    write_model("outside", ROWS, "bias.data", "../outside.data");
    path_of("outside.onnx", path);
    LEAT(1, "it leads out of it, or is a link", "model", "add", "outside", path);
    write_model("short", ROWS, "bias.data", "bias.data"); /* too little for the table */
    path_of("short.onnx", path);
    LEAT(3, "tensor 'table' needs 1048576 bytes", "model", "add", "short", path);
    EXPECT(count_kept(NULL) == 3);

    write_slow(path);
    LEAT(3, "an item takes as long as 2 GFLOP of products, limits.item_gflop is 1: raise it", "model", "add", "slow", path);
    EXPECT(count_kept(NULL) == 3);
}

/* What a client of its own says instead of leat. */
static void
test_requests(void)
{
    static const struct {
        const char *files;
        size_t fd_count;
        const char *text;
    } wrong[] = {
        {"", 2, "'files' must name the files"},
        {",\"files\":[\"a\"]", 1, "'files' must name the files"},
        {",\"files\":[\"a\",\"b\"]", 2, "'files' must name the files"},
        {",\"files\":\"a\"", 2, "'files' must name the files"},
        {",\"files\":[\"a\",\"a\"]", 3, "different names"},
        {",\"files\":[\"\"]", 2, "different names"},
        {",\"files\":[7]", 2, "different names"},
        {",\"files\":[\"a\"]", 2, "its file 'sub/table.data' did not come with the model"},
        {",\"files\":[\"sub/table.data\"]", 2, "tensor 'table' needs 1048576 bytes"},
        {",\"files\":[\"folder\"]", 3, "'files' must name the files"},
    };
    struct leat_session *session = leatd_open_session(&leatd, 4, 65536);
    char path[256];

    path_of("table.onnx", path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC), fds[] = {fd, fd, fd};
    EXPECT(fd >= 0);
    for (size_t i = 0; i < LEAT_COUNT_OF(wrong); i++) {
        char request[256], *reply;
        (void)snprintf(request, sizeof(request), "{\"op\":\"model-add\",\"name\":\"m\"%s}", wrong[i].files);
        EXPECT(leat_admin_files(session, request, fds, wrong[i].fd_count, &reply) == LEAT_OK);
        if (strstr(reply, wrong[i].text) == NULL) {
            (void)fprintf(stderr, "%s: %s\n", request, reply);
        }
        EXPECT(strstr(reply, wrong[i].text) != NULL && strstr(reply, "\"status\"") != NULL);
        leat_admin_free(reply);
    }
    EXPECT(close(fd) == 0 && count_kept(NULL) == 3);
    leat_close(session);
}

/* A network of leat-zoo, whose weights are in a second file, answers as the one with its weights inside. */
static void
test_zoo(void)
{
    const struct zoo_model *lenet = zoo_find("lenet5");
    char path[256];
    void *bytes;
    size_t size;

    path_of("lenet.data", path);
    FILE *data = fopen(path, "wb");
    EXPECT(data != NULL);
    EXPECT(zoo_write_external(lenet, ZOO_SIZE_TEST, leat_test_seed, "lenet.data", data, &bytes, &size) == LEAT_OK);
    EXPECT(fclose(data) == 0);
    write_at("lenet.onnx", bytes, size, 0, 0);
    free(bytes);
    path_of("lenet.onnx", path);
    LEAT(0, "in files", "model", "add", "lenet", path, "--items-max", "auto");
    LEAT(0, "\"ok\"", "run", "lenet", "--items", "2", "--json");
    LEAT(0, "Conv", "model", "inspect", "lenet", "--runs", "1");
    LEAT(0, "Conv", "model", "inspect", path, "--runs", "1");
    LEAT(0, "removed lenet", "model", "remove", "lenet");
    EXPECT(count_kept(NULL) == 3);
}

static unsigned long
resident_kib(void)
{
    char path[64], line[256];
    unsigned long kib = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)leatd.pid);
    FILE *file = fopen(path, "r");
    EXPECT(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "VmHWM: %lu kB", &kib) == 1) {
            break;
        }
    }
    EXPECT(fclose(file) == 0 && kib > 0);
    return kib;
}

/* The configuration names it: it is used where it lies. */
static void
test_large(void)
{
    static const int64_t rows[] = {0, MANY / 2, MANY - 1};
    char path[256], yaml[1024];

    for (size_t r = 0; r < LEAT_COUNT_OF(rows); r++) {
        write_row("large.data", rows[r], MANY);
    }
    write_model("large", MANY, "large.data", "bias.data");
    path_of("large.onnx", path);
    (void)snprintf(yaml, sizeof(yaml), "limits: {model_memory: 64MiB}\nmodels: [{name: configured, path: %s}]\n", path);
    leatd_end(&leatd, SIGTERM);
    leatd_start(&leatd, yaml);
    LEAT(0, "and 2.6 GiB in files", "model", "add", "large", path);
    for (size_t r = 0; r < LEAT_COUNT_OF(rows); r++) {
        expect_row("configured", rows[r], LEAT_OUTCOME_OK);
        expect_row("large", rows[r], LEAT_OUTCOME_OK);
    }
    const unsigned long kib = resident_kib();
    (void)printf("with two files of 2.6 GiB mapped, leatd had at most %lu KiB in memory\n", kib);
    EXPECT(kib < RESIDENT_KIB);
    LEAT(0, "removed large", "model", "remove", "large");
    EXPECT(count_kept(NULL) == 3);
}

/* Where it lies, and where the daemon keeps it. */
static void
test_truncated(void)
{
    char path[256];

    path_of("large.data", path);
    EXPECT(truncate(path, 4096) == 0);
    expect_row("configured", 0, LEAT_OUTCOME_OK); /* what is still there */
    expect_row("configured", MANY - 1, LEAT_OUTCOME_FAILED);
    expect_row("configured", 0, LEAT_OUTCOME_FAILED);
    expect_row("table", ROWS - 1, LEAT_OUTCOME_OK);
    EXPECT(count_kept(path) == 3 && truncate(path, 4096) == 0);
    expect_row("table", ROWS - 1, LEAT_OUTCOME_FAILED);
    LEAT(0, "configured", "model", "list");

    /* It can be removed; the rest can be started again. */
    LEAT(0, "removed table", "model", "remove", "table");
    EXPECT(count_kept(NULL) == 0);
    leatd_end(&leatd, SIGTERM);
    EXPECT(leatd_logged(&leatd, "file 'large.data' of weights was cut short while it was in use"));
    EXPECT(leatd_logged(&leatd, "if it is that of model 'configured', batches of it fail"));
}

/* What is not a page of weights ends it as ever; where it is ignored, it is so more than once. */
static void
test_other_bus_errors(void)
{
    leatd_start(&leatd, "");
    leatd_end(&leatd, SIGBUS);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which never ignore it */
    EXPECT(signal(SIGBUS, SIG_IGN) != SIG_ERR);
    leatd_start(&leatd, "");
    for (int turn = 0; turn < 3; turn++) {
        leatd_signal(&leatd, SIGBUS);
        LEAT(0, "", "model", "list");
    }
    leatd_end(&leatd, SIGTERM);
    EXPECT(signal(SIGBUS, SIG_DFL) != SIG_ERR);
#endif
}

int
main(void)
{
    leat_test_init();
    leatd_init(&leatd);
    leatd_start(&leatd, "limits: {model_memory: 64MiB}\n");
    test_add();
    test_refused();
    test_requests();
    test_zoo();
    test_large();
    test_truncated();
    test_other_bus_errors();
    leatd_fini(&leatd);
    return 0;
}
