/* SPDX-License-Identifier: Apache-2.0 */
/* tests/conformance/case_data.h - the recorded tensors of a case of libonnx-testdata, and how near to them an answer is. */
#ifndef LEAT_TESTS_CONFORMANCE_CASE_DATA_H
#define LEAT_TESTS_CONFORMANCE_CASE_DATA_H

#include "kernels/graph_build.h"
#include "kernels/op.h"

#define CASE_TENSORS_MAX 16u

/* The tensors of one data set: constants of a graph that exists to hold them. */
struct case_tensors {
    struct leat_graph *holder;
    uint32_t count;
    uint32_t index[CASE_TENSORS_MAX];
};

static inline const struct leat_value *
case_tensor(const struct case_tensors *tensors, uint32_t i)
{
    return &tensors->holder->values[tensors->index[i]];
}

/* NULL when the file does not exist. */
void *case_read_file(const char *path, size_t *ret_size);

/* All of input_0.pb, input_1.pb, ...; an unsupported type is a status. */
enum leat_status case_load_tensors(const char *set, const char *stem, struct case_tensors *ret);

/* `sums`: each is of all elements, of which those in floats are as near as the greatest one is. */
bool case_is_near(const struct leat_value *expected, const void *data, bool sums, const char *name);
bool case_has_shape(const struct leat_value *have, const struct leat_value *want, const char *name);

/* Runs a specialised graph by the reference functions. Bit i of `constants`: input i is none of its. Destroy the holder in any case. */
enum leat_status case_run(const struct leat_graph *graph, const struct case_tensors *inputs, uint32_t constants,
                          struct case_tensors *ret_outputs);

/* Gives the graph's inputs the shapes of the data; input i becomes a constant when bit i of `constants` is set. */
void case_bind_inputs(struct leat_graph *graph, const struct case_tensors *inputs, uint32_t constants);

/* A copy with the shapes of the data and those constants, of which `use` makes what is wanted. */
enum leat_status case_try(const struct leat_graph *imported, const struct case_tensors *inputs, uint32_t constants,
                          enum leat_status (*use)(struct leat_graph *graph), struct leat_graph **ret_graph);

/*
 * The same with the fewest constants that do, later inputs rather than earlier ones. `wanted`: those that have to be. The status is
 * that with all of them constant.
 */
enum leat_status case_use(const struct leat_graph *imported, const struct case_tensors *inputs, uint32_t wanted,
                          enum leat_status (*use)(struct leat_graph *graph), struct leat_graph **ret_graph,
                          uint32_t *ret_constants);

#endif /* LEAT_TESTS_CONFORMANCE_CASE_DATA_H */
