/* SPDX-License-Identifier: Apache-2.0 */
#include <oneapi/dnnl/dnnl_debug.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/program.h"
#include "kernels/op.h"

enum { GATHERED_LEAST = 16 << 10 }; /* bytes of an item: what is less is copied before a primitive has begun */

/* ---- Small things ------------------------------------------------------------------------------------ */

enum leat_status
cpu_check(const struct leat_node *node, const char *what, dnnl_status_t status)
{
    if (LEAT_LIKELY(status == dnnl_success)) {
        return LEAT_OK;
    }
    if (node == NULL) {
        return LEAT_FAIL(LEAT_ERR_DEVICE, "oneDNN: %s: %s", what, dnnl_status2str(status));
    }
    return LEAT_NODE_FAIL(node, LEAT_ERR_DEVICE, "oneDNN: %s: %s", what, dnnl_status2str(status));
}

enum leat_status
cpu_no_memory(void)
{
    return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
}

enum leat_status
cpu_grow(void *list, uint32_t count, uint32_t *room, size_t size)
{
    void *old;

    if (count < *room) {
        return LEAT_OK;
    }
    const uint32_t larger = *room == 0 ? 64 : *room * 2;
    memcpy(&old, list, sizeof(old));
    void *block = realloc(old, larger * size);
    if (block == NULL) {
        return cpu_no_memory();
    }
    memcpy(list, &block, sizeof(block));
    *room = larger;
    return LEAT_OK;
}

/* ---- Descriptors ------------------------------------------------------------------------------------ */

dnnl_memory_desc_t
cpu_strided_md(const int64_t *dims, const int64_t *strides, uint32_t rank)
{
    dnnl_dims_t padded_dims = {0}, padded_strides = {0}; /* oneDNN's parameters are arrays of its own length */
    dnnl_memory_desc_t md;

    LEAT_ASSERT(rank >= 1 && rank <= DNNL_MAX_NDIMS);
    memcpy(padded_dims, dims, rank * sizeof(*dims));
    memcpy(padded_strides, strides, rank * sizeof(*strides));
    LEAT_MUST(dnnl_memory_desc_init_by_strides(&md, (int)rank, padded_dims, dnnl_f32, padded_strides) == dnnl_success);
    return md;
}

dnnl_memory_desc_t
cpu_plain_md(const int64_t *dims, uint32_t rank)
{
    static const int64_t one[1] = {1};
    int64_t strides[DNNL_MAX_NDIMS], stride = 1;

    LEAT_ASSERT(rank <= DNNL_MAX_NDIMS);
    if (rank == 0) {
        return cpu_strided_md(one, one, 1);
    }
    for (uint32_t d = rank; d-- > 0;) {
        strides[d] = stride;
        stride *= dims[d];
    }
    return cpu_strided_md(dims, strides, rank);
}

dnnl_memory_desc_t
cpu_any_md(const int64_t *dims, uint32_t rank, dnnl_data_type_t type)
{
    dnnl_dims_t padded_dims = {0};
    dnnl_memory_desc_t md;

    LEAT_ASSERT(rank >= 1 && rank <= DNNL_MAX_NDIMS);
    memcpy(padded_dims, dims, rank * sizeof(*dims));
    LEAT_MUST(dnnl_memory_desc_init_by_tag(&md, (int)rank, padded_dims, type, dnnl_format_tag_any) == dnnl_success);
    return md;
}

dnnl_memory_desc_t
cpu_value_md(const struct leat_value *value)
{
    const dnnl_data_type_t type = value->dtype == LEAT_DTYPE_F32  ? dnnl_f32
                                  : value->dtype == LEAT_DTYPE_U8 ? dnnl_u8
                                  : value->dtype == LEAT_DTYPE_I8 ? dnnl_s8
                                                                  : dnnl_data_type_undef;
    if (type == dnnl_data_type_undef || leat_value_elements(value) == 0) {
        return (dnnl_memory_desc_t){.ndims = 0};
    }
    dnnl_memory_desc_t md = cpu_plain_md(value->dims, value->rank);
    md.data_type = type; /* dense as it was */
    return md;
}

bool
cpu_same_bytes(const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b)
{
    if (a->ndims == 0 || b->ndims == 0) {
        return a->ndims == b->ndims;
    }
    if (dnnl_memory_desc_equal(a, b)) {
        return true;
    }
    const dnnl_blocking_desc_t *x = &a->format_desc.blocking, *y = &b->format_desc.blocking;
    if (a->ndims != b->ndims || a->data_type != b->data_type || a->format_kind != dnnl_blocked ||
        b->format_kind != dnnl_blocked || x->inner_nblks != 0 || y->inner_nblks != 0 || a->extra.flags != 0 ||
        b->extra.flags != 0 || a->offset0 != b->offset0) {
        return false;
    }
    for (int d = 0; d < a->ndims; d++) {
        /* The stride of an axis of one element is never used. */
        if (a->dims[d] != b->dims[d] || a->padded_dims[d] != a->dims[d] || b->padded_dims[d] != b->dims[d] ||
            (a->dims[d] != 1 && x->strides[d] != y->strides[d])) {
            return false;
        }
    }
    return true;
}

dnnl_memory_desc_t
cpu_query_md(const_dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, what, 0);
    return md != NULL ? *md : (dnnl_memory_desc_t){.ndims = 0};
}

/* ---- Tensors ---------------------------------------------------------------------------------------- */

enum leat_status
cpu_add_tensor(struct cpu_program *program, const struct cpu_tensor *tensor, uint32_t *ret)
{
    enum leat_status status =
        cpu_grow(&program->tensors, program->tensor_count, &program->tensor_room, sizeof(*program->tensors));
    if (status == LEAT_OK) {
        program->tensors[program->tensor_count] = *tensor;
        *ret = program->tensor_count++;
    }
    return status;
}

enum leat_status
cpu_new_tensor(struct cpu_builder *b, const dnnl_memory_desc_t *md, size_t bytes, uint32_t *ret_tensor)
{
    struct cpu_program *program = b->program;
    enum leat_status status =
        cpu_grow(&program->buffers, program->buffer_count, &program->buffer_room, sizeof(*program->buffers));
    if (status != LEAT_OK) {
        return status;
    }
    program->buffers[program->buffer_count] = (struct cpu_buffer){.bytes = bytes, .first = CPU_NONE};
    const struct cpu_tensor tensor = {.md = *md, .bytes = bytes, .buffer = program->buffer_count++, .scale = 1};
    return cpu_add_tensor(program, &tensor, ret_tensor);
}

/* Another constant over the same payload: its memory object has other dims. */
static enum leat_status
view_constant(struct cpu_builder *b, const dnnl_memory_desc_t *md, struct cpu_constant **constant)
{
    struct cpu_constants *constants = &b->program->constants;
    const struct cpu_constant *from = *constant;
    struct cpu_constant *view = cpu_constants_first(constants, from->source);

    while (view != NULL && (view->source != from->source || view->data != from->data || view->pack != NULL ||
                            !dnnl_memory_desc_equal(&view->md, md) || !dnnl_memory_desc_equal(&view->seen_as, md))) {
        view = view->next;
    }
    if (view == NULL) {
        enum leat_status status = cpu_constants_make_room(constants);
        view = calloc(1, sizeof(*view));
        if (status != LEAT_OK || view == NULL) {
            free(view);
            return status != LEAT_OK ? status : cpu_no_memory();
        }
        *view = (struct cpu_constant){.source = from->source, .md = *md, .seen_as = *md, .data = from->data};
        cpu_constants_add(constants, view);
        if (md->ndims != 0) {
            status = CPU_TRY(b, "memory of a constant", dnnl_memory_create(&view->memory, md, cpu_model_engine(b->model),
                                                                           (void *)(uintptr_t)view->data));
            if (status != LEAT_OK) {
                return status;
            }
        }
    }
    *constant = view;
    return LEAT_OK;
}

enum leat_status
cpu_view(struct cpu_builder *b, uint32_t tensor, const dnnl_memory_desc_t *md, uint32_t *ret_tensor)
{
    struct cpu_tensor view = b->program->tensors[tensor];
    if (view.constant != NULL) {
        const enum leat_status status = view_constant(b, md, &view.constant);
        if (status != LEAT_OK) {
            return status;
        }
    }
    view.md = *md;
    return cpu_add_tensor(b->program, &view, ret_tensor);
}

enum leat_status
cpu_add_list(struct cpu_program *program, uint32_t buffer, uint32_t count, size_t item_bytes, uint32_t *ret)
{
    const enum leat_status status =
        cpu_grow(&program->lists, program->list_count, &program->list_room, sizeof(*program->lists));

    if (status == LEAT_OK) {
        program->lists[program->list_count] = (struct cpu_list){buffer, count, program->place_count, item_bytes};
        program->place_count += count;
        *ret = program->list_count++;
    }
    return status;
}

/* The input whose items may be read where queries have them, if this is its memory; else CPU_NONE. */
static uint32_t
input_of(const struct cpu_builder *b, const struct cpu_tensor *tensor)
{
    for (uint32_t i = 0; i < b->graph->input_count && !b->program->is_branch; i++) {
        if (b->program->lists[i].buffer == tensor->buffer && cpu_model_takes_items(b->model, i)) {
            return i;
        }
    }
    return CPU_NONE;
}

/* Of one index of dimension 0; false where other dimensions reach further, or blocks hold several. */
static bool
item_md(const dnnl_memory_desc_t *all, dnnl_memory_desc_t *ret_md)
{
    const dnnl_blocking_desc_t *blocks = &all->format_desc.blocking;
    const dnnl_dims_t begin = {0};
    dnnl_dims_t dims;

    if (all->ndims == 0 || all->format_kind != dnnl_blocked || all->extra.flags != 0 || all->offset0 != 0 ||
        all->dims[0] < 1 || all->dims[0] > LEAT_ITEMS_MAX) {
        return false;
    }
    for (int i = 0; i < blocks->inner_nblks; i++) {
        if (blocks->inner_idxs[i] == 0) {
            return false;
        }
    }
    memcpy(dims, all->dims, sizeof(dims));
    dims[0] = 1;
    return dnnl_memory_desc_init_submemory(ret_md, all, dims, begin) == dnnl_success &&
           dnnl_memory_desc_get_size(all) == (size_t)all->dims[0] * dnnl_memory_desc_get_size(ret_md);
}

/* An input as it is, of a type that oneDNN does not have; LEAT_AGAIN: it is none. */
static enum leat_status
untyped_by_item(struct cpu_builder *b, uint32_t tensor, uint32_t *ret_tensor)
{
    struct cpu_program *program = b->program;
    struct cpu_tensor item = program->tensors[tensor];
    const uint32_t input = input_of(b, &item);

    if (input == CPU_NONE || item.by_item || item.bytes != program->lists[input].count * program->lists[input].item_bytes) {
        return LEAT_AGAIN;
    }
    item.bytes = program->lists[input].item_bytes;
    item.by_item = true;
    item.list = input;
    return cpu_add_tensor(program, &item, ret_tensor);
}

enum leat_status
cpu_by_item(struct cpu_builder *b, uint32_t tensor, uint32_t *ret_tensor)
{
    struct cpu_program *program = b->program;
    struct cpu_tensor item = program->tensors[tensor];
    enum leat_status status = LEAT_OK;

    if (item.md.ndims == 0) {
        return untyped_by_item(b, tensor, ret_tensor);
    }
    if (item.constant != NULL || item.by_item || !item_md(&program->tensors[tensor].md, &item.md)) {
        return LEAT_AGAIN;
    }
    const uint32_t count = (uint32_t)program->tensors[tensor].md.dims[0];
    item.bytes = dnnl_memory_desc_get_size(&item.md);
    item.by_item = true;
    item.list = input_of(b, &item);
    const struct cpu_list *list = item.list != CPU_NONE ? &program->lists[item.list] : NULL;
    if (list == NULL || list->count != count || list->item_bytes != item.bytes) {
        status = cpu_add_list(program, item.buffer, count, item.bytes, &item.list);
    }
    return status == LEAT_OK ? cpu_add_tensor(program, &item, ret_tensor) : status;
}

bool
cpu_gathers(const struct cpu_builder *b, uint32_t tensor)
{
    const struct cpu_tensor *of = &b->program->tensors[tensor];
    const uint32_t input = input_of(b, of);

    return input != CPU_NONE && (of->md.ndims == 0 || of->md.dims[0] == (int64_t)b->program->lists[input].count) &&
           b->program->lists[input].item_bytes >= GATHERED_LEAST;
}

enum leat_status
cpu_new_in_layout(struct cpu_builder *b, const dnnl_memory_desc_t *md, uint32_t *ret_tensor)
{
    return cpu_new_tensor(b, md, dnnl_memory_desc_get_size(md), ret_tensor);
}

/* ---- Forms of values -------------------------------------------------------------------------------- */

/* A constant's plain form comes into being when someone asks for it. */
static enum leat_status
plain_constant(struct cpu_builder *b, uint32_t value, uint32_t *ret_tensor)
{
    const dnnl_memory_desc_t md = cpu_value_md(&b->graph->values[value]);
    const enum leat_status status = cpu_constant_as(b, value, &md, &md, ret_tensor);
    if (status == LEAT_OK) {
        b->program->plain[value] = b->best[value] = *ret_tensor;
    }
    return status;
}

enum leat_status
cpu_plain(struct cpu_builder *b, uint32_t value, uint32_t *ret_tensor)
{
    struct cpu_program *program = b->program;
    enum leat_status status = LEAT_OK;

    if (program->plain[value] == CPU_NONE) {
        if (b->graph->values[value].data != NULL) {
            return plain_constant(b, value, ret_tensor);
        }
        const dnnl_memory_desc_t md = cpu_value_md(&b->graph->values[value]);
        const uint32_t from = b->best[value] != CPU_NONE ? b->best[value] : b->whole[value];
        uint32_t tensor;
        LEAT_ASSERT(from != CPU_NONE && md.ndims != 0);
        status = cpu_new_in_layout(b, &md, &tensor);
        if (status == LEAT_OK) {
            status = cpu_add_reorder(b, from, tensor);
        }
        if (status != LEAT_OK) {
            return status;
        }
        program->plain[value] = tensor;
    }
    *ret_tensor = program->plain[value];
    return status;
}

/* Nobody packs so: it keeps oneDNN and what loads whole vectors from a constant that is not as aligned as they want. */
static void
leave_in_place(const struct leat_value *value, void *packed)
{
    (void)value;
    (void)packed;
    LEAT_ASSERT(false && "there is nothing to write");
}

enum leat_status
cpu_table(struct cpu_builder *b, uint32_t value, uint32_t *ret_tensor)
{
    const struct leat_value *v = &b->graph->values[value];

    if (v->data == NULL || leat_value_in_place(v) || !leat_value_has_elements(v) || b->program->plain[value] != CPU_NONE) {
        return cpu_plain(b, value, ret_tensor);
    }
    enum leat_status status = cpu_constants_make_room(&b->program->constants);
    struct cpu_constant *constant = calloc(1, sizeof(*constant));
    if (status == LEAT_OK && constant == NULL) {
        status = cpu_no_memory();
    }
    if (status != LEAT_OK) {
        free(constant);
        return status;
    }
    *constant = (struct cpu_constant){.source = v->data, .pack = leave_in_place, .data = v->data};
    cpu_constants_add(&b->program->constants, constant);
    const struct cpu_tensor tensor = {.bytes = v->data_bytes, .buffer = CPU_NONE, .constant = constant};
    return cpu_add_tensor(b->program, &tensor, ret_tensor);
}

enum leat_status
cpu_best(struct cpu_builder *b, uint32_t value, uint32_t *ret_tensor)
{
    enum leat_status status = LEAT_OK;

    if (b->best[value] == CPU_NONE && b->whole[value] == CPU_NONE) {
        return cpu_plain(b, value, ret_tensor);
    }
    if (b->best[value] == CPU_NONE) { /* floats again, in the same layout */
        dnnl_memory_desc_t md = b->program->tensors[b->whole[value]].md;
        uint32_t tensor;
        md.data_type = dnnl_f32;
        status = cpu_new_in_layout(b, &md, &tensor);
        if (status == LEAT_OK) {
            status = cpu_add_reorder(b, b->whole[value], tensor);
        }
        if (status != LEAT_OK) {
            return status;
        }
        b->best[value] = tensor;
    }
    *ret_tensor = b->best[value];
    return status;
}

enum leat_status
cpu_in_layout(struct cpu_builder *b, uint32_t value, const dnnl_memory_desc_t *md, uint32_t *ret_tensor)
{
    struct cpu_program *program = b->program;
    const uint32_t forms[2] = {b->best[value], program->plain[value]};
    uint32_t from;

    if (b->graph->values[value].data != NULL) {
        const dnnl_memory_desc_t plain = cpu_value_md(&b->graph->values[value]);
        return cpu_constant_as(b, value, &plain, md, ret_tensor);
    }
    for (int i = 0; i < 2; i++) {
        if (forms[i] != CPU_NONE && cpu_same_bytes(&program->tensors[forms[i]].md, md)) {
            *ret_tensor = forms[i];
            return dnnl_memory_desc_equal(&program->tensors[forms[i]].md, md) ? LEAT_OK
                                                                              : cpu_view(b, forms[i], md, ret_tensor);
        }
    }
    from = b->whole[value];
    enum leat_status status = b->best[value] == CPU_NONE && from != CPU_NONE ? LEAT_OK : cpu_best(b, value, &from);
    if (status == LEAT_OK) {
        status = cpu_new_in_layout(b, md, ret_tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_reorder(b, from, *ret_tensor);
    }
    if (status == LEAT_OK && b->best[value] == program->plain[value] && cpu_model_plans(b->model, LEAT_PLANS_LAYOUTS)) {
        b->best[value] = *ret_tensor; /* the next reader probably wants the same */
    }
    return status;
}

enum leat_status
cpu_whole(struct cpu_builder *b, uint32_t value, const dnnl_memory_desc_t *md, uint32_t *ret_tensor)
{
    uint32_t from = b->whole[value];

    if (from != CPU_NONE && cpu_same_bytes(&b->program->tensors[from].md, md)) {
        return cpu_view(b, from, md, ret_tensor);
    }
    enum leat_status status = from != CPU_NONE ? LEAT_OK : cpu_best(b, value, &from);
    if (status == LEAT_OK) {
        status = cpu_new_in_layout(b, md, ret_tensor);
    }
    if (status != LEAT_OK) {
        return status;
    }
    struct cpu_tensor *tensor = &b->program->tensors[*ret_tensor];
    if (b->whole[value] == CPU_NONE) {
        const struct cpu_stored stored = cpu_stored_as(b, value);
        tensor->scale = stored.scale;
        tensor->zero = stored.zero;
        b->whole[value] = cpu_model_plans(b->model, LEAT_PLANS_LAYOUTS) ? *ret_tensor : CPU_NONE;
    } else {
        tensor->scale = b->program->tensors[from].scale;
        tensor->zero = b->program->tensors[from].zero;
    }
    return cpu_add_reorder(b, from, *ret_tensor);
}

void
cpu_set_whole(struct cpu_builder *b, uint32_t tensor)
{
    LEAT_ASSERT(b->whole[b->node->outputs[0]] == CPU_NONE && b->best[b->node->outputs[0]] == CPU_NONE);
    b->whole[b->node->outputs[0]] = tensor;
}

void
cpu_set_output(struct cpu_builder *b, uint32_t o, uint32_t tensor)
{
    const uint32_t value = b->node->outputs[o];
    const dnnl_memory_desc_t plain = cpu_value_md(&b->graph->values[value]);

    LEAT_ASSERT(b->best[value] == CPU_NONE && b->program->plain[value] == CPU_NONE);
    b->best[value] = tensor;
    if (cpu_same_bytes(&plain, &b->program->tensors[tensor].md)) {
        b->program->plain[value] = tensor;
    }
}

enum leat_status
cpu_plain_output(struct cpu_builder *b, uint32_t o, uint32_t *ret_tensor)
{
    const struct leat_value *value = leat_node_output(b->graph, b->node, o);
    const dnnl_memory_desc_t md = cpu_value_md(value);
    const enum leat_status status = cpu_new_tensor(b, &md, leat_value_bytes(value), ret_tensor);
    if (status == LEAT_OK) {
        cpu_set_output(b, o, *ret_tensor);
    }
    return status;
}
