/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/policy_make.h"

#include <math.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/align.h"
#include "base/slice.h"
#include "sched/mdp_pool.h"
#include "sched/policy_solve.h"

/*
 * The size of a rung's table: what is finer changes nothing that can be measured, and all rungs together stay in a second-level
 * cache of half a mebibyte.
 */
enum {
    RUNGS = 20,
    QUEUE_MAX = 64,
    SLACK_BINS = 64,
    IDLE_LEVELS = 8,
    HELD_MAX = 16,
};
#define NICE           10
#define FILE_BYTES_MAX (UINT64_C(64) << 20)
#define NEVER        64.0 /* objectives: how long a batch takes that there is none of */

struct maker {
    const struct leat_policy_order *order;
    struct leat_policy_problem problem;
    double *accuracy, *latency_us; /* the problem's */
    uint32_t rates_qps[LEAT_POLICY_RUNGS_MAX];
    uint32_t rate_count;
    struct leat_policy *policy;
    const _Atomic bool *cancel;
    _Atomic uint32_t next; /* rungs taken, from the highest down */
    _Atomic bool failed;   /* a thread had no memory */
    enum leat_status status;
    char text[256]; /* of a failure */
};

/* What all workers together can answer in time. */
static double
capacity_qps(const struct leat_policy_order *order)
{
    double best = 0; /* items a nanosecond, of one worker */
    for (uint32_t v = 0; v < order->variant_count; v++) {
        for (uint32_t items = 1; items <= order->items_max; items++) {
            const uint64_t latency_ns = order->latency_ns[(size_t)v * order->items_max + items - 1];
            if (latency_ns > 0 && latency_ns <= order->objective_ns && items / (double)latency_ns > best) {
                best = items / (double)latency_ns;
            }
        }
    }
    return best * 1e9 * order->worker_count;
}

/* A load that the most accurate variant carries by itself, half idle, without batches. */
static double
light_qps(const struct leat_policy_order *order)
{
    uint32_t best_ppm = 0;
    double qps = 0;
    for (uint32_t v = 0; v < order->variant_count; v++) {
        const uint64_t latency_ns = order->latency_ns[(size_t)v * order->items_max];
        if (latency_ns > 0 && latency_ns <= order->objective_ns && order->accuracy_ppm[v] > best_ppm) {
            best_ppm = order->accuracy_ppm[v];
            qps = 0.5e9 * order->worker_count / (double)latency_ns;
        }
    }
    return qps;
}

/*
 * How far a rung at this rate is from one at no load: by half in what no policy can better any more, by half in the logarithm
 * of the rate.
 */
static double
distance(const struct maker *maker, double qps, double lowest_qps, double highest_qps)
{
    const double rates_qps[3] = {qps, lowest_qps, highest_qps}, most_qps = capacity_qps(maker->order);
    double accuracy[3];

    for (uint32_t i = 0; i < 3; i++) { /* what overload costs counts for nothing: one rung there is as good as another */
        accuracy[i] = leat_policy_bound(&maker->problem, (uint32_t)(rates_qps[i] < most_qps ? rates_qps[i] : most_qps));
    }
    const double lost = accuracy[1] > accuracy[2] ? (accuracy[1] - accuracy[0]) / (accuracy[1] - accuracy[2]) : 0;
    return lost + log(qps / lowest_qps) / log(highest_qps / lowest_qps);
}

/* Whole queries a second, each rung above the one before; distances between them are equal. */
static void
make_ladder(struct maker *maker)
{
    const double capacity = capacity_qps(maker->order), seen = maker->order->rate_qps;
    const double highest_qps = ceil((capacity > seen ? capacity : seen) * LEAT_POLICY_MAKE_HEADROOM);
    const double light = floor(light_qps(maker->order));
    const double lowest_qps = light < highest_qps / 2 ? (light > 1 ? light : 1) : highest_qps / 2;
    const double all = distance(maker, highest_qps, lowest_qps, highest_qps);
    double reached_qps = lowest_qps;

    for (uint32_t r = 0; r < RUNGS; r++) {
        double low = reached_qps, high = highest_qps;
        for (uint32_t i = 0; i < 40 && r < RUNGS - 1; i++) {
            const double middle = (low + high) / 2;
            *(distance(maker, middle, lowest_qps, highest_qps) < all * r / (RUNGS - 1) ? &low : &high) = middle;
        }
        reached_qps = ceil(high);
        if (reached_qps < UINT32_MAX && (maker->rate_count == 0 || reached_qps > maker->rates_qps[maker->rate_count - 1])) {
            maker->rates_qps[maker->rate_count++] = (uint32_t)reached_qps;
        }
    }
}

static enum leat_status
check_order(const struct leat_policy_order *order)
{
    if (order->variant_count == 0 || order->variant_count > LEAT_MDP_POOL_VARIANTS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a policy is for 1 to %u variants, not %u", LEAT_MDP_POOL_VARIANTS_MAX,
                         order->variant_count);
    }
    if (order->items_max == 0 || order->items_max > LEAT_POLICY_MAKE_ITEMS_MAX || order->dispersion_permille < 1000) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a policy is for batches of 1 to %u items and a dispersion of 1 or more",
                         LEAT_POLICY_MAKE_ITEMS_MAX);
    }
    if (order->objective_ns == 0 || capacity_qps(order) <= 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "no variant answers even one query within the objective of %.3f ms",
                         (double)order->objective_ns / 1e6);
    }
    if (order->rates_qps != NULL && (order->rate_count == 0 || order->rate_count > LEAT_POLICY_RUNGS_MAX)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a policy has 1 to %u rates, not %u", LEAT_POLICY_RUNGS_MAX, order->rate_count);
    }
    return LEAT_OK;
}

static void
choose_rates(struct maker *maker)
{
    if (maker->order->rates_qps == NULL) {
        make_ladder(maker);
        return;
    }
    maker->rate_count = maker->order->rate_count;
    memcpy(maker->rates_qps, maker->order->rates_qps, maker->rate_count * sizeof(maker->rates_qps[0]));
}

/* In the solver's units. */
static enum leat_status
pose_problem(struct maker *maker)
{
    const struct leat_policy_order *order = maker->order;
    const size_t cells = (size_t)order->variant_count * order->items_max;
    const double objective_us = (double)order->objective_ns / 1e3;
    const uint32_t levels = order->worker_count > 1 ? order->worker_count - 1 : 1;

    maker->accuracy = calloc(order->variant_count, sizeof(*maker->accuracy));
    maker->latency_us = calloc(cells, sizeof(*maker->latency_us));
    if (maker->accuracy == NULL || maker->latency_us == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a policy");
    }
    for (uint32_t v = 0; v < order->variant_count; v++) {
        maker->accuracy[v] = order->accuracy_ppm[v] / 1e6;
    }
    for (size_t i = 0; i < cells; i++) {
        maker->latency_us[i] = order->latency_ns[i] > 0 ? (double)order->latency_ns[i] / 1e3 : NEVER * objective_us;
    }
    maker->problem = (struct leat_policy_problem){
        .mode = LEAT_POLICY_LEAT,
        .variant_count = order->variant_count,
        .worker_count = order->worker_count,
        .latency_items = order->items_max,
        .names = order->names,
        .accuracy = maker->accuracy,
        .latency_us = maker->latency_us,
        .objective_ns = order->objective_ns,
        .dispersion = order->dispersion_permille / 1e3,
        .late_penalty = LEAT_POLICY_PENALTY,
        .queue_max = QUEUE_MAX,
        .slack_bins = SLACK_BINS,
        .unit_shift = order->unit_shift,
        .drops_late = order->drops_late,
        .idle_levels = levels < IDLE_LEVELS ? levels : IDLE_LEVELS,
        .held_max = HELD_MAX,
        .hold = true,
        .latency_spread = order->spread_ppm < 10000000 ? order->spread_ppm / 1e6 : 10,
    };
    return leat_policy_problem_check(&maker->problem, 1);
}

static enum leat_status
begin(struct maker *maker)
{
    void *block = aligned_alloc(64, leat_round_up(leat_policy_problem_bytes(&maker->problem, maker->rate_count), 64));

    if (block == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a policy");
    }
    const enum leat_status status =
        leat_policy_begin(block, &maker->problem, maker->rates_qps, maker->rate_count, &maker->policy);
    if (status != LEAT_OK) {
        free(block);
    }
    return status;
}

/* Solves rungs until there are no more; the hardest, at high rates, first. */
static void *
solve_rungs(void *argument)
{
    struct maker *maker = argument;
    void *memory = NULL;
    size_t room = 0;

    for (;;) {
        const uint32_t taken = atomic_fetch_add_explicit(&maker->next, 1, memory_order_relaxed);
        if (taken >= maker->rate_count ||
            (maker->cancel != NULL && atomic_load_explicit(maker->cancel, memory_order_relaxed))) {
            break;
        }
        const uint32_t rung = maker->rate_count - 1 - taken;
        const size_t bytes = leat_policy_solve_bytes(&maker->problem, maker->rates_qps[rung]);
        if (bytes > room) {
            free(memory);
            memory = bytes < SIZE_MAX - 64 ? aligned_alloc(64, leat_round_up(bytes, 64)) : NULL;
            room = bytes;
        }
        if (memory == NULL) {
            atomic_store_explicit(&maker->failed, true, memory_order_relaxed);
            break;
        }
        leat_policy_solve(memory, &maker->problem, maker->policy, rung);
    }
    free(memory);
    return NULL;
}

/* Behind all that serves, though the daemon have a real-time priority. */
static void
stand_back(void)
{
    (void)pthread_setname_np(pthread_self(), "leat-solve");
    leat_slice_stand_back(NICE);
}

static void *
solver_main(void *maker)
{
    stand_back();
    return solve_rungs(maker);
}

/* This thread, and as many more as are wanted besides. */
static enum leat_status
solve(struct maker *maker)
{
    const uint32_t wanted = maker->order->threads < maker->rate_count ? maker->order->threads : maker->rate_count;
    pthread_t threads[LEAT_POLICY_RUNGS_MAX];
    uint32_t started = 0;

    while (started + 1 < wanted && pthread_create(&threads[started], NULL, solver_main, maker) == 0) {
        started++;
    }
    (void)solve_rungs(maker);
    for (uint32_t t = 0; t < started; t++) {
        LEAT_MUST(pthread_join(threads[t], NULL) == 0);
    }
    if (maker->cancel != NULL && atomic_load_explicit(maker->cancel, memory_order_relaxed)) {
        return LEAT_AGAIN;
    }
    return atomic_load_explicit(&maker->failed, memory_order_relaxed) ? LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a policy")
                                                                      : leat_policy_seal(maker->policy);
}

static enum leat_status
make(struct maker *maker)
{
    enum leat_status status = check_order(maker->order);

    if (status == LEAT_OK) {
        status = pose_problem(maker);
    }
    if (status == LEAT_OK) {
        choose_rates(maker);
        status = begin(maker);
    }
    return status == LEAT_OK ? solve(maker) : status;
}

/* All of it, for the ladder and the checks at the end are milliseconds too. */
static void *
maker_main(void *argument)
{
    struct maker *maker = argument;

    stand_back();
    maker->status = make(maker);
    if (maker->status != LEAT_OK) {
        (void)snprintf(maker->text, sizeof(maker->text), "%s", leat_error_text()); /* which is each thread's own */
    }
    return NULL;
}

enum leat_status
leat_policy_make(const struct leat_policy_order *order, const _Atomic bool *cancel, struct leat_policy **ret_policy)
{
    struct maker maker = {.order = order, .cancel = cancel};
    pthread_t thread;

    if (pthread_create(&thread, NULL, maker_main, &maker) != 0) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "cannot start thread leat-solve");
    }
    LEAT_MUST(pthread_join(thread, NULL) == 0);
    free(maker.accuracy);
    free(maker.latency_us);
    if (maker.status != LEAT_OK) {
        free(maker.policy);
        return maker.status == LEAT_AGAIN ? LEAT_AGAIN : LEAT_FAIL(maker.status, "%s", maker.text);
    }
    *ret_policy = maker.policy;
    return LEAT_OK;
}

uint32_t
leat_policy_dispersion(uint32_t mean_permille, uint64_t seen_ppm)
{
    const uint64_t least = LEAT_POLICY_POISSON_PERMILLE, mean = mean_permille > least ? mean_permille : least;
    const uint64_t seen = seen_ppm / 1000, bounded = seen < least ? least : seen > 2 * mean ? 2 * mean : seen;
    return (uint32_t)((7 * mean + bounded) / 8);
}

uint32_t
leat_policy_unit_shift(uint32_t before, uint64_t queries, uint64_t items, uint32_t items_max)
{
    const uint64_t unit = UINT64_C(1) << before;
    uint32_t shift = 0;

    if (queries == 0 || (4 * items >= 3 * unit * queries && 2 * items <= 5 * unit * queries && unit <= items_max)) {
        return before;
    }
    while (shift < LEAT_POLICY_UNIT_SHIFT_MAX && UINT64_C(2) << shift <= items / queries && UINT64_C(2) << shift <= items_max) {
        shift++;
    }
    return shift;
}

static bool
is_off(uint64_t a, uint64_t b, double most)
{
    const double ratio = (double)(a > b ? a : b) / (double)(a > b ? b : a);
    return !(ratio <= most);
}

bool
leat_policy_fits(const struct leat_policy *policy, uint32_t made_for_spread_ppm, const struct leat_policy_order *order)
{
    if (policy->unit_shift != order->unit_shift || policy->worker_count != order->worker_count ||
        is_off(policy->dispersion_permille, order->dispersion_permille, 1.5) ||
        order->rate_qps > leat_policy_rung(policy, policy->rung_count - 1)->rate_qps ||
        order->spread_ppm > made_for_spread_ppm + 50000 || made_for_spread_ppm > order->spread_ppm + 50000) {
        return false;
    }
    for (uint32_t v = 0; v < policy->variant_count; v++) {
        const uint64_t *made_ns = leat_policy_latency_ns(policy, v);
        const uint64_t *now_ns = order->latency_ns + (size_t)v * order->items_max;
        for (uint32_t items = 1; items <= policy->latency_items && items <= order->items_max; items *= 2) {
            const uint64_t made = made_ns[items - 1], now = now_ns[items - 1] > 0 ? now_ns[items - 1] : UINT64_MAX;
            if ((made <= policy->objective_ns || now <= policy->objective_ns) && made != now && is_off(made, now, 1.1)) {
                return false;
            }
        }
    }
    return true;
}

static void
hash_u64(struct sha256_ctx *hash, uint64_t number)
{
    uint8_t bytes[8];
    for (uint32_t i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(number >> 8 * i);
    }
    sha256_update(hash, sizeof(bytes), bytes);
}

static void
hash_text(struct sha256_ctx *hash, const char *text)
{
    hash_u64(hash, strlen(text));
    sha256_update(hash, strlen(text), (const uint8_t *)text);
}

void
leat_policy_order_key(const struct leat_policy_order *order, const char *host, char ret_key[LEAT_POLICY_KEY_BYTES])
{
    /* All of an order but its threads, which change nothing, and what solves it. */
    _Static_assert(sizeof(*order) == 88, "a field more: it belongs here and in the test of keys");
    const uint64_t numbers[] = {order->variant_count, order->rate_qps,     order->spread_ppm,          order->items_max,
                                order->objective_ns,  order->worker_count, order->dispersion_permille, order->drops_late,
                                order->rate_count,    order->unit_shift};
    struct sha256_ctx hash;
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_init(&hash);
    hash_text(&hash, LEAT_POLICY_MAKERS);
    hash_text(&hash, host);
    for (size_t i = 0; i < LEAT_COUNT_OF(numbers); i++) {
        hash_u64(&hash, numbers[i]);
    }
    for (uint32_t v = 0; v < order->variant_count; v++) {
        hash_text(&hash, order->names[v]);
        hash_u64(&hash, order->accuracy_ppm[v]);
        for (uint32_t i = 0; i < order->items_max; i++) {
            hash_u64(&hash, order->latency_ns[(size_t)v * order->items_max + i]);
        }
    }
    for (uint32_t r = 0; order->rates_qps != NULL && r < order->rate_count; r++) {
        hash_u64(&hash, order->rates_qps[r]);
    }
    sha256_digest(&hash, sizeof(digest), digest);
    for (size_t i = 0; i < sizeof(digest); i++) {
        (void)snprintf(ret_key + 2 * i, 3, "%02x", digest[i]);
    }
}

enum leat_status
leat_policy_copy(const void *bytes, size_t size, struct leat_policy **ret_policy)
{
    const struct leat_policy *checked;
    void *copy = malloc(size + 1);

    if (copy == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a policy");
    }
    memcpy(copy, bytes, size);
    const enum leat_status status = leat_policy_check(copy, size, &checked);
    if (status != LEAT_OK) {
        free(copy);
        return status;
    }
    *ret_policy = copy;
    return LEAT_OK;
}

enum leat_status
leat_policy_read(const char *path, struct leat_policy **ret_policy)
{
    const struct leat_policy *checked;
    struct stat info;
    FILE *file = fopen(path, "rb");

    if (file == NULL) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot read policy %s", path);
    }
    enum leat_status status = LEAT_OK;
    void *bytes = NULL;
    if (fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode) || (uint64_t)info.st_size > FILE_BYTES_MAX) {
        status = LEAT_FAIL(LEAT_ERR_PROTO, "%s is no file, or too large for a policy", path);
        goto out_close;
    }
    const size_t size = (size_t)info.st_size;
    bytes = malloc(size + 1);
    if (bytes == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for policy %s", path);
        goto out_close;
    }
    if (fread(bytes, 1, size, file) != size) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot read policy %s", path);
    } else {
        status = leat_policy_check(bytes, size, &checked);
        if (status != LEAT_OK) {
            status = leat_err_prefix(status, "policy %s", path);
        }
    }

out_close:
    (void)fclose(file);
    if (status != LEAT_OK) {
        free(bytes);
        return status;
    }
    *ret_policy = bytes;
    return LEAT_OK;
}
