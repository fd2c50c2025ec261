/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions that oneDNN has but its gemm for, which locks a mutex and allocates in each run: mostly by groups of odd sizes, or by
 * channels along one axis with gaps. With AVX2, on plain layouts, as far as rows that a member keeps are 128 MiB.
 *
 * Rows       Of the source are copied with what pads them, every stride-th pixel behind the other, so that all pixels of a row of the
 *            result find what a tap multiplies in vectors; a row is copied once for all rows of the result that read it.
 * Numerics   A sum's terms are added in one order, whatever the number of members.
 * Threads    Members divide the rows of the result, of all items and groups.
 */
#define CPU_VECTOR_BITS 256
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/held.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"
#include "kernels/team.h"
#include "kernels/window.h"

enum {
    OUTPUTS = 4,          /* of a group, that share what is read of a row */
    VECTORS_MOST = 8,     /* of a row: all that a single output is multiplied in at a time */
    MEMBER_LEAST = 65536, /* multiplications that are worth a member of a team */
    SCRATCH_MOST = 32 << 20, /* floats of a member's, of rows */
};

enum { SOURCE, WEIGHTS, RESULT, SCRATCH, BIAS, ARGS }; /* of a step; the last only where there is a bias */
enum { DEPTH, DOWN, ACROSS };

struct conv {
    const struct leat_node *node;
    struct leat_window w;
    int64_t items, groups, inputs, outputs; /* inputs and outputs of a group */
    int64_t phase, width;                   /* floats of every stride-th pixel, and of all of a row */
    int64_t slots;                          /* rows of a plane that are kept */
    uint32_t members;
};

/* Whatever a file says of strides and gaps: before any of it is multiplied. */
static bool
fits(const struct leat_window *w, int64_t inputs)
{
    const double slots = (double)(w->kernel[DOWN] - 1) * (double)w->dilation[DOWN] + 1;
    const double reach = (double)(w->kernel[ACROSS] - 1) * (double)w->dilation[ACROSS] / (double)w->stride[ACROSS];
    const double width = ((double)w->out[ACROSS] + reach + 2 * CPU_LANES) * (double)w->stride[ACROSS];

    return (double)w->kernel[DEPTH] * slots * (double)inputs * width <= SCRATCH_MOST;
}

static struct conv
conv_of(const struct leat_graph *graph, const struct leat_node *node, const struct leat_window *window, uint32_t threads)
{
    const struct leat_value *x = leat_node_input(graph, node, 0), *w = leat_node_input(graph, node, 1);
    const int64_t groups = leat_node_int(node, "group", 1);
    struct conv c = {.node = node,
                     .w = *window,
                     .items = x->dims[0],
                     .groups = groups,
                     .inputs = w->dims[1],
                     .outputs = w->dims[0] / groups,
                     .slots = (window->kernel[DOWN] - 1) * window->dilation[DOWN] + 1};
    const int64_t reach = (window->kernel[ACROSS] - 1) * window->dilation[ACROSS] / window->stride[ACROSS];

    /* The last vectors of a row read behind it. */
    c.phase = (int64_t)leat_round_up((uint64_t)(window->out[ACROSS] + reach), CPU_LANES) + CPU_LANES;
    c.width = c.phase * window->stride[ACROSS];
    const double all = (double)leat_value_elements(leat_node_output(graph, node, 0)) * (double)leat_value_elements(w) / (double)w->dims[0];
    c.members = all / MEMBER_LEAST < 1 ? 1 : all / MEMBER_LEAST < threads ? (uint32_t)(all / MEMBER_LEAST) : threads;
    return c;
}

/* Of a member: [depth][slots] which row of its plane each holds, then [depth][slots][inputs][width] these. */
static size_t
held_bytes(const struct conv *c)
{
    return (size_t)leat_round_up((uint64_t)(c->w.kernel[DEPTH] * c->slots) * sizeof(int64_t), 64);
}

static size_t
scratch_bytes(const struct conv *c)
{
    return held_bytes(c) + (size_t)(c->w.kernel[DEPTH] * c->slots * c->inputs * c->width) * sizeof(float);
}

/* A row of a plane, of all inputs. */
static void
copy_rows(const struct conv *c, const float *source, int64_t row, float *to)
{
    const int64_t stride = c->w.stride[ACROSS], in = c->w.in[ACROSS], plane = c->w.in[DEPTH] * c->w.in[DOWN] * in;

    for (int64_t i = 0; i < c->inputs; i++, to += c->width) {
        const float *from = source + i * plane + row * in;
        for (int64_t p = 0; p < stride; p++) {
            float *pixels = to + p * c->phase;
            const int64_t first = p - c->w.pad_begin[ACROSS]; /* the pixel that comes first */
            const int64_t missing = first < 0 ? (stride - 1 - first) / stride : 0, before = missing < c->phase ? missing : c->phase;
            const int64_t there = in > first + before * stride ? (in - first - before * stride + stride - 1) / stride : 0;
            const int64_t end = there < c->phase - before ? before + there : c->phase;
            memset(pixels, 0, (size_t)before * sizeof(*pixels));
            if (stride == 1 && end > before) {
                memcpy(pixels + before, from + first + before, (size_t)(end - before) * sizeof(*pixels));
            } else {
                for (int64_t q = before; q < end; q++) {
                    pixels[q] = from[first + q * stride];
                }
            }
            memset(pixels + end, 0, (size_t)(c->phase - end) * sizeof(*pixels));
        }
    }
}

/* A row of the result: where its windows lie. */
struct line {
    const float *rows;      /* of the source, copied */
    const float *weights;   /* of the first output */
    const float *bias;      /* NULL: none */
    float *result;          /* of the first output */
    int64_t depth, down;    /* the first of the source's, before what there is */
};

/* `outputs` and `vectors` are constants; `left` pixels of the row. */
CPU_INLINE void
tile(const struct conv *c, const struct line *line, int64_t output, int64_t x, int64_t left, const int outputs, const int vectors)
{
    const int64_t *kernel = c->w.kernel, *dilation = c->w.dilation, stride = c->w.stride[ACROSS];
    const int64_t taps = kernel[DEPTH] * kernel[DOWN] * kernel[ACROSS], plane = c->w.out[DEPTH] * c->w.out[DOWN] * c->w.out[ACROSS];
    const float *weights = line->weights + output * c->inputs * taps;
    float *result = line->result + output * plane + x;
    cpu_floats sums[OUTPUTS][VECTORS_MOST];

#pragma GCC unroll 4
    for (int o = 0; o < outputs; o++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            sums[o][v] = line->bias != NULL ? CPU_V(set1)(line->bias[output + o]) : CPU_V(setzero)();
        }
    }
    for (int64_t z = 0; z < kernel[DEPTH]; z++) {
        const int64_t depth = line->depth + z * dilation[DEPTH];
        for (int64_t k = 0; k < kernel[DOWN]; k++) {
            const int64_t down = line->down + k * dilation[DOWN];
            if (depth < 0 || depth >= c->w.in[DEPTH] || down < 0 || down >= c->w.in[DOWN]) {
                continue;
            }
            const float *rows = line->rows + (z * c->slots + down % c->slots) * c->inputs * c->width + x;
            const float *factors = weights + (z * kernel[DOWN] + k) * kernel[ACROSS];
            for (int64_t i = 0; i < c->inputs; i++, rows += c->width, factors += taps) {
                for (int64_t t = 0, at = 0; t < kernel[ACROSS]; t++, at += dilation[ACROSS]) {
                    const float *pixels = rows + (stride == 1 ? at : at % stride * c->phase + at / stride);
                    cpu_floats some[VECTORS_MOST];
#pragma GCC unroll 8
                    for (int v = 0; v < vectors; v++) {
                        some[v] = CPU_V(loadu)(pixels + v * CPU_LANES);
                    }
#pragma GCC unroll 4
                    for (int o = 0; o < outputs; o++) {
                        const cpu_floats factor = CPU_V(set1)(factors[o * c->inputs * taps + t]);
#pragma GCC unroll 8
                        for (int v = 0; v < vectors; v++) {
                            sums[o][v] = CPU_V(fmadd)(factor, some[v], sums[o][v]);
                        }
                    }
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int o = 0; o < outputs; o++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            float *to = result + o * plane + v * CPU_LANES;
            const int64_t there = left - v * CPU_LANES;
            const bool adds = c->node->fused_add != LEAT_VALUE_NONE;
            const cpu_floats sum = adds ? CPU_V(add)(sums[o][v], cpu_load_first(to, there)) : sums[o][v];
            cpu_store_first(to, there, cpu_held(c->node, sum));
        }
    }
}

/* Twelve sums at a time, or what is left of the row. */
CPU_INLINE void
tiles(const struct conv *c, const struct line *line, int64_t output, const int outputs, const int vectors)
{
    const int64_t width = c->w.out[ACROSS], wide = vectors * CPU_LANES;
    int64_t x = 0;

    for (; x + wide <= width; x += wide) {
        tile(c, line, output, x, wide, outputs, vectors);
    }
    for (; x + CPU_LANES < width; x += 2 * CPU_LANES) {
        tile(c, line, output, x, width - x, outputs, 2);
    }
    if (x < width) {
        tile(c, line, output, x, width - x, outputs, 1);
    }
}

CPU_KERNEL static void
convolve_line(const struct conv *c, const struct line *line)
{
    int64_t o = 0;

    for (; o + OUTPUTS <= c->outputs; o += OUTPUTS) {
        tiles(c, line, o, OUTPUTS, 3);
    }
    switch (c->outputs - o) {
    case 1: tiles(c, line, o, 1, VECTORS_MOST); break;
    case 2: tiles(c, line, o, 2, 5); break;
    case 3: tiles(c, line, o, 3, 4); break;
    default: break;
    }
}

/* What the windows of a row of the result reach, unless it is there. */
static void
fetch(const struct conv *c, const float *source, const struct line *line, int64_t *held, float *rows)
{
    for (int64_t z = 0; z < c->w.kernel[DEPTH]; z++) {
        const int64_t depth = line->depth + z * c->w.dilation[DEPTH];
        for (int64_t k = 0; k < c->w.kernel[DOWN] && depth >= 0 && depth < c->w.in[DEPTH]; k++) {
            const int64_t down = line->down + k * c->w.dilation[DOWN], row = depth * c->w.in[DOWN] + down;
            if (down < 0 || down >= c->w.in[DOWN]) {
                continue;
            }
            const int64_t slot = z * c->slots + down % c->slots;
            if (held[slot] != row) {
                copy_rows(c, source, row, rows + slot * c->inputs * c->width);
                held[slot] = row;
            }
        }
    }
}

struct work {
    const struct cpu_call *call;
    struct conv conv;
};

static void
run_member(void *context, uint32_t member, uint32_t size)
{
    const struct work *work = context;
    const struct conv *c = &work->conv;
    void *const *p = work->call->pointers;
    unsigned char *scratch = (unsigned char *)p[SCRATCH] + member * scratch_bytes(c);
    int64_t *held = (int64_t *)(void *)scratch;
    float *rows = (float *)(void *)(scratch + held_bytes(c));
    const int64_t lines = c->w.out[DEPTH] * c->w.out[DOWN], all = c->items * c->groups * lines, members = c->members;
    const int64_t in = c->w.in[DEPTH] * c->w.in[DOWN] * c->w.in[ACROSS], out = lines * c->w.out[ACROSS], begin = all * member / members;
    const int64_t each = c->outputs * c->inputs * c->w.kernel[DEPTH] * c->w.kernel[DOWN] * c->w.kernel[ACROSS];

    (void)size;
    if (member >= c->members) {
        return;
    }
    for (int64_t n = begin; n < all * (member + 1) / members; n++) {
        const int64_t block = n / lines, group = block % c->groups, row = n % lines;
        const struct line line = {
            .rows = rows,
            .weights = (const float *)p[WEIGHTS] + group * each,
            .bias = work->call->step->arg_count > BIAS ? (const float *)p[BIAS] + group * c->outputs : NULL,
            .result = (float *)p[RESULT] + block * c->outputs * out + row * c->w.out[ACROSS],
            .depth = row / c->w.out[DOWN] * c->w.stride[DEPTH] - c->w.pad_begin[DEPTH],
            .down = row % c->w.out[DOWN] * c->w.stride[DOWN] - c->w.pad_begin[DOWN],
        };
        for (int64_t s = 0; s < c->w.kernel[DEPTH] * c->slots && (n == begin || row == 0); s++) {
            held[s] = -1;
        }
        fetch(c, (const float *)p[SOURCE] + block * c->inputs * in, &line, held, rows);
        convolve_line(c, &line);
        for (int64_t o = 0; o < c->outputs && cpu_activation_runs_here(c->node->fused_activation); o++) {
            cpu_activate(c->node->fused_activation, line.result + o * out, (size_t)c->w.out[ACROSS]);
        }
    }
}

static enum leat_status
convolve(const struct cpu_call *call)
{
    struct leat_window window;

    LEAT_MUST(leat_window_of(call->program->graph, call->step->node, &window) == LEAT_OK);
    struct work work = {call, conv_of(call->program->graph, call->step->node, &window, call->program->threads)};
    if (work.conv.members > 1) {
        leat_team_run(call->team, run_member, &work);
    } else {
        run_member(&work, 0, 1);
    }
    return LEAT_OK;
}

enum leat_status
cpu_lower_group_conv(struct cpu_builder *b, const struct leat_window *window)
{
    const struct leat_node *node = b->node;
    const struct leat_value *w = leat_node_input(b->graph, node, 1);
    const bool has_bias = leat_node_input(b->graph, node, 2) != NULL;
    const dnnl_memory_desc_t none = {.ndims = 0}, weights_md = cpu_value_md(w), value_md = cpu_value_md(leat_node_output(b->graph, node, 0));
    struct cpu_arg args[ARGS] = {{0, 0}};
    struct cpu_step *step;

    if (!cpu_has_avx2() || cpu_model_type(b->model) != dnnl_f32 || !fits(window, w->dims[1])) {
        return LEAT_AGAIN;
    }
    const struct conv c = conv_of(b->graph, node, window, b->program->threads);
    enum leat_status status = cpu_plain(b, node->inputs[0], &args[SOURCE].tensor);
    if (status == LEAT_OK) {
        status = w->data != NULL ? cpu_constant_as(b, node->inputs[1], &weights_md, &weights_md, &args[WEIGHTS].tensor)
                                 : cpu_plain(b, node->inputs[1], &args[WEIGHTS].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_destination(b, &value_md, &args[RESULT].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &none, c.members * scratch_bytes(&c), &args[SCRATCH].tensor);
    }
    if (status == LEAT_OK && has_bias) {
        status = cpu_plain(b, node->inputs[2], &args[BIAS].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, convolve, args, has_bias ? ARGS : BIAS, &step);
    }
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, args[RESULT].tensor);
    }
    return status;
}
