/* SPDX-License-Identifier: Apache-2.0 */
/* Each worker that is about to be free takes the query whose start can be put off the least. */
#include "sched/route.h"

#define AHEAD_NS UINT64_C(10000000) /* how long before it is free a worker takes its next batch */
#define SLACK_MAX (INT64_MAX / 4)

/* How long a query can wait from now on and still be in time on a class; negative: not at all. */
struct edf {
    int64_t slack_ns[LEAT_SCHED_CLASSES_MAX][LEAT_SCHED_PENDING_MAX];
};

static int64_t
bounded_ns(uint64_t time_ns)
{
    return time_ns < (uint64_t)SLACK_MAX ? (int64_t)time_ns : SLACK_MAX;
}

static void
find_slack(const struct leat_route_input *input, uint16_t class, int64_t *slack_ns)
{
    for (uint32_t i = 0; i < input->pending_count; i++) {
        const struct leat_sched_query *query = &input->pending[i];
        const int64_t left_ns = query->deadline_ns >= input->now_ns ? bounded_ns(query->deadline_ns - input->now_ns)
                                                                    : -bounded_ns(input->now_ns - query->deadline_ns);
        const uint64_t predicted_ns =
            input->predict(input->profiles, input->application, input->variant, class, query->items);
        slack_ns[i] = query->deadline_ns == LEAT_NO_DEADLINE ? INT64_MAX : left_ns - bounded_ns(predicted_ns);
    }
}

/* The least slack that is not below wait_ns, else the least of all; the older of equal ones. -1: all are taken. */
static int
most_urgent(const int64_t *slack_ns, uint32_t count, const uint64_t *taken, int64_t wait_ns)
{
    int best = -1;
    for (uint32_t i = 0; i < count; i++) {
        if ((taken[i / 64] >> (i % 64) & 1) == 0) {
            const bool late = slack_ns[i] < wait_ns, best_late = best >= 0 && slack_ns[best] < wait_ns;
            if (best < 0 || late < best_late || (late == best_late && slack_ns[i] < slack_ns[best])) {
                best = (int)i;
            }
        }
    }
    return best;
}

/* The worker that is free soonest, the lower number of equal ones, if it may take a batch already; -1: none. */
static int
next_worker(const struct leat_route_input *input, const uint64_t *used)
{
    int best = -1;
    for (uint32_t w = 0; w < input->worker_count; w++) {
        const struct leat_sched_worker *worker = &input->workers[w];
        const uint64_t wait_ns = leat_route_wait_ns(input, worker);
        if ((used[w / 64] >> (w % 64) & 1) == 0 && leat_route_has_room(worker) && wait_ns <= AHEAD_NS &&
            (best < 0 || wait_ns < leat_route_wait_ns(input, &input->workers[best]))) {
            best = (int)w;
        }
    }
    return best;
}

static uint32_t
edf_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    struct edf *edf = state;
    uint64_t taken[LEAT_SCHED_PENDING_MAX / 64] = {0}, used[LEAT_SCHED_WORKERS_MAX / 64] = {0};
    uint32_t known = 0, count = 0; /* known: bit by class */

    LEAT_ASSERT(input->pending_count <= LEAT_SCHED_PENDING_MAX && input->worker_count <= LEAT_SCHED_WORKERS_MAX);
    while (count < input->pending_count && count < pairs_max) {
        const int worker = next_worker(input, used);
        if (worker < 0) {
            break;
        }
        const uint16_t class = input->workers[worker].worker_class;
        LEAT_ASSERT(class < LEAT_SCHED_CLASSES_MAX);
        if ((known >> class & 1) == 0) {
            known |= UINT32_C(1) << class;
            find_slack(input, class, edf->slack_ns[class]);
        }
        const int query = most_urgent(edf->slack_ns[class], input->pending_count, taken,
                                      (int64_t)leat_route_wait_ns(input, &input->workers[worker]));
        LEAT_ASSERT(query >= 0);
        taken[query / 64] |= UINT64_C(1) << (query % 64);
        used[worker / 64] |= UINT64_C(1) << (worker % 64);
        pairs[count++] = (struct leat_route_pair){.query = (uint32_t)query, .worker = (uint32_t)worker};
    }
    return count;
}

const struct leat_router leat_router_edf = {
    .name = "edf",
    .state_bytes = sizeof(struct edf),
    .queues = true,
    .per_query = true,
    .reorders = LEAT_SCHED_PENDING_MAX,
    .route = edf_route,
};
