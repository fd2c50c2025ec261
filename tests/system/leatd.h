/* SPDX-License-Identifier: Apache-2.0 */
/* tests/system/leatd.h - leatd as a process of a test, told from its notices to systemd, its log and its end. */
#ifndef LEAT_TESTS_LEATD_H
#define LEAT_TESTS_LEATD_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>

#include <leat/leat.h>

#include "tests/runtime/fake_root.h"

struct leatd {
    struct fake_root root; /* its folder: leat.yaml, the socket, the state, the log */
    char socket_path[160];
    pid_t pid;
    const char *program; /* leatd, unless the test sets another path once it is initialised */
    int pidfd;
    int notice;  /* where it tells what it would tell systemd */
    FILE *told;  /* what it told, until its end: read on by a thread of ours, for a full socket would hold it up */
    int tell;    /* the other end of `told` */
    pthread_t listener;
};

/* CPUs that a daemon may have: where two workers are to share none there must be three, for one is the dispatcher's. */
uint32_t leatd_cpus(void);
/* How many CPUs a thread may run on, and the first; 0: there is no such thread any more. */
uint32_t leatd_thread_cpus(pid_t thread, uint32_t *ret_first);

/* A new folder; the test may put files there before it starts leatd. */
void leatd_init(struct leatd *leatd);
/* Runs it with this configuration, to which socket and state_dir are added; returns once it serves. */
void leatd_start(struct leatd *leatd, const char *yaml);
/* Waits until it gives notice with this line; what it told before is forgotten. */
void leatd_await_notice(struct leatd *leatd, const char *line);
void leatd_signal(const struct leatd *leatd, int signal_number);
/* Waits for its end and returns its exit code. The socket must be gone. */
int leatd_await_end(struct leatd *leatd);
/* Ends it by this signal, and forgets it: it can be started again, with what it left in its folder. By SIGBUS it breaks down. */
void leatd_end(struct leatd *leatd, int signal_number);
/* In how many lines of what it wrote to standard error so far the text is, and whether in any. */
uint32_t leatd_log_count(const struct leatd *leatd, const char *text);
bool leatd_logged(const struct leatd *leatd, const char *text);
void leatd_fini(struct leatd *leatd); /* after its end by itself, or by leatd_end */

/* Waits while there are too many, for those that were closed to be gone. */
struct leat_session *leatd_open_session(const struct leatd *leatd, uint32_t slots, uint64_t arena_bytes);
/* The answer to an administrative request; the caller's. */
json_t *leatd_request(struct leat_session *session, const char *text);
/* A number of at least 0 in an object. */
uint64_t leatd_number(const json_t *object, const char *key);
/* A counter of the one application. */
uint64_t leatd_counter(struct leat_session *session, const char *key);

#endif /* LEAT_TESTS_LEATD_H */
