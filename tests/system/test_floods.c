/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Who asks the daemon for a lot over its socket, or does not listen to it, hinders nobody else.
 * Method   Clients that speak the protocol by hand overdo one thing. Meanwhile another client's questions and queries are
 *          answered: that they are, and what the daemon has done by then, is looked at, never how long it took.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
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

/* ---- What the daemon logs ------------------------------------------------------------------------- */

struct log {
    int fd, saved;
};

static const struct log *captured;

/* A failed expectation ends the process while its message is in the log: shows that. */
static void
show_log(void)
{
    char text[4096];
    ssize_t got;
    off_t at = 0;

    while (captured != NULL && (got = pread(captured->fd, text, sizeof(text), at)) > 0) {
        at += write(captured->saved, text, (size_t)got);
    }
}

static void
capture(struct log *log)
{
    captured = log;
    log->fd = memfd_create("log", MFD_CLOEXEC);
    log->saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    EXPECT(log->fd >= 0 && log->saved >= 0 && dup2(log->fd, STDERR_FILENO) == STDERR_FILENO);
    leat_log_level_set(LEAT_LOG_INFO);
}

static unsigned
count_lines(const struct log *log, const char *part)
{
    static char text[1 << 20];
    unsigned count = 0;
    const ssize_t got = pread(log->fd, text, sizeof(text) - 1, 0);

    EXPECT(got >= 0 && got < (ssize_t)sizeof(text) - 1); /* which would be too much to say */
    text[got] = '\0';
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) {
        count++;
    }
    return count;
}

static void
release(struct log *log)
{
    captured = NULL;
    leat_log_level_set(LEAT_LOG_ERROR);
    EXPECT(dup2(log->saved, STDERR_FILENO) == STDERR_FILENO);
    EXPECT(close(log->saved) == 0 && close(log->fd) == 0);
}

/* ---- Connections ---------------------------------------------------------------------------------- */

/* Hundreds connect and say nothing: as many as there may be sessions stay, and others come and are served. */
static void
test_silent_connections(void)
{
    enum { FLOOD = 300, SESSIONS = 8 };
    const struct box_options options = {.socket_path = socket_path, .sessions_max = SESSIONS};
    struct box_client bystander, newcomer;
    static int fds[FLOOD];
    static struct log log;

    capture(&log);
    struct box *box = box_start(&options);
    box_connect(&bystander, socket_path, 4);
    for (int i = 0; i < FLOOD; i++) {
        fds[i] = connect_raw();
        if (i % 50 == 25) {
            box_connect(&newcomer, socket_path, 4);
            verify(&newcomer, (unsigned char)(i % 200));
            box_disconnect(&newcomer);
        }
        verify(&bystander, (unsigned char)(i % 200));
    }
    while (box_sessions(box).accepted < FLOOD + 1) {
        verify(&bystander, 1);
    }
    verify(&bystander, 2); /* a turn of the server later */
    EXPECT(has_packet(fds[0]));
    expect_packet(fds[0], LEAT_WIRE_ERROR);
    EXPECT(box_sessions(box).accepted - box_sessions(box).closed <= 2 * SESSIONS);
    say_hello(fds[FLOOD - 1], 4096);
    expect_packet(fds[FLOOD - 1], LEAT_WIRE_WELCOME);
    EXPECT(count_lines(&log, "have said nothing") >= 1);
    EXPECT(count_lines(&log, "\n") <= 3);
    for (int i = 0; i < FLOOD; i++) {
        EXPECT(close(fds[i]) == 0);
    }
    box_disconnect(&bystander);
    box_stop(box);
    release(&log);
}

/* No descriptor is left: the daemon goes on with what it has, waits without noise, and then accepts those who waited. */
static void
test_no_descriptors(void)
{
    enum { WAITING = 8, FILES_MAX = 512, QUESTIONS = 500 };
    const struct box_options options = {.socket_path = socket_path, .sessions_max = WAITING + 1};
    struct rlimit limit;
    struct sockaddr_un address;
    struct box_client bystander;
    static int fillers[FILES_MAX];
    int fds[WAITING], filled = 0;
    static struct log log;

    capture(&log);
    struct box *box = box_start(&options);
    box_connect(&bystander, socket_path, 4);
    EXPECT(leat_socket_address(socket_path, &address) == LEAT_OK);
    for (int i = 0; i < WAITING; i++) {
        fds[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        EXPECT(fds[i] >= 0);
    }
    EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    EXPECT(setrlimit(RLIMIT_NOFILE, &(struct rlimit){FILES_MAX, limit.rlim_max}) == 0);
    while (filled < FILES_MAX && (fillers[filled] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0) {
        filled++;
    }
    for (int i = 0; i < WAITING; i++) {
        EXPECT(connect(fds[i], (const struct sockaddr *)&address, sizeof(address)) == 0);
    }
    for (int n = 0; n < QUESTIONS; n++) {
        verify(&bystander, (unsigned char)(n % 200));
    }
    EXPECT(count_lines(&log, "cannot accept connections") == 1 && count_lines(&log, "\n") == 1);
    EXPECT(box_sessions(box).accepted == 1);
    EXPECT(box_sessions(box).accept_failures >= 1 && box_sessions(box).accept_failures < QUESTIONS / 2); /* it waits */
    while (filled > 0) {
        EXPECT(close(fillers[--filled]) == 0);
    }
    EXPECT(close(fds[0]) == 0); /* may have had the last descriptor, and been turned away for want of another */
    for (int i = 1; i < WAITING; i++) {
        say_hello(fds[i], 4096);
        expect_packet(fds[i], LEAT_WIRE_WELCOME);
        EXPECT(close(fds[i]) == 0);
    }
    EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    box_disconnect(&bystander);
    box_stop(box);
    release(&log);
}

/* ---- Packets ------------------------------------------------------------------------------------------ */

/* Thousands of requests whose answers nobody reads: others have theirs, and no descriptors or memory pile up. */
static void
test_unread_answers(void)
{
    enum { DEAF = 3, REQUESTS = 3000, BYTES = 4000 };
    const struct box_options options = {.socket_path = socket_path};
    static unsigned char request[sizeof(struct leat_wire_header) + BYTES];
    const struct leat_wire_header header = {LEAT_WIRE_MAGIC, LEAT_WIRE_VERSION, LEAT_WIRE_ADMIN};
    struct box_client bystander;
    int fds[DEAF];
    char *reply;

    struct box *box = box_start(&options);
    box_connect(&bystander, socket_path, 4);
    for (int i = 0; i < DEAF; i++) {
        fds[i] = connect_raw();
        say_hello(fds[i], 4096);
        expect_packet(fds[i], LEAT_WIRE_WELCOME);
        EXPECT(fcntl(fds[i], F_SETFL, O_NONBLOCK) == 0);
    }
    memset(request, ' ', sizeof(request));
    memcpy(request, &header, sizeof(header));
    for (int n = 0; n < REQUESTS; n++) {
        for (int i = 0; i < DEAF; i++) {
            (void)!leat_socket_send(fds[i], request, sizeof(request), NULL, 0); /* as many as go */
        }
        if (n % 100 == 0) {
            EXPECT(leat_admin(bystander.session, "{}", -1, &reply) == LEAT_OK && strcmp(reply, "{}") == 0);
            leat_admin_free(reply);
            verify(&bystander, (unsigned char)(n % 200));
        }
    }
    while (box_sessions(box).closed < DEAF) { /* hangs here if they are not sent away */
        verify(&bystander, 3);
    }
    EXPECT(box_sessions(box).refused == DEAF);
    for (int i = 0; i < DEAF; i++) {
        EXPECT(close(fds[i]) == 0);
    }
    box_disconnect(&bystander);
    box_stop(box);
}

/* Malformed packets, as fast as they go: each is refused, and the log says so without a line for each. */
static void
test_refusals(void)
{
    enum { REFUSALS = 3000 };
    const struct box_options options = {.socket_path = socket_path};
    struct box_client bystander;
    static struct log log;

    capture(&log);
    struct box *box = box_start(&options);
    box_connect(&bystander, socket_path, 4);
    for (int n = 0; n < REFUSALS; n++) {
        const int fd = connect_raw();
        EXPECT(leat_socket_send(fd, "GET /", 5, NULL, 0) == LEAT_OK);
        expect_packet(fd, LEAT_WIRE_ERROR);
        EXPECT(close(fd) == 0);
        if (n % 100 == 0) {
            verify(&bystander, (unsigned char)(n % 200));
        }
    }
    EXPECT(box_sessions(box).refused == REFUSALS);
    EXPECT(count_lines(&log, "refused process") >= 1 && count_lines(&log, "\n") < REFUSALS / 2);
    box_disconnect(&bystander);
    box_stop(box);
    release(&log);
}

int
main(void)
{
    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    EXPECT(atexit(show_log) == 0);
    leat_log_level_set(LEAT_LOG_ERROR); /* a line for each refusal is too many */
    (void)snprintf(socket_path, sizeof(socket_path), "/tmp/leat-test-floods-%d.sock", (int)getpid());
    test_large_sessions();
    test_sessions_come_and_go();
    test_silent_connections();
    test_no_descriptors();
    test_unread_answers();
    test_refusals();
    return 0;
}
