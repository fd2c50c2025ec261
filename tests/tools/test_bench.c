/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What `leat bench` says adds up and is possible: every query meant for the window is accounted for once, no more
 *          is answered than the worker can do, and an answer is late by the objective that holds for it. The queries follow
 *          from the seed, however many processes send them, and are the simulator's. No process starts without the others.
 * Method   leatd with one worker and synthetic models whose times are known. What is expected holds however slow the
 *          machine is: a model never takes less than its time.
 */
#include <signal.h>
#include <math.h>

#include "base/align.h"
#include "tests/system/leatd.h"
#include "tests/tools/command.h"
#include "tools/simulate/simulate.h"

#define SLOW_S   0.005 /* of the model "slow" */
#define WARMUP_S 0.1
#define WINDOW_S 0.5
#define OFFERED  499 /* at 1000/s, at least */

static struct leatd leatd;

/* The tenths of a second of the run that was written last add up to it, and cover its window. */
static void
check_course(const json_t *r, const char *path)
{
    FILE *file = fopen(path, "r");
    uint64_t offered = 0, in_time = 0, seconds_10 = 0;
    unsigned long long second, tenth, due, answered;

    EXPECT(file != NULL && fscanf(file, "second,offered,in_time ") == 0);
    while (fscanf(file, "%llu.%1llu,%llu,%llu ", &second, &tenth, &due, &answered) == 4) {
        EXPECT(second * 10 + tenth == seconds_10 && answered <= due);
        offered += due;
        in_time += answered;
        seconds_10++;
    }
    EXPECT(feof(file) && fclose(file) == 0);
    EXPECT(offered == leatd_number(r, "offered") && in_time == leatd_number(r, "in_time"));
    EXPECT(seconds_10 == (uint64_t)(json_real_value(json_object_get(r, "window_s")) * 10 + 1e-6) + 1);
}

/* Runs it and returns what it printed. */
static json_t *
run_bench(const char *const *arguments)
{
    static struct command command;
    char course[sizeof(leatd.root.path) + 16];
    const char *all[32] = {"bench", "--json", "--course", course};
    size_t count = 4;

    (void)snprintf(course, sizeof(course), "%s/course.csv", leatd.root.path);
    for (const char *const *word = arguments; *word != NULL; word++) {
        count = strcmp(*word, "--search") == 0 ? 2 : count;
    }
    const bool with_course = count == 4;
    while (*arguments != NULL) {
        EXPECT(count < LEAT_COUNT_OF(all) - 1);
        all[count++] = *arguments++;
    }
    if (command_run(&command, leatd.socket_path, all) != 0) {
        (void)fprintf(stderr, "%s", command.err);
        EXPECT(!"leat bench ends well");
    }
    json_t *r = json_loads(command.out, JSON_REJECT_DUPLICATES, NULL);
    EXPECT(json_is_object(r));
    if (with_course) {
        check_course(r, course);
    }
    return r;
}

static double
real(const json_t *r, const char *key)
{
    const json_t *value = json_object_get(r, key);
    EXPECT(json_is_real(value));
    return json_real_value(value);
}

static bool
near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static void
check_sums(const json_t *r)
{
    static const char *const ends[] = {"ok", "rejected", "expired", "cancelled", "failed", "lost", "unanswered"};
    uint64_t ended = 0;

    for (size_t i = 0; i < LEAT_COUNT_OF(ends); i++) {
        ended += leatd_number(r, ends[i]);
    }
    const uint64_t offered = leatd_number(r, "offered"), in_time = leatd_number(r, "in_time");
    const double window_s = real(r, "window_s");
    EXPECT(leatd_number(r, "sent") == ended);
    EXPECT(offered == leatd_number(r, "sent") + leatd_number(r, "unsent"));
    EXPECT(leatd_number(r, "ok") == in_time + leatd_number(r, "late"));
    EXPECT(offered == in_time + leatd_number(r, "violated"));
    EXPECT(offered > 0 && fabs(real(r, "violation_rate") - (double)leatd_number(r, "violated") / (double)offered) < 1e-9);
    EXPECT(leatd_number(r, "samples") == leatd_number(r, "ok") + leatd_number(r, "unanswered") + leatd_number(r, "unsent"));
    EXPECT(leatd_number(r, "slot_waits") <= leatd_number(r, "sent") && leatd_number(r, "items") >= offered);
    EXPECT(real(r, "send_delay_p50_ns") <= real(r, "send_delay_p99_ns"));
    EXPECT(real(r, "send_delay_p99_ns") <= real(r, "send_delay_max_ns"));
    EXPECT((real(r, "send_delay_max_ns") > 0) == (leatd_number(r, "sent") > 0)); /* to leave takes time */
    EXPECT(leatd_number(r, "window_in_time") <= leatd_number(r, "window_ok"));
    EXPECT(near(real(r, "offered_qps") * window_s, (double)offered));
    EXPECT(near(real(r, "throughput_qps") * window_s, (double)leatd_number(r, "window_ok")));
    EXPECT(near(real(r, "goodput_qps") * window_s, (double)leatd_number(r, "window_in_time")));
    const json_t *variants = json_object_get(r, "variants"), *variant;
    uint64_t of_variants = 0, in_time_of_variants = 0;
    size_t v;
    json_array_foreach(variants, v, variant) {
        of_variants += leatd_number(variant, "ok");
        in_time_of_variants += leatd_number(variant, "in_time");
    }
    EXPECT(json_is_array(variants) && of_variants == leatd_number(r, "ok") && in_time_of_variants == in_time);
}

static json_t *
bench(const char *const *arguments)
{
    json_t *r = run_bench(arguments);
    check_sums(r);
    return r;
}

/* The most that one worker can answer in this time. */
static double
answers_in(double seconds)
{
    return seconds / SLOW_S + 1;
}

/* 1000/s, where 200/s can be answered. */
static json_t *
overload(const char *target, const char *objective)
{
    const char *const arguments[] = {
        target,     "--rate", "1000",       "--duration", "500ms",
        "--warmup", "100ms",  "--arrivals", "constant",   objective != NULL ? "--latency" : NULL,
        objective,  NULL};
    json_t *r = bench(arguments);

    const uint64_t offered = leatd_number(r, "offered");
    EXPECT(offered >= OFFERED && offered <= OFFERED + 2);
    EXPECT((double)leatd_number(r, "window_ok") <= answers_in(WARMUP_S + WINDOW_S));
    EXPECT(leatd_number(r, "samples") == 0 || real(r, "latency_p50_ns") >= SLOW_S * 1e9);
    EXPECT(near(real(r, "window_s"), WINDOW_S));
    return r;
}

static void
test_overload_without_objective(void)
{
    enum { SLOTS = 256 };
    json_t *r = overload("slow", NULL);

    EXPECT(leatd_number(r, "objective_ns") == 0 && leatd_number(r, "late") == 0);
    /* Until the end, and what the slots held then. The rest was never sent, and is not forgotten. */
    EXPECT((double)leatd_number(r, "ok") <= answers_in(WARMUP_S + WINDOW_S) + SLOTS);
    const uint64_t unsent = leatd_number(r, "unsent");
    EXPECT((double)unsent >= OFFERED - answers_in(WARMUP_S + WINDOW_S) - SLOTS && leatd_number(r, "slot_waits") > 0);
    /* They count as old as they were when what the slots held had been answered; that is more than one in a hundred. */
    EXPECT(unsent > 5 && real(r, "latency_p99_ns") >= (SLOTS - 1) * SLOW_S * 1e9);
    json_decref(r);
}

/* Those that cannot be in time are refused or expire; those that were, came before the window's end and 20 ms. */
static void
test_overload_with_objective(const char *target, const char *objective)
{
    json_t *r = overload(target, objective);

    EXPECT(leatd_number(r, "objective_ns") == 20000000);
    EXPECT((double)leatd_number(r, "in_time") <= answers_in(WARMUP_S + WINDOW_S + 0.02));
    EXPECT(real(r, "violation_rate") >= 1 - answers_in(WARMUP_S + WINDOW_S + 0.02) / OFFERED);
    json_decref(r);
}

/* Everything is answered, and everything late: the objective is the application's own, 1 ms, and the model takes 5. */
static void
test_application_objective(void)
{
    static const char *const arguments[] = {"patient", "--rate", "40", "--duration", "500ms", "--warmup", "100ms", NULL};
    static const char *const given[] = {"patient",  "--rate", "40",        "--duration", "500ms",
                                        "--warmup", "100ms",  "--latency", "3600s",      NULL};
    json_t *r = bench(arguments);

    EXPECT(leatd_number(r, "objective_ns") == 1000000 && leatd_number(r, "in_time") == 0);
    EXPECT(leatd_number(r, "late") == leatd_number(r, "ok") && leatd_number(r, "ok") == leatd_number(r, "sent"));
    EXPECT(near(real(r, "violation_rate"), 1) && real(r, "goodput_qps") == 0.0);
    json_decref(r);
    r = bench(given); /* what is given goes before it */
    EXPECT(leatd_number(r, "objective_ns") == 3600000000000 && leatd_number(r, "violated") == 0);
    json_decref(r);
}

/* Each answer says what its variant stands for: the better one where there is time for it, else the other. */
static const json_t *
variant_of(const json_t *r, const char *name)
{
    const json_t *variant;
    size_t v;

    json_array_foreach(json_object_get(r, "variants"), v, variant) {
        const char *its = json_string_value(json_object_get(variant, "variant"));
        if (its != NULL && strcmp(its, name) == 0) {
            return variant;
        }
    }
    EXPECT(!"a variant of that name");
    return NULL;
}

static void
test_stated_accuracy(void)
{
    static const char *const patient[] = {"graded",  "--rate", "100",       "--queries", "10",      "--warmup",
                                          "0",       "--latency", "3600s", "--processes", "2", NULL};
    static const char *const hasty[] = {"graded", "--rate", "100", "--queries", "10", "--warmup", "0", "--latency", "2ms", NULL};
    json_t *r = bench(patient);

    EXPECT(json_array_size(json_object_get(r, "variants")) == 2 && near(real(r, "stated_accuracy"), 0.75));
    EXPECT(leatd_number(variant_of(r, "rough"), "ok") == 0 && leatd_number(r, "in_time") == 10);
    EXPECT(near(real(r, "served_accuracy"), 0.75) && near(real(variant_of(r, "fine"), "accuracy"), 0.75));
    EXPECT(json_object_get(variant_of(r, "rough"), "accuracy") == NULL); /* nobody has said */
    json_decref(r);
    r = bench(hasty);
    EXPECT(leatd_number(r, "ok") == 10 && leatd_number(variant_of(r, "rough"), "in_time") == leatd_number(r, "in_time"));
    const double of_fine = (double)leatd_number(variant_of(r, "fine"), "ok") / 10; /* which serves late ones, if there are any */
    EXPECT(near(real(r, "served_accuracy"), 0.5 + 0.25 * of_fine));
    if (leatd_number(r, "in_time") > 0) { /* none on a machine that stood still meanwhile */
        EXPECT(near(real(r, "stated_accuracy"), 0.5));
    } else {
        EXPECT(json_object_get(r, "stated_accuracy") == NULL);
    }
    json_decref(r);
    static const char *const unknown[] = {"slow", "--rate", "100", "--queries", "2", "--warmup", "0", NULL};
    r = bench(unknown);
    EXPECT(leatd_number(r, "in_time") == 2 && json_object_get(r, "stated_accuracy") == NULL);
    json_decref(r);
}

/* What queries ask for beside a time is heeded: by a floor all go to the variant that has no time for it, by a cap to the other. */
static void
test_what_queries_ask_for(void)
{
    static const char *const floor[] = {"graded", "--rate", "100", "--queries", "10", "--warmup", "0", "--latency", "2ms",
                                        "--accuracy-floor", "0.6", NULL};
    static const char *const cap[] = {"graded", "--rate", "100", "--queries", "10", "--warmup", "0", "--latency", "3600s",
                                      "--cost-cap", "0.000001", NULL}; /* of a millisecond */
    static const char *const both[] = {"graded", "--rate", "100", "--queries", "10", "--warmup", "0", "--accuracy-floor",
                                       "0.6", "--cost-cap", "0.000001", NULL};
    static const char *const offline[] = {"strict", "--rate", "1000", "--queries", "100", "--warmup", "0", "--offline", NULL};
    json_t *r = bench(floor);

    EXPECT(leatd_number(variant_of(r, "fine"), "ok") == 10 && leatd_number(r, "late") == 10);
    EXPECT(near(real(r, "served_accuracy"), 0.75) && json_object_get(r, "stated_accuracy") == NULL);
    EXPECT(leatd_number(r, "accuracy_floor_ppm") == 600000 && leatd_number(r, "cost_cap_nano") == 0);
    json_decref(r);
    r = bench(cap);
    EXPECT(leatd_number(variant_of(r, "rough"), "ok") == 10 && leatd_number(r, "cost_cap_nano") == 1000);
    json_decref(r);
    r = bench(both);
    EXPECT(leatd_number(r, "rejected") == 10 && json_is_false(json_object_get(r, "offline")));
    json_decref(r);
    r = bench(offline); /* five times what can be answered, and nobody refuses */
    EXPECT(leatd_number(r, "ok") == 100 && leatd_number(r, "late") == 0 && leatd_number(r, "objective_ns") == 0);
    EXPECT(json_is_true(json_object_get(r, "offline")));
    json_decref(r);
}

static void
test_several_processes(void)
{
    static const char *const arguments[] = {"slow", "--rate", "100", "--duration", "1s", "--warmup", "0",
                                            "--processes", "3", "--arrivals", "bursty", "--seed", "7", NULL};
    json_t *r = bench(arguments), *again = bench(arguments);

    EXPECT(leatd_number(r, "processes") == 3 && leatd_number(r, "violated") == 0);
    EXPECT(leatd_number(again, "offered") == leatd_number(r, "offered")); /* the same seed, the same arrivals */
    json_decref(r);
    json_decref(again);
}

/* Without an end of the wait they would be answered, after seconds. */
static void
test_unanswered(void)
{
    static const char *const arguments[] = {"stuck",    "--rate", "1000",       "--queries", "20",      "--warmup", "0",
                                            "--drain", "0",      "--arrivals", "constant",  NULL};
    json_t *r = bench(arguments);

    EXPECT(leatd_number(r, "offered") == 20 && leatd_number(r, "sent") == 20 && leatd_number(r, "unanswered") > 0);
    EXPECT(leatd_number(r, "violated") == leatd_number(r, "unanswered") && leatd_number(r, "unsent") == 0);
    EXPECT(real(r, "latency_max_ns") >= 20e6 - 1); /* the first, due at 1 ms, of a measured time of 21 */
    json_decref(r);
}

/* The same queries, however many processes share them; as many as asked for; and those that the simulator makes. */
static void
test_queries(const char *arrivals, const char *sizes_text)
{
    enum { QUERIES = 100, ITEMS_MAX = 1000 };
    static const char *const counts[] = {"1", "2", "7"};
    struct simulate_workload_options options = {.seed = 5, .query_count = QUERIES + 1, .items_max = ITEMS_MAX};
    struct simulate_workload workload;
    uint64_t items = 0, clipped = 0;

    EXPECT(simulate_sizes_parse(sizes_text, &options.sizes) == LEAT_OK);
    options.arrivals = strcmp(arrivals, "poisson") == 0 ? ARRIVALS_POISSON : ARRIVALS_CONSTANT;
    EXPECT(simulate_workload_make(&options, &workload) == LEAT_OK);
    for (int i = 0; i < QUERIES; i++) {
        items += workload.items[i];
    }
    struct simulate_workload uncut;
    options.items_max = 0;
    EXPECT(simulate_workload_make(&options, &uncut) == LEAT_OK);
    for (int i = 0; i < QUERIES; i++) {
        clipped += uncut.items[i] > ITEMS_MAX;
    }
    simulate_workload_free(&uncut);
    EXPECT((clipped > 0) == (options.sizes.count == 0)); /* else the seed or the Gaussian tests nothing */
    for (size_t i = 0; i < LEAT_COUNT_OF(counts); i++) {
        const char *const arguments[] = {"wide",   "--rate",    "2000",  "--queries",   "100",      "--warmup",
                                         "0",      "--seed",    "5",     "--sizes",     sizes_text, "--arrivals",
                                         arrivals, "--latency", "3600s", "--processes", counts[i],  NULL};
        json_t *r = bench(arguments);
        EXPECT(leatd_number(r, "offered") == QUERIES && leatd_number(r, "items") == items);
        EXPECT(leatd_number(r, "clipped") == clipped);
        EXPECT(leatd_number(r, "violated") == 0); /* largest ones and all */
        /* It ends when the one is due that is too many. */
        EXPECT(fabs(real(r, "window_s") - workload.arrival_s[QUERIES] / 2000) < 2e-9);
        json_decref(r);
    }
    simulate_workload_free(&workload);
    simulate_sizes_free(&options.sizes);
}

static uint64_t
accepted_by(struct leat_session *session, const char *application_name)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}"), *application;
    uint64_t count = UINT64_MAX;
    size_t i;

    json_array_foreach(json_object_get(status, "applications"), i, application) {
        if (strcmp(json_string_value(json_object_get(application, "name")), application_name) == 0) {
            count = leatd_number(application, "accepted");
        }
    }
    EXPECT(count != UINT64_MAX);
    json_decref(status);
    return count;
}

/*
 * One process more than there may be sessions: whoever got one does not send. A daemon of its own, for sessions count until
 * their memory has been given back.
 */
static void
test_process_that_cannot_start(void)
{
    static const char *const arguments[] = {"bench", "one", "--rate", "1000", "--duration", "1s", "--processes", "4", NULL};
    static struct command command;
    static struct leatd full;

    leatd_init(&full);
    leatd_start(&full, "workers: [{count: 1}]\n"
                       "limits: {sessions_per_user: 4}\n"
                       "models: [{name: one, backend: synthetic, synthetic: {latency: 0}}]\n");
    struct leat_session *session = leatd_open_session(&full, 2, 4096);
    EXPECT(command_run(&command, full.socket_path, arguments) == 3 && command.out[0] == '\0');
    EXPECT(strstr(command.err, " of 4 processes failed: ") != NULL && strstr(command.err, "sessions") != NULL);
    EXPECT(accepted_by(session, "one") == 0);
    leat_close(session);
    leatd_signal(&full, SIGTERM);
    EXPECT(leatd_await_end(&full) == 0);
    leatd_fini(&full);
}

/* ---- Search ------------------------------------------------------------------------------------ */

/* Each trial is a whole report, and the answer is the highest rate that held; returns the trials. */
static const json_t *
check_search(const json_t *r, double tolerance)
{
    const json_t *trials = json_object_get(r, "trials"), *trial;
    double holds_qps = 0, fails_qps = INFINITY;
    size_t i;

    EXPECT(json_array_size(trials) > 0);
    json_array_foreach(trials, i, trial) {
        const double rate_qps = real(trial, "rate_qps");
        const bool holds = json_is_true(json_object_get(trial, "holds"));
        check_sums(trial);
        EXPECT(rate_qps >= real(r, "rate_min_qps") && rate_qps <= real(r, "rate_max_qps"));
        EXPECT(holds == (real(trial, "violation_rate") <= real(r, "violation_share")));
        EXPECT(json_is_true(json_object_get(trial, "generator_limited")) ==
               (leatd_number(trial, "unsent") > 0 ||
                real(trial, "send_delay_p99_ns") > floor((double)leatd_number(r, "objective_ns") / 20)));
        if (holds) {
            EXPECT(rate_qps > holds_qps && rate_qps < fails_qps);
            holds_qps = rate_qps;
        } else {
            EXPECT(rate_qps > holds_qps && rate_qps < fails_qps);
            fails_qps = rate_qps;
        }
    }
    EXPECT(real(r, "allowable_qps") == holds_qps);
    EXPECT(holds_qps == 0 || isinf(fails_qps) || holds_qps >= fails_qps * (1 - tolerance) - 1e-9);
    return trials;
}

/* Half of the queries may be violated. At 5000/s more are, whatever happens: of 50 in 10 ms, 7 can be in time. */
static void
test_search(void)
{
    static const char *const arguments[] = {"strict",       "--search",    "--rate-min",  "50",       "--rate-max",
                                            "5000",         "--queries",   "50",          "--warmup", "0",
                                            "--violations", "50%",         "--tolerance", "20%",      "--arrivals",
                                            "constant",     "--processes", "2",           NULL};
    json_t *r = run_bench(arguments);
    const json_t *trials = check_search(r, 0.2);
    const size_t count = json_array_size(trials);

    EXPECT(leatd_number(r, "objective_ns") == 20000000 && real(r, "violation_share") == 0.5);
    /* A factor of 100 is halved five times, as a power, before it is one of 1 / 0.8. */
    if (real(r, "allowable_qps") > 0) { /* 0 on a machine that stood still meanwhile */
        EXPECT(count == 2 + 5 && real(json_array_get(trials, 1), "rate_qps") == 5000);
        EXPECT(json_is_false(json_object_get(json_array_get(trials, 1), "holds")));
    }
    json_decref(r);
}

static void
test_search_beyond_its_range(void)
{
    static const char *const all[] = {"slow", "--search", "--rate-min", "20",        "--rate-max", "100", "--queries",
                                      "5",    "--warmup", "0",          "--latency", "3600s",      NULL};
    static const char *const none[] = {"patient",   "--search", "--rate-min", "20", "--rate-max", "100",
                                       "--queries", "5",        "--warmup",   "0",  NULL};
    json_t *r = run_bench(all);

    EXPECT(json_array_size(check_search(r, 0.01)) == 2 && real(r, "allowable_qps") == 100.0);
    json_decref(r);
    r = run_bench(none); /* 1 ms, and the model takes 5 */
    EXPECT(json_array_size(check_search(r, 0.01)) == 1 && real(r, "allowable_qps") == 0.0);
    json_decref(r);
}

/* 1 % of 5 is no violation at all; 10 of 1000 are enough. */
static void
test_search_by_luck(void)
{
    static const char *const few[] = {"bench",     "slow", "--search", "--rate-min", "20",        "--rate-max", "100",
                                      "--queries", "5",    "--warmup", "0",          "--latency", "3600s",      NULL};
    static const char *const enough[] = {
        "bench", "wide",         "--search", "--rate-min", "5000", "--rate-max", "10000", "--queries",
        "20",    "--violations", "50%",      "--warmup",   "0",    "--latency",  "3600s", NULL};
    static struct command command;

    EXPECT(command_run(&command, leatd.socket_path, few) == 0);
    EXPECT(strstr(command.err, "0.05 violations of 5 queries") != NULL &&
           strstr(command.err, "1000 queries would allow 10") != NULL);
    EXPECT(command_run(&command, leatd.socket_path, enough) == 0 && strstr(command.err, "warning") == NULL);
}

/* ---- What is wrong ----------------------------------------------------------------------------- */

static void
test_wrong_options(void)
{
    static const struct {
        const char *arguments[10];
        int exit_code;
        const char *why;
    } cases[] = {
        {{"bench", "slow"}, 2, "--rate is needed"},
        {{"bench", "slow", "--rate", "10", "--queries", "1", "--duration", "1s"}, 2, "--queries or --duration"},
        {{"bench", "slow", "--rate", "10", "--items", "1", "--sizes", "gaussian:1:0"}, 2, "--items or --sizes"},
        {{"bench", "slow", "--rate", "10", "--rate-max", "20"}, 2, "go with --search"},
        {{"bench", "slow", "--search", "--rate-max", "20", "--latency", "1s"}, 2, "needs --rate-min"},
        {{"bench", "slow", "--search", "--rate-min", "20", "--rate-max", "20", "--latency", "1s"}, 2, "needs --rate-min"},
        {{"bench", "slow", "--search", "--rate-min", "10", "--rate-max", "20"}, 2, "needs --latency"},
        {{"bench", "slow", "--search", "--rate-min", "1", "--rate-max", "2", "--course", "c"}, 2, "of one run"},
        {{"bench", "slow", "--rate", "10", "--course", "/no/such/c"}, 1, "--course"},
        {{"bench", "strict", "--search", "--rate-min", "1", "--rate-max", "2", "--rate", "1"}, 2, "no --rate"},
        {{"bench", "slow", "--rate", "10", "--violations", "100%"}, 2, "--violations: '100%' is malformed"},
        {{"bench", "slow", "--rate", "10", "--accuracy-floor", "90%"}, 2, "--accuracy-floor: '90%' is malformed"},
        {{"bench", "slow", "--rate", "10", "--cost-cap", "0"}, 2, "--cost-cap: '0' is malformed"},
        {{"bench", "slow", "--rate", "10", "--sizes", "gaussian:1"}, 1, "gaussian:MEAN:DEVIATION"},
        {{"bench", "slow", "--rate", "10", "--sizes", "gaussian:0:1"}, 1, "mean 0"},
        {{"bench", "slow", "--rate", "10", "--sizes", "/nonexistent/sizes"}, 1, "/nonexistent/sizes"},
        {{"bench", "slow", "--rate", "10", "--items", "2"}, 1, "--items: queries of 2 items"},
        {{"bench", "slow", "--rate", "1e8", "--duration", "100s"}, 1, "more than 1000000000 queries"},
    };
    static struct command command;

    for (size_t i = 0; i < LEAT_COUNT_OF(cases); i++) {
        EXPECT(command_run(&command, leatd.socket_path, cases[i].arguments) == cases[i].exit_code);
        EXPECT(strstr(command.err, cases[i].why) != NULL && command.out[0] == '\0');
    }
}

static void
test_sizes_beyond_the_model(void)
{
    static struct command command;
    char path[160];

    (void)snprintf(path, sizeof(path), "%s/sizes", leatd.root.path);
    const char *const arguments[] = {"bench", "wide", "--rate", "10", "--sizes", path, "--processes", "2", NULL};
    fake_root_write(&leatd.root, "/sizes", "items,weight\n5,1\n1001,0.1\n");
    EXPECT(command_run(&command, leatd.socket_path, arguments) == 1);
    EXPECT(strstr(command.err,
                  "2 of 2 processes failed: --sizes: queries of 1001 items, but the model's largest batch is 1000"));
}

static void
test_arrivals_from_file(void)
{
    static struct command command;
    char path[160];

    (void)snprintf(path, sizeof(path), "%s/times", leatd.root.path);
    const char *const arguments[] = {"slow", "--arrivals", path, "--duration", "200ms", "--warmup", "100ms",
                                     "--processes", "2", NULL};
    const char *const all[] = {"slow", "--arrivals", path, "--queries", "100", "--warmup", "100ms", NULL};
    const char *const wrong[] = {"bench", "slow", "--arrivals", path, NULL};
    const char *const faster[] = {"slow", "--arrivals", path, "--rate", "100", "--warmup", "0", "--queries", "9", NULL};
    const char *const sized[] = {"wide", "--arrivals", path, "--rate", "100", "--warmup", "0", "--processes", "2", NULL};
    const char *const sized_once[] = {"bench", "wide", "--arrivals", path, "--rate", "100", NULL};
    const char *const sized_twice[] = {"bench", "wide", "--arrivals", path, "--items", "2", NULL};
    fake_root_write(&leatd.root, "/times", "# two in the warm-up, three in the window, two behind it\n"
                                          "0.01\n0.09\n0.11\n0.2\n0.29\n0.31\n7\n");
    json_t *r = bench(arguments);
    EXPECT(leatd_number(r, "offered") == 3 && leatd_number(r, "ok") == 3);
    json_decref(r);
    fake_root_write(&leatd.root, "/times", "0.01\n0.11\n0.2\n");
    r = bench(all); /* as many as there are */
    EXPECT(leatd_number(r, "offered") == 2 && leatd_number(r, "ok") == 2 && near(real(r, "window_s"), 0.1 + 1e-9));
    json_decref(r);
    fake_root_write(&leatd.root, "/times", "5\n5.5\n6\n6.5\n");
    r = bench(faster); /* the first at once, the next three in 30 ms */
    EXPECT(leatd_number(r, "offered") == 4 && near(real(r, "window_s"), 0.03 + 1e-9));
    json_decref(r);
    fake_root_write(&leatd.root, "/times", "5 7\n5.5 1000\n6 1\n6.5 20\n");
    r = bench(sized);
    EXPECT(leatd_number(r, "offered") == 4 && leatd_number(r, "items") == 1028 && leatd_number(r, "ok") == 4);
    json_decref(r);
    EXPECT(command_run(&command, leatd.socket_path, sized_twice) == 2 && strstr(command.err, "no --items") != NULL);
    fake_root_write(&leatd.root, "/times", "5 7\n6 1001\n");
    EXPECT(command_run(&command, leatd.socket_path, sized_once) == 1 &&
           strstr(command.err, "queries of 1001 items") != NULL);
    fake_root_write(&leatd.root, "/times", "5\n5\n");
    EXPECT(command_run(&command, leatd.socket_path, sized_once) == 2 && strstr(command.err, "nothing to scale") != NULL);
    fake_root_write(&leatd.root, "/times", "0.01\nlater\n");
    EXPECT(command_run(&command, leatd.socket_path, wrong) == 1 && strstr(command.err, "times:2: expected a time") != NULL);
}

static void
test_unknown_target(void)
{
    static const char *const arguments[] = {"bench", "nobody", "--rate", "10", "--duration", "10ms", NULL};
    static struct command command;

    EXPECT(command_run(&command, leatd.socket_path, arguments) == 3);
    EXPECT(strstr(command.err, "no application or model 'nobody'") != NULL);
}

/* Takes members away and adds them again while a run goes on, whose process looks at names no earlier than that. */
static json_t *
bench_while_members_change(struct leat_session *session, const char *const *changes)
{
    enum { QUERIES = 40 };
    static const char *const arguments[] = {"bench",    "changing", "--rate", "40", "--queries", "40",
                                            "--warmup", "0",        "--json", NULL};
    static struct command command, other;

    for (;;) {
        const uint64_t before = accepted_by(session, "changing");
        command_start(&command, leatd.socket_path, arguments);
        while (accepted_by(session, "changing") < before + 3) {
            leat_test_look_later();
        }
        EXPECT(kill(command.pid, SIGSTOP) == 0);
        const bool goes_on = accepted_by(session, "changing") < before + QUERIES;
        for (uint32_t i = 0; goes_on && changes[i] != NULL; i += 2) {
            const char *const change[] = {"app", "change", "changing", changes[i], changes[i + 1], NULL};
            EXPECT(command_run(&other, leatd.socket_path, change) == 0);
        }
        EXPECT(kill(command.pid, SIGCONT) == 0);
        command_finish(&command);
        EXPECT(command.exit_code == 0);
        if (goes_on) {
            return json_loads(command.out, 0, NULL);
        }
    }
}

static bool
is_null_or(const json_t *value, const char *text)
{
    return text == NULL ? json_is_null(value) : json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* Where the application's v-th variant is another one after the run, nobody says which has answered. */
static void
test_members_that_change(void)
{
    static struct command command;
    static const char *const add[] = {"app", "add", "changing", "--models", "rough,fine,plain", "--selector", "fixed", NULL};
    static const char *const moves[] = {"--remove-models", "fine", "--models", "fine", NULL};
    static const char *const goes[] = {"--remove-models", "rough", NULL};
    static const struct {
        const char *const *changes;
        const char *before[3], *after[3];
    } cases[] = {
        {moves, {"rough", "fine", "plain"}, {"rough", "plain", "fine"}},
        {goes, {"rough", "plain", "fine"}, {"plain", "fine", NULL}},
    };
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);

    EXPECT(command_run(&command, leatd.socket_path, add) == 0);
    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        json_t *r = bench_while_members_change(session, cases[c].changes);
        const json_t *variants = json_object_get(r, "variants");
        check_sums(r);
        EXPECT(json_array_size(variants) == 3 && leatd_number(json_array_get(variants, 0), "ok") == 40);
        for (size_t v = 0; v < 3; v++) {
            const json_t *variant = json_array_get(variants, v), *changed = json_object_get(variant, "changed");
            const char *before = cases[c].before[v], *after = cases[c].after[v];
            const bool same = after != NULL && strcmp(before, after) == 0;
            EXPECT(is_null_or(json_object_get(variant, "variant"), same ? before : NULL));
            EXPECT(same ? changed == NULL : is_null_or(json_object_get(changed, "before"), before));
            EXPECT(same || (is_null_or(json_object_get(changed, "after"), after) && json_object_get(variant, "accuracy") == NULL));
        }
        json_decref(r);
    }
    leat_close(session);
}

/* It is told in words for who typed a command. */
static void
test_daemon_that_ends(void)
{
    static const char *const arguments[] = {"bench", "patient",   "--rate", "100", "--duration",
                                            "3600s", "--latency", "3600s",  NULL};
    static struct command command;
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    const uint64_t before = accepted_by(session, "patient");

    command_start(&command, leatd.socket_path, arguments);
    while (accepted_by(session, "patient") < before + 3) {
        leat_test_look_later();
    }
    leat_close(session);
    leatd_signal(&leatd, SIGTERM);
    EXPECT(leatd_await_end(&leatd) == 0);
    command_finish(&command);
    EXPECT(command.exit_code == 1 && command.out[0] == '\0');
    EXPECT(strstr(command.err, "leat bench: the daemon ended") != NULL && strstr(command.err, "leat_") == NULL);
}

int
main(void)
{
    char sizes_path[160];

    leat_test_init();
    leatd_init(&leatd);
    leatd_start(&leatd, "classes: [{name: cpu, price: 3.6}]\n" /* a microsecond of a worker costs 1e-9 */
                      "workers: [{count: 1}]\n"
                      "models:\n"
                      "  - {name: slow, backend: synthetic, items_max: 1, synthetic: {latency: 5ms}}\n"
                      "  - {name: stuck, backend: synthetic, items_max: 1, synthetic: {latency: 1s}}\n"
                      "  - {name: rough, backend: synthetic, accuracy: 0.5, synthetic: {latency: 100us}}\n"
                      "  - {name: fine, backend: synthetic, accuracy: 0.75, synthetic: {latency: 8ms}}\n"
                      "  - {name: plain, backend: synthetic, synthetic: {latency: 200us}}\n"
                      "  - {name: wide, backend: synthetic, items_max: 1000, synthetic: {latency: 0, per_item: 1us}}\n"
                      "applications:\n"
                      "  - {name: strict, models: [slow], latency: 20ms, late: drop}\n"
                      "  - {name: patient, models: [slow], latency: 1ms, late: serve}\n"
                      "  - {name: graded, models: [rough, fine], selector: greedy, latency: 1s, late: serve}\n");
    test_overload_without_objective();
    test_overload_with_objective("strict", NULL);
    test_overload_with_objective("slow", "20ms");
    test_overload_with_objective("patient", "20ms");
    test_application_objective();
    test_stated_accuracy();
    test_what_queries_ask_for();
    test_several_processes();
    test_arrivals_from_file();
    test_unknown_target();
    test_wrong_options();
    test_sizes_beyond_the_model();
    test_process_that_cannot_start();
    fake_root_write(&leatd.root, "/sizes", "items,weight\n1,1\n50,2\n1000,0.5\n");
    (void)snprintf(sizes_path, sizeof(sizes_path), "%s/sizes", leatd.root.path);
    test_queries("poisson", sizes_path);
    test_queries("constant", "gaussian:600:400");
    test_search();
    test_search_beyond_its_range();
    test_search_by_luck();
    test_unanswered();
    test_members_that_change();
    test_daemon_that_ends();
    leatd_fini(&leatd);
    return 0;
}
