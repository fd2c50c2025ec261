/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Utilisation is the share of the workers' time that applications' online queries took over the last second, and
 *          over the last ten, however seldom somebody looks, whatever was before and whoever comes, goes or is replaced; instances out of order count while
 *          somebody asks for them, an interfered one for its own worker and those near it alone; and an application has workers
 *          left for what is offline where others than these may run it.
 * Method   Applications made by hand, on a clock that the test has; a second sum beside the gauge's.
 */
#include "runtime/daemon_private.h"
#include "runtime/offline_gauge.h"
#include "runtime/cores.h"
#include "tests/leat_test.h"

enum { WORKERS = 3, APPS = 4 };

static struct leat_daemon *daemon;
static struct leat_offline_gauge gauge;
static uint64_t now_ns = 1000000000000;

static void
add(uint32_t id)
{
    struct leat_application *app = calloc(1, sizeof(*app));

    EXPECT(app != NULL && leat_instances_init(&app->instances, WORKERS, 2) == LEAT_OK);
    app->id = (uint16_t)id;
    app->generation = ++daemon->generations;
    daemon->applications[id] = app;
}

static void
take_away(uint32_t id)
{
    leat_instances_fini(&daemon->applications[id]->instances);
    free(daemon->applications[id]);
    daemon->applications[id] = NULL;
}

static void
work(uint32_t id, uint64_t busy_ns)
{
    (void)atomic_fetch_add_explicit(&daemon->applications[id]->counters.busy_ns, busy_ns, memory_order_relaxed);
}

static void
sample(void)
{
    now_ns += LEAT_OFFLINE_SAMPLE_NS;
    leat_offline_gauge_sample(&gauge, daemon, now_ns);
}

static struct leat_worker_set
set_of(bool first, bool second, bool third)
{
    return (struct leat_worker_set){{first | second << 1 | third << 2}};
}

static bool
disturbs(bool first, bool second, bool third)
{
    const struct leat_worker_set set = set_of(first, second, third);
    return memcmp(&gauge.disturb, &set, sizeof(set)) == 0;
}

/* Is what the application has in such a state out of order? All are near each other where there are no cores. */
static bool
is_slow(enum leat_instance_state state)
{
    const bool interfered = state == LEAT_INSTANCE_INTERFERED && disturbs(true, true, true);

    EXPECT(interfered || disturbs(false, false, false));
    EXPECT(!gauge.overloaded || state == LEAT_INSTANCE_OVERLOADED);
    return interfered || gauge.overloaded;
}

static bool
is_about(uint32_t ppm)
{
    return gauge.utilisation_ppm <= ppm && gauge.utilisation_ppm + 10 >= ppm;
}

/* Of samples 0..last, the first of which came a sample after another, over `samples` of them. */
static bool
is_share_of(uint32_t ppm, const uint64_t *history, uint32_t last, uint32_t samples)
{
    const uint32_t count = last + 2 < samples ? last + 2 : samples;
    uint64_t sum = 0;

    for (uint32_t back = 0; back < samples && back <= last; back++) {
        sum += history[last - back];
    }
    const uint64_t share_ppm = sum / 1000 * 1000000 / (count * LEAT_OFFLINE_SAMPLE_NS / 1000 * WORKERS);
    return ppm <= share_ppm && ppm + 10 >= share_ppm;
}

static void
test_utilisation(void)
{
    static uint64_t history[3 * LEAT_OFFLINE_LASTING];
    uint64_t random = leat_test_seed;

    work(0, 123456789); /* before anybody looked */
    sample();
    EXPECT(!gauge.known);
    sample();
    EXPECT(gauge.known && gauge.utilisation_ppm == 0);
    for (uint32_t s = 0; s < LEAT_COUNT_OF(history); s++) {
        history[s] = leat_test_random(&random) % LEAT_OFFLINE_SAMPLE_NS;
        work(leat_test_random(&random) % APPS, history[s]);
        sample();
        EXPECT(is_share_of(gauge.utilisation_ppm, history, s, LEAT_OFFLINE_SAMPLES));
        EXPECT(is_share_of(gauge.lasting_ppm, history, s, LEAT_OFFLINE_LASTING));
    }
    /* Somebody else under the number begins where its counters are; one that goes takes nothing back. */
    take_away(1);
    add(1);
    work(1, UINT64_C(1) << 50);
    for (uint32_t s = 0; s <= LEAT_OFFLINE_SAMPLES; s++) {
        sample();
    }
    EXPECT(gauge.utilisation_ppm == 0);
    work(1, WORKERS * LEAT_OFFLINE_SAMPLE_NS);
    sample();
    EXPECT(is_about(1000000 / LEAT_OFFLINE_SAMPLES));
    take_away(1);
    sample();
    EXPECT(is_about(1000000 / LEAT_OFFLINE_SAMPLES));
    add(1);
    now_ns += 3600 * UINT64_C(1000000000); /* nobody looked for an hour */
    work(0, 5 * LEAT_OFFLINE_SAMPLE_NS);
    leat_offline_gauge_restart(&gauge);
    EXPECT(!gauge.known);
    sample();
    EXPECT(!gauge.known);
    sample();
    EXPECT(gauge.known && gauge.utilisation_ppm == 0);
}

/* The time of parked workers is nobody's. */
static void
test_parked(void)
{
    for (uint32_t w = 1; w < WORKERS; w++) {
        daemon->scale.workers[w].shape.cores = 0;
    }
    for (uint32_t s = 0; s <= LEAT_OFFLINE_SAMPLES; s++) {
        sample();
    }
    work(0, LEAT_OFFLINE_SAMPLE_NS);
    sample();
    EXPECT(is_about(1000000 / LEAT_OFFLINE_SAMPLES));
    for (uint32_t w = 1; w < WORKERS; w++) {
        daemon->scale.workers[w].shape.cores = 1;
    }
    sample(); /* from now on there are more */
    EXPECT(is_about(1000000 / (LEAT_OFFLINE_SAMPLES - 1 + WORKERS)));
}

/* A second is one however seldom somebody looks; and what is above the limit. */
static void
test_seldom_and_above(void)
{
    leat_offline_gauge_restart(&gauge);
    for (uint32_t s = 0; s < 30; s++) {
        now_ns += 4 * LEAT_OFFLINE_SAMPLE_NS;
        sample(); /* half a second later */
    }
    work(0, WORKERS * LEAT_OFFLINE_SAMPLE_NS);
    for (uint32_t s = 0; s < 21; s++) {
        EXPECT(is_about(s == 0 || s > 2 ? 0 : 100000));
        EXPECT(gauge.lasting_ppm <= 10000 && (s > 0 && s <= 20 ? gauge.lasting_ppm >= 9990 : gauge.lasting_ppm == 0));
        now_ns += 4 * LEAT_OFFLINE_SAMPLE_NS;
        sample();
    }
    EXPECT(gauge.lasting_ppm == 0);

    static const struct {
        uint32_t second_ppm, lasting_ppm;
        bool above;
    } cases[] = {{0, 0, false},           {1000000, 400000, false}, {1000000, 400001, true}, {200001, 400001, true},
                 {200000, 400001, false}, {0, 1000000, false},      {450000, 450000, true},  {1000000, 0, false}};
    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        const struct leat_offline_gauge seen = {.utilisation_ppm = cases[c].second_ppm, .lasting_ppm = cases[c].lasting_ppm};
        EXPECT(leat_offline_gauge_is_above(&seen, 400000) == cases[c].above);
    }
}

static void
set_state(uint32_t id, uint32_t place, enum leat_instance_state state)
{
    atomic_store_explicit(&daemon->applications[id]->instances.states[place], (uint8_t)state, memory_order_relaxed);
}

static void
set_owners(uint16_t first, uint16_t second, uint16_t third)
{
    const uint16_t owners[WORKERS] = {first, second, third};
    for (uint32_t w = 0; w < WORKERS; w++) {
        daemon->scale.workers[w].owner = owners[w];
    }
}

/* The last worker runs nothing of the application that is online, where others are the application's own. */
static void
test_own(void)
{
    set_state(2, 2 * WORKERS - 1, LEAT_INSTANCE_INTERFERED);
    work(2, 1);
    set_owners(LEAT_WORKER_FOR_ALL, 1, LEAT_WORKER_FOR_ALL);
    sample();
    EXPECT(is_slow(LEAT_INSTANCE_INTERFERED));
    set_owners(2, 1, LEAT_WORKER_FOR_ALL);
    sample();
    EXPECT(!is_slow(LEAT_INSTANCE_INTERFERED));
    set_owners(2, 1, 2);
    sample();
    EXPECT(is_slow(LEAT_INSTANCE_INTERFERED));
    set_owners(LEAT_WORKER_FOR_ALL, LEAT_WORKER_FOR_ALL, LEAT_WORKER_FOR_ALL);
    set_state(2, 2 * WORKERS - 1, LEAT_INSTANCE_ACTIVE);
    sample();
    EXPECT(!is_slow(LEAT_INSTANCE_INTERFERED));
}

static void
test_states(void)
{
    for (enum leat_instance_state state = LEAT_INSTANCE_OVERLOADED; state <= LEAT_INSTANCE_INTERFERED; state++) {
        for (uint32_t s = 0; s * LEAT_OFFLINE_SAMPLE_NS < LEAT_OFFLINE_RECENT_NS; s++) {
            sample(); /* what was asked for before this is long ago */
        }
        set_state(2, 2 * WORKERS - 1, state);
        sample();
        EXPECT(!is_slow(state)); /* nobody asks for it */
        work(3, 1);
        sample();
        EXPECT(!is_slow(state));
        work(2, 1);
        sample();
        EXPECT(is_slow(state));
        for (uint32_t s = 1; s * LEAT_OFFLINE_SAMPLE_NS < LEAT_OFFLINE_RECENT_NS; s++) {
            sample();
            EXPECT(is_slow(state));
        }
        sample();
        EXPECT(!is_slow(state));
        work(2, 1);
        sample();
        EXPECT(is_slow(state));
        set_state(2, 2 * WORKERS - 1, LEAT_INSTANCE_ACTIVE);
        sample();
        EXPECT(!is_slow(state));
        /* Seen for the first time, it may have been asked just now; or never. */
        for (uint64_t busy_ns = 0; busy_ns < 2; busy_ns++) {
            now_ns += LEAT_OFFLINE_RECENT_NS; /* the one before was asked long ago */
            take_away(2);
            add(2);
            set_state(2, 2 * WORKERS - 1, state);
            work(2, busy_ns);
            sample();
            EXPECT(is_slow(state) == (busy_ns > 0));
            for (uint32_t s = 1; s * LEAT_OFFLINE_SAMPLE_NS < LEAT_OFFLINE_RECENT_NS; s++) {
                sample();
                EXPECT(is_slow(state) == (busy_ns > 0));
            }
            sample();
            EXPECT(!is_slow(state));
        }
        set_state(2, 2 * WORKERS - 1, LEAT_INSTANCE_ACTIVE);
    }
}

/* Three workers of a core each: the first two share an L3, the third is in another package. */
static void
test_near(void)
{
    static const struct leat_worker_group group = {.count = WORKERS, .cores = 1};
    static const struct {
        const char *synthetic, *cpus[WORKERS];
        bool near[WORKERS]; /* to the second */
    } cases[] = {
        {"pack:2 node:1 l3:1 core:2 pu:1", {"0", "1", "2"}, {true, true, false}},
        {"pack:2 node:1 l3:2 core:2 pu:1", {"0", "2", "4"}, {true, true, false}}, /* L3s of their own, and one memory */
        {"pack:2 l3:1 node:2 core:2 pu:1", {"0", "2", "4"}, {true, true, false}}, /* memories of their own, and one L3 */
        {"pack:3 node:1 l3:1 core:2 pu:1", {"0", "2", "4"}, {false, true, false}},
    };

    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        const struct leat_topology_source source = {.root = "/nonexistent", .synthetic = cases[c].synthetic};
        struct leat_worker_group groups[WORKERS] = {group, group, group};
        struct leat_topology *topology;
        struct leat_placement *placement;
        struct leat_cores *cores;

        for (uint32_t w = 0; w < WORKERS; w++) {
            groups[w].count = 1;
            groups[w].cpus = cases[c].cpus[w];
        }
        const struct leat_placement_request request = {.dispatcher_cpu = LEAT_ANYWHERE, .groups = groups, .group_count = WORKERS};
        EXPECT(leat_topology_discover(&source, &topology) == LEAT_OK);
        EXPECT(leat_placement_make(topology, &request, &placement) == LEAT_OK);
        EXPECT(leat_cores_create(topology, placement, &cores) == LEAT_OK);
        daemon->options.cores = cores;
        daemon->options.pin = true;
        set_state(2, 2 * 1, LEAT_INSTANCE_INTERFERED); /* on the second */
        work(2, 1);
        sample();
        EXPECT(!gauge.overloaded && disturbs(cases[c].near[0], cases[c].near[1], cases[c].near[2]));
        set_state(2, 2 * 2 + 1, LEAT_INSTANCE_INTERFERED); /* and on the third */
        sample();
        EXPECT(disturbs(cases[c].near[0], true, true));
        daemon->options.pin = false; /* threads run anywhere */
        set_state(2, 2 * 2 + 1, LEAT_INSTANCE_ACTIVE);
        sample();
        EXPECT(disturbs(true, true, true));
        set_state(2, 2 * 1, LEAT_INSTANCE_ACTIVE);
        sample();
        EXPECT(disturbs(false, false, false));
        daemon->options.cores = NULL;
        leat_cores_destroy(cores);
        leat_placement_destroy(placement);
        leat_topology_destroy(topology);
    }
}

/* What is offline of an application goes to its own workers and those for all, and is held where all of these are. */
static void
test_left(void)
{
    static const struct {
        uint16_t owners[WORKERS];
        bool held[WORKERS], leaves, deals;
    } cases[] = {
        {{LEAT_WORKER_FOR_ALL, LEAT_WORKER_FOR_ALL, LEAT_WORKER_FOR_ALL}, {true, true, false}, true, false},
        {{LEAT_WORKER_FOR_ALL, LEAT_WORKER_FOR_ALL, LEAT_WORKER_FOR_ALL}, {true, true, true}, false, false},
        {{2, 1, LEAT_WORKER_FOR_ALL}, {true, false, false}, true, false},
        {{2, 1, LEAT_WORKER_FOR_ALL}, {true, false, true}, false, false},
        {{1, 3, LEAT_WORKER_FOR_ALL}, {true, true, false}, true, false},
        {{1, 3, LEAT_WORKER_FOR_ALL}, {false, true, true}, false, false},
        {{2, LEAT_WORKER_FOR_NOBODY, 2}, {true, false, true}, false, false},
        {{1, LEAT_WORKER_FOR_NOBODY, 3}, {true, false, true}, false, false},
        {{1, LEAT_WORKER_FOR_NOBODY, 3}, {true, false, false}, true, false},
        {{LEAT_WORKER_FOR_ALL, LEAT_WORKER_FOR_ALL, LEAT_WORKER_FOR_ALL}, {true, false, false}, false, true},
        {{2, 1, LEAT_WORKER_FOR_ALL}, {false, true, false}, true, true},
    };

    struct leat_application *app = daemon->applications[2];
    (void)snprintf(app->name, sizeof(app->name), "third");
    app->variant_count = 1;
    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        const struct leat_worker_set held = set_of(cases[c].held[0], cases[c].held[1], cases[c].held[2]);
        set_owners(cases[c].owners[0], cases[c].owners[1], cases[c].owners[2]);
        app->router = cases[c].deals ? &leat_router_dealt : &leat_router_fcfs;
        EXPECT(leat_daemon_leaves_workers(daemon, "third", &held) == cases[c].leaves);
        EXPECT(leat_daemon_leaves_workers(daemon, "nothing", &held));
    }
    app->name[0] = '\0';
    app->variant_count = 0;
}

int
main(void)
{
    leat_test_init();
    daemon = calloc(1, sizeof(*daemon));
    EXPECT(daemon != NULL && pthread_mutex_init(&daemon->mutex, NULL) == 0);
    EXPECT(pthread_mutex_init(&daemon->scale.mutex, NULL) == 0);
    daemon->options.worker_count = WORKERS;
    for (uint32_t w = 0; w < WORKERS; w++) {
        daemon->scale.workers[w].shape.cores = 1;
        daemon->scale.workers[w].owner = LEAT_WORKER_FOR_ALL;
    }
    for (uint32_t id = 0; id < APPS; id++) {
        add(id);
    }
    test_utilisation();
    test_parked();
    test_seldom_and_above();
    test_states();
    test_own();
    test_near();
    test_left();
    for (uint32_t id = 0; id < APPS; id++) {
        take_away(id);
    }
    EXPECT(pthread_mutex_destroy(&daemon->mutex) == 0 && pthread_mutex_destroy(&daemon->scale.mutex) == 0);
    free(daemon);
    return 0;
}
