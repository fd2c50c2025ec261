/* SPDX-License-Identifier: Apache-2.0 */
/* Asks an application 64 questions at once and counts the answers that came inside the objective. */
#include <leat/leat.h>
#include <stdio.h>
#include <string.h>

static int
fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, leat_error_text());
    return 1;
}

int
main(int argc, char **argv)
{
    enum { N = 64 };
    struct leat_session *session;
    struct leat_target target;
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_completion done[N];
    size_t got = 0, met = 0, count;

    if (leat_open(NULL, &session) != LEAT_OK) return fail("open"); /* $LEAT_SOCKET or /run/leat/leat.sock */
    if (leat_find(session, argc > 1 ? argv[1] : "digits", &target) != LEAT_OK) return fail("find");
    query.target = target.id;
    query.latency_ns = 20 * 1000 * 1000; /* answer within 20 ms of submission */
    for (query.user_data = 0; query.user_data < N; query.user_data++) {
        for (uint32_t t = 0; t < target.input_count + target.output_count; t++) {
            if (leat_tensor_alloc(session, target.tensors[t].item_bytes, &query.tensors[t]) != LEAT_OK) return fail("alloc");
            if (t < target.input_count) memset(query.tensors[t], 0, target.tensors[t].item_bytes);
        }
        if (leat_submit(session, &query, NULL) != LEAT_OK) return fail("submit"); /* tensors are the daemon's now */
    }
    for (; got < N; got += count) {
        if (leat_wait(session, done, N, UINT64_MAX, &count) != LEAT_OK) return fail("wait");
        for (size_t i = 0; i < count; i++) met += done[i].outcome == LEAT_OUTCOME_OK;
    }
    printf("%zu of %d inside the objective\n", met, N);
    leat_close(session);
    return met == N ? 0 : 2;
}
