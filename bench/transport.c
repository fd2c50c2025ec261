/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/roundtrip.h"

uint64_t
bench_sum(const void *bytes, size_t size)
{
    uint64_t sum = 0;
    LEAT_ASSERT(size % sizeof(uint64_t) == 0);
    for (size_t i = 0; i < size / sizeof(uint64_t); i++) {
        uint64_t word;
        memcpy(&word, (const unsigned char *)bytes + i * sizeof(word), sizeof(word));
        sum += word;
    }
    return sum;
}

static void
stay_busy(const struct bench_env *env, uint64_t ns)
{
    const uint64_t end_ns = leat_clock_now(&env->clock) + ns;
    while (leat_clock_now(&env->clock) < end_ns) {
    }
}

struct bench_latency
bench_window(const struct bench_env *env, bench_trip_function *trip, void *context, uint64_t gap_ns)
{
    uint64_t sequence = 0, count = 0;
    uint64_t now_ns = leat_clock_now(&env->clock);
    const uint64_t warm_ns = now_ns + env->options->window_ns / 10;

    do {
        trip(context, ++sequence);
        now_ns = leat_clock_now(&env->clock);
    } while (now_ns < warm_ns);
    const uint64_t end_ns = now_ns + env->options->window_ns;
    while (count < BENCH_SAMPLES_MAX && now_ns < end_ns) {
        if (gap_ns > 0) {
            stay_busy(env, gap_ns);
        }
        const uint64_t start_ns = leat_clock_now(&env->clock);
        trip(context, ++sequence);
        now_ns = leat_clock_now(&env->clock);
        env->samples_ns[count++] = now_ns - start_ns;
    }
    return bench_order(env->samples_ns, count);
}

struct client {
    const struct bench_transport *transport;
    void *connection;
    unsigned char *request;
    size_t bytes;
    uint64_t sum; /* of the request without its first word */
};

static void
transport_trip(void *context, uint64_t sequence)
{
    const struct client *client = context;
    struct bench_answer answer;
    memcpy(client->request, &sequence, sizeof(sequence));
    client->transport->trip(client->connection, client->request, client->bytes, &answer);
    LEAT_ASSERT(answer.sequence == sequence && answer.sum == client->sum + sequence);
}

struct bench_latency
bench_transport_trips(const struct bench_env *env, const struct bench_transport *transport, size_t bytes)
{
    char folder[] = "/tmp/leat-bench-XXXXXX", address[64];
    struct bench_latency *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    LEAT_ASSERT(shared != MAP_FAILED);
    LEAT_MUST(mkdtemp(folder) != NULL);
    (void)snprintf(address, sizeof(address), "%s/socket", folder);
    const pid_t server = bench_fork();
    if (server == 0) {
        bench_pin(&env->dispatcher_cpu, 1);
        transport->serve(address);
        _exit(1);
    }
    const pid_t client = bench_fork();
    if (client == 0) {
        struct client state = {.transport = transport, .request = env->payload, .bytes = bytes};
        bench_pin(&env->client_cpu, 1);
        state.sum = bench_sum(state.request + sizeof(uint64_t), bytes - sizeof(uint64_t));
        state.connection = transport->connect(address);
        *shared = bench_window(env, transport_trip, &state, 0);
        _exit(0);
    }
    bench_reap(client);
    LEAT_MUST(kill(server, SIGKILL) == 0 && waitpid(server, NULL, 0) == server);
    (void)unlink(address);
    LEAT_MUST(rmdir(folder) == 0);
    const struct bench_latency latency = *shared;
    LEAT_MUST(munmap(shared, sizeof(*shared)) == 0);
    return latency;
}
