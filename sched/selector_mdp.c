/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a policy that was solved ahead says: D. Mendoza et al., "Model Selection for Latency-Critical Inference Serving"
 * (RAMSIS), EuroSys 2024, section 3.2, and our own for a queue before all workers.
 *
 * Ours, where the paper knows no such thing: queries of several items or with less time than older ones, accuracy floors, caps on cost, variants that are not
 * ready. A look-up is one load; counting and taking what waits is O(queries), a substitute O(variants).
 */
#include "sched/policy_bind.h"
#include "sched/select.h"

#define NOBODY LEAT_POLICY_NOBODY

#define PACE_SHIFT   12u /* of one */
#define PACE_MOST    4u
#define PACE_NOISE   16u /* a mean of noise is no more than one in so many above one */
#define PACE_BATCHES 64u /* over so many it is a mean, the last ones counting most */

struct state {
    struct leat_policy_lookup lookup;
    const struct leat_policy *policy;
    bool to_the_letter;     /* as its source has it: RAMSIS knows neither reserve, pace nor rises */
    uint64_t pace_sum;      /* time of batches as the table has it makes one; PACE_BATCHES times that, in 1 / 2^PACE_SHIFT */
    uint32_t pace;          /* how many times as long they take, 1 or well above; in the same parts */
    uint32_t slack_share;   /* 1 / pace */
    uint32_t count;         /* of the table's variants; below, by its numbers */
    uint8_t variant_of[64]; /* the application's, or NOBODY */
    uint8_t by_time[64];    /* the table's, the fastest for one item first */
    uint8_t place[64];      /* in by_time */
};

/* ---- Binding ----------------------------------------------------------------------------------- */

static void
sort_by_time(struct state *state, const struct leat_policy *policy)
{
    for (uint32_t p = 0; p < policy->variant_count; p++) {
        uint32_t place = p;
        while (place > 0 &&
               leat_policy_latency_ns(policy, state->by_time[place - 1])[0] > leat_policy_latency_ns(policy, p)[0]) {
            state->by_time[place] = state->by_time[place - 1];
            place--;
        }
        state->by_time[place] = (uint8_t)p;
    }
    for (uint32_t place = 0; place < policy->variant_count; place++) {
        state->place[state->by_time[place]] = (uint8_t)place;
    }
}

static enum leat_status
init(void *memory, const struct leat_selector_options *options)
{
    struct state *state = memory;
    const struct leat_policy *policy = options->policy;

    if (policy == NULL) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "selector mdp needs a policy: see 'leat policy generate'");
    }
    if (policy->kind != LEAT_POLICY_QUEUE && policy->kind != LEAT_POLICY_POOL) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "selector mdp needs a policy of kind queue or pool, not %s",
                         leat_policy_kind_text(policy->kind));
    }
    if (options->worker_count > LEAT_POLICY_WORKERS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "policies are for %u workers at most, not %u", LEAT_POLICY_WORKERS_MAX,
                         options->worker_count);
    }
    if (leat_policy_bind(policy, options, state->variant_of) == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "the policy is for variants such as '%s', none of which is the application's",
                         leat_policy_variant(policy, 0)->name);
    }
    leat_policy_lookup_init(&state->lookup, policy, options->worker_count);
    state->policy = policy;
    state->to_the_letter = policy->kind == LEAT_POLICY_QUEUE;
    state->pace = state->slack_share = 1u << PACE_SHIFT;
    state->pace_sum = PACE_BATCHES << PACE_SHIFT;
    state->count = policy->variant_count;
    sort_by_time(state, policy);
    return LEAT_OK;
}

/* ---- Pace -------------------------------------------------------------------------------------- */

/* As the table has it, between its units in proportion; 0: it has no such batch. */
static uint64_t
table_ns(const struct state *state, uint32_t variant, uint32_t items)
{
    const uint32_t shift = state->policy->unit_shift, unit = 1u << shift, units = items >> shift, rest = items % unit;
    uint32_t p = 0;

    while (p < state->count && state->variant_of[p] != variant) {
        p++;
    }
    if (p == state->count || units == 0 || units + (rest > 0) > state->policy->latency_items) {
        return 0;
    }
    const uint64_t *latency_ns = leat_policy_latency_ns(state->policy, p);
    const uint64_t below_ns = latency_ns[units - 1], above_ns = latency_ns[units - (rest == 0)];
    return above_ns > below_ns ? below_ns + (above_ns - below_ns) * rest / unit : below_ns;
}

static void
ended(void *memory, uint32_t variant, uint32_t items, uint64_t run_ns)
{
    struct state *state = memory;
    const uint64_t expected_ns = table_ns(state, variant, items);

    if (expected_ns == 0 || state->to_the_letter) {
        return;
    }
    const uint64_t counts_ns = run_ns < PACE_MOST * expected_ns ? run_ns : PACE_MOST * expected_ns;
    const uint32_t one = 1u << PACE_SHIFT;
    state->pace_sum += (counts_ns << PACE_SHIFT) / expected_ns - state->pace_sum / PACE_BATCHES; /* times are at most 2^48 */
    const uint32_t pace = (uint32_t)(state->pace_sum / PACE_BATCHES);
    state->pace = pace > one + one / PACE_NOISE ? pace : one;
    state->slack_share = one * one / state->pace;
}

static uint32_t
paced_qps(const struct state *state, uint32_t rate_qps)
{
    const uint64_t qps = (uint64_t)rate_qps * state->pace >> PACE_SHIFT;
    return qps < UINT32_MAX ? (uint32_t)qps : UINT32_MAX;
}

/* ---- What waits -------------------------------------------------------------------------------- */

/* The pending queries from `first` on, counted as far as a look-up can tell the difference. */
struct waiting {
    uint32_t first, end;
    uint32_t items; /* of those, and a unit for each query that waits but is not shown */
};

static void
count_items(const struct leat_select_input *input, uint32_t enough, struct waiting *waiting)
{
    while (waiting->end < input->pending_count && waiting->items < enough) {
        waiting->items += input->pending[waiting->end++].items;
    }
}

/* Leaves whole queries of at most so many items out of account, one at least. */
static void
pass_over(const struct leat_select_input *input, uint32_t items, struct waiting *waiting)
{
    const uint32_t most = items == LEAT_POLICY_ALL ? UINT32_MAX : items;
    uint32_t passed = 0;

    do {
        if (waiting->end == waiting->first) { /* beyond what was counted */
            waiting->items += input->pending[waiting->end++].items;
        }
        passed += input->pending[waiting->first].items;
        waiting->items -= input->pending[waiting->first++].items;
    } while (waiting->first < input->pending_count && passed < most &&
             input->pending[waiting->first].items <= most - passed);
}

/* ---- Choosing ---------------------------------------------------------------------------------- */

struct choice {
    struct leat_policy_action action;
    uint64_t slack_ns; /* of the oldest query that is not given up */
    uint64_t reserve_ns; /* that was kept of it */
};

static uint64_t
without(uint64_t slack_ns, uint64_t reserve_ns)
{
    return slack_ns > reserve_ns ? slack_ns - reserve_ns : 0;
}

static uint64_t
slack_of(const struct state *state, const struct leat_select_input *input, const struct leat_sched_query *query)
{
    const uint64_t free_ns = input->worker->free_at_ns, start_ns = free_ns > input->now_ns ? free_ns : input->now_ns;
    const uint64_t left_ns = query->deadline_ns > start_ns ? query->deadline_ns - start_ns : 0;
    return query->deadline_ns == LEAT_NO_DEADLINE ? state->lookup.objective_ns : left_ns;
}

/* As much as the table would have at its pace. */
static uint64_t
paced(const struct state *state, uint64_t slack_ns)
{
    const uint64_t counts_ns = slack_ns < state->lookup.objective_ns ? slack_ns : state->lookup.objective_ns;
    return counts_ns * state->slack_share >> PACE_SHIFT; /* objectives are below 2^41 */
}

/* The policy's word on what waits; *waiting is then without what is given up. */
static struct choice
ask(const struct state *state, const struct leat_select_input *input, struct waiting *waiting)
{
    struct leat_policy_action given_up = {0};

    for (;;) {
        count_items(input, state->lookup.full_row << state->lookup.unit_shift, waiting);
        const struct leat_sched_query *oldest = &input->pending[waiting->first];
        const uint64_t all_ns = slack_of(state, input, oldest);
        uint64_t reserve_ns = oldest->deadline_ns != LEAT_NO_DEADLINE && !state->to_the_letter ? input->reserve_ns : 0;
        uint64_t slack_ns = without(all_ns, reserve_ns);
        struct leat_policy_action action =
            leat_policy_action(&state->lookup, waiting->items, input->idle_count, paced(state, slack_ns));
        if (LEAT_UNLIKELY(action.variant == LEAT_POLICY_GIVE_UP && reserve_ns > 0)) {
            reserve_ns = 0;
            slack_ns = all_ns;
            action = leat_policy_action(&state->lookup, waiting->items, input->idle_count, paced(state, slack_ns));
        }
        /* Time would not end that: its slack stays as it is. */
        while (action.variant == LEAT_POLICY_HOLD && oldest->deadline_ns == LEAT_NO_DEADLINE && slack_ns > 0) {
            slack_ns /= 2;
            action = leat_policy_action(&state->lookup, waiting->items, input->idle_count, paced(state, slack_ns));
        }
        if (LEAT_LIKELY(action.variant != LEAT_POLICY_GIVE_UP)) {
            return (struct choice){.action = action, .slack_ns = slack_ns, .reserve_ns = reserve_ns};
        }
        given_up = given_up.items == 0 ? action : given_up;
        pass_over(input, action.items, waiting);
        if (waiting->first == input->pending_count) {
            /* Late, but nobody is kept waiting by it; or else whoever waits behind what is shown: then as many as can be. */
            const uint32_t items = input->waiting_count > input->pending_count ? LEAT_POLICY_ALL : given_up.items;
            waiting->first = 0;
            return (struct choice){.action = {.variant = state->by_time[0], .items = items}};
        }
    }
}

static bool
can_serve(const struct leat_select_input *input, uint32_t v, const struct leat_sched_query *query)
{
    return v < input->variant_count && input->variants[v].ready && leat_select_suits(input, &input->variants[v], query);
}

static uint32_t
least_accurate(const struct leat_select_input *input, const struct leat_sched_query *query)
{
    uint32_t found = NOBODY;

    for (uint32_t v = 0; v < input->variant_count; v++) {
        if (can_serve(input, v, query) &&
            (found == NOBODY || input->variants[v].accuracy_ppm < input->variants[found].accuracy_ppm)) {
            found = v;
        }
    }
    return found;
}

static bool
in_time(const struct leat_select_input *input, uint32_t v, uint32_t items, uint64_t slack_ns)
{
    return input->predict(input->profiles, input->application, v, input->worker->worker_class, items) <= slack_ns;
}

/* Who serves a query that the action's variant cannot serve, or that is larger than the action's batch; else NOBODY. */
static uint32_t
substitute(const struct state *state, const struct leat_select_input *input, const struct choice *choice,
           const struct leat_sched_query *query)
{
    const uint32_t own = state->variant_of[choice->action.variant];
    const bool large = query->items > choice->action.items;

    if (own < input->variant_count && input->variants[own].accuracy_ppm < query->accuracy_floor_ppm) {
        return least_accurate(input, query);
    }
    for (uint32_t place = state->place[choice->action.variant] + 1u; place > 0; place--) {
        const uint32_t v = state->variant_of[state->by_time[place - 1]];
        if (can_serve(input, v, query) && (!large || in_time(input, v, query->items, choice->slack_ns))) {
            return v;
        }
    }
    for (uint32_t place = 0; place < state->count; place++) {
        const uint32_t v = state->variant_of[state->by_time[place]];
        if (can_serve(input, v, query)) {
            return v;
        }
    }
    return least_accurate(input, query);
}

/*
 * The policy knows the slack of the oldest. A query with less, though not without any, is not to be late for a batch that was
 * chosen for more: the least such slack, the query's included; without any, the oldest's. Each is less the reserve.
 */
static uint64_t
tightest_ns(const struct state *state, const struct leat_select_input *input, const struct choice *choice, uint64_t before_ns,
            const struct leat_sched_query *query)
{
    const uint64_t all_ns = slack_of(state, input, query), slack_ns = without(all_ns, choice->reserve_ns);
    return all_ns > 0 && slack_ns < before_ns && slack_ns < choice->slack_ns ? slack_ns : before_ns;
}

static struct leat_selection
select_batch(void *memory, const struct leat_select_input *input)
{
    struct state *state = memory;
    struct waiting waiting = {.items = (input->waiting_count - input->pending_count) << state->lookup.unit_shift};

    LEAT_ASSERT(input->pending_count >= 1 && input->waiting_count >= input->pending_count);
    leat_policy_staff(&state->lookup, input->worker_count);
    leat_policy_follow(&state->lookup, state->to_the_letter ? input->rate_qps : paced_qps(state, input->rising_qps));
    const struct choice choice = ask(state, input, &waiting);
    if (choice.action.variant == LEAT_POLICY_HOLD) {
        return (struct leat_selection){.skip = waiting.first, .hold = true};
    }
    const struct leat_sched_query *queries = &input->pending[waiting.first];
    const uint32_t count = input->pending_count - waiting.first;
    uint32_t v = state->variant_of[choice.action.variant];
    const bool own = queries[0].items <= choice.action.items && can_serve(input, v, &queries[0]);
    if (LEAT_UNLIKELY(!own)) {
        v = substitute(state, input, &choice, &queries[0]);
        if (v == NOBODY) { /* then those that are given up may as well be served */
            v = least_accurate(input, &input->pending[0]);
            return v == NOBODY ? (struct leat_selection){0} : (struct leat_selection){.variant = v, .queries = 1};
        }
    }

    const struct leat_sched_variant *variant = &input->variants[v];
    const uint32_t wanted = choice.action.items == LEAT_POLICY_ALL ? UINT32_MAX : choice.action.items;
    const uint32_t most = wanted < variant->items_max ? wanted : variant->items_max;
    struct leat_selection selection = {.variant = v, .queries = 1, .skip = waiting.first};
    uint64_t bound_ns = own ? UINT64_MAX : choice.slack_ns; /* when the batch is to end: the policy saw to that for its own */
    uint32_t items = queries[0].items;
    while (selection.queries < count && items < most && queries[selection.queries].items <= most - items &&
           leat_select_suits(input, variant, &queries[selection.queries])) {
        const struct leat_sched_query *next = &queries[selection.queries];
        bound_ns = tightest_ns(state, input, &choice, bound_ns, next);
        if (bound_ns < UINT64_MAX && !in_time(input, v, items + next->items, bound_ns)) {
            break;
        }
        items += next->items;
        selection.queries++;
    }
    return selection;
}

const struct leat_selector leat_selector_mdp = {
    .name = "mdp", .when_idle = true, .follows_policy = true, .counts_workers = true, .state_bytes = sizeof(struct state), .init = init,
    .select = select_batch,
    .ended = ended};
