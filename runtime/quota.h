/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/quota.h - who holds how many sessions, and how much of their memory.
 *
 * Role     A session counts from its HELLO until its memory has been given back, so one that is being made counts, and
 *          so does one whose client has left while a query of it still runs. What counts has an index below
 *          LEAT_QUOTA_SESSIONS, which is the session's in the daemon's tables too.
 * Threads  The server's.
 */
#ifndef LEAT_RUNTIME_QUOTA_H
#define LEAT_RUNTIME_QUOTA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "runtime/pipeline.h"
#include "runtime/session.h"

#define LEAT_QUOTA_SESSIONS LEAT_PIPELINE_SESSION /* the last place of the daemon's table is no client's */
_Static_assert(LEAT_QUOTA_SESSIONS == LEAT_SESSIONS_MAX - 1, "all others are");

struct leat_quota_limits {
    uint32_t sessions, sessions_per_user;
    bool sessions_lowered; /* below the setting: RLIMIT_NOFILE allows no more */
    uint64_t bytes, bytes_per_user; /* of rings and arenas */
};

struct leat_quota {
    struct leat_quota_limits limits;
    struct {
        uint64_t bytes; /* 0: free */
        uid_t uid;
    } held[LEAT_QUOTA_SESSIONS];
    uint16_t free_indices[LEAT_QUOTA_SESSIONS]; /* stack */
    uint32_t free_count;
};

void leat_quota_init(struct leat_quota *quota, const struct leat_quota_limits *limits);

/* LEAT_ERR_LIMIT, with the setting that refuses and the way out. `bytes` above 0. */
LEAT_MUST_CHECK enum leat_status leat_quota_take(struct leat_quota *quota, uid_t uid, uint64_t bytes,
                                                 uint16_t *ret_index);
void leat_quota_give(struct leat_quota *quota, uint16_t index);

static inline uint32_t
leat_quota_sessions(const struct leat_quota *quota)
{
    return LEAT_QUOTA_SESSIONS - quota->free_count;
}

#endif /* LEAT_RUNTIME_QUOTA_H */
