/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Who asks the daemon for a lot over its socket, or does not listen to it, hinders nobody else.
 * Method   Clients that speak the protocol by hand overdo one thing. Meanwhile another client's questions and queries are
 *          answered: that they are, and what the daemon has done by then, is looked at, never how long it took.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ipc/socket.h"
#include "runtime/log.h"
#include "tests/leat_test.h"
#include "tests/system/box.h"

static char socket_path[64];

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
say_hello(int fd, uint64_t arena_bytes)
{
    const struct leat_wire_hello hello = {.header = {LEAT_WIRE_MAGIC, 0, LEAT_WIRE_HELLO},
                                          .version_min = LEAT_WIRE_VERSION,
                                          .version_max = LEAT_WIRE_VERSION,
                                          .arena_bytes = arena_bytes};
    EXPECT(leat_socket_send(fd, &hello, sizeof(hello), NULL, 0) == LEAT_OK);
}

/* Waits for one packet, which is of `type`. */
static void
expect_packet(int fd, uint16_t type)
{
    static unsigned char bytes[LEAT_WIRE_PACKET_MAX];
    struct leat_packet packet = {.bytes = bytes, .capacity = sizeof(bytes)};
    struct leat_wire_header header;

    EXPECT(leat_socket_receive(fd, &packet) == LEAT_OK && packet.size >= sizeof(header));
    leat_packet_close_fds(&packet);
    memcpy(&header, bytes, sizeof(header));
    EXPECT(header.type == type);
}

static bool
has_packet(int fd)
{
    struct pollfd there = {.fd = fd, .events = POLLIN};
    return poll(&there, 1, 0) == 1;
}

/* A question to the server and a query to a worker. */
static void
verify(struct box_client *client, unsigned char byte)
{
    struct leat_target target;
    struct leat_completion done;

    EXPECT(leat_find(client->session, "box", &target) == LEAT_OK);
    box_fill(client, &client->query, byte);
    EXPECT(leat_run(client->session, &client->query, &done) == LEAT_OK);
    EXPECT(done.outcome == LEAT_OUTCOME_OK && box_check(client, &client->query, byte));
}

/* Gigabytes are asked for: others go on, and connect, before those are there. */
static void
test_large_sessions(void)
{
    enum { LARGE = 2 };
    const uint64_t bytes = UINT64_C(1) << 30;
    const struct box_options options = {
        .socket_path = socket_path, .arena_max_bytes = bytes, .session_memory = (LARGE + 1) * bytes};
    struct box_client bystander, newcomer;
    int large[LARGE];
    unsigned answers = 0;

    struct box *box = box_start(&options);
    box_connect(&bystander, socket_path, 4);
    for (int i = 0; i < LARGE; i++) {
        large[i] = connect_raw();
    }
    for (int i = 0; i < LARGE; i++) {
        say_hello(large[i], bytes);
    }
    do {
        verify(&bystander, (unsigned char)(answers % 200));
        if (answers == 0) {
            box_connect(&newcomer, socket_path, 4);
        }
        answers += !has_packet(large[LARGE - 1]);
    } while (!has_packet(large[LARGE - 1]));
    EXPECT(answers > 0); /* while the last one waited */
    EXPECT(close(large[LARGE - 1]) == 0);
    for (int i = 0; i + 1 < LARGE; i++) {
        expect_packet(large[i], LEAT_WIRE_WELCOME);
        EXPECT(close(large[i]) == 0);
    }
    while (box_sessions(box).counted > 2) { /* a byte that is never given back hangs here */
        verify(&bystander, 7);
    }
    verify(&newcomer, 8);
    box_disconnect(&newcomer);
    box_disconnect(&bystander);
    box_stop(box);
}

/* Sessions that are asked for and left at once, from several threads' worth of sockets, until the daemon ends amid it. */
static void
test_sessions_come_and_go(void)
{
    enum { ROUNDS = 40, SOCKETS = 8 };
    const struct box_options options = {.socket_path = socket_path};
    uint64_t random = leat_test_seed;
    struct box_client bystander;
    int fds[SOCKETS];

    struct box *box = box_start(&options);
    box_connect(&bystander, socket_path, 4);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SOCKETS; i++) {
            fds[i] = connect_raw();
            say_hello(fds[i], 4096 << leat_test_random(&random) % 12);
        }
        verify(&bystander, (unsigned char)round);
        for (int i = 0; i < SOCKETS; i++) {
            if (leat_test_random(&random) % 2 == 0) {
                expect_packet(fds[i], LEAT_WIRE_WELCOME);
            }
        }
        for (int i = 0; round + 1 < ROUNDS && i < SOCKETS; i++) {
            EXPECT(close(fds[i]) == 0);
        }
        while (round + 1 < ROUNDS && box_sessions(box).counted > 1 + SOCKETS) {
            verify(&bystander, (unsigned char)round);
        }
    }
    box_stop(box); /* with sessions open, and some perhaps being made */
    for (int i = 0; i < SOCKETS; i++) {
        EXPECT(close(fds[i]) == 0);
    }
    box_disconnect(&bystander);
}

int
main(void)
{
    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    leat_log_level_set(LEAT_LOG_ERROR); /* a line for each refusal is too many */
    (void)snprintf(socket_path, sizeof(socket_path), "/tmp/leat-test-floods-%d.sock", (int)getpid());
    test_large_sessions();
    test_sessions_come_and_go();
    return 0;
}
