/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/threshold.h"

#include <stddef.h>

#include "base/align.h"
#include "base/status.h"

static const uint32_t standard[] = {96, 128, 192, 256, 384, 512, 640, 768, 1000};

void
leat_threshold_search_init(struct leat_threshold_search *search, const uint32_t *items, uint32_t count,
                           uint32_t items_max)
{
    if (items == NULL) {
        items = standard;
        count = 0;
        while (count < LEAT_COUNT_OF(standard) && standard[count] < items_max) {
            count++;
        }
    }
    *search = (struct leat_threshold_search){.items = items, .count = count};
}

uint32_t
leat_threshold_search_next(const struct leat_threshold_search *search)
{
    return search->at < search->count ? search->items[search->at] : 0;
}

void
leat_threshold_search_report(struct leat_threshold_search *search, double qps)
{
    LEAT_ASSERT(search->at < search->count && qps >= 0);
    if (qps < search->best_qps) {
        search->count = search->at; /* past the top */
        return;
    }
    if (qps > search->best_qps) {
        search->best_qps = qps;
        search->best_items = search->items[search->at];
    }
    search->at++;
}
