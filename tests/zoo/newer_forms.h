/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/zoo/newer_forms.h - small models of operators whose form changed after opset 17, and the same in words of opset 17.
 *
 * Shapes   Inputs are f32 with a symbolic batch: x[N][4][6][7] and, of some, u[N][2][6][7] or g[N][3][5][2]; so are outputs.
 */
#ifndef LEAT_TESTS_NEWER_FORMS_H
#define LEAT_TESTS_NEWER_FORMS_H

#include "tests/kernels/model_builder.h"

struct newer_form {
    const char *name;
    int64_t since;       /* the opset that brought the form */
    const char *refusal; /* of it in a file of the opset before */
    void (*newer)(struct builder *b);
    void (*older)(struct builder *b);
};

extern const struct newer_form newer_forms[];
extern const size_t newer_form_count;

/* Starts `b`, to be finished by builder_fini(): the newer form at `opset`, or the older one at 17. */
void newer_form_build(const struct newer_form *form, int64_t opset, struct builder *b);
void newer_form_build_older(const struct newer_form *form, struct builder *b);

#endif /* LEAT_TESTS_NEWER_FORMS_H */
