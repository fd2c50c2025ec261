/* SPDX-License-Identifier: Apache-2.0 */
/* RNN, GRU and LSTM: geometry, and the shapes that follow from it. */
#include "kernels/recurrent.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/align.h"

#include "kernels/infer/infer.h"

static enum leat_status
read_direction(const struct leat_node *node, struct leat_recurrent *ret)
{
    const struct leat_attribute *attribute = leat_node_attribute(node, "direction");
    const char *text = attribute != NULL && attribute->s[0] != '\0' ? attribute->s : "forward";

    if (strcmp(text, "forward") != 0 && strcmp(text, "reverse") != 0 &&
        strcmp(text, "bidirectional") != 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "direction '%.32s' is not a known one", text);
    }
    ret->directions = strcmp(text, "bidirectional") == 0 ? 2 : 1;
    ret->reverse = strcmp(text, "reverse") == 0;
    return LEAT_OK;
}

/* A parameter that a function takes, and what it is where the node does not say; NaN: ONNX has no default for it. */
struct parameter {
    bool taken;
    float otherwise;
};

static const struct {
    const char *name;
    struct parameter alpha, beta;
} functions[] = {
    [LEAT_RECURRENT_SIGMOID] = {"Sigmoid", {0}, {0}},
    [LEAT_RECURRENT_TANH] = {"Tanh", {0}, {0}},
    [LEAT_RECURRENT_RELU] = {"Relu", {0}, {0}},
    [LEAT_RECURRENT_HARD_SIGMOID] = {"HardSigmoid", {true, 0.2f}, {true, 0.5f}},
    [LEAT_RECURRENT_SOFTSIGN] = {"Softsign", {0}, {0}},
    [LEAT_RECURRENT_AFFINE] = {"Affine", {true, 1}, {true, 0}},
    [LEAT_RECURRENT_ELU] = {"Elu", {true, 1}, {0}},
    [LEAT_RECURRENT_LEAKY_RELU] = {"LeakyRelu", {true, 0.01f}, {0}},
    [LEAT_RECURRENT_SCALED_TANH] = {"ScaledTanh", {true, NAN}, {true, NAN}},
    [LEAT_RECURRENT_SOFTPLUS] = {"Softplus", {0}, {0}},
    [LEAT_RECURRENT_THRESHOLDED_RELU] = {"ThresholdedRelu", {true, 1}, {0}},
};

/* A list of parameters, and how many of them functions took: in order, those that take one. */
struct parameters {
    const char *name;
    const struct leat_attribute *list;
    uint32_t taken;
};

static enum leat_status
take(const struct leat_node *node, struct parameters *from, const struct parameter *parameter, const char *function, float *ret)
{
    const bool given = from->list != NULL && from->taken < from->list->count;

    if (!parameter->taken) {
        return LEAT_OK;
    }
    const float value = given ? from->list->floats[from->taken] : parameter->otherwise;
    if (!isfinite(value)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "%s has no finite number for the function %s", from->name, function);
    }
    from->taken++;
    *ret = value;
    return LEAT_OK;
}

/* Where functions take some of a list, it is for them alone: of more it would not be clear which are whose. */
static enum leat_status
check_taken(const struct leat_node *node, const struct parameters *from)
{
    if (from->list != NULL && from->taken > 0 && from->list->count > from->taken) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "%s has %u numbers for the %u functions that take one", from->name,
                              from->list->count, from->taken);
    }
    return LEAT_OK;
}

static enum leat_status
find_function(const struct leat_node *node, const char *name, enum leat_recurrent_function *ret)
{
    for (uint32_t i = 0; i < LEAT_COUNT_OF(functions); i++) {
        if (strcasecmp(name, functions[i].name) == 0) {
            *ret = (enum leat_recurrent_function)i;
            return LEAT_OK;
        }
    }
    return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "activation '%.32s' is not supported", name);
}

/* f, g and h: an RNN has f alone, a GRU f and g. */
static enum leat_status
read_functions(const struct leat_node *node, struct leat_recurrent *ret)
{
    const struct leat_attribute *attribute = leat_node_attribute(node, "activations");
    const uint32_t count = ret->gates == 4 ? 3 : ret->gates == 3 ? 2 : 1;
    struct parameters alpha = {"activation_alpha", leat_node_attribute(node, "activation_alpha"), 0};
    struct parameters beta = {"activation_beta", leat_node_attribute(node, "activation_beta"), 0};
    enum leat_status status = LEAT_OK;

    if (attribute != NULL && attribute->count != ret->directions * count) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "%u activations, not %u", attribute->count, ret->directions * count);
    }
    for (uint32_t i = 0; i < ret->directions * count && status == LEAT_OK; i++) {
        const uint32_t direction = i / count, which = i % count;
        enum leat_recurrent_function function = ret->gates > 1 && which == 0 ? LEAT_RECURRENT_SIGMOID : LEAT_RECURRENT_TANH;
        if (attribute != NULL) {
            status = find_function(node, attribute->strings[i], &function);
        }
        ret->functions[direction][which] = function;
        if (status == LEAT_OK) {
            status = take(node, &alpha, &functions[function].alpha, functions[function].name, &ret->alpha[direction][which]);
        }
        if (status == LEAT_OK) {
            status = take(node, &beta, &functions[function].beta, functions[function].name, &ret->beta[direction][which]);
        }
    }
    if (status == LEAT_OK) {
        status = check_taken(node, &alpha);
    }
    return status == LEAT_OK ? check_taken(node, &beta) : status;
}

enum leat_status
leat_recurrent_of(const struct leat_graph *graph, const struct leat_node *node,
                  struct leat_recurrent *ret)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *r = leat_node_input(graph, node, 2);
    const int64_t layout = leat_node_int(node, "layout", 0);

    *ret = (struct leat_recurrent){
        .gates = node->op->kind == LEAT_OP_LSTM  ? 4
                 : node->op->kind == LEAT_OP_GRU ? 3
                                                 : 1,
        .batch_first = layout == 1,
    };
    if (x->rank != 3 || r->rank != 3 || layout < 0 || layout > 1) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "ranks %u and %u, layout %lld", x->rank,
                              r->rank, (long long)layout);
    }
    ret->steps = x->dims[ret->batch_first ? 1 : 0];
    ret->batch = x->dims[ret->batch_first ? 0 : 1];
    ret->input = x->dims[2];
    ret->hidden = r->dims[2];
    if (ret->hidden < 1 || leat_node_int(node, "hidden_size", ret->hidden) != ret->hidden) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "hidden_size differs from the weights");
    }
    const enum leat_status status = read_direction(node, ret);
    return status == LEAT_OK ? read_functions(node, ret) : status;
}

/* Input i, when it is there, is of type f32 and has these dims (unknown ones fit). */
static enum leat_status
check_dims(const struct leat_graph *graph, const struct leat_node *node, uint32_t i, uint32_t rank,
           int64_t a, int64_t b, int64_t c)
{
    const struct leat_value *value = leat_node_input(graph, node, i);
    const int64_t dims[3] = {a, b, c};

    const enum leat_status status = leat_check_input(graph, node, i, LEAT_TYPE(F32), rank, rank);
    for (uint32_t d = 0; status == LEAT_OK && value != NULL && d < rank; d++) {
        if (value->dims[d] != dims[d] && value->dims[d] >= 0 && dims[d] >= 0) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE,
                                  "input %u '%.64s' has %lld elements along axis %u, not %lld", i,
                                  value->name, (long long)value->dims[d], d, (long long)dims[d]);
        }
    }
    return status;
}

/* Y as [steps][directions][batch][hidden] and a state as [directions][batch][hidden], or the batch first. */
static void
set_outputs(const struct leat_recurrent *g, struct leat_shape *outputs)
{
    const int64_t dirs = (int64_t)g->directions;
    struct leat_shape *y = &outputs[0], *state = &outputs[1];

    *y = (struct leat_shape){.dtype = LEAT_DTYPE_F32, .rank = 4};
    *state = (struct leat_shape){.dtype = LEAT_DTYPE_F32, .rank = 3};
    y->dims[0] = g->batch_first ? g->batch : g->steps;
    y->dims[1] = g->batch_first ? g->steps : dirs;
    y->dims[2] = g->batch_first ? dirs : g->batch;
    y->dims[3] = state->dims[2] = g->hidden;
    state->dims[0] = g->batch_first ? g->batch : dirs;
    state->dims[1] = g->batch_first ? dirs : g->batch;
    outputs[2] = *state;
}

/* X, W, R, B, sequence_lens, initial_h, and of an LSTM initial_c and P */
LEAT_INFER_FUNCTION(recurrent)
{
    struct leat_recurrent g;

    enum leat_status status = leat_check_input(graph, node, 2, LEAT_TYPE(F32), 3, 3);
    if (status == LEAT_OK) {
        status = leat_recurrent_of(graph, node, &g);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const int64_t dirs = (int64_t)g.directions, rows = (int64_t)g.gates * g.hidden;
    status = check_dims(graph, node, 1, 3, dirs, rows, g.input);
    if (status == LEAT_OK) {
        status = check_dims(graph, node, 2, 3, dirs, rows, g.hidden);
    }
    if (status == LEAT_OK) {
        status = check_dims(graph, node, 3, 2, dirs, 2 * rows, 0);
    }
    if (status == LEAT_OK) {
        status = leat_check_vector(graph, node, 4, LEAT_TYPE(I32), g.batch);
    }
    for (uint32_t i = 5; i < 7 && status == LEAT_OK; i++) {
        status = check_dims(graph, node, i, 3, g.batch_first ? g.batch : dirs,
                            g.batch_first ? dirs : g.batch, g.hidden);
    }
    if (status == LEAT_OK) {
        status = check_dims(graph, node, 7, 2, dirs, 3 * g.hidden, 0);
    }
    if (status == LEAT_OK) {
        *mixes_items = *mixes_items || g.steps == LEAT_DIM_BATCH || g.input == LEAT_DIM_BATCH;
        set_outputs(&g, outputs);
    }
    return status;
}
