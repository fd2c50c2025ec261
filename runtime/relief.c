/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/relief.h"

#include "base/status.h"

static void
note_look(struct leat_relief_worker *worker)
{
    worker->lately_ns = worker->busy_ns - worker->seen_ns;
    worker->seen_ns = worker->busy_ns;
    worker->rest -= worker->rest > 0;
    worker->since += worker->since < UINT32_MAX;
    worker->retry = worker->disturbed ? worker->retry : 0;
}

static bool
may_move(const struct leat_relief_worker *worker)
{
    return worker->cores > 0 && worker->rest == 0 && !worker->fixed;
}

/* Who could have the cores of the disturbed one: of those with as many that are not disturbed, the one that ran least. */
static uint32_t
find_other(const struct leat_relief_worker *workers, uint32_t count, uint32_t disturbed)
{
    const struct leat_relief_worker *own = &workers[disturbed];
    uint32_t other = UINT32_MAX;

    for (uint32_t w = 0; w < count; w++) {
        const struct leat_relief_worker *worker = &workers[w];
        if (may_move(worker) && !worker->disturbed && worker->pool == own->pool &&
            worker->cores == own->cores && worker->lately_ns <= own->lately_ns / 2 &&
            (other == UINT32_MAX || worker->lately_ns < workers[other].lately_ns)) {
            other = w;
        }
    }
    return other;
}

static void
rest(struct leat_relief_worker *worker)
{
    const bool again = worker->last > 0 && worker->since <= 2 * worker->last;

    worker->last = !again ? LEAT_RELIEF_REST : worker->last < LEAT_RELIEF_REST_MAX ? 2 * worker->last : LEAT_RELIEF_REST_MAX;
    worker->rest = worker->last;
    worker->since = 0;
}

bool
leat_relief_look(struct leat_relief_worker *workers, uint32_t count, const uint32_t *free_cores, struct leat_relief_move *ret_move)
{
    struct leat_relief_move move = {.worker = UINT32_MAX};

    for (uint32_t w = 0; w < count; w++) {
        note_look(&workers[w]);
    }
    for (uint32_t w = 0; w < count; w++) {
        const struct leat_relief_worker *worker = &workers[w];
        const bool most = move.worker == UINT32_MAX || worker->lately_ns > workers[move.worker].lately_ns;
        if (worker->disturbed && may_move(worker) && most) {
            const uint32_t other = free_cores[worker->pool] >= worker->cores
                                       ? UINT32_MAX
                                       : find_other(workers, count, w);
            if (other != UINT32_MAX || free_cores[worker->pool] >= worker->cores) {
                move = (struct leat_relief_move){.worker = w, .other = other};
            }
        }
    }
    if (move.worker == UINT32_MAX) {
        return false;
    }
    *ret_move = move;
    return true;
}

void
leat_relief_note(struct leat_relief_worker *workers, const struct leat_relief_move *move, bool moved)
{
    struct leat_relief_worker *worker = &workers[move->worker];

    if (!moved) {
        const uint32_t longer = worker->retry > 0 ? 2 * worker->retry : LEAT_RELIEF_RETRY;
        worker->retry = longer < LEAT_RELIEF_REST ? longer : LEAT_RELIEF_REST;
        worker->rest = worker->retry;
        return;
    }
    worker->retry = 0;
    rest(worker);
    if (move->other != UINT32_MAX) {
        rest(&workers[move->other]);
    }
}
