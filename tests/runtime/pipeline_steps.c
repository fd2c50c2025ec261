/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/runtime/pipeline_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"

#define NEED(cond) \
    ((cond) ? (void)0 : (void)(fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #cond, leat_error_text()), abort()))

enum {
    CLIENTS = PIPELINE_STEPS_CLIENTS,
    ITEMS = PIPELINE_STEPS_ITEMS,
    EACH_MAX = PIPELINE_STEPS_EACH_MAX,
    NONE = PIPELINE_STEPS_NONE,
    STAGES = LEAT_PIPELINE_STAGES_MAX,
    ELEMENT = 32,                      /* bytes; so many are one item, but of outputs that vary */
    WIDE = EACH_MAX * ELEMENT,         /* an item of one that does */
    TENSOR = ITEMS * WIDE,             /* that any tensor has room in */
    ASKED = LEAT_WIRE_UNITS * TENSOR,  /* of a client's arena, for each slot */
    FIRST_WORKSPACE = 3,               /* unit: before it lies what is nobody's */
    VARIANTS = 2,
    INPUT = 100, /* stands for what the client wrote */
};

struct pipeline_steps pipeline_steps;
static struct pipeline_steps_options options;
static struct leat_profile profiles[STAGES][VARIANTS][LEAT_WORKER_CLASSES_MAX];
static struct leat_daemon_session *stages_session;
static bool ending;
static struct {
    struct leat_daemon_session *daemon; /* NULL: gone */
    bool closing;
    uint64_t sent, taken;
} clients[CLIENTS];
static uint64_t batch_ns;       /* when the last batch began */
static uint32_t running;        /* the worker that runs it */
static uint32_t found[PIPELINE_STEPS_QUERIES_MAX]; /* as pipeline_steps.found was */

/* ---- What is right ---------------------------------------------------------------------------- */

static uint32_t
mix(uint32_t a, uint32_t b)
{
    uint64_t z = ((uint64_t)a << 32 | b) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(z >> 32);
}

/* Which of its sources a stage reads: where both repeat for the same, or neither. */
static uint32_t
reads(uint32_t s)
{
    const uint32_t each = options.stages[s].each;
    uint32_t sources = each != NONE ? UINT32_C(1) << each : 0;

    for (uint32_t left = options.stages[s].after; left != 0; left &= left - 1) {
        const uint32_t source = (uint32_t)__builtin_ctz(left);
        sources |= (uint32_t)(options.stages[source].each == each) << source;
    }
    return sources;
}

static uint32_t
elements(uint32_t s)
{
    return s != INPUT && options.stages[s].varies ? EACH_MAX : 1;
}

/* What a model of stage s makes of what it has read. */
static uint32_t
made_of(uint32_t s, uint32_t read, uint32_t element)
{
    return mix(read, 16 * s + element);
}

static uint32_t
found_in(uint32_t number, uint32_t read)
{
    return found[number] != UINT32_MAX ? found[number] : mix(read, 7) % (EACH_MAX + 1);
}

static uint32_t value_of(uint32_t number, uint32_t s, uint32_t item, uint32_t element);

/* All that stage s reads for an item of the query; where it repeats, for one of the elements that were found in it. */
static uint32_t
read_by(uint32_t number, uint32_t s, uint32_t item, uint32_t element)
{
    const uint32_t sources = reads(s);
    uint32_t read = 0;

    for (uint32_t left = sources; left != 0; left &= left - 1) {
        const uint32_t source = (uint32_t)__builtin_ctz(left);
        const bool repeats = options.stages[s].each != NONE;
        for (uint32_t e = repeats ? element : 0; e < (repeats ? element + 1 : elements(source)); e++) {
            read = mix(read, value_of(number, source, item, e));
        }
    }
    return sources != 0 ? read : mix(read, value_of(number, INPUT, item, 0));
}

static uint32_t
value_of(uint32_t number, uint32_t s, uint32_t item, uint32_t element)
{
    if (s == INPUT) {
        return mix(number, item);
    }
    const bool repeats = options.stages[s].each != NONE;
    return made_of(s, read_by(number, s, item, element), repeats ? 0 : element);
}

static uint32_t
items_due(uint32_t number, uint32_t s)
{
    const struct pipeline_steps_query *query = &pipeline_steps.queries[number];
    const uint32_t each = options.stages[s].each;
    uint32_t items = 0;

    for (uint32_t i = 0; i < query->ask.items; i++) {
        items += each != NONE ? found_in(number, read_by(number, each, i, 0)) : 1;
    }
    return items;
}

/* ---- The models ------------------------------------------------------------------------------- */

/* Plans tell stages and variants apart. */
static char plans[STAGES][VARIANTS];
static struct leat_variant_copy copies[STAGES][VARIANTS];
static struct leat_variant variants[STAGES][VARIANTS];

static uint64_t
time_of(uint32_t s, uint32_t variant, uint16_t class, uint32_t items)
{
    const uint64_t first_ns = (1 + 2 * variant) * (options.stages[s].batch_ns + options.stages[s].time_ns * items);
    return options.speed[class] > 0 ? (uint64_t)((double)first_ns / options.speed[class]) : first_ns;
}

/* An element says whose it is; the same words to its end. */
static void
put(unsigned char *tensor, uint32_t at, uint32_t number, uint32_t value)
{
    uint64_t words[ELEMENT / 8];
    for (uint32_t w = 0; w < ELEMENT / 8; w++) {
        words[w] = (uint64_t)(number + 1) << 32 | value;
    }
    memcpy(tensor + (size_t)at * ELEMENT, words, ELEMENT);
}

static uint32_t
get(const unsigned char *tensor, uint32_t at, uint32_t *ret_number)
{
    uint64_t words[ELEMENT / 8];
    memcpy(words, tensor + (size_t)at * ELEMENT, ELEMENT);
    for (uint32_t w = 1; w < ELEMENT / 8; w++) {
        NEED(words[w] == words[0]);
    }
    *ret_number = (uint32_t)(words[0] >> 32) - 1;
    return (uint32_t)words[0];
}

/* What lies in the inputs for the segment's i-th item. */
static uint32_t
read_segment(uint32_t s, const struct leat_segment *segment, uint32_t i, uint32_t *ret_number)
{
    const uint32_t sources = reads(s);
    uint32_t read = 0, number, t = 0;

    if (sources == 0) {
        return mix(read, get(segment->tensors[0], i, ret_number));
    }
    for (uint32_t left = sources; left != 0; left &= left - 1) {
        const uint32_t count = options.stages[s].each != NONE ? 1 : elements((uint32_t)__builtin_ctz(left));
        for (uint32_t e = 0; e < count; e++) {
            read = mix(read, get(segment->tensors[t], i * count + e, &number));
            NEED((t == 0 && e == 0) || number == *ret_number);
            *ret_number = number;
        }
        t++;
    }
    return read;
}

static void
check_may_run(struct pipeline_steps_query *query, uint32_t s, uint32_t items)
{
    query->ran[s] += items;
    NEED(query->under_way && query->ran[s] <= query->due[s]); /* each item once */
    for (uint32_t left = options.stages[s].after; left != 0; left &= left - 1) {
        const uint32_t source = (uint32_t)__builtin_ctz(left);
        NEED(query->ran[source] == query->due[source] && query->stop_ns[source] <= pipeline_steps.tables.clock.base_ns);
    }
    NEED(!query->closed);
    NEED(batch_ns < query->end_ns);
}

static void
run_segment(uint32_t s, const struct leat_segment *segment)
{
    unsigned char *output = (unsigned char *)segment->tensors[__builtin_popcount(reads(s)) + (reads(s) == 0)];
    uint32_t number = UINT32_MAX, last = UINT32_MAX;

    for (uint32_t i = 0; i < segment->items; i++) {
        const uint32_t read = read_segment(s, segment, i, &number);
        NEED(number < CLIENTS * options.slots && (last == UINT32_MAX || number == last));
        last = number;
        for (uint32_t e = 0; e < elements(s); e++) {
            put(output, i * elements(s) + e, number, made_of(s, read, e));
        }
        if (options.stages[s].varies) {
            segment->sizes[i] = (uint16_t)found_in(number, read);
        }
    }
    check_may_run(&pipeline_steps.queries[number], s, segment->items);
}

static struct pipeline_steps_query *
query_of(uint32_t s, const struct leat_segment *segment)
{
    uint32_t number = UINT32_MAX;
    (void)read_segment(s, segment, 0, &number);
    NEED(number < CLIENTS * options.slots);
    return &pipeline_steps.queries[number];
}

static enum leat_status
run(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
    struct leat_team *team)
{
    const uint32_t place = (uint32_t)((const char *)plan - &plans[0][0]), s = place / VARIANTS, variant = place % VARIANTS;
    const uint64_t start_ns = pipeline_steps.tables.clock.base_ns;
    const uint32_t shape = atomic_load_explicit(&pipeline_steps.workers[running]->shape, memory_order_relaxed);
    const uint16_t class = leat_worker_unpack_shape(shape).worker_class;
    uint32_t items = 0;

    (void)scratch;
    (void)team;
    pipeline_steps.batches++;
    pipeline_steps.largest_batch = count > pipeline_steps.largest_batch ? count : pipeline_steps.largest_batch;
    for (uint32_t i = 0; i < count; i++) {
        items += segments[i].items;
        if (query_of(s, &segments[i])->fails_at == s) {
            query_of(s, &segments[i])->failed = true;
            return LEAT_ERR_SHAPE;
        }
    }
    for (uint32_t i = 0; i < count && pipeline_steps.device_fails; i++) {
        query_of(s, &segments[i])->failed = true;
    }
    if (pipeline_steps.device_fails) {
        pipeline_steps.device_fails = false;
        return LEAT_ERR_SYS;
    }
    for (uint32_t i = 0; i < count; i++) {
        run_segment(s, &segments[i]);
    }
    pipeline_steps.tables.clock.base_ns += time_of(s, variant, class, items) + (uint64_t)pipeline_steps.longer_ns;
    pipeline_steps.longer_ns = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct pipeline_steps_query *query = query_of(s, &segments[i]);
        query->start_ns[s] = start_ns < query->start_ns[s] ? start_ns : query->start_ns[s];
        query->stop_ns[s] = pipeline_steps.tables.clock.base_ns;
        if (query->ask.cost_cap_nano > 0) {
            query->cost_nano += leat_application_cost_nano(&pipeline_steps.apps[s], variant, 0, segments[i].items);
            NEED(query->cost_nano <= query->ask.cost_cap_nano);
        }
    }
    return LEAT_OK;
}

static const struct leat_backend backend = {.abi = LEAT_BACKEND_ABI, .name = "mix", .plan_run = run};

/* ---- The daemon ------------------------------------------------------------------------------- */

void
pipeline_steps_command(const struct leat_command *command)
{
    leat_dispatcher_command(pipeline_steps.dispatcher, command);
    pipeline_steps_round(1);
}

static void
start_application(uint16_t s)
{
    const struct pipeline_steps_stage *stage = &options.stages[s];
    struct leat_application *app = &pipeline_steps.apps[s];
    const uint32_t sources = reads(s), inputs = sources != 0 ? (uint32_t)__builtin_popcount(sources) : 1;
    const uint32_t items_max = stage->each != NONE ? options.each_items : ITEMS;
    const uint32_t variant_count = stage->slow_accuracy_ppm > 0 ? 2 : 1;
    const uint32_t batch_items = stage->items_max > 0 ? stage->items_max : 64;

    *app = (struct leat_application){
        .id = s,
        .target = {.id = s, .items_max = items_max, .input_count = inputs, .output_count = 1},
        .drop_late = options.drop_late,
        .waiting_max = options.waiting_max,
        .router = &leat_router_fcfs,
        .selector = &leat_selector_fixed,
        .variant_count = variant_count,
        .by_time = {0, 1},
        .profiles = profiles[s],
        .price_micro = {options.priced ? 1000000 : 0},
        .router_state = calloc(1, leat_router_fcfs.state_bytes + 1),
    };
    NEED(app->router_state != NULL && leat_waiting_init(app->waiting, app->waiting_max) == LEAT_OK);
    NEED(leat_instances_init(&app->instances, options.worker_count, variant_count) == LEAT_OK);
    for (uint32_t v = 0; v < variant_count; v++) {
        for (uint32_t b = 0; b < LEAT_PLANS_MAX; b++) {
            copies[s][v].plans[b] = (struct leat_plan *)&plans[s][v];
        }
        variants[s][v] = (struct leat_variant){.index = (uint16_t)(1u + VARIANTS * s + v),
                                               .backend = &backend,
                                               .copies = &copies[s][v],
                                               .copy_count = 1,
                                               .items_max = batch_items,
                                               .tensor_count = inputs + 1,
                                               .size_count = stage->varies ? 1 : 0,
                                               .accuracy_ppm = v == 0 ? stage->accuracy_ppm : stage->slow_accuracy_ppm};
        atomic_store_explicit(&pipeline_steps.tables.variants[variants[s][v].index], &variants[s][v], memory_order_relaxed);
        app->variants[v] = &variants[s][v];
        app->sched_variants[v] = (struct leat_sched_variant){
            .items_max = batch_items, .accuracy_ppm = variants[s][v].accuracy_ppm, .cost_nano = 1 + v, .ready = true};
        memset(profiles[s][v], 0, sizeof(profiles[s][v]));
        for (uint32_t items = 1; items <= batch_items; items *= 2) {
            for (uint16_t c = 0; c == 0 || c < options.class_count; c++) {
                leat_profile_set(&profiles[s][v][c], items, time_of(s, v, c, items));
                app->instances.measured[v][c] = profiles[s][v][c];
            }
        }
    }
    pipeline_steps_command(&(struct leat_command){.kind = LEAT_COMMAND_ADD_APPLICATION, .application = app});
}

/* Its first tensor is the input; stage_ns is the last. */
static void
describe(struct leat_pipeline *pipeline)
{
    uint32_t place[STAGES], outputs = 0; /* place: of a stage's output, as the client's query has it; 0: in the workspace */

    *pipeline = (struct leat_pipeline){.name = "dag",
                                       .index = 5,
                                       .latency_ns = options.latency_ns,
                                       .late = options.late,
                                       .stage_count = options.stage_count,
                                       .workspace_bytes = options.stage_count * TENSOR,
                                       .runs_max = options.runs_max,
                                       .workspaces_unit = FIRST_WORKSPACE};
    struct leat_target *target = &pipeline->target;
    target->id = LEAT_PIPELINE_TARGET + pipeline->index;
    target->items_max = ITEMS;
    target->input_count = 1;
    target->tensors[0].item_bytes = ELEMENT;
    for (uint32_t s = 0; s < options.stage_count; s++) {
        const struct pipeline_steps_stage *from = &options.stages[s];
        struct leat_pipeline_stage *stage = &pipeline->stages[s];
        const bool repeats = from->each != NONE;
        uint32_t t = 0;
        *stage = (struct leat_pipeline_stage){.application = (uint16_t)s,
                                              .after = from->after,
                                              .output_count = 1,
                                              .size_count = from->varies,
                                              .each_stage = repeats ? from->each : UINT32_MAX,
                                              .each_items = repeats ? options.each_items : 0,
                                              .each_max = repeats ? EACH_MAX : 0};
        for (uint32_t left = reads(s); left != 0; left &= left - 1) {
            const uint32_t source = (uint32_t)__builtin_ctz(left);
            stage->item_bytes[t] = repeats ? ELEMENT : elements(source) * ELEMENT;
            stage->tensors[t++] = (struct leat_pipeline_tensor){
                .place = place[source] != 0 ? LEAT_PIPELINE_CLIENT : LEAT_PIPELINE_WORKSPACE,
                .index = place[source] != 0 ? place[source] : source * TENSOR / LEAT_TENSOR_ALIGN};
        }
        if (t == 0) {
            stage->item_bytes[t] = ELEMENT;
            stage->tensors[t++] = (struct leat_pipeline_tensor){.place = LEAT_PIPELINE_CLIENT, .index = 0};
        }
        stage->input_count = t;
        place[s] = from->output ? ++outputs : 0;
        stage->item_bytes[t] = elements(s) * ELEMENT;
        stage->tensors[t] =
            (struct leat_pipeline_tensor){.place = from->output ? LEAT_PIPELINE_CLIENT : LEAT_PIPELINE_WORKSPACE,
                                          .index = from->output ? outputs : s * TENSOR / LEAT_TENSOR_ALIGN};
        if (from->output) {
            target->tensors[outputs].item_bytes = (repeats ? EACH_MAX : elements(s)) * ELEMENT;
            if (from->varies && pipeline->size_count == 0) {
                pipeline->size_count = 1;
                pipeline->size_of[0] = s;
            }
        }
    }
    NEED(outputs <= 4);
    target->output_count = outputs + 1;
    target->tensors[1 + outputs].item_bytes = options.stage_count * 2 * sizeof(uint64_t);
    NEED(leat_pipeline_init_runs(pipeline) == LEAT_OK);
}

static void
open_client(uint16_t c)
{
    const struct leat_session_options session_options = {
        .slots = options.slots, .lane_count = 1 + options.worker_count, .arena_bytes = options.slots * ASKED};
    char note[160];

    memset(&clients[c], 0, sizeof(clients[c]));
    NEED(leat_daemon_session_create(&session_options, &clients[c].daemon, note) == LEAT_OK);
    clients[c].daemon->index = c;
    atomic_store_explicit(&pipeline_steps.tables.sessions[c], clients[c].daemon, memory_order_relaxed);
    leat_dispatcher_command(pipeline_steps.dispatcher,
                            &(struct leat_command){.kind = LEAT_COMMAND_ADD_SESSION, .session = clients[c].daemon});
}

void
pipeline_steps_start(const struct pipeline_steps_options *given)
{
    static const uint16_t classes[LEAT_SCHED_WORKERS_MAX];
    const struct leat_session_options session_options = {
        .slots = given->stage_slots,
        .lane_count = 1 + given->worker_count,
        .arena_bytes =
            leat_round_up(FIRST_WORKSPACE * LEAT_TENSOR_ALIGN + (uint64_t)given->runs_max * given->stage_count * TENSOR, 4096)};
    const struct leat_dispatcher_options dispatcher_options = {.tables = &pipeline_steps.tables,
                                                               .workers = pipeline_steps.workers,
                                                               .worker_classes = classes,
                                                               .class_count = given->class_count,
                                                               .worker_count = given->worker_count,
                                                               .worker_depth = given->worker_depth,
                                                               .queue_capacity = given->queue_capacity,
                                                               .cpu = -1};
    char note[160];

    options = *given;
    options.slots = given->slots > 0 ? given->slots : PIPELINE_STEPS_SLOTS;
    NEED(options.slots <= PIPELINE_STEPS_SLOTS_MAX);
    ending = false;
    memset(&pipeline_steps, 0, sizeof(pipeline_steps));
    memset(clients, 0, sizeof(clients));
    pipeline_steps.found = UINT32_MAX;
    pipeline_steps.now_ns = UINT64_C(1) << 40;
    pipeline_steps.tables.clock = (struct leat_clock){.kind = LEAT_CLOCK_TSC, .mult = 0, .base_ns = pipeline_steps.now_ns};
    NEED(leat_dispatcher_create(&dispatcher_options, &pipeline_steps.dispatcher) == LEAT_OK);
    for (uint32_t w = 0; w < options.worker_count; w++) {
        const struct leat_worker_options worker_options = {
            .index = w,
            .core_count = 1,
            .tables = &pipeline_steps.tables,
            .dispatcher_bell = leat_dispatcher_bell(pipeline_steps.dispatcher),
            .dispatcher_event = leat_dispatcher_event_fd(pipeline_steps.dispatcher)};
        NEED(leat_worker_create(&worker_options, &pipeline_steps.workers[w]) == LEAT_OK);
    }
    NEED(leat_daemon_session_create(&session_options, &stages_session, note) == LEAT_OK);
    stages_session->index = LEAT_PIPELINE_SESSION;
    atomic_store_explicit(&pipeline_steps.tables.sessions[LEAT_PIPELINE_SESSION], stages_session, memory_order_relaxed);
    for (uint16_t s = 0; s < options.stage_count; s++) {
        start_application(s);
    }
    describe(&pipeline_steps.pipeline);
    pipeline_steps_command(&(struct leat_command){.kind = LEAT_COMMAND_ADD_PIPELINE, .pipeline = &pipeline_steps.pipeline});
    for (uint16_t c = 0; c < CLIENTS; c++) {
        open_client(c);
        pipeline_steps_round(1);
    }
}

void
pipeline_steps_stop(void)
{
    pipeline_steps_settle();
    NEED(stages_session->dispatcher.in_flight == 0 && pipeline_steps.pipeline.running == 0);
    if (!pipeline_steps.gone) {
        pipeline_steps_command(
            &(struct leat_command){.kind = LEAT_COMMAND_REMOVE_PIPELINE, .pipeline = &pipeline_steps.pipeline});
        NEED(pipeline_steps.gone);
    }
    for (uint32_t c = 0; c < CLIENTS; c++) {
        ending = clients[c].closing = true;
        pipeline_steps_command(&(struct leat_command){.kind = LEAT_COMMAND_CLOSE_SESSION, .session = clients[c].daemon});
        NEED(clients[c].daemon == NULL); /* nothing held it */
    }
    leat_dispatcher_destroy(pipeline_steps.dispatcher);
    for (uint32_t w = 0; w < options.worker_count; w++) {
        leat_worker_destroy(pipeline_steps.workers[w]);
    }
    for (uint32_t s = 0; s < options.stage_count; s++) {
        NEED(leat_waiting_total(pipeline_steps.apps[s].waiting) == 0 && pipeline_steps.apps[s].running == 0);
        leat_waiting_fini(pipeline_steps.apps[s].waiting);
        leat_instances_fini(&pipeline_steps.apps[s].instances);
        free(pipeline_steps.apps[s].router_state);
    }
    leat_daemon_session_destroy(stages_session);
    leat_pipeline_fini_runs(&pipeline_steps.pipeline);
}

/* ---- The clients ------------------------------------------------------------------------------ */

static unsigned char *
tensor_of(uint32_t number, uint32_t t)
{
    return clients[number / options.slots].daemon->arena + (size_t)(number % options.slots) * ASKED + (size_t)t * TENSOR;
}

static void
publish(uint32_t c, const struct leat_wire_request *request)
{
    const size_t body = offsetof(struct leat_wire_request, submit_ns);
    struct leat_wire_request *cell =
        &clients[c].daemon->submit_cells[clients[c].sent & (options.slots * LEAT_SUBMIT_CELLS_PER_SLOT - 1)];
    memcpy((char *)cell + body, (const char *)request + body, sizeof(*cell) - body);
    atomic_store_explicit(&cell->sequence, ++clients[c].sent, memory_order_release);
}

void
pipeline_steps_submit(uint32_t number, const struct pipeline_steps_ask *ask)
{
    struct pipeline_steps_query *query = &pipeline_steps.queries[number];
    const uint64_t default_ns = ask->offline ? 0 : options.latency_ns;
    const uint64_t latency_ns = ask->latency_us > 0 ? (uint64_t)ask->latency_us * 1000 : default_ns;
    const uint32_t lives = options.late == LEAT_PIPELINE_DROP_THRICE ? 3 : 1;
    struct leat_wire_request request = {.submit_ns = pipeline_steps.now_ns,
                                        .latency_us = ask->latency_us,
                                        .accuracy_floor_ppm = ask->accuracy_floor_ppm,
                                        .items = ask->items > 0 ? ask->items & LEAT_WIRE_ITEMS_MASK : 1,
                                        .slot = (uint16_t)(number % options.slots),
                                        .target = (uint16_t)pipeline_steps.pipeline.target.id,
                                        .flags = ask->offline ? LEAT_WIRE_OFFLINE : 0,
                                        .cost_cap = leat_wire_cost_code(ask->cost_cap_nano),
                                        .ticket_low = number};

    NEED(number < CLIENTS * options.slots && !query->under_way && pipeline_steps_is_open(number / options.slots));
    *query = (struct pipeline_steps_query){.under_way = true, .fails_at = query->fails_at, .ask = *ask};
    query->ask.items = request.items;
    query->end_ns = latency_ns > 0 && options.late != LEAT_PIPELINE_SERVE ? pipeline_steps.now_ns + lives * latency_ns
                                                                          : LEAT_NO_DEADLINE;
    found[number] = pipeline_steps.found;
    for (uint32_t s = 0; s < options.stage_count; s++) {
        query->due[s] = items_due(number, s);
        query->start_ns[s] = UINT64_MAX;
    }
    for (uint32_t t = 0; t < LEAT_WIRE_UNITS; t++) {
        request.units[t] = (uint32_t)((number % options.slots) * ASKED + t * TENSOR) / LEAT_TENSOR_ALIGN;
        memset(tensor_of(number, t), 0xa5, TENSOR);
    }
    for (uint32_t i = 0; i < query->ask.items; i++) {
        put(tensor_of(number, 0), i, number, value_of(number, INPUT, i, 0));
    }
    publish(number / options.slots, &request);
}

void
pipeline_steps_cancel(uint32_t number)
{
    pipeline_steps.queries[number].cancelled = true;
    publish(number / options.slots,
            &(struct leat_wire_request){
                .slot = (uint16_t)(number % options.slots), .ticket_low = number, .flags = LEAT_WIRE_CANCEL, .target = UINT16_MAX});
}

void
pipeline_steps_close(uint32_t client)
{
    for (uint32_t c = 0; c < CLIENTS; c++) {
        pipeline_steps_round(1); /* obeys a command: those that others gave, to open */
    }
    NEED(pipeline_steps_is_open(client));
    clients[client].closing = true;
    leat_dispatcher_command(pipeline_steps.dispatcher,
                            &(struct leat_command){.kind = LEAT_COMMAND_CLOSE_SESSION, .session = clients[client].daemon});
    pipeline_steps_round(1);
    for (uint32_t slot = 0; slot < options.slots && clients[client].closing; slot++) {
        pipeline_steps.queries[client * options.slots + slot].closed = true; /* no stage of it begins any more */
    }
}

bool
pipeline_steps_is_open(uint32_t client)
{
    return !clients[client].closing;
}

/* ---- Answers ---------------------------------------------------------------------------------- */

static void
check_outputs(uint32_t number)
{
    const struct pipeline_steps_query *query = &pipeline_steps.queries[number];
    const uint32_t output_count = pipeline_steps.pipeline.target.output_count;
    uint32_t t = 1, owner;

    for (uint32_t s = 0; s < options.stage_count; s++) {
        const uint32_t each = options.stages[s].each;
        for (uint32_t i = 0; options.stages[s].output && i < query->ask.items; i++) {
            const uint32_t stride = each != NONE ? EACH_MAX : elements(s);
            const uint32_t count = each != NONE ? found_in(number, read_by(number, each, i, 0)) : stride;
            for (uint32_t e = 0; e < count; e++) {
                NEED(get(tensor_of(number, t), i * stride + e, &owner) == value_of(number, s, i, e) && owner == number);
            }
        }
        t += options.stages[s].output;
    }
    for (uint32_t i = 0; i < query->ask.items && pipeline_steps.pipeline.size_count > 0; i++) {
        const uint32_t s = pipeline_steps.pipeline.size_of[0];
        NEED(query->answer.sizes[i] == found_in(number, read_by(number, s, i, 0)));
    }
    const size_t row = options.stage_count * 2 * sizeof(uint64_t);
    for (uint32_t i = 1; i < query->ask.items; i++) {
        NEED(memcmp(tensor_of(number, output_count), tensor_of(number, output_count) + i * row, row) == 0);
    }
    for (uint32_t s = 0; s < options.stage_count; s++) {
        NEED(query->ran[s] == query->due[s]);
        const uint64_t ran_ns = pipeline_steps_ran_ns(number, s);
        NEED(query->due[s] == 0 ? ran_ns + pipeline_steps_queued_ns(number, s) == 0
                                : ran_ns >= query->stop_ns[s] - query->start_ns[s]);
    }
}

static void
check_answer(uint32_t number)
{
    struct pipeline_steps_query *query = &pipeline_steps.queries[number];
    const struct leat_wire_response *answer = &query->answer;

    NEED(query->under_way && answer->ticket_low == number && answer->worker == UINT16_MAX);
    query->under_way = false;
    switch (answer->outcome) {
    case LEAT_OUTCOME_OK:
        NEED(!query->failed && answer->variant == UINT16_MAX && answer->reason == LEAT_REASON_NONE);
        check_outputs(number);
        break;
    case LEAT_OUTCOME_FAILED:
        NEED(query->failed && answer->variant < options.stage_count);
        break;
    case LEAT_OUTCOME_CANCELLED:
        NEED(query->cancelled && answer->variant == UINT16_MAX);
        break;
    case LEAT_OUTCOME_EXPIRED:
        NEED(query->end_ns != LEAT_NO_DEADLINE && answer->variant < options.stage_count);
        break;
    default:
        NEED(answer->outcome == LEAT_OUTCOME_REJECTED && answer->reason != LEAT_REASON_NONE);
        NEED(answer->reason != LEAT_REASON_DEADLINE || query->end_ns != LEAT_NO_DEADLINE);
    }
}

static void
collect(uint32_t c)
{
    for (;;) {
        const struct leat_wire_response *cell = &clients[c].daemon->lanes[clients[c].taken & (options.slots - 1)];
        if (atomic_load_explicit(&cell->sequence, memory_order_acquire) != clients[c].taken + 1) {
            break;
        }
        clients[c].taken++;
        const uint32_t number = c * options.slots + cell->slot;
        memcpy(&pipeline_steps.queries[number].answer, cell, sizeof(*cell));
        check_answer(number);
    }
    for (uint32_t lane = 1; lane <= options.worker_count; lane++) { /* workers answer the dispatcher */
        NEED(atomic_load_explicit(&clients[c].daemon->lanes[lane * options.slots].sequence, memory_order_acquire) == 0);
    }
}

static void
take_events(void)
{
    struct leat_event event;

    while (leat_dispatcher_poll_event(pipeline_steps.dispatcher, &event)) {
        if (options.event != NULL) {
            options.event(&event);
        }
        if (event.kind == LEAT_EVENT_PIPELINE_GONE) {
            NEED(!pipeline_steps.gone && event.pipeline == &pipeline_steps.pipeline && event.pipeline->running == 0);
            pipeline_steps.gone = true;
            continue;
        }
        if (event.kind == LEAT_EVENT_DRAINED) {
            pipeline_steps.drained = true;
            continue;
        }
        if (event.kind == LEAT_EVENT_JUMP) {
            pipeline_steps.jumps++;
            continue;
        }
        if (event.kind == LEAT_EVENT_DEDICATED || event.kind == LEAT_EVENT_RESIZED || event.kind == LEAT_EVENT_PROFILES_COPIED) {
            continue;
        }
        NEED(event.kind == LEAT_EVENT_SESSION_GONE && clients[event.session->index].closing);
        const uint16_t c = event.session->index;
        NEED(event.session->dispatcher.in_flight == 0);
        leat_daemon_session_destroy(event.session); /* what would still touch it, a sanitizer sees */
        for (uint32_t slot = 0; slot < options.slots; slot++) {
            pipeline_steps.queries[c * options.slots + slot].under_way = false;
        }
        clients[c].daemon = NULL;
        if (!ending) {
            open_client(c);
        }
    }
}

static bool
move_on(uint64_t later_ns)
{
    const uint64_t clock_ns = pipeline_steps.tables.clock.base_ns;

    pipeline_steps.now_ns = (clock_ns > pipeline_steps.now_ns ? clock_ns : pipeline_steps.now_ns) + later_ns;
    pipeline_steps.tables.clock.base_ns = pipeline_steps.now_ns;
    const bool any = leat_dispatcher_round(pipeline_steps.dispatcher, pipeline_steps.now_ns);
    leat_dispatcher_check(pipeline_steps.dispatcher);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        if (clients[c].daemon != NULL && !clients[c].closing) {
            collect(c);
        }
    }
    take_events();
    return any;
}

void
pipeline_steps_round(uint64_t later_ns)
{
    (void)move_on(later_ns);
}

bool
pipeline_steps_run(uint32_t worker)
{
    batch_ns = pipeline_steps.tables.clock.base_ns;
    running = worker;
    return leat_worker_step(pipeline_steps.workers[worker]);
}

void
pipeline_steps_settle(void)
{
    bool any = true;

    while (any) {
        any = move_on(1);
        for (uint32_t w = 0; w < options.worker_count; w++) {
            any = pipeline_steps_run(w) || any;
        }
    }
    for (uint32_t n = 0; n < CLIENTS * options.slots; n++) {
        NEED(!pipeline_steps.queries[n].under_way);
    }
}

void
pipeline_steps_add_again(void)
{
    NEED(pipeline_steps.gone);
    pipeline_steps.gone = false;
    leat_pipeline_fini_runs(&pipeline_steps.pipeline);
    describe(&pipeline_steps.pipeline);
    leat_dispatcher_command(pipeline_steps.dispatcher, &(struct leat_command){.kind = LEAT_COMMAND_ADD_PIPELINE,
                                                                              .pipeline = &pipeline_steps.pipeline});
}

uint64_t
pipeline_steps_queued_ns(uint32_t number, uint32_t stage)
{
    uint64_t ns;
    memcpy(&ns, tensor_of(number, pipeline_steps.pipeline.target.output_count) + 2 * stage * sizeof(ns), sizeof(ns));
    return ns;
}

uint64_t
pipeline_steps_ran_ns(uint32_t number, uint32_t stage)
{
    uint64_t ns;
    memcpy(&ns, tensor_of(number, pipeline_steps.pipeline.target.output_count) + (2 * stage + 1) * sizeof(ns), sizeof(ns));
    return ns;
}
