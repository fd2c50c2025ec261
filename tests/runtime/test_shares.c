/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Two applications before the same workers, each with a load of a little less than half of what all can do: with
 *          policies for all workers far too many queries are late, with policies for a share of half of them hardly any. The
 *          same with one policy for all that is told of the share. Until shares are told, a second after the first arrival, harm is
 *          done that does not last.
 * Method   Selector mdp with policies made here, on a virtual clock: Poisson arrivals, times as profiled, what cannot be in time given up, the application
 *          whose oldest query waited longest first, idle workers shown as the dispatcher shows them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/policy_make.h"
#include "sched/policy.h"
#include "tests/leat_test.h"

enum { APPS = 2, WORKERS = 8, VARIANTS = 3, ITEMS = 8, QUERIES = 20000, SHOWN = 64 };
#define OBJECTIVE_NS UINT64_C(100000000)
#define LOOK_NS      UINT64_C(1000000)
#define TOLD_NS      UINT64_C(1000000000) /* shares are, after the first arrival */

static const char *const names[VARIANTS] = {"good", "fair", "quick"};
static const uint32_t accuracy_ppm[VARIANTS] = {900000, 700000, 500000};
static uint64_t latency_ns[VARIANTS * ITEMS];
static struct leat_sched_variant variants[VARIANTS];

static struct app {
    struct leat_sched_query queries[QUERIES]; /* those from head on wait */
    uint32_t head, tail, running, late, answered, late_begun; /* late_begun: of those that came before TOLD_NS + 1 s */
    uint64_t next_ns; /* the next arrival */
    void *state;
} apps[APPS];
static struct {
    uint64_t end_ns; /* UINT64_MAX: idle */
    uint32_t app;
} workers[WORKERS];
static uint64_t random_state;

static uint64_t
gap_ns(double rate_qps)
{
    const double part = ((double)(leat_test_random(&random_state) >> 11) + 0.5) * 0x1p-53;
    return (uint64_t)(-log(part) * 1e9 / rate_qps);
}

static uint64_t
predict(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    (void)profiles;
    (void)application;
    (void)worker_class;
    return latency_ns[variant * ITEMS + items - 1];
}

/* Has the application decide for an idle worker; false: it holds. */
static bool
decide(struct app *app, uint32_t share, uint32_t idle, uint32_t w, uint64_t now_ns, uint32_t rate_qps)
{
    const struct leat_sched_worker worker = {.free_at_ns = now_ns, .depth = 1};
    const uint32_t waiting = app->tail - app->head, left = share > app->running ? share - app->running : 1;
    struct leat_sched_query *pending = &app->queries[app->head];
    const struct leat_select_input input = {.now_ns = now_ns,
                                            .pending = pending,
                                            .pending_count = waiting < SHOWN ? waiting : SHOWN,
                                            .waiting_count = waiting,
                                            .variants = variants,
                                            .variant_count = VARIANTS,
                                            .worker = &worker,
                                            .worker_count = share,
                                            .idle_count = left < idle ? left : idle,
                                            .rate_qps = rate_qps,
                                            .rising_qps = rate_qps,
                                            .predict = predict};
    const struct leat_selection chosen = leat_selector_mdp.select(app->state, &input);

    if (chosen.queries == 0) {
        EXPECT(chosen.hold);
        return false;
    }
    const uint64_t end_ns = now_ns + predict(NULL, 0, chosen.variant, 0, chosen.queries);
    for (uint32_t q = 0; q < chosen.queries; q++) {
        const bool late = pending[chosen.skip + q].deadline_ns < end_ns;
        app->late += late;
        app->late_begun += late && pending[chosen.skip + q].arrival_ns < 2 * TOLD_NS;
    }
    memmove(pending + chosen.queries, pending, chosen.skip * sizeof(*pending)); /* they wait on */
    app->head += chosen.queries;
    app->answered += chosen.queries;
    app->running++;
    workers[w].end_ns = end_ns;
    workers[w].app = (uint32_t)(app - apps);
    return true;
}

static void
decide_all(uint32_t share, uint64_t now_ns, uint32_t rate_qps)
{
    uint32_t idle = 0, held = 0; /* held: bit a, the application waits for more */

    for (struct app *app = apps; app < apps + APPS; app++) { /* those that cannot be in time any more are given up */
        while (app->head < app->tail &&
               app->queries[app->head].deadline_ns < now_ns + predict(NULL, 0, VARIANTS - 1, 0, 1)) {
            app->late_begun += app->queries[app->head].arrival_ns < 2 * TOLD_NS;
            app->late++;
            app->answered++;
            app->head++;
        }
    }

    for (uint32_t w = 0; w < WORKERS; w++) {
        idle += workers[w].end_ns == UINT64_MAX;
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        while (workers[w].end_ns == UINT64_MAX && held != (1u << APPS) - 1) {
            struct app *oldest = NULL;
            for (uint32_t a = 0; a < APPS; a++) {
                const struct leat_sched_query *first = &apps[a].queries[apps[a].head];
                if (apps[a].head == apps[a].tail) {
                    held |= 1u << a;
                } else if ((held >> a & 1) == 0 &&
                           (oldest == NULL || first->arrival_ns < oldest->queries[oldest->head].arrival_ns)) {
                    oldest = &apps[a];
                }
            }
            if (oldest != NULL && decide(oldest, share, idle, w, now_ns, rate_qps)) {
                idle--;
            } else if (oldest != NULL) {
                held |= 1u << (oldest - apps);
            }
        }
    }
}

/*
 * Share of late queries, of both, the policy's and the selectors' numbers of workers as given, the first one until shares are told;
 * and of those among them that came within a second from then.
 */
static double
simulate(const struct leat_policy *policy, uint32_t first_share, uint32_t share, uint32_t rate_qps, double *ret_begun)
{
    const struct leat_selector_options options = {.objective_ns = OBJECTIVE_NS, .worker_count = WORKERS, .policy = policy};
    uint64_t now_ns = 0;
    uint32_t late = 0, begun = 0;

    for (uint32_t w = 0; w < WORKERS; w++) {
        workers[w].end_ns = UINT64_MAX;
    }
    for (uint32_t a = 0; a < APPS; a++) {
        void *state = calloc(1, leat_selector_mdp.state_bytes);
        EXPECT(state != NULL && leat_selector_mdp.init(state, &options) == LEAT_OK);
        apps[a] = (struct app){.next_ns = gap_ns(rate_qps), .state = state};
    }
    while (apps[0].answered < QUERIES || apps[1].answered < QUERIES) {
        bool waits = false;
        uint64_t next_ns = UINT64_MAX;
        for (uint32_t w = 0; w < WORKERS; w++) {
            next_ns = workers[w].end_ns < next_ns ? workers[w].end_ns : next_ns;
        }
        for (uint32_t a = 0; a < APPS; a++) {
            next_ns = apps[a].next_ns < next_ns ? apps[a].next_ns : next_ns;
            waits = waits || apps[a].head < apps[a].tail;
        }
        now_ns = waits && now_ns + LOOK_NS < next_ns ? now_ns + LOOK_NS : next_ns;
        for (uint32_t w = 0; w < WORKERS; w++) {
            if (workers[w].end_ns <= now_ns) {
                workers[w].end_ns = UINT64_MAX;
                apps[workers[w].app].running--;
            }
        }
        for (uint32_t a = 0; a < APPS; a++) {
            if (apps[a].next_ns <= now_ns) {
                apps[a].queries[apps[a].tail++] =
                    (struct leat_sched_query){.arrival_ns = now_ns, .deadline_ns = now_ns + OBJECTIVE_NS, .items = 1};
                apps[a].next_ns = apps[a].tail < QUERIES ? now_ns + gap_ns(rate_qps) : UINT64_MAX;
            }
        }
        decide_all(now_ns < TOLD_NS ? first_share : share, now_ns, rate_qps);
    }
    for (uint32_t a = 0; a < APPS; a++) {
        late += apps[a].late;
        begun += apps[a].late_begun;
        free(apps[a].state);
    }
    *ret_begun = begun / (double)(APPS * QUERIES);
    return late / (double)(APPS * QUERIES);
}

static struct leat_policy *
make(uint32_t worker_count)
{
    const struct leat_policy_order order = {.variant_count = VARIANTS,
                                            .names = names,
                                            .accuracy_ppm = accuracy_ppm,
                                            .latency_ns = latency_ns,
                                            .items_max = ITEMS,
                                            .objective_ns = OBJECTIVE_NS,
                                            .worker_count = worker_count,
                                            .dispersion_permille = 1000,
                                            .threads = 2};
    struct leat_policy *policy;

    EXPECT(leat_policy_make(&order, NULL, &policy) == LEAT_OK);
    return policy;
}

int
main(void)
{
    static const uint64_t base_ns[VARIANTS] = {50000000, 20000000, 12000000}, item_ns[VARIANTS] = {40000000, 20000000, 10000000};

    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    random_state = leat_test_seed;
    for (uint32_t v = 0; v < VARIANTS; v++) {
        variants[v] = (struct leat_sched_variant){.accuracy_ppm = accuracy_ppm[v], .items_max = ITEMS, .ready = true};
        for (uint32_t items = 1; items <= ITEMS; items++) {
            latency_ns[v * ITEMS + items - 1] = base_ns[v] + items * item_ns[v];
        }
    }
    struct leat_policy *for_all = make(WORKERS), *for_half = make(WORKERS / 2);
    const uint32_t rate_qps = 278; /* 40 % of what 8 workers do: 8 items in 92 ms each */
    double begun;
    const double greedy = simulate(for_all, WORKERS, WORKERS, rate_qps, &begun);
    const double told = simulate(for_all, WORKERS / 2, WORKERS / 2, rate_qps, &begun);
    const double made = simulate(for_half, WORKERS / 2, WORKERS / 2, rate_qps, &begun);
    const double soon = simulate(for_all, WORKERS, WORKERS / 2, rate_qps, &begun);
    (void)printf("late: %.4f with all workers, %.4f with half of them, %.4f with a policy for half; %.4f with half of them after "
                 "a second, %.4f of them in the first two\n", greedy, told, made, soon, begun);
    EXPECT(greedy > 0.08 && told < 0.03 && made < 0.01 && soon < 0.03 && soon - begun < 0.03);
    free(for_all);
    free(for_half);
    return 0;
}
