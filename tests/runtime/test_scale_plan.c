/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Workers are given no more cores than there are, only sizes that they can have, and as many instances as are
 *          wanted where there are cores and workers for them; who serves goes on serving; a plan that is carried out is
 *          planned again as it is.
 * Method   Random machines, whose plans are carried out, with steps by hand for who goes and who comes.
 */
#include <string.h>

#include "base/align.h"
#include "runtime/application.h"
#include "runtime/scale_plan.h"
#include "tests/leat_test.h"

enum { WORLDS = 2000, STEPS = 20, POOLS = 3, WORKERS = 24, APPLICATIONS = 4 };

#define SIZES_1_2_4 0xbu

static uint64_t random_state;

static uint32_t
below(uint32_t n)
{
    return (uint32_t)(leat_test_random(&random_state) % n);
}

static void
test_sizes(void)
{
    EXPECT(leat_scale_least(0) == 0 && leat_scale_most(0, 5) == 0);
    EXPECT(leat_scale_least(SIZES_1_2_4) == 1 && leat_scale_least(0x80000000u) == 32);
    EXPECT(leat_scale_most(SIZES_1_2_4, 0) == 0 && leat_scale_most(SIZES_1_2_4, 1) == 1);
    EXPECT(leat_scale_most(SIZES_1_2_4, 3) == 2 && leat_scale_most(SIZES_1_2_4, 4) == 4 &&
           leat_scale_most(SIZES_1_2_4, 99) == 4);
    EXPECT(leat_scale_most(0x80000000u, 32) == 32 && leat_scale_most(0x80000000u, 31) == 0);
}

/* ---- By hand ------------------------------------------------------------------------------------------ */

static struct leat_scale_worker
worker_of(uint32_t application, uint32_t cores, bool starting)
{
    return (struct leat_scale_worker){
        .sizes = SIZES_1_2_4, .cores = cores, .has = cores, .application = application, .starting = starting};
}

static void
assign(struct leat_scale_worker *workers, uint32_t count, uint32_t free_cores, const struct leat_scale_wanted *wanted,
       uint32_t applications)
{
    leat_scale_assign(&(struct leat_scale_plan_input){.workers = workers,
                                                      .worker_count = count,
                                                      .free_cores = &free_cores,
                                                      .pool_count = 1,
                                                      .wanted = wanted,
                                                      .application_count = applications,
                                                      .parks = true},
                      workers);
    for (uint32_t w = 0; w < count; w++) {
        workers[w].has = workers[w].cores;
    }
}

static void
test_who_goes_and_comes(void)
{
    struct leat_scale_worker workers[4] = {worker_of(0, 2, false), worker_of(0, 2, true), worker_of(0, 2, false),
                                           worker_of(LEAT_SCALE_NOBODY, 0, false)};
    const struct leat_scale_wanted fewer[] = {{.instances = 2, .cores = 2}}, least[] = {{.instances = 1, .cores = 4}};
    const struct leat_scale_wanted later[] = {{.instances = 2, .cores = 4, .delays = true}};
    const struct leat_scale_wanted both[] = {{.instances = 2, .cores = 2}, {.instances = 2, .cores = 1}};

    assign(workers, 4, 0, fewer, 1); /* the one that has not begun */
    EXPECT(workers[0].application == 0 && workers[2].application == 0 && workers[0].cores == 2 && workers[2].cores == 2);
    EXPECT(workers[1].application == LEAT_SCALE_NOBODY && workers[1].cores == 0 && workers[3].cores == 0);
    assign(workers, 4, 2, least, 1); /* the last */
    EXPECT(workers[0].application == 0 && workers[0].cores == 4 && workers[2].application == LEAT_SCALE_NOBODY);
    assign(workers, 4, 2, later, 1); /* it has the least, until it has begun */
    EXPECT(workers[0].cores == 4 && workers[1].application == 0 && workers[1].starting && workers[1].cores == 1);
    workers[1].starting = false;
    assign(workers, 4, 1, later, 1); /* six in all: the second has what is left */
    EXPECT(workers[0].cores == 4 && workers[1].cores == 2);
    assign(workers, 4, 0, both, 2);
    EXPECT(workers[0].cores == 2 && workers[1].cores == 2 && workers[2].application == 1 && workers[3].application == 1);
    EXPECT(workers[2].cores == 1 && workers[3].cores == 1 && !workers[3].starting);
}

/* Who waits for cores goes first, and who has not let go of any comes last. */
static void
test_who_is_not_there_yet(void)
{
    struct leat_scale_worker workers[3] = {worker_of(0, 1, false), worker_of(0, 2, false), worker_of(0, 1, false)};
    const struct leat_scale_wanted two[] = {{.instances = 2, .cores = 1}}, three[] = {{.instances = 3, .cores = 1}};
    const struct leat_scale_wanted none[] = {{.instances = 0, .cores = 1}}, one[] = {{.instances = 1, .cores = 1}};

    workers[1].has = 0;
    assign(workers, 3, 0, two, 1);
    EXPECT(workers[0].application == 0 && workers[2].application == 0 && workers[1].application == LEAT_SCALE_NOBODY);
    assign(workers, 3, 2, none, 1);
    workers[0].has = 1;
    workers[1].has = 2;
    assign(workers, 3, 4, one, 1);
    EXPECT(workers[2].application == 0 && workers[0].cores + workers[1].cores == 0);
    workers[0].has = 1;
    workers[1].has = 2;
    assign(workers, 3, 3, three, 1); /* there are no others */
    EXPECT(workers[0].application == 0 && workers[1].application == 0 && workers[2].application == 0);
}

/* Who is nobody's has what is left, and gives it back to those that are to have it. */
static void
test_nobodys(void)
{
    struct leat_scale_worker workers[3] = {worker_of(0, 1, false), worker_of(LEAT_SCALE_NOBODY, 0, false),
                                           worker_of(LEAT_SCALE_NOBODY, 0, false)};
    struct leat_scale_wanted wanted[] = {{.instances = 1, .cores = 1}};
    uint32_t free_cores = 3;
    const struct leat_scale_plan_input input = {.workers = workers,
                                                .worker_count = 3,
                                                .free_cores = &free_cores,
                                                .pool_count = 1,
                                                .wanted = wanted,
                                                .application_count = 1};

    leat_scale_assign(&input, workers);
    EXPECT(workers[0].cores == 1 && workers[1].cores == 1 && workers[2].cores == 1);
    free_cores = 1;
    wanted[0].cores = 2;
    leat_scale_assign(&input, workers);
    EXPECT(workers[0].cores == 2 && workers[1].cores == 1 && workers[2].cores == 1);
    free_cores = 0;
    wanted[0].cores = 4;
    leat_scale_assign(&input, workers);
    EXPECT(workers[0].cores == 4 && workers[1].cores == 0 && workers[2].cores == 0);
    EXPECT(workers[0].application == 0 && workers[1].application == LEAT_SCALE_NOBODY);
    wanted[0] = (struct leat_scale_wanted){.instances = 2, .cores = 2};
    leat_scale_assign(&input, workers); /* who comes has it too */
    EXPECT(workers[0].cores == 2 && workers[1].cores == 2 && workers[1].application == 0 && workers[2].cores == 0);
}

/* Who has none has one before another has more, with the cores of whose worker goes. */
static void
test_firsts(void)
{
    struct leat_scale_worker workers[3] = {worker_of(0, 1, false), worker_of(0, 1, false),
                                           worker_of(LEAT_SCALE_NOBODY, 0, false)};
    const struct leat_scale_wanted two[] = {{.instances = 3, .cores = 1}, {.instances = 1, .cores = 1}};
    const struct leat_scale_wanted three[] = {
        {.instances = 1, .cores = 2}, {.instances = 1, .cores = 1}, {.instances = 1, .cores = 1}};

    assign(workers, 3, 1, two, 2); /* there is one core */
    EXPECT(workers[0].application == 0 && workers[1].application == 0 && workers[2].application == 1);
    assign(workers, 3, 0, three, 3); /* none but that which one gives */
    EXPECT(workers[0].application == 0 && workers[1].application == 2 && workers[2].application == 1);
    EXPECT(workers[0].cores == 1 && workers[1].cores == 1 && workers[2].cores == 1);
}

/* A core that went elsewhere: who cannot have the least waits until it can, and is nobody's meanwhile. */
static void
test_missing_cores(void)
{
    struct leat_scale_worker workers[2] = {worker_of(0, 1, false), worker_of(0, 0, false)};
    const struct leat_scale_wanted wanted[] = {{.instances = 2, .cores = 1}};

    assign(workers, 2, 0, wanted, 1);
    EXPECT(workers[0].application == 0 && workers[0].cores == 1);
    EXPECT(workers[1].application == LEAT_SCALE_NOBODY && workers[1].cores == 0);
    assign(workers, 2, 1, wanted, 1);
    EXPECT(workers[1].application == 0 && workers[1].cores == 1);
}

/* ---- Whatever happens ---------------------------------------------------------------------------------- */

struct world {
    struct leat_scale_worker workers[WORKERS];
    uint32_t worker_count, free_cores[POOLS];
    struct leat_scale_wanted wanted[APPLICATIONS];
    bool parks;
};

static void
make(struct world *world)
{
    static const uint32_t sizes[] = {1, 0x3, SIZES_1_2_4, 0x8b, 0x4, 0};

    world->worker_count = 1 + below(WORKERS);
    for (uint32_t n = 0; n < POOLS; n++) {
        world->free_cores[n] = below(12);
    }
    for (uint32_t w = 0; w < world->worker_count; w++) {
        const uint32_t own = sizes[below(LEAT_COUNT_OF(sizes))];
        world->workers[w] = (struct leat_scale_worker){.pool = below(POOLS),
                                                       .class = below(2),
                                                       .sizes = own,
                                                       .cores = leat_scale_most(own, below(9)),
                                                       .has = below(9),
                                                       .application = LEAT_SCALE_NOBODY};
    }
}

static struct leat_scale_plan_input
input_of(const struct world *world)
{
    return (struct leat_scale_plan_input){.workers = world->workers,
                                          .worker_count = world->worker_count,
                                          .free_cores = world->free_cores,
                                          .pool_count = POOLS,
                                          .wanted = world->wanted,
                                          .application_count = APPLICATIONS,
                                          .parks = world->parks};
}

static uint32_t
count_of(const struct leat_scale_worker *workers, uint32_t count, uint32_t application)
{
    uint32_t has = 0;
    for (uint32_t w = 0; w < count; w++) {
        has += workers[w].application == application;
    }
    return has;
}

static void
check(const struct world *world, const struct leat_scale_worker *planned)
{
    uint32_t left[POOLS];

    memcpy(left, world->free_cores, sizeof(left));
    for (uint32_t w = 0; w < world->worker_count; w++) {
        left[world->workers[w].pool] += world->workers[w].cores;
    }
    for (uint32_t w = 0; w < world->worker_count; w++) {
        const struct leat_scale_worker *worker = &planned[w], *before = &world->workers[w];
        EXPECT(worker->pool == before->pool && worker->class == before->class &&
               worker->sizes == before->sizes);
        EXPECT(worker->cores == 0 || (worker->sizes >> (worker->cores - 1) & 1) != 0);
        EXPECT(worker->cores <= left[worker->pool]);
        left[worker->pool] -= worker->cores;
        EXPECT(!worker->starting ||
               (worker->application != LEAT_SCALE_NOBODY && worker->cores == leat_scale_least(worker->sizes)));
        if (worker->application != LEAT_SCALE_NOBODY) {
            const struct leat_scale_wanted *wanted = &world->wanted[worker->application];
            EXPECT(worker->cores == leat_scale_least(worker->sizes) || worker->cores <= wanted->cores);
            EXPECT(before->application != LEAT_SCALE_NOBODY || worker->class == wanted->class);
            EXPECT(before->application == worker->application || before->application == LEAT_SCALE_NOBODY ||
                   count_of(world->workers, world->worker_count, before->application) >
                       world->wanted[before->application].instances ||
                   before->cores < leat_scale_least(before->sizes));
        } else if (world->parks) {
            EXPECT(worker->cores == 0);
        }
    }
    for (uint32_t a = 0; a < APPLICATIONS; a++) {
        const uint32_t has = count_of(planned, world->worker_count, a);
        EXPECT(has <= world->wanted[a].instances);
        for (uint32_t w = 0; w < world->worker_count && has < world->wanted[a].instances;
             w++) { /* nobody else could serve */
            const struct leat_scale_worker *worker = &planned[w];
            EXPECT(worker->application != LEAT_SCALE_NOBODY ||
                   worker->class != world->wanted[a].class || worker->sizes == 0 ||
                   (worker->cores == 0 && left[worker->pool] < leat_scale_least(worker->sizes)));
        }
    }
}

static void
test_random_worlds(void)
{
    struct leat_scale_worker planned[WORKERS], again[WORKERS];
    struct world world = {0};

    for (uint32_t n = 0; n < WORLDS; n++) {
        make(&world);
        for (uint32_t step = 0; step < STEPS; step++) {
            world.parks = below(4) > 0;
            for (uint32_t a = 0; a < APPLICATIONS; a++) {
                world.wanted[a] = (struct leat_scale_wanted){
                    .instances = below(5), .cores = 1 + below(8), .class = below(2), .delays = below(3) == 0};
            }
            const struct leat_scale_plan_input now = input_of(&world);
            leat_scale_assign(&now, planned);
            check(&world, planned);
            for (uint32_t w = 0; w < world.worker_count; w++) { /* carried out */
                world.free_cores[world.workers[w].pool] +=
                    world.workers[w].cores - planned[w].cores;
            }
            memcpy(world.workers, planned, sizeof(planned));
            leat_scale_assign(&now, again);
            EXPECT(memcmp(again, planned, world.worker_count * sizeof(planned[0])) == 0);
            for (uint32_t w = 0; w < world.worker_count; w++) {
                world.workers[w].starting = world.workers[w].starting && below(2) == 0;
                world.workers[w].has = below(2) == 0 ? world.workers[w].cores : below(9);
            }
            if (below(5) == 0) { /* somebody else takes what is free */
                world.free_cores[below(POOLS)] = 0;
            }
        }
    }
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    test_sizes();
    test_who_goes_and_comes();
    test_who_is_not_there_yet();
    test_nobodys();
    test_firsts();
    test_missing_cores();
    test_random_worlds();
    return 0;
}
