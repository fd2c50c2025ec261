/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/onnx/importer.h - one graph of a file while it becomes ours: its names and their order.
 *
 * Role     names.c finds out what each name stands for and puts the nodes in order; import.c makes values and nodes. The
 *          graph inside an If, Loop or Scan has an importer of its own: what it reads of the graphs around it becomes inputs
 *          of the node and, behind those that the file declares, of the inner graph (captures). functions.c makes nodes of
 *          calls of the file's own functions, tensors.c of operators of sequences, so that a graph has none.
 */
#ifndef LEAT_KERNELS_ONNX_IMPORTER_H
#define LEAT_KERNELS_ONNX_IMPORTER_H

#include <stdio.h>

#include "kernels/onnx/onnx.h"

#define LEAT_ONNX_CAPTURES_MAX 1024u
#define LEAT_ONNX_GRAPHS_MAX   7u  /* inside each other, as LEAT_ONNX_DEPTH_MAX has it without functions */
#define LEAT_ONNX_CALLS_MAX    32u /* of functions, in each other */
#define LEAT_ONNX_GIVEN_MAX    256u /* attributes of a function */
#define LEAT_ONNX_WEIGHT_MAX   (2u << 20)
#define LEAT_ONNX_ALIKE_OPSET  13  /* from there on, one row of the operator table means the same at all of its opsets */

/* One of ONNX's kind: tensors in order, which are values of the graph. In the arena. */
struct tensors {
    uint32_t count;
    const uint32_t *values;
};

enum source { SOURCE_INITIALISER, SOURCE_INPUT, SOURCE_NODE };

/* One definition of a name. */
struct entry {
    const char *name; /* as in the file */
    enum source source;
    uint32_t node;  /* of SOURCE_NODE */
    uint32_t value; /* in the graph */
    /* A constant of a type that the graph does not have, such as strings: an error of who reads it. 0: it has it */
    int32_t foreign_type;
    const char *shown; /* what the graph calls it, in the arena; NULL: leat_onnx_path() of its name */
    bool left_out;     /* an input of a function that the call does not have */
    const struct tensors *tensors; /* it is no tensor but these; NULL: it is one */
};

struct function {
    const Onnx__FunctionProto *proto;
    uint64_t weight; /* of a call: what nodes, inputs, outputs, attributes and initialisers there are */
};

/* The functions of a file. */
struct functions {
    struct function *sorted;
    size_t count;
    uint64_t weight; /* of all calls so far */
};

/* An attribute of a function. */
struct given {
    const char *name;
    const Onnx__AttributeProto *proto; /* its own name may be another */
};

/* A function whose nodes are being added. */
struct call {
    const struct call *around; /* in whose function the node is that calls; NULL: it is in a graph */
    const Onnx__FunctionProto *function;
    const char *name; /* of that node, in the arena */
    int64_t opset;    /* of the standard operators in there */
    struct given *attributes;
    uint32_t attribute_count;
    uint32_t depth;
};

/* A value of the graph around that is read inside. */
struct capture {
    const char *name;
    uint32_t outer, inner; /* values */
};

/* Of a value whose floats have 16 bits, or had them in the file. */
struct half {
    bool has_wide;
    uint8_t in_file; /* the file's type of a value that is f32 here; LEAT_DTYPE_NONE: as it is */
    uint32_t wide;   /* its f32 */
};

struct importer {
    struct importer *parent; /* of the graph around; NULL for the outermost */
    struct leat_graph *graph;
    struct leat_onnx_files *files;
    struct functions *functions;
    const struct call *call; /* the function whose names these are, down to `lists`; NULL: the graph's */
    const Onnx__GraphProto *proto;
    struct entry *entries; /* initialisers, sparse ones, inputs, node outputs: in the file's order */
    struct entry **sorted; /* by name, initialisers before inputs of the same name */
    uint32_t entry_count;
    uint32_t *order; /* node indices of the file, producers first */
    uint32_t *lists; /* room for the inputs and outputs of one node */
    const char *batch; /* what the file calls the batch; "": nothing */
    struct leat_folding folding; /* all zero until it is needed */
    uint32_t folded;             /* nodes of the graph that are as far folded as they can be */
    struct half *halves; /* [LEAT_GRAPH_VALUES_MAX]; NULL until one is needed. Not of an inner graph */
    struct capture *captures; /* [LEAT_ONNX_CAPTURES_MAX], of an inner graph */
    uint32_t capture_count;
    uint32_t renamed; /* elements of sequences whose names the file has itself */
    uint32_t loops;  /* that the graph is in, in each other */
    uint32_t graphs; /* likewise */
};

static inline const char *
leat_onnx_text(const char *text)
{
    return text != NULL ? text : "";
}

struct leat_onnx_number {
    char text[24];
};

/* As errors have it: what has no name is called like its first output that has one, else by its number among the graph's nodes. */
static inline const char *
leat_onnx_node_name(const Onnx__NodeProto *node, size_t number, struct leat_onnx_number *room)
{
    const char *name = leat_onnx_text(node->name);

    for (size_t o = 0; o < node->n_output && name[0] == '\0'; o++) {
        name = leat_onnx_text(node->output[o]);
    }
    if (name[0] != '\0') {
        return name;
    }
    (void)snprintf(room->text, sizeof(room->text), "#%zu", number);
    return room->text;
}

/* Those of its inputs, in order. */
static inline struct entry *
leat_onnx_input_entries(const struct importer *importer)
{
    return importer->entries + importer->proto->n_initializer + importer->proto->n_sparse_initializer;
}

/* Fills in entries and order. What it allocates goes with leat_onnx_names_fini(), in any case. */
LEAT_MUST_CHECK enum leat_status leat_onnx_names_init(struct importer *importer);
void leat_onnx_names_fini(struct importer *importer);

/* Floats of 16 bits among a node's inputs become f32 where the operator does not have them, or others of its inputs are. */
LEAT_MUST_CHECK enum leat_status leat_onnx_widen_inputs(struct importer *importer, const struct leat_op *op,
                                                        uint32_t *inputs, uint32_t count);
/* A node, the types of whose outputs are known, may have made f32 of them. */
void leat_onnx_note_widened(struct importer *importer, const struct leat_op *op, const uint32_t *inputs,
                            uint32_t input_count, const uint32_t *outputs, uint32_t output_count);
/* An output becomes what the file has. */
LEAT_MUST_CHECK enum leat_status leat_onnx_narrow_output(struct importer *importer, const Onnx__ValueInfoProto *declared,
                                                         uint32_t *value);

/* NULL when this graph does not define it. */
struct entry *leat_onnx_find(const struct importer *importer, const char *name);

/* Of an outermost graph: what its input is to be; NULL: what each query says. */
const struct leat_constant_input *leat_onnx_constant_input(const struct importer *importer, const char *input);
/* Each constant that is given is of an input that has none yet. */
LEAT_MUST_CHECK enum leat_status leat_onnx_check_constant_inputs(const struct importer *importer);
/* Those inputs are initialisers from now on. Of a graph that has inputs and no nodes yet. */
LEAT_MUST_CHECK enum leat_status leat_onnx_make_constant_inputs(struct importer *importer);

/*
 * A name of the file as the graph has it: in a function behind the name of the node that calls it, and cut where that would be
 * long. In the arena; NULL: leat_graph_shortage() says why.
 */
const char *leat_onnx_path(const struct importer *importer, const char *name);
/* Likewise that of a value, which outputs of functions have of who reads them. */
const char *leat_onnx_value_name(const struct importer *importer, const struct entry *entry);

/* The value of a name: this graph's own, or one of the graphs around that becomes an input of this one. LEAT_VALUE_NONE: left out. */
LEAT_MUST_CHECK enum leat_status leat_onnx_resolve(struct importer *importer, const char *name, uint32_t *ret);
LEAT_MUST_CHECK enum leat_status leat_onnx_add_node(struct importer *importer, const Onnx__NodeProto *proto, size_t number);
/*
 * A node that is not in the file, or not so; `inputs` may be replaced by wider ones. Of a graph that is in none it is inferred.
 */
LEAT_MUST_CHECK enum leat_status leat_onnx_put_node(struct importer *importer, const struct leat_op *op, const char *name,
                                                    uint32_t *inputs, uint32_t input_count, const uint32_t *outputs,
                                                    uint32_t output_count, const struct leat_attribute *attributes,
                                                    uint32_t attribute_count);
/* Of a graph that is in none: computes what follows from constants. */
LEAT_MUST_CHECK enum leat_status leat_onnx_fold(struct importer *importer);

/* It makes or reads sequences of tensors. */
bool leat_onnx_is_of_tensors(const struct importer *importer, const Onnx__NodeProto *node);
/* Such a node, which is to be called `name`: nodes of the tensors, or none. */
LEAT_MUST_CHECK enum leat_status leat_onnx_add_of_tensors(struct importer *importer, const Onnx__NodeProto *node,
                                                          const char *name);
/* Values that are those of a sequence by names of their own, NAME.0 and so on. */
LEAT_MUST_CHECK enum leat_status leat_onnx_copy_tensors(struct importer *importer, const struct entry *entry, uint32_t *values);

bool leat_onnx_is_quantised_lstm(const Onnx__NodeProto *node);
/* Constants in place of 8-bit ones [directions][inputs][gates]: floats, as LSTM has them. */
LEAT_MUST_CHECK enum leat_status leat_onnx_dequantise_weights(struct importer *importer, uint32_t *weights, uint32_t scale,
                                                              uint32_t zero);

/* Zeroed; what it allocates goes with leat_onnx_functions_fini(), in any case. The model has to live as long. */
LEAT_MUST_CHECK enum leat_status leat_onnx_functions_init(struct functions *functions, const Onnx__ModelProto *model);
void leat_onnx_functions_fini(struct functions *functions);

/* NULL when the file has none for that node. */
const struct function *leat_onnx_find_function(const struct functions *functions, const Onnx__NodeProto *node);

/* The nodes of a function in place of one that calls it, which is to be called `name`. */
LEAT_MUST_CHECK enum leat_status leat_onnx_add_call(struct importer *importer, const Onnx__NodeProto *node, const char *name,
                                                    const struct function *function);

/* The innermost function that what is being added is in; NULL: none. */
const struct call *leat_onnx_call_around(const struct importer *importer);

/*
 * An attribute as it is, or what it refers to by its name, which may be made in `room`. NULL: the function has not been given
 * that, so the node is without.
 */
LEAT_MUST_CHECK enum leat_status leat_onnx_dereference(const struct importer *importer, const Onnx__AttributeProto *proto,
                                                       Onnx__AttributeProto *room, const Onnx__AttributeProto **ret);

#endif /* LEAT_KERNELS_ONNX_IMPORTER_H */
