/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     With threads as in the daemon, a diamond of real models answers as the models do when they are run one after another:
 *          whoever runs a stage sees what those wrote who ran its sources, and nobody sees another run's tensors.
 * Method   Four small networks, of which the last has more tensors than a request has room for, on two workers, loaded into the backend that is named; two clients that keep all their slots
 *          busy. A run's workspace is the next one's right after it. Under TSan a missing order is a report.
 */
#include <math.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "ipc/doorbell.h"
#include "runtime/dispatcher.h"
#include "runtime/variant.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"

enum {
    STAGES = 4,
    WORKERS = 2,
    CLIENTS = 2,
    SLOTS = 8,
    ITEMS = 4,
    WIDTH = 32,   /* floats of an item, in and out of all stages */
    ROUNDS = 400, /* queries in each slot */
    ITEM_BYTES = WIDTH * sizeof(float),
    TENSOR_BYTES = ITEMS * ITEM_BYTES,
    QUERY_BYTES = 4 * TENSOR_BYTES, /* input, output, stage_ns */
    RUNS_MAX = CLIENTS * SLOTS / 2,
    JOINED = LEAT_WIRE_UNITS + 2, /* inputs of the last stage */
};
_Static_assert(ITEMS *STAGES * 2 * sizeof(uint64_t) <= TENSOR_BYTES, "stage_ns has room");

static struct leat_shared_tables tables;
static struct leat_dispatcher *dispatcher;
static struct leat_worker *workers[WORKERS];
static struct leat_loaded_variant loaded[STAGES];
static struct leat_application apps[STAGES];
static struct leat_profile profiles[STAGES][1][LEAT_WORKER_CLASSES_MAX];
static struct leat_pipeline pipeline;
static struct leat_daemon_session *stages_session;
static void *scratch;
static struct {
    struct leat_daemon_session *daemon;
    uint64_t sent, taken;
    uint32_t asked[SLOTS], items[SLOTS]; /* asked: queries in the slot, but the last */
    float expected[SLOTS][ITEMS * WIDTH];
} clients[CLIENTS];
static uint64_t random_state, refused;

/* ---- The models ------------------------------------------------------------------------------- */

/* y = ((x * z1 - z2) * z3 - ...) */
static void
build_join(struct builder *builder)
{
    char so_far[16] = "x";

    for (uint32_t i = 1; i < JOINED; i++) {
        char input[16], operands[40];
        (void)snprintf(input, sizeof(input), "z%u", i);
        (void)builder_input(builder, input, 1, DIMS(-1, WIDTH));
        (void)snprintf(operands, sizeof(operands), "%s %s", so_far, input);
        (void)snprintf(so_far, sizeof(so_far), i + 1 < JOINED ? "t%u" : "y", i);
        (void)builder_node(builder, i % 2 != 0 ? "Mul" : "Sub", operands, so_far);
    }
}

/* Stage 0 feeds 1 and 2; 3 has what all of them make as several inputs, each of which tells in its own way. */
static void
load(uint32_t s, const char *backend)
{
    struct builder builder;
    float weights[WIDTH * WIDTH];
    size_t size;

    for (uint32_t w = 0; w < WIDTH * WIDTH; w++) {
        weights[w] = (float)(leat_test_random(&random_state) % 1000) / 4000.0f - 0.125f;
    }
    builder_init(&builder, 13);
    (void)builder_input(&builder, "x", 1, DIMS(-1, WIDTH));
    if (s == 3) {
        build_join(&builder);
    } else {
        (void)builder_constant(&builder, "w", 1, weights, DIMS(WIDTH, WIDTH));
        (void)builder_node(&builder, "MatMul", "x w", "m");
        (void)builder_node(&builder, s == 0 ? "Relu" : s == 1 ? "Tanh" : "Sigmoid", "m", "y");
    }
    builder_output(&builder, "y");
    const unsigned char *file = builder_pack(&builder, &size);
    const struct leat_variant_source source = {.name = "stage",
                                               .backend = backend,
                                               .onnx = file,
                                               .onnx_bytes = size,
                                               .items_max = ITEMS * 4,
                                               .accuracy_ppm = 900000,
                                               .runs = WORKERS + 1}; /* and this thread's */
    EXPECT(leat_variant_load(&source, &loaded[s]) == LEAT_OK);
    builder_fini(&builder);
    loaded[s].variant->index = (uint16_t)(1 + s);
    atomic_store_explicit(&tables.variants[1 + s], loaded[s].variant, memory_order_relaxed);
}

/* Which stage's output the last one's input i is. */
static uint32_t
joined_of(uint32_t i)
{
    return (i + 1) % 3;
}

static void
run_model(uint32_t s, uint32_t items, const float *const *inputs, uint32_t input_count, float *y)
{
    struct leat_segment segment = {.items = items};
    for (uint32_t i = 0; i < input_count; i++) {
        segment.tensors[i] = inputs[i];
    }
    segment.tensors[input_count] = y;
    const uint32_t bucket = items == 1 ? 0 : 32u - (uint32_t)__builtin_clz(items - 1);
    const struct leat_variant *variant = loaded[s].variant;
    EXPECT(variant->backend->plan_run(variant->copies[0].plans[bucket], &segment, 1, scratch, NULL) == LEAT_OK);
}

/* One after another, on this thread. */
static void
expect_of(const float *input, uint32_t items, float *expected)
{
    _Alignas(64) float x[ITEMS * WIDTH], made[3][ITEMS * WIDTH], y[ITEMS * WIDTH];
    const float *joined[JOINED];

    memcpy(x, input, items * ITEM_BYTES);
    run_model(0, items, (const float *[]){x}, 1, made[0]);
    run_model(1, items, (const float *[]){made[0]}, 1, made[1]);
    run_model(2, items, (const float *[]){made[0]}, 1, made[2]);
    for (uint32_t i = 0; i < JOINED; i++) {
        joined[i] = made[joined_of(i)];
    }
    run_model(3, items, joined, JOINED, y);
    memcpy(expected, y, items * ITEM_BYTES);
}

/* ---- The daemon ------------------------------------------------------------------------------- */

static void
start_application(uint16_t s)
{
    struct leat_application *app = &apps[s];

    *app = (struct leat_application){
        .id = s,
        .target = loaded[s].signature,
        .waiting_max = 64,
        .router = &leat_router_fcfs,
        .selector = &leat_selector_fixed,
        .variants = {loaded[s].variant},
        .sched_variants = {{.items_max = loaded[s].variant->items_max, .accuracy_ppm = 900000, .ready = true}},
        .variant_count = 1,
        .profiles = profiles[s],
        .router_state = calloc(1, leat_router_fcfs.state_bytes + 1),
    };
    app->target.id = s;
    memcpy(profiles[s][0], loaded[s].profiles, sizeof(profiles[s][0]));
    EXPECT(app->router_state != NULL && leat_waiting_init(app->waiting, app->waiting_max) == LEAT_OK);
    leat_dispatcher_command(dispatcher, &(struct leat_command){.kind = LEAT_COMMAND_ADD_APPLICATION, .application = app});
}

static void
describe(void)
{
    static const struct leat_pipeline_tensor input = {LEAT_PIPELINE_CLIENT, 0}, output = {LEAT_PIPELINE_CLIENT, 1};
    struct leat_pipeline_tensor made[STAGES - 1];

    pipeline =
        (struct leat_pipeline){.stage_count = STAGES, .runs_max = RUNS_MAX, .workspace_bytes = (STAGES - 1) * TENSOR_BYTES};
    for (uint32_t s = 0; s < STAGES - 1; s++) {
        made[s] = (struct leat_pipeline_tensor){LEAT_PIPELINE_WORKSPACE, s * TENSOR_BYTES / LEAT_TENSOR_ALIGN};
    }
    for (uint32_t s = 0; s < STAGES; s++) {
        struct leat_pipeline_stage *stage = &pipeline.stages[s];
        *stage = (struct leat_pipeline_stage){.application = (uint16_t)s,
                                              .after = s == 0  ? 0
                                                       : s < 3 ? 1
                                                               : 6,
                                              .input_count = s < 3 ? 1 : JOINED,
                                              .output_count = 1,
                                              .each_stage = UINT32_MAX};
        for (uint32_t i = 0; i < stage->input_count; i++) {
            stage->tensors[i] = s == 0 ? input : made[s < 3 ? 0 : joined_of(i)];
        }
        stage->tensors[stage->input_count] = s < 3 ? made[s] : output;
    }
    pipeline.target = (struct leat_target){
        .id = LEAT_PIPELINE_TARGET,
        .items_max = ITEMS,
        .input_count = 1,
        .output_count = 2,
        .tensors = {{.item_bytes = ITEM_BYTES}, {.item_bytes = ITEM_BYTES}, {.item_bytes = STAGES * 2 * sizeof(uint64_t)}}};
    EXPECT(leat_pipeline_init_runs(&pipeline) == LEAT_OK);
    leat_dispatcher_command(dispatcher, &(struct leat_command){.kind = LEAT_COMMAND_ADD_PIPELINE, .pipeline = &pipeline});
}

static struct leat_daemon_session *
make_session(uint16_t index, uint32_t slots, uint64_t bytes)
{
    const struct leat_session_options options = {
        .slots = slots, .lane_count = 1 + WORKERS, .arena_bytes = leat_round_up(bytes, 4096)};
    struct leat_daemon_session *session;
    char note[160];

    EXPECT(leat_daemon_session_create(&options, &session, note) == LEAT_OK);
    session->index = index;
    atomic_store_explicit(&tables.sessions[index], session, memory_order_relaxed);
    return session;
}

static void
start(const char *backend)
{
    static const uint16_t classes[WORKERS];
    const struct leat_dispatcher_options options = {.tables = &tables,
                                                    .workers = workers,
                                                    .worker_classes = classes,
                                                    .worker_count = WORKERS,
                                                    .worker_depth = 1,
                                                    .queue_capacity = 64,
                                                    .cpu = -1};
    size_t scratch_bytes = 64;

    for (uint32_t s = 0; s < STAGES; s++) {
        load(s, backend);
        scratch_bytes = loaded[s].scratch_bytes > scratch_bytes ? loaded[s].scratch_bytes : scratch_bytes;
    }
    scratch = aligned_alloc(64, (size_t)leat_round_up(scratch_bytes, 64));
    EXPECT(scratch != NULL && leat_dispatcher_create(&options, &dispatcher) == LEAT_OK);
    for (uint32_t w = 0; w < WORKERS; w++) {
        const struct leat_worker_options worker_options = {.index = w,
                                                           .core_count = 1,
                                                           .tables = &tables,
                                                           .dispatcher_bell = leat_dispatcher_bell(dispatcher),
                                                           .dispatcher_event = leat_dispatcher_event_fd(dispatcher)};
        EXPECT(leat_worker_create(&worker_options, &workers[w]) == LEAT_OK);
        EXPECT(leat_worker_start(workers[w]) == LEAT_OK && leat_worker_reserve(workers[w], scratch_bytes) == LEAT_OK);
    }
    EXPECT(leat_dispatcher_start(dispatcher) == LEAT_OK);
    stages_session = make_session(LEAT_PIPELINE_SESSION, 16, (uint64_t)RUNS_MAX * (STAGES - 1) * TENSOR_BYTES);
    for (uint16_t s = 0; s < STAGES; s++) {
        start_application(s);
    }
    describe();
    for (uint16_t c = 0; c < CLIENTS; c++) {
        clients[c].daemon = make_session(c, SLOTS, SLOTS * QUERY_BYTES);
        leat_dispatcher_command(dispatcher,
                                &(struct leat_command){.kind = LEAT_COMMAND_ADD_SESSION, .session = clients[c].daemon});
    }
}

/* The next event, which must be of the kind. */
static void
await(enum leat_event_kind kind)
{
    struct leat_event event;
    while (!leat_dispatcher_poll_event(dispatcher, &event)) {
        (void)sched_yield();
    }
    EXPECT(event.kind == kind);
}

static void
stop(void)
{
    leat_dispatcher_command(dispatcher,
                            &(struct leat_command){.kind = LEAT_COMMAND_REMOVE_PIPELINE, .pipeline = &pipeline});
    await(LEAT_EVENT_PIPELINE_GONE);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        leat_dispatcher_command(dispatcher,
                                &(struct leat_command){.kind = LEAT_COMMAND_CLOSE_SESSION, .session = clients[c].daemon});
        await(LEAT_EVENT_SESSION_GONE);
    }
    leat_dispatcher_stop(dispatcher);
    leat_dispatcher_check(dispatcher);
    for (uint32_t w = 0; w < WORKERS; w++) {
        leat_worker_stop(workers[w]);
    }
    leat_dispatcher_destroy(dispatcher);
    for (uint32_t w = 0; w < WORKERS; w++) {
        leat_worker_destroy(workers[w]);
    }
    for (uint32_t c = 0; c < CLIENTS; c++) {
        leat_daemon_session_destroy(clients[c].daemon);
    }
    leat_daemon_session_destroy(stages_session);
    leat_pipeline_fini_runs(&pipeline);
    for (uint32_t s = 0; s < STAGES; s++) {
        leat_waiting_fini(apps[s].waiting);
        free(apps[s].router_state);
        leat_variant_destroy(loaded[s].variant);
        leat_measured_free(&loaded[s].measured);
    }
    free(scratch);
}

/* ---- The clients ------------------------------------------------------------------------------ */

static void
submit(uint32_t c, uint32_t slot)
{
    const size_t body = offsetof(struct leat_wire_request, submit_ns);
    struct leat_daemon_session *session = clients[c].daemon;
    struct leat_wire_request *cell = &session->submit_cells[clients[c].sent & (SLOTS * LEAT_SUBMIT_CELLS_PER_SLOT - 1)];
    const uint32_t unit = slot * QUERY_BYTES / LEAT_TENSOR_ALIGN, tensor = TENSOR_BYTES / LEAT_TENSOR_ALIGN;
    const struct leat_wire_request request = {.submit_ns = leat_clock_now(&tables.clock),
                                              .items = clients[c].items[slot] & LEAT_WIRE_ITEMS_MASK,
                                              .slot = (uint16_t)slot,
                                              .target = LEAT_PIPELINE_TARGET,
                                              .ticket_low = clients[c].asked[slot],
                                              .units = {unit, unit + tensor, unit + 2 * tensor}};

    memcpy((char *)cell + body, (const char *)&request + body, sizeof(*cell) - body);
    atomic_store_explicit(&cell->sequence, ++clients[c].sent, memory_order_release);
    if (leat_bell_ring(&session->rings->daemon_bell) != LEAT_BELL_AWAKE) {
        const uint64_t one = 1;
        EXPECT(write(session->wake_fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
    }
}

/* Another query in the slot. */
static void
ask(uint32_t c, uint32_t slot)
{
    float *input = (void *)(clients[c].daemon->arena + (size_t)slot * QUERY_BYTES);

    clients[c].items[slot] = 1 + (uint32_t)(leat_test_random(&random_state) % ITEMS);
    for (uint32_t i = 0; i < clients[c].items[slot] * WIDTH; i++) {
        input[i] = (float)(leat_test_random(&random_state) % 2000) / 1000.0f - 1.0f;
    }
    memset(input + ITEMS * WIDTH, 0xff, TENSOR_BYTES); /* not a number */
    expect_of(input, clients[c].items[slot], clients[c].expected[slot]);
    submit(c, slot);
}

static void
check_answer(uint32_t c, uint32_t slot)
{
    const float *output = (const void *)(clients[c].daemon->arena + (size_t)slot * QUERY_BYTES + TENSOR_BYTES);
    const unsigned char *times = (const unsigned char *)output + TENSOR_BYTES;

    for (uint32_t i = 0; i < clients[c].items[slot] * WIDTH; i++) {
        EXPECT(fabsf(output[i] - clients[c].expected[slot][i]) <= 1e-5f); /* of a batch of another size, in another order */
    }
    for (uint32_t s = 0; s < STAGES; s++) {
        uint64_t ran_ns;
        memcpy(&ran_ns, times + (2 * s + 1) * sizeof(ran_ns), sizeof(ran_ns));
        EXPECT(ran_ns > 0);
    }
}

/* Takes what has come; returns how many queries are answered for good. */
static uint32_t
collect(uint32_t c)
{
    uint32_t ended = 0;

    for (;;) {
        const struct leat_wire_response *cell = &clients[c].daemon->lanes[clients[c].taken & (SLOTS - 1)];
        if (atomic_load_explicit(&cell->sequence, memory_order_acquire) != clients[c].taken + 1) {
            return ended;
        }
        clients[c].taken++;
        const uint32_t slot = cell->slot;
        EXPECT(cell->ticket_low == clients[c].asked[slot]);
        if (cell->outcome == LEAT_OUTCOME_REJECTED) { /* there are fewer runs than slots */
            EXPECT(cell->reason == LEAT_REASON_QUEUE_FULL && cell->variant == UINT16_MAX);
            refused++;
            submit(c, slot);
            continue;
        }
        EXPECT(cell->outcome == LEAT_OUTCOME_OK && cell->accuracy_ppm == 656100);
        check_answer(c, slot);
        if (++clients[c].asked[slot] < ROUNDS) {
            ask(c, slot);
        } else {
            ended++;
        }
    }
}

int
main(int argc, char **argv)
{
    uint32_t left = CLIENTS * SLOTS;

    leat_test_init();
    EXPECT(argc == 2);
    random_state = leat_test_seed;
    leat_clock_init(&tables.clock);
    start(argv[1]);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            ask(c, slot);
        }
    }
    while (left > 0) {
        for (uint32_t c = 0; c < CLIENTS; c++) {
            left -= collect(c);
        }
        (void)sched_yield();
    }
    stop();
    EXPECT(refused > 0);
    return 0;
}
