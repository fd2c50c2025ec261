/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One application's part of the program is a knapsack that is to be covered: a depth-first search over its variants, best price for what
 * it carries first, bounded by the same with fractions of instances, and by a number of steps. Where answers for each do not
 * fit together, scarce resources get prices, by which each decides again; of many such rounds the cheapest that fits is improved by
 * deciding one or two applications anew in what the others leave.
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "base/status.h"
#include "sched/autoscale.h"

#define APPLICATION struct leat_autoscale_application
#define ITEMS_MAX   (2 * LEAT_AUTOSCALE_VARIANTS_MAX)
#define UNIT_PRICE_MAX 1e13
#define ITEM_PRICE_MAX 1e14 /* of LEAT_AUTOSCALE_INSTANCES_MAX it is still a number of 64 bits */

enum {
    STEPS_ALONE = 4000,
    STEPS_AGAIN = 2000, /* each time that an application is decided anew */
    ROUNDS = 40,
    PASSES = 4,
    PAIRS_APPLICATIONS_MAX = 32, /* more than that are not improved in pairs: those grow with the square */
};

struct room {
    int64_t units[LEAT_AUTOSCALE_RESOURCES_MAX];
};

/* Instances of a variant that run, or new ones. */
struct item {
    uint32_t variant, limit;
    uint64_t capacity_mqps, price;
    double rate; /* price for a unit of capacity */
    uint32_t uses[LEAT_AUTOSCALE_RESOURCES_MAX];
};

struct search {
    struct item items[ITEMS_MAX]; /* best rate first */
    uint32_t item_count, resource_count, steps;
    uint64_t shed_price;
    struct room room;
    uint64_t best_price;
    uint32_t taken[ITEMS_MAX], best[ITEMS_MAX];
};

/* At least what the items from i on cost that carry so much, in fractions of instances. */
static double
bound(const struct search *search, uint32_t i, uint64_t missing_mqps)
{
    double price = 0;

    for (; i < search->item_count && missing_mqps > 0; i++) {
        const struct item *item = &search->items[i];
        if (item->rate >= (double)search->shed_price) {
            break;
        }
        const uint64_t most_mqps = item->limit * item->capacity_mqps;
        const uint64_t carried_mqps = most_mqps < missing_mqps ? most_mqps : missing_mqps;
        price += (double)carried_mqps * item->rate;
        missing_mqps -= carried_mqps;
    }
    return price + (double)missing_mqps * (double)search->shed_price;
}

static uint32_t
most_of(const struct search *search, const struct item *item, uint64_t missing_mqps)
{
    const uint64_t needed = (missing_mqps + item->capacity_mqps - 1) / item->capacity_mqps;
    int64_t most = needed < item->limit ? (int64_t)needed : item->limit;

    for (uint32_t r = 0; r < search->resource_count; r++) {
        if (item->uses[r] > 0 && search->room.units[r] / item->uses[r] < most) {
            most = search->room.units[r] / item->uses[r];
        }
    }
    return most > 0 ? (uint32_t)most : 0;
}

static void
take(struct search *search, const struct item *item, int64_t instances)
{
    for (uint32_t r = 0; r < search->resource_count; r++) {
        search->room.units[r] -= instances * item->uses[r];
    }
}

static void
descend(struct search *search, uint32_t i, uint64_t missing_mqps, uint64_t price)
{
    const uint64_t with_shed = price + missing_mqps * search->shed_price;

    if (with_shed < search->best_price) {
        search->best_price = with_shed;
        memcpy(search->best, search->taken, sizeof(search->best));
    }
    /* Prices are whole: what is no cheaper by a half is not cheaper. */
    if (missing_mqps == 0 || i == search->item_count || search->steps == 0 ||
        (double)price + bound(search, i, missing_mqps) > (double)search->best_price - 0.5) {
        return;
    }
    search->steps--;
    const struct item *item = &search->items[i];
    for (uint32_t n = most_of(search, item, missing_mqps) + 1; n-- > 0;) {
        const uint64_t carried_mqps = n * item->capacity_mqps;
        take(search, item, n);
        search->taken[i] = n;
        descend(search, i + 1, carried_mqps < missing_mqps ? missing_mqps - carried_mqps : 0, price + n * item->price);
        search->taken[i] = 0;
        take(search, item, -(int64_t)n);
    }
}

/* ---- All of them ------------------------------------------------------------------------------------- */

struct joint {
    const struct leat_autoscale_options *options;
    const struct leat_autoscale_box *box;
    APPLICATION *applications;
    uint32_t count;
    bool beside;
    struct room room;                                  /* for all that counts */
    double unit_prices[LEAT_AUTOSCALE_RESOURCES_MAX];  /* of scarce resources, in this round */
    uint32_t plan[LEAT_AUTOSCALE_APPLICATIONS_MAX][LEAT_AUTOSCALE_VARIANTS_MAX];
    uint64_t best_price;                               /* that of the applications' aims; UINT64_MAX: none yet */
};

static void
add_item(struct search *search, const struct joint *joint, const struct item *what, bool counts)
{
    struct item item = *what;
    double price = (double)item.price;
    uint32_t at = search->item_count;

    for (uint32_t r = 0; r < joint->box->resource_count; r++) {
        item.uses[r] = counts ? item.uses[r] : 0;
        price += joint->unit_prices[r] * item.uses[r];
    }
    item.price = (uint64_t)(price < ITEM_PRICE_MAX ? price : ITEM_PRICE_MAX);
    item.rate = (double)item.price / (double)item.capacity_mqps;
    item.limit = most_of(search, &item, UINT64_MAX - item.capacity_mqps);
    if (item.limit == 0) {
        return;
    }
    for (; at > 0 && (search->items[at - 1].rate > item.rate ||
                      (search->items[at - 1].rate == item.rate && search->items[at - 1].capacity_mqps < item.capacity_mqps));
         at--) {
        search->items[at] = search->items[at - 1];
    }
    search->items[at] = item;
    search->item_count++;
}

/* In this room, at the round's prices. False: not all was searched. */
static bool
decide_one(struct joint *joint, uint32_t a, const struct room *room, uint32_t steps)
{
    const APPLICATION *application = &joint->applications[a];
    struct search search = {.resource_count = joint->box->resource_count,
                            .steps = steps,
                            .shed_price = application->shed_price,
                            .room = *room,
                            .best_price = UINT64_MAX};

    for (uint32_t v = 0; v < application->variant_count; v++) {
        const struct leat_autoscale_variant *variant = &application->variants[v];
        struct item item = {.variant = v,
                            .limit = application->ready[v] + application->starting[v],
                            .capacity_mqps = leat_autoscale_carried_mqps(joint->options, application, v),
                            .price = variant->price};
        memcpy(item.uses, variant->uses, sizeof(item.uses));
        if (item.capacity_mqps == 0) {
            continue;
        }
        if (item.limit > 0) {
            add_item(&search, joint, &item, !joint->beside);
        }
        item.limit = LEAT_AUTOSCALE_INSTANCES_MAX;
        item.price = leat_autoscale_start_price(joint->options, variant);
        add_item(&search, joint, &item, true);
    }
    descend(&search, 0, leat_autoscale_demand_mqps(joint->options, application), 0);
    memset(joint->plan[a], 0, sizeof(joint->plan[a]));
    for (uint32_t i = 0; i < search.item_count; i++) {
        joint->plan[a][search.items[i].variant] += search.best[i];
    }
    return search.steps > 0;
}

/* sign 1: takes what application a's plan uses; -1: gives it back. */
static void
take_plan(const struct joint *joint, uint32_t a, int64_t sign, struct room *room)
{
    const APPLICATION *application = &joint->applications[a];

    for (uint32_t v = 0; v < application->variant_count; v++) {
        const uint32_t present = application->ready[v] + application->starting[v], n = joint->plan[a][v];
        const uint32_t counted = !joint->beside ? n : n > present ? n - present : 0;
        for (uint32_t r = 0; r < joint->box->resource_count; r++) {
            room->units[r] -= sign * (int64_t)counted * application->variants[v].uses[r];
        }
    }
}

static bool
fits(const struct joint *joint, const struct room *room)
{
    for (uint32_t r = 0; r < joint->box->resource_count; r++) {
        if (room->units[r] < 0) {
            return false;
        }
    }
    return true;
}

static struct room
room_beside(const struct joint *joint, uint32_t skipped, uint32_t skipped_too)
{
    struct room room = joint->room;
    for (uint32_t a = 0; a < joint->count; a++) {
        if (a != skipped && a != skipped_too) {
            take_plan(joint, a, 1, &room);
        }
    }
    return room;
}

static uint64_t
price_of(struct joint *joint, uint32_t a)
{
    APPLICATION *application = &joint->applications[a];
    uint32_t aim[LEAT_AUTOSCALE_VARIANTS_MAX];

    memcpy(aim, application->aim, sizeof(aim));
    memcpy(application->aim, joint->plan[a], sizeof(aim));
    const uint64_t price = leat_autoscale_price(joint->options, application, 1);
    memcpy(application->aim, aim, sizeof(aim));
    return price;
}

/* The plan fits: it is kept where it is the cheapest so far. */
static void
offer(struct joint *joint)
{
    uint64_t price = 0;

    for (uint32_t a = 0; a < joint->count; a++) {
        price += price_of(joint, a);
    }
    if (price < joint->best_price) {
        joint->best_price = price;
        for (uint32_t a = 0; a < joint->count; a++) {
            memcpy(joint->applications[a].aim, joint->plan[a], sizeof(joint->plan[a]));
        }
    }
}

/* Each in what those before it leave: in another order each round. */
static void
decide_in_turn(struct joint *joint, uint32_t round)
{
    struct room room = joint->room;

    for (uint32_t i = 0; i < joint->count; i++) {
        const uint32_t a = (round + (round % 2 ? i : joint->count - i)) % joint->count;
        (void)decide_one(joint, a, &room, STEPS_AGAIN);
        take_plan(joint, a, 1, &room);
    }
    offer(joint);
}

/* Prices go up where too much is taken and down where something is left, by factors that shrink whenever they turn. */
static void
price_resources(struct joint *joint)
{
    double factors[LEAT_AUTOSCALE_RESOURCES_MAX], lowest[LEAT_AUTOSCALE_RESOURCES_MAX];
    bool rising[LEAT_AUTOSCALE_RESOURCES_MAX] = {false};
    struct room plenty;

    for (uint32_t r = 0; r < joint->box->resource_count; r++) {
        double price = 0;
        for (uint32_t a = 0; a < joint->count; a++) {
            price += (double)joint->applications[a].variants[0].price;
        }
        factors[r] = 16;
        plenty.units[r] = INT64_MAX;
        lowest[r] = price / (double)(joint->box->totals[r] + 1) / 64;
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct room room = joint->room;
        decide_in_turn(joint, round);
        for (uint32_t a = 0; a < joint->count; a++) {
            (void)decide_one(joint, a, &plenty, STEPS_AGAIN);
            take_plan(joint, a, 1, &room);
        }
        if (fits(joint, &room)) {
            offer(joint);
        }
        for (uint32_t r = 0; r < joint->box->resource_count; r++) {
            const bool rises = room.units[r] < 0;
            if (joint->unit_prices[r] > 0 && rises != rising[r]) {
                factors[r] = sqrt(factors[r]);
            }
            rising[r] = rises;
            if (rises) {
                const double price = joint->unit_prices[r] * factors[r];
                joint->unit_prices[r] = price < lowest[r] ? lowest[r] : price < UNIT_PRICE_MAX ? price : UNIT_PRICE_MAX;
            } else {
                joint->unit_prices[r] /= factors[r];
            }
        }
    }
}

/*
 * a and then b anew in what the others leave; where `more` is not NULL, a without what b has and one more instance of that variant uses.
 * True where that is cheaper, else all is as it was.
 */
static bool
improve(struct joint *joint, uint32_t a, uint32_t b, const struct leat_autoscale_variant *more)
{
    uint32_t before[2][LEAT_AUTOSCALE_VARIANTS_MAX];
    struct room room = room_beside(joint, a, b), room_of_a = room;
    const uint64_t price = price_of(joint, a) + (a != b ? price_of(joint, b) : 0);

    memcpy(before[0], joint->plan[a], sizeof(before[0]));
    memcpy(before[1], joint->plan[b], sizeof(before[1]));
    if (more != NULL) {
        take_plan(joint, b, 1, &room_of_a);
        for (uint32_t r = 0; r < joint->box->resource_count; r++) {
            room_of_a.units[r] -= more->uses[r];
        }
    }
    (void)decide_one(joint, a, &room_of_a, STEPS_AGAIN);
    if (a != b) {
        take_plan(joint, a, 1, &room);
        memset(joint->unit_prices, 0, sizeof(joint->unit_prices)); /* the last of them pays what it costs */
        (void)decide_one(joint, b, &room, STEPS_AGAIN);
    }
    if (price_of(joint, a) + (a != b ? price_of(joint, b) : 0) < price) {
        return true;
    }
    memcpy(joint->plan[a], before[0], sizeof(before[0]));
    memcpy(joint->plan[b], before[1], sizeof(before[1]));
    return false;
}

/* b takes what a does without at prices of 0, at those of the rounds, and for one more instance of b. */
static bool
improve_pair(struct joint *joint, const double *unit_prices, uint32_t a, uint32_t b)
{
    bool improved = false;

    memset(joint->unit_prices, 0, sizeof(joint->unit_prices));
    improved = improve(joint, a, b, NULL);
    memcpy(joint->unit_prices, unit_prices, sizeof(joint->unit_prices));
    improved = improve(joint, a, b, NULL) || improved;
    memset(joint->unit_prices, 0, sizeof(joint->unit_prices));
    for (uint32_t v = 0; v < joint->applications[b].variant_count; v++) {
        improved = improve(joint, a, b, &joint->applications[b].variants[v]) || improved;
    }
    return improved;
}

static void
polish(struct joint *joint)
{
    double unit_prices[LEAT_AUTOSCALE_RESOURCES_MAX];
    bool improved = true;

    memcpy(unit_prices, joint->unit_prices, sizeof(unit_prices));
    for (uint32_t a = 0; a < joint->count; a++) {
        memcpy(joint->plan[a], joint->applications[a].aim, sizeof(joint->plan[a]));
    }
    for (uint32_t pass = 0; pass < PASSES && improved; pass++) {
        improved = false;
        for (uint32_t a = 0; a < joint->count; a++) {
            memset(joint->unit_prices, 0, sizeof(joint->unit_prices));
            improved = improve(joint, a, a, NULL) || improved;
            for (uint32_t b = 0; b < joint->count && joint->count <= PAIRS_APPLICATIONS_MAX; b++) {
                improved = (a != b && improve_pair(joint, unit_prices, a, b)) || improved;
            }
        }
    }
    offer(joint);
}

void
leat_autoscale_solve(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
                     APPLICATION *applications, uint32_t count, bool beside)
{
    struct joint joint = {.options = options, .box = box, .applications = applications, .count = count, .beside = beside,
                          .best_price = UINT64_MAX};
    bool complete = true;

    LEAT_ASSERT(count <= LEAT_AUTOSCALE_APPLICATIONS_MAX && box->resource_count <= LEAT_AUTOSCALE_RESOURCES_MAX);

    for (uint32_t r = 0; r < box->resource_count; r++) {
        int64_t units = box->totals[r];
        for (uint32_t a = 0; a < count && beside; a++) {
            for (uint32_t v = 0; v < applications[a].variant_count; v++) {
                units -= (int64_t)(applications[a].ready[v] + applications[a].starting[v] + applications[a].leaving[v]) *
                         applications[a].variants[v].uses[r];
            }
        }
        joint.room.units[r] = units > 0 ? units : 0;
    }
    for (uint32_t a = 0; a < count; a++) {
        applications[a].makes_room = false;
        complete = decide_one(&joint, a, &joint.room, STEPS_ALONE) && complete;
    }
    const struct room room = room_beside(&joint, UINT32_MAX, UINT32_MAX);
    if (fits(&joint, &room)) {
        offer(&joint);
        if (complete) {
            return;
        }
    }
    price_resources(&joint);
    polish(&joint);
}

static bool
sheds(const struct leat_autoscale_options *options, const APPLICATION *application)
{
    uint64_t carried_mqps = 0;

    for (uint32_t v = 0; v < application->variant_count; v++) {
        carried_mqps += application->aim[v] * leat_autoscale_carried_mqps(options, application, v);
    }
    return carried_mqps < leat_autoscale_demand_mqps(options, application);
}

void
leat_autoscale_aim_least(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
                         APPLICATION *applications, uint32_t count)
{
    uint32_t beside[LEAT_AUTOSCALE_APPLICATIONS_MAX][LEAT_AUTOSCALE_VARIANTS_MAX];
    bool short_of = false;

    leat_autoscale_solve(options, box, applications, count, true);
    for (uint32_t a = 0; a < count; a++) {
        memcpy(beside[a], applications[a].aim, sizeof(beside[a]));
        short_of = short_of || sheds(options, &applications[a]);
    }
    if (!short_of) {
        return;
    }
    const uint64_t price = leat_autoscale_price(options, applications, count);
    leat_autoscale_solve(options, box, applications, count, false);
    const bool cheaper = leat_autoscale_price(options, applications, count) < price;
    for (uint32_t a = 0; a < count; a++) {
        if (cheaper) {
            applications[a].makes_room = true;
        } else {
            memcpy(applications[a].aim, beside[a], sizeof(beside[a]));
        }
    }
}
