/* SPDX-License-Identifier: Apache-2.0 */
/* Triangles, elements by index, and what is one place of many: Trilu, GatherElements, OneHot. */
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"
#include "kernels/payload.h"

enum { SHARED_LEAST = 16 << 10 /* bytes for each member of a team */ };

/* Input and output as they lie, behind one another, and the step between them. */
static enum leat_status
add_step(struct cpu_builder *b, enum leat_status (*kernel)(const struct cpu_call *call), const uint32_t *inputs, uint32_t count,
         struct cpu_step **ret_step)
{
    struct cpu_arg args[3] = {{0, 0}};
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        status = cpu_plain(b, inputs[i], &args[i].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[count].tensor);
    }
    return status == LEAT_OK ? cpu_add_kernel(b, kernel, args, count + 1, ret_step) : status;
}

/* ---- Trilu ------------------------------------------------------------------------------------------ */

/* args: x, y. count: rows of dims[1] elements, dims[0] to a matrix; the diagonal is strides[0] right of the main one. */
static void
cut_rows(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const bool upper = leat_node_int(step->node, "upper", 1) != 0;
    const int64_t width = step->dims[1];
    const size_t size = step->element_bytes, bytes = (size_t)width * size;

    for (size_t row = begin; row < end; row++) {
        const int64_t diagonal = (int64_t)(row % (size_t)step->dims[0]) + step->strides[0] + (upper ? 0 : 1);
        const size_t cut = (size_t)(diagonal < 0 ? 0 : diagonal < width ? diagonal : width) * size;
        const unsigned char *x = (const unsigned char *)call->pointers[0] + row * bytes;
        unsigned char *y = (unsigned char *)call->pointers[1] + row * bytes;
        if (upper) {
            memset(y, 0, cut);
            memcpy(y + cut, x + cut, bytes - cut);
        } else {
            memcpy(y, x, cut);
            memset(y + cut, 0, bytes - cut);
        }
    }
}

static enum leat_status
cut(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    cpu_share(call, cut_rows, step->count, 1 + SHARED_LEAST / ((size_t)step->dims[1] * step->element_bytes));
    return LEAT_OK;
}

enum leat_status
cpu_lower_trilu(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *k = leat_node_input(b->graph, b->node, 1);
    struct cpu_step *step;
    double right = 0;

    if (leat_value_elements(x) == 0 || (k != NULL && !leat_value_scalar(k, &right))) {
        return LEAT_AGAIN;
    }
    const enum leat_status status = add_step(b, cut, b->node->inputs, 1, &step);
    if (status == LEAT_OK) {
        const double most = (double)LEAT_DIM_MAX;
        step->dims[0] = x->dims[x->rank - 2];
        step->dims[1] = x->dims[x->rank - 1];
        step->strides[0] = (int64_t)(right > most ? most : right < -most ? -most : right);
        step->element_bytes = leat_dtype_bytes(x->dtype);
        step->count = leat_value_elements(x) / (size_t)step->dims[1];
    }
    return status;
}

/* ---- GatherElements --------------------------------------------------------------------------------- */

/* As in a look-up: read once, and what was read is checked. */
static inline bool
place_at(const void *indices, bool wide, size_t i, int64_t size, size_t *ret)
{
    const int64_t index = wide ? leat_payload_i64(indices, i) : leat_payload_i32(indices, i);

    *ret = (size_t)(index < 0 ? index + size : index);
    return index >= -size && index < size;
}

/* Of a row of results: the element of x at `from` + what the index says + what the place in the row says. `bytes` is a constant. */
static inline bool
gather_row(const struct cpu_call *call, size_t first, size_t from, const size_t bytes)
{
    const struct cpu_step *step = call->step;
    const size_t width = (size_t)step->dims[step->rank - 1], along = (size_t)step->strides[step->outer];
    const size_t beside = step->outer + 1 == step->rank ? 0 : 1;
    const unsigned char *x = call->pointers[0];
    unsigned char *y = (unsigned char *)call->pointers[2] + first * bytes;
    const bool wide = step->element_bytes == sizeof(int64_t);
    bool good = true;

    for (size_t j = 0; j < width && good; j++) {
        size_t place;
        good = place_at(call->pointers[1], wide, first + j, (int64_t)step->inner, &place);
        if (good) {
            memcpy(y + j * bytes, x + (from + j * beside + place * along) * bytes, bytes);
        }
    }
    return good;
}

/*
 * args: x, indices, y. dims: of the indices; strides: of x, in elements. outer: the axis, of `inner` elements in x; count: rows;
 * element_bytes: of an index.
 */
static bool
gather_rows(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t size = leat_dtype_bytes(leat_node_output(call->program->graph, step->node, 0)->dtype);
    bool good = true;

    for (size_t row = begin; row < end && good; row++) {
        size_t from = 0, rest = row;
        for (uint32_t d = step->rank - 1; d-- > 0; rest /= (size_t)step->dims[d]) {
            from += d == step->outer ? 0 : rest % (size_t)step->dims[d] * (size_t)step->strides[d];
        }
        const size_t first = row * (size_t)step->dims[step->rank - 1];
        good = size == 4   ? gather_row(call, first, from, 4)
               : size == 8 ? gather_row(call, first, from, 8)
                           : gather_row(call, first, from, size);
    }
    return good;
}

static enum leat_status
gather_elements(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    const size_t row = (size_t)step->dims[step->rank - 1] * sizeof(int64_t);

    if (!cpu_share_checked(call, gather_rows, step->count, 1 + SHARED_LEAST / row)) {
        return LEAT_NODE_FAIL(step->node, LEAT_ERR_SHAPE, "an index is outside of %zu elements", step->inner);
    }
    return LEAT_OK;
}

enum leat_status
cpu_lower_gather_elements(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *indices = leat_node_input(b->graph, b->node, 1);
    struct cpu_step *step;

    if (x->rank == 0 || leat_value_elements(indices) == 0) {
        return LEAT_AGAIN;
    }
    const enum leat_status status = add_step(b, gather_elements, b->node->inputs, 2, &step);
    if (status == LEAT_OK) {
        int64_t stride = 1;
        step->rank = x->rank;
        for (uint32_t d = x->rank; d-- > 0; stride *= x->dims[d]) {
            step->dims[d] = indices->dims[d];
            step->strides[d] = stride;
        }
        step->outer = (size_t)leat_node_axis(b->node, 0, x->rank);
        step->inner = (size_t)x->dims[step->outer];
        step->count = leat_value_elements(indices) / (size_t)indices->dims[x->rank - 1];
        step->element_bytes = leat_dtype_bytes(indices->dtype);
    }
    return status;
}

/* ---- OneHot ----------------------------------------------------------------------------------------- */

/* `count` elements like the one at `value`; `bytes` is a constant. */
static inline void
fill(unsigned char *to, size_t count, const unsigned char *value, const size_t bytes)
{
    unsigned char element[sizeof(int64_t)];

    memcpy(element, value, bytes);
    for (size_t i = 0; i < count; i++) {
        memcpy(to + i * bytes, element, bytes);
    }
}

/* args: indices, the values off and on, y: [outer][count][inner], of elements of 4 or 8 bytes. An index outside has none that is on. */
static void
heat(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t size = leat_dtype_bytes(leat_node_output(call->program->graph, step->node, 0)->dtype), depth = step->count;
    const unsigned char *values = call->pointers[1];
    const bool wide = step->element_bytes == sizeof(int64_t);

    for (size_t o = begin; o < end; o++) {
        unsigned char *y = (unsigned char *)call->pointers[2] + o * depth * step->inner * size;
        if (size == 4) {
            fill(y, depth * step->inner, values, 4);
        } else {
            fill(y, depth * step->inner, values, 8);
        }
        for (size_t i = 0; i < step->inner; i++) {
            size_t place;
            if (place_at(call->pointers[0], wide, o * step->inner + i, (int64_t)depth, &place)) {
                memcpy(y + (place * step->inner + i) * size, values + size, size);
            }
        }
    }
}

static enum leat_status
one_hot(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    cpu_share(call, heat, step->outer, 1 + SHARED_LEAST / (step->count * step->inner * sizeof(float)));
    return LEAT_OK;
}

enum leat_status
cpu_lower_one_hot(struct cpu_builder *b)
{
    const struct leat_value *indices = leat_node_input(b->graph, b->node, 0), *y = leat_node_output(b->graph, b->node, 0);
    const size_t size = leat_dtype_bytes(y->dtype);
    struct cpu_step *step;

    if ((indices->dtype != LEAT_DTYPE_I32 && indices->dtype != LEAT_DTYPE_I64) || (size != 4 && size != 8) ||
        leat_value_elements(y) == 0) {
        return LEAT_AGAIN;
    }
    const enum leat_status status =
        add_step(b, one_hot, (const uint32_t[]){b->node->inputs[0], b->node->inputs[2]}, 2, &step);
    if (status == LEAT_OK) {
        const uint32_t axis = (uint32_t)leat_node_axis(b->node, -1, y->rank);
        step->inner = 1;
        for (uint32_t d = axis + 1; d < y->rank; d++) {
            step->inner *= (size_t)y->dims[d];
        }
        step->count = (size_t)y->dims[axis];
        step->outer = leat_value_elements(y) / (step->count * step->inner);
        step->element_bytes = leat_dtype_bytes(indices->dtype);
    }
    return status;
}
