/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/probing.h"

#define OTHERS        16u /* condemned queries for each that a class of workers gets against its profile */
#define REST          16u /* and for so many times its execution the next one waits, four times as many after each that was right */
#define DOUBLINGS_MAX 8u

uint32_t
leat_probing_find(struct leat_probing *probing, const struct leat_route_input *route, uint32_t items, uint64_t deadline_ns,
                  bool lost)
{
    uint32_t found = LEAT_PROBING_NONE;

    for (uint16_t class = 0; class < route->class_count; class ++) {
        struct leat_probing *of = &probing[class];
        const uint64_t ns = route->predict(route->profiles, route->application, route->variant, class, items);
        if (route->now_ns + ns <= deadline_ns) {
            continue;
        }
        if (of->condemned < OTHERS) {
            of->condemned++;
            continue;
        }
        if (found != LEAT_PROBING_NONE || of->under_way || deadline_ns <= route->now_ns ||
            route->now_ns < (lost ? of->next_ns : of->next_spare_ns)) {
            continue;
        }
        for (uint32_t w = 0; w < route->worker_count && found == LEAT_PROBING_NONE; w++) {
            const struct leat_sched_worker *worker = &route->workers[w];
            found = worker->worker_class == class && worker->outstanding == 0 ? w : LEAT_PROBING_NONE;
        }
    }
    return route->pending_count < LEAT_SCHED_PENDING_MAX ? found : LEAT_PROBING_NONE;
}

void
leat_probing_begin(struct leat_probing *probing)
{
    probing->under_way = true;
    probing->condemned = 0;
}

void
leat_probing_end(struct leat_probing *probing, bool probe, uint64_t now_ns, uint64_t predicted_ns, uint64_t exec_ns)
{
    if (probe) {
        const bool confirmed = exec_ns >= predicted_ns - predicted_ns / 4;
        probing->doublings = confirmed ? (uint8_t)(probing->doublings + (probing->doublings < DOUBLINGS_MAX ? 2 : 0)) : 0;
        probing->under_way = false;
        probing->next_ns = now_ns + REST * exec_ns;
    }
    probing->next_spare_ns = now_ns + (REST * exec_ns << probing->doublings);
}
