/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A run reaches every member once, its writes are visible afterwards, no wake-up is lost whatever
 *          the pauses between runs, a barrier holds everyone back, each part of a divided run is taken once, an idle team takes no CPU time, and a team that
 *          changes its size runs those who are in it and nobody else.
 * Method   Random team sizes, spin budgets and pauses; plain (not atomic) data on purpose, so that the
 *          thread sanitizer and the comparison both see a missing order. Each case runs under an alarm: a
 *          lost wake-up would hang.
 */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/align.h"
#include "base/clock.h"
#include "kernels/team.h"
#include "tests/leat_test.h"

enum {
    SIZE_MAX_TESTED = 9,
    WORDS = 16,
    ROUNDS = 400,
    BARRIERS = 5,
    WAKE_UPS = 50000,
    PARTS_MAX = 40,
    TIME_LIMIT_S = 120
};

struct work {
    uint64_t input;                                /* W: leader before the run */
    uint64_t output[SIZE_MAX_TESTED][WORDS];       /* W: each member its row */
    uint64_t stage[BARRIERS][SIZE_MAX_TESTED];     /* W: each member its column, row by row */
    uint64_t seen[SIZE_MAX_TESTED];                /* sum of what a member saw of the others */
    uint32_t size, barrier_members;
    uint64_t slow_ns; /* the highest member takes that long */
    struct leat_team *team;
};

static void
pause_ns(uint64_t ns)
{
    struct timespec t = {.tv_sec = 0, .tv_nsec = (long)ns};
    if (ns > 0) {
        (void)nanosleep(&t, NULL);
    }
}

static void
fill(void *context, uint32_t member, uint32_t size)
{
    struct work *work = context;
    EXPECT(size == work->size && member < size);
    if (member + 1 == size) {
        pause_ns(work->slow_ns);
    }
    for (uint32_t i = 0; i < WORDS; i++) {
        work->output[member][i] += work->input + member;
    }
}

static void
stages(void *context, uint32_t member, uint32_t size)
{
    struct work *work = context;
    (void)size;
    if (member >= work->barrier_members) {
        return;
    }
    for (uint32_t b = 0; b < BARRIERS; b++) {
        work->stage[b][member] = work->input + b;
        leat_team_barrier(work->team, work->barrier_members);
        for (uint32_t m = 0; m < work->barrier_members; m++) {
            work->seen[member] += work->stage[b][m];
        }
    }
}

static void
one_team(uint32_t size, uint64_t spin_ns, uint32_t rounds, uint64_t *random)
{
    static struct work work;
    const struct leat_team_options options = {.size = size, .spin_ns = spin_ns};
    uint64_t sum = 0;

    memset(&work, 0, sizeof(work));
    work.size = size;
    EXPECT(leat_team_create(&options, &work.team) == LEAT_OK);
    EXPECT(leat_team_size(work.team) == size);
    for (uint32_t round = 0; round < rounds; round++) {
        work.input = leat_test_random(random) % 1000;
        work.slow_ns = round % 16 == 3 ? leat_test_random(random) % 200000 : 0;
        sum += work.input;
        leat_team_run(work.team, fill, &work);
        for (uint32_t m = 0; m < size; m++) {
            EXPECT(work.output[m][0] == sum + (uint64_t)m * (round + 1));
            EXPECT(memcmp(&work.output[m][0], &work.output[m][1], (WORDS - 1) * sizeof(uint64_t)) == 0);
        }
        if (round % 4 == 0) {
            const uint32_t n = 1 + (uint32_t)(leat_test_random(random) % size);
            work.barrier_members = n;
            memset(work.seen, 0, sizeof(work.seen));
            leat_team_run(work.team, stages, &work);
            for (uint32_t m = 0; m < n; m++) {
                EXPECT(work.seen[m] == n * (BARRIERS * work.input + BARRIERS * (BARRIERS - 1) / 2));
            }
        }
        /* From back to back to longer than the spin budget: every way of meeting a parking helper. */
        const uint64_t choice = leat_test_random(random) % 16;
        pause_ns(choice == 0 ? 100000 : choice == 1 ? spin_ns : 0);
    }
    leat_team_destroy(work.team);
}

static void
test_random_teams(void)
{
    static const uint64_t spins_ns[] = {0, 1000, 20000, 200000};
    uint64_t random = leat_test_seed;

    for (uint32_t size = 1; size <= SIZE_MAX_TESTED; size++) {
        for (size_t s = 0; s < LEAT_COUNT_OF(spins_ns); s++) {
            one_team(size, spins_ns[s], ROUNDS / size, &random);
        }
    }
    for (int i = 0; i < 50; i++) { /* stop while the helpers are still on their way to the first wait */
        one_team(1 + (uint32_t)(leat_test_random(&random) % SIZE_MAX_TESTED), 0, 0, &random);
    }
}

static void
stagger(void *context, uint32_t member, uint32_t size)
{
    uint64_t *random = (uint64_t *)context + member * 16; /* a cache line or more from the next */
    (void)size;
    for (uint64_t i = leat_test_random(random) % 64; i > 0; i--) {
        leat_spin_pause();
    }
}

/* Both go to sleep at once, time and again, just as the other ends what they wait for. */
static void
test_no_wake_up_is_lost(void)
{
    const struct leat_team_options options = {.size = 2};
    uint64_t random[2][16] = {{leat_test_seed}, {leat_test_seed + 1}};
    struct leat_team *team;

    EXPECT(leat_team_create(&options, &team) == LEAT_OK);
    for (uint32_t run = 0; run < WAKE_UPS; run++) {
        leat_team_run(team, stagger, random);
        stagger(random, 0, 1);
    }
    leat_team_destroy(team);
}

struct shares {
    struct leat_team *team;
    uint32_t members, parts;
    uint32_t takers[PARTS_MAX];      /* W: who takes the part, plain: twice would be a race */
    uint32_t count[SIZE_MAX_TESTED]; /* of parts, each member its own */
    uint32_t order[SIZE_MAX_TESTED][PARTS_MAX];
    _Atomic uint32_t taken; /* by all */
    uint32_t
        waits; /* that member keeps its first part until all others are taken; members: nobody */
};

static void
take_all(void *context, uint32_t member, uint32_t size)
{
    struct shares *shares = context;
    uint32_t part;

    (void)size;
    while (leat_team_take(shares->team, member, &part)) {
        EXPECT(part < shares->parts && member < shares->members && shares->takers[part] == 0);
        shares->takers[part] = member + 1;
        shares->order[member][shares->count[member]++] = part;
        (void)atomic_fetch_add_explicit(&shares->taken, 1, memory_order_relaxed);
        while (member == shares->waits &&
               atomic_load_explicit(&shares->taken, memory_order_relaxed) < shares->parts) {
            (void)sched_yield();
        }
    }
}

/* Each part goes to one member, to its own first and in order; what a slow one leaves, the others take from its end. */
static void
test_parts(void)
{
    uint64_t random = leat_test_seed;

    for (uint32_t size = 1; size <= SIZE_MAX_TESTED; size++) {
        struct leat_team *team;
        EXPECT(leat_team_create(&(struct leat_team_options){.size = size, .spin_ns = 20000},
                                &team) == LEAT_OK);
        for (uint32_t round = 0; round < ROUNDS / size; round++) {
            struct shares s = {.team = team,
                               .members = 1 + (uint32_t)(leat_test_random(&random) % size)};
            s.parts = (uint32_t)(leat_test_random(&random) % (PARTS_MAX + 1));
            s.waits = s.members > 1 ? (uint32_t)(leat_test_random(&random) % (s.members + 1))
                                    : 1; /* not for itself */
            leat_team_divide(team, s.members, s.parts);
            leat_team_run(team, take_all, &s);
            EXPECT(atomic_load_explicit(&s.taken, memory_order_relaxed) == s.parts);
            for (uint32_t m = 0; m < s.members; m++) {
                const uint32_t first = m * s.parts / s.members, end = (m + 1) * s.parts / s.members;
                uint32_t own = 0;
                for (uint32_t i = 0; i < s.count[m]; i++) {
                    EXPECT(s.takers[s.order[m][i]] == m + 1);
                    if (s.order[m][i] >= first && s.order[m][i] < end) {
                        EXPECT(own == i && s.order[m][i] == first + i);
                        own++;
                    }
                }
                EXPECT(m != s.waits || s.count[m] <= 1); /* its first, or all were gone */
            }
            EXPECT(!leat_team_take(team, 0, &s.parts));
        }
        leat_team_destroy(team);
    }
}

static uint64_t
cpu_time_ns(void)
{
    struct timespec t;
    EXPECT(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void
test_idle_team_burns_nothing(void)
{
    struct work work = {.size = 4};
    const struct leat_team_options options = {.size = 4, .spin_ns = 50000};

    EXPECT(leat_team_create(&options, &work.team) == LEAT_OK);
    leat_team_run(work.team, fill, &work);
    pause_ns(20000000); /* the helpers are parked by now */
    const uint64_t before_ns = cpu_time_ns();
    pause_ns(300000000);
    EXPECT(cpu_time_ns() - before_ns < 30000000);
    leat_team_run(work.team, fill, &work);
    EXPECT(work.output[3][0] == 6);
    leat_team_destroy(work.team);
}

static void
where(void *context, uint32_t member, uint32_t size)
{
    uint32_t *cpus = context;
    (void)size;
    cpus[member] = (uint32_t)sched_getcpu();
}

static void
test_members_stay_on_their_cpus(void)
{
    cpu_set_t allowed;
    uint32_t cpus[2], seen[2], found = 0;
    struct leat_team *team;

    EXPECT(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
    for (uint32_t c = 0; c < CPU_SETSIZE && found < 2; c++) {
        if (CPU_ISSET(c, &allowed)) {
            cpus[found++] = c;
        }
    }
    if (found < 2) {
        (void)printf("one CPU: pinning not tested\n");
        return;
    }
    EXPECT(leat_team_create(&(struct leat_team_options){.cpus = cpus, .size = 2, .size_max = 3}, &team) == LEAT_OK);
    EXPECT(leat_team_cpu(team, 1) == cpus[1] && leat_team_cpu(team, 2) == cpus[0]);
    for (int i = 0; i < 100; i++) {
        leat_team_run(team, where, seen);
        EXPECT(seen[0] == cpus[0] && seen[1] == cpus[1]);
    }
    leat_team_destroy(team);
    /* A CPU that is not there is an error and no crash. */
    const uint32_t wrong[2] = {cpus[0], CPU_SETSIZE - 1};
    if (!CPU_ISSET(CPU_SETSIZE - 1, &allowed)) {
        team = NULL;
        EXPECT(leat_team_create(&(struct leat_team_options){.cpus = wrong, .size = 2}, &team) != LEAT_OK && team == NULL);
    }
    EXPECT(sched_setaffinity(0, sizeof(allowed), &allowed) == 0);
}

/* The state of a thread of this process, as /proc has it. */
static char
state_of(int tid)
{
    char path[64], line[256], state = '?';

    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(path, "r");
    EXPECT(file != NULL && fgets(line, sizeof(line), file) != NULL && fclose(file) == 0);
    EXPECT(sscanf(strrchr(line, ')'), ") %c", &state) == 1);
    return state;
}

static void
note_thread(void *context, uint32_t member, uint32_t size)
{
    int *tids = context;
    (void)size;
    tids[member] = gettid();
}

/* Helpers that would spin for ever sleep once they are told not to. */
static void
test_spin_can_be_changed(void)
{
    const struct leat_team_options options = {.size = 3, .spin_ns = UINT64_MAX / 4};
    struct leat_team *team;
    int tids[3] = {0};

    EXPECT(leat_team_create(&options, &team) == LEAT_OK);
    leat_team_run(team, note_thread, tids);
    leat_team_set_spin(team, 0);
    for (uint32_t m = 1; m < 3; m++) {
        while (state_of(tids[m]) != 'S') {
            (void)sched_yield();
        }
    }
    leat_team_run(team, note_thread, tids);
    leat_team_destroy(team);
}

static _Thread_local uint32_t entered, entered_node;

static void
enter(uint32_t node)
{
    entered++;
    entered_node = node;
}

static void
expect_entered(void *context, uint32_t member, uint32_t size)
{
    (void)context;
    (void)size;
    EXPECT(entered == (member > 0) && entered_node == (member > 0 ? 7 : 0));
}

static void
test_helpers_enter_first(void)
{
    const struct leat_team_options options = {.size = 4, .enter = enter, .node = 7};
    struct leat_team *team;

    EXPECT(leat_team_create(&options, &team) == LEAT_OK);
    leat_team_run(team, expect_entered, NULL);
    leat_team_run(team, expect_entered, NULL);
    leat_team_destroy(team);
}

static void
note_size(void *context, uint32_t member, uint32_t size)
{
    uint32_t *sizes = context;
    sizes[member] = size;
}

/* Between any two runs the team takes another size: those who are in it run, once, and the others do not. */
static void
test_random_resizes(uint64_t spin_ns)
{
    static struct work work;
    const struct leat_team_options options = {.size = 3, .size_max = SIZE_MAX_TESTED, .spin_ns = spin_ns};
    uint64_t random = leat_test_seed, sums[SIZE_MAX_TESTED] = {0};

    memset(&work, 0, sizeof(work));
    work.size = 3;
    EXPECT(leat_team_create(&options, &work.team) == LEAT_OK);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        EXPECT(leat_team_size(work.team) == work.size);
        work.input = leat_test_random(&random) % 1000;
        work.slow_ns = round % 32 == 3 ? leat_test_random(&random) % 100000 : 0;
        for (uint64_t runs = leat_test_random(&random) % 3; runs > 0; runs--) {
            leat_team_run(work.team, fill, &work);
            for (uint32_t m = 0; m < work.size; m++) {
                sums[m] += work.input + m;
            }
        }
        for (uint32_t m = 0; m < SIZE_MAX_TESTED; m++) {
            EXPECT(work.output[m][0] == sums[m]);
        }
        work.size = 1 + (uint32_t)(leat_test_random(&random) % SIZE_MAX_TESTED);
        leat_team_resize(work.team, work.size, round);
        EXPECT(leat_team_class(work.team) == round);
    }
    leat_team_destroy(work.team);
}

/* Helpers that would spin for ever sleep once they are beyond the size, and serve again when they are not, where they were put. */
static void
test_who_is_beyond_the_size_sleeps(void)
{
    const struct leat_team_options options = {.size = 4, .spin_ns = UINT64_MAX / 4};
    uint32_t sizes[4] = {0}, seen[4];
    int tids[4] = {0};
    struct leat_team *team;
    cpu_set_t allowed;
    uint32_t cpu = 0;

    EXPECT(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
    while (!CPU_ISSET(cpu, &allowed)) {
        cpu++;
    }
    EXPECT(leat_team_create(&options, &team) == LEAT_OK);
    leat_team_run(team, note_thread, tids);
    leat_team_resize(team, 2, 0);
    leat_team_run(team, note_size, sizes); /* between a run and its next, and while others run */
    EXPECT(sizes[0] == 2 && sizes[1] == 2 && sizes[2] == 0 && sizes[3] == 0);
    for (uint32_t m = 2; m < 4; m++) {
        while (state_of(tids[m]) != 'S') {
            (void)sched_yield();
        }
        EXPECT(leat_team_cpu(team, m) == UINT32_MAX && leat_team_pin(team, m, cpu) == LEAT_OK && leat_team_cpu(team, m) == cpu);
    }
    EXPECT(CPU_ISSET(CPU_SETSIZE - 1, &allowed) || leat_team_pin(team, 3, CPU_SETSIZE - 1) != LEAT_OK);
    EXPECT(CPU_ISSET(CPU_SETSIZE - 1, &allowed) || leat_team_cpu(team, 3) == cpu); /* where it still is */
    leat_team_resize(team, 4, 0);
    leat_team_run(team, note_size, sizes);
    EXPECT(sizes[0] == 4 && sizes[1] == 4 && sizes[2] == 4 && sizes[3] == 4);
    leat_team_run(team, where, seen);
    EXPECT(seen[2] == cpu && seen[3] == cpu);
    leat_team_destroy(team);
}

static void
test_no_team(void)
{
    struct work work = {.size = 1, .input = 5};
    leat_team_run(NULL, fill, &work);
    EXPECT(work.output[0][0] == 5 && leat_team_size(NULL) == 1);
    leat_team_barrier(NULL, 1);
    leat_team_destroy(NULL);
}

int
main(void)
{
    leat_test_init();
    (void)alarm(TIME_LIMIT_S);
    test_no_team();
    test_random_teams();
    test_no_wake_up_is_lost();
    test_parts();
    test_idle_team_burns_nothing();
    test_members_stay_on_their_cpus();
    test_spin_can_be_changed();
    test_helpers_enter_first();
    test_random_resizes(0);
    test_random_resizes(20000);
    test_who_is_beyond_the_size_sleeps();
    return 0;
}
