/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     leat status and leat app show say, as text and as JSON, in what state instances are: active, interfered and on
 *          which worker, and active again; of models that are being loaded, and of such as could not be.
 * Method   Batches of a synthetic model last longer than the profile says when they have a size of which the profile has no knot,
 *          and takes them to last as long as their neighbours; that the first worker is taken for interfered follows, and that
 *          selector infaas goes to the other one.
 */
#include <signal.h>

#include "tests/system/leatd.h"
#include "tests/tools/command.h"

enum {
    WORKERS = 2,
    STEADY = 1, /* items of a batch, which takes 10 ms */
    SLOW = 17,  /* and 60 ms: sched/profile.h has knots at 16 and 18 */
    ASKED_MAX = 3000,
    TRIES_MAX = 300,
};

static struct leatd leatd;
static struct command command;
static struct leat_session *session;

static void
run_leat(const char *const *arguments)
{
    EXPECT(command_run(&command, leatd.socket_path, arguments) == 0);
}
#define LEAT(...) run_leat((const char *const[]){__VA_ARGS__, NULL})

static bool
printed(const char *text)
{
    return strstr(command.out, text) != NULL;
}

/* The states of the model as the application has it, whether it is served or not; the caller's. */
static json_t *
states_of(const char *application, const char *model)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}"), *app, *row, *found = NULL;
    size_t a, m;

    json_array_foreach(json_object_get(status, "applications"), a, app) {
        if (strcmp(json_string_value(json_object_get(app, "name")), application) == 0) {
            json_array_foreach(json_object_get(app, "models"), m, row) {
                if (strcmp(json_string_value(row), model) == 0) {
                    found = json_incref(json_array_get(json_object_get(app, "instances"), m));
                }
            }
        }
    }
    json_array_foreach(json_object_get(status, "unserved"), m, row) {
        if (strcmp(json_string_value(json_object_get(row, "application")), application) == 0 &&
            strcmp(json_string_value(json_object_get(row, "model")), model) == 0) {
            EXPECT(found == NULL);
            found = json_incref(row);
        }
    }
    json_decref(status);
    return found;
}

static uint64_t
count_of(const char *application, const char *model, const char *state)
{
    json_t *states = states_of(application, model);
    const uint64_t count = states != NULL ? leatd_number(states, state) : 0;
    json_decref(states);
    return count;
}

/* Sums are those of the rows. */
static void
expect_sums(void)
{
    static const char *const names[] = {"inactive", "loading", "active", "overloaded", "interfered"};
    json_t *status = leatd_request(session, "{\"op\":\"status\"}"), *app, *states;
    size_t a, v;

    for (size_t s = 0; s < 5; s++) {
        uint64_t sum = 0;
        json_array_foreach(json_object_get(status, "applications"), a, app) {
            json_array_foreach(json_object_get(app, "instances"), v, states) {
                sum += leatd_number(states, names[s]);
            }
        }
        json_array_foreach(json_object_get(status, "unserved"), v, states) {
            sum += leatd_number(states, names[s]);
        }
        EXPECT(leatd_number(json_object_get(status, "instances"), names[s]) == sum);
    }
    json_decref(status);
}

/* ---- Interfered ---------------------------------------------------------------------------------- */

/* Asks, and waits for the answer; returns the worker. All that is waited for comes with so many queries at most. */
static uint32_t
ask(const struct leat_target *target, uint32_t items)
{
    static uint32_t asked;
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_completion done;
    uint64_t ticket;
    size_t count;

    EXPECT(asked++ < ASKED_MAX);
    query.target = target->id;
    query.items = items;
    for (uint32_t t = 0; t < 2; t++) {
        EXPECT(leat_tensor_alloc(session, items * target->tensors[t].item_bytes, &query.tensors[t]) == LEAT_OK);
    }
    EXPECT(leat_submit(session, &query, &ticket) == LEAT_OK);
    EXPECT(leat_wait(session, &done, 1, UINT64_MAX, &count) == LEAT_OK && done.outcome == LEAT_OUTCOME_OK);
    for (uint32_t t = 0; t < 2; t++) {
        leat_tensor_free(session, query.tensors[t]);
    }
    return done.worker;
}

static void
test_interfered(void)
{
    struct leat_target target;
    uint32_t elsewhere = 0;

    EXPECT(leat_find(session, "steady", &target) == LEAT_OK);
    EXPECT(ask(&target, STEADY) == 0); /* the first that is idle */
    EXPECT(count_of("steady", "steady-10ms", "active") == WORKERS);
    LEAT("app", "show", "steady");
    EXPECT(printed("    instances: 2 active\n"));
    while (count_of("steady", "steady-10ms", "interfered") == 0) {
        (void)ask(&target, SLOW);
    }
    while (elsewhere < 5) { /* while it is, the other worker serves */
        const bool before = count_of("steady", "steady-10ms", "interfered") == 1;
        const uint32_t worker = ask(&target, STEADY);
        const bool after = count_of("steady", "steady-10ms", "interfered") == 1;
        if (!before || !after) { /* tried again meanwhile: slow again, it is found so again */
            (void)ask(&target, SLOW);
            continue;
        }
        EXPECT(worker < WORKERS);
        elsewhere += worker == 1;
        LEAT("app", "show", "steady", "--json");
        json_t *app = json_loads(command.out, 0, NULL), *variant = json_array_get(json_object_get(app, "variants"), 0);
        const json_t *on = json_object_get(variant, "interfered_on");
        if (count_of("steady", "steady-10ms", "interfered") == 1 && json_array_size(on) == 1) {
            EXPECT(json_integer_value(json_array_get(on, 0)) == 0 && worker == 1);
        }
        json_decref(app);
    }
    do {
        while (count_of("steady", "steady-10ms", "interfered") == 0) {
            (void)ask(&target, SLOW);
        }
        LEAT("app", "show", "steady");
    } while (!printed("    instances: 1 active, 1 interfered (worker 0)\n"));
    do {
        while (count_of("steady", "steady-10ms", "interfered") == 0) {
            (void)ask(&target, SLOW);
        }
        LEAT("status");
    } while (!printed(" 1 interfered, 0 loading, 2 inactive\n"));
    EXPECT(printed("steady                   steady-10ms                      0         0         1          0          1\n"));
    while (count_of("steady", "steady-10ms", "active") < WORKERS) { /* nothing hinders it any more */
        (void)ask(&target, STEADY);
    }
}

/* ---- Not served ---------------------------------------------------------------------------------- */

static void
test_loading(const char *file)
{
    const char *const add[] = {"model", "add", "slow", file, "--items-max", "64", NULL};
    bool seen = false;

    /* Of a network, what batches take is measured while it loads; a look at that comes too late where the machine is busy. */
    for (uint32_t tries = 0; !seen; tries++) {
        EXPECT(tries < TRIES_MAX);
        command_start(&command, leatd.socket_path, add);
        while (count_of("slow", "slow", "active") == 0) {
            const uint64_t loading = count_of("slow", "slow", "loading");
            EXPECT(loading == 0 || loading == WORKERS);
            seen = seen || loading > 0;
            expect_sums();
        }
        command_finish(&command);
        EXPECT(command.exit_code == 0 && count_of("slow", "slow", "loading") == 0);
        LEAT("model", "remove", "slow");
    }
    EXPECT(count_of("slow", "slow", "active") == 0);
}

static void
test_inactive(void)
{
    EXPECT(count_of("broken", "gone", "inactive") == WORKERS);
    LEAT("app", "show", "broken");
    EXPECT(printed("gone: not loaded: there is no such model\n    instances: 2 inactive\n"));
    LEAT("status");
    EXPECT(printed("0 loading, 2 inactive\n"));
    EXPECT(printed("broken                   gone                             2         0         0          0          0\n"));
    expect_sums();
}

int
main(int argc, char *argv[])
{
    static char yaml[1024];

    EXPECT(argc == 2); /* a network */
    leat_test_init();
    leatd_init(&leatd);
    leatd_start(&leatd, "models:\n  - {name: gone, backend: synthetic}\n");
    LEAT("app", "add", "broken", "--models", "gone");
    leatd_end(&leatd, SIGTERM);
    fake_root_write(&leatd.root, "/times.csv", "model,instance,batch,mean_ms\nm,worker,16,10\nm,worker,17,60\nm,worker,18,10\n");
    (void)snprintf(yaml, sizeof(yaml),
                   "classes: [{name: worker}]\n"
                   "workers: [{class: worker, count: 2}]\n"
                   "models:\n"
                   "  - {name: steady-10ms, backend: synthetic, items_max: 18, synthetic: {times: %s/times.csv, times_model: m}}\n"
                   "applications:\n"
                   "  - {name: steady, models: [steady-10ms], selector: infaas}\n",
                   leatd.root.path);
    leatd_start(&leatd, yaml);
    session = leatd_open_session(&leatd, 4, 1 << 16);
    test_inactive();
    test_interfered();
    test_loading(argv[1]);
    expect_sums();
    leat_close(session);
    leatd_signal(&leatd, SIGTERM);
    EXPECT(leatd_await_end(&leatd) == 0);
    leatd_fini(&leatd);
    return 0;
}
