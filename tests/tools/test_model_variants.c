/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     leat model add --variants serves a model in each precision that the processor has, with accuracies of its own, or
 *          says why one is left out; all or nothing, over a restart too. The largest batch is chosen, by the objective of
 *          the application, and says why. A model is measured on teams of other sizes than workers have when that is asked
 *          for, again whenever it is, and no profile of a worker goes by them.
 *          int8 is calibrated once and refused where it loses too much; no precision but the file's is served unmeasured.
 * Method   leatd and leat as processes; argv[1] is the folder of the trained classifiers. What depends on how fast the second
 *          precision is, in a leatd whose backends say so.
 */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sqlite3.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "tests/system/leatd.h"
#include "tests/tools/command.h"

/* A set's samples, of which calibration looks at the first 512. */
enum { SAMPLES = 1200, TAKEN = LEAT_TEST_SHARE > 1 ? 600 : SAMPLES, CALIBRATES = 512, PIXELS = 28 * 28 };
/* Of them in f32. */
enum { WIDE_PPM = TAKEN < SAMPLES ? 970000 : 976667, LENET_PPM = TAKEN < SAMPLES ? 931667 : 934167 };

static const char *folder;
static struct leatd leatd;
static struct command command;
static char set[1024], right[32]; /* INPUTS,LABELS of those taken; what is said of them */

#define LEAT(exit_code, text, ...)                                          \
    command_expect(&command, leatd.socket_path, exit_code, text, (const char *const[]){__VA_ARGS__, NULL})

/* What the last command printed; the caller's. */
static json_t *
printed(void)
{
    json_t *object = json_loads(command.out, 0, NULL);
    EXPECT(json_is_object(object));
    return object;
}

static json_t *
show(const char *application)
{
    LEAT(0, "variants", "app", "show", application, "--json");
    return printed();
}

static const char *
text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    EXPECT(text != NULL);
    return text;
}

static const char *
file_of(const char *name)
{
    static char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s.onnx", folder, name);
    return path;
}

/* Of the folder's .npy `name`, the first samples that are taken; as many bytes as there are. */
static size_t
read_taken(const char *name, unsigned char *file, size_t bytes)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *in = fopen(path, "rb");
    EXPECT(in != NULL);
    const size_t size = fread(file, 1, bytes, in), header = 10 + (size_t)file[8] + 256 * (size_t)file[9];
    EXPECT(fclose(in) == 0 && size < bytes);
    char *count = memmem(file, header, "(1200,", 6);
    EXPECT(count != NULL);
    (void)memcpy(count, TAKEN < SAMPLES ? "( 600," : "(1200,", 6);
    return header + (size - header) / SAMPLES * TAKEN;
}

static void
write_whole(const char *path, const unsigned char *file, size_t size)
{
    FILE *out = fopen(path, "wb");
    EXPECT(out != NULL && fwrite(file, 1, size, out) == size && fclose(out) == 0);
}

static void
write_set(void)
{
    static unsigned char file[1 << 20];
    static const char *const names[] = {"validation.inputs.npy", "validation.labels.npy"};
    char path[512];

    for (size_t i = 0; i < 2; i++) {
        const size_t size = read_taken(names[i], file, sizeof(file));
        (void)snprintf(path, sizeof(path), "%s/%s", leatd.root.path, names[i]);
        write_whole(path, file, size);
    }
    (void)snprintf(set, sizeof(set), "%s/%s,%s/%s", leatd.root.path, names[0], leatd.root.path, names[1]);
    (void)snprintf(right, sizeof(right), "of %d right", TAKEN);
}

static uint32_t
precision_count(void)
{
    return (uint32_t)__builtin_popcount(leat_backend_precisions(&leat_backend_cpu));
}

/* ---- Precisions --------------------------------------------------------------------------------- */

/* As the network, and behind a dash its precision where that is another. */
static bool
is_named(const json_t *variant)
{
    const char *name = text_of(variant, "name"), *precision = text_of(variant, "precision");
    const size_t length = strlen("digits-resnet-wide");

    return strncmp(name, "digits-resnet-wide", length) == 0 &&
           (strcmp(precision, "f32") == 0 ? name[length] == '\0' : name[length] == '-' && strcmp(name + length + 1, precision) == 0);
}

/* Each is there or says why not; accuracies are a point apart at most, for none is there that is worse. */
static void
test_variants(void)
{
    size_t v;
    json_t *variant;

    LEAT(0, "router", "app", "add", "digits", "--latency", "10s", "--late", "serve", "--selector", "fixed");
    LEAT(0, "digits-resnet-wide", "model", "add", "digits-resnet-wide", file_of("digits-resnet-wide"), "--variants", "--app",
         "digits", "--validation", set, "--json");
    json_t *answer = printed();
    const size_t kept = json_array_size(json_object_get(answer, "models")),
                 left_out = json_array_size(json_object_get(answer, "left_out"));
    EXPECT(kept >= 1 && kept + left_out == precision_count());
    json_array_foreach(json_object_get(answer, "left_out"), v, variant) {
        EXPECT(is_named(variant) && strstr(text_of(variant, "reason"), "faster"));
        EXPECT(strcmp(text_of(variant, "precision"), "f32") != 0);
    }
    json_t *before = show("digits");
    const json_t *variants = json_object_get(before, "variants");
    EXPECT(json_array_size(variants) == kept);
    json_array_foreach(variants, v, variant) {
        EXPECT(is_named(variant) && (strcmp(text_of(variant, "precision"), "f32") == 0) == (v == 0));
        EXPECT(strcmp(text_of(variant, "accuracy_from"), "measured") == 0);
        EXPECT(leatd_number(json_object_get(variant, "validation"), "samples") == TAKEN);
        EXPECT(fabs((double)leatd_number(variant, "accuracy_ppm") - WIDE_PPM) <= (v == 0 ? 1500 : 10000 + 1500));
        EXPECT(leatd_number(variant, "load_ns") > 0 && leatd_number(variant, "peak_bytes") > 0);
    }
    for (int round = 0; round < 2; round++) {
        leatd_end(&leatd, round == 0 ? SIGKILL : SIGTERM);
        leatd_start(&leatd, "");
        json_t *after = show("digits");
        EXPECT(json_equal(before, after)); /* each in its precision, with its times and why its batches are no larger */
        json_decref(after);
    }
    LEAT(0, "\"ok\"", "run", "digits", "--items", "2", "--json");
    json_decref(before);
    json_decref(answer);
}

/* How accurate 'narrow' is, and who says so. */
static void
expect_accuracy(const char *from, uint64_t least_ppm, uint64_t most_ppm)
{
    LEAT(0, "accuracy_from", "model", "show", "narrow", "--json");
    json_t *model = printed();
    const uint64_t ppm = leatd_number(model, "accuracy_ppm");
    EXPECT(strcmp(text_of(model, "precision"), "bf16") == 0 && strcmp(text_of(model, "accuracy_from"), from) == 0);
    EXPECT(ppm >= least_ppm && ppm <= most_ppm);
    json_decref(model);
}

/* As a registry of an earlier version could have it. */
static void
restart_forgetting(const char *sql)
{
    char path[512];
    sqlite3 *db;

    leatd_end(&leatd, SIGTERM);
    (void)snprintf(path, sizeof(path), "%s/state/registry.db", leatd.root.path);
    EXPECT(sqlite3_open(path, &db) == SQLITE_OK);
    EXPECT(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
    EXPECT(sqlite3_close(db) == SQLITE_OK);
    leatd_start(&leatd, "");
}

/* bf16 is not served unless it is measured, or somebody says how accurate it is, over a restart too. */
static void
expect_measured(const char *backend)
{
    static const char unmeasured[] = "bf16 is measured on a validation set, and there is none";

    LEAT(3, unmeasured, "model", "add", "narrow", file_of("digits-lenet"), "--precision", "bf16", "--backend", backend);
    LEAT(3, "'accuracy'", "model", "add", "narrow", file_of("digits-lenet"), "--precision", "bf16", "--backend", backend,
         "--accuracy", "0");
    LEAT(3, "there is no model 'narrow'", "model", "show", "narrow");
    LEAT(0, "stands for 91.00 %", "model", "add", "narrow", file_of("digits-lenet"), "--precision", "bf16", "--backend",
         backend, "--accuracy", "0.91");
    expect_accuracy("given", 910000, 910000);
    LEAT(0, "bf16", "model", "list");
    restart_forgetting("");
    expect_accuracy("given", 910000, 910000);
    LEAT(0, "", "app", "add", "listing", "--models", "narrow");
    restart_forgetting("UPDATE models SET accuracy_ppm = 0 WHERE name = 'narrow'");
    EXPECT(leatd_logged(&leatd, "kept model 'narrow' is not served: how accurate it is in bf16 was never measured"));
    LEAT(0, "was never measured; remove it, and add it again", "model", "list");
    LEAT(3, "there is no application or model 'narrow'", "run", "narrow");
    LEAT(3, "application 'listing' has model 'narrow' in its list", "model", "remove", "narrow");
    LEAT(0, "removed listing", "app", "remove", "listing");
    LEAT(0, "removed narrow", "model", "remove", "narrow");
    LEAT(0, right, "model", "add", "narrow", file_of("digits-lenet"), "--precision", "bf16", "--backend", backend,
         "--validation", set);
    expect_accuracy("measured", LENET_PPM - 10000, LENET_PPM + 10000);
    restart_forgetting("UPDATE models SET accuracy_ppm = 0 WHERE name = 'narrow'"); /* the validation is known */
    LEAT(0, "narrow", "run", "narrow", "--items", "1", "--json");
    restart_forgetting("DELETE FROM validations WHERE model = 'narrow'");
    LEAT(0, "was never measured; remove it", "model", "list");
    LEAT(3, "already", "model", "add", "narrow", file_of("digits-lenet"), "--precision", "f32", "--backend", backend);
    LEAT(0, "removed narrow", "model", "remove", "narrow");
    LEAT(0, "added narrow", "model", "add", "narrow", file_of("digits-lenet"), "--precision", "f32", "--backend", backend);
    LEAT(0, "removed narrow", "model", "remove", "narrow");
}

/* A precision by itself, and what is not had. */
static void
test_one_precision(void)
{
    const bool has_bf16 = (leat_backend_precisions(&leat_backend_cpu) & LEAT_PRECISION_BIT(LEAT_PRECISION_BF16)) != 0;

    if (has_bf16) {
        expect_measured("cpu");
    } else {
        LEAT(3, "does not have bf16", "model", "add", "narrow", file_of("digits-lenet"), "--precision", "bf16");
    }
    LEAT(3, "there is no precision 'f8'", "model", "add", "narrow", file_of("digits-lenet"), "--precision", "f8");
    LEAT(3, "backend 'reference' does not have bf16", "model", "add", "narrow", file_of("digits-lenet"), "--precision", "bf16",
         "--backend", "reference");
    LEAT(2, "--variants needs --validation", "model", "add", "narrow", file_of("digits-lenet"), "--variants");
    LEAT(2, "--max-loss is for --variants", "model", "add", "narrow", file_of("digits-lenet"), "--max-loss", "0.1");
    LEAT(2, "--synthetic takes no --precision", "model", "add", "narrow", "--synthetic", "{}", "--precision", "bf16");
    LEAT(2, "--items-max: 'some' is malformed", "model", "add", "narrow", file_of("digits-lenet"), "--items-max", "some");
}

/* ---- int8 --------------------------------------------------------------------------------------- */

/* The set's inputs, of which those that calibration looks at are next to nothing: all others are far beyond their ranges. */
static void
write_faint_inputs(char *path, size_t bytes)
{
    static unsigned char file[1 << 20];
    const size_t size = read_taken("validation.inputs.npy", file, sizeof(file));

    for (size_t i = 0; i < (size_t)CALIBRATES * PIXELS; i++) {
        file[size - (size_t)TAKEN * PIXELS + i] /= 64;
    }
    (void)snprintf(path, bytes, "%s/faint.npy", leatd.root.path);
    write_whole(path, file, size);
}

/* Bytes of the weights of 'whole' as it runs in that precision. */
static uint64_t
weights_in(const char *precision)
{
    LEAT(0, "model_bytes", "model", "inspect", "whole", "--runs", "1", "--precision", precision, "--json");
    json_t *answer = printed();
    const uint64_t bytes = leatd_number(json_object_get(answer, "after"), "model_bytes");
    json_decref(answer);
    return bytes;
}

/* Ranges that a client has from somewhere, with a model of its own: calibrated, but not measured. */
static void
test_ranges_of_others(void)
{
    static const char request[] = "{\"op\":\"model-add\",\"name\":\"whole\",\"backend\":\"cpu\",\"accuracy\":%s,"
                                  "\"options\":{\"precision\":\"int8\",\"ranges\":{\"x\":[-1,1]}}}";
    const int fd = open(file_of("digits-resnet"), O_RDONLY | O_CLOEXEC);
    struct leat_session *session = leatd_open_session(&leatd, 1, 4096);
    char text[512], *reply = NULL;

    EXPECT(fd >= 0);
    (void)snprintf(text, sizeof(text), request, "0");
    EXPECT(leat_admin(session, text, fd, &reply) == LEAT_OK);
    EXPECT(strstr(reply, "int8 is measured on a validation set, and there is none") != NULL);
    leat_admin_free(reply);
    LEAT(3, "there is no model 'whole'", "model", "show", "whole");
    (void)snprintf(text, sizeof(text), request, "0.9");
    EXPECT(leat_admin(session, text, fd, &reply) == LEAT_OK && strstr(reply, "error") == NULL);
    leat_admin_free(reply);
    EXPECT(close(fd) == 0);
    leat_close(session);
    LEAT(0, "removed whole", "model", "remove", "whole");
}

static void
test_int8(void)
{
    const bool has_int8 = (leat_backend_precisions(&leat_backend_cpu) & LEAT_PRECISION_BIT(LEAT_PRECISION_INT8)) != 0;
    char faint[600], pair[1200];

    if (!has_int8) {
        LEAT(3, "does not have int8", "model", "add", "whole", file_of("digits-resnet"), "--precision", "int8", "--validation", set);
        return;
    }
    LEAT(3, "int8 is calibrated on a validation set", "model", "add", "whole", file_of("digits-resnet"), "--precision", "int8");
    LEAT(3, "int8 is calibrated on a validation set", "model", "add", "whole", file_of("digits-resnet"), "--precision",
         "int8", "--accuracy", "0.9");
    test_ranges_of_others();
    LEAT(0, "in int8", "model", "add", "whole", file_of("digits-resnet"), "--precision", "int8", "--validation", set);
    LEAT(0, "int8", "model", "show", "whole");
    LEAT(0, "precision", "model", "show", "whole", "--json");
    json_t *before = printed();
    EXPECT(strcmp(text_of(before, "precision"), "int8") == 0 && leatd_number(before, "accuracy_ppm") >= 950000);
    EXPECT(weights_in("int8") < weights_in("f32"));
    leatd_end(&leatd, SIGKILL);
    leatd_start(&leatd, "");
    LEAT(0, "precision", "model", "show", "whole", "--json");
    json_t *after = printed();
    EXPECT(json_equal(before, after));
    json_decref(before);
    json_decref(after);
    EXPECT(weights_in("int8") < weights_in("f32")); /* by the ranges that were kept */
    LEAT(0, "removed whole", "model", "remove", "whole");
    LEAT(1, "int8 is for a model that the daemon has calibrated", "model", "inspect", file_of("digits-resnet"), "--precision", "int8");

    write_faint_inputs(faint, sizeof(faint));
    (void)snprintf(pair, sizeof(pair), "%s,%s/validation.labels.npy", faint, leatd.root.path);
    LEAT(3, "below f32; at most 1.00 are allowed", "model", "add", "whole", file_of("digits-resnet"), "--precision", "int8",
         "--validation", pair);
    LEAT(3, "there is no model 'whole'", "model", "show", "whole");
    LEAT(0, "in int8", "model", "add", "whole", file_of("digits-resnet"), "--precision", "int8", "--validation", pair, "--max-loss",
         "1");
    LEAT(0, "removed whole", "model", "remove", "whole");
    LEAT(0, "left out whole-int8: its accuracy is", "model", "add", "whole", file_of("digits-resnet"), "--variants", "--validation",
         pair);
}

/* ---- A second precision of given times ---------------------------------------------------------- */

/* What becomes of the second: its batches, or 0 where it is left out for being no faster. The first's are of 8. */
static void
expect_second(const char *backend, uint64_t items_max, const char *bound)
{
    char second[64];
    size_t m;
    json_t *model;

    (void)snprintf(second, sizeof(second), "%s-bf16", backend);
    LEAT(0, "router", "app", "add", "given-times", "--latency", "10s", "--late", "serve", "--selector", "fixed");
    LEAT(0, backend, "model", "add", backend, file_of("digits-linear"), "--backend", backend, "--variants", "--app",
         "given-times", "--validation", set, "--json");
    json_t *answer = printed();
    const json_t *left_out = json_object_get(answer, "left_out");
    EXPECT(json_array_size(left_out) == (items_max == 0));
    EXPECT(items_max > 0 || strstr(text_of(json_array_get(left_out, 0), "reason"), "3.000 ms, not 1.000") != NULL);
    json_t *app = show("given-times");
    const json_t *variants = json_object_get(app, "variants");
    EXPECT(json_array_size(variants) == (items_max == 0 ? 1 : 2));
    json_array_foreach(variants, m, model) {
        EXPECT(strcmp(text_of(model, "name"), m == 0 ? backend : second) == 0);
        EXPECT(leatd_number(model, "items_max") == (m == 0 ? 8 : items_max));
        EXPECT(strcmp(text_of(model, "items_bound"), m == 0 ? "gain" : bound) == 0);
    }
    json_decref(app);
    json_decref(answer);
    LEAT(0, "removed given-times", "app", "remove", "given-times", "--with-models");
}

/* Where the second cannot be had, the first is not either. */
static void
test_all_or_nothing(void)
{
    LEAT(0, "added taken-bf16", "model", "add", "taken-bf16", "--synthetic", "{}");
    LEAT(0, "router", "app", "add", "other");
    LEAT(3, "a model or application 'taken-bf16' exists", "model", "add", "taken", file_of("digits-linear"), "--backend",
         "quicker", "--variants", "--app", "other", "--validation", set);
    LEAT(3, "there is no model 'taken'", "model", "remove", "taken");
    json_t *app = show("other");
    EXPECT(json_array_size(json_object_get(app, "variants")) == 0);
    json_decref(app);
    LEAT(0, "removed other", "app", "remove", "other", "--with-models");
    LEAT(0, "removed taken-bf16", "model", "remove", "taken-bf16");
}

static void
test_given_times(void)
{
    leatd_init(&leatd);
    write_set();
    leatd.program = LEATD_TWO_PRECISIONS;
    leatd_start(&leatd, "");
    expect_second("quicker", 16, "gain"); /* 16 take 7 ms: 14 % more a second than 8 in 3.8; 32 take 13.4: 4.5 % more */
    expect_second("slower", 0, NULL);
    LEAT(0, "added two", "model", "add", "two", file_of("digits-linear"), "--backend", "quicker", "--variants", "--items-max",
         "2", "--validation", set);
    EXPECT(strstr(command.out, "two-bf16") != NULL && strstr(command.out, "left out") == NULL); /* two take 1.4 ms, not 2 */
    LEAT(0, "left out one-bf16: on no class of workers is it faster", "model", "add", "one", file_of("digits-linear"),
         "--backend", "quicker", "--variants", "--items-max", "1", "--validation", set);
    test_all_or_nothing();
    expect_measured("quicker");
    leatd_end(&leatd, SIGTERM);
    leatd_fini(&leatd);
}

/* ---- Batches ------------------------------------------------------------------------------------ */

static void
expect_bound(const char *application, uint64_t items, const char *bound)
{
    json_t *app = show(application);
    const json_t *variant = json_array_get(json_object_get(app, "variants"), 0);

    EXPECT(items == 0 ? leatd_number(variant, "items_max") >= 8 : leatd_number(variant, "items_max") == items);
    EXPECT(bound == NULL ? strcmp(text_of(variant, "items_bound"), "given") != 0
                         : strcmp(text_of(variant, "items_bound"), bound) == 0);
    json_decref(app);
}

static void
test_batches(void)
{
    LEAT(0, "router", "app", "add", "tight", "--latency", "100ns", "--late", "serve", "--selector", "fixed");
    LEAT(0, "twice as many take too long", "model", "add", "tight-mlp", file_of("digits-mlp"), "--app", "tight");
    expect_bound("tight", 1, "latency");
    LEAT(0, "router", "app", "add", "loose", "--selector", "fixed");
    LEAT(0, "batches of up to", "model", "add", "loose-mlp", file_of("digits-mlp"), "--app", "loose");
    expect_bound("loose", 0, NULL);
    LEAT(0, "batches of up to", "app", "show", "loose");
    LEAT(0, "added given-mlp", "model", "add", "given-mlp", file_of("digits-mlp"), "--items-max", "3");
    EXPECT(strstr(command.out, "batches of up to") == NULL);
    LEAT(0, "router", "app", "add", "given", "--models", "given-mlp", "--selector", "fixed");
    expect_bound("given", 3, "given");
    LEAT(0, "batches of up to", "model", "add", "alone-mlp", file_of("digits-mlp"), "--items-max", "auto");
    LEAT(2, "--synthetic takes no --items-max auto", "model", "add", "none", "--synthetic", "{}", "--items-max", "auto");
}

/* ---- Cores -------------------------------------------------------------------------------------- */

/* How many points of the shown model are of so many cores; all have times in order. */
static uint32_t
count_points(json_int_t cores)
{
    uint32_t count = 0;
    json_t *model, *point;
    size_t p;

    LEAT(0, "points", "model", "show", "given-mlp", "--json");
    model = printed();
    json_array_foreach(json_object_get(model, "points"), p, point) {
        const bool of_worker = strcmp(json_string_value(json_array_get(point, 0)), "cpu") == 0;
        EXPECT(of_worker == (json_integer_value(json_array_get(point, 1)) == 1));
        EXPECT(json_integer_value(json_array_get(point, 5)) > 0);
        EXPECT(json_integer_value(json_array_get(point, 7)) >= json_integer_value(json_array_get(point, 6)));
        count += json_integer_value(json_array_get(point, 1)) == cores;
    }
    json_decref(model);
    return count;
}

/* What is predicted of one item on the workers. */
static json_int_t
predicted_ns(void)
{
    LEAT(0, "models", "model", "list", "--json");
    json_t *list = printed(), *model;
    json_int_t latency_ns = 0;
    size_t m;

    json_array_foreach(json_object_get(list, "models"), m, model) {
        if (strcmp(text_of(model, "name"), "given-mlp") == 0) {
            latency_ns = json_integer_value(json_object_get(model, "latency_ns"));
        }
    }
    json_decref(list);
    return latency_ns;
}

static double
number_in(const json_t *object, const char *key)
{
    const json_t *number = json_object_get(object, key);
    EXPECT(json_is_number(number));
    return json_number_value(number);
}

/* How far what is said of batches and cores is from the points that it is of, at most; below 0: nothing is said. */
static double
see_fit(double *ret_said)
{
    LEAT(0, "fits", "model", "show", "given-mlp", "--json");
    json_t *model = printed(), *point;
    const json_t *fit = json_array_get(json_object_get(model, "fits"), 0);
    double off = fit != NULL ? 0 : -1;
    size_t p;

    json_array_foreach(fit != NULL ? json_object_get(model, "points") : NULL, p, point) {
        const double c = (double)json_integer_value(json_array_get(point, 1)), b = (double)json_integer_value(json_array_get(point, 2));
        const double ms = (double)json_integer_value(json_array_get(point, 7)) / 1e6;
        const double said = number_in(fit, "alpha_ms") * b / c + number_in(fit, "beta_ms") * b +
                            number_in(fit, "gamma_ms") / c + number_in(fit, "zeta_ms");
        off = fmax(off, fabs(said / ms - 1));
    }
    EXPECT(fit == NULL || number_in(fit, "points") == (double)json_array_size(json_object_get(model, "points")));
    *ret_said = fit != NULL ? number_in(fit, "off") : -1;
    json_decref(model);
    return off;
}

static void
test_cores(void)
{
    char path[160];
    double said;

    EXPECT(count_points(1) == 3 && count_points(2) == 0); /* batches of 1, 2 and 3 */
    LEAT(0, "measured given-mlp", "model", "profile", "given-mlp", "--cores", "2,1,2");
    EXPECT(count_points(1) == 3 && count_points(2) == 3);
    const double off = see_fit(&said);
    EXPECT(off >= 0 && fabs(off - said) < 1e-6 * (1 + off));
    LEAT(0, "b items on c cores", "model", "show", "given-mlp");
    json_t *before = show("given");
    const json_t *classes = json_object_get(json_array_get(json_object_get(before, "variants"), 0), "classes");
    EXPECT(json_array_size(classes) == 2 && json_is_true(json_object_get(json_array_get(classes, 0), "workers")));
    EXPECT(json_is_false(json_object_get(json_array_get(classes, 1), "workers")));
    EXPECT(leatd_number(json_array_get(classes, 1), "cores") == 2);
    const json_t *one = json_array_get(json_object_get(json_array_get(classes, 0), "points"), 0);
    EXPECT(predicted_ns() == (json_int_t)leatd_number(one, "p50_ns"));
    LEAT(0, "given-mlp,\"2 cores\",2,3,", "app", "export", "given");
    (void)snprintf(path, sizeof(path), "%s/given.csv", leatd.root.path);
    FILE *file = fopen(path, "w");
    EXPECT(file != NULL && fputs(command.out, file) >= 0 && fclose(file) == 0);
    LEAT(0, "imported", "app", "import", "copy", path, "--prefix", "copy-", "--selector", "fixed");
    LEAT(3, "do not depend on cores", "model", "profile", "copy-given-mlp", "--cores", "2");
    LEAT(0, "removed copy", "app", "remove", "copy", "--with-models");

    leatd_end(&leatd, SIGKILL);
    leatd_start(&leatd, "");
    json_t *after = show("given");
    EXPECT(json_equal(before, after));
    json_decref(after);
    json_decref(before);
    LEAT(0, "measured given-mlp", "model", "profile", "given-mlp"); /* on both again */
    EXPECT(count_points(1) == 3 && count_points(2) == 3);
    LEAT(0, "measured given-mlp", "model", "profile", "given-mlp", "--cores", "1");
    EXPECT(count_points(1) == 3 && count_points(2) == 0);
    EXPECT(see_fit(&said) < 0 && said < 0);
    LEAT(0, "items/s", "model", "show", "given-mlp");
    LEAT(3, "which the daemon may use", "model", "profile", "given-mlp", "--cores", "60000");
    LEAT(3, "there is no model 'nobody'", "model", "show", "nobody");
    LEAT(2, "--cores: '1,,2' is malformed", "model", "profile", "given-mlp", "--cores", "1,,2");
    LEAT(2, "--cores: '0' is malformed", "model", "profile", "given-mlp", "--cores", "0");
}

int
main(int argc, char **argv)
{
    leat_test_init();
    EXPECT(argc == 2);
    folder = argv[1];
    leatd_init(&leatd);
    write_set();
    leatd_start(&leatd, "");
    test_variants();
    test_one_precision();
    test_int8();
    test_batches();
    test_cores();
    leatd_end(&leatd, SIGTERM);
    leatd_fini(&leatd);
    test_given_times();
    return 0;
}
