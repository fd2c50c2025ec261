/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/policy_fit.h - in what a policy is not for what there is.
 *
 * Role       Whoever brings a policy as a file knows why; it is not replaced, but what it was made for and what is seen may
 *            part, and that is said. Times of a file may be means or high percentiles: both, and what is between, fit.
 * Threads    Any; nothing is kept.
 */
#ifndef LEAT_RUNTIME_POLICY_FIT_H
#define LEAT_RUNTIME_POLICY_FIT_H

#include "runtime/policy_make.h"

enum leat_policy_misfit {
    LEAT_POLICY_OTHER_OBJECTIVE = 1,
    LEAT_POLICY_OTHER_WORKERS = 2,    /* neither for all nor for the order's */
    LEAT_POLICY_OTHER_LOAD = 4,       /* beyond its highest */
    LEAT_POLICY_OTHER_DISPERSION = 8, /* by more than a half */
    LEAT_POLICY_OTHER_TIMES = 16,     /* by more than a tenth, of a batch that is or was in time, a power of two of items */
};

/*
 * A sum of those; a text of them, "" for none, in text[bytes]. The order's variants are found by name; its workers are the
 * application's share of all_workers; its unit is the policy's. high_ns[variant_count][items_max] are times that few batches exceed, where the order's
 * are means.
 */
uint32_t leat_policy_misfits(const struct leat_policy *policy, const struct leat_policy_order *order, uint32_t all_workers,
                             const uint64_t *high_ns, char *text, size_t bytes);

/* How long to wait after so many failures in a row, 1 and more: a second, then twice as long each time, up to a minute. */
uint64_t leat_policy_retry_ns(uint32_t failures);

#endif /* LEAT_RUNTIME_POLICY_FIT_H */
