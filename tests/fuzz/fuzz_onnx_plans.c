/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Target    Plans of the cpu backend, compared with those of the reference backend; calibration and the other precisions.
 * Input     An ONNX file, byte for byte. Mutations are those of onnx_mutate.h. Payload comes from a hash of the file.
 * Property  No crash, no sanitizer report, no more memory than the model's limit. What one backend refuses the other does
 *           too; answers in f32 are as near as docs/architecture.md says, or not further apart than where the graph
 *           itself is unstable; a batch leaves nothing behind that another one sees. What cannot be batched is run one item at a
 *           time, and tells the same sizes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/cost.h"
#include "kernels/cpu/calibrate.h"
#include "kernels/graph_build.h"
#include "kernels/op.h"
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"
#include "kernels/team.h"
#include "tests/fuzz/onnx_mutate.h"
#include "tests/leat_test.h"

#define MEMORY_BYTES_MAX (UINT64_C(64) << 20) /* of a model */
#define RUN_BYTES_MAX    ((size_t)4 << 20)    /* larger runs would only be slow, */
#define FLOP_MAX         UINT64_C(2000000)    /* and so would these */
#define TRIPS_MAX        64u
#define ITEMS            3u
#define HALF_END         65536.0 /* beyond the largest f16 */
#define NOISE            0x1p-20
#define NOISE_RUNS       16u /* what lies on an edge, as a tie does, stays on its side in every other run */
#define NOISE_FACTOR     32 /* rounding of all steps against one perturbation of each */
#define MAGNITUDE_MAX \
    1e15 /* beyond it squares of floats, or their sums, may overflow in one order and not in another */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

enum payload {
    PAYLOAD_TAME,
    PAYLOAD_HOSTILE_INTEGERS,
    PAYLOAD_HOSTILE_FLOATS,
    PAYLOAD_BYTES,
    PAYLOAD_COUNT
};

/* A graph that is compared with another form of itself, for batches of `items`. */
struct trial {
    const struct leat_graph *plain, *optimised; /* the reference's and the cpu backend's */
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t inputs, outputs, items;
    bool one_by_one; /* the last of `outputs` is no output of the graphs: the sizes of each item */
    struct leat_graph *concrete; /* of `plain`, for all items or for one */
    struct leat_graph *floats;   /* the same with products of 8-bit numbers taken apart, while stability is asked for */
    uint64_t seed;
};

/* The reference runs the graph as the file has it, or the optimised one too. */
static bool
from_file(uint64_t seed)
{
    return (seed & 1) != 0;
}

static void *
block_of(size_t bytes)
{
    /* Exactly as large as asked for but for the alignment: the address sanitizer watches the rest. */
    void *block = NULL;
    LEAT_MUST(posix_memalign(&block, 64, bytes + 1) == 0);
    return block;
}

/* ---- Payload ---------------------------------------------------------------------------------------- */

static float
any_float(uint64_t *random, enum payload kind)
{
    static const float odd[] = {NAN,     INFINITY, -INFINITY, 1e30f,         -1e30f,
                                3.4e38f, -0.0f,    1e-40f,    2147483648.0f, -1};
    const uint64_t r = leat_test_random(random);

    if (kind == PAYLOAD_HOSTILE_FLOATS && r % 16 == 0) {
        return odd[(r >> 8) % LEAT_COUNT_OF(odd)];
    }
    return (float)((double)(r >> 40) / (1 << 23) - 1);
}

static int64_t
any_integer(uint64_t *random, enum payload kind)
{
    static const int64_t odd[] = {
        -1, -2, -3, 4, 7, 64, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1LL << 32, -(1LL << 32)};
    const uint64_t r = leat_test_random(random);

    return kind == PAYLOAD_HOSTILE_INTEGERS && r % 8 == 0 ? odd[(r >> 8) % LEAT_COUNT_OF(odd)]
                                                          : (int64_t)((r >> 8) % 3);
}

static void
fill(uint32_t dtype, size_t bytes, enum payload kind, uint64_t seed, unsigned char *to)
{
    const size_t size = leat_dtype_bytes(dtype);

    for (size_t at = 0; at < bytes; at += size) {
        const uint64_t raw = leat_test_random(&seed);
        if (kind == PAYLOAD_BYTES) {
            memcpy(to + at, &raw, size);
        } else if (dtype == LEAT_DTYPE_F32) {
            const float x = any_float(&seed, kind);
            memcpy(to + at, &x, size);
        } else if (dtype == LEAT_DTYPE_F64) {
            const double x = (double)any_float(&seed, kind);
            memcpy(to + at, &x, size);
        } else if (dtype == LEAT_DTYPE_F16 || dtype == LEAT_DTYPE_BF16) {
            const uint16_t x =
                (uint16_t)(dtype == LEAT_DTYPE_F16 ? 0x3000 + raw % 0x0c00 : 0x3e00 + raw % 0x180);
            memcpy(to + at, &x, size);
        } else {
            const int64_t x = any_integer(&seed, kind);
            memcpy(to + at, &x, size); /* little endian */
        }
    }
}

/* ---- Runs ------------------------------------------------------------------------------------------- */

/* A model in one backend, with the tensors of two segments: the first of one item. */
struct loaded {
    const struct leat_backend *backend;
    struct leat_model *model;
    struct leat_plan *plan;
    void *scratch;
    struct leat_team *team;
};

static void
unload(struct loaded *l)
{
    free(l->scratch);
    l->backend->plan_destroy(l->plan);
    l->backend->model_destroy(l->model);
}

static enum leat_status
load(const struct trial *t, const struct leat_graph *graph, const struct leat_backend *backend,
     enum leat_precision precision, struct leat_team *team, struct loaded *l)
{
    const uint32_t team_size = leat_team_size(team);
    const struct leat_model_source source = {.graph = graph,
                                             .precision = precision,
                                             .infos = t->infos,
                                             .input_count = t->inputs,
                                             .output_count = t->outputs - t->one_by_one,
                                             .one_by_one = t->one_by_one};
    const struct leat_plan_options options = {
        .items = t->items, .team_sizes = &team_size, .team_size_count = 1};

    *l = (struct loaded){.backend = backend, .team = team};
    enum leat_status status = backend->model_load(&source, &l->model);
    if (status == LEAT_OK) {
        status = backend->plan_build(l->model, &options, &l->plan);
    }
    if (status != LEAT_OK) {
        unload(l);
        return status;
    }
    const size_t bytes = backend->plan_scratch_bytes(l->plan);
    l->scratch = block_of(bytes);
    memset(l->scratch, 0xa5, bytes);
    return LEAT_OK;
}

/* tensors[i] has all items of tensor i: inputs, then outputs, which it receives. */
static enum leat_status
run(const struct trial *t, const struct loaded *l, unsigned char *const *tensors)
{
    struct leat_segment segments[2] = {{.items = 1}, {.items = t->items - 1}};
    const uint32_t count = t->items > 1 ? 2 : 1;
    void *blocks[2 * LEAT_TENSORS_MAX];

    for (uint32_t b = 0; b < count * (t->inputs + t->outputs); b++) {
        const uint32_t i = b / count, s = b % count;
        const size_t bytes = segments[s].items * t->infos[i].item_bytes;
        blocks[b] = block_of(bytes);
        if (t->one_by_one && i + 1 == t->inputs + t->outputs) {
            segments[s].sizes = blocks[b];
        } else {
            segments[s].tensors[i] = blocks[b];
        }
        memset(blocks[b], 0x5a, bytes);
        if (i < t->inputs) {
            memcpy(blocks[b], tensors[i] + s * t->infos[i].item_bytes, bytes);
        }
    }
    const enum leat_status status =
        l->backend->plan_run(l->plan, segments, count, l->scratch, l->team);
    LEAT_ASSERT(status == LEAT_OK || status == LEAT_ERR_SHAPE);
    for (uint32_t b = 0; b < count * (t->inputs + t->outputs); b++) {
        const uint32_t i = b / count, s = b % count;
        if (i >= t->inputs) {
            memcpy(tensors[i] + s * t->infos[i].item_bytes, blocks[b],
                   segments[s].items * t->infos[i].item_bytes);
        }
        free(blocks[b]);
    }
    return status;
}

/* ---- Where a graph is unstable ------------------------------------------------------------------------ */

/*
 * Every computed float, by a little of it more or less. Returns the largest magnitude; INFINITY where one is
 * none, or is so small that others near it may have become 0.
 */
static double
disturb(const struct leat_value *value, double noise, uint64_t *random, void *data)
{
    const size_t count = leat_value_elements(value);
    double most = 0;

    for (size_t i = 0;
         i < count && (value->dtype == LEAT_DTYPE_F32 || value->dtype == LEAT_DTYPE_F64); i++) {
        const bool narrow = value->dtype == LEAT_DTYPE_F32;
        double x = narrow ? (double)((float *)data)[i] : ((double *)data)[i];
        most = isfinite(x) && (x == 0 || fabs(x) >= 0x1p-126) ? fmax(most, fabs(x)) : (double)INFINITY;
        x += noise * fabs(x) * ((double)(leat_test_random(random) >> 40) / (1 << 23) - 1);
        if (narrow) {
            ((float *)data)[i] = (float)x;
        } else {
            ((double *)data)[i] = x;
        }
    }
    return most;
}

/* Is one of them the logarithm of a sum of which next to nothing is left? Another order of its terms may leave nothing. */
static bool
is_of_nothing(const struct leat_value *value, const void *data)
{
    bool nothing = false;

    for (size_t i = 0; i < leat_value_elements(value); i++) {
        nothing = nothing || leat_element_real(value->dtype, data, i) < -9;
    }
    return nothing;
}

/* Output o of the graph, which a run gave the shape of `now`, to where item `item` has it. */
static enum leat_status
keep_output(const struct trial *t, uint32_t o, uint32_t item, const struct leat_value *now, const void *data,
            unsigned char **outputs)
{
    const struct leat_tensor_info *info = &t->infos[t->inputs + o];
    uint16_t *sizes = (uint16_t *)(void *)(outputs[t->outputs - 1] + item * t->infos[t->inputs + t->outputs - 1].item_bytes);
    uint16_t ignored;

    if (!t->one_by_one) {
        memcpy(outputs[o], data, leat_value_bytes(now));
        return LEAT_OK;
    }
    for (uint32_t before = 0; before < o; before++) {
        sizes += t->infos[t->inputs + before].varying != 0;
    }
    return leat_signature_store(info, &t->floats->values[t->floats->outputs[o]], now->dims, data,
                                outputs[o] + item * info->item_bytes, info->varying != 0 ? sizes : &ignored);
}

/* As the reference backend does, each tensor in memory of its own. *most: the largest magnitude anywhere, so far. */
static enum leat_status
run_disturbed_once(const struct trial *t, double noise, uint64_t *seed, uint32_t item, unsigned char *const *inputs,
                   unsigned char **outputs, double *most)
{
    const struct leat_graph *graph = t->floats;
    const bool shrinks = leat_graph_is_bounded(graph);
    struct leat_graph live = *graph;
    void **data = calloc(graph->value_count + 1, sizeof(*data));
    enum leat_status status = LEAT_OK;
    uint32_t trips = graph->trips_max;

    live.values = calloc(graph->value_count + 1, sizeof(*live.values));
    LEAT_ASSERT(data != NULL && live.values != NULL);
    memcpy(live.values, graph->values, graph->value_count * sizeof(*live.values));
    for (uint32_t v = 0; v < graph->value_count; v++) {
        const size_t bytes =
            leat_value_is_known(&graph->values[v]) ? leat_value_bytes(&graph->values[v]) : 0;
        data[v] = block_of(bytes);
        if (graph->values[v].data != NULL) {
            memcpy(data[v], graph->values[v].data, bytes);
        }
    }
    for (uint32_t i = 0; i < graph->input_count; i++) {
        const struct leat_value *value = &graph->values[graph->inputs[i]];
        memcpy(data[graph->inputs[i]], inputs[i] + item * t->infos[i].item_bytes, leat_value_bytes(value));
        *most = fmax(*most, disturb(value, noise, seed, data[graph->inputs[i]]));
    }
    for (uint32_t n = 0; n < graph->node_count && status == LEAT_OK; n++) {
        const struct leat_node *node = &live.nodes[n];
        void *workspace = block_of(leat_reference_workspace_bytes(graph, &graph->nodes[n]));
        const struct leat_eval eval = {.graph = &live,
                                       .node = node,
                                       .data = data,
                                       .values = shrinks ? live.values : NULL,
                                       .workspace = workspace,
                                       .trips = &trips};
        status = shrinks ? leat_reference_shrink_outputs(graph, &live, n) : LEAT_OK;
        if (status == LEAT_OK) {
            status = leat_reference_run_node(&eval);
        }
        for (uint32_t o = 0; o < node->output_count && status == LEAT_OK; o++) {
            const struct leat_value *value = leat_node_output(&live, node, o);
            if (value != NULL && node->op->kind == LEAT_OP_REDUCE_LOG_SUM && is_of_nothing(value, data[node->outputs[o]])) {
                *most = (double)INFINITY;
            }
            *most = value == NULL ? *most
                                  : fmax(*most, disturb(value, noise, seed, data[node->outputs[o]]));
        }
        free(workspace);
    }
    for (uint32_t o = 0; o < graph->output_count && status == LEAT_OK; o++) {
        status = keep_output(t, o, item, &live.values[graph->outputs[o]], data[graph->outputs[o]], outputs);
    }
    for (uint32_t v = 0; v < graph->value_count; v++) {
        free(data[v]);
    }
    free(live.values);
    free(data);
    return status;
}

static enum leat_status
run_disturbed(const struct trial *t, double noise, uint64_t seed, unsigned char *const *inputs,
              unsigned char **outputs, double *ret_most)
{
    enum leat_status status = LEAT_OK;

    *ret_most = 0;
    for (uint32_t item = 0; item < (t->one_by_one ? t->items : 1) && status == LEAT_OK; item++) {
        status = run_disturbed_once(t, noise, &seed, item, inputs, outputs, ret_most);
    }
    return status;
}

/* ---- Comparison --------------------------------------------------------------------------------------- */

static double
element(uint32_t dtype, const unsigned char *data, size_t i)
{
    const double x = leat_element_real(dtype, data, i);
    return dtype == LEAT_DTYPE_F16 ? fmax(fmin(x, HALF_END), -HALF_END) : x; /* its largest number is as near to its infinity */
}

static bool
is_float(uint32_t dtype)
{
    return dtype == LEAT_DTYPE_F32 || dtype == LEAT_DTYPE_F64 || dtype == LEAT_DTYPE_F16 || dtype == LEAT_DTYPE_BF16;
}

/* Sums that differ little may be rounded to neighbours. */
static double
step_of(uint32_t dtype)
{
    return dtype == LEAT_DTYPE_F16 ? 0x1p-10 : dtype == LEAT_DTYPE_BF16 ? 0x1p-7 : 0;
}

/* The first element of output `o` that is further apart than that beyond the tolerance, or SIZE_MAX. */
static size_t
first_apart(const struct trial *t, uint32_t o, const unsigned char *expected,
            const unsigned char *got, double beyond)
{
    const uint32_t dtype = t->infos[t->inputs + o].dtype;
    const size_t bytes = t->items * t->infos[t->inputs + o].item_bytes,
                 size = leat_dtype_bytes(dtype);

    for (size_t i = 0; i < bytes / size; i++) {
        if (!is_float(dtype)) {
            if (memcmp(expected + i * size, got + i * size, size) != 0) {
                return i;
            }
            continue;
        }
        const double a = element(dtype, expected, i), b = element(dtype, got, i);
        if (a != b && !(isnan(a) && isnan(b)) && !(fabs(a - b) <= 1e-4 + (1e-3 + step_of(dtype)) * fabs(a) + beyond)) {
            return i;
        }
    }
    return SIZE_MAX;
}

static bool
stays(const struct leat_graph *graph, const struct leat_node *node)
{
    (void)graph;
    (void)node;
    return false;
}

/*
 * Sums of products of 8-bit numbers that lie half way between two results are rounded to either, each on its own: so they
 * are floats here, which noise moves before they are rounded.
 */
static void
make_floats(struct trial *t)
{
    LEAT_MUST(leat_graph_copy(t->concrete, &t->floats) == LEAT_OK);
    if (leat_graph_split_quantised(t->floats, stays) != LEAT_OK) { /* floats take more memory than the model may */
        leat_graph_destroy(t->floats);
        LEAT_MUST(leat_graph_copy(t->concrete, &t->floats) == LEAT_OK);
    }
}

/* Is it the graph that makes much of little? Then nothing can be said of an output, or of a status when `o` is outputs. */
static bool
is_unstable(struct trial *t, uint32_t o, unsigned char *const *tensors, const unsigned char *got)
{
    unsigned char *outputs[2][LEAT_TENSORS_MAX];
    uint64_t seed = t->seed;
    double most = 0, beyond = 0, ignored;
    bool unstable = false;

    make_floats(t);
    for (uint32_t i = 0; i < 2 * t->outputs; i++) {
        outputs[i % 2][i / 2] = block_of(t->items * t->infos[t->inputs + i / 2].item_bytes);
    }
    const enum leat_status clean = run_disturbed(t, 0, 0, tensors, outputs[0], &most);
    unstable = !(most <= MAGNITUDE_MAX);
    for (uint32_t r = 0; r < NOISE_RUNS && !unstable; r++) {
        const enum leat_status status =
            run_disturbed(t, NOISE, leat_test_random(&seed), tensors, outputs[1], &ignored);
        unstable = status != clean;
        if (unstable || clean != LEAT_OK || o == t->outputs) {
            continue;
        }
        const uint32_t dtype = t->infos[t->inputs + o].dtype;
        const size_t bytes = t->items * t->infos[t->inputs + o].item_bytes;
        for (size_t i = 0; i < bytes / leat_dtype_bytes(dtype) && is_float(dtype); i++) {
            const double a = element(dtype, outputs[0][o], i), b = element(dtype, outputs[1][o], i);
            beyond = fmax(beyond, fabs(a - b));
            unstable = unstable || isnan(a) != isnan(b);
        }
        unstable = unstable || (!is_float(dtype) && memcmp(outputs[0][o], outputs[1][o], bytes) != 0);
    }
    if (!unstable && o < t->outputs && clean == LEAT_OK) {
        unstable =
            first_apart(t, o, tensors[t->inputs + o], got, NOISE_FACTOR * beyond) == SIZE_MAX;
    }
    for (uint32_t i = 0; i < 2 * t->outputs; i++) {
        free(outputs[i % 2][i / 2]);
    }
    leat_graph_destroy(t->floats);
    t->floats = NULL;
    return unstable;
}

/* `tensors` has the inputs and what the reference answered, `got` the other's outputs. */
static void
compare(struct trial *t, enum leat_status expected, enum leat_status status,
        unsigned char *const *tensors, unsigned char *const *got)
{
    if (expected != status) {
        /* Passes drop what no output needs, and with it what its payload would have failed. */
        const bool dropped = from_file(t->seed) && expected == LEAT_ERR_SHAPE && status == LEAT_OK;
        if (!dropped && !is_unstable(t, t->outputs, tensors, NULL)) {
            (void)fprintf(stderr, "reference says %d, cpu %d: %s\n", (int)expected, (int)status,
                          leat_error_text());
            abort();
        }
        return;
    }
    for (uint32_t o = 0; o < t->outputs && status == LEAT_OK; o++) {
        const size_t at = first_apart(t, o, tensors[t->inputs + o], got[t->inputs + o], 0);
        if (at != SIZE_MAX && !is_unstable(t, o, tensors, got[t->inputs + o])) {
            const uint32_t dtype = t->infos[t->inputs + o].dtype;
            (void)fprintf(stderr,
                          "output %u, element %zu: %.9g from the reference, %.9g from cpu\n", o, at,
                          is_float(dtype) ? element(dtype, tensors[t->inputs + o], at) : 0,
                          is_float(dtype) ? element(dtype, got[t->inputs + o], at) : 0);
            abort();
        }
    }
}

/* ---- Trials ------------------------------------------------------------------------------------------- */

static struct leat_team *
team_of_two(void)
{
    static struct leat_team *team; /* for good: its threads sleep between runs */
    const struct leat_team_options options = {.size = 2};

    if (team == NULL) {
        LEAT_MUST(leat_team_create(&options, &team) == LEAT_OK);
    }
    return team;
}

static void
fill_inputs(const struct trial *t, enum payload kind, unsigned char *const *tensors)
{
    for (uint32_t i = 0; i < t->inputs; i++) {
        fill(t->infos[i].dtype, t->items * t->infos[i].item_bytes, kind, t->seed + i, tensors[i]);
    }
}

/* Quiet payload, hostile payload, and the quiet one again, to the same bits. */
static void
compare_runs(struct trial *t, const struct loaded *reference, const struct loaded *cpu)
{
    unsigned char *tensors[3][LEAT_TENSORS_MAX];
    const enum payload kinds[3] = {PAYLOAD_TAME, (enum payload)(t->seed % PAYLOAD_COUNT),
                                   PAYLOAD_TAME};
    enum leat_status first = LEAT_OK;

    for (uint32_t i = 0; i < t->inputs + t->outputs; i++) {
        const size_t bytes = t->items * t->infos[i].item_bytes;
        for (int k = 0; k < 3; k++) {
            tensors[k][i] = block_of(bytes);
        }
    }
    for (int k = 0; k < 3; k++) {
        unsigned char *const *got = tensors[k == 2 ? 2 : 1];
        fill_inputs(t, kinds[k], tensors[0]);
        fill_inputs(t, kinds[k], got);
        const enum leat_status status = run(t, cpu, got);
        if (k < 2) {
            compare(t, run(t, reference, tensors[0]), status, tensors[0], got);
        }
        if (k == 0) {
            first = status;
            for (uint32_t o = t->inputs; o < t->inputs + t->outputs; o++) { /* 2 keeps them */
                memcpy(tensors[2][o], tensors[1][o], t->items * t->infos[o].item_bytes);
            }
        } else if (k == 1) {
            for (uint32_t o = t->inputs; o < t->inputs + t->outputs; o++) { /* now 1 does */
                memcpy(tensors[1][o], tensors[2][o], t->items * t->infos[o].item_bytes);
            }
        } else {
            LEAT_ASSERT(status == first);
            for (uint32_t o = t->inputs; o < t->inputs + t->outputs && status == LEAT_OK; o++) {
                LEAT_ASSERT(
                    memcmp(tensors[1][o], tensors[2][o], t->items * t->infos[o].item_bytes) == 0);
            }
        }
    }
    for (uint32_t i = 0; i < t->inputs + t->outputs; i++) {
        for (int k = 0; k < 3; k++) {
            free(tensors[k][i]);
        }
    }
}

/* Ranges from payload that may be anything; false where there are none. */
static bool
calibrate(const struct trial *t, struct leat_graph *graph, enum payload kind)
{
    struct leat_calibration *calibration = NULL;
    unsigned char *tensors[LEAT_TENSORS_MAX];
    bool found = false;

    if (leat_calibration_create(graph, t->one_by_one ? 1 : t->items, &calibration) != LEAT_OK) {
        return false;
    }
    for (uint32_t i = 0; i < t->inputs; i++) {
        tensors[i] = block_of(t->items * t->infos[i].item_bytes);
    }
    fill_inputs(t, kind, tensors);
    if (leat_calibration_run(calibration, (const void *const *)tensors) == LEAT_OK) {
        for (uint32_t r = 0; r < leat_calibration_count(calibration); r++) {
            const struct leat_range range = leat_calibration_range(calibration, r);
            LEAT_ASSERT(range.least <= 0 && range.most >= 0 && range.least < range.most &&
                        isfinite(range.most - 0) && isfinite(range.least));
            found = leat_graph_set_range(graph, &range) || found;
        }
    }
    for (uint32_t i = 0; i < t->inputs; i++) {
        free(tensors[i]);
    }
    leat_calibration_destroy(calibration);
    return found;
}

/* Not compared: how far answers may be apart depends on the network. */
static void
run_precision(const struct trial *t, enum leat_precision precision)
{
    struct leat_graph *graph = NULL;
    unsigned char *tensors[LEAT_TENSORS_MAX];
    struct loaded cpu;

    if ((leat_backend_precisions(&leat_backend_cpu) & LEAT_PRECISION_BIT(precision)) == 0 ||
        leat_graph_copy(t->optimised, &graph) != LEAT_OK) {
        return;
    }
    const enum payload kind = (enum payload)((t->seed >> 8) % PAYLOAD_COUNT);
    if ((precision != LEAT_PRECISION_INT8 || calibrate(t, graph, kind)) &&
        load(t, graph, &leat_backend_cpu, precision, NULL, &cpu) == LEAT_OK) {
        for (uint32_t i = 0; i < t->inputs + t->outputs; i++) {
            tensors[i] = block_of(t->items * t->infos[i].item_bytes);
        }
        fill_inputs(t, kind, tensors);
        (void)run(t, &cpu, tensors);
        for (uint32_t i = 0; i < t->inputs + t->outputs; i++) {
            free(tensors[i]);
        }
        unload(&cpu);
    }
    leat_graph_destroy(graph);
}

static bool
is_small(const struct leat_graph *graph, bool one_by_one)
{
    size_t bytes = 0;
    uint64_t flop = 0;

    if ((leat_graph_is_bounded(graph) && !one_by_one) || leat_reference_scratch_bytes(graph, &bytes) != LEAT_OK ||
        bytes > RUN_BYTES_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < graph->input_count; i++) {
        bytes += leat_value_bytes(&graph->values[graph->inputs[i]]);
    }
    for (uint32_t o = 0; o < graph->output_count; o++) {
        bytes += leat_value_bytes(&graph->values[graph->outputs[o]]);
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_cost cost = leat_node_cost(graph, &graph->nodes[n]);
        if (cost.product_flop > FLOP_MAX || cost.other_flop > FLOP_MAX) {
            return false;
        }
        flop += cost.product_flop + cost.other_flop;
    }
    return bytes <= RUN_BYTES_MAX && flop <= FLOP_MAX;
}

static void
try(struct trial *t)
{
    struct loaded reference, cpu;
    struct leat_team *team = (t->seed >> 16) % 4 == 0 ? team_of_two() : NULL;

    if (leat_graph_specialise(t->plain, t->one_by_one ? 1 : t->items, &t->concrete) != LEAT_OK) {
        return;
    }
    if (is_small(t->concrete, t->one_by_one) && load(t, t->plain, &leat_backend_reference, LEAT_PRECISION_F32,
                                      NULL, &reference) == LEAT_OK) {
        const enum leat_status status =
            load(t, t->optimised, &leat_backend_cpu, LEAT_PRECISION_F32, team, &cpu);
        LEAT_ASSERT(status == LEAT_OK || status == LEAT_ERR_LIMIT);
        if (status == LEAT_OK) {
            /* All that a file chooses the size of; a backend's own structures are small. */
            LEAT_ASSERT(leat_backend_cpu.model_bytes(cpu.model) +
                            leat_backend_cpu.plan_scratch_bytes(cpu.plan) <=
                        MEMORY_BYTES_MAX + (UINT64_C(1) << 20));
            compare_runs(t, &reference, &cpu);
            unload(&cpu);
        }
        unload(&reference);
        run_precision(t, (t->seed >> 18) % 2 == 0 ? LEAT_PRECISION_BF16 : LEAT_PRECISION_INT8);
    }
    leat_graph_destroy(t->concrete);
}

static bool
fits(const struct leat_graph *graph)
{
    return graph->input_count >= 1 && graph->output_count >= 1 &&
           graph->input_count <= LEAT_TENSORS_MAX &&
           graph->output_count <= LEAT_TENSORS_MAX - graph->input_count;
}

/* All of each tensor is one item: so batches need no signature. */
static void
try_whole(const struct leat_graph *plain, const struct leat_graph *optimised, uint64_t seed)
{
    struct trial t = {.items = 1, .seed = seed};
    struct leat_graph *one = NULL, *other = NULL;

    if (leat_graph_specialise(plain, 2, &one) == LEAT_OK &&
        leat_graph_specialise(optimised, 2, &other) == LEAT_OK && fits(one)) {
        LEAT_ASSERT(one->input_count == other->input_count &&
                    one->output_count == other->output_count);
        t.inputs = one->input_count;
        t.outputs = one->output_count;
        for (uint32_t i = 0; i < t.inputs + t.outputs; i++) {
            const struct leat_value *value =
                &one->values[i < t.inputs ? one->inputs[i] : one->outputs[i - t.inputs]];
            t.infos[i] = (struct leat_tensor_info){.dtype = value->dtype,
                                                   .item_bytes = leat_value_bytes(value)};
        }
        t.plain = one;
        t.optimised = other;
        try(&t);
    }
    leat_graph_destroy(one);
    leat_graph_destroy(other);
}

static void
try_batch(const struct leat_graph *plain, const struct leat_graph *optimised, uint64_t seed)
{
    struct trial t = {.plain = plain, .optimised = optimised, .items = ITEMS, .seed = seed};

    if (fits(plain) && leat_graph_signature(plain, t.infos, &t.inputs, &t.outputs) == LEAT_OK) {
        try(&t);
    }
}

/* Those that no batch is possible of, as the daemon runs them, and others, for which it must make no difference. */
static void
try_one_by_one(const struct leat_graph *plain, const struct leat_graph *optimised, uint64_t seed)
{
    struct trial t = {.plain = plain, .optimised = optimised, .items = ITEMS, .seed = seed, .one_by_one = true};

    if (fits(plain) && plain->input_count + plain->output_count < LEAT_TENSORS_MAX &&
        leat_graph_signature_of_one(plain, t.infos, &t.inputs, &t.outputs) == LEAT_OK) {
        const size_t sizes = leat_signature_sizes(t.infos, t.inputs + t.outputs);
        t.infos[t.inputs + t.outputs] =
            (struct leat_tensor_info){.dtype = LEAT_DTYPE_U16, .item_bytes = sizes * sizeof(uint16_t)};
        t.outputs++;
        try(&t);
    }
}

/* Free dimensions are few and small. */
static enum leat_status
bind(struct leat_graph *graph, uint64_t seed)
{
    struct leat_dim_value values[LEAT_GRAPH_SYMBOLS_MAX];
    uint32_t count = 0;

    for (uint32_t s = 0; s < graph->symbol_count; s++) {
        const uint64_t r = leat_test_random(&seed);
        if (graph->symbols[s] != NULL) {
            values[count++] =
                (struct leat_dim_value){.name = graph->symbols[s], .value = (int64_t)(1 + r % 5)};
        }
    }
    return leat_graph_bind(graph, values, count);
}

size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    const size_t mutated = onnx_mutate(data, size, max_size, seed);
    if (mutated == 0 && size > 0) { /* no model: bytes */
        data[seed % size] ^= (uint8_t)(1u << (seed >> 8 & 7));
    }
    return mutated > 0 ? mutated : size;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct leat_onnx_source source = {.bytes = data,
                                            .byte_count = size,
                                            .folder_fd = -1,
                                            .memory_bytes_max = MEMORY_BYTES_MAX,
                                            .trips_max = TRIPS_MAX};
    struct leat_graph *graph = NULL, *optimised = NULL;
    uint64_t seed = UINT64_C(14695981039346656037); /* FNV-1a */

    for (size_t i = 0; i < size; i++) {
        seed = (seed ^ data[i]) * UINT64_C(1099511628211);
    }
    seed = leat_test_random(&seed);
    if (leat_onnx_import_from(&source, &graph) != LEAT_OK) {
        return 0;
    }
    if (bind(graph, seed) == LEAT_OK && leat_graph_copy(graph, &optimised) == LEAT_OK &&
        leat_graph_optimise(optimised, UINT64_MAX) == LEAT_OK) {
        try_whole(from_file(seed) ? graph : optimised, optimised, seed);
        try_batch(from_file(seed) ? graph : optimised, optimised, seed);
        try_one_by_one(from_file(seed) ? graph : optimised, optimised, seed);
    }
    leat_graph_destroy(optimised);
    leat_graph_destroy(graph);
    return 0;
}
