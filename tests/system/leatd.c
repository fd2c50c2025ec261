/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/system/leatd.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

/* A file of its folder. */
static const char *
path_of(const struct leatd *leatd, const char *name, char path[160])
{
    EXPECT((size_t)snprintf(path, 160, "%s/%s", leatd->root.path, name) < 160);
    return path;
}

uint32_t
leatd_cpus(void)
{
    cpu_set_t set;

    EXPECT(sched_getaffinity(0, sizeof(set), &set) == 0);
    return (uint32_t)CPU_COUNT(&set);
}

uint32_t
leatd_thread_cpus(pid_t thread, uint32_t *ret_first)
{
    cpu_set_t set;

    *ret_first = UINT32_MAX;
    if (sched_getaffinity(thread, sizeof(set), &set) != 0) {
        return 0;
    }
    for (uint32_t cpu = CPU_SETSIZE; cpu-- > 0;) {
        *ret_first = CPU_ISSET(cpu, &set) ? cpu : *ret_first;
    }
    return (uint32_t)CPU_COUNT(&set);
}

void
leatd_init(struct leatd *leatd)
{
    *leatd = (struct leatd){.pid = -1, .program = LEATD_PATH, .pidfd = -1, .notice = -1};
    leat_test_init(); /* this file's own copy of the seed */
    fake_root_init(&leatd->root);
    (void)path_of(leatd, "leat.sock", leatd->socket_path);
}

static void *
listen_always(void *argument)
{
    const struct leatd *leatd = argument;
    struct pollfd either[2] = {{.fd = leatd->notice, .events = POLLIN}, {.fd = leatd->pidfd, .events = POLLIN}};
    char text[256];

    while (poll(either, 2, -1) > 0 && either[0].revents != 0) {
        const ssize_t got = read(leatd->notice, text, sizeof(text) - 1);
        EXPECT(got > 0);
        text[got] = '\n';
        EXPECT(write(leatd->tell, text, (size_t)got + 1) == got + 1);
    }
    EXPECT(close(leatd->tell) == 0);
    return NULL;
}

static void
bind_notice(struct leatd *leatd, char path[160])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)path_of(leatd, "notify", path);
    EXPECT(strlen(path) < sizeof(address.sun_path));
    (void)strcpy(address.sun_path, path);
    leatd->notice = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    EXPECT(leatd->notice >= 0 && bind(leatd->notice, (const struct sockaddr *)&address, sizeof(address)) == 0);
}

static void
listen_for_notices(struct leatd *leatd)
{
    int ends[2];

    EXPECT(pipe2(ends, O_CLOEXEC) == 0);
    leatd->told = fdopen(ends[0], "r");
    leatd->tell = ends[1];
    EXPECT(leatd->told != NULL && pthread_create(&leatd->listener, NULL, listen_always, leatd) == 0);
}

static void
run(const struct leatd *leatd, const char *notify_path, pid_t parent)
{
    char config[160], log[160];
    const int out = open(path_of(leatd, "log", log), O_WRONLY | O_CREAT | O_TRUNC, 0600);

    (void)path_of(leatd, "leat.yaml", config);
    if (out >= 0 && dup2(out, STDERR_FILENO) >= 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent &&
        setenv("NOTIFY_SOCKET", notify_path, 1) == 0) {
        (void)execl(leatd->program, "leatd", "--config", config, (char *)NULL);
    }
    _exit(127);
}

static void
print_log(const struct leatd *leatd)
{
    char path[160], line[512];
    FILE *file = fopen(path_of(leatd, "log", path), "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        (void)fprintf(stderr, "%s", line);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

/* The one that was started last, by whom, until it is known to have ended. */
static const struct leatd *started;
static pid_t starter;

/* A test that ends before its leatd does has failed: what the daemon said, and whether it ended first. */
static void
tell_of_started(void)
{
    siginfo_t end = {0};

    if (started == NULL || starter != getpid()) {
        return;
    }
    if (waitid(P_PID, (id_t)started->pid, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid == 0) {
        (void)fprintf(stderr, "leatd is there, and said:\n");
    } else {
        (void)fprintf(stderr, "leatd has ended, %s %d, and said:\n", end.si_code == CLD_EXITED ? "exit code" : "signal",
                      end.si_status);
    }
    print_log(started);
}

void
leatd_start(struct leatd *leatd, const char *yaml)
{
    const pid_t parent = getpid();
    char notify_path[160], text[4096];

    EXPECT((size_t)snprintf(text, sizeof(text), "socket: %s\nstate_dir: %s/state\n%s", leatd->socket_path,
                            leatd->root.path, yaml) < sizeof(text));
    fake_root_write(&leatd->root, "/leat.yaml", text);
    bind_notice(leatd, notify_path);
    (void)fflush(NULL);
    leatd->pid = fork();
    EXPECT(leatd->pid >= 0);
    if (leatd->pid == 0) {
        run(leatd, notify_path, parent);
    }
    leatd->pidfd = (int)syscall(SYS_pidfd_open, leatd->pid, 0);
    EXPECT(leatd->pidfd >= 0);
    EXPECT(starter == parent || atexit(tell_of_started) == 0);
    started = leatd;
    starter = parent;
    listen_for_notices(leatd);
    leatd_await_notice(leatd, "READY=1");
}

void
leatd_await_notice(struct leatd *leatd, const char *line)
{
    char text[256];

    do {
        if (fgets(text, sizeof(text), leatd->told) == NULL) {
            print_log(leatd);
            EXPECT(!"leatd gives notice before it ends");
        }
        text[strcspn(text, "\n")] = '\0';
    } while (strcmp(text, line) != 0);
}

void
leatd_signal(const struct leatd *leatd, int signal_number)
{
    EXPECT(kill(leatd->pid, signal_number) == 0);
}

int
leatd_await_end(struct leatd *leatd)
{
    int ended = -1;

    EXPECT(waitpid(leatd->pid, &ended, 0) == leatd->pid);
    started = started == leatd ? NULL : started;
    if (!WIFEXITED(ended)) {
        print_log(leatd);
        EXPECT(!"leatd ends by itself");
    }
    EXPECT(access(leatd->socket_path, F_OK) != 0);
    return WEXITSTATUS(ended);
}

uint32_t
leatd_log_count(const struct leatd *leatd, const char *text)
{
    char path[160], line[512];
    uint32_t count = 0;
    FILE *file = fopen(path_of(leatd, "log", path), "r");

    EXPECT(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        count += strstr(line, text) != NULL;
    }
    EXPECT(fclose(file) == 0);
    return count;
}

bool
leatd_logged(const struct leatd *leatd, const char *text)
{
    return leatd_log_count(leatd, text) > 0;
}

static void
forget(struct leatd *leatd)
{
    EXPECT(pthread_join(leatd->listener, NULL) == 0 && fclose(leatd->told) == 0);
    EXPECT(close(leatd->notice) == 0 && close(leatd->pidfd) == 0);
    leatd->pid = -1;
}

void
leatd_end(struct leatd *leatd, int signal_number)
{
    char path[160];
    int ended = -1;

    leatd_signal(leatd, signal_number);
    EXPECT(waitpid(leatd->pid, &ended, 0) == leatd->pid);
    started = started == leatd ? NULL : started;
    const bool in_order = WIFEXITED(ended) ? WEXITSTATUS(ended) == 0 : WTERMSIG(ended) == SIGKILL;
    if (in_order == (signal_number == SIGBUS)) {
        print_log(leatd);
        EXPECT(!"leatd ends in order, or is killed; by SIGBUS it breaks down");
    }
    forget(leatd);
    EXPECT(unlink(path_of(leatd, "notify", path)) == 0);
}

void
leatd_fini(struct leatd *leatd)
{
    if (leatd->pid >= 0) {
        forget(leatd);
    }
    fake_root_fini(&leatd->root);
}

struct leat_session *
leatd_open_session(const struct leatd *leatd, uint32_t slots, uint64_t arena_bytes)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    struct leat_session *session;

    options.socket_path = leatd->socket_path;
    options.slots = slots;
    options.arena_bytes = arena_bytes;
    enum leat_status status;
    do { /* those that were closed count until their memory has been given back */
        status = leat_open(&options, &session);
    } while (status == LEAT_ERR_LIMIT && strstr(leat_error_text(), "open or closing") != NULL);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
        EXPECT(!"leatd gives a session");
    }
    return session;
}

json_t *
leatd_request(struct leat_session *session, const char *text)
{
    char *reply;

    EXPECT(leat_admin(session, text, -1, &reply) == LEAT_OK);
    json_t *answer = json_loads(reply, JSON_REJECT_DUPLICATES, NULL);
    EXPECT(answer != NULL);
    leat_admin_free(reply);
    return answer;
}

uint64_t
leatd_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    EXPECT(json_is_integer(value) && json_integer_value(value) >= 0);
    return (uint64_t)json_integer_value(value);
}

uint64_t
leatd_counter(struct leat_session *session, const char *key)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}");
    const json_t *applications = json_object_get(status, "applications");
    EXPECT(json_array_size(applications) == 1);
    const uint64_t value = leatd_number(json_array_get(applications, 0), key);
    json_decref(status);
    return value;
}
