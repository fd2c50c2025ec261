/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     SIGTERM lets what was accepted be answered, for as long as `drain` says; a second one does not wait. systemd
 *          hears of the end first, and of progress until the end. What was not answered is counted in the log, and what
 *          cannot be ended does not hold the process up.
 * Method   leatd as a process with a synthetic model: a batch of three items takes as long as the test says, an hour for
 *          those that must not end by themselves, and all others no time, so that loading it is quick.
 */
#include <signal.h>
#include <unistd.h>

#include "base/align.h"
#include "tests/system/leatd.h"

enum { QUERIES = 4, ITEMS = 3 };

#define HOUR_NS UINT64_C(3600000000000)

static void
add_model(struct leat_session *session, uint64_t batch_ns)
{
    char text[512];
    (void)snprintf(
        text, sizeof(text),
        "{\"op\":\"model-add\",\"name\":\"slow\",\"backend\":\"synthetic\",\"items_max\":4,\"options\":{\"points\":["
        "{\"items\":1,\"latency_ns\":0},{\"items\":2,\"latency_ns\":0},{\"items\":3,\"latency_ns\":%llu},"
        "{\"items\":4,\"latency_ns\":0}]}}",
        (unsigned long long)batch_ns);
    json_t *answer = leatd_request(session, text);
    EXPECT(json_object_get(answer, "latency_ns") != NULL);
    json_decref(answer);
}

/* A daemon with one worker, and QUERIES of ITEMS that it has accepted. Each is a batch of its own: two have no room. */
static struct leat_session *
start_with_queries(struct leatd *leatd, const char *drain, uint64_t batch_ns)
{
    struct leat_target target;
    char yaml[256];

    leatd_init(leatd);
    (void)snprintf(yaml, sizeof(yaml), "%sworkers: [{count: 1}]\n", drain);
    leatd_start(leatd, yaml);
    struct leat_session *session = leatd_open_session(leatd, 16, 1 << 16);
    add_model(session, batch_ns);
    EXPECT(leat_find(session, "slow", &target) == LEAT_OK);
    for (uint64_t q = 0; q < QUERIES; q++) {
        struct leat_query query = LEAT_QUERY_INIT;
        query.target = target.id;
        query.items = ITEMS;
        query.user_data = q;
        for (uint32_t t = 0; t < 2; t++) {
            EXPECT(leat_tensor_alloc(session, ITEMS * target.tensors[t].item_bytes, &query.tensors[t]) == LEAT_OK);
        }
        EXPECT(leat_submit(session, &query, NULL) == LEAT_OK);
    }
    while (leatd_counter(session, "accepted") < QUERIES) {
        leat_test_look_later();
    }
    return session;
}

static void
expect_all(struct leat_session *session, enum leat_outcome outcome)
{
    struct leat_completion done;
    size_t count;

    for (uint32_t q = 0; q < QUERIES; q++) {
        EXPECT(leat_wait(session, &done, 1, UINT64_MAX, &count) == LEAT_OK && count == 1);
        EXPECT(done.outcome == outcome);
    }
    EXPECT(leat_in_flight(session) == 0);
}

/* A batch that the worker has begun ends with the process, which says so; one that it has not is not begun any more. */
static void
expect_end(struct leatd *leatd)
{
    const int code = leatd_await_end(leatd);
    EXPECT(code == (leatd_logged(leatd, "run on after the drain") ? 1 : 0));
}

static void
test_what_was_accepted_is_answered(void)
{
    struct leatd leatd;
    struct leat_session *session = start_with_queries(&leatd, "", 50000000);

    leatd_signal(&leatd, SIGTERM);
    expect_all(session, LEAT_OUTCOME_OK);
    EXPECT(leatd_await_end(&leatd) == 0);
    EXPECT(!leatd_logged(&leatd, "not answered"));
    leat_close(session);
    leatd_fini(&leatd);
}

/* A client that comes now is told so, rather than kept waiting for an answer. */
static void
expect_nobody_listens(const struct leatd *leatd)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    struct leat_session *session;
    enum leat_status status;

    options.socket_path = leatd->socket_path;
    do { /* the notice precedes the end of listening by a moment, and who was accepted in it is refused with a reason */
        status = leat_open(&options, &session);
    } while (status != LEAT_ERR_SYS);
    EXPECT(access(leatd->socket_path, F_OK) != 0);
}

/* Four batches of an hour: the drain goes on until the second signal. */
static void
test_a_second_signal_ends_the_drain(void)
{
    struct leatd leatd;
    struct leat_session *session = start_with_queries(&leatd, "drain: 1000s\n", HOUR_NS);

    leatd_signal(&leatd, SIGTERM);
    leatd_await_notice(&leatd, "STOPPING=1");
    expect_nobody_listens(&leatd);
    leatd_await_notice(&leatd, "WATCHDOG=1");
    leatd_await_notice(&leatd, "WATCHDOG=1");
    EXPECT(leatd_counter(session, "accepted") == QUERIES); /* it still says what it does */
    leatd_signal(&leatd, SIGTERM);
    leatd_await_notice(&leatd, "WATCHDOG=1"); /* while it gives the running batch a moment */
    expect_all(session, LEAT_OUTCOME_LOST);
    expect_end(&leatd);
    EXPECT(leatd_logged(&leatd, "told to stop again, the drain ends: at most 4 accepted queries were not answered"));
    leat_close(session);
    leatd_fini(&leatd);
}

static void
test_the_drain_has_an_end(void)
{
    struct leatd leatd;
    struct leat_session *session = start_with_queries(&leatd, "drain: 1ms\n", HOUR_NS);

    leatd_signal(&leatd, SIGINT);
    expect_all(session, LEAT_OUTCOME_LOST);
    expect_end(&leatd);
    EXPECT(leatd_logged(&leatd, "the time to drain is over: at most 4 accepted queries were not answered"));
    leat_close(session);
    leatd_fini(&leatd);
}

int
main(void)
{
    leat_test_init();
    test_what_was_accepted_is_answered();
    test_a_second_signal_ends_the_drain();
    test_the_drain_has_an_end();
    return 0;
}
