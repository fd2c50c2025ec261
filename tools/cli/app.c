/* SPDX-License-Identifier: Apache-2.0 */
/* leat app: applications, made of models that answer the same questions more or less accurately. */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"
#include "sched/policy.h"
#include "tools/cli/app_import.h"
#include "tools/cli/cli.h"

static void
print_help(void)
{
    (void)printf(
        "usage: leat app add NAME [--models M,...] [option...]\n"
        "       leat app change NAME [--models M,...] [--remove-models M,...] [option...]\n"
        "       leat app list\n"
        "       leat app show NAME\n"
        "       leat app remove NAME [--with-models]\n"
        "       leat app export NAME > PROFILES.csv\n"
        "       leat app import NAME [--profiles] PROFILES.csv [import option...] [option...]\n\n"
        "An application is what callers ask for by name; any of its models can answer. All of them must have the same\n"
        "inputs and outputs. 'leat model add' can add a model to one. It is kept over restarts, and changed while\n"
        "it serves: what waits goes on waiting. 'export' writes how long its models take, 'import' makes an application of\n"
        "models that take as long as a file says, with nothing to compute: somebody else's machine.\n\n"
        "  --models M,...         models that are loaded, to be added behind those that it has\n"
        "  --remove-models M,...  models to be left out\n"
        "  --latency TIME         objective of queries that bring none, as 20ms (default 0: none)\n"
        "  --late drop|serve      drop: refuse what cannot be in time (default); serve: answer it late\n"
        "  --router R             which worker (default auto: what suits the workers):\n"
        "                         ");
    for (size_t i = 0; leat_router_at(i) != NULL; i++) {
        (void)printf("%s%s", i > 0 ? ", " : "", leat_router_at(i)->name);
    }
    (void)printf("\n"
        "  --selector S           which model and batch (default auto: what suits workers, router and models):\n"
        "                         ");
    for (size_t i = 0; leat_selector_at(i) != NULL; i++) {
        (void)printf("%s%s", i > 0 ? ", " : "", leat_selector_at(i)->name);
    }
    (void)printf("\n"
        "  --policy FILE          of selectors that follow one (default auto: made from profiles)\n"
        "  --threshold N          of router threshold: larger queries, in items, go to the fastest class\n"
        "  --percentile P         of times to go by: 50 to 99.9, or mean (default 95)\n"
        "  --queue N              waiting queries at most (default 1024)\n"
        "  --with-models          remove: its models too, where no other application has them\n"
        "  --accuracies FILE      import: accuracies by model, where the profiles have no such column: fractions of 1,\n"
        "                         or percent, with %% signs or all above 1\n"
        "  --task T               import: of rows with a column task\n"
        "  --models M,...         import: those models of the file (default all)\n"
        "  --front                import: without models that another is as accurate as, and no slower for one item\n"
        "  --statistic S          import: mean, p50, p95, ... of each size, which every batch then takes (default p95)\n"
        "  --repair               import: sizes that were not measured, up to --items-max (default 32), on a line through\n"
        "                         the others, and no size takes longer than a larger one\n"
        "  --items-max N          import: no larger batches\n"
        "  --mode sleep|burn      import: what workers do meanwhile (default sleep)\n"
        "  --prefix P             import: put before the models' names\n"
        "  --input-bytes N, --output-bytes N  import: of an item (default 64)\n"
        "  --json                 one JSON object\n"
        "  --socket PATH          the daemon's socket\n\n"
        "example: leat app add digits --latency 20ms --late serve\n"
        "         leat app import images latency_profiles.csv --accuracies accuracies.csv --task image --repair --front\n");
}

struct app_options {
    const char *socket_path;
    bool json, help, with_models;
    json_t *request; /* what the options say of the application */
    struct import_options import;
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
read_u32(const char *text, uint64_t max, uint32_t *ret_number)
{
    uint64_t number;
    const bool good = parse_u64(text, 1, max, &number);
    *ret_number = good ? (uint32_t)number : 0;
    return good;
}

static bool
take_option(int option, struct app_options *options)
{
    switch (option) {
    case 's': options->socket_path = optarg; return true;
    case 'j': options->json = true; return true;
    case 'h': options->help = true; return true;
    case 'W': options->with_models = true; return true;
    case 'a': options->import.profiles.accuracies_path = optarg; return true;
    case 'T': options->import.profiles.task = optarg; return true;
    case 'x': options->import.profiles.statistic = optarg; return true;
    case 'f': options->import.front = true; return true;
    case 'R': options->import.repair = true; return true;
    case 'F': options->import.prefix = optarg; return true;
    case 'o': options->import.mode = optarg; return strcmp(optarg, "sleep") == 0 || strcmp(optarg, "burn") == 0;
    case 'I': return parse_bytes(optarg, &options->import.input_bytes);
    case 'O': return parse_bytes(optarg, &options->import.output_bytes);
    case 'n': return read_u32(optarg, LEAT_ITEMS_MAX, &options->import.items_max);
    case 'i': options->import.profiles.path = optarg; return true;
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
        {"profiles", required_argument, NULL, 'i'},   {"accuracies", required_argument, NULL, 'a'}, {"task", required_argument, NULL, 'T'},
        {"statistic", required_argument, NULL, 'x'},  {"front", no_argument, NULL, 'f'},
        {"repair", no_argument, NULL, 'R'},           {"prefix", required_argument, NULL, 'F'},
        {"mode", required_argument, NULL, 'o'},       {"input-bytes", required_argument, NULL, 'I'},
        {"output-bytes", required_argument, NULL, 'O'}, {"items-max", required_argument, NULL, 'n'},
        {NULL, 0, NULL, 0},
    };
    int option;
    bool good = true;

    *options = (struct app_options){
        .request = json_object(),
        .import = {.mode = "sleep", .prefix = "", .input_bytes = 64, .output_bytes = 64},
    };
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
    if (json_object_get(app, "policy") != NULL) {
        (void)printf(", policy %s", text_of(app, "policy"));
    }
    (void)printf(", queue %lld%s\n", number_of(app, "queue"),
                 json_is_true(json_object_get(app, "configured")) ? ", of the configuration" : "");
    const json_t *follows = json_object_get(app, "follows");
    if (follows != NULL && text_of(follows, "trouble")[0] != '\0') {
        (void)printf("    the policy that it follows: %s\n", text_of(follows, "trouble"));
    }
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

/* One line for each class of workers and size. */
static void
print_times(const json_t *variant)
{
    size_t c, p;
    json_t *class, *point;

    json_array_foreach(json_object_get(variant, "classes"), c, class) {
        if (json_array_size(json_object_get(class, "points")) == 0) {
            (void)printf("    %-14s not measured\n", text_of(class, "class"));
        }
        json_array_foreach(json_object_get(class, "points"), p, point) {
            (void)printf("    %-14s %5lld %6lld %11s %11s %11s %6lld\n", text_of(class, "class"), number_of(class, "cores"),
                         number_of(point, "items"), format_ns((double)number_of(point, "p50_ns")).text,
                         format_ns((double)number_of(point, "p95_ns")).text, format_ns((double)number_of(point, "p99_ns")).text,
                         number_of(point, "runs"));
        }
    }
}

static void
print_times_header(void)
{
    (void)printf("    %-14s %5s %6s %11s %11s %11s %6s\n", "class", "cores", "items", "p50", "p95", "p99", "runs");
}

void
print_shorter(const json_t *variant, bool header)
{
    size_t s;
    json_t *shorter;

    json_array_foreach(json_object_get(variant, "shorter"), s, shorter) {
        (void)printf("%s: sequences of up to %lld\n", text_of(shorter, "name"), number_of(shorter, "length"));
        if (header) {
            print_times_header();
        }
        print_times(shorter);
    }
}

/* ", 2 interfered (workers 0, 3)", if there are any. */
static void
print_state(const json_t *variant, const char *state, const char *workers_key, const char **separator)
{
    const json_t *workers = workers_key != NULL ? json_object_get(variant, workers_key) : NULL;
    const long long count = number_of(json_object_get(variant, "instances"), state);
    size_t w;
    json_t *worker;

    if (count == 0) {
        return;
    }
    (void)printf("%s%lld %s", *separator, count, state);
    *separator = ", ";
    json_array_foreach(workers, w, worker) {
        (void)printf("%s%lld", w > 0 ? ", " : json_array_size(workers) > 1 ? " (workers " : " (worker ",
                     (long long)json_integer_value(worker));
    }
    (void)printf("%s", w > 0 ? ")" : "");
}

static void
print_instances(const json_t *variant)
{
    const char *separator = "    instances: ";

    if (json_object_get(variant, "instances") == NULL) {
        return;
    }
    print_state(variant, "active", NULL, &separator);
    print_state(variant, "overloaded", "overloaded_on", &separator);
    print_state(variant, "interfered", "interfered_on", &separator);
    print_state(variant, "loading", NULL, &separator);
    print_state(variant, "inactive", NULL, &separator);
    (void)printf("\n");
}

void
print_misdeclared(const json_t *model)
{
    if (json_object_get(model, "misdeclared") != NULL) {
        (void)printf("    %s\n", text_of(model, "misdeclared"));
    }
}

void
print_variant(const json_t *variant)
{
    const double accuracy = (double)number_of(variant, "accuracy_ppm") / 1e4;
    const json_t *validation = json_object_get(variant, "validation");

    if (json_object_get(variant, "failure") != NULL) {
        (void)printf("%s: %s: %s\n", text_of(variant, "name"), text_of(variant, "state"), text_of(variant, "failure"));
        print_instances(variant);
        return;
    }
    const char *bound = batch_bound_of(variant);
    (void)printf("%s: %s, %s on %s, batches of up to %lld%s%s%s, ", text_of(variant, "name"), text_of(variant, "state"),
                 text_of(variant, "precision"), text_of(variant, "backend"), number_of(variant, "items_max"),
                 bound != NULL ? " (" : "", bound != NULL ? bound : "", bound != NULL ? ")" : "");
    if (accuracy > 0) {
        (void)printf("accuracy %.2f %% (%s)", accuracy, text_of(variant, "accuracy_from"));
    } else {
        (void)printf("accuracy unknown");
    }
    if (json_object_get(validation, "agreement_ppm") != NULL) {
        (void)printf(", %.2f %% of %lld agree with f32", (double)number_of(validation, "agreement_ppm") / 1e4,
                     number_of(validation, "samples"));
    } else if (validation != NULL) {
        (void)printf(", %.2f %% of %lld right", (double)number_of(validation, "accuracy_ppm") / 1e4,
                     number_of(validation, "samples"));
    }
    const long long load_ns = number_of(variant, "load_ns"), peak_bytes = number_of(variant, "peak_bytes");
    (void)printf("\n    load %s, memory %s, %s%s\n", load_ns > 0 ? format_ns((double)load_ns).text : "unknown",
                 peak_bytes > 0 ? format_bytes((double)peak_bytes).text : "unknown",
                 text_of(variant, "host")[0] != '\0' ? "measured on " : "imported", text_of(variant, "host"));
    if (text_of(variant, "host")[0] != '\0' && !json_is_true(json_object_get(variant, "host_matches"))) {
        (void)printf("    which is not this host\n");
    }
    if (json_is_true(json_object_get(variant, "one_by_one"))) {
        (void)printf("    run for one item at a time\n");
    }
    print_misdeclared(variant);
    const char *name, *separator = "    dimensions ";
    json_t *value;
    json_object_foreach(json_object_get(variant, "dims"), name, value) {
        (void)printf("%s%s=", separator, name);
        for (size_t l = 0; l < json_array_size(value); l++) {
            (void)printf("%s%lld", l > 0 ? "," : "", (long long)json_integer_value(json_array_get(value, l)));
        }
        if (json_is_string(value)) {
            (void)printf("%s", json_string_value(value));
        } else if (!json_is_array(value)) {
            (void)printf("%lld", (long long)json_integer_value(value));
        }
        separator = ", ";
    }
    (void)printf("%s", json_object_size(json_object_get(variant, "dims")) > 0 ? "\n" : "");
    separator = "    constant inputs ";
    json_object_foreach(json_object_get(variant, "constants"), name, value) {
        if (json_is_integer(value)) {
            (void)printf("%s%s=%lld", separator, name, (long long)json_integer_value(value));
        } else {
            (void)printf("%s%s=%.15g", separator, name, json_real_value(value));
        }
        separator = ", ";
    }
    (void)printf("%s", json_object_size(json_object_get(variant, "constants")) > 0 ? "\n" : "");
    print_instances(variant);
}

static void
print_app(const json_t *app)
{
    size_t v;
    json_t *variant;

    print_application(app);
    if (json_array_size(json_object_get(app, "variants")) > 0) {
        print_times_header();
    }
    json_array_foreach(json_object_get(app, "variants"), v, variant) {
        print_variant(variant);
        print_times(variant);
        print_shorter(variant, false);
    }
}

/* ---- Asking ------------------------------------------------------------------------------------- */

/* Sends the request, consumed, with a file or -1, and prints the answer. */
static int
ask(const struct app_options *options, json_t *request, int fd, void (*print)(const json_t *reply))
{
    int exit_code = EXIT_FAILED;
    json_t *reply = fd >= 0 ? ask_daemon("app", options->socket_path, request, fd, &exit_code)
                            : ask_daemon_list("app", options->socket_path, request, "applications", &exit_code);

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

/* ---- export ------------------------------------------------------------------------------------- */

/* A line for each point. Names have no commas or quotes; classes may. */
static void
export_points(const json_t *variant)
{
    size_t p;
    json_t *point;

    json_array_foreach(json_object_get(variant, "points"), p, point) {
        const char *class = json_string_value(json_array_get(point, 0));
        (void)printf("%s,\"", text_of(variant, "name"));
        for (const char *c = class; *c != '\0'; c++) {
            (void)printf(*c == '"' ? "\"\"" : "%c", *c);
        }
        (void)printf("\",%lld,%lld", (long long)json_integer_value(json_array_get(point, 1)),
                     (long long)json_integer_value(json_array_get(point, 2)));
        for (size_t n = 4; n < 8; n++) {
            (void)printf(",%.6f", (double)json_integer_value(json_array_get(point, n)) / 1e6);
        }
        (void)printf(",%lld,%.6f,%.6f,%lld\n", (long long)json_integer_value(json_array_get(point, 3)),
                     (double)number_of(variant, "accuracy_ppm") / 1e6, (double)number_of(variant, "load_ns") / 1e6,
                     number_of(variant, "peak_bytes"));
    }
}

static int
export_variant(const struct app_options *options, const char *name, size_t variant)
{
    int exit_code = EXIT_FAILED;
    json_t *reply = ask_daemon_list("app", options->socket_path,
                                    json_pack("{s:s, s:s, s:I}", "op", "app-profiles", "name", name, "variant", (json_int_t)variant),
                                    "points", &exit_code);

    if (reply == NULL) {
        return exit_code;
    }
    export_points(reply);
    json_decref(reply);
    return EXIT_DONE;
}

static int
export_app(const struct app_options *options, const char *name)
{
    int exit_code = EXIT_FAILED;
    json_t *reply = ask_daemon("app", options->socket_path, json_pack("{s:s, s:s}", "op", "app-show", "name", name), -1,
                               &exit_code);

    if (reply == NULL) {
        return exit_code;
    }
    const size_t count = json_array_size(json_object_get(reply, "variants"));
    json_decref(reply);
    (void)printf("variant,class,cores,items,mean_ms,p50_ms,p95_ms,p99_ms,runs,accuracy,load_ms,peak_bytes\n");
    exit_code = EXIT_DONE;
    for (size_t v = 0; v < count && exit_code == EXIT_DONE; v++) {
        exit_code = export_variant(options, name, v);
    }
    if (exit_code == EXIT_DONE && (fflush(stdout) != 0 || ferror(stdout) != 0)) {
        (void)fprintf(stderr, "leat app: the profiles could not be written\n");
        return EXIT_FAILED;
    }
    return exit_code;
}

/* ---- import ------------------------------------------------------------------------------------- */

/* The text in a file of memory; -1 where there is none to be had. */
static int
file_of(const char *text)
{
    const int fd = memfd_create("leat-import", MFD_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    const bool written = file != NULL && fputs(text, file) >= 0 && fflush(file) == 0;
    const int copy = written ? dup(fd) : -1;

    if (file != NULL) {
        (void)fclose(file);
    } else if (fd >= 0) {
        (void)close(fd);
    }
    return copy;
}

static int
import_app(struct app_options *options, const char *path)
{
    const char *names[SIMULATE_VARIANTS_MAX];
    const json_t *models = json_object_get(options->request, "models");
    const char *unit;
    json_t *list;

    if (json_array_size(models) > SIMULATE_VARIANTS_MAX) {
        return usage_error("app", "--models: more than %u", SIMULATE_VARIANTS_MAX);
    }
    for (size_t m = 0; m < json_array_size(models); m++) {
        names[m] = json_string_value(json_array_get(models, m));
    }
    options->import.profiles.path = path;
    options->import.profiles.names = names;
    options->import.profiles.name_count = (uint32_t)json_array_size(models);
    if (import_profiles(&options->import, &list, &unit) != LEAT_OK) {
        (void)fprintf(stderr, "leat app: %s\n", leat_error_text());
        return EXIT_FAILED;
    }
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    const int fd = text != NULL ? file_of(text) : -1;
    free(text);
    if (fd < 0) {
        (void)fprintf(stderr, "leat app: no memory for the import\n");
        return EXIT_FAILED;
    }
    (void)json_object_del(options->request, "models");
    const int exit_code = ask(options, json_incref(options->request), fd, print_app);
    (void)close(fd);
    if (exit_code == EXIT_DONE && !options->json) {
        const char *from = options->import.profiles.accuracies_path;
        (void)printf("accuracies in %s: %s\n", from != NULL ? from : path, unit);
    }
    return exit_code;
}

/* ---- The verb ----------------------------------------------------------------------------------- */

static int
run(const char *what, const char *name, const char *path, struct app_options *options)
{
    static const struct {
        const char *what, *op;
        void (*print)(const json_t *reply);
    } verbs[] = {
        {"add", "app-add", print_app},   {"change", "app-change", print_app},     {"list", "app-list", print_list},
        {"show", "app-show", print_app}, {"remove", "app-remove", print_removed}, {"export", "app-profiles", NULL},
        {"import", "app-import", print_app},
    };
    size_t v = 0;

    while (v < sizeof(verbs) / sizeof(verbs[0]) && strcmp(what, verbs[v].what) != 0) {
        v++;
    }
    if (v == sizeof(verbs) / sizeof(verbs[0])) {
        return usage_error("app", "'%s' is not add, change, list, show, remove, export or import", what);
    }
    const bool lists = strcmp(what, "list") == 0, imports = strcmp(what, "import") == 0;
    path = path == NULL && imports ? options->import.profiles.path : path;
    if (lists != (name == NULL) || imports != (path != NULL)) {
        return usage_error("app", lists ? "list takes no name" : imports ? "%s needs a name and a file" : "%s needs one name",
                           what);
    }
    if (strcmp(what, "export") == 0) {
        return export_app(options, name);
    }
    if (!lists) {
        (void)json_object_set_new(options->request, "name", json_string(name));
    }
    (void)json_object_set_new(options->request, "op", json_string(verbs[v].op));
    if (imports) {
        return import_app(options, path);
    }
    if (options->with_models) {
        (void)json_object_set_new(options->request, "models", json_true());
    }
    return ask(options, json_incref(options->request), -1, verbs[v].print);
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
        exit_code = usage_error("app", "add, change, list, show, remove, export or import?");
    } else if (argc - optind > 3) {
        exit_code = usage_error("app", "'%s' is too much", argv[optind + 3]);
    } else {
        exit_code = run(argv[optind], argc - optind >= 2 ? argv[optind + 1] : NULL,
                        argc - optind == 3 ? argv[optind + 2] : NULL, &options);
    }
    json_decref(options.request);
    return exit_code;
}
