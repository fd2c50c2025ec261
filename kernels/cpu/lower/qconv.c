/* SPDX-License-Identifier: Apache-2.0 */
/* QLinearConv and QLinearMatMul on kernels of our own, where there is AVX2 and no AVX-512. */
#include <stdlib.h>

#include "base/align.h"
#include "kernels/cpu/loops/depthwise_whole.h"
#include "kernels/cpu/loops/qconv.h"
#include "kernels/cpu/loops/qlinear_node.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"
#include "kernels/team.h"

enum { SOURCE, WEIGHTS, UNITS, BIAS, RESULT, SCRATCH, ARGS }; /* args of a step; the last where channels are not apart */
enum { DOWN = LEAT_WINDOW_RANK - 2, ACROSS = LEAT_WINDOW_RANK - 1 };
enum { TEAM_LEAST = 1 << 18 }; /* products that are worth a team */

static bool
is_conv(const struct leat_node *node)
{
    return node->op->kind == LEAT_OP_QLINEAR_CONV;
}

static bool
is_transposed(const struct leat_node *node)
{
    return leat_node_int(node, "transB", 0) != 0;
}

static int64_t
taps_of(const struct leat_window *w)
{
    return w->kernel[0] * w->kernel[1] * w->kernel[2];
}

bool
cpu_qconv_runs_here(void)
{
    return cpu_fours_run_here();
}

bool
cpu_qconv_suits(const struct leat_graph *graph, const struct leat_node *node, const struct leat_value *weights)
{
    const int64_t groups = leat_node_int(node, "group", 1), channels = weights->rank > 0 ? weights->dims[0] : 0;
    struct leat_window w;

    if (!cpu_qconv_runs_here() || weights->rank > 2 + LEAT_WINDOW_RANK) {
        return false;
    }
    if (groups == 1) {
        return !is_conv(node) || (leat_window_of(graph, node, &w) == LEAT_OK && cpu_qconv_fits(&w, weights->dims[1]));
    }
    return (weights->rank == 4 && weights->dims[1] == 1 && groups == channels && channels % CPU_DEPTHWISE_WHOLE_CHANNELS == 0 &&
            leat_window_of(graph, node, &w) == LEAT_OK &&
            (w.dilation[DOWN] == 1 || w.kernel[DOWN] == 1) && (w.dilation[ACROSS] == 1 || w.kernel[ACROSS] == 1) &&
            taps_of(&w) <= CPU_FOURS_TAPS_MAX);
}

/* ---- Runs ------------------------------------------------------------------------------------------- */

struct work {
    const struct cpu_call *call;
    struct cpu_qconv conv;   /* or: */
    struct cpu_fours fours;  /* of channels that are apart */
    bool by_channels;
    uint32_t members;
};

/* Pixels alone: they are those of one line. */
static void
flatten(struct cpu_qconv *conv)
{
    const struct leat_window *w = &conv->window;

    for (uint32_t d = 0; d < LEAT_WINDOW_RANK; d++) {
        if (w->kernel[d] != 1 || w->stride[d] != 1 || w->in[d] != w->out[d] || w->pad_begin[d] != 0) {
            return;
        }
    }
    const int64_t pixels = conv->items * w->in[0] * w->in[1] * w->in[2];
    conv->items = 1;
    conv->window.in[0] = conv->window.in[1] = conv->window.out[0] = conv->window.out[1] = 1;
    conv->window.in[2] = conv->window.out[2] = pixels;
}

static struct cpu_qconv
describe_product(const struct leat_value *x, const struct leat_value *w, bool transposed)
{
    const int64_t inner = w->dims[transposed ? 1 : 0], rows = (int64_t)leat_value_elements(x) / inner;

    return (struct cpu_qconv){.items = 1,
                              .inputs = inner,
                              .outputs = w->dims[transposed ? 0 : 1],
                              .window = {.rank = 1,
                                         .in = {1, 1, rows},
                                         .out = {1, 1, rows},
                                         .kernel = {1, 1, 1},
                                         .stride = {1, 1, 1},
                                         .dilation = {1, 1, 1}}};
}

static struct cpu_fours
describe_channels(const struct cpu_qconv *conv)
{
    const struct leat_window *w = &conv->window;
    const dnnl_data_type_t result = conv->result_signed ? dnnl_s8 : dnnl_u8;
    const int32_t least = conv->result_signed ? INT8_MIN : 0, most = conv->result_signed ? INT8_MAX : UINT8_MAX;

    return (struct cpu_fours){
        .items = conv->items, .inputs = conv->outputs, .outputs = conv->outputs,
        .height = w->in[DOWN], .width = w->in[ACROSS], .out_height = w->out[DOWN], .out_width = w->out[ACROSS],
        .kernel_down = w->kernel[DOWN], .kernel_across = w->kernel[ACROSS],
        .stride_down = w->stride[DOWN], .stride_across = w->stride[ACROSS],
        .pad_top = w->pad_begin[DOWN], .pad_left = w->pad_begin[ACROSS],
        .source_signed = conv->source_signed, .rest = (unsigned char)conv->source_zero, .result = result,
        .least = (float)(least - conv->result_zero), .most = (float)(most - conv->result_zero), .zero = conv->result_zero,
    };
}

/* As it is lowered, and again when it runs. */
static enum leat_status
describe(const struct leat_graph *graph, const struct leat_node *node, struct work *ret)
{
    const struct leat_value *x = leat_node_input(graph, node, CPU_QLINEAR_X), *w = leat_node_input(graph, node, CPU_QLINEAR_W);
    const struct cpu_scale source = cpu_qlinear_scale(graph, node, CPU_QLINEAR_X_SCALE, CPU_QLINEAR_X_ZERO);
    const struct cpu_scale result = cpu_qlinear_scale(graph, node, CPU_QLINEAR_Y_SCALE, CPU_QLINEAR_Y_ZERO);

    ret->by_channels = is_conv(node) && leat_node_int(node, "group", 1) > 1;
    if (is_conv(node)) {
        ret->conv = (struct cpu_qconv){.items = x->dims[0], .inputs = w->dims[1], .outputs = w->dims[0]};
        const enum leat_status status = leat_window_of(graph, node, &ret->conv.window);
        if (status != LEAT_OK) {
            return status;
        }
    } else {
        ret->conv = describe_product(x, w, is_transposed(node));
    }
    ret->conv.source_signed = source.is_signed;
    ret->conv.source_zero = source.zero;
    ret->conv.result_signed = result.is_signed;
    ret->conv.result_zero = result.zero;
    if (ret->by_channels) {
        ret->fours = describe_channels(&ret->conv);
    } else {
        flatten(&ret->conv);
        ret->conv.narrow = cpu_qconv_takes_narrow(&ret->conv);
    }
    return LEAT_OK;
}

static void
run_member(void *context, uint32_t member, uint32_t size)
{
    const struct work *work = context;
    void *const *p = work->call->pointers;

    (void)size;
    if (member >= work->members) {
        return;
    }
    if (work->by_channels) {
        cpu_depthwise_whole_run(&work->fours, p[SOURCE], p[WEIGHTS], p[UNITS], p[BIAS], p[RESULT], member, work->members);
    } else {
        unsigned char *scratch = (unsigned char *)p[SCRATCH] + member * cpu_qconv_scratch_bytes(&work->conv);
        cpu_qconv_run(&work->conv, p[SOURCE], p[WEIGHTS], p[UNITS], p[BIAS], (int16_t *)(void *)scratch, p[RESULT], member,
                      work->members);
    }
}

static enum leat_status
multiply(const struct cpu_call *call)
{
    const struct leat_graph *graph = call->program->graph;
    const struct leat_node *node = call->step->node;
    const size_t results = leat_value_elements(leat_node_output(graph, node, 0));
    struct work work = {.call = call, .members = 1};

    LEAT_MUST(describe(graph, node, &work) == LEAT_OK);
    const int64_t each = work.conv.inputs * taps_of(&work.conv.window);
    if (call->program->threads > 1 && results >= (size_t)(TEAM_LEAST / each)) {
        work.members = call->program->threads;
        leat_team_run(call->team, run_member, &work);
    } else {
        run_member(&work, 0, 1);
    }
    return LEAT_OK;
}

/* ---- Weights ---------------------------------------------------------------------------------------- */

/* How the weights of an operator lie. */
struct order {
    int64_t outputs, inputs, taps;
    struct cpu_qconv_strides strides;
};

static struct order
order_of_conv(const struct leat_value *w)
{
    const int64_t taps = (int64_t)leat_value_elements(w) / w->dims[0] / w->dims[1];

    return (struct order){w->dims[0], w->dims[1], taps, {w->dims[1] * taps, taps, 1}};
}

/* [inputs][outputs] */
static struct order
order_of_columns(const struct leat_value *w)
{
    return (struct order){w->dims[1], w->dims[0], 1, {1, w->dims[1], 0}};
}

/* [outputs][inputs] */
static struct order
order_of_rows(const struct leat_value *w)
{
    return (struct order){w->dims[0], w->dims[1], 1, {w->dims[1], 1, 0}};
}

static void
pack(const struct leat_value *w, const struct order order, void *ret_packed)
{
    cpu_qconv_pack(w->data, &order.strides, order.outputs, order.inputs, order.taps, ret_packed);
}

static void
pack_narrow(const struct leat_value *w, const struct order order, void *ret_packed)
{
    cpu_qconv_pack_narrow(w->data, &order.strides, order.outputs, order.inputs, ret_packed);
}

/* One function for each form that a weight may be kept in. */
static void
pack_conv(const struct leat_value *w, void *ret_packed)
{
    pack(w, order_of_conv(w), ret_packed);
}

static void
pack_columns(const struct leat_value *w, void *ret_packed)
{
    pack(w, order_of_columns(w), ret_packed);
}

static void
pack_rows(const struct leat_value *w, void *ret_packed)
{
    pack(w, order_of_rows(w), ret_packed);
}

static void
pack_narrow_conv(const struct leat_value *w, void *ret_packed)
{
    pack_narrow(w, order_of_conv(w), ret_packed);
}

static void
pack_narrow_columns(const struct leat_value *w, void *ret_packed)
{
    pack_narrow(w, order_of_columns(w), ret_packed);
}

static void
pack_narrow_rows(const struct leat_value *w, void *ret_packed)
{
    pack_narrow(w, order_of_rows(w), ret_packed);
}

/* Of channels that are apart; some at a time, as floats. */
static void
pack_channels(const struct leat_value *w, void *ret_packed)
{
    enum { SOME = CPU_DEPTHWISE_WHOLE_CHANNELS };
    const struct cpu_fours some = {.outputs = SOME, .kernel_down = w->dims[2], .kernel_across = w->dims[3]};
    const int64_t taps = w->dims[2] * w->dims[3];
    const size_t bytes = cpu_depthwise_whole_weights_bytes(&some);
    float floats[SOME * CPU_FOURS_TAPS_MAX], factors[SOME];

    for (int64_t c = 0; c < SOME; c++) {
        factors[c] = 1;
    }
    for (int64_t first = 0; first < w->dims[0]; first += SOME) {
        for (int64_t i = 0; i < SOME * taps; i++) {
            floats[i] = ((const int8_t *)w->data)[first * taps + i];
        }
        cpu_depthwise_whole_pack(&some, floats, factors,
                                 (int16_t *)(void *)((unsigned char *)ret_packed + (size_t)(first / SOME) * bytes));
    }
}

static enum leat_status
add_weights(struct cpu_builder *b, const struct work *work, uint32_t *ret_tensor)
{
    const struct cpu_qconv *conv = &work->conv;
    const size_t bytes = work->by_channels ? cpu_depthwise_whole_weights_bytes(&work->fours)
                         : conv->narrow    ? cpu_qconv_narrow_bytes(conv->outputs, conv->inputs)
                                           : cpu_qconv_packed_bytes(conv->outputs, conv->inputs, taps_of(&conv->window));
    const cpu_pack form = work->by_channels        ? pack_channels
                          : is_conv(b->node)       ? (conv->narrow ? pack_narrow_conv : pack_conv)
                          : is_transposed(b->node) ? (conv->narrow ? pack_narrow_rows : pack_rows)
                                                   : (conv->narrow ? pack_narrow_columns : pack_columns);

    return cpu_constant_packed(b, b->node->inputs[CPU_QLINEAR_W], form, bytes, ret_tensor);
}

/* ---- Lowering --------------------------------------------------------------------------------------- */

/* Of a channel that is apart: what the zero point of the source adds to its sum, where it pads, too. */
static double
shift_of(const int8_t *weights, int64_t taps, int64_t channel, int32_t zero)
{
    int64_t sum = 0;

    for (int64_t t = 0; t < taps; t++) {
        sum += weights[channel * taps + t];
    }
    return (double)zero * (double)sum;
}

/* What sums are multiplied by, and what is added, in units of the result; filled up with zeros to whole panels. */
static enum leat_status
add_units(struct cpu_builder *b, const struct work *work, struct cpu_arg *args)
{
    const struct leat_value *bias = leat_node_input(b->graph, b->node, CPU_QLINEAR_BIAS);
    const struct leat_value *w = leat_node_input(b->graph, b->node, CPU_QLINEAR_W);
    const size_t channels = (size_t)work->conv.outputs, count = (size_t)leat_round_up(channels, CPU_QCONV_PANEL);
    float *units = calloc(2 * count, sizeof(*units));
    const void *elements = NULL;

    enum leat_status status = units != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    if (status == LEAT_OK && work->by_channels) {
        status = cpu_open_constant(b, w, &elements);
    }
    for (size_t c = 0; c < channels && status == LEAT_OK; c++) {
        double added = bias != NULL ? ((const int32_t *)bias->data)[c] : 0;
        units[c] = cpu_qlinear_unit(b->graph, b->node, c);
        if (work->by_channels) {
            added -= shift_of(elements, taps_of(&work->conv.window), (int64_t)c, work->conv.source_zero);
        }
        units[count + c] = (float)(added * (double)units[c]);
    }
    for (uint32_t i = 0; i < 2 && status == LEAT_OK; i++) {
        status = cpu_private_vector(b, units + i * count, count, &args[UNITS + i].tensor);
    }
    free(units);
    return status;
}

/* The channels of a pixel side by side. */
static dnnl_memory_desc_t
channels_last_md(const struct leat_value *value)
{
    int64_t strides[LEAT_RANK_MAX], stride = value->dims[1];

    strides[1] = 1;
    for (uint32_t d = value->rank; d-- > 2;) {
        strides[d] = stride;
        stride *= value->dims[d];
    }
    strides[0] = stride;
    dnnl_memory_desc_t md = cpu_strided_md(value->dims, strides, value->rank);
    md.data_type = value->dtype == LEAT_DTYPE_I8 ? dnnl_s8 : dnnl_u8;
    return md;
}

/* Source and result. */
static enum leat_status
add_tensors(struct cpu_builder *b, struct cpu_arg *args)
{
    const struct leat_value *y = leat_node_output(b->graph, b->node, 0);

    if (!is_conv(b->node)) {
        const enum leat_status status = cpu_plain(b, b->node->inputs[CPU_QLINEAR_X], &args[SOURCE].tensor);
        return status == LEAT_OK ? cpu_plain_output(b, 0, &args[RESULT].tensor) : status;
    }
    const dnnl_memory_desc_t source = channels_last_md(leat_node_input(b->graph, b->node, CPU_QLINEAR_X));
    const dnnl_memory_desc_t result = channels_last_md(y);
    enum leat_status status = cpu_in_layout(b, b->node->inputs[CPU_QLINEAR_X], &source, &args[SOURCE].tensor);
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &result, leat_value_bytes(y), &args[RESULT].tensor);
    }
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, args[RESULT].tensor);
    }
    return status;
}

enum leat_status
cpu_lower_qconv(struct cpu_builder *b)
{
    const dnnl_memory_desc_t none = {.ndims = 0};
    struct cpu_arg args[ARGS] = {{0, 0}};
    struct work work = {.call = NULL};
    struct cpu_step *step;

    enum leat_status status = describe(b->graph, b->node, &work);
    if (status == LEAT_OK) {
        status = add_tensors(b, args);
    }
    if (status == LEAT_OK) {
        status = add_weights(b, &work, &args[WEIGHTS].tensor);
    }
    if (status == LEAT_OK) {
        status = add_units(b, &work, args);
    }
    if (status == LEAT_OK && !work.by_channels) {
        const size_t bytes = b->program->threads * cpu_qconv_scratch_bytes(&work.conv);
        status = cpu_new_tensor(b, &none, bytes, &args[SCRATCH].tensor);
    }
    return status == LEAT_OK ? cpu_add_kernel(b, multiply, args, work.by_channels ? SCRATCH : ARGS, &step) : status;
}
