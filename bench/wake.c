/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/support.h"
#include "ipc/doorbell.h"

static const char measures[] =
    "Measures   From publishing a message to the sleeping receiver having seen it, one way, and what that costs the\n"
    "           sender: through ipc/doorbell.h as a worker sleeps (private futex), as a client sleeps (shared futex)\n"
    "           and as the dispatcher sleeps (epoll over an edge-triggered eventfd), each beside the bare mechanism\n"
    "           without the bell; and a spinning receiver. Twice: as the machine is, and holding /dev/cpu_dma_latency\n"
    "           at 0. Then what the sender pays when the receiver is awake, beside a system call that finds nobody.\n"
    "Does not   say anything of receivers that share the sender's CPU, or of threads that compete for one.\n"
    "Method     Two threads on the last two of --cpus; the sender leaves the receiver 50 us to go to sleep, busy\n"
    "           meanwhile. The mechanisms take turns, a window each. Ratios are medians over rounds of ratios of p50.";

enum { GAP_NS = 50000, SAMPLES_MAX = 200000, BATCH = 10000 };
#define MESSAGE_STOP UINT32_MAX

static struct leat_clock bench_clock;

struct pair {
    struct leat_bell bell;
    _Alignas(LEAT_ISOLATE) _Atomic uint32_t message;  /* W: sender  R: receiver; the bare futex sleeps on it */
    _Alignas(LEAT_ISOLATE) _Atomic uint32_t answered; /* W: receiver, after seen_ns  R: sender */
    uint64_t seen_ns;                                 /* W: receiver */
    int event_fd, epoll_fd;                           /* constant */
    const struct mechanism *mechanism;                /* constant */
    int cpu;                                          /* the receiver's; constant */
};

struct mechanism {
    const char *name;
    void (*await)(struct pair *pair, uint32_t seen); /* until message != seen */
    void (*wake)(struct pair *pair);                 /* the message has been stored */
};

static bool
arrived(struct pair *pair, uint32_t seen)
{
    return atomic_load_explicit(&pair->message, memory_order_acquire) != seen;
}

/* ---- Mechanisms ------------------------------------------------------------------------------- */

static void
futex_await(struct pair *pair, uint32_t seen, int operation)
{
    while (!arrived(pair, seen)) {
        (void)syscall(SYS_futex, &pair->message, operation, seen, NULL, NULL, 0);
    }
}

static void
futex_wake(struct pair *pair, int operation)
{
    (void)syscall(SYS_futex, &pair->message, operation, INT_MAX, NULL, NULL, 0);
}

static void
private_await(struct pair *pair, uint32_t seen)
{
    futex_await(pair, seen, FUTEX_WAIT_PRIVATE);
}

static void
private_wake(struct pair *pair)
{
    futex_wake(pair, FUTEX_WAKE_PRIVATE);
}

static void
shared_await(struct pair *pair, uint32_t seen)
{
    futex_await(pair, seen, FUTEX_WAIT);
}

static void
shared_wake(struct pair *pair)
{
    futex_wake(pair, FUTEX_WAKE);
}

static void
epoll_sleep(struct pair *pair)
{
    struct epoll_event event;
    LEAT_MUST(epoll_wait(pair->epoll_fd, &event, 1, -1) >= 0 || errno == EINTR);
}

static void
event_wake(struct pair *pair)
{
    const uint64_t one = 1;
    LEAT_MUST(write(pair->event_fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
}

static void
event_await(struct pair *pair, uint32_t seen)
{
    while (!arrived(pair, seen)) {
        epoll_sleep(pair);
    }
}

static void
bell_futex_await(struct pair *pair, uint32_t seen, bool shared)
{
    while (!arrived(pair, seen)) {
        leat_bell_announce(&pair->bell, LEAT_BELL_FUTEX);
        if (!arrived(pair, seen)) {
            leat_bell_futex_sleep(&pair->bell, shared, UINT64_MAX);
        }
        leat_bell_withdraw(&pair->bell);
    }
}

static void
bell_private_await(struct pair *pair, uint32_t seen)
{
    bell_futex_await(pair, seen, false);
}

static void
bell_shared_await(struct pair *pair, uint32_t seen)
{
    bell_futex_await(pair, seen, true);
}

static void
bell_private_wake(struct pair *pair)
{
    if (leat_bell_ring(&pair->bell) != LEAT_BELL_AWAKE) {
        leat_bell_futex_wake(&pair->bell, false);
    }
}

static void
bell_shared_wake(struct pair *pair)
{
    if (leat_bell_ring(&pair->bell) != LEAT_BELL_AWAKE) {
        leat_bell_futex_wake(&pair->bell, true);
    }
}

static void
bell_event_await(struct pair *pair, uint32_t seen)
{
    while (!arrived(pair, seen)) {
        leat_bell_announce(&pair->bell, LEAT_BELL_EVENT);
        if (!arrived(pair, seen)) {
            epoll_sleep(pair);
        }
        leat_bell_withdraw(&pair->bell);
    }
}

static void
bell_event_wake(struct pair *pair)
{
    if (leat_bell_ring(&pair->bell) != LEAT_BELL_AWAKE) {
        event_wake(pair);
    }
}

static void
spin_await(struct pair *pair, uint32_t seen)
{
    while (!arrived(pair, seen)) {
        leat_spin_pause();
    }
}

static void
spin_wake(struct pair *pair)
{
    (void)pair;
}

/* A bell directly after its bare mechanism. */
static const struct mechanism mechanisms[] = {
    {"futex, private", private_await, private_wake},
    {"bell of a worker (private futex)", bell_private_await, bell_private_wake},
    {"futex, shared", shared_await, shared_wake},
    {"bell of a client (shared futex)", bell_shared_await, bell_shared_wake},
    {"eventfd and epoll", event_await, event_wake},
    {"bell of the dispatcher (eventfd and epoll)", bell_event_await, bell_event_wake},
    {"spinning receiver", spin_await, spin_wake},
};
enum { MECHANISMS = LEAT_COUNT_OF(mechanisms), BELLS = 3 };

/* ---- Waking a sleeper ------------------------------------------------------------------------- */

static void *
receiver_main(void *argument)
{
    struct pair *pair = argument;
    uint32_t seen = 0;

    bench_pin(&pair->cpu, 1);
    for (;;) {
        pair->mechanism->await(pair, seen);
        pair->seen_ns = leat_clock_now(&bench_clock);
        const uint32_t message = atomic_load_explicit(&pair->message, memory_order_acquire);
        LEAT_ASSERT(message == MESSAGE_STOP || message == seen + 1); /* each wake-up brings the next one */
        seen = message;
        atomic_store_explicit(&pair->answered, message, memory_order_release);
        if (message == MESSAGE_STOP) {
            return NULL;
        }
    }
}

static void
send(struct pair *pair, uint32_t message)
{
    atomic_store_explicit(&pair->message, message, memory_order_release);
    pair->mechanism->wake(pair);
}

static void
stay_busy_until(uint64_t end_ns)
{
    while (leat_clock_now(&bench_clock) < end_ns) {
    }
}

struct wake_cost {
    struct bench_latency one_way, sender;
};

static struct wake_cost
measure_wake(const struct mechanism *mechanism, const struct bench_options *options)
{
    static uint64_t one_way_ns[SAMPLES_MAX], sender_ns[SAMPLES_MAX];
    struct pair *pair = mmap(NULL, sizeof(*pair), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct epoll_event interest = {.events = EPOLLIN | EPOLLET};
    pthread_t receiver;
    uint32_t count = 0;

    LEAT_ASSERT(pair != MAP_FAILED);
    pair->mechanism = mechanism;
    pair->cpu = options->cpus[options->cpu_count - 1];
    pair->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pair->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    LEAT_MUST(pair->event_fd >= 0 && epoll_ctl(pair->epoll_fd, EPOLL_CTL_ADD, pair->event_fd, &interest) == 0);
    LEAT_MUST(pthread_create(&receiver, NULL, receiver_main, pair) == 0);
    const uint64_t end_ns = leat_clock_now(&bench_clock) + options->window_ns;
    uint64_t now_ns = 0;
    while (count < SAMPLES_MAX && now_ns < end_ns) {
        stay_busy_until(leat_clock_now(&bench_clock) + GAP_NS);
        const uint64_t start_ns = leat_clock_now(&bench_clock);
        send(pair, count + 1);
        now_ns = leat_clock_now(&bench_clock);
        while (atomic_load_explicit(&pair->answered, memory_order_acquire) != count + 1) {
        }
        sender_ns[count] = now_ns - start_ns;
        one_way_ns[count] = pair->seen_ns > start_ns ? pair->seen_ns - start_ns : 0;
        count++;
    }
    send(pair, MESSAGE_STOP);
    LEAT_MUST(pthread_join(receiver, NULL) == 0);
    (void)close(pair->epoll_fd);
    (void)close(pair->event_fd);
    LEAT_MUST(munmap(pair, sizeof(*pair)) == 0);
    return (struct wake_cost){bench_order(one_way_ns, count), bench_order(sender_ns, count)};
}

/* ---- Nobody sleeps ---------------------------------------------------------------------------- */

enum { AWAKE_BELL, AWAKE_FUTEX, AWAKE_EVENTFD, AWAKE_STORE, AWAKE_CASES };

static const char *const awake_names[AWAKE_CASES] = {"bell, receiver awake", "futex wake, no waiter",
                                                     "eventfd write, no waiter", "message stored, nothing rung"};

/* Nanoseconds per message published and rung, the mean of a batch: one of them is too short for the clock. */
static double
batch_ns(struct pair *pair, int which)
{
    const uint64_t start_ns = leat_clock_now(&bench_clock);
    for (uint32_t i = 0; i < BATCH; i++) {
        atomic_store_explicit(&pair->message, i, memory_order_release);
        switch (which) {
        case AWAKE_BELL: bell_private_wake(pair); break;
        case AWAKE_FUTEX: private_wake(pair); break;
        case AWAKE_EVENTFD: event_wake(pair); break;
        default: break;
        }
    }
    return (double)(leat_clock_now(&bench_clock) - start_ns) / BATCH;
}

static double
measure_awake(int which, const struct bench_options *options)
{
    static struct pair pair;
    double batches[BENCH_WINDOWS_MAX];
    uint32_t count = 0;
    const uint64_t end_ns = leat_clock_now(&bench_clock) + options->window_ns / 5;

    pair.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    LEAT_ASSERT(pair.event_fd >= 0);
    while (count < BENCH_WINDOWS_MAX && leat_clock_now(&bench_clock) < end_ns) {
        batches[count++] = batch_ns(&pair, which);
    }
    (void)close(pair.event_fd);
    return bench_median(batches, count);
}

/* ---- Rounds ----------------------------------------------------------------------------------- */

enum { SETTINGS = 2 }; /* as the machine is; holding the latency at 0 */
static const char *const setting_names[SETTINGS] = {"", ", held at 0"};

struct results {
    double p50[SETTINGS][MECHANISMS][BENCH_WINDOWS_MAX];
    double p99[SETTINGS][MECHANISMS][BENCH_WINDOWS_MAX];
    double sender[SETTINGS][MECHANISMS][BENCH_WINDOWS_MAX];
    double awake[AWAKE_CASES][BENCH_WINDOWS_MAX];
    uint32_t windows[SETTINGS];
};

static void
measure_round(const struct bench_options *options, int setting, struct results *results)
{
    const uint32_t w = results->windows[setting]++;
    for (uint32_t m = 0; m < MECHANISMS; m++) {
        const struct wake_cost cost = measure_wake(&mechanisms[m], options);
        results->p50[setting][m][w] = (double)cost.one_way.p50;
        results->p99[setting][m][w] = (double)cost.one_way.p99;
        results->sender[setting][m][w] = (double)cost.sender.p50;
    }
}

static double
median_of_ratios(const double *subject, const double *peer, uint32_t count)
{
    double ratios[BENCH_WINDOWS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        ratios[i] = subject[i] / (peer[i] > 0 ? peer[i] : 1);
    }
    return bench_median(ratios, count);
}

static void
print_mechanism(const struct bench_options *options, const struct results *results, int s, uint32_t m)
{
    const uint32_t windows = results->windows[s];
    const bool bell = m % 2 == 1;
    char subject[96], peer[96] = "";

    (void)snprintf(subject, sizeof(subject), "%s%s", mechanisms[m].name, setting_names[s]);
    if (bell) {
        (void)snprintf(peer, sizeof(peer), "%s%s", mechanisms[m - 1].name, setting_names[s]);
    }
    const struct {
        const char *metric;
        const double *values, *peers;
        enum bench_goal goal;
    } rows[] = {
        {"one way p50", results->p50[s][m], bell ? results->p50[s][m - 1] : NULL, BENCH_AT_MOST},
        {"one way p99", results->p99[s][m], bell ? results->p99[s][m - 1] : NULL, BENCH_NO_GOAL},
        {"sender p50", results->sender[s][m], bell ? results->sender[s][m - 1] : NULL, BENCH_NO_GOAL},
    };
    for (size_t i = 0; i < LEAT_COUNT_OF(rows); i++) {
        bench_print(options, &(struct bench_row){
                                 .subject = subject, .metric = rows[i].metric,
                                 .value = bench_median(rows[i].values, windows) / 1e3, .unit = "us", .windows = windows,
                                 .peer = bell ? peer : NULL,
                                 .ratio = bell ? median_of_ratios(rows[i].values, rows[i].peers, windows) : 0,
                                 .goal = bell ? rows[i].goal : BENCH_NO_GOAL, .target = 1.1});
    }
}

static void
print_results(const struct bench_options *options, const struct results *results)
{
    for (int s = 0; s < SETTINGS && results->windows[s] > 0; s++) {
        for (uint32_t m = 0; m < MECHANISMS; m++) {
            print_mechanism(options, results, s, m);
        }
    }
    for (uint32_t b = 0; b < BELLS && results->windows[1] > 0; b++) {
        const uint32_t m = 2 * b + 1;
        char subject[96];
        (void)snprintf(subject, sizeof(subject), "%s%s", mechanisms[m].name, setting_names[1]);
        bench_print(options, &(struct bench_row){
                                 .subject = subject, .metric = "one way p50",
                                 .value = bench_median(results->p50[1][m], results->windows[1]) / 1e3, .unit = "us",
                                 .windows = results->windows[1], .peer = mechanisms[m - 1].name,
                                 .ratio = median_of_ratios(results->p50[1][m], results->p50[0][m - 1], results->windows[1]),
                                 .goal = BENCH_AT_MOST, .target = 0.2});
    }
    for (int a = 0; a < AWAKE_CASES; a++) {
        const bool judged = a == AWAKE_BELL;
        bench_print(options,
                    &(struct bench_row){
                        .subject = awake_names[a],
                        .metric = "sender mean",
                        .value = bench_median(results->awake[a], results->windows[0]),
                        .unit = "ns",
                        .windows = results->windows[0],
                        .peer = judged ? awake_names[AWAKE_FUTEX] : NULL,
                        .ratio = median_of_ratios(results->awake[a], results->awake[AWAKE_FUTEX], results->windows[0]),
                        .goal = judged ? BENCH_AT_MOST : BENCH_NO_GOAL,
                        .target = 0.1});
    }
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "wake", .windows = 12, .window_ns = 250000000};
    static struct results results;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    if (options.cpu_count < 2) {
        (void)printf("skipped: two CPUs are needed\n");
        return 77;
    }
    leat_clock_init(&bench_clock);
    bench_pin(&options.cpus[options.cpu_count - 2], 1);
    for (uint32_t w = 0; w < options.windows; w++) {
        measure_round(&options, 0, &results);
        const int fd = bench_hold_dma_latency();
        if (fd < 0 && w == 0) {
            bench_note(&options, "not held at 0: /dev/cpu_dma_latency: %s", strerror(errno));
        }
        if (fd >= 0) {
            measure_round(&options, 1, &results);
            (void)close(fd);
        }
        for (int a = 0; a < AWAKE_CASES; a++) {
            results.awake[a][w] = measure_awake(a, &options);
        }
    }
    print_results(&options, &results);
    bench_note_load(&options);
    return 0;
}
