/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/policy_fit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RETRY_NS     UINT64_C(1000000000)
#define RETRY_MAX_NS UINT64_C(60000000000)

struct finding {
    char *text;
    size_t room;
    uint32_t misfits;
};

static void __attribute__((format(printf, 3, 4)))
find(struct finding *finding, enum leat_policy_misfit misfit, const char *format, ...)
{
    va_list arguments;

    const size_t before = strlen(finding->text);
    const int link = snprintf(finding->text + before, finding->room - before, "%s", finding->misfits != 0 ? "; " : "");
    const size_t used = before + (size_t)link;
    if (used < finding->room) {
        va_start(arguments, format);
        (void)vsnprintf(finding->text + used, finding->room - used, format, arguments);
        va_end(arguments);
    }
    finding->misfits |= misfit;
}

/* Is it no more than so many percent below the least, nor above the most? */
static bool
lies_between(uint64_t value, uint64_t least, uint64_t most, uint32_t percent)
{
    return (double)value * (100 + percent) >= (double)least * 100 && (double)value * 100 <= (double)most * (100 + percent);
}

/* The first batch, a power of two of items, whose time is another one. */
static void
compare_times(const struct leat_policy *policy, const struct leat_policy_order *order, const uint64_t *high_ns, uint32_t p,
              struct finding *finding)
{
    const char *name = leat_policy_variant(policy, p)->name;
    const uint64_t *made_ns = leat_policy_latency_ns(policy, p);
    uint32_t v = 0;

    while (v < order->variant_count && strcmp(order->names[v], name) != 0) {
        v++;
    }
    if (v == order->variant_count) {
        return; /* the application has no such variant, which the selector knows */
    }
    for (uint32_t items = 1; items <= policy->latency_items && items <= order->items_max; items *= 2) {
        const size_t cell = (size_t)v * order->items_max + items - 1;
        const uint64_t made = made_ns[items - 1], mean = order->latency_ns[cell];
        const uint64_t high = high_ns[cell] > mean ? high_ns[cell] : mean;
        if (mean > 0 && (made <= policy->objective_ns || mean <= policy->objective_ns) && !lies_between(made, mean, high, 10)) {
            find(finding, LEAT_POLICY_OTHER_TIMES, "%u of '%s' take %.3f ms, not %.3f ms", items << order->unit_shift, name,
                 (double)mean / 1e6, (double)made / 1e6);
            return;
        }
    }
}

uint32_t
leat_policy_misfits(const struct leat_policy *policy, const struct leat_policy_order *order, uint32_t all_workers,
                    const uint64_t *high_ns, char *text, size_t bytes)
{
    const uint32_t highest_qps = leat_policy_rung(policy, policy->rung_count - 1)->rate_qps;
    struct finding finding = {.text = text, .room = bytes};

    text[0] = '\0';
    if (policy->objective_ns != order->objective_ns) {
        find(&finding, LEAT_POLICY_OTHER_OBJECTIVE, "it is for an objective of %.3f ms, not %.3f ms",
             (double)policy->objective_ns / 1e6, (double)order->objective_ns / 1e6);
    }
    if (policy->worker_count != order->worker_count && policy->worker_count != all_workers) {
        find(&finding, LEAT_POLICY_OTHER_WORKERS, "it is for %u workers, not %u", policy->worker_count, all_workers);
    }
    if ((uint64_t)order->rate_qps * policy->worker_count > (uint64_t)highest_qps * order->worker_count) {
        find(&finding, LEAT_POLICY_OTHER_LOAD, "%llu items/s come, and it ends at %llu",
             (unsigned long long)order->rate_qps << order->unit_shift,
             ((unsigned long long)highest_qps * order->worker_count / policy->worker_count) << order->unit_shift);
    }
    if (policy->dispersion_permille > 0 &&
        !lies_between(policy->dispersion_permille, order->dispersion_permille, order->dispersion_permille, 50)) {
        find(&finding, LEAT_POLICY_OTHER_DISPERSION, "arrivals have a dispersion of %.2f, not %.2f",
             order->dispersion_permille / 1e3, policy->dispersion_permille / 1e3);
    }
    for (uint32_t p = 0; p < policy->variant_count && (finding.misfits & LEAT_POLICY_OTHER_TIMES) == 0; p++) {
        compare_times(policy, order, high_ns, p, &finding);
    }
    return finding.misfits;
}

uint64_t
leat_policy_retry_ns(uint32_t failures)
{
    const uint64_t wait_ns = RETRY_NS << (failures < 8 ? failures - 1 : 7);
    return wait_ns < RETRY_MAX_NS ? wait_ns : RETRY_MAX_NS;
}
