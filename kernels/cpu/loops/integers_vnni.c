/* SPDX-License-Identifier: Apache-2.0 */
#define CPU_VECTOR_BITS      512
#define INTEGERS_CAP_NOTHING 1
#define INTEGERS_KERNEL      cpu_integers_vnni
#include "kernels/cpu/loops/integers_body.h"
