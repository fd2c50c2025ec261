/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Of an offline job's folders: items are those files, in order, that have no answer yet; one that cannot be asked is an
 *          error that says why, whatever it is; an answer is there whole or not at all, whenever the process dies, all its outputs
 *          of one run, and what was there stays; nothing is opened for an owner that is not its own. Items of several inputs
 *          are groups of files, and what lacks one is told; an output that varies is as long as it is.
 * Method   A folder with one item of each kind; a child that is killed before and after each step of an answer, and of a report.
 *          Other owners only where the test is root. Syncs that come together: the first waits for the second.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/align.h"
#include "base/npy.h"
#include "runtime/offline_files.h"
#include "runtime/registry.h"
#include "tests/runtime/fake_root.h"

enum { ITEMS_MAX = 3, DIM = 4 };

static struct fake_root root;
static struct leat_offline_folders folders;
static unsigned kill_at;

static const struct leat_target target = {
    .items_max = ITEMS_MAX,
    .input_count = 1,
    .output_count = 2,
    .tensors = {{.name = "x", .dtype = LEAT_DTYPE_F32, .rank = 2, .dims = {1, DIM}, .item_bytes = DIM * 4},
                {.name = "y", .dtype = LEAT_DTYPE_I32, .rank = 2, .dims = {1, DIM}, .item_bytes = DIM * 4},
                {.name = "z/0", .dtype = LEAT_DTYPE_U8, .rank = 1, .dims = {1}, .item_bytes = 1}},
};

#define ROOM (void *const[]){room}

static const struct leat_completion none; /* no output of the target varies */

static void
path_of(const char *folder, const char *name, char path[512])
{
    (void)snprintf(path, 512, "%s/%s/%s", root.path, folder, name);
}

static void
put_array(const char *name, uint32_t dtype, int64_t items, int64_t dim)
{
    char path[512];
    struct npy_array array = {
        .dtype = dtype, .rank = 2, .dims = {items, dim}, .elements = (uint64_t)(items * dim), .data = calloc(1, 4096)};

    EXPECT(array.data != NULL);
    memset(array.data, name[0], 4096);
    path_of("in", name, path);
    EXPECT(npy_write(path, &array) == LEAT_OK);
    npy_free(&array);
}

static void
put_bytes(const char *name, const char *bytes)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "/in/%s", name);
    fake_root_write(&root, path, bytes);
}

/* Of what the folder holds, but for itself and the one above. */
static uint32_t
count_entries(const char *folder)
{
    char path[512];
    uint32_t count = 0;

    path_of(folder, "", path);
    DIR *open_folder = opendir(path);
    EXPECT(open_folder != NULL);
    for (const struct dirent *entry; (entry = readdir(open_folder)) != NULL;) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    EXPECT(closedir(open_folder) == 0);
    return count;
}

static void
start(void)
{
    char path[512];

    fake_root_init(&root);
    path_of("in", "", path);
    EXPECT(mkdir(path, 0700) == 0);
    EXPECT(leat_offline_folder_open(path, geteuid(), &folders.input) == LEAT_OK);
    path_of("out", "", path);
    EXPECT(mkdir(path, 0700) == 0);
    EXPECT(leat_offline_folder_open(path, geteuid(), &folders.output) == LEAT_OK);
    folders.owner = geteuid();
    folders.job = 7;
}

static void
stop(void)
{
    leat_offline_folder_close(&folders.input);
    leat_offline_folder_close(&folders.output);
    fake_root_fini(&root);
}

static void
expect_error(const char *name, enum leat_status expected, const char *part)
{
    unsigned char room[ITEMS_MAX * DIM * 4];
    uint32_t items;

    EXPECT(leat_offline_read(&folders, name, &target, ROOM, &items) == expected);
    if (strstr(leat_error_text(), part) == NULL) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
        EXPECT(!"the error says what is wrong");
    }
}

static void
test_items(void)
{
    static const char *const expected[] = {"a.npy", "b.npy", "c.raw", "device.npy", "few.npy",  "gone.npy",
                                           "link.npy", "many.npy", "no.npy", "none.npy", "odd.raw", "pipe.raw",
                                           "shape.npy", "type.npy"};
    unsigned char room[ITEMS_MAX * DIM * 4];
    struct leat_offline_items items;
    char path[512], other[512];
    uint32_t count = 0;

    start();
    put_array("b.npy", LEAT_DTYPE_F32, 3, DIM);
    put_array("a.npy", LEAT_DTYPE_F32, 1, DIM);
    put_bytes("c.raw", "0123456789abcdef0123456789abcdef");
    put_array("many.npy", LEAT_DTYPE_F32, 4, DIM);
    put_array("none.npy", LEAT_DTYPE_F32, 0, DIM);
    put_array("shape.npy", LEAT_DTYPE_F32, 1, DIM + 1);
    put_array("type.npy", LEAT_DTYPE_I32, 1, DIM);
    put_bytes("no.npy", "this is no array");
    put_bytes("odd.raw", "17 bytes are odd.");
    put_array("few.npy", LEAT_DTYPE_F32, 2, DIM);
    path_of("in", "few.npy", path);
    EXPECT(truncate(path, 150) == 0);
    put_array("gone.npy", LEAT_DTYPE_F32, 1, DIM);
    path_of("in", "link.npy", path);
    path_of("in", "a.npy", other);
    EXPECT(symlink(other, path) == 0);
    path_of("in", "pipe.raw", path);
    EXPECT(mkfifo(path, 0600) == 0);
    path_of("in", "device.npy", path);
    EXPECT(mkdir(path, 0700) == 0);
    put_bytes("notes.txt", "not an item");
    put_bytes(".hidden.npy", "nor this");
    put_bytes(".npy", "nor this");

    EXPECT(leat_offline_list(&folders, &target, &items) == LEAT_OK);
    EXPECT(items.count == LEAT_COUNT_OF(expected) && items.answered == 0);
    for (uint32_t i = 0; i < items.count; i++) {
        EXPECT(strcmp(items.names[i], expected[i]) == 0);
    }
    leat_offline_free_items(&items);
    path_of("in", "gone.npy", path);
    EXPECT(unlink(path) == 0);

    EXPECT(leat_offline_read(&folders, "b.npy", &target, ROOM, &count) == LEAT_OK && count == 3);
    for (size_t i = 0; i < sizeof(room); i++) {
        EXPECT(room[i] == 'b');
    }
    EXPECT(leat_offline_read(&folders, "c.raw", &target, ROOM, &count) == LEAT_OK && count == 2);
    EXPECT(memcmp(room, "0123456789abcdef0123456789abcdef", 32) == 0);
    expect_error("many.npy", LEAT_ERR_LIMIT, "holds 4 items, and a query takes 1 to 3");
    expect_error("none.npy", LEAT_ERR_LIMIT, "holds 0 items");
    expect_error("shape.npy", LEAT_ERR_SHAPE, "holds f32[1,5], but input 'x' needs f32[N,4]");
    expect_error("type.npy", LEAT_ERR_SHAPE, "holds i32[1,4]");
    expect_error("no.npy", LEAT_ERR_PROTO, "no .npy file");
    expect_error("odd.raw", LEAT_ERR_SHAPE, "has 17 bytes, and an item of input 'x' 16");
    expect_error("few.npy", LEAT_ERR_PROTO, "fewer than the 32 bytes");
    expect_error("gone.npy", LEAT_ERR_NOT_FOUND, "gone");
    expect_error("link.npy", LEAT_ERR_ACCESS, "symbolic link");
    expect_error("pipe.raw", LEAT_ERR_INVALID, "no regular file"); /* which nobody writes to: it does not wait */
    expect_error("device.npy", LEAT_ERR_INVALID, "no regular file");
    stop();
}

/* Whoever gave the wrong folder hears of it; what has been answered is no wrong one. */
static void
test_no_items(void)
{
    start();
    EXPECT(leat_offline_check_items(&folders) == LEAT_ERR_INVALID);
    put_bytes("notes.txt", "not an item");
    put_bytes("cat.npy.part", "nor this");
    put_bytes(".hidden.npy", "nor this");
    EXPECT(leat_offline_check_items(&folders) == LEAT_ERR_INVALID);
    EXPECT(strstr(leat_error_text(), "no file whose name ends with .npy or .raw") != NULL);
    put_bytes("odd.raw", "17 bytes are odd.");
    EXPECT(leat_offline_check_items(&folders) == LEAT_OK && leat_offline_check_items(&folders) == LEAT_OK);
    stop();
}

static int32_t numbers[ITEMS_MAX][DIM];
static uint8_t letters[ITEMS_MAX];
static void *const outputs[] = {numbers, letters};

static void
check_answer(const char *name, uint32_t items)
{
    struct npy_array array;
    char path[512], output[64];

    (void)snprintf(output, sizeof(output), "%s.0.npy", name);
    path_of("out", output, path);
    EXPECT(npy_read(path, &array) == LEAT_OK && array.dtype == LEAT_DTYPE_I32 && array.rank == 2);
    EXPECT(array.dims[0] == items && array.dims[1] == DIM && memcmp(array.data, numbers, items * DIM * 4) == 0);
    npy_free(&array);
    (void)snprintf(output, sizeof(output), "%s.1.npy", name);
    path_of("out", output, path);
    EXPECT(npy_read(path, &array) == LEAT_OK && array.dtype == LEAT_DTYPE_U8 && array.rank == 1);
    EXPECT(array.dims[0] == items && memcmp(array.data, letters, items) == 0);
    npy_free(&array);
}

static void
put_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    EXPECT(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* What the first run answers, and what another does. */
static void
fill(uint32_t run)
{
    for (uint32_t i = 0; i < ITEMS_MAX * DIM; i++) {
        numbers[i / DIM][i % DIM] = (int32_t)(i * 1000 + run);
    }
    for (uint32_t i = 0; i < ITEMS_MAX; i++) {
        letters[i] = (uint8_t)('p' + i + 5 * run);
    }
}

static enum leat_status
answer(const char *name, uint32_t items)
{
    struct leat_offline_answer made;
    uint32_t finished;

    enum leat_status status = leat_offline_write(&folders, 0, name, &target, items, &none, outputs, &made);
    if (status == LEAT_OK) {
        status = leat_offline_finish(&folders, &target, &made, 1, &finished);
        EXPECT(finished == (status == LEAT_OK));
    }
    return status;
}

/* Of two outputs each has two bytes more in its name than the item has. */
static void
test_long_names(void)
{
    unsigned char room[ITEMS_MAX * DIM * 4];
    char name[NAME_MAX + 1];
    uint32_t count = 0;

    start();
    const long most = fpathconf(folders.output.fd, _PC_NAME_MAX);
    EXPECT(most > 8 && most <= NAME_MAX);
    for (size_t length = (size_t)most - 3; length <= (size_t)most; length++) {
        memset(name, 'n', length);
        (void)strcpy(&name[length - 4], ".npy");
        put_array(name, LEAT_DTYPE_F32, 1, DIM);
        if (length <= (size_t)most - 2) {
            EXPECT(leat_offline_read(&folders, name, &target, ROOM, &count) == LEAT_OK && count == 1);
            EXPECT(answer(name, 1) == LEAT_OK);
        } else {
            expect_error(name, LEAT_ERR_LIMIT, "give it a shorter name");
        }
    }
    stop();
}

/* Somebody else answers between the two outputs of ours. */
static void
answer_meanwhile(unsigned step)
{
    char path[512];

    (void)step;
    path_of("out", "m.1.npy", path);
    if (access(path, F_OK) == 0) {
        path_of("out", "m.0.npy", path);
        put_file(path, "THEIRS");
        leat_registry_step_hook = NULL;
    }
}

static void
test_answered_meanwhile(void)
{
    char path[512];
    struct stat info;

    start();
    fill(1);
    leat_registry_step_hook = answer_meanwhile;
    EXPECT(answer("m.npy", 2) == LEAT_OK && leat_registry_step_hook == NULL);
    path_of("out", "m.0.npy", path);
    EXPECT(stat(path, &info) == 0 && info.st_size == 6 && count_entries("out") == 2);
    stop();
}

/* Of two answers one cannot be made durable: it has no name, and the other does. */
static void
test_sync_that_fails(void)
{
    struct leat_offline_answer made[2];
    uint32_t finished;

    start();
    fill(1);
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT(leat_offline_write(&folders, i, i == 0 ? "s.npy" : "t.npy", &target, 2, &none, outputs, &made[i]) == LEAT_OK);
    }
    EXPECT(fclose(made[0].files[1]) == 0);
    made[0].files[1] = fopen("/dev/null", "wb"); /* which has nothing that could be synced */
    EXPECT(made[0].files[1] != NULL);
    EXPECT(leat_offline_finish(&folders, &target, made, 2, &finished) == LEAT_ERR_SYS && finished == 1);
    check_answer("t", 2);
    leat_offline_clear(&folders);
    EXPECT(count_entries("out") == 2);
    stop();
}

static pthread_mutex_t meeting = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t met = PTHREAD_COND_INITIALIZER;
static unsigned came;

static void
meet_at_step(unsigned step)
{
    enum { SECONDS_MAX = 20 };
    struct timespec until;

    (void)step;
    EXPECT(clock_gettime(CLOCK_REALTIME, &until) == 0 && pthread_mutex_lock(&meeting) == 0);
    until.tv_sec += SECONDS_MAX;
    came++;
    EXPECT(pthread_cond_broadcast(&met) == 0);
    while (came < 2) {
        EXPECT(pthread_cond_timedwait(&met, &meeting, &until) == 0);
    }
    EXPECT(pthread_mutex_unlock(&meeting) == 0);
}

static void
test_syncs_together(void)
{
    struct leat_offline_answer made[2];
    uint32_t finished;

    start();
    fill(1);
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT(leat_offline_write(&folders, i, i == 0 ? "s.npy" : "t.npy", &target, 2, &none, outputs, &made[i]) == LEAT_OK);
    }
    leat_registry_step_hook = meet_at_step;
    EXPECT(leat_offline_finish(&folders, &target, made, 2, &finished) == LEAT_OK && finished == 2);
    leat_registry_step_hook = NULL;
    check_answer("s", 2);
    check_answer("t", 2);
    stop();
}

static void
test_answers(void)
{
    struct leat_offline_items items;
    char path[512], victim[512];
    struct stat info;

    start();
    EXPECT(leat_offline_probe(&folders) == LEAT_OK && count_entries("out") == 0);
    fill(1);
    put_array("a.npy", LEAT_DTYPE_F32, 1, DIM);
    put_array("b.npy", LEAT_DTYPE_F32, 2, DIM);
    EXPECT(answer("b.npy", 2) == LEAT_OK);
    check_answer("b", 2);
    EXPECT(answer("r.raw", 3) == LEAT_OK);
    path_of("out", "r.0.raw", path);
    EXPECT(stat(path, &info) == 0 && info.st_size == ITEMS_MAX * DIM * 4);
    EXPECT(leat_offline_list(&folders, &target, &items) == LEAT_OK);
    EXPECT(items.count == 1 && items.answered == 1 && strcmp(items.names[0], "a.npy") == 0);
    leat_offline_free_items(&items);

    /* What is there stays, and what somebody else linked to the name that we write under is not written to. */
    fill(2);
    EXPECT(answer("b.npy", 1) == LEAT_OK);
    fill(1);
    check_answer("b", 2);
    path_of("in", "a.npy", victim);
    path_of("out", "a.1.npy", path); /* without the first output it is nobody's answer */
    put_file(path, "OLD!");
    path_of("out", ".leat-offline-7.answer-1", path);
    EXPECT(link(victim, path) == 0 && stat(victim, &info) == 0);
    const off_t size = info.st_size;
    EXPECT(answer("a.npy", 1) == LEAT_OK);
    EXPECT(stat(victim, &info) == 0 && info.st_size == size && info.st_nlink == 1);
    EXPECT(count_entries("out") == 6);
    check_answer("a", 1);
    stop();
}

/* ---- Several inputs, and outputs that vary ---------------------------------------------------- */

enum { ROWS = 2, MOST = 3, WIDE = 2 };

/* The first output has for each item two rows of up to three pairs. */
static const struct leat_target pair = {
    .items_max = ITEMS_MAX,
    .input_count = 2,
    .output_count = 1,
    .tensors = {{.name = "in/k.x", .dtype = LEAT_DTYPE_F32, .rank = 2, .dims = {1, DIM}, .item_bytes = DIM * 4},
                {.name = "x", .dtype = LEAT_DTYPE_I32, .rank = 2, .dims = {1, DIM}, .item_bytes = DIM * 4},
                {.name = "y", .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {1, DIM}, .item_bytes = DIM}},
};
static const struct leat_target ragged = {
    .items_max = ITEMS_MAX,
    .input_count = 1,
    .output_count = 2,
    .tensors = {{.name = "x", .dtype = LEAT_DTYPE_F32, .rank = 2, .dims = {1, DIM}, .item_bytes = DIM * 4},
                {.name = "found", .dtype = LEAT_DTYPE_U8, .rank = 4, .dims = {1, ROWS, MOST, WIDE}, .item_bytes = ROWS * MOST * WIDE,
                 .varying = 2},
                {.name = "many", .dtype = LEAT_DTYPE_I32, .rank = 2, .dims = {1, MOST}, .item_bytes = 4 * MOST, .varying = 1}},
};

static void
expect_pair_error(const char *name, enum leat_status expected, const char *part)
{
    unsigned char rooms[2][ITEMS_MAX * DIM * 4];
    uint32_t items;

    EXPECT(leat_offline_read(&folders, name, &pair, (void *const[]){rooms[0], rooms[1]}, &items) == expected);
    EXPECT(strstr(leat_error_text(), part) == leat_error_text());
}

static void
test_several_inputs(void)
{
    static const char *const expected[] = {"b.npy", "c.npy", "d.npy", "d.raw", "e.npy", "f.npy"};
    unsigned char rooms[2][ITEMS_MAX * DIM * 4];
    struct leat_offline_items items;
    char path[512];
    uint32_t count = 0;

    start();
    put_array("a.in_k.x.npy", LEAT_DTYPE_F32, 1, DIM);
    put_array("a.x.npy", LEAT_DTYPE_I32, 1, DIM);
    path_of("out", "a.npy", path);
    put_file(path, "answered");
    put_array("b.x.npy", LEAT_DTYPE_I32, 2, DIM);
    put_array("b.in_k.x.npy", LEAT_DTYPE_F32, 2, DIM);
    put_array("c.in_k.x.npy", LEAT_DTYPE_F32, 2, DIM);
    put_array("c.x.npy", LEAT_DTYPE_I32, 1, DIM);
    put_array("d.in_k.x.npy", LEAT_DTYPE_F32, 1, DIM);
    put_bytes("d.x.raw", "0123456789abcdef");
    put_array("e.npy", LEAT_DTYPE_F32, 1, DIM);
    put_array("f.in_k.x.npy", LEAT_DTYPE_I32, 1, DIM);
    put_array("f.x.npy", LEAT_DTYPE_I32, 1, DIM);
    EXPECT(leat_offline_list(&folders, &pair, &items) == LEAT_OK);
    EXPECT(items.count == LEAT_COUNT_OF(expected) && items.answered == 1);
    for (uint32_t i = 0; i < items.count; i++) {
        EXPECT(strcmp(items.names[i], expected[i]) == 0);
    }
    leat_offline_free_items(&items);
    EXPECT(leat_offline_read(&folders, "b.npy", &pair, (void *const[]){rooms[0], rooms[1]}, &count) == LEAT_OK && count == 2);
    for (size_t i = 0; i < 2 * DIM * 4; i++) {
        EXPECT(rooms[0][i] == 'b' && rooms[1][i] == 'b');
    }
    expect_pair_error("c.npy", LEAT_ERR_SHAPE, "c.x.npy: it holds 1 items, and those of other inputs 2");
    expect_pair_error("d.npy", LEAT_ERR_NOT_FOUND, "d.x.npy: there is no such file, for input 'x'");
    expect_pair_error("d.raw", LEAT_ERR_NOT_FOUND, "d.in_k.x.raw: there is no such file, for input 'in/k.x'");
    expect_pair_error("e.npy", LEAT_ERR_NOT_FOUND, "e.in_k.x.npy: there is no such file");
    expect_pair_error("f.npy", LEAT_ERR_SHAPE, "f.in_k.x.npy: it holds i32[1,4], but input 'in/k.x' needs f32[N,4]");
    stop();
}

static void
test_outputs_that_vary(void)
{
    unsigned char room[ITEMS_MAX * DIM * 4], found[ROWS * MOST * WIDE], read[64];
    struct leat_offline_answer made;
    struct npy_array array;
    int32_t many[MOST];
    uint32_t count;
    char path[512];

    start();
    put_array("two.npy", LEAT_DTYPE_F32, 2, DIM);
    EXPECT(leat_offline_check_target(&ragged) == LEAT_OK);
    EXPECT(leat_offline_read(&folders, "two.npy", &ragged, ROOM, &count) == LEAT_ERR_LIMIT);
    EXPECT(strstr(leat_error_text(), "holds 2 items, and the size of output 'found' varies") != NULL);
    for (uint16_t size = 0; size <= MOST; size++) {
        for (uint32_t raw = 0; raw < 2; raw++) {
            const struct leat_completion done = {.sizes = {size, (uint16_t)(MOST - size)}};
            char name[32], output[32];
            for (uint32_t i = 0; i < sizeof(found); i++) {
                found[i] = (uint8_t)(i + 1);
            }
            for (int32_t i = 0; i < MOST; i++) {
                many[i] = 100 + i;
            }
            (void)snprintf(name, sizeof(name), "%u.%s", size, raw ? "raw" : "npy");
            EXPECT(leat_offline_write(&folders, 0, name, &ragged, 1, &done, (void *const[]){found, many}, &made) == LEAT_OK);
            EXPECT(leat_offline_finish(&folders, &ragged, &made, 1, &count) == LEAT_OK && count == 1);
            (void)snprintf(output, sizeof(output), "%u.0.%s", size, raw ? "raw" : "npy");
            path_of("out", output, path);
            if (raw) {
                FILE *file = fopen(path, "rb");
                EXPECT(file != NULL && fread(read, 1, sizeof(read), file) == (size_t)ROWS * size * WIDE && fclose(file) == 0);
            } else {
                EXPECT(npy_read(path, &array) == LEAT_OK && array.rank == 4 && array.dims[0] == 1 && array.dims[1] == ROWS);
                EXPECT(array.dims[2] == size && array.dims[3] == WIDE);
                memcpy(read, array.data, (size_t)ROWS * size * WIDE);
                npy_free(&array);
            }
            for (uint32_t i = 0; i < ROWS * size * WIDE; i++) {
                EXPECT(read[i] == i / (size * WIDE) * MOST * WIDE + i % (size * WIDE) + 1);
            }
            (void)snprintf(output, sizeof(output), "%u.1.npy", size);
            path_of("out", output, path);
            if (!raw) {
                EXPECT(npy_read(path, &array) == LEAT_OK && array.rank == 2 && array.dims[0] == 1 && array.dims[1] == MOST - size);
                EXPECT(memcmp(array.data, (const int32_t[]){100, 101, 102}, 4 * (size_t)(MOST - size)) == 0);
                npy_free(&array);
            }
        }
    }
    stop();
}

static void
die_at_step(unsigned step)
{
    if (step == kill_at) {
        (void)raise(SIGKILL);
    }
}

static bool
exists(const char *name)
{
    char path[512];
    path_of("out", name, path);
    return access(path, F_OK) == 0;
}

/* Two answers that are made durable together. */
static enum leat_status
answer_and_report(void)
{
    struct leat_offline_answer answers[2] = {0};
    uint32_t finished = 0;
    FILE *report = NULL;

    leat_offline_clear(&folders);
    enum leat_status status = leat_offline_report_begin(&folders, &report);
    for (uint32_t i = 0; i < 2 && status == LEAT_OK; i++) {
        status = leat_offline_write(&folders, i, i == 0 ? "a.npy" : "c.npy", &target, 2, &none, outputs, &answers[i]);
    }
    if (status == LEAT_OK) {
        status = leat_offline_finish(&folders, &target, answers, 2, &finished);
        EXPECT(status != LEAT_OK || finished == 2);
    }
    if (status == LEAT_OK) {
        status = leat_offline_report_add(report, "b\".npy", "it is \"bad\"");
    }
    return status == LEAT_OK ? leat_offline_report_end(&folders, report, true) : status;
}

static void
test_death_at_every_step(void)
{
    static const char line[] = "{\"item\":\"b\\\".npy\",\"error\":\"it is \\\"bad\\\"\"}\n";
    char path[512], text[256];
    int ended = -1;
    unsigned step;

    for (step = 1; !WIFEXITED(ended); step++) {
        start();
        path_of("out", "a.1.npy", path);
        put_file(path, "OLD!");
        fill(1);
        const pid_t child = fork();
        EXPECT(child >= 0);
        if (child == 0) {
            kill_at = step;
            leat_registry_step_hook = die_at_step;
            _exit(answer_and_report() == LEAT_OK ? 0 : 1);
        }
        EXPECT(waitpid(child, &ended, 0) == child);
        EXPECT(WIFEXITED(ended) ? WEXITSTATUS(ended) == 0 : WTERMSIG(ended) == SIGKILL);
        const bool answered[2] = {exists("a.0.npy"), exists("c.0.npy")};
        EXPECT(answered[0] || !answered[1]);
        for (uint32_t i = 0; i < 2; i++) {
            if (answered[i]) {
                check_answer(i == 0 ? "a" : "c", 2);
            }
        }
        fill(2);
        EXPECT(answer_and_report() == LEAT_OK);
        for (uint32_t i = 0; i < 2; i++) {
            fill(answered[i] ? 1 : 2);
            check_answer(i == 0 ? "a" : "c", 2);
        }
        EXPECT(count_entries("out") == 5); /* the answers' two each, the report, and nothing that was left */
        path_of("out", "leat-offline-7.failed.jsonl", path);
        FILE *report = fopen(path, "r");
        EXPECT(report != NULL);
        const size_t got = fread(text, 1, sizeof(text) - 1, report);
        EXPECT(got == strlen(line) && memcmp(text, line, got) == 0 && fclose(report) == 0);
        FILE *again = NULL;
        EXPECT(leat_offline_report_begin(&folders, &again) == LEAT_OK);
        EXPECT(leat_offline_report_end(&folders, again, false) == LEAT_OK && count_entries("out") == 4);
        stop();
    }
    EXPECT(step > 25);
}

static void
test_owners(void)
{
    enum { OTHER = 54321, ANOTHER = 54322 };
    unsigned char room[ITEMS_MAX * DIM * 4];
    struct leat_offline_folder folder;
    char path[512], linked[512];
    uint32_t items;

    if (geteuid() != 0) {
        (void)printf("not root: other owners are not tested\n");
        return;
    }
    start();
    path_of("in", "", path);
    EXPECT(leat_offline_folder_open(path, OTHER, &folder) == LEAT_ERR_ACCESS);
    EXPECT(strstr(leat_error_text(), "belongs to user 0") != NULL);
    EXPECT(leat_offline_folder_take(folders.input.fd, OTHER, &folder) == LEAT_ERR_ACCESS);
    EXPECT(chown(path, OTHER, (gid_t)-1) == 0);
    EXPECT(leat_offline_folder_take(folders.input.fd, OTHER, &folder) == LEAT_OK);
    EXPECT(folder.device == folders.input.device && folder.inode == folders.input.inode);
    leat_offline_folder_close(&folder);
    EXPECT(leat_offline_folder_open("/proc/none", OTHER, &folder) == LEAT_ERR_SYS);

    folders.owner = OTHER;
    put_array("a.npy", LEAT_DTYPE_F32, 1, DIM);
    put_array("b.npy", LEAT_DTYPE_F32, 1, DIM);
    path_of("in", "a.npy", path);
    EXPECT(chown(path, OTHER, (gid_t)-1) == 0);
    EXPECT(leat_offline_read(&folders, "a.npy", &target, ROOM, &items) == LEAT_OK);
    path_of("in", "b.npy", path);
    EXPECT(chown(path, ANOTHER, (gid_t)-1) == 0);
    path_of("in", "c.npy", linked);
    EXPECT(link(path, linked) == 0);
    expect_error("b.npy", LEAT_ERR_ACCESS, "belongs to user 54322, the job to user 54321");
    expect_error("c.npy", LEAT_ERR_ACCESS, "belongs to user 54322");
    EXPECT(answer("a.npy", 1) == LEAT_OK);
    struct stat info;
    path_of("out", "a.0.npy", path);
    EXPECT(stat(path, &info) == 0 && info.st_uid == OTHER);
    stop();
}

static void
test_targets(void)
{
    struct leat_target other = target;

    EXPECT(leat_offline_check_target(&target) == LEAT_OK);
    other.input_count = 2;
    other.output_count = 1;
    (void)strcpy(other.tensors[0].name, "a/b");
    (void)strcpy(other.tensors[1].name, "a/c");
    EXPECT(leat_offline_check_target(&other) == LEAT_OK);
    (void)strcpy(other.tensors[1].name, "a_b");
    EXPECT(leat_offline_check_target(&other) == LEAT_ERR_UNSUPPORTED);
    EXPECT(strstr(leat_error_text(), "inputs 'a/b' and 'a_b' would have files of one name, a_b") != NULL);
    other = target;
    other.tensors[0].dtype = LEAT_DTYPE_BF16;
    EXPECT(leat_offline_check_target(&other) == LEAT_ERR_UNSUPPORTED && strstr(leat_error_text(), "bf16") != NULL);
}

int
main(void)
{
    leat_test_init();
    test_targets();
    test_items();
    test_no_items();
    test_several_inputs();
    test_outputs_that_vary();
    test_long_names();
    test_answers();
    test_death_at_every_step();
    test_answered_meanwhile(); /* behind what counts steps from the first, as all that follow */
    test_sync_that_fails();
    test_syncs_together();
    test_owners();
    return 0;
}
