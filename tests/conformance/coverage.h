/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/conformance/coverage.h - which of the outside suite's cases run, counted by operator, and the page about it.
 *
 * Rule     The share that counts is that of the node suite's cases which concern inference: all but those of
 *          training operators (domain ai.onnx.preview.training), of losses (NegativeLogLikelihoodLoss and
 *          SoftmaxCrossEntropyLoss, and their expansions into other operators), of training mode (Dropout,
 *          BatchNormalization) and of random generators. Strings, sequences, optional values and subgraphs count.
 */
#ifndef LEAT_TESTS_CONFORMANCE_COVERAGE_H
#define LEAT_TESTS_CONFORMANCE_COVERAGE_H

#include <onnx.pb-c.h>
#include <stdbool.h>
#include <stdio.h>

#include "tests/conformance/served.h"

/* Why a case cannot run; COVERAGE_PASSED when it does, and gives the right result. */
enum coverage {
    COVERAGE_PASSED,
    COVERAGE_OPERATOR,
    COVERAGE_OPSET,
    COVERAGE_TYPE,
    COVERAGE_TRAINING,
    COVERAGE_FORM,
    COVERAGE_CONTENTS,
    COVERAGE_RECORDED,
    COVERAGE_FAILED,
    COVERAGE_OUTCOMES,
};
const char *coverage_text(enum coverage outcome);

/* `imported` and `served` count where it passed. */
void coverage_add(const Onnx__ModelProto *model, const char *suite, const char *name, enum coverage outcome,
                  const struct leat_graph *imported, const struct served *served);

/* A case that runs with doubles for its floats, too. */
void coverage_add_doubles(const struct leat_graph *graph);
unsigned coverage_doubles(void);

/* The operator takes that type first, and few cases with numbers of it have run; and one more has. */
bool coverage_wants(const struct leat_node *node, uint32_t dtype);
void coverage_add_numbers(const struct leat_graph *graph, uint32_t dtype);

unsigned coverage_types(void); /* of all operators, that cases have */

unsigned coverage_count(enum coverage outcome);
unsigned coverage_served(enum served_manner manner); /* of those that passed */
void coverage_share(unsigned *ret_covered, unsigned *ret_cases);

/* False when no case that passes has a node of that operator. */
bool coverage_reached(const char *op);

/* docs/operators.md. `elsewhere` are operators that have tests of our own only; it ends with NULL. */
void coverage_write(FILE *page, const char *const *elsewhere);

#endif /* LEAT_TESTS_CONFORMANCE_COVERAGE_H */
