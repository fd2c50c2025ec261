/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/integers_narrow.h - the part of integers_body.h that multiplies 8 bits: four products for each sum at a time.
 *
 * Exact      With VNNI as they are. Without, pairs of products are added up in 16 bits, which they fit if weights of one sign of a
 *            pair are at most NARROW_SUM together. What is beyond that goes into further rows of the panel, of which there are few
 *            where weights have a bell's distribution; where there are many, 16 bits are faster.
 * Zeros      x - x0 times w - w0, added up, are the sums of x w, less w0 times the row's sum, less x0 times (the column's sum, less
 *            w0 for each product). All wraps as the result does.
 */
enum {
    QUAD = 4,                          /* numbers that one lane multiplies at a time */
    QUADS = CPU_PANEL * QUAD,          /* numbers of four rows of a panel */
    NARROW_SLICE = SLICE_BYTES / CPU_PANEL,
    NARROW_SUM = 128,                  /* times 255 it fits 16 bits */
    FURTHER_SHARE = 8                  /* of its rows so many a panel may have further ones for, on average */
};

typedef uint32_t wraps __attribute__((vector_size(CPU_VECTOR_BITS / 8)));

static int64_t
quads_of(int64_t inner)
{
    return (inner + QUAD - 1) / QUAD;
}

/* Where the parts of packed weights lie. */
struct narrow {
    uint32_t *column_sums; /* [panels][CPU_PANEL] */
    int32_t *starts;      /* [panels + 1]: further rows of a panel, in fours */
    int32_t *offsets;     /* which numbers of a row of x they multiply */
    int8_t *further, *weights;
    int64_t most; /* of further ones */
};

static size_t
round_to_line(int64_t bytes)
{
    return (size_t)leat_round_up((uint64_t)bytes, 64);
}

/* *ret_bytes: of all. */
static struct narrow
narrow_of(const void *packed, int64_t inner, int64_t columns, size_t *ret_bytes)
{
    const int64_t panels = panels_of(columns), most = panels * quads_of(inner) / FURTHER_SHARE;
    const size_t sums = 64, starts = sums + round_to_line(panels * CPU_PANEL * 4);
    const size_t offsets = starts + round_to_line((panels + 1) * 4);
    const size_t further = offsets + round_to_line(most * 4), weights = further + (size_t)(most * QUADS);
    char *at = (char *)(uintptr_t)packed;

    *ret_bytes = weights + (size_t)(panels * quads_of(inner) * QUADS);
    return at == NULL ? (struct narrow){.most = most}
                      : (struct narrow){(uint32_t *)(void *)(at + sums), (int32_t *)(void *)(at + starts),
                                        (int32_t *)(void *)(at + offsets), (int8_t *)(at + further), (int8_t *)(at + weights),
                                        most};
}

/* What a pair may not have is taken off its second number. */
static bool
cap_pair(int8_t *pair, int8_t *ret_rest)
{
    const int32_t sum = pair[0] + pair[1];
    const int32_t bound = sum > 0 ? NARROW_SUM : -NARROW_SUM;

    if (INTEGERS_CAP_NOTHING || abs(sum) <= NARROW_SUM) { /* of two signs they are less than each */
        return false;
    }
    ret_rest[1] = (int8_t)(sum - bound);
    pair[1] = (int8_t)(bound - pair[0]);
    return true;
}

/* False where there are too many further rows. */
static bool
pack_narrow(const uint8_t *b, bool b_signed, int64_t inner, int64_t columns, void *ret_packed)
{
    const uint8_t flip = b_signed ? 0 : FLIP;
    size_t bytes;
    struct narrow to = narrow_of(ret_packed, inner, columns, &bytes);
    int64_t further = 0, panel = 0;

    memset(to.column_sums, 0, (size_t)(panels_of(columns) * CPU_PANEL) * sizeof(*to.column_sums));
    for (int64_t first = 0; first < columns; first += CPU_PANEL, panel++) {
        const int64_t count = columns - first < CPU_PANEL ? columns - first : CPU_PANEL;
        to.starts[panel] = (int32_t)further;
        for (int64_t i = 0; i < inner; i += QUAD, to.weights += QUADS) {
            int8_t rest[QUADS] = {0};
            bool capped = false;
            memset(to.weights, 0, QUADS);
            for (int64_t k = i; k < i + QUAD && k < inner; k++) {
                for (int64_t c = 0; c < count; c++) {
                    const int32_t weight = (int8_t)(b[k * columns + first + c] ^ flip);
                    to.weights[c * QUAD + k - i] = (int8_t)weight;
                    to.column_sums[first + c] += (uint32_t)weight; /* it wraps */
                }
            }
            for (int64_t pair = 0; pair < QUADS; pair += 2) {
                capped |= cap_pair(to.weights + pair, rest + pair);
            }
            if (capped && further == to.most) {
                return false;
            }
            if (capped) {
                to.offsets[further] = (int32_t)i;
                memcpy(to.further + further++ * QUADS, rest, QUADS);
            }
        }
    }
    to.starts[panel] = (int32_t)further;
    return true;
}

/* ---- x as u8 ---------------------------------------------------------------------------------------- */

/* Sums of rows, then their bytes, filled up to whole fours. */
static size_t
narrow_bytes(int64_t rows, int64_t inner)
{
    return round_to_line(rows * 4) + (size_t)(rows * quads_of(inner) * QUAD);
}

static uint8_t *
bytes_of(const struct cpu_integers *p, const void *scratch)
{
    return (uint8_t *)(uintptr_t)scratch + round_to_line(p->rows * 4);
}

INTS_TARGET static void
copy_rows(const struct cpu_integers *p, const uint8_t *a, int64_t begin, int64_t end, void *ret_scratch)
{
    const int64_t width = quads_of(p->inner) * QUAD;
    const uint8_t flip = p->a_signed ? FLIP : 0;
    const __m256i flips = _mm256_set1_epi8((char)flip), none = _mm256_setzero_si256();
    uint32_t *sums = ret_scratch;

    for (int64_t r = begin; r < end; r++) {
        const uint8_t *from = a + r * p->inner;
        uint8_t *to = bytes_of(p, ret_scratch) + r * width;
        uint64_t eights[4], sum = 0;
        __m256i added = none;
        int64_t i = 0;
        for (; i + 32 <= p->inner; i += 32) {
            const __m256i x = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(const void *)(from + i)), flips);
            _mm256_storeu_si256((__m256i *)(void *)(to + i), x);
            added = _mm256_add_epi64(added, _mm256_sad_epu8(x, none));
        }
        _mm256_storeu_si256((__m256i *)(void *)eights, added);
        sum = eights[0] + eights[1] + eights[2] + eights[3];
        for (; i < p->inner; i++) {
            to[i] = from[i] ^ flip;
            sum += to[i];
        }
        memset(to + i, 0, (size_t)(width - i));
        sums[r] = (uint32_t)sum;
    }
}

/* ---- Sums ------------------------------------------------------------------------------------------- */

INTS_INLINE ints
add_quads(ints sums, ints x, ints weights)
{
#if INTEGERS_CAP_NOTHING
    return _mm512_dpbusd_epi32(sums, x, weights);
#else
    return INTS(add_epi32)(sums, INTS(madd_epi16)(INTS(maddubs_epi16)(x, weights), INTS(set1_epi16)(1)));
#endif
}

/* As tile(); of rows `width` bytes apart the fours that follow each other, or those at `offsets`. */
INTS_INLINE void
narrow_tile(const uint8_t *rows, int64_t width, int64_t quads, const int8_t *panel, const int32_t *offsets, int32_t *sums_at,
            bool first, const bool further, const int vectors, const int count)
{
    sums_of sums[CPU_ROWS][CPU_VECTORS];

#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            sums[r][v] = first ? (sums_of)INTS(set1_epi32)(0) : (sums_of)LOAD(sums_at + r * CPU_PANEL + v * CPU_LANES);
        }
    }
#pragma GCC unroll 2
    for (int64_t q = 0; q < quads; q++, panel += QUADS) {
        const uint8_t *from = rows + (further ? offsets[q] : q * QUAD);
        ints weights[CPU_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            weights[v] = LOAD(panel + v * CPU_LANES * QUAD);
        }
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            int32_t quad;
            memcpy(&quad, from + r * width, sizeof(quad));
            const ints x = INTS(set1_epi32)(quad);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                sums[r][v] = (sums_of)add_quads((ints)sums[r][v], x, weights[v]);
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            STORE(sums_at + r * CPU_PANEL + v * CPU_LANES, (ints)sums[r][v]);
        }
    }
}

INTS_INLINE void
narrow_tiles(const uint8_t *rows, int64_t count, int64_t width, int64_t quads, const int8_t *panel, const int32_t *offsets,
             int32_t *sums, bool first, const bool further, const int vectors)
{
    const int64_t groups = cpu_groups(count);

    for (int64_t g = 0; g < groups; g++) {
        const int64_t begin = count * g / groups;
        const uint8_t *from = rows + begin * width;
        int32_t *to = sums + begin * CPU_PANEL;
        switch (count * (g + 1) / groups - begin) {
        case 1: narrow_tile(from, width, quads, panel, offsets, to, first, further, vectors, 1); break;
        case 2: narrow_tile(from, width, quads, panel, offsets, to, first, further, vectors, 2); break;
        case 3: narrow_tile(from, width, quads, panel, offsets, to, first, further, vectors, 3); break;
        case 4: narrow_tile(from, width, quads, panel, offsets, to, first, further, vectors, 4); break;
        case 5: narrow_tile(from, width, quads, panel, offsets, to, first, further, vectors, 5); break;
        default: narrow_tile(from, width, quads, panel, offsets, to, first, further, vectors, CPU_ROWS); break;
        }
    }
}

INTS_TARGET static void
add_narrow(const uint8_t *rows, int64_t count, int64_t width, int64_t quads, const int8_t *panel, int32_t *sums, bool first,
           int64_t vectors)
{
    switch (vectors) {
    case 1: narrow_tiles(rows, count, width, quads, panel, NULL, sums, first, false, 1); break;
#if CPU_VECTORS == 4
    case 2: narrow_tiles(rows, count, width, quads, panel, NULL, sums, first, false, 2); break;
    case 3: narrow_tiles(rows, count, width, quads, panel, NULL, sums, first, false, 3); break;
#endif
    default: narrow_tiles(rows, count, width, quads, panel, NULL, sums, first, false, CPU_VECTORS); break;
    }
}

/* In vectors of zeros too: there are few of these rows. */
INTS_TARGET static void
add_further(const uint8_t *rows, int64_t count, int64_t width, int64_t quads, const int8_t *panel, const int32_t *offsets,
            int32_t *sums)
{
    narrow_tiles(rows, count, width, quads, panel, offsets, sums, false, true, CPU_VECTORS);
}

/* What the zero points take off, of a panel's sums. */
INTS_TARGET static void
take_zeros_off(const struct cpu_integers *p, const uint32_t *row_sums, const uint32_t *column_sums, int64_t first, int64_t count,
               int64_t column, int32_t *sums)
{
    _Alignas(64) int32_t zeros[CPU_PANEL];

    for (int64_t c = 0; c < CPU_PANEL; c++) {
        const int64_t at = p->b_zero_count > 1 ? column + c : 0;
        zeros[c] = column + c < p->columns ? zero_of(p->b_zeros, p->b_signed, at) - (p->b_signed ? 0 : FLIP) : 0;
    }
    for (int64_t c = 0; c < CPU_PANEL; c += CPU_LANES) {
        const wraps w_zeros = (wraps)LOAD(zeros + c), all = (wraps)LOAD(column_sums + column + c) - w_zeros * (uint32_t)p->inner;
        for (int64_t r = 0; r < count; r++) {
            const int64_t at = p->a_zero_count > 1 ? (first + r) % p->a_zero_count : 0;
            const int32_t x_zero = zero_of(p->a_zeros, p->a_signed, at) + (p->a_signed ? FLIP : 0);
            int32_t *sum = sums + r * CPU_PANEL + c;
            const wraps less = w_zeros * row_sums[first + r] + all * (uint32_t)x_zero;
            STORE(sum, (ints)((wraps)LOAD(sum) - less));
        }
    }
}

/* As sum_panels(). */
static void
sum_narrow_panels(const struct cpu_integers *p, const void *scratch, const void *packed, int64_t first, int64_t count,
                  int64_t begin, int64_t end, int32_t *ret_sums)
{
    const int64_t width = quads_of(p->inner) * QUAD;
    const uint8_t *rows = bytes_of(p, scratch) + first * width;
    size_t bytes;
    const struct narrow from = narrow_of(packed, p->inner, p->columns, &bytes);

    for (int64_t i = 0; i < width; i += NARROW_SLICE) {
        const int64_t quads = (width - i < NARROW_SLICE ? width - i : NARROW_SLICE) / QUAD;
        for (int64_t n = begin; n < end; n++) {
            const int64_t vectors = (p->columns - n * CPU_PANEL + CPU_LANES - 1) / CPU_LANES;
            add_narrow(rows + i, count, width, quads, from.weights + (n * width + i) * CPU_PANEL,
                       ret_sums + (n - begin) * count * CPU_PANEL, i == 0, vectors);
        }
    }
    for (int64_t n = begin; n < end; n++) {
        int32_t *sums = ret_sums + (n - begin) * count * CPU_PANEL;
        const int64_t further = from.starts[n];
        if (from.starts[n + 1] > further) {
            add_further(rows, count, width, from.starts[n + 1] - further, from.further + further * QUADS, from.offsets + further,
                        sums);
        }
        take_zeros_off(p, scratch, from.column_sums, first, count, n * CPU_PANEL, sums);
    }
}
