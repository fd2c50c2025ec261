/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Shares of the workers go by what is learned of times: of two applications that are asked as often and whose profiles say
 *          the same, the one that in truth takes twenty times as long comes to count on most of the workers.
 * Method   leatd with imported synthetic models, queries in bursts to one and the other until their shares are told.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/system/leatd.h"

enum { WORKERS = 8, BURST = 32, APPS = 2 };

static const char *const names[APPS] = {"slow", "true"};

/* An application of one model that is said to take 1 ms. */
static void
add(struct leat_session *session, const char *name, const char *takes_ns)
{
    char models[400], request[200], *reply = NULL;
    const int length = snprintf(models, sizeof(models),
                                "{\"models\":[{\"name\":\"of-%s\",\"items_max\":1,\"accuracy_ppm\":500000,\"load_ns\":0,"
                                "\"peak_bytes\":0,\"input_bytes\":64,\"output_bytes\":64,\"options\":{\"latency_ns\":%s},"
                                "\"points\":[[\"*\",0,1,5,1000000,1000000,1000000,1000000]]}]}",
                                name, takes_ns);
    const int fd = memfd_create("models", MFD_CLOEXEC);

    EXPECT(fd >= 0 && write(fd, models, (size_t)length) == length);
    (void)snprintf(request, sizeof(request),
                   "{\"op\":\"app-import\",\"name\":\"%s\",\"latency_ns\":10000000000,\"selector\":\"jellyfish\"}", name);
    EXPECT(leat_admin(session, request, fd, &reply) == LEAT_OK && strstr(reply, "\"status\"") == NULL);
    leat_admin_free(reply);
    EXPECT(close(fd) == 0);
}

static uint64_t
share_of(struct leat_session *session, const char *name)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}"), *row;
    uint64_t share = 0;
    size_t i;

    json_array_foreach(json_object_get(status, "applications"), i, row) {
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0) {
            share = leatd_number(row, "workers");
        }
    }
    json_decref(status);
    EXPECT(share >= 1 && share <= WORKERS);
    return share;
}

int
main(void)
{
    struct leatd leatd;
    struct leat_query queries[BURST];
    struct leat_completion done[BURST];
    struct leat_target targets[APPS];
    size_t submitted, got;

    leat_test_init();
    leatd_init(&leatd);
    leatd_start(&leatd, "workers: [{count: 8}]\n");
    struct leat_session *session = leatd_open_session(&leatd, BURST, 1 << 20);
    for (uint32_t a = 0; a < APPS; a++) {
        add(session, names[a], a == 0 ? "20000000" : "1000000");
        EXPECT(leat_find(session, names[a], &targets[a]) == LEAT_OK);
        EXPECT(share_of(session, names[a]) == WORKERS); /* nobody is busy yet */
    }
    for (uint32_t q = 0; q < BURST; q++) {
        queries[q] = (struct leat_query)LEAT_QUERY_INIT;
        for (uint32_t t = 0; t < 2; t++) {
            EXPECT(leat_tensor_alloc(session, targets[0].tensors[t].item_bytes, &queries[q].tensors[t]) == LEAT_OK);
        }
    }
    while (share_of(session, names[0]) < WORKERS - 1 || share_of(session, names[1]) != 1) {
        for (uint32_t a = 0; a < APPS; a++) {
            for (uint32_t q = 0; q < BURST; q++) {
                queries[q].target = targets[a].id;
            }
            EXPECT(leat_submit_batch(session, queries, BURST, &submitted) == LEAT_OK && submitted == BURST);
            for (size_t ended = 0; ended < BURST; ended += got) {
                EXPECT(leat_wait(session, done, BURST, UINT64_MAX, &got) == LEAT_OK);
                for (size_t i = 0; i < got; i++) {
                    EXPECT(done[i].outcome == LEAT_OUTCOME_OK);
                }
            }
        }
    }
    leat_close(session);
    leatd_signal(&leatd, SIGTERM);
    EXPECT(leatd_await_end(&leatd) == 0);
    leatd_fini(&leatd);
    return 0;
}
