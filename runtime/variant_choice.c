/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/variant_choice.h"

#include <string.h>

#include "base/align.h"

/* Does the first do its items at a rate that is higher by what counts as faster? */
static bool
is_faster(uint32_t items, uint64_t time_ns, uint32_t other_items, uint64_t other_ns)
{
    return (double)items * (double)other_ns * 100 >=
           (double)other_items * (double)time_ns * (100 + LEAT_CHOICE_GAIN_PERCENT);
}

bool
leat_batch_choice_fits(struct leat_batch_choice *choice, uint32_t items, uint64_t bytes)
{
    if (items == 1 || bytes <= choice->bytes_max) {
        return true;
    }
    choice->bound = LEAT_BATCH_MEMORY;
    return false;
}

bool
leat_batch_choice_take(struct leat_batch_choice *choice, uint32_t items, const struct leat_batch_times *times)
{
    bool pays = items == 1, would_pay = false;

    LEAT_ASSERT(choice->class_count >= 1 && choice->class_count <= LEAT_SCHED_CLASSES_MAX);
    LEAT_ASSERT(items == (choice->items == 0 ? 1 : 2 * choice->items));
    for (uint32_t c = 0; c < choice->class_count; c++) {
        const bool faster = items == 1 || is_faster(items, times[c].p50_ns, choice->best[c].items, choice->best[c].p50_ns);
        const bool in_time = items == 1 || times[c].p95_ns <= choice->latency_max_ns;
        const bool wanted = faster || items <= LEAT_CHOICE_FREE_ITEMS;
        would_pay = would_pay || wanted;
        pays = pays || (wanted && in_time);
        if (faster && in_time) {
            choice->best[c].items = items;
            choice->best[c].p50_ns = times[c].p50_ns;
        }
    }
    if (!pays) {
        choice->bound = would_pay ? LEAT_BATCH_LATENCY : LEAT_BATCH_GAIN;
        return false;
    }
    choice->items = items;
    choice->bound = LEAT_BATCH_LIMIT;
    return 2 * items <= LEAT_ITEMS_MAX;
}

static const char *const bound_texts[LEAT_BATCH_BOUND_COUNT] = {"given", "gain", "latency", "memory", "limit"};

const char *
leat_batch_bound_text(enum leat_batch_bound bound)
{
    LEAT_ASSERT(bound < LEAT_BATCH_BOUND_COUNT);
    return bound_texts[bound];
}

bool
leat_batch_bound_find(const char *text, enum leat_batch_bound *ret_bound)
{
    for (uint32_t b = 0; b < LEAT_BATCH_BOUND_COUNT; b++) {
        if (strcmp(bound_texts[b], text) == 0) {
            *ret_bound = b;
            return true;
        }
    }
    return false;
}

enum leat_variant_verdict
leat_variant_judge(const struct leat_variant_speed *first, uint32_t first_ppm, const struct leat_variant_speed *other,
                   uint32_t other_ppm, uint32_t class_count, uint32_t max_loss_ppm)
{
    if (first_ppm > other_ppm && first_ppm - other_ppm > max_loss_ppm) {
        return LEAT_VARIANT_INACCURATE;
    }
    for (uint32_t c = 0; c < class_count; c++) {
        if (is_faster(1, other[c].one_ns, 1, first[c].one_ns) ||
            is_faster(other[c].items, other[c].full_ns, first[c].items, first[c].full_ns)) {
            return LEAT_VARIANT_KEPT;
        }
    }
    return LEAT_VARIANT_SLOW;
}
