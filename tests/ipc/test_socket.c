/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A packet arrives whole, with its descriptors and in its turn, or the caller learns why not; whatever comes, no
 *          descriptor is left open that nobody owns, for with a session's descriptors go the tensors behind them.
 * Method   Both ends in one process, over socket pairs; what our own sender would never send is sent by hand. The process's
 *          open descriptors are counted before and after each.
 */
#include "ipc/socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/leat_test.h"

enum { PACKET = 256, FDS_SENT_MAX = 253 /* that the kernel passes with one packet */ };

static unsigned char room[PACKET];

static struct leat_packet
packet_of(size_t capacity)
{
    return (struct leat_packet){.bytes = room, .capacity = capacity};
}

static unsigned
count_open(void)
{
    unsigned count = 0;
    DIR *directory = opendir("/proc/self/fd");

    EXPECT(directory != NULL);
    while (readdir(directory) != NULL) {
        count++;
    }
    EXPECT(closedir(directory) == 0);
    return count;
}

static void
make_pair(int ends[2], int flags)
{
    EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0, ends) == 0);
}

static void
close_pair(const int ends[2])
{
    EXPECT(close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* By hand: `size` bytes with `fd` so many times. */
static void
send_many(int socket, size_t size, int fd, size_t count)
{
    static const unsigned char bytes[PACKET];
    static union {
        struct cmsghdr header;
        char room[CMSG_SPACE(FDS_SENT_MAX * sizeof(int))];
    } control;
    int fds[FDS_SENT_MAX];
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(count * sizeof(int))};

    EXPECT(count <= FDS_SENT_MAX && size <= PACKET);
    for (size_t i = 0; i < count; i++) {
        fds[i] = fd;
    }
    memset(&control, 0, sizeof(control));
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
    EXPECT(sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)size);
}

/* ---- What arrives --------------------------------------------------------------------------------- */

static void
test_packets_arrive(void)
{
    int ends[2], sent[LEAT_SOCKET_FDS_MAX];
    uint64_t random = leat_test_seed;
    const unsigned before = count_open();

    make_pair(ends, 0);
    EXPECT(pipe2(sent, O_CLOEXEC) == 0);
    for (size_t i = 2; i < LEAT_SOCKET_FDS_MAX; i++) {
        sent[i] = fcntl(sent[i % 2], F_DUPFD_CLOEXEC, 0);
        EXPECT(sent[i] >= 0);
    }
    for (size_t count = 0; count <= LEAT_SOCKET_FDS_MAX; count++) {
        struct leat_packet packet = packet_of(PACKET);
        unsigned char bytes[PACKET];
        const size_t size = count == 0 ? PACKET : 1 + leat_test_random(&random) % PACKET;
        for (size_t b = 0; b < size; b++) {
            bytes[b] = (unsigned char)leat_test_random(&random);
        }
        EXPECT(leat_socket_send(ends[0], bytes, size, sent, count) == LEAT_OK);
        EXPECT(leat_socket_receive(ends[1], &packet) == LEAT_OK);
        EXPECT(packet.size == size && memcmp(packet.bytes, bytes, size) == 0 && packet.fd_count == count);
        for (size_t i = 0; i < count; i++) {
            struct stat own, theirs;
            EXPECT(fstat(sent[i], &own) == 0 && fstat(packet.fds[i], &theirs) == 0 && own.st_ino == theirs.st_ino);
            EXPECT((fcntl(packet.fds[i], F_GETFL) & O_ACCMODE) == (fcntl(sent[i], F_GETFL) & O_ACCMODE)); /* in its place */
            EXPECT((fcntl(packet.fds[i], F_GETFD) & FD_CLOEXEC) != 0);
        }
        leat_packet_close_fds(&packet);
        EXPECT(packet.fd_count == 0);
    }
    for (size_t i = 0; i < LEAT_SOCKET_FDS_MAX; i++) {
        EXPECT(close(sent[i]) == 0);
    }
    close_pair(ends);
    EXPECT(count_open() == before);
}

/* ---- What does not ------------------------------------------------------------------------------- */

/* Larger than there is room for, more descriptors than a packet has, and none at all but descriptors. */
static void
test_what_is_refused_keeps_nothing(void)
{
    static const struct {
        size_t size, fds;
        enum leat_status status;
    } sent[] = {
        {PACKET, 1, LEAT_ERR_PROTO},
        {PACKET / 2 + 1, LEAT_SOCKET_FDS_MAX, LEAT_ERR_PROTO},
        {1, LEAT_SOCKET_FDS_MAX, LEAT_OK},
        {1, LEAT_SOCKET_FDS_MAX + 1, LEAT_ERR_PROTO}, /* may fit where control data is rounded up */
        {1, LEAT_SOCKET_FDS_MAX + 2, LEAT_ERR_PROTO},
        {1, FDS_SENT_MAX, LEAT_ERR_PROTO},
        {0, 3, LEAT_ERR_DISCONNECTED}, /* as an end looks */
    };
    int ends[2];
    const unsigned before = count_open();

    make_pair(ends, 0);
    for (size_t s = 0; s < sizeof(sent) / sizeof(sent[0]); s++) {
        struct leat_packet packet = packet_of(PACKET / 2);
        send_many(ends[0], sent[s].size, ends[0], sent[s].fds);
        EXPECT(leat_socket_receive(ends[1], &packet) == sent[s].status);
        EXPECT(packet.fd_count == (sent[s].status == LEAT_OK ? sent[s].fds : 0));
        leat_packet_close_fds(&packet);
        EXPECT(count_open() == before + 2);
        EXPECT(leat_socket_send(ends[0], "after", 5, NULL, 0) == LEAT_OK); /* and the next one is received */
        EXPECT(leat_socket_receive(ends[1], &packet) == LEAT_OK && packet.size == 5 && packet.fd_count == 0);
    }
    close_pair(ends);
}

/* With fewer descriptors left than come the kernel passes those on that it can: a part is nothing to go on with. */
static void
test_descriptors_run_out(void)
{
    struct leat_packet packet = packet_of(PACKET);
    struct rlimit old, few;
    int ends[2];

    make_pair(ends, 0);
    send_many(ends[0], 1, ends[0], 5);
    const int next = fcntl(ends[0], F_DUPFD_CLOEXEC, 0);
    EXPECT(next >= 0 && close(next) == 0 && getrlimit(RLIMIT_NOFILE, &old) == 0);
    const unsigned before = count_open();
    few = (struct rlimit){.rlim_cur = (rlim_t)next + 2, .rlim_max = old.rlim_max};
    EXPECT(setrlimit(RLIMIT_NOFILE, &few) == 0);
    const enum leat_status status = leat_socket_receive(ends[1], &packet);
    EXPECT(setrlimit(RLIMIT_NOFILE, &old) == 0);
    EXPECT(status == LEAT_ERR_PROTO && packet.fd_count == 0 && count_open() == before);
    close_pair(ends);
}

/* Nothing is there, or no more fits: neither is an error, and what was sent before comes in its turn. */
static void
test_full_and_empty(void)
{
    struct leat_packet packet = packet_of(PACKET);
    uint32_t sent = 0, number;
    int ends[2];

    make_pair(ends, SOCK_NONBLOCK);
    EXPECT(leat_socket_receive(ends[1], &packet) == LEAT_AGAIN && packet.size == 0 && packet.fd_count == 0);
    enum leat_status status = LEAT_OK;
    while (status == LEAT_OK) {
        status = leat_socket_send(ends[0], &sent, sizeof(sent), NULL, 0);
        sent += status == LEAT_OK;
    }
    EXPECT(status == LEAT_AGAIN && sent > 0);
    for (uint32_t n = 0; n < sent; n++) {
        EXPECT(leat_socket_receive(ends[1], &packet) == LEAT_OK && packet.size == sizeof(number));
        memcpy(&number, packet.bytes, sizeof(number));
        EXPECT(number == n);
    }
    EXPECT(leat_socket_receive(ends[1], &packet) == LEAT_AGAIN);
    EXPECT(leat_socket_send(ends[0], &sent, sizeof(sent), NULL, 0) == LEAT_OK);
    close_pair(ends);
}

/* Whoever has gone is gone, whether or not it read all, and nobody dies of telling it something. */
static void
test_the_other_side_is_gone(void)
{
    EXPECT(signal(SIGPIPE, SIG_DFL) != SIG_ERR); /* whoever began us may have it ignored */
    for (int unread = 0; unread < 2; unread++) {
        struct leat_packet packet = packet_of(PACKET);
        int ends[2];
        make_pair(ends, 0);
        EXPECT(leat_socket_send(ends[1], "last", 4, NULL, 0) == LEAT_OK);
        if (unread) {
            EXPECT(leat_socket_send(ends[0], "unread", 6, NULL, 0) == LEAT_OK);
        }
        EXPECT(close(ends[1]) == 0);
        EXPECT(leat_socket_send(ends[0], "late", 4, NULL, 0) == LEAT_ERR_DISCONNECTED);
        enum leat_status status = leat_socket_receive(ends[0], &packet);
        if (status == LEAT_OK) { /* what it said before it left is still there to read */
            EXPECT(packet.size == 4 && memcmp(packet.bytes, "last", 4) == 0);
            status = leat_socket_receive(ends[0], &packet);
        }
        EXPECT(status == LEAT_ERR_DISCONNECTED && packet.size == 0);
        EXPECT(close(ends[0]) == 0);
    }
    /* Its unread packets make the first look an error, not an end. */
    struct leat_packet packet = packet_of(PACKET);
    int ends[2];
    make_pair(ends, 0);
    EXPECT(leat_socket_send(ends[0], "unread", 6, NULL, 0) == LEAT_OK && close(ends[1]) == 0);
    EXPECT(leat_socket_receive(ends[0], &packet) == LEAT_ERR_DISCONNECTED);
    EXPECT(close(ends[0]) == 0);
}

/* ---- Signals ------------------------------------------------------------------------------------- */

enum { SIGNALS = 40 };
static int from_handler;
static _Atomic int signals;

static void
send_after_many(int number)
{
    (void)number;
    if (++signals == SIGNALS) {
        const ssize_t sent = send(from_handler, "woken", 5, MSG_NOSIGNAL);
        (void)sent;
    }
}

/* The only sender is the handler of signals that come while it is waited for: all but the last bring nothing. */
static void
test_signals_end_no_wait(void)
{
    struct sigaction action = {.sa_handler = send_after_many}, old; /* without SA_RESTART */
    const struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    struct leat_packet packet = packet_of(PACKET);
    int ends[2];

    make_pair(ends, 0);
    from_handler = ends[0];
    EXPECT(sigaction(SIGALRM, &action, &old) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    EXPECT(leat_socket_receive(ends[1], &packet) == LEAT_OK);
    EXPECT(packet.size == 5 && memcmp(packet.bytes, "woken", 5) == 0 && signals >= SIGNALS);
    EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0 && sigaction(SIGALRM, &old, NULL) == 0);
    close_pair(ends);
}

/* ---- Addresses ----------------------------------------------------------------------------------- */

static void
test_addresses(void)
{
    struct sockaddr_un address;
    char path[sizeof(address.sun_path) + 1];

    for (size_t length = 0; length <= sizeof(address.sun_path); length++) {
        const bool fits = length > 0 && length < sizeof(address.sun_path);
        memset(path, 'p', length);
        path[length] = '\0';
        EXPECT(leat_socket_address(path, &address) == (fits ? LEAT_OK : LEAT_ERR_INVALID));
        EXPECT(!fits || (address.sun_family == AF_UNIX && strcmp(address.sun_path, path) == 0));
    }
}

int
main(void)
{
    leat_test_init();
    test_packets_arrive();
    test_what_is_refused_keeps_nothing();
    test_descriptors_run_out();
    test_full_and_empty();
    test_the_other_side_is_gone();
    test_signals_end_no_wait();
    test_addresses();
    return 0;
}
