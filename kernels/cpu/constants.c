/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/constants.h"

#include <stdlib.h>

#include "kernels/cpu/program.h"

enum { LISTS_LEAST = 64 };

static struct cpu_constant **
list_of(const struct cpu_constants *constants, const void *source)
{
    /* The upper half of a product with 2^64 divided by the golden ratio: neighbours come far apart. */
    const uint64_t hash = (uint64_t)(uintptr_t)source * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    return &constants->lists[hash & (constants->list_count - 1)];
}

struct cpu_constant *
cpu_constants_first(const struct cpu_constants *constants, const void *source)
{
    return constants->list_count > 0 ? *list_of(constants, source) : NULL;
}

enum leat_status
cpu_constants_make_room(struct cpu_constants *constants)
{
    struct cpu_constants larger = {.list_count = constants->list_count > 0 ? 2 * constants->list_count : LISTS_LEAST};

    if (constants->count < constants->list_count) {
        return LEAT_OK;
    }
    larger.lists = calloc(larger.list_count, sizeof(struct cpu_constant *));
    if (larger.lists == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    for (uint32_t l = 0; l < constants->list_count; l++) {
        for (struct cpu_constant *constant = constants->lists[l], *next; constant != NULL; constant = next) {
            next = constant->next;
            cpu_constants_add(&larger, constant);
        }
    }
    free(constants->lists);
    *constants = larger;
    return LEAT_OK;
}

void
cpu_constants_add(struct cpu_constants *constants, struct cpu_constant *constant)
{
    LEAT_ASSERT(constants->count < constants->list_count);
    struct cpu_constant **list = list_of(constants, constant->source);
    constant->next = *list;
    *list = constant;
    constants->count++;
}

size_t
cpu_constants_bytes(const struct cpu_constants *constants)
{
    size_t bytes = constants->list_count * sizeof(struct cpu_constant *);

    for (uint32_t l = 0; l < constants->list_count; l++) {
        for (const struct cpu_constant *constant = constants->lists[l]; constant != NULL; constant = constant->next) {
            bytes += sizeof(*constant) + constant->bytes;
        }
    }
    return bytes;
}

void
cpu_constant_destroy(struct cpu_constant *constant)
{
    (void)dnnl_memory_destroy(constant->memory);
    free(constant->owned);
    free(constant);
}

void
cpu_constants_fini(struct cpu_constants *constants)
{
    for (uint32_t l = 0; l < constants->list_count; l++) {
        for (struct cpu_constant *constant = constants->lists[l], *next; constant != NULL; constant = next) {
            next = constant->next;
            cpu_constant_destroy(constant);
        }
    }
    free(constants->lists);
}
