/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Target    The socket protocol: leat_socket_receive, leat_server's handling of packets, leat_admin_handle's requests.
 * Input     A program for three connections and some that stay silent: connect, send a packet of these bytes with so
 *           many descriptors of this kind, close one's end wholly or in part, let the daemon's parts move on, or one of
 *           them, or not yet.
 * Method    A real server with its io_uring and listening socket, the dispatcher, and what makes sessions' memory, step by
 *           step on one thread.
 *           An honest connection asks in between. They outlive an execution, as a daemon outlives its clients.
 * Property  No crash, leak or sanitizer report. Every packet gets at most one answer, each of a known type and
 *           its size, with text that ends and JSON that parses; after an error about a packet comes the end. The honest
 *           connection gets its answer. Silent connections beyond the limit end, and are told so. At the end no
 *           session, connection or descriptor is left, and nothing counts against the limits but the honest one.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ipc/socket.h"
#include "runtime/daemon_private.h"
#include "runtime/log.h"

enum {
    CONNECTIONS = 3,
    SILENT = 5, /* that only connect: more than may be silent at once, which is as many as there may be sessions */
    SESSIONS_MAX = 3, /* with the honest one's: the last of the three is refused */
    SLOTS_MAX = 16,
    ARENA_MAX = 16384,
    MEMORY_MAX = 53248, /* the honest one's 12 KiB, and not twice the most that one may have */
    STEPS_MAX = 48,
    PUMP_MAX = 1000,
    FDS_MAX = 6, /* above what a packet may carry */
    FD_KINDS = 5,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__asan_default_options(void);

/* Little memory is freed in an execution, and none of it used in the next: a long quarantine would only take time. */
const char *
__asan_default_options(void)
{
    return "quarantine_size_mb=2";
}

struct input {
    const uint8_t *bytes;
    size_t left;
};

static struct connection {
    int fd; /* -1: none */
    uint32_t sent, answered;
    bool welcome; /* has a session */
    bool failed; /* an error about a packet came: the end must follow */
    bool ended;
} connections[CONNECTIONS];

static int silent_fds[SILENT]; /* -1: none */

static struct leat_daemon daemon_state;
static struct leat_profile profiles[1][LEAT_WORKER_CLASSES_MAX];
static struct leat_shared_tables tables;
static struct leat_daemon_worker worker_spec = {.core_count = 1};
static struct leat_application app;
static struct leat_profile profiles[1][LEAT_WORKER_CLASSES_MAX];
static struct sockaddr_un address;
static int honest, first_fd; /* first_fd: opened before all of the daemon's */
static int spare_fds[FD_KINDS];
static unsigned char answer[LEAT_WIRE_PACKET_MAX];

static uint8_t
take(struct input *input)
{
    if (input->left == 0) {
        return 0;
    }
    input->left--;
    return *input->bytes++;
}

/* ---- The daemon's side ------------------------------------------------------------------------ */

static enum leat_status
find(void *context, const char *name, struct leat_target *ret_target)
{
    const struct leat_application *found = leat_daemon_find_application(context, name);
    if (found == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no application or model '%s'", name);
    }
    *ret_target = found->target;
    return LEAT_OK;
}

/* Models and pipelines are other targets': who brings a file, asks for a synthetic one, or adds one is not allowed to. */
static void
admin(void *context, char *request, uid_t uid, struct leat_packet *packet, int reply_socket)
{
    static _Atomic uint32_t open;
    struct leat_admin_job *job = malloc(sizeof(*job));

    LEAT_ASSERT(job != NULL && uid == geteuid());
    *job = (struct leat_admin_job){.request = request,
                                   .uid = uid,
                                   .fd_count = (uint32_t)packet->fd_count,
                                   .open = &open,
                                   .reply_socket = reply_socket};
    memcpy(job->fds, packet->fds, packet->fd_count * sizeof(job->fds[0]));
    packet->fd_count = 0;
    if (strstr(request, "synthetic") != NULL || strstr(request, "pipeline-add") != NULL || strstr(request, "\\u") != NULL ||
        (job->fd_count > 0 && fcntl(job->fds[0], F_GET_SEALS) >= 0)) {
        job->uid = geteuid() + 1;
    }
    leat_admin_handle(context, job);
}

static void
application_gone(void *context, struct leat_application *gone)
{
    (void)context;
    LEAT_ASSERT(gone == NULL); /* nothing here removes one */
}

static void
tick(void *context, uint64_t rounds)
{
    (void)context;
    (void)rounds;
}

/* Lets dispatcher, server and memory go on until none has anything to do. */
static void
pump(void)
{
    uint32_t handled = 1, rounds = 0;
    bool any = true;

    while (any || handled > 0) {
        LEAT_ASSERT(rounds++ < PUMP_MAX);
        any = leat_dispatcher_round(daemon_state.dispatcher, leat_clock_now(&tables.clock));
        any = leat_server_make_memory(daemon_state.server) || any;
        LEAT_MUST(leat_server_turn(daemon_state.server, 0, &handled) == LEAT_OK);
    }
    leat_dispatcher_check(daemon_state.dispatcher);
}

/* ---- The clients' side ------------------------------------------------------------------------ */

static int
connect_once(void)
{
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    LEAT_ASSERT(fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

/* What the daemon may say, and how. */
static void
check_answer(struct connection *connection, const struct leat_packet *packet)
{
    struct leat_wire_header header;
    json_error_t error;
    json_t *json;

    LEAT_ASSERT(packet->size >= sizeof(header) && !connection->failed);
    memcpy(&header, packet->bytes, sizeof(header));
    LEAT_ASSERT(header.magic == LEAT_WIRE_MAGIC && header.version == LEAT_WIRE_VERSION);
    LEAT_ASSERT(packet->fd_count == (header.type == LEAT_WIRE_WELCOME ? LEAT_WIRE_FD_COUNT : 0));
    switch (header.type) {
    case LEAT_WIRE_WELCOME: {
        struct leat_wire_welcome welcome;
        LEAT_ASSERT(packet->size == sizeof(welcome) && !connection->welcome);
        memcpy(&welcome, packet->bytes, sizeof(welcome));
        LEAT_ASSERT(welcome.slots <= SLOTS_MAX && welcome.arena_bytes <= ARENA_MAX);
        connection->welcome = true;
        break;
    }
    case LEAT_WIRE_TARGET:
        LEAT_ASSERT(packet->size == sizeof(struct leat_wire_target) && connection->welcome);
        break;
    case LEAT_WIRE_ADMIN_REPLY:
        LEAT_ASSERT(connection->welcome);
        json = json_loadb((const char *)packet->bytes + sizeof(header), packet->size - sizeof(header), 0, &error);
        LEAT_ASSERT(json_is_object(json));
        json_decref(json);
        break;
    case LEAT_WIRE_ERROR: {
        struct leat_wire_error message;
        LEAT_ASSERT(packet->size == sizeof(message));
        memcpy(&message, packet->bytes, sizeof(message));
        LEAT_ASSERT(message.status < 0 && memchr(message.text, '\0', sizeof(message.text)) != NULL);
        LEAT_ASSERT(message.text[0] != '\0');
        connection->failed = message.status != LEAT_ERR_NOT_FOUND; /* a name that is not there ends nothing */
        break;
    }
    default:
        LEAT_ASSERT(false && "an answer of no known type");
    }
}

static void
collect(struct connection *connection)
{
    while (connection->fd >= 0 && !connection->ended) {
        struct leat_packet packet = {.bytes = answer, .capacity = sizeof(answer)};
        const enum leat_status status = leat_socket_receive(connection->fd, &packet);
        if (status == LEAT_AGAIN) {
            break;
        }
        if (status == LEAT_ERR_DISCONNECTED) {
            connection->ended = true;
            break;
        }
        LEAT_ASSERT(status == LEAT_OK);
        check_answer(connection, &packet);
        leat_packet_close_fds(&packet);
        connection->answered++;
        LEAT_ASSERT(connection->answered <= connection->sent);
    }
}

/* Everything sent has been dealt with: answered, or the connection has ended. */
static void
check_settled(struct connection *connection)
{
    collect(connection);
    if (connection->fd >= 0) {
        LEAT_ASSERT(connection->ended || (!connection->failed && connection->answered == connection->sent));
    }
}

static void
send_packet(struct input *input, struct connection *connection)
{
    static unsigned char bytes[4096];
    const uint8_t how = take(input), type = take(input), fds = (how & 4) != 0 ? take(input) : 0;
    const uint32_t fd_count = fds % (FDS_MAX + 1);
    size_t size = take(input);
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;

    switch (how & 3) {
    case 0: /* as it comes */
        break;
    case 1:
        size = type == LEAT_WIRE_HELLO ? sizeof(struct leat_wire_hello) : sizeof(struct leat_wire_find);
        break;
    case 2:
        size += sizeof(struct leat_wire_header);
        break;
    default:
        size = size * 16 + 8;
        break;
    }
    memset(bytes, 0, size);
    size_t from = 0;
    if ((how & 3) != 0) {
        const struct leat_wire_header header = {LEAT_WIRE_MAGIC, LEAT_WIRE_VERSION, type};
        memcpy(bytes, &header, sizeof(header));
        from = sizeof(header);
    }
    const size_t given = input->left < size - from ? input->left : size - from;
    if (size > from) {
        memcpy(bytes + from, input->bytes, given);
        input->bytes += given;
        input->left -= given;
    }
    struct iovec part = {.iov_base = bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        const int kind = (fds >> 3) % FD_KINDS;
        memset(&control, 0, sizeof(control));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        for (uint32_t i = 0; i < fd_count; i++) {
            const int fd = kind == 0 ? connection->fd : spare_fds[kind]; /* its own end as well */
            memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof(int));
        }
    }
    if (sendmsg(connection->fd, &message, MSG_NOSIGNAL) >= 0) {
        connection->sent++;
    } else {
        LEAT_ASSERT(errno == EPIPE || errno == ECONNRESET || errno == EAGAIN);
    }
}

static void
hang_up(struct connection *connection)
{
    if (connection->fd >= 0) {
        LEAT_MUST(close(connection->fd) == 0);
    }
    *connection = (struct connection){.fd = -1};
}

/* The honest connection gets its answer, whatever the others do. */
static void
ask_honestly(void)
{
    struct leat_wire_find question = {.header = {LEAT_WIRE_MAGIC, LEAT_WIRE_VERSION, LEAT_WIRE_FIND}, .name = "fuzz"};
    struct leat_wire_target target;
    struct leat_packet packet = {.bytes = &target, .capacity = sizeof(target)};

    LEAT_MUST(leat_socket_send(honest, &question, sizeof(question), NULL, 0) == LEAT_OK);
    pump();
    LEAT_MUST(leat_socket_receive(honest, &packet) == LEAT_OK);
    LEAT_ASSERT(packet.size == sizeof(target) && target.header.type == LEAT_WIRE_TARGET);
    LEAT_ASSERT(memcmp(&target.target, &app.target, sizeof(app.target)) == 0);
}

/* Is it still there? One that is not was told why. */
static bool
silent_lives(int fd)
{
    struct leat_wire_error message;
    struct leat_packet packet = {.bytes = &message, .capacity = sizeof(message)};
    const enum leat_status status = leat_socket_receive(fd, &packet);

    if (status == LEAT_AGAIN) {
        return true;
    }
    LEAT_ASSERT(status == LEAT_OK && packet.size == sizeof(message) && packet.fd_count == 0);
    LEAT_ASSERT(message.header.type == LEAT_WIRE_ERROR && message.status == LEAT_ERR_LIMIT);
    LEAT_ASSERT(leat_socket_receive(fd, &packet) == LEAT_ERR_DISCONNECTED);
    return false;
}

static void
check_silent(void)
{
    int living = 0;
    for (int n = 0; n < SILENT; n++) {
        if (silent_fds[n] >= 0 && silent_lives(silent_fds[n])) {
            living++;
        } else if (silent_fds[n] >= 0) {
            LEAT_MUST(close(silent_fds[n]) == 0);
            silent_fds[n] = -1;
        }
    }
    LEAT_ASSERT(living <= SESSIONS_MAX);
}

static void
toggle_silent(int *fd)
{
    if (*fd < 0) {
        *fd = connect_once();
    } else {
        LEAT_MUST(close(*fd) == 0);
        *fd = -1;
    }
}

static void
step(struct input *input)
{
    const uint8_t op = take(input);
    struct connection *connection = &connections[(op >> 4) % CONNECTIONS];
    uint32_t handled;

    switch (op & 7) {
    case 0:
        pump();
        for (int c = 0; c < CONNECTIONS; c++) {
            check_settled(&connections[c]);
        }
        check_silent();
        break;
    case 1:
        ask_honestly();
        break;
    case 2:
        hang_up(connection);
        break;
    case 3:
        if (connection->fd >= 0) {
            (void)shutdown(connection->fd, (op >> 5) % 3); /* SHUT_RD, SHUT_WR, SHUT_RDWR */
            hang_up(connection);
        }
        break;
    case 4: /* not settled yet */
        if ((op & 8) != 0) {
            (void)leat_server_make_memory(daemon_state.server);
        } else if ((op & 16) != 0) {
            LEAT_MUST(leat_server_turn(daemon_state.server, 0, &handled) == LEAT_OK);
        } else {
            (void)leat_dispatcher_round(daemon_state.dispatcher, leat_clock_now(&tables.clock));
        }
        break;
    case 7:
        toggle_silent(&silent_fds[(op >> 3) % SILENT]);
        break;
    default:
        if (connection->fd < 0) {
            *connection = (struct connection){.fd = connect_once()};
        }
        send_packet(input, connection);
        break;
    }
}

/* ---- Life ------------------------------------------------------------------------------------- */

static void
remove_socket(void)
{
    (void)unlink(address.sun_path);
}

static void
start_daemon(void)
{
    static const uint16_t classes[1] = {0};
    static char path[64];
    struct leat_dispatcher *dispatcher;

    leat_log_level_set(LEAT_LOG_ERROR); /* a line for each refusal is too many */
    (void)snprintf(path, sizeof(path), "/tmp/leat-fuzz-control-%d.sock", (int)getpid());
    LEAT_MUST(leat_socket_address(path, &address) == LEAT_OK);
    leat_clock_init(&tables.clock);
    const struct leat_dispatcher_options options = {
        .tables = &tables,
        .workers = daemon_state.workers,
        .worker_classes = classes,
        .worker_count = 1,
        .worker_depth = 1,
        .queue_capacity = 16,
        .cpu = -1,
    };
    LEAT_MUST(leat_dispatcher_create(&options, &dispatcher) == LEAT_OK);
    const struct leat_worker_options worker_options = {
        .core_count = 1,
        .tables = &tables,
        .dispatcher_bell = leat_dispatcher_bell(dispatcher),
        .dispatcher_event = leat_dispatcher_event_fd(dispatcher),
    };
    LEAT_MUST(leat_worker_create(&worker_options, &daemon_state.workers[0]) == LEAT_OK);
    const struct leat_server_options server_options = {
        .socket_path = path,
        .socket_mode = 0600,
        .socket_group = (gid_t)-1,
        .limits = {.sessions = SESSIONS_MAX,
                   .sessions_per_user = SESSIONS_MAX,
                   .bytes = MEMORY_MAX,
                   .bytes_per_user = MEMORY_MAX},
        .slots_default = 4,
        .slots_max = SLOTS_MAX,
        .arena_default_bytes = 4096,
        .arena_max_bytes = ARENA_MAX,
        .lane_count = 2,
        .cores = 1,
        .spinners = 2,
        .tables = &tables,
        .dispatcher = dispatcher,
        .find = find,
        .admin = admin,
        .application_gone = application_gone,
        .tick = tick,
        .context = &daemon_state,
    };
    LEAT_MUST(leat_server_create(&server_options, &daemon_state.server) == LEAT_OK);
    LEAT_MUST(atexit(remove_socket) == 0);
    daemon_state.options.workers = &worker_spec;
    daemon_state.options.worker_count = 1;
    daemon_state.server_done = true; /* nobody would answer who waits for the dispatcher */
    daemon_state.options.topology = json_object();
    daemon_state.tables = &tables;
    daemon_state.dispatcher = dispatcher;
    LEAT_MUST(pthread_mutex_init(&daemon_state.mutex, NULL) == 0);
    (void)strcpy(app.name, "fuzz");
    app.router = &leat_router_fcfs;
    app.profiles = profiles;
    app.selector = &leat_selector_fixed;
    app.target = (struct leat_target){.items_max = 8, .input_count = 1, .output_count = 1};
    app.profiles = profiles;
    daemon_state.applications[0] = &app; /* as far as control goes: no query reaches the dispatcher */
}

static void
prepare(void)
{
    const struct leat_wire_hello hello = {
        .header = {LEAT_WIRE_MAGIC, 0, LEAT_WIRE_HELLO}, .version_min = 1, .version_max = LEAT_WIRE_VERSION};
    struct leat_packet packet = {.bytes = answer, .capacity = sizeof(answer)};
    int ends[2];

    first_fd = spare_fds[1] = eventfd(0, EFD_CLOEXEC);
    start_daemon();
    LEAT_MUST(pipe2(ends, O_CLOEXEC) == 0);
    spare_fds[2] = ends[0];
    spare_fds[3] = memfd_create("fuzz", MFD_CLOEXEC);
    spare_fds[4] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    LEAT_ASSERT(spare_fds[1] >= 0 && spare_fds[3] >= 0 && spare_fds[4] >= 0);
    honest = connect_once();
    LEAT_MUST(leat_socket_send(honest, &hello, sizeof(hello), NULL, 0) == LEAT_OK);
    pump();
    LEAT_MUST(leat_socket_receive(honest, &packet) == LEAT_OK && packet.fd_count == LEAT_WIRE_FD_COUNT);
    leat_packet_close_fds(&packet);
    for (int c = 0; c < CONNECTIONS; c++) {
        connections[c].fd = -1;
    }
    memset(silent_fds, 0xff, sizeof(silent_fds));
}

/* Which of the 64 descriptors from the daemon's first on are open. New ones take the lowest free numbers. */
static uint64_t
open_descriptors(void)
{
    uint64_t open = 0;
    for (int n = 0; n < 64; n++) {
        open |= (uint64_t)(fcntl(first_fd + n, F_GETFD) >= 0) << n;
    }
    return open;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {.bytes = data, .left = size};
    struct leat_server_statistics statistics;
    static bool prepared;

    if (!prepared) {
        prepare();
        prepared = true;
    }
    const uint64_t descriptors = open_descriptors();
    for (int n = 0; n < STEPS_MAX && input.left > 0; n++) {
        step(&input);
    }
    pump();
    for (int c = 0; c < CONNECTIONS; c++) {
        check_settled(&connections[c]);
        hang_up(&connections[c]);
    }
    check_silent();
    for (int n = 0; n < SILENT; n++) {
        if (silent_fds[n] >= 0) {
            toggle_silent(&silent_fds[n]);
        }
    }
    ask_honestly();
    leat_server_statistics(daemon_state.server, &statistics);
    LEAT_ASSERT(statistics.sessions == 1 && statistics.counted == 1 && statistics.accepted == statistics.closed + 1);
    LEAT_ASSERT(open_descriptors() == descriptors);
    return 0;
}
