/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     How far a sequence is padded changes no answer, and a model of which that is not known has one length only.
 * Method   Encoders of the zoo are bound to some lengths. Queries of every length, with whatever in the tensors behind their end,
 *          run at each length that holds them, alone and beside others: as near to the graph that is bound to exactly their
 *          length as another order of summation allows, the same bit for bit whatever was behind the end, and zeros there. Small
 *          models that mix positions in one way each are refused, with the node's name, and the same with a mask are not.
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/graph_build.h"
#include "kernels/padding/padding.h"
#include "kernels/sequence.h"
#include "tests/kernels/padded_models.h"
#include "tests/leat_test.h"
#include "tools/zoo/zoo.h"

#define TOLERANCE 1e-6f /* of the largest element of an output */
#define ITEMS     3

static void *
aligned(size_t bytes)
{
    void *block = aligned_alloc(64, (size_t)leat_round_up(bytes + 64, 64));
    EXPECT(block != NULL);
    memset(block, 0, (size_t)leat_round_up(bytes + 64, 64));
    return block;
}

/* ---- One loaded model ------------------------------------------------------------------------------------- */

struct running {
    const struct leat_backend *backend;
    struct leat_model *model;
    struct leat_plan *plans[LEAT_LENGTHS_MAX];
    void *scratch[LEAT_LENGTHS_MAX];
    uint32_t plan_count;
};

static void
start(const struct leat_backend *backend, const struct leat_model_source *source, struct running *ret)
{
    *ret = (struct running){.backend = backend, .plan_count = source->length_count > 0 ? source->length_count : 1};
    EXPECT(backend->model_load(source, &ret->model) == LEAT_OK);
    for (uint32_t k = 0; k < ret->plan_count; k++) {
        const struct leat_plan_options options = {.items = ITEMS, .length = source->length_count > 0 ? source->lengths[k] : 0};
        EXPECT(backend->plan_build(ret->model, &options, &ret->plans[k]) == LEAT_OK);
        ret->scratch[k] = aligned(backend->plan_scratch_bytes(ret->plans[k]));
    }
}

static void
stop(struct running *running)
{
    for (uint32_t k = 0; k < running->plan_count; k++) {
        running->backend->plan_destroy(running->plans[k]);
        free(running->scratch[k]);
    }
    running->backend->model_destroy(running->model);
}

/* ---- Models of the zoo ------------------------------------------------------------------------------------ */

struct subject {
    const char *name, *symbol;
    struct leat_dim_value other; /* another free dimension; NULL: none */
    uint32_t length_count, lengths[3];
    struct leat_graph *graph; /* with the symbol free */
    struct leat_sequence *sequence;
    int64_t ends[LEAT_TENSORS_MAX];
};

static void
read_ends(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    int64_t *ends = context;
    (void)model;

    for (uint32_t i = 0; i < summary->input_count; i++) {
        ends[i] = summary->inputs[i].end;
    }
}

static enum leat_status
import(struct subject *s)
{
    const struct zoo_model *model = zoo_find(s->name);
    void *bytes;
    size_t size;

    EXPECT(model != NULL && zoo_write(model, ZOO_SIZE_TEST, 3, &bytes, &size) == LEAT_OK);
    EXPECT(zoo_describe(model, ZOO_SIZE_TEST, read_ends, s->ends) == LEAT_OK);
    EXPECT(leat_onnx_import(bytes, size, &s->graph) == LEAT_OK);
    free(bytes);
    if (s->other.name != NULL) {
        EXPECT(leat_graph_bind(s->graph, &s->other, 1) == LEAT_OK);
    }
    return leat_sequence_create(s->graph, s->symbol, s->lengths, s->length_count, &s->sequence);
}

static void
forget(struct subject *s)
{
    leat_sequence_destroy(s->sequence);
    leat_graph_destroy(s->graph);
}

/* What a client could have put there. */
static void
fill(const struct leat_tensor_info *info, int64_t end, unsigned char *data, uint32_t items, uint64_t *random)
{
    for (size_t i = 0; i < items * info->item_bytes / leat_dtype_bytes(info->dtype); i++) {
        const uint64_t r = leat_test_random(random);
        if (info->dtype == LEAT_DTYPE_F32) {
            ((float *)(void *)data)[i] = (float)(r % 2000) / 1000.0f - 1.0f;
        } else {
            EXPECT(info->dtype == LEAT_DTYPE_I64);
            ((int64_t *)(void *)data)[i] = (int64_t)(r % (uint64_t)end);
        }
    }
}

/* Everything behind position `length`, of each item. */
static void
spoil(const struct leat_sequence *sequence, uint32_t t, uint32_t length, unsigned char *data, uint32_t items, uint64_t *random)
{
    const struct leat_tensor_info *info = &sequence->infos[t];
    const uint32_t full = sequence->lengths[sequence->length_count - 1];

    if (sequence->axes[t] != 1) {
        EXPECT(sequence->axes[t] < 0);
        return;
    }
    const size_t position = info->item_bytes / full;
    for (uint32_t item = 0; item < items; item++) {
        for (size_t b = length * position; b < info->item_bytes; b++) {
            data[item * info->item_bytes + b] = (unsigned char)leat_test_random(random);
        }
    }
}

/* Tensors of `items` items that have `full` positions, seen as those of `length`. */
static void
shorten(size_t position, uint32_t full, uint32_t length, const unsigned char *from, uint32_t items, unsigned char *to)
{
    for (uint32_t item = 0; item < items; item++) {
        memcpy(to + item * length * position, from + item * full * position, length * position);
    }
}

/* What the graph that is bound to exactly this length answers, in the places of the full length. */
static void
answer_exactly(const struct subject *s, uint32_t length, uint32_t items, unsigned char *const *tensors, unsigned char **ret)
{
    const struct leat_sequence *sequence = s->sequence;
    const uint32_t full = sequence->lengths[sequence->length_count - 1];
    const struct leat_dim_value value = {.name = s->symbol, .value = length};
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.infos = infos};
    struct leat_segment segment = {.items = items};
    struct leat_graph *graph;
    struct running exact;

    EXPECT(leat_graph_copy(s->graph, &graph) == LEAT_OK);
    EXPECT(leat_graph_bind(graph, &value, 1) == LEAT_OK);
    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    source.graph = graph;
    start(&leat_backend_reference, &source, &exact);
    for (uint32_t t = 0; t < source.input_count + source.output_count; t++) {
        unsigned char *block = aligned(items * infos[t].item_bytes);
        if (t < source.input_count && sequence->axes[t] == 1) {
            shorten(infos[t].item_bytes / length, full, length, tensors[t], items, block);
        } else if (t < source.input_count) {
            memcpy(block, tensors[t], items * infos[t].item_bytes);
        }
        segment.tensors[t] = block;
    }
    EXPECT(exact.backend->plan_run(exact.plans[0], &segment, 1, exact.scratch[0], NULL) == LEAT_OK);
    for (uint32_t t = 0; t < source.input_count + source.output_count; t++) {
        if (t >= source.input_count) {
            const size_t bytes = sequence->axes[t] == 1 ? infos[t].item_bytes / length * full : infos[t].item_bytes;
            memset(ret[t], 0, items * bytes);
            for (uint32_t item = 0; item < items; item++) {
                memcpy(ret[t] + item * bytes, (const unsigned char *)segment.tensors[t] + item * infos[t].item_bytes,
                       infos[t].item_bytes);
            }
        }
        free((void *)(uintptr_t)segment.tensors[t]);
    }
    stop(&exact);
    leat_graph_destroy(graph);
}

/* The longest distance, in largest elements. */
static float
distance(const unsigned char *a, const unsigned char *b, size_t bytes)
{
    const float *x = (const float *)(const void *)a, *y = (const float *)(const void *)b;
    float largest = 0, apart = 0;

    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        largest = fabsf(y[i]) > largest ? fabsf(y[i]) : largest;
        EXPECT(x[i] - x[i] == 0 && y[i] - y[i] == 0);
        apart = fabsf(x[i] - y[i]) > apart ? fabsf(x[i] - y[i]) : apart;
    }
    EXPECT(largest > 0);
    return apart / largest;
}

struct tensors {
    unsigned char *of[LEAT_TENSORS_MAX];
};

static struct tensors
make_tensors(const struct leat_sequence *sequence, uint32_t items)
{
    struct tensors made = {{NULL}};
    for (uint32_t t = 0; t < sequence->input_count + sequence->output_count; t++) {
        made.of[t] = aligned(items * sequence->infos[t].item_bytes);
    }
    return made;
}

static void
free_tensors(struct tensors *tensors)
{
    for (uint32_t t = 0; t < LEAT_TENSORS_MAX; t++) {
        free(tensors->of[t]);
    }
}

static void
copy_inputs(const struct leat_sequence *sequence, const struct tensors *from, struct tensors *to, uint32_t items)
{
    for (uint32_t t = 0; t < sequence->input_count; t++) {
        memcpy(to->of[t], from->of[t], items * sequence->infos[t].item_bytes);
    }
}

/* Some positions do not count; the first does, as in all that people export. */
static void
fill_inputs(const struct subject *s, struct tensors *tensors, uint32_t items, uint64_t *random)
{
    const struct leat_sequence *sequence = s->sequence;

    for (uint32_t t = 0; t < sequence->input_count; t++) {
        fill(&sequence->infos[t], s->ends[t], tensors->of[t], items, random);
        for (uint32_t item = 0; item < items && (sequence->masks >> t & 1) != 0; item++) {
            *(int64_t *)(void *)(tensors->of[t] + item * sequence->infos[t].item_bytes) = 1;
        }
    }
}

/* Runs one query of two items at length k, with what it finds behind its end, beside a query of one item. */
static void
run_beside(const struct leat_sequence *sequence, const struct running *running, uint32_t k, struct tensors *query, uint32_t length,
           struct tensors *neighbour, uint32_t neighbour_length, bool first)
{
    struct leat_segment segments[2] = {{.items = ITEMS - 1, .length = length}, {.items = 1, .length = neighbour_length}};

    for (uint32_t t = 0; t < sequence->input_count + sequence->output_count; t++) {
        segments[0].tensors[t] = query->of[t];
        segments[1].tensors[t] = neighbour->of[t];
    }
    if (!first) {
        const struct leat_segment swap = segments[0];
        segments[0] = segments[1];
        segments[1] = swap;
    }
    EXPECT(running->backend->plan_run(running->plans[k], segments, 2, running->scratch[k], NULL) == LEAT_OK);
}

static void
check_tail(const struct leat_sequence *sequence, const struct tensors *tensors, uint32_t length, uint32_t items)
{
    const uint32_t full = sequence->lengths[sequence->length_count - 1];

    for (uint32_t t = sequence->input_count; t < sequence->input_count + sequence->output_count; t++) {
        const size_t bytes = sequence->infos[t].item_bytes;
        for (uint32_t item = 0; item < items && sequence->axes[t] == 1; item++) {
            for (size_t b = bytes / full * length; b < bytes; b++) {
                EXPECT(tensors->of[t][item * bytes + b] == 0);
            }
        }
    }
}

/* A query of this length at all lengths that hold it. */
static void
check_length(const struct subject *s, const struct running *running, uint32_t length, float tolerance, uint64_t *random)
{
    const struct leat_sequence *sequence = s->sequence;
    struct tensors query = make_tensors(sequence, ITEMS - 1), expected = make_tensors(sequence, ITEMS - 1),
                   again = make_tensors(sequence, ITEMS - 1), neighbour = make_tensors(sequence, 1);
    float apart = 0;

    fill_inputs(s, &query, ITEMS - 1, random);
    fill_inputs(s, &neighbour, 1, random);
    answer_exactly(s, length, ITEMS - 1, query.of, expected.of);
    for (uint32_t k = 0; k < sequence->length_count; k++) {
        const uint32_t other = 1 + (uint32_t)(leat_test_random(random) % sequence->lengths[k]);
        if (sequence->lengths[k] < length) {
            continue;
        }
        copy_inputs(sequence, &query, &again, ITEMS - 1);
        for (uint32_t t = 0; t < sequence->input_count + sequence->output_count; t++) {
            spoil(sequence, t, length, query.of[t], ITEMS - 1, random);
            spoil(sequence, t, length, again.of[t], ITEMS - 1, random);
        }
        run_beside(sequence, running, k, &query, length, &neighbour, other, true);
        run_beside(sequence, running, k, &again, length, &neighbour, other, true);
        check_tail(sequence, &query, length, ITEMS - 1);
        check_tail(sequence, &neighbour, other, 1);
        for (uint32_t t = sequence->input_count; t < sequence->input_count + sequence->output_count; t++) {
            const size_t bytes = (ITEMS - 1) * sequence->infos[t].item_bytes;
            const float far = distance(query.of[t], expected.of[t], bytes);
            EXPECT(memcmp(query.of[t], again.of[t], bytes) == 0);
            apart = far > apart ? far : apart;
            if (far > tolerance) {
                (void)fprintf(stderr, "%s, %s: %u positions at %u: output %u is %g of its largest off\n", s->name,
                              running->backend->name, length, sequence->lengths[k], t - sequence->input_count, (double)far);
            }
        }
        EXPECT(apart <= tolerance);
        run_beside(sequence, running, k, &again, length, &neighbour, other, false);
        for (uint32_t t = sequence->input_count; t < sequence->input_count + sequence->output_count; t++) {
            EXPECT(distance(again.of[t], expected.of[t], (ITEMS - 1) * sequence->infos[t].item_bytes) <= tolerance);
        }
    }
    free_tensors(&query);
    free_tensors(&again);
    free_tensors(&expected);
    free_tensors(&neighbour);
}

/* A mask without any 1 is one of ones, at every length. */
static void
check_empty_masks(const struct subject *s, const struct running *running, uint64_t *random)
{
    const struct leat_sequence *sequence = s->sequence;
    struct tensors query = make_tensors(sequence, ITEMS - 1), expected = make_tensors(sequence, ITEMS - 1),
                   neighbour = make_tensors(sequence, 1);
    const uint32_t length = 1 + (uint32_t)(leat_test_random(random) % sequence->lengths[0]);

    fill_inputs(s, &query, ITEMS - 1, random);
    for (uint32_t t = 0; t < sequence->input_count; t++) {
        const size_t elements = sequence->infos[t].item_bytes / sizeof(int64_t) * (ITEMS - 1);
        for (size_t i = 0; i < elements && (sequence->masks >> t & 1) != 0; i++) {
            ((int64_t *)(void *)query.of[t])[i] = 1;
        }
    }
    answer_exactly(s, length, ITEMS - 1, query.of, expected.of);
    for (uint32_t t = 0; t < sequence->input_count; t++) {
        if ((sequence->masks >> t & 1) != 0) { /* and no half measures: 3 is none either */
            memset(query.of[t], 0, (ITEMS - 1) * sequence->infos[t].item_bytes);
            *(int64_t *)(void *)query.of[t] = 3;
        }
        spoil(sequence, t, length, query.of[t], ITEMS - 1, random);
    }
    fill_inputs(s, &neighbour, 1, random);
    for (uint32_t k = 0; k < sequence->length_count; k++) {
        run_beside(sequence, running, k, &query, length, &neighbour, length, true);
        for (uint32_t t = sequence->input_count; t < sequence->input_count + sequence->output_count; t++) {
            EXPECT(distance(query.of[t], expected.of[t], (ITEMS - 1) * sequence->infos[t].item_bytes) <= 1e-4f);
        }
    }
    free_tensors(&query);
    free_tensors(&expected);
    free_tensors(&neighbour);
}

static void
check_lengths_that_are_not(const struct leat_sequence *sequence, const struct running *running)
{
    struct tensors query = make_tensors(sequence, 1);
    struct leat_segment segment = {.items = 1, .length = sequence->lengths[0] + 1};
    struct leat_plan *plan = NULL;

    for (uint32_t t = 0; t < LEAT_TENSORS_MAX; t++) {
        segment.tensors[t] = query.of[t];
    }
    EXPECT(running->backend->plan_run(running->plans[0], &segment, 1, running->scratch[0], NULL) == LEAT_ERR_INVALID);
    segment.length = 0; /* full */
    EXPECT(running->backend->plan_run(running->plans[0], &segment, 1, running->scratch[0], NULL) == LEAT_ERR_INVALID);
    const uint32_t last = sequence->length_count - 1;
    EXPECT(running->backend->plan_run(running->plans[last], &segment, 1, running->scratch[last], NULL) == LEAT_OK);
    const struct leat_plan_options options = {.items = 1, .length = sequence->lengths[0] + 1};
    EXPECT(running->backend->plan_build(running->model, &options, &plan) == LEAT_ERR_INVALID && plan == NULL);
    free_tensors(&query);
}

/* What plans of several lengths add to those of one: positions, by each length its own. */
static void
check_weights_are_shared(struct leat_model_source *source, const struct running *running)
{
    const uint32_t lengths = source->length_count;
    struct running alone;

    source->length_count = 0;
    start(running->backend, source, &alone);
    const size_t bytes = running->backend->model_bytes(running->model), one = running->backend->model_bytes(alone.model);
    if (bytes > one + one / 4) {
        (void)fprintf(stderr, "%zu bytes for %u lengths, %zu for one\n", bytes, lengths, one);
    }
    EXPECT(bytes <= one + one / 4);
    stop(&alone);
    source->length_count = lengths;
}

static const struct subject subjects[] = {
    {.name = "bert-tiny", .symbol = "sequence", .length_count = 3, .lengths = {4, 9, 16}},
    {.name = "bert-base", .symbol = "sequence", .length_count = 2, .lengths = {5, 8}},
    {.name = "distilbert", .symbol = "sequence", .length_count = 3, .lengths = {3, 8, 12}},
    {.name = "t5-small-encoder", .symbol = "sequence", .length_count = 3, .lengths = {2, 7, 12}},
    {.name = "t5-small-decoder", .symbol = "sequence", .other = {"target", 6}, .length_count = 2, .lengths = {4, 9}},
    {.name = "t5-small-decoder", .symbol = "target", .other = {"sequence", 6}, .length_count = 2, .lengths = {4, 9}},
    {.name = "lstm-lm", .symbol = "sequence", .length_count = 2, .lengths = {4, 7}},
};

static void
test_zoo(bool quick)
{
    uint64_t random = leat_test_seed;

    for (size_t i = 0; i < LEAT_COUNT_OF(subjects); i++) {
        struct subject s = subjects[i];
        struct leat_model_source source = {.precision = LEAT_PRECISION_F32};
        struct running reference, cpu;
        const enum leat_status status = import(&s);

        if (status != LEAT_OK) {
            (void)fprintf(stderr, "%s: %s\n", s.name, leat_error_text());
        }
        EXPECT(status == LEAT_OK);
        leat_sequence_describe(s.sequence, &source);
        start(&leat_backend_reference, &source, &reference);
        check_lengths_that_are_not(s.sequence, &reference);
        for (uint32_t length = 1; length <= s.lengths[s.length_count - 1]; length += quick ? 3 : 1) {
            check_length(&s, &reference, length, TOLERANCE, &random);
        }
        check_empty_masks(&s, &reference, &random);
        stop(&reference);

        EXPECT(leat_sequence_optimise(s.sequence, UINT64_MAX) == LEAT_OK);
        leat_sequence_describe(s.sequence, &source);
        start(&leat_backend_cpu, &source, &cpu);
        check_weights_are_shared(&source, &cpu);
        check_lengths_that_are_not(s.sequence, &cpu);
        for (uint32_t length = 1; length <= s.lengths[s.length_count - 1]; length += quick ? 3 : 1) {
            check_length(&s, &cpu, length, 1e-4f, &random);
        }
        check_empty_masks(&s, &cpu, &random);
        stop(&cpu);
        if ((leat_backend_precisions(&leat_backend_cpu) & LEAT_PRECISION_BIT(LEAT_PRECISION_BF16)) != 0) {
            source.precision = LEAT_PRECISION_BF16;
            start(&leat_backend_cpu, &source, &cpu);
            for (uint32_t length = 1; length <= s.lengths[s.length_count - 1]; length += 3) {
                check_length(&s, &cpu, length, 0.1f, &random);
            }
            stop(&cpu);
        }
        forget(&s);
    }
}

/* Conditions on time that positions share, windows, steps from the end: what the proof does not cover is not served. */
static void
test_zoo_refused(void)
{
    static const struct {
        struct subject subject;
        const char *text;
    } cases[] = {
        {{.name = "lstm-classifier", .symbol = "sequence", .length_count = 2, .lengths = {6, 12}}, "LSTM"},
        {{.name = "gru-classifier", .symbol = "sequence", .length_count = 2, .lengths = {6, 12}}, "length"},
        {{.name = "conformer-ctc-small", .symbol = "frames", .length_count = 2, .lengths = {16, 32}}, "length"},
    };

    for (size_t i = 0; i < LEAT_COUNT_OF(cases); i++) {
        struct subject s = cases[i].subject;
        EXPECT(import(&s) == LEAT_ERR_UNSUPPORTED);
        (void)fprintf(stderr, "%s: %s\n", s.name, leat_error_text());
        EXPECT(strstr(leat_error_text(), cases[i].text) != NULL);
        forget(&s);
    }
}

/* ---- Small models ------------------------------------------------------------------------------------------- */

static void
test_small(void)
{
    uint64_t random = leat_test_seed;

    for (size_t i = 0; i < padded_model_count; i++) {
        struct subject s = {.name = padded_models[i].name, .symbol = "M", .ends = {0, 2, 16}};
        struct leat_model_source source = {.precision = LEAT_PRECISION_F32};
        struct running running[2];
        struct builder b;

        memcpy(s.lengths, padded_models[i].lengths, sizeof(s.lengths));
        s.length_count = s.lengths[2] > 0 ? 3 : 2;
        builder_init(&b, 11);
        builder_input(&b, "x", 1, DIMS(-1, -2, 4));
        builder_input(&b, "mask", 7, DIMS(-1, -2));
        builder_input(&b, "ids", 7, DIMS(-1, -2));
        builder_output(&b, "y");
        padded_models[i].build(&b);
        if (builder_import(&b, &s.graph) != LEAT_OK) {
            (void)fprintf(stderr, "%s: %s\n", s.name, leat_error_text());
            EXPECT(!"imported");
        }
        const enum leat_status status = leat_sequence_create(s.graph, s.symbol, s.lengths, s.length_count, &s.sequence);
        const bool as_said = padded_models[i].node == NULL
                                 ? status == LEAT_OK
                                 : status == LEAT_ERR_UNSUPPORTED && strstr(leat_error_text(), padded_models[i].node) != NULL;
        if (!as_said) {
            (void)fprintf(stderr, "%s: %s\n", s.name, status == LEAT_OK ? "taken" : leat_error_text());
        }
        EXPECT(as_said);
        for (uint32_t which = 0; which < 2 && status == LEAT_OK; which++) {
            if (which == 1) {
                EXPECT(leat_sequence_optimise(s.sequence, UINT64_MAX) == LEAT_OK);
            }
            leat_sequence_describe(s.sequence, &source);
            start(which == 0 ? &leat_backend_reference : &leat_backend_cpu, &source, &running[which]);
            for (uint32_t length = 1; length <= s.lengths[s.length_count - 1]; length++) {
                check_length(&s, &running[which], length, which == 0 ? TOLERANCE : 1e-4f, &random);
            }
            check_empty_masks(&s, &running[which], &random);
            stop(&running[which]);
        }
        forget(&s);
        builder_fini(&b);
    }
}

/* Weights in u8 become floats when a model is loaded: once for all lengths. */
static void
test_weights_of_bytes(void)
{
    enum { INNER = 64, OUTER = 256 };
    static uint8_t weights[INNER * OUTER];
    static const uint8_t point = 128;
    static const float step = 0.015625f;
    struct subject s = {.name = "weights of bytes", .symbol = "M", .length_count = 3, .lengths = {3, 5, 8}};
    struct leat_model_source source = {.precision = LEAT_PRECISION_F32};
    uint64_t random = leat_test_seed;
    struct running cpu;
    struct builder b;

    for (size_t i = 0; i < sizeof(weights); i++) {
        weights[i] = (uint8_t)leat_test_random(&random);
    }
    builder_init(&b, 11);
    builder_input(&b, "x", 1, DIMS(-1, -2, INNER));
    builder_output(&b, "y");
    builder_constant(&b, "w", 2, weights, DIMS(INNER, OUTER));
    builder_constant(&b, "step", 1, &step, NULL, 0);
    builder_constant(&b, "point", 2, &point, NULL, 0);
    builder_node(&b, "QuantizeLinear", "x step point", "numbers");
    builder_node(&b, "QLinearMatMul", "numbers step point w step point step point", "product");
    builder_node(&b, "DequantizeLinear", "product step point", "y");
    EXPECT(builder_import(&b, &s.graph) == LEAT_OK);
    EXPECT(leat_sequence_create(s.graph, s.symbol, s.lengths, s.length_count, &s.sequence) == LEAT_OK);
    EXPECT(leat_sequence_optimise(s.sequence, UINT64_MAX) == LEAT_OK);
    leat_sequence_describe(s.sequence, &source);
    start(&leat_backend_cpu, &source, &cpu);
    check_weights_are_shared(&source, &cpu);
    stop(&cpu);
    forget(&s);
    builder_fini(&b);
}

/* Bytes of a bool are a client's; a query of the full length is as it is. */
static void
test_masks_of_bytes(void)
{
    static const struct {
        unsigned char given[4];
        uint32_t length;
        unsigned char gathered[4];
    } cases[] = {
        {{255, 0, 2, 9}, 3, {1, 0, 1, 0}},
        {{0, 0, 0, 9}, 3, {1, 1, 1, 0}},
        {{255, 0, 2, 0}, 4, {1, 0, 1, 0}},
        {{0, 0, 0, 0}, 4, {0, 0, 0, 0}},
    };
    const struct leat_item_layout layout = {.tensor_count = 1,
                                            .full_length = 4,
                                            .masks = 1,
                                            .tensors = {{.item_bytes = 4, .outer = 1, .inner_bytes = 1, .dtype = LEAT_DTYPE_BOOL}}};

    for (size_t i = 0; i < LEAT_COUNT_OF(cases); i++) {
        const struct leat_segment segment = {.items = 1, .length = cases[i].length, .tensors = {cases[i].given}};
        unsigned char gathered[4];
        leat_items_gather(&layout, 4, &segment, 1, 0, 0, gathered);
        EXPECT(memcmp(gathered, cases[i].gathered, 4) == 0);
    }
}

/* The same nodes, and one that does something else. */
static void
test_attributes(void)
{
    static const float alphas[] = {0.125f, 0.125f, 0.5f};
    struct leat_graph *graphs[LEAT_COUNT_OF(alphas)];
    uint64_t masks = 0;

    for (uint32_t k = 0; k < LEAT_COUNT_OF(alphas); k++) {
        const struct leat_dim_value length = {.name = "M", .value = 4 << (k > 0)};
        struct leat_graph *graph;
        struct builder b;
        builder_init(&b, 11);
        builder_input(&b, "x", 1, DIMS(-1, -2));
        builder_output(&b, "y");
        builder_float(&b, builder_node(&b, "LeakyRelu", "x", "y"), "alpha", alphas[k]);
        EXPECT(builder_import(&b, &graph) == LEAT_OK && leat_graph_bind(graph, &length, 1) == LEAT_OK);
        EXPECT(leat_graph_specialise(graph, 1, &graphs[k]) == LEAT_OK);
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
    EXPECT(leat_padding_check(graphs, (const uint32_t[]){4, 8}, 2, &masks) == LEAT_OK);
    EXPECT(leat_padding_check((struct leat_graph *[]){graphs[0], graphs[2]}, (const uint32_t[]){4, 8}, 2, &masks) ==
           LEAT_ERR_UNSUPPORTED);
    for (uint32_t k = 0; k < LEAT_COUNT_OF(alphas); k++) {
        leat_graph_destroy(graphs[k]);
    }
}

int
main(int argc, char **argv)
{
    (void)argv;
    leat_test_init();
    test_masks_of_bytes();
    test_attributes();
    test_small();
    test_weights_of_bytes();
    test_zoo(argc > 1);
    test_zoo_refused();
    return 0;
}
