/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The central queue is first in, first out, keeps each burst together, refuses exactly when full, and loses
 *          or doubles nothing with several producers on fewer cores.
 * Method   Random pushes and pops of bursts against a counter, starting just below the 32-bit wrap; then threads,
 *          where TSan checks Q0/Q1 and Q2/Q3.
 */
#include <pthread.h>
#include <sched.h>

#include "runtime/central_queue.h"
#include "tests/leat_test.h"

enum { CAPACITY = 16, STEPS = 200000, PRODUCERS = 3, EACH = 60000 };

static struct leat_queue_cell cells[CAPACITY];
static struct leat_central_queue queue;

static struct leat_query_entry
entry_of(uint64_t number)
{
    struct leat_query_entry entry = {.submit_ns = number, .deadline_ns = ~number, .ticket_low = (uint32_t)number};
    for (uint32_t i = 0; i < LEAT_WIRE_UNITS; i++) {
        entry.units[i] = (uint32_t)(number + i);
    }
    return entry;
}

static void
check_entry(const struct leat_query_entry *entry, uint64_t number)
{
    EXPECT(entry->submit_ns == number && entry->deadline_ns == ~number && entry->ticket_low == (uint32_t)number);
    for (uint32_t i = 0; i < LEAT_WIRE_UNITS; i++) {
        EXPECT(entry->units[i] == (uint32_t)(number + i));
    }
}

/* As if `position` entries had been through already. */
static void
start_at(uint64_t position)
{
    leat_central_queue_init(&queue, cells, CAPACITY);
    atomic_store(&queue.tail, position);
    queue.head = position;
    for (uint64_t i = 0; i < CAPACITY; i++) {
        atomic_store(&cells[(position + i) % CAPACITY].sequence, position + i);
    }
}

static void
test_bursts_against_a_counter(void)
{
    struct leat_query_entry entries[CAPACITY];
    uint64_t random = leat_test_seed, pushed = 0, popped = 0;
    uint32_t refused = 0;

    start_at(UINT32_MAX - 5);
    for (int step = 0; step < STEPS; step++) {
        const uint64_t count = 1 + leat_test_random(&random) % CAPACITY;
        if (leat_test_random(&random) % 2 == 0) {
            for (uint64_t i = 0; i < count; i++) {
                entries[i] = entry_of(pushed + i);
            }
            const enum leat_status status = leat_central_queue_push(&queue, entries, count);
            EXPECT(status == (pushed - popped + count > CAPACITY ? LEAT_AGAIN : LEAT_OK));
            pushed += status == LEAT_OK ? count : 0;
            refused += status == LEAT_AGAIN;
        } else {
            const uint64_t got = leat_central_queue_pop(&queue, entries, count);
            EXPECT(got == (pushed - popped < count ? pushed - popped : count));
            for (uint64_t i = 0; i < got; i++) {
                check_entry(&entries[i], popped++);
            }
        }
    }
    EXPECT(refused > 1000 && popped > 100000);
}

static void *
produce(void *argument)
{
    const uint64_t producer = (uint64_t)(uintptr_t)argument;
    struct leat_query_entry burst[4];
    uint64_t random = leat_test_seed + producer;

    for (uint64_t n = 0; n < EACH;) {
        const uint64_t most = 1 + leat_test_random(&random) % 4;
        const uint64_t count = most < EACH - n ? most : EACH - n;
        for (uint64_t i = 0; i < count; i++) {
            burst[i] = entry_of(producer << 32 | (n + i));
        }
        if (leat_central_queue_push(&queue, burst, count) == LEAT_OK) {
            n += count;
        } else {
            (void)sched_yield();
        }
    }
    return NULL;
}

static void
test_producers_lose_nothing(void)
{
    pthread_t threads[PRODUCERS];
    uint64_t next[PRODUCERS] = {0};
    struct leat_query_entry entries[8];

    start_at(0);
    for (uint64_t p = 0; p < PRODUCERS; p++) {
        EXPECT(pthread_create(&threads[p], NULL, produce, (void *)(uintptr_t)p) == 0);
    }
    for (uint64_t total = 0; total < (uint64_t)PRODUCERS * EACH;) {
        const uint64_t count = leat_central_queue_pop(&queue, entries, 8);
        for (uint64_t i = 0; i < count; i++) {
            const uint64_t producer = entries[i].submit_ns >> 32;
            EXPECT(producer < PRODUCERS);
            check_entry(&entries[i], producer << 32 | next[producer]);
            next[producer]++;
        }
        total += count;
        if (count == 0) {
            (void)sched_yield();
        }
    }
    for (int p = 0; p < PRODUCERS; p++) {
        EXPECT(pthread_join(threads[p], NULL) == 0);
        EXPECT(next[p] == EACH);
    }
    EXPECT(leat_central_queue_pop(&queue, entries, 8) == 0);
}

int
main(void)
{
    leat_test_init();
    test_bursts_against_a_counter();
    test_producers_lose_nothing();
    return 0;
}
