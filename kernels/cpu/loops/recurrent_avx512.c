/* SPDX-License-Identifier: Apache-2.0 */
#define CPU_VECTOR_BITS 512
#define ROWS_KERNEL     cpu_direct_avx512
#include "kernels/cpu/loops/recurrent_body.h"
