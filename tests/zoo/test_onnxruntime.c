/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Models answer through the plug-in onnxruntime as through the backend reference, in batches of several queries and on
 *          teams of one and two; one with an operator that leat does not have is described and run; indices out of range fail
 *          their batch alone; what has no batches, or is no model, says so. Its threads are on the cores of the team's helpers
 *          and sleep when nothing runs.
 * Method   argv[1] is the plug-in, argv[2] a libonnxruntime.so, or what stands for "where the loader finds it". Networks of
 *          leat-zoo at test size, at nominal lengths. Skipped, with the reason, where there is no such library, or it is not to
 *          be trusted.
 */
#include <dirent.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/graph.h"
#include "kernels/team.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"
#include "tests/zoo/newer_forms.h"
#include "tools/zoo/zoo.h"

enum { ITEMS = 3, PLAN_ITEMS = 4 };
enum { THEIR_OPSET_MAX = 22 }; /* which all that leat is built with read */

/* Of the largest value of an output, and of the size of a kind of what is said of boxes. */
static const double element_close = 1e-4, column_close = 5e-4;

static const struct leat_backend *ort;

static void *
aligned(size_t bytes)
{
    void *block = aligned_alloc(64, (size_t)leat_round_up(bytes + 1, 64));
    EXPECT(block != NULL);
    return block;
}

/* A model on one backend, planned for teams of one and two. */
struct loaded {
    const struct leat_backend *backend;
    const struct leat_model_source *source;
    struct leat_model *model;
    struct leat_plan *plan;
    void *scratch;
};

static void
load(struct loaded *loaded, const struct leat_backend *backend, const struct leat_model_source *source)
{
    static const uint32_t sizes[] = {2, 1};
    const struct leat_plan_options options = {.items = PLAN_ITEMS, .team_sizes = sizes, .team_size_count = 2};

    *loaded = (struct loaded){.backend = backend, .source = source};
    const enum leat_status status = backend->model_load(source, &loaded->model);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s: %s\n", backend->name, leat_error_text());
    }
    EXPECT(status == LEAT_OK);
    EXPECT(backend->plan_build(loaded->model, &options, &loaded->plan) == LEAT_OK);
    EXPECT(backend->model_bytes(loaded->model) > 0);
    loaded->scratch = aligned(backend->plan_scratch_bytes(loaded->plan));
}

static void
unload(struct loaded *loaded)
{
    loaded->backend->plan_destroy(loaded->plan);
    loaded->backend->model_destroy(loaded->model);
    free(loaded->scratch);
}

/* Two queries, of two items and of one. */
static enum leat_status
run(const struct loaded *loaded, unsigned char *const *tensors, struct leat_team *team)
{
    const struct leat_model_source *source = loaded->source;
    struct leat_segment segments[2] = {{.items = 2}, {.items = 1}};

    for (uint32_t t = 0; t < source->input_count + source->output_count; t++) {
        segments[0].tensors[t] = tensors[t];
        segments[1].tensors[t] = tensors[t] + 2 * source->infos[t].item_bytes;
    }
    return loaded->backend->plan_run(loaded->plan, segments, 2, loaded->scratch, team);
}

/* ---- Networks ----------------------------------------------------------------------------------- */

/* What the zoo says of one: the ends of indices, and nominal extents of the inputs' free dimensions but the batch. */
struct noted {
    int64_t ends[LEAT_TENSORS_MAX];
    char names[6][64];
    struct leat_dim_value values[6];
    struct leat_model_dim dims[6]; /* the same */
    uint32_t dim_count;
};

static bool
inputs_have(const struct onnx_summary *summary, uint32_t symbol)
{
    for (uint32_t i = 0; i < summary->input_count; i++) {
        for (uint32_t d = 0; d < summary->inputs[i].rank; d++) {
            if (summary->inputs[i].dims[d] == -1 - (int64_t)symbol) {
                return true;
            }
        }
    }
    return false;
}

static void
note(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    struct noted *noted = context;

    (void)model;
    EXPECT(summary->symbol_count <= LEAT_COUNT_OF(noted->names) && summary->input_count <= LEAT_TENSORS_MAX);
    for (uint32_t i = 0; i < summary->input_count; i++) {
        noted->ends[i] = summary->inputs[i].end;
    }
    for (uint32_t i = 1; i < summary->symbol_count; i++) { /* the first is the batch */
        if (!inputs_have(summary, i)) {
            continue;
        }
        const uint32_t d = noted->dim_count++;
        (void)snprintf(noted->names[d], sizeof(noted->names[d]), "%s", summary->symbols[i].name);
        noted->values[d] = (struct leat_dim_value){noted->names[d], summary->symbols[i].nominal};
        noted->dims[d] = (struct leat_model_dim){noted->names[d], summary->symbols[i].nominal};
    }
}

static void
fill(const struct leat_tensor_info *info, int64_t end, void *data, uint64_t *random)
{
    for (size_t i = 0; i < ITEMS * info->item_bytes / leat_dtype_bytes(info->dtype); i++) {
        const uint64_t bits = leat_test_random(random);
        if (info->dtype == LEAT_DTYPE_I64) {
            ((int64_t *)data)[i] = (int64_t)(bits % (uint64_t)end);
        } else {
            EXPECT(info->dtype == LEAT_DTYPE_F32);
            ((float *)data)[i] = (float)(bits % 4000) / 1000.0f - 2.0f;
        }
    }
}

/* What a detector says of boxes is of many kinds, along the last axis: each counts by itself, by root mean square. */
static void
compare_columns(const struct zoo_model *model, const struct leat_tensor_info *info, const float *expected, const float *got)
{
    const size_t columns = (size_t)info->dims[info->rank - 1], count = ITEMS * info->item_bytes / sizeof(float);

    for (size_t c = 0; c < columns; c++) {
        double apart = 0, size = 0;
        for (size_t i = c; i < count; i += columns) {
            apart += pow((double)got[i] - (double)expected[i], 2);
            size += pow((double)expected[i], 2);
        }
        if (!(apart <= column_close * column_close * size)) {
            (void)fprintf(stderr, "%s: column %zu of output '%s' is %g of its size apart (seed %llu)\n", model->name, c,
                          info->name, sqrt(apart / size), (unsigned long long)leat_test_seed);
            EXPECT(!"answers agree");
        }
    }
}

/* As check_onnxruntime.py: an element that is small for its output is a difference of larger ones, with their rounding. */
static void
compare(const struct zoo_model *model, const struct leat_model_source *source, unsigned char *const *expected,
        unsigned char *const *got)
{
    for (uint32_t t = source->input_count; t < source->input_count + source->output_count; t++) {
        const float *x = (const float *)(const void *)expected[t], *y = (const float *)(const void *)got[t];
        const size_t count = ITEMS * source->infos[t].item_bytes / sizeof(float);
        double largest = 0;
        EXPECT(source->infos[t].dtype == LEAT_DTYPE_F32);
        for (size_t i = 0; i < count; i++) {
            largest = fmax(largest, fabs((double)x[i]));
        }
        for (size_t i = 0; i < count; i++) {
            if (!(fabs((double)x[i] - (double)y[i]) <= element_close * largest)) {
                (void)fprintf(stderr, "%s: output %u [%zu]: %g, not %g, beside %g (seed %llu)\n", model->name, t, i,
                              (double)y[i], (double)x[i], largest, (unsigned long long)leat_test_seed);
                EXPECT(!"answers agree");
            }
        }
        if (strstr(model->name, "yolo") != NULL) {
            compare_columns(model, &source->infos[t], x, y);
        }
    }
}

/* What it says of a file is what leat finds in it. */
static void
check_description(const struct leat_model_source *source)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t inputs, outputs;

    EXPECT(ort->model_describe(source, infos, &inputs, &outputs) == LEAT_OK);
    EXPECT(inputs == source->input_count && outputs == source->output_count);
    for (uint32_t t = 0; t < inputs + outputs; t++) {
        const struct leat_tensor_info *a = &infos[t], *b = &source->infos[t];
        EXPECT(strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->rank == b->rank && a->item_bytes == b->item_bytes);
        EXPECT(memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0);
    }
}

/* Whether leat itself can serve it: else there is nothing to compare with. */
static bool
test_network(const struct zoo_model *model, struct leat_team *team)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.infos = infos};
    unsigned char *expected[LEAT_TENSORS_MAX] = {NULL}, *got[LEAT_TENSORS_MAX] = {NULL};
    struct noted noted = {.dim_count = 0};
    uint64_t random = leat_test_seed;
    struct leat_graph *graph = NULL;
    struct loaded reference, theirs;
    size_t size;
    void *file;

    EXPECT(zoo_write(model, ZOO_SIZE_TEST, leat_test_seed, &file, &size) == LEAT_OK);
    EXPECT(zoo_describe(model, ZOO_SIZE_TEST, note, &noted) == LEAT_OK);
    EXPECT(leat_onnx_import(file, size, &graph) == LEAT_OK && leat_graph_bind(graph, noted.values, noted.dim_count) == LEAT_OK);
    enum leat_status status = leat_graph_signature(graph, infos, &source.input_count, &source.output_count);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s: left out: %s\n", model->name, leat_error_text());
        EXPECT(strstr(leat_error_text(), "depends on tensor contents") != NULL);
        leat_graph_destroy(graph);
        free(file);
        return false;
    }
    source.dims = noted.dims;
    source.dim_count = noted.dim_count;
    source.graph = graph;
    source.file = file;
    source.file_bytes = size;
    check_description(&source);
    load(&reference, &leat_backend_reference, &source);
    source.graph = NULL;
    load(&theirs, ort, &source);
    free(file); /* not needed any more */
    for (uint32_t t = 0; t < source.input_count + source.output_count; t++) {
        expected[t] = aligned(ITEMS * infos[t].item_bytes);
        got[t] = t < source.input_count ? expected[t] : aligned(ITEMS * infos[t].item_bytes);
        if (t < source.input_count) {
            fill(&infos[t], noted.ends[t], expected[t], &random);
        }
    }
    EXPECT(run(&reference, expected, NULL) == LEAT_OK);
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t t = source.input_count; t < source.input_count + source.output_count; t++) {
            memset(got[t], 0xff, ITEMS * infos[t].item_bytes);
        }
        status = run(&theirs, got, round % 2 == 0 ? NULL : team);
        if (status != LEAT_OK) {
            (void)fprintf(stderr, "%s: %s\n", model->name, leat_error_text());
        }
        EXPECT(status == LEAT_OK);
        compare(model, &source, expected, got);
    }
    for (uint32_t t = 0; t < source.input_count + source.output_count; t++) {
        free(expected[t]);
        if (t >= source.input_count) {
            free(got[t]);
        }
    }
    unload(&reference);
    unload(&theirs);
    leat_graph_destroy(graph);
    return true;
}

/* ---- Forms of opsets after 17 --------------------------------------------------------------------- */

static void
test_newer_form(const struct newer_form *form, int64_t opset)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.infos = infos};
    unsigned char *expected[LEAT_TENSORS_MAX] = {NULL}, *got[LEAT_TENSORS_MAX] = {NULL};
    const struct zoo_model name = {.name = form->name};
    uint64_t random = leat_test_seed;
    struct leat_graph *graph = NULL;
    struct loaded reference, theirs;
    struct builder builder;

    newer_form_build(form, opset, &builder);
    EXPECT(builder_import(&builder, &graph) == LEAT_OK);
    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    source.graph = graph;
    source.file = builder_pack(&builder, &source.file_bytes);
    load(&reference, &leat_backend_reference, &source);
    source.graph = NULL;
    load(&theirs, ort, &source);
    for (uint32_t t = 0; t < source.input_count + source.output_count; t++) {
        expected[t] = aligned(ITEMS * infos[t].item_bytes);
        got[t] = t < source.input_count ? expected[t] : aligned(ITEMS * infos[t].item_bytes);
        if (t < source.input_count) {
            fill(&infos[t], 1, expected[t], &random);
        }
    }
    EXPECT(run(&reference, expected, NULL) == LEAT_OK);
    EXPECT(run(&theirs, got, NULL) == LEAT_OK);
    compare(&name, &source, expected, got);
    for (uint32_t t = 0; t < source.input_count + source.output_count; t++) {
        free(expected[t]);
        if (t >= source.input_count) {
            free(got[t]);
        }
    }
    unload(&reference);
    unload(&theirs);
    leat_graph_destroy(graph);
    builder_fini(&builder);
}

/* ---- What leat has not, and what is wrong ------------------------------------------------------- */

/* y = Mish(x), of opset 18 in the file and of nobody's in leat: x tanh(ln(1 + e^x)). */
static void
test_outside_our_operators(void)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.infos = infos};
    struct builder builder;
    struct leat_graph *graph = NULL;
    struct loaded theirs;
    unsigned char *tensors[2];

    builder_init(&builder, 18);
    builder_input(&builder, "x", 1, DIMS(-1, 5));
    builder_node(&builder, "Mish", "x", "y");
    builder_output(&builder, "y");
    source.file = builder_pack(&builder, &source.file_bytes);
    if (leat_onnx_import(source.file, source.file_bytes, &graph) == LEAT_OK) {
        leat_graph_destroy(graph); /* by now it has: still something to run */
    }
    EXPECT(ort->model_describe(&source, infos, &source.input_count, &source.output_count) == LEAT_OK);
    EXPECT(source.input_count == 1 && source.output_count == 1 && infos[1].rank == 2 && infos[1].dims[1] == 5);
    load(&theirs, ort, &source);
    tensors[0] = aligned(ITEMS * infos[0].item_bytes);
    tensors[1] = aligned(ITEMS * infos[1].item_bytes);
    for (int i = 0; i < ITEMS * 5; i++) {
        ((float *)(void *)tensors[0])[i] = (float)i - 7;
    }
    EXPECT(run(&theirs, tensors, NULL) == LEAT_OK);
    for (int i = 0; i < ITEMS * 5; i++) {
        const double x = i - 7;
        EXPECT(fabs((double)((float *)(void *)tensors[1])[i] - x * tanh(log1p(exp(x)))) < 1e-5);
    }
    unload(&theirs);
    free(tensors[0]);
    free(tensors[1]);
    builder_fini(&builder);
}

/* A table of four rows; an index beyond them fails its batch, and the next one is answered. */
static void
test_hostile_indices(void)
{
    static const float table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int64_t wrong[] = {4, -5, INT64_MAX, INT64_MIN, 1 << 20};
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.infos = infos};
    struct builder builder;
    struct loaded theirs;
    unsigned char *tensors[2];

    builder_init(&builder, 13);
    builder_input(&builder, "i", 7, DIMS(-1));
    builder_constant(&builder, "table", 1, table, DIMS(4, 2));
    builder_node(&builder, "Gather", "table i", "y");
    builder_output(&builder, "y");
    source.file = builder_pack(&builder, &source.file_bytes);
    EXPECT(ort->model_describe(&source, infos, &source.input_count, &source.output_count) == LEAT_OK);
    load(&theirs, ort, &source);
    tensors[0] = aligned(ITEMS * infos[0].item_bytes);
    tensors[1] = aligned(ITEMS * infos[1].item_bytes);
    for (size_t w = 0; w < LEAT_COUNT_OF(wrong); w++) {
        int64_t *indices = (int64_t *)(void *)tensors[0];
        indices[0] = 1;
        indices[1] = wrong[w];
        indices[2] = 3;
        EXPECT(run(&theirs, tensors, NULL) == LEAT_ERR_DEVICE);
        indices[1] = 2;
        EXPECT(run(&theirs, tensors, NULL) == LEAT_OK);
        EXPECT(memcmp(tensors[1], table + 2, 6 * sizeof(float)) == 0);
    }
    unload(&theirs);
    free(tensors[0]);
    free(tensors[1]);
    builder_fini(&builder);
}

static void
expect_refused(enum leat_status status, const char *text, const void *file, size_t size)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    const struct leat_model_source source = {.file = file, .file_bytes = size};
    uint32_t inputs = 77, outputs = 77;

    EXPECT(ort->model_describe(&source, infos, &inputs, &outputs) == status && inputs == 77 && outputs == 77);
    if (strstr(leat_error_text(), text) == NULL) {
        (void)fprintf(stderr, "'%s' instead of '%s'\n", leat_error_text(), text);
        EXPECT(!"the reason is given");
    }
}

static void
test_refusals(void)
{
    struct builder builder;
    size_t size;

    expect_refused(LEAT_ERR_DEVICE, "ONNX Runtime: model: ", "no model", 8);
    for (int shape = 0; shape < 2; shape++) {
        static const int64_t dims[2][2] = {{1, 5}, {-1, -2}};
        builder_init(&builder, 13);
        builder_input(&builder, "x", 1, dims[shape], 2);
        builder_node(&builder, "Relu", "x", "y");
        builder_output(&builder, "y");
        const void *file = builder_pack(&builder, &size);
        expect_refused(LEAT_ERR_UNSUPPORTED, shape == 0 ? "input 'x' has no free first dimension" : "input 'x' has a free", file,
                       size);
        builder_fini(&builder);
    }
}

/* ---- Threads ------------------------------------------------------------------------------------ */

/* Calls for each thread of ours that the plug-in started; how many there are. */
static unsigned
each_thread(void (*look)(pid_t tid, const char *task, void *context), void *context)
{
    DIR *tasks = opendir("/proc/self/task");
    unsigned count = 0;

    EXPECT(tasks != NULL);
    for (const struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        char path[300], name[64] = "", state[512] = "";
        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL || fgets(name, sizeof(name), file) == NULL || strcmp(name, "leat-ort\n") != 0) {
            if (file != NULL) {
                (void)fclose(file);
            }
            continue;
        }
        (void)fclose(file);
        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/stat", entry->d_name);
        file = fopen(path, "r");
        EXPECT(file != NULL && fgets(state, sizeof(state), file) != NULL && fclose(file) == 0);
        look((pid_t)atoi(entry->d_name), state, context);
        count++;
    }
    (void)closedir(tasks);
    return count;
}

static void
count_awake(pid_t tid, const char *task, void *context)
{
    (void)tid;
    *(unsigned *)context += strstr(task, ") S ") == NULL;
}

static void
expect_cpu(pid_t tid, const char *task, void *context)
{
    cpu_set_t set;
    (void)task;
    EXPECT(sched_getaffinity(tid, sizeof(set), &set) == 0);
    EXPECT(CPU_COUNT(&set) == 1 && CPU_ISSET((size_t) * (const uint32_t *)context, &set));
}

/* They are where the helper is, move when the team does, and sleep: until then this waits. */
static void
test_threads(void)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.infos = infos};
    cpu_set_t usable;
    uint32_t cpus[2], count = 0;
    struct leat_team *team;
    struct loaded theirs;
    void *file;

    EXPECT(sched_getaffinity(0, sizeof(usable), &usable) == 0);
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE && count < 2; cpu++) {
        if (CPU_ISSET(cpu, &usable)) {
            cpus[count++] = cpu;
        }
    }
    if (count < 2) {
        (void)fprintf(stderr, "one CPU: where threads are is left out\n");
        return;
    }
    EXPECT(zoo_write(zoo_find("mlp"), ZOO_SIZE_TEST, 1, &file, &source.file_bytes) == LEAT_OK);
    source.file = file;
    EXPECT(ort->model_describe(&source, infos, &source.input_count, &source.output_count) == LEAT_OK);
    EXPECT(each_thread(count_awake, &count) == 0);
    load(&theirs, ort, &source);
    unsigned char *tensors[2] = {aligned(ITEMS * infos[0].item_bytes), aligned(ITEMS * infos[1].item_bytes)};
    memset(tensors[0], 0, ITEMS * infos[0].item_bytes);
    for (uint32_t turn = 0; turn < 3; turn++) {
        const uint32_t members[2] = {cpus[turn % 2], cpus[1 - turn % 2]};
        EXPECT(leat_team_create(&(struct leat_team_options){.cpus = members, .size = 2}, &team) == LEAT_OK);
        EXPECT(run(&theirs, tensors, team) == LEAT_OK);
        EXPECT(run(&theirs, tensors, team) == LEAT_OK);
        uint32_t helper = members[1];
        unsigned awake = 0;
        while (each_thread(count_awake, &awake) == 0) { /* it has no name yet: these runs did not need it */
            (void)sched_yield();
        }
        EXPECT(each_thread(expect_cpu, &helper) == 1);
        do {
            awake = 0;
            EXPECT(each_thread(count_awake, &awake) == 1);
        } while (awake > 0);
        /* Between runs the team gives a core away and gets another, with the same leader. */
        leat_team_resize(team, 1, 0);
        EXPECT(run(&theirs, tensors, team) == LEAT_OK);
        helper = members[0];
        EXPECT(leat_team_pin(team, 1, helper) == LEAT_OK);
        leat_team_resize(team, 2, 0);
        EXPECT(run(&theirs, tensors, team) == LEAT_OK);
        EXPECT(each_thread(expect_cpu, &helper) == 1);
        leat_team_destroy(team);
    }
    EXPECT(sched_setaffinity(0, sizeof(usable), &usable) == 0);
    unload(&theirs);
    EXPECT(each_thread(count_awake, &count) == 0);
    free(tensors[0]);
    free(tensors[1]);
    free(file);
}

int
main(int argc, char **argv)
{
    struct leat_team *team;
    size_t ran = 0;

    leat_test_init();
    EXPECT(argc == 2 || argc == 3); /* CMake passes no empty argument: then the loader's search has to find it */
    const enum leat_status status = leat_backend_load("onnxruntime", argv[1], argc == 3 ? argv[2] : "");
    if (status == LEAT_ERR_NOT_FOUND || status == LEAT_ERR_ACCESS || status == LEAT_ERR_VERSION) {
        (void)printf("skipped: %s\n", leat_error_text());
        return 77;
    }
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(status == LEAT_OK);
    ort = leat_backend_find("onnxruntime");
    test_refusals();
    test_threads();
    test_outside_our_operators();
    test_hostile_indices();
    EXPECT(leat_team_create(&(struct leat_team_options){.size = 2}, &team) == LEAT_OK);
    for (size_t i = 0; i < zoo_model_count; i++) {
        ran += test_network(&zoo_models[i], team);
    }
    leat_team_destroy(team);
    for (size_t f = 0; f < newer_form_count; f++) {
        if (newer_forms[f].since <= THEIR_OPSET_MAX) {
            test_newer_form(&newer_forms[f], newer_forms[f].since);
            test_newer_form(&newer_forms[f], THEIR_OPSET_MAX);
        }
    }
    EXPECT(ran >= 15);
    (void)printf("%zu networks of %zu agree\n", ran, zoo_model_count);
    return 0;
}
