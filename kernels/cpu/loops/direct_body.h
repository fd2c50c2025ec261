/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/direct_body.h - what direct_kernel.h lists, in vectors of CPU_VECTOR_BITS. Included by files that name it by
 * DIRECT_KERNEL.
 */
#include <string.h>

#include "base/align.h"
#include "base/status.h"
#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/direct_kernel.h"
#include "kernels/cpu/loops/held.h"
#include "kernels/cpu/loops/product.h"

enum {
    /*
     * Rows of a block: as many as have this many bytes of channels, which stay in the second-level cache while all
     * weights pass, but not more than ROWS; twice that at most, so that blocks are of one size.
     */
    BLOCK_BYTES = 384 << 10,
    BLOCK_ROWS = 16 * CPU_ROWS,
    /* Of a 1x1 convolution with more channels, so many at a time, for blocks of enough rows. */
    SLICE_CHANNELS = 4096 / CPU_VECTORS,
    /* Groups of fewer rows than CPU_ROWS are faster than that cache: channels of which a panel's part stays in the first-level one. */
    FEW_ROWS = 6 * CPU_ROWS,
    FEW_CHANNELS = 256 / CPU_VECTORS,
    /* Smooth activations follow each panel; where its row is a single cache line, they follow the rows of a block. */
    BY_PANEL = CPU_PANEL > CPU_LINE,
};

static int64_t
panels_of(const struct cpu_direct *conv)
{
    return (conv->outputs + CPU_PANEL - 1) / CPU_PANEL;
}

static int64_t
taps_of(const struct cpu_direct *conv)
{
    return conv->kernel_down * conv->kernel_across;
}

static size_t
weights_bytes(const struct cpu_direct *conv)
{
    return (size_t)(panels_of(conv) * taps_of(conv) * conv->inputs * CPU_PANEL) * sizeof(float);
}

/* [panels][taps][inputs][CPU_PANEL], with zeros behind the last output. Nothing of it is read soon: lines go past the caches. */
CPU_KERNEL static void
pack(const struct cpu_direct *conv, const float *weights, float *ret_packed)
{
    const int64_t taps = taps_of(conv), inputs = conv->inputs, length = inputs * taps;

    for (int64_t o = 0; o < panels_of(conv) * CPU_PANEL; o += CPU_LANES) {
        float *panel = ret_packed + o / CPU_PANEL * length * CPU_PANEL + o % CPU_PANEL;
        int64_t input = 0, tap = 0;
        for (int64_t begin = 0; begin < length; begin += CPU_LANES) {
            cpu_floats x[CPU_LANES];
            for (int64_t r = 0; r < CPU_LANES; r++) {
                const float *row = weights + (o + r) * length + begin;
                x[r] = o + r < conv->outputs ? cpu_load_first(row, length - begin) : CPU_V(setzero)();
            }
            cpu_transpose(x);
            for (int64_t c = 0; c < CPU_LANES && begin + c < length; c++) {
                float *to = panel + (tap * inputs + input) * CPU_PANEL;
                if (CPU_LANES == CPU_LINE) {
                    CPU_V(stream)(to, x[c]);
                } else {
                    CPU_V(store)(to, x[c]);
                }
                tap = tap + 1 < taps ? tap + 1 : 0;
                input += tap == 0;
            }
        }
    }
    _mm_sfence(); /* before anybody is told where they are */
}

static void
pack_transposed(const struct cpu_direct *conv, const float *weights, float *ret_packed)
{
    LEAT_ASSERT(taps_of(conv) == 1);
    for (int64_t p = 0; p < panels_of(conv); p++) {
        const int64_t left = conv->outputs - p * CPU_PANEL, count = left < CPU_PANEL ? left : CPU_PANEL;
        for (int64_t i = 0; i < conv->inputs; i++, ret_packed += CPU_PANEL) {
            memcpy(ret_packed, weights + i * conv->outputs + p * CPU_PANEL, (size_t)count * sizeof(*weights));
            memset(ret_packed + count, 0, (size_t)(CPU_PANEL - count) * sizeof(*weights));
        }
    }
}

/* Channels at a time: slices of one size, all that there are where there is one. */
static int64_t
slice_of(const struct cpu_direct *conv)
{
    const int64_t slices = taps_of(conv) == 1 ? (conv->inputs + SLICE_CHANNELS - 1) / SLICE_CHANNELS : 1;
    const int64_t channels = (conv->inputs + slices - 1) / slices;
    return slices == 1 ? conv->inputs : (channels + CPU_CHANNELS - 1) / CPU_CHANNELS * CPU_CHANNELS;
}

/* Some channels of one pixel of the windows, for some vectors of one panel. */
struct part {
    int64_t channel, channels;
    const float *weights;        /* of these channels, from the first of these vectors on */
    const float *next;           /* weights that come after them */
    const float *source;         /* pixels that come after the block: as many lines as the block has of these channels */
    const float *bias;
    int vectors;
    bool first, last;
};

/* `count` rows, a constant, from `result` on. */
CPU_INLINE void
multiply_rows(const struct cpu_direct *conv, const struct part *part, const float *const pixels[], const float *ahead,
              int64_t step, float *result, const int vectors, const int count)
{
    const float *rows[CPU_ROWS];
    cpu_floats sums[CPU_ROWS][CPU_VECTORS];

    if (part->first) {
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                _mm_prefetch((const char *)(result + (CPU_ROWS + r) * conv->outputs + v * CPU_LANES), _MM_HINT_T0);
            }
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        const bool has = part->first && part->bias != NULL;
        const cpu_floats start = has ? CPU_V(loadu)(part->bias + v * CPU_LANES) : CPU_V(setzero)();
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            sums[r][v] = start;
        }
    }
    if (!part->first || conv->add) {
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                sums[r][v] = CPU_V(add)(sums[r][v], CPU_V(load)(result + r * conv->outputs + v * CPU_LANES));
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
        rows[r] = pixels[r] + part->channel;
    }
    cpu_product_in_steps(rows, part->channels, part->weights, ahead, step, sums, vectors, count);
    if (part->last) {
        const cpu_floats least = CPU_V(set1)(conv->least), most = CPU_V(set1)(conv->most);
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) { /* in this order NaN stays NaN */
                sums[r][v] = CPU_V(min)(most, CPU_V(max)(least, sums[r][v]));
            }
        }
        if (conv->bend != LEAT_ACTIVATION_NONE) {
#pragma GCC unroll 6
            for (int r = 0; r < count; r++) {
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++) {
                    sums[r][v] = cpu_bent(conv->bend, conv->slope, sums[r][v]);
                }
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            CPU_V(store)(result + r * conv->outputs + v * CPU_LANES, sums[r][v]);
        }
    }
}

CPU_INLINE void
multiply_group(const struct cpu_direct *conv, const struct part *part, const float *const pixels[], const float *ahead,
               int64_t step, float *result, const int count)
{
    switch (part->vectors) {
    case 1: multiply_rows(conv, part, pixels, ahead, step, result, 1, count); break;
#if CPU_VECTORS > 2
    case 2: multiply_rows(conv, part, pixels, ahead, step, result, 2, count); break;
    case 3: multiply_rows(conv, part, pixels, ahead, step, result, 3, count); break;
#endif
    default: multiply_rows(conv, part, pixels, ahead, step, result, CPU_VECTORS, count); break;
    }
}

_Static_assert(CPU_PANEL % CPU_STEPS == 0 && CPU_PANEL >= CPU_LINE, "CPU_STEPS groups ask for no line twice");

/* How many groups ask for the next panel: with AVX2 as many as can, for memory keeps up with few lines at a time. */
static int64_t
asking_groups(int64_t groups, int64_t lines)
{
    int64_t asking = lines;

    while (CPU_LANES < CPU_LINE && 2 * asking <= groups && 2 * asking <= CPU_STEPS) {
        asking *= 2;
    }
    return asking;
}

/* All rows of a block. While the first of them run, the next weights come into the second-level cache. */
CPU_KERNEL static void
multiply(const struct cpu_direct *conv, const struct part *part, const float *const pixels[], int64_t count,
         float *result)
{
    const int64_t groups = cpu_groups(count), floats = part->channels * CPU_LINE; /* of a line of each channel */
    const bool whole = part->vectors == CPU_VECTORS || CPU_LANES < CPU_LINE; /* asked for */
    const int64_t lines = (part->vectors * CPU_LANES + CPU_LINE - 1) / CPU_LINE; /* of a channel's weights */
    const int64_t asking = whole ? asking_groups(groups, lines) : lines;
    for (int64_t g = 0; g < groups; g++) {
        const int64_t r = count * g / groups, source = (g - asking) * floats;
        /* Of whole panels one part after another, else one line after another of each channel. */
        const int64_t part_of_panel = CPU_PANEL / asking; /* floats of each channel */
        const bool sources = g >= asking && part->source != NULL && source < count * part->channels;
        const int64_t step = g < asking ? whole ? part_of_panel : CPU_PANEL : sources ? CPU_LINE : CPU_NO_STEP;
        const float *const *from = pixels + r;
        const float *ahead = g < asking ? part->next + g * (whole ? part->channels * part_of_panel : CPU_LINE)
                             : sources  ? part->source + source
                                        : part->weights; /* are there */
        float *to = result + r * conv->outputs;
        switch (count * (g + 1) / groups - r) {
        case 1: multiply_group(conv, part, from, ahead, step, to, 1); break;
        case 2: multiply_group(conv, part, from, ahead, step, to, 2); break;
#if CPU_ROWS > 3
        case 3: multiply_group(conv, part, from, ahead, step, to, 3); break;
        case 4: multiply_group(conv, part, from, ahead, step, to, 4); break;
        case 5: multiply_group(conv, part, from, ahead, step, to, 5); break;
#endif
        default: multiply_group(conv, part, from, ahead, step, to, CPU_ROWS); break;
        }
        if (part->last && BY_PANEL && conv->smooth != LEAT_ACTIVATION_NONE) { /* while they are in the first-level cache */
            for (int64_t row = r; row < count * (g + 1) / groups; row++) {
                cpu_activate(conv->smooth, result + row * conv->outputs, (size_t)(part->vectors * CPU_LANES));
            }
        }
    }
}

/* ---- Blocks ----------------------------------------------------------------------------------------- */

/* A member's share: rows are the pixels of the result, vectors its channels. */
struct share {
    int64_t first_row, last_row, block; /* rows of a block */
    int64_t first_vector, last_vector;
};

static struct share
share_of(const struct cpu_direct *conv, uint32_t member, uint32_t members)
{
    const int64_t rows = conv->items * conv->out_height * conv->out_width, vectors = conv->outputs / CPU_LANES;
    /* Few pixels are shared by all members, who split the weights: each weight is then read by one of them. */
    const bool by_vectors = rows < (int64_t)members * BLOCK_ROWS && vectors >= (int64_t)members;
    struct share share = {0, rows, 0, 0, vectors};

    if (by_vectors) {
        share.first_vector = vectors * member / members;
        share.last_vector = vectors * (member + 1) / members;
    } else {
        share.first_row = rows * member / members;
        share.last_row = rows * (member + 1) / members;
    }
    const int64_t count = share.last_row - share.first_row;
    const int64_t fitting = BLOCK_BYTES / (int64_t)sizeof(float) / slice_of(conv);
    const int64_t least = fitting < CPU_ROWS ? CPU_ROWS : fitting > BLOCK_ROWS ? BLOCK_ROWS : fitting;
    const int64_t blocks = count < least ? 1 : count / least;
    share.block = ((count + blocks - 1) / blocks + CPU_ROWS - 1) / CPU_ROWS * CPU_ROWS;
    return share;
}

enum { BLOCK_ROWS_MAX = 2 * BLOCK_ROWS + CPU_ROWS };

static size_t
pixels_bytes(const struct cpu_direct *conv)
{
    return (size_t)leat_round_up((uint64_t)taps_of(conv) * BLOCK_ROWS_MAX * sizeof(float *), 64);
}

static size_t
scratch_bytes(const struct cpu_direct *conv)
{
    return pixels_bytes(conv) + (size_t)leat_round_up((uint64_t)conv->inputs * sizeof(float), 64);
}

/* [taps][BLOCK_ROWS_MAX]: where the windows of `count` rows lie; `zeros` outside of the source. */
static void
find_pixels(const struct cpu_direct *conv, bool dense, const float *source, const float *zeros, int64_t row,
            int64_t count, const float **ret_pixels)
{
    if (dense) {
        for (int64_t r = 0; r < count; r++) {
            ret_pixels[r] = source + (row + r) * conv->inputs;
        }
        return;
    }
    for (int64_t r = 0; r < count; r++) {
        const int64_t x = (row + r) % conv->out_width * conv->stride_across - conv->pad_left;
        const int64_t y = (row + r) / conv->out_width % conv->out_height * conv->stride_down - conv->pad_top;
        const int64_t item = (row + r) / conv->out_width / conv->out_height;
        for (int64_t t = 0; t < taps_of(conv); t++) {
            const int64_t sx = x + t % conv->kernel_across, sy = y + t / conv->kernel_across;
            const bool inside = sx >= 0 && sx < conv->width && sy >= 0 && sy < conv->height;
            ret_pixels[t * BLOCK_ROWS_MAX + r] =
                inside ? source + ((item * conv->height + sy) * conv->width + sx) * conv->inputs : zeros;
        }
    }
}

/* Of a vector of results: the first of its weights in its panel, from channel `begin` on. */
static const float *
weights_of(const struct cpu_direct *conv, const float *packed, int64_t vector, int64_t begin)
{
    const int64_t panel = vector / CPU_VECTORS * taps_of(conv) * conv->inputs;
    return packed + (panel + begin) * CPU_PANEL + vector % CPU_VECTORS * CPU_LANES;
}

/* Channels of a part: all, where there is but one group of rows to read its weights. */
static int64_t
channels_of(int64_t rows, int64_t all)
{
    return rows <= CPU_ROWS ? all : rows < FEW_ROWS ? FEW_CHANNELS : CPU_CHANNELS;
}

/* A block's channels from `begin` to `end` with the vectors of a share. */
static void
multiply_slice(const struct cpu_direct *conv, const struct share *share, const float *const *pixels, int64_t count,
               int64_t begin, int64_t end, const float *packed, const float *bias, bool dense, float *result)
{
    const int64_t taps = taps_of(conv), inputs = conv->inputs, most = channels_of(count, end - begin);

    for (int64_t v = share->first_vector, next; v < share->last_vector; v = next) {
        const int64_t end_of_panel = (v / CPU_VECTORS + 1) * CPU_VECTORS;
        const float *weights = weights_of(conv, packed, v, begin);
        next = end_of_panel < share->last_vector ? end_of_panel : share->last_vector;
        /* Of the next vectors, or of the next slice and the first. */
        const float *then = next < share->last_vector ? weights_of(conv, packed, next, begin)
                                                      : weights_of(conv, packed, share->first_vector, end % inputs);
        for (int64_t t = 0; t < taps; t++) {
            for (int64_t c = begin; c < end; c += most) {
                const int64_t channels = end - c < most ? end - c : most;
                const bool last = t + 1 == taps && c + channels == end;
                const struct part part = {
                    .channel = c,
                    .channels = channels,
                    .weights = weights,
                    .next = last ? then : weights + channels * CPU_PANEL,
                    .source = dense && v == share->first_vector ? pixels[0] + share->block * inputs + c * share->block : NULL,
                    .bias = bias != NULL ? bias + v * CPU_LANES : NULL,
                    .vectors = (int)(next - v),
                    .first = t == 0 && c == 0,
                    .last = last && end == inputs,
                };
                multiply(conv, &part, pixels + t * BLOCK_ROWS_MAX, count, result + v * CPU_LANES);
                weights += channels * CPU_PANEL;
            }
        }
    }
    if (!BY_PANEL && end == inputs && conv->smooth != LEAT_ACTIVATION_NONE) {
        for (int64_t r = 0; r < count; r++) {
            cpu_activate(conv->smooth, result + r * conv->outputs + share->first_vector * CPU_LANES,
                         (size_t)((share->last_vector - share->first_vector) * CPU_LANES));
        }
    }
}

static void
run(const struct cpu_direct *conv, const float *source, const float *packed, const float *bias, float *result,
               void *scratch, uint32_t member, uint32_t members)
{
    const struct share share = share_of(conv, member, members);
    const int64_t taps = taps_of(conv), inputs = conv->inputs, slice = slice_of(conv);
    /* The next block's pixels follow this one's. */
    const bool dense = taps == 1 && conv->out_height == conv->height && conv->out_width == conv->width &&
                       conv->pad_top == 0 && conv->pad_left == 0;
    const float **pixels = scratch, *zeros = (const float *)((unsigned char *)scratch + pixels_bytes(conv));

    memset((unsigned char *)scratch + pixels_bytes(conv), 0, (size_t)inputs * sizeof(float));
    for (int64_t row = share.first_row; row < share.last_row; row += share.block) {
        const int64_t left = share.last_row - row, count = left < share.block ? left : share.block;
        find_pixels(conv, dense, source, zeros, row, count, pixels);
        for (int64_t c = 0; c < inputs; c += slice) {
            multiply_slice(conv, &share, pixels, count, c, inputs - c < slice ? inputs : c + slice, packed, bias,
                           dense && slice == inputs, result + row * conv->outputs);
        }
    }
}

static void
multiply_anywhere(const struct cpu_direct *conv, const float *const rows[], int64_t count, const float *packed,
                    const float *bias, int64_t first_vector, int64_t last_vector, float *result)
{
    const int64_t inputs = conv->inputs, slice = slice_of(conv);

    for (int64_t row = 0; row < count; row += BLOCK_ROWS) {
        const int64_t block = count - row < BLOCK_ROWS ? count - row : BLOCK_ROWS;
        const struct share share = {.block = block, .first_vector = first_vector, .last_vector = last_vector};
        for (int64_t c = 0; c < inputs; c += slice) {
            multiply_slice(conv, &share, rows + row, block, c, inputs - c < slice ? inputs : c + slice, packed, bias, false,
                           result + row * conv->outputs);
        }
    }
}

const struct cpu_direct_kernel DIRECT_KERNEL = {
    weights_bytes, pack, pack_transposed, scratch_bytes, run, multiply_anywhere,
};
