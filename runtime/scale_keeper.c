/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "runtime/log.h"
#include "runtime/offline.h"
#include "runtime/scale_keeper_private.h"

#define SECOND_NS UINT64_C(1000000000)

const char *const leat_scaling_modes[LEAT_SCALING_MODES] = {"off", "leat", "horizontal", "vertical"};

/* ---- What is decided; on the keeper's thread alone --------------------------------------------------- */

static struct leat_scale_part
part_of(const struct leat_scale_worker *workers, uint32_t worker_count, uint32_t unit)
{
    struct leat_scale_part part = {0};

    for (uint32_t w = 0; w < worker_count; w++) {
        if (workers[w].application == unit) {
            part.ready += !workers[w].starting;
            part.starting += workers[w].starting;
            part.cores += workers[w].cores;
        }
    }
    return part;
}

/* Of its instances; 0 where it has none. */
static uint32_t
class_of(const struct leat_daemon *daemon, uint32_t unit)
{
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        if (daemon->scaling->workers[w].application == unit) {
            return daemon->scaling->workers[w].class;
        }
    }
    return 0;
}

/* What it has, as the scaler sees it, and is to have. */
static void
describe_stage(const struct leat_daemon *daemon, uint32_t a, uint32_t s, uint32_t instances_min, uint32_t instances_max)
{
    const struct leat_scale_keeper *keeper = daemon->scaling;
    struct leat_scale_application *scaled = &daemon->scaling->applications[a];
    const uint32_t unit = leat_scale_unit(a, s);
    const struct leat_scale_part part = part_of(keeper->workers, daemon->options.worker_count, unit);
    const struct leat_scaler_order *order = &scaled->scaler.orders[s];
    const uint64_t waiting_items = scaled->stages[s].waiting_items, room = part.ready > 0 ? order->batch : 0;
    const uint64_t waiting = waiting_items > room ? waiting_items - room : 0;

    scaled->scaler.stages[s] = (struct leat_scaler_stage){
        .ready = part.ready,
        .starting = part.starting,
        .worker_class = class_of(daemon, unit),
        .cores = part.ready > 0 ? order->cores : keeper->cores_min,
        .waiting = waiting < UINT32_MAX ? (uint32_t)waiting : UINT32_MAX,
        .instances_min = instances_min,
        .instances_max = instances_max,
    };
}

/* Each stage leaves a worker to each other. In mode vertical all have as many workers, the first some more. */
static void
describe_stages(const struct leat_daemon *daemon)
{
    struct leat_scale_keeper *keeper = daemon->scaling;
    const struct leat_scaling *options = &daemon->options.scaling;
    const bool fixed = options->mode == LEAT_SCALING_VERTICAL;
    const uint32_t worker_count = daemon->options.worker_count;
    uint32_t stage_count = 0, number = 0;

    for (uint32_t a = 0; a < options->application_count; a++) {
        stage_count += keeper->applications[a].served ? keeper->applications[a].scaler.joint.stage_count : 0;
    }
    LEAT_ASSERT(stage_count <= worker_count); /* the looks saw to it */
    for (uint32_t a = 0; a < options->application_count; a++) {
        const struct leat_scale_application *scaled = &keeper->applications[a];
        for (uint32_t s = 0; scaled->served && s < scaled->scaler.joint.stage_count; s++, number++) {
            const uint32_t share = worker_count / stage_count + (number < worker_count % stage_count);
            describe_stage(daemon, a, s, fixed ? share : 0, fixed ? share : worker_count - stage_count + 1);
        }
    }
}

/* All cores but those that are gone. */
static struct leat_joint_box
box_present(struct leat_daemon *daemon)
{
    const struct leat_scale_keeper *keeper = daemon->scaling;
    struct leat_joint_box box = keeper->box;
    uint32_t gone[LEAT_SCHED_WORKERS_MAX];

    leat_daemon_gone_pools(daemon, gone);
    for (uint32_t p = 0; p < LEAT_SCHED_WORKERS_MAX; p++) {
        uint32_t *cores = &box.classes[keeper->pool_class[p]].cores;
        *cores -= gone[p] < *cores ? gone[p] : *cores;
    }
    return box;
}

/* Mutex held, released meanwhile: it may take some milliseconds. What others see changes once it is held again. */
static void
solve(struct leat_daemon *daemon, const struct leat_scaler_options *options)
{
    struct leat_scale_keeper *keeper = daemon->scaling;
    struct leat_scaler_application *served[LEAT_SCALER_APPLICATIONS_MAX];
    uint32_t of[LEAT_SCALER_APPLICATIONS_MAX], count = 0;

    for (uint32_t a = 0; a < daemon->options.scaling.application_count; a++) {
        if (keeper->applications[a].served) {
            served[count] = &keeper->decided[count];
            keeper->decided[count] = keeper->applications[a].scaler;
            of[count++] = a;
        }
    }
    if (count == 0) {
        return;
    }
    const struct leat_joint_box box = box_present(daemon);
    if (count != keeper->decided_count ||
        memcmp(of, keeper->decided_of, count * sizeof(of[0])) != 0) {
        memcpy(keeper->decided_of, of, count * sizeof(of[0]));
        keeper->decided_count = count;
        keeper->state = (struct leat_scaler_state){0}; /* it is about others */
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    leat_scaler_decide(options, &box, &keeper->state, served, count, keeper->memory);
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    for (uint32_t i = 0; i < count; i++) {
        keeper->applications[of[i]].scaler = keeper->decided[i];
    }
}

static void
decide(struct leat_daemon *daemon, bool between, struct leat_scale_wanted wanted[LEAT_SCALE_UNITS])
{
    struct leat_scale_keeper *keeper = daemon->scaling;
    const struct leat_scaling *options = &daemon->options.scaling;
    struct leat_scaler_options scaler = {
        .deviations = 2,
        .hold = (uint32_t)(options->hold_ns / options->interval_ns) + (options->hold_ns < options->interval_ns),
        .settle = (uint32_t)((options->settle_ns + options->interval_ns - 1) / options->interval_ns),
        .between = between,
    };

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        scaler.workers[keeper->workers[w].class]++;
    }
    describe_stages(daemon);
    solve(daemon, &scaler);
    memset(wanted, 0, LEAT_SCALE_UNITS * sizeof(wanted[0]));
    for (uint32_t a = 0; a < options->application_count; a++) {
        const struct leat_scale_application *scaled = &keeper->applications[a];
        for (uint32_t s = 0; scaled->served && s < scaled->scaler.joint.stage_count; s++) {
            const struct leat_scaler_order *order = &scaled->scaler.orders[s];
            wanted[leat_scale_unit(a, s)] =
                (struct leat_scale_wanted){.instances = order->instances,
                                           .cores = order->cores,
                                           .class = order->worker_class,
                                           .delays = scaled->stages[s].delay_ns > 0 && scaled->scaler.stages[s].ready > 0};
        }
    }
}

/* ---- What is carried out ------------------------------------------------------------------------------- */

/* As they are to be now, not all by this thread's doing: who serves an application that goes serves all from then on. */
static void
see_workers(struct leat_daemon *daemon, uint32_t *ret_free_cores)
{
    struct leat_scale_keeper *keeper = daemon->scaling;
    const uint64_t now_ns = leat_monotonic_ns();

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        struct leat_daemon_held held;
        leat_daemon_held(daemon, w, &held);
        keeper->workers[w].has = held.cpu_count;
        keeper->workers[w].cores = held.target.cores;
        keeper->serves[w] = held.target.application;
        if (keeper->workers[w].starting && now_ns >= keeper->due_ns[w]) {
            keeper->workers[w].starting = false;
        }
    }
    (void)leat_daemon_free_pools(daemon, ret_free_cores);
}

/* Whether all that it was decided about are there, or another that took over as it. */
static bool
all_there(const struct leat_daemon *daemon)
{
    const struct leat_scale_keeper *keeper = daemon->scaling;

    for (uint32_t a = 0; a < daemon->options.scaling.application_count; a++) {
        const struct leat_scale_application *scaled = &keeper->applications[a];
        for (uint32_t s = 0; scaled->served && s < scaled->scaler.joint.stage_count; s++) {
            const struct leat_application *app = daemon->applications[scaled->stages[s].id];
            if (app == NULL || strcmp(app->name, scaled->stages[s].name) != 0) {
                return false;
            }
        }
    }
    return true;
}

static struct leat_scale_stage *
stage_of(struct leat_scale_keeper *keeper, uint32_t unit)
{
    return &keeper->applications[unit / LEAT_SCALE_STAGES_MAX].stages[unit % LEAT_SCALE_STAGES_MAX];
}

/* What is to be another way. */
static uint32_t
list_changes(const struct leat_daemon *daemon, const struct leat_scale_worker *planned,
             struct leat_daemon_arrangement *changes)
{
    struct leat_scale_keeper *keeper = daemon->scaling;
    uint32_t count = 0;

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        const struct leat_scale_worker *worker = &planned[w];
        const bool owned = worker->application != LEAT_SCALE_NOBODY;
        const struct leat_daemon_arrangement wanted = {
            .worker = w,
            .cores = (uint16_t)worker->cores,
            .application = worker->starting ? LEAT_ARRANGED_FOR_NOBODY
                           : owned          ? stage_of(keeper, worker->application)->id
                                            : LEAT_ARRANGED_FOR_ALL,
        };
        if (wanted.cores != keeper->workers[w].cores || (wanted.cores > 0 && wanted.application != keeper->serves[w])) {
            changes[count++] = wanted;
        }
    }
    return count;
}

static void
note_change(struct leat_daemon *daemon, uint32_t a, uint32_t s, const struct leat_scale_part *to)
{
    struct leat_scale_keeper *keeper = daemon->scaling;
    const struct leat_scale_application *scaled = &keeper->applications[a];
    const struct leat_scale_stage *stage = &scaled->stages[s];
    struct leat_scale_change *change = &keeper->history[keeper->changes++ % LEAT_SCALE_CHANGES_KEPT];
    const struct leat_scale_part *from = &stage->part;
    char why[sizeof(change->why)], counted[32] = "";

    *change = (struct leat_scale_change){.looked_ns = keeper->looked_ns,
                                         .at_ns = leat_monotonic_ns(),
                                         .early = keeper->early,
                                         .application = a,
                                         .from = *from,
                                         .to = *to};
    memcpy(change->stage, stage->name, sizeof(change->stage));
    if (scaled->shortfall.factor > 1) {
        (void)snprintf(counted, sizeof(counted), ", counted %.2f times", scaled->shortfall.factor);
    }
    (void)snprintf(why, sizeof(why), "%.0f items/s come, %.0f are foreseen, %llu wait%s", stage->rate_qps, scaled->foreseen_qps,
                   (unsigned long long)stage->waiting_items, counted);
    memcpy(change->why, scaled->served ? why : scaled->trouble, sizeof(why));
    leat_log(LEAT_LOG_INFO, "application '%s': %u instances on %u cores and %u that start, before %u on %u and %u: %s",
             stage->name, to->ready, to->cores, to->starting, from->ready, from->cores, from->starting, change->why);
}

/* Who has fewer instances than it is to have, or is to have none: the first of them. */
static void
note_shortage(struct leat_daemon *daemon, const struct leat_scale_wanted *wanted)
{
    struct leat_scale_keeper *keeper = daemon->scaling;
    char trouble[sizeof(keeper->trouble)] = "";

    for (uint32_t unit = 0; unit < LEAT_SCALE_UNITS && trouble[0] == '\0'; unit++) {
        const struct leat_scale_application *scaled = &keeper->applications[unit / LEAT_SCALE_STAGES_MAX];
        const struct leat_scale_stage *stage = stage_of(keeper, unit);
        const uint32_t has = stage->part.ready + stage->part.starting;
        const uint32_t wants = wanted[unit].instances;
        if (!scaled->served || unit % LEAT_SCALE_STAGES_MAX >= scaled->scaler.joint.stage_count) {
            continue;
        }
        if (has == 0 && wants == 0) {
            (void)snprintf(trouble, sizeof(trouble), "'%s' has no instances: none of its load can be carried in time",
                           stage->name);
        } else if (has < wants) {
            (void)snprintf(trouble, sizeof(trouble), "'%s' has %u of %u instances: no worker has cores for more",
                           stage->name, has, wants);
        }
    }
    if (strcmp(trouble, keeper->trouble) != 0) {
        memcpy(keeper->trouble, trouble, sizeof(trouble));
        if (trouble[0] != '\0') {
            leat_log(LEAT_LOG_WARNING, "%s", trouble);
        }
    }
}

/* They are to be as planned from now on. Mutex held. */
static void
commit(struct leat_daemon *daemon, const struct leat_scale_wanted *wanted, const struct leat_scale_worker *planned)
{
    struct leat_scale_keeper *keeper = daemon->scaling;
    const uint64_t now_ns = leat_monotonic_ns();

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        if (planned[w].starting &&
            !(keeper->workers[w].starting && keeper->workers[w].application == planned[w].application)) {
            keeper->due_ns[w] = now_ns + stage_of(keeper, planned[w].application)->delay_ns;
        }
        keeper->workers[w] = planned[w];
    }
    for (uint32_t a = 0; a < daemon->options.scaling.application_count; a++) {
        for (uint32_t s = 0; s < LEAT_SCALE_STAGES_MAX; s++) {
            struct leat_scale_stage *stage = &keeper->applications[a].stages[s];
            const struct leat_scale_part part = part_of(planned, daemon->options.worker_count, leat_scale_unit(a, s));
            if (memcmp(&part, &stage->part, sizeof(part)) != 0) {
                keeper->applications[a].changed = true;
                note_change(daemon, a, s, &part);
                stage->part = part;
            }
        }
    }
    note_shortage(daemon, wanted);
}

static void
note_failure(struct leat_scale_keeper *keeper, const char *why)
{
    if (strncmp(keeper->trouble, why, sizeof(keeper->trouble) - 1) != 0) {
        (void)snprintf(keeper->trouble, sizeof(keeper->trouble), "%s", why);
        leat_log(LEAT_LOG_WARNING, "workers stay as they are: %s", why);
    }
}

/* Mutex held, released while the workers are told. Returns how many are to change. */
static uint32_t
carry_out(struct leat_daemon *daemon, const struct leat_scale_wanted *wanted, const uint32_t *free_cores)
{
    static const char shutting_down[] = "the daemon is shutting down";
    struct leat_scale_keeper *keeper = daemon->scaling;
    struct leat_scale_worker planned[LEAT_SCHED_WORKERS_MAX];
    struct leat_daemon_arrangement changes[LEAT_SCHED_WORKERS_MAX];
    struct leat_scale_plan_input input = {.workers = keeper->workers,
                                          .worker_count = daemon->options.worker_count,
                                          .free_cores = free_cores,
                                          .pool_count = daemon->options.worker_count,
                                          .wanted = wanted,
                                          .application_count = LEAT_SCALE_UNITS};

    for (uint32_t unit = 0; unit < LEAT_SCALE_UNITS; unit++) {
        input.parks = input.parks || wanted[unit].instances > 0;
    }
    input.parks = input.parks && !leat_offline_has_work(daemon->offline);
    leat_scale_assign(&input, planned);
    const uint32_t count = list_changes(daemon, planned, changes);
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    const enum leat_status status = count > 0 ? leat_daemon_arrange(daemon, changes, count, NULL) : LEAT_OK;
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    keeper->decisions++;
    if (status == LEAT_OK) {
        commit(daemon, wanted, planned);
    } else if (!keeper->stop && !daemon->server_done) {
        note_failure(keeper, strcmp(leat_error_text(), shutting_down) == 0 ? shutting_down : leat_error_text());
    }
    return status == LEAT_OK ? count : 0;
}

/* Looks before their time that change nothing come ever later; looks in their time shorten that again. */
static void
rest(struct leat_daemon *daemon, bool changed, bool told)
{
    struct leat_scale_keeper *keeper = daemon->scaling;
    const uint64_t interval_ns = daemon->options.scaling.interval_ns;

    if (changed || !told) {
        keeper->rest_ns = LEAT_SCALE_REST_NS;
    } else if (keeper->early) {
        keeper->rest_ns = keeper->rest_ns < interval_ns / 2 ? 2 * keeper->rest_ns : interval_ns;
    } else {
        keeper->rest_ns = keeper->rest_ns > 2 * LEAT_SCALE_REST_NS ? keeper->rest_ns / 2 : LEAT_SCALE_REST_NS;
    }
}

/* All that it is to have of workers is in force, and was at the last look. */
static bool
is_settled(const struct leat_daemon *daemon, uint32_t a)
{
    const struct leat_scale_keeper *keeper = daemon->scaling;
    bool settled = keeper->applications[a].served && !keeper->applications[a].changed;

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        const struct leat_scale_worker *worker = &keeper->workers[w];
        const bool own = worker->application != LEAT_SCALE_NOBODY && worker->application / LEAT_SCALE_STAGES_MAX == a;
        settled = settled && (!own || (!worker->starting && worker->has == worker->cores));
    }
    return settled;
}

/* What is late though it should not be makes the load count for more. */
static void
learn_shortfalls(struct leat_daemon *daemon, const uint32_t *free_cores)
{
    struct leat_scale_keeper *keeper = daemon->scaling;
    uint32_t left = 0;

    for (uint32_t p = 0; p < daemon->options.worker_count; p++) {
        left += free_cores[p];
    }
    for (uint32_t a = 0; a < daemon->options.scaling.application_count; a++) {
        struct leat_scale_application *scaled = &keeper->applications[a];
        uint64_t late = 0;
        for (uint32_t s = 0; s < scaled->scaler.joint.stage_count; s++) {
            late += scaled->stages[s].late_queries;
        }
        if (!keeper->early) {
            const double before = scaled->shortfall.factor;
            leat_shortfall_look(&scaled->shortfall, scaled->stages[0].queries, late, is_settled(daemon, a), left > 0);
            scaled->changed = false;
            if (scaled->shortfall.factor != before) {
                leat_log(LEAT_LOG_INFO, "'%s': its load counts %.2f times, before %.2f: by how much of it was late with what should do",
                         daemon->options.scaling.applications[a].name, scaled->shortfall.factor, before);
            }
        }
        scaled->scaler.rate_qps = scaled->stages[0].rate_qps * scaled->shortfall.factor;
        scaled->scaler.expected_qps = scaled->foreseen_qps * scaled->shortfall.factor;
    }
}

/* Mutex held, released meanwhile. `between`: before its time. `told`: of a jump, since the look before. */
static void
look_around(struct leat_daemon *daemon, bool between, bool told)
{
    struct leat_scale_keeper *keeper = daemon->scaling;
    struct leat_scale_wanted wanted[LEAT_SCALE_UNITS];
    uint32_t free_cores[LEAT_SCHED_WORKERS_MAX];

    keeper->early = between;
    keeper->looked_ns = leat_monotonic_ns();
    for (uint32_t a = 0; a < daemon->options.scaling.application_count && !keeper->stop; a++) {
        keeper->applications[a].served = leat_scale_look(daemon, a);
    }
    if (keeper->stop || daemon->server_done) {
        return;
    }
    see_workers(daemon, free_cores);
    learn_shortfalls(daemon, free_cores);
    decide(daemon, between, wanted);
    if (keeper->stop || daemon->server_done || !all_there(daemon)) {
        keeper->jumped = true; /* another look is next */
        keeper->rest_ns = LEAT_SCALE_REST_NS;
        return;
    }
    see_workers(daemon, free_cores); /* somebody may have changed them meanwhile */
    rest(daemon, carry_out(daemon, wanted, free_cores) > 0, told);
}

static void *
keeper_main(void *argument)
{
    struct leat_daemon *daemon = argument;
    struct leat_scale_keeper *keeper = daemon->scaling;
    const uint64_t interval_ns = daemon->options.scaling.interval_ns;
    uint64_t next_ns = leat_monotonic_ns();

    (void)pthread_setname_np(pthread_self(), "leat-scaling");
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    while (!keeper->stop) {
        const uint64_t soonest_ns = keeper->looked_ns + keeper->rest_ns;
        const bool early = keeper->jumped && soonest_ns < next_ns;
        const uint64_t now_ns = leat_monotonic_ns(), due_ns = early ? soonest_ns : next_ns;
        const struct timespec due = {(time_t)(due_ns / SECOND_NS), (long)(due_ns % SECOND_NS)};
        if (now_ns < due_ns) {
            const int waited = pthread_cond_timedwait(&keeper->turn, &daemon->mutex, &due);
            LEAT_ASSERT(waited == 0 || waited == ETIMEDOUT);
            continue;
        }
        const bool between = now_ns < next_ns, told = keeper->jumped;
        next_ns = between ? next_ns : now_ns + interval_ns;
        keeper->jumped = false;
        look_around(daemon, between, told);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return NULL;
}

/* ---- Life ------------------------------------------------------------------------------------------------ */

/* The solver's class of a worker: its class' name. False: there are too many. */
static bool
find_class(struct leat_daemon *daemon, uint32_t w, uint32_t *ret_class)
{
    struct leat_scale_keeper *keeper = daemon->scaling;
    const char *name = daemon->classes[daemon->options.workers[w].worker_class].name;
    uint32_t k = 0;

    while (k < keeper->class_count && strcmp(keeper->class_names[k], name) != 0) {
        k++;
    }
    if (k == LEAT_JOINT_CLASSES_MAX) {
        return false;
    }
    if (k == keeper->class_count) {
        keeper->class_names[keeper->class_count++] = name;
        memset(keeper->class_of[k], 0xff, sizeof(keeper->class_of[k]));
    }
    *ret_class = k;
    return true;
}

static void
add_worker(struct leat_daemon *daemon, uint32_t w, uint32_t class)
{
    struct leat_scale_keeper *keeper = daemon->scaling;
    uint32_t sizes = 0;

    for (uint32_t cores = 1; cores <= LEAT_SCALE_CORES_MAX; cores++) {
        uint16_t own;
        if (leat_daemon_class_of(daemon, w, cores, &own)) {
            sizes |= UINT32_C(1) << (cores - 1);
            keeper->class_of[class][cores] = own;
        }
    }
    const uint32_t least = leat_scale_least(sizes);
    if (daemon->options.scaling.mode == LEAT_SCALING_HORIZONTAL) {
        sizes &= -sizes;
    }
    const uint32_t most = leat_scale_most(sizes, LEAT_SCALE_CORES_MAX);
    keeper->cores_min = keeper->cores_min == 0 || least < keeper->cores_min ? least : keeper->cores_min;
    keeper->cores_max = most > keeper->cores_max ? most : keeper->cores_max;
    keeper->workers[w] = (struct leat_scale_worker){.pool = leat_daemon_pool(daemon, w),
                                                    .class = class,
                                                    .sizes = sizes,
                                                    .cores = daemon->options.workers[w].core_count,
                                                    .application = LEAT_SCALE_NOBODY};
    keeper->box.classes[class].cores += daemon->options.workers[w].core_count;
    keeper->pool_class[leat_daemon_pool(daemon, w)] = class;
}

/* What a core costs beside others: by the classes' prices, where they have any. */
static uint32_t
price_of(const struct leat_daemon *daemon, const char *name)
{
    for (uint32_t c = 0; c < daemon->class_count; c++) {
        const uint64_t price = daemon->classes[c].price_micro / daemon->team_sizes[c] / 1000;
        if (strcmp(daemon->classes[c].name, name) == 0 && price > 0) {
            return price < UINT16_MAX ? (uint32_t)price : UINT16_MAX;
        }
    }
    return 1;
}

static enum leat_status
survey(struct leat_daemon *daemon)
{
    struct leat_scale_keeper *keeper = daemon->scaling;
    uint64_t cells = 1;
    bool few = true;
    uint32_t class, free_cores[LEAT_SCHED_WORKERS_MAX];

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        if (!find_class(daemon, w, &class)) {
            return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "scaling knows up to %u classes of workers: this machine has more",
                             LEAT_JOINT_CLASSES_MAX);
        }
        add_worker(daemon, w, class);
        if (keeper->workers[w].sizes == 0) {
            return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "scaling knows workers of up to %u cores: worker %u has more",
                             LEAT_SCALE_CORES_MAX, w);
        }
    }
    const uint32_t pool_count = leat_daemon_free_pools(daemon, free_cores);
    for (uint32_t p = 0; p < pool_count; p++) {
        keeper->box.classes[keeper->pool_class[p]].cores += free_cores[p];
    }
    keeper->box.class_count = keeper->class_count;
    for (uint32_t k = 0; k < keeper->class_count; k++) {
        keeper->box.classes[k].price = price_of(daemon, keeper->class_names[k]);
        cells *= keeper->box.classes[k].cores + 1ull;
        few = few && keeper->box.classes[k].cores <= LEAT_JOINT_CORES_MAX;
    }
    return few && cells <= UINT64_C(1) << 20
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                           "scaling cannot decide about %u classes of so many cores: list fewer, or set scaling.mode to off",
                           keeper->class_count);
}

enum leat_status
leat_scale_keeper_create(struct leat_daemon *daemon)
{
    const struct leat_scaling *options = &daemon->options.scaling;

    if (options->mode == LEAT_SCALING_OFF) {
        return LEAT_OK;
    }
    LEAT_ASSERT(options->application_count >= 1 && options->application_count <= LEAT_SCALER_APPLICATIONS_MAX);
    LEAT_ASSERT(options->interval_ns > 0 && options->hold_ns / options->interval_ns <= LEAT_SCALER_HOLD_MAX);
    struct leat_scale_keeper *keeper = calloc(1, sizeof(*keeper));
    if (keeper == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to scale applications");
    }
    leat_daemon_init_timed_condition(&keeper->turn);
    keeper->rest_ns = LEAT_SCALE_REST_NS;
    for (uint32_t a = 0; a < options->application_count; a++) {
        keeper->applications[a].shortfall = (struct leat_shortfall)LEAT_SHORTFALL_INIT;
    }
    daemon->scaling = keeper;
    const enum leat_status status = survey(daemon);
    if (status != LEAT_OK) {
        return status;
    }
    const size_t bytes = leat_round_up(leat_joint_bytes(&keeper->box, options->application_count), LEAT_CACHE_LINE);
    keeper->memory = aligned_alloc(LEAT_CACHE_LINE, bytes);
    return keeper->memory != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to scale applications");
}

enum leat_status
leat_scale_keeper_start(struct leat_daemon *daemon)
{
    struct leat_scale_keeper *keeper = daemon->scaling;

    if (keeper == NULL) {
        return LEAT_OK;
    }
    const int error = pthread_create(&keeper->thread, NULL, keeper_main, daemon);
    if (error != 0) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "cannot start thread leat-scaling: %s", strerror(error));
    }
    keeper->started = true;
    return LEAT_OK;
}

void
leat_scale_keeper_wake(void *context)
{
    struct leat_daemon *daemon = context;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    daemon->scaling->jumped = true;
    LEAT_MUST(pthread_cond_broadcast(&daemon->scaling->turn) == 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
}

void
leat_scale_keeper_stop(struct leat_daemon *daemon)
{
    struct leat_scale_keeper *keeper = daemon->scaling;

    if (keeper == NULL || !keeper->started) {
        return;
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    keeper->stop = true;
    LEAT_MUST(pthread_cond_broadcast(&keeper->turn) == 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    LEAT_MUST(pthread_join(keeper->thread, NULL) == 0);
    keeper->started = false;
}

void
leat_scale_keeper_destroy(struct leat_daemon *daemon)
{
    struct leat_scale_keeper *keeper = daemon->scaling;

    if (keeper == NULL) {
        return;
    }
    LEAT_MUST(pthread_cond_destroy(&keeper->turn) == 0);
    free(keeper->memory);
    free(keeper);
    daemon->scaling = NULL;
}
