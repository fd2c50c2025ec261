/* SPDX-License-Identifier: Apache-2.0 */
/* nng, pair0 over ipc://, one outstanding. */
#include "bench/roundtrip.h"

#if LEAT_BENCH_NNG
#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static nng_socket
open_pair(void)
{
    nng_socket socket;
    LEAT_MUST(nng_pair0_open(&socket) == 0);
    LEAT_MUST(nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ, 0) == 0); /* any size */
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
    nng_socket socket = open_pair();
    char url[128];
    url_of(address, url, sizeof(url));
    LEAT_MUST(nng_listen(socket, url, NULL, 0) == 0);
    for (;;) {
        nng_msg *request;
        LEAT_MUST(nng_recvmsg(socket, &request, 0) == 0);
        struct bench_answer answer = {.sum = bench_sum(nng_msg_body(request), nng_msg_len(request))};
        memcpy(&answer.sequence, nng_msg_body(request), sizeof(answer.sequence));
        nng_msg_free(request);
        LEAT_MUST(nng_send(socket, &answer, sizeof(answer), 0) == 0);
    }
}

static void *
connect_to(const char *address)
{
    nng_socket *socket = malloc(sizeof(*socket));
    char url[128];
    LEAT_ASSERT(socket != NULL);
    *socket = open_pair();
    url_of(address, url, sizeof(url));
    LEAT_MUST(nng_setopt_ms(*socket, NNG_OPT_RECONNMINT, 1) == 0);
    LEAT_MUST(nng_dial(*socket, url, NULL, NNG_FLAG_NONBLOCK) == 0); /* tries again by itself */
    return socket;
}

static void
trip(void *connection, const void *request, size_t bytes, struct bench_answer *ret_answer)
{
    nng_socket socket = *(nng_socket *)connection;
    size_t size = sizeof(*ret_answer);
    /* nng_send takes a buffer that is not const and copies from it. */
    LEAT_MUST(nng_send(socket, (void *)(uintptr_t)request, bytes, 0) == 0);
    LEAT_MUST(nng_recv(socket, ret_answer, &size, 0) == 0 && size == sizeof(*ret_answer));
}

struct bench_transport bench_nng = {
    .name = "nng ipc", .version = LEAT_BENCH_NNG_VERSION, .serve = serve, .connect = connect_to, .trip = trip};
#else
struct bench_transport bench_nng = {.name = "nng ipc", .missing = "not built: libnng-dev is not installed"};
#endif
