/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/points.h"

#include <immintrin.h>
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/loops/exponential.h"
#include "kernels/cpu/loops/portion.h"
#include "kernels/cpu/loops/product.h"

#define POINTS        __attribute__((target("avx512f,avx512bw,avx512vnni")))
#define POINTS_INLINE static inline __attribute__((always_inline)) POINTS

enum {
    PANEL_BYTES = CPU_PANEL * CPU_POINTS_INPUTS, /* what a step through a panel reads */
    BLOCK_BYTES = 24 << 10,                      /* of the source, which all panels read */
    BLOCK_ROWS = 48,
    LINE = 64,
    FLIP = 128 /* makes s8 u8, and adds as much */
};

bool
cpu_points_run_here(void)
{
    const uint32_t vnni = dnnl_cpu_isa_avx512_core_vnni, amx = dnnl_cpu_isa_avx512_core_amx;
    const uint32_t here = dnnl_get_effective_cpu_isa();

    return (here & vnni) == vnni && (here & amx) != amx;
}

/* [outputs / CPU_PANEL][inputs / CPU_POINTS_INPUTS][CPU_PANEL][CPU_POINTS_INPUTS] */
dnnl_memory_desc_t
cpu_points_weights_md(int64_t outputs, int64_t inputs)
{
    const int64_t panel_bytes = inputs / CPU_POINTS_INPUTS * PANEL_BYTES;

    return (dnnl_memory_desc_t){
        .ndims = 4,
        .dims = {outputs, inputs, 1, 1},
        .data_type = dnnl_s8,
        .padded_dims = {(int64_t)leat_round_up((uint64_t)outputs, CPU_PANEL), inputs, 1, 1},
        .format_kind = dnnl_blocked,
        .format_desc.blocking = {.strides = {panel_bytes, PANEL_BYTES, PANEL_BYTES, PANEL_BYTES},
                                 .inner_nblks = 2,
                                 .inner_blks = {CPU_PANEL, CPU_POINTS_INPUTS},
                                 .inner_idxs = {0, 1}},
    };
}

void
cpu_points_starts(const struct cpu_points *points, const int8_t *weights, int32_t *ret_starts)
{
    for (int64_t o = 0; o < points->outputs; o++) {
        const int8_t *panel = weights + o / CPU_PANEL * CPU_PANEL * points->inputs + o % CPU_PANEL * CPU_POINTS_INPUTS;
        int32_t sum = 0;
        for (int64_t i = 0; i < points->inputs && points->source_signed; i++) {
            sum += panel[i / CPU_POINTS_INPUTS * PANEL_BYTES + i % CPU_POINTS_INPUTS];
        }
        ret_starts[o] = -FLIP * sum;
    }
}

/* Some outputs, and all that is theirs. */
struct panel {
    const int8_t *weights, *next; /* those of the panel that comes after it */
    const int32_t *starts;
    const float *sums, *bias;
    const unsigned char *addend; /* NULL: none; as the result, from the first row on */
    unsigned char *result;
};

/* Sums as the instruction has them: GCC keeps arrays of these in registers, but not of __m512i, whose lanes have 64 bits. */
typedef int32_t sums_of __attribute__((vector_size(64)));

/* With what is added. */
POINTS_INLINE __m512
scale(const struct cpu_points *points, const struct panel *panel, sums_of sums, int64_t at, int v)
{
    __m512 result = _mm512_fmadd_ps(_mm512_cvtepi32_ps((__m512i)sums), _mm512_load_ps(panel->sums + v * CPU_LANES),
                                    _mm512_load_ps(panel->bias + v * CPU_LANES));

    if (panel->addend != NULL) {
        const __m128i bytes = _mm_load_si128((const __m128i *)(const void *)(panel->addend + at + v * CPU_LANES));
        const __m512i numbers = points->addend_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
        result = _mm512_fmadd_ps(_mm512_cvtepi32_ps(numbers), _mm512_set1_ps(points->addend_scale), result);
    }
    return result;
}

/* Four vectors of channels are one line. */
POINTS_INLINE void
store_line(const struct cpu_points *points, const __m512i numbers[CPU_VECTORS], unsigned char *to)
{
    const __m512i low = _mm512_packs_epi32(numbers[0], numbers[1]), high = _mm512_packs_epi32(numbers[2], numbers[3]);
    const __m512i packed = points->result_signed ? _mm512_packs_epi16(low, high) : _mm512_packus_epi16(low, high);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);

    _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, packed));
}

POINTS_INLINE void
store_vector(const struct cpu_points *points, __m512i numbers, unsigned char *to)
{
    const __m128i bytes = points->result_signed ? _mm512_cvtsepi32_epi8(numbers)
                                                : _mm512_cvtusepi32_epi8(_mm512_max_epi32(numbers, _mm512_setzero_si512()));
    _mm_store_si128((__m128i *)(void *)to, bytes);
}

/* Once for all tiles, as it is long. */
__attribute__((noinline)) POINTS static void
store_swish(const struct cpu_points *points, const struct panel *panel, const sums_of *sums, int64_t at, int vectors)
{
    __m512i numbers[CPU_VECTORS];

    for (int v = 0; v < vectors; v++) {
        const __m512 x = scale(points, panel, sums[v], at, v), y = _mm512_mul_ps(x, cpu_sigmoid(x));
        numbers[v] = _mm512_cvtps_epi32(
            _mm512_fmadd_ps(y, _mm512_set1_ps(points->swish_scale), _mm512_set1_ps(points->swish_zero)));
    }
    if (vectors == CPU_VECTORS) {
        store_line(points, numbers, panel->result + at);
        return;
    }
    for (int v = 0; v < vectors; v++) {
        store_vector(points, numbers[v], panel->result + at + v * CPU_LANES);
    }
}

/* Neighbouring inputs of a row, in all lanes. */
POINTS_INLINE __m512i
inputs_at(const unsigned char *row)
{
    int32_t four;
    memcpy(&four, row, sizeof(four));
    return _mm512_set1_epi32(four);
}

/*
 * `count` rows from `first` on and `vectors` of the panel's outputs, all but `first` constants. Meanwhile asks for lines of the
 * result, for the rows that follow, and for one line of each step of the next panel from `ahead` on: as many tiles as it has
 * vectors bring in a panel.
 */
POINTS_INLINE void
tile(const struct cpu_points *points, const struct panel *panel, const unsigned char *const *rows, int64_t first,
     const int8_t *ahead, const int vectors, const int count, const bool flips)
{
    const __m512i flip = _mm512_set1_epi8((char)FLIP);
    const int8_t *weights = panel->weights;
    sums_of sums[CPU_ROWS][CPU_VECTORS];

#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        const sums_of start = (sums_of)_mm512_load_si512(panel->starts + v * CPU_LANES);
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            sums[r][v] = start;
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
        _mm_prefetch(panel->result + (first + r) * points->outputs, _MM_HINT_T0);
    }
    for (int64_t i = 0; i < points->inputs; i += CPU_POINTS_INPUTS, weights += PANEL_BYTES, ahead += PANEL_BYTES) {
        __m512i factors[CPU_VECTORS];
        _mm_prefetch(ahead, _MM_HINT_T1);
        if (i % LINE == 0) {
#pragma GCC unroll 6
            for (int r = 0; r < count; r++) {
                _mm_prefetch(rows[r] + CPU_ROWS * points->inputs + i, _MM_HINT_T0);
            }
        }
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            factors[v] = _mm512_load_si512(weights + v * CPU_LANES * CPU_POINTS_INPUTS);
        }
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            const __m512i read = inputs_at(rows[r] + i), inputs = flips ? _mm512_xor_si512(read, flip) : read;
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                sums[r][v] = (sums_of)_mm512_dpbusd_epi32((__m512i)sums[r][v], inputs, factors[v]);
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
        const int64_t at = (first + r) * points->outputs;
        __m512i numbers[CPU_VECTORS];
        if (points->swish) {
            sums_of row[CPU_VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                row[v] = sums[r][v];
            }
            store_swish(points, panel, row, at, vectors);
            continue;
        }
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            numbers[v] = _mm512_cvtps_epi32(scale(points, panel, sums[r][v], at, v));
        }
        if (vectors == CPU_VECTORS) {
            store_line(points, numbers, panel->result + at);
            continue;
        }
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            store_vector(points, numbers[v], panel->result + at + v * CPU_LANES);
        }
    }
}

/* Rows first..first + count of all. */
POINTS_INLINE void
tiles(const struct cpu_points *points, const struct panel *panel, const unsigned char *const *rows, int64_t first,
      int64_t count, const int vectors, const bool flips)
{
    const int64_t groups = cpu_groups(count);

    for (int64_t g = 0; g < groups; g++) {
        const int64_t begin = count * g / groups;
        const unsigned char *const *from = rows + begin;
        const int8_t *ahead = panel->next + g % CPU_VECTORS * CPU_LANES * CPU_POINTS_INPUTS;
        switch (count * (g + 1) / groups - begin) {
        case 1: tile(points, panel, from, first + begin, ahead, vectors, 1, flips); break;
        case 2: tile(points, panel, from, first + begin, ahead, vectors, 2, flips); break;
        case 3: tile(points, panel, from, first + begin, ahead, vectors, 3, flips); break;
        case 4: tile(points, panel, from, first + begin, ahead, vectors, 4, flips); break;
        case 5: tile(points, panel, from, first + begin, ahead, vectors, 5, flips); break;
        default: tile(points, panel, from, first + begin, ahead, vectors, CPU_ROWS, flips); break;
        }
    }
}

POINTS static void
run_unsigned(const struct cpu_points *points, const struct panel *panel, const unsigned char *const *rows, int64_t first,
             int64_t count, int64_t vectors)
{
    switch (vectors) {
    case 1: tiles(points, panel, rows, first, count, 1, false); break;
    case 2: tiles(points, panel, rows, first, count, 2, false); break;
    case 3: tiles(points, panel, rows, first, count, 3, false); break;
    default: tiles(points, panel, rows, first, count, CPU_VECTORS, false); break;
    }
}

POINTS static void
run_signed(const struct cpu_points *points, const struct panel *panel, const unsigned char *const *rows, int64_t first,
           int64_t count, int64_t vectors)
{
    switch (vectors) {
    case 1: tiles(points, panel, rows, first, count, 1, true); break;
    case 2: tiles(points, panel, rows, first, count, 2, true); break;
    case 3: tiles(points, panel, rows, first, count, 3, true); break;
    default: tiles(points, panel, rows, first, count, CPU_VECTORS, true); break;
    }
}

/* Where the pixels lie that rows of the result are made of. */
static void
find_rows(const struct cpu_points *points, const unsigned char *source, int64_t first, int64_t count,
          const unsigned char **ret_rows)
{
    int64_t line = first / points->out_width, x = first % points->out_width;

    for (int64_t r = 0; r < count; line++, x = 0) {
        const int64_t item = line / points->out_height, y = line % points->out_height * points->stride_down;
        const unsigned char *pixels = source + (item * points->height + y) * points->width * points->inputs;
        for (; x < points->out_width && r < count; x++, r++) {
            ret_rows[r] = pixels + x * points->stride_across * points->inputs;
        }
    }
}

void
cpu_points_run(const struct cpu_points *points, const void *source, const int8_t *weights, const int32_t *starts,
               const float *sums, const float *bias, const void *addend, void *result, uint32_t member, uint32_t members)
{
    const int64_t panels = (points->outputs + CPU_PANEL - 1) / CPU_PANEL, fit = BLOCK_BYTES / points->inputs;
    const int64_t block = fit < CPU_ROWS ? CPU_ROWS : fit > BLOCK_ROWS ? BLOCK_ROWS : fit;
    const struct cpu_portion share =
        cpu_portion_of(points->items * points->out_height * points->out_width, panels, member, members);
    const unsigned char *rows[BLOCK_ROWS];

    for (int64_t first = share.first_row; first < share.last_row; first += block) {
        const int64_t left = share.last_row - first, count = left < block ? left : block;
        find_rows(points, source, first, count, rows);
        for (int64_t p = share.first_vector; p < share.last_vector; p++) {
            const int64_t output = p * CPU_PANEL, vectors = (points->outputs - output) / CPU_LANES;
            const int64_t next = p + 1 < share.last_vector ? p + 1 : share.first_vector;
            const struct panel panel = {.weights = weights + output * points->inputs,
                                        .next = weights + next * CPU_PANEL * points->inputs,
                                        .starts = starts + output,
                                        .sums = sums + output,
                                        .bias = bias + output,
                                        .addend = addend != NULL ? (const unsigned char *)addend + output : NULL,
                                        .result = (unsigned char *)result + output};
            (points->source_signed ? run_signed : run_unsigned)(points, &panel, rows, first, count, vectors);
        }
    }
}
