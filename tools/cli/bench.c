/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat bench: an open-loop load generator. Queries leave at times that do not depend on the answers, and latency
 * counts from the time a query should have left, so a daemon that stalls cannot hide it.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/align.h"
#include "base/clock.h"
#include "tools/cli/bench.h"
#include "tools/cli/cli.h"
#include "tools/cli/npy.h"

enum { PROCESSES_MAX = 64, SLOTS = 256, POLL_MAX = 64 };
#define PATIENCE_NS UINT64_C(30000000000) /* without any answer, once all is sent */

struct client {
    const struct bench_options *options;
    uint64_t index; /* of options->processes */
    struct bench_result *result;
    uint64_t *samples_ns;
    uint64_t sample_room;
    struct leat_session *session;
    struct leat_target target;
    uint64_t window_ns, window_end_ns; /* CLOCK_MONOTONIC */
    struct npy_array inputs, labels;
    uint64_t item_count; /* in the input file; 0: none */
    struct {
        void *tensors[LEAT_TENSORS_MAX];
        uint64_t intended_ns;
        uint64_t first_item; /* in the input file */
    } slots[SLOTS];
    uint32_t free_slots[SLOTS], free_count;
};

/* ---- Options ---------------------------------------------------------------------------------- */

static void
print_bench_help(void)
{
    (void)printf(
        "usage: leat bench NAME --rate QPS [OPTION...]\n\n"
        "Open-loop load on an application or model; latency counts from each query's intended start.\n\n"
        "offered     queries meant to start in the measured time\n"
        "answered    answers that came in the measured time; 'in time' (goodput): those within the objective\n"
        "violated    of those offered, the ones late, refused, expired, failed or lost, and those not sent: all of a\n"
        "            process's %d slots were taken until both measured time and objective were over\n"
        "latency     of those offered and answered, in time or late\n\n"
        "  --rate QPS          mean queries per second, over all processes\n"
        "  --duration TIME     measured time (default 5s), after\n"
        "  --warmup TIME       time not measured (default 500ms)\n"
        "  --processes N       client processes (default 1)\n"
        "  --arrivals KIND     constant, poisson (default), bursty, or a file of times in seconds, one a line,\n"
        "                      counted from the start of the warm-up\n"
        "  --burst-factor F    bursty: rate in a burst over rate outside (default 5)\n"
        "  --burst-share S     bursty: fraction of time in bursts (default 0.1)\n"
        "  --burst-mean TIME   bursty: mean length of a burst (default 100ms)\n"
        "  --latency TIME      latency objective (default: the application's; a model by its own name has none)\n"
        "  --items N           items per query (default 1)\n"
        "  --inputs FILE.npy   input 0, cycled through; zeros without it\n"
        "  --labels FILE.npy   class of each input; measures the accuracy of the answers\n"
        "  --seed N            (default 1)\n"
        "  --json              one JSON object\n"
        "  --socket PATH       the daemon's socket\n\n"
        "example: leat bench digits --rate 2000 --processes 2 --latency 10ms --inputs v.npy --labels l.npy\n",
        SLOTS);
}

static bool
parse_bench_options(int argc, char **argv, struct bench_options *options)
{
    static const struct option known[] = {
        {"socket", required_argument, NULL, 's'},       {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},               {"rate", required_argument, NULL, 'r'},
        {"duration", required_argument, NULL, 'd'},     {"warmup", required_argument, NULL, 'w'},
        {"processes", required_argument, NULL, 'p'},    {"arrivals", required_argument, NULL, 'a'},
        {"latency", required_argument, NULL, 'l'},      {"items", required_argument, NULL, 'n'},
        {"inputs", required_argument, NULL, 'i'},       {"labels", required_argument, NULL, 'L'},
        {"seed", required_argument, NULL, 'S'},         {"burst-factor", required_argument, NULL, 'F'},
        {"burst-share", required_argument, NULL, 'B'},  {"burst-mean", required_argument, NULL, 'M'},
        {NULL, 0, NULL, 0},
    };
    bool good = true;
    int option;

    *options = (struct bench_options){
        .arrivals_text = "poisson", .duration_ns = 5000000000u, .warmup_ns = 500000000u, .items = 1, .processes = 1,
        .seed = 1, .burst_factor = 5, .burst_share = 0.1, .burst_mean_ns = 100000000u};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 's': options->socket_path = optarg; break;
        case 'j': options->json = true; break;
        case 'h': options->help = true; break;
        case 'a': options->arrivals_text = optarg; break;
        case 'i': options->inputs_path = optarg; break;
        case 'L': options->labels_path = optarg; break;
        case 'r': good = parse_double(optarg, 0.001, 1e8, &options->rate_qps); break;
        case 'd': good = parse_duration_ns(optarg, &options->duration_ns) && options->duration_ns > 0; break;
        case 'w': good = parse_duration_ns(optarg, &options->warmup_ns); break;
        case 'l':
            good = parse_duration_ns(optarg, &options->objective_ns) && options->objective_ns > 0;
            options->objective_given = true;
            break;
        case 'M': good = parse_duration_ns(optarg, &options->burst_mean_ns) && options->burst_mean_ns > 0; break;
        case 'p': good = parse_u64(optarg, 1, PROCESSES_MAX, &options->processes); break;
        case 'n': good = parse_u64(optarg, 1, LEAT_ITEMS_MAX, &options->items); break;
        case 'S': good = parse_u64(optarg, 0, UINT64_MAX, &options->seed); break;
        case 'F': good = parse_double(optarg, 1.001, 1e6, &options->burst_factor); break;
        case 'B': good = parse_double(optarg, 0.001, 0.999, &options->burst_share); break;
        default: good = false; break;
        }
    }
    if (!good) {
        (void)usage_error("bench", "'%s' is no option, or its value is missing or out of range", argv[optind - 1]);
        return false;
    }
    if (options->help) {
        return true;
    }
    if (optind + 1 != argc) {
        (void)usage_error("bench", "one application or model, please");
        return false;
    }
    options->target = argv[optind];
    if (options->labels_path != NULL && options->inputs_path == NULL) {
        (void)usage_error("bench", "--labels without --inputs");
        return false;
    }
    return true;
}

/* Fills in the arrival process; a file is read here, before anything starts. */
static int
prepare_arrivals(struct bench_options *options)
{
    static const char *const names[] = {"constant", "poisson", "bursty"};
    struct arrivals *arrivals = &options->arrivals;

    *arrivals = (struct arrivals){
        .kind = ARRIVALS_FILE,
        .rate_qps = options->rate_qps / (double)options->processes,
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
        return options->rate_qps > 0 ? EXIT_DONE : usage_error("bench", "--rate is needed");
    }
    if (options->processes != 1) {
        return usage_error("bench", "arrivals from a file need --processes 1");
    }
    const enum leat_status status =
        arrivals_read_file(options->arrivals_text, &options->times_s, &arrivals->time_count);
    arrivals->times_s = options->times_s;
    return status == LEAT_OK ? EXIT_DONE : report_status("bench", "arrivals", status);
}

/* The application's own objective, where none was given. A name that the daemon does not know is reported later. */
static int
learn_objective(struct bench_options *options)
{
    int exit_code = EXIT_DONE;
    json_t *application;
    size_t i;

    if (options->objective_given) {
        return EXIT_DONE;
    }
    json_t *status = ask_daemon("bench", options->socket_path, json_pack("{s:s}", "op", "status"), -1, &exit_code);
    json_array_foreach(json_object_get(status, "applications"), i, application) {
        const char *name = json_string_value(json_object_get(application, "name"));
        if (name != NULL && strcmp(name, options->target) == 0) {
            options->objective_ns = (uint64_t)json_integer_value(json_object_get(application, "latency_ns"));
        }
    }
    json_decref(status);
    return exit_code;
}

/* ---- One client process ----------------------------------------------------------------------- */

static int
fail(struct client *client, enum leat_status status)
{
    (void)snprintf(client->result->error, sizeof(client->result->error), "%s", leat_error_text());
    return status == LEAT_ERR_NOT_FOUND || status == LEAT_ERR_ACCESS || status == LEAT_ERR_LIMIT ? EXIT_REFUSED
                                                                                                  : EXIT_FAILED;
}

static int
fail_text(struct client *client, const char *text)
{
    (void)snprintf(client->result->error, sizeof(client->result->error), "%s", text);
    return EXIT_FAILED;
}

static int
load_data(struct client *client)
{
    const struct leat_tensor_info *info = &client->target.tensors[0];

    if (client->options->inputs_path == NULL) {
        return EXIT_DONE;
    }
    enum leat_status status = npy_read(client->options->inputs_path, &client->inputs);
    if (status != LEAT_OK) {
        return fail(client, status);
    }
    if (!npy_holds_items(&client->inputs, info) || (uint64_t)client->inputs.dims[0] < client->options->items) {
        (void)snprintf(client->result->error, sizeof(client->result->error), "%s holds %s, but input '%s' needs %s, N at least %llu",
                       client->options->inputs_path,
                       npy_shape(client->inputs.dtype, client->inputs.dims, client->inputs.rank).text, info->name,
                       npy_shape(info->dtype, info->dims, info->rank).text,
                       (unsigned long long)client->options->items);
        return EXIT_FAILED;
    }
    client->item_count = (uint64_t)client->inputs.dims[0];
    if (client->options->labels_path != NULL) {
        status = npy_read(client->options->labels_path, &client->labels);
        if (status != LEAT_OK) {
            return fail(client, status);
        }
        if (client->labels.elements != client->item_count ||
            (client->labels.dtype != LEAT_DTYPE_U8 && client->labels.dtype != LEAT_DTYPE_I64 &&
             client->labels.dtype != LEAT_DTYPE_I32)) {
            return fail_text(client, "the --labels file needs one u8, i32 or i64 for each input");
        }
        if (client->target.tensors[client->target.input_count].dtype != LEAT_DTYPE_F32) {
            return fail_text(client, "accuracy needs a model whose first output is f32 scores");
        }
    }
    return EXIT_DONE;
}

static int
prepare_client(struct client *client)
{
    struct leat_options session_options = LEAT_OPTIONS_INIT;
    const struct bench_options *options = client->options;

    /* Once to learn the signature, then with an arena that holds every slot's tensors. */
    session_options.socket_path = options->socket_path;
    session_options.slots = SLOTS;
    session_options.arena_bytes = 4096;
    enum leat_status status = leat_open(&session_options, &client->session);
    if (status == LEAT_OK) {
        status = leat_find(client->session, options->target, &client->target);
        leat_close(client->session);
        client->session = NULL;
    }
    if (status != LEAT_OK) {
        return fail(client, status);
    }
    if (options->items > client->target.items_max) {
        return fail_text(client, "--items is larger than the model's largest batch");
    }
    const uint32_t tensors = client->target.input_count + client->target.output_count;
    uint64_t slot_bytes = 0;
    for (uint32_t t = 0; t < tensors; t++) {
        slot_bytes += leat_round_up(client->target.tensors[t].item_bytes * options->items, 64);
    }
    uint32_t slots = SLOTS;
    while (slots > 2 && slot_bytes * slots > UINT64_C(256) << 20) {
        slots /= 2; /* large tensors: fewer in flight rather than a huge arena */
    }
    session_options.arena_bytes = leat_round_up(slot_bytes * slots, 1 << 21);
    session_options.slots = slots;
    status = leat_open(&session_options, &client->session);
    if (status == LEAT_OK) {
        status = leat_find(client->session, options->target, &client->target);
    }
    for (uint32_t s = 0; s < slots && status == LEAT_OK; s++) {
        for (uint32_t t = 0; t < tensors && status == LEAT_OK; t++) {
            const uint64_t bytes = client->target.tensors[t].item_bytes * options->items;
            status = leat_tensor_alloc(client->session, bytes, &client->slots[s].tensors[t]);
            if (status == LEAT_OK) {
                memset(client->slots[s].tensors[t], 0, bytes);
            }
        }
        client->free_slots[client->free_count++] = s;
    }
    return status == LEAT_OK ? load_data(client) : fail(client, status);
}

static int64_t
label_of(const struct npy_array *labels, uint64_t index)
{
    switch (labels->dtype) {
    case LEAT_DTYPE_U8: return ((const uint8_t *)labels->data)[index];
    case LEAT_DTYPE_I32: return ((const int32_t *)labels->data)[index];
    default: return ((const int64_t *)labels->data)[index];
    }
}

/* Compares the largest score of each item with its label. */
static void
judge(struct client *client, uint32_t slot)
{
    const uint32_t output = client->target.input_count;
    const size_t classes = client->target.tensors[output].item_bytes / sizeof(float);
    const float *scores = client->slots[slot].tensors[output];

    for (uint64_t i = 0; i < client->options->items; i++, scores += classes) {
        size_t best = 0;
        for (size_t c = 1; c < classes; c++) {
            best = scores[c] > scores[best] ? c : best;
        }
        const uint64_t item = (client->slots[slot].first_item + i) % client->item_count;
        client->result->items_labelled++;
        client->result->items_correct += (int64_t)best == label_of(&client->labels, item);
    }
}

/* Counts the end of a query that was meant to start in the window. */
static void
count_end(struct client *client, uint32_t slot, const struct leat_completion *done, uint64_t latency_ns, bool in_time)
{
    struct bench_result *result = client->result;

    switch (done->outcome) {
    case LEAT_OUTCOME_OK:
        result->ok++;
        result->late += !in_time;
        result->batch_items_sum += done->batch_items;
        result->queue_ns_sum += done->queue_ns;
        result->exec_ns_sum += done->exec_ns;
        if (result->sample_count < client->sample_room) {
            client->samples_ns[result->sample_count++] = latency_ns;
        } else {
            result->samples_dropped++;
        }
        if (client->labels.data != NULL) {
            judge(client, slot);
        }
        break;
    case LEAT_OUTCOME_REJECTED: result->rejected++; break;
    case LEAT_OUTCOME_EXPIRED: result->expired++; break;
    case LEAT_OUTCOME_CANCELLED: result->cancelled++; break;
    case LEAT_OUTCOME_LOST: result->lost++; break;
    default: result->failed++; break;
    }
}

static void
record(struct client *client, const struct leat_completion *done, uint64_t now_ns)
{
    const uint32_t slot = (uint32_t)done->user_data;
    const uint64_t latency_ns = now_ns - client->slots[slot].intended_ns;
    const uint64_t objective_ns = client->options->objective_ns;
    const bool in_time = objective_ns == 0 || latency_ns <= objective_ns;

    if (done->outcome == LEAT_OUTCOME_OK && now_ns >= client->window_ns && now_ns < client->window_end_ns) {
        client->result->window_ok++;
        client->result->window_in_time += in_time;
    }
    if (client->slots[slot].intended_ns >= client->window_ns) {
        count_end(client, slot, done, latency_ns, in_time);
    }
    client->free_slots[client->free_count++] = slot;
}

/* False when nothing came. */
static bool
collect_some(struct client *client, uint64_t wait_ns)
{
    struct leat_completion done[POLL_MAX];
    size_t count = 0;

    if (leat_wait(client->session, done, POLL_MAX, wait_ns, &count) != LEAT_OK) {
        return false;
    }
    const uint64_t now_ns = leat_monotonic_ns();
    for (size_t i = 0; i < count; i++) {
        record(client, &done[i], now_ns);
    }
    return true;
}

static enum leat_status
send_one(struct client *client, uint64_t intended_ns, uint64_t now_ns, uint64_t sequence)
{
    const struct bench_options *options = client->options;
    const uint32_t slot = client->free_slots[client->free_count - 1];
    struct leat_query query = LEAT_QUERY_INIT;

    query.target = client->target.id;
    query.items = (uint32_t)options->items;
    query.user_data = slot;
    memcpy(query.tensors, client->slots[slot].tensors, sizeof(query.tensors));
    if (options->objective_ns != 0) { /* what is left of it, counted from the intended start */
        const uint64_t waited_ns = now_ns - intended_ns;
        query.latency_ns = waited_ns < options->objective_ns ? options->objective_ns - waited_ns : 1000;
    }
    if (client->item_count > 0) {
        const uint64_t item_bytes = client->target.tensors[0].item_bytes;
        const uint64_t first = sequence * options->items % client->item_count;
        unsigned char *to = query.tensors[0];
        for (uint64_t i = 0; i < options->items; i++) {
            const uint64_t item = (first + i) % client->item_count;
            memcpy(to + i * item_bytes, (const unsigned char *)client->inputs.data + item * item_bytes, item_bytes);
        }
        client->slots[slot].first_item = first;
    }
    client->slots[slot].intended_ns = intended_ns;
    const enum leat_status status = leat_submit(client->session, &query, NULL);
    if (status == LEAT_OK) {
        client->free_count--;
        client->result->sent += intended_ns >= client->window_ns;
    }
    return status;
}

/*
 * Collects until it is time to send and a slot is free; returns the time. 0 when none came free until the window was over
 * and the query's objective with it: sending it would measure nothing any more.
 */
static uint64_t
await_turn(struct client *client, uint64_t intended_ns)
{
    const uint64_t in_time_ns = intended_ns + client->options->objective_ns;
    const uint64_t give_up_ns = in_time_ns > client->window_end_ns ? in_time_ns : client->window_end_ns;
    uint64_t now_ns = leat_monotonic_ns();

    while (now_ns < intended_ns || client->free_count == 0) {
        if (now_ns >= give_up_ns) {
            return 0;
        }
        if (leat_in_flight(client->session) > 0) {
            (void)collect_some(client, now_ns < intended_ns ? intended_ns - now_ns : 1000000);
        } else {
            const struct timespec until = {(time_t)(intended_ns / 1000000000u), (long)(intended_ns % 1000000000u)};
            (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        }
        now_ns = leat_monotonic_ns();
    }
    return now_ns;
}

/* Sends on schedule until the window is over, collecting in between; then waits for what is in flight. */
static int
drive(struct client *client, struct arrivals arrivals)
{
    const struct bench_options *options = client->options;
    const uint64_t start_ns = leat_monotonic_ns();
    uint64_t sequence = client->index; /* the processes take the inputs in turn */

    client->window_ns = start_ns + options->warmup_ns;
    client->window_end_ns = client->window_ns + options->duration_ns;
    for (;;) {
        const double next_s = arrivals_next(&arrivals);
        const uint64_t intended_ns = start_ns + (uint64_t)(next_s * 1e9);
        if (next_s < 0 || intended_ns >= client->window_end_ns) {
            break;
        }
        client->result->offered += intended_ns >= client->window_ns;
        const uint64_t now_ns = await_turn(client, intended_ns);
        const enum leat_status status = now_ns != 0 ? send_one(client, intended_ns, now_ns, sequence) : LEAT_OK;
        sequence += options->processes;
        if (status != LEAT_OK) {
            return fail(client, status);
        }
    }
    uint64_t heard_ns = leat_monotonic_ns();
    while (leat_in_flight(client->session) > 0 && leat_monotonic_ns() - heard_ns < PATIENCE_NS) {
        if (collect_some(client, 100000000)) {
            heard_ns = leat_monotonic_ns();
        }
    }
    return leat_in_flight(client->session) == 0 ? EXIT_DONE : fail_text(client, "the daemon stopped answering");
}

static _Noreturn void
client_process(const struct bench_options *options, uint64_t index, struct bench_result *result, uint64_t *samples_ns,
               uint64_t sample_room)
{
    static struct client client;
    struct arrivals arrivals = options->arrivals;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    client = (struct client){
        .options = options, .index = index, .result = result, .samples_ns = samples_ns, .sample_room = sample_room};
    arrivals_start(&arrivals, options->seed * 1000003 + index);
    result->exit_code = prepare_client(&client);
    if (result->exit_code == EXIT_DONE) {
        result->exit_code = drive(&client, arrivals);
    }
    leat_close(client.session);
    npy_free(&client.inputs);
    npy_free(&client.labels);
    free(options->times_s);
    exit(0);
}

/* ---- All of them ------------------------------------------------------------------------------ */

static void
add(struct bench_result *sum, const struct bench_result *one)
{
    sum->offered += one->offered;
    sum->sent += one->sent;
    sum->ok += one->ok;
    sum->late += one->late;
    sum->rejected += one->rejected;
    sum->expired += one->expired;
    sum->cancelled += one->cancelled;
    sum->failed += one->failed;
    sum->lost += one->lost;
    sum->window_ok += one->window_ok;
    sum->window_in_time += one->window_in_time;
    sum->items_correct += one->items_correct;
    sum->items_labelled += one->items_labelled;
    sum->batch_items_sum += one->batch_items_sum;
    sum->queue_ns_sum += one->queue_ns_sum;
    sum->exec_ns_sum += one->exec_ns_sum;
    sum->samples_dropped += one->samples_dropped;
}

static void
show_progress(const struct bench_options *options)
{
    if (isatty(STDERR_FILENO) != 0) {
        (void)fprintf(stderr, "measuring %s for %.1f s ...\n", options->target,
                      (double)(options->duration_ns + options->warmup_ns) / 1e9);
    }
}

static int
bench(struct bench_options *options)
{
    const double expected = options->arrivals.kind == ARRIVALS_FILE
                                ? (double)options->arrivals.time_count
                                : options->arrivals.rate_qps * (double)options->duration_ns / 1e9;
    const uint64_t room = (uint64_t)(expected * 1.5) + 10000;
    const size_t bytes = sizeof(struct bench_result) * options->processes + room * options->processes * sizeof(uint64_t);
    struct bench_result *results = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (results == MAP_FAILED) {
        (void)fprintf(stderr, "leat bench: no memory for %.0f latencies: %s\n", expected, strerror(errno));
        return EXIT_FAILED;
    }
    uint64_t *samples_ns = (uint64_t *)(results + options->processes);
    pid_t children[PROCESSES_MAX];

    show_progress(options);
    for (uint64_t p = 0; p < options->processes; p++) {
        children[p] = fork();
        if (children[p] == 0) {
            client_process(options, p, &results[p], samples_ns + p * room, room);
        }
        results[p].exit_code = children[p] < 0 ? EXIT_FAILED : results[p].exit_code;
    }
    struct bench_result sum = {0};
    int exit_code = EXIT_DONE;
    for (uint64_t p = 0; p < options->processes; p++) {
        int ended = 0;
        if (children[p] < 0 || waitpid(children[p], &ended, 0) != children[p] || ended != 0) {
            (void)fprintf(stderr, "leat bench: client process %llu died\n", (unsigned long long)p);
            exit_code = EXIT_FAILED;
            continue;
        }
        if (results[p].exit_code != EXIT_DONE) {
            (void)fprintf(stderr, "leat bench: %s\n", results[p].error);
            exit_code = results[p].exit_code;
        }
        add(&sum, &results[p]);
        memmove(samples_ns + sum.sample_count, samples_ns + p * room, results[p].sample_count * sizeof(uint64_t));
        sum.sample_count += results[p].sample_count;
    }
    if (exit_code == EXIT_DONE) {
        bench_report(options, &sum, samples_ns);
    }
    (void)munmap(results, bytes);
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
    int exit_code = prepare_arrivals(&options);
    if (exit_code == EXIT_DONE) {
        exit_code = learn_objective(&options);
    }
    if (exit_code == EXIT_DONE) {
        exit_code = bench(&options);
    }
    free(options.times_s);
    return exit_code;
}
