/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/constants.h - the constants of a model or a program, found by what they were made from.
 *
 * Role       A hash table with lists, of which there are at least as many as constants: files may have tens of thousands.
 * Ownership  Constants that were added belong to it.
 * Threads    None of its own: whoever shares one locks it.
 */
#ifndef LEAT_KERNELS_CPU_CONSTANTS_H
#define LEAT_KERNELS_CPU_CONSTANTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct cpu_constant;

/* Empty when all is 0. */
struct cpu_constants {
    struct cpu_constant **lists; /* [list_count] */
    uint32_t list_count;         /* 0 or a power of two */
    uint32_t count;              /* of constants */
};

/* The head of the list that has those made from `source`, and others, the last one added first; NULL: there are none. */
struct cpu_constant *cpu_constants_first(const struct cpu_constants *constants, const void *source);
/* For one more. */
LEAT_MUST_CHECK enum leat_status cpu_constants_make_room(struct cpu_constants *constants);
/* After room was made. */
void cpu_constants_add(struct cpu_constants *constants, struct cpu_constant *constant);
/* What all of them take. */
size_t cpu_constants_bytes(const struct cpu_constants *constants);
void cpu_constants_fini(struct cpu_constants *constants); /* destroys all */

void cpu_constant_destroy(struct cpu_constant *constant); /* one that was not added */

#endif /* LEAT_KERNELS_CPU_CONSTANTS_H */
