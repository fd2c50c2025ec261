/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A pipeline answers as its applications do when they are asked one after the other: a chain, a fan with both
 *          ends, and a classifier behind a detector, asked once for each thing found. It outlives a kill, holds its
 *          applications, is served when they are there, and goes while queries of it run. Its memory is used again.
 * Method   leatd and leat as processes, networks of the zoo, several clients at once; each answer compared with the
 *          client's own way through the applications.
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <sqlite3.h>

#include "base/align.h"
#include "tests/kernels/model_builder.h"
#include "tests/system/leatd.h"
#include "tests/tools/command.h"
#include "tools/zoo/zoo.h"

enum { CLIENTS = 3, ROUNDS = 24, CLASSES = 10, ONNX_F32 = 1 };

static const char two_workers[] = "workers: [{count: 2}]\n";

static const char *const networks[] = {"detect", "classify", "second", "halve", "vote"};

static struct leatd leatd;
static struct command command;
static uint64_t random_state;

#define AES "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
#define LEAT(exit_code, text, ...) \
    command_expect(&command, leatd.socket_path, exit_code, text, (const char *const[]){__VA_ARGS__, NULL})

/* ---- Files ---------------------------------------------------------------------------------------- */

static const char *
write_file(const char *name, const void *bytes, size_t size)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", leatd.root.path, name);
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    return path;
}

static void
add_network(const char *name, const char *network)
{
    void *bytes;
    size_t size;

    EXPECT(zoo_write(zoo_find(network), ZOO_SIZE_TEST, leat_test_seed, &bytes, &size) == LEAT_OK);
    LEAT(0, "added", "model", "add", name, write_file("network.onnx", bytes, size));
    free(bytes);
}

static void
add_built(const char *name, struct builder *b)
{
    size_t size;
    const void *bytes = builder_pack(b, &size);
    LEAT(0, "added", "model", "add", name, write_file("built.onnx", bytes, size));
    builder_fini(b);
}

/* u8 in and out. */
static void
add_synthetic(int exit_code, const char *text, const char *name, const char *options, const char *items_max,
              const char *bytes)
{
    LEAT(exit_code, text, "model", "add", name, "--synthetic", options, "--items-max", items_max, "--input-bytes", bytes,
         "--output-bytes", bytes);
}

/* Half of an image, and what two classifiers think together. */
static void
add_models(void)
{
    struct builder b;

    add_network("detect", "yolov5n-crops");
    add_network("classify", "resnet18");
    add_network("second", "resnet50");
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, 3, 64, 64));
    (void)builder_constant(&b, "half", ONNX_F32, (const float[]){0.5f}, DIMS(1));
    (void)builder_node(&b, "Mul", "x half", "y");
    builder_output(&b, "y");
    add_built("halve", &b);
    builder_init(&b, 13);
    (void)builder_input(&b, "left", ONNX_F32, DIMS(-1, CLASSES));
    (void)builder_input(&b, "right", ONNX_F32, DIMS(-1, CLASSES));
    (void)builder_node(&b, "Add", "left right", "sum");
    (void)builder_node(&b, "Softmax", "sum", "shares");
    builder_output(&b, "shares");
    add_built("vote", &b);
}

static void
add_pipeline(int exit_code, const char *text, const char *description)
{
    LEAT(exit_code, text, "pipeline", "add", write_file("pipeline.json", description, strlen(description)));
}

static const char detect_and_classify[] =
    "{\"name\":\"traffic\",\"in_flight\":2,\"items_max\":1,\"stages\":["
    "{\"application\":\"detect\",\"inputs\":{\"images\":\"input.image\"}},"
    "{\"application\":\"classify\",\"each\":\"detect.crops\",\"inputs\":{\"input\":\"detect.crops\"}}],"
    "\"outputs\":{\"found\":\"detect.detections\",\"labels\":\"classify.output\"}}";
static const char diamond[] =
    "{\"name\":\"committee\",\"latency_ms\":60000,\"late\":\"serve\",\"stages\":["
    "{\"name\":\"end\",\"application\":\"vote\",\"inputs\":{\"left\":\"one.output\",\"right\":\"two.output\"}},"
    "{\"name\":\"one\",\"application\":\"classify\",\"inputs\":{\"input\":\"halve.y\"}},"
    "{\"name\":\"two\",\"application\":\"second\",\"inputs\":{\"input\":\"halve.y\"}},"
    "{\"application\":\"halve\",\"inputs\":{\"x\":\"input.image\"}}],\"outputs\":{\"shares\":\"end.shares\"}}";
static const char chain[] =
    "{\"stages\":[{\"application\":\"halve\",\"inputs\":{\"x\":\"input.image\"}},"
    "{\"application\":\"classify\",\"inputs\":{\"input\":\"halve.y\"}}],\"outputs\":{\"scores\":\"classify.output\"}}";

/* ---- Queries -------------------------------------------------------------------------------------- */

struct query {
    struct leat_target target;
    struct leat_query query;
    struct leat_completion done;
};

static void
make_query(struct leat_session *session, const char *name, uint32_t items, struct query *ret)
{
    EXPECT(leat_find(session, name, &ret->target) == LEAT_OK);
    ret->query = (struct leat_query)LEAT_QUERY_INIT;
    ret->query.target = ret->target.id;
    ret->query.items = items;
    for (uint32_t t = 0; t < ret->target.input_count + ret->target.output_count; t++) {
        const uint64_t bytes = ret->target.tensors[t].item_bytes * items;
        EXPECT(leat_tensor_alloc(session, bytes, &ret->query.tensors[t]) == LEAT_OK);
        memset(ret->query.tensors[t], 0x5a, bytes);
    }
}

static void
free_query(struct leat_session *session, struct query *query)
{
    for (uint32_t t = 0; t < query->target.input_count + query->target.output_count; t++) {
        leat_tensor_free(session, query->query.tensors[t]);
    }
}

/* Asks an application; the output of that number is the caller's. */
static float *
ask(struct leat_session *session, const char *name, uint32_t items, const void *const *inputs, uint32_t output,
    uint32_t *ret_size)
{
    struct query q;

    make_query(session, name, items, &q);
    for (uint32_t t = 0; t < q.target.input_count; t++) {
        memcpy(q.query.tensors[t], inputs[t], q.target.tensors[t].item_bytes * items);
    }
    EXPECT(leat_run(session, &q.query, &q.done) == LEAT_OK && q.done.outcome == LEAT_OUTCOME_OK);
    const uint32_t t = q.target.input_count + output;
    float *answer = malloc(q.target.tensors[t].item_bytes * items);
    EXPECT(answer != NULL);
    memcpy(answer, q.query.tensors[t], q.target.tensors[t].item_bytes * items);
    *ret_size = leat_output_size(&q.target, &q.done, t, 0);
    free_query(session, &q);
    return answer;
}

static void
expect_near(const float *got, const float *want, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        EXPECT(fabsf(got[i] - want[i]) <= 1e-4f + 1e-3f * fabsf(want[i]));
    }
}

static void
fill_image(float *image, size_t count, float range)
{
    for (size_t i = 0; i < count; i++) {
        image[i] = range * ((float)(leat_test_random(&random_state) % 10000) / 10000.0f - 0.5f);
    }
}

/* Each stage waited and took what it says, which is no more than the query did; one that had nothing to do says zeros. */
static void
check_times(const struct query *q, bool second_ran)
{
    const struct leat_tensor_info *info = &q->target.tensors[q->target.input_count + q->target.output_count - 1];
    const uint64_t *times = q->query.tensors[q->target.input_count + q->target.output_count - 1];

    EXPECT(strcmp(info->name, "stage_ns") == 0 && info->dtype == LEAT_DTYPE_U64 && info->rank == 3);
    for (int64_t s = 0; s < info->dims[1] * (int64_t)q->query.items; s++) {
        EXPECT(times[2 * s] + times[2 * s + 1] <= q->done.total_ns);
        EXPECT((times[2 * s + 1] > 0) == (s % info->dims[1] == 0 || second_ran));
    }
}

/* ---- A chain and a fan ---------------------------------------------------------------------------- */

/* `second` NULL: halve and classify. Else both classify, and vote. */
static float *
go_by_hand(struct leat_session *session, const char *second, const void *image, uint32_t items)
{
    uint32_t size;

    float *half = ask(session, "halve", items, &image, 0, &size);
    float *one = ask(session, "classify", items, &(const void *){half}, 0, &size);
    if (second != NULL) {
        float *two = ask(session, second, items, &(const void *){half}, 0, &size);
        float *shares = ask(session, "vote", items, (const void *const[]){one, two}, 0, &size);
        free(one);
        free(two);
        one = shares;
    }
    free(half);
    return one;
}

static void
test_graph(const char *name, const char *second)
{
    struct leat_session *session = leatd_open_session(&leatd, 4, 8 << 20);

    for (uint32_t items = 1; items <= 3; items++) {
        struct query q;
        make_query(session, name, items, &q);
        EXPECT(q.target.items_max == 8 && q.target.input_count == 1 && q.target.output_count == 2);
        fill_image(q.query.tensors[0], q.target.tensors[0].item_bytes / sizeof(float) * items, 20);
        EXPECT(leat_run(session, &q.query, &q.done) == LEAT_OK && q.done.outcome == LEAT_OUTCOME_OK);
        float *want = go_by_hand(session, second, q.query.tensors[0], items);
        expect_near(q.query.tensors[1], want, (size_t)CLASSES * items);
        check_times(&q, true);
        free(want);
        free_query(session, &q);
    }
    leat_close(session);
}

/* ---- A classifier behind a detector --------------------------------------------------------------- */

static void
check_traffic(struct leat_session *session, const struct query *q, bool seen[3])
{
    uint32_t found, crops, none;
    float *boxes = ask(session, "detect", 1, &(const void *){q->query.tensors[0]}, 0, &found);
    float *images = ask(session, "detect", 1, &(const void *){q->query.tensors[0]}, 1, &crops);

    EXPECT(q->done.outcome == LEAT_OUTCOME_OK && found == crops && found <= 8);
    EXPECT(leat_output_size(&q->target, &q->done, 1, 0) == found && leat_output_size(&q->target, &q->done, 2, 0) == found);
    expect_near(q->query.tensors[1], boxes, (size_t)found * 7);
    if (found > 0) {
        float *labels = ask(session, "classify", found, &(const void *){images}, 0, &none);
        expect_near(q->query.tensors[2], labels, (size_t)found * CLASSES);
        free(labels);
    }
    check_times(q, found > 0);
    seen[found == 0 ? 0 : found < 8 ? 1 : 2] = true;
    free(boxes);
    free(images);
}

/* Several clients at once, more than there are workspaces: who is refused asks again. */
static void
test_detector(void)
{
    struct leat_session *sessions[CLIENTS];
    struct query queries[CLIENTS];
    bool seen[3] = {false}; /* nothing found, some, as many as there can be */

    for (uint32_t c = 0; c < CLIENTS; c++) {
        sessions[c] = leatd_open_session(&leatd, 4, 8 << 20);
        make_query(sessions[c], "traffic", 1, &queries[c]);
    }
    for (uint32_t round = 0; round < ROUNDS || !(seen[0] && seen[1] && seen[2]); round++) {
        for (uint32_t c = 0; c < CLIENTS; c++) {
            const struct leat_target *target = &queries[c].target;
            fill_image(queries[c].query.tensors[0], target->tensors[0].item_bytes / sizeof(float),
                       0.1f * (float)(1 + leat_test_random(&random_state) % 100));
            EXPECT(leat_submit(sessions[c], &queries[c].query, NULL) == LEAT_OK);
        }
        for (uint32_t c = 0; c < CLIENTS; c++) {
            size_t count;
            EXPECT(leat_wait(sessions[c], &queries[c].done, 1, UINT64_MAX, &count) == LEAT_OK && count == 1);
            if (queries[c].done.outcome == LEAT_OUTCOME_REJECTED) {
                EXPECT(queries[c].done.reason == LEAT_REASON_QUEUE_FULL);
                EXPECT(leat_run(sessions[c], &queries[c].query, &queries[c].done) == LEAT_OK);
            }
        }
        for (uint32_t c = 0; c < CLIENTS; c++) {
            check_traffic(sessions[c], &queries[c], seen);
        }
    }
    for (uint32_t c = 0; c < CLIENTS; c++) {
        leat_close(sessions[c]);
    }
}

/* ---- What people see ------------------------------------------------------------------------------ */

static void
test_words(void)
{
    LEAT(0, "detect,classify", "pipeline", "list");
    LEAT(0, "for each of up to 8 of detect", "pipeline", "show", "traffic");
    LEAT(0, "output labels               f32[N,0..8,10]", "pipeline", "show", "traffic");
    LEAT(0, "end (vote) after one, two", "pipeline", "show", "committee");
    LEAT(0, "\"late\":\"serve\"", "pipeline", "show", "committee", "--json");
    LEAT(0, "stage two: waited", "run", "committee");
    LEAT(0, "\"stages\":[{\"name\":\"detect\"", "run", "traffic", "--json");
    LEAT(0, "committee", "status");
    LEAT(0, "stage     two: waited", "bench", "committee", "--rate", "20", "--queries", "20", "--warmup", "0");
    LEAT(0, "\"stage\":\"halve\",\"count\":20", "bench", "committee", "--rate", "20", "--queries", "20", "--warmup", "0",
         "--json");
    LEAT(0, "example: leat pipeline", "pipeline", "--help");
    LEAT(2, "add, list, show or remove", "pipeline");
    LEAT(2, "takes one file", "pipeline", "add");
    LEAT(2, "--name goes with add", "pipeline", "list", "--name", "x");
    LEAT(1, "cannot open /nowhere/at/all: No such file", "pipeline", "add", "/nowhere/at/all");
    LEAT(1, "cannot read /tmp: is it a file?", "pipeline", "add", "/tmp");
    add_pipeline(1, "pipeline.json:1:", "{\"stages\":[}");
    add_pipeline(3, "the pipeline has no 'name'", chain);
    add_pipeline(3, "described by a JSON object", "[]");
    add_pipeline(3, "a pipeline 'traffic' exists", detect_and_classify);
    LEAT(3, "there is no pipeline 'nobody'", "pipeline", "show", "nobody");
    LEAT(3, "there is no pipeline 'nobody'", "pipeline", "remove", "nobody");
    /* A name of more than the 64 bytes that errors tell of it, the last of which is half of a character. */
    LEAT(3, "there is no pipeline 'x\xc3\xa4", "pipeline", "show",
         "x" AES AES AES AES);
    LEAT(3, "pipeline 'other': stage 'x': there is no application or model 'gone'", "pipeline", "add", "--name", "other",
         write_file("gone.json",
                    "{\"stages\":[{\"name\":\"x\",\"application\":\"gone\",\"inputs\":{\"x\":\"input.x\"}}],"
                    "\"outputs\":{\"y\":\"x.y\"}}",
                    strlen("{\"stages\":[{\"name\":\"x\",\"application\":\"gone\",\"inputs\":{\"x\":\"input.x\"}}],"
                           "\"outputs\":{\"y\":\"x.y\"}}")));
}

/* Folders of items are answered by pipelines too. */
static void
test_offline(void)
{
    static const unsigned char item[64] = {1};
    char input[256], output[256];

    (void)snprintf(input, sizeof(input), "%s/items", leatd.root.path);
    (void)snprintf(output, sizeof(output), "%s/answers", leatd.root.path);
    EXPECT(mkdir(input, 0700) == 0);
    (void)write_file("items/0.raw", item, sizeof(item));
    (void)write_file("items/1.raw", item, sizeof(item));
    LEAT(0, "2 of 2 items answered", "offline", "submit", "--application", "one", "--input", input, "--output", output,
         "--wait");
}

/* Names are taken once, and who is asked stays. */
static void
test_holds(void)
{
    LEAT(3, "pipeline 'classify': a model or application of that name exists", "pipeline", "add", "--name", "classify",
         write_file("chain.json", chain, strlen(chain)));
    add_synthetic(3, "a pipeline 'traffic' exists", "traffic", "{}", "1", "64");
    LEAT(3, "a pipeline of that name exists", "app", "add", "traffic", "--models", "classify");
    LEAT(3, "pipeline 'committee' asks 'halve': remove the pipeline first", "model", "remove", "halve");
    add_synthetic(0, "added", "large", "{}", "8", "64");
    add_synthetic(0, "added", "small", "{}", "2", "64");
    LEAT(0, "sized", "app", "add", "sized", "--models", "large,small");
    add_pipeline(0, "of up to 8 items",
                 "{\"name\":\"one\",\"stages\":[{\"application\":\"sized\",\"inputs\":{\"input\":\"input.x\"}}],"
                 "\"outputs\":{\"y\":\"sized.output\"}}");
    LEAT(3, "pipeline 'one' asks 'sized' for up to 8 items at once, and that would be 2", "app", "change", "sized",
         "--remove-models", "large");
    LEAT(3, "pipeline 'one' asks 'sized'", "app", "change", "sized", "--remove-models", "large,small");
    LEAT(3, "pipeline 'one' asks 'sized'", "app", "remove", "sized");
    LEAT(0, "sized", "app", "change", "sized", "--remove-models", "small");
    LEAT(0, "stage sized: waited", "run", "one", "--items", "8");
    test_offline();
    LEAT(0, "removed one", "pipeline", "remove", "one");
    LEAT(0, "removed", "app", "remove", "sized", "--with-models");
}

/* ---- Removal -------------------------------------------------------------------------------------- */

/* Queries that were accepted end as they would have; those that come later are refused, and nobody finds it any more. */
static void
test_removal(void)
{
    enum { QUERIES = 16 };
    struct leat_session *session = leatd_open_session(&leatd, QUERIES, 8 << 20);
    struct leat_completion done[QUERIES];
    struct leat_target target;
    struct query q[QUERIES];
    size_t ended = 0, count;

    add_synthetic(0, "added", "slow", "{\"latency_ns\":20000000}", "1", "64");
    add_pipeline(
        0, "slowly",
        "{\"name\":\"slowly\",\"stages\":[{\"name\":\"a\",\"application\":\"slow\",\"inputs\":{\"input\":\"input.x\"}},"
        "{\"name\":\"b\",\"application\":\"slow\",\"inputs\":{\"input\":\"a.output\"}}],\"outputs\":{\"y\":\"b.output\"}}");
    for (int i = 0; i < QUERIES; i++) {
        make_query(session, "slowly", 1, &q[i]);
        EXPECT(leat_submit(session, &q[i].query, NULL) == LEAT_OK);
    }
    EXPECT(leat_wait(session, done, 1, UINT64_MAX, &count) == LEAT_OK &&
           count == 1); /* all have been accepted long since */
    EXPECT(done[0].outcome == LEAT_OUTCOME_OK);
    LEAT(3, "in stage 'a'", "run", "slowly", "--latency", "1ms"); /* which takes 20 by itself */
    command_start(&command, leatd.socket_path, (const char *const[]){"pipeline", "remove", "slowly", NULL});
    for (ended = 1; ended < QUERIES; ended += count) {
        EXPECT(leat_wait(session, done, QUERIES, UINT64_MAX, &count) == LEAT_OK);
        for (size_t i = 0; i < count; i++) {
            EXPECT(done[i].outcome == LEAT_OUTCOME_OK);
        }
    }
    command_finish(&command);
    EXPECT(command.exit_code == 0);
    EXPECT(leat_find(session, "slowly", &target) == LEAT_ERR_NOT_FOUND);
    EXPECT(leat_run(session, &q[0].query, &done[0]) == LEAT_OK);
    EXPECT(done[0].outcome == LEAT_OUTCOME_REJECTED && done[0].reason == LEAT_REASON_TARGET);
    leat_close(session);
    LEAT(0, "removed", "model", "remove", "slow");
}

/* What one gives back another gets: a MiB of memory, of which each takes more than half. */
static void
test_memory(void)
{
    static const char text[] =
        "{\"in_flight\":%s,\"name\":\"%s\",\"stages\":[{\"name\":\"a\",\"application\":\"big\",\"inputs\":{"
        "\"input\":\"input.x\"}},{\"name\":\"b\",\"application\":\"big\",\"inputs\":{\"input\":\"a.output\"}}],"
        "\"outputs\":{\"y\":\"b.output\"}}";
    char descriptions[4][512];

    add_synthetic(0, "added", "big", "{}", "1", "65536");
    (void)snprintf(descriptions[0], sizeof(descriptions[0]), text, "9", "m0");
    (void)snprintf(descriptions[1], sizeof(descriptions[1]), text, "9", "m1");
    (void)snprintf(descriptions[2], sizeof(descriptions[2]), text, "7", "m2");
    (void)snprintf(descriptions[3], sizeof(descriptions[3]), text, "17", "m3");
    add_pipeline(0, "9 at a time", descriptions[0]);
    add_pipeline(3, "needs 589824 bytes for 9 runs at a time, other pipelines have 589824", descriptions[1]);
    add_pipeline(0, "7 at a time", descriptions[2]);
    add_pipeline(3, "takes 65536 bytes, 17 times, and limits.pipeline_memory is 1048576", descriptions[3]);
    LEAT(0, "removed m0", "pipeline", "remove", "m0");
    add_pipeline(0, "9 at a time", descriptions[1]);
    LEAT(0, "stage b: waited", "run", "m1");
    LEAT(0, "stage b: waited", "run", "m2");
    LEAT(0, "m2", "pipeline", "list");
}

/* ---- Restarts ------------------------------------------------------------------------------------- */

/* What was acknowledged is there after a kill; what lacks an application waits for it. */
static void
test_restart(void)
{
    LEAT(0, "detect,classify", "pipeline", "list");
    leatd_end(&leatd, SIGKILL);
    leatd_start(&leatd, two_workers);
    test_graph("committee", "second");
    test_graph("chain", NULL);
    test_detector();
    LEAT(0, "removed chain", "pipeline", "remove", "chain");
    leatd_end(&leatd, SIGKILL);
    leatd_start(
        &leatd,
        "workers: [{count: 2}]\nmodels: [{name: fixed, backend: synthetic, synthetic: {inputs: [{name: x, dims: [8]}], "
        "outputs: [{name: y, dims: [8]}]}}]\n");
    LEAT(3, "there is no pipeline 'chain'", "pipeline", "show", "chain");
    add_pipeline(0, "fixed",
                 "{\"name\":\"waits\",\"stages\":[{\"application\":\"fixed\",\"inputs\":{\"x\":\"input.x\"}}],"
                 "\"outputs\":{\"y\":\"fixed.y\"}}");
    leatd_end(&leatd, SIGTERM);
    leatd_start(&leatd, two_workers);
    EXPECT(leatd_logged(&leatd, "pipeline 'waits': stage 'fixed': there is no application or model 'fixed'"));
    LEAT(0, "not served: pipeline 'waits': stage 'fixed': there is no", "pipeline", "show", "waits");
    LEAT(0, "not served", "pipeline", "list");
    LEAT(3, "pipeline 'waits' is not served: pipeline 'waits': stage 'fixed': there is no", "run", "waits");
    test_graph("committee", "second");
    struct builder b;
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, 8));
    (void)builder_node(&b, "Relu", "x", "y");
    builder_output(&b, "y");
    add_built("fixed", &b);
    LEAT(0, "stage fixed: waited", "run", "waits");
    LEAT(3, "pipeline 'waits' asks 'fixed'", "model", "remove", "fixed");
    leatd_end(&leatd, SIGTERM);

    /* A configured model with its name: the pipeline gives way, is told of, and can be removed. */
    leatd_start(&leatd, "models: [{name: waits, backend: synthetic, synthetic: {inputs: [{name: x, dims: [8]}], "
                        "outputs: [{name: y, dims: [8]}]}}]\n");
    LEAT(0, "not served: pipeline 'waits': a model or application of that name exists", "pipeline", "show", "waits");
    LEAT(0, "ok", "run", "waits");
    LEAT(0, "removed waits", "pipeline", "remove", "waits");
    LEAT(0, "removed", "model", "remove", "fixed");
    leatd_end(&leatd, SIGTERM);
}

/* A description that nobody could have given: it is told of, and can be removed. */
static void
test_damage(void)
{
    char path[256];
    sqlite3 *db;

    (void)snprintf(path, sizeof(path), "%s/state/registry.db", leatd.root.path);
    EXPECT(sqlite3_open(path, &db) == SQLITE_OK);
    EXPECT(sqlite3_exec(db, "INSERT INTO pipelines VALUES ('cut', '{\"stages\":['), ('odd', '{\"stages\":7}')", NULL, NULL,
                        NULL) == SQLITE_OK);
    EXPECT(sqlite3_close(db) == SQLITE_OK);
    leatd_start(&leatd, two_workers);
    EXPECT(leatd_logged(&leatd, "kept pipeline 'cut' is not served: its description is no JSON"));
    LEAT(0, "not served: its description is no JSON", "pipeline", "show", "cut");
    LEAT(0, "not served: 'stages' must be a list", "pipeline", "list");
    LEAT(0, "removed cut", "pipeline", "remove", "cut");
    LEAT(0, "removed odd", "pipeline", "remove", "odd");
    LEAT(0, "stage b: waited", "run", "m1");
    leatd_end(&leatd, SIGTERM);
}

static bool
is_there(const char *name)
{
    const int exit_code = command_run(&command, leatd.socket_path, (const char *const[]){"pipeline", "show", name, NULL});
    EXPECT(exit_code == 0 || strstr(command.err, "there is no pipeline") != NULL);
    return exit_code == 0;
}

/* Killed before and after each step that changes the disk: what was acknowledged holds, and nothing is there by half. */
static void
test_kills(void)
{
    static const char *const add[] = {"pipeline", "add", NULL, NULL}, *const drop[] = {"pipeline", "remove", "m1", NULL};
    const char *plain = leatd.program;
    char arm[256], step_text[16], path[256];
    bool died = true;
    unsigned step;

    (void)snprintf(arm, sizeof(arm), "%s/arm", leatd.root.path);
    (void)snprintf(path, sizeof(path), "%s/pipeline.json", leatd.root.path);
    EXPECT(setenv("LEAT_TEST_KILL_ARM", arm, 1) == 0);
    leatd_start(&leatd, two_workers);
    LEAT(0, "m1", "pipeline", "show", "m1", "--json");
    json_t *shown = json_loads(command.out, 0, NULL);
    char *description = json_dumps(json_object_get(shown, "description"), JSON_COMPACT);
    EXPECT(description != NULL);
    (void)write_file("pipeline.json", description, strlen(description));
    free(description);
    json_decref(shown);
    LEAT(0, "removed m1", "pipeline", "remove", "m1");
    leatd_end(&leatd, SIGTERM);
    for (step = 1; died; step++) {
        const char *arguments[LEAT_COUNT_OF(add)];
        (void)snprintf(step_text, sizeof(step_text), "%u", step);
        EXPECT(setenv("LEAT_TEST_KILL_STEP", step_text, 1) == 0);
        leatd.program = LEATD_KILLED;
        leatd_start(&leatd, two_workers);
        fake_root_write(&leatd.root, "/arm", "");
        memcpy(arguments, add, sizeof(add));
        arguments[2] = path;
        const bool added = command_run(&command, leatd.socket_path, arguments) == 0;
        const bool removed = added && command_run(&command, leatd.socket_path, drop) == 0;
        died = !removed;
        leatd_end(&leatd, SIGKILL);
        EXPECT(unlink(arm) == 0);
        leatd.program = plain;
        leatd_start(&leatd, two_workers);
        const bool there = is_there("m1");
        EXPECT(!removed || !there);
        if (there) {
            LEAT(0, "stage b: waited", "run", "m1");
            LEAT(0, "removed m1", "pipeline", "remove", "m1");
        }
        leatd_end(&leatd, SIGTERM);
    }
    EXPECT(step > 8);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    leatd_init(&leatd);
    leatd_start(&leatd, two_workers);
    add_models();
    add_pipeline(0, "2 at a time", detect_and_classify);
    add_pipeline(0, "committee", diamond);
    LEAT(0, "chain", "pipeline", "add", write_file("chain.json", chain, strlen(chain)), "--name", "chain");
    LEAT(3, "'chain' is a pipeline, no application or model", "scale", "set", "0", "--for", "chain");
    test_graph("chain", NULL);
    test_graph("committee", "second");
    test_detector();
    test_words();
    test_holds();
    test_removal();
    test_restart();
    leatd_start(&leatd, "workers: [{count: 1}]\nlimits: {pipeline_memory: 1MiB}\n");
    LEAT(0, "removed traffic", "pipeline", "remove", "traffic");
    LEAT(0, "removed committee", "pipeline", "remove", "committee");
    for (size_t n = 0; n < LEAT_COUNT_OF(networks); n++) {
        LEAT(0, "removed", "model", "remove", networks[n]);
    }
    test_memory();
    leatd_end(&leatd, SIGTERM);
    test_damage();
    test_kills();
    leatd_fini(&leatd);
    return 0;
}
