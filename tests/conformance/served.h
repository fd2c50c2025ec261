/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/conformance/served.h - a case through the backends' own interface, in each manner that its form allows.
 *
 * Rule     One item at a time, as models are run whose inputs need not have a batch: all inputs that the recorded ones are of are
 *          live, or as few as possible are constants, because operators take a shape, axes or the like as constants only. And as a
 *          batch where outputs and inputs share their first dimension: those are live, in two segments.
 *          A backend that refuses what the signature allows is a failure.
 */
#ifndef LEAT_TESTS_CONFORMANCE_SERVED_H
#define LEAT_TESTS_CONFORMANCE_SERVED_H

#include "tests/conformance/case_data.h"

enum served_manner {
    SERVED_LIVE,      /* one item at a time, all inputs live */
    SERVED_CONSTANTS, /* the same with some constant */
    SERVED_NEITHER,   /* of the two */
    SERVED_BATCH,     /* beside one of the above */
    SERVED_MANNERS,
};

/* Why a case is SERVED_NEITHER. */
enum served_reason {
    SERVED_NO_REASON,
    SERVED_NO_INPUT,
    SERVED_EMPTY,
    SERVED_REASONS,
};
const char *served_text(enum served_reason reason);

struct served {
    enum served_manner one; /* SERVED_BATCH: no */
    enum served_reason reason;
    bool batch, apart; /* it has a batch; and ran as one */
};

/* False on a wrong result. `constants` are those without which the graph has no shapes. */
bool served_run(const struct leat_graph *imported, const struct case_tensors *inputs, const struct case_tensors *outputs,
                uint32_t constants, const char *name, struct served *ret);

#endif /* LEAT_TESTS_CONFORMANCE_SERVED_H */
