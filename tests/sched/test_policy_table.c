/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A policy is what was put into it, damaged or hostile bytes are no policy, a look-up is the plain formula, and
 *          selector mdp does with queries what policy.h says.
 * Method   Random blocks, read back; every bit of one flipped; fields set to nonsense under a checksum that is right,
 *          computed here bit by bit. Random states against formulas with divisions. Random queues against a selector
 *          written anew.
 */
#include <string.h>

#include "base/align.h"
#include "sched/policy.h"
#include "sched/policy_table.h"
#include "tests/leat_test.h"

enum { BLOCK_BYTES = 4 << 20, ROUNDS = 300, LOOKUPS = 400, QUERIES = 24, SELECTIONS = LEAT_TEST_ROUNDS(60000) };

static uint64_t random_state;
static _Alignas(64) uint8_t block[BLOCK_BYTES], copy[BLOCK_BYTES];

static uint64_t
below(uint64_t bound)
{
    return leat_test_random(&random_state) % bound;
}

/* ---- Making ------------------------------------------------------------------------------------ */

static struct leat_policy
random_shape(enum leat_policy_kind kind)
{
    const bool load = kind == LEAT_POLICY_LOAD;
    const uint32_t workers = 1 + (uint32_t)below(70), levels = kind == LEAT_POLICY_POOL ? (uint32_t)below(20) : 0;
    const uint32_t queue_max = load ? 0 : 1 + (uint32_t)below(40);
    return (struct leat_policy){
        .kind = kind,
        .objective_ns =
            LEAT_POLICY_OBJECTIVE_MIN_NS + below(UINT64_C(1) << (11 + below(30))) % LEAT_POLICY_OBJECTIVE_MAX_NS,
        .worker_count = workers,
        .dispersion_permille = (uint32_t)below(4000),
        .drops_late = (uint32_t)below(2),
        .late_penalty_permille = (uint32_t)below(3000),
        .rung_count = 1 + (uint32_t)below(6),
        .variant_count = 1 + (uint32_t)below(9),
        .queue_max = queue_max,
        .slack_bins = load ? 0 : 1 + (uint32_t)below(120),
        .idle_levels = levels,
        .held_max = levels > 0 ? 1 + (uint32_t)below(5) % queue_max : 0,
        .latency_items = 1 + (uint32_t)below(40),
        .shortest = kind == LEAT_POLICY_QUEUE ? (uint32_t)below(2) : 0,
        .spread_permille = kind == LEAT_POLICY_POOL ? (uint32_t)below(200) : 0,
        .unit_shift = below(2) == 0 ? 0 : (uint32_t)below(LEAT_POLICY_UNIT_SHIFT_MAX + 1),
    };
}

static struct leat_policy_action
random_action(const struct leat_policy *policy, uint32_t row)
{
    const uint32_t most = row <= policy->queue_max ? row : 1022;
    const bool gives_up = policy->kind != LEAT_POLICY_LOAD && below(4) == 0;
    const bool holds = policy->kind == LEAT_POLICY_POOL && below(10) == 0;
    return (struct leat_policy_action){.variant = gives_up ? LEAT_POLICY_GIVE_UP
                                                  : holds  ? LEAT_POLICY_HOLD
                                                           : (uint32_t)below(policy->variant_count),
                                       .items = row == policy->queue_max + 1 && below(3) == 0 ? LEAT_POLICY_ALL
                                                                                              : 1 + (uint32_t)below(most)};
}

/* Fills `memory`; what was put in follows from the state of the generator. */
static struct leat_policy *
fill(void *memory, const struct leat_policy *shape)
{
    uint64_t latency_ns[64];
    char name[LEAT_NAME_MAX];
    size_t bytes;

    EXPECT(leat_policy_bytes(shape, &bytes) == LEAT_OK && bytes <= BLOCK_BYTES);
    struct leat_policy *policy = leat_policy_init(memory, shape);
    uint32_t rate_qps = 0;
    for (uint32_t r = 0; r < shape->rung_count; r++) {
        rate_qps += 1 + (uint32_t)below(500);
        struct leat_policy_rung rung = {.rate_qps = rate_qps}; /* drawn in this order */
        rung.accuracy_ppm = (uint32_t)below(1000001);
        rung.violation_ppb = (uint32_t)below(1000000001);
        rung.bound_ppm = below(2) == 0 ? LEAT_POLICY_GAIN_UNKNOWN : (int32_t)below(1000001);
        rung.gain_ppm = (int32_t)below(2000000) - 1000000;
        leat_policy_set_rung(policy, r, &rung);
        for (uint32_t row = 1; row < leat_policy_row_count(policy); row++) {
            for (uint32_t bin = 0; bin <= shape->slack_bins; bin++) {
                leat_policy_set_action(policy, r, row, bin, random_action(policy, row));
            }
        }
    }
    for (uint32_t v = 0; v < shape->variant_count; v++) {
        for (uint32_t i = 0; i < shape->latency_items; i++) {
            latency_ns[i] = 1 + below(1000000);
        }
        (void)snprintf(name, sizeof(name), "variant %u", v);
        EXPECT(leat_policy_set_variant(policy, v, name, (uint32_t)below(1000001), latency_ns) == LEAT_OK);
    }
    EXPECT(leat_policy_seal(policy) == LEAT_OK);
    return policy;
}

static void
test_round_trip(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        const struct leat_policy shape = random_shape((enum leat_policy_kind)(1 + round % 3));
        uint64_t *state = &random_state;
        const uint64_t before = *state;
        const struct leat_policy *made = fill(block, &shape), *read = NULL;
        memcpy(copy, block, made->bytes);
        EXPECT(leat_policy_check(copy, made->bytes, &read) == LEAT_OK && (const void *)read == copy);

        /* The same draws again, compared with what was read. */
        *state = before;
        uint32_t rate_qps = 0;
        for (uint32_t r = 0; r < shape.rung_count; r++) {
            const struct leat_policy_rung *rung = leat_policy_rung(read, r);
            rate_qps += 1 + (uint32_t)below(500);
            EXPECT(rung->rate_qps == rate_qps && rung->accuracy_ppm == below(1000001));
            EXPECT(rung->violation_ppb == below(1000000001));
            EXPECT(rung->bound_ppm == (below(2) == 0 ? LEAT_POLICY_GAIN_UNKNOWN : (int32_t)below(1000001)));
            EXPECT(rung->gain_ppm == (int32_t)below(2000000) - 1000000);
            for (uint32_t row = 1; row < shape.queue_max + 2 + shape.idle_levels * shape.held_max; row++) {
                for (uint32_t bin = 0; bin <= shape.slack_bins; bin++) {
                    const struct leat_policy_action want = random_action(read, row),
                                                    got = leat_policy_unpack(
                                                        leat_policy_actions(read, r)[row * (shape.slack_bins + 1) + bin]);
                    EXPECT(got.variant == want.variant && got.items == want.items);
                }
            }
        }
        for (uint32_t v = 0; v < shape.variant_count; v++) {
            char name[LEAT_NAME_MAX];
            for (uint32_t i = 0; i < shape.latency_items; i++) {
                EXPECT(leat_policy_latency_ns(read, v)[i] == 1 + below(1000000));
            }
            (void)snprintf(name, sizeof(name), "variant %u", v);
            EXPECT(strcmp(leat_policy_variant(read, v)->name, name) == 0);
            EXPECT(leat_policy_variant(read, v)->accuracy_ppm == below(1000001));
        }
        EXPECT(read->kind == shape.kind && read->objective_ns == shape.objective_ns &&
               read->worker_count == shape.worker_count);
        EXPECT(read->dispersion_permille == shape.dispersion_permille && read->drops_late == shape.drops_late);
        EXPECT(read->late_penalty_permille == shape.late_penalty_permille);
        EXPECT(read->shortest == shape.shortest && read->spread_permille == shape.spread_permille);
    }
}

/* 20 loads of RAMSIS' size, and of a queue before 60 workers, fit where a second-level cache has room for them. */
static void
test_size(void)
{
    const struct leat_policy queue = {.kind = LEAT_POLICY_QUEUE,
                                      .objective_ns = 150000000,
                                      .worker_count = 60,
                                      .rung_count = 20,
                                      .variant_count = 9,
                                      .queue_max = 32,
                                      .slack_bins = 100,
                                      .latency_items = 33};
    const struct leat_policy pool = {.kind = LEAT_POLICY_POOL,
                                     .objective_ns = 150000000,
                                     .worker_count = 60,
                                     .rung_count = 20,
                                     .variant_count = 9,
                                     .queue_max = 64,
                                     .slack_bins = 100,
                                     .idle_levels = 16,
                                     .held_max = 3,
                                     .latency_items = 64};
    size_t bytes;

    EXPECT(leat_policy_bytes(&queue, &bytes) == LEAT_OK && bytes <= 144 * 1024);
    EXPECT(leat_policy_bytes(&pool, &bytes) == LEAT_OK && bytes <= 512 * 1024);
}

/* ---- Damage ------------------------------------------------------------------------------------ */

static uint32_t
plain_crc32c(const uint8_t *bytes, size_t count)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc & 1) != 0 ? crc >> 1 ^ UINT32_C(0x82f63b78) : crc >> 1;
        }
    }
    return ~crc;
}

/* A checksum that fits whatever the bytes say. */
static void
forge(uint8_t *bytes, size_t count)
{
    memset(bytes + 12, 0, 4);
    const uint32_t crc = plain_crc32c(bytes, count);
    memcpy(bytes + 12, &crc, sizeof(crc));
}

static struct leat_policy *
small_policy(void *memory)
{
    const struct leat_policy shape = {.kind = LEAT_POLICY_POOL,
                                      .objective_ns = 100000,
                                      .worker_count = 3,
                                      .rung_count = 2,
                                      .variant_count = 2,
                                      .queue_max = 3,
                                      .slack_bins = 4,
                                      .idle_levels = 2,
                                      .held_max = 1,
                                      .latency_items = 3};
    return fill(memory, &shape);
}

static void
test_every_bit(void)
{
    const struct leat_policy *read;
    const size_t bytes = small_policy(block)->bytes;

    EXPECT(plain_crc32c((const uint8_t *)"123456789", 9) == UINT32_C(0xe3069283)); /* the published check value */
    memcpy(copy, block, bytes);
    forge(copy, bytes);
    EXPECT(memcmp(copy, block, bytes) == 0);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
        EXPECT(leat_policy_check(copy, bytes, &read) < 0);
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t size = 0; size < bytes; size++) {
        EXPECT(leat_policy_check(copy, size, &read) == LEAT_ERR_PROTO);
    }
    EXPECT(leat_policy_check(copy, bytes + 8, &read) == LEAT_ERR_PROTO);
    EXPECT(leat_policy_check(copy, bytes, &read) == LEAT_OK);
}

/* The value at that offset, under a checksum that is right. */
static void
refused(const struct leat_policy *policy, size_t offset, uint64_t value, size_t width, const char *part)
{
    const struct leat_policy *read = NULL;

    memcpy(copy, policy, policy->bytes);
    EXPECT(memcmp(copy + offset, &value, width) != 0);
    memcpy(copy + offset, &value, width);
    forge(copy, policy->bytes);
    EXPECT(leat_policy_check(copy, policy->bytes, &read) < 0 && read == NULL);
    if (strstr(leat_error_text(), part) == NULL) {
        (void)fprintf(stderr, "'%s' lacks '%s'\n", leat_error_text(), part);
    }
    EXPECT(strstr(leat_error_text(), part) != NULL);
}

static size_t
offset_in(const struct leat_policy *policy, const void *at)
{
    return (size_t)((const uint8_t *)at - (const uint8_t *)policy);
}

static void
test_hostile_fields(void)
{
    const struct leat_policy *policy = small_policy(block);
    static const struct {
        size_t offset;
        uint32_t value;
        const char *part;
    } headers[] = {
        {offsetof(struct leat_policy, magic), 0, "do not begin like one"},
        {offsetof(struct leat_policy, version), 2, "version 2"},
        {offsetof(struct leat_policy, bytes), 64, "it says 64"},
        {offsetof(struct leat_policy, kind), 0, "kind is 0"},
        {offsetof(struct leat_policy, kind), 4, "kind is 4"},
        {offsetof(struct leat_policy, kind), LEAT_POLICY_QUEUE, "idle_levels 2"},
        {offsetof(struct leat_policy, kind), LEAT_POLICY_LOAD, "do not go with kind load"},
        {offsetof(struct leat_policy, objective_ns), 1023, "an objective of 1023 ns"},
        {offsetof(struct leat_policy, objective_ns) + 4, 257, "out of range"},
        {offsetof(struct leat_policy, worker_count), 0, "worker_count is 0"},
        {offsetof(struct leat_policy, worker_count), 1025, "worker_count is 1025"},
        {offsetof(struct leat_policy, dispersion_permille), 1000001, "dispersion_permille"},
        {offsetof(struct leat_policy, drops_late), 2, "drops_late is 2"},
        {offsetof(struct leat_policy, rung_count), 0, "rung_count is 0"},
        {offsetof(struct leat_policy, rung_count), 257, "rung_count is 257"},
        {offsetof(struct leat_policy, rung_count), 3, "what it holds takes"},
        {offsetof(struct leat_policy, variant_count), 63, "variant_count is 63"},
        {offsetof(struct leat_policy, variant_count), 0, "variant_count is 0"},
        {offsetof(struct leat_policy, queue_max), 0, "queue_max 0"},
        {offsetof(struct leat_policy, queue_max), 1023, "queue_max is 1023"},
        {offsetof(struct leat_policy, slack_bins), 0, "slack_bins 0"},
        {offsetof(struct leat_policy, slack_bins), UINT32_MAX, "slack_bins is"},
        {offsetof(struct leat_policy, idle_levels), 65, "idle_levels is 65"},
        {offsetof(struct leat_policy, idle_levels), 0, "do not go together"},
        {offsetof(struct leat_policy, held_max), 65, "held_max is 65"},
        {offsetof(struct leat_policy, held_max), 4, "held_max 4 do not go together, or with queue_max 3"},
        {offsetof(struct leat_policy, held_max), 0, "do not go together"},
        {offsetof(struct leat_policy, shortest), 1, "shortest is 1, but kind pool"},
        {offsetof(struct leat_policy, shortest), 2, "shortest is 2"},
        {offsetof(struct leat_policy, late_penalty_permille), 1000001, "late_penalty_permille is"},
        {offsetof(struct leat_policy, spread_permille), 10001, "spread_permille is"},
        {offsetof(struct leat_policy, latency_items), 0, "latency_items is 0"},
        {offsetof(struct leat_policy, latency_items), UINT32_MAX, "latency_items is"},
        {offsetof(struct leat_policy, unit_shift), 17, "unit_shift is 17"},
        {offsetof(struct leat_policy, reserved) + 8 * 4, 1, "where nothing is to be"},
    };

    for (size_t i = 0; i < LEAT_COUNT_OF(headers); i++) {
        refused(policy, headers[i].offset, headers[i].value, 4, headers[i].part);
    }
    const size_t rung = offset_in(policy, leat_policy_rung(policy, 1)),
                 variant = offset_in(policy, leat_policy_variant(policy, 1));
    refused(policy, rung, leat_policy_rung(policy, 0)->rate_qps, 4, "rung 1 is for");
    refused(policy, offset_in(policy, leat_policy_rung(policy, 0)), 0, 4, "rung 0 is for 0");
    refused(policy, rung + 4, 1000001, 4, "expects what cannot be");
    refused(policy, rung + 8, 1000000001, 4, "expects what cannot be");
    refused(policy, rung + 12, 1000001, 4, "expects what cannot be");
    refused(policy, rung + 16, (uint32_t)-1000000001, 4, "expects what cannot be");
    refused(policy, rung + 28, 1, 4, "expects what cannot be");
    refused(policy, variant, 0, 1, "variant 1 has no proper name");
    refused(policy, variant, 27, 1, "variant 1 has no proper name"); /* an escape would reach terminals */
    refused(policy, variant, 0x80, 1, "variant 1 has no proper name");
    refused(policy, variant + 63, 'x', 1, "variant 1 has no proper name");
    refused(policy, variant + strlen("variant "), '0', 1, "two variants are named 'variant 0'");
    refused(policy, variant + 64, 1000001, 4, "an accuracy of 1000001 ppm");
    refused(policy, variant + 76, 1, 4, "an accuracy of");
    refused(policy, offset_in(policy, leat_policy_latency_ns(policy, 1)) + 16, 0, 8, "takes 0 ns for 3 items");
    refused(policy, offset_in(policy, leat_policy_latency_ns(policy, 1)), LEAT_POLICY_LATENCY_MAX_NS + 1, 8, "for 1 items");
    const size_t gap = offset_in(policy, leat_policy_latency_ns(policy, 1)) + 3 * 8,
                 actions = offset_in(policy, leat_policy_actions(policy, 1));
    EXPECT(gap < offset_in(policy, leat_policy_actions(policy, 0)));
    refused(policy, gap, 1, 1, "between its parts");

    const size_t row = 5 * 2;                                           /* bytes */
    refused(policy, actions, 1, 2, "where nothing is to be");           /* row 0 */
    refused(policy, policy->bytes - 1, 1, 1, "where nothing is to be"); /* behind the last row */
    refused(policy, actions + row, 2 | 1 << 6, 2, "to variant 2 in row 1, bin 0");
    refused(policy, actions + row, 0, 2, "gives 0 items");
    refused(policy, actions + row, 2 << 6, 2, "gives 2 items to variant 0 in row 1, bin 0");
    refused(policy, actions + row, 61 | 1 << 6, 2, "to variant 61");
    refused(policy, actions + 3 * row + 4, LEAT_POLICY_ALL << 6, 2, "row 3, bin 2");
    refused(policy, actions + 5 * row, LEAT_POLICY_ALL << 6, 2, "row 5, bin 0"); /* idle */

    const struct leat_policy load = {.kind = LEAT_POLICY_LOAD,
                                     .objective_ns = 100000,
                                     .worker_count = 3,
                                     .rung_count = 1,
                                     .variant_count = 1,
                                     .latency_items = 1};
    policy = fill(block, &load);
    refused(policy, offset_in(policy, leat_policy_actions(policy, 0)) + 2, LEAT_POLICY_GIVE_UP | 1 << 6, 2, "variant 63");
    const struct leat_policy queue = {.kind = LEAT_POLICY_QUEUE,
                                      .objective_ns = 100000,
                                      .worker_count = 3,
                                      .rung_count = 1,
                                      .variant_count = 1,
                                      .queue_max = 1,
                                      .slack_bins = 1,
                                      .latency_items = 1};
    policy = fill(block, &queue);
    refused(policy, offsetof(struct leat_policy, spread_permille), 1, 4, "which kind queue does not know");
    refused(policy, offset_in(policy, leat_policy_actions(policy, 0)) + 4, LEAT_POLICY_HOLD | 1 << 6, 2, "variant 62");
}

static void
test_generators_mistakes(void)
{
    const uint64_t latency_ns = 1;
    char name[LEAT_NAME_MAX + 1];
    struct leat_policy shape = {.kind = LEAT_POLICY_LOAD,
                                .objective_ns = 100000,
                                .worker_count = 3,
                                .rung_count = 1,
                                .variant_count = 1,
                                .latency_items = 1};
    struct leat_policy *policy = leat_policy_init(block, &shape);
    size_t bytes = 1;

    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    EXPECT(leat_policy_set_variant(policy, 0, name, 1, &latency_ns) == LEAT_ERR_INVALID);
    EXPECT(leat_policy_set_variant(policy, 0, "", 1, &latency_ns) == LEAT_ERR_INVALID);
    EXPECT(leat_policy_seal(policy) == LEAT_ERR_PROTO); /* no name */
    EXPECT(leat_policy_set_variant(policy, 0, name + 1, 1, &latency_ns) == LEAT_OK);
    EXPECT(leat_policy_seal(policy) == LEAT_ERR_PROTO); /* no action */
    leat_policy_set_action(policy, 0, 1, 0, (struct leat_policy_action){.items = 4});
    EXPECT(leat_policy_seal(policy) == LEAT_OK);
    EXPECT(leat_policy_rung(policy, 0)->accuracy_ppm == LEAT_POLICY_UNKNOWN);
    shape.rung_count = 0;
    EXPECT(leat_policy_bytes(&shape, &bytes) == LEAT_ERR_INVALID && bytes == 1);
    EXPECT(strcmp(leat_policy_kind_text(LEAT_POLICY_POOL), "pool") == 0 &&
           strcmp(leat_policy_kind_text(77), "unknown") == 0);
}

/* ---- Looking up -------------------------------------------------------------------------------- */

static struct leat_policy_action
plain_action(const struct leat_policy *policy, uint32_t workers, uint32_t rate_qps, uint32_t waiting, uint32_t idle,
             uint64_t slack_ns, uint32_t *ret_rung)
{
    const uint32_t unit = UINT32_C(1) << policy->unit_shift, units = waiting / unit + (waiting % unit != 0);
    uint32_t rung = 0, row = units <= policy->queue_max ? units : policy->queue_max + 1;

    while (rung + 1 < policy->rung_count &&
           (uint64_t)rate_qps * policy->worker_count > (uint64_t)leat_policy_rung(policy, rung)->rate_qps * unit * workers) {
        rung++;
    }
    if (idle >= 2 && policy->idle_levels > 0) {
        const uint32_t level = (idle - 2) * policy->idle_levels / (workers - 1);
        row = policy->queue_max + 1 + level * policy->held_max + (units < policy->held_max ? units : policy->held_max);
    }
    const uint64_t slack = slack_ns < policy->objective_ns ? slack_ns : policy->objective_ns;
    const uint32_t bin = (uint32_t)(slack * policy->slack_bins / policy->objective_ns); /* below 2^51 */
    struct leat_policy_action action =
        leat_policy_unpack(leat_policy_actions(policy, rung)[row * (policy->slack_bins + 1) + bin]);
    action.items *= action.items == LEAT_POLICY_ALL ? 1 : unit;
    *ret_rung = rung;
    return action;
}

static void
test_lookup(void)
{
    uint64_t levels = 0, turned = 0;

    for (int round = 0; round < 3 * ROUNDS; round++) {
        struct leat_policy shape = random_shape((enum leat_policy_kind)(1 + round % 3));
        if (round < 6) {
            shape.objective_ns = round < 3 ? LEAT_POLICY_OBJECTIVE_MAX_NS : LEAT_POLICY_OBJECTIVE_MIN_NS;
            shape.slack_bins = shape.kind == LEAT_POLICY_LOAD ? 0 : LEAT_POLICY_BINS_MAX;
        }
        const struct leat_policy *policy = fill(block, &shape);
        const uint32_t workers = below(2) == 0 ? shape.worker_count : 1 + (uint32_t)below(LEAT_POLICY_WORKERS_MAX);
        struct leat_policy_lookup lookup;
        if (below(4) == 0) { /* of another number of workers at first */
            leat_policy_lookup_init(&lookup, policy, 1 + (uint32_t)below(LEAT_POLICY_WORKERS_MAX));
            leat_policy_follow(&lookup, (uint32_t)below(100000));
            leat_policy_staff(&lookup, workers);
        } else {
            leat_policy_lookup_init(&lookup, policy, below(2) == 0 && workers == shape.worker_count ? 0 : workers);
        }
        leat_policy_staff(&lookup, 0); /* as many as before */
        EXPECT(lookup.workers == workers);
        for (int i = 0; i < LOOKUPS; i++) {
            const struct leat_policy_rung *rung = leat_policy_rung(policy, (uint32_t)below(shape.rung_count));
            const uint64_t covered_qps = ((uint64_t)rung->rate_qps << shape.unit_shift) * workers / shape.worker_count;
            const uint64_t edge_qps = covered_qps < UINT32_MAX - 100 ? covered_qps : UINT32_MAX - 100;
            const uint32_t rate_qps = below(8) == 0   ? (uint32_t)leat_test_random(&random_state)
                                      : below(2) == 0 ? (uint32_t)(edge_qps + below(3)) - (edge_qps > 0)
                                                      : (uint32_t)below(edge_qps + 100);
            const uint32_t waiting = 1 + (uint32_t)below((uint64_t)(shape.queue_max + 4) << shape.unit_shift),
                           idle = (uint32_t)below(workers + 1);
            /* The last slack of a bin or the first of the next, or any. */
            const uint64_t edge_ns =
                shape.slack_bins == 0
                    ? 0
                    : (below(shape.slack_bins + 1) * shape.objective_ns + shape.slack_bins - 1) / shape.slack_bins;
            const uint64_t slack_ns = below(10) == 0  ? UINT64_MAX - below(2)
                                      : below(2) == 0 ? edge_ns - (edge_ns > 0 && below(2) == 0)
                                                      : below(shape.objective_ns + 2);
            uint32_t want_rung;
            const uint32_t before = lookup.rung;
            leat_policy_follow(&lookup, rate_qps);
            const struct leat_policy_action want = plain_action(policy, workers, rate_qps, waiting, idle, slack_ns,
                                                                &want_rung),
                                            got = leat_policy_action(&lookup, waiting, idle, slack_ns);
            EXPECT(lookup.rung == want_rung && got.variant == want.variant && got.items == want.items);
            levels += idle >= 2 && shape.idle_levels > 0;
            turned += lookup.rung != before;
        }
    }
    EXPECT(levels > 10000 && turned > 10000);
}

/* ---- Selector mdp ------------------------------------------------------------------------------ */

enum { APP_VARIANTS = 5, ITEMS_TOP = 256 };

struct world {
    struct leat_sched_variant variants[APP_VARIANTS];
    uint64_t times_ns[APP_VARIANTS][ITEMS_TOP];
};

static uint64_t
predict(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct world *world = profiles;
    EXPECT(application == 7 && worker_class == 3 && variant < APP_VARIANTS && items >= 1);
    return world->times_ns[variant][items < ITEMS_TOP ? items : ITEMS_TOP - 1];
}

static uint64_t
cost(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct world *world = profiles;
    EXPECT(application == 7 && worker_class == 3 && variant < APP_VARIANTS && items >= 1);
    return (uint64_t)items * world->variants[variant].cost_nano;
}

/* Four variants, a to d, faster and less accurate first; the application also has x. In row n, bin j: variant j, all n. */
static struct leat_policy *
plain_policy(uint32_t rung_count)
{
    const struct leat_policy shape = {.kind = LEAT_POLICY_QUEUE,
                                      .objective_ns = 4000,
                                      .worker_count = 2,
                                      .rung_count = rung_count,
                                      .variant_count = 4,
                                      .queue_max = 4,
                                      .slack_bins = 4,
                                      .latency_items = 5};
    struct leat_policy *policy = leat_policy_init(block, &shape);

    for (uint32_t v = 0; v < 4; v++) {
        const uint64_t latency_ns[5] = {1000 * v + 100, 1000 * v + 200, 1000 * v + 300, 1000 * v + 400, 1000 * v + 500};
        const char name[] = {(char)('a' + v), '\0'};
        EXPECT(leat_policy_set_variant(policy, v, name, 600000 + v * 100000, latency_ns) == LEAT_OK);
    }
    for (uint32_t r = 0; r < rung_count; r++) {
        for (uint32_t row = 1; row <= 5; row++) {
            for (uint32_t bin = 0; bin <= 4; bin++) {
                const struct leat_policy_action action = {.variant = bin < 4 ? bin : 3,
                                                          .items = row < 5 ? row : LEAT_POLICY_ALL};
                leat_policy_set_action(policy, r, row, bin, action);
            }
        }
    }
    return policy;
}

static uint64_t reserve_ns;

static struct leat_selection
choose(const struct leat_policy *policy, const struct world *world, const struct leat_sched_query *queries, uint32_t count,
       uint64_t free_at_ns)
{
    static _Alignas(64) uint8_t state[1024];
    static const char *const names[APP_VARIANTS] = {"a", "b", "x", "c", "d"};
    const struct leat_sched_worker worker = {.free_at_ns = free_at_ns, .worker_class = 3};
    const struct leat_selector_options options = {
        .worker_count = 2, .policy = policy, .variant_names = names, .variant_count = APP_VARIANTS};
    const struct leat_select_input input = {.now_ns = 1000000,
                                            .pending = queries,
                                            .pending_count = count,
                                            .waiting_count = count,
                                            .variants = world->variants,
                                            .variant_count = APP_VARIANTS,
                                            .worker = &worker,
                                            .worker_count = 2,
                                            .idle_count = 1,
                                            .application = 7,
                                            .predict = predict,
                                            .cost = cost,
                                            .reserve_ns = reserve_ns,
                                            .profiles = world};

    EXPECT(leat_selector_mdp.state_bytes <= sizeof(state));
    memset(state, 0, sizeof(state));
    EXPECT(leat_selector_mdp.init(state, &options) == LEAT_OK);
    return leat_selector_mdp.select(state, &input);
}

#define expect_choice(...) expect_choice_at(__LINE__, __VA_ARGS__)

static void
expect_choice_at(int line, struct leat_selection got, uint32_t variant, uint32_t queries, uint32_t skip)
{
    if (got.variant != variant || got.queries != queries || got.skip != skip) {
        (void)fprintf(stderr, "line %d: variant %u, %u queries, %u passed over; expected %u, %u, %u\n", line, got.variant,
                      got.queries, got.skip, variant, queries, skip);
    }
    EXPECT(got.variant == variant && got.queries == queries && got.skip == skip);
}

/* What policy.h says, sentence by sentence. */
static void
test_selector_by_example(void)
{
    enum { NOW = 1000000 };
    struct leat_policy *policy = plain_policy(1);
    struct world world;
    struct leat_sched_query q[8];

    for (uint32_t v = 0; v < APP_VARIANTS; v++) { /* a, b, x, c, d */
        static const uint32_t accuracy_ppm[APP_VARIANTS] = {600000, 700000, 950000, 800000, 900000};
        world.variants[v] = (struct leat_sched_variant){
            .accuracy_ppm = accuracy_ppm[v], .items_max = 100, .ready = true, .cost_nano = accuracy_ppm[v]};
        for (uint32_t items = 0; items < ITEMS_TOP; items++) {
            world.times_ns[v][items] = (uint64_t[]){0, 1000, 5000, 2000, 3000}[v] + 100 * items;
        }
    }
    for (uint32_t i = 0; i < 8; i++) {
        q[i] = (struct leat_sched_query){.deadline_ns = NOW + 2500, .items = 1, .ordinal = i};
    }
    EXPECT(leat_policy_seal(policy) == LEAT_OK);

    expect_choice(choose(policy, &world, q, 3, 0), 3, 3, 0);          /* bin 2: c, which is number 3 here, and all 3 */
    expect_choice(choose(policy, &world, q, 8, 0), 3, 8, 0);          /* more than 4: all that wait */
    expect_choice(choose(policy, &world, q, 3, NOW + 1000), 1, 3, 0); /* when the worker is free, 1500 are left: b */
    expect_choice(choose(policy, &world, q, 3, NOW + 9000), 0, 3, 0); /* late: a */
    q[0].deadline_ns = LEAT_NO_DEADLINE;
    expect_choice(choose(policy, &world, q, 3, NOW + 9000), 4, 3, 0); /* the whole objective, whenever it is */
    q[0].deadline_ns = NOW + 2500;

    /* Items, not queries, make the row and the batch: 3 + 1 are row 4, a larger one is full. */
    q[0].items = 3;
    leat_policy_set_action(policy, 0, 4, 2, (struct leat_policy_action){.variant = 0, .items = 4});
    leat_policy_set_action(policy, 0, 5, 2, (struct leat_policy_action){.variant = 1, .items = 4});
    expect_choice(choose(policy, &world, q, 2, 0), 0, 2, 0);
    expect_choice(choose(policy, &world, q, 3, 0), 1, 2, 0);
    q[1].items = 2; /* whole queries: 3 + 2 are too many, and the one behind does not overtake */
    expect_choice(choose(policy, &world, q, 3, 0), 1, 1, 0);
    q[1].items = 1;
    world.variants[1].items_max = 3;
    expect_choice(choose(policy, &world, q, 3, 0), 1, 1, 0);
    world.variants[1].items_max = 100;
    /* A query of more items than the batch goes to a variant that has it in time: c does not (3100), b does (2100). */
    leat_policy_set_action(policy, 0, 5, 2, (struct leat_policy_action){.variant = 2, .items = 4});
    q[0].items = 11;
    expect_choice(choose(policy, &world, q, 3, 0), 1, 1, 0);
    q[0].items = 5; /* c has 5 in 2500 */
    expect_choice(choose(policy, &world, q, 3, 0), 3, 1, 0);
    q[0].items = 40; /* nobody has: the fastest, alone */
    expect_choice(choose(policy, &world, q, 3, 0), 0, 1, 0);
    q[0].items = 1;

    /* Floors. Bin 2 of row 3 is c with .8; the batch ends before a query that asks for more. */
    q[1].accuracy_floor_ppm = 800001;
    expect_choice(choose(policy, &world, q, 3, 0), 3, 1, 0);
    q[1].accuracy_floor_ppm = 800000;
    expect_choice(choose(policy, &world, q, 3, 0), 3, 3, 0);
    q[0].accuracy_floor_ppm = 800001; /* d; two of them would be late, and one is too */
    expect_choice(choose(policy, &world, q, 3, 0), 4, 1, 0);
    for (uint32_t i = 0; i < 3; i++) {
        q[i].deadline_ns = NOW + 3200;
    }
    leat_policy_set_action(policy, 0, 3, 3, (struct leat_policy_action){.variant = 0, .items = 3});
    expect_choice(choose(policy, &world, q, 3, 0), 4, 2, 0); /* 3200 are in time */
    q[0].accuracy_floor_ppm = 900001;                        /* only the stranger is that good */
    expect_choice(choose(policy, &world, q, 3, 0), 2, 1, 0);
    q[0].accuracy_floor_ppm = 950001;
    EXPECT(choose(policy, &world, q, 3, 0).queries == 0);
    q[0].accuracy_floor_ppm = q[1].accuracy_floor_ppm = 0;
    leat_policy_set_action(policy, 0, 3, 3, (struct leat_policy_action){.variant = 3, .items = 3});
    q[0].cost_cap_nano = 750000; /* d and c are too dear */
    expect_choice(choose(policy, &world, q, 3, 0), 1, 3, 0);
    q[0].cost_cap_nano = 0;

    /* Readiness: the next faster, else the fastest that is, else whoever is. */
    world.variants[4].ready = false;
    expect_choice(choose(policy, &world, q, 3, 0), 3, 3, 0);
    world.variants[3].ready = false;
    expect_choice(choose(policy, &world, q, 3, 0), 1, 3, 0);
    world.variants[1].ready = world.variants[0].ready = false;
    expect_choice(choose(policy, &world, q, 3, 0), 2, 1, 0);
    world.variants[3].ready = true; /* slower than a, which is asked for */
    for (uint32_t i = 0; i < 3; i++) {
        q[i].deadline_ns = NOW + 900;
    }
    expect_choice(choose(policy, &world, q, 3, 0), 3, 1, 0);
    world.variants[2].ready = world.variants[3].ready = false;
    EXPECT(choose(policy, &world, q, 3, 0).queries == 0);
    for (uint32_t v = 0; v < APP_VARIANTS; v++) {
        world.variants[v].ready = true;
    }

    /* Giving up: the first of 4 is late, then 3 are left and the oldest of them has time. */
    leat_policy_set_action(policy, 0, 4, 0, (struct leat_policy_action){.variant = LEAT_POLICY_GIVE_UP, .items = 1});
    leat_policy_set_action(policy, 0, 3, 0, (struct leat_policy_action){.variant = LEAT_POLICY_GIVE_UP, .items = 2});
    leat_policy_set_action(policy, 0, 1, 0, (struct leat_policy_action){.variant = LEAT_POLICY_GIVE_UP, .items = 1});
    for (uint32_t i = 1; i < 4; i++) {
        q[i].deadline_ns = NOW + 1500;
    }
    expect_choice(choose(policy, &world, q, 4, 0), 1, 3, 1);
    q[1].deadline_ns = q[2].deadline_ns = NOW; /* then two more */
    expect_choice(choose(policy, &world, q, 4, 0), 1, 1, 3);
    q[3].deadline_ns = NOW; /* all: by the fastest, as many as were given up first */
    expect_choice(choose(policy, &world, q, 4, 0), 0, 1, 0);
    expect_choice(choose(policy, &world, q, 3, 0), 0, 2, 0);
    q[3].deadline_ns = NOW + 1500;
    q[3].accuracy_floor_ppm = 950001; /* what is left suits nobody */
    expect_choice(choose(policy, &world, q, 4, 0), 0, 1, 0);
    q[3].accuracy_floor_ppm = 0;
    q[1].items = 2; /* 1 + 2 + 1 + 1 are full: the action of many, over whole queries */
    leat_policy_set_action(policy, 0, 5, 0, (struct leat_policy_action){.variant = LEAT_POLICY_GIVE_UP, .items = 2});
    leat_policy_set_action(policy, 0, 2, 0, (struct leat_policy_action){.variant = LEAT_POLICY_GIVE_UP, .items = 1});
    expect_choice(choose(policy, &world, q, 4, 0), 1, 1, 3);
    EXPECT(leat_policy_seal(policy) == LEAT_OK);

    leat_policy_set_action(policy, 0, 2, 1, (struct leat_policy_action){.variant = LEAT_POLICY_HOLD, .items = 1});
    q[1].items = 1;
    q[0].deadline_ns = q[1].deadline_ns = NOW + 1500;
    expect_choice(choose(policy, &world, q, 2, 0), 0, 0, 0);
    EXPECT(choose(policy, &world, q, 2, 0).hold && !choose(policy, &world, q, 3, 0).hold);

    /* A reserve of 1000: with 2500 left b has 1500. What would be given up within it has all the time. */
    q[1].items = 1;
    for (uint32_t i = 0; i < 3; i++) {
        q[i].deadline_ns = NOW + 2500;
    }
    reserve_ns = 1000;
    expect_choice(choose(policy, &world, q, 3, 0), 3, 3, 0); /* not of kind queue */
    policy->kind = LEAT_POLICY_POOL;
    expect_choice(choose(policy, &world, q, 3, 0), 1, 3, 0);
    leat_policy_set_action(policy, 0, 3, 1, (struct leat_policy_action){.variant = LEAT_POLICY_GIVE_UP, .items = 1});
    expect_choice(choose(policy, &world, q, 3, 0), 3, 3, 0);
    reserve_ns = 0;
}

static void
test_selector_refuses(void)
{
    static _Alignas(64) uint8_t state[1024];
    static const char *const strangers[] = {"x", "y"};
    struct leat_policy *policy = plain_policy(1);
    struct leat_selector_options options = {.worker_count = 2};
    EXPECT(leat_policy_seal(policy) == LEAT_OK);

    EXPECT(leat_selector_mdp.init(state, &options) == LEAT_ERR_INVALID);
    EXPECT(strstr(leat_error_text(), "selector mdp needs a policy") != NULL);
    options.policy = policy;
    EXPECT(leat_selector_mdp.init(state, &options) == LEAT_OK);
    options.variant_names = strangers;
    options.variant_count = 2;
    EXPECT(leat_selector_mdp.init(state, &options) == LEAT_ERR_INVALID);
    EXPECT(strstr(leat_error_text(), "such as 'a'") != NULL);
    options.variant_names = NULL;
    options.worker_count = LEAT_POLICY_WORKERS_MAX + 1;
    EXPECT(leat_selector_mdp.init(state, &options) == LEAT_ERR_INVALID);
    options.worker_count = 2;
    const struct leat_policy load = {.kind = LEAT_POLICY_LOAD,
                                     .objective_ns = 100000,
                                     .worker_count = 3,
                                     .rung_count = 1,
                                     .variant_count = 1,
                                     .latency_items = 1};
    options.policy = fill(block, &load);
    EXPECT(leat_selector_mdp.init(state, &options) == LEAT_ERR_INVALID);
    EXPECT(strstr(leat_error_text(), "not load") != NULL);
}

/* ---- Selector mdp, written anew ---------------------------------------------------------------- */

struct model {
    const struct leat_policy *policy;
    const struct leat_select_input *input;
    const uint32_t *variant_of;
    uint64_t slow_sum; /* 64 times the mean of how many times as long batches took, in 1/4096 */
};

/* A batch that took so long; times as the table has them, between its sizes on a line. */
static void
model_end(struct model *model, uint32_t variant, uint32_t items, uint64_t run_ns)
{
    const struct leat_policy *policy = model->policy;
    const uint32_t unit = UINT32_C(1) << policy->unit_shift;

    for (uint32_t p = 0; p < policy->variant_count; p++) {
        const uint64_t *times_ns = leat_policy_latency_ns(policy, p);
        if (model->variant_of[p] != variant || items > policy->latency_items * unit || items < unit) {
            continue;
        }
        uint64_t table_ns = times_ns[items / unit - 1];
        if (items % unit != 0 && times_ns[items / unit] > table_ns) {
            table_ns += (times_ns[items / unit] - table_ns) * (items % unit) / unit;
        }
        const uint64_t slow = run_ns >= 4 * table_ns ? 4 * 4096 : run_ns * 4096 / table_ns;
        model->slow_sum = model->slow_sum + slow - model->slow_sum / 64;
        return;
    }
}

static uint64_t
model_slow(const struct model *model)
{
    return model->slow_sum / 64 > 4096 + 256 && model->policy->kind == LEAT_POLICY_POOL ? model->slow_sum / 64 : 4096;
}

/* What the policy says when all takes that much longer. */
static struct leat_policy_action
slow_action(const struct model *model, uint32_t workers, uint32_t waiting, uint64_t slack_ns)
{
    const bool letter = model->policy->kind == LEAT_POLICY_QUEUE;
    const uint64_t rate_qps = letter ? model->input->rate_qps : model->input->rising_qps * model_slow(model) / 4096;
    const uint64_t left_ns = slack_ns < model->policy->objective_ns ? slack_ns : model->policy->objective_ns;
    uint32_t rung;
    return plain_action(model->policy, workers, (uint32_t)rate_qps, waiting, model->input->idle_count,
                        left_ns * (4096 * 4096 / model_slow(model)) / 4096, &rung);
}

static bool
model_serves(const struct leat_select_input *input, uint32_t v, const struct leat_sched_query *query)
{
    return v < input->variant_count && input->variants[v].ready && query->items <= input->variants[v].items_max &&
           query->accuracy_floor_ppm <= input->variants[v].accuracy_ppm &&
           (query->cost_cap_nano == 0 || query->items * (uint64_t)input->variants[v].cost_nano <= query->cost_cap_nano);
}

/* The least accurate of all that serve it; of equal ones the first. */
static uint32_t
model_least_accurate(const struct leat_select_input *input, const struct leat_sched_query *query)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t v = input->variant_count; v-- > 0;) {
        if (model_serves(input, v, query) &&
            (found == UINT32_MAX || input->variants[v].accuracy_ppm <= input->variants[found].accuracy_ppm)) {
            found = v;
        }
    }
    return found;
}

/* Is table variant a faster than b for one item? Of equal ones the lower number counts as that. */
static bool
model_faster(const struct leat_policy *policy, uint32_t a, uint32_t b)
{
    const uint64_t a_ns = leat_policy_latency_ns(policy, a)[0], b_ns = leat_policy_latency_ns(policy, b)[0];
    return a_ns < b_ns || (a_ns == b_ns && a < b);
}

static uint32_t
model_substitute(const struct model *model, const struct leat_sched_query *query, struct leat_policy_action action,
                 uint64_t slack_ns)
{
    const struct leat_select_input *input = model->input;
    const uint32_t own = model->variant_of[action.variant];
    uint32_t slowest = UINT32_MAX, fastest = UINT32_MAX; /* no slower than the action's; of all */

    if (own < input->variant_count && input->variants[own].accuracy_ppm < query->accuracy_floor_ppm) {
        return model_least_accurate(input, query);
    }
    for (uint32_t p = 0; p < model->policy->variant_count; p++) {
        const uint32_t v = model->variant_of[p];
        if (!model_serves(input, v, query)) {
            continue;
        }
        fastest = fastest == UINT32_MAX || model_faster(model->policy, p, fastest) ? p : fastest;
        if ((p == action.variant || model_faster(model->policy, p, action.variant)) &&
            (query->items <= action.items || predict(input->profiles, 7, v, 3, query->items) <= slack_ns)) {
            slowest = slowest == UINT32_MAX || model_faster(model->policy, slowest, p) ? p : slowest;
        }
    }
    const uint32_t p = slowest != UINT32_MAX ? slowest : fastest;
    return p != UINT32_MAX ? model->variant_of[p] : model_least_accurate(input, query);
}

static struct leat_selection
model_select(const struct model *model, uint32_t workers)
{
    const struct leat_select_input *input = model->input;
    const uint64_t start_ns = input->now_ns > input->worker->free_at_ns ? input->now_ns : input->worker->free_at_ns;
    struct leat_policy_action action, first_given_up = {0};
    uint64_t slack_ns, kept_ns;
    uint32_t skip = 0, k, items;

    for (;;) {
        const struct leat_sched_query *oldest = &input->pending[skip];
        uint32_t waiting = (input->waiting_count - input->pending_count) << model->policy->unit_shift;
        for (k = skip; k < input->pending_count; k++) {
            waiting += input->pending[k].items;
        }
        slack_ns = oldest->deadline_ns == LEAT_NO_DEADLINE ? model->policy->objective_ns
                   : oldest->deadline_ns <= start_ns       ? 0
                                                           : oldest->deadline_ns - start_ns;
        kept_ns = oldest->deadline_ns == LEAT_NO_DEADLINE || model->policy->kind == LEAT_POLICY_QUEUE ? 0 : input->reserve_ns;
        const uint64_t all_ns = slack_ns;
        slack_ns -= kept_ns < slack_ns ? kept_ns : slack_ns;
        action = slow_action(model, workers, waiting, slack_ns);
        if (action.variant == LEAT_POLICY_GIVE_UP) { /* but perhaps not with all the time that there is */
            kept_ns = 0;
            slack_ns = all_ns;
            action = slow_action(model, workers, waiting, slack_ns);
        }
        while (action.variant == LEAT_POLICY_HOLD && oldest->deadline_ns == LEAT_NO_DEADLINE && slack_ns > 0) {
            slack_ns /= 2; /* no time will pass that ends the wait */
            action = slow_action(model, workers, waiting, slack_ns);
        }
        if (action.variant == LEAT_POLICY_HOLD) {
            return (struct leat_selection){.skip = skip, .hold = true};
        }
        if (action.variant != LEAT_POLICY_GIVE_UP) {
            break;
        }
        if (first_given_up.items == 0) {
            first_given_up = action;
        }
        for (k = skip, items = 0; k < input->pending_count; k++) {
            items += input->pending[k].items;
            if (k > skip && items > (action.items == LEAT_POLICY_ALL ? UINT32_MAX : action.items)) {
                break;
            }
        }
        skip = k;
        if (skip == input->pending_count) {
            uint32_t fastest = 0;
            for (uint32_t p = 1; p < model->policy->variant_count; p++) {
                fastest = model_faster(model->policy, p, fastest) ? p : fastest;
            }
            const bool more = input->waiting_count > input->pending_count;
            action = (struct leat_policy_action){.variant = fastest, .items = more ? LEAT_POLICY_ALL : first_given_up.items};
            slack_ns = kept_ns = 0;
            skip = 0;
            break;
        }
    }

    const struct leat_sched_query *query = &input->pending[skip];
    uint32_t v = model->variant_of[action.variant];
    const bool own = model_serves(input, v, query) && query->items <= action.items;
    if (!own) {
        v = model_substitute(model, query, action, slack_ns);
        if (v == UINT32_MAX) {
            v = model_least_accurate(input, &input->pending[0]);
            return v == UINT32_MAX ? (struct leat_selection){0} : (struct leat_selection){.variant = v, .queries = 1};
        }
    }
    uint32_t count = 1;
    items = query->items;
    for (k = skip + 1; k < input->pending_count; k++, count++) {
        items += input->pending[k].items;
        if ((action.items != LEAT_POLICY_ALL && items > action.items) || items > input->variants[v].items_max ||
            !model_serves(input, v, &input->pending[k]) || (!own && predict(input->profiles, 7, v, 3, items) > slack_ns)) {
            break;
        }
        bool spoils = false; /* one behind the oldest that has less time than it, and would have enough without this one */
        for (uint32_t other = skip + 1; other <= k; other++) {
            const uint64_t deadline_ns = input->pending[other].deadline_ns;
            const uint64_t left_ns = deadline_ns == LEAT_NO_DEADLINE ? model->policy->objective_ns
                                     : deadline_ns <= start_ns       ? 0
                                                                     : deadline_ns - start_ns;
            const uint64_t use_ns = left_ns > kept_ns ? left_ns - kept_ns : 0;
            spoils = spoils || (left_ns > 0 && use_ns < slack_ns && predict(input->profiles, 7, v, 3, items) > use_ns);
        }
        if (spoils) {
            break;
        }
    }
    return (struct leat_selection){.variant = v, .queries = count, .skip = skip};
}

static void
random_world(struct world *world, uint64_t objective_ns)
{
    for (uint32_t v = 0; v < APP_VARIANTS; v++) {
        world->variants[v] = (struct leat_sched_variant){.accuracy_ppm = 100000 * (uint32_t)below(8),
                                                         .items_max = 1 + (uint32_t)below(40),
                                                         .cost_nano = (uint32_t)below(10),
                                                         .ready = below(6) != 0};
        for (uint32_t items = 0; items < ITEMS_TOP; items++) {
            world->times_ns[v][items] = below(objective_ns / 10 * (items + 1));
        }
    }
}

static void
test_selector_against_model(void)
{
    static const char *const all_names[APP_VARIANTS] = {"variant 4", "variant 0", "stranger", "variant 2", "variant 1"};
    static const uint32_t bound[9] = {1, 4, 3, UINT32_MAX, 0, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    static const uint32_t same[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    static _Alignas(64) uint8_t state[1024];
    struct leat_sched_query queries[QUERIES];
    struct world world;
    uint32_t skipped = 0, batched = 0, none = 0, held = 0, slowed = 0;

    for (int round = 0; round < SELECTIONS / 100; round++) {
        struct leat_policy shape = random_shape(round % 2 == 0 ? LEAT_POLICY_QUEUE : LEAT_POLICY_POOL);
        shape.unit_shift = below(3) == 0 ? 1 + (uint32_t)below(2) : 0; /* queries here are small */
        const struct leat_policy *policy = fill(block, &shape);
        const bool by_name = below(2) == 0;
        const struct leat_selector_options options = {
            .policy = policy, .variant_names = by_name ? all_names : NULL, .variant_count = by_name ? APP_VARIANTS : 0};
        struct model model = {.policy = policy, .variant_of = by_name ? bound : same, .slow_sum = 64 * 4096};
        const uint64_t longest = 1 + below(8); /* that batches take, in the table's times */
        EXPECT(leat_selector_mdp.init(state, &options) == LEAT_OK);
        for (int i = 0; i < 100; i++) {
            for (uint64_t ends = below(4); ends > 0; ends--) {
                const uint32_t v = (uint32_t)below(APP_VARIANTS + 1);
                const uint32_t items = 1 + (uint32_t)below((uint64_t)(shape.latency_items + 2) << shape.unit_shift);
                const uint64_t run_ns = below(longest * leat_policy_latency_ns(policy, 0)[0]);
                leat_selector_mdp.ended(state, v, items, run_ns);
                model_end(&model, v, items, run_ns);
            }
            slowed += model_slow(&model) > 4096;
            const uint32_t pending = 1 + (uint32_t)below(QUERIES);
            const struct leat_sched_worker worker = {.free_at_ns = below(2) == 0 ? 0 : 1000000 + below(shape.objective_ns),
                                                     .worker_class = 3};
            const struct leat_select_input input = {.now_ns = 1000000,
                                                    .pending = queries,
                                                    .pending_count = pending,
                                                    .waiting_count = pending + (uint32_t)below(2) * (uint32_t)below(30),
                                                    .variants = world.variants,
                                                    .variant_count = (uint32_t)below(APP_VARIANTS) + 1,
                                                    .worker = &worker,
                                                    .worker_count = shape.worker_count,
                                                    .idle_count = (uint32_t)below(shape.worker_count + 1),
                                                    .rate_qps = (uint32_t)below(1500),
                                                    .rising_qps = (uint32_t)below(1500),
                                                    .application = 7,
                                                    .predict = predict,
                                                    .cost = cost,
                                                    .reserve_ns = below(3) == 0 ? below(shape.objective_ns) : 0,
                                                    .profiles = &world};
            const bool plain = below(2) == 0;
            random_world(&world, shape.objective_ns);
            for (uint32_t k = 0; k < pending; k++) {
                queries[k] = (struct leat_sched_query){
                    .deadline_ns = below(10) == 0 ? LEAT_NO_DEADLINE : 1000000 + below(2 * shape.objective_ns),
                    .items = plain ? 1 : 1 + (uint32_t)below(1 + below(12)),
                    .accuracy_floor_ppm = plain || below(3) != 0 ? 0 : (uint32_t)below(800000),
                    .cost_cap_nano = plain || below(6) != 0 ? 0 : (uint32_t)below(20)};
            }
            model.input = &input;
            const struct leat_selection want = model_select(&model, shape.worker_count);
            const struct leat_selection got = leat_selector_mdp.select(state, &input);
            expect_choice(got, want.variant, want.queries, want.skip);
            EXPECT(got.hold == want.hold);
            held += want.hold;
            skipped += want.skip > 0;
            batched += want.queries > 1;
            none += want.queries == 0;
        }
    }
    EXPECT(skipped > SELECTIONS / 40 && batched > SELECTIONS / 10 && none > SELECTIONS / 100);
    EXPECT(held > SELECTIONS / 100 && slowed > SELECTIONS / 10 && slowed < SELECTIONS * 9 / 10);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    test_round_trip();
    test_size();
    test_every_bit();
    test_hostile_fields();
    test_generators_mistakes();
    test_lookup();
    test_selector_by_example();
    test_selector_refuses();
    test_selector_against_model();
    return 0;
}
