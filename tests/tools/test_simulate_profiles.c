/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Latencies and accuracies are read as they stand, whatever the units and the order of rows; what is ambiguous,
 *          missing or twice there is refused with its place.
 * Method   Files written here, right and wrong.
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "tests/leat_test.h"
#include "tests/runtime/fake_root.h"
#include "tools/simulate/profiles.h"

static struct fake_root root;
static char profile[160], accuracies[160];

static void
expect_variant(const struct simulate_profile *variant, const char *name, double accuracy, uint32_t count,
               const uint32_t *items, const double *latency_us)
{
    EXPECT(strcmp(variant->name, name) == 0 && fabs(variant->accuracy - accuracy) < 1e-12 && variant->count == count);
    for (uint32_t i = 0; i < count; i++) {
        EXPECT(variant->items[i] == items[i] && fabs(variant->latency_us[i] / latency_us[i] - 1) < 1e-12);
    }
}

static void
refused(const struct simulate_profiles_options *options, const char *part)
{
    struct simulate_profiles profiles = {.count = 77};

    EXPECT(simulate_profiles_read(options, &profiles) < 0 && profiles.count == 77);
    if (strstr(leat_error_text(), part) == NULL) {
        (void)fprintf(stderr, "'%s' is not in: %s\n", part, leat_error_text());
    }
    EXPECT(strstr(leat_error_text(), part) != NULL);
}

/* RAMSIS' files: tasks, several statistics, percent in a file of their own. */
static void
test_two_files(void)
{
    static const char *const names[] = {"big", "quick"};
    struct simulate_profiles_options options = {.path = profile, .accuracies_path = accuracies, .task = "image"};
    struct simulate_profiles profiles;

    fake_root_write(&root, "/p.csv",
                    "task,model,batch_size,mean_ms,p95_ms,p95_us\n"
                    "image,big,2,1,30,30000.5\n"
                    "image,quick,1,1,5,5000\n"
                    "image,dull,1,1,7,7000\n"
                    "image,quick,4,1,9,9000\n"
                    "text,quick,1,1,4,4000\n"
                    "image,big,1,1.5,20,20000\n");
    fake_root_write(&root, "/a.csv", "task,model,accuracy\ntext,quick,99\nimage,quick,70\nimage,dull,69\nimage,big,1.5\n");
    EXPECT(simulate_profiles_read(&options, &profiles) == LEAT_OK && profiles.count == 3);
    expect_variant(&profiles.variants[0], "quick", 0.7, 2, (const uint32_t[]){1, 4}, (const double[]){5000, 9000});
    expect_variant(&profiles.variants[1], "dull", 0.69, 1, (const uint32_t[]){1}, (const double[]){7000});
    expect_variant(&profiles.variants[2], "big", 0.015, 2, (const uint32_t[]){1, 2}, (const double[]){20000, 30000.5});
    EXPECT(strcmp(profiles.accuracy_unit, "percent") == 0);
    simulate_profiles_free(&profiles);

    options.names = names;
    options.name_count = 2;
    options.statistic = "mean";
    EXPECT(simulate_profiles_read(&options, &profiles) == LEAT_OK && profiles.count == 2);
    expect_variant(&profiles.variants[0], "quick", 0.7, 2, (const uint32_t[]){1, 4}, (const double[]){1000, 1000});
    expect_variant(&profiles.variants[1], "big", 0.015, 2, (const uint32_t[]){1, 2}, (const double[]){1500, 1000});
    simulate_profiles_free(&profiles);

    options.statistic = "p42";
    refused(&options, "no column 'p42_us'");
    options.statistic = NULL;
    options.task = NULL;
    refused(&options, "p.csv:6: there are tasks 'image' and 'text'");
    options.task = "image";
    options.names = (const char *const[]){"big", "huge"};
    refused(&options, "has no 'huge' of task image");
    options.name_count = 0;
    options.task = "sound";
    refused(&options, "nothing of what is asked for");
    options.task = "image";
    options.accuracies_path = NULL;
    refused(&options, "no column 'accuracy'");
    options.accuracies_path = profile;
    refused(&options, "p.csv:1: there is no column 'accuracy'");
    fake_root_write(&root, "/a.csv", "model,accuracy\nquick,70\nbig,80\n");
    options.accuracies_path = accuracies;
    refused(&options, "a.csv has no accuracy of 'dull'");
    fake_root_write(&root, "/a.csv", "model,accuracy\nquick,70\nbig,80\ndull,3\nbig,81\n");
    refused(&options, "a.csv:5: the accuracy of 'big' is 80 and 81");
    fake_root_write(&root, "/a.csv", "model,accuracy\nquick,101\n");
    refused(&options, "a.csv:2: ");
}

/* What leat writes itself: one file, several numbers of cores. */
static void
test_one_file(void)
{
    struct simulate_profiles_options options = {.path = profile, .cores = 2};
    struct simulate_profiles profiles;

    fake_root_write(&root, "/p.csv",
                    "variant,cores,items,p95_ns,accuracy_ppm\n"
                    "a,1,1,9000,1\n"
                    "a,2,1,5000,700000\n"
                    "b,2,1,4000,900000\n"
                    "b,2,3,8000,900000\n");
    EXPECT(simulate_profiles_read(&options, &profiles) == LEAT_OK && profiles.count == 2);
    expect_variant(&profiles.variants[0], "b", 0.9, 2, (const uint32_t[]){1, 3}, (const double[]){4, 8});
    expect_variant(&profiles.variants[1], "a", 0.7, 1, (const uint32_t[]){1}, (const double[]){5});
    simulate_profiles_free(&profiles);
    options.cores = 0;
    refused(&options, "p.csv:3: there are rows for 1 and for 2 cores");
    fake_root_write(&root, "/p.csv", "variant,items,p95_ns,percent\na,1,9000,0.5\n");
    EXPECT(simulate_profiles_read(&options, &profiles) == LEAT_OK && profiles.count == 1);
    expect_variant(&profiles.variants[0], "a", 0.005, 1, (const uint32_t[]){1}, (const double[]){9});
    simulate_profiles_free(&profiles);
    fake_root_write(&root, "/p.csv", "variant,items,p95_us,accuracy\na,1,5,0.5\na,2,6,0.5\na,1,7,0.5\n");
    refused(&options, "p.csv:4: there are two rows for 1 items of 'a'");
    fake_root_write(&root, "/p.csv", "variant,items,p95_us,accuracy\na,0,5,0.5\n");
    refused(&options, "p.csv:2: column 'items'");
    fake_root_write(&root, "/p.csv", "variant,items,p95_us,accuracy\na,1,0,0.5\n");
    refused(&options, "p.csv:2: column 'p95_us'");
    fake_root_write(&root, "/p.csv", "name,items,p95_us,accuracy\na,1,1,0.5\n");
    refused(&options, "no column 'model' or 'variant'");
    fake_root_write(&root, "/p.csv", "variant,size,p95_us,accuracy\na,1,1,0.5\n");
    refused(&options, "no column 'items'");

    FILE *file = fopen(profile, "w");
    EXPECT(file != NULL && fputs("variant,items,p95_us,accuracy\n", file) >= 0);
    for (uint32_t v = 0; v <= SIMULATE_VARIANTS_MAX; v++) {
        EXPECT(fprintf(file, "v%u,1,%u,0.5\n", v, v + 1) > 0);
    }
    EXPECT(fclose(file) == 0);
    refused(&options, "more than 63 variants");
}

/* Two variants with accuracies as they stand in a column 'accuracy'. */
static void
expect_unit(const char *first, const char *second, const char *unit, double expected)
{
    struct simulate_profiles_options options = {.path = profile};
    struct simulate_profiles profiles;
    char text[160];

    (void)snprintf(text, sizeof(text), "model,items,p95_us,accuracy\na,1,1,%s\na,2,1,%s\nb,1,2,%s\n", first, first, second);
    fake_root_write(&root, "/p.csv", text);
    EXPECT(simulate_profiles_read(&options, &profiles) == LEAT_OK && strcmp(profiles.accuracy_unit, unit) == 0);
    EXPECT(fabs(profiles.variants[0].accuracy - expected) < 1e-12);
    simulate_profiles_free(&profiles);
}

static void
refuse_unit(const char *first, const char *second, const char *part)
{
    const struct simulate_profiles_options options = {.path = profile};
    char text[160];

    (void)snprintf(text, sizeof(text), "model,items,p95_us,accuracy\na,1,1,%s\nb,1,2,%s\n", first, second);
    fake_root_write(&root, "/p.csv", text);
    refused(&options, part);
}

static void
test_units(void)
{
    struct simulate_profiles_options options = {.path = profile, .names = (const char *const[]){"a"}, .name_count = 1};

    fake_root_write(&root, "/p.csv", "model,items,p95_us,accuracy\na,1,1,0.7\nb,1,2,70\n");
    refused(&options, "p.csv:3: column 'accuracy'"); /* though nobody asks for b */
    expect_unit("1", "0.5", "fractions", 1);
    expect_unit("0", "0", "fractions", 0);
    expect_unit("0", "50", "percent", 0);
    expect_unit("1.5", "10", "percent", 0.015);
    expect_unit("1.5%", "0 %", "percent", 0.015);
    expect_unit("0.5%", "100%", "percent", 0.005);
    refuse_unit("1.5", "9.9", "p.csv:3: column 'accuracy': numbers above 1, and none is 10 or more: write fractions of 1, or percent");
    refuse_unit("1.5", "0.5", "p.csv:3: column 'accuracy': 0.5 is not above 1, unlike line 2: write fractions");
    refuse_unit("1", "80", "p.csv:3: column 'accuracy': 80 is above 1, unlike line 2: write fractions");
    refuse_unit("70%", "80", "p.csv:3: column 'accuracy': 80 lacks a % sign, unlike line 2");
    refuse_unit("0.7", "80%", "p.csv:3: column 'accuracy': 80 has a % sign, unlike line 2");
    refuse_unit("101%", "80%", "p.csv:2: column 'accuracy': '101'");
    refuse_unit("%", "80%", "p.csv:2: column 'accuracy': ''");
}

static void
test_front(void)
{
    struct simulate_profiles_options options = {.path = profile};
    struct simulate_profiles profiles;

    fake_root_write(&root, "/p.csv",
                    "model,items,p95_us,accuracy\n"
                    "slow and good,1,9,0.9\n"
                    "as fast and worse,1,3,0.4\n"
                    "quick,1,3,0.5\n"
                    "as good and slower,1,4,0.5\n"
                    "twin of good,1,9,0.9\n"
                    "slow and bad,1,8,0.1\n"
                    "middle,1,5,0.6\n");
    EXPECT(simulate_profiles_read(&options, &profiles) == LEAT_OK && profiles.count == 7);
    simulate_profiles_keep_front(&profiles);
    EXPECT(profiles.count == 3 && strcmp(profiles.variants[0].name, "quick") == 0);
    EXPECT(strcmp(profiles.variants[1].name, "middle") == 0 && strcmp(profiles.variants[2].name, "slow and good") == 0);
    simulate_profiles_free(&profiles);
}

int
main(void)
{
    leat_test_init();
    fake_root_init(&root);
    (void)snprintf(profile, sizeof(profile), "%s/p.csv", root.path);
    (void)snprintf(accuracies, sizeof(accuracies), "%s/a.csv", root.path);
    test_two_files();
    test_one_file();
    test_units();
    test_front();
    fake_root_fini(&root);
    return 0;
}
