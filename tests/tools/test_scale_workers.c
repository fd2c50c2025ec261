/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     `leat scale` shows what the daemon says, changes one worker's cores, says of a wrong use what to do, and of a
 *          worker what it is to have and has not yet, and whether it stays though disturbed; where cores follow the load it shows who has what and why, and
 *          changes nothing.
 * Method   The command as a process beside leatd, with workers that have their size for good and one that has not; then beside one
 *          that scales an application, and another that is not there.
 */
#include <sched.h>
#include <signal.h>

#include "tests/system/leatd.h"
#include "tests/tools/command.h"

static const char config[] = "cgroups: off\n"
                             "workers: [{count: 1, cores: 1}, {count: 1, cores: 1, cores_max: 2, class: elastic}]\n";

static const char scaled[] = "scaling: {mode: leat, interval: 20ms, hold: 2s, applications: [{name: app}, {name: late}]}\n"
                             "workers: [{count: 2, cores: 1}]\n"
                             "applications: [{name: app, models: [model], latency: 1s}]\n"
                             "models: [{name: model, backend: synthetic}]\n";

static const char slow[] = "workers: [{count: 1, cores: 1, cores_max: 2}]\n"
                           "models: [{name: model, backend: synthetic, items_max: 1, synthetic: {latency: 300ms}}]\n";

static bool
has_worker(const struct leatd *leatd)
{
    struct leat_session *session = leatd_open_session(leatd, 2, 4096);
    json_t *shown = leatd_request(session, "{\"op\":\"scale-show\"}");
    const json_t *app = json_array_get(json_object_get(json_object_get(shown, "scaling"), "applications"), 0);
    const bool has = leatd_number(app, "instances") == 1;

    json_decref(shown);
    leat_close(session);
    return has;
}

static void
test_scaling(void)
{
    static struct command command;
    struct leatd leatd;

    leatd_init(&leatd);
    leatd_start(&leatd, scaled);
    while (!has_worker(&leatd)) {
        leat_test_look_later();
    }
    const char *socket_path = leatd.socket_path;
    command_expect(&command, socket_path, 0, "scaling: leat, every 20.00 ms, forecast off", (const char *const[]){"scale", "show", NULL});
    EXPECT(strstr(command.out, "is not scaled: there is no application or pipeline of that name") != NULL);
    EXPECT(strstr(command.out, "app: 1 on 1 cores, 0 starting, before 0 on 0, 0 starting") != NULL);
    command_expect(&command, socket_path, 3, "workers follow the load", (const char *const[]){"scale", "set", "0", "--cores", "1", NULL});
    leatd_end(&leatd, SIGTERM);
    leatd_fini(&leatd);
}

/* While a worker is in a batch and another command waits for its end; where one comes too late, once more. */
static void
test_pending(void)
{
    enum { QUERIES = 3 };
    static const char *const sizes[] = {"1", "2"};
    static struct command setting, showing;
    struct leat_query queries[QUERIES];
    struct leat_completion done;
    struct leat_target target;
    struct leatd leatd;
    bool seen = false;
    size_t count;

    leatd_init(&leatd);
    leatd_start(&leatd, slow);
    struct leat_session *session = leatd_open_session(&leatd, QUERIES, 1 << 16);
    EXPECT(leat_find(session, "model", &target) == LEAT_OK);
    for (uint32_t q = 0; q < QUERIES; q++) {
        queries[q] = (struct leat_query)LEAT_QUERY_INIT;
        queries[q].target = target.id;
        queries[q].user_data = q;
        for (uint32_t t = 0; t < 2; t++) {
            EXPECT(leat_tensor_alloc(session, target.tensors[t].item_bytes, &queries[q].tensors[t]) == LEAT_OK);
        }
        EXPECT(leat_submit(session, &queries[q], NULL) == LEAT_OK);
    }
    json_t *shown = leatd_request(session, "{\"op\":\"scale-show\"}");
    const bool free_core = leatd_number(json_array_get(json_object_get(shown, "nodes"), 0), "free_cores") > 0;
    json_decref(shown);
    for (uint32_t turn = 1; free_core && !seen; turn++) {
        command_start(&setting, leatd.socket_path,
                      (const char *const[]){"scale", "set", "0", "--cores", sizes[turn % 2], NULL});
        for (uint32_t look = 0; look < 4 && !seen; look++) {
            EXPECT(command_run(&showing, leatd.socket_path, (const char *const[]){"scale", "show", NULL}) == 0);
            seen = strstr(showing.out, "and serve all, for ") != NULL &&
                   strstr(showing.out, ": it is in a batch of its former size") != NULL;
        }
        command_finish(&setting);
        EXPECT(setting.exit_code == 0);
        while (leat_in_flight(session) == QUERIES) {
            EXPECT(leat_wait(session, &done, 1, UINT64_MAX, &count) == LEAT_OK && count == 1);
        }
        while (leat_in_flight(session) < QUERIES) { /* what it has is never little */
            EXPECT(leat_submit(session, &queries[done.user_data], NULL) == LEAT_OK);
        }
    }
    while (leat_in_flight(session) > 0) {
        EXPECT(leat_wait(session, &done, 1, UINT64_MAX, &count) == LEAT_OK);
    }
    leat_close(session);
    leatd_end(&leatd, SIGTERM);
    leatd_fini(&leatd);
}

static void
test_listed(void)
{
    static struct command command;
    struct leatd leatd;
    cpu_set_t set;
    char text[64];
    size_t last = 0;

    EXPECT(sched_getaffinity(0, sizeof(set), &set) == 0);
    for (size_t c = 0; c < CPU_SETSIZE; c++) {
        last = CPU_ISSET(c, &set) ? c : last;
    }
    (void)snprintf(text, sizeof(text), "workers: [{count: 1, cpus: \"%zu\"}]\n", last);
    leatd_init(&leatd);
    leatd_start(&leatd, text);
    command_expect(&command, leatd.socket_path, 0, "worker 0 is not moved if something disturbs it: ",
                   (const char *const[]){"scale", "show", NULL});
    leatd_end(&leatd, SIGTERM);
    leatd_fini(&leatd);
}

int
main(void)
{
    static struct command command;
    struct leatd leatd;

    leat_test_init();
    leatd_init(&leatd);
    leatd_start(&leatd, config);
    const char *socket_path = leatd.socket_path;
    command_expect(&command, socket_path, 0, "example: leat scale set", (const char *const[]){"scale", "--help", NULL});
    command_expect(&command, socket_path, 2, "show, set or plan", (const char *const[]){"scale", NULL});
    command_expect(&command, socket_path, 2, "needs --cores", (const char *const[]){"scale", "set", "0", NULL});
    command_expect(&command, socket_path, 2, "a worker serves one application, or all",
                   (const char *const[]){"scale", "set", "0", "--for", "x", "--for-all", NULL});
    command_expect(&command, socket_path, 2, "number of one worker", (const char *const[]){"scale", "set", "--cores", "1", NULL});
    command_expect(&command, socket_path, 2, "--cores", (const char *const[]){"scale", "set", "0", "--cores", "257", NULL});
    command_expect(&command, socket_path, 2, "'x' is no number", (const char *const[]){"scale", "set", "x", "--cores", "1", NULL});
    command_expect(&command, socket_path, 3, "no worker 7", (const char *const[]){"scale", "set", "7", "--cores", "1", NULL});
    command_expect(&command, socket_path, 3, "worker 0 has 1 core, always: set cores_max",
                   (const char *const[]){"scale", "set", "0", "--cores", "2", NULL});
    command_expect(&command, socket_path, 0, "elastic", (const char *const[]){"scale", "show", NULL});
    command_expect(&command, socket_path, 0, "held by affinity: not v2: the configuration says so; not v1:",
                   (const char *const[]){"scale", "show", NULL});
    command_expect(&command, socket_path, 0, "held by affinity: not v2", (const char *const[]){"topology", NULL});
    EXPECT(command_run(&command, socket_path, (const char *const[]){"scale", "show", "--json", NULL}) == 0);
    json_t *shown = json_loads(command.out, 0, NULL);
    const json_t *worker = json_array_get(json_object_get(shown, "workers"), 1);
    EXPECT(json_is_null(json_object_get(worker, "group")));
    EXPECT(leatd_number(worker, "cores") == 1 && json_array_size(json_object_get(worker, "sizes")) == 2);
    const uint64_t left = leatd_number(json_array_get(json_object_get(shown, "nodes"), 0), "free_cores");
    json_decref(shown);
    if (left == 0) {
        command_expect(&command, socket_path, 3, "leat scale show", (const char *const[]){"scale", "set", "1", "--cores", "2", NULL});
    } else {
        command_expect(&command, socket_path, 0, "worker 1 has 2 cores", (const char *const[]){"scale", "set", "1", "--cores", "2", NULL});
        EXPECT(command_run(&command, socket_path, (const char *const[]){"scale", "set", "1", "--cores=1", "--json", NULL}) == 0);
        json_t *set = json_loads(command.out, 0, NULL);
        EXPECT(leatd_number(set, "cores") == 1 && leatd_number(set, "resizes") == 2);
        json_decref(set);
    }
    leatd_end(&leatd, SIGTERM);
    leatd_fini(&leatd);
    if (leatd_cpus() < 3) {
        (void)printf("scaling is not tested: two workers that share no CPU need three, here are %u\n", leatd_cpus());
    } else {
        test_scaling();
    }
    test_pending();
    test_listed();
    return 0;
}
