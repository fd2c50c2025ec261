/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting, leaving and asking the daemon: everything that is not the hot path. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ipc/client/session.h"
#include "ipc/socket.h"

#define DEFAULT_SOCKET_PATH "/run/leat/leat.sock"
enum { CONNECT_TIMEOUT_S = 10 };

/* ---- Mapping what the daemon sent ------------------------------------------------------------- */

/* A mapping can only fault if the file shrinks under it: refuse one that could. */
static enum leat_status
map_sealed(int fd, uint64_t bytes, const char *what, void **ret_memory)
{
    struct stat info;
    const int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || (seals & F_SEAL_GROW) == 0) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "the daemon's %s memory is not sealed", what);
    }
    if (fstat(fd, &info) != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot stat the daemon's %s memory", what);
    }
    if (bytes == 0 || info.st_size < 0 || (uint64_t)info.st_size != bytes) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "the daemon's %s memory has %lld bytes where %llu were announced", what,
                         (long long)info.st_size, (unsigned long long)bytes);
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (memory == MAP_FAILED) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot map %llu bytes of %s memory", (unsigned long long)bytes, what);
    }
    (void)madvise(memory, bytes, MADV_DONTFORK); /* refused at worst: then a forked child can see it */
    *ret_memory = memory;
    return LEAT_OK;
}

static enum leat_status
check_welcome(const struct leat_wire_welcome *welcome, size_t fd_count)
{
    if (fd_count != LEAT_WIRE_FD_COUNT) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "the daemon sent %zu descriptors where %d belong", fd_count,
                         LEAT_WIRE_FD_COUNT);
    }
    if (welcome->header.version != LEAT_WIRE_VERSION) {
        return LEAT_FAIL(LEAT_ERR_VERSION, "the daemon answered in protocol version %u, this library speaks %u",
                         welcome->header.version, LEAT_WIRE_VERSION);
    }
    if (!leat_is_power_of_two(welcome->slots) || welcome->slots < LEAT_SLOTS_MIN ||
        welcome->slots > LEAT_SLOTS_MAX || welcome->lanes < 1 || welcome->lanes > LEAT_LANES_MAX ||
        welcome->rings_bytes != leat_wire_rings_bytes(welcome->slots, welcome->lanes) ||
        welcome->arena_bytes % LEAT_TENSOR_ALIGN != 0 ||
        welcome->arena_bytes / LEAT_TENSOR_ALIGN >= UINT32_C(1) << 31) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "the daemon announced an impossible session: %u slots, %u lanes",
                         welcome->slots, welcome->lanes);
    }
    return LEAT_OK;
}

static enum leat_status
allocate_state(struct leat_session *session)
{
    session->free_slots = calloc(session->slots, sizeof(session->free_slots[0]));
    session->slot_states = calloc(session->slots, sizeof(session->slot_states[0]));
    session->stash = calloc(session->slots, sizeof(session->stash[0]));
    if (session->free_slots == NULL || session->slot_states == NULL || session->stash == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u slots", session->slots);
    }
    for (uint32_t i = 0; i < session->slots; i++) {
        session->free_slots[i] = (uint16_t)(session->slots - 1 - i); /* slot 0 on top */
    }
    session->free_count = session->slots;
    return leat_tensor_arena_create((uint32_t)(session->arena_bytes / LEAT_TENSOR_ALIGN), &session->allocator);
}

/* ---- One connection --------------------------------------------------------------------------- */

/* Undoes `attach` in any half-built state. Leaves what survives a reconnect. */
static void
detach(struct leat_session *session)
{
    const bool ours = session->owner == getpid(); /* a forked child does not have the mappings */

    if (session->rings != NULL && ours) {
        (void)munmap(session->rings, session->rings_bytes);
    }
    if (session->arena != NULL && ours) {
        (void)munmap(session->arena, session->arena_bytes);
    }
    session->rings = NULL;
    session->arena = NULL;
    leat_tensor_arena_destroy(session->allocator);
    session->allocator = NULL;
    free(session->free_slots);
    free(session->slot_states);
    free(session->stash);
    free(session->targets);
    session->free_slots = NULL;
    session->slot_states = NULL;
    session->stash = NULL;
    session->targets = NULL;
    int *const fds[] = {&session->event_fd, &session->socket, &session->daemon_fd, &session->client_fd};
    for (size_t i = 0; i < LEAT_COUNT_OF(fds); i++) {
        if (*fds[i] >= 0) {
            (void)close(*fds[i]);
        }
        *fds[i] = -1;
    }
    session->connected = false;
}

static enum leat_status
connect_socket(const char *path, int *ret_socket)
{
    struct sockaddr_un address;
    enum leat_status status = leat_socket_address(path, &address);
    if (status != LEAT_OK) {
        return status;
    }
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot make a socket");
    }
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0) {
        *ret_socket = fd;
        return LEAT_OK;
    }
    if (errno == EACCES || errno == EPERM) {
        status = LEAT_FAIL(LEAT_ERR_ACCESS,
                           "no permission for %s: join the group that owns it, or change access in the daemon's "
                           "configuration",
                           path);
    } else if (errno == ENOENT || errno == ECONNREFUSED) {
        status = LEAT_FAIL(LEAT_ERR_SYS,
                           "no daemon listens on %s: start one with 'leat serve' or 'systemctl start leatd', or name its "
                           "socket in LEAT_SOCKET",
                           path);
    } else if (errno == EPROTOTYPE) {
        status = LEAT_FAIL(LEAT_ERR_PROTO, "%s is not a leat daemon's socket", path);
    } else {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot connect to %s", path);
    }
    (void)close(fd);
    return status;
}

/*
 * Receives one packet of `type` with at least `size_min` bytes; an ERROR packet becomes its status. Where it fails with
 * packet->size 0 no answer was received: it may come later.
 */
static enum leat_status
receive_answer(int socket, uint16_t type, size_t size_min, struct leat_packet *packet)
{
    const enum leat_status status = leat_socket_receive(socket, packet);
    if (status == LEAT_AGAIN) {
        return LEAT_FAIL(LEAT_TIMEOUT, "the daemon did not answer within %d s", CONNECT_TIMEOUT_S);
    }
    if (status != LEAT_OK) {
        return status;
    }
    struct leat_wire_header header = {0};
    if (packet->size >= sizeof(header)) {
        memcpy(&header, packet->bytes, sizeof(header));
    }
    if (header.magic == LEAT_WIRE_MAGIC && header.type == LEAT_WIRE_ERROR &&
        packet->size == sizeof(struct leat_wire_error)) {
        struct leat_wire_error error;
        memcpy(&error, packet->bytes, sizeof(error));
        error.text[sizeof(error.text) - 1] = '\0';
        leat_packet_close_fds(packet);
        const bool known = error.status >= LEAT_STATUS_MIN && error.status < 0;
        errno = 0;
        return LEAT_FAIL(known ? (enum leat_status)error.status : LEAT_ERR_PROTO, "%s", error.text);
    }
    if (header.magic != LEAT_WIRE_MAGIC || header.type != type || packet->size < size_min) {
        const size_t size = packet->size;
        leat_packet_close_fds(packet);
        packet->size = 0;
        return LEAT_FAIL(LEAT_ERR_PROTO, "the daemon's answer is malformed (%zu bytes)", size);
    }
    return LEAT_OK;
}

static enum leat_status
handshake(struct leat_session *session, struct leat_wire_welcome *welcome, int fds[LEAT_WIRE_FD_COUNT])
{
    struct leat_wire_hello hello = {
        .header = {LEAT_WIRE_MAGIC, 0, LEAT_WIRE_HELLO},
        .version_min = LEAT_WIRE_VERSION,
        .version_max = LEAT_WIRE_VERSION,
        .slots = session->options.slots,
        .arena_bytes = session->options.arena_bytes,
    };
    const struct timeval timeout = {CONNECT_TIMEOUT_S, 0};
    union {
        struct leat_wire_welcome welcome;
        struct leat_wire_error error; /* comes in its place, and is longer */
    } answer;
    struct leat_packet packet = {.bytes = &answer, .capacity = sizeof(answer)};

    unsigned node;
    if (getcpu(NULL, &node) == 0) {
        hello.near_node = node + 1;
    }
    (void)strncpy(hello.library_version, LEAT_VERSION_TEXT, sizeof(hello.library_version) - 1);
    (void)setsockopt(session->socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    enum leat_status status = leat_socket_send(session->socket, &hello, sizeof(hello), NULL, 0);
    /* A daemon that turns us away may have closed already: its error packet is still there to read. */
    if (status != LEAT_OK && status != LEAT_ERR_DISCONNECTED) {
        return status;
    }
    status = receive_answer(session->socket, LEAT_WIRE_WELCOME, sizeof(*welcome), &packet);
    if (status != LEAT_OK) {
        return status;
    }
    *welcome = answer.welcome;
    status = check_welcome(welcome, packet.fd_count);
    if (status != LEAT_OK) {
        leat_packet_close_fds(&packet);
        return status;
    }
    memcpy(fds, packet.fds, sizeof(packet.fds[0]) * LEAT_WIRE_FD_COUNT);
    return LEAT_OK;
}

/* Looks at what the first query will: its address translations and lines are then there. */
static void
look_ahead(const struct leat_session *session)
{
    (void)atomic_load_explicit(&session->submit_cells[0].sequence, memory_order_relaxed);
    (void)atomic_load_explicit(&session->rings->daemon_bell.asleep, memory_order_relaxed);
    (void)atomic_load_explicit(&session->rings->client_bell.asleep, memory_order_relaxed);
    for (uint32_t lane = 0; lane < session->lane_count; lane++) {
        (void)atomic_load_explicit(&session->lanes[(size_t)lane * session->slots].sequence, memory_order_relaxed);
    }
}

static enum leat_status
attach(struct leat_session *session)
{
    struct leat_wire_welcome welcome;
    int fds[LEAT_WIRE_FD_COUNT] = {-1, -1, -1, -1};
    void *memory = NULL;

    session->owner = getpid();
    enum leat_status status = connect_socket(session->socket_path, &session->socket);
    if (status != LEAT_OK) {
        return status;
    }
    status = handshake(session, &welcome, fds);
    if (status != LEAT_OK) {
        goto err_detach;
    }
    session->daemon_fd = fds[LEAT_WIRE_FD_DAEMON];
    session->client_fd = fds[LEAT_WIRE_FD_CLIENT];
    status = map_sealed(fds[LEAT_WIRE_FD_RINGS], welcome.rings_bytes, "ring", &memory);
    if (status != LEAT_OK) {
        goto err_close_memory;
    }
    session->rings = memory;
    session->rings_bytes = welcome.rings_bytes;
    status = map_sealed(fds[LEAT_WIRE_FD_ARENA], welcome.arena_bytes, "tensor", &memory);
    if (status != LEAT_OK) {
        goto err_close_memory;
    }
    session->arena = memory;
    session->arena_bytes = welcome.arena_bytes;
    (void)close(fds[LEAT_WIRE_FD_RINGS]);
    (void)close(fds[LEAT_WIRE_FD_ARENA]);

    session->slots = welcome.slots;
    session->lane_count = welcome.lanes;
    session->clock = welcome.clock;
    session->submit_cells = (void *)((unsigned char *)session->rings + leat_wire_submit_offset());
    session->lanes = (void *)((unsigned char *)session->rings + leat_wire_lane_offset(welcome.slots, 0));
    session->lists = (void *)((unsigned char *)session->rings + leat_wire_lists_offset(welcome.slots, welcome.lanes));
    session->submit_position = 0;
    memset(session->lane_positions, 0, sizeof(session->lane_positions));
    session->lane_next = 0;
    session->in_flight = 0;
    session->stash_head = session->stash_count = 0;
    session->target_count = 0;
    session->empty_polls = 0;
    session->peer_checked_ns = leat_clock_now(&session->clock);
    session->spin_budget_ns = UINT64_MAX; /* the daemon's word, until waits have been seen */
    memcpy(session->daemon_version, welcome.daemon_version, sizeof(session->daemon_version));
    memcpy(session->note, welcome.note, sizeof(session->note));
    session->daemon_version[sizeof(session->daemon_version) - 1] = '\0';
    session->note[sizeof(session->note) - 1] = '\0';
    status = allocate_state(session);
    if (status != LEAT_OK) {
        goto err_detach;
    }
    look_ahead(session);
    session->connected = true;
    return LEAT_OK;

err_close_memory:
    (void)close(fds[LEAT_WIRE_FD_RINGS]);
    (void)close(fds[LEAT_WIRE_FD_ARENA]);
err_detach:
    detach(session);
    return status;
}

enum leat_status
leat_open(const struct leat_options *options, struct leat_session **ret_session)
{
    static const struct leat_options defaults = LEAT_OPTIONS_INIT;
    if (options == NULL) {
        options = &defaults;
    }
    if (options->size != sizeof(*options)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "leat_options.size is %u: initialise it with LEAT_OPTIONS_INIT",
                         options->size);
    }
    if (options->slots > LEAT_SLOTS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%u slots asked for, at most %u are possible", options->slots,
                         LEAT_SLOTS_MAX);
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(options->reserved); i++) {
        if (options->reserved[i] != 0) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "leat_options.reserved is not zero: initialise it with LEAT_OPTIONS_INIT");
        }
    }
    const char *path = options->socket_path;
    if (path == NULL) {
        path = secure_getenv("LEAT_SOCKET");
    }
    if (path == NULL || path[0] == '\0') {
        path = DEFAULT_SOCKET_PATH;
    }
    struct leat_session *session = calloc(1, sizeof(*session));
    if (session == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a session");
    }
    session->socket = session->daemon_fd = session->client_fd = session->event_fd = -1;
    session->options = *options;
    session->next_ticket = 1;
    if (strlen(path) >= sizeof(session->socket_path)) {
        free(session);
        return LEAT_FAIL(LEAT_ERR_INVALID, "socket path '%s' must have 1 to 107 bytes", path);
    }
    (void)strcpy(session->socket_path, path);
    const enum leat_status status = attach(session);
    if (status != LEAT_OK) {
        free(session);
        return status;
    }
    *ret_session = session;
    return LEAT_OK;
}

enum leat_status
leat_reconnect(struct leat_session *session)
{
    const uint32_t uncollected = leat_in_flight(session);
    if (uncollected > 0) {
        return LEAT_FAIL(LEAT_ERR_BUSY, "%u completions must be collected before reconnecting", uncollected);
    }
    detach(session);
    return attach(session);
}

void
leat_close(struct leat_session *session)
{
    if (session != NULL) {
        detach(session);
        free(session);
    }
}

bool
leat_session_check_peer(struct leat_session *session, uint64_t now_ns, uint64_t every_ns)
{
    if (!session->connected) {
        return false;
    }
    if (atomic_load_explicit(&session->rings->state, memory_order_relaxed) != LEAT_WIRE_OPEN) {
        session->connected = false;
        return false;
    }
    if (now_ns - session->peer_checked_ns < every_ns) {
        return true;
    }
    session->peer_checked_ns = now_ns;
    char byte;
    const ssize_t peeked = recv(session->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (peeked == 0 || (peeked < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        session->connected = false;
    }
    return session->connected;
}

/* ---- Asking ----------------------------------------------------------------------------------- */

static enum leat_status
remember_target(struct leat_session *session, const struct leat_target *target)
{
    if (target->id >= session->target_count) {
        const uint32_t count = target->id + 1;
        struct leat_client_target *grown = realloc(session->targets, count * sizeof(*grown));
        if (grown == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u targets", count);
        }
        memset(grown + session->target_count, 0, (count - session->target_count) * sizeof(*grown));
        session->targets = grown;
        session->target_count = count;
    }
    struct leat_client_target *known = &session->targets[target->id];
    *known = (struct leat_client_target){.known = true,
                                         .items_max = target->items_max,
                                         .length_max = target->length_max,
                                         .tensor_count = target->input_count + target->output_count};
    for (uint32_t i = 0; i < known->tensor_count; i++) {
        known->item_bytes[i] = target->tensors[i].item_bytes;
    }
    return LEAT_OK;
}

static bool
target_is_sane(const struct leat_target *target)
{
    if (target->id > UINT16_MAX || target->items_max == 0 || target->items_max > LEAT_ITEMS_MAX ||
        target->input_count > LEAT_TENSORS_MAX || target->output_count > LEAT_TENSORS_MAX ||
        target->input_count + target->output_count > LEAT_TENSORS_MAX) {
        return false;
    }
    if (target->length_count > LEAT_LENGTHS_MAX || target->length_max > LEAT_LENGTH_MAX ||
        (target->length_count > 0 ? target->lengths[target->length_count - 1] : 0) != target->length_max) {
        return false;
    }
    for (uint32_t i = 0; i < target->input_count + target->output_count; i++) {
        const struct leat_tensor_info *info = &target->tensors[i];
        if (memchr(info->name, '\0', sizeof(info->name)) == NULL || info->rank == 0 || info->rank > LEAT_RANK_MAX ||
            leat_dtype_bytes(info->dtype) == 0 || target->length_axes[i] >= info->rank || info->item_bytes == 0 || info->item_bytes > UINT64_C(1) << 40) {
            return false;
        }
    }
    return true;
}

/* Answers do not say what was asked: one that still comes would be taken for that to the next question. */
static void
give_up(struct leat_session *session)
{
    (void)shutdown(session->socket, SHUT_RDWR);
    session->connected = false;
}

/* One question and its answer, in `packet`. What comes with the answer, descriptors too, is the caller's on success only. */
static enum leat_status
ask(struct leat_session *session, const void *question, size_t size, const int *fds, size_t fd_count, uint16_t type,
    size_t size_min, struct leat_packet *packet)
{
    enum leat_status status = leat_socket_send(session->socket, question, size, fds, fd_count);

    if (status == LEAT_ERR_DISCONNECTED) {
        session->connected = false;
    }
    if (status != LEAT_OK) {
        return status;
    }
    status = receive_answer(session->socket, type, size_min, packet);
    if (status != LEAT_OK && packet->size == 0) {
        give_up(session);
    }
    return status;
}

enum leat_status
leat_find(struct leat_session *session, const char *name, struct leat_target *ret_target)
{
    struct leat_wire_find find = {.header = {LEAT_WIRE_MAGIC, LEAT_WIRE_VERSION, LEAT_WIRE_FIND}};
    struct leat_wire_target answer;
    struct leat_packet packet = {.bytes = &answer, .capacity = sizeof(answer)};

    if (!session->connected) {
        return LEAT_FAIL(LEAT_ERR_DISCONNECTED, "the session has lost its daemon: leat_reconnect");
    }
    if (strlen(name) == 0 || strlen(name) >= sizeof(find.name)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a name has 1 to %zu bytes", sizeof(find.name) - 1);
    }
    (void)strcpy(find.name, name);
    enum leat_status status = ask(session, &find, sizeof(find), NULL, 0, LEAT_WIRE_TARGET, sizeof(answer), &packet);
    if (status != LEAT_OK) {
        return status;
    }
    leat_packet_close_fds(&packet);
    if (!target_is_sane(&answer.target)) {
        give_up(session);
        return LEAT_FAIL(LEAT_ERR_PROTO, "the daemon described '%s' impossibly", name);
    }
    status = remember_target(session, &answer.target);
    if (status == LEAT_OK) {
        *ret_target = answer.target;
    }
    return status;
}

enum leat_status
leat_admin_files(struct leat_session *session, const char *request_json, const int *fds, size_t fd_count,
                 char **ret_reply_json)
{
    const size_t length = strlen(request_json);
    const struct timeval for_ever = {0, 0}, timeout = {CONNECT_TIMEOUT_S, 0};

    if (!session->connected) {
        return LEAT_FAIL(LEAT_ERR_DISCONNECTED, "the session has lost its daemon: leat_reconnect");
    }
    if (length > LEAT_WIRE_PACKET_MAX - sizeof(struct leat_wire_header)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a request of %zu bytes is too long", length);
    }
    if (fd_count > LEAT_SOCKET_FDS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a request with %zu descriptors; it may have %u", fd_count, LEAT_SOCKET_FDS_MAX);
    }
    char *buffer = malloc(LEAT_WIRE_PACKET_MAX + 1);
    if (buffer == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a request");
    }
    const struct leat_wire_header header = {LEAT_WIRE_MAGIC, LEAT_WIRE_VERSION, LEAT_WIRE_ADMIN};
    memcpy(buffer, &header, sizeof(header));
    memcpy(buffer + sizeof(header), request_json, length);
    struct leat_packet packet = {.bytes = buffer, .capacity = LEAT_WIRE_PACKET_MAX};
    /* Loading a large model takes as long as it takes; the daemon's death ends the wait. */
    (void)setsockopt(session->socket, SOL_SOCKET, SO_RCVTIMEO, &for_ever, sizeof(for_ever));
    const enum leat_status status = ask(session, buffer, sizeof(header) + length, fds, fd_count, LEAT_WIRE_ADMIN_REPLY,
                                        sizeof(header), &packet);
    (void)setsockopt(session->socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    if (status != LEAT_OK) {
        free(buffer);
        return status;
    }
    leat_packet_close_fds(&packet);
    memmove(buffer, buffer + sizeof(header), packet.size - sizeof(header));
    buffer[packet.size - sizeof(header)] = '\0';
    *ret_reply_json = buffer;
    return LEAT_OK;
}

enum leat_status
leat_admin(struct leat_session *session, const char *request_json, int fd, char **ret_reply_json)
{
    return leat_admin_files(session, request_json, &fd, fd >= 0 ? 1 : 0, ret_reply_json);
}

void
leat_admin_free(char *reply_json)
{
    free(reply_json);
}

const char *
leat_session_note(const struct leat_session *session)
{
    return session->note;
}

const char *
leat_daemon_version(const struct leat_session *session)
{
    return session->daemon_version;
}

int
leat_event_fd(struct leat_session *session)
{
    if (session->event_fd >= 0 || !session->connected) {
        return session->event_fd;
    }
    const int fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event woken = {.events = EPOLLIN}, closed = {.events = EPOLLRDHUP};
    if (fd < 0 || epoll_ctl(fd, EPOLL_CTL_ADD, session->client_fd, &woken) != 0 ||
        epoll_ctl(fd, EPOLL_CTL_ADD, session->socket, &closed) != 0) {
        (void)LEAT_FAIL(LEAT_ERR_SYS, "cannot make an event descriptor");
        if (fd >= 0) {
            (void)close(fd);
        }
        return -1;
    }
    session->event_fd = fd;
    return fd;
}
