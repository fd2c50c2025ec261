/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/simulate/rates.h - a rate of arrivals that changes with time, from a file; it begins anew when it ends.
 */
#ifndef LEAT_TOOLS_RATES_H
#define LEAT_TOOLS_RATES_H

#include <stdint.h>

#include "base/status.h"

struct rates_step {
    double end_s; /* where the next one begins; above that of the one before */
    double qps;   /* until then; >= 0 */
};

struct rates {
    struct rates_step *steps;
    uint32_t count;
};

/*
 * A CSV file with the columns start_s, rising from 0, and qps, or a file of nothing but numbers, one a line, each the rate
 * of a second. The first kind's last step is as long as the one before it. With a cycle_s above 0 the rates begin anew
 * after that time: what lies behind it is cut off, and the last step reaches up to it. Errors name file and line; a file
 * without any rate above 0 is one.
 */
#define RATES_LAST_S  1e9
#define RATES_QPS_MAX 1e9
LEAT_MUST_CHECK enum leat_status rates_read(const char *path, double cycle_s, struct rates *ret_rates);
void rates_free(struct rates *rates); /* accepts zeros */

double rates_mean_qps(const struct rates *rates);
void rates_scale(struct rates *rates, double factor);

#endif /* LEAT_TOOLS_RATES_H */
