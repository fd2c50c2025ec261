/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Target    The daemon's half of sessions: dispatcher, workers, policies and session memory, against malicious clients.
 * Input     Two bytes that size the daemon, then a program: what two malicious clients write, publish and ring, when
 *           dispatcher and workers move on and time passes, when sessions open and close and an application is
 *           removed, and what an honest client submits, cancels and collects in between. There is a pipeline, of one
 *           application after itself.
 * Method    Everything on one thread with a clock set by hand, so an input always does the same. The mappings
 *           lie between pages without access. A shadow of every request ring, kept beside the dispatcher, says how many
 *           requests it must have read and which responses it owes. The daemon and the honest session outlive an
 *           execution, as a daemon outlives its clients, and its rings go round; each begins and ends with it idle.
 * Property  After every step: no sanitizer report; nothing outside the session's own tensors is handed to a model;
 *           the dispatcher's tables agree with one another; every request that names a slot got exactly one
 *           response, or is in flight; the honest client gets right answers, once each. At the end everything has
 *           been given back: queries, sessions, mappings, descriptors.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/client/session.h"
#include "ipc/doorbell.h"
#include "runtime/dispatcher.h"

enum {
    WORKERS = 2,
    LANES = 1 + WORKERS,
    HONEST = 0, /* session index; the malicious ones follow */
    PEERS = 3,
    HONEST_SLOTS = 4,
    ARENA_BYTES = 8192,
    GUARD_BYTES = 4096,
    AREA_BYTES = 64 * 1024, /* address space kept for one mapping, guards included */
    PER_ROUND = 32,         /* requests taken from one session in a round, runtime/dispatcher.c */
    OWED_MAX = (1 + WORKERS) * 32 + PER_ROUND,
    APPS = 2,
    APP_PLAIN = 0, /* one input, one output, no deadline */
    APP_TIGHT = 1, /* more tensors than a request has room for, two variants, a deadline; comes and goes */
    TIGHT_INPUTS = LEAT_WIRE_UNITS + 1,
    STEPS_MAX = 600,
    SETTLE_MAX = 4000, /* rounds within which everything must have ended */
    REFUSED = 0xf1,    /* first byte of an input that the models refuse */
};
#define START_NS (UINT64_C(1) << 40)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__asan_default_options(void);

/* Little memory is freed in an execution, and none of it used in the next: a long quarantine would only take time. */
const char *
__asan_default_options(void)
{
    return "quarantine_size_mb=2";
}

struct input {
    const uint8_t *bytes;
    size_t left;
};

/* One session with what its malicious client knows, and what it is owed. */
struct peer {
    struct leat_daemon_session *session; /* NULL: none */
    bool close_sent;
    uint64_t command;  /* number of the command that adds it to the dispatcher */
    uint64_t position; /* the client's next cell */
    uint64_t read;     /* requests read that must each end in one response */
    uint64_t seen[LANES]; /* responses compared, by lane */
    struct owed {
        uint32_t ticket_low;
        uint16_t slot;
        bool malformed; /* asks for what does not exist */
    } owed[OWED_MAX];
    uint32_t owed_count;
    bool lapped; /* the client let answers be overwritten: from there on they are only counted */
};

static unsigned char *areas[PEERS][2]; /* address space for rings and arena of each session */
static struct leat_shared_tables tables;
static struct leat_variant variants[3];
static struct leat_variant_copy copies[3];
static struct leat_application apps[APPS];
static struct leat_profile profiles[APPS][2][LEAT_WORKER_CLASSES_MAX];
static enum { APP_GONE, APP_SERVING, APP_REMOVING } app_states[APPS];
static struct leat_dispatcher *dispatcher;
static struct leat_worker *workers[WORKERS];
static struct peer peers[PEERS];
static struct leat_pipeline pipeline;
static struct leat_daemon_session *stages_session; /* of its stages' queries */
static bool pipeline_serves;
static uint64_t pipeline_command; /* number of the command that adds it */
static bool tight_queues; /* the honest client may find them full */
static bool draining, drained;
static bool running; /* the daemon is, made for running_sizes */
static uint8_t running_sizes;
static uint64_t commands_sent, commands_obeyed; /* one a round */
static uint64_t app_commands[APPS];             /* number of the command that adds it */

static struct leat_session *client; /* the honest client's library session */
static struct {
    bool busy, cancelled;
    unsigned char fill;
    struct leat_query query;
} questions[HONEST_SLOTS];

/* ---- Input and time --------------------------------------------------------------------------- */

static uint8_t
take(struct input *input)
{
    if (input->left == 0) {
        return 0;
    }
    input->left--;
    return *input->bytes++;
}

static uint32_t
take_number(struct input *input) /* small ones mostly; the top values stand for limits */
{
    static const uint32_t edges[] = {UINT32_MAX, UINT32_MAX / 64, 65536, 65535, 1024, 256};
    const uint8_t byte = take(input);
    return byte > 0xff - LEAT_COUNT_OF(edges) ? edges[0xff - byte] : byte;
}

static void
pass_time(uint64_t ns)
{
    /* A time-stamp counter of rate 0: the clock shows base_ns. */
    tables.clock.base_ns += ns;
    client->clock = tables.clock;
}

static void
command(const struct leat_command *what)
{
    leat_dispatcher_command(dispatcher, what);
    commands_sent++;
}

/* ---- The models ------------------------------------------------------------------------------- */

/* Asserts that [tensor, tensor + bytes) lies in the arena of one open session, or of the pipeline's. */
static void
check_tensor(const void *tensor, uint64_t bytes)
{
    const unsigned char *at = tensor;
    for (uint32_t p = 0; p <= PEERS; p++) {
        const struct leat_daemon_session *session = p < PEERS ? peers[p].session : stages_session;
        if (session != NULL && at >= session->arena && at < session->arena + session->arena_bytes) {
            LEAT_ASSERT(bytes <= session->arena_bytes - (uint64_t)(at - session->arena));
            LEAT_ASSERT((uint64_t)(at - session->arena) % LEAT_TENSOR_ALIGN == 0);
            return;
        }
    }
    LEAT_ASSERT(false && "a tensor of no session");
}

/* The output is the first input inverted. Takes time by the items that it runs. */
static enum leat_status
run(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
    struct leat_team *team)
{
    const struct leat_variant *variant = (const void *)plan;
    const uint32_t out = variant->tensor_count - 1;

    LEAT_ASSERT(scratch == NULL && team == NULL && count >= 1 && count <= LEAT_BATCH_QUERIES);
    for (uint32_t i = 0; i < count; i++) {
        LEAT_ASSERT(segments[i].items >= 1 && segments[i].items <= variant->items_max);
        for (uint32_t t = 0; t < variant->tensor_count; t++) {
            check_tensor(segments[i].tensors[t], variant->item_bytes[t] * segments[i].items);
        }
        for (uint32_t t = 0; t < out; t++) { /* an output that overlaps an input was to be refused */
            const unsigned char *in = segments[i].tensors[t], *to = segments[i].tensors[out];
            LEAT_ASSERT(in + variant->item_bytes[t] * segments[i].items <= to ||
                        to + variant->item_bytes[out] * segments[i].items <= in);
        }
        pass_time(1000 * segments[i].items);
        const unsigned char *in = segments[i].tensors[0];
        unsigned char *to = (unsigned char *)(uintptr_t)segments[i].tensors[out];
        if (in[0] == REFUSED) {
            return LEAT_ERR_SHAPE;
        }
        for (uint64_t b = 0; b < variant->item_bytes[0] * segments[i].items; b++) {
            to[b] = (unsigned char)~in[b];
        }
    }
    return LEAT_OK;
}

static const struct leat_backend backend = {.abi = LEAT_BACKEND_ABI, .name = "fuzz", .plan_run = run};

static void
set_up_variant(uint16_t index, uint32_t items_max, uint32_t inputs, uint64_t item_bytes, uint32_t accuracy_ppm)
{
    struct leat_variant *variant = &variants[index];
    *variant = (struct leat_variant){.index = index,
                                     .backend = &backend,
                                     .items_max = items_max,
                                     .accuracy_ppm = accuracy_ppm,
                                     .tensor_count = inputs + 1,
                                     .input_count = inputs,
                                     .copies = &copies[index],
                                     .copy_count = 1};
    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        variant->item_bytes[t] = item_bytes;
    }
    for (uint32_t bucket = 0; bucket < LEAT_PLANS_MAX; bucket++) {
        copies[index].plans[bucket] = (struct leat_plan *)variant;
    }
    atomic_store_explicit(&tables.variants[index], variant, memory_order_relaxed);
}

static void
add_application(uint16_t id, const struct leat_router *router)
{
    struct leat_application *app = &apps[id];

    LEAT_ASSERT(app_states[id] == APP_GONE);
    *app = (struct leat_application){.id = id,
                                     .router = router,
                                     .selector = &leat_selector_fixed,
                                     .profiles = profiles[id],
                                     .router_state = calloc(1, router->state_bytes + 1),
                                     .waiting_max = tight_queues ? 2 : 256};
    app->target = (struct leat_target){.id = id, .input_count = 1, .output_count = 1};
    memset(profiles[id], 0, sizeof(profiles[id]));
    if (id == APP_TIGHT) {
        app->target.input_count = TIGHT_INPUTS;
        app->latency_ns = 1000000;
        app->drop_late = true;
    }
    app->variant_count = id == APP_TIGHT ? 2 : 1;
    for (uint32_t v = 0; v < app->variant_count; v++) {
        app->variants[v] = &variants[id + v];
        app->sched_variants[v] = (struct leat_sched_variant){
            .accuracy_ppm = app->variants[v]->accuracy_ppm, .items_max = app->variants[v]->items_max, .ready = true};
        app->target.items_max =
            app->variants[v]->items_max > app->target.items_max ? app->variants[v]->items_max : app->target.items_max;
        leat_profile_set(&profiles[id][v][0], 1, 1000);
    }
    for (uint32_t t = 0; t < app->variants[0]->tensor_count; t++) {
        app->target.tensors[t].item_bytes = app->variants[0]->item_bytes[t];
    }
    LEAT_ASSERT(app->router_state != NULL);
    LEAT_MUST(leat_waiting_init(app->waiting, app->waiting_max) == LEAT_OK);
    command(&(struct leat_command){.kind = LEAT_COMMAND_ADD_APPLICATION, .application = app});
    app_states[id] = APP_SERVING;
    app_commands[id] = commands_sent;
}

/* APP_PLAIN after APP_PLAIN; what the first makes lies in the daemon's own memory. */
static void
add_pipeline(void)
{
    const uint64_t item_bytes = variants[APP_PLAIN].item_bytes[0];
    const uint32_t items_max = variants[APP_PLAIN].items_max;

    pipeline = (struct leat_pipeline){
        .late = LEAT_PIPELINE_DROP,
        .stage_count = 2,
        .workspace_bytes = item_bytes * items_max,
        .runs_max = tight_queues ? 2 : 16,
        .target = {.id = LEAT_PIPELINE_TARGET,
                   .items_max = items_max,
                   .input_count = 1,
                   .output_count = 2,
                   .tensors = {{.item_bytes = item_bytes}, {.item_bytes = item_bytes}, {.item_bytes = 4 * sizeof(uint64_t)}}},
    };
    for (uint32_t s = 0; s < 2; s++) {
        pipeline.stages[s] = (struct leat_pipeline_stage){.application = APP_PLAIN,
                                                          .after = s,
                                                          .input_count = 1,
                                                          .output_count = 1,
                                                          .item_bytes = {item_bytes, item_bytes},
                                                          .each_stage = UINT32_MAX};
        pipeline.stages[s].tensors[1 - s].place = LEAT_PIPELINE_WORKSPACE;
    }
    pipeline.stages[1].tensors[1].index = 1;
    LEAT_MUST(leat_pipeline_init_runs(&pipeline) == LEAT_OK);
    command(&(struct leat_command){.kind = LEAT_COMMAND_ADD_PIPELINE, .pipeline = &pipeline});
    pipeline_serves = true;
    pipeline_command = commands_sent;
}

static void
remove_application(uint16_t id)
{
    command(&(struct leat_command){.kind = LEAT_COMMAND_REMOVE_APPLICATION, .application = &apps[id]});
    app_states[id] = APP_REMOVING;
}

/* ---- Sessions, as runtime/server.c makes and ends them ---------------------------------------- */

/* Moves a mapping to where pages without access enclose it. */
static void *
enclose(void *memory, size_t bytes, unsigned char *area)
{
    LEAT_ASSERT(bytes <= AREA_BYTES - 2 * GUARD_BYTES);
    void *moved = mremap(memory, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, area + GUARD_BYTES);
    LEAT_ASSERT(moved == area + GUARD_BYTES);
    return moved;
}

/* Takes the address space back, which is refused while anything is still mapped there. */
static void
take_back(unsigned char *area, size_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    void *memory = mmap(area + GUARD_BYTES, bytes, PROT_NONE, flags, -1, 0);
    LEAT_ASSERT(memory == area + GUARD_BYTES);
}

static void
open_session(uint16_t index, uint32_t slots)
{
    const struct leat_session_options options = {.slots = slots, .lane_count = LANES, .arena_bytes = ARENA_BYTES};
    struct leat_daemon_session *session;
    char note[160];

    LEAT_MUST(leat_daemon_session_create(&options, &session, note) == LEAT_OK);
    unsigned char *rings = enclose(session->rings, session->rings_bytes, areas[index][0]);
    session->rings = (void *)rings;
    session->submit_cells = (void *)(rings + leat_wire_submit_offset());
    session->lanes = (void *)(rings + leat_wire_lane_offset(slots, 0));
    session->lists = (void *)(rings + leat_wire_lists_offset(slots, LANES));
    session->arena = enclose(session->arena, session->arena_bytes, areas[index][1]);
    session->index = index;
    atomic_store_explicit(&tables.sessions[index], session, memory_order_release);
    command(&(struct leat_command){.kind = LEAT_COMMAND_ADD_SESSION, .session = session});
    peers[index] = (struct peer){.session = session, .command = commands_sent};
}

static void
close_session(uint16_t index)
{
    struct peer *peer = &peers[index];
    if (peer->session != NULL && !peer->close_sent) {
        command(&(struct leat_command){.kind = LEAT_COMMAND_CLOSE_SESSION, .session = peer->session});
        peer->close_sent = true;
    }
}

static void
session_gone(struct leat_daemon_session *session)
{
    struct peer *peer = &peers[session->index];
    const size_t rings_bytes = session->rings_bytes;
    const uint16_t index = session->index;

    LEAT_ASSERT(peer->session == session && peer->close_sent && session->dispatcher.in_flight == 0);
    LEAT_ASSERT(atomic_load(&session->rings->state) == LEAT_WIRE_CLOSED || index != HONEST);
    atomic_store_explicit(&tables.sessions[index], NULL, memory_order_relaxed);
    leat_daemon_session_destroy(session);
    take_back(areas[index][0], rings_bytes);
    take_back(areas[index][1], ARENA_BYTES);
    *peer = (struct peer){0};
}

/* ---- What the daemon owes --------------------------------------------------------------------- */

/* A request for what is not known waits while commands do: one may be what adds it. */
static bool
waits_for_commands(const struct leat_wire_request *cell)
{
    const bool known = cell->target == LEAT_PIPELINE_TARGET
                           ? pipeline_serves && pipeline_command <= commands_obeyed
                           : cell->target < APPS && app_states[cell->target] != APP_GONE &&
                                 app_commands[cell->target] <= commands_obeyed;
    return !known && (cell->flags & LEAT_WIRE_CANCEL) == 0 && commands_obeyed < commands_sent;
}

/* Notes what the coming round will read from the ring, and returns how many cells. */
static uint32_t
foresee(struct peer *peer)
{
    const struct leat_daemon_session *session = peer->session;
    const uint64_t mask = (uint64_t)session->slots * LEAT_SUBMIT_CELLS_PER_SLOT - 1;
    uint32_t count = 0;

    while (count < PER_ROUND) {
        const uint64_t position = session->dispatcher.submit_position + count;
        const struct leat_wire_request *cell = &session->submit_cells[position & mask];
        if (atomic_load_explicit(&cell->sequence, memory_order_relaxed) != position + 1 || waits_for_commands(cell)) {
            break;
        }
        count++;
        if (cell->slot < session->slots && (cell->flags & LEAT_WIRE_CANCEL) == 0) {
            peer->read++;
            LEAT_ASSERT(peer->lapped || peer->owed_count < OWED_MAX);
            if (!peer->lapped) {
                peer->owed[peer->owed_count++] = (struct owed){.ticket_low = cell->ticket_low,
                                                               .slot = cell->slot,
                                                               .malformed = (cell->flags & ~LEAT_WIRE_OFFLINE) != 0 ||
                                                                            cell->cost_cap > LEAT_WIRE_COST_MAX};
            }
        }
    }
    return count;
}

static void
settle_debt(struct peer *peer, const struct leat_wire_response *response, uint32_t lane)
{
    LEAT_ASSERT(response->outcome >= LEAT_OUTCOME_OK && response->outcome <= LEAT_OUTCOME_FAILED);
    LEAT_ASSERT(response->reason <= LEAT_REASON_LENGTH);
    const bool malformed = response->reason == LEAT_REASON_MALFORMED;
    LEAT_ASSERT(!malformed || response->outcome == LEAT_OUTCOME_REJECTED);
    LEAT_ASSERT(response->worker == (lane == 0 ? UINT16_MAX : lane - 1) || response->reason == LEAT_REASON_PRICE);
    for (uint32_t i = 0; i < peer->owed_count; i++) {
        if (peer->owed[i].slot == response->slot && peer->owed[i].ticket_low == response->ticket_low &&
            (draining || peer->owed[i].malformed == malformed)) {
            peer->owed[i] = peer->owed[--peer->owed_count];
            return;
        }
    }
    LEAT_ASSERT(false && "a response that nobody asked for");
}

/* After a step of the daemon: every new response answers a request that had none. */
static void
check_responses(struct peer *peer)
{
    const struct leat_daemon_session *session = peer->session;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        const uint64_t next = session->lane_positions[lane].next;
        LEAT_ASSERT(next >= peer->seen[lane]);
        peer->lapped = peer->lapped || next - peer->seen[lane] > session->slots;
        while (peer->seen[lane] < next && !peer->lapped) {
            const struct leat_wire_response *cell =
                &session->lanes[(size_t)lane * session->slots + (peer->seen[lane] & (session->slots - 1))];
            LEAT_ASSERT(atomic_load_explicit(&cell->sequence, memory_order_relaxed) == ++peer->seen[lane]);
            settle_debt(peer, cell, lane);
        }
        peer->seen[lane] = next;
    }
}

static void
check_peers(void)
{
    for (uint32_t p = 0; p < PEERS; p++) {
        if (peers[p].session != NULL) {
            check_responses(&peers[p]);
        }
    }
}

/* ---- The daemon's steps ----------------------------------------------------------------------- */

static void
take_events(void)
{
    struct leat_event event;
    while (leat_dispatcher_poll_event(dispatcher, &event)) {
        switch (event.kind) {
        case LEAT_EVENT_SESSION_GONE:
            session_gone(event.session);
            break;
        case LEAT_EVENT_APPLICATION_GONE:
            LEAT_ASSERT(app_states[event.application->id] == APP_REMOVING && event.application->running == 0 &&
                        leat_waiting_total(event.application->waiting) == 0);
            leat_waiting_fini(event.application->waiting);
            free(event.application->router_state);
            app_states[event.application->id] = APP_GONE;
            break;
        case LEAT_EVENT_PIPELINE_GONE:
            LEAT_ASSERT(pipeline_serves && event.pipeline == &pipeline);
            leat_pipeline_fini_runs(&pipeline);
            pipeline_serves = false;
            break;
        case LEAT_EVENT_PROFILES_COPIED:
        case LEAT_EVENT_POLICY_SET:
        case LEAT_EVENT_RESIZED:
        case LEAT_EVENT_DEDICATED:
        case LEAT_EVENT_JUMP:
        case LEAT_EVENT_DRAINED:
            LEAT_ASSERT(draining && !drained);
            drained = true;
            break;
        }
    }
}

/* Does the dispatcher read the session's ring? */
static bool
is_polled(const struct peer *peer)
{
    return peer->session != NULL && peer->command <= commands_obeyed && !peer->session->dispatcher.closing;
}

static void
dispatcher_step(void)
{
    uint32_t foreseen[PEERS] = {0};
    uint64_t before[PEERS] = {0};

    for (uint32_t p = 0; p < PEERS; p++) {
        if (is_polled(&peers[p])) {
            before[p] = peers[p].session->dispatcher.submit_position;
            foreseen[p] = foresee(&peers[p]);
        }
    }
    (void)leat_dispatcher_round(dispatcher, tables.clock.base_ns);
    leat_dispatcher_check(dispatcher);
    check_peers();
    for (uint32_t p = 0; p < PEERS; p++) {
        uint64_t responses = 0;
        if (!is_polled(&peers[p])) { /* of a closed session's queries some are dropped */
            continue;
        }
        for (uint32_t lane = 0; lane < LANES; lane++) {
            responses += peers[p].session->lane_positions[lane].next;
        }
        LEAT_ASSERT(peers[p].session->dispatcher.submit_position == before[p] + foreseen[p]);
        /* Those in flight have no response yet: the round began with taking the workers' reports. */
        LEAT_ASSERT(responses + peers[p].session->dispatcher.in_flight == peers[p].read);
    }
    commands_obeyed += commands_obeyed < commands_sent;
    take_events();
}

static bool
worker_step(uint32_t index)
{
    const bool ran = leat_worker_step(workers[index]);
    check_peers();
    return ran;
}

/* ---- The honest client ------------------------------------------------------------------------ */

/* A library session over the daemon's own mapping, as leat_open would make it over a second one. */
static void
connect_client(void)
{
    static struct leat_client_slot states[HONEST_SLOTS];
    static uint16_t free_slots[HONEST_SLOTS];
    static struct leat_client_target target;
    static struct leat_completion stash[HONEST_SLOTS];
    const struct leat_daemon_session *session = peers[HONEST].session;
    const int socket = client->socket;

    memset(states, 0, sizeof(states));
    memset(questions, 0, sizeof(questions));
    target = (struct leat_client_target){.known = true, .items_max = 8, .tensor_count = 2, .item_bytes = {64, 64}};
    *client = (struct leat_session){
        .rings = session->rings,
        .submit_cells = session->submit_cells,
        .lanes = session->lanes,
        .lane_count = LANES,
        .slots = HONEST_SLOTS,
        .free_count = HONEST_SLOTS,
        .free_slots = free_slots,
        .slot_states = states,
        .stash = stash,
        .next_ticket = 1,
        .arena = session->arena,
        .arena_bytes = session->arena_bytes,
        .clock = tables.clock,
        .targets = &target,
        .target_count = 1,
        .connected = true,
        .socket = socket,
        .daemon_fd = session->wake_fd,
        .client_fd = -1,
        .event_fd = -1,
    };
    for (uint16_t i = 0; i < HONEST_SLOTS; i++) {
        free_slots[i] = i;
        questions[i].query = (struct leat_query)LEAT_QUERY_INIT;
        questions[i].query.target = APP_PLAIN;
        questions[i].query.user_data = i;
        questions[i].query.tensors[0] = session->arena + (size_t)i * 1024;
        questions[i].query.tensors[1] = session->arena + (size_t)i * 1024 + 512;
    }
}

static void
honest_submit(uint32_t which, uint8_t fill, uint32_t items)
{
    uint64_t ticket;
    if (questions[which].busy) {
        return;
    }
    questions[which].busy = true;
    questions[which].cancelled = false;
    questions[which].fill = fill == REFUSED ? 0 : fill;
    questions[which].query.items = items;
    memset(questions[which].query.tensors[0], questions[which].fill, 64 * items);
    memset(questions[which].query.tensors[1], questions[which].fill, 64 * items);
    LEAT_MUST(leat_submit(client, &questions[which].query, &ticket) == LEAT_OK);
}

static void
honest_cancel(uint32_t which)
{
    for (uint32_t slot = 0; slot < HONEST_SLOTS; slot++) {
        const struct leat_client_slot *state = &client->slot_states[slot];
        if (state->ticket != 0 && state->user_data == which) {
            LEAT_MUST(leat_cancel(client, state->ticket) == LEAT_OK);
            questions[which].cancelled = true;
        }
    }
}

static void
honest_collect(void)
{
    struct leat_completion done[HONEST_SLOTS];
    const size_t count = leat_poll(client, done, HONEST_SLOTS);

    for (size_t c = 0; c < count; c++) {
        const uint64_t which = done[c].user_data;
        const struct leat_query *query = &questions[which].query;
        LEAT_ASSERT(which < HONEST_SLOTS && questions[which].busy);
        questions[which].busy = false;
        switch (done[c].outcome) {
        case LEAT_OUTCOME_OK:
            for (uint32_t b = 0; b < 64 * query->items; b++) {
                LEAT_ASSERT(((unsigned char *)query->tensors[1])[b] == (unsigned char)~questions[which].fill);
            }
            break;
        case LEAT_OUTCOME_CANCELLED:
            LEAT_ASSERT(questions[which].cancelled);
            break;
        case LEAT_OUTCOME_REJECTED:
            LEAT_ASSERT((done[c].reason == LEAT_REASON_QUEUE_FULL && tight_queues) ||
                        (done[c].reason == LEAT_REASON_DRAINING && draining));
            break;
        default:
            LEAT_ASSERT(false && "an honest query ended otherwise");
        }
    }
}

/* ---- The malicious clients -------------------------------------------------------------------- */

static void
write_list(struct input *input, struct peer *peer, uint32_t slot)
{
    for (uint32_t t = 0; t <= TIGHT_INPUTS; t++) {
        peer->session->lists[slot % peer->session->slots].units[t] = take_number(input);
    }
}

static void
scribble(struct input *input, struct peer *peer)
{
    const uint8_t how = take(input);
    const bool rings = how % 4 != 0;
    unsigned char *memory = rings ? (unsigned char *)peer->session->rings : peer->session->arena;
    const size_t bytes = rings ? peer->session->rings_bytes : peer->session->arena_bytes;
    const size_t start = ((size_t)take(input) << 8 | take(input)) % bytes;
    const size_t count = take(input) % 64;

    if (how % 8 == 7) { /* of a query that may be on its way to a worker */
        write_list(input, peer, (uint32_t)start);
        return;
    }
    for (size_t i = 0; i < count && start + i < bytes; i++) {
        memory[start + i] = take(input);
    }
}

static void
publish(struct input *input, struct peer *peer)
{
    const uint64_t mask = (uint64_t)peer->session->slots * LEAT_SUBMIT_CELLS_PER_SLOT - 1;
    const uint8_t how = take(input);
    struct leat_wire_request *cell = &peer->session->submit_cells[peer->position & mask];

    cell->flags = (how & 3) == 3 ? take(input) : (how & 1) != 0 ? LEAT_WIRE_CANCEL : (how & 2);
    cell->submit_ns = (how & 4) != 0 ? take_number(input) * (UINT64_MAX / UINT32_MAX) : tables.clock.base_ns;
    cell->latency_us = (how & 8) != 0 ? take_number(input) : 0;
    cell->accuracy_floor_ppm = (how & 16) != 0 ? take_number(input) * 10000 : 0;
    cell->target = (uint16_t)take_number(input);
    cell->items = take_number(input) & LEAT_WIRE_ITEMS_MASK;
    cell->length = (how & 64) != 0 ? take_number(input) & LEAT_LENGTH_MAX : 0;
    cell->slot = (uint16_t)take_number(input);
    cell->ticket_low = take(input);
    for (uint32_t t = 0; t < 3; t++) {
        cell->units[t] = take_number(input);
    }
    if (cell->target == APP_TIGHT) {
        write_list(input, peer, cell->slot);
    }
    peer->position++;
    if ((how & 32) != 0) { /* a sequence of another lap */
        cell->sequence = peer->position + take(input) - 128u;
    } else {
        atomic_store_explicit(&cell->sequence, peer->position, memory_order_release);
    }
}

/* Says that it sleeps, in any manner, or wakes the dispatcher. */
static void
ring(struct input *input, struct peer *peer)
{
    const uint8_t how = take(input);
    const uint64_t one = 1;

    if ((how & 1) != 0) {
        atomic_store_explicit(&peer->session->rings->client_bell.asleep, how >> 1, memory_order_relaxed);
    } else {
        (void)leat_bell_ring(&peer->session->rings->daemon_bell);
        const ssize_t written = write(peer->session->wake_fd, &one, sizeof(one));
        (void)written;
    }
}

/* One step of the program. */
static void
step(struct input *input)
{
    const uint8_t op = take(input);
    const uint16_t index = (uint16_t)(1 + (op >> 4) % (PEERS - 1));
    struct peer *peer = &peers[index];
    const bool open = peer->session != NULL;

    switch (op & 15) {
    case 0:
        if (open) {
            scribble(input, peer);
        }
        break;
    case 1:
    case 2:
    case 3:
        if (open) {
            publish(input, peer);
        }
        break;
    case 4:
        if (open) {
            ring(input, peer);
        }
        break;
    case 5:
    case 6:
        dispatcher_step();
        break;
    case 7:
    case 8:
        (void)worker_step((op >> 4) % WORKERS);
        break;
    case 9:
        pass_time(UINT64_C(1) << take(input) % 31);
        break;
    case 10:
        if (open) {
            close_session(index);
        } else {
            static const uint32_t slots[] = {2, 8, 32, 32};
            open_session(index, slots[take(input) % 4]);
        }
        break;
    case 11:
        honest_submit((op >> 4) % HONEST_SLOTS, take(input), 1 + take(input) % 8);
        break;
    case 12:
        honest_cancel((op >> 4) % HONEST_SLOTS);
        break;
    case 13:
        honest_collect();
        break;
    case 14:
        if (app_states[APP_TIGHT] == APP_SERVING) {
            remove_application(APP_TIGHT);
        } else if (app_states[APP_TIGHT] == APP_GONE) {
            add_application(APP_TIGHT, (op & 16) != 0 ? &leat_router_fcfs : &leat_router_round_robin);
        }
        break;
    case 15:
        if (op == 0xff && !draining) {
            draining = true;
            command(&(struct leat_command){.kind = LEAT_COMMAND_DRAIN});
        } else { /* the malicious client goes back to where the dispatcher reads */
            peer->position = open ? peer->session->dispatcher.submit_position : 0;
        }
        break;
    }
}

/* ---- One execution ---------------------------------------------------------------------------- */

static void
prepare(void)
{
    static struct leat_session library_session;
    int ends[2];

    client = &library_session;
    LEAT_MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0); /* the library asks it whether the daemon lives */
    client->socket = ends[0];
    for (uint32_t p = 0; p < PEERS; p++) {
        for (uint32_t m = 0; m < 2; m++) {
            areas[p][m] = mmap(NULL, AREA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            LEAT_ASSERT(areas[p][m] != MAP_FAILED);
        }
    }
    set_up_variant(APP_PLAIN, 8, 1, 64, 500000);
    set_up_variant(APP_TIGHT, 4, TIGHT_INPUTS, 48, 300000);
    set_up_variant(APP_TIGHT + 1, 16, TIGHT_INPUTS, 48, 900000);
}

static void
start_daemon(uint8_t sizes)
{
    static const uint16_t classes[WORKERS] = {0, 0};

    tight_queues = (sizes & 1) != 0;
    draining = drained = false;
    commands_sent = commands_obeyed = 0;
    tables.clock = (struct leat_clock){.kind = LEAT_CLOCK_TSC, .mult = 0, .base_ns = START_NS};
    const struct leat_dispatcher_options options = {
        .tables = &tables,
        .workers = workers,
        .worker_classes = classes,
        .worker_count = WORKERS,
        .worker_depth = 1 + (sizes >> 1) % 4,
        .queue_capacity = tight_queues ? 16 : 256,
        .cpu = -1,
    };
    LEAT_MUST(leat_dispatcher_create(&options, &dispatcher) == LEAT_OK);
    for (uint32_t w = 0; w < WORKERS; w++) {
        const struct leat_worker_options worker_options = {
            .index = w,
            .core_count = 1,
            .tables = &tables,
            .dispatcher_bell = leat_dispatcher_bell(dispatcher),
            .dispatcher_event = leat_dispatcher_event_fd(dispatcher),
        };
        LEAT_MUST(leat_worker_create(&worker_options, &workers[w]) == LEAT_OK);
    }
    const struct leat_session_options session_options = {.slots = 8, .lane_count = LANES, .arena_bytes = ARENA_BYTES};
    char note[160];
    LEAT_MUST(leat_daemon_session_create(&session_options, &stages_session, note) == LEAT_OK);
    stages_session->index = LEAT_PIPELINE_SESSION;
    atomic_store_explicit(&tables.sessions[LEAT_PIPELINE_SESSION], stages_session, memory_order_relaxed);
    open_session(HONEST, HONEST_SLOTS);
    connect_client();
    dispatcher_step();
    running = true;
    running_sizes = sizes;
}

static void
stop_daemon(void)
{
    close_session(HONEST);
    for (int round = 0; peers[HONEST].session != NULL; round++) {
        LEAT_ASSERT(round < 3);
        dispatcher_step();
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        leat_worker_destroy(workers[w]);
    }
    leat_dispatcher_destroy(dispatcher);
    leat_daemon_session_destroy(stages_session);
    running = false;
}

/* The malicious clients die, the honest one collects what is left, and everything must come back. */
static void
finish(bool drain)
{
    uint32_t rounds = 0;

    for (uint16_t p = 1; p < PEERS; p++) {
        close_session(p);
    }
    while (leat_in_flight(client) > 0 || peers[1].session != NULL || peers[2].session != NULL) {
        LEAT_ASSERT(rounds++ < SETTLE_MAX);
        dispatcher_step();
        while (worker_step(0) || worker_step(1)) {
        }
        honest_collect();
    }
    command(&(struct leat_command){.kind = LEAT_COMMAND_REMOVE_PIPELINE, .pipeline = &pipeline});
    while (pipeline_serves) {
        LEAT_ASSERT(rounds++ < SETTLE_MAX);
        dispatcher_step();
    }
    LEAT_ASSERT(stages_session->dispatcher.in_flight == 0);
    for (uint16_t id = 0; id < APPS; id++) {
        if (app_states[id] == APP_SERVING) {
            remove_application(id);
        }
    }
    if (drain && !draining) {
        draining = true;
        command(&(struct leat_command){.kind = LEAT_COMMAND_DRAIN});
    }
    while (app_states[APP_PLAIN] != APP_GONE || app_states[APP_TIGHT] != APP_GONE || draining != drained) {
        LEAT_ASSERT(rounds++ < SETTLE_MAX);
        dispatcher_step();
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        LEAT_ASSERT(workers[w]->dispatcher.queries == 0 && workers[w]->dispatcher.batches == 0);
    }
    LEAT_ASSERT(peers[HONEST].session->dispatcher.in_flight == 0 && peers[HONEST].owed_count == 0);
}

/* Which of the 32 descriptors from the daemon's first on are open. New ones take the lowest free numbers. */
static uint64_t
open_descriptors(void)
{
    uint64_t open = 0;
    for (int n = 0; n < 32; n++) {
        open |= (uint64_t)(fcntl(client->socket + n, F_GETFD) >= 0) << n;
    }
    return open;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {.bytes = data, .left = size};
    const uint8_t sizes = take(&input), how = take(&input);
    static bool prepared;

    if (!prepared) {
        prepare();
        prepared = true;
    }
    if (running && (running_sizes != sizes % 8 || tables.clock.base_ns > UINT64_MAX / 4)) {
        stop_daemon();
    }
    if (!running) {
        start_daemon(sizes % 8);
    }
    const uint64_t descriptors = open_descriptors();
    add_application(APP_PLAIN, (how & 1) != 0 ? &leat_router_round_robin : &leat_router_fcfs);
    add_application(APP_TIGHT, (how & 2) != 0 ? &leat_router_round_robin : &leat_router_fcfs);
    add_pipeline();
    open_session(1, (how & 4) != 0 ? 2 : 32);
    for (int c = 0; c < 4; c++) {
        dispatcher_step();
    }
    for (int n = 0; n < STEPS_MAX && input.left > 0; n++) {
        step(&input);
    }
    finish((how & 248) == 248);
    LEAT_ASSERT(open_descriptors() == descriptors);
    if (draining) {
        stop_daemon();
    }
    return 0;
}
