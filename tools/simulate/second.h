/* SPDX-License-Identifier: Apache-2.0 */
/* tools/simulate/second.h - what happened in one second of a run. */
#ifndef LEAT_TOOLS_SIMULATE_SECOND_H
#define LEAT_TOOLS_SIMULATE_SECOND_H

#include <stdint.h>

struct simulate_second {
    uint32_t arrived, violated; /* by when they arrived */
    double used;                /* cores held on average, or what the second cost: the run says which */
};

#endif /* LEAT_TOOLS_SIMULATE_SECOND_H */
