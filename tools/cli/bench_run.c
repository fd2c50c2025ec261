/* SPDX-License-Identifier: Apache-2.0 */
/* One run of leat bench: the plan, the client processes, their joint start and the sum of what they found. */
#include "tools/cli/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/cli/cli.h"
#include "tools/cli/output.h"
#include "tools/simulate/random.h"

#define QUERIES_MAX    1e9             /* of a run: their latencies are held in memory */
#define START_DELAY_NS UINT64_C(10000000) /* all processes are awake by then */

/* ---- The queries of a run ---------------------------------------------------------------------- */

void
bench_schedule_start(struct bench_schedule *schedule, const struct bench_options *options, double rate_qps,
                     uint32_t items_max)
{
    uint64_t seed = options->seed; /* the streams are those of simulate_workload_make */

    *schedule = (struct bench_schedule){
        .options = options, .arrivals = options->arrivals, .random = random_u64(&seed), .items_max = items_max};
    schedule->arrivals.rate_qps = rate_qps;
    arrivals_start(&schedule->arrivals, random_u64(&seed));
}

bool
bench_schedule_next(struct bench_schedule *schedule, struct bench_query *ret_query)
{
    const double due_s = arrivals_next(&schedule->arrivals);
    uint32_t items = (uint32_t)schedule->options->items;
    bool clipped = false;

    if (due_s < 0) {
        return false;
    }
    if (schedule->options->trace.items != NULL) {
        items = schedule->options->trace.items[schedule->number];
    } else if (schedule->options->sizes_text != NULL && schedule->items_max > 0) {
        items = simulate_draw_size(&schedule->options->draw, &schedule->random);
        clipped = items > schedule->items_max;
        items = clipped ? schedule->items_max : items;
    }
    *ret_query = (struct bench_query){
        .due_ns = (uint64_t)(due_s * 1e9), .first_item = schedule->next_item, .items = items, .clipped = clipped};
    schedule->next_item += items;
    schedule->number++;
    return true;
}

/* The window ends when its length says so, or when the query is due that would be one too many. */
static int
make_plan(const struct bench_options *options, double rate_qps, struct bench_plan *ret_plan)
{
    const double seconds = (double)(options->warmup_ns + options->duration_ns) / 1e9;
    struct bench_plan plan = {.rate_qps = rate_qps, .window_ns = options->duration_ns};
    struct bench_schedule schedule;
    struct bench_query query = {0};
    uint64_t end_ns = options->warmup_ns + 1;

    if (options->arrivals.kind != ARRIVALS_FILE && rate_qps * seconds > QUERIES_MAX) {
        (void)fprintf(stderr, "leat bench: more than %.0f queries\n", QUERIES_MAX);
        return EXIT_FAILED;
    }
    bench_schedule_start(&schedule, options, rate_qps, 0);
    while (bench_schedule_next(&schedule, &query)) {
        if (options->queries > 0 ? plan.measured_count == options->queries
                                 : query.due_ns >= options->warmup_ns + options->duration_ns) {
            end_ns = query.due_ns > end_ns ? query.due_ns : end_ns;
            break;
        }
        plan.query_count++;
        plan.measured_count += query.due_ns >= options->warmup_ns;
        end_ns = query.due_ns >= end_ns ? query.due_ns + 1 : end_ns; /* where a file ends */
    }
    if (options->queries > 0) {
        plan.window_ns = end_ns - options->warmup_ns;
    }
    *ret_plan = plan;
    return EXIT_DONE;
}

/* ---- Processes --------------------------------------------------------------------------------- */

struct shared {
    uint64_t start_ns; /* W: the parent, before the processes look */
    struct bench_result results[BENCH_PROCESSES_MAX];
    uint64_t times_ns[]; /* [processes][room] latencies, then as many delays; then struct bench_moment[processes][moment_count] */
};

struct child {
    pid_t pid;
    int ready_fd;
};

static void
close_fd(int fd)
{
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* False, with the reason in errno. */
static bool
start_child(struct bench_client_task task, const int go[2], struct child *child)
{
    int ready[2];

    *child = (struct child){.pid = -1, .ready_fd = -1};
    if (pipe(ready) != 0) {
        return false;
    }
    (void)fflush(NULL); /* else the child would print it too */
    child->pid = fork();
    if (child->pid == 0) {
        (void)close(ready[0]);
        (void)close(go[1]);
        task.ready_fd = ready[1];
        task.go_fd = go[0];
        bench_client(&task);
        _exit(0);
    }
    (void)close(ready[1]);
    child->ready_fd = ready[0];
    return child->pid > 0;
}

/*
 * Starts all processes together, or none if one is not ready: each holds the only writing end of its pipe, so its death
 * shows too; and each sees the end of `go`, which only the parent keeps open.
 */
static bool
run_children(const struct bench_client_task *first, struct shared *shared, struct child *children)
{
    const uint64_t count = first->options->processes;
    int go[2] = {-1, -1};
    bool all = pipe(go) == 0;
    uint64_t started = 0;
    char byte;

    while (all && started < count) {
        struct bench_client_task task = *first;
        task.index = started;
        task.result = &shared->results[started];
        task.latencies_ns += started * task.room;
        task.delays_ns += started * task.room;
        task.course += started * task.moment_count;
        all = start_child(task, go, &children[started]);
        started++;
    }
    if (!all) {
        (void)fprintf(stderr, "leat bench: cannot start a client process: %s\n", strerror(errno));
    }
    for (uint64_t p = 0; p < started; p++) {
        all = children[p].ready_fd >= 0 && read(children[p].ready_fd, &byte, 1) == 1 && all;
        close_fd(children[p].ready_fd);
    }
    shared->start_ns = all ? leat_monotonic_ns() + START_DELAY_NS : 0;
    close_fd(go[0]);
    close_fd(go[1]);
    for (uint64_t p = 0; p < started; p++) {
        int ended = 0;
        if (children[p].pid > 0 && (waitpid(children[p].pid, &ended, 0) != children[p].pid || ended != 0)) {
            (void)snprintf(shared->results[p].error, sizeof(shared->results[p].error), "client process %llu died",
                           (unsigned long long)p);
            shared->results[p].exit_code = EXIT_FAILED;
        }
    }
    return all;
}

/* Says what the first one said that failed. */
static int
report_failures(const struct bench_options *options, const struct shared *shared)
{
    const struct bench_result *first = NULL;
    uint64_t failed = 0;

    for (uint64_t p = 0; p < options->processes; p++) {
        if (shared->results[p].exit_code != EXIT_DONE) {
            first = failed == 0 ? &shared->results[p] : first;
            failed++;
        }
    }
    if (first == NULL) {
        return EXIT_DONE;
    }
    if (options->processes == 1) {
        (void)fprintf(stderr, "leat bench: %s\n", first->error);
    } else {
        (void)fprintf(stderr, "leat bench: %llu of %llu processes failed: %s\n", (unsigned long long)failed,
                      (unsigned long long)options->processes, first->error);
    }
    return first->exit_code;
}

/* ---- Sums -------------------------------------------------------------------------------------- */

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
    sum->unanswered += one->unanswered;
    sum->items += one->items;
    sum->clipped += one->clipped;
    sum->window_ok += one->window_ok;
    sum->window_in_time += one->window_in_time;
    sum->items_correct += one->items_correct;
    sum->items_labelled += one->items_labelled;
    sum->items_correct_in_time += one->items_correct_in_time;
    sum->items_in_time += one->items_in_time;
    sum->accuracy_in_time.count += one->accuracy_in_time.count;
    sum->accuracy_in_time.ppm_sum += one->accuracy_in_time.ppm_sum;
    sum->accuracy_ok.count += one->accuracy_ok.count;
    sum->accuracy_ok.ppm_sum += one->accuracy_ok.ppm_sum;
    for (uint32_t v = 0; v < BENCH_VARIANTS_MAX; v++) {
        sum->of_variant[v].ok += one->of_variant[v].ok;
        sum->of_variant[v].in_time += one->of_variant[v].in_time;
        if (one->of_variant[v].accuracy_ppm > 0) {
            sum->of_variant[v].accuracy_ppm = one->of_variant[v].accuracy_ppm;
        }
    }
    for (uint32_t s = 0; s < BENCH_STAGES_MAX; s++) {
        sum->of_stage[s].count += one->of_stage[s].count;
        sum->of_stage[s].queue_ns_sum += one->of_stage[s].queue_ns_sum;
        sum->of_stage[s].exec_ns_sum += one->of_stage[s].exec_ns_sum;
    }
    sum->batch_items_sum += one->batch_items_sum;
    sum->queue_ns_sum += one->queue_ns_sum;
    sum->exec_ns_sum += one->exec_ns_sum;
    sum->latency_count += one->latency_count;
    sum->slot_waits += one->slot_waits;
}

static int
compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static struct bench_quantiles
find_quantiles(uint64_t *times_ns, uint64_t count)
{
    if (count == 0) {
        return (struct bench_quantiles){0};
    }
    qsort(times_ns, count, sizeof(times_ns[0]), compare_u64);
    const double last = (double)(count - 1);
    return (struct bench_quantiles){
        .p50_ns = times_ns[(uint64_t)(last * 0.5 + 0.5)],
        .p99_ns = times_ns[(uint64_t)(last * 0.99 + 0.5)],
        .p999_ns = times_ns[(uint64_t)(last * 0.999 + 0.5)],
        .max_ns = times_ns[count - 1],
    };
}

/* What the processes found, each in a part of its own, is moved together. */
static void
summarize(const struct bench_client_task *first, const struct shared *shared, struct bench_summary *summary)
{
    struct bench_result *sum = &summary->sum;

    for (uint64_t p = 0; p < first->options->processes; p++) {
        const struct bench_result *one = &shared->results[p];
        memmove(first->latencies_ns + sum->latency_count, first->latencies_ns + p * first->room,
                one->latency_count * sizeof(uint64_t));
        memmove(first->delays_ns + sum->sent, first->delays_ns + p * first->room, one->sent * sizeof(uint64_t));
        add(sum, one);
    }
    summary->latency = find_quantiles(first->latencies_ns, sum->latency_count);
    summary->delay = find_quantiles(first->delays_ns, sum->sent);
}

static void
write_course(const void *of, FILE *out)
{
    const struct bench_client_task *first = of;

    (void)fprintf(out, "second,offered,in_time\n");
    for (uint64_t m = 0; m < first->moment_count; m++) {
        struct bench_moment sum = {0};
        for (uint64_t p = 0; p < first->options->processes; p++) {
            sum.offered += first->course[p * first->moment_count + m].offered;
            sum.in_time += first->course[p * first->moment_count + m].in_time;
        }
        (void)fprintf(out, "%.1f,%llu,%llu\n", (double)(m * BENCH_MOMENT_NS) / 1e9, (unsigned long long)sum.offered,
                      (unsigned long long)sum.in_time);
    }
}

int
bench_run(const struct bench_options *options, double rate_qps, struct bench_summary *ret_summary)
{
    struct bench_summary summary = {0};
    struct child children[BENCH_PROCESSES_MAX];

    const int planned = make_plan(options, rate_qps, &summary.plan);
    if (planned != EXIT_DONE) {
        return planned;
    }
    const uint64_t room = summary.plan.measured_count / options->processes + 1;
    const uint64_t moment_count = summary.plan.window_ns / BENCH_MOMENT_NS + 1;
    const size_t bytes = sizeof(struct shared) + 2 * room * options->processes * sizeof(uint64_t) +
                         moment_count * options->processes * sizeof(struct bench_moment);
    struct shared *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        (void)fprintf(stderr, "leat bench: no memory for %llu latencies: %s\n",
                      (unsigned long long)summary.plan.measured_count, strerror(errno));
        return EXIT_FAILED;
    }
    const struct bench_client_task first = {
        .options = options,
        .plan = &summary.plan,
        .start_ns = &shared->start_ns,
        .latencies_ns = shared->times_ns,
        .delays_ns = shared->times_ns + room * options->processes,
        .room = room,
        .course = (struct bench_moment *)(shared->times_ns + 2 * room * options->processes),
        .moment_count = moment_count,
    };
    int exit_code;
    summary.names_before = bench_ask_names(options, &exit_code);
    if (exit_code == EXIT_DONE) {
        const bool ran = run_children(&first, shared, children);
        exit_code = report_failures(options, shared);
        exit_code = exit_code == EXIT_DONE && !ran ? EXIT_FAILED : exit_code;
    }
    if (exit_code == EXIT_DONE) {
        summary.names_after = bench_ask_names(options, &exit_code);
    }
    if (exit_code == EXIT_DONE) {
        const struct output course = {options->course_path, write_course};
        const enum leat_status written = output_write(&course, 1, &first);
        exit_code = written == LEAT_OK ? EXIT_DONE : report_status("bench", "--course", written);
    }
    if (exit_code == EXIT_DONE) {
        summarize(&first, shared, &summary);
        *ret_summary = summary;
    } else {
        json_decref(summary.names_before);
        json_decref(summary.names_after);
    }
    (void)munmap(shared, bytes);
    return exit_code;
}
