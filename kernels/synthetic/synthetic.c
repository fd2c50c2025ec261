/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The synthetic backend occupies its worker for exactly the profiled time: how hardware that is not here is
 * emulated, and how scheduling is tested without models. It reads the clock, unlike the rest of this layer,
 * because time is all it makes.
 *
 * Options, a JSON object:
 *   "latency_ns"   time of any batch; default 0
 *   "per_item_ns"  added for each item; default 0
 *   "parallel_ns", "parallel_per_item_ns"  the same, divided by the cores of the team; default 0. So a batch of b items on c
 *                  cores takes latency + per_item b + (parallel + parallel_per_item b) / c, as sched/scale.h has it
 *   "points"       [{"items": n, "latency_ns": t}, ...] rising in items: linear between the points, flat before
 *                  the first, and beyond the last by its slope; instead of latency and per_item
 *   "tables"       {"class name": [{"items": n, "samples_ns": [t, ...]}, ...], ...} rising in items, for every class of
 *                  workers; instead of all of the above. Class "*" is any that is not named. A batch takes one of the samples
 *                  of the first size that is not smaller, each as likely as the others: how a machine behaves that was
 *                  measured.
 *   "seed"         of the draws from samples; default 1. The n-th batch that begins, on whatever worker, has the n-th draw.
 *   "mode"         "sleep" (default): an absolute timer, so dozens of workers fit on two cores; late by what a wake-up
 *                  takes, as the thread asks for no timer slack. "burn": every member of the team spins.
 *   "payload"      what is done to it before the time runs. "leave" (default): nothing, outputs stay as they are.
 *                  "read": every byte of input 0 is read, and output 0 begins with the sum of its 64-bit words, the last
 *                  one filled up with zeros, for each segment. "copy": the first bytes of input 0 go to output 0.
 * A batch of time 0 returns without a system call.
 */
#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/align.h"
#include "base/clock.h"
#include "kernels/backend.h"
#include "kernels/team.h"

enum { POINTS_MAX = 64 };

struct point {
    uint64_t items, latency_ns;
};

/* What was measured of one size on one class. */
struct row {
    uint64_t items;
    uint64_t *samples_ns; /* [count] */
    uint32_t count;
    struct leat_plan_times times; /* of them */
};

struct table {
    struct row *rows; /* [count], rising in items */
    uint32_t count;
};

struct leat_model {
    struct table *tables; /* [table_count], by class; NULL: the other forms */
    uint32_t table_count;
    uint64_t seed;
    _Atomic uint64_t draws; /* so far. W: whoever begins a batch, relaxed */
    struct point points[POINTS_MAX];
    uint32_t point_count; /* 0: the affine form */
    uint64_t latency_ns, per_item_ns, parallel_ns, parallel_per_item_ns;
    uint32_t *class_cores; /* [class_count] */
    uint32_t class_count;
    bool burn;
    enum { PAYLOAD_LEAVE, PAYLOAD_READ, PAYLOAD_COPY } payload;
    uint32_t input_count;
    uint64_t input_bytes, output_bytes; /* of one item of input 0 and output 0; 0 where there is none */
};

struct leat_plan {
    struct leat_model *model;
};

static enum leat_status
read_u64(const json_t *object, const char *key, uint64_t *ret)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL) {
        return LEAT_OK;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "synthetic option '%s' must be a whole number of at least 0", key);
    }
    *ret = (uint64_t)json_integer_value(value);
    return LEAT_OK;
}

static enum leat_status
read_points(const json_t *points, struct leat_model *model)
{
    if (!json_is_array(points) || json_array_size(points) == 0 || json_array_size(points) > POINTS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "synthetic option 'points' must be a list of 1 to %d points", POINTS_MAX);
    }
    for (size_t i = 0; i < json_array_size(points); i++) {
        struct point *point = &model->points[i];
        const json_t *object = json_array_get(points, i);
        enum leat_status status = read_u64(object, "items", &point->items);
        if (status == LEAT_OK) {
            status = read_u64(object, "latency_ns", &point->latency_ns);
        }
        if (status != LEAT_OK) {
            return status;
        }
        if (point->items == 0 || point->items > LEAT_ITEMS_MAX || (i > 0 && point->items <= point[-1].items)) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "synthetic point %zu: items must rise, from 1 to %u", i, LEAT_ITEMS_MAX);
        }
    }
    model->point_count = (uint32_t)json_array_size(points);
    return LEAT_OK;
}

static int
compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The least that so many per cent of the samples do not exceed. */
static uint64_t
percentile_ns(const uint64_t *sorted_ns, uint64_t count, uint64_t percent)
{
    return sorted_ns[(count * percent + 99) / 100 - 1];
}

static enum leat_status
summarise(struct row *row)
{
    uint64_t *sorted_ns = malloc(row->count * sizeof(*sorted_ns));
    double sum_ns = 0;

    if (sorted_ns == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u samples", row->count);
    }
    memcpy(sorted_ns, row->samples_ns, row->count * sizeof(*sorted_ns));
    qsort(sorted_ns, row->count, sizeof(*sorted_ns), compare_u64);
    for (uint32_t s = 0; s < row->count; s++) {
        sum_ns += (double)sorted_ns[s];
    }
    row->times = (struct leat_plan_times){
        .mean_ns = (uint64_t)(sum_ns / row->count + 0.5),
        .p50_ns = percentile_ns(sorted_ns, row->count, 50),
        .p95_ns = percentile_ns(sorted_ns, row->count, 95),
        .p99_ns = percentile_ns(sorted_ns, row->count, 99),
    };
    free(sorted_ns);
    return LEAT_OK;
}

static enum leat_status
read_row(const json_t *object, const char *class, size_t number, struct row *row)
{
    const json_t *samples = json_object_get(object, "samples_ns");
    const size_t count = json_array_size(samples);
    const enum leat_status status = read_u64(object, "items", &row->items);

    if (status != LEAT_OK) {
        return status;
    }
    if (row->items == 0 || row->items > LEAT_ITEMS_MAX || (number > 0 && row->items <= row[-1].items)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "synthetic table '%s', row %zu: items must rise, from 1 to %u", class, number,
                         LEAT_ITEMS_MAX);
    }
    if (count == 0 || count > UINT32_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "synthetic table '%s', row %zu: 'samples_ns' must be a list of times", class,
                         number);
    }
    row->samples_ns = calloc(count, sizeof(row->samples_ns[0]));
    if (row->samples_ns == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %zu samples", count);
    }
    row->count = (uint32_t)count;
    for (size_t s = 0; s < count; s++) {
        const json_t *sample = json_array_get(samples, s);
        if (!json_is_integer(sample) || json_integer_value(sample) < 0) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "synthetic table '%s', row %zu: a sample is no whole number of at least 0",
                             class, number);
        }
        row->samples_ns[s] = (uint64_t)json_integer_value(sample);
    }
    return summarise(row);
}

static enum leat_status
read_tables(const json_t *tables, const struct leat_model_source *source, struct leat_model *model)
{
    model->tables = calloc(source->class_count == 0 ? 1 : source->class_count, sizeof(model->tables[0]));
    if (model->tables == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for tables of times");
    }
    if (source->class_count == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "synthetic option 'tables' needs classes of workers that have names");
    }
    for (; model->table_count < source->class_count;) {
        const char *class = source->class_names[model->table_count];
        const json_t *named = json_object_get(tables, class), *rows = named != NULL ? named : json_object_get(tables, "*");
        struct table *table = &model->tables[model->table_count++];
        const size_t count = json_array_size(rows);
        if (count == 0) {
            return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "synthetic option 'tables' has no times for workers of class '%s'", class);
        }
        table->rows = calloc(count, sizeof(table->rows[0]));
        if (table->rows == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for tables of times");
        }
        while (table->count < count) {
            const uint32_t number = table->count++;
            const enum leat_status status = read_row(json_array_get(rows, number), class, number, &table->rows[number]);
            if (status != LEAT_OK) {
                return status;
            }
        }
    }
    return LEAT_OK;
}

/* One of `words`, the first if the option is not there. */
static enum leat_status
read_word(const json_t *options, const char *key, const char *const *words, size_t count, size_t *ret_word)
{
    const json_t *value = json_object_get(options, key);
    const char *text = json_string_value(value);
    size_t word = 0;

    while (text != NULL && word < count && strcmp(text, words[word]) != 0) {
        word++;
    }
    if (value != NULL && (text == NULL || word == count)) {
        char list[64] = "";
        for (size_t i = 0; i < count; i++) {
            (void)strcat(strcat(list, i > 0 ? ", " : ""), words[i]);
        }
        return LEAT_FAIL(LEAT_ERR_INVALID, "synthetic option '%s' must be one of: %s", key, list);
    }
    *ret_word = word;
    return LEAT_OK;
}

static enum leat_status
read_options(const json_t *options, const struct leat_model_source *source, struct leat_model *model)
{
    const char *const known[] = {"latency_ns", "per_item_ns", "parallel_ns", "parallel_per_item_ns", "points", "tables", "seed", "mode",
                                 "payload"};
    static const char *const modes[] = {"sleep", "burn"};
    static const char *const payloads[] = {[PAYLOAD_LEAVE] = "leave", [PAYLOAD_READ] = "read", [PAYLOAD_COPY] = "copy"};
    size_t mode = 0, payload = 0;
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)options, key, value) {
        bool found = false;
        for (size_t i = 0; i < LEAT_COUNT_OF(known); i++) {
            found = found || strcmp(known[i], key) == 0;
        }
        if (!found) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "unknown synthetic option '%s'", key);
        }
    }
    enum leat_status status = read_u64(options, "latency_ns", &model->latency_ns);
    if (status == LEAT_OK) {
        status = read_u64(options, "per_item_ns", &model->per_item_ns);
    }
    if (status == LEAT_OK) {
        status = read_u64(options, "parallel_ns", &model->parallel_ns);
    }
    if (status == LEAT_OK) {
        status = read_u64(options, "parallel_per_item_ns", &model->parallel_per_item_ns);
    }
    if (status == LEAT_OK && json_object_get(options, "points") != NULL) {
        status = read_points(json_object_get(options, "points"), model);
    }
    model->seed = 1;
    if (status == LEAT_OK) {
        status = read_u64(options, "seed", &model->seed);
    }
    if (status == LEAT_OK && json_object_get(options, "tables") != NULL) {
        status = read_tables(json_object_get(options, "tables"), source, model);
    }
    if (status == LEAT_OK) {
        status = read_word(options, "mode", modes, LEAT_COUNT_OF(modes), &mode);
    }
    if (status == LEAT_OK) {
        status = read_word(options, "payload", payloads, LEAT_COUNT_OF(payloads), &payload);
    }
    model->burn = mode == 1;
    model->payload = payload;
    return status;
}

static void
synthetic_model_destroy(struct leat_model *model)
{
    if (model == NULL) {
        return;
    }
    for (uint32_t t = 0; t < model->table_count; t++) {
        for (uint32_t r = 0; r < model->tables[t].count; r++) {
            free(model->tables[t].rows[r].samples_ns);
        }
        free(model->tables[t].rows);
    }
    free(model->tables);
    free(model->class_cores);
    free(model);
}

static enum leat_status
keep_classes(const struct leat_model_source *source, struct leat_model *model)
{
    if (model->tables != NULL && (model->parallel_ns > 0 || model->parallel_per_item_ns > 0)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "synthetic option 'tables' has the times of batches: leave 'parallel_ns' and "
                                           "'parallel_per_item_ns' out");
    }
    if (source->class_cores == NULL || source->class_count == 0) {
        return LEAT_OK;
    }
    model->class_cores = malloc(source->class_count * sizeof(model->class_cores[0]));
    if (model->class_cores == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for classes of workers");
    }
    memcpy(model->class_cores, source->class_cores, source->class_count * sizeof(model->class_cores[0]));
    model->class_count = source->class_count;
    return LEAT_OK;
}

static enum leat_status
synthetic_model_load(const struct leat_model_source *source, struct leat_model **ret_model)
{
    json_error_t error;
    json_t *options = json_loads(source->options_json != NULL ? source->options_json : "{}", 0, &error);
    if (!json_is_object(options)) {
        json_decref(options);
        return LEAT_FAIL(LEAT_ERR_INVALID, "synthetic options are not a JSON object: %s", error.text);
    }
    struct leat_model *model = calloc(1, sizeof(*model));
    enum leat_status status = LEAT_ERR_NOMEM;
    if (model != NULL) {
        status = read_options(options, source, model);
    }
    if (status == LEAT_OK) {
        status = keep_classes(source, model);
    }
    json_decref(options);
    if (status != LEAT_OK) {
        synthetic_model_destroy(model);
        return status;
    }
    model->input_count = source->input_count;
    if (source->input_count > 0 && source->output_count > 0) {
        model->input_bytes = source->infos[0].item_bytes;
        model->output_bytes = source->infos[source->input_count].item_bytes;
    }
    *ret_model = model;
    return LEAT_OK;
}

static size_t
synthetic_model_bytes(const struct leat_model *model)
{
    return sizeof(*model);
}

static enum leat_status
synthetic_plan_build(struct leat_model *model, const struct leat_plan_options *options, struct leat_plan **ret_plan)
{
    for (uint32_t t = 0; t < model->table_count; t++) {
        const uint64_t most = model->tables[t].rows[model->tables[t].count - 1].items;
        if (options->items > most) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "synthetic option 'tables' ends at %llu items: lower items_max to that",
                             (unsigned long long)most);
        }
    }
    struct leat_plan *plan = malloc(sizeof(*plan)); /* no state of its own: any batch, team and number of runs will do */
    if (plan == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    plan->model = model;
    *ret_plan = plan;
    return LEAT_OK;
}

static void
synthetic_plan_destroy(struct leat_plan *plan)
{
    free(plan);
}

static size_t
synthetic_plan_scratch_bytes(const struct leat_plan *plan)
{
    (void)plan;
    return 0;
}

/* The next draw: splitmix64 of the seed and its number (G. Steele, D. Lea, C. Flood, OOPSLA 2014). */
static uint64_t
draw(struct leat_model *model)
{
    const uint64_t number = atomic_fetch_add_explicit(&model->draws, 1, memory_order_relaxed);
    uint64_t z = model->seed + (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Of the first size that is not smaller. */
static const struct row *
find_row(const struct leat_model *model, uint32_t worker_class, uint64_t items)
{
    LEAT_ASSERT(worker_class < model->table_count);
    const struct table *table = &model->tables[worker_class];
    uint32_t low = 0, high = table->count - 1; /* the plan holds no more than the last row */

    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (table->rows[middle].items < items) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return &table->rows[low];
}

static uint64_t
sampled_ns(struct leat_model *model, uint32_t worker_class, uint64_t items)
{
    const struct row *row = find_row(model, worker_class, items);
    return row->samples_ns[(draw(model) >> 32) * row->count >> 32];
}

/* As if on one core, or on any number of them. */
static uint64_t
alone_ns(const struct leat_model *model, uint64_t items)
{
    if (model->point_count == 0) {
        return model->latency_ns + model->per_item_ns * items;
    }
    const struct point *points = model->points;
    uint32_t above = 0;
    while (above < model->point_count && points[above].items < items) {
        above++;
    }
    if (above == 0 || model->point_count == 1) {
        return points[0].latency_ns;
    }
    if (above == model->point_count) {
        above--;
    }
    const struct point *a = &points[above - 1], *b = &points[above];
    const double slope = ((double)b->latency_ns - (double)a->latency_ns) / (double)(b->items - a->items);
    const double value = (double)a->latency_ns + slope * (double)(items - a->items);
    return value > 0 ? (uint64_t)value : 0;
}

static uint64_t
batch_ns(const struct leat_model *model, uint64_t items, uint32_t cores)
{
    return alone_ns(model, items) + (model->parallel_ns + model->parallel_per_item_ns * items) / cores;
}

/* Of a team of the class; 1 where classes are not known. */
static uint32_t
cores_of_class(const struct leat_model *model, uint32_t worker_class)
{
    return worker_class < model->class_count ? model->class_cores[worker_class] : 1;
}

/* But for wake-ups. What is done to payload takes time that is not known. */
static bool
synthetic_plan_times(const struct leat_plan *plan, uint32_t worker_class, uint32_t items,
                     struct leat_plan_times *ret_times)
{
    const struct leat_model *model = plan->model;

    if (model->payload != PAYLOAD_LEAVE) {
        return false;
    }
    if (model->tables != NULL) {
        *ret_times = find_row(model, worker_class, items)->times;
    } else {
        const uint64_t ns = batch_ns(model, items, cores_of_class(model, worker_class));
        *ret_times = (struct leat_plan_times){.mean_ns = ns, .p50_ns = ns, .p95_ns = ns, .p99_ns = ns};
    }
    return true;
}

static void
burn_until(void *context, uint32_t member, uint32_t size)
{
    const uint64_t *until_ns = context;
    (void)member;
    (void)size;
    while (leat_monotonic_ns() < *until_ns) {
        leat_spin_pause();
    }
}

/* Sum of the 64-bit words of [bytes, bytes + size), as fast as the bytes come. */
static uint64_t
sum_words(const unsigned char *bytes, uint64_t size)
{
    typedef uint64_t pair __attribute__((vector_size(16), aligned(1), may_alias));
    pair a = {0}, b = {0}, c = {0}, d = {0};
    uint64_t at = 0;

    for (; size - at >= 4 * sizeof(pair); at += 4 * sizeof(pair)) {
        const pair *next = (const void *)(bytes + at);
        a += next[0];
        b += next[1];
        c += next[2];
        d += next[3];
    }
    a += b + c + d;
    uint64_t sum = a[0] + a[1];
    for (; at < size; at += sizeof(sum)) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, size - at < sizeof(word) ? size - at : sizeof(word));
        sum += word;
    }
    return sum;
}

static void
handle_payload(const struct leat_model *model, const struct leat_segment *segment)
{
    /* Outputs are the caller's to write through; the segment keeps them const with the inputs. */
    void *output = (void *)(uintptr_t)segment->tensors[model->input_count];
    const uint64_t in = model->input_bytes * segment->items, out = model->output_bytes * segment->items;

    if (in == 0 || out == 0) {
        return;
    }
    if (model->payload == PAYLOAD_COPY) {
        memcpy(output, segment->tensors[0], in < out ? in : out);
    } else {
        const uint64_t sum = sum_words(segment->tensors[0], in);
        memcpy(output, &sum, sizeof(sum) < out ? sizeof(sum) : out);
    }
}

static enum leat_status
synthetic_plan_run(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
                   struct leat_team *team)
{
    struct leat_model *model = plan->model;
    uint64_t items = 0;

    (void)scratch;
    for (uint32_t i = 0; i < count; i++) {
        items += segments[i].items;
        if (model->payload != PAYLOAD_LEAVE) {
            handle_payload(model, &segments[i]);
        }
    }
    const uint64_t duration_ns =
        model->tables != NULL ? sampled_ns(model, leat_team_class(team), items) : batch_ns(model, items, leat_team_size(team));
    if (duration_ns == 0) {
        return LEAT_OK;
    }
    uint64_t until_ns = leat_monotonic_ns() + duration_ns;
    if (model->burn) {
        leat_team_run(team, burn_until, &until_ns);
        return LEAT_OK;
    }
    static _Thread_local bool punctual;
    if (!punctual) { /* else the kernel may wait for 50 us, to wake several sleepers at once */
        punctual = prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL) == 0;
    }
    const struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
    }
    return LEAT_OK;
}

const struct leat_backend leat_backend_synthetic = {
    .abi = LEAT_BACKEND_ABI,
    .name = "synthetic",
    .times_by_class = true,
    .model_load = synthetic_model_load,
    .model_destroy = synthetic_model_destroy,
    .model_bytes = synthetic_model_bytes,
    .plan_build = synthetic_plan_build,
    .plan_destroy = synthetic_plan_destroy,
    .plan_scratch_bytes = synthetic_plan_scratch_bytes,
    .plan_run = synthetic_plan_run,
    .plan_times = synthetic_plan_times,
};
