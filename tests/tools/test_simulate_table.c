/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What is measured is read as it stands, and nothing else is: a file that lacks a cell, repeats one or has a
 *          time that no worker can take is refused with its place.
 * Method   Files written here, right and wrong; what is read is compared with what was written, percentiles with a count.
 */
#include <math.h>

#include "base/align.h"
#include "tests/runtime/fake_root.h"
#include "base/csv.h"
#include "tools/simulate/simulate.h"

static struct fake_root root;
static char path[160];

static void
write_file(const char *text)
{
    fake_root_write(&root, "/data.csv", text);
}

static bool
has(const char *text)
{
    if (strstr(leat_error_text(), text) == NULL) {
        (void)fprintf(stderr, "'%s' is not in: %s\n", text, leat_error_text());
        return false;
    }
    return true;
}

static void
test_samples(void)
{
    static const char text[] = "\xef\xbb\xbfs1,instance, batch ,model,note,s0,s17\r\n"
                               "2.5,big,10,a,\"x, \"\"y\"\"\n and z\",1.5,0.000001\r\n"
                               "\n"
                               "9,big,10,b,,9,9\n"
                               "4,small,10,a,,4,1e2\n"
                               "  3 ,big,64,a,,.5,3\n"
                               "5,small,64,a,,6,7";
    static const char *const only_small[] = {"small"};
    static const char *const unknown[] = {"small", "huge"};
    struct simulate_table t;

    write_file(text);
    EXPECT(simulate_table_read(path, "a", NULL, 0, &t) == LEAT_OK);
    EXPECT(t.class_count == 2 && strcmp(t.class_names[0], "big") == 0 && strcmp(t.class_names[1], "small") == 0);
    EXPECT(t.size_count == 2 && t.sizes[0] == 10 && t.sizes[1] == 64 && t.items_max == 64 && t.sample_count == 3);
    for (uint32_t items = 0; items <= 64; items++) {
        EXPECT(t.row_of_items[items] == (items > 10));
    }
    static const uint64_t samples_ns[] = {1,       1500000, 2500000,   500000,  3000000, 3000000,
                                          4000000, 4000000, 100000000, 5000000, 6000000, 7000000};
    static const uint64_t mean_ns[] = {1333334, 2166667, 36000000, 6000000};
    EXPECT(memcmp(t.samples_ns, samples_ns, sizeof(samples_ns)) == 0);
    EXPECT(memcmp(t.mean_ns, mean_ns, sizeof(mean_ns)) == 0);
    simulate_table_free(&t);

    EXPECT(simulate_table_read(path, "a", only_small, 1, &t) == LEAT_OK);
    EXPECT(t.class_count == 1 && memcmp(t.samples_ns, samples_ns + 6, 6 * sizeof(uint64_t)) == 0);
    simulate_table_free(&t);
    EXPECT(simulate_table_read(path, "a", unknown, 2, &t) == LEAT_ERR_INVALID && has(path) && has("'huge'"));
    EXPECT(simulate_table_read(path, "c", NULL, 0, &t) == LEAT_ERR_INVALID && has(path) && has("no model 'c'"));
}

static void
test_means(void)
{
    struct simulate_table t;

    write_file("model,instance,batch,n,mean_ms,p99_ms\nm,x,1,99,0.25,1\nm,x,2,99,0.5,1\n");
    EXPECT(simulate_table_read(path, "m", NULL, 0, &t) == LEAT_OK);
    EXPECT(t.sample_count == 1 && t.mean_ns[0] == 250000 && t.mean_ns[1] == 500000);
    EXPECT(simulate_table_percentile(&t, 0, 1, 99) == 250000 && simulate_table_percentile(&t, 0, 2, 1) == 500000);
    simulate_table_free(&t);
}

/* The smallest sample that at least this share does not exceed. */
static void
test_percentile(void)
{
    char text[2000] = "model,instance,batch";
    uint64_t random = leat_test_seed;
    struct simulate_table t;

    for (uint32_t s = 0; s < 99; s++) {
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), ",s%u", s);
    }
    (void)strcat(text, "\nm,x,7");
    for (uint32_t s = 0; s < 99; s++) {
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), ",%u",
                       (unsigned)(1 + leat_test_random(&random) % 500));
    }
    write_file(text);
    EXPECT(simulate_table_read(path, "m", NULL, 0, &t) == LEAT_OK && t.sample_count == 99);
    for (uint32_t tenth = 1; tenth <= 1000; tenth++) {
        const uint64_t found_ns = simulate_table_percentile(&t, 0, 7, tenth / 10.0);
        uint32_t below = 0, up_to = 0;
        for (uint32_t s = 0; s < 99; s++) {
            below += t.samples_ns[s] < found_ns;
            up_to += t.samples_ns[s] <= found_ns;
        }
        EXPECT(up_to * 1000 >= tenth * 99 && below * 1000 < tenth * 99);
    }
    simulate_table_free(&t);
}

/* As many of all samples with noise are below it as the percentile says, by the normal distribution. */
static void
test_noisy_percentile(void)
{
    static const double percentiles[] = {0.5, 5, 50, 95, 99.9}, shares[] = {0.001, 0.05, 0.3, 2};
    struct simulate_table t;

    write_file("model,instance,batch,s0,s1,s2,s3,s4\nm,x,1,10,10,11,30,1000\nm,x,3,7,7,7,7,7\n");
    EXPECT(simulate_table_read(path, "m", NULL, 0, &t) == LEAT_OK && t.sample_count == 5);
    for (size_t p = 0; p < LEAT_COUNT_OF(percentiles); p++) {
        EXPECT(simulate_table_noisy_percentile(&t, 0, 1, percentiles[p], 0) ==
               simulate_table_percentile(&t, 0, 1, percentiles[p]));
        for (size_t n = 0; n < LEAT_COUNT_OF(shares); n++) {
            for (uint32_t items = 1; items <= 3; items += 2) {
                const double found_ns = (double)simulate_table_noisy_percentile(&t, 0, items, percentiles[p], shares[n]);
                double least = 0, most = 0; /* shares of times below, a little to both sides */
                for (uint32_t s = 0; s < 5; s++) {
                    const double sample_ns = (double)t.samples_ns[(items == 3 ? 5u : 0u) + s], scale = shares[n] * sqrt(2);
                    least += 0.1 * (1 + erf((found_ns * (1 - 2e-6) / sample_ns - 1) / scale));
                    most += 0.1 * (1 + erf((found_ns * (1 + 2e-6) / sample_ns - 1) / scale));
                }
                EXPECT(most >= percentiles[p] / 100 && (found_ns == 1 || least <= percentiles[p] / 100));
            }
        }
    }
    EXPECT(simulate_table_noisy_percentile(&t, 0, 3, 100, 0.1) < 13000000); /* beyond all draws, and yet finite */
    simulate_table_free(&t);
}

#define HEAD "model,instance,batch,s0\n"

static void
test_wrong_tables(void)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "is empty"},
        {" \n\r\n\t\n", "is empty"},
        {"model,batch,s0\n", ":1: there is no column 'instance'"},
        {"\n\nmodel,instance,batch,seconds\n", ":3: there are neither samples"},
        {"model,instance,batch,s\n", ":1: there are neither samples"},
        {"model,instance,batch,s0,s0\n", ":1: two columns are named 's0'"},
        {HEAD, "no model 'm'"},
        {HEAD "m,x,1\n", ":2: 3 fields, but the heading has 4"},
        {HEAD "m,x,1,1,1\n", ":2: 5 fields"},
        {HEAD "n,x\n", ":2: 2 fields"}, /* of another model, but the file is broken */
        {HEAD "m,x,0,1\n", ":2: column 'batch': '0'"},
        {HEAD "m,x,65536,1\n", ":2: column 'batch'"},
        {HEAD "m,x,1.5,1\n", ":2: column 'batch': '1.5' is not a whole"},
        {HEAD "m,x,,1\n", ":2: column 'batch'"},
        {HEAD "m,x,-1,1\n", ":2: column 'batch'"},
        {HEAD "m,x,1,0\n", ":2: column 's0': '0'"},
        {HEAD "m,x,1,-1\n", ":2: column 's0'"},
        {HEAD "m,x,1,\n", ":2: column 's0': ''"},
        {HEAD "m,x,1,nan\n", ":2: column 's0': 'nan'"},
        {HEAD "m,x,1,inf\n", ":2: column 's0'"},
        {HEAD "m,x,1,1e999\n", ":2: column 's0'"},
        {HEAD "m,x,1,1e-7\n", ":2: column 's0'"}, /* below a nanosecond */
        {HEAD "m,x,1,0x10\n", ":2: column 's0'"},
        {HEAD "m,x,1,1 ms\n", ":2: column 's0': '1 ms'"},
        {HEAD "m,x,1,\"1\n", ":2: a quoted field has no end"},
        {HEAD "m,\"x\"y,1,1\n", ":2: something follows"},
        {HEAD "m,x,1,1\n\nm,x,1,2\n", ":4: batch 1 after 1"},
        {HEAD "m,x,2,1\nm,x,1,2\n", ":3: batch 1 after 2"},
        {HEAD "\"m\",\"x\",\"2\",1\nm,\"x\ny\",3,2\n", ":3: column 'instance': a name has something else"},
        {HEAD "m,,1,1\n", ":2: column 'instance': a name has 0 characters"},
        {HEAD "m,a name of more than forty-seven characters which is far too long,1,1\n", ":2: column 'instance'"},
        {HEAD "m,\x1b[2J,1,1\n", ":2: column 'instance'"},
        {HEAD "m,x,1,1\nm,x,2,2\nm,y,1,1\n", "'x' has batch 2, but 'y' has not"},
        {HEAD "m,x,1,1\nm,y,1,1\nm,y,3,1\n", "'y' has batch 3, but 'x' has not"},
        {HEAD "m,x,1,1\nm,x,3,1\nm,y,1,1\nm,y,2,1\nm,y,3,1\n", "'y' has batch 2, but 'x' has not"},
        {HEAD "m,1,1,1\nm,2,1,1\nm,3,1,1\nm,4,1,1\nm,5,1,1\nm,6,1,1\nm,7,1,1\nm,8,1,1\nm,9,1,1\n", ":10: more than 8"},
    };
    struct simulate_table t;

    for (size_t i = 0; i < LEAT_COUNT_OF(cases); i++) {
        write_file(cases[i].text);
        EXPECT(simulate_table_read(path, "m", NULL, 0, &t) < LEAT_OK);
        EXPECT(has(path) && has(cases[i].why));
    }
    EXPECT(simulate_table_read("/nonexistent/table", "m", NULL, 0, &t) == LEAT_ERR_SYS && has("/nonexistent/table"));
    EXPECT(simulate_table_read(root.path, "m", NULL, 0, &t) == LEAT_ERR_SYS && has(root.path)); /* a folder */
}

/* Zero bytes, and more of everything than is taken. */
static void
test_large_tables(void)
{
    const size_t room = (size_t)LEAT_CSV_BYTES_MAX + 100;
    char *text = malloc(room);
    struct simulate_table t;

    EXPECT(text != NULL);
    FILE *file = fopen(path, "w");
    EXPECT(file != NULL && fwrite(HEAD "m,x\0,1,1\n", 1, sizeof(HEAD) + 8, file) == sizeof(HEAD) + 8 && fclose(file) == 0);
    EXPECT(simulate_table_read(path, "m", NULL, 0, &t) == LEAT_ERR_PROTO && has("is not text"));

    memset(text, ',', LEAT_CSV_COLUMNS_MAX + 10); /* names differ, or the first two would be the mistake */
    size_t length = 0;
    for (uint32_t c = 0; c <= LEAT_CSV_COLUMNS_MAX; c++) {
        length += (size_t)snprintf(text + length, room - length, "%ss%u", c > 0 ? "," : "", c);
    }
    write_file(text);
    EXPECT(simulate_table_read(path, "m", NULL, 0, &t) == LEAT_ERR_PROTO && has(":1: more than 4096 columns"));

    memset(text, 'x', room - 1);
    text[room - 1] = '\0';
    write_file(text);
    EXPECT(simulate_table_read(path, "m", NULL, 0, &t) == LEAT_ERR_LIMIT && has("larger than 64 MiB"));
    free(text);
}

static void
test_sizes(void)
{
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {"size,weight\n1,1\n", ":1: there is no column 'items'"},
        {"items\n", "has no size"},
        {"items,weight\n1,0\n2,0\n", "has no size"},
        {"items,weight\n1,1\n2,-1\n", ":3: column 'weight'"},
        {"items,weight\n1,nan\n", ":2: column 'weight'"},
        {"batch_size\n0\n", ":2: column 'batch_size'"},
        {"batch_size\n70000\n", ":2: column 'batch_size'"},
        {"batch_size\nmany\n", ":2: column 'batch_size'"},
    };
    struct leat_pool_size *sizes;
    uint32_t count;

    write_file("items,weight\n30,0.5\n7,0.25\n8,0\n30,1e3\n");
    EXPECT(simulate_sizes_read(path, &sizes, &count) == LEAT_OK && count == 2);
    EXPECT(sizes[0].items == 7 && sizes[0].weight == 0.25 && sizes[1].items == 30 && sizes[1].weight == 1000.5);
    free(sizes);
    write_file("batch_bucket,probability_estimate\n10,0.25\n20,0.75\n");
    EXPECT(simulate_sizes_read(path, &sizes, &count) == LEAT_OK && count == 2 && sizes[1].weight == 0.75);
    free(sizes);
    write_file("batch_size\n5\n65535\n5\n1\n");
    EXPECT(simulate_sizes_read(path, &sizes, &count) == LEAT_OK && count == 3);
    EXPECT(sizes[0].items == 1 && sizes[1].items == 5 && sizes[1].weight == 2 && sizes[2].items == 65535);
    free(sizes);
    for (size_t i = 0; i < LEAT_COUNT_OF(wrong); i++) {
        write_file(wrong[i].text);
        EXPECT(simulate_sizes_read(path, &sizes, &count) == LEAT_ERR_PROTO && has(path) && has(wrong[i].why));
    }
}

static void
test_sizes_by_text(void)
{
    static const char *const wrong[] = {
        "gaussian:", "gaussian:10", "gaussian:10:", "gaussian::3", "gaussian:10:3:", "gaussian:a:b"};
    struct simulate_sizes sizes;
    struct simulate_draw draw;
    uint64_t random = leat_test_seed;

    EXPECT(simulate_sizes_parse("gaussian:150.5:2e1", &sizes) == LEAT_OK);
    EXPECT(sizes.count == 0 && sizes.gaussian_mean == 150.5 && sizes.gaussian_deviation == 20);
    simulate_sizes_free(&sizes);
    for (size_t i = 0; i < LEAT_COUNT_OF(wrong); i++) {
        EXPECT(simulate_sizes_parse(wrong[i], &sizes) == LEAT_ERR_INVALID && has(wrong[i]));
    }
    EXPECT(simulate_sizes_parse("gaussian:0.5:1", &sizes) == LEAT_OK); /* well-formed, but no such sizes */
    EXPECT(simulate_draw_init(&sizes, &draw) == LEAT_ERR_INVALID && has("mean 0.5"));
    write_file("items,weight\n7,1\n30,3\n");
    EXPECT(simulate_sizes_parse(path, &sizes) == LEAT_OK && sizes.count == 2);
    EXPECT(simulate_draw_init(&sizes, &draw) == LEAT_OK);
    for (int i = 0, seen = 0; seen != 3; i++) {
        const uint32_t size = simulate_draw_size(&draw, &random);
        EXPECT((size == 7 || size == 30) && i < 10000);
        seen |= size == 7 ? 1 : 2;
    }
    simulate_draw_fini(&draw);
    simulate_sizes_free(&sizes);
    write_file("items\n");
    EXPECT(simulate_sizes_parse(path, &sizes) == LEAT_ERR_PROTO && has(path));
}

static void
test_prices(void)
{
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {"instance,usd\nx,1\n", ":1: there is no column 'price_usd_per_hour'"},
        {"instance,price_usd_per_hour\nx,1\n", "no price of 'y'"},
        {"instance,price_usd_per_hour\nx,1\ny,1\nx,2\n", ":4: a second price of 'x'"},
        {"instance,price_usd_per_hour\nx,1\ny,-1\n", ":3: column 'price_usd_per_hour'"},
        {"instance,price_usd_per_hour,max_count_in_search\nx,1,1\ny,1,70000\n", ":3: column 'max_count_in_search'"},
    };
    struct leat_pool_class classes[LEAT_SCHED_CLASSES_MAX];
    struct simulate_table t;

    write_file(HEAD "m,x,1,1\nm,y,1,1\n");
    EXPECT(simulate_table_read(path, "m", NULL, 0, &t) == LEAT_OK);
    write_file("role,instance,price_usd_per_hour,max_count_in_search\n,y,0.1664,15\n,z,free,\nbase,x,0.526,5\n");
    EXPECT(simulate_prices_read(path, &t, classes) == LEAT_OK);
    EXPECT(classes[0].price == 526000 && classes[0].count_max == 5 && classes[1].price == 166400 &&
           classes[1].count_max == 15);
    for (size_t i = 0; i < LEAT_COUNT_OF(wrong); i++) {
        write_file(wrong[i].text);
        EXPECT(simulate_prices_read(path, &t, classes) == LEAT_ERR_PROTO && has(path) && has(wrong[i].why));
    }
    simulate_table_free(&t);
}

/* Both are kept, at each count and percentile, where they can be. */
static void
test_made_samples(void)
{
    static const double percentiles[] = {50, 90, 95, 99, 99.9, 100};
    uint64_t samples_ns[1000];

    for (size_t p = 0; p < LEAT_COUNT_OF(percentiles); p++) {
        for (uint32_t count = 2; count <= LEAT_COUNT_OF(samples_ns); count += 7) {
            const uint64_t mean_ns = 1000000, predicted_ns = mean_ns + 7919 * (uint64_t)(100 - percentiles[p]);
            const uint32_t rank = (uint32_t)ceil(percentiles[p] * count / 100);
            uint64_t sum_ns = 0;
            simulate_samples_make(mean_ns, predicted_ns, percentiles[p], count, samples_ns);
            for (uint32_t i = 0; i < count; i++) {
                sum_ns += samples_ns[i];
                EXPECT(i == 0 || samples_ns[i] >= samples_ns[i - 1]);
            }
            EXPECT(rank == 1 || samples_ns[rank - 1] == predicted_ns);
            EXPECT(rank == 1 || (sum_ns <= mean_ns * count + count && sum_ns + count >= mean_ns * count));
        }
    }
    simulate_samples_make(10, 9, 95, 3, samples_ns); /* below the mean */
    EXPECT(samples_ns[0] == 10 && samples_ns[1] == 10 && samples_ns[2] == 10);
    simulate_samples_make(10, 31, 95, 3, samples_ns); /* above all that the mean leaves */
    EXPECT(samples_ns[0] == 1 && samples_ns[1] == 1 && samples_ns[2] == 31);
}

int
main(void)
{
    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    fake_root_init(&root);
    (void)snprintf(path, sizeof(path), "%s/data.csv", root.path);
    test_samples();
    test_means();
    test_percentile();
    test_noisy_percentile();
    test_made_samples();
    test_wrong_tables();
    test_large_tables();
    test_sizes();
    test_sizes_by_text();
    test_prices();
    fake_root_fini(&root);
    return 0;
}
