/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     An offline batch that is under way keeps nobody waiting: between two of its steps its worker answers whatever
 *          online queries come, and goes on with it afterwards. No second offline batch begins meanwhile. An idle worker comes
 *          first. Once it has waited for a second it is let end. Each query ends in one completion, with its own answer, whenever its batch was paused, refused or its client
 *          left; no time counts twice, and a pause is no part of the time that a batch took.
 * Method   Through a daemon in this process, whose backend is held by the test and yields meanwhile; then many queries of
 *          both kinds at random.
 */
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "tests/leat_test.h"
#include "tests/system/box.h"

enum { SLOTS = 64, QUERIES = LEAT_TEST_ROUNDS(10000), ONLINE = 200 };

static char socket_path[64];

static struct leat_completion
next_completion(struct box_client *client)
{
    struct leat_completion done;
    size_t count = 0;
    EXPECT(leat_wait(client->session, &done, 1, UINT64_MAX, &count) == LEAT_OK && count == 1);
    return done;
}

/* Offline, and held by a worker until box_release. */
static void
hold_offline(struct box *box, struct box_client *client)
{
    const uint32_t before = box_held(box);

    client->query.flags = LEAT_QUERY_OFFLINE;
    box_fill(client, &client->query, BOX_HOLD);
    EXPECT(leat_submit(client->session, &client->query, NULL) == LEAT_OK);
    while (box_held(box) == before) {
        leat_test_look_later();
    }
}

static struct leat_completion
ask(struct box_client *client, unsigned char byte)
{
    struct leat_completion done;
    box_fill(client, &client->query, byte);
    EXPECT(leat_run(client->session, &client->query, &done) == LEAT_OK && done.outcome == LEAT_OUTCOME_OK);
    EXPECT(box_check(client, &client->query, byte));
    return done;
}

static uint64_t
pauses_of(struct box *box, uint32_t worker)
{
    return atomic_load_explicit(&box_worker(box, worker)->statistics.pauses, memory_order_relaxed);
}

/* Until the worker has nothing under way that is not reported, and what it counts is whole. */
static uint64_t
busy_ns_after(struct box *box, uint32_t worker, uint64_t batches)
{
    while (atomic_load_explicit(&box_worker(box, worker)->statistics.batches, memory_order_relaxed) < batches) {
        leat_test_look_later();
    }
    return atomic_load_explicit(&box_worker(box, worker)->statistics.busy_ns, memory_order_relaxed);
}

static void
test_online_passes(void)
{
    const struct box_options options = {.socket_path = socket_path, .yields = true};
    struct box *box = box_start(&options);
    struct box_client offline[2], online;
    uint64_t exec_ns = 0;

    for (uint32_t c = 0; c < 2; c++) {
        box_connect(&offline[c], socket_path, SLOTS);
    }
    box_connect(&online, socket_path, SLOTS);
    hold_offline(box, &offline[0]);
    offline[1].query.flags = LEAT_QUERY_OFFLINE;
    box_fill(&offline[1], &offline[1].query, 7);
    EXPECT(leat_submit(offline[1].session, &offline[1].query, NULL) == LEAT_OK);
    for (uint32_t n = 0; n < ONLINE; n++) {
        exec_ns += ask(&online, (unsigned char)(n % 200)).exec_ns;
    }
    EXPECT(leat_in_flight(offline[0].session) == 1 && leat_in_flight(offline[1].session) == 1);
    box_release(box);
    for (uint32_t c = 0; c < 2; c++) {
        const struct leat_completion done = next_completion(&offline[c]);
        EXPECT(done.outcome == LEAT_OUTCOME_OK && box_check(&offline[c], &offline[c].query, c == 0 ? BOX_HOLD : 7));
        EXPECT(done.queue_ns + done.exec_ns == done.total_ns);
        EXPECT(c > 0 || done.queue_ns >= exec_ns); /* it waited for them */
        exec_ns += done.exec_ns;
        box_disconnect(&offline[c]);
    }
    EXPECT(busy_ns_after(box, 0, ONLINE + 2) == exec_ns);
    EXPECT(pauses_of(box, 0) >= 1 && pauses_of(box, 0) <= ONLINE);
    box_disconnect(&online);
    box_stop(box);
}

/* Until the dispatcher knows that so many queries have. */
static void
await_ended(struct box *box, uint64_t queries)
{
    while (atomic_load_explicit(&box_application(box)->counters.ok, memory_order_relaxed) < queries) {
        leat_test_look_later();
    }
}

static void
test_idle_first(void)
{
    const struct box_options options = {.socket_path = socket_path, .workers = 3, .yields = true};
    struct box *box = box_start(&options);
    struct box_client offline[3], online;

    for (uint32_t c = 0; c < 3; c++) {
        box_connect(&offline[c], socket_path, SLOTS);
        hold_offline(box, &offline[c]); /* by the first c + 1 workers */
    }
    box_connect(&online, socket_path, SLOTS);
    const struct leat_completion beside = ask(&online, 1);
    while (pauses_of(box, beside.worker) == 0) { /* counted behind the answer */
        leat_test_look_later();
    }
    box_release(box);
    uint32_t free = 0;
    while (leat_in_flight(offline[free].session) > 0) {
        struct leat_completion done;
        const size_t count = leat_poll(offline[free].session, &done, 1);
        free = count == 0 ? (free + 1) % 3 : free;
        EXPECT(count == 0 || done.outcome == LEAT_OUTCOME_OK);
    }
    const uint64_t before = pauses_of(box, 0) + pauses_of(box, 1) + pauses_of(box, 2);
    await_ended(box, 2);
    const uint32_t idle = ask(&online, 2).worker;
    for (uint32_t n = 0; n < ONLINE; n++) {
        await_ended(box, 3 + n); /* with one of the three that were held */
        EXPECT(ask(&online, (unsigned char)(n % 200)).worker == idle);
    }
    EXPECT(pauses_of(box, 0) + pauses_of(box, 1) + pauses_of(box, 2) == before);
    box_release(box);
    box_release(box);
    for (uint32_t c = 0; c < 3; c++) {
        while (leat_in_flight(offline[c].session) > 0) {
            EXPECT(next_completion(&offline[c]).outcome == LEAT_OUTCOME_OK);
        }
        box_disconnect(&offline[c]);
    }
    box_disconnect(&online);
    box_stop(box);
}

static _Atomic bool others_are_long; /* relaxed on purpose */

static void
take_long(void)
{
    const uint64_t begin_ns = leat_monotonic_ns();

    while (atomic_load_explicit(&others_are_long, memory_order_relaxed) && leat_monotonic_ns() - begin_ns < LEAT_DISPATCHER_PAUSES_NS) {
        leat_spin_pause();
    }
}

/* What comes after that waits for its end. */
static void
await_waiting(struct box *box, struct box_client *client)
{
    struct leat_completion done;

    box_fill(client, &client->query, 2);
    EXPECT(leat_submit(client->session, &client->query, NULL) == LEAT_OK);
    while (atomic_load_explicit(&box_application(box)->counters.waiting, memory_order_relaxed) == 0) {
        EXPECT(leat_poll(client->session, &done, 1) == 0); /* nobody has answered it */
        leat_test_look_later();
    }
}

static void
test_not_for_ever(void)
{
    const struct box_options options = {.socket_path = socket_path, .yields = true, .on_worker = take_long};
    struct box *box = box_start(&options);
    struct box_client offline, online;

    box_connect(&offline, socket_path, SLOTS);
    box_connect(&online, socket_path, SLOTS);
    hold_offline(box, &offline);
    (void)ask(&online, 0);
    atomic_store_explicit(&others_are_long, true, memory_order_relaxed);
    (void)ask(&online, 1);
    await_ended(box, 2);
    atomic_store_explicit(&others_are_long, false, memory_order_relaxed);
    await_waiting(box, &online);
    box_release(box);
    const struct leat_completion done = next_completion(&offline);
    EXPECT(done.outcome == LEAT_OUTCOME_OK && done.queue_ns >= LEAT_DISPATCHER_PAUSES_NS);
    EXPECT(next_completion(&online).outcome == LEAT_OUTCOME_OK && box_check(&online, &online.query, 2));
    hold_offline(box, &offline); /* the next gives way as the first did */
    (void)ask(&online, 3);
    box_release(box);
    EXPECT(next_completion(&offline).outcome == LEAT_OUTCOME_OK);
    box_disconnect(&offline);
    box_disconnect(&online);
    box_stop(box);
}

/* Its memory stays until its batch has ended, which others pass all the same. */
static void
test_client_leaves(void)
{
    const struct box_options options = {.socket_path = socket_path, .yields = true};
    struct box *box = box_start(&options);
    struct box_client offline, online;

    box_connect(&offline, socket_path, SLOTS);
    box_connect(&online, socket_path, SLOTS);
    hold_offline(box, &offline);
    (void)ask(&online, 1);
    box_disconnect(&offline);
    for (uint32_t n = 0; n < ONLINE; n++) {
        (void)ask(&online, (unsigned char)(n % 200));
    }
    EXPECT(box_sessions(box).sessions == 2);
    box_release(box);
    while (box_sessions(box).sessions > 1) {
        leat_test_look_later();
    }
    (void)ask(&online, 3);
    box_disconnect(&online);
    box_stop(box);
}

/* One slot's query; what its input is filled with says what is to become of it. */
struct slot {
    struct leat_query query;
    unsigned char byte;
    bool busy;
};

static void
test_random(void)
{
    const struct box_options options = {.socket_path = socket_path, .workers = 2, .waiting_max = 4 * SLOTS, .yields = true};
    static struct slot slots[2][SLOTS]; /* online, offline */
    struct box *box = box_start(&options);
    struct box_client clients[2];
    uint64_t random = leat_test_seed, ended = 0, refused = 0;
    uint32_t released = 0, asked = 0;

    memset(slots, 0, sizeof(slots));
    for (uint32_t c = 0; c < 2; c++) {
        box_connect(&clients[c], socket_path, SLOTS);
        for (uint32_t s = 0; s < SLOTS; s++) {
            struct leat_query *query = &slots[c][s].query;
            *query = clients[c].query;
            query->items = 1 + (uint32_t)(s % 4);
            query->user_data = s;
            query->flags = c > 0 ? LEAT_QUERY_OFFLINE : 0;
            for (uint32_t t = 0; t < 2; t++) {
                EXPECT(leat_tensor_alloc(clients[c].session, clients[c].target.tensors[t].item_bytes * query->items,
                                         &query->tensors[t]) == LEAT_OK);
            }
        }
    }
    while (asked < QUERIES || leat_in_flight(clients[0].session) + leat_in_flight(clients[1].session) > 0) {
        bool any = false;
        /* At first they are held until something has passed one, as it must once all workers hold some. */
        const bool passed = pauses_of(box, 0) + pauses_of(box, 1) > 0;
        if (box_held(box) > released && (asked >= QUERIES || (passed && leat_test_random(&random) % 64 == 0))) {
            box_release(box);
            released++;
        }
        for (uint32_t c = 0; c < 2; c++) {
            struct slot *slot = &slots[c][leat_test_random(&random) % SLOTS];
            if (!slot->busy && asked < QUERIES) {
                const uint32_t draw = (uint32_t)(leat_test_random(&random) % 32);
                const unsigned char any_byte = (unsigned char)(leat_test_random(&random) % 200);
                slot->byte = draw == 0 ? BOX_REFUSE : draw == 1 && c > 0 ? BOX_HOLD : any_byte;
                slot->busy = any = true;
                asked++;
                box_fill(&clients[c], &slot->query, slot->byte);
                EXPECT(leat_submit(clients[c].session, &slot->query, NULL) == LEAT_OK);
            }
            struct leat_completion done[SLOTS];
            const size_t count = leat_poll(clients[c].session, done, SLOTS);
            any = any || count > 0;
            for (size_t i = 0; i < count; i++) {
                struct slot *of = &slots[c][done[i].user_data];
                EXPECT(of->busy);
                of->busy = false;
                if (of->byte == BOX_REFUSE) {
                    EXPECT(done[i].outcome == LEAT_OUTCOME_FAILED && done[i].reason == LEAT_REASON_PAYLOAD);
                    refused++;
                } else {
                    EXPECT(done[i].outcome == LEAT_OUTCOME_OK && box_check(&clients[c], &of->query, of->byte));
                }
                ended++;
            }
        }
        if (!any) {
            (void)sched_yield();
        }
    }
    EXPECT(ended == asked && refused > 0 && pauses_of(box, 0) + pauses_of(box, 1) > 0);
    box_disconnect(&clients[0]);
    box_disconnect(&clients[1]);
    box_stop(box);
}

int
main(void)
{
    leat_test_init();
    (void)snprintf(socket_path, sizeof(socket_path), "/tmp/leat-test-giving-way-%d.sock", (int)getpid());
    test_online_passes();
    test_idle_first();
    test_not_for_ever();
    test_client_leaves();
    test_random();
    return 0;
}
