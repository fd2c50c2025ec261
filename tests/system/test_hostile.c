/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Nothing that a client writes into its shared memory or its socket hurts the daemon or another client.
 * Method   A malicious client maps its session itself and writes random bytes, and bytes chosen to be almost right,
 *          over every part of it while queries run; another sends random packets. A well-behaved client's answers
 *          are checked all the while. Run under ASan and UBSan this covers the daemon's every read. The
 *          seed is printed; --rounds N for a longer run.
 */
#if defined(__SANITIZE_THREAD__)
#include <stdio.h>

int
main(void)
{
    (void)printf("skipped: its client races with the daemon on purpose\n");
    return 77;
}
#else
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ipc/socket.h"
#include "tests/leat_test.h"
#include "tests/system/box.h"

static char socket_path[64];

struct intruder {
    int socket;
    struct leat_wire_welcome welcome;
    int fds[LEAT_WIRE_FD_COUNT];
    unsigned char *rings, *arena;
};

static int
connect_raw(void)
{
    struct sockaddr_un address;
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT(fd >= 0 && leat_socket_address(socket_path, &address) == LEAT_OK);
    EXPECT(connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

static void
intrude(struct intruder *intruder, uint32_t slots)
{
    const struct leat_wire_hello hello = {
        .header = {LEAT_WIRE_MAGIC, 0, LEAT_WIRE_HELLO}, .version_min = 1, .version_max = 7, .slots = slots,
        .arena_bytes = 65536};
    struct leat_packet packet = {.bytes = &intruder->welcome, .capacity = sizeof(intruder->welcome)};

    intruder->socket = connect_raw();
    EXPECT(leat_socket_send(intruder->socket, &hello, sizeof(hello), NULL, 0) == LEAT_OK);
    EXPECT(leat_socket_receive(intruder->socket, &packet) == LEAT_OK && packet.fd_count == LEAT_WIRE_FD_COUNT);
    memcpy(intruder->fds, packet.fds, sizeof(intruder->fds));
    intruder->rings = mmap(NULL, intruder->welcome.rings_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                           intruder->fds[LEAT_WIRE_FD_RINGS], 0);
    intruder->arena = mmap(NULL, intruder->welcome.arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                           intruder->fds[LEAT_WIRE_FD_ARENA], 0);
    EXPECT(intruder->rings != MAP_FAILED && intruder->arena != MAP_FAILED);
    /* The seals hold: the memory cannot be taken away under the daemon. */
    EXPECT(ftruncate(intruder->fds[LEAT_WIRE_FD_ARENA], 0) != 0 && errno == EPERM);
    EXPECT(fcntl(intruder->fds[LEAT_WIRE_FD_ARENA], F_ADD_SEALS, F_SEAL_WRITE) != 0);
}

static void
leave(struct intruder *intruder)
{
    (void)munmap(intruder->rings, intruder->welcome.rings_bytes);
    (void)munmap(intruder->arena, intruder->welcome.arena_bytes);
    for (int i = 0; i < LEAT_WIRE_FD_COUNT; i++) {
        (void)close(intruder->fds[i]);
    }
    (void)close(intruder->socket);
}

static void
verify_bystander(struct box_client *client, unsigned char byte)
{
    struct leat_completion done;
    box_fill(client, &client->query, byte);
    EXPECT(leat_run(client->session, &client->query, &done) == LEAT_OK);
    EXPECT(done.outcome == LEAT_OUTCOME_OK && box_check(client, &client->query, byte));
}

static void
poke_daemon(struct intruder *intruder)
{
    const uint64_t one = 1;
    const ssize_t written = write(intruder->fds[LEAT_WIRE_FD_DAEMON], &one, sizeof(one));
    (void)written;
}

/* Random bytes over any part of the rings and the arena. */
static void
scribble(struct intruder *intruder, uint64_t *random)
{
    const size_t bytes = 1 + leat_test_random(random) % 512;
    const size_t start = leat_test_random(random) % (intruder->welcome.rings_bytes - bytes);
    for (size_t i = 0; i < bytes; i++) {
        ((volatile unsigned char *)intruder->rings)[start + i] = (unsigned char)leat_test_random(random);
    }
}

static struct leat_wire_list *
list_of(struct intruder *intruder, uint32_t slot)
{
    return (struct leat_wire_list *)(intruder->rings +
                                     leat_wire_lists_offset(intruder->welcome.slots, intruder->welcome.lanes)) + slot;
}

/*
 * Requests with the right sequence, so that the dispatcher reads them, and with fields at and around their limits;
 * some go on changing after they were published.
 */
static void
almost_right(struct intruder *intruder, uint64_t *position, uint64_t *random)
{
    static const uint32_t edges[] = {0, 1, 2, 7, 8, 9, 63, 64, 255, 1023, 1024, 65535, 65536, UINT32_MAX / 64, UINT32_MAX};
    const uint64_t mask = (uint64_t)intruder->welcome.slots * LEAT_SUBMIT_CELLS_PER_SLOT - 1;
    struct leat_wire_request *cell =
        (struct leat_wire_request *)(intruder->rings + leat_wire_submit_offset()) + (*position & mask);
    const size_t edge_count = sizeof(edges) / sizeof(edges[0]);

    cell->submit_ns = leat_test_random(random) % 3 == 0 ? UINT64_MAX : leat_test_random(random);
    cell->latency_us = edges[leat_test_random(random) % edge_count];
    cell->accuracy_floor_ppm = edges[leat_test_random(random) % edge_count];
    cell->items = edges[leat_test_random(random) % edge_count] & LEAT_WIRE_ITEMS_MASK;
    cell->length = leat_test_random(random) % 4 == 0 ? edges[leat_test_random(random) % edge_count] & LEAT_LENGTH_MAX : 0;
    cell->slot = (uint16_t)edges[leat_test_random(random) % edge_count];
    cell->target = leat_test_random(random) % 4 == 0 ? (uint16_t)leat_test_random(random) : 0;
    cell->flags = leat_test_random(random) % 4 == 0 ? (uint16_t)leat_test_random(random) : 0;
    cell->ticket_low = (uint32_t)leat_test_random(random) % 8;
    for (uint32_t u = 0; u < LEAT_WIRE_UNITS; u++) {
        cell->units[u] = edges[leat_test_random(random) % edge_count];
    }
    uint32_t *units = list_of(intruder, cell->slot % intruder->welcome.slots)->units;
    for (uint32_t u = 0; u < LEAT_TENSORS_MAX; u++) { /* most of them right */
        units[u] = leat_test_random(random) % 64 == 0 ? edges[leat_test_random(random) % edge_count] : 8 * u;
    }
    (*position)++;
    atomic_store_explicit(&cell->sequence, *position, memory_order_release);
    if (leat_test_random(random) % 2 == 0) {
        ((volatile struct leat_wire_request *)cell)->items = LEAT_WIRE_ITEMS_MASK;
        ((volatile struct leat_wire_request *)cell)->units[0] = UINT32_MAX;
        ((volatile struct leat_wire_request *)cell)->slot = UINT16_MAX;
        ((volatile uint32_t *)units)[leat_test_random(random) % LEAT_TENSORS_MAX] = UINT32_MAX;
    }
}

static void
test_shared_memory(unsigned rounds, uint32_t pairs)
{
    const struct box_options options = {.socket_path = socket_path, .workers = 2, .items_max = 8, .pairs = pairs};
    uint64_t random = leat_test_seed;
    struct box *box = box_start(&options);
    struct box_client bystander;

    box_connect(&bystander, socket_path, 4);
    for (unsigned round = 0; round < rounds; round++) {
        struct intruder intruder;
        uint64_t position = 0;
        intrude(&intruder, round % 2 == 0 ? 2 : 64);
        const bool scribbles = round % 3 == 0;
        for (int n = 0; n < 400; n++) {
            if (scribbles && n % 4 == 0) {
                scribble(&intruder, &random);
            } else {
                almost_right(&intruder, &position, &random);
            }
            poke_daemon(&intruder);
            if (n % 40 == 0) {
                verify_bystander(&bystander, (unsigned char)(n % 200));
            }
        }
        if (round % 2 == 0) {
            (void)fcntl(intruder.fds[LEAT_WIRE_FD_DAEMON], F_SETFL, 0); /* blocking flags are ours to break, not theirs */
            uint64_t drained;
            (void)fcntl(intruder.fds[LEAT_WIRE_FD_DAEMON], F_SETFL, O_NONBLOCK);
            const ssize_t got = read(intruder.fds[LEAT_WIRE_FD_DAEMON], &drained, sizeof(drained));
            (void)got;
        }
        verify_bystander(&bystander, 77);
        leave(&intruder);
    }
    verify_bystander(&bystander, 78);
    box_disconnect(&bystander);
    box_stop(box);
}

/* The next request; every field as it must be, but for these two. */
static void
ask(struct intruder *intruder, uint32_t number, uint16_t flags, uint16_t cost_cap)
{
    struct leat_wire_request *cell =
        (struct leat_wire_request *)(intruder->rings + leat_wire_submit_offset()) + number;

    cell->items = 1;
    cell->flags = flags;
    cell->cost_cap = cost_cap;
    cell->ticket_low = number + 1;
    cell->units[1] = 1; /* the output follows the input */
    atomic_store_explicit(&cell->sequence, number + 1, memory_order_release);
    poke_daemon(intruder);
}

static struct leat_wire_response
await_response(struct intruder *intruder, uint32_t lane, uint32_t number)
{
    const struct leat_wire_response *cell =
        (const struct leat_wire_response *)(intruder->rings + leat_wire_lane_offset(intruder->welcome.slots, lane)) +
        number;
    struct leat_wire_response response;

    while (atomic_load_explicit(&cell->sequence, memory_order_acquire) != number + 1) {
        (void)sched_yield(); /* hangs here if another lane got it, or none */
    }
    memcpy(&response, cell, sizeof(response));
    return response;
}

/* What has no meaning yet is refused, so that a later protocol can give it one. */
static void
test_unknown_flags(void)
{
    const struct box_options options = {.socket_path = socket_path};
    struct box *box = box_start(&options);
    struct leat_dispatcher_statistics statistics;
    struct intruder intruder;
    uint32_t asked = 0, refused = 0;

    intrude(&intruder, 64);
    for (uint32_t bit = 0; bit <= 16; bit++) { /* 16: the field behind the flags */
        if (bit < 16 && 1u << bit == LEAT_WIRE_OFFLINE) {
            continue;
        }
        for (uint32_t offline = 0; offline <= LEAT_WIRE_OFFLINE; offline += LEAT_WIRE_OFFLINE) {
            const uint16_t flags = (uint16_t)(bit < 16 ? 1u << bit | offline : offline);
            const bool cancels = (flags & LEAT_WIRE_CANCEL) != 0;
            ask(&intruder, asked++, flags, bit == 16 ? LEAT_WIRE_COST_MAX + 1 : 0);
            if (!cancels) { /* which would have no answer of its own */
                const struct leat_wire_response response = await_response(&intruder, 0, refused++);
                EXPECT(response.outcome == LEAT_OUTCOME_REJECTED && response.reason == LEAT_REASON_MALFORMED);
                EXPECT(response.ticket_low == asked);
            }
        }
    }
    for (uint32_t n = 0; n < 2; n++) {
        ask(&intruder, asked++, n == 0 ? 0 : LEAT_WIRE_OFFLINE, 0);
        const struct leat_wire_response response = await_response(&intruder, 1, n);
        EXPECT(response.outcome == LEAT_OUTCOME_OK && response.ticket_low == asked);
    }
    leat_dispatcher_statistics(box_dispatcher(box), &statistics);
    EXPECT(statistics.rejected_malformed == refused + 1); /* and the cancel that is offline */
    leave(&intruder);
    box_stop(box);
}

/* What lies in a list when the worker takes the query up counts, not what the dispatcher found sound. */
static void
test_changed_list(void)
{
    enum { PAIRS = 4, CASES = 3 };
    const struct box_options options = {.socket_path = socket_path, .pairs = PAIRS};
    struct box *box = box_start(&options);
    struct box_client bystander;
    struct intruder intruder;

    box_connect(&bystander, socket_path, 4);
    intrude(&intruder, 4);
    for (uint32_t n = 0; n < CASES; n++) {
        struct leat_completion done;
        size_t count;
        uint32_t *units = list_of(&intruder, 0)->units;
        for (uint32_t u = 0; u < 2 * PAIRS; u++) {
            units[u] = u;
        }
        box_fill(&bystander, &bystander.query, BOX_HOLD);
        EXPECT(leat_submit(bystander.session, &bystander.query, NULL) == LEAT_OK);
        while (box_held(box) == n) {
            leat_test_look_later();
        }
        ask(&intruder, n, 0, 0);
        while (atomic_load(&box_application(box)->counters.accepted) < 2 * (n + 1)) {
            leat_test_look_later();
        }
        units[2 * PAIRS - 1] = n == 0 ? UINT32_MAX : n == 1 ? PAIRS - 1 : 2 * PAIRS; /* outside, an input's, good */
        box_release(box);
        EXPECT(leat_wait(bystander.session, &done, 1, UINT64_MAX, &count) == LEAT_OK && done.outcome == LEAT_OUTCOME_OK);
        EXPECT(box_check(&bystander, &bystander.query, BOX_HOLD));
        const struct leat_wire_response response = await_response(&intruder, 1, n);
        EXPECT(response.outcome == (n < 2 ? LEAT_OUTCOME_REJECTED : LEAT_OUTCOME_OK));
        EXPECT(response.reason == (n < 2 ? LEAT_REASON_TENSOR : LEAT_REASON_NONE) && response.ticket_low == n + 1);
    }
    EXPECT(intruder.arena[2 * PAIRS * LEAT_TENSOR_ALIGN] == 0xff); /* the last output, where it was moved to */
    struct leat_dispatcher_statistics statistics;
    leat_dispatcher_statistics(box_dispatcher(box), &statistics);
    EXPECT(statistics.rejected_malformed == 2 && atomic_load(&box_application(box)->counters.rejected) == 2);
    EXPECT(atomic_load(&box_application(box)->counters.expired) == 0);
    leave(&intruder);
    box_disconnect(&bystander);
    box_stop(box);
}

static void
test_socket_protocol(unsigned rounds)
{
    enum { BYTES_MAX = 4096 };
    const struct box_options options = {.socket_path = socket_path};
    static unsigned char bytes[BYTES_MAX];
    uint64_t random = leat_test_seed + 7;
    struct box *box = box_start(&options);
    struct box_client bystander;

    box_connect(&bystander, socket_path, 4);
    for (unsigned round = 0; round < rounds; round++) {
        const int fd = connect_raw();
        const bool welcomed = leat_test_random(&random) % 2 == 0;
        if (welcomed) { /* a good start, then nonsense */
            const struct leat_wire_hello hello = {
                .header = {LEAT_WIRE_MAGIC, 0, LEAT_WIRE_HELLO}, .version_min = LEAT_WIRE_VERSION,
                .version_max = LEAT_WIRE_VERSION};
            EXPECT(leat_socket_send(fd, &hello, sizeof(hello), NULL, 0) == LEAT_OK);
        }
        for (int n = 0; n < 4; n++) {
            size_t size = 1 + leat_test_random(&random) % BYTES_MAX;
            for (size_t i = 0; i < size; i++) {
                bytes[i] = (unsigned char)leat_test_random(&random);
            }
            struct leat_wire_header header = {LEAT_WIRE_MAGIC, LEAT_WIRE_VERSION,
                                              (uint16_t)(leat_test_random(&random) % 10)};
            if (leat_test_random(&random) % 4 != 0) {
                memcpy(bytes, &header, sizeof(header));
            }
            switch (leat_test_random(&random) % 4) {
            case 0: size = sizeof(struct leat_wire_hello); break;
            case 1: size = sizeof(struct leat_wire_find); break;
            default: break;
            }
            int extra[LEAT_SOCKET_FDS_MAX];
            const size_t fd_count =
                leat_test_random(&random) % 3 == 0 ? 1 + leat_test_random(&random) % LEAT_SOCKET_FDS_MAX : 0;
            for (size_t i = 0; i < fd_count; i++) {
                extra[i] = eventfd(0, EFD_CLOEXEC);
            }
            (void)!leat_socket_send(fd, bytes, size, extra, fd_count);
            for (size_t i = 0; i < fd_count; i++) {
                (void)close(extra[i]);
            }
        }
        (void)close(fd);
        if (round % 16 == 0) {
            verify_bystander(&bystander, (unsigned char)(round % 200));
        }
    }
    while (box_sessions(box).sessions > 1) {
        leat_test_look_later();
    }
    verify_bystander(&bystander, 5);
    box_disconnect(&bystander);
    box_stop(box);
}

/* What the daemon says to a client of another version, or to none. */
static void
test_version_is_negotiated(void)
{
    const struct box_options options = {.socket_path = socket_path};
    struct leat_wire_error error;
    struct leat_packet packet = {.bytes = &error, .capacity = sizeof(error)};
    struct leat_wire_hello hello = {
        .header = {LEAT_WIRE_MAGIC, 0, LEAT_WIRE_HELLO}, .version_min = LEAT_WIRE_VERSION + 1, .version_max = 9};
    struct box *box = box_start(&options);
    char range[16];

    int fd = connect_raw();
    EXPECT(leat_socket_send(fd, &hello, sizeof(hello), NULL, 0) == LEAT_OK);
    EXPECT(leat_socket_receive(fd, &packet) == LEAT_OK && packet.size == sizeof(error));
    EXPECT(error.header.type == LEAT_WIRE_ERROR && error.status == LEAT_ERR_VERSION);
    (void)snprintf(range, sizeof(range), "%u to 9", LEAT_WIRE_VERSION + 1);
    EXPECT(strstr(error.text, range) != NULL);
    (void)close(fd);
    fd = connect_raw();
    EXPECT(leat_socket_send(fd, "GET / HTTP/1.1\r\n\r\n", 18, NULL, 0) == LEAT_OK);
    EXPECT(leat_socket_receive(fd, &packet) == LEAT_OK && error.status == LEAT_ERR_PROTO);
    (void)close(fd);
    fd = connect_raw(); /* too short to say anything: what an earlier packet left behind it is not looked at */
    EXPECT(leat_socket_send(fd, &hello, sizeof(hello.header) - 1, NULL, 0) == LEAT_OK);
    EXPECT(leat_socket_receive(fd, &packet) == LEAT_OK && error.status == LEAT_ERR_PROTO);
    EXPECT(strstr(error.text, "no header") != NULL);
    (void)close(fd);
    box_stop(box);
}

int
main(int argc, char **argv)
{
    unsigned rounds = 30;

    leat_test_init();
    if (argc == 3 && strcmp(argv[1], "--rounds") == 0) {
        rounds = (unsigned)strtoul(argv[2], NULL, 10);
    }
    (void)snprintf(socket_path, sizeof(socket_path), "/tmp/leat-test-hostile-%d.sock", (int)getpid());
    (void)printf("seed %llu, %u rounds\n", (unsigned long long)leat_test_seed, rounds);
    (void)freopen("/dev/null", "w", stderr); /* the daemon logs each refusal; a failed expectation still exits 1 */
    test_version_is_negotiated();
    test_unknown_flags();
    test_changed_list();
    test_shared_memory(rounds, 1);
    test_shared_memory(rounds, LEAT_TENSORS_MAX / 2);
    test_socket_protocol(rounds * 10);
    return 0;
}
#endif
