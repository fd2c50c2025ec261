/* SPDX-License-Identifier: Apache-2.0 */
/* leat policy: policies that were solved ahead, in files. */
#include "tools/cli/policy.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/align.h"
#include "sched/policy_solve.h"
#include "tools/cli/cli.h"
#include "tools/cli/output.h"

#define FILE_BYTES_MAX (UINT64_C(1) << 30) /* what the limits of sched/policy_table.h come to is less */

struct viewing {
    const char *path, *svg_path;
    bool json, help;
};

/* ---- Files ------------------------------------------------------------------------------------- */

static enum leat_status
read_block(FILE *file, const char *path, struct leat_policy **ret_policy)
{
    const struct leat_policy *policy;
    struct stat info;

    if (fstat(fileno(file), &info) != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot read %s", path);
    }
    if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size > FILE_BYTES_MAX) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "%s is no file of a policy", path);
    }
    const size_t size = (size_t)info.st_size;
    void *memory = aligned_alloc(64, leat_round_up(size + 1, 64));
    if (memory == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %s", path);
    }
    const size_t got = fread(memory, 1, size, file);
    enum leat_status status = LEAT_OK;
    if (got != size) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot read %s", path);
    } else if ((status = leat_policy_check(memory, size, &policy)) != LEAT_OK) {
        (void)leat_err_prefix(status, "%s", path);
    }
    if (status != LEAT_OK) {
        free(memory);
        return status;
    }
    *ret_policy = memory;
    return LEAT_OK;
}

enum leat_status
policy_read(const char *path, struct leat_policy **ret_policy)
{
    FILE *file = fopen(path, "r");

    if (file == NULL) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot open %s", path);
    }
    const enum leat_status status = read_block(file, path, ret_policy);
    (void)fclose(file);
    return status;
}

/* ---- Fetch ------------------------------------------------------------------------------------- */

struct fetching {
    const char *name, *path, *socket_path;
    bool json, help;
};

static bool
parse_fetch_options(int argc, char **argv, struct fetching *fetching)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"socket", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    bool good = true;
    int option;

    *fetching = (struct fetching){0};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "ho:", options, NULL)) != -1) {
        switch (option) {
        case 'h': fetching->help = true; break;
        case 'j': fetching->json = true; break;
        case 'o': fetching->path = optarg; break;
        case 's': fetching->socket_path = optarg; break;
        default: good = false; break;
        }
    }
    if (!good) {
        (void)option_error("policy", argv);
        return false;
    }
    if (!fetching->help && (argc != optind + 1 || fetching->path == NULL)) {
        (void)usage_error("policy", "fetch needs an application and --output");
        return false;
    }
    fetching->name = argv[optind];
    return true;
}

static void
write_block(const void *of, FILE *out)
{
    const struct leat_policy *policy = of;
    (void)fwrite(policy, 1, policy->bytes, out);
}

/* The daemon writes to memory, which becomes the file once it has been checked. */
static int
fetch(int argc, char **argv)
{
    struct leat_policy *policy = NULL;
    struct fetching fetching;

    if (!parse_fetch_options(argc, argv, &fetching)) {
        return EXIT_USAGE;
    }
    if (fetching.help) {
        policy_print_help();
        return EXIT_DONE;
    }
    int exit_code = output_check("policy", "--output", fetching.path);
    if (exit_code != EXIT_DONE) {
        return exit_code;
    }
    FILE *file = fdopen(memfd_create("policy", MFD_CLOEXEC), "r+");
    if (file == NULL) {
        (void)LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a policy");
        return report_failure("policy");
    }
    json_t *reply = ask_daemon("policy", fetching.socket_path,
                               json_pack("{s:s, s:s}", "op", "app-policy", "name", fetching.name), fileno(file), &exit_code);
    if (reply != NULL && read_block(file, fetching.name, &policy) != LEAT_OK) {
        exit_code = report_failure("policy");
    }
    (void)fclose(file);
    json_decref(reply);
    const struct output output = {.path = fetching.path, .write = write_block};
    if (policy != NULL && output_write(&output, 1, policy) != LEAT_OK) {
        exit_code = report_failure("policy");
    } else if (policy != NULL && fetching.json) {
        print_json(policy_json(policy));
    }
    free(policy);
    return exit_code;
}

/* ---- Refresh ----------------------------------------------------------------------------------- */

static int
refresh(int argc, char **argv)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"socket", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    const char *socket_path = NULL;
    int option, exit_code = EXIT_DONE;
    bool json = false;

    opterr = 0;
    optind = 1;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'h': policy_print_help(); return EXIT_DONE;
        case 'j': json = true; break;
        case 's': socket_path = optarg; break;
        default: return option_error("policy", argv);
        }
    }
    if (argc != optind + 1) {
        return usage_error("policy", "refresh needs an application");
    }
    json_t *reply = ask_daemon("policy", socket_path,
                               json_pack("{s:s, s:s}", "op", "app-policy-refresh", "name", argv[optind]), -1, &exit_code);
    if (reply != NULL && json) {
        print_json(json_incref(reply));
    } else if (reply != NULL) {
        (void)printf("%s follows policy %lld\n", argv[optind], number_of(json_object_get(reply, "policy"), "versions"));
    }
    json_decref(reply);
    return exit_code;
}

/* ---- Show -------------------------------------------------------------------------------------- */

/* A share in percent; "-" where it is not known. */
static struct text
percent(double share, int digits)
{
    struct text text = {"-"};
    if (!isnan(share)) {
        (void)snprintf(text.text, sizeof(text.text), "%.*f %%", digits, share * 100);
    }
    return text;
}

static double
known(uint32_t parts, double unit)
{
    return parts == LEAT_POLICY_UNKNOWN ? NAN : parts / unit;
}

static double
known_gain(int32_t ppm)
{
    return ppm == LEAT_POLICY_GAIN_UNKNOWN ? NAN : ppm / 1e6;
}

static void
print_expectations(uint32_t rate_qps, double accuracy, double violation, double gain, double bound)
{
    (void)printf("%10u  %10s  %12s  %10s  %10s\n", rate_qps, percent(accuracy, 3).text, percent(violation, 5).text,
                 percent(gain, 3).text, percent(bound, 3).text);
}

static void
print_heading(void)
{
    (void)printf("%10s  %10s  %12s  %10s  %10s\n", "rate, q/s", "accuracy", "late", "gain", "at most");
}

void
policy_print_rungs(const struct leat_policy *policy)
{
    print_heading();
    for (uint32_t r = 0; r < policy->rung_count; r++) {
        const struct leat_policy_rung *rung = leat_policy_rung(policy, r);
        print_expectations(rung->rate_qps, known(rung->accuracy_ppm, 1e6), known(rung->violation_ppb, 1e9),
                           known_gain(rung->gain_ppm), known_gain(rung->bound_ppm));
    }
}

static void
print_unit(const struct leat_policy *policy)
{
    if (policy->unit_shift > 0) {
        (void)printf("unit        %u items count as one, here and below\n", 1u << policy->unit_shift);
    }
}

static void
print_policy(const struct leat_policy *policy)
{
    (void)printf("kind        %s, for %u workers", leat_policy_kind_text(policy->kind), policy->worker_count);
    (void)printf("%s\n", policy->kind == LEAT_POLICY_POOL   ? " before one queue"
                         : policy->kind == LEAT_POLICY_LOAD ? ", by load alone"
                         : policy->shortest != 0            ? " with queues of their own, the shortest first"
                                                            : " with queues of their own, dealt in turn");
    (void)printf("objective   %s; late queries are %s, priced at %g\n", format_ns((double)policy->objective_ns).text,
                 policy->drops_late != 0 ? "dropped" : "served", policy->late_penalty_permille / 1e3);
    (void)printf("arrivals    dispersion %g\n", policy->dispersion_permille / 1e3);
    if (policy->spread_permille > 0) {
        (void)printf("times       standard deviation %g of them\n", policy->spread_permille / 1e3);
    }
    print_unit(policy);
    (void)printf("table       %u that wait, %u bins of slack", policy->queue_max, policy->slack_bins);
    if (policy->idle_levels > 0) {
        (void)printf(", %u levels of idle workers with %u that wait", policy->idle_levels, policy->held_max);
    }
    (void)printf("; %s\n\n%-40s %10s %12s %12s\n", format_bytes((double)policy->bytes).text, "variant", "accuracy",
                 "1 item", "most items");
    for (uint32_t v = 0; v < policy->variant_count; v++) {
        const struct leat_policy_variant *variant = leat_policy_variant(policy, v);
        const uint64_t *latency_ns = leat_policy_latency_ns(policy, v);
        (void)printf("%-40s %10s %12s %12s\n", variant->name, percent(variant->accuracy_ppm / 1e6, 3).text,
                     format_ns((double)latency_ns[0]).text, format_ns((double)latency_ns[policy->latency_items - 1]).text);
    }
    (void)printf("\n");
    policy_print_rungs(policy);
}

static json_t *
integer_or_null(bool is_known, int64_t value)
{
    return is_known ? json_integer(value) : json_null();
}

json_t *
policy_json(const struct leat_policy *policy)
{
    json_t *variants = json_array(), *rungs = json_array();

    for (uint32_t v = 0; v < policy->variant_count; v++) {
        const struct leat_policy_variant *variant = leat_policy_variant(policy, v);
        json_t *latencies = json_array();
        for (uint32_t i = 0; i < policy->latency_items; i++) {
            (void)json_array_append_new(latencies, json_integer((json_int_t)leat_policy_latency_ns(policy, v)[i]));
        }
        (void)json_array_append_new(variants, json_pack("{s:s, s:I, s:o}", "name", variant->name, "accuracy_ppm",
                                                        (json_int_t)variant->accuracy_ppm, "latency_ns", latencies));
    }
    for (uint32_t r = 0; r < policy->rung_count; r++) {
        const struct leat_policy_rung *rung = leat_policy_rung(policy, r);
        (void)json_array_append_new(
            rungs,
            json_pack("{s:I, s:o, s:o, s:o, s:o}", "rate_qps", (json_int_t)rung->rate_qps, "accuracy_ppm",
                      integer_or_null(rung->accuracy_ppm != LEAT_POLICY_UNKNOWN, rung->accuracy_ppm), "violation_ppb",
                      integer_or_null(rung->violation_ppb != LEAT_POLICY_UNKNOWN, rung->violation_ppb), "gain_ppm",
                      integer_or_null(rung->gain_ppm != LEAT_POLICY_GAIN_UNKNOWN, rung->gain_ppm), "bound_ppm",
                      integer_or_null(rung->bound_ppm != LEAT_POLICY_GAIN_UNKNOWN, rung->bound_ppm)));
    }
    return json_pack("{s:I, s:s, s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "version",
                     (json_int_t)policy->version, "kind", leat_policy_kind_text(policy->kind), "objective_ns",
                     (json_int_t)policy->objective_ns, "workers", (json_int_t)policy->worker_count, "unit_items",
                     (json_int_t)1 << policy->unit_shift, "dispersion_permille",
                     (json_int_t)policy->dispersion_permille, "drops_late", (int)policy->drops_late,
                     "late_penalty_permille", (json_int_t)policy->late_penalty_permille, "spread_permille",
                     (json_int_t)policy->spread_permille, "split", policy->shortest != 0 ? "shortest_queue" : "round_robin",
                     "queue_max", (json_int_t)policy->queue_max, "slack_bins", (json_int_t)policy->slack_bins,
                     "idle_levels", (json_int_t)policy->idle_levels, "held_max", (json_int_t)policy->held_max, "bytes",
                     (json_int_t)policy->bytes, "variants", variants, "rungs", rungs);
}

/* ---- Evaluate ---------------------------------------------------------------------------------- */

/* The problem that the policy is for, by the times and accuracies that it holds. */
struct evaluation {
    const struct leat_policy *policy;
    struct leat_policy_problem problem;
    double accuracy[LEAT_POLICY_VARIANTS_MAX];
    double *latency_us;              /* [variant_count][latency_items] */
    struct leat_mdp_action *actions; /* [queue_max][slack_bins + 1] */
};

struct expectation {
    double accuracy, violation, gain, bound;
};

static enum leat_status
begin_evaluation(const struct leat_policy *policy, struct evaluation *evaluation)
{
    const size_t items = policy->latency_items;

    *evaluation = (struct evaluation){.policy = policy};
    evaluation->latency_us = calloc(policy->variant_count * items, sizeof(*evaluation->latency_us));
    evaluation->actions = calloc((size_t)policy->queue_max * (policy->slack_bins + 1) + 1, sizeof(*evaluation->actions));
    if (evaluation->latency_us == NULL || evaluation->actions == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for an evaluation");
    }
    for (uint32_t v = 0; v < policy->variant_count; v++) {
        evaluation->accuracy[v] = leat_policy_variant(policy, v)->accuracy_ppm / 1e6;
        for (uint32_t i = 0; i < items; i++) {
            evaluation->latency_us[v * items + i] = (double)leat_policy_latency_ns(policy, v)[i] / 1e3;
        }
    }
    evaluation->problem = (struct leat_policy_problem){
        .mode = LEAT_POLICY_DEALT,
        .variant_count = policy->variant_count,
        .worker_count = policy->worker_count,
        .latency_items = policy->latency_items,
        .accuracy = evaluation->accuracy,
        .latency_us = evaluation->latency_us,
        .objective_ns = policy->objective_ns,
        .dispersion = policy->dispersion_permille < 1000 ? 1 : policy->dispersion_permille / 1e3,
        .late_penalty = policy->late_penalty_permille / 1e3,
        .queue_max = policy->queue_max,
        .slack_bins = policy->slack_bins,
        .drops_late = policy->drops_late != 0,
        .split = policy->shortest != 0 ? LEAT_MDP_SHORTEST_QUEUE : LEAT_MDP_ROUND_ROBIN,
    };
    return LEAT_OK;
}

static void
end_evaluation(struct evaluation *evaluation)
{
    free(evaluation->latency_us);
    free(evaluation->actions);
}

/* As sched/mdp.h has policies: giving up is one query at a time there. */
static enum leat_status
convert_actions(const struct evaluation *evaluation, uint32_t rung)
{
    const struct leat_policy *policy = evaluation->policy;
    const uint32_t columns = policy->slack_bins + 1;
    const uint16_t *cells = leat_policy_actions(policy, rung);

    for (uint32_t n = 1; n <= policy->queue_max; n++) {
        for (uint32_t bin = 0; bin < columns; bin++) {
            const struct leat_policy_action action = leat_policy_unpack(cells[n * columns + bin]);
            const bool drop = action.variant == LEAT_POLICY_GIVE_UP;
            if (drop && action.items != 1) {
                return LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                                 "at %u queries a second the policy gives up %u at once, which the model "
                                 "of a worker's queue does not know",
                                 leat_policy_rung(policy, rung)->rate_qps, action.items);
            }
            evaluation->actions[(size_t)(n - 1) * columns + bin] = (struct leat_mdp_action){
                .variant = drop ? LEAT_MDP_DROP : (uint16_t)action.variant, .batch = (uint16_t)action.items};
        }
    }
    return LEAT_OK;
}

static enum leat_status
evaluate_queue(const struct evaluation *evaluation, uint32_t rung, struct expectation *expectation)
{
    const uint32_t rate_qps = leat_policy_rung(evaluation->policy, rung)->rate_qps;
    const struct leat_mdp_problem problem = leat_policy_queue_problem(&evaluation->problem, rate_qps);
    struct leat_mdp_value value;

    enum leat_status status = leat_mdp_check(&problem);
    if (status == LEAT_OK) {
        status = convert_actions(evaluation, rung);
    }
    if (status == LEAT_OK) {
        status = leat_mdp_check_policy(&problem, evaluation->actions);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const size_t bytes = leat_mdp_bytes(&problem, evaluation->actions, 1);
    void *memory = bytes < SIZE_MAX / 2 ? aligned_alloc(64, leat_round_up(bytes, 64)) : NULL;
    if (memory == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for an evaluation");
    }
    struct leat_mdp *mdp = leat_mdp_init(memory, &problem, evaluation->actions, 1);
    leat_mdp_build(mdp, 0);
    status = leat_mdp_evaluate(mdp, evaluation->actions, &value);
    free(memory);
    if (status == LEAT_OK) {
        expectation->accuracy = value.accuracy;
        expectation->violation = value.violation;
        expectation->gain = leat_policy_gain(value.accuracy, value.violation, problem.late_penalty);
    }
    return status;
}

static enum leat_status
evaluate_rung(const struct evaluation *evaluation, uint32_t r, struct expectation *ret_expectation)
{
    const struct leat_policy_rung *rung = leat_policy_rung(evaluation->policy, r);

    *ret_expectation = (struct expectation){.accuracy = known(rung->accuracy_ppm, 1e6),
                                            .violation = known(rung->violation_ppb, 1e9),
                                            .gain = known_gain(rung->gain_ppm),
                                            .bound = leat_policy_bound(&evaluation->problem, rung->rate_qps)};
    return evaluation->policy->kind == LEAT_POLICY_QUEUE ? evaluate_queue(evaluation, r, ret_expectation) : LEAT_OK;
}

static json_t *
real_or_null(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static int
evaluate(const struct leat_policy *policy, bool json)
{
    struct evaluation evaluation;
    struct expectation expectation;
    json_t *rungs = json_array();

    enum leat_status status = begin_evaluation(policy, &evaluation);
    for (uint32_t r = 0; status == LEAT_OK && r < policy->rung_count; r++) {
        const uint32_t rate_qps = leat_policy_rung(policy, r)->rate_qps;
        status = evaluate_rung(&evaluation, r, &expectation);
        if (status != LEAT_OK) {
            break;
        }
        if (json) {
            (void)json_array_append_new(rungs, json_pack("{s:I, s:o, s:o, s:o, s:o}", "rate_qps", (json_int_t)rate_qps,
                                                         "accuracy_share", real_or_null(expectation.accuracy),
                                                         "violation_share", real_or_null(expectation.violation),
                                                         "gain_share", real_or_null(expectation.gain), "bound_share",
                                                         real_or_null(expectation.bound)));
            continue;
        }
        if (r == 0) {
            print_unit(policy);
            print_heading();
        }
        print_expectations(rate_qps, expectation.accuracy, expectation.violation, expectation.gain, expectation.bound);
        (void)fflush(stdout); /* each takes a while */
    }
    end_evaluation(&evaluation);
    if (status == LEAT_OK && json) {
        print_json(json_pack("{s:s, s:b, s:I, s:O}", "kind", leat_policy_kind_text(policy->kind), "computed",
                             (int)(policy->kind == LEAT_POLICY_QUEUE), "unit_items", (json_int_t)1 << policy->unit_shift,
                             "rungs", rungs));
    }
    json_decref(rungs);
    return status == LEAT_OK ? EXIT_DONE : report_failure("policy");
}

/* ---- The verb ---------------------------------------------------------------------------------- */

void
policy_print_help(void)
{
    (void)printf(
        "usage: leat policy generate --profiles FILE --objective TIME --workers N --rates RATES --output FILE [OPTION...]\n"
        "       leat policy fetch APPLICATION --output FILE [--json]\n"
        "       leat policy refresh APPLICATION [--json]\n"
        "       leat policy show FILE [--svg FILE] [--json]\n"
        "       leat policy evaluate FILE [--json]\n\n"
        "Policies that are solved ahead, for selector mdp: which variant a worker is to run on how many queries, by the "
        "rate of\n"
        "arrivals, what waits and the slack of the oldest query.\n\n"
        "  generate  solves one\n"
        "  fetch     writes the one that an application of the daemon follows to a file\n"
        "  refresh   has the daemon make an application's policy anew, of what it knows now; returns when that is followed\n"
        "  show      what is in a file, and what its maker expects: accuracy of queries in time, share of late ones, the "
        "gain\n"
        "            (accuracy less penalties, of all queries) and the most that any policy can gain\n"
        "  evaluate  the same, computed anew from the file's times; of one queue for all workers, what its maker "
        "expected\n\n"
        "generate:\n"
        "  --profiles FILE        measured times: CSV with model or variant, items (or batch_size) and p95_us (or p95_ms), "
        "and\n"
        "                         perhaps task, cores and accuracy\n"
        "  --accuracies FILE      where the profile has none: CSV with model or variant, accuracy and perhaps task\n"
        "  --task NAME            of those in the files\n"
        "  --cores N              of those in the profile\n"
        "  --statistic NAME       of times: p95, mean, p99, ... (default p95)\n"
        "  --variants LIST        A,B,... or front: what no other variant is as accurate as and no slower for one item\n"
        "                         (default: all)\n"
        "  --objective TIME       latency objective\n"
        "  --workers N            that serve the application\n"
        "  --rates RATES          queries a second to solve for: FROM:TO:STEP, or several, or a list\n"
        "  --output FILE, -o      where to\n\n"
        "  --mode leat|dealt|paper  leat: one queue, most accuracy a query (default); dealt: queries are dealt to workers' "
        "queues;\n"
        "                         paper: so they are in RAMSIS (EuroSys 2024), most accuracy a decision\n"
        "  --mode switching       for selector model_switching: by rate alone, the most accurate variant of those that "
        "have less\n"
        "                         than 1 %% late when simulated for 300 s; takes --jobs, but none of what follows\n"
        "  --late serve|drop      queries that cannot be in time are served all the same (default), or dropped\n"
        "  --penalty X            what a late query costs, as accuracy (default %g; leat: %g)\n"
        "  --dispersion X         variance of arrivals to their mean: 1 is Poisson (default)\n"
        "  --queue N              how many that wait are told apart (default 32; leat: 64)\n"
        "  --slack-bins N         of slack (default 100; leat: 64)\n"
        "  --batch N              leat: the largest batch (default 32)\n"
        "  --idle-levels N        leat: how many numbers of idle workers are told apart (default 8)\n"
        "  --held N               leat: how many that wait meanwhile (default 16)\n"
        "  --model-queue N        leat: a queue of so many is full where solving (default: by the rate)\n"
        "  --spread X             leat: standard deviation of times, as a share of them (default 0)\n"
        "  --prompt               leat: idle workers get what waits at once. Else it may wait for more, at rates at which\n"
        "                         not all can have the most accurate answer\n"
        "  --batching maximal|variable|powers  others: all that wait (default), any number, or powers of two\n"
        "  --grid fixed|latency   others: slack as it is looked up (default), or by the variants' times\n"
        "  --split round_robin|shortest_queue  others: how queries come to workers (default round_robin)\n\n"
        "  --jobs N               threads (default: all cores)\n\n",
        POLICY_PENALTY_DEALT, LEAT_POLICY_PENALTY);
    (void)printf(
        "fetch and refresh:\n"
        "  --output FILE, -o      of fetch: where to\n"
        "  --socket PATH          the daemon's socket\n\n"
        "show and evaluate:\n"
        "  --svg FILE             of show: a picture, the variant by queue and slack, a panel for each rate\n"
        "  --json                 one JSON object, of the others too\n\n"
        "example: leat policy generate --profiles times.csv --accuracies accuracies.csv --objective 150ms --workers 60 \\\n"
        "             --rates 200:4000:200 --output image.policy\n"
        "         leat policy show image.policy --svg image.svg\n");
}

static bool
parse_view_options(int argc, char **argv, struct viewing *viewing)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"svg", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    bool good = true;
    int option;

    *viewing = (struct viewing){0};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'h': viewing->help = true; break;
        case 'j': viewing->json = true; break;
        case 's': viewing->svg_path = optarg; break;
        default: good = false; break;
        }
    }
    if (!good) {
        (void)option_error("policy", argv);
        return false;
    }
    if (!viewing->help && argc != optind + 1) {
        (void)usage_error("policy", "%s needs the file of one policy", argv[0]);
        return false;
    }
    viewing->path = argv[optind];
    return true;
}

static int
view(int argc, char **argv, bool evaluates)
{
    struct leat_policy *policy = NULL;
    struct viewing viewing;
    int exit_code = EXIT_DONE;

    if (!parse_view_options(argc, argv, &viewing)) {
        return EXIT_USAGE;
    }
    if (viewing.help) {
        policy_print_help();
        return EXIT_DONE;
    }
    if (evaluates && viewing.svg_path != NULL) {
        return usage_error("policy", "--svg is for show");
    }
    exit_code = output_check("policy", "--svg", viewing.svg_path);
    if (exit_code != EXIT_DONE) {
        return exit_code;
    }
    if (policy_read(viewing.path, &policy) != LEAT_OK) {
        return report_failure("policy");
    }
    if (evaluates) {
        exit_code = evaluate(policy, viewing.json);
    } else if (viewing.json) {
        print_json(policy_json(policy));
    } else {
        print_policy(policy);
    }
    const struct output svg = {.path = viewing.svg_path, .write = policy_plot};
    if (exit_code == EXIT_DONE && output_write(&svg, 1, policy) != LEAT_OK) {
        exit_code = report_failure("policy");
    }
    free(policy);
    return exit_code;
}

int
verb_policy(int argc, char **argv)
{
    if (argc < 2) {
        return usage_error("policy", "say what to do: generate, fetch, refresh, show or evaluate");
    }
    if (strcmp(argv[1], "generate") == 0) {
        return policy_generate(argc - 1, argv + 1);
    }
    if (strcmp(argv[1], "fetch") == 0) {
        return fetch(argc - 1, argv + 1);
    }
    if (strcmp(argv[1], "refresh") == 0) {
        return refresh(argc - 1, argv + 1);
    }
    if (strcmp(argv[1], "show") == 0 || strcmp(argv[1], "evaluate") == 0) {
        return view(argc - 1, argv + 1, argv[1][0] == 'e');
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        policy_print_help();
        return EXIT_DONE;
    }
    return usage_error("policy", "'%s' is nothing to do: generate, fetch, refresh, show or evaluate", argv[1]);
}
