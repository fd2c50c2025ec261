/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures   Round trip of a null query through the whole of leat: client process, ring, dispatcher, worker, client,
 *            with validation, central queue and decision, each of the three on a CPU of its own; at 64 B, 4 KiB and
 *            600 KiB that nobody touches; and throughput with 64 in flight. Beside it, interleaved in the same
 *            run: the raw two-process cache-line ping-pong L, and a busy-polled SOCK_SEQPACKET pair at 64 B.
 * Does not   touch payloads, run a model, or say anything of queueing under open-loop load; `leat bench` does.
 * Method     Closed loop, one outstanding, TSC, windows of --window; L is probed before and after each window,
 *            and a window whose two probes differ by more than a quarter is discarded: the host has moved
 *            the CPUs meanwhile. A figure is the median over windows, a ratio is within one window.
 */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <leat/leat.h>

#include "base/align.h"
#include "base/clock.h"
#include "base/status.h"

enum { SAMPLES_MAX = 4000000, PROBE_TRIPS = 20000, WINDOWS_MAX = 1000, IN_FLIGHT = 64 };

static struct leat_clock bench_clock;
static uint64_t samples_ns[SAMPLES_MAX];

struct settings {
    int cpus[3]; /* client, dispatcher, worker */
    uint32_t windows;
    uint64_t window_ns;
    bool smoke;
    const char *daemon_path;
};

struct figures {
    uint64_t p50, p99, p999, count;
};

static void
pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    LEAT_MUST(sched_setaffinity(0, sizeof(set), &set) == 0);
}

static int
compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static struct figures
order(uint64_t count)
{
    qsort(samples_ns, count, sizeof(samples_ns[0]), compare_u64);
    return (struct figures){samples_ns[count / 2], samples_ns[count * 99 / 100], samples_ns[count * 999 / 1000], count};
}

static pid_t
start_child(void)
{
    (void)fflush(NULL);
    const pid_t child = fork();
    LEAT_ASSERT(child >= 0);
    if (child == 0) {
        LEAT_MUST(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    }
    return child;
}

/* ---- The raw ping-pong ------------------------------------------------------------------------ */

struct lines {
    _Alignas(LEAT_ISOLATE) _Atomic uint64_t there;
    _Alignas(LEAT_ISOLATE) _Atomic uint64_t back;
};

static uint64_t
probe(const struct settings *settings)
{
    struct lines *lines = mmap(NULL, sizeof(*lines), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    LEAT_ASSERT(lines != MAP_FAILED);
    const pid_t peer = start_child();
    if (peer == 0) {
        pin(settings->cpus[1]);
        for (uint64_t i = 1; i <= PROBE_TRIPS; i++) {
            while (atomic_load_explicit(&lines->there, memory_order_acquire) != i) {
            }
            atomic_store_explicit(&lines->back, i, memory_order_release);
        }
        _exit(0);
    }
    for (uint64_t i = 1; i <= PROBE_TRIPS; i++) {
        const uint64_t start_ns = leat_clock_now(&bench_clock);
        atomic_store_explicit(&lines->there, i, memory_order_release);
        while (atomic_load_explicit(&lines->back, memory_order_acquire) != i) {
        }
        samples_ns[i - 1] = leat_clock_now(&bench_clock) - start_ns;
    }
    LEAT_MUST(waitpid(peer, NULL, 0) == peer);
    LEAT_MUST(munmap(lines, sizeof(*lines)) == 0);
    return order(PROBE_TRIPS).p50;
}

/* ---- A busy-polled Unix-domain socket --------------------------------------------------------- */

struct uds {
    int socket;
    pid_t peer;
};

static struct uds
uds_start(const struct settings *settings)
{
    int ends[2];
    LEAT_MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    const pid_t peer = start_child();
    if (peer == 0) {
        char bytes[64];
        pin(settings->cpus[1]);
        (void)close(ends[0]);
        for (;;) {
            const ssize_t got = recv(ends[1], bytes, sizeof(bytes), MSG_DONTWAIT);
            if (got == 0) {
                _exit(0);
            }
            if (got > 0) {
                LEAT_MUST(send(ends[1], bytes, (size_t)got, 0) == got);
            }
        }
    }
    (void)close(ends[1]);
    return (struct uds){ends[0], peer};
}

static void
uds_trip(struct uds *uds)
{
    char bytes[64] = {0};
    LEAT_MUST(send(uds->socket, bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes));
    while (recv(uds->socket, bytes, sizeof(bytes), MSG_DONTWAIT) != (ssize_t)sizeof(bytes)) {
    }
}

/* ---- leat ------------------------------------------------------------------------------------- */

static const uint32_t payloads[] = {64, 4096, 614400};
enum { PAYLOADS = 3 };

struct subject {
    char folder[64], socket_path[96];
    pid_t daemon;
    struct leat_session *session;
    struct leat_query queries[PAYLOADS];
};

static void
write_config(const struct subject *subject, const struct settings *settings)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/leat.yaml", subject->folder);
    FILE *file = fopen(path, "w");
    LEAT_ASSERT(file != NULL);
    (void)fprintf(file,
                  "socket: %s\nstate_dir: %s/state\nlog_level: error\ndispatcher: {cpu: %d, spin: 10ms}\n"
                  "workers: [{count: 1, cores: 1, cpus: \"%d\"}]\nmodels:\n",
                  subject->socket_path, subject->folder, settings->cpus[1], settings->cpus[2]);
    for (int p = 0; p < PAYLOADS; p++) {
        (void)fprintf(file,
                      "  - {name: n%u, backend: synthetic, items_max: 64, synthetic: {latency: 0, inputs: "
                      "[{name: in, dtype: u8, dims: [%u]}], outputs: [{name: out, dtype: u8, dims: [64]}]}}\n",
                      payloads[p], payloads[p]);
    }
    LEAT_MUST(fclose(file) == 0);
}

static void
subject_start(struct subject *subject, const struct settings *settings)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    struct leat_target target;
    char config[160];

    (void)strcpy(subject->folder, "/tmp/leat-bench-XXXXXX");
    LEAT_MUST(mkdtemp(subject->folder) != NULL);
    (void)snprintf(subject->socket_path, sizeof(subject->socket_path), "%s/leat.sock", subject->folder);
    (void)snprintf(config, sizeof(config), "%s/leat.yaml", subject->folder);
    write_config(subject, settings);
    subject->daemon = start_child();
    if (subject->daemon == 0) {
        cpu_set_t all;
        memset(&all, 0xff, sizeof(all));
        (void)sched_setaffinity(0, sizeof(all), &all);
        LEAT_MUST(freopen("/dev/null", "w", stderr) != NULL);
        (void)execl(settings->daemon_path, "leatd", "--config", config, (char *)NULL);
        _exit(127);
    }
    options.socket_path = subject->socket_path;
    options.arena_bytes = 4 << 20;
    options.spin_ns = 1000000000;
    while (leat_open(&options, &subject->session) != LEAT_OK) {
        if (waitpid(subject->daemon, NULL, WNOHANG) != 0) {
            (void)fprintf(stderr, "bench_roundtrip: %s did not start\n", settings->daemon_path);
            exit(1);
        }
    }
    for (int p = 0; p < PAYLOADS; p++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "n%u", payloads[p]);
        LEAT_MUST(leat_find(subject->session, name, &target) == LEAT_OK);
        subject->queries[p] = (struct leat_query)LEAT_QUERY_INIT;
        subject->queries[p].target = target.id;
        for (int t = 0; t < 2; t++) {
            LEAT_MUST(leat_tensor_alloc(subject->session, target.tensors[t].item_bytes, &subject->queries[p].tensors[t]) ==
                      LEAT_OK);
        }
    }
}

static void
subject_trip(struct subject *subject, int payload)
{
    struct leat_completion done;
    LEAT_MUST(leat_run(subject->session, &subject->queries[payload], &done) == LEAT_OK);
    LEAT_ASSERT(done.outcome == LEAT_OUTCOME_OK);
}

static double
subject_throughput(struct subject *subject, uint64_t window_ns)
{
    struct leat_query queries[IN_FLIGHT];
    struct leat_completion done[IN_FLIGHT];
    uint64_t answered = 0;
    const uint64_t start_ns = leat_clock_now(&bench_clock);
    uint64_t now_ns = start_ns;

    for (int i = 0; i < IN_FLIGHT; i++) {
        queries[i] = subject->queries[0];
    }
    while (now_ns - start_ns < window_ns) {
        size_t submitted;
        const size_t room = IN_FLIGHT - leat_in_flight(subject->session);
        if (room > 0) {
            LEAT_MUST(leat_submit_batch(subject->session, queries, room, &submitted) == LEAT_OK);
        }
        answered += leat_poll(subject->session, done, IN_FLIGHT);
        now_ns = leat_clock_now(&bench_clock);
    }
    while (leat_in_flight(subject->session) > 0) {
        (void)leat_poll(subject->session, done, IN_FLIGHT);
    }
    return (double)answered * 1e9 / (double)(now_ns - start_ns);
}

static void
subject_stop(struct subject *subject)
{
    int ended = -1;
    char path[160];
    leat_close(subject->session);
    LEAT_MUST(kill(subject->daemon, SIGTERM) == 0);
    LEAT_MUST(waitpid(subject->daemon, &ended, 0) == subject->daemon && ended == 0);
    static const char *const files[] = {"leat.yaml", "state/registry.db", "state/registry.db-wal",
                                        "state/registry.db-shm", "state/lock"};
    for (size_t i = 0; i < LEAT_COUNT_OF(files); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", subject->folder, files[i]);
        (void)unlink(path);
    }
    static const char *const folders[] = {"state/models", "state", "."};
    for (size_t i = 0; i < LEAT_COUNT_OF(folders); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", subject->folder, folders[i]);
        (void)rmdir(i + 1 < LEAT_COUNT_OF(folders) ? path : subject->folder);
    }
}

/* ---- Windows ---------------------------------------------------------------------------------- */

enum { CASES = PAYLOADS + 1 }; /* the payloads, then the socket */

static struct figures
window(struct subject *subject, struct uds *uds, int which, uint64_t window_ns)
{
    const uint64_t end_ns = leat_clock_now(&bench_clock) + window_ns;
    uint64_t count = 0, now_ns = 0;

    while (count < SAMPLES_MAX && now_ns < end_ns) {
        const uint64_t start_ns = leat_clock_now(&bench_clock);
        if (which < PAYLOADS) {
            subject_trip(subject, which);
        } else {
            uds_trip(uds);
        }
        now_ns = leat_clock_now(&bench_clock);
        samples_ns[count++] = now_ns - start_ns;
    }
    return order(count);
}

static double
median(double *values, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        for (uint32_t j = i; j > 0 && values[j] < values[j - 1]; j--) {
            const double swap = values[j];
            values[j] = values[j - 1];
            values[j - 1] = swap;
        }
    }
    return count > 0 ? values[count / 2] : 0;
}

static void
print_row(const char *name, const char *metric, double value, const char *unit, uint32_t windows, const char *peer,
          double ratio)
{
    (void)printf("{\"bench\":\"roundtrip\",\"case\":\"%s\",\"metric\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"samples\":%u",
                 name, metric, value, unit, windows);
    if (peer != NULL) {
        (void)printf(",\"peer\":\"%s\",\"peer_version\":\"same run\",\"ratio\":%.3f", peer, ratio);
    }
    (void)printf("}\n");
}

static void
measure(const struct settings *settings, struct subject *subject)
{
    static double p50[CASES][WINDOWS_MAX], p99[CASES][WINDOWS_MAX], of_l[CASES][WINDOWS_MAX], p99_of_l[CASES][WINDOWS_MAX];
    static double raw[WINDOWS_MAX], rate[WINDOWS_MAX];
    static const char *const names[CASES] = {"leat 64 B", "leat 4 KiB", "leat 600 KiB", "UDS seqpacket 64 B, busy-polled"};
    uint32_t kept[CASES] = {0}, raws = 0, rates = 0, discarded = 0;

    for (uint32_t w = 0; w < settings->windows; w++) {
        for (int c = 0; c < CASES; c++) {
            struct uds uds = {-1, 0};
            if (c == PAYLOADS) {
                uds = uds_start(settings);
            }
            const uint64_t before = probe(settings);
            const struct figures f = window(subject, &uds, c, settings->window_ns);
            const uint64_t after = probe(settings);
            if (c == PAYLOADS) {
                (void)close(uds.socket);
                LEAT_MUST(waitpid(uds.peer, NULL, 0) == uds.peer);
            }
            const double l = (double)(before + after) / 2;
            if (before > after + after / 4 || after > before + before / 4) {
                discarded++;
                continue;
            }
            const uint32_t k = kept[c]++;
            p50[c][k] = (double)f.p50;
            p99[c][k] = (double)f.p99;
            of_l[c][k] = (double)f.p50 / l;
            p99_of_l[c][k] = (double)f.p99 / l;
            raw[raws < WINDOWS_MAX ? raws++ : 0] = l;
        }
        rate[rates++] = subject_throughput(subject, settings->window_ns);
    }
    if (settings->smoke) {
        return;
    }
    print_row("raw line ping-pong", "p50", median(raw, raws), "ns", raws, NULL, 0);
    for (int c = 0; c < CASES; c++) {
        print_row(names[c], "p50", median(p50[c], kept[c]), "ns", kept[c], "raw line ping-pong", median(of_l[c], kept[c]));
        print_row(names[c], "p99", median(p99[c], kept[c]), "ns", kept[c], "raw line ping-pong",
                  median(p99_of_l[c], kept[c]));
    }
    print_row("leat 600 KiB", "p50", median(p50[2], kept[2]), "ns", kept[2], "leat 64 B",
              median(p50[2], kept[2]) / median(p50[0], kept[0]));
    print_row("UDS seqpacket 64 B, busy-polled", "p50", median(p50[3], kept[3]), "ns", kept[3], "leat 64 B",
              median(p50[3], kept[3]) / median(p50[0], kept[0]));
    print_row("leat 64 B, 64 in flight", "throughput", median(rate, rates), "queries/s", rates, NULL, 0);
    (void)fprintf(stderr, "%u windows discarded because the CPUs moved\n", discarded);
}

static bool
parse(int argc, char **argv, struct settings *settings)
{
    static const struct option known[] = {
        {"smoke", no_argument, NULL, 's'},         {"cpus", required_argument, NULL, 'c'},
        {"windows", required_argument, NULL, 'w'}, {"daemon", required_argument, NULL, 'd'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    int option;

    *settings = (struct settings){.cpus = {1, 2, 3}, .windows = 12, .window_ns = 300000000, .daemon_path = LEATD_PATH};
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case 's':
            settings->smoke = true;
            settings->windows = 1;
            settings->window_ns = 20000000;
            break;
        case 'c':
            if (sscanf(optarg, "%d,%d,%d", &settings->cpus[0], &settings->cpus[1], &settings->cpus[2]) != 3) {
                return false;
            }
            break;
        case 'w': settings->windows = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'd': settings->daemon_path = optarg; break;
        default: return false;
        }
    }
    return settings->windows >= 1 && settings->windows <= WINDOWS_MAX / CASES;
}

int
main(int argc, char **argv)
{
    struct settings settings;
    static struct subject subject;

    if (!parse(argc, argv, &settings)) {
        (void)fprintf(stderr, "usage: %s [--smoke] [--cpus CLIENT,DISPATCHER,WORKER] [--windows N] [--daemon PATH]\n", argv[0]);
        return 2;
    }
#ifndef __OPTIMIZE__
    if (!settings.smoke) {
        (void)fprintf(stderr, "refusing to report numbers from an unoptimised build\n");
        return 2;
    }
#endif
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (settings.cpus[0] >= cpus || settings.cpus[1] >= cpus || settings.cpus[2] >= cpus) {
        (void)printf("skipped: CPUs %d, %d and %d are not all there\n", settings.cpus[0], settings.cpus[1], settings.cpus[2]);
        return 77;
    }
    leat_clock_init(&bench_clock);
    memset(samples_ns, 0xa5, sizeof(samples_ns)); /* the pages exist before anything is timed */
    subject_start(&subject, &settings);
    pin(settings.cpus[0]);
    measure(&settings, &subject);
    subject_stop(&subject);
    return 0;
}
