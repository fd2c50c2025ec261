/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Usable CPUs are the smallest of affinity, cpuset and quota under both cgroup versions, and the
 *          placement on boxes from 1 to 256 CPUs keeps its promises.
 * Method   Synthetic machines and fake /proc and /sys/fs/cgroup trees; examples for the rules, then random
 *          machines and requests against the invariants.
 */
#include "runtime/cgroup.h"
#include "runtime/topology.h"
#include "tests/runtime/fake_root.h"

#include <jansson.h>

static struct leat_topology *
machine(const char *synthetic, const char *root, const char *affinity)
{
    const struct leat_topology_source source = {
        .synthetic = synthetic, .root = root, .affinity = affinity};
    struct leat_topology *topology;
    EXPECT(leat_topology_discover(&source, &topology) == LEAT_OK);
    return topology;
}

static bool
has_note(const struct leat_notes *notes, const char *name, const char *part)
{
    for (uint32_t i = 0; i < notes->count; i++) {
        if (strcmp(notes->items[i].name, name) == 0 && strstr(notes->items[i].text, part) != NULL) {
            return true;
        }
    }
    return false;
}

static struct leat_placement *
place(const struct leat_topology *topology, const struct leat_worker_group *groups, uint32_t count)
{
    const struct leat_placement_request request = {
        .dispatcher_cpu = LEAT_AUTO, .groups = groups, .group_count = count};
    struct leat_placement *placement;
    EXPECT(leat_placement_make(topology, &request, &placement) == LEAT_OK);
    return placement;
}

static void
refuse(const struct leat_topology *topology, uint32_t dispatcher_cpu,
       const struct leat_worker_group *groups, uint32_t count, const char *part)
{
    const struct leat_placement_request request = {
        .dispatcher_cpu = dispatcher_cpu, .groups = groups, .group_count = count};
    struct leat_placement *placement = NULL;
    EXPECT(leat_placement_make(topology, &request, &placement) == LEAT_ERR_CONFIG);
    EXPECT(placement == NULL);
    if (strstr(leat_error_text(), part) == NULL) {
        (void)fprintf(stderr, "got: %s\nwant: %s\n", leat_error_text(), part);
        EXPECT(!"the error names what is wrong");
    }
}

static void
test_cpu_lists(void)
{
    uint32_t cpus[16], count;
    char text[64];
    static const char *const bad[] = {"",    ",",     "1,",  "1,,2",  "3-1",  "1-",  "x",
                                      "1,1", "0-3,2", "-1",  "1 ,2",  "4096", "0-99999999999",
                                      "0-16", "1;2"};

    EXPECT(leat_cpu_list_parse("0-3,8,6-7", cpus, 16, &count) == LEAT_OK && count == 7);
    EXPECT(cpus[0] == 0 && cpus[3] == 3 && cpus[4] == 8 && cpus[5] == 6 && cpus[6] == 7);
    EXPECT(strcmp(leat_cpu_list_text(cpus, count, text, sizeof(text)), "0-3,8,6-7") == 0);
    EXPECT(strcmp(leat_cpu_list_text(cpus, count, text, 9), "0-3,8...") == 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        EXPECT(leat_cpu_list_parse(bad[i], cpus, 16, &count) == LEAT_ERR_INVALID);
    }
}

static void
test_quota_v2_counts_the_tightest_on_the_way_up(void)
{
    struct fake_root root;
    fake_root_init(&root);
    fake_root_write(&root, "/proc/self/cgroup", "0::/a/b/c\n");
    fake_root_write(&root, "/proc/self/mountinfo",
                    "20 1 0:1 / /proc rw - proc proc rw\n"
                    "25 1 0:22 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
    fake_root_write(&root, "/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
    fake_root_write(&root, "/sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
    fake_root_write(&root, "/sys/fs/cgroup/a/cpu.max", "800000 100000\n");
    struct leat_topology *topology = machine("core:8 pu:1", root.path, NULL);
    EXPECT(topology->quota_milli == 2500 && topology->usable_cpus == 2);
    EXPECT(topology->allowed_cpus == 8 && topology->cpu_count == 8);
    EXPECT(has_note(&topology->notes, "cpu_quota", "cpu quota 2.5 -> 2 CPUs"));
    EXPECT(has_note(&topology->notes, "cpu_quota", "/sys/fs/cgroup/a/b/cpu.max"));
    leat_topology_destroy(topology);

    fake_root_write(&root, "/sys/fs/cgroup/a/cpu.max", "30000 100000\n");
    topology = machine("core:8 pu:1", root.path, NULL);
    EXPECT(topology->quota_milli == 300 && topology->usable_cpus == 1); /* never 0 */
    leat_topology_destroy(topology);

    fake_root_write(&root, "/sys/fs/cgroup/a/cpu.max", "garbage\n");
    fake_root_write(&root, "/sys/fs/cgroup/a/b/cpu.max", "1600000 100000\n");
    topology = machine("core:8 pu:1", root.path, NULL); /* a quota beyond the box is no limit */
    EXPECT(topology->usable_cpus == 8 && topology->notes.count == 0);
    leat_topology_destroy(topology);
    fake_root_fini(&root);
}

static void
test_lowest_memory_limit(void)
{
    struct fake_root root;
    fake_root_init(&root);
    EXPECT(leat_cgroup_memory(root.path) == UINT64_MAX);
    fake_root_write(&root, "/proc/self/cgroup", "4:memory:/m\n0::/a/b\n");
    fake_root_write(&root, "/proc/self/mountinfo",
                    "25 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
                    "30 1 0:30 / /sys/fs/memory rw - cgroup cgroup rw,memory\n");
    fake_root_write(&root, "/sys/fs/cgroup/a/b/memory.max", "max\n");
    fake_root_write(&root, "/sys/fs/memory/m/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT(leat_cgroup_memory(root.path) == UINT64_C(9223372036854771712));
    fake_root_write(&root, "/sys/fs/cgroup/a/memory.max", "2147483648\n");
    EXPECT(leat_cgroup_memory(root.path) == UINT64_C(2147483648));
    fake_root_write(&root, "/sys/fs/cgroup/a/b/memory.max", "4294967296\n");
    EXPECT(leat_cgroup_memory(root.path) == UINT64_C(2147483648));
    fake_root_write(&root, "/sys/fs/memory/memory.limit_in_bytes", "1073741824\n");
    EXPECT(leat_cgroup_memory(root.path) == UINT64_C(1073741824));
    fake_root_fini(&root);
}

static void
test_quota_v1_in_a_container(void)
{
    struct fake_root root;
    fake_root_init(&root);
    /* The host path of the group is hidden by the mount's root, and -1 means none. */
    fake_root_write(&root, "/proc/self/cgroup",
                    "4:cpuset:/docker/x\n3:cpu,cpuacct:/docker/x/inner\n0::/docker/x\n");
    fake_root_write(&root, "/proc/self/mountinfo",
                    "30 1 0:30 /docker/x /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup "
                    "rw,cpu,cpuacct\n"
                    "31 1 0:31 /docker/x /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n");
    fake_root_write(&root, "/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_quota_us", "350000\n");
    fake_root_write(&root, "/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_period_us", "100000\n");
    fake_root_write(&root, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    fake_root_write(&root, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    fake_root_write(&root, "/sys/fs/cgroup/cpuset/cpuset.cpus", "2-5\n");
    struct leat_topology *topology = machine("core:8 pu:1", root.path, "0-4");
    EXPECT(topology->allowed_cpus == 3); /* 2, 3, 4 */
    EXPECT(topology->quota_milli == 3500 && topology->usable_cpus == 3);
    EXPECT(has_note(&topology->notes, "affinity", "0-4"));
    EXPECT(has_note(&topology->notes, "cpuset", "2-5"));
    EXPECT(!has_note(&topology->notes, "cpu_quota", ""));
    struct leat_placement *placement = place(topology, NULL, 0);
    EXPECT(placement->dispatcher_cpu == 2 && placement->worker_count == 2);
    EXPECT(placement->workers[0].cpus[0] == 3 && placement->workers[1].cpus[0] == 4);
    EXPECT(placement->client_cpu_count == 0 && !placement->may_spin);
    EXPECT(has_note(&placement->notes, "clients_share", "3 threads"));
    leat_placement_destroy(placement);
    leat_topology_destroy(topology);

    const struct leat_topology_source nothing = {
        .synthetic = "core:8 pu:1", .root = root.path, .affinity = "0-1"};
    EXPECT(leat_topology_discover(&nothing, &topology) == LEAT_ERR_UNSUPPORTED);
    fake_root_fini(&root);
}

static void
test_v2_cpuset_of_the_nearest_group(void)
{
    struct fake_root root;
    fake_root_init(&root);
    fake_root_write(&root, "/proc/self/cgroup", "0::/svc/leaf\n");
    fake_root_write(&root, "/proc/self/mountinfo",
                    "25 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    fake_root_write(&root, "/sys/fs/cgroup/cpuset.cpus.effective", "0-7\n");
    fake_root_write(&root, "/sys/fs/cgroup/svc/cpuset.cpus.effective", "4-7\n");
    struct leat_topology *topology = machine("core:8 pu:1", root.path, NULL);
    EXPECT(topology->allowed_cpus == 4 && topology->usable_cpus == 4);
    leat_topology_destroy(topology);
    fake_root_fini(&root);
}

static void
test_small_boxes_share_and_say_so(void)
{
    struct leat_topology *topology = machine("core:1 pu:1", "/nonexistent", NULL);
    struct leat_placement *placement = place(topology, NULL, 0);
    EXPECT(placement->worker_count == 1 && placement->dispatcher_cpu == 0);
    EXPECT(placement->workers[0].cpus[0] == 0 && placement->workers[0].shared);
    EXPECT(!placement->may_spin && has_note(&placement->notes, "one_cpu", "nothing spins"));
    leat_placement_destroy(placement);
    leat_topology_destroy(topology);

    topology = machine("core:2 pu:1", "/nonexistent", NULL);
    placement = place(topology, NULL, 0);
    EXPECT(placement->worker_count == 1 && placement->dispatcher_cpu == 0);
    EXPECT(placement->workers[0].cpus[0] == 1 && !placement->workers[0].shared);
    EXPECT(!placement->may_spin && has_note(&placement->notes, "clients_share", "2 usable CPUs"));
    leat_placement_destroy(placement);
    leat_topology_destroy(topology);

    topology = machine("core:1 pu:2", "/nonexistent", NULL); /* one core: its threads are used */
    placement = place(topology, NULL, 0);
    EXPECT(placement->worker_count == 1 && placement->workers[0].cpus[0] == 1);
    EXPECT(!placement->workers[0].shared);
    leat_placement_destroy(placement);
    leat_topology_destroy(topology);

    topology = machine("core:2 pu:2", "/nonexistent", NULL); /* a laptop: clients on the siblings */
    placement = place(topology, NULL, 0);
    EXPECT(placement->dispatcher_cpu == 0 && placement->workers[0].cpus[0] == 2);
    EXPECT(placement->may_spin && placement->client_cpu_count == 2);
    EXPECT(placement->client_cpus[0] == 1 && placement->client_cpus[1] == 3);
    leat_placement_destroy(placement);
    leat_topology_destroy(topology);

    topology = machine("core:4 pu:1", "/nonexistent", NULL);
    placement = place(topology, NULL, 0);
    EXPECT(placement->worker_count == 2 && placement->client_cpu_count == 1);
    EXPECT(placement->client_cpus[0] == 3 && placement->may_spin);
    leat_placement_destroy(placement);
    leat_topology_destroy(topology);
}

static void
test_dispatcher_without_a_core(void)
{
    static const struct leat_worker_group listed = {.count = 1, .cores = 2, .cpus = "0-1"};
    struct leat_topology *topology = machine("core:2 pu:1", "/nonexistent", NULL);
    struct leat_placement_request request = {.dispatcher_cpu = LEAT_ANYWHERE};
    struct leat_placement *placement;

    EXPECT(leat_placement_make(topology, &request, &placement) == LEAT_OK);
    EXPECT(placement->dispatcher_cpu == LEAT_ANYWHERE && placement->worker_count == 2 && placement->worker_cores == 2);
    EXPECT(!placement->workers[0].shared && !placement->workers[1].shared && !placement->may_spin);
    EXPECT(has_note(&placement->notes, "dispatcher_anywhere", "no core of its own"));
    leat_placement_destroy(placement);
    request.groups = &listed;
    request.group_count = 1;
    EXPECT(leat_placement_make(topology, &request, &placement) == LEAT_OK);
    EXPECT(placement->worker_count == 1 && placement->workers[0].cpu_count == 2 && !placement->workers[0].shared);
    leat_placement_destroy(placement);
    leat_topology_destroy(topology);

    topology = machine("core:4 pu:2", "/nonexistent", NULL); /* one core is left to clients, all siblings are theirs */
    request.group_count = 0;
    EXPECT(leat_placement_make(topology, &request, &placement) == LEAT_OK);
    EXPECT(placement->worker_count == 3 && placement->worker_cores == 4 && !placement->may_spin);
    leat_placement_destroy(placement);
    leat_topology_destroy(topology);
}

/* A class for each size that a worker can take: 1, 2, 4, ... and the largest, beside what it starts with. */
static void
test_classes_of_sizes(void)
{
    static const struct leat_worker_group groups[] = {{.count = 2, .cores = 3, .cores_max = 6, .class_name = "elastic"},
                                                      {.count = 1, .cores = 2, .class_name = "elastic"},
                                                      {.count = 1, .cores = 1, .cores_max = LEAT_AUTO}};
    static const uint32_t sizes[] = {3, 1, 2, 4, 6};
    struct leat_topology *topology = machine("core:16 pu:1", "/nonexistent", NULL);
    struct leat_placement *placement = place(topology, groups, 3);

    EXPECT(placement->class_count == 6 && placement->worker_count == 4 && leat_placement_first_classes(placement) == 3);
    for (uint32_t c = 0; c < 5; c++) {
        EXPECT(strcmp(placement->classes[c].name, "elastic") == 0 && placement->classes[c].cores == sizes[c]);
    }
    EXPECT(placement->workers[0].worker_class == 0 && placement->workers[0].cores_max == 6 && placement->workers[0].cpu_count == 3);
    EXPECT(placement->workers[2].worker_class == 2 && placement->workers[2].cores_max == 2);
    EXPECT(placement->workers[3].worker_class == 5 && placement->workers[3].cores_max == 1);
    leat_placement_destroy(placement);
    const struct leat_worker_group many = {.count = 1, .cores = 1, .cores_max = 256}, fewer = {.count = 1, .cores = 2, .cores_max = 1};
    refuse(topology, LEAT_AUTO, &many, 1, "more than 8 kinds of worker");
    refuse(topology, LEAT_AUTO, &fewer, 1, "workers[0].cores_max: 1 is less than cores, 2");
    leat_topology_destroy(topology);
}

static void
test_big_box(void)
{
    /* 2 packages, a node each, 4 L3 groups of 8 cores, 2 threads: 128 CPUs, 64 cores. */
    struct leat_topology *topology =
        machine("package:2 [numa] l3:4 core:8 pu:2", "/nonexistent", NULL);
    EXPECT(topology->package_count == 2 && topology->node_count == 2 && topology->l3_count == 8);
    EXPECT(topology->core_count == 64 && topology->cpu_count == 128);
    EXPECT(has_note(&topology->notes, "smt", "128 CPUs are hardware threads of 64 cores"));

    struct leat_placement *placement = place(topology, NULL, 0);
    EXPECT(placement->worker_count == 62 && placement->may_spin);
    EXPECT(placement->workers[61].node == 1 && placement->workers[0].node == 0);
    EXPECT(placement->client_cpu_count == 2); /* one core, two threads */
    leat_placement_destroy(placement);

    const struct leat_worker_group teams = {.count = LEAT_AUTO, .cores = 8};
    placement = place(topology, &teams, 1);
    /* The first L3 has 7 cores left: seven whole L3s are teams, and nothing crosses nodes. */
    EXPECT(placement->worker_count == 7);
    EXPECT(!has_note(&placement->notes, "l3_spanned", ""));
    leat_placement_destroy(placement);

    const struct leat_worker_group wide = {.count = LEAT_AUTO, .cores = 12};
    placement = place(topology, &wide, 1);
    EXPECT(placement->worker_count == 4 && has_note(&placement->notes, "l3_spanned", "4 of 4"));
    leat_placement_destroy(placement);

    const struct leat_worker_group mixed[] = {
        {.count = LEAT_AUTO, .cores = 1, .class_name = "small"},
        {.count = 2, .cores = 4, .class_name = "big"},
        {.count = LEAT_AUTO, .cores = 2, .cpus = "64,66,68,70,72", .class_name = "pinned"},
    };
    placement = place(topology, mixed, 3);
    uint32_t of_class[3] = {0};
    for (uint32_t w = 0; w < placement->worker_count; w++) {
        of_class[placement->workers[w].worker_class]++;
    }
    EXPECT(placement->class_count == 3 && strcmp(placement->classes[0].name, "pinned") == 0);
    EXPECT(of_class[0] == 2 && of_class[1] == 2 && of_class[2] == 64 - 1 - 1 - 4 - 8);
    EXPECT(placement->workers[0].cpus[0] == 64 && placement->workers[0].cpus[1] == 66);
    EXPECT(has_note(&placement->notes, "cpus_unused", "lists 5 CPUs"));

    json_t *object = leat_topology_json(topology, placement);
    EXPECT(object != NULL && json_integer_value(json_object_get(object, "usable_cpus")) == 128);
    const json_t *placed = json_object_get(object, "placement");
    EXPECT(json_array_size(json_object_get(placed, "workers")) == placement->worker_count);
    EXPECT(json_array_size(json_object_get(object, "cpus")) == 128);
    EXPECT(json_array_size(json_object_get(object, "notes")) ==
           topology->notes.count + placement->notes.count);
    EXPECT(strstr(json_string_value(json_object_get(object, "text")), "128 CPUs, 64 cores") != NULL);
    json_decref(object);

    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    leat_topology_print(topology, placement, out);
    EXPECT(fclose(out) == 0);
    EXPECT(strstr(text, "128 CPUs, 64 cores, 2 NUMA nodes, 2 packages") != NULL);
    EXPECT(strstr(text, "L3 7  CPUs 112-127") != NULL && strstr(text, "class pinned") != NULL);
    free(text);
    leat_placement_destroy(placement);
    leat_topology_destroy(topology);
}

static void
test_wrong_requests_name_the_setting(void)
{
    struct leat_topology *topology = machine("numa:2 core:4 pu:1", "/nonexistent", "0-6");
    const struct leat_worker_group outside = {.count = 1, .cores = 1, .cpus = "7"};
    const struct leat_worker_group missing = {.count = 1, .cores = 1, .cpus = "99"};
    const struct leat_worker_group few = {.count = 2, .cores = 2, .cpus = "0-2"};
    const struct leat_worker_group across = {.count = 1, .cores = 2, .cpus = "3-4"};
    const struct leat_worker_group wide = {.count = LEAT_AUTO, .cores = 5};
    const struct leat_worker_group none = {.count = 0, .cores = 1};
    const struct leat_worker_group no_cores = {.count = 1, .cores = 0};
    const struct leat_worker_group unreadable = {.count = 1, .cores = 1, .cpus = "1-"};
    const struct leat_worker_group twice[] = {{.count = 1, .cores = 1, .cpus = "2"},
                                              {.count = 1, .cores = 1, .cpus = "2"}};

    refuse(topology, LEAT_AUTO, &outside, 1, "workers[0].cpus: CPU 7 is outside");
    refuse(topology, LEAT_AUTO, &missing, 1, "CPU 99 does not exist");
    refuse(topology, LEAT_AUTO, &few, 1, "3 CPUs are too few for 2 workers of 2 cores");
    refuse(topology, LEAT_AUTO, &across, 1, "NUMA nodes 0 and 1");
    refuse(topology, LEAT_AUTO, &wide, 1, "workers[0].cores: no NUMA node has 5 usable cores");
    refuse(topology, LEAT_AUTO, &none, 1, "at least one worker");
    refuse(topology, LEAT_AUTO, &no_cores, 1, "workers[0].cores");
    refuse(topology, LEAT_AUTO, &unreadable, 1, "workers[0].cpus: CPU list '1-'");
    refuse(topology, LEAT_AUTO, twice, 2, "workers[1].cpus: CPU 2 is given out already");
    refuse(topology, 7, NULL, 0, "dispatcher.cpu: CPU 7 is outside");
    refuse(topology, 99, NULL, 0, "dispatcher.cpu: CPU 99 does not exist");
    leat_topology_destroy(topology);

    const struct leat_topology_source nonsense = {.synthetic = "potato:2"};
    EXPECT(leat_topology_discover(&nonsense, &topology) != LEAT_OK);
}

static void
test_random_machines_keep_the_invariants(void)
{
    uint64_t random = leat_test_seed;

    for (int round = 0; round < 1500; round++) {
        char synthetic[64], affinity[32];
        const uint32_t nodes = 1 + (uint32_t)(leat_test_random(&random) % 4);
        const uint32_t l3 = 1 + (uint32_t)(leat_test_random(&random) % 3);
        const uint32_t cores = 1 + (uint32_t)(leat_test_random(&random) % 8);
        const uint32_t threads = 1 + (uint32_t)(leat_test_random(&random) % 2);
        const uint32_t total = nodes * l3 * cores * threads;
        (void)snprintf(synthetic, sizeof(synthetic), "numa:%u l3:%u core:%u pu:%u", nodes, l3, cores,
                       threads);
        const uint32_t first = (uint32_t)(leat_test_random(&random) % total);
        (void)snprintf(affinity, sizeof(affinity), "%u-%u", first,
                       first + (uint32_t)(leat_test_random(&random) % (total - first)));
        struct leat_topology *topology = machine(synthetic, "/nonexistent", affinity);
        const struct leat_worker_group groups[2] = {
            {.count = leat_test_random(&random) % 2 ? LEAT_AUTO : (uint32_t)(leat_test_random(&random) % 20),
             .cores = 1 + (uint32_t)(leat_test_random(&random) % 4)},
            {.count = LEAT_AUTO, .cores = 1 + (uint32_t)(leat_test_random(&random) % 9)},
        };
        const struct leat_placement_request request = {
            .dispatcher_cpu = LEAT_AUTO, .groups = groups, .group_count = round % 2 == 0 ? 1 : 2};
        struct leat_placement *placement;
        const enum leat_status status = leat_placement_make(topology, &request, &placement);
        if (status != LEAT_OK) { /* only ever because a team is wider than a node, or count is 0 */
            EXPECT(status == LEAT_ERR_CONFIG);
            EXPECT(strstr(leat_error_text(), "no NUMA node") != NULL ||
                   strstr(leat_error_text(), "at least one") != NULL);
            leat_topology_destroy(topology);
            continue;
        }
        uint32_t users[256] = {0}, node_of[256], allowed = 0, fixed = 0;
        for (uint32_t i = 0; i < topology->cpu_count; i++) {
            node_of[topology->cpus[i].cpu] =
                topology->cpus[i].allowed ? topology->cpus[i].node : UINT32_MAX;
            allowed += topology->cpus[i].allowed;
        }
        EXPECT(allowed == topology->usable_cpus);
        users[placement->dispatcher_cpu]++;
        EXPECT(node_of[placement->dispatcher_cpu] != UINT32_MAX);
        for (uint32_t w = 0; w < placement->worker_count; w++) {
            const struct leat_worker_place *worker = &placement->workers[w];
            fixed += groups[0].count != LEAT_AUTO && w < groups[0].count;
            for (uint32_t i = 0; i < worker->cpu_count; i++) {
                users[worker->cpus[i]]++;
                EXPECT(node_of[worker->cpus[i]] == worker->node);
            }
        }
        EXPECT(groups[0].count == LEAT_AUTO || fixed == groups[0].count);
        bool shared = false;
        for (uint32_t w = 0; w < placement->worker_count; w++) {
            bool expected = false;
            for (uint32_t i = 0; i < placement->workers[w].cpu_count; i++) {
                expected = expected || users[placement->workers[w].cpus[i]] > 1;
            }
            EXPECT(placement->workers[w].shared == expected);
            shared = shared || expected;
        }
        EXPECT(shared == has_note(&placement->notes, "workers_share", ""));
        uint32_t in_use = 0;
        for (uint32_t cpu = 0; cpu < 256; cpu++) {
            in_use += users[cpu] > 0;
        }
        EXPECT(placement->may_spin == (!shared && in_use < allowed));
        EXPECT(placement->worker_cores == (topology->allowed_cores > 2 ? topology->allowed_cores - 1 : 1));
        for (uint32_t i = 0; i < placement->client_cpu_count; i++) {
            EXPECT(users[placement->client_cpus[i]] == 0);
            EXPECT(node_of[placement->client_cpus[i]] != UINT32_MAX);
        }
        if (groups[0].count == LEAT_AUTO && topology->allowed_cores >= 4 &&
            placement->worker_count > 1) { /* a single wide worker may need every core */
            EXPECT(placement->client_cpu_count > 0);
        }
        leat_placement_destroy(placement);
        leat_topology_destroy(topology);
    }
}

static void
test_this_machine(void)
{
    struct leat_topology *topology;
    EXPECT(leat_topology_discover(NULL, &topology) == LEAT_OK);
    EXPECT(topology->usable_cpus >= 1 && topology->usable_cpus <= topology->allowed_cpus);
    struct leat_placement *placement = place(topology, NULL, 0);
    leat_topology_print(topology, placement, stdout);
    leat_placement_destroy(placement);
    leat_topology_destroy(topology);
}

int
main(void)
{
    leat_test_init();
    test_cpu_lists();
    test_quota_v2_counts_the_tightest_on_the_way_up();
    test_lowest_memory_limit();
    test_quota_v1_in_a_container();
    test_v2_cpuset_of_the_nearest_group();
    test_small_boxes_share_and_say_so();
    test_dispatcher_without_a_core();
    test_classes_of_sizes();
    test_big_box();
    test_wrong_requests_name_the_setting();
    test_random_machines_keep_the_invariants();
    test_this_machine();
    return 0;
}
