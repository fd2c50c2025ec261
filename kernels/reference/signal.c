/* SPDX-License-Identifier: Apache-2.0 */
/* Spectra, in double precision: windows, transforms and mel weights. */
#include <math.h>
#include <string.h>

#include "kernels/reference/element.h"

/* a - b cos(2 pi i / n) + c cos(4 pi i / n); n is the size, or one less for a symmetric window. */
static enum leat_status
fill_window(const struct leat_eval *eval, double a, double b, double c)
{
    const struct leat_value *output = leat_eval_output(eval, 0);
    const size_t count = leat_value_elements(output);
    const bool periodic = leat_node_int(eval->node, "periodic", 1) != 0;
    const double n = (double)(periodic ? count : count - 1);

    for (size_t i = 0; i < count; i++) {
        const double angle = n > 0 ? 2 * M_PI * (double)i / n : M_PI;
        leat_element_set_real(output->dtype, leat_eval_out(eval, 0), i,
                              a - b * cos(angle) + c * cos(2 * angle));
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(hann_window)
{
    return fill_window(eval, 0.5, 0.5, 0);
}

LEAT_REFERENCE_FUNCTION(hamming_window)
{
    return fill_window(eval, 25.0 / 46, 21.0 / 46, 0);
}

LEAT_REFERENCE_FUNCTION(blackman_window)
{
    return fill_window(eval, 0.42, 0.5, 0.08);
}

/* ---- Transforms ----------------------------------------------------------------------------------------- */

/* In double precision. Complex numbers are pairs. */
struct transform {
    uint32_t dtype;
    const void *in, *window; /* window may be NULL */
    void *out;
    size_t parts, given, length, bins; /* of `length` elements the first `given` are there */
    size_t step, result_step;          /* from one element to the next, in numbers */
    bool inverse;
    size_t size; /* of what is split: the length, or the power of two that a convolution has */
    double *turns, *signal, *spectrum, *chirp, *filter; /* [size] each, these two of a convolution alone: [length], [size] */
};

/* Prime factors beyond are not split by, nor is a length that has one: it is a convolution. */
enum { PRIME_MAX = 31 };

static size_t
smallest_factor(size_t n)
{
    size_t factor = 2;
    while (factor <= PRIME_MAX && n % factor != 0) {
        factor++;
    }
    return factor;
}

/* The length, or, of a convolution, which *ret_convolves says, a power of two. */
static size_t
size_of(size_t length, bool *ret_convolves)
{
    size_t rest = length, size = 1;

    while (rest > 1 && smallest_factor(rest) <= PRIME_MAX) {
        rest /= smallest_factor(rest);
    }
    *ret_convolves = rest > 1;
    while (size < 2 * length - 1) {
        size *= 2;
    }
    return rest > 1 ? size : length;
}

static size_t
workspace_of(size_t length)
{
    bool convolves;
    const size_t size = length > 0 ? size_of(length, &convolves) : 0;
    return (length > 0 ? 3 * size + (convolves ? length + size : 0) : 0) * 2 * sizeof(double);
}

/* Enough for all lengths up to this, of which shorter ones can take more: those that are convolutions. */
static size_t
workspace_up_to(size_t length)
{
    size_t size = 1;

    while (length > 0 && size < 2 * length - 1) {
        size *= 2;
    }
    return length > 0 ? (4 * size + length) * 2 * sizeof(double) : 0;
}

/* e^(-2 pi i turns / of) */
static void
set_turn(double *to, size_t turns, size_t of)
{
    const double angle = -2 * M_PI * ((double)turns / (double)of);
    to[0] = cos(angle);
    to[1] = sin(angle);
}

static void
multiply(const double *a, const double *b, double *ret)
{
    const double re = a[0] * b[0] - a[1] * b[1], im = a[0] * b[1] + a[1] * b[0];
    ret[0] = re;
    ret[1] = im;
}

/* y[n] becomes the transform of every step-th number of x, those of each `radix` apart first: Cooley and Tukey's (1965). */
static void
split(const struct transform *t, const double *x, size_t step, double *y)
{
    const size_t n = t->size / step, radix = n > 1 ? smallest_factor(n) : 1, part = n / radix;
    double a[PRIME_MAX][2], term[2];

    if (n == 1) {
        memcpy(y, x, 2 * sizeof(*y));
        return;
    }
    for (size_t r = 0; r < radix; r++) {
        split(t, x + 2 * r * step, step * radix, y + 2 * r * part);
    }
    for (size_t k = 0; k < part; k++) {
        for (size_t r = 0; r < radix; r++) {
            memcpy(a[r], &y[2 * (r * part + k)], sizeof(a[r]));
        }
        for (size_t j = 0; j < radix; j++) {
            const size_t each = (j * part + k) * step;
            double sum[2] = {a[0][0], a[0][1]};
            size_t turn = 0;
            for (size_t r = 1; r < radix; r++) {
                turn += turn + each < t->size ? each : each - t->size;
                multiply(a[r], &t->turns[2 * turn], term);
                sum[0] += term[0];
                sum[1] += term[1];
            }
            memcpy(&y[2 * (j * part + k)], sum, sizeof(sum));
        }
    }
}

/* Bluestein's, as kernels/cpu/loops/fourier.h has it: e^(-pi i n^2 / length), and the transform of its conjugate to both sides. */
static void
begin_convolution(struct transform *t)
{
    for (size_t n = 0; n < t->length; n++) {
        set_turn(&t->chirp[2 * n], n * n % (2 * t->length), 2 * t->length);
    }
    memset(t->signal, 0, 2 * t->size * sizeof(double));
    for (size_t n = 0; n < t->length; n++) {
        const size_t mirrored = (t->size - n) % t->size;
        t->signal[2 * n] = t->signal[2 * mirrored] = t->chirp[2 * n];
        t->signal[2 * n + 1] = t->signal[2 * mirrored + 1] = -t->chirp[2 * n + 1];
    }
    split(t, t->signal, 1, t->filter);
}

static void
begin_transforms(const struct leat_eval *eval, struct transform *t)
{
    bool convolves;

    t->size = size_of(t->length, &convolves);
    t->turns = eval->workspace;
    t->signal = t->turns + 2 * t->size;
    t->spectrum = t->signal + 2 * t->size;
    t->chirp = convolves ? t->spectrum + 2 * t->size : NULL;
    t->filter = convolves ? t->chirp + 2 * t->length : NULL;
    for (size_t k = 0; k < t->size; k++) {
        set_turn(&t->turns[2 * k], k, t->size);
    }
    if (convolves) {
        begin_convolution(t);
    }
}

/* Elements of the signal from `first` on; an inverse is the transform of the conjugate, and conjugate again. */
static void
read_signal(const struct transform *t, size_t first)
{
    memset(t->signal, 0, 2 * t->size * sizeof(double));
    for (size_t i = 0; i < t->given; i++) {
        const double weight = t->window != NULL ? leat_element_real(t->dtype, t->window, i) : 1;
        const double im = t->parts == 2 ? weight * leat_element_real(t->dtype, t->in, first + i * t->step + 1) : 0;
        t->signal[2 * i] = weight * leat_element_real(t->dtype, t->in, first + i * t->step);
        t->signal[2 * i + 1] = t->inverse ? -im : im;
    }
}

/* Numbers by those of `by`, parts of the results exchanged: the transform of such is the inverse, exchanged. */
static void
multiply_exchanged(double *numbers, const double *by, size_t count, double scale)
{
    for (size_t i = 0; i < count; i++) {
        double product[2];
        multiply(&numbers[2 * i], &by[2 * i], product);
        numbers[2 * i] = product[1] * scale;
        numbers[2 * i + 1] = product[0] * scale;
    }
}

static void
run_transform(const struct transform *t, size_t first, size_t result)
{
    const double scale = t->inverse ? 1 / (double)t->length : 1;

    read_signal(t, first);
    for (size_t n = 0; n < t->length && t->chirp != NULL; n++) {
        multiply(&t->signal[2 * n], &t->chirp[2 * n], &t->signal[2 * n]);
    }
    split(t, t->signal, 1, t->spectrum);
    if (t->chirp != NULL) {
        multiply_exchanged(t->spectrum, t->filter, t->size, 1 / (double)t->size);
        split(t, t->spectrum, 1, t->signal);
    }
    for (size_t k = 0; k < t->bins; k++) {
        double bin[2] = {t->spectrum[2 * k], t->spectrum[2 * k + 1]};
        if (t->chirp != NULL) {
            multiply((const double[]){t->signal[2 * k + 1], t->signal[2 * k]}, &t->chirp[2 * k], bin);
        }
        leat_element_set_real(t->dtype, t->out, result + k * t->result_step, bin[0] * scale);
        leat_element_set_real(t->dtype, t->out, result + k * t->result_step + 1, t->inverse ? -bin[1] * scale : bin[1] * scale);
    }
}

/* What input `input` says, or `otherwise` where there is none; inference has seen to it that it is known. */
static size_t
length_of(const struct leat_graph *graph, const struct leat_node *node, uint32_t input, int64_t otherwise)
{
    const struct leat_value *value = leat_node_input(graph, node, input);
    double length = (double)otherwise;

    return (value == NULL || leat_value_scalar(value, &length)) && length >= 1 ? (size_t)length : 0;
}

static size_t
dft_length(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    return length_of(graph, node, 1, x->dims[leat_dft_axis(graph, node)]);
}

static size_t
stft_length(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *window = leat_node_input(graph, node, 2);
    return length_of(graph, node, 3, window != NULL ? window->dims[0] : 0);
}

size_t
leat_workspace_dft(const struct leat_graph *graph, const struct leat_node *node)
{
    const bool bounded = leat_node_input(graph, node, 0)->bounded && leat_node_input(graph, node, 1) == NULL;
    const size_t length = dft_length(graph, node);

    if (leat_value_elements(leat_node_output(graph, node, 0)) == 0) {
        return 0;
    }
    return bounded ? workspace_up_to(length) : workspace_of(length);
}

size_t
leat_workspace_stft(const struct leat_graph *graph, const struct leat_node *node)
{
    return leat_value_elements(leat_node_output(graph, node, 0)) > 0 ? workspace_of(stft_length(graph, node)) : 0;
}

LEAT_REFERENCE_FUNCTION(dft)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const uint32_t axis = leat_dft_axis(eval->graph, eval->node);
    const size_t parts = (size_t)x->dims[x->rank - 1], size = (size_t)x->dims[axis];
    const size_t inner = leat_extent(x, axis + 1, x->rank - 1), outer = leat_extent(x, 0, axis);
    struct transform t = {.dtype = x->dtype,
                          .in = leat_eval_in(eval, 0),
                          .out = leat_eval_out(eval, 0),
                          .parts = parts,
                          .length = dft_length(eval->graph, eval->node),
                          .bins = (size_t)output->dims[axis],
                          .step = inner * parts,
                          .result_step = inner * 2,
                          .inverse = leat_node_int(eval->node, "inverse", 0) != 0};

    if (leat_value_elements(output) == 0) {
        return LEAT_OK;
    }
    t.given = size < t.length ? size : t.length;
    begin_transforms(eval, &t);
    for (size_t i = 0; i < outer * inner; i++) {
        const size_t o = i / inner, within = i % inner;
        run_transform(&t, (o * size * inner + within) * parts, (o * t.bins * inner + within) * 2);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(stft)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const size_t parts = (size_t)x->dims[2], frames = (size_t)output->dims[1];
    const size_t step = (size_t)leat_eval_scalar(eval, 1, 1), length = stft_length(eval->graph, eval->node);
    struct transform t = {.dtype = x->dtype,
                          .in = leat_eval_in(eval, 0),
                          .window = leat_eval_input(eval, 2) != NULL ? leat_eval_in(eval, 2) : NULL,
                          .out = leat_eval_out(eval, 0),
                          .parts = parts,
                          .given = length,
                          .length = length,
                          .bins = (size_t)output->dims[2],
                          .step = parts,
                          .result_step = 2};

    if (leat_value_elements(output) == 0) {
        return LEAT_OK;
    }
    begin_transforms(eval, &t);
    for (size_t i = 0; i < (size_t)output->dims[0] * frames; i++) {
        run_transform(&t, (i / frames * (size_t)x->dims[1] + i % frames * step) * parts, i * t.bins * 2);
    }
    return LEAT_OK;
}

/* The spectrum bin of edge i of the mel bands; what is no number or far away is outside all bins. */
static int64_t
mel_edge(const struct leat_eval *eval, double i, double bands)
{
    const double length = (double)leat_eval_scalar(eval, 1, 1),
                 rate = (double)leat_eval_scalar(eval, 2, 1);
    const double low = 2595 * log10(1 + leat_element_real(leat_eval_input(eval, 3)->dtype,
                                                          leat_eval_in(eval, 3), 0) /
                                            700);
    const double high = 2595 * log10(1 + leat_element_real(leat_eval_input(eval, 4)->dtype,
                                                           leat_eval_in(eval, 4), 0) /
                                             700);
    const double mel = low + i * (high - low) / (bands + 2);
    const double bin = floor((length + 1) * 700 * (pow(10, mel / 2595) - 1) / rate);
    return bin > -1e15 && bin < 1e15 ? (int64_t)bin : -1;
}

/* Each band rises from one edge to the next and falls to the one after. */
LEAT_REFERENCE_FUNCTION(mel_weights)
{
    const struct leat_value *output = leat_eval_output(eval, 0);
    const int64_t rows = output->dims[0], bands = output->dims[1];
    const size_t count = leat_value_elements(output);

    for (size_t i = 0; i < count; i++) {
        const int64_t row = (int64_t)i / bands, band = (int64_t)i % bands;
        const int64_t lower = mel_edge(eval, (double)band, (double)bands);
        const int64_t center = mel_edge(eval, (double)(band + 1), (double)bands);
        const int64_t higher = mel_edge(eval, (double)(band + 2), (double)bands);
        double weight = 0;
        if (row == center) {
            weight = 1;
        } else if (row >= lower && row < center) {
            weight = (double)(row - lower) / (double)(center - lower);
        } else if (row > center && row < higher) {
            weight = (double)(higher - row) / (double)(higher - center);
        }
        LEAT_ASSERT(row < rows);
        leat_element_set_real(output->dtype, leat_eval_out(eval, 0), i, weight);
    }
    return LEAT_OK;
}
