/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Fits are those of least squares; Themis' programs find what exhaustion finds, in the order of its rules; its steps are
 *          the paper's.
 * Method   Residuals are orthogonal to all terms. Random pipelines, and the paper's three, against the programs written down
 *          as the rules are, cell by cell, and against all combinations of ways.
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "tests/leat_test.h"
#include "tests/sched/themis.h"

static uint64_t random_state;

static uint32_t
below(uint32_t n)
{
    return (uint32_t)(leat_test_random(&random_state) % n);
}

static double
uniform(double from, double to)
{
    return from + (to - from) * (double)(leat_test_random(&random_state) >> 11) * 0x1p-53;
}

/* ---- Fits --------------------------------------------------------------------------------------- */

static void
test_fits(void)
{
    for (uint32_t round = 0; round < 200; round++) {
        struct leat_scale_point points[64];
        struct leat_scale_latency truth = {uniform(1, 300), uniform(0, 90), uniform(-20, 160), uniform(-20, 70)}, fit;
        const bool noisy = round % 2 == 1;
        uint32_t count = 0;

        for (uint32_t b = 1; b <= 8; b *= 2) {
            for (uint32_t c = 1; c <= 8; c *= 2) {
                const double noise = noisy ? uniform(-10, 10) : 0;
                points[count++] = (struct leat_scale_point){b, c, leat_scale_latency_ms(&truth, b, c) + noise};
            }
        }
        EXPECT(leat_scale_fit(points, count, &fit) == LEAT_OK);
        double against[4] = {0}, size = 0;
        for (uint32_t i = 0; i < count; i++) {
            const double b = points[i].batch, c = points[i].cores;
            const double error = points[i].latency_ms - leat_scale_latency_ms(&fit, points[i].batch, points[i].cores);
            EXPECT(noisy || fabs(error) < 1e-9 * (1 + fabs(points[i].latency_ms)));
            against[0] += error * b / c;
            against[1] += error * b;
            against[2] += error / c;
            against[3] += error;
            size += fabs(error) * b;
        }
        for (uint32_t k = 0; k < 4; k++) {
            EXPECT(fabs(against[k]) <= 1e-9 * (1 + size));
        }
    }
}

static void
test_fits_of_too_little(void)
{
    struct leat_scale_point points[4] = {{1, 1, 10}, {2, 1, 15}, {1, 2, 7}, {2, 2, 9}};
    struct leat_scale_latency fit, kept = {1, 2, 3, 4};

    EXPECT(leat_scale_fit(points, 4, &fit) == LEAT_OK);
    fit = kept;
    EXPECT(leat_scale_fit(points, 3, &fit) == LEAT_ERR_INVALID);
    points[3] = (struct leat_scale_point){2, 1, 9}; /* no batch of 2 on two cores */
    EXPECT(leat_scale_fit(points, 4, &fit) == LEAT_ERR_INVALID);
    points[3] = (struct leat_scale_point){2, 0, 9};
    EXPECT(leat_scale_fit(points, 4, &fit) == LEAT_ERR_INVALID);
    points[3] = (struct leat_scale_point){2, 2, NAN};
    EXPECT(leat_scale_fit(points, 4, &fit) == LEAT_ERR_INVALID);
    EXPECT(memcmp(&fit, &kept, sizeof(fit)) == 0);
}

/* ---- The programs, as the rules are written ------------------------------------------------------- */

struct found {
    bool any;
    uint32_t cost, latency_ms;
    struct leat_scale_choice stages[LEAT_SCALE_STAGES_MAX];
};

static struct {
    bool reached;
    uint32_t cost, taken_ms;
    struct leat_scale_choice choice;
} cells[LEAT_SCALE_STAGES_MAX + 1][4001];

/* instances NULL: horizontal. Also what all combinations have as the best, cost and latency. */
static struct found
by_rule(const struct leat_themis_pipeline *pipeline, uint32_t rate_qps, const uint32_t *instances)
{
    const uint32_t objective_ms = pipeline->objective_ms;
    struct found found = {0};

    memset(cells, 0, sizeof(cells));
    cells[0][0].reached = true;
    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        const struct leat_themis_stage *stage = &pipeline->stages[s];
        for (uint32_t i = objective_ms + 1; i-- > 0;) {
            if (!cells[s][i].reached || (s > 0 && i == 0) || (instances != NULL && s > 0 && cells[s][i].cost > 32)) {
                continue;
            }
            for (uint32_t c = 1; c <= (instances != NULL ? stage->cores_max : 1); c++) {
                for (uint32_t b = 1; b <= stage->batch_max; b++) {
                    const double l = stage->latency.alpha_ms * b / c + stage->latency.beta_ms * b + stage->latency.gamma_ms / c +
                                     stage->latency.zeta_ms;
                    const long taken_ms = (long)l + (long)(1000.0 * (b - 1) / rate_qps);
                    if (l <= 0 || taken_ms <= 0) {
                        continue;
                    }
                    const long h = (long)(1000.0 * b / (double)taken_ms);
                    if (h == 0 || (instances != NULL && h * instances[s] < rate_qps) || i + (uint64_t)taken_ms > objective_ms) {
                        continue;
                    }
                    const uint32_t n = instances != NULL ? instances[s] : (uint32_t)ceil(rate_qps / (double)h);
                    const uint32_t cost = cells[s][i].cost + (instances != NULL ? c : n);
                    const uint32_t to = i + (uint32_t)taken_ms;
                    if (!cells[s + 1][to].reached || cost < cells[s + 1][to].cost) {
                        cells[s + 1][to].reached = true;
                        cells[s + 1][to].cost = cost;
                        cells[s + 1][to].taken_ms = (uint32_t)taken_ms;
                        cells[s + 1][to].choice = (struct leat_scale_choice){n, c, b};
                    }
                }
            }
        }
    }
    for (uint32_t t = 0; t < objective_ms; t++) {
        if (cells[pipeline->stage_count][t].reached && (!found.any || cells[pipeline->stage_count][t].cost < found.cost)) {
            found = (struct found){.any = true, .cost = cells[pipeline->stage_count][t].cost, .latency_ms = t};
        }
    }
    for (uint32_t s = found.any ? pipeline->stage_count : 0, t = found.latency_ms; s-- > 0;) {
        found.stages[s] = cells[s + 1][t].choice;
        t -= cells[s + 1][t].taken_ms;
    }
    return found;
}

/* The least cost, and the least latency at that, of all combinations of stages from s on behind a prefix. */
static void
exhaust(const struct leat_themis_pipeline *pipeline, uint32_t rate_qps, const uint32_t *instances, uint32_t s, uint32_t cost,
        uint32_t latency_ms, struct found *found)
{
    if (latency_ms >= pipeline->objective_ms) {
        return;
    }
    if (s == pipeline->stage_count) {
        if (!found->any || cost < found->cost || (cost == found->cost && latency_ms < found->latency_ms)) {
            *found = (struct found){.any = true, .cost = cost, .latency_ms = latency_ms};
        }
        return;
    }
    if (instances != NULL && s > 0 && cost > 32) {
        return;
    }
    for (uint32_t c = 1; c <= (instances != NULL ? pipeline->stages[s].cores_max : 1); c++) {
        for (uint32_t b = 1; b <= pipeline->stages[s].batch_max; b++) {
            const int64_t taken_ms = leat_themis_latency_ms(&pipeline->stages[s], b, c) + leat_themis_queue_ms(b, rate_qps);
            const double ms = leat_scale_latency_ms(&pipeline->stages[s].latency, b, c);
            if (ms <= 0 || taken_ms <= 0 || 1000 * (int64_t)b / taken_ms == 0) {
                continue;
            }
            const uint32_t h = (uint32_t)(1000 * (int64_t)b / taken_ms);
            if (instances != NULL ? h * instances[s] >= rate_qps : true) {
                exhaust(pipeline, rate_qps, instances, s + 1, cost + (instances != NULL ? c : (rate_qps + h - 1) / h),
                        latency_ms + (uint32_t)taken_ms, found);
            }
        }
    }
}

static void
compare(const struct leat_themis_pipeline *pipeline, uint32_t rate_qps, const uint32_t *instances)
{
    void *memory = malloc(leat_themis_bytes(pipeline));
    struct leat_scale_plan plan = {.cost = 12345};
    struct found all = {0};
    const struct found rule = by_rule(pipeline, rate_qps, instances);

    EXPECT(memory != NULL);
    memset(memory, (int)below(256), leat_themis_bytes(pipeline));
    exhaust(pipeline, rate_qps, instances, 0, 0, 0, &all);
    const enum leat_status status = instances != NULL ? leat_themis_vertical(pipeline, rate_qps, instances, memory, &plan)
                                                      : leat_themis_horizontal(pipeline, rate_qps, memory, &plan);
    EXPECT(rule.any == all.any && status == (rule.any ? LEAT_OK : LEAT_ERR_NOT_FOUND));
    if (!rule.any) {
        EXPECT(plan.cost == 12345);
    } else {
        uint32_t latency_ms = 0;
        EXPECT(rule.cost == all.cost && rule.latency_ms == all.latency_ms && plan.cost == rule.cost);
        for (uint32_t s = 0; s < pipeline->stage_count; s++) {
            const struct leat_scale_choice *choice = &plan.stages[s];
            EXPECT(memcmp(choice, &rule.stages[s], sizeof(*choice)) == 0);
            latency_ms += (uint32_t)leat_themis_latency_ms(&pipeline->stages[s], choice->batch, choice->cores) +
                          leat_themis_queue_ms(choice->batch, rate_qps);
        }
        EXPECT(latency_ms == rule.latency_ms && plan.latency_ms == latency_ms);
    }
    free(memory);
}

static void
test_the_papers_pipelines(void)
{
    for (uint32_t p = 0; p < THEMIS_PIPELINES; p++) {
        for (uint32_t rate_qps = 1; rate_qps <= 150; rate_qps += 1 + below(4)) {
            compare(&themis_pipelines[p], rate_qps, NULL);
            for (uint32_t round = 0; round < 2; round++) {
                const uint32_t instances[] = {1 + below(4), 1 + below(4), 1 + below(4)};
                compare(&themis_pipelines[p], rate_qps, instances);
            }
        }
    }
}

static void
test_random_pipelines(void)
{
    for (uint32_t round = 0; round < 1500; round++) {
        struct leat_themis_pipeline pipeline = {.stage_count = 1 + below(4), .objective_ms = 1 + below(round % 8 == 0 ? 4000 : 400)};
        uint32_t instances[LEAT_SCALE_STAGES_MAX];
        for (uint32_t s = 0; s < pipeline.stage_count; s++) {
            const double most = round % 3 == 0 ? 4 : 60; /* small numbers tie more often */
            pipeline.stages[s] = (struct leat_themis_stage){
                {uniform(0, most), uniform(0, most), uniform(-most / 2, most), uniform(-most / 2, most)},
                1 + below(pipeline.stage_count > 3 ? 4 : round % 5 == 0 ? 20 : 6),
                1 + below(pipeline.stage_count > 3 ? 3 : 6)};
            instances[s] = 1 + below(4);
        }
        const uint32_t rate_qps = 1 + below(round % 2 ? 400 : 40);
        compare(&pipeline, rate_qps, NULL);
        compare(&pipeline, rate_qps, instances);
    }
    for (uint32_t round = 0; round < 300; round++) { /* batches that take no longer than one query: ties of time and cost */
        struct leat_themis_pipeline pipeline = {.stage_count = 1 + below(2), .objective_ms = 50 + below(200)};
        for (uint32_t s = 0; s < pipeline.stage_count; s++) {
            pipeline.stages[s] = (struct leat_themis_stage){{0, 0, below(40), 1 + below(20)}, 3, 4};
        }
        compare(&pipeline, 3000 + below(3000), (const uint32_t[]){50, 50});
        compare(&pipeline, 3000 + below(3000), NULL);
    }
    for (uint32_t round = 0; round < 40; round++) { /* as many cores in front of the last stage as may be, and one more */
        struct leat_themis_pipeline pipeline = {
            .stages = {{{0, 0, 1000, 0}, 20, 1}, {{0, 0, 1000, 0}, 20, 1}, {{0, 0, 0, 1}, 20, 1}}, .stage_count = 3, .objective_ms = 110 + round};
        compare(&pipeline, 1, (const uint32_t[]){1, 1, 1});
    }
}

/* ---- Growth and steps ------------------------------------------------------------------------------ */

static void
test_more_than_cores_carry(void)
{
    /* Each stage alone is quick enough on cores that are too many for both together. */
    static const struct leat_themis_pipeline large = {
        .stages = {{{0, 0, 1000, 0}, 20, 1}, {{0, 0, 1000, 0}, 20, 1}, {{0, 0, 0, 1}, 20, 1}}, .stage_count = 3, .objective_ms = 130};
    uint64_t memory[16384];
    uint32_t grown = 0;

    for (uint32_t p = 0; p <= THEMIS_PIPELINES; p++) {
        const struct leat_themis_pipeline *pipeline = p < THEMIS_PIPELINES ? &themis_pipelines[p] : &large;
        EXPECT(leat_themis_bytes(pipeline) <= sizeof(memory));
        for (uint32_t rate_qps = 0; rate_qps <= 300; rate_qps += p < THEMIS_PIPELINES ? 7 : 1) {
            const uint32_t instances[] = {1 + below(3), 1 + below(3), 1 + below(3)};
            struct leat_scale_plan plan, most;
            uint32_t added[3], enough_qps = 0;
            const enum leat_status status = leat_themis_vertical_grown(pipeline, rate_qps, instances, memory, &plan, added);
            if (leat_themis_vertical(pipeline, rate_qps, instances, memory, &most) == LEAT_OK) {
                EXPECT(status == LEAT_OK && memcmp(&plan, &most, sizeof(most.stages[0]) * pipeline->stage_count) == 0);
                EXPECT(plan.cost == most.cost && plan.latency_ms == most.latency_ms);
                EXPECT(added[0] == 0 && added[1] == 0 && (pipeline->stage_count < 3 || added[2] == 0));
                continue;
            }
            /* As bisection goes: not every rate below one that is carried is carried too. */
            for (uint32_t left = 1, right = rate_qps; right - left > 1;) {
                const uint32_t middle = (left + right) / 2;
                const bool carried = leat_themis_vertical(pipeline, middle, instances, memory, &most) == LEAT_OK;
                left = carried ? middle : left;
                right = carried ? right : middle;
                enough_qps = left;
            }
            if (enough_qps == 0 || leat_themis_vertical(pipeline, enough_qps, instances, memory, &most) != LEAT_OK) {
                EXPECT(status == LEAT_ERR_NOT_FOUND);
                continue;
            }
            EXPECT(status == LEAT_OK && plan.cost == most.cost && plan.latency_ms == most.latency_ms);
            grown++;
            for (uint32_t s = 0; s < pipeline->stage_count; s++) {
                const struct leat_scale_choice *choice = &plan.stages[s];
                const uint32_t rest_qps = rate_qps - enough_qps;
                const int64_t taken_ms = leat_themis_latency_ms(&pipeline->stages[s], choice->batch, choice->cores) +
                                         leat_themis_queue_ms(choice->batch, rest_qps);
                const int64_t served_qps = 1000 * (int64_t)choice->batch / taken_ms;
                EXPECT(choice->cores == most.stages[s].cores && choice->batch == most.stages[s].batch);
                EXPECT(choice->instances == instances[s] + added[s]);
                EXPECT(added[s] * served_qps >= rest_qps && (added[s] - 1) * served_qps < rest_qps);
            }
        }
    }
    EXPECT(grown > 20);
}

static void
test_idle_and_hopeless(void)
{
    struct leat_themis_pipeline pipeline = themis_pipelines[THEMIS_NLP];
    uint64_t memory[16384];
    struct leat_scale_plan plan;
    uint32_t added[3];

    /* Of both programs one instance of one core, whatever runs; l(1, 1) is 104, 376 and 370 ms. */
    for (uint32_t program = 0; program < 3; program++) {
        const uint32_t instances[] = {4, 2, 3};
        memset(&plan, 0xff, sizeof(plan));
        memset(added, 0xff, sizeof(added));
        EXPECT((program == 0   ? leat_themis_horizontal(&pipeline, 0, memory, &plan)
                : program == 1 ? leat_themis_vertical(&pipeline, 0, instances, memory, &plan)
                               : leat_themis_vertical_grown(&pipeline, 0, instances, memory, &plan, added)) == LEAT_OK);
        EXPECT(plan.cost == 3 && plan.latency_ms == 850);
        for (uint32_t s = 0; s < 3; s++) {
            EXPECT(plan.stages[s].instances == 1 && plan.stages[s].cores == 1 && plan.stages[s].batch == 1);
            EXPECT(program < 2 || added[s] == 0);
        }
    }
    /* The model has no time for one item, -4 ms, but for two, 1 ms; or on one core none, -3 and -1 ms, but on two, 2 ms. */
    static const struct leat_themis_pipeline odd = {
        .stages = {{{0, 5, 0, -9}, 3, 4}, {{2, 0, -12, 7}, 3, 2}}, .stage_count = 2, .objective_ms = 100};
    EXPECT(leat_themis_least_ms(&odd.stages[0]) == 1 && leat_themis_least_ms(&odd.stages[1]) == 2);
    EXPECT(leat_themis_vertical(&odd, 0, (const uint32_t[]){1, 1}, memory, &plan) == LEAT_OK);
    EXPECT(plan.stages[0].cores == 1 && plan.stages[0].batch == 2);
    EXPECT(plan.stages[1].cores == 2 && plan.stages[1].batch == 1);
    EXPECT(plan.cost == 3 && plan.latency_ms == 1 + 2);
    memset(&plan, 0xff, sizeof(plan));
    EXPECT(leat_themis_horizontal(&odd, 0, memory, &plan) == LEAT_ERR_NOT_FOUND && plan.cost == UINT64_MAX);
    pipeline.objective_ms = 100; /* less than one query takes on all cores */
    EXPECT(leat_themis_horizontal(&pipeline, 5, memory, &plan) == LEAT_ERR_NOT_FOUND);
    EXPECT(leat_themis_vertical_grown(&pipeline, 5, (const uint32_t[]){1, 1, 1}, memory, &plan, added) == LEAT_ERR_NOT_FOUND);
    EXPECT(leat_themis_vertical_grown(&pipeline, 1, (const uint32_t[]){1, 1, 1}, memory, &plan, added) == LEAT_ERR_NOT_FOUND);
}

static void
test_steps(void)
{
    const struct leat_themis_pipeline *pipeline = &themis_pipelines[THEMIS_VIDEO];
    struct leat_themis_state state = {.settle_decisions = 5};
    struct leat_scale_plan current = {.stages = {{1, 1, 4}, {1, 1, 4}}}, plan;
    enum leat_themis_kind kind;
    uint64_t memory[16384];

    /* A burst: at once, vertically, and cores never shrink in that. */
    EXPECT(leat_themis_decide(&state, pipeline, &current, 20, 20, memory, &kind, &plan) == LEAT_OK);
    EXPECT(kind == LEAT_THEMIS_VERTICAL && plan.stages[0].cores > 1);
    current = plan;
    EXPECT(leat_themis_decide(&state, pipeline, &current, 5, 30, memory, &kind, &plan) == LEAT_OK);
    EXPECT(kind == LEAT_THEMIS_VERTICAL && plan.stages[0].cores == current.stages[0].cores); /* more is to come: not stable */
    current = plan;
    /* Stable: settles after five decisions of that, and one that is not begins anew. */
    for (uint32_t n = 0; n < 3; n++) {
        EXPECT(leat_themis_decide(&state, pipeline, &current, 20, 20, memory, &kind, &plan) == LEAT_OK);
        EXPECT(kind == LEAT_THEMIS_KEEP && memcmp(plan.stages, current.stages, sizeof(plan.stages)) == 0);
    }
    EXPECT(leat_themis_decide(&state, pipeline, &current, 20, 60, memory, &kind, &plan) == LEAT_OK);
    EXPECT(kind == LEAT_THEMIS_VERTICAL);
    for (uint32_t n = 0; n < 5; n++) {
        EXPECT(leat_themis_decide(&state, pipeline, &current, 20, 20, memory, &kind, &plan) == LEAT_OK && kind == LEAT_THEMIS_KEEP);
    }
    EXPECT(leat_themis_decide(&state, pipeline, &current, 20, 20, memory, &kind, &plan) == LEAT_OK);
    EXPECT(kind == LEAT_THEMIS_HORIZONTAL && plan.stages[0].cores == 1 && plan.stages[1].cores == 1 && plan.stages[0].instances > 1);
    current = plan;
    for (uint32_t n = 0; n < 5; n++) {
        EXPECT(leat_themis_decide(&state, pipeline, &current, 20, 20, memory, &kind, &plan) == LEAT_OK && kind == LEAT_THEMIS_KEEP);
    }
    /* All cores that there are, and too few: instances are added, which is not stable. */
    current = (struct leat_scale_plan){.stages = {{1, 8, 4}, {1, 8, 4}}};
    EXPECT(leat_themis_decide(&state, pipeline, &current, 60, 60, memory, &kind, &plan) == LEAT_OK);
    EXPECT(kind == LEAT_THEMIS_VERTICAL && plan.stages[0].cores == 8 && plan.stages[0].instances > 1 && state.stable == 0);
    /* Nothing comes, and something will: what runs stays as it is, but batches. */
    current = (struct leat_scale_plan){.stages = {{3, 2, 4}, {2, 1, 4}}};
    EXPECT(leat_themis_decide(&state, pipeline, &current, 0, 60, memory, &kind, &plan) == LEAT_OK);
    EXPECT(kind == LEAT_THEMIS_VERTICAL && plan.stages[0].instances == 3 && plan.stages[1].instances == 2);
    EXPECT(plan.stages[0].cores == 2 && plan.stages[1].cores == 1 && plan.stages[0].batch == 1);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    test_fits();
    test_fits_of_too_little();
    test_the_papers_pipelines();
    test_random_pipelines();
    test_more_than_cores_carry();
    test_idle_and_hopeless();
    test_steps();
    return 0;
}
