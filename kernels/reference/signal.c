/* SPDX-License-Identifier: Apache-2.0 */
/* Spectra by their definitions: one sum per output element. */
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

/* One bin of a transform of `length` elements, of which `given` are there, `stride` apart. */
struct transform {
    uint32_t dtype;
    const void *in, *window; /* window may be NULL */
    size_t first, stride, parts, given, length;
    bool inverse;
};

static void
transform_bin(const struct transform *t, size_t bin, double ret[2])
{
    ret[0] = ret[1] = 0;
    for (size_t i = 0; i < t->given; i++) {
        const size_t at = t->first + i * t->stride;
        const double weight = t->window != NULL ? leat_element_real(t->dtype, t->window, i) : 1;
        const double re = weight * leat_element_real(t->dtype, t->in, at);
        const double im = t->parts == 2 ? weight * leat_element_real(t->dtype, t->in, at + 1) : 0;
        /* Whole turns are left out before they cost digits. */
        const double turn = (double)(i * bin % t->length) / (double)t->length;
        const double angle = (t->inverse ? 2 : -2) * M_PI * turn;
        ret[0] += re * cos(angle) - im * sin(angle);
        ret[1] += re * sin(angle) + im * cos(angle);
    }
    if (t->inverse) {
        ret[0] /= (double)t->length;
        ret[1] /= (double)t->length;
    }
}

LEAT_REFERENCE_FUNCTION(dft)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const uint32_t axis = (uint32_t)leat_node_axis(eval->node, 1, x->rank);
    const size_t parts = (size_t)x->dims[x->rank - 1], bins = (size_t)output->dims[axis];
    const size_t inner = leat_extent(x, axis + 1, x->rank - 1), size = (size_t)x->dims[axis];
    const size_t length = (size_t)leat_eval_scalar(eval, 1, x->dims[axis]);
    const size_t count = leat_value_elements(output) / 2;
    struct transform t = {.dtype = x->dtype,
                          .in = leat_eval_in(eval, 0),
                          .stride = inner * parts,
                          .parts = parts,
                          .given = size < length ? size : length,
                          .length = length,
                          .inverse = leat_node_int(eval->node, "inverse", 0) != 0};
    double bin[2];

    for (size_t i = 0; i < count; i++) {
        t.first = (i / inner / bins * size * inner + i % inner) * parts;
        transform_bin(&t, i / inner % bins, bin);
        leat_element_set_real(x->dtype, leat_eval_out(eval, 0), 2 * i, bin[0]);
        leat_element_set_real(x->dtype, leat_eval_out(eval, 0), 2 * i + 1, bin[1]);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(stft)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const struct leat_value *window = leat_eval_input(eval, 2);
    const size_t parts = (size_t)x->dims[2], bins = (size_t)output->dims[2],
                 frames = (size_t)output->dims[1];
    const size_t step = (size_t)leat_eval_scalar(eval, 1, 1);
    const size_t length = (size_t)leat_eval_scalar(eval, 3, window != NULL ? window->dims[0] : 1);
    const size_t count = leat_value_elements(output) / 2;
    struct transform t = {.dtype = x->dtype,
                          .in = leat_eval_in(eval, 0),
                          .window = window != NULL ? leat_eval_in(eval, 2) : NULL,
                          .stride = parts,
                          .parts = parts,
                          .given = length,
                          .length = length};
    double bin[2];

    for (size_t i = 0; i < count; i++) {
        const size_t frame = i / bins % frames, batch = i / bins / frames;
        t.first = (batch * (size_t)x->dims[1] + frame * step) * parts;
        transform_bin(&t, i % bins, bin);
        leat_element_set_real(x->dtype, leat_eval_out(eval, 0), 2 * i, bin[0]);
        leat_element_set_real(x->dtype, leat_eval_out(eval, 0), 2 * i + 1, bin[1]);
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
