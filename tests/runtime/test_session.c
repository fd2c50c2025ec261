/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The orders S0/S1 and C0/C1 of the session's rings and the doorbell's B0..B3 are enough: requests and
 *          answers arrive whole, in order, once, and nobody sleeps through one.
 * Method   The two halves of a session over ONE mapping, so that TSan sees both sides of every access: the real
 *          client library with a session made by hand, and a daemon's half in a thread that reads cells
 *          as the dispatcher does and answers by leat_daemon_session_respond. The daemon sometimes sleeps.
 */
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/client/session.h"
#include "ipc/doorbell.h"
#include "runtime/session.h"
#include "tests/leat_test.h"

enum { SLOTS = 8, QUERIES = 40000, TENSOR_BYTES = 64 };

static struct leat_daemon_session *daemon_side;

/* Sleeps as the dispatcher does, on the eventfd, after announcing. */
static void
sleep_until_rung(uint64_t position)
{
    const uint64_t mask = (uint64_t)SLOTS * LEAT_SUBMIT_CELLS_PER_SLOT - 1;
    struct pollfd readable = {.fd = daemon_side->wake_fd, .events = POLLIN};
    uint64_t ignored;

    leat_bell_announce(&daemon_side->rings->daemon_bell, LEAT_BELL_EVENT);
    if (atomic_load_explicit(&daemon_side->submit_cells[position & mask].sequence, memory_order_acquire) != position + 1) {
        EXPECT(poll(&readable, 1, -1) == 1); /* a lost wake-up hangs here */
        EXPECT(read(daemon_side->wake_fd, &ignored, sizeof(ignored)) == sizeof(ignored));
    }
    leat_bell_withdraw(&daemon_side->rings->daemon_bell);
}

/* Answers every query with its input plus one, on a lane that depends on the query. */
static void *
serve(void *unused)
{
    const uint64_t mask = (uint64_t)SLOTS * LEAT_SUBMIT_CELLS_PER_SLOT - 1;

    for (uint64_t position = 0; position < QUERIES; position++) {
        const struct leat_wire_request *cell = &daemon_side->submit_cells[position & mask];
        while (atomic_load_explicit(&cell->sequence, memory_order_acquire) != position + 1) {
            sleep_until_rung(position);
        }
        struct leat_wire_request request;
        memcpy(&request, cell, sizeof(request));
        EXPECT(request.items == position % 5 + 1 && request.slot < SLOTS);
        const unsigned char *in = daemon_side->arena + (size_t)request.units[0] * LEAT_TENSOR_ALIGN;
        unsigned char *out = daemon_side->arena + (size_t)request.units[1] * LEAT_TENSOR_ALIGN;
        for (size_t b = 0; b < TENSOR_BYTES; b++) {
            out[b] = (unsigned char)(in[b] + 1);
        }
        const struct leat_wire_response response = {.ticket_low = request.ticket_low,
                                                    .slot = request.slot,
                                                    .outcome = LEAT_OUTCOME_OK,
                                                    .batch_items = (uint32_t)position};
        leat_daemon_session_respond(daemon_side, (uint32_t)(position % daemon_side->lane_count), &response);
        leat_daemon_session_ring(daemon_side);
    }
    return unused;
}

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
        .known = true, .items_max = 8, .tensor_count = 2, .item_bytes = {8, 8}};
    client->connected = true;
    client->options.spin_ns = UINT64_MAX;
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
    const struct leat_session_options options = {.slots = SLOTS, .lane_count = 3, .arena_bytes = 65536};
    char note[160];
    pthread_t thread;
    struct leat_completion done[SLOTS];
    unsigned char expected[SLOTS];
    uint64_t sent = 0, collected = 0, last[3] = {0};

    leat_test_init();
    EXPECT(leat_daemon_session_create(&options, &daemon_side, note) == LEAT_OK);
    struct leat_session *client = make_client();
    struct leat_query query = LEAT_QUERY_INIT;
    uint64_t random = leat_test_seed;
    bool busy[SLOTS] = {false};

    EXPECT(pthread_create(&thread, NULL, serve, NULL) == 0);
    while (collected < QUERIES) {
        for (uint32_t i = 0; i < SLOTS && sent < QUERIES; i++) {
            if (busy[i] || leat_test_random(&random) % 4 == 0) {
                continue;
            }
            query.items = (uint32_t)(sent % 5 + 1);
            query.user_data = i;
            query.tensors[0] = client->arena + (size_t)i * 2 * TENSOR_BYTES;
            query.tensors[1] = client->arena + (size_t)(i * 2 + 1) * TENSOR_BYTES;
            expected[i] = (unsigned char)leat_test_random(&random);
            memset(query.tensors[0], expected[i], TENSOR_BYTES);
            EXPECT(leat_submit(client, &query, NULL) == LEAT_OK);
            busy[i] = true;
            sent++;
        }
        size_t count = leat_test_random(&random) % 2 == 0 ? leat_poll(client, done, SLOTS) : 0;
        if (count == 0 && leat_in_flight(client) > 0) {
            EXPECT(leat_wait(client, done, SLOTS, UINT64_MAX, &count) == LEAT_OK);
        }
        for (size_t c = 0; c < count; c++) {
            const uint64_t i = done[c].user_data;
            const uint32_t lane = done[c].batch_items % 3;
            const unsigned char *out = client->arena + (i * 2 + 1) * TENSOR_BYTES;
            EXPECT(i < SLOTS && busy[i] && done[c].outcome == LEAT_OUTCOME_OK);
            EXPECT(done[c].batch_items >= last[lane]); /* in order within a lane */
            last[lane] = done[c].batch_items;
            for (size_t b = 0; b < TENSOR_BYTES; b++) {
                EXPECT(out[b] == (unsigned char)(expected[i] + 1));
            }
            busy[i] = false;
        }
        collected += count;
    }
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(leat_in_flight(client) == 0 && sent == QUERIES);
    free(client->free_slots);
    free(client->slot_states);
    free(client->stash);
    free(client->targets);
    free(client);
    leat_daemon_session_destroy(daemon_side);
    return 0;
}
