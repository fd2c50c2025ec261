/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What is known of a tensor of sizes before a batch has a number of items and free dimensions have values is what the
 *          reference functions compute when they have them, whatever they are.
 * Method   Random graphs of integers and flags from the Shape of an input with two free dimensions, folded as they are and
 *          again with several numbers of items and values.
 */
#include <stdio.h>
#include <string.h>

#include "base/align.h"
#include "kernels/graph_build.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { NODES = 16, TRIALS = 600, VALUES_MAX = 4 * NODES + 8 };

struct made {
    char name[8];
    int type;
    uint32_t rank, count;
};

struct world {
    struct builder b;
    struct made values[VALUES_MAX];
    uint32_t count;
};

static uint64_t state;

static uint32_t
pick(uint32_t below)
{
    return (uint32_t)(leat_test_random(&state) % below);
}

static struct made *
add(struct world *w, int type, uint32_t rank, uint32_t count)
{
    struct made *made = &w->values[w->count];

    EXPECT(w->count < VALUES_MAX);
    *made = (struct made){.type = type, .rank = rank, .count = count};
    (void)snprintf(made->name, sizeof(made->name), "v%u", w->count++);
    return made;
}

static int64_t
number(void)
{
    static const int64_t edges[] = {INT32_MAX, INT32_MIN, INT64_C(1) << 31, INT64_MAX, INT64_MIN, INT64_MIN + 1};
    return pick(12) == 0 ? edges[pick(LEAT_COUNT_OF(edges))] : (int64_t)pick(9) - 2;
}

static const struct made *
constant(struct world *w, int type, uint32_t rank, uint32_t count)
{
    struct made *made = add(w, type, rank, count);
    const int64_t dims[1] = {count};
    int64_t wide[LEAT_RANK_MAX];
    int32_t narrow[LEAT_RANK_MAX];
    uint8_t flags[LEAT_RANK_MAX];

    for (uint32_t i = 0; i < count; i++) {
        wide[i] = number();
        narrow[i] = (int32_t)wide[i];
        flags[i] = wide[i] > 1;
    }
    const void *data = type == ONNX_I64 ? (void *)wide : type == ONNX_I32 ? (void *)narrow : (void *)flags;
    (void)builder_constant(&w->b, made->name, type, data, dims, rank);
    return made;
}

/* One of the values that there are, of a type and a rank (2: any); else a new constant. */
static const struct made *
choose(struct world *w, int type, uint32_t rank)
{
    for (int tries = 0; tries < 8; tries++) {
        const struct made *made = &w->values[pick(w->count)];
        if (made->type == type && (rank == 2 || made->rank == rank)) {
            return made;
        }
    }
    return constant(w, type, rank == 2 ? 0 : rank, 1);
}

static const struct made *
list(struct world *w, int64_t value)
{
    struct made *made = add(w, ONNX_I64, 1, 1);
    (void)builder_constant(&w->b, made->name, ONNX_I64, &value, DIMS(1));
    return made;
}

static void
add_gather(struct world *w)
{
    const struct made *x = choose(w, ONNX_I64, 1), *y;
    const uint32_t rank = pick(2), count = rank == 0 ? 1 : 1 + pick(3);
    const int64_t dims[1] = {count}, size = x->count;
    int64_t places[3] = {0};
    char inputs[32];

    if (size == 0) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        places[i] = (int64_t)pick(2 * (uint32_t)size) - size;
    }
    const struct made *at = add(w, ONNX_I64, rank, count);
    (void)builder_constant(&w->b, at->name, ONNX_I64, places, dims, rank);
    (void)snprintf(inputs, sizeof(inputs), "%s %s", x->name, at->name);
    y = add(w, ONNX_I64, rank, count);
    (void)builder_node(&w->b, "Gather", inputs, y->name);
}

static void
add_slice(struct world *w)
{
    const struct made *x = choose(w, ONNX_I64, 1);
    const int64_t step = pick(2) == 0 ? 1 : -1, size = x->count;
    const int64_t first = pick((uint32_t)size + 1), last = pick((uint32_t)size + 1);
    const int64_t count = step > 0 ? (last > first ? last - first : 0) : (first < size ? first : size - 1) + 1;
    char inputs[64];

    const struct made *starts = list(w, first), *ends = list(w, step > 0 ? last : INT64_MIN), *axes = list(w, 0);
    const struct made *steps = list(w, step), *y = add(w, ONNX_I64, 1, (uint32_t)count);
    (void)snprintf(inputs, sizeof(inputs), "%s %s %s %s %s", x->name, starts->name, ends->name, axes->name, steps->name);
    (void)builder_node(&w->b, "Slice", inputs, y->name);
}

static void
add_concat(struct world *w)
{
    const struct made *a = choose(w, ONNX_I64, 1), *b = choose(w, ONNX_I64, 1);
    char inputs[32];

    if (a->count + b->count <= LEAT_RANK_MAX) {
        (void)snprintf(inputs, sizeof(inputs), "%s %s", a->name, b->name);
        (void)builder_int(&w->b, builder_node(&w->b, "Concat", inputs, add(w, ONNX_I64, 1, a->count + b->count)->name),
                          "axis", 0);
    }
}

/* To a scalar or back, or as it is. */
static void
add_form(struct world *w)
{
    const struct made *x = choose(w, ONNX_I64, pick(2));
    const bool squeezes = x->rank == 1 && x->count == 1 && pick(2) == 0;
    const struct made *to = list(w, squeezes || x->rank == 0 ? 0 : -1);
    const char *op = squeezes ? "Squeeze" : x->rank == 0 ? "Unsqueeze" : x->count > 0 && pick(2) == 0 ? "Reshape" : "Identity";
    char inputs[32];

    (void)snprintf(inputs, sizeof(inputs), "%s %s", x->name, strcmp(op, "Identity") == 0 ? "" : to->name);
    (void)builder_node(&w->b, op, inputs, add(w, ONNX_I64, !squeezes, x->count)->name);
}

static void
add_cast(struct world *w)
{
    static const int types[] = {ONNX_I64, ONNX_I32, ONNX_BOOL};
    const int from = types[pick(3)], to = types[pick(3)];
    const struct made *x = choose(w, from, 2);

    (void)builder_int(&w->b, builder_node(&w->b, "Cast", x->name, add(w, to, x->rank, x->count)->name), "to", to);
}

static void
add_two(struct world *w)
{
    static const char *const numbers[] = {"Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"};
    static const char *const comparisons[] = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"};
    static const char *const logic[] = {"And", "Or", "Xor", "Equal"};
    const uint32_t form = pick(3);
    const int type = form == 2 ? ONNX_BOOL : pick(3) == 0 ? ONNX_I32 : ONNX_I64;
    const char *op = form == 0   ? numbers[pick(LEAT_COUNT_OF(numbers))]
                     : form == 1 ? comparisons[pick(LEAT_COUNT_OF(comparisons))]
                                 : logic[pick(LEAT_COUNT_OF(logic))];
    const struct made *a = choose(w, type, 2), *b = choose(w, type, 2);
    char inputs[32];

    if (a->count == b->count || a->count == 1 || b->count == 1) {
        (void)snprintf(inputs, sizeof(inputs), "%s %s", a->name, b->name);
        const struct made *y = add(w, form == 0 ? type : ONNX_BOOL, a->rank > b->rank ? a->rank : b->rank,
                                   a->count == 1 ? b->count : a->count);
        (void)builder_node(&w->b, op, inputs, y->name);
    }
}

static void
add_choice(struct world *w)
{
    const struct made *which = choose(w, ONNX_BOOL, 2), *a = choose(w, ONNX_I64, 0), *b = choose(w, ONNX_I64, 0);
    char inputs[32];

    (void)builder_node(&w->b, "Not", which->name, add(w, ONNX_BOOL, which->rank, which->count)->name);
    (void)snprintf(inputs, sizeof(inputs), "%s %s %s", which->name, a->name, b->name);
    (void)builder_node(&w->b, "Where", inputs, add(w, ONNX_I64, which->rank, which->count)->name);
}

static void
build(struct world *w)
{
    static void (*const kinds[])(struct world *) = {add_gather, add_slice, add_concat, add_form,
                                                    add_cast,   add_two,   add_two,    add_choice};

    w->count = 0;
    builder_init(&w->b, 13);
    (void)builder_input(&w->b, "x", ONNX_F32, DIMS(-1, 1, 3, -2));
    (void)builder_input(&w->b, "payload", ONNX_I64, DIMS(1));
    (void)builder_node(&w->b, "Shape", "x", add(w, ONNX_I64, 1, 4)->name);
    (void)builder_node(&w->b, "Identity", "payload", add(w, ONNX_I64, 1, 1)->name);
    for (int n = 0; n < NODES; n++) {
        kinds[pick(LEAT_COUNT_OF(kinds))](w);
    }
    (void)builder_node(&w->b, "Identity", w->values[w->count - 1].name, "y");
    builder_output(&w->b, "y");
}

/* What `open` knows is what there is with so many items and that value; false where the model cannot be run so. */
static bool
compare(const struct leat_graph *graph, const struct leat_graph *open, int64_t items, int64_t size)
{
    const struct leat_dim_value value = {.name = "M", .value = size};
    struct leat_graph *copy = NULL, *closed = NULL;

    EXPECT(leat_graph_copy(graph, &copy) == LEAT_OK);
    const bool runs = leat_graph_bind(copy, &value, 1) == LEAT_OK && leat_graph_specialise(copy, items, &closed) == LEAT_OK;
    for (uint32_t v = 0; v < graph->value_count && runs; v++) {
        const struct leat_value *a = &open->values[v], *b = &closed->values[v];
        if (a->data != NULL) {
            EXPECT(b->data != NULL && a->dtype == b->dtype && a->rank == b->rank && a->data_bytes == b->data_bytes);
            if (memcmp(a->data, b->data, a->data_bytes) != 0) {
                (void)fprintf(stderr, "'%s' is not that with %lld items and M = %lld\n", a->name, (long long)items,
                              (long long)size);
            }
            EXPECT(memcmp(a->data, b->data, a->data_bytes) == 0);
        }
    }
    leat_graph_destroy(closed);
    leat_graph_destroy(copy);
    return runs;
}

static void
test_random(void)
{
    static const int64_t sizes[][2] = {{1, 1}, {1, 2}, {2, 1}, {3, 3}, {7, 40}};
    uint32_t known = 0, unknown = 0, ran = 0;

    state = leat_test_seed;
    for (int trial = 0; trial < TRIALS; trial++) {
        struct leat_graph *graph = NULL, *open = NULL;
        struct world w;
        bool changed;
        build(&w);
        if (builder_import(&w.b, &graph) != LEAT_OK) { /* such as a target of -1 for nothing */
            builder_fini(&w.b);
            continue;
        }
        EXPECT(leat_graph_copy(graph, &open) == LEAT_OK);
        if (leat_graph_fold(open, &changed) == LEAT_OK) { /* else numbers of the file fail, as by a division by zero */
            EXPECT(leat_graph_check(open) == LEAT_OK);
            for (uint32_t v = 0; v < graph->value_count; v++) {
                known += open->values[v].data != NULL && graph->values[v].data == NULL;
                unknown += open->values[v].data == NULL;
            }
            for (size_t s = 0; s < LEAT_COUNT_OF(sizes); s++) {
                ran += compare(graph, open, sizes[s][0], sizes[s][1]);
            }
        }
        leat_graph_destroy(open);
        leat_graph_destroy(graph);
        builder_fini(&w.b);
    }
    (void)fprintf(stderr, "%u known, %u not, %u of %u ran\n", known, unknown, ran,
                  (uint32_t)(TRIALS * LEAT_COUNT_OF(sizes)));
    EXPECT(known > TRIALS && unknown > TRIALS && ran > TRIALS);
}

int
main(void)
{
    leat_test_init();
    test_random();
    return 0;
}
