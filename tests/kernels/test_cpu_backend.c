/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     On whole networks the cpu backend gives the reference backend's answers, for every plan size, team
 *          size and split of a batch, while a team grows and shrinks between batches, from several workers at once, and
 *          allocates and locks nothing once it is warm.
 * Method   Every model of leat-zoo in its test size, in every precision that the machine has. Outputs are compared with those
 *          of the reference backend, in f32 one by one, else by how far those move when the inputs do by as much as
 *          the precision leaves open;
 *          the same items in other segments must give the same bytes; allocations and mutex locks are counted around
 *          the run, those of libraries too.
 *          Buffer placement: random lifetimes against the definition of what may overlap.
 *          With the thread sanitizer only what several threads do, and of splits and pauses some of each: it looks for
 *          races, and what one thread does alone has none.
 */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/cpu/calibrate.h"
#include "kernels/cpu/inspect.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/program.h"
#include "kernels/graph.h"
#include "kernels/graph_build.h"
#include "kernels/op.h"
#include "kernels/team.h"
#include "tests/kernels/drawn_numbers.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"
#include "tests/zoo_lengths.h"
#include "tools/zoo/zoo.h"

enum { ITEMS = 5, TEAM = 3, WORKERS = 3, ROUNDS = LEAT_TEST_ROUNDS(20) };

enum { RACES_ONLY = LEAT_TEST_RACES_ONLY, PAUSES = RACES_ONLY ? 16 : LEAT_TEST_ROUNDS(128) };
#if defined(LEAT_ALL_ROUNDS) && !defined(__SANITIZE_THREAD__)
enum { PAUSES_ALL = 1 };
#else
enum { PAUSES_ALL = 0 };
#endif

static uint32_t rounds = ROUNDS; /* of several workers */
static size_t quantised;         /* networks that int8 makes a difference to */

/* Of a team of TEAM: who waits where there are fewer CPUs waits for one that has none, and had better sleep. */
static uint64_t
spin_ns(void)
{
    cpu_set_t cpus;

    EXPECT(sched_getaffinity(0, sizeof(cpus), &cpus) == 0);
    return CPU_COUNT(&cpus) < TEAM ? 1 : 20000;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define COUNT_ALLOCATIONS 1
/* The C library's allocator under its other names: every allocation of this program comes through here. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
static _Atomic size_t allocations; /* of all threads: helpers of a team count too */

LEAT_PUBLIC void *
malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}

LEAT_PUBLIC void *
calloc(size_t count, size_t size)
{
    allocations++;
    return __libc_calloc(count, size);
}

LEAT_PUBLIC void *
realloc(void *memory, size_t size)
{
    allocations++;
    return __libc_realloc(memory, size);
}

LEAT_PUBLIC int
posix_memalign(void **ret_memory, size_t alignment, size_t size)
{
    allocations++;
    *ret_memory = __libc_memalign(alignment, size);
    return *ret_memory != NULL ? 0 : 12;
}

static int (*real_lock)(pthread_mutex_t *mutex);
static _Atomic size_t locks;

LEAT_PUBLIC int
pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (real_lock == NULL) {
        real_lock = (int (*)(pthread_mutex_t *))(uintptr_t)dlsym(RTLD_NEXT, "pthread_mutex_lock");
    }
    locks++;
    return real_lock(mutex);
}
#endif

/* A model, its inputs for ITEMS items, and what the reference backend answers. */
struct network {
    const char *name;
    struct leat_graph *graph;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source;
    unsigned char *inputs[LEAT_TENSORS_MAX];
    unsigned char *expected[LEAT_TENSORS_MAX]; /* by tensor; inputs are NULL */
    float coarse[LEAT_TENSORS_MAX]; /* how far off answers may be in bf16; in int8 four times as far */
};

static uint32_t
tensors_of(const struct network *network)
{
    return network->source.input_count + network->source.output_count;
}

static void
read_ends(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    int64_t *ends = context;
    (void)model;

    for (uint32_t i = 0; i < summary->input_count; i++) {
        ends[i] = summary->inputs[i].end;
    }
}

/* Small numbers, for sums must not hide a wrong term; indices below `end`. */
static void
fill(const struct leat_tensor_info *info, int64_t end, unsigned char *data, uint64_t *random)
{
    for (size_t i = 0; i < ITEMS * info->item_bytes / leat_dtype_bytes(info->dtype); i++) {
        const uint64_t r = leat_test_random(random);
        switch (info->dtype) {
        case LEAT_DTYPE_F32:
            ((float *)(void *)data)[i] = (float)(r % 2000) / 1000.0f - 1.0f;
            break;
        case LEAT_DTYPE_I64:
            ((int64_t *)(void *)data)[i] = (int64_t)(r % (uint64_t)end);
            break;
        default:
            EXPECT(!"a type that no model of the zoo has");
        }
    }
}

static enum leat_status
run(const struct leat_backend *backend, const struct leat_plan *plan, const struct network *network,
    const uint32_t *split, uint32_t count, void *scratch, struct leat_team *team, unsigned char *const *outputs)
{
    struct leat_segment segments[ITEMS];
    uint32_t first = 0;

    for (uint32_t s = 0; s < count; s++) {
        segments[s].items = split[s];
        for (uint32_t t = 0; t < tensors_of(network); t++) {
            const unsigned char *base = t < network->source.input_count ? network->inputs[t] : outputs[t];
            segments[s].tensors[t] = base + first * network->infos[t].item_bytes;
        }
        first += split[s];
    }
    return backend->plan_run(plan, segments, count, scratch, team);
}

static void
make_outputs(const struct network *network, unsigned char **outputs)
{
    for (uint32_t t = network->source.input_count; t < tensors_of(network); t++) {
        outputs[t] = aligned(ITEMS * network->infos[t].item_bytes);
        memset(outputs[t], 0x5a, ITEMS * network->infos[t].item_bytes);
    }
}

static void
free_outputs(const struct network *network, unsigned char **outputs)
{
    for (uint32_t t = network->source.input_count; t < tensors_of(network); t++) {
        free(outputs[t]);
    }
}

/* Up and down in turn, from `from`. */
static void
move_input(const struct leat_tensor_info *info, const unsigned char *from, float step, unsigned char *to)
{
    const size_t bytes = ITEMS * info->item_bytes;
    float *data = (float *)(void *)to;

    memcpy(to, from, bytes);
    for (size_t i = 0; info->dtype == LEAT_DTYPE_F32 && i < bytes / sizeof(*data); i++) {
        data[i] *= i % 2 == 0 ? 1 + step : 1 - step;
    }
}

/*
 * Each layer rounds by 2^-9, as the inputs are moved here: what comes of that at one end is taken eightfold for what comes in
 * between; at least 5 % of the largest.
 */
static void
set_coarse(struct network *network, const struct leat_plan *plan, void *scratch)
{
    const uint32_t whole = ITEMS;
    unsigned char *moved[LEAT_TENSORS_MAX] = {NULL};
    struct network shaken = *network;

    make_outputs(network, moved);
    for (uint32_t t = 0; t < network->source.input_count; t++) {
        shaken.inputs[t] = aligned(ITEMS * network->infos[t].item_bytes);
        move_input(&network->infos[t], network->inputs[t], 1.0f / 256, shaken.inputs[t]);
    }
    EXPECT(run(&leat_backend_reference, plan, &shaken, &whole, 1, scratch, NULL, moved) == LEAT_OK);
    for (uint32_t t = 0; t < network->source.input_count; t++) {
        free(shaken.inputs[t]);
    }
    for (uint32_t t = network->source.input_count; t < tensors_of(network); t++) {
        float largest = 0, furthest = 0;
        EXPECT(network->infos[t].dtype == LEAT_DTYPE_F32);
        for (size_t i = 0; i < ITEMS * network->infos[t].item_bytes / sizeof(float); i++) {
            const float expected = ((const float *)(const void *)network->expected[t])[i];
            largest = fmaxf(largest, fabsf(expected));
            furthest = fmaxf(furthest, fabsf(((const float *)(const void *)moved[t])[i] - expected));
        }
        network->coarse[t] = fmaxf(8 * furthest, 0.05f * largest);
    }
    free_outputs(network, moved);
}

/* By the very items that are run. */
static void
calibrate(struct network *network)
{
    struct leat_calibration *calibration;

    EXPECT(leat_calibration_create(network->graph, ITEMS, &calibration) == LEAT_OK);
    EXPECT(leat_calibration_run(calibration, (const void *const *)network->inputs) == LEAT_OK);
    for (uint32_t i = 0; i < leat_calibration_count(calibration); i++) {
        const struct leat_range range = leat_calibration_range(calibration, i);
        EXPECT(range.least <= 0 && range.most >= 0 && leat_graph_set_range(network->graph, &range));
    }
    leat_calibration_destroy(calibration);
}

/* One with lengths to choose, or one without; false where it is of the other kind, or the engine does not have what it needs. */
static bool
make_network(const struct zoo_model *model, bool sequences, struct network *network)
{
    const struct leat_backend *reference = &leat_backend_reference;
    const uint32_t whole = ITEMS;
    uint64_t random = leat_test_seed;
    int64_t ends[LEAT_TENSORS_MAX] = {0};
    struct leat_model *loaded;
    struct leat_plan *plan;
    size_t size;
    void *file;

    *network = (struct network){.name = model->name};
    EXPECT(zoo_write(model, ZOO_SIZE_TEST, leat_test_seed, &file, &size) == LEAT_OK);
    enum leat_status status = leat_onnx_import(file, size, &network->graph);
    free(file);
    if (status == LEAT_OK) {
        status = zoo_lengths(model, ZOO_SIZE_TEST, network->graph);
    }
    if (status == LEAT_OK) {
        EXPECT(leat_graph_optimise(network->graph, UINT64_MAX) == LEAT_OK);
        network->source = (struct leat_model_source){.graph = network->graph, .infos = network->infos};
        status = leat_graph_signature(network->graph, network->infos, &network->source.input_count,
                                      &network->source.output_count);
    }
    if (status != LEAT_OK || (network->graph->symbol_count > 0) != sequences) {
        EXPECT(status == LEAT_OK || status == LEAT_ERR_UNSUPPORTED);
        leat_graph_destroy(network->graph);
        return false;
    }
    EXPECT(zoo_describe(model, ZOO_SIZE_TEST, read_ends, ends) == LEAT_OK);
    for (uint32_t t = 0; t < tensors_of(network); t++) {
        unsigned char *block = aligned(ITEMS * network->infos[t].item_bytes);
        if (t < network->source.input_count) {
            fill(&network->infos[t], ends[t], block, &random);
            network->inputs[t] = block;
        } else {
            network->expected[t] = block;
        }
    }
    EXPECT(reference->model_load(&network->source, &loaded) == LEAT_OK);
    EXPECT(reference->plan_build(loaded, &(struct leat_plan_options){.items = ITEMS}, &plan) == LEAT_OK);
    void *scratch = aligned(reference->plan_scratch_bytes(plan));
    EXPECT(run(reference, plan, network, &whole, 1, scratch, NULL, network->expected) == LEAT_OK);
    set_coarse(network, plan, scratch);
    free(scratch);
    reference->plan_destroy(plan);
    reference->model_destroy(loaded);
    calibrate(network);
    return true;
}

static void
destroy_network(struct network *network)
{
    for (uint32_t t = 0; t < tensors_of(network); t++) {
        free(network->inputs[t]);
        free(network->expected[t]);
    }
    leat_graph_destroy(network->graph);
}

static void
compare(const struct network *network, uint32_t items, unsigned char *const *outputs)
{
    for (uint32_t t = network->source.input_count; t < tensors_of(network); t++) {
        const float *expected = (const float *)(const void *)network->expected[t];
        const float *answer = (const float *)(const void *)outputs[t];
        const bool exact = network->source.precision == LEAT_PRECISION_F32, bf16 = network->source.precision == LEAT_PRECISION_BF16;
        for (size_t i = 0; i < items * network->infos[t].item_bytes / sizeof(float); i++) {
            const float bound = exact ? 1e-4f + 1e-3f * fabsf(expected[i]) : bf16 ? network->coarse[t] : 4 * network->coarse[t];
            if (!(fabsf(answer[i] - expected[i]) <= bound)) {
                (void)fprintf(stderr, "%s in %s: output %u, element %zu is %g, the reference backend says %g\n",
                              network->name, leat_precision_text(network->source.precision), t, i, (double)answer[i],
                              (double)expected[i]);
                EXPECT(!"the reference backend's answer");
            }
        }
    }
}

/* Cuts `items` into segments after each bit that is set in `cuts`. */
static uint32_t
split_items(uint32_t items, uint32_t cuts, uint32_t *split)
{
    uint32_t count = 0;

    split[0] = 0;
    for (uint32_t i = 0; i < items; i++) {
        split[count]++;
        if (i + 1 < items && (cuts >> i & 1u) != 0) {
            split[++count] = 0;
        }
    }
    return count + 1;
}

#ifdef COUNT_ALLOCATIONS
/* Else some products and convolutions are on oneDNN's gemm. */
static bool
has_avx2(void)
{
#if defined(__x86_64__)
    return cpu_has_avx2();
#else
    return false;
#endif
}
#endif

static void
test_splits(const struct network *network, const struct leat_plan *plan, uint32_t plan_items, struct leat_team *team)
{
    const struct leat_backend *backend = &leat_backend_cpu;
    void *scratch = aligned(backend->plan_scratch_bytes(plan));
    unsigned char *whole[LEAT_TENSORS_MAX] = {NULL}, *parts[LEAT_TENSORS_MAX] = {NULL};
    uint32_t split[ITEMS];

    make_outputs(network, whole);
    make_outputs(network, parts);
    for (uint32_t items = 1; items <= plan_items && items <= ITEMS; items++) {
        split[0] = items;
        EXPECT(run(backend, plan, network, split, 1, scratch, team, whole) == LEAT_OK);
        compare(network, items, whole);
        for (uint32_t cuts = 1; cuts < 1u << (items - 1); cuts += RACES_ONLY ? 7 : 1) {
            const uint32_t count = split_items(items, cuts, split);
#ifdef COUNT_ALLOCATIONS
            const size_t before = allocations, locks_before = locks;
#endif
            EXPECT(run(backend, plan, network, split, count, scratch, team, parts) == LEAT_OK);
#ifdef COUNT_ALLOCATIONS
            EXPECT((allocations == before && locks == locks_before) || !has_avx2());
#endif
            for (uint32_t t = network->source.input_count; t < tensors_of(network); t++) {
                EXPECT(memcmp(whole[t], parts[t], items * network->infos[t].item_bytes) == 0);
            }
        }
    }
    free_outputs(network, whole);
    free_outputs(network, parts);
    free(scratch);
}

static void
test_plans(const struct network *network, struct leat_model *model, struct leat_team *team)
{
    static const uint32_t items[] = {1, ITEMS, ITEMS + 3}, team_sizes[] = {TEAM, 2};
    const struct leat_backend *backend = &leat_backend_cpu;

    for (size_t i = RACES_ONLY; i < LEAT_COUNT_OF(items); i++) {
        const struct leat_plan_options options = {.items = items[i], .team_sizes = team_sizes, .team_size_count = 2};
        struct leat_plan *plan;
        EXPECT(backend->plan_build(model, &options, &plan) == LEAT_OK);
        if (!RACES_ONLY) {
            test_splits(network, plan, items[i], NULL);
        }
        test_splits(network, plan, items[i], team);
        backend->plan_destroy(plan);
    }
}

/* ---- A team that is resized between batches --------------------------------------------------------- */

/* At random, growing and shrinking. On as many members answers are the same, bit by bit, whatever was before. */
static void
test_resizes(const struct network *network, struct leat_model *model)
{
    static const uint32_t team_sizes[] = {TEAM, 2};
    const struct leat_plan_options options = {.items = ITEMS, .team_sizes = team_sizes, .team_size_count = 2};
    const struct leat_team_options growing = {.size = 1, .size_max = TEAM, .spin_ns = spin_ns()};
    const uint32_t whole = ITEMS;
    unsigned char *first[TEAM + 1][LEAT_TENSORS_MAX] = {{NULL}}, *outputs[LEAT_TENSORS_MAX] = {NULL};
    uint64_t random = leat_test_seed;
    struct leat_team *team;
    struct leat_plan *plan;

    EXPECT(leat_backend_cpu.plan_build(model, &options, &plan) == LEAT_OK);
    EXPECT(leat_team_create(&growing, &team) == LEAT_OK);
    void *scratch = aligned(leat_backend_cpu.plan_scratch_bytes(plan));
    for (uint32_t size = 1; size <= TEAM; size++) {
        make_outputs(network, first[size]);
        leat_team_resize(team, size, size);
        EXPECT(run(&leat_backend_cpu, plan, network, &whole, 1, scratch, team, first[size]) == LEAT_OK);
        compare(network, ITEMS, first[size]);
    }
    for (uint32_t round = 0; round < LEAT_TEST_ROUNDS(20); round++) {
        const uint32_t size = 1 + (uint32_t)(leat_test_random(&random) % TEAM);
        make_outputs(network, outputs);
        leat_team_resize(team, size, size);
        EXPECT(leat_team_size(team) == size && leat_team_class(team) == size);
        EXPECT(run(&leat_backend_cpu, plan, network, &whole, 1, scratch, team, outputs) == LEAT_OK);
        for (uint32_t t = network->source.input_count; t < tensors_of(network); t++) {
            EXPECT(memcmp(outputs[t], first[size][t], ITEMS * network->infos[t].item_bytes) == 0);
        }
        free_outputs(network, outputs);
    }
    for (uint32_t size = 1; size <= TEAM; size++) {
        free_outputs(network, first[size]);
    }
    free(scratch);
    leat_team_destroy(team);
    leat_backend_cpu.plan_destroy(plan);
}

/* ---- A run that is paused --------------------------------------------------------------------------- */

/* What comes in between: other runs of the plan, on the same team. */
struct passing {
    const struct network *network;
    const struct leat_plan *plan;
    struct leat_team *team;
    void *scratch;
    unsigned char *const *outputs;
    uint64_t random;
    uint32_t yields, passed;
    uint32_t one_in; /* 0: in none of them */
};

static void
pass(void *context)
{
    struct passing *passing = context;
    const uint32_t items = 1 + (uint32_t)(leat_test_random(&passing->random) % ITEMS);

    passing->yields++;
    if (passing->one_in > 0 && leat_test_random(&passing->random) % passing->one_in == 0) {
        leat_team_set_yield(passing->team, NULL, NULL);
        EXPECT(run(&leat_backend_cpu, passing->plan, passing->network, &items, 1, passing->scratch, passing->team,
                   passing->outputs) == LEAT_OK);
        compare(passing->network, items, passing->outputs);
        leat_team_set_yield(passing->team, pass, passing);
        passing->passed++;
    }
}

/*
 * Between any steps, and between all of them where there are not many: nothing of it shows in the answer, and nothing is
 * allocated or locked. Of many, after about PAUSES steps drawn anew for each network, or all of them with `tools/check --long`;
 * with the thread sanitizer fewer: it is always the same that threads hand over.
 */
static void
test_pauses(const struct network *network, struct leat_model *model, struct leat_team *team)
{
    const uint32_t team_sizes[] = {leat_team_size(team)};
    const struct leat_plan_options options = {.items = ITEMS, .team_sizes = team_sizes, .team_size_count = 1, .runs = 2};
    const uint32_t whole = ITEMS;
    unsigned char *expected[LEAT_TENSORS_MAX] = {NULL}, *paused[LEAT_TENSORS_MAX] = {NULL};
    unsigned char *others[LEAT_TENSORS_MAX] = {NULL};
    struct leat_plan *plan;

    EXPECT(leat_backend_cpu.yields && leat_backend_cpu.plan_build(model, &options, &plan) == LEAT_OK);
    const size_t bytes = leat_backend_cpu.plan_scratch_bytes(plan);
    void *scratch = aligned(bytes);
    make_outputs(network, expected);
    make_outputs(network, paused);
    make_outputs(network, others);
    EXPECT(run(&leat_backend_cpu, plan, network, &whole, 1, scratch, team, expected) == LEAT_OK);
    struct passing passing = {.network = network,
                              .plan = plan,
                              .team = team,
                              .scratch = aligned(bytes),
                              .outputs = others,
                              .random = leat_test_seed};
    leat_team_set_yield(team, pass, &passing);
    EXPECT(run(&leat_backend_cpu, plan, network, &whole, 1, scratch, team, paused) == LEAT_OK);
    passing.one_in = PAUSES_ALL ? 1 : 1 + passing.yields / PAUSES;
    for (uint32_t round = 0; round < 2; round++) {
        const uint32_t yields = passing.yields, passed = passing.passed;
#ifdef COUNT_ALLOCATIONS
        const size_t before = allocations, locks_before = locks;
#endif
        leat_team_set_yield(team, pass, &passing);
        EXPECT(run(&leat_backend_cpu, plan, network, &whole, 1, scratch, team, paused) == LEAT_OK);
        leat_team_set_yield(team, NULL, NULL);
#ifdef COUNT_ALLOCATIONS
        EXPECT(round == 0 || (allocations == before && locks == locks_before) || !has_avx2());
#endif
        EXPECT(passing.yields > yields && (passing.one_in > 1 || passing.passed - passed == passing.yields - yields));
        passing.one_in *= 3;
        for (uint32_t t = network->source.input_count; t < tensors_of(network); t++) {
            EXPECT(memcmp(paused[t], expected[t], ITEMS * network->infos[t].item_bytes) == 0);
        }
    }
    EXPECT(run(&leat_backend_cpu, plan, network, &whole, 1, scratch, team, paused) == LEAT_OK); /* nobody asks any more */
    free(passing.scratch);
    free(scratch);
    free_outputs(network, expected);
    free_outputs(network, paused);
    free_outputs(network, others);
    leat_backend_cpu.plan_destroy(plan);
}

/* ---- Several workers, one plan ---------------------------------------------------------------------- */

struct worker {
    const struct network *network;
    const struct leat_plan *plan;
    pthread_t thread;
};

static void *
work(void *context)
{
    const struct worker *worker = context;
    const uint32_t whole = ITEMS;
    unsigned char *outputs[LEAT_TENSORS_MAX] = {NULL};

    for (uint32_t round = 0; round < rounds; round++) {
        /* A new block in every second round: the plan's slots are bound again while others run. */
        void *scratch = aligned(leat_backend_cpu.plan_scratch_bytes(worker->plan));
        make_outputs(worker->network, outputs);
        for (int twice = 0; twice < 2; twice++) {
            EXPECT(run(&leat_backend_cpu, worker->plan, worker->network, &whole, 1, scratch, NULL, outputs) == LEAT_OK);
            compare(worker->network, ITEMS, outputs);
        }
        free_outputs(worker->network, outputs);
        free(scratch);
    }
    return NULL;
}

static void
test_workers(const struct network *network, struct leat_model *model)
{
    const struct leat_plan_options options = {.items = ITEMS, .runs = WORKERS};
    struct worker workers[WORKERS];
    struct leat_plan *plan;

    EXPECT(leat_backend_cpu.plan_build(model, &options, &plan) == LEAT_OK);
    for (int w = 0; w < WORKERS; w++) {
        workers[w] = (struct worker){.network = network, .plan = plan};
        EXPECT(pthread_create(&workers[w].thread, NULL, work, &workers[w]) == 0);
    }
    for (int w = 0; w < WORKERS; w++) {
        EXPECT(pthread_join(workers[w].thread, NULL) == 0);
    }
    leat_backend_cpu.plan_destroy(plan);
}

/* ---- Payloads shared by copies of a graph ---------------------------------------------------------- */

static void *
read_and_destroy(void *context)
{
    struct leat_graph *graph = context;
    volatile unsigned sum = 0;

    for (uint32_t v = 0; v < graph->value_count; v++) {
        const unsigned char *data = graph->values[v].data;
        sum += data != NULL && graph->values[v].data_bytes > 0 ? data[0] : 0;
    }
    leat_graph_destroy(graph); /* whoever is last frees what the others have read */
    return NULL;
}

static void
test_shared_payloads(void)
{
    pthread_t threads[WORKERS];
    size_t size;
    void *file;

    EXPECT(zoo_write(zoo_find("lenet5"), ZOO_SIZE_TEST, leat_test_seed, &file, &size) == LEAT_OK);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct leat_graph *first, *copies[WORKERS];
        EXPECT(leat_onnx_import(file, size, &first) == LEAT_OK);
        for (int w = 0; w < WORKERS; w++) {
            EXPECT(leat_graph_copy(first, &copies[w]) == LEAT_OK);
        }
        leat_graph_destroy(first);
        for (int w = 0; w < WORKERS; w++) {
            EXPECT(pthread_create(&threads[w], NULL, read_and_destroy, copies[w]) == 0);
        }
        for (int w = 0; w < WORKERS; w++) {
            EXPECT(pthread_join(threads[w], NULL) == 0);
        }
    }
    free(file);
}

/* ---- Single nodes ----------------------------------------------------------------------------------- */

enum { ROWS = 64 };

/* A graph of one input and output y, in both backends, without passes; to the last bit, or as near as whole networks. */
static void
compare_backends(struct builder *b, const char *name, bool exact, uint64_t *random)
{
    const struct leat_backend *const backends[] = {&leat_backend_reference, &leat_backend_cpu};
    const uint32_t whole = ITEMS;
    struct network n = {.name = name};
    unsigned char *answers[LEAT_TENSORS_MAX] = {NULL};

    builder_output(b, "y");
    EXPECT(builder_import(b, &n.graph) == LEAT_OK);
    builder_fini(b);
    n.source = (struct leat_model_source){.graph = n.graph, .infos = n.infos};
    EXPECT(leat_graph_signature(n.graph, n.infos, &n.source.input_count, &n.source.output_count) == LEAT_OK);
    n.inputs[0] = aligned(ITEMS * n.infos[0].item_bytes);
    n.expected[1] = aligned(ITEMS * n.infos[1].item_bytes);
    answers[1] = aligned(ITEMS * n.infos[1].item_bytes);
    fill(&n.infos[0], ROWS, n.inputs[0], random);
    for (size_t i = 0; i < LEAT_COUNT_OF(backends); i++) {
        struct leat_model *model;
        struct leat_plan *plan;
        EXPECT(backends[i]->model_load(&n.source, &model) == LEAT_OK);
        EXPECT(backends[i]->plan_build(model, &(struct leat_plan_options){.items = ITEMS}, &plan) == LEAT_OK);
        void *scratch = aligned(backends[i]->plan_scratch_bytes(plan));
        EXPECT(run(backends[i], plan, &n, &whole, 1, scratch, NULL, i == 0 ? n.expected : answers) == LEAT_OK);
        free(scratch);
        backends[i]->plan_destroy(plan);
        backends[i]->model_destroy(model);
    }
    if (exact) {
        EXPECT(memcmp(answers[1], n.expected[1], ITEMS * n.infos[1].item_bytes) == 0);
    } else {
        compare(&n, ITEMS, answers);
    }
    free(answers[1]);
    destroy_network(&n);
}

/* [items][a][b][c] over one, two or all of the last three axes: results in vectors and what is left over. */
static void
test_sums(void)
{
    static const int64_t axes[][3] = {{1}, {2}, {3}, {1, 2}, {2, 3}, {1, 3}, {1, 2, 3}};
    static const size_t counts[] = {1, 1, 1, 2, 2, 2, 3};
    uint64_t random = leat_test_seed;

    for (uint32_t round = 0; round < LEAT_TEST_ROUNDS(70); round++) {
        const int64_t dims[4] = {-1, 1 + (int64_t)(leat_test_random(&random) % 9), 1 + (int64_t)(leat_test_random(&random) % 9),
                                 1 + (int64_t)(leat_test_random(&random) % 50)};
        const uint32_t kind = round % LEAT_COUNT_OF(axes);
        struct builder b;

        builder_init(&b, 11);
        (void)builder_input(&b, "x", 1, dims, 4);
        Onnx__NodeProto *node = builder_node(&b, "ReduceSum", "x", "y");
        (void)builder_ints(&b, node, "axes", axes[kind], counts[kind]);
        (void)builder_int(&b, node, "keepdims", round % 2);
        compare_backends(&b, "ReduceSum", false, &random);
    }
}

/* Of rows of few different numbers, NaN and infinities among them: which of equal ones it is shows. */
static void
test_greatest(void)
{
    static const float numbers[] = {-1, 0, 1, 2, 3, INFINITY, -INFINITY, NAN};
    uint64_t random = leat_test_seed;

    for (uint32_t round = 0; round < LEAT_TEST_ROUNDS(120); round++) {
        const int64_t rows = 1 + (int64_t)(leat_test_random(&random) % 5), count = 1 + (int64_t)(leat_test_random(&random) % 9);
        const bool place = round % 2 == 0;
        float table[ROWS * 9];
        struct builder b;

        for (size_t i = 0; i < LEAT_COUNT_OF(table); i++) {
            table[i] = numbers[leat_test_random(&random) % (round % 3 == 0 ? LEAT_COUNT_OF(numbers) : 5)];
        }
        builder_init(&b, 12);
        (void)builder_input(&b, "row", 7, DIMS(-1, rows));
        (void)builder_constant(&b, "table", 1, table, DIMS(ROWS, count));
        (void)builder_int(&b, builder_node(&b, "Gather", "table row", "x"), "axis", 0);
        Onnx__NodeProto *node = builder_node(&b, place ? "ArgMax" : "ReduceMax", "x", "y");
        if (place) {
            (void)builder_int(&b, node, "axis", round % 4 == 0 ? 2 : -1);
            (void)builder_int(&b, node, "select_last_index", round % 7 == 0);
        } else {
            (void)builder_ints(&b, node, "axes", (const int64_t[]){2}, 1);
        }
        (void)builder_int(&b, node, "keepdims", round % 3 == 0);
        compare_backends(&b, place ? "ArgMax" : "ReduceMax", true, &random);
    }
}

/* Nearest pixels by every convention, of images, rows and volumes, with channels and whole factors as they come, and with others. */
static void
test_enlarged(void)
{
    static const char *const places[] = {"half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn", "align_corners"};
    static const char *const rounds_to[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
    uint64_t random = leat_test_seed;

    for (uint32_t round = 0; round < LEAT_TEST_ROUNDS(200); round++) {
        const uint32_t rank = 3 + (uint32_t)(leat_test_random(&random) % 3);
        int64_t dims[5] = {-1};
        float scales[5] = {1, 1};
        struct builder b;

        for (uint32_t d = 1; d < rank; d++) {
            dims[d] = 1 + (int64_t)(leat_test_random(&random) % (d == 1 ? 33 : 7));
        }
        for (uint32_t d = 2; d < rank; d++) {
            scales[d] = (float)(1 + leat_test_random(&random) % 4);
            scales[d] *= leat_test_random(&random) % 8 == 0 && (float)dims[d] * scales[d] >= 2 ? 0.75f : 1; /* of one, none is left */
        }
        builder_init(&b, 13);
        (void)builder_input(&b, "x", 1, dims, rank);
        (void)builder_constant(&b, "scales", 1, scales, DIMS(rank));
        Onnx__NodeProto *node = builder_node(&b, "Resize", "x - scales", "y");
        (void)builder_string(&b, node, "mode", "nearest");
        (void)builder_string(&b, node, "coordinate_transformation_mode", places[round % LEAT_COUNT_OF(places)]);
        (void)builder_string(&b, node, "nearest_mode", rounds_to[leat_test_random(&random) % LEAT_COUNT_OF(rounds_to)]);
        compare_backends(&b, "Resize", true, &random);
    }
}

/* ---- Placement -------------------------------------------------------------------------------------- */

static void
test_placement(void)
{
    enum { BUFFERS = 60, STEPS = 30 };
    struct cpu_buffer buffers[BUFFERS];
    uint64_t random = leat_test_seed;

    for (int round = 0; round < LEAT_TEST_ROUNDS(300); round++) {
        const uint32_t count = 1 + (uint32_t)(leat_test_random(&random) % BUFFERS);
        size_t sum = 0, peak = 0, total = 0, bound = 0;
        uint64_t looks;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t first = (uint32_t)(leat_test_random(&random) % STEPS);
            buffers[i] = (struct cpu_buffer){.bytes = (size_t)(leat_test_random(&random) % 5000),
                                             .first = leat_test_random(&random) % 9 == 0 ? CPU_NONE : first,
                                             .last = first + (uint32_t)(leat_test_random(&random) % 6)};
        }
        EXPECT(cpu_place_buffers(buffers, count, &total, &looks) == LEAT_OK);
        EXPECT(cpu_live_bytes(buffers, count, &bound) == LEAT_OK);
        for (uint32_t step = 0; step < STEPS + 6; step++) {
            size_t live = 0;
            for (uint32_t i = 0; i < count; i++) {
                live += buffers[i].first <= step && step <= buffers[i].last ? buffers[i].bytes : 0;
            }
            peak = live > peak ? live : peak;
        }
        for (uint32_t i = 0; i < count; i++) {
            if (buffers[i].first == CPU_NONE) {
                continue;
            }
            sum += buffers[i].bytes;
            EXPECT(buffers[i].offset % CPU_ALIGN == 0 && buffers[i].offset + buffers[i].bytes <= total);
            for (uint32_t k = 0; k < i; k++) {
                const bool apart_in_time = buffers[k].first == CPU_NONE || buffers[k].last < buffers[i].first ||
                                           buffers[i].last < buffers[k].first;
                const bool apart_in_space = buffers[k].offset + buffers[k].bytes <= buffers[i].offset ||
                                            buffers[i].offset + buffers[i].bytes <= buffers[k].offset;
                EXPECT(apart_in_time || apart_in_space);
            }
        }
        EXPECT(bound == peak && total >= peak && total <= sum);
    }
}

/* ---- Precisions ------------------------------------------------------------------------------------- */

static void
test_network(struct network *network, struct leat_team *team, struct leat_team *lone)
{
    const uint32_t precisions = leat_backend_precisions(&leat_backend_cpu);
    const uint32_t t = network->source.input_count, whole = ITEMS; /* t: the first output */
    const struct leat_plan_options options = {.items = ITEMS};
    unsigned char *outputs[LEAT_PRECISION_COUNT][LEAT_TENSORS_MAX] = {{NULL}};

    EXPECT((precisions & LEAT_PRECISION_BIT(LEAT_PRECISION_F32)) != 0);
    for (uint32_t precision = 0; precision < LEAT_PRECISION_COUNT; precision++) {
        struct leat_model *model;
        struct leat_plan *plan;
        if ((precisions & LEAT_PRECISION_BIT(precision)) == 0) {
            continue;
        }
        network->source.precision = precision;
        EXPECT(leat_backend_cpu.model_load(&network->source, &model) == LEAT_OK);
        test_plans(network, model, team);
        test_resizes(network, model);
        test_pauses(network, model, team);
        if (precision == LEAT_PRECISION_F32 && !RACES_ONLY) { /* what pauses inside a step is */
            test_pauses(network, model, lone);
        }
        test_workers(network, model);
        EXPECT(leat_backend_cpu.plan_build(model, &options, &plan) == LEAT_OK);
        void *scratch = aligned(leat_backend_cpu.plan_scratch_bytes(plan));
        make_outputs(network, outputs[precision]);
        EXPECT(run(&leat_backend_cpu, plan, network, &whole, 1, scratch, NULL, outputs[precision]) == LEAT_OK);
        const bool differs =
            memcmp(outputs[precision][t], outputs[LEAT_PRECISION_F32][t], ITEMS * network->infos[t].item_bytes) != 0;
        EXPECT(precision != LEAT_PRECISION_BF16 || differs);
        quantised += precision == LEAT_PRECISION_INT8 && differs;
        free(scratch);
        leat_backend_cpu.plan_destroy(plan);
        leat_backend_cpu.model_destroy(model);
    }
    for (uint32_t precision = 0; precision < LEAT_PRECISION_COUNT; precision++) {
        free_outputs(network, outputs[precision]);
    }
}

static void
test_precision_names(void)
{
    enum leat_precision precision;

    for (uint32_t p = 0; p < LEAT_PRECISION_COUNT; p++) {
        EXPECT(leat_precision_find(leat_precision_text(p), &precision) && precision == p);
    }
    EXPECT(!leat_precision_find("f3", &precision) && !leat_precision_find("", &precision));
    EXPECT(leat_backend_precisions(&leat_backend_reference) == LEAT_PRECISION_BIT(LEAT_PRECISION_F32));
}

/* "sequences": the networks of the zoo with lengths to choose; without arguments the others, and what goes before. */
int
main(int argc, char **argv)
{
    const bool sequences = argc == 2 && strcmp(argv[1], "sequences") == 0;
    struct leat_team *team, *lone;
    size_t networks = 0;

    leat_test_init();
    EXPECT(argc == 1 || sequences);
    rounds = sequences ? 2 + ROUNDS / 10 : ROUNDS; /* the largest have ten times as many nodes */
    if (!sequences) {
        test_placement();
        test_shared_payloads();
        test_sums();
        test_enlarged();
        test_greatest();
        test_precision_names();
    }
    EXPECT(leat_team_create(&(struct leat_team_options){.size = TEAM, .spin_ns = spin_ns()}, &team) == LEAT_OK);
    EXPECT(leat_team_create(&(struct leat_team_options){.size = 1}, &lone) == LEAT_OK);
    for (size_t i = 0; i < zoo_model_count; i++) {
        struct network network;
        if (make_network(&zoo_models[i], sequences, &network)) {
            networks++;
            test_network(&network, team, lone);
            destroy_network(&network);
        }
    }
    EXPECT(networks >= (sequences ? 9 : 22));
    EXPECT((leat_backend_precisions(&leat_backend_cpu) & LEAT_PRECISION_BIT(LEAT_PRECISION_INT8)) == 0 ||
           quantised + 3 >= networks); /* recurrent ones have nothing between the first and the last */
    leat_team_destroy(lone);
    leat_team_destroy(team);
    return 0;
}
