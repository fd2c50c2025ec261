/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/conformance/retyped.h - cases with another type in the place of theirs: of most types that operators take, the suite
 * has no case.
 *
 * Method   With doubles, what is recorded is right as it is. With another type T inputs are small whole numbers, and right is what the
 *          reference function makes of them in doubles, or where the operator takes none, in the type that is recorded: in T it is the
 *          same, of integers what is before the point. Nothing is known of what is too large for T, nor of fractions in short floats.
 */
#ifndef LEAT_TESTS_CONFORMANCE_RETYPED_H
#define LEAT_TESTS_CONFORMANCE_RETYPED_H

#include "tests/conformance/case_data.h"

struct retyped {
    struct leat_graph *graph;
    struct case_tensors inputs, outputs;
};

/* False where a case has no floats, has graphs inside, or an operator does not take the type. */
bool retyped_doubles(const struct leat_graph *imported, const struct case_tensors *inputs, const struct case_tensors *outputs,
                     struct retyped *ret);
/* Which inputs get the type; the last two with all constants of the type that these had. */
enum retyped_inputs {
    RETYPED_FIRST,
    RETYPED_LIKE_FIRST, /* those of the first's type */
    RETYPED_FLOATS,
    RETYPED_INPUTS,
};
/* Likewise, or where what is right is not known. */
bool retyped_numbers(const struct leat_graph *imported, const struct case_tensors *inputs, uint32_t dtype, enum retyped_inputs which,
                     enum leat_status (*use)(struct leat_graph *graph), struct retyped *ret);
void retyped_fini(struct retyped *retyped);

#endif /* LEAT_TESTS_CONFORMANCE_RETYPED_H */
