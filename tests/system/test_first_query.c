/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The first query that a model gets finds it warm on the worker that serves it: no page of weights, scratch, code or heap
 *          is touched for the first time on the way, on that thread.
 * Method   leatd as a process, with a network of leat-zoo on one worker. The kernel counts a thread's page faults. It takes a page
 *          of its own accord now and then, so a daemon is started up to ATTEMPTS times, and one that has no fault suffices: what
 *          is touched late is so each time.
 */
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <leat/leat.h>

#include "tests/system/leatd.h"
#include "tools/zoo/zoo.h"

enum { ATTEMPTS = 5 };

/* Of the one worker's leader so far, minor and major. */
static uint64_t
count_faults(const struct leatd *leatd)
{
    const struct dirent *entry;
    uint64_t faults = 0;
    uint32_t found = 0;
    char path[300];

    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)leatd->pid);
    DIR *tasks = opendir(path);
    EXPECT(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL) {
        unsigned long long minor, major;
        char line[1024] = "";
        (void)snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)leatd->pid, entry->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL) {
            continue;
        }
        if (fgets(line, sizeof(line), file) != NULL && strstr(line, "(leat-worker-0)") != NULL) {
            /* state ppid pgrp session tty tpgid flags minflt cminflt majflt */
            EXPECT(sscanf(strrchr(line, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %llu %*u %llu", &minor, &major) == 2);
            faults = minor + major;
            found++;
        }
        (void)fclose(file);
    }
    (void)closedir(tasks);
    EXPECT(found == 1);
    return faults;
}

static uint64_t
faults_of_first_query(const char *name)
{
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_completion done;
    struct leat_target target;
    struct leatd leatd;
    char path[200], settings[400];
    size_t size, count;
    void *file;

    leatd_init(&leatd);
    EXPECT(zoo_write(zoo_find(name), ZOO_SIZE_TEST, leat_test_seed, &file, &size) == LEAT_OK);
    (void)snprintf(path, sizeof(path), "%s/net.onnx", leatd.root.path);
    FILE *model = fopen(path, "wb");
    EXPECT(model != NULL && fwrite(file, size, 1, model) == 1 && fclose(model) == 0);
    free(file);
    (void)snprintf(settings, sizeof(settings),
                   "models: [{name: net, path: %s, items_max: 4}]\nworkers:\n  - {count: 1, cores: 1}\n", path);
    leatd_start(&leatd, settings);

    struct leat_session *session = leatd_open_session(&leatd, 8, 1 << 20);
    EXPECT(leat_find(session, "net", &target) == LEAT_OK);
    query.target = target.id;
    query.items = 1;
    for (uint32_t t = 0; t < target.input_count + target.output_count; t++) {
        EXPECT(leat_tensor_alloc(session, target.tensors[t].item_bytes, &query.tensors[t]) == LEAT_OK);
        memset(query.tensors[t], 0, target.tensors[t].item_bytes);
    }
    const uint64_t before = count_faults(&leatd);
    EXPECT(leat_submit(session, &query, NULL) == LEAT_OK);
    EXPECT(leat_wait(session, &done, 1, UINT64_MAX, &count) == LEAT_OK && count == 1 && done.outcome == LEAT_OUTCOME_OK);
    const uint64_t after = count_faults(&leatd);
    leat_close(session);
    leatd_end(&leatd, SIGTERM);
    leatd_fini(&leatd);
    return after - before;
}

static void
test_first_query(const char *name)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t attempt = 0; attempt < ATTEMPTS && least > 0; attempt++) {
        const uint64_t faults = faults_of_first_query(name);
        least = faults < least ? faults : least;
    }
    (void)printf("%s: %llu page faults\n", name, (unsigned long long)least);
    EXPECT(least == 0);
}

int
main(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)printf("skipped: sanitizers have pages of their own\n");
    return LEAT_TEST_SKIP;
#endif
    leat_test_init();
    test_first_query("lenet5");
    test_first_query("dlrm-rm2");
    return 0;
}
