/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/placement.c - who gets which CPU; the faces are in runtime/topology.h. */
#include "runtime/topology.h"

#include <stdlib.h>
#include <string.h>

#define CLIENT_CORE_FROM 4u /* usable CPUs from which on one core is left to clients */

static const char default_class[] = "cpu";

/* A CPU that a thread of leat can be given: one per core where there are two cores or more. */
struct unit {
    const struct leat_topology_cpu *cpu;
    uint32_t users; /* threads of leat that have it */
};

struct maker {
    const struct leat_topology *topology;
    const struct leat_placement_request *request;
    struct leat_placement *placement;
    struct unit *units;
    uint32_t unit_count;
    uint32_t budget; /* units that leat and its clients should use in all */
    bool dispatcher_placed;
};

static const struct leat_topology_cpu *
find_cpu(const struct leat_topology *topology, uint32_t number)
{
    for (uint32_t i = 0; i < topology->cpu_count; i++) {
        if (topology->cpus[i].cpu == number) {
            return &topology->cpus[i];
        }
    }
    return NULL;
}

/* The unit on the CPU's core; NULL when that core has none. */
static struct unit *
unit_of(struct maker *maker, const struct leat_topology_cpu *cpu)
{
    struct unit *same_core = NULL;
    for (uint32_t i = 0; i < maker->unit_count; i++) {
        if (maker->units[i].cpu == cpu) {
            return &maker->units[i];
        }
        if (maker->units[i].cpu->core == cpu->core) {
            same_core = &maker->units[i];
        }
    }
    return same_core;
}

static enum leat_status
make_units(struct maker *maker)
{
    const struct leat_topology *topology = maker->topology;
    const bool by_core = topology->allowed_cores >= 2;

    maker->units = calloc(topology->cpu_count, sizeof(*maker->units));
    if (maker->units == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the placement");
    }
    for (uint32_t i = 0; i < topology->cpu_count; i++) {
        const struct leat_topology_cpu *cpu = &topology->cpus[i];
        if (cpu->allowed && (!by_core || cpu->thread == 0)) {
            maker->units[maker->unit_count++].cpu = cpu;
        }
    }
    LEAT_ASSERT(maker->unit_count >= 1);
    maker->budget = topology->usable_cpus < maker->unit_count ? topology->usable_cpus
                                                              : maker->unit_count;
    return LEAT_OK;
}

static const char *
class_name_of(const struct leat_worker_group *group)
{
    return group->class_name == NULL || group->class_name[0] == '\0' ? default_class
                                                                      : group->class_name;
}

static uint32_t
cores_max_of(const struct leat_worker_group *group)
{
    return group->cores_max == 0 || group->cores_max == LEAT_AUTO ? group->cores : group->cores_max;
}

static enum leat_status
find_class(struct leat_placement *placement, const struct leat_worker_group *group, uint32_t number,
           uint32_t cores, uint16_t *ret_class)
{
    const char *name = class_name_of(group);

    for (uint32_t c = 0; c < placement->class_count; c++) {
        if (strcmp(placement->classes[c].name, name) == 0 && placement->classes[c].cores == cores) {
            *ret_class = (uint16_t)c;
            return LEAT_OK;
        }
    }
    if (placement->class_count == LEAT_PLACEMENT_CLASSES_MAX) {
        return LEAT_FAIL(LEAT_ERR_CONFIG,
                         "workers[%u]: more than %u kinds of worker: each class and number of cores, and each size that "
                         "cores_max allows, is one",
                         number, LEAT_PLACEMENT_CLASSES_MAX);
    }
    struct leat_worker_class *class = &placement->classes[placement->class_count];
    (void)snprintf(class->name, sizeof(class->name), "%s", name);
    class->cores = cores;
    *ret_class = (uint16_t)placement->class_count++;
    return LEAT_OK;
}

/* Its own first, then those that its workers can become. */
static enum leat_status
find_classes(struct leat_placement *placement, const struct leat_worker_group *group, uint32_t number, uint16_t *ret_class)
{
    const uint32_t cores_max = cores_max_of(group);
    uint16_t ignored;

    enum leat_status status = find_class(placement, group, number, group->cores, ret_class);
    for (uint32_t cores = 1; cores_max > group->cores && cores < cores_max && status == LEAT_OK; cores *= 2) {
        status = find_class(placement, group, number, cores, &ignored);
    }
    return status == LEAT_OK ? find_class(placement, group, number, cores_max, &ignored) : status;
}

static bool
is_listed(const struct leat_worker_group *group)
{
    return group->cpus != NULL && group->cpus[0] != '\0';
}

static enum leat_status
add_worker(struct maker *maker, uint32_t number, const uint32_t *cpus, uint32_t node)
{
    const struct leat_worker_group *group = &maker->request->groups[number];
    struct leat_placement *placement = maker->placement;
    uint16_t worker_class = 0;

    if (placement->worker_count == LEAT_PLACEMENT_WORKERS_MAX) {
        return LEAT_FAIL(LEAT_ERR_CONFIG, "workers[%u]: more than %u workers in all", number,
                         LEAT_PLACEMENT_WORKERS_MAX);
    }
    const enum leat_status status = find_classes(placement, group, number, &worker_class);
    if (status != LEAT_OK) {
        return status;
    }
    uint32_t *copy = calloc(group->cores, sizeof(*copy));
    if (copy == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the placement");
    }
    memcpy(copy, cpus, group->cores * sizeof(*copy));
    placement->workers[placement->worker_count++] =
        (struct leat_worker_place){.cpus = copy,
                                   .cpu_count = group->cores,
                                   .cores_max = cores_max_of(group),
                                   .node = node,
                                   .worker_class = worker_class,
                                   .listed = is_listed(group)};
    return LEAT_OK;
}

/* ---- Workers on CPUs that the configuration names ---------------------------------------------- */

static bool
is_taken(const struct maker *maker, uint32_t cpu)
{
    if (maker->dispatcher_placed && maker->placement->dispatcher_cpu == cpu) {
        return true;
    }
    for (uint32_t w = 0; w < maker->placement->worker_count; w++) {
        for (uint32_t i = 0; i < maker->placement->workers[w].cpu_count; i++) {
            if (maker->placement->workers[w].cpus[i] == cpu) {
                return true;
            }
        }
    }
    return false;
}

static enum leat_status
check_listed(struct maker *maker, uint32_t number, const uint32_t *cpus, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct leat_topology_cpu *cpu = find_cpu(maker->topology, cpus[i]);
        if (cpu == NULL || !cpu->allowed) {
            return LEAT_FAIL(LEAT_ERR_CONFIG, "workers[%u].cpus: CPU %u %s", number, cpus[i],
                             cpu == NULL ? "does not exist here"
                                         : "is outside the affinity mask or cpuset");
        }
        if (is_taken(maker, cpus[i])) {
            return LEAT_FAIL(LEAT_ERR_CONFIG, "workers[%u].cpus: CPU %u is given out already",
                             number, cpus[i]);
        }
    }
    return LEAT_OK;
}

static enum leat_status
place_listed(struct maker *maker, uint32_t number)
{
    const struct leat_worker_group *group = &maker->request->groups[number];
    uint32_t *cpus = calloc(LEAT_CPU_MAX, sizeof(*cpus));
    uint32_t count = 0;

    if (cpus == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the placement");
    }
    enum leat_status status = leat_cpu_list_parse(group->cpus, cpus, LEAT_CPU_MAX, &count);
    if (status != LEAT_OK) {
        status = leat_err_prefix(LEAT_ERR_CONFIG, "workers[%u].cpus", number);
        goto out;
    }
    status = check_listed(maker, number, cpus, count);
    if (status != LEAT_OK) {
        goto out;
    }
    const uint32_t room = count / group->cores;
    const uint32_t workers = group->count == LEAT_AUTO ? room : group->count;
    if (workers > room || workers == 0) {
        status = LEAT_FAIL(LEAT_ERR_CONFIG,
                           "workers[%u].cpus: %u CPUs are too few for %u workers of %u cores", number,
                           count, workers == 0 ? 1 : workers, group->cores);
        goto out;
    }
    for (uint32_t w = 0; w < workers && status == LEAT_OK; w++) {
        const uint32_t *own = &cpus[w * group->cores];
        const uint32_t node = find_cpu(maker->topology, own[0])->node;
        for (uint32_t i = 1; i < group->cores; i++) {
            if (find_cpu(maker->topology, own[i])->node != node) {
                status = LEAT_FAIL(LEAT_ERR_CONFIG,
                                   "workers[%u].cpus: CPUs %u and %u of one worker lie on NUMA nodes "
                                   "%u and %u; list a node's CPUs together",
                                   number, own[0], own[i], node,
                                   find_cpu(maker->topology, own[i])->node);
                goto out;
            }
        }
        for (uint32_t i = 0; i < group->cores; i++) {
            struct unit *unit = unit_of(maker, find_cpu(maker->topology, own[i]));
            if (unit != NULL) {
                unit->users++;
            }
        }
        status = add_worker(maker, number, own, node);
    }
    if (status == LEAT_OK && workers * group->cores < count) {
        leat_note(&maker->placement->notes, "cpus_unused",
                  "workers[%u].cpus lists %u CPUs, %u workers of %u cores use %u", number, count,
                  workers, group->cores, workers * group->cores);
    }

out:
    free(cpus);
    return status;
}

/* ---- Workers on CPUs that leat chooses --------------------------------------------------------- */

/* Gathers `cores` free units that share an L3 (or, if !same_l3, a node) with unit `first`. */
static bool
gather(const struct maker *maker, uint32_t first, uint32_t cores, bool same_l3, uint32_t *chosen)
{
    const struct leat_topology_cpu *like = maker->units[first].cpu;
    uint32_t count = 0;

    for (uint32_t i = first; i < maker->unit_count && count < cores; i++) {
        const struct unit *unit = &maker->units[i];
        if (unit->users == 0 && unit->cpu->node == like->node &&
            (!same_l3 || unit->cpu->l3 == like->l3)) {
            chosen[count++] = i;
        }
    }
    return count == cores;
}

/* Free units for one worker: inside one L3 where possible, always inside one node. */
static bool
pick(const struct maker *maker, uint32_t cores, uint32_t *chosen, bool *ret_spans)
{
    for (int same_l3 = 1; same_l3 >= 0; same_l3--) {
        for (uint32_t i = 0; i < maker->unit_count; i++) {
            if (maker->units[i].users == 0 && gather(maker, i, cores, same_l3 != 0, chosen)) {
                *ret_spans = same_l3 == 0;
                return true;
            }
        }
    }
    return false;
}

/* Units for one worker when none are free: in turn, sparing the dispatcher's where the node allows. */
static bool
pick_shared(const struct maker *maker, uint32_t turn, uint32_t cores, uint32_t *chosen)
{
    for (int spare = 1; spare >= 0; spare--) {
        for (uint32_t skip = 0; skip < maker->unit_count; skip++) {
            const uint32_t first = (uint32_t)(((uint64_t)turn * cores + skip) % maker->unit_count);
            const uint32_t node = maker->units[first].cpu->node;
            uint32_t count = 0;
            for (uint32_t n = 0; n < maker->unit_count && count < cores; n++) {
                const uint32_t i = (first + n) % maker->unit_count;
                const struct leat_topology_cpu *cpu = maker->units[i].cpu;
                if (cpu->node == node &&
                    !(spare && cpu->cpu == maker->placement->dispatcher_cpu)) {
                    chosen[count++] = i;
                }
            }
            if (count == cores) {
                return true;
            }
        }
    }
    return false;
}

static uint32_t
units_used(const struct maker *maker)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < maker->unit_count; i++) {
        used += maker->units[i].users > 0;
    }
    return used;
}

static enum leat_status
place_chosen(struct maker *maker, uint32_t number, const uint32_t *chosen)
{
    const uint32_t cores = maker->request->groups[number].cores;
    uint32_t *cpus = calloc(cores, sizeof(*cpus));

    if (cpus == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the placement");
    }
    for (uint32_t i = 0; i < cores; i++) {
        cpus[i] = maker->units[chosen[i]].cpu->cpu;
        maker->units[chosen[i]].users++;
    }
    const enum leat_status status =
        add_worker(maker, number, cpus, maker->units[chosen[0]].cpu->node);
    free(cpus);
    return status;
}

static enum leat_status
place_unlisted(struct maker *maker, uint32_t number)
{
    const struct leat_worker_group *group = &maker->request->groups[number];
    const bool automatic = group->count == LEAT_AUTO;
    const uint32_t for_clients = maker->budget >= CLIENT_CORE_FROM ? 1 : 0;
    uint32_t placed = 0, spanning = 0;
    uint32_t *chosen = calloc(maker->unit_count, sizeof(*chosen));
    enum leat_status status = LEAT_OK;

    if (chosen == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the placement");
    }
    while (status == LEAT_OK && (automatic || placed < group->count)) {
        const bool within_budget =
            units_used(maker) + group->cores + for_clients <= maker->budget;
        bool spans = false;
        bool found = group->cores <= maker->unit_count && (!automatic || within_budget) &&
                     maker->placement->worker_count < LEAT_PLACEMENT_WORKERS_MAX &&
                     pick(maker, group->cores, chosen, &spans);
        bool shared = false;
        if (!found) {
            if (automatic && (placed > 0 || maker->placement->worker_count > 0)) {
                break;
            }
            shared = group->cores <= maker->unit_count &&
                     pick_shared(maker, placed, group->cores, chosen);
            if (!shared) {
                status = LEAT_FAIL(LEAT_ERR_CONFIG,
                                   "workers[%u].cores: no NUMA node has %u usable cores (%u in all); "
                                   "lower it, or give the process more CPUs",
                                   number, group->cores, maker->unit_count);
                break;
            }
        }
        status = place_chosen(maker, number, chosen);
        placed++;
        spanning += spans;
        if (automatic && shared) {
            break;
        }
    }
    free(chosen);
    if (status != LEAT_OK) {
        return status;
    }
    if (automatic) {
        leat_note(&maker->placement->notes, "workers_auto",
                  "workers[%u]: count auto -> %u of %u %s%s", number, placed, group->cores,
                  group->cores == 1 ? "core" : "cores",
                  for_clients ? ", one core left to clients" : "");
    }
    if (spanning > 0) {
        leat_note(&maker->placement->notes, "l3_spanned",
                  "workers[%u]: %u of %u workers lie across L3 caches", number, spanning, placed);
    }
    return LEAT_OK;
}

/* ---- Dispatcher, clients, the whole ------------------------------------------------------------ */

static enum leat_status
place_dispatcher(struct maker *maker)
{
    const uint32_t wanted = maker->request->dispatcher_cpu;
    struct leat_placement *placement = maker->placement;
    struct unit *unit = NULL;

    if (wanted == LEAT_ANYWHERE) {
        placement->dispatcher_cpu = wanted;
        leat_note(&placement->notes, "dispatcher_anywhere",
                  "dispatcher has no core of its own and runs beside the workers; nothing spins by itself");
    } else if (wanted != LEAT_AUTO) {
        const struct leat_topology_cpu *cpu = find_cpu(maker->topology, wanted);
        if (cpu == NULL || !cpu->allowed) {
            return LEAT_FAIL(LEAT_ERR_CONFIG, "dispatcher.cpu: CPU %u %s", wanted,
                             cpu == NULL ? "does not exist here"
                                         : "is outside the affinity mask or cpuset");
        }
        placement->dispatcher_cpu = wanted;
        unit = unit_of(maker, cpu);
    } else {
        for (uint32_t i = 0; i < maker->unit_count && unit == NULL; i++) {
            unit = maker->units[i].users == 0 ? &maker->units[i] : NULL;
        }
        unit = unit == NULL ? &maker->units[0] : unit; /* the workers' lists name every core */
        placement->dispatcher_cpu = unit->cpu->cpu;
    }
    maker->dispatcher_placed = true;
    if (unit != NULL && unit->users++ > 0) {
        leat_note(&placement->notes, "dispatcher_shares",
                  "dispatcher shares the core of CPU %u with a worker", placement->dispatcher_cpu);
    }
    return LEAT_OK;
}

/* With `whole_cores`, CPUs whose core nobody has; else any CPU that nobody has. */
static void
collect_client_cpus(struct maker *maker, bool whole_cores)
{
    struct leat_placement *placement = maker->placement;

    for (uint32_t i = 0; i < maker->topology->cpu_count; i++) {
        const struct leat_topology_cpu *cpu = &maker->topology->cpus[i];
        bool taken = !cpu->allowed;
        for (uint32_t k = 0; k < maker->topology->cpu_count && !taken; k++) {
            const struct leat_topology_cpu *other = &maker->topology->cpus[k];
            if (other == cpu || (whole_cores && other->core == cpu->core)) {
                taken = is_taken(maker, other->cpu);
            }
        }
        if (!taken) {
            placement->client_cpus[placement->client_cpu_count++] = cpu->cpu;
        }
    }
}

/* Threads of leat that were given this CPU. */
static uint32_t
users_of(const struct leat_placement *placement, uint32_t cpu)
{
    uint32_t users = placement->dispatcher_cpu == cpu;
    for (uint32_t w = 0; w < placement->worker_count; w++) {
        for (uint32_t i = 0; i < placement->workers[w].cpu_count; i++) {
            users += placement->workers[w].cpus[i] == cpu;
        }
    }
    return users;
}

static void
mark_shared(struct leat_placement *placement)
{
    for (uint32_t w = 0; w < placement->worker_count; w++) {
        struct leat_worker_place *worker = &placement->workers[w];
        worker->shared = false;
        for (uint32_t i = 0; i < worker->cpu_count; i++) {
            worker->shared = worker->shared || users_of(placement, worker->cpus[i]) > 1;
        }
    }
}

static void
describe_clients(struct maker *maker)
{
    struct leat_placement *placement = maker->placement;
    uint32_t threads = 1, sharing = 0;

    mark_shared(placement);
    collect_client_cpus(maker, true);
    if (placement->client_cpu_count == 0) {
        collect_client_cpus(maker, false);
    }
    for (uint32_t w = 0; w < placement->worker_count; w++) {
        threads += placement->workers[w].cpu_count;
        sharing += placement->workers[w].shared;
    }
    if (sharing > 0) {
        leat_note(&placement->notes, "workers_share",
                  "%u of %u workers share CPUs with other threads of leat", sharing,
                  placement->worker_count);
    }
    const bool anywhere = placement->dispatcher_cpu == LEAT_ANYWHERE;
    placement->worker_cores = anywhere || maker->budget == 1 ? maker->budget : maker->budget - 1;
    placement->may_spin = !anywhere && sharing == 0 && threads + 1 <= maker->topology->usable_cpus;
    if (anywhere) {
        return;
    }
    if (maker->budget == 1) {
        leat_note(&placement->notes, "one_cpu",
                  "one usable CPU: dispatcher, workers and clients share it; nothing spins by itself");
    } else if (!placement->may_spin) {
        leat_note(&placement->notes, "clients_share",
                  "%u threads of leat on %u usable CPUs leave none to clients; nothing spins by itself", threads,
                  maker->topology->usable_cpus);
    }
}

/* Lists first, then the dispatcher, then fixed counts, then automatic ones: who can move makes way. */
static enum leat_status
place_all(struct maker *maker)
{
    const struct leat_placement_request *request = maker->request;
    enum leat_status status = LEAT_OK;

    if (request->dispatcher_cpu != LEAT_AUTO) {
        status = place_dispatcher(maker);
    }
    for (uint32_t pass = 0; pass < 3 && status == LEAT_OK; pass++) {
        if (pass == 1 && !maker->dispatcher_placed) {
            status = place_dispatcher(maker);
        }
        for (uint32_t g = 0; g < request->group_count && status == LEAT_OK; g++) {
            const struct leat_worker_group *group = &request->groups[g];
            const uint32_t turn = is_listed(group) ? 0 : group->count != LEAT_AUTO ? 1 : 2;
            if (group->cores == 0 || group->cores > LEAT_CPU_MAX) {
                return LEAT_FAIL(LEAT_ERR_CONFIG, "workers[%u].cores: must be 1..%u", g,
                                 LEAT_CPU_MAX);
            }
            if (cores_max_of(group) < group->cores) {
                return LEAT_FAIL(LEAT_ERR_CONFIG, "workers[%u].cores_max: %u is less than cores, %u", g,
                                 group->cores_max, group->cores);
            }
            if (turn == pass) {
                status = is_listed(group) ? place_listed(maker, g) : place_unlisted(maker, g);
            }
        }
    }
    if (status == LEAT_OK && maker->placement->worker_count == 0) {
        status = LEAT_FAIL(LEAT_ERR_CONFIG, "workers: at least one worker is needed");
    }
    return status;
}

uint32_t
leat_placement_first_classes(const struct leat_placement *placement)
{
    bool is_first[LEAT_PLACEMENT_CLASSES_MAX] = {false};
    uint32_t count = 0;

    for (uint32_t w = 0; w < placement->worker_count; w++) {
        count += !is_first[placement->workers[w].worker_class];
        is_first[placement->workers[w].worker_class] = true;
    }
    return count;
}

enum leat_status
leat_placement_make(const struct leat_topology *topology,
                    const struct leat_placement_request *request,
                    struct leat_placement **ret_placement)
{
    static const struct leat_worker_group default_group = {.count = LEAT_AUTO, .cores = 1};
    struct leat_placement_request whole = *request;
    struct maker maker = {.topology = topology, .request = &whole};
    enum leat_status status;

    if (whole.group_count == 0) {
        whole.groups = &default_group;
        whole.group_count = 1;
    }
    maker.placement = calloc(1, sizeof(*maker.placement));
    if (maker.placement == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the placement");
    }
    maker.placement->workers =
        calloc(LEAT_PLACEMENT_WORKERS_MAX, sizeof(*maker.placement->workers));
    maker.placement->client_cpus = calloc(topology->cpu_count, sizeof(uint32_t));
    if (maker.placement->workers == NULL || maker.placement->client_cpus == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the placement");
        goto out;
    }
    status = make_units(&maker);
    if (status == LEAT_OK) {
        status = place_all(&maker);
    }
    if (status == LEAT_OK) {
        describe_clients(&maker);
    }

out:
    free(maker.units);
    if (status != LEAT_OK) {
        leat_placement_destroy(maker.placement);
        return status;
    }
    *ret_placement = maker.placement;
    return LEAT_OK;
}

void
leat_placement_destroy(struct leat_placement *placement)
{
    if (placement == NULL) {
        return;
    }
    for (uint32_t w = 0; w < placement->worker_count; w++) {
        free(placement->workers[w].cpus);
    }
    free(placement->workers);
    free(placement->client_cpus);
    free(placement);
}
