/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What `leat bench` says adds up and is possible: every query meant for the window is accounted for once, no more
 *          is answered than the worker can do, and an answer is late by the objective that holds for it.
 * Method   leatd with one worker and synthetic models whose times are known. What is expected holds however slow the
 *          machine is: a model never takes less than its time.
 */
#include <signal.h>
#include <math.h>

#include "base/align.h"
#include "tests/system/leatd.h"
#include "tests/tools/command.h"

#define SLOW_S   0.005 /* of the model "slow" */
#define WARMUP_S 0.1
#define WINDOW_S 0.5
#define OFFERED  499 /* at 1000/s, at least */

static struct leatd leatd;

/* Runs it and returns what it printed, whose sums have been checked. */
static json_t *
bench(const char *const *arguments)
{
    static struct command command;
    const char *all[30] = {"bench", "--json"};
    size_t count = 2;

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
    static const char *const ends[] = {"ok", "rejected", "expired", "cancelled", "failed", "lost"};
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
    EXPECT(leatd_number(r, "samples") == leatd_number(r, "ok"));
    EXPECT(leatd_number(r, "window_in_time") <= leatd_number(r, "window_ok"));
    EXPECT(near(real(r, "offered_qps") * window_s, (double)offered));
    EXPECT(near(real(r, "throughput_qps") * window_s, (double)leatd_number(r, "window_ok")));
    EXPECT(near(real(r, "goodput_qps") * window_s, (double)leatd_number(r, "window_in_time")));
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
    const char *const arguments[] = {target,     "--rate", "1000",       "--duration", "500ms",
                                     "--warmup", "100ms",  "--arrivals", "constant",   objective != NULL ? "--latency" : NULL,
                                     objective,  NULL};
    json_t *r = bench(arguments);

    check_sums(r);
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
    EXPECT((double)leatd_number(r, "unsent") >= OFFERED - answers_in(WARMUP_S + WINDOW_S) - SLOTS);
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

    check_sums(r);
    EXPECT(leatd_number(r, "objective_ns") == 1000000 && leatd_number(r, "in_time") == 0);
    EXPECT(leatd_number(r, "late") == leatd_number(r, "ok") && leatd_number(r, "ok") == leatd_number(r, "sent"));
    EXPECT(near(real(r, "violation_rate"), 1) && real(r, "goodput_qps") == 0.0);
    json_decref(r);
    r = bench(given); /* what is given goes before it */
    check_sums(r);
    EXPECT(leatd_number(r, "objective_ns") == 3600000000000 && leatd_number(r, "violated") == 0);
    json_decref(r);
}

static void
test_several_processes(void)
{
    static const char *const arguments[] = {"slow", "--rate", "100", "--duration", "1s", "--warmup", "0",
                                            "--processes", "3", "--arrivals", "bursty", "--seed", "7", NULL};
    json_t *r = bench(arguments), *again = bench(arguments);

    check_sums(r);
    EXPECT(leatd_number(r, "processes") == 3 && leatd_number(r, "violated") == 0);
    EXPECT(leatd_number(again, "offered") == leatd_number(r, "offered")); /* the same seed, the same arrivals */
    json_decref(r);
    json_decref(again);
}

static void
test_arrivals_from_file(void)
{
    static struct command command;
    char path[160];

    (void)snprintf(path, sizeof(path), "%s/times", leatd.root.path);
    const char *const arguments[] = {"slow", "--arrivals", path, "--duration", "200ms", "--warmup", "100ms", NULL};
    const char *const wrong[] = {"bench", "slow", "--arrivals", path, NULL};
    fake_root_write(&leatd.root, "/times", "# two in the warm-up, three in the window, two behind it\n"
                                          "0.01\n0.09\n0.11\n0.2\n0.29\n0.31\n7\n");
    json_t *r = bench(arguments);
    check_sums(r);
    EXPECT(leatd_number(r, "offered") == 3 && leatd_number(r, "ok") == 3);
    json_decref(r);
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

int
main(void)
{
    leat_test_init();
    leatd_init(&leatd);
    leatd_start(&leatd, "workers: [{count: 1}]\n"
                      "models:\n"
                      "  - {name: slow, backend: synthetic, items_max: 1, synthetic: {latency: 5ms}}\n"
                      "applications:\n"
                      "  - {name: strict, models: [slow], latency: 20ms, late: drop}\n"
                      "  - {name: patient, models: [slow], latency: 1ms, late: serve}\n");
    test_overload_without_objective();
    test_overload_with_objective("strict", NULL);
    test_overload_with_objective("slow", "20ms");
    test_overload_with_objective("patient", "20ms");
    test_application_objective();
    test_several_processes();
    test_arrivals_from_file();
    test_unknown_target();
    leatd_signal(&leatd, SIGTERM);
    EXPECT(leatd_await_end(&leatd) == 0);
    leatd_fini(&leatd);
    return 0;
}
