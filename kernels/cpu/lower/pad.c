/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pad in all its modes, with or without axes from which elements are taken away, of plain tensors and of feature maps as oneDNN's
 * convolutions leave them. Where along each axis the elements of the result come from is a table that is made with the plan; a
 * row, along the last axis that is padded, is neighbours of the operand with something else on either side.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"

enum { SHARED_LEAST = 16 << 10 /* bytes for each member of a team */, OUTSIDE = -1 };

/* ---- The step --------------------------------------------------------------------------------------- */

/* What a constant Pad puts around its operand: an element, as it lies in memory. */
static void
fill_of(const struct cpu_call *call, unsigned char fill[8])
{
    const struct leat_node *node = call->step->node;
    const struct leat_value *value = leat_node_input(call->program->graph, node, 2);
    const uint32_t dtype = leat_node_input(call->program->graph, node, 0)->dtype;
    const float number = leat_node_float(node, "value", 0);
    const double wide = (double)number;

    memset(fill, 0, 8);
    if (value != NULL) {
        memcpy(fill, call->pointers[3], leat_dtype_bytes(dtype));
    } else if (dtype == LEAT_DTYPE_F32) {
        memcpy(fill, &number, sizeof(number));
    } else if (dtype == LEAT_DTYPE_F64) {
        memcpy(fill, &wide, sizeof(wide));
    }
}

static void
fill_elements(unsigned char *out, size_t count, size_t size, const unsigned char fill[8])
{
    switch (size) {
    case 1:
        memset(out, fill[0], count);
        break;
    case 4:
        for (size_t i = 0; i < count; i++) {
            memcpy(out + i * 4, fill, 4);
        }
        break;
    case 8:
        for (size_t i = 0; i < count; i++) {
            memcpy(out + i * 8, fill, 8);
        }
        break;
    default:
        for (size_t i = 0; i < count; i++) {
            memcpy(out + i * size, fill, size);
        }
    }
}

/* Blocks begin to end of a row, one by one. */
static void
write_border(const struct cpu_step *step, unsigned char *out, const unsigned char *in, const int32_t *from, size_t begin,
             size_t end, size_t size, const unsigned char fill[8])
{
    const size_t bytes = step->element_bytes;

    for (size_t i = begin; i < end; i++) {
        if (from[i] == OUTSIDE) {
            fill_elements(out + i * bytes, bytes / size, size, fill);
        } else if (bytes == sizeof(float)) {
            memcpy(out + i * sizeof(float), in + (size_t)from[i] * sizeof(float), sizeof(float));
        } else {
            memcpy(out + i * bytes, in + (size_t)from[i] * bytes, bytes);
        }
    }
}

static void
pad_rows(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const uint32_t last = step->rank - 1;
    const size_t size = leat_dtype_bytes(leat_node_input(call->program->graph, step->node, 0)->dtype);
    const size_t width = (size_t)step->dims[last], bytes = step->element_bytes, middle = step->outer + step->inner;
    const int32_t *table = call->pointers[2], *axes[LEAT_RANK_MAX];
    unsigned char *out = (unsigned char *)call->pointers[1] + begin * width * bytes, fill[8];
    int64_t at[LEAT_RANK_MAX];

    fill_of(call, fill);
    for (uint32_t d = 0; d < step->rank; d++) {
        axes[d] = table;
        table += step->dims[d];
    }
    for (size_t d = last, row = begin; d-- > 0; row /= (size_t)step->dims[d]) {
        at[d] = (int64_t)(row % (size_t)step->dims[d]);
    }
    for (size_t row = begin; row < end; row++, out += width * bytes) {
        const unsigned char *in = call->pointers[0];
        bool inside = true;
        for (uint32_t d = 0; d < last; d++) {
            const int32_t from = axes[d][at[d]];
            inside = inside && from != OUTSIDE;
            in += inside ? (size_t)from * (size_t)step->strides[d] : 0;
        }
        if (!inside) {
            fill_elements(out, width * bytes / size, size, fill);
        } else {
            write_border(step, out, in, axes[last], 0, step->outer, size, fill);
            if (step->inner > 0) {
                memcpy(out + step->outer * bytes, in + (size_t)axes[last][step->outer] * bytes, step->inner * bytes);
            }
            write_border(step, out, in, axes[last], middle, width, size, fill);
        }
        for (uint32_t d = last; d-- > 0 && ++at[d] == step->dims[d];) {
            at[d] = 0;
        }
    }
}

/*
 * args: operand, result, where its elements come from, and the value where it is an input. Axes of the result, with bytes between
 * neighbours in the operand. count: rows; a row has `outer` blocks before `inner` neighbours of the operand.
 */
static enum leat_status
pad(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    const size_t row = (size_t)step->dims[step->rank - 1] * step->element_bytes;

    cpu_share(call, pad_rows, step->count, SHARED_LEAST / row + 1);
    return LEAT_OK;
}

/* ---- Lowering --------------------------------------------------------------------------------------- */

/* Where element i comes from along an axis of `size`, which gets `begin` and `end`; OUTSIDE: it is the constant. */
static int32_t
place_of(const char *mode, int64_t i, int64_t size, int64_t begin, int64_t end)
{
    const int64_t last = size - 1, start = begin < 0 ? -begin : 0, place = i - begin;
    int64_t at = place;

    if (strcmp(mode, "reflect") == 0) {
        at = place < 0 ? -place : place > last ? 2 * last - place : place;
    } else if (strcmp(mode, "edge") == 0) {
        at = place < 0 ? 0 : place > last ? last : place;
    } else if (strcmp(mode, "wrap") == 0) { /* what is left after elements were taken away */
        const int64_t kept = size - start + (end < 0 ? end : 0), turn = (place - start) % kept;
        at = start + turn + (turn < 0 ? kept : 0);
    }
    return at >= 0 && at < size ? (int32_t)at : OUTSIDE;
}

/* Of all axes, one after the other. */
static enum leat_status
add_table(struct cpu_builder *b, const struct cpu_step *shape, const struct cpu_axes *axes, const struct leat_pads *pads,
          uint32_t *ret_tensor)
{
    const struct leat_attribute *mode = leat_node_attribute(b->node, "mode");
    size_t count = 0;

    for (uint32_t d = 0; d < shape->rank; d++) {
        count += (size_t)shape->dims[d];
    }
    enum leat_status status = cpu_model_may_take(b->model, count * sizeof(int32_t));
    int32_t *table = status == LEAT_OK ? malloc(count * sizeof(*table)) : NULL, *next = table;
    if (table == NULL) {
        return status != LEAT_OK ? status : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    for (uint32_t d = 0; d < shape->rank; d++) {
        const int64_t begin = pads->begin[axes->of[d]], end = pads->end[axes->of[d]];
        for (int64_t i = 0; i < shape->dims[d]; i++) {
            *next++ = place_of(mode != NULL ? mode->s : "", i, axes->dims[d], begin, end);
        }
    }
    status = cpu_private_words(b, table, count, ret_tensor);
    free(table);
    return status;
}

/* The result's axes up to the last one that is padded, in which blocks are what the others have. */
static void
describe_rows(const struct cpu_axes *x, const struct cpu_axes *y, const struct leat_pads *pads, size_t size, struct cpu_step *ret)
{
    size_t bytes = size, rows = 1;

    ret->rank = y->rank;
    while (ret->rank > 1 && pads->begin[y->of[ret->rank - 1]] == 0 && pads->end[y->of[ret->rank - 1]] == 0) {
        bytes *= (size_t)y->dims[--ret->rank];
    }
    const uint32_t last = ret->rank - 1;
    ret->element_bytes = bytes;
    for (uint32_t d = ret->rank; d-- > 0; bytes *= (size_t)x->dims[d]) {
        ret->dims[d] = y->dims[d];
        ret->strides[d] = (int64_t)bytes;
        rows *= d < last ? (size_t)y->dims[d] : 1;
    }
    ret->count = rows;
    const int64_t begin = pads->begin[y->of[last]], first = begin > 0 ? begin : 0;
    const int64_t behind = begin + x->dims[last] < y->dims[last] ? begin + x->dims[last] : y->dims[last];
    ret->outer = (size_t)(first < y->dims[last] ? first : y->dims[last]);
    ret->inner = behind > first ? (size_t)(behind - first) : 0;
}

enum leat_status
cpu_lower_pad(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *y = leat_node_output(b->graph, b->node, 0);
    const bool has_value = leat_node_input(b->graph, b->node, 2) != NULL;
    const bool attributed = !has_value && leat_node_float(b->node, "value", 0) != 0; /* which fill_of() makes floats of */
    struct cpu_arg args[4] = {{0, 0}};
    struct cpu_step *step, rows = {.rank = 0};
    enum cpu_form form = CPU_PLAIN;
    struct cpu_axes from, to;
    struct leat_pads pads;
    bool known = false;

    if (x->rank == 0 || leat_value_elements(x) == 0 || leat_value_elements(y) == 0 ||
        (attributed && x->dtype != LEAT_DTYPE_F32 && x->dtype != LEAT_DTYPE_F64)) {
        return LEAT_AGAIN;
    }
    enum leat_status status = leat_pads_of(b->graph, b->node, &pads, &known);
    if (status != LEAT_OK || !known) {
        return status != LEAT_OK ? status : LEAT_AGAIN;
    }
    status = x->rank == 4 && pads.begin[1] == 0 && pads.end[1] == 0 ? cpu_in_form(b, b->node->inputs[0], &args[0].tensor, &form)
                                                                   : cpu_plain(b, b->node->inputs[0], &args[0].tensor);
    if (status != LEAT_OK) {
        return status;
    }
    cpu_axes_of(form, x, &from);
    cpu_axes_of(form, y, &to);
    describe_rows(&from, &to, &pads, leat_dtype_bytes(x->dtype), &rows);
    status = cpu_output_in_form(b, form, &args[1].tensor);
    if (status == LEAT_OK) {
        status = add_table(b, &rows, &from, &pads, &args[2].tensor);
    }
    if (status == LEAT_OK && has_value) {
        status = cpu_plain(b, b->node->inputs[2], &args[3].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, pad, args, has_value ? 4 : 3, &step);
    }
    if (status == LEAT_OK) {
        step->rank = rows.rank;
        step->outer = rows.outer;
        step->inner = rows.inner;
        step->count = rows.count;
        step->element_bytes = rows.element_bytes;
        memcpy(step->dims, rows.dims, sizeof(step->dims));
        memcpy(step->strides, rows.strides, sizeof(step->strides));
    }
    return status;
}
