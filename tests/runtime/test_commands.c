/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Commands reach the dispatcher whole, once and in order, also when their ring is full (K0 to K3); events come
 *          back likewise (K4, K5), and with what they stand for.
 * Method   This thread is the dispatcher and begins only when the ring is full. A second thread adds and removes as many
 *          applications as there may be; a third looks for events without pause. What an application holds is
 *          plain data, and the three share no other order, so that TSan sees a missing one.
 */
#include <pthread.h>
#include <sched.h>

#include "runtime/dispatcher.h"
#include "tests/leat_test.h"

enum { RING = 1024 /* runtime/dispatcher_private.h */, LAPS = 3 };
_Static_assert(LEAT_APPLICATIONS_MAX >= RING, "the first lap fills the ring");

static struct leat_shared_tables tables;
static struct leat_dispatcher *dispatcher;
static struct leat_application apps[LAPS][RING];
static _Atomic uint32_t sent, seen; /* relaxed on purpose: they order nothing */

static void *
send_commands(void *argument)
{
    (void)argument;
    for (uint32_t lap = 0; lap < LAPS; lap++) {
        for (uint16_t id = 0; id < RING; id++) {
            apps[lap][id].id = id;
            const struct leat_command add = {.kind = LEAT_COMMAND_ADD_APPLICATION, .application = &apps[lap][id]};
            leat_dispatcher_command(dispatcher, &add);
            (void)atomic_fetch_add_explicit(&sent, 1, memory_order_relaxed);
        }
        for (uint16_t id = 0; id < RING; id++) {
            const struct leat_command remove = {.kind = LEAT_COMMAND_REMOVE_APPLICATION, .application = &apps[lap][id]};
            leat_dispatcher_command(dispatcher, &remove);
        }
    }
    return NULL;
}

static void *
see_events(void *argument)
{
    struct leat_event event;

    (void)argument;
    for (uint32_t lap = 0; lap < LAPS; lap++) {
        for (uint32_t id = 0; id < RING; id++) {
            while (!leat_dispatcher_poll_event(dispatcher, &event)) {
                leat_spin_pause();
            }
            EXPECT(event.kind == LEAT_EVENT_APPLICATION_GONE && event.application == &apps[lap][id]);
            EXPECT(event.application->removing);
            (void)atomic_fetch_add_explicit(&seen, 1, memory_order_relaxed);
        }
    }
    EXPECT(!leat_dispatcher_poll_event(dispatcher, &event));
    return NULL;
}

int
main(void)
{
    static const uint16_t classes[1];
    struct leat_worker *worker = NULL;
    const struct leat_dispatcher_options options = {.tables = &tables,
                                                    .workers = &worker,
                                                    .worker_classes = classes,
                                                    .worker_count = 1,
                                                    .worker_depth = 1,
                                                    .queue_capacity = 16,
                                                    .cpu = -1};
    pthread_t sender, listener;
    uint64_t now_ns = 0;

    leat_test_init();
    EXPECT(leat_worker_create(&(struct leat_worker_options){.core_count = 1, .tables = &tables}, &worker) == LEAT_OK);
    EXPECT(leat_dispatcher_create(&options, &dispatcher) == LEAT_OK);
    EXPECT(pthread_create(&sender, NULL, send_commands, NULL) == 0);
    EXPECT(pthread_create(&listener, NULL, see_events, NULL) == 0);
    while (atomic_load_explicit(&sent, memory_order_relaxed) < RING) {
        (void)sched_yield();
    }
    while (atomic_load_explicit(&seen, memory_order_relaxed) < LAPS * RING) {
        (void)leat_dispatcher_round(dispatcher, ++now_ns);
    }
    EXPECT(pthread_join(sender, NULL) == 0 && pthread_join(listener, NULL) == 0);
    leat_dispatcher_destroy(dispatcher);
    leat_worker_destroy(worker);
    return 0;
}
