/* SPDX-License-Identifier: Apache-2.0 */
/* A queue for each worker: every query at once to the one that serves it in time and ends it first. */
#include "sched/route.h"

static uint64_t
add_saturating(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* Of a class, predictions for one query. */
struct times {
    uint64_t predicted_ns;
    uint64_t mean_ns;
};

/* Where the query ends first by mean time, of workers with room: those that have it in time if any do. -1: no room. */
static int
choose_worker(const struct leat_route_input *input, const struct leat_sched_query *query)
{
    struct times times[LEAT_SCHED_CLASSES_MAX];
    uint32_t asked = 0; /* bit by class */
    uint64_t best_end_ns = 0;
    bool best_in_time = false;
    int best = -1;

    for (uint32_t w = 0; w < input->worker_count; w++) {
        const struct leat_sched_worker *worker = &input->workers[w];
        const uint16_t class = worker->worker_class;
        if (!leat_route_has_room(worker)) {
            continue;
        }
        LEAT_ASSERT(class < LEAT_SCHED_CLASSES_MAX);
        if ((asked >> class & 1) == 0) {
            asked |= UINT32_C(1) << class;
            times[class].predicted_ns =
                input->predict(input->profiles, input->application, input->variant, class, query->items);
            times[class].mean_ns = input->mean(input->profiles, input->application, input->variant, class, query->items);
        }
        const uint64_t start_ns = add_saturating(input->now_ns, leat_route_wait_ns(input, worker));
        const uint64_t end_ns = add_saturating(start_ns, times[class].mean_ns);
        const bool in_time = add_saturating(start_ns, times[class].predicted_ns) <= query->deadline_ns;
        if (best < 0 || in_time > best_in_time || (in_time == best_in_time && end_ns < best_end_ns)) {
            best = (int)w;
            best_end_ns = end_ns;
            best_in_time = in_time;
        }
    }
    return best;
}

static uint32_t
clockwork_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    uint32_t count = 0;

    (void)state;
    for (uint32_t i = 0; i < input->pending_count && count < pairs_max; i++) {
        const int worker = choose_worker(input, &input->pending[i]);
        if (worker < 0) {
            break;
        }
        for (uint32_t p = 0; p < count; p++) {
            if (pairs[p].worker == (uint32_t)worker) {
                return count; /* with the query before it, that worker's queue ends later: the next call knows when */
            }
        }
        pairs[count++] = (struct leat_route_pair){.query = i, .worker = (uint32_t)worker};
    }
    return count;
}

const struct leat_router leat_router_clockwork = {
    .name = "clockwork", .queues = true, .per_query = true, .route = clockwork_route};
