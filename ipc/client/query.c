/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hot path of the client library: submit, poll, cancel. No allocation, no lock; a system call only to
 * wake a sleeping dispatcher, or now and then to learn whether the daemon still lives.
 */
#include <string.h>
#include <unistd.h>

#include "ipc/client/session.h"
#include "ipc/doorbell.h"

enum {
    EMPTY_POLLS_PER_CHECK = 256,     /* polls without news before the clock is looked at */
    PEER_CHECK_NS = 5 * 1000 * 1000, /* and time between questions to the kernel */
};

/* ---- Tensors ---------------------------------------------------------------------------------- */

enum leat_status
leat_tensor_alloc(struct leat_session *session, uint64_t bytes, void **ret_memory)
{
    if (!session->connected) {
        return LEAT_FAIL(LEAT_ERR_DISCONNECTED, "the session has lost its daemon: leat_reconnect");
    }
    if (bytes == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a tensor of no bytes asked for");
    }
    if (bytes > session->arena_bytes) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "%llu bytes asked for, the arena has %llu: ask for more in leat_options",
                         (unsigned long long)bytes, (unsigned long long)session->arena_bytes);
    }
    const uint32_t units = (uint32_t)((bytes + LEAT_TENSOR_ALIGN - 1) / LEAT_TENSOR_ALIGN);
    const uint32_t unit = leat_tensor_arena_take(session->allocator, units);
    if (unit == LEAT_ARENA_NONE) {
        return LEAT_FAIL(LEAT_ERR_NOMEM,
                         "the arena is exhausted: %llu bytes asked for, %llu of %llu free, longest piece %llu",
                         (unsigned long long)bytes,
                         (unsigned long long)leat_tensor_arena_free_units(session->allocator) * LEAT_TENSOR_ALIGN,
                         (unsigned long long)session->arena_bytes,
                         (unsigned long long)leat_tensor_arena_longest(session->allocator) * LEAT_TENSOR_ALIGN);
    }
    *ret_memory = session->arena + (uint64_t)unit * LEAT_TENSOR_ALIGN;
    return LEAT_OK;
}

/* Offset of `memory` in the arena; false when it does not point into it at a unit boundary. */
static bool
arena_offset(const struct leat_session *session, const void *memory, uint64_t *ret_offset)
{
    const uintptr_t address = (uintptr_t)memory, start = (uintptr_t)session->arena;
    if (start == 0 || address < start || address - start >= session->arena_bytes ||
        (address - start) % LEAT_TENSOR_ALIGN != 0) {
        return false;
    }
    *ret_offset = address - start;
    return true;
}

void
leat_tensor_free(struct leat_session *session, void *memory)
{
    uint64_t offset;
    if (memory == NULL || session->allocator == NULL) {
        return;
    }
    /* Freeing what was not allocated is the caller's bug; going on would corrupt its tensors silently. */
    LEAT_MUST(arena_offset(session, memory, &offset));
    LEAT_MUST(leat_tensor_arena_give(session->allocator, (uint32_t)(offset / LEAT_TENSOR_ALIGN)));
}

/* ---- Submitting ------------------------------------------------------------------------------- */

static enum leat_status
fill_tensors(const struct leat_session *session, const struct leat_client_target *target,
             const struct leat_query *query, uint32_t *units)
{
    for (uint32_t i = 0; i < target->tensor_count; i++) {
        uint64_t offset;
        const uint64_t bytes = target->item_bytes[i] * query->items; /* both bounded when found and below */
        if (LEAT_UNLIKELY(!arena_offset(session, query->tensors[i], &offset))) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "tensor %u is not from this session's leat_tensor_alloc", i);
        }
        if (LEAT_UNLIKELY(bytes > session->arena_bytes - offset)) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "tensor %u needs %llu bytes, only %llu follow it in the arena", i,
                             (unsigned long long)bytes, (unsigned long long)(session->arena_bytes - offset));
        }
        units[i] = (uint32_t)(offset / LEAT_TENSOR_ALIGN);
    }
    return LEAT_OK;
}

/* Everything that can be wrong with a query, before it takes a slot. */
static enum leat_status
check_query(const struct leat_session *session, const struct leat_query *query)
{
    if (LEAT_UNLIKELY(query->size != sizeof(*query))) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "leat_query.size is %u: initialise it with LEAT_QUERY_INIT", query->size);
    }
    if (LEAT_UNLIKELY(query->target >= session->target_count || !session->targets[query->target].known)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "target %u was not found with leat_find in this session", query->target);
    }
    const uint32_t items_max = session->targets[query->target].items_max;
    if (LEAT_UNLIKELY(query->items == 0 || query->items > items_max)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%u items, but a query here has 1 to %u", query->items, items_max);
    }
    const uint32_t length_max = session->targets[query->target].length_max;
    if (LEAT_UNLIKELY(query->length > length_max)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, length_max > 0 ? "a sequence of %u, but here it has 1 to %u positions"
                                                          : "a sequence of %u, but no model here has sequences of a length of their own",
                         query->length, length_max);
    }
    if (LEAT_UNLIKELY(query->latency_ns > UINT64_C(1000) * UINT32_MAX || query->accuracy_floor_ppm > 1000000 ||
                      (query->flags & ~LEAT_QUERY_OFFLINE) != 0)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "latency_ns, accuracy_floor_ppm or flags out of range");
    }
    if (LEAT_UNLIKELY((query->reserved_0 | query->reserved[0]) != 0)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "leat_query's reserved fields are not zero: initialise it with LEAT_QUERY_INIT");
    }
    return LEAT_OK;
}

/* Writes the next cell of the submission ring and publishes it. The cell's old contents are stale or zero. */
static void
publish(struct leat_session *session, const struct leat_wire_request *request)
{
    const uint64_t mask = (uint64_t)session->slots * LEAT_SUBMIT_CELLS_PER_SLOT - 1;
    struct leat_wire_request *cell = &session->submit_cells[session->submit_position & mask];
    const size_t body = offsetof(struct leat_wire_request, submit_ns);

    memcpy((char *)cell + body, (const char *)request + body, sizeof(*cell) - body);
    session->submit_position++;
    atomic_store_explicit(&cell->sequence, session->submit_position, memory_order_release); /* S0 */
}

static void
ring_daemon(struct leat_session *session)
{
    if (LEAT_UNLIKELY(leat_bell_ring(&session->rings->daemon_bell) != LEAT_BELL_AWAKE)) {
        const uint64_t one = 1;
        const ssize_t written = write(session->daemon_fd, &one, sizeof(one)); /* blocks only on our own counter */
        (void)written;
    }
}

/* Accepts one query without ringing. */
static enum leat_status
accept_query(struct leat_session *session, const struct leat_query *query, uint64_t now_ns, uint64_t *ret_ticket)
{
    struct leat_wire_request request;
    enum leat_status status = check_query(session, query);

    if (LEAT_UNLIKELY(status != LEAT_OK)) {
        return status;
    }
    if (LEAT_UNLIKELY(session->free_count == session->stash_count)) { /* what is stashed counts as in flight */
        return LEAT_AGAIN;
    }
    const struct leat_client_target *target = &session->targets[query->target];
    const uint16_t slot = session->free_slots[session->free_count - 1];
    uint32_t *units = request.units;
    memset(request.units, 0, sizeof(request.units));
    if (LEAT_UNLIKELY(target->tensor_count > LEAT_WIRE_UNITS)) {
        units = session->lists[slot].units;
    }
    status = fill_tensors(session, target, query, units);
    if (LEAT_UNLIKELY(status != LEAT_OK)) {
        return status;
    }
    session->free_count--;
    struct leat_client_slot *state = &session->slot_states[slot];
    LEAT_ASSERT(state->ticket == 0);
    *state = (struct leat_client_slot){
        .ticket = session->next_ticket++, .user_data = query->user_data, .submit_ns = now_ns};
    session->in_flight++;

    request.submit_ns = now_ns;
    request.latency_us = (uint32_t)((query->latency_ns + 999) / 1000);
    request.accuracy_floor_ppm = query->accuracy_floor_ppm;
    request.items = query->items & LEAT_WIRE_ITEMS_MASK; /* check_query has seen both */
    request.length = query->length & LEAT_LENGTH_MAX;
    request.slot = slot;
    request.target = (uint16_t)query->target;
    request.flags = (query->flags & LEAT_QUERY_OFFLINE) != 0 ? LEAT_WIRE_OFFLINE : 0;
    request.cost_cap = leat_wire_cost_code(query->cost_cap_nano);
    request.ticket_low = (uint32_t)state->ticket;
    publish(session, &request);
    *ret_ticket = state->ticket;
    return LEAT_OK;
}

enum leat_status
leat_submit(struct leat_session *session, const struct leat_query *query, uint64_t *ret_ticket)
{
    uint64_t ticket;
    if (LEAT_UNLIKELY(!session->connected)) {
        return LEAT_FAIL(LEAT_ERR_DISCONNECTED, "the session has lost its daemon: collect, then leat_reconnect");
    }
    const enum leat_status status = accept_query(session, query, leat_clock_now(&session->clock), &ticket);
    if (LEAT_UNLIKELY(status != LEAT_OK)) {
        return status;
    }
    ring_daemon(session);
    if (ret_ticket != NULL) {
        *ret_ticket = ticket;
    }
    return LEAT_OK;
}

enum leat_status
leat_submit_batch(struct leat_session *session, const struct leat_query *queries, size_t count, size_t *ret_submitted)
{
    enum leat_status status = LEAT_OK;
    size_t submitted = 0;

    if (!session->connected) {
        return LEAT_FAIL(LEAT_ERR_DISCONNECTED, "the session has lost its daemon: collect, then leat_reconnect");
    }
    const uint64_t now_ns = leat_clock_now(&session->clock);
    while (submitted < count && status == LEAT_OK) {
        uint64_t ticket;
        status = accept_query(session, &queries[submitted], now_ns, &ticket);
        submitted += status == LEAT_OK;
    }
    if (submitted > 0) {
        ring_daemon(session);
    }
    *ret_submitted = submitted;
    return status;
}

enum leat_status
leat_cancel(struct leat_session *session, uint64_t ticket)
{
    for (uint32_t i = 0; i < session->stash_count; i++) {
        if (session->stash[(session->stash_head + i) & (session->slots - 1)].ticket == ticket) {
            return LEAT_OK; /* too late, like one whose response has not been read yet */
        }
    }
    for (uint32_t slot = 0; session->in_flight > 0 && slot < session->slots; slot++) {
        struct leat_client_slot *state = &session->slot_states[slot];
        if (ticket == 0 || state->ticket != ticket) {
            continue;
        }
        if (state->cancel_sent || !session->connected) {
            return LEAT_OK; /* it has been asked for; or LOST will end it anyway */
        }
        const struct leat_wire_request request = {
            .slot = (uint16_t)slot, .flags = LEAT_WIRE_CANCEL, .ticket_low = (uint32_t)ticket};
        state->cancel_sent = true;
        publish(session, &request);
        ring_daemon(session);
        return LEAT_OK;
    }
    return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "no query with ticket %llu is in flight", (unsigned long long)ticket);
}

/* ---- Collecting ------------------------------------------------------------------------------- */

static void
release_slot(struct leat_session *session, uint16_t slot)
{
    session->slot_states[slot] = (struct leat_client_slot){0};
    LEAT_ASSERT(session->free_count < session->slots && session->in_flight > 0);
    session->free_slots[session->free_count++] = slot;
    session->in_flight--;
}

/* Turns a response into a completion; false when it answers nothing that is in flight. */
static bool
take_response(struct leat_session *session, const struct leat_wire_response *cell, struct leat_completion *completion)
{
    const uint16_t slot = cell->slot;
    if (LEAT_UNLIKELY(slot >= session->slots)) {
        return false;
    }
    const struct leat_client_slot *state = &session->slot_states[slot];
    if (LEAT_UNLIKELY(state->ticket == 0 || (uint32_t)state->ticket != cell->ticket_low)) {
        return false;
    }
    *completion = (struct leat_completion){
        .user_data = state->user_data,
        .ticket = state->ticket,
        .outcome = cell->outcome,
        .reason = cell->reason,
        .queue_ns = cell->queue_ns,
        .exec_ns = cell->exec_ns,
        .total_ns = cell->total_ns,
        .batch_items = cell->batch_items,
        .variant = cell->variant,
        .worker = cell->worker,
        .accuracy_ppm = cell->accuracy_ppm,
        .cost_nano = cell->cost_nano,
    };
    memcpy(completion->sizes, cell->sizes, sizeof(completion->sizes));
    release_slot(session, slot);
    return true;
}

static size_t
drain_lane(struct leat_session *session, uint32_t lane, struct leat_completion *completions, size_t max)
{
    const struct leat_wire_response *cells = &session->lanes[(size_t)lane * session->slots];
    uint64_t position = session->lane_positions[lane];
    size_t count = 0;

    while (count < max) {
        const struct leat_wire_response *cell = &cells[position & (session->slots - 1)];
        if (atomic_load_explicit(&cell->sequence, memory_order_acquire) != position + 1) { /* C1 */
            break;
        }
        count += take_response(session, cell, &completions[count]);
        position++;
    }
    session->lane_positions[lane] = position;
    return count;
}

static size_t
drain_lanes(struct leat_session *session, struct leat_completion *completions, size_t max)
{
    size_t count = 0;
    for (uint32_t n = 0; n < session->lane_count && count < max; n++) {
        session->lane_next = session->lane_next + 1 < session->lane_count ? session->lane_next + 1 : 0;
        count += drain_lane(session, session->lane_next, completions + count, max - count);
    }
    return count;
}

/* The daemon is gone and what it had finished has been drained: the rest is lost. */
static size_t
drain_lost(struct leat_session *session, struct leat_completion *completions, size_t max)
{
    const uint64_t now_ns = leat_clock_now(&session->clock);
    size_t count = 0;
    for (uint32_t slot = 0; slot < session->slots && count < max && session->in_flight > 0; slot++) {
        const struct leat_client_slot *state = &session->slot_states[slot];
        if (state->ticket != 0) {
            completions[count++] =
                (struct leat_completion){.user_data = state->user_data,
                                         .ticket = state->ticket,
                                         .outcome = LEAT_OUTCOME_LOST,
                                         .variant = UINT16_MAX,
                                         .worker = UINT16_MAX,
                                         .total_ns = now_ns > state->submit_ns ? now_ns - state->submit_ns : 0};
            release_slot(session, (uint16_t)slot);
        }
    }
    return count;
}

static size_t
collect(struct leat_session *session, struct leat_completion *completions, size_t max)
{
    if (session->rings == NULL) {
        return 0;
    }
    size_t count = drain_lanes(session, completions, max);
    if (LEAT_LIKELY(count > 0)) {
        session->empty_polls = 0;
        return count;
    }
    if (session->in_flight > 0 && ++session->empty_polls % EMPTY_POLLS_PER_CHECK == 0 && session->connected) {
        const uint64_t now_ns = leat_clock_now(&session->clock);
        if (session->empty_polls == EMPTY_POLLS_PER_CHECK) {
            session->peer_checked_ns = now_ns; /* the drought begins: answers that keep coming need no question */
        }
        (void)leat_session_check_peer(session, now_ns, PEER_CHECK_NS);
    }
    if (LEAT_UNLIKELY(!session->connected) && max > 0) {
        count = drain_lanes(session, completions, max); /* what it finished between our look and its death */
        if (count == 0) {
            count = drain_lost(session, completions, max);
        }
    }
    return count;
}

static size_t
pop_stash(struct leat_session *session, struct leat_completion *completions, size_t max)
{
    size_t count = 0;
    while (count < max && session->stash_count > 0) {
        completions[count++] = session->stash[session->stash_head];
        session->stash_head = (session->stash_head + 1) & (session->slots - 1);
        session->stash_count--;
    }
    return count;
}

size_t
leat_poll(struct leat_session *session, struct leat_completion *completions, size_t max)
{
    const size_t count = LEAT_UNLIKELY(session->stash_count > 0) ? pop_stash(session, completions, max) : 0;
    return count < max ? count + collect(session, completions + count, max - count) : count;
}

uint32_t
leat_in_flight(const struct leat_session *session)
{
    return session->in_flight + session->stash_count;
}

/* ---- Waiting ---------------------------------------------------------------------------------- */

enum {
    SPINS_PER_CLOCK = 16,
    SLEEP_SLICE_NS = 20 * 1000 * 1000, /* a futex cannot tell that the daemon died: look this often */
    SPIN_MIN_NS = 1000,
};

/*
 * How long to spin before sleeping. The daemon says what is worth it on this box (0 with more threads than
 * cores). Within that: spinning in vain halves the budget, a wake-up soon after going to sleep doubles it.
 */
static uint64_t
spin_budget(const struct leat_session *session)
{
    const uint64_t ceiling_ns = atomic_load_explicit(&session->rings->spin_ns, memory_order_relaxed);
    if (session->options.spin_ns != UINT64_MAX) {
        return session->options.spin_ns;
    }
    return session->spin_budget_ns < ceiling_ns ? session->spin_budget_ns : ceiling_ns;
}

static void
learn_from_sleep(struct leat_session *session, uint64_t slept_ns)
{
    const uint64_t ceiling_ns = atomic_load_explicit(&session->rings->spin_ns, memory_order_relaxed);
    const uint64_t budget_ns = session->spin_budget_ns < ceiling_ns ? session->spin_budget_ns : ceiling_ns;
    if (slept_ns < 2 * ceiling_ns) {
        session->spin_budget_ns = budget_ns < SPIN_MIN_NS ? SPIN_MIN_NS : 2 * budget_ns;
    } else {
        session->spin_budget_ns = budget_ns / 2;
    }
}

/* True when some lane has a completion ready. */
static bool
lanes_ready(const struct leat_session *session)
{
    for (uint32_t lane = 0; lane < session->lane_count; lane++) {
        const uint64_t position = session->lane_positions[lane];
        const struct leat_wire_response *cell =
            &session->lanes[(size_t)lane * session->slots + (position & (session->slots - 1))];
        if (atomic_load_explicit(&cell->sequence, memory_order_acquire) == position + 1) { /* C1 */
            return true;
        }
    }
    return false;
}

/* Spins for at most `spin_ns`. Returns what it collected; *now_ns is the time it gave up. */
static size_t
spin_for(struct leat_session *session, struct leat_completion *completions, size_t max, uint64_t until_ns,
         uint64_t *now_ns)
{
    for (;;) {
        for (int i = 0; i < SPINS_PER_CLOCK; i++) {
            const size_t count = collect(session, completions, max);
            if (count > 0) {
                return count;
            }
            leat_spin_pause();
        }
        *now_ns = leat_clock_now(&session->clock);
        if (*now_ns >= until_ns) {
            return 0;
        }
    }
}

static void
sleep_for(struct leat_session *session, uint64_t timeout_ns)
{
    struct leat_bell *bell = &session->rings->client_bell;

    leat_bell_announce(bell, LEAT_BELL_FUTEX);
    if (!lanes_ready(session)) {
        leat_bell_futex_sleep(bell, true, timeout_ns < SLEEP_SLICE_NS ? timeout_ns : SLEEP_SLICE_NS);
    }
    leat_bell_withdraw(bell);
}

/* leat_wait without the stash. */
static enum leat_status
wait_for(struct leat_session *session, struct leat_completion *completions, size_t max, uint64_t timeout_ns,
         size_t *ret_count)
{
    size_t count = collect(session, completions, max);
    if (count > 0) {
        *ret_count = count;
        return LEAT_OK;
    }
    if (session->in_flight == 0) {
        return LEAT_AGAIN;
    }
    const uint64_t start_ns = leat_clock_now(&session->clock);
    const uint64_t end_ns = timeout_ns > UINT64_MAX - start_ns ? UINT64_MAX : start_ns + timeout_ns;
    uint64_t now_ns = start_ns;
    const uint64_t budget_ns = spin_budget(session);
    if (budget_ns > 0) {
        const uint64_t spin_until_ns = budget_ns < end_ns - start_ns ? start_ns + budget_ns : end_ns;
        count = spin_for(session, completions, max, spin_until_ns, &now_ns);
    }
    const uint64_t asleep_ns = now_ns;
    while (count == 0 && now_ns < end_ns) {
        sleep_for(session, end_ns - now_ns);
        count = collect(session, completions, max);
        now_ns = leat_clock_now(&session->clock);
        if (count == 0) {
            (void)leat_session_check_peer(session, now_ns, PEER_CHECK_NS);
        } else {
            learn_from_sleep(session, now_ns - asleep_ns);
        }
    }
    if (count == 0) {
        return LEAT_TIMEOUT;
    }
    *ret_count = count;
    return LEAT_OK;
}

enum leat_status
leat_wait(struct leat_session *session, struct leat_completion *completions, size_t max, uint64_t timeout_ns,
          size_t *ret_count)
{
    if (max == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "room for at least one completion is needed");
    }
    if (session->stash_count > 0) {
        *ret_count = leat_poll(session, completions, max);
        return LEAT_OK;
    }
    return wait_for(session, completions, max, timeout_ns, ret_count);
}

enum leat_status
leat_run(struct leat_session *session, const struct leat_query *query, struct leat_completion *ret_completion)
{
    uint64_t ticket;
    enum leat_status status = leat_submit(session, query, &ticket);

    while (status == LEAT_OK) {
        struct leat_completion completion;
        size_t count;
        status = wait_for(session, &completion, 1, UINT64_MAX, &count);
        if (status != LEAT_OK) {
            break;
        }
        if (LEAT_LIKELY(completion.ticket == ticket)) {
            *ret_completion = completion;
            return LEAT_OK;
        }
        LEAT_ASSERT(session->stash_count < session->free_count); /* so that all of them together fit the slots */
        session->stash[(session->stash_head + session->stash_count) & (session->slots - 1)] = completion;
        session->stash_count++;
    }
    return status;
}

enum leat_status
leat_call(struct leat_session *session, const struct leat_target *target, uint32_t items, const void *const *inputs,
          void *const *outputs, uint64_t latency_ns, struct leat_completion *ret_completion)
{
    struct leat_query query = LEAT_QUERY_INIT;
    const uint32_t count = target->input_count + target->output_count;
    enum leat_status status = LEAT_OK;

    if (count > LEAT_TENSORS_MAX || items == 0 || items > target->items_max) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%u items, but a query here has 1 to %u", items, target->items_max);
    }
    query.target = target->id;
    query.items = items;
    query.latency_ns = latency_ns;
    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        status = leat_tensor_alloc(session, target->tensors[i].item_bytes * items, &query.tensors[i]);
        if (status == LEAT_OK && i < target->input_count) {
            memcpy(query.tensors[i], inputs[i], target->tensors[i].item_bytes * items);
        }
    }
    if (status == LEAT_OK) {
        status = leat_run(session, &query, ret_completion);
    }
    if (status == LEAT_OK && ret_completion->outcome == LEAT_OUTCOME_OK) {
        for (uint32_t i = 0; i < target->output_count; i++) {
            const uint32_t tensor = target->input_count + i;
            memcpy(outputs[i], query.tensors[tensor], target->tensors[tensor].item_bytes * items);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        leat_tensor_free(session, query.tensors[i]);
    }
    return status;
}

/* ---- Event loops ------------------------------------------------------------------------------ */

enum leat_status
leat_event_arm(struct leat_session *session)
{
    unsigned char drained[64];

    if (session->stash_count > 0 || !session->connected) {
        return session->stash_count > 0 || session->in_flight > 0 ? LEAT_OK
                                                                  : LEAT_FAIL(LEAT_ERR_DISCONNECTED,
                                                                              "the session has lost its daemon");
    }
    if (!leat_session_check_peer(session, leat_clock_now(&session->clock), PEER_CHECK_NS)) {
        return LEAT_OK; /* poll hands out what is lost */
    }
    while (read(session->client_fd, drained, sizeof(drained)) == (ssize_t)sizeof(drained)) {
    }
    leat_bell_announce(&session->rings->client_bell, LEAT_BELL_EVENT);
    if (lanes_ready(session)) {
        leat_bell_withdraw(&session->rings->client_bell);
        return LEAT_OK;
    }
    return LEAT_AGAIN;
}

/* ---- Texts ------------------------------------------------------------------------------------ */

uint32_t
leat_output_size(const struct leat_target *target, const struct leat_completion *completion, uint32_t tensor, uint32_t item)
{
    const uint32_t count = target->input_count + target->output_count;
    uint64_t sizes = 0, place = 0;

    for (uint32_t t = 0; t < count && t < LEAT_TENSORS_MAX; t++) {
        place += t < tensor && target->tensors[t].varying != 0;
        sizes += target->tensors[t].varying != 0;
    }
    place += sizes * item;
    return tensor < count && tensor < LEAT_TENSORS_MAX && target->tensors[tensor].varying != 0 && place < LEAT_SIZES_MAX
               ? completion->sizes[place]
               : 0;
}

const char *
leat_outcome_text(uint32_t outcome)
{
    static const char *const texts[] = {
        [LEAT_OUTCOME_NONE] = "none",           [LEAT_OUTCOME_OK] = "ok",
        [LEAT_OUTCOME_REJECTED] = "rejected",   [LEAT_OUTCOME_EXPIRED] = "expired",
        [LEAT_OUTCOME_CANCELLED] = "cancelled", [LEAT_OUTCOME_FAILED] = "failed",
        [LEAT_OUTCOME_LOST] = "lost",
    };
    return outcome < LEAT_COUNT_OF(texts) ? texts[outcome] : "unknown";
}

const char *
leat_reason_text(uint32_t reason)
{
    static const char *const texts[] = {
        [LEAT_REASON_NONE] = "none",
        [LEAT_REASON_DEADLINE] = "the latency objective cannot be met",
        [LEAT_REASON_QUEUE_FULL] = "a queue is full",
        [LEAT_REASON_DRAINING] = "the daemon is shutting down",
        [LEAT_REASON_TARGET] = "the application or model is not there",
        [LEAT_REASON_TENSOR] = "a tensor lies outside the arena, is misaligned or overlaps an output",
        [LEAT_REASON_ITEMS] = "more items than the largest batch",
        [LEAT_REASON_ACCURACY] = "no variant reaches the accuracy floor",
        [LEAT_REASON_IN_FLIGHT] = "too many queries in flight",
        [LEAT_REASON_PAYLOAD] = "the model refused the input's values",
        [LEAT_REASON_DEVICE] = "the engine or a device failed",
        [LEAT_REASON_MALFORMED] = "the request asks for something that the daemon does not know",
        [LEAT_REASON_COST] = "no variant that is accurate enough is cheap enough",
        [LEAT_REASON_PRICE] = "a class of workers has no price, and no other is cheap enough",
        [LEAT_REASON_LENGTH] = "a longer sequence than the model has",
    };
    return reason < LEAT_COUNT_OF(texts) ? texts[reason] : "unknown";
}

const char *
leat_version(void)
{
    return LEAT_VERSION_TEXT;
}
