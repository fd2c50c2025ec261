/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/policy_keeper.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"
#include "runtime/policy_fit.h"
#include "runtime/policy_make.h"

#define LOOK_NS UINT64_C(1000000000)
#define THREADS 2u /* that make a policy */
#define UNIT_QUERIES 512u /* that say what a usual one is */
#define MISFITS 3u /* looks in a row until a policy is made anew */

/* An order and what it points to. */
struct draft {
    struct leat_policy_order order;
    double spread_sum; /* of batches */
    uint32_t spread_count;
    char names[LEAT_SCHED_VARIANTS_MAX][LEAT_NAME_MAX];
    const char *name_of[LEAT_SCHED_VARIANTS_MAX];
    uint32_t accuracy_ppm[LEAT_SCHED_VARIANTS_MAX];
    uint64_t latency_ns[LEAT_SCHED_VARIANTS_MAX * LEAT_POLICY_MAKE_ITEMS_MAX];
    uint64_t high_ns[LEAT_SCHED_VARIANTS_MAX * LEAT_POLICY_MAKE_ITEMS_MAX]; /* what predictions say */
};

struct leat_policy_keeper {
    pthread_t thread;
    /* With daemon->mutex: it is to stop, its change has been answered, a policy is ordered, or what was ordered is done. */
    pthread_cond_t turn;
    bool started, stop, answered, ordered;
    _Atomic bool cancel; /* stop, for what is being made */
    struct leat_profile_copy copy;
    struct leat_policy_change change;
    struct draft draft;
};

/* ---- What a policy is to be made for ---------------------------------------------------------- */

/* That every variant can hold, so that none is without a batch of a unit. */
static uint32_t
least_items(const struct leat_application *app)
{
    uint32_t least = LEAT_ITEMS_MAX;
    for (uint32_t v = 0; v < app->variant_count; v++) {
        least = app->sched_variants[v].items_max < least ? app->sched_variants[v].items_max : least;
    }
    return least;
}

static uint32_t
most_items(const struct leat_application *app)
{
    uint32_t most = 0;
    for (uint32_t v = 0; v < app->variant_count; v++) {
        most = app->sched_variants[v].items_max > most ? app->sched_variants[v].items_max : most;
    }
    return most;
}

static void
draft_begin(struct draft *draft, const struct leat_application *app)
{
    draft->order = (struct leat_policy_order){
        .variant_count = app->variant_count,
        .names = draft->name_of,
        .accuracy_ppm = draft->accuracy_ppm,
        .latency_ns = draft->latency_ns,
        .unit_shift = app->keeping.unit_shift,
        .objective_ns = app->latency_ns,
        .worker_count = app->keeping.share.workers,
        .dispersion_permille = LEAT_POLICY_POISSON_PERMILLE,
        .drops_late = app->drop_late,
        .threads = THREADS,
    };
    draft->spread_sum = 0;
    draft->spread_count = 0;
    for (uint32_t v = 0; v < app->variant_count; v++) {
        (void)strcpy(draft->names[v], app->variants[v]->name);
        draft->name_of[v] = draft->names[v];
        draft->accuracy_ppm[v] = app->sched_variants[v].accuracy_ppm;
    }
    draft->order.items_max = most_items(app) >> app->keeping.unit_shift;
    if (draft->order.items_max > LEAT_POLICY_MAKE_ITEMS_MAX) {
        draft->order.items_max = LEAT_POLICY_MAKE_ITEMS_MAX;
    }
}

/* So many standard deviations is a percentile above the mean, of a normal distribution. */
static double
deviations(uint32_t quantile_ppm)
{
    /* M. Abramowitz and I. Stegun, Handbook of Mathematical Functions, 26.2.22: within 0.003 */
    const double t = sqrt(-2 * log(1 - quantile_ppm / 1e6));
    return t - (2.30753 + 0.27061 * t) / (1 + 0.99229 * t + 0.04481 * t * t);
}

static void
draft_variant(struct draft *draft, const struct leat_application *app, uint32_t v, const struct leat_profile *profile)
{
    const uint32_t units_max = draft->order.items_max;
    const uint32_t quantile_ppm = profile->quantile_ppm != LEAT_PROFILE_DEFAULT ? profile->quantile_ppm : 950000;

    for (uint32_t units = 1; units <= units_max; units++) {
        const uint32_t items = units << draft->order.unit_shift;
        const bool exists = items <= app->sched_variants[v].items_max;
        const uint64_t mean_ns = exists ? leat_profile_mean(profile, items) : 0;
        const uint64_t high_ns = exists ? leat_profile_predict(profile, items) : 0;
        draft->latency_ns[(size_t)v * units_max + units - 1] = mean_ns;
        draft->high_ns[(size_t)v * units_max + units - 1] = high_ns;
        if (exists && quantile_ppm > 600000 && quantile_ppm < LEAT_PROFILE_MEAN && mean_ns > 0) {
            const double above = (double)high_ns / (double)mean_ns - 1;
            draft->spread_sum += above > 0 ? above / deviations(quantile_ppm) : 0;
            draft->spread_count++;
        }
    }
    draft->order.spread_ppm = draft->spread_count > 0 ? (uint32_t)(draft->spread_sum / draft->spread_count * 1e6) : 0;
}

/* ---- The first policy -------------------------------------------------------------------------- */

/*
 * What the profiles say of variants that nobody has called yet. For all workers, whatever its share of them is by now: so a start
 * finds the policy that was kept.
 */
static void
draft_first(const struct leat_daemon *daemon, struct draft *draft, const struct leat_application *app)
{
    draft_begin(draft, app);
    draft->order.worker_count = daemon->options.worker_count;
    for (uint32_t v = 0; v < app->variant_count; v++) {
        draft_variant(draft, app, v, &app->profiles[v][0]);
    }
}

static enum leat_status
make_first(const struct leat_daemon *daemon, struct leat_application *app, const struct draft *draft)
{
    for (uint32_t v = 0; v < app->variant_count; v++) {
        if (draft->accuracy_ppm[v] == 0) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "selector mdp needs to know how accurate models are, and of '%s' nobody said",
                             draft->names[v]);
        }
    }
    const enum leat_status status = leat_daemon_make_policy(daemon, app->name, &draft->order, &app->policy);
    app->keeping.own = status == LEAT_OK;
    app->keeping.dispersion_mean_permille = LEAT_POLICY_POISSON_PERMILLE;
    app->keeping.spread_ppm = draft->order.spread_ppm;
    return status;
}

/* One from a file stays: it is only said, once of each matter, in what it is not for what there is. */
static void
judge_file(const struct leat_daemon *daemon, struct leat_application *app, const struct draft *draft, uint32_t patience)
{
    struct leat_policy_keeping *keeping = &app->keeping;
    const struct leat_policy *policy = keeping->policy != NULL ? keeping->policy : app->policy; /* the first one, unseen */
    char text[sizeof(keeping->trouble)];
    const uint32_t misfits = leat_policy_misfits(policy, &draft->order, daemon->options.worker_count, draft->high_ns, text, sizeof(text));

    keeping->misfits = misfits != 0 ? keeping->misfits + 1 : 0;
    if (misfits == 0) {
        keeping->trouble[0] = '\0';
    } else if (keeping->misfits >= patience) {
        (void)strcpy(keeping->trouble, text);
        if ((misfits & ~keeping->warned) != 0) {
            keeping->warned |= misfits;
            leat_log(LEAT_LOG_WARNING, "application '%s' follows a policy from a file that does not suit: %s", app->name, text);
        }
    }
}

/* Do queries wait as the policy takes them to? */
static enum leat_status
check_router(const struct leat_application *app, enum leat_policy_kind kind)
{
    if (kind == LEAT_POLICY_QUEUE && !app->router->deals) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "the policy is for queues of each worker's own: it wants router dealt, not %s",
                         app->router->name);
    }
    if (kind == LEAT_POLICY_POOL && app->router->deals) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "the policy is for one queue before all workers, not for router %s", app->router->name);
    }
    return LEAT_OK;
}

static enum leat_status
read_first(const struct leat_daemon *daemon, struct leat_application *app, const struct leat_application_options *options,
           struct draft *draft)
{
    if (options->policy_table == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "only the name of policy %s was kept, and it cannot be read: give it anew",
                         options->policy_path);
    }
    enum leat_status status = leat_policy_copy(options->policy_table, options->policy_bytes, &app->policy);
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "policy %s, as it was kept", options->policy_path);
    }
    status = check_router(app, app->policy->kind);
    if (status == LEAT_OK && UINT32_C(1) << app->policy->unit_shift > most_items(app)) {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "policy %s counts %u items as one, and no model takes more than %u at once",
                           options->policy_path, 1u << app->policy->unit_shift, most_items(app));
    }
    if (status == LEAT_OK) {
        app->keeping.unit_shift = app->policy->unit_shift;
        draft_first(daemon, draft, app);
        judge_file(daemon, app, draft, 1);
    }
    return status;
}

static enum leat_status
find_policy(const struct leat_daemon *daemon, struct leat_application *app, const struct leat_application_options *options,
            struct draft *draft)
{
    if (options->policy_path != NULL) {
        return read_first(daemon, app, options, draft);
    }
    if (strcmp(app->selector->name, "mdp") != 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "selector %s needs a policy from a file: see 'leat policy generate'",
                         app->selector->name);
    }
    if (app->latency_ns == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "selector mdp needs an objective: set the application's latency");
    }
    if (daemon->class_count > 1) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "selector mdp is for workers of one class, and there are %u", daemon->class_count);
    }
    const enum leat_status status = check_router(app, LEAT_POLICY_POOL);
    draft_first(daemon, draft, app);
    return status == LEAT_OK ? make_first(daemon, app, draft) : status;
}

static void
note_policy(struct leat_application *app, const struct leat_policy *policy)
{
    app->keeping.versions++;
    app->keeping.policy = policy;
    app->keeping.objective_ns = policy->objective_ns;
    app->keeping.worker_count = policy->worker_count;
    app->keeping.rung_count = policy->rung_count;
    app->keeping.dispersion_permille = policy->dispersion_permille;
    app->keeping.misfits = 0;
}

static enum leat_status
init_selector(const struct leat_application *app, const struct leat_policy *policy, void *state)
{
    const char *names[LEAT_SCHED_VARIANTS_MAX];
    const struct leat_selector_options options = {
        .objective_ns = app->latency_ns,
        .worker_count = app->keeping.share.workers,
        .policy = policy,
        .variant_names = names,
        .variant_count = app->variant_count,
    };

    for (uint32_t v = 0; v < app->variant_count; v++) {
        names[v] = app->variants[v]->name;
    }
    return app->selector->init != NULL ? app->selector->init(state, &options) : LEAT_OK;
}

void
leat_policy_keeper_begin(const struct leat_daemon *daemon, struct leat_application *app)
{
    const struct leat_application *before = daemon->applications[app->id];

    app->keeping.share.workers = daemon->options.worker_count;
    if (before != NULL) {
        app->keeping.share = before->keeping.share;
        app->keeping.demand_accepted_seen = before->keeping.demand_accepted_seen;
        app->keeping.busy_seen_ns = before->keeping.busy_seen_ns;
    }
}

enum leat_status
leat_policy_keeper_equip(const struct leat_daemon *daemon, struct leat_application *app,
                         const struct leat_application_options *options)
{
    enum leat_status status = LEAT_OK;

    if (!app->selector->counts_workers) {
        app->keeping.share.workers = daemon->options.worker_count;
    }
    atomic_store_explicit(&app->worker_count, app->keeping.share.workers, memory_order_relaxed);
    if (options->policy_path != NULL && !app->selector->follows_policy) {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "selector %s follows no policy, and there is one, %s: policy auto takes it back",
                           app->selector->name, options->policy_path);
    } else if (app->selector->follows_policy) {
        struct draft *draft = malloc(sizeof(*draft));
        status = draft != NULL ? find_policy(daemon, app, options, draft) : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a policy");
        free(draft);
    }
    if (status == LEAT_OK) {
        status = init_selector(app, app->policy, app->selector_state);
    }
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "application '%s'", app->name);
    }
    if (app->policy != NULL) {
        note_policy(app, app->policy);
    }
    return LEAT_OK;
}

/* ---- Looking after it -------------------------------------------------------------------------- */

/* How many come in a query, and how unevenly queries come. A policy from a file says itself what counts as one. */
static void
look_at_arrivals(struct leat_application *app, const struct leat_profile_copy *copy)
{
    struct leat_policy_keeping *keeping = &app->keeping;

    if (keeping->own && copy->queries - keeping->queries_seen >= UNIT_QUERIES) {
        keeping->unit_shift = leat_policy_unit_shift(keeping->unit_shift, copy->queries - keeping->queries_seen,
                                                     copy->items - keeping->items_seen, least_items(app));
        keeping->queries_seen = copy->queries;
        keeping->items_seen = copy->items;
    }
    keeping->dispersion_mean_permille =
        leat_policy_dispersion(keeping->dispersion_mean_permille, copy->dispersion_ppm >> keeping->unit_shift);
}

/* Fills the draft from what the dispatcher knows now; mutex held, released meanwhile. False: there is nothing to do. */
static bool
look(struct leat_daemon *daemon, struct leat_application *app, struct draft *draft)
{
    struct leat_profile_copy *copy = &daemon->keeper->copy;
    const uint16_t id = app->id;
    const uint64_t generation = app->generation;
    const uint64_t accepted = atomic_load_explicit(&app->counters.accepted, memory_order_relaxed);

    if (app->keeping.policy == NULL || (accepted == app->keeping.accepted_seen && !app->keeping.wanted)) {
        return false;
    }
    app->keeping.accepted_seen = accepted;
    if (leat_daemon_copy_profiles(daemon, app, 0, copy) != LEAT_OK || daemon->applications[id] != app ||
        app->generation != generation) {
        return false; /* it has gone, and perhaps another one lies where it lay */
    }
    look_at_arrivals(app, copy);
    draft_begin(draft, app);
    for (uint32_t v = 0; v < draft->order.variant_count; v++) {
        if (leat_daemon_copy_profiles(daemon, app, v, copy) != LEAT_OK || daemon->applications[id] != app ||
            app->generation != generation) {
            return false;
        }
        draft_variant(draft, app, v, &copy->profiles[0]);
    }
    draft->order.rate_qps = copy->rate_qps >> app->keeping.unit_shift;
    draft->order.dispersion_permille = app->keeping.dispersion_mean_permille;
    return true;
}

/* It keeps the policy that it has, and the next attempt waits, longer each time. Says why, once as long as that is the reason. */
static void
note_failure(struct leat_application *app, const char *why)
{
    struct leat_policy_keeping *keeping = &app->keeping;

    keeping->failures++;
    keeping->retry_at_ns = leat_monotonic_ns() + leat_policy_retry_ns(keeping->failures);
    if (strncmp(keeping->trouble, why, sizeof(keeping->trouble) - 1) != 0) {
        (void)snprintf(keeping->trouble, sizeof(keeping->trouble), "%s", why);
        leat_log(LEAT_LOG_WARNING, "application '%s' keeps its policy: %s", app->name, why);
    }
}

static void
forget_failures(struct leat_application *app)
{
    app->keeping.failures = 0;
    app->keeping.retry_at_ns = 0;
    app->keeping.trouble[0] = '\0';
}

/* Has the dispatcher exchange the policy; mutex held, released while waiting. */
static void
exchange(struct leat_daemon *daemon, struct leat_application *app, struct leat_policy *policy, uint32_t spread_ppm)
{
    struct leat_policy_keeper *keeper = daemon->keeper;
    const struct leat_command command = {.kind = LEAT_COMMAND_SET_POLICY, .policy = &keeper->change};
    void *state = calloc(1, app->selector->state_bytes + 1);

    if (state == NULL || init_selector(app, policy, state) != LEAT_OK) {
        note_failure(app, state == NULL ? "no memory for a policy" : leat_error_text());
        free(state);
        free(policy);
        return;
    }
    const uint64_t generation = app->generation;
    keeper->change = (struct leat_policy_change){
        .application = app->id, .generation = generation, .state = state, .policy = policy};
    keeper->answered = false;
    leat_dispatcher_command(daemon->dispatcher, &command);
    while (!keeper->answered && !daemon->server_done) {
        LEAT_MUST(pthread_cond_wait(&keeper->turn, &daemon->mutex) == 0);
    }
    if (!keeper->answered) {
        return; /* the process ends; whichever is not in force is destroyed with the keeper */
    }
    const struct leat_application *now = daemon->applications[keeper->change.application];
    if (keeper->change.done && now == app && now->generation == generation) { /* it has not gone since */
        note_policy(app, policy);
        app->keeping.spread_ppm = spread_ppm;
        forget_failures(app);
        leat_log(LEAT_LOG_INFO, "application '%s': policy %u, for a dispersion of %.2f and times that spread by %.1f %%", app->name,
                 app->keeping.versions, policy->dispersion_permille / 1e3, app->keeping.spread_ppm / 1e4);
    }
    free(keeper->change.state);
    free(keeper->change.policy);
    keeper->change = (struct leat_policy_change){0};
}

/* ---- Shares --------------------------------------------------------------------------------------- */

/* Takes in what an item takes in this variant, in the batch that is fastest for it: [0] of those in time, [1] of those late. */
static void
take_least(double least_ns[2], const struct leat_application *app, uint32_t v, const struct leat_profile *profiles,
           uint32_t class_count)
{
    for (uint32_t class = 0; class < class_count; class++) {
        for (uint32_t items = 1; items <= app->sched_variants[v].items_max && items <= LEAT_POLICY_MAKE_ITEMS_MAX; items++) {
            const uint64_t mean_ns = leat_profile_mean(&profiles[class], items);
            const bool late = app->latency_ns > 0 && mean_ns > app->latency_ns;
            least_ns[late] = fmin(least_ns[late], (double)mean_ns / items);
        }
    }
}

/* Workers' time that was asked for lately, in thousandths of one's; mutex held, released meanwhile. False: it has gone. */
static bool
see_demand(struct leat_daemon *daemon, struct leat_application *app, uint64_t elapsed_ns, uint64_t *ret_permille)
{
    struct leat_profile_copy *copy = &daemon->keeper->copy;
    struct leat_policy_keeping *keeping = &app->keeping;
    const uint64_t accepted = atomic_load_explicit(&app->counters.accepted, memory_order_relaxed);
    const uint64_t busy_ns = atomic_load_explicit(&app->counters.busy_ns, memory_order_relaxed);
    const uint64_t generation = app->generation;
    const uint32_t id = app->id;
    double permille = 0, least_ns[2] = {HUGE_VAL, HUGE_VAL};

    if (!app->selector->counts_workers) {
        permille = busy_ns > keeping->busy_seen_ns ? (double)(busy_ns - keeping->busy_seen_ns) * 1e3 / (double)elapsed_ns : 0;
    } else if (accepted != keeping->demand_accepted_seen) {
        const uint32_t variant_count = app->variant_count;
        for (uint32_t v = 0; v < variant_count; v++) {
            if (leat_daemon_copy_profiles(daemon, app, v, copy) != LEAT_OK || daemon->applications[id] != app ||
                app->generation != generation) {
                return false;
            }
            take_least(least_ns, app, v, copy->profiles, daemon->class_count);
        }
        permille = copy->rate_qps * (least_ns[0] < HUGE_VAL ? least_ns[0] : least_ns[1]) / 1e6;
    }
    keeping->demand_accepted_seen = accepted;
    keeping->busy_seen_ns = busy_ns;
    *ret_permille = permille < (double)LEAT_SHARE_DEMAND_MAX ? (uint64_t)permille : LEAT_SHARE_DEMAND_MAX;
    return true;
}

/* Gives each application its own workers, or its share of those that are nobody's; mutex held, released meanwhile. */
static void
share_workers(struct leat_daemon *daemon, uint64_t elapsed_ns)
{
    uint16_t own[LEAT_APPLICATIONS_MAX];
    struct leat_share *shares[LEAT_APPLICATIONS_MAX];
    uint32_t count = 0;
    uint64_t other_permille = 0, seen_permille;

    for (uint32_t id = 0; id < LEAT_APPLICATIONS_MAX && !daemon->keeper->stop; id++) {
        struct leat_application *app = daemon->applications[id];
        if (app != NULL && see_demand(daemon, app, elapsed_ns, &seen_permille)) {
            leat_share_look(&app->keeping.share, seen_permille);
        }
    }
    const uint32_t common = leat_daemon_count_workers(daemon, own);
    for (uint32_t id = 0; id < LEAT_APPLICATIONS_MAX; id++) {
        struct leat_application *app = daemon->applications[id];
        if (app != NULL && own[id] > 0) {
            app->keeping.share.workers = own[id];
        } else if (app != NULL && app->selector->counts_workers) {
            shares[count++] = &app->keeping.share;
        } else if (app != NULL) {
            other_permille += app->keeping.share.demand_permille;
        }
    }
    leat_share_divide(shares, count, other_permille, common);
    for (uint32_t id = 0; id < LEAT_APPLICATIONS_MAX; id++) {
        struct leat_application *app = daemon->applications[id];
        if (app != NULL && app->selector->counts_workers &&
            atomic_load_explicit(&app->worker_count, memory_order_relaxed) != app->keeping.share.workers) {
            atomic_store_explicit(&app->worker_count, app->keeping.share.workers, memory_order_relaxed);
            leat_log(LEAT_LOG_INFO, "application '%s' may count on %u of %u workers", app->name, app->keeping.share.workers,
                     own[id] > 0 ? own[id] : common);
        }
    }
}

/* ---- Policies ------------------------------------------------------------------------------------- */

/* Is it time to make another one? */
static bool
wants_policy(struct leat_application *app, const struct leat_policy_order *order)
{
    struct leat_policy_keeping *keeping = &app->keeping;

    if (leat_policy_fits(keeping->policy, keeping->spread_ppm, order)) {
        keeping->misfits = 0;
        forget_failures(app);
    } else {
        keeping->misfits++;
    }
    return keeping->wanted || (keeping->misfits >= MISFITS && leat_monotonic_ns() >= keeping->retry_at_ns);
}

/* Mutex held, released meanwhile. */
static void
look_after(struct leat_daemon *daemon, struct leat_application *app)
{
    struct draft *draft = &daemon->keeper->draft;
    struct leat_policy *policy = NULL;
    const uint32_t id = app->id;

    if (!look(daemon, app, draft)) {
        return;
    }
    if (!app->keeping.own) {
        judge_file(daemon, app, draft, MISFITS);
        return;
    }
    if (!wants_policy(app, &draft->order)) {
        return;
    }
    const uint64_t generation = app->generation;
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    const enum leat_status status = leat_policy_make(&draft->order, &daemon->keeper->cancel, &policy);
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    if (daemon->applications[id] != app || app->generation != generation) {
        free(policy);
    } else if (status == LEAT_OK) {
        exchange(daemon, app, policy, draft->order.spread_ppm);
    } else if (status != LEAT_AGAIN) {
        note_failure(app, leat_error_text());
    }
}

/* At all applications, or at those only for which a policy was ordered. Mutex held, released meanwhile. */
static void
look_around(struct leat_daemon *daemon, bool all)
{
    struct leat_policy_keeper *keeper = daemon->keeper;

    keeper->ordered = false;
    for (uint32_t id = 0; id < LEAT_APPLICATIONS_MAX && !keeper->stop; id++) {
        struct leat_application *app = daemon->applications[id];
        if (app == NULL || !(all || app->keeping.wanted)) {
            continue;
        }
        const bool ordered = app->keeping.wanted;
        const uint64_t generation = app->generation;
        look_after(daemon, app);
        if (ordered && daemon->applications[id] == app && app->generation == generation) {
            app->keeping.wanted = false;
        }
        if (ordered) {
            LEAT_MUST(pthread_cond_broadcast(&keeper->turn) == 0);
        }
    }
}

static void *
keeper_main(void *argument)
{
    struct leat_daemon *daemon = argument;
    struct leat_policy_keeper *keeper = daemon->keeper;
    uint64_t shared_ns = leat_monotonic_ns(), next_ns = shared_ns + LOOK_NS;

    (void)pthread_setname_np(pthread_self(), "leat-policy");
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    while (!keeper->stop) {
        const struct timespec next = {(time_t)(next_ns / 1000000000u), (long)(next_ns % 1000000000u)};
        if (!keeper->ordered && leat_monotonic_ns() < next_ns) {
            const int waited = pthread_cond_timedwait(&keeper->turn, &daemon->mutex, &next);
            LEAT_ASSERT(waited == 0 || waited == ETIMEDOUT);
            continue;
        }
        const uint64_t now_ns = leat_monotonic_ns();
        const bool all = now_ns >= next_ns;
        if (all) {
            share_workers(daemon, now_ns - shared_ns);
            shared_ns = now_ns;
        }
        look_around(daemon, all);
        next_ns = all ? leat_monotonic_ns() + LOOK_NS : next_ns;
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return NULL;
}

/* ---- The others' side ---------------------------------------------------------------------------- */

enum leat_status
leat_policy_keeper_refresh(struct leat_daemon *daemon, const char *name)
{
    struct leat_policy_keeper *keeper = daemon->keeper;
    struct leat_application *app = leat_daemon_find_application(daemon, name);

    if (app == NULL) {
        return leat_daemon_lack_application(daemon, name);
    }
    if (!app->keeping.own) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "application '%s' follows no policy that leat made", name);
    }
    const uint64_t generation = app->generation;
    const uint32_t id = app->id, versions = app->keeping.versions;
    app->keeping.wanted = keeper->ordered = true;
    LEAT_MUST(pthread_cond_broadcast(&keeper->turn) == 0);
    while (!keeper->stop && daemon->applications[id] == app && app->generation == generation && app->keeping.wanted) {
        LEAT_MUST(pthread_cond_wait(&keeper->turn, &daemon->mutex) == 0);
    }
    if (keeper->stop) {
        return LEAT_FAIL(LEAT_ERR_BUSY, "the daemon is shutting down");
    }
    if (daemon->applications[id] != app || app->generation != generation) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "application '%s' has gone", name);
    }
    return app->keeping.versions != versions
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_BUSY, "application '%s' keeps its policy: %s", name, app->keeping.trouble);
}

void
leat_policy_keeper_set(void *context, struct leat_policy_change *change)
{
    struct leat_daemon *daemon = context;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    LEAT_ASSERT(change == &daemon->keeper->change);
    daemon->keeper->answered = true;
    LEAT_MUST(pthread_cond_broadcast(&daemon->keeper->turn) == 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
}

enum leat_status
leat_policy_keeper_start(struct leat_daemon *daemon)
{
    struct leat_policy_keeper *keeper = calloc(1, sizeof(*keeper));

    if (keeper == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to look after policies");
    }
    leat_daemon_init_timed_condition(&keeper->turn);
    daemon->keeper = keeper;
    const int error = pthread_create(&keeper->thread, NULL, keeper_main, daemon);
    if (error != 0) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "cannot start thread leat-policy: %s", strerror(error));
    }
    keeper->started = true;
    return LEAT_OK;
}

void
leat_policy_keeper_stop(struct leat_daemon *daemon)
{
    struct leat_policy_keeper *keeper = daemon->keeper;

    if (keeper == NULL || !keeper->started) {
        return;
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    keeper->stop = true;
    atomic_store_explicit(&keeper->cancel, true, memory_order_relaxed);
    LEAT_MUST(pthread_cond_broadcast(&keeper->turn) == 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    LEAT_MUST(pthread_join(keeper->thread, NULL) == 0);
    keeper->started = false;
}

void
leat_policy_keeper_destroy(struct leat_policy_keeper *keeper)
{
    if (keeper == NULL) {
        return;
    }
    LEAT_MUST(pthread_cond_destroy(&keeper->turn) == 0);
    free(keeper->change.state);
    free(keeper->change.policy);
    free(keeper);
}
