/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions, and products with constant weights, which are 1x1 convolutions, on kernels of our own. Most need AVX-512
 * and activations with channels last: that is how oneDNN wants them on such CPUs. With AVX2, where it wants them in blocks
 * of 8 channels, there are Winograd's and products. Which one a node gets follows from its shape and the number of threads alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/depthwise.h"
#include "kernels/cpu/loops/direct.h"
#include "kernels/cpu/loops/expand.h"
#include "kernels/cpu/loops/image.h"
#include "kernels/cpu/loops/product.h"
#include "kernels/cpu/loops/whole_image.h"
#include "kernels/cpu/loops/winograd.h"
#include "kernels/cpu/program.h"
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
    POINT_WEIGHTS_BYTES = 512 << 10, /* of 1x1 convolutions and products */
    WINDOW_WEIGHTS_BYTES = 2 << 20,
    DIRECT_LEAST = 32 << 10, /* multiplications for each member of a team: fewer are not worth waking it */
    PART_PRODUCTS = 16 << 20, /* multiplications of a part that nobody passes, and the weights that it reads */
    PART_BYTES = 4 << 20,
    PARTS_MOST = 256,
    TAPS_MAX = 64, /* pixels of a window: the table of them grows with it */
    IMAGE_TERMS_MAX = 32, /* of a result, in convolutions of planes: with more, converting them first costs little */
    WIDENED_LEAST = 256, /* columns of a product for which those that fill up a vector are little beside */
    MOVED_LEAST = 16 << 10, /* bytes for each member of a team */
    EXPAND_INPUTS_MAX = 512, /* of an expansion: a panel of its weights stays in the second-level cache */
};

enum { SOURCE, RESULT, WEIGHTS, SCRATCH, BIAS, ARGS }; /* of a step; the last only where there is a bias */

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
        .items = result[0], .inputs = source[1], .outputs = result[1],
        .height = source[2], .width = source[3], .out_height = result[2], .out_width = result[3],
        .kernel_down = window[0], .kernel_across = window[1],
        .stride_down = window[2], .stride_across = window[3],
        .pad_top = window[4], .pad_left = window[5],
        .add = node->fused_add != LEAT_VALUE_NONE, .least = least_of(node), .most = most_of(node),
        .smooth = smooth_of(node),
        .bend = cpu_bends(node->fused_activation) ? node->fused_activation : LEAT_ACTIVATION_NONE, .slope = node->slope,
    };
}

/* Its bounds are in units of the result, and such as that can hold. */
static struct cpu_whole_image
whole_image_of(const struct leat_node *node, const struct leat_value *source, const struct cpu_tensor *result, const int64_t *window)
{
    struct cpu_whole_image image = {
        .conv = direct_of(node, source->dims, result->md.dims, window),
        .pixels_in_one = CPU_WHOLE_PIXEL / fmaxf(-source->least, source->most),
        .result = result->md.data_type == dnnl_u8   ? CPU_WHOLE_U8
                  : result->md.data_type == dnnl_s8 ? CPU_WHOLE_S8
                                                    : CPU_WHOLE_F32,
    };

    image.conv.least = image.conv.least / result->scale + (float)result->zero;
    image.conv.most = image.conv.most / result->scale + (float)result->zero;
    if (image.result != CPU_WHOLE_F32) {
        image.conv.least = fmaxf(image.conv.least, image.result == CPU_WHOLE_U8 ? 0 : INT8_MIN);
        image.conv.most = fminf(image.conv.most, image.result == CPU_WHOLE_U8 ? UINT8_MAX : INT8_MAX);
    }
    return image;
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
winograd_of(const struct leat_node *node, const dnnl_memory_desc_t *source_md, const dnnl_memory_desc_t *result_md,
            const int64_t *window)
{
    const int64_t *source = source_md->dims, *result = result_md->dims;
    return (struct cpu_winograd){
        .items = source[0], .inputs = source[1], .outputs = result[1],
        .height = source[2], .width = source[3], .out_height = result[2], .out_width = result[3],
        .pad_top = window[4], .pad_left = window[5],
        .add = node->fused_add != LEAT_VALUE_NONE, .least = least_of(node), .most = most_of(node),
        .blocked = result_md->format_desc.blocking.inner_nblks != 0,
    };
}

static struct cpu_expand
expand_of(const struct leat_node *points, const struct leat_node *windows, const int64_t *source, const int64_t *result,
          const int64_t *window)
{
    const int64_t expanded[4] = {source[0], result[1], source[2], source[3]};
    return (struct cpu_expand){
        .depthwise = depthwise_of(windows, expanded, result, window),
        .inputs = source[1], .least = least_of(points), .most = most_of(points), .smooth = smooth_of(points),
    };
}

/* ---- Run -------------------------------------------------------------------------------------------- */

struct work {
    const struct cpu_call *call;
    void (*run)(const struct work *work, uint32_t member);
    uint32_t members, most; /* at most, 0: as many as the program has threads */
    uint32_t parts;         /* of a convolution that may pause */
    struct cpu_depthwise depthwise;
    struct cpu_direct direct;
    struct cpu_expand expand;
    struct cpu_winograd winograd;
    struct cpu_whole_image whole_image;
};

static const float *
bias_of(const struct cpu_call *call)
{
    return call->step->arg_count > BIAS ? call->pointers[BIAS] : NULL;
}

/* One member alone computes, and the worker has something to do in between. */
static bool
may_pause(const struct work *work)
{
    return work->members == 1 && leat_team_yields(work->call->team);
}

static void
give_way(void *context)
{
    const struct cpu_call *call = context;
    cpu_give_way(call->program, call->team);
}

static void
run_direct(const struct work *work, uint32_t member)
{
    void *const *p = work->call->pointers;
    unsigned char *scratch = (unsigned char *)p[SCRATCH] + member * cpu_direct_scratch_bytes(&work->direct);
    /* As if for so many members, one after the other. */
    const uint32_t parts = may_pause(work) ? work->parts : 1;
    for (uint32_t part = 0; part < parts; part++) {
        if (part > 0) {
            cpu_give_way(work->call->program, work->call->team);
        }
        cpu_direct_run(&work->direct, p[SOURCE], p[WEIGHTS], bias_of(work->call), p[RESULT], scratch, member + part,
                       work->members * parts);
    }
}

static void
run_image(const struct work *work, uint32_t member)
{
    void *const *p = work->call->pointers;
    unsigned char *scratch = (unsigned char *)p[SCRATCH] + member * cpu_image_scratch_bytes(&work->direct);
    cpu_image_run(&work->direct, p[SOURCE], p[WEIGHTS], bias_of(work->call), p[RESULT], scratch, member, work->members);
}

enum { SUMS = BIAS + 1, WHOLE_ARGS };

static void
run_whole_image(const struct work *work, uint32_t member)
{
    void *const *p = work->call->pointers;
    unsigned char *scratch = (unsigned char *)p[SCRATCH] + member * cpu_whole_image_scratch_bytes(&work->whole_image.conv);
    cpu_whole_image_run(&work->whole_image, p[SOURCE], p[WEIGHTS], p[SUMS], p[BIAS], p[RESULT], scratch, member, work->members);
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
    const struct cpu_pause pause = {give_way, (void *)(uintptr_t)work->call};
    cpu_winograd_run(&work->winograd, p[SOURCE], p[WEIGHTS], bias_of(work->call), p[RESULT], (float *)(void *)scratch,
                     member, work->members, may_pause(work) ? &pause : NULL);
}

/* args: SOURCE, RESULT, WEIGHTS of the windows, SCRATCH, weights of the points, then biases of both where they are. */
enum { POINTS = BIAS, EXPAND_ARGS = POINTS + 3 };

static void
run_expand(const struct work *work, uint32_t member)
{
    void *const *p = work->call->pointers;
    const struct cpu_step *step = work->call->step;
    const struct cpu_expand_weights weights = {.points = p[POINTS],
                                               .points_bias = step->outer != 0 ? p[step->outer] : NULL,
                                               .windows = p[WEIGHTS],
                                               .windows_bias = step->inner != 0 ? p[step->inner] : NULL};
    unsigned char *scratch = (unsigned char *)p[SCRATCH] + member * cpu_expand_scratch_bytes(&work->expand);
    cpu_expand_run(&work->expand, p[SOURCE], &weights, p[RESULT], scratch, member, work->members);
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
    if (work->most > 0 && work->most < work->members) {
        work->members = work->most;
    }
    if (work->members > 1) {
        leat_team_run(call->team, run_member, work);
    } else {
        work->run(work, 0);
    }
}

static const dnnl_memory_desc_t *
md_of(const struct cpu_call *call, uint32_t arg)
{
    return &call->program->tensors[call->step->args[arg].tensor].md;
}

static const int64_t *
dims_of(const struct cpu_call *call, uint32_t arg)
{
    return md_of(call, arg)->dims;
}

/* Each takes about half a millisecond, by what it multiplies or by what it reads. */
static uint32_t
parts_of(int64_t products, size_t weights_bytes)
{
    const int64_t by_products = products / PART_PRODUCTS, by_bytes = (int64_t)(weights_bytes / PART_BYTES);
    const int64_t parts = by_products > by_bytes ? by_products : by_bytes;
    return parts < 1 ? 1 : parts < PARTS_MOST ? (uint32_t)parts : PARTS_MOST;
}

static enum leat_status
direct(const struct cpu_call *call)
{
    struct work work = {.run = run_direct};
    work.direct = direct_of(call->step->node, dims_of(call, SOURCE), dims_of(call, RESULT), call->step->dims);
    const struct cpu_direct *d = &work.direct;
    const int64_t products = d->items * d->out_height * d->out_width * d->outputs * d->inputs * d->kernel_down * d->kernel_across;
    const int64_t members = products / DIRECT_LEAST;
    work.most = members < 1 ? 1 : members < UINT32_MAX ? (uint32_t)members : UINT32_MAX;
    work.parts = parts_of(products, cpu_direct_weights_bytes(d));
    run(call, &work);
    return LEAT_OK;
}

static enum leat_status
image(const struct cpu_call *call)
{
    struct work work = {.run = run_image};
    work.direct = direct_of(call->step->node, dims_of(call, SOURCE), dims_of(call, RESULT), call->step->dims);
    run(call, &work);
    return LEAT_OK;
}

static enum leat_status
whole_image(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    struct work work = {.run = run_whole_image};
    work.whole_image = whole_image_of(step->node, &call->program->graph->values[step->node->inputs[0]],
                                      &call->program->tensors[step->args[RESULT].tensor], step->dims);
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
    work.winograd = winograd_of(call->step->node, md_of(call, SOURCE), md_of(call, RESULT), call->step->dims);
    run(call, &work);
    return LEAT_OK;
}

static enum leat_status
expand(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    struct work work = {.run = run_expand};
    work.expand = expand_of(&call->program->graph->nodes[step->count], step->node, dims_of(call, SOURCE), dims_of(call, RESULT),
                            step->dims);
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
pack_rows(const struct leat_value *weights, void *ret_packed)
{
    const int64_t *w = weights->dims;
    cpu_direct_pack(&(struct cpu_direct){.outputs = w[0], .inputs = w[1], .kernel_down = 1, .kernel_across = 1},
                    weights->data, ret_packed);
}

static void
pack_columns(const struct leat_value *weights, void *ret_packed)
{
    const int64_t *w = weights->dims;
    cpu_direct_pack_transposed(&(struct cpu_direct){.outputs = w[1], .inputs = w[0], .kernel_down = 1, .kernel_across = 1},
                               weights->data, ret_packed);
}

static void
pack_image(const struct leat_value *weights, void *ret_packed)
{
    const int64_t *w = weights->dims;
    cpu_image_pack(&(struct cpu_direct){.outputs = w[0], .inputs = w[1], .kernel_down = w[2], .kernel_across = w[3]},
                   weights->data, ret_packed);
}

static void
pack_whole_image(const struct leat_value *weights, void *ret_packed)
{
    const int64_t *w = weights->dims;
    cpu_whole_image_pack(&(struct cpu_direct){.outputs = w[0], .inputs = w[1], .kernel_down = w[2], .kernel_across = w[3]},
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
fits(const struct cpu_builder *b, const struct leat_window *w)
{
    const enum leat_activation activation = b->node->fused_activation;

    return (activation <= LEAT_ACTIVATION_CLIP || cpu_activation_runs_here(activation)) &&
           leat_node_input(b->graph, b->node, 1)->data != NULL && w->rank == 2 && w->dilation[LEAT_WINDOW_RANK - 2] == 1 &&
           w->dilation[LEAT_WINDOW_RANK - 1] == 1;
}

/* What all but Winograd's ask for besides. */
static bool
fits_avx512(const struct cpu_conv *conv)
{
    return cpu_has_avx512() && cpu_has_channels_last(conv->source) && cpu_has_channels_last(conv->result) &&
           conv->result->dims[1] % CPU_LANES == 0;
}

static bool
suits_winograd(const struct cpu_builder *b, const struct cpu_conv *conv, const int64_t *window)
{
    const int64_t *result = conv->result->dims, lanes = cpu_vector_lanes();
    const int64_t tiles = result[0] * ((result[2] + 3) / 4) * ((result[3] + 3) / 4);
    const bool last = cpu_has_channels_last(conv->source) && cpu_has_channels_last(conv->result);
    const bool blocked = lanes == CPU_HALF && cpu_has_channel_blocks(conv->source) && cpu_has_channel_blocks(conv->result);

    return lanes > 0 && (last || blocked) && conv->source->dims[1] % lanes == 0 && result[1] % lanes == 0 &&
           leat_node_int(b->node, "group", 1) == 1 && smooth_of(b->node) == LEAT_ACTIVATION_NONE &&
           window[0] == 3 && window[1] == 3 && window[2] == 1 && window[3] == 1 &&
           tiles >= (int64_t)TILES_LEAST * b->program->threads;
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

/* The source has planes, and so needs no conversion. */
static bool
suits_image(const struct cpu_builder *b, const struct cpu_direct *conv, dnnl_memory_desc_t *ret_source)
{
    const uint32_t value = b->node->inputs[0], source = b->best[value];

    if (conv->add || conv->inputs > CPU_IMAGE_INPUTS_MAX || conv->kernel_down > CPU_IMAGE_WINDOW_MAX ||
        conv->inputs * conv->kernel_down * conv->kernel_across > IMAGE_TERMS_MAX || source == CPU_NONE) {
        return false;
    }
    *ret_source = cpu_value_md(&b->graph->values[value]);
    return cpu_same_bytes(&b->program->tensors[source].md, ret_source);
}

/* Of the model's inputs, in a network of 8-bit whole numbers. */
static bool
suits_whole_image(const struct cpu_builder *b, const struct leat_window *w)
{
    const struct leat_node *node = b->node;
    const struct leat_value *x = leat_node_input(b->graph, node, 0), *weights = leat_node_input(b->graph, node, 1);
    const struct leat_value *bias = leat_node_input(b->graph, node, 2), *y = leat_node_output(b->graph, node, 0);
    const uint32_t source = b->best[node->inputs[0]];
    const dnnl_memory_desc_t planes = cpu_value_md(x);

    return cpu_model_is_quantised(b->model) && cpu_whole_image_runs_here() &&
           w->rank == 2 && w->dilation[LEAT_WINDOW_RANK - 2] == 1 && w->dilation[LEAT_WINDOW_RANK - 1] == 1 &&
           w->kernel[LEAT_WINDOW_RANK - 2] <= CPU_IMAGE_WINDOW_MAX && w->kernel[LEAT_WINDOW_RANK - 1] <= CPU_WHOLE_ACROSS_MAX &&
           leat_node_int(node, "group", 1) == 1 && x->dims[1] <= CPU_IMAGE_INPUTS_MAX && y->dims[1] % CPU_LANES == 0 && !y->bounded &&
           weights->data != NULL && (bias == NULL || bias->data != NULL) && node->fused_add == LEAT_VALUE_NONE &&
           node->fused_activation <= LEAT_ACTIVATION_CLIP && cpu_has_range(x) && source != CPU_NONE &&
           cpu_same_bytes(&b->program->tensors[source].md, &planes);
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
    if (status == LEAT_OK && kernel == image) {
        status = cpu_by_item(b, args[SOURCE].tensor, &args[SOURCE].tensor);
    }
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

    if (!fits(b, w)) {
        return LEAT_AGAIN;
    }
    if (suits_winograd(b, conv, window)) {
        const struct cpu_winograd parameters = winograd_of(b->node, conv->source, conv->result, window);
        return add_step(b, conv, window, winograd, pack_winograd, cpu_winograd_weights_bytes(source[1], result[1]),
                        cpu_winograd_scratch_bytes(&parameters));
    }
    if (!fits_avx512(conv)) {
        return LEAT_AGAIN;
    }
    if (leat_node_int(b->node, "group", 1) != 1) {
        const struct cpu_depthwise parameters = depthwise_of(b->node, source, result, window);
        return is_depthwise(b, conv) ? add_step(b, conv, window, depthwise, pack_depthwise,
                                                cpu_depthwise_weights_bytes(&parameters),
                                                cpu_depthwise_scratch_bytes(&parameters))
                                     : LEAT_AGAIN;
    }
    const struct cpu_direct parameters = direct_of(b->node, source, result, window);
    dnnl_memory_desc_t planes;
    if (suits_image(b, &parameters, &planes)) {
        return add_step(b, &(struct cpu_conv){w, &planes, conv->result}, window, image, pack_image,
                        cpu_image_weights_bytes(&parameters), cpu_image_scratch_bytes(&parameters));
    }
    if (suits_direct(&parameters)) {
        return add_step(b, conv, window, direct, pack_direct, cpu_direct_weights_bytes(&parameters),
                        cpu_direct_scratch_bytes(&parameters));
    }
    return LEAT_AGAIN;
}

/* What sums are multiplied by, and the bias, in units of the result. LEAT_AGAIN where floats are too coarse for that. */
static enum leat_status
whole_image_sums(struct cpu_builder *b, const struct cpu_whole_image *image,
                 const struct cpu_tensor *result, struct cpu_arg args[WHOLE_ARGS])
{
    const struct leat_value *weights = leat_node_input(b->graph, b->node, 1), *bias = leat_node_input(b->graph, b->node, 2);
    const size_t channels = (size_t)image->conv.outputs;
    const void *elements;
    float *numbers = calloc(2 * channels, sizeof(*numbers));

    LEAT_ASSERT(bias == NULL || leat_value_in_place(bias));
    if (numbers == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    enum leat_status status = cpu_open_constant(b, weights, &elements);
    if (status == LEAT_OK) {
        bool good = true;
        for (size_t c = 0; c < channels; c++) {
            numbers[c] = 1 / (image->pixels_in_one *
                              cpu_whole_image_factor(&image->conv, elements, (int64_t)c) *
                              result->scale);
            numbers[channels + c] =
                (bias != NULL ? ((const float *)bias->data)[c] / result->scale : 0) +
                (float)result->zero;
            good = good && isnormal(numbers[c]) && isfinite(numbers[channels + c]);
        }
        status = good ? LEAT_OK : LEAT_AGAIN;
    }
    if (status == LEAT_OK) {
        status = cpu_private_vector(b, numbers, channels, &args[SUMS].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_private_vector(b, numbers + channels, channels, &args[BIAS].tensor);
    }
    free(numbers);
    return status;
}

enum leat_status
cpu_lower_whole_image(struct cpu_builder *b, const struct leat_window *w)
{
    const struct leat_node *node = b->node;
    const dnnl_memory_desc_t none = {.ndims = 0};
    const uint32_t y = LEAT_WINDOW_RANK - 2, x = LEAT_WINDOW_RANK - 1;
    const int64_t window[6] = {w->kernel[y], w->kernel[x], w->stride[y], w->stride[x], w->pad_begin[y], w->pad_begin[x]};
    const int64_t *d = leat_node_output(b->graph, node, 0)->dims;
    const int64_t strides[4] = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};
    struct cpu_tensor result = {.scale = 1};
    struct cpu_arg args[WHOLE_ARGS] = {{0, 0}};
    struct cpu_step *step;

    if (!suits_whole_image(b, w)) {
        return LEAT_AGAIN;
    }
    result.md = cpu_strided_md(d, strides, 4);
    const bool whole = b->wants_whole[node->outputs[0]];
    if (whole) {
        const struct cpu_stored stored = cpu_stored_as(b, node->outputs[0]);
        result.md.data_type = stored.type;
        result.scale = stored.scale;
        result.zero = stored.zero;
    }
    const struct cpu_whole_image image = whole_image_of(node, leat_node_input(b->graph, node, 0), &result, window);
    enum leat_status status = whole_image_sums(b, &image, &result, args);
    if (status == LEAT_OK) {
        status = cpu_by_item(b, b->best[node->inputs[0]], &args[SOURCE].tensor);
    }
    if (status == LEAT_OK && whole) {
        status = cpu_new_tensor(b, &result.md, dnnl_memory_desc_get_size(&result.md), &args[RESULT].tensor);
    } else if (status == LEAT_OK) {
        status = cpu_destination(b, &result.md, &args[RESULT].tensor);
    }
    if (status == LEAT_OK) {
        b->program->tensors[args[RESULT].tensor].scale = result.scale;
        b->program->tensors[args[RESULT].tensor].zero = result.zero;
        status = cpu_constant_packed(b, node->inputs[1], pack_whole_image, cpu_whole_image_weights_bytes(&image.conv),
                                     &args[WEIGHTS].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &none, b->program->threads * cpu_whole_image_scratch_bytes(&image.conv), &args[SCRATCH].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, whole_image, args, WHOLE_ARGS, &step);
    }
    if (status == LEAT_OK) {
        memcpy(step->dims, window, sizeof(window));
        if (whole) {
            cpu_set_whole(b, args[RESULT].tensor);
        } else {
            cpu_set_output(b, 0, args[RESULT].tensor);
        }
    }
    return status;
}

/* One pixel a row. */
static dnnl_memory_desc_t
pixels_md(int64_t rows, int64_t channels)
{
    const int64_t dims[4] = {1, channels, rows, 1}, strides[4] = {rows * channels, 1, channels, channels};
    return cpu_strided_md(dims, strides, 4);
}

/* args: from, to. Rows of so many bytes that are `outer` bytes apart come to lie `inner` bytes apart. */
static void
move_rows_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const unsigned char *from = call->pointers[0];
    unsigned char *to = call->pointers[1];

    for (size_t row = begin; row < end; row++) {
        memcpy(to + row * step->inner, from + row * step->outer, step->element_bytes);
    }
}

static enum leat_status
move_rows(const struct cpu_call *call)
{
    cpu_share(call, move_rows_part, call->step->count, MOVED_LEAST / call->step->element_bytes + 1);
    return LEAT_OK;
}

/* The kernel makes whole vectors of columns: rows of `columns`, from a tensor whose rows have so many to one whose have others. */
static enum leat_status
add_move_rows(struct cpu_builder *b, const struct cpu_product *product, uint32_t from, int64_t from_columns, uint32_t to,
              int64_t to_columns)
{
    struct cpu_arg args[2] = {{0, from}, {0, to}};
    struct cpu_step *step;

    const enum leat_status status = cpu_add_kernel(b, move_rows, args, 2, &step);
    if (status == LEAT_OK) {
        step->count = (size_t)product->rows;
        step->outer = (size_t)from_columns * sizeof(float);
        step->inner = (size_t)to_columns * sizeof(float);
        step->element_bytes = (size_t)product->columns * sizeof(float);
    }
    return status;
}

/* The bias, with zeros behind it. LEAT_AGAIN where it is no constant. */
static enum leat_status
widen_bias(struct cpu_builder *b, const struct cpu_product *product, int64_t wide, uint32_t *ret_tensor)
{
    const struct cpu_constant *constant = b->program->tensors[product->bias].constant;

    if (constant == NULL) {
        return LEAT_AGAIN;
    }
    float *bias = calloc((size_t)wide, sizeof(*bias));
    if (bias == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    memcpy(bias, constant->data, (size_t)product->columns * sizeof(*bias));
    const enum leat_status status = cpu_private_vector(b, bias, (size_t)wide, ret_tensor);
    free(bias);
    return status;
}

enum leat_status
cpu_lower_own_product(struct cpu_builder *b, const struct cpu_product *product)
{
    const struct leat_node *node = b->node;
    const int64_t lanes = cpu_vector_lanes();
    const int64_t wide = /* with columns that nobody asked for */
        (int64_t)leat_round_up((uint64_t)product->columns, lanes > 0 ? (uint64_t)lanes : 1);
    const dnnl_memory_desc_t none = {.ndims = 0}, value_md = cpu_value_md(leat_node_output(b->graph, node, 0));
    const dnnl_memory_desc_t source = pixels_md(product->rows, product->inner), result = pixels_md(product->rows, wide);
    const int64_t window[6] = {1, 1, 1, 1, 0, 0};
    const struct cpu_direct parameters = direct_of(node, source.dims, result.dims, window);
    const bool few = cpu_direct_weights_bytes(&parameters) <= POINT_WEIGHTS_BYTES;
    struct cpu_arg args[ARGS] = {[BIAS] = {0, product->bias}};
    struct cpu_step *step;
    uint32_t plain, output;

    if (lanes == 0 || product->columns == 1 || (few && lanes != CPU_HALF) ||
        (product->columns != wide && lanes != CPU_HALF && (parameters.add || product->columns < WIDENED_LEAST)) ||
        (node->fused_activation > LEAT_ACTIVATION_CLIP && !cpu_activation_runs_here(node->fused_activation) &&
         (lanes != CPU_HALF || !cpu_bends(node->fused_activation)))) {
        return LEAT_AGAIN;
    }
    enum leat_status status = LEAT_OK;
    if (product->has_bias && product->columns != wide) {
        status = widen_bias(b, product, wide, &args[BIAS].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_plain(b, node->inputs[0], &plain);
    }
    if (status == LEAT_OK) {
        status = cpu_view(b, plain, &source, &args[SOURCE].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_destination(b, &value_md, &output);
    }
    if (status == LEAT_OK) {
        status = product->columns == wide
                     ? cpu_view(b, output, &result, &args[RESULT].tensor)
                     : cpu_new_tensor(b, &result, dnnl_memory_desc_get_size(&result), &args[RESULT].tensor);
    }
    if (status == LEAT_OK && product->columns != wide && parameters.add) { /* whatever is added to the columns that nobody asked for */
        status = add_move_rows(b, product, output, product->columns, args[RESULT].tensor, wide);
    }
    if (status == LEAT_OK) {
        status = cpu_constant_packed(b, node->inputs[1], product->transposed ? pack_rows : pack_columns,
                                     cpu_direct_weights_bytes(&parameters), &args[WEIGHTS].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &none, b->program->threads * cpu_direct_scratch_bytes(&parameters), &args[SCRATCH].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, direct, args, product->has_bias ? ARGS : BIAS, &step);
    }
    if (status == LEAT_OK) {
        memcpy(step->dims, window, sizeof(window));
        status = product->columns == wide ? LEAT_OK : add_move_rows(b, product, args[RESULT].tensor, wide, output, product->columns);
    }
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, output);
    }
    return status;
}

/* ---- Two at once ------------------------------------------------------------------------------------ */

/* What reads the value, if that is one node and nothing else. */
static const struct leat_node *
reader_of(const struct cpu_builder *b, uint32_t value)
{
    const struct leat_node *last = b->graph->nodes + b->graph->node_count;

    for (const struct leat_node *n = b->node + 1; b->uses[value] == 1 && n < last; n++) {
        if (n->input_count > 0 && n->inputs[0] == value) {
            return n;
        }
    }
    return NULL;
}

static bool
has_window(const struct cpu_builder *b, const struct leat_node *node, struct leat_window *ret)
{
    return node->op->kind == LEAT_OP_CONV && node->fused_add == LEAT_VALUE_NONE &&
           leat_node_input(b->graph, node, 1)->data != NULL &&
           (node->fused_activation <= LEAT_ACTIVATION_CLIP || cpu_activation_runs_here(node->fused_activation)) &&
           leat_window_of(b->graph, node, ret) == LEAT_OK && ret->rank == 2 && ret->dilation[LEAT_WINDOW_RANK - 2] == 1 &&
           ret->dilation[LEAT_WINDOW_RANK - 1] == 1;
}

bool
cpu_expansion_waits(const struct cpu_builder *b)
{
    const uint32_t y = LEAT_WINDOW_RANK - 2, x = LEAT_WINDOW_RANK - 1;
    struct leat_window points, windows;

    if (b->node->op->kind != LEAT_OP_CONV || b->observer != NULL || cpu_model_is_quantised(b->model) ||
        cpu_model_type(b->model) != dnnl_f32 || !cpu_has_avx512()) {
        return false;
    }
    const struct leat_node *reader = reader_of(b, b->node->outputs[0]);
    if (reader == NULL || !has_window(b, b->node, &points) || !has_window(b, reader, &windows)) {
        return false;
    }
    const int64_t *source = leat_node_input(b->graph, b->node, 0)->dims;
    const int64_t *between = leat_node_output(b->graph, b->node, 0)->dims, *result = leat_node_output(b->graph, reader, 0)->dims;
    const uint32_t from = b->best[b->node->inputs[0]];
    return from != CPU_NONE && cpu_has_channels_last(&b->program->tensors[from].md) &&
           points.kernel[y] == 1 && points.kernel[x] == 1 && leat_node_int(b->node, "group", 1) == 1 &&
           source[2] == between[2] && source[3] == between[3] && points.pad_begin[y] == 0 && points.pad_begin[x] == 0 &&
           source[1] <= EXPAND_INPUTS_MAX && between[1] % CPU_LANES == 0 && result[1] == between[1] &&
           leat_node_int(reader, "group", 1) == between[1] && windows.kernel[y] <= CPU_EXPAND_WINDOW_MAX &&
           windows.kernel[y] * windows.kernel[x] <= TAPS_MAX && leat_value_elements(leat_node_output(b->graph, reader, 0)) > 0;
}

enum leat_status
cpu_lower_expansion(struct cpu_builder *b, const struct leat_node *points)
{
    const uint32_t y = LEAT_WINDOW_RANK - 2, x = LEAT_WINDOW_RANK - 1;
    const dnnl_memory_desc_t none = {.ndims = 0};
    const struct leat_value *result = leat_node_output(b->graph, b->node, 0);
    const int64_t *d = result->dims;
    const dnnl_memory_desc_t md =
        cpu_strided_md(d, (const int64_t[4]){d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}, 4);
    struct cpu_arg args[EXPAND_ARGS] = {{0, 0}};
    uint32_t count = POINTS + 1, points_bias = 0, windows_bias = 0;
    struct cpu_step *step;
    struct leat_window w;

    enum leat_status status = leat_window_of(b->graph, b->node, &w);
    if (status != LEAT_OK) {
        return status;
    }
    const int64_t window[6] = {w.kernel[y], w.kernel[x], w.stride[y], w.stride[x], w.pad_begin[y], w.pad_begin[x]};
    const int64_t *source = leat_node_input(b->graph, points, 0)->dims;
    const struct cpu_expand conv = expand_of(points, b->node, source, d, window);
    const struct cpu_direct direct = {.outputs = d[1], .inputs = source[1], .kernel_down = 1, .kernel_across = 1};
    status = cpu_best(b, points->inputs[0], &args[SOURCE].tensor);
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &md, dnnl_memory_desc_get_size(&md), &args[RESULT].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_constant_packed(b, b->node->inputs[1], pack_depthwise, cpu_depthwise_weights_bytes(&conv.depthwise),
                                     &args[WEIGHTS].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &none, b->program->threads * cpu_expand_scratch_bytes(&conv), &args[SCRATCH].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_constant_packed(b, points->inputs[1], pack_direct, cpu_direct_weights_bytes(&direct), &args[POINTS].tensor);
    }
    if (status == LEAT_OK && leat_node_input(b->graph, points, 2) != NULL) {
        points_bias = count++;
        status = cpu_plain(b, points->inputs[2], &args[points_bias].tensor);
    }
    if (status == LEAT_OK && leat_node_input(b->graph, b->node, 2) != NULL) {
        windows_bias = count++;
        status = cpu_plain(b, b->node->inputs[2], &args[windows_bias].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, expand, args, count, &step);
    }
    if (status == LEAT_OK) {
        memcpy(step->dims, window, sizeof(window));
        step->count = (size_t)(points - b->graph->nodes);
        step->outer = points_bias;
        step->inner = windows_bias;
        cpu_set_output(b, 0, args[RESULT].tensor);
    }
    return status;
}
