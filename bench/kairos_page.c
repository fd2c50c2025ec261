/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/kairos_page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "tools/simulate/plot.h"

#define BOUNDS_SHOWN 60u /* mixes in a figure, those with the largest bounds */

/* Throughput over homogeneous that is asked of matching, by model; the paper's figure for rm2 is 2. */
static const double asked_of_matching[KAIROS_MODELS] = {1.8, 2.0, 1.3, 1.2, 1.45};

struct text {
    char text[48];
};

static struct text
mix_text(const struct leat_pool_mix *mix)
{
    struct text text;
    (void)snprintf(text.text, sizeof(text.text), "(%u,%u,%u,%u)", mix->count[0], mix->count[1], mix->count[2],
                   mix->count[3]);
    return text;
}

/* Share of the way from matching to an oracle, each on its own best mix. */
static double
gap_closed(const struct kairos_result *result, enum kairos_scheme oracle)
{
    const double from = result->best[KAIROS_MATCHING].qps, to = result->best[oracle].qps;
    return to > from ? (result->best[KAIROS_LAXITY].qps - from) / (to - from) : 0;
}

static void
write_head(FILE *file, const struct kairos_page *page)
{
    (void)fprintf(
        file,
        "# Kairos' evaluation, simulated\n\n"
        "Which router, and which mix of workers, serves most queries for a budget? The setting is that of B. Li et al.,\n"
        "\"Kairos: Building Cost-Efficient Machine Learning Inference Systems with Heterogeneous Cloud Resources\", HPDC 2023:\n"
        "five models, four types of cloud instances, 2.5 USD an hour, 99 of 100 queries within the objective. Every figure on\n"
        "this page is **simulated**: by the code that routes in the daemon, on a virtual clock, with service times drawn from\n"
        "those that the authors measured and published (99 for each of 100 sizes on each type). `bench/kairos` writes the page.\n\n"
        "Throughput is the highest Poisson rate at which at most 1 %% of %u queries miss the objective, to 0.4 %%: mean of\n"
        "%u seeds, with the least and the most. A mix is (g4dn.xlarge, c5n.2xlarge, r5n.large, t3.xlarge); the first is the\n"
        "base. Every scheme is shown on the best mix found for it among all %u that the budget buys, chosen on other seeds than\n"
        "those that are reported. Homogeneous is four base workers, credited in proportion for the money that is left.\n"
        "`matching` goes by means with a margin of 2 %%, as published; *by percentile* it judges by the 95th percentile what is\n"
        "in time, as `laxity`, `edf` and `clockwork` do. The oracle knows all queries beforehand and waits for none: free base\n"
        "workers take the largest that is left, others the smallest as long as they can serve it within the objective. It has\n"
        "to serve all, while a router may miss 1 of 100; the spared one need not serve the largest 1 %%.\n\n",
        page->queries, page->seeds, page->results[0].mix_count);
}

static void
write_throughput(FILE *file, const struct kairos_page *page)
{
    (void)fprintf(file, "## Throughput\n\n![Throughput over homogeneous](kairos-throughput.svg)\n\n"
                        "Queries a second (mean, least, most) and the mix:\n\n| scheme |");
    for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
        (void)fprintf(file, " %s |", page->results[m].name);
    }
    (void)fprintf(file, "\n|---|---|---|---|---|---|\n");
    for (uint32_t scheme = 0; scheme < KAIROS_SCHEMES; scheme++) {
        (void)fprintf(file, "| %s |", kairos_scheme_names[scheme]);
        for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
            const struct kairos_choice *best = &page->results[m].best[scheme];
            (void)fprintf(file, " **%.4g** %.4g-%.4g %s |", best->qps, best->low_qps, best->high_qps,
                          mix_text(&best->mix).text);
        }
        (void)fprintf(file, "\n");
    }
}

struct row {
    const char *title;
    double values[KAIROS_MODELS];
};

static void
write_row(FILE *file, const char *format, const struct row *row)
{
    double sum = 0;
    (void)fprintf(file, "| %s |", row->title);
    for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
        (void)fprintf(file, format, row->values[m]);
        sum += row->values[m];
    }
    (void)fprintf(file, format, sum / KAIROS_MODELS);
    (void)fprintf(file, "\n");
}

static struct row
ratio_row(const struct kairos_page *page, const char *title, enum kairos_scheme over, enum kairos_scheme under)
{
    struct row row = {.title = title};
    for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
        const double below = page->results[m].best[under].qps;
        row.values[m] = below > 0 ? page->results[m].best[over].qps / below : 0;
    }
    return row;
}

static void
write_heading(FILE *file, const struct kairos_page *page, const char *first)
{
    (void)fprintf(file, "\n| %s |", first);
    for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
        (void)fprintf(file, " %s |", page->results[m].name);
    }
    (void)fprintf(file, " mean |\n|---|---|---|---|---|---|---|\n");
}

static void
write_ratios(FILE *file, const struct kairos_page *page)
{
    struct row asked = {.title = "asked of matching / homogeneous"}, gap = {.title = "gap to the oracle that laxity closes"};
    struct row spared = {.title = "gap to the spared oracle that laxity closes"};
    const struct row rows[] = {
        ratio_row(page, "matching / homogeneous", KAIROS_MATCHING, KAIROS_HOMOGENEOUS),
        ratio_row(page, "matching / fcfs", KAIROS_MATCHING, KAIROS_FCFS),
        ratio_row(page, "matching / threshold", KAIROS_MATCHING, KAIROS_THRESHOLD),
        ratio_row(page, "matching / clockwork", KAIROS_MATCHING, KAIROS_CLOCKWORK),
        ratio_row(page, "matching / oracle", KAIROS_MATCHING, KAIROS_ORACLE),
        ratio_row(page, "laxity / matching", KAIROS_LAXITY, KAIROS_MATCHING),
        ratio_row(page, "matching, by percentile / matching", KAIROS_MATCHING_HIGH, KAIROS_MATCHING),
        ratio_row(page, "laxity / matching, by percentile", KAIROS_LAXITY, KAIROS_MATCHING_HIGH),
        ratio_row(page, "laxity / homogeneous", KAIROS_LAXITY, KAIROS_HOMOGENEOUS),
        ratio_row(page, "laxity / oracle", KAIROS_LAXITY, KAIROS_ORACLE),
    };
    for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
        asked.values[m] = asked_of_matching[m];
        gap.values[m] = gap_closed(&page->results[m], KAIROS_ORACLE);
        spared.values[m] = gap_closed(&page->results[m], KAIROS_ORACLE_SPARED);
    }
    (void)fprintf(file, "\nRatios of the figures above:\n");
    write_heading(file, page, "ratio");
    for (uint32_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        write_row(file, " %.2f |", &rows[r]);
    }
    write_row(file, " %.2f |", &asked);
    write_row(file, " %.2f |", &gap);
    write_row(file, " %.2f |", &spared);
    (void)fprintf(file, "\n`laxity` is leat's default for workers that differ (`sched/router_laxity.c` says how it decides). It keeps the\n"
                        "objective for as many as it can: when not all can be in time it gives up large queries, which cost the most, and\n"
                        "what is late waits until nothing else can run. Where every query must be answered soon, that is not what you want.\n\n"
                        "All schemes on the mix that is best for matching, queries a second:\n\n| scheme |");
    for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
        (void)fprintf(file, " %s %s |", page->results[m].name, mix_text(&page->results[m].best[KAIROS_MATCHING].mix).text);
    }
    (void)fprintf(file, "\n|---|---|---|---|---|---|\n");
    for (uint32_t scheme = KAIROS_FCFS; scheme < KAIROS_SCHEMES; scheme++) {
        (void)fprintf(file, "| %s |", kairos_scheme_names[scheme]);
        for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
            (void)fprintf(file, " %.4g |", page->results[m].same_mix_qps[scheme]);
        }
        (void)fprintf(file, "\n");
    }
    (void)fprintf(file, "\nHow violations grow with the rate, on those mixes:\n\n");
    for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
        (void)fprintf(file, "![Violations, %s](kairos-violations-%s.svg)\n", page->results[m].name, page->results[m].name);
    }
}

static void
write_choice(FILE *file, const struct kairos_choice *choice, double best_qps)
{
    (void)fprintf(file, " %s %.3f", mix_text(&choice->mix).text, choice->qps / best_qps);
    if (choice->evaluations > 0) {
        (void)fprintf(file, ", %u tried", choice->evaluations);
    }
    (void)fprintf(file, ", %.3g s |", choice->seconds);
}

static void
write_mixes(FILE *file, const struct kairos_page *page)
{
    static const struct {
        const char *name;
        enum kairos_scheme scheme;
    } planned[KAIROS_PLANNED] = {{"matching", KAIROS_MATCHING}, {"laxity", KAIROS_LAXITY}};

    (void)fprintf(file,
                  "\n## Choosing the mix\n\n"
                  "Kairos ranks mixes by an upper bound and takes one near the top without measuring any; Kairos+ measures,\n"
                  "from the largest bound down, and stops when no bound exceeds the best. leat races the mixes in the\n"
                  "simulator (`tools/simulate/plan.h`): a mix is given up as soon as it has lost against the best so far. A\n"
                  "cell has the mix, its throughput over that of the best of all mixes, how many were tried, and the time that\n"
                  "the choice took on this machine with %u threads. Kairos+ measures on all seeds for choosing, racing on a\n"
                  "workload of a fifth of the length, and finalists on the first of those seeds.\n\n"
                  "| model | router | selection rule | Kairos+ | racing |\n|---|---|---|---|---|\n",
                  page->threads);
    for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
        for (uint32_t p = 0; p < KAIROS_PLANNED; p++) {
            const struct kairos_result *result = &page->results[m];
            const double best_qps = result->best[planned[p].scheme].qps;
            (void)fprintf(file, "| %s | %s |", result->name, planned[p].name);
            write_choice(file, &result->rule[p], best_qps);
            write_choice(file, &result->search[p], best_qps);
            write_choice(file, &result->race[p], best_qps);
            (void)fprintf(file, "\n");
        }
    }
    (void)fprintf(file, "\nThe bound is none, strictly: of the %u mixes, so many serve more than their bound (one seed):\n\n"
                        "| model | matching | laxity | oracle | oracle, at most over bound |\n|---|---|---|---|---|\n",
                  page->results[0].mix_count);
    for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
        const struct kairos_result *result = &page->results[m];
        uint32_t above[KAIROS_SCHEMES] = {0};
        double most = 0;
        for (uint32_t c = 0; c < result->mix_count; c++) {
            for (uint32_t scheme = KAIROS_FCFS; scheme < KAIROS_SCHEMES; scheme++) {
                above[scheme] += result->all_qps[scheme][c] > result->bounds_qps[c];
            }
            const double ratio = result->all_qps[KAIROS_ORACLE][c] / result->bounds_qps[c];
            most = ratio > most ? ratio : most;
        }
        (void)fprintf(file, "| %s | %u | %u | %u | %.2f |\n", result->name, above[KAIROS_MATCHING], above[KAIROS_LAXITY],
                      above[KAIROS_ORACLE], most);
    }
    (void)fprintf(file, "\nBounds and what is served, the 60 mixes with the largest bounds:\n\n");
    for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
        (void)fprintf(file, "![Bounds, %s](kairos-bounds-%s.svg)\n", page->results[m].name, page->results[m].name);
    }
}

static void
write_trials(FILE *file, const struct kairos_page *page)
{
    static const char *const tried[KAIROS_TRIED] = {"fcfs",   "clockwork", "matching", "matching, by percentile",
                                              "laxity", "oracle"};

    (void)fprintf(file,
                  "\n## Other circumstances\n\n"
                  "With another budget, objective, distribution or arrivals, mixes are raced anew for each router; the oracle stands\n"
                  "on laxity's mix, where it can be behind, since it must serve all. Where predictions err, nothing is known or\n"
                  "sizes change under way, the mixes stay those that were best above: that shows how the router itself bears it.\n"
                  "An error is drawn anew for every prediction that is asked for, normal, its standard deviation a share of the prediction; percentiles are widened by just\n"
                  "that, an idealisation of percentiles that are learned from what came true; means are not. Without a\n"
                  "prior profile times are learned from the completions of the run alone, as in the daemon (`sched/profile.h`,\n"
                  "`sched/probing.h`). Bursts are four times\n"
                  "the rate of the time between, for a tenth of the time and 50 queries on average. Gaussian sizes have mean %d and deviation %d (the paper gives none), within 1 and 1000. Where sizes change\n"
                  "half-way, they go from the published distribution to the Gaussian one, and prices and all else that a router learned go\n"
                  "on. Throughput over homogeneous in the same circumstances:\n",
                  KAIROS_GAUSSIAN_MEAN, KAIROS_GAUSSIAN_DEVIATION);
    for (uint32_t t = 0; t < KAIROS_TRIALS; t++) {
        const struct kairos_trial *trial = &page->trials[t];
        (void)fprintf(file, "\n### %s\n", trial->title);
        write_heading(file, page, "router");
        for (uint32_t s = 0; s < KAIROS_TRIED; s++) {
            struct row row = {.title = tried[s]};
            for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
                row.values[m] = trial->choices[m][s].qps / trial->homogeneous_qps[m];
            }
            write_row(file, " %.2f |", &row);
        }
        (void)fprintf(file, "| mix for laxity |");
        for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
            (void)fprintf(file, " %s |", mix_text(&trial->choices[m][KAIROS_TRIED_LAXITY].mix).text);
        }
        (void)fprintf(file, " |\n");
    }
    (void)fprintf(file,
                  "\n## Where the numbers come from\n\n"
                  "Latency samples, prices, objectives and the distribution of sizes are the published artifact's\n"
                  "(github.com/boringlee24/hpdc23-kairos, commit fa20590, MIT, zenodo 7888058). fcfs is Ribbon's (base first), threshold\n"
                  "is DeepRecSys' with hill climbing over (96, 128, 192, 256, 384, 512, ...) on each mix, clockwork is the paper's\n"
                  "stand-in for Clockwork and edf the rule of Clockwork's own controller; `sched/policy.h` states each. All of it took\n"
                  "%.0f s on %u threads.\n",
                  page->seconds, page->threads);
}

/* ---- Figures ----------------------------------------------------------------------------------- */

static enum leat_status
write_plot(const char *folder, const char *name, const char *of, const struct plot *plot,
           void (*draw)(const struct plot *plot, FILE *out))
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/kairos-%s%s.svg", folder, name, of);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return LEAT_FAIL(LEAT_ERR_SYS, "%s cannot be written", path);
    }
    draw(plot, file);
    const bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        return LEAT_FAIL(LEAT_ERR_SYS, "%s cannot be written", path);
    }
    return LEAT_OK;
}

static enum leat_status
plot_throughput(const struct kairos_page *page, const char *folder)
{
    const char *groups[KAIROS_MODELS];
    double values[KAIROS_SCHEMES][KAIROS_MODELS];
    struct plot_series series[KAIROS_SCHEMES] = {0};

    for (uint32_t scheme = 0; scheme < KAIROS_SCHEMES; scheme++) {
        for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
            groups[m] = page->results[m].name;
            values[scheme][m] = page->results[m].best[scheme].qps / page->results[m].best[KAIROS_HOMOGENEOUS].qps;
        }
        series[scheme].name = kairos_scheme_names[scheme];
        series[scheme].values = values[scheme];
    }
    const struct plot plot = {
        .title = "Allowable throughput, each scheme on its best mix",
        .subtitle = "Simulated; 2.5 USD an hour, 99 of 100 queries within the objective",
        .x_label = "model",
        .y_label = "throughput over homogeneous",
        .count = KAIROS_MODELS,
        .groups = groups,
        .series_count = KAIROS_SCHEMES,
        .series = series,
    };
    return write_plot(folder, "throughput", "", &plot, plot_bars);
}

static enum leat_status
plot_violations(const struct kairos_result *result, const char *folder)
{
    struct plot_series series[KAIROS_SCHEMES] = {0};
    double percent[KAIROS_SCHEMES][KAIROS_CURVE];
    char title[128];
    uint32_t count = 0;

    for (uint32_t scheme = KAIROS_FCFS; scheme < KAIROS_ORACLE; scheme++) {
        for (uint32_t i = 0; i < KAIROS_CURVE; i++) {
            /* Beyond some per cent a scheme is lost, and how much says nothing. */
            percent[scheme][i] = result->curve[scheme][i] <= 0.1 ? result->curve[scheme][i] * 100 : (double)NAN;
        }
        series[count].name = kairos_scheme_names[scheme];
        series[count++].values = percent[scheme];
    }
    (void)snprintf(title, sizeof(title), "%s on %s: queries that miss the objective", result->name,
                   mix_text(&result->best[KAIROS_MATCHING].mix).text);
    const struct plot plot = {
        .title = title,
        .subtitle = "Simulated; shares above 10 % are left out",
        .x_label = "queries a second",
        .y_label = "late, % of queries",
        .count = KAIROS_CURVE,
        .x = result->curve_rates_qps,
        .series_count = count,
        .series = series,
        .limit_name = "allowed",
        .limit = 1,
    };
    return write_plot(folder, "violations-", result->name, &plot, plot_lines);
}

static enum leat_status
plot_bounds(const struct kairos_result *result, const char *folder)
{
    static const enum kairos_scheme shown[] = {KAIROS_MATCHING, KAIROS_LAXITY, KAIROS_ORACLE};
    struct plot_series series[1 + sizeof(shown) / sizeof(shown[0])] = {{.name = "bound", .values = result->bounds_qps}};
    const uint32_t count = result->mix_count < BOUNDS_SHOWN ? result->mix_count : BOUNDS_SHOWN;
    double ranks[BOUNDS_SHOWN];
    char title[128];

    for (uint32_t c = 0; c < count; c++) {
        ranks[c] = c + 1;
    }
    for (uint32_t s = 0; s < sizeof(shown) / sizeof(shown[0]); s++) {
        series[s + 1].name = kairos_scheme_names[shown[s]];
        series[s + 1].values = result->all_qps[shown[s]];
    }
    (void)snprintf(title, sizeof(title), "%s: what mixes should serve at most, and what they serve", result->name);
    const struct plot plot = {
        .title = title,
        .subtitle = "Simulated; one seed",
        .x_label = "mixes by falling bound",
        .y_label = "queries a second",
        .count = count,
        .x = ranks,
        .series_count = sizeof(series) / sizeof(series[0]),
        .series = series,
    };
    return write_plot(folder, "bounds-", result->name, &plot, plot_lines);
}

static enum leat_status
write_plots(const struct kairos_page *page, const char *folder)
{
    enum leat_status status = plot_throughput(page, folder);
    for (uint32_t m = 0; status == LEAT_OK && m < KAIROS_MODELS; m++) {
        status = plot_violations(&page->results[m], folder);
        if (status == LEAT_OK) {
            status = plot_bounds(&page->results[m], folder);
        }
    }
    return status;
}

enum leat_status
kairos_page_write(const struct kairos_page *page, const char *folder)
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/kairos.md", folder);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return LEAT_FAIL(LEAT_ERR_SYS, "%s cannot be written", path);
    }
    write_head(file, page);
    write_throughput(file, page);
    write_ratios(file, page);
    write_mixes(file, page);
    write_trials(file, page);
    if (fclose(file) != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "%s cannot be written", path);
    }
    return write_plots(page, folder);
}
