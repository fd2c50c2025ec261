/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Every value has its bucket, buckets follow one another without a gap, and percentiles are within 1/16 above
 *          those of the values themselves.
 * Method   All buckets' edges; then random values of many sizes beside a sorted list of them.
 */
#include "runtime/histogram.h"
#include "base/align.h"
#include "tests/leat_test.h"

#include <string.h>

enum { VALUES = 5000 };

static void
test_buckets_are_without_gaps(void)
{
    EXPECT(leat_histogram_bucket(0) == 0 && leat_histogram_top(0) == 0);
    for (uint32_t b = 1; b < LEAT_HISTOGRAM_BUCKETS; b++) {
        const uint64_t least = leat_histogram_top(b - 1) + 1, most = leat_histogram_top(b);
        EXPECT(leat_histogram_bucket(least) == b && leat_histogram_bucket(most) == b && least <= most);
        EXPECT(most < 32 ? least == most : (most - least) * 16 < least);
    }
    EXPECT(leat_histogram_top(LEAT_HISTOGRAM_BUCKETS - 1) == (UINT64_C(1) << LEAT_HISTOGRAM_BITS) - 1);
    EXPECT(leat_histogram_bucket(UINT64_MAX) == LEAT_HISTOGRAM_BUCKETS - 1);
}

static int
compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void
expect_percentile(uint64_t got, const uint64_t *sorted, uint32_t count, uint32_t ppm)
{
    const uint64_t exact = sorted[((uint64_t)count * ppm + 999999) / 1000000 - 1];
    EXPECT(got >= exact && got <= exact + exact / 16);
}

static void
test_percentiles(void)
{
    static struct leat_histogram histogram;
    static uint64_t values[VALUES];
    uint64_t state = leat_test_seed;

    for (uint32_t count = 1; count <= VALUES; count += 1 + count / 3) {
        memset(&histogram, 0, sizeof(histogram));
        for (uint32_t i = 0; i < count; i++) {
            values[i] = leat_test_random(&state) >> (24 + leat_test_random(&state) % 40);
            leat_histogram_add(&histogram, values[i]);
        }
        qsort(values, count, sizeof(values[0]), compare);
        const struct leat_histogram_summary summary = leat_histogram_summarise(&histogram);
        EXPECT(summary.count == count && summary.max == values[count - 1] && summary.p999 <= summary.max);
        expect_percentile(summary.p50, values, count, 500000);
        expect_percentile(summary.p99, values, count, 990000);
        expect_percentile(summary.p999, values, count, 999000);
    }
    memset(&histogram, 0, sizeof(histogram));
    const struct leat_histogram_summary nothing = leat_histogram_summarise(&histogram);
    EXPECT(nothing.count == 0 && nothing.p999 == 0 && nothing.max == 0);
}

int
main(void)
{
    leat_test_init();
    test_buckets_are_without_gaps();
    test_percentiles();
    return 0;
}
