/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     In what a policy from a file is not for what is seen: each matter by itself, from a bound on, and said. Failures
 *          make the next attempt wait twice as long, up to a minute.
 * Method   A policy whose times are 95th percentiles, and means below them; every setting up to the bound and beyond.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/policy_fit.h"
#include "tests/leat_test.h"

enum { VARIANTS = 2, ITEMS = 4 };

static const char *const names[VARIANTS] = {"good", "quick"}, *const swapped[VARIANTS] = {"quick", "good"};
static const uint32_t accuracy_ppm[VARIANTS] = {900000, 500000};
static uint64_t mean_ns[VARIANTS * ITEMS], high_ns[VARIANTS * ITEMS];
static struct leat_policy_order order;
static struct leat_policy *policy;
static char text[256];
static uint32_t all_workers = 4;

static uint32_t
misfits(void)
{
    const uint32_t found = leat_policy_misfits(policy, &order, all_workers, high_ns, text, sizeof(text));
    EXPECT((text[0] == '\0') == (found == 0));
    return found;
}

static void
test_matters(void)
{
    EXPECT(misfits() == 0);
    const uint32_t highest_qps = leat_policy_rung(policy, policy->rung_count - 1)->rate_qps;
    order.rate_qps = highest_qps;
    EXPECT(misfits() == 0);
    order.rate_qps++;
    EXPECT(misfits() == LEAT_POLICY_OTHER_LOAD && strstr(text, "items/s come") != NULL);
    order.worker_count = 2; /* a share, which carries half as much */
    order.rate_qps = highest_qps / 2;
    EXPECT(misfits() == 0);
    order.rate_qps++;
    EXPECT(misfits() == LEAT_POLICY_OTHER_LOAD);
    order.worker_count = all_workers = 8; /* which carry twice as much */
    EXPECT(misfits() == LEAT_POLICY_OTHER_WORKERS && strcmp(text, "it is for 4 workers, not 8") == 0);
    order.worker_count = all_workers = 4;
    order.rate_qps = 0;
    order.objective_ns = 90000000;
    EXPECT(misfits() == LEAT_POLICY_OTHER_OBJECTIVE);
    order.objective_ns = 100000000;
    order.dispersion_permille = 1500;
    EXPECT(misfits() == 0);
    order.dispersion_permille = 1501;
    EXPECT(misfits() == LEAT_POLICY_OTHER_DISPERSION);
    order.objective_ns = 90000000;
    EXPECT(misfits() == (LEAT_POLICY_OTHER_DISPERSION | LEAT_POLICY_OTHER_OBJECTIVE) && strstr(text, "; ") != NULL);
    EXPECT(leat_policy_misfits(policy, &order, all_workers, high_ns, text, 8) != 0 && strlen(text) == 7); /* as much as there is room for */
    order.objective_ns = 100000000;
    order.dispersion_permille = 1000;
}

static void
test_times(void)
{
    const uint64_t mean = mean_ns[1], high = high_ns[1]; /* of good, 2 items */

    mean_ns[1] = high_ns[1] = high * 109 / 100;
    EXPECT(misfits() == 0);
    mean_ns[1] = high_ns[1] = high * 111 / 100;
    EXPECT(misfits() == LEAT_POLICY_OTHER_TIMES && strstr(text, "2 of 'good' take") != NULL);
    mean_ns[1] = mean / 2;
    high_ns[1] = high * 92 / 100;
    EXPECT(misfits() == 0);
    high_ns[1] = high * 90 / 100;
    EXPECT(misfits() == LEAT_POLICY_OTHER_TIMES);
    mean_ns[1] = 0; /* no such batch any more */
    EXPECT(misfits() == 0);
    mean_ns[1] = mean;
    high_ns[1] = high;
    order.names = swapped; /* by name, not by place */
    EXPECT(misfits() == LEAT_POLICY_OTHER_TIMES);
    order.names = names;
    EXPECT(misfits() == 0);
}

static void
test_retries(void)
{
    EXPECT(leat_policy_retry_ns(1) == 1000000000 && leat_policy_retry_ns(2) == 2000000000);
    EXPECT(leat_policy_retry_ns(6) == UINT64_C(32000000000) && leat_policy_retry_ns(7) == UINT64_C(60000000000));
    EXPECT(leat_policy_retry_ns(8) == UINT64_C(60000000000) && leat_policy_retry_ns(UINT32_MAX) == UINT64_C(60000000000));
}

int
main(void)
{
    leat_test_init();
    order = (struct leat_policy_order){.variant_count = VARIANTS,
                                       .names = names,
                                       .accuracy_ppm = accuracy_ppm,
                                       .latency_ns = high_ns,
                                       .items_max = ITEMS,
                                       .objective_ns = 100000000,
                                       .worker_count = 4,
                                       .dispersion_permille = 1000,
                                       .threads = 1};
    for (uint32_t c = 0; c < VARIANTS * ITEMS; c++) {
        mean_ns[c] = (c < ITEMS ? 10000000u : 1000000u) * (c % ITEMS + 1);
        high_ns[c] = mean_ns[c] * 2;
    }
    EXPECT(leat_policy_make(&order, NULL, &policy) == LEAT_OK);
    order.latency_ns = mean_ns;
    test_matters();
    test_times();
    test_retries();
    free(policy);
    return 0;
}
