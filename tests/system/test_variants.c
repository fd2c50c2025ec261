/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A completion's variant is its place in the application's list of models, whatever else the daemon serves and
 *          has stopped serving; 65535 where no variant was reached.
 * Method   leatd with synthetic models; accuracy floors choose among them. Models come and go in between.
 */
#include <signal.h>

#include "tests/system/leatd.h"

/* The variant that answers `application` at a floor or, where none can, comes closest. */
static uint32_t
ask(struct leat_session *session, const char *application, uint32_t floor_ppm)
{
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_target target;
    struct leat_completion done;

    EXPECT(leat_find(session, application, &target) == LEAT_OK);
    query.target = target.id;
    query.accuracy_floor_ppm = floor_ppm;
    for (uint32_t t = 0; t < 2; t++) {
        EXPECT(leat_tensor_alloc(session, target.tensors[t].item_bytes, &query.tensors[t]) == LEAT_OK);
    }
    EXPECT(leat_run(session, &query, &done) == LEAT_OK);
    EXPECT(done.outcome == LEAT_OUTCOME_OK ||
           (done.outcome == LEAT_OUTCOME_REJECTED && done.reason == LEAT_REASON_ACCURACY && done.worker == UINT16_MAX));
    EXPECT((done.outcome == LEAT_OUTCOME_OK) == (done.accuracy_ppm >= floor_ppm));
    for (uint32_t t = 0; t < 2; t++) {
        leat_tensor_free(session, query.tensors[t]);
    }
    return done.variant;
}

static void
expect_name(struct leat_session *session, const char *application, uint32_t variant, const char *name)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}"), *row;
    const char *found = NULL;
    size_t i;

    json_array_foreach(json_object_get(status, "applications"), i, row) {
        if (strcmp(json_string_value(json_object_get(row, "name")), application) == 0) {
            found = json_string_value(json_array_get(json_object_get(row, "models"), variant));
        }
    }
    EXPECT(found != NULL && strcmp(found, name) == 0);
    json_decref(status);
}

static void
check_all(struct leat_session *session)
{
    static const struct {
        const char *application, *name;
        uint32_t floor_ppm, variant;
    } cases[] = {
        {"two", "rough", 0, 0},      {"two", "rough", 500000, 0}, {"two", "fine", 500001, 1}, {"two", "fine", 900000, 1},
        {"thrifty", "slow-rough", 0, 1}, {"thrifty", "slow-fine", 500001, 0},
        {"reversed", "fine", 0, 0},  {"rough", "rough", 0, 0},    {"fine", "fine", 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        EXPECT(ask(session, cases[i].application, cases[i].floor_ppm) == cases[i].variant);
        expect_name(session, cases[i].application, cases[i].variant, cases[i].name);
    }
    EXPECT(ask(session, "two", 900001) == 1);
    EXPECT(ask(session, "reversed", 1000000) == 0);
}

/* A refusal says why, and what would come closest. */
static void
check_refusals(struct leat_session *session)
{
    static const struct {
        uint64_t latency_ns;
        uint32_t floor_ppm, cost_cap_nano;
        enum leat_reason reason;
        uint32_t variant;
    } cases[] = {
        /* rough takes 10 ms and costs 10000, fine 20 ms and 20000; more on a busy machine, never less. */
        {0, 0, 0, LEAT_REASON_NONE, 0},
        {0, 0, UINT32_MAX, LEAT_REASON_NONE, 0},
        {0, 0, 9000, LEAT_REASON_COST, 0},
        {0, 500001, 19000, LEAT_REASON_COST, 1},
        {0, 500001, UINT32_MAX, LEAT_REASON_NONE, 1},
        {0, 950000, 1, LEAT_REASON_ACCURACY, 1},
        {5000000, 0, 0, LEAT_REASON_DEADLINE, 0},
        {15000000, 500001, 0, LEAT_REASON_DEADLINE, 1},
    };
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_completion done;
    struct leat_target target;

    EXPECT(leat_find(session, "priced", &target) == LEAT_OK);
    query.target = target.id;
    for (uint32_t t = 0; t < 2; t++) {
        EXPECT(leat_tensor_alloc(session, target.tensors[t].item_bytes, &query.tensors[t]) == LEAT_OK);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        query.latency_ns = cases[i].latency_ns;
        query.accuracy_floor_ppm = cases[i].floor_ppm;
        query.cost_cap_nano = cases[i].cost_cap_nano;
        EXPECT(leat_run(session, &query, &done) == LEAT_OK);
        EXPECT(done.reason == cases[i].reason && done.variant == cases[i].variant);
        EXPECT((done.outcome == LEAT_OUTCOME_OK) == (cases[i].reason == LEAT_REASON_NONE));
        EXPECT(done.accuracy_ppm == (cases[i].variant == 0 ? 500000 : 900000));
        EXPECT(done.exec_ns > 5000000 * (1 + cases[i].variant)); /* what it took, or would take */
    }
    leat_tensor_free(session, query.tensors[0]);
    leat_tensor_free(session, query.tensors[1]);
}

/* What each application goes by reaches the dispatcher. */
static void
check_percentiles(struct leat_session *session)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}");
    const json_t *applications = json_object_get(status, "applications"), *app;
    size_t i;
    uint32_t seen = 0;

    json_array_foreach(applications, i, app) {
        const char *name = json_string_value(json_object_get(app, "name"));
        const json_t *percentile = json_object_get(app, "percentile");
        seen++;
        if (strcmp(name, "reversed") == 0) {
            EXPECT(strcmp(json_string_value(percentile), "mean") == 0);
        } else {
            const double expected = strcmp(name, "two") == 0 ? 99.5 : 95;
            EXPECT(json_real_value(percentile) > expected - 0.001 && json_real_value(percentile) < expected + 0.001);
        }
    }
    EXPECT(seen == 9);
    json_decref(status);
}

/* Each model of each application is on all workers, and nothing hinders it. */
static void
check_instances(struct leat_session *session)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}"), *app, *states;
    const size_t workers = json_array_size(json_object_get(status, "workers"));
    size_t i, v;

    EXPECT(workers > 0);
    json_array_foreach(json_object_get(status, "applications"), i, app) {
        const json_t *instances = json_object_get(app, "instances");
        EXPECT(json_array_size(instances) == json_array_size(json_object_get(app, "models")));
        json_array_foreach(instances, v, states) {
            EXPECT(json_object_size(states) == 5 && leatd_number(states, "inactive") == 0);
            EXPECT(leatd_number(states, "loading") == 0 && leatd_number(states, "overloaded") == 0);
            EXPECT(leatd_number(states, "active") + leatd_number(states, "interfered") == workers);
        }
    }
    json_decref(status);
}

int
main(void)
{
    struct leatd leatd;

    leat_test_init();
    leatd_init(&leatd);
    leatd_start(&leatd, "classes: [{name: cpu, price: 3.6}]\n"
                      "models:\n"
                      "  - {name: slow-rough, backend: synthetic, accuracy: 0.5, synthetic: {latency: 10ms}}\n"
                      "  - {name: slow-fine, backend: synthetic, accuracy: 0.9, synthetic: {latency: 20ms}}\n"
                      "  - {name: first, backend: synthetic, synthetic: {latency: 1us}}\n"
                      "  - {name: rough, backend: synthetic, accuracy: 0.5, synthetic: {latency: 1us}}\n"
                      "  - {name: fine, backend: synthetic, accuracy: 0.9, synthetic: {latency: 2us}}\n"
                      "applications:\n"
                      "  - {name: priced, models: [slow-rough, slow-fine]}\n"
                      "  - {name: thrifty, models: [slow-fine, slow-rough], selector: infaas}\n"
                      "  - {name: two, models: [rough, fine], percentile: 99.5}\n"
                      "  - {name: reversed, models: [fine, rough], percentile: mean}\n");
    struct leat_session *session = leatd_open_session(&leatd, 4, 1 << 16);
    check_all(session);
    check_percentiles(session);
    check_instances(session);
    check_refusals(session);
    json_decref(leatd_request(session, "{\"op\":\"model-remove\",\"name\":\"first\"}"));
    json_decref(leatd_request(session, "{\"op\":\"model-add\",\"name\":\"later\",\"backend\":\"synthetic\"}"));
    check_all(session);
    EXPECT(ask(session, "later", 0) == 0);
    leat_close(session);
    leatd_signal(&leatd, SIGTERM);
    EXPECT(leatd_await_end(&leatd) == 0);
    leatd_fini(&leatd);
    return 0;
}
