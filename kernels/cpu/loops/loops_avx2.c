/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/product.h"

#define CPU_LOOP            CPU_AVX2
#define CPU_LOOP_NAME(name) name##_avx2
#include "kernels/cpu/loops/loops_body.h"
