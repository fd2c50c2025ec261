/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions and products in 8-bit whole numbers, as in Jacob et al., "Quantization and Training of Neural Networks for
 * Efficient Integer-Arithmetic-Only Inference", CVPR 2018, section 2: oneDNN adds products up in 32 bits, then makes floats
 * of the sums for bias, addend and activation, and rounds those.
 *
 * Sums       Of 32 bits: what could add up to more, whatever it reads, stays in floats.
 * Steps      One for each tensor of activations, from its range; one for each output channel of weights.
 * Zeros      Stored as 0, but for activations whose range reaches much further to one side of 0 than to the other, as
 *            behind SiLU, and that are no addend: of numbers about 0 nearly half would stand for nothing. What that adds
 *            to sums goes into the bias; where zeros are padded, it is less at the edges, and oneDNN subtracts it.
 * Overflow   Processors without VNNI add two products of u8 and s8 in 16 bits, and cap them. There weights have 7 bits: two times
 *            255 * 64 fit. Products of s8 stay in floats there: oneDNN's negate -128 in 8 bits. But with AVX2 and no AVX-512 most are
 *            on a kernel of our own (fours.h), for which a channel's step is as fine as its own weights let it be, between 7 and 8
 *            bits as a rule; and convolutions by channels on another (depthwise_whole.h), whose weights have 14.
 * First, last  What has no product before it, or none behind it, has more than 8 bits: few multiplications, which decide much. A first
 *            convolution has 13 and 10 at least where there is VNNI (whole_image.h), all else floats: products of many
 *            weights bf16, where the processor multiplies that (lower/linear.c).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/depthwise_whole.h"
#include "kernels/cpu/loops/fours.h"
#include "kernels/cpu/loops/points.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"
#include "kernels/team.h"
#include "kernels/window.h"

enum {
    U8_MOST = 255,
    S8_MOST = 127,
    S8_MOST_WITHOUT_VNNI = 64,
    S8_MOST_HALVED =
        126, /* of convolutions without VNNI: there oneDNN halves the weights of s8 itself, before it rounds them */
    CHANNELS_AT_ONCE = 16, /* a cache line of weights */
};

/* ---- Which ------------------------------------------------------------------------------------------ */

bool
cpu_has_range(const struct leat_value *value)
{
    return fmaxf(-value->least, value->most) >= 1e-30f;
}

struct cpu_stored
cpu_stored_as(const struct cpu_builder *b, uint32_t value)
{
    const struct leat_value *v = &b->graph->values[value];
    const float most = fmaxf(-v->least, v->most);

    LEAT_ASSERT(cpu_has_range(v));
    if (b->shifted[value]) {
        const float scale = v->most / U8_MOST - v->least / U8_MOST; /* most - least may be beyond floats */
        return (struct cpu_stored){dnnl_u8, scale, (int32_t)lrintf(-v->least / scale)};
    }
    return v->least < 0 ? (struct cpu_stored){dnnl_s8, most / S8_MOST, 0}
                        : (struct cpu_stored){dnnl_u8, most / U8_MOST, 0};
}

/* With constant weights. */
static bool
is_product(const struct leat_graph *graph, const struct leat_node *node)
{
    const enum leat_op_kind kind = node->op->kind;
    return (kind == LEAT_OP_CONV || kind == LEAT_OP_GEMM || kind == LEAT_OP_MATMUL) &&
           leat_node_input(graph, node, 1)->dtype == LEAT_DTYPE_F32 && leat_node_input(graph, node, 1)->data != NULL && !leat_node_output(graph, node, 0)->bounded;
}

static void
mark_outputs(const struct leat_node *node, bool *marks)
{
    for (uint32_t o = 0; o < node->output_count; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE) {
            marks[node->outputs[o]] = true;
        }
    }
}

static bool
any_input(const struct leat_node *node, const bool *marks)
{
    bool any = node->fused_add != LEAT_VALUE_NONE && marks[node->fused_add];
    for (uint32_t i = 0; i < node->input_count; i++) {
        any = any || (node->inputs[i] != LEAT_VALUE_NONE && marks[node->inputs[i]]);
    }
    return any;
}

static bool
any_output(const struct leat_node *node, const bool *marks)
{
    bool any = false;
    for (uint32_t o = 0; o < node->output_count; o++) {
        any = any || (node->outputs[o] != LEAT_VALUE_NONE && marks[node->outputs[o]]);
    }
    return any;
}

static void
mark_inputs(const struct leat_node *node, bool *marks)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != LEAT_VALUE_NONE) {
            marks[node->inputs[i]] = true;
        }
    }
    if (node->fused_add != LEAT_VALUE_NONE) {
        marks[node->fused_add] = true;
    }
}

/* What a value is read as by the node, whose output's readers have been asked already. */
static void
ask_reader(struct cpu_builder *b, uint32_t n)
{
    const struct leat_graph *graph = b->graph;
    const struct leat_node *node = &graph->nodes[n];
    const bool whole = node->outputs[0] != LEAT_VALUE_NONE && b->wants_whole[node->outputs[0]];

    if (b->quantised[n]) {
        b->wants_whole[node->inputs[0]] = true;
    }
    if (b->quantised[n] && whole && node->fused_add != LEAT_VALUE_NONE) {
        b->wants_whole[node->fused_add] = true;
    }
    if (node->op->kind == LEAT_OP_MAX_POOL && whole) {
        b->wants_whole[node->inputs[0]] = true;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != LEAT_VALUE_NONE && !cpu_has_range(&graph->values[node->inputs[i]])) {
            b->wants_whole[node->inputs[i]] = false;
        }
    }
    if (node->fused_add != LEAT_VALUE_NONE && !cpu_has_range(&graph->values[node->fused_add])) {
        b->wants_whole[node->fused_add] = false;
    }
}

/* Behind our own kernels for AVX2. */
#if defined(__x86_64__)
static bool
is_ours(enum leat_activation activation)
{
    return activation <= LEAT_ACTIVATION_CLIP || cpu_bends(activation) || cpu_activation_runs_here(activation);
}
#endif

/* By its shape: on our own kernel for AVX2, whatever its numbers are. */
static bool
takes_fours(const struct leat_graph *graph, const struct leat_node *node)
{
#if defined(__x86_64__)
    const struct leat_value *w = leat_node_input(graph, node, 1);
    const bool conv = node->op->kind == LEAT_OP_CONV;
    const uint32_t y = LEAT_WINDOW_RANK - 2, x = LEAT_WINDOW_RANK - 1;
    struct leat_window window;

    if (!cpu_fours_run_here() || w->rank != (conv ? 4 : 2) || !is_ours(node->fused_activation)) {
        return false;
    }
    return !conv || (leat_node_int(node, "group", 1) == 1 && leat_window_of(graph, node, &window) == LEAT_OK &&
                     (window.dilation[y] == 1 || window.kernel[y] == 1) && (window.dilation[x] == 1 || window.kernel[x] == 1) &&
                     w->dims[1] % CPU_FOURS_INPUTS == 0 && w->dims[0] % CPU_FOURS_OUTPUTS == 0 && w->dims[1] <= CPU_FOURS_PADDED_MAX &&
                     window.kernel[y] * window.kernel[x] <= CPU_FOURS_TAPS_MAX);
#else
    (void)graph;
    (void)node;
    return false;
#endif
}

/* Likewise: with a window for each channel. */
static bool
takes_channels(const struct leat_graph *graph, const struct leat_node *node, struct leat_window *window)
{
#if defined(__x86_64__)
    const struct leat_value *w = leat_node_input(graph, node, 1);
    const uint32_t y = LEAT_WINDOW_RANK - 2, x = LEAT_WINDOW_RANK - 1;

    return node->op->kind == LEAT_OP_CONV && cpu_fours_run_here() && w->rank == 4 && w->dims[1] == 1 &&
           leat_node_int(node, "group", 1) == w->dims[0] && w->dims[0] % CPU_DEPTHWISE_WHOLE_CHANNELS == 0 &&
           w->dims[0] <= CPU_FOURS_PADDED_MAX && node->fused_add == LEAT_VALUE_NONE && is_ours(node->fused_activation) &&
           leat_window_of(graph, node, window) == LEAT_OK && (window->dilation[y] == 1 || window->kernel[y] == 1) &&
           (window->dilation[x] == 1 || window->kernel[x] == 1) && window->kernel[y] * window->kernel[x] <= CPU_FOURS_TAPS_MAX;
#else
    (void)graph;
    (void)node;
    (void)window;
    return false;
#endif
}

/* Steps of the range as it is are finer by an eighth, and more, than those of one about 0. */
static bool
is_lopsided(const struct leat_value *value)
{
    const double furthest = fmax(-(double)value->least, (double)value->most);
    const double about_zero = furthest / S8_MOST,
                 as_it_is = ((double)value->most - (double)value->least) / U8_MOST;

    return value->least < 0 && as_it_is <= 7.0 / 8 * about_zero;
}

/*
 * Behind ask_reader(). Addends and their sums stay about 0, for which oneDNN has kernels, and what windows pass on, too; without
 * VNNI all that its kernels read.
 */
static void
choose_shifted(struct cpu_builder *b)
{
    const struct leat_graph *graph = b->graph;
    struct leat_window window;

    for (uint32_t v = 0; v < graph->value_count; v++) {
        b->shifted[v] = b->wants_whole[v] && is_lopsided(&graph->values[v]);
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        if (b->quantised[n] && cpu_weights_most(true, dnnl_u8) != S8_MOST && !takes_fours(graph, node) &&
            !takes_channels(graph, node, &window)) {
            b->shifted[node->inputs[0]] = false;
        }
        if (node->fused_add != LEAT_VALUE_NONE) {
            b->shifted[node->fused_add] = false;
            b->shifted[node->outputs[0]] = false;
        }
        if (node->op->kind == LEAT_OP_MAX_POOL || node->op->kind == LEAT_OP_GLOBAL_MAX_POOL) {
            b->shifted[node->inputs[0]] = false;
        }
    }
}

void
cpu_plan_quantised(struct cpu_builder *b)
{
    const struct leat_graph *graph = b->graph;
    bool *marks =
        b->wants_whole; /* first: a product is before it; then: one is behind it; then what it is called */

    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        b->quantised[n] = is_product(graph, node) && marks[node->inputs[0]] &&
                          cpu_has_range(&graph->values[node->inputs[0]]);
        if (is_product(graph, node) || any_input(node, marks)) {
            mark_outputs(node, marks);
        }
    }
    memset(marks, 0, graph->value_count * sizeof(*marks));
    for (uint32_t n = graph->node_count; n-- > 0;) {
        const struct leat_node *node = &graph->nodes[n];
        b->quantised[n] = b->quantised[n] && any_output(node, marks);
        if (is_product(graph, node) || any_output(node, marks)) {
            mark_inputs(node, marks);
        }
    }
    memset(marks, 0, graph->value_count * sizeof(*marks));
    for (uint32_t n = graph->node_count; n-- > 0;) {
        for (uint32_t o = 0; o < graph->output_count; o++) {
            b->wants_whole[graph->outputs[o]] = false;
        }
        ask_reader(b, n);
    }
    choose_shifted(b);
}

/* ---- Lowering --------------------------------------------------------------------------------------- */

/* How the operation's numbers stand to those of the graph. */
struct steps {
    struct cpu_stored source, result, addend;
    bool fours, channels; /* on one of our own kernels for AVX2 */
    bool apart; /* the activation is a step of its own */
    bool has_bias;
    float *weights; /* [channels] what a weight is multiplied by */
    float *sums;    /* [channels] what a sum is multiplied by */
    float *bias;    /* [channels] in units of the sums */
};

float
cpu_weights_most(bool convolution, dnnl_data_type_t source)
{
    const uint32_t vnni = dnnl_cpu_isa_avx512_core_vnni;

    if ((dnnl_get_effective_cpu_isa() & vnni) == vnni) {
        return S8_MOST;
    }
    return source == dnnl_u8 ? S8_MOST_WITHOUT_VNNI : convolution ? S8_MOST_HALVED : 0;
}

/* Of a value that is stored in whole numbers already, or will be. */
static struct cpu_stored
stored_as(const struct cpu_builder *b, uint32_t value)
{
    if (b->whole[value] != CPU_NONE) {
        const struct cpu_tensor *tensor = &b->program->tensors[b->whole[value]];
        return (struct cpu_stored){tensor->md.data_type, tensor->scale, tensor->zero};
    }
    return cpu_stored_as(b, value);
}

/* The weights of a node, channels first or last; of those that are last, some are copied side by side at a time. */
struct payload {
    const float *data;
    int64_t channels, each; /* of a channel: inputs, and of each the pixels of the window */
    int64_t taps;
    float *some; /* [CHANNELS_AT_ONCE][each]; NULL: channels are first */
};

/* Channels are asked for in their order. */
static const float *
channel_of(const struct payload *p, int64_t c)
{
    const int64_t left = p->channels - c, count = left < CHANNELS_AT_ONCE ? left : CHANNELS_AT_ONCE;

    if (p->some == NULL) {
        return p->data + c * p->each;
    }
    for (int64_t i = 0; i < p->each && c % CHANNELS_AT_ONCE == 0; i++) {
        for (int64_t k = 0; k < count; k++) {
            p->some[k * p->each + i] = p->data[i * p->channels + c + k];
        }
    }
    return p->some + c % CHANNELS_AT_ONCE * p->each;
}

static float
most_of_channel(const struct payload *p, const float *channel)
{
    float most = 0;

    for (int64_t i = 0; i < p->each; i++) {
        const float size = fabsf(channel[i]);
        most = size > most ? size : most;
    }
    return most;
}

/* What the weights of a channel add up to as they are stored, each times `factor`, and what their magnitudes do. */
static double
sum_of_channel(const struct payload *p, const float *channel, float factor, double *ret_size)
{
    double sum = 0, size = 0;

    for (int64_t i = 0; i < p->each; i++) {
        const double stored = (double)nearbyintf(channel[i] * factor);
        sum += stored;
        size += fabs(stored);
    }
    *ret_size = size;
    return sum;
}

#if defined(__x86_64__)
/* What those of one sign add up to in a four at most, or as they are stored, each times `factor`. */
static double
most_of_fours(const struct payload *p, const float *channel, float factor)
{
    const float whole = 0x1.8p23f; /* beside it floats have no fractions */
    const int64_t inputs = p->each / p->taps, fours = cpu_fours_count(inputs);
    double most = 0; /* floats may be too small for a sum of them */

    for (int64_t tap = 0; tap < p->taps; tap++) {
        for (int64_t four = 0; four < fours; four++) {
            double above = 0, below = 0;
            for (int64_t place = 0; place < CPU_FOURS_INPUTS; place++) {
                const int64_t input = cpu_input_of_four(four, place);
                const float weight = input < inputs ? channel[input * p->taps + tap] : 0;
                const float stored = factor != 0 ? weight * factor + whole - whole : weight;
                above += stored > 0 ? stored : 0;
                below -= stored < 0 ? stored : 0;
            }
            most = above > most ? above : most;
            most = below > most ? below : most;
        }
    }
    return most;
}

/* The finest with which fours are CPU_FOURS_SUM at most, or nearly: four halves may be rounded up. */
static float
step_of_fours(const struct payload *p, const float *channel)
{
    const float least = most_of_channel(p, channel) / S8_MOST;
    const double fours = most_of_fours(p, channel, 0);
    const float step = fmaxf(least, (float)(fours / CPU_FOURS_SUM));

    return most_of_fours(p, channel, 1 / step) <= CPU_FOURS_SUM ? step : fmaxf(least, (float)(fours / (CPU_FOURS_SUM - 2)));
}
#endif

/* What a weight of that channel is counted in. */
static float
step_of_channel(const struct payload *p, const float *channel, bool fours, float most)
{
#if defined(__x86_64__)
    const float step = fours ? step_of_fours(p, channel) : most_of_channel(p, channel) / most;
#else
    const float step = most_of_channel(p, channel) / most;
    (void)fours;
#endif
    return step > 0 && isfinite(step) ? step : 1;
}

static enum leat_status
find_steps(struct cpu_builder *b, const struct cpu_quantised *q, bool whole, struct steps *steps)
{
    const struct leat_node *node = b->node;
    const struct leat_value *weights = leat_node_input(b->graph, node, 1);
    const uint32_t y = node->outputs[0];
    const bool last = q->weights_as.ndims == 2 &&
                      q->weights_as.format_desc.blocking.strides[0] == 1 &&
                      q->weights_as.dims[1] != 1;

    steps->source = stored_as(b, node->inputs[0]);
    steps->has_bias = q->bias != NULL || (steps->source.zero != 0 && !q->padded);
    const bool own = steps->fours || steps->channels;
    const float most = steps->channels ? CPU_DEPTHWISE_WHOLE_MOST
                       : own           ? S8_MOST
                                       : cpu_weights_most(q->source_as.ndims == 0, steps->source.type);
    if (most == 0) {
        return LEAT_AGAIN;
    }
    steps->result = (struct cpu_stored){dnnl_f32, 1, 0};
    if (whole && b->wants_whole[y] &&
        (node->fused_add == LEAT_VALUE_NONE || b->wants_whole[node->fused_add])) {
        steps->result = cpu_stored_as(b, y);
    }
    steps->addend = steps->result;
    if (node->fused_add != LEAT_VALUE_NONE && steps->result.type != dnnl_f32) {
        steps->addend = stored_as(b, node->fused_add);
    }
    LEAT_ASSERT(steps->addend.zero == 0 || node->fused_add == LEAT_VALUE_NONE); /* nobody takes it off again */
    steps->apart = steps->result.type == dnnl_f32 && cpu_activates_apart(b);
    struct payload payload = {
        .channels = q->channels,
        .each = (int64_t)leat_value_elements(weights) / q->channels,
        .taps = q->window != NULL ? q->window[0] * q->window[1] : 1,
    };
    const size_t at_once = q->channels < CHANNELS_AT_ONCE ? (size_t)q->channels : CHANNELS_AT_ONCE;
    steps->weights = calloc(3 * (size_t)q->channels + (last ? at_once * (size_t)payload.each : 0), sizeof(float));
    if (steps->weights == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    const void *elements;
    const enum leat_status opened = cpu_open_constant(b, weights, &elements);
    if (opened != LEAT_OK) {
        free(steps->weights);
        return opened;
    }
    steps->sums = steps->weights + q->channels;
    steps->bias = steps->sums + q->channels;
    payload.data = elements;
    payload.some = last ? steps->bias + q->channels : NULL;
    const bool is_long = (double)payload.each * U8_MOST * S8_MOST > INT32_MAX;
    for (int64_t c = 0; c < q->channels; c++) {
        const float *channel = channel_of(&payload, c), step = step_of_channel(&payload, channel, steps->fours, most);
        steps->weights[c] = 1 / step;
        steps->sums[c] = steps->source.scale * step;
        steps->bias[c] = q->bias != NULL ? q->bias[c] / steps->sums[c] : 0;
        const bool shifts = steps->source.zero != 0 && (own || !q->padded);
        double sum = 0, size = 0;
        if (shifts || is_long) {
            sum = sum_of_channel(&payload, channel, steps->weights[c], &size);
        }
        if (shifts) {
            steps->bias[c] = (float)((double)steps->bias[c] - steps->source.zero * sum);
        }
        if (size * U8_MOST > INT32_MAX || !isfinite(steps->weights[c]) || !isfinite(steps->bias[c]) ||
            !(steps->sums[c] > 0 && isfinite(steps->sums[c]))) {
            free(steps->weights);
            return LEAT_AGAIN; /* too small for the arithmetic of floats, or too many for that of 32 bits */
        }
    }
    return LEAT_OK;
}

/* The result's numbers end where the activation's do: what saturates needs no rectifier, nor bounds beyond its range. */
static bool
saturates(const struct leat_node *node, const struct cpu_stored *result)
{
    if (result->type != dnnl_u8 || result->zero != 0) {
        return false;
    }
    return node->fused_activation == LEAT_ACTIVATION_RELU ||
           (node->fused_activation == LEAT_ACTIVATION_CLIP && node->clip_min <= 0 &&
            node->clip_max >= (U8_MOST - 0.5f) * result->scale);
}

/* What is fused onto the node: in units of the result, where the activation allows that. */
static enum leat_status
append_fused(struct cpu_builder *b, const struct steps *steps, bool linear, dnnl_post_ops_t post)
{
    const struct leat_node *node = b->node;
    const float unit = linear ? steps->result.scale : 1;
    enum leat_status status = LEAT_OK;

    if (node->fused_add != LEAT_VALUE_NONE) {
        const dnnl_data_type_t type =
            steps->addend.type == steps->result.type ? dnnl_data_type_undef : steps->addend.type;
        status = CPU_TRY(b, "fused sum",
                         dnnl_post_ops_append_sum_v2(post, steps->addend.scale / unit, type));
    }
    if (status == LEAT_OK && node->fused_activation != LEAT_ACTIVATION_NONE && !steps->apart &&
        !saturates(node, &steps->result)) {
        const struct cpu_function f = cpu_activation_of(node);
        const bool clips = f.algorithm == dnnl_eltwise_clip;
        status = CPU_TRY(b, "fused activation",
                         dnnl_post_ops_append_eltwise(post, unit / steps->result.scale, f.algorithm,
                                                      clips ? f.alpha / unit : f.alpha,
                                                      clips ? f.beta / unit : f.beta));
    }
    if (status == LEAT_OK && steps->result.zero != 0) {
        const dnnl_status_t appended = dnnl_post_ops_append_eltwise(post, 1, dnnl_eltwise_linear, 1,
                                                                    (float)steps->result.zero);
        status = CPU_TRY(b, "zero point of the result", appended);
    }
    return status;
}

static enum leat_status
describe(struct cpu_builder *b, const struct cpu_quantised *q, struct steps *steps,
         const_dnnl_op_desc_t op, dnnl_primitive_desc_t *ret_pd)
{
    const enum leat_activation activation = b->node->fused_activation;
    const bool linear = activation <= LEAT_ACTIVATION_CLIP ||
                        steps->apart; /* commutes with a positive factor, bounds aside */
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t post = NULL;

    for (int64_t c = 0; c < q->channels && linear; c++) {
        steps->sums[c] /= steps->result.scale;
    }
    enum leat_status status = CPU_TRY(b, "attributes", dnnl_primitive_attr_create(&attributes));
    if (status == LEAT_OK) {
        status =
            CPU_TRY(b, "attributes",
                    dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    }
    if (status == LEAT_OK) {
        status = CPU_TRY(b, "attributes",
                         dnnl_primitive_attr_set_output_scales(attributes, (dnnl_dim_t)q->channels,
                                                               1 << 1, steps->sums));
    }
    if (status == LEAT_OK) {
        status = CPU_TRY(b, "attributes", dnnl_post_ops_create(&post));
    }
    if (status == LEAT_OK && q->padded && steps->source.zero != 0) {
        status = CPU_TRY(b, "attributes",
                         dnnl_primitive_attr_set_zero_points(attributes, DNNL_ARG_SRC, 1, 0,
                                                             &steps->source.zero));
    }
    if (status == LEAT_OK) {
        status = append_fused(b, steps, linear, post);
    }
    if (status == LEAT_OK) {
        status = CPU_TRY(b, "fused operators", dnnl_primitive_attr_set_post_ops(attributes, post));
    }
    if (status == LEAT_OK) {
        status = cpu_describe_as(b, op, attributes, ret_pd);
    }
    (void)dnnl_post_ops_destroy(post);
    (void)dnnl_primitive_attr_destroy(attributes);
    return status;
}

/* dst, with the addend in it where there is one: in the addend's own memory where that is free. */
static enum leat_status
destination(struct cpu_builder *b, const struct steps *steps, const dnnl_memory_desc_t *md,
            uint32_t *ret_tensor)
{
    const uint32_t addend = b->node->fused_add;
    dnnl_memory_desc_t addend_md = *md;
    uint32_t from, filled;

    if (steps->result.type == dnnl_f32) {
        return cpu_destination(b, md, ret_tensor);
    }
    enum leat_status status = LEAT_OK;
    if (addend != LEAT_VALUE_NONE) {
        addend_md.data_type = steps->addend.type;
        status = cpu_whole(b, addend, &addend_md, &from);
    }
    if (status != LEAT_OK) {
        return status;
    }
    if (addend != LEAT_VALUE_NONE && cpu_may_overwrite(b, addend, from)) {
        status = cpu_view(b, from, md, ret_tensor);
    } else {
        status = cpu_new_tensor(b, md, dnnl_memory_desc_get_size(md), ret_tensor);
        if (status == LEAT_OK && addend != LEAT_VALUE_NONE) {
            status = cpu_view(b, *ret_tensor, &addend_md, &filled);
            if (status == LEAT_OK) {
                b->program->tensors[filled].scale = steps->addend.scale;
                status = cpu_add_reorder(b, from, filled);
            }
        }
    }
    if (status == LEAT_OK) {
        b->program->tensors[*ret_tensor].scale = steps->result.scale;
        b->program->tensors[*ret_tensor].zero = steps->result.zero;
    }
    return status;
}

/* The steps; source and result in the layouts that the operation wants. */
static enum leat_status
add_steps(struct cpu_builder *b, const struct cpu_quantised *q, const struct steps *steps,
          dnnl_primitive_desc_t pd)
{
    const struct leat_node *node = b->node;
    const struct leat_value *x = leat_node_input(b->graph, node, 0),
                            *y = leat_node_output(b->graph, node, 0);
    const bool viewed = q->source_as.ndims != 0;
    const dnnl_memory_desc_t wanted = cpu_query_md(pd, dnnl_query_weights_md);
    dnnl_memory_desc_t source = viewed ? cpu_value_md(x) : cpu_query_md(pd, dnnl_query_src_md);
    dnnl_memory_desc_t result = viewed ? cpu_value_md(y) : cpu_query_md(pd, dnnl_query_dst_md);
    struct cpu_arg args[4] = {
        {DNNL_ARG_SRC, 0}, {DNNL_ARG_WEIGHTS, 0}, {DNNL_ARG_DST, 0}, {DNNL_ARG_BIAS, 0}};
    uint32_t output = CPU_NONE;

    source.data_type = steps->source.type;
    result.data_type = steps->result.type;
    enum leat_status status = cpu_whole(b, node->inputs[0], &source, &args[0].tensor);
    if (status == LEAT_OK && viewed) {
        const dnnl_memory_desc_t seen = cpu_query_md(pd, dnnl_query_src_md);
        status = cpu_view(b, args[0].tensor, &seen, &args[0].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_constant_scaled(b, node->inputs[1], &q->weights_as, &wanted, steps->weights,
                                     (size_t)q->channels, q->weights_mask, &args[1].tensor);
    }
    if (status == LEAT_OK && steps->has_bias) {
        status = cpu_private_vector(b, steps->bias, (size_t)q->channels, &args[3].tensor);
    }
    if (status == LEAT_OK) {
        status = destination(b, steps, &result, &output);
        args[2].tensor = output;
    }
    if (status == LEAT_OK && viewed) {
        const dnnl_memory_desc_t seen = cpu_query_md(pd, dnnl_query_dst_md);
        status = cpu_view(b, output, &seen, &args[2].tensor);
    }
    if (status != LEAT_OK) {
        (void)dnnl_primitive_desc_destroy(pd);
        return status;
    }
    status = cpu_add_primitive(b, pd, args, steps->has_bias ? 4 : 3);
    if (status == LEAT_OK && steps->apart) {
        status = cpu_add_activation(b, args[2].tensor);
    }
    if (status == LEAT_OK && steps->result.type != dnnl_f32) {
        cpu_set_whole(b, output);
    } else if (status == LEAT_OK) {
        cpu_set_output(b, 0, output);
    }
    return status;
}

#if defined(__x86_64__)
/* ---- 1x1 convolutions on a kernel of our own ------------------------------------------------------------ */

enum { LANES = 16 }; /* outputs that one instruction makes */
enum { SOURCE, RESULT, WEIGHTS, STARTS, SUMS, BIAS, ADDEND, POINTS_ARGS }; /* args of a step; the last where something is added */

/* As it was lowered, and again when it runs; dims are of source and result, strides the window's. */
static struct cpu_points
points_of(const int64_t *source, const int64_t *result, const int64_t *strides)
{
    return (struct cpu_points){
        .items = result[0], .inputs = source[1], .outputs = result[1],
        .height = source[2], .width = source[3], .out_height = result[2], .out_width = result[3],
        .stride_down = strides[0], .stride_across = strides[1],
    };
}

static dnnl_memory_desc_t
channels_last_md(const int64_t *d, dnnl_data_type_t type)
{
    const int64_t strides[4] = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};
    dnnl_memory_desc_t md = cpu_strided_md(d, strides, 4);

    md.data_type = type;
    return md;
}

struct points_work {
    const struct cpu_call *call;
    struct cpu_points points;
};

static void
run_points_member(void *context, uint32_t member, uint32_t size)
{
    const struct points_work *work = context;
    const uint32_t members = work->call->program->threads;
    void *const *p = work->call->pointers;

    (void)size;
    if (member < members) {
        cpu_points_run(&work->points, p[SOURCE], p[WEIGHTS], p[STARTS], p[SUMS], p[BIAS],
                       work->call->step->arg_count > ADDEND ? p[ADDEND] : NULL, p[RESULT], member, members);
    }
}

static enum leat_status
run_points(const struct cpu_call *call)
{
    const struct cpu_tensor *tensors = call->program->tensors;
    const struct cpu_arg *args = call->step->args;
    const struct cpu_tensor *source = &tensors[args[SOURCE].tensor], *result = &tensors[args[RESULT].tensor];
    struct points_work work = {call, points_of(source->md.dims, result->md.dims, call->step->strides)};

    work.points.source_signed = source->md.data_type == dnnl_s8;
    work.points.result_signed = result->md.data_type == dnnl_s8;
    if (call->step->arg_count > ADDEND) {
        const struct cpu_tensor *addend = &tensors[args[ADDEND].tensor];
        work.points.addend_signed = addend->md.data_type == dnnl_s8;
        work.points.addend_scale = addend->scale / result->scale;
    }
    if (call->step->node->fused_activation == LEAT_ACTIVATION_SWISH) {
        work.points.swish = true;
        work.points.swish_scale = 1 / result->scale;
        work.points.swish_zero = (float)result->zero;
    }
    if (call->program->threads > 1) {
        leat_team_run(call->team, run_points_member, &work);
    } else {
        run_points_member(&work, 0, 1);
    }
    return LEAT_OK;
}

/* What they add up to is no more than fits 32 bits, in units of the result. */
static bool
are_small(const struct cpu_quantised *q, const struct steps *steps)
{
    bool small = U8_MOST * steps->addend.scale / steps->result.scale <= CPU_POINTS_BIAS;

    for (int64_t c = 0; c < q->channels && small; c++) {
        const float sums = steps->sums[c] / steps->result.scale;
        const float bias = (steps->has_bias ? steps->bias[c] * sums : 0) + (float)steps->result.zero;
        small = sums <= CPU_POINTS_SUM && fabsf(bias) <= CPU_POINTS_BIAS;
    }
    return small;
}

static bool
suits_points(const struct cpu_builder *b, const struct cpu_quantised *q, const struct steps *steps)
{
    const struct leat_node *node = b->node;
    const struct leat_value *x = leat_node_input(b->graph, node, 0);

    return q->window != NULL && q->window[0] == 1 && q->window[1] == 1 && !q->padded && cpu_points_run_here() &&
           steps->result.type != dnnl_f32 && x->rank == 4 &&
           x->dims[1] % CPU_POINTS_INPUTS == 0 && q->channels % LANES == 0 &&
           (node->fused_activation == LEAT_ACTIVATION_NONE || saturates(node, &steps->result) ||
            (node->fused_activation == LEAT_ACTIVATION_SWISH && node->fused_add == LEAT_VALUE_NONE)) && are_small(q, steps);
}

/* What sums begin with, are multiplied by, and what is added, in units of the result, or of what Swish is taken of. */
static enum leat_status
add_points_vectors(struct cpu_builder *b, const struct cpu_points *points, const struct steps *steps, struct cpu_arg *args)
{
    const bool swish = b->node->fused_activation == LEAT_ACTIVATION_SWISH;
    const float unit = swish ? 1 : steps->result.scale, zero = swish ? 0 : (float)steps->result.zero;
    const size_t channels = (size_t)points->outputs;
    float *numbers = calloc(3 * channels, sizeof(*numbers));
    int32_t *starts = (int32_t *)(void *)numbers;

    if (numbers == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    cpu_points_starts(points, b->program->tensors[args[WEIGHTS].tensor].constant->data, starts);
    for (size_t c = 0; c < channels; c++) {
        numbers[channels + c] = steps->sums[c] / unit;
        numbers[2 * channels + c] = (steps->has_bias ? steps->bias[c] * numbers[channels + c] : 0) + zero;
    }
    enum leat_status status = LEAT_OK;
    for (uint32_t i = 0; i < 3 && status == LEAT_OK; i++) {
        status = cpu_private_vector(b, numbers + i * channels, channels, &args[STARTS + i].tensor);
    }
    free(numbers);
    return status;
}

/* The result lies in the addend's memory where that is free. */
static enum leat_status
add_points(struct cpu_builder *b, const struct cpu_quantised *q, const struct steps *steps)
{
    const struct leat_node *node = b->node;
    const struct leat_value *x = leat_node_input(b->graph, node, 0), *y = leat_node_output(b->graph, node, 0);
    const dnnl_memory_desc_t weights = cpu_points_weights_md(q->channels, x->dims[1]);
    const bool adds = node->fused_add != LEAT_VALUE_NONE;
    dnnl_memory_desc_t source = channels_last_md(x->dims, steps->source.type);
    dnnl_memory_desc_t result = channels_last_md(y->dims, steps->result.type);
    dnnl_memory_desc_t addend = channels_last_md(y->dims, steps->addend.type);
    struct cpu_points points = points_of(x->dims, y->dims, q->window + 2);
    struct cpu_arg args[POINTS_ARGS] = {{0, 0}};
    struct cpu_step *step;

    points.source_signed = steps->source.type == dnnl_s8;
    enum leat_status status = cpu_whole(b, node->inputs[0], &source, &args[SOURCE].tensor);
    if (status == LEAT_OK) {
        status = cpu_constant_scaled(b, node->inputs[1], &q->weights_as, &weights, steps->weights, (size_t)q->channels,
                                     q->weights_mask, &args[WEIGHTS].tensor);
    }
    if (status == LEAT_OK) {
        status = add_points_vectors(b, &points, steps, args);
    }
    if (status == LEAT_OK && adds) {
        status = cpu_whole(b, node->fused_add, &addend, &args[ADDEND].tensor);
    }
    if (status == LEAT_OK && adds && cpu_may_overwrite(b, node->fused_add, args[ADDEND].tensor)) {
        status = cpu_view(b, args[ADDEND].tensor, &result, &args[RESULT].tensor);
    } else if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &result, dnnl_memory_desc_get_size(&result), &args[RESULT].tensor);
    }
    if (status == LEAT_OK) {
        b->program->tensors[args[RESULT].tensor].scale = steps->result.scale;
        b->program->tensors[args[RESULT].tensor].zero = steps->result.zero;
        status = cpu_add_kernel(b, run_points, args, adds ? POINTS_ARGS : ADDEND, &step);
    }
    if (status == LEAT_OK) {
        memcpy(step->strides, q->window + 2, 2 * sizeof(*q->window));
        cpu_set_whole(b, args[RESULT].tensor);
    }
    return status;
}

/* ---- Convolutions and products on a kernel of our own for AVX2 -------------------------------------------- */

/* Its args are those of points. */
static struct cpu_fours
fours_of(const struct leat_node *node, const int64_t *source, const int64_t *result, const int64_t *window)
{
    return (struct cpu_fours){
        .items = result[0], .inputs = source[1], .outputs = result[1],
        .height = source[2], .width = source[3], .out_height = result[2], .out_width = result[3],
        .kernel_down = window[0], .kernel_across = window[1], .stride_down = window[2], .stride_across = window[3],
        .pad_top = window[4], .pad_left = window[5],
        .smooth = node->fused_activation <= LEAT_ACTIVATION_CLIP ? LEAT_ACTIVATION_NONE : node->fused_activation,
        .slope = node->slope,
    };
}

/* Those of the activation and of the numbers that it is stored in, with that step and zero point. */
static void
set_bounds(const struct leat_node *node, float scale, float zero, struct cpu_fours *fours)
{
    const bool clips = node->fused_activation == LEAT_ACTIVATION_CLIP, rectifies = node->fused_activation == LEAT_ACTIVATION_RELU;
    const float least = fours->result == dnnl_f32 ? -INFINITY : fours->result == dnnl_u8 ? 0 : INT8_MIN;
    const float most = fours->result == dnnl_f32 ? INFINITY : fours->result == dnnl_u8 ? UINT8_MAX : INT8_MAX;

    fours->least = fminf(most, fmaxf(least, clips ? node->clip_min / scale + zero : rectifies ? zero : least));
    fours->most = fmaxf(least, fminf(most, clips ? node->clip_max / scale + zero : most));
}

struct fours_work {
    const struct cpu_call *call;
    struct cpu_fours fours;
    bool by_channels;
};

static void
run_fours_member(void *context, uint32_t member, uint32_t size)
{
    const struct fours_work *work = context;
    const uint32_t members = work->call->program->threads;
    void *const *p = work->call->pointers;
    const void *addend = work->call->step->arg_count > ADDEND ? p[ADDEND] : work->fours.addend == dnnl_f32 ? p[RESULT] : NULL;

    (void)size;
    if (member < members && work->by_channels) {
        cpu_depthwise_whole_run(&work->fours, p[SOURCE], p[WEIGHTS], p[SUMS], p[BIAS], p[RESULT], member, members);
    } else if (member < members) {
        cpu_fours_run(&work->fours, p[SOURCE], p[WEIGHTS], p[STARTS], p[SUMS], p[BIAS], addend, p[RESULT], member, members);
    }
}

static enum leat_status
run_fours(const struct cpu_call *call)
{
    const struct cpu_tensor *tensors = call->program->tensors;
    const struct cpu_step *step = call->step;
    const struct cpu_tensor *source = &tensors[step->args[SOURCE].tensor], *result = &tensors[step->args[RESULT].tensor];
    struct fours_work work = {.call = call, .fours = fours_of(step->node, source->md.dims, result->md.dims, step->dims)};
    const bool whole = result->md.data_type != dnnl_f32;
    const float scale = whole ? result->scale : 1, zero = whole ? (float)result->zero : 0;
    const bool adds = step->node->fused_add != LEAT_VALUE_NONE;

    work.fours.source_signed = source->md.data_type == dnnl_s8;
    work.fours.rest = (unsigned char)source->zero;
    work.fours.result = result->md.data_type;
    work.fours.smooth_scale = 1 / scale;
    work.fours.smooth_zero = zero;
    work.fours.addend = adds ? dnnl_f32 : dnnl_data_type_undef;
    if (step->arg_count > ADDEND) {
        const struct cpu_tensor *addend = &tensors[step->args[ADDEND].tensor];
        work.fours.addend = addend->md.data_type;
        work.fours.addend_scale = work.fours.smooth == LEAT_ACTIVATION_NONE ? addend->scale / scale : addend->scale;
    }
    work.by_channels = step->node->op->kind == LEAT_OP_CONV && leat_node_int(step->node, "group", 1) > 1; /* it has no other groups */
    set_bounds(step->node, scale, zero, &work.fours);
    if (call->program->threads > 1) {
        leat_team_run(call->team, run_fours_member, &work);
    } else {
        run_fours_member(&work, 0, 1);
    }
    return LEAT_OK;
}

/*
 * What sums begin with, where it is packed for that, are multiplied by, and what is added, in units of the result, or of what a smooth
 * activation is taken of.
 */
static enum leat_status
add_fours_vectors(struct cpu_builder *b, const struct cpu_fours *fours, const struct steps *steps, struct cpu_arg *args)
{
    const bool smooth = fours->smooth != LEAT_ACTIVATION_NONE;
    const float unit = smooth ? 1 : steps->result.scale, zero = smooth ? 0 : (float)steps->result.zero;
    const size_t channels = (size_t)fours->outputs, wide = (size_t)leat_round_up(channels, CPU_FOURS_OUTPUTS);
    float *numbers = calloc(3 * wide, sizeof(*numbers));
    int32_t *starts = (int32_t *)(void *)numbers;

    if (numbers == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    if (steps->fours) {
        cpu_fours_starts(fours, b->program->tensors[args[WEIGHTS].tensor].constant->data, starts);
    }
    for (size_t c = 0; c < channels; c++) {
        numbers[wide + c] = steps->sums[c] / unit;
        numbers[2 * wide + c] = steps->bias[c] * numbers[wide + c] + zero;
    }
    enum leat_status status = LEAT_OK;
    for (uint32_t i = 0; i < 3 && status == LEAT_OK; i++) {
        status = cpu_private_vector(b, numbers + i * wide, wide, &args[STARTS + i].tensor);
    }
    free(numbers);
    return status;
}

/* Of the value as it lies there, channels last, what the kernel sees. */
static dnnl_memory_desc_t
fours_md(const struct cpu_quantised *q, const struct leat_value *value, const dnnl_memory_desc_t *matrix, dnnl_data_type_t type)
{
    const int64_t pixels[4] = {1, matrix->dims[1], matrix->dims[0], 1};

    return channels_last_md(q->source_as.ndims != 0 ? pixels : value->dims, type);
}

/* The result, with the addend in it where that is in floats; in whole numbers it lies in the addend's memory where that is free. */
static enum leat_status
add_fours_result(struct cpu_builder *b, const struct steps *steps, const dnnl_memory_desc_t *md, struct cpu_arg *args)
{
    const uint32_t added = b->node->fused_add;

    if (steps->result.type == dnnl_f32) {
        return cpu_destination(b, md, &args[RESULT].tensor);
    }
    enum leat_status status = LEAT_OK;
    if (added != LEAT_VALUE_NONE) {
        dnnl_memory_desc_t addend = *md;
        addend.data_type = steps->addend.type;
        status = cpu_whole(b, added, &addend, &args[ADDEND].tensor);
    }
    if (status == LEAT_OK && added != LEAT_VALUE_NONE && cpu_may_overwrite(b, added, args[ADDEND].tensor)) {
        status = cpu_view(b, args[ADDEND].tensor, md, &args[RESULT].tensor);
    } else if (status == LEAT_OK) {
        status = cpu_new_tensor(b, md, dnnl_memory_desc_get_size(md), &args[RESULT].tensor);
    }
    if (status == LEAT_OK) {
        b->program->tensors[args[RESULT].tensor].scale = steps->result.scale;
        b->program->tensors[args[RESULT].tensor].zero = steps->result.zero;
    }
    return status;
}

static enum leat_status
add_fours(struct cpu_builder *b, const struct cpu_quantised *q, const struct steps *steps)
{
    static const int64_t point[6] = {1, 1, 1, 1, 0, 0};
    const struct leat_node *node = b->node;
    const struct leat_value *x = leat_node_input(b->graph, node, 0), *y = leat_node_output(b->graph, node, 0);
    const bool product = q->source_as.ndims != 0;
    const int64_t *window = product ? point : q->window;
    const dnnl_memory_desc_t source = fours_md(q, x, &q->source_as, steps->source.type);
    const dnnl_memory_desc_t result = fours_md(q, y, &q->result_as, steps->result.type);
    struct cpu_fours fours = fours_of(node, source.dims, result.dims, window);
    const dnnl_memory_desc_t packed = cpu_fours_weights_md(&fours);
    dnnl_memory_desc_t x_md = product ? cpu_value_md(x) : source, y_md = product ? cpu_value_md(y) : result;
    dnnl_memory_desc_t weights_as = q->weights_as;
    struct cpu_arg args[POINTS_ARGS] = {{0, 0}};
    struct cpu_step *step;

    fours.source_signed = steps->source.type == dnnl_s8;
    x_md.data_type = steps->source.type;
    y_md.data_type = steps->result.type;
    for (int i = weights_as.ndims; i < 4; i++) {
        weights_as.dims[i] = weights_as.padded_dims[i] = weights_as.format_desc.blocking.strides[i] = 1;
    }
    weights_as.ndims = 4;
    enum leat_status status = cpu_whole(b, node->inputs[0], &x_md, &args[SOURCE].tensor);
    if (status == LEAT_OK) {
        status = cpu_view(b, args[SOURCE].tensor, &source, &args[SOURCE].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_constant_scaled(b, node->inputs[1], &weights_as, &packed, steps->weights, (size_t)q->channels, q->weights_mask,
                                     &args[WEIGHTS].tensor);
    }
    if (status == LEAT_OK) {
        status = add_fours_vectors(b, &fours, steps, args);
    }
    if (status == LEAT_OK) {
        status = add_fours_result(b, steps, &y_md, args);
    }
    const uint32_t output = args[RESULT].tensor;
    if (status == LEAT_OK) {
        status = cpu_view(b, output, &result, &args[RESULT].tensor);
    }
    if (status == LEAT_OK) {
        const bool adds = node->fused_add != LEAT_VALUE_NONE && steps->result.type != dnnl_f32;
        status = cpu_add_kernel(b, run_fours, args, adds ? POINTS_ARGS : ADDEND, &step);
    }
    if (status == LEAT_OK) {
        memcpy(step->dims, window, sizeof(point));
        if (steps->result.type != dnnl_f32) {
            cpu_set_whole(b, output);
        } else {
            cpu_set_output(b, 0, output);
        }
    }
    return status;
}

/* The weights of a convolution by channels, in whole numbers of 16 bits. */
static enum leat_status
add_channels_weights(struct cpu_builder *b, const struct cpu_fours *fours, const struct steps *steps, uint32_t *ret_tensor)
{
    const size_t bytes = cpu_depthwise_whole_weights_bytes(fours);
    const void *elements;
    float *packed;

    enum leat_status status = cpu_open_constant(b, leat_node_input(b->graph, b->node, 1), &elements);
    if (status != LEAT_OK) {
        return status;
    }
    packed = calloc(1, bytes);
    if (packed == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    cpu_depthwise_whole_pack(fours, elements, steps->weights, (int16_t *)(void *)packed);
    status = cpu_private_vector(b, packed, bytes / sizeof(float), ret_tensor);
    free(packed);
    return status;
}

/* A convolution by channels. Its args are those of points, without an addend. */
static enum leat_status
add_channels(struct cpu_builder *b, const struct steps *steps, const struct leat_window *w)
{
    const uint32_t down = LEAT_WINDOW_RANK - 2, across = LEAT_WINDOW_RANK - 1;
    const int64_t window[6] = {w->kernel[down],   w->kernel[across],    w->stride[down],
                               w->stride[across], w->pad_begin[down], w->pad_begin[across]};
    const struct leat_node *node = b->node;
    const struct leat_value *x = leat_node_input(b->graph, node, 0), *y = leat_node_output(b->graph, node, 0);
    const dnnl_memory_desc_t source = channels_last_md(x->dims, steps->source.type);
    const dnnl_memory_desc_t result = channels_last_md(y->dims, steps->result.type);
    const struct cpu_fours fours = fours_of(node, source.dims, result.dims, window);
    struct cpu_arg args[POINTS_ARGS] = {{0, 0}};
    struct cpu_step *step;

    enum leat_status status = cpu_whole(b, node->inputs[0], &source, &args[SOURCE].tensor);
    if (status == LEAT_OK) {
        status = add_channels_weights(b, &fours, steps, &args[WEIGHTS].tensor);
    }
    if (status == LEAT_OK) {
        status = add_fours_vectors(b, &fours, steps, args);
    }
    if (status == LEAT_OK) {
        status = add_fours_result(b, steps, &result, args);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, run_fours, args, ADDEND, &step);
    }
    if (status == LEAT_OK) {
        memcpy(step->dims, window, sizeof(window));
        if (steps->result.type != dnnl_f32) {
            cpu_set_whole(b, args[RESULT].tensor);
        } else {
            cpu_set_output(b, 0, args[RESULT].tensor);
        }
    }
    return status;
}
#endif

/* Its result in whole numbers where that is asked for, or else in floats. */
static enum leat_status
lower(struct cpu_builder *b, const struct cpu_quantised *q, bool whole)
{
    const dnnl_memory_desc_t bias_md = cpu_plain_md(&q->channels, 1);
    const dnnl_memory_desc_t weights =
        cpu_any_md(q->weights_as.dims, (uint32_t)q->weights_as.ndims, dnnl_s8);
    struct steps steps;
    union {
        dnnl_convolution_desc_t convolution;
        dnnl_inner_product_desc_t product;
    } op;
    dnnl_primitive_desc_t pd;
    struct leat_window window;

    steps.fours = takes_fours(b->graph, b->node);
    steps.channels = takes_channels(b->graph, b->node, &window);
    enum leat_status status = find_steps(b, q, whole, &steps);
    if (status != LEAT_OK) {
        return status;
    }
#if defined(__x86_64__)
    if (steps.fours) {
        status = add_fours(b, q, &steps);
        free(steps.weights);
        return status;
    }
    if (steps.channels) {
        status = add_channels(b, &steps, &window);
        free(steps.weights);
        return status;
    }
    if (suits_points(b, q, &steps)) {
        status = add_points(b, q, &steps);
        free(steps.weights);
        return status;
    }
#endif
    status = q->describe(b, q->context, steps.source.type, &weights,
                         steps.has_bias ? &bias_md : NULL, steps.result.type, &op);
    if (status == LEAT_OK) {
        status = describe(b, q, &steps, &op, &pd);
    }
    if (status == LEAT_OK) {
        status = add_steps(b, q, &steps, pd);
    }
    free(steps.weights);
    return status;
}

enum leat_status
cpu_lower_quantised(struct cpu_builder *b, const struct cpu_quantised *q)
{
    const enum leat_status status = lower(b, q, true);
    /* Not all kernels add s8 to u8. */
    return status == LEAT_AGAIN && b->wants_whole[b->node->outputs[0]] ? lower(b, q, false)
                                                                       : status;
}
