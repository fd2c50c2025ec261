/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Once cores have followed a load that stays, nearly all queries are in time with those that were chosen, where batches
 *          pay: a plan counts on batches, and whether they come about is for the dispatcher to see to.
 * Method   Dispatcher, workers, scaler, plan of workers and feedback are the daemon's, on a virtual clock (scaled.h).
 *          Queries come at random (Poisson), and batches take up to so much more or less than profiles say.
 */
#include <math.h>
#include <string.h>

#include "tests/leat_test.h"
#include "tests/runtime/scaled.h"
#include "tests/runtime/steps.h"

#define MS UINT64_C(1000000)

enum {
    WORKERS = 8,
    CORES = 24,
    CLASSES = 4,     /* of one core, of two, of four, of eight */
    ITEMS_MAX = 16,
    NUMBERS = 4096,
    SETTLING_S = 20, /* rates are remembered for half of that */
    MEASURED_S = 10 / LEAT_TEST_SHARE + 1,
};
#define SIZES UINT32_C(0x8b)

/* Of a batch, and of each of its items; whether cores share that. */
struct model {
    const char *name;
    uint64_t constant_ns, item_ns;
    bool shares_constant, shares_items;
};

static struct {
    struct leat_team_shape shape; /* that the batch began in */
    uint64_t start_ns, end_ns;
    bool busy;
} workers[WORKERS];

static struct outcome {
    uint32_t asked, in_time, late, refused, expired;
} outcome;

static uint64_t random_state, objective_ns;
static const double spread = 0.15;

static double
uniform(void)
{
    return ((double)(leat_test_random(&random_state) >> 11) + 0.5) / 9007199254740992.0;
}

static void
set_clock(uint64_t now_ns)
{
    steps.now_ns = steps.tables.clock.base_ns = now_ns;
}

static uint64_t
time_of(const struct model *model, uint32_t class, uint32_t items)
{
    return (model->shares_constant ? model->constant_ns >> class : model->constant_ns) +
           items * (model->shares_items ? model->item_ns >> class : model->item_ns);
}

static void
take_events(void)
{
    struct leat_event event;

    while (leat_dispatcher_poll_event(steps.dispatcher, &event)) {
        scaled_take(&event);
    }
}

static void
command(const struct leat_command *order)
{
    leat_dispatcher_command(steps.dispatcher, order);
    (void)steps_round(0);
    take_events();
}

/* ---- The load ------------------------------------------------------------------------------------------- */

static struct leat_team_shape
shape_of(uint32_t worker)
{
    return leat_worker_unpack_shape(atomic_load_explicit(&steps.workers[worker]->shape, memory_order_relaxed));
}

static void
begin_batches(const struct model *model)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        const struct worker_record *record = &steps.dispatcher->records[w];
        const uint32_t outstanding = steps.dispatcher->sched_workers[w].outstanding;
        if (workers[w].busy || outstanding == 0) {
            continue;
        }
        const struct batch_record *batch = &record->batches[(record->batch_tail - outstanding) & (LEAT_WORKER_BATCHES - 1)];
        workers[w].busy = true;
        workers[w].shape = shape_of(w);
        const double time_ns = (double)time_of(model, workers[w].shape.worker_class, batch->items);
        workers[w].start_ns = steps.now_ns;
        workers[w].end_ns = steps.now_ns + (uint64_t)((1 + (2 * uniform() - 1) * spread) * time_ns);
    }
}

/* It runs in the shape that it began in, whatever the worker was told meanwhile. */
static void
end_batch(const struct model *model, uint32_t w)
{
    const struct worker_record *record = &steps.dispatcher->records[w];
    const uint32_t outstanding = steps.dispatcher->sched_workers[w].outstanding;
    const struct batch_record *batch = &record->batches[(record->batch_tail - outstanding) & (LEAT_WORKER_BATCHES - 1)];
    const uint32_t told = atomic_load_explicit(&steps.workers[w]->shape, memory_order_relaxed);
    const struct leat_team_shape shape = workers[w].shape;

    set_clock(workers[w].start_ns);
    steps.longer_ns =
        (int64_t)(workers[w].end_ns - workers[w].start_ns) - (int64_t)time_of(model, shape.worker_class, batch->items);
    (void)leat_worker_reshape(steps.workers[w], shape);
    EXPECT(steps_run(w));
    atomic_store_explicit(&steps.workers[w]->shape, told, memory_order_relaxed);
    EXPECT(steps.now_ns <= workers[w].end_ns); /* earlier, where some were not run any more */
    set_clock(workers[w].end_ns);
    workers[w].busy = false;
}

static void
count(const struct leat_wire_response *answer)
{
    const bool ok = answer->outcome == LEAT_OUTCOME_OK;

    outcome.in_time += ok && answer->total_ns <= objective_ns;
    outcome.late += ok && answer->total_ns > objective_ns;
    outcome.refused += answer->outcome == LEAT_OUTCOME_REJECTED;
    outcome.expired += answer->outcome == LEAT_OUTCOME_EXPIRED;
}

static void
play(const struct model *model, double rate_qps)
{
    static uint32_t out[NUMBERS], spare[NUMBERS];
    static bool counts[NUMBERS];
    uint32_t out_count = 0, spare_count = 0;
    const uint64_t begin_ns = steps.now_ns + SETTLING_S * 1000 * MS, end_ns = begin_ns + MEASURED_S * 1000 * MS;
    uint64_t arrival_ns = steps.now_ns;

    memset(&outcome, 0, sizeof(outcome));
    memset(workers, 0, sizeof(workers));
    while (spare_count < NUMBERS) {
        spare[spare_count] = spare_count;
        spare_count++;
    }
    while (steps.now_ns < end_ns || out_count > 0) {
        uint64_t next = steps.now_ns + MS < scaled_due_ns() ? steps.now_ns + MS : scaled_due_ns();
        uint32_t ends = WORKERS;
        next = arrival_ns < next ? arrival_ns : next;
        next = next > steps.now_ns ? next : steps.now_ns;
        for (uint32_t w = 0; w < WORKERS; w++) {
            if (workers[w].busy && workers[w].end_ns <= next) {
                next = workers[w].end_ns;
                ends = w;
            }
        }
        if (ends < WORKERS) {
            end_batch(model, ends);
        } else {
            set_clock(next);
        }
        if (arrival_ns <= steps.now_ns) {
            arrival_ns = steps.now_ns < end_ns ? arrival_ns + (uint64_t)(-log(uniform()) / rate_qps * 1e9) : UINT64_MAX;
            EXPECT(spare_count > 0);
            const uint32_t number = spare[--spare_count];
            counts[number] = steps.now_ns >= begin_ns;
            outcome.asked += counts[number];
            out[out_count++] = number;
            steps_submit(number, 1, (uint32_t)(objective_ns / 1000));
        }
        (void)steps_round(0);
        take_events();
        if (steps.now_ns < begin_ns) {
            scaled.core_looks = scaled.looks = 0;
        }
        scaled_keep();
        begin_batches(model);
        for (uint32_t i = 0; i < out_count;) {
            struct leat_wire_response answer;
            if (!steps_answer(out[i], &answer)) {
                i++;
                continue;
            }
            if (counts[out[i]]) {
                count(&answer);
            }
            spare[spare_count++] = out[i];
            out[i] = out[--out_count];
        }
    }
}

/* At least the share is in time, with no more cores than twice what the load takes in full batches, and two. */
static void
test_load(const struct model *model, uint32_t depth, double rate_qps, uint64_t objective, bool drop_late, double least)
{
    static const uint16_t classes[WORKERS];
    struct steps_options options = {.worker_count = WORKERS,
                                    .classes = classes,
                                    .class_count = CLASSES,
                                    .worker_depth = depth,
                                    .sessions = NUMBERS / STEPS_SLOTS,
                                    .router = leat_router_default(1),
                                    .selector = leat_selector_default(1, leat_router_default(1), false),
                                    .drop_late = drop_late,
                                    .items_max = ITEMS_MAX};
    const double takes = rate_qps / ITEMS_MAX * (double)time_of(model, 0, ITEMS_MAX) / 1e9;

    for (uint32_t class = 0; class < CLASSES; class++) {
        options.latency_ns[class] = time_of(model, class, 0);
        options.per_item_ns[class] = time_of(model, class, 1) - time_of(model, class, 0);
    }
    random_state = leat_test_seed;
    objective_ns = objective;
    steps_start(&options);
    scaled_begin(&(struct scaled_options){.dispatcher = steps.dispatcher,
                                          .tables = &steps.tables,
                                          .command = command,
                                          .stage_count = 1,
                                          .stages = {{.application = steps.app.id, .items_max = ITEMS_MAX}},
                                          .objective_ns = objective,
                                          .worker_count = WORKERS,
                                          .cores = CORES,
                                          .sizes = SIZES,
                                          .hold = 100});
    play(model, rate_qps);
    const double share = outcome.in_time / (double)outcome.asked, cores = (double)scaled.core_looks / scaled.looks;
    if (share < least || cores > 2 * takes + 2) {
        (void)fprintf(stderr,
                      "%s, %u batches each, %.0f/s within %.0f ms, late ones %s: %.4f in time, %u late, %u refused, %u expired; %.1f "
                      "cores, counted %.2f times\n",
                      model->name, depth, rate_qps, (double)objective / 1e6, drop_late ? "dropped" : "served", share, outcome.late,
                      outcome.refused, outcome.expired, cores, scaled.shortfall.factor);
    }
    EXPECT(share >= least && cores <= 2 * takes + 2);
    scaled_end();
    steps_stop();
}

int
main(void)
{
    static const struct model models[] = {
        {"nothing shared", 5 * MS, MS, false, false},
        {"items shared", 5 * MS, MS, false, true},
        {"all shared", 5 * MS, MS, true, true},
    };
    static const double rates[] = {20, 400, 2000};

    leat_test_init();
    for (size_t m = 0; m < LEAT_COUNT_OF(models); m++) {
        for (size_t r = 0; r < LEAT_COUNT_OF(rates); r++) {
            for (uint32_t depth = 1; depth <= 2; depth++) {
                test_load(&models[m], depth, rates[r], 30 * MS, true, 0.99);
                test_load(&models[m], depth, rates[r], 100 * MS, depth == 1, 0.99);
                test_load(&models[m], depth, rates[r], 25 * MS, true, 0.95); /* a batch of all takes 21 */
            }
        }
    }
    return 0;
}
