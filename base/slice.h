/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/slice.h - how soon a thread runs that wakes on a CPU where others do.
 *
 * Role     Linux lets whoever runs finish its slice, 3 ms as a rule, before a thread that wakes, whatever the weights are,
 *          unless that one asks for a shorter slice (EEVDF, Linux 6.12 and later; what is older ignores the wish). Threads that
 *          answer queries ask for one. It takes no privilege and no time from others: shares stay what nice says.
 * Threads  Any; of the calling thread alone.
 */
#ifndef LEAT_BASE_SLICE_H
#define LEAT_BASE_SLICE_H

#include <stdint.h>

#define LEAT_SLICE_SHORT_NS UINT64_C(100000) /* the shortest that Linux has */

/* Keeps policy and nice. Nothing changes for a thread of another policy than SCHED_OTHER and SCHED_BATCH. */
void leat_slice_shorten(void);

/* SCHED_OTHER, whatever it was, that nice or more, and the short slice: for work behind what serves, which is not to hold it up. */
void leat_slice_stand_back(int nice);

#endif /* LEAT_BASE_SLICE_H */
