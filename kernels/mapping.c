/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096u

/*
 * Relaxed everywhere: whoever reads or faults in a mapping was given it by the thread that opened it. The signal handler looks at
 * others on its way; these lie in memory that is never given back.
 */
struct leat_mapping {
    _Atomic uintptr_t base; /* W: who opens and who closes it, under the mutex */
    _Atomic size_t bytes;   /* W: likewise; 0 while it is not open */
    _Atomic bool damaged;   /* W: whoever faults */
    uint32_t references;    /* under the mutex; 0: free */
    int fd;
    struct timespec changed; /* the file, last */
    bool told; /* under the mutex: of its damage */
    char name[LEAT_MAPPING_NAME_BYTES];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* control threads only */
static struct leat_mapping mappings[LEAT_MAPPINGS_MAX];
static _Atomic bool any_damaged; /* W: whoever faults */

static void
lock(void)
{
    LEAT_MUST(pthread_mutex_lock(&mutex) == 0);
}

static void
unlock(void)
{
    LEAT_MUST(pthread_mutex_unlock(&mutex) == 0);
}

/* ---- Opening --------------------------------------------------------------------------------------- */

static int
open_step(int folder_fd, const char *name, bool last)
{
    /* O_NONBLOCK: a pipe must not keep us. */
    return openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (last ? 0 : O_DIRECTORY));
}

/* -1 with errno when a step of the path is not there or leads out. `path` is taken apart. */
static int
open_below(int folder_fd, char *path)
{
    int at = folder_fd;

    if (path[0] == '/' || path[0] == '\0') {
        errno = EXDEV;
        return -1;
    }
    for (char *name = path; name != NULL;) {
        char *slash = strchr(name, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
        errno = EXDEV;
        const int next =
            name[0] == '\0' || strcmp(name, "..") == 0 ? -1 : open_step(at, name, slash == NULL);
        const int cause = errno;
        if (at != folder_fd) {
            (void)close(at);
        }
        errno = cause;
        if (next < 0) {
            return -1;
        }
        at = next;
        name = slash != NULL ? slash + 1 : NULL;
    }
    return at;
}

enum leat_status
leat_mapping_find(int folder_fd, const char *path, int *ret_fd)
{
    char steps[PATH_BYTES_MAX];
    struct stat info;

    if (strlen(path) >= sizeof(steps)) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "the path '%.64s...' is too long", path);
    }
    memcpy(steps, path, strlen(path) + 1);
    const int fd = open_below(folder_fd, steps);
    if (fd < 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "cannot open '%.64s' in the model's folder: %s", path,
                         errno == EXDEV || errno == ELOOP ? "it leads out of it, or is a link" : strerror(errno));
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        (void)close(fd);
        return LEAT_FAIL(LEAT_ERR_INVALID, "'%.64s' in the model's folder is not a regular file", path);
    }
    *ret_fd = fd;
    return LEAT_OK;
}

/* Under the mutex. */
static struct leat_mapping *
find_free(void)
{
    for (uint32_t i = 0; i < LEAT_MAPPINGS_MAX; i++) {
        if (mappings[i].references == 0) {
            return &mappings[i];
        }
    }
    return NULL;
}

enum leat_status
leat_mapping_create(int fd, const char *name, struct leat_mapping **ret_mapping)
{
    struct stat info;

    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'%.64s' is not a regular file", name);
    }
    const size_t bytes = (size_t)info.st_size;
    const int own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    void *base = bytes > 0 && own_fd >= 0 ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, own_fd, 0) : NULL;
    if (own_fd < 0 || base == MAP_FAILED) {
        const enum leat_status status = LEAT_FAIL(LEAT_ERR_SYS, "cannot map '%.64s'", name);
        if (own_fd >= 0) {
            (void)close(own_fd);
        }
        return status;
    }
    lock();
    struct leat_mapping *mapping = find_free();
    if (mapping != NULL) {
        mapping->references = 1;
        mapping->fd = own_fd;
        mapping->changed = info.st_mtim;
        mapping->told = false;
        (void)snprintf(mapping->name, sizeof(mapping->name), "%s", name);
        atomic_store_explicit(&mapping->damaged, false, memory_order_relaxed);
        atomic_store_explicit(&mapping->base, (uintptr_t)base, memory_order_relaxed);
        atomic_store_explicit(&mapping->bytes, bytes, memory_order_relaxed);
    }
    unlock();
    if (mapping == NULL) {
        LEAT_MUST(bytes == 0 || munmap(base, bytes) == 0);
        (void)close(own_fd);
        return LEAT_FAIL(LEAT_ERR_LIMIT, "more than %u files of weights", LEAT_MAPPINGS_MAX);
    }
    *ret_mapping = mapping;
    return LEAT_OK;
}

enum leat_status
leat_mapping_open(int folder_fd, const char *path, struct leat_mapping **ret_mapping)
{
    int fd;

    enum leat_status status = leat_mapping_find(folder_fd, path, &fd);
    if (status == LEAT_OK) {
        status = leat_mapping_create(fd, path, ret_mapping);
        (void)close(fd);
    }
    return status;
}

void
leat_mapping_acquire(struct leat_mapping *mapping)
{
    lock();
    LEAT_ASSERT(mapping->references >= 1 && mapping->references < UINT32_MAX);
    mapping->references++;
    unlock();
}

void
leat_mapping_release(struct leat_mapping *mapping)
{
    if (mapping == NULL) {
        return;
    }
    lock();
    LEAT_ASSERT(mapping->references >= 1);
    if (mapping->references == 1) {
        size_t bytes;
        /* The cast drops const: it was ours to make and is ours to remove. */
        void *base = (void *)(uintptr_t)leat_mapping_data(mapping, &bytes);
        atomic_store_explicit(&mapping->bytes, 0, memory_order_relaxed);
        LEAT_MUST(bytes == 0 || munmap(base, bytes) == 0);
        (void)close(mapping->fd);
    }
    mapping->references--;
    unlock();
}

/* ---- Reading --------------------------------------------------------------------------------------- */

const unsigned char *
leat_mapping_data(const struct leat_mapping *mapping, size_t *ret_bytes)
{
    *ret_bytes = atomic_load_explicit(&mapping->bytes, memory_order_relaxed);
    return (const unsigned char *)atomic_load_explicit(&mapping->base, memory_order_relaxed);
}

enum leat_status
leat_mapping_read(const struct leat_mapping *mapping, size_t offset, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = pread(mapping->fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return got < 0 ? LEAT_FAIL(LEAT_ERR_SYS, "cannot read weights: %s", strerror(errno))
                           : LEAT_FAIL(LEAT_ERR_PROTO, "a file of weights has become shorter");
        }
        done += got > 0 ? (size_t)got : 0;
    }
    /* What was made of the weights before would not go with these. */
    struct stat info;
    const bool same = fstat(mapping->fd, &info) == 0 && info.st_mtim.tv_sec == mapping->changed.tv_sec &&
                      info.st_mtim.tv_nsec == mapping->changed.tv_nsec;
    return same ? LEAT_OK : LEAT_FAIL(LEAT_ERR_PROTO, "a file of weights has changed");
}

void
leat_mapping_give_back(const struct leat_mapping *mapping)
{
    size_t bytes;
    /* The cast drops const: nothing is written. */
    void *base = (void *)(uintptr_t)leat_mapping_data(mapping, &bytes);

    if (bytes > 0) {
        (void)madvise(base, bytes, MADV_DONTNEED);
    }
}

/* ---- Pages that are gone --------------------------------------------------------------------------- */

bool
leat_mapping_is_damaged(const struct leat_mapping *mapping)
{
    return atomic_load_explicit(&mapping->damaged, memory_order_relaxed);
}

bool
leat_mapping_any_damaged(void)
{
    return atomic_load_explicit(&any_damaged, memory_order_relaxed);
}

bool
leat_mapping_next_damaged(char ret_name[LEAT_MAPPING_NAME_BYTES])
{
    bool found = false;

    lock();
    for (uint32_t i = 0; i < LEAT_MAPPINGS_MAX && !found; i++) {
        struct leat_mapping *mapping = &mappings[i];
        found = mapping->references > 0 && !mapping->told && leat_mapping_is_damaged(mapping);
        if (found) {
            mapping->told = true;
            memcpy(ret_name, mapping->name, sizeof(mapping->name));
        }
    }
    unlock();
    return found;
}

bool
leat_mapping_repair(const void *address)
{
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)address;

    for (uint32_t i = 0; i < LEAT_MAPPINGS_MAX; i++) {
        const uintptr_t base = atomic_load_explicit(&mappings[i].base, memory_order_relaxed);
        const size_t bytes = atomic_load_explicit(&mappings[i].bytes, memory_order_relaxed);
        if (at < base || at - base >= bytes) {
            continue;
        }
        void *page = (void *)(at / page_bytes * page_bytes);
        atomic_store_explicit(&mappings[i].damaged, true, memory_order_relaxed);
        atomic_store_explicit(&any_damaged, true, memory_order_relaxed);
        return mmap(page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page;
    }
    return false;
}
