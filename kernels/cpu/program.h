/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/program.h - a specialised graph as a list of steps over one scratch block.
 *
 * Role       build*.c walk the graph; lower/ turns one node each into oneDNN primitives or into kernels of our own (loops/);
 *            place.c lays the buffers out by liveness; run.c executes. A program is for one number of
 *            items and one number of threads.
 * Words      A *value* is the graph's. A *tensor* is a value in one layout. A *buffer* is memory that one
 *            or more tensors (views, results that replace an operand) occupy from its first to its last
 *            step. A value's *plain* form is dense row-major, its *best* form what its producer made.
 * Inputs     Steps that read an input item by item, as numbers alone, read it where queries have it. Where any other step
 *            reads it, it is copied before the first, and all read the copy.
 * Ownership  A program owns its graph, primitives and private constants; constants made from the model's
 *            own payloads belong to the model and are shared by all its programs.
 * Threads    Built by one control thread; read-only afterwards.
 */
#ifndef LEAT_KERNELS_CPU_PROGRAM_H
#define LEAT_KERNELS_CPU_PROGRAM_H

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/constants.h"
#include "kernels/graph.h"

#define CPU_NONE  UINT32_MAX
#define CPU_ALIGN 64u

struct cpu_observer; /* calibrate.c */

struct cpu_buffer {
    size_t bytes, offset;
    uint32_t first, last; /* steps, inclusive; first is CPU_NONE while nothing touches it */
};

/* Places of items, in a buffer or wherever queries have them. */
struct cpu_list {
    uint32_t buffer, count;
    size_t first; /* of all lists, counted through */
    size_t item_bytes;
};

struct cpu_tensor {
    dnnl_memory_desc_t md; /* ndims is 0 for types that oneDNN does not have */
    size_t bytes;
    uint32_t buffer;            /* CPU_NONE for a constant */
    bool by_item;               /* what a step gets is the list of its items' addresses; each is as md says */
    uint32_t list;              /* if it is by item */
    float scale;                /* an element is so many times what is stored, less `zero`: 1 unless that is a whole number */
    int32_t zero;               /* what 0 is stored as */
    struct cpu_constant *constant; /* NULL for a computed tensor */
};

/* Writes [outputs][inputs][height][width] weights as a kernel of our own reads them. */
typedef void (*cpu_pack)(const struct leat_value *weights, void *ret_packed);

/* A constant in one layout. */
struct cpu_constant {
    struct cpu_constant *next;
    const void *source; /* the graph's payload that it was made from, of which several values may be parts, */
    enum leat_dtype dtype; /* and what of it, where a pack made it */
    uint32_t rank;
    int64_t dims[LEAT_RANK_MAX];
    cpu_pack pack;      /* what made it, when that is not a reorder: md and seen_as have ndims 0 */
    dnnl_memory_desc_t md; /* as cpu_tensor's */
    dnnl_memory_desc_t seen_as; /* how the payload was read: a bias or a grouped weight has other dims */
    const void *data;
    void *owned; /* data, when it is not the payload itself */
    size_t bytes;
    dnnl_memory_t memory; /* NULL for types that oneDNN does not have */
};

struct cpu_arg {
    int id; /* DNNL_ARG_* */
    uint32_t tensor;
};

/* What a kernel of our own sees: pointers of its tensors in the order of the step's args. */
struct cpu_call {
    const struct cpu_program *program;
    const struct cpu_step *step;
    void *const *pointers;  /* [step->arg_count] */
    void *const *values;    /* [value_count] plain forms, for the reference functions */
    struct leat_team *team; /* at least program->threads members, or NULL */
    struct leat_graph *live; /* the graph with the shapes of this run; NULL: they are as planned */
};

struct cpu_step {
    const struct leat_node *node; /* NULL for a conversion between layouts */
    dnnl_primitive_t primitive;   /* which runs in so many parts for each thread; or: */
    uint32_t parts;
    enum leat_status (*kernel)(const struct cpu_call *call);
    bool each; /* args 0 and 1 are by item, and the primitive is for one: it runs for each */
    uint32_t branch; /* of an If: the first of its two among the program's branches; else CPU_NONE */
    uint32_t together; /* of a look-up that is the first of several that a run makes at once: how many; else 0 */
    uint32_t behind;   /* of the others: how far the first is before it; else 0 */
    struct cpu_arg *args;
    uint32_t arg_count;
    uint32_t first_arg; /* of all steps, counted through */
    /* Parameters of own kernels. */
    size_t outer, count, inner; /* see each kernel */
    size_t element_bytes;
    uint32_t rank;
    int64_t dims[LEAT_RANK_MAX], strides[LEAT_RANK_MAX]; /* strides in elements */
};

/* A graph inside an If as a program of its own, whose buffers lie in a tensor of the program around. */
struct cpu_branch {
    struct cpu_program *program;
    uint32_t first_input, scratch; /* which of the step's arguments its inputs are, one behind the other, and where its buffers lie */
};

struct cpu_program {
    struct leat_graph *graph; /* of a branch: of the program around */
    uint32_t items, threads;
    struct cpu_tensor *tensors;
    struct cpu_buffer *buffers;
    struct cpu_step *steps;
    struct cpu_list *lists; /* the first are the inputs' */
    uint32_t tensor_count, buffer_count, step_count, arg_count, list_count;
    uint32_t tensor_room, buffer_room, step_room, list_room;
    size_t place_count; /* of all lists */
    uint32_t inputs[LEAT_TENSORS_MAX], outputs[LEAT_TENSORS_MAX]; /* plain tensors */
    bool copied[LEAT_TENSORS_MAX]; /* inputs: there is a step that reads it as one block */
    struct cpu_branch *branches; /* two for each If whose condition is payload: what it runs if not, and if so */
    uint32_t branch_count, branch_room;
    bool is_branch; /* of another program: its inputs are tensors of that, and inputs[] and copied[] say nothing */
    uint32_t *plain;                /* [value_count] tensor or CPU_NONE */
    struct cpu_observer *observer;  /* NULL unless it is calibrated */
    struct cpu_constants constants; /* private ones */
    size_t scratch_bytes;
    struct leat_model *model;
    uint64_t memory_bytes; /* taken of the model's: private constants and primitives */
};

struct leat_model;
struct leat_window;

/* ---- build.c, build_tensors.c, build_constants.c: while a program is made ------------------------- */

struct cpu_builder {
    struct leat_model *model;
    struct cpu_program *program;
    const struct leat_graph *graph;
    const struct leat_node *node; /* being lowered */
    uint32_t *best;               /* [value_count] tensor or CPU_NONE */
    uint32_t *uses;               /* [value_count] readers that are still to come */
    bool *aliased;                /* [value_count] other values look into its memory */
    struct cpu_observer *observer; /* sees the result of each node in each run; NULL unless it is calibrated */
    const struct leat_node **waiting; /* [value_count] what makes it runs together with what reads it; NULL: has run */
    /* All CPU_NONE and false unless the model is quantised: */
    uint32_t *whole;  /* [value_count] the tensor of 8-bit whole numbers, or CPU_NONE */
    bool *wants_whole; /* [value_count] somebody reads it as such */
    bool *shifted;     /* [value_count] they are u8 about another number than 0 */
    bool *quantised;   /* [node_count] multiplies whole numbers */
    struct leat_elements opened; /* cpu_open_constant() */
};

LEAT_MUST_CHECK enum leat_status cpu_program_build(struct leat_model *model, const struct leat_graph *graph,
                                                   uint32_t items, uint32_t threads,
                                                   struct cpu_program **ret_program);
/* One whose runs show the observer, which outlives it, what nodes make. */
LEAT_MUST_CHECK enum leat_status cpu_program_build_observed(struct leat_model *model, const struct leat_graph *graph,
                                                            uint32_t items, struct cpu_observer *observer,
                                                            struct cpu_program **ret_program);
/* One that is part of b's, of a graph inside its graph. */
LEAT_MUST_CHECK enum leat_status cpu_program_build_branch(const struct cpu_builder *b, struct leat_graph *inner,
                                                          struct cpu_program **ret_program);
void cpu_program_destroy(struct cpu_program *program); /* accepts NULL */

/* LEAT_OK, or LEAT_ERR_DEVICE with oneDNN's text and the node's name. */
#define CPU_TRY(b, what, call) cpu_check((b)->node, (what), (call))
LEAT_MUST_CHECK enum leat_status cpu_check(const struct leat_node *node, const char *what, dnnl_status_t status);

/* Descriptors. A plain one of rank 0 reads as one element of rank 1. */
dnnl_memory_desc_t cpu_strided_md(const int64_t *dims, const int64_t *strides, uint32_t rank);
dnnl_memory_desc_t cpu_plain_md(const int64_t *dims, uint32_t rank);
dnnl_memory_desc_t cpu_any_md(const int64_t *dims, uint32_t rank, dnnl_data_type_t type);
dnnl_memory_desc_t cpu_value_md(const struct leat_value *value); /* ndims 0 unless f32, u8 or i8 */
bool cpu_same_bytes(const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b); /* same elements at the same places */

/* Tensors of values; each may add conversion steps. */
LEAT_MUST_CHECK enum leat_status cpu_plain(struct cpu_builder *b, uint32_t value, uint32_t *ret_tensor);
LEAT_MUST_CHECK enum leat_status cpu_best(struct cpu_builder *b, uint32_t value, uint32_t *ret_tensor);
LEAT_MUST_CHECK enum leat_status cpu_in_layout(struct cpu_builder *b, uint32_t value, const dnnl_memory_desc_t *md,
                                               uint32_t *ret_tensor);
/* A constant value read as `seen_as` (same elements, other dims), in layout md. */
LEAT_MUST_CHECK enum leat_status cpu_constant_as(struct cpu_builder *b, uint32_t value,
                                                 const dnnl_memory_desc_t *seen_as, const dnnl_memory_desc_t *md,
                                                 uint32_t *ret_tensor);
/* The same in whole numbers: times factors[c] along the axes of `mask`, rounded. They follow from the payload and seen_as. */
LEAT_MUST_CHECK enum leat_status cpu_constant_scaled(struct cpu_builder *b, uint32_t value,
                                                     const dnnl_memory_desc_t *seen_as, const dnnl_memory_desc_t *md,
                                                     const float *factors, size_t factor_count, int mask,
                                                     uint32_t *ret_tensor);
/* The plain form of what look-ups read, element by element: of a constant wherever that lies, if its elements are aligned. */
LEAT_MUST_CHECK enum leat_status cpu_table(struct cpu_builder *b, uint32_t value, uint32_t *ret_tensor);
/* A constant value as `pack` writes it. */
LEAT_MUST_CHECK enum leat_status cpu_constant_packed(struct cpu_builder *b, uint32_t value, cpu_pack pack,
                                                     size_t bytes, uint32_t *ret_tensor);
/*
 * Its elements, until the next one is opened, where the model's limit leaves room for a copy. For weights of convolutions and of
 * products and tables, which alone stay where they lie in a file (kernels/onnx/import.c); every other constant is
 * leat_value_in_place().
 */
LEAT_MUST_CHECK enum leat_status cpu_open_constant(struct cpu_builder *b, const struct leat_value *value, const void **ret_data);
/* `count` floats that the lowering computed; copied. */
LEAT_MUST_CHECK enum leat_status cpu_private_vector(struct cpu_builder *b, const float *data, size_t count,
                                                    uint32_t *ret_tensor);
/* The same of anything of 32 bits, for kernels of our own. */
LEAT_MUST_CHECK enum leat_status cpu_private_words(struct cpu_builder *b, const void *data, size_t count,
                                                   uint32_t *ret_tensor);
LEAT_MUST_CHECK enum leat_status cpu_new_tensor(struct cpu_builder *b, const dnnl_memory_desc_t *md, size_t bytes,
                                                uint32_t *ret_tensor);
/* Another look at the memory of `tensor`. */
LEAT_MUST_CHECK enum leat_status cpu_view(struct cpu_builder *b, uint32_t tensor, const dnnl_memory_desc_t *md,
                                          uint32_t *ret_tensor);
/*
 * The same memory, item by item, where items, the elements of one index of dimension 0, follow each other; else
 * LEAT_AGAIN. For steps that take what they read as numbers alone: those of an input may change meanwhile, and be others
 * when they are read again.
 */
LEAT_MUST_CHECK enum leat_status cpu_by_item(struct cpu_builder *b, uint32_t tensor, uint32_t *ret_tensor);
/* That spares a copy: it is an input, whose items are no smaller than what a call for each costs. */
bool cpu_gathers(const struct cpu_builder *b, uint32_t tensor);
/* The node's output `o` is this tensor. */
void cpu_set_output(struct cpu_builder *b, uint32_t o, uint32_t tensor);
/* A plain tensor for output o, which is set to it. */
LEAT_MUST_CHECK enum leat_status cpu_plain_output(struct cpu_builder *b, uint32_t o, uint32_t *ret_tensor);

/* The value in whole numbers, of the type and layout of md; one that has none yet is rounded to them in the range that it has. */
LEAT_MUST_CHECK enum leat_status cpu_whole(struct cpu_builder *b, uint32_t value, const dnnl_memory_desc_t *md,
                                           uint32_t *ret_tensor);
/* The node's output 0 is this tensor of whole numbers. */
void cpu_set_whole(struct cpu_builder *b, uint32_t tensor);

/* Steps. The primitive is made from `pd`, which is destroyed in any case. */
LEAT_MUST_CHECK enum leat_status cpu_add_primitive(struct cpu_builder *b, dnnl_primitive_desc_t pd,
                                                   const struct cpu_arg *args, uint32_t arg_count);
LEAT_MUST_CHECK enum leat_status cpu_add_kernel(struct cpu_builder *b,
                                                enum leat_status (*kernel)(const struct cpu_call *call),
                                                const struct cpu_arg *args, uint32_t arg_count,
                                                struct cpu_step **ret_step);
LEAT_MUST_CHECK enum leat_status cpu_add_reorder(struct cpu_builder *b, uint32_t from, uint32_t to);
/* One that runs a branch of the node. The program owns both from now on, in any case. */
LEAT_MUST_CHECK enum leat_status cpu_add_branches(struct cpu_builder *b, const struct cpu_branch branches[2],
                                                  const struct cpu_arg *args, uint32_t arg_count);

/* A function of single elements as oneDNN names them. */
struct cpu_function {
    dnnl_alg_kind_t algorithm;
    float alpha, beta;
};
/* The activation that is fused onto the node; there is one. */
struct cpu_function cpu_activation_of(const struct leat_node *node);

/*
 * A descriptor of an operation, with user scratchpad and what is fused onto the node: a sum over the old
 * contents of dst (with_sum), then the activation. LEAT_AGAIN when oneDNN has no such kernel.
 */
LEAT_MUST_CHECK enum leat_status cpu_describe(struct cpu_builder *b, const_dnnl_op_desc_t op, bool fused,
                                              dnnl_primitive_desc_t *ret_pd);
/* The same with attributes of the caller's; LEAT_AGAIN also where there are but plain loops. */
LEAT_MUST_CHECK enum leat_status cpu_describe_as(struct cpu_builder *b, const_dnnl_op_desc_t op,
                                                 const_dnnl_primitive_attr_t attributes, dnnl_primitive_desc_t *ret_pd);
dnnl_memory_desc_t cpu_query_md(const_dnnl_primitive_desc_t pd, dnnl_query_t what);
/* oneDNN has nothing better for it. */
bool cpu_is_plain_loops(const_dnnl_primitive_desc_t pd);

/* The node that is being lowered is the last to read the value and may write its result where this tensor of it is. */
bool cpu_may_overwrite(const struct cpu_builder *b, uint32_t value, uint32_t tensor);

/* The node's activation is none of its primitive but a step of our own behind it, which is faster. */
bool cpu_activates_apart(const struct cpu_builder *b);
/* That step, where it is needed; `tensor` is the primitive's result. */
LEAT_MUST_CHECK enum leat_status cpu_add_activation(struct cpu_builder *b, uint32_t tensor);

/* dst of a node that may add `fused_add`: in the addend's own memory where it is free, else a copy of it. */
LEAT_MUST_CHECK enum leat_status cpu_destination(struct cpu_builder *b, const dnnl_memory_desc_t *md,
                                                 uint32_t *ret_tensor);

/* For build*.c alone. */
enum { CPU_PRIMITIVE_BYTES = 64 << 10 }; /* that oneDNN takes for a primitive, as measured: 30 to 75 KiB */
struct cpu_factors { /* what a constant is multiplied by on its way */
    const float *data;
    size_t count;
    int mask;
};
LEAT_MUST_CHECK enum leat_status cpu_no_memory(void);
/* Room for one more element of `size` bytes in a list of `count`. */
LEAT_MUST_CHECK enum leat_status cpu_grow(void *list, uint32_t count, uint32_t *room, size_t size);
LEAT_MUST_CHECK enum leat_status cpu_add_tensor(struct cpu_program *program, const struct cpu_tensor *tensor, uint32_t *ret);
LEAT_MUST_CHECK enum leat_status cpu_add_list(struct cpu_program *program, uint32_t buffer, uint32_t count, size_t item_bytes,
                                              uint32_t *ret);
LEAT_MUST_CHECK enum leat_status cpu_new_in_layout(struct cpu_builder *b, const dnnl_memory_desc_t *md, uint32_t *ret_tensor);
LEAT_MUST_CHECK enum leat_status cpu_set_factors(struct cpu_builder *b, dnnl_primitive_attr_t attributes,
                                                 const struct cpu_factors *factors);

/* ---- form.c: how feature maps lie --------------------------------------------------------------------- */

/* f32, 4 axes, the channels of a pixel side by side. */
bool cpu_has_channels_last(const dnnl_memory_desc_t *md);
/* f32, 4 axes, whole blocks of 8 channels, as vectors of AVX2 are. */
bool cpu_has_channel_blocks(const dnnl_memory_desc_t *md);
/* Plain: neither of those, or the same bytes. */
enum cpu_form { CPU_PLAIN, CPU_CHANNELS_LAST, CPU_CHANNEL_BLOCKS };
/* As its producer left it, the value is in one of them. */
bool cpu_has_form(const struct cpu_builder *b, uint32_t value);
/* The value as its producer left it where that is a form, else plain. */
LEAT_MUST_CHECK enum leat_status cpu_in_form(struct cpu_builder *b, uint32_t value, uint32_t *ret_tensor,
                                             enum cpu_form *ret_form);
/* A tensor of that form for output 0, which is set to it. */
LEAT_MUST_CHECK enum leat_status cpu_output_in_form(struct cpu_builder *b, enum cpu_form form, uint32_t *ret_tensor);
/* The axes of such a tensor, dense, outermost first, and which of the value's each one is, or a part of. */
struct cpu_axes {
    uint32_t rank;
    int64_t dims[LEAT_RANK_MAX];
    uint32_t of[LEAT_RANK_MAX];
};
void cpu_axes_of(enum cpu_form form, const struct leat_value *value, struct cpu_axes *ret);

/* ---- quantise.c: 8-bit whole numbers ---------------------------------------------------------------- */

/* Which nodes multiply whole numbers, and which values are read as such. */
void cpu_plan_quantised(struct cpu_builder *b);
/* It has one whose steps are numbers that floats divide by. */
bool cpu_has_range(const struct leat_value *value);
/* How a value with a range is stored: an element is (what is stored - zero) times scale. */
struct cpu_stored {
    dnnl_data_type_t type;
    float scale;
    int32_t zero;
};
/* u8 where nothing is negative or the value is shifted, else s8 about 0. */
struct cpu_stored cpu_stored_as(const struct cpu_builder *b, uint32_t value);

/*
 * Weights are stored as -most..most: fewer than 8 bits where the processor would cap sums of their products; 0: what multiplies
 * such a source, a convolution or a product, stays in floats.
 */
float cpu_weights_most(bool convolution, dnnl_data_type_t source);

/* A convolution or product with constant weights. */
struct cpu_quantised {
    int64_t channels;              /* of the result */
    int weights_mask;              /* the axes of seen_as that count channels */
    dnnl_memory_desc_t weights_as; /* how the payload is read, channels first */
    const float *bias;             /* [channels]; NULL: none */
    bool padded;                   /* it multiplies zeros that the source does not have */
    /* Of images, without groups and gaps: kernel, strides, padding before it, each down and across; else NULL. */
    const int64_t *window;
    /* Writes the descriptor of the operation for these types; weights and bias are as `weights` and `bias` say. */
    enum leat_status (*describe)(struct cpu_builder *b, const void *context, dnnl_data_type_t source,
                                 const dnnl_memory_desc_t *weights, const dnnl_memory_desc_t *bias,
                                 dnnl_data_type_t result, void *ret_op);
    const void *context;
    /* What the operation sees of source and result, where that is not the dims of the values; ndims 0: as they are. */
    dnnl_memory_desc_t source_as, result_as;
};
/* LEAT_AGAIN where oneDNN has but plain loops for it. */
LEAT_MUST_CHECK enum leat_status cpu_lower_quantised(struct cpu_builder *b, const struct cpu_quantised *q);

/* ---- calibrate.c ------------------------------------------------------------------------------------ */

/* Behind the steps of a node: one that shows its results to the observer. */
LEAT_MUST_CHECK enum leat_status cpu_observe(struct cpu_builder *b);

/* ---- lower/: one node; LEAT_AGAIN: not this way --------------------------------------------------- */

LEAT_MUST_CHECK enum leat_status cpu_lower_conv(struct cpu_builder *b);
/* A convolution of `node`, and the layouts of its activations that suit its neighbours. */
struct cpu_conv {
    const struct leat_window *window;
    const dnnl_memory_desc_t *source, *result;
};
/* On a kernel of our own, where one is faster than oneDNN's. */
LEAT_MUST_CHECK enum leat_status cpu_lower_own_conv(struct cpu_builder *b, const struct cpu_conv *conv);
/* One that oneDNN has but its gemm for, with AVX2, in f32. */
LEAT_MUST_CHECK enum leat_status cpu_lower_group_conv(struct cpu_builder *b, const struct leat_window *window);
/* On a kernel of our own the first one where others multiply whole numbers of 8 bits: in 16 bits. */
LEAT_MUST_CHECK enum leat_status cpu_lower_whole_image(struct cpu_builder *b, const struct leat_window *window);
/* y[rows][columns] = x[rows][inner] w, and what goes with it; w is the node's input 1, a constant. */
struct cpu_product {
    int64_t rows, inner, columns;
    bool transposed; /* w is [columns][inner], else [inner][columns] */
    bool has_bias;
    uint32_t bias; /* tensor of `columns` elements */
};
/* On the same kernel, in f32. */
LEAT_MUST_CHECK enum leat_status cpu_lower_own_product(struct cpu_builder *b, const struct cpu_product *product);
/* A product of two computed values, the second of small matrices, with AVX2, in f32: as they lie, and nothing added but in place. */
LEAT_MUST_CHECK enum leat_status cpu_lower_small_product(struct cpu_builder *b);
/* Any other one, of sides with two dimensions at least; bias: tensor of its columns, or NULL. */
LEAT_MUST_CHECK enum leat_status cpu_lower_packed_product(struct cpu_builder *b, const uint32_t *bias);
/* Of one column, on a kernel for that, with AVX-512 or AVX2, in f32. */
LEAT_MUST_CHECK enum leat_status cpu_lower_column(struct cpu_builder *b, const struct cpu_product *product);
/* A mean over all pixels, channels last. */
LEAT_MUST_CHECK enum leat_status cpu_lower_mean(struct cpu_builder *b);
/* A product with one factor for each channel of each item. */
LEAT_MUST_CHECK enum leat_status cpu_lower_scale(struct cpu_builder *b, uint32_t value, uint32_t factors);
/* The node is a 1x1 convolution of which a depthwise one makes the only use: they are lowered together, as the latter. */
bool cpu_expansion_waits(const struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_expansion(struct cpu_builder *b, const struct leat_node *points);
LEAT_MUST_CHECK enum leat_status cpu_lower_conv_transpose(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_pool(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_max_places(struct cpu_builder *b); /* MaxPool of floats that says where, too */
LEAT_MUST_CHECK enum leat_status cpu_lower_global_pool(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_resize(struct cpu_builder *b);
/* The same on kernels of our own, with AVX-512 or AVX2, of floats. */
struct leat_resize;
LEAT_MUST_CHECK enum leat_status cpu_lower_resample(struct cpu_builder *b, const struct leat_resize *resize);
LEAT_MUST_CHECK enum leat_status cpu_lower_batch_norm(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_instance_norm(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_grid_sample(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_gemm(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_matmul(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_attention(struct cpu_builder *b);
/* RNN, GRU and LSTM with constant weights. */
LEAT_MUST_CHECK enum leat_status cpu_lower_recurrent(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_unary(struct cpu_builder *b);
/* Between floats of 16 and of 32 bits, whole numbers to f32, and f32 and whole numbers to such of 32 and 64 bits and to truths. */
LEAT_MUST_CHECK enum leat_status cpu_lower_cast(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_binary(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_total(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_power(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_test(struct cpu_builder *b); /* Not, IsNaN, IsInf */
/* Add, Sub, Mul, Div, PRelu, Max and Min of two, Pow, Mod, BitShift, comparisons and logic on a kernel of our own, whatever is spread. */
LEAT_MUST_CHECK enum leat_status cpu_lower_broadcast(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_extreme(struct cpu_builder *b); /* Max and Min of two */
LEAT_MUST_CHECK enum leat_status cpu_lower_where(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_softmax(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_layer_norm(struct cpu_builder *b);
/* Its step of our own, with AVX-512 or AVX2: args are x, the scale, the shift if there is one, and y; rows of `width` floats. */
bool cpu_layer_norm_runs_here(void);
LEAT_MUST_CHECK enum leat_status cpu_add_layer_norm(struct cpu_builder *b, const struct cpu_arg *args, uint32_t arg_count,
                                                    size_t rows, size_t width);
LEAT_MUST_CHECK enum leat_status cpu_lower_arg_extreme(struct cpu_builder *b); /* ArgMax, ArgMin */
LEAT_MUST_CHECK enum leat_status cpu_lower_hardmax(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_top_k(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_cum_sum(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_dft(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_stft(struct cpu_builder *b);
/* Floats along any axes. */
LEAT_MUST_CHECK enum leat_status cpu_lower_reduce(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_lp_normalization(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_mean_variance(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_view(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_concat(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_split(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_copy(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_pad(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_gather(struct cpu_builder *b);
/* Behind lowering: look-ups that follow each other, none in what another made, become one step, in which members share each. */
void cpu_join_look_ups(struct cpu_program *program);
LEAT_MUST_CHECK enum leat_status cpu_look_up_together(const struct cpu_call *first);
LEAT_MUST_CHECK enum leat_status cpu_lower_embedding_bag(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_slice(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_gather_elements(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_one_hot(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_trilu(struct cpu_builder *b);
/* QuantizeLinear, DequantizeLinear. */
LEAT_MUST_CHECK enum leat_status cpu_lower_scale_tensor(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_dynamic_quantise(struct cpu_builder *b);
/* MatMulInteger with a constant matrix, and MatMulIntegerToFloat. */
LEAT_MUST_CHECK enum leat_status cpu_lower_integers(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_conv_integer(struct cpu_builder *b);
/*
 * The node, a QLinearConv or QLinearMatMul, can be computed in whole numbers here: weights are constants in s8 about
 * 0, scales are constants, the processor caps no sums of their products or a kernel of our own has them, and none leaves 32 bits.
 */
bool cpu_multiplies_whole(const struct leat_graph *graph, const struct leat_node *node);
bool cpu_qconv_runs_here(void);
/*
 * A kernel of our own multiplies it, by its shape: with AVX2 and no AVX-512. The node may be the Conv, Gemm or MatMul of floats, too,
 * that it was made of.
 */
bool cpu_qconv_suits(const struct leat_graph *graph, const struct leat_node *node, const struct leat_value *weights);
/* Such a QLinearConv or QLinearMatMul. */
LEAT_MUST_CHECK enum leat_status cpu_lower_qconv(struct cpu_builder *b);
/* One for oneDNN. */
struct cpu_qlinear {
    int64_t channels;              /* of the result */
    dnnl_memory_desc_t weights_as; /* how the payload is read, channels first */
    bool padded;                   /* the operation adds zeros around its source */
    /* As cpu_quantised's. */
    enum leat_status (*describe)(struct cpu_builder *b, const void *context, dnnl_data_type_t source,
                                 const dnnl_memory_desc_t *weights, const dnnl_memory_desc_t *bias,
                                 dnnl_data_type_t result, void *ret_op);
    const void *context;
    dnnl_memory_desc_t source_as, result_as;
};
LEAT_MUST_CHECK enum leat_status cpu_lower_qlinear(struct cpu_builder *b, const struct cpu_qlinear *q);
LEAT_MUST_CHECK enum leat_status cpu_lower_qlinear_conv(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_qlinear_matmul(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_qlinear_add(struct cpu_builder *b); /* or Mul */
LEAT_MUST_CHECK enum leat_status cpu_lower_qlinear_lookup(struct cpu_builder *b);
/* An If without loops inside: one of its branches runs as a program. */
LEAT_MUST_CHECK enum leat_status cpu_lower_if(struct cpu_builder *b);
LEAT_MUST_CHECK enum leat_status cpu_lower_reference(struct cpu_builder *b); /* any operator, plain loops */
bool cpu_is_reference(const struct cpu_step *step);

/* ---- place.c ------------------------------------------------------------------------------------- */

#define CPU_LOOKS_MAX  (UINT64_C(1) << 26)
#define CPU_LOOKS_EACH 512u

/*
 * Offsets for all buffers, whose bytes become multiples of CPU_ALIGN, such that two that live at one step do not overlap. *ret_looks is
 * how often one was compared with another: at most CPU_LOOKS_MAX, and twice CPU_LOOKS_EACH for each buffer.
 */
LEAT_MUST_CHECK enum leat_status cpu_place_buffers(struct cpu_buffer *buffers, uint32_t count, size_t *ret_bytes,
                                                   uint64_t *ret_looks);
/* Offsets for all, such that none overlaps another, ever. LEAT_ERR_LIMIT where their bytes are more than a size_t. */
LEAT_MUST_CHECK enum leat_status cpu_place_apart(struct cpu_buffer *buffers, uint32_t count, size_t *ret_bytes);
/* Of placed buffers: what lives at once at the worst step, less than which no placement needs. */
LEAT_MUST_CHECK enum leat_status cpu_live_bytes(const struct cpu_buffer *buffers, uint32_t count, size_t *ret_bytes);

/* ---- model ------------------------------------------------------------------------------------------ */

/* What all programs of a model share; the constants grow under the mutex. */
dnnl_engine_t cpu_model_engine(const struct leat_model *model);
/* That plans are made of; where there are several lengths, the one of the first. */
const struct leat_graph *cpu_model_graph(const struct leat_model *model);
/* Of the operands of convolutions and of products with constant weights: f32 or bf16. Sums are f32. */
dnnl_data_type_t cpu_model_type(const struct leat_model *model);
/* What has a range is multiplied in whole numbers; the rest in cpu_model_type(), but large products in bf16 where that is fast. */
bool cpu_model_is_quantised(const struct leat_model *model);
/* LEAT_PLANS_*: plans are made with it. */
bool cpu_model_plans(const struct leat_model *model, uint32_t what);
/* Items of the input lie in a segment as in a plan. */
bool cpu_model_takes_items(const struct leat_model *model, uint32_t input);
/* True when the payload belongs to the model's own graph and so lives as long as the model. */
bool cpu_model_owns(const struct leat_model *model, const void *payload);
/*
 * Before memory is taken for a program, until that is destroyed, or for the model (`program` is NULL): LEAT_ERR_LIMIT where the limit
 * of the model's graph does not leave `bytes` more, else they are counted.
 */
LEAT_MUST_CHECK enum leat_status cpu_model_take(struct leat_model *model, struct cpu_program *program, uint64_t bytes);
void cpu_model_give_back(struct leat_model *model, uint64_t bytes);
/* The same of what is taken in a run, or only for a moment: nothing is counted. */
LEAT_MUST_CHECK enum leat_status cpu_model_may_take(const struct leat_model *model, uint64_t bytes);
struct cpu_constants *cpu_model_lock_constants(struct leat_model *model);
void cpu_model_unlock_constants(struct leat_model *model);

/* softmax.c: Softmax, or its logarithm, along the middle of x[outer][count][inner], plain; with vectors of either width. */
LEAT_MUST_CHECK enum leat_status cpu_add_softmax_columns(struct cpu_builder *b, const struct cpu_arg args[2], size_t outer,
                                                         size_t count, size_t inner);

/* ---- run.c: what one run in flight needs ----------------------------------------------------------- */

/*
 * For a step's kernel: part(call, begin, end) over 0..count, split between the members of the team where each gets
 * `least` of them.
 */
void cpu_share(const struct cpu_call *call, void (*part)(const struct cpu_call *call, size_t begin, size_t end),
               size_t count, size_t least);
/* The same where a part may find that the payload is wrong: false when one did. */
bool cpu_share_checked(const struct cpu_call *call, bool (*part)(const struct cpu_call *call, size_t begin, size_t end),
                       size_t count, size_t least);

/* Inside a run, of the leader while no other member is at work: another run may take place on this thread, of other scratch. */
void cpu_give_way(const struct cpu_program *program, struct leat_team *team);

struct cpu_run;
LEAT_MUST_CHECK enum leat_status cpu_run_create(const struct cpu_program *program, dnnl_engine_t engine,
                                                struct cpu_run **ret_run);
void cpu_run_destroy(struct cpu_run *run); /* accepts NULL */
/* Points all tensors into `scratch`. */
void cpu_run_bind(struct cpu_run *run, unsigned char *scratch);
void *cpu_run_tensor(const struct cpu_run *run, uint32_t tensor);
/* Of an input that is not copied: [program->items], for the caller to write before the steps run, which read there. */
const void **cpu_run_places(struct cpu_run *run, uint32_t input);
/* The input is this dense batch, which stays until the steps have run. */
void cpu_run_set_input(struct cpu_run *run, uint32_t input, const void *batch);
/* Of a value, as the last run had them. */
const int64_t *cpu_run_dims(const struct cpu_run *run, uint32_t value);
LEAT_MUST_CHECK enum leat_status cpu_run_step(struct cpu_run *run, uint32_t step, struct leat_team *team);
LEAT_MUST_CHECK enum leat_status cpu_run_execute(struct cpu_run *run, struct leat_team *team);

#endif /* LEAT_KERNELS_CPU_PROGRAM_H */
