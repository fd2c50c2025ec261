/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     leat pool plan proposes what sched/pool.h says, from files and from a daemon's own measurements, sizes and
 *          prices; what it lacks or cannot use it says.
 * Method   Files small enough to work the bounds out by hand. Then leatd with synthetic workers of two classes, whose
 *          batches take no less than a table says, and queries of known sizes.
 */
#include <jansson.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#include "tests/system/leatd.h"
#include "tests/tools/command.h"

#define FROM_FILES(TIMES, BUDGET, OBJECTIVE)                                                                             \
    "pool", "plan", "--profile", TIMES, "--model", "m", "--prices", prices, "--sizes", sizes, "--budget", BUDGET,        \
        "--objective", OBJECTIVE
#define PLENTY "--budget", "10", "--objective", "1s"

static struct leatd leatd;
static uint32_t base_cores; /* of a worker of the daemon's class 'base' */
static char profile[200], unlucky[200], prices[200], sizes[200];

static json_t *
plan(const char *const *arguments)
{
    struct command command;
    const int exit_code = command_run(&command, leatd.socket_path, arguments);
    if (exit_code != 0) {
        (void)fprintf(stderr, "%s%s", command.out, command.err);
    }
    EXPECT(exit_code == 0);
    json_t *answer = json_loads(command.out, 0, NULL);
    EXPECT(answer != NULL);
    return answer;
}

static void
refused(int exit_code, const char *part, const char *const *arguments)
{
    struct command command;
    EXPECT(command_run(&command, leatd.socket_path, arguments) == exit_code);
    if (strstr(command.err, part) == NULL) {
        (void)fprintf(stderr, "%s\nlacks: %s\n", command.err, part);
    }
    EXPECT(strstr(command.err, part) != NULL && command.out[0] == '\0');
}

static uint64_t
workers_in(const json_t *candidate, const char *class)
{
    return leatd_number(json_object_get(candidate, "mix"), class);
}

static double
bound_of(const json_t *candidate)
{
    return json_number_value(json_object_get(candidate, "bound_qps"));
}

/*
 * Half of the queries have 1 item, half 2. The base takes 1 ms and 3 ms, 500 queries a second. The auxiliary takes 2 ms and
 * 9 ms; with 5 ms allowed it is good for half of the queries, which are a quarter of the base's time: Qa = 500 a second,
 * Qb+ = 500 * (1/2) / (3/4) = 1000/3.
 */
static void
test_from_files(void)
{
    const char *const arguments[] = {FROM_FILES(profile, "2.5", "5ms"), "--json", "--by", "bound", NULL};
    json_t *answer = plan(arguments);
    const json_t *ranked = json_object_get(answer, "ranked"), *aux = json_array_get(json_object_get(answer, "classes"), 0);
    bool seen_one = false, seen_pair = false;
    size_t i;
    json_t *row;

    EXPECT(strcmp(json_string_value(json_object_get(aux, "name")), "aux") == 0);
    EXPECT(leatd_number(aux, "cut_items") == 2 && leatd_number(aux, "price_micro_per_hour") == 500000);
    EXPECT(json_real_value(json_object_get(aux, "small_share")) == 0.5 && leatd_number(aux, "count_max") == 3);
    EXPECT(json_is_true(json_object_get(json_array_get(json_object_get(answer, "classes"), 1), "base")));
    EXPECT(json_object_get(answer, "current") == NULL && leatd_number(answer, "objective_ns") == 5000000);
    EXPECT(leatd_number(answer, "mixes") == 6); /* 1 base and 0 to 3, 2 and 0 or 1 */
    EXPECT(json_array_size(ranked) == 6);
    json_array_foreach(ranked, i, row) {
        const uint64_t base = workers_in(row, "base"), aux_count = workers_in(row, "aux");
        EXPECT(leatd_number(row, "cost_micro_per_hour") == 1000000 * base + 500000 * aux_count);
        EXPECT(i == 0 || bound_of(row) <= bound_of(json_array_get(ranked, i - 1)));
        if (base == 1 && aux_count == 0) {
            seen_one = true;
            EXPECT(fabs(bound_of(row) - 500) < 1e-6);
        }
        if (base == 1 && aux_count == 1) { /* the base is the bottleneck: all of Qb+ twice */
            seen_pair = true;
            EXPECT(fabs(bound_of(row) - 2000.0 / 3) < 1e-6);
        }
    }
    EXPECT(seen_one && seen_pair && workers_in(json_object_get(answer, "selected"), "base") >= 1);
    json_decref(answer);

    /* Simulated, the mix that costs most here serves most, and each seed's choice is the same twice. */
    const char *const simulated[] = {FROM_FILES(profile, "2.5", "20ms"), "--router", "fcfs", "--seed", "7", "--json", NULL};
    answer = plan(simulated);
    const json_t *chosen = json_object_get(answer, "selected");
    EXPECT(strcmp(json_string_value(json_object_get(answer, "by")), "simulation") == 0);
    const double rate_qps = json_number_value(json_object_get(chosen, "simulated_qps"));
    EXPECT(workers_in(chosen, "base") == 2 && workers_in(chosen, "aux") == 1);
    EXPECT(rate_qps > 500 && rate_qps < bound_of(chosen));
    json_t *again = plan(simulated);
    EXPECT(json_equal(answer, again));
    json_decref(again);
    json_decref(answer);

    /* One base serves 500 a second, however long the objective; where no run would be long enough, that is said. */
    const char *const patient[] = {FROM_FILES(profile, "1", "4s"), "--router", "fcfs", "--json", NULL};
    answer = plan(patient);
    const double patient_qps = json_number_value(json_object_get(json_object_get(answer, "selected"), "simulated_qps"));
    EXPECT(patient_qps > 480 && patient_qps < 530);
    json_decref(answer);
    struct command command;
    const char *const endless[] = {FROM_FILES(profile, "1", "1000s"), "--router", "fcfs", NULL};
    EXPECT(command_run(&command, leatd.socket_path, endless) == 0);
    EXPECT(strstr(command.err, "warning: simulated 200000 queries") != NULL);

    /* For people, three digits will do. */
    const char *const shown[] = {FROM_FILES(profile, "2.5", "20ms"), "--router", "fcfs", "--seed", "7", NULL};
    char told[64];
    (void)snprintf(told, sizeof(told), "it serves about %.0f queries a second",
                   rate_qps < 1000 ? rate_qps : round(rate_qps / 10) * 10);
    EXPECT(command_run(&command, leatd.socket_path, shown) == 0 && strstr(command.out, told) != NULL);

    /* Prices and counts can be given; then no auxiliary is affordable. */
    const char *const overridden[] = {FROM_FILES(profile, "2.5", "5ms"), "--json", "--price", "aux=2", "--max", "base=1",
                                      "--top", "1", NULL};
    answer = plan(overridden);
    EXPECT(leatd_number(answer, "mixes") == 1 && json_array_size(json_object_get(answer, "ranked")) == 1);
    EXPECT(workers_in(json_object_get(answer, "selected"), "base") == 1);
    json_decref(answer);

    refused(1, "does not pay for one worker of class 'base'",
            (const char *const[]){FROM_FILES(profile, "0.5", "5ms"), NULL});
    refused(1, "no mix of 2.5 an hour holds the objective of 5.00 ms: even of few queries more than 1 % are late",
            (const char *const[]){FROM_FILES(unlucky, "2.5", "5ms"), NULL});
    refused(2, "--cores is for a daemon's workers",
            (const char *const[]){FROM_FILES(profile, "2.5", "5ms"), "--cores", "4", NULL});
    refused(1, "class 'base', the base, misses the objective of 2.00 ms: 2 items take it 3.00 ms",
            (const char *const[]){FROM_FILES(profile, "5", "2ms"), NULL}); /* not even the base */
    refused(2, "needs --model", (const char *const[]){"pool", "plan", "--profile", profile, "--budget", "5", NULL});
    refused(2, "profile.csv has no class 'x'",
            (const char *const[]){FROM_FILES(profile, "5", "5ms"), "--max", "x=1", NULL});
    refused(2, "no router 'x'; there are clockwork, ",
            (const char *const[]){FROM_FILES(profile, "5", "5ms"), "--router", "x", NULL});
    refused(2, "--price: '1' is malformed", (const char *const[]){"pool", "plan", "a", "--price", "1", NULL});
    refused(2, "--price: 'a=b=-1' is malformed", (const char *const[]){"pool", "plan", "a", "--price", "a=b=-1", NULL});
    refused(2, "--budget is needed", (const char *const[]){"pool", "plan", "a", NULL});
    refused(2, "say what to do", (const char *const[]){"pool", "--budget", "1", NULL});
}

static void
ask(struct leat_session *session, uint32_t items, uint32_t times)
{
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_completion done;
    struct leat_target target;

    EXPECT(leat_find(session, "app", &target) == LEAT_OK);
    query.target = target.id;
    query.items = items;
    for (uint32_t t = 0; t < 2; t++) {
        EXPECT(leat_tensor_alloc(session, target.tensors[t].item_bytes * items, &query.tensors[t]) == LEAT_OK);
    }
    for (uint32_t i = 0; i < times; i++) {
        EXPECT(leat_run(session, &query, &done) == LEAT_OK && done.outcome == LEAT_OUTCOME_OK);
    }
}

/* Of 1 to 4 of the base and up to 2 auxiliaries, of a core each, those that have the cores. */
static uint64_t
mixes_on(uint64_t cores)
{
    uint64_t mixes = 0;
    for (uint64_t base = 1; base <= 4; base++) {
        for (uint64_t aux = 0; aux <= 2; aux++) {
            mixes += base * base_cores + aux <= cores;
        }
    }
    return mixes;
}

static void
expect_core_bounds(struct leat_session *session)
{
    const char *const here[] = {"pool", "plan", "app", PLENTY, "--by", "bound", "--json", "--cores", "7", NULL};
    const char *const shown[] = {"pool", "plan", "app", PLENTY, "--by", "bound", "--cores", "3", NULL};
    json_t *topology = leatd_request(session, "{\"op\":\"topology\"}"), *answer = plan(here), *row;
    const uint64_t cores = leatd_number(json_object_get(topology, "placement"), "worker_cores");
    struct command command;
    char told[100];
    size_t i;

    EXPECT(leatd_number(answer, "cores") == 7 && leatd_number(answer, "mixes") == mixes_on(7));
    EXPECT(leatd_number(answer, "mixes_beyond_cores") == 4 * 3 - mixes_on(7));
    json_array_foreach(json_object_get(answer, "ranked"), i, row) {
        EXPECT(workers_in(row, "base") * base_cores + workers_in(row, "aux") <= 7);
    }
    json_decref(answer);

    EXPECT(command_run(&command, leatd.socket_path, shown) == 0);
    (void)snprintf(told, sizeof(told), "have the 3 cores that workers can take (--cores); left out are %u that need more",
                   (unsigned)(4 * 3 - mixes_on(3)));
    EXPECT(strstr(command.out, told) != NULL);

    EXPECT(cores >= 1); /* as many as the machine has, unless told */
    if (mixes_on(cores) > 0) {
        answer = plan((const char *const[]){"pool", "plan", "app", PLENTY, "--by", "bound", "--json", NULL});
        EXPECT(leatd_number(answer, "cores") == cores && leatd_number(answer, "mixes") == mixes_on(cores));
        json_decref(answer);
    } else {
        refused(1, "a worker of class 'base', the base, has 2 cores, but workers have 1 here",
                (const char *const[]){"pool", "plan", "app", PLENTY, NULL});
    }
    json_decref(topology);
}

static void
test_from_the_daemon(void)
{
    char yaml[1000];
    cpu_set_t usable;
    const char *const arguments[] = {"pool", "plan", "app", PLENTY, "--json", "--cores", "100", "--by", "bound", NULL};

    EXPECT(sched_getaffinity(0, sizeof(usable), &usable) == 0);
    base_cores = CPU_COUNT(&usable) > 1 ? 2 : 1;
    (void)snprintf(yaml, sizeof(yaml),
                   "classes: [{name: base, price: 1, count_max: 4}, {name: aux, price: 0.125}]\n"
                   "workers: [{class: base, count: 1, cores: %u}, {class: aux, count: 2}]\n"
                   "models:\n"
                   "  - {name: m, backend: synthetic, items_max: 2, synthetic: {times: %s, times_model: m}}\n"
                   "applications:\n"
                   "  - {name: app, models: [m], selector: single, late: serve}\n",
                   base_cores, profile);
    leatd_start(&leatd, yaml);
    refused(2, "has seen no query of 'app' yet", arguments);
    struct leat_session *session = leatd_open_session(&leatd, 4, 1 << 16);
    ask(session, 1, 6);
    ask(session, 2, 2);

    json_t *answer = plan(arguments);
    const json_t *current = json_object_get(answer, "current");
    EXPECT(leatd_number(answer, "queries_seen") == 8 && leatd_number(answer, "mixes") == 4 * 3);
    EXPECT(leatd_number(answer, "cores") == 100 && leatd_number(answer, "mixes_beyond_cores") == 0);
    EXPECT(workers_in(current, "base") == 1 && workers_in(current, "aux") == 2);
    EXPECT(leatd_number(current, "cost_micro_per_hour") == 1250000);
    /* A batch takes what the table says, or longer: 1.5 ms on average of 6 queries of 1 and 2 of 2, and 3.75 ms. */
    EXPECT(bound_of(current) > 0 && bound_of(current) < 1 / 1.5e-3 + 2 / 3.75e-3);
    json_decref(answer);

    answer = plan((const char *const[]){"pool", "plan", "app", PLENTY, "--json", "--cores", "100", NULL});
    const json_t *selected = json_object_get(answer, "selected"); /* nothing has to wait so long: all that there is */
    EXPECT(workers_in(selected, "base") == 4 && workers_in(selected, "aux") == 2);
    EXPECT(json_number_value(json_object_get(selected, "simulated_qps")) > 100);
    json_decref(answer);

    expect_core_bounds(session);
    json_t *profiles = leatd_request(session, "{\"op\":\"profiles\",\"name\":\"app\"}");
    const json_t *classes = json_object_get(profiles, "classes");
    EXPECT(json_number_value(json_object_get(profiles, "percentile")) == 95);
    EXPECT(leatd_number(profiles, "items_max") == 2 && json_array_size(classes) == 2);
    static const uint64_t least_ns[2][2] = {{1000000, 3000000}, {2000000, 9000000}};
    for (size_t c = 0; c < 2; c++) {
        const json_t *class = json_array_get(classes, c), *points = json_object_get(class, "points");
        const bool base = strcmp(json_string_value(json_object_get(class, "name")), "base") == 0;
        EXPECT(json_array_size(points) == 2);
        for (size_t i = 0; i < 2; i++) {
            const json_t *point = json_array_get(points, i);
            EXPECT(json_integer_value(json_array_get(point, 0)) == (json_int_t)i + 1);
            EXPECT(json_integer_value(json_array_get(point, 1)) >= (json_int_t)least_ns[!base][i]);
            EXPECT(json_integer_value(json_array_get(point, 2)) > 0);
        }
    }
    json_decref(profiles);

    refused(3, "there is no application or model 'none'",
            (const char *const[]){"pool", "plan", "none", "--budget", "1", NULL});
    refused(3, "'variant' must be 0 to 0",
            (const char *const[]){"pool", "plan", "app", "--variant", "1", "--budget", "1", NULL});
    refused(2, "no worker of class 'x', so it knows no times of it: give it one",
            (const char *const[]){"pool", "plan", "app", PLENTY, "--base", "x", NULL});
    refused(2, "no latency objective", (const char *const[]){"pool", "plan", "app", "--budget", "1", NULL});
    refused(2, "nothing has a price",
            (const char *const[]){"pool", "plan", "app", PLENTY, "--price", "aux=0", "--price", "base=0", NULL});
    leat_close(session);
    leatd_signal(&leatd, SIGTERM);
    EXPECT(leatd_await_end(&leatd) == 0);
}

int
main(void)
{
    leat_test_init();
    leatd_init(&leatd);
    fake_root_write(&leatd.root, "/profile.csv", "model,instance,batch,mean_ms\n"
                                                 "m,aux,1,2\nm,aux,2,9\nm,base,1,1\nm,base,2,3\nn,base,1,1\n");
    fake_root_write(&leatd.root, "/unlucky.csv", "model,instance,batch,s0,s1\n" /* half of all batches last too long */
                                                 "m,aux,1,2,9\nm,aux,2,2,9\nm,base,1,1,6\nm,base,2,1,6\n");
    fake_root_write(&leatd.root, "/prices.csv", "instance,price_usd_per_hour,max_count_in_search\nbase,1,2\naux,0.5,3\n");
    fake_root_write(&leatd.root, "/sizes.csv", "items,weight\n1,3\n2,3\n");
    (void)snprintf(profile, sizeof(profile), "%s/profile.csv", leatd.root.path);
    (void)snprintf(unlucky, sizeof(unlucky), "%s/unlucky.csv", leatd.root.path);
    (void)snprintf(prices, sizeof(prices), "%s/prices.csv", leatd.root.path);
    (void)snprintf(sizes, sizeof(sizes), "%s/sizes.csv", leatd.root.path);
    test_from_files();
    test_from_the_daemon();
    leatd_fini(&leatd);
    return 0;
}
