/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEAT_BASE_LARGE_H
#define LEAT_BASE_LARGE_H

#include <stddef.h>

/*
 * Memory for free(), 64-byte aligned, not zeroed; NULL when there is none. From 2 MiB on it asks for huge pages: it is there sooner,
 * and a look-up in a random row of a large table takes two thirds of the time. What is behind the last whole one does not.
 */
void *leat_large_alloc(size_t bytes);

#endif /* LEAT_BASE_LARGE_H */
