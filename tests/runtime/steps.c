/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/runtime/steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(cond) \
    ((cond) ? (void)0 : (void)(fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #cond, leat_error_text()), abort()))

struct steps steps;
static struct steps_options options;
static struct leat_profile profiles[1 + STEPS_OTHERS_MAX][STEPS_VARIANTS_MAX][LEAT_WORKER_CLASSES_MAX];
static uint32_t running; /* the worker that steps_run is at */
static struct {
    struct leat_daemon_session *daemon;
    uint64_t sent, taken[1 + LEAT_SCHED_WORKERS_MAX]; /* cells of the submission ring and of each lane */
    struct leat_wire_response answers[STEPS_SLOTS];
    bool answered[STEPS_SLOTS];
} clients[STEPS_SESSIONS_MAX];

/* Variants are told apart by their plans. */
static char plans[STEPS_VARIANTS_MAX];

static uint32_t
variant_of(const struct leat_plan *plan)
{
    return (uint32_t)((const char *)plan - plans);
}

static uint64_t
time_of(uint32_t variant, uint16_t class, uint32_t items)
{
    const uint64_t time_ns = options.latency_ns[class] + items * options.per_item_ns[class];
    if (options.length_count > 0) { /* the longest is the first, and then from the shortest on */
        const uint32_t longest = options.length_count - 1;
        return time_ns * options.lengths[variant > 0 ? variant - 1 : longest] / options.lengths[longest];
    }
    return (variant + 1) * time_ns;
}

static enum leat_status
run(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
    struct leat_team *team)
{
    const uint32_t variant = variant_of(plan), slow = steps.slow[running][variant];
    const uint16_t class =
        leat_worker_unpack_shape(atomic_load_explicit(&steps.workers[running]->shape, memory_order_relaxed)).worker_class;
    uint32_t items = 0;

    (void)scratch;
    (void)team;
    for (uint32_t i = 0; i < count; i++) {
        items += segments[i].items;
        steps.ran.lengths[i] = segments[i].length;
    }
    steps.ran.variant = variant;
    steps.ran.count = count;
    steps.now_ns += (slow > 0 ? slow : 1) * time_of(variant, class, items) + (uint64_t)steps.longer_ns;
    steps.longer_ns = 0;
    if (options.real_clock) {
        return LEAT_ERR_SYS;
    }
    steps.tables.clock.base_ns = steps.now_ns;
    return LEAT_OK;
}

static struct leat_backend backend = {.abi = LEAT_BACKEND_ABI, .name = "steps", .plan_run = run};
static struct leat_variant_copy copies[STEPS_VARIANTS_MAX];
static struct leat_variant variants[STEPS_VARIANTS_MAX];

static void
make_variants(void)
{
    for (uint32_t v = 0; v < options.variant_count; v++) {
        for (uint32_t b = 0; b < LEAT_PLANS_MAX; b++) {
            copies[v].plans[b] = (struct leat_plan *)&plans[v];
        }
        variants[v] = (struct leat_variant){.name = "steps",
                                            .index = (uint16_t)(1 + v),
                                            .backend = &backend,
                                            .copies = &copies[v],
                                            .copy_count = 1,
                                            .items_max = options.items_max,
                                            .tensor_count = 2};
        atomic_store_explicit(&steps.tables.variants[variants[v].index], &variants[v], memory_order_relaxed);
    }
}

static void
command(const struct leat_command *order)
{
    leat_dispatcher_command(steps.dispatcher, order);
    steps_round(1);
}

static void
tell_lengths(struct leat_application *app)
{
    const uint32_t count = options.length_count;

    app->target.length_count = count;
    app->target.length_max = count > 0 ? options.lengths[count - 1] : 0;
    memcpy(app->target.lengths, options.lengths, count * sizeof(options.lengths[0]));
    for (uint32_t v = 0; v < count; v++) {
        for (uint32_t b = 0; b < count; b++) {
            app->at_length[v][b] = (uint8_t)(b + 1 < count ? b + 1 : 0);
        }
        const uint32_t own = v > 0 ? v - 1 : count - 1;
        app->by_time[v] = (uint8_t)(v + 1 < count ? v + 1 : 0);
        app->sched_variants[v].length_min = (uint16_t)(own > 0 ? options.lengths[own - 1] + 1 : 1);
        app->sched_variants[v].length_max = (uint16_t)options.lengths[own];
    }
    if (options.all_alike) {
        app->variant_count = 1;
        app->shorter_count = count - 1;
        app->by_time[0] = 0;
        app->sched_variants[0].length_min = 0;
    }
}

static struct leat_application *
application_at(uint32_t id)
{
    return id > 0 ? &steps.others[id - 1] : &steps.app;
}

static void
start_application(uint16_t id)
{
    struct leat_application *app = application_at(id);
    const struct leat_router *other = id > 0 ? options.other_routers[id - 1] : NULL;

    *app = (struct leat_application){
        .id = id,
        .target = {.items_max = STEPS_ITEMS_MAX, .input_count = 1, .output_count = 1},
        .drop_late = options.drop_late,
        .waiting_max = STEPS_SLOTS * STEPS_SESSIONS_MAX,
        .router = other != NULL ? other : options.router,
        .selector = options.selector,
        .variant_count = options.variant_count,
        .profiles = profiles[id],
    };
    app->router_state = calloc(1, app->router->state_bytes + 1);
    NEED(app->router_state != NULL);
    NEED(app->router->init == NULL || app->router->init(app->router_state, &(struct leat_router_options){0}) == LEAT_OK);
    NEED(leat_waiting_init(app->waiting, app->waiting_max) == LEAT_OK);
    NEED(leat_instances_init(&app->instances, options.worker_count, options.variant_count) == LEAT_OK);
    memset(profiles[id], 0, sizeof(profiles[id]));
    for (uint32_t v = 0; v < options.variant_count; v++) {
        app->variants[v] = &variants[v];
        app->by_time[v] = (uint8_t)v;
        app->sched_variants[v] = (struct leat_sched_variant){
            .items_max = options.items_max, .cost_nano = options.variant_count - v, .ready = true};
        for (uint16_t class = 0; class < LEAT_WORKER_CLASSES_MAX; class++) {
            for (uint32_t items = 1; items <= options.items_max && time_of(v, class, items) > 0; items *= 2) {
                leat_profile_set(&profiles[id][v][class], items, time_of(v, class, items));
            }
            app->instances.measured[v][class] = profiles[id][v][class];
        }
    }
    tell_lengths(app);
    command(&(struct leat_command){.kind = LEAT_COMMAND_ADD_APPLICATION, .application = app});
}

static void
start_clients(void)
{
    const struct leat_session_options session_options = {
        .slots = STEPS_SLOTS, .lane_count = 1 + options.worker_count, .arena_bytes = 4096};
    char note[160];

    memset(clients, 0, sizeof(clients));
    for (uint16_t c = 0; c < options.sessions; c++) {
        NEED(leat_daemon_session_create(&session_options, &clients[c].daemon, note) == LEAT_OK);
        clients[c].daemon->index = c;
        atomic_store_explicit(&steps.tables.sessions[c], clients[c].daemon, memory_order_relaxed);
        command(&(struct leat_command){.kind = LEAT_COMMAND_ADD_SESSION, .session = clients[c].daemon});
    }
}

void
steps_start(const struct steps_options *given)
{
    options = *given;
    memset(&steps, 0, sizeof(steps));
    NEED(options.sessions <= STEPS_SESSIONS_MAX && options.other_count <= STEPS_OTHERS_MAX);
    if (options.real_clock) {
        leat_clock_init(&steps.tables.clock);
        steps.now_ns = leat_clock_now(&steps.tables.clock);
    } else {
        steps.now_ns = UINT64_C(1) << 40;
        steps.tables.clock = (struct leat_clock){.kind = LEAT_CLOCK_TSC, .mult = 0, .base_ns = steps.now_ns};
    }
    NEED(options.variant_count <= STEPS_VARIANTS_MAX && options.items_max <= STEPS_ITEMS_MAX);
    options.items_max = options.items_max > 0 ? options.items_max : STEPS_ITEMS_MAX;
    options.variant_count = options.length_count > 0 ? options.length_count : options.variant_count > 0 ? options.variant_count : 1;
    backend.yields = options.yields;
    make_variants();
    const struct leat_dispatcher_options dispatcher_options = {.tables = &steps.tables,
                                                               .workers = steps.workers,
                                                               .worker_classes = options.classes,
                                                               .class_count = options.class_count,
                                                               .worker_count = options.worker_count,
                                                               .worker_depth = options.worker_depth,
                                                               .queue_capacity = 4096,
                                                               .cpu = -1};
    NEED(leat_dispatcher_create(&dispatcher_options, &steps.dispatcher) == LEAT_OK);
    for (uint32_t w = 0; w < options.worker_count; w++) {
        const struct leat_worker_options worker_options = {.index = w,
                                                           .core_count = 1,
                                                           .worker_class = options.classes[w],
                                                           .tables = &steps.tables,
                                                           .dispatcher_bell = leat_dispatcher_bell(steps.dispatcher),
                                                           .dispatcher_event =
                                                               leat_dispatcher_event_fd(steps.dispatcher)};
        NEED(leat_worker_create(&worker_options, &steps.workers[w]) == LEAT_OK);
    }
    for (uint16_t id = 0; id <= options.other_count; id++) {
        start_application(id);
    }
    start_clients();
}

void
steps_stop(void)
{
    struct leat_event event;

    for (uint32_t id = 0; id <= options.other_count; id++) {
        NEED(leat_waiting_total(application_at(id)->waiting) == 0 && application_at(id)->running == 0);
    }
    for (uint32_t c = 0; c < options.sessions; c++) {
        command(&(struct leat_command){.kind = LEAT_COMMAND_CLOSE_SESSION, .session = clients[c].daemon});
        NEED(leat_dispatcher_poll_event(steps.dispatcher, &event) && event.kind == LEAT_EVENT_SESSION_GONE);
        leat_daemon_session_destroy(event.session);
    }
    leat_dispatcher_destroy(steps.dispatcher);
    for (uint32_t w = 0; w < options.worker_count; w++) {
        leat_worker_destroy(steps.workers[w]);
    }
    for (uint32_t id = 0; id <= options.other_count; id++) {
        leat_waiting_fini(application_at(id)->waiting);
        leat_instances_fini(&application_at(id)->instances);
        free(application_at(id)->router_state);
    }
}

static void
submit(uint32_t application, uint32_t number, uint32_t items, uint32_t latency_us, uint32_t cost_cap_nano, uint16_t flags,
       uint32_t length)
{
    const size_t body = offsetof(struct leat_wire_request, submit_ns);
    const uint32_t c = number / STEPS_SLOTS, slot = number % STEPS_SLOTS;
    const struct leat_wire_request request = {.submit_ns = steps.now_ns,
                                              .latency_us = latency_us,
                                              .items = items & LEAT_WIRE_ITEMS_MASK,
                                              .length = length & LEAT_LENGTH_MAX,
                                              .flags = flags,
                                              .slot = (uint16_t)slot,
                                              .target = application < LEAT_PIPELINE_TARGET ? application_at(application)->id
                                                                                           : (uint16_t)application,
                                              .cost_cap = leat_wire_cost_code(cost_cap_nano),
                                              .ticket_low = number,
                                              .units = {0, 1}};

    NEED(c < options.sessions);
    struct leat_wire_request *cell =
        &clients[c].daemon->submit_cells[clients[c].sent & (STEPS_SLOTS * LEAT_SUBMIT_CELLS_PER_SLOT - 1)];
    memcpy((char *)cell + body, (const char *)&request + body, sizeof(*cell) - body);
    atomic_store_explicit(&cell->sequence, ++clients[c].sent, memory_order_release);
    clients[c].answered[slot] = false;
}

void
steps_submit(uint32_t number, uint32_t items, uint32_t latency_us)
{
    submit(0, number, items, latency_us, 0, 0, 0);
}

void
steps_submit_to(uint32_t application, uint32_t number, uint32_t items, uint32_t latency_us)
{
    const bool offline = latency_us == UINT32_MAX;
    submit(application, number, items, offline ? 0 : latency_us, 0, offline ? LEAT_WIRE_OFFLINE : 0, 0);
}

void
steps_submit_capped(uint32_t number, uint32_t items, uint32_t latency_us, uint32_t cost_cap_nano)
{
    submit(0, number, items, latency_us, cost_cap_nano, 0, 0);
}

void
steps_submit_offline(uint32_t number, uint32_t items)
{
    submit(0, number, items, 0, 0, LEAT_WIRE_OFFLINE, 0);
}

void
steps_submit_long(uint32_t number, uint32_t items, uint32_t latency_us, uint32_t length)
{
    submit(0, number, items, latency_us, 0, 0, length);
}

bool
steps_round(uint64_t later_ns)
{
    steps.now_ns += later_ns;
    if (!options.real_clock) {
        steps.tables.clock.base_ns = steps.now_ns;
    }
    return leat_dispatcher_round(steps.dispatcher, steps.now_ns);
}

bool
steps_run(uint32_t worker)
{
    running = worker;
    return leat_worker_step(steps.workers[worker]);
}

static void
collect(uint32_t c)
{
    for (uint32_t lane = 0; lane <= options.worker_count; lane++) {
        const struct leat_wire_response *cells = clients[c].daemon->lanes + (size_t)lane * STEPS_SLOTS;
        for (;;) {
            const struct leat_wire_response *cell = &cells[clients[c].taken[lane] & (STEPS_SLOTS - 1)];
            if (atomic_load_explicit(&cell->sequence, memory_order_acquire) != clients[c].taken[lane] + 1) {
                break;
            }
            clients[c].taken[lane]++;
            NEED(!clients[c].answered[cell->slot]);
            memcpy(&clients[c].answers[cell->slot], cell, sizeof(*cell));
            clients[c].answered[cell->slot] = true;
        }
    }
}

bool
steps_answer(uint32_t number, struct leat_wire_response *ret_response)
{
    const uint32_t c = number / STEPS_SLOTS, slot = number % STEPS_SLOTS;

    collect(c);
    if (!clients[c].answered[slot]) {
        return false;
    }
    NEED(clients[c].answers[slot].ticket_low == number);
    clients[c].answered[slot] = false;
    memcpy(ret_response, &clients[c].answers[slot], sizeof(*ret_response));
    return true;
}
