/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/server.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ipc/socket.h"
#include "runtime/listener.h"
#include "runtime/log.h"
#include "runtime/session_maker.h"

enum {
    RING_ENTRIES = 256,
    REFUSALS_LOGGED = 8, /* in one tick; the others are counted */
    /*
     * Descriptors: socket and process of a connection; two of a session, and three more while it is made or has an
     * administrative request answered.
     */
    DESCRIPTORS_OF_CONNECTION = 2,
    DESCRIPTORS_OF_SESSION = 5,
};

#define TICK_NS UINT64_C(500000000)

/* What a completion belongs to: the low bits of user_data, the rest is a connection's address. */
enum tag {
    TAG_ACCEPT = 1,
    TAG_STOP = 2,
    TAG_EVENTS = 3,
    TAG_MEMORY = 4,
    TAG_SOCKET = 5,
    TAG_PROCESS = 6,
    TAG_ANSWER = 7,
    TAG_IGNORE = 8,
    TAG_MASK = 15,
};

struct connection {
    _Alignas(TAG_MASK + 1) int fd;
    int pidfd; /* -1 when the peer's process cannot be watched */
    uid_t uid;
    pid_t pid;
    bool greeted; /* HELLO came: counts against the limits of sessions from here on, before as silent */
    struct leat_session_job *job; /* its session is being made */
    struct leat_daemon_session *session; /* NULL before WELCOME */
    int answer_fd; /* where the answer to its administrative request will come; -1: it has none */
    uint32_t polls; /* outstanding io_uring requests that point here */
    bool closing;
    struct connection *next, *previous;
};

/* Something that may happen very often while it lasts, and is logged once. */
struct episode {
    bool logged, again; /* again: since the last tick */
};

struct leat_server {
    struct leat_server_options options;
    struct io_uring ring;
    bool ring_ready;
    struct leat_listener listener;
    int stop_fd;
    struct connection *connections;
    struct leat_quota quota;
    struct leat_session_maker *maker;
    struct leat_session_job *jobs; /* [LEAT_SESSIONS_MAX], by index */
    uint32_t session_count; /* that the dispatcher knows */
    bool stopping, drained;
    bool stop_now; /* told to stop again while draining */
    bool accepting; /* a request to accept is with the ring */
    struct episode crowd, shortage; /* of silent connections, of descriptors */
    uint32_t refusals; /* since the last tick */
    uint64_t ticked_ns;
    unsigned char *packet; /* LEAT_WIRE_PACKET_MAX + 1 */
    _Atomic uint32_t sessions_seen, counted_seen; /* statistics */
    _Atomic uint64_t accepted, refused, closed, accept_failures;
};

/* ---- io_uring helpers ------------------------------------------------------------------------- */

static struct io_uring_sqe *
next_sqe(struct leat_server *server)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&server->ring);
    if (sqe == NULL) {
        (void)io_uring_submit(&server->ring);
        sqe = io_uring_get_sqe(&server->ring);
    }
    LEAT_ASSERT(sqe != NULL);
    return sqe;
}

static void
watch_for(struct leat_server *server, int fd, unsigned events, struct connection *connection, enum tag tag)
{
    struct io_uring_sqe *sqe = next_sqe(server);
    io_uring_prep_poll_add(sqe, fd, events);
    io_uring_sqe_set_data64(sqe, (uint64_t)(uintptr_t)connection | tag);
    if (connection != NULL) {
        connection->polls++;
    }
}

static void
watch(struct leat_server *server, int fd, struct connection *connection, enum tag tag)
{
    watch_for(server, fd, POLLIN | POLLRDHUP, connection, tag);
}

static bool
is_busy(const struct connection *connection)
{
    return connection->job != NULL || connection->answer_fd >= 0;
}

/* One thing at a time: what a client sends before it has its answer waits in its socket, and only its end is noticed. */
static void
watch_socket(struct leat_server *server, struct connection *connection)
{
    watch_for(server, connection->fd, is_busy(connection) ? POLLRDHUP : POLLIN | POLLRDHUP, connection, TAG_SOCKET);
}

static void
unwatch(struct leat_server *server, struct connection *connection, enum tag tag)
{
    struct io_uring_sqe *sqe = next_sqe(server);
    io_uring_prep_cancel64(sqe, (uint64_t)(uintptr_t)connection | tag, 0);
    io_uring_sqe_set_data64(sqe, TAG_IGNORE);
}

static void
watch_listener(struct leat_server *server)
{
    struct io_uring_sqe *sqe = next_sqe(server);
    io_uring_prep_accept(sqe, server->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    io_uring_sqe_set_data64(sqe, TAG_ACCEPT);
    server->accepting = true;
}

/* After accepting failed: something has been given back, or time has passed. */
static void
accept_again(struct leat_server *server)
{
    if (!server->accepting && !server->stopping) {
        watch_listener(server);
    }
}

static bool
episode_begins(struct episode *episode)
{
    const bool begins = !episode->logged;
    episode->logged = episode->again = true;
    return begins;
}

static void
episode_tick(struct episode *episode)
{
    episode->logged = episode->again;
    episode->again = false;
}

/* ---- Sessions --------------------------------------------------------------------------------- */

/*
 * Spinning pays only while every thread that spins has a core: the daemon's, and one for each client. With
 * more, everybody sleeps at once, on both sides.
 */
static void
update_spin(struct leat_server *server)
{
    const bool room = server->options.spinners + server->session_count <= server->options.cores;
    const uint64_t spin_ns = room ? server->options.spin_ns : 0;

    atomic_store_explicit(&server->options.tables->spin_ns, spin_ns, memory_order_relaxed);
    for (struct connection *c = server->connections; c != NULL; c = c->next) {
        if (c->session != NULL) {
            atomic_store_explicit(&c->session->rings->spin_ns, spin_ns < UINT32_MAX ? (uint32_t)spin_ns : UINT32_MAX,
                                  memory_order_relaxed);
        }
    }
}

/* A client that does not read what it asked for is sent away: nobody waits for it. */
static enum leat_status
send_answer(int fd, const void *bytes, size_t size, const int *fds, size_t fd_count)
{
    const enum leat_status status = leat_socket_send(fd, bytes, size, fds, fd_count);

    if (status == LEAT_AGAIN) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "the client does not read its answers");
    }
    return status;
}

static void
send_error(int fd, enum leat_status status)
{
    struct leat_wire_error error = {
        .header = {LEAT_WIRE_MAGIC, LEAT_WIRE_VERSION, LEAT_WIRE_ERROR},
        .status = (int32_t)status,
    };
    (void)snprintf(error.text, sizeof(error.text), "%s", leat_error_text());
    const enum leat_status sent = leat_socket_send(fd, &error, sizeof(error), NULL, 0);
    (void)sent; /* the peer may be gone: nothing to be done */
}

/* Takes the connection down; its memory is freed when no request of the ring points at it any more. */
static void
close_connection(struct leat_server *server, struct connection *connection)
{
    if (connection->closing) {
        return;
    }
    connection->closing = true;
    if (connection->session != NULL) {
        const struct leat_command command = {.kind = LEAT_COMMAND_CLOSE_SESSION, .session = connection->session};
        leat_dispatcher_command(server->options.dispatcher, &command);
        connection->session = NULL;
    }
    if (connection->job != NULL) {
        atomic_store_explicit(&connection->job->abandoned, true, memory_order_relaxed);
        connection->job->owner = NULL;
        connection->job = NULL;
    }
    if (connection->polls > 0) {
        unwatch(server, connection, TAG_SOCKET);
        unwatch(server, connection, TAG_PROCESS);
        unwatch(server, connection, TAG_ANSWER);
    }
    (void)shutdown(connection->fd, SHUT_RDWR);
    (void)atomic_fetch_add_explicit(&server->closed, 1, memory_order_relaxed);
}

static void
free_connection(struct leat_server *server, struct connection *connection)
{
    LEAT_ASSERT(connection->closing && connection->polls == 0 && connection->session == NULL);
    if (connection->previous != NULL) {
        connection->previous->next = connection->next;
    } else {
        server->connections = connection->next;
    }
    if (connection->next != NULL) {
        connection->next->previous = connection->previous;
    }
    (void)close(connection->fd);
    if (connection->pidfd >= 0) {
        (void)close(connection->pidfd);
    }
    if (connection->answer_fd >= 0) {
        (void)close(connection->answer_fd);
    }
    free(connection);
    accept_again(server);
}

static void
note_counts(struct leat_server *server)
{
    atomic_store_explicit(&server->sessions_seen, server->session_count, memory_order_relaxed);
    atomic_store_explicit(&server->counted_seen, leat_quota_sessions(&server->quota), memory_order_relaxed);
}

/* The job's session, if it has one, counts until its memory is back. */
static void
give_back(struct leat_server *server, struct leat_session_job *job)
{
    job->work = LEAT_SESSION_GIVE_BACK;
    job->keep_pages = server->stopping;
    leat_session_maker_submit(server->maker, job);
}

static void
session_gone(struct leat_server *server, struct leat_daemon_session *session)
{
    atomic_store_explicit(&server->options.tables->sessions[session->index], NULL, memory_order_relaxed);
    server->session_count--;
    note_counts(server);
    update_spin(server);
    give_back(server, &server->jobs[session->index]);
}

static uint32_t
round_up_power_of_two(uint32_t value)
{
    return value <= 1 ? 1 : 1u << (32 - __builtin_clz(value - 1));
}

/* What the client asked for, within the limits of one; refuses rather than quietly giving less. */
static enum leat_status
size_session(const struct leat_server *server, const struct leat_wire_hello *hello,
             struct leat_session_options *ret_options)
{
    const struct leat_server_options *limits = &server->options;
    const uint32_t slots = hello->slots == 0 ? limits->slots_default : hello->slots;
    const uint64_t arena = hello->arena_bytes == 0 ? limits->arena_default_bytes : hello->arena_bytes;

    if (server->stopping) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "the daemon is shutting down");
    }
    if (slots > limits->slots_max) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%u slots asked for, at most %u allowed (limits.slots_per_session)", slots,
                         limits->slots_max);
    }
    if (arena > limits->arena_max_bytes) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "an arena of %llu bytes asked for, at most %llu allowed "
                                         "(limits.arena_bytes_per_session)",
                         (unsigned long long)arena, (unsigned long long)limits->arena_max_bytes);
    }
    const uint32_t rounded = round_up_power_of_two(slots);
    *ret_options = (struct leat_session_options){
        .slots = rounded < LEAT_SLOTS_MIN ? LEAT_SLOTS_MIN : rounded,
        .lane_count = limits->lane_count,
        .arena_bytes = leat_round_up(arena, 4096),
        .near_node = hello->near_node,
    };
    return LEAT_OK;
}

/* HELLO: has the session made, if it may be. WELCOME follows when it is there. */
static enum leat_status
begin_session(struct leat_server *server, struct connection *connection, const struct leat_wire_hello *hello)
{
    struct leat_session_options options;
    uint16_t index;

    if (hello->version_min > LEAT_WIRE_VERSION || hello->version_max < LEAT_WIRE_VERSION) {
        return LEAT_FAIL(LEAT_ERR_VERSION, "the client speaks protocol versions %u to %u, this daemon %u",
                         hello->version_min, hello->version_max, LEAT_WIRE_VERSION);
    }
    enum leat_status status = size_session(server, hello, &options);
    if (status == LEAT_OK) {
        const uint64_t bytes = options.arena_bytes + leat_wire_rings_bytes(options.slots, options.lane_count);
        status = leat_quota_take(&server->quota, connection->uid, bytes, &index);
    }
    if (status != LEAT_OK) {
        return status;
    }
    note_counts(server);
    connection->greeted = true;
    struct leat_session_job *job = &server->jobs[index];
    LEAT_ASSERT(job->session == NULL);
    job->work = LEAT_SESSION_MAKE;
    job->options = options;
    job->owner = connection;
    atomic_store_explicit(&job->abandoned, false, memory_order_relaxed);
    connection->job = job;
    leat_session_maker_submit(server->maker, job);
    return LEAT_OK;
}

/* Lets workers fetch what the session's first query will need. */
static void
tell_workers(struct leat_server *server, struct leat_daemon_session *session)
{
    struct leat_shared_tables *tables = server->options.tables;
    const uint64_t count = atomic_load_explicit(&tables->opened.count, memory_order_relaxed);

    atomic_store_explicit(&tables->opened.session, session, memory_order_relaxed);
    atomic_store_explicit(&tables->opened.lanes, session->lanes, memory_order_relaxed);
    atomic_store_explicit(&tables->opened.slots, session->slots, memory_order_relaxed);
    atomic_store_explicit(&tables->opened.count, count + 1, memory_order_relaxed);
}

/* The session is there: the dispatcher learns of it, then the client. */
static enum leat_status
welcome(struct leat_server *server, struct connection *connection, const struct leat_session_job *job)
{
    struct leat_daemon_session *session = job->session;
    struct leat_wire_welcome answer = {
        .header = {LEAT_WIRE_MAGIC, LEAT_WIRE_VERSION, LEAT_WIRE_WELCOME},
        .slots = session->slots,
        .lanes = session->lane_count,
        .arena_bytes = session->arena_bytes,
        .rings_bytes = session->rings_bytes,
        .clock = server->options.tables->clock,
    };
    const int fds[LEAT_WIRE_FD_COUNT] = {
        [LEAT_WIRE_FD_RINGS] = session->rings_fd,
        [LEAT_WIRE_FD_ARENA] = session->arena_fd,
        [LEAT_WIRE_FD_DAEMON] = session->wake_fd,
        [LEAT_WIRE_FD_CLIENT] = session->pipe_read,
    };

    (void)snprintf(answer.daemon_version, sizeof(answer.daemon_version), "%s", LEAT_VERSION_TEXT);
    _Static_assert(sizeof(answer.note) == sizeof(job->note), "the note fits");
    memcpy(answer.note, job->note, sizeof(answer.note));
    session->index = (uint16_t)(job - server->jobs);
    session->uid = connection->uid;
    session->pid = connection->pid;
    server->session_count++;
    note_counts(server);
    atomic_store_explicit(&server->options.tables->sessions[session->index], session, memory_order_relaxed);
    tell_workers(server, session);
    connection->session = session;
    update_spin(server);
    /* Known to the dispatcher before the client hears of it, so that its first query finds somebody. */
    const struct leat_command command = {.kind = LEAT_COMMAND_ADD_SESSION, .session = session};
    leat_dispatcher_command(server->options.dispatcher, &command);
    const enum leat_status status =
        send_answer(connection->fd, &answer, sizeof(answer), fds, LEAT_WIRE_FD_COUNT);
    (void)close(session->rings_fd);
    (void)close(session->arena_fd);
    (void)close(session->pipe_read);
    session->rings_fd = session->arena_fd = session->pipe_read = -1;
    return status;
}

/* ---- Packets ---------------------------------------------------------------------------------- */

static enum leat_status
handle_find(struct leat_server *server, struct connection *connection, const struct leat_wire_find *find)
{
    struct leat_wire_target answer = {.header = {LEAT_WIRE_MAGIC, LEAT_WIRE_VERSION, LEAT_WIRE_TARGET}};

    if (memchr(find->name, '\0', sizeof(find->name)) == NULL) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "a name without an end");
    }
    const enum leat_status status = server->options.find(server->options.context, find->name, &answer.target);
    if (status != LEAT_OK) {
        send_error(connection->fd, status);
        return LEAT_OK; /* a question with a plain answer: the connection lives on */
    }
    return send_answer(connection->fd, &answer, sizeof(answer), NULL, 0);
}

/* A packet of the largest size must fit: else sending it fails. */
static void
make_room_to_send(int fd)
{
    const int bytes = (int)LEAT_WIRE_PACKET_MAX;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)); /* capped by the kernel at worst */
}

/*
 * Who answers gets one end of a socket pair, and the server passes on what comes out of the other: the answer never waits
 * for the client, and the client's next question waits for the answer.
 */
static enum leat_status
handle_admin(struct leat_server *server, struct connection *connection, struct leat_packet *packet)
{
    const size_t length = packet->size - sizeof(struct leat_wire_header);
    char *request = malloc(length + 1);
    int ends[2];

    if (request == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
        free(request);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory or descriptors for a request of %zu bytes", length);
    }
    make_room_to_send(ends[1]);
    memcpy(request, (const char *)packet->bytes + sizeof(struct leat_wire_header), length);
    request[length] = '\0';
    connection->answer_fd = ends[0];
    watch(server, ends[0], connection, TAG_ANSWER);
    server->options.admin(server->options.context, request, connection->uid, packet, ends[1]);
    return LEAT_OK;
}

static enum leat_status
handle_packet(struct leat_server *server, struct connection *connection, struct leat_packet *packet)
{
    struct leat_wire_header header;

    if (packet->size < sizeof(header)) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "a packet of %zu bytes has no header", packet->size);
    }
    memcpy(&header, packet->bytes, sizeof(header));
    if (header.magic != LEAT_WIRE_MAGIC) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "a packet without the leat magic");
    }
    if (header.type == LEAT_WIRE_HELLO && packet->size == sizeof(struct leat_wire_hello) &&
        connection->session == NULL) {
        struct leat_wire_hello hello;
        memcpy(&hello, packet->bytes, sizeof(hello));
        return begin_session(server, connection, &hello);
    }
    if (connection->session != NULL && header.type == LEAT_WIRE_FIND && packet->size == sizeof(struct leat_wire_find)) {
        struct leat_wire_find find;
        memcpy(&find, packet->bytes, sizeof(find));
        return handle_find(server, connection, &find);
    }
    if (connection->session != NULL && header.type == LEAT_WIRE_ADMIN) {
        return handle_admin(server, connection, packet);
    }
    return LEAT_FAIL(LEAT_ERR_PROTO, "packet type %u with %zu bytes is not expected here", header.type, packet->size);
}

static void
refuse(struct leat_server *server, struct connection *connection, enum leat_status status)
{
    if (status != LEAT_ERR_DISCONNECTED) {
        (void)atomic_fetch_add_explicit(&server->refused, 1, memory_order_relaxed);
        if (server->refusals++ < REFUSALS_LOGGED) {
            leat_log(LEAT_LOG_WARNING, "refused process %d of user %u: %s", (int)connection->pid,
                     (unsigned)connection->uid, leat_error_text());
        }
        send_error(connection->fd, status);
    }
    close_connection(server, connection);
}

static void
serve_connection(struct leat_server *server, struct connection *connection)
{
    struct leat_packet packet = {.bytes = server->packet, .capacity = LEAT_WIRE_PACKET_MAX};
    enum leat_status status = leat_socket_receive(connection->fd, &packet);

    if (status == LEAT_AGAIN) {
        watch_socket(server, connection);
        return;
    }
    if (status == LEAT_OK) {
        status = handle_packet(server, connection, &packet);
        leat_packet_close_fds(&packet);
    }
    if (status == LEAT_OK) {
        watch_socket(server, connection);
        return;
    }
    refuse(server, connection, status);
}

/* An administrative request was answered. */
static void
pass_answer(struct leat_server *server, struct connection *connection)
{
    struct leat_packet packet = {.bytes = server->packet, .capacity = LEAT_WIRE_PACKET_MAX};
    enum leat_status status = leat_socket_receive(connection->answer_fd, &packet);

    if (status == LEAT_OK) {
        status = send_answer(connection->fd, packet.bytes, packet.size, NULL, 0);
    }
    (void)close(connection->answer_fd);
    connection->answer_fd = -1;
    if (status != LEAT_OK) {
        refuse(server, connection, status);
    } else {
        unwatch(server, connection, TAG_SOCKET); /* and look what has come meanwhile */
    }
}

/* A session was made, or could not be, while its client waited or left. */
static void
session_made(struct leat_server *server, struct leat_session_job *job)
{
    struct connection *connection = job->owner;
    enum leat_status status = job->status;

    if (connection == NULL) {
        give_back(server, job);
        return;
    }
    connection->job = NULL;
    if (status != LEAT_OK) {
        errno = 0; /* the text has its own already */
        status = LEAT_FAIL(status, "%s", job->text);
    } else if (server->stopping) {
        status = LEAT_FAIL(LEAT_ERR_LIMIT, "the daemon is shutting down");
    } else {
        status = welcome(server, connection, job);
    }
    if (connection->session == NULL) {
        give_back(server, job);
    }
    if (status != LEAT_OK) {
        refuse(server, connection, status);
    } else {
        unwatch(server, connection, TAG_SOCKET); /* and look what has come meanwhile */
    }
}

static void
take_memory(struct leat_server *server)
{
    struct leat_session_job *job;

    while ((job = leat_session_maker_collect(server->maker)) != NULL) {
        if (job->work == LEAT_SESSION_MAKE) {
            session_made(server, job);
        } else {
            leat_quota_give(&server->quota, (uint16_t)(job - server->jobs));
            note_counts(server);
            accept_again(server);
        }
    }
}

/* ---- Accepting ---------------------------------------------------------------------------------- */

static bool
is_silent(const struct connection *connection)
{
    return !connection->greeted && !connection->closing;
}

static uint32_t
count_silent(const struct leat_server *server, uid_t uid)
{
    uint32_t count = 0;
    for (const struct connection *c = server->connections; c != NULL; c = c->next) {
        count += is_silent(c) && c->uid == uid;
    }
    return count;
}

/* The oldest silent connection of the user who has most of them gives way; nothing if there is none. */
static void
drop_silent(struct leat_server *server)
{
    struct connection *victim = NULL;
    uint32_t most = 0;

    for (struct connection *c = server->connections; c != NULL; c = c->next) { /* the newest first */
        if (!is_silent(c)) {
            continue;
        }
        const uint32_t count = victim != NULL && victim->uid == c->uid ? most : count_silent(server, c->uid);
        if (count >= most) {
            victim = c;
            most = count;
        }
    }
    if (victim == NULL) {
        return;
    }
    (void)LEAT_FAIL(LEAT_ERR_LIMIT, "%u connections of user %u have said nothing: the oldest gives way to new ones", most,
                    (unsigned)victim->uid);
    if (episode_begins(&server->crowd)) {
        leat_log(LEAT_LOG_WARNING, "%s", leat_error_text());
    }
    (void)atomic_fetch_add_explicit(&server->refused, 1, memory_order_relaxed);
    send_error(victim->fd, LEAT_ERR_LIMIT);
    close_connection(server, victim);
}

/* As many may be about to say HELLO as could then have a session, of one user and in all. */
static void
bound_silent(struct leat_server *server, uid_t newcomer)
{
    const struct leat_quota_limits *limits = &server->quota.limits;
    uint32_t all = 0;

    for (const struct connection *c = server->connections; c != NULL; c = c->next) {
        all += is_silent(c);
    }
    /* Who is above a user's limit just now has most: all others are at it at most. */
    if (all > limits->sessions || count_silent(server, newcomer) > limits->sessions_per_user) {
        drop_silent(server);
    }
}

/* Nobody is accepted until something is given back, or for a tick: trying on would find no descriptor at once. */
static void
accept_failed(struct leat_server *server, int error)
{
    (void)atomic_fetch_add_explicit(&server->accept_failures, 1, memory_order_relaxed);
    if (episode_begins(&server->shortage)) {
        leat_log(LEAT_LOG_ERROR, "cannot accept connections (%s): trying again when something has been closed",
                 strerror(error));
    }
    drop_silent(server);
}

/* Takes over `fd`. 0 or an errno; then it is closed. */
static int
accept_connection(struct leat_server *server, int fd)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);
    struct connection *connection = aligned_alloc(TAG_MASK + 1, sizeof(*connection));
    int error = connection == NULL ? ENOMEM : getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 ? 0 : errno;
    int pidfd = -1;

    if (error == 0 && peer.pid > 0) {
        /* The peer's process is watched too: a forked child could hold the socket open after its parent died. */
        pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
        error = pidfd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM) ? errno : 0;
    }
    if (error != 0) {
        (void)LEAT_FAIL(LEAT_ERR_LIMIT, "the daemon cannot take another connection now: %s", strerror(error));
        send_error(fd, LEAT_ERR_LIMIT);
        free(connection);
        (void)close(fd);
        return error;
    }
    *connection = (struct connection){
        .fd = fd, .pidfd = pidfd, .uid = peer.uid, .pid = peer.pid, .answer_fd = -1};
    connection->next = server->connections;
    if (server->connections != NULL) {
        server->connections->previous = connection;
    }
    server->connections = connection;
    make_room_to_send(fd);
    (void)atomic_fetch_add_explicit(&server->accepted, 1, memory_order_relaxed);
    watch_socket(server, connection);
    if (pidfd >= 0) {
        watch(server, pidfd, connection, TAG_PROCESS);
    }
    bound_silent(server, peer.uid);
    return 0;
}

static void
accepted(struct leat_server *server, int result)
{
    server->accepting = false;
    if (result == -ECANCELED) {
        return; /* the end has begun */
    }
    const bool passing = result == -EINTR || result == -EAGAIN || result == -ECONNABORTED; /* the caller left, say */
    const int error = result >= 0 ? accept_connection(server, result) : passing ? 0 : -result;
    if (error != 0) {
        accept_failed(server, error);
    } else {
        accept_again(server);
    }
}

/* ---- The loop --------------------------------------------------------------------------------- */

static void
begin_drain(struct leat_server *server)
{
    server->stopping = true;
    server->options.stopping(server->options.context);
    struct io_uring_sqe *sqe = next_sqe(server);
    io_uring_prep_cancel64(sqe, TAG_ACCEPT, 0);
    io_uring_sqe_set_data64(sqe, TAG_IGNORE);
    leat_listener_close(&server->listener); /* who comes now is told at once that nobody listens */
    const struct leat_command command = {.kind = LEAT_COMMAND_DRAIN};
    leat_dispatcher_command(server->options.dispatcher, &command);
}

/* Once: drain. Again, while that goes on: end it. */
static void
take_stops(struct leat_server *server)
{
    uint64_t count = 0;
    if (read(server->stop_fd, &count, sizeof(count)) != (ssize_t)sizeof(count)) {
        return; /* nobody called after all */
    }
    server->stop_now = server->stopping || count > 1;
    if (!server->stopping) {
        begin_drain(server);
    }
}

static void
take_events(struct leat_server *server)
{
    struct leat_event event;
    while (leat_dispatcher_poll_event(server->options.dispatcher, &event)) {
        switch (event.kind) {
        case LEAT_EVENT_SESSION_GONE:
            session_gone(server, event.session);
            break;
        case LEAT_EVENT_APPLICATION_GONE:
            server->options.application_gone(server->options.context, event.application);
            break;
        case LEAT_EVENT_PROFILES_COPIED:
            server->options.profiles_copied(server->options.context, event.profiles);
            break;
        case LEAT_EVENT_POLICY_SET:
            server->options.policy_set(server->options.context, event.policy);
            break;
        case LEAT_EVENT_RESIZED:
            server->options.spinners += event.resize->shape.cores;
            server->options.spinners -= event.resize->before.cores;
            update_spin(server);
            server->options.resized(server->options.context, event.resize);
            break;
        case LEAT_EVENT_DEDICATED:
            server->options.dedicated(server->options.context, event.dedication);
            break;
        case LEAT_EVENT_PIPELINE_GONE:
            server->options.pipeline_gone(server->options.context, event.pipeline);
            break;
        case LEAT_EVENT_JUMP:
            server->options.jumped(server->options.context);
            break;
        case LEAT_EVENT_DRAINED:
            server->drained = true;
            break;
        }
    }
}

static void
handle_completion(struct leat_server *server, uint64_t data, int result)
{
    struct connection *connection = (struct connection *)(uintptr_t)(data & ~(uint64_t)TAG_MASK);

    switch ((enum tag)(data & TAG_MASK)) {
    case TAG_ACCEPT:
        accepted(server, result);
        break;
    case TAG_STOP:
        take_stops(server);
        watch(server, server->stop_fd, NULL, TAG_STOP);
        break;
    case TAG_EVENTS:
        take_events(server);
        watch(server, leat_dispatcher_control_fd(server->options.dispatcher), NULL, TAG_EVENTS);
        break;
    case TAG_MEMORY:
        take_memory(server);
        watch(server, leat_session_maker_event_fd(server->maker), NULL, TAG_MEMORY);
        break;
    case TAG_SOCKET:
        connection->polls--;
        if (!connection->closing && is_busy(connection)) {
            close_connection(server, connection); /* it has left: nothing else is watched for */
        } else if (!connection->closing) {
            serve_connection(server, connection);
        }
        break;
    case TAG_PROCESS:
        connection->polls--;
        if (!connection->closing && result >= 0) {
            close_connection(server, connection);
        }
        break;
    case TAG_ANSWER:
        connection->polls--;
        if (!connection->closing) {
            pass_answer(server, connection);
        }
        break;
    case TAG_IGNORE:
    case TAG_MASK:
        break;
    }
    if (connection != NULL && connection->closing && connection->polls == 0) {
        free_connection(server, connection);
    }
}

/* Submits what is queued, waits and handles everything that is there. */
enum leat_status
leat_server_turn(struct leat_server *server, uint64_t wait_ns, uint32_t *ret_handled)
{
    struct __kernel_timespec timeout = {(int64_t)(wait_ns / 1000000000), (long long)(wait_ns % 1000000000)};
    struct io_uring_cqe *cqe;
    uint32_t handled = 0;
    const int waited = io_uring_submit_and_wait_timeout(&server->ring, &cqe, 1, &timeout, NULL);

    if (waited < 0 && waited != -ETIME && waited != -EINTR) {
        errno = -waited;
        return LEAT_FAIL(LEAT_ERR_SYS, "io_uring wait failed");
    }
    while (io_uring_peek_cqe(&server->ring, &cqe) == 0) {
        const uint64_t data = io_uring_cqe_get_data64(cqe);
        const int result = cqe->res;
        io_uring_cqe_seen(&server->ring, cqe);
        handle_completion(server, data, result);
        handled++;
    }
    *ret_handled = handled;
    return LEAT_OK;
}

bool
leat_server_make_memory(struct leat_server *server)
{
    return leat_session_maker_step(server->maker);
}

static uint64_t
later(uint64_t now_ns, uint64_t by_ns)
{
    return by_ns < UINT64_MAX - now_ns ? now_ns + by_ns : UINT64_MAX;
}

static void
tick(struct leat_server *server)
{
    struct leat_dispatcher_statistics statistics;

    leat_dispatcher_statistics(server->options.dispatcher, &statistics);
    server->options.tick(server->options.context, statistics.rounds);
    if (server->refusals > REFUSALS_LOGGED) {
        leat_log(LEAT_LOG_WARNING, "refused %u more", server->refusals - REFUSALS_LOGGED);
    }
    server->refusals = 0;
    episode_tick(&server->crowd);
    episode_tick(&server->shortage);
    accept_again(server);
}

/* One turn that ends by until_ns if nothing happens, and the watchdog's tick when it is time. */
static enum leat_status
turn_until(struct leat_server *server, uint64_t until_ns)
{
    const uint64_t begin_ns = leat_monotonic_ns();
    const uint64_t left_ns = until_ns > begin_ns ? until_ns - begin_ns : 0;
    uint32_t handled;

    const enum leat_status status = leat_server_turn(server, left_ns < TICK_NS ? left_ns : TICK_NS, &handled);
    const uint64_t now_ns = leat_monotonic_ns();
    if (now_ns - server->ticked_ns >= TICK_NS) {
        server->ticked_ns = now_ns;
        tick(server);
    }
    return status;
}

/* Closes every session; `why` is what ended the drain before all was answered, NULL if nothing did. */
static enum leat_status
close_all(struct leat_server *server, const char *why)
{
    struct leat_dispatcher_statistics before, after;
    enum leat_status status = LEAT_OK;

    leat_dispatcher_statistics(server->options.dispatcher, &before);
    for (struct connection *c = server->connections; c != NULL; c = c->next) {
        close_connection(server, c);
    }
    const uint64_t until_ns = later(leat_monotonic_ns(), LEAT_SERVER_PATIENCE_NS);
    while (status == LEAT_OK && (leat_quota_sessions(&server->quota) > 0 || server->connections != NULL) &&
           leat_monotonic_ns() < until_ns) {
        status = turn_until(server, until_ns);
    }
    leat_dispatcher_statistics(server->options.dispatcher, &after);
    if (why != NULL) {
        const unsigned long long lost = after.abandoned - before.abandoned;
        leat_log(lost > 0 ? LEAT_LOG_WARNING : LEAT_LOG_INFO, "%s: at most %llu accepted queries were not answered",
                 why, lost);
    }
    if (status == LEAT_OK && leat_quota_sessions(&server->quota) > 0) {
        leat_listener_close(&server->listener);
        status = LEAT_FAIL(LEAT_TIMEOUT, "batches of %u sessions run on after the drain: they end with the process",
                           leat_quota_sessions(&server->quota));
    }
    return status;
}

enum leat_status
leat_server_run(struct leat_server *server, uint64_t drain_ns)
{
    uint64_t until_ns = UINT64_MAX;

    enum leat_status status = leat_session_maker_start(server->maker);
    if (status != LEAT_OK) {
        return status;
    }
    server->ticked_ns = leat_monotonic_ns();
    while (!server->drained && !server->stop_now && leat_monotonic_ns() < until_ns) {
        const bool draining = server->stopping;
        status = turn_until(server, until_ns);
        if (status != LEAT_OK) {
            return status;
        }
        if (server->stopping && !draining) {
            until_ns = later(leat_monotonic_ns(), drain_ns);
        }
    }
    return close_all(server, server->drained    ? NULL
                             : server->stop_now ? "told to stop again, the drain ends"
                                                : "the time to drain is over");
}

void
leat_server_stop(struct leat_server *server)
{
    const uint64_t one = 1;
    const ssize_t written = write(server->stop_fd, &one, sizeof(one));
    (void)written;
}

/* ---- Creation --------------------------------------------------------------------------------- */

/*
 * Each session, and each connection on its way to one, needs descriptors, and so does the rest of the daemon: raises our own
 * limit to that, and where it cannot be raised so far lowers the number of sessions. Files of weights have half of what is
 * left then, for how many there will be nobody knows.
 */
static enum leat_status
reserve_descriptors(const struct leat_server_options *options, struct leat_quota_limits *limits)
{
    const rlim_t each = 2 * DESCRIPTORS_OF_CONNECTION + DESCRIPTORS_OF_SESSION;
    const rlim_t beside = LEAT_SERVER_DESCRIPTORS + options->descriptors;
    const rlim_t needed = beside + options->descriptors_of_files + each * limits->sessions;
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot read the limit of open files");
    }
    if (files.rlim_max < needed) {
        const rlim_t left = files.rlim_max > beside ? files.rlim_max - beside : 0;
        const rlim_t half = left - left / 2;
        const rlim_t of_files = half < options->descriptors_of_files ? half : options->descriptors_of_files;
        const rlim_t room = (left - of_files) / each;
        const rlim_t sessions = room < limits->sessions ? room : limits->sessions;
        if (sessions == 0) {
            const rlim_t least =
                beside + each + (options->descriptors_of_files < each ? options->descriptors_of_files : each);
            return LEAT_FAIL(LEAT_ERR_LIMIT, "%llu open files are allowed (RLIMIT_NOFILE), and at least %llu needed",
                             (unsigned long long)files.rlim_max, (unsigned long long)least);
        }
        leat_log(LEAT_LOG_WARNING,
                 "limits.sessions is %u, and the %llu open files that are allowed (RLIMIT_NOFILE) do for %llu beside %llu "
                 "files of models: that many are accepted. %llu files would do (LimitNOFILE= of the unit, ulimit -Hn)",
                 limits->sessions, (unsigned long long)files.rlim_max, (unsigned long long)sessions,
                 (unsigned long long)(left - sessions * each), (unsigned long long)needed);
        limits->sessions_lowered = sessions < limits->sessions;
        limits->sessions = (uint32_t)sessions;
    }
    if (files.rlim_cur < needed && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = needed < files.rlim_max ? needed : files.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &files) != 0) {
            return LEAT_FAIL(LEAT_ERR_SYS, "cannot raise the limit of open files to %llu",
                             (unsigned long long)files.rlim_cur);
        }
    }
    return LEAT_OK;
}

/* Two places can forbid it, and the kernel says the same of both. */
static enum leat_status
open_ring(struct leat_server *server)
{
    const int made = io_uring_queue_init(RING_ENTRIES, &server->ring, 0);

    server->ring_ready = made == 0;
    if (made == 0) {
        return LEAT_OK;
    }
    errno = -made;
    if (made == -EPERM || made == -EACCES || made == -ENOSYS) {
        return LEAT_FAIL(
            LEAT_ERR_SYS,
            "io_uring is not allowed here: either sysctl kernel.io_uring_disabled forbids it (set it to 0), or a "
            "seccomp filter of the container or service does (let it pass io_uring_setup, io_uring_enter and "
            "io_uring_register; in a systemd unit: SystemCallFilter=@aio)");
    }
    return LEAT_FAIL(LEAT_ERR_SYS, "cannot set up io_uring");
}

enum leat_status
leat_server_create(const struct leat_server_options *options, struct leat_server **ret_server)
{
    struct leat_server *server = calloc(1, sizeof(*server));
    enum leat_status status;

    if (server == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the server");
    }
    server->options = *options;
    server->listener.fd = -1;
    server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->packet = malloc(LEAT_WIRE_PACKET_MAX + 1);
    server->jobs = calloc(LEAT_SESSIONS_MAX, sizeof(server->jobs[0]));
    struct leat_quota_limits limits = options->limits;
    status = reserve_descriptors(options, &limits);
    if (status != LEAT_OK) {
        goto err_destroy;
    }
    leat_quota_init(&server->quota, &limits);
    if (server->stop_fd < 0 || server->packet == NULL || server->jobs == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory or descriptors for the server");
        goto err_destroy;
    }
    status = open_ring(server);
    if (status == LEAT_OK) {
        status = leat_session_maker_create(&server->maker);
    }
    if (status == LEAT_OK) {
        status = leat_listener_open(&server->listener, options->socket_path, options->socket_mode, options->socket_group);
    }
    if (status != LEAT_OK) {
        goto err_destroy;
    }
    watch_listener(server);
    watch(server, server->stop_fd, NULL, TAG_STOP);
    watch(server, leat_dispatcher_control_fd(server->options.dispatcher), NULL, TAG_EVENTS);
    watch(server, leat_session_maker_event_fd(server->maker), NULL, TAG_MEMORY);
    update_spin(server);
    *ret_server = server;
    return LEAT_OK;

err_destroy:
    leat_server_destroy(server);
    return status;
}

void
leat_server_destroy(struct leat_server *server)
{
    if (server == NULL) {
        return;
    }
    LEAT_ASSERT(server->connections == NULL);
    leat_listener_close(&server->listener);
    if (server->ring_ready) {
        io_uring_queue_exit(&server->ring);
    }
    if (server->stop_fd >= 0) {
        (void)close(server->stop_fd);
    }
    leat_session_maker_destroy(server->maker);
    free(server->jobs);
    free(server->packet);
    free(server);
}

void
leat_server_statistics(const struct leat_server *server, struct leat_server_statistics *ret_statistics)
{
    *ret_statistics = (struct leat_server_statistics){
        .sessions = atomic_load_explicit(&server->sessions_seen, memory_order_relaxed),
        .counted = atomic_load_explicit(&server->counted_seen, memory_order_relaxed),
        .accepted = atomic_load_explicit(&server->accepted, memory_order_relaxed),
        .refused = atomic_load_explicit(&server->refused, memory_order_relaxed),
        .closed = atomic_load_explicit(&server->closed, memory_order_relaxed),
        .accept_failures = atomic_load_explicit(&server->accept_failures, memory_order_relaxed),
    };
}

void
leat_server_reply(int reply_socket, const char *json)
{
    const struct leat_wire_header header = {LEAT_WIRE_MAGIC, LEAT_WIRE_VERSION, LEAT_WIRE_ADMIN_REPLY};
    const size_t length = strlen(json);
    char *packet = malloc(sizeof(header) + length);
    enum leat_status status = LEAT_ERR_NOMEM;

    if (packet != NULL && length <= LEAT_WIRE_PACKET_MAX - sizeof(header)) {
        memcpy(packet, &header, sizeof(header));
        memcpy(packet + sizeof(header), json, length);
        status = leat_socket_send(reply_socket, packet, sizeof(header) + length, NULL, 0);
    } else {
        (void)LEAT_FAIL(LEAT_ERR_LIMIT, "an answer of %zu bytes is too long", length);
    }
    if (status != LEAT_OK && status != LEAT_ERR_DISCONNECTED) {
        send_error(reply_socket, LEAT_ERR_LIMIT);
    }
    free(packet);
    (void)close(reply_socket);
}
