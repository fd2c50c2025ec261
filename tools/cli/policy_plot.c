/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a policy: which variant, over how many wait and the slack of the oldest, a panel for each rate. */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "tools/cli/cli.h"
#include "tools/cli/policy.h"
#include "tools/simulate/plot.h"

enum {
    WIDTH = 260, /* of a panel's field */
    HEIGHT = 150,
    LEFT = 60,
    TOP = 64,
    ABOVE = 26, /* room for a panel's title */
    BELOW = 44, /* and for its axis */
    GAP = 20,
    PER_ROW = 4,
    IDLE_WIDTH = 60, /* of the part of a panel with several idle workers */
    CHARACTER = 7,   /* a character's width, about */
};

static const char give_up_colour[] = "#222222", hold_colour[] = "#ececec";

/* One panel: a column for each row of the table that is shown. */
struct panel {
    FILE *out;
    const struct leat_policy *policy;
    const uint16_t *cells;
    double x, y, width; /* of the field */
};

/* Cells of `rows` rows from `from` on that have one variant from bin to bin, drawn as one. */
struct patch {
    double left, right;
    uint32_t variant, first, behind; /* bins */
};

static uint32_t
variant_at(const struct panel *panel, uint32_t row, uint32_t bin)
{
    return leat_policy_unpack(panel->cells[row * (panel->policy->slack_bins + 1) + bin]).variant;
}

/* The end of the run of one variant that begins at the bin. */
static uint32_t
run_end(const struct panel *panel, uint32_t row, uint32_t bin)
{
    uint32_t end = bin + 1;
    while (end <= panel->policy->slack_bins && variant_at(panel, row, end) == variant_at(panel, row, bin)) {
        end++;
    }
    return end;
}

static bool
same_rows(const struct panel *panel, uint32_t row, uint32_t other)
{
    for (uint32_t bin = 0; bin <= panel->policy->slack_bins; bin++) {
        if (variant_at(panel, row, bin) != variant_at(panel, other, bin)) {
            return false;
        }
    }
    return true;
}

static double
place_y(const struct panel *panel, uint32_t bin)
{
    return panel->y + HEIGHT * (1 - (double)bin / (panel->policy->slack_bins + 1));
}

static const char *
name_of(const struct leat_policy *policy, uint32_t variant)
{
    return variant == LEAT_POLICY_GIVE_UP ? "given up"
           : variant == LEAT_POLICY_HOLD  ? "held back"
                                          : leat_policy_variant(policy, variant)->name;
}

static void
put_fill(FILE *out, uint32_t variant)
{
    if (variant == LEAT_POLICY_GIVE_UP || variant == LEAT_POLICY_HOLD) {
        (void)fprintf(out, "fill=\"%s\"", variant == LEAT_POLICY_GIVE_UP ? give_up_colour : hold_colour);
    } else {
        (void)fprintf(out, "fill=\"%s\"%s", plot_colour(variant), plot_round(variant, false));
    }
}

static void
put_patch(const struct panel *panel, const struct patch *patch)
{
    const double top = place_y(panel, patch->behind), bottom = place_y(panel, patch->first);
    (void)fprintf(panel->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" ", patch->left, top,
                  patch->right - patch->left, bottom - top);
    put_fill(panel->out, patch->variant);
    (void)fputs("><title>", panel->out);
    plot_put_text(panel->out, name_of(panel->policy, patch->variant));
    (void)fputs("</title></rect>\n", panel->out);
}

/* Rows first, first + step, ..., `count` of them, side by side between left and right; equal neighbours as one. */
static void
put_rows(const struct panel *panel, int64_t first, int64_t step, uint32_t count, double left, double right)
{
    const double each = (right - left) / count;

    for (uint32_t c = 0, end; c < count; c = end) {
        const uint32_t row = (uint32_t)(first + step * c);
        for (end = c + 1; end < count && same_rows(panel, row, (uint32_t)(first + step * end)); end++) {
        }
        for (uint32_t bin = 0; bin <= panel->policy->slack_bins;) {
            const struct patch patch = {.left = left + each * c,
                                        .right = left + each * end,
                                        .variant = variant_at(panel, row, bin),
                                        .first = bin,
                                        .behind = run_end(panel, row, bin)};
            put_patch(panel, &patch);
            bin = patch.behind;
        }
    }
}

static void
put_text_at(FILE *out, double x, double y, const char *attributes, const char *text)
{
    (void)fprintf(out, "<text x=\"%.2f\" y=\"%.2f\" %s>", x, y, attributes);
    plot_put_text(out, text);
    (void)fputs("</text>\n", out);
}

static void
put_panel(const struct panel *panel, const struct leat_policy_rung *rung)
{
    const struct leat_policy *policy = panel->policy;
    const double bottom = panel->y + HEIGHT, idle = policy->idle_levels > 0 ? IDLE_WIDTH : 0;
    const double left = panel->x + idle, right = panel->x + panel->width;
    char text[64];

    (void)snprintf(text, sizeof(text), "%u a second", rung->rate_qps);
    put_text_at(panel->out, panel->x, panel->y - 8, "font-weight=\"bold\"", text);
    if (idle > 0) { /* from most workers idle to two: where one waits */
        put_rows(panel, (int64_t)policy->queue_max + 2 + (int64_t)(policy->idle_levels - 1) * policy->held_max,
                 -(int64_t)policy->held_max, policy->idle_levels, panel->x, left - 3);
        put_text_at(panel->out, panel->x + (idle - 3) / 2, bottom + 14, "text-anchor=\"middle\" font-size=\"10\"", "idle");
    }
    put_rows(panel, 1, 1, policy->queue_max + 1, left, right);
    const double each = (right - left) / (policy->queue_max + 1);
    put_text_at(panel->out, left + each / 2, bottom + 14, "text-anchor=\"middle\" font-size=\"10\"", "1");
    if (policy->queue_max > 1) {
        const uint32_t middle = (policy->queue_max + 1) / 2;
        (void)snprintf(text, sizeof(text), "%u", middle);
        put_text_at(panel->out, left + each * (middle - 0.5), bottom + 14, "text-anchor=\"middle\" font-size=\"10\"", text);
    }
    if (policy->queue_max > 0) {
        (void)snprintf(text, sizeof(text), "> %u", policy->queue_max);
        put_text_at(panel->out, right, bottom + 14, "text-anchor=\"end\" font-size=\"10\"", text);
    }
    (void)strcpy(text, "waiting");
    if (policy->unit_shift > 0) {
        (void)snprintf(text, sizeof(text), "waiting, %u items each", 1u << policy->unit_shift);
    }
    put_text_at(panel->out, (left + right) / 2, bottom + 30, "text-anchor=\"middle\" font-size=\"10\"", text);
    for (uint32_t i = 0; i <= 2; i++) {
        const double y = bottom - HEIGHT * i / 2.0;
        (void)snprintf(text, sizeof(text), "%s", format_ns((double)policy->objective_ns * i / 2).text);
        put_text_at(panel->out, panel->x - 4,
                    y + (i == 0   ? 0
                         : i == 1 ? 4
                                  : 8),
                    "text-anchor=\"end\" font-size=\"10\"", text);
    }
    (void)fprintf(panel->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%d\" fill=\"none\" stroke=\"#333\"/>\n",
                  left, panel->y, right - left, HEIGHT);
}

static bool
has_variant(const struct leat_policy *policy, uint32_t variant)
{
    const size_t cells = (size_t)leat_policy_row_count(policy) * (policy->slack_bins + 1);
    for (uint32_t r = 0; r < policy->rung_count; r++) {
        for (size_t c = policy->slack_bins + 1; c < cells; c++) {
            if (leat_policy_unpack(leat_policy_actions(policy, r)[c]).variant == variant) {
                return true;
            }
        }
    }
    return false;
}

/* "name, 77.69 %", in the order of the file, and what is not served. */
static void
put_legend(FILE *out, const struct leat_policy *policy, double left)
{
    static const uint32_t others[] = {LEAT_POLICY_HOLD, LEAT_POLICY_GIVE_UP};
    char text[LEAT_NAME_MAX + 32];
    double y = TOP + ABOVE;

    for (uint32_t i = 0; i < policy->variant_count + LEAT_COUNT_OF(others); i++) {
        const uint32_t variant = i < policy->variant_count ? i : others[i - policy->variant_count];
        if (i >= policy->variant_count && !has_variant(policy, variant)) {
            continue;
        }
        (void)fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"12\" height=\"12\" ", left, y);
        put_fill(out, variant);
        (void)fputs("/>\n", out);
        if (i < policy->variant_count) {
            (void)snprintf(text, sizeof(text), "%s, %.2f %%", name_of(policy, variant),
                           leat_policy_variant(policy, variant)->accuracy_ppm / 1e4);
        } else {
            (void)snprintf(text, sizeof(text), "%s", name_of(policy, variant));
        }
        put_text_at(out, left + 20, y + 10, "", text);
        y += 20;
    }
}

static double
legend_width(const struct leat_policy *policy)
{
    size_t longest = 0;
    for (uint32_t v = 0; v < policy->variant_count; v++) {
        const size_t length = strlen(leat_policy_variant(policy, v)->name) + sizeof(", 77.69 %");
        longest = length > longest ? length : longest;
    }
    return 40 + CHARACTER * (double)longest;
}

void
policy_plot(const void *of, FILE *out)
{
    const struct leat_policy *policy = of;
    const uint32_t per_row = policy->rung_count < PER_ROW ? policy->rung_count : PER_ROW;
    const uint32_t panel_rows = (policy->rung_count + per_row - 1) / per_row;
    const double panels = (double)per_row * (LEFT + WIDTH + GAP), legend = legend_width(policy);
    const double tall = fmax(panel_rows * (ABOVE + HEIGHT + BELOW), 20.0 * (policy->variant_count + 3));
    const double width = fmax(panels + legend, 720), height = TOP + tall;
    char text[160];

    (void)snprintf(text, sizeof(text), "Variant by what waits and the slack of the oldest query");
    (void)fprintf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
                  "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\" role=\"img\" "
                  "shape-rendering=\"crispEdges\">\n<title>%s</title>\n"
                  "<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n",
                  width, height, width, height, text, width, height);
    put_text_at(out, 16, 24, "font-size=\"16\" font-weight=\"bold\"", text);
    (void)snprintf(text, sizeof(text), "policy of kind %s for %u workers, objective %s, dispersion %g",
                   leat_policy_kind_text(policy->kind), policy->worker_count, format_ns((double)policy->objective_ns).text,
                   policy->dispersion_permille / 1e3);
    put_text_at(out, 16, 44, "fill=\"#555\"", text);
    for (uint32_t r = 0; r < policy->rung_count; r++) {
        const struct panel panel = {.out = out,
                                    .policy = policy,
                                    .cells = leat_policy_actions(policy, r),
                                    .x = LEFT + (double)(r % per_row) * (LEFT + WIDTH + GAP),
                                    .y = TOP + ABOVE + (double)(r / per_row) * (ABOVE + HEIGHT + BELOW),
                                    .width = WIDTH};
        put_panel(&panel, leat_policy_rung(policy, r));
    }
    put_legend(out, policy, panels + 16);
    (void)fputs("</svg>\n", out);
}
