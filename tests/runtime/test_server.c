/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Setting up one session keeps nobody else waiting, and leaves nothing behind whatever its client does meanwhile.
 *          What is being made, in use or not yet given back counts against the limits. What a client still holds of a
 *          session that has ended is taken back, unless the daemon ends. There are no more sessions than descriptors
 *          for them.
 * Method   The server, the dispatcher and what makes the memory, step by step on one thread: a test decides who has had
 *          how many steps when it looks at what the clients have been told.
 */
#include <dirent.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc/socket.h"
#include "runtime/log.h"
#include "runtime/server.h"
#include "tests/leat_test.h"

#define MIB (UINT64_C(1) << 20)

enum { STEPS_MAX = 10000, ADMINS_MAX = 8, OWN = LEAT_SERVER_DESCRIPTORS };

static struct leat_shared_tables tables;
static struct leat_dispatcher *dispatcher;
static struct leat_worker *workers[LEAT_SCHED_WORKERS_MAX];
static struct leat_server *server;
static struct sockaddr_un address;
static unsigned char answer[LEAT_WIRE_PACKET_MAX];

/* ---- The daemon's side ---------------------------------------------------------------------------- */

static enum leat_status
find(void *context, const char *name, struct leat_target *ret_target)
{
    (void)context;
    (void)name;
    *ret_target = (struct leat_target){.id = 5};
    return LEAT_OK;
}

/* Requests that a test has not answered yet. */
static int reply_sockets[ADMINS_MAX];
static unsigned admin_count;

static uint32_t others_descriptors, files_descriptors; /* that the rest of a daemon would have */

static void
admin(void *context, char *request, uid_t uid, struct leat_packet *packet, int reply_socket)
{
    (void)context;
    (void)uid;
    EXPECT(packet->fd_count == 0 && admin_count < ADMINS_MAX);
    reply_sockets[admin_count++] = reply_socket;
    free(request);
}

static void
gone(void *context, struct leat_application *application)
{
    (void)context;
    (void)application;
}

static void
tick(void *context, uint64_t rounds)
{
    (void)context;
    (void)rounds;
}

static unsigned
count_descriptors(void)
{
    unsigned count = 0;
    DIR *directory = opendir("/proc/self/fd");
    EXPECT(directory != NULL);
    while (readdir(directory) != NULL) {
        count++;
    }
    (void)closedir(directory);
    return count;
}

static unsigned descriptors_before;

static void
stopping(void *context)
{
    (void)context;
}

static void
start_server(const struct leat_quota_limits *limits)
{
    static const uint16_t classes[1] = {0};
    char path[64];

    descriptors_before = count_descriptors();
    (void)snprintf(path, sizeof(path), "/tmp/leat-test-server-%d.sock", (int)getpid());
    EXPECT(leat_socket_address(path, &address) == LEAT_OK);
    leat_clock_init(&tables.clock);
    const struct leat_dispatcher_options dispatcher_options = {
        .tables = &tables,
        .workers = workers,
        .worker_classes = classes,
        .worker_count = 1,
        .worker_depth = 1,
        .queue_capacity = 64,
        .cpu = -1,
    };
    EXPECT(leat_dispatcher_create(&dispatcher_options, &dispatcher) == LEAT_OK);
    const struct leat_worker_options worker_options = {
        .core_count = 1,
        .tables = &tables,
        .dispatcher_bell = leat_dispatcher_bell(dispatcher),
        .dispatcher_event = leat_dispatcher_event_fd(dispatcher),
    };
    EXPECT(leat_worker_create(&worker_options, &workers[0]) == LEAT_OK);
    const struct leat_server_options options = {
        .socket_path = path,
        .socket_mode = 0600,
        .socket_group = (gid_t)-1,
        .limits = *limits,
        .descriptors = others_descriptors,
        .descriptors_of_files = files_descriptors,
        .slots_default = 4,
        .slots_max = 16,
        .arena_default_bytes = 4096,
        .arena_max_bytes = 256 * MIB,
        .lane_count = 2,
        .cores = 1,
        .spinners = 2,
        .tables = &tables,
        .dispatcher = dispatcher,
        .find = find,
        .admin = admin,
        .application_gone = gone,
        .tick = tick,
        .stopping = stopping,
    };
    EXPECT(leat_server_create(&options, &server) == LEAT_OK);
}

/* One turn of the server and, if asked for, one round of the dispatcher. False when neither had anything to do. */
static bool
turn(bool dispatch)
{
    uint32_t handled;
    EXPECT(leat_server_turn(server, 0, &handled) == LEAT_OK);
    return (dispatch && leat_dispatcher_round(dispatcher, leat_clock_now(&tables.clock))) || handled > 0;
}

/* Everything but memory until there is nothing left to do; then memory, `parts` of it at most. */
static void
settle(uint32_t parts)
{
    for (uint32_t n = 0;; n++) {
        EXPECT(n < STEPS_MAX);
        if (turn(true)) {
            continue;
        }
        if (parts == 0 || !leat_server_make_memory(server)) {
            break;
        }
        parts--;
    }
}

static struct leat_server_statistics
counts(void)
{
    struct leat_server_statistics statistics;
    leat_server_statistics(server, &statistics);
    return statistics;
}

static void
stop_server(void)
{
    settle(UINT32_MAX);
    EXPECT(counts().counted == 0 && counts().accepted == counts().closed);
    leat_server_destroy(server);
    leat_dispatcher_destroy(dispatcher);
    leat_worker_destroy(workers[0]);
    EXPECT(count_descriptors() == descriptors_before); /* the test has closed its own */
}

/* ---- The clients' side ---------------------------------------------------------------------------- */

static int
connect_raw(void)
{
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    EXPECT(fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

static int
say_hello(uint64_t arena_bytes)
{
    const struct leat_wire_hello hello = {.header = {LEAT_WIRE_MAGIC, 0, LEAT_WIRE_HELLO},
                                          .version_min = LEAT_WIRE_VERSION,
                                          .version_max = LEAT_WIRE_VERSION,
                                          .arena_bytes = arena_bytes};
    const int fd = connect_raw();
    EXPECT(leat_socket_send(fd, &hello, sizeof(hello), NULL, 0) == LEAT_OK);
    return fd;
}

static void
ask(int fd)
{
    const struct leat_wire_find question = {.header = {LEAT_WIRE_MAGIC, LEAT_WIRE_VERSION, LEAT_WIRE_FIND}, .name = "any"};
    EXPECT(leat_socket_send(fd, &question, sizeof(question), NULL, 0) == LEAT_OK);
}

static void
ask_admin(int fd)
{
    const struct leat_wire_header question = {LEAT_WIRE_MAGIC, LEAT_WIRE_VERSION, LEAT_WIRE_ADMIN};
    EXPECT(leat_socket_send(fd, &question, sizeof(question), NULL, 0) == LEAT_OK);
}

/* The type of what has come, which `answer` then holds; 0: nothing. */
static uint16_t
told(int fd)
{
    struct leat_packet packet = {.bytes = answer, .capacity = sizeof(answer)};
    struct leat_wire_header header;
    const enum leat_status status = leat_socket_receive(fd, &packet);

    if (status == LEAT_AGAIN) {
        return 0;
    }
    EXPECT(status == LEAT_OK && packet.size >= sizeof(header));
    leat_packet_close_fds(&packet);
    memcpy(&header, packet.bytes, sizeof(header));
    return header.type;
}

static void
expect_refused(int fd, const char *part)
{
    struct leat_wire_error error;

    EXPECT(told(fd) == LEAT_WIRE_ERROR);
    memcpy(&error, answer, sizeof(error));
    EXPECT(error.status == LEAT_ERR_LIMIT && strstr(error.text, part) != NULL);
    EXPECT(close(fd) == 0);
}

static unsigned
count_session_maps(void)
{
    char line[512];
    unsigned count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    EXPECT(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        count += strstr(line, "memfd:leat-") != NULL;
    }
    (void)fclose(maps);
    return count;
}

/* ---- Tests ---------------------------------------------------------------------------------------- */

static const struct leat_quota_limits plenty = {
    .sessions = 8, .sessions_per_user = 8, .bytes = 1024 * MIB, .bytes_per_user = 1024 * MIB};

/* Large sessions are being made: who has one is served, and who wants a small one gets it first. */
static void
test_nobody_waits_for_memory_of_others(void)
{
    enum { LARGE = 3 };
    int large[LARGE];

    start_server(&plenty);
    const int bystander = say_hello(4096);
    settle(UINT32_MAX);
    EXPECT(told(bystander) == LEAT_WIRE_WELCOME);
    for (int i = 0; i < LARGE; i++) {
        large[i] = say_hello(128 * MIB);
    }
    settle(LARGE); /* each has begun */
    ask(bystander);
    settle(0);
    EXPECT(told(bystander) == LEAT_WIRE_TARGET);
    const int small = say_hello(4096);
    settle(0);
    settle(LARGE + 1);
    EXPECT(told(small) == LEAT_WIRE_WELCOME);
    EXPECT(counts().sessions == 2 && counts().counted == 2 + LARGE);
    for (int i = 0; i < LARGE; i++) {
        EXPECT(told(large[i]) == 0);
    }
    settle(UINT32_MAX);
    for (int i = 0; i < LARGE; i++) {
        EXPECT(told(large[i]) == LEAT_WIRE_WELCOME);
        EXPECT(close(large[i]) == 0);
    }
    EXPECT(close(small) == 0 && close(bystander) == 0);
    stop_server();
}

static void
test_questions_wait_for_the_welcome(void)
{
    start_server(&plenty);
    const int client = say_hello(4096);
    ask(client);
    ask(client);
    settle(0);
    EXPECT(told(client) == 0);
    settle(UINT32_MAX);
    EXPECT(told(client) == LEAT_WIRE_WELCOME && told(client) == LEAT_WIRE_TARGET && told(client) == LEAT_WIRE_TARGET);
    EXPECT(close(client) == 0);
    stop_server();
}

/* A client leaves after `parts` of its memory were made. */
static void
test_leaving_meanwhile(void)
{
    start_server(&plenty);
    settle(0);
    const unsigned descriptors = count_descriptors(), maps = count_session_maps();
    for (uint32_t parts = 0; parts < 8; parts++) {
        const int client = say_hello(64 * MIB);
        settle(0);
        settle(parts);
        EXPECT(counts().counted == 1);
        EXPECT(close(client) == 0);
        settle(UINT32_MAX);
        EXPECT(counts().counted == 0 && counts().sessions == 0);
        EXPECT(count_descriptors() == descriptors && count_session_maps() == maps);
    }
    stop_server();
}

static void
test_limits_count_what_comes_and_goes(void)
{
    static const struct leat_quota_limits few = {
        .sessions = 3, .sessions_per_user = 2, .bytes = 1024 * MIB, .bytes_per_user = 1024 * MIB};
    static const struct leat_quota_limits little = {
        .sessions = 8, .sessions_per_user = 8, .bytes = 64 * MIB, .bytes_per_user = 40 * MIB};

    start_server(&few);
    int first = say_hello(4096), second = say_hello(4096);
    settle(0);
    int third = say_hello(4096); /* neither has been made */
    settle(0);
    expect_refused(third, "limits.sessions_per_user");
    settle(UINT32_MAX);
    EXPECT(told(first) == LEAT_WIRE_WELCOME && told(second) == LEAT_WIRE_WELCOME);
    EXPECT(close(first) == 0);
    while (turn(false)) { /* the dispatcher has not let go of it */
    }
    third = say_hello(4096);
    while (turn(false)) {
    }
    expect_refused(third, "limits.sessions_per_user");
    settle(0); /* it has, but the memory is there still */
    third = say_hello(4096);
    settle(0);
    expect_refused(third, "limits.sessions_per_user");
    settle(UINT32_MAX);
    third = say_hello(4096);
    settle(UINT32_MAX);
    EXPECT(told(third) == LEAT_WIRE_WELCOME);
    EXPECT(close(second) == 0 && close(third) == 0);
    stop_server();

    start_server(&little);
    first = say_hello(30 * MIB);
    settle(0);
    second = say_hello(20 * MIB);
    settle(0);
    expect_refused(second, "limits.session_memory_per_user");
    second = say_hello(9 * MIB);
    settle(UINT32_MAX);
    EXPECT(told(first) == LEAT_WIRE_WELCOME && told(second) == LEAT_WIRE_WELCOME);
    EXPECT(close(first) == 0 && close(second) == 0);
    settle(UINT32_MAX);
    first = say_hello(39 * MIB);
    settle(UINT32_MAX);
    EXPECT(told(first) == LEAT_WIRE_WELCOME);
    EXPECT(close(first) == 0);
    stop_server();
}

static void
test_stopping_meanwhile(void)
{
    start_server(&plenty);
    const int client = say_hello(64 * MIB);
    settle(0);
    settle(2);
    leat_server_stop(server);
    settle(UINT32_MAX);
    expect_refused(client, "shutting down");
    stop_server();
}

/* One request of a client is with the admin side at a time; what it sends beside waits, what others send does not. */
static void
test_one_request_at_a_time(void)
{
    start_server(&plenty);
    const int eager = say_hello(4096), other = say_hello(4096);
    settle(UINT32_MAX);
    EXPECT(told(eager) == LEAT_WIRE_WELCOME && told(other) == LEAT_WIRE_WELCOME);
    const unsigned descriptors = count_descriptors();
    ask_admin(eager);
    ask_admin(eager);
    ask(eager);
    settle(0);
    EXPECT(admin_count == 1 && told(eager) == 0);
    ask(other);
    ask_admin(other);
    settle(0);
    EXPECT(admin_count == 2 && told(other) == LEAT_WIRE_TARGET && told(other) == 0);
    leat_server_reply(reply_sockets[1], "{}");
    settle(0);
    EXPECT(told(other) == LEAT_WIRE_ADMIN_REPLY && told(eager) == 0);
    leat_server_reply(reply_sockets[0], "{}");
    settle(0);
    EXPECT(told(eager) == LEAT_WIRE_ADMIN_REPLY && told(eager) == 0 && admin_count == 3);
    leat_server_reply(reply_sockets[2], "{}");
    settle(0);
    EXPECT(told(eager) == LEAT_WIRE_ADMIN_REPLY && told(eager) == LEAT_WIRE_TARGET);
    EXPECT(count_descriptors() == descriptors);
    ask_admin(eager);
    settle(0);
    EXPECT(admin_count == 4 && close(eager) == 0); /* leaves without its answer */
    settle(UINT32_MAX);
    EXPECT(counts().counted == 1);
    leat_server_reply(reply_sockets[3], "{}");
    EXPECT(close(other) == 0);
    admin_count = 0;
    stop_server();
}

/* A client asks and never reads: it is sent away, and nothing waits for it. */
static void
test_unread_answers(void)
{
    enum { BYTES = 100000, ANSWERS_MAX = 100 };
    static char text[BYTES + 1];
    unsigned answers = 0;

    memset(text, ' ', BYTES);
    start_server(&plenty);
    const int deaf = say_hello(4096), other = say_hello(4096);
    settle(UINT32_MAX);
    EXPECT(told(other) == LEAT_WIRE_WELCOME);
    while (counts().closed == 0) {
        EXPECT(answers++ < ANSWERS_MAX);
        ask_admin(deaf);
        settle(0);
        EXPECT(admin_count == 1);
        leat_server_reply(reply_sockets[--admin_count], text);
        ask(other);
        settle(0);
        EXPECT(told(other) == LEAT_WIRE_TARGET);
    }
    EXPECT(answers > 1);
    EXPECT(close(deaf) == 0 && close(other) == 0);
    stop_server();
}

/* In a process of its own, whose limits nobody else has. */
static void
with_files(rlim_t soft, rlim_t hard, void (*test)(void))
{
    int status = -1;
    (void)fflush(NULL);
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        EXPECT(setrlimit(RLIMIT_NOFILE, &(struct rlimit){soft, hard}) == 0);
        test();
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void
sessions_are_lowered(void)
{
    int fds[3];

    start_server(&plenty);
    for (int i = 0; i < 3; i++) {
        fds[i] = say_hello(4096);
    }
    settle(UINT32_MAX);
    EXPECT(told(fds[0]) == LEAT_WIRE_WELCOME && told(fds[1]) == LEAT_WIRE_WELCOME);
    expect_refused(fds[2], "RLIMIT_NOFILE");
    EXPECT(close(fds[0]) == 0 && close(fds[1]) == 0);
    stop_server();
}

static void
limit_is_raised(void)
{
    struct rlimit files;

    start_server(&plenty);
    EXPECT(getrlimit(RLIMIT_NOFILE, &files) == 0);
    EXPECT(files.rlim_cur == OWN + others_descriptors + files_descriptors + 9 * plenty.sessions && files.rlim_max == 4096);
    stop_server();
}

static void
nothing_fits(void)
{
    const struct leat_server_options options = {
        .limits = plenty, .descriptors = others_descriptors, .descriptors_of_files = files_descriptors};
    char least[64];

    EXPECT(leat_server_create(&options, &server) == LEAT_ERR_LIMIT);
    (void)snprintf(least, sizeof(least), "at least %u needed", OWN + others_descriptors + (files_descriptors > 0 ? 18 : 9));
    EXPECT(strstr(leat_error_text(), "RLIMIT_NOFILE") != NULL && strstr(leat_error_text(), least) != NULL);
}

static void
test_limit_of_open_files(void)
{
    with_files(60, OWN + 9 * 2, sessions_are_lowered);
    with_files(60, OWN + 9 * 3 - 1, sessions_are_lowered);
    with_files(60, 4096, limit_is_raised);
    with_files(60, OWN + 9 - 1, nothing_fits);
    others_descriptors = 200; /* which nobody takes from them; files have half of what is left */
    files_descriptors = 1000;
    with_files(60, OWN + 200 + 9 * 4, sessions_are_lowered);
    with_files(60, 4096, limit_is_raised);
    with_files(60, OWN + 200 + 9 * 2 - 1, nothing_fits);
    files_descriptors = 12; /* which is less than half */
    with_files(60, OWN + 200 + 12 + 9 * 2, sessions_are_lowered);
    others_descriptors = files_descriptors = 0;
}

/* The client's view of its arena, and the socket. */
static unsigned char *
map_arena(int fd, size_t bytes)
{
    struct leat_packet packet = {.bytes = answer, .capacity = sizeof(answer)};
    EXPECT(leat_socket_receive(fd, &packet) == LEAT_OK && packet.fd_count == LEAT_WIRE_FD_COUNT);
    unsigned char *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, packet.fds[LEAT_WIRE_FD_ARENA], 0);
    EXPECT(arena != MAP_FAILED);
    leat_packet_close_fds(&packet);
    return arena;
}

static void
test_memory_is_taken_back(void)
{
    const size_t bytes = 40 * MIB;

    for (int stopping = 0; stopping < 2; stopping++) {
        start_server(&plenty);
        const int client = say_hello(bytes);
        settle(UINT32_MAX);
        unsigned char *arena = map_arena(client, bytes);
        memset(arena, 0x5a, bytes);
        if (stopping) {
            leat_server_stop(server);
            settle(UINT32_MAX);
        }
        EXPECT(close(client) == 0);
        settle(UINT32_MAX);
        for (size_t at = 0; at < bytes; at += 4096) {
            EXPECT(arena[at] == (stopping ? 0x5a : 0));
        }
        EXPECT(munmap(arena, bytes) == 0);
        stop_server();
    }
}

int
main(void)
{
    leat_test_init();
    leat_log_level_set(LEAT_LOG_ERROR); /* a line for each refusal is too many */
    test_nobody_waits_for_memory_of_others();
    test_questions_wait_for_the_welcome();
    test_leaving_meanwhile();
    test_limits_count_what_comes_and_goes();
    test_stopping_meanwhile();
    test_memory_is_taken_back();
    test_limit_of_open_files();
    test_one_request_at_a_time();
    test_unread_answers();
    return 0;
}
