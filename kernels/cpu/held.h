/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/held.h - activations that are a few instructions, of vectors of the width that the file is compiled for. */
#ifndef LEAT_KERNELS_CPU_HELD_H
#define LEAT_KERNELS_CPU_HELD_H

#include "kernels/cpu/product.h"
#include "kernels/graph.h"

/* As the reference backend has them, of NaN too; the smooth ones are kernels/cpu/activation.h. */
CPU_INLINE cpu_floats
cpu_held(const struct leat_node *node, cpu_floats y)
{
    const cpu_floats zero = CPU_V(setzero)(), one = CPU_V(set1)(1);

    switch (node->fused_activation) {
    case LEAT_ACTIVATION_RELU:
        return CPU_V(max)(zero, y);
    case LEAT_ACTIVATION_CLIP:
        return CPU_V(min)(CPU_V(set1)(node->clip_max), CPU_V(max)(CPU_V(set1)(node->clip_min), y));
    case LEAT_ACTIVATION_HARD_SWISH: {
        const cpu_floats gate = CPU_V(fmadd)(y, CPU_V(set1)(1.0f / 6), CPU_V(set1)(0.5f));
        return CPU_V(mul)(y, CPU_V(min)(one, CPU_V(max)(zero, gate)));
    }
    case LEAT_ACTIVATION_LEAKY_RELU: {
        const cpu_floats bent = CPU_V(mul)(y, CPU_V(set1)(node->slope));
#if CPU_VECTOR_BITS == 512
        return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(y, zero, _CMP_LT_OQ), bent);
#else
        return _mm256_blendv_ps(y, bent, _mm256_cmp_ps(y, zero, _CMP_LT_OQ));
#endif
    }
    default:
        return y;
    }
}

#endif /* LEAT_KERNELS_CPU_HELD_H */
