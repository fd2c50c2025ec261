/* SPDX-License-Identifier: Apache-2.0 */
/* What the keeper looks at: arrivals, what waits, and what batches take, of each stage of what is scaled. Mutex held. */
#include <stdio.h>
#include <string.h>

#include "runtime/scale_keeper_private.h"

/* ABSENT: it is not there, or not to be scaled. UNSEEN: at this look; what was seen last holds. */
enum look { LOOK_SEEN, LOOK_UNSEEN, LOOK_ABSENT };

static enum look leave_out(struct leat_scale_application *scaled, enum look look, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Why it is not scaled, or as it was before. */
static enum look
leave_out(struct leat_scale_application *scaled, enum look look, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(scaled->trouble, sizeof(scaled->trouble), format, args);
    va_end(args);
    return look;
}

/* ---- A stage's application ------------------------------------------------------------------------------ */

/* False: the application has gone, or changed, or the daemon shuts down. The mutex was released meanwhile. */
static bool
copy_variant(struct leat_daemon *daemon, const struct leat_application *app, uint32_t variant)
{
    const uint32_t id = app->id;
    const uint64_t generation = app->generation;

    return leat_daemon_copy_profiles(daemon, app, variant, &daemon->scaling->copy) == LEAT_OK &&
           daemon->applications[id] == app && app->generation == generation;
}

/*
 * That most batches ran in since the last look; without any, that of before. Others' times do not count: a mix of them,
 * made of what ran with the cores that there were, would have less accurate and quicker variants confirm that this is
 * enough.
 */
static bool
find_variant(struct leat_daemon *daemon, const struct leat_application *app, struct leat_scale_stage *stage)
{
    const struct leat_profile_copy *copy = &daemon->scaling->copy;
    uint32_t most = 0;

    for (uint32_t v = 0; v < app->variant_count && app->variant_count > 1; v++) {
        uint32_t runs = 0;
        if (!copy_variant(daemon, app, v)) {
            return false;
        }
        for (uint32_t c = 0; c < daemon->class_count; c++) {
            runs += copy->profiles[c].number;
        }
        const uint32_t seen = stage->runs_seen[v], more = runs > seen ? runs - seen : 0; /* it can forget */
        if (more > most) {
            most = more;
            stage->variant = v;
        }
        stage->runs_seen[v] = runs;
    }
    return true;
}

static void
fill_times(const struct leat_scale_keeper *keeper, struct leat_scale_stage *stage, uint32_t batch_max,
           struct leat_joint_stage *joint)
{
    joint->cores_min = keeper->cores_min;
    joint->cores_max = keeper->cores_max;
    joint->batch_max = batch_max;
    for (uint32_t k = 0; k < keeper->class_count; k++) {
        joint->latency_ns[k] = stage->latency_ns[k];
        for (uint32_t cores = 1; cores <= keeper->cores_max; cores++) {
            const uint16_t own = keeper->class_of[k][cores];
            for (uint32_t items = 1; items <= batch_max; items++) {
                stage->latency_ns[k][(cores - 1) * batch_max + items - 1] =
                    own != UINT16_MAX ? leat_profile_predict(&keeper->copy.profiles[own], items) : 0;
            }
        }
    }
}

/* The sum of what its models took to load; they are loaded one after another. */
static uint64_t
load_ns(const struct leat_daemon *daemon, const struct leat_application *app)
{
    uint64_t sum_ns = 0;

    for (uint32_t m = 0; m < daemon->model_count; m++) {
        for (uint32_t v = 0; v < app->variant_count; v++) {
            sum_ns += daemon->models[m]->variant == app->variants[v] ? daemon->models[m]->load_ns : 0;
        }
    }
    return sum_ns;
}

/* That more wait than at the last look are reason to look before its time: twice what all instances take at once. */
static uint64_t
jump_items(const struct leat_scale_application *scaled, uint32_t s)
{
    const uint64_t at_once = (uint64_t)scaled->stages[s].part.ready * scaled->scaler.orders[s].batch;
    return 2 * (at_once > 0 ? at_once : 1);
}

/* Another one is the stage now. */
static void
begin_anew(const struct leat_application *app, struct leat_scale_stage *stage)
{
    memcpy(stage->name, app->name, sizeof(stage->name));
    stage->seen = stage->seen && stage->id == app->id; /* who takes another's place has its workers */
    stage->id = app->id;
    stage->generation = app->generation;
    stage->variant = 0;
    stage->calls = (struct leat_calls)LEAT_CALLS_INIT;
    memset(stage->runs_seen, 0, sizeof(stage->runs_seen));
}

/* Does another stage of what is scaled have the application? Its workers serve one of them. */
static bool
is_anothers(const struct leat_daemon *daemon, uint32_t unit, const struct leat_application *app)
{
    const struct leat_scale_keeper *keeper = daemon->scaling;

    for (uint32_t a = 0; a <= unit / LEAT_SCALE_STAGES_MAX; a++) {
        const struct leat_scale_application *scaled = &keeper->applications[a];
        for (uint32_t s = 0; s < scaled->scaler.joint.stage_count && leat_scale_unit(a, s) < unit; s++) {
            if (scaled->stages[s].id == app->id && (scaled->served || a == unit / LEAT_SCALE_STAGES_MAX)) {
                return true;
            }
        }
    }
    return false;
}

static enum look
look_at(struct leat_daemon *daemon, uint32_t a, uint32_t s, const char *name)
{
    const struct leat_scaling *options = &daemon->options.scaling;
    struct leat_scale_keeper *keeper = daemon->scaling;
    struct leat_scale_application *scaled = &keeper->applications[a];
    struct leat_scale_stage *stage = &scaled->stages[s];
    const struct leat_application *app = leat_daemon_find_application(daemon, name);

    if (app == NULL) {
        return leave_out(scaled, LOOK_ABSENT, "there is no application '%s'", name);
    }
    if (is_anothers(daemon, leat_scale_unit(a, s), app)) {
        return leave_out(scaled, LOOK_ABSENT, "application '%s' is scaled as a part of another, or twice in this one",
                         name);
    }
    if (stage->generation != app->generation) {
        begin_anew(app, stage);
    }
    if (daemon->server_done) { /* the dispatcher may still have the last copy */
        return leave_out(scaled, LOOK_ABSENT, "the daemon is shutting down");
    }
    keeper->copy.jump_items = jump_items(scaled, s);
    if (!find_variant(daemon, app, stage) || !copy_variant(daemon, app, stage->variant)) {
        return leave_out(scaled, stage->seen ? LOOK_UNSEEN : LOOK_ABSENT, "application '%s' is being changed", name);
    }
    const uint32_t items_max = app->selector->single ? 1 : app->sched_variants[stage->variant].items_max; /* that batches have */
    fill_times(keeper, stage, items_max < LEAT_SCALE_BATCH_MAX ? items_max : LEAT_SCALE_BATCH_MAX,
               &scaled->scaler.joint.stages[s]);
    stage->delay_ns = options->instance_delay_ns != LEAT_SCALING_DELAY_AUTO ? options->instance_delay_ns
                      : options->mode == LEAT_SCALING_HORIZONTAL            ? load_ns(daemon, app)
                                                                            : 0;
    stage->rate_qps = keeper->copy.rising_qps;
    stage->waiting_items = keeper->copy.waiting_items;
    stage->items = keeper->copy.items;
    stage->admitted_items = keeper->copy.admitted_items;
    stage->queries = keeper->copy.queries;
    stage->late_queries = keeper->copy.late_queries;
    stage->seen = true;
    return LOOK_SEEN;
}

/* ---- What comes, as a whole ------------------------------------------------------------------------------ */

/*
 * Each stage has a worker of its own: what is listed first has it. Who is left without is not looked at, nor is a look
 * asked for before its time when more waits for it.
 */
static bool
has_room(const struct leat_daemon *daemon, uint32_t a)
{
    struct leat_scale_application *all = daemon->scaling->applications;
    uint32_t stage_count = all[a].scaler.joint.stage_count;

    for (uint32_t before = 0; before < a; before++) {
        stage_count += all[before].served ? all[before].scaler.joint.stage_count : 0;
    }
    if (stage_count > daemon->options.worker_count) {
        (void)leave_out(&all[a], LOOK_ABSENT, "%u workers are too few for it beside what is listed before it",
                        daemon->options.worker_count);
        return false;
    }
    return true;
}

/* One stage, asked once for each item. */
static enum look
look_at_application(struct leat_daemon *daemon, uint32_t a, const struct leat_application *app)
{
    struct leat_scale_application *scaled = &daemon->scaling->applications[a];
    struct leat_joint_application *joint = &scaled->scaler.joint;

    if (app->latency_ns == 0) {
        return leave_out(scaled, LOOK_ABSENT, "it has no objective: give it a latency");
    }
    joint->objective_ns = app->latency_ns;
    joint->stage_count = joint->term_count = 1;
    joint->terms[0] = 0;
    joint->stages[0].calls = 1;
    return has_room(daemon, a) ? look_at(daemon, a, 0, daemon->options.scaling.applications[a].name) : LOOK_ABSENT;
}

/* ---- Pipelines ------------------------------------------------------------------------------------------- */

/* How many items each stage is asked for one of the pipeline's: those that the first refuses, no other is asked for. */
static void
count_calls(struct leat_scale_application *scaled)
{
    struct leat_joint_application *joint = &scaled->scaler.joint;

    joint->stages[0].calls = 1;
    for (uint32_t s = 1; s < joint->stage_count; s++) {
        leat_calls_count(&scaled->stages[s].calls, scaled->stages[0].admitted_items, scaled->stages[s].items);
        joint->stages[s].calls = scaled->stages[s].calls.each;
    }
}

static enum look
look_at_pipeline(struct leat_daemon *daemon, uint32_t a, const struct leat_pipeline *pipeline)
{
    struct leat_scale_application *scaled = &daemon->scaling->applications[a];
    struct leat_joint_application *joint = &scaled->scaler.joint;
    char names[LEAT_SCALE_STAGES_MAX][LEAT_NAME_MAX];
    uint32_t after[LEAT_SCALE_STAGES_MAX];
    const uint32_t stage_count = pipeline->stage_count;
    enum look look = LOOK_SEEN;

    _Static_assert(LEAT_PIPELINE_STAGES_MAX <= LEAT_SCALE_STAGES_MAX, "the solver knows as many stages");
    if (pipeline->latency_ns == 0) {
        return leave_out(scaled, LOOK_ABSENT, "it has no objective: give it a latency");
    }
    joint->objective_ns = pipeline->latency_ns;
    for (uint32_t s = 0; s < stage_count; s++) { /* it may go while its stages are looked at */
        memcpy(names[s], pipeline->stages[s].application_name, sizeof(names[s]));
        memcpy(scaled->stages[s].name, names[s], sizeof(names[s])); /* who asks meanwhile sees all of them */
        after[s] = pipeline->stages[s].after;
    }
    leat_joint_follow(joint, after, stage_count);
    if (!has_room(daemon, a)) {
        return LOOK_ABSENT;
    }
    for (uint32_t s = 0; s < stage_count && look != LOOK_ABSENT; s++) {
        const enum look stage_look = look_at(daemon, a, s, names[s]);
        look = stage_look > look ? stage_look : look;
    }
    if (look == LOOK_SEEN) {
        count_calls(scaled);
    }
    return look;
}

bool
leat_scale_look(struct leat_daemon *daemon, uint32_t a)
{
    const struct leat_scaling *options = &daemon->options.scaling;
    struct leat_scale_keeper *keeper = daemon->scaling;
    struct leat_scale_application *scaled = &keeper->applications[a];
    const struct leat_application *app = leat_daemon_find_application(daemon, options->applications[a].name);
    const struct leat_daemon_pipeline *own = leat_daemon_find_pipeline(daemon, options->applications[a].name);

    if (app == NULL && (own == NULL || own->pipeline == NULL || own->removing)) {
        (void)leave_out(scaled, LOOK_ABSENT, "there is no application or pipeline of that name");
        return false;
    }
    const enum look look = app != NULL ? look_at_application(daemon, a, app) : look_at_pipeline(daemon, a, own->pipeline);
    if (look != LOOK_SEEN) {
        return look == LOOK_UNSEEN && scaled->served;
    }
    scaled->scaler.joint.weight = options->applications[a].weight;
    leat_forecast_remember(&scaled->memory, scaled->stages[0].items, leat_monotonic_ns());
    scaled->foreseen_qps =
        options->forecast != LEAT_SCALING_FORESEES_NOTHING ? leat_forecast_foresee(&scaled->memory, options->forecast) : 0;
    scaled->trouble[0] = '\0';
    return true;
}
