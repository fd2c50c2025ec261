/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes whose inputs are all constant are computed now, with the reference functions. */
#include "kernels/passes/passes.h"

LEAT_PASS_FUNCTION(fold_constants)
{
    return leat_graph_fold(graph, ret_changed);
}
