/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     After warm-up the hot path makes no system call, allocates nothing and takes no lock: on the client's,
 *          the dispatcher's and the worker's thread, with a backend that does nothing, with a network on the cpu
 *          backend, with a pipeline of two stages, and where selectors choose among variants, by a policy or by the states of instances.
 * Method   This program's own malloc family and locks count themselves, whoever calls them. System calls are counted by
 *          a seccomp filter that turns every one of a marked thread's into SIGSYS, which is counted too; each
 *          thread installs it on itself, the dispatcher from inside its router and the worker from inside its backend.
 *          Everybody spins long enough never to sleep. Deliberate system calls, allocations and locks at the end show
 *          that each would have been seen. A write is one, unless it is the verdict's to standard output. One call is
 *          by design and counted apart: a client that has heard nothing for 5 ms asks the kernel whether the
 *          daemon lives, which happens here only when the machine stalls a thread. Marked threads cannot wind
 *          down, so each case is a process.
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
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/policy_make.h"
#include "tests/leat_test.h"
#include "tests/system/box.h"
#include "tools/zoo/zoo.h"

#if LEAT_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

enum { VARIANTS = 3, ITEMS_MAX = 8, TURN = 20 /* times nine queries, until it looks at the clock */ };
#define LATENCY_NS   UINT64_C(1000000)
#define PREDICTED_NS UINT64_C(10000)

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

/*
 * Traps every system call of the calling thread but those of leaving a signal handler, of ending, and of writing the
 * verdict to standard output. Any other descriptor's write is what rings an eventfd or a pipe.
 */
static void
mark_this_thread(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])), /* the low half: x86 */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, STDOUT_FILENO, 1, 0),
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

static const struct leat_router marking_router = {.name = "marking", .queues = true, .route = marking_route};

/* ---- The counters ----------------------------------------------------------------------------- */

#define COUNTED __attribute__((visibility("default"))) /* libraries shall find these, too */

/* The allocator that the daemon has, under names that are not counted. */
#if LEAT_JEMALLOC
static void *
plain_malloc(size_t align, size_t bytes)
{
    return mallocx(bytes != 0 ? bytes : 1, align != 0 ? MALLOCX_ALIGN(align) : 0);
}

static void *
plain_realloc(void *memory, size_t bytes)
{
    return memory != NULL ? rallocx(memory, bytes != 0 ? bytes : 1, 0) : plain_malloc(0, bytes);
}

static void
plain_free(void *memory)
{
    if (memory != NULL) {
        dallocx(memory, 0);
    }
}
#else
extern void *__libc_malloc(size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void __libc_free(void *memory);

static void *
plain_malloc(size_t align, size_t bytes)
{
    return align != 0 ? __libc_memalign(align, bytes) : __libc_malloc(bytes);
}

static void *
plain_realloc(void *memory, size_t bytes)
{
    return __libc_realloc(memory, bytes);
}

static void
plain_free(void *memory)
{
    __libc_free(memory);
}
#endif

COUNTED void *malloc(size_t bytes);
COUNTED void *calloc(size_t count, size_t bytes);
COUNTED void *realloc(void *memory, size_t bytes);
COUNTED void *aligned_alloc(size_t align, size_t bytes);
COUNTED void *memalign(size_t align, size_t bytes);
COUNTED int posix_memalign(void **ret_memory, size_t align, size_t bytes);
COUNTED void free(void *memory);

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
    return plain_malloc(0, bytes);
}

void *
calloc(size_t count, size_t bytes)
{
    size_t all;
    count_allocation();
    void *memory = __builtin_mul_overflow(count, bytes, &all) ? NULL : plain_malloc(0, all);
    return memory != NULL ? memset(memory, 0, all) : NULL;
}

void *
realloc(void *memory, size_t bytes)
{
    count_allocation();
    return plain_realloc(memory, bytes);
}

void *
aligned_alloc(size_t align, size_t bytes)
{
    count_allocation();
    return plain_malloc(align, bytes);
}

void *
memalign(size_t align, size_t bytes)
{
    count_allocation();
    return plain_malloc(align, bytes);
}

int
posix_memalign(void **ret_memory, size_t align, size_t bytes)
{
    count_allocation();
    *ret_memory = plain_malloc(align, bytes);
    return *ret_memory != NULL ? 0 : ENOMEM;
}

void
free(void *memory)
{
    count_allocation();
    plain_free(memory);
}

/* Found before anybody is marked. */
static void *real_lock, *real_try, *real_read, *real_write;

static void
find_locks(void)
{
    real_lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    real_try = dlsym(RTLD_NEXT, "pthread_mutex_trylock");
    real_read = dlsym(RTLD_NEXT, "pthread_rwlock_rdlock");
    real_write = dlsym(RTLD_NEXT, "pthread_rwlock_wrlock");
}

static int
counted(void **real, void *lock)
{
    if (*real == NULL) {
        find_locks();
    }
    if (marked) {
        (void)atomic_fetch_add(&locks, 1);
    }
    return ((int (*)(void *))(uintptr_t)*real)(lock);
}

COUNTED int
pthread_mutex_lock(pthread_mutex_t *mutex)
{
    return counted(&real_lock, mutex);
}

COUNTED int
pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    return counted(&real_try, mutex);
}

COUNTED int
pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
    return counted(&real_read, lock);
}

COUNTED int
pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
    return counted(&real_write, lock);
}

/* ---- The test --------------------------------------------------------------------------------- */

/* Singly and in bursts: nine queries each time. */
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
            queries[i].accuracy_floor_ppm = i == BURST / 2 ? client->query.accuracy_floor_ppm : 0; /* now and then a floor */
        }
        EXPECT(leat_run(client->session, &client->query, done) == LEAT_OK && done->outcome == LEAT_OUTCOME_OK);
        EXPECT(leat_submit_batch(client->session, queries, BURST, &submitted) == LEAT_OK && submitted == BURST);
        while (collected < BURST) {
            collected += leat_poll(client->session, done, BURST);
        }
    }
}

/* Runs every plan of the model once: what batches come together later is chance. */
static void
run_every_plan(struct box_client *client)
{
    struct leat_query query = client->query;
    struct leat_completion done;

    for (uint32_t t = 0; t < client->target.input_count + client->target.output_count; t++) {
        EXPECT(leat_tensor_alloc(client->session, client->target.tensors[t].item_bytes * client->target.items_max,
                                 &query.tensors[t]) == LEAT_OK);
    }
    for (query.items = 1; query.items <= client->target.items_max; query.items *= 2) {
        box_fill(client, &query, 1);
        EXPECT(leat_run(client->session, &query, &done) == LEAT_OK && done.outcome == LEAT_OUTCOME_OK);
    }
}

/* Two system calls, six allocations and releases, one lock. */
static void
use_everything(int ring)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    const uint64_t one = 1;
    void *volatile memory;

    (void)getppid();
    const ssize_t written = write(ring, &one, sizeof(one));
    (void)written;
    memory = malloc(10);
    free(memory);
    memory = aligned_alloc(64, 64);
    free(memory);
    memory = strdup("by the C library"); /* and thus by any other */
    free(memory);
    LEAT_MUST(pthread_mutex_lock(&mutex) == 0);
    LEAT_MUST(pthread_mutex_unlock(&mutex) == 0);
}

struct quiet_case {
    const char *name;
    const struct leat_loaded_variant *model;
    const struct leat_selector *selector;
    const struct leat_policy *policy;
    uint32_t variants;
    bool pipeline;
};

/* Ends the process: 0 when all were quiet, for as long as it takes to evaluate the instances twice. */
_Noreturn static void
run_case(const struct quiet_case *quiet)
{
    char socket_path[64], text[300];
    struct box_client client;
    struct leat_clock clock;
    const struct sigaction action = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO};
    const int ring = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    EXPECT(ring >= 0 && sigaction(SIGSYS, &action, NULL) == 0);
    (void)snprintf(socket_path, sizeof(socket_path), "/tmp/leat-test-quiet-%d.sock", (int)getpid());
    /* Seconds of spinning before anybody sleeps: preempted threads must not look like idle ones. */
    const struct box_options options = {.socket_path = socket_path,
                                        .spin_ns = UINT32_MAX,
                                        .router = &marking_router,
                                        .on_worker = maybe_mark,
                                        .model = quiet->model,
                                        .selector = quiet->selector,
                                        .policy = quiet->policy,
                                        .variants = quiet->variants,
                                        .pipeline = quiet->pipeline,
                                        .latency_ns = quiet->variants > 0 ? LATENCY_NS : 0,
                                        .predicted_ns = PREDICTED_NS,
                                        .serve_late = true};
    (void)box_start(&options);
    leat_clock_init(&clock);
    box_connect(&client, socket_path, 64);
    box_fill(&client, &client.query, 1);
    client.query.accuracy_floor_ppm = quiet->variants > 0 ? BOX_ACCURACY_PPM(quiet->variants - 1) : 0;
    run_every_plan(&client);
    answer_many(&client, 50); /* warm-up */
    atomic_store(&mark_now, true);
    while (atomic_load(&marked_threads) < 2) {
        answer_many(&client, 1);
    }
    use_everything(ring); /* the allocator has such blocks at hand now, so that the last time counts itself alone */
    maybe_mark();
    EXPECT(atomic_load(&marked_threads) == 3);

    const uint64_t begin_ns = leat_clock_now(&clock);
    unsigned count = 0;
    do {
        answer_many(&client, TURN);
        count += TURN;
    } while (leat_clock_now(&clock) - begin_ns < 2 * LEAT_INSTANCE_INTERVAL_NS);
    const uint64_t calls = atomic_load(&system_calls), allocated = atomic_load(&allocations), locked = atomic_load(&locks);
    use_everything(ring);
    const bool counting = atomic_load(&system_calls) == calls + 2 && atomic_load(&allocations) == allocated + 6 &&
                          atomic_load(&locks) == locked + 1; /* or the zeroes mean nothing */
    int length = snprintf(text, sizeof(text), "%s, %u queries: %llu system calls, %llu allocations, %llu locks%s\n", quiet->name,
                          9 * count, (unsigned long long)calls, (unsigned long long)allocated, (unsigned long long)locked,
                          counting ? "" : "; but the counters do not count");
    for (int number = 0; number < 512 && calls > 0 && length < 250; number++) {
        if (atomic_load(&calls_by_number[number]) > 0) {
            length += snprintf(text + length, sizeof(text) - (size_t)length, "call %d: %u times\n", number,
                               atomic_load(&calls_by_number[number]));
        }
    }
    const ssize_t written = write(STDOUT_FILENO, text, (size_t)length);
    (void)written;
    _exit(calls == 0 && allocated == 0 && locked == 0 && counting ? 0 : 1);
}

_Noreturn static void
run_network(void)
{
    struct leat_variant_source lenet = {.name = "lenet5", .backend = "cpu", .items_max = 8};
    struct leat_loaded_variant loaded;
    void *file;

    EXPECT(zoo_write(zoo_find("lenet5"), ZOO_SIZE_TEST, leat_test_seed, &file, &lenet.onnx_bytes) == LEAT_OK);
    lenet.onnx = file;
    EXPECT(leat_variant_load(&lenet, &loaded) == LEAT_OK);
    const struct quiet_case quiet = {.name = "lenet5 on the cpu backend", .model = &loaded};
    run_case(&quiet);
}

/* The policy of the box's variants. */
static struct leat_policy *
make_policy(void)
{
    static const char *const names[VARIANTS] = {"first", "second", "third"};
    uint32_t accuracy_ppm[VARIANTS];
    uint64_t latency_ns[VARIANTS * ITEMS_MAX];
    struct leat_policy *policy;

    for (uint32_t v = 0; v < VARIANTS; v++) {
        accuracy_ppm[v] = BOX_ACCURACY_PPM(v);
        for (uint32_t i = 0; i < ITEMS_MAX; i++) {
            latency_ns[v * ITEMS_MAX + i] = PREDICTED_NS * (v + 1);
        }
    }
    const struct leat_policy_order order = {.variant_count = VARIANTS,
                                            .names = names,
                                            .accuracy_ppm = accuracy_ppm,
                                            .latency_ns = latency_ns,
                                            .items_max = ITEMS_MAX,
                                            .objective_ns = LATENCY_NS,
                                            .worker_count = 1,
                                            .dispersion_permille = 1000};
    EXPECT(leat_policy_make(&order, NULL, &policy) == LEAT_OK);
    return policy;
}

enum kind { NO_BACKEND, NETWORK, PIPELINE, POLICY, INSTANCES, KINDS };

_Noreturn static void
run_kind(enum kind kind)
{
    struct quiet_case quiet = {.name = "no backend"};

    if (kind == NETWORK) {
        run_network();
    }
    if (kind == PIPELINE) {
        quiet = (struct quiet_case){.name = "two stages", .pipeline = true};
    } else if (kind == POLICY) {
        quiet = (struct quiet_case){.name = "three variants, selector mdp",
                                    .selector = &leat_selector_mdp,
                                    .policy = make_policy(),
                                    .variants = VARIANTS};
    } else if (kind == INSTANCES) {
        quiet = (struct quiet_case){.name = "three variants, selector infaas",
                                    .selector = &leat_selector_infaas,
                                    .variants = VARIANTS};
    }
    run_case(&quiet);
}

static bool
is_quiet(enum kind kind)
{
    int status;

    (void)fflush(NULL);
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        run_kind(kind);
    }
    EXPECT(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int
main(void)
{
    leat_test_init();
    for (enum kind kind = 0; kind < KINDS; kind++) {
        EXPECT(is_quiet(kind));
    }
    return 0;
}
#endif
