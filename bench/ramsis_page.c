/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/ramsis_page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/align.h"
#include "bench/support.h"
#include "tools/simulate/plot.h"

#define LOST 0.1 /* violations above which accuracy says nothing */

const char *const ramsis_scheme_names[RAMSIS_SCHEMES] = {
    [RAMSIS_PAPER] = "RAMSIS",
    [RAMSIS_JELLYFISH] = "jellyfish",
    [RAMSIS_SWITCHING] = "model switching",
    [RAMSIS_GREEDY] = "greedy",
    [RAMSIS_FIXED] = "fixed",
    [RAMSIS_INFAAS] = "infaas",
    [RAMSIS_LEAT] = "leat",
    [RAMSIS_LEAT_DROP] = "leat, dropping",
    [RAMSIS_DAEMON] = "leat as served",
    [RAMSIS_DAEMON_DROP] = "leat as served, dropping",
    [RAMSIS_DEALT] = "RAMSIS by query",
    [RAMSIS_LEAT_PROMPT] = "leat, prompt",
    [RAMSIS_PAPER_TOLD] = "RAMSIS, told",
    [RAMSIS_LEAT_TOLD] = "leat, told",
};

static const char *const task_names[RAMSIS_TASKS] = {"image", "text"};
static const enum ramsis_scheme main_schemes[] = {RAMSIS_PAPER,  RAMSIS_JELLYFISH, RAMSIS_SWITCHING, RAMSIS_GREEDY,
                                                  RAMSIS_FIXED,  RAMSIS_INFAAS,    RAMSIS_LEAT,      RAMSIS_LEAT_DROP,
                                                  RAMSIS_DAEMON, RAMSIS_DAEMON_DROP};

struct text {
    char text[32];
};

/* A share as per cent; a nought is one. */
static struct text
rare(double share)
{
    struct text text;
    const char *format = share < 0.0001 ? "%.4f" : share < 0.01 ? "%.3f" : "%.1f";
    (void)snprintf(text.text, sizeof(text.text), share == 0 ? "0" : share < 0.0000005 ? "< 0.0001" : format, 100 * share);
    return text;
}

static struct text
percent(double share)
{
    struct text text;
    (void)snprintf(text.text, sizeof(text.text), isnan(share) ? "-" : "%.2f", 100 * share);
    return text;
}

/* ---- Verdicts ---------------------------------------------------------------------------------- */

/* Figures of the page have two digits: what is less apart than half of the last is equal. */
static bool
as_accurate(const struct ramsis_outcome *one, const struct ramsis_outcome *other)
{
    return one->accuracy >= other->accuracy - 0.00005;
}

/* How a scheme compares with RAMSIS over the loads of a task. */
struct verdict {
    uint32_t loads;          /* at which it is at least as accurate and has no more violations */
    uint32_t accurate, safe; /* at which it is the one; the other */
    double gained;           /* accuracy, mean over loads where neither has more than a tenth of violations */
    uint32_t gained_of;      /* so many */
};

static struct verdict
judge(const struct ramsis_case *cases, uint32_t count, enum ramsis_scheme scheme)
{
    struct verdict verdict = {0};

    for (uint32_t c = 0; c < count; c++) {
        const struct ramsis_outcome *one = &cases[c].outcomes[scheme], *paper = &cases[c].outcomes[RAMSIS_PAPER];
        const bool accurate = as_accurate(one, paper), safe = one->violation <= paper->violation;
        verdict.accurate += accurate;
        verdict.safe += safe;
        verdict.loads += accurate && safe;
        if (one->violation <= LOST && paper->violation <= LOST) {
            verdict.gained += one->accuracy - paper->accuracy;
            verdict.gained_of++;
        }
    }
    verdict.gained /= verdict.gained_of > 0 ? verdict.gained_of : 1;
    return verdict;
}

static const char *
held(bool holds)
{
    return holds ? "held" : "**not held**";
}

/* What no policy could have had beyond this, mean and most over loads. */
static void
distance(const struct ramsis_case *cases, uint32_t count, enum ramsis_scheme scheme, double *ret_mean, double *ret_most)
{
    *ret_mean = *ret_most = 0;
    for (uint32_t c = 0; c < count; c++) {
        const double behind = cases[c].bound - cases[c].outcomes[scheme].net;
        *ret_mean += behind / count;
        *ret_most = fmax(*ret_most, behind);
    }
}

/* ---- The page ---------------------------------------------------------------------------------- */

static void
write_head(FILE *file, const struct ramsis_page *page)
{
    (void)fprintf(
        file,
        "# RAMSIS' evaluation, simulated\n\n"
        "Several models can answer a query, some more accurate, some faster. Which one, and how many queries at once, gives\n"
        "the most accurate answers in time? The setting is that of D. Mendoza et al., \"Model Selection for Latency-Critical\n"
        "Inference Serving\" (RAMSIS), EuroSys 2024: nine image models on 60 workers within 150 ms, five text models on 20\n"
        "workers within 100 ms. Everything but the time to make policies is **simulated**: by the code that routes and selects\n"
        "in the daemon, on a virtual clock, a batch taking the 95th percentile of what the authors measured and published, as in\n"
        "their simulator. `bench/ramsis` writes the page.\n\n"
        "Accuracy is the mean of the queries that are answered in time. Violations are all others: late, given up, or never\n"
        "served though their time is over. Late queries are served in their turn, as in the paper's simulator, but where it says\n"
        "*dropping*, where a query that waits until its deadline is dropped, and by *leat as served*, where they come last.\n"
        "Arrivals are Poisson; figures are of %u seeds, the same arrivals for all; what is chosen by simulation (model\n"
        "switching's tables, fixed's variant) is chosen on another one.\n\n"
        "| | |\n|---|---|\n"
        "| RAMSIS | a queue for each worker, dealt round robin; policies as published (`sched/mdp.h`, mode PAPER) |\n"
        "| jellyfish | Jellyfish+: one variant and largest batch for each load |\n"
        "| model switching | the same, chosen by simulating every variant at every load for 300 s |\n"
        "| greedy | the most accurate variant that has what waits in time |\n"
        "| fixed | the most accurate variant that has 99 %% in time by itself |\n"
        "| infaas | INFaaS: the cheapest variant that is in time; nobody asks for an accuracy here, so that is the fastest |\n"
        "| leat | one queue before all workers, semi-Markov policies for accuracy a query (`sched/mdp_pool.h`), sizes as in the daemon |\n"
        "| leat as served | the same with the daemon's own ladder of %u loads, followed by its load monitor |\n"
        "| bound | no policy has more accuracy in time less %.0f for each violation, whatever it knows (`leat_mdp_pool_bound`) |\n\n"
        "All but *leat as served* are told the load where it is constant, and have a policy for just that load.\n\n",
        page->seeds, RAMSIS_RATES_MAX, RAMSIS_LATE_PENALTY);
}

static void
write_targets(FILE *file, const struct ramsis_page *page)
{
    static const enum ramsis_scheme judged[] = {RAMSIS_LEAT, RAMSIS_LEAT_DROP, RAMSIS_DAEMON, RAMSIS_DAEMON_DROP};

    (void)fprintf(file, "## What was aimed at\n\n"
                        "At every load no less accuracy and no more violations than RAMSIS, and more accuracy on average; on the trace half a\n"
                        "point more accuracy at no more violations. Points of accuracy over RAMSIS, of how many of the ten loads the former\n"
                        "holds, or violations after RAMSIS':\n\n| |");
    for (uint32_t j = 0; j < LEAT_COUNT_OF(judged); j++) {
        (void)fprintf(file, " %s |", ramsis_scheme_names[judged[j]]);
    }
    (void)fprintf(file, "\n|---|---|---|---|---|\n");
    for (uint32_t task = 0; task < RAMSIS_TASKS; task++) {
        (void)fprintf(file, "| %s, constant loads |", task_names[task]);
        for (uint32_t j = 0; j < LEAT_COUNT_OF(judged); j++) {
            const struct verdict verdict = judge(page->loads[task], RAMSIS_LOADS, judged[j]);
            (void)fprintf(file, " %+.2f, %u of %u: %s |", 100 * verdict.gained, verdict.loads, RAMSIS_LOADS,
                          held(verdict.loads == RAMSIS_LOADS && verdict.gained > 0));
        }
        (void)fprintf(file, "\n");
    }
    for (uint32_t t = 0; t < RAMSIS_TRACES; t++) {
        const struct ramsis_outcome *paper = &page->traces[t].outcomes[RAMSIS_PAPER];
        (void)fprintf(file, "| trace, %u workers |", page->traces[t].world->workers);
        for (uint32_t j = 0; j < LEAT_COUNT_OF(judged); j++) {
            const struct ramsis_outcome *one = &page->traces[t].outcomes[judged[j]];
            (void)fprintf(file, " %+.2f, %s %% after %s %%: %s |", 100 * (one->accuracy - paper->accuracy),
                          rare(one->violation).text, rare(paper->violation).text,
                          held(one->accuracy - paper->accuracy >= 0.005 && one->violation <= paper->violation));
        }
        (void)fprintf(file, "\n");
    }
    for (uint32_t task = 0; task < RAMSIS_TASKS; task++) {
        (void)fprintf(file, "| %s, points behind the bound: mean, most |", task_names[task]);
        for (uint32_t j = 0; j < LEAT_COUNT_OF(judged); j++) {
            double mean, most;
            distance(page->loads[task], RAMSIS_LOADS, judged[j], &mean, &most);
            (void)fprintf(file, " %.2f, %.2f |", 100 * mean, 100 * most);
        }
        (void)fprintf(file, "\n");
    }
    (void)fprintf(file, "\nAccuracies that differ by less than 0.005 points count as equal; averages leave out loads at which either\n"
                        "has more than %.0f %% of violations, since the accuracy of a few says nothing. Behind the bound is accuracy in time\n"
                        "less %.0f for each violation.\n",
                  100 * LOST, RAMSIS_LATE_PENALTY);
}

/* Rows of loads, columns of schemes. */
static void
write_heading(FILE *file, const char *first, const char *more)
{
    uint32_t columns = 1;

    (void)fprintf(file, "| %s |", first);
    for (uint32_t s = 0; s < LEAT_COUNT_OF(main_schemes); s++) {
        (void)fprintf(file, " %s |", ramsis_scheme_names[main_schemes[s]]);
        columns++;
    }
    if (more != NULL) {
        (void)fprintf(file, " %s |", more);
        columns++;
    }
    (void)fprintf(file, "\n|");
    for (uint32_t c = 0; c < columns; c++) {
        (void)fprintf(file, "---|");
    }
    (void)fprintf(file, "\n");
}

static void
write_loads(FILE *file, const struct ramsis_page *page, uint32_t task)
{
    const struct ramsis_case *cases = page->loads[task];
    (void)fprintf(file,
                  "\n### %s\n\n![Accuracy, %s](ramsis-accuracy-%s.svg)\n![Violations, %s](ramsis-violations-%s.svg)\n\n"
                  "Accuracy, %%:\n\n",
                  task_names[task], task_names[task], task_names[task], task_names[task], task_names[task]);
    write_heading(file, "queries a second", "bound");
    for (uint32_t load = 0; load < RAMSIS_LOADS; load++) {
        (void)fprintf(file, "| %u |", cases[load].rate_qps);
        for (uint32_t s = 0; s < LEAT_COUNT_OF(main_schemes); s++) {
            (void)fprintf(file, " %s |", percent(cases[load].outcomes[main_schemes[s]].accuracy).text);
        }
        (void)fprintf(file, " %s |\n", percent(cases[load].bound_accuracy).text);
    }
    (void)fprintf(file, "\nViolations, %%:\n\n");
    write_heading(file, "queries a second", NULL);
    for (uint32_t load = 0; load < RAMSIS_LOADS; load++) {
        (void)fprintf(file, "| %u |", cases[load].rate_qps);
        for (uint32_t s = 0; s < LEAT_COUNT_OF(main_schemes); s++) {
            (void)fprintf(file, " %s |", rare(cases[load].outcomes[main_schemes[s]].violation).text);
        }
        (void)fprintf(file, "\n");
    }
    (void)fprintf(file, "\nThe workers answer at most %.0f queries a second in time, by any variant. Beyond that,\n"
                        "late queries that are served all the same make others late. The bound is of policies without violations.\n",
                  page->capacity_qps[task]);
}

static void
write_expected(FILE *file, const struct ramsis_page *page)
{
    (void)fprintf(file, "\n### What policies expect\n\n"
                        "Accuracy and violations, %%, as solving a policy says beforehand, for loads that go on for ever, and as simulated\n"
                        "for 30 s, in which the queues of an overload still grow:\n\n"
                        "| | RAMSIS expects | simulated | leat expects | simulated |\n|---|---|---|---|---|\n");
    for (uint32_t task = 0; task < RAMSIS_TASKS; task++) {
        for (uint32_t load = 0; load < RAMSIS_LOADS; load++) {
            const struct ramsis_case *found = &page->loads[task][load];
            (void)fprintf(file, "| %s, %u |", task_names[task], found->rate_qps);
            static const enum ramsis_scheme expecting[] = {RAMSIS_PAPER, RAMSIS_LEAT};
            for (uint32_t s = 0; s < LEAT_COUNT_OF(expecting); s++) {
                const struct leat_policy *policy = found->world->policies[expecting[s]];
                const struct ramsis_outcome *outcome = &found->outcomes[expecting[s]];
                uint32_t rung = 0;
                while (leat_policy_rung(policy, rung)->rate_qps < found->rate_qps) {
                    rung++;
                }
                const struct leat_policy_rung *values = leat_policy_rung(policy, rung);
                (void)fprintf(file, " %.2f, %s | %.2f, %s |", values->accuracy_ppm / 1e4,
                              rare(values->violation_ppb / 1e9).text, 100 * outcome->accuracy,
                              rare(outcome->violation).text);
            }
            (void)fprintf(file, "\n");
        }
    }
}

static void
write_traces(FILE *file, const struct ramsis_page *page)
{
    (void)fprintf(file, "\n## The trace\n\n"
                        "A day of Twitter's load as the authors scaled it to 261 s, repeated to 300 s, 1617 to 3905 queries a second.\n"
                        "Policies are for 200, 400, ... 4000 queries a second (but *leat as served*), followed by the daemon's load\n"
                        "monitor with a window of 500 ms; leat's own see a rise within an eighth of it. Accuracy and violations, %%; net is accuracy\n"
                        "in time less %.0f for each violation, of all queries:\n\n![Accuracy on the trace](ramsis-accuracy-trace.svg)\n![Violations on the trace](ramsis-violations-trace.svg)\n\n| |",
                  RAMSIS_LATE_PENALTY);
    for (uint32_t t = 0; t < RAMSIS_TRACES; t++) {
        const uint32_t workers = page->traces[t].world->workers;
        (void)fprintf(file, " %u workers: accuracy | violations | net |", workers);
    }
    (void)fprintf(file, "\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t s = 0; s < LEAT_COUNT_OF(main_schemes); s++) {
        (void)fprintf(file, "| %s |", ramsis_scheme_names[main_schemes[s]]);
        for (uint32_t t = 0; t < RAMSIS_TRACES; t++) {
            const struct ramsis_outcome *outcome = &page->traces[t].outcomes[main_schemes[s]];
            (void)fprintf(file, " %.2f | %s | %.2f |", 100 * outcome->accuracy, rare(outcome->violation).text,
                          100 * outcome->net);
        }
        (void)fprintf(file, "\n");
    }
    (void)fprintf(file, "| bound |");
    for (uint32_t t = 0; t < RAMSIS_TRACES; t++) {
        (void)fprintf(file, " %s | | %.2f |", percent(page->traces[t].bound_accuracy).text, 100 * page->traces[t].bound);
    }
    (void)fprintf(file, "\n\nThe bound is the mean of those of the trace's seconds, by their queries. What *leat as served* loses beside\n"
                        "*leat* is its ladder: a rung is used for all loads down to the next lower one.\n");
}

static const enum ramsis_scheme compared[] = {RAMSIS_PAPER, RAMSIS_DEALT, RAMSIS_LEAT_PROMPT, RAMSIS_LEAT, RAMSIS_JELLYFISH};

static void
write_changed(FILE *file, const struct ramsis_case *found)
{
    for (uint32_t s = 0; s < LEAT_COUNT_OF(compared); s++) {
        const struct ramsis_outcome *outcome = &found->outcomes[compared[s]];
        (void)fprintf(file, " %.2f, %s, %.0f |", 100 * outcome->accuracy, rare(outcome->violation).text,
                      outcome->response_ms);
    }
    (void)fprintf(file, " %s |\n", percent(found->bound_accuracy).text);
}

static void
write_changes(FILE *file, const struct ramsis_page *page)
{
    (void)fprintf(file,
                  "\n## What each change buys\n\n"
                  "RAMSIS weighs decisions alike, so that a large batch with a poor model costs no more than a small one, and deals\n"
                  "queries to workers before it is known which of them will be free. *RAMSIS by query* has the same queues, states and\n"
                  "actions, but maximises accuracy a query over time, less %.0f for each late one (`sched/mdp.h`, mode LEAT); *leat,\n"
                  "prompt* has one queue too, and *leat* may let queries of it wait for others though a worker is idle. Accuracy and\n"
                  "violations in %%, mean time to the answer in ms:\n\n"
                  "| |",
                  RAMSIS_LATE_PENALTY);
    for (uint32_t s = 0; s < LEAT_COUNT_OF(compared); s++) {
        (void)fprintf(file, " %s |", ramsis_scheme_names[compared[s]]);
    }
    (void)fprintf(file, " bound |\n|---|---|---|---|---|---|---|\n");
    for (uint32_t task = 0; task < RAMSIS_TASKS; task++) {
        for (uint32_t load = 0; load < RAMSIS_LOADS; load++) {
            const struct ramsis_case *found = &page->loads[task][load];
            (void)fprintf(file, "| %s, %u |", task_names[task], found->rate_qps);
            write_changed(file, found);
        }
    }
    for (uint32_t t = 0; t < RAMSIS_TRACES; t++) {
        (void)fprintf(file, "| trace, %u workers |", page->traces[t].world->workers);
        write_changed(file, &page->traces[t]);
    }
}

/* Of the loads that can be answered in time, the means. */
static void
mean_of(const struct ramsis_case *cases, enum ramsis_scheme scheme, double *ret_accuracy, double *ret_violation)
{
    uint32_t count = 0;

    *ret_accuracy = *ret_violation = 0;
    for (uint32_t load = 0; load < RAMSIS_LOADS && !isnan(cases[load].bound_accuracy); load++) {
        *ret_accuracy += cases[load].outcomes[scheme].accuracy;
        *ret_violation += cases[load].outcomes[scheme].violation;
        count++;
    }
    *ret_accuracy /= count;
    *ret_violation /= count;
}

static void
write_trials(FILE *file, const struct ramsis_page *page)
{
    static const enum ramsis_scheme tried[] = {
        RAMSIS_PAPER, RAMSIS_PAPER_TOLD, RAMSIS_JELLYFISH, RAMSIS_SWITCHING, RAMSIS_GREEDY, RAMSIS_FIXED,
        RAMSIS_LEAT,  RAMSIS_LEAT_DROP,  RAMSIS_LEAT_TOLD, RAMSIS_DAEMON,    RAMSIS_DAEMON_DROP};
    static const enum ramsis_scheme judged[] = {RAMSIS_LEAT, RAMSIS_LEAT_TOLD, RAMSIS_DAEMON_DROP};

    (void)fprintf(file,
                  "\n## Other circumstances\n\n"
                  "The same loads where a batch takes other than the table says (normal, with that standard deviation, the mean as in\n"
                  "the table); where counts of arrivals in any interval have that many times the variance of Poisson ones (negative\n"
                  "binomial: Poisson counts whose rate is Gamma distributed); with the three models of the paper's appendix E; and with\n"
                  "longer objectives. Policies are made for exact times and Poisson arrivals, but where it says *told*; those of *leat as\n"
                  "served* are told too, since the daemon measures both. Made for exact times they fill the time to the deadline;\n"
                  "leat's selector, not RAMSIS', then keeps a reserve of how late batches have ended (`sched/reserve.h`). Accuracy and violations, %%, means over those of the ten loads\n"
                  "that the workers can answer in time at all; below, at how many of the ten there is no less accuracy and are no more\n"
                  "violations than with RAMSIS:\n\n| |");
    for (uint32_t s = 0; s < LEAT_COUNT_OF(tried); s++) {
        (void)fprintf(file, " %s |", ramsis_scheme_names[tried[s]]);
    }
    (void)fprintf(file, " bound |\n|---|");
    for (uint32_t s = 0; s <= LEAT_COUNT_OF(tried); s++) {
        (void)fprintf(file, "---|");
    }
    (void)fprintf(file, "\n");
    for (uint32_t t = 0; t < page->trial_count; t++) {
        const struct ramsis_case *cases = page->trials[t].cases;
        double bound = 0, count = 0;
        (void)fprintf(file, "| %s |", page->trials[t].title);
        for (uint32_t s = 0; s < LEAT_COUNT_OF(tried); s++) {
            double accuracy, violation;
            mean_of(cases, tried[s], &accuracy, &violation);
            if ((cases[0].schemes >> tried[s] & 1) != 0) {
                (void)fprintf(file, " %.2f, %s |", 100 * accuracy, rare(violation).text);
            } else {
                (void)fprintf(file, " |");
            }
        }
        for (uint32_t load = 0; load < RAMSIS_LOADS && !isnan(cases[load].bound_accuracy); load++, count++) {
            bound += cases[load].bound_accuracy;
        }
        (void)fprintf(file, " %.2f |\n", 100 * bound / count);
    }
    (void)fprintf(file, "\n| loads no worse than RAMSIS |");
    for (uint32_t s = 0; s < LEAT_COUNT_OF(judged); s++) {
        (void)fprintf(file, " %s |", ramsis_scheme_names[judged[s]]);
    }
    (void)fprintf(file, "\n|---|---|---|---|\n");
    for (uint32_t t = 0; t < page->trial_count; t++) {
        (void)fprintf(file, "| %s |", page->trials[t].title);
        for (uint32_t s = 0; s < LEAT_COUNT_OF(judged); s++) {
            if ((page->trials[t].cases[0].schemes >> judged[s] & 1) != 0) {
                const struct verdict verdict = judge(page->trials[t].cases, RAMSIS_LOADS, judged[s]);
                (void)fprintf(file, " %u, accuracy %u, violations %u |", verdict.loads, verdict.accurate, verdict.safe);
            } else {
                (void)fprintf(file, " |");
            }
        }
        (void)fprintf(file, "\n");
    }
}

static void
write_costs(FILE *file, const struct ramsis_page *page)
{
    (void)fprintf(file,
                  "\n## Making policies\n\n"
                  "Time on this machine, of one load CPU time, what RAMSIS' policies are expected to do included; %u loads, %u threads. The\n"
                  "published code takes 19 s of one core for one policy of image; the paper says 132 s for its machine.\n\n"
                  "| | image | text |\n|---|---|---|\n",
                  page->costs[0].rate_count, page->threads);
    const struct {
        const char *what;
        double values[RAMSIS_TASKS];
        const char *format;
    } rows[] = {
        {"RAMSIS, one load", {page->costs[0].paper_s, page->costs[1].paper_s}, " %.3g s |"},
        {"RAMSIS by query, one load", {page->costs[0].dealt_s, page->costs[1].dealt_s}, " %.3g s |"},
        {"leat, one load", {page->costs[0].pool_s, page->costs[1].pool_s}, " %.3g s |"},
        {"RAMSIS, all loads, all cores", {page->costs[0].paper_all_s, page->costs[1].paper_all_s}, " %.3g s |"},
        {"leat, all loads, all cores", {page->costs[0].pool_all_s, page->costs[1].pool_all_s}, " %.3g s |"},
        {"model switching, all loads, all cores", {page->costs[0].switching_s, page->costs[1].switching_s}, " %.3g s |"},
        {"RAMSIS, actions of one load", {(double)page->costs[0].paper_bytes, (double)page->costs[1].paper_bytes}, " %.0f B |"},
        {"leat, actions of one load", {(double)page->costs[0].pool_bytes, (double)page->costs[1].pool_bytes}, " %.0f B |"},
        {"RAMSIS, all loads", {(double)page->costs[0].paper_all_bytes / 1024, (double)page->costs[1].paper_all_bytes / 1024}, " %.0f KiB |"},
        {"leat, all loads", {(double)page->costs[0].pool_all_bytes / 1024, (double)page->costs[1].pool_all_bytes / 1024}, " %.0f KiB |"},
    };
    for (uint32_t r = 0; r < LEAT_COUNT_OF(rows); r++) {
        (void)fprintf(file, "| %s |", rows[r].what);
        for (uint32_t task = 0; task < RAMSIS_TASKS; task++) {
            (void)fprintf(file, rows[r].format, rows[r].values[task]);
        }
        (void)fprintf(file, "\n");
    }
    (void)fprintf(file,
                  "\n## Where the numbers come from\n\n"
                  "Latencies and accuracies are those of the published artifact (github.com/dmmendo/RAMSIS, commit 9b74967): measured\n"
                  "by its authors on four virtual Haswell CPUs a worker. Batch sizes that were not measured are filled in as its code\n"
                  "does (`sched/latency_table.h`). The trace is the artifact's, its last interval one second. All of it took %.0f s on\n"
                  "%u threads.\n",
                  page->seconds, page->threads);
}

/* ---- Figures ----------------------------------------------------------------------------------- */

static enum leat_status
write_plot(const char *folder, const char *name, const struct plot *plot)
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/ramsis-%s.svg", folder, name);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return LEAT_FAIL(LEAT_ERR_SYS, "%s cannot be written", path);
    }
    plot_lines(plot, file);
    const bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        return LEAT_FAIL(LEAT_ERR_SYS, "%s cannot be written", path);
    }
    return LEAT_OK;
}

static const enum ramsis_scheme plotted[] = {RAMSIS_PAPER, RAMSIS_JELLYFISH, RAMSIS_SWITCHING, RAMSIS_GREEDY,
                                             RAMSIS_FIXED, RAMSIS_INFAAS,    RAMSIS_LEAT,      RAMSIS_DAEMON_DROP};
enum { SERIES_MAX = LEAT_COUNT_OF(plotted) + 1, POINTS_MAX = RAMSIS_LOADS };

/* A figure's numbers: accuracies, or violations, of cases. */
struct figure {
    double x[POINTS_MAX], y[SERIES_MAX][POINTS_MAX];
    struct plot_series series[SERIES_MAX];
    uint32_t series_count;
    double least;
};

static void
collect(const struct ramsis_case *cases, uint32_t count, bool violations, struct figure *figure)
{
    *figure = (struct figure){.least = INFINITY};
    for (uint32_t c = 0; c < count; c++) {
        figure->x[c] = cases[c].rates != NULL ? cases[c].world->workers : cases[c].rate_qps;
    }
    for (uint32_t s = 0; s < SERIES_MAX; s++) {
        const bool bound = s == LEAT_COUNT_OF(plotted);
        if (bound && violations) {
            continue;
        }
        double *y = figure->y[figure->series_count];
        for (uint32_t c = 0; c < count; c++) {
            const struct ramsis_outcome *outcome = bound ? NULL : &cases[c].outcomes[plotted[s]];
            const double value = bound ? cases[c].bound_accuracy : violations ? outcome->violation : outcome->accuracy;
            y[c] = !bound && !violations && outcome->violation > LOST ? (double)NAN : 100 * value;
            figure->least = fmin(figure->least, y[c]); /* passes NAN over */
        }
        figure->series[figure->series_count++] =
            (struct plot_series){.name = bound ? "bound" : ramsis_scheme_names[plotted[s]], .values = y};
    }
}

static enum leat_status
plot_cases(const char *folder, const char *name, const char *title, const char *x_label, bool violations, uint32_t count,
           const struct figure *figure)
{
    const struct plot plot = {
        .title = title,
        .subtitle = violations ? "Simulated" : "Simulated; points with more than 10 % of violations are left out",
        .x_label = x_label,
        .y_label = violations ? "violations, % of queries" : "accuracy of queries in time, %",
        .count = count,
        .x = figure->x,
        .series_count = figure->series_count,
        .series = figure->series,
        .from = violations ? 0 : 5 * floor(figure->least / 5),
    };
    return write_plot(folder, name, &plot);
}

static enum leat_status
write_plots(const struct ramsis_page *page, const char *folder)
{
    static const char *const worlds[RAMSIS_TASKS] = {"image, 60 workers, 150 ms", "text, 20 workers, 100 ms"};
    enum leat_status status = LEAT_OK;
    struct figure figure;

    for (uint32_t task = 0; task < RAMSIS_TASKS && status == LEAT_OK; task++) {
        for (uint32_t violations = 0; violations < 2 && status == LEAT_OK; violations++) {
            char name[64], title[128];
            (void)snprintf(name, sizeof(name), "%s-%s", violations == 1 ? "violations" : "accuracy", task_names[task]);
            (void)snprintf(title, sizeof(title), "%s: %s", violations == 1 ? "Violations" : "Accuracy", worlds[task]);
            collect(page->loads[task], RAMSIS_LOADS, violations == 1, &figure);
            status = plot_cases(folder, name, title, "queries a second", violations == 1, RAMSIS_LOADS, &figure);
        }
    }
    for (uint32_t violations = 0; violations < 2 && status == LEAT_OK; violations++) {
        collect(page->traces, RAMSIS_TRACES, violations == 1, &figure);
        status = plot_cases(folder, violations == 1 ? "violations-trace" : "accuracy-trace",
                            violations == 1 ? "Violations on the trace: image, 150 ms" : "Accuracy on the trace: image, 150 ms",
                            "workers", violations == 1, RAMSIS_TRACES, &figure);
    }
    return status;
}

enum leat_status
ramsis_page_write(const struct ramsis_page *page, const char *folder)
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/ramsis.md", folder);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return LEAT_FAIL(LEAT_ERR_SYS, "%s cannot be written", path);
    }
    write_head(file, page);
    write_targets(file, page);
    (void)fprintf(file, "\n## Constant loads\n");
    for (uint32_t task = 0; task < RAMSIS_TASKS; task++) {
        write_loads(file, page, task);
    }
    write_expected(file, page);
    write_traces(file, page);
    write_changes(file, page);
    write_trials(file, page);
    write_costs(file, page);
    const bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        return LEAT_FAIL(LEAT_ERR_SYS, "%s cannot be written", path);
    }
    return write_plots(page, folder);
}

/* ---- Records ----------------------------------------------------------------------------------- */

static void
print_line(const char *subject, enum ramsis_scheme scheme, double accuracy, double violation, uint32_t samples)
{
    (void)printf("{\"bench\":\"ramsis\",\"case\":\"%s, %s\",\"metric\":\"accuracy\",\"value\":%.3f,\"unit\":\"%%\","
                 "\"violations\":%.3g,\"samples\":%u}\n",
                 subject, ramsis_scheme_names[scheme], 100 * accuracy, 100 * violation, samples);
}

static void
print_case(const char *subject, const struct ramsis_case *found, uint32_t seeds)
{
    for (enum ramsis_scheme scheme = 0; scheme < RAMSIS_SCHEMES; scheme++) {
        if ((found->schemes >> scheme & 1) != 0) {
            print_line(subject, scheme, found->outcomes[scheme].accuracy, found->outcomes[scheme].violation, seeds);
        }
    }
    (void)printf("{\"bench\":\"ramsis\",\"case\":\"%s\",\"metric\":\"bound\",\"value\":%.3f,\"unit\":\"%%\"}\n", subject,
                 100 * found->bound);
}

static void
print_costs(const struct ramsis_page *page)
{
    for (uint32_t task = 0; task < RAMSIS_TASKS; task++) {
        const struct ramsis_cost *cost = &page->costs[task];
        const struct {
            const char *what;
            double seconds;
        } rows[] = {
            {"one RAMSIS policy", cost->paper_s},
            {"one RAMSIS by query policy", cost->dealt_s},
            {"one leat policy", cost->pool_s},
            {"all RAMSIS policies, all cores", cost->paper_all_s},
            {"all leat policies, all cores", cost->pool_all_s},
        };
        for (uint32_t r = 0; r < LEAT_COUNT_OF(rows); r++) {
            (void)printf("{\"bench\":\"ramsis\",\"case\":\"%s, %s\",\"metric\":\"time\",\"value\":%.4g,\"unit\":\"s\"}\n",
                         task_names[task], rows[r].what, rows[r].seconds);
        }
    }
}

void
ramsis_page_print_json(const struct ramsis_page *page)
{
    const struct bench_options options = {.name = "ramsis", .json = true};
    char subject[96];

    for (uint32_t task = 0; task < RAMSIS_TASKS; task++) {
        for (uint32_t load = 0; load < RAMSIS_LOADS; load++) {
            (void)snprintf(subject, sizeof(subject), "%s, %u/s", task_names[task], page->loads[task][load].rate_qps);
            print_case(subject, &page->loads[task][load], page->seeds);
        }
    }
    for (uint32_t t = 0; t < RAMSIS_TRACES; t++) {
        (void)snprintf(subject, sizeof(subject), "trace, %u workers", page->traces[t].world->workers);
        print_case(subject, &page->traces[t], page->seeds);
    }
    for (uint32_t t = 0; t < page->trial_count; t++) {
        const struct ramsis_case *cases = page->trials[t].cases;
        for (enum ramsis_scheme scheme = 0; scheme < RAMSIS_SCHEMES; scheme++) {
            if ((cases[0].schemes >> scheme & 1) != 0) {
                double accuracy, violation;
                mean_of(cases, scheme, &accuracy, &violation);
                print_line(page->trials[t].title, scheme, accuracy, violation, page->seeds);
            }
        }
    }
    print_costs(page);
    bench_note_load(&options);
}
