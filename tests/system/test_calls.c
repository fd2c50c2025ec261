/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     However a client mixes the calls, every accepted query ends in exactly one completion, leat_in_flight counts
 *          those to come, and a call is refused for lack of slots exactly when all of them are owed a completion.
 * Method   Random mixes of submit, batch, run, poll, wait, cancel and reconnect on sessions of few slots, beside a list of
 *          the queries whose completion is due. Then the shortest such mixes that once went wrong.
 */
#include <string.h>
#include <unistd.h>

#include "tests/leat_test.h"
#include "tests/system/box.h"

enum { SLOTS_MAX = 8, CALLS = 4000 };

static char socket_path[64];

struct due {
    struct leat_query query;
    uint64_t ticket; /* 0: of a batch, which does not tell */
    bool cancelled;
};

struct mixer {
    struct box_client client;
    uint32_t slots;
    uint64_t random;
    uint64_t asked; /* queries so far; each has its number as user_data */
    struct due due[SLOTS_MAX];
    uint32_t due_count;
    struct leat_query spare[SLOTS_MAX + 1]; /* one more than can be accepted; tensors that no query has */
    uint32_t spare_count;
};

static uint32_t
below(struct mixer *mixer, uint32_t limit)
{
    return (uint32_t)(leat_test_random(&mixer->random) % limit);
}

static unsigned char
byte_of(const struct leat_query *query)
{
    return (unsigned char)(query->user_data % BOX_HOLD);
}

static void
allocate_queries(struct mixer *mixer)
{
    const struct leat_target *target = &mixer->client.target;

    for (mixer->spare_count = 0; mixer->spare_count <= mixer->slots; mixer->spare_count++) {
        struct leat_query *query = &mixer->spare[mixer->spare_count];
        *query = (struct leat_query)LEAT_QUERY_INIT;
        query->target = target->id;
        for (int t = 0; t < 2; t++) {
            EXPECT(leat_tensor_alloc(mixer->client.session, target->tensors[t].item_bytes, &query->tensors[t]) == LEAT_OK);
        }
    }
}

static struct leat_query
take_spare(struct mixer *mixer)
{
    EXPECT(mixer->spare_count > 0);
    struct leat_query query = mixer->spare[--mixer->spare_count];
    query.user_data = mixer->asked++;
    box_fill(&mixer->client, &query, byte_of(&query));
    return query;
}

/* Notes what became of a query that leat_submit or leat_submit_batch was given. */
static void
submitted(struct mixer *mixer, const struct leat_query *query, bool accepted, uint64_t ticket)
{
    if (accepted) {
        EXPECT(mixer->due_count < mixer->slots);
        mixer->due[mixer->due_count++] = (struct due){.query = *query, .ticket = ticket};
    } else {
        mixer->spare[mixer->spare_count++] = *query;
    }
}

static void
check_completion(struct mixer *mixer, const struct due *due, const struct leat_completion *done)
{
    EXPECT(done->user_data == due->query.user_data && (due->ticket == 0 || done->ticket == due->ticket));
    EXPECT(done->outcome == LEAT_OUTCOME_OK || (due->cancelled && done->outcome == LEAT_OUTCOME_CANCELLED));
    EXPECT(done->outcome != LEAT_OUTCOME_OK || box_check(&mixer->client, &due->query, byte_of(&due->query)));
    mixer->spare[mixer->spare_count++] = due->query;
}

static void
collected(struct mixer *mixer, const struct leat_completion *done, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t d = 0;
        while (d < mixer->due_count && mixer->due[d].query.user_data != done[i].user_data) {
            d++;
        }
        EXPECT(d < mixer->due_count); /* due, and for the first time */
        check_completion(mixer, &mixer->due[d], &done[i]);
        mixer->due[d] = mixer->due[--mixer->due_count];
    }
}

/* ---- The calls -------------------------------------------------------------------------------- */

static void
call_submit(struct mixer *mixer)
{
    const bool room = mixer->due_count < mixer->slots;
    const struct leat_query query = take_spare(mixer);
    uint64_t ticket = 0;

    EXPECT(leat_submit(mixer->client.session, &query, &ticket) == (room ? LEAT_OK : LEAT_AGAIN));
    EXPECT(!room || ticket != 0);
    submitted(mixer, &query, room, ticket);
}

static void
call_submit_batch(struct mixer *mixer)
{
    struct leat_query queries[SLOTS_MAX + 1];
    const uint32_t room = mixer->slots - mixer->due_count, count = below(mixer, mixer->spare_count + 1);
    size_t went_out;

    for (uint32_t i = 0; i < count; i++) {
        queries[i] = take_spare(mixer);
    }
    EXPECT(leat_submit_batch(mixer->client.session, queries, count, &went_out) == (count <= room ? LEAT_OK : LEAT_AGAIN));
    EXPECT(went_out == (count <= room ? count : room));
    for (uint32_t i = 0; i < count; i++) {
        submitted(mixer, &queries[i], i < went_out, 0);
    }
}

static void
call_run(struct mixer *mixer)
{
    const bool room = mixer->due_count < mixer->slots;
    const struct due own = {.query = take_spare(mixer)};
    struct leat_completion done;

    EXPECT(leat_run(mixer->client.session, &own.query, &done) == (room ? LEAT_OK : LEAT_AGAIN));
    if (room) {
        check_completion(mixer, &own, &done);
    } else {
        submitted(mixer, &own.query, false, 0);
    }
}

static void
call_poll(struct mixer *mixer)
{
    struct leat_completion done[SLOTS_MAX];
    const size_t max = below(mixer, SLOTS_MAX + 1), count = leat_poll(mixer->client.session, done, max);

    EXPECT(count <= max);
    collected(mixer, done, count);
}

static void
call_wait(struct mixer *mixer)
{
    struct leat_completion done[SLOTS_MAX];
    const size_t max = 1 + below(mixer, SLOTS_MAX);
    size_t count = 0;

    const enum leat_status status = leat_wait(mixer->client.session, done, max, UINT64_MAX, &count);
    EXPECT(status == (mixer->due_count > 0 ? LEAT_OK : LEAT_AGAIN));
    EXPECT(status != LEAT_OK || (count >= 1 && count <= max));
    collected(mixer, done, count);
}

static void
call_cancel(struct mixer *mixer)
{
    EXPECT(leat_cancel(mixer->client.session, UINT64_MAX - below(mixer, 100)) == LEAT_ERR_NOT_FOUND);
    if (mixer->due_count > 0) {
        struct due *due = &mixer->due[below(mixer, mixer->due_count)];
        EXPECT(due->ticket == 0 || leat_cancel(mixer->client.session, due->ticket) == LEAT_OK);
        due->cancelled = due->ticket != 0;
    }
}

static void
call_reconnect(struct mixer *mixer)
{
    if (mixer->due_count > 0) {
        EXPECT(leat_reconnect(mixer->client.session) == LEAT_ERR_BUSY); /* and nothing is lost by trying */
        return;
    }
    EXPECT(leat_reconnect(mixer->client.session) == LEAT_OK);
    EXPECT(leat_find(mixer->client.session, "box", &mixer->client.target) == LEAT_OK);
    allocate_queries(mixer);
}

static void
test_random_mix(uint32_t slots)
{
    /* Often enough to meet one another; running and cancelling beside many in flight is what it is about. */
    static void (*const calls[])(struct mixer *) = {call_submit, call_submit,       call_submit, call_submit_batch,
                                                    call_run,    call_run,          call_poll,   call_wait,
                                                    call_cancel, call_submit_batch, call_cancel, call_reconnect};
    const struct box_options options = {
        .socket_path = socket_path, .workers = 2, .sessions_max = LEAT_SESSIONS_MAX}; /* one left may not be gone yet */
    struct box *box = box_start(&options);
    struct mixer mixer = {.slots = slots, .random = leat_test_seed + slots};

    box_connect(&mixer.client, socket_path, slots);
    allocate_queries(&mixer);
    for (int n = 0; n < CALLS; n++) {
        calls[below(&mixer, LEAT_COUNT_OF(calls))](&mixer);
        EXPECT(leat_in_flight(mixer.client.session) == mixer.due_count);
    }
    while (mixer.due_count > 0) {
        call_wait(&mixer);
    }
    box_disconnect(&mixer.client);
    box_stop(box);
}

/* ---- Examples --------------------------------------------------------------------------------- */

/* What leat_run meets of others stays for leat_poll: as many as there are slots, then nothing more is accepted. */
static void
test_run_beside_uncollected(void)
{
    enum { SLOTS = 4 };
    const struct box_options options = {.socket_path = socket_path};
    struct leat_completion done[SLOTS];
    struct box *box = box_start(&options);
    struct mixer mixer = {.slots = SLOTS};

    box_connect(&mixer.client, socket_path, SLOTS);
    allocate_queries(&mixer);
    for (uint32_t n = 0; n < SLOTS - 1; n++) {
        call_submit(&mixer);
        call_run(&mixer);
    }
    call_submit(&mixer);
    call_run(&mixer); /* LEAT_AGAIN */
    call_submit(&mixer);
    EXPECT(leat_in_flight(mixer.client.session) == SLOTS && mixer.due_count == SLOTS);
    while (mixer.due_count > 0) {
        collected(&mixer, done, leat_poll(mixer.client.session, done, SLOTS));
    }
    call_run(&mixer);
    box_disconnect(&mixer.client);
    box_stop(box);
}

static void
test_reconnect_keeps_completions(void)
{
    const struct box_options options = {.socket_path = socket_path};
    struct leat_completion done;
    struct box *box = box_start(&options);
    struct mixer mixer = {.slots = 4};

    box_connect(&mixer.client, socket_path, 4);
    allocate_queries(&mixer);
    call_submit(&mixer);
    call_run(&mixer); /* the other's answer has come by now, and is in nobody's hands */
    EXPECT(leat_cancel(mixer.client.session, mixer.due[0].ticket) == LEAT_OK);
    EXPECT(leat_reconnect(mixer.client.session) == LEAT_ERR_BUSY);
    EXPECT(leat_poll(mixer.client.session, &done, 1) == 1);
    collected(&mixer, &done, 1);
    EXPECT(leat_reconnect(mixer.client.session) == LEAT_OK);
    box_disconnect(&mixer.client);
    box_stop(box);
}

int
main(void)
{
    leat_test_init();
    (void)snprintf(socket_path, sizeof(socket_path), "/tmp/leat-test-calls-%d.sock", (int)getpid());
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    test_run_beside_uncollected();
    test_reconnect_keeps_completions();
    for (uint32_t slots = 2; slots <= SLOTS_MAX; slots *= 2) {
        test_random_mix(slots);
    }
    return 0;
}
