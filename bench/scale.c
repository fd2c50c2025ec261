/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "sched/scaler.h"
#include "tests/sched/themis.h"

static const char measures[] =
    "Measures   Time of one solution on one core, for the three "
    "pipelines of Themis at many rates: the paper's two programs,\n"
    "           the vertical one where an instance of each stage has too few cores and others are added, and a\n"
    "           whole decision of the paper, which solves both; the joint one on a machine of 96 cores, and a whole "
    "decision of the scaler,\n           which solves that twice or more.\n"
    "           Then the worst that is asked of the joint one: 16 "
    "applications of three stages on 255 cores, enough or not,\n"
    "           of one class or of two, and the decision about them: where what comes is\n"
    "           another each time, and where it stays within a tenth.\n"
    "Beside it  The paper's vertical program; the joint one solves more "
    "and is to take no longer than 2 ms, at worst 5 ms.\n"
    "           A decision is to take no longer than three solutions where the load stays.\n"
    "Does not   say what following an answer costs.\n"
    "Method     One thread, all taking turns, a window each; medians "
    "over windows of the mean solution, and of each\n"
    "           window's 99th percentile.";

enum { RATES = 16, BOX_CORES = 96, CORES = 8, SAMPLES = 1 << 16 };
enum { VERTICAL, HORIZONTAL, GROWN, PAPER_DECISION, ONE_JOINT, DECISION, KINDS };
static const char *const kinds[KINDS] = {"paper, vertical",       "paper, horizontal", "paper, vertical grown",
                                         "paper, whole decision", "joint",             "decision"};
static const char *const pipelines[THEMIS_PIPELINES] = {"video", "sentiment", "nlp"};
static const uint32_t most_qps[THEMIS_PIPELINES] = {62, 32, 13};

static const struct leat_joint_box box = {.class_count = 1, .classes = {{BOX_CORES, 1}}};
static uint64_t tables[THEMIS_PIPELINES][LEAT_SCALE_STAGES_MAX][CORES * LEAT_SCALE_BATCH_MAX];
static struct leat_joint_application joints[THEMIS_PIPELINES];
static struct leat_scaler_application scaled;
static void *memory;
static volatile uint64_t sink;

static void
make_joint(uint32_t p)
{
    const struct leat_themis_pipeline *pipeline = &themis_pipelines[p];
    struct leat_joint_application *joint = &joints[p];

    *joint = (struct leat_joint_application){
        .stage_count = pipeline->stage_count, .objective_ns = pipeline->objective_ms * UINT64_C(1000000), .weight = 1};
    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        const struct leat_themis_stage *stage = &pipeline->stages[s];
        for (uint32_t c = 1; c <= stage->cores_max; c++) {
            for (uint32_t b = 1; b <= stage->batch_max; b++) {
                tables[p][s][(c - 1) * stage->batch_max + b - 1] = (uint64_t)(1e6 * leat_scale_latency_ms(&stage->latency, b, c));
            }
        }
        joint->stages[s] = (struct leat_joint_stage){.latency_ns = {tables[p][s]},
                                                     .cores_max = stage->cores_max,
                                                     .batch_max = stage->batch_max,
                                                     .cores_min = 1,
                                                     .instances_min = 1,
                                                     .instances_max = UINT32_MAX,
                                                     .calls = 1};
        joint->terms[joint->term_count++] = (int8_t)s;
        if (s > 0) {
            joint->terms[joint->term_count++] = LEAT_JOINT_SERIES;
        }
    }
}

static void
solve(uint32_t kind, uint32_t p, uint32_t rate_qps)
{
    static const struct leat_scaler_options scaler_options = LEAT_SCALER_OPTIONS_INIT;
    const uint32_t instances[] = {4, 8, 8}, one[] = {1, 1, 1};
    const uint32_t grown_qps = rate_qps + most_qps[p]; /* more than all cores of one instance carry */
    const struct leat_scale_plan current = {.stages = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}};
    struct leat_themis_state state = {.settle_decisions = 10};
    struct leat_scale_plan plan;
    struct leat_joint_answer answer;
    enum leat_themis_kind step;
    uint32_t added[LEAT_SCALE_STAGES_MAX];

    switch (kind) {
    case VERTICAL:
        sink = leat_themis_vertical(&themis_pipelines[p], rate_qps, instances, memory, &plan) == LEAT_OK ? plan.cost : 0;
        break;
    case GROWN:
        LEAT_MUST(leat_themis_vertical_grown(&themis_pipelines[p], grown_qps, one, memory, &plan, added) == LEAT_OK);
        LEAT_MUST(added[0] > 0);
        sink = plan.cost;
        break;
    case PAPER_DECISION:
        LEAT_MUST(leat_themis_decide(&state, &themis_pipelines[p], &current, grown_qps, grown_qps, memory, &step,
                                     &plan) == LEAT_OK);
        sink = plan.stages[0].cores;
        break;
    case HORIZONTAL:
        sink = leat_themis_horizontal(&themis_pipelines[p], rate_qps, memory, &plan) == LEAT_OK ? plan.cost : 0;
        break;
    case ONE_JOINT:
        joints[p].demand_qps = rate_qps;
        sink = leat_joint_solve(&box, &joints[p], 1, memory, &answer);
        break;
    default:
        scaled.joint = joints[p];
        scaled.rate_qps = rate_qps;
        for (uint32_t s = 0; s < joints[p].stage_count; s++) {
            scaled.stages[s] = (struct leat_scaler_stage){.ready = instances[s], .cores = 1};
        }
        leat_scaler_decide(&scaler_options, &box, NULL,
                           &(struct leat_scaler_application *){&scaled}, 1, memory);
        sink = scaled.orders[0].cores;
        break;
    }
}

/* The mean time of a solution, and the 99th percentile. */
static double
window(const struct leat_clock *clock, uint64_t window_ns, uint32_t kind, uint32_t p, double *ret_p99_ns)
{
    static uint64_t samples_ns[SAMPLES];
    const uint64_t start_ns = leat_clock_now(clock);
    uint64_t now_ns = start_ns, count = 0;

    while (now_ns - start_ns < window_ns && count + RATES <= SAMPLES) {
        for (uint32_t r = 1; r <= RATES; r++) {
            const uint64_t before_ns = now_ns;
            solve(kind, p, 1 + most_qps[p] * r / RATES);
            now_ns = leat_clock_now(clock);
            samples_ns[count++] = now_ns - before_ns;
        }
    }
    *ret_p99_ns = (double)bench_order(samples_ns, count).p99;
    return (double)(now_ns - start_ns) / (double)count;
}

static void
measure(const struct bench_options *options, const struct leat_clock *clock, uint32_t p)
{
    static double means[KINDS][BENCH_WINDOWS_MAX], p99_ns[KINDS][BENCH_WINDOWS_MAX], ratios[KINDS][BENCH_WINDOWS_MAX];
    static const double targets_us[KINDS] = {500, 500, 500, 500, 2000, 2000};

    for (uint32_t w = 0; w < options->windows; w++) {
        for (uint32_t kind = 0; kind < KINDS; kind++) {
            means[kind][w] = window(clock, options->window_ns, kind, p, &p99_ns[kind][w]);
            ratios[kind][w] = means[kind][w] / means[0][w];
        }
    }
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        char subject[64];
        (void)snprintf(subject, sizeof(subject), "%s, %s", pipelines[p], kinds[kind]);
        bench_print(options, &(struct bench_row){.subject = subject,
                                                 .metric = "mean",
                                                 .value = bench_median(means[kind], options->windows) / 1e3,
                                                 .unit = "us",
                                                 .windows = options->windows,
                                                 .peer = kind > 0 ? kinds[0] : NULL,
                                                 .ratio = kind > 0 ? bench_median(ratios[kind], options->windows) : 0});
        bench_print(options, &(struct bench_row){.subject = subject,
                                                 .metric = "p99",
                                                 .value = bench_median(p99_ns[kind], options->windows) / 1e3,
                                                 .unit = "us",
                                                 .windows = options->windows,
                                                 .goal = targets_us[kind] > 0 && p == THEMIS_NLP ? BENCH_AT_MOST : BENCH_NO_GOAL,
                                                 .target = targets_us[kind]});
    }
}

/* ---- The worst ---------------------------------------------------------------------------------------- */

enum { CROWD = LEAT_SCALER_APPLICATIONS_MAX, WORST_CORES = 255, SIZES = 32, CASES = 4 };
enum work {
    JOINT,
    JUMPS,
    STAYS,
    WORKS
}; /* a solution; a decision about a load that jumps, or stays within some percent */
static const char *const works[WORKS] = {"joint", "decision, load jumps", "decision, load stays"};

static uint64_t crowd_ns[CROWD][3][2][SIZES * SIZES];
static struct leat_scaler_application crowd[CROWD];

struct worst {
    const char *name;
    struct leat_joint_box box;
    double load; /* of what comes: 1 is enough for about all cores */
};
static const struct worst worsts[CASES] = {
    {"255 cores", {.class_count = 1, .classes = {{WORST_CORES, 1}}}, 0.25},
    {"255 cores, too few", {.class_count = 1, .classes = {{WORST_CORES, 1}}}, 4},
    {"255 cores of two classes", {.class_count = 2, .classes = {{128, 3}, {127, 2}}}, 0.25},
    {"255 cores of two classes, too few", {.class_count = 2, .classes = {{128, 3}, {127, 2}}}, 4},
};

/* Applications unlike one another, with models of all cores and batches; what comes differs from time to time. */
static void
make_crowd(const struct worst *worst, enum work work, uint32_t time)
{
    for (uint32_t a = 0; a < CROWD; a++) {
        const struct leat_themis_pipeline *pipeline = &themis_pipelines[THEMIS_NLP];
        struct leat_joint_application *joint = &crowd[a].joint;
        *joint = (struct leat_joint_application){
            .stage_count = 3,
            .term_count = 5,
            .terms = {0, 1, LEAT_JOINT_SERIES, 2, LEAT_JOINT_SERIES},
            .demand_qps = work == STAYS ? worst->load * (1 + a * 7 % 16) *
                                              (1 + (a * 3 + time * 5) % 16 / 160.0)
                                        : worst->load * (1 + (a * 7 + time * 5) % 16),
            .objective_ns = UINT64_C(1000000) * (1500 + 150 * (a % 8)),
            .weight = 1 + a % 3};
        for (uint32_t s = 0; s < 3; s++) {
            joint->stages[s] = (struct leat_joint_stage){.cores_max = SIZES,
                                                         .batch_max = SIZES,
                                                         .cores_min = 1,
                                                         .instances_min = 1,
                                                         .instances_max = UINT32_MAX,
                                                         .calls = 1};
            for (uint32_t k = 0; k < worst->box.class_count; k++) {
                joint->stages[s].latency_ns[k] = crowd_ns[a][s][k];
                for (uint32_t i = 0; i < SIZES * SIZES && time == 0; i++) {
                    const double ms = leat_scale_latency_ms(&pipeline->stages[s].latency,
                                                            i % SIZES + 1, i / SIZES + 1);
                    crowd_ns[a][s][k][i] =
                        (uint64_t)(1e6 * (ms > 1 ? ms : 1) * (0.5 + (a + s) % 5 / 5.0) *
                                   (1 + k * (2 + a % 3) / 4.0));
                }
            }
        }
    }
}

static void
solve_crowd(const struct worst *worst, enum work work, struct leat_scaler_state *state)
{
    static const struct leat_scaler_options scaler_options = LEAT_SCALER_OPTIONS_INIT;
    struct leat_joint_application applications[CROWD];
    struct leat_scaler_application *all[CROWD];
    struct leat_joint_answer answers[CROWD];

    for (uint32_t a = 0; a < CROWD; a++) {
        applications[a] = crowd[a].joint;
        crowd[a].rate_qps = crowd[a].joint.demand_qps;
        all[a] = &crowd[a];
        for (uint32_t s = 0; s < 3; s++) {
            crowd[a].stages[s] = (struct leat_scaler_stage){
                .ready = 1 + (a + s) % 2, .cores = 1, .worker_class = a % worst->box.class_count};
        }
    }
    if (work != JOINT) {
        leat_scaler_decide(&scaler_options, &worst->box, state, all, CROWD, memory);
    } else {
        sink = leat_joint_solve(&worst->box, applications, CROWD, memory, answers);
    }
}

/* Returns the mean. */
static double
measure_worst(const struct bench_options *options, const struct leat_clock *clock,
              const struct worst *worst, enum work work, double joint_us)
{
    static uint64_t samples_ns[SAMPLES];
    static struct leat_scaler_state state;
    const uint32_t count = options->windows * RATES < SAMPLES ? options->windows * RATES : SAMPLES;
    uint64_t sum_ns = 0;
    char subject[96];

    memset(crowd, 0, sizeof(crowd));
    memset(&state, 0, sizeof(state));
    for (uint32_t i = 0; i < RATES + count; i++) { /* after as many as rates are remembered from */
        make_crowd(worst, work, i % RATES);
        const uint64_t start_ns = leat_clock_now(clock);
        solve_crowd(worst, work, &state);
        const uint64_t end_ns = leat_clock_now(clock);
        if (i >= RATES) {
            samples_ns[i - RATES] = end_ns - start_ns;
            sum_ns += end_ns - start_ns;
        }
    }
    const double mean_us = (double)sum_ns / count / 1e3;
    (void)snprintf(subject, sizeof(subject), "16 applications, %s, %s", worst->name, works[work]);
    bench_print(options, &(struct bench_row){.subject = subject,
                                             .metric = "mean",
                                             .value = mean_us,
                                             .unit = "us",
                                             .windows = options->windows,
                                             .peer = work != JOINT ? works[JOINT] : NULL,
                                             .ratio = work != JOINT ? mean_us / joint_us : 0,
                                             .goal = work == STAYS ? BENCH_AT_MOST : BENCH_NO_GOAL,
                                             .target = work == STAYS ? 3 : 0});
    bench_print(options,
                &(struct bench_row){.subject = subject,
                                    .metric = "p99",
                                    .value = (double)bench_order(samples_ns, count).p99 / 1e3,
                                    .unit = "us",
                                    .windows = options->windows,
                                    .goal = work == JOINT ? BENCH_AT_MOST : BENCH_NO_GOAL,
                                    .target = work == JOINT ? 5000 : 0});
    return mean_us;
}

static size_t
larger(size_t bytes, size_t others)
{
    return bytes > others ? bytes : others;
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "scale", .windows = 20, .window_ns = 20000000};
    struct leat_clock clock;
    size_t bytes = leat_joint_bytes(&box, 1);
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    leat_clock_init(&clock);
    for (uint32_t p = 0; p < THEMIS_PIPELINES; p++) {
        make_joint(p);
        bytes = larger(bytes, leat_themis_bytes(&themis_pipelines[p]));
    }
    for (uint32_t c = 0; c < CASES; c++) {
        bytes = larger(bytes, leat_joint_bytes(&worsts[c].box, CROWD));
    }
    memory = aligned_alloc(LEAT_CACHE_LINE, leat_round_up(bytes, LEAT_CACHE_LINE));
    LEAT_MUST(memory != NULL);
    for (uint32_t p = 0; p < THEMIS_PIPELINES; p++) {
        measure(&options, &clock, p);
    }
    for (uint32_t c = 0; c < CASES; c++) {
        double joint_us = 0;
        for (enum work work = JOINT; work < WORKS; work++) {
            const double mean_us = measure_worst(&options, &clock, &worsts[c], work, joint_us);
            joint_us = work == JOINT ? mean_us : joint_us;
        }
    }
    free(memory);
    bench_note_load(&options);
    return 0;
}
