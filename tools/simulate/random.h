/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/simulate/random.h - seeded draws, the same bit for bit on every machine: no function of libm is called.
 *
 * Sources   G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014 (splitmix64);
 *           J. von Neumann, "Various techniques used in connection with random digits", 1951 (exponential);
 *           C. Karney, "Sampling exactly from the normal distribution", ACM TOMS 42, 2016, algorithm N (normal).
 *           The latter two compare uniforms; here those are doubles of 53 bits instead of bits without end.
 * State     One number, any value of it; the caller's.
 */
#ifndef LEAT_TOOLS_RANDOM_H
#define LEAT_TOOLS_RANDOM_H

#include <stdint.h>

uint64_t random_u64(uint64_t *state);
double random_uniform(uint64_t *state);     /* [0, 1) */
double random_exponential(uint64_t *state); /* mean 1, >= 0 */
double random_normal(uint64_t *state);      /* mean 0, deviation 1 */

#endif /* LEAT_TOOLS_RANDOM_H */
