/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/cgroup.h - the limits that control groups put on this process, v1 and v2: CPUs and memory.
 *
 * Role   Finds the process's own groups in /proc/self/cgroup and their mounts in /proc/self/mountinfo, then
 *        walks from the own group up to the mount: the tightest quota on the way counts, the lowest
 *        memory limit, and the nearest group that has a cpuset. Groups are made in runtime/cpuset.h.
 * Trust  Kernel files; malformed ones read as "no limit".
 */
#ifndef LEAT_RUNTIME_CGROUP_H
#define LEAT_RUNTIME_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEAT_CGROUP_LIST_BYTES 4096u

struct leat_cgroup_cpu {
    uint32_t quota_milli; /* 1/1000 CPU, rounded down, at least 1; 0: no quota */
    char quota_file[512]; /* where it was found */
    char cpuset[LEAT_CGROUP_LIST_BYTES]; /* a CPU list; "": none */
};

/* `root` is put before every path; NULL or "" for none. Absent files are no limits, never errors. */
void leat_cgroup_cpu_read(const char *root, struct leat_cgroup_cpu *ret_limits);

/* Bytes that this process and its neighbours in the group may have; UINT64_MAX for no limit. `root` as above. */
uint64_t leat_cgroup_memory(const char *root);

/*
 * The folder of the own group, `root` in front: in the hierarchy of v1 that has the controller, or with NULL in that of v2.
 * False where none is mounted, or the path does not fit.
 */
bool leat_cgroup_folder(const char *root, const char *controller, char *path, size_t bytes);

#endif /* LEAT_RUNTIME_CGROUP_H */
