/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/retyped.h"

#include <math.h>
#include <string.h>

#include "kernels/reference/element.h"
#include "tests/leat_test.h"

#define WHOLE_MAX 0x1p53 /* doubles hold every whole number up to it, */
#define SHORT_MAX 256    /* and every type of floats up to this */

/* ---- Graphs --------------------------------------------------------------------------------------------------- */

/* A constant of `holder`, of that type; false where an element is none of it. */
static bool
convert(struct leat_graph *holder, const struct leat_value *from, uint32_t dtype, uint32_t *ret_index)
{
    EXPECT(leat_graph_add_constant(holder, from->name, dtype, from->rank, from->dims, dtype == from->dtype ? from->data : NULL,
                                   ret_index) == LEAT_OK);
    /* The cast drops const: nobody else has this payload yet. */
    void *to = (void *)(uintptr_t)holder->values[*ret_index].data;
    bool same = true;
    for (size_t i = 0; i < leat_value_elements(from) && dtype != from->dtype; i++) {
        const double x = leat_element_real(from->dtype, from->data, i);
        leat_element_set_real(dtype, to, i, x);
        same = same && (leat_element_real(dtype, to, i) == x || dtype == LEAT_DTYPE_F64);
    }
    return same;
}

static void
replace(uint32_t *values, uint32_t count, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < count; i++) {
        values[i] = values[i] == from ? to : values[i];
    }
}

/* Whoever reads the constant, reads it in that type. */
static bool
convert_constant(struct leat_graph *graph, uint32_t index, uint32_t dtype)
{
    const struct leat_value from = graph->values[index];
    uint32_t other;

    if (!convert(graph, &from, dtype, &other)) {
        return false;
    }
    replace(graph->outputs, graph->output_count, index, other);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        struct leat_node *node = &graph->nodes[n];
        replace(node->inputs, node->input_count, index, other);
        for (uint32_t a = 0; a < node->attribute_count; a++) {
            if (node->attributes[a].kind == LEAT_ATTRIBUTE_TENSOR) {
                replace(&node->attributes[a].value, 1, index, other);
            }
        }
    }
    return true;
}

/* With inputs of bit i in `mask`, and all constants of type `from`, of type `dtype`. LEAT_DTYPE_NONE: no constants. */
static bool
retype(const struct leat_graph *imported, uint32_t mask, uint32_t from, uint32_t dtype, struct leat_graph **ret_graph)
{
    struct leat_graph *graph = NULL;
    bool fits = true;

    EXPECT(leat_graph_copy(imported, &graph) == LEAT_OK);
    for (uint32_t v = 0; v < imported->value_count && fits; v++) {
        fits = graph->values[v].dtype != from || graph->values[v].data == NULL || convert_constant(graph, v, dtype);
    }
    for (uint32_t i = 0; i < graph->input_count; i++) {
        struct leat_value *value = &graph->values[graph->inputs[i]];
        value->dtype = (mask >> i & 1u) != 0 ? dtype : value->dtype;
    }
    if (!fits || leat_graph_infer(graph) != LEAT_OK) {
        leat_graph_destroy(graph);
        return false;
    }
    *ret_graph = graph;
    return true;
}

/* Bit i: input i is of that type. 0 where there are graphs inside. */
static uint32_t
inputs_of(const struct leat_graph *imported, uint32_t dtype)
{
    uint32_t mask = 0;

    for (uint32_t i = 0; i < imported->input_count; i++) {
        mask |= imported->values[imported->inputs[i]].dtype == dtype ? 1u << i : 0;
    }
    for (uint32_t n = 0; n < imported->node_count; n++) {
        mask = leat_node_has_graphs(&imported->nodes[n]) ? 0 : mask;
    }
    return mask;
}

/* ---- Tensors -------------------------------------------------------------------------------------------------- */

static void
tensors_init(struct case_tensors *tensors)
{
    *tensors = (struct case_tensors){0};
    EXPECT(leat_graph_create("tensors", LEAT_OPSET_MAX, &tensors->holder) == LEAT_OK);
}

void
retyped_fini(struct retyped *retyped)
{
    leat_graph_destroy(retyped->inputs.holder);
    leat_graph_destroy(retyped->outputs.holder);
    leat_graph_destroy(retyped->graph);
}

/* Those that are doubles in the graph. */
static void
widen(const struct case_tensors *tensors, const struct leat_graph *graph, const uint32_t *values, struct case_tensors *ret)
{
    tensors_init(ret);
    for (uint32_t i = 0; i < tensors->count; i++) {
        const struct leat_value *from = case_tensor(tensors, i);
        const bool wide = from->dtype == LEAT_DTYPE_F32 && graph->values[values[i]].dtype == LEAT_DTYPE_F64;
        EXPECT(convert(ret->holder, from, wide ? LEAT_DTYPE_F64 : from->dtype, &ret->index[ret->count++]));
    }
}

bool
retyped_doubles(const struct leat_graph *imported, const struct case_tensors *inputs, const struct case_tensors *outputs,
                struct retyped *ret)
{
    const uint32_t floats = inputs_of(imported, LEAT_DTYPE_F32);

    *ret = (struct retyped){.graph = NULL};
    if (floats == 0 || !retype(imported, floats, LEAT_DTYPE_F32, LEAT_DTYPE_F64, &ret->graph)) {
        return false;
    }
    widen(inputs, ret->graph, ret->graph->inputs, &ret->inputs);
    widen(outputs, ret->graph, ret->graph->outputs, &ret->outputs);
    return true;
}

static bool
is_signed(uint32_t dtype)
{
    return leat_dtype_is_float(dtype) || dtype == LEAT_DTYPE_I8 || dtype == LEAT_DTYPE_I16 || dtype == LEAT_DTYPE_I32 ||
           dtype == LEAT_DTYPE_I64;
}

/* 1 to 3, where both types have a sign either way; 0 and 1 where one is of truths. */
static double
number(uint32_t dtype, uint32_t other, uint64_t *random)
{
    const uint64_t r = leat_test_random(random);
    const bool truths = dtype == LEAT_DTYPE_BOOL || other == LEAT_DTYPE_BOOL;
    return truths ? (double)(r % 2) : (double)(r % 3 + 1) * (is_signed(dtype) && is_signed(other) && (r >> 32 & 1) != 0 ? -1 : 1);
}

/* Numbers of `dtype` and of `other` in inputs of `mask`: the same when the two change places. */
static void
draw(const struct case_tensors *inputs, uint32_t mask, uint32_t other, uint32_t dtype, struct case_tensors *ret)
{
    uint64_t random = leat_test_seed + (other + dtype);

    tensors_init(ret);
    for (uint32_t i = 0; i < inputs->count; i++) {
        const struct leat_value *from = case_tensor(inputs, i);
        const bool drawn = (mask >> i & 1u) != 0;
        EXPECT(leat_graph_add_constant(ret->holder, from->name, drawn ? dtype : from->dtype, from->rank, from->dims,
                                       drawn ? NULL : from->data, &ret->index[ret->count]) == LEAT_OK);
        void *to = (void *)(uintptr_t)case_tensor(ret, ret->count++)->data; /* as above */
        for (size_t k = 0; drawn && k < leat_value_elements(from); k++) {
            leat_element_set_real(dtype, to, k, number(dtype, other, &random));
        }
    }
}

/*
 * Element i of that type: an integer is what a double has before its point, and one below 0 wraps where there are none. False where it is
 * none.
 */
static bool
narrow(double x, uint32_t dtype, void *to, size_t i)
{
    const bool is_float = leat_dtype_is_float(dtype);
    const double most = is_float ? SHORT_MAX : ldexp(1, (int)(8 * leat_dtype_bytes(dtype)) - is_signed(dtype)) - 1;

    if (!(fabs(x) <= fmin(most, WHOLE_MAX)) || (is_float && x != nearbyint(x)) ||
        (dtype == LEAT_DTYPE_BOOL && x != 0 && x != 1)) {
        return false;
    }
    if (is_float) {
        leat_element_set_real(dtype, to, i, x);
    } else {
        leat_element_set_int(dtype, to, i, (int64_t)x);
    }
    return true;
}

/* What was found in doubles, as the graph's outputs would have it. */
static bool
narrow_all(const struct case_tensors *found, const struct leat_graph *graph, struct case_tensors *ret)
{
    bool known = true;

    tensors_init(ret);
    for (uint32_t o = 0; o < found->count; o++) {
        const struct leat_value *from = case_tensor(found, o);
        const uint32_t dtype = graph->values[graph->outputs[o]].dtype;
        EXPECT(leat_graph_add_constant(ret->holder, from->name, dtype, from->rank, from->dims,
                                       dtype == from->dtype ? from->data : NULL, &ret->index[ret->count]) == LEAT_OK);
        void *to = (void *)(uintptr_t)case_tensor(ret, ret->count++)->data; /* as above */
        for (size_t i = 0; i < leat_value_elements(from) && dtype != from->dtype; i++) {
            known = known && from->dtype == LEAT_DTYPE_F64 && narrow(((const double *)from->data)[i], dtype, to, i);
        }
    }
    return known;
}

/* The exact graph's answer, in doubles. */
static bool
find_answer(const struct leat_graph *exact, const struct case_tensors *inputs,
            enum leat_status (*use)(struct leat_graph *graph), struct case_tensors *ret_found)
{
    struct leat_graph *plain = NULL, *concrete = NULL;
    uint32_t constants;

    if (case_use(exact, inputs, 0, use, &plain, &constants) != LEAT_OK) {
        return false;
    }
    EXPECT(leat_graph_specialise(plain, 1, &concrete) == LEAT_OK);
    const enum leat_status status = case_run(concrete, inputs, constants, ret_found);
    leat_graph_destroy(concrete);
    leat_graph_destroy(plain);
    if (status != LEAT_OK) {
        leat_graph_destroy(ret_found->holder);
    }
    return status == LEAT_OK;
}

bool
retyped_numbers(const struct leat_graph *imported, const struct case_tensors *inputs, uint32_t dtype, enum retyped_inputs which,
                enum leat_status (*use)(struct leat_graph *graph), struct retyped *ret)
{
    const uint32_t first = imported->input_count > 0 ? imported->values[imported->inputs[0]].dtype : LEAT_DTYPE_NONE;
    const uint32_t from = which == RETYPED_FLOATS ? LEAT_DTYPE_F32 : first;
    const uint32_t all = inputs_of(imported, from), mask = which == RETYPED_FIRST ? all & 1u : all;
    const uint32_t constants = which == RETYPED_FIRST ? LEAT_DTYPE_NONE : from;
    struct case_tensors exact_inputs = {0}, found = {0};
    struct leat_graph *exact = NULL;
    uint32_t wide = LEAT_DTYPE_F64;
    bool known = false;

    *ret = (struct retyped){.graph = NULL};
    if (mask == 0) {
        return false;
    }
    if (!retype(imported, mask, constants, wide, &exact)) {
        wide = from;
        EXPECT(retype(imported, mask, constants, wide, &exact));
    }
    if (retype(imported, mask, constants, dtype, &ret->graph)) {
        draw(inputs, mask, dtype, wide, &exact_inputs);
        draw(inputs, mask, wide, dtype, &ret->inputs);
        known = find_answer(exact, &exact_inputs, use, &found);
        if (known) {
            known = narrow_all(&found, ret->graph, &ret->outputs);
            leat_graph_destroy(found.holder);
        }
        leat_graph_destroy(exact_inputs.holder);
    }
    leat_graph_destroy(exact);
    if (!known) {
        retyped_fini(ret);
    }
    return known;
}
