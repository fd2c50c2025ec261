/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Workers of several classes, each with its own times, through leatd: an application without them gets the
 *          router and the selector for workers that differ, a threshold is obeyed, and status tells classes, policies and
 *          decision times.
 * Method   leatd with more synthetic workers than cores, which sleep for what a table of times says; clients ask for
 *          several sizes at once. A batch takes no less time than its class says; no upper bound is tested.
 */
#include <signal.h>
#include <string.h>

#include "sched/policy.h"
#include "tests/system/leatd.h"

enum { QUERIES = 60, FAST = 3, SLOW = 9 };

static const char times[] = "model,instance,batch,s0,s1\n"
                            "m,fast,4,1.0,1.5\nm,fast,8,2.0,2.5\n"
                            "other,fast,8,9,9\n"
                            "m,slow,4,3.0,3.5\nm,slow,8,6.0,6.5\n";

static const char config[] = "limits: {sessions: 4, sessions_per_user: 4}\n"
                             "classes: [{name: slow, price: 0.25}, {name: fast, price: 0.526, count_max: 5}]\n"
                             "workers: [{class: fast, count: 3}, {class: slow, count: 9}]\n"
                             "models:\n"
                             "  - name: m\n"
                             "    backend: synthetic\n"
                             "    items_max: 8\n"
                             "    synthetic: {times: %s/times.csv, times_model: m}\n"
                             "applications:\n"
                             "  - {name: mixed, models: [m], latency: 10s}\n"
                             "  - {name: split, models: [m], router: threshold, threshold: 2}\n"
                             "  - {name: plain, models: [m], router: fcfs, selector: single}\n"
                             "  - {name: batched, models: [m], router: fcfs}\n";

static struct leatd leatd;

static const json_t *
find(const json_t *list, const char *name)
{
    size_t i;
    json_t *row;
    json_array_foreach(list, i, row) {
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0) {
            return row;
        }
    }
    EXPECT(!"it is listed");
    return NULL;
}

static bool
text_is(const json_t *object, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value != NULL && strcmp(value, text) == 0;
}

/* Many at once, each size in turn; which class served each shows in how long it took. */
static void
ask_many(struct leat_session *session, const char *application, uint32_t slow_max, uint32_t *of_class)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}");
    const json_t *workers = json_object_get(status, "workers");
    struct leat_completion done[QUERIES];
    struct leat_target target;
    uint32_t ended = 0;

    EXPECT(leat_find(session, application, &target) == LEAT_OK && target.items_max == 8);
    for (uint32_t q = 0; q < QUERIES; q++) {
        struct leat_query query = LEAT_QUERY_INIT;
        query.target = target.id;
        query.items = 1 + q % 8;
        query.user_data = q;
        for (uint32_t t = 0; t < 2; t++) {
            EXPECT(leat_tensor_alloc(session, target.tensors[t].item_bytes * query.items, &query.tensors[t]) == LEAT_OK);
        }
        EXPECT(leat_submit(session, &query, NULL) == LEAT_OK);
    }
    while (ended < QUERIES) {
        size_t count = 0;
        EXPECT(leat_wait(session, done, QUERIES, UINT64_MAX, &count) == LEAT_OK);
        for (size_t i = 0; i < count; i++) {
            const uint32_t items = 1 + (uint32_t)done[i].user_data % 8;
            const json_t *worker = json_array_get(workers, done[i].worker);
            const bool fast = text_is(worker, "class_name", "fast");
            EXPECT(done[i].outcome == LEAT_OUTCOME_OK && done[i].batch_items == items);
            EXPECT(fast || (text_is(worker, "class_name", "slow") && items <= slow_max));
            EXPECT(done[i].exec_ns >= (fast ? 1000000u : 3000000u) * (items > 4 ? 2 : 1));
            of_class[fast ? 0 : 1]++;
        }
        ended += (uint32_t)count;
    }
    json_decref(status);
}

static void
check_status(struct leat_session *session)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}");
    const json_t *applications = json_object_get(status, "applications"), *classes = json_object_get(status, "classes");
    const json_t *decisions = json_object_get(json_object_get(status, "dispatcher"), "decision_ns");
    const json_t *fast = find(classes, "fast"), *slow = find(classes, "slow");
    uint64_t counted = 0;
    size_t i;
    json_t *bucket;

    EXPECT(json_array_size(classes) == 2);
    EXPECT(leatd_number(fast, "price_micro_per_hour") == 526000 && leatd_number(fast, "count_max") == 5);
    EXPECT(leatd_number(fast, "workers") == FAST && leatd_number(fast, "cores") == 1);
    EXPECT(leatd_number(slow, "price_micro_per_hour") == 250000 && leatd_number(slow, "count_max") == SLOW);
    EXPECT(text_is(find(applications, "plain"), "router", "fcfs"));
    EXPECT(text_is(find(applications, "mixed"), "router", LEAT_ROUTER_DEFAULT_MIXED));
    EXPECT(text_is(find(applications, "m"), "router", LEAT_ROUTER_DEFAULT_MIXED));
    EXPECT(text_is(find(applications, "m"), "selector", "single") &&
           text_is(find(applications, "mixed"), "selector", "single"));
    EXPECT(text_is(find(applications, "split"), "selector", "single") &&
           text_is(find(applications, "plain"), "selector", "single"));
    EXPECT(text_is(find(applications, "batched"), "selector", "fixed"));
    json_array_foreach(json_object_get(decisions, "buckets"), i, bucket) {
        counted += (uint64_t)json_integer_value(json_array_get(bucket, 1));
    }
    EXPECT(leatd_number(decisions, "count") >= 2 * QUERIES / 12 && counted >= leatd_number(decisions, "count"));
    EXPECT(leatd_number(decisions, "p50") > 0 && leatd_number(decisions, "p50") <= leatd_number(decisions, "p99"));
    EXPECT(leatd_number(decisions, "p999") <= leatd_number(decisions, "max"));
    json_decref(status);
}

int
main(void)
{
    char yaml[sizeof(config) + 200];
    uint32_t mixed[2] = {0}, plain[2] = {0}, split[2] = {0};

    leat_test_init();
    leatd_init(&leatd);
    fake_root_write(&leatd.root, "/times.csv", times);
    (void)snprintf(yaml, sizeof(yaml), config, leatd.root.path);
    leatd_start(&leatd, yaml);
    struct leat_session *session = leatd_open_session(&leatd, 64, 1 << 20);
    ask_many(session, "mixed", 8, mixed);
    ask_many(session, "plain", 8, plain);
    ask_many(session, "split", 2, split); /* larger ones are the fastest class's */
    EXPECT(split[1] > 0 && mixed[0] + mixed[1] == QUERIES && mixed[0] > 0 && mixed[1] > 0 && plain[0] > 0 && plain[1] > 0);
    check_status(session);
    leat_close(session);
    leatd_signal(&leatd, SIGTERM);
    EXPECT(leatd_await_end(&leatd) == 0);
    leatd_fini(&leatd);
    return 0;
}
