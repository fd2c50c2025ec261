/* SPDX-License-Identifier: Apache-2.0 */
#define CPU_LOOP
#define CPU_LOOP_NAME(name) name##_plain
#include "kernels/cpu/loops/loops_body.h"

#include "kernels/cpu/isa.h"

cpu_loop
cpu_loop_of(const struct leat_node *node, uint32_t dtype)
{
#if defined(__x86_64__)
    return (cpu_has_avx2() ? cpu_loop_of_avx2 : cpu_loop_of_plain)(node, dtype);
#else
    return cpu_loop_of_plain(node, dtype);
#endif
}

void
cpu_loop_test(const struct leat_node *node, const void *x, uint8_t *y, size_t count)
{
#if defined(__x86_64__)
    (cpu_has_avx2() ? cpu_loop_test_avx2 : cpu_loop_test_plain)(node, x, y, count);
#else
    cpu_loop_test_plain(node, x, y, count);
#endif
}
