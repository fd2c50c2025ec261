/* SPDX-License-Identifier: Apache-2.0 */
#define CPU_VECTOR_BITS 256
#define CPU_VECTORS     4
#include "kernels/cpu/loops/fours.h"

#include <string.h>

#include "base/align.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/fours_store.h"
#include "kernels/cpu/loops/portion.h"
#include "kernels/cpu/loops/product.h"

enum {
    STEP = 2 * CPU_FOURS_INPUTS,                  /* inputs that are multiplied at a time */
    PANEL_BYTES = CPU_PANEL * CPU_FOURS_INPUTS,   /* what half a step through a panel reads */
    VECTOR_BYTES = CPU_LANES * CPU_FOURS_INPUTS,  /* of it a vector of outputs */
    LINES = PANEL_BYTES / 64,
    BLOCK_BYTES = 128 << 10, /* of the source, which all panels read: a good part of the second-level cache */
    BLOCK_ROWS = 96,
    FLIP = 128 /* makes s8 u8, and adds as much */
};

bool
cpu_fours_run_here(void)
{
    return cpu_has_avx2() && !cpu_has_avx512();
}

static size_t
bytes_of(dnnl_data_type_t type)
{
    return type == dnnl_f32 ? sizeof(float) : 1;
}

static int64_t
taps_of(const struct cpu_fours *conv)
{
    return conv->kernel_down * conv->kernel_across;
}

/* Of a pixel, those filled up with zeros too. */
static int64_t
whole_inputs(const struct cpu_fours *conv)
{
    return (int64_t)leat_round_up((uint64_t)conv->inputs, CPU_FOURS_INPUTS);
}

/* [panels][kernel_down][kernel_across][inputs / CPU_FOURS_INPUTS][CPU_PANEL][CPU_FOURS_INPUTS] */
dnnl_memory_desc_t
cpu_fours_weights_md(const struct cpu_fours *conv)
{
    const int64_t tap_bytes = whole_inputs(conv) / CPU_FOURS_INPUTS * PANEL_BYTES;

    return (dnnl_memory_desc_t){
        .ndims = 4,
        .dims = {conv->outputs, conv->inputs, conv->kernel_down, conv->kernel_across},
        .data_type = dnnl_s8,
        .padded_dims = {(int64_t)leat_round_up((uint64_t)conv->outputs, CPU_PANEL), whole_inputs(conv), conv->kernel_down,
                        conv->kernel_across},
        .format_kind = dnnl_blocked,
        .format_desc.blocking = {.strides = {taps_of(conv) * tap_bytes, PANEL_BYTES, conv->kernel_across * tap_bytes, tap_bytes},
                                 .inner_nblks = 2,
                                 .inner_blks = {CPU_PANEL, CPU_FOURS_INPUTS},
                                 .inner_idxs = {0, 1}},
    };
}

void
cpu_fours_starts(const struct cpu_fours *conv, const int8_t *weights, int32_t *ret_starts)
{
    const int64_t length = taps_of(conv) * whole_inputs(conv);

    for (int64_t o = 0; o < conv->outputs; o++) {
        const int8_t *panel = weights + o / CPU_PANEL * CPU_PANEL * length + o % CPU_PANEL * CPU_FOURS_INPUTS;
        int32_t sum = 0;
        for (int64_t i = 0; i < length && conv->source_signed; i++) {
            sum += panel[i / CPU_FOURS_INPUTS * PANEL_BYTES + i % CPU_FOURS_INPUTS];
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

/* Sums as the instruction has them: GCC keeps arrays of these in registers, but not of __m256i, whose lanes have 64 bits. */
typedef int32_t sums_of __attribute__((vector_size(32)));

/* ---- Results ---------------------------------------------------------------------------------------- */

/* With what is added. */
CPU_INLINE __m256
scale(const struct cpu_fours *conv, const struct panel *panel, sums_of sums, int64_t at, int v)
{
    const __m256 result = _mm256_fmadd_ps(_mm256_cvtepi32_ps((__m256i)sums), _mm256_load_ps(panel->sums + v * CPU_LANES),
                                          _mm256_load_ps(panel->bias + v * CPU_LANES));

    if (panel->addend == NULL) {
        return result;
    }
    if (conv->addend == dnnl_f32) {
        return _mm256_add_ps(result, _mm256_loadu_ps((const float *)(const void *)panel->addend + at + v * CPU_LANES));
    }
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(panel->addend + at + v * CPU_LANES));
    const __m256i numbers = conv->addend == dnnl_s8 ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(numbers), _mm256_set1_ps(conv->addend_scale), result);
}

/* ---- Sums ------------------------------------------------------------------------------------------- */

/* Neighbouring inputs of a row, in all lanes. */
CPU_INLINE __m256i
inputs_at(const unsigned char *row, const bool flips)
{
    int32_t four;
    memcpy(&four, row, sizeof(four));
    const __m256i inputs = _mm256_set1_epi32(four);
    return flips ? _mm256_xor_si256(inputs, _mm256_set1_epi8((char)FLIP)) : inputs;
}

/* The last ones of a row, fewer than four. */
CPU_INLINE __m256i
last_inputs_at(const unsigned char *row, int64_t left, const bool flips)
{
    unsigned char four[CPU_FOURS_INPUTS] = {0};

    for (int64_t i = 0; i < left; i++) {
        four[i] = row[i];
    }
    return inputs_at(four, flips);
}

CPU_INLINE __m256i
weights_at(const int8_t *weights)
{
    return _mm256_load_si256((const __m256i *)(const void *)weights);
}

CPU_INLINE sums_of
add_pairs(sums_of sums, __m256i pairs)
{
    return (sums_of)_mm256_add_epi32((__m256i)sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/*
 * `count` rows from `first` on and `vectors` of the panel's outputs, all but `first` constants. Meanwhile asks for one line of
 * each half step of the next panel from `ahead` on: as many tiles as it has lines bring in a panel.
 */
CPU_INLINE void
tile(const struct cpu_fours *conv, const struct panel *panel, const unsigned char *const *rows, int64_t first, const int8_t *ahead,
     const int vectors, const int count, const bool flips)
{
    const int8_t *weights = panel->weights;
    const int64_t taps = taps_of(conv);
    sums_of sums[CPU_ROWS][CPU_VECTORS];

#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        const sums_of start = (sums_of)_mm256_load_si256((const __m256i *)(const void *)(panel->starts + v * CPU_LANES));
#pragma GCC unroll 3
        for (int r = 0; r < count; r++) {
            sums[r][v] = start;
        }
    }
    for (int64_t t = 0; t < taps; t++, rows += BLOCK_ROWS) {
        const unsigned char *row[CPU_ROWS];
        int64_t i = 0;
#pragma GCC unroll 3
        for (int r = 0; r < count; r++) {
            row[r] = rows[r];
        }
        for (; i + STEP <= conv->inputs; i += STEP, weights += 2 * PANEL_BYTES, ahead += 2 * PANEL_BYTES) {
            _mm_prefetch(ahead, _MM_HINT_T1);
            _mm_prefetch(ahead + PANEL_BYTES, _MM_HINT_T1);
#pragma GCC unroll 3
            for (int r = 0; r < count; r++) {
                const __m256i x = inputs_at(row[r] + i, flips), y = inputs_at(row[r] + i + CPU_FOURS_INPUTS, flips);
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++) {
                    const __m256i a = _mm256_maddubs_epi16(x, weights_at(weights + v * VECTOR_BYTES));
                    const __m256i b = _mm256_maddubs_epi16(y, weights_at(weights + PANEL_BYTES + v * VECTOR_BYTES));
                    sums[r][v] = add_pairs(sums[r][v], _mm256_add_epi16(a, b));
                }
            }
        }
        for (; i < conv->inputs; i += CPU_FOURS_INPUTS, weights += PANEL_BYTES, ahead += PANEL_BYTES) {
            const int64_t left = conv->inputs - i;
#pragma GCC unroll 3
            for (int r = 0; r < count; r++) {
                const __m256i x = left < CPU_FOURS_INPUTS ? last_inputs_at(row[r] + i, left, flips) : inputs_at(row[r] + i, flips);
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++) {
                    sums[r][v] = add_pairs(sums[r][v], _mm256_maddubs_epi16(x, weights_at(weights + v * VECTOR_BYTES)));
                }
            }
        }
    }
    _Alignas(32) float numbers[CPU_ROWS * CPU_PANEL];
#pragma GCC unroll 3
    for (int r = 0; r < count; r++) {
        const int64_t at = (first + r) * conv->outputs;
        __m256 results[CPU_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            results[v] = scale(conv, panel, sums[r][v], at, v);
        }
        if (conv->smooth == LEAT_ACTIVATION_NONE) {
            cpu_fours_store(conv, results, panel->result, at, vectors);
            continue;
        }
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            _mm256_store_ps(numbers + (r * vectors + v) * CPU_LANES, results[v]);
        }
    }
    if (conv->smooth != LEAT_ACTIVATION_NONE) {
        cpu_fours_store_smooth(conv, numbers, count, vectors, panel->result, first * conv->outputs);
    }
}

/* Rows first..first + count of all. */
CPU_INLINE void
tiles(const struct cpu_fours *conv, const struct panel *panel, const unsigned char *const *rows, int64_t first, int64_t count,
      const int vectors, const bool flips)
{
    const int64_t groups = cpu_groups(count);

    for (int64_t g = 0; g < groups; g++) {
        const int64_t begin = count * g / groups;
        const int8_t *ahead = panel->next + g % LINES * 64;
        switch (count * (g + 1) / groups - begin) {
        case 1: tile(conv, panel, rows + begin, first + begin, ahead, vectors, 1, flips); break;
        case 2: tile(conv, panel, rows + begin, first + begin, ahead, vectors, 2, flips); break;
        default: tile(conv, panel, rows + begin, first + begin, ahead, vectors, CPU_ROWS, flips); break;
        }
    }
}

CPU_KERNEL static void
run_unsigned(const struct cpu_fours *conv, const struct panel *panel, const unsigned char *const *rows, int64_t first, int64_t count,
             int64_t vectors)
{
    switch (vectors) {
    case 1: tiles(conv, panel, rows, first, count, 1, false); break;
    case 2: tiles(conv, panel, rows, first, count, 2, false); break;
    case 3: tiles(conv, panel, rows, first, count, 3, false); break;
    default: tiles(conv, panel, rows, first, count, CPU_VECTORS, false); break;
    }
}

CPU_KERNEL static void
run_signed(const struct cpu_fours *conv, const struct panel *panel, const unsigned char *const *rows, int64_t first, int64_t count,
           int64_t vectors)
{
    switch (vectors) {
    case 1: tiles(conv, panel, rows, first, count, 1, true); break;
    case 2: tiles(conv, panel, rows, first, count, 2, true); break;
    case 3: tiles(conv, panel, rows, first, count, 3, true); break;
    default: tiles(conv, panel, rows, first, count, CPU_VECTORS, true); break;
    }
}

/* ---- Blocks ----------------------------------------------------------------------------------------- */

/* [taps][BLOCK_ROWS]: where the pixels lie that rows of the result are made of; `outside` of the source another one. */
static void
find_rows(const struct cpu_fours *conv, const unsigned char *source, const unsigned char *outside, int64_t first, int64_t count,
          const unsigned char **ret_rows)
{
    for (int64_t r = 0; r < count; r++) {
        const int64_t line = (first + r) / conv->out_width, item = line / conv->out_height;
        const int64_t y = line % conv->out_height * conv->stride_down - conv->pad_top;
        const int64_t x = (first + r) % conv->out_width * conv->stride_across - conv->pad_left;
        const unsigned char **to = ret_rows + r;
        for (int64_t sy = y; sy < y + conv->kernel_down; sy++) {
            for (int64_t sx = x; sx < x + conv->kernel_across; sx++, to += BLOCK_ROWS) {
                const bool inside = sy >= 0 && sy < conv->height && sx >= 0 && sx < conv->width;
                *to = inside ? source + ((item * conv->height + sy) * conv->width + sx) * conv->inputs : outside;
            }
        }
    }
}

static void
run_panel(const struct cpu_fours *conv, const struct panel *panel, const unsigned char *const *rows, int64_t first, int64_t count,
          int64_t vectors)
{
    (conv->source_signed ? run_signed : run_unsigned)(conv, panel, rows, first, count, vectors);
}

/* The last one, of `outputs` that are no whole vectors: it is made of whole ones first, as are addends. */
static void
run_last_panel(const struct cpu_fours *conv, const struct panel *panel, const unsigned char *const *rows, int64_t first, int64_t count,
               int64_t outputs)
{
    const int64_t vectors = (outputs + CPU_LANES - 1) / CPU_LANES, wide = vectors * CPU_LANES;
    const size_t each = bytes_of(conv->result), each_addend = bytes_of(conv->addend);
    _Alignas(64) unsigned char results[BLOCK_ROWS * CPU_PANEL * sizeof(float)], addends[BLOCK_ROWS * CPU_PANEL * sizeof(float)] = {0};
    struct cpu_fours as_wide = *conv;
    struct panel whole = *panel;

    as_wide.outputs = wide;
    whole.result = results;
    for (int64_t r = 0; r < count && panel->addend != NULL; r++) {
        const unsigned char *from = panel->addend + (size_t)((first + r) * conv->outputs) * each_addend;
        memcpy(addends + (size_t)(r * wide) * each_addend, from, (size_t)outputs * each_addend);
        whole.addend = addends;
    }
    run_panel(&as_wide, &whole, rows, 0, count, vectors);
    for (int64_t r = 0; r < count; r++) {
        memcpy(panel->result + (size_t)((first + r) * conv->outputs) * each, results + (size_t)(r * wide) * each, (size_t)outputs * each);
    }
}

void
cpu_fours_run(const struct cpu_fours *conv, const void *source, const int8_t *weights, const int32_t *starts, const float *sums,
              const float *bias, const void *addend, void *result, uint32_t member, uint32_t members)
{
    const int64_t panels = (conv->outputs + CPU_PANEL - 1) / CPU_PANEL, panel_bytes = CPU_PANEL * taps_of(conv) * whole_inputs(conv);
    const int64_t fit = BLOCK_BYTES / conv->inputs / CPU_ROWS * CPU_ROWS;
    const int64_t block = fit < CPU_ROWS ? CPU_ROWS : fit > BLOCK_ROWS ? BLOCK_ROWS : fit;
    const struct cpu_portion share =
        cpu_portion_of(conv->items * conv->out_height * conv->out_width, panels, member, members);
    const unsigned char *rows[CPU_FOURS_TAPS_MAX * BLOCK_ROWS];
    unsigned char outside[CPU_FOURS_PADDED_MAX];

    memset(outside, conv->rest, sizeof(outside)); /* windows of one pixel can be padded, too */
    for (int64_t first = share.first_row; first < share.last_row; first += block) {
        const int64_t left = share.last_row - first, count = left < block ? left : block;
        find_rows(conv, source, outside, first, count, rows);
        for (int64_t p = share.first_vector; p < share.last_vector; p++) {
            const int64_t output = p * CPU_PANEL, there = conv->outputs - output;
            const int64_t next = p + 1 < share.last_vector ? p + 1 : share.first_vector;
            const struct panel panel = {
                .weights = weights + p * panel_bytes,
                .next = weights + next * panel_bytes,
                .starts = starts + output,
                .sums = sums + output,
                .bias = bias + output,
                .addend = addend != NULL ? (const unsigned char *)addend + (size_t)output * bytes_of(conv->addend) : NULL,
                .result = (unsigned char *)result + (size_t)output * bytes_of(conv->result),
            };
            if (there < CPU_PANEL && there % CPU_LANES != 0) {
                run_last_panel(conv, &panel, rows, first, count, there);
            } else {
                run_panel(conv, &panel, rows, first, count, there / CPU_LANES);
            }
        }
    }
}
