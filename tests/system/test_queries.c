/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A query ends in exactly one completion that says the truth, whatever its fate: answered, batched,
 *          refused, expired, cancelled, failed; and every wrong call is refused with its own status.
 * Method   Examples through a real daemon in this process; the backend can be held, so every order of events
 *          that a case needs is made, not hoped for.
 */
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if LEAT_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

#include "ipc/client/session.h"
#include "tests/leat_test.h"
#include "tests/system/box.h"

enum { NOBODY = 65534 };

static char socket_path[64];

static struct leat_completion
ask(struct box_client *client, unsigned char byte)
{
    struct leat_completion done;
    box_fill(client, &client->query, byte);
    EXPECT(leat_run(client->session, &client->query, &done) == LEAT_OK);
    return done;
}

static struct leat_completion
next_completion(struct box_client *client)
{
    struct leat_completion done;
    size_t count = 0;
    EXPECT(leat_wait(client->session, &done, 1, UINT64_MAX, &count) == LEAT_OK && count == 1);
    return done;
}

/* A query of its own with fresh tensors. */
static struct leat_query
another(struct box_client *client, uint32_t items)
{
    struct leat_query query = client->query;
    query.items = items;
    for (uint32_t t = 0; t < client->target.input_count + client->target.output_count; t++) {
        EXPECT(leat_tensor_alloc(client->session, client->target.tensors[t].item_bytes * items, &query.tensors[t]) ==
               LEAT_OK);
    }
    return query;
}

static void
drop(struct box_client *client, const struct leat_query *query)
{
    for (uint32_t t = 0; t < client->target.input_count + client->target.output_count; t++) {
        leat_tensor_free(client->session, query->tensors[t]);
    }
}

/* Occupies the worker until box_release; returns once the worker has begun. */
static struct leat_query
hold_worker(struct box *box, struct box_client *client, uint64_t user_data)
{
    const uint32_t before = box_held(box);
    struct leat_query query = another(client, 1);
    query.user_data = user_data;
    query.latency_ns = UINT64_C(3600000000000); /* an hour: never in its way */
    box_fill(client, &query, BOX_HOLD);
    EXPECT(leat_submit(client->session, &query, NULL) == LEAT_OK);
    while (box_held(box) == before) {
        leat_test_look_later();
    }
    return query;
}

/* The same without waiting for it to begin. */
static struct leat_query
hold_worker_behind(struct box_client *client, uint64_t user_data)
{
    struct leat_query query = another(client, 1);
    query.user_data = user_data;
    query.latency_ns = UINT64_C(3600000000000);
    box_fill(client, &query, BOX_HOLD);
    EXPECT(leat_submit(client->session, &query, NULL) == LEAT_OK);
    return query;
}

static void
test_answers_are_right(void)
{
    const struct box_options options = {.socket_path = socket_path, .workers = 2};
    struct box *box = box_start(&options);
    struct box_client client;

    box_connect(&client, socket_path, 16);
    for (unsigned n = 0; n < 500; n++) {
        const unsigned char byte = (unsigned char)(n % 200);
        client.query.user_data = n;
        const struct leat_completion done = ask(&client, byte);
        EXPECT(done.outcome == LEAT_OUTCOME_OK && done.reason == LEAT_REASON_NONE && done.user_data == n);
        EXPECT(done.batch_items == 1 && done.variant == 0 && done.worker < 2);
        EXPECT(done.total_ns >= done.exec_ns && done.total_ns >= done.queue_ns);
        EXPECT(box_check(&client, &client.query, byte));
    }
    EXPECT(leat_in_flight(client.session) == 0);
    box_disconnect(&client);
    box_stop(box);
}

/* Many in flight, of different sizes, collected out of order; each ticket comes back once. */
static void
test_many_in_flight(uint32_t pairs)
{
    enum { SLOTS = 32, ROUNDS = 300 };
    const struct box_options options = {.socket_path = socket_path, .workers = 3, .pairs = pairs, .spin_ns = 20000};
    struct box *box = box_start(&options);
    struct box_client client;
    struct leat_query queries[SLOTS];
    struct leat_completion done[SLOTS];
    uint64_t random = leat_test_seed;
    uint64_t batched = 0;

    box_connect(&client, socket_path, SLOTS);
    for (int i = 0; i < SLOTS; i++) {
        queries[i] = another(&client, 1 + (uint32_t)i % 8);
    }
    for (int round = 0; round < ROUNDS; round++) {
        bool seen[SLOTS] = {false};
        unsigned char bytes[SLOTS];
        size_t submitted;
        for (int i = 0; i < SLOTS; i++) {
            bytes[i] = (unsigned char)(leat_test_random(&random) % 0xf0);
            queries[i].user_data = (uint64_t)i;
            box_fill(&client, &queries[i], bytes[i]);
        }
        EXPECT(leat_submit_batch(client.session, queries, SLOTS, &submitted) == LEAT_OK && submitted == SLOTS);
        EXPECT(leat_submit(client.session, &queries[0], NULL) == LEAT_AGAIN);
        for (size_t got = 0; got < SLOTS;) {
            size_t count;
            EXPECT(leat_wait(client.session, done, 7, UINT64_MAX, &count) == LEAT_OK && count >= 1 && count <= 7);
            for (size_t c = 0; c < count; c++) {
                const uint64_t i = done[c].user_data;
                EXPECT(i < SLOTS && !seen[i] && done[c].outcome == LEAT_OUTCOME_OK);
                EXPECT(box_check(&client, &queries[i], bytes[i]) && done[c].batch_items >= queries[i].items);
                batched += done[c].batch_items > queries[i].items;
                seen[i] = true;
            }
            got += count;
        }
    }
    EXPECT(batched > 0); /* some queries shared a batch */
    box_disconnect(&client);
    box_stop(box);
}

static void
test_wrong_calls(void)
{
    const struct box_options options = {.socket_path = socket_path};
    struct box *box = box_start(&options);
    struct box_client client;
    struct leat_target target;
    struct leat_completion done;
    struct leat_query query;
    size_t count;
    void *memory;
    float outside[16];

    box_connect(&client, socket_path, 4);
    struct leat_session *session = client.session;
    EXPECT(leat_find(session, "nothing", &target) == LEAT_ERR_NOT_FOUND);
    EXPECT(strstr(leat_error_text(), "nothing") != NULL);
    EXPECT(leat_find(session, "", &target) == LEAT_ERR_INVALID);

    query = client.query;
    query.size = 7;
    EXPECT(leat_submit(session, &query, NULL) == LEAT_ERR_INVALID);
    query = client.query;
    query.target = 77;
    EXPECT(leat_submit(session, &query, NULL) == LEAT_ERR_INVALID);
    query = client.query;
    query.items = 0;
    EXPECT(leat_submit(session, &query, NULL) == LEAT_ERR_INVALID);
    query.items = 9;
    EXPECT(leat_submit(session, &query, NULL) == LEAT_ERR_INVALID);
    query = client.query;
    query.tensors[1] = NULL;
    EXPECT(leat_submit(session, &query, NULL) == LEAT_ERR_SHAPE);
    query.tensors[1] = outside;
    EXPECT(leat_submit(session, &query, NULL) == LEAT_ERR_SHAPE);
    query.tensors[1] = (char *)client.query.tensors[1] + 1; /* misaligned */
    EXPECT(leat_submit(session, &query, NULL) == LEAT_ERR_SHAPE);
    query = client.query;
    query.accuracy_floor_ppm = 1000001;
    EXPECT(leat_submit(session, &query, NULL) == LEAT_ERR_INVALID);
    query = client.query;
    query.reserved_0 = 1;
    EXPECT(leat_submit(session, &query, NULL) == LEAT_ERR_INVALID && strstr(leat_error_text(), "reserved") != NULL);
    query = client.query;
    query.reserved[0] = UINT64_C(1) << 32;
    EXPECT(leat_submit(session, &query, NULL) == LEAT_ERR_INVALID && strstr(leat_error_text(), "reserved") != NULL);
    EXPECT(leat_in_flight(session) == 0); /* none of that took a slot */

    EXPECT(leat_tensor_alloc(session, 0, &memory) == LEAT_ERR_INVALID);
    EXPECT(leat_tensor_alloc(session, 1 << 21, &memory) == LEAT_ERR_NOMEM);
    EXPECT(leat_tensor_alloc(session, (1 << 20) - 64, &memory) == LEAT_ERR_NOMEM);
    EXPECT(strstr(leat_error_text(), "exhausted") != NULL);
    EXPECT(leat_cancel(session, 12345) == LEAT_ERR_NOT_FOUND);
    EXPECT(leat_wait(session, &done, 1, 0, &count) == LEAT_AGAIN);
    EXPECT(leat_wait(session, &done, 0, 0, &count) == LEAT_ERR_INVALID);
    EXPECT(leat_poll(session, &done, 1) == 0);
    EXPECT(leat_reconnect(session) == LEAT_OK); /* allowed at any time when nothing is in flight */
    box_disconnect(&client);
    box_stop(box);
}

#if !defined(__SANITIZE_THREAD__) /* it does not follow forks of threaded processes */
static bool
free_aborts(struct leat_session *session, void *memory)
{
    const struct rlimit none = {0, 0};
    int status = 0;

    (void)fflush(NULL);
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        (void)setrlimit(RLIMIT_CORE, &none);
        leat_tensor_free(session, memory);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* What is no tensor ends the process, and not only where asserts are compiled in: another tensor would be spoilt. */
static void
test_freeing_what_is_no_tensor(void)
{
    const struct box_options options = {.socket_path = socket_path};
    struct box *box = box_start(&options);
    struct box_client client;
    char outside[64];
    void *memory;

    box_connect(&client, socket_path, 4);
    EXPECT(leat_tensor_alloc(client.session, 256, &memory) == LEAT_OK);
    EXPECT(!free_aborts(client.session, memory) && !free_aborts(client.session, NULL));
    EXPECT(free_aborts(client.session, outside) && free_aborts(client.session, (char *)memory + 64));
    leat_tensor_free(client.session, memory);
    EXPECT(free_aborts(client.session, memory));
    box_disconnect(&client);
    box_stop(box);
}
#endif

/* The daemon's own checks, behind those of the library: an output that overlaps an input. */
static void
test_overlap_is_rejected(uint32_t pairs)
{
    const struct box_options options = {.socket_path = socket_path, .pairs = pairs};
    struct box *box = box_start(&options);
    struct box_client client;

    box_connect(&client, socket_path, 4);
    client.query.tensors[2 * pairs - 1] = client.query.tensors[pairs - 1];
    struct leat_completion done;
    EXPECT(leat_run(client.session, &client.query, &done) == LEAT_OK);
    EXPECT(done.outcome == LEAT_OUTCOME_REJECTED && done.reason == LEAT_REASON_TENSOR && done.worker == UINT16_MAX);
    box_disconnect(&client);
    box_stop(box);
}

static void
test_failed_batch(void)
{
    const struct box_options options = {.socket_path = socket_path};
    struct box *box = box_start(&options);
    struct box_client client;

    box_connect(&client, socket_path, 4);
    struct leat_completion done = ask(&client, BOX_REFUSE);
    EXPECT(done.outcome == LEAT_OUTCOME_FAILED && done.reason == LEAT_REASON_PAYLOAD);
    done = ask(&client, 3); /* the worker goes on */
    EXPECT(done.outcome == LEAT_OUTCOME_OK && box_check(&client, &client.query, 3));
    box_disconnect(&client);
    box_stop(box);
}

/* A query whose values are refused fails alone, whoever else is in its batch. */
static void
test_failure_spoils_nobody_else(void)
{
    const struct box_options options = {.socket_path = socket_path};
    struct box *box = box_start(&options);
    struct box_client client;
    struct leat_query queries[6];
    unsigned failed = 0;

    box_connect(&client, socket_path, 16);
    (void)hold_worker(box, &client, 99);
    (void)hold_worker_behind(&client, 98); /* fills the worker's second place, so that the six wait together */
    for (uint64_t i = 0; i < 6; i++) {
        queries[i] = another(&client, 1);
        queries[i].user_data = i;
        box_fill(&client, &queries[i], i == 3 ? BOX_REFUSE : (unsigned char)i);
        EXPECT(leat_submit(client.session, &queries[i], NULL) == LEAT_OK);
    }
    for (int n = 0; n < 3; n++) { /* two, and one more if the second shared the batch that is run again */
        box_release(box);
    }
    for (int n = 0; n < 8; n++) {
        const struct leat_completion done = next_completion(&client);
        if (done.user_data == 3) {
            EXPECT(done.outcome == LEAT_OUTCOME_FAILED && done.reason == LEAT_REASON_PAYLOAD);
            failed++;
        } else {
            EXPECT(done.outcome == LEAT_OUTCOME_OK);
            EXPECT(done.user_data >= 6 || box_check(&client, &queries[done.user_data], (unsigned char)done.user_data));
        }
    }
    EXPECT(failed == 1);
    box_disconnect(&client);
    box_stop(box);
}

static void
test_cancel(void)
{
    const struct box_options options = {.socket_path = socket_path, .items_max = 1};
    struct box *box = box_start(&options);
    struct box_client client;
    struct leat_query waiting[4];
    uint64_t tickets[4];
    bool seen[5] = {false};

    box_connect(&client, socket_path, 8);
    struct leat_query holder = hold_worker(box, &client, 4);
    for (uint64_t i = 0; i < 4; i++) { /* the first also goes to the worker (depth 2), three wait */
        waiting[i] = another(&client, 1);
        waiting[i].user_data = i;
        box_fill(&client, &waiting[i], 9);
        EXPECT(leat_submit(client.session, &waiting[i], &tickets[i]) == LEAT_OK);
    }
    EXPECT(leat_cancel(client.session, tickets[2]) == LEAT_OK);
    EXPECT(leat_cancel(client.session, tickets[2]) == LEAT_OK); /* twice asks once */
    struct leat_completion done = next_completion(&client);
    EXPECT(done.user_data == 2 && done.outcome == LEAT_OUTCOME_CANCELLED && done.ticket == tickets[2]);
    EXPECT(leat_cancel(client.session, tickets[2]) == LEAT_ERR_NOT_FOUND);
    box_release(box);
    for (int n = 0; n < 4; n++) {
        done = next_completion(&client);
        EXPECT(done.outcome == LEAT_OUTCOME_OK && done.user_data < 5 && !seen[done.user_data] && done.user_data != 2);
        seen[done.user_data] = true;
    }
    drop(&client, &holder);
    EXPECT(leat_in_flight(client.session) == 0);
    box_disconnect(&client);
    box_stop(box);
}

static void
test_bounded_queue(void)
{
    const struct box_options options = {.socket_path = socket_path, .items_max = 1, .waiting_max = 3};
    struct box *box = box_start(&options);
    struct box_client client;
    unsigned ok = 0, full = 0;

    box_connect(&client, socket_path, 16);
    struct leat_query query = hold_worker(box, &client, 0);
    for (int i = 0; i < 8; i++) { /* one more fits on the worker, three wait, four are refused */
        query = another(&client, 1);
        box_fill(&client, &query, 1);
        EXPECT(leat_submit(client.session, &query, NULL) == LEAT_OK);
    }
    for (int i = 0; i < 4; i++) {
        const struct leat_completion done = next_completion(&client);
        EXPECT(done.outcome == LEAT_OUTCOME_REJECTED && done.reason == LEAT_REASON_QUEUE_FULL);
        full++;
    }
    box_release(box);
    for (int i = 0; i < 5; i++) {
        ok += next_completion(&client).outcome == LEAT_OUTCOME_OK;
    }
    EXPECT(ok == 5 && full == 4);
    box_disconnect(&client);
    box_stop(box);
}

/* A query that the first worker cannot do in time but another can is accepted. */
static void
test_some_worker_is_in_time(void)
{
    const struct box_options options = {.socket_path = socket_path, .workers = 2, .items_max = 1,
                                        .predicted_ns = 60000000000, .last_worker_ns = 1000, .latency_ns = 10000000000};
    struct box *box = box_start(&options);
    struct box_client client;

    box_connect(&client, socket_path, 8);
    EXPECT(ask(&client, 1).outcome == LEAT_OUTCOME_OK);
    box_disconnect(&client);
    box_stop(box);
}

/* Refused at once when the prediction says so; dropped when the time passed while waiting; never run late. */
static void
test_deadlines(void)
{
    const struct box_options options = {
        .socket_path = socket_path, .items_max = 1, .predicted_ns = 50000000, .latency_ns = 10000000};
    struct box *box = box_start(&options);
    struct box_client client;

    box_connect(&client, socket_path, 8);
    struct leat_completion done = ask(&client, 1); /* 50 ms predicted, 10 ms allowed */
    EXPECT(done.outcome == LEAT_OUTCOME_REJECTED && done.reason == LEAT_REASON_DEADLINE);
    client.query.latency_ns = 60000000000;
    done = ask(&client, 1);
    EXPECT(done.outcome == LEAT_OUTCOME_OK);

    client.query.latency_ns = 60000000000;
    struct leat_query holder = hold_worker(box, &client, 1);
    (void)holder;
    client.query.user_data = 2;
    client.query.latency_ns = 300000000; /* waits behind the held one, on the worker's own ring */
    box_fill(&client, &client.query, 7);
    EXPECT(leat_submit(client.session, &client.query, NULL) == LEAT_OK);
    struct leat_query third = another(&client, 1);
    third.user_data = 3;
    third.latency_ns = 300000000; /* and this one in the dispatcher's list, where it expires */
    EXPECT(leat_submit(client.session, &third, NULL) == LEAT_OK);
    done = next_completion(&client);
    EXPECT(done.user_data == 3);
    EXPECT(done.outcome == LEAT_OUTCOME_EXPIRED || (done.outcome == LEAT_OUTCOME_REJECTED));
    const uint64_t until_ns = leat_monotonic_ns() + 350000000;
    while (leat_monotonic_ns() < until_ns) {
        leat_test_look_later(); /* the deadline itself is what is waited for */
    }
    box_release(box);
    for (int n = 0; n < 2; n++) {
        done = next_completion(&client);
        if (done.user_data == 2) {
            EXPECT(done.outcome == LEAT_OUTCOME_EXPIRED);
            EXPECT(!box_check(&client, &client.query, 7)); /* it was not run */
        }
    }
    box_disconnect(&client);
    box_stop(box);
}

static void
test_serve_late(void)
{
    const struct box_options options = {.socket_path = socket_path,
                                        .predicted_ns = 50000000,
                                        .latency_ns = 1000000,
                                        .serve_late = true};
    struct box *box = box_start(&options);
    struct box_client client;

    box_connect(&client, socket_path, 8);
    const struct leat_completion done = ask(&client, 1);
    EXPECT(done.outcome == LEAT_OUTCOME_OK && box_check(&client, &client.query, 1));
    box_disconnect(&client);
    box_stop(box);
}

static void
test_event_loop(void)
{
    const struct box_options options = {.socket_path = socket_path, .items_max = 1};
    struct box *box = box_start(&options);
    struct box_client client;
    struct leat_completion done;

    box_connect(&client, socket_path, 8);
    struct pollfd readable = {.fd = leat_event_fd(client.session), .events = POLLIN};
    EXPECT(readable.fd >= 0);
    for (int n = 0; n < 200; n++) {
        const struct leat_query query = hold_worker(box, &client, (uint64_t)n);
        EXPECT(leat_event_arm(client.session) == LEAT_AGAIN);
        EXPECT(poll(&readable, 1, 0) == 0); /* nothing yet, and no stale wake-up */
        box_release(box);
        EXPECT(poll(&readable, 1, -1) == 1);
        while (leat_poll(client.session, &done, 1) == 0) {
            EXPECT(leat_event_arm(client.session) == LEAT_OK || poll(&readable, 1, -1) == 1);
        }
        EXPECT(done.user_data == (uint64_t)n && done.outcome == LEAT_OUTCOME_OK);
        drop(&client, &query);
    }
    box_disconnect(&client);
    box_stop(box);
}

static void
test_wait_times_out(void)
{
    const struct box_options options = {.socket_path = socket_path};
    struct box *box = box_start(&options);
    struct box_client client;
    struct leat_completion done;
    size_t count;

    box_connect(&client, socket_path, 8);
    const struct leat_query query = hold_worker(box, &client, 5);
    (void)query;
    EXPECT(leat_wait(client.session, &done, 1, 2000000, &count) == LEAT_TIMEOUT);
    EXPECT(leat_in_flight(client.session) == 1); /* nothing changed hands */
    box_release(box);
    EXPECT(next_completion(&client).user_data == 5);
    box_disconnect(&client);
    box_stop(box);
}

/* leat_run waits for its own; what else ends meanwhile stays for leat_poll. leat_call copies in and out. */
static void
test_conveniences(void)
{
    const struct box_options options = {.socket_path = socket_path};
    struct box *box = box_start(&options);
    struct box_client client;
    struct leat_completion done;
    unsigned char in[128], out[128];
    const void *inputs[] = {in};
    void *outputs[] = {out};

    box_connect(&client, socket_path, 8);
    struct leat_query first = another(&client, 1);
    first.user_data = 11;
    box_fill(&client, &first, 4);
    EXPECT(leat_submit(client.session, &first, NULL) == LEAT_OK);
    client.query.user_data = 12;
    EXPECT(ask(&client, 5).user_data == 12);
    EXPECT(leat_in_flight(client.session) == 1);
    done = next_completion(&client);
    EXPECT(done.user_data == 11 && done.outcome == LEAT_OUTCOME_OK && box_check(&client, &first, 4));
    memset(in, 6, sizeof(in));
    EXPECT(leat_call(client.session, &client.target, 2, inputs, outputs, 0, &done) == LEAT_OK);
    EXPECT(done.outcome == LEAT_OUTCOME_OK && out[0] == (unsigned char)~6 && out[127] == (unsigned char)~6);
    EXPECT(leat_call(client.session, &client.target, 9, inputs, outputs, 0, &done) == LEAT_ERR_INVALID);
    box_disconnect(&client);
    box_stop(box);
}

static void
test_opening_is_refused(void)
{
    const struct box_options options = {.socket_path = socket_path, .sessions_max = 1};
    struct leat_options wish = LEAT_OPTIONS_INIT;
    struct leat_session *session;
    char other[80];

    (void)snprintf(other, sizeof(other), "%s.none", socket_path);
    wish.socket_path = other;
    EXPECT(leat_open(&wish, &session) == LEAT_ERR_SYS && strstr(leat_error_text(), "leat serve") != NULL);
    struct box *box = box_start(&options);
    wish.socket_path = socket_path;
    wish.arena_bytes = 1 << 30;
    EXPECT(leat_open(&wish, &session) == LEAT_ERR_LIMIT && strstr(leat_error_text(), "arena") != NULL);
    wish.arena_bytes = 0;
    wish.slots = 4096;
    EXPECT(leat_open(&wish, &session) == LEAT_ERR_LIMIT);
    wish.slots = 100000;
    EXPECT(leat_open(&wish, &session) == LEAT_ERR_INVALID);
    wish.slots = 0;
    wish.size = 3;
    EXPECT(leat_open(&wish, &session) == LEAT_ERR_INVALID);
    wish.size = sizeof(wish);
    for (size_t i = 0; i < LEAT_COUNT_OF(wish.reserved); i++) {
        wish.reserved[i] = UINT64_C(1) << 32;
        EXPECT(leat_open(&wish, &session) == LEAT_ERR_INVALID && strstr(leat_error_text(), "reserved") != NULL);
        wish.reserved[i] = 0;
    }
    struct box_client client;
    box_connect(&client, socket_path, 4);
    wish = (struct leat_options)LEAT_OPTIONS_INIT;
    wish.socket_path = socket_path;
    EXPECT(leat_open(&wish, &session) == LEAT_ERR_LIMIT && strstr(leat_error_text(), "sessions") != NULL);
    box_disconnect(&client);
    box_stop(box);
}

/* Opens a session each time that a byte comes, says how that went, and ends. Root may always, so it is nobody first. */
_Noreturn static void
open_as_stranger(int channel)
{
    struct leat_options wish = LEAT_OPTIONS_INIT;
    struct leat_session *session;
    char byte;

    wish.socket_path = socket_path;
    if (geteuid() == 0) {
        EXPECT(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0 && geteuid() == NOBODY);
    }
    while (read(channel, &byte, 1) == 1) {
        const enum leat_status status = leat_open(&wish, &session);
        EXPECT(write(channel, &status, sizeof(status)) == sizeof(status));
        if (status == LEAT_OK) {
            leat_close(session);
        }
    }
    _exit(0);
}

static enum leat_status
ask_stranger(int channel)
{
    enum leat_status status;
    EXPECT(write(channel, "", 1) == 1 && read(channel, &status, sizeof(status)) == sizeof(status));
    return status;
}

static void
test_socket_needs_permission(void)
{
    const struct box_options options = {.socket_path = socket_path};
    int ends[2], status;

    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    (void)fflush(NULL);
    const pid_t stranger = fork(); /* before there are threads */
    EXPECT(stranger >= 0);
    if (stranger == 0) {
        (void)close(ends[0]);
        open_as_stranger(ends[1]);
    }
    (void)close(ends[1]);
    struct box *box = box_start(&options);
    EXPECT(chmod(socket_path, 0) == 0);
    EXPECT(ask_stranger(ends[0]) == LEAT_ERR_ACCESS);
    EXPECT(chmod(socket_path, 0666) == 0);
    EXPECT(ask_stranger(ends[0]) == LEAT_OK); /* nothing else was in the way */
    (void)close(ends[0]);
    EXPECT(waitpid(stranger, &status, 0) == stranger && status == 0);
    box_stop(box);
}

/* True for all spinning threads or for none: daemon and clients read one ceiling. */
static void
expect_ceiling(struct box *box, const struct box_client *client, uint64_t spin_ns)
{
    const struct leat_shared_tables *tables = box_worker(box, 0)->options.tables;
    const uint64_t told_ns = spin_ns < UINT32_MAX ? spin_ns : UINT32_MAX;
    while (atomic_load_explicit(&client->session->rings->spin_ns, memory_order_relaxed) != told_ns) {
        leat_test_look_later(); /* a session that closed is noticed a little later */
    }
    EXPECT(atomic_load_explicit(&tables->spin_ns, memory_order_relaxed) == spin_ns);
}

static uint64_t
dispatcher_sleeps(struct box *box)
{
    struct leat_dispatcher_statistics statistics;
    leat_dispatcher_statistics(box_dispatcher(box), &statistics);
    return statistics.parks;
}

/*
 * Dispatcher and worker spin for ever, until a client comes for whom there is no core: then they sleep at once, as the
 * clients do. This test does not end if one goes on.
 */
static void
test_nobody_spins_without_cores(void)
{
    const uint64_t for_ever = UINT64_MAX / 4;
    const struct box_options options = {.socket_path = socket_path, .cores = 3, .spin_ns = for_ever};
    struct box *box = box_start(&options);
    struct leat_worker *worker = box_worker(box, 0);
    struct box_client first, second;

    box_connect(&first, socket_path, 16);
    expect_ceiling(box, &first, for_ever);
    EXPECT(ask(&first, 1).outcome == LEAT_OUTCOME_OK);
    EXPECT(atomic_load(&worker->statistics.parks) == 0 && dispatcher_sleeps(box) == 0);
    for (int round = 0; round < 4; round++) {
        const uint64_t sleeps = dispatcher_sleeps(box);
        box_connect(&second, socket_path, 16);
        expect_ceiling(box, &first, 0);
        expect_ceiling(box, &second, 0);
        while (atomic_load(&worker->bell.asleep) == LEAT_BELL_AWAKE || dispatcher_sleeps(box) == sleeps) {
            leat_test_look_later();
        }
        EXPECT(ask(&second, 2).outcome == LEAT_OUTCOME_OK);
        box_disconnect(&second);
        expect_ceiling(box, &first, for_ever);
        EXPECT(ask(&first, 3).outcome == LEAT_OUTCOME_OK);
    }
    box_disconnect(&first);
    box_stop(box);
}

#if LEAT_JEMALLOC
enum { TEAM = 3 };

/* Which heap a member of the team allocates from. */
static void
note_heap(void *context, uint32_t member, uint32_t size)
{
    unsigned *arenas = context;
    size_t bytes = sizeof(arenas[0]);
    EXPECT(size == TEAM && mallctl("thread.arena", &arenas[member], &bytes, NULL, 0) == 0);
}
#endif

/* Helpers allocate from the heap of their node as their leader does, which no other thread here uses. */
static void
test_teams_allocate_on_their_node(void)
{
#if LEAT_JEMALLOC
    unsigned arenas[TEAM] = {0}, own;
    size_t bytes = sizeof(own);
    const struct box_options options = {
        .socket_path = socket_path, .team = TEAM, .on_member = note_heap, .member_context = arenas};
    struct box *box = box_start(&options);
    struct box_client client;

    box_connect(&client, socket_path, 16);
    EXPECT(ask(&client, 1).outcome == LEAT_OUTCOME_OK);
    EXPECT(mallctl("thread.arena", &own, &bytes, NULL, 0) == 0);
    for (uint32_t m = 0; m < TEAM; m++) {
        EXPECT(arenas[m] == arenas[0] && arenas[m] != own);
    }
    box_disconnect(&client);
    box_stop(box);
#else
    (void)printf("left out: the heaps of teams, this build has no jemalloc\n");
#endif
}

static uint32_t times_asked;

static uint32_t
hesitating_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    return ++times_asked < 20 ? 0 : leat_router_fcfs.route(state, input, pairs, pairs_max);
}

/* What a router leaves for later though a worker is idle is shown to it again, by a dispatcher that sleeps meanwhile. */
static void
test_held_back_is_answered(void)
{
    static const struct leat_router hesitating = {.name = "hesitating", .queues = true, .route = hesitating_route};
    const struct box_options options = {.socket_path = socket_path, .router = &hesitating};
    struct box *box = box_start(&options);
    struct box_client client;

    box_connect(&client, socket_path, 16);
    EXPECT(ask(&client, 1).outcome == LEAT_OUTCOME_OK);
    box_disconnect(&client);
    box_stop(box);
    EXPECT(times_asked == 20); /* the dispatcher has ended */
}

int
main(void)
{
    leat_test_init();
    (void)snprintf(socket_path, sizeof(socket_path), "/tmp/leat-test-queries-%d.sock", (int)getpid());
    test_answers_are_right();
    test_many_in_flight(1);
    test_many_in_flight(LEAT_TENSORS_MAX / 2);
    test_wrong_calls();
#if !defined(__SANITIZE_THREAD__)
    test_freeing_what_is_no_tensor();
#endif
    test_overlap_is_rejected(1);
    test_overlap_is_rejected(LEAT_TENSORS_MAX / 2);
    test_failed_batch();
    test_failure_spoils_nobody_else();
    test_cancel();
    test_bounded_queue();
    test_deadlines();
    test_some_worker_is_in_time();
    test_serve_late();
    test_event_loop();
    test_wait_times_out();
    test_conveniences();
    test_opening_is_refused();
    test_socket_needs_permission();
    test_nobody_spins_without_cores();
    test_teams_allocate_on_their_node();
    test_held_back_is_answered();
    return 0;
}
