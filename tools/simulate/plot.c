/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/plot.h"

#include <math.h>
#include <string.h>

#include "base/align.h"
#include "base/status.h"

enum { LEFT = 76, TOP = 64, BOTTOM = 64, HEIGHT = 300, GAP = 24, CHARACTER = 7 /* its width, about */ };

/* After M. Okabe, K. Ito, "Color universal design", 2008, and P. Tol: told apart by colour-blind readers, too. */
static const char *const colours[] = {"#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9",
                                      "#cc79a7", "#666666", "#882255", "#999933"};

struct range {
    double min, max, step;
    int digits; /* behind the point */
};

struct frame {
    const struct plot *plot;
    FILE *out;
    double width; /* of the field of values */
    struct range x, y;
};

/* ---- Text -------------------------------------------------------------------------------------- */

/* Bytes of the character at `text`, 1 to 4; 0: not UTF-8, or not for XML. */
static size_t
character_bytes(const unsigned char *text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t bytes = text[0] < 0x80 ? 1 : text[0] >> 5 == 6 ? 2 : text[0] >> 4 == 14 ? 3 : text[0] >> 3 == 30 ? 4 : 0;
    uint32_t code = bytes == 1 ? text[0] : text[0] & (0x7fu >> bytes);

    for (size_t i = 1; i < bytes; i++) {
        if (text[i] >> 6 != 2) {
            return 0;
        }
        code = code << 6 | (text[i] & 0x3f);
    }
    const bool good = bytes > 0 && code >= least[bytes] && code >= 0x20 && code != 0x7f && code <= 0x10ffff &&
                      code >> 11 != 0x1b && code != 0xfffe && code != 0xffff;
    return good ? bytes : 0;
}

void
plot_put_text(FILE *out, const char *text)
{
    while (*text != '\0') {
        const size_t bytes = character_bytes((const unsigned char *)text);
        switch (bytes == 1 ? *text : '\0') {
        case '&': (void)fputs("&amp;", out); break;
        case '<': (void)fputs("&lt;", out); break;
        case '>': (void)fputs("&gt;", out); break;
        default: (void)fwrite(bytes > 0 ? text : "?", 1, bytes > 0 ? bytes : 1, out); break;
        }
        text += bytes > 0 ? bytes : 1;
    }
}

static void
put_label(FILE *out, double x, double y, const char *attributes, const char *text)
{
    (void)fprintf(out, "<text x=\"%.2f\" y=\"%.2f\" %s>", x, y, attributes);
    plot_put_text(out, text);
    (void)fputs("</text>\n", out);
}

/* Three digits, or all before the point. */
static const char *
short_number(char text[32], double value)
{
    (void)snprintf(text, 32, "%.*f", value >= 99.95 || value == 0 ? 0 : value >= 9.995 ? 1 : value >= 0.9995 ? 2 : 3, value);
    return text;
}

/* ---- Axes -------------------------------------------------------------------------------------- */

/* Ticks of 1, 2 or 5 times a power of ten, at most seven of them, from one below `min` to one above `max`. */
static struct range
range_of(double min, double max)
{
    const double span = max > min ? max - min : max > 0 ? max : 1;
    double step = pow(10, floor(log10(span / 6)));
    const double times = span / 6 / step;

    step *= times > 5 ? 10 : times > 2 ? 5 : times > 1 ? 2 : 1;
    const double digits = ceil(-log10(step) - 1e-9);
    struct range range = {.min = floor(min / step + 1e-9) * step, .step = step, .digits = digits > 0 ? (int)digits : 0};
    range.max = ceil(max / step - 1e-9) * step;
    if (!(range.max > range.min)) {
        range.max = range.min + step;
    }
    return range;
}

static double
greatest_value(const struct plot *plot)
{
    double greatest = plot->limit_name != NULL ? plot->limit : 0;

    for (uint32_t s = 0; s < plot->series_count; s++) {
        const struct plot_series *series = &plot->series[s];
        for (uint32_t i = 0; i < plot->count; i++) {
            LEAT_ASSERT(!(series->values[i] < plot->from) && !isinf(series->values[i]));
            greatest = fmax(greatest, series->values[i]); /* fmax passes NAN over */
            greatest = series->high != NULL ? fmax(greatest, series->high[i]) : greatest;
        }
    }
    return greatest;
}

static double
place_y(const struct frame *frame, double value)
{
    return TOP + HEIGHT * (frame->y.max - value) / (frame->y.max - frame->y.min);
}

static double
place_x(const struct frame *frame, double x)
{
    return LEFT + frame->width * (x - frame->x.min) / (frame->x.max - frame->x.min);
}

static void
put_line(FILE *out, double x1, double y1, double x2, double y2, const char *attributes)
{
    (void)fprintf(out, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" %s/>\n", x1, y1, x2, y2, attributes);
}

static void
put_y_axis(const struct frame *frame)
{
    const int ticks = (int)lround((frame->y.max - frame->y.min) / frame->y.step);
    char text[32], where[64];

    for (int t = 0; t <= ticks; t++) {
        const double value = frame->y.min + t * frame->y.step, y = place_y(frame, value);
        put_line(frame->out, LEFT, y, LEFT + frame->width, y, t == 0 ? "stroke=\"#333\"" : "stroke=\"#ddd\"");
        (void)snprintf(text, sizeof(text), "%.*f", frame->y.digits, value);
        put_label(frame->out, LEFT - 6, y + 4, "text-anchor=\"end\"", text);
    }
    (void)snprintf(where, sizeof(where), "text-anchor=\"middle\" transform=\"rotate(-90 16 %d)\"", TOP + HEIGHT / 2);
    put_label(frame->out, 16, TOP + HEIGHT / 2, where, frame->plot->y_label);
}

static void
put_x_ticks(const struct frame *frame)
{
    const int ticks = (int)lround((frame->x.max - frame->x.min) / frame->x.step);
    char text[32];

    for (int t = 0; t <= ticks; t++) {
        const double x = frame->x.min + t * frame->x.step, at = place_x(frame, x);
        put_line(frame->out, at, TOP + HEIGHT, at, TOP + HEIGHT + 5, "stroke=\"#333\"");
        (void)snprintf(text, sizeof(text), "%.*f", frame->x.digits, x);
        put_label(frame->out, at, TOP + HEIGHT + 20, "text-anchor=\"middle\"", text);
    }
}

/* ---- Frame ------------------------------------------------------------------------------------- */

static double
legend_width(const struct plot *plot)
{
    size_t longest = plot->limit_name != NULL ? strlen(plot->limit_name) : 0;

    for (uint32_t s = 0; s < plot->series_count; s++) {
        const size_t length = strlen(plot->series[s].name);
        longest = length > longest ? length : longest;
    }
    return GAP + 42 + CHARACTER * (double)longest;
}

/* `below`: room for names under the axis. */
static void
begin(const struct frame *frame, double below)
{
    const struct plot *plot = frame->plot;
    const double titles = 2 * 16 + 9.5 * (double)strlen(plot->title), notes = 2 * 16 + CHARACTER * (double)strlen(plot->subtitle);
    const double width = ceil(fmax(LEFT + frame->width + legend_width(plot), fmax(titles, notes)));
    const double height = TOP + HEIGHT + BOTTOM + ceil(below);

    (void)fprintf(frame->out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
                  "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\" role=\"img\">\n<title>",
                  width, height, width, height);
    plot_put_text(frame->out, plot->title);
    (void)fprintf(frame->out, "</title>\n<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n", width, height);
    put_label(frame->out, 16, 24, "font-size=\"16\" font-weight=\"bold\"", plot->title);
    put_label(frame->out, 16, 44, "fill=\"#555\"", plot->subtitle);
    put_y_axis(frame);
    put_label(frame->out, LEFT + frame->width / 2, height - 14, "text-anchor=\"middle\"", plot->x_label);
}

/* Colours come round; the second round is paler, as lines dashed. */
const char *
plot_colour(uint32_t series)
{
    return colours[series % LEAT_COUNT_OF(colours)];
}

const char *
plot_round(uint32_t series, bool line)
{
    const bool first = series < LEAT_COUNT_OF(colours);
    return line ? (first ? "" : " stroke-dasharray=\"6 3\"") : (first ? "" : " fill-opacity=\"0.5\"");
}

static void
end(const struct frame *frame, bool lines)
{
    const struct plot *plot = frame->plot;
    const double left = LEFT + frame->width + GAP;
    double y = TOP + 8;

    if (plot->limit_name != NULL) {
        const double at = place_y(frame, plot->limit);
        put_line(frame->out, LEFT, at, LEFT + frame->width, at, "stroke=\"#222\" stroke-dasharray=\"2 3\"");
        put_line(frame->out, left, y, left + 18, y, "stroke=\"#222\" stroke-dasharray=\"2 3\"");
        put_label(frame->out, left + 24, y + 4, "", plot->limit_name);
        y += 20;
    }
    for (uint32_t s = 0; s < plot->series_count; s++, y += 20) {
        if (lines) {
            (void)fprintf(frame->out, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"%s\" stroke-width=\"2\"%s/>\n",
                          left, y, left + 18, y, plot_colour(s), plot_round(s, true));
        } else {
            (void)fprintf(frame->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"12\" height=\"12\" fill=\"%s\"%s/>\n", left + 3, y - 6,
                          plot_colour(s), plot_round(s, false));
        }
        put_label(frame->out, left + 24, y + 4, "", plot->series[s].name);
    }
    (void)fputs("</svg>\n", frame->out);
}

/* "name, where: value (low to high)", which viewers show as a tooltip. */
static void
put_tooltip(const struct frame *frame, const struct plot_series *series, uint32_t i)
{
    char text[32];

    (void)fputs("<title>", frame->out);
    plot_put_text(frame->out, series->name);
    (void)fputs(", ", frame->out);
    if (frame->plot->groups != NULL) {
        plot_put_text(frame->out, frame->plot->groups[i]);
    } else {
        (void)fprintf(frame->out, "%.6g", frame->plot->x[i]);
    }
    (void)fprintf(frame->out, ": %s", short_number(text, series->values[i]));
    if (series->low != NULL) {
        (void)fprintf(frame->out, " (%s", short_number(text, series->low[i]));
        (void)fprintf(frame->out, " to %s)", short_number(text, series->high[i]));
    }
    (void)fputs("</title>", frame->out);
}

static void
put_whisker(const struct frame *frame, const struct plot_series *series, uint32_t i, double x, const char *attributes)
{
    if (series->low != NULL && series->high[i] > series->low[i]) {
        const double low = place_y(frame, series->low[i]), high = place_y(frame, series->high[i]);
        put_line(frame->out, x, low, x, high, attributes);
        put_line(frame->out, x - 3, low, x + 3, low, attributes);
        put_line(frame->out, x - 3, high, x + 3, high, attributes);
    }
}

/* ---- Bars -------------------------------------------------------------------------------------- */

static void
put_bar(const struct frame *frame, uint32_t s, uint32_t i, double x, double width)
{
    const struct plot_series *series = &frame->plot->series[s];
    const double y = place_y(frame, series->values[i]);
    char text[32];

    if (isnan(series->values[i])) {
        return;
    }
    (void)fprintf(frame->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"%s>", x, y, width,
                  TOP + HEIGHT - y, plot_colour(s), plot_round(s, false));
    put_tooltip(frame, series, i);
    (void)fputs("</rect>\n", frame->out);
    put_whisker(frame, series, i, x + width / 2, "stroke=\"#222\"");
    const double above = series->high != NULL ? place_y(frame, series->high[i]) : y;
    if (width >= 24) {
        put_label(frame->out, x + width / 2, above - 4, "text-anchor=\"middle\" font-size=\"10\"",
                  short_number(text, series->values[i]));
    }
}

void
plot_bars(const struct plot *plot, FILE *out)
{
    const double bars = (double)plot->count * plot->series_count;
    const double bar = fmax(2, fmin(30, 1200 / bars)), group = bar * plot->series_count, step = group + fmax(4, bar);
    struct frame frame = {.plot = plot, .out = out, .width = fmax(240, step * plot->count), .y = range_of(0, greatest_value(plot))};
    const double place = frame.width / plot->count;
    size_t longest = 0;
    char where[96];

    LEAT_ASSERT(plot->count > 0 && plot->groups != NULL);
    for (uint32_t i = 0; i < plot->count; i++) {
        const size_t length = strlen(plot->groups[i]);
        longest = length > longest ? length : longest;
    }
    const bool slanted = CHARACTER * (double)longest > place - 4;
    begin(&frame, slanted ? 0.64 * CHARACTER * (double)longest : 0);
    for (uint32_t i = 0; i < plot->count; i++) {
        const double left = LEFT + place * i + (place - group) / 2, middle = LEFT + place * (i + 0.5);
        for (uint32_t s = 0; s < plot->series_count; s++) {
            put_bar(&frame, s, i, left + bar * s, bar);
        }
        (void)snprintf(where, sizeof(where), "text-anchor=\"end\" transform=\"rotate(-40 %.2f %d)\"", middle, TOP + HEIGHT + 14);
        put_label(out, middle, TOP + HEIGHT + (slanted ? 14 : 20), slanted ? where : "text-anchor=\"middle\"", plot->groups[i]);
    }
    end(&frame, false);
}

/* ---- Lines ------------------------------------------------------------------------------------- */

static void
put_series(const struct frame *frame, uint32_t s)
{
    const struct plot *plot = frame->plot;
    const struct plot_series *series = &plot->series[s];
    char whisker[48];
    bool drawing = false;

    (void)fputs("<path d=\"", frame->out);
    for (uint32_t i = 0; i < plot->count; i++) {
        if (!isnan(series->values[i])) {
            (void)fprintf(frame->out, "%s%.2f %.2f", drawing ? " L" : "M", place_x(frame, plot->x[i]), place_y(frame, series->values[i]));
        }
        drawing = !isnan(series->values[i]);
    }
    (void)fprintf(frame->out, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s/>\n", plot_colour(s), plot_round(s, true));
    (void)snprintf(whisker, sizeof(whisker), "stroke=\"%s\"", plot_colour(s));
    for (uint32_t i = 0; i < plot->count; i++) {
        if (isnan(series->values[i])) {
            continue;
        }
        put_whisker(frame, series, i, place_x(frame, plot->x[i]), whisker);
        (void)fprintf(frame->out, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"3\" fill=\"%s\">", place_x(frame, plot->x[i]),
                      place_y(frame, series->values[i]), plot_colour(s));
        put_tooltip(frame, series, i);
        (void)fputs("</circle>\n", frame->out);
    }
}

void
plot_lines(const struct plot *plot, FILE *out)
{
    struct frame frame = {.plot = plot, .out = out, .width = 480, .y = range_of(plot->from, greatest_value(plot))};

    LEAT_ASSERT(plot->count > 0 && plot->x != NULL && plot->groups == NULL);
    frame.x = range_of(plot->x[0], plot->x[plot->count - 1]);
    begin(&frame, 0);
    put_x_ticks(&frame);
    for (uint32_t s = 0; s < plot->series_count; s++) {
        put_series(&frame, s);
    }
    end(&frame, true);
}
