/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/openmp.h"
#include "kernels/cpu/program.h"
#include "kernels/graph_build.h"
#include "kernels/op.h"
#include "kernels/sequence.h"

/* Of a convolution: for each thread, and of all threads, where more would make blocks that are too small. */
enum { THREAD_PARTS_MAX = 4, PARTS_MAX = 16 };

/* ---- Steps ------------------------------------------------------------------------------------------ */

/* Items of an input may lie elsewhere: they ask for no place, but stay in one that others ask for. */
static void
touch(struct cpu_program *program, uint32_t tensor, uint32_t step)
{
    const struct cpu_tensor *touched = &program->tensors[tensor];

    if (touched->buffer != CPU_NONE) {
        struct cpu_buffer *buffer = &program->buffers[touched->buffer];
        if ((!touched->by_item || touched->list >= program->graph->input_count) &&
            (buffer->first == CPU_NONE || step < buffer->first)) {
            buffer->first = step;
        }
        buffer->last = step > buffer->last ? step : buffer->last;
    }
}

static enum leat_status
add_step(struct cpu_builder *b, const struct cpu_step *step, const struct cpu_arg *args, uint32_t arg_count)
{
    struct cpu_program *program = b->program;
    enum leat_status status = cpu_grow(&program->steps, program->step_count, &program->step_room, sizeof(*program->steps));
    struct cpu_arg *copy = calloc(arg_count + 1, sizeof(*copy));

    if (status != LEAT_OK || copy == NULL) {
        free(copy);
        return status != LEAT_OK ? status : cpu_no_memory();
    }
    memcpy(copy, args, arg_count * sizeof(*args));
    for (uint32_t i = 0; i < arg_count; i++) {
        touch(program, args[i].tensor, program->step_count);
    }
    struct cpu_step *added = &program->steps[program->step_count++];
    *added = *step;
    added->args = copy;
    added->arg_count = arg_count;
    added->first_arg = program->arg_count;
    program->arg_count += arg_count;
    return LEAT_OK;
}

/* In how many parts for each thread. */
static uint32_t
parts_of(const struct cpu_builder *b)
{
    const uint32_t threads = b->program->threads, most = PARTS_MAX / threads;
    return threads == 1 || most < 1 ? 1 : most < THREAD_PARTS_MAX ? most : THREAD_PARTS_MAX;
}

/* Generated convolutions: their threads do not wait for each other, and what one computes depends on its number alone. */
static bool
runs_in_parts(const_dnnl_primitive_desc_t pd)
{
    dnnl_primitive_kind_t kind = dnnl_undefined_primitive;
    const char *kernel = "";

    return dnnl_primitive_desc_query(pd, dnnl_query_primitive_kind, 0, &kind) == dnnl_success &&
           kind == dnnl_convolution &&
           dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &kernel) == dnnl_success &&
           strncmp(kernel, "jit", 3) == 0;
}

enum leat_status
cpu_add_primitive(struct cpu_builder *b, dnnl_primitive_desc_t pd, const struct cpu_arg *args, uint32_t arg_count)
{
    const dnnl_memory_desc_t scratch = cpu_query_md(pd, dnnl_query_scratchpad_md);
    struct cpu_step step = {.node = b->node, .branch = CPU_NONE};
    struct cpu_arg *all = calloc(arg_count + 1, sizeof(*all));

    enum leat_status status = all == NULL ? cpu_no_memory() : cpu_model_take(b->model, b->program, CPU_PRIMITIVE_BYTES);
    if (status == LEAT_OK) {
        step.parts = runs_in_parts(pd) ? parts_of(b) : 1;
        leat_openmp_divide(step.parts);
        status = CPU_TRY(b, "kernel", dnnl_primitive_create(&step.primitive, pd));
        leat_openmp_divide(1);
    }
    if (status == LEAT_OK) {
        memcpy(all, args, arg_count * sizeof(*all));
        if (scratch.ndims != 0 && dnnl_memory_desc_get_size(&scratch) > 0) {
            all[arg_count].id = DNNL_ARG_SCRATCHPAD;
            status = cpu_new_in_layout(b, &scratch, &all[arg_count++].tensor);
        }
    }
    if (status == LEAT_OK) {
        status = add_step(b, &step, all, arg_count);
    }
    if (status != LEAT_OK) {
        (void)dnnl_primitive_destroy(step.primitive);
    }
    (void)dnnl_primitive_desc_destroy(pd);
    free(all);
    return status;
}

enum leat_status
cpu_add_kernel(struct cpu_builder *b, enum leat_status (*kernel)(const struct cpu_call *call),
               const struct cpu_arg *args, uint32_t arg_count, struct cpu_step **ret_step)
{
    const struct cpu_step step = {.node = b->node, .kernel = kernel, .branch = CPU_NONE};
    const enum leat_status status = add_step(b, &step, args, arg_count);
    if (status == LEAT_OK) {
        *ret_step = &b->program->steps[b->program->step_count - 1];
    }
    return status;
}

enum leat_status
cpu_add_branches(struct cpu_builder *b, const struct cpu_branch branches[2], const struct cpu_arg *args, uint32_t arg_count)
{
    struct cpu_program *program = b->program;
    const struct cpu_step step = {.node = b->node, .branch = program->branch_count};

    for (int i = 0; i < 2; i++) {
        const enum leat_status status =
            cpu_grow(&program->branches, program->branch_count, &program->branch_room, sizeof(*program->branches));
        if (status != LEAT_OK) {
            for (; i < 2; i++) {
                cpu_program_destroy(branches[i].program);
            }
            return status;
        }
        program->branches[program->branch_count++] = branches[i];
    }
    return add_step(b, &step, args, arg_count);
}

struct cpu_function
cpu_activation_of(const struct leat_node *node)
{
    switch (node->fused_activation) {
    case LEAT_ACTIVATION_CLIP:
        return (struct cpu_function){dnnl_eltwise_clip, node->clip_min, node->clip_max};
    case LEAT_ACTIVATION_SIGMOID:
        return (struct cpu_function){dnnl_eltwise_logistic, 0, 0};
    case LEAT_ACTIVATION_TANH:
        return (struct cpu_function){dnnl_eltwise_tanh, 0, 0};
    case LEAT_ACTIVATION_SWISH:
        return (struct cpu_function){dnnl_eltwise_swish, 1, 0};
    case LEAT_ACTIVATION_HARD_SWISH:
        return (struct cpu_function){dnnl_eltwise_hardswish, 0, 0};
    case LEAT_ACTIVATION_GELU:
        return (struct cpu_function){dnnl_eltwise_gelu_erf, 0, 0};
    case LEAT_ACTIVATION_GELU_TANH:
        return (struct cpu_function){dnnl_eltwise_gelu_tanh, 0, 0};
    case LEAT_ACTIVATION_LEAKY_RELU:
        return (struct cpu_function){dnnl_eltwise_relu, node->slope, 0};
    case LEAT_ACTIVATION_NONE:
    case LEAT_ACTIVATION_RELU:
        break;
    }
    LEAT_ASSERT(node->fused_activation == LEAT_ACTIVATION_RELU);
    return (struct cpu_function){dnnl_eltwise_relu, 0, 0};
}

/* An attribute with user scratchpad; NULL on failure, with the text recorded. */
static enum leat_status
make_attributes(struct cpu_builder *b, bool fused, dnnl_primitive_attr_t *ret)
{
    const struct leat_node *node = b->node;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t post = NULL;

    enum leat_status status = CPU_TRY(b, "attributes", dnnl_primitive_attr_create(&attributes));
    if (status == LEAT_OK) {
        status = CPU_TRY(b, "attributes", dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    }
    if (status == LEAT_OK && fused) {
        status = CPU_TRY(b, "attributes", dnnl_post_ops_create(&post));
        if (status == LEAT_OK && node->fused_add != LEAT_VALUE_NONE) {
            status = CPU_TRY(b, "fused sum", dnnl_post_ops_append_sum(post, 1.0f));
        }
        if (status == LEAT_OK && node->fused_activation != LEAT_ACTIVATION_NONE && !cpu_activates_apart(b)) {
            const struct cpu_function f = cpu_activation_of(node);
            status = CPU_TRY(b, "fused activation",
                             dnnl_post_ops_append_eltwise(post, 1.0f, f.algorithm, f.alpha, f.beta));
        }
        if (status == LEAT_OK) {
            status = CPU_TRY(b, "fused operators", dnnl_primitive_attr_set_post_ops(attributes, post));
        }
        (void)dnnl_post_ops_destroy(post);
    }
    if (status != LEAT_OK) {
        (void)dnnl_primitive_attr_destroy(attributes);
        return status;
    }
    *ret = attributes;
    return LEAT_OK;
}

static enum leat_status
set_zero(struct cpu_builder *b, dnnl_primitive_attr_t attributes, int argument, int32_t zero)
{
    return zero == 0
               ? LEAT_OK
               : CPU_TRY(b, "attributes",
                         dnnl_primitive_attr_set_zero_points(attributes, argument, 1, 0, &zero));
}

/* An input, and a result, item by item. LEAT_AGAIN: copied and converted at once it is there as soon. */
static enum leat_status
gather(struct cpu_builder *b, uint32_t from, uint32_t to, struct cpu_arg args[2])
{
    const enum leat_status status = cpu_gathers(b, from) ? cpu_by_item(b, from, &args[0].tensor) : LEAT_AGAIN;
    return status == LEAT_OK ? cpu_by_item(b, to, &args[1].tensor) : status;
}

enum leat_status
cpu_add_reorder(struct cpu_builder *b, uint32_t from, uint32_t to)
{
    const float factor = b->program->tensors[from].scale / b->program->tensors[to].scale;
    const int32_t zeros[2] = {b->program->tensors[from].zero, b->program->tensors[to].zero};
    const bool same = factor == 1 && zeros[0] == zeros[1]; /* numbers only move */
    struct cpu_arg args[2] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    dnnl_engine_t engine = cpu_model_engine(b->model);
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t pd;

    enum leat_status status = gather(b, from, to, args);
    const bool each = status == LEAT_OK;
    if (status == LEAT_AGAIN) {
        args[0].tensor = from;
        status = LEAT_OK;
    }
    if (status == LEAT_OK) {
        status = make_attributes(b, false, &attributes);
    }
    if (status == LEAT_OK && factor != 1) {
        status = cpu_set_factors(b, attributes, &(struct cpu_factors){&factor, 1, 0});
    }
    if (status == LEAT_OK && !same) {
        status = set_zero(b, attributes, DNNL_ARG_FROM, zeros[0]);
    }
    if (status == LEAT_OK && !same) {
        status = set_zero(b, attributes, DNNL_ARG_TO, zeros[1]);
    }
    if (status == LEAT_OK) {
        status = CPU_TRY(b, "layout conversion",
                         dnnl_reorder_primitive_desc_create(&pd, &b->program->tensors[args[0].tensor].md, engine,
                                                            &b->program->tensors[args[1].tensor].md, engine, attributes));
    }
    (void)dnnl_primitive_attr_destroy(attributes);
    if (status == LEAT_OK) {
        status = cpu_add_primitive(b, pd, args, 2);
    }
    if (status == LEAT_OK) {
        b->program->steps[b->program->step_count - 1].each = each;
    }
    return status;
}

/* For as many threads as run it. */
static dnnl_status_t
describe(const struct cpu_builder *b, const_dnnl_op_desc_t op,
         const_dnnl_primitive_attr_t attributes, dnnl_primitive_desc_t *ret_pd)
{
    const bool convolves =
        *(const dnnl_primitive_kind_t *)op == dnnl_convolution; /* with which all of them begin */
    dnnl_engine_t engine = cpu_model_engine(b->model);

    leat_openmp_divide(convolves ? parts_of(b) : 1);
    dnnl_status_t described = dnnl_primitive_desc_create(ret_pd, op, attributes, engine, NULL);
    leat_openmp_divide(1);
    if (convolves && described == dnnl_success && !runs_in_parts(*ret_pd)) {
        (void)dnnl_primitive_desc_destroy(*ret_pd);
        described = dnnl_primitive_desc_create(ret_pd, op, attributes, engine, NULL);
    }
    return described;
}

enum leat_status
cpu_describe(struct cpu_builder *b, const_dnnl_op_desc_t op, bool fused, dnnl_primitive_desc_t *ret_pd)
{
    dnnl_primitive_attr_t attributes;

    enum leat_status status = make_attributes(b, fused, &attributes);
    if (status != LEAT_OK) {
        return status;
    }
    const dnnl_status_t described = describe(b, op, attributes, ret_pd);
    (void)dnnl_primitive_attr_destroy(attributes);
    return described == dnnl_unimplemented ? LEAT_AGAIN : CPU_TRY(b, "operation", described);
}

bool
cpu_is_plain_loops(const_dnnl_primitive_desc_t pd)
{
    const char *kernel = "";
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &kernel) == dnnl_success &&
           (strncmp(kernel, "ref", 3) == 0 || strncmp(kernel, "simple", 6) == 0);
}

enum leat_status
cpu_describe_as(struct cpu_builder *b, const_dnnl_op_desc_t op, const_dnnl_primitive_attr_t attributes,
                dnnl_primitive_desc_t *ret_pd)
{
    const dnnl_status_t described = describe(b, op, attributes, ret_pd);

    if (described == dnnl_success && cpu_is_plain_loops(*ret_pd)) {
        (void)dnnl_primitive_desc_destroy(*ret_pd);
        return LEAT_AGAIN;
    }
    return described == dnnl_unimplemented ? LEAT_AGAIN : CPU_TRY(b, "operation", described);
}

bool
cpu_may_overwrite(const struct cpu_builder *b, uint32_t value, uint32_t tensor)
{
    for (uint32_t i = 0; i < b->graph->input_count; i++) {
        if (b->graph->inputs[i] == value) {
            return false;
        }
    }
    return cpu_model_plans(b->model, LEAT_PLANS_IN_PLACE) && b->uses[value] == 1 && !b->aliased[value] && b->program->tensors[tensor].constant == NULL;
}

enum leat_status
cpu_destination(struct cpu_builder *b, const dnnl_memory_desc_t *md, uint32_t *ret_tensor)
{
    const uint32_t addend = b->node->fused_add;
    uint32_t from;

    if (addend == LEAT_VALUE_NONE) {
        return cpu_new_in_layout(b, md, ret_tensor);
    }
    enum leat_status status = cpu_best(b, addend, &from);
    if (status != LEAT_OK) {
        return status;
    }
    const struct cpu_tensor *tensor = &b->program->tensors[from];
    if (cpu_may_overwrite(b, addend, from) && cpu_same_bytes(&tensor->md, md)) {
        return cpu_view(b, from, md, ret_tensor);
    }
    status = cpu_new_in_layout(b, md, ret_tensor);
    return status == LEAT_OK ? cpu_add_reorder(b, from, *ret_tensor) : status;
}

/* ---- The whole graph --------------------------------------------------------------------------------- */

static enum leat_status
lower_as_kind(struct cpu_builder *b)
{
    switch (b->node->op->kind) {
    case LEAT_OP_CONV:
        return cpu_lower_conv(b);
    case LEAT_OP_CONV_TRANSPOSE:
        return cpu_lower_conv_transpose(b);
    case LEAT_OP_GEMM:
        return cpu_lower_gemm(b);
    case LEAT_OP_MATMUL:
        return cpu_lower_matmul(b);
    case LEAT_OP_ATTENTION:
        return cpu_lower_attention(b);
    case LEAT_OP_MAX_POOL:
    case LEAT_OP_AVERAGE_POOL:
        return cpu_lower_pool(b);
    case LEAT_OP_GLOBAL_AVERAGE_POOL:
    case LEAT_OP_GLOBAL_MAX_POOL:
        return cpu_lower_global_pool(b);
    case LEAT_OP_RESIZE:
    case LEAT_OP_UPSAMPLE:
        return cpu_lower_resize(b);
    case LEAT_OP_BATCH_NORMALIZATION:
        return cpu_lower_batch_norm(b);
    case LEAT_OP_ADD:
    case LEAT_OP_SUB:
    case LEAT_OP_MUL:
    case LEAT_OP_DIV:
        return cpu_lower_binary(b);
    case LEAT_OP_AND:
    case LEAT_OP_BIT_SHIFT:
    case LEAT_OP_EQUAL:
    case LEAT_OP_GREATER:
    case LEAT_OP_GREATER_OR_EQUAL:
    case LEAT_OP_LESS:
    case LEAT_OP_LESS_OR_EQUAL:
    case LEAT_OP_MOD:
    case LEAT_OP_OR:
    case LEAT_OP_PRELU:
    case LEAT_OP_XOR:
        return cpu_lower_broadcast(b);
    case LEAT_OP_MEAN:
    case LEAT_OP_SUM:
        return cpu_lower_total(b);
    case LEAT_OP_MAX:
    case LEAT_OP_MIN:
        return cpu_lower_extreme(b);
    case LEAT_OP_WHERE:
        return cpu_lower_where(b);
    case LEAT_OP_CAST:
        return cpu_lower_cast(b);
    case LEAT_OP_LOG_SOFTMAX:
    case LEAT_OP_SOFTMAX:
        return cpu_lower_softmax(b);
    case LEAT_OP_SPLIT:
        return cpu_lower_split(b);
    case LEAT_OP_LAYER_NORMALIZATION:
        return cpu_lower_layer_norm(b);
    case LEAT_OP_LP_NORMALIZATION:
        return cpu_lower_lp_normalization(b);
    case LEAT_OP_REDUCE_L1:
    case LEAT_OP_REDUCE_L2:
    case LEAT_OP_REDUCE_LOG_SUM:
    case LEAT_OP_REDUCE_LOG_SUM_EXP:
    case LEAT_OP_REDUCE_MAX:
    case LEAT_OP_REDUCE_MEAN:
    case LEAT_OP_REDUCE_MIN:
    case LEAT_OP_REDUCE_PROD:
    case LEAT_OP_REDUCE_SUM:
    case LEAT_OP_REDUCE_SUM_SQUARE:
        return cpu_lower_reduce(b);
    case LEAT_OP_ARG_MAX:
    case LEAT_OP_ARG_MIN:
        return cpu_lower_arg_extreme(b);
    case LEAT_OP_CUM_SUM:
        return cpu_lower_cum_sum(b);
    case LEAT_OP_DFT:
        return cpu_lower_dft(b);
    case LEAT_OP_STFT:
        return cpu_lower_stft(b);
    case LEAT_OP_TOP_K:
        return cpu_lower_top_k(b);
    case LEAT_OP_RESHAPE:
    case LEAT_OP_FLATTEN:
    case LEAT_OP_SQUEEZE:
    case LEAT_OP_UNSQUEEZE:
    case LEAT_OP_IDENTITY:
    case LEAT_OP_DROPOUT:
        return cpu_lower_view(b);
    case LEAT_OP_CONCAT:
        return cpu_lower_concat(b);
    case LEAT_OP_DEPTH_TO_SPACE:
    case LEAT_OP_EXPAND:
    case LEAT_OP_SPACE_TO_DEPTH:
    case LEAT_OP_TILE:
    case LEAT_OP_TRANSPOSE:
        return cpu_lower_copy(b);
    case LEAT_OP_PAD:
        return cpu_lower_pad(b);
    case LEAT_OP_GATHER:
        return cpu_lower_gather(b);
    case LEAT_OP_GATHER_ELEMENTS:
        return cpu_lower_gather_elements(b);
    case LEAT_OP_ONE_HOT:
        return cpu_lower_one_hot(b);
    case LEAT_OP_TRILU:
        return cpu_lower_trilu(b);
    case LEAT_OP_EMBEDDING_BAG:
        return cpu_lower_embedding_bag(b);
    case LEAT_OP_SLICE:
        return cpu_lower_slice(b);
#if defined(__x86_64__)
    case LEAT_OP_GRID_SAMPLE:
        return cpu_lower_grid_sample(b);
    case LEAT_OP_INSTANCE_NORMALIZATION:
        return cpu_lower_instance_norm(b);
    case LEAT_OP_GRU:
    case LEAT_OP_LSTM:
    case LEAT_OP_RNN:
        return cpu_lower_recurrent(b);
#endif
    case LEAT_OP_IF:
        return cpu_lower_if(b);
    case LEAT_OP_QLINEAR_LOOKUP:
        return cpu_lower_qlinear_lookup(b);
    case LEAT_OP_QLINEAR_ADD:
    case LEAT_OP_QLINEAR_MUL:
        return cpu_lower_qlinear_add(b);
    case LEAT_OP_QLINEAR_CONV:
        return cpu_lower_qlinear_conv(b);
    case LEAT_OP_QLINEAR_MATMUL:
        return cpu_lower_qlinear_matmul(b);
#if defined(__x86_64__)
    case LEAT_OP_MATMUL_INTEGER:
    case LEAT_OP_MATMUL_INTEGER_TO_FLOAT:
        return cpu_lower_integers(b);
    case LEAT_OP_CONV_INTEGER:
        return cpu_lower_conv_integer(b);
#endif
    case LEAT_OP_QUANTIZE_LINEAR:
    case LEAT_OP_DEQUANTIZE_LINEAR:
        return cpu_lower_scale_tensor(b);
    case LEAT_OP_DYNAMIC_QUANTIZE_LINEAR:
        return cpu_lower_dynamic_quantise(b);
    case LEAT_OP_IS_INF:
    case LEAT_OP_IS_NAN:
    case LEAT_OP_NOT:
        return cpu_lower_test(b);
    case LEAT_OP_HARDMAX:
        return cpu_lower_hardmax(b);
    case LEAT_OP_MEAN_VARIANCE_NORMALIZATION:
        return cpu_lower_mean_variance(b);
    case LEAT_OP_POW:
        return cpu_lower_power(b);
    default:
        return cpu_lower_unary(b);
    }
}

static bool
touches_bounded(const struct leat_graph *graph, const struct leat_node *node)
{
    bool bounded = leat_node_reads_bounded(graph, node);

    for (uint32_t o = 0; o < node->output_count; o++) {
        const struct leat_value *output = leat_node_output(graph, node, o);
        bounded = bounded || (output != NULL && output->bounded);
    }
    return bounded;
}

/* Its results, whatever layout its kernel gave them, where layouts are not handed on. */
static enum leat_status
make_results_plain(struct cpu_builder *b, const struct leat_node *node)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t o = 0; o < node->output_count && status == LEAT_OK; o++) {
        const uint32_t value = node->outputs[o], whole = value != LEAT_VALUE_NONE ? b->whole[value] : CPU_NONE;
        if (whole != CPU_NONE) {
            const struct cpu_tensor from = b->program->tensors[whole];
            dnnl_memory_desc_t md = cpu_value_md(&b->graph->values[value]);
            md.data_type = from.md.data_type;
            if (cpu_same_bytes(&from.md, &md)) {
                continue;
            }
            status = cpu_new_in_layout(b, &md, &b->whole[value]);
            if (status == LEAT_OK) {
                b->program->tensors[b->whole[value]].scale = from.scale;
                b->program->tensors[b->whole[value]].zero = from.zero;
                status = cpu_add_reorder(b, whole, b->whole[value]);
            }
        } else if (value != LEAT_VALUE_NONE) {
            status = cpu_plain(b, value, &b->best[value]);
        }
    }
    return status;
}

/* The node has read what it reads. */
static void
release_inputs(struct cpu_builder *b, const struct leat_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != LEAT_VALUE_NONE) {
            b->uses[node->inputs[i]]--;
        }
    }
    if (node->fused_add != LEAT_VALUE_NONE) {
        b->uses[node->fused_add]--;
    }
}

/* Of doubles or integers, where lowering goes by what floats are. */
static bool
is_of_other_type(const struct leat_graph *graph, const struct leat_node *node)
{
    switch (node->op->kind) {
    case LEAT_OP_BATCH_NORMALIZATION:
    case LEAT_OP_CONV:
    case LEAT_OP_CONV_TRANSPOSE:
    case LEAT_OP_GEMM:
    case LEAT_OP_GLOBAL_AVERAGE_POOL:
    case LEAT_OP_GLOBAL_MAX_POOL:
    case LEAT_OP_MATMUL:
        return leat_node_input(graph, node, 0)->dtype != LEAT_DTYPE_F32;
    default:
        return false;
    }
}

static enum leat_status
lower(struct cpu_builder *b, const struct leat_node *node)
{
    const uint32_t first = node->input_count > 0 ? node->inputs[0] : LEAT_VALUE_NONE;
    const struct leat_node *waiting = first != LEAT_VALUE_NONE ? b->waiting[first] : NULL;
    const bool fused = node->fused_add != LEAT_VALUE_NONE || node->fused_activation != LEAT_ACTIVATION_NONE;
    const bool fusible = node->op->kind == LEAT_OP_CONV || node->op->kind == LEAT_OP_GEMM ||
                         node->op->kind == LEAT_OP_MATMUL || node->op->kind == LEAT_OP_MATMUL_INTEGER_TO_FLOAT;

    b->node = node;
    /* What is as large as it turns out to be in a run is for the reference functions, but for what a branch makes. */
    const bool bounded = touches_bounded(b->graph, node), other = is_of_other_type(b->graph, node);
    const bool apart = other || (bounded && node->op->kind != LEAT_OP_IF);
#if defined(__x86_64__)
    if (!bounded && !other && cpu_model_plans(b->model, LEAT_PLANS_LAYOUTS) && cpu_expansion_waits(b)) {
        b->waiting[node->outputs[0]] = node;
        return LEAT_OK;
    }
    if (waiting != NULL) {
        const enum leat_status together = cpu_lower_expansion(b, waiting);
        release_inputs(b, waiting);
        release_inputs(b, node);
        return together;
    }
#endif
    enum leat_status status = apart || (fused && !fusible) ? LEAT_AGAIN : lower_as_kind(b);
    if (status == LEAT_AGAIN) {
        status = cpu_lower_reference(b);
    }
    if (status == LEAT_OK && !cpu_model_plans(b->model, LEAT_PLANS_LAYOUTS)) {
        status = make_results_plain(b, node);
    }
    if (status == LEAT_OK && b->observer != NULL && !bounded) {
        status = cpu_observe(b);
    }
    release_inputs(b, node);
    return status;
}

static enum leat_status
make_inputs(struct cpu_builder *b)
{
    struct cpu_program *program = b->program;

    for (uint32_t i = 0; i < b->graph->input_count; i++) {
        const uint32_t value = b->graph->inputs[i];
        const dnnl_memory_desc_t md = cpu_value_md(&b->graph->values[value]);
        const size_t bytes = leat_value_bytes(&b->graph->values[value]);
        uint32_t tensor, list;
        enum leat_status status = cpu_new_tensor(b, &md, bytes, &tensor);
        if (status == LEAT_OK) {
            status = cpu_add_list(program, program->tensors[tensor].buffer, program->items, bytes / program->items, &list);
        }
        if (status != LEAT_OK) {
            return status;
        }
        program->plain[value] = b->best[value] = tensor;
        if (!program->is_branch) { /* which may have more of them */
            program->inputs[i] = tensor;
        }
    }
    return LEAT_OK;
}

/* What some step reads as one block: all are copied before the first. A branch reads its inputs where they are. */
static void
copy_inputs(struct cpu_program *program)
{
    for (uint32_t i = 0; i < program->graph->input_count; i++) {
        struct cpu_buffer *buffer = &program->buffers[program->lists[i].buffer];
        if (program->is_branch) {
            LEAT_ASSERT(program->lists[i].buffer == i); /* cpu_run_tensor() goes by that */
            buffer->first = CPU_NONE;
            continue;
        }
        program->copied[i] = buffer->first != CPU_NONE;
        if (program->copied[i]) {
            buffer->first = 0;
        }
    }
}

static enum leat_status
make_outputs(struct cpu_builder *b)
{
    struct cpu_program *program = b->program;

    _Static_assert(LEAT_NODE_OUTPUTS_MAX <= LEAT_TENSORS_MAX, "what a branch yields its If has");
    LEAT_ASSERT(b->graph->output_count <= LEAT_TENSORS_MAX);
    b->node = NULL;
    for (uint32_t o = 0; o < b->graph->output_count; o++) {
        const enum leat_status status = cpu_plain(b, b->graph->outputs[o], &program->outputs[o]);
        if (status != LEAT_OK) {
            return status;
        }
    }
    for (uint32_t o = 0; o < b->graph->output_count; o++) {
        touch(program, program->outputs[o], program->step_count); /* read after the last step */
    }
    return LEAT_OK;
}

static enum leat_status
lower_graph(struct cpu_builder *b)
{
    struct cpu_program *program = b->program;
    const size_t values = (size_t)b->graph->value_count + 1;

    b->best = malloc(values * sizeof(*b->best));
    b->uses = calloc(values, sizeof(*b->uses));
    b->waiting = calloc(values, sizeof(const struct leat_node *));
    b->aliased = calloc(values, sizeof(*b->aliased));
    program->plain = malloc(values * sizeof(*program->plain));
    b->whole = malloc(values * sizeof(*b->whole));
    b->wants_whole = calloc(values, sizeof(*b->wants_whole));
    b->shifted = calloc(values, sizeof(*b->shifted));
    b->quantised = calloc((size_t)b->graph->node_count + 1, sizeof(*b->quantised));
    if (b->best == NULL || b->uses == NULL || b->waiting == NULL || b->aliased == NULL ||
        program->plain == NULL || b->whole == NULL || b->wants_whole == NULL ||
        b->shifted == NULL || b->quantised == NULL) {
        return cpu_no_memory();
    }
    memset(b->whole, 0xff, values * sizeof(*b->whole)); /* CPU_NONE */
    memset(b->best, 0xff, values * sizeof(*b->best)); /* CPU_NONE */
    memset(program->plain, 0xff, values * sizeof(*program->plain));
    leat_graph_count_uses(b->graph, b->uses);
    if (cpu_model_is_quantised(b->model) && !program->is_branch) { /* calibration saw nothing in there */
        cpu_plan_quantised(b);
    }
    enum leat_status status = make_inputs(b);
    for (uint32_t n = 0; n < b->graph->node_count && status == LEAT_OK; n++) {
        status = lower(b, &b->graph->nodes[n]);
    }
    if (status == LEAT_OK) {
        status = make_outputs(b);
    }
    if (status == LEAT_OK) {
        uint64_t looks;
        copy_inputs(program);
        cpu_join_look_ups(program);
        status = cpu_model_plans(b->model, LEAT_PLANS_MEMORY)
                     ? cpu_place_buffers(program->buffers, program->buffer_count, &program->scratch_bytes, &looks)
                     : cpu_place_apart(program->buffers, program->buffer_count, &program->scratch_bytes);
    }
    return status == LEAT_OK ? cpu_model_may_take(b->model, program->scratch_bytes) : status;
}

static enum leat_status
build(struct cpu_builder *b)
{
    const enum leat_status status = lower_graph(b);

    free(b->best);
    free(b->uses);
    free(b->waiting);
    free(b->aliased);
    free(b->whole);
    free(b->wants_whole);
    free(b->shifted);
    free(b->quantised);
    leat_elements_fini(&b->opened);
    return status;
}

/* What this number of items made constant. */
static enum leat_status
take_folded(struct cpu_program *program)
{
    struct leat_payload *payloads;
    uint64_t bytes = 0;
    size_t count;

    const enum leat_status status = leat_graphs_payloads(&program->graph, 1, &payloads, &count);
    if (status != LEAT_OK) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        bytes += !cpu_model_owns(program->model, payloads[i].data) ? payloads[i].bytes : 0;
    }
    free(payloads);
    return cpu_model_take(program->model, program, bytes);
}

static enum leat_status
build_program(struct leat_model *model, const struct leat_graph *graph, uint32_t items, uint32_t threads,
              struct cpu_observer *observer, struct cpu_program **ret_program)
{
    struct cpu_program *program = calloc(1, sizeof(*program));
    struct cpu_builder b = {.model = model, .program = program, .observer = observer};

    if (program == NULL) {
        return cpu_no_memory();
    }
    program->model = model;
    program->items = items;
    program->threads = threads;
    program->observer = observer;
    enum leat_status status = leat_graph_specialise(graph, items, &program->graph);
    if (status == LEAT_OK) {
        status = take_folded(program);
    }
    if (status == LEAT_OK) {
        b.graph = program->graph;
        /* oneDNN asks how many threads there will be while it chooses a kernel. */
        const uint32_t before = leat_openmp_pretend(threads);
        status = build(&b);
        (void)leat_openmp_pretend(before);
    }
    if (status != LEAT_OK) {
        cpu_program_destroy(program);
        return status;
    }
    *ret_program = program;
    return LEAT_OK;
}

enum leat_status
cpu_program_build_branch(const struct cpu_builder *around, struct leat_graph *inner, struct cpu_program **ret_program)
{
    struct cpu_program *program = calloc(1, sizeof(*program));
    struct cpu_builder b = {.model = around->model, .program = program, .graph = inner};

    if (program == NULL) {
        return cpu_no_memory();
    }
    program->model = around->model;
    program->items = 1; /* one condition is for all: it sees no batch */
    program->threads = around->program->threads;
    program->graph = inner;
    program->is_branch = true;
    const enum leat_status status = build(&b);
    if (status != LEAT_OK) {
        cpu_program_destroy(program);
        return status;
    }
    *ret_program = program;
    return LEAT_OK;
}

enum leat_status
cpu_program_build(struct leat_model *model, const struct leat_graph *graph, uint32_t items, uint32_t threads,
                  struct cpu_program **ret_program)
{
    return build_program(model, graph, items, threads, NULL, ret_program);
}

enum leat_status
cpu_program_build_observed(struct leat_model *model, const struct leat_graph *graph, uint32_t items,
                           struct cpu_observer *observer, struct cpu_program **ret_program)
{
    return build_program(model, graph, items, 1, observer, ret_program);
}

void
cpu_program_destroy(struct cpu_program *program)
{
    if (program == NULL) {
        return;
    }
    for (uint32_t s = 0; s < program->step_count; s++) {
        (void)dnnl_primitive_destroy(program->steps[s].primitive);
        free(program->steps[s].args);
    }
    for (uint32_t i = 0; i < program->branch_count; i++) {
        cpu_program_destroy(program->branches[i].program); /* as deep as the file nests them */
    }
    cpu_constants_fini(&program->constants);
    cpu_model_give_back(program->model, program->memory_bytes);
    if (!program->is_branch) {
        leat_graph_destroy(program->graph);
    }
    free(program->branches);
    free(program->tensors);
    free(program->buffers);
    free(program->steps);
    free(program->lists);
    free(program->plain);
    free(program);
}
