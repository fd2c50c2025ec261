/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Workers' threads are in groups of their own with the CPUs that they have and with no others, of v2 or of v1;
 *          nobody else's thread is moved, what cannot be had is said, what a failure left half done is undone, and what
 *          killed daemons left is removed, but nothing that lives. cpuset is disabled again where a daemon enabled it.
 * Method   Real threads, and a folder in the kernel's place: mkdir, rmdir, write and getxattr of the module are this
 *          file's, which answer by the rules of cgroups, and at chosen calls by an error. As Linux before 6.2 does, a
 *          change of a group's CPUs makes its threads forget their own affinity.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "base/align.h"
#include "runtime/cpuset.h"
#include "runtime/topology.h"
#include "tests/runtime/fake_root.h"

enum { WORKERS = 2, TEAM = 3, THREADS = WORKERS * TEAM, LINE_BYTES = 4096 };

#define V2 "/sys/fs/cgroup/unit"
#define V1 "/sys/fs/cgroup/cpuset/unit"

static struct fake_root root;
static pid_t threads[THREADS];
static uint32_t cpus[TEAM]; /* that this machine has; less than three: some twice */
static struct {             /* what goes wrong, once */
    const char *at;         /* the end of a path; NULL: nothing */
    int error;
    uint32_t after; /* so many calls that go well */
} fault;
static bool delegated;

/* ---- The kernel's side -------------------------------------------------------------------------- */

int __real_mkdir(const char *path, mode_t mode);
int __real_rmdir(const char *path);
ssize_t __real_write(int fd, const void *bytes, size_t count);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_rmdir(const char *path);
ssize_t __wrap_write(int fd, const void *bytes, size_t count);
ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t bytes);

static bool
is_ours(const char *path)
{
    return root.path[0] != '\0' && strncmp(path, root.path, strlen(root.path)) == 0;
}

static bool
ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static bool
fails(const char *path)
{
    if (fault.at == NULL || !ends_with(path, fault.at)) {
        return false;
    }
    if (fault.after > 0) {
        fault.after--;
        return false;
    }
    fault.at = NULL;
    errno = fault.error;
    return true;
}

static char *
read_text(const char *folder, const char *name, char text[LINE_BYTES])
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    const size_t got = file != NULL ? fread(text, 1, LINE_BYTES - 1, file) : 0;
    text[got] = '\0';
    if (file != NULL) {
        (void)fclose(file);
    }
    return text;
}

static void
write_text(const char *folder, const char *name, const char *text)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    EXPECT(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static bool
is_v2(const char *folder)
{
    return strstr(folder, "/cpuset") == NULL;
}

static const char *
threads_file(const char *folder)
{
    return is_v2(folder) ? "cgroup.threads" : "tasks";
}

static void
parent_of(const char *path, char parent[512])
{
    (void)snprintf(parent, 512, "%.*s", (int)(strrchr(path, '/') - path), path);
}

/* No other daemon would be let in now. */
static void
expect_alone(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    EXPECT(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && close(fd) == 0);
}

int
__wrap_mkdir(const char *path, mode_t mode)
{
    char parent[512], text[LINE_BYTES];

    if (!is_ours(path)) {
        return __real_mkdir(path, mode);
    }
    if (fails(path) || __real_mkdir(path, mode) != 0) {
        return -1;
    }
    parent_of(path, parent);
    write_text(path, threads_file(path), "");
    if (!is_v2(path)) {
        write_text(path, "cpuset.mems", "\n");
        write_text(path, "cpuset.cpus", "\n");
    } else {
        write_text(path, "cgroup.type", "domain\n");
        if (strstr(read_text(parent, "cgroup.subtree_control", text), "cpuset") != NULL) {
            write_text(path, "cpuset.cpus", "\n");
        }
    }
    return 0;
}

int
__wrap_rmdir(const char *path)
{
    static const char *const files[] = {"cgroup.threads", "cgroup.type", "cpuset.cpus", "cpuset.mems", "tasks"};
    char text[LINE_BYTES], file[512];

    if (fails(path)) {
        return -1;
    }
    if (read_text(path, threads_file(path), text)[0] != '\0') {
        errno = EBUSY;
        return -1;
    }
    for (size_t f = 0; f < LEAT_COUNT_OF(files); f++) {
        (void)snprintf(file, sizeof(file), "%s/%s", path, files[f]);
        (void)unlink(file);
    }
    return __real_rmdir(path);
}

ssize_t
__wrap_getxattr(const char *path, const char *name, void *value, size_t bytes)
{
    EXPECT(is_ours(path) && bytes >= 1);
    if (!delegated || strcmp(name, "trusted.delegate") != 0) {
        errno = ENODATA;
        return -1;
    }
    *(char *)value = '1';
    return 1;
}

/* Lines of the thread's number in the folder's list. */
static uint32_t
is_in(const char *folder, pid_t thread)
{
    char text[LINE_BYTES], line[32];
    uint32_t count = 0;

    (void)snprintf(line, sizeof(line), "%d\n", (int)thread);
    (void)read_text(folder, threads_file(folder), text);
    for (const char *at = text; (at = strstr(at, line)) != NULL; at++) {
        count += at == text || at[-1] == '\n';
    }
    return count;
}

static void
take_out(const char *folder, pid_t thread)
{
    char text[LINE_BYTES], left[LINE_BYTES] = "", *rest = NULL;

    for (char *line = strtok_r(read_text(folder, threads_file(folder), text), "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        if (atoi(line) != (int)thread) {
            (void)strcat(strcat(left, line), "\n");
        }
    }
    write_text(folder, threads_file(folder), left);
}

static const char *
group_of(const char *folder, uint32_t worker, char path[512])
{
    (void)snprintf(path, 512, "%s%s/leat-%d-worker-%u", root.path, folder, (int)getpid(), worker);
    return path;
}

static int
enter_group(const char *folder, const char *number)
{
    const char *own = is_v2(folder) ? V2 : V1;
    const pid_t thread = atoi(number);
    char text[LINE_BYTES], path[512];

    if (is_v2(folder) && !ends_with(folder, V2) && strcmp(read_text(folder, "cgroup.type", text), "threaded\n") != 0) {
        return EOPNOTSUPP;
    }
    if (!is_v2(folder) &&
        (read_text(folder, "cpuset.cpus", text)[0] == '\n' || read_text(folder, "cpuset.mems", text)[0] == '\n')) {
        return ENOSPC;
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        if (access(group_of(own, w, path), F_OK) == 0) {
            take_out(path, thread);
        }
    }
    (void)snprintf(path, sizeof(path), "%s%s", root.path, own);
    take_out(path, thread);
    (void)snprintf(path, sizeof(path), "%s%s\n", read_text(folder, threads_file(folder), text), number);
    write_text(folder, threads_file(folder), path);
    return 0;
}

/* Threads of the group run wherever it may from now on. */
static int
set_cpus(const char *folder, const char *list)
{
    uint32_t numbers[LEAT_CPU_MAX], count;
    cpu_set_t set;

    if (leat_cpu_list_parse(list, numbers, LEAT_CPU_MAX, &count) != LEAT_OK) {
        return EINVAL;
    }
    CPU_ZERO(&set);
    for (uint32_t c = 0; c < count; c++) {
        CPU_SET((size_t)numbers[c], &set);
    }
    for (uint32_t t = 0; t < THREADS; t++) {
        EXPECT(is_in(folder, threads[t]) == 0 || sched_setaffinity(threads[t], sizeof(set), &set) == 0);
    }
    return 0;
}

ssize_t
__wrap_write(int fd, const void *bytes, size_t count)
{
    char link[64], path[512] = "", folder[512], text[512], line[LINE_BYTES];

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) < 0 || !is_ours(path)) {
        return __real_write(fd, bytes, count);
    }
    if (fails(path)) {
        return -1;
    }
    parent_of(path, folder);
    const char *name = path + strlen(folder) + 1;
    (void)snprintf(text, sizeof(text), "%.*s", (int)count, (const char *)bytes);
    if (strcmp(name, threads_file(folder)) == 0) {
        errno = enter_group(folder, text);
    } else if (strcmp(name, "cpuset.cpus") == 0) {
        errno = set_cpus(folder, text);
    } else if (strcmp(name, "cgroup.type") == 0) {
        parent_of(folder, line); /* which has processes: threads cannot be divided by what divides these */
        const bool domain = strstr(read_text(line, "cgroup.subtree_control", line), "memory") != NULL;
        errno = strcmp(text, "threaded") != 0 ? EINVAL : domain ? EOPNOTSUPP : 0;
    } else if (strcmp(name, "cgroup.subtree_control") == 0) {
        expect_alone(folder);
        (void)snprintf(line, sizeof(line), "%s/leat-cpuset", folder);
        EXPECT(access(line, F_OK) != 0); /* who is killed before or after leaves no mark for what is not enabled */
        const bool memory = strstr(read_text(folder, name, line), "memory") != NULL;
        errno = strcmp(text, "+cpuset") == 0 || strcmp(text, "-cpuset") == 0 ? 0 : EINVAL;
        (void)snprintf(text, sizeof(text), "%s%s", memory ? "memory" : "pids", text[0] == '+' ? " cpuset" : "");
    } else {
        errno = strcmp(name, "cpuset.mems") == 0 ? 0 : EACCES;
    }
    if (errno != 0) {
        return -1;
    }
    if (strcmp(name, threads_file(folder)) != 0) {
        (void)strcat(text, "\n");
        write_text(folder, name, text);
    }
    return (ssize_t)count;
}

/* ---- What is looked at ------------------------------------------------------------------------------ */

/* A machine with both hierarchies, and all threads in the own group of each. */
static void
make_machine(const char *controllers)
{
    char list[LINE_BYTES] = "", line[32];

    fault.at = NULL;
    fault.after = 0;
    delegated = false;
    fake_root_init(&root);
    fake_root_write(&root, "/proc/self/cgroup", "4:cpuset:/unit\n0::/unit\n");
    fake_root_write(&root, "/proc/self/mountinfo",
                    "30 29 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
                    "31 29 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
    fake_root_write(&root, V2 "/cgroup.controllers", controllers);
    fake_root_write(&root, V2 "/cgroup.subtree_control", "pids\n");
    fake_root_write(&root, V1 "/cpuset.mems", "0-1\n");
    fake_root_write(&root, V1 "/cpuset.cpus", "0-7\n");
    for (uint32_t t = 0; t < THREADS; t++) {
        (void)snprintf(line, sizeof(line), "%d\n", (int)threads[t]);
        (void)strcat(list, line);
    }
    (void)snprintf(line, sizeof(line), "%d\n", (int)getpid()); /* who is no worker's thread */
    (void)strcat(list, line);
    fake_root_write(&root, V2 "/cgroup.threads", list);
    fake_root_write(&root, V1 "/tasks", list);
}

static struct leat_cpusets *
create(enum leat_cpusets_kind wanted)
{
    const struct leat_cpusets_options options = {.root = root.path, .wanted = wanted, .worker_count = WORKERS};
    struct leat_cpusets *cpusets;

    EXPECT(leat_cpusets_create(&options, &cpusets) == LEAT_OK);
    return cpusets;
}

static void
refuse(enum leat_cpusets_kind wanted, const char *part)
{
    const struct leat_cpusets_options options = {.root = root.path, .wanted = wanted, .worker_count = WORKERS};
    struct leat_cpusets *cpusets;

    EXPECT(leat_cpusets_create(&options, &cpusets) != LEAT_OK);
    if (strstr(leat_error_text(), part) == NULL) {
        (void)fprintf(stderr, "got: %s\nwant: %s\n", leat_error_text(), part);
        EXPECT(!"the error says what is wrong");
    }
}

static void
expect_reason(const struct leat_cpusets *cpusets, const char *part)
{
    if (strstr(leat_cpusets_reason(cpusets), part) == NULL) {
        (void)fprintf(stderr, "got: %s\nwant: %s\n", leat_cpusets_reason(cpusets), part);
        EXPECT(!"the reason says why");
    }
}

static bool
is_pinned(pid_t thread, uint32_t cpu)
{
    cpu_set_t set;

    EXPECT(sched_getaffinity(thread, sizeof(set), &set) == 0);
    return CPU_COUNT(&set) == 1 && CPU_ISSET((size_t)cpu, &set);
}

/* What the daemon's own group gives its children, and whether a mark says who enabled that. */
static void
expect_enabled(bool cpuset, bool mark)
{
    char path[512], text[LINE_BYTES];

    (void)snprintf(path, sizeof(path), "%s" V2, root.path);
    EXPECT(strcmp(read_text(path, "cgroup.subtree_control", text), cpuset ? "pids cpuset\n" : "pids\n") == 0);
    (void)strcat(path, "/leat-cpuset");
    EXPECT((access(path, F_OK) == 0) == mark);
}

/* Its group has its threads and CPUs, and each thread the CPU that it should. */
static void
expect_group(const struct leat_cpusets *cpusets, const char *folder, uint32_t worker, uint32_t cpu_count)
{
    char path[512], text[LINE_BYTES];
    uint32_t numbers[LEAT_CPU_MAX], count, counted = 0;

    EXPECT(strcmp(leat_cpusets_path(cpusets, worker), group_of(folder, worker, path)) == 0);
    (void)read_text(path, "cpuset.cpus", text);
    text[strcspn(text, "\n")] = '\0';
    EXPECT(leat_cpu_list_parse(text, numbers, LEAT_CPU_MAX, &count) == LEAT_OK && count == cpu_count);
    for (uint32_t c = 0; c < cpu_count; c++) {
        EXPECT(numbers[c] == cpus[c]);
    }
    for (uint32_t t = 0; t < TEAM; t++) {
        const pid_t thread = threads[worker * TEAM + t];
        EXPECT(is_in(path, thread) == 1 && is_pinned(thread, cpus[t < cpu_count ? t : 0]));
    }
    (void)read_text(path, threads_file(path), text);
    for (const char *at = text; *at != '\0'; at++) {
        counted += *at == '\n';
    }
    EXPECT(counted == TEAM);
}

/* All are where they were at the start: who is no worker's never left. */
static void
expect_home(const char *folder, bool workers)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s%s", root.path, folder);
    EXPECT(is_in(path, getpid()) == 1);
    for (uint32_t t = 0; t < THREADS; t++) {
        EXPECT(is_in(path, threads[t]) == workers);
    }
}

static uint32_t
groups_in(const char *folder)
{
    char path[512];
    uint32_t count = 0;

    for (uint32_t w = 0; w < WORKERS; w++) {
        count += access(group_of(folder, w, path), F_OK) == 0;
    }
    return count;
}

static enum leat_status
enter(struct leat_cpusets *cpusets, uint32_t worker)
{
    return leat_cpusets_enter(cpusets, worker, &threads[worker * TEAM], TEAM, cpus, 1);
}

/* Threads end by leaving their groups, one of them late. */
static void
end_threads(const char *folder)
{
    char path[512];

    for (uint32_t w = 0; w < WORKERS; w++) {
        write_text(group_of(folder, w, path), threads_file(folder), "");
    }
    fault.at = "worker-1";
    fault.error = EBUSY;
}

/* ---- Tests ------------------------------------------------------------------------------------------ */

static void
use(enum leat_cpusets_kind wanted, enum leat_cpusets_kind expected, const char *folder)
{
    char path[512], text[LINE_BYTES];
    struct leat_cpusets *cpusets = create(wanted);

    EXPECT(leat_cpusets_kind(cpusets) == expected);
    EXPECT(strcmp(leat_cpusets_name(cpusets), expected == LEAT_CPUSETS_V2 ? "cgroup v2" : "cgroup v1") == 0);
    expect_reason(cpusets, folder);
    expect_enabled(expected == LEAT_CPUSETS_V2, expected == LEAT_CPUSETS_V2);
    EXPECT(groups_in(V2) == (expected == LEAT_CPUSETS_V2 ? WORKERS : 0));
    EXPECT(groups_in(V1) == (expected == LEAT_CPUSETS_V1 ? WORKERS : 0));
    for (uint32_t w = 0; w < WORKERS; w++) {
        EXPECT(enter(cpusets, w) == LEAT_OK);
    }
    expect_home(folder, false);
    const uint32_t sizes[] = {1, TEAM, TEAM, 2, 1, 2};
    for (size_t s = 0; s < LEAT_COUNT_OF(sizes); s++) {
        EXPECT(leat_cpusets_set(cpusets, 0, cpus, sizes[s]) == LEAT_OK);
        expect_group(cpusets, folder, 0, sizes[s]);
        expect_group(cpusets, folder, 1, 1);
    }
    if (expected == LEAT_CPUSETS_V1) { /* memory is preferred to lie on a node, not bound to it */
        EXPECT(strcmp(read_text(group_of(folder, 0, path), "cpuset.mems", text), "0-1\n") == 0);
    }
    end_threads(folder);
    leat_cpusets_destroy(cpusets);
    EXPECT(fault.at == NULL && groups_in(folder) == 0);
    expect_home(folder, false);
    expect_enabled(false, false);
}

static void
test_kinds(void)
{
    make_machine("cpu cpuset pids\n");
    use(LEAT_CPUSETS_AUTO, LEAT_CPUSETS_V2, V2);
    fake_root_fini(&root);
    make_machine("cpu cpuset pids\n");
    use(LEAT_CPUSETS_V1, LEAT_CPUSETS_V1, V1);
    fake_root_fini(&root);
    make_machine("cpu cpusets pids\n");
    use(LEAT_CPUSETS_AUTO, LEAT_CPUSETS_V1, V1);
    refuse(LEAT_CPUSETS_V2, "cgroups: v2: ");
    refuse(LEAT_CPUSETS_V2, V2 "/cgroup.controllers has no cpuset");
    fake_root_fini(&root);
}

static void
test_none(void)
{
    struct leat_cpusets *cpusets;

    make_machine("cpuset\n");
    cpusets = create(LEAT_CPUSETS_OFF);
    EXPECT(leat_cpusets_kind(cpusets) == LEAT_CPUSETS_OFF && strcmp(leat_cpusets_name(cpusets), "affinity") == 0);
    expect_reason(cpusets, "the configuration says so");
    EXPECT(enter(cpusets, 0) == LEAT_OK && leat_cpusets_set(cpusets, 0, cpus, 2) == LEAT_OK);
    EXPECT(groups_in(V2) == 0 && groups_in(V1) == 0 && leat_cpusets_path(cpusets, 0)[0] == '\0');
    expect_home(V2, true);
    expect_home(V1, true);
    leat_cpusets_destroy(cpusets);
    fake_root_write(&root, "/proc/self/mountinfo", "\n");
    cpusets = create(LEAT_CPUSETS_AUTO);
    EXPECT(leat_cpusets_kind(cpusets) == LEAT_CPUSETS_OFF);
    expect_reason(cpusets, "not v2: no cgroup v2 is mounted; not v1: no cpuset of cgroup v1 is mounted");
    leat_cpusets_destroy(cpusets);
    refuse(LEAT_CPUSETS_V1, "cgroups: v1: no cpuset of cgroup v1");
    fake_root_fini(&root);
    EXPECT(leat_cpusets_kind(NULL) == LEAT_CPUSETS_OFF && leat_cpusets_reason(NULL)[0] == '\0');
    EXPECT(leat_cpusets_path(NULL, 7)[0] == '\0' && leat_cpusets_set(NULL, 7, cpus, 1) == LEAT_OK);
    leat_cpusets_destroy(NULL);
}

/* The first way that goes wrong is said, what it had made is gone, and the next one is taken. */
static void
test_obstacles(void)
{
    static const struct {
        const char *at;
        int error;
        const char *why;
    } cases[] = {{V2 "/cgroup.subtree_control", EACCES, "cannot write '+cpuset' to "},
                 {"leat-cpuset", EACCES, "cannot make the control group "},
                 {"worker-1", EACCES, "cannot make the control group "},
                 {"worker-1/cgroup.type", EOPNOTSUPP, "cannot write 'threaded' to "}};
    char path[512];

    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        make_machine("cpuset\n");
        fault.at = cases[c].at;
        fault.error = cases[c].error;
        struct leat_cpusets *cpusets = create(LEAT_CPUSETS_AUTO);
        EXPECT(leat_cpusets_kind(cpusets) == LEAT_CPUSETS_V1 && groups_in(V2) == 0 && groups_in(V1) == WORKERS);
        expect_reason(cpusets, cases[c].why);
        expect_reason(cpusets, strerror(cases[c].error));
        expect_enabled(false, false);
        leat_cpusets_destroy(cpusets);
        fault.at = cases[c].at;
        refuse(LEAT_CPUSETS_V2, cases[c].why);
        EXPECT(groups_in(V2) == 0 && groups_in(V1) == 0);
        expect_enabled(false, false);
        fake_root_fini(&root);
    }
    make_machine("cpuset\n"); /* memory is divided among processes, beside which no group can be threaded */
    fake_root_write(&root, V2 "/cgroup.subtree_control", "memory\n");
    refuse(LEAT_CPUSETS_V2, "cannot write 'threaded' to ");
    EXPECT(groups_in(V2) == 0);
    fake_root_fini(&root);
    make_machine("cpuset\n"); /* somebody keeps it locked */
    (void)snprintf(path, sizeof(path), "%s" V2, root.path);
    const int lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    EXPECT(lock >= 0 && flock(lock, LOCK_EX) == 0);
    refuse(LEAT_CPUSETS_V2, "cannot lock ");
    expect_enabled(false, false);
    EXPECT(close(lock) == 0);
    fake_root_fini(&root);
    make_machine("\n");
    fault.at = "worker-0/cpuset.mems";
    fault.error = EACCES;
    refuse(LEAT_CPUSETS_V1, "cannot write '0-1' to ");
    EXPECT(groups_in(V1) == 0);
    fake_root_fini(&root);
}

/* Where systemd runs, who can write to a group need not have been given it. */
static void
test_delegation(void)
{
    struct leat_cpusets *cpusets;

    make_machine("cpuset\n");
    fake_root_write(&root, "/run/systemd/system/keep", "");
    cpusets = create(LEAT_CPUSETS_AUTO);
    EXPECT(leat_cpusets_kind(cpusets) == LEAT_CPUSETS_V1);
    expect_reason(cpusets, "was not delegated to the daemon (Delegate=cpuset in a unit)");
    leat_cpusets_destroy(cpusets);
    cpusets = create(LEAT_CPUSETS_V2); /* an order */
    leat_cpusets_destroy(cpusets);
    delegated = true;
    cpusets = create(LEAT_CPUSETS_AUTO);
    EXPECT(leat_cpusets_kind(cpusets) == LEAT_CPUSETS_V2);
    leat_cpusets_destroy(cpusets);
    fake_root_fini(&root);
}

static const char *
group_named(const char *folder, pid_t pid, const char *rest, char path[512])
{
    (void)snprintf(path, 512, "%s%s/leat-%d%s", root.path, folder, (int)pid, rest);
    return path;
}

static void
test_left_over(const char *folder, const char *controllers)
{
    char of_dead[512], of_zombie[512], of_own[512], busy[512], of_living[512], other[512];
    siginfo_t ended;

    make_machine(controllers);
    const pid_t dead = fork();
    if (dead == 0) {
        _exit(0);
    }
    EXPECT(waitpid(dead, NULL, 0) == dead);
    const pid_t zombie = fork();
    if (zombie == 0) {
        _exit(0);
    }
    EXPECT(waitid(P_PID, (id_t)zombie, &ended, WEXITED | WNOWAIT) == 0);
    EXPECT(__wrap_mkdir(group_named(folder, dead, "-worker-0", of_dead), 0755) == 0);
    EXPECT(__wrap_mkdir(group_named(folder, zombie, "-worker-17", of_zombie), 0755) == 0);
    EXPECT(__wrap_mkdir(group_named(folder, getpid(), "-worker-1", of_own), 0755) == 0);
    EXPECT(__wrap_mkdir(group_named(folder, dead, "-worker-1", busy), 0755) == 0);
    write_text(busy, threads_file(busy), "17\n");
    EXPECT(__wrap_mkdir(group_named(folder, getppid(), "-worker-0", of_living), 0755) == 0);
    EXPECT(__wrap_mkdir(group_named(folder, dead, "-worker-0x", other), 0755) == 0);
    struct leat_cpusets *cpusets = create(LEAT_CPUSETS_AUTO);
    EXPECT(access(of_dead, F_OK) != 0 && access(of_zombie, F_OK) != 0);
    EXPECT(access(busy, F_OK) == 0 && access(of_living, F_OK) == 0 && access(other, F_OK) == 0);
    EXPECT(groups_in(folder) == WORKERS);
    leat_cpusets_destroy(cpusets);
    EXPECT(groups_in(folder) == 0 && access(of_living, F_OK) == 0);
    write_text(busy, threads_file(busy), "");
    leat_cpusets_destroy(create(LEAT_CPUSETS_OFF)); /* touches nothing */
    EXPECT(access(busy, F_OK) == 0);
    EXPECT(waitpid(zombie, NULL, 0) == zombie);
    fake_root_fini(&root);
}

/* cpuset is disabled again by the last one that has groups there, killed or not, if it was a daemon that enabled it. */
static void
test_enabling(void)
{
    char mark[512], of_other[512];
    struct leat_cpusets *cpusets;

    make_machine("cpuset\n");
    fake_root_write(&root, V2 "/cgroup.subtree_control", "pids cpuset\n");
    cpusets = create(LEAT_CPUSETS_V2);
    expect_enabled(true, false);
    leat_cpusets_destroy(cpusets);
    expect_enabled(true, false);

    (void)snprintf(mark, sizeof(mark), "%s" V2 "/leat-cpuset", root.path); /* one was killed, another lives */
    EXPECT(__wrap_mkdir(mark, 0755) == 0);
    EXPECT(__wrap_mkdir(group_named(V2, getppid(), "-worker-0", of_other), 0755) == 0);
    cpusets = create(LEAT_CPUSETS_V2);
    leat_cpusets_destroy(cpusets);
    expect_enabled(true, true);
    EXPECT(__wrap_rmdir(of_other) == 0);
    fake_root_write(&root, "/run/systemd/system/keep", ""); /* the next one may not have groups there */
    cpusets = create(LEAT_CPUSETS_AUTO);
    EXPECT(leat_cpusets_kind(cpusets) == LEAT_CPUSETS_V1);
    expect_enabled(false, false);
    leat_cpusets_destroy(cpusets);

    cpusets = create(LEAT_CPUSETS_V2);
    expect_enabled(true, true);
    fault.at = V2 "/cgroup.subtree_control"; /* what cannot be done is left to the next one */
    fault.error = EBUSY;
    leat_cpusets_destroy(cpusets);
    EXPECT(fault.at == NULL && groups_in(V2) == 0);
    expect_enabled(true, true);
    leat_cpusets_destroy(create(LEAT_CPUSETS_V2));
    expect_enabled(false, false);
    fake_root_fini(&root);
}

/* A thread that cannot enter: auto goes back to affinity, all threads home; who demanded it hears why. */
static void
test_entering(enum leat_cpusets_kind kind, const char *folder, const char *file)
{
    const char *what = kind == LEAT_CPUSETS_V2 ? "cpuset\n" : "\n";
    char path[512];

    for (uint32_t demanded = 0; demanded < 2; demanded++) {
        make_machine(what);
        struct leat_cpusets *cpusets = create(demanded ? kind : LEAT_CPUSETS_AUTO);
        EXPECT(leat_cpusets_kind(cpusets) == kind);
        EXPECT(enter(cpusets, 0) == LEAT_OK);
        EXPECT(leat_cpusets_set(cpusets, 0, cpus, 2) == LEAT_OK);
        (void)snprintf(path, sizeof(path), "worker-1/%s", file);
        fault.at = path;
        fault.error = EACCES;
        fault.after = 1;
        EXPECT(enter(cpusets, 1) == LEAT_ERR_SYS && strstr(leat_error_text(), strerror(EACCES)) != NULL);
        EXPECT(leat_cpusets_give_up(cpusets) == !demanded);
        if (demanded) {
            end_threads(folder);
        } else {
            EXPECT(leat_cpusets_kind(cpusets) == LEAT_CPUSETS_OFF && groups_in(folder) == 0);
            expect_reason(cpusets, strerror(EACCES));
            EXPECT(strncmp(leat_cpusets_reason(cpusets), "not v2: ", 8) == 0);
            expect_home(folder, true);
            expect_enabled(false, false);
            EXPECT(is_pinned(threads[0], cpus[0]) && is_pinned(threads[1], cpus[1]) && is_pinned(threads[2], cpus[0]));
            EXPECT(leat_cpusets_set(cpusets, 0, cpus, 1) == LEAT_OK);
        }
        leat_cpusets_destroy(cpusets);
        EXPECT(groups_in(folder) == 0);
        fake_root_fini(&root);
    }
}

/* What the kernel refuses changes nothing. */
static void
test_refused_cpus(void)
{
    const uint32_t beyond[] = {cpus[0], LEAT_CPU_MAX - 1};

    make_machine("cpuset\n");
    struct leat_cpusets *cpusets = create(LEAT_CPUSETS_V2);
    EXPECT(enter(cpusets, 0) == LEAT_OK && enter(cpusets, 1) == LEAT_OK);
    EXPECT(leat_cpusets_set(cpusets, 0, cpus, 2) == LEAT_OK);
    fault.at = "worker-0/cpuset.cpus";
    fault.error = EACCES;
    EXPECT(leat_cpusets_set(cpusets, 0, cpus, 1) == LEAT_ERR_SYS &&
           strstr(leat_error_text(), "worker 0: cannot write") != NULL);
    expect_group(cpusets, V2, 0, 2);
    EXPECT(leat_cpusets_set(cpusets, 0, beyond, 2) == LEAT_ERR_SYS && strstr(leat_error_text(), "cannot pin") != NULL);
    expect_group(cpusets, V2, 0, 2);
    EXPECT(leat_cpusets_set(cpusets, 0, cpus, 1) == LEAT_OK);
    expect_group(cpusets, V2, 0, 1);
    leat_cpusets_destroy(cpusets); /* threads that never leave: it ends all the same, and who comes next removes them */
    EXPECT(groups_in(V2) == WORKERS);
    for (uint32_t w = 0; w < WORKERS; w++) {
        char path[512];
        write_text(group_of(V2, w, path), "cgroup.threads", "");
    }
    leat_cpusets_destroy(create(LEAT_CPUSETS_AUTO));
    EXPECT(groups_in(V2) == 0);
    fake_root_fini(&root);
}

/* ---- Threads ---------------------------------------------------------------------------------------- */

static sem_t started, stop;

static void *
sleep_in_team(void *argument)
{
    *(pid_t *)argument = gettid();
    EXPECT(sem_post(&started) == 0);
    while (sem_wait(&stop) != 0) {
        EXPECT(errno == EINTR);
    }
    return NULL;
}

int
main(void)
{
    pthread_t handles[THREADS];
    cpu_set_t allowed;
    uint32_t count = 0;

    leat_test_init();
    EXPECT(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
    for (uint32_t cpu = 0; cpu < LEAT_CPU_MAX && count < TEAM; cpu++) {
        if (CPU_ISSET((size_t)cpu, &allowed)) {
            cpus[count++] = cpu;
        }
    }
    if (count < TEAM) {
        (void)printf("needs %d CPUs, and may use %u\n", TEAM, count);
        return LEAT_TEST_SKIP;
    }
    EXPECT(sem_init(&started, 0, 0) == 0 && sem_init(&stop, 0, 0) == 0);
    for (uint32_t t = 0; t < THREADS; t++) {
        EXPECT(pthread_create(&handles[t], NULL, sleep_in_team, &threads[t]) == 0 && sem_wait(&started) == 0);
    }
    test_kinds();
    test_none();
    test_obstacles();
    test_delegation();
    test_left_over(V2, "cpuset\n");
    test_left_over(V1, "\n");
    test_enabling();
    test_entering(LEAT_CPUSETS_V2, V2, "cgroup.threads");
    test_entering(LEAT_CPUSETS_V1, V1, "tasks");
    test_refused_cpus();
    for (uint32_t t = 0; t < THREADS; t++) {
        EXPECT(sem_post(&stop) == 0);
    }
    for (uint32_t t = 0; t < THREADS; t++) {
        EXPECT(pthread_join(handles[t], NULL) == 0);
    }
    return 0;
}
