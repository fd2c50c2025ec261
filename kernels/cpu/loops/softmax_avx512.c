/* SPDX-License-Identifier: Apache-2.0 */
#define CPU_VECTOR_BITS 512
#include "kernels/cpu/loops/softmax_body.h"
