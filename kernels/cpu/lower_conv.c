/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions on kernels of our own, which need AVX-512 and activations with channels last: that is how oneDNN wants
 * them on such CPUs. Which one a convolution gets follows from its shape and the number of threads alone.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/depthwise.h"
#include "kernels/cpu/direct.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/program.h"
#include "kernels/cpu/winograd.h"
#include "kernels/op.h"
#include "kernels/team.h"
#include "kernels/window.h"

enum {
    /*
     * Winograd's weights are four times as many, and every member reads them all: with fewer tiles of 4x4 results for
     * each member than this, that costs more than the multiplications that it saves.
     */
    TILES_LEAST = 16,
    /*
     * Weights that do not stay in the caches: ours come in ahead of time, oneDNN's do not. Where they do stay, ours are
     * as fast at best, or faster for a 1x1 convolution of whole panels that waits for its activations.
     */
    POINT_WEIGHTS_BYTES = 512 << 10, /* of 1x1 convolutions */
    WINDOW_WEIGHTS_BYTES = 2 << 20,
    TAPS_MAX = 64, /* pixels of a window: the table of them grows with it */
};

enum { SOURCE, RESULT, WEIGHTS, SCRATCH, BIAS, ARGS }; /* of a step; the last only where there is a bias */

bool
cpu_has_channels_last(const dnnl_memory_desc_t *md)
{
    const int64_t *d = md->dims;
    const int64_t dims[4] = {d[0], d[1], d[2], d[3]}, strides[4] = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};

    if (md->ndims != 4 || md->data_type != dnnl_f32 || md->format_kind != dnnl_blocked) {
        return false;
    }
    const dnnl_memory_desc_t wanted = cpu_strided_md(dims, strides, 4);
    return cpu_same_bytes(md, &wanted);
}

static float
least_of(const struct leat_node *node)
{
    return node->fused_activation == LEAT_ACTIVATION_CLIP ? node->clip_min
           : node->fused_activation == LEAT_ACTIVATION_RELU ? 0
                                                            : -INFINITY;
}

static float
most_of(const struct leat_node *node)
{
    return node->fused_activation == LEAT_ACTIVATION_CLIP ? node->clip_max : INFINITY;
}

static enum leat_activation
smooth_of(const struct leat_node *node)
{
    return cpu_activation_runs_here(node->fused_activation) ? node->fused_activation : LEAT_ACTIVATION_NONE;
}

/* ---- Parameters: made when a convolution is lowered, and again from the step when it runs --------------- */

static struct cpu_direct
direct_of(const struct leat_node *node, const int64_t *source, const int64_t *result, const int64_t *window)
{
    return (struct cpu_direct){
        .items = source[0], .inputs = source[1], .outputs = result[1],
        .height = source[2], .width = source[3], .out_height = result[2], .out_width = result[3],
        .kernel_down = window[0], .kernel_across = window[1],
        .stride_down = window[2], .stride_across = window[3],
        .pad_top = window[4], .pad_left = window[5],
        .add = node->fused_add != LEAT_VALUE_NONE, .least = least_of(node), .most = most_of(node),
        .smooth = smooth_of(node),
    };
}

static struct cpu_depthwise
depthwise_of(const struct leat_node *node, const int64_t *source, const int64_t *result, const int64_t *window)
{
    return (struct cpu_depthwise){
        .items = source[0], .channels = source[1],
        .height = source[2], .width = source[3], .out_height = result[2], .out_width = result[3],
        .kernel_down = window[0], .kernel_across = window[1],
        .stride_down = window[2], .stride_across = window[3],
        .pad_top = window[4], .pad_left = window[5],
        .least = least_of(node), .most = most_of(node), .smooth = smooth_of(node),
    };
}

static struct cpu_winograd
winograd_of(const struct leat_node *node, const int64_t *source, const int64_t *result, const int64_t *window)
{
    return (struct cpu_winograd){
        .items = source[0], .inputs = source[1], .outputs = result[1],
        .height = source[2], .width = source[3], .out_height = result[2], .out_width = result[3],
        .pad_top = window[4], .pad_left = window[5],
        .add = node->fused_add != LEAT_VALUE_NONE, .least = least_of(node), .most = most_of(node),
    };
}

/* ---- Run -------------------------------------------------------------------------------------------- */

struct work {
    const struct cpu_call *call;
    void (*run)(const struct work *work, uint32_t member);
    uint32_t members;
    struct cpu_depthwise depthwise;
    struct cpu_direct direct;
    struct cpu_winograd winograd;
};

static const float *
bias_of(const struct cpu_call *call)
{
    return call->step->arg_count > BIAS ? call->pointers[BIAS] : NULL;
}

static void
run_direct(const struct work *work, uint32_t member)
{
    void *const *p = work->call->pointers;
    unsigned char *scratch = (unsigned char *)p[SCRATCH] + member * cpu_direct_scratch_bytes(&work->direct);
    cpu_direct_run(&work->direct, p[SOURCE], p[WEIGHTS], bias_of(work->call), p[RESULT], scratch, member, work->members);
}

static void
run_depthwise(const struct work *work, uint32_t member)
{
    void *const *p = work->call->pointers;
    unsigned char *scratch = (unsigned char *)p[SCRATCH] + member * cpu_depthwise_scratch_bytes(&work->depthwise);
    cpu_depthwise_run(&work->depthwise, p[SOURCE], p[WEIGHTS], bias_of(work->call), p[RESULT], scratch, member,
                      work->members);
}

static void
run_winograd(const struct work *work, uint32_t member)
{
    void *const *p = work->call->pointers;
    unsigned char *scratch = (unsigned char *)p[SCRATCH] + member * cpu_winograd_scratch_bytes(&work->winograd);
    cpu_winograd_run(&work->winograd, p[SOURCE], p[WEIGHTS], bias_of(work->call), p[RESULT], (float *)(void *)scratch,
                     member, work->members);
}

static void
run_member(void *context, uint32_t member, uint32_t size)
{
    const struct work *work = context;

    (void)size;
    if (member < work->members) {
        work->run(work, member);
    }
}

static void
run(const struct cpu_call *call, struct work *work)
{
    work->call = call;
    work->members = call->program->threads;
    if (work->members > 1) {
        leat_team_run(call->team, run_member, work);
    } else {
        work->run(work, 0);
    }
}

static const int64_t *
dims_of(const struct cpu_call *call, uint32_t arg)
{
    return call->program->tensors[call->step->args[arg].tensor].md.dims;
}

static enum leat_status
direct(const struct cpu_call *call)
{
    struct work work = {.run = run_direct};
    work.direct = direct_of(call->step->node, dims_of(call, SOURCE), dims_of(call, RESULT), call->step->dims);
    run(call, &work);
    return LEAT_OK;
}

static enum leat_status
depthwise(const struct cpu_call *call)
{
    struct work work = {.run = run_depthwise};
    work.depthwise = depthwise_of(call->step->node, dims_of(call, SOURCE), dims_of(call, RESULT), call->step->dims);
    run(call, &work);
    return LEAT_OK;
}

static enum leat_status
winograd(const struct cpu_call *call)
{
    struct work work = {.run = run_winograd};
    work.winograd = winograd_of(call->step->node, dims_of(call, SOURCE), dims_of(call, RESULT), call->step->dims);
    run(call, &work);
    return LEAT_OK;
}

/* ---- Lowering --------------------------------------------------------------------------------------- */

static void
pack_direct(const struct leat_value *weights, void *ret_packed)
{
    const int64_t *w = weights->dims;
    cpu_direct_pack(&(struct cpu_direct){.outputs = w[0], .inputs = w[1], .kernel_down = w[2], .kernel_across = w[3]},
                    weights->data, ret_packed);
}

static void
pack_depthwise(const struct leat_value *weights, void *ret_packed)
{
    const int64_t *w = weights->dims;
    cpu_depthwise_pack(&(struct cpu_depthwise){.channels = w[0], .kernel_down = w[2], .kernel_across = w[3]},
                       weights->data, ret_packed);
}

static void
pack_winograd(const struct leat_value *weights, void *ret_packed)
{
    cpu_winograd_pack(weights->data, weights->dims[1], weights->dims[0], ret_packed);
}

/* What all kernels ask for. */
static bool
fits(const struct cpu_builder *b, const struct cpu_conv *conv)
{
    const struct leat_value *weights = leat_node_input(b->graph, b->node, 1);
    const struct leat_window *w = conv->window;

    const enum leat_activation activation = b->node->fused_activation;

    if (activation > LEAT_ACTIVATION_CLIP && !cpu_activation_runs_here(activation)) {
        return false;
    }
    return cpu_winograd_runs_here() && cpu_has_channels_last(conv->source) && cpu_has_channels_last(conv->result) &&
           weights->data != NULL && conv->result->dims[1] % CPU_LANES == 0 &&
           w->rank == 2 && w->dilation[LEAT_WINDOW_RANK - 2] == 1 && w->dilation[LEAT_WINDOW_RANK - 1] == 1;
}

static bool
suits_winograd(const struct cpu_builder *b, const struct cpu_conv *conv, const int64_t *window)
{
    const int64_t *result = conv->result->dims;
    const int64_t tiles = result[0] * ((result[2] + 3) / 4) * ((result[3] + 3) / 4);

    return smooth_of(b->node) == LEAT_ACTIVATION_NONE && window[0] == 3 && window[1] == 3 && window[2] == 1 && window[3] == 1 &&
           conv->source->dims[1] % CPU_WINOGRAD_LANES == 0 && tiles >= (int64_t)TILES_LEAST * b->program->threads;
}

static bool
suits_direct(const struct cpu_direct *conv)
{
    const int64_t taps = conv->kernel_down * conv->kernel_across;
    const size_t bytes = cpu_direct_weights_bytes(conv);

    if (taps == 1) {
        return conv->smooth != LEAT_ACTIVATION_NONE || bytes > POINT_WEIGHTS_BYTES || (conv->outputs % CPU_PANEL == 0 && conv->inputs >= CPU_PANEL);
    }
    return taps <= TAPS_MAX && bytes > WINDOW_WEIGHTS_BYTES;
}

static bool
is_depthwise(const struct cpu_builder *b, const struct cpu_conv *conv)
{
    const int64_t groups = leat_node_int(b->node, "group", 1);
    return groups == conv->source->dims[1] && groups == conv->result->dims[1] && b->node->fused_add == LEAT_VALUE_NONE &&
           smooth_of(b->node) != LEAT_ACTIVATION_NONE; /* else oneDNN is as fast */
}

/* A step of `kernel` with what all of them have in common. */
static enum leat_status
add_step(struct cpu_builder *b, const struct cpu_conv *conv, const int64_t *window,
         enum leat_status (*kernel)(const struct cpu_call *call), cpu_pack pack, size_t weights_bytes, size_t scratch_bytes)
{
    const dnnl_memory_desc_t none = {.ndims = 0};
    const bool has_bias = leat_node_input(b->graph, b->node, 2) != NULL;
    struct cpu_arg args[ARGS] = {{0, 0}};
    struct cpu_step *step;

    enum leat_status status = cpu_in_layout(b, b->node->inputs[0], conv->source, &args[SOURCE].tensor);
    if (status == LEAT_OK) {
        status = cpu_destination(b, conv->result, &args[RESULT].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_constant_packed(b, b->node->inputs[1], pack, weights_bytes, &args[WEIGHTS].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &none, b->program->threads * scratch_bytes, &args[SCRATCH].tensor);
    }
    if (status == LEAT_OK && has_bias) {
        status = cpu_plain(b, b->node->inputs[2], &args[BIAS].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, kernel, args, has_bias ? ARGS : BIAS, &step);
    }
    if (status == LEAT_OK) {
        memcpy(step->dims, window, 6 * sizeof(*window));
        cpu_set_output(b, 0, args[RESULT].tensor);
    }
    return status;
}

enum leat_status
cpu_lower_own_conv(struct cpu_builder *b, const struct cpu_conv *conv)
{
    const int64_t *source = conv->source->dims, *result = conv->result->dims;
    const struct leat_window *w = conv->window;
    const uint32_t y = LEAT_WINDOW_RANK - 2, x = LEAT_WINDOW_RANK - 1;
    const int64_t window[6] = {w->kernel[y], w->kernel[x], w->stride[y], w->stride[x], w->pad_begin[y], w->pad_begin[x]};

    if (!fits(b, conv)) {
        return LEAT_AGAIN;
    }
    if (leat_node_int(b->node, "group", 1) != 1) {
        const struct cpu_depthwise parameters = depthwise_of(b->node, source, result, window);
        return is_depthwise(b, conv) ? add_step(b, conv, window, depthwise, pack_depthwise,
                                                cpu_depthwise_weights_bytes(&parameters),
                                                cpu_depthwise_scratch_bytes(&parameters))
                                     : LEAT_AGAIN;
    }
    if (suits_winograd(b, conv, window)) {
        const struct cpu_winograd parameters = winograd_of(b->node, source, result, window);
        return add_step(b, conv, window, winograd, pack_winograd, cpu_winograd_weights_bytes(source[1], result[1]),
                        cpu_winograd_scratch_bytes(&parameters));
    }
    const struct cpu_direct parameters = direct_of(b->node, source, result, window);
    if (suits_direct(&parameters)) {
        return add_step(b, conv, window, direct, pack_direct, cpu_direct_weights_bytes(&parameters),
                        cpu_direct_scratch_bytes(&parameters));
    }
    return LEAT_AGAIN;
}
