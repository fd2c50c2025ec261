/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A batch's answers are the same bit by bit however its items lie in queries, wherever the queries' tensors lie,
 *          with and without items that repeat the last one. A client that writes to its inputs while they are read, or lets
 *          outputs lie over inputs, changes no other query's answer. What reads items where queries have them needs no
 *          copy; what else reads an input does.
 * Method   A network for each way to read an input, in the cpu backend, alone and with a team: all ways to cut a batch,
 *          every tensor of every query in a block of its own, against the items as one query. Inputs end at a page that nobody
 *          may touch, whatever their channels and width: what lies behind a client's last item may not be there at all.
 *          Another process writes random bits to one query's inputs, as clients can, until it and the runs are through.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/cpu/calibrate.h"
#include "kernels/cpu/inspect.h"
#include "kernels/graph_build.h"
#include "kernels/team.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"

enum { F32 = 1, I64 = 7, CHANNELS_MAX = 17, OUT = 16, ITEMS = 5, TEAM = 3, RUNS = LEAT_TEST_ROUNDS(50) };

/* Heights are multiples of 16: so items end at multiples of 64 bytes, as blocks of clients do that have no room behind them. */
static const struct shape {
    int64_t channels, height, width;
} shapes[] = {{3, 64, 72}, {1, 80, 73}, {2, 48, 67}, {3, 48, 71}, {4, 64, 43}, {5, 48, 45}, {16, 16, 37}, {CHANNELS_MAX, 32, 45}};
static struct shape image;

static float weights[OUT * CHANNELS_MAX * 7 * 7];

/* ---- Networks --------------------------------------------------------------------------------------- */

static void
add_conv(struct builder *b, const char *x, const char *y, int64_t kernel)
{
    (void)builder_constant(b, y[0] == 'y' ? "w" : "v", F32, weights, DIMS(OUT, image.channels, kernel, kernel));
    char inputs[16];
    (void)snprintf(inputs, sizeof(inputs), "%s %s", x, y[0] == 'y' ? "w" : "v");
    Onnx__NodeProto *node = builder_node(b, "Conv", inputs, y);
    (void)builder_ints(b, node, "strides", DIMS(2, 2));
    (void)builder_ints(b, node, "pads", DIMS(kernel / 2, kernel / 2, kernel / 2, kernel / 2));
}

static void
build_wide_window(struct builder *b)
{
    (void)builder_input(b, "x", F32, DIMS(-1, image.channels, image.height, image.width));
    add_conv(b, "x", "y", 7);
    builder_output(b, "y");
}

static void
build_window(struct builder *b)
{
    (void)builder_input(b, "x", F32, DIMS(-1, image.channels, image.height, image.width));
    add_conv(b, "x", "y", 3);
    builder_output(b, "y");
}

static void
build_small_window(struct builder *b)
{
    (void)builder_input(b, "x", F32, DIMS(-1, image.channels, 8, 8));
    add_conv(b, "x", "y", 3);
    builder_output(b, "y");
}

/* In 8 bits: an image, and two that pass on what it makes. */
static void
build_whole_image(struct builder *b)
{
    float ones[OUT * OUT] = {0};

    for (int c = 0; c < OUT; c++) {
        ones[c * (OUT + 1)] = 1;
    }
    (void)builder_input(b, "x", F32, DIMS(-1, image.channels, image.height, image.width));
    add_conv(b, "x", "first", 3);
    (void)builder_constant(b, "ones", F32, ones, DIMS(OUT, OUT, 1, 1));
    (void)builder_constant(b, "others", F32, ones, DIMS(OUT, OUT, 1, 1));
    (void)builder_node(b, "Conv", "first ones", "second");
    (void)builder_node(b, "Conv", "second others", "y");
    builder_output(b, "y");
}

static void
build_turned(struct builder *b)
{
    (void)builder_input(b, "x", F32, DIMS(-1, image.height, image.width, image.channels));
    (void)builder_ints(b, builder_node(b, "Transpose", "x", "y"), "perm", DIMS(0, 3, 1, 2));
    builder_output(b, "y");
}

static void
build_small_turned(struct builder *b)
{
    (void)builder_input(b, "x", F32, DIMS(-1, 8, 8, image.channels));
    (void)builder_ints(b, builder_node(b, "Transpose", "x", "y"), "perm", DIMS(0, 3, 1, 2));
    builder_output(b, "y");
}

static void
build_flat(struct builder *b)
{
    (void)builder_input(b, "x", F32, DIMS(-1, image.channels * image.height * image.width));
    (void)builder_constant(b, "dims", I64, (const int64_t[]){-1, image.channels, image.height, image.width}, DIMS(4));
    (void)builder_node(b, "Reshape", "x dims", "image");
    add_conv(b, "image", "y", 3);
    builder_output(b, "y");
}

/* Several images an item: there are more of them than items. */
static void
build_frames(struct builder *b)
{
    (void)builder_input(b, "x", F32, DIMS(-1, 4, image.channels, image.height, image.width));
    (void)builder_constant(b, "dims", I64, (const int64_t[]){-1, image.channels, image.height, image.width}, DIMS(4));
    (void)builder_constant(b, "back", I64, (const int64_t[]){-1, 4, OUT, (image.height + 1) / 2, (image.width + 1) / 2}, DIMS(5));
    (void)builder_node(b, "Reshape", "x dims", "images");
    add_conv(b, "images", "frames", 3);
    (void)builder_node(b, "Reshape", "frames back", "y");
    builder_output(b, "y");
}

static void
build_rounded(struct builder *b)
{
    (void)builder_input(b, "x", F32, DIMS(-1, image.channels, image.height, image.width));
    (void)builder_constant(b, "scale", F32, (const float[]){1.0f / 128}, NULL, 0);
    (void)builder_constant(b, "zero", 2, (const uint8_t[]){128}, NULL, 0);
    (void)builder_node(b, "QuantizeLinear", "x scale zero", "whole");
    (void)builder_node(b, "DequantizeLinear", "whole scale zero", "y");
    builder_output(b, "y");
}

/* Two that read it item by item. */
static void
build_two(struct builder *b)
{
    (void)builder_input(b, "x", F32, DIMS(-1, image.channels, image.height, image.width));
    (void)builder_ints(b, builder_node(b, "Transpose", "x", "z"), "perm", DIMS(0, 2, 3, 1));
    add_conv(b, "x", "y", 3);
    builder_output(b, "y");
    builder_output(b, "z");
}

/* One that does, and one that does not. */
static void
build_both(struct builder *b)
{
    (void)builder_input(b, "x", F32, DIMS(-1, image.channels, image.height, image.width));
    add_conv(b, "x", "y", 3);
    (void)builder_node(b, "Neg", "x", "z");
    builder_output(b, "y");
    builder_output(b, "z");
}

/* The other way round: the block is there as long as items of it are read. */
static void
build_late(struct builder *b)
{
    (void)builder_input(b, "x", F32, DIMS(-1, image.channels, image.height, image.width));
    (void)builder_node(b, "Neg", "x", "t");
    (void)builder_node(b, "Exp", "t", "u");
    (void)builder_node(b, "Sqrt", "u", "z");
    add_conv(b, "x", "y", 3);
    builder_output(b, "y");
    builder_output(b, "z");
}

static void
build_passed_on(struct builder *b)
{
    (void)builder_input(b, "x", F32, DIMS(-1, image.channels, image.height, image.width));
    add_conv(b, "x", "y", 3);
    (void)builder_node(b, "Identity", "x", "z");
    builder_output(b, "y");
    builder_output(b, "z");
}

/* Of two inputs, one has indices. */
static void
build_looked_up(struct builder *b)
{
    (void)builder_input(b, "x", F32, DIMS(-1, image.height, image.width, image.channels));
    (void)builder_input(b, "i", I64, DIMS(-1, 4096));
    (void)builder_constant(b, "table", F32, weights, DIMS(8, 2));
    (void)builder_ints(b, builder_node(b, "Transpose", "x", "y"), "perm", DIMS(0, 3, 1, 2));
    (void)builder_node(b, "Gather", "table i", "z");
    builder_output(b, "y");
    builder_output(b, "z");
}

/* Its scale follows from all that is read, which is then read again. */
static void
build_scaled(struct builder *b)
{
    (void)builder_input(b, "x", F32, DIMS(-1, image.channels, image.height, image.width));
    (void)builder_node(b, "Softmax", "x", "y");
    builder_output(b, "y");
}

/* Columns from..to of x, which has indices, and what they name. */
static void
add_look_up(struct builder *b, const char *y, int64_t from, int64_t to)
{
    char ends[2][16], names[64], slice[16];

    (void)snprintf(ends[0], sizeof(ends[0]), "%s_from", y);
    (void)snprintf(ends[1], sizeof(ends[1]), "%s_to", y);
    (void)builder_constant(b, ends[0], I64, &from, DIMS(1));
    (void)builder_constant(b, ends[1], I64, &to, DIMS(1));
    (void)snprintf(names, sizeof(names), "x %s %s last", ends[0], ends[1]);
    (void)snprintf(slice, sizeof(slice), "%s_slice", y);
    (void)builder_node(b, "Slice", names, slice);
    (void)snprintf(names, sizeof(names), "table %s", slice);
    (void)builder_node(b, "Gather", names, y);
    builder_output(b, y);
}

enum { COLUMNS = 3000 };

static void
start_look_ups(struct builder *b, bool rows)
{
    (void)builder_input(b, "x", I64, (const int64_t[]){-1, rows ? 2 : COLUMNS, COLUMNS}, rows ? 3 : 2);
    (void)builder_constant(b, "table", F32, weights, DIMS(8, 2));
    (void)builder_constant(b, "last", I64, (const int64_t[]){-1}, DIMS(1));
}

static void
build_columns(struct builder *b)
{
    start_look_ups(b, false);
    add_look_up(b, "y", 1000, COLUMNS);
    add_look_up(b, "z", 0, 1000);
}

static void
build_columns_of_rows(struct builder *b)
{
    start_look_ups(b, true);
    add_look_up(b, "y", 0, 7);
    add_look_up(b, "z", 1000, 2000);
}

/* The last element of one is the first of the other: a client could make them different ones. */
static void
build_columns_twice(struct builder *b)
{
    start_look_ups(b, false);
    add_look_up(b, "y", 0, 1001);
    add_look_up(b, "z", 1000, COLUMNS);
}

/* Somebody else reads it too. */
static void
build_columns_and_all(struct builder *b)
{
    start_look_ups(b, false);
    add_look_up(b, "y", 0, 1000);
    (void)builder_node(b, "Gather", "table x", "z");
    builder_output(b, "z");
}

static const struct {
    const char *name;
    void (*build)(struct builder *b);
    uint32_t copied; /* bit i: input i is, with AVX-512 and the first shape */
    bool int8;
} networks[] = {
    {"wide window", build_wide_window, 0, false}, {"window", build_window, 0, false},
    {"small window", build_small_window, 0, false}, {"whole image", build_whole_image, 0, true},
    {"turned", build_turned, 0, false},           {"small turned", build_small_turned, 1, false},
    {"flat", build_flat, 0, false},               {"frames", build_frames, 1, false},
    {"rounded", build_rounded, 0, false},         {"two", build_two, 0, false},
    {"both", build_both, 1, false},               {"late", build_late, 1, false},
    {"passed on", build_passed_on, 1, false},     {"looked up", build_looked_up, 2, false},
    {"scaled", build_scaled, 1, false},           {"columns", build_columns, 0, false},
    {"columns of rows", build_columns_of_rows, 0, false}, {"columns twice", build_columns_twice, 1, false},
    {"columns and all", build_columns_and_all, 1, false},
};

/* ---- Plans ------------------------------------------------------------------------------------------ */

struct served {
    struct leat_graph *graph;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source;
    struct leat_model *model;
    struct leat_plan *plan;
    void *scratch;
    struct leat_team *team; /* NULL: alone */
    unsigned char *batch[LEAT_TENSORS_MAX]; /* ITEMS of each tensor; what is expected of outputs */
};

static uint32_t
tensors_of(const struct served *s)
{
    return s->source.input_count + s->source.output_count;
}

/* Of exactly so many bytes. */
static void *
aligned(size_t bytes)
{
    void *block = NULL;
    EXPECT(posix_memalign(&block, 64, bytes) == 0);
    return block;
}

static void
fill(const struct leat_tensor_info *info, void *data)
{
    uint64_t random = leat_test_seed;

    for (size_t i = 0; i < ITEMS * info->item_bytes / leat_dtype_bytes(info->dtype); i++) {
        const uint64_t r = leat_test_random(&random);
        if (info->dtype == LEAT_DTYPE_I64) {
            ((int64_t *)data)[i] = (int64_t)(r % 8);
        } else {
            ((float *)data)[i] = (float)(r % 2000) / 1000 - 1;
        }
    }
}

static void
serve(size_t network, struct leat_team *team, struct served *ret)
{
    const uint32_t team_size = leat_team_size(team);
    const struct leat_plan_options options = {.items = ITEMS, .team_sizes = &team_size, .team_size_count = 1};
    struct builder b;

    *ret = (struct served){.team = team};
    builder_init(&b, 13);
    networks[network].build(&b);
    EXPECT(builder_import(&b, &ret->graph) == LEAT_OK);
    builder_fini(&b);
    EXPECT(leat_graph_optimise(ret->graph, UINT64_MAX) == LEAT_OK);
    ret->source = (struct leat_model_source){.graph = ret->graph, .infos = ret->infos};
    EXPECT(leat_graph_signature(ret->graph, ret->infos, &ret->source.input_count, &ret->source.output_count) == LEAT_OK);
    if (networks[network].int8) {
        ret->source.precision = LEAT_PRECISION_INT8;
        EXPECT(leat_graph_set_range(ret->graph, &(struct leat_range){"x", -1, 1}));
        EXPECT(leat_graph_set_range(ret->graph, &(struct leat_range){"first", -4, 4}));
    }
    EXPECT(leat_backend_cpu.model_load(&ret->source, &ret->model) == LEAT_OK);
    EXPECT(leat_backend_cpu.plan_build(ret->model, &options, &ret->plan) == LEAT_OK);
    ret->scratch = aligned(leat_backend_cpu.plan_scratch_bytes(ret->plan) + 1);
    for (uint32_t t = 0; t < tensors_of(ret); t++) {
        ret->batch[t] = aligned(ITEMS * ret->infos[t].item_bytes);
        if (t < ret->source.input_count) {
            fill(&ret->infos[t], ret->batch[t]);
        }
    }
    struct leat_segment whole = {.items = ITEMS};
    memcpy(whole.tensors, ret->batch, sizeof(whole.tensors));
    EXPECT(leat_backend_cpu.plan_run(ret->plan, &whole, 1, ret->scratch, team) == LEAT_OK);
}

static void
stop(struct served *s)
{
    for (uint32_t t = 0; t < tensors_of(s); t++) {
        free(s->batch[t]);
    }
    free(s->scratch);
    leat_backend_cpu.plan_destroy(s->plan);
    leat_backend_cpu.model_destroy(s->model);
    leat_graph_destroy(s->graph);
}

enum { WALL_BYTES = 4096 };

/* Ends where nothing may be touched. */
static void *
before_a_wall(size_t bytes)
{
    const size_t span = (size_t)leat_round_up(bytes, WALL_BYTES);
    unsigned char *pages = mmap(NULL, span + WALL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    EXPECT(pages != MAP_FAILED && bytes % 64 == 0);
    EXPECT(mprotect(pages + span, WALL_BYTES, PROT_NONE) == 0);
    return pages + span - bytes;
}

static void
tear_down(const void *block, size_t bytes)
{
    const size_t span = (size_t)leat_round_up(bytes, WALL_BYTES);
    EXPECT(munmap((unsigned char *)(uintptr_t)block + bytes - span, span + WALL_BYTES) == 0);
}

/* Items from `first` on, in blocks of their own. */
static struct leat_segment
query_of(const struct served *s, uint32_t first, uint32_t items)
{
    struct leat_segment query = {.items = items};

    for (uint32_t t = 0; t < tensors_of(s); t++) {
        const size_t bytes = s->infos[t].item_bytes;
        void *block = t < s->source.input_count ? before_a_wall(items * bytes) : aligned(items * bytes);
        if (t < s->source.input_count) {
            memcpy(block, s->batch[t] + first * bytes, items * bytes);
        } else {
            memset(block, 0x5a, items * bytes);
        }
        query.tensors[t] = block;
    }
    return query;
}

static void
free_query(const struct served *s, const struct leat_segment *query)
{
    for (uint32_t t = 0; t < tensors_of(s); t++) {
        if (t < s->source.input_count) {
            tear_down(query->tensors[t], query->items * s->infos[t].item_bytes);
        } else {
            free((void *)(uintptr_t)query->tensors[t]);
        }
    }
}

static void
expect_answers(const struct served *s, const struct leat_segment *query, uint32_t first)
{
    for (uint32_t t = s->source.input_count; t < tensors_of(s); t++) {
        const size_t bytes = s->infos[t].item_bytes;
        EXPECT(memcmp(query->tensors[t], s->batch[t] + first * bytes, query->items * bytes) == 0);
    }
}

static enum leat_status
run(const struct served *s, const struct leat_segment *queries, uint32_t count)
{
    return leat_backend_cpu.plan_run(s->plan, queries, count, s->scratch, s->team);
}

/* ---- Tests ------------------------------------------------------------------------------------------ */

static void
test_copies(const struct served *s, size_t network)
{
    struct leat_inspection *inspection;
    uint32_t copied = 0;

    EXPECT(leat_inspection_create(s->graph, s->source.precision, ITEMS, leat_team_size(s->team), &inspection) == LEAT_OK);
    for (uint32_t i = 0; i < s->source.input_count; i++) {
        copied |= (uint32_t)leat_inspection_copies(inspection, i) << i;
    }
    leat_inspection_destroy(inspection);
    if (copied != networks[network].copied) {
        (void)fprintf(stderr, "%s: inputs that are copied: %x\n", networks[network].name, copied);
    }
    EXPECT(!__builtin_cpu_supports("avx512f") || copied == networks[network].copied);
}

/* `cuts` has a bit for each item but the last that ends a query. */
static void
test_cut(const struct served *s, uint32_t items, uint32_t cuts)
{
    struct leat_segment queries[ITEMS];
    uint32_t count = 0, first = 0;

    for (uint32_t i = 1; i <= items; i++) {
        if (i == items || (cuts >> (i - 1) & 1) != 0) {
            queries[count++] = query_of(s, first, i - first);
            first = i;
        }
    }
    EXPECT(run(s, queries, count) == LEAT_OK);
    first = 0;
    for (uint32_t q = 0; q < count; q++) {
        expect_answers(s, &queries[q], first);
        first += queries[q].items;
        free_query(s, &queries[q]);
    }
}

/* What another process shares with this one. */
struct shared {
    _Atomic uint32_t rounds, done;
    _Alignas(64) unsigned char inputs[]; /* of one item, one after the other at multiples of 64 bytes */
};

static void
scribble(struct shared *shared, size_t bytes)
{
    uint64_t random = leat_test_seed;

    while (atomic_load(&shared->done) == 0) {
        for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
            const uint64_t r = leat_test_random(&random); /* also what is no number */
            memcpy(shared->inputs + i, &r, sizeof(r));
        }
        atomic_fetch_add(&shared->rounds, 1);
    }
    _exit(0);
}

/* One query is of somebody who writes to it all the time: in the middle of the batch, or the last, which is repeated. */
static void
test_writer(const struct served *s, uint32_t place)
{
    struct leat_segment queries[3];
    size_t bytes = 0;
    int status;

    for (uint32_t q = 0; q < 3; q++) {
        queries[q] = query_of(s, q, 1);
    }
    struct leat_segment hostile = queries[place];
    for (uint32_t t = 0; t < s->source.input_count; t++) {
        bytes += (size_t)leat_round_up(s->infos[t].item_bytes, 64);
    }
    struct shared *shared = mmap(NULL, sizeof(*shared) + bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(shared != MAP_FAILED);
    bytes = 0;
    for (uint32_t t = 0; t < s->source.input_count; t++) {
        hostile.tensors[t] = shared->inputs + bytes;
        bytes += (size_t)leat_round_up(s->infos[t].item_bytes, 64);
    }
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        scribble(shared, bytes);
    }
    const uint32_t output = s->source.input_count;
    for (uint32_t r = 0; r < RUNS || atomic_load(&shared->rounds) < RUNS; r++) {
        struct leat_segment batch[3] = {queries[0], queries[1], queries[2]};
        batch[place] = hostile;
        EXPECT(run(s, batch, 3) == LEAT_OK);
        for (uint32_t q = 0; q < 3; q++) {
            if (q != place) {
                expect_answers(s, &batch[q], q);
                memset((void *)(uintptr_t)batch[q].tensors[output], 0x5a, s->infos[output].item_bytes);
            }
        }
    }
    atomic_store(&shared->done, 1);
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status));
    EXPECT(munmap(shared, sizeof(*shared) + bytes) == 0);
    EXPECT(run(s, queries, 3) == LEAT_OK); /* and it leaves nothing behind */
    for (uint32_t q = 0; q < 3; q++) {
        expect_answers(s, &queries[q], q);
        free_query(s, &queries[q]);
    }
}

/*
 * Of two queries of one client, the first one's output lies over the second one's inputs, the second one's over its own.
 * All inputs have been read before any output is written, and the second's is the last.
 */
static void
test_overlap(const struct served *s)
{
    const uint32_t output = s->source.input_count;
    const size_t in = s->infos[0].item_bytes, out = s->infos[output].item_bytes;
    struct leat_segment queries[3];

    for (uint32_t q = 0; q < 3; q++) {
        queries[q] = query_of(s, q, 1);
    }
    const struct leat_segment first = queries[0], second = queries[1];
    unsigned char *arena = aligned(in + out + 64);
    memcpy(arena, s->batch[0] + in, in);
    queries[1].tensors[0] = queries[1].tensors[output] = arena;
    queries[0].tensors[output] = arena + 64;
    EXPECT(run(s, queries, 3) == LEAT_OK);
    expect_answers(s, &queries[1], 1);
    expect_answers(s, &queries[2], 2);
    free_query(s, &first);
    free_query(s, &second);
    free_query(s, &queries[2]);
    free(arena);
}

/* With everything, or whole batches alone. */
static void
test_network(size_t network, bool everything, struct leat_team *team)
{
    struct served served;

    serve(network, team, &served);
    if (everything) { /* which inputs are copied depends on their channels, too */
        test_copies(&served, network);
    }
    for (uint32_t items = everything ? 1 : ITEMS; items <= ITEMS; items++) {
        for (uint32_t cuts = 0; cuts < 1U << (items - 1); cuts++) {
            test_cut(&served, items, cuts);
        }
    }
    if (everything && !LEAT_TEST_RACES_ONLY && served.infos[served.source.input_count - 1].dtype == LEAT_DTYPE_F32) { /* any number of which is one */
        test_writer(&served, 1);
        test_writer(&served, 2);
    }
    if (everything) {
        test_overlap(&served);
    }
    stop(&served);
}

int
main(void)
{
    struct leat_team *team;
    uint64_t random;

    leat_test_init();
    random = leat_test_seed;
    for (size_t i = 0; i < LEAT_COUNT_OF(weights); i++) {
        weights[i] = (float)(leat_test_random(&random) % 2000) / 2000 - 0.5f;
    }
    EXPECT(leat_team_create(&(struct leat_team_options){.size = TEAM, .spin_ns = 20000}, &team) == LEAT_OK);
    const bool has_int8 = (leat_backend_precisions(&leat_backend_cpu) & LEAT_PRECISION_BIT(LEAT_PRECISION_INT8)) != 0;
    for (size_t i = 0; i < LEAT_COUNT_OF(shapes); i += LEAT_TEST_RACES_ONLY ? LEAT_COUNT_OF(shapes) - 1 : 1) {
        image = shapes[i];
        for (size_t n = 0; n < LEAT_COUNT_OF(networks); n++) {
            for (int with_team = LEAT_TEST_RACES_ONLY; with_team < 2 && (has_int8 || !networks[n].int8); with_team++) {
                test_network(n, i == 0, with_team != 0 ? team : NULL);
            }
        }
    }
    leat_team_destroy(team);
    return 0;
}
