/* SPDX-License-Identifier: Apache-2.0 */
/* tests/zoo_lengths.h - imported models of the zoo get the lengths that leat-zoo calls nominal. */
#ifndef LEAT_TESTS_ZOO_LENGTHS_H
#define LEAT_TESTS_ZOO_LENGTHS_H

#include <string.h>

#include "kernels/graph.h"
#include "tests/leat_test.h"
#include "tools/zoo/zoo.h"

struct zoo_lengths {
    struct leat_graph *graph;
    enum leat_status status;
};

static inline void
zoo_lengths_bind(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    struct zoo_lengths *lengths = context;
    struct leat_graph *graph = lengths->graph;
    struct leat_dim_value values[LEAT_GRAPH_SYMBOLS_MAX];
    (void)model;

    for (uint32_t s = 0; s < graph->symbol_count; s++) {
        uint32_t n = 0;
        while (n < summary->symbol_count && strcmp(summary->symbols[n].name, graph->symbols[s]) != 0) {
            n++;
        }
        EXPECT(n < summary->symbol_count);
        values[s] = (struct leat_dim_value){.name = graph->symbols[s], .value = summary->symbols[n].nominal};
    }
    lengths->status = leat_graph_bind(graph, values, graph->symbol_count);
}

/* Every free dimension but the batch. */
static inline enum leat_status
zoo_lengths(const struct zoo_model *model, enum zoo_size size, struct leat_graph *graph)
{
    struct zoo_lengths lengths = {.graph = graph};

    EXPECT(zoo_describe(model, size, zoo_lengths_bind, &lengths) == LEAT_OK);
    return lengths.status;
}

#endif /* LEAT_TESTS_ZOO_LENGTHS_H */
