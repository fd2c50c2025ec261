/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/simulate/plot.h - a figure as SVG: groups of bars, or lines over numbers.
 *
 * Honesty   The axis of values begins at 0, of lines elsewhere where that is asked for; its ticks are round numbers, whiskers
 *           show how far values spread. What has no value is left out.
 * Output    SVG 1.1 without scripts, fonts or links; it says its numbers as tooltips too. Equal plots, equal bytes.
 * Trust     Names and labels are any bytes: escaped, and what is not UTF-8 or XML becomes '?'.
 */
#ifndef LEAT_TOOLS_PLOT_H
#define LEAT_TOOLS_PLOT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct plot_series {
    const char *name;
    const double *values;     /* [count], at least 0; NAN: none */
    const double *low, *high; /* [count], whiskers; NULL: none */
};

struct plot {
    const char *title;
    const char *subtitle; /* what a reader has to know to judge the numbers */
    const char *x_label, *y_label; /* with units */
    uint32_t count;                /* of groups or points, at least 1 */
    const char *const *groups;     /* bars: [count] */
    const double *x;               /* lines: [count], rising */
    uint32_t series_count;
    const struct plot_series *series;
    const char *limit_name; /* of a horizontal line; NULL: none */
    double limit;
    double from; /* lines: where the axis of values begins, or before; no value is below. 0: at 0 */
};

/* What other figures share: escaped text, and the colour of a series and how its second round differs, as attributes. */
void plot_put_text(FILE *out, const char *text);
const char *plot_colour(uint32_t series);
const char *plot_round(uint32_t series, bool line);

/* The caller looks at ferror. */
void plot_bars(const struct plot *plot, FILE *out);
void plot_lines(const struct plot *plot, FILE *out);

#endif /* LEAT_TOOLS_PLOT_H */
