/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/roundtrip.h - what the cases of bench/roundtrip.c share.
 *
 * Role      A case starts its processes, makes one window of round trips, and leaves nothing behind. The client of each
 *           is timed by one loop, which checks nothing itself: every trip checks its own answer.
 * Payload   Handed over: nobody touches it. Read: the client writes every byte, the other side reads every one.
 *           Copied: the other side copies them into an answer of the same size.
 */
#ifndef LEAT_BENCH_ROUNDTRIP_H
#define LEAT_BENCH_ROUNDTRIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "bench/support.h"

enum { BENCH_SAMPLES_MAX = 4000000, BENCH_BYTES_MAX = 614400 };
enum { BENCH_IN_FLIGHT = 64 };
enum { BENCH_SLEEP_GAP_NS = 50000 }; /* what a case with sleepers leaves them to go to sleep, busy meanwhile */

enum bench_payload { BENCH_HANDED_OVER, BENCH_READ, BENCH_COPIED };

struct bench_env {
    const struct bench_options *options;
    struct leat_clock clock;
    int client_cpu, dispatcher_cpu, worker_cpu;
    uint64_t *samples_ns;    /* BENCH_SAMPLES_MAX of them, shared with children */
    unsigned char *payload;  /* BENCH_BYTES_MAX private bytes that clients send */
};

/* One round trip; the first eight bytes of what goes out are `sequence`. */
typedef void bench_trip_function(void *context, uint64_t sequence);

/* A window of trips, one outstanding, after a short one to warm up; gap_ns of busy rest before each. Sorts the samples. */
struct bench_latency bench_window(const struct bench_env *env, bench_trip_function *trip, void *context, uint64_t gap_ns);

/* Sum of the 64-bit words: how a receiver touches, and proves that it did. */
uint64_t bench_sum(const void *bytes, size_t size);

/* What a transport's server answers to each request. */
struct bench_answer {
    uint64_t sequence, sum;
    uint64_t pad[6];
};
_Static_assert(sizeof(struct bench_answer) == 64, "64 bytes come back");

/* ---- raw.c: hand-overs without leat ----------------------------------------------------------- */

/* p50 of a few thousand trips of one line each way, by pair of CPUs. */
struct bench_lines {
    double client_dispatcher, dispatcher_worker, worker_client;
};
struct bench_lines bench_line_ping_pong(const struct bench_env *env);

/* client -> relay -> worker -> client, 600 KiB unless handed over. sleeps: each on a bare futex; else all spin. */
struct bench_latency bench_chain(const struct bench_env *env, enum bench_payload payload, bool sleeps);
/* client -> peer -> client over the cells of ipc/wire.h, no dispatcher. */
struct bench_latency bench_direct_ring(const struct bench_env *env);
/* Queries a second over them, 64 in flight; and over a plain pair of rings with a sequence number in every 64-byte cell. */
double bench_direct_ring_rate(const struct bench_env *env);
double bench_plain_ring_rate(const struct bench_env *env);
struct bench_latency bench_unix_socket(const struct bench_env *env, size_t bytes);

/* ---- subject.c: leat -------------------------------------------------------------------------- */

struct bench_subject;

/* A leatd with one worker. parked: it never spins, nor does the client. The process ends if it does not start. */
struct bench_subject *bench_subject_start(const struct bench_env *env, bool parked);
void bench_subject_stop(struct bench_subject *subject);

/* bytes: 64, 4096 or 614400, handed over; 614400 also read or copied. */
struct bench_latency bench_subject_trips(const struct bench_env *env, struct bench_subject *subject, size_t bytes,
                                         enum bench_payload payload);
double bench_subject_throughput(const struct bench_env *env, struct bench_subject *subject);

struct bench_first {
    uint64_t first_ns, warm_ns; /* the first trip of a new session; the median of later ones of it */
};
struct bench_first bench_subject_first(const struct bench_env *env, const struct bench_subject *subject, size_t bytes,
                                       enum bench_payload payload);

/* ---- transport.c, peer_*.c: other transports -------------------------------------------------- */

struct bench_transport {
    const char *name;
    const char *missing; /* not NULL: why it is not here; the rest is not set then */
    const char *version;
    bool polls;          /* neither side sleeps */
    const char *(*begin)(void); /* once, before the first window: NULL, or why it is missing. NULL: nothing to do */
    void (*end)(void);
    /* Server: never returns. `address` is a path that does not exist yet. */
    void (*serve)(const char *address);
    /* Client: succeeds once the server is there, whichever starts first. */
    void *(*connect)(const char *address);
    void (*trip)(void *connection, const void *request, size_t bytes, struct bench_answer *ret_answer);
};

extern struct bench_transport bench_iceoryx, bench_zmq, bench_nng, bench_grpc;

/* Client and server are processes of their own, so a transport's threads end with its window. */
struct bench_latency bench_transport_trips(const struct bench_env *env, const struct bench_transport *transport,
                                           size_t bytes);

#endif /* LEAT_BENCH_ROUNDTRIP_H */
