/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/topology.h - which CPUs this process may use, and which thread gets which of them.
 *
 * Role       discover() reads the machine (hwloc) and what this process may use of it: affinity mask, cpuset
 *            and CPU quota, under cgroup v1 and v2. place() gives the dispatcher, the workers and the clients
 *            their CPUs. Each decision leaves a note with a stable name, printed at start and by `leat topology`.
 * Units      A *CPU* is what the kernel numbers (a hardware thread); a *core* is a physical core. leat places
 *            one thread per core as long as there are two cores, and leaves the siblings idle.
 * Ownership  Both structs are allocated whole and freed by their destroy().
 * Threads    Start-up and control threads; nothing is shared or changed afterwards.
 */
#ifndef LEAT_RUNTIME_TOPOLOGY_H
#define LEAT_RUNTIME_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

#define LEAT_CPU_MAX         4096u /* CPU numbers are below this */
#define LEAT_NOTE_TEXT_BYTES 192u
#define LEAT_NOTES_MAX       32u
#define LEAT_AUTO            UINT32_MAX
#define LEAT_ANYWHERE        (UINT32_MAX - 1) /* no core of its own: wherever the kernel lets a thread run */

/* One decision and its reason: {"cpu_quota", "cpu quota 2.5 -> 2 CPUs"}. */
struct leat_note {
    const char *name; /* constant; a stable key for scripts */
    char text[LEAT_NOTE_TEXT_BYTES];
};

struct leat_notes {
    struct leat_note items[LEAT_NOTES_MAX];
    uint32_t count; /* the last one says so when there was no room for more */
};

struct leat_topology_cpu {
    uint32_t cpu; /* the kernel's number */
    uint32_t package;
    uint32_t node; /* the kernel's NUMA node number */
    uint32_t l3;   /* counted from 0 over the box; CPUs that share one have the same */
    uint32_t core; /* counted from 0 over the box */
    uint32_t
        kind; /* of core, where they differ, as on hybrid CPUs; 0 where nothing is known of that */
    uint32_t thread; /* 0 for a core's first allowed hardware thread, then 1, ... */
    bool allowed;  /* by affinity mask and cpuset */
};

struct leat_topology {
    struct leat_topology_cpu *cpus; /* by package, node, L3, core, thread */
    uint32_t cpu_count, core_count, l3_count, node_count, package_count;
    uint32_t allowed_cpus, allowed_cores;
    uint32_t quota_milli; /* CPU quota in 1/1000 CPU; 0: none */
    uint32_t usable_cpus; /* min(allowed, floor of the quota but at least 1) */
    struct leat_notes notes;
};

/* Where to look; all NULL: this machine. */
struct leat_topology_source {
    const char *root;      /* put before /proc/self/... and every cgroup mount point */
    const char *synthetic; /* an hwloc synthetic description instead of the machine */
    const char *affinity;  /* a CPU list instead of the calling thread's mask */
};

LEAT_MUST_CHECK enum leat_status leat_topology_discover(const struct leat_topology_source *source,
                                                        struct leat_topology **ret_topology);
void leat_topology_destroy(struct leat_topology *topology); /* accepts NULL */

/*
 * Which CPUs the calling thread may run on now: online, of its group, and by its affinity. False where the kernel does not
 * say, as where it numbers more than LEAT_CPU_MAX.
 */
bool leat_topology_present(bool present[LEAT_CPU_MAX]);

/* One entry of the configuration's `workers`. */
struct leat_worker_group {
    uint32_t count;     /* LEAT_AUTO: as many as there are cores for */
    uint32_t cores;     /* of each worker, >= 1; what it starts with */
    uint32_t cores_max; /* that it can be given while it runs; 0 or LEAT_AUTO: cores */
    const char *cpus;   /* a CPU list to take them from; NULL or "": leat chooses */
    const char *class_name; /* NULL or "": "cpu" */
};

struct leat_placement_request {
    uint32_t dispatcher_cpu; /* LEAT_AUTO: leat chooses; LEAT_ANYWHERE: it takes no core from the workers */
    const struct leat_worker_group *groups;
    uint32_t group_count; /* 0: one group of defaults */
};

struct leat_worker_place {
    uint32_t *cpus; /* the leader's first */
    uint32_t cpu_count;
    uint32_t cores_max;    /* >= cpu_count */
    uint32_t node;
    uint16_t worker_class; /* index in placement->classes */
    bool listed;           /* from its group's list */
    bool shared;           /* another thread of leat was given one of these CPUs too */
};

struct leat_worker_class {
    char name[32];
    uint32_t cores;
};

#define LEAT_PLACEMENT_CLASSES_MAX 8u
#define LEAT_PLACEMENT_WORKERS_MAX 256u

struct leat_placement {
    uint32_t dispatcher_cpu; /* or LEAT_ANYWHERE */
    struct leat_worker_place *workers;
    uint32_t worker_count;
    /*
     * By (class name, cores). A worker that can have more cores than it starts with has one for each size that it can take:
     * those of its name with at most cores_max, of which there are 1, 2, 4, ... up to cores_max, and cores_max.
     */
    struct leat_worker_class classes[LEAT_PLACEMENT_CLASSES_MAX];
    uint32_t class_count;
    uint32_t *client_cpus; /* allowed CPUs of cores that leat leaves alone; failing that, siblings of its own */
    uint32_t client_cpu_count;
    uint32_t worker_cores; /* that workers can have to themselves: all that may be used but the dispatcher's; >= 1 */
    bool may_spin; /* a client can run while every thread of leat spins */
    struct leat_notes notes;
};

/* Classes that workers are of as they start. */
uint32_t leat_placement_first_classes(const struct leat_placement *placement);

/*
 * LEAT_ERR_CONFIG with a text that names the group (`workers[1]`) when the request asks for CPUs that are
 * not there. An explicit count beyond the cores is honoured by sharing, with a note.
 */
LEAT_MUST_CHECK enum leat_status leat_placement_make(const struct leat_topology *topology,
                                                     const struct leat_placement_request *request,
                                                     struct leat_placement **ret_placement);
void leat_placement_destroy(struct leat_placement *placement); /* accepts NULL */

/* For people. `placement` may be NULL. */
void leat_topology_print(const struct leat_topology *topology, const struct leat_placement *placement,
                         FILE *out);
/*
 * For programs: one object, the caller's; NULL when out of memory. Its key `text` holds what print()
 * prints. `placement` may be NULL.
 */
struct json_t *leat_topology_json(const struct leat_topology *topology, const struct leat_placement *placement);

/*
 * Reads "0-3,8" into numbers below LEAT_CPU_MAX, in the order given, at most `max` of them. An empty list, a
 * number given twice or a range that runs backwards is LEAT_ERR_INVALID.
 */
LEAT_MUST_CHECK enum leat_status leat_cpu_list_parse(const char *text, uint32_t *cpus, uint32_t max,
                                                     uint32_t *ret_count);
/* "0-3,8" of ascending or any numbers, cut with "..." where `bytes` end. Returns `text`. */
char *leat_cpu_list_text(const uint32_t *cpus, uint32_t count, char *text, size_t bytes);

/* Adds a note; the text is cut to fit. */
void leat_note(struct leat_notes *notes, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif /* LEAT_RUNTIME_TOPOLOGY_H */
