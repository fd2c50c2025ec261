/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows a process more cores than there are: LD_PRELOADed by tests/virtual_cores/run, into it and all that it starts.
 *
 * A thread's affinity is a set of virtual cores, kept by thread number in a file that all these processes share. The kernel is
 * told the CPUs that stand for them: of n CPUs, the v-th of c cores is on the v * n / c-th. Where cores have a share of a
 * CPU's time, a thread that may run on one core alone is in that core's control group, any other in none. Control groups are
 * hidden from who looks for them in mountinfo, for they know CPUs only. hwloc is told of the cores by HWLOC_SYNTHETIC.
 *
 * Environment  LEAT_VIRTUAL_CORES   how many cores
 *              LEAT_VIRTUAL_SETS    the file: a set, of 64 bits, for each number a thread can have; 0: not known
 *              LEAT_VIRTUAL_CPUS    the CPUs, separated by commas
 *              LEAT_VIRTUAL_GROUPS  a cgroup v1 folder of the controller cpu, with a group core<v> for each core, or not set
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))
#define CORES_MAX   64u
#define THREADS_MAX 4096u
#define NEED(condition) ((condition) ? (void)0 : fail(#condition))

/* Threads that this process has made, by handle, for functions that are not given a number. */
struct known {
    pthread_t handle;
    pid_t number;
};

struct start {
    void *(*main)(void *);
    void *argument;
    uint64_t cores;
    pid_t number; /* of the thread, once it runs */
    pthread_mutex_t lock;
    pthread_cond_t runs;
};

static unsigned core_count, cpu_count;
static int cpus[CORES_MAX];
static const char *groups;
static _Atomic uint64_t *sets;
static size_t set_count;
static _Thread_local uint64_t forking;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static struct known known[THREADS_MAX];
static size_t known_count;

_Noreturn static void
fail(const char *what)
{
    (void)fprintf(stderr, "virtual cores: %s: %s\n", what, strerror(errno));
    abort();
}

static pid_t
own_number(void)
{
    return (pid_t)syscall(SYS_gettid);
}

static uint64_t
all_cores(void)
{
    return core_count == CORES_MAX ? UINT64_MAX : (UINT64_C(1) << core_count) - 1;
}

static uint64_t
cores_of(pid_t thread)
{
    const uint64_t cores = (size_t)thread < set_count ? atomic_load(&sets[thread]) : 0;
    return cores == 0 ? all_cores() : cores;
}

/* Whose set may be another as soon as it has forked. */
static void
prepare_child(void)
{
    forking = cores_of(own_number());
}

static void
begin_as_child(void)
{
    atomic_store(&sets[own_number()], forking);
}

__attribute__((constructor)) static void
begin(void)
{
    const char *count = getenv("LEAT_VIRTUAL_CORES"), *path = getenv("LEAT_VIRTUAL_SETS"), *at = getenv("LEAT_VIRTUAL_CPUS");
    struct stat file;

    NEED(count != NULL && path != NULL && at != NULL);
    core_count = (unsigned)strtoul(count, NULL, 10);
    NEED(core_count >= 1 && core_count <= CORES_MAX);
    for (char *end; cpu_count < CORES_MAX && *at != '\0'; at = *end == ',' ? end + 1 : end) {
        cpus[cpu_count++] = (int)strtol(at, &end, 10);
        NEED(end != at);
    }
    groups = getenv("LEAT_VIRTUAL_GROUPS");
    const int sets_file = open(path, O_RDWR | O_CLOEXEC);
    NEED(sets_file >= 0 && fstat(sets_file, &file) == 0 && cpu_count > 0);
    void *const map = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, sets_file, 0);
    NEED(map != MAP_FAILED && close(sets_file) == 0);
    sets = map;
    set_count = (size_t)file.st_size / sizeof(*sets);
    if (atomic_load(&sets[own_number()]) == 0) { /* of a vfork, whose parent waits, or the first */
        atomic_store(&sets[own_number()], cores_of(getppid()));
    }
    NEED(pthread_atfork(prepare_child, NULL, begin_as_child) == 0);
}

/* ---- Affinity --------------------------------------------------------------------------------- */

static uint64_t
cores_in(const cpu_set_t *set, size_t bytes)
{
    uint64_t cores = 0;
    for (unsigned v = 0; v < core_count; v++) {
        cores |= (uint64_t)(CPU_ISSET_S(v, bytes, set) != 0) << v;
    }
    return cores;
}

static void
join_group(pid_t thread, uint64_t cores)
{
    char path[256], text[16];
    const bool one = (cores & (cores - 1)) == 0;

    (void)(one ? snprintf(path, sizeof(path), "%s/core%d/tasks", groups, __builtin_ctzll(cores))
               : snprintf(path, sizeof(path), "%s/tasks", groups));
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    NEED(file >= 0);
    const int length = snprintf(text, sizeof(text), "%d", (int)thread);
    NEED(write(file, text, (size_t)length) == length || errno == ESRCH);
    NEED(close(file) == 0);
}

SHOWN int
sched_setaffinity(pid_t thread, size_t bytes, const cpu_set_t *set)
{
    const uint64_t cores = cores_in(set, bytes);
    cpu_set_t real;

    if (cores == 0) {
        errno = EINVAL;
        return -1;
    }
    thread = thread == 0 ? own_number() : thread;
    CPU_ZERO(&real);
    for (unsigned v = 0; v < core_count; v++) {
        if ((cores >> v & 1) != 0) {
            CPU_SET((size_t)cpus[v * cpu_count / core_count], &real);
        }
    }
    if (syscall(SYS_sched_setaffinity, thread, sizeof(real), &real) < 0) {
        return -1;
    }
    if (groups != NULL) {
        join_group(thread, cores);
    }
    atomic_store(&sets[thread], cores);
    return 0;
}

SHOWN int
sched_getaffinity(pid_t thread, size_t bytes, cpu_set_t *set)
{
    cpu_set_t real;

    if (syscall(SYS_sched_getaffinity, thread, sizeof(real), &real) < 0) { /* no such thread */
        return -1;
    }
    memset(set, 0, bytes);
    const uint64_t cores = cores_of(thread == 0 ? own_number() : thread);
    for (unsigned v = 0; v < core_count; v++) {
        if ((cores >> v & 1) != 0) {
            CPU_SET_S(v, bytes, set);
        }
    }
    return 0;
}

static pid_t
number_of(pthread_t handle)
{
    pid_t number = pthread_equal(handle, pthread_self()) ? own_number() : 0;

    (void)pthread_mutex_lock(&known_lock);
    for (size_t i = 0; number == 0 && i < known_count; i++) {
        number = pthread_equal(known[i].handle, handle) ? known[i].number : 0;
    }
    (void)pthread_mutex_unlock(&known_lock);
    NEED(number != 0);
    return number;
}

SHOWN int
pthread_setaffinity_np(pthread_t thread, size_t bytes, const cpu_set_t *set)
{
    return sched_setaffinity(number_of(thread), bytes, set) == 0 ? 0 : errno;
}

SHOWN int
pthread_getaffinity_np(pthread_t thread, size_t bytes, cpu_set_t *set)
{
    return sched_getaffinity(number_of(thread), bytes, set) == 0 ? 0 : errno;
}

/* The first core that the thread may run on. */
SHOWN int
sched_getcpu(void)
{
    return __builtin_ctzll(cores_of(own_number()));
}

SHOWN int
getcpu(unsigned *cpu, unsigned *node)
{
    if (cpu != NULL) {
        *cpu = (unsigned)sched_getcpu();
    }
    if (node != NULL) {
        *node = 0;
    }
    return 0;
}

/* ---- Threads ---------------------------------------------------------------------------------- */

static void *
start_thread(void *argument)
{
    struct start *start = argument;
    void *(*const thread_main)(void *) = start->main;
    void *const its_argument = start->argument;
    cpu_set_t set;

    CPU_ZERO(&set);
    for (unsigned v = 0; v < core_count; v++) {
        if ((start->cores >> v & 1) != 0) {
            CPU_SET(v, &set);
        }
    }
    NEED(sched_setaffinity(0, sizeof(set), &set) == 0);
    (void)pthread_mutex_lock(&start->lock);
    start->number = own_number();
    (void)pthread_cond_signal(&start->runs);
    (void)pthread_mutex_unlock(&start->lock);
    void *const result = thread_main(its_argument);
    atomic_store(&sets[own_number()], 0); /* whose number it is next knows nothing */
    return result;
}

static void
remember(pthread_t handle, pid_t number)
{
    size_t i = 0;

    (void)pthread_mutex_lock(&known_lock);
    while (i < known_count && !pthread_equal(known[i].handle, handle)) {
        i++;
    }
    NEED(i < THREADS_MAX);
    known[i] = (struct known){handle, number};
    known_count += i == known_count;
    (void)pthread_mutex_unlock(&known_lock);
}

/* The thread has its affinity, and its number is known, when this returns. */
SHOWN int
pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*thread_main)(void *), void *argument)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    struct start start = {.main = thread_main, .argument = argument, .cores = cores_of(own_number()),
                          .lock = PTHREAD_MUTEX_INITIALIZER, .runs = PTHREAD_COND_INITIALIZER};
    cpu_set_t wanted;
    bool given = false;

    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    if (attributes != NULL) {
        /* Without an affinity, all are set, of which there are more than can be. */
        NEED(pthread_attr_getaffinity_np(attributes, sizeof(wanted), &wanted) == 0);
        given = CPU_COUNT(&wanted) < CPU_SETSIZE;
    }
    if (given) {
        start.cores = cores_in(&wanted, sizeof(wanted));
        NEED(pthread_attr_setaffinity_np((pthread_attr_t *)(uintptr_t)attributes, 0, &wanted) == 0);
    }
    const int error = real(thread, attributes, start_thread, &start);
    if (given) {
        NEED(pthread_attr_setaffinity_np((pthread_attr_t *)(uintptr_t)attributes, sizeof(wanted), &wanted) == 0);
    }
    if (error == 0) {
        (void)pthread_mutex_lock(&start.lock);
        while (start.number == 0) {
            (void)pthread_cond_wait(&start.runs, &start.lock);
        }
        (void)pthread_mutex_unlock(&start.lock);
        remember(*thread, start.number);
    }
    return error;
}

/* ---- Control groups --------------------------------------------------------------------------- */

SHOWN FILE *
fopen(const char *path, const char *mode)
{
    FILE *(*real)(const char *, const char *);

    *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    return real(strcmp(path, "/proc/self/mountinfo") == 0 ? "/dev/null" : path, mode);
}
