/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     After warm-up the hot path makes no system call, allocates nothing and takes no lock: on the client's,
 *          the dispatcher's and the worker's thread.
 * Method   This program's own malloc family and pthread_mutex_lock count themselves. System calls are counted by a
 *          seccomp filter that turns every one of a marked thread's into SIGSYS, which is counted too; each
 *          thread installs it on itself, the dispatcher from inside its router and the worker from inside its backend.
 *          Everybody spins long enough never to sleep. A deliberate system call, allocation and lock at the end show
 *          that each would have been seen. One call is by design and counted apart: a client that has heard nothing
 *          for 5 ms asks the kernel whether the daemon lives, which happens here only when the machine stalls a thread.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#include <stdio.h>

int
main(void)
{
    (void)printf("skipped: sanitizers bring their own malloc, locks and system calls\n");
    return 77;
}
#else
#include <dlfcn.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/leat_test.h"
#include "tests/system/box.h"

static _Thread_local bool marked;
static _Atomic uint64_t peer_questions; /* at most one in 5 ms without an answer */
static _Atomic uint64_t system_calls, allocations, locks;
static _Atomic bool mark_now;
static _Atomic uint32_t marked_threads;
static _Atomic uint32_t calls_by_number[512];

static void
on_sigsys(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number;
    (void)context;
    (void)atomic_fetch_add(&calls_by_number[info->si_syscall & 511], 1);
    (void)atomic_fetch_add(info->si_syscall == SYS_recvfrom ? &peer_questions : &system_calls, 1);
}

/* Traps every system call of the calling thread but those of leaving a signal handler and of ending. */
static void
mark_this_thread(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0), /* the verdict itself; looked at separately below */
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

    EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    EXPECT(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    marked = true;
    (void)atomic_fetch_add(&marked_threads, 1);
}

static void
maybe_mark(void)
{
    if (!marked && atomic_load(&mark_now)) {
        mark_this_thread();
    }
}

static uint32_t
marking_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t max)
{
    maybe_mark();
    return leat_router_fcfs.route(state, input, pairs, max);
}

static const struct leat_router marking_router = {.name = "marking", .route = marking_route};

/* ---- The counters ----------------------------------------------------------------------------- */

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void __libc_free(void *memory);
void *malloc(size_t bytes);
void *calloc(size_t count, size_t bytes);
void *realloc(void *memory, size_t bytes);
void free(void *memory);

static void
count_allocation(void)
{
    if (marked) {
        (void)atomic_fetch_add(&allocations, 1);
    }
}

void *
malloc(size_t bytes)
{
    count_allocation();
    return __libc_malloc(bytes);
}

void *
calloc(size_t count, size_t bytes)
{
    count_allocation();
    return __libc_calloc(count, bytes);
}

void *
realloc(void *memory, size_t bytes)
{
    count_allocation();
    return __libc_realloc(memory, bytes);
}

void
free(void *memory)
{
    count_allocation();
    __libc_free(memory);
}

static int (*real_lock)(pthread_mutex_t *);

int
pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (real_lock == NULL) {
        real_lock = (int (*)(pthread_mutex_t *))(uintptr_t)dlsym(RTLD_NEXT, "pthread_mutex_lock");
    }
    if (marked) {
        (void)atomic_fetch_add(&locks, 1);
    }
    return real_lock(mutex);
}

/* ---- The test --------------------------------------------------------------------------------- */

static void
answer_many(struct box_client *client, unsigned count)
{
    enum { BURST = 8 };
    struct leat_query queries[BURST];
    struct leat_completion done[BURST];

    for (unsigned n = 0; n < count; n++) {
        size_t submitted, collected = 0;
        for (int i = 0; i < BURST; i++) {
            queries[i] = client->query;
        }
        EXPECT(leat_run(client->session, &client->query, done) == LEAT_OK && done->outcome == LEAT_OUTCOME_OK);
        EXPECT(leat_submit_batch(client->session, queries, BURST, &submitted) == LEAT_OK && submitted == BURST);
        while (collected < BURST) {
            collected += leat_poll(client->session, done, BURST);
        }
    }
}

int
main(void)
{
    char socket_path[64];
    struct box_client client;
    const struct sigaction action = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO};

    leat_test_init();
    cpu_set_t usable;
    EXPECT(sched_getaffinity(0, sizeof(usable), &usable) == 0);
    if (CPU_COUNT(&usable) < 3) {
        (void)printf("skipped: client, dispatcher and worker need a core each to spin without sleeping\n");
        return LEAT_TEST_SKIP;
    }
    EXPECT(sigaction(SIGSYS, &action, NULL) == 0);
    (void)snprintf(socket_path, sizeof(socket_path), "/tmp/leat-test-quiet-%d.sock", (int)getpid());
    /* A minute of spinning before anybody sleeps: preempted threads must not look like idle ones. */
    const struct box_options options = {
        .socket_path = socket_path, .spin_ns = UINT32_MAX, .router = &marking_router, .on_worker = maybe_mark};
    (void)box_start(&options);
    box_connect(&client, socket_path, 64);
    box_fill(&client, &client.query, 1);
    answer_many(&client, 200); /* warm-up */
    atomic_store(&mark_now, true);
    while (atomic_load(&marked_threads) < 2) {
        answer_many(&client, 1);
    }
    maybe_mark();
    EXPECT(atomic_load(&marked_threads) == 3);

    answer_many(&client, 20000);
    const uint64_t calls = atomic_load(&system_calls), allocated = atomic_load(&allocations), locked = atomic_load(&locks);

    /* The counters do count. */
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    (void)getppid();
    void *volatile memory = malloc(10);
    free(memory);
    (void)pthread_mutex_lock(&mutex);
    const bool counters_work = atomic_load(&system_calls) == calls + 1 && atomic_load(&allocations) == allocated + 2 &&
                               atomic_load(&locks) == locked + 1;
    char text[200];
    int length = snprintf(text, sizeof(text), "180000 queries: %llu system calls, %llu allocations, %llu locks%s\n",
                          (unsigned long long)calls, (unsigned long long)allocated, (unsigned long long)locked,
                          counters_work ? "" : "; but the counters do not count");
    for (int number = 0; number < 512 && calls > 0 && length < 150; number++) {
        if (atomic_load(&calls_by_number[number]) > 0) {
            length += snprintf(text + length, sizeof(text) - (size_t)length, "call %d: %u times\n", number,
                               atomic_load(&calls_by_number[number]));
        }
    }
    const ssize_t written = write(STDOUT_FILENO, text, (size_t)length);
    (void)written;
    _exit(calls == 0 && allocated == 0 && locked == 0 && counters_work ? 0 : 1); /* marked threads cannot wind down */
}
#endif
