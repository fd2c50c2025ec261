/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     jellyfish, model_switching, greedy and infaas do what sched/policy.h says, and routers are shown the workers that
 *          suit a selector best.
 * Method   Random small worlds against statements of the rules in floating point, and extreme ones, in which a selection
 *          must still be one that can be.
 */
#include "sched/policy.h"
#include "tests/leat_test.h"

#include <string.h>

#include "base/align.h"
#include "sched/batch.h"
#include "sched/candidates.h"
#include "sched/policy_table.h"
#include "sched/select.h"

enum { QUERIES = 12, VARIANTS = 4, CLASSES = 2, ITEMS = 24, ROUNDS = LEAT_TEST_ROUNDS(40000), SITUATIONS = 4 };

static uint64_t random_state;
static uint32_t predictions; /* asked for */

static uint64_t
below(uint64_t bound)
{
    return leat_test_random(&random_state) % bound;
}

struct world {
    uint64_t batch_ns[VARIANTS][CLASSES][ITEMS + 1];
    struct leat_sched_variant variants[VARIANTS];
    struct leat_sched_query queries[QUERIES];
    struct leat_sched_worker worker;
    struct leat_select_input input; /* of all this */
};

static uint64_t
predict_world(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct world *world = profiles;
    EXPECT(application == 3 && variant < VARIANTS && worker_class < CLASSES && items >= 1 && items <= ITEMS);
    predictions++;
    return world->batch_ns[variant][worker_class][items];
}

/* An item costs what the variant says, on class 1 a fifth more. */
static uint64_t
cost_world(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct world *world = profiles;
    EXPECT(application == 3 && variant < VARIANTS && worker_class < CLASSES);
    return (uint64_t)items * world->variants[variant].cost_nano * (worker_class == 1 ? 6 : 5) / 5;
}

/* Rates are such that floating point cannot be in doubt about what keeps up: times are odd numbers of some 100 ns. */
static void
draw_situation(struct world *world)
{
    const uint16_t class = (uint16_t)below(CLASSES);
    world->worker = (struct leat_sched_worker){.free_at_ns = below(2000), .depth = 1, .worker_class = class};
    for (uint32_t q = 0; q < QUERIES; q++) {
        world->queries[q] = (struct leat_sched_query){
            .arrival_ns = q,
            .deadline_ns = below(4) == 0 ? LEAT_NO_DEADLINE : 1000 + below(6000),
            .items = 1 + (uint32_t)(below(3) == 0 ? below(6) : 0),
            .accuracy_floor_ppm = below(8) == 0 ? 800000 : 0,
        };
    }
    world->input = (struct leat_select_input){
        .now_ns = 1000,
        .pending = world->queries,
        .pending_count = 1 + (uint32_t)below(QUERIES),
        .waiting_count = QUERIES,
        .variants = world->variants,
        .variant_count = VARIANTS,
        .worker = &world->worker,
        .worker_count = 4,
        .idle_count = 1,
        .rate_qps = (uint32_t)below(40) * 1000000,
        .application = 3,
        .predict = predict_world,
        .cost = cost_world,
        .profiles = world,
    };
}

static void
draw_world(struct world *world)
{
    const uint64_t base_ns = 100 + below(400);
    for (uint32_t v = 0; v < VARIANTS; v++) {
        world->variants[v] = (struct leat_sched_variant){
            .accuracy_ppm = 700000 + (uint32_t)below(4) * 50000,
            .items_max = 1 + (uint32_t)below(ITEMS),
            .ready = below(6) != 0,
        };
        for (uint32_t c = 0; c < CLASSES; c++) {
            for (uint32_t b = 1; b <= ITEMS; b++) {
                const uint64_t regular_ns = base_ns * (v + 1) + b * (40 + 30 * v + 20 * c);
                world->batch_ns[v][c][b] = below(8) == 0 ? below(3000) : regular_ns; /* with dips and spikes */
            }
        }
    }
    draw_situation(world);
}

/* Of the queries from the first on, so many as the variant can hold in so many items. */
static struct leat_selection
take(const struct world *world, uint32_t v, uint32_t items_max, uint32_t *ret_items)
{
    struct leat_selection selection = {.variant = v};
    uint32_t items = 0;

    while (selection.queries < world->input.pending_count) {
        const struct leat_sched_query *query = &world->queries[selection.queries];
        const bool fits = items + query->items <= items_max || selection.queries == 0;
        if (!fits || !leat_select_suits(&world->input, &world->variants[v], query)) {
            break;
        }
        items += query->items;
        selection.queries++;
    }
    *ret_items = items;
    return selection;
}

static bool
is_candidate(const struct world *world, uint32_t v)
{
    return v < world->input.variant_count && world->variants[v].ready &&
           leat_select_suits(&world->input, &world->variants[v], &world->queries[0]);
}

/* The candidate that is fastest for one item; VARIANTS: none. */
static uint32_t
fastest(const struct world *world)
{
    uint32_t best = VARIANTS;
    uint64_t least_ns = UINT64_MAX;
    for (uint32_t v = 0; v < VARIANTS; v++) {
        const uint64_t single_ns = world->batch_ns[v][world->worker.worker_class][1];
        if (is_candidate(world, v) && single_ns < least_ns) {
            least_ns = single_ns;
            best = v;
        }
    }
    return best;
}

/* ---- jellyfish --------------------------------------------------------------------------------- */

static uint32_t
largest_feasible(const struct world *world, uint32_t v, uint64_t objective_ns, uint64_t rung_qps)
{
    uint32_t largest = 0;
    for (uint32_t b = 1; b <= world->variants[v].items_max; b++) {
        const double batch_s = (double)world->batch_ns[v][world->worker.worker_class][b] / 1e9;
        const double due_qps = 1.05 * (double)rung_qps / world->input.worker_count;
        const bool quick = objective_ns == 0 || batch_s <= (double)objective_ns / 1e9 / 2 + 1e-12;
        if (quick && (batch_s == 0 || b / batch_s >= due_qps * (1 - 1e-12))) {
            largest = b;
        }
    }
    return largest;
}

static struct leat_selection
expected_jellyfish(const struct world *world, uint64_t objective_ns, uint32_t step_qps, bool *ret_feasible)
{
    const uint64_t rungs = (world->input.rate_qps + (uint64_t)step_qps - 1) / step_qps;
    const uint64_t rung_qps = (rungs > 0 ? rungs : 1) * step_qps;
    uint32_t best = VARIANTS, items;

    for (uint32_t v = 0; v < VARIANTS; v++) {
        if (is_candidate(world, v) && largest_feasible(world, v, objective_ns, rung_qps) >= world->input.pending[0].items &&
            (best == VARIANTS || world->variants[v].accuracy_ppm > world->variants[best].accuracy_ppm)) {
            best = v;
        }
    }
    *ret_feasible = best < VARIANTS;
    if (best < VARIANTS) {
        return take(world, best, largest_feasible(world, best, objective_ns, rung_qps), &items);
    }
    best = fastest(world);
    return best < VARIANTS ? take(world, best, world->variants[best].items_max, &items) : (struct leat_selection){0};
}

static void
test_jellyfish(void)
{
    uint32_t feasible = 0, hopeless = 0, nothing = 0, batches = 0;

    for (int round = 0; round < ROUNDS / SITUATIONS; round++) {
        struct world world;
        void *state = calloc(1, leat_selector_jellyfish.state_bytes);
        EXPECT(state != NULL);
        draw_world(&world);
        const struct leat_selector_options options = {
            .objective_ns = below(4) == 0 ? 0 : 500 + below(3000),
            .worker_count = world.input.worker_count,
            .rate_step_qps = below(8) == 0 ? 0 : 1 + (uint32_t)below(3000000),
        };
        EXPECT(leat_selector_jellyfish.init(state, &options) == LEAT_OK);
        for (int s = 0; s < SITUATIONS; s++) { /* what it kept of one must not be taken for another */
            if (s > 0) {
                const uint32_t rate_qps = world.input.rate_qps;
                draw_situation(&world);
                world.input.rate_qps = below(2) == 0 ? rate_qps : world.input.rate_qps;
                world.input.worker_count = below(2) == 0 ? 4 : 1 + (uint32_t)below(8);
                world.input.variant_count = below(4) == 0 ? (uint32_t)below(VARIANTS + 1) : VARIANTS;
            }
            bool is_feasible;
            const struct leat_selection got = leat_selector_jellyfish.select(state, &world.input);
            const struct leat_selection due = expected_jellyfish(
                &world, options.objective_ns, options.rate_step_qps > 0 ? options.rate_step_qps : 200, &is_feasible);
            EXPECT(got.queries == due.queries && got.skip == 0 && (due.queries == 0 || got.variant == due.variant));
            nothing += due.queries == 0;
            feasible += is_feasible;
            hopeless += !is_feasible && due.queries > 0;
            batches += is_feasible && due.queries > 1;
        }
        free(state);
    }
    EXPECT(feasible > ROUNDS / 10 && hopeless > ROUNDS / 10 && nothing > ROUNDS / 100 && batches > ROUNDS / 10);
}

/* It asks for predictions when the rung changes, and after a while, since they are learned. */
static void
test_jellyfish_keeps_its_answer(void)
{
    struct world world;
    unsigned char *state = calloc(1, leat_selector_jellyfish.state_bytes);
    const struct leat_selector_options options = {.objective_ns = 1000000, .worker_count = 4};

    EXPECT(state != NULL && leat_selector_jellyfish.init(state, &options) == LEAT_OK);
    draw_world(&world);
    for (uint32_t v = 0; v < VARIANTS; v++) {
        world.variants[v].ready = true;
    }
    world.worker.worker_class = 0;
    const uint32_t rates_qps[] = {0, 200, 1, 201, 400, 399, 200};
    const bool anew[] = {true, false, false, true, false, false, true};
    for (size_t i = 0; i < LEAT_COUNT_OF(rates_qps); i++) {
        world.input.rate_qps = rates_qps[i];
        predictions = 0;
        EXPECT(leat_selector_jellyfish.select(state, &world.input).queries > 0);
        EXPECT((predictions > 0) == anew[i]);
    }
    uint32_t asked = 0;
    for (int i = 0; i < 10000; i++) {
        predictions = 0;
        (void)leat_selector_jellyfish.select(state, &world.input);
        asked += predictions > 0;
    }
    EXPECT(asked == 2);
    free(state);
}

/* ---- model_switching --------------------------------------------------------------------------- */

enum { RUNGS = 5 };

static const char *const names[VARIANTS] = {"a", "b", "c", "d"};

/* Of variants that may be others than the application's, one for each rate; the caller frees it. */
static struct leat_policy *
draw_policy(uint32_t rates_qps[RUNGS], struct leat_policy_action actions[RUNGS], const char *policy_names[3])
{
    static const char *const all[] = {"a", "b", "c", "d", "e"};
    const uint64_t latency_ns = 1000;
    const struct leat_policy shape = {.objective_ns = 1000000,
                                      .kind = LEAT_POLICY_LOAD,
                                      .worker_count = 4,
                                      .rung_count = RUNGS,
                                      .variant_count = 3,
                                      .latency_items = 1};
    size_t bytes;
    EXPECT(leat_policy_bytes(&shape, &bytes) == LEAT_OK);
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    EXPECT(memory != NULL);
    struct leat_policy *policy = leat_policy_init(memory, &shape);
    const uint32_t first = (uint32_t)below(5);
    for (uint32_t p = 0; p < 3; p++) {
        policy_names[p] = all[(first + p) % 5];
        EXPECT(leat_policy_set_variant(policy, p, policy_names[p], 500000, &latency_ns) == LEAT_OK);
    }
    uint32_t rate_qps = 0;
    for (uint32_t r = 0; r < RUNGS; r++) {
        rate_qps += 1 + (uint32_t)below(9000000);
        rates_qps[r] = rate_qps;
        actions[r] = (struct leat_policy_action){.variant = (uint32_t)below(3), .items = 1 + (uint32_t)below(ITEMS)};
        const struct leat_policy_rung rung = {.rate_qps = rate_qps,
                                              .accuracy_ppm = LEAT_POLICY_UNKNOWN,
                                              .violation_ppb = LEAT_POLICY_UNKNOWN,
                                              .bound_ppm = LEAT_POLICY_GAIN_UNKNOWN,
                                              .gain_ppm = LEAT_POLICY_GAIN_UNKNOWN};
        leat_policy_set_rung(policy, r, &rung);
        leat_policy_set_action(policy, r, 1, 0, actions[r]);
    }
    if (leat_policy_seal(policy) != LEAT_OK) {
        (void)printf("%s\n", leat_error_text());
        EXPECT(false);
    }
    return policy;
}

static void
test_model_switching(void)
{
    uint32_t own = 0, others = 0, nothing = 0;

    for (int round = 0; round < ROUNDS / SITUATIONS; round++) {
        struct world world;
        uint32_t rates_qps[RUNGS];
        struct leat_policy_action actions[RUNGS];
        const char *policy_names[3];
        struct leat_policy *policy = draw_policy(rates_qps, actions, policy_names);
        const struct leat_selector_options options = {
            .worker_count = 4, .policy = policy, .variant_names = names, .variant_count = VARIANTS};
        void *state = calloc(1, leat_selector_model_switching.state_bytes);
        EXPECT(state != NULL && leat_selector_model_switching.init(state, &options) == LEAT_OK);
        draw_world(&world);
        for (int s = 0; s < SITUATIONS; s++) {
            draw_situation(&world);
            uint32_t rung = 0, chosen = VARIANTS, items;
            while (rung + 1 < RUNGS && rates_qps[rung] < world.input.rate_qps) {
                rung++;
            }
            for (uint32_t v = 0; v < VARIANTS; v++) {
                chosen = strcmp(names[v], policy_names[actions[rung].variant]) == 0 && is_candidate(&world, v) ? v : chosen;
            }
            own += chosen < VARIANTS;
            for (uint32_t v = 0, none = chosen; none == VARIANTS && v < VARIANTS; v++) {
                if (is_candidate(&world, v) &&
                    (chosen == VARIANTS || world.variants[v].accuracy_ppm < world.variants[chosen].accuracy_ppm)) {
                    others += chosen == VARIANTS;
                    chosen = v;
                }
            }
            const struct leat_selection got = leat_selector_model_switching.select(state, &world.input);
            nothing += chosen == VARIANTS;
            if (chosen == VARIANTS) {
                EXPECT(got.queries == 0 && !got.hold);
                continue;
            }
            const uint32_t most = world.variants[chosen].items_max;
            const uint32_t items_max = actions[rung].items < most ? actions[rung].items : most;
            EXPECT(got.variant == chosen && got.skip == 0);
            EXPECT(got.queries == take(&world, chosen, items_max, &items).queries);
        }
        free(state);
        free(policy);
    }
    EXPECT(own > ROUNDS / 10 && others > ROUNDS / 10 && nothing > ROUNDS / 100);
}

static void
test_model_switching_refuses(void)
{
    static const char *const strangers[] = {"x", "y"};
    uint32_t rates_qps[RUNGS];
    struct leat_policy_action actions[RUNGS];
    const char *policy_names[3];
    struct leat_policy *policy = draw_policy(rates_qps, actions, policy_names);
    void *state = calloc(1, leat_selector_model_switching.state_bytes);
    struct leat_selector_options options = {.worker_count = 4};

    EXPECT(state != NULL);
    EXPECT(leat_selector_model_switching.init(state, &options) == LEAT_ERR_INVALID);
    options.policy = policy;
    EXPECT(leat_selector_model_switching.init(state, &options) == LEAT_OK); /* its variants are the application's */
    options.variant_names = strangers;
    options.variant_count = 2;
    EXPECT(leat_selector_model_switching.init(state, &options) == LEAT_ERR_INVALID);
    options.variant_names = policy_names;
    options.variant_count = 1;
    EXPECT(leat_selector_model_switching.init(state, &options) == LEAT_OK);
    policy->kind = LEAT_POLICY_QUEUE;
    EXPECT(leat_selector_model_switching.init(state, &options) == LEAT_ERR_INVALID);
    free(state);
    free(policy);
}

/* ---- greedy ------------------------------------------------------------------------------------ */

static void
test_greedy(void)
{
    uint32_t in_time = 0, late = 0, nothing = 0;

    for (int round = 0; round < ROUNDS; round++) {
        struct world world;
        draw_world(&world);
        world.input.variant_count = below(8) == 0 ? (uint32_t)below(VARIANTS) : VARIANTS;
        const uint64_t start_ns = world.worker.free_at_ns > 1000 ? world.worker.free_at_ns : 1000;
        uint32_t best = VARIANTS, items;
        for (uint32_t v = 0; v < VARIANTS; v++) {
            if (!is_candidate(&world, v)) {
                continue;
            }
            (void)take(&world, v, world.variants[v].items_max, &items);
            if (start_ns + world.batch_ns[v][world.worker.worker_class][items] <= world.queries[0].deadline_ns &&
                (best == VARIANTS || world.variants[v].accuracy_ppm > world.variants[best].accuracy_ppm)) {
                best = v;
            }
        }
        in_time += best < VARIANTS;
        late += best == VARIANTS && fastest(&world) < VARIANTS;
        best = best < VARIANTS ? best : fastest(&world);
        nothing += best == VARIANTS;
        const struct leat_selection got = leat_selector_greedy.select(NULL, &world.input);
        if (best == VARIANTS) {
            EXPECT(got.queries == 0);
        } else {
            EXPECT(got.queries == take(&world, best, world.variants[best].items_max, &items).queries);
            EXPECT(got.variant == best && got.skip == 0);
        }
    }
    EXPECT(in_time > ROUNDS / 10 && late > ROUNDS / 10 && nothing > ROUNDS / 100);
}

/* ---- What is late ------------------------------------------------------------------------------- */

static void
test_late(void)
{
    uint32_t others = 0, nothing = 0;

    for (int round = 0; round < ROUNDS; round++) {
        struct world world;
        draw_world(&world);
        world.input.variant_count = below(8) == 0 ? (uint32_t)below(VARIANTS) : VARIANTS;
        const uint32_t class = world.worker.worker_class, items = world.queries[0].items;
        const struct leat_selection got = leat_batch_of_late(&world.input);
        if (got.queries == 0) {
            for (uint32_t v = 0; v < VARIANTS; v++) {
                EXPECT(!is_candidate(&world, v));
            }
            nothing++;
            continue;
        }
        EXPECT(got.queries == 1 && got.skip == 0 && !got.hold && is_candidate(&world, got.variant));
        for (uint32_t v = 0; v < VARIANTS; v++) {
            EXPECT(!is_candidate(&world, v) || world.batch_ns[v][class][items] >= world.batch_ns[got.variant][class][items]);
        }
        others += got.variant > 0;
    }
    EXPECT(others > ROUNDS / 10 && nothing > ROUNDS / 100);
}

/* The longest part of a selection of which no shorter one takes more than there is time for. */
static void
test_within(void)
{
    uint32_t cut = 0, whole = 0;

    for (int round = 0; round < ROUNDS; round++) {
        struct world world;
        draw_world(&world);
        const uint32_t skip = (uint32_t)below(world.input.pending_count), v = (uint32_t)below(VARIANTS);
        const uint64_t batch_ns = below(2000);
        uint32_t items = 0, most = 0;
        while (skip + most < world.input.pending_count && items + world.queries[skip + most].items <= ITEMS) {
            items += world.queries[skip + most++].items;
        }
        if (most == 0) {
            continue;
        }
        const uint32_t queries = 1 + (uint32_t)below(most);
        const struct leat_selection selection = {.variant = v, .skip = skip, .queries = queries};
        const uint32_t got = leat_batch_within(&world.input, selection, batch_ns);
        items = world.queries[skip].items;
        EXPECT(got >= 1 && got <= queries);
        for (uint32_t q = 1; q <= got && q < queries; q++) {
            items += world.queries[skip + q].items;
            EXPECT((world.batch_ns[v][world.worker.worker_class][items] <= batch_ns) == (q < got));
        }
        cut += got < queries;
        whole += got == queries && queries > 1;
    }
    EXPECT(cut > ROUNDS / 20 && whole > ROUNDS / 20);
}

/* ---- infaas ------------------------------------------------------------------------------------ */

static void
draw_instances(struct world *world, struct leat_instance *instances)
{
    for (uint32_t v = 0; v < VARIANTS; v++) {
        world->variants[v].cost_nano = 10 * (uint32_t)below(3);
        instances[v] = (struct leat_instance){.state = (uint8_t)(LEAT_INSTANCE_ACTIVE + below(5) / 3 * (1 + below(2)))};
    }
    for (uint32_t q = 0; q < QUERIES; q++) {
        world->queries[q].cost_cap_nano = below(6) == 0 ? 5 + (uint32_t)below(40) : 0;
    }
}

/* When the variant ends so many of the queries. */
static uint64_t
end_of(const struct world *world, uint32_t v, uint32_t queries)
{
    uint32_t items = 0;
    for (uint32_t q = 0; q < queries; q++) {
        items += world->queries[q].items;
    }
    const uint64_t start_ns = world->worker.free_at_ns > 1000 ? world->worker.free_at_ns : 1000;
    return start_ns + world->batch_ns[v][world->worker.worker_class][items];
}

/* Would the variant have all of them in time? */
static bool
has_in_time(const struct world *world, uint32_t v, uint32_t queries)
{
    for (uint32_t q = 0; q < queries; q++) {
        if (end_of(world, v, queries) > world->queries[q].deadline_ns) {
            return false;
        }
    }
    return true;
}

/* Active itself, and faster than whatever is overloaded. */
static bool
is_active(const struct world *world, uint32_t v)
{
    const struct leat_instance *instances = world->input.instances;

    if (instances == NULL) {
        return true;
    }
    for (uint32_t other = 0; other < world->input.variant_count; other++) {
        if (world->variants[other].ready && instances[other].state == LEAT_INSTANCE_OVERLOADED &&
            end_of(world, other, 1) <= end_of(world, v, 1)) {
            return false;
        }
    }
    return instances[v].state == LEAT_INSTANCE_ACTIVE;
}

/* The first of the three steps that has candidates: 0 active and in time, 1 in time, 2 any; of it the one to take. */
static uint32_t
cheapest(const struct world *world, uint32_t *ret_step)
{
    for (uint32_t step = 0; step < 3; step++) {
        uint32_t best = VARIANTS;
        for (uint32_t v = 0; v < VARIANTS; v++) {
            const bool active = is_active(world, v);
            if (!is_candidate(world, v) || (step < 2 && !has_in_time(world, v, 1)) || (step == 0 && !active)) {
                continue;
            }
            const int64_t dearer = step > 0 || best == VARIANTS
                                       ? 0
                                       : (int64_t)world->variants[v].cost_nano - world->variants[best].cost_nano;
            if (best == VARIANTS || dearer < 0 || (dearer == 0 && end_of(world, v, 1) < end_of(world, best, 1))) {
                best = v;
            }
        }
        if (best < VARIANTS) {
            *ret_step = step;
            return best;
        }
    }
    return VARIANTS;
}

static void
test_infaas(void)
{
    uint32_t steps[3] = {0}, nothing = 0, larger = 0, avoided = 0;

    EXPECT(leat_selector_infaas.follows_instances && leat_selector_infaas.state_bytes == 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct world world;
        struct leat_instance instances[VARIANTS];
        uint32_t step = 0, items;
        draw_world(&world);
        draw_instances(&world, instances);
        const uint32_t blind = cheapest(&world, &step);
        world.input.instances = below(8) > 0 ? instances : NULL;
        world.input.variant_count = below(8) == 0 ? (uint32_t)below(VARIANTS) : VARIANTS;
        const uint32_t best = cheapest(&world, &step);
        const struct leat_selection got = leat_selector_infaas.select(NULL, &world.input);
        EXPECT(got.skip == 0 && !got.hold);
        if (best == VARIANTS) {
            nothing++;
            EXPECT(got.queries == 0);
            continue;
        }
        const struct leat_selection all = take(&world, best, world.variants[best].items_max, &items);
        uint32_t queries = 1;
        while (step < 2 && queries < all.queries && has_in_time(&world, best, queries + 1)) {
            queries++;
        }
        EXPECT(got.variant == best && got.queries == (step < 2 ? queries : all.queries));
        steps[step]++;
        larger += queries > 1;
        avoided += step == 0 && best != blind && world.input.variant_count == VARIANTS;
    }
    EXPECT(steps[0] > ROUNDS / 10 && steps[1] > ROUNDS / 20 && steps[2] > ROUNDS / 20 && nothing > ROUNDS / 100);
    EXPECT(larger > ROUNDS / 10 && avoided > ROUNDS / 100);
}

/* ---- Workers to choose from -------------------------------------------------------------------- */

enum { WORKERS = 5, STRIDE = VARIANTS + 3 };

/* What infaas would make of the first query there. */
struct prospect {
    uint32_t step, variant;
    uint64_t cost_nano, end_ns;
};

static struct prospect
prospect_on(struct world *world, const struct leat_sched_worker *worker, const struct leat_instance *instances)
{
    struct prospect prospect = {.step = 3};

    world->worker = *worker;
    world->input.instances = instances;
    prospect.variant = cheapest(world, &prospect.step);
    if (prospect.variant < VARIANTS) {
        prospect.cost_nano = world->variants[prospect.variant].cost_nano;
        prospect.end_ns = end_of(world, prospect.variant, 1);
    }
    return prospect;
}

static bool
is_more_welcome(const struct prospect *a, const struct prospect *b)
{
    if (a->step != b->step) {
        return a->step < b->step;
    }
    return a->step == 0 ? a->cost_nano < b->cost_nano : a->step < 3 && a->end_ns < b->end_ns;
}

static void
test_candidates(void)
{
    uint32_t narrowed = 0, by_state = 0, by_cost = 0, queued = 0;

    for (int round = 0; round < ROUNDS; round++) {
        struct world world;
        struct leat_sched_worker workers[WORKERS], shown[WORKERS];
        struct leat_instance instances[WORKERS][STRIDE];
        struct prospect prospects[WORKERS];
        bool open[WORKERS];
        const bool idle_only = below(3) == 0;
        uint32_t left = 0, had = 0;

        draw_world(&world);
        for (uint32_t w = 0; w < WORKERS; w++) {
            draw_instances(&world, instances[w]);
            workers[w] = (struct leat_sched_worker){.free_at_ns = below(3000),
                                                    .outstanding = (uint32_t)below(3),
                                                    .depth = (uint32_t)below(3),
                                                    .worker_class = (uint16_t)below(CLASSES)};
            open[w] = workers[w].outstanding < workers[w].depth && (!idle_only || workers[w].outstanding == 0);
        }
        for (uint32_t v = 0; v < VARIANTS && round % 2 == 0; v++) { /* of the size of times */
            world.variants[v].cost_nano *= 100;
            world.queries[0].cost_cap_nano = 0;
        }
        for (uint32_t w = 0; w < WORKERS; w++) { /* once costs are as they stay */
            prospects[w] = prospect_on(&world, &workers[w], instances[w]);
        }
        world.input.worker = NULL;
        world.input.instances = NULL;
        world.input.worker_count = 1 + (uint32_t)below(WORKERS); /* which may be a share of them */
        const struct leat_candidates_input input = {
            .selector = &leat_selector_infaas,
            .select = &world.input,
            .workers = workers,
            .worker_count = WORKERS,
            .instances = instances[0],
            .stride = STRIDE,
            .idle_only = idle_only,
        };
        leat_candidates_show(&input, shown);
        for (uint32_t w = 0; w < WORKERS; w++) {
            bool best = open[w];
            for (uint32_t other = 0; other < WORKERS; other++) {
                const bool beaten = open[w] && open[other] && is_more_welcome(&prospects[other], &prospects[w]);
                best = best && !beaten;
                by_state += beaten && prospects[other].step == 0 && prospects[w].step == 1;
                by_cost += beaten && prospects[other].step == 0 && prospects[w].step == 0;
                queued += beaten && workers[other].outstanding > workers[w].outstanding;
            }
            had += open[w];
            left += best;
            EXPECT(shown[w].depth == (best ? workers[w].depth : 0));
            EXPECT(shown[w].outstanding == workers[w].outstanding && shown[w].free_at_ns == workers[w].free_at_ns);
            EXPECT(shown[w].worker_class == workers[w].worker_class);
        }
        EXPECT((left > 0) == (had > 0));
        narrowed += left < had;
    }
    EXPECT(narrowed > ROUNDS / 10 && by_state > ROUNDS / 20 && by_cost > ROUNDS / 20 && queued > ROUNDS / 100);
    for (size_t r = 0; leat_router_at(r) != NULL; r++) { /* others choose among queries, or in turn */
        const bool any = leat_router_at(r) == &leat_router_fcfs || leat_router_at(r) == &leat_router_shortest_queue;
        EXPECT(leat_router_at(r)->narrowed == any);
    }
    for (size_t s = 0; leat_selector_at(s) != NULL; s++) {
        EXPECT((leat_selector_at(s)->rank_worker != NULL) == leat_selector_at(s)->follows_instances);
    }
}

/* ---- Whatever the values ----------------------------------------------------------------------- */

static uint64_t
extreme(void)
{
    static const uint64_t values[] = {0, 1, 2, UINT64_C(1) << 32, UINT64_MAX / 2, UINT64_MAX - 1, UINT64_MAX};
    return below(4) == 0 ? leat_test_random(&random_state) >> below(64) : values[below(LEAT_COUNT_OF(values))];
}

static void
test_extremes(void)
{
    static const struct leat_selector *const selectors[] = {&leat_selector_greedy, &leat_selector_infaas, &leat_selector_jellyfish};

    for (int round = 0; round < ROUNDS; round++) {
        const struct leat_selector *selector = selectors[below(LEAT_COUNT_OF(selectors))];
        struct world world;
        void *state = calloc(1, selector->state_bytes + 1);
        EXPECT(state != NULL);
        draw_world(&world);
        for (uint32_t i = 0; i < VARIANTS * CLASSES * (ITEMS + 1); i++) {
            world.batch_ns[i / CLASSES / (ITEMS + 1)][i / (ITEMS + 1) % CLASSES][i % (ITEMS + 1)] = extreme();
        }
        for (uint32_t q = 0; q < QUERIES; q++) {
            world.queries[q].deadline_ns = extreme();
        }
        world.worker.free_at_ns = extreme();
        world.input.now_ns = extreme();
        world.input.rate_qps = (uint32_t)extreme();
        world.input.worker_count = 1 + (uint32_t)below(LEAT_SCHED_WORKERS_MAX);
        const struct leat_selector_options options = {.objective_ns = extreme(), .rate_step_qps = (uint32_t)extreme()};
        EXPECT(selector->init == NULL || selector->init(state, &options) == LEAT_OK);
        for (int again = 0; again < 2; again++) {
            const struct leat_selection got = selector->select(state, &world.input);
            uint32_t items = 0;
            bool any = false;
            for (uint32_t v = 0; v < VARIANTS; v++) {
                any = any || is_candidate(&world, v);
            }
            EXPECT((got.queries > 0) == any && got.queries <= world.input.pending_count);
            for (uint32_t q = 0; q < got.queries; q++) {
                const struct leat_sched_variant *variant = &world.variants[got.variant];
                EXPECT(variant->ready && leat_select_suits(&world.input, variant, &world.queries[q]));
                items += world.queries[q].items;
            }
            EXPECT(items <= world.variants[got.variant].items_max || got.queries == 0);
        }
        free(state);
    }
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    test_jellyfish();
    test_jellyfish_keeps_its_answer();
    test_model_switching();
    test_model_switching_refuses();
    test_greedy();
    test_late();
    test_within();
    test_infaas();
    test_candidates();
    test_extremes();
    return 0;
}
