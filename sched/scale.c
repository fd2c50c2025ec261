/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/scale.h"

#include <float.h>
#include <math.h>

enum { TERMS = 4 };

/* Turns `row` into the triangle until nothing of it is left (Givens rotations): the sum of squares stays. */
static void
absorb(double triangle[TERMS][TERMS + 1], double row[TERMS + 1])
{
    for (int k = 0; k < TERMS; k++) {
        const double length = hypot(triangle[k][k], row[k]);
        if (length == 0) {
            continue;
        }
        const double c = triangle[k][k] / length, s = row[k] / length;
        for (int j = k; j <= TERMS; j++) {
            const double upper = triangle[k][j];
            triangle[k][j] = c * upper + s * row[j];
            row[j] = c * row[j] - s * upper;
        }
    }
}

enum leat_status
leat_scale_fit(const struct leat_scale_point *points, uint32_t count, struct leat_scale_latency *ret_latency)
{
    double triangle[TERMS][TERMS + 1] = {{0}};
    double x[TERMS], largest = 0;

    for (uint32_t i = 0; i < count; i++) {
        const double b = points[i].batch, c = points[i].cores;
        if (points[i].batch == 0 || points[i].cores == 0 || !isfinite(points[i].latency_ms)) {
            return LEAT_ERR_INVALID;
        }
        double row[TERMS + 1] = {b / c, b, 1 / c, 1, points[i].latency_ms};
        absorb(triangle, row);
    }
    for (int k = 0; k < TERMS; k++) {
        largest = fmax(largest, fabs(triangle[k][k]));
    }
    for (int k = TERMS - 1; k >= 0; k--) {
        if (fabs(triangle[k][k]) <= largest * 1e3 * DBL_EPSILON) {
            return LEAT_ERR_INVALID;
        }
        x[k] = triangle[k][TERMS];
        for (int j = k + 1; j < TERMS; j++) {
            x[k] -= triangle[k][j] * x[j];
        }
        x[k] /= triangle[k][k];
    }
    *ret_latency = (struct leat_scale_latency){.alpha_ms = x[0], .beta_ms = x[1], .gamma_ms = x[2], .zeta_ms = x[3]};
    return LEAT_OK;
}
