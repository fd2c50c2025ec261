/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/bench.h - what `leat bench` was asked to do, what it counts, and how it says so. */
#ifndef LEAT_TOOLS_BENCH_H
#define LEAT_TOOLS_BENCH_H

#include "tools/simulate/arrivals.h"

struct bench_options {
    const char *socket_path, *target, *arrivals_text, *inputs_path, *labels_path;
    double rate_qps, burst_factor, burst_share;
    uint64_t duration_ns, warmup_ns, items, processes, seed, burst_mean_ns;
    uint64_t objective_ns; /* of each query, from its intended start; 0: none, and nothing is late */
    bool objective_given;  /* else it is the application's */
    bool json, help;
    struct arrivals arrivals;
    double *times_s;
};

/*
 * What one client process found; in memory shared with the parent, which reads it after the child has ended. The window is
 * the measured time. Arrivals belong to it by their intended start and are followed to their end, behind it too:
 *
 *      offered = sent + those that no slot came free for in time,
 *      sent = ok + rejected + expired + cancelled + failed + lost,     ok = in time + late.
 *
 * Answers belong to it by when they came, whatever they answer: those are what it could do in that time.
 */
struct bench_result {
    uint64_t offered, sent, ok, late, rejected, expired, cancelled, failed, lost;
    uint64_t window_ok, window_in_time;
    uint64_t items_correct, items_labelled;
    uint64_t batch_items_sum, queue_ns_sum, exec_ns_sum;
    uint64_t sample_count, samples_dropped;
    int exit_code;
    char error[256];
};

/* Prints a table, or JSON where asked for; sorts the sum's sample_count latencies. */
void bench_report(const struct bench_options *options, const struct bench_result *sum, uint64_t *samples_ns);

#endif /* LEAT_TOOLS_BENCH_H */
