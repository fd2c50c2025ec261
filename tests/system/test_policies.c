/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     An application with a choice of variants follows a policy that the daemon made: accurate when there is time, fast
 *          when there is not. When arrivals turn out to be another matter than it was made for, another one takes its
 *          place, and every query still ends once; likewise when queries have more items than it counts as one. Either can be had as a file, or made anew at once. A file that is no
 *          policy is refused at the start.
 *          A good file that does not suit what is seen stays, and a policy that cannot be made leaves the last one; why is said,
 *          once. Two applications that are asked as much have a worker each, and one has both when the other is not asked.
 * Method   leatd with synthetic models; queries one by one, then in bursts until the daemon says that it has a new policy. A model
 *          that takes longer than its profile said, and than the objective, has none that could be made.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sched/policy_table.h"
#include "sched/reserve.h"
#include "tests/system/leatd.h"

enum { BURST = 64, UNIT_BURST = 4, UNIT_ITEMS = 7 };

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
    expect_refused(session, "{\"op\":\"app-policy-refresh\"}", -1, "'name' is missing");
    expect_refused(session, "{\"op\":\"app-policy-refresh\",\"name\":\"nobody\"}", -1, "no application or model 'nobody'");
    expect_refused(session, "{\"op\":\"app-policy-refresh\",\"name\":\"good\"}", -1, "no policy that leat made");
    EXPECT(close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* Of an application: in what its policy is not what it should be; the caller's. */
static char *
trouble(struct leat_session *session, const char *name)
{
    char request[80];

    (void)snprintf(request, sizeof(request), "{\"op\":\"app-show\",\"name\":\"%s\"}", name);
    json_t *shown = leatd_request(session, request);
    const char *text = json_string_value(json_object_get(json_object_get(shown, "follows"), "trouble"));
    EXPECT(text != NULL);
    char *copy = strdup(text);
    EXPECT(copy != NULL);
    json_decref(shown);
    return copy;
}

/* Asks for all `count` at once, again and again, until the trouble has the text in it. */
static void
burst_until(struct leat_session *session, struct leat_query *queries, uint32_t count, const char *name, const char *text)
{
    uint32_t ignored[3];
    struct leat_target target;
    bool there = false;

    EXPECT(leat_find(session, name, &target) == LEAT_OK);
    for (uint32_t q = 0; q < count; q++) {
        queries[q].target = target.id;
    }
    while (!there) {
        burst(session, queries, count, ignored);
        char *found = trouble(session, name);
        there = strstr(found, text) != NULL;
        free(found);
    }
}

/* A file for even arrivals; then they come in bursts. It stays in force. */
static void
test_file(const struct leatd *leatd, struct leat_session *session, struct leat_query *queries, const struct leat_policy *policy)
{
    char path[200], request[400];

    (void)snprintf(path, sizeof(path), "%s/even.policy", leatd->root.path);
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && fwrite(policy, 1, policy->bytes, file) == policy->bytes && fclose(file) == 0);
    (void)snprintf(request, sizeof(request),
                   "{\"op\":\"app-add\",\"name\":\"filed\",\"models\":[\"good\",\"fair\",\"quick\"],\"selector\":\"mdp\","
                   "\"latency_ns\":50000000,\"policy\":\"%s\"}", path);
    json_decref(leatd_request(session, request));
    char *found = trouble(session, "filed");
    EXPECT(strcmp(found, "it is for an objective of 40.000 ms, not 50.000 ms") == 0);
    free(found);
    burst_until(session, queries, BURST, "filed", "dispersion");
    expect_refused(session, "{\"op\":\"app-policy-refresh\",\"name\":\"filed\"}", -1, "no policy that leat made");
    EXPECT(leatd_log_count(leatd, "it is for an objective of 40.000 ms, not 50.000 ms\n") == 1); /* and with another matter later */
}

/* How many workers an application may count on, and whether its policy is for as many. */
static uint64_t
share_of(struct leat_session *session, const char *name, bool *ret_fits)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}"), *row;
    uint64_t share = 0;
    size_t i;

    json_array_foreach(json_object_get(status, "applications"), i, row) {
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0) {
            share = leatd_number(row, "workers");
            *ret_fits = leatd_number(json_object_get(row, "policy"), "workers") == share;
        }
    }
    json_decref(status);
    EXPECT(share > 0);
    return share;
}

/* Both are asked as much; then one alone. The policy that was kept, for all workers, is found whatever the share is. */
static void
test_shares(const struct leatd *leatd, struct leat_session *session, struct leat_query *queries, const char *const names[2])
{
    struct leat_target targets[2];
    uint32_t ignored[3];
    bool fits[2];

    for (uint32_t alone = 0; alone < 2; alone++) {
        const uint64_t want[2] = {alone != 0 ? 2 : 1, 1};
        do {
            for (uint32_t a = 0; a < 2 - alone; a++) {
                EXPECT(leat_find(session, names[a], &targets[a]) == LEAT_OK);
                for (uint32_t q = 0; q < BURST; q++) {
                    queries[q].target = targets[a].id;
                }
                burst(session, queries, BURST, ignored);
            }
        } while (share_of(session, names[0], &fits[0]) != want[0] || !fits[0] || share_of(session, names[1], &fits[1]) != want[1]);
        if (alone == 0) {
            json_decref(leatd_request(session, "{\"op\":\"app-change\",\"name\":\"choice\",\"queue\":4000}"));
            EXPECT(leatd_log_count(leatd, "application 'choice': policy as kept") == 1);
        }
    }
    EXPECT(!fits[1]); /* it came with a file for both workers */
}

/* It is said to take 1 ms, takes 30, and has 10: it is served late, and known by then. */
static void
test_failure(const struct leatd *leatd, struct leat_session *session, struct leat_query *queries)
{
    static const char models[] = "{\"models\":[{\"name\":\"liar\",\"items_max\":1,\"accuracy_ppm\":500000,\"load_ns\":0,"
                                 "\"peak_bytes\":0,\"input_bytes\":64,\"output_bytes\":64,\"options\":{\"latency_ns\":30000000},"
                                 "\"points\":[[\"*\",0,1,5,1000000,1000000,1000000,1000000]]}]}";
    const int fd = memfd_create("models", MFD_CLOEXEC);
    char *reply = NULL;

    EXPECT(fd >= 0 && write(fd, models, sizeof(models) - 1) == sizeof(models) - 1);
    EXPECT(leat_admin(session,
                      "{\"op\":\"app-import\",\"name\":\"hurried\",\"latency_ns\":10000000,\"drop_late\":false,"
                      "\"selector\":\"mdp\"}", fd, &reply) == LEAT_OK);
    EXPECT(strstr(reply, "\"status\"") == NULL);
    leat_admin_free(reply);
    EXPECT(close(fd) == 0);
    burst_until(session, queries, 1, "hurried", "no variant answers");
    for (uint32_t again = 0; again < 3; again++) {
        expect_refused(session, "{\"op\":\"app-policy-refresh\",\"name\":\"hurried\"}", -1, "no variant answers");
    }
    EXPECT(leatd_log_count(leatd, "'hurried' keeps its policy") == 1);
    json_t *shown = leatd_request(session, "{\"op\":\"app-show\",\"name\":\"hurried\"}"); /* 29 ms over: all that may be */
    EXPECT(json_integer_value(json_object_get(json_object_get(shown, "follows"), "reserve_ns")) ==
           10000000 / LEAT_RESERVE_SHARE);
    json_decref(shown);
}

/* Nothing has changed and nothing is asked, but it was ordered: it is there when the answer comes. */
static void
test_refresh(struct leat_session *session)
{
    bool own;
    const json_int_t before = policy_versions(session, &own);
    json_t *answer = leatd_request(session, "{\"op\":\"app-policy-refresh\",\"name\":\"choice\"}");
    EXPECT(json_integer_value(json_object_get(json_object_get(answer, "policy"), "versions")) > before);
    json_decref(answer);
    EXPECT(policy_versions(session, &own) > before && own);
}

/* Queries of so many items each until the policy in force counts as many as one. */
static struct leat_policy *
units_of(struct leat_session *session, struct leat_query *queries, uint32_t items, uint32_t unit_shift)
{
    struct leat_policy *policy = fetch(session);
    uint32_t ignored[3];

    for (uint32_t q = 0; q < UNIT_BURST; q++) {
        queries[q].items = items;
    }
    while (policy->unit_shift != unit_shift) {
        free(policy);
        burst(session, queries, UNIT_BURST, ignored);
        policy = fetch(session);
    }
    return policy;
}

static void
test_units(struct leat_session *session, struct leat_query *queries)
{
    struct leat_policy *policy = units_of(session, queries, UNIT_ITEMS, 2);

    EXPECT(policy->latency_items == 4); /* times 4 items are the most there are */
    EXPECT(leat_policy_latency_ns(policy, 1)[3] >= 500000 + 16 * 1000000);
    free(policy);
    free(units_of(session, queries, 1, 0));
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
                        " synthetic: {latency: 2ms, per_item: 2ms}}\n");
    struct leat_session *session = leatd_open_session(&leatd, BURST, 1 << 20);
    json_decref(leatd_request(session, "{\"op\":\"app-add\",\"name\":\"choice\",\"models\":[\"good\",\"fair\",\"quick\"],"
                                       "\"latency_ns\":40000000}"));
    EXPECT(leat_find(session, "choice", &target) == LEAT_OK);
    for (uint32_t q = 0; q < BURST; q++) {
        queries[q] = (struct leat_query)LEAT_QUERY_INIT;
        queries[q].target = target.id;
        for (uint32_t t = 0; t < 2; t++) {
            EXPECT(leat_tensor_alloc(session, UNIT_ITEMS * target.tensors[t].item_bytes, &queries[q].tensors[t]) == LEAT_OK);
        }
    }
    EXPECT(policy_versions(session, &own) == 1 && own);
    test_refusals(session);
    struct leat_policy *first = fetch(session);
    EXPECT(first->worker_count == 2 && first->objective_ns == 40000000 && first->dispersion_permille == 1000);
    EXPECT(first->variant_count == 3 && strcmp(leat_policy_variant(first, 1)->name, "fair") == 0);
    EXPECT(leat_policy_latency_ns(first, 1)[12] == 500000 + 13 * 1000000); /* between powers of two */
    while (alone[0] <= 10 || prompt == 0) { /* nobody waits for company until it is almost late */
        burst(session, queries, 1, alone);
    }
    printf("alone: %u by the best, %u, %u\n", alone[0], alone[1], alone[2]);
    struct leat_policy *second = fetch(session);
    /* Times that spread on a busy machine may be a reason before; and how soon others answer hangs on how much it stalls. */
    while (second->dispersion_permille <= 1500 || together[1] + together[2] == 0) {
        free(second);
        burst(session, queries, BURST, together);
        bursts++;
        second = fetch(session);
    }
    EXPECT(policy_versions(session, &own) > 1 && own);
    EXPECT(second->checksum != first->checksum && second->worker_count == 2 && second->objective_ns == 40000000);
    free(second);
    printf("%u bursts: %u by the best, %u, %u\n", bursts, together[0], together[1], together[2]);
    test_refresh(session);
    test_units(session, queries);
    burst(session, queries, BURST, together);
    test_file(&leatd, session, queries, first);
    test_shares(&leatd, session, queries, (const char *const[2]){"choice", "filed"});
    test_failure(&leatd, session, queries);
    free(first);
    leat_close(session);
    leatd_signal(&leatd, SIGTERM);
    EXPECT(leatd_await_end(&leatd) == 0);
    leatd_fini(&leatd);
    return 0;
}
