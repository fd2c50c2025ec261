/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client process of leat bench. Queries leave at times that do not depend on the answers, and latency counts from when
 * a query was due, so a daemon that stalls cannot hide it.
 */
#include "tools/cli/bench.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/align.h"
#include "base/clock.h"
#include "base/slice.h"
#include "tools/cli/cli.h"
#include "base/npy.h"

enum { POLL_MAX = 64 };
#define WAKE_EARLY_NS UINT64_C(50000)   /* waking up takes that long; the rest is spun */
#define LOOK_AGAIN_NS UINT64_C(1000000) /* while no slot is free */

struct client {
    const struct bench_client_task *task;
    const struct bench_options *options;
    struct bench_result *result;
    struct leat_session *session;
    struct leat_target target;
    uint32_t items_max;               /* of a query */
    uint64_t start_ns;                /* CLOCK_MONOTONIC, as all of these */
    uint64_t window_ns, window_end_ns;
    uint64_t slot_free_ns;            /* when a slot came free after all had been taken */
    struct npy_array inputs, labels;
    uint64_t item_count; /* in the input file; 0: none */
    struct slot {
        void *tensors[LEAT_TENSORS_MAX];
        uint64_t due_ns; /* 0: it is free */
        uint64_t first_item; /* in the input file */
        uint32_t items;
    } slots[BENCH_SLOTS_MAX];
    uint32_t free_slots[BENCH_SLOTS_MAX], free_count, slot_count;
    uint64_t unsent; /* when those were due fills latencies_ns from its end downwards */
};

/* ---- Before the start -------------------------------------------------------------------------- */

static int
fail(struct client *client, enum leat_status status)
{
    const char *text = status == LEAT_ERR_DISCONNECTED
                           ? "the daemon ended, or was started anew, before all queries had been sent: nothing was measured"
                           : leat_error_text();
    (void)snprintf(client->result->error, sizeof(client->result->error), "%s", text);
    return status == LEAT_ERR_NOT_FOUND || status == LEAT_ERR_ACCESS || status == LEAT_ERR_LIMIT ? EXIT_REFUSED
                                                                                                  : EXIT_FAILED;
}

static int
fail_text(struct client *client, const char *text)
{
    (void)snprintf(client->result->error, sizeof(client->result->error), "%s", text);
    return EXIT_FAILED;
}

static int
load_data(struct client *client)
{
    const struct leat_tensor_info *info = &client->target.tensors[0];

    if (client->options->inputs_path == NULL) {
        return EXIT_DONE;
    }
    enum leat_status status = npy_read(client->options->inputs_path, &client->inputs);
    if (status != LEAT_OK) {
        return fail(client, status);
    }
    if (!npy_holds_items(&client->inputs, info) || (uint64_t)client->inputs.dims[0] < client->items_max) {
        (void)snprintf(client->result->error, sizeof(client->result->error),
                       "%s holds %s, but input '%s' needs %s, N at least %u", client->options->inputs_path,
                       npy_shape(client->inputs.dtype, client->inputs.dims, client->inputs.rank).text, info->name,
                       npy_shape(info->dtype, info->dims, info->rank).text, client->items_max);
        return EXIT_FAILED;
    }
    client->item_count = (uint64_t)client->inputs.dims[0];
    if (client->options->labels_path != NULL) {
        status = npy_read(client->options->labels_path, &client->labels);
        if (status != LEAT_OK) {
            return fail(client, status);
        }
        if (client->labels.elements != client->item_count ||
            (client->labels.dtype != LEAT_DTYPE_U8 && client->labels.dtype != LEAT_DTYPE_I64 &&
             client->labels.dtype != LEAT_DTYPE_I32)) {
            return fail_text(client, "the --labels file needs one u8, i32 or i64 for each input");
        }
        if (client->target.tensors[client->target.input_count].dtype != LEAT_DTYPE_F32) {
            return fail_text(client, "accuracy needs a model whose first output is f32 scores");
        }
    }
    return EXIT_DONE;
}

/* The largest query that may come. */
static int
find_items_max(struct client *client)
{
    const struct bench_options *options = client->options;
    const struct simulate_sizes *sizes = &options->sizes;
    const char *said_by = "--items";
    uint64_t largest = options->items;

    if (options->trace.items != NULL) {
        said_by = options->arrivals_text;
        for (size_t i = 0; i < options->trace.count; i++) {
            largest = options->trace.items[i] > largest ? options->trace.items[i] : largest;
        }
    } else if (options->sizes_text != NULL) {
        said_by = "--sizes";
        largest = sizes->count > 0 ? sizes->sizes[sizes->count - 1].items : client->target.items_max;
    }
    if (largest > client->target.items_max) {
        (void)snprintf(client->result->error, sizeof(client->result->error),
                       "%s: queries of %llu items, but the model's largest batch is %u", said_by,
                       (unsigned long long)largest, client->target.items_max);
        return EXIT_FAILED;
    }
    client->items_max = (uint32_t)largest;
    return EXIT_DONE;
}

static enum leat_status
allocate_slot(struct client *client, uint32_t s)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t t = 0; t < client->target.input_count + client->target.output_count && status == LEAT_OK; t++) {
        const uint64_t bytes = client->target.tensors[t].item_bytes * client->items_max;
        status = leat_tensor_alloc(client->session, bytes, &client->slots[s].tensors[t]);
        if (status == LEAT_OK) {
            memset(client->slots[s].tensors[t], 0, bytes);
        }
    }
    client->free_slots[client->free_count++] = s;
    return status;
}

static int
prepare(struct client *client)
{
    struct leat_options session_options = LEAT_OPTIONS_INIT;

    /* Once to learn the signature, then with an arena that holds every slot's tensors. */
    session_options.socket_path = client->options->socket_path;
    session_options.slots = (uint32_t)client->options->slots;
    session_options.arena_bytes = 4096;
    enum leat_status status = leat_open(&session_options, &client->session);
    if (status == LEAT_OK) {
        status = leat_find(client->session, client->options->target, &client->target);
        leat_close(client->session);
        client->session = NULL;
    }
    if (status != LEAT_OK) {
        return fail(client, status);
    }
    const int exit_code = find_items_max(client);
    if (exit_code != EXIT_DONE) {
        return exit_code;
    }
    uint64_t slot_bytes = 0;
    for (uint32_t t = 0; t < client->target.input_count + client->target.output_count; t++) {
        slot_bytes += leat_round_up(client->target.tensors[t].item_bytes * client->items_max, 64);
    }
    client->slot_count = (uint32_t)client->options->slots;
    while (client->slot_count > 2 && slot_bytes * client->slot_count > UINT64_C(256) << 20) {
        client->slot_count /= 2; /* large tensors: fewer in flight rather than a huge arena */
    }
    session_options.arena_bytes = leat_round_up(slot_bytes * client->slot_count, 1 << 21);
    session_options.slots = client->slot_count;
    status = leat_open(&session_options, &client->session);
    if (status == LEAT_OK) {
        status = leat_find(client->session, client->options->target, &client->target);
    }
    for (uint32_t s = 0; s < client->slot_count && status == LEAT_OK; s++) {
        status = allocate_slot(client, s);
    }
    return status == LEAT_OK ? load_data(client) : fail(client, status);
}

/* False when there is no start: another process cannot take part. */
static bool
await_start(struct client *client)
{
    char byte = 0;

    if (write(client->task->ready_fd, &byte, 1) != 1 || read(client->task->go_fd, &byte, 1) != 0) {
        return false;
    }
    client->start_ns = *client->task->start_ns;
    client->window_ns = client->start_ns + client->options->warmup_ns;
    client->window_end_ns = client->window_ns + client->task->plan->window_ns;
    return client->start_ns != 0;
}

/* ---- Answers ----------------------------------------------------------------------------------- */

static int64_t
label_of(const struct npy_array *labels, uint64_t index)
{
    switch (labels->dtype) {
    case LEAT_DTYPE_U8: return ((const uint8_t *)labels->data)[index];
    case LEAT_DTYPE_I32: return ((const int32_t *)labels->data)[index];
    default: return ((const int64_t *)labels->data)[index];
    }
}

/* Compares the largest score of each item with its label. */
static void
judge(struct client *client, const struct slot *slot, bool in_time)
{
    const uint32_t output = client->target.input_count;
    const size_t classes = client->target.tensors[output].item_bytes / sizeof(float);
    const float *scores = slot->tensors[output];

    for (uint64_t i = 0; i < slot->items; i++, scores += classes) {
        size_t best = 0;
        for (size_t c = 1; c < classes; c++) {
            best = scores[c] > scores[best] ? c : best;
        }
        const uint64_t item = (slot->first_item + i) % client->item_count;
        const bool correct = (int64_t)best == label_of(&client->labels, item);
        client->result->items_labelled++;
        client->result->items_correct += correct;
        client->result->items_in_time += in_time;
        client->result->items_correct_in_time += correct && in_time;
    }
}

/* What the stages of a pipeline took; its last output says. */
static void
count_stages(struct client *client, const struct slot *slot)
{
    const uint32_t stage_count = client->options->stage_count, last = client->target.input_count + client->target.output_count - 1;
    const uint64_t *times = slot->tensors[last];

    if (client->target.tensors[last].item_bytes != stage_count * 2 * sizeof(uint64_t)) {
        return; /* it was a pipeline with other stages when the daemon was asked, or none */
    }
    for (uint64_t i = 0; i < slot->items * stage_count; i++, times += 2) {
        if (times[1] > 0) {
            client->result->of_stage[i % stage_count].count++;
            client->result->of_stage[i % stage_count].queue_ns_sum += times[0];
            client->result->of_stage[i % stage_count].exec_ns_sum += times[1];
        }
    }
}

static void
add_latency(struct client *client, uint64_t latency_ns)
{
    LEAT_ASSERT(client->result->latency_count < client->task->room);
    client->task->latencies_ns[client->result->latency_count++] = latency_ns;
}

/* When a query was due that was due in the window. */
static struct bench_moment *
moment_of(const struct client *client, uint64_t due_ns)
{
    const uint64_t moment = (due_ns - client->window_ns) / BENCH_MOMENT_NS;
    return &client->task->course[moment < client->task->moment_count ? moment : client->task->moment_count - 1];
}

/* Counts the end of a query that was due in the window. */
static void
count_end(struct client *client, const struct slot *slot, const struct leat_completion *done, uint64_t latency_ns,
          bool in_time)
{
    struct bench_result *result = client->result;

    switch (done->outcome) {
    case LEAT_OUTCOME_OK:
        result->ok++;
        result->late += !in_time;
        moment_of(client, slot->due_ns)->in_time += in_time;
        if (done->accuracy_ppm > 0) {
            result->accuracy_ok.count++;
            result->accuracy_ok.ppm_sum += done->accuracy_ppm;
            result->accuracy_in_time.count += in_time;
            result->accuracy_in_time.ppm_sum += in_time ? done->accuracy_ppm : 0;
        }
        if (done->variant < BENCH_VARIANTS_MAX) {
            result->of_variant[done->variant].ok++;
            result->of_variant[done->variant].in_time += in_time;
            result->of_variant[done->variant].accuracy_ppm = done->accuracy_ppm;
        }
        result->batch_items_sum += done->batch_items;
        result->queue_ns_sum += done->queue_ns;
        result->exec_ns_sum += done->exec_ns;
        add_latency(client, latency_ns);
        if (client->options->stage_count > 0) {
            count_stages(client, slot);
        }
        if (client->labels.data != NULL) {
            judge(client, slot, in_time);
        }
        break;
    case LEAT_OUTCOME_REJECTED: result->rejected++; break;
    case LEAT_OUTCOME_EXPIRED: result->expired++; break;
    case LEAT_OUTCOME_CANCELLED: result->cancelled++; break;
    case LEAT_OUTCOME_LOST: result->lost++; break;
    default: result->failed++; break;
    }
}

static void
record(struct client *client, const struct leat_completion *done, uint64_t now_ns)
{
    struct slot *slot = &client->slots[done->user_data];
    const uint64_t latency_ns = now_ns - slot->due_ns;
    const uint64_t objective_ns = client->options->objective_ns;
    const bool in_time = objective_ns == 0 || latency_ns <= objective_ns;

    if (done->outcome == LEAT_OUTCOME_OK && now_ns >= client->window_ns && now_ns < client->window_end_ns) {
        client->result->window_ok++;
        client->result->window_in_time += in_time;
    }
    if (slot->due_ns >= client->window_ns) {
        count_end(client, slot, done, latency_ns, in_time);
    }
    slot->due_ns = 0;
    if (client->free_count == 0) {
        client->slot_free_ns = now_ns;
    }
    client->free_slots[client->free_count++] = (uint32_t)done->user_data;
}

/* Takes what answers there are, or waits for some, until then at most. */
static void
collect(struct client *client, uint64_t now_ns, uint64_t until_ns)
{
    struct leat_completion done[POLL_MAX];
    size_t count = 0;

    if (until_ns <= now_ns) {
        count = leat_poll(client->session, done, POLL_MAX);
    } else if (leat_in_flight(client->session) == 0) {
        const struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    } else if (leat_wait(client->session, done, POLL_MAX, until_ns - now_ns, &count) != LEAT_OK) {
        return;
    }
    if (count > 0) {
        now_ns = leat_monotonic_ns();
    }
    for (size_t i = 0; i < count; i++) {
        record(client, &done[i], now_ns);
    }
}

/* ---- Queries ----------------------------------------------------------------------------------- */

static enum leat_status
send_one(struct client *client, const struct bench_query *query, uint64_t due_ns, uint64_t now_ns)
{
    const uint64_t objective_ns = client->options->objective_ns;
    const uint32_t s = client->free_slots[client->free_count - 1];
    struct slot *slot = &client->slots[s];
    struct leat_query request = LEAT_QUERY_INIT;

    request.target = client->target.id;
    request.items = query->items;
    request.flags = client->options->offline ? LEAT_QUERY_OFFLINE : 0;
    request.accuracy_floor_ppm = (uint32_t)(client->options->accuracy_floor * 1e6 + 0.5);
    request.cost_cap_nano = (uint32_t)(client->options->cost_cap * 1e9);
    request.user_data = s;
    memcpy(request.tensors, slot->tensors, sizeof(request.tensors));
    if (objective_ns != 0) { /* what is left of it */
        const uint64_t waited_ns = now_ns - due_ns;
        request.latency_ns = waited_ns < objective_ns ? objective_ns - waited_ns : 1000;
    }
    if (client->item_count > 0) {
        const uint64_t item_bytes = client->target.tensors[0].item_bytes;
        unsigned char *to = request.tensors[0];
        slot->first_item = query->first_item % client->item_count;
        for (uint64_t i = 0; i < query->items; i++) {
            const uint64_t item = (slot->first_item + i) % client->item_count;
            memcpy(to + i * item_bytes, (const unsigned char *)client->inputs.data + item * item_bytes, item_bytes);
        }
    }
    const enum leat_status status = leat_submit(client->session, &request, NULL);
    if (status == LEAT_OK) {
        slot->due_ns = due_ns;
        slot->items = query->items;
        client->free_count--;
    }
    return status;
}

/*
 * Collects until it is time to send and a slot is free; returns the time. 0 when none came free until the window was over
 * and the query's objective with it: sending it would measure nothing any more.
 */
static uint64_t
await_turn(struct client *client, uint64_t due_ns)
{
    const uint64_t in_time_ns = due_ns + client->options->objective_ns;
    const uint64_t give_up_ns = in_time_ns > client->window_end_ns ? in_time_ns : client->window_end_ns;

    collect(client, 0, 0);
    for (;;) {
        const uint64_t now_ns = leat_monotonic_ns();
        if (now_ns >= due_ns && client->free_count > 0) {
            return now_ns;
        }
        if (now_ns >= give_up_ns) {
            return 0;
        }
        collect(client, now_ns, now_ns < due_ns ? due_ns - WAKE_EARLY_NS : now_ns + LOOK_AGAIN_NS);
        leat_spin_pause();
    }
}

/* Sends it or gives it up, and counts that if it is due in the window. */
static enum leat_status
take_turn(struct client *client, const struct bench_query *query)
{
    struct bench_result *result = client->result;
    const uint64_t due_ns = client->start_ns + query->due_ns;
    const bool measured = due_ns >= client->window_ns;
    const uint64_t now_ns = await_turn(client, due_ns);
    const bool waited = client->slot_free_ns > due_ns;

    result->offered += measured;
    if (measured) {
        moment_of(client, due_ns)->offered++;
    }
    result->items += measured ? query->items : 0;
    result->clipped += measured && query->clipped;
    if (now_ns == 0) {
        if (measured) {
            client->unsent++;
            client->task->latencies_ns[client->task->room - client->unsent] = due_ns;
        }
        return LEAT_OK;
    }
    const enum leat_status status = send_one(client, query, due_ns, now_ns);
    if (status == LEAT_OK && measured) {
        LEAT_ASSERT(result->sent < client->task->room);
        client->task->delays_ns[result->sent++] = leat_monotonic_ns() - (waited ? client->slot_free_ns : due_ns);
        result->slot_waits += waited;
    }
    return status;
}

/* Awaits what is in flight; what is without an answer then is at least that old. */
static void
finish(struct client *client)
{
    const struct bench_options *options = client->options;
    const uint64_t patience_ns = options->drain_ns > options->objective_ns ? options->drain_ns : options->objective_ns;
    const uint64_t end_ns = client->window_end_ns + patience_ns;
    uint64_t now_ns = leat_monotonic_ns();

    while (leat_in_flight(client->session) > 0 && now_ns < end_ns) {
        collect(client, now_ns, end_ns);
        now_ns = leat_monotonic_ns();
    }
    for (uint32_t s = 0; s < client->slot_count; s++) {
        if (client->slots[s].due_ns >= client->window_ns) { /* and not free */
            client->result->unanswered++;
            add_latency(client, now_ns - client->slots[s].due_ns);
        }
    }
    for (uint64_t i = client->unsent; i > 0; i--) { /* moved down: the order keeps them from being overwritten unread */
        add_latency(client, now_ns - client->task->latencies_ns[client->task->room - i]);
    }
}

static int
drive(struct client *client)
{
    const struct bench_client_task *task = client->task;
    struct bench_schedule schedule;
    struct bench_query query;

    bench_schedule_start(&schedule, client->options, task->plan->rate_qps, client->items_max);
    for (uint64_t i = 0; i < task->plan->query_count && bench_schedule_next(&schedule, &query); i++) {
        if (i % client->options->processes == task->index) {
            const enum leat_status status = take_turn(client, &query);
            if (status != LEAT_OK) {
                return fail(client, status);
            }
        }
    }
    finish(client);
    return EXIT_DONE;
}

void
bench_client(const struct bench_client_task *task)
{
    static struct client client;

    client = (struct client){.task = task, .options = task->options, .result = task->result};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_TIMERSLACK, 1ul);
    leat_slice_shorten();
    task->result->exit_code = prepare(&client);
    if (task->result->exit_code == EXIT_DONE && await_start(&client)) {
        task->result->exit_code = drive(&client);
    }
    leat_close(client.session);
    npy_free(&client.inputs);
    npy_free(&client.labels);
}
