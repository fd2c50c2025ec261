/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpuset.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/team.h"
#include "runtime/cgroup.h"
#include "runtime/log.h"
#include "runtime/topology.h"

#define PATH_BYTES   4096
#define REASON_BYTES 2048
/* A thread that was joined may be in its group for a moment longer, and v1 tells nobody when it is not any more. */
#define LEAVE_TRIES    1000
#define LEAVE_PAUSE_NS 1000000
/* An empty group beside the others: it was leat that enabled cpuset there. Kept as long as that is, by the kernel. */
#define MARK "leat-cpuset"

struct group {
    char *path;
    pid_t threads[LEAT_TEAM_MAX];
    uint32_t cpus[LEAT_TEAM_MAX];
    uint32_t thread_count, cpu_count; /* 0: nobody has entered */
};

struct leat_cpusets {
    enum leat_cpusets_kind wanted, kind;
    char folder[PATH_BYTES];                /* the daemon's own group */
    char why_not[REASON_BYTES];             /* of a better kind */
    char reason[REASON_BYTES + PATH_BYTES]; /* with it */
    uint32_t count;
    struct group groups[]; /* [count] */
};

/* ---- Files ---------------------------------------------------------------------------------------- */

/* False with errno. */
static bool
path_in(const char *folder, const char *name, char path[PATH_BYTES])
{
    const int used = snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    errno = ENAMETOOLONG;
    return used > 0 && used < PATH_BYTES;
}

/* -1 with errno. */
static int
open_in(const char *folder, const char *name, int flags)
{
    char path[PATH_BYTES];
    return path_in(folder, name, path) ? open(path, flags | O_CLOEXEC) : -1;
}

/* False with errno. */
static bool
put_in(const char *folder, const char *name, const char *text)
{
    const ssize_t bytes = (ssize_t)strlen(text);

    const int fd = open_in(folder, name, O_WRONLY);
    const bool good = fd >= 0 && write(fd, text, (size_t)bytes) == bytes; /* the kernel takes all of it or none */
    const int error = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    errno = error;
    return good;
}

static enum leat_status
write_in(const char *folder, const char *name, const char *text)
{
    return put_in(folder, name, text) ? LEAT_OK : LEAT_FAIL(LEAT_ERR_SYS, "cannot write '%s' to %s/%s", text, folder, name);
}

/* The file's only line, which may be empty. */
static enum leat_status
read_in(const char *folder, const char *name, char *text, size_t bytes)
{
    const int fd = open_in(folder, name, O_RDONLY);
    const ssize_t got = fd >= 0 ? read(fd, text, bytes - 1) : -1;
    const enum leat_status status = got >= 0 ? LEAT_OK : LEAT_FAIL(LEAT_ERR_SYS, "cannot read %s/%s", folder, name);

    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (fd >= 0) {
        (void)close(fd);
    }
    return status;
}

static bool
has_word(const char *list, const char *word)
{
    const size_t length = strlen(word);

    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length) {
        if ((at == list || at[-1] == ' ') && (at[length] == '\0' || at[length] == ' ')) {
            return true;
        }
    }
    return false;
}

/* ---- What others left ------------------------------------------------------------------------------- */

/* The process that a group is named by; 0: it is none of ours. */
static pid_t
owner_of(const char *name)
{
    int pid = 0, end = 0;
    unsigned worker;

    return sscanf(name, "leat-%9d-worker-%9u%n", &pid, &worker, &end) == 2 && name[end] == '\0' && pid > 0 ? (pid_t)pid : 0;
}

/* A process that has ended, though nobody may have asked how yet. */
static bool
has_ended(pid_t pid)
{
    char path[64], state = '?';

    if (kill(pid, 0) != 0 && errno == ESRCH) {
        return true;
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        (void)fscanf(file, "%*d (%*[^)]) %c", &state);
        (void)fclose(file);
    }
    return state == 'Z' || state == 'X';
}

/*
 * Those of daemons that are gone, and of an earlier one with our number. What lives is left alone: it may be about to enter
 * its groups. A group with threads cannot be removed, whoever tries.
 */
static void
remove_left_over(const char *folder)
{
    char path[PATH_BYTES];
    uint32_t removed = 0;
    DIR *entries = opendir(folder);
    const struct dirent *entry;

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        const pid_t owner = owner_of(entry->d_name);
        const bool gone = owner != 0 && (owner == getpid() || has_ended(owner));
        removed += gone && path_in(folder, entry->d_name, path) && rmdir(path) == 0;
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    if (removed > 0) {
        leat_log(LEAT_LOG_INFO, "removed %u control groups in %s that a daemon left", removed, folder);
    }
}

/* Threads that were joined are on their way out. */
static void
remove_group(const char *path)
{
    const struct timespec pause = {.tv_nsec = LEAVE_PAUSE_NS};

    for (uint32_t tries = 0; rmdir(path) != 0; tries++) {
        if (errno != EBUSY || tries == LEAVE_TRIES) {
            leat_log(LEAT_LOG_WARNING, "cannot remove the control group %s (%s): the next daemon will try again", path,
                     strerror(errno));
            return;
        }
        (void)nanosleep(&pause, NULL);
    }
}

/* ---- cpuset for children of a group of v2 ------------------------------------------------------------- */

static bool
has_groups(const char *folder)
{
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    bool found = false;

    while (entries != NULL && !found && (entry = readdir(entries)) != NULL) {
        found = owner_of(entry->d_name) != 0;
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    return found;
}

/* Only one daemon at a time enables, makes its first groups there, or disables. -1, or what is to be closed. */
static int
lock_folder(const char *folder)
{
    const struct timespec pause = {.tv_nsec = LEAVE_PAUSE_NS};
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (uint32_t tries = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        const int error = errno;
        if ((error != EWOULDBLOCK && error != EINTR) || tries == LEAVE_TRIES) { /* whoever can read it can lock it */
            (void)close(fd);
            errno = error;
            return -1;
        }
        (void)nanosleep(&pause, NULL);
    }
    return fd;
}

/*
 * The mark is there only while what it stands for is: whoever is killed between the two leaves cpuset enabled, which harms
 * nobody, but no mark by which what an administrator enables later would be disabled.
 */
static enum leat_status
enable_cpuset(const char *folder)
{
    char path[PATH_BYTES], enabled[512];

    enum leat_status status = read_in(folder, "cgroup.subtree_control", enabled, sizeof(enabled));
    if (status != LEAT_OK || has_word(enabled, "cpuset")) {
        return status;
    }
    status = write_in(folder, "cgroup.subtree_control", "+cpuset"); /* allowed beside processes: it divides CPUs alone */
    if (status == LEAT_OK && (!path_in(folder, MARK, path) || (mkdir(path, 0755) != 0 && errno != EEXIST))) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot make the control group %s/" MARK, folder);
        (void)put_in(folder, "cgroup.subtree_control", "-cpuset");
    }
    return status;
}

/* Where a leat enabled it and none has groups any more. The folder is locked. */
static void
put_back_cpuset(const char *folder)
{
    char path[PATH_BYTES];

    if (!path_in(folder, MARK, path) || access(path, F_OK) != 0 || has_groups(folder)) {
        return;
    }
    if (rmdir(path) != 0) {
        leat_log(LEAT_LOG_WARNING, "cannot remove the control group %s (%s): the next daemon will try again", path,
                 strerror(errno));
    } else if (!put_in(folder, "cgroup.subtree_control", "-cpuset")) {
        leat_log(LEAT_LOG_WARNING,
                 "cannot write '-cpuset' to %s/cgroup.subtree_control (%s): the next daemon will try again", folder,
                 strerror(errno));
        (void)mkdir(path, 0755);
    }
}

static void
remove_groups(struct leat_cpusets *cpusets)
{
    for (uint32_t w = 0; w < cpusets->count; w++) {
        if (cpusets->groups[w].path != NULL) {
            remove_group(cpusets->groups[w].path);
            free(cpusets->groups[w].path);
        }
        cpusets->groups[w] = (struct group){0};
    }
    if (cpusets->kind == LEAT_CPUSETS_V2) {
        const int lock = lock_folder(cpusets->folder);
        if (lock >= 0) {
            put_back_cpuset(cpusets->folder);
            (void)close(lock);
        } else {
            leat_log(LEAT_LOG_WARNING, "cannot lock %s (%s): the next daemon will disable cpuset there", cpusets->folder,
                     strerror(errno));
        }
    }
}

/* ---- Finding out ------------------------------------------------------------------------------------- */

/* `prepare` makes a new group one that threads can enter. On failure there are none. */
static enum leat_status
make_groups(struct leat_cpusets *cpusets, enum leat_status (*prepare)(const char *path, const char *text), const char *text)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t w = 0; w < cpusets->count && status == LEAT_OK; w++) {
        struct group *group = &cpusets->groups[w];
        if (asprintf(&group->path, "%s/leat-%d-worker-%u", cpusets->folder, (int)getpid(), w) < 0) {
            group->path = NULL;
            status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the names of control groups");
        } else if (mkdir(group->path, 0755) != 0) {
            status = LEAT_FAIL(LEAT_ERR_SYS, "cannot make the control group %s", group->path);
            free(group->path); /* not ours to remove */
            group->path = NULL;
        } else {
            status = prepare(group->path, text);
        }
    }
    if (status != LEAT_OK) {
        remove_groups(cpusets);
    }
    return status;
}

/* systemd marks the groups that it leaves to others. */
static bool
is_delegated(const char *root, const char *folder)
{
    static const char *const marks[] = {"user.delegate", "trusted.delegate"};
    char path[PATH_BYTES], value;

    const int used = snprintf(path, sizeof(path), "%s/run/systemd/system", root);
    if (used < 0 || used >= PATH_BYTES || access(path, F_OK) != 0) {
        return true;
    }
    for (size_t m = 0; m < LEAT_COUNT_OF(marks); m++) {
        if (getxattr(folder, marks[m], &value, 1) == 1 && value == '1') {
            return true;
        }
    }
    return false;
}

static enum leat_status
prepare_v2(const char *path, const char *type)
{
    return write_in(path, "cgroup.type", type);
}

static enum leat_status
try_v2(struct leat_cpusets *cpusets, const char *root)
{
    char controllers[512];

    if (!leat_cgroup_folder(root, NULL, cpusets->folder, sizeof(cpusets->folder))) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "no cgroup v2 is mounted");
    }
    const int lock = lock_folder(cpusets->folder);
    if (lock < 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot lock %s", cpusets->folder);
    }
    remove_left_over(cpusets->folder);
    put_back_cpuset(cpusets->folder);
    enum leat_status status = read_in(cpusets->folder, "cgroup.controllers", controllers, sizeof(controllers));
    if (status == LEAT_OK && !has_word(controllers, "cpuset")) {
        status = LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                           "%s/cgroup.controllers has no cpuset: delegate it (Delegate=cpuset in a unit)", cpusets->folder);
    }
    if (status == LEAT_OK && cpusets->wanted == LEAT_CPUSETS_AUTO && !is_delegated(root, cpusets->folder)) {
        status = LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "%s was not delegated to the daemon (Delegate=cpuset in a unit)",
                           cpusets->folder);
    }
    if (status == LEAT_OK) {
        status = enable_cpuset(cpusets->folder);
    }
    status = status == LEAT_OK ? make_groups(cpusets, prepare_v2, "threaded") : status;
    if (status != LEAT_OK) {
        put_back_cpuset(cpusets->folder);
    }
    (void)close(lock);
    return status;
}

static enum leat_status
prepare_v1(const char *path, const char *mems)
{
    return write_in(path, "cpuset.mems", mems);
}

static enum leat_status
try_v1(struct leat_cpusets *cpusets, const char *root)
{
    char mems[LEAT_CGROUP_LIST_BYTES];

    if (!leat_cgroup_folder(root, "cpuset", cpusets->folder, sizeof(cpusets->folder))) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "no cpuset of cgroup v1 is mounted");
    }
    remove_left_over(cpusets->folder);
    /* All nodes, and not the worker's own: where memory lies is preferred, never bound (runtime/memory.h). */
    const enum leat_status status = read_in(cpusets->folder, "cpuset.mems", mems, sizeof(mems));
    return status == LEAT_OK ? make_groups(cpusets, prepare_v1, mems) : status;
}

static void
note_why_not(struct leat_cpusets *cpusets, enum leat_cpusets_kind kind, const char *text)
{
    const size_t used = strlen(cpusets->why_not);

    (void)snprintf(cpusets->why_not + used, sizeof(cpusets->why_not) - used, "%snot %s: %s", used > 0 ? "; " : "",
                   kind == LEAT_CPUSETS_V2 ? "v2" : "v1", text);
}

/* Where the groups are, then why they are not of a better kind. */
static void
give_reason(struct leat_cpusets *cpusets)
{
    const bool any = cpusets->kind != LEAT_CPUSETS_OFF;

    (void)snprintf(cpusets->reason, sizeof(cpusets->reason), "%s%s%s%s", any ? "in " : "", any ? cpusets->folder : "",
                   any && cpusets->why_not[0] != '\0' ? "; " : "", cpusets->why_not);
}

static enum leat_status
find_kind(struct leat_cpusets *cpusets, const char *root)
{
    static const struct {
        enum leat_cpusets_kind kind;
        enum leat_status (*try)(struct leat_cpusets *cpusets, const char *root);
    } kinds[] = {{LEAT_CPUSETS_V2, try_v2}, {LEAT_CPUSETS_V1, try_v1}};
    enum leat_status status = LEAT_OK;

    for (size_t k = 0; k < LEAT_COUNT_OF(kinds) && cpusets->kind == LEAT_CPUSETS_OFF; k++) {
        if (cpusets->wanted != kinds[k].kind && cpusets->wanted != LEAT_CPUSETS_AUTO) {
            note_why_not(cpusets, kinds[k].kind, "the configuration says so");
        } else if ((status = kinds[k].try(cpusets, root)) == LEAT_OK) {
            cpusets->kind = kinds[k].kind;
        } else {
            note_why_not(cpusets, kinds[k].kind, leat_error_text());
        }
    }
    give_reason(cpusets);
    return cpusets->wanted == LEAT_CPUSETS_AUTO ? LEAT_OK : status;
}

enum leat_status
leat_cpusets_create(const struct leat_cpusets_options *options, struct leat_cpusets **ret_cpusets)
{
    struct leat_cpusets *cpusets = calloc(1, sizeof(*cpusets) + options->worker_count * sizeof(cpusets->groups[0]));

    if (cpusets == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the control groups of workers");
    }
    cpusets->wanted = options->wanted;
    cpusets->kind = LEAT_CPUSETS_OFF;
    cpusets->count = options->worker_count;
    const enum leat_status status = find_kind(cpusets, options->root != NULL ? options->root : "");
    if (status != LEAT_OK) {
        free(cpusets);
        return leat_err_prefix(status, "cgroups: %s", options->wanted == LEAT_CPUSETS_V2 ? "v2" : "v1");
    }
    *ret_cpusets = cpusets;
    return LEAT_OK;
}

void
leat_cpusets_destroy(struct leat_cpusets *cpusets)
{
    if (cpusets != NULL) {
        remove_groups(cpusets);
        free(cpusets);
    }
}

enum leat_cpusets_kind
leat_cpusets_kind(const struct leat_cpusets *cpusets)
{
    return cpusets != NULL ? cpusets->kind : LEAT_CPUSETS_OFF;
}

const char *
leat_cpusets_name(const struct leat_cpusets *cpusets)
{
    switch (leat_cpusets_kind(cpusets)) {
    case LEAT_CPUSETS_V2: return "cgroup v2";
    case LEAT_CPUSETS_V1: return "cgroup v1";
    default: return "affinity";
    }
}

const char *
leat_cpusets_reason(const struct leat_cpusets *cpusets)
{
    return cpusets != NULL ? cpusets->reason : "";
}

const char *
leat_cpusets_path(const struct leat_cpusets *cpusets, uint32_t worker)
{
    LEAT_ASSERT(cpusets == NULL || worker < cpusets->count);
    return cpusets != NULL && cpusets->groups[worker].path != NULL ? cpusets->groups[worker].path : "";
}

/* ---- Threads and CPUs --------------------------------------------------------------------------------- */

static enum leat_status
move(const char *folder, enum leat_cpusets_kind kind, pid_t thread)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%d", (int)thread);
    return write_in(folder, kind == LEAT_CPUSETS_V2 ? "cgroup.threads" : "tasks", text);
}

static enum leat_status
pin(const struct group *group)
{
    for (uint32_t t = 0; t < group->thread_count; t++) {
        const uint32_t cpu = group->cpus[t < group->cpu_count ? t : 0];
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)cpu, &set);
        if (sched_setaffinity(group->threads[t], sizeof(set), &set) != 0) {
            return LEAT_FAIL(LEAT_ERR_SYS, "cannot pin a thread of %s to CPU %u", group->path, cpu);
        }
    }
    return LEAT_OK;
}

static enum leat_status
write_cpus(const struct group *group)
{
    char text[LEAT_CGROUP_LIST_BYTES];

    return write_in(group->path, "cpuset.cpus", leat_cpu_list_text(group->cpus, group->cpu_count, text, sizeof(text)));
}

static void
note_cpus(struct group *group, const uint32_t *cpus, uint32_t cpu_count)
{
    LEAT_ASSERT(cpu_count >= 1 && cpu_count <= LEAT_TEAM_MAX);
    memcpy(group->cpus, cpus, cpu_count * sizeof(cpus[0]));
    group->cpu_count = cpu_count;
}

enum leat_status
leat_cpusets_enter(struct leat_cpusets *cpusets, uint32_t worker, const pid_t *threads, uint32_t thread_count,
                   const uint32_t *cpus, uint32_t cpu_count)
{
    if (leat_cpusets_kind(cpusets) == LEAT_CPUSETS_OFF) {
        return LEAT_OK;
    }
    LEAT_ASSERT(worker < cpusets->count && thread_count >= 1 && thread_count <= LEAT_TEAM_MAX);
    struct group *group = &cpusets->groups[worker];
    note_cpus(group, cpus, cpu_count);
    enum leat_status status = write_cpus(group);
    while (group->thread_count < thread_count && status == LEAT_OK) {
        const pid_t thread = threads[group->thread_count];
        status = move(group->path, cpusets->kind, thread);
        if (status == LEAT_OK) {
            group->threads[group->thread_count++] = thread;
        }
    }
    return status == LEAT_OK ? pin(group) : status;
}

enum leat_status
leat_cpusets_set(struct leat_cpusets *cpusets, uint32_t worker, const uint32_t *cpus, uint32_t cpu_count)
{
    if (leat_cpusets_kind(cpusets) == LEAT_CPUSETS_OFF) {
        return LEAT_OK;
    }
    LEAT_ASSERT(worker < cpusets->count);
    struct group *group = &cpusets->groups[worker];
    uint32_t before[LEAT_TEAM_MAX];
    const uint32_t count_before = group->cpu_count;

    if (cpu_count == count_before && memcmp(group->cpus, cpus, cpu_count * sizeof(cpus[0])) == 0) {
        return LEAT_OK;
    }
    memcpy(before, group->cpus, count_before * sizeof(before[0]));
    note_cpus(group, cpus, cpu_count);
    enum leat_status status = write_cpus(group);
    const bool written = status == LEAT_OK;
    if (written) {
        status = pin(group);
    }
    if (status != LEAT_OK) {
        const enum leat_status why = leat_err_prefix(status, "worker %u", worker);
        note_cpus(group, before, count_before);
        if (written && (write_cpus(group) != LEAT_OK || pin(group) != LEAT_OK)) {
            leat_log(LEAT_LOG_WARNING, "%s", leat_error_text());
        }
        return why;
    }
    return LEAT_OK;
}

bool
leat_cpusets_give_up(struct leat_cpusets *cpusets)
{
    if (cpusets->wanted != LEAT_CPUSETS_AUTO) {
        return false;
    }
    note_why_not(cpusets, cpusets->kind, leat_error_text());
    for (uint32_t w = 0; w < cpusets->count; w++) {
        const struct group *group = &cpusets->groups[w];
        for (uint32_t t = 0; t < group->thread_count; t++) {
            if (move(cpusets->folder, cpusets->kind, group->threads[t]) != LEAT_OK) {
                leat_log(LEAT_LOG_WARNING, "a thread of a worker stays in its group: %s", leat_error_text());
            }
        }
        if (pin(group) != LEAT_OK) {
            leat_log(LEAT_LOG_WARNING, "%s", leat_error_text());
        }
    }
    remove_groups(cpusets);
    cpusets->kind = LEAT_CPUSETS_OFF;
    give_reason(cpusets);
    return true;
}
