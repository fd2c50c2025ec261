/* SPDX-License-Identifier: Apache-2.0 */
#include <oneapi/dnnl/dnnl_debug.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/large.h"
#include "kernels/cpu/openmp.h"
#include "kernels/cpu/program.h"
#include "kernels/graph_build.h"
#include "kernels/op.h"
#include "kernels/sequence.h"

/* Of a convolution: for each thread, and of all threads, where more would make blocks that are too small. */
enum { THREAD_PARTS_MAX = 4, PARTS_MAX = 16 };
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

static enum leat_status
no_memory(void)
{
    return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
}

/* Room for one more element of `size` bytes in a list of `count`. */
static enum leat_status
grow(void *list, uint32_t count, uint32_t *room, size_t size)
{
    void *old;

    if (count < *room) {
        return LEAT_OK;
    }
    const uint32_t larger = *room == 0 ? 64 : *room * 2;
    memcpy(&old, list, sizeof(old));
    void *block = realloc(old, larger * size);
    if (block == NULL) {
        return no_memory();
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

static enum leat_status
add_tensor(struct cpu_program *program, const struct cpu_tensor *tensor, uint32_t *ret)
{
    enum leat_status status =
        grow(&program->tensors, program->tensor_count, &program->tensor_room, sizeof(*program->tensors));
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
        grow(&program->buffers, program->buffer_count, &program->buffer_room, sizeof(*program->buffers));
    if (status != LEAT_OK) {
        return status;
    }
    program->buffers[program->buffer_count] = (struct cpu_buffer){.bytes = bytes, .first = CPU_NONE};
    const struct cpu_tensor tensor = {.md = *md, .bytes = bytes, .buffer = program->buffer_count++, .scale = 1};
    return add_tensor(program, &tensor, ret_tensor);
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
            return status != LEAT_OK ? status : no_memory();
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
    return add_tensor(b->program, &view, ret_tensor);
}

static enum leat_status
add_list(struct cpu_program *program, uint32_t buffer, uint32_t count, size_t item_bytes, uint32_t *ret)
{
    const enum leat_status status =
        grow(&program->lists, program->list_count, &program->list_room, sizeof(*program->lists));

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
    return add_tensor(program, &item, ret_tensor);
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
        status = add_list(program, item.buffer, count, item.bytes, &item.list);
    }
    return status == LEAT_OK ? add_tensor(program, &item, ret_tensor) : status;
}

bool
cpu_gathers(const struct cpu_builder *b, uint32_t tensor)
{
    const struct cpu_tensor *of = &b->program->tensors[tensor];
    const uint32_t input = input_of(b, of);

    return input != CPU_NONE && (of->md.ndims == 0 || of->md.dims[0] == (int64_t)b->program->lists[input].count) &&
           b->program->lists[input].item_bytes >= GATHERED_LEAST;
}

static enum leat_status
new_in_layout(struct cpu_builder *b, const dnnl_memory_desc_t *md, uint32_t *ret_tensor)
{
    return cpu_new_tensor(b, md, dnnl_memory_desc_get_size(md), ret_tensor);
}

/* ---- Constants -------------------------------------------------------------------------------------- */

/* What a constant is multiplied by on its way. */
struct factors {
    const float *data;
    size_t count;
    int mask;
};

static enum leat_status
set_factors(struct cpu_builder *b, dnnl_primitive_attr_t attributes, const struct factors *factors)
{
    return CPU_TRY(b, "attributes",
                   dnnl_primitive_attr_set_output_scales(attributes, (dnnl_dim_t)factors->count, factors->mask, factors->data));
}

/* What oneDNN takes for a primitive, as measured: 30 to 75 KiB. */
enum { PRIMITIVE_BYTES = 64 << 10 };

/* What a reorder that runs here and now works in lies in oneDNN's own memory. */
static enum leat_status
may_work(struct cpu_builder *b, const_dnnl_primitive_desc_t pd)
{
    int64_t bytes = 0;
    const enum leat_status status =
        CPU_TRY(b, "layout of a constant", dnnl_primitive_desc_query(pd, dnnl_query_memory_consumption_s64, 0, &bytes));
    return status == LEAT_OK ? cpu_model_may_take(b->model, PRIMITIVE_BYTES + (uint64_t)(bytes > 0 ? bytes : 0)) : status;
}

/* Reads `source` as seen_as and writes it as md; no step: it happens here and now, on this thread. */
static enum leat_status
reorder_now(struct cpu_builder *b, const void *source, const dnnl_memory_desc_t *seen_as, const struct factors *factors,
            dnnl_memory_t to)
{
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_engine_t engine = cpu_model_engine(b->model);
    const dnnl_memory_desc_t *md = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_stream_t stream = NULL;
    dnnl_memory_t from = NULL;

    LEAT_MUST(dnnl_memory_get_memory_desc(to, &md) == dnnl_success);
    const uint32_t threads = leat_openmp_pretend(1); /* it runs here */
    /* The cast drops const: a reorder only reads its source. */
    enum leat_status status = CPU_TRY(b, "memory of a constant",
                                      dnnl_memory_create(&from, seen_as, engine, (void *)(uintptr_t)source));
    if (status == LEAT_OK) {
        status = CPU_TRY(b, "attributes", dnnl_primitive_attr_create(&attributes));
    }
    if (status == LEAT_OK && factors != NULL) {
        status = set_factors(b, attributes, factors);
    }
    if (status == LEAT_OK) {
        status = CPU_TRY(b, "layout of a constant",
                         dnnl_reorder_primitive_desc_create(&pd, seen_as, engine, md, engine, attributes));
    }
    (void)dnnl_primitive_attr_destroy(attributes);
    if (status == LEAT_OK) {
        status = may_work(b, pd);
    }
    if (status == LEAT_OK) {
        status = CPU_TRY(b, "layout of a constant", dnnl_primitive_create(&primitive, pd));
    }
    if (status == LEAT_OK) {
        status = CPU_TRY(b, "stream", dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    }
    if (status == LEAT_OK) {
        const dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
        status = CPU_TRY(b, "layout of a constant", dnnl_primitive_execute(primitive, stream, 2, args));
    }
    (void)leat_openmp_pretend(threads);
    (void)dnnl_stream_destroy(stream);
    (void)dnnl_primitive_destroy(primitive);
    (void)dnnl_primitive_desc_destroy(pd);
    (void)dnnl_memory_destroy(from);
    return status;
}

static enum leat_status
make_constant(struct cpu_builder *b, bool shared, const void *source, size_t bytes, const dnnl_memory_desc_t *seen_as,
              const dnnl_memory_desc_t *md, const struct factors *factors, bool payload_stays, struct cpu_constant **ret)
{
    struct cpu_constant *constant = calloc(1, sizeof(*constant));
    if (constant == NULL) {
        return no_memory();
    }
    *constant = (struct cpu_constant){.source = source, .md = *md, .seen_as = *seen_as, .data = source};
    const bool as_it_is = cpu_same_bytes(seen_as, md);
    enum leat_status status = LEAT_OK;
    if (!as_it_is || !payload_stays) {
        constant->bytes = (size_t)leat_round_up(as_it_is ? bytes : dnnl_memory_desc_get_size(md), CPU_ALIGN);
        status = cpu_model_take(b->model, shared ? NULL : b->program, constant->bytes);
        if (status == LEAT_OK) {
            constant->owned = leat_large_alloc(constant->bytes + CPU_ALIGN);
            constant->data = constant->owned;
            status = constant->owned != NULL ? LEAT_OK : no_memory();
        }
        if (status != LEAT_OK) {
            free(constant);
            return status;
        }
        if (as_it_is) {
            memcpy(constant->owned, source, bytes);
        }
    }
    if (md->ndims != 0) {
        status = CPU_TRY(b, "memory of a constant", dnnl_memory_create(&constant->memory, md, cpu_model_engine(b->model),
                                                                       (void *)(uintptr_t)constant->data));
    }
    if (status == LEAT_OK && !as_it_is) {
        status = reorder_now(b, source, seen_as, factors, constant->memory);
    }
    if (status != LEAT_OK) {
        if (shared) {
            cpu_model_give_back(b->model, constant->bytes);
        }
        cpu_constant_destroy(constant);
        return status;
    }
    *ret = constant;
    return LEAT_OK;
}

enum leat_status
cpu_open_constant(struct cpu_builder *b, const struct leat_value *value, const void **ret_data)
{
    enum leat_status status = leat_value_in_place(value) ? LEAT_OK : cpu_model_may_take(b->model, value->data_bytes);

    status = status == LEAT_OK ? leat_elements_open(&b->opened, value) : status;
    *ret_data = b->opened.data;
    return status;
}

/* The constant over `v` as it is: where it lies, or in the one copy of it that is among the constants. */
static enum leat_status
make_constant_of(struct cpu_builder *b, struct cpu_constants *constants, bool shared, const struct leat_value *v,
                 const dnnl_memory_desc_t *seen_as, const dnnl_memory_desc_t *md, const struct factors *factors,
                 struct cpu_constant **ret)
{
    const void *data = NULL;
    bool stays = leat_value_in_place(v);
    enum leat_status status = cpu_constants_make_room(constants);

    for (const struct cpu_constant *c = cpu_constants_first(constants, v->data); c != NULL && !stays; c = c->next) {
        stays = c->source == v->data && c->owned != NULL && c->pack == NULL && c->bytes >= v->data_bytes &&
                cpu_same_bytes(&c->seen_as, &c->md);
        data = stays ? c->owned : NULL;
    }
    if (status == LEAT_OK && data == NULL) {
        status = cpu_open_constant(b, v, &data);
    }
    if (status == LEAT_OK) {
        status = make_constant(b, shared, data, v->data_bytes, seen_as, md, factors, stays, ret);
    }
    if (status == LEAT_OK) {
        (*ret)->source = v->data;
        cpu_constants_add(constants, *ret);
    }
    return status;
}

static enum leat_status
constant_as(struct cpu_builder *b, uint32_t value, const dnnl_memory_desc_t *seen_as, const dnnl_memory_desc_t *md,
            const struct factors *factors, uint32_t *ret_tensor)
{
    const struct leat_value *v = &b->graph->values[value];
    const bool shared = cpu_model_owns(b->model, v->data);
    struct cpu_constants *constants = shared ? cpu_model_lock_constants(b->model) : &b->program->constants;
    struct cpu_constant *constant = cpu_constants_first(constants, v->data);
    enum leat_status status = LEAT_OK;

    LEAT_ASSERT(v->data != NULL);
    while (constant != NULL && (constant->source != v->data || constant->pack != NULL || !dnnl_memory_desc_equal(&constant->md, md) ||
                                !dnnl_memory_desc_equal(&constant->seen_as, seen_as))) {
        constant = constant->next;
    }
    if (constant == NULL) {
        status = make_constant_of(b, constants, shared, v, seen_as, md, factors, &constant);
    }
    if (shared) {
        cpu_model_unlock_constants(b->model);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const struct cpu_tensor tensor = {
        .md = *md, .bytes = v->data_bytes, .buffer = CPU_NONE, .scale = 1, .constant = constant};
    return add_tensor(b->program, &tensor, ret_tensor);
}

enum leat_status
cpu_constant_as(struct cpu_builder *b, uint32_t value, const dnnl_memory_desc_t *seen_as, const dnnl_memory_desc_t *md,
                uint32_t *ret_tensor)
{
    return constant_as(b, value, seen_as, md, NULL, ret_tensor);
}

enum leat_status
cpu_constant_scaled(struct cpu_builder *b, uint32_t value, const dnnl_memory_desc_t *seen_as, const dnnl_memory_desc_t *md,
                    const float *factors, size_t factor_count, int mask, uint32_t *ret_tensor)
{
    const struct factors all = {factors, factor_count, mask};
    return constant_as(b, value, seen_as, md, &all, ret_tensor);
}

static enum leat_status
pack_constant(struct cpu_builder *b, bool shared, const struct leat_value *v, cpu_pack pack, size_t bytes, struct cpu_constant **ret)
{
    struct leat_value seen = *v;

    enum leat_status status = cpu_model_take(b->model, shared ? NULL : b->program, bytes);
    if (status != LEAT_OK) {
        return status;
    }
    void *packed = leat_large_alloc((size_t)leat_round_up(bytes, CPU_ALIGN));
    struct cpu_constant *constant = calloc(1, sizeof(*constant));
    status = packed != NULL && constant != NULL ? cpu_open_constant(b, v, &seen.data) : no_memory();
    if (status != LEAT_OK) {
        if (shared) {
            cpu_model_give_back(b->model, bytes);
        }
        free(packed);
        free(constant);
        return status;
    }
    pack(&seen, packed);
    *constant = (struct cpu_constant){.source = v->data, .pack = pack, .data = packed, .owned = packed, .bytes = bytes,
                                      .dtype = v->dtype, .rank = v->rank};
    memcpy(constant->dims, v->dims, v->rank * sizeof(*v->dims));
    *ret = constant;
    return LEAT_OK;
}

static bool
is_packed_of(const struct cpu_constant *constant, const struct leat_value *v, cpu_pack pack)
{
    return constant->source == v->data && constant->pack == pack && constant->dtype == v->dtype && constant->rank == v->rank &&
           memcmp(constant->dims, v->dims, v->rank * sizeof(*v->dims)) == 0;
}

enum leat_status
cpu_constant_packed(struct cpu_builder *b, uint32_t value, cpu_pack pack, size_t bytes, uint32_t *ret_tensor)
{
    const struct leat_value *v = &b->graph->values[value];
    const bool shared = cpu_model_owns(b->model, v->data);
    struct cpu_constants *constants = shared ? cpu_model_lock_constants(b->model) : &b->program->constants;
    struct cpu_constant *constant = cpu_constants_first(constants, v->data);

    LEAT_ASSERT(v->data != NULL);
    while (constant != NULL && !is_packed_of(constant, v, pack)) {
        constant = constant->next;
    }
    enum leat_status status = LEAT_OK;
    if (constant == NULL) {
        status = cpu_constants_make_room(constants);
        if (status == LEAT_OK) {
            status = pack_constant(b, shared, v, pack, bytes, &constant);
        }
        if (status == LEAT_OK) {
            cpu_constants_add(constants, constant);
        }
    }
    if (shared) {
        cpu_model_unlock_constants(b->model);
    }
    if (status != LEAT_OK) {
        return status;
    }
    LEAT_ASSERT(constant->bytes == bytes);
    const struct cpu_tensor tensor = {.bytes = bytes, .buffer = CPU_NONE, .constant = constant};
    return add_tensor(b->program, &tensor, ret_tensor);
}

enum leat_status
cpu_private_words(struct cpu_builder *b, const void *data, size_t count, uint32_t *ret_tensor)
{
    const int64_t dims[1] = {(int64_t)count};
    const dnnl_memory_desc_t md = cpu_plain_md(dims, 1);
    struct cpu_constant *constant;

    enum leat_status status = cpu_constants_make_room(&b->program->constants);
    if (status == LEAT_OK) {
        status = make_constant(b, false, data, count * sizeof(float), &md, &md, NULL, false, &constant);
    }
    if (status != LEAT_OK) {
        return status;
    }
    constant->source = constant->data; /* the caller's buffer goes away */
    cpu_constants_add(&b->program->constants, constant);
    const struct cpu_tensor tensor = {
        .md = md, .bytes = count * sizeof(float), .buffer = CPU_NONE, .scale = 1, .constant = constant};
    return add_tensor(b->program, &tensor, ret_tensor);
}

enum leat_status
cpu_private_vector(struct cpu_builder *b, const float *data, size_t count, uint32_t *ret_tensor)
{
    return cpu_private_words(b, data, count, ret_tensor);
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
        status = new_in_layout(b, &md, &tensor);
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
        status = no_memory();
    }
    if (status != LEAT_OK) {
        free(constant);
        return status;
    }
    *constant = (struct cpu_constant){.source = v->data, .pack = leave_in_place, .data = v->data};
    cpu_constants_add(&b->program->constants, constant);
    const struct cpu_tensor tensor = {.bytes = v->data_bytes, .buffer = CPU_NONE, .constant = constant};
    return add_tensor(b->program, &tensor, ret_tensor);
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
        status = new_in_layout(b, &md, &tensor);
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
        status = new_in_layout(b, md, ret_tensor);
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
        status = new_in_layout(b, md, ret_tensor);
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
    enum leat_status status = grow(&program->steps, program->step_count, &program->step_room, sizeof(*program->steps));
    struct cpu_arg *copy = calloc(arg_count + 1, sizeof(*copy));

    if (status != LEAT_OK || copy == NULL) {
        free(copy);
        return status != LEAT_OK ? status : no_memory();
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

    enum leat_status status = all == NULL ? no_memory() : cpu_model_take(b->model, b->program, PRIMITIVE_BYTES);
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
            status = new_in_layout(b, &scratch, &all[arg_count++].tensor);
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
            grow(&program->branches, program->branch_count, &program->branch_room, sizeof(*program->branches));
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
        status = set_factors(b, attributes, &(struct factors){&factor, 1, 0});
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
        return new_in_layout(b, md, ret_tensor);
    }
    enum leat_status status = cpu_best(b, addend, &from);
    if (status != LEAT_OK) {
        return status;
    }
    const struct cpu_tensor *tensor = &b->program->tensors[from];
    if (cpu_may_overwrite(b, addend, from) && cpu_same_bytes(&tensor->md, md)) {
        return cpu_view(b, from, md, ret_tensor);
    }
    status = new_in_layout(b, md, ret_tensor);
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
            status = new_in_layout(b, &md, &b->whole[value]);
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
            status = add_list(program, program->tensors[tensor].buffer, program->items, bytes / program->items, &list);
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
        return no_memory();
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
        return no_memory();
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
        return no_memory();
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
