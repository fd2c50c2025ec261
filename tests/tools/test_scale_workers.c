/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     `leat scale` shows what the daemon says, changes one worker's cores, and says of a wrong use what to do; where cores
 *          follow the load it shows who has what and why, and changes nothing.
 * Method   The command as a process beside leatd, with workers that have their size for good and one that has not; then beside one
 *          that scales an application, and another that is not there.
 */
#include <signal.h>

#include "tests/system/leatd.h"
#include "tests/tools/command.h"

static const char config[] = "cgroups: off\n"
                             "workers: [{count: 1, cores: 1}, {count: 1, cores: 1, cores_max: 2, class: elastic}]\n";

static const char scaled[] = "scaling: {mode: leat, interval: 20ms, hold: 2s, applications: [{name: app}, {name: late}]}\n"
                             "workers: [{count: 2, cores: 1}]\n"
                             "applications: [{name: app, models: [model], latency: 1s}]\n"
                             "models: [{name: model, backend: synthetic}]\n";

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
    }
    const char *socket_path = leatd.socket_path;
    command_expect(&command, socket_path, 0, "scaling: leat, every 20.00 ms, forecast off", (const char *const[]){"scale", "show", NULL});
    EXPECT(strstr(command.out, "is not scaled: there is no application or pipeline of that name") != NULL);
    EXPECT(strstr(command.out, "app: 1 on 1 cores, 0 starting, before 0 on 0, 0 starting") != NULL);
    command_expect(&command, socket_path, 3, "workers follow the load", (const char *const[]){"scale", "set", "0", "--cores", "1", NULL});
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
    command_expect(&command, socket_path, 2, "show or set", (const char *const[]){"scale", NULL});
    command_expect(&command, socket_path, 2, "needs --cores", (const char *const[]){"scale", "set", "0", NULL});
    command_expect(&command, socket_path, 2, "number of one worker", (const char *const[]){"scale", "set", "--cores", "1", NULL});
    command_expect(&command, socket_path, 2, "--cores", (const char *const[]){"scale", "set", "0", "--cores", "257", NULL});
    command_expect(&command, socket_path, 2, "'x' is no number", (const char *const[]){"scale", "set", "x", "--cores", "1", NULL});
    command_expect(&command, socket_path, 3, "no worker 7", (const char *const[]){"scale", "set", "7", "--cores", "1", NULL});
    command_expect(&command, socket_path, 3, "worker 0 has 1 cores, always: set cores_max",
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
    test_scaling();
    return 0;
}
