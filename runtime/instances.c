/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/instances.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum leat_status
leat_instances_init(struct leat_instances *instances, uint32_t worker_count, uint32_t variant_count)
{
    const size_t count = (size_t)worker_count * variant_count;

    LEAT_ASSERT(worker_count >= 1 && variant_count >= 1);
    *instances = (struct leat_instances){
        .measured = calloc(variant_count, sizeof(instances->measured[0])),
        .runs = calloc(variant_count, sizeof(instances->runs[0])),
        .all = calloc(count, sizeof(instances->all[0])),
        .states = calloc(count, sizeof(instances->states[0])),
        .worker_count = worker_count,
        .variant_count = variant_count,
    };
    if (instances->measured == NULL || instances->runs == NULL || instances->all == NULL || instances->states == NULL) {
        leat_instances_fini(instances);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u variants on %u workers", variant_count, worker_count);
    }
    for (size_t i = 0; i < count; i++) {
        leat_instance_turn(&instances->all[i], NULL, LEAT_INSTANCE_ACTIVE);
        atomic_store_explicit(&instances->states[i], LEAT_INSTANCE_ACTIVE, memory_order_relaxed);
    }
    return LEAT_OK;
}

void
leat_instances_fini(struct leat_instances *instances)
{
    free(instances->measured);
    free(instances->runs);
    free(instances->all);
    free(instances->states);
    *instances = (struct leat_instances){0};
}

bool
leat_instances_evaluate(struct leat_instances *instances, uint32_t worker, const struct leat_instance_worker *shared,
                        const struct leat_instance_demand *demand)
{
    bool overloaded = false;
    const struct leat_instance_limits *limits =
        instances->worker_count > 1 ? &leat_instance_limits_default : &leat_instance_limits_alone;
    struct leat_instance *row = leat_instances_of(instances, worker);
    _Atomic uint8_t *states = &instances->states[(size_t)worker * instances->variant_count];

    for (uint32_t v = 0; v < instances->variant_count; v++) {
        const uint8_t before = row[v].state;
        const uint8_t state = (uint8_t)leat_instance_evaluate(&row[v], shared, limits, demand);
        if (state != before) {
            atomic_store_explicit(&states[v], state, memory_order_relaxed);
            instances->out_count -= before != LEAT_INSTANCE_ACTIVE;
            instances->out_count += state != LEAT_INSTANCE_ACTIVE;
            overloaded = overloaded || state == LEAT_INSTANCE_OVERLOADED;
        }
    }
    return overloaded;
}

uint64_t
leat_instances_expected_ns(const struct leat_instances *instances, uint32_t variant, uint32_t worker_class, uint32_t items,
                           const struct leat_profile *learned)
{
    const struct leat_profile *measured = &instances->measured[variant][worker_class];

    if (!instances->by_payload) {
        return leat_profile_mean(measured, items);
    }
    return learned->number - measured->number >= LEAT_INSTANCES_LEARNT ? leat_profile_mean(learned, items) : 0;
}

static bool
is_slower(const struct leat_profile *profile, const struct leat_profile *measured, uint32_t items)
{
    const uint64_t known_ns = leat_profile_mean(measured, items);
    return known_ns > 0 && leat_profile_mean(profile, items) > known_ns + known_ns / 10;
}

void
leat_instances_doubt(struct leat_instances *instances, uint32_t variant, uint32_t worker_class, uint32_t items_max,
                     struct leat_profile *profile)
{
    struct leat_instances_runs *runs = &instances->runs[variant][worker_class];
    const struct leat_profile *measured = &instances->measured[variant][worker_class];

    runs->quiet = profile->number == runs->number ? runs->quiet + 1 : 0;
    runs->number = profile->number;
    if (runs->quiet >= LEAT_INSTANCES_QUIET) {
        runs->quiet = 0;
        if (is_slower(profile, measured, 1) || is_slower(profile, measured, items_max)) {
            leat_profile_init(profile, profile->quantile_ppm, measured);
            runs->number = profile->number;
        }
    }
}

void
leat_instances_pass_on(const struct leat_instances *from, uint32_t from_variant, struct leat_instances *to,
                       uint32_t to_variant)
{
    LEAT_ASSERT(from->worker_count == to->worker_count);
    for (uint32_t w = 0; w < to->worker_count; w++) {
        const struct leat_instance *instance = &leat_instances_of(from, w)[from_variant];
        struct leat_instance *place = &leat_instances_of(to, w)[to_variant];
        LEAT_ASSERT(instance->running == 0);
        to->out_count -= place->state != LEAT_INSTANCE_ACTIVE;
        to->out_count += instance->state != LEAT_INSTANCE_ACTIVE;
        *place = *instance;
        atomic_store_explicit(&to->states[(size_t)w * to->variant_count + to_variant], instance->state,
                              memory_order_relaxed);
    }
}

enum leat_instance_state
leat_instances_state(const struct leat_instances *instances, uint32_t worker, uint32_t variant)
{
    LEAT_ASSERT(worker < instances->worker_count && variant < instances->variant_count);
    return (enum leat_instance_state)atomic_load_explicit(
        &instances->states[(size_t)worker * instances->variant_count + variant], memory_order_relaxed);
}

void
leat_instances_count(const struct leat_instances *instances, uint32_t variant, uint32_t ret_counts[LEAT_INSTANCE_STATES])
{
    LEAT_ASSERT(variant < instances->variant_count);
    memset(ret_counts, 0, LEAT_INSTANCE_STATES * sizeof(ret_counts[0]));
    for (uint32_t w = 0; w < instances->worker_count; w++) {
        ret_counts[leat_instances_state(instances, w, variant)]++;
    }
}
