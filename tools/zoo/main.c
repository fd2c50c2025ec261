/* SPDX-License-Identifier: Apache-2.0 */
/* leat-zoo: writes well-known architectures as ONNX files with seeded weights. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/zoo/zoo.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, PATH_BYTES = 4096 };

struct options {
    enum zoo_size size;
    uint64_t seed;
    const char *output; /* NULL when not given */
    const char *name;   /* NULL when not given */
    bool all, json, help, external;
};

static void
print_help(FILE *file)
{
    (void)fprintf(file,
                  "leat-zoo - write well-known models as ONNX files, for tests and measurements\n\n"
                  "usage: leat-zoo list [--size full|test] [--json]\n"
                  "       leat-zoo write NAME [--size full|test] [--seed S] [--external-data] [-o FILE]\n"
                  "       leat-zoo write --all [--size full|test] [--seed S] [--external-data] -o DIR\n\n"
                  "Weights are random but seeded: the same seed gives the same bytes. Their scale is chosen so\n"
                  "that results are finite and vary with the input; they recognise nothing.\n\n"
                  "  --size full|test  as published, or the same nodes with few channels (default: full)\n"
                  "  --seed S          0 to 18446744073709551615 (default: 1)\n"
                  "  -o, --output PATH file, or folder with --all (default: NAME.onnx)\n"
                  "  --all             every model of the list\n"
                  "  --external-data   large constants in a second file, FILE.data; without asking where the\n"
                  "                    first one would exceed 2 GB, the limit of the format\n"
                  "  --json            one JSON object\n\n"
                  "FLOP are two per multiply-add, at the length that --json calls nominal where a model takes\n"
                  "sequences. Running statistics and tables of fixed numbers are no parameters.\n\n"
                  "example: leat-zoo write resnet50 --size test -o resnet50.onnx\n\n"
                  "exit codes: 0 done, 1 failed, 2 wrong usage\n");
}

static int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int
usage_error(const char *format, ...)
{
    va_list arguments;

    (void)fprintf(stderr, "leat-zoo: ");
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, ". Try 'leat-zoo --help'.\n");
    return EXIT_USAGE;
}

static bool
parse_seed(const char *text, uint64_t *ret)
{
    char *end;

    if (text[0] < '0' || text[0] > '9') {
        return false; /* strtoull would take signs and blanks */
    }
    errno = 0;
    *ret = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

/* EXIT_DONE, or EXIT_USAGE after saying why. argv[0] is the verb. */
static int
parse_options(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"size", required_argument, NULL, 's'}, {"seed", required_argument, NULL, 'r'},
        {"output", required_argument, NULL, 'o'}, {"all", no_argument, NULL, 'a'},
        {"json", no_argument, NULL, 'j'}, {"external-data", no_argument, NULL, 'x'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
    };
    int option;

    *options = (struct options){.size = ZOO_SIZE_FULL, .seed = 1};
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":ho:", known, NULL)) != -1) {
        switch (option) {
        case 's':
            if (strcmp(optarg, "full") != 0 && strcmp(optarg, "test") != 0) {
                return usage_error("--size is 'full' or 'test', not '%s'", optarg);
            }
            options->size = strcmp(optarg, "test") == 0 ? ZOO_SIZE_TEST : ZOO_SIZE_FULL;
            break;
        case 'r':
            if (!parse_seed(optarg, &options->seed)) {
                return usage_error("--seed '%s' is no number from 0 to 18446744073709551615", optarg);
            }
            break;
        case 'o': options->output = optarg; break;
        case 'a': options->all = true; break;
        case 'j': options->json = true; break;
        case 'x': options->external = true; break;
        case 'h': options->help = true; break;
        case ':': return usage_error("%s needs a value", argv[optind - 1]);
        default: return usage_error("there is no option '%s'", argv[optind - 1]);
        }
    }
    if (optind < argc) {
        options->name = argv[optind++];
    }
    return optind == argc ? EXIT_DONE : usage_error("'%s' is one name too many", argv[optind]);
}

static void
print_ports(const char *key, const struct onnx_summary *summary, const struct onnx_port *ports, uint32_t count)
{
    (void)printf("\"%s\": [", key);
    for (uint32_t i = 0; i < count; i++) {
        (void)printf("%s{\"name\": \"%s\", \"dtype\": \"%s\", \"dims\": [", i > 0 ? ", " : "", ports[i].name,
                     ports[i].type == ONNX_TYPE_F32 ? "f32" : "i64");
        for (uint32_t d = 0; d < ports[i].rank; d++) {
            const int64_t dim = ports[i].dims[d];
            if (dim < 0) {
                (void)printf("%s\"%s\"", d > 0 ? ", " : "", summary->symbols[-1 - dim].name);
            } else {
                (void)printf("%s%" PRId64, d > 0 ? ", " : "", dim);
            }
        }
        (void)printf("]");
        if (ports[i].end > 0) {
            (void)printf(", \"end\": %" PRId64, ports[i].end);
        }
        (void)printf("}");
    }
    (void)printf("]");
}

static void
print_json(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    (void)context;
    (void)printf("%s{\"name\": \"%s\", \"description\": \"%s\", \"parameters\": %" PRIu64
                 ", \"flop_per_item\": %" PRIu64 ", \"constant_bytes\": %" PRIu64
                 ", \"opset\": %" PRId64 ", \"nodes\": %" PRIu32 ", \"symbols\": {",
                 model == zoo_models ? "" : ", ", model->name, model->doc, summary->parameters, summary->flop_per_item,
                 summary->constant_bytes, summary->opset, summary->node_count);
    for (uint32_t s = 0; s < summary->symbol_count; s++) {
        (void)printf("%s\"%s\": %" PRId64, s > 0 ? ", " : "", summary->symbols[s].name, summary->symbols[s].nominal);
    }
    (void)printf("}, ");
    print_ports("inputs", summary, summary->inputs, summary->input_count);
    (void)printf(", ");
    print_ports("outputs", summary, summary->outputs, summary->output_count);
    (void)printf("}");
}

static void
print_line(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    (void)context;
    (void)printf("%-22s %8.3f M %10.2f M %9.2f MB %4" PRId64 " %6" PRIu32 "  %s\n", model->name,
                 (double)summary->parameters / 1e6, (double)summary->flop_per_item / 1e6,
                 (double)summary->constant_bytes / 1e6, summary->opset, summary->node_count, model->doc);
}

static int
fail(const char *what)
{
    (void)fprintf(stderr, "leat-zoo: %s: %s\n", what, leat_error_text());
    return EXIT_FAILED;
}

static int
list(const struct options *options)
{
    if (options->name != NULL || options->all || options->output != NULL || options->external) {
        return usage_error("'list' takes --size and --json only");
    }
    if (options->json) {
        (void)printf("{\"models\": [");
    } else {
        (void)printf("%-22s %10s %12s %12s %s %6s\n", "name", "parameters", "FLOP/item", "constants", "opset", "nodes");
    }
    for (size_t i = 0; i < zoo_model_count; i++) {
        const enum leat_status status =
            zoo_describe(&zoo_models[i], options->size, options->json ? print_json : print_line, NULL);
        if (status != LEAT_OK) {
            return fail(zoo_models[i].name);
        }
    }
    if (options->json) {
        (void)printf("]}\n");
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        (void)fprintf(stderr, "leat-zoo: standard output: %s\n", strerror(errno));
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}

/* path and a suffix. */
static enum leat_status
suffixed(const char *path, const char *suffix, char ret[PATH_BYTES])
{
    const int length = snprintf(ret, PATH_BYTES, "%s%s", path, suffix);

    if (length < 0 || length >= PATH_BYTES) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "the path is longer than %d bytes", PATH_BYTES - 1);
    }
    return LEAT_OK;
}

/* Gives the finished file its name, or removes it. */
static enum leat_status
finish_file(FILE *file, const char *temporary, const char *path, enum leat_status status)
{
    const bool closed = fclose(file) == 0;

    if (status == LEAT_OK && (!closed || rename(temporary, path) != 0)) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot write '%s'", path);
    }
    if (status != LEAT_OK) {
        (void)remove(temporary);
    }
    return status;
}

static enum leat_status
open_file(const char *path, char temporary[PATH_BYTES], FILE **ret_file)
{
    const enum leat_status status = suffixed(path, ".part", temporary);

    if (status != LEAT_OK) {
        return status;
    }
    *ret_file = fopen(temporary, "wb");
    return *ret_file != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_SYS, "cannot create '%s'", temporary);
}

/* Through a temporary name, so that no half-written model is ever found under the right one. */
static enum leat_status
write_file(const char *path, const void *bytes, size_t size)
{
    char temporary[PATH_BYTES];
    FILE *file;
    enum leat_status status = open_file(path, temporary, &file);

    if (status != LEAT_OK) {
        return status;
    }
    if (fwrite(bytes, 1, size, file) != size) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot write '%s'", path);
    }
    return finish_file(file, temporary, path, status);
}

/* Writes the second file and gives the bytes of the first. */
static enum leat_status
write_data(const struct zoo_model *model, const struct options *options, const char *data_path, void **ret_bytes,
           size_t *ret_size)
{
    char temporary[PATH_BYTES];
    FILE *file;
    enum leat_status status = open_file(data_path, temporary, &file);

    if (status != LEAT_OK) {
        return status;
    }
    const char *slash = strrchr(data_path, '/');
    status = zoo_write_external(model, options->size, options->seed, slash != NULL ? slash + 1 : data_path, file,
                                ret_bytes, ret_size);
    const bool made = status == LEAT_OK;
    status = finish_file(file, temporary, data_path, status);
    if (made && status != LEAT_OK) {
        free(*ret_bytes);
    }
    return status;
}

static void
read_constant_bytes(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    uint64_t *bytes = context;
    (void)model;
    *bytes = summary->constant_bytes;
}

static int
write_model(const struct zoo_model *model, const struct options *options, const char *path)
{
    const uint64_t graph_bytes_max = UINT64_C(1) << 24; /* of all but the constants, in any model by far */
    uint64_t constant_bytes = 0;
    char data_path[PATH_BYTES];
    void *bytes;
    size_t size;
    enum leat_status status = zoo_describe(model, options->size, read_constant_bytes, &constant_bytes);
    const bool external = options->external || constant_bytes + graph_bytes_max > ONNX_FILE_MAX;

    if (status == LEAT_OK) {
        status = suffixed(path, ".data", data_path);
    }
    if (status == LEAT_OK) {
        status = external ? write_data(model, options, data_path, &bytes, &size)
                          : zoo_write(model, options->size, options->seed, &bytes, &size);
    }
    if (status == LEAT_OK) {
        status = write_file(path, bytes, size);
        free(bytes);
        if (status != LEAT_OK && external) {
            (void)remove(data_path);
        }
    }
    if (status != LEAT_OK) {
        return fail(model->name);
    }
    (void)printf("%s: %zu bytes\n", path, size);
    return EXIT_DONE;
}

static int
write_all(const struct options *options)
{
    char path[PATH_BYTES];
    int code = EXIT_DONE;

    if (mkdir(options->output, 0777) != 0 && errno != EEXIST) {
        (void)fprintf(stderr, "leat-zoo: cannot create folder '%s': %s\n", options->output, strerror(errno));
        return EXIT_FAILED;
    }
    for (size_t i = 0; i < zoo_model_count && code == EXIT_DONE; i++) {
        const int length = snprintf(path, sizeof(path), "%s/%s.onnx", options->output, zoo_models[i].name);
        if (length < 0 || (size_t)length >= sizeof(path)) {
            return usage_error("the folder's name is too long");
        }
        code = write_model(&zoo_models[i], options, path);
    }
    return code;
}

static int
write_verb(const struct options *options)
{
    char path[PATH_BYTES];

    if (options->json) {
        return usage_error("--json belongs to 'list'");
    }
    if (options->all) {
        if (options->name != NULL || options->output == NULL) {
            return usage_error("'write --all' takes no NAME and needs -o DIR");
        }
        return write_all(options);
    }
    if (options->name == NULL) {
        return usage_error("'write' needs the NAME of a model, or --all");
    }
    const struct zoo_model *model = zoo_find(options->name);
    if (model == NULL) {
        return usage_error("there is no model '%s'; 'leat-zoo list' shows them", options->name);
    }
    (void)snprintf(path, sizeof(path), "%s.onnx", model->name);
    return write_model(model, options, options->output != NULL ? options->output : path);
}

int
main(int argc, char **argv)
{
    struct options options;

    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return EXIT_DONE;
    }
    const bool listing = strcmp(argv[1], "list") == 0;
    if (!listing && strcmp(argv[1], "write") != 0) {
        return usage_error("there is no verb '%s'", argv[1]);
    }
    const int code = parse_options(argc - 1, argv + 1, &options);
    if (code != EXIT_DONE) {
        return code;
    }
    if (options.help) {
        print_help(stdout);
        return EXIT_DONE;
    }
    return listing ? list(&options) : write_verb(&options);
}
