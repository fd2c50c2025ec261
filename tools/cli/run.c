/* SPDX-License-Identifier: Apache-2.0 */
/* leat run: one question, one answer. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "tools/cli/cli.h"
#include "base/npy.h"

struct run_options {
    const char *socket_path, *target;
    const char *inputs[LEAT_TENSORS_MAX], *outputs[LEAT_TENSORS_MAX]; /* "name=path" or "path" */
    uint32_t input_count, output_count;
    uint64_t items; /* 0 until --items or the first file says */
    uint64_t latency_ns, count, length;
    double accuracy_floor, cost_cap; /* 0: any */
    bool json, help, items_given, offline;
};

static void
print_run_help(void)
{
    (void)printf(
        "usage: leat run NAME [--input [TENSOR=]FILE.npy]... [--output [TENSOR=]FILE.npy]... [OPTION...]\n\n"
        "Sends one query to an application, model or pipeline and shows the answer. Inputs are NumPy .npy files of the\n"
        "tensor's type and shape, the first dimension being the items; inputs that are not given are zeros. Of a pipeline,\n"
        "how long each stage waited and took is shown.\n\n"
        "  --items N        items in the query: the first N of each file (default: all of the first file, else 1)\n"
        "  --length N       of the sequences, of which the first N positions of inputs are read (default: all)\n"
        "  --latency TIME   latency objective, such as 20ms (default: the application's)\n"
        "  --accuracy-floor SHARE  no variant that is less accurate, such as 0.9\n"
        "  --cost-cap PRICE what the answer may cost, in what prices of workers are in\n"
        "  --offline        wait until nobody else does; no latency objective but that of --latency\n"
        "  --count N        ask N times and show each time taken (default 1)\n"
        "  --json           one JSON object per answer\n"
        "  --socket PATH    the daemon's socket\n\n"
        "example: leat run digits --input image=seven.npy --output scores.npy\n");
}

static bool
parse_run_options(int argc, char **argv, struct run_options *options)
{
    static const struct option known[] = {
        {"socket", required_argument, NULL, 's'},  {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},          {"input", required_argument, NULL, 'i'},
        {"output", required_argument, NULL, 'o'},  {"items", required_argument, NULL, 'n'},
        {"latency", required_argument, NULL, 'l'}, {"count", required_argument, NULL, 'c'},
        {"accuracy-floor", required_argument, NULL, 'a'}, {"cost-cap", required_argument, NULL, 'p'},
        {"offline", no_argument, NULL, 'O'},       {"length", required_argument, NULL, 'L'},
        {NULL, 0, NULL, 0},
    };
    bool good = true;
    int option;

    *options = (struct run_options){.count = 1};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 's': options->socket_path = optarg; break;
        case 'j': options->json = true; break;
        case 'h': options->help = true; break;
        case 'i':
            good = options->input_count < LEAT_TENSORS_MAX;
            options->inputs[good ? options->input_count++ : 0] = optarg;
            break;
        case 'o':
            good = options->output_count < LEAT_TENSORS_MAX;
            options->outputs[good ? options->output_count++ : 0] = optarg;
            break;
        case 'n':
            good = parse_u64(optarg, 1, LEAT_ITEMS_MAX, &options->items);
            options->items_given = true;
            break;
        case 'l': good = parse_duration_ns(optarg, &options->latency_ns); break;
        case 'c': good = parse_u64(optarg, 1, 1000000, &options->count); break;
        case 'a': good = parse_double(optarg, 0, 1, &options->accuracy_floor); break;
        case 'p': good = parse_double(optarg, 1e-9, UINT32_MAX / 1e9, &options->cost_cap); break;
        case 'O': options->offline = true; break;
        case 'L': good = parse_u64(optarg, 1, LEAT_LENGTH_MAX, &options->length); break;
        default: good = false; break;
        }
    }
    if (!good) {
        (void)option_error("run", argv);
        return false;
    }
    if (options->help) {
        return true;
    }
    if (optind + 1 != argc) {
        (void)usage_error("run", "one application, model or pipeline, please");
        return false;
    }
    options->target = argv[optind];
    return true;
}

/* Splits "tensor=path"; the tensor is found by name, or by position when none is given. -1 when unknown. */
static int
tensor_of(const struct leat_target *target, const char *argument, uint32_t position, bool output, const char **ret_path)
{
    const uint32_t first = output ? target->input_count : 0;
    const uint32_t count = output ? target->output_count : target->input_count;
    const char *equals = strchr(argument, '=');

    if (equals == NULL) {
        *ret_path = argument;
        return position < count ? (int)(first + position) : -1;
    }
    *ret_path = equals + 1;
    for (uint32_t t = first; t < first + count; t++) {
        const size_t length = strlen(target->tensors[t].name);
        if (length == (size_t)(equals - argument) && memcmp(target->tensors[t].name, argument, length) == 0) {
            return (int)t;
        }
    }
    return -1;
}

/* It has others. */
static int
no_tensor(const struct leat_target *target, const struct run_options *options, const char *argument, bool output)
{
    const uint32_t first = output ? target->input_count : 0;
    const uint32_t count = output ? target->output_count : target->input_count;
    char *names = NULL;
    bool listed = true;

    for (uint32_t t = first; t < first + count && listed; t++) {
        listed = append_text(&names, target->tensors[t].name);
    }
    const int exit_code = usage_error("run", "'%s' has no %s for '%s', but %s", options->target, output ? "output" : "input",
                                      argument, listed && names != NULL ? names : "others");
    free(names);
    return exit_code;
}

/* Can the query's items come from this array? The first file sets their number when none was asked for. */
static bool
fits(const struct npy_array *array, const struct leat_tensor_info *info, struct run_options *options)
{
    if (!npy_holds_items(array, info) || array->dims[0] == 0) {
        return false;
    }
    const uint64_t items = (uint64_t)array->dims[0];
    options->items = options->items == 0 ? items : options->items;
    return options->items_given ? items >= options->items : items == options->items;
}

static void
report_misfit(const char *path, const struct npy_array *array, const struct leat_tensor_info *info, uint64_t items)
{
    int64_t dims[LEAT_RANK_MAX];

    memcpy(dims, info->dims, sizeof(dims));
    dims[0] = items == 0 ? -1 : (int64_t)items;
    (void)fprintf(stderr, "leat run: %s holds %s, but input '%s' needs %s\n", path,
                  npy_shape(array->dtype, array->dims, array->rank).text, info->name,
                  npy_shape(info->dtype, dims, info->rank).text);
}

/* Puts one file into its tensor. */
static int
load_input(struct leat_session *session, const struct leat_target *target, struct run_options *options,
           const char *argument, uint32_t position, struct leat_query *query)
{
    const char *path;
    struct npy_array array;
    const int tensor = tensor_of(target, argument, position, false, &path);

    if (tensor < 0) {
        return no_tensor(target, options, argument, false);
    }
    enum leat_status status = npy_read(path, &array);
    if (status != LEAT_OK) {
        return report_status("run", "input", status);
    }
    const struct leat_tensor_info *info = &target->tensors[tensor];
    if (!fits(&array, info, options)) {
        report_misfit(path, &array, info, options->items);
        npy_free(&array);
        return EXIT_FAILED;
    }
    const uint64_t needed = info->item_bytes * options->items;
    status = leat_tensor_alloc(session, needed, &query->tensors[tensor]);
    if (status == LEAT_OK) {
        memcpy(query->tensors[tensor], array.data, needed);
    }
    npy_free(&array);
    return status == LEAT_OK ? EXIT_DONE : report_answer("run", "input", status);
}

/* Of one output: elements of which item i has rows[i] * inner in each of `outer` rows of `room`. */
struct extent {
    size_t outer, room, inner;
};

static struct extent
extent_of(const struct leat_tensor_info *info)
{
    struct extent extent = {.outer = 1, .room = 1, .inner = 1};

    for (uint32_t d = 1; d < info->rank; d++) {
        *(d < info->varying ? &extent.outer : &extent.room) *= (size_t)info->dims[d];
        extent.inner *= d > info->varying ? (size_t)info->dims[d] : 1;
    }
    return extent;
}

/* Elements of a row of an item's; all of them where the output does not vary. */
static size_t
row_of(const struct leat_target *target, const struct leat_completion *done, uint32_t t, uint32_t item,
       const struct extent *extent)
{
    return target->tensors[t].varying == 0 ? extent->room : leat_output_size(target, done, t, item) * extent->inner;
}

/* As long as the longest item; where others are shorter, zeros. */
static int
save_output(const struct leat_target *target, const char *argument, uint32_t position, const struct leat_query *query,
            const struct leat_completion *done)
{
    const char *path;
    const int tensor = tensor_of(target, argument, position, true, &path);
    const struct leat_tensor_info *info = &target->tensors[tensor];
    const struct extent extent = extent_of(info);
    const size_t element_bytes = leat_dtype_bytes(info->dtype);
    struct npy_array array = {.dtype = info->dtype, .rank = info->rank};
    size_t longest = 0;
    memcpy(array.dims, info->dims, sizeof(array.dims));
    array.dims[0] = (int64_t)query->items;
    for (uint32_t item = 0; item < query->items; item++) {
        const size_t row = row_of(target, done, (uint32_t)tensor, item, &extent);
        longest = row > longest ? row : longest;
    }
    if (info->varying != 0) {
        array.dims[info->varying] = (int64_t)(longest / extent.inner);
    }
    array.elements = extent.outer * longest * query->items;
    unsigned char *rows = malloc(array.elements * element_bytes + 1);
    if (rows == NULL) {
        return report_status("run", "output", LEAT_ERR_NOMEM);
    }
    for (size_t r = 0; r < extent.outer * query->items; r++) {
        memcpy(rows + r * longest * element_bytes,
               (const unsigned char *)query->tensors[tensor] + r * extent.room * element_bytes, longest * element_bytes);
    }
    array.data = rows;
    const enum leat_status status = npy_write(path, &array);
    free(rows);
    return status == LEAT_OK ? EXIT_DONE : report_status("run", "output", status);
}

static json_t *
element_of(uint32_t dtype, const void *data, size_t i)
{
    switch (dtype) {
    case LEAT_DTYPE_F32: return json_real(((const float *)data)[i]);
    case LEAT_DTYPE_I64: return json_integer(((const int64_t *)data)[i]);
    case LEAT_DTYPE_I32: return json_integer(((const int32_t *)data)[i]);
    case LEAT_DTYPE_U8: return json_integer(((const uint8_t *)data)[i]);
    case LEAT_DTYPE_U64: return json_integer((json_int_t)((const uint64_t *)data)[i]);
    default: return NULL;
    }
}

/* A few numbers of each output, so that an answer can be seen without a file; of those that items have. */
static json_t *
preview(const struct leat_target *target, const struct leat_query *query, const struct leat_completion *done)
{
    enum { SHOWN = 10 };
    json_t *outputs = json_object();

    for (uint32_t t = target->input_count; t < target->input_count + target->output_count; t++) {
        const struct leat_tensor_info *info = &target->tensors[t];
        const struct extent extent = extent_of(info);
        json_t *values = json_array();
        for (size_t r = 0; r < extent.outer * query->items && json_array_size(values) < SHOWN; r++) {
            const size_t row = row_of(target, done, t, (uint32_t)(r / extent.outer), &extent);
            for (size_t i = 0; i < row && json_array_size(values) < SHOWN; i++) {
                json_t *value = element_of(info->dtype, query->tensors[t], r * extent.room + i);
                if (value == NULL) {
                    continue; /* a NaN is no JSON */
                }
                (void)json_array_append_new(values, value);
            }
        }
        json_object_set_new(outputs, info->name, values);
    }
    return outputs;
}

/* Of each output that varies: how much each item has. */
static json_t *
list_sizes(const struct leat_target *target, const struct leat_query *query, const struct leat_completion *done)
{
    json_t *sizes = json_object();

    for (uint32_t t = target->input_count; t < target->input_count + target->output_count; t++) {
        if (target->tensors[t].varying == 0) {
            continue;
        }
        json_t *list = json_array();
        for (uint32_t item = 0; item < query->items; item++) {
            (void)json_array_append_new(list, json_integer((json_int_t)leat_output_size(target, done, t, item)));
        }
        (void)json_object_set_new(sizes, target->tensors[t].name, list);
    }
    return sizes;
}

/* How long each stage of a pipeline waited and took, for the item that had to longest; NULL: it is none, or unknown. */
static json_t *
list_stages(const json_t *status, const char *name, const struct leat_target *target, const struct leat_query *query)
{
    const json_t *stages = json_object_get(find_named(json_object_get(status, "pipelines"), name), "stages");
    const uint32_t last = target->input_count + target->output_count - 1;
    const uint64_t *times = query->tensors[last];

    if (stages == NULL || target->tensors[last].item_bytes != json_array_size(stages) * 2 * sizeof(uint64_t)) {
        return NULL;
    }
    json_t *list = json_array();
    for (size_t s = 0; s < json_array_size(stages); s++) {
        uint64_t queue_ns = 0, exec_ns = 0;
        for (uint32_t item = 0; item < query->items; item++) {
            const uint64_t *own = &times[(item * json_array_size(stages) + s) * 2];
            queue_ns = own[0] > queue_ns ? own[0] : queue_ns;
            exec_ns = own[1] > exec_ns ? own[1] : exec_ns;
        }
        (void)json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "name", text_of(json_array_get(stages, s), "name"),
                                                    "queue_ns", (json_int_t)queue_ns, "exec_ns", (json_int_t)exec_ns));
    }
    return list;
}

static void
print_stages(const json_t *stages)
{
    const json_t *stage;
    size_t s;

    json_array_foreach(stages, s, stage) {
        (void)printf("  stage %s: waited %s, took %s\n", text_of(stage, "name"),
                     format_ns((double)number_of(stage, "queue_ns")).text, format_ns((double)number_of(stage, "exec_ns")).text);
    }
}

/* The stage of a pipeline that did not do; NULL: none, it is no pipeline, or unknown. */
static const char *
stage_name(const json_t *status, const char *name, const struct leat_completion *done)
{
    const json_t *stages = json_object_get(find_named(json_object_get(status, "pipelines"), name), "stages");
    return json_string_value(json_object_get(json_array_get(stages, done->variant), "name"));
}

/* Where the names of variants and classes are. NULL: the daemon does not say. */
static json_t *
daemon_status(struct leat_session *session)
{
    char *reply = NULL;

    if (leat_admin(session, "{\"op\":\"status\"}", -1, &reply) != LEAT_OK) {
        return NULL;
    }
    json_t *status = json_loads(reply, 0, NULL);
    leat_admin_free(reply);
    return status;
}

/* NULL: none, or unknown. */
static const char *
variant_name(const json_t *status, const char *application, uint32_t variant)
{
    const json_t *app = find_named(json_object_get(status, "applications"), application);
    return json_string_value(json_array_get(json_object_get(app, "models"), variant));
}

/* Of the class that lacks a price; NULL: none does, or it is unknown. */
static const char *
unpriced_class(const json_t *status, const struct leat_completion *done)
{
    const json_t *worker = json_array_get(json_object_get(status, "workers"), done->worker);
    return done->reason == LEAT_REASON_PRICE ? json_string_value(json_object_get(worker, "class_name")) : NULL;
}

static void
show(const struct run_options *options, const struct leat_target *target, const struct leat_query *query,
     const struct leat_completion *done, const json_t *known)
{
    const char *variant = variant_name(known, options->target, done->variant), *unpriced = unpriced_class(known, done);
    const bool answered = done->outcome == LEAT_OUTCOME_OK, rejected = done->outcome == LEAT_OUTCOME_REJECTED;
    json_t *outputs = answered ? preview(target, query, done) : json_object();
    json_t *sizes = answered ? list_sizes(target, query, done) : json_object();
    json_t *stages = answered ? list_stages(known, options->target, target, query) : NULL;
    const char *stage = stage_name(known, options->target, done);
    if (options->json) {
        print_json(json_pack("{s:s, s:s, s:I, s:I, s:I, s:i, s:i, s:s?, s:i, s:i, s:I, s:s?, s:o, s:o, s:o*, s:s*}", "outcome",
                             leat_outcome_text(done->outcome), "reason", leat_reason_text(done->reason), "queue_ns",
                             (json_int_t)done->queue_ns, "exec_ns", (json_int_t)done->exec_ns, "total_ns",
                             (json_int_t)done->total_ns, "batch_items", (int)done->batch_items, "variant",
                             (int)done->variant, "variant_name", variant, "worker", (int)done->worker, "accuracy_ppm",
                             (int)done->accuracy_ppm, "cost_nano", (json_int_t)done->cost_nano, "unpriced_class", unpriced,
                             "outputs", outputs, "sizes", sizes, "stages", stages, "stage", stage));
        return;
    }
    (void)printf("%s", leat_outcome_text(done->outcome));
    if (done->reason != LEAT_REASON_NONE) {
        (void)printf(": %s", leat_reason_text(done->reason));
    }
    if (unpriced != NULL) {
        (void)printf(" (set a price for class '%s')", unpriced);
    }
    (void)printf("; total %s, queue %s", format_ns((double)done->total_ns).text, format_ns((double)done->queue_ns).text);
    if (!rejected || done->exec_ns > 0) { /* of what was refused, what the closest variant would take */
        (void)printf(", execution %s%s", rejected ? "would be " : "", format_ns((double)done->exec_ns).text);
    }
    if (done->outcome == LEAT_OUTCOME_OK && done->worker != UINT16_MAX) {
        (void)printf("; worker %u, batch of %u", done->worker, done->batch_items);
    }
    if (variant != NULL) {
        (void)printf("; %s '%s'", rejected ? "closest is" : "variant", variant);
        if (done->accuracy_ppm > 0) {
            (void)printf(", accuracy %.2f %%", done->accuracy_ppm / 1e4);
        }
        if (done->cost_nano > 0) {
            (void)printf(", would cost %.9f", done->cost_nano / 1e9);
        }
    }
    if (stage != NULL) {
        (void)printf("; in stage '%s'", stage);
    }
    (void)printf("\n");
    print_stages(stages);
    json_decref(stages);
    const char *name;
    json_t *values;
    json_object_foreach(outputs, name, values) {
        char *text = json_dumps(values, JSON_COMPACT | JSON_REAL_PRECISION(6));
        (void)printf("  %s = %s%s", name, text != NULL ? text : "?", json_array_size(values) == 10 ? " ..." : "");
        free(text);
        text = json_dumps(json_object_get(sizes, name), JSON_COMPACT | JSON_ENCODE_ANY);
        if (json_object_get(sizes, name) != NULL && text != NULL) {
            (void)printf(", size %s", text);
        }
        (void)printf("\n");
        free(text);
    }
    json_decref(outputs);
    json_decref(sizes);
}

static int
ask(struct leat_session *session, struct run_options *options)
{
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_completion done;
    struct leat_target target;
    int exit_code = EXIT_DONE;

    enum leat_status status = leat_find(session, options->target, &target);
    if (status != LEAT_OK) {
        return report_answer("run", options->target, status);
    }
    for (uint32_t i = 0; i < options->output_count; i++) { /* before anybody works for them */
        const char *path;
        if (tensor_of(&target, options->outputs[i], i, true, &path) < 0) {
            return no_tensor(&target, options, options->outputs[i], true);
        }
    }
    for (uint32_t i = 0; i < options->input_count && exit_code == EXIT_DONE; i++) {
        exit_code = load_input(session, &target, options, options->inputs[i], i, &query);
    }
    if (exit_code != EXIT_DONE) {
        return exit_code;
    }
    options->items = options->items == 0 ? 1 : options->items;
    query.target = target.id;
    query.items = (uint32_t)options->items;
    query.length = (uint32_t)options->length;
    query.latency_ns = options->latency_ns;
    query.accuracy_floor_ppm = (uint32_t)(options->accuracy_floor * 1e6 + 0.5);
    query.cost_cap_nano = (uint32_t)(options->cost_cap * 1e9);
    query.flags = options->offline ? LEAT_QUERY_OFFLINE : 0;
    for (uint32_t t = 0; t < target.input_count + target.output_count; t++) {
        if (query.tensors[t] == NULL) {
            status = leat_tensor_alloc(session, target.tensors[t].item_bytes * options->items, &query.tensors[t]);
            if (status != LEAT_OK) {
                return report_answer("run", target.tensors[t].name, status);
            }
            memset(query.tensors[t], 0, target.tensors[t].item_bytes * options->items);
        }
    }
    json_t *known = daemon_status(session);
    for (uint64_t n = 0; n < options->count && exit_code == EXIT_DONE; n++) {
        status = leat_run(session, &query, &done);
        if (status != LEAT_OK) {
            exit_code = report_answer("run", options->target, status);
            break;
        }
        show(options, &target, &query, &done, known);
        if (done.outcome != LEAT_OUTCOME_OK) {
            exit_code = done.outcome == LEAT_OUTCOME_REJECTED ? EXIT_REFUSED : EXIT_FAILED;
        }
    }
    json_decref(known);
    for (uint32_t i = 0; i < options->output_count && exit_code == EXIT_DONE; i++) {
        exit_code = save_output(&target, options->outputs[i], i, &query, &done);
    }
    return exit_code;
}

int
verb_run(int argc, char **argv)
{
    struct run_options options;
    struct leat_session *session;
    int exit_code = EXIT_FAILED;

    if (!parse_run_options(argc, argv, &options)) {
        return EXIT_USAGE;
    }
    if (options.help) {
        print_run_help();
        return EXIT_DONE;
    }
    if (!connect_daemon("run", options.socket_path, NULL, &session, &exit_code)) {
        return exit_code;
    }
    exit_code = ask(session, &options);
    leat_close(session);
    return exit_code;
}
