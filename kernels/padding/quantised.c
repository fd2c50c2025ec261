/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QuantizeLinear and DequantizeLinear. Each element becomes a number, or a float again, by itself: positions stay apart.
 * 0 becomes the zero point, so what was zero behind the end *rests* there, and is zero again where the same zero point is
 * taken off. A mask alone becomes two other numbers. Scores with a mask are rounded and cut off: how far apart they are
 * changes by a step for each of the two, and what is left of the margin is what is left of the mask alone.
 */
#include <math.h>

#include "base/align.h"
#include "kernels/padding/padding.h"

/* What all elements go through; numbers that are constant. */
struct scale {
    float step;
    double zero, least, most; /* of the numbers */
    bool quantises;
};

static double
convert(const struct scale *scale, double x)
{
    if (!scale->quantises) {
        return (double)(float)((x - scale->zero) * (double)scale->step);
    }
    const double number = nearbyint((double)((float)x / scale->step)) + scale->zero;
    return number < scale->least ? scale->least : number > scale->most ? scale->most : number;
}

bool
padding_zero_point(const struct padding *p, const struct leat_node *node, uint32_t input, double *ret)
{
    const struct padding_state *zero = padding_input(p, node, input);

    *ret = zero != NULL ? zero->off : 0;
    return zero == NULL || (zero->known && zero->mask == LEAT_VALUE_NONE);
}

bool
padding_scales_hold(const struct padding *p, const struct leat_node *node, uint32_t input)
{
    const struct leat_value *scales = leat_node_input(p->graph, node, input);
    double scale;

    for (size_t i = 0; scales->data != NULL && i < leat_value_elements(scales); i++) {
        if (!padding_element(scales, i, &scale) || !(scale > 0) || !isfinite(scale)) {
            return false;
        }
    }
    return scales->data != NULL;
}

/* One positive, finite scale for all elements, and one zero point. */
static bool
find_scale(const struct padding *p, const struct leat_node *node, struct scale *ret)
{
    const struct padding_state *step = padding_input(p, node, 1);
    const bool is_signed = leat_node_output(p->graph, node, 0)->dtype == LEAT_DTYPE_I8;

    *ret = (struct scale){.step = (float)step->off,
                          .least = is_signed ? INT8_MIN : 0,
                          .most = is_signed ? INT8_MAX : UINT8_MAX,
                          .quantises = node->op->kind == LEAT_OP_QUANTIZE_LINEAR};
    return padding_zero_point(p, node, 2, &ret->zero) && step->known && step->mask == LEAT_VALUE_NONE && step->off > 0 &&
           isfinite(ret->step) && ret->step > 0;
}

uint32_t
padding_resting(const struct padding *p, const struct leat_node *node, uint32_t input, uint32_t zero_input)
{
    const struct padding_state *in = padding_input(p, node, input);
    double zero;

    if (!padding_zero_point(p, node, zero_input, &zero)) {
        return 0;
    }
    return (in->rest == zero ? in->resting : 0) | (zero == 0 ? in->zero : 0);
}

void
padding_rest(struct padding_state *out, uint32_t axes, double zero)
{
    out->resting = axes;
    out->rest = zero;
    out->zero |= zero == 0 ? axes : 0;
}

/* A mask alone, or a number. */
static void
convert_known(const struct scale *scale, const struct padding_state *in, struct padding_state *out)
{
    out->known = true;
    out->off = convert(scale, in->off);
    out->on = convert(scale, in->on);
    out->mask = in->mask;
    out->mask_axis = in->mask_axis;
    if (out->off == 0) {
        out->zero |= in->mask != LEAT_VALUE_NONE ? UINT32_C(1) << in->mask_axis : out->axes;
    }
    if (in->mask == LEAT_VALUE_NONE && out->off >= 0) {
        out->sign = out->off > 0 ? PADDING_POSITIVE : PADDING_NOT_NEGATIVE;
    }
}

static void
convert_masked(const struct scale *scale, const struct padding_state *in, struct padding_state *out)
{
    const double rounding = scale->quantises ? 2 : 0; /* half a step for each score, with its mask and without */
    const double ends[2] = {in->offset.least, in->offset.most};
    double margin = INFINITY; /* it is cut off where the tail is below all numbers, or what counts above them */

    for (uint32_t i = 0; i < LEAT_COUNT_OF(ends); i++) {
        const double left = convert(scale, ends[i]) - convert(scale, ends[i] - in->margin);
        margin = isnan(left) ? 0 : fmin(margin, left);
    }
    if (margin > rounding) {
        out->masked = in->masked;
        out->margin = margin - rounding;
        out->masks = in->masks;
    }
}

/* Nothing is beyond the least and the greatest number; floats of other steps than these have been are not followed. */
static struct padding_offset
convert_offset(const struct padding *p, const struct leat_node *node, const struct scale *scale, bool one_scale,
               struct padding_offset in)
{
    double zero;
    const bool holds = padding_zero_point(p, node, 2, &zero) && padding_scales_hold(p, node, 1);
    const double rest = scale->quantises ? 0 : zero; /* what becomes the zero point or 0 by any scale */

    if (one_scale) {
        return padding_offset_of(convert(scale, in.least), convert(scale, in.most));
    }
    if (holds && in.least == rest && in.most == rest) {
        return scale->quantises ? padding_offset_of(zero, zero) : padding_offset_of(0, 0);
    }
    return scale->quantises ? padding_offset_of(scale->least, scale->most) : padding_offset_lost();
}

/* Constants of 8 bits that become floats: no two of them are as far apart as a mask would be. */
static bool
is_even(const struct padding *p, const struct leat_node *node)
{
    const struct leat_value *steps = leat_node_input(p->graph, node, 1);
    const size_t count = steps->data != NULL ? leat_value_elements(steps) : 0;
    double step;

    for (size_t i = 0; i < count; i++) {
        if (!padding_element(steps, i, &step) || !(fabs(step) * UINT8_MAX < LEAT_PADDING_MARGIN)) {
            return false;
        }
    }
    return count > 0 && leat_node_input(p->graph, node, 0)->dtype != LEAT_DTYPE_I32;
}

enum leat_status
padding_convert(struct padding *p, const struct leat_node *node)
{
    const struct padding_state *in = padding_input(p, node, 0), *step = padding_input(p, node, 1);
    const struct padding_state *zero = padding_input(p, node, 2);
    struct padding_state *out = &p->states[node->outputs[0]];
    struct scale scale;
    double point;

    if (step->axes != 0 || (zero != NULL && zero->axes != 0)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "its scales are those of positions");
    }
    const bool one_scale = find_scale(p, node, &scale);
    if (!scale.quantises) {
        out->finite = padding_tail_is_finite(in) && step->finite;
        out->zero = out->finite ? padding_resting(p, node, 0, 2) : 0;
        const bool is_u8 = leat_node_input(p->graph, node, 0)->dtype == LEAT_DTYPE_U8;
        out->sign = one_scale && scale.zero == 0 && is_u8 ? PADDING_NOT_NEGATIVE : PADDING_ANY;
    } else if (padding_zero_point(p, node, 2, &point) && padding_scales_hold(p, node, 1)) {
        padding_rest(out, in->zero, point);
    }
    out->offset = convert_offset(p, node, &scale, one_scale, in->offset);
    if (in->known && one_scale) {
        convert_known(&scale, in, out);
    } else {
        padding_use_as_numbers(p, in);
    }
    if (in->masked != 0 && one_scale) {
        convert_masked(&scale, in, out);
    }
    out->even = in->constant && (scale.quantises || is_even(p, node));
    return LEAT_OK;
}
