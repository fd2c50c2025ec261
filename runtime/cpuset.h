/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/cpuset.h - control groups that hold the threads of each worker to its CPUs, v2 and v1.
 *
 * Role       Beside the affinity of each thread the kernel knows then which CPUs a worker has, and so does whoever
 *            looks: there is a group for each, with the worker's threads and its CPUs and nothing else. Of v2 they are
 *            threaded groups with the controller cpuset, below the daemon's own group, which the daemon enables it for;
 *            of v1 groups below the daemon's own in the hierarchy cpuset. Where neither can be had there are none, and
 *            affinity alone does it.
 * Lifecycle  create -> enter of each worker -> set, as its CPUs change -> its threads end -> destroy. Groups are named
 *            by the process, so those that a killed one left are found and removed by the next. What the daemon enabled for
 *            children of its group of v2 it disables at the end, unless another has groups there: who is the last does. An
 *            empty group, leat-cpuset, says that it was one of them. They lock its folder meanwhile, so nobody makes groups
 *            while another disables. One set of groups a process.
 * Threads    One caller at a time, any thread. set writes a line of text and waits for the kernel: some ten
 *            microseconds, but it can be milliseconds.
 * Kernel     Before Linux 6.2 a thread's own affinity is forgotten whenever CPUs of its group change. So they are pinned
 *            anew each time; between the two a thread may run on any CPU of its worker. Where those of a group above
 *            change, or a CPU goes offline, runtime/daemon_cpus.c finds it.
 * Failure    Texts name the file. LEAT_ERR_UNSUPPORTED where the machine or the configuration does not allow it.
 */
#ifndef LEAT_RUNTIME_CPUSET_H
#define LEAT_RUNTIME_CPUSET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

/* What the configuration asks for, and what there is: auto is no answer. */
enum leat_cpusets_kind { LEAT_CPUSETS_AUTO, LEAT_CPUSETS_V2, LEAT_CPUSETS_V1, LEAT_CPUSETS_OFF };

struct leat_cpusets;

struct leat_cpusets_options {
    const char *root; /* put before every path; NULL: none */
    /*
     * auto: v2 where it was delegated to the daemon, else v1, else none. A group that its owner can write to was, unless
     * systemd runs the machine and has not marked it so.
     */
    enum leat_cpusets_kind wanted;
    uint32_t worker_count;
};

/* Makes the groups, still without threads. Fails where a kind is demanded that cannot be had. */
LEAT_MUST_CHECK enum leat_status leat_cpusets_create(const struct leat_cpusets_options *options,
                                                     struct leat_cpusets **ret_cpusets);
/* Removes the groups, whose threads were joined. Accepts NULL. */
void leat_cpusets_destroy(struct leat_cpusets *cpusets);

/* For NULL: off. */
enum leat_cpusets_kind leat_cpusets_kind(const struct leat_cpusets *cpusets);
/* "cgroup v2", "cgroup v1" or "affinity". */
const char *leat_cpusets_name(const struct leat_cpusets *cpusets);
/* Where they are, and why they are not of a better kind; "" for NULL. Lives as long as they do. */
const char *leat_cpusets_reason(const struct leat_cpusets *cpusets);
/* The worker's group, a folder; "" where there are none. */
const char *leat_cpusets_path(const struct leat_cpusets *cpusets, uint32_t worker);

/*
 * The worker's threads, of this process, move into its group: the first `cpu_count` run on a CPU each, the others, which
 * sleep, on the first one. Nothing where there are no groups.
 */
LEAT_MUST_CHECK enum leat_status leat_cpusets_enter(struct leat_cpusets *cpusets, uint32_t worker, const pid_t *threads,
                                                    uint32_t thread_count, const uint32_t *cpus, uint32_t cpu_count);
/* Other CPUs for it, at least one. On failure it has what it had. Nothing where there are no groups, or it has these. */
LEAT_MUST_CHECK enum leat_status leat_cpusets_set(struct leat_cpusets *cpusets, uint32_t worker, const uint32_t *cpus,
                                                  uint32_t cpu_count);

/*
 * After a failure of enter, whose text becomes the reason: all threads go back to the daemon's own group, with the affinity
 * that they had, and there are no groups any more. False where the configuration demanded them.
 */
LEAT_MUST_CHECK bool leat_cpusets_give_up(struct leat_cpusets *cpusets);

#endif /* LEAT_RUNTIME_CPUSET_H */
