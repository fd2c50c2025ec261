/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/qconv.h"

#include <string.h>

#include "base/align.h"
#include "kernels/cpu/loops/qconv_stages.h"

enum {
    SLICE = 512,                /* of a window: a panel's weights for it are half of the first-level cache */
    SCRATCH_MOST = 32 << 20,    /* numbers of a member's, of convolutions */
    MANY = 8,                   /* tiles for a member, that it has some one more than others is little beside */
    TOGETHER = 4,               /* panels that read a slice one after the other: all slices would not stay in the second-level cache */
};

/* ---- Weights ---------------------------------------------------------------------------------------- */

size_t
cpu_qconv_packed_bytes(int64_t outputs, int64_t inputs, int64_t taps)
{
    return (size_t)(cpu_qconv_panels(outputs) * CPU_PANEL * taps * cpu_qconv_depth(inputs));
}

/* [panels][taps][pairs of inputs][CPU_PANEL][2] */
void
cpu_qconv_pack(const int8_t *weights, const struct cpu_qconv_strides *strides, int64_t outputs, int64_t inputs, int64_t taps,
               int8_t *ret_packed)
{
    for (int64_t first = 0; first < outputs; first += CPU_PANEL) {
        const int64_t count = outputs - first < CPU_PANEL ? outputs - first : CPU_PANEL;
        for (int64_t t = 0; t < taps; t++) {
            for (int64_t i = 0; i < inputs; i += 2, ret_packed += CPU_QCONV_PAIRS) {
                const int8_t *from = weights + first * strides->output + t * strides->tap + i * strides->input;
                memset(ret_packed, 0, CPU_QCONV_PAIRS);
                for (int64_t o = 0; o < count; o++) {
                    ret_packed[2 * o] = from[o * strides->output];
                    ret_packed[2 * o + 1] = i + 1 < inputs ? from[o * strides->output + strides->input] : 0;
                }
            }
        }
    }
}

/* ---- Windows ---------------------------------------------------------------------------------------- */

/*
 * The result in units: lines, or parts of them where they are long, or where a member begins or ends within one. In scratch each unit
 * has the lines of the source that its windows see, one behind the other. Of a window in it those numbers follow each other that one
 * line has, where it has no gaps.
 */
struct layout {
    int64_t pixels, width;        /* of all lines of all items, and of a line */
    int64_t units;                /* that are multiplied at a time, at most */
    int64_t line, unit;           /* numbers of each in scratch, at most */
    int64_t pixel;                /* from one pixel of the result to the next */
    int64_t segments, segment;    /* of a window, and their numbers */
    int64_t inner;                /* numbers of a window */
};

/* Pixels of the source that `across` windows side by side see of a line. */
static int64_t
seen_by(const struct leat_window *w, int64_t across)
{
    return (across - 1) * w->stride[2] + (w->kernel[2] - 1) * w->dilation[2] + 1;
}

static struct layout
layout_of(const struct cpu_qconv *p)
{
    const struct leat_window *w = &p->window;
    const int64_t depth = cpu_qconv_depth(p->inputs), lines = w->kernel[0] * w->kernel[1], all_lines = p->items * w->out[0] * w->out[1];
    const int64_t across = w->out[2] < CPU_QCONV_BLOCK ? w->out[2] : CPU_QCONV_BLOCK;
    const int64_t units = CPU_QCONV_BLOCK / across < all_lines ? CPU_QCONV_BLOCK / across : all_lines;
    const bool gaps = w->dilation[2] > 1 && w->kernel[2] > 1;
    struct layout l = {.pixels = all_lines * w->out[2], .width = w->out[2]};

    l.line = seen_by(w, across) * depth;
    l.unit = lines * l.line;
    l.units = units < SCRATCH_MOST / l.unit ? units : SCRATCH_MOST / l.unit;
    l.units = l.units > 1 ? l.units : 1;
    l.pixel = w->stride[2] * depth;
    l.segments = gaps ? lines * w->kernel[2] : lines;
    l.segment = gaps ? depth : w->kernel[2] * depth;
    l.inner = l.segments * l.segment;
    return l;
}

CPU_INLINE void
widen(const uint8_t *from, int64_t count, int32_t zero, const bool is_signed, int16_t *ret)
{
    int64_t i = 0;

    for (; i + CPU_QCONV_SHORTS <= count; i += CPU_QCONV_SHORTS) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        const __m256i numbers = is_signed ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
        _mm256_storeu_si256((__m256i *)(void *)(ret + i), _mm256_sub_epi16(numbers, _mm256_set1_epi16((int16_t)zero)));
    }
    for (; i < count; i++) {
        ret[i] = (int16_t)((is_signed ? (int8_t)from[i] : from[i]) - zero);
    }
}

/* Pixels of three numbers, such as colours, as far as 16 bytes hold four of them; returns how many. */
CPU_KERNEL static int64_t
widen_colours(const struct cpu_qconv *p, const uint8_t *from, int64_t pixels, int16_t *ret)
{
    const __m128i apart = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    const __m256i zeros = _mm256_set1_epi16((int16_t)p->source_zero);
    int64_t i = 0;

    for (; 3 * i + 16 <= 3 * pixels; i += 4) {
        const __m128i four = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(from + 3 * i)), apart);
        const __m256i numbers = p->source_signed ? _mm256_cvtepi8_epi16(four) : _mm256_cvtepu8_epi16(four);
        _mm256_storeu_si256((__m256i *)(void *)(ret + 4 * i), _mm256_sub_epi16(numbers, zeros));
    }
    return i;
}

/* `pixels` of them. What is behind an odd number of inputs is multiplied by 0, whatever it is. */
CPU_KERNEL static void
widen_pixels(const struct cpu_qconv *p, const uint8_t *from, int64_t pixels, int16_t *ret)
{
    const int64_t depth = cpu_qconv_depth(p->inputs);
    const bool even = depth == p->inputs;
    const int64_t each = even ? pixels * depth : p->inputs, done = p->inputs == 3 ? widen_colours(p, from, pixels, ret) : 0;

    from += done * each;
    ret += done * depth;
    for (int64_t i = done; i < (even ? 1 : pixels); i++, from += each, ret += depth) {
        if (p->source_signed) {
            widen(from, each, p->source_zero, true, ret);
        } else {
            widen(from, each, p->source_zero, false, ret);
        }
    }
}

/* What a line of the source, NULL where it is outside, has from pixel `first` on. */
static void
lay_line(const struct cpu_qconv *p, const uint8_t *line, int64_t first, int64_t pixels, int16_t *ret)
{
    const int64_t depth = cpu_qconv_depth(p->inputs), width = p->window.in[2];
    const int64_t before = line == NULL || first <= -pixels ? pixels : first < 0 ? -first : 0;
    const int64_t left = width - first - before, inside = left < 0 ? 0 : left < pixels - before ? left : pixels - before;

    memset(ret, 0, (size_t)(before * depth) * sizeof(*ret));
    if (inside > 0) {
        widen_pixels(p, line + (first + before) * p->inputs, inside, ret + before * depth);
    }
    memset(ret + (before + inside) * depth, 0, (size_t)((pixels - before - inside) * depth) * sizeof(*ret));
}

/* What the windows of `across` pixels from `pixel` on see. */
static void
lay_unit(const struct cpu_qconv *p, const struct layout *l, const uint8_t *source, int64_t pixel, int64_t across, int16_t *ret)
{
    const struct leat_window *w = &p->window;
    const int64_t line = pixel / l->width, first = pixel % l->width * w->stride[2] - w->pad_begin[2];
    const int64_t z = line / w->out[1] % w->out[0], y = line % w->out[1], item = line / w->out[1] / w->out[0];

    for (int64_t a = 0; a < w->kernel[0]; a++) {
        for (int64_t b = 0; b < w->kernel[1]; b++, ret += l->line) {
            const int64_t in_z = z * w->stride[0] + a * w->dilation[0] - w->pad_begin[0];
            const int64_t in_y = y * w->stride[1] + b * w->dilation[1] - w->pad_begin[1];
            const bool inside = in_z >= 0 && in_z < w->in[0] && in_y >= 0 && in_y < w->in[1];
            const int64_t from = ((item * w->in[0] + in_z) * w->in[1] + in_y) * w->in[2] * p->inputs;
            lay_line(p, inside ? source + from : NULL, first, seen_by(w, across), ret);
        }
    }
}

/* Units from `pixel` on, which end before `end`, as many as are multiplied at a time; returns their pixels, and where windows are. */
static int64_t
lay_units(const struct cpu_qconv *p, const struct layout *l, const uint8_t *source, int64_t pixel, int64_t end, int16_t *scratch,
          const int16_t *ret_windows[CPU_QCONV_BLOCK])
{
    int64_t count = 0;

    for (int64_t u = 0; u < l->units && pixel < end; u++, scratch += l->unit) {
        const int64_t of_line = l->width - pixel % l->width, left = of_line < end - pixel ? of_line : end - pixel;
        const int64_t units = (left + CPU_QCONV_BLOCK - 1) / CPU_QCONV_BLOCK, across = (left + units - 1) / units;
        lay_unit(p, l, source, pixel, across, scratch);
        for (int64_t x = 0; x < across; x++) {
            ret_windows[count++] = scratch + x * l->pixel;
        }
        pixel += across;
    }
    return count;
}

/* ---- Sums ------------------------------------------------------------------------------------------- */

/* Of the slice that begins at number `begin` of a window; returns how many pieces it has. */
static int64_t
find_pieces(const struct cpu_qconv *p, const struct layout *l, int64_t begin, struct cpu_qconv_piece ret_pieces[SLICE / 2])
{
    const struct leat_window *w = &p->window;
    const int64_t end = l->inner - begin < SLICE ? l->inner : begin + SLICE;
    const int64_t of_line = l->segments / (w->kernel[0] * w->kernel[1]);
    int64_t count = 0;

    for (int64_t i = begin, next; i < end; i = next) {
        const int64_t segment = i / l->segment, from = i % l->segment;
        next = (segment + 1) * l->segment < end ? (segment + 1) * l->segment : end;
        const int64_t gap = segment % of_line * w->dilation[2] * cpu_qconv_depth(p->inputs);
        ret_pieces[count++] = (struct cpu_qconv_piece){segment / of_line * l->line + gap + from, next - i};
    }
    return count;
}

/* The panels begin..end for some pixels that follow each other, the first of which is `result`. */
static void
multiply(const struct cpu_qconv_work *work, const struct layout *l, const int16_t *const *windows, int64_t count, int64_t begin,
         int64_t end, uint8_t *result)
{
    const int64_t together = l->inner > SLICE ? TOGETHER : 1;
    _Alignas(64) int32_t sums[TOGETHER * CPU_QCONV_BLOCK * CPU_PANEL];
    _Alignas(64) int16_t panel[SLICE * CPU_PANEL];
    struct cpu_qconv_piece pieces[SLICE / 2];

    for (int64_t n = begin, next; n < end; n = next) {
        next = n + together < end ? n + together : end;
        for (int64_t i = 0; i < l->inner; i += SLICE) {
            const int64_t piece_count = find_pieces(work->p, l, i, pieces);
            const int64_t width = l->inner - i < SLICE ? l->inner - i : SLICE;
            for (int64_t m = n; m < next; m++) {
                cpu_qconv_unpack(work->packed + (m * l->inner + i) * CPU_PANEL, width / 2, panel);
                cpu_qconv_add_products(windows, count, pieces, piece_count, panel, sums + (m - n) * CPU_QCONV_BLOCK * CPU_PANEL, i == 0,
                             work->p->outputs - m * CPU_PANEL);
            }
        }
        for (int64_t m = n; m < next; m++) {
            cpu_qconv_store(work, sums + (m - n) * CPU_QCONV_BLOCK * CPU_PANEL, count, m * CPU_PANEL, 1, result);
        }
    }
}

/* ---- Members ---------------------------------------------------------------------------------------- */

/*
 * By rows, as steps between these divide, or by panels, where there are many of them. Else tiles are counted panel by panel, and a
 * member has the last rows of one panel, all rows of the next ones and the first rows of one more.
 */
int64_t
cpu_qconv_parts(int64_t rows, int64_t panels, uint32_t member, uint32_t members, struct cpu_qconv_part ret_parts[CPU_QCONV_PARTS])
{
    const int64_t groups = cpu_groups(rows);
    int64_t count = 0;

    if (groups >= (int64_t)members * MANY) {
        const int64_t last = groups * (member + 1) / members * CPU_ROWS;
        ret_parts[0] = (struct cpu_qconv_part){groups * member / members * CPU_ROWS, last < rows ? last : rows, 0, panels};
        return 1;
    }
    if (panels >= (int64_t)members * MANY) {
        ret_parts[0] = (struct cpu_qconv_part){0, rows, panels * member / members, panels * (member + 1) / members};
        return 1;
    }
    const int64_t first = groups * panels * member / members, last = groups * panels * (member + 1) / members;
    const int64_t begin = first % groups, end = last % groups;
    const int64_t cuts[CPU_QCONV_PARTS + 1] = {0, begin < end ? begin : end, begin < end ? end : begin, groups};
    for (int i = 0; i < CPU_QCONV_PARTS; i++) {
        const struct cpu_qconv_part part = {cuts[i] * CPU_ROWS, cuts[i + 1] < groups ? cuts[i + 1] * CPU_ROWS : rows,
                                            first / groups + (cuts[i] < begin), last / groups + (cuts[i] < end)};
        if (part.first_row < part.last_row && part.first_panel < part.last_panel) {
            ret_parts[count++] = part;
        }
    }
    return count;
}

/* ---- Which of them ---------------------------------------------------------------------------------- */

bool
cpu_qconv_fits(const struct leat_window *w, int64_t inputs)
{
    int64_t gaps, pixels, lines, numbers;

    return !__builtin_mul_overflow(w->kernel[2] - 1, w->dilation[2], &gaps) &&
           !__builtin_mul_overflow(w->stride[2], (int64_t)CPU_QCONV_BLOCK - 1, &pixels) && !__builtin_add_overflow(pixels, gaps, &pixels) &&
           !__builtin_mul_overflow(w->kernel[0], w->kernel[1], &lines) &&
           !__builtin_mul_overflow(lines, cpu_qconv_depth(inputs), &numbers) &&
           !__builtin_mul_overflow(numbers, pixels + 1, &numbers) && numbers <= SCRATCH_MOST;
}

size_t
cpu_qconv_scratch_bytes(const struct cpu_qconv *p)
{
    const struct layout l = layout_of(p);

    if (cpu_qconv_takes_winograd(p)) {
        return cpu_qconv_winograd_bytes(p);
    }
    return (size_t)leat_round_up((uint64_t)(l.units * l.unit) * sizeof(int16_t), 64);
}

static void
run_part(const struct cpu_qconv_work *work, const struct layout *l, const struct cpu_qconv_part *part, const uint8_t *source,
         int16_t *scratch, uint8_t *result)
{
    const int16_t *windows[CPU_QCONV_BLOCK];

    for (int64_t pixel = part->first_row, count; pixel < part->last_row; pixel += count) {
        count = lay_units(work->p, l, source, pixel, part->last_row, scratch, windows);
        multiply(work, l, windows, count, part->first_panel, part->last_panel, result + pixel * work->p->outputs);
    }
}

void
cpu_qconv_run(const struct cpu_qconv *p, const void *source, const int8_t *packed, const float *units, const float *bias,
              int16_t *scratch, void *result, uint32_t member, uint32_t members)
{
    const struct layout l = layout_of(p);
    const int8_t *wide = p->narrow ? cpu_qconv_wide_part(packed) : packed;
    const struct cpu_qconv_work work = {p, wide != NULL ? wide : packed, units, bias};
    if (cpu_qconv_takes_winograd(p)) {
        cpu_qconv_run_winograd(&work, source, scratch, result, member, members);
        return;
    }
    if (wide == NULL) {
        cpu_qconv_run_narrow(&work, source, scratch, result, member, members);
        return;
    }
    struct cpu_qconv_part parts[CPU_QCONV_PARTS];
    const int64_t count = cpu_qconv_parts(l.pixels, cpu_qconv_panels(p->outputs), member, members, parts);
    for (int64_t i = 0; i < count; i++) {
        run_part(&work, &l, &parts[i], source, scratch, result);
    }
}
