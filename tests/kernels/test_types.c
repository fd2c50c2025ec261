/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Products, convolutions, pooling and normalisations have all digits of doubles, and products of integers wrap, in both
 *          backends: as the file has them, and after all passes.
 * Method   Random numbers with all bits that a type has, of which the definitions are computed here.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { ROUNDS = LEAT_TEST_ROUNDS(60) + 14, /* each row once at least */ ELEMENTS_MAX = 4096 };

static uint64_t random_state;

static int64_t
between(int64_t low, int64_t high)
{
    return low + (int64_t)(leat_test_random(&random_state) % (uint64_t)(high - low + 1));
}

/* From -1 to 1, to 53 bits. */
static double
number(void)
{
    return (double)(leat_test_random(&random_state) >> 11) * 0x1p-52 - 1;
}

static bool
near(double have, double want)
{
    return fabs(have - want) <= 1e-12 * (1 + fabs(want));
}

/* The builder's network of one output in each backend, plain and optimised: `agrees` says of every answer whether it is right. */
static void
check(struct builder *b, const void *const *inputs, bool (*agrees)(const void *answer, void *context), void *context)
{
    static double answer[ELEMENTS_MAX];

    builder_output(b, "y");
    struct leat_graph *graph = import_graph(b);
    for (int optimised = 0; optimised < 2; optimised++) {
        EXPECT(optimised == 0 || leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
        for (int backend = 0; backend < 2; backend++) {
            struct loaded loaded;
            load(backend == 0 ? &leat_backend_reference : &leat_backend_cpu, graph, &loaded);
            EXPECT(loaded.infos[loaded.source.input_count].item_bytes <= sizeof(answer));
            EXPECT(run(&loaded, inputs, (void *const[]){answer}) == LEAT_OK);
            if (!agrees(answer, context)) {
                (void)fprintf(stderr, "%s%s in backend %s\n", graph->nodes[0].op->name, optimised != 0 ? ", optimised," : "",
                              loaded.backend->name);
                EXPECT(!"the right answer");
            }
            unload(&loaded);
        }
    }
    leat_graph_destroy(graph);
    builder_fini(b);
}

/* ---- Products ------------------------------------------------------------------------------------------------- */

static const struct type {
    int onnx;
    size_t bytes;
    bool is_float;
} product_types[] = {{ONNX_F64, 8, true}, {ONNX_I32, 4, false}, {ONNX_U32, 4, false}, {ONNX_I64, 8, false}, {ONNX_U64, 8, false}};

struct product {
    const struct type *type;
    size_t batch, rows, inner, columns;
    bool trans_a, trans_b;
    int64_t alpha, beta;     /* beta: 0 where there is no C, which is a row */
    unsigned char *a, *b, *c;
};

static unsigned char *
elements(const struct type *type, size_t count)
{
    unsigned char *data = calloc(count + 1, type->bytes);

    EXPECT(data != NULL);
    for (size_t i = 0; i < count; i++) {
        const double real = number();
        const uint64_t bits = leat_test_random(&random_state);
        memcpy(data + i * type->bytes, type->is_float ? (const void *)&real : &bits, type->bytes);
    }
    return data;
}

static double
real_at(const unsigned char *data, size_t i)
{
    double x;
    memcpy(&x, data + i * sizeof(x), sizeof(x));
    return x;
}

static uint64_t
bits_at(const struct type *type, const unsigned char *data, size_t i)
{
    uint64_t bits = 0;
    memcpy(&bits, data + i * type->bytes, type->bytes);
    return bits;
}

static bool
is_product(const void *answer, void *context)
{
    const struct product *p = context;

    for (size_t i = 0; i < p->batch * p->rows * p->columns; i++) {
        const size_t n = i % p->columns, m = i / p->columns % p->rows, first = i / p->columns / p->rows;
        double real = 0;
        uint64_t bits = 0, have = 0;
        for (size_t k = 0; k < p->inner; k++) {
            const size_t a = first * p->rows * p->inner + (p->trans_a ? k * p->rows + m : m * p->inner + k);
            const size_t b = first * p->inner * p->columns + (p->trans_b ? n * p->inner + k : k * p->columns + n);
            if (p->type->is_float) {
                real += real_at(p->a, a) * real_at(p->b, b);
            } else {
                bits += bits_at(p->type, p->a, a) * bits_at(p->type, p->b, b);
            }
        }
        if (p->type->is_float) {
            real = (double)p->alpha * real + (p->c != NULL ? (double)p->beta * real_at(p->c, n) : 0);
            if (!near(((const double *)answer)[i], real)) {
                return false;
            }
            continue;
        }
        bits = (uint64_t)p->alpha * bits + (p->c != NULL ? (uint64_t)p->beta * bits_at(p->type, p->c, n) : 0);
        memcpy(&have, (const unsigned char *)answer + i * p->type->bytes, p->type->bytes);
        if (have != (p->type->bytes == 4 ? (uint32_t)bits : bits)) {
            return false;
        }
    }
    return true;
}

/* Of one or more matrices each; live, or the second, and C, as constants. */
static void
test_product(uint32_t round)
{
    const bool gemm = round % 2 != 0, constant = between(0, 1) != 0, adds = gemm && between(0, 1) != 0;
    struct product p = {.type = &product_types[round / 2 % LEAT_COUNT_OF(product_types)],
                        .batch = gemm ? 1 : (size_t)between(1, 3),
                        .rows = (size_t)between(1, 9),
                        .inner = (size_t)between(1, 40),
                        .columns = (size_t)between(1, 40),
                        .trans_a = gemm && between(0, 1) != 0,
                        .trans_b = gemm && between(0, 1) != 0,
                        .alpha = gemm ? between(-2, 3) : 1,
                        .beta = adds ? between(-2, 3) : 0};
    const int64_t batch = (int64_t)p.batch, rows = (int64_t)p.rows, inner = (int64_t)p.inner, columns = (int64_t)p.columns;
    const int64_t a_dims[3] = {batch, p.trans_a ? inner : rows, p.trans_a ? rows : inner};
    const int64_t b_dims[3] = {batch, p.trans_b ? columns : inner, p.trans_b ? inner : columns};
    const size_t skip = gemm ? 1 : 0;
    struct builder b;

    p.a = elements(p.type, p.batch * p.rows * p.inner);
    p.b = elements(p.type, p.batch * p.inner * p.columns);
    p.c = adds ? elements(p.type, p.columns) : NULL;
    builder_init(&b, 13);
    (void)builder_input(&b, "a", p.type->onnx, a_dims + skip, 3 - skip);
    if (constant) {
        (void)builder_constant(&b, "b", p.type->onnx, p.b, b_dims + skip, 3 - skip);
    } else {
        (void)builder_input(&b, "b", p.type->onnx, b_dims + skip, 3 - skip);
    }
    if (adds && constant) {
        (void)builder_constant(&b, "c", p.type->onnx, p.c, &columns, 1);
    } else if (adds) {
        (void)builder_input(&b, "c", p.type->onnx, &columns, 1);
    }
    Onnx__NodeProto *node = builder_node(&b, gemm ? "Gemm" : "MatMul", adds ? "a b c" : "a b", "y");
    if (gemm) {
        (void)builder_int(&b, node, "transA", p.trans_a);
        (void)builder_int(&b, node, "transB", p.trans_b);
        (void)builder_float(&b, node, "alpha", (float)p.alpha);
        (void)builder_float(&b, node, "beta", adds ? (float)p.beta : 1);
    }
    check(&b, (const void *const[]){p.a, p.b, p.c}, is_product, &p);
    free(p.a);
    free(p.b);
    free(p.c);
}

/* Half an integer is none. */
static void
test_factors_of_integers(void)
{
    struct leat_graph *graph = NULL;
    struct builder b;

    for (int beta = 0; beta < 2; beta++) {
        builder_init(&b, 13);
        (void)builder_input(&b, "a", ONNX_I32, DIMS(2, 2));
        (void)builder_input(&b, "b", ONNX_I32, DIMS(2, 2));
        (void)builder_input(&b, "c", ONNX_I32, DIMS(2, 2));
        (void)builder_float(&b, builder_node(&b, "Gemm", "a b c", "y"), beta != 0 ? "beta" : "alpha", 0.5f);
        builder_output(&b, "y");
        EXPECT(builder_import(&b, &graph) == LEAT_ERR_UNSUPPORTED && strstr(leat_error_text(), "whole numbers") != NULL);
        builder_fini(&b);
    }
}

/* ---- Doubles -------------------------------------------------------------------------------------------------- */

enum { CHANNELS = 4, WIDTH = 6, TAPS = 2, ELEMENTS = CHANNELS * WIDTH };

struct doubles {
    double x[ELEMENTS], weights[ELEMENTS], vectors[4][CHANNELS]; /* of the latter the last is positive */
    int row;
};

static double
at(const struct doubles *d, int64_t channel, int64_t place)
{
    return place >= 0 && place < WIDTH ? d->x[channel * WIDTH + place] : 0;
}

static double
mean_of(const struct doubles *d, int64_t channel)
{
    double sum = 0;
    for (int64_t i = 0; i < WIDTH; i++) {
        sum += at(d, channel, i);
    }
    return sum / WIDTH;
}

static double
exponentials(const struct doubles *d, int64_t channel)
{
    double sum = 0;
    for (int64_t i = 0; i < WIDTH; i++) {
        sum += exp(at(d, channel, i));
    }
    return sum;
}

static double
squares(const struct doubles *d, int64_t channel, double less)
{
    double sum = 0;
    for (int64_t i = 0; i < WIDTH; i++) {
        sum += (at(d, channel, i) - less) * (at(d, channel, i) - less);
    }
    return sum;
}

/* Two groups of two channels each, of one result; a place before and one behind is padding. */
static double
conv(const struct doubles *d, int64_t c, int64_t i)
{
    double sum = d->vectors[0][c];
    for (int64_t k = 0; k < 2 * TAPS; k++) {
        sum += at(d, 2 * c + k / TAPS, i - 1 + k % TAPS) * d->weights[c * 2 * TAPS + k];
    }
    return sum;
}

static double
conv_transpose(const struct doubles *d, int64_t c, int64_t i)
{
    double sum = d->vectors[0][c];
    for (int64_t k = 0; k < 2 * TAPS; k++) {
        sum += at(d, 2 * c + k / TAPS, i - k % TAPS) * d->weights[c * 2 * TAPS + k];
    }
    return sum;
}

static double
average_pool(const struct doubles *d, int64_t c, int64_t i)
{
    return (at(d, c, i) + at(d, c, i + 1)) / 2;
}

static double
lp_pool(const struct doubles *d, int64_t c, int64_t i)
{
    return sqrt(at(d, c, i) * at(d, c, i) + at(d, c, i + 1) * at(d, c, i + 1));
}

static double
global_average_pool(const struct doubles *d, int64_t c, int64_t i)
{
    (void)i;
    return mean_of(d, c);
}

static double
global_max_pool(const struct doubles *d, int64_t c, int64_t i)
{
    double most = at(d, c, 0);
    for (i = 1; i < WIDTH; i++) {
        most = fmax(most, at(d, c, i));
    }
    return most;
}

static double
global_lp_pool(const struct doubles *d, int64_t c, int64_t i)
{
    (void)i;
    return sqrt(squares(d, c, 0));
}

/* alpha 1/2, beta 1, bias 2, of three channels */
static double
lrn(const struct doubles *d, int64_t c, int64_t i)
{
    double sum = 0;
    for (int64_t k = c > 0 ? c - 1 : 0; k <= c + 1 && k < CHANNELS; k++) {
        sum += at(d, k, i) * at(d, k, i);
    }
    return at(d, c, i) / (2 + sum / 6);
}

/* epsilon 1/4 */
static double
batch_normalization(const struct doubles *d, int64_t c, int64_t i)
{
    return (at(d, c, i) - d->vectors[2][c]) / sqrt(d->vectors[3][c] + 0.25) * d->vectors[0][c] + d->vectors[1][c];
}

static double
mean_variance(const struct doubles *d, int64_t c, int64_t i)
{
    return (at(d, c, i) - mean_of(d, c)) / (sqrt(squares(d, c, mean_of(d, c)) / WIDTH) + 1e-9);
}

static double
softmax(const struct doubles *d, int64_t c, int64_t i)
{
    return exp(at(d, c, i)) / exponentials(d, c);
}

static double
log_softmax(const struct doubles *d, int64_t c, int64_t i)
{
    return at(d, c, i) - log(exponentials(d, c));
}

static double
normalised_relu(const struct doubles *d, int64_t c, int64_t i)
{
    const double y = (conv(d, c, i) - d->vectors[2][c]) / sqrt(d->vectors[3][c] + (double)1e-5f) * d->vectors[0][c] + d->vectors[1][c];
    return y > 0 ? y : 0;
}

static const struct double_row {
    const char *name, *inputs;
    double (*of)(const struct doubles *d, int64_t channel, int64_t place);
    int64_t channels, width;
    const char *attribute; /* a list, of `value` alone */
    int64_t value;
} double_rows[] = {
    {"Conv", "x w v0", conv, 2, WIDTH + 1, "pads", 1},
    {"ConvTranspose", "x w v0", conv_transpose, 2, WIDTH + 1, NULL, 0},
    {"AveragePool", "x", average_pool, CHANNELS, WIDTH - 1, "kernel_shape", 2},
    {"LpPool", "x", lp_pool, CHANNELS, WIDTH - 1, "kernel_shape", 2},
    {"GlobalAveragePool", "x", global_average_pool, CHANNELS, 1, NULL, 0},
    {"GlobalMaxPool", "x", global_max_pool, CHANNELS, 1, NULL, 0},
    {"GlobalLpPool", "x", global_lp_pool, CHANNELS, 1, NULL, 0},
    {"LRN", "x", lrn, CHANNELS, WIDTH, NULL, 0},
    {"BatchNormalization", "x v0 v1 v2 v3", batch_normalization, CHANNELS, WIDTH, NULL, 0},
    {"MeanVarianceNormalization", "x", mean_variance, CHANNELS, WIDTH, NULL, 0},
    {"Softmax", "x", softmax, CHANNELS, WIDTH, NULL, 0},
    {"LogSoftmax", "x", log_softmax, CHANNELS, WIDTH, NULL, 0},
    {"Conv", "x w v0", normalised_relu, 2, WIDTH + 1, "pads", 1}, /* and what passes fold into one of floats */
};

static bool
is_right(const void *answer, void *context)
{
    const struct doubles *d = context;
    const struct double_row *row = &double_rows[d->row];

    for (int64_t i = 0; i < row->channels * row->width; i++) {
        const double want = row->of(d, i / row->width, i % row->width), have = ((const double *)answer)[i];
        if (!near(have, want)) {
            (void)fprintf(stderr, "element %d is %.17g, not %.17g\n", (int)i, have, want);
            return false;
        }
    }
    return true;
}

static void
test_doubles(uint32_t round)
{
    static const char *const names[4] = {"v0", "v1", "v2", "v3"};
    struct doubles d = {.row = (int)(round % LEAT_COUNT_OF(double_rows))};
    const struct double_row *row = &double_rows[d.row];
    const bool transposed = row->of == conv_transpose, folded = row->of == normalised_relu, convolves = row->channels == 2;
    const int64_t pads[2] = {row->value, row->value}, weights[3] = {transposed ? CHANNELS : 2, transposed ? 1 : 2, TAPS};
    const int64_t channels = convolves ? 2 : CHANNELS;
    struct builder b;

    for (size_t i = 0; i < ELEMENTS; i++) {
        d.x[i] = number();
        d.weights[i] = number();
        d.vectors[i % 4][i / 4 % CHANNELS] = i % 4 == 3 ? fabs(number()) : number();
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F64, DIMS(1, CHANNELS, WIDTH));
    (void)builder_constant(&b, "w", ONNX_F64, d.weights, weights, 3);
    for (size_t v = 0; v < LEAT_COUNT_OF(names); v++) {
        (void)builder_constant(&b, names[v], ONNX_F64, d.vectors[v], &channels, 1);
    }
    Onnx__NodeProto *node = builder_node(&b, row->name, row->inputs, folded ? "z" : "y");
    if (row->attribute != NULL) {
        (void)builder_ints(&b, node, row->attribute, pads, row->of == conv || folded ? 2 : 1);
    }
    if (convolves) {
        (void)builder_int(&b, node, "group", 2);
    } else if (row->of == lrn) {
        (void)builder_int(&b, node, "size", 3);
        (void)builder_float(&b, node, "alpha", 0.5f);
        (void)builder_float(&b, node, "beta", 1);
        (void)builder_float(&b, node, "bias", 2);
    } else if (row->of == batch_normalization) {
        (void)builder_float(&b, node, "epsilon", 0.25f);
    } else if (row->of == mean_variance) {
        (void)builder_ints(&b, node, "axes", (const int64_t[]){0, 2}, 2);
    }
    if (folded) {
        (void)builder_node(&b, "BatchNormalization", "z v0 v1 v2 v3", "normal");
        (void)builder_node(&b, "Relu", "normal", "y");
    }
    check(&b, (const void *const[]){d.x}, is_right, &d);
}

/* ---- Reductions of integers ----------------------------------------------------------------------------------- */

struct reduced {
    const struct type *type;
    int64_t want;
};

static bool
is_reduced(const void *answer, void *context)
{
    const struct reduced *r = context;
    int64_t have = 0;

    memcpy(&have, answer, r->type->bytes);
    return have == r->want;
}

/* What is before the point of the logarithm: of 1 to 40 it is 6, of their exponentials 40. */
static void
test_logarithms_of_integers(void)
{
    enum { COUNT = 40 };

    for (size_t t = 1; t < LEAT_COUNT_OF(product_types); t++) {
        for (int exponentials_too = 0; exponentials_too < 2; exponentials_too++) {
            const struct type *type = &product_types[t];
            struct reduced r = {.type = type, .want = exponentials_too != 0 ? COUNT : 6};
            unsigned char x[COUNT * 8] = {0};
            struct builder b;
            for (int64_t i = 0; i < COUNT; i++) {
                const int64_t each = i + 1;
                memcpy(x + (size_t)i * type->bytes, &each, type->bytes);
            }
            builder_init(&b, 13);
            (void)builder_input(&b, "x", type->onnx, DIMS(1, COUNT));
            (void)builder_ints(&b, builder_node(&b, exponentials_too != 0 ? "ReduceLogSumExp" : "ReduceLogSum", "x", "y"), "axes",
                               (const int64_t[]){1}, 1);
            check(&b, (const void *const[]){x}, is_reduced, &r);
        }
    }
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        test_product(round);
        test_doubles(round);
    }
    test_factors_of_integers();
    test_logarithms_of_integers();
    return 0;
}
