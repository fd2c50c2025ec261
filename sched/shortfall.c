/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/shortfall.h"

enum { PATIENCE_MAX = 640, QUERIES_MIN = 20 /* of a spell: else it goes on */ };

static void
begin_spell(struct leat_shortfall *shortfall, uint64_t queries, uint64_t late)
{
    shortfall->looks = 0;
    shortfall->queries_seen = queries;
    shortfall->late_seen = late;
}

static void
step_up(struct leat_shortfall *shortfall, double share)
{
    const double by = share < 0.125 ? 1.125 : share > 1 ? 2 : 1 + share;

    shortfall->factor = shortfall->factor * by < LEAT_SHORTFALL_MAX ? shortfall->factor * by : LEAT_SHORTFALL_MAX;
    if (shortfall->stepped_down && shortfall->patience < PATIENCE_MAX) {
        shortfall->patience *= 2;
    }
    shortfall->stepped_down = false;
    shortfall->calm = 0;
}

static void
stay_calm(struct leat_shortfall *shortfall)
{
    if (shortfall->factor <= 1 || ++shortfall->calm < shortfall->patience) {
        return;
    }
    shortfall->calm = 0;
    shortfall->stepped_down = true;
    shortfall->factor = shortfall->factor * 0.875 > 1 ? shortfall->factor * 0.875 : 1;
}

void
leat_shortfall_look(struct leat_shortfall *shortfall, uint64_t queries, uint64_t late, bool settled, bool more)
{
    if (!settled || queries < shortfall->queries_seen || late < shortfall->late_seen) { /* less: another is in its place */
        begin_spell(shortfall, queries, late);
        return;
    }
    const uint64_t came = queries - shortfall->queries_seen, were_late = late - shortfall->late_seen;
    if (++shortfall->looks < LEAT_SHORTFALL_LOOKS || (came < QUERIES_MIN && were_late > 0)) {
        return;
    }
    if (were_late * LEAT_SHORTFALL_LATE > came && more) {
        step_up(shortfall, (double)were_late / (double)came);
    } else if (were_late * LEAT_SHORTFALL_LATE <= came) {
        stay_calm(shortfall);
    }
    begin_spell(shortfall, queries, late);
}
