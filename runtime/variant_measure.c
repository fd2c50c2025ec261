/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/clock.h"
#include "kernels/made_inputs.h"
#include "kernels/team.h"
#include "runtime/log.h"
#include "runtime/variant.h"
#include "runtime/worker.h"

#define MS UINT64_C(1000000)

enum {
    PASSES = 5,      /* over all plans */
    PASS_RUNS = 20,  /* of one plan, at most */
    PASS_MS = 20,    /* and it is the next one's turn */
    SLOW_MS = 500,   /* a plan that has had so much is left alone after two runs */
    SLOWEST_MS = 2000, /* or after one */
    TURN_MS = 2,       /* of one plan of several that are compared, beside two runs */
    SETTLED_PASSES = 5, /* in a row, without a least time that falls by a hundredth: enough */
    TIMED_PASSES = 40,  /* at most */
    TEAM_SPIN_NS = 50000,
    WARM_MS = 20, /* what is cold in a longer run is little beside it */
    WARM_DRAWS = 256, /* of an item's indices, on a worker: what one draw names is a small part of large tables */
    WARM_LEAST = 8,  /* draws of a batch's */
};

/* The runs of one plan. */
struct cell {
    uint64_t samples_ns[PASSES * PASS_RUNS + 1]; /* the first warms up */
    uint32_t count;
    uint64_t spent_ns;
};

/* What a run needs, for the largest batch. */
struct payload {
    void *scratch;
    unsigned char *tensors[LEAT_TENSORS_MAX];
    uint32_t items;
    enum leat_filling filling; /* drawn anew for each run, for the rows of one draw are in the caches in the next */
    uint64_t drawn; /* numbers so far */
    bool varies;    /* from one draw to the next */
};

uint32_t
leat_variant_top_plan(const struct leat_variant *variant)
{
    const uint32_t items = variant->items_max;
    return items == 1 ? 0 : 32u - (uint32_t)__builtin_clz(items - 1);
}

uint32_t
leat_variant_plan_items(const struct leat_variant *variant, uint32_t bucket)
{
    return 1u << bucket < variant->items_max ? 1u << bucket : variant->items_max;
}

static void
free_payload(struct payload *payload)
{
    free(payload->scratch);
    for (uint32_t t = 0; t < LEAT_TENSORS_MAX; t++) {
        free(payload->tensors[t]);
    }
}

static size_t
most_scratch_bytes(const struct leat_variant *variant)
{
    size_t most = 0;

    for (uint32_t bucket = 0; bucket <= leat_variant_top_plan(variant); bucket++) {
        const size_t bytes = variant->backend->plan_scratch_bytes(variant->copies[0].plans[bucket]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static enum leat_status
make_payload(const struct leat_variant *variant, size_t scratch_bytes, uint32_t items, struct payload *ret_payload)
{
    struct payload payload = {0};
    bool good = true;

    payload.scratch = aligned_alloc(4096, leat_round_up(scratch_bytes + 1, 4096));
    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        const size_t bytes = leat_round_up(variant->item_bytes[t] * items, 4096);
        payload.tensors[t] = aligned_alloc(4096, bytes);
        good = good && payload.tensors[t] != NULL;
        if (payload.tensors[t] != NULL) {
            memset(payload.tensors[t], 0, bytes);
        }
    }
    if (!good || payload.scratch == NULL) {
        free_payload(&payload);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to measure a batch of %u", items);
    }
    payload.items = items;
    payload.filling = LEAT_FILLING_ZEROS;
    for (uint32_t t = 0; t < variant->input_count; t++) {
        const struct leat_made_range range = variant->made_ranges[t];
        payload.filling = range.end > 0 ? LEAT_FILLING_DRAWN : payload.filling;
        payload.varies = payload.varies || range.end - range.least > 1;
    }
    *ret_payload = payload;
    return LEAT_OK;
}

static size_t
elements_of(const struct leat_variant *variant, uint32_t t, uint32_t items)
{
    return (size_t)(variant->item_bytes[t] * items) / leat_dtype_bytes(variant->dtypes[t]);
}

/* Of other inputs nothing is known: they are as they were made. */
static void
draw_inputs(const struct leat_variant *variant, uint32_t items, struct payload *payload)
{
    for (uint32_t t = 0; t < variant->input_count; t++) {
        if (variant->made_ranges[t].end > 0) {
            leat_made_fill(LEAT_FILLING_DRAWN, variant->dtypes[t], variant->made_ranges[t], elements_of(variant, t, items),
                           &payload->drawn, payload->tensors[t]);
        }
    }
}

/* The model has refused what it was given, and said why. */
static void
fill_otherwise(const struct leat_variant *variant, struct payload *payload)
{
    const enum leat_filling next = payload->filling + 1;

    leat_log(LEAT_LOG_INFO, "model '%s' is tried on %s, for it refuses %s: %s", variant->name, leat_filling_text(next),
             leat_filling_text(payload->filling), leat_error_text());
    for (uint32_t t = 0; t < variant->input_count; t++) {
        leat_made_fill(next, variant->dtypes[t], variant->made_ranges[t], elements_of(variant, t, payload->items),
                       &payload->drawn, payload->tensors[t]);
    }
    payload->filling = next;
}

static struct leat_segment
segment_of(const struct leat_variant *variant, const struct payload *payload, uint32_t items)
{
    struct leat_segment segment = {.items = items, .length = variant->length};

    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        segment.tensors[t] = payload->tensors[t];
    }
    return segment;
}

/* What fails takes another time than what is done: it is not counted. */
static enum leat_status
run_once(const struct leat_variant *variant, const struct leat_plan *plan, uint32_t items, struct payload *payload,
         struct leat_team *team, struct cell *cell)
{
    const struct leat_segment segment = segment_of(variant, payload, items);
    enum leat_status status = LEAT_OK;
    uint64_t start_ns, took_ns;

    do {
        if (status != LEAT_OK) {
            fill_otherwise(variant, payload);
        }
        if (payload->filling == LEAT_FILLING_DRAWN) {
            draw_inputs(variant, items, payload);
        }
        start_ns = leat_monotonic_ns();
        status = variant->backend->plan_run(plan, &segment, 1, payload->scratch, team);
        took_ns = leat_monotonic_ns() - start_ns;
    } while (status == LEAT_ERR_SHAPE && payload->filling != LEAT_FILLING_ONES);
    if (status != LEAT_OK) {
        return leat_err_prefix(status, status == LEAT_ERR_SHAPE ? "batch of %u, of zeros and of ones" : "batch of %u", items);
    }
    cell->samples_ns[cell->count++] = took_ns;
    cell->spent_ns += took_ns;
    return LEAT_OK;
}

static bool
is_slow(const struct cell *cell)
{
    return (cell->count >= 2 && cell->spent_ns > SLOW_MS * MS) || cell->spent_ns > SLOWEST_MS * MS;
}

static enum leat_status
measure_cells(const struct leat_variant *variant, struct payload *payload, struct leat_team *team, struct cell *cells)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t pass = 0; pass < PASSES; pass++) {
        for (uint32_t bucket = 0; bucket <= leat_variant_top_plan(variant); bucket++) {
            const struct leat_plan *plan = variant->copies[0].plans[bucket];
            const uint32_t items = leat_variant_plan_items(variant, bucket);
            struct cell *cell = &cells[bucket];
            if (pass == 0) {
                status = run_once(variant, plan, items, payload, team, cell);
            }
            const uint64_t spent_before_ns = cell->spent_ns;
            for (uint32_t run = 0; status == LEAT_OK && run < PASS_RUNS && !is_slow(cell); run++) {
                status = run_once(variant, plan, items, payload, team, cell);
                if (cell->spent_ns - spent_before_ns > PASS_MS * MS) {
                    break;
                }
            }
            if (status != LEAT_OK) {
                return status;
            }
        }
    }
    return LEAT_OK;
}

static enum leat_status
add_points(const struct leat_variant *variant, const char *class_name, uint32_t cores, struct cell *cells,
           struct leat_measured *measured)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t bucket = 0; bucket <= leat_variant_top_plan(variant) && status == LEAT_OK; bucket++) {
        struct cell *cell = &cells[bucket];
        const uint32_t warm = cell->count > 1 ? 1 : 0;
        struct leat_measured_point point = {
            .cores = cores, .items = leat_variant_plan_items(variant, bucket), .length = variant->length};
        (void)snprintf(point.worker_class, sizeof(point.worker_class), "%s", class_name);
        leat_measured_summarise(cell->samples_ns + warm, cell->count - warm, &point);
        status = leat_measured_add(measured, &point);
    }
    return status;
}

/* Adds what the backend knows without a run: every size that a profile has a knot for, and the largest. LEAT_AGAIN: nothing. */
static enum leat_status
ask_backend(const struct leat_variant *variant, uint32_t worker_class, const char *class_name, uint32_t cores,
            struct leat_measured *measured)
{
    const struct leat_plan *plan = variant->copies[0].plans[leat_variant_top_plan(variant)];
    struct leat_plan_times times;
    enum leat_status status = LEAT_OK;

    for (uint32_t items = 1, next; items <= variant->items_max && status == LEAT_OK; items = next) {
        struct leat_measured_point point = {.cores = cores, .items = items, .length = variant->length};
        if (variant->backend->plan_times == NULL || !variant->backend->plan_times(plan, worker_class, items, &times)) {
            return LEAT_AGAIN;
        }
        (void)snprintf(point.worker_class, sizeof(point.worker_class), "%s", class_name);
        point.mean_ns = times.mean_ns;
        point.p50_ns = times.p50_ns;
        point.p95_ns = times.p95_ns;
        point.p99_ns = times.p99_ns;
        status = leat_measured_add(measured, &point);
        next = leat_profile_next_knot(items);
        next = items < variant->items_max && next > variant->items_max ? variant->items_max : next;
    }
    return status;
}

enum leat_status
leat_variant_measure(const struct leat_variant *variant, uint32_t worker_class, const char *class_name, uint32_t cores,
                     struct leat_measured *measured)
{
    const struct leat_team_options options = {.size = cores, .spin_ns = TEAM_SPIN_NS, .worker_class = worker_class};
    struct leat_team *team = NULL;
    struct payload payload;

    enum leat_status status = ask_backend(variant, worker_class, class_name, cores, measured);
    if (status != LEAT_AGAIN) {
        return status;
    }
    struct cell *cells = calloc(LEAT_PLANS_MAX, sizeof(*cells));
    if (cells == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to measure");
    }
    status = make_payload(variant, most_scratch_bytes(variant), variant->items_max, &payload);
    if (status != LEAT_OK) {
        free(cells);
        return status;
    }
    if (cores > 1 || worker_class > 0) {
        status = leat_team_create(&options, &team);
    }
    if (status == LEAT_OK) {
        status = measure_cells(variant, &payload, team, cells);
    }
    if (status == LEAT_OK) {
        status = add_points(variant, class_name, cores, cells, measured);
    }
    leat_team_destroy(team);
    free_payload(&payload);
    free(cells);
    return status;
}

static bool
knows_times(const struct leat_variant *variant, uint32_t worker_class)
{
    struct leat_plan_times times;
    return variant->backend->plan_times != NULL &&
           variant->backend->plan_times(variant->copies[0].plans[0], worker_class, 1, &times);
}

enum leat_status
leat_variant_warm(const struct leat_variant *variant, uint32_t first_copy, uint32_t worker_class, uint32_t cores)
{
    const struct leat_team_options options = {.size = cores, .spin_ns = TEAM_SPIN_NS, .worker_class = worker_class};
    struct leat_team *team = NULL;
    struct payload payload;

    if (first_copy >= variant->copy_count || knows_times(variant, worker_class)) {
        return LEAT_OK;
    }
    enum leat_status status = make_payload(variant, most_scratch_bytes(variant), variant->items_max, &payload);
    if (status != LEAT_OK) {
        return status;
    }
    if (cores > 1 || worker_class > 0) {
        status = leat_team_create(&options, &team);
    }
    for (uint32_t c = first_copy; c < variant->copy_count; c++) {
        struct cell cell = {.count = 0};
        for (uint32_t bucket = 0; status == LEAT_OK && bucket <= leat_variant_top_plan(variant) && cell.spent_ns < WARM_MS * MS;
             bucket++) {
            status = run_once(variant, variant->copies[c].plans[bucket], leat_variant_plan_items(variant, bucket), &payload, team,
                              &cell);
        }
        status = status == LEAT_ERR_SHAPE ? LEAT_OK : status; /* it is warm all the same */
    }
    leat_team_destroy(team);
    free_payload(&payload);
    return status;
}

/* Whether another draw names others. */
static bool
varies(const struct payload *payload)
{
    return payload->filling == LEAT_FILLING_DRAWN && payload->varies;
}

/* One plan, as often as its payload asks for. */
static enum leat_status
warm_plan(const struct leat_variant *variant, struct leat_worker *worker, uint32_t bucket, uint64_t until_ns,
          struct payload *payload, uint32_t *runs)
{
    const struct leat_plan *plan = variant->copies[worker->options.copy].plans[bucket];
    const uint32_t items = leat_variant_plan_items(variant, bucket);
    const struct leat_segment segment = segment_of(variant, payload, items);
    const uint32_t draws = WARM_DRAWS / items > WARM_LEAST ? WARM_DRAWS / items : WARM_LEAST;
    enum leat_status status = LEAT_OK;

    for (uint32_t done = 0; done < (varies(payload) ? draws : 1u) && status == LEAT_OK;) {
        if (payload->filling == LEAT_FILLING_DRAWN) {
            draw_inputs(variant, items, payload);
        }
        status = leat_monotonic_ns() < until_ns ? leat_worker_warm(worker, variant->backend, plan, &segment, until_ns)
                                                : LEAT_AGAIN;
        done += status == LEAT_OK;
        *runs += status == LEAT_OK;
        if (status == LEAT_ERR_SHAPE && payload->filling != LEAT_FILLING_ONES) {
            fill_otherwise(variant, payload);
            status = LEAT_OK;
        }
    }
    return status;
}

enum leat_status
leat_variant_warm_worker(const struct leat_variant *variant, struct leat_worker *worker, uint32_t worker_class, uint32_t items,
                         uint64_t until_ns, uint32_t *ret_runs)
{
    struct payload payload;

    *ret_runs = 0;
    if (knows_times(variant, worker_class)) {
        return LEAT_OK;
    }
    enum leat_status status = make_payload(variant, 0, items, &payload);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t bucket = 0; bucket <= leat_variant_top_plan(variant) && leat_variant_plan_items(variant, bucket) <= items &&
                              status == LEAT_OK;
         bucket++) {
        status = warm_plan(variant, worker, bucket, until_ns, &payload, ret_runs);
    }
    free_payload(&payload);
    return status;
}

/* A turn of one plan, whose least time may fall. */
static enum leat_status
take_turn(struct leat_timed_plan *timed, struct payload *payload, struct leat_team *team, uint32_t worker_class,
          bool *settled)
{
    const uint64_t before_ns = timed->least_ns[worker_class];
    struct cell turn = {.count = 0};
    enum leat_status status = LEAT_OK;

    while (status == LEAT_OK && turn.count < PASS_RUNS && (turn.count < 2 || turn.spent_ns < TURN_MS * MS) && !is_slow(&turn)) {
        status = run_once(timed->variant, timed->plan, timed->items, payload, team, &turn);
    }
    for (uint32_t run = 0; run < turn.count; run++) {
        const uint64_t took_ns = turn.samples_ns[run] > 0 ? turn.samples_ns[run] : 1;
        if (timed->least_ns[worker_class] == 0 || took_ns < timed->least_ns[worker_class]) {
            timed->least_ns[worker_class] = took_ns;
        }
    }
    timed->spent_ns += turn.spent_ns;
    *settled = *settled && before_ns > 0 && timed->least_ns[worker_class] >= before_ns - before_ns / 100;
    return status;
}

static enum leat_status
take_turns(struct leat_timed_plan *plans, uint32_t count, struct payload *payload, struct leat_team *team,
           uint32_t worker_class)
{
    enum leat_status status = LEAT_OK;
    uint32_t settled_passes = 0;

    for (uint32_t p = 0; p < count; p++) {
        plans[p].least_ns[worker_class] = plans[p].spent_ns = 0;
    }
    for (uint32_t pass = 0; pass < TIMED_PASSES && settled_passes < SETTLED_PASSES; pass++) {
        bool settled = true;
        for (uint32_t p = 0; p < count && status == LEAT_OK; p++) {
            if (plans[p].spent_ns < SLOW_MS * MS) {
                status = take_turn(&plans[p], payload, team, worker_class, &settled);
            }
        }
        if (status != LEAT_OK) {
            return status;
        }
        settled_passes = settled ? settled_passes + 1 : 0;
    }
    return LEAT_OK;
}

enum leat_status
leat_variant_time_plans(struct leat_timed_plan *plans, uint32_t count, uint32_t worker_class, uint32_t cores)
{
    const struct leat_team_options options = {.size = cores, .spin_ns = TEAM_SPIN_NS, .worker_class = worker_class};
    const struct leat_backend *backend = plans[0].variant->backend;
    struct leat_team *team = NULL;
    struct leat_plan_times known;
    struct payload payload;
    size_t scratch_bytes = 0;
    uint32_t items = 1, known_count = 0;

    for (uint32_t p = 0; p < count; p++) {
        const size_t bytes = backend->plan_scratch_bytes(plans[p].plan);
        scratch_bytes = bytes > scratch_bytes ? bytes : scratch_bytes;
        items = plans[p].items > items ? plans[p].items : items;
        if (backend->plan_times != NULL && backend->plan_times(plans[p].plan, worker_class, plans[p].items, &known)) {
            plans[p].least_ns[worker_class] = known.p50_ns > 0 ? known.p50_ns : 1;
            known_count++;
        }
    }
    if (known_count == count) {
        return LEAT_OK;
    }
    enum leat_status status = make_payload(plans[0].variant, scratch_bytes, items, &payload);
    if (status != LEAT_OK) {
        return status;
    }
    if (cores > 1 || worker_class > 0) {
        status = leat_team_create(&options, &team);
    }
    if (status == LEAT_OK) {
        status = take_turns(plans, count, &payload, team, worker_class);
    }
    leat_team_destroy(team);
    free_payload(&payload);
    return status;
}
