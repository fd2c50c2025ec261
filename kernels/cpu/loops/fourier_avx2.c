/* SPDX-License-Identifier: Apache-2.0 */
#define CPU_VECTOR_BITS 256
#include "kernels/cpu/loops/fourier_body.h"
