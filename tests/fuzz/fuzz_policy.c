/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Target    leat_policy_check, and look-ups and selector mdp on what it accepts.
 * Input     The file, byte for byte; then once more under a checksum that is right.
 * Property  No crash or sanitizer report; a refusal says why; what is accepted is as sched/policy_table.h has it, is the
 *           block that its own parts make, and selections from it are among what was offered.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "sched/policy.h"
#include "sched/policy_table.h"

enum { QUERIES = 12, ROUNDS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t
crc32c(const uint8_t *bytes, size_t count)
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

/* Made anew from its parts, it has the same bytes: nothing is in it that no part has. */
static void
check_parts(const struct leat_policy *policy)
{
    size_t bytes;
    LEAT_MUST(leat_policy_bytes(policy, &bytes) == LEAT_OK && bytes == policy->bytes);
    void *memory = malloc(bytes);
    LEAT_ASSERT(memory != NULL);
    struct leat_policy *again = leat_policy_init(memory, policy);

    for (uint32_t r = 0; r < policy->rung_count; r++) {
        leat_policy_set_rung(again, r, leat_policy_rung(policy, r));
        leat_policy_set_actions(again, r, leat_policy_actions(policy, r));
        LEAT_ASSERT(r == 0 || leat_policy_rung(policy, r)->rate_qps > leat_policy_rung(policy, r - 1)->rate_qps);
    }
    for (uint32_t v = 0; v < policy->variant_count; v++) {
        const struct leat_policy_variant *variant = leat_policy_variant(policy, v);
        LEAT_ASSERT(strnlen(variant->name, LEAT_NAME_MAX) < LEAT_NAME_MAX && variant->accuracy_ppm <= 1000000);
        LEAT_MUST(leat_policy_set_variant(again, v, variant->name, variant->accuracy_ppm,
                                          leat_policy_latency_ns(policy, v)) == LEAT_OK);
    }
    LEAT_MUST(leat_policy_seal(again) == LEAT_OK);
    LEAT_ASSERT(memcmp(again, policy, bytes) == 0);
    free(memory);
}

static uint64_t
draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 24;
}

static void
check_lookups(const struct leat_policy *policy, uint64_t *random)
{
    struct leat_policy_lookup lookup;

    leat_policy_lookup_init(&lookup, policy, draw(random) % 2 * (draw(random) % LEAT_POLICY_WORKERS_MAX));
    for (int i = 0; i < ROUNDS; i++) {
        leat_policy_follow(&lookup, (uint32_t)draw(random) >> draw(random) % 32);
        LEAT_ASSERT(lookup.rung < policy->rung_count);
        const struct leat_policy_action action =
            leat_policy_action(&lookup, 1 + (uint32_t)draw(random) % (policy->queue_max + 3), (uint32_t)draw(random) % 1100,
                               draw(random) % (2 * policy->objective_ns));
        LEAT_ASSERT(action.items >= 1 && (action.variant < policy->variant_count || action.variant == LEAT_POLICY_GIVE_UP ||
                                          action.variant == LEAT_POLICY_HOLD));
    }
}

/* As the policy says, where it says anything. */
static uint64_t
predict(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct leat_policy *policy = profiles;
    (void)application;
    (void)worker_class;
    return variant < policy->variant_count && items <= policy->latency_items
               ? leat_policy_latency_ns(policy, variant)[items - 1]
               : items;
}

static void
check_selections(const struct leat_policy *policy, uint64_t *random)
{
    static _Alignas(64) uint8_t state[1024];
    struct leat_sched_variant variants[LEAT_SCHED_VARIANTS_MAX];
    struct leat_sched_query queries[QUERIES];
    const struct leat_selector_options options = {.policy = policy};

    LEAT_ASSERT(leat_selector_mdp.state_bytes <= sizeof(state));
    if (leat_selector_mdp.init(state, &options) != LEAT_OK) {
        LEAT_ASSERT(policy->kind == LEAT_POLICY_LOAD);
        return;
    }
    for (int i = 0; i < ROUNDS; i++) {
        const struct leat_sched_worker worker = {.free_at_ns = draw(random) % 2000};
        const uint32_t pending = 1 + (uint32_t)draw(random) % QUERIES;
        const struct leat_select_input input = {.now_ns = 1000,
                                                .pending = queries,
                                                .pending_count = pending,
                                                .waiting_count = pending + (uint32_t)draw(random) % 9,
                                                .variants = variants,
                                                .variant_count = 1 + (uint32_t)draw(random) % LEAT_SCHED_VARIANTS_MAX,
                                                .worker = &worker,
                                                .worker_count = policy->worker_count,
                                                .idle_count = (uint32_t)draw(random) % (policy->worker_count + 1),
                                                .rate_qps = (uint32_t)draw(random) >> draw(random) % 32,
                                                .rising_qps = (uint32_t)draw(random) >> draw(random) % 32,
                                                .predict = predict,
                                                .profiles = policy};
        for (uint32_t v = 0; v < input.variant_count; v++) {
            variants[v] = (struct leat_sched_variant){.accuracy_ppm = (uint32_t)draw(random) % 1000001,
                                                      .items_max = 1 + (uint32_t)draw(random) % 20,
                                                      .ready = draw(random) % 4 != 0};
        }
        for (uint32_t q = 0; q < pending; q++) {
            queries[q] = (struct leat_sched_query){.deadline_ns = draw(random) % (2 * policy->objective_ns),
                                                   .items = 1 + (uint32_t)draw(random) % 3,
                                                   .accuracy_floor_ppm = draw(random) % 4 != 0 ? 0 : 500000};
        }
        const struct leat_selection got = leat_selector_mdp.select(state, &input);
        LEAT_ASSERT(got.queries == 0 ||
                    (!got.hold && got.skip + got.queries <= pending && got.variant < input.variant_count));
        uint32_t items = 0;
        for (uint32_t q = got.skip; got.queries > 0 && q < got.skip + got.queries; q++) {
            items += queries[q].items;
            LEAT_ASSERT(queries[q].accuracy_floor_ppm <= variants[got.variant].accuracy_ppm);
        }
        LEAT_ASSERT(got.queries == 0 || (variants[got.variant].ready && items <= variants[got.variant].items_max));
    }
}

static void
check(const void *bytes, size_t size)
{
    const struct leat_policy *policy;
    uint64_t random = size;

    if (leat_policy_check(bytes, size, &policy) != LEAT_OK) {
        LEAT_ASSERT(strncmp(leat_error_text(), "policy: ", 8) == 0);
        return;
    }
    check_parts(policy);
    check_lookups(policy, &random);
    check_selections(policy, &random);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t at = offsetof(struct leat_policy, checksum);
    uint8_t *bytes = calloc(1, size > 0 ? size : 1); /* of its own, so that a sanitizer sees each byte beyond */

    LEAT_ASSERT(bytes != NULL);
    if (size > 0) {
        memcpy(bytes, data, size);
    }
    check(bytes, size);
    if (size >= at + sizeof(uint32_t)) {
        memset(bytes + at, 0, sizeof(uint32_t));
        const uint32_t crc = crc32c(bytes, size);
        memcpy(bytes + at, &crc, sizeof(crc));
        check(bytes, size);
    }
    free(bytes);
    return 0;
}
