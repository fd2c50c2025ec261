/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/payload.h - numbers of tensors whose owner may change them at any time.
 *
 * Role     Whoever checks an index takes it from here, and goes on with what was checked: one load, which no compiler repeats.
 */
#ifndef LEAT_KERNELS_PAYLOAD_H
#define LEAT_KERNELS_PAYLOAD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

static inline int64_t
leat_payload_i64(const void *data, size_t i)
{
    return atomic_load_explicit((const _Atomic int64_t *)data + i, memory_order_relaxed);
}

static inline int32_t
leat_payload_i32(const void *data, size_t i)
{
    return atomic_load_explicit((const _Atomic int32_t *)data + i, memory_order_relaxed);
}

static inline uint8_t
leat_payload_u8(const void *data, size_t i)
{
    return atomic_load_explicit((const _Atomic uint8_t *)data + i, memory_order_relaxed);
}

#endif /* LEAT_KERNELS_PAYLOAD_H */
