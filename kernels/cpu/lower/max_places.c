/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MaxPool of floats with the places of what is greatest. A unit of work is a row of results, COLUMNS at a time: each element of the
 * window is compared with all of them. As in the reference function a NaN is beyond every number, and of equal ones the first counts.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/program.h"
#include "kernels/op.h"
#include "kernels/window.h"

enum { LANES = 4, COLUMNS = 64, SHARED_LEAST = 4096 /* results for each member of a team */ };
enum { DEPTH, HEIGHT, WIDTH };

typedef float vector __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t places __attribute__((vector_size(LANES * sizeof(int32_t))));

/* So far, and where; a place of -1: nothing yet. */
struct found {
    float best[COLUMNS];
    int32_t place[COLUMNS];
};

/* x[i * stride], whose place is `place` + i * stride, is what the results from `to` on see next. */
static inline void
see(struct found *found, size_t to, size_t count, const float *x, int32_t place, const size_t stride)
{
    size_t i = 0;

    for (; i + LANES <= count; i += LANES) {
        vector best, next;
        places so_far, at;
        const size_t from = i * stride;
        const int32_t first = place + (int32_t)from, step = (int32_t)stride;
        memcpy(&best, found->best + to + i, sizeof(best));
        memcpy(&so_far, found->place + to + i, sizeof(so_far));
        if (stride == 1) {
            memcpy(&next, x + from, sizeof(next));
        } else {
            next = (vector){x[from], x[from + stride], x[from + 2 * stride], x[from + 3 * stride]};
        }
        at = (places){first, first + step, first + 2 * step, first + 3 * step};
        const places take = (next > best) | ((best >= best) & ~(next >= next)) | (so_far < 0);
        best = (vector)((take & (places)next) | (~take & (places)best));
        so_far = (take & at) | (~take & so_far);
        memcpy(found->best + to + i, &best, sizeof(best));
        memcpy(found->place + to + i, &so_far, sizeof(so_far));
    }
    for (; i < count; i++) {
        const float next = x[i * stride], best = found->best[to + i];
        if (next > best || (!isnan(best) && isnan(next)) || found->place[to + i] < 0) {
            found->best[to + i] = next;
            found->place[to + i] = place + (int32_t)(i * stride);
        }
    }
}

/* The first result whose element at `offset` of the window is not before the input. */
static inline int64_t
first_inside(int64_t offset, int64_t stride)
{
    return offset >= 0 ? 0 : (-offset + stride - 1) / stride;
}

/* Results first..end of a row, in the row of the input at `row`, which begins at place `place`. */
static void
see_row(const struct leat_window *w, struct found *found, int64_t first, int64_t end, const float *row, int32_t place)
{
    const int64_t stride = w->stride[WIDTH];

    for (int64_t k = 0; k < w->kernel[WIDTH]; k++) {
        const int64_t offset = k * w->dilation[WIDTH] - w->pad_begin[WIDTH], inside = first_inside(offset, stride);
        const int64_t from = inside > first ? inside : first, behind = first_inside(offset - w->in[WIDTH], stride);
        const int64_t to = behind < end ? behind : end, at = from * stride + offset;
        if (from >= to) {
            continue;
        }
        if (stride == 1) {
            see(found, (size_t)(from - first), (size_t)(to - from), row + at, place + (int32_t)at, 1);
        } else if (stride == 2) {
            see(found, (size_t)(from - first), (size_t)(to - from), row + at, place + (int32_t)at, 2);
        } else {
            see(found, (size_t)(from - first), (size_t)(to - from), row + at, place + (int32_t)at, (size_t)stride);
        }
    }
}

/* args: x, y, places. */
static void
pool_rows(const struct cpu_call *call, size_t begin, size_t end)
{
    struct leat_window w;
    struct found found;

    LEAT_MUST(leat_window_of(call->program->graph, call->step->node, &w) == LEAT_OK);
    const int64_t in_plane = w.in[DEPTH] * w.in[HEIGHT] * w.in[WIDTH], width = w.out[WIDTH];
    for (size_t u = begin; u < end; u++) {
        const int64_t row = (int64_t)u % w.out[HEIGHT], slice = (int64_t)u / w.out[HEIGHT] % w.out[DEPTH];
        const int64_t first = (int64_t)u / w.out[HEIGHT] / w.out[DEPTH] * in_plane;
        const float *x = (const float *)call->pointers[0] + first;
        float *y = (float *)call->pointers[1] + (int64_t)u * width;
        int64_t *place = (int64_t *)call->pointers[2] + (int64_t)u * width;
        for (int64_t c = 0; c < width; c += COLUMNS) {
            const int64_t some = width - c < COLUMNS ? width - c : COLUMNS;
            for (int64_t i = 0; i < some; i++) {
                found.best[i] = -INFINITY;
                found.place[i] = -1;
            }
            for (int64_t d = 0; d < w.kernel[DEPTH]; d++) {
                const int64_t z = slice * w.stride[DEPTH] - w.pad_begin[DEPTH] + d * w.dilation[DEPTH];
                for (int64_t h = 0; h < w.kernel[HEIGHT] && z >= 0 && z < w.in[DEPTH]; h++) {
                    const int64_t line = row * w.stride[HEIGHT] - w.pad_begin[HEIGHT] + h * w.dilation[HEIGHT];
                    const int64_t at = (z * w.in[HEIGHT] + line) * w.in[WIDTH];
                    if (line >= 0 && line < w.in[HEIGHT]) {
                        see_row(&w, &found, c, c + some, x + at, (int32_t)at);
                    }
                }
            }
            memcpy(y + c, found.best, (size_t)some * sizeof(*y));
            for (int64_t i = 0; i < some; i++) { /* in the padding alone nothing is found */
                place[c + i] = first + (found.place[i] < 0 ? 0 : found.place[i]);
            }
        }
    }
}

static enum leat_status
pool(const struct cpu_call *call)
{
    cpu_share(call, pool_rows, call->step->count, 1 + SHARED_LEAST / call->step->inner);
    return LEAT_OK;
}

enum leat_status
cpu_lower_max_places(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0);
    struct cpu_arg args[3] = {{0, 0}};
    struct leat_window w;
    struct cpu_step *step;

    enum leat_status status = leat_window_of(b->graph, b->node, &w);
    if (status != LEAT_OK) {
        return status;
    }
    if (x->dtype != LEAT_DTYPE_F32 || leat_node_int(b->node, "storage_order", 0) != 0 ||
        w.in[DEPTH] * w.in[HEIGHT] * w.in[WIDTH] > INT32_MAX || w.stride[WIDTH] > INT32_MAX) {
        return LEAT_AGAIN;
    }
    status = cpu_plain(b, b->node->inputs[0], &args[0].tensor);
    for (uint32_t o = 0; o < 2 && status == LEAT_OK; o++) {
        status = cpu_plain_output(b, o, &args[1 + o].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, pool, args, 3, &step);
    }
    if (status == LEAT_OK) {
        step->inner = (size_t)w.out[WIDTH];
        step->count = leat_value_elements(leat_node_output(b->graph, b->node, 0)) / step->inner;
    }
    return status;
}
