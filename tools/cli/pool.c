/* SPDX-License-Identifier: Apache-2.0 */
/* leat pool plan: which mix of workers a budget should buy, from measured times, sizes of queries and prices. */
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "sched/pool.h"
#include "tools/cli/cli.h"
#include "tools/simulate/plan.h"
#include "tools/simulate/simulate.h"

#define MIXES_MAX  (1u << 20)
#define CLASSES    LEAT_POOL_CLASSES_MAX
#define BUDGET_MAX 1e9

/* --by simulation */
#define BRIEF_SHARE      0.2 /* of a thorough run's queries */
#define THOROUGH_MIN     20000u
#define THOROUGH_MAX     200000u
#define SPAN_OBJECTIVES  25  /* that a thorough run lasts: what is left at its end may be in time, 1 in 25 too much */
#define VIOLATION_SHARE  0.01
#define JUDGE_BY         95.0  /* percentile of predictions, as in the daemon */
#define SAMPLES          1000u /* made of what the daemon says of a size: enough for a percentile of 99.9 */

struct overrides {
    const char *class;
    double price; /* an hour; NAN: as it is */
    uint64_t count_max; /* 0: as it is */
};

/* What the daemon says of one class: [count] points, rising in items, times linear in between. */
struct points {
    uint64_t *items, *mean_ns, *predicted_ns;
    uint32_t count;
};

struct plan {
    /* What was asked. */
    const char *socket_path, *application, *base_text, *sizes_path;
    const char *profile_path, *model, *prices_path; /* without a daemon */
    struct overrides overrides[2 * CLASSES];
    uint32_t override_count;
    uint64_t top, objective_ns, variant;
    uint64_t cores; /* of all workers of a mix; 0: as many as the daemon has, or no matter without one */
    double budget;
    double percentile; /* of times, that predictions are at; 0: they are means */
    const char *router_name; /* of simulations */
    uint64_t seed;
    bool by_bound, json, help;

    /* What is known. */
    char names[CLASSES][SIMULATE_NAME_MAX];
    struct leat_pool_space space;
    uint32_t items_max;
    uint32_t workers[CLASSES]; /* there are, in the daemon */
    uint32_t worker_cores[CLASSES]; /* of each of them */
    struct points points[CLASSES];
    struct simulate_table table;
    struct leat_pool_size *sizes;
    uint32_t size_count;
    uint64_t queries_seen; /* by the daemon, where sizes are its */

    /* What follows. */
    struct leat_pool_rates rates;
    struct leat_pool_candidate *candidates;
    uint32_t candidate_count;
    uint32_t beyond_cores; /* mixes that the budget pays for too, left out */
    const struct leat_pool_candidate *selected;
    double simulated_qps; /* of it; 0: it was not simulated */
};

/* ---- Options ----------------------------------------------------------------------------------- */

static void
print_pool_help(void)
{
    (void)printf(
        "usage: leat pool plan APPLICATION --budget PRICE [OPTION...]\n"
        "       leat pool plan --profile FILE --model NAME --prices FILE --sizes FILE --budget PRICE --objective TIME\n\n"
        "Which mix of workers a budget should buy: bounds the throughput of every mix that it pays for, at which all\n"
        "queries meet the objective (Kairos, HPDC 2023), ranks them, simulates those that may be the best and chooses the\n"
        "best of these. Times by class of worker and sizes of queries are what the daemon has measured and seen; prices,\n"
        "and how many workers could be had, are in its configuration; its cores bound the mix. The second form needs no\n"
        "daemon.\n\n"
        "  --budget PRICE         what all workers may cost an hour\n"
        "  --objective TIME       latency objective (default: the application's)\n"
        "  --price CLASS=PRICE    of one worker an hour, instead of what is configured\n"
        "  --max CLASS=N          how many could be had, likewise\n"
        "  --cores N              that all workers may take together (default: the daemon's, less the dispatcher's)\n"
        "  --base CLASS           meets the objective at every size (default: the fastest at the largest size)\n"
        "  --sizes FILE           items of queries: CSV with items and perhaps weight (default: what the daemon has seen)\n"
        "  --variant N            of the application, by its place there (default 0)\n"
        "  --top N                mixes to show (default 10)\n"
        "  --by simulation|bound  how to choose (default simulation, with Poisson arrivals and 1 %% late at most); bound\n"
        "                         is the paper's rule: it simulates nothing, and may choose less than the budget pays for\n"
        "  --router NAME          of the simulation (default %s)\n"
        "  --seed N               of the simulation (default 1)\n\n"
        "  --profile FILE         measured times: CSV with model, instance, batch and s0, s1, ... or mean_ms, in ms\n"
        "  --model NAME           of the profile\n"
        "  --prices FILE          CSV with instance, price_usd_per_hour and perhaps max_count_in_search\n"
        "  --percentile P         of the profile, that is to meet the objective (default: the mean)\n\n"
        "  --json                 one JSON object\n"
        "  --socket PATH          the daemon's socket\n\n"
        "example: leat pool plan recommend --budget 2.5 --objective 350ms\n",
        LEAT_ROUTER_DEFAULT_MIXED);
}

/* CLASS=VALUE; `value` points into the text, which is cut. */
static bool
split(char *text, const char **class, const char **value)
{
    char *equals = strrchr(text, '=');
    if (equals == NULL || equals == text) {
        return false;
    }
    *equals = '\0';
    *class = text;
    *value = equals + 1;
    return true;
}

static bool
parse_override(char *text, bool price, struct plan *plan)
{
    struct overrides override = {.price = NAN};
    const char *value;

    if (plan->override_count == LEAT_COUNT_OF(plan->overrides) || !split(text, &override.class, &value)) {
        return false;
    }
    const bool good = price ? parse_double(value, 0, BUDGET_MAX, &override.price)
                            : parse_u64(value, 1, UINT16_MAX, &override.count_max);
    if (good) {
        plan->overrides[plan->override_count++] = override;
    } else {
        text[strlen(text)] = '='; /* whole again, to be shown */
    }
    return good;
}

static bool
parse_pool_options(int argc, char **argv, struct plan *plan)
{
    static const struct option known[] = {
        {"help", no_argument, NULL, 'h'},           {"json", no_argument, NULL, 'j'},
        {"socket", required_argument, NULL, 'k'},   {"budget", required_argument, NULL, 'b'},
        {"objective", required_argument, NULL, 'o'}, {"price", required_argument, NULL, '$'},
        {"max", required_argument, NULL, 'x'},      {"base", required_argument, NULL, 'B'},
        {"sizes", required_argument, NULL, 's'},    {"variant", required_argument, NULL, 'v'},
        {"top", required_argument, NULL, 't'},      {"profile", required_argument, NULL, 'p'},
        {"model", required_argument, NULL, 'm'},    {"prices", required_argument, NULL, 'P'},
        {"percentile", required_argument, NULL, 'c'}, {"by", required_argument, NULL, 'y'},
        {"router", required_argument, NULL, 'r'},   {"seed", required_argument, NULL, 'e'},
        {"cores", required_argument, NULL, 'C'},    {NULL, 0, NULL, 0},
    };
    bool good = true;
    int option;

    *plan = (struct plan){.top = 10, .seed = 1, .router_name = LEAT_ROUTER_DEFAULT_MIXED};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 'h': plan->help = true; break;
        case 'j': plan->json = true; break;
        case 'k': plan->socket_path = optarg; break;
        case 'b': good = parse_double(optarg, 0, BUDGET_MAX, &plan->budget) && plan->budget > 0; break;
        case 'o': good = parse_duration_ns(optarg, &plan->objective_ns) && plan->objective_ns > 0; break;
        case '$': good = parse_override(optarg, true, plan); break;
        case 'x': good = parse_override(optarg, false, plan); break;
        case 'C': good = parse_u64(optarg, 1, UINT32_MAX, &plan->cores); break;
        case 'B': plan->base_text = optarg; break;
        case 's': plan->sizes_path = optarg; break;
        case 'v': good = parse_u64(optarg, 0, LEAT_SCHED_VARIANTS_MAX - 1, &plan->variant); break;
        case 't': good = parse_u64(optarg, 1, MIXES_MAX, &plan->top); break;
        case 'p': plan->profile_path = optarg; break;
        case 'm': plan->model = optarg; break;
        case 'P': plan->prices_path = optarg; break;
        case 'c': good = parse_double(optarg, 0.001, 100, &plan->percentile); break;
        case 'y':
            plan->by_bound = strcmp(optarg, "bound") == 0;
            good = plan->by_bound || strcmp(optarg, "simulation") == 0;
            break;
        case 'r': plan->router_name = optarg; break;
        case 'e': good = parse_u64(optarg, 0, UINT64_MAX - 1, &plan->seed); break;
        default: good = false; break;
        }
    }
    if (!good) {
        (void)option_error("pool", argv);
    }
    return good;
}

/* Which of the two forms it is, and what that needs. */
static int
check_pool_options(int argc, char **argv, struct plan *plan)
{
    const bool offline = plan->profile_path != NULL;

    if (optind >= argc || strcmp(argv[optind], "plan") != 0) {
        return usage_error("pool", "say what to do: plan");
    }
    if (offline ? argc > optind + 1 : argc != optind + 2) {
        return usage_error("pool", offline ? "a profile comes without an application"
                                           : "plan needs an application, or --profile");
    }
    plan->application = offline ? NULL : argv[optind + 1];
    if (plan->budget <= 0) {
        return usage_error("pool", "--budget is needed");
    }
    if (offline && (plan->model == NULL || plan->prices_path == NULL || plan->sizes_path == NULL ||
                    plan->objective_ns == 0)) {
        return usage_error("pool", "--profile needs --model, --prices, --sizes and --objective");
    }
    if (offline && plan->cores > 0) {
        return usage_error("pool", "--cores is for a daemon's workers: a profile does not say how many cores one takes");
    }
    if (!offline && (plan->model != NULL || plan->prices_path != NULL || plan->percentile > 0)) {
        return usage_error("pool", "--model, --prices and --percentile are for --profile");
    }
    if (leat_router_find(plan->router_name) == NULL) {
        return router_error("pool", plan->router_name);
    }
    return EXIT_DONE;
}

/* ---- What is known ----------------------------------------------------------------------------- */

static int
find_class(const struct plan *plan, const char *name)
{
    for (uint32_t c = 0; c < plan->space.class_count; c++) {
        if (strcmp(plan->names[c], name) == 0) {
            return (int)c;
        }
    }
    return -1;
}

static uint64_t
number_at(const json_t *array, size_t index)
{
    return (uint64_t)json_integer_value(json_array_get(array, index));
}

static bool
read_points(const json_t *list, struct points *points)
{
    const size_t count = json_array_size(list);

    points->items = calloc(count + 1, 3 * sizeof(points->items[0]));
    if (points->items == NULL || count == 0) {
        return false;
    }
    points->mean_ns = points->items + count;
    points->predicted_ns = points->mean_ns + count;
    points->count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        const json_t *point = json_array_get(list, i);
        points->items[i] = number_at(point, 0);
        points->mean_ns[i] = number_at(point, 1);
        points->predicted_ns[i] = number_at(point, 2);
        if (points->items[i] == 0 || (i > 0 && points->items[i] <= points->items[i - 1])) {
            return false;
        }
    }
    return true;
}

static bool
read_seen_sizes(const json_t *list, struct plan *plan)
{
    const size_t count = json_array_size(list);

    plan->sizes = calloc(count + 1, sizeof(plan->sizes[0]));
    if (plan->sizes == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) { /* a bucket's top may be beyond the largest query that there can be */
        const uint64_t top = number_at(json_array_get(list, i), 0), seen = number_at(json_array_get(list, i), 1);
        plan->sizes[plan->size_count++] = (struct leat_pool_size){
            .items = top < plan->items_max ? (uint32_t)top : plan->items_max, .weight = (double)seen};
        plan->queries_seen += seen;
    }
    return true;
}

static bool
read_answer(const json_t *answer, struct plan *plan)
{
    const json_t *classes = json_object_get(answer, "classes");
    size_t c;
    json_t *class;

    if (json_array_size(classes) == 0 || json_array_size(classes) > CLASSES) {
        return false;
    }
    plan->items_max = (uint32_t)json_integer_value(json_object_get(answer, "items_max"));
    json_array_foreach(classes, c, class) {
        const char *name = json_string_value(json_object_get(class, "name"));
        (void)snprintf(plan->names[c], sizeof(plan->names[c]), "%s", name != NULL ? name : "");
        plan->space.classes[c].price = (uint64_t)json_integer_value(json_object_get(class, "price_micro_per_hour"));
        plan->space.classes[c].count_max = (uint16_t)json_integer_value(json_object_get(class, "count_max"));
        plan->workers[c] = (uint32_t)json_integer_value(json_object_get(class, "workers"));
        plan->worker_cores[c] = (uint32_t)json_integer_value(json_object_get(class, "cores"));
        if (!read_points(json_object_get(class, "points"), &plan->points[c])) {
            return false;
        }
        plan->space.class_count++;
    }
    plan->percentile = json_number_value(json_object_get(answer, "percentile")); /* 0: they are means */
    if (plan->percentile != 0 && !(plan->percentile >= 50 && plan->percentile < 100)) {
        return false;
    }
    if (plan->objective_ns == 0) {
        plan->objective_ns = (uint64_t)json_integer_value(json_object_get(answer, "latency_ns"));
    }
    return plan->sizes_path != NULL || read_seen_sizes(json_object_get(answer, "sizes"), plan);
}

static int
ask_for_cores(struct plan *plan)
{
    int exit_code = EXIT_FAILED;

    if (plan->cores > 0) {
        return EXIT_DONE;
    }
    json_t *answer = ask_daemon("pool", plan->socket_path, json_pack("{s:s}", "op", "topology"), -1, &exit_code);
    if (answer == NULL) {
        return exit_code;
    }
    const json_t *placement = json_object_get(answer, "placement");
    plan->cores = (uint64_t)json_integer_value(json_object_get(placement, "worker_cores"));
    json_decref(answer);
    return EXIT_DONE;
}

static int
ask_for_profiles(struct plan *plan)
{
    int exit_code = EXIT_FAILED;
    json_t *answer = ask_daemon("pool", plan->socket_path,
                                json_pack("{s:s, s:s, s:I}", "op", "profiles", "name", plan->application, "variant",
                                          (json_int_t)plan->variant), -1, &exit_code);
    if (answer == NULL) {
        return exit_code;
    }
    const bool good = read_answer(answer, plan);
    json_decref(answer);
    if (!good) {
        (void)fprintf(stderr, "leat pool: the daemon's answer makes no sense\n");
        return EXIT_FAILED;
    }
    if (plan->objective_ns == 0) {
        return usage_error("pool", "application '%s' has no latency objective: give --objective", plan->application);
    }
    if (plan->sizes_path == NULL && plan->queries_seen == 0) {
        return usage_error("pool", "the daemon has seen no query of '%s' yet: give --sizes", plan->application);
    }
    return ask_for_cores(plan);
}

static int
read_files(struct plan *plan)
{
    if (simulate_table_read(plan->profile_path, plan->model, NULL, 0, &plan->table) != LEAT_OK) {
        return report_failure("pool");
    }
    plan->space.class_count = plan->table.class_count;
    plan->items_max = plan->table.items_max;
    memcpy(plan->names, plan->table.class_names, sizeof(plan->table.class_names));
    return simulate_prices_read(plan->prices_path, &plan->table, plan->space.classes) == LEAT_OK ? EXIT_DONE : report_failure("pool");
}

static int
read_sizes(struct plan *plan)
{
    if (plan->sizes_path == NULL) {
        return EXIT_DONE;
    }
    if (simulate_sizes_read(plan->sizes_path, &plan->sizes, &plan->size_count) != LEAT_OK) {
        return report_failure("pool");
    }
    const uint32_t largest = plan->sizes[plan->size_count - 1].items;
    if (largest > plan->items_max) {
        (void)fprintf(stderr, "leat pool: %s has a query of %u items, but times are known up to %u\n", plan->sizes_path,
                      largest, plan->items_max);
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}

/* Of an option. */
static int
unknown_class(const struct plan *plan, const char *name)
{
    if (plan->application == NULL) {
        return usage_error("pool", "%s has no class '%s'", plan->profile_path, name);
    }
    return usage_error("pool",
                       "the daemon has no worker of class '%s', so it knows no times of it: give it one (in its "
                       "configuration, workers: [{class: %s, count: 1}]), or plan from files with --profile", name, name);
}

static int
apply_overrides(struct plan *plan)
{
    bool priced = false;

    for (uint32_t i = 0; i < plan->override_count; i++) {
        const struct overrides *override = &plan->overrides[i];
        const int c = find_class(plan, override->class);
        if (c < 0) {
            return unknown_class(plan, override->class);
        }
        if (!isnan(override->price)) {
            plan->space.classes[c].price = (uint64_t)(override->price * 1e6 + 0.5);
        }
        if (override->count_max > 0) {
            plan->space.classes[c].count_max = (uint16_t)override->count_max;
        }
    }
    for (uint32_t c = 0; c < plan->space.class_count; c++) {
        priced = priced || plan->space.classes[c].price > 0;
    }
    if (!priced) {
        return usage_error("pool",
                           "nothing has a price: give classes one in the configuration, or here with --price CLASS=PRICE");
    }
    plan->space.budget = (uint64_t)(plan->budget * 1e6 + 0.5);
    return EXIT_DONE;
}

/* ---- Times ------------------------------------------------------------------------------------- */

static uint64_t
between_points(const struct points *points, const uint64_t *times_ns, uint32_t items)
{
    uint32_t above = 0;

    while (above < points->count && points->items[above] < items) {
        above++;
    }
    if (above == points->count) {
        return times_ns[points->count - 1];
    }
    if (above == 0 || points->items[above] == items) {
        return times_ns[above];
    }
    const uint64_t low = points->items[above - 1], high = points->items[above];
    const double share = (double)(items - low) / (double)(high - low);
    return (uint64_t)((double)times_ns[above - 1] * (1 - share) + (double)times_ns[above] * share + 0.5);
}

static uint64_t
mean_time(const void *profiles, uint16_t application, uint32_t variant, uint16_t class, uint32_t items)
{
    const struct plan *plan = profiles;

    (void)application;
    (void)variant;
    if (plan->table.class_count == 0) {
        return between_points(&plan->points[class], plan->points[class].mean_ns, items);
    }
    return plan->table.mean_ns[(size_t)class * plan->table.size_count + plan->table.row_of_items[items]];
}

static uint64_t
predicted_time(const void *profiles, uint16_t application, uint32_t variant, uint16_t class, uint32_t items)
{
    const struct plan *plan = profiles;

    if (plan->table.class_count == 0) {
        return between_points(&plan->points[class], plan->points[class].predicted_ns, items);
    }
    return plan->percentile > 0 ? simulate_table_percentile(&plan->table, class, items, plan->percentile)
                                : mean_time(profiles, application, variant, class, items);
}

static int
choose_base(struct plan *plan)
{
    if (plan->base_text != NULL) {
        const int base = find_class(plan, plan->base_text);
        if (base < 0) {
            return unknown_class(plan, plan->base_text);
        }
        plan->space.base = (uint32_t)base;
        return EXIT_DONE;
    }
    for (uint16_t c = 1; c < plan->space.class_count; c++) {
        if (mean_time(plan, 0, 0, c, plan->items_max) <
            mean_time(plan, 0, 0, (uint16_t)plan->space.base, plan->items_max)) {
            plan->space.base = c;
        }
    }
    return EXIT_DONE;
}

/* What leat_pool_rates refuses, said with names. */
static enum leat_status
check_base(const struct plan *plan)
{
    for (uint32_t s = 0; s < plan->size_count; s++) {
        const uint32_t items = plan->sizes[s].items;
        const uint64_t ns = predicted_time(plan, 0, 0, (uint16_t)plan->space.base, items);
        if (plan->sizes[s].weight > 0 && ns > plan->objective_ns) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "class '%s', the base, misses the objective of %s: %u items take it %s",
                             plan->names[plan->space.base], format_ns((double)plan->objective_ns).text, items,
                             format_ns((double)ns).text);
        }
    }
    return LEAT_OK;
}

/* ---- The plan ---------------------------------------------------------------------------------- */

/* Keeps the mixes that have the cores. */
static enum leat_status
fit_cores(struct plan *plan)
{
    const uint32_t paid_for = plan->candidate_count;

    plan->candidate_count = 0;
    for (uint32_t i = 0; i < paid_for; i++) {
        uint64_t cores = 0;
        for (uint32_t c = 0; c < plan->space.class_count; c++) {
            cores += (uint64_t)plan->candidates[i].mix.count[c] * plan->worker_cores[c];
        }
        if (cores <= plan->cores) {
            plan->candidates[plan->candidate_count++] = plan->candidates[i];
        }
    }
    plan->beyond_cores = paid_for - plan->candidate_count;
    return plan->candidate_count > 0
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_INVALID,
                           "a worker of class '%s', the base, has %u cores, but workers have %" PRIu64 " here: --cores "
                           "says how many a larger machine would have",
                           plan->names[plan->space.base], plan->worker_cores[plan->space.base], plan->cores);
}

static enum leat_status
rank_mixes(struct plan *plan)
{
    const struct leat_pool_workload workload = {.predict = predicted_time,
                                                .mean = mean_time,
                                                .profiles = plan,
                                                .objective_ns = plan->objective_ns,
                                                .sizes = plan->sizes,
                                                .size_count = plan->size_count};
    enum leat_status status = check_base(plan);

    if (status == LEAT_OK) {
        status = leat_pool_rates(&plan->space, &workload, &plan->rates);
    }
    if (status == LEAT_OK) {
        plan->candidates = calloc(MIXES_MAX, sizeof(plan->candidates[0]));
        status = plan->candidates == NULL
                     ? LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the mixes")
                     : leat_pool_enumerate(&plan->space, plan->candidates, MIXES_MAX, &plan->candidate_count);
    }
    if (status == LEAT_OK && plan->candidate_count == 0) {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "the budget does not pay for one worker of class '%s', the base",
                           plan->names[plan->space.base]);
    }
    if (status == LEAT_OK && plan->cores > 0) {
        status = fit_cores(plan);
    }
    if (status == LEAT_OK) {
        status = leat_pool_rank(&plan->rates, plan->candidates, plan->candidate_count);
    }
    return status;
}

/* The daemon's points as a table; batches take what has their mean and their percentile. */
static enum leat_status
make_table(const struct plan *plan, struct simulate_table *table)
{
    const struct points *first = &plan->points[0];

    *table = (struct simulate_table){.class_count = plan->space.class_count,
                                     .size_count = first->count,
                                     .items_max = plan->items_max,
                                     .sample_count = SAMPLES,
                                     .sizes = calloc(first->count, sizeof(*table->sizes)),
                                     .row_of_items = calloc(plan->items_max + 1u, sizeof(*table->row_of_items)),
                                     .samples_ns = calloc(CLASSES * first->count, SAMPLES * sizeof(*table->samples_ns)),
                                     .mean_ns = calloc(CLASSES * first->count, sizeof(*table->mean_ns))};
    if (table->sizes == NULL || table->row_of_items == NULL || table->samples_ns == NULL || table->mean_ns == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the times");
    }
    memcpy(table->class_names, plan->names, sizeof(table->class_names));
    for (uint32_t s = 0, items = 1; s < first->count; s++) {
        table->sizes[s] = (uint32_t)first->items[s];
        for (; items <= first->items[s]; items++) {
            table->row_of_items[items] = (uint16_t)s;
        }
        for (uint32_t c = 0; c < plan->space.class_count; c++) {
            const size_t cell = (size_t)c * first->count + s;
            table->mean_ns[cell] = plan->points[c].mean_ns[s];
            simulate_samples_make(plan->points[c].mean_ns[s], plan->points[c].predicted_ns[s],
                                  plan->percentile > 0 ? plan->percentile : JUDGE_BY, SAMPLES,
                                  &table->samples_ns[cell * SAMPLES]);
        }
    }
    return LEAT_OK;
}

/* Of a run that lasts long enough for the best mix, if there may be so many. */
static uint32_t
thorough_queries(const struct plan *plan)
{
    const double queries = SPAN_OBJECTIVES * plan->candidates[0].bound_qps * (double)plan->objective_ns / 1e9;
    const double more = queries > THOROUGH_MIN ? queries : THOROUGH_MIN;
    return more < THOROUGH_MAX ? (uint32_t)more : THOROUGH_MAX;
}

static enum leat_status
simulate_candidates(struct plan *plan, const struct simulate_table *table)
{
    const uint32_t queries = thorough_queries(plan);
    struct simulate_workload_options workload = {.seed = plan->seed,
                                                 .query_count = (uint32_t)(queries * BRIEF_SHARE),
                                                 .items_max = plan->items_max,
                                                 .sizes = {.sizes = plan->sizes, .count = plan->size_count},
                                                 .arrivals = ARRIVALS_POISSON};
    struct simulate_workload brief = {0}, thorough = {0};
    const struct simulate_plan_options options = {
        .run = {.table = table,
                .router = leat_router_find(plan->router_name),
                .objective_ns = plan->objective_ns,
                .percentile = plan->percentile > 0 ? plan->percentile : JUDGE_BY,
                .violation_share = VIOLATION_SHARE},
        .brief = &brief,
        .thorough = &thorough,
        .candidates = plan->candidates,
        .candidate_count = plan->candidate_count,
    };
    struct simulate_plan chosen;

    enum leat_status status = simulate_workload_make(&workload, &brief);
    if (status != LEAT_OK) {
        return status;
    }
    workload.seed++;
    workload.query_count = queries;
    status = simulate_workload_make(&workload, &thorough);
    if (status == LEAT_OK) {
        status = simulate_plan(&options, &chosen);
    }
    for (uint32_t i = 0; status == LEAT_OK && i < plan->candidate_count; i++) {
        if (memcmp(&plan->candidates[i].mix, &chosen.mix, sizeof(chosen.mix)) == 0) {
            plan->selected = &plan->candidates[i];
            plan->simulated_qps = chosen.rate_qps;
        }
    }
    if (status == LEAT_OK) {
        warn_of_short_runs("pool", chosen.rate_qps, plan->objective_ns, queries, false);
    }
    simulate_workload_free(&brief);
    simulate_workload_free(&thorough);
    return status;
}

static enum leat_status
choose_by_simulation(struct plan *plan)
{
    struct simulate_table table = {0};
    enum leat_status status = LEAT_OK;

    if (isatty(STDERR_FILENO) != 0) {
        (void)fprintf(stderr, "simulating up to %u mixes ...\n", plan->candidate_count);
    }
    if (plan->table.class_count == 0) {
        status = make_table(plan, &table);
    }
    if (status == LEAT_OK) {
        status = simulate_candidates(plan, plan->table.class_count > 0 ? &plan->table : &table);
    }
    if (status == LEAT_OK && !(plan->simulated_qps > 0)) {
        status = LEAT_FAIL(LEAT_ERR_INVALID,
                           "no mix of %g an hour holds the objective of %s: even of few queries more than 1 %% are late. "
                           "Give a longer --objective, or a larger --budget, or more of a faster class (--max)",
                           plan->budget, format_ns((double)plan->objective_ns).text);
    }
    simulate_table_free(&table);
    return status;
}

static int
make_plan(struct plan *plan)
{
    enum leat_status status = rank_mixes(plan);

    if (status == LEAT_OK && plan->by_bound) {
        plan->selected = leat_pool_select(plan->candidates, plan->candidate_count, plan->space.base);
    } else if (status == LEAT_OK) {
        status = choose_by_simulation(plan);
    }
    return status == LEAT_OK ? EXIT_DONE : report_failure("pool");
}

/* The workers that the daemon has, bounded; false where there is no daemon, or none of its workers is a base. */
static bool
current_mix(const struct plan *plan, struct leat_pool_candidate *ret_current)
{
    *ret_current = (struct leat_pool_candidate){0};
    for (uint32_t c = 0; c < plan->space.class_count; c++) {
        ret_current->mix.count[c] = (uint16_t)plan->workers[c];
        ret_current->cost += plan->workers[c] * plan->space.classes[c].price;
    }
    if (plan->workers[plan->space.base] == 0) {
        return false;
    }
    ret_current->bound_qps = leat_pool_bound(&plan->rates, &ret_current->mix);
    return true;
}

/* ---- Report ------------------------------------------------------------------------------------ */

static json_t *
candidate_json(const struct plan *plan, const struct leat_pool_candidate *candidate)
{
    json_t *mix = json_object();

    for (uint32_t c = 0; c < plan->space.class_count; c++) {
        (void)json_object_set_new(mix, plan->names[c], json_integer(candidate->mix.count[c]));
    }
    return json_pack("{s:o, s:I, s:f}", "mix", mix, "cost_micro_per_hour", (json_int_t)candidate->cost, "bound_qps",
                     candidate->bound_qps);
}

static json_t *
class_json(const struct plan *plan, uint32_t c)
{
    const struct leat_pool_class *class = &plan->space.classes[c];
    json_t *object = json_pack("{s:s, s:I, s:i, s:b}", "name", plan->names[c], "price_micro_per_hour",
                               (json_int_t)class->price, "count_max", (int)class->count_max, "base",
                               (int)(c == plan->space.base));
    if (c != plan->space.base) { /* the first size that misses the objective; none: all are good */
        const struct leat_pool_auxiliary *auxiliary = &plan->rates.auxiliary[c];
        (void)json_object_set_new(object, "cut_items", auxiliary->cut_items == UINT32_MAX
                                                           ? json_null() : json_integer(auxiliary->cut_items));
        (void)json_object_set_new(object, "small_share", json_real(auxiliary->small_share));
    }
    return object;
}

static void
report_json(const struct plan *plan, uint32_t shown)
{
    struct leat_pool_candidate current;
    json_t *classes = json_array(), *ranked = json_array();

    for (uint32_t c = 0; c < plan->space.class_count; c++) {
        (void)json_array_append_new(classes, class_json(plan, c));
    }
    for (uint32_t i = 0; i < shown; i++) {
        (void)json_array_append_new(ranked, candidate_json(plan, &plan->candidates[i]));
    }
    json_t *current_json = current_mix(plan, &current) ? candidate_json(plan, &current) : NULL;
    json_t *selected = candidate_json(plan, plan->selected);
    if (!plan->by_bound) {
        (void)json_object_set_new(selected, "simulated_qps", json_real(plan->simulated_qps));
    }
    const char *by = plan->by_bound ? "bound" : "simulation";
    json_t *cores = plan->cores > 0 ? json_integer((json_int_t)plan->cores) : json_null();
    print_json(json_pack("{s:s, s:I, s:I, s:I, s:o, s:I, s:o, s:o, s:o, s:I, s:o*}", "by", by, "budget_micro_per_hour",
                         (json_int_t)plan->space.budget, "objective_ns", (json_int_t)plan->objective_ns, "queries_seen",
                         (json_int_t)plan->queries_seen, "classes", classes, "mixes", (json_int_t)plan->candidate_count,
                         "ranked", ranked, "selected", selected, "cores", cores, "mixes_beyond_cores",
                         (json_int_t)plan->beyond_cores, "current", current_json));
}

/* All that a simulation of measured times is good for; never as a power of ten. */
static struct text
three_digits(double value)
{
    struct text text;
    int decimals = value > 0 ? 2 - (int)floor(log10(value)) : 0;
    const double unit = pow(10, -decimals);

    decimals = decimals > 0 ? decimals : 0;
    (void)snprintf(text.text, sizeof(text.text), "%.*f", decimals, round(value / unit) * unit);
    return text;
}

static void
print_candidate(const struct plan *plan, const char *label, const struct leat_pool_candidate *candidate)
{
    (void)printf("%-8s", label);
    for (uint32_t c = 0; c < plan->space.class_count; c++) {
        (void)printf(" %*u", (int)strlen(plan->names[c]) > 5 ? (int)strlen(plan->names[c]) : 5, candidate->mix.count[c]);
    }
    (void)printf(" %12.6g %12.4g\n", (double)candidate->cost / 1e6, candidate->bound_qps);
}

static void
print_classes(const struct plan *plan)
{
    for (uint32_t c = 0; c < plan->space.class_count; c++) {
        const struct leat_pool_class *class = &plan->space.classes[c];
        const uint32_t cut = plan->rates.auxiliary[c].cut_items;
        (void)printf("%-20s %g an hour, up to %u", plan->names[c], (double)class->price / 1e6, class->count_max);
        if (c == plan->space.base) {
            (void)printf(", the base: meets %s at every size\n", format_ns((double)plan->objective_ns).text);
        } else if (cut == UINT32_MAX) {
            (void)printf(", at every size too\n");
        } else {
            (void)printf(", below %u items: %.1f %% of queries\n", cut, plan->rates.auxiliary[c].small_share * 100);
        }
    }
}

static void
report(const struct plan *plan)
{
    const uint32_t shown = plan->top < plan->candidate_count ? (uint32_t)plan->top : plan->candidate_count;
    struct leat_pool_candidate current;

    if (plan->json) {
        report_json(plan, shown);
        return;
    }
    print_classes(plan);
    (void)printf("\n%u mix%s no more than %g an hour", plan->candidate_count,
                 plan->candidate_count == 1 ? " costs" : "es cost", plan->budget);
    if (plan->beyond_cores > 0) {
        (void)printf(" and have the %" PRIu64 " cores that workers can take (--cores); left out are %u that need more",
                     plan->cores, plan->beyond_cores);
    }
    (void)printf("; the best by the bound on their throughput:\n\n%-8s", "rank");
    for (uint32_t c = 0; c < plan->space.class_count; c++) {
        (void)printf(" %5s", plan->names[c]);
    }
    (void)printf(" %12s %12s\n", "an hour", "bound, q/s");
    for (uint32_t i = 0; i < shown; i++) {
        char label[16];
        (void)snprintf(label, sizeof(label), "%u", i + 1);
        print_candidate(plan, label, &plan->candidates[i]);
    }
    (void)printf("\n");
    if (current_mix(plan, &current)) {
        print_candidate(plan, "now", &current);
    }
    print_candidate(plan, "plan", plan->selected);
    if (!plan->by_bound) {
        (void)printf("\nsimulated: it serves about %s queries a second with 1 %% late\n",
                     three_digits(plan->simulated_qps).text);
    }
}

int
verb_pool(int argc, char **argv)
{
    struct plan plan;

    if (!parse_pool_options(argc, argv, &plan)) {
        return EXIT_USAGE;
    }
    if (plan.help) {
        print_pool_help();
        return EXIT_DONE;
    }
    int exit_code = check_pool_options(argc, argv, &plan);
    if (exit_code == EXIT_DONE) {
        exit_code = plan.application != NULL ? ask_for_profiles(&plan) : read_files(&plan);
    }
    if (exit_code == EXIT_DONE) {
        exit_code = read_sizes(&plan);
    }
    if (exit_code == EXIT_DONE) {
        exit_code = apply_overrides(&plan);
    }
    if (exit_code == EXIT_DONE) {
        exit_code = choose_base(&plan);
    }
    if (exit_code == EXIT_DONE) {
        exit_code = make_plan(&plan);
    }
    if (exit_code == EXIT_DONE) {
        report(&plan);
    }
    for (uint32_t c = 0; c < CLASSES; c++) {
        free(plan.points[c].items);
    }
    simulate_table_free(&plan.table);
    free(plan.sizes);
    free(plan.candidates);
    return exit_code;
}
