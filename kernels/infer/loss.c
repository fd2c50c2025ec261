/* SPDX-License-Identifier: Apache-2.0 */
/* Losses: models that were exported with theirs still answer. */
#include "kernels/infer/infer.h"

#include <string.h>

/* Input [items][classes][...], a class per item and place, weights per class. */
LEAT_INFER_FUNCTION(loss)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *target = leat_node_input(graph, node, 1);
    const struct leat_attribute *reduction = leat_node_attribute(node, "reduction");
    const bool none = reduction != NULL && strcmp(reduction->s, "none") == 0;

    if (x->rank < 2 || (reduction != NULL && !none && strcmp(reduction->s, "sum") != 0 &&
                        strcmp(reduction->s, "mean") != 0)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "rank %u, or an unknown reduction", x->rank);
    }
    enum leat_status status =
        leat_check_input(graph, node, 1, LEAT_TYPE_INDEX, x->rank - 1, x->rank - 1);
    if (status == LEAT_OK) {
        status = leat_check_vector(graph, node, 2, 1u << x->dtype, x->dims[1]);
    }
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t d = 0; d < target->rank; d++) {
        const int64_t want = x->dims[d == 0 ? 0 : d + 1];
        if (want >= 0 && target->dims[d] >= 0 && want != target->dims[d]) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its targets do not fit its input");
        }
        *mixes_items =
            *mixes_items || (want == LEAT_DIM_BATCH) != (target->dims[d] == LEAT_DIM_BATCH);
    }
    *mixes_items =
        *mixes_items || x->dims[1] == LEAT_DIM_BATCH || (!none && leat_has_batch(x, 0, x->rank));
    outputs[0] = none ? leat_shape_of(target) : (struct leat_shape){0};
    outputs[0].dtype = x->dtype;
    outputs[1] = leat_shape_of(x); /* logarithms of probabilities */
    return LEAT_OK;
}
