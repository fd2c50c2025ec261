/* SPDX-License-Identifier: Apache-2.0 */
/* Each plane of each item less its mean, over its deviation: of plain tensors, and of feature maps as convolutions leave them. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/rows.h"
#include "kernels/cpu/program.h"

enum { SHARED_LEAST = 16384, /* elements for each member of a team */ BLOCK = 8 /* channels */ };

/* args: x, scale, shift, y. Items have dims[0] channels of `inner` elements; units are planes. */
static void
normalise_planes(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t channels = (size_t)step->dims[0], plane = step->inner;
    const float epsilon = leat_node_float(step->node, "epsilon", 1e-5f);
    const float *x = call->pointers[0], *scale = call->pointers[1], *shift = call->pointers[2];
    float *y = call->pointers[3];
    void (*const one)(const float *, size_t, float, float, float, float *) =
        cpu_has_avx512() ? cpu_normalise_plane_avx512 : cpu_normalise_plane_avx2;

    for (size_t p = begin; p < end; p++) {
        one(x + p * plane, plane, epsilon, scale[p % channels], shift[p % channels], y + p * plane);
    }
}

/*
 * The same with several channels of a pixel side by side, dims[1] in all; units are vectors of channels, as wide as blocks are where
 * they are blocks.
 */
static void
normalise_vectors(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t channels = (size_t)step->dims[0], beside = (size_t)step->dims[1], plane = step->inner;
    const size_t lanes = step->element_bytes / sizeof(float), vectors = beside / lanes;
    const float epsilon = leat_node_float(step->node, "epsilon", 1e-5f);
    const float *x = call->pointers[0], *scale = call->pointers[1], *shift = call->pointers[2];
    float *y = call->pointers[3];
    void (*const one)(const float *, size_t, size_t, float, const float *, const float *, float *) =
        lanes == BLOCK ? cpu_normalise_channels_avx2 : cpu_normalise_channels_avx512;

    for (size_t u = begin; u < end; u++) {
        const size_t at = u / vectors * plane * beside + u % vectors * lanes, channel = u * lanes % channels;
        one(x + at, plane, beside, epsilon, scale + channel, shift + channel, y + at);
    }
}

static enum leat_status
normalise(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    const size_t lanes = step->element_bytes / sizeof(float);

    cpu_share(call, lanes > 1 ? normalise_vectors : normalise_planes, step->outer / lanes, SHARED_LEAST / (step->inner * lanes) + 1);
    return LEAT_OK;
}

/* Channels that are normalised together. */
static size_t
lanes_of(enum cpu_form form, int64_t channels)
{
    if (form == CPU_PLAIN) {
        return 1;
    }
    return form == CPU_CHANNELS_LAST && cpu_has_avx512() && channels % 16 == 0 ? 16 : BLOCK;
}

enum leat_status
cpu_lower_instance_norm(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0);
    const uint32_t value = b->node->inputs[0];
    struct cpu_arg args[4] = {{0, 0}};
    struct cpu_step *step;
    enum cpu_form form;

    if (x->dtype != LEAT_DTYPE_F32 || leat_value_elements(x) == 0 || cpu_vector_lanes() == 0) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_in_form(b, value, &args[0].tensor, &form);
    if (status == LEAT_OK && form == CPU_CHANNELS_LAST && x->dims[1] % BLOCK != 0) {
        form = CPU_PLAIN;
        status = cpu_plain(b, value, &args[0].tensor);
    }
    for (uint32_t i = 1; i < 3 && status == LEAT_OK; i++) {
        status = cpu_plain(b, b->node->inputs[i], &args[i].tensor);
    }
    if (status == LEAT_OK && cpu_may_overwrite(b, value, args[0].tensor)) {
        const dnnl_memory_desc_t md = b->program->tensors[args[0].tensor].md;
        status = cpu_view(b, args[0].tensor, &md, &args[3].tensor);
        if (status == LEAT_OK) {
            cpu_set_output(b, 0, args[3].tensor);
        }
    } else if (status == LEAT_OK) {
        status = cpu_output_in_form(b, form, &args[3].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, normalise, args, 4, &step);
    }
    if (status == LEAT_OK) {
        step->outer = (size_t)(x->dims[0] * x->dims[1]);
        step->inner = leat_value_elements(x) / step->outer;
        step->dims[0] = x->dims[1];
        step->dims[1] = form == CPU_CHANNELS_LAST ? x->dims[1] : BLOCK;
        step->element_bytes = lanes_of(form, x->dims[1]) * sizeof(float);
    }
    return status;
}
