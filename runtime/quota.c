/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/quota.h"

#define MIB 1048576.0

void
leat_quota_init(struct leat_quota *quota, const struct leat_quota_limits *limits)
{
    *quota = (struct leat_quota){.limits = *limits, .free_count = LEAT_QUOTA_SESSIONS};
    for (uint32_t i = 0; i < LEAT_QUOTA_SESSIONS; i++) {
        quota->free_indices[i] = (uint16_t)(LEAT_QUOTA_SESSIONS - 1 - i); /* 0 on top */
    }
}

enum leat_status
leat_quota_take(struct leat_quota *quota, uid_t uid, uint64_t bytes, uint16_t *ret_index)
{
    const struct leat_quota_limits *limits = &quota->limits;
    const uint32_t sessions = leat_quota_sessions(quota);
    uint32_t user_sessions = 0;
    uint64_t all_bytes = 0, user_bytes = 0;

    LEAT_ASSERT(bytes > 0);
    for (uint32_t i = 0; i < LEAT_QUOTA_SESSIONS; i++) {
        const bool users = quota->held[i].bytes > 0 && quota->held[i].uid == uid;
        all_bytes += quota->held[i].bytes;
        user_sessions += users;
        user_bytes += users ? quota->held[i].bytes : 0;
    }
    if (quota->free_count == 0 || sessions >= limits->sessions) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%u sessions are open or closing, the limit (limits.sessions%s)", sessions,
                         limits->sessions_lowered ? ", lowered to what the limit of open files, RLIMIT_NOFILE, allows"
                                                  : "");
    }
    if (user_sessions >= limits->sessions_per_user) {
        return LEAT_FAIL(LEAT_ERR_LIMIT,
                         "user %u has %u sessions open or closing, the limit (limits.sessions_per_user)", (unsigned)uid,
                         user_sessions);
    }
    if (bytes > limits->bytes_per_user || user_bytes > limits->bytes_per_user - bytes) {
        return LEAT_FAIL(LEAT_ERR_LIMIT,
                         "%.1f MiB asked for, and user %u holds %.1f of %.1f MiB of session memory "
                         "(limits.session_memory_per_user): close sessions, ask for a smaller arena, or raise it",
                         (double)bytes / MIB, (unsigned)uid, (double)user_bytes / MIB,
                         (double)limits->bytes_per_user / MIB);
    }
    if (bytes > limits->bytes || all_bytes > limits->bytes - bytes) {
        return LEAT_FAIL(LEAT_ERR_LIMIT,
                         "%.1f MiB asked for, and all sessions hold %.1f of %.1f MiB of memory "
                         "(limits.session_memory): ask for a smaller arena, try later, or raise it",
                         (double)bytes / MIB, (double)all_bytes / MIB, (double)limits->bytes / MIB);
    }
    const uint16_t index = quota->free_indices[--quota->free_count];
    quota->held[index].bytes = bytes;
    quota->held[index].uid = uid;
    *ret_index = index;
    return LEAT_OK;
}

void
leat_quota_give(struct leat_quota *quota, uint16_t index)
{
    LEAT_ASSERT(quota->held[index].bytes > 0);
    quota->held[index].bytes = 0;
    quota->free_indices[quota->free_count++] = index;
}
