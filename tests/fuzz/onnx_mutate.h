/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/fuzz/onnx_mutate.h - changes an ONNX file where bytes alone would only break it.
 *
 * Role     A model is unpacked, a few of its fields are changed (dims, types, attributes, edges, operator names, opset,
 *          sizes of initialisers, places of external data, subgraphs, functions, forms of constants, or any field that
 *          protobuf describes), and packed again. What comes out parses, and is often still a model.
 * Threads  One.
 */
#ifndef LEAT_TESTS_FUZZ_ONNX_MUTATE_H
#define LEAT_TESTS_FUZZ_ONNX_MUTATE_H

#include <stddef.h>
#include <stdint.h>

/* In place. The new size, or 0 when `data` is no model or the new one has more than max_size bytes. Same seed, same result. */
size_t onnx_mutate(uint8_t *data, size_t size, size_t max_size, uint64_t seed);

#endif /* LEAT_TESTS_FUZZ_ONNX_MUTATE_H */
