/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     oneDNN makes convolutions without a fault wherever its heap blocks lie.
 * Method   Every block that operator new gets from malloc ends where a page without access begins, and its first
 *          page is without access once it is freed. Blocks have the room that the header promises, to the last byte;
 *          convolutions of many shapes are made, those with AMX among them where the processor has it.
 */
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/align.h"
#include "kernels/cpu/cxx_heap.h"
#include "tests/leat_test.h"

#define PAGE        ((size_t)4096)
#define ARENA_BYTES ((size_t)1 << 32) /* of addresses */
#define ALIGN       ((size_t)16)      /* as malloc's */

extern void *operator_new(size_t size) __asm__("_Znwm");
extern void operator_delete(void *block) __asm__("_ZdlPv");
extern void *__real_malloc(size_t size);
extern void __real_free(void *block);
void *__wrap_malloc(size_t size);
void __wrap_free(void *block);

static unsigned char *arena, *next;
static bool guarded;

void *
__wrap_malloc(size_t size)
{
    if (!guarded) {
        return __real_malloc(size);
    }
    const size_t bytes = (size_t)leat_round_up(size, ALIGN),
                 span = (size_t)leat_round_up(bytes, PAGE);
    EXPECT(span + PAGE <= (size_t)(arena + ARENA_BYTES - next));
    EXPECT(mprotect(next, span, PROT_READ | PROT_WRITE) == 0);
    unsigned char *block = next + span - bytes;
    next += span + PAGE;
    memset(block, 0xa5, bytes);
    return block;
}

void
__wrap_free(void *block)
{
    if ((uintptr_t)block < (uintptr_t)arena || (uintptr_t)block >= (uintptr_t)arena + ARENA_BYTES) {
        __real_free(block);
        return;
    }
    EXPECT(mprotect((void *)((uintptr_t)block & ~(PAGE - 1)), PAGE, PROT_NONE) == 0);
}

static void
test_room(void)
{
    for (size_t size = 0; size <= 3 * PAGE; size += ALIGN) {
        guarded = true;
        unsigned char *block = operator_new(size);
        guarded = false;
        memset(block, 1, size + LEAT_CXX_HEAP_ROOM_BYTES);
        operator_delete(block);
    }
}

/* What was got outside a run serves inside one, room and all. */
static void
test_run(void)
{
    void *block = operator_new(64);
    const uintptr_t address = (uintptr_t)block;

    leat_cxx_heap_enter();
    operator_delete(block);
    block = operator_new(64 + LEAT_CXX_HEAP_ROOM_BYTES / 2);
    EXPECT((uintptr_t)block == address);
    leat_cxx_heap_leave();
    operator_delete(block);
}

struct shape {
    int64_t batch, inputs, side, kernel, stride, pad, outputs;
};

static void
make_and_destroy(dnnl_engine_t engine, dnnl_data_type_t type, const struct shape *shape)
{
    const int64_t side = (shape->side + 2 * shape->pad - shape->kernel) / shape->stride + 1;
    const dnnl_dims_t x_dims = {shape->batch, shape->inputs, shape->side, shape->side},
                      b_dims = {shape->outputs};
    const dnnl_dims_t w_dims = {shape->outputs, shape->inputs, shape->kernel, shape->kernel};
    const dnnl_dims_t y_dims = {shape->batch, shape->outputs, side, side}, none = {0, 0};
    const dnnl_dims_t strides = {shape->stride, shape->stride}, pads = {shape->pad, shape->pad};
    dnnl_memory_desc_t x_md, w_md, b_md, y_md;
    dnnl_convolution_desc_t conv;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;

    EXPECT(dnnl_memory_desc_init_by_tag(&x_md, 4, x_dims, type, dnnl_format_tag_any) ==
           dnnl_success);
    EXPECT(dnnl_memory_desc_init_by_tag(&w_md, 4, w_dims, type, dnnl_format_tag_any) ==
           dnnl_success);
    EXPECT(dnnl_memory_desc_init_by_tag(&b_md, 1, b_dims, dnnl_f32, dnnl_a) == dnnl_success);
    EXPECT(dnnl_memory_desc_init_by_tag(&y_md, 4, y_dims, type, dnnl_format_tag_any) ==
           dnnl_success);
    EXPECT(dnnl_dilated_convolution_forward_desc_init(
               &conv, dnnl_forward_inference, dnnl_convolution_direct, &x_md, &w_md, &b_md, &y_md,
               strides, none, pads, pads) == dnnl_success);
    guarded = true;
    const dnnl_status_t described = dnnl_primitive_desc_create(&pd, &conv, NULL, engine, NULL);
    if (described == dnnl_success) {
        EXPECT(dnnl_primitive_create(&primitive, pd) == dnnl_success);
        EXPECT(dnnl_primitive_destroy(primitive) == dnnl_success);
        EXPECT(dnnl_primitive_desc_destroy(pd) == dnnl_success);
    }
    guarded = false;
    EXPECT(described == dnnl_success ||
           (described == dnnl_unimplemented && type != dnnl_f32)); /* bf16 wants AVX-512 */
}

static void
test_convolutions(void)
{
    static const struct shape shapes[] = {
        {4, 1, 28, 5, 2, 2, 24},  {4, 24, 14, 3, 1, 1, 24}, {4, 24, 14, 3, 2, 1, 40},
        {4, 24, 14, 1, 2, 0, 40}, {4, 40, 7, 3, 1, 1, 40},  {4, 40, 7, 3, 2, 1, 56},
        {4, 56, 4, 3, 1, 1, 56},
    };
    uint64_t random = leat_test_seed;
    dnnl_engine_t engine;

    EXPECT(dnnl_set_primitive_cache_capacity(0) ==
           dnnl_success); /* each is made, and gone at once */
    EXPECT(dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success);
    for (size_t i = 0; i < 3 * LEAT_COUNT_OF(shapes); i++) {
        struct shape shape = shapes[i % LEAT_COUNT_OF(shapes)];
        if (i >= LEAT_COUNT_OF(shapes)) {
            shape.batch = 1 + (int64_t)(leat_test_random(&random) % 8);
            shape.side += (int64_t)(leat_test_random(&random) % 32);
            shape.outputs = 8 * (1 + (int64_t)(leat_test_random(&random) % 16));
        }
        make_and_destroy(engine, dnnl_f32, &shape);
        make_and_destroy(engine, dnnl_bf16, &shape);
    }
    EXPECT(dnnl_engine_destroy(engine) == dnnl_success);
}

int
main(void)
{
    leat_test_init();
    (void)fprintf(stderr, "seed %llu\n", (unsigned long long)leat_test_seed);
    next = arena =
        mmap(NULL, ARENA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT(arena != MAP_FAILED);
    test_room();
    test_run();
    test_convolutions();
    return 0;
}
