/* SPDX-License-Identifier: Apache-2.0 */
/* DFT and STFT of floats: tables are made with the plan, and members of a team share transforms. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/fourier.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"
#include "kernels/team.h"

enum { SHARED_LEAST = 8192 /* elements for each member of a team */ };

#define SIDE_BY_SIDE_MAX   (UINT64_C(1) << 20) /* floats of a plane */
#define SIDE_BY_SIDE_CLOSE (UINT64_C(1) << 15) /* which the second-level cache holds four of */
#define TABLE_ALIGN        16u                 /* floats */

/* ---- How ---------------------------------------------------------------------------------------------- */

/* False where a prime factor is left. */
static bool
find_radices(size_t rows, struct cpu_fourier *fourier)
{
    static const uint32_t even[] = {4, 2};

    fourier->passes = 0;
    for (size_t i = 0; i < LEAT_COUNT_OF(even); i++) {
        for (; rows % even[i] == 0; rows /= even[i]) {
            fourier->radices[fourier->passes++] = even[i];
        }
    }
    for (uint32_t radix = 3; radix <= CPU_RADIX_MAX; radix += 2) {
        for (; rows % radix == 0; rows /= radix) {
            fourier->radices[fourier->passes++] = radix;
        }
    }
    LEAT_ASSERT(fourier->passes <= CPU_PASSES_MAX);
    return rows == 1;
}

/* False where it is too long. length, parts, count, beside and step are known. */
static bool
choose(struct cpu_fourier *fourier, size_t lanes)
{
    fourier->halved = fourier->parts == 1 && fourier->length % 2 == 0;
    fourier->points = fourier->halved ? fourier->length / 2 : fourier->length;
    fourier->size = fourier->points;
    const bool few = find_radices(fourier->points, fourier), apart = fourier->step != fourier->parts;
    const bool side_by_side = few && fourier->points * lanes <= SIDE_BY_SIDE_MAX;
    const bool close = side_by_side && apart && fourier->points * lanes <= SIDE_BY_SIDE_CLOSE;

    fourier->across =
        few && fourier->points % lanes == 0 && (fourier->count < lanes || (fourier->points >= lanes * lanes / 2 && !close));
    fourier->convolves = !fourier->across && !side_by_side;
    if (fourier->convolves) {
        fourier->across = true;
        for (fourier->size = lanes; fourier->size < 2 * fourier->points - 1; fourier->size *= 2) {
        }
    }
    fourier->rows = fourier->across ? fourier->size / lanes : fourier->size;
    LEAT_MUST(find_radices(fourier->rows, fourier) || fourier->size > CPU_FOURIER_MAX);
    return fourier->size <= CPU_FOURIER_MAX;
}

static size_t
table_of(size_t *at, size_t count)
{
    const size_t place = *at;
    *at += (size_t)leat_round_up(count, TABLE_ALIGN);
    return place;
}

/* Returns how many floats all take, the structure too. */
static size_t
place_tables(struct cpu_fourier *fourier, size_t lanes)
{
    size_t at = 0, factors = 0, roots = 0, rest = fourier->rows;

    (void)table_of(&at, sizeof(*fourier) / sizeof(float));
    for (uint32_t i = 0; i < fourier->passes; i++) {
        const size_t radix = fourier->radices[i];
        rest /= radix;
        factors += 2 * rest * (radix - 1);
        roots += radix % 2 != 0 ? 2 * radix : 0;
    }
    fourier->factors = table_of(&at, factors);
    fourier->roots = table_of(&at, roots);
    fourier->turns = table_of(&at, fourier->across ? 2 * fourier->size : 0);
    fourier->halves = table_of(&at, fourier->halved ? 2 * (fourier->points + CPU_FOURIER_ASIDE) : 0);
    fourier->chirp = table_of(&at, fourier->convolves ? 2 * fourier->size : 0);
    fourier->spectrum = table_of(&at, fourier->convolves ? 2 * fourier->size : 0);
    const size_t numbers = fourier->size > fourier->bins ? fourier->size : fourier->bins;
    fourier->plane = (size_t)leat_round_up(numbers * (fourier->across ? 1 : lanes) + 3 * (size_t)CPU_FOURIER_ASIDE, TABLE_ALIGN);
    return at;
}

/* ---- Tables ------------------------------------------------------------------------------------------- */

/* e^(-2 pi i turns / of) */
static void
turn(size_t turns, size_t of, double *re, double *im)
{
    const double angle = -2 * M_PI * (double)(turns % of) / (double)of;
    *re = cos(angle);
    *im = sin(angle);
}

static void
set_turn(size_t turns, size_t of, float *re, float *im)
{
    double exact_re, exact_im;
    turn(turns, of, &exact_re, &exact_im);
    *re = (float)exact_re;
    *im = (float)exact_im;
}

static void
fill_passes(const struct cpu_fourier *fourier, size_t lanes, float *table)
{
    float *factors = table + fourier->factors, *roots = table + fourier->roots, *turns = table + fourier->turns;
    size_t rest = fourier->rows;

    for (uint32_t i = 0; i < fourier->passes; i++) {
        const size_t radix = fourier->radices[i], all = rest;
        rest /= radix;
        for (size_t p = 0; p < rest; p++) {
            for (size_t j = 1; j < radix; j++, factors += 2) {
                set_turn(p * j, all, &factors[0], &factors[1]);
            }
        }
        for (size_t r = 0; r < radix && radix % 2 != 0; r++, roots += 2) {
            set_turn(radix - r, radix, &roots[0], &roots[1]); /* backwards: the sine is not negative */
        }
    }
    for (size_t p = 0; p < fourier->rows && fourier->across; p++) {
        for (size_t l = 0; l < lanes; l++) {
            set_turn(p * l, fourier->size, &turns[2 * p * lanes + l], &turns[(2 * p + 1) * lanes + l]);
        }
    }
    const size_t all = fourier->points + CPU_FOURIER_ASIDE;
    for (size_t k = 0; k < all && fourier->halved; k++) {
        set_turn(k, fourier->length, &table[fourier->halves + k], &table[fourier->halves + all + k]);
    }
}

/* In place, of a power of two: the textbook's (Cormen et al., "Introduction to Algorithms", 30.3). `turns` is room for as many numbers. */
static void
transform_exactly(double *re, double *im, double *turns, size_t size)
{
    for (size_t k = 0; k < size / 2; k++) {
        turn(k, size, &turns[2 * k], &turns[2 * k + 1]);
    }
    for (size_t i = 1, j = 0; i < size; i++) {
        size_t bit = size / 2;
        for (; (j & bit) != 0; bit /= 2) {
            j ^= bit;
        }
        j ^= bit;
        if (i < j) {
            const double kept_re = re[i], kept_im = im[i];
            re[i] = re[j];
            im[i] = im[j];
            re[j] = kept_re;
            im[j] = kept_im;
        }
    }
    for (size_t half = 1; half < size; half *= 2) {
        for (size_t first = 0; first < size; first += 2 * half) {
            for (size_t k = 0; k < half; k++) {
                const size_t i = first + k;
                const double *w = &turns[k * (size / half)];
                const double t_re = re[i + half] * w[0] - im[i + half] * w[1], t_im = re[i + half] * w[1] + im[i + half] * w[0];
                re[i + half] = re[i] - t_re;
                im[i + half] = im[i] - t_im;
                re[i] += t_re;
                im[i] += t_im;
            }
        }
    }
}

/* e^(-pi i n^2 / points), and the transform of its conjugate to both sides, by the size. `room` is of 3 * size zeros. */
static void
fill_convolution(const struct cpu_fourier *fourier, float *table, double *room)
{
    const size_t size = fourier->size, points = fourier->points;
    float *chirp = table + fourier->chirp, *spectrum = table + fourier->spectrum;
    double *re = room, *im = room + size, *turns = room + 2 * size;

    for (size_t n = 0; n < points; n++) {
        double turn_re, turn_im;
        turn(n * n, 2 * points, &turn_re, &turn_im);
        chirp[n] = (float)turn_re;
        chirp[size + n] = (float)turn_im;
        re[n] = re[(size - n) % size] = turn_re;
        im[n] = im[(size - n) % size] = -turn_im;
    }
    transform_exactly(re, im, turns, size);
    for (size_t n = 0; n < size; n++) {
        spectrum[n] = (float)(re[n] / (double)size);
        spectrum[size + n] = (float)(im[n] / (double)size);
    }
}

static enum leat_status
add_tables(struct cpu_builder *b, struct cpu_fourier *fourier, size_t lanes, uint32_t *ret_tensor)
{
    const size_t floats = place_tables(fourier, lanes), doubles = fourier->convolves ? 3 * fourier->size : 0;

    enum leat_status status = cpu_model_may_take(b->model, 2 * floats * sizeof(float) + doubles * sizeof(double));
    if (status != LEAT_OK) {
        return status;
    }
    float *table = calloc(floats, sizeof(*table));
    double *room = calloc(doubles + 1, sizeof(*room));
    if (table == NULL || room == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    } else {
        memcpy(table, fourier, sizeof(*fourier));
        fill_passes(fourier, lanes, table);
        if (fourier->convolves) {
            fill_convolution(fourier, table, room);
        }
        free(room);
        room = NULL;
        status = cpu_private_words(b, table, floats, ret_tensor);
    }
    free(table);
    free(room);
    return status;
}

/* ---- Runs ----------------------------------------------------------------------------------------------- */

/* args: x, y, tables, scratch for each member, the window if there is one. */
struct work {
    const struct cpu_call *call;
    uint32_t members;
};

static void
transform_share(void *context, uint32_t member, uint32_t size)
{
#if defined(__x86_64__)
    const struct work *work = context;
    const struct cpu_call *call = work->call;
    const struct cpu_fourier *fourier = call->pointers[2];
    const size_t lanes = fourier->across ? 1 : (size_t)cpu_vector_lanes(), groups = (fourier->count + lanes - 1) / lanes;
    const size_t begin = groups * member / work->members * lanes, end = groups * (member + 1) / work->members * lanes;
    float *scratch = (float *)call->pointers[3] + member * call->step->inner;

    (void)size;
    if (member < work->members) {
        (cpu_has_avx512() ? cpu_fourier_avx512 : cpu_fourier_avx2)(fourier, call->pointers[0],
                                                                   call->step->arg_count > 4 ? call->pointers[4] : NULL, call->pointers[1],
                                                                   begin, end < fourier->count ? end : fourier->count, scratch);
    }
#else
    (void)context, (void)member, (void)size;
#endif
}

static enum leat_status
run_transforms(const struct cpu_call *call)
{
    const size_t worth = 1 + call->step->count / SHARED_LEAST;
    struct work work = {call, worth < call->program->threads ? (uint32_t)worth : call->program->threads};

    if (work.members > 1) {
        leat_team_run(call->team, transform_share, &work);
    } else {
        transform_share(&work, 0, 1);
    }
    return LEAT_OK;
}

static enum leat_status
add_transforms(struct cpu_builder *b, struct cpu_fourier *fourier, uint32_t window)
{
    const size_t lanes = (size_t)cpu_vector_lanes();
    const dnnl_memory_desc_t none = {.ndims = 0};
    struct cpu_arg args[5] = {{0, 0}};
    struct cpu_step *step;

    if (fourier->length > CPU_FOURIER_MAX || !choose(fourier, lanes)) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_plain(b, b->node->inputs[0], &args[0].tensor);
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = add_tables(b, fourier, lanes, &args[2].tensor);
    }
    const size_t scratch = 4 * fourier->plane + (size_t)CPU_FOURIER_ASIDE;
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &none, b->program->threads * scratch * sizeof(float), &args[3].tensor);
    }
    if (status == LEAT_OK && window != LEAT_VALUE_NONE) {
        status = cpu_plain(b, window, &args[4].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, run_transforms, args, window != LEAT_VALUE_NONE ? 5 : 4, &step);
    }
    if (status == LEAT_OK) {
        step->count = fourier->count * fourier->length;
        step->inner = scratch;
    }
    return status;
}

/* ---- Lowering ----------------------------------------------------------------------------------------- */

/* A known whole number from 1 on, or `otherwise` where the node has no such input; 0: neither. */
static size_t
count_of(const struct cpu_builder *b, uint32_t input, int64_t otherwise)
{
    const struct leat_value *value = leat_node_input(b->graph, b->node, input);
    double count = (double)otherwise;

    return (value == NULL || leat_value_scalar(value, &count)) && count >= 1 ? (size_t)count : 0;
}

static bool
runs_here(const struct leat_value *x, const struct leat_value *y)
{
    return x->dtype == LEAT_DTYPE_F32 && leat_value_elements(x) > 0 && leat_value_elements(y) > 0 && cpu_vector_lanes() > 0;
}

enum leat_status
cpu_lower_dft(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *y = leat_node_output(b->graph, b->node, 0);
    const uint32_t axis = leat_dft_axis(b->graph, b->node), parts_axis = x->rank - 1;
    const size_t size = (size_t)x->dims[axis], parts = (size_t)x->dims[parts_axis], bins = (size_t)y->dims[axis];
    const size_t length = count_of(b, 1, x->dims[axis]);
    size_t inner = 1;

    if (!runs_here(x, y) || length == 0) {
        return LEAT_AGAIN;
    }
    for (uint32_t d = axis + 1; d < parts_axis; d++) {
        inner *= (size_t)x->dims[d];
    }
    struct cpu_fourier fourier = {.length = length,
                                  .bins = bins,
                                  .count = leat_value_elements(y) / (2 * bins),
                                  .beside = inner,
                                  .parts = parts,
                                  .given = size < length ? size : length,
                                  .step = inner * parts,
                                  .inner = parts,
                                  .outer = size * inner * parts,
                                  .result_step = inner * 2,
                                  .result_inner = 2,
                                  .result_outer = bins * inner * 2,
                                  .inverse = leat_node_int(b->node, "inverse", 0) != 0};
    return add_transforms(b, &fourier, LEAT_VALUE_NONE);
}

enum leat_status
cpu_lower_stft(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *y = leat_node_output(b->graph, b->node, 0);
    const struct leat_value *window = leat_node_input(b->graph, b->node, 2);
    const size_t parts = (size_t)x->dims[2], frames = (size_t)y->dims[1], bins = (size_t)y->dims[2];
    const size_t step = count_of(b, 1, 1), length = count_of(b, 3, window != NULL ? window->dims[0] : 1);

    if (!runs_here(x, y) || step == 0 || length == 0) {
        return LEAT_AGAIN;
    }
    struct cpu_fourier fourier = {.length = length,
                                  .bins = bins,
                                  .count = (size_t)y->dims[0] * frames,
                                  .beside = frames,
                                  .parts = parts,
                                  .given = length,
                                  .step = parts,
                                  .inner = step * parts,
                                  .outer = (size_t)x->dims[1] * parts,
                                  .result_step = 2,
                                  .result_inner = bins * 2,
                                  .result_outer = frames * bins * 2};
    return add_transforms(b, &fourier, window != NULL ? b->node->inputs[2] : LEAT_VALUE_NONE);
}
