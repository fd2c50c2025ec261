/* SPDX-License-Identifier: Apache-2.0 */
#define CPU_VECTOR_BITS 256
#define CPU_VECTORS     4
#define ROWS_KERNEL     cpu_direct_few_avx2
#include "kernels/cpu/loops/recurrent_body.h"
