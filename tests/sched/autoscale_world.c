/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sched/autoscale_world.h"

#include <stdio.h>
#include <string.h>

#include "tests/leat_test.h"

enum { CORES, ACCELERATORS, GPU_SHARES, KINDS };

static uint32_t
below(uint64_t *random_state, uint32_t n)
{
    return (uint32_t)(leat_test_random(random_state) % n);
}

static struct leat_autoscale_variant
draw_variant(uint32_t work, bool small, uint64_t *random_state)
{
    static const uint32_t batch_ns[KINDS] = {1000000, 5000000, 4000000};
    static const uint32_t item_ns[KINDS] = {800000, 60000, 4000};
    static const uint32_t gb_price[KINDS] = {31, 190, 498};
    const uint32_t kind = below(random_state, KINDS), size = 1 + below(random_state, 4);
    struct leat_autoscale_variant variant = {
        .batch_ns = batch_ns[kind] + below(random_state, batch_ns[kind]),
        .item_ns = (uint64_t)(item_ns[kind] + below(random_state, item_ns[kind])) * work / (kind == CORES ? size : 1),
        .load_ns = 590000000 + leat_test_random(random_state) % 10410000000u,
        .price = (uint64_t)gb_price[kind] * (50 + 10 * size + below(random_state, 100)),
        .batch_max = kind == CORES ? 1 : 1u << below(random_state, 5),
    };

    if (small) {
        variant.item_ns = 20000000 + leat_test_random(random_state) % 200000000;
    }
    variant.uses[kind] = kind == CORES ? size : kind == GPU_SHARES ? 10 + 10 * below(random_state, 5) : 1;
    return variant;
}

void
autoscale_world_draw(struct autoscale_world *world, uint32_t applications, uint32_t flags, uint64_t *random_state)
{
    static const uint32_t shed_prices[] = {2, 20, 20000}; /* carrying a thousandth a second costs 1 or so */
    const bool small = flags & AUTOSCALE_SMALL;
    uint64_t used[KINDS] = {0};

    memset(world, 0, sizeof(*world));
    world->count = applications;
    for (uint32_t a = 0; a < applications; a++) {
        struct leat_autoscale_application *application = &world->applications[a];
        const uint32_t work = 10 + below(random_state, 400);
        application->variants = world->variants[a];
        application->variant_count = small ? 1 + below(random_state, 3) : 1 + below(random_state, 12);
        application->objective_ns = UINT64_C(1000000) * (50 + below(random_state, 1000));
        application->load_qps = small ? 1 + below(random_state, 30) : (below(random_state, 2) ? 1 : 10) * (1 + below(random_state, 60));
        application->shed_price = shed_prices[below(random_state, 3)];
        for (uint32_t v = 0; v < application->variant_count; v++) {
            world->variants[a][v] = draw_variant(work, small, random_state);
            application->ready[v] = below(random_state, 3) == 0 ? below(random_state, 3) : 0;
            application->starting[v] = below(random_state, 6) == 0;
            for (uint32_t k = 0; k < KINDS; k++) {
                used[k] += (application->ready[v] + application->starting[v]) * world->variants[a][v].uses[k];
            }
        }
    }
    world->box.resource_count = KINDS;
    for (uint32_t k = 0; k < KINDS; k++) {
        static const uint32_t units[KINDS] = {12, 3, 60};
        const uint32_t plenty = flags & AUTOSCALE_SCARCE ? 1 : 40;
        const uint64_t drawn = (uint64_t)plenty * (units[k] / 2 + below(random_state, units[k])) * (small ? 1 : applications);
        world->box.totals[k] = (uint32_t)(drawn > used[k] ? drawn : used[k]);
    }
}

bool
autoscale_world_read(struct autoscale_world *world, const char *folder)
{
    char path[512];
    unsigned depth, cores, last = 0;
    double saturation_qps, load_s, memory_gb;

    (void)snprintf(path, sizeof(path), "%s/cpu_resnet.csv", folder);
    FILE *file = fopen(path, "r");
    memset(world, 0, sizeof(*world));
    world->box = (struct leat_autoscale_box){.resource_count = 1};
    if (file == NULL) {
        return false;
    }
    (void)fscanf(file, "%*[^\n]"); /* the heading */
    while (fscanf(file, "%u,%u,%lf,%lf,%lf", &depth, &cores, &saturation_qps, &load_s, &memory_gb) == 5) {
        world->count += depth != last;
        last = depth;
        struct leat_autoscale_application *application = &world->applications[world->count - 1];
        application->variants = world->variants[world->count - 1];
        application->objective_ns = 500000000;
        application->shed_price = 1000000;
        world->variants[world->count - 1][application->variant_count++] =
            (struct leat_autoscale_variant){.batch_ns = (uint64_t)(1e9 / saturation_qps),
                                            .load_ns = (uint64_t)(load_s * 1e9),
                                            .price = (uint64_t)(1000 * cores + 250 * memory_gb),
                                            .batch_max = 1,
                                            .uses = {cores}};
    }
    (void)fclose(file);
    return world->count > 0;
}
