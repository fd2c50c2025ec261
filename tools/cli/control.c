/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs that ask the daemon something over its control protocol: status, topology, version; and serve. */
#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/cli/cli.h"

/* ---- Options that all of them take ------------------------------------------------------------ */

struct common {
    const char *socket_path;
    bool json;
    bool help;
    uint64_t wait_ns; /* status only: for a daemon to answer; 0: not at all */
};

#define WAIT_DEFAULT_NS UINT64_C(60000000000)

static const struct option common_options[] = {
    {"socket", required_argument, NULL, 's'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static const struct option status_options[] = {
    {"socket", required_argument, NULL, 's'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {"wait", optional_argument, NULL, 'w'},
    {NULL, 0, NULL, 0},
};

/* False on a wrong option, which is reported. */
static bool
parse_common(int argc, char **argv, const struct option *known, struct common *common)
{
    bool good = true;
    int option;
    *common = (struct common){0};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 's': common->socket_path = optarg; break;
        case 'j': common->json = true; break;
        case 'h': common->help = true; break;
        case 'w':
            common->wait_ns = WAIT_DEFAULT_NS;
            good = optarg == NULL || parse_duration_ns(optarg, &common->wait_ns);
            break;
        default: good = false; break;
        }
    }
    if (!good) {
        (void)option_error(argv[0], argv);
    } else if (optind != argc && !common->help) {
        (void)usage_error(argv[0], "'%s' is no option", argv[optind]);
        good = false;
    }
    return good;
}

/* ---- version ---------------------------------------------------------------------------------- */

int
verb_version(int argc, char **argv)
{
    struct common common;
    struct leat_session *session;
    struct leat_options options = LEAT_OPTIONS_INIT;

    if (!parse_common(argc, argv, common_options, &common)) {
        return EXIT_USAGE;
    }
    if (common.help) {
        (void)printf("usage: leat version [--json] [--socket PATH]\n\n"
                     "Prints the version of this program and library, and of the daemon if one answers.\n\n"
                     "example: leat version --json\n");
        return EXIT_DONE;
    }
    options.socket_path = common.socket_path;
    options.slots = 2;
    options.arena_bytes = 4096;
    const bool running = leat_open(&options, &session) == LEAT_OK;
    const char *daemon = running ? leat_daemon_version(session) : NULL;
    if (common.json) {
        print_json(json_pack("{s:s, s:s?}", "library", leat_version(), "daemon", daemon));
    } else {
        (void)printf("leat %s, daemon %s\n", leat_version(), running ? daemon : "not reachable");
    }
    if (running) {
        leat_close(session);
    }
    return EXIT_DONE;
}

/* ---- status ----------------------------------------------------------------------------------- */

static void
print_decisions(const json_t *times)
{
    static const char *const keys[] = {"p50", "p99", "p999", "max"};

    (void)printf("decisions:");
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        (void)printf("%s %s %s", i > 0 ? "," : "", keys[i], format_ns((double)number_of(times, keys[i])).text);
    }
    (void)printf("\n\n");
}

static void
print_states(const char *application, const char *model, const json_t *states, bool *any)
{
    if (!*any) {
        (void)printf("\n%-24s %-24s %9s %9s %9s %10s %10s\n", "instances of", "model", "inactive", "loading", "active",
                     "overloaded", "interfered");
    }
    *any = true;
    (void)printf("%-24s %-24s %9lld %9lld %9lld %10lld %10lld\n", application, model, number_of(states, "inactive"),
                 number_of(states, "loading"), number_of(states, "active"), number_of(states, "overloaded"),
                 number_of(states, "interfered"));
}

/* Of applications that can choose, and wherever something is not as it should be. */
static void
print_instances(const json_t *applications, const json_t *unserved)
{
    bool any = false;
    size_t i, v;
    json_t *app, *states;

    json_array_foreach(applications, i, app) {
        const json_t *instances = json_object_get(app, "instances");
        json_array_foreach(instances, v, states) {
            const bool usual = number_of(states, "overloaded") + number_of(states, "interfered") == 0;
            if (usual && json_array_size(instances) < 2) {
                continue;
            }
            print_states(text_of(app, "name"), json_string_value(json_array_get(json_object_get(app, "models"), v)),
                         states, &any);
        }
    }
    json_array_foreach(unserved, i, states) {
        print_states(text_of(states, "application"), text_of(states, "model"), states, &any);
    }
}

/* How they went, and what each of their stages takes. */
static void
print_pipelines(const json_t *pipelines)
{
    const json_t *pipeline, *stage;
    size_t p, s;

    json_array_foreach(pipelines, p, pipeline) {
        if (p == 0) {
            (void)printf("\n%-24s %-24s %10s %10s %9s %9s %9s %9s %9s %8s\n", "pipeline", "", "accepted", "ok", "late",
                         "rejected", "expired", "cancelled", "failed", "running");
            (void)printf("%-24s %-24s %10s %10s %9s %9s %9s\n", "  stage", "", "times", "wait p50", "p99", "run p50", "p99");
        }
        (void)printf("%-24s %-24s %10lld %10lld %9lld %9lld %9lld %9lld %9lld %8lld\n", text_of(pipeline, "name"), "",
                     number_of(pipeline, "accepted"), number_of(pipeline, "ok"), number_of(pipeline, "ok_late"),
                     number_of(pipeline, "rejected"), number_of(pipeline, "expired"), number_of(pipeline, "cancelled"),
                     number_of(pipeline, "failed"), number_of(pipeline, "running"));
        json_array_foreach(json_object_get(pipeline, "stages"), s, stage) {
            const json_t *queue = json_object_get(stage, "queue_ns"), *exec = json_object_get(stage, "exec_ns");
            (void)printf("  %-22s %-24s %10lld %10s %9s %9s %9s\n", text_of(stage, "name"), text_of(stage, "application"),
                         number_of(exec, "count"), format_ns((double)number_of(queue, "p50")).text,
                         format_ns((double)number_of(queue, "p99")).text, format_ns((double)number_of(exec, "p50")).text,
                         format_ns((double)number_of(exec, "p99")).text);
        }
    }
}

static void
print_status(const json_t *status)
{
    size_t i;
    json_t *row;
    const json_t *dispatcher = json_object_get(status, "dispatcher"), *instances = json_object_get(status, "instances");

    (void)printf("leatd %s, up %.1f s, %lld session%s\n", text_of(status, "version"),
                 (double)number_of(status, "uptime_ns") / 1e9, number_of(status, "sessions"),
                 number_of(status, "sessions") == 1 ? "" : "s");
    (void)printf("dispatcher: %lld rounds, slept %lld times, %lld decisions, %lld malformed requests\n",
                 number_of(dispatcher, "rounds"), number_of(dispatcher, "sleeps"), number_of(dispatcher, "decisions"),
                 number_of(dispatcher, "malformed"));
    (void)printf("instances: %lld active, %lld overloaded, %lld interfered, %lld loading, %lld inactive\n",
                 number_of(instances, "active"), number_of(instances, "overloaded"), number_of(instances, "interfered"),
                 number_of(instances, "loading"), number_of(instances, "inactive"));
    print_decisions(json_object_get(dispatcher, "decision_ns"));
    (void)printf("%-7s %-14s %-16s %10s %9s %9s %9s\n", "worker", "class", "cpus", "batches", "busy", "offline", "slept");
    json_array_foreach(json_object_get(status, "workers"), i, row) {
        (void)printf("%-7lld %-14s %-16s %10lld %8.1fs %8.1fs %9lld\n", number_of(row, "index"), text_of(row, "class_name"),
                     text_of(row, "cpus"), number_of(row, "batches"), (double)number_of(row, "busy_ns") / 1e9,
                     (double)number_of(row, "offline_ns") / 1e9, number_of(row, "sleeps"));
    }
    (void)printf("\n%-24s %-14s %-9s %10s %10s %9s %9s %9s %9s %8s\n", "application", "router", "selector", "accepted",
                 "ok", "rejected", "expired", "cancelled", "failed", "waiting");
    json_array_foreach(json_object_get(status, "applications"), i, row) {
        (void)printf("%-24s %-14s %-9s %10lld %10lld %9lld %9lld %9lld %9lld %8lld\n", text_of(row, "name"),
                     text_of(row, "router"), text_of(row, "selector"), number_of(row, "accepted"), number_of(row, "ok"),
                     number_of(row, "rejected"), number_of(row, "expired"), number_of(row, "cancelled"),
                     number_of(row, "failed"), number_of(row, "waiting"));
    }
    print_pipelines(json_object_get(status, "pipelines"));
    print_instances(json_object_get(status, "applications"), json_object_get(status, "unserved"));
}

/* Tries now and then until a daemon answers; false, and reported, when none did in time or one turned us away. */
static bool
await_daemon(const struct common *common, int *ret_exit)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    const uint64_t until_ns = leat_monotonic_ns() + common->wait_ns;
    struct leat_options options = LEAT_OPTIONS_INIT;
    struct leat_session *session;

    options.socket_path = common->socket_path;
    options.slots = 2;
    options.arena_bytes = 4096;
    for (;;) {
        const enum leat_status status = leat_open(&options, &session);
        if (status == LEAT_OK) {
            leat_close(session);
            return true;
        }
        /* Nobody listens yet, it still loads its models, or it is just going: another try may find one. */
        const bool may_come = status == LEAT_ERR_SYS || status == LEAT_TIMEOUT || status == LEAT_ERR_DISCONNECTED;
        if (!may_come || leat_monotonic_ns() >= until_ns) {
            *ret_exit = report_answer("status", "cannot reach the daemon", status);
            return false;
        }
        (void)nanosleep(&pause, NULL);
    }
}

int
verb_status(int argc, char **argv)
{
    struct common common;
    int exit_code = EXIT_FAILED;

    if (!parse_common(argc, argv, status_options, &common)) {
        return EXIT_USAGE;
    }
    if (common.help) {
        (void)printf("usage: leat status [--wait[=TIME]] [--json] [--socket PATH]\n\n"
                     "What the daemon is doing: dispatcher, workers, and for each application how many queries\n"
                     "were accepted and how they ended; where it can choose, how it goes with each model; of pipelines, how\n"
                     "long their stages wait and run.\n\n"
                     "  --wait[=TIME]    where no daemon answers yet, wait for one, 60s unless given\n"
                     "  --json           one JSON object\n"
                     "  --socket PATH    the daemon's socket\n\n"
                     "example: leat serve & leat status --wait\n");
        return EXIT_DONE;
    }
    if (common.wait_ns > 0 && !await_daemon(&common, &exit_code)) {
        return exit_code;
    }
    json_t *reply = ask_daemon_list(argv[0], common.socket_path, json_pack("{s:s}", "op", "status"), "applications", &exit_code);
    if (reply == NULL) {
        return exit_code;
    }
    if (common.json) {
        print_json(reply);
        return EXIT_DONE;
    }
    print_status(reply);
    json_decref(reply);
    return EXIT_DONE;
}

/* ---- topology --------------------------------------------------------------------------------- */

int
verb_topology(int argc, char **argv)
{
    struct common common;
    int exit_code = EXIT_FAILED;

    if (!parse_common(argc, argv, common_options, &common)) {
        return EXIT_USAGE;
    }
    if (common.help) {
        (void)printf("usage: leat topology [--json] [--socket PATH]\n\n"
                     "Cores, caches and memory nodes of this machine, which of them the daemon may use and why,\n"
                     "and what each is used for.\n\nexample: leat topology\n");
        return EXIT_DONE;
    }
    json_t *reply = ask_daemon(argv[0], common.socket_path, json_pack("{s:s}", "op", "topology"), -1, &exit_code);
    if (reply == NULL) {
        return exit_code;
    }
    if (common.json) {
        (void)json_object_del(reply, "text");
        print_json(reply);
        return EXIT_DONE;
    }
    (void)fputs(text_of(reply, "text"), stdout);
    json_decref(reply);
    return EXIT_DONE;
}

/* ---- serve ------------------------------------------------------------------------------------ */

/* leatd beside this program, in ../sbin, else wherever PATH has it. */
static void
find_daemon(char path[PATH_MAX])
{
    char self[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    const char *const places[] = {"leatd", "../sbin/leatd", "../../runtime/leatd"};

    if (length > 0) {
        self[length] = '\0';
        const char *folder = dirname(self);
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
            if (snprintf(path, PATH_MAX, "%s/%s", folder, places[i]) < PATH_MAX && access(path, X_OK) == 0) {
                return;
            }
        }
    }
    (void)strcpy(path, "leatd");
}

int
verb_serve(int argc, char **argv)
{
    static char name[] = "leatd";
    char path[PATH_MAX];

    (void)argc;
    find_daemon(path);
    argv[0] = name; /* everything behind the verb is the daemon's own: --config, --help, ... */
    (void)execvp(path, argv);
    (void)fprintf(stderr, "leat serve: cannot start leatd: %s\n", strerror(errno));
    return EXIT_FAILED;
}
