/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/application.h"

#include <stdlib.h>
#include <string.h>

#include "ipc/wire.h"

__extension__ typedef unsigned __int128 wide;

enum leat_status
leat_waiting_init(struct leat_waiting waiting[LEAT_RANKS], uint32_t waiting_max)
{
    LEAT_ASSERT(waiting_max >= 1 && waiting_max <= UINT32_MAX / 4);
    const uint32_t room = 2 * waiting_max; /* so that sliding back is needed once in waiting_max pushes */
    bool all = true;

    for (uint32_t rank = 0; rank < LEAT_RANKS; rank++) {
        waiting[rank] = (struct leat_waiting){
            .queries = calloc(room, sizeof(waiting->queries[0])),
            .entries = calloc(room, sizeof(waiting->entries[0])),
            .room = room,
        };
        all = all && waiting[rank].queries != NULL && waiting[rank].entries != NULL;
    }
    if (!all) {
        leat_waiting_fini(waiting);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u waiting queries", waiting_max);
    }
    return LEAT_OK;
}

void
leat_waiting_fini(struct leat_waiting waiting[LEAT_RANKS])
{
    for (uint32_t rank = 0; rank < LEAT_RANKS; rank++) {
        free(waiting[rank].queries);
        free(waiting[rank].entries);
        waiting[rank] = (struct leat_waiting){0};
    }
}

struct leat_sched_query
leat_waiting_query(const struct leat_query_entry *entry, uint64_t now_ns)
{
    return (struct leat_sched_query){
        .arrival_ns = now_ns,
        .deadline_ns = entry->deadline_ns,
        .items = entry->items_less_1 + 1u,
        .accuracy_floor_ppm = entry->accuracy_floor_ppm,
        .cost_cap_nano = leat_wire_cost_nano(entry->cost_cap),
        .application = entry->application,
        .length = entry->length,
        .offline = entry->offline,
    };
}

void
leat_waiting_push(struct leat_waiting *waiting, const struct leat_query_entry *entry, const struct leat_sched_query *query)
{
    if (waiting->tail == waiting->room) {
        const uint32_t live = leat_waiting_count(waiting);
        LEAT_ASSERT(waiting->head > 0);
        memmove(waiting->queries, waiting->queries + waiting->head, live * sizeof(waiting->queries[0]));
        memmove(waiting->entries, waiting->entries + waiting->head, live * sizeof(waiting->entries[0]));
        waiting->head = 0;
        waiting->tail = live;
    }
    waiting->queries[waiting->tail] = *query;
    waiting->entries[waiting->tail] = *entry;
    waiting->tail++;
    waiting->items += query->items;
    waiting->positions += (uint64_t)query->items * query->length;
    waiting->barred += query->barred_classes != 0;
}

/* A query leaves. */
static void
discount(struct leat_waiting *waiting, const struct leat_sched_query *query)
{
    waiting->items -= query->items;
    waiting->positions -= (uint64_t)query->items * query->length;
    waiting->barred -= query->barred_classes != 0;
}

void
leat_waiting_remove(struct leat_waiting *waiting, uint64_t marks[LEAT_WAITING_MARKS])
{
    const uint32_t live = leat_waiting_count(waiting);
    uint32_t words = live < 64 * LEAT_WAITING_MARKS ? (live + 63) / 64 : LEAT_WAITING_MARKS;

    while (words > 0 && marks[words - 1] == 0) {
        words--;
    }
    if (words == 0) {
        return;
    }
    const uint32_t end = 64 * words - (uint32_t)__builtin_clzll(marks[words - 1]);
    uint32_t kept = waiting->head + end;
    LEAT_ASSERT(end <= live);
    /* Close the gaps from the front: routers mostly take the oldest, and then nothing moves. */
    for (uint32_t q = end; q-- > 0;) {
        const uint32_t at = waiting->head + q;
        const uint64_t mark = UINT64_C(1) << q % 64;
        if ((marks[q / 64] & mark) != 0) {
            marks[q / 64] &= ~mark;
            discount(waiting, &waiting->queries[at]);
        } else if (--kept != at) {
            waiting->queries[kept] = waiting->queries[at];
            waiting->entries[kept] = waiting->entries[at];
        }
    }
    waiting->head = kept;
    if (waiting->head == waiting->tail) {
        waiting->head = waiting->tail = 0;
    }
}

void
leat_waiting_filter(struct leat_waiting *waiting, leat_waiting_keep_fn keep, void *context)
{
    uint32_t kept = waiting->head;

    for (uint32_t i = waiting->head; i < waiting->tail; i++) {
        if (!keep(context, &waiting->entries[i], &waiting->queries[i])) {
            discount(waiting, &waiting->queries[i]);
            continue;
        }
        if (kept != i) {
            waiting->queries[kept] = waiting->queries[i];
            waiting->entries[kept] = waiting->entries[i];
        }
        kept++;
    }
    waiting->tail = kept;
    if (waiting->head == waiting->tail) {
        waiting->head = waiting->tail = 0;
    }
}

uint64_t
leat_application_cost_nano(const struct leat_application *app, uint32_t variant, uint32_t worker_class, uint32_t items)
{
    if (app->price_micro[worker_class] == 0) {
        return UINT64_MAX;
    }
    const uint64_t time_ns = leat_profile_mean(&app->instances.measured[variant][worker_class], items);
    const wide micro_hours = (wide)time_ns * app->price_micro[worker_class], nano_in_one = 3600000000; /* 3.6e12 ns in one, / 10^3 */
    return (uint64_t)((micro_hours + nano_in_one - 1) / nano_in_one);
}

uint32_t
leat_application_least_nano(const struct leat_application *app, uint32_t variant, uint32_t items)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t class = 0; class < LEAT_WORKER_CLASSES_MAX; class++) {
        const uint64_t nano = leat_application_cost_nano(app, variant, class, items);
        least = nano < least ? nano : least;
    }
    return least == UINT64_MAX ? 0 : least >= UINT32_MAX ? UINT32_MAX : (uint32_t)least;
}

uint64_t
leat_application_least_ns(const struct leat_application *app, uint32_t variant, uint32_t items, uint32_t class_count,
                          uint32_t barred)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t class = 0; class < class_count; class++) {
        const uint64_t time_ns =
            (barred >> class & 1) == 0 ? leat_profile_predict(&app->profiles[variant][class], items) : UINT64_MAX;
        least = time_ns < least ? time_ns : least;
    }
    return least;
}
