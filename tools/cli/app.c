/* SPDX-License-Identifier: Apache-2.0 */
/* leat app: applications, made of models that answer the same questions more or less accurately. */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/cli.h"

static void
print_help(void)
{
    (void)printf(
        "usage: leat app add NAME [--models M,...] [option...]\n"
        "       leat app change NAME [--models M,...] [--remove-models M,...] [option...]\n"
        "       leat app list\n"
        "       leat app show NAME\n"
        "       leat app remove NAME [--with-models]\n\n"
        "An application is what callers ask for by name; any of its models can answer. All of them must have the same\n"
        "inputs and outputs. 'leat model add --app NAME' adds a model to one. It is kept over restarts, and changed while\n"
        "it serves: what waits goes on waiting.\n\n"
        "  --models M,...         models that are loaded, to be added behind those that it has\n"
        "  --remove-models M,...  models to be left out\n"
        "  --latency TIME         objective of queries that bring none, as 20ms (default 0: none)\n"
        "  --late drop|serve      drop: refuse what cannot be in time (default); serve: answer it late\n"
        "  --router R             which worker (default auto: what suits the workers)\n"
        "  --selector S           which model and batch (default auto)\n"
        "  --policy FILE          of selectors that follow one (default auto: made from profiles)\n"
        "  --threshold N          of router threshold: larger queries, in items, go to the fastest class\n"
        "  --percentile P         of times to go by: 50 to 99.9, or mean (default 95)\n"
        "  --queue N              waiting queries at most (default 1024)\n"
        "  --with-models          remove: its models too, where no other application has them\n"
        "  --json                 one JSON object\n"
        "  --socket PATH          the daemon's socket\n\n"
        "example: leat app add digits --latency 20ms --late serve\n");
}

struct app_options {
    const char *socket_path;
    bool json, help, with_models;
    json_t *request; /* what the options say of the application */
};

/* "a,b,c" as a list; NULL when a name is empty. */
static json_t *
split_names(const char *text)
{
    json_t *names = json_array();

    for (;;) {
        const size_t length = strcspn(text, ",");
        if (length == 0) {
            json_decref(names);
            return NULL;
        }
        (void)json_array_append_new(names, json_stringn(text, length));
        if (text[length] == '\0') {
            return names;
        }
        text += length + 1;
    }
}

static bool
set(json_t *request, const char *key, json_t *value)
{
    return value != NULL && json_object_set_new(request, key, value) == 0;
}

static json_t *
read_percentile(const char *text)
{
    double percent;
    return strcmp(text, "mean") == 0                 ? json_string(text)
           : parse_double(text, 50, 99.9, &percent) ? json_real(percent)
                                                     : NULL;
}

static json_t *
read_late(const char *text)
{
    return strcmp(text, "drop") == 0 ? json_true() : strcmp(text, "serve") == 0 ? json_false() : NULL;
}

static json_t *
read_number(const char *text, uint64_t min, uint64_t max)
{
    uint64_t number;
    return parse_u64(text, min, max, &number) ? json_integer((json_int_t)number) : NULL;
}

static json_t *
read_duration(const char *text)
{
    uint64_t duration_ns;
    return parse_duration_ns(text, &duration_ns) ? json_integer((json_int_t)duration_ns) : NULL;
}

/* The daemon has a folder of its own. */
static json_t *
read_path(const char *text)
{
    char path[PATH_MAX];
    return strcmp(text, "auto") == 0 ? json_string(text) : realpath(text, path) != NULL ? json_string(path) : NULL;
}

static bool
take_option(int option, struct app_options *options)
{
    switch (option) {
    case 's': options->socket_path = optarg; return true;
    case 'j': options->json = true; return true;
    case 'h': options->help = true; return true;
    case 'W': options->with_models = true; return true;
    case 'm': return set(options->request, "models", split_names(optarg));
    case 'M': return set(options->request, "remove_models", split_names(optarg));
    case 'l': return set(options->request, "latency_ns", read_duration(optarg));
    case 'L': return set(options->request, "drop_late", read_late(optarg));
    case 'r': return set(options->request, "router", json_string(optarg));
    case 'S': return set(options->request, "selector", json_string(optarg));
    case 'P': return set(options->request, "policy", read_path(optarg));
    case 't': return set(options->request, "threshold", read_number(optarg, 1, LEAT_ITEMS_MAX));
    case 'p': return set(options->request, "percentile", read_percentile(optarg));
    case 'q': return set(options->request, "queue", read_number(optarg, 1, 1048576));
    default: return false;
    }
}

static bool
parse_options(int argc, char **argv, struct app_options *options)
{
    static const struct option known[] = {
        {"socket", required_argument, NULL, 's'},     {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},             {"with-models", no_argument, NULL, 'W'},
        {"models", required_argument, NULL, 'm'},     {"remove-models", required_argument, NULL, 'M'},
        {"latency", required_argument, NULL, 'l'},    {"late", required_argument, NULL, 'L'},
        {"router", required_argument, NULL, 'r'},     {"selector", required_argument, NULL, 'S'},
        {"threshold", required_argument, NULL, 't'},  {"percentile", required_argument, NULL, 'p'},
        {"queue", required_argument, NULL, 'q'},      {"policy", required_argument, NULL, 'P'},
        {NULL, 0, NULL, 0},
    };
    int option;
    bool good = true;

    *options = (struct app_options){.request = json_object()};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        good = take_option(option, options);
    }
    if (!good) {
        (void)option_error("app", argv);
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

/* ---- What is there ------------------------------------------------------------------------------ */

static void
print_application(const json_t *app)
{
    const json_t *percentile = json_object_get(app, "percentile");
    const long long latency_ns = number_of(app, "latency_ns");

    (void)printf("%s: ", text_of(app, "name"));
    if (json_object_get(app, "failure") != NULL) {
        (void)printf("not served: %s\n", text_of(app, "failure"));
        return;
    }
    (void)printf(latency_ns > 0 ? "objective %s" : "no objective", format_ns((double)latency_ns).text);
    (void)printf(", late: %s, router %s, selector %s, ", json_is_true(json_object_get(app, "drop_late")) ? "drop" : "serve",
                 text_of(app, "router")[0] != '\0' ? text_of(app, "router") : "auto",
                 text_of(app, "selector")[0] != '\0' ? text_of(app, "selector") : "auto");
    if (json_is_string(percentile)) {
        (void)printf("by the mean");
    } else {
        (void)printf("by percentile %g", json_number_value(percentile));
    }
    (void)printf(", queue %lld%s\n", number_of(app, "queue"),
                 json_is_true(json_object_get(app, "configured")) ? ", of the configuration" : "");
}

static void
print_list(const json_t *reply)
{
    size_t a, m;
    json_t *app, *model;

    json_array_foreach(json_object_get(reply, "applications"), a, app) {
        print_application(app);
        (void)printf("    models:");
        json_array_foreach(json_object_get(app, "models"), m, model) {
            (void)printf(" %s", json_string_value(model));
        }
        (void)printf("%s\n", m == 0 ? " none yet" : "");
    }
}

static void
print_app(const json_t *app)
{
    size_t v;
    json_t *variant;

    print_application(app);
    (void)printf("%-24s %-10s %6s %9s %10s %10s\n", "model", "backend", "items", "accuracy", "weights", "load");
    json_array_foreach(json_object_get(app, "variants"), v, variant) {
        const double accuracy = (double)number_of(variant, "accuracy_ppm") / 1e6;
        if (json_object_get(variant, "failure") != NULL) {
            (void)printf("%-24s %s: %s\n", text_of(variant, "name"), text_of(variant, "state"), text_of(variant, "failure"));
            continue;
        }
        (void)printf("%-24s %-10s %6lld ", text_of(variant, "name"), text_of(variant, "backend"), number_of(variant, "items_max"));
        (void)(accuracy > 0 ? printf("%8.2f%%", accuracy * 100) : printf("%9s", "-"));
        (void)printf(" %10s %10s\n", format_bytes((double)number_of(variant, "bytes")).text,
                     format_ns((double)number_of(variant, "load_ns")).text);
    }
}

/* ---- The verb ----------------------------------------------------------------------------------- */

/* Sends the request, consumed, and prints the answer. */
static int
ask(const struct app_options *options, json_t *request, void (*print)(const json_t *reply))
{
    int exit_code = EXIT_FAILED;
    json_t *reply = ask_daemon("app", options->socket_path, request, -1, &exit_code);

    if (reply == NULL) {
        return exit_code;
    }
    if (options->json) {
        print_json(reply);
        return EXIT_DONE;
    }
    print(reply);
    json_decref(reply);
    return EXIT_DONE;
}

static void
print_removed(const json_t *reply)
{
    (void)printf("removed %s\n", text_of(reply, "removed"));
}

static int
run(const char *what, const char *name, struct app_options *options)
{
    static const struct {
        const char *what, *op;
        void (*print)(const json_t *reply);
    } verbs[] = {
        {"add", "app-add", print_app},   {"change", "app-change", print_app},     {"list", "app-list", print_list},
        {"show", "app-show", print_app}, {"remove", "app-remove", print_removed},
    };

    for (size_t v = 0; v < sizeof(verbs) / sizeof(verbs[0]); v++) {
        if (strcmp(what, verbs[v].what) != 0) {
            continue;
        }
        const bool lists = strcmp(what, "list") == 0;
        if (lists != (name == NULL)) {
            return usage_error("app", lists ? "list takes no name" : "%s needs one name", what);
        }
        if (!lists) {
            (void)json_object_set_new(options->request, "name", json_string(name));
        }
        if (options->with_models) {
            (void)json_object_set_new(options->request, "models", json_true());
        }
        (void)json_object_set_new(options->request, "op", json_string(verbs[v].op));
        return ask(options, json_incref(options->request), verbs[v].print);
    }
    return usage_error("app", "'%s' is not add, change, list, show or remove", what);
}

int
verb_app(int argc, char **argv)
{
    struct app_options options;
    int exit_code = EXIT_USAGE;

    if (!parse_options(argc, argv, &options)) {
        json_decref(options.request);
        return EXIT_USAGE;
    }
    if (options.help) {
        print_help();
        exit_code = EXIT_DONE;
    } else if (optind >= argc) {
        exit_code = usage_error("app", "add, change, list, show or remove?");
    } else if (argc - optind > 2) {
        exit_code = usage_error("app", "'%s' is too much", argv[optind + 2]);
    } else {
        exit_code = run(argv[optind], argc - optind == 2 ? argv[optind + 1] : NULL, &options);
    }
    json_decref(options.request);
    return exit_code;
}
