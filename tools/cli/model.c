/* SPDX-License-Identifier: Apache-2.0 */
/* leat model: models are added, measured, listed and removed. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "kernels/graph.h"
#include "sched/policy.h"
#include "sched/scale.h"
#include "tools/cli/cli.h"
#include "tools/cli/inspect.h"
#include "base/npy.h"

static void
print_model_help(void)
{
    (void)printf(
        "usage: leat model add NAME FILE.onnx [--app NAME] [--validation SET] [--variants] [option...]\n"
        "       leat model add NAME --synthetic JSON [--app NAME] [option...]\n"
        "       leat model list\n"
        "       leat model show NAME\n"
        "       leat model profile NAME [--cores N,...]\n"
        "       leat model inspect FILE.onnx|NAME [--items N] [--dim NAME=N|items]... [--constant INPUT=VALUE]... [--cores N]\n"
        "                          [--precision P] [--runs N] [--svg FILE] [--without PASS,...] [--memory SIZE] [--loop-iterations N]\n"
        "       leat model inspect --passes\n"
        "       leat model remove NAME\n\n"
        "Adds a model to the daemon, which copies it, loads it, measures it and keeps it over restarts; lists\n"
        "what is loaded; shows what one takes, by cores and batch; measures one again, for instance because the machine\n"
        "was busy; removes one. inspect runs a model here, without the daemon but to fetch one that it keeps, and shows its nodes\n"
        "before and after the passes with the time, FLOP/s and bytes of each, and its memory. Files beside FILE.onnx that its\n"
        "weights lie in (external data) go with it, and may be larger than memory.\n\n"
        "  --backend B      what runs it: cpu (default), reference, or one that the daemon's configuration loads\n"
        "  --items-max N    largest batch, in items; auto: doubled while 5 %% more items a second come of it on some class\n"
        "                   of workers, in the application's objective (in a second where it has none) and a quarter of the\n"
        "                   memory (default auto with --app and a file, else 8)\n"
        "  --app NAME       an application that it is to answer for: see leat app\n"
        "  --validation SET INPUTS.npy,LABELS.npy: NumPy arrays of inputs and of a whole number for each, the place of the\n"
        "                   largest value that its first output should have; the share of those it gets right is its\n"
        "                   accuracy. Of several inputs NAME=INPUTS.npy,NAME=INPUTS.npy,...,LABELS.npy. With no LABELS.npy\n"
        "                   behind NAME=..., what is measured is the agreement with f32: the share of items of which the largest\n"
        "                   value is in the same place, or, where the first output has no scores of classes, of which each output\n"
        "                   differs by at most 5 %% of its length\n"
        "  --variants       one in each precision that the processor multiplies fast: NAME, and NAME-bf16 and NAME-int8 where\n"
        "                   it has them; each is measured and validated, and left out where it is faster at no size, or too inaccurate;\n"
        "                   all are added, or none\n"
        "  --max-loss F     of accuracy, or of agreement, by another precision than the file's (default 0.01)\n"
        "  --precision P    one variant, f32, bf16 or int8 (default f32), which may lose --max-loss on --validation; bf16\n"
        "                   needs that set, or --accuracy instead, int8 is calibrated on it; a quantised file has no int8\n"
        "  --dim NAME=N     what a dimension that the file leaves free is to be, such as the length of a sequence; once for\n"
        "                   each but the batch, which queries choose (given a value, 1 where a file does not do for others, it\n"
        "                   is part of an item); one may be NAME=N,N,...: lengths that plans are made\n"
        "                   for, where queries say how long their sequences are; tensors are as for the last, the longest.\n"
        "                   NAME=items: this one, not the first, counts items, as in [length, batch, ...]; for queries\n"
        "                   they still come first. One without a name, or called ?, is INPUT.AXIS, axes counted from 0:\n"
        "                   --dim x.2=48\n"
        "  --constant INPUT=VALUE\n"
        "                   a number that an input always is, all of its elements; queries do not bring it then, and what follows\n"
        "                   from it, such as which branch of an If runs, is computed once: --constant sr=16000. Once for each\n");
    (void)printf(
        "  --accuracy F     accuracy it stands for, 0 to 1, reported with its answers, whatever a validation says\n"
        "  --cores N,...    to measure on teams of so many cores too, beside those that workers have; measured again whenever\n"
        "                   the model is, until --cores says otherwise\n"
        "  --items N        of inspect: items of the batch (default 1)\n"
        "  --runs N         of inspect: medians of so many (default as many as two seconds hold, 5 to 101)\n"
        "  --svg FILE       of inspect: a picture\n"
        "  --without P,...  of inspect: leave out these passes, and show what the others make of the graph\n"
        "  --memory SIZE    of inspect: what each of both graphs may take, with weights and a run (default: of a model that the\n"
        "                   daemon keeps its limits.model_memory, of a file 32GiB)\n"
        "  --loop-iterations N\n"
        "                   of inspect: of all loops together in a run (default: likewise its limits.loop_iterations, of a file\n"
        "                   4096)\n"
        "  --passes         of inspect: list the passes, and what each does\n"
        "  --synthetic J    no file: occupy a worker for a profiled time, for example\n"
        "                   '{\"latency_ns\":5000000,\"per_item_ns\":1000000}'; input and output are 64 bytes, or\n"
        "                   as given by --input-bytes N and --output-bytes N\n"
        "  --json           one JSON object\n"
        "  --socket PATH    the daemon's socket\n\n"
        "example: leat model add digits-lenet digits-lenet.onnx --variants --app digits \\\n"
        "             --validation validation.inputs.npy,validation.labels.npy\n");
}

enum { DIMS_MAX = 64, CONSTANTS_MAX = LEAT_CONSTANT_INPUTS_MAX };

struct model_options {
    const char *socket_path;
    bool json, help;
    const char *backend, *synthetic, *app, *validation, *precision;
    bool items_auto, variants;
    uint64_t items_max, input_bytes, output_bytes; /* items_max is 0: not said */
    double accuracy, max_loss; /* max_loss below 0: not said */
    const char *dims[DIMS_MAX]; /* "NAME=N" or "NAME=N,N,..." */
    uint32_t dim_count;
    const char *constants[CONSTANTS_MAX]; /* "INPUT=VALUE" */
    uint32_t constant_count;
    uint32_t cores[LEAT_SCHED_CLASSES_MAX], core_count; /* core_count is 0: not said */
    struct inspect_flags inspect;
};

static bool
parse_items(const char *text, struct model_options *options)
{
    options->items_auto = strcmp(text, "auto") == 0;
    return options->items_auto || parse_u64(text, 1, LEAT_ITEMS_MAX, &options->items_max);
}

/* "1,2,4" */
static bool
parse_cores(const char *text, struct model_options *options)
{
    char word[16];
    uint64_t cores;

    for (options->core_count = 0; options->core_count < LEAT_SCHED_CLASSES_MAX; text++) {
        const size_t length = strcspn(text, ",");
        (void)snprintf(word, sizeof(word), "%.*s", (int)length, text);
        if (length >= sizeof(word) || !parse_u64(word, 1, 1u << 16, &cores)) {
            return false;
        }
        options->cores[options->core_count++] = (uint32_t)cores;
        text += length;
        if (*text == '\0') {
            return true;
        }
    }
    return false;
}

/* "128", "items", or "32,64,128" as an array; NULL where it is none of them. */
static json_t *
dim_value(const char *text)
{
    if (strcmp(text, "items") == 0) {
        return json_string(text);
    }
    json_t *array = json_array();
    bool good = true;

    for (const char *at = text; good && at != NULL;) {
        const char *comma = strchr(at, ',');
        char *number = strndup(at, comma != NULL ? (size_t)(comma - at) : strlen(at));
        uint64_t value = 0;
        good = number != NULL && parse_u64(number, 1, INT32_MAX, &value) &&
               json_array_append_new(array, json_integer((json_int_t)value)) == 0;
        free(number);
        at = comma != NULL ? comma + 1 : NULL;
    }
    json_t *value = !good ? NULL : json_array_size(array) == 1 ? json_incref(json_array_get(array, 0)) : json_incref(array);
    json_decref(array);
    return value;
}

/* "sequence=128"; names may have a '=' in them. */
static bool
parse_dim(const char *text, struct model_options *options)
{
    const char *equals = strrchr(text, '=');
    json_t *value = equals != NULL && equals != text ? dim_value(equals + 1) : NULL;

    json_decref(value);
    if (value == NULL || options->dim_count == DIMS_MAX) {
        return false;
    }
    options->dims[options->dim_count++] = text;
    return true;
}

/* A number; NULL where it is none. */
static json_t *
constant_value(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!json_is_number(value)) {
        json_decref(value);
        return NULL;
    }
    return value;
}

/* "sr=16000"; what it says is looked at later. */
static bool
parse_constant(const char *text, struct model_options *options)
{
    if (options->constant_count == CONSTANTS_MAX) {
        return false;
    }
    options->constants[options->constant_count++] = text;
    return true;
}

static bool
parse_model_options(int argc, char **argv, struct model_options *options)
{
    static const struct option known[] = {
        {"socket", required_argument, NULL, 's'},     {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},             {"backend", required_argument, NULL, 'b'},
        {"items-max", required_argument, NULL, 'n'},  {"accuracy", required_argument, NULL, 'a'},
        {"synthetic", required_argument, NULL, 'y'},  {"input-bytes", required_argument, NULL, 'I'},
        {"output-bytes", required_argument, NULL, 'O'}, {"app", required_argument, NULL, 'A'},
        {"validation", required_argument, NULL, 'v'}, {"variants", no_argument, NULL, 'V'},
        {"max-loss", required_argument, NULL, 'l'},   {"precision", required_argument, NULL, 'p'},
        {"cores", required_argument, NULL, 'c'},      {"dim", required_argument, NULL, 'd'},
        {"items", required_argument, NULL, 'i'},      {"runs", required_argument, NULL, 'r'},
        {"svg", required_argument, NULL, 'g'},        {"without", required_argument, NULL, 'w'},
        {"passes", no_argument, NULL, 'P'},           {"memory", required_argument, NULL, 'm'},
        {"loop-iterations", required_argument, NULL, 'L'}, {"constant", required_argument, NULL, 'C'},
        {NULL, 0, NULL, 0},
    };
    int option;
    bool good = true;

    *options = (struct model_options){.input_bytes = 64, .output_bytes = 64, .max_loss = -1, .inspect = {.items = 1}};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 's': options->socket_path = optarg; break;
        case 'j': options->json = true; break;
        case 'h': options->help = true; break;
        case 'b': options->backend = optarg; break;
        case 'A': options->app = optarg; break;
        case 'v': options->validation = optarg; break;
        case 'y': options->synthetic = optarg; break;
        case 'n': good = parse_items(optarg, options); break;
        case 'V': options->variants = true; break;
        case 'l': good = parse_double(optarg, 0, 1, &options->max_loss); break;
        case 'p': options->precision = optarg; break;
        case 'c': good = parse_cores(optarg, options); break;
        case 'd': good = parse_dim(optarg, options); break;
        case 'C': good = parse_constant(optarg, options); break;
        case 'i': good = parse_u64(optarg, 1, LEAT_ITEMS_MAX, &options->inspect.items); break;
        case 'r': good = parse_u64(optarg, 1, INSPECT_RUNS_MAX, &options->inspect.runs); break;
        case 'g': options->inspect.svg = optarg; break;
        case 'w': options->inspect.without = optarg; break;
        case 'P': options->inspect.passes = true; break;
        case 'm': good = parse_bytes(optarg, &options->inspect.memory) && options->inspect.memory > 0; break;
        case 'L': good = parse_u64(optarg, 1, UINT32_MAX, &options->inspect.trips); break;
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

/* ---- add ---------------------------------------------------------------------------------------- */

/* Behind what is there. */
static bool
append(int fd, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t wrote = write(fd, (const char *)data + done, bytes - done);
        if (wrote < 0 && errno != EINTR) {
            return false;
        }
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    return true;
}

static bool
append_file(int fd, int from, size_t bytes)
{
    void *data = bytes > 0 ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, from, 0) : MAP_FAILED;
    const bool good = data != MAP_FAILED && append(fd, data, bytes);

    if (data != MAP_FAILED) {
        (void)munmap(data, bytes);
    }
    return good;
}

static json_t *
describe_array(const struct npy_array *array)
{
    json_t *dims = json_array();

    for (uint32_t d = 0; d < array->rank; d++) {
        (void)json_array_append_new(dims, json_integer((json_int_t)array->dims[d]));
    }
    return json_pack("{s:s, s:o}", "dtype", leat_dtype_text(array->dtype), "dims", dims);
}

/* What is to run through a model. */
struct set {
    char *text; /* that names are in */
    const char *names[LEAT_TENSORS_MAX]; /* of inputs; NULL: the one that there is */
    struct npy_array inputs[LEAT_TENSORS_MAX], labels; /* labels.data is NULL: there are none */
    uint32_t input_count;
};

static void
free_set(struct set *set)
{
    for (uint32_t i = 0; i < set->input_count; i++) {
        npy_free(&set->inputs[i]);
    }
    npy_free(&set->labels);
    free(set->text);
}

/* "inputs.npy,labels.npy", or "name=inputs.npy,name=inputs.npy,labels.npy", where the last may be missing. */
static enum leat_status
read_set(const char *text, struct set *set)
{
    const char *comma = strrchr(text, ',');
    const bool named = strchr(text, '=') != NULL;
    enum leat_status status = LEAT_OK;
    char *rest = NULL;

    if (!named && (comma == NULL || comma == text || comma[1] == '\0')) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "--validation: '%s' is not two files with a comma between them", text);
    }
    set->text = strdup(text);
    char *part = set->text != NULL ? strtok_r(set->text, ",", &rest) : NULL;
    for (bool labelled = false; part != NULL && status == LEAT_OK; part = strtok_r(NULL, ",", &rest)) {
        char *equals = strchr(part, '=');
        if (labelled || equals == part || (equals == NULL && named && set->input_count == 0) ||
            (equals != NULL && set->input_count == LEAT_TENSORS_MAX - 1)) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "--validation: '%s' is not INPUTS.npy,LABELS.npy, or NAME=INPUTS.npy for each of "
                                               "up to %d inputs and LABELS.npy, where there are labels", text, LEAT_TENSORS_MAX - 1);
        }
        labelled = equals == NULL && set->input_count > 0;
        if (labelled) {
            status = npy_read(part, &set->labels);
            continue;
        }
        if (equals != NULL) {
            *equals = '\0';
            set->names[set->input_count] = part;
        }
        status = npy_read(equals != NULL ? equals + 1 : part, &set->inputs[set->input_count]);
        set->input_count += status == LEAT_OK;
    }
    return status;
}

static bool
append_array(int fd, const struct npy_array *array)
{
    return append(fd, array->data, array->elements * leat_dtype_bytes(array->dtype));
}

static json_t *
describe_set(const struct set *set)
{
    json_t *object = json_object(), *inputs = json_array();

    for (uint32_t i = 0; i < set->input_count; i++) {
        json_t *input = describe_array(&set->inputs[i]);
        if (set->names[i] != NULL) {
            (void)json_object_set_new(input, "name", json_string(set->names[i]));
        }
        (void)json_array_append_new(inputs, input);
    }
    (void)json_object_set(object, "inputs", set->names[0] != NULL ? inputs : json_array_get(inputs, 0));
    json_decref(inputs);
    if (set->labels.data != NULL) {
        (void)json_object_set_new(object, "labels", describe_array(&set->labels));
    }
    return object;
}

/*
 * The model and, behind it, the data of the validation, in one file of memory: other descriptors are of the model's weights. Takes
 * `*fd` over and puts the other in its place.
 */
static enum leat_status
join_validation(const char *text, json_t *request, int *fd)
{
    struct set set = {.input_count = 0};
    struct stat info;
    enum leat_status status = read_set(text, &set);

    if (status == LEAT_OK) {
        const int joined = memfd_create("leat-model", MFD_CLOEXEC);
        bool good = fstat(*fd, &info) == 0 && joined >= 0 && append_file(joined, *fd, (size_t)info.st_size);
        for (uint32_t i = 0; i < set.input_count && good; i++) {
            good = append_array(joined, &set.inputs[i]);
        }
        if (!good || (set.labels.data != NULL && !append_array(joined, &set.labels))) {
            status = LEAT_FAIL(LEAT_ERR_SYS, "cannot put model and validation together");
            if (joined >= 0) {
                (void)close(joined);
            }
        } else {
            (void)close(*fd);
            *fd = joined;
            (void)json_object_set_new(request, "model_bytes", json_integer((json_int_t)info.st_size));
            (void)json_object_set_new(request, "validation", describe_set(&set));
        }
    }
    free_set(&set);
    return status;
}

/* {"sequence": 128}, of [count] texts with a '=' in them; NULL, and reported, where a name is there twice or is no text. */
static json_t *
make_values(const char *option, const char *const *texts, uint32_t count, json_t *(*value_of)(const char *text))
{
    json_t *values = json_object();

    for (uint32_t i = 0; i < count; i++) {
        const char *equals = strrchr(texts[i], '=');
        char *name = strndup(texts[i], (size_t)(equals - texts[i]));
        const bool twice = json_object_get(values, name) != NULL;
        if (twice || json_object_set_new(values, name, value_of(equals + 1)) != 0) { /* it was parsed before */
            (void)usage_error("model", "%s: '%s' %s", option, name, twice ? "is given two values" : "is no text");
            json_decref(values);
            values = NULL;
        }
        free(name);
        if (values == NULL) {
            return NULL;
        }
    }
    return values;
}

static json_t *
make_dims(const struct model_options *options)
{
    return make_values("--dim", options->dims, options->dim_count, dim_value);
}

/* {"sr": 16000}, likewise. */
static json_t *
make_constants(const struct model_options *options)
{
    for (uint32_t c = 0; c < options->constant_count; c++) {
        const char *text = options->constants[c], *equals = strrchr(text, '='); /* names may have one, too */
        json_t *value = equals != NULL && equals != text ? constant_value(equals + 1) : NULL;
        if (value == NULL) {
            (void)usage_error("model", "--constant: '%s' is not INPUT=VALUE with a number, as sr=16000 or x=0.5", text);
            return NULL;
        }
        json_decref(value);
    }
    return make_values("--constant", options->constants, options->constant_count, constant_value);
}

/* What goes along with a request: the model first, then the files of its weights. */
struct descriptors {
    int fds[1 + LEAT_ONNX_FILES_MAX];
    size_t count;
    struct leat_onnx_file files[LEAT_ONNX_FILES_MAX];
    uint32_t file_count;
};

static void
close_descriptors(struct descriptors *descriptors)
{
    if (descriptors->count > 0) {
        (void)close(descriptors->fds[0]);
    }
    leat_onnx_close_files(descriptors->files, descriptors->file_count);
}

/* The model, the files beside it that it has weights in, and the validation. */
static enum leat_status
open_model(const char *path, const struct model_options *options, json_t *request, struct descriptors *descriptors)
{
    json_t *names = json_array();

    descriptors->fds[0] = open(path, O_RDONLY | O_CLOEXEC);
    enum leat_status status = LEAT_OK;
    if (descriptors->fds[0] < 0) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot open %s", path);
    } else {
        descriptors->count = 1;
        status = open_model_files(path, descriptors->fds[0], descriptors->files, &descriptors->file_count);
    }
    for (uint32_t f = 0; f < descriptors->file_count; f++) {
        descriptors->fds[descriptors->count++] = descriptors->files[f].fd;
        (void)json_array_append_new(names, json_string(descriptors->files[f].name));
    }
    if (json_array_size(names) > 0) {
        (void)json_object_set(request, "files", names);
    }
    json_decref(names);
    if (status == LEAT_OK && options->validation != NULL) {
        status = join_validation(options->validation, request, &descriptors->fds[0]);
    }
    return status;
}

/* NULL, and reported, where it cannot be made. */
static json_t *
make_request(int argc, char **argv, const struct model_options *options, struct descriptors *descriptors, int *ret_exit)
{
    json_error_t error;
    const bool chosen = options->items_auto || (options->items_max == 0 && options->app != NULL && options->synthetic == NULL);
    json_t *request =
        json_pack("{s:s, s:s, s:o, s:f}", "op", "model-add", "name", argv[0], "items_max",
                  chosen ? json_string("auto") : json_integer(options->items_max > 0 ? (json_int_t)options->items_max : 8),
                  "accuracy", options->accuracy);

    if (options->variants) {
        (void)json_object_set_new(request, "variants", json_true());
    }
    if (options->max_loss >= 0) {
        (void)json_object_set_new(request, "max_loss", json_real(options->max_loss));
    }
    if (options->precision != NULL || options->dim_count > 0 || options->constant_count > 0) {
        json_t *model_options = json_object(), *dims = make_dims(options);
        json_t *constants = dims != NULL ? make_constants(options) : NULL;
        if (constants == NULL) {
            json_decref(model_options);
            json_decref(dims);
            json_decref(request);
            *ret_exit = EXIT_USAGE;
            return NULL;
        }
        if (options->precision != NULL) {
            (void)json_object_set_new(model_options, "precision", json_string(options->precision));
        }
        if (options->dim_count > 0) {
            (void)json_object_set(model_options, "dims", dims);
        }
        if (options->constant_count > 0) {
            (void)json_object_set(model_options, "constants", constants);
        }
        json_decref(dims);
        json_decref(constants);
        (void)json_object_set_new(request, "options", model_options);
    }
    if (options->app != NULL) {
        (void)json_object_set_new(request, "app", json_string(options->app));
    }
    *ret_exit = EXIT_USAGE;
    if (options->variants && (options->validation == NULL || options->precision != NULL || options->accuracy > 0)) {
        (void)usage_error("model", "--variants needs --validation, and neither --precision nor --accuracy");
    } else if (options->max_loss >= 0 && !options->variants && (options->precision == NULL || options->validation == NULL)) {
        (void)usage_error("model", "--max-loss is for --variants, or --precision with --validation");
    } else if (options->synthetic != NULL &&
               (options->items_auto || options->precision != NULL || options->dim_count > 0 || options->constant_count > 0)) {
        (void)usage_error("model", "--synthetic takes no %s",
                          options->items_auto          ? "--items-max auto"
                          : options->precision != NULL ? "--precision"
                          : options->dim_count > 0     ? "--dim"
                                                       : "--constant");
    } else if (options->synthetic != NULL) {
        json_t *parameters = json_loads(options->synthetic, 0, &error);
        if (argc != 1 || options->validation != NULL) {
            (void)usage_error("model", "add NAME --synthetic JSON takes no %s", argc != 1 ? "file" : "--validation");
        } else if (!json_is_object(parameters)) {
            (void)usage_error("model", "--synthetic is no JSON object: %s", error.text);
        } else {
            (void)json_object_update_new(
                request, json_pack("{s:s, s:O, s:I, s:I}", "backend", "synthetic", "options", parameters, "input_bytes",
                                   (json_int_t)options->input_bytes, "output_bytes", (json_int_t)options->output_bytes));
            *ret_exit = EXIT_DONE;
        }
        json_decref(parameters);
    } else if (argc != 2) {
        (void)usage_error("model", "add needs a name and a file");
    } else {
        (void)json_object_set_new(request, "backend", json_string(options->backend != NULL ? options->backend : "cpu"));
        *ret_exit = open_model(argv[1], options, request, descriptors) == LEAT_OK ? EXIT_DONE : EXIT_FAILED;
        if (*ret_exit != EXIT_DONE) {
            (void)fprintf(stderr, "leat model: %s\n", leat_error_text());
        }
    }
    if (*ret_exit != EXIT_DONE) {
        json_decref(request);
        return NULL;
    }
    return request;
}

/* ", and 2.6 GiB in files" */
static void
print_file_bytes(const json_t *model)
{
    if (json_object_get(model, "file_bytes") != NULL) {
        (void)printf(" and %s in files", format_bytes((double)number_of(model, "file_bytes")).text);
    }
}

static void
print_added(const char *verb, const json_t *reply)
{
    const double accuracy = (double)number_of(reply, "accuracy_ppm") / 1e4;
    const long long samples = number_of(reply, "validation_samples");
    const bool labelled = json_object_get(reply, "validation_ppm") != NULL;

    (void)printf("%s %s: %s", verb, text_of(reply, "name"), format_bytes((double)number_of(reply, "bytes")).text);
    print_file_bytes(reply);
    (void)printf(", loaded in %s, one item takes %s", format_ns((double)number_of(reply, "load_ns")).text,
                 format_ns((double)number_of(reply, "latency_ns")).text);
    if (strcmp(text_of(reply, "precision"), "f32") != 0 && strcmp(text_of(reply, "precision"), "none") != 0) {
        (void)printf(" in %s", text_of(reply, "precision"));
    }
    if (batch_bound_of(reply) != NULL) {
        (void)printf(", batches of up to %lld (%s)", number_of(reply, "items_max"), batch_bound_of(reply));
    }
    if (samples > 0 && labelled) {
        (void)printf(", %.2f %% of %lld right", (double)number_of(reply, "validation_ppm") / 1e4, samples);
    } else if (samples > 0) {
        (void)printf(", %.2f %% of %lld agree with f32", (double)number_of(reply, "agreement_ppm") / 1e4, samples);
    }
    if (accuracy > 0 && (!labelled || number_of(reply, "validation_ppm") != number_of(reply, "accuracy_ppm"))) {
        (void)printf(", stands for %.2f %%", accuracy);
    }
    (void)printf("\n");
    print_misdeclared(reply);
}

/* All that were added, and what was not worth it. */
static void
print_variants(const json_t *reply)
{
    size_t m;
    json_t *model;

    json_array_foreach(json_object_get(reply, "models"), m, model) {
        print_added("added", model);
    }
    json_array_foreach(json_object_get(reply, "left_out"), m, model) {
        (void)printf("left out %s: %s\n", text_of(model, "name"), text_of(model, "reason"));
    }
}

static int
model_add(int argc, char **argv, const struct model_options *options)
{
    struct descriptors descriptors = {.count = 0};
    int exit_code = EXIT_FAILED;
    json_t *reply = NULL;
    json_t *request = make_request(argc, argv, options, &descriptors, &exit_code);

    if (request != NULL) {
        if (isatty(STDERR_FILENO) != 0) {
            (void)fprintf(stderr, "loading and measuring %s%s%s ...\n", argv[0], options->variants ? " and its variants" : "",
                          options->validation != NULL ? ", and running its validation" : "");
        }
        exit_code = EXIT_FAILED;
        reply = ask_daemon_files("model", options->socket_path, request, descriptors.fds, descriptors.count, &exit_code);
    }
    close_descriptors(&descriptors);
    if (reply == NULL) {
        return exit_code;
    }
    if (options->json) {
        print_json(reply);
        return EXIT_DONE;
    }
    if (options->variants) {
        print_variants(reply);
    } else {
        print_added("added", reply);
    }
    json_decref(reply);
    return EXIT_DONE;
}

/* ---- profile, list, remove ---------------------------------------------------------------------- */

static int
model_profile(int argc, char **argv, const struct model_options *options)
{
    int exit_code = EXIT_FAILED;

    if (argc != 1) {
        return usage_error("model", "profile needs one name");
    }
    if (isatty(STDERR_FILENO) != 0) {
        (void)fprintf(stderr, "measuring %s ...\n", argv[0]);
    }
    json_t *request = json_pack("{s:s, s:s}", "op", "model-profile", "name", argv[0]), *cores = json_array();
    for (uint32_t c = 0; c < options->core_count; c++) {
        (void)json_array_append_new(cores, json_integer(options->cores[c]));
    }
    if (options->core_count > 0) {
        (void)json_object_set(request, "cores", cores);
    }
    json_decref(cores);
    json_t *reply = ask_daemon("model", options->socket_path, request, -1, &exit_code);
    if (reply == NULL) {
        return exit_code;
    }
    if (options->json) {
        print_json(reply);
        return EXIT_DONE;
    }
    print_added("measured", reply);
    json_decref(reply);
    return EXIT_DONE;
}

/* A line for each point. */
static void
print_points(const json_t *points)
{
    size_t p;
    json_t *point;

    json_array_foreach(points, p, point) {
        json_int_t numbers[8]; /* class, cores, items, runs, mean, p50, p95, p99 */
        for (size_t n = 1; n < 8; n++) {
            numbers[n] = json_integer_value(json_array_get(point, n));
        }
        (void)printf("    %-14s %5lld %6lld %11s %11s %11s %12.1f %6lld\n", json_string_value(json_array_get(point, 0)),
                     (long long)numbers[1], (long long)numbers[2], format_ns((double)numbers[5]).text,
                     format_ns((double)numbers[6]).text, format_ns((double)numbers[7]).text,
                     numbers[5] > 0 ? (double)numbers[2] * 1e9 / (double)numbers[5] : 0.0, (long long)numbers[3]);
    }
}

/* Of a class of workers, or of as many cores as no worker has, which are of any class. */
static bool
is_of_class(const json_t *point, const char *name)
{
    const char *of = json_string_value(json_array_get(point, 0));
    return strcmp(of, name) == 0 || strchr(of, ' ') != NULL;
}

/*
 * What batches take by batch and cores, as `simulate --stages` has it: fitted to the 99th percentiles of all points of the class, as
 * Themis does. NULL: they do not tell it.
 */
static json_t *
fit_class(const json_t *points, const char *name)
{
    const size_t most = json_array_size(points);
    struct leat_scale_point *measured = calloc(most + 1, sizeof(measured[0]));
    struct leat_scale_latency fit;
    uint32_t count = 0;
    double off = 0;
    json_t *point, *found = NULL;
    size_t p;

    json_array_foreach(points, p, point) {
        if (measured != NULL && is_of_class(point, name) && json_integer_value(json_array_get(point, 7)) > 0) { /* 0: not known */
            measured[count++] = (struct leat_scale_point){.cores = (uint32_t)json_integer_value(json_array_get(point, 1)),
                                                          .batch = (uint32_t)json_integer_value(json_array_get(point, 2)),
                                                          .latency_ms = (double)json_integer_value(json_array_get(point, 7)) / 1e6};
        }
    }
    if (measured != NULL && leat_scale_fit(measured, count, &fit) == LEAT_OK) {
        for (uint32_t i = 0; i < count; i++) {
            off = fmax(off, fabs(leat_scale_latency_ms(&fit, measured[i].batch, measured[i].cores) / measured[i].latency_ms - 1));
        }
        found = json_pack("{s:s, s:f, s:f, s:f, s:f, s:i, s:f}", "class", name, "alpha_ms", fit.alpha_ms, "beta_ms", fit.beta_ms,
                          "gamma_ms", fit.gamma_ms, "zeta_ms", fit.zeta_ms, "points", (int)count, "off", off);
    }
    free(measured);
    return found;
}

static json_t *
fit_classes(const json_t *model)
{
    json_t *fits = json_array(), *class;
    size_t c;

    json_array_foreach(json_object_get(model, "classes"), c, class) {
        json_t *fit = fit_class(json_object_get(model, "points"), text_of(class, "class"));
        bool again = strcmp(text_of(class, "class"), "none") == 0;
        for (size_t f = 0; f < json_array_size(fits); f++) { /* a class has several sizes of workers */
            again = again || strcmp(text_of(json_array_get(fits, f), "class"), text_of(class, "class")) == 0;
        }
        if (fit != NULL && !again) {
            (void)json_array_append(fits, fit);
        }
        json_decref(fit);
    }
    return fits;
}

static void
print_fits(const json_t *fits)
{
    json_t *fit;
    size_t f;

    json_array_foreach(fits, f, fit) {
        const json_int_t points = json_integer_value(json_object_get(fit, "points"));
        (void)printf("    p99 of %s, b items on c cores: %.4g b/c + %.4g b + %.4g/c + %.4g ms", text_of(fit, "class"),
                     json_real_value(json_object_get(fit, "alpha_ms")), json_real_value(json_object_get(fit, "beta_ms")),
                     json_real_value(json_object_get(fit, "gamma_ms")), json_real_value(json_object_get(fit, "zeta_ms")));
        if (points > 4) {
            (void)printf(", off by %.0f %% at most\n", 100 * json_real_value(json_object_get(fit, "off")));
        } else { /* as many as it has coefficients: it says nothing of others */
            (void)printf(", through all that was measured\n");
        }
    }
}

static int
model_show(int argc, char **argv, const struct model_options *options)
{
    int exit_code = EXIT_FAILED;

    if (argc != 1) {
        return usage_error("model", "show needs one name");
    }
    json_t *model = ask_daemon_list("model", options->socket_path, json_pack("{s:s, s:s}", "op", "model-show", "name", argv[0]),
                                    "points", &exit_code);
    if (model == NULL) {
        return exit_code;
    }
    (void)json_object_set_new(model, "fits", fit_classes(model));
    if (options->json) {
        print_json(model);
        return EXIT_DONE;
    }
    print_variant(model);
    json_t *file;
    size_t f;
    json_array_foreach(json_object_get(model, "files"), f, file) {
        (void)printf("    file %s, %s\n", text_of(file, "name"), format_bytes((double)number_of(file, "bytes")).text);
    }
    (void)printf("    %-14s %5s %6s %11s %11s %11s %12s %6s\n", "class", "cores", "items", "p50", "p95", "p99", "items/s",
                 "runs");
    print_points(json_object_get(model, "points"));
    print_fits(json_object_get(model, "fits"));
    print_shorter(model, true);
    json_decref(model);
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
            (void)printf(",%s%lld", number_of(tensor, "varying") == (long long)i ? "0.." : "", (long long)json_integer_value(dim));
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
        ask_daemon_list("model", options->socket_path, json_pack("{s:s}", "op", "model-list"), "models", &exit_code);

    if (reply == NULL) {
        return exit_code;
    }
    if (options->json) {
        print_json(reply);
        return EXIT_DONE;
    }
    (void)printf("%-24s %-10s %-9s %6s %10s %12s %9s\n", "model", "backend", "precision", "items", "weights", "one item",
                 "accuracy");
    json_array_foreach(json_object_get(reply, "models"), i, row) {
        const json_t *failure = json_object_get(row, "failure");
        if (json_is_true(json_object_get(row, "loading"))) {
            (void)printf("%-24s is being loaded\n", text_of(row, "name"));
            continue;
        }
        if (failure != NULL) {
            (void)printf("%-24s not loaded: %s\n", text_of(row, "name"), json_string_value(failure));
            continue;
        }
        const double accuracy = (double)number_of(row, "accuracy_ppm") / 1e6;
        (void)printf("%-24s %-10s %-9s %6lld %10s %12s ", text_of(row, "name"), text_of(row, "backend"),
                     text_of(row, "precision"),
                     number_of(row, "items_max"), format_bytes((double)number_of(row, "bytes")).text,
                     format_ns((double)number_of(row, "latency_ns")).text);
        (void)(accuracy > 0 ? printf("%8.2f%%\n", accuracy * 100) : printf("%9s\n", "-"));
        if (batch_bound_of(row) != NULL) {
            (void)printf("    batches of up to %lld: %s\n", number_of(row, "items_max"), batch_bound_of(row));
        }
        if (json_is_true(json_object_get(row, "one_by_one"))) {
            (void)printf("    run for one item at a time\n");
        }
        print_misdeclared(row);
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
        ask_daemon("model", options->socket_path,
                   json_pack("{s:s, s:s}", "op", "model-remove", "name", argv[0]), -1, &exit_code);
    if (reply == NULL) {
        return exit_code;
    }
    if (options->json) {
        print_json(reply);
        return EXIT_DONE;
    }
    (void)printf("removed %s\n", argv[0]);
    json_decref(reply);
    return EXIT_DONE;
}

static int
inspect(int argc, char **argv, struct model_options *options)
{
    json_t *dims = make_dims(options), *constants = dims != NULL ? make_constants(options) : NULL;

    if (constants == NULL) {
        json_decref(dims);
        return EXIT_USAGE;
    }
    options->inspect.dims = dims;
    options->inspect.constants = constants;
    options->inspect.socket_path = options->socket_path;
    options->inspect.json = options->json;
    options->inspect.precision = options->precision;
    options->inspect.cores = options->core_count > 0 ? options->cores[0] : 1;
    const int exit_code = options->core_count > 1 ? usage_error("model", "inspect runs on one number of --cores")
                                                  : model_inspect(argc, argv, &options->inspect);
    json_decref(dims);
    json_decref(constants);
    return exit_code;
}

int
verb_model(int argc, char **argv)
{
    struct model_options options;

    if (!parse_model_options(argc, argv, &options)) {
        return EXIT_USAGE;
    }
    if (options.help) {
        print_model_help();
        return EXIT_DONE;
    }
    if (optind >= argc) {
        return usage_error("model", "add, list, show, profile, inspect or remove?");
    }
    const char *what = argv[optind++];
    if ((options.inspect.without != NULL || options.inspect.passes || options.inspect.memory > 0 || options.inspect.trips > 0) &&
        strcmp(what, "inspect") != 0) {
        return usage_error("model", "--without, --passes, --memory and --loop-iterations are for inspect");
    }
    if (strcmp(what, "add") == 0) {
        return optind < argc ? model_add(argc - optind, argv + optind, &options)
                             : usage_error("model", "add needs a name");
    }
    if (strcmp(what, "list") == 0) {
        return model_list(&options);
    }
    if (strcmp(what, "show") == 0) {
        return model_show(argc - optind, argv + optind, &options);
    }
    if (strcmp(what, "profile") == 0) {
        return model_profile(argc - optind, argv + optind, &options);
    }
    if (strcmp(what, "inspect") == 0) {
        return inspect(argc - optind, argv + optind, &options);
    }
    if (strcmp(what, "remove") == 0) {
        return model_remove(argc - optind, argv + optind, &options);
    }
    return usage_error("model", "'%s' is not add, list, show, profile, inspect or remove", what);
}
