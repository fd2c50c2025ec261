/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/policy_table.h"

#include <string.h>

#include "base/align.h"

#define ROUNDING         64u /* bytes: where rungs' actions begin */
#define ACCURACY_MAX_PPM 1000000u
#define SHARE_MAX_PPB    1000000000u

static const uint8_t magic[8] = {'l', 'e', 'a', 't', 'p', 'o', 'l', '\n'};

static const char *const kinds[] = {
    [LEAT_POLICY_QUEUE] = "queue", [LEAT_POLICY_POOL] = "pool", [LEAT_POLICY_LOAD] = "load"};

const char *
leat_policy_kind_text(uint32_t kind)
{
    return kind < LEAT_COUNT_OF(kinds) && kinds[kind] != NULL ? kinds[kind] : "unknown";
}

/* ---- Where things lie -------------------------------------------------------------------------- */

static size_t
variants_at(const struct leat_policy *policy)
{
    return sizeof(*policy) + policy->rung_count * sizeof(struct leat_policy_rung);
}

static size_t
latencies_at(const struct leat_policy *policy)
{
    return variants_at(policy) + policy->variant_count * sizeof(struct leat_policy_variant);
}

/* One behind the last latency. */
static size_t
latencies_end(const struct leat_policy *policy)
{
    return latencies_at(policy) + (size_t)policy->variant_count * policy->latency_items * sizeof(uint64_t);
}

static size_t
actions_at(const struct leat_policy *policy)
{
    return leat_round_up(latencies_end(policy), ROUNDING);
}

static size_t
row_cells(const struct leat_policy *policy)
{
    return policy->slack_bins + 1u;
}

static size_t
rung_cells(const struct leat_policy *policy)
{
    return leat_policy_row_count(policy) * row_cells(policy);
}

static size_t
rung_bytes(const struct leat_policy *policy)
{
    return leat_round_up(rung_cells(policy) * sizeof(uint16_t), ROUNDING);
}

static size_t
block_bytes(const struct leat_policy *policy)
{
    return actions_at(policy) + policy->rung_count * rung_bytes(policy);
}

const struct leat_policy_rung *
leat_policy_rung(const struct leat_policy *policy, uint32_t rung)
{
    LEAT_ASSERT(rung < policy->rung_count);
    return (const struct leat_policy_rung *)(const void *)((const uint8_t *)policy + sizeof(*policy)) + rung;
}

const struct leat_policy_variant *
leat_policy_variant(const struct leat_policy *policy, uint32_t variant)
{
    LEAT_ASSERT(variant < policy->variant_count);
    return (const struct leat_policy_variant *)(const void *)((const uint8_t *)policy + variants_at(policy)) + variant;
}

const uint64_t *
leat_policy_latency_ns(const struct leat_policy *policy, uint32_t variant)
{
    LEAT_ASSERT(variant < policy->variant_count);
    return (const uint64_t *)(const void *)((const uint8_t *)policy + latencies_at(policy)) +
           (size_t)variant * policy->latency_items;
}

const uint16_t *
leat_policy_actions(const struct leat_policy *policy, uint32_t rung)
{
    LEAT_ASSERT(rung < policy->rung_count);
    return (const uint16_t *)(const void *)((const uint8_t *)policy + actions_at(policy) + rung * rung_bytes(policy));
}

/* ---- Checking ---------------------------------------------------------------------------------- */

#define WRONG(...) LEAT_FAIL(LEAT_ERR_PROTO, "policy: " __VA_ARGS__)

/* CRC-32C (Castagnoli), reflected, four bits at a time. */
static uint32_t
crc32c(uint32_t crc, const uint8_t *bytes, size_t count)
{
    static const uint32_t steps[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                       0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ steps[crc & 15];
        crc = crc >> 4 ^ steps[crc & 15];
    }
    return crc;
}

static uint32_t
checksum(const struct leat_policy *policy, size_t bytes)
{
    static const uint8_t none[sizeof(policy->checksum)];
    const size_t at = offsetof(struct leat_policy, checksum), behind = at + sizeof(none);
    const uint8_t *first = (const uint8_t *)policy;
    const uint32_t crc = crc32c(crc32c(UINT32_MAX, first, at), none, sizeof(none));
    return ~crc32c(crc, first + behind, bytes - behind);
}

struct field {
    const char *name;
    size_t offset;
    uint32_t min, max;
};

static const struct field fields[] = {
    {"kind", offsetof(struct leat_policy, kind), LEAT_POLICY_QUEUE, LEAT_POLICY_LOAD},
    {"worker_count", offsetof(struct leat_policy, worker_count), 1, LEAT_POLICY_WORKERS_MAX},
    {"dispersion_permille", offsetof(struct leat_policy, dispersion_permille), 0, LEAT_POLICY_DISPERSION_MAX_PERMILLE},
    {"drops_late", offsetof(struct leat_policy, drops_late), 0, 1},
    {"rung_count", offsetof(struct leat_policy, rung_count), 1, LEAT_POLICY_RUNGS_MAX},
    {"variant_count", offsetof(struct leat_policy, variant_count), 1, LEAT_POLICY_VARIANTS_MAX},
    {"queue_max", offsetof(struct leat_policy, queue_max), 0, LEAT_POLICY_QUEUE_MAX},
    {"slack_bins", offsetof(struct leat_policy, slack_bins), 0, LEAT_POLICY_BINS_MAX},
    {"idle_levels", offsetof(struct leat_policy, idle_levels), 0, LEAT_POLICY_LEVELS_MAX},
    {"held_max", offsetof(struct leat_policy, held_max), 0, LEAT_POLICY_HELD_MAX},
    {"latency_items", offsetof(struct leat_policy, latency_items), 1, LEAT_POLICY_LATENCIES_MAX},
    {"shortest", offsetof(struct leat_policy, shortest), 0, 1},
    {"late_penalty_permille", offsetof(struct leat_policy, late_penalty_permille), 0, LEAT_POLICY_PENALTY_MAX_PERMILLE},
    {"unit_shift", offsetof(struct leat_policy, unit_shift), 0, LEAT_POLICY_UNIT_SHIFT_MAX},
    {"spread_permille", offsetof(struct leat_policy, spread_permille), 0, LEAT_POLICY_SPREAD_MAX_PERMILLE},
};

/* Sizes within these limits fit in 64 bits many times over. */
static enum leat_status
check_shape(const struct leat_policy *policy, enum leat_status wrong)
{
    for (size_t f = 0; f < LEAT_COUNT_OF(fields); f++) {
        uint32_t value;
        memcpy(&value, (const uint8_t *)policy + fields[f].offset, sizeof(value));
        if (value < fields[f].min || value > fields[f].max) {
            return LEAT_FAIL(wrong, "policy: %s is %u, but is to be %u to %u", fields[f].name, value, fields[f].min,
                             fields[f].max);
        }
    }
    if (policy->objective_ns < LEAT_POLICY_OBJECTIVE_MIN_NS || policy->objective_ns > LEAT_POLICY_OBJECTIVE_MAX_NS) {
        return LEAT_FAIL(wrong, "policy: an objective of %llu ns is out of range",
                         (unsigned long long)policy->objective_ns);
    }
    const bool load = policy->kind == LEAT_POLICY_LOAD;
    if ((policy->queue_max == 0) != load || (policy->slack_bins == 0) != load) {
        return LEAT_FAIL(wrong, "policy: queue_max %u and slack_bins %u do not go with kind %s", policy->queue_max,
                         policy->slack_bins, kinds[policy->kind]);
    }
    if (policy->spread_permille != 0 && policy->kind != LEAT_POLICY_POOL) {
        return LEAT_FAIL(wrong, "policy: spread_permille is %u, which kind %s does not know", policy->spread_permille,
                         kinds[policy->kind]);
    }
    if (policy->shortest != 0 && policy->kind != LEAT_POLICY_QUEUE) {
        return LEAT_FAIL(wrong, "policy: shortest is 1, but kind %s has no queues of workers", kinds[policy->kind]);
    }
    if ((policy->idle_levels == 0) != (policy->held_max == 0) || policy->held_max > policy->queue_max ||
        (policy->idle_levels > 0 && policy->kind != LEAT_POLICY_POOL)) {
        return LEAT_FAIL(wrong,
                         "policy: idle_levels %u and held_max %u do not go together, or with queue_max %u and kind %s",
                         policy->idle_levels, policy->held_max, policy->queue_max, kinds[policy->kind]);
    }
    return LEAT_OK;
}

static enum leat_status
check_header(const struct leat_policy *policy, size_t size)
{
    if (size < sizeof(*policy) || memcmp(policy->magic, magic, sizeof(magic)) != 0) {
        return WRONG("these bytes do not begin like one");
    }
    if (policy->version != LEAT_POLICY_VERSION) {
        return LEAT_FAIL(LEAT_ERR_VERSION, "policy: it is of version %u, but this program knows %u: generate it anew",
                         policy->version, LEAT_POLICY_VERSION);
    }
    const enum leat_status status = check_shape(policy, LEAT_ERR_PROTO);
    if (status != LEAT_OK) {
        return status;
    }
    if (policy->bytes != size || block_bytes(policy) != size) {
        return WRONG("there are %zu bytes, but it says %llu and what it holds takes %zu", size,
                     (unsigned long long)policy->bytes, block_bytes(policy));
    }
    return policy->checksum == checksum(policy, size) ? LEAT_OK : WRONG("the checksum is wrong: the bytes are damaged");
}

static bool
all_zero(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    uint8_t seen = 0;
    for (size_t i = 0; i < count; i++) {
        seen |= at[i];
    }
    return seen == 0;
}

static bool
in_range(uint32_t value, uint32_t max)
{
    return value <= max || value == LEAT_POLICY_UNKNOWN;
}

/* An accuracy less penalties. */
static bool
is_gain(int32_t ppm)
{
    return ppm == LEAT_POLICY_GAIN_UNKNOWN ||
           (ppm <= (int32_t)ACCURACY_MAX_PPM && ppm >= -(int32_t)LEAT_POLICY_PENALTY_MAX_PERMILLE * 1000);
}

static enum leat_status
check_rungs(const struct leat_policy *policy)
{
    uint32_t below_qps = 0;

    for (uint32_t r = 0; r < policy->rung_count; r++) {
        const struct leat_policy_rung *rung = leat_policy_rung(policy, r);
        if (rung->rate_qps <= below_qps) {
            return WRONG("rung %u is for %u queries a second, not for more than the one before", r, rung->rate_qps);
        }
        if (!in_range(rung->accuracy_ppm, ACCURACY_MAX_PPM) || !in_range(rung->violation_ppb, SHARE_MAX_PPB) ||
            !is_gain(rung->gain_ppm) || !is_gain(rung->bound_ppm) || !all_zero(rung->reserved, sizeof(rung->reserved))) {
            return WRONG("rung %u expects what cannot be", r);
        }
        below_qps = rung->rate_qps;
    }
    return LEAT_OK;
}

/* Printable, at least one character, and zeros behind. */
static bool
is_name(const char name[LEAT_NAME_MAX])
{
    size_t length = 0;
    while (length < LEAT_NAME_MAX && name[length] >= ' ' && name[length] <= '~') {
        length++;
    }
    return length > 0 && length < LEAT_NAME_MAX && all_zero(name + length, LEAT_NAME_MAX - length);
}

static enum leat_status
check_variants(const struct leat_policy *policy)
{
    for (uint32_t v = 0; v < policy->variant_count; v++) {
        const struct leat_policy_variant *variant = leat_policy_variant(policy, v);
        const uint64_t *latency_ns = leat_policy_latency_ns(policy, v);
        if (!is_name(variant->name)) {
            return WRONG("variant %u has no proper name", v);
        }
        for (uint32_t other = 0; other < v; other++) {
            if (memcmp(variant->name, leat_policy_variant(policy, other)->name, LEAT_NAME_MAX) == 0) {
                return WRONG("two variants are named '%s'", variant->name);
            }
        }
        if (variant->accuracy_ppm > ACCURACY_MAX_PPM || !all_zero(variant->reserved, sizeof(variant->reserved))) {
            return WRONG("variant '%s' has an accuracy of %u ppm", variant->name, variant->accuracy_ppm);
        }
        for (uint32_t items = 1; items <= policy->latency_items; items++) {
            if (latency_ns[items - 1] == 0 || latency_ns[items - 1] > LEAT_POLICY_LATENCY_MAX_NS) {
                return WRONG("variant '%s' takes %llu ns for %u items", variant->name,
                             (unsigned long long)latency_ns[items - 1], items);
            }
        }
    }
    return LEAT_OK;
}

/* The most items that an action of that row may name. */
static uint32_t
items_max(const struct leat_policy *policy, uint32_t row)
{
    return row <= policy->queue_max ? row : row == policy->queue_max + 1 ? LEAT_POLICY_ALL : LEAT_POLICY_ALL - 1;
}

static enum leat_status
check_actions(const struct leat_policy *policy, uint32_t r)
{
    const uint16_t *cells = leat_policy_actions(policy, r);
    const size_t columns = row_cells(policy), count = rung_cells(policy);
    const bool gives_up = policy->kind != LEAT_POLICY_LOAD, holds = policy->kind == LEAT_POLICY_POOL;

    if (!all_zero(cells, columns * sizeof(*cells)) ||
        !all_zero(cells + count, rung_bytes(policy) - count * sizeof(*cells))) {
        return WRONG("rung %u has something where nothing is to be", r);
    }
    for (uint32_t row = 1; row < leat_policy_row_count(policy); row++) {
        const uint32_t most = items_max(policy, row);
        for (uint32_t bin = 0; bin < columns; bin++) {
            const struct leat_policy_action action = leat_policy_unpack(cells[row * columns + bin]);
            const bool serves = action.variant < policy->variant_count ||
                                (action.variant == LEAT_POLICY_GIVE_UP && gives_up) ||
                                (action.variant == LEAT_POLICY_HOLD && holds);
            if (!serves || action.items == 0 || action.items > most) {
                return WRONG("rung %u gives %u items to variant %u in row %u, bin %u", r, action.items, action.variant, row,
                             bin);
            }
        }
    }
    return LEAT_OK;
}

enum leat_status
leat_policy_check(const void *bytes, size_t size, const struct leat_policy **ret_policy)
{
    const struct leat_policy *policy = bytes;

    LEAT_ASSERT((uintptr_t)bytes % sizeof(uint64_t) == 0);
    enum leat_status status = check_header(policy, size);
    if (status == LEAT_OK && !all_zero(policy->reserved, sizeof(policy->reserved))) {
        status = WRONG("it has something where nothing is to be");
    }
    if (status == LEAT_OK) {
        const size_t end = latencies_end(policy);
        status = all_zero((const uint8_t *)bytes + end, actions_at(policy) - end)
                     ? check_rungs(policy)
                     : WRONG("it has something between its parts");
    }
    if (status == LEAT_OK) {
        status = check_variants(policy);
    }
    for (uint32_t r = 0; status == LEAT_OK && r < policy->rung_count; r++) {
        status = check_actions(policy, r);
    }
    if (status == LEAT_OK) {
        *ret_policy = policy;
    }
    return status;
}

/* ---- Making one -------------------------------------------------------------------------------- */

enum leat_status
leat_policy_bytes(const struct leat_policy *shape, size_t *ret_bytes)
{
    const enum leat_status status = check_shape(shape, LEAT_ERR_INVALID);
    if (status == LEAT_OK) {
        *ret_bytes = block_bytes(shape);
    }
    return status;
}

struct leat_policy *
leat_policy_init(void *memory, const struct leat_policy *shape)
{
    struct leat_policy *policy = memory;
    size_t bytes;

    LEAT_ASSERT((uintptr_t)memory % sizeof(uint64_t) == 0);
    LEAT_MUST(leat_policy_bytes(shape, &bytes) == LEAT_OK);
    memset(memory, 0, bytes);
    *policy = *shape;
    memcpy(policy->magic, magic, sizeof(magic));
    memset(policy->reserved, 0, sizeof(policy->reserved));
    policy->version = LEAT_POLICY_VERSION;
    policy->checksum = 0;
    policy->bytes = bytes;
    for (uint32_t r = 0; r < policy->rung_count; r++) {
        const struct leat_policy_rung rung = {.rate_qps = r + 1,
                                              .accuracy_ppm = LEAT_POLICY_UNKNOWN,
                                              .violation_ppb = LEAT_POLICY_UNKNOWN,
                                              .gain_ppm = LEAT_POLICY_GAIN_UNKNOWN,
                                              .bound_ppm = LEAT_POLICY_GAIN_UNKNOWN};
        leat_policy_set_rung(policy, r, &rung);
    }
    return policy;
}

void
leat_policy_set_rung(struct leat_policy *policy, uint32_t rung, const struct leat_policy_rung *values)
{
    LEAT_ASSERT(rung < policy->rung_count);
    ((struct leat_policy_rung *)(void *)((uint8_t *)policy + sizeof(*policy)))[rung] = *values;
}

enum leat_status
leat_policy_set_variant(struct leat_policy *policy, uint32_t variant, const char *name, uint32_t accuracy_ppm,
                        const uint64_t *latency_ns)
{
    const size_t length = strlen(name);
    uint8_t *block = (uint8_t *)policy;

    LEAT_ASSERT(variant < policy->variant_count);
    if (length == 0 || length >= LEAT_NAME_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "the name of variant %u has %zu characters, but is to have 1 to %d", variant,
                         length, LEAT_NAME_MAX - 1);
    }
    struct leat_policy_variant *entry = (struct leat_policy_variant *)(void *)(block + variants_at(policy)) + variant;
    *entry = (struct leat_policy_variant){.accuracy_ppm = accuracy_ppm};
    memcpy(entry->name, name, length);
    const size_t latencies = policy->latency_items * sizeof(*latency_ns);
    memcpy(block + latencies_at(policy) + variant * latencies, latency_ns, latencies);
    return LEAT_OK;
}

void
leat_policy_set_action(struct leat_policy *policy, uint32_t rung, uint32_t row, uint32_t bin,
                       struct leat_policy_action action)
{
    LEAT_ASSERT(rung < policy->rung_count && row >= 1 && row < leat_policy_row_count(policy) && bin < row_cells(policy));
    LEAT_ASSERT(action.variant <= LEAT_POLICY_GIVE_UP && action.items <= LEAT_POLICY_ALL);
    uint16_t *cells = (uint16_t *)(void *)((uint8_t *)policy + actions_at(policy) + rung * rung_bytes(policy));
    cells[row * row_cells(policy) + bin] = leat_policy_pack(action);
}

void
leat_policy_set_actions(struct leat_policy *policy, uint32_t rung, const uint16_t *actions)
{
    LEAT_ASSERT(rung < policy->rung_count);
    memcpy((uint8_t *)policy + actions_at(policy) + rung * rung_bytes(policy), actions,
           rung_cells(policy) * sizeof(*actions));
}

enum leat_status
leat_policy_seal(struct leat_policy *policy)
{
    const struct leat_policy *checked;

    policy->checksum = checksum(policy, policy->bytes);
    return leat_policy_check(policy, policy->bytes, &checked);
}

/* ---- Looking up -------------------------------------------------------------------------------- */

/* The last rate that the rung covers with the workers that there are. */
static uint64_t
covered_qps(const struct leat_policy_lookup *lookup, uint32_t rung)
{
    return ((uint64_t)lookup->rungs[rung].rate_qps << lookup->unit_shift) * lookup->workers / lookup->made_for;
}

void
leat_policy_turn(struct leat_policy_lookup *lookup, uint32_t rate_qps)
{
    uint32_t rung = 0;

    while (rung + 1 < lookup->rung_count && covered_qps(lookup, rung) < rate_qps) {
        rung++;
    }
    const uint64_t to_qps = rung + 1 < lookup->rung_count ? covered_qps(lookup, rung) : UINT32_MAX;
    const uint64_t from_qps = rung > 0 ? covered_qps(lookup, rung - 1) + 1 : 0;
    lookup->rung = rung;
    lookup->actions = lookup->first + (size_t)rung * lookup->rung_actions;
    lookup->rate_from_qps = (uint32_t)from_qps;
    lookup->rate_span_qps = (uint32_t)((to_qps < UINT32_MAX ? to_qps : UINT32_MAX) - from_qps);
}

/*
 * floor(slack * bins / objective) as one product: with m = ceil(2^k * bins / objective), slack * m / 2^k is too large by
 * less than slack / 2^k. That steps over no integer as long as it is at most 1 / objective, hence where objective^2 <= 2^k.
 */
static void
divide_slack(struct leat_policy_lookup *lookup, uint32_t slack_bins)
{
    const uint32_t bits = 64u - (uint32_t)__builtin_clzll(lookup->objective_ns);
    lookup->slack_shift = bits > 32 ? 2 * bits - 64 : 0;
    __extension__ const unsigned __int128 dividend = (unsigned __int128)slack_bins << (64 + lookup->slack_shift);
    lookup->slack_multiplier = (uint64_t)((dividend + lookup->objective_ns - 1) / lookup->objective_ns);
}

void
leat_policy_lookup_staff(struct leat_policy_lookup *lookup, uint32_t worker_count)
{
    const bool levels = lookup->idle_levels > 0 && worker_count >= 2;

    LEAT_ASSERT(worker_count >= 1 && worker_count <= LEAT_POLICY_WORKERS_MAX);
    lookup->workers = worker_count;
    lookup->idle_least = levels ? 2 : UINT32_MAX;
    /* Rounded up: exact, as its error times any number of workers is far below 2^32. */
    lookup->idle_multiplier = levels ? (((uint64_t)lookup->idle_levels << 32) + worker_count - 2) / (worker_count - 1) : 0;
    leat_policy_turn(lookup, 0); /* the next look-up follows the rate */
}

void
leat_policy_lookup_init(struct leat_policy_lookup *lookup, const struct leat_policy *policy, uint32_t worker_count)
{
    LEAT_ASSERT(worker_count <= LEAT_POLICY_WORKERS_MAX);

    *lookup = (struct leat_policy_lookup){
        .objective_ns = policy->objective_ns,
        .columns = policy->slack_bins + 1,
        .full_row = policy->queue_max + 1,
        .unit_shift = policy->unit_shift,
        .held_max = policy->held_max,
        .idle_levels = policy->idle_levels,
        .rung_count = policy->rung_count,
        .rung_actions = (uint32_t)(rung_bytes(policy) / sizeof(uint16_t)),
        .made_for = policy->worker_count,
        .rungs = leat_policy_rung(policy, 0),
        .first = leat_policy_actions(policy, 0),
    };
    divide_slack(lookup, policy->slack_bins);
    leat_policy_lookup_staff(lookup, worker_count > 0 ? worker_count : policy->worker_count);
}
