/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of 8 bits: an instruction multiplies pairs of u8 and s8 and caps their sums at 16 bits, which they fit where weights of one
 * sign of a pair are at most NARROW_SUM together. Fours of inputs whose pairs are all such, in all outputs of a panel, come first, then
 * those of 16 bits. The source keeps its zero point: what that adds to a sum is known from the weights.
 */
#include <string.h>

#include "base/align.h"
#include "base/status.h"
#include "kernels/cpu/loops/qconv_stages.h"

enum {
    QUAD = 4,                       /* inputs at a time */
    QUADS = QUAD * CPU_PANEL,       /* weights of them */
    NARROW_SUM = 128,               /* times 255 it fits 16 bits */
    LINE = 64,
    QUADS_MOST = UINT16_MAX + 1,
    NARROW_LEAST = 16,              /* fours, for which sums are read and written once more */
    NARROW_SHARE = 4,               /* where fewer than one in so many is, all are multiplied as 16 bits */
    SLICE = 128,                    /* fours: as 16 bits, half of the first-level cache */
};

/* Where the parts of packed weights lie, which begin with a line that says whether there are any of them, or those of cpu_qconv_pack(). */
struct layout {
    int32_t *sums;     /* [panels][CPU_PANEL], of all weights of an output */
    int32_t *narrow;   /* [panels]: how many fours are multiplied as 8 bits */
    uint16_t *places;  /* [panels][fours]: which ones they are */
    int8_t *weights;   /* [panels][fours][CPU_PANEL][QUAD], or of those of 16 bits [2][CPU_PANEL][2] */
};

static size_t
whole_lines(int64_t bytes)
{
    return (size_t)leat_round_up((uint64_t)bytes, LINE);
}

static struct layout
layout_of(const void *packed, int64_t outputs, int64_t inputs, size_t *ret_bytes)
{
    const int64_t panels = cpu_qconv_panels(outputs), quads = inputs / QUAD;
    const size_t sums = LINE, narrow = sums + whole_lines(panels * CPU_PANEL * 4), places = narrow + whole_lines(panels * 4);
    const size_t weights = places + whole_lines(panels * quads * 2);
    unsigned char *at = (unsigned char *)(uintptr_t)packed;

    *ret_bytes = weights + (size_t)(panels * quads * QUADS);
    return at == NULL ? (struct layout){.sums = NULL}
                      : (struct layout){(int32_t *)(void *)(at + sums), (int32_t *)(void *)(at + narrow), (uint16_t *)(void *)(at + places),
                                       (int8_t *)(at + weights)};
}

bool
cpu_qconv_takes_narrow(const struct cpu_qconv *p)
{
    const struct leat_window *w = &p->window;

    return !p->source_signed && p->inputs % QUAD == 0 && p->inputs / QUAD <= QUADS_MOST && p->items == 1 && w->in[0] == 1 &&
           w->in[1] == 1 && w->out[0] == 1 && w->out[1] == 1 && w->in[2] == w->out[2] && w->kernel[0] == 1 && w->kernel[1] == 1 &&
           w->kernel[2] == 1 && w->stride[2] == 1 && w->pad_begin[0] == 0 && w->pad_begin[1] == 0 && w->pad_begin[2] == 0;
}

size_t
cpu_qconv_narrow_bytes(int64_t outputs, int64_t inputs)
{
    size_t bytes;

    (void)layout_of(NULL, outputs, inputs, &bytes);
    return bytes;
}

/* Four weights of each of `count` outputs of a panel, zeros behind them; whether none of their pairs is too much for 16 bits. */
static bool
read_quad(const int8_t *weights, const struct cpu_qconv_strides *strides, int64_t count, int8_t ret[CPU_PANEL][QUAD])
{
    bool narrow = true;

    memset(ret, 0, QUADS);
    for (int64_t o = 0; o < count; o++) {
        for (int64_t i = 0; i < QUAD; i++) {
            ret[o][i] = weights[o * strides->output + i * strides->input];
        }
        const int32_t first = ret[o][0] + ret[o][1], second = ret[o][2] + ret[o][3]; /* of two signs they are less than each */
        narrow = narrow && first >= -NARROW_SUM && first <= NARROW_SUM && second >= -NARROW_SUM && second <= NARROW_SUM;
    }
    return narrow;
}

/* Of a panel of `count` outputs. */
static int64_t
count_narrow(const int8_t *weights, const struct cpu_qconv_strides *strides, int64_t count, int64_t quads)
{
    int8_t quad[CPU_PANEL][QUAD];
    int64_t narrow = 0;

    for (int64_t q = 0; q < quads; q++) {
        narrow += read_quad(weights + q * QUAD * strides->input, strides, count, quad);
    }
    return narrow == quads || narrow >= NARROW_LEAST ? narrow : 0;
}

static void
pack_panel(const int8_t *weights, const struct cpu_qconv_strides *strides, int64_t count, int64_t quads, const struct layout *to)
{
    int64_t narrow = 0, wide = *to->narrow;
    int8_t quad[CPU_PANEL][QUAD];

    memset(to->sums, 0, CPU_PANEL * sizeof(*to->sums));
    for (int64_t q = 0; q < quads; q++) {
        const bool as_bytes = read_quad(weights + q * QUAD * strides->input, strides, count, quad) && *to->narrow > 0;
        const int64_t at = as_bytes ? narrow++ : wide++;
        to->places[at] = (uint16_t)q;
        for (int64_t o = 0; o < CPU_PANEL; o++) {
            for (int64_t i = 0; i < QUAD; i++) {
                to->weights[at * QUADS + (as_bytes ? o * QUAD + i : (i / 2 * CPU_PANEL + o) * 2 + i % 2)] = quad[o][i];
                to->sums[o] += quad[o][i];
            }
        }
    }
}

void
cpu_qconv_pack_narrow(const int8_t *weights, const struct cpu_qconv_strides *strides, int64_t outputs, int64_t inputs, void *ret_packed)
{
    const int64_t quads = inputs / QUAD, panels = cpu_qconv_panels(outputs);
    int64_t narrow = 0;
    size_t bytes;
    struct layout to = layout_of(ret_packed, outputs, inputs, &bytes);

    for (int64_t n = 0; n < panels; n++) {
        const int64_t left = outputs - n * CPU_PANEL, count = left < CPU_PANEL ? left : CPU_PANEL;
        to.narrow[n] = (int32_t)count_narrow(weights + n * CPU_PANEL * strides->output, strides, count, quads);
        narrow += to.narrow[n];
    }
    *(bool *)ret_packed = narrow * NARROW_SHARE >= panels * quads;
    if (!*(bool *)ret_packed) {
        cpu_qconv_pack(weights, strides, outputs, inputs, 1, (int8_t *)ret_packed + LINE);
        return;
    }
    for (int64_t n = 0; n < panels; n++, to.sums += CPU_PANEL, to.narrow++, to.places += quads, to.weights += quads * QUADS) {
        const int64_t left = outputs - n * CPU_PANEL, count = left < CPU_PANEL ? left : CPU_PANEL;
        pack_panel(weights + n * CPU_PANEL * strides->output, strides, count, quads, &to);
    }
}

const int8_t *
cpu_qconv_wide_part(const void *packed)
{
    return *(const bool *)packed ? NULL : (const int8_t *)packed + LINE;
}

/* ---- Sums ------------------------------------------------------------------------------------------- */

/* As the instruction has them: GCC keeps arrays of these in registers, but not of __m256i, whose lanes have 64 bits. */
typedef int32_t sums_of __attribute__((vector_size(32)));

/* Some pixels, of u8 or of 16 bits, and fours of weights at places of them, which are of as many bits. */
struct operands {
    const uint8_t *bytes;
    const int16_t *words;
    int64_t inputs; /* from one pixel to the next */
    const uint16_t *places;
    const int8_t *narrow;
    const int16_t *wide;
    int64_t quads;
    const int32_t *begin; /* [CPU_PANEL]: what sums begin with; NULL: with themselves */
};

/* `count` pixels from `first` on, times the first `vectors` of the panel. */
CPU_INLINE void
tile(const struct operands *p, int64_t first, int32_t *sums_at, const bool wide, const int vectors, const int count)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const unsigned char *rows[CPU_ROWS];
    sums_of sums[CPU_ROWS][CPU_VECTORS];

#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
        const int64_t at = (first + r) * p->inputs;
        rows[r] = wide ? (const unsigned char *)(p->words + at) : p->bytes + at;
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const int32_t *from = (p->begin != NULL ? p->begin : sums_at + (first + r) * CPU_PANEL) + v * CPU_LANES;
            sums[r][v] = (sums_of)_mm256_load_si256((const __m256i *)(const void *)from);
        }
    }
    for (int64_t q = 0; q < p->quads; q++) {
        const int64_t place = (int64_t)p->places[q] * QUAD * (wide ? 2 : 1);
        for (int half = 0; half < (wide ? 2 : 1); half++) {
            __m256i weights[CPU_VECTORS];
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) {
                const void *at = wide ? (const void *)(p->wide + (2 * q + half) * CPU_QCONV_PAIRS + v * CPU_QCONV_SHORTS)
                                      : (const void *)(p->narrow + q * QUADS + v * CPU_LANES * QUAD);
                weights[v] = _mm256_load_si256(at);
            }
#pragma GCC unroll 6
            for (int r = 0; r < count; r++) {
                int32_t some;
                memcpy(&some, rows[r] + place + half * QUAD, sizeof(some));
                const __m256i x = _mm256_set1_epi32(some);
#pragma GCC unroll 2
                for (int v = 0; v < vectors; v++) {
                    const __m256i products = wide ? _mm256_madd_epi16(x, weights[v])
                                                  : _mm256_madd_epi16(_mm256_maddubs_epi16(x, weights[v]), ones);
                    sums[r][v] = (sums_of)_mm256_add_epi32((__m256i)sums[r][v], products);
                }
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            _mm256_store_si256((__m256i *)(void *)(sums_at + (first + r) * CPU_PANEL + v * CPU_LANES), (__m256i)sums[r][v]);
        }
    }
}

CPU_INLINE void
tiles(const struct operands *p, int64_t count, int32_t *sums, const bool wide, const int vectors)
{
    const int64_t groups = cpu_groups(count);

    for (int64_t g = 0; g < groups; g++) {
        const int64_t first = count * g / groups;
        switch (count * (g + 1) / groups - first) {
        case 1: tile(p, first, sums, wide, vectors, 1); break;
        case 2: tile(p, first, sums, wide, vectors, 2); break;
        case 3: tile(p, first, sums, wide, vectors, 3); break;
        case 4: tile(p, first, sums, wide, vectors, 4); break;
        case 5: tile(p, first, sums, wide, vectors, 5); break;
        default: tile(p, first, sums, wide, vectors, CPU_ROWS); break;
        }
    }
}

CPU_KERNEL static void
add_narrow(const struct operands *p, int64_t count, int32_t *sums, int64_t outputs)
{
    if (outputs <= CPU_LANES) {
        tiles(p, count, sums, false, 1);
    } else {
        tiles(p, count, sums, false, CPU_VECTORS);
    }
}

CPU_KERNEL static void
add_wide(const struct operands *p, int64_t count, int32_t *sums, int64_t outputs)
{
    if (outputs <= CPU_LANES) {
        tiles(p, count, sums, true, 1);
    } else {
        tiles(p, count, sums, true, CPU_VECTORS);
    }
}

CPU_KERNEL static void
widen(const uint8_t *from, int64_t count, int16_t *ret)
{
    int64_t i = 0;

    for (; i + CPU_QCONV_SHORTS <= count; i += CPU_QCONV_SHORTS) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        _mm256_storeu_si256((__m256i *)(void *)(ret + i), _mm256_cvtepu8_epi16(bytes));
    }
    for (; i < count; i++) {
        ret[i] = from[i];
    }
}

/* Panel n of `count` pixels. */
static void
run_panel(const struct cpu_qconv_work *work, const struct layout *from, struct operands *p, int64_t count, int64_t n, uint8_t *result)
{
    const int64_t quads = p->inputs / QUAD, narrow = from->narrow[n], outputs = work->p->outputs - n * CPU_PANEL;
    const uint16_t *places = from->places + n * quads;
    const int8_t *weights = from->weights + n * quads * QUADS;
    _Alignas(64) int32_t sums[CPU_QCONV_BLOCK * CPU_PANEL];
    _Alignas(64) int16_t panel[SLICE * QUADS];
    _Alignas(64) int32_t begin[CPU_PANEL];

    for (int64_t o = 0; o < CPU_PANEL; o++) {
        begin[o] = -work->p->source_zero * from->sums[n * CPU_PANEL + o];
    }
    for (int64_t q = 0, end; q < quads; q = end) {
        const int64_t last = q < narrow ? narrow : quads;
        end = q + SLICE < last ? q + SLICE : last;
        p->places = places + q;
        p->quads = end - q;
        p->begin = q == 0 ? begin : NULL;
        if (q < narrow) {
            p->narrow = weights + q * QUADS;
            add_narrow(p, count, sums, outputs);
        } else {
            cpu_qconv_unpack(weights + q * QUADS, 2 * (end - q), panel);
            p->wide = panel;
            add_wide(p, count, sums, outputs);
        }
    }
    cpu_qconv_store(work, sums, count, n * CPU_PANEL, 1, result);
}

void
cpu_qconv_run_narrow(const struct cpu_qconv_work *work, const uint8_t *source, int16_t *scratch, uint8_t *result, uint32_t member,
                     uint32_t members)
{
    const struct cpu_qconv *p = work->p;
    struct cpu_qconv_part parts[CPU_QCONV_PARTS];
    size_t bytes;
    const struct layout from = layout_of(work->packed, p->outputs, p->inputs, &bytes);

    const int64_t part_count = cpu_qconv_parts(p->window.out[2], cpu_qconv_panels(p->outputs), member, members, parts);
    for (int64_t i = 0; i < part_count; i++) {
        const int64_t all = parts[i].last_row - parts[i].first_row, blocks = (all + CPU_QCONV_BLOCK - 1) / CPU_QCONV_BLOCK;
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t first = parts[i].first_row + all * b / blocks, count = parts[i].first_row + all * (b + 1) / blocks - first;
            struct operands operands = {.bytes = source + first * p->inputs, .words = scratch, .inputs = p->inputs};
            widen(operands.bytes, count * p->inputs, scratch);
            for (int64_t n = parts[i].first_panel; n < parts[i].last_panel; n++) {
                run_panel(work, &from, &operands, count, n, result + first * p->outputs);
            }
        }
    }
}
