/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/autoscale.h"

#include <string.h>

#include "base/status.h"
#include "sched/scale_joint.h"

#define APPLICATION      struct leat_autoscale_application
#define WAIT_SHARE_LEAST 16u /* an objective's part that a query is taken to be able to wait, were it less */

double
leat_autoscale_remember(struct leat_autoscale_memory *memory, double load_qps, uint64_t period_ns, uint64_t hold_ns)
{
    memory->age_ns += period_ns;
    if (memory->age_ns > hold_ns) {
        memory->before_qps = memory->now_qps;
        memory->now_qps = 0;
        memory->age_ns = 0;
    }
    memory->now_qps = load_qps > memory->now_qps ? load_qps : memory->now_qps;
    return memory->now_qps > memory->before_qps ? memory->now_qps : memory->before_qps;
}

uint32_t
leat_autoscale_batch(const struct leat_autoscale_variant *variant, uint64_t objective_ns)
{
    if (variant->batch_ns + variant->item_ns > objective_ns) {
        return 0;
    }
    if (2 * (variant->batch_ns + 2 * variant->item_ns) > objective_ns) {
        return 1;
    }
    const uint64_t most = variant->item_ns > 0 ? (objective_ns / 2 - variant->batch_ns) / variant->item_ns : variant->batch_max;
    return most < variant->batch_max ? (uint32_t)most : variant->batch_max;
}

uint64_t
leat_autoscale_capacity_mqps(const struct leat_autoscale_variant *variant, uint64_t objective_ns)
{
    const uint64_t batch = leat_autoscale_batch(variant, objective_ns);
    return batch > 0 ? batch * UINT64_C(1000000000000) / (variant->batch_ns + batch * variant->item_ns) : 0;
}

/* The objective, doubled until a variant keeps it. */
static uint64_t
kept_objective_ns(const APPLICATION *application)
{
    for (uint64_t objective_ns = application->objective_ns;; objective_ns *= 2) {
        for (uint32_t v = 0; v < application->variant_count; v++) {
            if (leat_autoscale_batch(&application->variants[v], objective_ns) > 0) {
                return objective_ns;
            }
        }
    }
}

/* With what is to be kept in hand where queries can wait for so long. */
static uint64_t
demand_mqps_of(const struct leat_autoscale_options *options, const APPLICATION *application, uint64_t wait_ns)
{
    const double steady_qps = options->headroom * application->load_qps;
    const double spread_qps = leat_joint_demand(application->load_qps, wait_ns, options->deviations);
    const uint64_t mqps = (uint64_t)(1000 * (steady_qps > spread_qps ? steady_qps : spread_qps) + 0.5);
    return mqps > 0 ? mqps : 1; /* whoever comes first is not to wait for a model */
}

uint64_t
leat_autoscale_demand_mqps(const struct leat_autoscale_options *options, const APPLICATION *application)
{
    return demand_mqps_of(options, application, kept_objective_ns(application));
}

uint64_t
leat_autoscale_carried_mqps(const struct leat_autoscale_options *options, const APPLICATION *application, uint32_t variant)
{
    const struct leat_autoscale_variant *of = &application->variants[variant];
    const uint64_t objective_ns = kept_objective_ns(application);
    const uint64_t capacity_mqps = leat_autoscale_capacity_mqps(of, objective_ns);

    if (capacity_mqps == 0) {
        return 0;
    }
    const uint64_t alone_ns = of->batch_ns + of->item_ns, least_ns = objective_ns / WAIT_SHARE_LEAST + 1;
    const uint64_t wait_ns = objective_ns - alone_ns > least_ns ? objective_ns - alone_ns : least_ns;
    const double share = (double)leat_autoscale_demand_mqps(options, application) / (double)demand_mqps_of(options, application, wait_ns);
    const uint64_t mqps = (uint64_t)((double)capacity_mqps * (share < 1 ? share : 1) + 0.5);
    return mqps > 0 ? mqps : 1;
}

uint64_t
leat_autoscale_start_price(const struct leat_autoscale_options *options, const struct leat_autoscale_variant *variant)
{
    return (uint64_t)((double)variant->price * (1 + options->load_weight_per_s * (double)variant->load_ns / 1e9));
}

static uint32_t
least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t
has(const APPLICATION *application, uint32_t v)
{
    return application->ready[v] + application->starting[v];
}

static uint64_t
price_of(const struct leat_autoscale_options *options, const APPLICATION *application, const uint32_t *instances)
{
    const uint64_t demand_mqps = leat_autoscale_demand_mqps(options, application);
    uint64_t price = 0, carried_mqps = 0;

    for (uint32_t v = 0; v < application->variant_count; v++) {
        const struct leat_autoscale_variant *variant = &application->variants[v];
        const uint32_t kept = least(instances[v], has(application, v));
        price += kept * variant->price + (instances[v] - kept) * leat_autoscale_start_price(options, variant);
        carried_mqps += instances[v] * leat_autoscale_carried_mqps(options, application, v);
    }
    return price + (carried_mqps < demand_mqps ? (demand_mqps - carried_mqps) * application->shed_price : 0);
}

uint64_t
leat_autoscale_price(const struct leat_autoscale_options *options, const APPLICATION *applications, uint32_t count)
{
    uint64_t price = 0;
    for (uint32_t a = 0; a < count; a++) {
        price += price_of(options, &applications[a], applications[a].aim);
    }
    return price;
}

/* ---- Resources ------------------------------------------------------------------------------------- */

struct room {
    int64_t units[LEAT_AUTOSCALE_RESOURCES_MAX]; /* below 0: too much is taken */
};

static void
take(const struct leat_autoscale_box *box, const struct leat_autoscale_variant *variant, int64_t instances, struct room *room)
{
    for (uint32_t r = 0; r < box->resource_count; r++) {
        room->units[r] -= instances * variant->uses[r];
    }
}

static struct room
room_of(const struct leat_autoscale_box *box)
{
    struct room room = {{0}};
    for (uint32_t r = 0; r < box->resource_count; r++) {
        room.units[r] = box->totals[r];
    }
    return room;
}

/* Beside all that is there. */
static struct room
room_left(const struct leat_autoscale_box *box, const APPLICATION *applications, uint32_t count)
{
    struct room room = room_of(box);
    for (uint32_t a = 0; a < count; a++) {
        for (uint32_t v = 0; v < applications[a].variant_count; v++) {
            take(box, &applications[a].variants[v], has(&applications[a], v) + applications[a].leaving[v], &room);
        }
    }
    return room;
}

static uint32_t
room_for(const struct leat_autoscale_box *box, const struct leat_autoscale_variant *variant, const struct room *room)
{
    int64_t most = LEAT_AUTOSCALE_INSTANCES_MAX;

    for (uint32_t r = 0; r < box->resource_count; r++) {
        if (variant->uses[r] > 0 && room->units[r] / variant->uses[r] < most) {
            most = room->units[r] / variant->uses[r];
        }
    }
    return most > 0 ? (uint32_t)most : 0;
}

static bool
fits(const struct leat_autoscale_box *box, const struct room *room)
{
    for (uint32_t r = 0; r < box->resource_count; r++) {
        if (room->units[r] < 0) {
            return false;
        }
    }
    return true;
}

/* What an application's instances take: all, or beside what runs those that are new. */
static void
take_instances(const struct leat_autoscale_box *box, const APPLICATION *application, const uint32_t *instances, bool beside,
               int64_t sign, struct room *room)
{
    for (uint32_t v = 0; v < application->variant_count; v++) {
        const uint32_t kept = beside ? least(instances[v], has(application, v)) : 0;
        take(box, &application->variants[v], sign * (int64_t)(instances[v] - kept), room);
    }
}

bool
leat_autoscale_fits(const struct leat_autoscale_box *box, const APPLICATION *applications, uint32_t count, bool beside)
{
    struct room room = beside ? room_left(box, applications, count) : room_of(box);
    for (uint32_t a = 0; a < count; a++) {
        take_instances(box, &applications[a], applications[a].aim, beside, 1, &room);
    }
    return fits(box, &room);
}

/* ---- Replicas of one variant ------------------------------------------------------------------------- */

static uint32_t
instances_for(uint64_t mqps, uint64_t capacity_mqps)
{
    const uint64_t instances = capacity_mqps > 0 ? (mqps + capacity_mqps - 1) / capacity_mqps : LEAT_AUTOSCALE_INSTANCES_MAX;
    return instances < LEAT_AUTOSCALE_INSTANCES_MAX ? (uint32_t)instances : LEAT_AUTOSCALE_INSTANCES_MAX;
}

void
leat_autoscale_aim_replicate(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
                             APPLICATION *applications, uint32_t count, const uint32_t *variants)
{
    struct room room = room_left(box, applications, count);

    for (uint32_t a = 0; a < count; a++) {
        APPLICATION *application = &applications[a];
        const struct leat_autoscale_variant *variant = &application->variants[variants[a]];
        const uint64_t alone_ns = variant->batch_ns + variant->item_ns;
        const uint64_t objective_ns = application->objective_ns > alone_ns ? application->objective_ns : alone_ns;
        const uint32_t needed = instances_for(leat_autoscale_demand_mqps(options, application),
                                              leat_autoscale_capacity_mqps(variant, objective_ns));
        const uint32_t present = has(application, variants[a]), more = needed > present ? needed - present : 0;
        const uint32_t started = least(more, room_for(box, variant, &room));

        take(box, variant, started, &room);
        memset(application->aim, 0, sizeof(application->aim));
        application->aim[variants[a]] = more > 0 ? present + started : needed;
        application->makes_room = false;
    }
}

/* ---- The paper's heuristic --------------------------------------------------------------------------- */

struct paper {
    const struct leat_autoscale_options *options;
    const struct leat_autoscale_box *box;
    APPLICATION *application;
    uint64_t demand_mqps, capacity_mqps; /* of what is there */
    struct room room;
};

static uint64_t
capacity_of(const struct paper *paper, uint32_t v)
{
    return leat_autoscale_carried_mqps(paper->options, paper->application, v);
}

/* What carries most of the load now. */
static uint32_t
running_variant(const struct paper *paper)
{
    uint32_t best = UINT32_MAX;
    uint64_t most_mqps = 0;

    for (uint32_t v = 0; v < paper->application->variant_count; v++) {
        const uint64_t mqps = has(paper->application, v) * capacity_of(paper, v);
        if (mqps > most_mqps) {
            most_mqps = mqps;
            best = v;
        }
    }
    return best;
}

/* Instances of u to replace all of v, and the change of the objective; false where it carries nothing or does not fit. */
static bool
replacement(const struct paper *paper, uint32_t v, uint32_t u, uint32_t *ret_instances, double *ret_price)
{
    const APPLICATION *application = paper->application;
    const struct leat_autoscale_variant *variant = &application->variants[u];
    const uint64_t others_mqps = paper->capacity_mqps - (v != UINT32_MAX ? has(application, v) * capacity_of(paper, v) : 0);
    const uint64_t missing_mqps = paper->demand_mqps > others_mqps ? paper->demand_mqps - others_mqps : 0;
    const uint32_t added = instances_for(missing_mqps, capacity_of(paper, u));

    if (capacity_of(paper, u) == 0 || added > room_for(paper->box, variant, &paper->room)) {
        return false;
    }
    *ret_instances = added;
    *ret_price = (double)added * (double)leat_autoscale_start_price(paper->options, variant) -
                 (v != UINT32_MAX ? (double)has(application, v) * (double)application->variants[v].price : 0);
    return true;
}

static void
replace(struct paper *paper, uint32_t v, uint32_t u, uint32_t instances)
{
    if (v != UINT32_MAX) {
        paper->application->aim[v] = 0;
    }
    paper->application->aim[u] += instances;
}

/* Replicate what runs, or replace it by what carries more: the cheaper; where neither fits, as many replicas as there is room for. */
static void
paper_up(struct paper *paper)
{
    const uint32_t running = running_variant(paper);
    const APPLICATION *application = paper->application;
    uint32_t replicas = 0, best = UINT32_MAX, best_instances = 0;
    double best_price = 0;

    for (uint32_t u = 0; u < application->variant_count; u++) {
        uint32_t instances;
        double price;
        if (u == running || (running != UINT32_MAX && capacity_of(paper, u) <= capacity_of(paper, running)) ||
            !replacement(paper, running, u, &instances, &price)) {
            continue;
        }
        if (best == UINT32_MAX || price < best_price) {
            best = u;
            best_instances = instances;
            best_price = price;
        }
    }
    if (running != UINT32_MAX) {
        const struct leat_autoscale_variant *variant = &application->variants[running];
        const uint32_t room = room_for(paper->box, variant, &paper->room);
        replicas = instances_for(paper->demand_mqps - paper->capacity_mqps, capacity_of(paper, running));
        const double price = (double)replicas * (double)leat_autoscale_start_price(paper->options, variant);
        if (best == UINT32_MAX || (replicas <= room && price <= best_price)) {
            paper->application->aim[running] += least(replicas, room);
            return;
        }
    }
    if (best != UINT32_MAX) {
        replace(paper, running, best, best_instances);
        return;
    }
    for (uint32_t u = 0; u < application->variant_count; u++) { /* nothing runs, and nothing carries it all */
        const uint32_t room = capacity_of(paper, u) > 0 ? room_for(paper->box, &application->variants[u], &paper->room) : 0;
        if (room * capacity_of(paper, u) > replicas) {
            replicas = room;
            best = u;
        }
    }
    if (best != UINT32_MAX) {
        paper->application->aim[best] = room_for(paper->box, &application->variants[best], &paper->room);
    }
}

/*
 * One fewer of the dearest that can be spared, or in place of all of a variant what costs less in sum, which is nothing where the
 * others carry the load: what saves more.
 */
static void
paper_down(struct paper *paper)
{
    APPLICATION *application = paper->application;
    uint32_t spared = UINT32_MAX, replaced = UINT32_MAX, best = UINT32_MAX, best_instances = 0;
    double best_price = 0;

    for (uint32_t v = 0; v < application->variant_count; v++) {
        if (has(application, v) > 0 && paper->capacity_mqps - capacity_of(paper, v) >= paper->demand_mqps &&
            -(double)application->variants[v].price < best_price) {
            spared = v;
            best_price = -(double)application->variants[v].price;
        }
    }
    for (uint32_t v = 0; v < application->variant_count; v++) {
        for (uint32_t u = 0; u < application->variant_count && has(application, v) > 0; u++) {
            uint32_t instances;
            double price;
            if (u != v && replacement(paper, v, u, &instances, &price) && price < best_price) {
                replaced = v;
                best = u;
                best_instances = instances;
                best_price = price;
            }
        }
    }
    if (best != UINT32_MAX) {
        replace(paper, replaced, best, best_instances);
    } else if (spared != UINT32_MAX) {
        application->aim[spared]--;
    }
}

void
leat_autoscale_aim_paper(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
                         APPLICATION *applications, uint32_t count)
{
    struct room room = room_left(box, applications, count);

    for (uint32_t a = 0; a < count; a++) {
        APPLICATION *application = &applications[a];
        struct paper paper = {.options = options, .box = box, .application = application, .room = room};
        paper.demand_mqps = leat_autoscale_demand_mqps(options, application);
        memset(application->aim, 0, sizeof(application->aim));
        application->makes_room = false;
        for (uint32_t v = 0; v < application->variant_count; v++) {
            application->aim[v] = has(application, v);
            paper.capacity_mqps += has(application, v) * capacity_of(&paper, v);
        }
        if (paper.capacity_mqps < paper.demand_mqps) {
            paper_up(&paper);
        } else {
            paper_down(&paper);
        }
        take_instances(box, application, application->aim, true, 1, &room);
    }
}

/* ---- Orders -------------------------------------------------------------------------------------------- */

struct move {
    uint64_t ready_mqps, present_mqps, demand_mqps;
    uint64_t wait_ns; /* the longest loading time of what is to be started */
    bool starts;
};

static struct move
look(const struct leat_autoscale_options *options, const APPLICATION *application)
{
    struct move move = {.demand_mqps = leat_autoscale_demand_mqps(options, application)};

    for (uint32_t v = 0; v < application->variant_count; v++) {
        const uint64_t capacity_mqps = leat_autoscale_carried_mqps(options, application, v);
        move.ready_mqps += application->ready[v] * capacity_mqps;
        move.present_mqps += has(application, v) * capacity_mqps;
        if (application->aim[v] > has(application, v)) {
            move.starts = true;
            move.wait_ns = application->variants[v].load_ns > move.wait_ns ? application->variants[v].load_ns : move.wait_ns;
        }
    }
    return move;
}

/* What loads goes before what serves, and that only as far as the rest carries the load. */
static uint32_t
spare(const APPLICATION *application, uint32_t v, uint64_t capacity_mqps, struct move *move)
{
    const uint32_t surplus = has(application, v) - application->aim[v];
    uint32_t stopped = least(surplus, application->starting[v]);

    while (stopped < surplus && move->ready_mqps - capacity_mqps >= move->demand_mqps) {
        move->ready_mqps -= capacity_mqps;
        stopped++;
    }
    return stopped;
}

void
leat_autoscale_move(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
                    APPLICATION *applications, uint32_t count, uint64_t period_ns)
{
    struct room room = room_left(box, applications, count);

    for (uint32_t a = 0; a < count; a++) {
        APPLICATION *application = &applications[a];
        struct move move = look(options, application);
        const bool lacks = move.present_mqps < move.demand_mqps;

        application->better_ns = move.starts && (!lacks || application->makes_room) ? application->better_ns + period_ns : 0;
        const bool settled = application->better_ns > move.wait_ns;
        for (uint32_t v = 0; v < application->variant_count; v++) {
            const struct leat_autoscale_variant *variant = &application->variants[v];
            const uint32_t present = has(application, v), aim = application->aim[v];
            application->start[v] = application->stop[v] = 0;
            application->surplus_ns[v] = present > aim ? application->surplus_ns[v] + period_ns : 0;
            if (aim > present && (lacks || settled)) {
                application->start[v] = least(aim - present, room_for(box, variant, &room));
                take(box, variant, application->start[v], &room);
            } else if (present > aim && application->makes_room && settled) {
                application->stop[v] = present - aim;
            } else if (present > aim && application->surplus_ns[v] > variant->load_ns) {
                application->stop[v] = spare(application, v, leat_autoscale_carried_mqps(options, application, v), &move);
            }
        }
    }
}
