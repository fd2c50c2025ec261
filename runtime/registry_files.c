/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/registry_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/registry.h"

#define TEMPORARY  "incoming" /* one writer at a time: one name is enough */
#define PART_BYTES ((size_t)1 << 20)

void (*leat_registry_step_hook)(unsigned step);

void
leat_registry_step(void)
{
    static _Atomic unsigned step; /* of the process; offline jobs take theirs beside whoever has the registry */
    if (leat_registry_step_hook != NULL) {
        leat_registry_step_hook(1 + atomic_fetch_add_explicit(&step, 1, memory_order_relaxed));
    }
}

static enum leat_status
take_lock(struct leat_registry_files *files)
{
    char owner[32] = "", pid[32];

    files->lock_fd = openat(files->state_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (files->lock_fd < 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "state directory %s: cannot open the file 'lock'",
                         files->state_dir);
    }
    if (flock(files->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) {
            return LEAT_FAIL(LEAT_ERR_SYS, "state directory %s: cannot lock it", files->state_dir);
        }
        const ssize_t got = pread(files->lock_fd, owner, sizeof(owner) - 1, 0);
        owner[got > 0 ? (size_t)got : 0] = '\0';
        owner[strcspn(owner, "\n")] = '\0';
        return LEAT_FAIL(LEAT_ERR_BUSY,
                         "state directory %s: another leatd has it (process %s); stop that one or choose "
                         "another state_dir",
                         files->state_dir, owner[0] == '\0' ? "unknown" : owner);
    }
    const int length = snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
    if (ftruncate(files->lock_fd, 0) != 0 ||
        pwrite(files->lock_fd, pid, (size_t)length, 0) != length) {
        return LEAT_FAIL(LEAT_ERR_SYS, "state directory %s: cannot write the file 'lock'",
                         files->state_dir);
    }
    return LEAT_OK;
}

enum leat_status
leat_registry_files_init(struct leat_registry_files *files, const char *state_dir)
{
    *files = (struct leat_registry_files){NULL, -1, -1, -1};
    files->state_dir = strdup(state_dir);
    if (files->state_dir == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the registry");
    }
    leat_registry_step();
    if (mkdir(state_dir, 0750) != 0 && errno != EEXIST) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot make the state directory %s ('state_dir' or --state-dir chooses another)",
                         state_dir);
    }
    files->state_fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (files->state_fd < 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot open the state directory %s ('state_dir' or --state-dir chooses another)",
                         state_dir);
    }
    const enum leat_status status = take_lock(files);
    if (status != LEAT_OK) {
        return status;
    }
    leat_registry_step();
    if (mkdirat(files->state_fd, "models", 0750) != 0 && errno != EEXIST) {
        return LEAT_FAIL(LEAT_ERR_SYS, "state directory %s: cannot make the folder 'models'", state_dir);
    }
    files->models_fd = openat(files->state_fd, "models", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (files->models_fd < 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "state directory %s: cannot open the folder 'models'", state_dir);
    }
    return LEAT_OK;
}

void
leat_registry_files_fini(struct leat_registry_files *files)
{
    const int fds[] = {files->models_fd, files->lock_fd, files->state_fd}; /* the lock goes with its fd */
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    free(files->state_dir);
    *files = (struct leat_registry_files){NULL, -1, -1, -1};
}

enum leat_status
leat_registry_files_sync(const struct leat_registry_files *files)
{
    leat_registry_step();
    if (fsync(files->state_fd) != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "syncing the state directory %s", files->state_dir);
    }
    return LEAT_OK;
}

static void
write_digest(struct sha256_ctx *context, char *sha256)
{
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_digest(context, sizeof(digest), digest);
    for (size_t i = 0; i < sizeof(digest); i++) {
        (void)snprintf(sha256 + 2 * i, 3, "%02x", digest[i]);
    }
}

void
leat_registry_hash(const void *data, size_t bytes, char *sha256)
{
    struct sha256_ctx context;

    sha256_init(&context);
    sha256_update(&context, bytes, data);
    write_digest(&context, sha256);
}

static bool
write_all(int fd, const unsigned char *data, size_t bytes)
{
    const size_t half = bytes / 2; /* a step in the middle, so tests see half a file */
    for (size_t done = 0; done < bytes;) {
        const size_t end = done < half ? half : bytes;
        const ssize_t wrote = write(fd, data + done, end - done);
        if (wrote < 0 && errno != EINTR) {
            return false;
        }
        done += wrote > 0 ? (size_t)wrote : 0;
        if (done == half) {
            leat_registry_step();
        }
    }
    return true;
}

/* What is complete and synced gets its name; on failure it is gone, but one that had the name may be others'. */
static enum leat_status
name_temporary(const struct leat_registry_files *files, const char *sha256)
{
    const bool was_there = faccessat(files->models_fd, sha256, F_OK, AT_SYMLINK_NOFOLLOW) == 0;

    if (renameat(files->models_fd, TEMPORARY, files->models_fd, sha256) != 0) {
        const enum leat_status status =
            LEAT_FAIL(LEAT_ERR_SYS, "state directory %s: cannot name a model file", files->state_dir);
        (void)unlinkat(files->models_fd, TEMPORARY, 0);
        return status;
    }
    leat_registry_step();
    if (fsync(files->models_fd) != 0) {
        const enum leat_status status =
            LEAT_FAIL(LEAT_ERR_SYS, "state directory %s: cannot sync 'models'", files->state_dir);
        if (!was_there) {
            leat_registry_files_drop(files, sha256);
        }
        return status;
    }
    leat_registry_step();
    return LEAT_OK;
}

enum leat_status
leat_registry_files_put(const struct leat_registry_files *files, const char *sha256, const void *data,
                        size_t bytes)
{
    enum leat_status status = LEAT_OK;

    leat_registry_step();
    const int fd = openat(files->models_fd, TEMPORARY,
                          O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "state directory %s: cannot make a model file",
                         files->state_dir);
    }
    leat_registry_step();
    if (!write_all(fd, data, bytes)) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "state directory %s: cannot write %zu bytes of a model",
                           files->state_dir, bytes);
        goto err_close;
    }
    leat_registry_step();
    if (fsync(fd) != 0) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "state directory %s: cannot sync a model", files->state_dir);
        goto err_close;
    }
    (void)close(fd);
    leat_registry_step();
    return name_temporary(files, sha256);

err_close:
    (void)close(fd);
    (void)unlinkat(files->models_fd, TEMPORARY, 0);
    return status;
}

/* ---- Files that are too large for memory ----------------------------------------------------------- */

/* Reads to `room`, at most; 0 at the end, negative on failure. */
static ssize_t
read_part(int fd, unsigned char *room, uint64_t at, uint64_t end)
{
    ssize_t got;
    do {
        got = pread(fd, room, end - at < PART_BYTES ? (size_t)(end - at) : PART_BYTES, (off_t)at);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* The next bytes from `at` on that are not a hole: *ret_begin = *ret_end = bytes where there are none. */
static void
find_data(int fd, uint64_t at, uint64_t bytes, uint64_t *ret_begin, uint64_t *ret_end)
{
    const off_t data = lseek(fd, (off_t)at, SEEK_DATA);
    const off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
    const bool only_hole = data < 0 ? errno == ENXIO : (uint64_t)data >= bytes;

    /* A file system that cannot tell has no holes. */
    *ret_begin = only_hole ? bytes : data < 0 ? at : (uint64_t)data;
    *ret_end = only_hole || hole <= data || (uint64_t)hole > bytes ? bytes : (uint64_t)hole;
}

static bool
hash_data(struct sha256_ctx *context, int fd, uint64_t at, uint64_t end, unsigned char *room)
{
    while (at < end) {
        const ssize_t got = read_part(fd, room, at, end);
        if (got <= 0) {
            return false;
        }
        sha256_update(context, (size_t)got, room);
        at += (uint64_t)got;
    }
    return true;
}

/* Holes are not read. */
static bool
hash_file(int fd, uint64_t bytes, unsigned char *room, char *sha256)
{
    static const uint8_t zeros[1u << 16];
    struct sha256_ctx context;
    uint64_t begin, end;

    sha256_init(&context);
    for (uint64_t at = 0; at < bytes; at = end) {
        find_data(fd, at, bytes, &begin, &end);
        for (uint64_t hole = begin - at; hole > 0;) {
            const size_t part = hole < sizeof(zeros) ? (size_t)hole : sizeof(zeros);
            sha256_update(&context, part, zeros);
            hole -= part;
        }
        if (!hash_data(&context, fd, begin, end, room)) {
            return false;
        }
    }
    write_digest(&context, sha256);
    return true;
}

static bool
write_part(int fd, const unsigned char *part, size_t bytes, uint64_t at)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t put = pwrite(fd, part + done, bytes - done, (off_t)(at + done));
        if (put < 0 && errno != EINTR) {
            return false;
        }
        done += put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* What is not a hole, by the kernel, which may share blocks; through `room` where it cannot. */
static bool
copy_extent(int from, int to, uint64_t at, uint64_t end, unsigned char *room)
{
    bool by_kernel = true;

    while (at < end) {
        off_t source = (off_t)at, target = (off_t)at;
        ssize_t got = by_kernel ? copy_file_range(from, &source, to, &target, end - at, 0) : -1;
        if (got <= 0) {
            by_kernel = false;
            got = read_part(from, room, at, end);
            if (got <= 0 || !write_part(to, room, (size_t)got, at)) {
                errno = got == 0 ? EIO : errno; /* it has become shorter */
                return false;
            }
        }
        at += (uint64_t)got;
    }
    return true;
}

static bool
copy_all(int from, int to, uint64_t bytes, unsigned char *room)
{
    uint64_t begin, end;

    for (uint64_t at = 0; at < bytes; at = end) {
        find_data(from, at, bytes, &begin, &end);
        if (!copy_extent(from, to, begin, end, room)) {
            return false;
        }
        leat_registry_step();
    }
    return ftruncate(to, (off_t)bytes) == 0;
}

/* How many bytes are to be copied. */
static enum leat_status
find_size(int from, uint64_t most, uint64_t *ret_bytes)
{
    struct stat info;

    if (fstat(from, &info) != 0 || !S_ISREG(info.st_mode)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a model's data must be a regular file");
    }
    if (most > (uint64_t)info.st_size) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "the file ends before its end");
    }
    *ret_bytes = most > 0 ? most : (uint64_t)info.st_size;
    return LEAT_OK;
}

/* What is copied of a file that becomes shorter meanwhile is zeros. */
static enum leat_status
check_size(int from, uint64_t bytes)
{
    struct stat info;
    return fstat(from, &info) == 0 && (uint64_t)info.st_size >= bytes
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_PROTO, "the file has become shorter while it was read");
}

enum leat_status
leat_registry_copy_file(int from, int to, uint64_t most, uint64_t *ret_bytes)
{
    unsigned char *room = malloc(PART_BYTES);
    uint64_t bytes = 0;

    if (room == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to copy a file");
    }
    enum leat_status status = find_size(from, most, &bytes);
    if (status == LEAT_OK && !copy_all(from, to, bytes, room)) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot copy a file of a model");
    }
    status = status == LEAT_OK ? check_size(from, bytes) : status;
    free(room);
    if (status == LEAT_OK) {
        *ret_bytes = bytes;
    }
    return status;
}

static enum leat_status
copy_and_hash(const struct leat_registry_files *files, int from, int to, uint64_t bytes, char *sha256)
{
    unsigned char *room = malloc(PART_BYTES);
    enum leat_status status = LEAT_OK;

    if (room == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to copy a file");
    }
    if (!copy_all(from, to, bytes, room)) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "state directory %s: cannot copy %llu bytes of a model", files->state_dir,
                           (unsigned long long)bytes);
    } else if (!hash_file(to, bytes, room, sha256)) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "state directory %s: cannot read the copy of a model", files->state_dir);
    } else if (fsync(to) != 0) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "state directory %s: cannot sync a model", files->state_dir);
    }
    free(room);
    return status;
}

enum leat_status
leat_registry_files_copy(const struct leat_registry_files *files, int from, uint64_t most, char *sha256, uint64_t *ret_bytes)
{
    uint64_t bytes;

    enum leat_status status = find_size(from, most, &bytes);
    if (status != LEAT_OK) {
        return status;
    }
    leat_registry_step();
    const int to = openat(files->models_fd, TEMPORARY, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (to < 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "state directory %s: cannot make a model file", files->state_dir);
    }
    leat_registry_step();
    status = copy_and_hash(files, from, to, bytes, sha256);
    status = status == LEAT_OK ? check_size(from, bytes) : status;
    (void)close(to);
    leat_registry_step();
    if (status != LEAT_OK) {
        (void)unlinkat(files->models_fd, TEMPORARY, 0);
        return status;
    }
    *ret_bytes = bytes;
    return LEAT_OK;
}

enum leat_status
leat_registry_files_name(const struct leat_registry_files *files, const char *sha256, uint64_t bytes)
{
    int fd;

    if (faccessat(files->models_fd, sha256, F_OK, AT_SYMLINK_NOFOLLOW) != 0 ||
        leat_registry_files_open(files, sha256, bytes, true, &fd) != LEAT_OK) {
        return name_temporary(files, sha256);
    }
    (void)close(fd);
    (void)unlinkat(files->models_fd, TEMPORARY, 0);
    leat_registry_step();
    return LEAT_OK;
}

static enum leat_status
open_sized(const struct leat_registry_files *files, const char *sha256, uint64_t bytes, int *ret_fd)
{
    struct stat info;
    const int fd = openat(files->models_fd, sha256, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0) {
        return LEAT_FAIL(errno == ENOENT ? LEAT_ERR_NOT_FOUND : LEAT_ERR_SYS,
                         "%s/models/%s is missing or cannot be read", files->state_dir, sha256);
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || (uint64_t)info.st_size != bytes) {
        (void)close(fd);
        return LEAT_FAIL(LEAT_ERR_PROTO, "%s/models/%s does not have the size that was stored", files->state_dir, sha256);
    }
    *ret_fd = fd;
    return LEAT_OK;
}

static enum leat_status
say_damaged(const struct leat_registry_files *files, const char *sha256)
{
    return LEAT_FAIL(LEAT_ERR_PROTO,
                     "%s/models/%s is damaged: its contents changed since it was stored; remove the "
                     "model and add it again",
                     files->state_dir, sha256);
}

enum leat_status
leat_registry_files_open(const struct leat_registry_files *files, const char *sha256, uint64_t bytes, bool check, int *ret_fd)
{
    unsigned char *room = malloc(PART_BYTES);
    char found[65] = "";
    int fd = -1;

    enum leat_status status =
        room != NULL ? open_sized(files, sha256, bytes, &fd) : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to read a file");
    if (status == LEAT_OK && check && (!hash_file(fd, bytes, room, found) || strcmp(found, sha256) != 0)) {
        (void)close(fd);
        status = say_damaged(files, sha256);
    }
    free(room);
    if (status == LEAT_OK) {
        *ret_fd = fd;
    }
    return status;
}

/* ---- Reading and removing -------------------------------------------------------------------------- */

void
leat_registry_files_drop(const struct leat_registry_files *files, const char *sha256)
{
    leat_registry_step();
    (void)unlinkat(files->models_fd, sha256, 0); /* what stays is removed at the next open */
    leat_registry_step();
}

enum leat_status
leat_registry_files_get(const struct leat_registry_files *files, const char *sha256, uint64_t bytes,
                        void **ret_data)
{
    char found[65];
    size_t done = 0;
    unsigned char *data = NULL;
    int fd;

    enum leat_status status = open_sized(files, sha256, bytes, &fd);
    if (status != LEAT_OK) {
        return status;
    }
    data = malloc(bytes == 0 ? 1 : bytes);
    if (data == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a model of %llu bytes",
                           (unsigned long long)bytes);
        goto out;
    }
    while (done < bytes) {
        const ssize_t got = read(fd, data + done, bytes - done);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            status = LEAT_FAIL(LEAT_ERR_SYS, "%s/models/%s: reading stopped after %zu bytes",
                               files->state_dir, sha256, done);
            goto out;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    leat_registry_hash(data, done, found);
    if (strcmp(found, sha256) != 0) {
        status = say_damaged(files, sha256);
    }

out:
    (void)close(fd);
    if (status != LEAT_OK) {
        free(data);
        return status;
    }
    *ret_data = data;
    return LEAT_OK;
}

enum leat_status
leat_registry_files_clean(const struct leat_registry_files *files,
                          bool (*wanted)(void *context, const char *name), void *context)
{
    const int fd = openat(files->models_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    if (folder == NULL) {
        const enum leat_status status =
            LEAT_FAIL(LEAT_ERR_SYS, "state directory %s: cannot list 'models'", files->state_dir);
        if (fd >= 0) {
            (void)close(fd);
        }
        return status;
    }
    while ((entry = readdir(folder)) != NULL) {
        const bool ours = strcmp(entry->d_name, TEMPORARY) == 0 ||
                          strspn(entry->d_name, "0123456789abcdef") == 64;
        if (ours && !wanted(context, entry->d_name)) { /* what somebody else put here is left alone */
            leat_registry_files_drop(files, entry->d_name);
        }
    }
    (void)closedir(folder);
    return LEAT_OK;
}
