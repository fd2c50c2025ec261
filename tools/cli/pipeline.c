/* SPDX-License-Identifier: Apache-2.0 */
/* leat pipeline: several applications behind one query. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/cli.h"

struct pipeline_options {
    const char *socket_path, *name;
    bool json, help;
};

static void
print_help(void)
{
    (void)printf(
        "usage: leat pipeline add FILE|- [--name NAME]\n"
        "       leat pipeline list\n"
        "       leat pipeline show NAME\n"
        "       leat pipeline remove NAME\n\n"
        "A pipeline is a graph of applications and models that answers one query with one deadline. What lies between its\n"
        "stages stays in the daemon. It is asked like an application (leat run, leat bench, leat_find), outlives the "
        "daemon,\n"
        "and holds its applications: they cannot be removed before it. FILE is a JSON object:\n\n"
        "  {\"name\": \"traffic\", \"latency_ms\": 200, \"stages\": [\n"
        "     {\"name\": \"detect\", \"application\": \"yolo\", \"inputs\": {\"images\": \"input.image\"}},\n"
        "     {\"name\": \"classify\", \"application\": \"resnet\", \"each\": \"detect.crops\", \"inputs\": {\"input\": "
        "\"detect.crops\"}}],\n"
        "   \"outputs\": {\"boxes\": \"detect.boxes\", \"labels\": \"classify.output\"}}\n\n"
        "stages     each with the application that answers it and, for each of its inputs, where that comes from:\n"
        "           STAGE.OUTPUT, or input.NAME, an input of the pipeline. Types must be the same. A stage's name is its\n"
        "           application's unless given. Several may read one source; each runs once its sources are there\n"
        "each       the stage is asked for the elements of a source that varies in number, such as what a detector found\n"
        "outputs    what the client gets, by name; 'stage_ns' is added: how long each stage waited and took\n"
        "latency_ms the objective of queries that bring none; late: drop (default), what cannot end in time; drop_thrice,\n"
        "           only what cannot end in three times as long; serve, nothing\n"
        "in_flight  queries at a time (default 64, or what a quarter of limits.pipeline_memory has room for), of which half\n"
        "           may be offline: none, where it is 1; items_max: of one query (default: as many as its stages take)\n\n"
        "  --name NAME     instead of the one in the file\n"
        "  --json          one JSON object\n"
        "  --socket PATH   the daemon's socket\n\n"
        "example: leat pipeline add traffic.json --name crossing\n");
}

static bool
parse_options(int argc, char **argv, struct pipeline_options *options)
{
    static const struct option known[] = {
        {"socket", required_argument, NULL, 's'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {"name", required_argument, NULL, 'n'},
        {NULL, 0, NULL, 0},
    };
    bool good = true;
    int option;

    *options = (struct pipeline_options){0};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 's':
            options->socket_path = optarg;
            break;
        case 'j':
            options->json = true;
            break;
        case 'h':
            options->help = true;
            break;
        case 'n':
            options->name = optarg;
            break;
        default:
            good = false;
            break;
        }
    }
    if (!good) {
        (void)option_error("pipeline", argv);
    }
    return good;
}

/* ---- What is said ----------------------------------------------------------------------------- */

/* "f32[N,0..16,4]" */
static void
print_tensor(const json_t *tensor)
{
    const json_t *dims = json_object_get(tensor, "dims");
    const long long varying = number_of(tensor, "varying");

    (void)printf("  %-6s %-20s %s[N", text_of(tensor, "role"), text_of(tensor, "name"), text_of(tensor, "dtype"));
    for (size_t d = 1; d < json_array_size(dims); d++) {
        (void)printf(",%s%lld", varying == (long long)d ? "0.." : "",
                     (long long)json_integer_value(json_array_get(dims, d)));
    }
    (void)printf("]\n");
}

static void
print_times(const char *what, const json_t *times)
{
    (void)printf("%s p50 %s, p99 %s", what, format_ns((double)number_of(times, "p50")).text,
                 format_ns((double)number_of(times, "p99")).text);
}

static void
print_stage(const json_t *stage)
{
    const json_t *after = json_object_get(stage, "after"), *each = json_object_get(stage, "each");

    (void)printf("  stage  %s (%s)", text_of(stage, "name"), text_of(stage, "application"));
    for (size_t a = 0; a < json_array_size(after); a++) {
        (void)printf("%s%s", a == 0 ? " after " : ", ", json_string_value(json_array_get(after, a)));
    }
    if (each != NULL) {
        (void)printf(", for each of up to %lld of %s", number_of(each, "items_max"), text_of(each, "stage"));
    }
    const long long count = number_of(json_object_get(stage, "exec_ns"), "count");
    (void)printf("\n         %lld time%s", count, count == 1 ? "" : "s");
    print_times(", waiting", json_object_get(stage, "queue_ns"));
    print_times("; running", json_object_get(stage, "exec_ns"));
    (void)printf("\n");
}

static void
print_pipeline(const json_t *pipeline)
{
    const json_t *row;
    size_t i;

    (void)printf("%s: ", text_of(pipeline, "name"));
    if (!json_is_true(json_object_get(pipeline, "served"))) {
        (void)printf("not served: %s\n", text_of(pipeline, "failure"));
        return;
    }
    if (number_of(pipeline, "latency_ns") > 0) {
        (void)printf("objective %s (late: %s), ", format_ns((double)number_of(pipeline, "latency_ns")).text,
                     text_of(pipeline, "late"));
    }
    (void)printf("%lld at a time, of up to %lld items, %s each between stages\n", number_of(pipeline, "in_flight"),
                 number_of(pipeline, "items_max"), format_bytes((double)number_of(pipeline, "workspace_bytes")).text);
    json_array_foreach(json_object_get(pipeline, "tensors"), i, row) {
        print_tensor(row);
    }
    json_array_foreach(json_object_get(pipeline, "stages"), i, row) {
        print_stage(row);
    }
    (void)printf("  %lld accepted: %lld ok (%lld late), %lld rejected, %lld expired, %lld cancelled, %lld failed; "
                 "%lld running\n",
                 number_of(pipeline, "accepted"), number_of(pipeline, "ok"), number_of(pipeline, "ok_late"),
                 number_of(pipeline, "rejected"), number_of(pipeline, "expired"), number_of(pipeline, "cancelled"),
                 number_of(pipeline, "failed"), number_of(pipeline, "running"));
}

static void
print_list(const json_t *reply)
{
    const json_t *row;
    size_t i;

    (void)printf("%-24s %10s %10s %10s %9s %9s %9s %8s  %s\n", "pipeline", "objective", "accepted", "ok", "rejected",
                 "expired", "failed", "running", "applications");
    json_array_foreach(json_object_get(reply, "pipelines"), i, row) {
        const json_t *applications = json_object_get(row, "applications");
        (void)printf("%-24s %10s %10lld %10lld %9lld %9lld %9lld %8lld  ", text_of(row, "name"),
                     number_of(row, "latency_ns") > 0 ? format_ns((double)number_of(row, "latency_ns")).text : "none",
                     number_of(row, "accepted"), number_of(row, "ok"), number_of(row, "rejected"),
                     number_of(row, "expired"), number_of(row, "failed"), number_of(row, "running"));
        for (size_t a = 0; a < json_array_size(applications); a++) {
            (void)printf("%s%s", a > 0 ? "," : "", json_string_value(json_array_get(applications, a)));
        }
        if (!json_is_true(json_object_get(row, "served"))) {
            (void)printf("  not served: %s", text_of(row, "failure"));
        }
        (void)printf("\n");
    }
}

/* ---- Verbs ------------------------------------------------------------------------------------ */

/* Takes the request over. */
static int
ask(const struct pipeline_options *options, json_t *request, void (*print)(const json_t *reply))
{
    int exit_code = EXIT_FAILED;

    json_t *reply = ask_daemon("pipeline", options->socket_path, request, -1, &exit_code);
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
add(const struct pipeline_options *options, const char *path)
{
    const bool from_input = strcmp(path, "-") == 0;
    FILE *file = from_input ? stdin : fopen(path, "rb");
    json_error_t error;

    if (file == NULL) {
        (void)fprintf(stderr, "leat pipeline: cannot open %s: %s\n", path, strerror(errno));
        return EXIT_FAILED;
    }
    json_t *description = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    const bool unread = ferror(file) != 0; /* a folder can be opened, and not read */
    if (!from_input) {
        (void)fclose(file);
    }
    if (unread) {
        json_decref(description);
        (void)fprintf(stderr, "leat pipeline: cannot read %s: is it a file?\n", path);
        return EXIT_FAILED;
    }
    if (description == NULL) {
        (void)fprintf(stderr, "leat pipeline: %s:%d:%d: %s\n", path, error.line, error.column, error.text);
        return EXIT_FAILED;
    }
    json_t *request = json_pack("{s:s, s:o}", "op", "pipeline-add", "pipeline", description);
    if (options->name != NULL && json_object_set_new(request, "name", json_string(options->name)) != 0) {
        json_decref(request);
        return usage_error("pipeline", "the pipeline's name is not UTF-8");
    }
    return ask(options, request, print_pipeline);
}

int
verb_pipeline(int argc, char **argv)
{
    struct pipeline_options options;

    if (!parse_options(argc, argv, &options)) {
        return EXIT_USAGE;
    }
    if (options.help) {
        print_help();
        return EXIT_DONE;
    }
    const char *what = optind < argc ? argv[optind] : "";
    const bool adds = strcmp(what, "add") == 0, lists = strcmp(what, "list") == 0, removes = strcmp(what, "remove") == 0;
    if (!adds && !lists && !removes && strcmp(what, "show") != 0) {
        return usage_error("pipeline", "add, list, show or remove, please");
    }
    if (optind + 1 + !lists != argc) {
        return usage_error("pipeline",
                           lists  ? "%s takes options only"
                           : adds ? "%s takes one file"
                                  : "%s takes the name of one pipeline",
                           what);
    }
    if (options.name != NULL && !adds) {
        return usage_error("pipeline", "--name goes with add");
    }
    if (adds) {
        return add(&options, argv[optind + 1]);
    }
    if (lists) {
        return ask(&options, json_pack("{s:s}", "op", "pipeline-list"), print_list);
    }
    json_t *request =
        json_pack("{s:s, s:s}", "op", removes ? "pipeline-remove" : "pipeline-show", "name", argv[optind + 1]);
    return request != NULL ? ask(&options, request, removes ? print_removed : print_pipeline)
                           : usage_error("pipeline", "the pipeline's name is not UTF-8");
}
