/* SPDX-License-Identifier: Apache-2.0 */
/* NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss. */
#include <math.h>
#include <string.h>

#include "kernels/reference/element.h"

/* Logarithm of the probability of each class at one place: as given, or by a softmax over the classes. */
static double
logarithm(const struct leat_eval *eval, bool softmax, size_t first, size_t stride, size_t class)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const void *in = leat_eval_in(eval, 0);
    double max = -INFINITY, sum = 0;

    for (int64_t c = 0; c < x->dims[1] && softmax; c++) {
        max = fmax(max, leat_element_real(x->dtype, in, first + (size_t)c * stride));
    }
    for (int64_t c = 0; c < x->dims[1] && softmax; c++) {
        sum += exp(leat_element_real(x->dtype, in, first + (size_t)c * stride) - max);
    }
    const double score = leat_element_real(x->dtype, in, first + class * stride);
    return softmax ? score - max - log(sum) : score;
}

static enum leat_status
loss(const struct leat_eval *eval, bool softmax)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *target = leat_eval_input(eval, 1);
    const struct leat_attribute *reduction = leat_node_attribute(eval->node, "reduction");
    const struct leat_attribute *ignored = leat_node_attribute(eval->node, "ignore_index");
    const bool none = reduction != NULL && strcmp(reduction->s, "none") == 0;
    const bool mean = reduction == NULL || strcmp(reduction->s, "mean") == 0;
    const size_t places = leat_extent(x, 2, x->rank), classes = (size_t)x->dims[1];
    const size_t count = leat_value_elements(target);
    double sum = 0, weights = 0;

    for (size_t i = 0; i < count; i++) {
        const size_t first = i / places * classes * places + i % places;
        const int64_t class =
            leat_element_int(target->dtype, leat_eval_in(eval, 1), i); /* read once */
        const bool counts = ignored == NULL || class != ignored->i;
        double weight = counts ? 1 : 0, part = 0;
        if (counts && (class < 0 || class >= x->dims[1])) {
            return LEAT_NODE_FAIL(eval->node, LEAT_ERR_SHAPE, "class %lld of %zu", (long long)class,
                                  classes);
        }
        if (counts) {
            weight = leat_eval_input(eval, 2) != NULL
                         ? leat_element_real(x->dtype, leat_eval_in(eval, 2), (size_t) class)
                         : 1;
            part = -weight * logarithm(eval, softmax, first, places, (size_t) class);
        }
        sum += part;
        weights += weight;
        if (none) {
            leat_element_set_real(x->dtype, leat_eval_out(eval, 0), i, part);
        }
    }
    if (!none) {
        leat_element_set_real(x->dtype, leat_eval_out(eval, 0), 0, mean ? sum / weights : sum);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(log_likelihood)
{
    return loss(eval, false);
}

LEAT_REFERENCE_FUNCTION(cross_entropy)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const size_t places = leat_extent(x, 2, x->rank), classes = (size_t)x->dims[1];
    const size_t count = leat_eval_output(eval, 1) != NULL ? leat_value_elements(x) : 0;

    for (size_t i = 0; i < count; i++) {
        const size_t class = i / places % classes,
                     first = i / places / classes * classes * places + i % places;
        leat_element_set_real(x->dtype, leat_eval_out(eval, 1), i,
                              logarithm(eval, true, first, places, class));
    }
    return loss(eval, true);
}
