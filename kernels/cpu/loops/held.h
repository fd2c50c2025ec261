/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/loops/held.h - activations that are a few instructions, of vectors of the width that the file is compiled for. */
#ifndef LEAT_KERNELS_CPU_LOOPS_HELD_H
#define LEAT_KERNELS_CPU_LOOPS_HELD_H

#include "kernels/cpu/loops/product.h"
#include "kernels/graph.h"

/* cpu_bends(). */
CPU_INLINE cpu_floats
cpu_bent(enum leat_activation activation, float slope, cpu_floats y)
{
    const cpu_floats zero = CPU_V(setzero)(), one = CPU_V(set1)(1);

    if (activation == LEAT_ACTIVATION_HARD_SWISH) {
        const cpu_floats gate = CPU_V(fmadd)(y, CPU_V(set1)(1.0f / 6), CPU_V(set1)(0.5f));
        return CPU_V(mul)(y, CPU_V(min)(one, CPU_V(max)(zero, gate)));
    }
    const cpu_floats less = CPU_V(mul)(y, CPU_V(set1)(slope));
#if CPU_VECTOR_BITS == 512
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(y, zero, _CMP_LT_OQ), less);
#else
    return _mm256_blendv_ps(y, less, _mm256_cmp_ps(y, zero, _CMP_LT_OQ));
#endif
}

/* As the reference backend has them, of NaN too; the smooth ones are kernels/cpu/loops/activation.h. */
CPU_INLINE cpu_floats
cpu_held(const struct leat_node *node, cpu_floats y)
{
    const cpu_floats zero = CPU_V(setzero)();

    switch (node->fused_activation) {
    case LEAT_ACTIVATION_RELU:
        return CPU_V(max)(zero, y);
    case LEAT_ACTIVATION_CLIP:
        return CPU_V(min)(CPU_V(set1)(node->clip_max), CPU_V(max)(CPU_V(set1)(node->clip_min), y));
    case LEAT_ACTIVATION_HARD_SWISH:
    case LEAT_ACTIVATION_LEAKY_RELU:
        return cpu_bent(node->fused_activation, node->slope, y);
    default:
        return y;
    }
}

#endif /* LEAT_KERNELS_CPU_LOOPS_HELD_H */
