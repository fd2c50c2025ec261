/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/autoscale.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/simulate/events.h"
#include "tools/simulate/random.h"

#define SECOND_NS       UINT64_C(1000000000)
#define BUCKET_NS       UINT64_C(100000000) /* that arrivals are counted by */
#define WINDOW_BUCKETS  20u                 /* that a rate is measured in */
#define INSTANCES_MAX   512u                /* of an application */
#define BATCH_MAX       64u
#define EXACT_NODES_MAX 10000u              /* of an integer program: no clock, so that all machines find the same */
#define SHED_MULTIPLE   100u                /* of what carrying it costs on the dearest variant */

const char *const autoscale_policy_names[AUTOSCALE_POLICIES] = {"static-cpu",    "static-gpu", "replicate-cpu",
                                                                "replicate-gpu", "infaas",     "leat", "ilp"};

enum instance_state { ABSENT, LOADING, READY, LEAVING /* at the end of its batch */ };

struct instance {
    enum instance_state state;
    uint32_t variant;
    uint64_t due_ns;  /* of its loading, or of its batch's end: events at other times are of what was there before */
    uint32_t running; /* queries of its batch; 0: idle */
    uint32_t batch[BATCH_MAX];
};

struct service {
    const struct autoscale_application *application;
    struct instance *instances; /* [INSTANCES_MAX] */
    uint32_t instance_count;    /* those behind are absent */
    uint32_t *queue;            /* [query_count of it] */
    uint32_t head, tail, room;
    uint32_t by_speed[LEAT_AUTOSCALE_VARIANTS_MAX]; /* variants, the fastest first */
    uint32_t *buckets;                              /* arrivals by BUCKET_NS */
    struct leat_autoscale_memory memory;
    uint32_t only;                                  /* static, replicate: the variant */
};

enum { EVENT_DECIDE = AUTOSCALE_APPLICATIONS_MAX * INSTANCES_MAX };

struct run {
    const struct autoscale_options *options;
    struct autoscale_result *result;
    uint32_t count; /* of applications */
    struct service services[AUTOSCALE_APPLICATIONS_MAX];
    struct leat_autoscale_application *decided; /* [count] */
    uint64_t *arrived_ns, *latencies_ns;        /* [query_count]; of what was answered */
    uint8_t *application_of;                    /* [query_count] */
    uint32_t query_count, next_query, bucket_count;
    uint64_t answered, now_ns, held_since_ns;
    double held_prices[AUTOSCALE_HARDWARE]; /* of all instances, a second */
    struct event *heap;
    uint32_t heap_count, heap_room;
};

/* ---- Time and what is held ----------------------------------------------------------------------- */

/* Called before anything that is held changes. */
static void
account(struct run *run)
{
    struct autoscale_result *result = run->result;

    for (uint64_t from_ns = run->held_since_ns; from_ns < run->now_ns;) {
        const uint64_t second = from_ns / SECOND_NS;
        const uint64_t end_ns = (second + 1) * SECOND_NS < run->now_ns ? (second + 1) * SECOND_NS : run->now_ns;
        for (uint32_t h = 0; h < AUTOSCALE_HARDWARE && second < result->second_count; h++) {
            const double cost = run->held_prices[h] * (double)(end_ns - from_ns) / (double)SECOND_NS;
            result->seconds[second].used += cost;
            result->costs[h] += cost;
            result->cost += cost;
        }
        from_ns = end_ns;
    }
    run->held_since_ns = run->now_ns;
}

static void
hold(struct run *run, const struct service *service, uint32_t variant, double sign)
{
    account(run);
    run->held_prices[service->application->hardware[variant]] +=
        sign * (double)service->application->variants[variant].price * AUTOSCALE_PRICE_UNIT;
}

static enum leat_status
push(struct run *run, uint64_t at_ns, uint32_t what)
{
    if (run->heap_count == run->heap_room) {
        const uint32_t room = run->heap_room > 0 ? 2 * run->heap_room : 4096;
        struct event *more = realloc(run->heap, room * sizeof(more[0]));
        if (more == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u events", room);
        }
        run->heap = more;
        run->heap_room = room;
    }
    events_push(run->heap, &run->heap_count, (struct event){.at_ns = at_ns, .worker = what});
    return LEAT_OK;
}

/* ---- Queries --------------------------------------------------------------------------------------- */

static void
violate(struct run *run, uint32_t query)
{
    run->result->seconds[run->arrived_ns[query] / SECOND_NS].violated++;
}

static void
answer(struct run *run, const struct service *service, uint32_t query)
{
    const uint64_t took_ns = run->now_ns - run->arrived_ns[query];

    run->latencies_ns[run->answered++] = took_ns;
    if (took_ns <= service->application->objective_ns) {
        run->result->in_time++;
    } else {
        run->result->late++;
        violate(run, query);
    }
}

/* What would be too old at its end on this variant, alone. */
static void
drop_old(struct run *run, struct service *service, const struct leat_autoscale_variant *variant)
{
    const double limit_ns = run->options->drop_multiple * (double)service->application->objective_ns;
    const uint64_t end_ns = run->now_ns + variant->batch_ns + variant->item_ns;

    while (limit_ns > 0 && service->head < service->tail) {
        const uint32_t query = service->queue[service->head];
        if ((double)(end_ns - run->arrived_ns[query]) <= limit_ns) {
            return;
        }
        service->head++;
        run->result->dropped++;
        violate(run, query);
    }
}

/* As many as end in time for the oldest, one at least. */
static uint32_t
batch_now(const struct run *run, const struct service *service, const struct leat_autoscale_variant *variant)
{
    const uint64_t deadline_ns = run->arrived_ns[service->queue[service->head]] + service->application->objective_ns;
    const uint64_t left_ns = deadline_ns > run->now_ns + variant->batch_ns ? deadline_ns - run->now_ns - variant->batch_ns : 0;
    const uint64_t in_time = left_ns / variant->item_ns;
    uint64_t batch = service->tail - service->head;

    batch = batch < variant->batch_max ? batch : variant->batch_max;
    batch = batch < in_time ? batch : in_time;
    return batch > 0 ? (uint32_t)batch : 1;
}

static bool
is_idle(const struct instance *instance, uint32_t variant)
{
    return instance->state == READY && instance->running == 0 && instance->variant == variant;
}

static enum leat_status
dispatch(struct run *run, uint32_t a)
{
    struct service *service = &run->services[a];
    const struct autoscale_application *application = service->application;
    bool faster = false; /* one is ready that is */

    for (uint32_t rank = 0; rank < application->variant_count; rank++) {
        const uint32_t v = service->by_speed[rank];
        const struct leat_autoscale_variant *variant = &application->variants[v];
        bool present = false;
        for (uint32_t i = 0; i < service->instance_count; i++) {
            struct instance *instance = &service->instances[i];
            present = present || (instance->state == READY && instance->variant == v);
            if (!is_idle(instance, v)) {
                continue;
            }
            if (!faster) {
                drop_old(run, service, variant); /* the queue is in the order of arrival: what is old is in front */
            }
            if (service->head == service->tail) {
                return LEAT_OK;
            }
            const uint64_t alone_end_ns = run->now_ns + variant->batch_ns + variant->item_ns;
            if (faster && alone_end_ns > run->arrived_ns[service->queue[service->head]] + application->objective_ns) {
                break;
            }
            instance->running = batch_now(run, service, variant);
            memcpy(instance->batch, &service->queue[service->head], instance->running * sizeof(instance->batch[0]));
            service->head += instance->running;
            instance->due_ns = run->now_ns + variant->batch_ns + instance->running * variant->item_ns;
            const enum leat_status status = push(run, instance->due_ns, a * INSTANCES_MAX + i);
            if (status != LEAT_OK) {
                return status;
            }
        }
        faster = faster || present;
    }
    return LEAT_OK;
}

/* ---- Orders ---------------------------------------------------------------------------------------- */

static enum leat_status
start_instance(struct run *run, uint32_t a, uint32_t variant, uint64_t load_ns)
{
    struct service *service = &run->services[a];
    uint32_t i = 0;

    while (i < INSTANCES_MAX && service->instances[i].state != ABSENT) {
        i++;
    }
    if (i == INSTANCES_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s would have more than %u instances", service->application->name, INSTANCES_MAX);
    }
    service->instance_count = i + 1 > service->instance_count ? i + 1 : service->instance_count;
    hold(run, service, variant, 1);
    service->instances[i] = (struct instance){.state = load_ns > 0 ? LOADING : READY, .variant = variant, .due_ns = run->now_ns + load_ns};
    run->result->starts += load_ns > 0;
    return load_ns > 0 ? push(run, run->now_ns + load_ns, a * INSTANCES_MAX + i) : LEAT_OK;
}

/* One that loads goes at once, its event finds nothing; else an idle one; else one at the end of its batch. */
static void
stop_instance(struct run *run, struct service *service, uint32_t variant)
{
    struct instance *best = NULL;

    for (uint32_t i = 0; i < service->instance_count; i++) {
        struct instance *instance = &service->instances[i];
        if (instance->variant == variant && instance->state == LOADING) {
            best = instance;
            break;
        }
        if (instance->variant == variant && instance->state == READY && (best == NULL || instance->running == 0)) {
            best = instance;
        }
    }
    if (best != NULL && best->running > 0) {
        best->state = LEAVING;
    } else if (best != NULL) {
        best->state = ABSENT;
        hold(run, service, variant, -1);
    }
}

/* ---- Policies --------------------------------------------------------------------------------------- */

static struct leat_autoscale_options
paper_options(const struct run *run)
{
    struct leat_autoscale_options options = run->options->leat;
    options.deviations = 0;
    return options;
}

static double
rate_in(const struct run *run, const struct service *service, uint64_t buckets)
{
    const uint64_t present = run->now_ns / BUCKET_NS;
    uint64_t sum = 0;

    buckets = present < buckets ? present : buckets;
    for (uint64_t b = 1; b <= buckets; b++) {
        sum += present - b < run->bucket_count ? service->buckets[present - b] : 0;
    }
    return buckets > 0 ? (double)sum * (double)SECOND_NS / (double)(buckets * BUCKET_NS) : 0;
}

/* Of the last two seconds; leat goes by a longer time where the two differ by no more than chance. */
static double
rate_of(const struct run *run, const struct service *service)
{
    const double short_qps = rate_in(run, service, WINDOW_BUCKETS);
    const double long_qps = rate_in(run, service, run->options->steady_ns / BUCKET_NS);
    const double window_s = (double)(WINDOW_BUCKETS * BUCKET_NS) / (double)SECOND_NS;
    const bool paper = run->options->policy != AUTOSCALE_LEAT && run->options->policy != AUTOSCALE_ILP;

    return paper || fabs(short_qps - long_qps) > 3 * sqrt(long_qps / window_s) ? short_qps : long_qps;
}

static bool
is_static(enum autoscale_policy policy)
{
    return policy == AUTOSCALE_STATIC_CPU || policy == AUTOSCALE_STATIC_GPU;
}

/* Price of so many queries a second on this variant alone; by the instance where only one is asked about. */
static double
price_of(const struct leat_autoscale_variant *variant, uint64_t objective_ns, double qps)
{
    const double instances = ceil(1000 * qps / (double)leat_autoscale_capacity_mqps(variant, objective_ns));
    return (instances > 1 ? instances : 1) * (double)variant->price;
}

/* Of one hardware and in time, the cheapest; else of any and in time; else of that hardware, the fastest; else the first. */
static uint32_t
choose_only(const struct run *run, const struct autoscale_application *application, double qps)
{
    const enum autoscale_policy policy = run->options->policy;
    const enum autoscale_hardware hardware =
        policy == AUTOSCALE_STATIC_CPU || policy == AUTOSCALE_REPLICATE_CPU ? AUTOSCALE_CPU : AUTOSCALE_GPU;
    uint32_t best = UINT32_MAX, fastest = UINT32_MAX;

    for (uint32_t pass = 0; pass < 2 && best == UINT32_MAX; pass++) {
        for (uint32_t v = 0; v < application->variant_count; v++) {
            const struct leat_autoscale_variant *variant = &application->variants[v];
            const bool of = application->hardware[v] == hardware;
            if (of && (fastest == UINT32_MAX || variant->batch_ns + variant->item_ns < application->variants[fastest].batch_ns +
                                                                                           application->variants[fastest].item_ns)) {
                fastest = v;
            }
            if ((of || pass == 1) && leat_autoscale_batch(variant, application->objective_ns) > 0 &&
                (best == UINT32_MAX || price_of(variant, application->objective_ns, qps) <
                                           price_of(&application->variants[best], application->objective_ns, qps))) {
                best = v;
            }
        }
    }
    return best != UINT32_MAX ? best : fastest != UINT32_MAX ? fastest : 0;
}

static bool
sheds(const struct leat_autoscale_options *options, const struct leat_autoscale_application *application)
{
    uint64_t mqps = 0;

    for (uint32_t v = 0; v < application->variant_count; v++) {
        mqps += application->aim[v] * leat_autoscale_carried_mqps(options, application, v);
    }
    return mqps < leat_autoscale_demand_mqps(options, application);
}

struct aims {
    uint32_t of[AUTOSCALE_APPLICATIONS_MAX][LEAT_AUTOSCALE_VARIANTS_MAX];
};

static void
keep_aims(const struct run *run, struct aims *aims)
{
    for (uint32_t a = 0; a < run->count; a++) {
        memcpy(aims->of[a], run->decided[a].aim, sizeof(aims->of[a]));
    }
}

static void
set_aims(struct run *run, const struct aims *aims, bool makes_room)
{
    for (uint32_t a = 0; a < run->count; a++) {
        memcpy(run->decided[a].aim, aims->of[a], sizeof(aims->of[a]));
        run->decided[a].makes_room = makes_room;
    }
}

/* Returns their price. What is not proved is the cheaper of two answers. */
static uint64_t
solve_exactly(struct run *run, bool beside, struct aims *ret_aims)
{
    const struct autoscale_options *options = run->options;

    run->result->programs++;
    const bool proved = options->exact(&options->leat, &options->box, run->decided, run->count, beside, EXACT_NODES_MAX);
    const uint64_t price = leat_autoscale_price(&options->leat, run->decided, run->count);
    keep_aims(run, ret_aims);
    if (proved) {
        return price;
    }
    run->result->unproved++;
    leat_autoscale_solve(&options->leat, &options->box, run->decided, run->count, beside);
    const uint64_t other = leat_autoscale_price(&options->leat, run->decided, run->count);
    if (other < price) {
        keep_aims(run, ret_aims);
    }
    return other < price ? other : price;
}

/* Beside what runs; where that sheds, in place of it. */
static void
aim_exact(struct run *run)
{
    struct aims aims, in_place;
    bool short_of = false;

    const uint64_t price = solve_exactly(run, true, &aims);
    set_aims(run, &aims, false);
    for (uint32_t a = 0; a < run->count; a++) {
        short_of = short_of || sheds(&run->options->leat, &run->decided[a]);
    }
    if (short_of) {
        const bool makes_room = solve_exactly(run, false, &in_place) < price;
        set_aims(run, makes_room ? &in_place : &aims, makes_room);
    }
}

static void
aim(struct run *run)
{
    const struct autoscale_options *options = run->options;
    const struct leat_autoscale_options paper = paper_options(run);
    uint32_t only[AUTOSCALE_APPLICATIONS_MAX];

    switch (options->policy) {
    case AUTOSCALE_INFAAS:
        leat_autoscale_aim_paper(&paper, &options->box, run->decided, run->count);
        break;
    case AUTOSCALE_LEAT:
        leat_autoscale_aim_least(&options->leat, &options->box, run->decided, run->count);
        break;
    case AUTOSCALE_ILP:
        aim_exact(run);
        break;
    default:
        for (uint32_t a = 0; a < run->count; a++) {
            only[a] = run->services[a].only;
        }
        leat_autoscale_aim_replicate(&paper, &options->box, run->decided, run->count, only);
        break;
    }
}

static enum leat_status
decide(struct run *run)
{
    const struct leat_autoscale_options paper = paper_options(run);
    const bool spread = run->options->policy == AUTOSCALE_LEAT || run->options->policy == AUTOSCALE_ILP;
    enum leat_status status = push(run, run->now_ns + run->options->period_ns, EVENT_DECIDE);

    if (is_static(run->options->policy)) {
        return status;
    }
    for (uint32_t a = 0; a < run->count; a++) {
        struct leat_autoscale_application *decided = &run->decided[a];
        memset(decided->ready, 0, sizeof(decided->ready));
        memset(decided->starting, 0, sizeof(decided->starting));
        memset(decided->leaving, 0, sizeof(decided->leaving));
        for (uint32_t i = 0; i < run->services[a].instance_count; i++) {
            const struct instance *instance = &run->services[a].instances[i];
            decided->ready[instance->variant] += instance->state == READY;
            decided->starting[instance->variant] += instance->state == LOADING;
            decided->leaving[instance->variant] += instance->state == LEAVING;
        }
        decided->load_qps = rate_of(run, &run->services[a]);
        if (spread && run->options->hold_ns > 0) {
            decided->load_qps = leat_autoscale_remember(&run->services[a].memory, decided->load_qps, run->options->period_ns,
                                                        run->options->hold_ns);
        }
    }
    aim(run);
    leat_autoscale_move(spread ? &run->options->leat : &paper, &run->options->box, run->decided, run->count, run->options->period_ns);
    for (uint32_t a = 0; a < run->count; a++) {
        struct leat_autoscale_application *decided = &run->decided[a];
        for (uint32_t v = 0; v < decided->variant_count; v++) {
            for (uint32_t n = 0; n < decided->stop[v]; n++) {
                stop_instance(run, &run->services[a], v);
            }
            for (uint32_t n = 0; n < decided->start[v] && status == LEAT_OK; n++) {
                const uint64_t load_ns = decided->variants[v].load_ns;
                status = start_instance(run, a, v, load_ns > 0 ? load_ns : 1);
            }
        }
        status = status == LEAT_OK ? dispatch(run, a) : status; /* what a faster one was to take */
    }
    run->result->decisions++;
    return status;
}

/* ---- Events --------------------------------------------------------------------------------------------- */

static enum leat_status
happen(struct run *run, uint32_t what)
{
    if (what == EVENT_DECIDE) {
        return decide(run);
    }
    struct service *service = &run->services[what / INSTANCES_MAX];
    struct instance *instance = &service->instances[what % INSTANCES_MAX];
    if (run->now_ns != instance->due_ns || instance->state == ABSENT) {
        return LEAT_OK;
    }
    if (instance->state == LOADING) {
        instance->state = READY;
    } else {
        for (uint32_t q = 0; q < instance->running; q++) {
            answer(run, service, instance->batch[q]);
        }
        instance->running = 0;
        if (instance->state == LEAVING) {
            instance->state = ABSENT;
            hold(run, service, instance->variant, -1);
        }
    }
    return dispatch(run, what / INSTANCES_MAX);
}

static enum leat_status
arrive(struct run *run)
{
    const uint32_t query = run->next_query++, a = run->application_of[query];
    struct service *service = &run->services[a];

    service->buckets[run->now_ns / BUCKET_NS]++;
    run->result->seconds[run->now_ns / SECOND_NS].arrived++;
    service->queue[service->tail++] = query;
    return dispatch(run, a);
}

static enum leat_status
play(struct run *run)
{
    uint64_t longest_ns = 0;
    enum leat_status status = push(run, run->options->period_ns, EVENT_DECIDE);

    for (uint32_t a = 0; a < run->count; a++) {
        const uint64_t objective_ns = run->services[a].application->objective_ns;
        longest_ns = objective_ns > longest_ns ? objective_ns : longest_ns;
    }
    const uint64_t last_ns = run->options->duration_ns + longest_ns + 60 * SECOND_NS;
    while (run->answered + run->result->dropped < run->query_count && status == LEAT_OK) {
        const bool arrives = run->next_query < run->query_count && run->arrived_ns[run->next_query] <= run->heap[0].at_ns;
        const uint64_t at_ns = arrives ? run->arrived_ns[run->next_query] : run->heap[0].at_ns;
        if (at_ns > last_ns) {
            break;
        }
        run->now_ns = at_ns;
        if (arrives) {
            status = arrive(run);
        } else {
            const uint32_t what = run->heap[0].worker;
            events_pop(run->heap, &run->heap_count);
            status = happen(run, what);
        }
    }
    run->now_ns = run->now_ns > run->options->duration_ns ? run->now_ns : run->options->duration_ns;
    account(run);
    return status;
}

/* ---- Set-up ---------------------------------------------------------------------------------------------- */

static int
compare_ns(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static enum leat_status
draw_queries(struct run *run)
{
    struct arrivals arrivals = run->options->arrivals;
    uint64_t random = run->options->seed ^ UINT64_C(0x6175746f7363616c);
    double shares = 0;
    uint32_t room = 0;

    for (uint32_t a = 0; a < run->count; a++) {
        shares += run->services[a].application->share;
    }
    arrivals_start(&arrivals, run->options->seed);
    for (;;) {
        const double at_s = arrivals_next(&arrivals);
        if (at_s < 0 || at_s * 1e9 >= (double)run->options->duration_ns) {
            return LEAT_OK;
        }
        if (run->query_count == room) {
            room = room > 0 ? 2 * room : 4096;
            uint64_t *times = realloc(run->arrived_ns, room * sizeof(times[0]));
            run->arrived_ns = times != NULL ? times : run->arrived_ns;
            uint8_t *applications = realloc(run->application_of, room * sizeof(applications[0]));
            run->application_of = applications != NULL ? applications : run->application_of;
            if (times == NULL || applications == NULL) {
                return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u queries", room);
            }
        }
        double drawn = random_uniform(&random) * shares;
        uint32_t a = 0;
        for (; a + 1 < run->count && drawn >= run->services[a].application->share; a++) {
            drawn -= run->services[a].application->share;
        }
        run->services[a].room++;
        run->application_of[run->query_count] = (uint8_t)a;
        run->arrived_ns[run->query_count++] = (uint64_t)(at_s * 1e9);
    }
}

static enum leat_status
set_up_service(struct run *run, uint32_t a, double share)
{
    struct service *service = &run->services[a];
    const struct autoscale_application *application = service->application;
    const struct rates *rates = run->options->arrivals.rates;
    struct leat_autoscale_application *decided = &run->decided[a];
    double most_qps = 0;

    service->instances = calloc(INSTANCES_MAX, sizeof(service->instances[0]));
    service->queue = malloc((service->room + 1) * sizeof(service->queue[0]));
    service->buckets = calloc(run->bucket_count, sizeof(service->buckets[0]));
    if (service->instances == NULL || service->queue == NULL || service->buckets == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u queries", service->room);
    }
    *decided = (struct leat_autoscale_application){
        .variants = application->variants, .variant_count = application->variant_count, .objective_ns = application->objective_ns};
    for (uint32_t v = 0; v < application->variant_count; v++) {
        const struct leat_autoscale_variant *variant = &application->variants[v];
        const uint64_t alone_ns = variant->batch_ns + variant->item_ns;
        const uint64_t mqps = leat_autoscale_capacity_mqps(variant, alone_ns);
        const uint64_t price = SHED_MULTIPLE * (leat_autoscale_start_price(&run->options->leat, variant) / mqps + 1);
        decided->shed_price = price > decided->shed_price ? price : decided->shed_price;
        uint32_t at = v;
        for (; at > 0; at--) {
            const struct leat_autoscale_variant *other = &application->variants[service->by_speed[at - 1]];
            if (other->batch_ns + other->item_ns <= alone_ns) {
                break;
            }
            service->by_speed[at] = service->by_speed[at - 1];
        }
        service->by_speed[at] = v;
    }
    for (uint32_t s = 0; s < rates->count; s++) {
        most_qps = rates->steps[s].qps > most_qps ? rates->steps[s].qps : most_qps;
    }
    const bool all_the_time = is_static(run->options->policy);
    service->only = choose_only(run, application, all_the_time ? run->options->leat.headroom * most_qps * share : 0);
    decided->load_qps = share * (all_the_time ? most_qps : rates->steps[0].qps);
    return LEAT_OK;
}

static enum leat_status
set_up(struct run *run)
{
    const struct autoscale_options *options = run->options;
    double shares = 0;
    enum leat_status status;

    run->count = options->table->count;
    for (uint32_t a = 0; a < run->count; a++) {
        run->services[a].application = &options->table->applications[a];
        shares += options->table->applications[a].share;
    }
    status = draw_queries(run);
    if (status != LEAT_OK) {
        return status;
    }
    run->result->second_count = (uint32_t)((options->duration_ns + SECOND_NS - 1) / SECOND_NS);
    run->result->seconds = calloc(run->result->second_count, sizeof(run->result->seconds[0]));
    run->bucket_count = (uint32_t)(options->duration_ns / BUCKET_NS + 1);
    run->latencies_ns = malloc(((size_t)run->query_count + 1) * sizeof(run->latencies_ns[0]));
    run->decided = calloc(run->count, sizeof(run->decided[0]));
    if (run->result->seconds == NULL || run->latencies_ns == NULL || run->decided == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u queries", run->query_count);
    }
    for (uint32_t a = 0; a < run->count && status == LEAT_OK; a++) {
        status = set_up_service(run, a, run->services[a].application->share / shares);
    }
    if (status == LEAT_OK) {
        aim(run);
    }
    for (uint32_t a = 0; a < run->count && status == LEAT_OK; a++) {
        for (uint32_t v = 0; v < run->decided[a].variant_count && status == LEAT_OK; v++) {
            for (uint32_t n = 0; n < run->decided[a].aim[v] && status == LEAT_OK; n++) {
                status = start_instance(run, a, v, 0);
            }
        }
    }
    return status;
}

enum leat_status
autoscale_simulate(const struct autoscale_options *options, struct autoscale_result *ret_result)
{
    struct autoscale_result result = {0};
    struct run *run = calloc(1, sizeof(*run));

    if (run == NULL) {
        return LEAT_ERR_NOMEM;
    }
    run->options = options;
    run->result = &result;
    enum leat_status status = set_up(run);
    status = status == LEAT_OK ? play(run) : status;
    if (status == LEAT_OK) {
        result.queries = run->query_count;
        result.left = run->query_count - run->answered - result.dropped;
        qsort(run->latencies_ns, run->answered, sizeof(run->latencies_ns[0]), compare_ns);
        if (run->answered > 0) {
            result.p50_ns = run->latencies_ns[(run->answered - 1) / 2];
            result.p99_ns = run->latencies_ns[(run->answered - 1) * 99 / 100];
        }
        *ret_result = result;
    } else {
        autoscale_result_free(&result);
    }
    for (uint32_t a = 0; a < run->count; a++) {
        free(run->services[a].instances);
        free(run->services[a].queue);
        free(run->services[a].buckets);
    }
    free(run->decided);
    free(run->arrived_ns);
    free(run->application_of);
    free(run->latencies_ns);
    free(run->heap);
    free(run);
    return status;
}

void
autoscale_result_free(struct autoscale_result *result)
{
    free(result->seconds);
    *result = (struct autoscale_result){0};
}
