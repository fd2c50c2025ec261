/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What sched/scale_joint_line.c says of one stage is what looking at every way says: the least cost in time, of
 *          these the least time, and of such the first by class, cores and instances, with the smallest batch. Whatever it
 *          keeps from shares, limits and prices before changes nothing.
 * Method   Random stages, with times that are equal, missing, or no less for fewer items; shares, limits and prices in any
 *          order on one line; and the same by a loop over all there is.
 */
#include <stdlib.h>
#include <string.h>

#include "sched/scale_joint_private.h"
#include "tests/leat_test.h"

enum { APPLICATIONS = 3, MOST = 6, SOLUTIONS = 60 };

static uint64_t random_state;
static uint64_t latencies[APPLICATIONS][LEAT_JOINT_CLASSES_MAX][MOST * MOST];

static uint32_t
below(uint32_t n)
{
    return (uint32_t)(leat_test_random(&random_state) % n);
}

static void
draw_application(const struct leat_joint_box *box, uint32_t a,
                 struct leat_joint_application *application)
{
    const uint64_t grain_ns = below(2) ? 1 : 2000000;
    struct leat_joint_stage *stage = &application->stages[0];

    *application =
        (struct leat_joint_application){.stage_count = 1,
                                        .term_count = 1,
                                        .demand_qps = 1 + below(3000) / 10.0,
                                        .objective_ns = 1000000 * (1 + UINT64_C(1) * below(120)),
                                        .weight = 1};
    *stage = (struct leat_joint_stage){.cores_max = 1 + below(MOST),
                                       .batch_max = 1 + below(MOST),
                                       .cores_min = 1,
                                       .instances_min = 1 + below(4) / 3,
                                       .instances_max = below(2) ? UINT32_MAX : 2 + below(6),
                                       .calls = 0.5 + below(4)};
    for (uint32_t k = 0; k < box->class_count; k++) {
        for (uint32_t i = 0; i < stage->cores_max * stage->batch_max; i++) {
            const uint64_t about_ns =
                3000000 * (2 + i % stage->batch_max) / (1 + i / stage->batch_max) + below(6000000);
            latencies[a][k][i] = below(9) == 0 ? 0 : (about_ns / grain_ns + 1) * grain_ns;
        }
        stage->latency_ns[k] = below(6) == 0 ? NULL : latencies[a][k];
    }
}

struct way {
    uint64_t latency_ns;
    uint32_t cost;
    struct leat_joint_choice choice;
};

/* The best batch of so many instances. False: none carries the demand. */
static bool
find_batch(const struct leat_joint_stage *stage, double demand_qps,
           struct leat_joint_choice *choice, uint64_t *ret_ns)
{
    const uint64_t *row =
        &stage->latency_ns[choice->worker_class][(choice->cores - 1) * stage->batch_max];
    uint64_t run_ns = UINT64_MAX;

    for (uint32_t b = 1; b <= stage->batch_max; b++) {
        if (row[b - 1] > 0 && row[b - 1] < run_ns &&
            choice->instances * 1e9 * b >= demand_qps * (double)row[b - 1]) {
            run_ns = row[b - 1];
            choice->batch = b;
        }
    }
    *ret_ns =
        run_ns < UINT64_MAX ? run_ns + (run_ns + choice->instances - 1) / choice->instances : 0;
    return run_ns < UINT64_MAX;
}

/* Cost UINT32_MAX: there is none. */
static struct way
look_at_all(const struct leat_joint_line *line, const struct leat_joint_application *application,
            uint32_t share, uint32_t limit)
{
    const struct leat_joint_stage *stage = &application->stages[0];
    const double demand_qps = application->demand_qps * share / LEAT_JOINT_SHARES * stage->calls;
    struct way best = {.cost = UINT32_MAX}, way;

    for (uint32_t k = 0; k < line->box->class_count; k++) {
        for (uint32_t c = stage->cores_min; stage->latency_ns[k] != NULL && c <= stage->cores_max;
             c++) {
            const uint32_t most = line->box->classes[k].cores / c;
            for (uint32_t n = stage->instances_min; n <= stage->instances_max && n <= most; n++) {
                way.cost = line->costs[k][n * c];
                way.choice =
                    (struct leat_joint_choice){.worker_class = k, .instances = n, .cores = c};
                if (way.cost <= limit &&
                    find_batch(stage, demand_qps, &way.choice, &way.latency_ns) &&
                    way.latency_ns <= application->objective_ns &&
                    (way.cost < best.cost ||
                     (way.cost == best.cost && way.latency_ns < best.latency_ns))) {
                    best = way;
                }
            }
        }
    }
    return best;
}

static void
test_one_stage(void)
{
    uint32_t carried = 0, not_carried = 0;

    for (uint32_t world = 0; world < 1000; world++) {
        struct leat_joint_box box = {.class_count = 1 + below(3)};
        struct leat_joint_application applications[APPLICATIONS];
        struct leat_joint_line line;
        uint64_t prices[LEAT_JOINT_CLASSES_MAX];
        size_t bytes = 0;

        for (uint32_t k = 0; k < box.class_count; k++) {
            box.classes[k].cores =
                world % 50 == 0 ? 1000 + below(1000) : below(20); /* of many cores less is kept */
            box.classes[k].price = 1;
        }
        for (uint32_t a = 0; a < APPLICATIONS; a++) {
            draw_application(&box, a, &applications[a]);
        }
        leat_joint_line_lay_out(&line, &box, NULL, &bytes);
        char *memory = aligned_alloc(64, bytes);
        EXPECT(memory != NULL);
        memset(memory, (int)below(256), bytes);
        bytes = 0;
        leat_joint_line_lay_out(&line, &box, memory, &bytes);
        line.applications = applications;
        for (uint32_t solution = 0; solution < SOLUTIONS; solution++) {
            struct leat_joint_answer answer;
            uint32_t cost;
            if (solution % 5 ==
                0) { /* of a price of some thousands, costs are rounded to steps of the line */
                const bool even = below(2) == 0;
                for (uint32_t k = 0; k < box.class_count; k++) {
                    prices[k] = even ? 1 + below(4) : 1 + below(9000);
                }
                leat_joint_line_set(&line, prices, below(2) ? UINT64_MAX : 1 + below(60000));
            }
            const struct leat_joint_application *application = &applications[below(APPLICATIONS)];
            const uint32_t share = 1 + below(LEAT_JOINT_SHARES), limit = below(line.most + 1);
            const struct way best = look_at_all(&line, application, share, limit);
            const bool found =
                leat_joint_line_solve(&line, application, share, limit, UINT32_MAX, &answer, &cost);
            EXPECT(found == (best.cost < UINT32_MAX));
            EXPECT(!found || (cost == best.cost && answer.latency_ns == best.latency_ns &&
                              answer.share == share));
            EXPECT(!found || memcmp(&answer.stages[0], &best.choice, sizeof(best.choice)) == 0);
            carried += found;
            not_carried += !found;
        }
        free(memory);
    }
    (void)printf("%u shares carried, %u not\n", carried, not_carried);
    EXPECT(carried > 5000 && not_carried > 5000);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    test_one_stage();
    return 0;
}
