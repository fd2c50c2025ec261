/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A thread that asks for a short slice has it and keeps its policy and nice; one that stands back is an ordinary thread, never
 *          less nice than it was. What it asks for is its own.
 * Method   What Linux says of the thread, where it knows slices of ordinary threads.
 */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/slice.h"
#include "tests/leat_test.h"

/* As in sched_setattr(2). */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

static struct attributes
now(void)
{
    struct attributes attributes = {0};
    EXPECT(syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) == 0);
    return attributes;
}

static void *
check_ordinary(void *nothing)
{
    const struct attributes before = now();

    leat_slice_shorten();
    EXPECT(now().runtime_ns == LEAT_SLICE_SHORT_NS);
    EXPECT(now().policy == before.policy && now().nice == before.nice && now().priority == 0);

    leat_slice_stand_back(before.nice + 3 < 19 ? before.nice + 3 : 19);
    const int32_t nice = now().nice;
    EXPECT(now().policy == SCHED_OTHER && nice == (before.nice + 3 < 19 ? before.nice + 3 : 19));
    EXPECT(now().runtime_ns == LEAT_SLICE_SHORT_NS);
    leat_slice_stand_back(before.nice); /* which is less */
    EXPECT(now().nice == nice);
    leat_slice_shorten();
    EXPECT(now().nice == nice && now().policy == SCHED_OTHER);
    return nothing;
}

static void *
check_batch(void *nothing)
{
    EXPECT(sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0}) == 0);
    leat_slice_shorten();
    EXPECT(now().policy == SCHED_BATCH && now().runtime_ns == LEAT_SLICE_SHORT_NS);
    return nothing;
}

/* Of a priority above ordinary threads: it needs no slice, and stands back from that priority. */
static void *
check_realtime(void *nothing)
{
    if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}) != 0) {
        (void)printf("without real-time threads: this user may have none\n");
        return nothing;
    }
    leat_slice_shorten();
    EXPECT(now().policy == SCHED_FIFO && now().priority == 1);
    leat_slice_stand_back(0);
    EXPECT(now().policy == SCHED_OTHER && now().priority == 0 && now().runtime_ns == LEAT_SLICE_SHORT_NS);
    return nothing;
}

static void
on_a_thread(void *(*check)(void *))
{
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, check, NULL) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
}

int
main(void)
{
    const struct attributes before = now();

    if (before.runtime_ns == 0) { /* Linux says the slice of an ordinary thread since it lets threads choose it */
        leat_slice_shorten();
        leat_slice_stand_back(before.nice);
        EXPECT(now().policy == before.policy && now().nice == before.nice);
        (void)printf("skipped: this Linux has no slices to choose (before 6.12)\n");
        return LEAT_TEST_SKIP;
    }
    on_a_thread(check_ordinary);
    on_a_thread(check_batch);
    on_a_thread(check_realtime);
    EXPECT(now().runtime_ns == before.runtime_ns && now().nice == before.nice);
    return 0;
}
