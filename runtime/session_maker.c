/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/session_maker.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/log.h"

#define PART_BYTES (UINT64_C(16) << 20) /* whole huge pages; a few milliseconds */

struct queue {
    struct leat_session_job *first, **end;
};

struct leat_session_maker {
    pthread_mutex_t mutex; /* of the queues and `stop` */
    pthread_cond_t ready;
    struct queue waiting, done;
    bool stop;
    int event_fd;
    pthread_t thread;
    bool running;
};

static void
queue_push(struct queue *queue, struct leat_session_job *job)
{
    job->next = NULL;
    *queue->end = job;
    queue->end = &job->next;
}

static struct leat_session_job *
queue_pop(struct queue *queue)
{
    struct leat_session_job *job = queue->first;

    if (job != NULL) {
        queue->first = job->next;
        if (queue->first == NULL) {
            queue->end = &queue->first;
        }
    }
    return job;
}

/* ---- The work: each true once the job is done --------------------------------------------------- */

static bool
make_part(struct leat_session_job *job)
{
    if (atomic_load_explicit(&job->abandoned, memory_order_relaxed)) {
        return true;
    }
    job->status = job->session == NULL ? leat_daemon_session_begin(&job->options, &job->session, job->note) : LEAT_OK;
    if (job->status == LEAT_OK) {
        job->status = leat_daemon_session_populate(job->session, PART_BYTES);
    }
    if (job->status != LEAT_OK) {
        (void)snprintf(job->text, sizeof(job->text), "%s", leat_error_text());
        return true;
    }
    return job->session->arena_present == job->session->arena_bytes;
}

static bool
give_back_part(struct leat_session_job *job)
{
    if (job->session != NULL && !job->keep_pages && job->session->arena_present > 0) {
        if (leat_daemon_session_take_back(job->session, PART_BYTES) == LEAT_OK) {
            return false;
        }
        leat_log(LEAT_LOG_WARNING, "memory of process %d may stay in use until it ends: %s", (int)job->session->pid,
                 leat_error_text());
    }
    leat_daemon_session_destroy(job->session);
    job->session = NULL;
    return true;
}

bool
leat_session_maker_step(struct leat_session_maker *maker)
{
    const uint64_t one = 1;

    LEAT_MUST(pthread_mutex_lock(&maker->mutex) == 0);
    struct leat_session_job *job = queue_pop(&maker->waiting);
    LEAT_MUST(pthread_mutex_unlock(&maker->mutex) == 0);
    if (job == NULL) {
        return false;
    }
    const bool done = job->work == LEAT_SESSION_MAKE ? make_part(job) : give_back_part(job);
    LEAT_MUST(pthread_mutex_lock(&maker->mutex) == 0);
    queue_push(done ? &maker->done : &maker->waiting, job);
    if (done) {
        LEAT_MUST(write(maker->event_fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
    }
    LEAT_MUST(pthread_mutex_unlock(&maker->mutex) == 0);
    return true;
}

static void *
maker_main(void *argument)
{
    struct leat_session_maker *maker = argument;
    bool stop = false;

    (void)pthread_setname_np(pthread_self(), "leat-memory");
    while (!stop) {
        while (leat_session_maker_step(maker)) {
        }
        LEAT_MUST(pthread_mutex_lock(&maker->mutex) == 0);
        while (maker->waiting.first == NULL && !maker->stop) {
            LEAT_MUST(pthread_cond_wait(&maker->ready, &maker->mutex) == 0);
        }
        stop = maker->stop;
        LEAT_MUST(pthread_mutex_unlock(&maker->mutex) == 0);
    }
    return NULL;
}

/* ---- The server's side ---------------------------------------------------------------------------- */

void
leat_session_maker_submit(struct leat_session_maker *maker, struct leat_session_job *job)
{
    LEAT_MUST(pthread_mutex_lock(&maker->mutex) == 0);
    queue_push(&maker->waiting, job);
    LEAT_MUST(pthread_cond_signal(&maker->ready) == 0);
    LEAT_MUST(pthread_mutex_unlock(&maker->mutex) == 0);
}

int
leat_session_maker_event_fd(const struct leat_session_maker *maker)
{
    return maker->event_fd;
}

struct leat_session_job *
leat_session_maker_collect(struct leat_session_maker *maker)
{
    uint64_t count;

    LEAT_MUST(pthread_mutex_lock(&maker->mutex) == 0);
    struct leat_session_job *job = queue_pop(&maker->done);
    if (maker->done.first == NULL) {
        const ssize_t got = read(maker->event_fd, &count, sizeof(count)); /* the descriptor is readable no more */
        (void)got;
    }
    LEAT_MUST(pthread_mutex_unlock(&maker->mutex) == 0);
    return job;
}

enum leat_status
leat_session_maker_create(struct leat_session_maker **ret_maker)
{
    struct leat_session_maker *maker = calloc(1, sizeof(*maker));

    if (maker == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the maker of sessions");
    }
    maker->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (maker->event_fd < 0) {
        free(maker);
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot make a descriptor for the maker of sessions");
    }
    maker->waiting.end = &maker->waiting.first;
    maker->done.end = &maker->done.first;
    LEAT_MUST(pthread_mutex_init(&maker->mutex, NULL) == 0);
    LEAT_MUST(pthread_cond_init(&maker->ready, NULL) == 0);
    *ret_maker = maker;
    return LEAT_OK;
}

enum leat_status
leat_session_maker_start(struct leat_session_maker *maker)
{
    const int error = pthread_create(&maker->thread, NULL, maker_main, maker);

    if (error != 0) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "cannot start the memory thread: %s", strerror(error));
    }
    maker->running = true;
    return LEAT_OK;
}

void
leat_session_maker_destroy(struct leat_session_maker *maker)
{
    if (maker == NULL) {
        return;
    }
    if (maker->running) {
        LEAT_MUST(pthread_mutex_lock(&maker->mutex) == 0);
        maker->stop = true;
        LEAT_MUST(pthread_cond_signal(&maker->ready) == 0);
        LEAT_MUST(pthread_mutex_unlock(&maker->mutex) == 0);
        LEAT_MUST(pthread_join(maker->thread, NULL) == 0);
    }
    LEAT_ASSERT(maker->waiting.first == NULL && maker->done.first == NULL);
    LEAT_MUST(close(maker->event_fd) == 0);
    LEAT_MUST(pthread_mutex_destroy(&maker->mutex) == 0);
    LEAT_MUST(pthread_cond_destroy(&maker->ready) == 0);
    free(maker);
}
