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
    choice->full = choice->full || (items > 1 && bytes > choice->bytes_max);
    return !choice->full;
}

/* What bounds it at the sizes before this one, which does not pay; LEAT_BATCH_LIMIT: it does. */
static enum leat_batch_bound
bound_at(const struct leat_batch_choice *choice, uint32_t size, uint32_t best[LEAT_SCHED_CLASSES_MAX])
{
    bool pays = false, would_pay = false;

    for (uint32_t c = 0; c < choice->class_count; c++) {
        const uint64_t time_ns = choice->least_ns[size][c];
        const bool faster = is_faster(1u << size, time_ns, 1u << best[c], choice->least_ns[best[c]][c]);
        const bool in_time = time_ns <= choice->latency_max_ns;
        const bool wanted = faster || 1u << size <= LEAT_CHOICE_FREE_ITEMS;
        would_pay = would_pay || wanted;
        pays = pays || (wanted && in_time);
        if (faster && in_time) {
            best[c] = size;
        }
    }
    return pays ? LEAT_BATCH_LIMIT : would_pay ? LEAT_BATCH_LATENCY : LEAT_BATCH_GAIN;
}

bool
leat_batch_choice_decide(struct leat_batch_choice *choice)
{
    uint32_t best[LEAT_SCHED_CLASSES_MAX] = {0}; /* by class: the last size that was faster there, and in time */
    const uint32_t last = choice->size_count - 1;
    const uint32_t limit = choice->items_given > 0   ? choice->items_given
                           : choice->items_limit > 0 ? choice->items_limit
                                                     : LEAT_ITEMS_MAX;

    LEAT_ASSERT(choice->class_count >= 1 && choice->class_count <= LEAT_SCHED_CLASSES_MAX);
    LEAT_ASSERT(choice->size_count >= 1 && choice->size_count <= LEAT_CHOICE_SIZES);
    if (choice->items_given > 0) {
        choice->items = choice->items_given;
        choice->bound = LEAT_BATCH_GIVEN;
    } else {
        choice->items = choice->items > 0 ? choice->items : 1;
        choice->bound = choice->full ? LEAT_BATCH_MEMORY : LEAT_BATCH_LIMIT;
        for (uint32_t size = 1; size <= last && 1u << size <= 2 * choice->items; size++) {
            const enum leat_batch_bound bound = bound_at(choice, size, best);
            if (bound == LEAT_BATCH_LIMIT) {
                choice->items = 1u << size > choice->items ? 1u << size : choice->items;
            } else if (1u << size > choice->items) {
                choice->bound = bound;
            }
        }
    }
    return !choice->full && choice->items >= 1u << last && limit >> last >= 2;
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
leat_variant_judge(const struct leat_batch_choice *first, uint32_t first_ppm, const struct leat_batch_choice *other,
                   uint32_t other_ppm, uint32_t max_loss_ppm)
{
    const uint32_t sizes = first->size_count < other->size_count ? first->size_count : other->size_count;

    if (first_ppm > other_ppm && first_ppm - other_ppm > max_loss_ppm) {
        return LEAT_VARIANT_INACCURATE;
    }
    for (uint32_t c = 0; c < first->class_count; c++) {
        uint64_t least_ns = UINT64_MAX; /* of the first, at this size or above */
        for (uint32_t size = sizes; size-- > 0;) {
            least_ns = first->least_ns[size][c] < least_ns ? first->least_ns[size][c] : least_ns;
            if (1u << size <= other->items && is_faster(1, other->least_ns[size][c], 1, least_ns)) {
                return LEAT_VARIANT_KEPT;
            }
        }
    }
    return LEAT_VARIANT_SLOW;
}
