/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/system/box.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/team.h"

#define NEED(cond) \
    ((cond) ? (void)0 : (void)(fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #cond, leat_error_text()), abort()))

struct box {
    struct box_options options;
    struct leat_shared_tables tables;
    struct leat_dispatcher *dispatcher;
    struct leat_worker *workers[LEAT_SCHED_WORKERS_MAX];
    uint16_t classes[LEAT_SCHED_WORKERS_MAX];
    struct leat_server *server;
    struct leat_variant variant;
    struct leat_variant_copy copy;
    struct leat_backend backend;
    struct leat_application app;
    struct leat_profile profiles[BOX_VARIANTS_MAX][LEAT_WORKER_CLASSES_MAX];
    struct leat_pipeline pipeline;
    struct leat_daemon_session *between; /* its stages */
    pthread_t thread;
    sem_t release;
    _Atomic uint32_t held;
};

static struct box *the_box; /* the backend's functions have no context of their own */

/* ---- The backend ------------------------------------------------------------------------------ */

static void
hold(struct leat_team *team)
{
    if (!the_box->options.yields) {
        while (sem_wait(&the_box->release) != 0) {
        }
        return;
    }
    while (sem_trywait(&the_box->release) != 0) {
        leat_team_yield(team);
        (void)sched_yield();
    }
}

static enum leat_status
run(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
    struct leat_team *team)
{
    const uint32_t item_bytes = the_box->options.item_bytes, pairs = the_box->options.pairs;
    (void)plan;
    (void)scratch;
    if (the_box->options.on_member != NULL) {
        leat_team_run(team, the_box->options.on_member, the_box->options.member_context);
    }
    if (the_box->options.on_worker != NULL) {
        the_box->options.on_worker();
    }
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char first = *(const unsigned char *)segments[i].tensors[0];
        if (first == BOX_HOLD) {
            (void)atomic_fetch_add_explicit(&the_box->held, 1, memory_order_release);
            hold(team);
        } else if (the_box->options.yields) {
            leat_team_yield(team);
        }
        if (first == BOX_REFUSE) {
            return LEAT_ERR_SHAPE;
        }
        for (uint32_t p = 0; p < pairs; p++) {
            const unsigned char *in = segments[i].tensors[p];
            unsigned char *out = (unsigned char *)(uintptr_t)segments[i].tensors[pairs + p];
            for (uint64_t b = 0; b < (uint64_t)item_bytes * segments[i].items; b++) {
                out[b] = (unsigned char)~in[b];
            }
        }
    }
    return LEAT_OK;
}

/* The model that the test brought, behind the same call. */
static enum leat_status
run_model(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
          struct leat_team *team)
{
    if (the_box->options.on_worker != NULL) {
        the_box->options.on_worker();
    }
    return the_box->options.model->variant->backend->plan_run(plan, segments, count, scratch, team);
}

/* ---- The server's callbacks ------------------------------------------------------------------- */

static enum leat_status
find(void *context, const char *name, struct leat_target *ret_target)
{
    const struct box *box = context;
    if (strcmp(name, "box") != 0) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no application or model '%s'", name);
    }
    *ret_target = box->options.pipeline ? box->pipeline.target : box->app.target;
    return LEAT_OK;
}

static void
admin(void *context, char *request, uid_t uid, struct leat_packet *packet, int reply_socket)
{
    (void)context;
    (void)uid;
    (void)packet; /* its descriptors are the server's to close */
    leat_server_reply(reply_socket, request); /* echoes: what the tests of the protocol need */
    free(request);
}

static void
gone(void *context, struct leat_application *application)
{
    (void)context;
    (void)application;
    NEED(false); /* a box never removes its application */
}

static void
tick(void *context, uint64_t rounds)
{
    (void)context;
    (void)rounds;
}

static void
stopping(void *context)
{
    (void)context;
}

static void *
serve(void *argument)
{
    struct box *box = argument;
    NEED(leat_server_run(box->server, UINT64_C(10000000000)) == LEAT_OK);
    return NULL;
}

/* ---- Life ------------------------------------------------------------------------------------- */

static void
set_up_model(struct box *box)
{
    const struct leat_loaded_variant *model = box->options.model;

    box->options.items_max = model->variant->items_max;
    box->backend = *model->variant->backend;
    box->backend.plan_run = run_model;
    box->variant = *model->variant;
    box->variant.index = 1;
    box->variant.backend = &box->backend;
    box->app.target = model->signature;
}

static void
set_up_backend(struct box *box)
{
    const struct box_options *o = &box->options;
    struct leat_target *target = &box->app.target;

    box->backend = (struct leat_backend){.abi = LEAT_BACKEND_ABI, .name = "box", .yields = o->yields, .plan_run = run};
    box->variant = (struct leat_variant){
        .name = "box", .index = 1, .backend = &box->backend, .items_max = o->items_max, .tensor_count = 2 * o->pairs,
        .input_count = o->pairs, .copies = &box->copy, .copy_count = 1};
    *target = (struct leat_target){.items_max = o->items_max, .input_count = o->pairs, .output_count = o->pairs};
    for (uint32_t t = 0; t < 2 * o->pairs; t++) {
        struct leat_tensor_info *info = &target->tensors[t];
        *info = (struct leat_tensor_info){
            .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, o->item_bytes}, .item_bytes = o->item_bytes};
        (void)snprintf(info->name, sizeof(info->name), "%s%u", t < o->pairs ? "in" : "out", t % o->pairs);
        box->variant.item_bytes[t] = o->item_bytes;
    }
}

static void
set_up_application(struct box *box)
{
    const struct box_options *o = &box->options;

    if (o->model != NULL) {
        set_up_model(box);
    } else {
        set_up_backend(box);
    }
    atomic_store_explicit(&box->tables.variants[1], &box->variant, memory_order_relaxed);
    (void)strcpy(box->app.name, "box");
    box->app.latency_ns = o->latency_ns;
    box->app.drop_late = !o->serve_late;
    box->app.waiting_max = o->waiting_max;
    box->app.router = o->router != NULL ? o->router : &leat_router_fcfs;
    box->app.router_state = calloc(1, box->app.router->state_bytes + 1);
    box->app.selector = o->selector != NULL ? o->selector : &leat_selector_fixed;
    box->app.selector_state = calloc(1, box->app.selector->state_bytes + 1);
    box->app.variant_count = o->variants;
    NEED(leat_instances_init(&box->app.instances, o->workers, o->variants) == LEAT_OK);
    for (uint32_t v = 0; v < o->variants; v++) {
        box->app.variants[v] = &box->variant;
        box->app.by_time[v] = (uint8_t)v;
        box->app.sched_variants[v] = (struct leat_sched_variant){
            .items_max = o->items_max,
            .accuracy_ppm = o->variants > 1 ? BOX_ACCURACY_PPM(v) : 0,
            .cost_nano = o->variants > 1 ? v + 1 : 0,
            .ready = true,
        };
        leat_profile_set(&box->profiles[v][0], 1, o->predicted_ns * (v + 1));
        if (o->last_worker_ns != 0) {
            leat_profile_set(&box->profiles[v][1], 1, o->last_worker_ns * (v + 1));
            box->classes[o->workers - 1] = 1;
        }
        memcpy(box->app.instances.measured[v], box->profiles[v], sizeof(box->profiles[v]));
    }
    if (box->app.selector->init != NULL) {
        const struct leat_selector_options selector_options = {.objective_ns = o->latency_ns,
                                                               .worker_count = o->workers,
                                                               .policy = o->policy,
                                                               .variant_count = o->variants};
        NEED(box->app.selector->init(box->app.selector_state, &selector_options) == LEAT_OK);
    }
    box->app.profiles = box->profiles;
    NEED(leat_waiting_init(box->app.waiting, o->waiting_max) == LEAT_OK);
}

/* Two stages of the application, each of whose queries belongs to a session without a client. */
static void
set_up_pipeline(struct box *box)
{
    enum { STAGES = 2, RUNS_MAX = 64 };
    const struct leat_target *target = &box->app.target;
    const uint64_t bytes = leat_round_up((uint64_t)target->items_max * target->tensors[0].item_bytes, LEAT_TENSOR_ALIGN);
    const struct leat_session_options options = {
        .slots = LEAT_SLOTS_MAX, .lane_count = 1 + box->options.workers, .arena_bytes = leat_round_up(RUNS_MAX * bytes, 4096)};
    const struct leat_pipeline_tensor between = {LEAT_PIPELINE_WORKSPACE, 0};
    struct leat_pipeline *pipeline = &box->pipeline;
    char note[160];

    NEED(target->input_count == 1 && target->output_count == 1);
    NEED(leat_daemon_session_create(&options, &box->between, note) == LEAT_OK);
    box->between->index = LEAT_PIPELINE_SESSION;
    atomic_store_explicit(&box->tables.sessions[LEAT_PIPELINE_SESSION], box->between, memory_order_relaxed);
    *pipeline = (struct leat_pipeline){.name = "box",
                                       .target = *target,
                                       .latency_ns = box->options.latency_ns,
                                       .late = LEAT_PIPELINE_SERVE,
                                       .stage_count = STAGES,
                                       .workspace_bytes = bytes,
                                       .runs_max = RUNS_MAX};
    pipeline->target.id = LEAT_PIPELINE_TARGET;
    pipeline->target.output_count = 2;
    pipeline->target.tensors[2] = (struct leat_tensor_info){.name = "stage_ns",
                                                            .dtype = LEAT_DTYPE_U64,
                                                            .rank = 3,
                                                            .dims = {-1, STAGES, 2},
                                                            .item_bytes = STAGES * 2 * sizeof(uint64_t)};
    for (uint32_t s = 0; s < STAGES; s++) {
        pipeline->stages[s] = (struct leat_pipeline_stage){
            .after = s,
            .input_count = 1,
            .output_count = 1,
            .tensors = {s == 0 ? (struct leat_pipeline_tensor){LEAT_PIPELINE_CLIENT, 0} : between,
                        s == 0 ? between : (struct leat_pipeline_tensor){LEAT_PIPELINE_CLIENT, 1}},
            .item_bytes = {target->tensors[0].item_bytes, target->tensors[1].item_bytes},
            .each_stage = UINT32_MAX,
            .depth = s};
    }
    NEED(leat_pipeline_init_runs(pipeline) == LEAT_OK);
    leat_dispatcher_command(box->dispatcher,
                            &(struct leat_command){.kind = LEAT_COMMAND_ADD_PIPELINE, .pipeline = pipeline});
}

struct box *
box_start(const struct box_options *options)
{
    struct box *box = aligned_alloc(LEAT_ISOLATE, leat_round_up(sizeof(*box), LEAT_ISOLATE));
    NEED(box != NULL && the_box == NULL);
    memset(box, 0, sizeof(*box));
    the_box = box;
    box->options = *options;
    struct box_options *o = &box->options;
    o->workers = o->workers != 0 ? o->workers : 1;
    o->variants = o->variants != 0 ? o->variants : 1;
    NEED(o->variants <= BOX_VARIANTS_MAX);
    o->items_max = o->items_max != 0 ? o->items_max : 8;
    o->item_bytes = o->item_bytes != 0 ? o->item_bytes : 64;
    o->pairs = o->pairs != 0 ? o->pairs : 1;
    NEED(o->pairs <= LEAT_TENSORS_MAX / 2);
    o->waiting_max = o->waiting_max != 0 ? o->waiting_max : 64;
    o->sessions_max = o->sessions_max != 0 ? o->sessions_max : 64;
    o->arena_max_bytes = o->arena_max_bytes != 0 ? o->arena_max_bytes : 16 << 20;
    o->session_memory = o->session_memory != 0 ? o->session_memory : 1 << 30;
    o->team = o->team != 0 ? o->team : 1;
    o->cores = o->cores != 0 ? o->cores : 64;
    o->predicted_ns = o->predicted_ns != 0 ? o->predicted_ns : 1;
    (void)signal(SIGPIPE, SIG_IGN);
    NEED(sem_init(&box->release, 0, 0) == 0);
    leat_clock_init(&box->tables.clock);
    atomic_store_explicit(&box->tables.spin_ns, o->spin_ns, memory_order_relaxed);
    set_up_application(box);

    const struct leat_dispatcher_options dispatcher_options = {
        .tables = &box->tables,
        .workers = box->workers,
        .worker_classes = box->classes,
        .worker_count = o->workers,
        .worker_depth = 2,
        .queue_capacity = 1024,
        .cpu = -1,
    };
    NEED(leat_dispatcher_create(&dispatcher_options, &box->dispatcher) == LEAT_OK);
    for (uint32_t w = 0; w < o->workers; w++) {
        const struct leat_worker_options worker_options = {
            .index = w,
            .core_count = o->team,
            .worker_class = box->classes[w],
            .tables = &box->tables,
            .dispatcher_bell = leat_dispatcher_bell(box->dispatcher),
            .dispatcher_event = leat_dispatcher_event_fd(box->dispatcher),
        };
        NEED(leat_worker_create(&worker_options, &box->workers[w]) == LEAT_OK);
        NEED(leat_worker_reserve(box->workers[w], o->model != NULL ? o->model->scratch_bytes : 0) == LEAT_OK);
        NEED(leat_worker_start(box->workers[w]) == LEAT_OK);
    }
    NEED(leat_dispatcher_start(box->dispatcher) == LEAT_OK);
    const struct leat_command command = {.kind = LEAT_COMMAND_ADD_APPLICATION, .application = &box->app};
    leat_dispatcher_command(box->dispatcher, &command);
    if (o->pipeline) {
        set_up_pipeline(box);
    }
    const struct leat_server_options server_options = {
        .socket_path = o->socket_path,
        .socket_mode = 0600,
        .socket_group = (gid_t)-1,
        .limits = {.sessions = o->sessions_max,
                   .sessions_per_user = o->sessions_max,
                   .bytes = o->session_memory,
                   .bytes_per_user = o->session_memory},
        .slots_default = 64,
        .slots_max = 1024,
        .arena_default_bytes = 1 << 20,
        .arena_max_bytes = o->arena_max_bytes,
        .lane_count = 1 + o->workers,
        .spin_ns = o->spin_ns,
        .cores = o->cores,
        .spinners = 1 + o->workers * o->team,
        .tables = &box->tables,
        .dispatcher = box->dispatcher,
        .find = find,
        .admin = admin,
        .application_gone = gone,
        .tick = tick,
        .stopping = stopping,
        .context = box,
    };
    NEED(leat_server_create(&server_options, &box->server) == LEAT_OK);
    NEED(pthread_create(&box->thread, NULL, serve, box) == 0);
    return box;
}

void
box_release(struct box *box)
{
    NEED(sem_post(&box->release) == 0);
}

uint32_t
box_held(const struct box *box)
{
    return atomic_load_explicit(&box->held, memory_order_acquire);
}

struct leat_server_statistics
box_sessions(const struct box *box)
{
    struct leat_server_statistics statistics;
    leat_server_statistics(box->server, &statistics);
    return statistics;
}

struct leat_worker *
box_worker(struct box *box, uint32_t index)
{
    NEED(index < box->options.workers);
    return box->workers[index];
}

struct leat_dispatcher *
box_dispatcher(struct box *box)
{
    return box->dispatcher;
}

struct leat_application *
box_application(struct box *box)
{
    return &box->app;
}

void
box_stop(struct box *box)
{
    NEED(!box->options.pipeline); /* nobody takes one down */
    leat_server_stop(box->server);
    NEED(pthread_join(box->thread, NULL) == 0);
    leat_dispatcher_stop(box->dispatcher);
    NEED(box->app.running == 0 && leat_waiting_total(box->app.waiting) == 0);
    for (uint32_t i = 0; i < LEAT_SESSIONS_MAX; i++) {
        NEED(atomic_load(&box->tables.sessions[i]) == NULL); /* every session's memory was given back */
    }
    for (uint32_t w = 0; w < box->options.workers; w++) {
        leat_worker_stop(box->workers[w]);
    }
    leat_server_destroy(box->server);
    leat_dispatcher_destroy(box->dispatcher);
    for (uint32_t w = 0; w < box->options.workers; w++) {
        leat_worker_destroy(box->workers[w]);
    }
    leat_waiting_fini(box->app.waiting);
    leat_instances_fini(&box->app.instances);
    free(box->app.router_state);
    free(box->app.selector_state);
    NEED(sem_destroy(&box->release) == 0);
    free(box);
    the_box = NULL;
}

pid_t
box_fork(const struct box_options *options)
{
    int ready[2];
    NEED(pipe(ready) == 0);
    (void)fflush(NULL);
    const pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)box_start(options);
        NEED(write(ready[1], "", 1) == 1);
        for (;;) {
            (void)pause();
        }
    }
    char byte;
    (void)close(ready[1]);
    NEED(read(ready[0], &byte, 1) == 1);
    (void)close(ready[0]);
    return child;
}

/* ---- Clients ---------------------------------------------------------------------------------- */

void
box_connect(struct box_client *client, const char *socket_path, uint32_t slots)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    options.socket_path = socket_path;
    options.slots = slots;
    NEED(leat_open(&options, &client->session) == LEAT_OK);
    NEED(leat_find(client->session, "box", &client->target) == LEAT_OK);
    client->query = (struct leat_query)LEAT_QUERY_INIT;
    client->query.target = client->target.id;
    for (uint32_t t = 0; t < client->target.input_count + client->target.output_count; t++) {
        NEED(leat_tensor_alloc(client->session, client->target.tensors[t].item_bytes, &client->query.tensors[t]) == LEAT_OK);
    }
}

void
box_disconnect(struct box_client *client)
{
    leat_close(client->session);
    client->session = NULL;
}

void
box_fill(struct box_client *client, const struct leat_query *query, unsigned char byte)
{
    const struct leat_target *target = &client->target;
    for (uint32_t t = 0; t < target->input_count + target->output_count; t++) {
        memset(query->tensors[t], t < target->input_count ? byte + (int)t : 0x55, target->tensors[t].item_bytes * query->items);
    }
}

bool
box_check(const struct box_client *client, const struct leat_query *query, unsigned char byte)
{
    const struct leat_target *target = &client->target;
    for (uint32_t p = 0; p < target->output_count; p++) {
        const uint32_t t = target->input_count + p;
        const unsigned char *out = query->tensors[t];
        for (uint64_t b = 0; b < target->tensors[t].item_bytes * query->items; b++) {
            if (out[b] != (unsigned char)~(byte + p)) {
                return false;
            }
        }
    }
    return true;
}
