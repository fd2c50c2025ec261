/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     On times that were measured elsewhere, five observations predict all sizes, and many teach the table.
 * Method   Draws from the excerpt beside this file; from all of the samples where LEAT_DATA names a directory with
 *          kairos/latency_samples.csv and kairos/batch_sample_20000.csv: `model,instance,batch,s0..s98` in milliseconds
 *          for sizes 10, 20 .. 1000, and a header and a size a line. Judged against the mean of the samples at each size.
 *          "noisy" are pairs whose samples deviate by a tenth or more; no few of them can say much.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "sched/profile.h"
#include "tests/leat_test.h"
#include "tests/sched/kairos_excerpt.h"

enum { SIZES_MAX = 100, SAMPLES_MAX = 99, DRAWS = 200, ITEMS = 1000, QUERIES_MAX = 20000 };

/* One model on one instance type: sizes step, 2 step .. size_count step. */
struct pair {
    char name[64];
    uint32_t step, size_count, sample_count;
    double ms[SIZES_MAX][SAMPLES_MAX];
    double mean_ms[SIZES_MAX];
    bool noisy;
};

static struct pair pair;
static uint32_t queries[QUERIES_MAX];

static void
summarise(void)
{
    double deviations = 0;

    for (uint32_t s = 0; s < pair.size_count; s++) {
        double sum = 0, squares = 0;
        for (uint32_t i = 0; i < pair.sample_count; i++) {
            sum += pair.ms[s][i];
            squares += pair.ms[s][i] * pair.ms[s][i];
        }
        const double mean = sum / pair.sample_count;
        pair.mean_ms[s] = mean;
        deviations += sqrt(squares / pair.sample_count - mean * mean) / mean;
    }
    pair.noisy = deviations / pair.size_count > 0.1;
}

static double
draw_ms(uint64_t *random, uint32_t size)
{
    return pair.ms[size][leat_test_random(random) % pair.sample_count];
}

/* The published mean at any size; below the first on the line through the first and the fifth. */
static double
published_ms(uint32_t items)
{
    const double at = (double)items / pair.step - 1;
    if (at <= 0) {
        const double extended = pair.mean_ms[0] + (pair.mean_ms[4] - pair.mean_ms[0]) / 4 * at;
        return extended > pair.mean_ms[0] / 2 ? extended : pair.mean_ms[0] / 2;
    }
    const uint32_t below = (uint32_t)at;
    if (below + 1 >= pair.size_count) {
        return pair.mean_ms[pair.size_count - 1];
    }
    return pair.mean_ms[below] + (pair.mean_ms[below + 1] - pair.mean_ms[below]) * (at - below);
}

static double
error_at(const struct leat_profile *profile, uint32_t items)
{
    const double published = published_ms(items);
    return fabs((double)leat_profile_mean(profile, items) / 1e6 - published) / published;
}

static int
compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median error over draws of `count` observations and sizes 1..1000. */
static double
line_error(uint64_t *random, uint32_t count, bool wild)
{
    static double errors[DRAWS * ITEMS];
    uint32_t n = 0;

    for (int draw = 0; draw < DRAWS; draw++) {
        struct leat_profile profile = {0};
        const uint32_t odd = wild ? (uint32_t)(leat_test_random(random) % count) : UINT32_MAX;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t size = (uint32_t)(leat_test_random(random) % pair.size_count);
            const double ns = draw_ms(random, size) * (i == odd ? 1e8 : 1e6);
            leat_profile_learn(&profile, (size + 1) * pair.step, (uint64_t)ns);
        }
        for (uint32_t items = 1; items <= ITEMS; items++) {
            errors[n++] = error_at(&profile, items);
        }
    }
    qsort(errors, n, sizeof(errors[0]), compare);
    return errors[n / 2];
}

/* The share of sizes at which the mean is within `part` of the published one, after `count` queries. */
static double
share_within(const struct leat_profile *profile, double part)
{
    uint32_t within = 0;
    for (uint32_t s = 0; s < pair.size_count; s++) {
        within += error_at(profile, (s + 1) * pair.step) <= part;
    }
    return (double)within / pair.size_count;
}

static void
judge(uint32_t query_count)
{
    static const uint32_t quantiles_ppm[] = {LEAT_PROFILE_DEFAULT, 990000};
    uint64_t random = leat_test_seed;

    const double five = line_error(&random, 5, false), wild = line_error(&random, 8, true);
    EXPECT(five < (pair.noisy ? 0.20 : 0.07));
    EXPECT(wild < (pair.noisy ? 0.25 : 0.09));
    for (int q = 0; q < 2; q++) {
        struct leat_profile profile;
        uint32_t above = 0;
        leat_profile_init(&profile, quantiles_ppm[q], NULL);
        for (uint32_t i = 0; i < query_count; i++) {
            const uint32_t size = (queries[i] + pair.step - 1) / pair.step - 1;
            const uint64_t ns = (uint64_t)(draw_ms(&random, size) * 1e6);
            above += i >= query_count / 10 && ns > leat_profile_predict(&profile, (size + 1) * pair.step);
            leat_profile_learn(&profile, (size + 1) * pair.step, ns);
        }
        const double exceeded = above / (query_count * 0.9), share = q == 0 ? 0.05 : 0.01;
        const double in_2 = share_within(&profile, 0.02), in_5 = share_within(&profile, 0.05);
        (void)printf("%-18s %s line of 5: %.1f %%, of 8 with a wild one: %.1f %%; table: %3.0f %% of sizes within 2 %%, "
                     "%3.0f %% within 5 %%; above p%d: %.2f %%\n",
                     pair.name, pair.noisy ? "noisy" : "     ", five * 100, wild * 100, in_2 * 100, in_5 * 100,
                     q == 0 ? 95 : 99, exceeded * 100);
        EXPECT(pair.noisy ? in_5 >= 0.6 : in_2 >= 0.7 && in_5 >= 0.92);
        EXPECT(exceeded > share * 0.3 && exceeded < share * 1.7); /* of few samples it lies between two */
    }
}

static void
test_excerpt(void)
{
    uint64_t random = leat_test_seed;

    for (uint32_t i = 0; i < QUERIES_MAX; i++) {
        queries[i] = 1 + (uint32_t)(leat_test_random(&random) % ITEMS);
    }
    for (uint32_t p = 0; p < EXCERPT_PAIRS; p++) {
        memset(&pair, 0, sizeof(pair));
        (void)snprintf(pair.name, sizeof(pair.name), "%s", excerpt_names[p]);
        pair.step = EXCERPT_STEP;
        pair.size_count = EXCERPT_SIZES;
        pair.sample_count = EXCERPT_SAMPLES;
        for (uint32_t s = 0; s < EXCERPT_SIZES; s++) {
            for (uint32_t i = 0; i < EXCERPT_SAMPLES; i++) {
                pair.ms[s][i] = excerpt_us[p][s][i] / 1e3;
            }
        }
        summarise();
        judge(QUERIES_MAX);
    }
}

static FILE *
open_data(const char *directory, const char *name)
{
    char path[4200];
    (void)snprintf(path, sizeof(path), "%s/kairos/%s", directory, name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        (void)printf("skipped, all samples: no %s\n", path);
    }
    return file;
}

/* The next size's samples into row `s`; the names of model and instance into the pair. */
static void
read_row(FILE *file, uint32_t s)
{
    static char line[4096];
    EXPECT(fgets(line, sizeof(line), file) != NULL);
    char *rest = line;
    const char *model = strsep(&rest, ","), *instance = strsep(&rest, ","), *batch = strsep(&rest, ",");
    EXPECT(batch != NULL && strtoul(batch, NULL, 10) == (s + 1) * pair.step);
    (void)snprintf(pair.name, sizeof(pair.name), "%s %s", model, instance);
    for (uint32_t i = 0; i < pair.sample_count; i++) {
        EXPECT(rest != NULL);
        pair.ms[s][i] = strtod(strsep(&rest, ","), NULL);
        EXPECT(pair.ms[s][i] > 0);
    }
}

static void
test_all_samples(void)
{
    const char *directory = getenv("LEAT_DATA");
    char line[4096];

    if (directory == NULL) {
        (void)printf("skipped, all samples: LEAT_DATA names no directory\n");
        return;
    }
    FILE *sizes = open_data(directory, "batch_sample_20000.csv"), *samples = open_data(directory, "latency_samples.csv");
    if (sizes != NULL && samples != NULL) {
        EXPECT(fgets(line, sizeof(line), sizes) != NULL && fgets(line, sizeof(line), samples) != NULL);
        for (uint32_t i = 0; i < QUERIES_MAX; i++) {
            EXPECT(fgets(line, sizeof(line), sizes) != NULL);
            queries[i] = (uint32_t)strtoul(line, NULL, 10);
            EXPECT(queries[i] >= 1 && queries[i] <= ITEMS);
        }
        for (int p = 0; p < 20; p++) {
            memset(&pair, 0, sizeof(pair));
            pair.step = ITEMS / SIZES_MAX;
            pair.size_count = SIZES_MAX;
            pair.sample_count = SAMPLES_MAX;
            for (uint32_t s = 0; s < pair.size_count; s++) {
                read_row(samples, s);
            }
            summarise();
            judge(QUERIES_MAX);
        }
    }
    if (sizes != NULL) {
        (void)fclose(sizes);
    }
    if (samples != NULL) {
        (void)fclose(samples);
    }
}

int
main(void)
{
    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    test_excerpt();
    test_all_samples();
    return 0;
}
