/* SPDX-License-Identifier: Apache-2.0 */
#define CPU_VECTOR_BITS 512
#define WINOGRAD_STAGES cpu_winograd_avx512
#include "kernels/cpu/winograd_body.h"
