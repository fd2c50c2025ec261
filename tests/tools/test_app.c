/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     leat app and leat model: six classifiers become one application with measured accuracies, which are as in training,
 *          are served by their floors, and are there with the same profiles after a restart, in order or killed. Members
 *          change while queries run, and each of them ends once and well. Profiles go out as CSV and come back as synthetic
 *          models that take as long. What is wrong is refused with words, and leaves nothing behind.
 * Method   leatd and leat as processes; argv[1] is the folder of the classifiers.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/align.h"
#include "tests/system/leatd.h"
#include "tests/tools/command.h"

enum { MODELS = 6, SAMPLES = 1200, PIXELS = 28 * 28, IN_FLIGHT = 16, CHANGES = 40, BIG_SIZES = LEAT_TEST_ROUNDS(50000), LONG_LIST = 600, LONG_APPS = 400 };

static const char *const names[MODELS] = {"digits-linear", "digits-mlp",    "digits-cnn",
                                          "digits-lenet",  "digits-resnet", "digits-resnet-wide"};
static const char *folder;
static struct leatd leatd;
static struct command command;

#define LEAT(exit_code, text, ...)                                          \
    command_expect(&command, leatd.socket_path, exit_code, text, (const char *const[]){__VA_ARGS__, NULL})

static json_t *
ask(const char *text)
{
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    json_t *answer = leatd_request(session, text);
    leat_close(session);
    return answer;
}

/* What app-show says; the caller's. */
static json_t *
show(const char *name)
{
    char text[160];
    (void)snprintf(text, sizeof(text), "{\"op\":\"app-show\",\"name\":\"%s\"}", name);
    json_t *answer = ask(text);
    EXPECT(json_is_array(json_object_get(answer, "variants")));
    return answer;
}

static const char *
text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    EXPECT(text != NULL);
    return text;
}

/* A file in leatd's folder. */
static const char *
write_file(const char *name, const void *data, size_t bytes)
{
    static char path[192];
    (void)snprintf(path, sizeof(path), "%s/%s", leatd.root.path, name);
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0);
    return path;
}

static const char *
write_text(const char *name, const char *text)
{
    return write_file(name, text, strlen(text));
}

/* An array of bytes, zeros but for its first element. */
static void
write_npy(const char *name, const char *descr, const char *shape, size_t bytes, unsigned char first)
{
    char header[128];
    unsigned char *file = calloc(1, 128 + bytes);

    EXPECT(file != NULL);
    (void)snprintf(header, sizeof(header), "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    memcpy(file, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(file + 10, ' ', 118);
    memcpy(file + 10, header, strlen(header));
    file[127] = '\n';
    file[128] = first;
    (void)write_file(name, file, 128 + bytes);
    free(file);
}

/* ---- Six models, one application ----------------------------------------------------------------- */

static void
add_models(void)
{
    char file[512], set[1024];

    (void)snprintf(set, sizeof(set), "%s/validation.inputs.npy,%s/validation.labels.npy", folder, folder);
    LEAT(0, "router auto, selector fixed", "app", "add", "digits", "--latency", "10s", "--late", "serve", "--selector", "fixed",
         "--percentile", "99", "--queue", "64");
    LEAT(3, "application 'digits' has no model that is served: 'leat app change --models'", "run", "digits");
    LEAT(3, "application 'digits' has no model that is served", "scale", "set", "0", "--for", "digits");
    for (size_t m = 0; m < MODELS; m++) {
        (void)snprintf(file, sizeof(file), "%s/%s.onnx", folder, names[m]);
        LEAT(0, "of 1200 right", "model", "add", names[m], file, "--items-max", "16", "--app", "digits", "--validation", set);
    }
}

/* As in training, but for one item, for sums in another order. */
static void
check_accuracies(void)
{
    char path[512], line[256];
    json_t *app = show("digits");
    const json_t *variants = json_object_get(app, "variants");

    (void)snprintf(path, sizeof(path), "%s/accuracies.csv", folder);
    FILE *table = fopen(path, "r");
    EXPECT(table != NULL && fgets(line, sizeof(line), table) != NULL && json_array_size(variants) == MODELS);
    for (size_t m = 0; m < MODELS; m++) {
        const json_t *variant = json_array_get(variants, m), *validation = json_object_get(variant, "validation");
        double accuracy;
        EXPECT(fgets(line, sizeof(line), table) != NULL && sscanf(line, "%*[^,],%*[^,],%*[^,],%lf", &accuracy) == 1);
        EXPECT(strncmp(line, text_of(variant, "name"), strlen(names[m])) == 0);
        EXPECT(fabs((double)leatd_number(variant, "accuracy_ppm") / 1e6 - accuracy) < 1.5 / SAMPLES);
        EXPECT(strcmp(text_of(variant, "accuracy_from"), "measured") == 0 && leatd_number(validation, "samples") == SAMPLES);
        EXPECT(strlen(text_of(validation, "inputs_sha256")) == 64 && strlen(text_of(validation, "labels_sha256")) == 64);
        EXPECT(json_is_true(json_object_get(variant, "host_matches")) && leatd_number(variant, "peak_bytes") > 0);
        EXPECT(leatd_number(variant, "load_ns") > 0 && strcmp(text_of(variant, "precision"), "f32") == 0);
    }
    (void)fclose(table);
    json_decref(app);
}

/* Times of the classes are measured in order, at one item and at sixteen. */
static void
check_times(const json_t *app)
{
    size_t v, c;
    json_t *variant, *class;

    json_array_foreach(json_object_get(app, "variants"), v, variant) {
        EXPECT(json_array_size(json_object_get(variant, "classes")) >= 1);
        json_array_foreach(json_object_get(variant, "classes"), c, class) {
            const json_t *points = json_object_get(class, "points");
            EXPECT(json_array_size(points) == 2 && leatd_number(class, "cores") >= 1);
            for (size_t p = 0; p < 2; p++) {
                const json_t *point = json_array_get(points, p);
                EXPECT(leatd_number(point, "items") == (p == 0 ? 1 : 16) && leatd_number(point, "runs") >= 5);
                EXPECT(leatd_number(point, "p50_ns") > 0 && leatd_number(point, "p95_ns") >= leatd_number(point, "p50_ns"));
                EXPECT(leatd_number(point, "p99_ns") >= leatd_number(point, "p95_ns"));
            }
        }
    }
}

/* Whoever asks for an accuracy gets a model that has it. */
static void
check_served(const char *application)
{
    struct leat_session *session = leatd_open_session(&leatd, 4, 1 << 20);
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_target target;
    struct leat_completion done;

    EXPECT(leat_find(session, application, &target) == LEAT_OK && target.items_max == 16);
    query.target = target.id;
    for (uint32_t t = 0; t < 2; t++) {
        EXPECT(leat_tensor_alloc(session, target.tensors[t].item_bytes, &query.tensors[t]) == LEAT_OK);
    }
    for (uint32_t floor_ppm = 0; floor_ppm <= 970000; floor_ppm += 97000) {
        query.accuracy_floor_ppm = floor_ppm;
        EXPECT(leat_run(session, &query, &done) == LEAT_OK && done.outcome == LEAT_OUTCOME_OK);
        EXPECT(done.accuracy_ppm >= floor_ppm && done.variant < MODELS);
    }
    query.accuracy_floor_ppm = 990000;
    EXPECT(leat_run(session, &query, &done) == LEAT_OK && done.reason == LEAT_REASON_ACCURACY);
    EXPECT(done.variant < MODELS && done.accuracy_ppm >= 970000); /* the most accurate one, wherever it stands */
    leat_close(session);
}

static void
test_digits(void)
{
    add_models();
    check_accuracies();
    json_t *before = show("digits");
    check_times(before);
    check_served("digits");
    LEAT(0, "accuracy 93.42 % (measured)", "app", "show", "digits");
    for (int round = 0; round < 2; round++) {
        leatd_end(&leatd, round == 0 ? SIGKILL : SIGTERM);
        leatd_start(&leatd, "");
        json_t *after = show("digits");
        EXPECT(json_equal(before, after)); /* what was measured, too, and when; and memory, for weights are in the kept file from the start */
        json_decref(after);
        check_served("digits");
    }
    EXPECT(leatd_logged(&leatd, "one item, as known"));
    json_decref(before);
}

/* ---- Members change while queries run ------------------------------------------------------------ */

static atomic_bool changed;

static void *
change_members(void *argument)
{
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);

    (void)argument;
    for (int i = 0; i < CHANGES; i++) {
        char text[160];
        (void)snprintf(text, sizeof(text), "{\"op\":\"app-change\",\"name\":\"digits\",\"%s\":[\"digits-mlp\"]%s}",
                       i % 2 == 0 ? "remove_models" : "models", i % 4 == 0 ? ",\"queue\":64" : ",\"queue\":128");
        json_t *answer = leatd_request(session, text);
        EXPECT(json_array_size(json_object_get(answer, "variants")) == MODELS - (i % 2 == 0));
        json_decref(answer);
    }
    leat_close(session);
    changed = true;
    return NULL;
}

/* The counters went along: all that was accepted has ended, and none was lost. */
static bool
is_settled(struct leat_session *session, uint64_t submitted)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}"), *app;
    bool settled = false;
    size_t a;

    json_array_foreach(json_object_get(status, "applications"), a, app) {
        if (strcmp(text_of(app, "name"), "digits") == 0) {
            const uint64_t accepted = leatd_number(app, "accepted");
            EXPECT(accepted >= submitted && leatd_number(app, "ok") + leatd_number(app, "rejected") <= accepted);
            settled = leatd_number(app, "ok") + leatd_number(app, "rejected") == accepted;
        }
    }
    json_decref(status);
    return settled;
}

static void
test_changes_under_load(void)
{
    struct leat_session *session = leatd_open_session(&leatd, IN_FLIGHT, 1 << 20);
    struct leat_completion done[IN_FLIGHT];
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_target target;
    uint64_t submitted = 0, completed = 0;
    void *outputs[IN_FLIGHT];
    pthread_t thread;

    EXPECT(leat_find(session, "digits", &target) == LEAT_OK);
    query.target = target.id;
    EXPECT(leat_tensor_alloc(session, target.tensors[0].item_bytes, &query.tensors[0]) == LEAT_OK);
    for (uint32_t i = 0; i < IN_FLIGHT; i++) {
        EXPECT(leat_tensor_alloc(session, target.tensors[1].item_bytes, &outputs[i]) == LEAT_OK);
    }
    EXPECT(pthread_create(&thread, NULL, change_members, NULL) == 0);
    bool free_slot[IN_FLIGHT];
    memset(free_slot, true, sizeof(free_slot));
    while (!changed || completed < submitted) {
        size_t count = 0;
        for (uint32_t i = 0; i < IN_FLIGHT && !changed; i++) {
            if (free_slot[i]) {
                query.user_data = i;
                query.tensors[1] = outputs[i];
                EXPECT(leat_submit(session, &query, NULL) == LEAT_OK);
                free_slot[i] = false;
                submitted++;
            }
        }
        const enum leat_status status = leat_wait(session, done, IN_FLIGHT, UINT64_MAX, &count);
        EXPECT(status == LEAT_OK || (status == LEAT_AGAIN && completed == submitted));
        for (size_t d = 0; d < count; d++) {
            EXPECT(done[d].outcome == LEAT_OUTCOME_OK && done[d].user_data < IN_FLIGHT && !free_slot[done[d].user_data]);
            free_slot[done[d].user_data] = true;
            completed++;
        }
    }
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(submitted > 100 && completed == submitted);
    while (!is_settled(session, submitted)) { /* workers report after they have answered */
    }
    leat_close(session);
    (void)printf("%llu queries over %d changes\n", (unsigned long long)submitted, CHANGES);
}

/* ---- Refusals ------------------------------------------------------------------------------------ */

static void
test_refusals(void)
{
    char file[512], set[1024], inputs[192], wrong[192], labels[192];
    const char *empty;

    (void)snprintf(file, sizeof(file), "%s/digits-linear.onnx", folder);
    LEAT(3, "there is no application 'nobody'", "app", "show", "nobody");
    LEAT(3, "there is no application 'nobody'", "app", "remove", "nobody");
    LEAT(3, "there is no application 'nobody'", "app", "change", "nobody", "--latency", "1ms");
    LEAT(3, "'leat app add nobody' makes one", "model", "add", "orphan", file, "--app", "nobody");
    LEAT(3, "there is no application 'nobody'", "app", "export", "nobody");
    LEAT(3, "a model or application 'digits' exists", "app", "add", "digits");
    LEAT(3, "a model or application 'digits-mlp' exists", "app", "add", "digits-mlp");
    LEAT(3, "a model or application 'digits' exists", "model", "add", "digits", "--synthetic", "{}");
    LEAT(3, "has model 'digits-cnn' already", "app", "change", "digits", "--models", "digits-cnn");
    LEAT(3, "has no model 'digits-none'", "app", "change", "digits", "--remove-models", "digits-none");
    LEAT(3, "there is no model 'digits-none'", "app", "add", "other", "--models", "digits-none");
    LEAT(3, "there is no router 'none'; there are auto, clockwork, ", "app", "add", "other", "--router", "none");
    LEAT(3, "there is no selector 'none'; there are auto, fixed, ", "app", "add", "other", "--selector", "none");
    LEAT(3, "application 'digits' is served by model 'digits-cnn'", "model", "remove", "digits-cnn");
    LEAT(2, "--late: 'never' is malformed", "app", "add", "other", "--late", "never");
    LEAT(2, "list takes no name", "app", "list", "digits");
    LEAT(2, "import needs a name and a file", "app", "import", "other");

    /* Other inputs than those of the application: nothing of the model stays. */
    LEAT(3, "differ in inputs, outputs or lengths", "model", "add", "bytes", "--synthetic", "{}", "--app", "digits");
    LEAT(3, "there is no model 'bytes'", "model", "remove", "bytes");

    /* Sets that are not for the model. */
    write_npy("good.npy", "|u1", "(2, 1, 28, 28)", 2 * PIXELS, 0);
    write_npy("flat.npy", "|u1", "(2, 784)", 2 * PIXELS, 0);
    write_npy("labels.npy", "|u1", "(2,)", 2, 0);
    write_npy("three.npy", "|u1", "(3,)", 3, 0);
    write_npy("eleven.npy", "<i8", "(2,)", 16, 11);
    write_npy("scores.npy", "<f4", "(2,)", 8, 0);
    (void)snprintf(inputs, sizeof(inputs), "%s/good.npy", leatd.root.path);
    (void)snprintf(labels, sizeof(labels), "%s/labels.npy", leatd.root.path);
    const struct {
        const char *inputs, *labels, *text;
    } sets[] = {
        {"flat.npy", "labels.npy", "the inputs are u8[2,784], the model's input 'image' is u8[N,1,28,28]"},
        {"good.npy", "three.npy", "the labels are u8[3]; there must be a whole number for each of 2 inputs"},
        {"good.npy", "scores.npy", "the labels are f32[2]; there must be a whole number"},
        {"good.npy", "eleven.npy", "the label of item 0 is none of the model's 10 classes"},
    };
    for (size_t s = 0; s < LEAT_COUNT_OF(sets); s++) {
        (void)snprintf(set, sizeof(set), "%s/%s,%s/%s", leatd.root.path, sets[s].inputs, leatd.root.path, sets[s].labels);
        LEAT(3, sets[s].text, "model", "add", "refused", file, "--app", "digits", "--validation", set);
    }
    LEAT(1, "is not two files with a comma between them", "model", "add", "refused", file, "--validation", inputs);
    (void)snprintf(wrong, sizeof(wrong), "%s,%s", inputs, "/nowhere.npy");
    LEAT(1, "/nowhere.npy", "model", "add", "refused", file, "--validation", wrong);
    LEAT(3, "there is no model 'refused'", "model", "remove", "refused");

    /* --accuracy is what it stands for, whatever the set says. */
    (void)snprintf(set, sizeof(set), "%s,%s", inputs, labels);
    LEAT(0, "stands for 12.34 %", "model", "add", "told", file, "--accuracy", "0.1234", "--validation", set);
    LEAT(0, "removed told", "model", "remove", "told");

    empty = write_text("empty.csv", "");
    LEAT(1, "empty.csv", "app", "import", "other", empty);
    LEAT(1, "damaged.csv:3", "app", "import", "other",
         write_text("damaged.csv", "variant,items,p95_ms,accuracy\na,1,2.5,0.5\na,2,\"3.5,0.5\n"));
    LEAT(1, "unit.csv:2: column 'accuracy': numbers above 1, and none is 10 or more: write fractions of 1, or percent", "app",
         "import", "other", write_text("unit.csv", "variant,items,p95_ms,accuracy\na,1,2.5,1.5\n"));
    LEAT(1, "no column 'p95_us'", "app", "import", "other", write_text("column.csv", "variant,items,accuracy\na,1,0.5\n"));
    LEAT(1, "two rows for 1 items of 'a'", "app", "import", "other",
         write_text("twice.csv", "variant,items,p95_ms,accuracy\na,1,2.5,0.5\na,1,2.5,0.5\n"));
    LEAT(3, "'a b' cannot be a model's name", "app", "import", "other",
         write_text("name.csv", "variant,items,p95_ms,accuracy\na b,1,2.5,0.5\n"));
    LEAT(3, "no times for workers of class 'cpu'", "app", "import", "other",
         write_text("class.csv", "variant,class,items,p95_ms,accuracy\na,gpu,1,2.5,0.5\n"));
    LEAT(3, "a model or application 'digits-cnn' exists", "app", "import", "other",
         write_text("taken.csv", "variant,items,p95_ms,accuracy\nfirst,1,2.5,0.5\ndigits-cnn,1,2.5,0.5\n"));
    LEAT(3, "there is no application 'other'", "app", "show", "other");
    LEAT(3, "there is no model 'first'", "model", "remove", "first");
}

/* ---- Profiles out and in ------------------------------------------------------------------------- */

/* What was exported is imported, and has the times that it had. */
static void
test_round_trip(void)
{
    LEAT(0, "digits-lenet,\"cpu\",", "app", "export", "digits");
    LEAT(0, "imported", "app", "import", "copy", write_text("digits.csv", command.out), "--prefix", "copy-", "--statistic",
         "p50", "--selector", "fixed", "--latency", "10s", "--late", "serve");
    json_t *digits = show("digits"), *copy = show("copy");
    for (size_t v = 0; v < MODELS; v++) {
        const json_t *from = json_array_get(json_object_get(digits, "variants"), v);
        const json_t *variant = NULL;
        for (size_t i = 0; i < MODELS && variant == NULL; i++) { /* the fastest first */
            const json_t *other = json_array_get(json_object_get(copy, "variants"), i);
            variant = strcmp(text_of(other, "name") + strlen("copy-"), text_of(from, "name")) == 0 ? other : NULL;
        }
        EXPECT(variant != NULL && strcmp(text_of(variant, "backend"), "synthetic") == 0);
        EXPECT(strcmp(text_of(variant, "accuracy_from"), "imported") == 0 && text_of(variant, "host")[0] == '\0');
        EXPECT(leatd_number(variant, "accuracy_ppm") == leatd_number(from, "accuracy_ppm"));
        EXPECT(leatd_number(variant, "load_ns") == leatd_number(from, "load_ns"));
        EXPECT(leatd_number(variant, "peak_bytes") == leatd_number(from, "peak_bytes"));
        const json_t *times = json_array_get(json_object_get(variant, "classes"), 0),
                     *from_times = json_array_get(json_object_get(from, "classes"), 0);
        for (size_t p = 0; p < 2; p++) {
            const json_t *point = json_array_get(json_object_get(times, "points"), p),
                         *from_point = json_array_get(json_object_get(from_times, "points"), p);
            EXPECT(leatd_number(point, "items") == leatd_number(from_point, "items"));
            EXPECT(leatd_number(point, "p95_ns") == leatd_number(from_point, "p50_ns"));
        }
    }
    json_decref(digits);
    json_decref(copy);
    check_served("copy");
    LEAT(0, "removed copy", "app", "remove", "copy", "--with-models");
    LEAT(3, "there is no model 'copy-digits-cnn'", "model", "remove", "copy-digits-cnn");
}

/* Times by task and percent, sizes that are missing, and one that is out of line; the worker takes what the table says. */
static void
test_foreign_profiles(void)
{
    const char *profiles = write_text("profiles.csv", "task,model,batch_size,mean_ms,p95_us\n"
                                                      "image,slow,1,11,30000\nimage,slow,2,21,60000\n"
                                                      "image,fast,1,5,12000\nimage,fast,2,6,10000\nimage,fast,4,8,20000\n"
                                                      "image,beaten,1,9,31000\nimage,beaten,2,9,32000\n"
                                                      "text,other,1,9,10000\n");
    char accuracies[192];
    (void)snprintf(accuracies, sizeof(accuracies), "%s", profiles);
    (void)snprintf(strrchr(accuracies, '/'), 32, "/accuracies.csv");
    char path[192];
    (void)snprintf(path, sizeof(path), "%s", profiles);
    (void)write_text("accuracies.csv", "task,model,accuracy\nimage,slow,80\nimage,fast,70.5\nimage,beaten,75\ntext,other,9\n");
    LEAT(1, "there are tasks 'image' and 'text': say which", "app", "import", "images", "--profiles", path, "--accuracies",
         accuracies);
    LEAT(0, "accuracy 70.50 % (imported)", "app", "import", "images", "--profiles", path, "--accuracies", accuracies, "--task",
         "image", "--front", "--repair", "--items-max", "4", "--selector", "fixed");
    EXPECT(strstr(command.out, "/accuracies.csv: percent\n") != NULL);
    json_t *app = show("images");
    EXPECT(json_array_size(json_object_get(app, "variants")) == 2);
    json_decref(app);
    json_t *points = ask("{\"op\":\"app-profiles\",\"name\":\"images\",\"variant\":0}");
    static const json_int_t fast_ns[] = {10000000, 10000000, 16000000, 20000000}; /* 12 ms is more than the next takes */
    for (size_t i = 0; i < 4; i++) {
        const json_t *point = json_array_get(json_object_get(points, "points"), i);
        EXPECT(json_integer_value(json_array_get(point, 2)) == (json_int_t)i + 1);
        EXPECT(llabs(json_integer_value(json_array_get(point, 6)) - fast_ns[i]) <= 1);
    }
    json_decref(points);

    struct leat_session *session = leatd_open_session(&leatd, 2, 1 << 16);
    struct leat_target target;
    struct leat_completion done;
    struct leat_query query = LEAT_QUERY_INIT;
    EXPECT(leat_find(session, "images", &target) == LEAT_OK && target.items_max == 4);
    query.target = target.id;
    query.items = 3;
    for (uint32_t t = 0; t < 2; t++) {
        EXPECT(leat_tensor_alloc(session, 4 * target.tensors[t].item_bytes, &query.tensors[t]) == LEAT_OK);
    }
    EXPECT(leat_run(session, &query, &done) == LEAT_OK && done.outcome == LEAT_OUTCOME_OK);
    EXPECT(done.variant == 0 && done.exec_ns >= 16000000);
    leat_close(session);
    LEAT(0, "removed images", "app", "remove", "images", "--with-models");
}

/* A file of a hundred thousand rows is taken whole, kept and given back. */
static void
test_many_rows(void)
{
    char *text = malloc(2 * BIG_SIZES * 48 + 64);
    size_t used = 0;

    EXPECT(text != NULL);
    used += (size_t)sprintf(text, "variant,class,items,p95_ms,accuracy\n");
    for (int size = 1; size <= BIG_SIZES; size++) {
        used += (size_t)sprintf(text + used, "big,cpu,%d,%d.%03d,0.5\nlarge,cpu,%d,%d,0.75\n", size, size, size % 1000, size, size);
    }
    const char *path = write_file("rows.csv", text, used);
    char told[40];
    (void)snprintf(told, sizeof(told), "batches of up to %d", BIG_SIZES);
    LEAT(0, told, "app", "import", "rows", path, "--selector", "fixed");
    free(text);
    leatd_end(&leatd, SIGKILL);
    leatd_start(&leatd, "");
    uint64_t from = 0, seen = 0;
    do {
        char request[160];
        (void)snprintf(request, sizeof(request), "{\"op\":\"app-profiles\",\"name\":\"rows\",\"variant\":1,\"from\":%llu}",
                       (unsigned long long)from);
        json_t *answer = ask(request);
        const json_t *points = json_object_get(answer, "points");
        for (size_t p = 0; p < json_array_size(points); p++) {
            const json_t *point = json_array_get(points, p);
            EXPECT((uint64_t)json_integer_value(json_array_get(point, 2)) == ++seen);
        }
        from = json_object_get(answer, "next") != NULL ? leatd_number(answer, "next") : 0;
        json_decref(answer);
    } while (from > 0);
    EXPECT(seen == BIG_SIZES);
    LEAT(0, "removed rows", "app", "remove", "rows", "--with-models");
}

/* Elements of long lists are called model-0, model-1, ... and app-0, app-1, ...; each is met once. */
struct met {
    const char *format;
    bool seen[LONG_LIST];
    size_t count;
};

static void
meet(struct met *met, const char *name)
{
    unsigned n;

    if (sscanf(name, met->format, &n) == 1) {
        EXPECT(n < LONG_LIST && !met->seen[n]);
        met->seen[n] = true;
        met->count++;
    }
}

/* How many a list has, which is asked for in parts, of which there are several. */
static size_t
count_in_parts(const char *op, const char *list, const char *format)
{
    struct met met = {.format = format};
    json_int_t from = 0;
    size_t parts = 0, i;
    const json_t *element;

    do {
        char request[96];
        (void)snprintf(request, sizeof(request), "{\"op\":\"%s\",\"from\":%lld}", op, (long long)from);
        json_t *answer = ask(request);
        EXPECT(json_array_size(json_object_get(answer, list)) > 0);
        json_array_foreach(json_object_get(answer, list), i, element) {
            meet(&met, text_of(element, "name"));
        }
        const json_t *next = json_object_get(answer, "next");
        EXPECT(next == NULL || json_integer_value(next) > from);
        from = json_integer_value(next);
        json_decref(answer);
        parts++;
    } while (from > 0);
    EXPECT(parts > 1);
    return met.count;
}

/* Lines of what `leat` printed that begin with one of them, in its first table. */
static size_t
count_printed(const char *format)
{
    struct met met = {.format = format};
    const char *end = strstr(command.out, "\ninstances of");

    for (const char *line = command.out; line != NULL && (end == NULL || line < end); line = strchr(line, '\n')) {
        line += line != command.out;
        meet(&met, line);
    }
    return met.count;
}

static void
expect_done(struct leat_session *session, const char *request)
{
    json_t *answer = leatd_request(session, request);
    const char *error = json_string_value(json_object_get(answer, "error"));

    if (error != NULL) {
        (void)fprintf(stderr, "%s: %s\n", request, error);
        exit(1);
    }
    json_decref(answer);
}

/* More applications and models than an answer holds: they come in parts, and what leat shows is whole. */
static void
test_long_lists(void)
{
    enum { MEMBERS = 8 }; /* of each application, by long names */
    static const char pad[] = "-of-which-the-name-is-nearly-as-long-as-it-may-be";
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    char request[1024], members[MEMBERS * 64] = "";

    for (unsigned n = 0; n < LONG_LIST; n++) {
        (void)snprintf(request, sizeof(request),
                       "{\"op\":\"model-add\",\"name\":\"model-%u%s\",\"backend\":\"synthetic\",\"items_max\":1,"
                       "\"options\":{\"points\":[{\"items\":1,\"latency_ns\":1000}]}}",
                       n, n < MEMBERS ? pad : "");
        expect_done(session, request);
    }
    for (unsigned n = 0; n < MEMBERS; n++) {
        (void)snprintf(members + strlen(members), sizeof(members) - strlen(members), "%s\"model-%u%s\"", n > 0 ? "," : "", n, pad);
    }
    for (unsigned n = 0; n < LONG_APPS; n++) {
        (void)snprintf(request, sizeof(request), "{\"op\":\"app-add\",\"name\":\"app-%u\",\"models\":[%s]}", n, members);
        expect_done(session, request);
    }
    leat_close(session);
    EXPECT(count_in_parts("status", "applications", "model-%u") == LONG_LIST);
    EXPECT(count_in_parts("status", "applications", "app-%u") == LONG_APPS);
    EXPECT(count_in_parts("app-list", "applications", "app-%u") == LONG_APPS);
    EXPECT(count_in_parts("model-list", "models", "model-%u") == LONG_LIST);
    LEAT(0, "app-0", "status");
    EXPECT(count_printed("model-%u") == LONG_LIST && count_printed("app-%u") == LONG_APPS);
    LEAT(0, "app-0", "app", "list");
    EXPECT(count_printed("app-%u") == LONG_APPS);
    LEAT(0, "model-0", "model", "list");
    EXPECT(count_printed("model-%u") == LONG_LIST);
    LEAT(0, "in time", "bench", "app-399", "--rate", "100", "--queries", "2", "--warmup", "0");
    json_t *refusal = ask("{\"op\":\"status\",\"from\":-1}");
    EXPECT(strstr(text_of(refusal, "error"), "'from' must be a place in 'applications'") != NULL);
    json_decref(refusal);
}

/* ---- Restarts ------------------------------------------------------------------------------------ */

/* A configured application wins; without one of its models an application goes on; measured again is measured later. */
static void
test_configured(void)
{
    static const char yaml[] = "models:\n"
                               "  - {name: own, backend: synthetic, synthetic: {latency: 1us}}\n"
                               "applications:\n"
                               "  - {name: digits, models: [own]}\n";

    LEAT(0, "measured digits-cnn", "model", "profile", "digits-cnn");
    LEAT(3, "there is no model 'nobody'", "model", "profile", "nobody");
    LEAT(0, "router", "app", "add", "mixed");
    leatd_end(&leatd, SIGTERM);
    leatd_start(&leatd, yaml);
    EXPECT(leatd_logged(&leatd, "kept application 'digits' is not served"));
    LEAT(0, "of the configuration", "app", "show", "digits");
    LEAT(0, "not served", "app", "list");
    LEAT(3, "is the configuration's", "app", "change", "digits", "--models", "digits-cnn");
    LEAT(3, "is the configuration's", "app", "remove", "digits");
    LEAT(0, "own", "app", "change", "mixed", "--models", "own");
    LEAT(0, "removed digits-cnn", "model", "remove", "digits-cnn"); /* which the other digits had */
    leatd_end(&leatd, SIGTERM);
    leatd_start(&leatd, "");
    LEAT(0, "digits-cnn: not loaded: there is no such model", "app", "show", "digits");
    LEAT(0, "ok", "run", "digits");
    LEAT(0, "own: not loaded", "app", "show", "mixed");
    LEAT(0, "router", "app", "change", "digits", "--remove-models", "digits-cnn");
    LEAT(0, "removed mixed", "app", "remove", "mixed");
    LEAT(0, "removed digits", "app", "remove", "digits", "--with-models");
    LEAT(0, "", "app", "list");
    EXPECT(command.out[0] == '\0');
    json_t *models = ask("{\"op\":\"model-list\"}");
    EXPECT(json_array_size(json_object_get(models, "models")) == 0);
    json_decref(models);
}

int
main(int argc, char **argv)
{
    leat_test_init();
    EXPECT(argc == 2);
    folder = argv[1];
    leatd_init(&leatd);
    leatd_start(&leatd, "");
    test_digits();
    test_changes_under_load();
    test_refusals();
    test_round_trip();
    test_foreign_profiles();
    test_many_rows();
    test_configured();
    test_long_lists();
    leatd_end(&leatd, SIGTERM);
    leatd_fini(&leatd);
    return 0;
}
