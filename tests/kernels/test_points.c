/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1x1 convolutions of 8-bit numbers beside sums of 64 bits: scales are powers of two, so that floats are exact as well. With
 * Swish they are nearly so, and what lies between two whole numbers may become either.
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/loops/points.h"
#include "tests/kernels/drawn_numbers.h"
#include "tests/leat_test.h"

enum { ROUNDS = LEAT_TEST_ROUNDS(2000), PANEL = 64, IMAGE_MAX = 9, MEMBERS_MAX = 4 };

/* So many bytes with `canary` of 64 more behind them. */
static void *
allocate(int64_t bytes, int canary)
{
    unsigned char *memory = aligned_alloc(64, (size_t)leat_round_up((uint64_t)bytes + 64, 64));
    EXPECT(memory != NULL);
    memset(memory + bytes, canary, 64);
    return memory;
}

static unsigned char *
random_bytes(int64_t count, bool extreme)
{
    static const unsigned char extremes[] = {0, 1, 127, 128, 255};
    unsigned char *bytes = allocate(count, 0xa5);

    for (int64_t i = 0; i < count; i++) {
        bytes[i] = extreme ? extremes[between(0, 4)] : (unsigned char)between(0, 255);
    }
    return bytes;
}

static int64_t
number(bool is_signed, unsigned char byte)
{
    return is_signed ? (int8_t)byte : byte;
}

struct layer {
    struct cpu_points points;
    unsigned char *source, *weights, *addend; /* weights: [outputs][inputs]; addend NULL: nothing is added */
    float *sums, *bias;
};

static bool
is_wanted(const struct layer *l, int64_t row, int64_t o, int64_t got)
{
    const struct cpu_points *p = &l->points;
    const int64_t line = row / p->out_width, y = line % p->out_height * p->stride_down;
    const int64_t pixel = (line / p->out_height * p->height + y) * p->width + row % p->out_width * p->stride_across;
    const int64_t least = p->result_signed ? INT8_MIN : 0, most = p->result_signed ? INT8_MAX : UINT8_MAX;
    int64_t sum = 0;

    for (int64_t i = 0; i < p->inputs; i++) {
        sum += number(p->source_signed, l->source[pixel * p->inputs + i]) * number(true, l->weights[o * p->inputs + i]);
    }
    double result = (double)sum * (double)l->sums[o] + (double)l->bias[o];
    if (l->addend != NULL) {
        result += (double)number(p->addend_signed, l->addend[row * p->outputs + o]) * (double)p->addend_scale;
    }
    const double swish = result / (1 + exp(-result)) * (double)p->swish_scale;
    const double capped = fmin(fmax(p->swish ? swish + (double)p->swish_zero : result, (double)least), (double)most);
    return p->swish ? fabs((double)got - capped) <= 0.5 + 1e-4 + 1e-6 * fabs(swish) : got == (int64_t)nearbyint(capped);
}

/* As the layout says, with numbers that matter to nobody behind the outputs. */
static int8_t *
pack(const struct layer *l)
{
    const int64_t inputs = l->points.inputs, panels = (l->points.outputs + PANEL - 1) / PANEL;
    unsigned char *packed = random_bytes(panels * PANEL * inputs, false);

    for (int64_t o = 0; o < l->points.outputs; o++) {
        for (int64_t i = 0; i < inputs; i++) {
            packed[((o / PANEL * (inputs / 4) + i / 4) * PANEL + o % PANEL) * 4 + i % 4] = l->weights[o * inputs + i];
        }
    }
    return (int8_t *)packed;
}

static void
test_layer(void)
{
    const int64_t stride_down = between(1, 3), stride_across = between(1, 3), height = between(1, IMAGE_MAX),
                  width = between(1, IMAGE_MAX);
    const uint32_t members = (uint32_t)between(1, MEMBERS_MAX);
    const bool adds = between(0, 1) == 0, in_place = adds && between(0, 1) == 0, extreme = between(0, 3) == 0;
    struct layer l = {.points = {.items = between(1, 3), .inputs = 4 * between(1, 40), .outputs = 16 * between(1, 13),
                                 .height = height, .width = width,
                                 .out_height = (height - 1) / stride_down + 1, .out_width = (width - 1) / stride_across + 1,
                                 .stride_down = stride_down, .stride_across = stride_across,
                                 .source_signed = between(0, 1) == 0, .addend_signed = between(0, 1) == 0,
                                 .result_signed = between(0, 1) == 0, .addend_scale = ldexpf(1, (int)between(-3, 1)),
                                 .swish = between(0, 1) == 0, .swish_scale = ldexpf(1, (int)between(-3, 6)),
                                 .swish_zero = (float)between(-100, 100)}};
    const struct cpu_points *p = &l.points;
    const int64_t rows = p->items * p->out_height * p->out_width;

    l.source = random_bytes(p->items * height * width * p->inputs, extreme);
    l.weights = random_bytes(p->outputs * p->inputs, extreme);
    l.addend = adds ? random_bytes(rows * p->outputs, extreme) : NULL;
    l.sums = allocate(p->outputs * (int64_t)sizeof(float), 0);
    l.bias = allocate(p->outputs * (int64_t)sizeof(float), 0);
    for (int64_t o = 0; o < p->outputs; o++) {
        l.sums[o] = ldexpf(1, (int)between(-14, -4));
        l.bias[o] = (float)between(-512, 512) / 4;
    }
    int8_t *packed = pack(&l);
    int32_t *starts = allocate(p->outputs * (int64_t)sizeof(*starts), 0);
    unsigned char *result = random_bytes(rows * p->outputs, false);
    if (in_place) {
        memcpy(result, l.addend, (size_t)(rows * p->outputs));
    }
    cpu_points_starts(p, packed, starts);
    for (uint32_t m = 0; m < members; m++) {
        cpu_points_run(p, l.source, packed, starts, l.sums, l.bias, in_place ? result : l.addend, result, m, members);
    }
    for (int64_t i = 0; i < rows * p->outputs; i++) {
        EXPECT(is_wanted(&l, i / p->outputs, i % p->outputs, number(p->result_signed, result[i])));
    }
    for (int64_t i = 0; i < 64; i++) {
        EXPECT(result[rows * p->outputs + i] == 0xa5);
    }
    free(l.source);
    free(l.weights);
    free(l.addend);
    free(l.sums);
    free(l.bias);
    free(packed);
    free(starts);
    free(result);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    if (!cpu_points_run_here()) {
        (void)printf("skipped: this processor has no VNNI, or has AMX, with which oneDNN does these convolutions\n");
        return LEAT_TEST_SKIP;
    }
    for (int round = 0; round < ROUNDS; round++) {
        test_layer();
    }
    return 0;
}
