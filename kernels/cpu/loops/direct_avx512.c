/* SPDX-License-Identifier: Apache-2.0 */
#define CPU_VECTOR_BITS 512
#define DIRECT_KERNEL   cpu_direct_avx512
#include "kernels/cpu/loops/direct_body.h"
