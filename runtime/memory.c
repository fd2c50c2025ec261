/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <numa.h>
#include <numaif.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/align.h"

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define HUGE_BYTES (UINT64_C(2) << 20)

/* ---- Placement ------------------------------------------------------------------------------- */

/* Prefers `node` for [address, address + bytes); 0 or an errno. */
static int
prefer_node(void *address, size_t bytes, uint32_t node)
{
    unsigned long mask[LEAT_CPU_MAX / (8 * sizeof(unsigned long))] = {0};
    const size_t bits = 8 * sizeof(mask[0]);

    if (node >= LEAT_CPU_MAX) {
        return EINVAL;
    }
    mask[node / bits] = 1ul << (node % bits);
    /* Preferred, not bound: a full node must slow us down, not kill us. */
    return mbind(address, bytes, MPOL_PREFERRED, mask, sizeof(mask) * 8, 0) == 0 ? 0 : errno;
}

bool
leat_memory_bind(void *address, size_t bytes, uint32_t node, struct leat_notes *notes)
{
    if (numa_available() < 0) {
        leat_note(notes, "numa_unavailable", "this kernel has no NUMA support: memory lies anywhere");
        return false;
    }
    if (numa_num_configured_nodes() <= 1) {
        leat_note(notes, "numa_one_node", "one NUMA node: nothing to place");
        return false;
    }
    const int error = prefer_node(address, bytes, node);
    if (error != 0) {
        leat_note(notes, "numa_refused", "mbind to node %u refused (%s): memory lies anywhere", node,
                  strerror(error));
        return false;
    }
    return true;
}

enum leat_status
leat_memory_prefault(void *address, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    LEAT_ASSERT((uintptr_t)address % page == 0 && bytes % page == 0);
    if (bytes == 0 || madvise(address, bytes, MADV_POPULATE_WRITE) == 0) {
        return LEAT_OK;
    }
    if (errno == ENOMEM || errno == EFAULT || errno == EHWPOISON) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %zu bytes of pages (%s)", bytes,
                         strerror(errno));
    }
    /* Older kernels: a write that changes nothing, whoever else writes there. */
    for (size_t at = 0; at < bytes; at += page) {
        (void)__atomic_fetch_or((unsigned char *)address + at, 0, __ATOMIC_RELAXED);
    }
    return LEAT_OK;
}

enum leat_status
leat_memory_take_back(void *address, size_t bytes)
{
    if (bytes > 0 && madvise(address, bytes, MADV_REMOVE) != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot take %zu bytes of pages back", bytes);
    }
    return LEAT_OK;
}

/* ---- Pages of arenas -------------------------------------------------------------------------- */

static enum leat_status
create_mapped(const char *name, size_t bytes, int *ret_fd, void **ret_address)
{
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "memfd_create(%s)", name);
    }
    if (ftruncate(fd, (off_t)bytes) != 0) {
        const enum leat_status status = LEAT_FAIL(LEAT_ERR_SYS, "memfd of %zu bytes", bytes);
        (void)close(fd);
        return status;
    }
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        const enum leat_status status = LEAT_FAIL(LEAT_ERR_SYS, "mapping %zu bytes", bytes);
        (void)close(fd);
        return status;
    }
    *ret_fd = fd;
    *ret_address = address;
    return LEAT_OK;
}

/* The chosen word of "always within_size [advise] never"; "" where there is none. */
static void
read_shmem_setting(char *word, size_t bytes)
{
    char line[128] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");

    word[0] = '\0';
    if (file == NULL) {
        return;
    }
    if (fgets(line, sizeof(line), file) != NULL) {
        char *start = strchr(line, '[');
        char *end = start == NULL ? NULL : strchr(start, ']');
        if (end != NULL) {
            *end = '\0';
            (void)snprintf(word, bytes, "%s", start + 1);
        }
    }
    (void)fclose(file);
}

enum leat_status
leat_memory_create(const char *name, size_t bytes, int *ret_fd, void **ret_address,
                   enum leat_page_kind *ret_pages, struct leat_notes *notes)
{
    char setting[32];

    LEAT_ASSERT(bytes > 0 && bytes % 4096 == 0 && bytes <= INT64_MAX);
    const enum leat_status status = create_mapped(name, bytes, ret_fd, ret_address);
    if (status != LEAT_OK) {
        return status;
    }
    *ret_pages = LEAT_PAGES_SMALL;
    if (bytes < HUGE_BYTES) {
        leat_note(notes, "pages_small", "smaller than a huge page: 4 KiB pages");
        return LEAT_OK;
    }
    read_shmem_setting(setting, sizeof(setting));
    if (strcmp(setting, "always") == 0 || strcmp(setting, "force") == 0 ||
               strcmp(setting, "within_size") == 0 ||
               (strcmp(setting, "advise") == 0 && madvise(*ret_address, bytes, MADV_HUGEPAGE) == 0)) {
        *ret_pages = LEAT_PAGES_TRANSPARENT;
        leat_note(notes, "pages_transparent", "transparent huge pages (shmem_enabled is %s)", setting);
    } else {
        leat_note(notes, "pages_small", "4 KiB pages (shmem_enabled is %s)",
                  setting[0] == '\0' ? "absent" : setting);
    }
    return LEAT_OK;
}
