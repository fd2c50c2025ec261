/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The owner of cores gives no core twice, none of another node, none beyond the quota, the nearest first, and gets
 *          back exactly what it gave, the last core of a worker too: it refuses only where nothing is left.
 * Method   Examples on synthetic machines for the order, then random machines, placements and sequences against a
 *          model of who has what that shares no code with the owner.
 */
#include "runtime/cores.h"

#include <string.h>

#include "base/align.h"
#include "tests/leat_test.h"
#include "tests/runtime/fake_root.h"

enum { STEPS = 2000, MACHINES = 200, WORKERS_MAX = 16 };

struct machine {
    struct leat_topology *topology;
    struct leat_placement *placement;
    struct leat_cores *cores;
};

static void
make_from(struct machine *machine, const struct leat_topology_source *source, const struct leat_worker_group *groups, uint32_t count)
{
    const struct leat_placement_request request = {.dispatcher_cpu = LEAT_AUTO, .groups = groups, .group_count = count};

    EXPECT(leat_topology_discover(source, &machine->topology) == LEAT_OK);
    EXPECT(leat_placement_make(machine->topology, &request, &machine->placement) == LEAT_OK);
    EXPECT(leat_cores_create(machine->topology, machine->placement, &machine->cores) == LEAT_OK);
}

static void
make(struct machine *machine, const char *synthetic, const char *affinity, const struct leat_worker_group *groups, uint32_t count)
{
    const struct leat_topology_source source = {.root = "/nonexistent", .synthetic = synthetic, .affinity = affinity};
    make_from(machine, &source, groups, count);
}

static void
destroy(struct machine *machine)
{
    leat_cores_destroy(machine->cores);
    leat_placement_destroy(machine->placement);
    leat_topology_destroy(machine->topology);
}

static const struct leat_topology_cpu *
cpu_of(const struct machine *machine, uint32_t number)
{
    for (uint32_t i = 0; i < machine->topology->cpu_count; i++) {
        if (machine->topology->cpus[i].cpu == number) {
            return &machine->topology->cpus[i];
        }
    }
    EXPECT(!"the CPU exists");
    return NULL;
}

/* All cores are the workers' where the dispatcher has none. */
static void
test_dispatcher_without_a_core(void)
{
    static const struct leat_worker_group group = {.count = 1, .cores = 1, .cores_max = 2};
    const struct leat_topology_source source = {.root = "/nonexistent", .synthetic = "core:2 pu:1", .affinity = "0-1"};
    struct leat_placement_request request = {.dispatcher_cpu = LEAT_ANYWHERE, .groups = &group, .group_count = 1};
    struct machine machine;
    uint32_t cpu;

    EXPECT(leat_topology_discover(&source, &machine.topology) == LEAT_OK);
    EXPECT(leat_placement_make(machine.topology, &request, &machine.placement) == LEAT_OK);
    EXPECT(leat_cores_create(machine.topology, machine.placement, &machine.cores) == LEAT_OK);
    EXPECT(leat_cores_free(machine.cores, 0) == 1 && leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_OK && cpu == 1);
    EXPECT(leat_cores_free(machine.cores, 0) == 0 && leat_cores_give(machine.cores, 0, false, &cpu) != LEAT_OK);
    destroy(&machine);
}

/* Its L3 first, then what else the node has, never the other node; then back in the opposite order. */
static void
test_order(void)
{
    static const struct leat_worker_group groups[] = {{.count = 1, .cores = 2, .cpus = "4,5"}, {.count = 1, .cores = 1, .cpus = "6"}};
    static const uint32_t expected[] = {7, 3, 2, 1}; /* 0 is the dispatcher's; 8-15 lie on the other node */
    const uint32_t *cpus;
    struct machine machine;
    uint32_t cpu;

    make(&machine, "numa:2 l3:2 core:4 pu:1", "0-15", groups, 2);
    EXPECT(machine.placement->dispatcher_cpu == 0);
    EXPECT(leat_cores_free(machine.cores, 0) == 4 && leat_cores_free(machine.cores, 1) == 8);
    for (uint32_t i = 0; i < LEAT_COUNT_OF(expected); i++) {
        EXPECT(leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_OK && cpu == expected[i]);
        leat_cores_check(machine.cores);
    }
    EXPECT(leat_cores_of(machine.cores, 0, &cpus) == 6 && cpus[0] == 4 && cpus[1] == 5 && cpus[2] == 7 && cpus[5] == 1);
    EXPECT(leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_ERR_BUSY && strstr(leat_error_text(), "node 0") != NULL);
    EXPECT(leat_cores_give(machine.cores, 1, false, &cpu) == LEAT_ERR_BUSY);
    EXPECT(leat_cores_take_back(machine.cores, 0) == 1 && leat_cores_take_back(machine.cores, 0) == 2);
    EXPECT(leat_cores_give(machine.cores, 1, false, &cpu) == LEAT_OK && cpu == 2); /* the nearer of 1 and 2 */
    leat_cores_check(machine.cores);
    destroy(&machine);
}

/* One that gave back all finds the nearest to where its leader was; another may have that by then. */
static void
test_parked(void)
{
    static const struct leat_worker_group groups[] = {{.count = 1, .cores = 2, .cpus = "4,5"}, {.count = 1, .cores = 1, .cpus = "6"}};
    const uint32_t *cpus;
    struct machine machine;
    uint32_t cpu;

    make(&machine, "numa:2 l3:2 core:4 pu:1", "0-15", groups, 2);
    EXPECT(leat_cores_take_back(machine.cores, 0) == 5 && leat_cores_take_back(machine.cores, 0) == 4);
    EXPECT(leat_cores_of(machine.cores, 0, &cpus) == 0 && leat_cores_free(machine.cores, 0) == 6);
    leat_cores_check(machine.cores);
    EXPECT(leat_cores_give(machine.cores, 1, false, &cpu) == LEAT_OK && cpu == 5);
    EXPECT(leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_OK && cpu == 4);
    EXPECT(leat_cores_take_back(machine.cores, 0) == 4);
    EXPECT(leat_cores_give(machine.cores, 1, false, &cpu) == LEAT_OK && cpu == 7);
    EXPECT(leat_cores_give(machine.cores, 1, false, &cpu) == LEAT_OK && cpu == 4);
    EXPECT(leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_OK && cpu == 3);
    EXPECT(!leat_cores_shared(machine.cores, 0) && !leat_cores_shared(machine.cores, 1));
    leat_cores_check(machine.cores);
    destroy(&machine);
}

/* Others, the nearest first, those that somebody left last; whoever shares stays. */
static void
test_moved(void)
{
    static const struct leat_worker_group groups[] = {{.count = 1, .cores = 2, .cpus = "4,5"}, {.count = 1, .cores = 2, .cpus = "6,7"}};
    static const struct leat_worker_group shared[] = {{.count = 3, .cores = 1}};
    uint32_t cpus[2], cpu;
    const uint32_t *own;
    struct machine machine;

    make(&machine, "numa:2 l3:2 core:4 pu:1", "0-15", groups, 2);
    EXPECT(leat_cores_choose_others(machine.cores, 0, cpus) == LEAT_OK && cpus[0] == 3 && cpus[1] == 2);
    leat_cores_move(machine.cores, 0, cpus);
    leat_cores_check(machine.cores);
    EXPECT(leat_cores_of(machine.cores, 0, &own) == 2 && own[0] == 3 && own[1] == 2 && leat_cores_free(machine.cores, 0) == 3);
    EXPECT(leat_cores_choose_others(machine.cores, 0, cpus) == LEAT_OK && cpus[0] == 1 && cpus[1] == 4);
    leat_cores_swap(machine.cores, 0, 1);
    leat_cores_check(machine.cores);
    EXPECT(leat_cores_of(machine.cores, 0, &own) == 2 && own[0] == 6 && own[1] == 7);
    EXPECT(leat_cores_of(machine.cores, 1, &own) == 2 && own[0] == 3 && own[1] == 2);
    EXPECT(leat_cores_choose_others(machine.cores, 0, cpus) == LEAT_OK && cpus[0] == 1 && cpus[1] == 5); /* 5 is nearer */
    EXPECT(leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_OK && cpu == 5); /* it had been left */
    EXPECT(leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_OK && cpu == 4);
    EXPECT(leat_cores_choose_others(machine.cores, 0, cpus) == LEAT_ERR_BUSY && leat_cores_choose_others(machine.cores, 1, cpus) == LEAT_ERR_BUSY);
    EXPECT(leat_cores_take_back(machine.cores, 0) == 4 && leat_cores_choose_others(machine.cores, 1, cpus) == LEAT_OK);
    EXPECT(cpus[0] == 1 && cpus[1] == 4);
    leat_cores_check(machine.cores);
    destroy(&machine);
    make(&machine, "numa:1 core:3 pu:1", "0-2", shared, 1);
    EXPECT(leat_cores_take_back(machine.cores, 1) > 0);
    uint32_t moved = 0;
    for (uint32_t w = 0; w < 3; w += 2) {
        moved += leat_cores_choose_others(machine.cores, w, cpus) == LEAT_OK;
        EXPECT(!leat_cores_shared(machine.cores, w) || leat_cores_choose_others(machine.cores, w, cpus) == LEAT_ERR_BUSY);
    }
    EXPECT(moved == 2 * leat_cores_free(machine.cores, 0) || leat_cores_shared(machine.cores, 0));
    destroy(&machine);
}

/* Those that are gone are nobody's to get, and who has some gets others, or has them last; they may come back. */
static void
test_gone(void)
{
    static const struct leat_worker_group groups[] = {{.count = 1, .cores = 3, .cpus = "4,5,6"},
                                                      {.count = 1, .cores = 2, .cpus = "7,3"}};
    static const struct leat_worker_group shared[] = {{.count = 3, .cores = 2}};
    static const struct leat_worker_group far[] = {{.count = 1, .cores = 2, .cpus = "4,1"}};
    bool present[LEAT_CPU_MAX];
    uint32_t cpus[LEAT_CPU_MAX], cpu;
    const uint32_t *own;
    struct machine machine;

    memset(present, true, sizeof(present));
    make(&machine, "numa:2 l3:2 core:4 pu:1", "0-15", groups, 2);
    const uint32_t pool = leat_cores_pool(machine.cores, 0);
    EXPECT(machine.placement->dispatcher_cpu == 0 && leat_cores_free_of(machine.cores, pool) == 2);
    EXPECT(!leat_cores_note_present(machine.cores, present) && !leat_cores_replace_gone(machine.cores, 0, true));

    present[2] = present[5] = present[9] = false;
    EXPECT(leat_cores_note_present(machine.cores, present) && !leat_cores_note_present(machine.cores, present));
    EXPECT(leat_cores_gone(machine.cores, cpus) == 3 && cpus[0] == 2 && cpus[1] == 5 && cpus[2] == 9);
    EXPECT(leat_cores_gone_of(machine.cores, pool) == 2 && leat_cores_free(machine.cores, 1) == 7);
    EXPECT(leat_cores_free_of(machine.cores, pool) == 1 && leat_cores_free(machine.cores, 0) == 1);
    EXPECT(leat_cores_free_pools(machine.cores) == 1);
    EXPECT(leat_cores_free_cpus(machine.cores, cpus) == 8 && cpus[0] == 1 && cpus[1] == 8 && cpus[2] == 10);
    EXPECT(leat_cores_present_of(machine.cores, 0, cpus) == 2 && cpus[0] == 4 && cpus[1] == 6);
    EXPECT(leat_cores_gone_from(machine.cores, 0, cpus) == 1 && cpus[0] == 5);
    EXPECT(!leat_cores_replace_gone(machine.cores, 1, true)); /* has none that is gone */
    EXPECT(leat_cores_replace_gone(machine.cores, 0, false) && !leat_cores_replace_gone(machine.cores, 0, false));
    EXPECT(leat_cores_of(machine.cores, 0, &own) == 3 && own[0] == 4 && own[1] == 6 && own[2] == 5);
    EXPECT(leat_cores_replace_gone(machine.cores, 0, true) && !leat_cores_replace_gone(machine.cores, 0, true));
    leat_cores_check(machine.cores);
    EXPECT(leat_cores_of(machine.cores, 0, &own) == 3 && own[0] == 4 && own[1] == 6 && own[2] == 1);
    EXPECT(leat_cores_free_of(machine.cores, pool) == 0 && leat_cores_give(machine.cores, 1, false, &cpu) == LEAT_ERR_BUSY);

    present[4] = present[7] = false; /* leaders, with none left to replace them */
    EXPECT(leat_cores_note_present(machine.cores, present));
    EXPECT(leat_cores_replace_gone(machine.cores, 0, true) && leat_cores_replace_gone(machine.cores, 1, true));
    leat_cores_check(machine.cores);
    EXPECT(leat_cores_of(machine.cores, 0, &own) == 3 && own[0] == 6 && own[1] == 1 && own[2] == 4);
    EXPECT(leat_cores_of(machine.cores, 1, &own) == 2 && own[0] == 3 && own[1] == 7);
    EXPECT(leat_cores_choose_others(machine.cores, 1, cpus) == LEAT_ERR_BUSY);
    EXPECT(leat_cores_take_back(machine.cores, 0) == 4 && leat_cores_free_of(machine.cores, pool) == 0);
    EXPECT(leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_ERR_BUSY && !leat_cores_replace_gone(machine.cores, 1, true));

    present[5] = true; /* that serves the one that still waits */
    EXPECT(leat_cores_note_present(machine.cores, present) && leat_cores_replace_gone(machine.cores, 1, true));
    EXPECT(leat_cores_of(machine.cores, 1, &own) == 2 && own[0] == 3 && own[1] == 5);
    EXPECT(leat_cores_gone_of(machine.cores, pool) == 3);
    memset(present, true, sizeof(present));
    EXPECT(leat_cores_note_present(machine.cores, present) && leat_cores_gone(machine.cores, cpus) == 0);
    EXPECT(leat_cores_free_of(machine.cores, pool) == 3 && leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_OK && cpu == 7);
    EXPECT(leat_cores_free_home(machine.cores, 0) == 1 && leat_cores_free_home(machine.cores, 1) == 0); /* 4: the other has 5 */
    EXPECT(leat_cores_give(machine.cores, 0, true, &cpu) == LEAT_OK && cpu == 4 && leat_cores_free_home(machine.cores, 0) == 0);
    EXPECT(leat_cores_give(machine.cores, 0, true, &cpu) == LEAT_OK && cpu == 2); /* there is nothing else */
    leat_cores_check(machine.cores);
    destroy(&machine);

    make(&machine, "numa:2 l3:2 core:4 pu:1", "0-15", far, 1);
    EXPECT(leat_cores_take_back(machine.cores, 0) == 1 && leat_cores_free_home(machine.cores, 0) == 1);
    EXPECT(leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_OK && cpu == 5 && leat_cores_take_back(machine.cores, 0) == 5);
    EXPECT(leat_cores_give(machine.cores, 0, true, &cpu) == LEAT_OK && cpu == 1 && leat_cores_free_home(machine.cores, 0) == 0);
    destroy(&machine);

    make(&machine, "numa:1 core:3 pu:1", "0-2", shared, 1); /* who shares stays */
    memset(present, false, sizeof(present));
    EXPECT(leat_cores_note_present(machine.cores, present) && leat_cores_free(machine.cores, 0) == 0);
    for (uint32_t w = 0; w < 3; w++) {
        EXPECT(!leat_cores_shared(machine.cores, w) || !leat_cores_replace_gone(machine.cores, w, true));
    }
    EXPECT(leat_cores_shared(machine.cores, 0));
    leat_cores_check(machine.cores);
    destroy(&machine);
}

/* Of a core's two CPUs one is given; the other one is nobody's, and a listed sibling takes its core. */
static void
test_siblings(void)
{
    static const struct leat_worker_group groups[] = {{.count = 1, .cores = 1, .cpus = "3"}};
    struct machine machine;
    uint32_t cpu;

    make(&machine, "numa:1 core:4 pu:2", "0-7", groups, 1);
    EXPECT(machine.placement->dispatcher_cpu == 0);
    EXPECT(leat_cores_free(machine.cores, 0) == 2);
    EXPECT(leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_OK && cpu == 4);
    EXPECT(leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_OK && cpu == 6);
    EXPECT(leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_ERR_BUSY);
    destroy(&machine);
}

/* What the configuration has several share is nobody's alone when one gives it back. */
static void
test_shared(void)
{
    static const struct leat_worker_group groups[] = {{.count = 3, .cores = 2}};
    struct machine machine;
    uint32_t cpu;

    make(&machine, "numa:1 core:3 pu:1", "0-2", groups, 1);
    EXPECT(machine.placement->workers[0].shared && leat_cores_free(machine.cores, 0) == 0);
    EXPECT(leat_cores_shared(machine.cores, 0) && leat_cores_shared(machine.cores, 1));
    leat_cores_check(machine.cores);
    (void)leat_cores_take_back(machine.cores, 0);
    leat_cores_check(machine.cores);
    EXPECT(leat_cores_free(machine.cores, 0) == 0); /* another has it still */
    EXPECT(leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_ERR_BUSY);
    (void)leat_cores_take_back(machine.cores, 1);
    (void)leat_cores_take_back(machine.cores, 2);
    leat_cores_check(machine.cores);
    destroy(&machine);
}

/* A CPU quota of three leaves two to workers, though five cores are idle. */
static void
test_quota(void)
{
    static const struct leat_worker_group groups[] = {{.count = 1, .cores = 1}};
    struct fake_root root;
    struct machine machine;
    uint32_t cpu;

    fake_root_init(&root);
    fake_root_write(&root, "/proc/self/cgroup", "0::/\n");
    fake_root_write(&root, "/proc/self/mountinfo", "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    fake_root_write(&root, "/sys/fs/cgroup/cpu.max", "300000 100000\n");
    const struct leat_topology_source source = {.root = root.path, .synthetic = "core:6 pu:1", .affinity = "0-5"};
    make_from(&machine, &source, groups, 1);
    EXPECT(machine.topology->usable_cpus == 3 && leat_cores_free(machine.cores, 0) == 1);
    EXPECT(leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_OK);
    EXPECT(leat_cores_free(machine.cores, 0) == 0 && leat_cores_give(machine.cores, 0, false, &cpu) == LEAT_ERR_BUSY);
    leat_cores_check(machine.cores);
    EXPECT(leat_cores_take_back(machine.cores, 0) == cpu && leat_cores_free(machine.cores, 0) == 1);

    bool present[LEAT_CPU_MAX];
    const uint32_t pool = leat_cores_pool(machine.cores, 0);
    memset(present, true, sizeof(present));
    for (uint32_t gone = 1; gone <= 5; gone++) { /* one is the dispatcher's: of five, three are not missed */
        present[6 - gone] = false;
        EXPECT(leat_cores_note_present(machine.cores, present));
        EXPECT(leat_cores_gone_of(machine.cores, pool) == (gone > 3 ? gone - 3 : 0));
    }
    destroy(&machine);
    fake_root_fini(&root);
}

/* Gives the worker all that it can have: from `first` to `last` in any order. */
static void
expect_pool(const struct machine *machine, uint32_t worker, uint32_t first, uint32_t last)
{
    const uint32_t pool = leat_cores_pool(machine->cores, worker),
                   count = leat_cores_free_of(machine->cores, pool);
    uint32_t cpu, others[1], seen = 0;

    EXPECT(count == last - first); /* one is its own */
    EXPECT(leat_cores_choose_others(machine->cores, worker, others) == LEAT_OK &&
           others[0] >= first && others[0] <= last);
    for (uint32_t i = 0; i < count; i++) {
        EXPECT(leat_cores_give(machine->cores, worker, false, &cpu) == LEAT_OK && cpu >= first &&
               cpu <= last);
        seen |= 1u << cpu;
        leat_cores_check(machine->cores);
    }
    EXPECT((uint32_t)__builtin_popcount(seen) == count &&
           leat_cores_free_of(machine->cores, pool) == 0);
    EXPECT(leat_cores_give(machine->cores, worker, false, &cpu) == LEAT_ERR_BUSY &&
           strstr(leat_error_text(), "class") != NULL);
    for (uint32_t i = 0; i < count; i++) {
        (void)leat_cores_take_back(machine->cores, worker);
    }
}

/*
 * One node with cores of two classes: each has its own, and nobody the other's. Whose a core is that no worker was placed
 * on the kinds of cores tell, or else what is nearest; with one class all are its.
 */
static void
test_two_classes(void)
{
    static const struct leat_topology_source source = {
        .root = "/nonexistent", .synthetic = "numa:1 core:12 pu:1", .affinity = "0-11"};
    static const struct {
        const char *other_class;
        uint32_t first_little; /* the first core of another kind; 12: all are alike */
        uint32_t last;         /* that the first worker can have */
    } cases[] = {{"little", 12, 4}, {"little", 4, 3}, {"little", 7, 6}, {"big", 4, 11}};

    for (uint32_t i = 0; i < LEAT_COUNT_OF(cases); i++) {
        const bool two = cases[i].last < 11;
        const struct leat_worker_group groups[] = {
            {.count = 1, .cores = 1, .cpus = "1", .class_name = "big"},
            {.count = 1, .cores = 1, .cpus = "8", .class_name = cases[i].other_class}};
        const struct leat_placement_request request = {
            .dispatcher_cpu = LEAT_AUTO, .groups = groups, .group_count = 2};
        struct machine machine;

        EXPECT(leat_topology_discover(&source, &machine.topology) == LEAT_OK);
        for (uint32_t c = 0; c < machine.topology->cpu_count; c++) {
            machine.topology->cpus[c].kind = machine.topology->cpus[c].cpu >= cases[i].first_little;
        }
        EXPECT(leat_placement_make(machine.topology, &request, &machine.placement) == LEAT_OK);
        EXPECT(leat_cores_create(machine.topology, machine.placement, &machine.cores) == LEAT_OK);
        EXPECT(machine.placement->dispatcher_cpu == 0 &&
               leat_cores_pool_count(machine.cores) == (two ? 2 : 1));
        EXPECT(leat_cores_free(machine.cores, 0) == 9 && leat_cores_free_pools(machine.cores) == 9);
        EXPECT((leat_cores_pool(machine.cores, 0) != leat_cores_pool(machine.cores, 1)) == two);
        if (two) {
            expect_pool(&machine, 0, 1, cases[i].last);
            expect_pool(&machine, 1, cases[i].last + 1, 11);
        } else {
            EXPECT(leat_cores_free_of(machine.cores, 0) == 9);
        }
        destroy(&machine);
    }
}

/* ---- Random sequences ----------------------------------------------------------------------------- */

struct model {
    uint32_t worker_count, placed[WORKERS_MAX];
    uint32_t held[WORKERS_MAX][LEAT_CPU_MAX], held_count[WORKERS_MAX];
    uint32_t home[WORKERS_MAX]; /* its leader's CPU, or the last one */
    bool present[LEAT_CPU_MAX];
};

static uint32_t
users_of(const struct machine *machine, const struct model *model, uint32_t core)
{
    uint32_t users = cpu_of(machine, machine->placement->dispatcher_cpu)->core == core;

    for (uint32_t w = 0; w < model->worker_count; w++) {
        for (uint32_t i = 0; i < model->held_count[w]; i++) {
            users += cpu_of(machine, model->held[w][i])->core == core;
        }
    }
    return users;
}

/* Cores with users that are not the dispatcher's, and cores of the node without any. */
static void
count_cores(const struct machine *machine, const struct model *model, uint32_t node, uint32_t *ret_used, uint32_t *ret_free)
{
    const uint32_t dispatcher = cpu_of(machine, machine->placement->dispatcher_cpu)->core;

    *ret_used = *ret_free = 0;
    for (uint32_t i = 0; i < machine->topology->cpu_count; i++) {
        const struct leat_topology_cpu *cpu = &machine->topology->cpus[i];
        if (cpu->thread == 0) {
            const uint32_t users = users_of(machine, model, cpu->core);
            *ret_used += users > 0 && cpu->core != dispatcher;
            *ret_free += users == 0 && cpu->node == node && model->present[cpu->cpu];
        }
    }
}

static void
give(const struct machine *machine, struct model *model, uint32_t worker, uint32_t limit)
{
    const struct leat_topology_cpu *leader = cpu_of(machine, model->home[worker]);
    uint32_t cpu, used, left;

    count_cores(machine, model, leader->node, &used, &left);
    const bool possible = left > 0 && used < limit;
    EXPECT(leat_cores_free(machine->cores, leader->node) == (left < limit - used ? left : limit - used));
    if (leat_cores_give(machine->cores, worker, false, &cpu) != LEAT_OK) {
        EXPECT(!possible);
        return;
    }
    const struct leat_topology_cpu *given = cpu_of(machine, cpu);
    EXPECT(possible && given->node == leader->node && given->thread == 0 && model->present[cpu]);
    EXPECT(users_of(machine, model, given->core) == 0);
    for (uint32_t i = 0; i < machine->topology->cpu_count && given->l3 != leader->l3; i++) { /* there is none in its L3 */
        const struct leat_topology_cpu *other = &machine->topology->cpus[i];
        EXPECT(other->l3 != leader->l3 || other->thread > 0 || !model->present[other->cpu] ||
               users_of(machine, model, other->core) > 0);
    }
    model->home[worker] = model->held_count[worker] == 0 ? cpu : model->home[worker];
    model->held[worker][model->held_count[worker]++] = cpu;
}

static bool
is_shared(const struct machine *machine, const struct model *model, uint32_t worker)
{
    bool shared = false;

    for (uint32_t i = 0; i < model->held_count[worker]; i++) {
        shared = shared || users_of(machine, model, cpu_of(machine, model->held[worker][i])->core) > 1;
    }
    return shared;
}

/* To cores that nobody has. */
static void
move(const struct machine *machine, struct model *model, uint32_t worker)
{
    uint32_t cpus[LEAT_CPU_MAX], used, left;
    const uint32_t node = cpu_of(machine, model->home[worker])->node, count = model->held_count[worker];
    const bool shared = is_shared(machine, model, worker);

    count_cores(machine, model, node, &used, &left);
    const bool possible = !shared && left >= count;
    EXPECT((leat_cores_choose_others(machine->cores, worker, cpus) == LEAT_OK) == possible);
    for (uint32_t i = 0; i < count && possible; i++) {
        EXPECT(users_of(machine, model, cpu_of(machine, cpus[i])->core) == 0 && cpu_of(machine, cpus[i])->node == node);
    }
    if (possible && count > 0) {
        leat_cores_move(machine->cores, worker, cpus);
        memcpy(model->held[worker], cpus, count * sizeof(cpus[0]));
        model->home[worker] = cpus[0];
    }
}

static void
swap(const struct machine *machine, struct model *model, uint32_t worker, uint32_t other)
{
    const uint32_t count = model->held_count[worker];
    uint32_t cpus[LEAT_CPU_MAX];

    if (worker == other || count == 0 || count != model->held_count[other] || is_shared(machine, model, worker) ||
        is_shared(machine, model, other) || cpu_of(machine, model->home[worker])->node != cpu_of(machine, model->home[other])->node) {
        return;
    }
    leat_cores_swap(machine->cores, worker, other);
    memcpy(cpus, model->held[worker], count * sizeof(cpus[0]));
    memcpy(model->held[worker], model->held[other], count * sizeof(cpus[0]));
    memcpy(model->held[other], cpus, count * sizeof(cpus[0]));
    model->home[worker] = model->held[worker][0];
    model->home[other] = model->held[other][0];
}

/* One goes or comes back; who has some that are gone gets others while there are any, and has the rest last. */
static void
go_and_come(const struct machine *machine, struct model *model, uint32_t worker, uint64_t *random)
{
    const uint32_t any = machine->topology->cpus[leat_test_random(random) % machine->topology->cpu_count].cpu;
    const uint32_t node = cpu_of(machine, model->home[worker])->node, count = model->held_count[worker];
    uint32_t used, left, present = 0, gone = 0;
    const uint32_t *now;

    model->present[any] = !model->present[any];
    (void)leat_cores_note_present(machine->cores, model->present);
    for (uint32_t i = 0; i < count; i++) { /* a core is named by the CPU that was chosen of it */
        present += model->present[model->held[worker][i]];
    }
    count_cores(machine, model, node, &used, &left);
    const bool shared = is_shared(machine, model, worker);
    const uint32_t wanted = shared ? present : present + left < count ? present + left : count;
    (void)leat_cores_replace_gone(machine->cores, worker, true);
    EXPECT(leat_cores_of(machine->cores, worker, &now) == count);
    for (uint32_t i = 0; i < count; i++) {
        const bool is_present = model->present[now[i]];
        bool had = false;
        for (uint32_t before = 0; before < count; before++) {
            had = had || model->held[worker][before] == now[i];
        }
        EXPECT(shared || (i < wanted) == is_present);
        EXPECT(had || (is_present && users_of(machine, model, cpu_of(machine, now[i])->core) == 0));
        EXPECT(cpu_of(machine, now[i])->node == node);
        gone += !is_present;
    }
    EXPECT(gone == count - wanted);
    if (count > 0) {
        memcpy(model->held[worker], now, count * sizeof(now[0]));
        model->home[worker] = now[0];
    }
}

static void
one_machine(uint64_t *random)
{
    static struct model model;
    struct leat_worker_group groups[WORKERS_MAX];
    struct machine machine;
    char synthetic[64], all[16];
    const uint32_t count = 1 + (uint32_t)(leat_test_random(random) % 4), nodes = 1 + (uint32_t)(leat_test_random(random) % 3);
    const uint32_t l3 = 1 + (uint32_t)(leat_test_random(random) % 3), core_count = 2 + (uint32_t)(leat_test_random(random) % 5);
    const uint32_t threads = 1 + (uint32_t)(leat_test_random(random) % 2);

    (void)snprintf(synthetic, sizeof(synthetic), "numa:%u l3:%u core:%u pu:%u", nodes, l3, core_count, threads);
    (void)snprintf(all, sizeof(all), "0-%u", nodes * l3 * core_count * threads - 1);
    for (uint32_t g = 0; g < count; g++) {
        groups[g] = (struct leat_worker_group){.count = 1 + (uint32_t)(leat_test_random(random) % 3),
                                               .cores = 1 + (uint32_t)(leat_test_random(random) % 2)};
    }
    make(&machine, synthetic, all, groups, count);
    memset(&model, 0, sizeof(model));
    memset(model.present, true, sizeof(model.present));
    model.worker_count = machine.placement->worker_count;
    for (uint32_t w = 0; w < model.worker_count; w++) {
        model.held_count[w] = machine.placement->workers[w].cpu_count;
        memcpy(model.held[w], machine.placement->workers[w].cpus, model.held_count[w] * sizeof(uint32_t));
        model.home[w] = model.held[w][0];
    }
    uint32_t used, left;
    count_cores(&machine, &model, 0, &used, &left);
    const uint32_t limit = used > machine.placement->worker_cores ? used : machine.placement->worker_cores;
    for (uint32_t step = 0; step < STEPS / model.worker_count; step++) {
        const uint32_t worker = (uint32_t)(leat_test_random(random) % model.worker_count);
        const uint32_t *cpus;
        const uint64_t choice = leat_test_random(random) % 16;
        if (choice == 0) {
            move(&machine, &model, worker);
        } else if (choice == 1) {
            swap(&machine, &model, worker, (uint32_t)(leat_test_random(random) % model.worker_count));
        } else if (choice == 2) {
            go_and_come(&machine, &model, worker, random);
        } else if (choice % 2 == 0) {
            give(&machine, &model, worker, limit);
        } else if (model.held_count[worker] > 0) {
            EXPECT(leat_cores_take_back(machine.cores, worker) == model.held[worker][--model.held_count[worker]]);
        }
        EXPECT(leat_cores_of(machine.cores, worker, &cpus) == model.held_count[worker]);
        EXPECT(memcmp(cpus, model.held[worker], model.held_count[worker] * sizeof(uint32_t)) == 0);
        leat_cores_check(machine.cores);
    }
    destroy(&machine);
}

int
main(void)
{
    uint64_t random;

    leat_test_init();
    random = leat_test_seed;
    test_order();
    test_dispatcher_without_a_core();
    test_parked();
    test_moved();
    test_gone();
    test_siblings();
    test_shared();
    test_quota();
    test_two_classes();
    for (uint32_t i = 0; i < MACHINES; i++) {
        one_machine(&random);
    }
    return 0;
}
