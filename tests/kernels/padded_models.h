/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/kernels/padded_models.h - small models that do one thing to the positions of a sequence each.
 *
 * Shapes     Inputs are f32 x[N][M][4], i64 mask[N][M] and i64 ids[N][M], of 0 to 15; the output is y. Opset 11 or 13.
 */
#ifndef LEAT_TEST_PADDED_MODELS_H
#define LEAT_TEST_PADDED_MODELS_H

#include "tests/kernels/model_builder.h"

struct padded_model {
    const char *name;
    void (*build)(struct builder *b); /* after inputs and output */
    const char *node; /* that is named because padding could change answers; NULL: it could not */
    uint32_t lengths[3]; /* the last one may be 0: none */
};

extern const struct padded_model padded_models[];
extern const size_t padded_model_count;

#endif /* LEAT_TEST_PADDED_MODELS_H */
