/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Sessions and their bytes are counted for each user and in all, from taking to giving; each limit refuses
 *          with the setting's name; what one user holds is refused to nobody else while the limit of all allows it.
 * Method   Random takes and gives of three users beside a plain list. The seed is printed.
 */
#include <string.h>

#include "runtime/quota.h"
#include "tests/leat_test.h"

enum { USERS = 3, STEPS = 20000 };

static struct leat_quota quota;

static void
test_each_limit_is_named(void)
{
    static const struct leat_quota_limits limits = {
        .sessions = 3, .sessions_per_user = 2, .bytes = 1000, .bytes_per_user = 600};
    uint16_t index[3], none = 0xffff;

    leat_quota_init(&quota, &limits);
    EXPECT(leat_quota_take(&quota, 7, 601, &none) == LEAT_ERR_LIMIT);
    EXPECT(strstr(leat_error_text(), "limits.session_memory_per_user") != NULL);
    EXPECT(leat_quota_take(&quota, 7, UINT64_MAX, &none) == LEAT_ERR_LIMIT); /* nothing wraps */
    EXPECT(leat_quota_take(&quota, 7, 600, &index[0]) == LEAT_OK);
    EXPECT(leat_quota_take(&quota, 7, 1, &none) == LEAT_ERR_LIMIT);
    EXPECT(strstr(leat_error_text(), "user 7") != NULL && strstr(leat_error_text(), "per_user") != NULL);
    EXPECT(leat_quota_take(&quota, 8, 401, &none) == LEAT_ERR_LIMIT);
    EXPECT(strstr(leat_error_text(), "(limits.session_memory)") != NULL);
    EXPECT(leat_quota_take(&quota, 8, 100, &index[1]) == LEAT_OK);
    EXPECT(leat_quota_take(&quota, 8, 100, &index[2]) == LEAT_OK);
    EXPECT(leat_quota_take(&quota, 9, 1, &none) == LEAT_ERR_LIMIT);
    EXPECT(strstr(leat_error_text(), "(limits.sessions)") != NULL);
    leat_quota_give(&quota, index[0]);
    EXPECT(leat_quota_take(&quota, 8, 1, &none) == LEAT_ERR_LIMIT);
    EXPECT(strstr(leat_error_text(), "(limits.sessions_per_user)") != NULL);
    EXPECT(none == 0xffff && leat_quota_sessions(&quota) == 2);
}

static void
test_counts(void)
{
    const struct leat_quota_limits limits = {
        .sessions = 40, .sessions_per_user = 20, .bytes = 40000, .bytes_per_user = 20000};
    struct {
        uint64_t bytes;
        uid_t uid;
    } held[LEAT_SESSIONS_MAX] = {0};
    uint64_t random = leat_test_seed, bytes[USERS] = {0}, all = 0;
    uint32_t sessions[USERS] = {0}, count = 0, refused = 0;

    leat_quota_init(&quota, &limits);
    for (int n = 0; n < STEPS; n++) {
        const uid_t uid = (uid_t)(leat_test_random(&random) % USERS);
        uint16_t index = (uint16_t)(leat_test_random(&random) % limits.sessions);
        if (held[index].bytes > 0 && leat_test_random(&random) % 5 < 2) {
            const uid_t owner = held[index].uid;
            leat_quota_give(&quota, index);
            bytes[owner] -= held[index].bytes;
            all -= held[index].bytes;
            sessions[owner]--;
            count--;
            held[index].bytes = 0;
        } else {
            const uint64_t wanted = 1 + leat_test_random(&random) % 3000;
            const bool fits = count < limits.sessions && sessions[uid] < limits.sessions_per_user &&
                              bytes[uid] + wanted <= limits.bytes_per_user && all + wanted <= limits.bytes;
            EXPECT((leat_quota_take(&quota, uid, wanted, &index) == LEAT_OK) == fits);
            refused += !fits;
            if (fits) {
                EXPECT(index < LEAT_SESSIONS_MAX && held[index].bytes == 0);
                held[index].bytes = wanted;
                held[index].uid = uid;
                bytes[uid] += wanted;
                all += wanted;
                sessions[uid]++;
                count++;
            }
        }
        EXPECT(leat_quota_sessions(&quota) == count);
    }
    EXPECT(refused > 0);
}

int
main(void)
{
    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    test_each_limit_is_named();
    test_counts();
    return 0;
}
