/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     An application with a choice of variants follows a policy that the daemon made: accurate when there is time, fast
 *          when there is not. When arrivals turn out to be another matter than it was made for, another one takes its
 *          place, and every query still ends once. Either can be had as a file. A file that is no
 *          policy is refused at the start.
 * Method   leatd with synthetic models; queries one by one, then in bursts until the daemon says that it has a new policy.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sched/policy_table.h"
#include "tests/system/leatd.h"

enum { BURST = 64 };

static json_int_t
policy_versions(struct leat_session *session, bool *ret_own)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}"), *row;
    json_int_t versions = -1;
    size_t i;

    json_array_foreach(json_object_get(status, "applications"), i, row) {
        const json_t *policy = json_object_get(row, "policy");
        if (strcmp(json_string_value(json_object_get(row, "name")), "choice") == 0) {
            EXPECT(strcmp(json_string_value(json_object_get(row, "selector")), "mdp") == 0);
            versions = json_integer_value(json_object_get(policy, "versions"));
            *ret_own = json_is_true(json_object_get(policy, "own"));
        } else {
            EXPECT(json_is_null(policy));
        }
    }
    json_decref(status);
    return versions;
}

static uint32_t prompt; /* queries that waited for less than they ran */

/* Queries all at once; returns how many were answered in time by each variant. */
static void
burst(struct leat_session *session, struct leat_query *queries, uint32_t count, uint32_t answered[3])
{
    struct leat_completion done[BURST];
    size_t submitted, got;

    EXPECT(leat_submit_batch(session, queries, count, &submitted) == LEAT_OK && submitted == count);
    for (uint32_t ended = 0; ended < count; ended += (uint32_t)got) {
        EXPECT(leat_wait(session, done, BURST, UINT64_MAX, &got) == LEAT_OK);
        for (size_t i = 0; i < got; i++) {
            EXPECT(done[i].outcome == LEAT_OUTCOME_OK || done[i].outcome == LEAT_OUTCOME_EXPIRED ||
                   (done[i].outcome == LEAT_OUTCOME_REJECTED && done[i].reason == LEAT_REASON_DEADLINE));
            EXPECT(done[i].variant < 3 || done[i].variant == UINT16_MAX);
            prompt += done[i].outcome == LEAT_OUTCOME_OK && done[i].queue_ns < done[i].exec_ns;
            answered[done[i].variant % 3] += done[i].outcome == LEAT_OUTCOME_OK;
        }
    }
    EXPECT(leat_in_flight(session) == 0);
}

/* The policy that is in force, as `leat policy fetch` gets it; freed by the caller. */
static struct leat_policy *
fetch(struct leat_session *session)
{
    const int fd = memfd_create("policy", MFD_CLOEXEC);
    const struct leat_policy *checked;
    char *reply = NULL;

    EXPECT(fd >= 0);
    EXPECT(leat_admin(session, "{\"op\":\"app-policy\",\"name\":\"choice\"}", fd, &reply) == LEAT_OK);
    json_t *answer = json_loads(reply, 0, NULL);
    leat_admin_free(reply);
    const size_t bytes = (size_t)leatd_number(answer, "bytes");
    json_decref(answer);
    void *policy = malloc(bytes);
    EXPECT(policy != NULL && pread(fd, policy, bytes, 0) == (ssize_t)bytes && lseek(fd, 0, SEEK_END) == (off_t)bytes);
    EXPECT(leat_policy_check(policy, bytes, &checked) == LEAT_OK);
    EXPECT(close(fd) == 0);
    return policy;
}

static void
expect_refused(struct leat_session *session, const char *request, int fd, const char *why)
{
    char *reply = NULL;
    EXPECT(leat_admin(session, request, fd, &reply) == LEAT_OK && strstr(reply, why) != NULL);
    leat_admin_free(reply);
}

static void
test_refusals(struct leat_session *session)
{
    int ends[2];

    EXPECT(pipe(ends) == 0);
    expect_refused(session, "{\"op\":\"app-policy\"}", -1, "'name' is missing");
    expect_refused(session, "{\"op\":\"app-policy\",\"name\":\"choice\"}", -1, "descriptor");
    expect_refused(session, "{\"op\":\"app-policy\",\"name\":\"choice\"}", ends[1], "regular file");
    expect_refused(session, "{\"op\":\"app-policy\",\"name\":\"nobody\"}", -1, "no application or model 'nobody'");
    expect_refused(session, "{\"op\":\"app-policy\",\"name\":\"good\"}", -1, "follows no policy");
    expect_refused(session,
                   "{\"op\":\"app-add\",\"name\":\"dealt\",\"models\":[\"good\",\"quick\"],\"latency_ns\":40000000,"
                   "\"router\":\"dealt\",\"selector\":\"mdp\"}",
                   -1, "not for router dealt");
    expect_refused(session,
                   "{\"op\":\"app-add\",\"name\":\"switched\",\"models\":[\"good\",\"quick\"],\"latency_ns\":40000000,"
                   "\"selector\":\"model_switching\"}",
                   -1, "needs a policy from a file");
    EXPECT(close(ends[0]) == 0 && close(ends[1]) == 0);
}

int
main(void)
{
    struct leatd leatd;
    struct leat_query queries[BURST];
    struct leat_target target;
    uint32_t alone[3] = {0}, together[3] = {0}, bursts = 0;
    bool own = false;

    leat_test_init();
    leatd_init(&leatd);
    leatd_start(&leatd, "workers: [{count: 2}]\n"
                        "models:\n"
                        "  - {name: quick, backend: synthetic, items_max: 16, accuracy: 0.5,"
                        " synthetic: {latency: 200us, per_item: 50us}}\n"
                        "  - {name: fair, backend: synthetic, items_max: 16, accuracy: 0.7,"
                        " synthetic: {latency: 500us, per_item: 1ms}}\n"
                        "  - {name: good, backend: synthetic, items_max: 16, accuracy: 0.9,"
                        " synthetic: {latency: 2ms, per_item: 2ms}}\n"
                        "applications:\n"
                        "  - {name: choice, models: [good, fair, quick], latency: 40ms}\n");
    struct leat_session *session = leatd_open_session(&leatd, BURST, 1 << 20);
    EXPECT(leat_find(session, "choice", &target) == LEAT_OK);
    for (uint32_t q = 0; q < BURST; q++) {
        queries[q] = (struct leat_query)LEAT_QUERY_INIT;
        queries[q].target = target.id;
        for (uint32_t t = 0; t < 2; t++) {
            EXPECT(leat_tensor_alloc(session, target.tensors[t].item_bytes, &queries[q].tensors[t]) == LEAT_OK);
        }
    }
    EXPECT(policy_versions(session, &own) == 1 && own);
    test_refusals(session);
    struct leat_policy *first = fetch(session);
    EXPECT(first->worker_count == 2 && first->objective_ns == 40000000 && first->dispersion_permille == 1000);
    EXPECT(first->variant_count == 3 && strcmp(leat_policy_variant(first, 1)->name, "fair") == 0);
    EXPECT(leat_policy_latency_ns(first, 1)[12] == 500000 + 13 * 1000000); /* between powers of two */
    for (uint32_t n = 0; n < 20; n++) {
        burst(session, queries, 1, alone);
    }
    printf("alone: %u by the best, %u, %u\n", alone[0], alone[1], alone[2]);
    EXPECT(alone[0] > 10 && prompt > 0); /* nobody waits for company until it is almost late */
    struct leat_policy *second = fetch(session);
    while (second->dispersion_permille <= 1500) { /* times that spread on a busy machine may be a reason before */
        free(second);
        burst(session, queries, BURST, together);
        bursts++;
        second = fetch(session);
    }
    EXPECT(policy_versions(session, &own) > 1 && own);
    EXPECT(second->checksum != first->checksum && second->worker_count == 2 && second->objective_ns == 40000000);
    free(first);
    free(second);
    printf("%u bursts: %u by the best, %u, %u\n", bursts, together[0], together[1], together[2]);
    EXPECT(together[1] + together[2] > 0); /* how many depends on how fast they come and how much the machine stalls */
    burst(session, queries, BURST, together);
    leat_close(session);
    leatd_signal(&leatd, SIGTERM);
    EXPECT(leatd_await_end(&leatd) == 0);
    leatd_fini(&leatd);
    return 0;
}
