/* SPDX-License-Identifier: Apache-2.0 */
/* ZeroMQ, a pair of DEALER sockets over ipc://: no envelope, one outstanding. */
#include "bench/roundtrip.h"

#if LEAT_BENCH_ZMQ
#include <stdio.h>
#include <string.h>
#include <zmq.h>

static void *
dealer(void)
{
    void *context = zmq_ctx_new(); /* lives as long as the process */
    void *socket = zmq_socket(context, ZMQ_DEALER);
    LEAT_ASSERT(socket != NULL);
    return socket;
}

static void
url_of(const char *address, char *ret_url, size_t size)
{
    LEAT_MUST(snprintf(ret_url, size, "ipc://%s", address) < (int)size);
}

static void
serve(const char *address)
{
    void *socket = dealer();
    char url[128];
    url_of(address, url, sizeof(url));
    LEAT_MUST(zmq_bind(socket, url) == 0);
    for (;;) {
        zmq_msg_t request;
        LEAT_MUST(zmq_msg_init(&request) == 0 && zmq_msg_recv(&request, socket, 0) >= 0);
        struct bench_answer answer = {.sum = bench_sum(zmq_msg_data(&request), zmq_msg_size(&request))};
        memcpy(&answer.sequence, zmq_msg_data(&request), sizeof(answer.sequence));
        LEAT_MUST(zmq_msg_close(&request) == 0);
        LEAT_MUST(zmq_send(socket, &answer, sizeof(answer), 0) == (int)sizeof(answer));
    }
}

static void *
connect_to(const char *address)
{
    void *socket = dealer();
    char url[128];
    url_of(address, url, sizeof(url));
    LEAT_MUST(zmq_connect(socket, url) == 0); /* tries again by itself */
    return socket;
}

static void
trip(void *connection, const void *request, size_t bytes, struct bench_answer *ret_answer)
{
    LEAT_MUST(zmq_send(connection, request, bytes, 0) == (int)bytes);
    LEAT_MUST(zmq_recv(connection, ret_answer, sizeof(*ret_answer), 0) == (int)sizeof(*ret_answer));
}

struct bench_transport bench_zmq = {
    .name = "ZeroMQ ipc", .version = LEAT_BENCH_ZMQ_VERSION, .serve = serve, .connect = connect_to, .trip = trip};
#else
struct bench_transport bench_zmq = {.name = "ZeroMQ ipc", .missing = "not built: libzmq3-dev is not installed"};
#endif
