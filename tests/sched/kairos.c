/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sched/kairos.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FOLDER LEAT_TESTS_KAIROS_FOLDER

enum { LINE_MAX_BYTES = 256, NAME_BYTES = 32 };

const char *const kairos_models[KAIROS_MODELS] = {"ncf", "rm2", "wnd", "mtwnd", "dien"};

static char types[KAIROS_TYPES][NAME_BYTES];

static FILE *
open_below_heading(const char *path)
{
    char line[LINE_MAX_BYTES];
    FILE *file = fopen(path, "r");
    LEAT_ASSERT(file != NULL);
    LEAT_MUST(fgets(line, sizeof(line), file) != NULL);
    return file;
}

static uint32_t
find_model(const char *name)
{
    uint32_t m = 0;
    while (m < KAIROS_MODELS && strcmp(kairos_models[m], name) != 0) {
        m++;
    }
    LEAT_ASSERT(m < KAIROS_MODELS);
    return m;
}

static uint32_t
find_type(const char *name)
{
    uint32_t t = 0;
    while (t < KAIROS_TYPES && strcmp(types[t], name) != 0) {
        t++;
    }
    LEAT_ASSERT(t < KAIROS_TYPES);
    return t;
}

static void
read_types(struct leat_pool_space *space)
{
    char line[LINE_MAX_BYTES];
    FILE *file = open_below_heading(FOLDER "/instances.csv");

    *space = (struct leat_pool_space){.class_count = KAIROS_TYPES, .budget = 2500000};
    for (uint32_t t = 0; t < KAIROS_TYPES; t++) {
        double usd;
        unsigned count_max;
        LEAT_MUST(fgets(line, sizeof(line), file) != NULL);
        LEAT_MUST(sscanf(line, "%31[^,],%*[^,],%lf,%u", types[t], &usd, &count_max) == 3);
        space->classes[t] = (struct leat_pool_class){(uint64_t)llround(usd * 1e6), (uint16_t)count_max};
    }
    (void)fclose(file);
}

static void
read_profile(struct leat_pool_rates *rates)
{
    char line[LINE_MAX_BYTES], model[NAME_BYTES], type[NAME_BYTES];
    FILE *file = open_below_heading(FOLDER "/allocator_profile.csv");

    for (uint32_t n = 0; n < KAIROS_MODELS * KAIROS_TYPES; n++) {
        double qps, share, time_share;
        unsigned cut_items;
        LEAT_MUST(fgets(line, sizeof(line), file) != NULL);
        const int fields =
            sscanf(line, "%31[^,],%31[^,],%lf,%lf,%u,%lf", model, type, &qps, &share, &cut_items, &time_share);
        const uint32_t m = find_model(model), t = find_type(type);
        LEAT_ASSERT(fields == (t == 0 ? 3 : 6));
        if (t == 0) {
            rates[m] = (struct leat_pool_rates){.class_count = KAIROS_TYPES, .base_qps = qps};
        } else {
            rates[m].auxiliary[t] = (struct leat_pool_auxiliary){
                .cut_items = cut_items, .small_share = share, .base_time_share = time_share};
        }
    }
    (void)fclose(file);
}

static void
read_rates_by_cut(struct leat_pool_rates *rates)
{
    char line[LINE_MAX_BYTES], model[NAME_BYTES], type[NAME_BYTES];
    FILE *file = open_below_heading(FOLDER "/allocator_qps_by_cut.csv");

    while (fgets(line, sizeof(line), file) != NULL) {
        double qps;
        unsigned cut_items;
        LEAT_MUST(sscanf(line, "%31[^,],%31[^,],%u,%lf", model, type, &cut_items, &qps) == 4);
        struct leat_pool_rates *of = &rates[find_model(model)];
        uint32_t k = 1;
        while (k < KAIROS_TYPES && of->auxiliary[k].cut_items != cut_items) {
            k++;
        }
        LEAT_ASSERT(k < KAIROS_TYPES);
        of->auxiliary[k].small_qps[find_type(type)] = qps;
    }
    (void)fclose(file);
}

static void
read_bounds(struct kairos *kairos)
{
    char line[LINE_MAX_BYTES];
    FILE *file = open_below_heading(FOLDER "/bounds.csv");

    for (uint32_t i = 0; i < KAIROS_MIXES; i++) {
        unsigned n[KAIROS_TYPES];
        double qps[KAIROS_MODELS];
        LEAT_MUST(fgets(line, sizeof(line), file) != NULL);
        LEAT_MUST(sscanf(line, "%u,%u,%u,%u,%lf,%lf,%lf,%lf,%lf", &n[0], &n[1], &n[2], &n[3], &qps[0], &qps[1], &qps[2],
                         &qps[3], &qps[4]) == KAIROS_TYPES + KAIROS_MODELS);
        kairos->mixes[i] = (struct leat_pool_mix){{(uint16_t)n[0], (uint16_t)n[1], (uint16_t)n[2], (uint16_t)n[3]}};
        for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
            kairos->bounds_qps[m][i] = qps[m];
        }
    }
    LEAT_MUST(fgets(line, sizeof(line), file) == NULL);
    (void)fclose(file);
}

void
kairos_read(struct kairos *kairos)
{
    read_types(&kairos->space);
    read_profile(kairos->rates);
    read_rates_by_cut(kairos->rates);
    read_bounds(kairos);
}
