/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A profile that says too much does not refuse for ever. What clients cancel, let expire or leave behind costs
 *          the dispatcher a bounded amount of work a round: a cancel that names nothing costs no look at any list, and
 *          everything else together one look at each waiting query. What stays keeps its order. A policy goes to the
 *          application that it was made for and to no other, and what is not in force comes back. Selectors hear of the runs
 *          that say something, and reserves outlive the application's variants.
 *          Offline queries take what others leave, and are neither load nor backlog of theirs; what is served late,
 *          though it cannot be in time, goes in between. Online queries that find no room are load. Who keeps to its slots is let in,
 *          however late reports are seen.
 * Method   The dispatcher driven round by round over sessions whose clients are this test, with a worker that does not
 *          move until it is told to, so that queries wait. Work is counted in list entries looked at, not in time.
 *          The clock stands still but where a case or a run moves it.
 */
#include <string.h>

#include "base/align.h"
#include "runtime/dispatcher.h"
#include "sched/policy_table.h"
#include "tests/leat_test.h"

enum {
    SESSIONS = 8,
    SLOTS = 128,
    FEW_SLOTS = 16,
    TAKEN = 32, /* requests of one session in a round, runtime/dispatcher.c */
    APPS = 3,
    PLAIN = 0, /* no deadline */
    TIGHT = 1, /* queries have the latency that they name */
    LATE = 2,  /* the dispatcher hears of it only when a case says so */
    ALL = SESSIONS * SLOTS,
};
#define MINUTE_US 60000000u

static struct leat_shared_tables tables;
static struct leat_dispatcher *dispatcher;
static struct leat_worker *worker;
static struct leat_application apps[APPS];
static struct leat_profile profiles[1][LEAT_WORKER_CLASSES_MAX];
static struct {
    struct leat_daemon_session *daemon; /* NULL: gone */
    uint64_t sent, answered;            /* cells of the submission ring and of lane 0 */
    uint32_t outcomes[SLOTS];           /* of the last answer from the dispatcher, 0: none yet */
    uint32_t tickets[SLOTS];            /* it named */
} clients[SESSIONS];
static struct leat_policy_change *policy_change; /* last answered */
static struct leat_application *application_gone; /* last */
static uint32_t jumps;                            /* that it told */
static uint64_t now_ns;
static uint64_t run_ns; /* that every run takes */
static enum leat_status run_status;
static uint64_t random_state;

/* ---- The daemon ------------------------------------------------------------------------------- */

static enum leat_status
run(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
    struct leat_team *team)
{
    (void)plan;
    (void)segments;
    (void)count;
    (void)scratch;
    (void)team;
    tables.clock.base_ns += run_ns;
    return run_status;
}

static const struct leat_backend backend = {.abi = LEAT_BACKEND_ABI, .name = "nothing", .plan_run = run};
static struct leat_variant_copy copy;
static struct leat_variant variant = {.name = "nothing",
                                      .index = 1,
                                      .backend = &backend,
                                      .copies = &copy,
                                      .copy_count = 1,
                                      .items_max = 1,
                                      .item_bytes = {LEAT_TENSOR_ALIGN, LEAT_TENSOR_ALIGN},
                                      .tensor_count = 2};

static void
command(enum leat_command_kind kind, uint32_t which)
{
    struct leat_command order = {.kind = kind};
    if (kind == LEAT_COMMAND_ADD_APPLICATION) {
        order.application = &apps[which];
    } else {
        order.session = clients[which].daemon;
    }
    leat_dispatcher_command(dispatcher, &order);
}

static uint64_t
swept(void)
{
    struct leat_dispatcher_statistics statistics;
    leat_dispatcher_statistics(dispatcher, &statistics);
    return statistics.swept;
}

static uint32_t
waiting(uint32_t app)
{
    return leat_waiting_total(apps[app].waiting);
}

static void
collect(uint32_t c)
{
    const struct leat_wire_response *lane = clients[c].daemon->lanes;
    for (;;) {
        const struct leat_wire_response *cell = &lane[clients[c].answered & (clients[c].daemon->slots - 1)];
        if (atomic_load_explicit(&cell->sequence, memory_order_relaxed) != clients[c].answered + 1) {
            return;
        }
        clients[c].answered++;
        clients[c].outcomes[cell->slot] = cell->outcome;
        clients[c].tickets[cell->slot] = cell->ticket_low;
    }
}

/* One round; returns how many list entries its sweep looked at. */
static uint64_t
step(void)
{
    const uint64_t before = swept();
    struct leat_event event;

    now_ns = now_ns + 1 > tables.clock.base_ns ? now_ns + 1 : tables.clock.base_ns;
    tables.clock.base_ns = now_ns;
    (void)leat_dispatcher_round(dispatcher, now_ns);
    leat_dispatcher_check(dispatcher);
    for (uint32_t c = 0; c < SESSIONS; c++) {
        if (clients[c].daemon != NULL) {
            collect(c);
        }
    }
    while (leat_dispatcher_poll_event(dispatcher, &event)) {
        if (event.kind == LEAT_EVENT_POLICY_SET) {
            policy_change = event.policy;
            continue;
        }
        if (event.kind == LEAT_EVENT_APPLICATION_GONE) {
            application_gone = event.application;
            continue;
        }
        if (event.kind == LEAT_EVENT_PROFILES_COPIED || event.kind == LEAT_EVENT_JUMP) {
            jumps += event.kind == LEAT_EVENT_JUMP;
            continue;
        }
        EXPECT(event.kind == LEAT_EVENT_SESSION_GONE);
        const uint32_t index = event.session->index;
        atomic_store_explicit(&tables.sessions[index], NULL, memory_order_relaxed);
        leat_daemon_session_destroy(event.session);
        clients[index].daemon = NULL;
    }
    return swept() - before;
}

static void
start_of(uint32_t worker_depth, uint32_t slots)
{
    static const uint16_t classes[1];
    const struct leat_dispatcher_options options = {.tables = &tables,
                                                    .workers = &worker,
                                                    .worker_classes = classes,
                                                    .worker_count = 1,
                                                    .worker_depth = worker_depth,
                                                    .queue_capacity = 512,
                                                    .cpu = -1};
    const struct leat_session_options session_options = {
        .slots = slots, .lane_count = 2, .arena_bytes = 4096};
    char note[160];

    now_ns = UINT64_C(1) << 40;
    tables.clock = (struct leat_clock){.kind = LEAT_CLOCK_TSC, .mult = 0, .base_ns = now_ns};
    atomic_store_explicit(&tables.variants[variant.index], &variant, memory_order_relaxed);
    leat_profile_set(&profiles[0][0], 1, 1);
    EXPECT(leat_dispatcher_create(&options, &dispatcher) == LEAT_OK);
    EXPECT(leat_worker_create(&(struct leat_worker_options){.core_count = 1,
                                                            .tables = &tables,
                                                            .dispatcher_bell = leat_dispatcher_bell(dispatcher),
                                                            .dispatcher_event = leat_dispatcher_event_fd(dispatcher)},
                              &worker) == LEAT_OK);
    for (uint16_t a = 0; a < APPS; a++) {
        apps[a] = (struct leat_application){
            .id = a,
            .target = {.id = a,
                       .items_max = 1,
                       .input_count = 1,
                       .output_count = 1,
                       .tensors = {{.item_bytes = LEAT_TENSOR_ALIGN}, {.item_bytes = LEAT_TENSOR_ALIGN}}},
            .drop_late = a == TIGHT,
            .waiting_max = ALL,
            .router = &leat_router_fcfs,
            .selector = &leat_selector_fixed,
            .variants = {&variant},
            .sched_variants = {{.items_max = 1, .ready = true}},
            .variant_count = 1,
            .profiles = profiles,
        };
        EXPECT(leat_waiting_init(apps[a].waiting, apps[a].waiting_max) == LEAT_OK);
        if (a != LATE) {
            command(LEAT_COMMAND_ADD_APPLICATION, a);
            (void)step();
        }
    }
    for (uint16_t c = 0; c < SESSIONS; c++) {
        memset(&clients[c], 0, sizeof(clients[c]));
        EXPECT(leat_daemon_session_create(&session_options, &clients[c].daemon, note) == LEAT_OK);
        clients[c].daemon->index = c;
        atomic_store_explicit(&tables.sessions[c], clients[c].daemon, memory_order_relaxed);
        command(LEAT_COMMAND_ADD_SESSION, c);
        (void)step();
    }
}

static void
start_deep(uint32_t worker_depth)
{
    start_of(worker_depth, SLOTS);
}

static void
start(void)
{
    start_deep(1);
}

static void
stop(void)
{
    for (uint32_t c = 0; c < SESSIONS; c++) {
        if (clients[c].daemon != NULL) {
            command(LEAT_COMMAND_CLOSE_SESSION, c);
            (void)step();
        }
    }
    while (leat_worker_step(worker)) {
        (void)step();
    }
    for (uint32_t c = 0; c < SESSIONS; c++) {
        EXPECT(clients[c].daemon == NULL);
    }
    leat_dispatcher_destroy(dispatcher);
    leat_worker_destroy(worker);
    for (uint32_t a = 0; a < APPS; a++) {
        EXPECT(waiting(a) == 0);
        leat_waiting_fini(apps[a].waiting);
    }
}

/* ---- The clients ------------------------------------------------------------------------------ */

static void
publish(uint32_t c, const struct leat_wire_request *request)
{
    const size_t body = offsetof(struct leat_wire_request, submit_ns);
    struct leat_wire_request *cell =
        &clients[c].daemon->submit_cells[clients[c].sent & (clients[c].daemon->slots * LEAT_SUBMIT_CELLS_PER_SLOT - 1)];
    memcpy((char *)cell + body, (const char *)request + body, sizeof(*cell) - body);
    atomic_store_explicit(&cell->sequence, ++clients[c].sent, memory_order_release);
}

static void
submit_as(uint16_t flags, uint32_t c, uint32_t slot, uint32_t ticket, uint32_t app, uint32_t latency_us)
{
    clients[c].outcomes[slot] = LEAT_OUTCOME_NONE;
    publish(c, &(struct leat_wire_request){.submit_ns = now_ns,
                                           .latency_us = latency_us,
                                           .items = 1,
                                           .flags = flags,
                                           .slot = (uint16_t)slot,
                                           .target = (uint16_t)app,
                                           .ticket_low = ticket,
                                           .units = {0, 1}});
}

static void
submit(uint32_t c, uint32_t slot, uint32_t ticket, uint32_t app, uint32_t latency_us)
{
    submit_as(0, c, slot, ticket, app, latency_us);
}

static void
cancel(uint32_t c, uint32_t slot, uint32_t ticket)
{
    publish(c, &(struct leat_wire_request){
                   .slot = (uint16_t)slot, .ticket_low = ticket, .flags = LEAT_WIRE_CANCEL, .target = UINT16_MAX});
}

static uint32_t
ticket_of(uint32_t c, uint32_t slot)
{
    return 1000 * c + slot;
}

/* Every slot of every session asks; the first query of all goes to the worker, which keeps it, and the others wait. */
static void
fill(uint32_t app, uint32_t (*latency_us)(uint32_t c, uint32_t slot))
{
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        for (uint32_t c = 0; c < SESSIONS; c++) {
            submit(c, slot, ticket_of(c, slot), app, latency_us != NULL ? latency_us(c, slot) : 0);
        }
        if (slot % TAKEN == TAKEN - 1) {
            EXPECT(step() == 0);
        }
    }
    EXPECT(waiting(app) == ALL - 1 && apps[app].running == 1);
}

/* The list holds what has no answer, oldest first: sessions are polled in turn, TAKEN slots of each at a time. */
static void
expect_in_order(uint32_t app)
{
    const struct leat_waiting *list = &apps[app].waiting[LEAT_RANK_ONLINE];
    uint32_t at = list->head;

    for (uint32_t n = 0; n < ALL; n++) {
        const uint32_t turn = n / (TAKEN * SESSIONS), c = n / TAKEN % SESSIONS, slot = turn * TAKEN + n % TAKEN;
        if (n == 0 || clients[c].daemon == NULL || clients[c].outcomes[slot] != LEAT_OUTCOME_NONE) {
            continue;
        }
        EXPECT(at < list->tail && list->entries[at].session == c && list->entries[at].slot == slot);
        EXPECT(list->entries[at].ticket_low == ticket_of(c, slot));
        at++;
    }
    EXPECT(at == list->tail);
}

/* ---- Cases ------------------------------------------------------------------------------------ */

static void
test_cancels_of_nothing_cost_nothing(void)
{
    start();
    submit(1, 7, 5, PLAIN, 0); /* ends before the flood */
    (void)step();
    EXPECT(leat_worker_step(worker) && step() == 0);
    fill(PLAIN, NULL);
    for (uint32_t n = 0; n < 50; n++) {
        for (uint32_t i = 0; i < TAKEN / 4; i++) {
            cancel(1, 7, 5);                 /* has ended */
            cancel(1, 3, ticket_of(2, 3));   /* is another session's */
            cancel(1, 4, ticket_of(1, 5));   /* waits in another slot */
            cancel(0, 0, ticket_of(0, 0));   /* runs */
        }
        EXPECT(step() == 0);
    }
    EXPECT(waiting(PLAIN) == ALL - 1);
    expect_in_order(PLAIN);
    stop();
}

static void
test_cancels_share_one_pass(void)
{
    uint32_t left = ALL - 1;

    start();
    fill(PLAIN, NULL);
    for (uint32_t n = 0; n < 8; n++) {
        const uint32_t before = left;
        bool named[SESSIONS][SLOTS] = {{false}};
        for (uint32_t c = 0; c < SESSIONS; c++) {
            for (uint32_t i = 0; i < TAKEN; i++) { /* some twice, some that ended in an earlier round */
                const uint32_t slot = (uint32_t)(leat_test_random(&random_state) % SLOTS);
                cancel(c, slot, ticket_of(c, slot));
                if (clients[c].outcomes[slot] == LEAT_OUTCOME_NONE && !named[c][slot] && c + slot > 0) {
                    named[c][slot] = true;
                    left--;
                }
            }
        }
        EXPECT(step() == before);
        EXPECT(waiting(PLAIN) == left); /* answered in the round that took the cancel */
        for (uint32_t c = 0; c < SESSIONS; c++) {
            for (uint32_t slot = 0; slot < SLOTS; slot++) {
                EXPECT(!named[c][slot] || (clients[c].outcomes[slot] == LEAT_OUTCOME_CANCELLED &&
                                           clients[c].tickets[slot] == ticket_of(c, slot)));
            }
        }
        expect_in_order(PLAIN);
        EXPECT(step() == 0);
    }
    EXPECT(atomic_load(&apps[PLAIN].counters.cancelled) == ALL - 1 - left);
    stop();
}

static uint32_t
odd_slots_first(uint32_t c, uint32_t slot)
{
    (void)c;
    return slot % 2 == 1 ? 1000 : MINUTE_US;
}

static void
test_expiry_is_one_pass(void)
{
    start();
    fill(TIGHT, odd_slots_first);
    now_ns += 2000000;
    EXPECT(step() == ALL - 1);
    EXPECT(waiting(TIGHT) == ALL / 2 - 1);
    expect_in_order(TIGHT);
    EXPECT(clients[3].outcomes[1] == LEAT_OUTCOME_EXPIRED && clients[3].outcomes[2] == LEAT_OUTCOME_NONE);
    EXPECT(step() == 0);
    stop();
}

static void
test_closing_is_one_pass(void)
{
    start();
    fill(PLAIN, NULL);
    command(LEAT_COMMAND_CLOSE_SESSION, 3);
    EXPECT(step() == 0); /* commands come last in a round */
    EXPECT(step() == ALL - 1 && waiting(PLAIN) == ALL - 1 - SLOTS);
    EXPECT(clients[3].daemon == NULL && step() == 0);
    expect_in_order(PLAIN);
    stop();
}

/* Cancels, deadlines and a closed session, all in one round. */
static void
test_all_share_one_pass(void)
{
    start();
    fill(TIGHT, odd_slots_first);
    command(LEAT_COMMAND_CLOSE_SESSION, 3);
    (void)step();
    now_ns += 2000000;
    for (uint32_t c = 0; c < SESSIONS; c++) {
        if (c != 3) {
            cancel(c, 1, ticket_of(c, 1)); /* is late too: the client's word comes first */
            cancel(c, 2, ticket_of(c, 2));
        }
    }
    EXPECT(step() == ALL - 1);
    EXPECT(clients[3].daemon == NULL && clients[4].outcomes[1] == LEAT_OUTCOME_CANCELLED);
    EXPECT(clients[4].outcomes[2] == LEAT_OUTCOME_CANCELLED && clients[4].outcomes[3] == LEAT_OUTCOME_EXPIRED);
    EXPECT(waiting(TIGHT) == (SESSIONS - 1) * (SLOTS / 2 - 1) - 1);
    expect_in_order(TIGHT);
    EXPECT(step() == 0);
    stop();
}

/* A cancel that is taken in the same round as its query finds it before it waits in any list. */
static void
test_cancel_right_behind_its_query(void)
{
    start();
    submit(0, 0, 1, PLAIN, 0); /* for the worker */
    submit(0, 1, 2, PLAIN, 0); /* waits */
    (void)step();
    submit(1, 1, 3, PLAIN, 0);
    cancel(1, 1, 3);
    submit(1, 2, 4, PLAIN, 0);
    (void)step();
    EXPECT(clients[1].outcomes[1] == LEAT_OUTCOME_CANCELLED && clients[1].tickets[1] == 3);
    EXPECT(waiting(PLAIN) == 2 && clients[1].answered == 1);
    stop();
}

/*
 * Several queries in one slot: no conforming client does that. The slot knows the last one; one cancel ends one query,
 * and each has its one answer.
 */
static void
test_slot_used_twice(void)
{
    start();
    submit(0, 0, 1, PLAIN, 0); /* for the worker */
    submit(0, 1, 2, PLAIN, 0);
    submit(0, 1, 3, PLAIN, 0);
    submit(0, 1, 4, TIGHT, MINUTE_US);
    cancel(0, 1, 3); /* the slot has forgotten it */
    (void)step();
    EXPECT(waiting(PLAIN) == 2 && waiting(TIGHT) == 1 && clients[0].answered == 0);
    cancel(0, 1, 4);
    (void)step();
    EXPECT(waiting(PLAIN) == 2 && waiting(TIGHT) == 0 && clients[0].answered == 1 && clients[0].tickets[1] == 4);
    submit(0, 1, 5, PLAIN, 0);
    (void)step();
    EXPECT(leat_worker_step(worker)); /* the older ones leave the slot's list before it, and leave the slot alone */
    (void)step();
    EXPECT(waiting(PLAIN) == 2);
    cancel(0, 1, 5);
    EXPECT(step() == 2 && waiting(PLAIN) == 1 && clients[0].answered == 2 && clients[0].tickets[1] == 5);
    submit(0, 2, 6, PLAIN, 0); /* and one ticket twice */
    submit(0, 2, 6, PLAIN, 0);
    (void)step();
    cancel(0, 2, 6);
    cancel(0, 2, 6);
    (void)step();
    EXPECT(waiting(PLAIN) == 2 && clients[0].answered == 3);
    stop();
}

/* What happens behind the next look for reports, which sees none. */
static void (*behind_a_look)(void);
bool __wrap_leat_worker_poll_done(struct leat_worker *asked, struct leat_done_cell *ret_done);
bool __real_leat_worker_poll_done(struct leat_worker *asked, struct leat_done_cell *ret_done);

bool
__wrap_leat_worker_poll_done(struct leat_worker *asked, struct leat_done_cell *ret_done)
{
    void (*happens)(void) = behind_a_look;

    if (happens == NULL) {
        return __real_leat_worker_poll_done(asked, ret_done);
    }
    behind_a_look = NULL;
    happens();
    return false;
}

static void
nothing_happens(void)
{
}

/* The client of few slots has all answers, and asks again in each. */
static void
answer_and_ask(void)
{
    for (uint32_t slot = 0; slot < FEW_SLOTS; slot++) {
        EXPECT(leat_worker_step(worker));
    }
    EXPECT(!leat_worker_step(worker));
    for (uint32_t slot = 0; slot < FEW_SLOTS; slot++) {
        submit(0, slot, slot, PLAIN, 0);
    }
}

/* Workers answer, and slots are used again, between the round's look for reports and its look at sessions, twice. */
static void
test_answers_before_reports(void)
{
    start_of(LEAT_WORKER_BATCHES, FEW_SLOTS);
    for (uint32_t slot = 0; slot < FEW_SLOTS; slot++) {
        submit(0, slot, slot, PLAIN, 0);
    }
    (void)step();
    answer_and_ask();
    behind_a_look = nothing_happens; /* the reports are seen late */
    (void)step();
    EXPECT(apps[PLAIN].running == 2 * FEW_SLOTS);
    behind_a_look = answer_and_ask;
    (void)step();
    EXPECT(clients[0].answered == 0 && apps[PLAIN].running == FEW_SLOTS); /* none was refused */
    submit(0, 0, 0, PLAIN, 0); /* beyond its slots, as no honest client does: so many, and no more, are let in */
    for (uint32_t more = 1; more <= FEW_SLOTS; more++) {
        submit(0, 0, more, PLAIN, 0);
    }
    (void)step();
    EXPECT(clients[0].answered == 1 && clients[0].outcomes[0] == LEAT_OUTCOME_REJECTED && clients[0].tickets[0] == FEW_SLOTS);
    stop();
}

/* A client may use what it was told of, though the command that adds it has not been obeyed yet. */
static void
test_application_still_being_added(void)
{
    start();
    command(LEAT_COMMAND_CLOSE_SESSION, 7); /* is obeyed first: one a round */
    command(LEAT_COMMAND_ADD_APPLICATION, LATE);
    submit(0, 3, 30, LATE, 0);
    submit(0, 4, 40, PLAIN, 0); /* waits behind it */
    for (int round = 0; round < 3; round++) {
        (void)step();
        EXPECT(clients[0].outcomes[3] == LEAT_OUTCOME_NONE && clients[0].outcomes[4] == LEAT_OUTCOME_NONE);
    }
    EXPECT(waiting(LATE) + apps[LATE].running == 1 && waiting(PLAIN) + apps[PLAIN].running == 1);
    stop();
}

/* A query of TIGHT in slot 0 of the first session, taken; true when it was not refused. */
static bool
offer(uint32_t ticket, uint32_t latency_us)
{
    submit(0, 0, ticket, TIGHT, latency_us);
    (void)step();
    EXPECT(clients[0].outcomes[0] == LEAT_OUTCOME_NONE || clients[0].outcomes[0] == LEAT_OUTCOME_REJECTED);
    return clients[0].outcomes[0] == LEAT_OUTCOME_NONE;
}

/* A profile that says a thousand times too much refuses what would be in time, but not for ever. */
static void
test_too_long_a_profile_is_corrected(void)
{
    uint32_t ticket = 0, refused = 0, probes = 0, running = 0;

    start();
    leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
    leat_profile_set(&profiles[0][0], 1, 10000000000);
    run_ns = 1000000;
    while (running < 100) {
        if (!offer(++ticket, 20000)) {
            refused++;
            running = 0;
            EXPECT(ticket < 2000);
            now_ns += 1000000;
            continue;
        }
        probes += running == 0;
        running++;
        EXPECT(leat_worker_step(worker) && !leat_worker_step(worker));
        (void)step();
    }
    EXPECT(refused >= 16 * (probes - 1) && probes < 60);
    EXPECT(leat_profile_predict(&profiles[0][0], 1) < 20000000);
    run_ns = 0;
    stop();
}

/* Where the profile is right, what cannot be in time costs one query in 17, one at once, and 1/16 of a worker. */
static void
test_probes_are_few(void)
{
    uint32_t ticket = 0;

    start();
    leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
    leat_profile_set(&profiles[0][0], 1, 50000000);
    run_ns = 50000000;
    for (uint32_t i = 0; i < 16; i++) {
        EXPECT(!offer(++ticket, 1000));
    }
    EXPECT(offer(++ticket, 1000));
    for (uint32_t i = 0; i < 100; i++) {
        EXPECT(!offer(++ticket, 1000)); /* it is still on its way */
    }
    EXPECT(leat_worker_step(worker));
    (void)step();
    const uint64_t reported_ns = now_ns;
    while (!offer(++ticket, 1000)) {
        now_ns += 1000000;
        EXPECT(now_ns < reported_ns + 17 * run_ns);
    }
    EXPECT(now_ns >= reported_ns + 16 * run_ns);
    EXPECT(leat_worker_step(worker));
    (void)step();
    now_ns += 16 * run_ns;
    submit(0, 1, 1, PLAIN, 0); /* with the worker busy none is let through, and what waits for it blames no profile */
    (void)step();
    for (uint32_t i = 0; i < 100; i++) {
        EXPECT(!offer(++ticket, 1000));
    }
    EXPECT(leat_worker_step(worker));
    (void)step();
    EXPECT(offer(++ticket, 1000) && waiting(TIGHT) == 0 && apps[TIGHT].running == 1); /* it has the worker at once */
    EXPECT(leat_worker_step(worker) && !leat_worker_step(worker));
    (void)step();
    run_ns = 0;
    stop();
}

static void
test_a_policy_is_for_one_generation(void)
{
    static struct leat_policy old_policy, new_policy;
    static char old_state, new_state;
    const struct {
        uint16_t application;
        uint64_t generation;
        bool done;
    } cases[] = {{PLAIN, 6, false}, {LATE, 0, false}, {TIGHT, 7, false}, {PLAIN, 7, true}};

    start();
    apps[PLAIN].generation = 7;
    apps[PLAIN].selector_state = &old_state;
    apps[PLAIN].policy = &old_policy;
    for (size_t i = 0; i < LEAT_COUNT_OF(cases); i++) {
        const bool done = cases[i].done;
        struct leat_policy_change change = {.application = cases[i].application,
                                            .generation = cases[i].generation,
                                            .state = &new_state,
                                            .policy = &new_policy};
        policy_change = NULL;
        leat_dispatcher_command(dispatcher,
                                &(struct leat_command){.kind = LEAT_COMMAND_SET_POLICY, .policy = &change});
        (void)step();
        EXPECT(policy_change == &change && change.done == done);
        EXPECT(change.state == (done ? &old_state : &new_state) && change.policy == (done ? &old_policy : &new_policy));
        EXPECT(apps[PLAIN].selector_state == (done ? &new_state : &old_state));
        EXPECT(apps[PLAIN].policy == (done ? &new_policy : &old_policy));
        EXPECT(apps[TIGHT].policy == NULL);
    }
    stop();
}

/* ---- What selectors are told ------------------------------------------------------------------- */

static void
run_one(void)
{
    EXPECT(leat_worker_step(worker));
    (void)step();
}

static uint32_t told;
static uint32_t told_items;
static uint64_t told_run_ns;

static void
tell(void *state, uint32_t of_variant, uint32_t items, uint64_t took_ns)
{
    EXPECT(state == &told && of_variant == 0);
    told++;
    told_items += items;
    told_run_ns += took_ns;
}

/* Of every batch that ran in whole, but not of offline ones, of what had expired, nor of runs that failed. */
static void
test_selectors_are_told_of_runs(void)
{
    struct leat_selector listener = leat_selector_fixed;

    start();
    listener.ended = tell;
    apps[TIGHT].selector = &listener;
    apps[TIGHT].selector_state = &told;
    told = told_items = 0;
    told_run_ns = 0;
    run_ns = 7000;
    for (uint32_t n = 0; n < 3; n++) {
        submit(0, n, n, TIGHT, MINUTE_US);
        (void)step();
        EXPECT(told == n);
        run_one();
        EXPECT(told == n + 1 && told_items == n + 1 && told_run_ns == 7000 * (n + 1));
    }
    submit(0, 3, 3, PLAIN, 0); /* another application's */
    (void)step();
    run_one();
    submit_as(LEAT_WIRE_OFFLINE, 0, 4, 4, TIGHT, 0);
    (void)step();
    run_one();
    submit(0, 5, 5, TIGHT, 1000); /* expires on its way to the worker */
    (void)step();
    EXPECT(apps[TIGHT].running == 1);
    tables.clock.base_ns += 2000000;
    run_one();
    EXPECT(atomic_load(&apps[TIGHT].counters.expired) == 1);
    run_status = LEAT_ERR_DEVICE;
    submit(0, 6, 6, TIGHT, MINUTE_US);
    (void)step();
    run_one();
    run_status = LEAT_OK;
    EXPECT(atomic_load(&apps[TIGHT].counters.failed) == 1 && told == 3);
    run_ns = 0;
    stop();
}

/* What batches ended later than predicted is kept in reserve, where the selector decides at idle workers, and by a successor too. */
static void
test_reserves_are_handed_on(void)
{
    enum { BATCHES = 20 };
    static struct leat_application successor;
    struct leat_selector patient = leat_selector_fixed;
    const uint64_t late_ns = 10000000, objective_ns = 16 * late_ns; /* of the latter an eighth is more */

    for (uint32_t when_idle = 0; when_idle < 2; when_idle++) {
        start();
        patient.when_idle = when_idle;
        apps[PLAIN].selector = &patient;
        apps[PLAIN].latency_ns = objective_ns;
        for (uint32_t n = 0; n < BATCHES; n++) {
            run_ns = n % 8 == 7 ? late_ns : 1000; /* seldom enough to be none of the usual times */
            submit(0, n, n, PLAIN, MINUTE_US);
            (void)step();
            run_one();
        }
        run_ns = 0;
        const uint64_t reserve_ns = atomic_load(&apps[PLAIN].reserve_ns);
        EXPECT(when_idle ? reserve_ns >= late_ns && reserve_ns <= late_ns + late_ns / 4 : reserve_ns == 0);

        successor = apps[PLAIN];
        successor.reserve = (struct leat_reserve){0};
        atomic_store(&successor.reserve_ns, 0);
        successor.latency_ns = objective_ns / 4; /* of which an eighth is less */
        EXPECT(leat_waiting_init(successor.waiting, successor.waiting_max) == LEAT_OK);
        leat_dispatcher_command(dispatcher, &(struct leat_command){.kind = LEAT_COMMAND_REPLACE_APPLICATION,
                                                                   .application = &successor});
        (void)step();
        EXPECT(application_gone == &apps[PLAIN]);
        EXPECT(atomic_load(&successor.reserve_ns) == (when_idle ? objective_ns / 4 / LEAT_RESERVE_SHARE : 0));
        stop();
        leat_waiting_fini(successor.waiting);
    }
}

/* ---- Who decides when workers are idle --------------------------------------------------------- */

/*
 * A worker that may hold three batches gets one of an application that decides when it is idle. Others' batches do not go
 * behind one that runs while such an application waits: it would never find the worker idle.
 */
static void
test_idle_workers_are_waited_for(void)
{
    struct leat_selector patient = leat_selector_fixed;

    start_deep(3);
    patient.when_idle = true;
    apps[TIGHT].selector = &patient;
    for (uint32_t slot = 0; slot < 4; slot++) {
        submit(0, slot, ticket_of(0, slot), PLAIN, 0);
    }
    (void)step();
    EXPECT(apps[PLAIN].running == 3 && waiting(PLAIN) == 1); /* alone it may */
    for (uint32_t slot = 4; slot < 8; slot++) {
        submit(0, slot, ticket_of(0, slot), TIGHT, MINUTE_US);
    }
    (void)step();
    EXPECT(waiting(TIGHT) == 4 && waiting(PLAIN) == 1);
    for (uint32_t left = 2; left > 0; left--) {
        EXPECT(leat_worker_step(worker));
        (void)step();
        EXPECT(apps[PLAIN].running == left && waiting(PLAIN) == 1 && waiting(TIGHT) == 4);
    }
    uint32_t of_tight = 0;
    for (uint32_t turn = 0; turn < 5; turn++) { /* idle: one batch at a time, of whose turn it is */
        EXPECT(leat_worker_step(worker));
        (void)step();
        EXPECT(apps[PLAIN].running + apps[TIGHT].running == 1);
        of_tight += apps[TIGHT].running;
    }
    EXPECT(of_tight == 4 && waiting(TIGHT) == 0 && waiting(PLAIN) == 0);
    EXPECT(leat_worker_step(worker));
    (void)step();
    stop();
}

/* ---- Offline ----------------------------------------------------------------------------------- */

static uint32_t
waiting_offline(uint32_t app)
{
    return leat_waiting_count(&apps[app].waiting[LEAT_RANK_OFFLINE]);
}

/* The worker ends a batch, and what follows from it. */
/* What is offline waits until all that is online has left, of its application and of another; it is first in, first out. */
static void
test_online_goes_first(void)
{
    const struct leat_waiting *offline = &apps[PLAIN].waiting[LEAT_RANK_OFFLINE];

    start_deep(3);
    for (uint32_t slot = 0; slot < 3; slot++) {
        submit_as(LEAT_WIRE_OFFLINE, 0, slot, ticket_of(0, slot), PLAIN, 0);
    }
    (void)step();
    EXPECT(apps[PLAIN].running == 1 && waiting_offline(PLAIN) == 2); /* one at a time, though the worker may hold three */
    for (uint32_t slot = 3; slot < 7; slot++) {
        submit(0, slot, ticket_of(0, slot), slot % 2 == 0 ? TIGHT : PLAIN, MINUTE_US);
    }
    (void)step();
    EXPECT(apps[PLAIN].running + apps[TIGHT].running == 3 && waiting(PLAIN) + waiting(TIGHT) == 2 + 2);
    for (uint32_t left = 2; left > 0; left--) {
        run_one();
        EXPECT(waiting_offline(PLAIN) == 2 && waiting(PLAIN) + waiting(TIGHT) == 2 + left - 1);
    }
    for (uint32_t running = 2; running > 0; running--) {
        run_one(); /* nothing online waits, but some runs */
        EXPECT(waiting_offline(PLAIN) == 2 && apps[PLAIN].running + apps[TIGHT].running == running);
    }
    run_one();
    EXPECT(waiting_offline(PLAIN) == 1 && offline->entries[offline->head].slot == 2);
    for (uint32_t slot = 7; slot < 9; slot++) {
        submit(0, slot, ticket_of(0, slot), TIGHT, MINUTE_US);
    }
    (void)step();
    EXPECT(apps[TIGHT].running == 2 && waiting(TIGHT) == 0);
    run_one();
    run_one();
    EXPECT(waiting_offline(PLAIN) == 1);
    run_one();
    EXPECT(waiting(PLAIN) == 0 && apps[PLAIN].running == 1 && apps[TIGHT].running == 0);
    run_one();
    stop();
}

static struct leat_selection
hold_all(void *state, const struct leat_select_input *input)
{
    (void)state;
    (void)input;
    return (struct leat_selection){.hold = true};
}

/* An idle worker that an online query may yet take is not given away. */
static void
test_what_is_held_goes_first(void)
{
    struct leat_selector holder = leat_selector_fixed;

    start();
    holder.select = hold_all;
    apps[TIGHT].selector = &holder;
    submit(0, 0, 1, TIGHT, MINUTE_US);
    submit_as(LEAT_WIRE_OFFLINE, 0, 1, 2, PLAIN, 0);
    (void)step();
    EXPECT(waiting(TIGHT) == 1 && waiting_offline(PLAIN) == 1 && apps[PLAIN].running == 0);
    cancel(0, 0, 1);
    (void)step();
    EXPECT(waiting(TIGHT) == 0 && waiting_offline(PLAIN) == 0 && apps[PLAIN].running == 1);
    run_one();
    stop();
}

/* Offline queries that wait do not keep others from a worker that runs something but has room. */
static void
test_offline_wants_no_worker(void)
{
    struct leat_selector patient = leat_selector_fixed;

    start_deep(3);
    patient.when_idle = true;
    apps[TIGHT].selector = &patient;
    apps[PLAIN].router = &leat_router_shortest_queue; /* which does not ask for idle ones */
    submit_as(LEAT_WIRE_OFFLINE, 0, 0, 1, TIGHT, 0);
    submit_as(LEAT_WIRE_OFFLINE, 0, 1, 2, TIGHT, 0);
    (void)step();
    EXPECT(apps[TIGHT].running == 1 && waiting_offline(TIGHT) == 1);
    submit(0, 2, 3, PLAIN, 0);
    submit(0, 3, 4, PLAIN, 0);
    (void)step();
    EXPECT(apps[PLAIN].running == 2 && waiting(PLAIN) == 0);
    run_one();
    run_one();
    EXPECT(waiting_offline(TIGHT) == 1);
    run_one();
    EXPECT(waiting_offline(TIGHT) == 0 && apps[TIGHT].running == 1);
    run_one();
    stop();
}

/* The rate is that of online queries; they are admitted as though no other waited, and others as though all did. */
static void
test_offline_is_no_load(void)
{
    start();
    leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
    leat_profile_set(&profiles[0][0], 1, 50000000);
    for (uint32_t slot = 0; slot < 20; slot++) {
        submit_as(LEAT_WIRE_OFFLINE, 0, slot, ticket_of(0, slot), TIGHT, 0);
    }
    (void)step();
    EXPECT(apps[TIGHT].running == 1 && waiting_offline(TIGHT) == 19);
    EXPECT(leat_load_rate_qps(&apps[TIGHT].load, now_ns) == 0);
    submit(1, 0, 1, TIGHT, 120000);                       /* behind the one that runs */
    submit_as(LEAT_WIRE_OFFLINE, 1, 1, 2, TIGHT, 120000); /* behind all: it cannot be in time */
    submit(1, 2, 3, TIGHT, 120000);                       /* nor this, behind the first */
    submit_as(LEAT_WIRE_OFFLINE, 1, 3, 4, TIGHT, 1080000); /* behind 19, and by one too late for the online one */
    submit_as(LEAT_WIRE_OFFLINE, 1, 4, 5, TIGHT, 1200000);
    (void)step();
    EXPECT(clients[1].outcomes[0] == LEAT_OUTCOME_NONE && clients[1].outcomes[1] == LEAT_OUTCOME_REJECTED);
    EXPECT(clients[1].outcomes[2] == LEAT_OUTCOME_REJECTED && clients[1].outcomes[3] == LEAT_OUTCOME_REJECTED);
    EXPECT(clients[1].outcomes[4] == LEAT_OUTCOME_NONE && waiting(TIGHT) == 21);
    now_ns += 1200000000;
    (void)step(); /* both that have an objective are late; the others have none */
    EXPECT(clients[1].outcomes[0] == LEAT_OUTCOME_EXPIRED && clients[1].outcomes[4] == LEAT_OUTCOME_EXPIRED);
    EXPECT(waiting(TIGHT) == 19);
    for (uint32_t i = 0; i < 20; i++) {
        run_one();
    }
    leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
    stop();
}

/* Nor are queries that nothing could serve, or only what time is left. */
static void
test_what_cannot_be_served_is_no_load(void)
{
    start();
    leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
    leat_profile_set(&profiles[0][0], 1, 50000000);
    submit(0, 0, 1, PLAIN, 1000);
    publish(0, &(struct leat_wire_request){.submit_ns = now_ns,
                                           .accuracy_floor_ppm = 500000,
                                           .items = 1,
                                           .slot = 1,
                                           .target = PLAIN,
                                           .ticket_low = 2,
                                           .units = {0, 1}});
    (void)step();
    EXPECT(apps[PLAIN].running == 1 && clients[0].outcomes[1] == LEAT_OUTCOME_REJECTED);
    EXPECT(leat_load_rate_qps(&apps[PLAIN].load, now_ns) == 0);
    submit(0, 2, 3, PLAIN, 0);
    (void)step();
    EXPECT(leat_load_rate_qps(&apps[PLAIN].load, now_ns) > 0);
    run_one();
    run_one();
    leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
    stop();
}

static struct leat_profile_copy
copy_profiles(uint16_t app, uint64_t jump_items)
{
    struct leat_profile_copy copied = {.application = app, .jump_items = jump_items};
    leat_dispatcher_command(dispatcher, &(struct leat_command){.kind = LEAT_COMMAND_COPY_PROFILES, .profiles = &copied});
    (void)step();
    EXPECT(copied.found);
    return copied;
}

/* But those that find no room, or no time, are; and whoever asked hears of a jump, once. */
static void
test_what_finds_no_room_is_load(void)
{
    struct leat_profile_copy copied;

    start();
    leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
    leat_profile_set(&profiles[0][0], 1, 50000000);
    apps[PLAIN].waiting_max = 2;
    jumps = 0;
    (void)copy_profiles(PLAIN, ALL); /* more than can wait */
    submit(0, 0, ticket_of(0, 0), PLAIN, 0);
    (void)step();
    for (uint32_t slot = 1; slot < 3; slot++) {
        submit(0, slot, ticket_of(0, slot), PLAIN, 0);
    }
    for (uint32_t slot = 3; slot < 6; slot++) {
        submit_as(LEAT_WIRE_OFFLINE, 0, slot, ticket_of(0, slot), PLAIN, 0);
    }
    (void)step();
    EXPECT(apps[PLAIN].running == 1 && waiting(PLAIN) == 4 && clients[0].outcomes[5] == LEAT_OUTCOME_REJECTED);
    publish(0, &(struct leat_wire_request){.submit_ns = now_ns, /* whom nothing suits */
                                           .accuracy_floor_ppm = 500000,
                                           .items = 1,
                                           .slot = 6,
                                           .target = PLAIN,
                                           .ticket_low = 2,
                                           .units = {0, 1}});
    submit(0, 7, ticket_of(0, 7), PLAIN, 1000); /* late, for whom there is room */
    (void)step();
    EXPECT(clients[0].outcomes[6] == LEAT_OUTCOME_REJECTED && waiting(PLAIN) == 5);
    EXPECT(apps[PLAIN].load.queries == 3 && jumps == 0);
    for (uint32_t slot = 8; slot < 10; slot++) {
        submit(0, slot, ticket_of(0, slot), PLAIN, 0);
    }
    (void)step();
    EXPECT(clients[0].outcomes[8] == LEAT_OUTCOME_REJECTED && clients[0].outcomes[9] == LEAT_OUTCOME_REJECTED);
    EXPECT(jumps == 1);
    copied = copy_profiles(PLAIN, ALL);
    EXPECT(copied.queries == 5 && copied.items == 5 && copied.admitted_items == 3);
    for (uint32_t i = 0; i < 6; i++) {
        run_one();
    }
    (void)copy_profiles(TIGHT, ALL);
    submit(0, 0, ticket_of(0, 0), TIGHT, 1000);
    (void)step();
    EXPECT(clients[0].outcomes[0] == LEAT_OUTCOME_REJECTED && jumps == 2);
    copied = copy_profiles(TIGHT, 0);
    EXPECT(copied.queries == 1 && copied.items == 1 && copied.admitted_items == 0);
    leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
    stop();
}

/* However many wait offline, as many may wait online. */
static void
test_offline_takes_no_place(void)
{
    start();
    apps[PLAIN].waiting_max = 2;
    submit(0, 0, ticket_of(0, 0), PLAIN, 0);
    (void)step();
    for (uint32_t slot = 1; slot < 5; slot++) {
        submit_as(LEAT_WIRE_OFFLINE, 0, slot, ticket_of(0, slot), PLAIN, 0);
    }
    (void)step();
    EXPECT(clients[0].outcomes[3] == LEAT_OUTCOME_REJECTED && clients[0].outcomes[4] == LEAT_OUTCOME_REJECTED);
    EXPECT(apps[PLAIN].running == 1 && waiting_offline(PLAIN) == 2);
    for (uint32_t slot = 0; slot < 3; slot++) {
        submit(1, slot, ticket_of(1, slot), PLAIN, 0);
    }
    (void)step();
    EXPECT(waiting(PLAIN) == 2 + 2 && clients[1].outcomes[2] == LEAT_OUTCOME_REJECTED);
    cancel(0, 1, ticket_of(0, 1)); /* offline queries are found, too */
    (void)step();
    EXPECT(clients[0].outcomes[1] == LEAT_OUTCOME_CANCELLED && waiting_offline(PLAIN) == 1);
    stop();
}

/* The application's objective is not theirs, and their wait is no sign that an instance is asked for too much. */
static void
test_offline_has_time(void)
{
    start();
    apps[TIGHT].latency_ns = 1000000;
    EXPECT(leat_instances_init(&apps[TIGHT].instances, 1, 1) == LEAT_OK);
    leat_profile_set(&apps[TIGHT].instances.measured[0][0], 1, 1000000);
    submit(0, 0, 1, PLAIN, 0);
    submit_as(LEAT_WIRE_OFFLINE, 0, 1, 2, TIGHT, 0);
    (void)step();
    now_ns += 10000000;
    (void)step();
    EXPECT(waiting_offline(TIGHT) == 1);
    run_one();
    EXPECT(apps[TIGHT].running == 1);
    run_one();
    EXPECT(leat_instances_of(&apps[TIGHT].instances, 0)->batches == 1);
    EXPECT(leat_instances_of(&apps[TIGHT].instances, 0)->response_ns < 1000);
    stop();
    leat_instances_fini(&apps[TIGHT].instances);
}

/* ---- Doubt ------------------------------------------------------------------------------------- */

/* A profile that was taught too much, and that nothing runs to correct, gives way to what was measured; too little it keeps. */
static void
test_slow_profiles_are_doubted(void)
{
    static const uint64_t taught_ns[] = {1200000, 1080000, 400000};
    for (uint32_t i = 0; i < LEAT_COUNT_OF(taught_ns); i++) {
        start();
        EXPECT(leat_instances_init(&apps[TIGHT].instances, 1, 1) == LEAT_OK);
        leat_profile_set(&apps[TIGHT].instances.measured[0][0], 1, 1000000);
        leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
        leat_profile_set(&profiles[0][0], 1, taught_ns[i]);
        const uint64_t before_ns = leat_profile_mean(&profiles[0][0], 1);
        for (uint32_t interval = 0; interval < 3 * LEAT_INSTANCES_QUIET; interval++) {
            if (interval < 2 * LEAT_INSTANCES_QUIET && interval % (LEAT_INSTANCES_QUIET - 1) == 0) { /* not quiet for long enough */
                leat_profile_learn(&profiles[0][0], 1, taught_ns[i]);
            }
            now_ns += LEAT_INSTANCE_INTERVAL_NS;
            (void)step();
            const bool kept = taught_ns[i] < 1100000 || interval < 2 * LEAT_INSTANCES_QUIET;
            EXPECT(!kept || leat_profile_mean(&profiles[0][0], 1) == before_ns);
        }
        EXPECT(leat_profile_mean(&profiles[0][0], 1) == (taught_ns[i] > 1100000 ? 1000000 : before_ns));
        leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
        stop();
        leat_instances_fini(&apps[TIGHT].instances);
    }
}

/* ---- Late -------------------------------------------------------------------------------------- */

static uint32_t
waiting_late(uint32_t app)
{
    return leat_waiting_count(&apps[app].waiting[LEAT_RANK_LATE]);
}

/* Slot of the query of a rank that is next. */
static uint32_t
next_of(uint32_t app, enum leat_rank rank)
{
    const struct leat_waiting *list = &apps[app].waiting[rank];
    EXPECT(leat_waiting_count(list) > 0);
    return list->entries[list->head].slot;
}

/*
 * Where late ones are served, a query that cannot be in time any more waits, in the order of arrival, until nobody does who
 * can, in no application; and goes before offline ones. It takes 50 ms.
 */
static void
test_late_is_served_last(void)
{
    start();
    leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
    leat_profile_set(&profiles[0][0], 1, 50000000);
    submit(0, 0, 1, PLAIN, 0);
    submit_as(LEAT_WIRE_OFFLINE, 0, 1, 2, PLAIN, 1000);
    submit(0, 2, 3, PLAIN, 60000);
    submit(0, 3, 4, PLAIN, 70000);
    submit(0, 4, 5, PLAIN, 40000); /* never could be */
    submit(0, 5, 6, PLAIN, MINUTE_US);
    (void)step();
    EXPECT(waiting_late(PLAIN) == 1 && next_of(PLAIN, LEAT_RANK_LATE) == 4 && waiting(PLAIN) == 5);
    now_ns += 9000000;
    EXPECT(step() == 0 && waiting_late(PLAIN) == 1);
    now_ns += 1000000; /* 50 ms before, and a little more */
    EXPECT(step() == 3 && waiting_late(PLAIN) == 2); /* those in time are looked at, and nothing else */
    now_ns += 20000000;
    EXPECT(step() == 2 && waiting_late(PLAIN) == 3 && waiting(PLAIN) == 5);
    submit(0, 6, 7, TIGHT, MINUTE_US);
    cancel(0, 3, 4);
    (void)step();
    EXPECT(waiting_late(PLAIN) == 2 && clients[0].outcomes[3] == LEAT_OUTCOME_CANCELLED);
    static const uint32_t late_left[] = {2, 2, 1, 0, 0};
    for (uint32_t i = 0; i < LEAT_COUNT_OF(late_left); i++) {
        run_one();
        EXPECT(waiting_late(PLAIN) == late_left[i] && waiting_offline(PLAIN) == (i < 4));
        EXPECT(i != 2 || next_of(PLAIN, LEAT_RANK_LATE) == 2);
    }
    run_one();
    EXPECT(atomic_load(&apps[PLAIN].counters.ok) == 5 && atomic_load(&apps[PLAIN].counters.expired) == 0);
    leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
    stop();
}

static uint32_t asked;

static struct leat_selection
select_first(void *state, const struct leat_select_input *input)
{
    (void)state;
    asked += input->pending_count > 0;
    return (struct leat_selection){.queries = 1};
}

/* A selector that weighs accuracy against time is not asked about what is late; any other is. */
static void
test_late_is_not_weighed(void)
{
    for (int weighs = 0; weighs < 2; weighs++) {
        const struct leat_selector selector = {.name = "first", .when_idle = weighs != 0, .select = select_first};
        start();
        leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
        leat_profile_set(&profiles[0][0], 1, 50000000);
        apps[PLAIN].selector = &selector;
        submit(0, 0, 1, PLAIN, 1000); /* cannot be in time */
        submit(0, 1, 2, PLAIN, MINUTE_US);
        (void)step();
        asked = 0;
        run_one();
        EXPECT(asked == 1 - (uint32_t)weighs && waiting_late(PLAIN) == 0 && waiting(PLAIN) == 0);
        run_one();
        EXPECT(atomic_load(&apps[PLAIN].counters.ok) == 2);
        leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
        stop();
    }
}

/* However many are late, as many may wait in time. Who becomes late and finds no room has expired. */
static void
test_late_has_bounds(void)
{
    start();
    leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
    leat_profile_set(&profiles[0][0], 1, 50000000);
    apps[PLAIN].waiting_max = 2;
    submit(0, 0, 1, PLAIN, 0);
    (void)step();
    for (uint32_t slot = 1; slot < 4; slot++) {
        submit(0, slot, 1 + slot, PLAIN, 1000);
    }
    (void)step();
    EXPECT(waiting_late(PLAIN) == 2 && clients[0].outcomes[3] == LEAT_OUTCOME_EXPIRED);
    submit(0, 4, 5, PLAIN, 60000);
    submit(0, 5, 6, PLAIN, MINUTE_US);
    (void)step();
    EXPECT(waiting(PLAIN) == 4);
    now_ns += 20000000;
    (void)step();
    EXPECT(waiting_late(PLAIN) == 2 && clients[0].outcomes[4] == LEAT_OUTCOME_EXPIRED && waiting(PLAIN) == 3);
    for (uint32_t i = 0; i < 4; i++) {
        run_one();
    }
    leat_profile_init(&profiles[0][0], LEAT_PROFILE_DEFAULT, NULL);
    stop();
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    test_cancels_of_nothing_cost_nothing();
    test_cancels_share_one_pass();
    test_expiry_is_one_pass();
    test_closing_is_one_pass();
    test_all_share_one_pass();
    test_cancel_right_behind_its_query();
    test_slot_used_twice();
    test_answers_before_reports();
    test_application_still_being_added();
    test_too_long_a_profile_is_corrected();
    test_probes_are_few();
    test_a_policy_is_for_one_generation();
    test_idle_workers_are_waited_for();
    test_selectors_are_told_of_runs();
    test_reserves_are_handed_on();
    test_online_goes_first();
    test_what_is_held_goes_first();
    test_offline_wants_no_worker();
    test_offline_is_no_load();
    test_what_cannot_be_served_is_no_load();
    test_what_finds_no_room_is_load();
    test_offline_takes_no_place();
    test_offline_has_time();
    test_slow_profiles_are_doubted();
    test_late_is_served_last();
    test_late_is_not_weighed();
    test_late_has_bounds();
    return 0;
}
