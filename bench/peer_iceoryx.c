/* SPDX-License-Identifier: Apache-2.0 */
/* iceoryx, client and server of its C binding, both polling; its broker iox-roudi runs as long as the bench does. */
#include "bench/roundtrip.h"

#if LEAT_BENCH_ICEORYX
#include <fcntl.h>
#include <glob.h>
#include <iceoryx_binding_c/client.h>
#include <iceoryx_binding_c/log.h>
#include <iceoryx_binding_c/runtime.h>
#include <iceoryx_binding_c/server.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/align.h"

enum { HEAD_BYTES = LEAT_CACHE_LINE }; /* before the body: its size */

/* The broker is one for the machine: benches that run at the same time take turns, by holding this file's lock. */
static const char lock_path[] = "/tmp/leat-bench-iceoryx.lock";
static const char broker_path[] = "/tmp/roudi"; /* its socket */
#define NAME "leat-bench-%s-%d" /* of a process, and of its socket in /tmp */
#define NAMES "/tmp/leat-bench-{client,server}-[0-9]*"

static pid_t broker;
static int lock_fd;

static void
run_broker(void)
{
    const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    LEAT_MUST(prctl(PR_SET_PDEATHSIG, SIGTERM) == 0); /* unlike a kill, it then removes its shared memory */
    LEAT_MUST(nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0 && dup2(nowhere, STDERR_FILENO) >= 0);
    (void)execl(LEAT_BENCH_ROUDI, "iox-roudi", "--log-level", "off", (char *)NULL);
    _exit(127);
}

/* What benches left in /tmp that were killed while they began; only for who holds the lock. Returns how many files. */
static size_t
remove_remains(void)
{
    glob_t found = {0};

    if (glob(NAMES, GLOB_BRACE | GLOB_NOSORT, NULL, &found) != 0) {
        return 0;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        (void)unlink(found.gl_pathv[i]);
    }
    const size_t count = found.gl_pathc;
    globfree(&found);
    return count;
}

static const char *
begin(void)
{
    lock_fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock_fd < 0 || flock(lock_fd, LOCK_EX) != 0) {
        return "no lock in /tmp for its broker";
    }
    (void)remove_remains();
    broker = bench_fork();
    if (broker == 0) {
        run_broker();
    }
    while (access(broker_path, F_OK) != 0) {
        if (waitpid(broker, NULL, WNOHANG) != 0) {
            return "iox-roudi ended at once: does another one run?";
        }
        (void)usleep(1000);
    }
    return NULL;
}

static void
end(void)
{
    LEAT_MUST(kill(broker, SIGTERM) == 0);
    LEAT_MUST(waitpid(broker, NULL, 0) == broker);
    LEAT_MUST(remove_remains() == 0); /* our processes did */
    (void)close(lock_fd);
}

/* The address of a window, a path, names its service; so no window meets the remains of another. */
static void
enter(const char *role)
{
    char name[64];
    (void)snprintf(name, sizeof(name), NAME, role, (int)getpid());
    iox_set_loglevel(Iceoryx_LogLevel_Off);
    iox_runtime_init(name); /* waits for the broker */
}

/*
 * The broker has answered all that we ask of it: from now on nobody needs our socket and its lock. They go now, for we end by
 * a kill or at once.
 */
static void
leave_no_trace(const char *role)
{
    char path[80];
    (void)snprintf(path, sizeof(path), "/tmp/" NAME, role, (int)getpid());
    LEAT_MUST(unlink(path) == 0);
    (void)snprintf(path, sizeof(path), "/tmp/" NAME ".lock", role, (int)getpid());
    LEAT_MUST(unlink(path) == 0);
}

static void
serve(const char *address)
{
    static iox_server_storage_t storage;
    iox_server_options_t options;

    enter("server");
    iox_server_options_init(&options);
    iox_server_t server = iox_server_init(&storage, "leat-bench", address, "trip", &options);
    leave_no_trace("server");
    for (;;) {
        const void *request;
        void *response;
        while (iox_server_take_request(server, &request) != ServerRequestResult_SUCCESS) {
        }
        uint64_t size;
        memcpy(&size, request, sizeof(size));
        const unsigned char *body = (const unsigned char *)request + HEAD_BYTES;
        struct bench_answer answer = {.sum = bench_sum(body, size)};
        memcpy(&answer.sequence, body, sizeof(answer.sequence));
        LEAT_MUST(iox_server_loan_response(server, request, &response, sizeof(answer)) == AllocationResult_SUCCESS);
        memcpy(response, &answer, sizeof(answer));
        LEAT_MUST(iox_server_send(server, response) == ServerSendResult_SUCCESS);
        iox_server_release_request(server, request);
    }
}

static void *
connect_to(const char *address)
{
    static iox_client_storage_t storage;
    iox_client_options_t options;

    enter("client");
    iox_client_options_init(&options);
    iox_client_t client = iox_client_init(&storage, "leat-bench", address, "trip", &options);
    while (iox_client_get_connection_state(client) != ConnectionState_CONNECTED) {
        (void)usleep(1000); /* the broker connects them by and by */
    }
    leave_no_trace("client");
    return client;
}

static void
trip(void *connection, const void *request, size_t bytes, struct bench_answer *ret_answer)
{
    iox_client_t client = connection;
    const uint64_t size = bytes;
    const void *response;
    void *chunk;

    LEAT_MUST(iox_client_loan_aligned_request(client, &chunk, (uint32_t)(HEAD_BYTES + bytes), LEAT_CACHE_LINE) ==
              AllocationResult_SUCCESS);
    memcpy(chunk, &size, sizeof(size));
    memcpy((unsigned char *)chunk + HEAD_BYTES, request, bytes);
    LEAT_MUST(iox_client_send(client, chunk) == ClientSendResult_SUCCESS);
    while (iox_client_take_response(client, &response) != ChunkReceiveResult_SUCCESS) {
    }
    memcpy(ret_answer, response, sizeof(*ret_answer));
    iox_client_release_response(client, response);
}

struct bench_transport bench_iceoryx = {.name = "iceoryx",
                                        .version = LEAT_BENCH_ICEORYX_VERSION,
                                        .polls = true,
                                        .begin = begin,
                                        .end = end,
                                        .serve = serve,
                                        .connect = connect_to,
                                        .trip = trip};
#else
struct bench_transport bench_iceoryx = {
    .name = "iceoryx", .missing = "not built: libiceoryx-binding-c-dev and iceoryx are not installed"};
#endif
