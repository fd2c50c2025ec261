/* SPDX-License-Identifier: Apache-2.0 */
/* Feature maps as oneDNN's convolutions have them, which steps of our own read and write as they are. */
#include "kernels/cpu/program.h"
#include "kernels/graph_build.h"

enum { BLOCK = 8 }; /* channels, as vectors of AVX2 are */

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

bool
cpu_has_channel_blocks(const dnnl_memory_desc_t *md)
{
    dnnl_memory_desc_t wanted;
    return md->ndims == 4 && md->dims[1] % BLOCK == 0 &&
           dnnl_memory_desc_init_by_tag(&wanted, 4, md->dims, dnnl_f32, dnnl_nChw8c) == dnnl_success &&
           dnnl_memory_desc_equal(md, &wanted) != 0;
}

static enum cpu_form
form_of(const struct leat_value *value, const dnnl_memory_desc_t *md)
{
    const dnnl_memory_desc_t plain = cpu_value_md(value);

    return cpu_same_bytes(md, &plain)   ? CPU_PLAIN
           : cpu_has_channels_last(md)  ? CPU_CHANNELS_LAST
           : cpu_has_channel_blocks(md) ? CPU_CHANNEL_BLOCKS
                                        : CPU_PLAIN;
}

bool
cpu_has_form(const struct cpu_builder *b, uint32_t value)
{
    const dnnl_memory_desc_t plain = cpu_value_md(&b->graph->values[value]);
    dnnl_memory_desc_t md = plain;

    if (b->best[value] != CPU_NONE) {
        md = b->program->tensors[b->best[value]].md;
    } else if (b->whole[value] != CPU_NONE) { /* floats again, in the same layout */
        md = b->program->tensors[b->whole[value]].md;
        md.data_type = dnnl_f32;
    }
    return cpu_same_bytes(&md, &plain) || cpu_has_channels_last(&md) || cpu_has_channel_blocks(&md);
}

/* Tensors of values in forms but the plain one are f32. */
enum leat_status
cpu_in_form(struct cpu_builder *b, uint32_t value, uint32_t *ret_tensor, enum cpu_form *ret_form)
{
    *ret_form = CPU_PLAIN;
    if (!cpu_has_form(b, value)) {
        return cpu_plain(b, value, ret_tensor);
    }
    const enum leat_status status = cpu_best(b, value, ret_tensor);
    if (status != LEAT_OK) {
        return status;
    }
    *ret_form = form_of(&b->graph->values[value], &b->program->tensors[*ret_tensor].md);
    return *ret_form == CPU_PLAIN ? cpu_plain(b, value, ret_tensor) : LEAT_OK;
}

enum leat_status
cpu_output_in_form(struct cpu_builder *b, enum cpu_form form, uint32_t *ret_tensor)
{
    const int64_t *d = leat_node_output(b->graph, b->node, 0)->dims;
    dnnl_memory_desc_t md;

    if (form == CPU_PLAIN) {
        return cpu_plain_output(b, 0, ret_tensor);
    }
    if (form == CPU_CHANNELS_LAST) {
        const int64_t strides[4] = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};
        md = cpu_strided_md(d, strides, 4);
    } else {
        dnnl_dims_t dims = {d[0], d[1], d[2], d[3]};
        LEAT_MUST(dnnl_memory_desc_init_by_tag(&md, 4, dims, dnnl_f32, dnnl_nChw8c) == dnnl_success);
    }
    const enum leat_status status = cpu_new_tensor(b, &md, dnnl_memory_desc_get_size(&md), ret_tensor);
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, *ret_tensor);
    }
    return status;
}

void
cpu_axes_of(enum cpu_form form, const struct leat_value *value, struct cpu_axes *ret)
{
    const int64_t *d = value->dims;

    switch (form) {
    case CPU_PLAIN:
        *ret = (struct cpu_axes){.rank = value->rank};
        for (uint32_t a = 0; a < value->rank; a++) {
            ret->dims[a] = d[a];
            ret->of[a] = a;
        }
        break;
    case CPU_CHANNELS_LAST:
        *ret = (struct cpu_axes){4, {d[0], d[2], d[3], d[1]}, {0, 2, 3, 1}};
        break;
    case CPU_CHANNEL_BLOCKS:
        *ret = (struct cpu_axes){5, {d[0], d[1] / BLOCK, d[2], d[3], BLOCK}, {0, 1, 2, 3, 1}};
        break;
    }
}
