/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Weights in other files give the answers of weights inside; large ones are mapped, not copied; no file leads out of the
 *          model's folder, is longer or shorter than it says, or takes the process down when it shrinks later: then
 *          batches of the model fail, wherever in it the weights are.
 */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/mapping.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

#define CHANNELS 128             /* their squares are weights that are mapped */
#define COLUMNS  64
#define ROWS     1024            /* 256 KiB: mapped */
#define ROW      (COLUMNS * 4)
#define MANY     INT64_C(11000000) /* rows of 256 bytes: 2.6 GiB */
#define RESIDENT ((size_t)64 << 20)


static char folder[64];
static int folder_fd;
static const struct leat_backend *backends[2];
static size_t backend_count;

static void
write_file(const char *name, const void *bytes, size_t count, off_t offset, off_t size)
{
    const int fd = openat(folder_fd, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT(fd >= 0);
    EXPECT(pwrite(fd, bytes, count, offset) == (ssize_t)count);
    EXPECT(size == 0 || ftruncate(fd, size) == 0);
    EXPECT(close(fd) == 0);
}

static void
refer(struct builder *b, Onnx__TensorProto *tensor, const char *key, const char *value)
{
    Onnx__StringStringEntryProto *entry = builder_alloc(b, sizeof(*entry));
    if (tensor->external_data == NULL) {
        tensor->external_data = builder_alloc(b, 4 * sizeof(*tensor->external_data));
        tensor->has_data_location = 1;
        tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
        tensor->has_raw_data = 0;
        tensor->raw_data.len = 0;
    }
    onnx__string_string_entry_proto__init(entry);
    entry->key = strcpy(builder_alloc(b, strlen(key)), key);
    entry->value = strcpy(builder_alloc(b, strlen(value)), value);
    tensor->external_data[tensor->n_external_data++] = entry;
}

/* y = table[i] + bias; the dims of `table` are set after it was made, so that it has no bytes of its own. */
static void
build(struct builder *b, int64_t rows, Onnx__TensorProto **ret_table, Onnx__TensorProto **ret_bias)
{
    builder_init(b, 13);
    (void)builder_input(b, "i", ONNX_I64, DIMS(1));
    *ret_table = builder_constant(b, "table", ONNX_F32, NULL, DIMS(0, COLUMNS));
    (*ret_table)->dims[0] = rows;
    *ret_bias = builder_constant(b, "bias", ONNX_F32, NULL, DIMS(COLUMNS));
    (void)builder_node(b, "Gather", "table i", "row");
    (void)builder_node(b, "Add", "row bias", "y");
    builder_output(b, "y");
}

static enum leat_status
import(struct builder *b, int from_fd, uint64_t memory_bytes_max, struct leat_graph **ret_graph)
{
    struct leat_onnx_source source = {.folder_fd = from_fd, .memory_bytes_max = memory_bytes_max};
    source.bytes = builder_pack(b, &source.byte_count);
    return leat_onnx_import_from(&source, ret_graph);
}

static void
expect_row(const struct loaded *loaded, int64_t index, float first, enum leat_status status)
{
    const void *inputs[1] = {&index};
    float y[COLUMNS];
    void *outputs[1] = {y};

    const enum leat_status got = run(loaded, inputs, outputs);
    EXPECT(got == status);
    for (int c = 0; c < COLUMNS && got == LEAT_OK; c++) {
        EXPECT(y[c] == first + (float)c + 100 * (float)c);
    }
}

/* Row r is r * 1000 + c; the bias is 100 * c. */
static void
write_weights(const char *name, off_t table_at, off_t bias_at)
{
    static float table[ROWS][COLUMNS];
    float bias[COLUMNS];

    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++) {
            table[r][c] = (float)(r * 1000 + c);
        }
    }
    for (int c = 0; c < COLUMNS; c++) {
        bias[c] = 100 * (float)c;
    }
    write_file(name, table, sizeof(table), table_at, 0);
    write_file(name, bias, sizeof(bias), bias_at, 0);
}

static uint32_t
count_mapped(const struct leat_graph *graph)
{
    uint32_t mapped = 0;

    for (uint32_t v = 0; v < graph->value_count; v++) {
        mapped += graph->values[v].mapping != NULL;
    }
    return mapped;
}

/* A table whose elements are aligned is mapped; else, and when it is small, copied. */
static void
test_answers(void)
{
    static const char *const offsets[] = {"0", "4096", "4100", "4098", "4097"};
    for (size_t f = 0; f < LEAT_COUNT_OF(offsets); f++) {
        const off_t at = (off_t)strtoul(offsets[f], NULL, 10);
        Onnx__TensorProto *table, *bias;
        struct builder b;
        struct leat_graph *graph = NULL;
        char behind[32];

        EXPECT(mkdirat(folder_fd, "sub", 0700) == 0 || f > 0);
        write_weights("sub/weights", at, at + ROWS * ROW);
        (void)snprintf(behind, sizeof(behind), "%lld", (long long)at + ROWS * ROW);
        build(&b, ROWS, &table, &bias);
        refer(&b, table, "location", "sub/weights");
        refer(&b, table, "offset", offsets[f]);
        refer(&b, bias, "location", "sub/weights");
        refer(&b, bias, "offset", behind);
        refer(&b, bias, "length", "256");
        EXPECT(import(&b, folder_fd, 0, &graph) == LEAT_OK);
        builder_fini(&b);
        EXPECT(count_mapped(graph) == (at % 4 == 0));
        EXPECT(leat_graph_check(graph) == LEAT_OK);
        for (size_t i = 0; i < backend_count; i++) {
            struct loaded loaded;
            load(backends[i], graph, &loaded);
            /* Beside the reference functions, nobody makes a copy of it. */
            EXPECT(i == 0 || at % 4 != 0 || backends[i]->model_bytes(loaded.model) < ROWS * ROW);
            expect_row(&loaded, 0, 0, LEAT_OK);
            expect_row(&loaded, -1, (ROWS - 1) * 1000, LEAT_OK);
            expect_row(&loaded, ROWS, 0, LEAT_ERR_SHAPE);
            unload(&loaded);
        }
        leat_graph_destroy(graph);
    }
}

/* ---- Who reads what is not aligned ------------------------------------------------------------------ */

struct reader {
    const char *what;
    bool stays_aligned_by_4, stays_odd; /* w stays in its file where its elements are aligned, and where not even they are */
};

static const struct reader readers[] = {
    {"products", true, true},
    {"a look-up, and a product with the same", true, false},
    {"a product with it on the left", false, false},
    {"a sum, and a look-up", false, false},
    {"a product, and it is an answer itself", false, false},
};

/* Of i: i64[2], x: f32[2][128] and w: f32[128][128] at an offset. */
static struct leat_graph *
build_reader(size_t reader, const char *offset)
{
    struct leat_graph *graph = NULL;
    struct builder b;

    builder_init(&b, 13);
    Onnx__TensorProto *w = builder_constant(&b, "w", ONNX_F32, NULL, DIMS(0, CHANNELS));
    w->dims[0] = CHANNELS;
    refer(&b, w, "location", "readers");
    refer(&b, w, "offset", offset);
    (void)builder_input(&b, "i", ONNX_I64, DIMS(2));
    (void)builder_input(&b, "x", ONNX_F32, DIMS(2, CHANNELS));
    switch (reader) {
    case 0:
        (void)builder_node(&b, "MatMul", "x w", "m");
        (void)builder_node(&b, "Gemm", "m w", "y");
        break;
    case 1:
        (void)builder_node(&b, "Gather", "w i", "rows");
        (void)builder_node(&b, "MatMul", "rows w", "m");
        (void)builder_node(&b, "Add", "m x", "y");
        break;
    case 2:
        (void)builder_node(&b, "Transpose", "x", "t");
        (void)builder_node(&b, "MatMul", "w t", "y");
        break;
    case 3:
        (void)builder_node(&b, "Gather", "w i", "rows");
        (void)builder_node(&b, "Sum", "w", "s");
        (void)builder_node(&b, "MatMul", "rows s", "y");
        break;
    default:
        (void)builder_node(&b, "MatMul", "x w", "y");
        builder_output(&b, "w");
        break;
    }
    builder_output(&b, "y");
    const enum leat_status status = import(&b, folder_fd, 0, &graph);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(status == LEAT_OK);
    builder_fini(&b);
    return graph;
}

/* The last output, to be freed. */
static float *
answer_of_reader(const struct leat_backend *backend, const struct leat_graph *graph, size_t *ret_bytes)
{
    const int64_t i[2] = {CHANNELS - 1, -CHANNELS};
    float x[2][CHANNELS];
    void *outputs[2];
    struct loaded loaded;

    for (int c = 0; c < 2 * CHANNELS; c++) {
        x[c / CHANNELS][c % CHANNELS] = (float)(c % 7) / 1024;
    }
    load(backend, graph, &loaded);
    for (uint32_t o = 0; o < graph->output_count; o++) {
        *ret_bytes = loaded.infos[graph->input_count + o].item_bytes;
        outputs[o] = malloc(*ret_bytes);
        EXPECT(outputs[o] != NULL);
    }
    EXPECT(run(&loaded, (const void *[]){i, x}, outputs) == LEAT_OK);
    unload(&loaded);
    for (uint32_t o = 0; o + 1 < graph->output_count; o++) {
        free(outputs[o]);
    }
    return outputs[graph->output_count - 1];
}

/* Wherever weights lie, and before the passes and after, answers are the same; they stay there where their readers do not mind. */
static void
test_readers(void)
{
    static const char *const offsets[] = {"0", "4100", "4098", "4097"};

    for (size_t r = 0; r < LEAT_COUNT_OF(readers); r++) {
        for (size_t b = 0; b < 2 * backend_count; b++) {
            float *wanted = NULL;
            for (size_t f = 0; f < LEAT_COUNT_OF(offsets); f++) {
                const off_t at = (off_t)strtoul(offsets[f], NULL, 10);
                size_t bytes = 0;
                write_weights("readers", at, at + ROWS * ROW);
                struct leat_graph *graph = build_reader(r, offsets[f]);
                const bool stays = at == 0 || (at % 4 == 0 ? readers[r].stays_aligned_by_4 : readers[r].stays_odd);
                if (count_mapped(graph) != stays) {
                    (void)fprintf(stderr, "%s, from %s on\n", readers[r].what, offsets[f]);
                }
                EXPECT(count_mapped(graph) == stays && leat_graph_check(graph) == LEAT_OK);
                if (b % 2 == 1) {
                    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
                }
                float *y = answer_of_reader(backends[b / 2], graph, &bytes);
                EXPECT(wanted == NULL || memcmp(y, wanted, bytes) == 0);
                if (wanted == NULL) {
                    wanted = y;
                } else {
                    free(y);
                }
                leat_graph_destroy(graph);
            }
            free(wanted);
        }
    }
}

static void
expect_refused(const char *location, const char *offset, const char *length, enum leat_status status, const char *text)
{
    Onnx__TensorProto *table, *bias;
    struct builder b;
    struct leat_graph *graph = NULL;

    build(&b, ROWS, &table, &bias);
    refer(&b, table, "location", location);
    refer(&b, table, "offset", offset);
    if (length != NULL) {
        refer(&b, table, "length", length);
    }
    const enum leat_status got = import(&b, folder_fd, 0, &graph);
    if (got != status || strstr(leat_error_text(), text) == NULL) {
        (void)fprintf(stderr, "'%s' from %s: status %d, text \"%s\"; wanted %d, \"%s\"\n", location, offset, (int)got,
                      leat_error_text(), (int)status, text);
    }
    EXPECT(got == status && strstr(leat_error_text(), text) != NULL && graph == NULL);
    builder_fini(&b);
}

static void
test_refused(void)
{
    Onnx__TensorProto *table, *bias;
    struct builder b;
    struct leat_graph *graph = NULL;

    write_weights("weights", 0, ROWS * ROW);
    EXPECT(symlinkat("weights", folder_fd, "link") == 0 && symlinkat(".", folder_fd, "here") == 0);
    EXPECT(mkfifoat(folder_fd, "pipe", 0600) == 0);
    static const char *const out[] = {"/etc/passwd", "../weights", "sub/../../x", "..", "", "link", "here/weights", "sub//weights"};
    for (size_t i = 0; i < LEAT_COUNT_OF(out); i++) {
        expect_refused(out[i], "0", NULL, LEAT_ERR_INVALID, "tensor 'table': cannot open");
    }
    expect_refused("sub", "0", NULL, LEAT_ERR_INVALID, "is not a regular file");
    expect_refused("pipe", "0", NULL, LEAT_ERR_INVALID, "is not a regular file");
    expect_refused("missing", "0", NULL, LEAT_ERR_INVALID, "No such file");
    expect_refused("weights", "-1", NULL, LEAT_ERR_PROTO, "is no number");
    expect_refused("weights", "", NULL, LEAT_ERR_PROTO, "is no number");
    expect_refused("weights", "18446744073709551616", NULL, LEAT_ERR_PROTO, "is no number");
    expect_refused("weights", "18446744073709551615", NULL, LEAT_ERR_PROTO, "tensor 'table' needs 262144 bytes");
    expect_refused("weights", "257", NULL, LEAT_ERR_PROTO, "tensor 'table' needs 262144 bytes");
    expect_refused("weights", "0", "262143", LEAT_ERR_PROTO, "tensor 'table' needs 262144 bytes");

    build(&b, ROWS, &table, &bias);
    refer(&b, table, "offset", "0");
    EXPECT(import(&b, folder_fd, 0, &graph) == LEAT_ERR_PROTO && strstr(leat_error_text(), "have no location") != NULL);
    builder_fini(&b);
    build(&b, ROWS, &table, &bias);
    refer(&b, table, "location", "weights");
    EXPECT(import(&b, -1, 0, &graph) == LEAT_ERR_UNSUPPORTED && strstr(leat_error_text(), "external data") != NULL);
    builder_fini(&b);
}

/* What is copied counts against the model's limit, what is mapped does not. */
static void
test_limit(void)
{
    static const char *const offsets[] = {"0", "2", "4"};
    for (int f = 0; f < 3; f++) {
        Onnx__TensorProto *table, *bias;
        struct builder b;
        struct leat_graph *graph = NULL;
        write_weights("weights", 2 * f, ROWS * ROW + 64);
        build(&b, ROWS, &table, &bias);
        refer(&b, table, "location", "weights");
        refer(&b, table, "offset", offsets[f]);
        const enum leat_status status = import(&b, folder_fd, 100000, &graph);
        EXPECT(status == (f != 1 ? LEAT_OK : LEAT_ERR_LIMIT));
        EXPECT(f != 1 || strstr(leat_error_text(), "'table' the model's constants take 262400 bytes, its limit is 100000") != NULL);
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
}

/* Files that somebody else opens: all that a model names, in graphs inside and attributes too, each once. */
static void
test_open_files(void)
{
    struct leat_onnx_file files[LEAT_ONNX_FILES_MAX];
    Onnx__TensorProto *table, *bias;
    struct builder b, inner;
    struct leat_graph *graph = NULL;
    uint32_t count = 99;
    size_t size;

    EXPECT(leat_onnx_open_files("no ONNX", 7, folder_fd, files, &count) == LEAT_OK && count == 0);
    write_weights("weights", 0, ROWS * ROW);
    build(&b, ROWS, &table, &bias);
    refer(&b, table, "location", "weights");
    refer(&b, bias, "location", "weights");
    refer(&b, bias, "offset", "262144");
    const void *bytes = builder_pack(&b, &size);
    EXPECT(leat_onnx_open_files(bytes, size, folder_fd, files, &count) == LEAT_OK && count == 1);
    EXPECT(strcmp(files[0].name, "weights") == 0);
    const struct leat_onnx_source source = {
        .bytes = bytes, .byte_count = size, .folder_fd = -1, .files = files, .file_count = count};
    EXPECT(leat_onnx_import_from(&source, &graph) == LEAT_OK);
    leat_onnx_close_files(files, count); /* mappings stay */
    for (size_t i = 0; i < backend_count; i++) {
        struct loaded loaded;
        load(backends[i], graph, &loaded);
        expect_row(&loaded, 7, 7000, LEAT_OK);
        unload(&loaded);
    }
    leat_graph_destroy(graph);

    const struct leat_onnx_file other = {.name = (char[]){"other"}, .fd = -1};
    const struct leat_onnx_source without = {
        .bytes = bytes, .byte_count = size, .folder_fd = -1, .files = &other, .file_count = 1};
    EXPECT(leat_onnx_import_from(&without, &graph) == LEAT_ERR_NOT_FOUND);
    EXPECT(strstr(leat_error_text(), "'table': its file 'weights' did not come with the model") != NULL);
    builder_fini(&b);

    builder_init(&inner, 13);
    Onnx__NodeProto *constant = builder_node(&inner, "Constant", "", "c");
    Onnx__AttributeProto *value = builder_int(&inner, constant, "value", 0);
    value->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
    value->t = builder_tensor(&inner, "t", ONNX_F32, NULL, DIMS(0, 3));
    refer(&inner, value->t, "location", "weights");
    builder_output(&inner, "c");
    build(&b, ROWS, &table, &bias);
    refer(&b, table, "location", "sub/weights");
    Onnx__NodeProto *branch = builder_node(&b, "If", "i", "z");
    builder_graph(&b, branch, "then_branch", &inner);
    bytes = builder_pack(&b, &size);
    EXPECT(leat_onnx_open_files(bytes, size, folder_fd, files, &count) == LEAT_OK && count == 2);
    EXPECT(strcmp(files[0].name, "sub/weights") == 0 && strcmp(files[1].name, "weights") == 0);
    leat_onnx_close_files(files, count);
    b.graph.n_node--;
    Onnx__FunctionProto *function = builder_function(&b, "unused", "", "c", &inner);
    bytes = builder_pack(&b, &size);
    EXPECT(leat_onnx_open_files(bytes, size, folder_fd, files, &count) == LEAT_OK && count == 2);
    leat_onnx_close_files(files, count);
    function->n_node = 0; /* a default of an attribute */
    builder_default(&b, function, "value", 0);
    function->attribute_proto[0]->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
    function->attribute_proto[0]->t = value->t;
    bytes = builder_pack(&b, &size);
    EXPECT(leat_onnx_open_files(bytes, size, folder_fd, files, &count) == LEAT_OK && count == 2);
    leat_onnx_close_files(files, count);
    table->external_data[0]->value = (char[]){"../weights"};
    bytes = builder_pack(&b, &size);
    EXPECT(leat_onnx_open_files(bytes, size, folder_fd, files, &count) == LEAT_ERR_INVALID);
    EXPECT(strstr(leat_error_text(), "tensor 'table': ") != NULL && strstr(leat_error_text(), "leads out of it") != NULL);
    builder_fini(&b);
    builder_fini(&inner);
}

static size_t
resident_bytes(void)
{
    unsigned long total, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    EXPECT(file != NULL && fscanf(file, "%lu %lu", &total, &resident) == 2 && fclose(file) == 0);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* A file of more than 2 GiB with three rows in it. */
static void
test_large(void)
{
    static const int64_t rows[] = {0, MANY / 2, MANY - 1};
    Onnx__TensorProto *table, *bias;
    struct builder b;
    struct leat_graph *graph = NULL;
    float row[COLUMNS];

    _Static_assert(MANY * ROW > INT64_C(2) << 30, "larger than 2 GiB");
    for (size_t r = 0; r < LEAT_COUNT_OF(rows); r++) {
        for (int c = 0; c < COLUMNS; c++) {
            row[c] = 1 + (float)r * 1000 + 101 * (float)c;
        }
        write_file("large", row, sizeof(row), rows[r] * ROW, MANY * ROW);
    }
    const size_t before = resident_bytes();
    build(&b, MANY, &table, &bias);
    refer(&b, table, "location", "large");
    EXPECT(import(&b, folder_fd, RESIDENT, &graph) == LEAT_OK);
    for (size_t i = 0; i < backend_count; i++) {
        struct loaded loaded;
        load(backends[i], graph, &loaded);
        for (size_t r = 0; r < LEAT_COUNT_OF(rows); r++) {
            expect_row(&loaded, rows[r], 1 + (float)r * 1000, LEAT_OK);
        }
        EXPECT(resident_bytes() - before < RESIDENT);
        unload(&loaded);
    }
    leat_graph_destroy(graph);
    builder_fini(&b);
    EXPECT(unlinkat(folder_fd, "large", 0) == 0);
}

static void
on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (!leat_mapping_repair(info->si_addr)) {
        (void)signal(number, SIG_DFL);
    }
}

static void
cut(const char *name)
{
    const int fd = openat(folder_fd, name, O_RDWR | O_CLOEXEC);
    EXPECT(fd >= 0 && ftruncate(fd, 4096) == 0 && close(fd) == 0);
}

/* As build(), but the table is in both branches of an If that i decides. */
static void
build_inside(struct builder *b, struct builder branches[2], const char *name, const char *offset, Onnx__TensorProto **ret_bias)
{
    static const char *const names[2] = {"then_branch", "else_branch"};

    builder_init(b, 13);
    (void)builder_input(b, "i", ONNX_I64, DIMS(1));
    *ret_bias = builder_constant(b, "bias", ONNX_F32, NULL, DIMS(COLUMNS));
    (void)builder_int(b, builder_node(b, "Cast", "i", "condition"), "to", ONNX_BOOL);
    Onnx__NodeProto *node = builder_node(b, "If", "condition", "row");
    for (int k = 0; k < 2; k++) {
        builder_init(&branches[k], 13);
        Onnx__TensorProto *table = builder_constant(&branches[k], "table", ONNX_F32, NULL, DIMS(0, COLUMNS));
        table->dims[0] = ROWS;
        refer(&branches[k], table, "location", name);
        refer(&branches[k], table, "offset", offset);
        (void)builder_node(&branches[k], "Gather", "table i", "looked_up");
        builder_output(&branches[k], "looked_up");
        builder_graph(b, node, names[k], &branches[k]);
    }
    (void)builder_node(b, "Add", "row bias", "y");
    builder_output(b, "y");
}

/* Graphs inside nodes read what is aligned for all, or a copy. */
static void
test_inside(void)
{
    static const char *const offsets[] = {"0", "4"};

    for (size_t f = 0; f < LEAT_COUNT_OF(offsets); f++) {
        const off_t at = (off_t)(4 * f);
        Onnx__TensorProto *bias;
        struct builder b, branches[2];
        struct leat_graph *graph = NULL;
        uint32_t mapped = 0;

        write_weights("inside", at, at + ROWS * ROW);
        build_inside(&b, branches, "inside", offsets[f], &bias);
        refer(&b, bias, "location", "inside");
        refer(&b, bias, "offset", f == 0 ? "262144" : "262148");
        EXPECT(import(&b, folder_fd, 0, &graph) == LEAT_OK);
        for (const struct leat_graph *inner = leat_graph_inner(graph, NULL); inner != NULL; inner = leat_graph_inner(graph, inner)) {
            mapped += count_mapped(inner);
        }
        EXPECT(mapped == (f == 0 ? 2 : 0));
        for (size_t i = 0; i < backend_count; i++) {
            struct loaded loaded;
            load(backends[i], graph, &loaded);
            expect_row(&loaded, 5, 5000, LEAT_OK);
            unload(&loaded);
        }
        leat_graph_destroy(graph);
        builder_fini(&b);
        builder_fini(&branches[0]);
        builder_fini(&branches[1]);
    }
}

/* A file that shrinks under a loaded model fails its batches, and no other model's. */
static void
test_truncated(bool inside, off_t at)
{
    const char *offset = at == 0 ? "0" : "4", *behind = at == 0 ? "262144" : "262148";
    Onnx__TensorProto *table, *bias;
    struct builder b[2], branches[2][2];
    struct leat_graph *graphs[2] = {NULL, NULL};
    static const char *const names[] = {"shrinks", "stays"};

    for (size_t i = at == 0 ? 0 : 1; i < backend_count; i++) { /* the reference functions have a copy of what is not aligned */
        struct loaded loaded[2];
        for (int m = 0; m < 2; m++) {
            write_weights(names[m], at, at + ROWS * ROW);
            if (inside) {
                build_inside(&b[m], branches[m], names[m], offset, &bias);
            } else {
                build(&b[m], ROWS, &table, &bias);
                refer(&b[m], table, "location", names[m]);
                refer(&b[m], table, "offset", offset);
            }
            refer(&b[m], bias, "location", names[m]);
            refer(&b[m], bias, "offset", behind);
            EXPECT(import(&b[m], folder_fd, 0, &graphs[m]) == LEAT_OK);
            load(backends[i], graphs[m], &loaded[m]);
        }
        expect_row(&loaded[0], 5, 5000, LEAT_OK);
        cut("shrinks");
        expect_row(&loaded[0], 5, 5000, LEAT_OK); /* what is still there */
        expect_row(&loaded[0], ROWS - 1, 0, LEAT_ERR_SYS);
        expect_row(&loaded[0], 5, 5000, LEAT_ERR_SYS);
        expect_row(&loaded[1], ROWS - 1, (ROWS - 1) * 1000, LEAT_OK);
        for (int m = 0; m < 2; m++) {
            unload(&loaded[m]);
            leat_graph_destroy(graphs[m]);
            builder_fini(&b[m]);
            for (int k = 0; k < 2 && inside; k++) {
                builder_fini(&branches[m][k]);
            }
        }
    }
}

/* Weights that a pass reads once, and makes others of: the file is cut short before. Where others read them too, they stay there. */
static void
test_truncated_before_load(bool others)
{
    static const float ones[CHANNELS] = {1};
    struct builder b;
    struct leat_graph *graph = NULL;

    write_weights("shrinks", 0, ROWS * ROW);
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(1, CHANNELS, 2, 2));
    Onnx__TensorProto *w = builder_constant(&b, "w", ONNX_F32, NULL, DIMS(0, CHANNELS, 1, 1));
    w->dims[0] = CHANNELS;
    refer(&b, w, "location", "shrinks");
    (void)builder_node(&b, "Conv", "x w", "z");
    (void)builder_constant(&b, "ones", ONNX_F32, ones, DIMS(CHANNELS));
    (void)builder_node(&b, "BatchNormalization", "z ones ones ones ones", "y");
    if (others) {
        (void)builder_node(&b, "Conv", "y w", "v");
        (void)builder_node(&b, "BatchNormalization", "v ones ones ones ones", "u");
    }
    builder_output(&b, others ? "u" : "y");
    EXPECT(import(&b, folder_fd, 0, &graph) == LEAT_OK);
    cut("shrinks");
    EXPECT(!leat_graph_is_damaged(graph));
    const enum leat_status status = leat_graph_optimise(graph, UINT64_MAX);
    if (!others) {
        EXPECT(status == LEAT_ERR_PROTO && strstr(leat_error_text(), "shorter") != NULL);
    }
    for (size_t i = 0; i < backend_count && others; i++) {
        const struct leat_tensor_info infos[2] = {info_of(&graph->values[graph->inputs[0]]),
                                                  info_of(&graph->values[graph->outputs[0]])};
        const struct leat_model_source source = {.graph = graph, .infos = infos, .input_count = 1, .output_count = 1};
        struct leat_model *model = NULL;
        EXPECT(status == LEAT_OK && graph->node_count == 2 && leat_graph_is_damaged(graph));
        EXPECT(backends[i]->model_load(&source, &model) == LEAT_ERR_PROTO && model == NULL);
        EXPECT(strstr(leat_error_text(), "a file of weights has become shorter") != NULL);
    }
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* Many convolutions: their weights are scaled where they are read to, which adds nothing that folding would be limited by. */
static void
test_scaled_in_place(void)
{
    enum { CONVS = 12, WIDE = 1024 };
    static float ones[WIDE];
    char inputs[64], weights[16], result[16];
    struct builder b;
    struct leat_graph *graph = NULL;

    for (int c = 0; c < WIDE; c++) {
        ones[c] = 1;
    }
    write_file("wide", ones, sizeof(ones), 0, WIDE * sizeof(ones));
    builder_init(&b, 13);
    (void)builder_input(&b, "y0", ONNX_F32, DIMS(1, WIDE, 2, 2));
    (void)builder_constant(&b, "ones", ONNX_F32, ones, DIMS(WIDE));
    for (int n = 0; n < CONVS; n++) {
        (void)snprintf(weights, sizeof(weights), "w%d", n);
        Onnx__TensorProto *w = builder_constant(&b, weights, ONNX_F32, NULL, DIMS(0, WIDE, 1, 1));
        w->dims[0] = WIDE;
        refer(&b, w, "location", "wide");
        (void)snprintf(inputs, sizeof(inputs), "y%d w%d", n, n);
        (void)snprintf(result, sizeof(result), "z%d", n);
        (void)builder_node(&b, "Conv", inputs, result);
        (void)snprintf(inputs, sizeof(inputs), "z%d ones ones ones ones", n);
        (void)snprintf(result, sizeof(result), "y%d", n + 1);
        (void)builder_node(&b, "BatchNormalization", inputs, result);
    }
    builder_output(&b, result);
    EXPECT(import(&b, folder_fd, 0, &graph) == LEAT_OK && count_mapped(graph) == CONVS);
    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK && graph->node_count == CONVS);
    leat_graph_destroy(graph);
    builder_fini(&b);
    EXPECT(unlinkat(folder_fd, "wide", 0) == 0);
}

/* Values may be parts of the same bytes, in the same shape or another: weights in a kernel's layout are of one of them alone. */
static void
test_overlapping(void)
{
    enum { WIDE = 4 * CHANNELS };
    static const int64_t shapes[][2] = {{CHANNELS, CHANNELS}, {CHANNELS, WIDE}, {2 * CHANNELS, CHANNELS / 2}, {WIDE, CHANNELS}};
    static float weights[CHANNELS * WIDE], x[WIDE], y[2][LEAT_COUNT_OF(shapes)][WIDE];
    const void *const inputs[LEAT_COUNT_OF(shapes)] = {x, x, x, x};

    for (size_t i = 0; i < LEAT_COUNT_OF(weights); i++) {
        weights[i] = (float)(i % 251) / 251 - 0.5f;
        x[i % WIDE] = (float)(i % 17) / 17;
    }
    for (int offset = 0; offset <= 1; offset++) { /* mapped, or copied */
        write_file("overlapping", weights, sizeof(weights), offset, 0);
        for (size_t k = 0; k < backend_count; k++) {
            void *outputs[LEAT_COUNT_OF(shapes)];
            struct leat_graph *graph;
            struct loaded loaded;
            struct builder b;
            builder_init(&b, 13);
            for (size_t i = 0; i < LEAT_COUNT_OF(shapes); i++) {
                char name[8], list[16], result[8];
                (void)snprintf(name, sizeof(name), "x%zu", i);
                (void)builder_input(&b, name, ONNX_F32, DIMS(1, shapes[i][0]));
                (void)snprintf(name, sizeof(name), "w%zu", i);
                Onnx__TensorProto *w = builder_constant(&b, name, ONNX_F32, NULL, DIMS(0, shapes[i][1]));
                w->dims[0] = shapes[i][0];
                refer(&b, w, "location", "overlapping");
                refer(&b, w, "offset", offset == 0 ? "0" : "1");
                (void)snprintf(list, sizeof(list), "x%zu w%zu", i, i);
                (void)snprintf(result, sizeof(result), "y%zu", i);
                (void)builder_node(&b, "MatMul", list, result);
                builder_output(&b, result);
                outputs[i] = y[k][i];
            }
            EXPECT(import(&b, folder_fd, 0, &graph) == LEAT_OK);
            builder_fini(&b);
            load(backends[k], graph, &loaded);
            EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
            unload(&loaded);
            leat_graph_destroy(graph);
        }
        for (size_t i = 0; i < LEAT_COUNT_OF(shapes) && backend_count > 1; i++) {
            for (int64_t c = 0; c < shapes[i][1]; c++) {
                EXPECT(fabsf(y[0][i][c] - y[1][i][c]) <= 1e-4f * (1 + fabsf(y[0][i][c])));
            }
        }
    }
    EXPECT(unlinkat(folder_fd, "overlapping", 0) == 0);
}

int
main(void)
{
    const struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};

    leat_test_init();
    const char *base = getenv("TMPDIR");
    (void)snprintf(folder, sizeof(folder), "%.40s/leat-XXXXXX", base != NULL ? base : "/tmp");
    EXPECT(mkdtemp(folder) != NULL);
    folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    EXPECT(folder_fd >= 0);
    backends[backend_count++] = &leat_backend_reference;
    if (leat_backend_find("cpu") != NULL) {
        backends[backend_count++] = leat_backend_find("cpu");
    }
    test_answers();
    test_readers();
    test_overlapping();
    test_refused();
    test_limit();
    test_open_files();
    test_large();
    test_scaled_in_place();
    EXPECT(sigaction(SIGBUS, &action, NULL) == 0);
    test_inside();
    test_truncated(false, 0);
    test_truncated(false, 4);
    test_truncated(true, 0);
    test_truncated_before_load(true);
    test_truncated_before_load(false);
    static const char *const left[] = {"sub/weights", "weights", "link", "here", "pipe",
                                       "readers",     "inside",  "shrinks", "stays"};
    for (size_t i = 0; i < LEAT_COUNT_OF(left); i++) {
        EXPECT(unlinkat(folder_fd, left[i], 0) == 0);
    }
    EXPECT(unlinkat(folder_fd, "sub", AT_REMOVEDIR) == 0 && close(folder_fd) == 0 && rmdir(folder) == 0);
    return 0;
}
