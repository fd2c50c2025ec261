/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cores.h"

#include <stdlib.h>
#include <string.h>

/* A core that workers can be given, by one of its CPUs. In the order of the topology: what is near has near places. */
struct core {
    uint32_t cpu, node, l3, core, kind;
    uint32_t pool;  /* UINT32_MAX: nobody's */
    uint32_t users; /* threads of leat that run on it */
    uint32_t home;  /* the only worker that was placed on it; UINT32_MAX: there is none */
    bool left;      /* a worker was moved away from it, and nobody has had it since */
    bool gone;      /* threads cannot run there now */
};

struct holding {
    uint32_t *cpus;   /* [count], room for all cores there are */
    uint32_t *places; /* [count], of their cores */
    uint32_t count;
    uint32_t placed; /* of them, by the placement: others may have these too */
    uint32_t node, pool;
};

struct leat_cores {
    struct core *all;
    uint32_t count;
    struct holding *workers;
    uint32_t worker_count;
    uint32_t dispatcher; /* its core's place; UINT32_MAX: it has none of its own */
    uint32_t limit;      /* cores that the workers may use in all */
    uint32_t pool_count;
    uint32_t *most; /* [pool_count] of a pool that workers have or could have at first */
};

/* The place of the core that the CPU belongs to. */
static uint32_t
place_of(const struct leat_cores *cores, const struct leat_topology *topology, uint32_t cpu)
{
    uint32_t core = UINT32_MAX;

    for (uint32_t c = 0; c < topology->cpu_count; c++) {
        core = topology->cpus[c].cpu == cpu ? topology->cpus[c].core : core;
    }
    uint32_t place = UINT32_MAX;
    for (uint32_t c = 0; c < cores->count; c++) {
        if (cores->all[c].cpu == cpu) {
            return c;
        }
        place = cores->all[c].core == core ? c : place;
    }
    LEAT_ASSERT(place != UINT32_MAX); /* placements are made of allowed CPUs, and each core of these has one here */
    return place;
}

static uint32_t
used(const struct leat_cores *cores)
{
    uint32_t count = 0;
    for (uint32_t c = 0; c < cores->count; c++) {
        count += c != cores->dispatcher && cores->all[c].users > 0;
    }
    return count;
}

/* One CPU of each core, as placements choose them; each CPU where there is one core only. */
static void
list_cores(struct leat_cores *cores, const struct leat_topology *topology)
{
    for (uint32_t c = 0; c < topology->cpu_count; c++) {
        const struct leat_topology_cpu *cpu = &topology->cpus[c];
        if (cpu->allowed && (topology->allowed_cores < 2 || cpu->thread == 0)) {
            cores->all[cores->count++] = (struct core){.cpu = cpu->cpu,
                                                       .node = cpu->node,
                                                       .l3 = cpu->l3,
                                                       .core = cpu->core,
                                                       .home = UINT32_MAX,
                                                       .kind = cpu->kind};
        }
    }
}

static enum leat_status
enter(struct leat_cores *cores, const struct leat_topology *topology, const struct leat_worker_place *place,
      struct holding *holding)
{
    const size_t room = (size_t)cores->count + place->cpu_count;

    holding->cpus = calloc(room, sizeof(holding->cpus[0]));
    holding->places = calloc(room, sizeof(holding->places[0]));
    if (holding->cpus == NULL || holding->places == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the owner of cores");
    }
    memcpy(holding->cpus, place->cpus, place->cpu_count * sizeof(holding->cpus[0]));
    holding->count = holding->placed = place->cpu_count;
    holding->node = place->node;
    for (uint32_t i = 0; i < place->cpu_count; i++) {
        holding->places[i] = place_of(cores, topology, place->cpus[i]);
        struct core *core = &cores->all[holding->places[i]];
        core->cpu = core->users == 0 ? place->cpus[i] : core->cpu; /* another one of it may have been listed */
        core->home = core->users++ == 0 ? (uint32_t)(holding - cores->workers) : UINT32_MAX;
    }
    return LEAT_OK;
}

static bool
is_free(const struct core *core)
{
    return core->users == 0 && !core->gone;
}

/* How far a core is from another: those that share its L3 come first. */
static uint32_t
distance(const struct leat_cores *cores, uint32_t place, uint32_t other)
{
    const uint32_t apart = place > other ? place - other : other - place;
    return apart + (cores->all[place].l3 != cores->all[other].l3 ? cores->count : 0);
}

bool
leat_cores_near(const struct leat_cores *cores, uint32_t worker, uint32_t other)
{
    const struct holding *a = &cores->workers[worker], *b = &cores->workers[other];

    for (uint32_t i = 0; i < a->count; i++) {
        const struct core *core = &cores->all[a->places[i]];
        for (uint32_t k = 0; k < b->count; k++) {
            const struct core *beside = &cores->all[b->places[k]];
            if (core->l3 == beside->l3 || core->node == beside->node) {
                return true;
            }
        }
    }
    return false;
}

/* Each worker's: that of another of its node and class, or a new one. Where two share a core, it is of the first one's. */
static void
make_pools(struct leat_cores *cores, const struct leat_placement *placement)
{
    for (uint32_t w = 0; w < cores->worker_count; w++) {
        const char *name = placement->classes[placement->workers[w].worker_class].name;
        struct holding *holding = &cores->workers[w];
        holding->pool = cores->pool_count;
        for (uint32_t before = 0; before < w && holding->pool == cores->pool_count; before++) {
            const char *other = placement->classes[placement->workers[before].worker_class].name;
            if (cores->workers[before].node == holding->node && strcmp(other, name) == 0) {
                holding->pool = cores->workers[before].pool;
            }
        }
        cores->pool_count += holding->pool == cores->pool_count;
    }
}

/* That of the nearest core of its node that a worker was placed on, of its own kind if there is any. */
static uint32_t
find_pool(const struct leat_cores *cores, uint32_t place)
{
    uint32_t pool = UINT32_MAX, least = UINT32_MAX;

    for (uint32_t w = 0; w < cores->worker_count; w++) {
        const struct holding *holding = &cores->workers[w];
        for (uint32_t i = 0; i < holding->placed && holding->node == cores->all[place].node; i++) {
            const uint32_t other = holding->places[i];
            const bool alike = cores->all[other].kind == cores->all[place].kind;
            const uint32_t far = distance(cores, place, other) + (alike ? 0 : 2 * cores->count);
            if (far < least) {
                least = far;
                pool = holding->pool;
            }
        }
    }
    return pool;
}

enum leat_status
leat_cores_create(const struct leat_topology *topology, const struct leat_placement *placement, struct leat_cores **ret_cores)
{
    struct leat_cores *cores = calloc(1, sizeof(*cores));
    enum leat_status status = LEAT_OK;

    if (cores == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the owner of cores");
    }
    cores->all = calloc(topology->cpu_count, sizeof(cores->all[0]));
    cores->workers = calloc(placement->worker_count, sizeof(cores->workers[0]));
    if (cores->all == NULL || cores->workers == NULL) {
        leat_cores_destroy(cores);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the owner of cores");
    }
    list_cores(cores, topology);
    cores->dispatcher = UINT32_MAX;
    if (placement->dispatcher_cpu != LEAT_ANYWHERE) {
        cores->dispatcher = place_of(cores, topology, placement->dispatcher_cpu);
        cores->all[cores->dispatcher].cpu = placement->dispatcher_cpu;
        cores->all[cores->dispatcher].users++;
    }
    while (cores->worker_count < placement->worker_count && status == LEAT_OK) {
        const uint32_t w = cores->worker_count++;
        status = enter(cores, topology, &placement->workers[w], &cores->workers[w]);
    }
    if (status != LEAT_OK) {
        leat_cores_destroy(cores);
        return status;
    }
    make_pools(cores, placement);
    for (uint32_t c = 0; c < cores->count; c++) {
        cores->all[c].pool = find_pool(cores, c);
    }
    cores->limit = placement->worker_cores > used(cores) ? placement->worker_cores : used(cores);
    cores->most = calloc(cores->pool_count, sizeof(*cores->most));
    if (cores->most == NULL) {
        leat_cores_destroy(cores);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the cores of workers");
    }
    for (uint32_t p = 0; p < cores->pool_count; p++) {
        cores->most[p] = leat_cores_free_of(cores, p);
    }
    for (uint32_t c = 0; c < cores->count; c++) {
        if (cores->all[c].users > 0 && c != cores->dispatcher && cores->all[c].pool != UINT32_MAX) {
            cores->most[cores->all[c].pool]++;
        }
    }
    *ret_cores = cores;
    return LEAT_OK;
}

void
leat_cores_destroy(struct leat_cores *cores)
{
    if (cores == NULL) {
        return;
    }
    for (uint32_t w = 0; w < cores->worker_count; w++) {
        free(cores->workers[w].cpus);
        free(cores->workers[w].places);
    }
    free(cores->workers);
    free(cores->most);
    free(cores->all);
    free(cores);
}

uint32_t
leat_cores_of(const struct leat_cores *cores, uint32_t worker, const uint32_t **ret_cpus)
{
    LEAT_ASSERT(worker < cores->worker_count);
    *ret_cpus = cores->workers[worker].cpus;
    return cores->workers[worker].count;
}

uint32_t
leat_cores_node(const struct leat_cores *cores, uint32_t worker)
{
    LEAT_ASSERT(worker < cores->worker_count);
    return cores->workers[worker].node;
}

uint32_t
leat_cores_free(const struct leat_cores *cores, uint32_t node)
{
    const uint32_t most = cores->limit - used(cores);
    uint32_t count = 0;

    for (uint32_t c = 0; c < cores->count; c++) {
        count += is_free(&cores->all[c]) && cores->all[c].node == node;
    }
    return count < most ? count : most;
}

uint32_t
leat_cores_pool(const struct leat_cores *cores, uint32_t worker)
{
    LEAT_ASSERT(worker < cores->worker_count);
    return cores->workers[worker].pool;
}

uint32_t
leat_cores_pool_count(const struct leat_cores *cores)
{
    return cores->pool_count;
}

uint32_t
leat_cores_free_of(const struct leat_cores *cores, uint32_t pool)
{
    const uint32_t most = cores->limit - used(cores);
    uint32_t count = 0;

    for (uint32_t c = 0; c < cores->count; c++) {
        count += is_free(&cores->all[c]) && cores->all[c].pool == pool;
    }
    return count < most ? count : most;
}

uint32_t
leat_cores_free_pools(const struct leat_cores *cores)
{
    const uint32_t most = cores->limit - used(cores);
    uint32_t count = 0;

    for (uint32_t c = 0; c < cores->count; c++) {
        count += is_free(&cores->all[c]) && cores->all[c].pool != UINT32_MAX;
    }
    return count < most ? count : most;
}

uint32_t
leat_cores_free_cpus(const struct leat_cores *cores, uint32_t *cpus)
{
    uint32_t count = 0;

    for (uint32_t c = 0; c < cores->count; c++) {
        if (is_free(&cores->all[c])) {
            cpus[count++] = cores->all[c].cpu;
        }
    }
    return count;
}

uint32_t
leat_cores_free_home(const struct leat_cores *cores, uint32_t worker)
{
    uint32_t count = 0;

    LEAT_ASSERT(worker < cores->worker_count);
    for (uint32_t c = 0; c < cores->count; c++) {
        count += is_free(&cores->all[c]) && cores->all[c].home == worker;
    }
    return count;
}

bool
leat_cores_shared(const struct leat_cores *cores, uint32_t worker)
{
    LEAT_ASSERT(worker < cores->worker_count);
    const struct holding *holding = &cores->workers[worker];
    bool shared = false;

    for (uint32_t i = 0; i < holding->count; i++) {
        shared = shared || cores->all[holding->places[i]].users > 1 ||
                 cores->all[holding->places[i]].pool != holding->pool;
    }
    return shared;
}

enum leat_status
leat_cores_give(struct leat_cores *cores, uint32_t worker, bool home_first, uint32_t *ret_cpu)
{
    LEAT_ASSERT(worker < cores->worker_count);
    struct holding *holding = &cores->workers[worker];
    uint32_t nearest = UINT32_MAX, least = UINT32_MAX; /* to the first place, which stays what it was where it has no core */

    for (uint32_t c = 0; c < cores->count && used(cores) < cores->limit; c++) {
        const bool home = home_first && cores->all[c].home == worker; /* nearer than any other */
        const uint32_t far = distance(cores, c, holding->places[0]) + (home ? 0 : 2 * cores->count);
        if (is_free(&cores->all[c]) && cores->all[c].pool == holding->pool && far < least) {
            nearest = c;
            least = far;
        }
    }
    if (nearest == UINT32_MAX) {
        return LEAT_FAIL(LEAT_ERR_BUSY,
                         "no core of NUMA node %u and its class is free for worker %u",
                         holding->node, worker);
    }
    cores->all[nearest].users = 1;
    cores->all[nearest].left = false;
    holding->places[holding->count] = nearest;
    holding->cpus[holding->count++] = cores->all[nearest].cpu;
    *ret_cpu = cores->all[nearest].cpu;
    return LEAT_OK;
}

uint32_t
leat_cores_take_back(struct leat_cores *cores, uint32_t worker)
{
    LEAT_ASSERT(worker < cores->worker_count && cores->workers[worker].count > 0);
    struct holding *holding = &cores->workers[worker];
    struct core *core = &cores->all[holding->places[--holding->count]];

    LEAT_ASSERT(core->users > 0);
    core->users--;
    holding->placed = holding->placed < holding->count ? holding->placed : holding->count;
    return holding->cpus[holding->count];
}

/* By which cores are chosen for the worker to move to: no two have the same. */
static uint64_t
order_of(const struct leat_cores *cores, const struct holding *holding, uint32_t place)
{
    return (uint64_t)cores->all[place].left << 63 | (uint64_t)distance(cores, place, holding->places[0]) << 32 | place;
}

enum leat_status
leat_cores_choose_others(const struct leat_cores *cores, uint32_t worker, uint32_t *cpus)
{
    LEAT_ASSERT(worker < cores->worker_count);
    const struct holding *holding = &cores->workers[worker];
    uint64_t last = 0;

    if (leat_cores_shared(cores, worker)) {
        return LEAT_FAIL(LEAT_ERR_BUSY, "worker %u shares its cores", worker);
    }
    for (uint32_t i = 0; i < holding->count; i++) {
        uint64_t next = UINT64_MAX;
        for (uint32_t c = 0; c < cores->count; c++) {
            const uint64_t order = order_of(cores, holding, c);
            if (is_free(&cores->all[c]) && cores->all[c].pool == holding->pool && order < next &&
                (i == 0 || order > last)) {
                next = order;
            }
        }
        if (next == UINT64_MAX) {
            return LEAT_FAIL(LEAT_ERR_BUSY,
                             "fewer than %u cores of NUMA node %u and its class are free for "
                             "worker %u to move to",
                             holding->count, holding->node, worker);
        }
        cpus[i] = cores->all[next & UINT32_MAX].cpu;
        last = next;
    }
    return LEAT_OK;
}

void
leat_cores_move(struct leat_cores *cores, uint32_t worker, const uint32_t *cpus)
{
    LEAT_ASSERT(worker < cores->worker_count);
    struct holding *holding = &cores->workers[worker];

    for (uint32_t i = 0; i < holding->count; i++) {
        struct core *core = &cores->all[holding->places[i]];
        uint32_t c = 0;
        while (c < cores->count && cores->all[c].cpu != cpus[i]) {
            c++;
        }
        LEAT_ASSERT(c < cores->count && cores->all[c].users == 0 && core->users == 1);
        core->users = 0;
        core->left = true;
        cores->all[c].users = 1;
        cores->all[c].left = false;
        holding->places[i] = c;
        holding->cpus[i] = cpus[i];
    }
    holding->placed = 0;
}

void
leat_cores_swap(struct leat_cores *cores, uint32_t worker, uint32_t other)
{
    LEAT_ASSERT(worker < cores->worker_count && other < cores->worker_count && worker != other);
    struct holding *a = &cores->workers[worker], *b = &cores->workers[other];

    LEAT_ASSERT(a->count == b->count && a->pool == b->pool);
    LEAT_ASSERT(!leat_cores_shared(cores, worker) && !leat_cores_shared(cores, other));
    for (uint32_t i = 0; i < a->count; i++) {
        const uint32_t cpu = a->cpus[i], place = a->places[i];
        a->cpus[i] = b->cpus[i];
        a->places[i] = b->places[i];
        b->cpus[i] = cpu;
        b->places[i] = place;
    }
    a->placed = b->placed = 0;
}

/* ---- Cores that are gone ---------------------------------------------------------------------------- */

bool
leat_cores_note_present(struct leat_cores *cores, const bool *present)
{
    bool changed = false;

    for (uint32_t c = 0; c < cores->count; c++) {
        const bool gone = !present[cores->all[c].cpu];
        changed = changed || gone != cores->all[c].gone;
        cores->all[c].gone = gone;
    }
    return changed;
}

uint32_t
leat_cores_gone(const struct leat_cores *cores, uint32_t *cpus)
{
    uint32_t count = 0;

    for (uint32_t c = 0; c < cores->count; c++) {
        if (cores->all[c].gone) {
            cpus[count++] = cores->all[c].cpu;
        }
    }
    return count;
}

uint32_t
leat_cores_gone_of(const struct leat_cores *cores, uint32_t pool)
{
    LEAT_ASSERT(pool < cores->pool_count);
    uint32_t present = 0;

    for (uint32_t c = 0; c < cores->count; c++) {
        present += !cores->all[c].gone && cores->all[c].pool == pool && c != cores->dispatcher;
    }
    return cores->most[pool] > present ? cores->most[pool] - present : 0;
}

static uint32_t
list_of(const struct leat_cores *cores, uint32_t worker, bool gone, uint32_t *cpus)
{
    LEAT_ASSERT(worker < cores->worker_count);
    const struct holding *holding = &cores->workers[worker];
    uint32_t count = 0;

    for (uint32_t i = 0; i < holding->count; i++) {
        if (cores->all[holding->places[i]].gone == gone) {
            cpus[count++] = holding->cpus[i];
        }
    }
    return count;
}

uint32_t
leat_cores_present_of(const struct leat_cores *cores, uint32_t worker, uint32_t *cpus)
{
    return list_of(cores, worker, false, cpus);
}

uint32_t
leat_cores_gone_from(const struct leat_cores *cores, uint32_t worker, uint32_t *cpus)
{
    return list_of(cores, worker, true, cpus);
}

/* UINT32_MAX: none is free. */
static uint32_t
find_nearest(const struct leat_cores *cores, const struct holding *holding)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t c = 0; c < cores->count; c++) {
        const uint64_t order = order_of(cores, holding, c);
        if (is_free(&cores->all[c]) && cores->all[c].pool == holding->pool && order < least) {
            least = order;
        }
    }
    return (uint32_t)(least & UINT32_MAX);
}

static void
exchange(struct holding *holding, uint32_t i, uint32_t j)
{
    const uint32_t cpu = holding->cpus[i], place = holding->places[i];

    holding->cpus[i] = holding->cpus[j];
    holding->places[i] = holding->places[j];
    holding->cpus[j] = cpu;
    holding->places[j] = place;
}

bool
leat_cores_replace_gone(struct leat_cores *cores, uint32_t worker, bool others)
{
    LEAT_ASSERT(worker < cores->worker_count);
    struct holding *holding = &cores->workers[worker];
    uint32_t present = 0;
    bool changed = false;

    if (leat_cores_shared(cores, worker)) {
        return false;
    }
    for (uint32_t i = 0; i < holding->count; i++) {
        struct core *core = &cores->all[holding->places[i]];
        const uint32_t place = core->gone && others ? find_nearest(cores, holding) : UINT32_MAX;
        if (place != UINT32_MAX) {
            core->users = 0;
            cores->all[place].users = 1;
            cores->all[place].left = false;
            holding->places[i] = place;
            holding->cpus[i] = cores->all[place].cpu;
            changed = true;
        }
        if (!cores->all[holding->places[i]].gone) {
            changed = changed || present < i;
            exchange(holding, present++, i);
        }
    }
    holding->placed = changed ? 0 : holding->placed;
    return changed;
}

void
leat_cores_check(const struct leat_cores *cores)
{
    for (uint32_t c = 0; c < cores->count; c++) {
        uint32_t users = c == cores->dispatcher, given = 0;
        for (uint32_t w = 0; w < cores->worker_count; w++) {
            const struct holding *holding = &cores->workers[w];
            for (uint32_t i = 0; i < holding->count; i++) {
                users += holding->places[i] == c;
                given += holding->places[i] == c && i >= holding->placed;
                LEAT_ASSERT(holding->places[i] != c || i < holding->placed ||
                            cores->all[c].pool == holding->pool);
            }
        }
        LEAT_ASSERT(users == cores->all[c].users && given <= 1);
        LEAT_ASSERT(given == 0 || users == 1);
    }
    LEAT_ASSERT(used(cores) <= cores->limit);
}
