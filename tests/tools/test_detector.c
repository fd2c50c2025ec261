/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A detector with NonMaxSuppression, and models that payload leads through a loop, are served: clients get what the
 *          reference executor finds in each item alone, and how much that is, whoever shares the batch and whatever is in it.
 * Method   leatd and leat as processes; several sessions that submit together behind a query that keeps the only worker
 *          busy. The detector in both backends, and a bare NonMaxSuppression, whose boxes, scores and limit come with the query:
 *          none, all that there can be, NaN and limits below 0.
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/op.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/model_builder.h"
#include "tests/system/leatd.h"
#include "tests/tools/command.h"
#include "tools/zoo/zoo.h"

enum { CLIENTS = 4, PLACES = 40, CLASSES = 2, MOST = PLACES * CLASSES, ONNX_F32 = 1, ONNX_I64 = 7, ONNX_BOOL = 9 };

static struct leatd leatd;
static struct command command;
static uint64_t random_state;

#define LEAT(exit_code, text, ...)                                          \
    command_expect(&command, leatd.socket_path, exit_code, text, (const char *const[]){__VA_ARGS__, NULL})

/* ---- What is right -------------------------------------------------------------------------------- */

/* A model for one item, in the test's own process; as it is, or as backend `reference` gets it, bit for bit. */
struct oracle {
    struct leat_graph *graph;
    void *scratch;
};

static void
write_file(const char *name, const void *bytes, size_t size, char path[256])
{
    (void)snprintf(path, 256, "%s/%s.onnx", leatd.root.path, name);
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

static void
make_oracle(const void *bytes, size_t size, bool optimised, struct oracle *ret)
{
    struct leat_graph *graph;
    size_t scratch_bytes;

    EXPECT(leat_onnx_import(bytes, size, &graph) == LEAT_OK);
    EXPECT(!optimised || leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
    EXPECT(leat_graph_specialise(graph, 1, &ret->graph) == LEAT_OK);
    EXPECT(leat_reference_scratch_bytes(ret->graph, &scratch_bytes) == LEAT_OK);
    ret->scratch = aligned_alloc(64, (size_t)leat_round_up(scratch_bytes + 1, 64));
    EXPECT(ret->scratch != NULL);
    leat_graph_destroy(graph);
}

static void
free_oracle(struct oracle *oracle)
{
    leat_graph_destroy(oracle->graph);
    free(oracle->scratch);
}

/* ---- Clients -------------------------------------------------------------------------------------- */

struct client {
    struct leat_session *session;
    struct leat_target target;
    struct leat_query query;
    struct leat_completion done;
};

static void
open_client(struct client *client, const char *model)
{
    client->session = leatd_open_session(&leatd, 4, 1 << 20);
    EXPECT(leat_find(client->session, model, &client->target) == LEAT_OK);
    client->query = (struct leat_query)LEAT_QUERY_INIT;
    client->query.target = client->target.id;
    client->query.items = 1;
    for (uint32_t t = 0; t < client->target.input_count + client->target.output_count; t++) {
        const uint64_t bytes = client->target.tensors[t].item_bytes * client->target.items_max;
        EXPECT(leat_tensor_alloc(client->session, bytes, &client->query.tensors[t]) == LEAT_OK);
        memset(client->query.tensors[t], 0x5a, bytes);
    }
}

static void *
item_of(const struct client *client, uint32_t t, uint32_t item)
{
    return (unsigned char *)client->query.tensors[t] + item * client->target.tensors[t].item_bytes;
}

static void
submit(struct client *client)
{
    EXPECT(leat_submit(client->session, &client->query, NULL) == LEAT_OK);
}

static void
collect(struct client *client)
{
    size_t count;
    EXPECT(leat_wait(client->session, &client->done, 1, UINT64_MAX, &count) == LEAT_OK && count == 1);
}

/* All in one go, behind one that holds the worker up; until some of them shared a batch. */
static bool
ask_together(struct client *clients, uint32_t count, struct client *blocker)
{
    bool together = false;

    submit(blocker);
    for (uint32_t c = 0; c < count; c++) {
        submit(&clients[c]);
    }
    collect(blocker);
    EXPECT(blocker->done.outcome == LEAT_OUTCOME_OK);
    for (uint32_t c = 0; c < count; c++) {
        collect(&clients[c]);
        together = together || clients[c].done.batch_items > clients[c].query.items;
    }
    return together;
}

/* Every output of every item, as the oracle has it: places in pixels as near as `tolerance` says. */
static void
check_answer(const struct client *client, const struct oracle *oracle, float tolerance)
{
    const struct leat_target *target = &client->target;
    struct leat_shape shapes[LEAT_TENSORS_MAX];
    const void *inputs[LEAT_TENSORS_MAX];
    void *outputs[LEAT_TENSORS_MAX];

    EXPECT(client->done.outcome == LEAT_OUTCOME_OK);
    for (uint32_t item = 0; item < client->query.items; item++) {
        for (uint32_t i = 0; i < target->input_count; i++) {
            inputs[i] = item_of(client, i, item);
        }
        for (uint32_t o = 0; o < target->output_count; o++) {
            outputs[o] = calloc(1, target->tensors[target->input_count + o].item_bytes);
            EXPECT(outputs[o] != NULL);
        }
        EXPECT(leat_reference_run(oracle->graph, inputs, outputs, oracle->scratch, shapes) == LEAT_OK);
        for (uint32_t o = 0; o < target->output_count; o++) { /* what varies is their first dimension, so zeros are behind it */
            const uint32_t t = target->input_count + o;
            const struct leat_tensor_info *info = &target->tensors[t];
            const size_t elements = info->item_bytes / leat_dtype_bytes(info->dtype);
            EXPECT(info->varying == 0 || leat_output_size(target, &client->done, t, item) == (uint32_t)shapes[o].dims[0]);
            if (info->dtype != LEAT_DTYPE_F32) {
                EXPECT(memcmp(item_of(client, t, item), outputs[o], info->item_bytes) == 0);
                free(outputs[o]);
                continue;
            }
            const float *got = item_of(client, t, item), *want = outputs[o];
            for (size_t e = 0; e < elements; e++) {
                EXPECT(fabsf(got[e] - want[e]) <= tolerance * (10 + fabsf(want[e])) || (isnan(got[e]) && isnan(want[e])));
            }
            free(outputs[o]);
        }
    }
}

/* ---- Models --------------------------------------------------------------------------------------- */

/* x doubles as often as the item says. */
static void
add_doubles(void)
{
    struct builder b, body;
    char path[256];
    size_t size;

    builder_init(&body, 13);
    (void)builder_input(&body, "i", ONNX_I64, NULL, 0);
    (void)builder_input(&body, "go", ONNX_BOOL, NULL, 0);
    (void)builder_input(&body, "s", ONNX_F32, DIMS(1, 64));
    (void)builder_node(&body, "Add", "s s", "s2");
    (void)builder_node(&body, "Identity", "go", "on");
    builder_output(&body, "on");
    builder_output(&body, "s2");
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, 64));
    (void)builder_input(&b, "times", ONNX_I64, DIMS(-1));
    (void)builder_int(&b, builder_node(&b, "ReduceMax", "times", "count"), "keepdims", 0);
    builder_graph(&b, builder_node(&b, "Loop", "count - x", "y"), "body", &body);
    builder_output(&b, "y");
    const void *bytes = builder_pack(&b, &size);
    write_file("doubles", bytes, size, path);
    LEAT(0, "added doubles", "model", "add", "doubles", path);
    builder_fini(&b);
    builder_fini(&body);
}

static void
add_boxes(struct oracle *ret)
{
    struct builder b;
    char path[256];
    size_t size;

    builder_init(&b, 13);
    (void)builder_input(&b, "boxes", ONNX_F32, DIMS(-1, PLACES, 4));
    (void)builder_input(&b, "scores", ONNX_F32, DIMS(-1, CLASSES, PLACES));
    (void)builder_input(&b, "limit", ONNX_I64, DIMS(-1));
    (void)builder_constant(&b, "overlap", ONNX_F32, (const float[]){0.5f}, DIMS(1));
    (void)builder_constant(&b, "least", ONNX_F32, (const float[]){0.25f}, DIMS(1));
    (void)builder_int(&b, builder_node(&b, "ReduceMax", "limit", "most"), "keepdims", 0);
    (void)builder_node(&b, "NonMaxSuppression", "boxes scores most overlap least", "pairs");
    builder_output(&b, "pairs");
    const void *bytes = builder_pack(&b, &size);
    write_file("boxes", bytes, size, path);
    make_oracle(bytes, size, false, ret);
    LEAT(0, "batches of up to 4 (the most there can be)", "model", "add", "boxes", path, "--items-max", "16");
    LEAT(0, "run for one item at a time", "model", "inspect", "boxes", "--runs", "1");
    LEAT(1, "there are no batches of 2", "model", "inspect", "boxes", "--runs", "1", "--items", "2");
    builder_fini(&b);
}

static void
add_detector(struct oracle *ret, struct oracle *ret_plain)
{
    void *bytes;
    char path[256];
    size_t size;

    EXPECT(zoo_write(zoo_find("yolov5n-nms"), ZOO_SIZE_TEST, leat_test_seed, &bytes, &size) == LEAT_OK);
    write_file("detector", bytes, size, path);
    make_oracle(bytes, size, false, ret);
    make_oracle(bytes, size, true, ret_plain);
    LEAT(0, "added detector", "model", "add", "detector", path, "--items-max", "auto");
    LEAT(0, "added plain", "model", "add", "plain", path, "--backend", "reference", "--items-max", "4");
    LEAT(0, "run for one item at a time", "model", "list");
    LEAT(0, "f32[N,0..100,7]", "model", "list");
    LEAT(0, "run for one item at a time", "model", "show", "detector");
    LEAT(0, "output = [], size [0]", "run", "detector");
    free(bytes);
}

/* ---- Tests ---------------------------------------------------------------------------------------- */

static float
uniform(void)
{
    return (float)(leat_test_random(&random_state) % 10000) / 10000.0f;
}

/* Loops as long as they may be: the worker is busy for a while. */
static void
open_blocker(struct client *blocker)
{
    open_client(blocker, "doubles");
    memset(blocker->query.tensors[0], 0, 64 * sizeof(float));
    memcpy(blocker->query.tensors[1], &(const int64_t){LEAT_TRIPS_MAX}, sizeof(int64_t));
}

static void
test_detector(const struct oracle *oracle, struct client *blocker, const char *model, float range, float tolerance)
{
    struct client clients[CLIENTS];
    uint32_t found = 0, rounds = 0;
    bool together = false;

    for (uint32_t c = 0; c < CLIENTS; c++) {
        open_client(&clients[c], model);
        EXPECT(clients[c].target.items_max == 4 && clients[c].target.tensors[1].varying == 1);
        EXPECT(clients[c].target.tensors[1].dims[1] == 100 && clients[c].target.tensors[1].rank == 3);
    }
    while (rounds++ < 6 || !together) {
        for (uint32_t c = 0; c < CLIENTS; c++) {
            struct client *client = &clients[c];
            const size_t floats = client->target.tensors[0].item_bytes / sizeof(float);
            client->query.items = rounds % 3 == 0 && c == 0 ? 4 : 1;
            for (size_t i = 0; i < floats * client->query.items; i++) {
                ((float *)client->query.tensors[0])[i] = c == 1 && rounds == 1 ? NAN : range * (uniform() - 0.5f);
            }
        }
        together = ask_together(clients, CLIENTS, blocker) || together;
        for (uint32_t c = 0; c < CLIENTS; c++) {
            check_answer(&clients[c], oracle, tolerance);
            for (uint32_t item = 0; item < clients[c].query.items; item++) {
                found += leat_output_size(&clients[c].target, &clients[c].done, 1, item);
            }
        }
    }
    EXPECT(found > 0);
    clients[0].query.items = 5; /* more than an answer can tell of */
    EXPECT(leat_submit(clients[0].session, &clients[0].query, NULL) == LEAT_ERR_INVALID);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        leat_close(clients[c].session);
    }
}

static void
fill_boxes(struct client *client, uint32_t kind)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -0.0f};
    static const int64_t limits[] = {0, 1, PLACES, PLACES + 1, INT64_MAX, -1, INT64_MIN};

    for (uint32_t item = 0; item < client->query.items; item++) {
        float *boxes = item_of(client, 0, item), *scores = item_of(client, 1, item);
        int64_t *limit = item_of(client, 2, item);
        *limit = kind < 2 ? INT64_MAX : limits[leat_test_random(&random_state) % LEAT_COUNT_OF(limits)];
        for (int i = 0; i < 4 * PLACES; i++) {
            boxes[i] = kind == 1 ? (float)(i / 4 * 100 + (i % 4 >= 2 ? 10 : 0)) : 20 * uniform();
        }
        for (int i = 0; i < CLASSES * PLACES; i++) {
            const uint64_t bits = leat_test_random(&random_state);
            scores[i] = kind == 0 ? 0 : kind == 1 || bits % 3 != 0 ? 0.5f + uniform() : odd[bits / 3 % LEAT_COUNT_OF(odd)];
        }
    }
}

/* None, all, or nonsense, side by side in one batch. */
static void
test_boxes(const struct oracle *oracle, struct client *blocker)
{
    struct client clients[CLIENTS];
    bool together = false;
    uint32_t rounds = 0;

    for (uint32_t c = 0; c < CLIENTS; c++) {
        open_client(&clients[c], "boxes");
        EXPECT(clients[c].target.items_max == 4 && clients[c].target.tensors[3].dims[1] == MOST);
    }
    while (rounds++ < 20 || !together) {
        for (uint32_t c = 0; c < CLIENTS; c++) {
            clients[c].query.items = 1 + (rounds + c) % 4;
            fill_boxes(&clients[c], (c + rounds) % 4);
        }
        together = ask_together(clients, CLIENTS, blocker) || together;
        for (uint32_t c = 0; c < CLIENTS; c++) {
            const uint32_t kind = (c + rounds) % 4;
            check_answer(&clients[c], oracle, 0);
            for (uint32_t item = 0; item < clients[c].query.items && kind < 2; item++) {
                EXPECT(leat_output_size(&clients[c].target, &clients[c].done, 3, item) == (kind == 0 ? 0 : MOST));
            }
            EXPECT(leat_output_size(&clients[c].target, &clients[c].done, 0, 0) == 0);
            EXPECT(leat_output_size(&clients[c].target, &clients[c].done, 3, 4) == 0);
        }
    }
    for (uint32_t c = 0; c < CLIENTS; c++) {
        leat_close(clients[c].session);
    }
}

/* Each item its own number of times; one that asks for too many fails alone. */
static void
test_loop(struct client *blocker)
{
    struct client clients[CLIENTS];
    bool together = false;
    uint32_t rounds = 0;

    for (uint32_t c = 0; c < CLIENTS; c++) {
        open_client(&clients[c], "doubles");
    }
    while (rounds++ < 20 || !together) {
        int64_t times[CLIENTS];
        for (uint32_t c = 0; c < CLIENTS; c++) {
            times[c] = c == rounds % 8 ? INT64_MAX : (int64_t)(leat_test_random(&random_state) % 100) - 10;
            *(int64_t *)clients[c].query.tensors[1] = times[c];
            for (int i = 0; i < 64; i++) {
                ((float *)clients[c].query.tensors[0])[i] = (float)(i + 1);
            }
        }
        together = ask_together(clients, CLIENTS, blocker) || together;
        for (uint32_t c = 0; c < CLIENTS; c++) {
            const bool refused = times[c] == INT64_MAX;
            EXPECT(clients[c].done.outcome == (refused ? LEAT_OUTCOME_FAILED : LEAT_OUTCOME_OK));
            EXPECT(clients[c].done.reason == (refused ? LEAT_REASON_PAYLOAD : LEAT_REASON_NONE));
            for (int i = 0; i < 64 && !refused; i++) {
                EXPECT(((const float *)clients[c].query.tensors[2])[i] == ldexpf((float)(i + 1), times[c] > 0 ? (int)times[c] : 0));
            }
        }
    }
    for (uint32_t c = 0; c < CLIENTS; c++) {
        leat_close(clients[c].session);
    }
}

int
main(void)
{
    struct oracle detector, plain, boxes;
    struct client blocker;

    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    random_state = leat_test_seed;
    leatd_init(&leatd);
    leatd_start(&leatd, "workers: [{count: 1}]\n");
    add_doubles();
    add_detector(&detector, &plain);
    add_boxes(&boxes);
    open_blocker(&blocker);
    test_detector(&plain, &blocker, "plain", 4, 0);
    test_detector(&detector, &blocker, "detector", 2, 1e-3f); /* few boxes, whose scores are apart */
    test_boxes(&boxes, &blocker);
    test_loop(&blocker);
    leat_close(blocker.session);

    leatd_end(&leatd, SIGKILL); /* kept as they are */
    leatd_start(&leatd, "workers: [{count: 2}]\n");
    open_blocker(&blocker);
    test_boxes(&boxes, &blocker);
    leat_close(blocker.session);
    leatd_signal(&leatd, SIGTERM);
    EXPECT(leatd_await_end(&leatd) == 0);
    leatd_fini(&leatd);
    free_oracle(&detector);
    free_oracle(&plain);
    free_oracle(&boxes);
    return 0;
}
