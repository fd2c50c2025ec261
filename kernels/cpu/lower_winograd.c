/* SPDX-License-Identifier: Apache-2.0 */
/* 3x3 convolutions on our own kernel, where it beats summing all products. */
#include <math.h>

#include "kernels/cpu/program.h"
#include "kernels/cpu/winograd.h"
#include "kernels/team.h"

/*
 * The transformed weights are four times as many, and every member reads them all: with fewer tiles of 4x4 results for
 * each member than this, that costs more than the multiplications that it saves.
 */
enum { TILES_LEAST = 16 };

static bool
has_channels_last(const dnnl_memory_desc_t *md)
{
    const int64_t *d = md->dims;
    const int64_t dims[4] = {d[0], d[1], d[2], d[3]}, strides[4] = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};

    if (md->ndims != 4 || md->data_type != dnnl_f32 || md->format_kind != dnnl_blocked) {
        return false;
    }
    const dnnl_memory_desc_t wanted = cpu_strided_md(dims, strides, 4);
    return cpu_same_bytes(md, &wanted);
}

static struct cpu_winograd
parameters_of(const struct cpu_step *step, const struct cpu_program *program)
{
    const struct leat_node *node = step->node;
    const int64_t *source = program->tensors[step->args[0].tensor].md.dims;
    const int64_t *result = program->tensors[step->args[1].tensor].md.dims;
    const bool clips = node->fused_activation == LEAT_ACTIVATION_CLIP;

    return (struct cpu_winograd){
        .items = source[0],
        .inputs = source[1],
        .outputs = result[1],
        .height = source[2],
        .width = source[3],
        .out_height = result[2],
        .out_width = result[3],
        .pad_top = step->dims[0],
        .pad_left = step->dims[1],
        .add = node->fused_add != LEAT_VALUE_NONE,
        .least = clips ? node->clip_min : node->fused_activation == LEAT_ACTIVATION_RELU ? 0 : -INFINITY,
        .most = clips ? node->clip_max : INFINITY,
    };
}

struct work {
    const struct cpu_call *call;
    struct cpu_winograd conv;
    uint32_t members;
};

static void
run_member(void *context, uint32_t member, uint32_t size)
{
    const struct work *work = context;
    void *const *pointers = work->call->pointers;

    (void)size;
    if (member < work->members) {
        float *scratch = (float *)((unsigned char *)pointers[3] + member * cpu_winograd_scratch_bytes(&work->conv));
        cpu_winograd_run(&work->conv, pointers[0], pointers[2], work->call->step->arg_count > 4 ? pointers[4] : NULL,
                         pointers[1], scratch, member, work->members);
    }
}

static enum leat_status
run(const struct cpu_call *call)
{
    struct work work = {call, parameters_of(call->step, call->program), call->program->threads};

    if (work.members > 1) {
        leat_team_run(call->team, run_member, &work);
    } else {
        run_member(&work, 0, 1);
    }
    return LEAT_OK;
}

static void
pack(const struct leat_value *weights, void *ret_packed)
{
    cpu_winograd_pack(weights->data, weights->dims[1], weights->dims[0], ret_packed);
}

static bool
fits(const struct cpu_builder *b, const struct cpu_conv *conv)
{
    const int64_t *w = conv->weights->dims, *result = conv->result->dims;

    if (!cpu_winograd_runs_here() || conv->weights->data == NULL || !has_channels_last(conv->source) ||
        !has_channels_last(conv->result) || conv->groups != 1 || w[2] != 3 || w[3] != 3 ||
        w[0] % CPU_WINOGRAD_LANES != 0 || w[1] % CPU_WINOGRAD_LANES != 0) {
        return false;
    }
    for (int d = 0; d < 2; d++) {
        if (conv->stride[d] != 1 || conv->dilation[d] != 0 || conv->pad_begin[d] > 2) {
            return false;
        }
    }
    return conv->result->dims[0] * ((result[2] + 3) / 4) * ((result[3] + 3) / 4) >=
           (int64_t)TILES_LEAST * b->program->threads;
}

enum leat_status
cpu_lower_winograd(struct cpu_builder *b, const struct cpu_conv *conv)
{
    const struct leat_node *node = b->node;
    struct cpu_arg args[5] = {{0, 0}}; /* source, result, weights, scratch, bias */
    struct cpu_step *step;

    if (!fits(b, conv)) {
        return LEAT_AGAIN;
    }
    const int64_t *w = conv->weights->dims;
    enum leat_status status = cpu_in_layout(b, node->inputs[0], conv->source, &args[0].tensor);
    if (status == LEAT_OK) {
        status = cpu_destination(b, conv->result, &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_constant_packed(b, node->inputs[1], pack, cpu_winograd_weights_bytes(w[1], w[0]), &args[2].tensor);
    }
    if (status == LEAT_OK) {
        const struct cpu_step shape = {.node = node, .args = args};
        const struct cpu_winograd parameters = parameters_of(&shape, b->program);
        const dnnl_memory_desc_t none = {.ndims = 0};
        status = cpu_new_tensor(b, &none, b->program->threads * cpu_winograd_scratch_bytes(&parameters), &args[3].tensor);
    }
    if (status == LEAT_OK && conv->bias != NULL) {
        status = cpu_plain(b, node->inputs[2], &args[4].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, run, args, conv->bias != NULL ? 5 : 4, &step);
    }
    if (status == LEAT_OK) {
        step->dims[0] = conv->pad_begin[0];
        step->dims[1] = conv->pad_begin[1];
        cpu_set_output(b, 0, args[1].tensor);
    }
    return status;
}
