/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/offline_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/npy.h"
#include "runtime/json_text.h"
#include "runtime/registry_files.h"

enum { SYNCS_MAX = 16 }; /* at a time */

struct name {
    char text[NAME_MAX + LEAT_TENSOR_NAME_MAX + 32];
};

/* ---- Folders ---------------------------------------------------------------------------------- */

/* The daemon can do whatever these can: nothing is opened for them that they could not open. */
static bool
is_trusted(uid_t owner)
{
    return owner == 0 || owner == geteuid();
}

/* Takes the descriptor over; -1: errno says why there is none. */
static enum leat_status
check_folder(int fd, const char *what, uid_t owner, struct leat_offline_folder *ret_folder)
{
    struct stat info;

    if (fd < 0 || fstat(fd, &info) != 0) {
        const enum leat_status status = LEAT_FAIL(LEAT_ERR_SYS, "cannot open %s (the daemon's user must be let in)", what);
        if (fd >= 0) {
            (void)close(fd);
        }
        return status;
    }
    if (!is_trusted(owner) && info.st_uid != owner) {
        (void)close(fd);
        return LEAT_FAIL(LEAT_ERR_ACCESS, "%s belongs to user %u: offline jobs of user %u are for folders of its own", what,
                         (unsigned)info.st_uid, (unsigned)owner);
    }
    *ret_folder = (struct leat_offline_folder){.fd = fd, .device = info.st_dev, .inode = info.st_ino};
    return LEAT_OK;
}

enum leat_status
leat_offline_folder_take(int fd, uid_t owner, struct leat_offline_folder *ret_folder)
{
    /* Opened anew: what we do to it does not move the client's place in it. */
    return check_folder(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "the folder", owner, ret_folder);
}

enum leat_status
leat_offline_folder_open(const char *path, uid_t owner, struct leat_offline_folder *ret_folder)
{
    return check_folder(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), path, owner, ret_folder);
}

void
leat_offline_folder_close(struct leat_offline_folder *folder)
{
    if (folder->fd >= 0) {
        (void)close(folder->fd);
        folder->fd = -1;
    }
}

enum leat_status
leat_offline_folder_lock(const struct leat_offline_folder *folder)
{
    if (flock(folder->fd, LOCK_EX | LOCK_NB) == 0) {
        return LEAT_OK;
    }
    return errno == EWOULDBLOCK
               ? LEAT_FAIL(LEAT_ERR_BUSY, "somebody else has the lock on the output folder, as offline jobs of another daemon "
                                          "have: wait until that has ended, or use another folder")
               : LEAT_FAIL(LEAT_ERR_SYS, "cannot lock the output folder");
}

/* What is being written. */
static struct name
unfinished(const struct leat_offline_folders *folders, const char *what)
{
    struct name name;
    (void)snprintf(name.text, sizeof(name.text), ".leat-offline-%llu.%s", (unsigned long long)folders->job, what);
    return name;
}

/* What a killed daemon left is removed, never written to: it may be a link to something else by now. */
static enum leat_status
create(const struct leat_offline_folders *folders, const char *name, FILE **ret_file)
{
    const int folder = folders->output.fd, flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;

    leat_registry_step();
    int fd = openat(folder, name, flags, 0644);
    if (fd < 0 && errno == EEXIST) {
        leat_registry_step();
        (void)unlinkat(folder, name, 0);
        leat_registry_step();
        fd = openat(folder, name, flags, 0644);
    }
    leat_registry_step();
    FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (file == NULL) {
        const enum leat_status status = LEAT_FAIL(
            LEAT_ERR_SYS, "cannot write to the output folder (the daemon, as user %u, needs write permission)", (unsigned)geteuid());
        if (fd >= 0) {
            (void)close(fd);
        }
        return status;
    }
    if (geteuid() == 0 && folders->owner != 0 && fchown(fd, folders->owner, (gid_t)-1) != 0) {
        const enum leat_status status = LEAT_FAIL(LEAT_ERR_SYS, "cannot give a file to user %u", (unsigned)folders->owner);
        (void)fclose(file);
        return status;
    }
    *ret_file = file;
    return LEAT_OK;
}

/* One of LEAT_OFFLINE_FILES_MAX. */
static struct name
unfinished_file(const struct leat_offline_folders *folders, uint32_t number)
{
    char what[32];

    (void)snprintf(what, sizeof(what), "answer-%u", number);
    return unfinished(folders, what);
}

static struct name
unfinished_answer(const struct leat_offline_folders *folders, const struct leat_target *target, uint32_t place, uint32_t output)
{
    return unfinished_file(folders, place * target->output_count + output);
}

static struct name
report_name(const struct leat_offline_folders *folders)
{
    struct name name;
    (void)snprintf(name.text, sizeof(name.text), "leat-offline-%llu.failed.jsonl", (unsigned long long)folders->job);
    return name;
}

static bool
is_there(const struct leat_offline_folders *folders, const struct name *name)
{
    struct stat info;
    return fstatat(folders->output.fd, name->text, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

static enum leat_status
check_name(const struct leat_offline_folders *folders, const struct name *name)
{
    return !is_there(folders, name)
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_EXISTS, "the output folder has a file %s, of another job with the number that this one would "
                                            "have: move that away, or use another folder",
                           name->text);
}

enum leat_status
leat_offline_check_names(const struct leat_offline_folders *folders)
{
    struct name name = report_name(folders);

    enum leat_status status = check_name(folders, &name);
    if (status == LEAT_OK) {
        name = unfinished(folders, "report");
        status = check_name(folders, &name);
    }
    for (uint32_t i = 0; i < LEAT_OFFLINE_FILES_MAX && status == LEAT_OK; i++) {
        name = unfinished_file(folders, i);
        status = check_name(folders, &name);
    }
    return status;
}

/* Closes the file in any case. */
static enum leat_status
settle(FILE *file, enum leat_status status)
{
    leat_registry_step();
    if (status == LEAT_OK && (fflush(file) != 0 || fsync(fileno(file)) != 0)) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot write to the output folder");
    }
    leat_registry_step();
    (void)fclose(file); /* on failure the first error is told */
    return status;
}

enum leat_status
leat_offline_probe(const struct leat_offline_folders *folders)
{
    const struct name name = unfinished(folders, "probe");
    FILE *file;

    const enum leat_status status = create(folders, name.text, &file);
    if (status == LEAT_OK) {
        (void)fclose(file);
        (void)unlinkat(folders->output.fd, name.text, 0);
    }
    return status;
}

/* ---- Items ------------------------------------------------------------------------------------ */

/* Of an input in the names of files. */
static struct name
input_name(const struct leat_target *target, uint32_t input)
{
    struct name name;

    (void)snprintf(name.text, sizeof(name.text), "%s", target->tensors[input].name);
    for (char *at = name.text; (at = strchr(at, '/')) != NULL;) {
        *at = '_';
    }
    return name;
}

enum leat_status
leat_offline_check_target(const struct leat_target *target)
{
    for (uint32_t a = 1; a < target->input_count; a++) {
        for (uint32_t b = 0; b < a; b++) {
            const struct name name = input_name(target, a);
            if (strcmp(name.text, input_name(target, b).text) == 0) {
                return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "its inputs '%s' and '%s' would have files of one name, %s",
                                 target->tensors[b].name, target->tensors[a].name, name.text);
            }
        }
    }
    for (uint32_t t = 0; t < target->input_count + target->output_count; t++) {
        if (target->tensors[t].dtype == LEAT_DTYPE_BF16) {
            return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "its tensor '%s' is bf16, which .npy files have no name for",
                             target->tensors[t].name);
        }
    }
    return LEAT_OK;
}

/* NULL: it is no item. */
static const char *
ending_of(const char *name)
{
    const size_t length = strlen(name);
    const char *end = length > 4 ? name + length - 4 : "";
    return name[0] != '.' && (strcmp(end, ".npy") == 0 || strcmp(end, ".raw") == 0) ? end : NULL;
}

static bool
is_array(const char *name)
{
    return strcmp(ending_of(name), ".npy") == 0;
}

static struct name
answer_name(const char *name, const struct leat_target *target, uint32_t output)
{
    const char *ending = ending_of(name);
    struct name answer;

    if (target->output_count == 1) {
        (void)snprintf(answer.text, sizeof(answer.text), "%s", name);
    } else {
        (void)snprintf(answer.text, sizeof(answer.text), "%.*s.%u%s", (int)(ending - name), name, output, ending);
    }
    return answer;
}

/* Of an item's several files; of one input it is the item. */
static struct name
file_name(const char *item, const struct leat_target *target, uint32_t input)
{
    const char *ending = ending_of(item);
    struct name file;

    if (target->input_count == 1) {
        (void)snprintf(file.text, sizeof(file.text), "%s", item);
    } else {
        (void)snprintf(file.text, sizeof(file.text), "%.*s.%s%s", (int)(ending - item), item, input_name(target, input).text, ending);
    }
    return file;
}

/* Whose file it is, by the longest name of an input that it has; where it has none it is an item that lacks its files. */
static struct name
item_of(const char *file, const struct leat_target *target)
{
    const char *ending = ending_of(file);
    size_t own = 0;
    struct name item;

    for (uint32_t i = 0; i < target->input_count && target->input_count > 1; i++) {
        const struct name input = input_name(target, i);
        const size_t length = strlen(input.text);
        const char *begin = (size_t)(ending - file) > length + 1 ? ending - length : file;
        if (begin != file && begin[-1] == '.' && memcmp(begin, input.text, length) == 0 && length + 1 > own) {
            own = length + 1;
        }
    }
    (void)snprintf(item.text, sizeof(item.text), "%.*s%s", (int)((size_t)(ending - file) - own), file, ending);
    return item;
}

static bool
is_answered(const struct leat_offline_folders *folders, const struct leat_target *target, const char *name)
{
    const struct name answer = answer_name(name, target, 0);
    return is_there(folders, &answer);
}

/* Of several outputs the last has a name as long as any. */
static enum leat_status
check_length(const struct leat_offline_folders *folders, const struct leat_target *target, const char *name)
{
    const struct name answer = answer_name(name, target, target->output_count - 1);
    const long most = fpathconf(folders->output.fd, _PC_NAME_MAX); /* -1: there is no limit */
    const size_t length = strlen(answer.text);

    return most < 0 || length <= (size_t)most
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_LIMIT,
                           "its answer's name would have %zu bytes, and in the output folder %ld are the limit: give it a "
                           "shorter name",
                           length, most);
}

static int
compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum leat_status
add_name(struct leat_offline_items *items, uint32_t *room, const char *name)
{
    if (items->count == LEAT_OFFLINE_ITEMS_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "the input folder has more than %u files of items: use several folders", LEAT_OFFLINE_ITEMS_MAX);
    }
    if (items->count == *room) {
        const uint32_t more = *room > 0 ? 2 * *room : 64;
        char **names = reallocarray(items->names, more, sizeof(*names));
        if (names == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the names of %u items", more);
        }
        items->names = names;
        *room = more;
    }
    items->names[items->count] = strdup(name);
    if (items->names[items->count] == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for an item's name");
    }
    items->count++;
    return LEAT_OK;
}

/* From its beginning; NULL with an error. */
static DIR *
read_input_folder(const struct leat_offline_folders *folders)
{
    const int fd = openat(folders->input.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;

    if (folder == NULL) {
        (void)LEAT_FAIL(LEAT_ERR_SYS, "cannot read the input folder");
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    return folder;
}

enum leat_status
leat_offline_check_items(const struct leat_offline_folders *folders)
{
    DIR *folder = read_input_folder(folders);
    const struct dirent *entry;

    if (folder == NULL) {
        return LEAT_ERR_SYS;
    }
    do {
        errno = 0;
        entry = readdir(folder);
    } while (entry != NULL && ending_of(entry->d_name) == NULL);
    const enum leat_status status =
        entry != NULL ? LEAT_OK
        : errno != 0  ? LEAT_FAIL(LEAT_ERR_SYS, "cannot read the input folder")
                      : LEAT_FAIL(LEAT_ERR_INVALID,
                                  "the input folder has no file whose name ends with .npy or .raw, which are the items of "
                                  "a job: give it another folder, or put them there first");
    (void)closedir(folder);
    return status;
}

/* In order, each once though it has several files, and only those without an answer. */
static void
keep_unanswered(const struct leat_offline_folders *folders, const struct leat_target *target, struct leat_offline_items *items)
{
    const uint32_t count = items->count;

    if (count > 0) {
        qsort(items->names, count, sizeof(*items->names), compare_names);
    }
    items->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        char *name = items->names[i];
        const bool comes_again = i + 1 < count && strcmp(name, items->names[i + 1]) == 0;
        const bool answered = !comes_again && is_answered(folders, target, name);
        if (comes_again || answered) {
            free(name);
        } else {
            items->names[items->count++] = name;
        }
        items->answered += answered;
    }
}

enum leat_status
leat_offline_list(const struct leat_offline_folders *folders, const struct leat_target *target,
                  struct leat_offline_items *ret_items)
{
    struct leat_offline_items items = {0};
    enum leat_status status = LEAT_OK;
    uint32_t room = 0;
    DIR *folder = read_input_folder(folders);

    if (folder == NULL) {
        return LEAT_ERR_SYS;
    }
    errno = 0;
    for (const struct dirent *entry; status == LEAT_OK && (entry = readdir(folder)) != NULL; errno = 0) {
        if (ending_of(entry->d_name) != NULL) {
            status = add_name(&items, &room, item_of(entry->d_name, target).text);
        }
    }
    if (status == LEAT_OK && errno != 0) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot read the input folder");
    }
    (void)closedir(folder);
    if (status != LEAT_OK) {
        leat_offline_free_items(&items);
        return status;
    }
    keep_unanswered(folders, target, &items);
    *ret_items = items;
    return LEAT_OK;
}

void
leat_offline_free_items(struct leat_offline_items *items)
{
    for (uint32_t i = 0; i < items->count; i++) {
        free(items->names[i]);
    }
    free(items->names);
    *items = (struct leat_offline_items){0};
}

/* An array has one size for all of its items. */
static enum leat_status
check_items(uint64_t items, const struct leat_target *target)
{
    for (uint32_t t = target->input_count; t < target->input_count + target->output_count && items > 1; t++) {
        if (target->tensors[t].varying != 0) {
            return LEAT_FAIL(LEAT_ERR_LIMIT, "it holds %llu items, and the size of output '%s' varies from item to item: split it",
                             (unsigned long long)items, target->tensors[t].name);
        }
    }
    return items >= 1 && items <= target->items_max
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_LIMIT, "it holds %llu items, and a query takes 1 to %u: split it", (unsigned long long)items,
                           target->items_max);
}

static enum leat_status
read_array(FILE *file, const struct leat_target *target, uint32_t input, void *to, uint32_t *ret_items)
{
    const struct leat_tensor_info *info = &target->tensors[input];
    struct npy_array array;
    int64_t dims[LEAT_RANK_MAX];

    enum leat_status status = npy_read_header(file, &array);
    if (status != LEAT_OK) {
        return status;
    }
    if (!npy_holds_items(&array, info)) {
        memcpy(dims, info->dims, sizeof(dims));
        dims[0] = -1;
        return LEAT_FAIL(LEAT_ERR_SHAPE, "it holds %s, but input '%s' needs %s", npy_shape(array.dtype, array.dims, array.rank).text,
                         info->name, npy_shape(info->dtype, dims, info->rank).text);
    }
    status = check_items((uint64_t)array.dims[0], target);
    if (status == LEAT_OK) {
        status = npy_read_data(file, &array);
    }
    if (status == LEAT_OK) {
        *ret_items = (uint32_t)array.dims[0];
        memcpy(to, array.data, *ret_items * info->item_bytes);
        npy_free(&array);
    }
    return status;
}

static enum leat_status
read_raw(FILE *file, uint64_t bytes, const struct leat_target *target, uint32_t input, void *to, uint32_t *ret_items)
{
    const struct leat_tensor_info *info = &target->tensors[input];

    if (bytes % info->item_bytes != 0) {
        return LEAT_FAIL(LEAT_ERR_SHAPE, "it has %llu bytes, and an item of input '%s' %llu", (unsigned long long)bytes, info->name,
                         (unsigned long long)info->item_bytes);
    }
    const enum leat_status status = check_items(bytes / info->item_bytes, target);
    if (status != LEAT_OK) {
        return status;
    }
    if (fread(to, 1, bytes, file) != bytes) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "it was cut short while it was read");
    }
    *ret_items = (uint32_t)(bytes / info->item_bytes);
    return LEAT_OK;
}

static enum leat_status
read_file(const struct leat_offline_folders *folders, const char *name, const struct leat_target *target, uint32_t input, void *to,
          uint32_t *ret_items)
{
    struct stat info;
    enum leat_status status = LEAT_OK;
    const int fd = openat(folders->input.fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &info) != 0) {
        status = errno == ELOOP    ? LEAT_FAIL(LEAT_ERR_ACCESS, "it is a symbolic link, which is not followed")
                 : errno != ENOENT ? LEAT_FAIL(LEAT_ERR_SYS, "it cannot be opened by the daemon, user %u", (unsigned)geteuid())
                 : target->input_count == 1
                     ? LEAT_FAIL(LEAT_ERR_NOT_FOUND, "it has gone")
                     : LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no such file, for input '%s'", target->tensors[input].name);
    } else if (!S_ISREG(info.st_mode)) {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "it is no regular file");
    } else if (!is_trusted(folders->owner) && info.st_uid != folders->owner) {
        status = LEAT_FAIL(LEAT_ERR_ACCESS, "it belongs to user %u, the job to user %u", (unsigned)info.st_uid,
                           (unsigned)folders->owner);
    } else {
        FILE *file = fdopen(fd, "rb");
        if (file == NULL) {
            status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to read it");
        } else {
            status = is_array(name) ? read_array(file, target, input, to, ret_items)
                                    : read_raw(file, (uint64_t)info.st_size, target, input, to, ret_items);
            (void)fclose(file);
            return status;
        }
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return status;
}

enum leat_status
leat_offline_read(const struct leat_offline_folders *folders, const char *name, const struct leat_target *target,
                  void *const *inputs, uint32_t *ret_items)
{
    uint32_t items = 0;
    enum leat_status status = check_length(folders, target, name);

    for (uint32_t i = 0; i < target->input_count && status == LEAT_OK; i++) {
        const struct name file = file_name(name, target, i);
        status = read_file(folders, file.text, target, i, inputs[i], &items);
        if (status == LEAT_OK && i > 0 && items != *ret_items) {
            status = LEAT_FAIL(LEAT_ERR_SHAPE, "it holds %u items, and those of other inputs %u", items, *ret_items);
        }
        if (status != LEAT_OK && target->input_count > 1) {
            status = leat_err_prefix(status, "%s", file.text);
        }
        *ret_items = items;
    }
    return status;
}

/* ---- Answers ---------------------------------------------------------------------------------- */

/* An item has `size` of its dimension that varies, in each row of those before it: what it has comes together. Returns its bytes. */
static size_t
close_up(const struct leat_tensor_info *info, uint32_t size, unsigned char *data)
{
    size_t rows = 1;

    LEAT_ASSERT(size <= (uint64_t)info->dims[info->varying]);
    for (uint32_t d = 1; d < info->varying; d++) {
        rows *= (size_t)info->dims[d];
    }
    const size_t room = info->item_bytes / rows, used = room / (size_t)info->dims[info->varying] * size;
    for (size_t r = 1; r < rows; r++) {
        memmove(data + r * used, data + r * room, used);
    }
    return rows * used;
}

/* `size`: of the dimension that varies, if one does, of the one item. */
static enum leat_status
put_output(FILE *file, bool as_array, const struct leat_tensor_info *info, uint32_t items, uint32_t size, void *data)
{
    const size_t bytes = info->varying != 0 ? close_up(info, size, data) : items * info->item_bytes;
    struct npy_array array = {
        .dtype = info->dtype, .rank = info->rank, .elements = bytes / leat_dtype_bytes(info->dtype), .data = data};

    if (as_array) {
        memcpy(array.dims, info->dims, sizeof(array.dims));
        array.dims[0] = items;
        if (info->varying != 0) {
            array.dims[info->varying] = size;
        }
        return npy_write_file(file, &array);
    }
    return fwrite(data, 1, bytes, file) == bytes ? LEAT_OK : LEAT_FAIL(LEAT_ERR_SYS, "cannot write %zu bytes", bytes);
}

void
leat_offline_clear(const struct leat_offline_folders *folders)
{
    for (uint32_t i = 0; i < LEAT_OFFLINE_FILES_MAX; i++) {
        (void)unlinkat(folders->output.fd, unfinished_file(folders, i).text, 0);
    }
    (void)unlinkat(folders->output.fd, unfinished(folders, "report").text, 0);
    (void)unlinkat(folders->output.fd, unfinished(folders, "probe").text, 0);
}

static void
close_files(struct leat_offline_answer *answer)
{
    for (uint32_t o = 0; o < answer->output_count; o++) {
        if (answer->files[o] != NULL) {
            (void)fclose(answer->files[o]);
        }
    }
    *answer = (struct leat_offline_answer){0};
}

enum leat_status
leat_offline_write(const struct leat_offline_folders *folders, uint32_t place, const char *name, const struct leat_target *target,
                   uint32_t items, const struct leat_completion *done, void *const *outputs, struct leat_offline_answer *ret_answer)
{
    struct leat_offline_answer answer = {.name = name, .place = place, .output_count = target->output_count};
    enum leat_status status = LEAT_OK;

    for (uint32_t o = 0; o < target->output_count && status == LEAT_OK; o++) {
        status = create(folders, unfinished_answer(folders, target, place, o).text, &answer.files[o]);
        if (status == LEAT_OK) {
            const uint32_t t = target->input_count + o;
            status = put_output(answer.files[o], is_array(name), &target->tensors[t], items, leat_output_size(target, done, t, 0),
                                outputs[o]);
        }
        if (status == LEAT_OK && fflush(answer.files[o]) != 0) {
            status = LEAT_FAIL(LEAT_ERR_SYS, "cannot write to the output folder");
        }
    }
    if (status != LEAT_OK) {
        close_files(&answer);
        return status;
    }
    *ret_answer = answer;
    return LEAT_OK;
}

/* The first output makes the answer, and one that is there stays. Others that are there without it are of who died. */
static enum leat_status
name_answer(const struct leat_offline_folders *folders, uint32_t place, const struct leat_target *target, const char *name)
{
    const int folder = folders->output.fd;
    /* By another job, meanwhile: its outputs stay together. A single one the rename asks itself. */
    const bool there = target->output_count > 1 && is_answered(folders, target, name);

    for (uint32_t o = target->output_count; o-- > 0;) {
        const struct name made = unfinished_answer(folders, target, place, o), final = answer_name(name, target, o);
        if (there) {
            (void)unlinkat(folder, made.text, 0);
        } else if (renameat2(folder, made.text, folder, final.text, o == 0 ? RENAME_NOREPLACE : 0) == 0) {
            leat_registry_step();
        } else if (o == 0 && errno == EEXIST) {
            (void)unlinkat(folder, made.text, 0);
        } else {
            return LEAT_FAIL(LEAT_ERR_SYS, "cannot rename an answer to %s in the output folder", final.text);
        }
    }
    return LEAT_OK;
}

/* What several threads make durable; each takes the next. */
struct syncing {
    struct leat_offline_answer *answers;
    uint32_t count;
    _Atomic uint32_t next;
};

static void *
sync_answers(void *argument)
{
    struct syncing *syncing = argument;
    uint32_t place;

    while ((place = atomic_fetch_add_explicit(&syncing->next, 1, memory_order_relaxed)) < syncing->count) {
        struct leat_offline_answer *answer = &syncing->answers[place];
        for (uint32_t o = 0; o < answer->output_count && answer->error == 0; o++) {
            leat_registry_step();
            answer->error = fsync(fileno(answer->files[o])) == 0 ? 0 : errno;
            leat_registry_step();
        }
    }
    return NULL;
}

/*
 * A sync that comes alone has a commit of the file system, or at the least a flush of the disk, for itself; those that come while
 * one is under way share the next. Threads that cannot be started are missed by nobody but the clock.
 */
static void
sync_together(struct leat_offline_answer *answers, uint32_t count)
{
    struct syncing syncing = {.answers = answers, .count = count};
    pthread_t threads[SYNCS_MAX - 1];
    uint32_t started = 0;

    for (uint32_t a = 0; a < count; a++) { /* all of them are on their way before the first waits for its own */
        for (uint32_t o = 0; o < answers[a].output_count; o++) {
            (void)sync_file_range(fileno(answers[a].files[o]), 0, 0, SYNC_FILE_RANGE_WRITE);
        }
    }
    while (started < SYNCS_MAX - 1 && started + 1 < count &&
           pthread_create(&threads[started], NULL, sync_answers, &syncing) == 0) {
        started++;
    }
    (void)sync_answers(&syncing);
    while (started > 0) {
        LEAT_MUST(pthread_join(threads[--started], NULL) == 0);
    }
}

enum leat_status
leat_offline_finish(const struct leat_offline_folders *folders, const struct leat_target *target, struct leat_offline_answer *answers,
                    uint32_t count, uint32_t *ret_finished)
{
    enum leat_status status = LEAT_OK;

    *ret_finished = 0;
    sync_together(answers, count);
    for (uint32_t a = 0; a < count; a++) {
        errno = answers[a].error;
        enum leat_status settled =
            errno == 0 ? LEAT_OK : LEAT_FAIL(LEAT_ERR_SYS, "cannot write to the output folder");
        if (settled == LEAT_OK) {
            settled = name_answer(folders, answers[a].place, target, answers[a].name);
        }
        close_files(&answers[a]);
        *ret_finished += settled == LEAT_OK;
        status = status == LEAT_OK ? settled : status;
    }
    return status;
}

/* ---- Report ----------------------------------------------------------------------------------- */

enum leat_status
leat_offline_report_begin(const struct leat_offline_folders *folders, FILE **ret_report)
{
    return create(folders, unfinished(folders, "report").text, ret_report);
}

enum leat_status
leat_offline_report_add(FILE *report, const char *name, const char *error)
{
    json_t *line = json_pack("{s:o, s:o}", "item", leat_json_text(name), "error", leat_json_text(error));

    const bool added = line != NULL && json_dumpf(line, report, JSON_COMPACT) == 0 && fputc('\n', report) != EOF;
    json_decref(line);
    return added ? LEAT_OK : LEAT_FAIL(LEAT_ERR_SYS, "cannot write the report");
}

enum leat_status
leat_offline_report_end(const struct leat_offline_folders *folders, FILE *report, bool any)
{
    const struct name made = unfinished(folders, "report"), final = report_name(folders);
    const int folder = folders->output.fd;

    const enum leat_status status = settle(report, LEAT_OK);
    if (status != LEAT_OK) {
        return status;
    }
    if (any && renameat(folder, made.text, folder, final.text) != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot rename the report");
    }
    if (!any) {
        (void)unlinkat(folder, made.text, 0);
        (void)unlinkat(folder, final.text, 0); /* of a run before */
    }
    leat_registry_step();
    return fsync(folder) == 0 ? LEAT_OK : LEAT_FAIL(LEAT_ERR_SYS, "cannot sync the output folder");
}

void
leat_offline_report_drop(const struct leat_offline_folders *folders, FILE *report)
{
    if (report != NULL) {
        (void)fclose(report);
        (void)unlinkat(folders->output.fd, unfinished(folders, "report").text, 0);
    }
}
