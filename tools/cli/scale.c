/* SPDX-License-Identifier: Apache-2.0 */
/* leat scale: cores of workers. Plans are in scale_plan.c. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/cli.h"
#include "tools/cli/scale_plan.h"

enum { WORKERS_MAX = 65535, CORES_MAX = 256 }; /* what the daemon understands; it knows how many there are */

static void
print_help(void)
{
    (void)printf(
        "usage: leat scale show [OPTION...]\n"
        "       leat scale set WORKER [--cores N] [--for APPLICATION | --for-all] [OPTION...]\n"
        "       leat scale plan --stages FILE --objective TIME --rate QPS [OPTION...]\n\n"
        "Shows which cores each worker has, and gives one more or fewer while it runs: from its next batch on, with "
        "nothing\n"
        "loaded anew. How many it can have is cores_max in its entry of workers in the configuration: 1, 2, 4, ... up to "
        "it.\n"
        "With none it is parked: it serves nobody, and its cores can be given to others. An application that has workers "
        "of\n"
        "its own is served by these only, its offline queries by those for all too, all others by those for all or, where\n"
        "there are none, by any that is awake.\n"
        "set returns when no batch of the former size runs any more, whatever other workers do; what waits in the worker's "
        "queue it\n"
        "still runs. Cores that another worker has been told to give it gets as soon as that lets go of them; a later set "
        "for the\n"
        "same worker takes the place of one that is not in force yet, and show tells what is pending, how often workers moved to\n"
        "other CPUs because something disturbed them, and who stays in any case, and why. Where cores follow the load\n"
        "(scaling in the configuration), show tells too which applications have what, why, and what changed lately, and\n"
        "set is refused.\n"
        "plan prints what stages of a pipeline are to have for one rate, by their latency models, and asks no daemon.\n\n"
        "options of show and set:\n"
        "  --cores N       how many the worker is to have; 0 parks it\n"
        "  --for NAME      the application that it serves from now on\n"
        "  --for-all       it serves all from now on, but online queries to those that have workers of their own\n"
        "  --socket PATH   of the daemon\n\n"
        "options of plan:\n");
    scale_plan_print_options();
    (void)printf("\noptions of all:\n"
                 "  --json             print the daemon's answer, or the plan, as one JSON object\n"
                 "  --help\n\n"
                 "example: leat scale set 0 --cores 4 --for images\n"
                 "         leat scale plan --stages stages.csv --objective 780ms --rate 20 --mode paper --scaling vertical\n");
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

/* Whom it serves. */
static const char *
served_by(const json_t *worker)
{
    const char *application = json_string_value(json_object_get(worker, "application"));
    return application != NULL ? application : number_of(worker, "cores") == 0 ? "(parked)" : text_of(worker, "serves");
}

/* What it is to be and is not yet, or will not be. */
static void
print_pending(const json_t *worker)
{
    const json_t *pending = json_object_get(worker, "pending");

    if (json_is_object(pending)) {
        const char *waits_for = text_of(pending, "waits_for");
        (void)printf("worker %lld is to have %lld cores and serve %s, for %s: %s\n", number_of(worker, "worker"),
                     number_of(pending, "cores"), number_of(pending, "cores") > 0 ? served_by(pending) : "nobody",
                     format_ns((double)number_of(pending, "since_ns")).text,
                     strcmp(waits_for, "batch") == 0   ? "it is in a batch of its former size"
                     : strcmp(waits_for, "cores") == 0 ? "others have not let go of the cores yet"
                                                       : "it is about to be told");
    }
    if (text_of(worker, "trouble")[0] != '\0') {
        (void)printf("worker %lld stays as it is: %s\n", number_of(worker, "worker"), text_of(worker, "trouble"));
    }
}

/* CPUs that are not there any more, who still has some of them, and threads that had to be put back on theirs. */
static void
print_gone(const json_t *reply)
{
    const json_t *worker;
    char cpus[256];
    size_t i;

    if (json_array_size(json_object_get(reply, "gone_cpus")) > 0) {
        (void)printf("gone CPUs: %s; they are offline, or not the daemon's any more\n",
                     list_of(reply, "gone_cpus", cpus, sizeof(cpus)));
    }
    json_array_foreach(json_object_get(reply, "workers"), i, worker)
    {
        if (json_array_size(json_object_get(worker, "gone_cpus")) > 0) {
            (void)printf("worker %lld has gone CPUs: %s; no others are free, and its threads share what is left\n",
                         number_of(worker, "worker"), list_of(worker, "gone_cpus", cpus, sizeof(cpus)));
        }
    }
    if (number_of(reply, "repinned") > 0) {
        (void)printf("%lld times a thread was not held to its CPU any more, and was put back\n",
                     number_of(reply, "repinned"));
    }
}

/* Who is not moved though something disturbs it where it is; one line for neighbours with one reason. */
static void
print_staying(const json_t *workers)
{
    const size_t count = json_array_size(workers);

    for (size_t i = 0, next; i < count; i = next) {
        const char *why = text_of(json_array_get(workers, i), "stays");
        for (next = i + 1; next < count && strcmp(text_of(json_array_get(workers, next), "stays"), why) == 0; next++) {
        }
        if (why[0] != '\0' && next == i + 1) {
            (void)printf("worker %zu is not moved if something disturbs it: %s\n", i, why);
        } else if (why[0] != '\0') {
            (void)printf("workers %zu to %zu are not moved if something disturbs them: %s\n", i, next - 1, why);
        }
    }
}

static void
print_workers(const json_t *reply)
{
    char cpus[256], sizes[64];
    const json_t *worker, *node;
    size_t i;

    (void)printf("%6s %5s  %-12s %-16s %4s  %-16s %12s %8s %6s  %s\n", "worker", "cores", "can have", "CPUs", "node", "class", "since",
                 "resizes", "moves", "serves");
    json_array_foreach(json_object_get(reply, "workers"), i, worker) {
        (void)printf("%6lld %5lld  %-12s %-16s %4lld  %-16s %12s %8lld %6lld  %s\n", number_of(worker, "worker"),
                     number_of(worker, "cores"), list_of(worker, "sizes", sizes, sizeof(sizes)),
                     list_of(worker, "cpus", cpus, sizeof(cpus)), number_of(worker, "node"), text_of(worker, "class_name"),
                     format_ns((double)number_of(worker, "since_ns")).text, number_of(worker, "resizes"),
                     number_of(worker, "moves"), served_by(worker));
    }
    json_array_foreach(json_object_get(reply, "workers"), i, worker)
    {
        print_pending(worker);
    }
    print_staying(json_object_get(reply, "workers"));
    json_array_foreach(json_object_get(reply, "nodes"), i, node) {
        (void)printf("node %lld: %lld cores can be given\n", number_of(node, "node"), number_of(node, "free_cores"));
    }
    const char *why = text_of(reply, "held_why");
    (void)printf("free CPUs: %s; threads are held by %s%s%s\n", list_of(reply, "free_cpus", cpus, sizeof(cpus)),
                 text_of(reply, "held_by"), why[0] != '\0' ? ": " : "", why);
    print_gone(reply);
}

static void
print_row(const char *indent, const char *name, const json_t *part, const char *foreseen)
{
    char workers[256];

    (void)printf("%s%-*s %9lld %8lld %5lld  %-16s %12.1f %12s %8lld\n", indent, 24 - (int)strlen(indent), name,
                 number_of(part, "instances"), number_of(part, "starting"), number_of(part, "cores"),
                 list_of(part, "workers", workers, sizeof(workers)),
                 json_number_value(json_object_get(part, "rate_items_per_s")), foreseen, number_of(part, "waiting_items"));
}

static void
print_scaled(const json_t *scaling)
{
    const json_t *application, *stage;
    size_t i, s;

    (void)printf("\n%-24s %9s %8s %5s  %-16s %12s %12s %8s\n", "application", "instances", "starting", "cores", "workers",
                 "items/s", "foreseen", "waiting");
    json_array_foreach(json_object_get(scaling, "applications"), i, application)
    {
        const json_t *stages = json_object_get(application, "stages");
        char foreseen[32];
        (void)snprintf(foreseen, sizeof(foreseen), "%.1f", json_number_value(json_object_get(application, "expected_items_per_s")));
        print_row("", text_of(application, "name"), application, foreseen);
        json_array_foreach(stages, s, stage)
        {
            if (json_array_size(stages) > 1) {
                print_row("  ", text_of(stage, "application"), stage, "");
            }
        }
        const double times = json_number_value(json_object_get(application, "counted_times"));
        if (times > 1) {
            (void)printf("  its load counts %.2f times: queries were late with the cores that should do for it\n", times);
        }
        if (text_of(application, "trouble")[0] != '\0') {
            (void)printf("  is not scaled: %s\n", text_of(application, "trouble"));
        }
    }
}

static void
print_history(const json_t *scaling)
{
    const json_t *change;
    size_t i;

    json_array_foreach(json_object_get(scaling, "history"), i, change) {
        const json_t *from = json_object_get(change, "from"), *to = json_object_get(change, "to");
        (void)printf("%s%10s ago  %s: %lld on %lld cores, %lld starting, before %lld on %lld, %lld starting; %s", i == 0 ? "\n" : "",
                     format_ns((double)number_of(change, "ago_ns")).text, text_of(change, "stage"), number_of(to, "instances"),
                     number_of(to, "cores"), number_of(to, "starting"), number_of(from, "instances"), number_of(from, "cores"),
                     number_of(from, "starting"), text_of(change, "why"));
        (void)printf("; decided%s in %s\n", json_is_true(json_object_get(change, "early")) ? " early" : "",
                     format_ns((double)number_of(change, "took_ns")).text);
    }
}

static void
print_scaling(const json_t *scaling)
{
    const char *mode = text_of(scaling, "mode");

    (void)printf("scaling: %s", mode);
    if (strcmp(mode, "off") == 0) {
        (void)printf("\n");
        return;
    }
    (void)printf(", every %s, forecast %s; %lld decisions, %lld changes\n", format_ns((double)number_of(scaling, "interval_ns")).text,
                 text_of(scaling, "forecast"), number_of(scaling, "decisions"), number_of(scaling, "changes"));
    if (text_of(scaling, "trouble")[0] != '\0') {
        (void)printf("not carried out: %s\n", text_of(scaling, "trouble"));
    }
    print_scaled(scaling);
    print_history(scaling);
}

struct arguments {
    const char *socket_path;
    const char *application; /* NULL: not given */
    uint64_t worker, cores;
    bool cores_given, for_all, json;
};

/* -1: go on. */
static int
parse(int argc, char **argv, bool set, struct arguments *arguments)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"socket", required_argument, NULL, 's'},
                                            {"cores", required_argument, NULL, 'c'},
                                            {"for", required_argument, NULL, 'f'},
                                            {"for-all", no_argument, NULL, 'a'},
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
            if (set && parse_u64(optarg, 0, CORES_MAX, &arguments->cores)) {
                arguments->cores_given = true;
                break;
            }
            return option_error("scale", argv);
        case 'f':
        case 'a':
            if (!set) {
                return option_error("scale", argv);
            }
            if (arguments->application != NULL || arguments->for_all) {
                return usage_error("scale", "one --for APPLICATION, or --for-all: a worker serves one application, or all");
            }
            arguments->application = optarg;
            arguments->for_all = option == 'a';
            break;
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
    const bool any = arguments->cores_given || arguments->application != NULL || arguments->for_all;
    return set && !any ? usage_error("scale", "set needs --cores N, --for APPLICATION or --for-all") : -1;
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
    if (argc >= 2 && strcmp(argv[1], "plan") == 0) {
        return scale_plan(argc - 1, argv + 1);
    }
    if (argc < 2 || (strcmp(argv[1], "show") != 0 && strcmp(argv[1], "set") != 0)) {
        return usage_error("scale", "show, set or plan what?");
    }
    const bool set = strcmp(argv[1], "set") == 0;
    const int parsed = parse(argc - 1, argv + 1, set, &arguments);
    if (parsed >= 0) {
        return parsed;
    }
    json_t *request = json_pack("{s:s}", "op", set ? "scale-set" : "scale-show");
    if (set) {
        (void)json_object_set_new(request, "worker", json_integer((json_int_t)arguments.worker));
    }
    if (arguments.cores_given) {
        (void)json_object_set_new(request, "cores", json_integer((json_int_t)arguments.cores));
    }
    if (arguments.application != NULL || arguments.for_all) {
        (void)json_object_set_new(request, "application",
                                  arguments.for_all ? json_null() : json_string(arguments.application));
    }
    json_t *reply = ask_daemon("scale", arguments.socket_path, request, -1, &exit_code);
    if (reply == NULL) {
        return exit_code;
    }
    if (arguments.json) {
        print_json(json_incref(reply));
    } else if (set) {
        char cpus[256];
        (void)printf("worker %lld has %lld core%s, CPUs %s, and serves %s, after %s\n", number_of(reply, "worker"),
                     number_of(reply, "cores"), number_of(reply, "cores") == 1 ? "" : "s",
                     list_of(reply, "cpus", cpus, sizeof(cpus)),
                     number_of(reply, "cores") > 0 ? served_by(reply) : "nobody",
                     format_ns((double)number_of(reply, "effect_ns")).text);
    } else {
        print_workers(reply);
        print_scaling(json_object_get(reply, "scaling"));
    }
    json_decref(reply);
    return exit_code;
}
