/* SPDX-License-Identifier: Apache-2.0 */
/* x Sigmoid(x) becomes Swish, also called SiLU; x HardSigmoid(x), with the slope of MobileNetV3's, HardSwish. */
#include <math.h>

#include "kernels/passes/passes.h"

static const struct leat_op *
op_of(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t x, uint32_t gate)
{
    const struct leat_node *soft = leat_pass_producer(graph, index, gate, LEAT_OP_SIGMOID);
    const struct leat_node *hard = leat_pass_producer(graph, index, gate, LEAT_OP_HARD_SIGMOID);

    if (soft != NULL && soft->inputs[0] == x) {
        return leat_op_fused(LEAT_OP_SWISH);
    }
    if (hard != NULL && hard->inputs[0] == x && leat_node_float(hard, "beta", 0.5f) == 0.5f &&
        fabsf(leat_node_float(hard, "alpha", 0.2f) - 1.0f / 6.0f) < 1e-6f) {
        return leat_op_find("HardSwish", LEAT_OPSET_MAX);
    }
    return NULL;
}

static enum leat_status
fuse(struct leat_graph *graph, struct leat_pass_index *index, struct leat_node *node, bool *ret_done)
{
    if (node->op->kind != LEAT_OP_MUL || leat_node_output(graph, node, 0)->dtype != LEAT_DTYPE_F32) {
        return LEAT_OK;
    }
    for (uint32_t side = 0; side < 2; side++) {
        const uint32_t x = node->inputs[side];
        const struct leat_op *op = op_of(graph, index, x, node->inputs[1 - side]);
        if (op != NULL) {
            *ret_done = true;
            return leat_pass_replace(graph, index, node, op, &x, 1, NULL, 0);
        }
    }
    return LEAT_OK;
}

LEAT_PASS_FUNCTION(fuse_swish)
{
    return leat_pass_each(graph, fuse, ret_changed);
}
