/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of one element, computed in double: activations with parameters, trigonometry, Round, Sign, tests. */
#include <math.h>

#include "kernels/reference/element.h"

/* A function of x with up to two parameters of the node. */
typedef double (*function)(double x, double a, double b);

static enum leat_status
map(const struct leat_eval *eval, function f, double a, double b)
{
    const struct leat_value *output = leat_eval_output(eval, 0);
    const size_t count = leat_value_elements(output);
    const void *in = leat_eval_in(eval, 0);
    void *out = leat_eval_out(eval, 0);

    for (size_t i = 0; i < count; i++) {
        leat_element_set_real(output->dtype, out, i,
                              f(leat_element_real(output->dtype, in, i), a, b));
    }
    return LEAT_OK;
}

/* clang-format off */
/* name, the parameters as attributes with defaults, y as an expression of x, a and b */
#define MAP(name, A, B, EXPRESSION)                                                                 \
    static double name##_of(double x, double a, double b)                                           \
    {                                                                                               \
        (void)a;                                                                                    \
        (void)b;                                                                                    \
        return (EXPRESSION);                                                                        \
    }                                                                                               \
    LEAT_REFERENCE_FUNCTION(name)                                                                   \
    {                                                                                               \
        return map(eval, name##_of, (A), (B));                                                      \
    }
#define REAL(attribute, otherwise) (double)leat_node_float(eval->node, attribute, otherwise)
#define SQRT_2         1.41421356237309505
#define SQRT_2_OVER_PI 0.797884560802865356
#define UNIT(y)                    ((y) < 0 ? 0 : (y) > 1 ? 1 : (y)) /* a NaN stays one */

MAP(acos, 0, 0, acos(x))
MAP(acosh, 0, 0, acosh(x))
MAP(asin, 0, 0, asin(x))
MAP(asinh, 0, 0, asinh(x))
MAP(atan, 0, 0, atan(x))
MAP(atanh, 0, 0, atanh(x))
MAP(celu, REAL("alpha", 1.0f), 0, x < 0 ? a * expm1(x / a) : x)
MAP(cos, 0, 0, cos(x))
MAP(cosh, 0, 0, cosh(x))
MAP(elu, REAL("alpha", 1.0f), 0, x < 0 ? a * expm1(x) : x)
MAP(gelu, (double)leat_node_int(eval->node, "tanh", 0), 0,
    a == 0 ? x * (1 + erf(x / SQRT_2)) / 2 : x * (1 + tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x))) / 2)
MAP(hard_sigmoid, REAL("alpha", 0.2f), REAL("beta", 0.5f), UNIT(a * x + b))
MAP(hard_swish, 0, 0, x * UNIT(x / 6 + 0.5))
MAP(leaky_relu, REAL("alpha", 0.01f), 0, x < 0 ? a * x : x)
MAP(round, 0, 0, nearbyint(x)) /* halves to the even neighbour */
MAP(selu, REAL("alpha", 1.67326319217681884765625f), REAL("gamma", 1.05070102214813232421875f),
    b * (x < 0 ? a * expm1(x) : x))
MAP(shrink, REAL("lambd", 0.5f), REAL("bias", 0.0f), x < -a ? x + b : x > a ? x - b : 0)
MAP(sign, 0, 0, x > 0 ? 1 : x < 0 ? -1 : x)
MAP(sin, 0, 0, sin(x))
MAP(sinh, 0, 0, sinh(x))
MAP(softplus, 0, 0, x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)))
MAP(softsign, 0, 0, x / (1 + fabs(x)))
MAP(swish, 0, 0, x / (1 + exp(-x)))
MAP(tan, 0, 0, tan(x))
MAP(thresholded_relu, REAL("alpha", 1.0f), 0, x > a ? x : 0)
/* clang-format on */

void
leat_reference_activate(const struct leat_node *node, float *y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double x = (double)y[i];
        switch (node->fused_activation) {
        case LEAT_ACTIVATION_NONE:
            return;
        case LEAT_ACTIVATION_RELU:
            y[i] = y[i] < 0 ? 0 : y[i];
            break;
        case LEAT_ACTIVATION_CLIP:
            y[i] = y[i] < node->clip_min ? node->clip_min : y[i];
            y[i] = y[i] > node->clip_max ? node->clip_max : y[i];
            break;
        case LEAT_ACTIVATION_SIGMOID:
            y[i] = (float)(1 / (1 + exp(-x)));
            break;
        case LEAT_ACTIVATION_TANH:
            y[i] = (float)tanh(x);
            break;
        case LEAT_ACTIVATION_SWISH:
            y[i] = (float)swish_of(x, 0, 0);
            break;
        case LEAT_ACTIVATION_HARD_SWISH:
            y[i] = (float)hard_swish_of(x, 0, 0);
            break;
        case LEAT_ACTIVATION_GELU:
            y[i] = (float)gelu_of(x, 0, 0);
            break;
        case LEAT_ACTIVATION_GELU_TANH:
            y[i] = (float)gelu_of(x, 1, 0);
            break;
        case LEAT_ACTIVATION_LEAKY_RELU:
            y[i] = (float)leaky_relu_of(x, (double)node->slope, 0);
            break;
        }
    }
}

LEAT_REFERENCE_FUNCTION(is_nan)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const size_t count = leat_value_elements(x);
    uint8_t *out = leat_eval_out(eval, 0);

    for (size_t i = 0; i < count; i++) {
        const double value = leat_element_real(x->dtype, leat_eval_in(eval, 0), i);
        out[i] = value != value;
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(is_inf)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const bool positive = leat_node_int(eval->node, "detect_positive", 1) != 0;
    const bool negative = leat_node_int(eval->node, "detect_negative", 1) != 0;
    const size_t count = leat_value_elements(x);
    uint8_t *out = leat_eval_out(eval, 0);

    for (size_t i = 0; i < count; i++) {
        const double value = leat_element_real(x->dtype, leat_eval_in(eval, 0), i);
        out[i] = isinf(value) && (value > 0 ? positive : negative);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(not )
{
    const size_t count = leat_value_elements(leat_eval_output(eval, 0));
    const uint8_t *in = leat_eval_in(eval, 0);
    uint8_t *out = leat_eval_out(eval, 0);

    for (size_t i = 0; i < count; i++) {
        out[i] = in[i] == 0; /* payload is untrusted: any byte may stand here */
    }
    return LEAT_OK;
}
