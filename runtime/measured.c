/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/measured.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <leat/tensor.h>

enum { OUTLIER = 3 }; /* times the median */

enum leat_status
leat_measured_add(struct leat_measured *measured, const struct leat_measured_point *point)
{
    LEAT_ASSERT(point->items >= 1 && point->items <= LEAT_ITEMS_MAX);
    if ((measured->count & (measured->count - 1)) == 0) { /* full: rooms are powers of two */
        const size_t room = measured->count == 0 ? 1 : 2 * (size_t)measured->count;
        struct leat_measured_point *grown = reallocarray(measured->points, room, sizeof(*grown));
        if (grown == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %zu measured times", room);
        }
        measured->points = grown;
    }
    measured->points[measured->count++] = *point;
    return LEAT_OK;
}

enum leat_status
leat_measured_copy(const struct leat_measured *measured, struct leat_measured *ret_copy)
{
    struct leat_measured copy = *measured;

    copy.points = NULL;
    copy.count = 0;
    for (uint32_t p = 0; p < measured->count; p++) {
        const enum leat_status status = leat_measured_add(&copy, &measured->points[p]);
        if (status != LEAT_OK) {
            leat_measured_free(&copy);
            return status;
        }
    }
    *ret_copy = copy;
    return LEAT_OK;
}

void
leat_measured_free(struct leat_measured *measured)
{
    free(measured->points);
    *measured = (struct leat_measured){0};
}

static bool
is_of(const struct leat_measured_point *point, const char *worker_class, uint32_t cores, bool by_class, uint32_t length)
{
    const bool any = strcmp(point->worker_class, "*") == 0;
    return point->length == length && (point->cores == 0 || point->cores == cores) && (any || !by_class || strcmp(point->worker_class, worker_class) == 0);
}

const struct leat_measured_point *
leat_measured_find(const struct leat_measured *measured, const char *worker_class, uint32_t cores, bool by_class,
                   uint32_t length, uint32_t items)
{
    for (uint32_t p = 0; p < measured->count; p++) {
        if (measured->points[p].items == items && is_of(&measured->points[p], worker_class, cores, by_class, length)) {
            return &measured->points[p];
        }
    }
    return NULL;
}

bool
leat_measured_teach(const struct leat_measured *measured, const char *worker_class, uint32_t cores, bool by_class,
                    uint32_t length, uint32_t items_max, struct leat_profile *profile)
{
    if (leat_measured_find(measured, worker_class, cores, by_class, length, items_max) == NULL) {
        return false;
    }
    for (uint32_t p = 0; p < measured->count; p++) {
        const struct leat_measured_point *point = &measured->points[p];
        if (is_of(point, worker_class, cores, by_class, length)) {
            leat_profile_set(profile, point->items, point->p50_ns);
        }
    }
    return true;
}

static int
compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Of sorted times. */
static uint64_t
percentile(const uint64_t *samples_ns, uint32_t count, uint32_t percent)
{
    const uint64_t rank = (uint64_t)(count - 1) * percent, low = rank / 100, part = rank % 100;
    const uint64_t above = samples_ns[low + (part > 0)];
    return samples_ns[low] + (above - samples_ns[low]) * part / 100;
}

void
leat_measured_summarise(uint64_t *samples_ns, uint32_t count, struct leat_measured_point *point)
{
    uint64_t sum_ns = 0;
    uint32_t kept = count;

    LEAT_ASSERT(count >= 1);
    qsort(samples_ns, count, sizeof(samples_ns[0]), compare_u64);
    while (samples_ns[kept - 1] / OUTLIER > samples_ns[count / 2]) {
        kept--;
    }
    for (uint32_t s = 0; s < kept; s++) {
        sum_ns += samples_ns[s];
    }
    point->runs = kept;
    point->mean_ns = sum_ns / kept;
    point->p50_ns = percentile(samples_ns, kept, 50);
    point->p95_ns = percentile(samples_ns, kept, 95);
    point->p99_ns = percentile(samples_ns, kept, 99);
}

/* As the kernel calls it; else the architecture. */
static void
processor_name(char *name, size_t bytes)
{
    char line[256];
    struct utsname system;
    FILE *file = fopen("/proc/cpuinfo", "r");
    bool found = false;

    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        const char *value = strstr(line, ": ");
        found = strncmp(line, "model name", 10) == 0 && value != NULL;
        if (found) {
            (void)snprintf(name, bytes, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    if (!found) {
        (void)snprintf(name, bytes, "%s", uname(&system) == 0 ? system.machine : "unknown processor");
    }
}

void
leat_measured_host(uint32_t usable_cpus, char ret_host[LEAT_MEASURED_HOST_BYTES])
{
    const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE), l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    char name[96];

    processor_name(name, sizeof(name));
    const int length =
        snprintf(ret_host, LEAT_MEASURED_HOST_BYTES, "%s, %u CPUs, L2 %ld KiB, L3 %ld KiB, leat %s, method %d", name,
                 usable_cpus, l2 > 0 ? l2 / 1024 : 0, l3 > 0 ? l3 / 1024 : 0, LEAT_VERSION_TEXT, LEAT_MEASURED_METHOD);
    LEAT_ASSERT(length > 0 && length < (int)LEAT_MEASURED_HOST_BYTES); /* the method comes last */
}
