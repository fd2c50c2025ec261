/* SPDX-License-Identifier: Apache-2.0 */
/* leat bench: an open-loop load generator. */
#include "tools/cli/bench.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "tools/cli/cli.h"
#include "tools/cli/output.h"

static void
print_bench_help(void)
{
    (void)printf(
        "usage: leat bench NAME --rate QPS [OPTION...]\n"
        "       leat bench NAME --search --rate-min QPS --rate-max QPS [OPTION...]\n\n"
        "Open-loop load on an application, model or pipeline: queries leave at times that do not depend on the answers, and latency\n"
        "counts from when a query was due. With a seed the queries are the same, however many processes send them.\n\n"
        "offered     queries due in the measured time\n"
        "answered    answers that came in the measured time; 'in time' (goodput): those within the objective\n"
        "violated    of those offered, the ones late, refused, expired, failed or lost, those without an answer after the\n"
        "            drain, and those not sent: all of a process's slots were taken until both measured time and\n"
        "            objective were over\n"
        "latency     of those offered and answered, in time or late; those unanswered or not sent count with their age\n"
        "            at the end, which is less than their latency would be\n"
        "sending     how long after they were due, and a slot was free, queries left: if that is not far below the\n"
        "            latencies, the load generator is what was measured\n\n"
        "  --rate QPS          mean queries per second, over all processes\n"
        "  --duration TIME     measured time (default 5s), after\n"
        "  --warmup TIME       time not measured (default 500ms)\n"
        "  --queries N         measure until so many were offered, instead of a time\n"
        "  --drain TIME        wait so long for answers after the measured time, or the objective if that is longer\n"
        "                      (default 30s)\n"
        "  --processes N       client processes, which start together and send in turn (default 1)\n"
        "  --slots N           queries that each may have in flight (default 256); what else is due waits for a slot\n"
        "  --arrivals KIND     constant, poisson (default), bursty, or a file of times in seconds, one a line, counted\n"
        "                      from the start of the warm-up; with --rate they are scaled to it and begin at once. A\n"
        "                      number behind each time is the query's items\n"
        "  --burst-factor F    bursty: rate in a burst over rate outside (default 5)\n"
        "  --burst-share S     bursty: fraction of time in bursts (default 0.1)\n"
        "  --burst-mean TIME   bursty: mean length of a burst (default 100ms)\n"
        "  --latency TIME      latency objective (default: the application's; a model by its own name has none)\n"
        "  --accuracy-floor SHARE  no variant that is less accurate, such as 0.9\n"
        "  --cost-cap PRICE    what each answer may cost, in what prices of workers are in\n"
        "  --offline           queries wait until nobody else does; no latency objective but that of --latency\n"
        "  --items N           items per query (default 1)\n"
        "  --sizes SIZES       items per query drawn from a CSV file with items and perhaps weight, or from\n"
        "                      gaussian:MEAN:DEVIATION, as leat simulate draws them; no larger than the model's batch:\n"
        "                      a file's are refused, a Gaussian's cut to that and counted\n"
        "  --inputs FILE.npy   input 0, cycled through; zeros without it\n"
        "  --labels FILE.npy   class of each input; measures the accuracy of the answers\n"
        "  --course FILE       CSV of each tenth of a second: queries that were due in it, and those answered in time\n"
        "  --seed N            (default 1)\n"
        "  --json              one JSON object\n"
        "  --socket PATH       the daemon's socket\n\n"
        "  --search            find the highest rate that keeps the objective, a run for each that is tried\n"
        "  --rate-min QPS, --rate-max QPS   between these\n"
        "  --violations SHARE  of queries that may be violated, such as 1%% (default)\n"
        "  --tolerance SHARE   how near it is found (default 1%%)\n\n"
        "example: leat bench digits --rate 2000 --processes 2 --latency 10ms --inputs v.npy --labels l.npy\n"
        "         leat bench digits --search --rate-min 100 --rate-max 1e5 --queries 5000 --latency 10ms\n");
}

static bool
parse_bench_options(int argc, char **argv, struct bench_options *options)
{
    enum { SEARCH = 256, RATE_MIN, RATE_MAX, VIOLATIONS, TOLERANCE, FLOOR, CAP, OFFLINE, SLOTS, COURSE };
    static const struct option known[] = {
        {"socket", required_argument, NULL, 's'},       {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},               {"rate", required_argument, NULL, 'r'},
        {"duration", required_argument, NULL, 'd'},     {"warmup", required_argument, NULL, 'w'},
        {"queries", required_argument, NULL, 'q'},      {"drain", required_argument, NULL, 'D'},
        {"processes", required_argument, NULL, 'p'},    {"arrivals", required_argument, NULL, 'a'},
        {"latency", required_argument, NULL, 'l'},      {"items", required_argument, NULL, 'n'},
        {"sizes", required_argument, NULL, 'z'},        {"inputs", required_argument, NULL, 'i'},
        {"labels", required_argument, NULL, 'L'},       {"seed", required_argument, NULL, 'S'},
        {"burst-factor", required_argument, NULL, 'F'}, {"burst-share", required_argument, NULL, 'B'},
        {"burst-mean", required_argument, NULL, 'M'},   {"search", no_argument, NULL, SEARCH},
        {"rate-min", required_argument, NULL, RATE_MIN}, {"rate-max", required_argument, NULL, RATE_MAX},
        {"violations", required_argument, NULL, VIOLATIONS}, {"tolerance", required_argument, NULL, TOLERANCE},
        {"accuracy-floor", required_argument, NULL, FLOOR}, {"cost-cap", required_argument, NULL, CAP},
        {"offline", no_argument, NULL, OFFLINE}, {"slots", required_argument, NULL, SLOTS},
        {"course", required_argument, NULL, COURSE},
        {NULL, 0, NULL, 0},
    };
    bool good = true;
    int option;

    *options = (struct bench_options){
        .arrivals_text = "poisson", .warmup_ns = 500000000u, .drain_ns = 30000000000u, .processes = 1, .slots = 256,
        .seed = 1,
        .burst_factor = 5, .burst_share = 0.1, .burst_mean_ns = 100000000u, .violation_share = 0.01, .tolerance = 0.01};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 's': options->socket_path = optarg; break;
        case 'j': options->json = true; break;
        case 'h': options->help = true; break;
        case 'a': options->arrivals_text = optarg; break;
        case 'z': options->sizes_text = optarg; break;
        case 'i': options->inputs_path = optarg; break;
        case 'L': options->labels_path = optarg; break;
        case 'r': good = parse_double(optarg, 0.001, 1e8, &options->rate_qps); break;
        case 'd': good = parse_duration_ns(optarg, &options->duration_ns) && options->duration_ns > 0; break;
        case 'w': good = parse_duration_ns(optarg, &options->warmup_ns); break;
        case 'q': good = parse_u64(optarg, 1, UINT32_MAX, &options->queries); break;
        case 'D': good = parse_duration_ns(optarg, &options->drain_ns); break;
        case 'l':
            good = parse_duration_ns(optarg, &options->objective_ns) && options->objective_ns > 0;
            options->objective_given = true;
            break;
        case 'M': good = parse_duration_ns(optarg, &options->burst_mean_ns) && options->burst_mean_ns > 0; break;
        case 'p': good = parse_u64(optarg, 1, BENCH_PROCESSES_MAX, &options->processes); break;
        case 'n': good = parse_u64(optarg, 1, LEAT_ITEMS_MAX, &options->items); break;
        case 'S': good = parse_u64(optarg, 0, UINT64_MAX, &options->seed); break;
        case 'F': good = parse_double(optarg, 1.001, 1e6, &options->burst_factor); break;
        case 'B': good = parse_double(optarg, 0.001, 0.999, &options->burst_share); break;
        case SEARCH: options->search = true; break;
        case RATE_MIN: good = parse_double(optarg, 0.001, 1e8, &options->rate_min_qps); break;
        case RATE_MAX: good = parse_double(optarg, 0.001, 1e8, &options->rate_max_qps); break;
        case VIOLATIONS: good = parse_share(optarg, &options->violation_share); break;
        case FLOOR: good = parse_double(optarg, 0, 1, &options->accuracy_floor); break;
        case CAP: good = parse_double(optarg, 1e-9, UINT32_MAX / 1e9, &options->cost_cap); break;
        case OFFLINE: options->offline = true; break;
        case COURSE: options->course_path = optarg; break;
        case SLOTS: good = parse_u64(optarg, 1, BENCH_SLOTS_MAX, &options->slots); break;
        case TOLERANCE: good = parse_share(optarg, &options->tolerance) && options->tolerance >= 1e-4; break;
        default: good = false; break;
        }
    }
    if (!good) {
        (void)option_error("bench", argv);
        return false;
    }
    if (!options->help && optind + 1 != argc) {
        (void)usage_error("bench", "one application or model, please");
        return false;
    }
    options->target = argv[optind];
    return true;
}

/* What has to be said, and what contradicts itself; and what follows from what was not said. */
static int
check_options(struct bench_options *options)
{
    const bool ranged = options->rate_min_qps > 0 || options->rate_max_qps > 0;

    if (options->labels_path != NULL && options->inputs_path == NULL) {
        return usage_error("bench", "--labels without --inputs");
    }
    if (options->queries > 0 && options->duration_ns > 0) {
        return usage_error("bench", "--queries or --duration, not both");
    }
    if (options->sizes_text != NULL && options->items > 0) {
        return usage_error("bench", "--items or --sizes, not both");
    }
    if (ranged && !options->search) {
        return usage_error("bench", "--rate-min and --rate-max go with --search");
    }
    if (options->search && options->course_path != NULL) {
        return usage_error("bench", "--course is of one run: not with --search");
    }
    if (options->search && (options->rate_qps > 0 || !(options->rate_min_qps > 0) ||
                            !(options->rate_min_qps < options->rate_max_qps))) {
        return usage_error("bench", "--search needs --rate-min and a larger --rate-max, but no --rate");
    }
    options->duration_ns = options->duration_ns == 0 && options->queries == 0 ? 5000000000u : options->duration_ns;
    return EXIT_DONE;
}

/* Fills in the arrival process; a file is read here, before anything starts. */
static int
prepare_arrivals(struct bench_options *options)
{
    static const char *const names[] = {"constant", "poisson", "bursty"};
    struct arrivals *arrivals = &options->arrivals;

    *arrivals = (struct arrivals){
        .kind = ARRIVALS_FILE,
        .burst_factor = options->burst_factor,
        .burst_share = options->burst_share,
        .burst_mean_s = (double)options->burst_mean_ns / 1e9,
    };
    for (size_t i = 0; i < LEAT_COUNT_OF(names); i++) {
        if (strcmp(options->arrivals_text, names[i]) == 0) {
            arrivals->kind = (enum arrivals_kind)i;
        }
    }
    if (arrivals->kind != ARRIVALS_FILE) {
        return options->rate_qps > 0 || options->search ? EXIT_DONE : usage_error("bench", "--rate is needed");
    }
    const enum leat_status status = arrivals_read_file(options->arrivals_text, &options->trace);
    if (status != LEAT_OK) {
        return report_status("bench", "--arrivals, neither constant, poisson nor bursty", status);
    }
    arrivals->times_s = options->trace.times_s;
    arrivals->time_count = options->trace.count;
    if ((options->rate_qps > 0 || options->search) &&
        !(arrivals_own_rate_qps(arrivals->times_s, arrivals->time_count) > 0)) {
        return usage_error("bench", "no time passes between the arrivals in %s: there is nothing to scale",
                           options->arrivals_text);
    }
    if (options->trace.items != NULL && (options->sizes_text != NULL || options->items > 0)) {
        return usage_error("bench", "%s has the items of its queries: no --items and no --sizes", options->arrivals_text);
    }
    return EXIT_DONE;
}

static int
prepare_sizes(struct bench_options *options)
{
    options->items = options->items == 0 ? 1 : options->items;
    if (options->sizes_text == NULL) {
        return EXIT_DONE;
    }
    enum leat_status status = simulate_sizes_parse(options->sizes_text, &options->sizes);
    if (status == LEAT_OK) {
        status = simulate_draw_init(&options->sizes, &options->draw);
    }
    return status == LEAT_OK ? EXIT_DONE : report_status("bench", "sizes", status);
}

/* What the daemon says of the application or pipeline; NULL where it has none of that name, which is reported later. The caller's. */
static json_t *
ask_application(const struct bench_options *options, int *ret_exit)
{
    json_t *status = ask_daemon_list("bench", options->socket_path, json_pack("{s:s}", "op", "status"), "applications", ret_exit);
    json_t *found = find_named(json_object_get(status, "applications"), options->target);

    found = json_incref(found != NULL ? found : find_named(json_object_get(status, "pipelines"), options->target));
    json_decref(status);
    return found;
}

json_t *
bench_ask_names(const struct bench_options *options, int *ret_exit)
{
    *ret_exit = EXIT_DONE;
    json_t *application = ask_application(options, ret_exit);
    json_t *names = json_incref(json_object_get(application, "models"));
    json_decref(application);
    return names;
}

/* The application's objective, where none was given, and which stages it has if it is a pipeline. */
static int
learn_target(struct bench_options *options)
{
    int exit_code = EXIT_DONE;
    json_t *application = ask_application(options, &exit_code);
    const json_t *stages = json_object_get(application, "stages");

    if (!options->objective_given && !options->offline) {
        options->objective_ns = (uint64_t)json_integer_value(json_object_get(application, "latency_ns"));
    }
    for (size_t s = 0; s < json_array_size(stages) && s < BENCH_STAGES_MAX; s++) {
        (void)snprintf(options->stages[s], sizeof(options->stages[s]), "%s", text_of(json_array_get(stages, s), "name"));
        options->stage_count++;
    }
    json_decref(application);
    return exit_code;
}

static int
bench(const struct bench_options *options)
{
    struct bench_summary summary;

    if (options->search) {
        return options->objective_ns > 0 ? bench_search(options) : usage_error("bench", "--search needs --latency");
    }
    if (isatty(STDERR_FILENO) != 0) {
        (void)fprintf(stderr, "measuring %s ...\n", options->target);
    }
    const int exit_code = bench_run(options, options->rate_qps, &summary);
    if (exit_code == EXIT_DONE) {
        bench_report(options, &summary);
        json_decref(summary.names_before);
        json_decref(summary.names_after);
    }
    return exit_code;
}

int
verb_bench(int argc, char **argv)
{
    struct bench_options options;

    if (!parse_bench_options(argc, argv, &options)) {
        return EXIT_USAGE;
    }
    if (options.help) {
        print_bench_help();
        return EXIT_DONE;
    }
    int exit_code = check_options(&options);
    exit_code = exit_code == EXIT_DONE ? output_check("bench", "--course", options.course_path) : exit_code;
    exit_code = exit_code == EXIT_DONE ? prepare_arrivals(&options) : exit_code;
    exit_code = exit_code == EXIT_DONE ? prepare_sizes(&options) : exit_code;
    exit_code = exit_code == EXIT_DONE ? learn_target(&options) : exit_code;
    exit_code = exit_code == EXIT_DONE ? bench(&options) : exit_code;
    simulate_draw_fini(&options.draw);
    simulate_sizes_free(&options.sizes);
    arrivals_trace_free(&options.trace);
    return exit_code;
}
