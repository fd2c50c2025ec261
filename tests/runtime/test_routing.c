/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The dispatcher carries out what a router answers, pair by pair, and what is left keeps its order; a deep
 *          queue costs no more than what the router is shown, and the selector is shown as much; what is left for later is
 *          shown again; workers' times say what can be known; nobody is refused for what waits and would go behind it; batches
 *          of what is not online are short; a batch that others can join is made no sooner than just before its worker is free. However many reports come at once, something is learnt of each. A share
 *          of the workers is shown as so many workers, and only what online queries take counts as asked for.
 * Method   The dispatcher driven round by round, with routers made here: one that answers at random, beside a list kept
 *          by the test; one that holds back; and one that only looks; and the real ones. Queries behind what a router
 *          is shown lie in pages that cannot be touched.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/align.h"
#include "tests/leat_test.h"
#include "tests/runtime/steps.h"

enum { WORKERS = 5, DEEP = 15000, SEEN = 40, WALL_BYTES = 4 * 4096 };

static uint64_t random_state;

static uint32_t
below(uint32_t bound)
{
    return (uint32_t)(leat_test_random(&random_state) % bound);
}

/* ---- Several pairs an answer ------------------------------------------------------------------ */

static struct {
    uint32_t list[STEPS_SLOTS]; /* numbers of the queries that wait, oldest first */
    uint32_t count;
    uint32_t worker_of[STEPS_SLOTS]; /* by number */
    uint32_t batch[STEPS_SLOTS];     /* queries of the batch that begins with it */
    uint32_t answers, answered, pairs, batches, gaps;
} model;

/* Any queries to any workers with room, in any order. */
static uint32_t
random_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    uint32_t count = 0;

    (void)state;
    EXPECT(pairs_max == WORKERS && input->worker_count == WORKERS && input->pending_count == model.count);
    for (uint32_t w = 0; w < input->worker_count && input->pending_count > count; w++) {
        const uint32_t worker = (w + model.answers) % WORKERS;
        uint32_t query = below(input->pending_count);
        if (input->workers[worker].outstanding >= input->workers[worker].depth || below(4) == 0) {
            continue;
        }
        for (uint32_t i = 0; i < count; i++) {
            if (pairs[i].query == query) {
                query = (query + 1) % input->pending_count;
                i = UINT32_MAX; /* and from the first again */
            }
        }
        pairs[count++] = (struct leat_route_pair){.query = query, .worker = worker};
    }
    model.answers++;
    model.answered += count > 0;
    model.pairs += count;

    /* What policy.h says becomes of it. */
    bool gone[STEPS_SLOTS] = {false};
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = pairs[i].query, first = model.list[at];
        uint32_t taken = 0;
        while (taken < model.batch[first] && at + taken < model.count && !gone[at + taken]) {
            model.worker_of[model.list[at + taken]] = pairs[i].worker;
            gone[at + taken++] = true;
        }
        if (taken > 1) {
            model.batches++;
            break;
        }
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < model.count; i++) {
        model.gaps += i > 0 && gone[i] && !gone[i - 1];
        if (!gone[i]) {
            model.list[kept++] = model.list[i];
        }
    }
    model.count = kept;
    return count;
}

static struct leat_selection
model_select(void *state, const struct leat_select_input *input)
{
    const uint32_t number = input->pending[0].items - 1; /* items tell queries apart */
    (void)state;
    return (struct leat_selection){
        .queries = model.batch[number] < input->pending_count ? model.batch[number] : input->pending_count};
}

static const struct leat_router random_router = {.name = "random", .queues = true, .route = random_route};
static const struct leat_selector model_selector = {.name = "model", .select = model_select};

static void
expect_model(void)
{
    const struct leat_waiting *waiting = &steps.app.waiting[LEAT_RANK_ONLINE];
    EXPECT(leat_waiting_count(waiting) == model.count);
    for (uint32_t i = 0; i < model.count; i++) {
        EXPECT(waiting->entries[waiting->head + i].ticket_low == model.list[i]);
        EXPECT(waiting->queries[waiting->head + i].items == model.list[i] + 1);
    }
}

static void
test_pairs_in_any_order(void)
{
    static const uint16_t classes[WORKERS] = {0, 1, 0, 1, 1};
    const struct steps_options options = {.worker_count = WORKERS,
                                          .classes = classes,
                                          .worker_depth = 3,
                                          .sessions = 1,
                                          .router = &random_router,
                                          .selector = &model_selector,
                                          .latency_ns = {1000, 3000}};
    bool under_way[STEPS_SLOTS] = {false};
    struct leat_wire_response answer;
    uint32_t ended = 0;

    memset(&model, 0, sizeof(model));
    steps_start(&options);
    for (uint32_t round = 0; round < 3000 || ended > 0; round++) {
        const uint32_t tries = round < 3000 ? below(24) : 0;
        for (uint32_t i = 0; i < tries; i++) {
            const uint32_t number = below(STEPS_SLOTS);
            if (!under_way[number]) {
                under_way[number] = true;
                model.batch[number] = below(3) == 0 ? 1 + below(4) : 1;
                model.list[model.count++] = number;
                steps_submit(number, number + 1, 0);
            }
        }
        steps_round(1);
        leat_dispatcher_check(steps.dispatcher);
        expect_model();
        for (uint32_t w = 0; w < WORKERS; w++) {
            if (below(3) > 0) {
                (void)steps_run(w);
            }
        }
        ended = 0;
        for (uint32_t number = 0; number < STEPS_SLOTS; number++) {
            if (under_way[number] && steps_answer(number, &answer)) {
                EXPECT(answer.outcome == LEAT_OUTCOME_OK && answer.worker == model.worker_of[number]);
                under_way[number] = false;
            }
            ended += under_way[number];
        }
    }
    EXPECT(leat_histogram_summarise(leat_dispatcher_decision_times(steps.dispatcher)).count == model.answers);
    EXPECT(leat_histogram_summarise(&steps.app.sizes).count == atomic_load(&steps.app.counters.accepted));
    EXPECT(model.answered > 1000 && model.pairs > 2 * model.answered && model.batches > 100 && model.gaps > 1000);
    steps_round(1);
    steps_stop();
}

/* ---- A deep queue ----------------------------------------------------------------------------- */

static uint32_t shown_most;

/* The last of those shown, and from there every third, to every worker that is idle. */
static uint32_t
back_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    uint32_t count = 0;

    (void)state;
    shown_most = input->pending_count > shown_most ? input->pending_count : shown_most;
    for (uint32_t w = 0; w < input->worker_count && count < pairs_max && 3 * count < input->pending_count; w++) {
        if (input->workers[w].outstanding == 0) {
            pairs[count] = (struct leat_route_pair){.query = input->pending_count - 1 - 3 * count, .worker = w};
            count++;
        }
    }
    return count;
}

static const struct leat_router back_router = {.name = "back", .route = back_route};

static void
test_shows_no_more_than_it_may(void)
{
    static const uint16_t classes[WORKERS];
    const struct steps_options options = {.worker_count = WORKERS,
                                          .classes = classes,
                                          .worker_depth = 2,
                                          .sessions = STEPS_SESSIONS_MAX,
                                          .router = &back_router,
                                          .selector = &leat_selector_single,
                                          .latency_ns = {1000}};
    uint32_t rounds = 0;

    shown_most = 0;
    steps_start(&options);
    for (uint32_t n = 0; n < DEEP; n++) {
        steps_submit(n, 1, 0);
    }
    for (uint32_t n = 0; n < STEPS_SLOTS; n++) {
        steps_round(1);
    }
    EXPECT(leat_waiting_total(steps.app.waiting) == DEEP - WORKERS);
    while (steps.app.running > 0 || leat_waiting_total(steps.app.waiting) > 0) {
        for (uint32_t w = 0; w < WORKERS; w++) {
            (void)steps_run(w);
            EXPECT(steps.workers[w]->dispatcher.batches <= 1); /* the router wanted idle ones */
        }
        steps_round(1);
        if (++rounds % 1000 == 0) {
            leat_dispatcher_check(steps.dispatcher); /* looks at every query for every slot */
        }
    }
    EXPECT(atomic_load(&steps.app.counters.ok) == DEEP && shown_most == LEAT_SCHED_PENDING_MAX);
    steps_stop();
}

enum { PASSED_OVER = 600 }; /* more than a batch holds */

static uint32_t batches_selected;

/* Of more than may be shown, those behind a few hundred; then all. */
static struct leat_selection
deep_select(void *state, const struct leat_select_input *input)
{
    (void)state;
    if (batches_selected == 0 && input->waiting_count < LEAT_SCHED_PENDING_MAX + 5) {
        return (struct leat_selection){.hold = true};
    }
    if (batches_selected++ > 0) {
        return (struct leat_selection){.queries = input->pending_count};
    }
    EXPECT(input->pending_count == LEAT_SCHED_PENDING_MAX);
    return (struct leat_selection){.skip = PASSED_OVER, .queries = input->pending_count - PASSED_OVER};
}

static const struct leat_selector deep_selector = {.name = "deep", .select = deep_select};

/* A selector sees as much as the router, though a batch holds less: what it passes over hides nothing from it. */
static void
test_selector_sees_what_the_router_sees(void)
{
    static const uint16_t classes[1];
    const struct steps_options options = {.worker_count = 1, .classes = classes, .worker_depth = 1, .sessions = 2,
                                          .router = &leat_router_fcfs, .selector = &deep_selector, .latency_ns = {1000}};
    const struct leat_waiting *waiting = &steps.app.waiting[LEAT_RANK_ONLINE];
    const uint32_t count = LEAT_SCHED_PENDING_MAX + 5;
    struct leat_wire_response answer;

    batches_selected = 0;
    steps_start(&options);
    for (uint32_t n = 0; n < count; n++) {
        steps_submit(n, 1, 0);
        steps_round(1);
    }
    EXPECT(steps.app.running == LEAT_BATCH_QUERIES && leat_waiting_count(waiting) == count - LEAT_BATCH_QUERIES);
    for (uint32_t at = 0; at < leat_waiting_count(waiting); at++) {
        const uint32_t n = at < PASSED_OVER ? at : at + LEAT_BATCH_QUERIES;
        EXPECT(waiting->entries[waiting->head + at].ticket_low == n);
    }
    EXPECT(steps_run(0));
    for (uint32_t n = 0; n < count; n++) {
        EXPECT(steps_answer(n, &answer) == (n >= PASSED_OVER && n < PASSED_OVER + LEAT_BATCH_QUERIES));
    }
    do {
        steps_round(1);
    } while (steps_run(0));
    EXPECT(atomic_load(&steps.app.counters.ok) == count && batches_selected == 1 + (count - 1) / LEAT_BATCH_QUERIES);
    steps_stop();
}

/* Zeroes that end where nothing may be touched. */
static void *
before_a_wall(size_t bytes)
{
    unsigned char *pages = mmap(NULL, 2 * WALL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    EXPECT(pages != MAP_FAILED && bytes <= WALL_BYTES);
    EXPECT(mprotect(pages + WALL_BYTES, WALL_BYTES, PROT_NONE) == 0);
    return pages + WALL_BYTES - bytes;
}

static void
tear_down(void *block, size_t bytes)
{
    EXPECT(munmap((unsigned char *)block + bytes - WALL_BYTES, 2 * WALL_BYTES) == 0);
}

/* Beyond the last marked query nothing is read, let alone moved; nor are marks, of which there are fewer than queries. */
static void
test_removal_leaves_the_rest_alone(void)
{
    const size_t marks_bytes = LEAT_WAITING_MARKS * sizeof(uint64_t);
    const size_t queries_bytes = leat_round_up(SEEN * sizeof(struct leat_sched_query), 64);
    const size_t entries_bytes = leat_round_up(SEEN * sizeof(struct leat_query_entry), 64);
    uint64_t *marks = before_a_wall(marks_bytes);
    struct leat_waiting waiting = {.queries = before_a_wall(queries_bytes),
                                   .entries = before_a_wall(entries_bytes),
                                   .tail = LEAT_SCHED_PENDING_MAX + 1,
                                   .room = LEAT_SCHED_PENDING_MAX + 1};

    for (uint32_t q = 0; q < SEEN; q++) {
        waiting.queries[q].items = q;
        waiting.items += q;
    }
    marks[0] = UINT64_C(1) << 3 | UINT64_C(1) << 17 | UINT64_C(1) << (SEEN - 1);
    leat_waiting_remove(&waiting, marks);
    EXPECT(waiting.head == 3 && waiting.tail == waiting.room && marks[0] == 0);
    EXPECT(waiting.items == 39 * 40 / 2 - 3 - 17 - 39);
    for (uint32_t q = 0, items = 0; q < SEEN - 3u; q++, items++) {
        items += items == 3 || items == 17 ? 1 : 0;
        EXPECT(waiting.queries[waiting.head + q].items == items);
    }
    tear_down(waiting.queries, queries_bytes);
    tear_down(waiting.entries, entries_bytes);
    tear_down(marks, marks_bytes);
}

/* ---- What is left for later ------------------------------------------------------------------- */

static uint64_t held_until_ns;
static uint32_t times_asked;

static uint32_t
holding_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    times_asked++;
    return input->now_ns < held_until_ns ? 0 : leat_router_fcfs.route(state, input, pairs, pairs_max);
}

static struct leat_selection
holding_select(void *state, const struct leat_select_input *input)
{
    times_asked++;
    return input->now_ns < held_until_ns ? (struct leat_selection){.hold = true}
                                         : leat_selector_single.select(state, input);
}

static const struct leat_router holding_router = {.name = "holding", .queues = true, .route = holding_route};
static const struct leat_selector holding_selector = {.name = "holding", .single = true, .select = holding_select};

static void
test_held_back_is_shown_again(const struct leat_router *router, const struct leat_selector *selector)
{
    static const uint16_t classes[2] = {0, 1};
    const struct steps_options options = {.worker_count = 2,
                                          .classes = classes,
                                          .worker_depth = 1,
                                          .sessions = 1,
                                          .router = router,
                                          .selector = selector,
                                          .latency_ns = {500, 500}};
    struct leat_wire_response answer;

    steps_start(&options);
    held_until_ns = UINT64_MAX;
    times_asked = 0;
    steps_submit(0, 1, 0);
    steps_round(1);
    EXPECT(times_asked == 1);
    for (int i = 0; i < 100; i++) {
        steps_round(1);
    }
    EXPECT(times_asked == 1); /* nothing has changed */
    steps_submit(1, 1, 0);
    steps_round(1);
    EXPECT(times_asked == 2); /* a query has come */
    held_until_ns = steps.now_ns + 1;
    steps_round(999999);
    EXPECT(times_asked == 2);
    steps_round(1); /* and time has passed, nothing else */
    EXPECT(leat_waiting_total(steps.app.waiting) == 0 && steps.app.running == 2);
    EXPECT(times_asked == 4); /* one pair an answer */

    held_until_ns = UINT64_MAX; /* two that run, one that waits */
    steps_submit(2, 1, 0);
    steps_round(1);
    steps_round(5000000);
    EXPECT(times_asked == 4); /* no worker has room: nothing to ask */
    EXPECT(steps_run(0));
    steps_round(1);
    EXPECT(times_asked == 5);
    EXPECT(steps_run(1));
    steps_round(1);
    EXPECT(times_asked == 6); /* one that ends may change its mind */
    held_until_ns = 0;
    steps_round(1000000);
    EXPECT(steps_run(0));
    for (uint32_t number = 0; number < 3; number++) {
        EXPECT(steps_answer(number, &answer) && answer.outcome == LEAT_OUTCOME_OK);
    }
    steps_round(1);
    steps_stop();
}

/* ---- What workers' times say ------------------------------------------------------------------ */

static struct leat_sched_worker seen[2];
static uint64_t seen_at_ns;

static uint32_t
looking_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    memcpy(seen, input->workers, sizeof(seen));
    seen_at_ns = input->now_ns;
    return leat_router_fcfs.route(state, input, pairs, pairs_max);
}

static const struct leat_router looking_router = {.name = "looking", .queues = true, .route = looking_route};

/* Asks the router, without giving it anything to give. */
static void
look(uint64_t later_ns)
{
    static uint32_t number = 100;
    steps_submit(number++, 1, 1); /* too late before it can be dispatched */
    steps_round(later_ns);
}

static void
test_free_at_is_honest(void)
{
    static const uint16_t classes[2] = {0, 1};
    const struct steps_options options = {.worker_count = 2,
                                          .classes = classes,
                                          .worker_depth = 3,
                                          .sessions = 1,
                                          .router = &looking_router,
                                          .selector = &leat_selector_single,
                                          .latency_ns = {16000, 64000}};

    steps_start(&options);
    look(1);
    EXPECT(seen[0].free_at_ns <= seen_at_ns && seen[0].outstanding == 0);
    while (steps_run(0) || steps_run(1)) {
        steps_round(1);
    }
    for (uint32_t n = 0; n < 5; n++) { /* both idle: one each, then to whoever is free soonest */
        steps_submit(n, 1, 0);
    }
    steps_round(1);
    const uint64_t begin_ns = steps.now_ns;
    EXPECT(steps.workers[0]->dispatcher.batches == 3 && steps.workers[1]->dispatcher.batches == 2);
    steps_submit(5, 1, 0); /* shown, and dispatched to worker 1 */
    steps_round(1000);
    EXPECT(seen[0].free_at_ns == begin_ns + 48000 && seen[1].free_at_ns == begin_ns + 128000);
    EXPECT(steps.workers[1]->dispatcher.batches == 3);

    EXPECT(steps_run(0)); /* ends before the dispatcher hears of it */
    steps_submit(6, 1, 0);
    steps_round(2000);
    EXPECT(seen[0].outstanding == 2 && seen[0].free_at_ns == seen_at_ns + 32000);

    EXPECT(steps.workers[0]->dispatcher.batches == 3);
    EXPECT(steps_run(0));
    steps_submit(7, 1, 0);
    steps_round(200000); /* far beyond what was predicted of all: worker 1 has not reported */
    EXPECT(seen[1].outstanding == 3 && seen[1].free_at_ns == seen_at_ns + 1 + 64000 / 16 + 128000);
    EXPECT(seen[0].outstanding == 2 && seen[0].free_at_ns == seen_at_ns + 32000);
    for (uint32_t w = 0; w < 2; w++) {
        while (steps_run(w)) {
        }
    }
    steps_round(1);
    EXPECT(steps.app.running == 0);
    steps_stop();
}

/* ---- Who is let in ---------------------------------------------------------------------------- */

/* Answers of the queries [first, first + count), all of which have one or none: how many were refused at once. */
static uint32_t
count_refused(uint32_t first, uint32_t count)
{
    struct leat_wire_response answer;
    uint32_t refused = 0;

    for (uint32_t number = first; number < first + count; number++) {
        if (steps_answer(number, &answer)) {
            EXPECT(answer.outcome == LEAT_OUTCOME_REJECTED && answer.reason == LEAT_REASON_DEADLINE);
            refused++;
        }
    }
    return refused;
}

static void
run_all(uint32_t workers)
{
    while (leat_waiting_total(steps.app.waiting) > 0 || steps.app.running > 0) {
        for (uint32_t w = 0; w < workers; w++) {
            (void)steps_run(w);
        }
        steps_round(1000);
    }
}

/* What has time keeps nobody out whom the router would let pass, and everybody else. */
static void
test_admission_behind_what_has_time(void)
{
    static const uint16_t classes[1];
    static const char *const routers[] = {"laxity", "edf", "matching", "fcfs", "clockwork"};

    for (size_t r = 0; r < LEAT_COUNT_OF(routers); r++) {
        const struct steps_options options = {.worker_count = 1,
                                              .classes = classes,
                                              .worker_depth = 2,
                                              .sessions = 1,
                                              .router = leat_router_find(routers[r]),
                                              .selector = &leat_selector_single,
                                              .drop_late = true,
                                              .latency_ns = {1000000},
                                              .per_item_ns = {10000}};
        const bool reorders = r < 2; /* matching among twice as many queries as workers only */
        struct leat_wire_response answer;

        steps_start(&options);
        for (uint32_t n = 0; n < 40; n++) {
            steps_submit(n, 1000, 10000000); /* 11 ms each */
        }
        steps_round(1000);
        for (uint32_t n = 40; n < 45; n++) {
            steps_submit(n, 10, 60000); /* 1.1 ms each */
        }
        steps_round(1000);
        EXPECT(count_refused(0, 40) == 0);
        EXPECT(count_refused(40, 5) == (reorders ? 0 : 5));
        /* With as little time, what is as large has those ahead of it that are due no later. */
        for (uint32_t n = 45; n < 65; n++) {
            steps_submit(n, 1000, 60000);
        }
        steps_round(1000);
        const uint32_t refused = count_refused(45, 20);
        EXPECT(reorders ? refused > 0 && refused < 20 : refused == 20);
        run_all(1);
        for (uint32_t n = 40; reorders && n < 65; n++) {
            EXPECT(!steps_answer(n, &answer) || answer.outcome == LEAT_OUTCOME_OK);
        }
        EXPECT(atomic_load(&steps.app.counters.ok) == 40 + (reorders ? 25 - refused : 0));
        steps_stop();
    }
}

/* Where a batch is one query, 100 small ones that wait are 100 batches, and no more than small ones. */
static void
test_admission_counts_batches(void)
{
    static const uint16_t classes[1];
    static const char *const routers[] = {"fcfs", "laxity", "matching", "edf"};

    for (size_t r = 0; r < LEAT_COUNT_OF(routers); r++) {
        for (uint32_t single = 0; single < 2; single++) {
            const struct steps_options options = {.worker_count = 1,
                                                  .classes = classes,
                                                  .worker_depth = 1,
                                                  .sessions = 1,
                                                  .router = leat_router_find(routers[r]),
                                                  .selector = single ? &leat_selector_single : &leat_selector_fixed,
                                                  .drop_late = true,
                                                  .latency_ns = {1000000},
                                                  .per_item_ns = {1000}};
            steps_start(&options);
            for (uint32_t n = 0; n < 100; n++) {
                steps_submit(n, 1, 50000);
            }
            for (int i = 0; i < 4; i++) {
                steps_round(1); /* a round takes some of them only */
            }
            const uint32_t refused = count_refused(0, 100);
            EXPECT(single ? refused > 48 && refused < 54 : refused == 0); /* 1.001 ms each, or all in one batch */
            run_all(1);
            steps_stop();
        }
    }
}

/* ---- Profiles that keep a class idle ---------------------------------------------------------- */

/*
 * `rate` queries come at a time, with 50 ms to go, and then each worker runs what it got. The second class's profile says
 * `claimed_ns` of a query; it takes `true_ns`. Returns how many queries had come when the profile let it have them in
 * time, 0 for never.
 */
static uint32_t
feed_two_classes(uint64_t claimed_ns, uint64_t true_ns, uint32_t rate, uint32_t batches[2])
{
    static const uint16_t classes[2] = {0, 1};
    const struct steps_options options = {.worker_count = 2,
                                          .classes = classes,
                                          .worker_depth = 1,
                                          .sessions = 1,
                                          .router = &leat_router_laxity,
                                          .selector = &leat_selector_single,
                                          .drop_late = true,
                                          .latency_ns = {10000000, true_ns}};
    struct leat_wire_response answer;
    uint32_t sent = 0, right = 0;

    steps_start(&options);
    leat_profile_init(&steps.app.profiles[0][1], LEAT_PROFILE_DEFAULT, NULL);
    leat_profile_set(&steps.app.profiles[0][1], 1, claimed_ns);
    batches[0] = batches[1] = 0;
    for (uint32_t t = 0; t < 4000; t++) {
        for (uint32_t k = 0; k < rate; k++) {
            const uint32_t slot = sent++ % STEPS_SLOTS;
            (void)steps_answer(slot, &answer);
            steps_submit(slot, 1, 50000);
        }
        steps_round(1000);
        for (uint32_t w = 0; w < 2; w++) {
            batches[w] += steps_run(w);
        }
        steps_round(1000);
        if (right == 0 && leat_profile_predict(&steps.app.profiles[0][1], 1) < 50000000) {
            right = sent;
        }
    }
    run_all(2);
    steps_stop();
    return right;
}

static void
test_probes_of_a_class(void)
{
    uint32_t batches[2];

    const uint32_t right = feed_two_classes(200000000, 11000000, 2, batches);
    printf("corrected after %u queries; batches %u and %u\n", right, batches[0], batches[1]);
    EXPECT(right > 0 && right < 2000 && batches[0] > 3000 && batches[1] > 3000);

    EXPECT(feed_two_classes(200000000, 200000000, 1, batches) == 0);
    printf("not to be corrected: batches %u and %u\n", batches[0], batches[1]);
    const uint64_t all_ns = batches[0] * UINT64_C(10000000) + batches[1] * UINT64_C(200000000);
    EXPECT(batches[1] >= 2 && batches[1] * UINT64_C(200000000) <= all_ns / 16 && batches[1] <= 4000 / 17);
}

/* Queries of one item to worker 1, the others to worker 0. */
static uint32_t
by_size_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    (void)state;
    for (uint32_t q = 0; q < input->pending_count && pairs_max > 0; q++) {
        const uint32_t worker = input->pending[q].items == 1;
        if (input->workers[worker].outstanding == 0) {
            pairs[0] = (struct leat_route_pair){.query = q, .worker = worker};
            return 1;
        }
    }
    return 0;
}

static const struct leat_router by_size_router = {.name = "by_size", .route = by_size_route};

/* A large query comes, which the first class has in time and the second has not; true if the latter got it all the same. */
static bool
is_probe(uint32_t number)
{
    const uint32_t before = steps.workers[1]->dispatcher.batches + steps.workers[2]->dispatcher.batches;

    steps_submit(number, 100, 50000);
    steps_round(1000);
    (void)steps_run(0);
    steps_round(1000);
    return steps.workers[1]->dispatcher.batches + steps.workers[2]->dispatcher.batches > before;
}

/* Small batches tell of a class too; and one probe of it at a time is enough. */
static void
test_probes_are_spared(void)
{
    static const uint16_t classes[3] = {0, 1, 1};
    const struct steps_options options = {.worker_count = 3,
                                          .classes = classes,
                                          .worker_depth = 1,
                                          .sessions = 1,
                                          .router = &by_size_router,
                                          .selector = &leat_selector_single,
                                          .drop_late = true,
                                          .latency_ns = {1000000, 1000000},
                                          .per_item_ns = {0, 1000000}};
    uint32_t number = 0;

    steps_start(&options);
    for (uint32_t small = 0; small < 100; small++) {
        steps_submit(number++, 1, 50000);
        steps_round(1000);
        EXPECT(steps_run(1));
        steps_round(1000);
        EXPECT(!is_probe(number++));
    }
    while (!is_probe(number++)) { /* small ones come no more */
        EXPECT(number < 400);
    }
    for (uint32_t large = 0; large < 100; large++) {
        EXPECT(!is_probe(number++)); /* nothing is known yet of the first, and a worker idles */
    }
    run_all(3);
    uint32_t probes = 0;
    for (uint32_t large = 0; large < 60000; large++) { /* a minute, in which one a rest would be 37 */
        if (is_probe(number++ % STEPS_SLOTS)) {
            run_all(3);
            probes++;
        }
    }
    printf("probes that were all right: %u\n", probes);
    EXPECT(probes >= 3 && probes <= 6);
    steps_stop();
}

static bool serving;

/* Nothing, or the first to worker 0. */
static uint32_t
perhaps_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    (void)state;
    (void)pairs_max;
    pairs[0] = (struct leat_route_pair){0};
    return serving && input->pending_count > 0 && input->workers[0].outstanding == 0;
}

/* A probe is the query that came last: there is none while that lies behind what a router is shown. */
static void
test_no_probe_behind_what_is_shown(void)
{
    static const struct leat_router router = {.name = "perhaps", .route = perhaps_route};
    static const uint16_t classes[2] = {0, 1};
    const struct steps_options options = {.worker_count = 2,
                                          .classes = classes,
                                          .worker_depth = 1,
                                          .sessions = 2,
                                          .router = &router,
                                          .selector = &leat_selector_single,
                                          .latency_ns = {1000, 200000000000}};
    const struct leat_waiting *waiting = &steps.app.waiting[LEAT_RANK_ONLINE];
    struct leat_wire_response answer;
    uint32_t number = 0;

    steps_start(&options);
    serving = false;
    while (number < LEAT_SCHED_PENDING_MAX + 100) {
        steps_submit(number, 1, number < LEAT_SCHED_PENDING_MAX ? 0 : 60000000); /* a minute, which the second class has not */
        steps_round(1);
        number++;
        EXPECT(steps.app.running == 0);
    }
    serving = true;
    steps_round(2000000);
    while (leat_waiting_count(waiting) >= LEAT_SCHED_PENDING_MAX) {
        EXPECT(steps_run(0));
        steps_round(2000000);
    }
    serving = false;
    EXPECT(steps_run(0));
    steps_submit(number, 1, 60000000);
    steps_round(1);
    EXPECT(steps.app.running == 1 && steps_run(1) && steps_answer(number, &answer) && answer.worker == 1);
    serving = true;
    do {
        steps_round(2000000);
    } while (steps_run(0));
    EXPECT(atomic_load(&steps.app.counters.ok) == number + 1);
    steps_stop();
}

/* ---- Beside online queries ---------------------------------------------------------------------- */

enum { ASKED = 100 };

enum beside {
    BESIDE_ONLINE,
    BESIDE_LATE,
    BESIDE_OFFLINE,
};

static uint32_t
batch_predicted_within(uint64_t ns)
{
    uint32_t items = 1;
    while (items < ASKED && leat_profile_predict(&steps.app.profiles[0][0], items + 1) <= ns) {
        items++;
    }
    return items;
}

/* Queries of the first batch, when so many wait for the worker. */
static uint32_t
first_batch(enum beside kind)
{
    static uint32_t number;
    struct leat_wire_response answer;
    const uint32_t first = number % STEPS_SLOTS < STEPS_SLOTS - ASKED ? number : 0;

    number = first;
    if (kind == BESIDE_OFFLINE) { /* nobody asks online */
        steps_submit_offline(number++, 1);
    } else {
        steps_submit(number++, 1, 0);
    }
    steps_round(1);
    for (uint32_t q = 0; q < ASKED; q++) {
        if (kind == BESIDE_OFFLINE) {
            steps_submit_offline(number++, 1);
        } else {
            steps_submit(number++, 1, kind == BESIDE_LATE); /* in 1 us: late as it comes */
        }
    }
    while (leat_waiting_total(steps.app.waiting) < ASKED) {
        steps_round(1);
    }
    EXPECT(steps.app.running == 1 && steps_run(0));
    steps_round(1);
    const uint32_t batch = steps.app.running;
    while (steps_run(0)) {
        steps_round(1);
        EXPECT(kind == BESIDE_ONLINE || steps.app.running <= batch + 2); /* by what was learned meanwhile */
    }
    for (uint32_t n = first; n < number; n++) {
        EXPECT(steps_answer(n, &answer) && answer.outcome == LEAT_OUTCOME_OK);
    }
    return batch;
}

static void
order(enum leat_command_kind kind, struct leat_application *application, bool ends)
{
    struct leat_event event;

    leat_dispatcher_command(steps.dispatcher, &(struct leat_command){.kind = kind, .application = application});
    steps_round(1);
    EXPECT(leat_dispatcher_poll_event(steps.dispatcher, &event) == ends);
    EXPECT(!ends || event.kind == LEAT_EVENT_APPLICATION_GONE);
}

/* Until whoever asked online did so long ago. */
static void
let_time_pass(void)
{
    for (uint32_t second = 0; second < 12; second++) {
        steps_round(LEAT_INSTANCE_INTERVAL_NS);
    }
}

/* A batch of what is not online takes an eighth of the tightest objective of all applications, or is of one query. */
static void
test_batches_beside_online_ones_are_short(void)
{
    static const uint16_t classes[1];
    const struct steps_options options = {.worker_count = 1,
                                          .classes = classes,
                                          .worker_depth = 1,
                                          .sessions = 1,
                                          .router = &leat_router_fcfs,
                                          .selector = &leat_selector_fixed,
                                          .per_item_ns = {1000000}};
    static struct leat_application others[4];
    static const uint64_t objectives_ns[] = {80000000, 16000000, 1000000, 300000000};

    steps_start(&options);
    for (enum beside kind = BESIDE_ONLINE; kind <= BESIDE_OFFLINE; kind++) {
        const bool cut = kind != BESIDE_ONLINE;
        let_time_pass();
        for (uint32_t a = 0; a < LEAT_COUNT_OF(others); a++) {
            others[a] = (struct leat_application){.id = a < 3 ? 1 : 2, .latency_ns = objectives_ns[a]};
        }
        EXPECT(first_batch(kind) == ASKED);
        order(LEAT_COMMAND_ADD_APPLICATION, &others[0], false);
        const uint32_t tenth = batch_predicted_within(10000000);
        EXPECT(tenth >= 5 && tenth <= 20 && first_batch(kind) == (cut ? tenth : ASKED));
        order(LEAT_COMMAND_ADD_APPLICATION, &others[3], false); /* not so tight */
        const uint32_t same = batch_predicted_within(10000000);
        EXPECT(first_batch(kind) == (cut ? same : ASKED));
        order(LEAT_COMMAND_REPLACE_APPLICATION, &others[1], true);
        const uint32_t few = batch_predicted_within(2000000);
        EXPECT(few < 5 && first_batch(kind) == (cut ? few : ASKED));
        order(LEAT_COMMAND_REPLACE_APPLICATION, &others[2], true);
        EXPECT(first_batch(kind) == (cut ? 1 : ASKED));
        order(LEAT_COMMAND_REMOVE_APPLICATION, &others[2], true);
        const uint32_t wide = batch_predicted_within(37500000);
        EXPECT(wide > 20 && wide < ASKED && first_batch(kind) == (cut ? wide : ASKED));
        order(LEAT_COMMAND_REMOVE_APPLICATION, &others[3], true);
        EXPECT(first_batch(kind) == ASKED);
    }
    steps_stop();
}

/* An offline batch takes an eighth of what a query takes that is asked online, too, or is of one query; a late one need not. */
static void
test_offline_batches_beside_queries_are_shorter(void)
{
    static const uint16_t classes[1];
    const struct steps_options options = {.worker_count = 1,
                                          .classes = classes,
                                          .worker_depth = 1,
                                          .sessions = 1,
                                          .router = &leat_router_fcfs,
                                          .selector = &leat_selector_fixed,
                                          .latency_ns = {16000000},
                                          .per_item_ns = {200000}};

    steps_start(&options);
    EXPECT(first_batch(BESIDE_OFFLINE) == ASKED);
    EXPECT(first_batch(BESIDE_LATE) == ASKED);
    steps_round(LEAT_INSTANCE_INTERVAL_NS);
    EXPECT(first_batch(BESIDE_LATE) == ASKED);
    EXPECT(first_batch(BESIDE_OFFLINE) == 1); /* 16.4 ms is what any batch takes at the least */
    let_time_pass();
    EXPECT(first_batch(BESIDE_OFFLINE) == ASKED);
    steps_stop();
}

/* ---- A share of the workers --------------------------------------------------------------------- */

static struct {
    uint32_t workers, idle;
} told;

static struct leat_selection
told_select(void *state, const struct leat_select_input *input)
{
    (void)state;
    told.workers = input->worker_count;
    told.idle = input->idle_count;
    return (struct leat_selection){.queries = 1};
}

static const struct leat_selector told_selector = {.name = "told", .select = told_select};

/* Who may count on 3 of 5 finds 3 idle, then 2, 1, and always the one that it decides for; what others run is not its own. */
static void
test_a_share_of_the_workers(uint32_t share, uint32_t want_workers, const uint32_t want_idle[WORKERS])
{
    static const uint16_t classes[WORKERS];
    const struct steps_options options = {.worker_count = WORKERS,
                                          .classes = classes,
                                          .worker_depth = 1,
                                          .sessions = 1,
                                          .router = &leat_router_fcfs,
                                          .selector = &told_selector,
                                          .latency_ns = {1000000}};
    struct leat_wire_response ignored;

    steps_start(&options);
    atomic_store_explicit(&steps.app.worker_count, share, memory_order_relaxed);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t q = 0; q < WORKERS; q++) {
            steps_submit(q, 1, 0);
            steps_round(1000);
            EXPECT(told.workers == want_workers && told.idle == want_idle[q]);
        }
        for (uint32_t w = 0; w < WORKERS; w++) {
            EXPECT(steps_run(w));
        }
        steps_round(1000);
        EXPECT(steps.app.running_batches == 0);
        EXPECT(atomic_load_explicit(&steps.app.counters.busy_ns, memory_order_relaxed) >= (round + 1) * WORKERS * 1000000u);
        for (uint32_t q = 0; q < WORKERS; q++) {
            EXPECT(steps_answer(q, &ignored));
        }
    }
    steps_stop();
}

/* Workers' time that is asked for is that of online queries in time: others take what is left. */
static void
test_time_that_is_left_is_not_asked_for(void)
{
    static const uint16_t classes[1];
    const struct steps_options options = {.worker_count = 1,
                                          .classes = classes,
                                          .worker_depth = 1,
                                          .sessions = 1,
                                          .router = &leat_router_fcfs,
                                          .selector = &leat_selector_fixed,
                                          .latency_ns = {1000000}};
    struct leat_wire_response answer;

    steps_start(&options);
    for (uint32_t q = 0; q < 3; q++) {
        if (q == 2) {
            steps_submit_offline(q, 1);
        } else {
            steps_submit(q, 1, q); /* in 1 us: late as it comes */
        }
        steps_round(1000);
        EXPECT(steps_run(0));
        steps_round(1000);
        EXPECT(steps_answer(q, &answer) && answer.outcome == LEAT_OUTCOME_OK && answer.exec_ns >= 1000000);
        EXPECT(atomic_load_explicit(&steps.app.counters.busy_ns, memory_order_relaxed) / 1000000 == 1);
        EXPECT(atomic_load_explicit(&steps.workers[0]->statistics.offline_ns, memory_order_relaxed) ==
               (q == 2 ? answer.exec_ns : 0));
    }
    steps_stop();
}

/* Of more than are kept until all is decided, too. */
static void
test_many_reports_at_once(void)
{
    enum { DEPTH = 60, TWO = 2 };
    static const uint16_t classes[TWO];
    const struct steps_options options = {.worker_count = TWO,
                                          .classes = classes,
                                          .worker_depth = DEPTH,
                                          .sessions = 1,
                                          .router = leat_router_find("shortest_queue"),
                                          .selector = &leat_selector_single,
                                          .latency_ns = {1000000}};
    const struct leat_application_counters *counters = &steps.app.counters;
    struct leat_wire_response answer;

    steps_start(&options);
    const uint32_t before = steps.app.profiles[0][0].number;
    for (uint32_t lap = 1; lap <= 2; lap++) {
        for (uint32_t q = 0; q < TWO * DEPTH; q++) {
            steps_submit(q, 1, 0);
        }
        while (steps.app.running < TWO * DEPTH) {
            steps_round(1000);
        }
        for (uint32_t w = 0; w < TWO; w++) {
            while (steps_run(w)) {
            }
        }
        EXPECT(atomic_load(&counters->ok) == (lap - 1) * TWO * DEPTH);
        steps_round(1000);
        EXPECT(atomic_load(&counters->ok) == lap * TWO * DEPTH && steps.app.running == 0);
        EXPECT(steps.app.profiles[0][0].number - before == lap * TWO * DEPTH);
        for (uint32_t q = 0; q < TWO * DEPTH; q++) {
            EXPECT(steps_answer(q, &answer) && answer.outcome == LEAT_OUTCOME_OK);
        }
    }
    steps_stop();
}

/* ---- Batches behind batches --------------------------------------------------------------------- */

/* Of one worker that may be given another batch while one runs: what comes until shortly before its end is one batch, if it is not full. */
static void
test_batches_are_made_late(const struct leat_selector *selector, uint64_t item_ns, uint32_t items_max)
{
    static const uint16_t classes[1];
    const struct steps_options options = {.worker_count = 1,
                                          .classes = classes,
                                          .worker_depth = 2,
                                          .sessions = 1,
                                          .router = &leat_router_fcfs,
                                          .selector = selector,
                                          .items_max = items_max,
                                          .per_item_ns = {item_ns}};
    const bool late = !selector->single && item_ns > 1000000;

    steps_start(&options);
    for (uint32_t n = 0; n < 3; n++) {
        const bool ahead = n > 0 && (!late || n == items_max);
        steps_submit(n, 1, 0);
        steps_round(1);
        EXPECT(steps.workers[0]->dispatcher.batches == 1u + ahead);
        EXPECT(leat_waiting_total(steps.app.waiting) == (!ahead ? n : late ? n - items_max : n - 1));
    }
    steps_round(item_ns - 500000);
    EXPECT(steps.workers[0]->dispatcher.batches == 2 && leat_waiting_total(steps.app.waiting) == !late);
    EXPECT(steps_run(0) && steps_run(0) && steps.ran.count == (late ? 2 : 1));
    while (steps_round(1) || steps_run(0)) {
    }
    steps_stop();
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    test_pairs_in_any_order();
    test_shows_no_more_than_it_may();
    test_selector_sees_what_the_router_sees();
    test_removal_leaves_the_rest_alone();
    test_held_back_is_shown_again(&holding_router, &leat_selector_single);
    test_held_back_is_shown_again(&leat_router_fcfs, &holding_selector);
    test_free_at_is_honest();
    test_admission_behind_what_has_time();
    test_admission_counts_batches();
    test_probes_of_a_class();
    test_probes_are_spared();
    test_no_probe_behind_what_is_shown();
    test_batches_beside_online_ones_are_short();
    test_offline_batches_beside_queries_are_shorter();
    test_a_share_of_the_workers(3, 3, (const uint32_t[WORKERS]){3, 2, 1, 1, 1});
    test_a_share_of_the_workers(0, WORKERS, (const uint32_t[WORKERS]){5, 4, 3, 2, 1});
    test_a_share_of_the_workers(9, WORKERS, (const uint32_t[WORKERS]){5, 4, 3, 2, 1});
    test_time_that_is_left_is_not_asked_for();
    test_many_reports_at_once();
    test_batches_are_made_late(&leat_selector_fixed, 10000000, 8);
    test_batches_are_made_late(&leat_selector_fixed, 10000000, 2);
    test_batches_are_made_late(&leat_selector_fixed, 900000, 8); /* it ends before long */
    test_batches_are_made_late(&leat_selector_single, 10000000, 8);
    return 0;
}
