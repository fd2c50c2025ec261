/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of a file's own: a node that calls one becomes the nodes of its body, in the graph that the node is in. While they are
 * added, the importer has the body's names in place of the graph's: a body sees its inputs and what it computes, nothing around.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/onnx/importer.h"

/* What a node or a function says it is; the standard domain has two names. */
struct identity {
    const char *domain, *name, *overload;
};

static const char *
domain_text(const char *domain)
{
    return strcmp(leat_onnx_text(domain), "ai.onnx") == 0 ? "" : leat_onnx_text(domain);
}

static struct identity
identity_of(const Onnx__FunctionProto *function)
{
    return (struct identity){domain_text(function->domain), leat_onnx_text(function->name), leat_onnx_text(function->overload)};
}

static int
compare_identities(const struct identity *a, const struct identity *b)
{
    const int domains = strcmp(a->domain, b->domain), names = strcmp(a->name, b->name);
    return domains != 0 ? domains : names != 0 ? names : strcmp(a->overload, b->overload);
}

static int
compare_functions(const void *left, const void *right)
{
    const struct identity a = identity_of(((const struct function *)left)->proto);
    const struct identity b = identity_of(((const struct function *)right)->proto);
    return compare_identities(&a, &b);
}

/* As deep as leat_onnx_scan() lets messages be. */
static uint64_t
weigh(Onnx__NodeProto *const *nodes, size_t count)
{
    uint64_t weight = 0;

    for (size_t n = 0; n < count; n++) {
        weight += UINT64_C(1) + nodes[n]->n_input + nodes[n]->n_output + nodes[n]->n_attribute;
        for (size_t a = 0; a < nodes[n]->n_attribute; a++) {
            const Onnx__GraphProto *graph = nodes[n]->attribute[a]->g;
            if (graph != NULL) {
                weight += weigh(graph->node, graph->n_node) + graph->n_initializer + graph->n_sparse_initializer +
                          graph->n_input + graph->n_output;
            }
        }
    }
    return weight;
}

enum leat_status
leat_onnx_functions_init(struct functions *functions, const Onnx__ModelProto *model)
{
    functions->sorted = calloc(model->n_functions + 1, sizeof(*functions->sorted));
    if (functions->sorted == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the %zu functions of a model", model->n_functions);
    }
    functions->count = model->n_functions;
    for (size_t f = 0; f < functions->count; f++) {
        const Onnx__FunctionProto *proto = model->functions[f];
        functions->sorted[f] = (struct function){
            .proto = proto, .weight = UINT64_C(1) + proto->n_input + proto->n_output + weigh(proto->node, proto->n_node)};
    }
    qsort(functions->sorted, functions->count, sizeof(*functions->sorted), compare_functions);
    for (size_t f = 1; f < functions->count; f++) {
        if (compare_functions(&functions->sorted[f - 1], &functions->sorted[f]) == 0) {
            const Onnx__FunctionProto *proto = functions->sorted[f].proto;
            return LEAT_FAIL(LEAT_ERR_PROTO, "function '%.64s' of domain '%.64s' is defined twice", leat_onnx_text(proto->name),
                             leat_onnx_text(proto->domain));
        }
    }
    return LEAT_OK;
}

void
leat_onnx_functions_fini(struct functions *functions)
{
    free(functions->sorted);
}

const struct function *
leat_onnx_find_function(const struct functions *functions, const Onnx__NodeProto *node)
{
    const struct identity wanted = {domain_text(node->domain), leat_onnx_text(node->op_type), leat_onnx_text(node->overload)};
    size_t low = 0, high = functions->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct identity here = identity_of(functions->sorted[middle].proto);
        const int order = compare_identities(&here, &wanted);
        if (order == 0) {
            return &functions->sorted[middle];
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return NULL;
}

const struct call *
leat_onnx_call_around(const struct importer *importer)
{
    while (importer != NULL && importer->call == NULL) {
        importer = importer->parent;
    }
    return importer != NULL ? importer->call : NULL;
}

/* ---- Attributes ------------------------------------------------------------------------------------------------- */

static const Onnx__AttributeProto *
find_given(const struct call *call, const char *name)
{
    for (uint32_t a = 0; a < call->attribute_count; a++) {
        if (strcmp(call->attributes[a].name, name) == 0) {
            return call->attributes[a].proto;
        }
    }
    return NULL;
}

/* What stands for the attribute, by whatever name: itself, or what the function that it is in was given. NULL: nothing. */
static enum leat_status
look_up(const struct importer *importer, const Onnx__AttributeProto *proto, const Onnx__AttributeProto **ret)
{
    const struct call *call = leat_onnx_call_around(importer);

    *ret = proto;
    if (leat_onnx_text(proto->ref_attr_name)[0] == '\0') {
        return LEAT_OK;
    }
    if (call == NULL) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "attribute '%.64s' refers to that of a function, but is in none",
                         leat_onnx_text(proto->name));
    }
    *ret = find_given(call, proto->ref_attr_name);
    if (*ret != NULL && proto->has_type && (*ret)->has_type && proto->type != (*ret)->type) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "attribute '%.64s' refers to '%.64s', which is given in another type",
                         leat_onnx_text(proto->name), proto->ref_attr_name);
    }
    return LEAT_OK;
}

enum leat_status
leat_onnx_dereference(const struct importer *importer, const Onnx__AttributeProto *proto, Onnx__AttributeProto *room,
                      const Onnx__AttributeProto **ret)
{
    const Onnx__AttributeProto *value = NULL;
    const enum leat_status status = look_up(importer, proto, &value);

    if (status == LEAT_OK && value != NULL && value != proto) {
        *room = *value;
        room->name = proto->name;
        value = room;
    }
    *ret = value;
    return status;
}

static bool
has_attribute(const Onnx__FunctionProto *function, const char *name)
{
    bool has = false;

    for (size_t a = 0; a < function->n_attribute && !has; a++) {
        has = strcmp(leat_onnx_text(function->attribute[a]), name) == 0;
    }
    for (size_t a = 0; a < function->n_attribute_proto && !has; a++) {
        has = strcmp(leat_onnx_text(function->attribute_proto[a]->name), name) == 0;
    }
    return has;
}

static enum leat_status
give(struct call *call, const Onnx__AttributeProto *proto, const Onnx__AttributeProto *value)
{
    if (value->g != NULL || value->n_graphs > 0) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "attribute '%.64s' of a function is a graph", leat_onnx_text(proto->name));
    }
    call->attributes[call->attribute_count++] = (struct given){.name = leat_onnx_text(proto->name), .proto = value};
    return LEAT_OK;
}

/* What the node gives, and the function's defaults for the rest. What is in neither the body's nodes do not have. */
static enum leat_status
give_attributes(const struct importer *importer, const Onnx__NodeProto *node, struct call *call)
{
    const Onnx__FunctionProto *function = call->function;
    enum leat_status status = LEAT_OK;

    if (node->n_attribute > LEAT_ONNX_GIVEN_MAX || function->n_attribute > LEAT_ONNX_GIVEN_MAX ||
        function->n_attribute_proto > LEAT_ONNX_GIVEN_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "a function with more than %u attributes", LEAT_ONNX_GIVEN_MAX);
    }
    call->attributes = calloc(node->n_attribute + function->n_attribute_proto + 1, sizeof(*call->attributes));
    if (call->attributes == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for attributes of a function");
    }
    for (size_t a = 0; a < node->n_attribute && status == LEAT_OK; a++) {
        const Onnx__AttributeProto *proto = node->attribute[a], *value;
        if (!has_attribute(function, leat_onnx_text(proto->name))) {
            return LEAT_FAIL(LEAT_ERR_PROTO, "the function has no attribute '%.64s'", leat_onnx_text(proto->name));
        }
        status = look_up(importer, proto, &value);
        if (status == LEAT_OK && value != NULL) {
            status = give(call, proto, value);
        }
    }
    for (size_t a = 0; a < function->n_attribute_proto && status == LEAT_OK; a++) {
        const Onnx__AttributeProto *proto = function->attribute_proto[a];
        if (find_given(call, leat_onnx_text(proto->name)) == NULL) {
            status = give(call, proto, proto);
        }
    }
    return status;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

/* Of a few bytes of a file, calls can make work without end. */
static enum leat_status
bound(struct importer *importer, const struct call *call, uint64_t weight)
{
    for (const struct call *around = call->around; around != NULL; around = around->around) {
        if (around->function == call->function) {
            return LEAT_FAIL(LEAT_ERR_PROTO, "the function calls itself");
        }
    }
    if (call->depth > LEAT_ONNX_CALLS_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "there are more than %u calls in each other", LEAT_ONNX_CALLS_MAX);
    }
    importer->functions->weight += weight;
    if (importer->functions->weight > LEAT_ONNX_WEIGHT_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT,
                         "nodes of functions have more than %u inputs, outputs, attributes and initialisers in all calls",
                         LEAT_ONNX_WEIGHT_MAX);
    }
    return LEAT_OK;
}

static int64_t
opset_of(const struct leat_graph *graph, const Onnx__FunctionProto *function)
{
    int64_t opset = graph->opset;

    for (size_t i = 0; i < function->n_opset_import; i++) {
        if (domain_text(function->opset_import[i]->domain)[0] == '\0') {
            opset = function->opset_import[i]->version;
        }
    }
    return opset;
}

/* The body as a graph: its inputs are told apart from what it computes by that. */
struct body {
    Onnx__GraphProto graph;
    Onnx__ValueInfoProto *infos, **inputs;
    uint32_t *given; /* values of the inputs, in the graph */
    struct entry **outputs; /* of the node that calls; NULL: nobody reads it */
    const char **copied;    /* by output what the node calls the input that it is; NULL: the body computes it */
};

static enum leat_status
make_body(const struct call *call, struct body *body)
{
    const Onnx__FunctionProto *function = call->function;

    if (function->n_input > LEAT_NODE_ARITY_MAX || function->n_output > LEAT_NODE_ARITY_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "a function with more than %u inputs or outputs", LEAT_NODE_ARITY_MAX);
    }
    body->infos = calloc(function->n_input + 1, sizeof(*body->infos));
    body->inputs = calloc(function->n_input + 1, sizeof(*body->inputs));
    body->given = calloc(function->n_input + 1, sizeof(*body->given));
    body->outputs = calloc(function->n_output + 1, sizeof(*body->outputs));
    body->copied = calloc(function->n_output + 1, sizeof(*body->copied));
    if (body->infos == NULL || body->inputs == NULL || body->given == NULL || body->outputs == NULL || body->copied == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for inputs and outputs of a function");
    }
    onnx__graph_proto__init(&body->graph);
    body->graph.n_node = function->n_node;
    body->graph.node = function->node;
    body->graph.n_input = function->n_input;
    body->graph.input = body->inputs;
    for (size_t i = 0; i < function->n_input; i++) {
        onnx__value_info_proto__init(&body->infos[i]);
        body->infos[i].name = function->input[i];
        body->inputs[i] = &body->infos[i];
    }
    return LEAT_OK;
}

static void
drop_body(struct body *body)
{
    free(body->infos);
    free(body->inputs);
    free(body->given);
    free(body->outputs);
    free(body->copied);
}

/* Of the node's own names. Inputs that it leaves out, or that are left out of what it is in, have no value. */
static enum leat_status
find_operands(struct importer *importer, const Onnx__NodeProto *node, const struct call *call, struct body *body)
{
    const Onnx__FunctionProto *function = call->function;
    enum leat_status status = LEAT_OK;

    if (node->n_input > function->n_input || node->n_output > function->n_output) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "it has %zu inputs and %zu outputs; the function has %zu and %zu", node->n_input,
                         node->n_output, function->n_input, function->n_output);
    }
    for (size_t i = 0; i < function->n_input && status == LEAT_OK; i++) {
        const char *name = i < node->n_input ? leat_onnx_text(node->input[i]) : "";
        body->given[i] = LEAT_VALUE_NONE;
        if (name[0] != '\0') {
            status = leat_onnx_resolve(importer, name, &body->given[i]);
        }
    }
    for (size_t o = 0; o < node->n_output && status == LEAT_OK; o++) {
        const char *name = leat_onnx_text(node->output[o]);
        struct entry *output = name[0] != '\0' ? leat_onnx_find(importer, name) : NULL;
        if (output != NULL) {
            output->shown = leat_onnx_value_name(importer, output);
            status = output->shown == NULL ? leat_graph_shortage(importer->graph) : LEAT_OK;
        }
        body->outputs[o] = output;
    }
    return status;
}

static enum leat_status
find_output(struct importer *importer, const Onnx__NodeProto *node, const char *name, const struct entry *output,
            const char **ret_copied)
{
    const struct entry *inputs = leat_onnx_input_entries(importer);
    struct entry *entry = leat_onnx_find(importer, name);

    if (entry == NULL) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "output '%.64s' is never computed", name);
    }
    if (entry->source == SOURCE_INPUT) {
        const size_t i = (size_t)(entry - inputs);
        *ret_copied = i < node->n_input ? leat_onnx_text(node->input[i]) : "";
        return LEAT_OK;
    }
    if (entry->shown != NULL) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "output '%.64s' is there twice", name);
    }
    entry->shown = output->shown;
    return LEAT_OK;
}

/* The body's names, and what is known of them. */
static enum leat_status
enter_body(struct importer *importer, const Onnx__NodeProto *node, const struct call *call, struct body *body)
{
    const Onnx__FunctionProto *function = call->function;
    enum leat_status status = leat_onnx_names_init(importer);

    for (size_t i = 0; i < function->n_input && status == LEAT_OK; i++) {
        struct entry *entry = &leat_onnx_input_entries(importer)[i];
        entry->value = body->given[i];
        entry->left_out = body->given[i] == LEAT_VALUE_NONE;
    }
    for (size_t o = 0; o < node->n_output && status == LEAT_OK; o++) {
        if (body->outputs[o] != NULL) {
            status = find_output(importer, node, leat_onnx_text(function->output[o]), body->outputs[o], &body->copied[o]);
        }
    }
    return status;
}

static enum leat_status
describe(enum leat_status status, const struct call *call)
{
    return status == LEAT_OK
               ? LEAT_OK
               : leat_err_prefix(status, "node '%.64s' (function %.64s)", call->name, leat_onnx_text(call->function->name));
}

/* All nodes, and then the values of those outputs that the function computes. */
static enum leat_status
add_body(struct importer *importer, const Onnx__NodeProto *node, const struct call *call, struct body *body)
{
    const Onnx__FunctionProto *function = call->function;
    enum leat_status status = describe(enter_body(importer, node, call, body), call);

    for (size_t n = 0; n < function->n_node && status == LEAT_OK; n++) {
        status = leat_onnx_add_node(importer, function->node[importer->order[n]], importer->order[n]);
    }
    for (size_t o = 0; o < node->n_output && status == LEAT_OK; o++) {
        if (body->outputs[o] != NULL && body->copied[o] == NULL) {
            const struct entry *entry = leat_onnx_find(importer, leat_onnx_text(function->output[o]));
            body->outputs[o]->value = entry->value;
            body->outputs[o]->foreign_type = entry->foreign_type;
            body->outputs[o]->tensors = entry->tensors;
        }
    }
    return status;
}

static enum leat_status
add_inside(struct importer *importer, const Onnx__NodeProto *node, const struct call *call, struct body *body)
{
    const struct importer around = *importer;

    importer->proto = &body->graph;
    importer->call = call;
    importer->entries = NULL;
    importer->sorted = NULL;
    importer->order = importer->lists = NULL;
    const enum leat_status status = add_body(importer, node, call, body);
    leat_onnx_names_fini(importer);
    importer->proto = around.proto;
    importer->call = around.call;
    importer->entries = around.entries;
    importer->sorted = around.sorted;
    importer->entry_count = around.entry_count;
    importer->order = around.order;
    importer->lists = around.lists;
    return status;
}

/* Outputs that are inputs are copies of these, by names of their own. */
static enum leat_status
add_copies(struct importer *importer, const Onnx__NodeProto *node, const struct body *body)
{
    enum leat_status status = LEAT_OK;

    for (size_t o = 0; o < node->n_output && status == LEAT_OK; o++) {
        if (body->copied[o] != NULL) {
            char *from = (char *)(uintptr_t)body->copied[o], identity[] = "Identity";
            Onnx__NodeProto copy;
            onnx__node_proto__init(&copy);
            copy.op_type = identity;
            copy.n_input = copy.n_output = 1;
            copy.input = &from;
            copy.output = &node->output[o];
            status = leat_onnx_add_node(importer, &copy, 0);
        }
    }
    return status;
}

enum leat_status
leat_onnx_add_call(struct importer *importer, const Onnx__NodeProto *node, const char *name, const struct function *function)
{
    const struct call *around = leat_onnx_call_around(importer);
    struct call call = {.around = around,
                        .function = function->proto,
                        .name = name,
                        .opset = opset_of(importer->graph, function->proto),
                        .depth = around != NULL ? around->depth + 1 : 1};
    struct body body = {.given = NULL};

    enum leat_status status = bound(importer, &call, function->weight);
    if (status == LEAT_OK) {
        status = make_body(&call, &body);
    }
    if (status == LEAT_OK) {
        status = find_operands(importer, node, &call, &body);
    }
    if (status == LEAT_OK) {
        status = give_attributes(importer, node, &call);
    }
    status = describe(status, &call);
    if (status == LEAT_OK) {
        status = add_inside(importer, node, &call, &body);
    }
    if (status == LEAT_OK) {
        status = add_copies(importer, node, &body);
    }
    drop_body(&body);
    free(call.attributes);
    return status;
}
