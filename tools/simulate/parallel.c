/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"

#define THREADS_MAX 256u
#define TEXT_MAX    512

struct shared {
    _Atomic uint32_t next; /* job; W: all, relaxed: a job's data are its own */
    uint32_t count;
    simulate_job job;
    void *context;
    const _Atomic bool *stop; /* relaxed: it says nothing but itself */
    _Atomic uint32_t *done;
};

struct thread {
    pthread_t id;
    struct shared *shared;
    enum leat_status status;
    uint32_t failed; /* job */
    char text[TEXT_MAX];
};

uint32_t
simulate_core_count(void)
{
    cpu_set_t set;
    const int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > 0 ? (uint32_t)count : 1;
}

static enum leat_status
work(struct thread *thread, struct simulate_run *run)
{
    struct shared *shared = thread->shared;
    for (;;) {
        if (shared->stop != NULL && atomic_load_explicit(shared->stop, memory_order_relaxed)) {
            return LEAT_AGAIN;
        }
        const uint32_t index = atomic_fetch_add_explicit(&shared->next, 1, memory_order_relaxed);
        if (index >= shared->count) {
            return LEAT_OK;
        }
        const enum leat_status status = shared->job(run, index, shared->context);
        if (status != LEAT_OK) {
            thread->failed = index;
            return status;
        }
        if (shared->done != NULL) {
            atomic_fetch_add_explicit(shared->done, 1, memory_order_relaxed);
        }
    }
}

static void *
thread_main(void *argument)
{
    struct thread *thread = argument;
    struct simulate_run *run = NULL;

    thread->status = simulate_run_create(&run);
    if (thread->status == LEAT_OK) {
        thread->status = work(thread, run);
    }
    if (thread->status < 0) {
        (void)snprintf(thread->text, sizeof(thread->text), "%s", leat_error_text());
    }
    simulate_run_destroy(run);
    return NULL;
}

enum leat_status
simulate_parallel(uint32_t threads, uint32_t count, simulate_job job, void *context, const _Atomic bool *stop,
                  _Atomic uint32_t *done)
{
    struct shared shared = {.count = count, .job = job, .context = context, .stop = stop, .done = done};
    threads = threads < count ? threads : count;
    threads = threads < 1 ? 1 : threads < THREADS_MAX ? threads : THREADS_MAX;
    struct thread *all = calloc(threads, sizeof(*all));
    if (all == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u threads", threads);
    }
    uint32_t started = 1; /* this thread is the first */
    for (; started < threads; started++) {
        all[started].shared = &shared;
        if (pthread_create(&all[started].id, NULL, thread_main, &all[started]) != 0) {
            break; /* fewer do it as well */
        }
    }
    all[0].shared = &shared;
    (void)thread_main(&all[0]);
    const struct thread *worst = &all[0];
    for (uint32_t t = 1; t < started; t++) {
        LEAT_MUST(pthread_join(all[t].id, NULL) == 0);
        const bool earlier = all[t].failed < worst->failed;
        if (all[t].status < 0 && (worst->status >= 0 || earlier)) {
            worst = &all[t];
        } else if (all[t].status == LEAT_AGAIN && worst->status == LEAT_OK) {
            worst = &all[t];
        }
    }
    const enum leat_status status = worst->status < 0 ? LEAT_FAIL(worst->status, "%s", worst->text) : worst->status;
    free(all);
    return status;
}
