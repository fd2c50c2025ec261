/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/large.h"
#include "kernels/cpu/openmp.h"
#include "kernels/cpu/program.h"

enum leat_status
cpu_set_factors(struct cpu_builder *b, dnnl_primitive_attr_t attributes, const struct cpu_factors *factors)
{
    return CPU_TRY(b, "attributes",
                   dnnl_primitive_attr_set_output_scales(attributes, (dnnl_dim_t)factors->count, factors->mask, factors->data));
}

/* What a reorder that runs here and now works in lies in oneDNN's own memory. */
static enum leat_status
may_work(struct cpu_builder *b, const_dnnl_primitive_desc_t pd)
{
    int64_t bytes = 0;
    const enum leat_status status =
        CPU_TRY(b, "layout of a constant", dnnl_primitive_desc_query(pd, dnnl_query_memory_consumption_s64, 0, &bytes));
    return status == LEAT_OK ? cpu_model_may_take(b->model, CPU_PRIMITIVE_BYTES + (uint64_t)(bytes > 0 ? bytes : 0)) : status;
}

/* Reads `source` as seen_as and writes it as md; no step: it happens here and now, on this thread. */
static enum leat_status
reorder_now(struct cpu_builder *b, const void *source, const dnnl_memory_desc_t *seen_as, const struct cpu_factors *factors,
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
        status = cpu_set_factors(b, attributes, factors);
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
              const dnnl_memory_desc_t *md, const struct cpu_factors *factors, bool payload_stays, struct cpu_constant **ret)
{
    struct cpu_constant *constant = calloc(1, sizeof(*constant));
    if (constant == NULL) {
        return cpu_no_memory();
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
            status = constant->owned != NULL ? LEAT_OK : cpu_no_memory();
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
                 const dnnl_memory_desc_t *seen_as, const dnnl_memory_desc_t *md, const struct cpu_factors *factors,
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
            const struct cpu_factors *factors, uint32_t *ret_tensor)
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
    return cpu_add_tensor(b->program, &tensor, ret_tensor);
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
    const struct cpu_factors all = {factors, factor_count, mask};
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
    status = packed != NULL && constant != NULL ? cpu_open_constant(b, v, &seen.data) : cpu_no_memory();
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
    return cpu_add_tensor(b->program, &tensor, ret_tensor);
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
    return cpu_add_tensor(b->program, &tensor, ret_tensor);
}

enum leat_status
cpu_private_vector(struct cpu_builder *b, const float *data, size_t count, uint32_t *ret_tensor)
{
    return cpu_private_words(b, data, count, ret_tensor);
}
