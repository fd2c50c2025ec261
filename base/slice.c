/* SPDX-License-Identifier: Apache-2.0 */
#include "base/slice.h"

#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As in sched_setattr(2): Linux' own header and the C library's do not go together. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

void
leat_slice_shorten(void)
{
    struct attributes attributes = {.size = sizeof(attributes)};

    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0 ||
        (attributes.policy != SCHED_OTHER && attributes.policy != SCHED_BATCH)) {
        return;
    }
    attributes.runtime_ns = LEAT_SLICE_SHORT_NS;
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

void
leat_slice_stand_back(int nice)
{
    struct attributes attributes = {.size = sizeof(attributes)};

    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) {
        attributes.nice = 0;
    }
    attributes.size = sizeof(attributes);
    attributes.policy = SCHED_OTHER;
    attributes.nice = attributes.nice > nice ? attributes.nice : nice; /* to lower it takes a privilege */
    attributes.priority = 0;
    attributes.runtime_ns = LEAT_SLICE_SHORT_NS;
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}
