/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096
#define LINE_BYTES 8192

/* One hierarchy that this process is in. */
struct hierarchy {
    bool mounted;
    char group[PATH_BYTES];      /* from /proc/self/cgroup: "/a/b" */
    char mount_root[PATH_BYTES]; /* the group that is visible at the mount point */
    char mount_point[PATH_BYTES];
};

static bool
has_word(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length) {
        const bool starts = at == list || at[-1] == ',';
        if (starts && (at[length] == '\0' || at[length] == ',')) {
            return true;
        }
    }
    return false;
}

static FILE *
open_under(const char *root, const char *path)
{
    char full[PATH_BYTES * 2];
    const int used = snprintf(full, sizeof(full), "%s%s", root, path);
    return used > 0 && (size_t)used < sizeof(full) ? fopen(full, "re") : NULL;
}

static void
copy_text(char *to, size_t bytes, const char *from)
{
    (void)snprintf(to, bytes, "%s", from);
}

/* Lines are "number:controllers:path"; v2's is "0::path". `controller` NULL means v2. */
static bool
find_group(const char *root, const char *controller, struct hierarchy *hierarchy)
{
    char line[LINE_BYTES];
    bool found = false;
    FILE *file = open_under(root, "/proc/self/cgroup");

    if (file == NULL) {
        return false;
    }
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (path == NULL) {
            continue;
        }
        *path++ = '\0';
        controllers++;
        if (controller == NULL ? *controllers == '\0' : has_word(controllers, controller)) {
            copy_text(hierarchy->group, sizeof(hierarchy->group), path);
            found = true;
        }
    }
    (void)fclose(file);
    return found;
}

/* mountinfo: id parent major:minor root mount_point options [tags] - type source super_options */
static bool
find_mount(const char *root, const char *controller, struct hierarchy *hierarchy)
{
    char line[LINE_BYTES];
    bool found = false;
    FILE *file = open_under(root, "/proc/self/mountinfo");

    if (file == NULL) {
        return false;
    }
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        char mount_root[PATH_BYTES], mount_point[PATH_BYTES], type[64], super_options[LINE_BYTES];
        const char *tail = strstr(line, " - ");
        if (tail == NULL ||
            sscanf(line, "%*s %*s %*s %4095s %4095s", mount_root, mount_point) != 2 ||
            sscanf(tail, " - %63s %*s %8191s", type, super_options) != 2) {
            continue;
        }
        const bool matches = controller == NULL
                                 ? strcmp(type, "cgroup2") == 0
                                 : strcmp(type, "cgroup") == 0 && has_word(super_options, controller);
        if (matches) {
            copy_text(hierarchy->mount_root, sizeof(hierarchy->mount_root), mount_root);
            copy_text(hierarchy->mount_point, sizeof(hierarchy->mount_point), mount_point);
            found = true;
        }
    }
    (void)fclose(file);
    return found;
}

/* Makes `group` relative to the mount point: without the part that the mount hides. "" is the mount itself. */
static void
make_relative(struct hierarchy *hierarchy)
{
    const size_t root_length = strlen(hierarchy->mount_root);
    char *group = hierarchy->group;

    if (strcmp(hierarchy->mount_root, "/") != 0) {
        if (strncmp(group, hierarchy->mount_root, root_length) == 0 &&
            (group[root_length] == '/' || group[root_length] == '\0')) {
            memmove(group, group + root_length, strlen(group + root_length) + 1);
        } else {
            *group = '\0'; /* a container sees its own group at the mount point */
        }
    }
    if (strstr(group, "/..") != NULL) {
        *group = '\0'; /* outside our cgroup namespace: only the mount itself is visible */
    }
    for (size_t length = strlen(group); length > 0 && group[length - 1] == '/'; length--) {
        group[length - 1] = '\0';
    }
}

static bool
open_hierarchy(const char *root, const char *controller, struct hierarchy *hierarchy)
{
    *hierarchy = (struct hierarchy){0};
    hierarchy->mounted =
        find_group(root, controller, hierarchy) && find_mount(root, controller, hierarchy);
    if (hierarchy->mounted) {
        make_relative(hierarchy);
    }
    return hierarchy->mounted;
}

/* Reads one line of `name` in the group; false when there is none. `path` becomes the file's, without root. */
static bool
read_line(const char *root, const struct hierarchy *hierarchy, const char *group, const char *name,
          char *path, size_t path_bytes, char *line, size_t line_bytes)
{
    const int used = snprintf(path, path_bytes, "%s%s/%s", hierarchy->mount_point, group, name);
    if (used < 0 || (size_t)used >= path_bytes) {
        return false;
    }
    FILE *file = open_under(root, path);
    if (file == NULL) {
        return false;
    }
    const bool read = fgets(line, (int)line_bytes, file) != NULL;
    (void)fclose(file);
    if (read) {
        line[strcspn(line, "\n")] = '\0';
    }
    return read;
}

/* 1/1000 CPU; 0 for no quota. */
static uint32_t
quota_of(const char *root, const struct hierarchy *hierarchy, const char *group, bool v2,
         char *path, size_t path_bytes)
{
    char line[128], period_path[PATH_BYTES * 2];
    long long quota = 0, period = 0;

    if (v2) {
        if (!read_line(root, hierarchy, group, "cpu.max", path, path_bytes, line, sizeof(line)) ||
            sscanf(line, "%lld %lld", &quota, &period) != 2) { /* "max 100000" stops at "max" */
            return 0;
        }
    } else {
        if (!read_line(root, hierarchy, group, "cpu.cfs_quota_us", path, path_bytes, line,
                       sizeof(line)) ||
            sscanf(line, "%lld", &quota) != 1 ||
            !read_line(root, hierarchy, group, "cpu.cfs_period_us", period_path,
                       sizeof(period_path), line, sizeof(line)) ||
            sscanf(line, "%lld", &period) != 1) {
            return 0;
        }
    }
    if (quota <= 0 || period <= 0 || quota > INT64_MAX / 1000) {
        return 0; /* v1 writes -1 for none */
    }
    const long long milli = quota * 1000 / period;
    return milli < 1 ? 1 : milli > 1000000000 ? 0 : (uint32_t)milli;
}

/* Calls for the own group, its parent, ... and the mount itself. */
static void
walk_quota(const char *root, const struct hierarchy *hierarchy, bool v2,
           struct leat_cgroup_cpu *limits)
{
    char group[PATH_BYTES], path[PATH_BYTES * 2];

    copy_text(group, sizeof(group), hierarchy->group);
    for (;;) {
        const uint32_t milli = quota_of(root, hierarchy, group, v2, path, sizeof(path));
        if (milli != 0 && (limits->quota_milli == 0 || milli < limits->quota_milli)) {
            limits->quota_milli = milli;
            copy_text(limits->quota_file, sizeof(limits->quota_file), path);
        }
        char *last = strrchr(group, '/');
        if (last == NULL) {
            return;
        }
        *last = '\0';
    }
}

static bool
walk_cpuset(const char *root, const struct hierarchy *hierarchy, const char *const *names,
            struct leat_cgroup_cpu *limits)
{
    char group[PATH_BYTES], path[PATH_BYTES * 2], line[LEAT_CGROUP_LIST_BYTES];

    copy_text(group, sizeof(group), hierarchy->group);
    for (;;) {
        for (size_t i = 0; names[i] != NULL; i++) {
            if (read_line(root, hierarchy, group, names[i], path, sizeof(path), line, sizeof(line)) &&
                line[0] != '\0') {
                copy_text(limits->cpuset, sizeof(limits->cpuset), line);
                return true;
            }
        }
        char *last = strrchr(group, '/');
        if (last == NULL) {
            return false;
        }
        *last = '\0';
    }
}

void
leat_cgroup_cpu_read(const char *root, struct leat_cgroup_cpu *ret_limits)
{
    static const char *const v2_names[] = {"cpuset.cpus.effective", NULL};
    static const char *const v1_names[] = {"cpuset.effective_cpus", "cpuset.cpus", NULL};
    struct hierarchy hierarchy;

    root = root == NULL ? "" : root;
    *ret_limits = (struct leat_cgroup_cpu){0};
    if (open_hierarchy(root, NULL, &hierarchy)) {
        walk_quota(root, &hierarchy, true, ret_limits);
        (void)walk_cpuset(root, &hierarchy, v2_names, ret_limits);
    }
    if (open_hierarchy(root, "cpu", &hierarchy)) {
        walk_quota(root, &hierarchy, false, ret_limits);
    }
    if (ret_limits->cpuset[0] == '\0' && open_hierarchy(root, "cpuset", &hierarchy)) {
        (void)walk_cpuset(root, &hierarchy, v1_names, ret_limits);
    }
}

/* The lowest limit in `name` from the own group up to the mount. */
static uint64_t
walk_memory(const char *root, const struct hierarchy *hierarchy, const char *name)
{
    char group[PATH_BYTES], path[PATH_BYTES * 2], line[128];
    uint64_t lowest = UINT64_MAX;

    copy_text(group, sizeof(group), hierarchy->group);
    for (;;) {
        unsigned long long bytes = 0;
        if (read_line(root, hierarchy, group, name, path, sizeof(path), line, sizeof(line)) &&
            sscanf(line, "%llu", &bytes) == 1 && bytes < lowest) { /* v2 writes "max" for none, v1 nearly 2^63 */
            lowest = bytes;
        }
        char *last = strrchr(group, '/');
        if (last == NULL) {
            return lowest;
        }
        *last = '\0';
    }
}

uint64_t
leat_cgroup_memory(const char *root)
{
    struct hierarchy hierarchy;
    uint64_t lowest = UINT64_MAX;

    root = root == NULL ? "" : root;
    if (open_hierarchy(root, NULL, &hierarchy)) {
        lowest = walk_memory(root, &hierarchy, "memory.max");
    }
    if (open_hierarchy(root, "memory", &hierarchy)) {
        const uint64_t bytes = walk_memory(root, &hierarchy, "memory.limit_in_bytes");
        lowest = bytes < lowest ? bytes : lowest;
    }
    return lowest;
}

bool
leat_cgroup_folder(const char *root, const char *controller, char *path, size_t bytes)
{
    struct hierarchy hierarchy;

    root = root == NULL ? "" : root;
    if (!open_hierarchy(root, controller, &hierarchy)) {
        return false;
    }
    const int used = snprintf(path, bytes, "%s%s%s", root, hierarchy.mount_point, hierarchy.group);
    return used > 0 && (size_t)used < bytes;
}
