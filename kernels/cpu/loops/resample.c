/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resize and Upsample of floats, all modes, of plain tensors and of feature maps as oneDNN's convolutions leave them. Up to three
 * neighbouring axes change: the last of them is gone along first, each row of the operand once while results ask for it, then rows
 * are added up. Which places go into which, and with which weights, is in tables that are made with the plan.
 */
#include "kernels/cpu/loops/resample.h"

#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/program.h"
#include "kernels/resize.h"
#include "kernels/team.h"

enum { DEPTH, HEIGHT, WIDTH, AXES /* that change; any but the last may be of one place */ };
enum {
    TAPS = LEAT_RESIZE_TAPS_MAX,
    SLOTS = TAPS * TAPS,     /* rows that one of the result is made of, TAPS of each place along the first axis */
    SHARED_LEAST = 16 << 10, /* floats of the result for each member of a team */
};

/* Along an axis that is not the last: what goes into one place, weights other than 0. In tables as 32-bit words. */
struct mix {
    int32_t count, index[TAPS];
    float weight[TAPS];
};

enum { MIX_WORDS = sizeof(struct mix) / sizeof(int32_t) };

/* ---- The step --------------------------------------------------------------------------------------- */

/* One member's part of it. */
struct resampling {
    const struct cpu_step *step;
    struct cpu_resample across;
    const struct mix *depth, *height;
    size_t in_floats, out_floats; /* of a row */
    const float *at[SLOTS];       /* rows that are there already, as long as they are to be, */
    int64_t holds[SLOTS];         /* and which they are; -1: none */
    float *own;                   /* [SLOTS][out_floats] */
};

static size_t
table_width(int64_t width)
{
    return (size_t)leat_round_up((uint64_t)width, CPU_RESAMPLE_LANES);
}

static void
resample_row(const struct resampling *r, int64_t row, const float *x, float *to)
{
    const float *from = x + (size_t)row * r->in_floats;

    if (cpu_has_avx512()) {
        cpu_resample_row_avx512(&r->across, from, to);
    } else {
        cpu_resample_row_avx2(&r->across, from, to);
    }
}

/* Row `row` of all, as long as it is to be; `to`: where it goes if it is not there yet. */
static const float *
row_at(struct resampling *r, int64_t row, size_t slot, const float *x, float *to)
{
    if (r->holds[slot] != row) {
        resample_row(r, row, x, to);
        r->holds[slot] = row;
        r->at[slot] = to;
    }
    return r->at[slot];
}

/* Row `out` of the results, of place `z` and `y` in its tensor. */
static void
make_row(struct resampling *r, int64_t tensor, const struct mix *z, const struct mix *y, const float *x, float *out)
{
    const int64_t depth = r->step->dims[DEPTH], height = r->step->dims[HEIGHT];
    const bool alone = z->count == 1 && y->count == 1 && z->weight[0] == 1 && y->weight[0] == 1;
    const float *rows[SLOTS];
    float weights[SLOTS];
    size_t count = 0;

    for (int32_t a = 0; a < z->count; a++) {
        for (int32_t b = 0; b < y->count; b++) {
            const int64_t row = (tensor * depth + z->index[a]) * height + y->index[b];
            const size_t slot = (size_t)(z->index[a] % TAPS * TAPS + y->index[b] % TAPS);
            rows[count] = row_at(r, row, slot, x, alone ? out : r->own + slot * r->out_floats);
            weights[count++] = z->weight[a] * y->weight[b];
        }
    }
    if (alone && rows[0] != out) {
        memcpy(out, rows[0], r->out_floats * sizeof(*out));
    } else if (!alone && count == 0) { /* all weights are 0 */
        memset(out, 0, r->out_floats * sizeof(*out));
    } else if (!alone && cpu_has_avx512()) {
        cpu_mix_rows_avx512(rows, weights, count, r->out_floats, out);
    } else if (!alone) {
        cpu_mix_rows_avx2(rows, weights, count, r->out_floats, out);
    }
}

/* Of one member: none where rows of the result are made of one each. */
static size_t
own_rows(const struct cpu_step *step)
{
    return step->rank == AXES ? SLOTS : step->rank > 1 ? TAPS : 0;
}

struct sharing {
    const struct cpu_call *call;
    size_t rows, members;
};

static void
resample_part(void *context, uint32_t member, uint32_t size)
{
    const struct sharing *s = context;
    const struct cpu_step *step = s->call->step;
    const int64_t *to = step->strides;
    const size_t width = table_width(to[WIDTH]), row_floats = (size_t)to[WIDTH] * step->inner;
    const float *x = s->call->pointers[0];
    float *y = s->call->pointers[1];
    const int32_t *tables = s->call->pointers[2];
    const void *mixes = tables + 2 * step->count * width;
    struct resampling r = {
        .step = step,
        .across = {(size_t)step->dims[WIDTH], (size_t)to[WIDTH], width, step->inner, step->count, tables,
                   (const float *)s->call->pointers[2] + step->count * width},
        .depth = mixes,
        .height = (const struct mix *)mixes + to[DEPTH],
        .in_floats = (size_t)step->dims[WIDTH] * step->inner,
        .out_floats = row_floats,
        .own = (float *)s->call->pointers[3] + member * own_rows(step) * row_floats,
    };

    (void)size;
    if (member >= s->members) {
        return;
    }
    memset(r.holds, 0xff, sizeof(r.holds)); /* -1 */
    const size_t begin = s->rows * member / s->members, end = s->rows * (member + 1) / s->members;
    int64_t line = (int64_t)begin % to[HEIGHT], plane = (int64_t)begin / to[HEIGHT] % to[DEPTH];
    int64_t tensor = (int64_t)begin / to[HEIGHT] / to[DEPTH];
    for (size_t row = begin; row < end; row++) {
        make_row(&r, tensor, &r.depth[plane], &r.height[line], x, y + row * row_floats);
        if (++line == to[HEIGHT]) {
            line = 0;
            tensor += ++plane == to[DEPTH];
            plane = plane < to[DEPTH] ? plane : 0;
        }
    }
}

/*
 * args: operand, result, tables, and rows of each member. rank: axes that change, and those between them. outer: tensors of
 * dims[0..2] that become strides[0..2]; inner: floats of a pixel; count: taps along the last axis. Tables: [count] indices and
 * [count] weights along the last axis, in whole vectors, then a mix for each place of the other two.
 */
static enum leat_status
resample(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    const size_t rows = step->outer * (size_t)(step->strides[DEPTH] * step->strides[HEIGHT]);
    const size_t most = rows * (size_t)step->strides[WIDTH] * step->inner / SHARED_LEAST, threads = call->program->threads;
    struct sharing s = {.call = call, .rows = rows, .members = most < 1 ? 1 : most < threads ? most : threads};

    if (s.members > 1) {
        leat_team_run(call->team, resample_part, &s);
    } else {
        resample_part(&s, 0, 1);
    }
    return LEAT_OK;
}

/* args: operand, result. count: rows of the operand, of `inner` pixels of one float: each becomes four. */
static void
double_rows(const struct cpu_call *call, size_t begin, size_t end)
{
    const size_t width = call->step->inner;
    const float *x = call->pointers[0];
    float *y = call->pointers[1];

    for (size_t row = begin; row < end; row++) {
        float *to = y + 4 * row * width;
        if (cpu_has_avx512()) {
            cpu_double_row_avx512(x + row * width, width, to, to + 2 * width);
        } else {
            cpu_double_row_avx2(x + row * width, width, to, to + 2 * width);
        }
    }
}

static enum leat_status
double_pixels(const struct cpu_call *call)
{
    cpu_share(call, double_rows, call->step->count, 1 + SHARED_LEAST / (4 * call->step->inner));
    return LEAT_OK;
}

/* ---- Tables ----------------------------------------------------------------------------------------- */

/* Each element of the result's axis is the operand's there. */
static bool
stays(const struct leat_resize *resize, const struct leat_value *x, const struct leat_value *y, uint32_t d)
{
    bool same = x->dims[d] == y->dims[d];

    for (int64_t i = 0; i < y->dims[d] && same; i++) {
        struct leat_resize_taps taps;
        double weight = 0;
        leat_resize_taps(resize, x, NULL, d, i, &taps);
        for (uint32_t t = 0; t < taps.count; t++) {
            weight += taps.index[t] == (size_t)i ? taps.weight[t] : 0;
            same = same && (taps.index[t] == (size_t)i || taps.weight[t] == 0);
        }
        same = same && weight == 1;
    }
    return same;
}

/* Each element of the operand's axis is there twice, in its order. */
static bool
doubles(const struct leat_resize *resize, const struct leat_value *x, const struct leat_value *y, uint32_t d)
{
    bool twice = y->dims[d] == 2 * x->dims[d];

    for (int64_t i = 0; i < y->dims[d] && twice; i++) {
        struct leat_resize_taps taps;
        leat_resize_taps(resize, x, NULL, d, i, &taps);
        twice = taps.count == 1 && taps.index[0] == (size_t)i / 2 && taps.weight[0] == 1;
    }
    return twice;
}

/* What has weight 0 is none. */
static struct mix
mix_of(const struct leat_resize_taps *taps)
{
    struct mix mix = {.count = 0};

    for (uint32_t t = 0; t < taps->count; t++) {
        if (taps->weight[t] != 0) {
            mix.index[mix.count] = (int32_t)taps->index[t];
            mix.weight[mix.count++] = (float)taps->weight[t];
        }
    }
    return mix;
}

/* The value's axis that axis a of the step is; LEAT_VALUE_NONE: of one place. */
struct changing {
    uint32_t axes[AXES];
};

static enum leat_status
add_tables(struct cpu_builder *b, const struct leat_resize *resize, const struct changing *changing, const struct cpu_step *step,
           uint32_t *ret_tensor)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0);
    const size_t width = table_width(step->strides[WIDTH]);
    const size_t words = 2 * step->count * width + (size_t)(step->strides[DEPTH] + step->strides[HEIGHT]) * MIX_WORDS;
    struct leat_resize_taps taps = {.count = 0};

    enum leat_status status = cpu_model_may_take(b->model, words * sizeof(int32_t));
    int32_t *tables = status == LEAT_OK ? calloc(words, sizeof(*tables)) : NULL;
    if (tables == NULL) {
        return status != LEAT_OK ? status : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    for (size_t i = 0; i < width; i++) {
        if (i < (size_t)step->strides[WIDTH]) { /* else as the last one */
            leat_resize_taps(resize, x, NULL, changing->axes[WIDTH], (int64_t)i, &taps);
        }
        for (size_t t = 0; t < step->count; t++) {
            const float weight = (float)taps.weight[t];
            tables[t * width + i] = (int32_t)taps.index[t];
            memcpy(&tables[(step->count + t) * width + i], &weight, sizeof(weight));
        }
    }
    int32_t *next = tables + 2 * step->count * width;
    for (uint32_t a = DEPTH; a <= HEIGHT; a++) {
        for (int64_t i = 0; i < step->strides[a]; i++, next += MIX_WORDS) {
            struct mix mix = {.count = 1, .weight = {1}};
            if (changing->axes[a] != LEAT_VALUE_NONE) {
                leat_resize_taps(resize, x, NULL, changing->axes[a], i, &taps);
                mix = mix_of(&taps);
            }
            memcpy(next, &mix, sizeof(mix));
        }
    }
    status = cpu_private_words(b, tables, words, ret_tensor);
    free(tables);
    return status;
}

/* ---- Lowering --------------------------------------------------------------------------------------- */

/* Axes of the tensors that change, with those between them; false where there are none, or more than AXES. */
static bool
describe(const struct leat_resize *resize, const struct leat_value *x, const struct leat_value *y, const struct cpu_axes *from,
         const struct cpu_axes *to, struct changing *ret_changing, struct cpu_step *ret)
{
    uint32_t first = UINT32_MAX, last = 0;

    for (uint32_t d = 0; d < from->rank; d++) {
        if (!stays(resize, x, y, from->of[d])) {
            first = first < d ? first : d;
            last = d;
        }
    }
    if (first == UINT32_MAX || last - first >= AXES) {
        return false;
    }
    ret->rank = last - first + 1;
    ret->outer = ret->inner = 1;
    for (uint32_t a = 0; a < AXES; a++) {
        ret_changing->axes[a] = LEAT_VALUE_NONE;
        ret->dims[a] = ret->strides[a] = 1;
    }
    for (uint32_t d = 0; d < from->rank; d++) {
        const uint32_t a = d + WIDTH - last;
        if (d < first) {
            ret->outer *= (size_t)from->dims[d];
        } else if (d > last) {
            ret->inner *= (size_t)from->dims[d];
        } else {
            ret_changing->axes[a] = from->of[d];
            ret->dims[a] = from->dims[d];
            ret->strides[a] = to->dims[d];
        }
    }
    ret->count = resize->mode == LEAT_RESIZE_NEAREST ? 1 : resize->mode == LEAT_RESIZE_LINEAR ? 2 : 4;
    return true;
}

static enum leat_status
lower_doubling(struct cpu_builder *b, enum cpu_form form, struct cpu_arg *args, const struct cpu_step *shape)
{
    struct cpu_step *step;

    enum leat_status status = cpu_output_in_form(b, form, &args[1].tensor);
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, double_pixels, args, 2, &step);
    }
    if (status == LEAT_OK) {
        step->inner = (size_t)shape->dims[WIDTH];
        step->count = shape->outer * (size_t)shape->dims[HEIGHT];
    }
    return status;
}

enum leat_status
cpu_lower_resample(struct cpu_builder *b, const struct leat_resize *resize)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *y = leat_node_output(b->graph, b->node, 0);
    const dnnl_memory_desc_t none = {.ndims = 0};
    struct cpu_arg args[4] = {{0, 0}};
    struct cpu_step *step, shape = {.rank = 0};
    struct changing changing;
    struct cpu_axes from, to;
    enum cpu_form form;

    if (cpu_vector_lanes() == 0 || leat_value_elements(x) == 0 || resize->place == LEAT_PLACE_TF_CROP_AND_RESIZE) {
        return LEAT_AGAIN;
    }
    uint32_t d = 0;
    while (d < x->rank && stays(resize, x, y, d)) {
        d++;
    }
    if (d == x->rank) {
        return cpu_lower_view(b);
    }
    enum leat_status status = cpu_in_form(b, b->node->inputs[0], &args[0].tensor, &form);
    if (status == LEAT_OK && form != CPU_PLAIN && !stays(resize, x, y, 1)) {
        form = CPU_PLAIN;
        status = cpu_plain(b, b->node->inputs[0], &args[0].tensor);
    }
    if (status != LEAT_OK) {
        return status;
    }
    cpu_axes_of(form, x, &from);
    cpu_axes_of(form, y, &to);
    if (!describe(resize, x, y, &from, &to, &changing, &shape)) {
        return LEAT_AGAIN;
    }
    if (shape.rank == 2 && shape.inner == 1 && doubles(resize, x, y, changing.axes[HEIGHT]) &&
        doubles(resize, x, y, changing.axes[WIDTH])) {
        return lower_doubling(b, form, args, &shape);
    }
    const size_t own = own_rows(&shape) * (size_t)shape.strides[WIDTH] * shape.inner * sizeof(float);
    status = cpu_output_in_form(b, form, &args[1].tensor);
    if (status == LEAT_OK) {
        status = add_tables(b, resize, &changing, &shape, &args[2].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &none, b->program->threads * own, &args[3].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, resample, args, 4, &step);
    }
    if (status == LEAT_OK) {
        step->rank = shape.rank;
        step->outer = shape.outer;
        step->inner = shape.inner;
        step->count = shape.count;
        memcpy(step->dims, shape.dims, sizeof(step->dims));
        memcpy(step->strides, shape.strides, sizeof(step->strides));
    }
    return status;
}
