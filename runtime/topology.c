/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cgroup.h"

void
leat_note(struct leat_notes *notes, const char *name, const char *format, ...)
{
    va_list args;

    if (notes->count == LEAT_NOTES_MAX) {
        struct leat_note *last = &notes->items[LEAT_NOTES_MAX - 1];
        last->name = "more";
        (void)snprintf(last->text, sizeof(last->text), "and more decisions than fit here");
        return;
    }
    struct leat_note *note = &notes->items[notes->count++];
    note->name = name;
    va_start(args, format);
    (void)vsnprintf(note->text, sizeof(note->text), format, args);
    va_end(args);
}

/* One decimal number at *text, which moves behind it; false when there is none below LEAT_CPU_MAX. */
static bool
parse_number(const char **text, uint32_t *number)
{
    uint32_t value = 0;
    const char *at = *text;

    for (; *at >= '0' && *at <= '9'; at++) {
        value = value * 10 + (uint32_t)(*at - '0');
        if (value >= LEAT_CPU_MAX) {
            return false;
        }
    }
    if (at == *text) {
        return false;
    }
    *text = at;
    *number = value;
    return true;
}

enum leat_status
leat_cpu_list_parse(const char *text, uint32_t *cpus, uint32_t max, uint32_t *ret_count)
{
    unsigned char seen[LEAT_CPU_MAX / 8] = {0};
    const char *at = text;
    uint32_t count = 0;

    for (;;) {
        uint32_t first, last;
        if (!parse_number(&at, &first)) {
            return LEAT_FAIL(LEAT_ERR_INVALID,
                             "CPU list '%.64s': expected a number below %u at position %zu", text,
                             LEAT_CPU_MAX, (size_t)(at - text) + 1);
        }
        last = first;
        if (*at == '-') {
            at++;
            if (!parse_number(&at, &last) || last < first) {
                return LEAT_FAIL(LEAT_ERR_INVALID,
                                 "CPU list '%.64s': the range from %u has no valid end", text, first);
            }
        }
        for (uint32_t cpu = first; cpu <= last; cpu++) {
            if ((seen[cpu / 8] >> (cpu % 8) & 1) != 0) {
                return LEAT_FAIL(LEAT_ERR_INVALID, "CPU list '%.64s': CPU %u appears twice", text,
                                 cpu);
            }
            if (count == max) {
                return LEAT_FAIL(LEAT_ERR_INVALID, "CPU list '%.64s': more than %u CPUs", text, max);
            }
            seen[cpu / 8] |= (unsigned char)(1u << (cpu % 8));
            cpus[count++] = cpu;
        }
        if (*at == '\0') {
            *ret_count = count;
            return LEAT_OK;
        }
        if (*at != ',') {
            return LEAT_FAIL(LEAT_ERR_INVALID,
                             "CPU list '%.64s': expected ',' or '-' at position %zu", text,
                             (size_t)(at - text) + 1);
        }
        at++;
    }
}

char *
leat_cpu_list_text(const uint32_t *cpus, uint32_t count, char *text, size_t bytes)
{
    size_t used = 0;

    LEAT_ASSERT(bytes >= 8);
    text[0] = '\0';
    for (uint32_t i = 0; i < count;) {
        char part[32];
        uint32_t end = i;
        while (end + 1 < count && cpus[end + 1] == cpus[end] + 1) {
            end++;
        }
        const int length = end == i ? snprintf(part, sizeof(part), "%s%u", i ? "," : "", cpus[i])
                                    : snprintf(part, sizeof(part), "%s%u-%u", i ? "," : "", cpus[i],
                                               cpus[end]);
        LEAT_ASSERT(length > 0);
        if (used + (size_t)length + 4 > bytes) {
            memcpy(text + used, "...", 4);
            return text;
        }
        memcpy(text + used, part, (size_t)length + 1);
        used += (size_t)length;
        i = end + 1;
    }
    return text;
}

static enum leat_status
load_machine(const struct leat_topology_source *source, hwloc_topology_t *ret_machine)
{
    hwloc_topology_t machine;

    if (hwloc_topology_init(&machine) != 0) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "hwloc: no memory for a topology");
    }
    if (source->synthetic != NULL && hwloc_topology_set_synthetic(machine, source->synthetic) != 0) {
        hwloc_topology_destroy(machine);
        return LEAT_FAIL(LEAT_ERR_INVALID, "hwloc: '%s' describes no topology", source->synthetic);
    }
    if (hwloc_topology_load(machine) != 0) {
        hwloc_topology_destroy(machine);
        return LEAT_FAIL(LEAT_ERR_SYS, "hwloc cannot read the machine's topology");
    }
    *ret_machine = machine;
    return LEAT_OK;
}

/* Ancestor's logical index, or `otherwise` where the machine does not tell. */
static uint32_t
ancestor_index(hwloc_topology_t machine, hwloc_obj_type_t type, hwloc_obj_t pu, uint32_t otherwise)
{
    const hwloc_obj_t found = hwloc_get_ancestor_obj_by_type(machine, type, pu);
    return found != NULL ? found->logical_index : otherwise;
}

static uint32_t
node_of(hwloc_topology_t machine, hwloc_obj_t pu)
{
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        if (node->cpuset != NULL && hwloc_bitmap_isset(node->cpuset, pu->os_index)) {
            return node->os_index;
        }
    }
    return 0;
}

/* Fills cpus[], in hwloc's logical order: neighbours in the tree are neighbours in the list. */
static void
list_cpus(hwloc_topology_t machine, struct leat_topology *topology, hwloc_const_bitmap_t allowed)
{
    hwloc_obj_t pu = NULL;
    uint32_t last_core = UINT32_MAX, thread = 0;
    uint32_t max_l3 = 0;

    while ((pu = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_PU, pu)) != NULL &&
           topology->cpu_count < LEAT_CPU_MAX) {
        struct leat_topology_cpu *cpu = &topology->cpus[topology->cpu_count++];
        cpu->cpu = pu->os_index;
        cpu->package = ancestor_index(machine, HWLOC_OBJ_PACKAGE, pu, 0);
        cpu->node = node_of(machine, pu);
        cpu->l3 = ancestor_index(machine, HWLOC_OBJ_L3CACHE, pu, cpu->node);
        cpu->core = ancestor_index(machine, HWLOC_OBJ_CORE, pu, pu->logical_index);
        const int kind = hwloc_cpukinds_get_by_cpuset(machine, pu->cpuset, 0);
        cpu->kind = kind > 0 ? (uint32_t)kind : 0;
        cpu->allowed = cpu->cpu < LEAT_CPU_MAX && hwloc_bitmap_isset(allowed, pu->os_index) != 0;
        if (cpu->core != last_core) {
            last_core = cpu->core;
            thread = 0;
            topology->core_count++;
        }
        /* Forbidden threads number behind allowed ones never matter; count allowed ones from 0. */
        cpu->thread = thread;
        if (cpu->allowed) {
            topology->allowed_cpus++;
            topology->allowed_cores += thread == 0;
            thread++;
        }
        max_l3 = cpu->l3 > max_l3 ? cpu->l3 : max_l3;
    }
    const int packages = hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_PACKAGE);
    const int nodes = hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_NUMANODE);
    topology->package_count = packages > 0 ? (uint32_t)packages : 1;
    topology->node_count = nodes > 0 ? (uint32_t)nodes : 1;
    topology->l3_count = max_l3 + 1;
}

/* Removes what is not in a CPU list from `allowed`, and says so. */
static enum leat_status
restrict_to(const char *list, const char *name, hwloc_bitmap_t allowed, struct leat_notes *notes)
{
    const int before = hwloc_bitmap_weight(allowed);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();

    if (set == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a CPU set");
    }
    if (hwloc_bitmap_list_sscanf(set, list) == 0) {
        hwloc_bitmap_and(allowed, allowed, set);
        if (hwloc_bitmap_weight(allowed) != before) {
            leat_note(notes, name, "%s allows CPUs %.120s: %d of %d", name, list,
                      hwloc_bitmap_weight(allowed), before);
        }
    }
    hwloc_bitmap_free(set);
    return LEAT_OK;
}

static enum leat_status
restrict_to_mask(hwloc_topology_t machine, hwloc_bitmap_t allowed, struct leat_notes *notes)
{
    char *list = NULL;
    hwloc_bitmap_t set = hwloc_bitmap_alloc();

    if (set == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a CPU set");
    }
    enum leat_status status = LEAT_OK;
    if (hwloc_get_cpubind(machine, set, HWLOC_CPUBIND_THREAD) == 0 &&
        hwloc_bitmap_list_asprintf(&list, set) >= 0) {
        status = restrict_to(list, "affinity", allowed, notes);
        free(list);
    }
    hwloc_bitmap_free(set);
    return status;
}

static void
apply_quota(struct leat_topology *topology, const struct leat_cgroup_cpu *limits)
{
    topology->usable_cpus = topology->allowed_cpus;
    topology->quota_milli = limits->quota_milli;
    if (limits->quota_milli == 0) {
        return;
    }
    const uint32_t whole = limits->quota_milli / 1000 > 0 ? limits->quota_milli / 1000 : 1;
    if (whole < topology->usable_cpus) {
        topology->usable_cpus = whole;
        leat_note(&topology->notes, "cpu_quota", "cpu quota %g -> %u %s (%.100s)",
                  limits->quota_milli / 1000.0, whole, whole == 1 ? "CPU" : "CPUs",
                  limits->quota_file);
    }
}

enum leat_status
leat_topology_discover(const struct leat_topology_source *source, struct leat_topology **ret_topology)
{
    static const struct leat_topology_source this_machine = {0};
    hwloc_topology_t machine = NULL;
    enum leat_status status;
    struct leat_cgroup_cpu limits;

    source = source == NULL ? &this_machine : source;
    status = load_machine(source, &machine);
    if (status != LEAT_OK) {
        return status;
    }
    struct leat_topology *topology = calloc(1, sizeof(*topology));
    hwloc_bitmap_t allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(machine));
    const int pus = hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_PU);
    if (topology == NULL || allowed == NULL || pus <= 0 ||
        (topology->cpus = calloc((size_t)pus, sizeof(*topology->cpus))) == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the topology");
        goto out;
    }
    leat_cgroup_cpu_read(source->root, &limits);
    if (source->affinity != NULL) {
        status = restrict_to(source->affinity, "affinity", allowed, &topology->notes);
    } else if (source->synthetic == NULL) {
        status = restrict_to_mask(machine, allowed, &topology->notes);
    }
    if (status == LEAT_OK && limits.cpuset[0] != '\0') {
        status = restrict_to(limits.cpuset, "cpuset", allowed, &topology->notes);
    }
    if (status != LEAT_OK) {
        goto out;
    }
    list_cpus(machine, topology, allowed);
    if (topology->allowed_cpus == 0) {
        status = LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                           "affinity mask and cpuset leave no CPU; check taskset and cpuset.cpus");
        goto out;
    }
    apply_quota(topology, &limits);
    if (topology->cpu_count > topology->core_count) {
        leat_note(&topology->notes, "smt", "%u CPUs are hardware threads of %u cores",
                  topology->cpu_count, topology->core_count);
    }

out:
    hwloc_bitmap_free(allowed);
    hwloc_topology_destroy(machine);
    if (status != LEAT_OK) {
        leat_topology_destroy(topology);
        return status;
    }
    *ret_topology = topology;
    return LEAT_OK;
}

void
leat_topology_destroy(struct leat_topology *topology)
{
    if (topology != NULL) {
        free(topology->cpus);
        free(topology);
    }
}

bool
leat_topology_present(bool present[LEAT_CPU_MAX])
{
    cpu_set_t sets[LEAT_CPU_MAX / CPU_SETSIZE];

    memset(sets, 0, sizeof(sets));
    if (sched_getaffinity(0, sizeof(sets), sets) != 0) {
        return false;
    }
    for (uint32_t cpu = 0; cpu < LEAT_CPU_MAX; cpu++) {
        present[cpu] = CPU_ISSET_S(cpu, sizeof(sets), sets);
    }
    return true;
}
