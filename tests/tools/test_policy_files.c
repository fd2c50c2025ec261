/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     leat policy makes of files what sched/policy_solve.h makes of numbers, says what is in it and what it is good
 *          for, draws it, and refuses what is no policy or cannot be one.
 * Method   Profiles small enough to know the answer by hand, through the command line from CSV to JSON, and back from the
 *          file; files damaged in between.
 */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "sched/policy_table.h"
#include "tests/tools/command.h"

static struct fake_root root;
static char profile[200], accuracies[200], policy_path[200], other_path[200], svg_path[200];

static json_t *
leat(const char *const *arguments)
{
    struct command command;
    const int exit_code = command_run(&command, "/none", arguments);
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
    const int got = command_run(&command, "/none", arguments);
    if (got != exit_code || strstr(command.err, part) == NULL) {
        (void)fprintf(stderr, "%d: %s\nlacks: %s\n", got, command.err, part);
    }
    EXPECT(got == exit_code && strstr(command.err, part) != NULL && command.out[0] == '\0');
}

static double
number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    EXPECT(json_is_number(value));
    return json_number_value(value);
}

static const json_t *
rung_at(const json_t *answer, size_t index)
{
    return json_array_get(json_object_get(answer, "rungs"), index);
}

static size_t
read_file(const char *path, uint8_t *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    EXPECT(file != NULL);
    const size_t size = fread(bytes, 1, room, file);
    EXPECT(fclose(file) == 0 && size < room);
    return size;
}

static void
write_bytes(const char *path, const uint8_t *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

#define COMMON "--profile", profile, "--accuracies", accuracies, "--task", "t", "--objective", "100ms", "--workers", "4"

/*
 * At 1 query a second the workers are idle: every answer is that of the most accurate variant in time, and no policy can
 * better that. At 200 a query has 20 ms of a worker: most take the fast one.
 */
static void
test_one_queue(void)
{
    json_t *made = leat((const char *const[]){"policy", "generate", COMMON, "--rates", "1,200", "--output", policy_path,
                                              "--late", "drop", "--penalty", "0.5", "--json", NULL});
    json_t *shown = leat((const char *const[]){"policy", "show", policy_path, "--json", NULL});
    json_t *judged = leat((const char *const[]){"policy", "evaluate", policy_path, "--json", NULL});
    const json_t *variants = json_object_get(made, "variants"), *calm = rung_at(made, 0), *busy = rung_at(made, 1);

    EXPECT(strcmp(json_string_value(json_object_get(made, "kind")), "pool") == 0 && number(made, "workers") == 4);
    EXPECT(number(made, "objective_ns") == 1e8 && json_is_true(json_object_get(made, "drops_late")));
    EXPECT(number(made, "dispersion_permille") == 1000 && number(made, "late_penalty_permille") == 500);
    EXPECT(json_array_size(variants) == 4);
    EXPECT(strcmp(json_string_value(json_object_get(json_array_get(variants, 0), "name")), "fast") == 0);
    EXPECT(strcmp(json_string_value(json_object_get(json_array_get(variants, 1), "name")), "good") == 0);
    EXPECT(strcmp(json_string_value(json_object_get(json_array_get(variants, 3), "name")), "slow") == 0);
    EXPECT(number(json_array_get(variants, 1), "accuracy_ppm") == 800000);
    EXPECT(number(calm, "rate_qps") == 1 && number(busy, "rate_qps") == 200);
    EXPECT(fabs(number(calm, "accuracy_ppm") - 800000) < 100 && number(calm, "violation_ppb") < 1000);
    EXPECT(fabs(number(calm, "gain_ppm") - 800000) < 100 && number(calm, "bound_ppm") == 800000);
    EXPECT(number(busy, "accuracy_ppm") >= 500000 && number(busy, "accuracy_ppm") < 700000);
    EXPECT(number(busy, "gain_ppm") <= number(busy, "bound_ppm") &&
           number(busy, "gain_ppm") <= number(busy, "accuracy_ppm"));

    /* Show says the same, evaluate too, as there is nothing to compute it from. */
    (void)json_object_del(made, "path");
    (void)json_object_del(made, "solving_ns");
    EXPECT(json_equal(made, shown) && json_is_false(json_object_get(judged, "computed")));
    for (size_t r = 0; r < 2; r++) {
        EXPECT(fabs(number(rung_at(judged, r), "accuracy_share") * 1e6 - number(rung_at(made, r), "accuracy_ppm")) < 1);
        EXPECT(fabs(number(rung_at(judged, r), "bound_share") * 1e6 - number(rung_at(made, r), "bound_ppm")) < 1);
    }
    json_decref(made);
    json_decref(shown);
    json_decref(judged);
}

/* The bytes depend on nothing but what was asked: not on threads, not on how rates are named. */
static void
test_same_bytes(void)
{
    static uint8_t bytes[1 << 20], others[1 << 20];

    json_decref(leat((const char *const[]){"policy", "generate", COMMON, "--rates", "50:150:50", "--output", policy_path,
                                           "--jobs", "1", "--json", NULL}));
    json_decref(leat((const char *const[]){"policy", "generate", COMMON, "--rates", "50,100:150:50", "-o", other_path,
                                           "--jobs", "3", "--variants", "slow,good,fast,dull", "--json", NULL}));
    const size_t size = read_file(policy_path, bytes, sizeof(bytes));
    EXPECT(size == read_file(other_path, others, sizeof(others)) && memcmp(bytes, others, size) == 0);
}

/* RAMSIS' queues: what evaluate computes from the file is what solving said. */
static void
test_queues(void)
{
    static const char *const modes[] = {"paper", "dealt"}, *const lates[] = {"serve", "drop"};
    for (int i = 0; i < 4; i++) {
        const char *const arguments[] = {"policy",
                                         "generate",
                                         COMMON,
                                         "--rates",
                                         "20:100:40",
                                         "--output",
                                         policy_path,
                                         "--mode",
                                         modes[i % 2],
                                         "--queue",
                                         "8",
                                         "--slack-bins",
                                         "20",
                                         "--late",
                                         lates[i / 2],
                                         "--json",
                                         i == 3 ? "--batching" : NULL,
                                         "variable",
                                         "--grid",
                                         "latency",
                                         NULL};
        json_t *made = leat(arguments);
        json_t *judged = leat((const char *const[]){"policy", "evaluate", policy_path, "--json", NULL});

        EXPECT(strcmp(json_string_value(json_object_get(made, "kind")), "queue") == 0 && number(made, "queue_max") == 8);
        EXPECT(json_is_true(json_object_get(judged, "computed")) && json_array_size(json_object_get(judged, "rungs")) == 3);
        for (size_t r = 0; r < 3; r++) {
            const json_t *rung = rung_at(made, r), *value = rung_at(judged, r);
            const double room = i == 3 ? 0.02 : 1e-5; /* the grid is another */
            EXPECT(number(rung, "rate_qps") == 20 + 40 * (double)r && number(value, "rate_qps") == 20 + 40 * (double)r);
            EXPECT(fabs(number(value, "accuracy_share") - number(rung, "accuracy_ppm") / 1e6) < room);
            EXPECT(fabs(number(value, "violation_share") - number(rung, "violation_ppb") / 1e9) < room);
            EXPECT(fabs(number(value, "gain_share") - number(rung, "gain_ppm") / 1e6) < 2 * room);
            EXPECT(number(value, "accuracy_share") > 0.5 && number(value, "accuracy_share") < 0.85);
        }
        json_decref(made);
        json_decref(judged);
    }
}

/* By load alone: what is alone in time when idle is the most accurate, what carries much is the fastest. */
static void
test_switching(void)
{
    json_t *made = leat((const char *const[]){"policy", "generate", COMMON, "--rates", "1,200", "--output", policy_path, "--mode",
                                              "switching", "--variants", "fast,dull,good", "--json", NULL});

    EXPECT(strcmp(json_string_value(json_object_get(made, "kind")), "load") == 0 && number(made, "bytes") > 0);
    EXPECT(number(rung_at(made, 0), "accuracy_ppm") == 800000 && number(rung_at(made, 1), "accuracy_ppm") == 500000);
    json_decref(made);
    json_decref(leat((const char *const[]){"simulate", "--profiles", profile, "--accuracies", accuracies, "--task", "t",
                                           "--objective", "100ms", "--workers", "4", "--selector", "model_switching", "--policy",
                                           policy_path, "--variants", "fast,dull,good", "--rate", "10", "--duration", "1s", "--json", NULL}));
    refused(2, "none of --late to --split", (const char *const[]){"policy", "generate", COMMON, "--rates", "1", "--output",
                                                                  policy_path, "--mode", "switching", "--late", "drop", NULL});
}

static void
test_for_people(void)
{
    static uint8_t bytes[1 << 20];
    struct command command;

    json_decref(leat((const char *const[]){"policy", "generate", COMMON, "--rates", "40,200,2000", "--output", policy_path,
                                           "--spread", "0.1", "--dispersion", "1.5", "--json", NULL}));
    EXPECT(command_run(&command, "/none", (const char *const[]){"policy", "show", policy_path, "--svg", svg_path, NULL}) ==
           0);
    EXPECT(strstr(command.out, "pool, for 4 workers before one queue") != NULL);
    EXPECT(strstr(command.out, "objective   100.00 ms; late queries are served, priced at 2") != NULL);
    EXPECT(strstr(command.out, "standard deviation 0.1 of them") != NULL &&
           strstr(command.out, "dispersion 1.5\n") != NULL);
    EXPECT(strstr(command.out, "dull") != NULL && strstr(command.out, "80.000 %") != NULL);
    EXPECT(strstr(command.out, "\n      2000 ") != NULL);
    const size_t size = read_file(svg_path, bytes, sizeof(bytes));
    bytes[size] = '\0';
    const char *svg = (const char *)bytes;
    EXPECT(strncmp(svg, "<svg ", 5) == 0 && strcmp(svg + size - 7, "</svg>\n") == 0);
    EXPECT(strstr(svg, ">40 a second<") != NULL && strstr(svg, ">2000 a second<") != NULL);
    EXPECT(strstr(svg, ">good, 80.00 %<") != NULL && strstr(svg, "<title>given up</title>") != NULL);

    EXPECT(command_run(&command, "/none",
                       (const char *const[]){"policy", "generate", COMMON, "--rates", "7", "--variants", "front", "-o",
                                             other_path, NULL}) == 0);
    EXPECT(strstr(command.out, "3 variants, 1 rates") != NULL && strstr(command.out, "\n         7 ") != NULL);
}

static void
test_damage(void)
{
    static uint8_t bytes[1 << 20];
    const size_t size = read_file(policy_path, bytes, sizeof(bytes));
    const char *const show[] = {"policy", "show", other_path, "--json", NULL};
    const char *const evaluate[] = {"policy", "evaluate", other_path, NULL};

    bytes[size / 2] ^= 8;
    write_bytes(other_path, bytes, size);
    refused(1, "the checksum is wrong", show);
    refused(1, "the checksum is wrong", evaluate);
    bytes[size / 2] ^= 8;
    write_bytes(other_path, bytes, size - 64);
    refused(1, "bytes, but it says", show);
    write_bytes(other_path, bytes, 0);
    refused(1, "do not begin like one", show);
    bytes[8] = 2;
    write_bytes(other_path, bytes, size);
    refused(1, "generate it anew", evaluate);
    refused(1, other_path, evaluate);
    refused(1, "cannot open", (const char *const[]){"policy", "show", "/none/there", NULL});
    refused(1, "is no file of a policy", (const char *const[]){"policy", "show", "/", NULL});
}

static void
test_usage(void)
{
    static uint8_t before[1 << 20], after[1 << 20];
    const size_t size = read_file(policy_path, before, sizeof(before));

#define GENERATE(...) (const char *const[]){"policy", "generate", "--output", policy_path, __VA_ARGS__, NULL}
    refused(2, "say what to do", (const char *const[]){"policy", NULL});
    refused(2, "'mend' is nothing to do", (const char *const[]){"policy", "mend", NULL});
    refused(2, "show needs the file of one policy", (const char *const[]){"policy", "show", NULL});
    refused(2, "needs the file of one", (const char *const[]){"policy", "evaluate", policy_path, other_path, NULL});
    refused(2, "--svg is for show", (const char *const[]){"policy", "evaluate", policy_path, "--svg", svg_path, NULL});
    refused(2, "generate needs --profile", GENERATE("--rates", "1"));
    refused(2, "generate takes no 'more'", GENERATE(COMMON, "--rates", "1", "more"));
    refused(2, "--mode: 'fast' is malformed or out of range", GENERATE(COMMON, "--rates", "1", "--mode", "fast"));
    refused(2, "are for --mode leat", GENERATE(COMMON, "--rates", "1", "--mode", "paper", "--prompt"));
    refused(2, "are for --mode dealt and paper", GENERATE(COMMON, "--rates", "1", "--grid", "latency"));
    refused(2, "--queue is 256 at most", GENERATE(COMMON, "--rates", "1", "--mode", "paper", "--queue", "257"));
    refused(2, "'2:1:1' is neither", GENERATE(COMMON, "--rates", "2:1:1"));
    refused(2, "'1:2' is neither", GENERATE(COMMON, "--rates", "1:2"));
    refused(2, "3 comes after 5", GENERATE(COMMON, "--rates", "5,3"));
    refused(2, "there can be 256", GENERATE(COMMON, "--rates", "1:1000:1"));
    refused(1, "has no 'best' of task t", GENERATE(COMMON, "--rates", "1", "--variants", "best"));
    refused(
        1, "there are tasks",
        GENERATE("--profile", profile, "--accuracies", accuracies, "--objective", "1s", "--workers", "4", "--rates", "1"));
    refused(1, "an objective of 100 ns",
            GENERATE("--profile", profile, "--accuracies", accuracies, "--task", "t", "--objective", "100ns", "--workers",
                     "4", "--rates", "1"));
    refused(1, "cannot write",
            (const char *const[]){"policy", "generate", COMMON, "--rates", "1", "--output", "/none/there", NULL});
    EXPECT(size == read_file(policy_path, after, sizeof(after)) && memcmp(before, after, size) == 0);
}

int
main(void)
{
    leat_test_init();
    fake_root_init(&root);
    (void)snprintf(profile, sizeof(profile), "%s/profile.csv", root.path);
    (void)snprintf(accuracies, sizeof(accuracies), "%s/accuracies.csv", root.path);
    (void)snprintf(policy_path, sizeof(policy_path), "%s/a.policy", root.path);
    (void)snprintf(other_path, sizeof(other_path), "%s/b.policy", root.path);
    (void)snprintf(svg_path, sizeof(svg_path), "%s/a.svg", root.path);
    fake_root_write(&root, "/profile.csv",
                    "task,model,batch_size,p95_ms\n"
                    "t,good,1,50\nt,good,2,95\nt,good,3,140\n"
                    "t,fast,1,20\nt,fast,2,25\nt,fast,3,30\n"
                    "t,dull,1,60\nt,dull,2,99\nt,dull,3,150\n"
                    "t,slow,1,120\n"
                    "other,fast,1,1\n");
    fake_root_write(&root, "/accuracies.csv",
                    "task,model,accuracy\nt,good,80\nt,fast,50\nt,dull,70\nt,slow,90\nother,fast,2\n");
    test_one_queue();
    test_same_bytes();
    test_switching();
    test_queues();
    test_for_people();
    test_damage();
    test_usage();
    fake_root_fini(&root);
    return 0;
}
