/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The orders of the session's rings (S0/S1, C0/C1), of the worker's (W0/W1, D0/D1) and of the doorbells are
 *          enough: requests and answers arrive whole, once, and nobody sleeps through one.
 * Method   Both halves of a session over ONE mapping, so that TSan sees both sides of every access: the real client
 *          library with a session made by hand, the real dispatcher and two real workers in their threads. They
 *          never spin, so they sleep whenever they find nothing.
 */
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/client/session.h"
#include "runtime/dispatcher.h"
#include "tests/leat_test.h"

enum { SLOTS = 8, QUERIES = 40000, PHASE = 1000, WORKERS = 2, ITEM_BYTES = 8, ITEMS_MAX = 8, SPIN_NS = 0 };
enum { TENSOR_BYTES = ITEMS_MAX * ITEM_BYTES };

static struct leat_shared_tables tables;
static struct leat_daemon_session *daemon_side;
static struct leat_dispatcher *dispatcher;
static struct leat_worker *workers[WORKERS];

/* ---- The daemon's half ------------------------------------------------------------------------ */

/* The answer is the input plus one. */
static enum leat_status
run(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
    struct leat_team *team)
{
    (void)plan;
    (void)scratch;
    (void)team;
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char *in = segments[i].tensors[0];
        unsigned char *out = (unsigned char *)(uintptr_t)segments[i].tensors[1];
        for (size_t b = 0; b < (size_t)segments[i].items * ITEM_BYTES; b++) {
            out[b] = (unsigned char)(in[b] + 1);
        }
    }
    return LEAT_OK;
}

static const struct leat_backend backend = {.abi = LEAT_BACKEND_ABI, .name = "plus-one", .plan_run = run};
static struct leat_variant_copy copy;
static struct leat_variant variant = {.name = "plus-one",
                                      .index = 1,
                                      .backend = &backend,
                                      .copies = &copy,
                                      .copy_count = 1,
                                      .items_max = ITEMS_MAX,
                                      .item_bytes = {ITEM_BYTES, ITEM_BYTES},
                                      .tensor_count = 2};
static struct leat_profile profiles[1][LEAT_WORKER_CLASSES_MAX];
static struct leat_application application = {
    .name = "plus-one",
    .target = {.items_max = ITEMS_MAX,
               .input_count = 1,
               .output_count = 1,
               .tensors = {{.item_bytes = ITEM_BYTES}, {.item_bytes = ITEM_BYTES}}},
    .waiting_max = SLOTS,
    .router = &leat_router_fcfs,
    .selector = &leat_selector_fixed,
    .variants = {&variant},
    .sched_variants = {{.items_max = ITEMS_MAX, .ready = true}},
    .variant_count = 1,
    .profiles = profiles,
};

static void
start_daemon_side(void)
{
    static const uint16_t classes[WORKERS];
    const struct leat_session_options session_options = {
        .slots = SLOTS, .lane_count = 1 + WORKERS, .arena_bytes = 65536};
    const struct leat_dispatcher_options options = {.tables = &tables,
                                                    .workers = workers,
                                                    .worker_classes = classes,
                                                    .worker_count = WORKERS,
                                                    .worker_depth = 2,
                                                    .queue_capacity = 64,
                                                    .cpu = -1};
    char note[160];

    leat_clock_init(&tables.clock);
    atomic_store_explicit(&tables.spin_ns, SPIN_NS, memory_order_relaxed);
    leat_profile_set(&profiles[0][0], 1, 1000);
    atomic_store_explicit(&tables.variants[variant.index], &variant, memory_order_relaxed);
    application.router_state = calloc(1, leat_router_fcfs.state_bytes + 1);
    EXPECT(application.router_state != NULL && leat_waiting_init(application.waiting, SLOTS) == LEAT_OK);
    EXPECT(leat_dispatcher_create(&options, &dispatcher) == LEAT_OK);
    for (uint32_t w = 0; w < WORKERS; w++) {
        const struct leat_worker_options worker_options = {.index = w,
                                                           .core_count = 1,
                                                           .tables = &tables,
                                                           .dispatcher_bell = leat_dispatcher_bell(dispatcher),
                                                           .dispatcher_event = leat_dispatcher_event_fd(dispatcher)};
        EXPECT(leat_worker_create(&worker_options, &workers[w]) == LEAT_OK);
        EXPECT(leat_worker_start(workers[w]) == LEAT_OK);
    }
    EXPECT(leat_dispatcher_start(dispatcher) == LEAT_OK);
    EXPECT(leat_daemon_session_create(&session_options, &daemon_side, note) == LEAT_OK);
    daemon_side->index = 3;
    atomic_store_explicit(&tables.sessions[daemon_side->index], daemon_side, memory_order_release);
    leat_dispatcher_command(dispatcher,
                            &(struct leat_command){.kind = LEAT_COMMAND_ADD_APPLICATION, .application = &application});
    leat_dispatcher_command(dispatcher, &(struct leat_command){.kind = LEAT_COMMAND_ADD_SESSION, .session = daemon_side});
}

static void
stop_daemon_side(void)
{
    struct pollfd readable = {.fd = leat_dispatcher_control_fd(dispatcher), .events = POLLIN};
    struct leat_event event;

    leat_dispatcher_command(dispatcher,
                            &(struct leat_command){.kind = LEAT_COMMAND_CLOSE_SESSION, .session = daemon_side});
    while (!leat_dispatcher_poll_event(dispatcher, &event)) {
        EXPECT(poll(&readable, 1, -1) == 1);
    }
    EXPECT(event.kind == LEAT_EVENT_SESSION_GONE && event.session == daemon_side);
    leat_dispatcher_stop(dispatcher);
    for (uint32_t w = 0; w < WORKERS; w++) {
        leat_worker_stop(workers[w]);
    }
    leat_dispatcher_destroy(dispatcher);
    for (uint32_t w = 0; w < WORKERS; w++) {
        leat_worker_destroy(workers[w]);
    }
    leat_daemon_session_destroy(daemon_side);
    leat_waiting_fini(application.waiting);
    free(application.router_state);
}

/* ---- The client's half ------------------------------------------------------------------------ */

/* A client's session over the daemon's own mapping, as leat_open would make it over a second one. */
static struct leat_session *
make_client(void)
{
    struct leat_session *client = calloc(1, sizeof(*client));
    EXPECT(client != NULL);
    client->rings = daemon_side->rings;
    client->submit_cells = daemon_side->submit_cells;
    client->lanes = daemon_side->lanes;
    client->lane_count = daemon_side->lane_count;
    client->slots = SLOTS;
    client->free_slots = calloc(SLOTS, sizeof(client->free_slots[0]));
    client->slot_states = calloc(SLOTS, sizeof(client->slot_states[0]));
    client->stash = calloc(SLOTS, sizeof(client->stash[0]));
    client->targets = calloc(1, sizeof(client->targets[0]));
    EXPECT(client->free_slots != NULL && client->slot_states != NULL && client->stash != NULL && client->targets != NULL);
    for (uint16_t i = 0; i < SLOTS; i++) {
        client->free_slots[client->free_count++] = i;
    }
    client->next_ticket = 1;
    client->arena = daemon_side->arena;
    client->arena_bytes = daemon_side->arena_bytes;
    leat_clock_init(&client->clock);
    client->target_count = 1;
    client->targets[0] = (struct leat_client_target){
        .known = true, .items_max = ITEMS_MAX, .tensor_count = 2, .item_bytes = {ITEM_BYTES, ITEM_BYTES}};
    client->connected = true;
    client->options.spin_ns = 0;
    client->daemon_fd = daemon_side->wake_fd;
    client->client_fd = client->event_fd = -1;
    int ends[2]; /* stays open: the peer lives */
    EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    client->socket = ends[0];
    return client;
}

int
main(void)
{
    struct leat_completion done[SLOTS];
    unsigned char expected[SLOTS];
    uint64_t sent = 0, collected = 0;

    leat_test_init();
    start_daemon_side();
    struct leat_session *client = make_client();
    struct leat_query query = LEAT_QUERY_INIT;
    uint64_t random = leat_test_seed;
    uint32_t items[SLOTS];
    bool busy[SLOTS] = {false};

    while (collected < QUERIES) {
        const uint32_t most = sent / PHASE % 2 == 0 ? 1 : SLOTS; /* one at a time: everybody sleeps each time */
        for (uint32_t i = 0; i < most && sent < QUERIES; i++) {
            if (busy[i] || leat_test_random(&random) % 4 == 0) {
                continue;
            }
            items[i] = 1 + (uint32_t)(leat_test_random(&random) % ITEMS_MAX);
            query.items = items[i];
            query.user_data = i;
            query.tensors[0] = client->arena + (size_t)i * 2 * TENSOR_BYTES;
            query.tensors[1] = client->arena + (size_t)(i * 2 + 1) * TENSOR_BYTES;
            expected[i] = (unsigned char)leat_test_random(&random);
            memset(query.tensors[0], expected[i], TENSOR_BYTES);
            memset(query.tensors[1], expected[i], TENSOR_BYTES);
            EXPECT(leat_submit(client, &query, NULL) == LEAT_OK);
            busy[i] = true;
            sent++;
        }
        size_t count = leat_test_random(&random) % 2 == 0 ? leat_poll(client, done, SLOTS) : 0;
        if (count == 0 && leat_in_flight(client) > 0) {
            EXPECT(leat_wait(client, done, SLOTS, UINT64_MAX, &count) == LEAT_OK); /* a lost wake-up hangs here */
        }
        for (size_t c = 0; c < count; c++) {
            const uint64_t i = done[c].user_data;
            EXPECT(i < SLOTS && busy[i] && done[c].outcome == LEAT_OUTCOME_OK);
            const unsigned char *out = client->arena + (i * 2 + 1) * TENSOR_BYTES;
            for (size_t b = 0; b < TENSOR_BYTES; b++) {
                EXPECT(out[b] == (unsigned char)(expected[i] + (b < (size_t)items[i] * ITEM_BYTES)));
            }
            busy[i] = false;
        }
        collected += count;
    }
    EXPECT(leat_in_flight(client) == 0 && sent == QUERIES);
    stop_daemon_side();
    (void)close(client->socket);
    free(client->free_slots);
    free(client->slot_states);
    free(client->stash);
    free(client->targets);
    free(client);
    return 0;
}
