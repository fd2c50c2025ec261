/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/isa.h - which of the vectors that kernels are written for this CPU has, less what DNNL_MAX_CPU_ISA takes away.
 */
#ifndef LEAT_KERNELS_CPU_ISA_H
#define LEAT_KERNELS_CPU_ISA_H

#include <stdbool.h>
#include <stdint.h>

bool cpu_has_avx512(void); /* its foundation, and more that all servers with it have */
bool cpu_has_avx2(void);   /* with fused products; has AVX-512, has this */
/* Floats of the widest vectors of both: 16, 8, or 0 where there are none. */
int64_t cpu_vector_lanes(void);

#endif /* LEAT_KERNELS_CPU_ISA_H */
