/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The ladder of a policy begins where the best variant is enough and ends beyond what workers can carry; what is
 *          expected of it falls with the load and stays below the bound. It fits the order that it was made for and, each by
 *          itself, none of other times, arrivals or spread. Files are what was written, or refused. Whatever an order is
 *          made of changes its key, and nothing else does.
 * Method   Three variants whose capacities are known by hand; every setting changed a little and a little more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/policy_make.h"
#include "tests/leat_test.h"

enum { VARIANTS = 3, ITEMS = 8 };

static const char *const names[VARIANTS] = {"good", "quick", "fair"}; /* in any order */
static const uint32_t accuracy_ppm[VARIANTS] = {900000, 500000, 700000};
static uint64_t latency_ns[VARIANTS * ITEMS];
static struct leat_policy_order order;

static void
begin_order(void)
{
    static const uint64_t base_ns[VARIANTS] = {20000000, 2000000, 8000000}, item_ns[VARIANTS] = {10000000, 1000000, 4000000};

    order = (struct leat_policy_order){.variant_count = VARIANTS,
                                       .names = names,
                                       .accuracy_ppm = accuracy_ppm,
                                       .latency_ns = latency_ns,
                                       .items_max = ITEMS,
                                       .objective_ns = 100000000,
                                       .worker_count = 4,
                                       .dispersion_permille = 1000,
                                       .threads = 2};
    for (uint32_t v = 0; v < VARIANTS; v++) {
        for (uint32_t items = 1; items <= ITEMS; items++) {
            latency_ns[v * ITEMS + items - 1] = base_ns[v] + items * item_ns[v];
        }
    }
}

static void
test_ladder(void)
{
    struct leat_policy *policy;

    begin_order();
    EXPECT(leat_policy_make(&order, NULL, &policy) == LEAT_OK);
    const uint32_t last = policy->rung_count - 1;
    EXPECT(policy->kind == LEAT_POLICY_POOL && policy->rung_count > 10 && policy->variant_count == VARIANTS);
    /* good takes 30 ms alone: 66 a second half idle. quick takes 10 ms for 8: 3200 a second, and a quarter more. */
    EXPECT(leat_policy_rung(policy, 0)->rate_qps >= 60 && leat_policy_rung(policy, 0)->rate_qps <= 70);
    EXPECT(leat_policy_rung(policy, last)->rate_qps == 4000);
    for (uint32_t r = 0; r <= last; r++) {
        const struct leat_policy_rung *rung = leat_policy_rung(policy, r);
        EXPECT(r == 0 || rung->rate_qps > rung[-1].rate_qps);
        EXPECT(r == 0 || rung->bound_ppm <= rung[-1].bound_ppm);
        EXPECT(rung->gain_ppm <= (int32_t)rung->bound_ppm + 1);
    }
    EXPECT(leat_policy_rung(policy, 0)->accuracy_ppm > 890000);
    EXPECT(leat_policy_rung(policy, last)->accuracy_ppm < 510000);
    EXPECT(leat_policy_rung(policy, last)->violation_ppb > 150000000); /* a fifth cannot be served */
    EXPECT(leat_policy_fits(policy, 0, &order));
    free(policy);

    static const uint32_t rates_qps[2] = {100, 1000};
    order.rates_qps = rates_qps;
    order.rate_count = 2;
    EXPECT(leat_policy_make(&order, NULL, &policy) == LEAT_OK);
    EXPECT(policy->rung_count == 2 && leat_policy_rung(policy, 1)->rate_qps == 1000);
    free(policy);

    order.rates_qps = NULL;
    order.rate_qps = 10000;
    EXPECT(leat_policy_make(&order, NULL, &policy) == LEAT_OK);
    EXPECT(leat_policy_rung(policy, policy->rung_count - 1)->rate_qps == 12500);
    EXPECT(leat_policy_fits(policy, 0, &order));
    free(policy);
}

static void
test_fits(void)
{
    struct leat_policy *policy;

    begin_order();
    EXPECT(leat_policy_make(&order, NULL, &policy) == LEAT_OK);
    order.rate_qps = 4000;
    EXPECT(leat_policy_fits(policy, 0, &order));
    order.rate_qps = 4001;
    EXPECT(!leat_policy_fits(policy, 0, &order));
    order.rate_qps = 0;
    order.worker_count++;
    EXPECT(!leat_policy_fits(policy, 0, &order));
    order.worker_count--;
    order.unit_shift++;
    EXPECT(!leat_policy_fits(policy, 0, &order));
    order.unit_shift--;
    order.dispersion_permille = 1490;
    EXPECT(leat_policy_fits(policy, 0, &order));
    order.dispersion_permille = 1510;
    EXPECT(!leat_policy_fits(policy, 0, &order));
    order.dispersion_permille = 1000;
    order.spread_ppm = 50000;
    EXPECT(leat_policy_fits(policy, 0, &order) && leat_policy_fits(policy, 100000, &order));
    EXPECT(!leat_policy_fits(policy, 100001, &order));
    order.spread_ppm = 50001;
    EXPECT(!leat_policy_fits(policy, 0, &order));
    order.spread_ppm = 0;
    for (uint32_t v = 0; v < VARIANTS; v++) {
        uint64_t *cell = &latency_ns[v * ITEMS + 3]; /* of 4 items */
        const uint64_t before = *cell;
        *cell = before + before / 11;
        EXPECT(leat_policy_fits(policy, 0, &order));
        *cell = before + before / 9;
        EXPECT(!leat_policy_fits(policy, 0, &order));
        *cell = before - before / 9;
        EXPECT(!leat_policy_fits(policy, 0, &order));
        *cell = before;
    }
    latency_ns[7] = 150000000; /* of good, 8 items, late from now on */
    EXPECT(!leat_policy_fits(policy, 0, &order));
    free(policy);

    EXPECT(leat_policy_make(&order, NULL, &policy) == LEAT_OK);
    latency_ns[7] = 300000000; /* late in any case */
    EXPECT(leat_policy_fits(policy, 0, &order));
    free(policy);

    latency_ns[ITEMS + 7] = 0; /* quick takes 7 items at most, from now on */
    EXPECT(leat_policy_make(&order, NULL, &policy) == LEAT_OK);
    EXPECT(leat_policy_fits(policy, 0, &order));
    latency_ns[ITEMS + 7] = 10000000;
    EXPECT(!leat_policy_fits(policy, 0, &order));
    free(policy);
}

/* One window says little; bursts that go on are seen, and forgotten when they are over. No policy is for less than Poisson. */
static void
test_dispersion(void)
{
    uint32_t dispersion = LEAT_POLICY_POISSON_PERMILLE, looks = 0;

    EXPECT(leat_policy_dispersion(1000, 1400000) == 1050 && leat_policy_dispersion(1000, 0) == 1000);
    EXPECT(leat_policy_dispersion(1000, 4000000000) == 1125 && leat_policy_dispersion(4000, 4000000000) == 4500);
    EXPECT(leat_policy_dispersion(1800, 1000000) == 1700 && leat_policy_dispersion(1100, 0) == 1087);
    for (; dispersion < 1500; looks++) {
        dispersion = leat_policy_dispersion(dispersion, 64000000);
    }
    EXPECT(looks == 4);
    for (; dispersion < 60000; looks++) {
        dispersion = leat_policy_dispersion(dispersion, 64000000);
    }
    EXPECT(looks < 60);
    for (looks = 0; dispersion > 1000; looks++) {
        dispersion = leat_policy_dispersion(dispersion, 900000);
    }
    EXPECT(looks < 100);
}

static void
test_refusals(void)
{
    struct leat_policy *policy = NULL;
    const _Atomic bool cancel = true;

    begin_order();
    EXPECT(leat_policy_make(&order, &cancel, &policy) == LEAT_AGAIN && policy == NULL);
    order.objective_ns = 2999999; /* quick takes 3 ms for one */
    EXPECT(leat_policy_make(&order, NULL, &policy) == LEAT_ERR_INVALID);
    order.objective_ns = 3000000;
    EXPECT(leat_policy_make(&order, NULL, &policy) == LEAT_OK);
    free(policy);
    order.variant_count = 0;
    EXPECT(leat_policy_make(&order, NULL, &policy) == LEAT_ERR_INVALID);
    begin_order();
    order.dispersion_permille = 999;
    EXPECT(leat_policy_make(&order, NULL, &policy) == LEAT_ERR_INVALID);
    begin_order();
    order.items_max = LEAT_POLICY_MAKE_ITEMS_MAX + 1;
    EXPECT(leat_policy_make(&order, NULL, &policy) == LEAT_ERR_INVALID);
}

static char keys[64][LEAT_POLICY_KEY_BYTES];
static uint32_t key_count;

/* No order before had that key. */
static void
expect_new_key(const char *host)
{
    char *key = keys[key_count];

    EXPECT(key_count < sizeof(keys) / sizeof(keys[0]));
    leat_policy_order_key(&order, host, key);
    EXPECT(strspn(key, "0123456789abcdef") == LEAT_POLICY_KEY_BYTES - 1);
    for (uint32_t k = 0; k < key_count; k++) {
        EXPECT(strcmp(keys[k], key) != 0);
    }
    key_count++;
}

static void
test_keys(void)
{
    static const uint32_t rates_qps[] = {1, 2, 3};
    uint32_t own_ppm[VARIANTS];
    const char *own_names[VARIANTS] = {"good", "quick", "fai"};
    uint32_t *const numbers[] = {&order.variant_count, &order.rate_qps,     &order.spread_ppm,
                                 &order.items_max,     &order.worker_count, &order.dispersion_permille,
                                 &order.unit_shift};
    char again[LEAT_POLICY_KEY_BYTES];

    begin_order();
    expect_new_key("host");
    order.threads = 1; /* changes nothing */
    leat_policy_order_key(&order, "host", again);
    EXPECT(strcmp(again, keys[0]) == 0);
    expect_new_key("");
    expect_new_key("host 2");
    for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++) {
        begin_order();
        *numbers[n] -= n == 0 || n == 3; /* what there are as many numbers of */
        *numbers[n] += n != 0 && n != 3;
        expect_new_key("host");
    }
    for (uint32_t i = 0; i < VARIANTS * ITEMS; i++) {
        begin_order();
        latency_ns[i]++;
        expect_new_key("host");
    }
    begin_order();
    order.objective_ns++;
    expect_new_key("host");
    begin_order();
    order.drops_late = true;
    expect_new_key("host");
    for (uint32_t v = 0; v < VARIANTS; v++) {
        begin_order();
        memcpy(own_ppm, accuracy_ppm, sizeof(own_ppm));
        own_ppm[v]++;
        order.accuracy_ppm = own_ppm;
        expect_new_key("host");
    }
    begin_order();
    order.names = own_names;
    expect_new_key("host");
    begin_order();
    order.rates_qps = rates_qps;
    for (order.rate_count = 1; order.rate_count <= 3; order.rate_count++) {
        expect_new_key("host");
    }
    order.rate_count = 2;
    order.rates_qps = rates_qps + 1;
    expect_new_key("host");
}

static void
test_unit_shift(void)
{
    static const struct {
        uint32_t before;
        uint64_t queries, items;
        uint32_t items_max, after;
    } cases[] = {
        {0, 0, 0, 64, 0},      {5, 0, 0, 64, 5},      {0, 10, 10, 64, 0},    {0, 10, 25, 64, 0},   {0, 10, 26, 64, 1},
        {0, 10, 160, 64, 4},   {0, 10, 310, 64, 4},   {4, 10, 120, 64, 4},   {4, 10, 119, 64, 3},  {4, 10, 400, 64, 4},
        {4, 10, 401, 64, 5},   {0, 10, 1000, 64, 6},  {0, 10, 1000, 63, 5},  {6, 10, 640, 63, 5},  {4, 10, 10, 64, 0},
        {0, 1, 1 << 20, UINT32_MAX, LEAT_POLICY_UNIT_SHIFT_MAX},
    };

    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        EXPECT(leat_policy_unit_shift(cases[c].before, cases[c].queries, cases[c].items, cases[c].items_max) == cases[c].after);
    }
}

static void
write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

static void
test_files(void)
{
    char path[] = "/tmp/leat-policy-XXXXXX";
    struct leat_policy *made, *read = NULL;
    const int fd = mkstemp(path);

    EXPECT(fd >= 0 && close(fd) == 0);
    begin_order();
    EXPECT(leat_policy_make(&order, NULL, &made) == LEAT_OK);
    write_file(path, made, made->bytes);
    EXPECT(leat_policy_read(path, &read) == LEAT_OK);
    EXPECT(read->bytes == made->bytes && memcmp(read, made, made->bytes) == 0);
    free(read);
    EXPECT(leat_policy_copy(made, made->bytes, &read) == LEAT_OK && memcmp(read, made, made->bytes) == 0);
    free(read);
    read = NULL;
    EXPECT(leat_policy_copy(made, made->bytes - 1, &read) == LEAT_ERR_PROTO && read == NULL);
    EXPECT(leat_policy_copy(made, 0, &read) == LEAT_ERR_PROTO && read == NULL);
    write_file(path, made, made->bytes - 1);
    EXPECT(leat_policy_read(path, &read) == LEAT_ERR_PROTO && strstr(leat_error_text(), path) != NULL);
    ((unsigned char *)made)[made->bytes / 2] ^= 1;
    write_file(path, made, made->bytes);
    EXPECT(leat_policy_read(path, &read) == LEAT_ERR_PROTO);
    write_file(path, "", 0);
    EXPECT(leat_policy_read(path, &read) == LEAT_ERR_PROTO);
    EXPECT(unlink(path) == 0);
    EXPECT(leat_policy_read(path, &read) == LEAT_ERR_SYS);
    EXPECT(leat_policy_read("/", &read) != LEAT_OK);
    free(made);
}

int
main(void)
{
    leat_test_init();
    test_ladder();
    test_fits();
    test_dispersion();
    test_refusals();
    test_keys();
    test_unit_shift();
    test_files();
    return 0;
}
