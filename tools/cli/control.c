/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs that ask the daemon something over its control protocol: status, topology, model, version; and serve. */
#include <errno.h>
#include <fcntl.h>
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

static const char *
text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "-";
}

static long long
number_of(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
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
print_status(const json_t *status)
{
    size_t i;
    json_t *row;
    const json_t *dispatcher = json_object_get(status, "dispatcher");

    (void)printf("leatd %s, up %.1f s, %lld sessions\n", text_of(status, "version"),
                 (double)number_of(status, "uptime_ns") / 1e9, number_of(status, "sessions"));
    (void)printf("dispatcher: %lld rounds, slept %lld times, %lld decisions, %lld malformed requests\n",
                 number_of(dispatcher, "rounds"), number_of(dispatcher, "sleeps"), number_of(dispatcher, "decisions"),
                 number_of(dispatcher, "malformed"));
    print_decisions(json_object_get(dispatcher, "decision_ns"));
    (void)printf("%-7s %-14s %-16s %10s %9s %9s\n", "worker", "class", "cpus", "batches", "busy", "slept");
    json_array_foreach(json_object_get(status, "workers"), i, row) {
        (void)printf("%-7lld %-14s %-16s %10lld %8.1fs %9lld\n", number_of(row, "index"), text_of(row, "class_name"),
                     text_of(row, "cpus"), number_of(row, "batches"), (double)number_of(row, "busy_ns") / 1e9,
                     number_of(row, "sleeps"));
    }
    (void)printf("\n%-24s %-14s %-9s %10s %10s %9s %9s %9s %9s %8s\n", "application", "router", "selector", "accepted",
                 "ok", "rejected", "expired", "cancelled", "failed", "waiting");
    json_array_foreach(json_object_get(status, "applications"), i, row) {
        (void)printf("%-24s %-14s %-9s %10lld %10lld %9lld %9lld %9lld %9lld %8lld\n", text_of(row, "name"),
                     text_of(row, "router"), text_of(row, "selector"), number_of(row, "accepted"), number_of(row, "ok"),
                     number_of(row, "rejected"), number_of(row, "expired"), number_of(row, "cancelled"),
                     number_of(row, "failed"), number_of(row, "waiting"));
    }
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
            *ret_exit = report_status("status", "cannot reach the daemon", status);
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
                     "were accepted and how they ended.\n\n"
                     "  --wait[=TIME]    where no daemon answers yet, wait for one, 60s unless given\n"
                     "  --json           one JSON object\n"
                     "  --socket PATH    the daemon's socket\n\n"
                     "example: leat serve & leat status --wait\n");
        return EXIT_DONE;
    }
    if (common.wait_ns > 0 && !await_daemon(&common, &exit_code)) {
        return exit_code;
    }
    json_t *reply = ask_daemon(argv[0], common.socket_path, json_pack("{s:s}", "op", "status"), -1, &exit_code);
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

/* ---- model ------------------------------------------------------------------------------------ */

static void
print_model_help(void)
{
    (void)printf(
        "usage: leat model add NAME FILE.onnx [--backend cpu|reference] [--items-max N] [--accuracy FRACTION]\n"
        "       leat model add NAME --synthetic JSON [--items-max N]\n"
        "       leat model list\n"
        "       leat model remove NAME\n\n"
        "Adds a model to the daemon, which copies it, loads it, measures it and keeps it over restarts; lists\n"
        "what is loaded; removes one.\n\n"
        "  --backend B      what runs it (default cpu)\n"
        "  --items-max N    largest batch, in items (default 8)\n"
        "  --accuracy F     accuracy it stands for, 0 to 1, reported with its answers\n"
        "  --synthetic J    no file: occupy a worker for a profiled time, for example\n"
        "                   '{\"latency_ns\":5000000,\"per_item_ns\":1000000}'; input and output are 64 bytes, or\n"
        "                   as given by --input-bytes N and --output-bytes N\n"
        "  --json           one JSON object\n"
        "  --socket PATH    the daemon's socket\n\n"
        "example: leat model add digits digits-lenet.onnx --items-max 16 --accuracy 0.97\n");
}

struct model_options {
    struct common common;
    const char *backend, *synthetic;
    uint64_t items_max, input_bytes, output_bytes;
    double accuracy;
};

static bool
parse_model_options(int argc, char **argv, struct model_options *options)
{
    static const struct option known[] = {
        {"socket", required_argument, NULL, 's'},     {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},             {"backend", required_argument, NULL, 'b'},
        {"items-max", required_argument, NULL, 'n'},  {"accuracy", required_argument, NULL, 'a'},
        {"synthetic", required_argument, NULL, 'y'},  {"input-bytes", required_argument, NULL, 'I'},
        {"output-bytes", required_argument, NULL, 'O'}, {NULL, 0, NULL, 0},
    };
    int option;
    bool good = true;

    *options = (struct model_options){.items_max = 8, .input_bytes = 64, .output_bytes = 64};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 's': options->common.socket_path = optarg; break;
        case 'j': options->common.json = true; break;
        case 'h': options->common.help = true; break;
        case 'b': options->backend = optarg; break;
        case 'y': options->synthetic = optarg; break;
        case 'n': good = parse_u64(optarg, 1, LEAT_ITEMS_MAX, &options->items_max); break;
        case 'I': good = parse_bytes(optarg, &options->input_bytes); break;
        case 'O': good = parse_bytes(optarg, &options->output_bytes); break;
        case 'a': good = parse_double(optarg, 0, 1, &options->accuracy); break;
        default: good = false; break;
        }
    }
    if (!good) {
        (void)option_error("model", argv);
    }
    return good;
}

static int
model_add(int argc, char **argv, const struct model_options *options)
{
    int exit_code = EXIT_FAILED, fd = -1;
    json_t *request = NULL;
    json_error_t error;

    if (options->synthetic != NULL) {
        if (argc != 1) {
            return usage_error("model", "add NAME --synthetic JSON takes no file");
        }
        json_t *parameters = json_loads(options->synthetic, 0, &error);
        if (!json_is_object(parameters)) {
            json_decref(parameters);
            return usage_error("model", "--synthetic is no JSON object: %s", error.text);
        }
        request = json_pack("{s:s, s:s, s:s, s:I, s:o, s:I, s:I}", "op", "model-add", "name", argv[0], "backend",
                            "synthetic", "items_max", (json_int_t)options->items_max, "options", parameters,
                            "input_bytes", (json_int_t)options->input_bytes, "output_bytes",
                            (json_int_t)options->output_bytes);
    } else {
        if (argc != 2) {
            return usage_error("model", "add needs a name and a file");
        }
        fd = open(argv[1], O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            (void)fprintf(stderr, "leat model: cannot open %s: %s\n", argv[1], strerror(errno));
            return EXIT_FAILED;
        }
        request = json_pack("{s:s, s:s, s:s, s:I, s:f}", "op", "model-add", "name", argv[0], "backend",
                            options->backend != NULL ? options->backend : "cpu", "items_max",
                            (json_int_t)options->items_max, "accuracy", options->accuracy);
    }
    if (isatty(STDERR_FILENO) != 0) {
        (void)fprintf(stderr, "loading and measuring %s ...\n", argv[0]);
    }
    json_t *reply = ask_daemon("model", options->common.socket_path, request, fd, &exit_code);
    if (fd >= 0) {
        (void)close(fd);
    }
    if (reply == NULL) {
        return exit_code;
    }
    if (options->common.json) {
        print_json(reply);
        return EXIT_DONE;
    }
    (void)printf("added %s: %s, loaded in %s, one item takes %s\n", argv[0],
                 format_bytes((double)number_of(reply, "bytes")).text,
                 format_ns((double)number_of(reply, "load_ns")).text,
                 format_ns((double)number_of(reply, "latency_ns")).text);
    json_decref(reply);
    return EXIT_DONE;
}

static void
print_tensor(const json_t *tensor)
{
    size_t i;
    json_t *dim;

    (void)printf("    %-7s %-24s %s[N", text_of(tensor, "role"), text_of(tensor, "name"), text_of(tensor, "dtype"));
    json_array_foreach(json_object_get(tensor, "dims"), i, dim) {
        if (i > 0) {
            (void)printf(",%lld", (long long)json_integer_value(dim));
        }
    }
    (void)printf("]\n");
}

static int
model_list(const struct model_options *options)
{
    int exit_code = EXIT_FAILED;
    size_t i, t;
    json_t *row, *tensor;
    json_t *reply =
        ask_daemon("model", options->common.socket_path, json_pack("{s:s}", "op", "model-list"), -1, &exit_code);

    if (reply == NULL) {
        return exit_code;
    }
    if (options->common.json) {
        print_json(reply);
        return EXIT_DONE;
    }
    (void)printf("%-24s %-10s %6s %10s %12s %9s\n", "model", "backend", "items", "weights", "one item", "accuracy");
    json_array_foreach(json_object_get(reply, "models"), i, row) {
        const json_t *failure = json_object_get(row, "failure");
        if (failure != NULL) {
            (void)printf("%-24s not loaded: %s\n", text_of(row, "name"), json_string_value(failure));
            continue;
        }
        const double accuracy = (double)number_of(row, "accuracy_ppm") / 1e6;
        (void)printf("%-24s %-10s %6lld %10s %12s ", text_of(row, "name"), text_of(row, "backend"),
                     number_of(row, "items_max"), format_bytes((double)number_of(row, "bytes")).text,
                     format_ns((double)number_of(row, "latency_ns")).text);
        (void)(accuracy > 0 ? printf("%8.2f%%\n", accuracy * 100) : printf("%9s\n", "-"));
        json_array_foreach(json_object_get(row, "tensors"), t, tensor) {
            print_tensor(tensor);
        }
    }
    json_decref(reply);
    return EXIT_DONE;
}

static int
model_remove(int argc, char **argv, const struct model_options *options)
{
    int exit_code = EXIT_FAILED;

    if (argc != 1) {
        return usage_error("model", "remove needs one name");
    }
    json_t *reply =
        ask_daemon("model", options->common.socket_path,
                   json_pack("{s:s, s:s}", "op", "model-remove", "name", argv[0]), -1, &exit_code);
    if (reply == NULL) {
        return exit_code;
    }
    if (options->common.json) {
        print_json(reply);
        return EXIT_DONE;
    }
    (void)printf("removed %s\n", argv[0]);
    json_decref(reply);
    return EXIT_DONE;
}

int
verb_model(int argc, char **argv)
{
    struct model_options options;

    if (!parse_model_options(argc, argv, &options)) {
        return EXIT_USAGE;
    }
    if (options.common.help) {
        print_model_help();
        return EXIT_DONE;
    }
    if (optind >= argc) {
        return usage_error("model", "add, list or remove?");
    }
    const char *what = argv[optind++];
    if (strcmp(what, "add") == 0) {
        return optind < argc ? model_add(argc - optind, argv + optind, &options)
                             : usage_error("model", "add needs a name");
    }
    if (strcmp(what, "list") == 0) {
        return model_list(&options);
    }
    if (strcmp(what, "remove") == 0) {
        return model_remove(argc - optind, argv + optind, &options);
    }
    return usage_error("model", "'%s' is not add, list or remove", what);
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
