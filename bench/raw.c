/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/roundtrip.h"
#include "ipc/wire.h"

enum { PROBE_TRIPS = 20000 };
#define STOP UINT32_MAX

static void *
map_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    LEAT_ASSERT(memory != MAP_FAILED);
    return memory;
}

/* ---- One line each way ------------------------------------------------------------------------ */

struct lines {
    _Alignas(LEAT_ISOLATE) _Atomic uint64_t there;
    _Alignas(LEAT_ISOLATE) _Atomic uint64_t back;
};

static double
ping_pong(const struct bench_env *env, const int *cpu, const int *peer_cpu)
{
    struct lines *lines = map_shared(sizeof(*lines));
    const pid_t peer = bench_fork();
    if (peer == 0) {
        bench_pin(peer_cpu, 1);
        for (uint64_t i = 1; i <= PROBE_TRIPS; i++) {
            while (atomic_load_explicit(&lines->there, memory_order_acquire) != i) {
            }
            atomic_store_explicit(&lines->back, i, memory_order_release);
        }
        _exit(0);
    }
    bench_pin(cpu, 1);
    for (uint64_t i = 1; i <= PROBE_TRIPS; i++) {
        const uint64_t start_ns = leat_clock_now(&env->clock);
        atomic_store_explicit(&lines->there, i, memory_order_release);
        while (atomic_load_explicit(&lines->back, memory_order_acquire) != i) {
        }
        env->samples_ns[i - 1] = leat_clock_now(&env->clock) - start_ns;
    }
    bench_reap(peer);
    LEAT_MUST(munmap(lines, sizeof(*lines)) == 0);
    return (double)bench_order(env->samples_ns, PROBE_TRIPS).p50;
}

struct bench_lines
bench_line_ping_pong(const struct bench_env *env)
{
    struct bench_lines lines;
    lines.dispatcher_worker = ping_pong(env, &env->dispatcher_cpu, &env->worker_cpu);
    lines.worker_client = ping_pong(env, &env->worker_cpu, &env->client_cpu);
    lines.client_dispatcher = ping_pong(env, &env->client_cpu, &env->dispatcher_cpu); /* last: the caller stays there */
    return lines;
}

/* ---- client -> relay -> worker -> client ------------------------------------------------------ */

/* W: the one before in the circle  R: the one whose it is, who sleeps on it if anybody does */
struct station {
    _Alignas(LEAT_ISOLATE) _Atomic uint32_t message;
};

struct chain {
    struct station relay, worker, client;
    enum bench_payload payload;   /* constant */
    bool sleeps;                  /* constant */
    uint64_t sum;                 /* of the client's own bytes without the first word; constant */
    const unsigned char *bytes;   /* the client's own; constant */
    _Alignas(LEAT_ISOLATE) uint64_t read_sum; /* W: worker  R: client */
    _Alignas(4096) unsigned char input[BENCH_BYTES_MAX];   /* W: client  R: worker */
    _Alignas(4096) unsigned char output[BENCH_BYTES_MAX];  /* W: worker  R: client */
};

static void
pass(const struct chain *chain, struct station *station, uint32_t message)
{
    atomic_store_explicit(&station->message, message, memory_order_release);
    if (chain->sleeps) {
        (void)syscall(SYS_futex, &station->message, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

/* Waits until the message is no longer `seen`; what it is now. */
static uint32_t
await(const struct chain *chain, struct station *station, uint32_t seen)
{
    for (;;) {
        const uint32_t message = atomic_load_explicit(&station->message, memory_order_acquire);
        if (message != seen) {
            return message;
        }
        if (chain->sleeps) {
            (void)syscall(SYS_futex, &station->message, FUTEX_WAIT, seen, NULL, NULL, 0);
        }
    }
}

static void
work(struct chain *chain)
{
    if (chain->payload == BENCH_READ) {
        chain->read_sum = bench_sum(chain->input, sizeof(chain->input));
    } else if (chain->payload == BENCH_COPIED) {
        memcpy(chain->output, chain->input, sizeof(chain->output));
    }
}

/* The life of relay and worker: pass on what comes, and end with it. */
static void
pass_on(struct chain *chain, struct station *from, struct station *to, bool works)
{
    for (uint32_t message = 0; message != STOP;) {
        message = await(chain, from, message);
        if (works && message != STOP) {
            work(chain);
        }
        pass(chain, to, message);
    }
}

static void
chain_trip(void *context, uint64_t sequence)
{
    struct chain *chain = context;
    if (chain->payload != BENCH_HANDED_OVER) {
        memcpy(chain->input, chain->bytes, sizeof(chain->input));
        memcpy(chain->input, &sequence, sizeof(sequence));
    }
    pass(chain, &chain->relay, (uint32_t)sequence);
    LEAT_MUST(await(chain, &chain->client, (uint32_t)sequence - 1) == (uint32_t)sequence);
    if (chain->payload == BENCH_READ) {
        LEAT_ASSERT(chain->read_sum == chain->sum + sequence);
    } else if (chain->payload == BENCH_COPIED) {
        LEAT_ASSERT(memcmp(chain->output, &sequence, sizeof(sequence)) == 0);
    }
}

struct bench_latency
bench_chain(const struct bench_env *env, enum bench_payload payload, bool sleeps)
{
    struct chain *chain = map_shared(sizeof(*chain));
    chain->payload = payload;
    chain->sleeps = sleeps;
    chain->bytes = env->payload;
    chain->sum = bench_sum(env->payload + sizeof(uint64_t), BENCH_BYTES_MAX - sizeof(uint64_t));
    const pid_t relay = bench_fork();
    if (relay == 0) {
        bench_pin(&env->dispatcher_cpu, 1);
        pass_on(chain, &chain->relay, &chain->worker, false);
        _exit(0);
    }
    const pid_t worker = bench_fork();
    if (worker == 0) {
        bench_pin(&env->worker_cpu, 1);
        pass_on(chain, &chain->worker, &chain->client, true);
        _exit(0);
    }
    const struct bench_latency latency = bench_window(env, chain_trip, chain, sleeps ? BENCH_SLEEP_GAP_NS : 0);
    pass(chain, &chain->relay, STOP);
    bench_reap(relay);
    bench_reap(worker);
    LEAT_MUST(munmap(chain, sizeof(*chain)) == 0);
    return latency;
}

/* ---- The rings of a session, answered by the peer itself -------------------------------------- */

enum { RING_SLOTS = 1024, RING_STOP = LEAT_WIRE_CANCEL };

struct ring {
    unsigned char *memory; /* as in a rings memfd with one lane */
};

static struct leat_wire_request *
request_cell(const struct ring *ring, uint64_t position)
{
    struct leat_wire_request *cells = (void *)(ring->memory + leat_wire_submit_offset());
    return &cells[position % (RING_SLOTS * LEAT_SUBMIT_CELLS_PER_SLOT)];
}

static struct leat_wire_response *
response_cell(const struct ring *ring, uint64_t position)
{
    struct leat_wire_response *cells = (void *)(ring->memory + leat_wire_lane_offset(RING_SLOTS, 0));
    return &cells[position % RING_SLOTS];
}

static void
submit(const struct ring *ring, uint64_t position, uint16_t flags)
{
    struct leat_wire_request *request = request_cell(ring, position);
    request->submit_ns = position;
    request->latency_us = 0;
    request->accuracy_floor_ppm = 0;
    request->items = 1;
    request->slot = (uint16_t)(position % RING_SLOTS);
    request->target = 1;
    request->flags = flags;
    request->ticket_low = (uint32_t)position;
    memset(request->units, 0, sizeof(request->units));
    atomic_store_explicit(&request->sequence, position + 1, memory_order_release); /* S0 */
}

static void
answer_ring(const struct ring *ring)
{
    for (uint64_t position = 0;; position++) {
        const struct leat_wire_request *request = request_cell(ring, position);
        while (atomic_load_explicit(&request->sequence, memory_order_acquire) != position + 1) { /* S1 */
        }
        if (request->flags == RING_STOP) {
            return;
        }
        struct leat_wire_response *response = response_cell(ring, position);
        response->queue_ns = response->exec_ns = 0;
        response->total_ns = request->submit_ns;
        response->ticket_low = request->ticket_low;
        response->slot = request->slot;
        response->outcome = LEAT_OUTCOME_OK;
        response->reason = 0;
        response->batch_items = request->items;
        response->accuracy_ppm = 0;
        response->variant = response->worker = 0;
        atomic_store_explicit(&response->sequence, position + 1, memory_order_release); /* C0 */
    }
}

static void
ring_trip(void *context, uint64_t sequence)
{
    const struct ring *ring = context;
    const uint64_t position = sequence - 1;
    submit(ring, position, 0);
    const struct leat_wire_response *response = response_cell(ring, position);
    while (atomic_load_explicit(&response->sequence, memory_order_acquire) != position + 1) { /* C1 */
    }
    LEAT_ASSERT(response->total_ns == position && response->ticket_low == (uint32_t)position);
}

struct last_trip {
    struct ring ring;
    uint64_t sequence;
};

static void
ring_trip_counted(void *context, uint64_t sequence)
{
    struct last_trip *last = context;
    ring_trip(&last->ring, sequence);
    last->sequence = sequence;
}

static pid_t
start_ring(const struct bench_env *env, struct ring *ret_ring)
{
    ret_ring->memory = map_shared(leat_wire_rings_bytes(RING_SLOTS, 1));
    const pid_t peer = bench_fork();
    if (peer == 0) {
        bench_pin(&env->dispatcher_cpu, 1);
        answer_ring(ret_ring);
        _exit(0);
    }
    return peer;
}

static void
stop_ring(const struct ring *ring, pid_t peer, uint64_t position)
{
    submit(ring, position, RING_STOP);
    bench_reap(peer);
    LEAT_MUST(munmap(ring->memory, leat_wire_rings_bytes(RING_SLOTS, 1)) == 0);
}

struct bench_latency
bench_direct_ring(const struct bench_env *env)
{
    struct last_trip last = {.sequence = 0};
    const pid_t peer = start_ring(env, &last.ring);
    const struct bench_latency latency = bench_window(env, ring_trip_counted, &last, 0);
    stop_ring(&last.ring, peer, last.sequence);
    return latency;
}

double
bench_direct_ring_rate(const struct bench_env *env)
{
    struct ring ring;
    const pid_t peer = start_ring(env, &ring);
    const uint64_t start_ns = leat_clock_now(&env->clock);
    uint64_t sent = 0, answered = 0, now_ns = start_ns;

    while (now_ns - start_ns < env->options->window_ns || answered < sent) {
        for (; sent - answered < BENCH_IN_FLIGHT && now_ns - start_ns < env->options->window_ns; sent++) {
            submit(&ring, sent, 0);
        }
        while (answered < sent && atomic_load_explicit(&response_cell(&ring, answered)->sequence, /* C1 */
                                                       memory_order_acquire) == answered + 1) {
            LEAT_ASSERT(response_cell(&ring, answered)->total_ns == answered);
            answered++;
        }
        now_ns = leat_clock_now(&env->clock);
    }
    stop_ring(&ring, peer, sent);
    return (double)answered * 1e9 / (double)(now_ns - start_ns);
}

/* ---- A plain pair of rings: the least that moves 64 bytes there and 64 back -------------------- */

struct plain_cell {
    _Alignas(LEAT_CACHE_LINE) _Atomic uint64_t sequence; /* position + 1 once written */
    uint64_t words[7];
};

struct plain_rings {
    struct plain_cell there[RING_SLOTS], back[RING_SLOTS]; /* never more than BENCH_IN_FLIGHT of them in use */
};

static void
write_plain(struct plain_cell *cells, uint64_t position, const uint64_t words[7])
{
    struct plain_cell *cell = &cells[position % RING_SLOTS];
    memcpy(cell->words, words, sizeof(cell->words));
    atomic_store_explicit(&cell->sequence, position + 1, memory_order_release);
}

static bool
read_plain(struct plain_cell *cells, uint64_t position, uint64_t ret_words[7])
{
    struct plain_cell *cell = &cells[position % RING_SLOTS];
    if (atomic_load_explicit(&cell->sequence, memory_order_acquire) != position + 1) {
        return false;
    }
    memcpy(ret_words, cell->words, sizeof(cell->words));
    return true;
}

static void
answer_plain(struct plain_rings *rings)
{
    for (uint64_t position = 0;; position++) {
        uint64_t words[7];
        while (!read_plain(rings->there, position, words)) {
        }
        if (words[1] != 0) {
            return;
        }
        write_plain(rings->back, position, words);
    }
}

double
bench_plain_ring_rate(const struct bench_env *env)
{
    struct plain_rings *rings = map_shared(sizeof(*rings));
    const pid_t peer = bench_fork();
    if (peer == 0) {
        bench_pin(&env->dispatcher_cpu, 1);
        answer_plain(rings);
        _exit(0);
    }
    const uint64_t start_ns = leat_clock_now(&env->clock);
    uint64_t sent = 0, answered = 0, now_ns = start_ns, words[7] = {0};

    while (now_ns - start_ns < env->options->window_ns || answered < sent) {
        for (; sent - answered < BENCH_IN_FLIGHT && now_ns - start_ns < env->options->window_ns; sent++) {
            const uint64_t message[7] = {sent};
            write_plain(rings->there, sent, message);
        }
        while (answered < sent && read_plain(rings->back, answered, words)) {
            LEAT_ASSERT(words[0] == answered);
            answered++;
        }
        now_ns = leat_clock_now(&env->clock);
    }
    const uint64_t stop[7] = {0, 1};
    write_plain(rings->there, sent, stop);
    bench_reap(peer);
    LEAT_MUST(munmap(rings, sizeof(*rings)) == 0);
    return (double)answered * 1e9 / (double)(now_ns - start_ns);
}

/* ---- A busy-polled Unix-domain socket --------------------------------------------------------- */

struct uds {
    int socket;
    size_t bytes;
    unsigned char *request;
    uint64_t sum; /* of the request without its first word */
};

static size_t
receive(int socket, void *bytes, size_t size)
{
    for (;;) {
        const ssize_t got = recv(socket, bytes, size, MSG_DONTWAIT);
        if (got >= 0) {
            return (size_t)got;
        }
    }
}

static void
answer_socket(int socket, unsigned char *request)
{
    for (;;) {
        const size_t size = receive(socket, request, BENCH_BYTES_MAX);
        if (size == 0) {
            return;
        }
        struct bench_answer answer = {.sum = bench_sum(request, size)};
        memcpy(&answer.sequence, request, sizeof(answer.sequence));
        LEAT_MUST(send(socket, &answer, sizeof(answer), 0) == (ssize_t)sizeof(answer));
    }
}

static void
uds_trip(void *context, uint64_t sequence)
{
    const struct uds *uds = context;
    struct bench_answer answer;
    memcpy(uds->request, &sequence, sizeof(sequence));
    LEAT_MUST(send(uds->socket, uds->request, uds->bytes, 0) == (ssize_t)uds->bytes);
    LEAT_MUST(receive(uds->socket, &answer, sizeof(answer)) == sizeof(answer));
    LEAT_ASSERT(answer.sequence == sequence && answer.sum == uds->sum + sequence);
}

struct bench_latency
bench_unix_socket(const struct bench_env *env, size_t bytes)
{
    const int buffer = 4 << 20;
    int ends[2];
    LEAT_MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    for (int i = 0; i < 2; i++) {
        /* The larger where it may be had; a request that does not fit fails in uds_trip. */
        if (setsockopt(ends[i], SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof(buffer)) != 0) {
            (void)setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
        }
    }
    const pid_t peer = bench_fork();
    if (peer == 0) {
        bench_pin(&env->dispatcher_cpu, 1);
        (void)close(ends[0]);
        answer_socket(ends[1], map_shared(BENCH_BYTES_MAX));
        _exit(0);
    }
    (void)close(ends[1]);
    struct uds uds = {.socket = ends[0], .bytes = bytes, .request = env->payload};
    uds.sum = bench_sum(uds.request + sizeof(uint64_t), bytes - sizeof(uint64_t));
    const struct bench_latency latency = bench_window(env, uds_trip, &uds, 0);
    (void)close(ends[0]);
    bench_reap(peer);
    return latency;
}
