/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A worker whose scratch grows while it runs goes on with a whole block (G0, G1), and keeps the old one as
 *          long as a batch may use it. Each batch runs on a team of the shape that the worker was told of before it,
 *          and says so. A parked worker ends what it was handed before in the shape that it had, and all its threads
 *          sleep then, however long they may spin. A worker that was told of a shape says by how many reports no batch
 *          runs in another any more, and none does (H0). A batch that gives way is passed between two steps by those
 *          behind it, on the same team with other scratch, until the worker is told of a shape or it was paused for long
 *          enough; no time of theirs is its own. An errand is run when nothing else is to be, as a batch would be, or not at
 *          all. What a synthetic model leaves of a stage's outputs shows
 *          nothing of an earlier query.
 * Method   This thread is dispatcher and control. A batch is held inside the backend with another behind it; then
 *          the scratch grows, with nothing else between the two threads that would order it: the batch behind, submitted
 *          before, is the first to meet the new block. TSan sees the missing order if there is none.
 */
#include <dirent.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

#include "kernels/team.h"
#include "runtime/pipeline.h"
#include "runtime/worker.h"
#include "tests/leat_test.h"

enum { GROWTHS = 6, SMALLEST = 4096, CORES_MAX = 4, PARKINGS = 20, BATCHES = 2 * GROWTHS + 4 * PARKINGS };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { TURNS = 20000, SWITCHES = 10000 };
#else
enum { TURNS = 300000, SWITCHES = 20000 };
#endif

static struct leat_shared_tables tables;
static _Atomic uint32_t begun, allowed; /* batches; relaxed on purpose: they order nothing */
static void *blocks[BATCHES];       /* that each batch got; W: worker */
static struct leat_team_shape shapes[BATCHES]; /* likewise */

static enum leat_status
run(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
    struct leat_team *team)
{
    const uint32_t batch = atomic_fetch_add_explicit(&begun, 1, memory_order_relaxed);
    unsigned char *bytes = scratch;

    (void)plan;
    (void)segments;
    (void)count;
    blocks[batch] = scratch;
    shapes[batch] = (struct leat_team_shape){.cores = (uint16_t)leat_team_size(team), .worker_class = (uint16_t)leat_team_class(team)};
    const unsigned char expected = batch > 0 && blocks[batch - 1] == scratch ? 0xff : 0;
    for (uint32_t b = 0; b < SMALLEST; b++) {
        EXPECT(bytes[b] == expected);
    }
    while (atomic_load_explicit(&allowed, memory_order_relaxed) <= batch) {
        (void)sched_yield();
    }
    memset(bytes, 0xff, SMALLEST); /* the block is ours until the end, whatever control did meanwhile */
    return LEAT_OK;
}

static const struct leat_backend backend = {.abi = LEAT_BACKEND_ABI, .name = "scratch", .plan_run = run};
static struct leat_variant_copy copy;
static struct leat_variant variant = {
    .name = "scratch", .index = 1, .backend = &backend, .copies = &copy, .copy_count = 1, .items_max = 1};

static void
submit_items(struct leat_worker *worker, uint32_t items)
{
    struct leat_work_cell *cell = leat_worker_cell(worker, 0);
    cell->deadline_ns = LEAT_NO_DEADLINE;
    cell->items_less_1 = (uint16_t)(items - 1);
    cell->gives_way = items > 1;
    cell->offline = items > 1;
    cell->session = 0;
    cell->slot = 0;
    cell->variant = variant.index;
    (void)leat_worker_submit(worker, 1);
}

static void
submit(struct leat_worker *worker)
{
    submit_items(worker, 1);
}

/* Threads of this process that have the name and do not sleep. */
static uint32_t
count_awake(const char *wanted)
{
    const struct dirent *entry;
    uint32_t count = 0;

    DIR *tasks = opendir("/proc/self/task");
    EXPECT(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL) {
        char path[300], line[256] = "", *state;
        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/stat", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file != NULL) {
            state = fgets(line, sizeof(line), file) != NULL ? strrchr(line, ')') : NULL;
            count += state != NULL && strstr(line, wanted) != NULL && state[2] == 'R';
            EXPECT(fclose(file) == 0);
        }
    }
    EXPECT(closedir(tasks) == 0);
    return count;
}

/* With two batches under way, or none. */
static void
park(struct leat_worker *worker, bool busy)
{
    static const struct leat_team_shape awake = {.cores = 3, .worker_class = 1}, parked = {.cores = 0, .worker_class = 1};
    const uint32_t first = atomic_load_explicit(&begun, memory_order_relaxed);
    struct leat_done_cell done;

    (void)leat_worker_reshape(worker, awake);
    submit(worker);
    submit(worker);
    if (!busy) {
        atomic_store_explicit(&allowed, first + 2, memory_order_relaxed);
    }
    while (atomic_load_explicit(&begun, memory_order_relaxed) < first + (busy ? 1 : 2)) {
        (void)sched_yield();
    }
    for (uint32_t reports = 0; reports < 2; reports++) {
        if (busy && reports == 0) {
            EXPECT(leat_worker_reshape(worker, parked) == 2);
            atomic_store_explicit(&allowed, first + 2, memory_order_relaxed);
        }
        while (!leat_worker_poll_done(worker, &done)) {
            (void)sched_yield();
        }
        EXPECT(done.shape.cores == awake.cores && shapes[first + reports].cores == awake.cores);
    }
    if (!busy) {
        (void)leat_worker_reshape(worker, parked);
    }
    while (count_awake("leat-worker-") + count_awake("leat-helper") > 0) {
        (void)sched_yield();
    }
}

/* Nothing but a report, and perhaps some work before it. */
/* A batch of two items gives way: it goes on for as many steps as it is to, all of them with scratch that is its own. */
static _Atomic uint32_t steps_taken, steps_allowed; /* relaxed on purpose */
static void *own_scratch;

static enum leat_status
run_yielding(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
             struct leat_team *team)
{
    const uint32_t size = leat_team_size(team), class = leat_team_class(team);

    (void)plan;
    (void)count;
    if (segments[0].items == 1) {
        EXPECT(scratch != own_scratch && !leat_team_yields(team));
        memset(scratch, 1, SMALLEST);
        return LEAT_OK;
    }
    EXPECT(leat_team_yields(team));
    own_scratch = scratch;
    memset(scratch, 2, SMALLEST);
    do {
        leat_team_yield(team);
        EXPECT(leat_team_size(team) == size && leat_team_class(team) == class);
        const uint32_t taken = 1 + atomic_fetch_add_explicit(&steps_taken, 1, memory_order_relaxed);
        if (taken % 64 == 0) {
            (void)sched_yield();
        }
    } while (atomic_load_explicit(&steps_taken, memory_order_relaxed) <
             atomic_load_explicit(&steps_allowed, memory_order_relaxed));
    own_scratch = NULL;
    for (uint32_t b = 0; b < SMALLEST; b++) {
        EXPECT(((unsigned char *)scratch)[b] == 2);
    }
    return LEAT_OK;
}

static enum leat_status
run_short(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
          struct leat_team *team)
{
    (void)plan;
    (void)segments;
    (void)count;
    (void)scratch;
    (void)team;
    return LEAT_OK;
}

static struct leat_done_cell
await_report(struct leat_worker *worker)
{
    struct leat_done_cell done;

    for (uint32_t looks = 1; !leat_worker_poll_done(worker, &done); looks++) {
        if (looks % 1024 == 0) { /* the worker may wait for this CPU */
            (void)sched_yield();
        }
        leat_spin_pause();
    }
    EXPECT(done.queries == 1 && done.failed == 0);
    return done;
}

static const struct leat_backend yielding_backend = {
    .abi = LEAT_BACKEND_ABI, .name = "yielding", .yields = true, .plan_run = run_yielding};
static const struct leat_variant yielding_variant = {
    .name = "yielding", .index = 1, .backend = &yielding_backend, .copies = &copy, .copy_count = 1, .items_max = 2};

static void
await_steps(uint32_t more)
{
    const uint32_t taken = atomic_load_explicit(&steps_taken, memory_order_relaxed);

    while (atomic_load_explicit(&steps_taken, memory_order_relaxed) - taken < more) {
        (void)sched_yield();
    }
}

/* The batch ends, and the one that it kept waiting begins in this shape. */
static void
end_yielding(struct leat_worker *worker, struct leat_team_shape shape)
{
    submit(worker);
    await_steps(1000);
    EXPECT(!leat_worker_done_ready(worker)); /* it is not passed any more */
    atomic_store_explicit(&steps_allowed, 0, memory_order_relaxed);
    EXPECT(await_report(worker).gave_way);
    const struct leat_done_cell last = await_report(worker);
    EXPECT(!last.gave_way && last.shape.cores == shape.cores && last.paused_ns == 0);
    EXPECT(worker->dispatcher.batches == 0);
}

static void
begin_yielding(struct leat_worker *worker)
{
    atomic_store_explicit(&steps_allowed, UINT32_MAX, memory_order_relaxed);
    submit_items(worker, 2);
    await_steps(1);
}

static void
test_yielding(void)
{
    static struct leat_bell dispatcher_bell; /* nobody sleeps at it */
    const struct leat_worker_options options = {.core_count = 1,
                                                .cores_max = CORES_MAX,
                                                .tables = &tables,
                                                .dispatcher_bell = &dispatcher_bell,
                                                .dispatcher_event = -1};
    const struct leat_team_shape one = {.cores = 1}, two = {.cores = 2, .worker_class = 3};
    struct leat_worker *worker;

    atomic_store_explicit(&tables.variants[1], (struct leat_variant *)(uintptr_t)&yielding_variant, memory_order_relaxed);
    EXPECT(leat_worker_create(&options, &worker) == LEAT_OK && leat_worker_start(worker) == LEAT_OK);
    EXPECT(leat_worker_reserve(worker, SMALLEST) == LEAT_OK);
    begin_yielding(worker);
    uint64_t others_ns = 0, busy_ns = 0;
    for (uint32_t n = 0; n < 100; n++) {
        submit(worker);
        const struct leat_done_cell done = await_report(worker);
        EXPECT(!done.gave_way && done.paused_ns == 0 && worker->dispatcher.batches == 1);
        others_ns += done.exec_ns;
    }
    atomic_store_explicit(&steps_allowed, 0, memory_order_relaxed);
    const struct leat_done_cell first = await_report(worker);
    EXPECT(first.gave_way && first.paused_ns >= others_ns && worker->dispatcher.batches == 0);
    EXPECT(first.start_ns + first.exec_ns + first.paused_ns <= leat_clock_now(&tables.clock));
    busy_ns = atomic_load_explicit(&worker->statistics.busy_ns, memory_order_relaxed);
    EXPECT(busy_ns == first.exec_ns + others_ns); /* the report came behind it */
    EXPECT(atomic_load_explicit(&worker->statistics.offline_ns, memory_order_relaxed) == first.exec_ns);
    const uint64_t pauses = atomic_load_explicit(&worker->statistics.pauses, memory_order_relaxed);
    EXPECT(pauses >= 1 && pauses <= 100);

    /* Told of a shape. */
    begin_yielding(worker);
    submit(worker);
    EXPECT(!await_report(worker).gave_way);
    EXPECT(leat_worker_reshape(worker, two) == 1);
    end_yielding(worker, two);
    EXPECT(leat_worker_reshape(worker, one) == 0);
    leat_worker_stop(worker);
    leat_worker_destroy(worker);
}

/* ---- Errands ---------------------------------------------------------------------------------------- */

static _Atomic uint32_t held, let_go, errands; /* batches and errands; relaxed on purpose */
static void *held_scratch, *errand_scratch;

static enum leat_status
run_held(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
         struct leat_team *team)
{
    (void)plan;
    (void)segments;
    (void)count;
    (void)team;
    held_scratch = scratch;
    const uint32_t batch = atomic_fetch_add_explicit(&held, 1, memory_order_relaxed);
    while (atomic_load_explicit(&let_go, memory_order_relaxed) <= batch) {
        (void)sched_yield();
    }
    return LEAT_OK;
}

/* Fails, and control is told why. */
static enum leat_status
run_warm(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
         struct leat_team *team)
{
    (void)plan;
    EXPECT(count == 1 && segments[0].items == 7 && leat_team_size(team) == 2 && leat_team_class(team) == 3);
    EXPECT(atomic_load_explicit(&held, memory_order_relaxed) == atomic_load_explicit(&let_go, memory_order_relaxed));
    errand_scratch = scratch;
    (void)atomic_fetch_add_explicit(&errands, 1, memory_order_relaxed);
    return LEAT_FAIL(LEAT_ERR_SHAPE, "run %u", atomic_load_explicit(&errands, memory_order_relaxed));
}

static enum leat_status
send(struct leat_worker *worker, uint64_t until_ns)
{
    static const struct leat_backend warm_backend = {.abi = LEAT_BACKEND_ABI, .name = "warm", .plan_run = run_warm};
    const struct leat_segment segment = {.items = 7};
    return leat_worker_warm(worker, &warm_backend, NULL, &segment, until_ns);
}

static void
hold(struct leat_worker *worker)
{
    const uint32_t before = atomic_load_explicit(&held, memory_order_relaxed);

    submit(worker);
    while (atomic_load_explicit(&held, memory_order_relaxed) == before) {
        (void)sched_yield();
    }
}

/* Once an errand waits behind what is held. */
static void *
let_go_later(void *argument)
{
    struct leat_worker *worker = argument;

    while (!atomic_load_explicit(&worker->errand_waits, memory_order_relaxed)) {
        (void)sched_yield();
    }
    EXPECT(send(worker, 0) == LEAT_AGAIN); /* one at a time */
    (void)atomic_fetch_add_explicit(&let_go, 1, memory_order_relaxed);
    return NULL;
}

/* A worker that sleeps or spins does one; a busy one when it is through, if it is waited for so long; a parked one none. */
static void
test_errands(uint64_t spin_ns)
{
    static struct leat_bell dispatcher_bell; /* nobody sleeps at it */
    static const struct leat_backend held_backend = {.abi = LEAT_BACKEND_ABI, .name = "held", .plan_run = run_held};
    static const struct leat_variant held_variant = {
        .name = "held", .index = 1, .backend = &held_backend, .copies = &copy, .copy_count = 1, .items_max = 1};
    const struct leat_worker_options options = {
        .core_count = 1, .cores_max = 2, .tables = &tables, .dispatcher_bell = &dispatcher_bell, .dispatcher_event = -1};
    const uint64_t for_ever_ns = UINT64_C(1) << 60, before_ns = atomic_load_explicit(&tables.spin_ns, memory_order_relaxed);
    const struct leat_team_shape two = {.cores = 2, .worker_class = 3}, parked = {.cores = 0, .worker_class = 3};
    const uint32_t first = atomic_load_explicit(&errands, memory_order_relaxed);
    struct leat_worker *worker;
    pthread_t thread;
    char text[32];

    atomic_store_explicit(&tables.spin_ns, spin_ns, memory_order_relaxed);
    atomic_store_explicit(&tables.variants[1], (struct leat_variant *)(uintptr_t)&held_variant, memory_order_relaxed);
    EXPECT(leat_worker_create(&options, &worker) == LEAT_OK && leat_worker_start(worker) == LEAT_OK);
    EXPECT(leat_worker_reserve(worker, SMALLEST) == LEAT_OK && leat_worker_reshape(worker, two) == 0);
    for (uint32_t n = 1; n <= 100; n++) {
        EXPECT(send(worker, for_ever_ns) == LEAT_ERR_SHAPE);
        EXPECT(atomic_load_explicit(&errands, memory_order_relaxed) == first + n);
        (void)snprintf(text, sizeof(text), "run %u", first + n);
        EXPECT(strcmp(leat_error_text(), text) == 0 && !leat_worker_on_errand(worker));
    }

    hold(worker);
    EXPECT(send(worker, 0) == LEAT_AGAIN && send(worker, leat_monotonic_ns() + 1000000) == LEAT_AGAIN);
    EXPECT(pthread_create(&thread, NULL, let_go_later, worker) == 0);
    EXPECT(send(worker, for_ever_ns) == LEAT_ERR_SHAPE);
    EXPECT(atomic_load_explicit(&errands, memory_order_relaxed) == first + 101);
    EXPECT(pthread_join(thread, NULL) == 0);
    (void)await_report(worker);
    EXPECT(errand_scratch == held_scratch);

    EXPECT(leat_worker_reshape(worker, parked) == 0);
    EXPECT(send(worker, for_ever_ns) == LEAT_OK && atomic_load_explicit(&errands, memory_order_relaxed) == first + 101);
    leat_worker_stop(worker);
    leat_worker_destroy(worker);
    atomic_store_explicit(&tables.spin_ns, before_ns, memory_order_relaxed);
}

/* Steps of 10, 60 and 30 ns, and others that take 1000 and come between: by a clock that stands still else. */
static _Atomic bool passed; /* relaxed on purpose */

static enum leat_status
run_steps(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch, struct leat_team *team)
{
    static const uint64_t steps_ns[] = {10, 60, 30};

    (void)plan;
    (void)count;
    (void)scratch;
    if (segments[0].items == 1) {
        tables.clock.base_ns += 1000;
        atomic_store_explicit(&passed, true, memory_order_relaxed);
        return LEAT_OK;
    }
    for (size_t s = 0; s < LEAT_COUNT_OF(steps_ns); s++) {
        tables.clock.base_ns += steps_ns[s];
        do {
            leat_team_yield(team);
            (void)sched_yield();
        } while (!atomic_load_explicit(&passed, memory_order_relaxed));
    }
    return LEAT_OK;
}

static void
test_longest_step(void)
{
    static const struct leat_backend backend_of_steps = {
        .abi = LEAT_BACKEND_ABI, .name = "steps", .yields = true, .plan_run = run_steps};
    static const struct leat_variant variant_of_steps = {
        .name = "steps", .index = 1, .backend = &backend_of_steps, .copies = &copy, .copy_count = 1, .items_max = 2};
    static struct leat_bell dispatcher_bell; /* nobody sleeps at it */
    const struct leat_worker_options options = {
        .core_count = 1, .cores_max = 1, .tables = &tables, .dispatcher_bell = &dispatcher_bell, .dispatcher_event = -1};
    const struct leat_clock clock = tables.clock;
    struct leat_worker *worker;

    if (clock.kind != LEAT_CLOCK_TSC) {
        return; /* it cannot stand still */
    }
    tables.clock.mult = 0;
    atomic_store_explicit(&tables.variants[1], (struct leat_variant *)(uintptr_t)&variant_of_steps, memory_order_relaxed);
    EXPECT(leat_worker_create(&options, &worker) == LEAT_OK && leat_worker_start(worker) == LEAT_OK);
    submit_items(worker, 2);
    submit(worker);
    EXPECT(await_report(worker).step_permille == 0);
    const struct leat_done_cell done = await_report(worker);
    EXPECT(done.gave_way && done.exec_ns == 100 && done.paused_ns == 1000 && done.step_permille == 600);
    leat_worker_stop(worker);
    leat_worker_destroy(worker);
    tables.clock = clock;
}

/* How often a thread of this process has left its CPU to another, or to nobody. */
static uint64_t
count_switches(void)
{
    struct rusage usage;

    EXPECT(getrusage(RUSAGE_SELF, &usage) == 0);
    return (uint64_t)usage.ru_nvcsw + (uint64_t)usage.ru_nivcsw;
}

/*
 * Batches of next to no time end while the worker is told of shapes, sooner or later: two are under way, one or none. What
 * is told and what ends meet where the two threads run at once. Where they have to take turns with each other, or with
 * others, they seldom do, and each turn takes the longer: SWITCHES of them are enough there.
 */
static void
test_last_of_a_shape(bool yielding)
{
    static struct leat_bell dispatcher_bell; /* nobody sleeps at it */
    static const struct leat_backend short_backend = {.abi = LEAT_BACKEND_ABI, .name = "short", .plan_run = run_short};
    static const struct leat_variant short_variant = {
        .name = "short", .index = 1, .backend = &short_backend, .copies = &copy, .copy_count = 1, .items_max = 1};
    const struct leat_worker_options options = {
        .core_count = 1, .cores_max = 1, .tables = &tables, .dispatcher_bell = &dispatcher_bell, .dispatcher_event = -1};
    const struct leat_variant *tried = yielding ? &yielding_variant : &short_variant;
    uint64_t random = leat_test_seed, waited[4] = {0};
    struct leat_worker *worker;
    bool enough = false;

    atomic_store_explicit(&tables.variants[1], (struct leat_variant *)(uintptr_t)tried, memory_order_relaxed);
    atomic_store_explicit(&tables.spin_ns, UINT64_C(20000), memory_order_relaxed);
    EXPECT(leat_worker_create(&options, &worker) == LEAT_OK && leat_worker_start(worker) == LEAT_OK);
    EXPECT(leat_worker_reserve(worker, SMALLEST) == LEAT_OK);
    /* Until each has come: which do depends on how many CPUs the two threads have. */
    const uint32_t turns = yielding ? TURNS / 10 : TURNS, most = 2u + yielding, other = yielding ? 2 : 1;
    const uint64_t switches = count_switches();
    for (uint32_t turn = 0; (turn < turns && !enough) || waited[most] == 0 || waited[other] == 0; turn++) {
        const struct leat_team_shape told = {.cores = 1, .worker_class = (uint16_t)(1 + turn % 2)};
        if (yielding) {
            atomic_store_explicit(&steps_taken, 0, memory_order_relaxed);
            atomic_store_explicit(&steps_allowed, (uint32_t)(leat_test_random(&random) % 32), memory_order_relaxed);
            submit_items(worker, 2);
        }
        while (worker->dispatcher.batches < most) {
            submit(worker);
        }
        for (uint64_t pauses = leat_test_random(&random) % 32; pauses > 0; pauses--) {
            leat_spin_pause();
        }
        if (leat_test_random(&random) % 8 == 0) {
            (void)sched_yield();
        }
        const uint32_t waits = leat_worker_reshape(worker, told);
        EXPECT(waits >= 1 && waits <= most);
        waited[waits]++;
        for (uint32_t reports = 0; reports < waits; reports++) {
            (void)await_report(worker);
        }
        submit(worker);
        while (worker->dispatcher.batches > 0) {
            EXPECT(await_report(worker).shape.worker_class == told.worker_class);
        }
        EXPECT(leat_worker_reshape(worker, told) == 0);
        enough = enough || (turn % 64 == 0 && count_switches() - switches >= SWITCHES);
    }
    atomic_store_explicit(&tables.spin_ns, 0, memory_order_relaxed);
    leat_worker_stop(worker);
    leat_worker_destroy(worker);
}

/* A stage with an output in a workspace and one where its client wants it, on a worker without a thread. */
static void
test_workspaces_are_cleared(void)
{
    enum { ITEM = 2 * LEAT_TENSOR_ALIGN, CLIENT = 3 };
    const struct leat_session_options session_options = {.slots = LEAT_SLOTS_MIN, .lane_count = 2, .arena_bytes = 4096};
    const struct leat_tensor_info info = {.dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, ITEM}, .item_bytes = ITEM};
    const struct leat_tensor_info infos[3] = {info, info, info};
    static const char *const payloads[] = {"leave", "read", "copy"};
    static unsigned char old[4096];
    static struct leat_bell bell; /* nobody sleeps at it */
    const struct leat_worker_options options = {
        .core_count = 1, .tables = &tables, .dispatcher_bell = &bell, .dispatcher_event = -1};
    const struct leat_plan_options plan_options = {.items = 2};
    struct leat_daemon_session *stages, *client;
    struct leat_worker *worker;
    struct leat_done_cell done;
    char note[160];

    memset(old, 0xee, sizeof(old));
    EXPECT(leat_daemon_session_create(&session_options, &stages, note) == LEAT_OK);
    EXPECT(leat_daemon_session_create(&session_options, &client, note) == LEAT_OK);
    atomic_store_explicit(&tables.sessions[LEAT_PIPELINE_SESSION], stages, memory_order_relaxed);
    atomic_store_explicit(&tables.sessions[CLIENT], client, memory_order_relaxed);
    EXPECT(leat_worker_create(&options, &worker) == LEAT_OK);
    for (uint32_t p = 0; p < 3; p++) {
        struct leat_variant_copy synthetic = {0};
        const struct leat_variant left = {.index = 2,
                                          .backend = &leat_backend_synthetic,
                                          .copies = &synthetic,
                                          .copy_count = 1,
                                          .items_max = 2,
                                          .tensor_count = 3,
                                          .input_count = 1,
                                          .item_bytes = {ITEM, ITEM, ITEM}};
        char text[64];
        (void)snprintf(text, sizeof(text), "{\"payload\": \"%s\"}", payloads[p]);
        const struct leat_model_source source = {.options_json = text, .infos = infos, .input_count = 1, .output_count = 2};
        EXPECT(left.backend->model_load(&source, &synthetic.model) == LEAT_OK);
        EXPECT(left.backend->plan_build(synthetic.model, &plan_options, &synthetic.plans[1]) == LEAT_OK);
        atomic_store_explicit(&tables.variants[left.index], (struct leat_variant *)(uintptr_t)&left, memory_order_relaxed);
        memset(stages->arena, 0xee, sizeof(old));
        memset(client->arena, 0xee, sizeof(old));
        struct leat_work_cell *cell = leat_worker_cell(worker, 0);
        cell->deadline_ns = LEAT_NO_DEADLINE;
        cell->items_less_1 = 1;
        cell->session = LEAT_PIPELINE_SESSION;
        cell->ticket_low = CLIENT;
        cell->variant = left.index;
        cell->units[0] = LEAT_PIPELINE_UNIT | 4; /* of 64 bytes: each tensor has four */
        cell->units[1] = LEAT_PIPELINE_UNIT | 12;
        cell->units[2] = 8;
        leat_worker_submit(worker, 1);
        EXPECT(leat_worker_step(worker) && leat_worker_poll_done(worker, &done) && done.failed == 0 && done.tells_all);
        const unsigned char *y = stages->arena + 12 * LEAT_TENSOR_ALIGN;
        EXPECT(memcmp(stages->arena, old, 12 * LEAT_TENSOR_ALIGN) == 0 && memcmp(client->arena, old, sizeof(old)) == 0);
        EXPECT(memcmp(y + 2 * ITEM, old, sizeof(old) - 12 * LEAT_TENSOR_ALIGN - 2 * ITEM) == 0);
        for (uint32_t b = p == 1 ? sizeof(uint64_t) : 0; b < 2 * ITEM; b++) { /* "read" begins with a sum */
            EXPECT(y[b] == (p == 2 ? 0xee : 0));
        }
        left.backend->plan_destroy(synthetic.plans[1]);
        left.backend->model_destroy(synthetic.model);
    }
    leat_worker_destroy(worker);
    leat_daemon_session_destroy(client);
    leat_daemon_session_destroy(stages);
}

int
main(void)
{
    const struct leat_session_options session_options = {.slots = LEAT_SLOTS_MIN, .lane_count = 2, .arena_bytes = 4096};
    static struct leat_bell dispatcher_bell; /* nobody sleeps at it */
    struct leat_daemon_session *session;
    struct leat_worker *worker;
    struct leat_done_cell done;
    char note[160];

    leat_test_init();
    leat_clock_init(&tables.clock);
    test_workspaces_are_cleared();
    EXPECT(leat_daemon_session_create(&session_options, &session, note) == LEAT_OK);
    atomic_store_explicit(&tables.sessions[0], session, memory_order_relaxed);
    test_errands(0);
    test_errands(UINT64_MAX / 2);
    test_last_of_a_shape(false);
    test_last_of_a_shape(true);
    test_yielding();
    test_longest_step();
    atomic_store_explicit(&tables.variants[variant.index], &variant, memory_order_relaxed);
    const struct leat_worker_options options = {
        .core_count = 1, .cores_max = CORES_MAX, .tables = &tables, .dispatcher_bell = &dispatcher_bell, .dispatcher_event = -1};
    EXPECT(leat_worker_create(&options, &worker) == LEAT_OK && leat_worker_start(worker) == LEAT_OK);
    EXPECT(leat_worker_reserve(worker, SMALLEST) == LEAT_OK);
    for (uint32_t growth = 0; growth < GROWTHS; growth++) {
        const struct leat_team_shape told = {.cores = (uint16_t)(CORES_MAX - growth % CORES_MAX), .worker_class = (uint16_t)growth};
        EXPECT(leat_worker_reshape(worker, told) == 0);
        submit(worker);
        submit(worker);
        while (atomic_load_explicit(&begun, memory_order_relaxed) <= 2 * growth) {
            (void)sched_yield();
        }
        EXPECT(leat_worker_reserve(worker, SMALLEST << (growth + 1)) == LEAT_OK);
        atomic_store_explicit(&allowed, 2 * growth + 2, memory_order_relaxed);
        for (uint32_t reports = 0; reports < 2; reports++) {
            while (!leat_worker_poll_done(worker, &done)) {
                (void)sched_yield();
            }
            EXPECT(done.queries == 1 && done.failed == 0);
            const struct leat_team_shape *ran = &shapes[2 * growth + reports];
            EXPECT(ran->cores == told.cores && ran->worker_class == told.worker_class);
            EXPECT(done.shape.cores == told.cores && done.shape.worker_class == told.worker_class);
        }
        EXPECT(blocks[2 * growth] != blocks[2 * growth + 1]);
        EXPECT(growth == 0 || blocks[2 * growth] == blocks[2 * growth - 1]);
    }
    atomic_store_explicit(&tables.spin_ns, UINT64_MAX / 2, memory_order_relaxed); /* who is awake spins for ever */
    for (uint32_t parking = 0; parking < PARKINGS; parking++) {
        park(worker, true);
        park(worker, false);
    }
    leat_worker_stop(worker);
    leat_worker_destroy(worker);
    leat_daemon_session_destroy(session);
    return 0;
}
