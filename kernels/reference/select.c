/* SPDX-License-Identifier: Apache-2.0 */
/* Operators whose output is as long as tensor contents say: NonZero, Compress, Unique, NonMaxSuppression. */
#include <math.h>
#include <string.h>

#include "kernels/payload.h"
#include "kernels/reference/element.h"

/* ---- Sorting without memory of its own ---------------------------------------------------------------------- */

/* True when a comes before b. */
typedef bool (*order_function)(const void *context, size_t a, size_t b);

static void
sift_down(size_t *list, size_t root, size_t count, order_function before, const void *context)
{
    for (size_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
        if (child + 1 < count && before(context, list[child], list[child + 1])) {
            child++;
        }
        if (!before(context, list[root], list[child])) {
            return;
        }
        const size_t swapped = list[root];
        list[root] = list[child];
        list[child] = swapped;
        root = child;
    }
}

/* Heapsort (Williams, 1964). `before` is a strict order of all elements. */
static void
sort(size_t *list, size_t count, order_function before, const void *context)
{
    for (size_t root = count / 2; root-- > 0;) {
        sift_down(list, root, count, before, context);
    }
    for (size_t end = count; end-- > 1;) {
        const size_t swapped = list[0];
        list[0] = list[end];
        list[end] = swapped;
        sift_down(list, 0, end, before, context);
    }
}

/* ---- NonZero, Compress ---------------------------------------------------------------------------------------- */

static bool
is_zero(const struct leat_value *x, const void *in, size_t i)
{
    const struct leat_number number = leat_number_read(x->dtype, in, i);
    return number.is_float ? number.real == 0 : number.bits == 0;
}

LEAT_REFERENCE_FUNCTION(non_zero)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const size_t count = leat_value_elements(x);
    const void *in = leat_eval_in(eval, 0);
    int64_t *out = leat_eval_out(eval, 0), at[LEAT_RANK_MAX];
    size_t found = 0, row = 0;

    for (size_t i = 0; i < count; i++) {
        found += !is_zero(x, in, i);
    }
    const enum leat_status status =
        leat_eval_set_dims(eval, 0, (const int64_t[]){(int64_t)x->rank, (int64_t)found});
    for (size_t i = 0; i < count && row < found && status == LEAT_OK; i++) {
        if (!is_zero(x, in, i)) {
            leat_coordinates(x, i, at);
            for (uint32_t d = 0; d < x->rank; d++) {
                out[d * found + row] = at[d];
            }
            row++;
        }
    }
    return status;
}

LEAT_REFERENCE_FUNCTION(compress)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *condition = leat_eval_input(eval, 1);
    const bool flat = leat_node_attribute(eval->node, "axis") == NULL;
    const uint32_t axis = flat ? 0 : (uint32_t)leat_node_axis(eval->node, 0, x->rank);
    const size_t size = flat ? leat_value_elements(x) : (size_t)x->dims[axis];
    const size_t outer = flat ? 1 : leat_extent(x, 0, axis);
    const size_t row = (flat ? 1 : leat_extent(x, axis + 1, x->rank)) * leat_dtype_bytes(x->dtype);
    const size_t given = (size_t)condition->dims[0] < size ? (size_t)condition->dims[0] : size;
    const uint8_t *chosen = leat_eval_in(eval, 1);
    const unsigned char *in = leat_eval_in(eval, 0);
    unsigned char *out = leat_eval_out(eval, 0);
    int64_t dims[LEAT_RANK_MAX], kept = 0;

    for (size_t i = 0; i < given; i++) {
        kept += leat_payload_u8(chosen, i) != 0;
    }
    memcpy(dims, x->dims, sizeof(dims));
    dims[axis] = kept;
    const enum leat_status status = leat_eval_set_dims(eval, 0, dims);
    for (size_t o = 0; o < outer && status == LEAT_OK; o++) {
        int64_t left = kept; /* what was counted: the condition may be another one by now */
        for (size_t i = 0; i < given && left > 0; i++) {
            if (leat_payload_u8(chosen, i) != 0) {
                memcpy(out, in + (o * size + i) * row, row);
                out += row;
                left--;
            }
        }
    }
    return status;
}

/* ---- Unique --------------------------------------------------------------------------------------------------- */

/* x as `size` slices along an axis, or as so many elements. */
struct slices {
    uint32_t dtype;
    const void *in;
    size_t size, outer, inner;
};

static struct slices
slices_of(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    if (leat_node_attribute(node, "axis") == NULL) {
        return (struct slices){
            .dtype = x->dtype, .size = leat_value_elements(x), .outer = 1, .inner = 1};
    }
    const uint32_t axis = (uint32_t)leat_node_axis(node, 0, x->rank);
    return (struct slices){.dtype = x->dtype,
                           .size = (size_t)x->dims[axis],
                           .outer = leat_extent(x, 0, axis),
                           .inner = leat_extent(x, axis + 1, x->rank)};
}

size_t
leat_workspace_unique(const struct leat_graph *graph, const struct leat_node *node)
{
    return 4 * slices_of(graph, node).size * sizeof(size_t);
}

/* Element k of slice i. */
static struct leat_number
slice_element(const struct slices *s, size_t i, size_t k)
{
    return leat_number_read(s->dtype, s->in,
                            (k / s->inner * s->size + i) * s->inner + k % s->inner);
}

/* -1, 0 or 1 by the first element that differs. A NaN comes after every number. */
static int
compare_slices(const struct slices *s, size_t i, size_t j)
{
    for (size_t k = 0; k < s->outer * s->inner; k++) {
        const struct leat_number a = slice_element(s, i, k), b = slice_element(s, j, k);
        if (leat_number_beyond(&b, &a, true)) {
            return -1;
        }
        if (leat_number_beyond(&a, &b, true)) {
            return 1;
        }
    }
    return 0;
}

static bool
slice_before(const void *context, size_t i, size_t j)
{
    const int order = compare_slices(context, i, j);
    return order != 0 ? order < 0 : i < j;
}

static bool
index_before(const void *context, size_t a, size_t b)
{
    const size_t *firsts = context;
    return firsts[a] < firsts[b];
}

static void
store_index(const struct leat_eval *eval, uint32_t o, size_t i, size_t value)
{
    if (leat_eval_output(eval, o) != NULL) {
        ((int64_t *)leat_eval_out(eval, o))[i] = (int64_t)value;
    }
}

LEAT_REFERENCE_FUNCTION(unique)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const bool flat = leat_node_attribute(eval->node, "axis") == NULL;
    const bool sorted = leat_node_int(eval->node, "sorted", 1) != 0;
    struct slices s = slices_of(eval->graph, eval->node);
    size_t *order = eval->workspace, *group = order + s.size;               /* group: by slice */
    size_t *firsts = group + s.size, *ranked = firsts + s.size, groups = 0; /* by group */
    int64_t dims[LEAT_RANK_MAX];

    s.in = leat_eval_in(eval, 0);
    for (size_t i = 0; i < s.size; i++) {
        order[i] = i;
    }
    sort(order, s.size, slice_before, &s);
    for (size_t i = 0; i < s.size; i++) {
        if (i == 0 || compare_slices(&s, order[i - 1], order[i]) != 0) {
            ranked[groups] = groups;
            firsts[groups++] = order[i];
        }
        group[order[i]] = groups - 1;
    }
    if (!sorted) {
        sort(ranked, groups, index_before, firsts);
    }
    memcpy(dims, x->dims, sizeof(dims));
    dims[flat ? 0 : leat_node_axis(eval->node, 0, x->rank)] = (int64_t)groups;
    enum leat_status status = leat_eval_set_dims(eval, 0, dims);
    for (uint32_t o = 1; o < 4 && status == LEAT_OK; o += 2) {
        status = leat_eval_set_dims(eval, o, (const int64_t[]){(int64_t)groups});
    }
    if (status != LEAT_OK) {
        return status;
    }
    for (size_t r = 0; r < groups; r++) {
        for (size_t k = 0; k < s.outer * s.inner; k++) {
            const struct leat_number element = slice_element(&s, firsts[ranked[r]], k);
            leat_number_write(s.dtype, leat_eval_out(eval, 0),
                              (k / s.inner * groups + r) * s.inner + k % s.inner, &element);
        }
        store_index(eval, 1, r, firsts[ranked[r]]);
        store_index(eval, 3, r, 0);
        order[ranked[r]] = r; /* from here on: the place of a group */
    }
    for (size_t i = 0; i < s.size; i++) {
        store_index(eval, 2, i, order[group[i]]);
        if (leat_eval_output(eval, 3) != NULL) {
            ((int64_t *)leat_eval_out(eval, 3))[order[group[i]]]++;
        }
    }
    return LEAT_OK;
}

/* ---- NonMaxSuppression ---------------------------------------------------------------------------------------- */

size_t
leat_workspace_non_max_suppression(const struct leat_graph *graph, const struct leat_node *node)
{
    return 2 * (size_t)leat_node_input(graph, node, 0)->dims[1] * sizeof(size_t);
}

/* Higher scores first, then lower indices. */
static bool
score_before(const void *context, size_t a, size_t b)
{
    const float *scores = context;
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
}

/* Two opposite corners, or the centre and sizes, as intervals with rising ends. */
static void
interval(const float *box, uint32_t axis, bool centred, double *ret_low, double *ret_high)
{
    const double a = (double)box[axis], b = (double)box[axis + 2];
    const double low = centred ? a - b / 2 : a, high = centred ? a + b / 2 : b;
    *ret_low = low < high ? low : high;
    *ret_high = low < high ? high : low;
}

static double
overlap(const float *a, const float *b, bool centred)
{
    double common = 1, area_a = 1, area_b = 1;
    for (uint32_t axis = 0; axis < 2; axis++) {
        double low_a, high_a, low_b, high_b;
        interval(a, axis, centred, &low_a, &high_a);
        interval(b, axis, centred, &low_b, &high_b);
        const double length = fmin(high_a, high_b) - fmax(low_a, low_b);
        common *= length > 0 ? length : 0;
        area_a *= high_a - low_a;
        area_b *= high_b - low_b;
    }
    return common > 0 ? common / (area_a + area_b - common) : 0;
}

static double
threshold(const struct leat_eval *eval, uint32_t input, double otherwise)
{
    return leat_eval_input(eval, input) != NULL ? (double)*(const float *)leat_eval_in(eval, input)
                                                : otherwise;
}

LEAT_REFERENCE_FUNCTION(non_max_suppression)
{
    const struct leat_value *boxes = leat_eval_input(eval, 0), *scores = leat_eval_input(eval, 1);
    const bool centred = leat_node_int(eval->node, "center_point_box", 0) != 0;
    const size_t places = (size_t)boxes->dims[1], classes = (size_t)scores->dims[1];
    const size_t lists = (size_t)boxes->dims[0] * classes;
    const int64_t limit = leat_eval_scalar(eval, 2, 0);
    const size_t most = limit <= 0 ? 0 : limit < boxes->dims[1] ? (size_t)limit : places;
    const double iou = threshold(eval, 3, 0), least_score = threshold(eval, 4, (double)-INFINITY);
    int64_t *out = leat_eval_out(eval, 0), rows = 0;
    size_t *order = eval->workspace, *kept = order + places;

    for (size_t list = 0; list < lists; list++) {
        const float *score = (const float *)leat_eval_in(eval, 1) + list * places;
        const float *box = (const float *)leat_eval_in(eval, 0) + list / classes * places * 4;
        size_t candidates = 0, chosen = 0;
        for (size_t i = 0; i < places; i++) {
            if ((double)score[i] > least_score) { /* a NaN is no candidate: the order is strict */
                order[candidates++] = i;
            }
        }
        sort(order, candidates, score_before, score);
        for (size_t c = 0; c < candidates && chosen < most; c++) {
            bool apart = true;
            for (size_t k = 0; k < chosen && apart; k++) {
                apart = !(overlap(box + 4 * kept[k], box + 4 * order[c], centred) > iou);
            }
            if (apart) {
                kept[chosen++] = order[c];
                out[3 * rows] = (int64_t)(list / classes);
                out[3 * rows + 1] = (int64_t)(list % classes);
                out[3 * rows + 2] = (int64_t)order[c];
                rows++;
            }
        }
    }
    return leat_eval_set_dims(eval, 0, (const int64_t[]){rows, 3});
}
