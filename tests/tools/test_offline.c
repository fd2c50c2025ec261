/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     `leat offline`: every item of a folder is answered once and right, or told of in the report, also if the daemon is
 *          killed at any step that changes the disk, or at any moment with tens of items under way, drained or started with
 *          other folders in place, or if the application goes and comes; what was cancelled can go on; while online queries
 *          keep the workers busy, or take longer than their profile says, nothing starts, but on workers that share no cache or
 *          memory with those that take longer; a pipeline answers a job
 *          beside online queries, and refuses neither. What a killed daemon left is gone once its job is cancelled,
 *          though that never runs, and no other file is. An output folder is one job's at a time, of all daemons. All of this
 *          holds for items of several files too, and for answers of several outputs of which one varies.
 * Method   leatd with models that copy their input, and a pipeline of one of these and of NonMaxSuppression, which finds as many
 *          boxes as the item says, and a leatd that kills itself at a step, each step in turn. Kills
 *          at any moment come after a number of answers and of looks at the job that are drawn from the seed. An answer
 *          that was seen after a kill is the same file at the end: who had answered twice would have made another.
 *          Batches that last longer than their profile says have a size of which it has no knot, between two that are
 *          quicker; one at a time they are a quarter of what four workers could do at most, whatever else the machine
 *          does. What kills daemons is a test by itself, with the argument `kills`; so is what takes two nodes, `apart`.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/align.h"
#include "base/npy.h"
#include "tests/kernels/model_builder.h"
#include "tests/system/leatd.h"
#include "tests/tools/command.h"

enum { ITEM_BYTES = 16, ITEMS_MAX = 4, PLACES = 5, ONNX_F32 = 1 };

static struct leatd leatd;
static struct leatd *asked = &leatd; /* by commands */
static struct command command;

static bool several; /* items have several files and answers several outputs, as pipeline `gathered` wants them */

static const char one_worker[] = "workers: [{count: 1}]\n";

/* ---- Folders ---------------------------------------------------------------------------------- */

static const char *
path_of(const char *name)
{
    static char paths[4][320];
    static unsigned next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof(paths[0]), "%s/%s", leatd.root.path, name);
    return path;
}

static uint32_t
items_of(uint32_t item)
{
    return several ? 1 : 1 + item % ITEMS_MAX;
}

static void
fill(uint32_t item, unsigned char bytes[ITEMS_MAX * ITEM_BYTES])
{
    for (uint32_t b = 0; b < ITEMS_MAX * ITEM_BYTES; b++) {
        bytes[b] = (unsigned char)(item * 7 + b + 1);
    }
}

static const char *
item_path(const char *folder, uint32_t item)
{
    char name[256];
    (void)snprintf(name, sizeof(name), "%s/%05u.%s%s", folder, item, several ? "0." : "", several || item % 2 == 0 ? "npy" : "raw");
    return path_of(name);
}

/* Of one of several inputs or outputs. */
static const char *
part_path(const char *folder, uint32_t item, const char *part)
{
    char name[256];
    (void)snprintf(name, sizeof(name), "%s/%05u.%s.npy", folder, item, part);
    return path_of(name);
}

/* Boxes that do not meet, of which so many are sure: the first ones, each less than the one before. */
static uint32_t
boxes_of(uint32_t item)
{
    return item % (PLACES + 1);
}

static void
put_parts(const char *folder, uint32_t item)
{
    unsigned char bytes[ITEMS_MAX * ITEM_BYTES];
    float boxes[PLACES * 4], scores[PLACES];

    fill(item, bytes);
    for (uint32_t p = 0; p < PLACES; p++) {
        for (uint32_t i = 0; i < 4; i++) {
            boxes[4 * p + i] = 10.0f * (float)p + (i < 2 ? 0.0f : 1.0f);
        }
        scores[p] = p < boxes_of(item) ? 0.9f - 0.01f * (float)p : 0.1f;
    }
    const struct npy_array x = {.dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {1, ITEM_BYTES}, .elements = ITEM_BYTES, .data = bytes};
    const struct npy_array places = {
        .dtype = LEAT_DTYPE_F32, .rank = 3, .dims = {1, PLACES, 4}, .elements = 4 * PLACES, .data = boxes};
    const struct npy_array sure = {.dtype = LEAT_DTYPE_F32, .rank = 3, .dims = {1, 1, PLACES}, .elements = PLACES, .data = scores};
    EXPECT(npy_write(part_path(folder, item, "x"), &x) == LEAT_OK);
    EXPECT(npy_write(part_path(folder, item, "boxes"), &places) == LEAT_OK);
    EXPECT(npy_write(part_path(folder, item, "scores"), &sure) == LEAT_OK);
}

/* The boxes that are sure, one row for each, in order. */
static void
expect_boxes(const char *folder, uint32_t item)
{
    struct npy_array array;

    EXPECT(npy_read(part_path(folder, item, "1"), &array) == LEAT_OK && array.dtype == LEAT_DTYPE_I64 && array.rank == 3);
    EXPECT(array.dims[0] == 1 && array.dims[1] == boxes_of(item) && array.dims[2] == 3);
    for (uint32_t b = 0; b < boxes_of(item); b++) {
        const int64_t *row = (const int64_t *)array.data + 3 * (size_t)b;
        EXPECT(row[0] == 0 && row[1] == 0 && row[2] == b);
    }
    npy_free(&array);
}

static void
put_items(const char *folder, uint32_t first, uint32_t end)
{
    unsigned char bytes[ITEMS_MAX * ITEM_BYTES];

    EXPECT(mkdir(path_of(folder), 0700) == 0 || errno == EEXIST);
    for (uint32_t item = first; item < end; item++) {
        const uint32_t count = items_of(item);
        if (several) {
            put_parts(folder, item);
            continue;
        }
        const struct npy_array array = {
            .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {count, ITEM_BYTES}, .elements = count * ITEM_BYTES, .data = bytes};
        fill(item, bytes);
        if (item % 2 == 0) {
            EXPECT(npy_write(item_path(folder, item), &array) == LEAT_OK);
        } else {
            FILE *file = fopen(item_path(folder, item), "wb");
            EXPECT(file != NULL && fwrite(bytes, ITEM_BYTES, count, file) == count && fclose(file) == 0);
        }
    }
}

/* Is there an answer? If so it is the item, whole. */
static bool
is_answered(const char *folder, uint32_t item)
{
    unsigned char bytes[ITEMS_MAX * ITEM_BYTES], found[ITEMS_MAX * ITEM_BYTES + 1];
    const size_t size = items_of(item) * ITEM_BYTES;
    struct npy_array array;
    const char *path = item_path(folder, item);

    if (access(path, F_OK) != 0) {
        return false;
    }
    fill(item, bytes);
    if (several) {
        expect_boxes(folder, item);
    }
    if (several || item % 2 == 0) {
        EXPECT(npy_read(path, &array) == LEAT_OK && array.dtype == LEAT_DTYPE_U8 && array.rank == 2);
        EXPECT(array.dims[0] == items_of(item) && array.dims[1] == ITEM_BYTES && memcmp(array.data, bytes, size) == 0);
        npy_free(&array);
    } else {
        FILE *file = fopen(path, "rb");
        EXPECT(file != NULL && fread(found, 1, sizeof(found), file) == size && memcmp(found, bytes, size) == 0);
        EXPECT(fclose(file) == 0);
    }
    return true;
}

static uint32_t
count_entries(const char *folder)
{
    uint32_t count = 0;
    DIR *open_folder = opendir(path_of(folder));

    EXPECT(open_folder != NULL);
    for (const struct dirent *entry; (entry = readdir(open_folder)) != NULL;) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    EXPECT(closedir(open_folder) == 0);
    return count;
}

/* All of them, and `others` beside: nothing that is not finished. */
static void
expect_answers(const char *folder, uint32_t count, uint32_t others)
{
    for (uint32_t item = 0; item < count; item++) {
        EXPECT(is_answered(folder, item));
    }
    EXPECT(count_entries(folder) == count * (several ? 3 : 1) + others); /* of a pipeline stage_ns is an output, too */
}

/* ---- Jobs ------------------------------------------------------------------------------------- */

static void
add_model(const char *name, uint64_t latency_ns)
{
    char text[512];

    (void)snprintf(text, sizeof(text),
                   "{\"op\":\"model-add\",\"name\":\"%s\",\"backend\":\"synthetic\",\"items_max\":%d,\"input_bytes\":%d,"
                   "\"output_bytes\":%d,\"options\":{\"latency_ns\":%llu,\"payload\":\"copy\"}}",
                   name, ITEMS_MAX, ITEM_BYTES, ITEM_BYTES, (unsigned long long)latency_ns);
    struct leat_session *session = leatd_open_session(asked, 2, 4096);
    json_t *answer = leatd_request(session, text);
    EXPECT(json_object_get(answer, "error") == NULL);
    json_decref(answer);
    leat_close(session);
}

/* Returns the exit code. */
static int
submit(const char *application, const char *input, const char *output)
{
    const char *const arguments[] = {"offline", "submit",       "--application", application,     "--input",
                                     path_of(input), "--output", path_of(output), "--json", NULL};
    return command_run(&command, asked->socket_path, arguments);
}

/* What the last command printed. */
static json_t *
printed(void)
{
    json_t *json = json_loads(command.out, JSON_REJECT_DUPLICATES, NULL);
    EXPECT(json != NULL);
    return json;
}

static uint64_t
printed_id(void)
{
    json_t *job = printed();
    const uint64_t id = leatd_number(job, "id");
    json_decref(job);
    return id;
}

/* `more` and what it takes may be NULL. */
static int
run(const char *what, uint64_t id, const char *more, const char *value)
{
    char number[24];
    const char *const arguments[] = {"offline", what, number, "--json", more, value, NULL};

    (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)id);
    return command_run(&command, asked->socket_path, arguments);
}

static void
expect_text(const char *key, const char *expected)
{
    json_t *job = printed();
    const char *text = json_string_value(json_object_get(job, key));
    if (text == NULL || strstr(text, expected) == NULL) {
        (void)fprintf(stderr, "%s%s", command.out, command.err);
        EXPECT(!"the job shows it");
    }
    json_decref(job);
}

static void
expect_counts(uint64_t items, uint64_t answered, uint64_t failed)
{
    json_t *job = printed();
    EXPECT(leatd_number(job, "items") == items && leatd_number(job, "answered") == answered);
    EXPECT(leatd_number(job, "failed") == failed && leatd_number(job, "in_flight") == 0);
    json_decref(job);
}

static void
expect_refusal(int exit_code, const char *part)
{
    if (command.exit_code != exit_code || strstr(command.err, part) == NULL) {
        (void)fprintf(stderr, "exit code %d: %s%s", command.exit_code, command.out, command.err);
        EXPECT(!"it is refused for that");
    }
}

/* ---- Cases ------------------------------------------------------------------------------------ */

static void
test_items_and_report(void)
{
    char line[512];
    uint32_t lines = 0;

    add_model("copy", 1000000);
    put_items("in", 0, 30);
    fake_root_write(&leatd.root, "/in/bad.raw", "no item has so many bytes");
    EXPECT(symlink("/etc/passwd", path_of("in/away.npy")) == 0);
    EXPECT(submit("copy", "in", "out") == 0);
    const uint64_t id = printed_id();
    EXPECT(id == 1);
    EXPECT(run("show", id, "--wait", NULL) == 1); /* not all of them */
    expect_text("state", "done");
    expect_text("report", "leat-offline-1.failed.jsonl");
    expect_counts(32, 30, 2);
    expect_answers("out", 30, 1);
    FILE *report = fopen(path_of("out/leat-offline-1.failed.jsonl"), "r");
    EXPECT(report != NULL);
    while (fgets(line, sizeof(line), report) != NULL) {
        EXPECT(strstr(line, lines == 0 ? "{\"item\":\"away.npy\",\"error\":\"it is a symbolic link" :
                                         "{\"item\":\"bad.raw\",\"error\":\"it has 25 bytes") == line);
        lines++;
    }
    EXPECT(lines == 2 && fclose(report) == 0);

    /* What failed can be mended: what is answered stays. */
    EXPECT(unlink(path_of("in/away.npy")) == 0 && unlink(path_of("in/bad.raw")) == 0);
    put_items("in", 30, 31);
    EXPECT(run("resume", id, "--wait", NULL) == 0);
    expect_counts(31, 31, 0);
    expect_answers("out", 31, 0);

    EXPECT(submit("nobody", "in", "out2") == 3);
    expect_refusal(3, "there is no application or model 'nobody'");
    EXPECT(access(path_of("out2"), F_OK) != 0); /* nor is its folder there */
    EXPECT(submit("copy", "in", "in") == 3);
    expect_refusal(3, "the output folder must be another");
    const char *const accurate[] = {"offline", "submit", "--application", "copy", "--input", path_of("in"), "--output", path_of("out2"),
                                    "--accuracy-floor", "0.5", NULL};
    EXPECT(command_run(&command, asked->socket_path, accurate) == 3);
    expect_refusal(3, "'copy' has no model that is as accurate as 0.5: none is known to be more than 0");
    EXPECT(mkdir(path_of("pictures"), 0700) == 0);
    fake_root_write(&leatd.root, "/pictures/cat.jpg", "no array");
    EXPECT(submit("copy", "pictures", "out2") == 3);
    expect_refusal(3, "no file whose name ends with .npy or .raw");
    EXPECT(submit("copy", "nowhere", "out2") == 1);
    expect_refusal(1, "cannot open the folder");
    EXPECT(run("show", 99, NULL, NULL) == 3);
    expect_refusal(3, "there is no offline job 99");
    EXPECT(run("cancel", id, NULL, NULL) == 3);
    expect_refusal(3, "has ended");
    EXPECT(run("lose", id, NULL, NULL) == 2);
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    json_t *answer = leatd_request(session, "{\"op\":\"offline-submit\",\"application\":\"copy\",\"input\":\"/\",\"output\":\"/\"}");
    EXPECT(strstr(json_string_value(json_object_get(answer, "error")), "two descriptors") != NULL);
    json_decref(answer);
    leat_close(session);
}

/* Some are answered, and not all were when `interrupt` came: else again with twice as many items. Returns how many there are. */
static uint32_t
interrupt_job(const char *kind, bool (*interrupt)(uint64_t id), char input[32], char output[32], uint64_t *ret_id)
{
    for (uint32_t count = 60;; count *= 2) {
        (void)snprintf(input, 32, "%s-%u", kind, count);
        (void)snprintf(output, 32, "%s-%u-out", kind, count);
        put_items(input, 0, count);
        EXPECT(submit("slow", input, output) == 0);
        *ret_id = printed_id();
        while (!is_answered(output, 3)) {
            leat_test_look_later();
        }
        if (interrupt(*ret_id) && !is_answered(output, count - 1)) {
            return count;
        }
    }
}

static bool
cancel(uint64_t id)
{
    return run("cancel", id, NULL, NULL) == 0;
}

/* Of the files that a job has while it runs none is there. */
static void
expect_no_own_files(const char *output)
{
    DIR *folder = opendir(path_of(output));
    EXPECT(folder != NULL);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        EXPECT(strncmp(entry->d_name, ".leat-offline-", strlen(".leat-offline-")) != 0);
    }
    EXPECT(closedir(folder) == 0);
}

/* Cancelled, it lets go of its folders and stays so; resumed, it goes on; drained and started again, it goes on by itself. */
static void
test_cancel_resume_and_restart(void)
{
    char input[32], output[32];
    uint64_t id;

    add_model("slow", 10000000);
    const uint32_t count = interrupt_job("cancelled", cancel, input, output, &id);
    EXPECT(run("show", id, "--wait", NULL) == 1);
    expect_text("state", "cancelled");
    expect_no_own_files(output);
    leatd_end(&leatd, SIGTERM);
    leatd_start(&leatd, one_worker);
    EXPECT(run("show", id, "--wait", NULL) == 1);
    expect_text("state", "cancelled");
    EXPECT(!is_answered(output, count - 1));

    /* Another folder may have what has the name of what it would make there. */
    char report[64];
    EXPECT(mkdir(path_of("resumed-out"), 0700) == 0);
    (void)snprintf(report, sizeof(report), "/resumed-out/leat-offline-%llu.failed.jsonl", (unsigned long long)id);
    fake_root_write(&leatd.root, report, "of another job");
    do { /* at its start the daemon looks after cancelled jobs */
        EXPECT(run("resume", id, "--output", path_of("resumed-out")) == 3);
    } while (strstr(command.err, "is just ending: try again") != NULL);
    expect_refusal(3, "of another job with the number");
    EXPECT(unlink(path_of(report + 1)) == 0 && run("show", id, NULL, NULL) == 0);
    expect_text("state", "cancelled");

    EXPECT(run("resume", id, NULL, NULL) == 0);
    while (!is_answered(output, count / 2)) {
        leat_test_look_later();
    }
    leatd_end(&leatd, SIGTERM);
    leatd_start(&leatd, one_worker);
    EXPECT(run("show", id, "--wait", NULL) == 0);
    expect_counts(count, count, 0);
    expect_answers(output, count, 0);
}

static char moving[32], moved[64];

/* Its folder goes elsewhere while no daemon runs. */
static bool
kill_and_move(uint64_t id)
{
    (void)id;
    leatd_end(&leatd, SIGKILL);
    (void)snprintf(moved, sizeof(moved), "%s-moved", moving);
    EXPECT(rename(path_of(moving), path_of(moved)) == 0 && mkdir(path_of(moving), 0700) == 0);
    leatd_start(&leatd, one_worker);
    return true;
}

/* A path may lead to another folder after a restart: that is not the client's word. */
static void
test_other_folder(void)
{
    char output[32];
    uint64_t id;

    const uint32_t count = interrupt_job("moving", kill_and_move, moving, output, &id);
    do {
        EXPECT(run("show", id, NULL, NULL) == 0);
    } while (strstr(command.out, "\"trouble\":\"\"") != NULL);
    expect_text("state", "waiting");
    expect_text("trouble", "must give it its folders anew");
    EXPECT(run("resume", id, "--input", path_of(moved)) == 0);
    EXPECT(run("show", id, "--wait", NULL) == 0);
    expect_text("input", moved);
    expect_counts(count, count, 0);
    expect_answers(output, count, 0);
}

static bool
remove_and_add(uint64_t id)
{
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    json_t *answer = leatd_request(session, "{\"op\":\"model-remove\",\"name\":\"slow\"}");
    bool waits, done;

    EXPECT(json_object_get(answer, "error") == NULL);
    json_decref(answer);
    leat_close(session);
    do {
        EXPECT(run("show", id, NULL, NULL) == 0);
        waits = strstr(command.out, "\"trouble\":\"\"") == NULL;
        done = strstr(command.out, "\"state\":\"done\"") != NULL;
    } while (!waits && !done);
    if (waits) {
        expect_text("trouble", "'slow'");
    }
    add_model("slow", 10000000);
    return waits;
}

/* A job whose application goes waits until it is there again. */
static void
test_application_that_goes(void)
{
    char input[32], output[32];
    uint64_t id;

    const uint32_t count = interrupt_job("gone", remove_and_add, input, output, &id);
    EXPECT(run("show", id, "--wait", NULL) == 0);
    expect_counts(count, count, 0);
    EXPECT(strstr(command.out, "\"trouble\":\"\"") != NULL);
    expect_answers(output, count, 0);
}

/* ---- What is whose ---------------------------------------------------------------------------- */

/* As a killed daemon leaves them, of a job. */
static void
leave_unfinished(const char *folder, uint64_t id)
{
    static const char *const names[] = {"answer-0", "answer-191", "report", "probe"};
    char path[128];

    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        (void)snprintf(path, sizeof(path), "/%s/.leat-offline-%llu.%s", folder, (unsigned long long)id, names[n]);
        fake_root_write(&leatd.root, path, "a part of an answer");
    }
}

/* A job that waits for one that is long, and that one. */
static uint64_t
submit_behind(const char *input, const char *output, uint64_t *ret_before)
{
    char long_output[64];

    (void)snprintf(long_output, sizeof(long_output), "%s-before", output);
    put_items("long", 0, 5000); /* of 10 ms each */
    EXPECT(submit("slow", "long", long_output) == 0);
    *ret_before = printed_id();
    EXPECT(submit("copy", input, output) == 0);
    return printed_id();
}

static void
test_cancelled_without_a_run(void)
{
    uint64_t before;

    put_items("kept", 0, 2);
    const uint64_t id = submit_behind("kept", "kept-out", &before);
    leatd_end(&leatd, SIGKILL);
    leave_unfinished("kept-out", id);
    leave_unfinished("kept-out", id + 1); /* of somebody else */
    fake_root_write(&leatd.root, "/kept-out/.leat-offline-notes", "mine");
    fake_root_write(&leatd.root, "/kept-out/00000.npy.part", "mine too");
    leatd_start(&leatd, one_worker);
    EXPECT(count_entries("kept-out") == 10);
    EXPECT(run("cancel", id, NULL, NULL) == 0);
    EXPECT(count_entries("kept-out") == 6);

    leatd_end(&leatd, SIGKILL); /* had it been while it was cancelled, at the next start they would go */
    leave_unfinished("kept-out", id);
    EXPECT(count_entries("kept-out") == 10);
    leatd_start(&leatd, one_worker);
    while (count_entries("kept-out") != 6) {
        leat_test_look_later();
    }
    EXPECT(access(path_of("kept-out/.leat-offline-notes"), F_OK) == 0);

    leatd_end(&leatd, SIGKILL); /* and where they cannot, that is said */
    EXPECT(rename(path_of("kept-out"), path_of("kept-moved")) == 0);
    leatd_start(&leatd, one_worker);
    while (!leatd_logged(&leatd, "is cancelled, and what it had not finished may lie in")) {
        leat_test_look_later();
    }
    EXPECT(run("cancel", before, NULL, NULL) == 0);
}

static void
test_one_folder_for_two(void)
{
    static struct leatd other;
    uint64_t before, id, others_before;

    leatd_init(&other);
    leatd_start(&other, one_worker);
    asked = &other;
    add_model("copy", 1000000);
    add_model("slow", 10000000);
    asked = &leatd;
    put_items("shared", 0, 3);
    id = submit_behind("shared", "shared-out", &before);
    EXPECT(submit("copy", "kept", "shared-out") == 3);
    expect_refusal(3, "answers into that folder");
    asked = &other;
    EXPECT(submit("copy", "shared", "shared-out") == 3);
    expect_refusal(3, "somebody else has the lock on the output folder");

    /* While its daemon does not run, another may have the folder: it waits then. */
    leatd_end(&leatd, SIGKILL);
    EXPECT(submit_behind("shared", "shared-out", &others_before) == 2 && others_before == 1);
    asked = &leatd;
    leatd_start(&leatd, one_worker);
    EXPECT(run("cancel", before, NULL, NULL) == 0);
    do {
        EXPECT(run("show", id, NULL, NULL) == 0);
    } while (strstr(command.out, "\"trouble\":\"\"") != NULL);
    expect_text("trouble", "somebody else has the lock on the output folder");
    expect_text("state", "waiting");
    asked = &other;
    EXPECT(run("cancel", 2, NULL, NULL) == 0);
    asked = &leatd;
    EXPECT(run("show", id, "--wait", NULL) == 0);
    expect_counts(3, 3, 0);
    expect_answers("shared-out", 3, 0);

    /* What has the name of what a new job would make is not its own. */
    asked = &other;
    EXPECT(mkdir(path_of("named-out"), 0700) == 0);
    fake_root_write(&leatd.root, "/named-out/leat-offline-3.failed.jsonl", "of another job 3");
    EXPECT(submit("copy", "shared", "named-out") == 3);
    expect_refusal(3, "leat-offline-3.failed.jsonl, of another job with the number that this one would have");
    EXPECT(count_entries("named-out") == 1 && unlink(path_of("named-out/leat-offline-3.failed.jsonl")) == 0);
    EXPECT(submit("copy", "shared", "named-out") == 0 && printed_id() == 3);
    asked = &leatd;
    leatd_end(&other, SIGKILL);
    leatd_fini(&other);
}

static uint64_t
counter_of(struct leat_session *session, const char *application, const char *key)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}"), *app;
    uint64_t value = UINT64_MAX;
    size_t i;

    json_array_foreach(json_object_get(status, "applications"), i, app) {
        if (strcmp(json_string_value(json_object_get(app, "name")), application) == 0) {
            value = leatd_number(app, key);
        }
    }
    json_decref(status);
    EXPECT(value != UINT64_MAX);
    return value;
}

/* The only one. */
static uint64_t
time_of_worker(struct leat_session *session, const char *name)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}");
    const uint64_t value = leatd_number(json_array_get(json_object_get(status, "workers"), 0), name);
    json_decref(status);
    return value;
}

enum { UNDER_WAY_MAX = 16 };

/* Online queries, some always under way, from a thread of their own. */
struct load {
    pthread_t thread;
    const char *application;
    uint32_t items, under_way; /* of a query; of queries */
    _Atomic uint32_t answered;
    _Atomic bool stop;
};

static void *
keep_busy(void *argument)
{
    struct load *load = argument;
    struct leat_session *session = leatd_open_session(&leatd, UNDER_WAY_MAX, 65536);
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_completion done[UNDER_WAY_MAX];
    struct leat_target target;
    size_t count;

    EXPECT(leat_find(session, load->application, &target) == LEAT_OK);
    query.target = target.id;
    query.items = load->items;
    for (uint32_t t = 0; t < 2; t++) {
        EXPECT(leat_tensor_alloc(session, load->items * ITEM_BYTES, &query.tensors[t]) == LEAT_OK);
    }
    for (;;) { /* all of them may be answered at once */
        while (!load->stop && leat_in_flight(session) < load->under_way) {
            EXPECT(leat_submit(session, &query, NULL) == LEAT_OK);
        }
        if (leat_in_flight(session) == 0) {
            break;
        }
        EXPECT(leat_wait(session, done, load->under_way, UINT64_MAX, &count) == LEAT_OK);
        for (size_t d = 0; d < count; d++) {
            EXPECT(done[d].outcome == LEAT_OUTCOME_OK);
        }
        load->answered += (uint32_t)count;
    }
    leat_close(session);
    return NULL;
}

static void
await_answers(const struct load *load, uint32_t more)
{
    const uint32_t from = load->answered;
    while (load->answered - from < more) {
        leat_test_look_later();
    }
}

static void
test_throttling(void)
{
    enum { COUNT = 8 };
    /* Long ones, a second of them: whoever asks, decides or answers may have no CPU for a while, and the worker is at work all the same. */
    struct load load = {.application = "online", .items = ITEMS_MAX, .under_way = 12};
    char text[64];
    bool held = false;

    add_model("online", 50000000);
    put_items("held", 0, COUNT);
    EXPECT(pthread_create(&load.thread, NULL, keep_busy, &load) == 0);
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    await_answers(&load, 5);
    const uint64_t before = counter_of(session, "copy", "accepted");
    const uint64_t busy_ns = time_of_worker(session, "busy_ns"), offline_ns = time_of_worker(session, "offline_ns");
    EXPECT(submit("copy", "held", "held-out") == 0);
    const uint64_t id = printed_id();
    (void)snprintf(text, sizeof(text), "{\"op\":\"offline-show\",\"id\":%llu}", (unsigned long long)id);
    for (uint32_t look = 0; look < 20 || !held; look++) {
        await_answers(&load, 2); /* a tenth of a second: so often is it decided anew */
        json_t *job = leatd_request(session, text);
        EXPECT(leatd_number(job, "answered") == 0 && leatd_number(job, "in_flight") == 0);
        held = held || (strcmp(json_string_value(json_object_get(job, "held_by")), "utilisation") == 0 &&
                        leatd_number(job, "items") == COUNT);
        json_decref(job);
    }
    EXPECT(run("resume", id, NULL, NULL) == 3);
    expect_refusal(3, "goes on by itself");
    EXPECT(counter_of(session, "copy", "accepted") == before);
    EXPECT(time_of_worker(session, "busy_ns") > busy_ns && time_of_worker(session, "offline_ns") == offline_ns);
    load.stop = true;
    EXPECT(pthread_join(load.thread, NULL) == 0);
    EXPECT(run("show", id, "--wait", NULL) == 0);
    expect_answers("held-out", COUNT, 0);
    EXPECT(time_of_worker(session, "offline_ns") > offline_ns);
    leat_close(session);
}

/* The job is held by latency: it has nothing under way, and items to do; false: it is done. */
static bool
is_held_by_latency(struct leat_session *session, uint64_t id, uint64_t *ret_answered)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "{\"op\":\"offline-show\",\"id\":%llu}", (unsigned long long)id);
    for (bool done = false; !done;) {
        json_t *job = leatd_request(session, text);
        const bool held = strcmp(json_string_value(json_object_get(job, "held_by")), "latency") == 0 &&
                          leatd_number(job, "in_flight") == 0;
        done = strcmp(json_string_value(json_object_get(job, "state")), "done") == 0;
        *ret_answered = leatd_number(job, "answered");
        json_decref(job);
        if (held && !done) {
            return true;
        }
    }
    return false;
}

enum { SLOW_ITEMS = 17 };
static const char add_uneven[] = "{\"op\":\"model-add\",\"name\":\"uneven\",\"backend\":\"synthetic\",\"items_max\":18,"
                                 "\"input_bytes\":16,\"output_bytes\":16,\"options\":{\"points\":["
                                 "{\"items\":16,\"latency_ns\":2000000},{\"items\":17,\"latency_ns\":20000000},"
                                 "{\"items\":18,\"latency_ns\":2000000}]}}";

static void
test_latency(void)
{
    enum { COUNT = 8, TRIES = 20, ANSWERS = 60 };
    static const char yaml[] = "workers: [{count: 4}]\n";
    struct load load = {.application = "uneven", .items = SLOW_ITEMS, .under_way = 1};
    char output[32];
    uint64_t id = 0, answered = 0, later;
    uint32_t job = 0;
    bool held = false;

    leatd_start(&leatd, yaml);
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    json_t *answer = leatd_request(session, add_uneven);
    EXPECT(json_object_get(answer, "error") == NULL);
    json_decref(answer);
    put_items("disturbed", 0, COUNT);
    EXPECT(pthread_create(&load.thread, NULL, keep_busy, &load) == 0);
    while (!held) { /* a verdict takes some batches, and the gauge two looks at them: until then a job is done at once */
        EXPECT(job < TRIES);
        await_answers(&load, ANSWERS);
        (void)snprintf(output, sizeof(output), "disturbed-%u-out", job++);
        EXPECT(submit("copy", "disturbed", output) == 0);
        id = printed_id();
        held = is_held_by_latency(session, id, &answered);
    }
    EXPECT(answered < COUNT);
    await_answers(&load, ANSWERS);
    EXPECT(is_held_by_latency(session, id, &later) && later == answered);
    load.stop = true;
    EXPECT(pthread_join(load.thread, NULL) == 0);
    json_decref(leatd_request(session, "{\"op\":\"model-remove\",\"name\":\"uneven\"}")); /* it would count for 10 s yet */
    EXPECT(run("show", id, "--wait", NULL) == 0);
    expect_answers(output, COUNT, 0);
    leat_close(session);
    leatd_end(&leatd, SIGTERM);
}

static bool
is_interfered(struct leat_session *session)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}");
    const bool interfered = leatd_number(json_object_get(status, "instances"), "interfered") > 0;

    json_decref(status);
    return interfered;
}

/*
 * Two nodes, which tests/virtual_cores/run shows. On the first is a worker that takes longer than it should, and whom it serves alone:
 * jobs go on on the second, also of that application, and nothing offline runs on the first.
 */
static void
test_apart(void)
{
    enum { COUNT = 40, ANSWERS = 5 };
    static const char yaml[] = "dispatcher: {own_core: false}\nworkers: [{count: 1, cpus: \"1\"}, {count: 3, cpus: \"3-5\"}]\n";
    struct load load = {.application = "uneven", .items = SLOW_ITEMS, .under_way = 1};
    static const char *const requests[] = {add_uneven, "{\"op\":\"scale-set\",\"worker\":0,\"application\":\"uneven\"}"};
    static const char *const targets[] = {"copy", "uneven"};
    char output[32];
    uint64_t answered;

    leatd_end(&leatd, SIGTERM);
    leatd_start(&leatd, yaml);
    add_model("copy", 10000000);
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    for (size_t r = 0; r < LEAT_COUNT_OF(requests); r++) {
        json_t *answer = leatd_request(session, requests[r]);
        EXPECT(json_object_get(answer, "error") == NULL);
        json_decref(answer);
    }
    put_items("beside", 0, COUNT);
    EXPECT(pthread_create(&load.thread, NULL, keep_busy, &load) == 0);
    do {
        await_answers(&load, ANSWERS);
    } while (!is_interfered(session));
    for (size_t t = 0; t < LEAT_COUNT_OF(targets); t++) {
        (void)snprintf(output, sizeof(output), "beside-%zu-out", t);
        EXPECT(submit(targets[t], "beside", output) == 0);
        const uint64_t id = printed_id();
        EXPECT(!is_held_by_latency(session, id, &answered) && answered == COUNT && is_interfered(session));
    }
    EXPECT(time_of_worker(session, "offline_ns") == 0);
    expect_answers("beside-0-out", COUNT, 0);
    load.stop = true;
    EXPECT(pthread_join(load.thread, NULL) == 0);
    leat_close(session);
    leatd_end(&leatd, SIGTERM);
}

/* The model `copy` twice, one after the other. */
static void
add_pipeline(struct leat_session *session, const char *name, uint32_t in_flight)
{
    char text[512];

    (void)snprintf(text, sizeof(text),
                   "{\"op\":\"pipeline-add\",\"name\":\"%s\",\"pipeline\":{\"in_flight\":%u,\"items_max\":%d,\"stages\":["
                   "{\"name\":\"a\",\"application\":\"copy\",\"inputs\":{\"input\":\"input.x\"}},"
                   "{\"name\":\"b\",\"application\":\"copy\",\"inputs\":{\"input\":\"a.output\"}}],"
                   "\"outputs\":{\"y\":\"b.output\"}}}",
                   name, in_flight, ITEMS_MAX);
    json_t *answer = leatd_request(session, text);
    EXPECT(json_object_get(answer, "error") == NULL);
    json_decref(answer);
}

static void
remove_pipeline(struct leat_session *session, const char *name)
{
    char text[128];

    (void)snprintf(text, sizeof(text), "{\"op\":\"pipeline-remove\",\"name\":\"%s\"}", name);
    json_t *answer = leatd_request(session, text);
    EXPECT(json_object_get(answer, "error") == NULL);
    json_decref(answer);
}

/* One at a time. */
static void
ask_online(struct leat_session *session, const char *name, uint32_t count)
{
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_completion done;
    struct leat_target target;
    size_t answers;

    EXPECT(leat_find(session, name, &target) == LEAT_OK);
    query.target = target.id;
    for (uint32_t t = 0; t < target.input_count + target.output_count; t++) {
        EXPECT(leat_tensor_alloc(session, target.tensors[t].item_bytes, &query.tensors[t]) == LEAT_OK);
    }
    for (uint32_t q = 0; q < count; q++) {
        EXPECT(leat_submit(session, &query, NULL) == LEAT_OK);
        EXPECT(leat_wait(session, &done, 1, UINT64_MAX, &answers) == LEAT_OK && answers == 1);
        EXPECT(done.outcome == LEAT_OUTCOME_OK);
    }
}

/* Of small items many are under way, though there is one worker: a disk makes many answers durable as quickly as a few. */
static void
test_many_under_way(void)
{
    enum { COUNT = 150, MANY = 100 };
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    uint64_t most = 0;
    bool done = false;
    char text[64];

    put_items("many", 0, COUNT);
    EXPECT(submit("slow", "many", "many-out") == 0);
    (void)snprintf(text, sizeof(text), "{\"op\":\"offline-show\",\"id\":%llu}", (unsigned long long)printed_id());
    while (!done) {
        json_t *job = leatd_request(session, text);
        const uint64_t under_way = leatd_number(job, "in_flight");
        most = under_way > most ? under_way : most;
        done = strcmp(json_string_value(json_object_get(job, "state")), "done") == 0;
        json_decref(job);
    }
    leat_close(session);
    EXPECT(most >= MANY);
    expect_answers("many-out", COUNT, 0);
}

/* However long a disk takes for some answers, others are written, and workers have something to do, until there is no room for more. */
static void
test_written_meanwhile(void)
{
    enum { COUNT = 300, MANY = 150 };
    const char *usual = leatd.program;
    char text[64], fifo[320];

    (void)snprintf(fifo, sizeof(fifo), "%s", path_of("fifo"));
    EXPECT(mkfifo(fifo, 0600) == 0 && setenv("LEAT_TEST_HOLD", fifo, 1) == 0);
    leatd.program = LEATD_KILLED;
    leatd_start(&leatd, one_worker);
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    put_items("meanwhile", 0, COUNT);
    const uint64_t before = counter_of(session, "copy", "ok");
    EXPECT(submit("copy", "meanwhile", "meanwhile-out") == 0);
    const uint64_t id = printed_id();
    (void)snprintf(text, sizeof(text), "{\"op\":\"offline-show\",\"id\":%llu}", (unsigned long long)id);
    while (counter_of(session, "copy", "ok") - before < MANY) {
        leat_test_look_later();
    }
    json_t *job = leatd_request(session, text);
    EXPECT(leatd_number(job, "answered") == 0);
    json_decref(job);
    const int fd = open(fifo, O_WRONLY);
    EXPECT(fd >= 0 && run("show", id, "--wait", NULL) == 0);
    expect_answers("meanwhile-out", COUNT, 0);
    EXPECT(close(fd) == 0 && unsetenv("LEAT_TEST_HOLD") == 0);
    leat_close(session);
    leatd_end(&leatd, SIGTERM);
    leatd.program = usual;
}

/* A pipeline of three inputs: x goes through a slow model, and the boxes that are sure are found, as many as there are. */
static void
add_gathered(void)
{
    static const char pipeline[] =
        "{\"op\":\"pipeline-add\",\"name\":\"gathered\",\"pipeline\":{\"in_flight\":128,\"items_max\":1,\"stages\":["
        "{\"name\":\"a\",\"application\":\"slow\",\"inputs\":{\"input\":\"input.x\"}},"
        "{\"name\":\"b\",\"application\":\"surest\",\"inputs\":{\"boxes\":\"input.boxes\",\"scores\":\"input.scores\"}}],"
        "\"outputs\":{\"y\":\"a.output\",\"found\":\"b.pairs\"}}}";
    struct builder b;
    size_t size;

    builder_init(&b, 13);
    (void)builder_input(&b, "boxes", ONNX_F32, DIMS(-1, PLACES, 4));
    (void)builder_input(&b, "scores", ONNX_F32, DIMS(-1, 1, PLACES));
    (void)builder_constant(&b, "most", 7, (const int64_t[]){PLACES}, DIMS(1));
    (void)builder_constant(&b, "overlap", ONNX_F32, (const float[]){0.5f}, DIMS(1));
    (void)builder_constant(&b, "least", ONNX_F32, (const float[]){0.5f}, DIMS(1));
    (void)builder_node(&b, "NonMaxSuppression", "boxes scores most overlap least", "pairs");
    builder_output(&b, "pairs");
    const void *bytes = builder_pack(&b, &size);
    FILE *file = fopen(path_of("surest.onnx"), "wb");
    EXPECT(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    builder_fini(&b);
    command_expect(&command, asked->socket_path, 0, "added surest",
                   (const char *const[]){"model", "add", "surest", path_of("surest.onnx"), NULL});
    struct leat_session *session = leatd_open_session(asked, 2, 4096);
    json_t *answer = leatd_request(session, pipeline);
    if (json_object_get(answer, "error") != NULL) {
        (void)fprintf(stderr, "%s\n", json_string_value(json_object_get(answer, "error")));
        EXPECT(!"the pipeline is added");
    }
    json_decref(answer);
    leat_close(session);
}

/* A file that is missing, or named for no input, costs that item; it can be mended. */
static void
test_items_of_several_files(void)
{
    enum { COUNT = 40 };
    static const char *const errors[] = {
        "{\"item\":\"00001.npy\",\"error\":\"00001.boxes.npy: there is no such file, for input 'boxes'\"}\n",
        "{\"item\":\"alone.npy\",\"error\":\"alone.",
    };
    char line[512], report[64];
    uint32_t lines = 0;

    several = true;
    put_items("parts", 0, COUNT);
    EXPECT(unlink(part_path("parts", 1, "boxes")) == 0);
    fake_root_write(&leatd.root, "/parts/alone.npy", "of no input");
    EXPECT(submit("gathered", "parts", "parts-out") == 0);
    const uint64_t id = printed_id();
    EXPECT(run("show", id, "--wait", NULL) == 1);
    expect_counts(COUNT + 1, COUNT - 1, 2);
    (void)snprintf(report, sizeof(report), "parts-out/leat-offline-%llu.failed.jsonl", (unsigned long long)id);
    FILE *file = fopen(path_of(report), "r");
    EXPECT(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        EXPECT(lines < 2 && strstr(line, errors[lines]) == line);
        lines++;
    }
    EXPECT(lines == 2 && fclose(file) == 0);
    put_items("parts", 1, 2);
    EXPECT(unlink(path_of("parts/alone.npy")) == 0);
    EXPECT(run("resume", id, "--wait", NULL) == 0);
    expect_counts(COUNT, COUNT, 0);
    expect_answers("parts-out", COUNT, 0);
    several = false;
}

/* Two runs at a time are a job's, of eight that it would have, and two are left for others. */
static void
test_pipeline(void)
{
    enum { COUNT = 200, ONLINE = 20 };
    struct leat_session *session = leatd_open_session(&leatd, 2, 65536);

    add_pipeline(session, "twice", 4);
    put_items("chained", 0, COUNT);
    EXPECT(submit("twice", "chained", "chained-out") == 0);
    const uint64_t id = printed_id();
    while (count_entries("chained-out") == 0) {
        leat_test_look_later();
    }
    ask_online(session, "twice", ONLINE);
    EXPECT(run("show", id, "--wait", NULL) == 0);
    expect_counts(COUNT, COUNT, 0);
    EXPECT(count_entries("chained-out") == 2 * COUNT); /* stage_ns is an output, too */
    json_t *pipeline = leatd_request(session, "{\"op\":\"pipeline-show\",\"name\":\"twice\"}");
    EXPECT(leatd_number(pipeline, "rejected") == 0 && leatd_number(pipeline, "ok") >= COUNT + ONLINE);
    json_decref(pipeline);
    remove_pipeline(session, "twice");

    add_pipeline(session, "single", 1);
    EXPECT(submit("single", "chained", "out2") == 3);
    expect_refusal(3, "pipeline 'single' answers one query at a time");
    ask_online(session, "single", 1);
    remove_pipeline(session, "single");
    leat_close(session);
}

/* From a place in the list on, as where it comes in parts. */
static void
test_list_from(void)
{
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    json_t *all = leatd_request(session, "{\"op\":\"offline-list\"}"), *jobs = json_object_get(all, "jobs");
    const size_t count = json_array_size(jobs);

    EXPECT(count > 1);
    for (size_t from = 0; from <= count; from++) {
        char request[64];
        (void)snprintf(request, sizeof(request), "{\"op\":\"offline-list\",\"from\":%zu}", from);
        json_t *answer = leatd_request(session, request), *part = json_object_get(answer, "jobs");
        EXPECT(json_array_size(part) == count - from && json_object_get(answer, "next") == NULL);
        EXPECT(from == count || leatd_number(json_array_get(part, 0), "id") == leatd_number(json_array_get(jobs, from), "id"));
        json_decref(answer);
    }
    json_decref(all);
    leat_close(session);
}

static void
test_death_at_every_step(const char *application, const char *input, uint32_t count)
{
    char step_text[16], output[32], report[96], bad[64];
    bool died = true;
    unsigned step;
    uint64_t id;
    const char *plain = leatd.program;

    put_items(input, 0, count);
    (void)snprintf(bad, sizeof(bad), "/%s/bad.raw", input);
    fake_root_write(&leatd.root, bad, "17 bytes are odd.");
    EXPECT(setenv("LEAT_TEST_KILL_ARM", path_of("arm"), 1) == 0);
    for (step = 1; died; step++) {
        (void)snprintf(step_text, sizeof(step_text), "%u", step);
        (void)snprintf(output, sizeof(output), "%s-out-%u", input, step);
        EXPECT(setenv("LEAT_TEST_KILL_STEP", step_text, 1) == 0);
        leatd.program = LEATD_KILLED;
        leatd_start(&leatd, one_worker);
        fake_root_write(&leatd.root, "/arm", "");
        const bool acknowledged = submit(application, input, output) == 0;
        id = acknowledged ? printed_id() : 0;
        if (acknowledged) {
            EXPECT(run("show", id, "--wait", NULL) == 1);
            died = command.out[0] == '\0';
        }
        leatd_end(&leatd, SIGKILL);
        EXPECT(unlink(path_of("arm")) == 0);
        for (uint32_t item = 0; item < count; item++) {
            (void)is_answered(output, item); /* whole, if it is there */
        }
        leatd.program = plain;
        leatd_start(&leatd, one_worker);
        if (!acknowledged) { /* it may be there all the same */
            if (submit(application, input, output) == 0) {
                id = printed_id();
            } else {
                expect_refusal(3, "answers into that folder");
                id = strtoull(strstr(command.err, "offline job ") + strlen("offline job "), NULL, 10);
            }
        }
        EXPECT(run("show", id, "--wait", NULL) == 1);
        expect_counts(count + 1, count, 1);
        (void)snprintf(report, sizeof(report), "%s/leat-offline-%llu.failed.jsonl", output, (unsigned long long)id);
        EXPECT(access(path_of(report), F_OK) == 0);
        const uint32_t others = count_entries(output) - count * (several ? 3 : 1);
        EXPECT(others == 1 || (!acknowledged && others == 2)); /* a report of each job */
        expect_answers(output, count, others);
        leatd_end(&leatd, SIGTERM);
    }
    EXPECT(step > 30);
}

/* ---- Kills at any moment ---------------------------------------------------------------------- */

enum { KILLED_ITEMS = 480, KILLS = 10, KILLS_OF_SEVERAL = 4, UNDER_WAY = 30, LOOKS_MAX = 20 };

static const char many_workers[] = "workers: [{count: 3}]\n";

struct seen {
    uint64_t inode;
    struct timespec written;
};

/* Returns how many there are. */
static uint32_t
look_at_answers(const char *folder, struct seen *seen)
{
    struct stat info;
    uint32_t answered = 0;

    for (uint32_t item = 0; item < KILLED_ITEMS; item++) {
        if (!is_answered(folder, item)) {
            EXPECT(seen[item].inode == 0); /* what was there stays */
            continue;
        }
        EXPECT(stat(item_path(folder, item), &info) == 0);
        if (seen[item].inode == 0) {
            seen[item] = (struct seen){.inode = info.st_ino, .written = info.st_mtim};
        }
        EXPECT(seen[item].inode == info.st_ino && seen[item].written.tv_sec == info.st_mtim.tv_sec &&
               seen[item].written.tv_nsec == info.st_mtim.tv_nsec);
        answered++;
    }
    return answered;
}

/* Until there are so many answers and so many items are under way, and so many looks longer; or until it is done. */
static void
await_items(uint64_t id, uint64_t answered, uint64_t looks)
{
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    bool begun = false, done = false;
    char text[64];

    (void)snprintf(text, sizeof(text), "{\"op\":\"offline-show\",\"id\":%llu}", (unsigned long long)id);
    for (uint64_t look = 0; !done && (!begun || look < looks); look += begun) {
        json_t *job = leatd_request(session, text);
        begun = begun || (leatd_number(job, "answered") >= answered && leatd_number(job, "in_flight") >= UNDER_WAY);
        done = strcmp(json_string_value(json_object_get(job, "state")), "done") == 0;
        json_decref(job);
    }
    leat_close(session);
}

/* One job after the other, each killed until it is done, until as many kills as are wanted had left items to do. */
static void
test_kills_at_any_moment(const char *application, const char *input, uint32_t wanted)
{
    uint64_t random = leat_test_seed;
    char output[32];

    put_items(input, 0, KILLED_ITEMS);
    leatd_start(&leatd, many_workers);
    for (uint32_t job = 0, kills = 0; kills < wanted; job++) {
        static struct seen seen[KILLED_ITEMS];
        uint32_t answered = 0;
        memset(seen, 0, sizeof(seen));
        (void)snprintf(output, sizeof(output), "%s-%u-out", input, job);
        EXPECT(submit(application, input, output) == 0);
        const uint64_t id = printed_id();
        while (answered < KILLED_ITEMS && kills < wanted) {
            const uint64_t more = leat_test_random(&random) % (KILLED_ITEMS / wanted);
            await_items(id, answered + more, leat_test_random(&random) % LOOKS_MAX);
            leatd_end(&leatd, SIGKILL);
            answered = look_at_answers(output, seen);
            kills += answered < KILLED_ITEMS;
            leatd_start(&leatd, many_workers);
        }
        EXPECT(run("show", id, "--wait", NULL) == 0);
        expect_counts(KILLED_ITEMS, KILLED_ITEMS, 0);
        EXPECT(look_at_answers(output, seen) == KILLED_ITEMS);
        expect_answers(output, KILLED_ITEMS, 0);
    }
    leatd_end(&leatd, SIGTERM);
}

static void
test_jobs(void)
{
    test_items_and_report();
    test_cancel_resume_and_restart();
    test_other_folder();
    test_application_that_goes();
    test_cancelled_without_a_run();
    test_one_folder_for_two();
    test_throttling();
    test_pipeline();
    test_many_under_way();
    add_gathered();
    test_items_of_several_files();
    test_list_from();
    leatd_end(&leatd, SIGTERM);
    test_written_meanwhile();
    test_latency();
}

static void
test_kills(void)
{
    add_model("copy", 1000000);
    add_model("slow", 10000000);
    add_gathered();
    leatd_end(&leatd, SIGTERM);
    test_death_at_every_step("copy", "short", 2);
    test_kills_at_any_moment("slow", "killed", KILLS);
    several = true;
    test_death_at_every_step("gathered", "short-parts", 1);
    test_kills_at_any_moment("gathered", "killed-parts", KILLS_OF_SEVERAL);
}

int
main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";

    leat_test_init();
    leatd_init(&leatd);
    leatd_start(&leatd, one_worker);
    (strcmp(what, "kills") == 0 ? test_kills : strcmp(what, "apart") == 0 ? test_apart : test_jobs)();
    leatd_fini(&leatd);
    return 0;
}
