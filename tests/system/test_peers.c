/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Peers that die cost nobody else anything. Clients killed at random points leave no session, memory or
 *          descriptor behind, and the others' answers stay right, even where a child of the killed one
 *          still holds its socket. A daemon killed under load leaves its clients with one completion for every
 *          query, and they can connect again. An answer that comes late, or is malformed, is never taken for that to
 *          another question.
 * Method   SIGKILL at random moments under load; --kills N for a longer run (default 60). The seed is printed.
 */
#if defined(__SANITIZE_THREAD__)
#include <stdio.h>

int
main(void)
{
    (void)printf("skipped: the sanitizer does not follow forks of threaded processes\n");
    return 77;
}
#else
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc/client/session.h"
#include "ipc/socket.h"
#include "tests/leat_test.h"
#include "tests/system/box.h"

static char socket_path[64];

static unsigned
count_entries(const char *folder)
{
    unsigned count = 0;
    DIR *directory = opendir(folder);
    EXPECT(directory != NULL);
    while (readdir(directory) != NULL) {
        count++;
    }
    (void)closedir(directory);
    return count;
}

/* Mapped bytes of session memory in this process. */
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

enum { SLOTS = 16 }; /* of a client that makes load */

static _Noreturn void
load_for_ever(struct box_client client, uint64_t seed)
{
    struct leat_query queries[SLOTS];
    struct leat_completion done[SLOTS];
    uint64_t random = seed;

    for (int i = 0; i < SLOTS; i++) {
        queries[i] = client.query;
        queries[i].items = 1 + (uint32_t)i % 4;
        for (int t = 0; t < 2; t++) {
            EXPECT(leat_tensor_alloc(client.session, 256, &queries[i].tensors[t]) == LEAT_OK);
        }
    }
    for (;;) {
        uint64_t ticket = 0;
        struct leat_query *query = &queries[leat_test_random(&random) % SLOTS];
        const enum leat_status status = leat_submit(client.session, query, &ticket);
        if (status == LEAT_OK && leat_test_random(&random) % 8 == 0) {
            (void)!leat_cancel(client.session, ticket);
        }
        if (status == LEAT_AGAIN || leat_test_random(&random) % 3 == 0) {
            size_t count;
            (void)!leat_wait(client.session, done, SLOTS, 1000000, &count);
        }
    }
}

/* A client that is never killed and checks every answer, until told to stop through the pipe. */
static pid_t
start_survivor(const int stop[2])
{
    (void)fflush(NULL);
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child > 0) {
        return child;
    }
    struct box_client client;
    struct leat_completion done;
    uint64_t answers = 0;
    char byte;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)close(stop[1]);
    box_connect(&client, socket_path, 4);
    while (read(stop[0], &byte, 1) < 0) { /* non-blocking: EAGAIN until the other end is closed */
        const unsigned char fill = (unsigned char)(answers % 0xf0);
        box_fill(&client, &client.query, fill);
        EXPECT(leat_run(client.session, &client.query, &done) == LEAT_OK);
        EXPECT(done.outcome == LEAT_OUTCOME_OK && box_check(&client, &client.query, fill));
        answers++;
    }
    EXPECT(answers > 0);
    box_disconnect(&client);
    _exit(0); /* the parent's memory is not ours to account for */
}

static void
test_clients_are_killed(unsigned kills)
{
    enum { AT_ONCE = 3 };
    const struct box_options options = {.socket_path = socket_path, .workers = 2, .spin_ns = 5000};
    pid_t victims[AT_ONCE] = {0};
    uint64_t random = leat_test_seed;
    int stop[2];

    struct box *box = box_start(&options);
    EXPECT(pipe2(stop, O_NONBLOCK) == 0);
    const pid_t survivor = start_survivor(stop);
    while (box_sessions(box).sessions < 1) {
        leat_test_look_later();
    }
    const unsigned descriptors = count_entries("/proc/self/fd"), maps = count_session_maps();
    for (unsigned killed = 0; killed < kills; killed++) {
        const unsigned v = killed % AT_ONCE;
        if (victims[v] != 0) {
            const uint64_t delay_ns = leat_test_random(&random) % 4000000; /* the random point itself */
            const uint64_t until_ns = leat_monotonic_ns() + delay_ns;
            while (leat_monotonic_ns() < until_ns) {
                (void)sched_yield();
            }
            EXPECT(kill(victims[v], SIGKILL) == 0);
            EXPECT(waitpid(victims[v], NULL, 0) == victims[v]);
        }
        (void)fflush(NULL);
        victims[v] = fork();
        EXPECT(victims[v] >= 0);
        if (victims[v] == 0) {
            struct box_client client;
            (void)close(stop[1]);
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            box_connect(&client, socket_path, SLOTS);
            load_for_ever(client, leat_test_random(&random) + killed);
        }
    }
    for (unsigned v = 0; v < AT_ONCE; v++) {
        EXPECT(kill(victims[v], SIGKILL) == 0);
        EXPECT(waitpid(victims[v], NULL, 0) == victims[v]);
    }
    while (box_sessions(box).sessions > 1) { /* the survivor's stays; all others must come back */
        leat_test_look_later();
    }
    int ended = -1;
    while (count_entries("/proc/self/fd") > descriptors || count_session_maps() > maps) {
        leat_test_look_later(); /* the last session's memory is being given back; a leak hangs here */
    }
    EXPECT(close(stop[1]) == 0);
    EXPECT(waitpid(survivor, &ended, 0) == survivor && WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    (void)close(stop[0]);
    box_stop(box); /* checks that nothing waits or runs and no session is left */
}

/*
 * A child of the client: holds all that it inherited, says so, and then waits for the daemon to end the connection, which
 * it learns of by the socket that it still has. Says that too, and ends when the test does.
 */
static _Noreturn void
hold_socket(const struct box_client *client, int report, int stop)
{
    struct leat_packet packet = {.bytes = &(char){0}, .capacity = 1};
    struct pollfd ended = {.fd = client->session->socket, .events = POLLIN};
    char byte;

    EXPECT(write(report, "h", 1) == 1);
    EXPECT(poll(&ended, 1, -1) == 1);
    EXPECT(leat_socket_receive(client->session->socket, &packet) == LEAT_ERR_DISCONNECTED);
    EXPECT(write(report, "e", 1) == 1);
    EXPECT(read(stop, &byte, 1) == 0);
    _exit(0);
}

/* No end of file comes from the socket of a client that has forked and died: its process must be watched. */
static void
test_child_holds_the_socket(void)
{
    enum { ROUNDS = 8 };
    const struct box_options options = {.socket_path = socket_path, .workers = 2};
    uint64_t random = leat_test_seed + 2;
    int stop[2], report[2];
    char byte;

    struct box *box = box_start(&options);
    EXPECT(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0); /* the holders become ours when their parents die */
    EXPECT(pipe(stop) == 0 && pipe(report) == 0);
    const unsigned descriptors = count_entries("/proc/self/fd"), maps = count_session_maps();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const bool hold = round % 2 == 0; /* a query of it runs when it dies */
        (void)fflush(NULL);
        const pid_t victim = fork();
        EXPECT(victim >= 0);
        if (victim == 0) {
            struct box_client client;
            (void)close(stop[1]);
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            box_connect(&client, socket_path, SLOTS);
            if (hold) {
                box_fill(&client, &client.query, BOX_HOLD);
                EXPECT(leat_submit(client.session, &client.query, NULL) == LEAT_OK);
            }
            const pid_t holder = fork();
            EXPECT(holder >= 0);
            if (holder == 0) {
                hold_socket(&client, report[1], stop[0]);
            }
            load_for_ever(client, leat_test_random(&random) + round);
        }
        EXPECT(read(report[0], &byte, 1) == 1 && byte == 'h');
        while (hold && box_held(box) <= round / 2) {
            leat_test_look_later();
        }
        const uint64_t until_ns = leat_monotonic_ns() + leat_test_random(&random) % 3000000; /* the random point */
        while (leat_monotonic_ns() < until_ns) {
            (void)sched_yield();
        }
        EXPECT(box_sessions(box).sessions == 1);
        EXPECT(kill(victim, SIGKILL) == 0 && waitpid(victim, NULL, 0) == victim);
        EXPECT(read(report[0], &byte, 1) == 1 && byte == 'e'); /* hangs here if nobody noticed */
        if (hold) {
            EXPECT(box_sessions(box).sessions == 1 && count_session_maps() > maps); /* the query still runs on it */
            box_release(box);
        }
        while (box_sessions(box).sessions > 0 || count_entries("/proc/self/fd") > descriptors ||
               count_session_maps() > maps) {
            leat_test_look_later();
        }
    }
    EXPECT(close(stop[1]) == 0);
    for (int ended = 0; ended < ROUNDS; ended++) {
        int status = -1;
        EXPECT(waitpid(-1, &status, 0) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    EXPECT(prctl(PR_SET_CHILD_SUBREAPER, 0) == 0);
    EXPECT(close(stop[0]) == 0 && close(report[0]) == 0 && close(report[1]) == 0);
    box_stop(box);
}

static void
test_daemon_is_killed(void)
{
    enum { ROUNDS = 12 };
    const struct box_options options = {.socket_path = socket_path, .workers = 2};
    uint64_t random = leat_test_seed + 1;
    unsigned lost = 0;

    for (int round = 0; round < ROUNDS; round++) {
        struct box_client client;
        struct leat_completion done[SLOTS];
        uint64_t submitted = 0, completed = 0;
        const uint64_t start_ns = leat_monotonic_ns();
        pid_t daemon = box_fork(&options);
        box_connect(&client, socket_path, SLOTS);
        struct leat_query hold = client.query;
        EXPECT(leat_tensor_alloc(client.session, 64, &hold.tensors[0]) == LEAT_OK);
        EXPECT(leat_tensor_alloc(client.session, 64, &hold.tensors[1]) == LEAT_OK);
        box_fill(&client, &hold, BOX_HOLD);
        box_fill(&client, &client.query, 1);
        const uint64_t kill_after = 50 + leat_test_random(&random) % 2000;
        bool killed = false, stuck = false;
        for (;;) {
            /* Every other round one query is held for ever, so that something is in flight when it dies. */
            const struct leat_query *query = submitted == 20 && round % 2 == 0 ? &hold : &client.query;
            const enum leat_status status = leat_submit(client.session, query, NULL);
            submitted += status == LEAT_OK;
            /* The held one may have all other slots queued up behind it: then this is the moment too. */
            if (!killed && (submitted >= kill_after || stuck)) {
                EXPECT(kill(daemon, SIGKILL) == 0 && waitpid(daemon, NULL, 0) == daemon);
                killed = true;
            }
            size_t count = leat_poll(client.session, done, SLOTS);
            if (count == 0 && (status == LEAT_AGAIN || status == LEAT_ERR_DISCONNECTED) &&
                leat_in_flight(client.session) > 0) {
                const enum leat_status waited =
                    leat_wait(client.session, done, SLOTS, killed ? UINT64_MAX : 50000000, &count);
                EXPECT(waited == LEAT_OK || (waited == LEAT_TIMEOUT && !killed));
                stuck = waited == LEAT_TIMEOUT;
                count = stuck ? 0 : count;
            }
            for (size_t i = 0; i < count; i++) {
                EXPECT(done[i].outcome == LEAT_OUTCOME_OK || (killed && done[i].outcome == LEAT_OUTCOME_LOST));
                if (done[i].outcome == LEAT_OUTCOME_LOST) { /* how long it was in flight is all that is known of it */
                    EXPECT(done[i].total_ns > 0 && done[i].total_ns < leat_monotonic_ns() - start_ns);
                    EXPECT(done[i].queue_ns == 0 && done[i].exec_ns == 0);
                    lost++;
                }
            }
            completed += count;
            if (status == LEAT_ERR_DISCONNECTED && leat_in_flight(client.session) == 0) {
                break;
            }
        }
        EXPECT(completed == submitted); /* exactly one completion for each */
        EXPECT(leat_reconnect(client.session) == LEAT_ERR_SYS); /* nobody there: says so, can be tried again */
        EXPECT(leat_submit(client.session, &client.query, NULL) == LEAT_ERR_DISCONNECTED);
        EXPECT(leat_cancel(client.session, submitted) == LEAT_ERR_NOT_FOUND);
        daemon = box_fork(&options); /* takes the dead one's socket over */
        EXPECT(leat_reconnect(client.session) == LEAT_OK);
        EXPECT(leat_find(client.session, "box", &client.target) == LEAT_OK);
        for (int t = 0; t < 2; t++) {
            EXPECT(leat_tensor_alloc(client.session, 64, &client.query.tensors[t]) == LEAT_OK);
        }
        box_fill(&client, &client.query, 8);
        EXPECT(leat_run(client.session, &client.query, &done[0]) == LEAT_OK);
        EXPECT(done[0].outcome == LEAT_OUTCOME_OK && box_check(&client, &client.query, 8));
        box_disconnect(&client);
        EXPECT(kill(daemon, SIGKILL) == 0 && waitpid(daemon, NULL, 0) == daemon);
    }
    EXPECT(lost > 0);
    (void)unlink(socket_path);
}

/* A daemon that is stopped leaves a question for a name that is not there unanswered until after the session gave up on it. */
static void
test_answer_comes_late(void)
{
    const struct box_options options = {.socket_path = socket_path};
    const struct timeval soon = {.tv_usec = 1};
    struct leat_completion done = {0};
    struct leat_target target;
    struct box_client client;
    int stopped = 0;

    const pid_t daemon = box_fork(&options);
    box_connect(&client, socket_path, SLOTS);
    struct pollfd news = {.fd = leat_event_fd(client.session), .events = POLLIN};
    box_fill(&client, &client.query, BOX_HOLD);
    EXPECT(leat_submit(client.session, &client.query, NULL) == LEAT_OK);
    EXPECT(kill(daemon, SIGSTOP) == 0 && waitpid(daemon, &stopped, WUNTRACED) == daemon && WIFSTOPPED(stopped));
    EXPECT(setsockopt(client.session->socket, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)) == 0); /* not the whole 10 s */
    EXPECT(leat_find(client.session, "nothing", &target) == LEAT_TIMEOUT);
    EXPECT(poll(&news, 1, 0) == 1); /* while it is stopped still: an event loop learns of the end */
    EXPECT(kill(daemon, SIGCONT) == 0);
    EXPECT(leat_find(client.session, "box", &target) == LEAT_ERR_DISCONNECTED);
    EXPECT(leat_poll(client.session, &done, 1) == 1 && done.outcome == LEAT_OUTCOME_LOST);
    EXPECT(leat_reconnect(client.session) == LEAT_OK);
    EXPECT(leat_find(client.session, "box", &target) == LEAT_OK);
    EXPECT(leat_find(client.session, "nothing", &target) == LEAT_ERR_NOT_FOUND);
    box_disconnect(&client);
    EXPECT(kill(daemon, SIGKILL) == 0 && waitpid(daemon, NULL, 0) == daemon);
    (void)unlink(socket_path);
}

/* What a session whose daemon gives this answer makes of it, to a find and to an administrative request. */
static void
expect_answer(const void *answer, size_t size, enum leat_status status, bool connected)
{
    const struct box_options options = {.socket_path = socket_path};
    struct leat_target target;
    struct box *box = box_start(&options);
    char *reply;

    for (int admin = 0; admin < 2; admin++) {
        struct box_client client;
        int ends[2];
        box_connect(&client, socket_path, SLOTS);
        EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
        EXPECT(dup2(ends[0], client.session->socket) >= 0 && close(ends[0]) == 0); /* we are its daemon from here on */
        EXPECT(leat_socket_send(ends[1], answer, size, NULL, 0) == LEAT_OK);
        EXPECT((admin ? leat_admin(client.session, "{}", -1, &reply) : leat_find(client.session, "any", &target)) == status);
        EXPECT(client.session->connected == connected);
        EXPECT(close(ends[1]) == 0);
        EXPECT(leat_find(client.session, "box", &target) == LEAT_ERR_DISCONNECTED);
        box_disconnect(&client);
    }
    box_stop(box);
}

static void
test_answer_is_malformed(void)
{
    static const char long_answer[LEAT_WIRE_PACKET_MAX + 1];
    const struct leat_wire_header welcome = {LEAT_WIRE_MAGIC, LEAT_WIRE_VERSION, LEAT_WIRE_WELCOME};
    const struct leat_wire_target impossible = {.header = {LEAT_WIRE_MAGIC, LEAT_WIRE_VERSION, LEAT_WIRE_TARGET}};
    const struct leat_wire_error refusal = {.header = {LEAT_WIRE_MAGIC, LEAT_WIRE_VERSION, LEAT_WIRE_ERROR},
                                            .status = LEAT_ERR_SYS};

    expect_answer(long_answer, sizeof(long_answer), LEAT_ERR_PROTO, false);
    expect_answer(&welcome, sizeof(welcome), LEAT_ERR_PROTO, false);
    expect_answer(&welcome, 1, LEAT_ERR_PROTO, false);
    expect_answer(&impossible, sizeof(impossible), LEAT_ERR_PROTO, false);
    expect_answer(&refusal, sizeof(refusal), LEAT_ERR_SYS, true); /* that is an answer, whatever it says */
}

int
main(int argc, char **argv)
{
    unsigned kills = 60;

    leat_test_init();
    if (argc == 3 && strcmp(argv[1], "--kills") == 0) {
        kills = (unsigned)strtoul(argv[2], NULL, 10);
    }
    (void)snprintf(socket_path, sizeof(socket_path), "/tmp/leat-test-peers-%d.sock", (int)getpid());
    (void)printf("seed %llu, %u kills\n", (unsigned long long)leat_test_seed, kills);
    test_clients_are_killed(kills);
    test_child_holds_the_socket();
    test_daemon_is_killed();
    test_answer_comes_late();
    test_answer_is_malformed();
    return 0;
}
#endif
