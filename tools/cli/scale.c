/* SPDX-License-Identifier: Apache-2.0 */
/* leat scale: cores of workers. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/cli.h"

enum { WORKERS_MAX = 65535, CORES_MAX = 256 }; /* what the daemon understands; it knows how many there are */

static void
print_help(void)
{
    (void)printf(
        "usage: leat scale show [OPTION...]\n"
        "       leat scale set WORKER --cores N [OPTION...]\n\n"
        "Shows which cores each worker has, and gives one more or fewer while it runs: from its next batch on, with nothing\n"
        "loaded anew. How many it can have is cores_max in its entry of workers in the configuration: 1, 2, 4, ... up to it.\n"
        "set returns when no batch of the former size runs any more.\n\n"
        "options:\n"
        "  --cores N       how many the worker is to have\n"
        "  --json          print the daemon's answer\n"
        "  --socket PATH   of the daemon\n"
        "  --help\n\n"
        "example: leat scale set 0 --cores 4\n");
}

/* A list of whole numbers, "1, 2, 4"; "-" where it is empty. */
static const char *
list_of(const json_t *object, const char *key, char *text, size_t bytes)
{
    const json_t *list = json_object_get(object, key);
    size_t used = 0;

    (void)snprintf(text, bytes, "-");
    for (size_t i = 0; i < json_array_size(list) && used < bytes; i++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", i > 0 ? "," : "",
                                 (long long)json_integer_value(json_array_get(list, i)));
    }
    return text;
}

static void
print_workers(const json_t *reply)
{
    char cpus[256], sizes[64];
    const json_t *worker, *node;
    size_t i;

    (void)printf("%6s %5s  %-12s %-16s %4s  %-16s %12s %8s\n", "worker", "cores", "can have", "CPUs", "node", "class", "since",
                 "resizes");
    json_array_foreach(json_object_get(reply, "workers"), i, worker) {
        (void)printf("%6lld %5lld  %-12s %-16s %4lld  %-16s %12s %8lld\n", number_of(worker, "worker"), number_of(worker, "cores"),
                     list_of(worker, "sizes", sizes, sizeof(sizes)), list_of(worker, "cpus", cpus, sizeof(cpus)),
                     number_of(worker, "node"), text_of(worker, "class_name"),
                     format_ns((double)number_of(worker, "since_ns")).text, number_of(worker, "resizes"));
    }
    json_array_foreach(json_object_get(reply, "nodes"), i, node) {
        (void)printf("node %lld: %lld cores can be given\n", number_of(node, "node"), number_of(node, "free_cores"));
    }
    (void)printf("free CPUs: %s; threads are held by %s\n", list_of(reply, "free_cpus", cpus, sizeof(cpus)),
                 text_of(reply, "held_by"));
}

struct arguments {
    const char *socket_path;
    uint64_t worker, cores; /* 0: not given */
    bool json;
};

/* -1: go on. */
static int
parse(int argc, char **argv, bool set, struct arguments *arguments)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"socket", required_argument, NULL, 's'},
                                            {"cores", required_argument, NULL, 'c'},
                                            {NULL, 0, NULL, 0}};
    int option;

    opterr = 0;
    optind = 1;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'h': print_help(); return EXIT_DONE;
        case 'j': arguments->json = true; break;
        case 's': arguments->socket_path = optarg; break;
        case 'c':
            if (set && parse_u64(optarg, 1, CORES_MAX, &arguments->cores)) {
                break;
            }
            return option_error("scale", argv);
        default: return option_error("scale", argv);
        }
    }
    if (argc != optind + set) {
        return set ? usage_error("scale", "set needs the number of one worker (leat scale show)")
                   : usage_error("scale", "'%s' is no option", argv[optind]);
    }
    if (set && !parse_u64(argv[optind], 0, WORKERS_MAX, &arguments->worker)) {
        return usage_error("scale", "'%s' is no number of a worker (leat scale show)", argv[optind]);
    }
    return set && arguments->cores == 0 ? usage_error("scale", "set needs --cores N") : -1;
}

int
verb_scale(int argc, char **argv)
{
    struct arguments arguments = {.socket_path = NULL};
    int exit_code = EXIT_DONE;

    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_help();
        return EXIT_DONE;
    }
    if (argc < 2 || (strcmp(argv[1], "show") != 0 && strcmp(argv[1], "set") != 0)) {
        return usage_error("scale", "show or set what?");
    }
    const bool set = strcmp(argv[1], "set") == 0;
    const int parsed = parse(argc - 1, argv + 1, set, &arguments);
    if (parsed >= 0) {
        return parsed;
    }
    json_t *request = set ? json_pack("{s:s, s:I, s:I}", "op", "scale-set", "worker", (json_int_t)arguments.worker, "cores",
                                      (json_int_t)arguments.cores)
                          : json_pack("{s:s}", "op", "scale-show");
    json_t *reply = ask_daemon("scale", arguments.socket_path, request, -1, &exit_code);
    if (reply == NULL) {
        return exit_code;
    }
    if (arguments.json) {
        print_json(json_incref(reply));
    } else if (set) {
        char cpus[256];
        (void)printf("worker %lld has %lld cores, CPUs %s, after %s\n", number_of(reply, "worker"), number_of(reply, "cores"),
                     list_of(reply, "cpus", cpus, sizeof(cpus)), format_ns((double)number_of(reply, "effect_ns")).text);
    } else {
        print_workers(reply);
    }
    json_decref(reply);
    return exit_code;
}
