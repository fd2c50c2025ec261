/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Under every selector each query ends once, and is answered if and only if a variant suits it: none answers that is
 *          less accurate than its floor, dearer than its cap or too small for it, whatever the deadlines and the load. While
 *          members come and go, too, nobody gets less than was asked for; and a refusal names what comes closest.
 * Method   leatd with three synthetic models, one application for each selector, random queries; policies by `leat policy`.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/align.h"
#include "sched/policy.h"
#include "tests/system/leatd.h"
#include "tests/tools/command.h"

enum { MODELS = 3, IN_FLIGHT = 64, QUERIES = 10000, CHANGES = 4, ITEMS_MAX = 8 };

/* A worker costs 3.6 an hour, so that a microsecond is 1 nano of cost; batches of any size take the same. */
static const struct model {
    const char *name;
    uint32_t accuracy_ppm, items_max, cost_nano;
} models[MODELS] = {{"fine", 900000, 2, 400}, {"rough", 500000, 8, 100}, {"fair", 700000, 4, 200}};
static const char yaml[] = "classes: [{name: cpu, price: 3.6}]\n"
                           "workers: [{count: 2}]\n"
                           "models:\n"
                           "  - {name: fine, backend: synthetic, items_max: 2, accuracy: 0.9, synthetic: {latency: 400us}}\n"
                           "  - {name: rough, backend: synthetic, items_max: 8, accuracy: 0.5, synthetic: {latency: 100us}}\n"
                           "  - {name: fair, backend: synthetic, items_max: 4, accuracy: 0.7, synthetic: {latency: 200us}}\n";
static const char profiles[] = "variant,items,p95_us,accuracy\n"
                               "fine,1,400,0.9\nfine,2,400,0.9\n"
                               "rough,1,100,0.5\nrough,2,100,0.5\nrough,4,100,0.5\nrough,8,100,0.5\n"
                               "fair,1,200,0.7\nfair,2,200,0.7\nfair,4,200,0.7\n";

static struct leatd leatd;
static atomic_bool changed;

struct asked {
    uint32_t items, floor_ppm, cap_nano;
    bool flies;
};

static bool
suits(const struct model *model, const struct asked *asked)
{
    return asked->items <= model->items_max && asked->floor_ppm <= model->accuracy_ppm &&
           (asked->cap_nano == 0 || model->cost_nano <= asked->cap_nano);
}

/* Each model by its accuracy, for places change. */
static const struct model *
model_of(uint32_t accuracy_ppm)
{
    for (size_t m = 0; m < MODELS; m++) {
        if (models[m].accuracy_ppm == accuracy_ppm) {
            return &models[m];
        }
    }
    EXPECT(!"an accuracy of one of the models");
    return NULL;
}

/* `all` are members all the time; else a query that only some suit may be refused. */
static void
check(const struct asked *asked, const struct leat_completion *done, bool all, uint32_t counts[2])
{
    bool any = false;

    for (size_t m = 0; m < MODELS; m++) {
        any = any || suits(&models[m], asked);
    }
    if (done->outcome == LEAT_OUTCOME_OK) {
        EXPECT(suits(model_of(done->accuracy_ppm), asked));
        EXPECT(!all || done->accuracy_ppm == models[done->variant].accuracy_ppm);
        counts[0]++;
        return;
    }
    EXPECT(done->outcome == LEAT_OUTCOME_REJECTED && (!any || !all));
    counts[1]++;
    if (done->reason == LEAT_REASON_ITEMS) { /* none may be so large any more: then nothing is close */
        EXPECT(asked->items > 1);
        for (size_t m = 0; m < MODELS && all; m++) {
            const struct model *largest = model_of(done->accuracy_ppm);
            EXPECT(largest->accuracy_ppm >= asked->floor_ppm && largest->items_max < asked->items);
            EXPECT(models[m].accuracy_ppm < asked->floor_ppm || models[m].items_max <= largest->items_max);
        }
        return;
    }
    const struct model *closest = model_of(done->accuracy_ppm);
    EXPECT(done->variant < MODELS);
    if (done->reason == LEAT_REASON_ACCURACY) {
        EXPECT(closest->accuracy_ppm < asked->floor_ppm);
    } else {
        EXPECT(done->reason == LEAT_REASON_COST && asked->cap_nano > 0);
        EXPECT(closest->cost_nano > asked->cap_nano && asked->floor_ppm <= closest->accuracy_ppm);
        EXPECT(done->cost_nano >= closest->cost_nano);
    }
}

static void
draw(uint64_t *random, struct asked *asked, struct leat_query *query)
{
    static const uint32_t floors_ppm[] = {0, 0, 500000, 500001, 700000, 800000, 900000, 900001};
    static const uint64_t latencies_ns[] = {0, 0, 50000, 300000, 1000000, 1000000000};
    /* Caps reach the daemon as at least 31/32 of what they are: none is so close to a cost. */
    static const uint32_t caps_nano[] = {0, 0, 90, 110, 250, 450, 900, 2000};

    asked->items = 1 + (uint32_t)(leat_test_random(random) % 4 == 0 ? leat_test_random(random) % ITEMS_MAX : 0);
    asked->floor_ppm = floors_ppm[leat_test_random(random) % LEAT_COUNT_OF(floors_ppm)];
    asked->cap_nano = caps_nano[leat_test_random(random) % LEAT_COUNT_OF(caps_nano)];
    query->items = asked->items;
    query->accuracy_floor_ppm = asked->floor_ppm;
    query->cost_cap_nano = asked->cap_nano;
    query->latency_ns = latencies_ns[leat_test_random(random) % LEAT_COUNT_OF(latencies_ns)];
    query->flags = leat_test_random(random) % 8 == 0 ? LEAT_QUERY_OFFLINE : 0;
}

static void *
change_members(void *argument)
{
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);

    for (int i = 0; i < CHANGES; i++) {
        char text[160];
        (void)snprintf(text, sizeof(text), "{\"op\":\"app-change\",\"name\":\"%s\",\"%s\":[\"%s\"]}", (const char *)argument,
                       i % 2 == 0 ? "remove_models" : "models", models[i / 2 % MODELS].name);
        json_t *answer = leatd_request(session, text);
        EXPECT(json_array_size(json_object_get(answer, "models")) == (i % 2 == 0 ? MODELS - 1 : MODELS));
        json_decref(answer);
    }
    leat_close(session);
    changed = true;
    return NULL;
}

/*
 * Asks as many; if not `all` are members all the time, they begin to change once the application was found, and it goes on asking
 * until they have stopped. Now one by one, now as many as there are slots.
 */
static void
ask_many(const char *application, uint32_t count, bool all)
{
    struct leat_session *session = leatd_open_session(&leatd, IN_FLIGHT, 1 << 20);
    struct asked asked[IN_FLIGHT] = {0};
    struct leat_completion done[IN_FLIGHT];
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_target target;
    uint64_t random = leat_test_seed;
    uint32_t submitted = 0, ended = 0, counts[2] = {0};
    void *inputs, *outputs[IN_FLIGHT];
    pthread_t thread;

    EXPECT(leat_find(session, application, &target) == LEAT_OK && target.items_max == ITEMS_MAX);
    query.target = target.id;
    EXPECT(leat_tensor_alloc(session, ITEMS_MAX * target.tensors[0].item_bytes, &inputs) == LEAT_OK);
    for (uint32_t i = 0; i < IN_FLIGHT; i++) {
        EXPECT(leat_tensor_alloc(session, ITEMS_MAX * target.tensors[1].item_bytes, &outputs[i]) == LEAT_OK);
    }
    query.tensors[0] = inputs;
    changed = false;
    EXPECT(all || pthread_create(&thread, NULL, change_members, (void *)(uintptr_t)application) == 0);
    for (;;) {
        const bool more = submitted < count || (!all && !changed);
        const uint32_t most = submitted / 500 % 2 == 0 ? IN_FLIGHT : 2;
        size_t collected;
        for (uint32_t i = 0; i < IN_FLIGHT && more && submitted - ended < most; i++) {
            if (!asked[i].flies) {
                draw(&random, &asked[i], &query);
                query.user_data = i;
                query.tensors[1] = outputs[i];
                EXPECT(leat_submit(session, &query, NULL) == LEAT_OK);
                asked[i].flies = true;
                submitted++;
            }
        }
        const enum leat_status status = leat_wait(session, done, IN_FLIGHT, UINT64_MAX, &collected);
        if (status == LEAT_AGAIN) {
            break;
        }
        EXPECT(status == LEAT_OK);
        for (size_t d = 0; d < collected; d++) {
            EXPECT(done[d].user_data < IN_FLIGHT && asked[done[d].user_data].flies);
            asked[done[d].user_data].flies = false;
            check(&asked[done[d].user_data], &done[d], all, counts);
            ended++;
        }
    }
    EXPECT(all || pthread_join(thread, NULL) == 0);
    EXPECT(ended == submitted && counts[0] > 0 && counts[1] > 0);
    leat_close(session);
    (void)printf("%s: %u answered, %u refused%s\n", application, counts[0], counts[1], all ? "" : ", while members change");
}

/* Its policy, if it follows one that is not the daemon's own. */
static const char *
make_policy(const char *mode)
{
    static struct command command;
    static char policy_path[192];
    char profiles_path[192];

    (void)snprintf(profiles_path, sizeof(profiles_path), "%s/profiles.csv", leatd.root.path);
    (void)snprintf(policy_path, sizeof(policy_path), "%s/%s.policy", leatd.root.path, mode);
    FILE *file = fopen(profiles_path, "w");
    EXPECT(file != NULL && fputs(profiles, file) >= 0 && fclose(file) == 0);
    const char *const arguments[] = {"policy", "generate", "--profiles", profiles_path, "--objective", "2ms", "--workers", "2",
                                     "--rates", "1000,10000", "--mode", mode, "--output", policy_path, NULL};
    EXPECT(command_run(&command, leatd.socket_path, arguments) == 0);
    return policy_path;
}

static void
test_selector(const char *application, const char *selector, const char *router, const char *policy)
{
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    char text[640];

    (void)snprintf(text, sizeof(text),
                   "{\"op\":\"app-add\",\"name\":\"%s\",\"models\":[\"fine\",\"rough\",\"fair\"],\"latency_ns\":2000000,"
                   "\"drop_late\":false,\"selector\":\"%s\",\"router\":\"%s\",\"policy\":\"%s\"}",
                   application, selector, router, policy);
    json_decref(leatd_request(session, text));
    ask_many(application, QUERIES, true);
    ask_many(application, 100, false);
    leat_close(session);
}

int
main(void)
{
    leat_test_init();
    leatd_init(&leatd);
    leatd_start(&leatd, yaml);
    for (size_t i = 0; leat_selector_at(i) != NULL; i++) {
        const char *name = leat_selector_at(i)->name;
        const bool switches = strcmp(name, "model_switching") == 0;
        test_selector(name, name, "auto", switches ? make_policy("switching") : "auto");
    }
    test_selector("dealt", "mdp", "dealt", make_policy("dealt"));
    leatd_end(&leatd, SIGTERM);
    leatd_fini(&leatd);
    return 0;
}
