/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/calls.h"

#define FEWEST 16u /* items of the first stage, for which it is worth counting */

void
leat_calls_count(struct leat_calls *calls, uint64_t first, uint64_t own)
{
    const bool goes_on = calls->seen && first >= calls->first_seen && own >= calls->own_seen;

    if (goes_on && first - calls->first_seen < FEWEST) {
        return;
    }
    if (goes_on) {
        const double came = (double)(first - calls->first_seen), each = (double)(own - calls->own_seen) / came;
        calls->each += (each - calls->each) * came / (came + calls->known);
        calls->known = calls->known + came < LEAT_CALLS_ITEMS ? calls->known + came : LEAT_CALLS_ITEMS;
        calls->each = calls->each < LEAT_CALLS_MIN ? LEAT_CALLS_MIN : calls->each > LEAT_CALLS_MAX ? LEAT_CALLS_MAX : calls->each;
    }
    calls->first_seen = first;
    calls->own_seen = own;
    calls->seen = true;
}
