/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A model of sequences with several lengths answers a query of length n as the same file that is bound to n positions
 *          exactly does, whatever lies behind them, alone and in batches with others, as its own application and beside another
 *          model, and after a restart; outputs are zeros behind n. The completion names the shortest plans that hold it. Models in
 *          which positions meet without a mask are refused by node and operator, and so is what leat or a client says that
 *          cannot be. In int8, ordered or found to be worth it, all lengths are in whole numbers, by the ranges of one set at full
 *          length, and near the answers in f32.
 * Method   leatd and leat as processes and this test as a client; the encoders of leat-zoo in their test size, each bound to
 *          several lengths, and to each of those that are asked.
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/npy.h"
#include "kernels/backend.h"
#include "tests/system/leatd.h"
#include "tests/tools/command.h"
#include "tests/tools/zoo_file.h"

enum { FULL = 32, VOCABULARY = 200, QUERIES = 48, SAMPLES = 64 };

static const uint32_t lengths[] = {1, 5, 8, 9, 16, 17, 31, 32}; /* that are asked; plans are for 8, 16 and 32 */
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

static struct leatd leatd;
static struct command command;
static struct leat_session *session;
static uint64_t random_state;
static bool has_int8;

#define LEAT(exit_code, text, ...)                                          \
    command_expect(&command, leatd.socket_path, exit_code, text, (const char *const[]){__VA_ARGS__, NULL})

static struct leat_target
find(const char *name)
{
    struct leat_target target;
    if (leat_find(session, name, &target) != LEAT_OK) {
        (void)fprintf(stderr, "%s: %s\n", name, leat_error_text());
        EXPECT(!"found");
    }
    return target;
}

/* ---- Sequences ---------------------------------------------------------------------------------- */

/* Position p of sequence k: a word, its type, or a 1 in the mask but for a few, at random; the first counts always. */
static int64_t
number_of(const char *tensor, uint32_t k, uint32_t p)
{
    uint64_t seed = ((uint64_t)k << 32) + 7919 * p + (unsigned char)tensor[0] + leat_test_seed;
    const uint64_t number = leat_test_random(&seed);
    if (strcmp(tensor, "attention_mask") == 0) {
        return p == 0 || number % 8 != 0;
    }
    return (int64_t)(number % (strcmp(tensor, "token_type_ids") == 0 ? 2 : VOCABULARY));
}

/* An item of `positions` positions, of which `length` are sequence k; anything behind them. */
static void
fill(int64_t *to, const char *tensor, uint32_t k, uint32_t length, uint32_t positions)
{
    for (uint32_t p = 0; p < positions; p++) {
        to[p] = p < length ? number_of(tensor, k, p) : (int64_t)leat_test_random(&random_state);
    }
}

/* What `name`, bound to exactly `length`, answers to sequence k: the outputs one after the other, the caller's. */
static float *
exact_answer(const struct leat_target *target, uint32_t k, uint32_t length)
{
    struct leat_completion done;
    const void *inputs[LEAT_TENSORS_MAX];
    void *outputs[LEAT_TENSORS_MAX];
    int64_t numbers[3][FULL];
    float *answer = calloc(2 * FULL, 64 * sizeof(float)), *at = answer;

    EXPECT(target->length_max == 0 && target->length_count == 0 && target->input_count <= 3 && answer != NULL);
    for (uint32_t t = 0; t < target->input_count; t++) {
        EXPECT(target->tensors[t].item_bytes == length * sizeof(int64_t));
        fill(numbers[t], target->tensors[t].name, k, length, length);
        inputs[t] = numbers[t];
    }
    for (uint32_t o = 0; o < target->output_count; o++) {
        outputs[o] = at;
        at += target->tensors[target->input_count + o].item_bytes / sizeof(float);
    }
    EXPECT(at - answer <= 2 * FULL * 64);
    EXPECT(leat_call(session, target, 1, inputs, outputs, 0, &done) == LEAT_OK && done.outcome == LEAT_OUTCOME_OK);
    return answer;
}

/* ---- Queries of any length ---------------------------------------------------------------------- */

static struct query {
    struct leat_query query;
    uint32_t k, which; /* of lengths[] */
} queries[QUERIES];

static void
prepare(const struct leat_target *target, struct query *query, uint32_t k, uint32_t which)
{
    query->k = k;
    query->which = which;
    query->query.length = lengths[which];
    for (uint32_t t = 0; t < target->input_count; t++) {
        fill(query->query.tensors[t], target->tensors[t].name, k, lengths[which], FULL);
    }
    for (uint32_t t = target->input_count; t < target->input_count + target->output_count; t++) {
        memset(query->query.tensors[t], 0xff, target->tensors[t].item_bytes);
    }
}

/* How far an answer may be from the exact one, of its largest element: in f32, and in int8, which is never as near as that. */
static const float f32_apart = 1e-4f, int8_apart = 0.2f;

/*
 * Against the exact answer; where an output has positions, those behind the length are zeros. Returns how far they are apart, of
 * the largest element.
 */
static float
expect_answer(const struct leat_target *target, const struct query *query, const float *exact, float apart)
{
    float furthest = 0;

    for (uint32_t t = target->input_count; t < target->input_count + target->output_count; t++) {
        const float *got = query->query.tensors[t];
        const uint32_t count = (uint32_t)(target->tensors[t].item_bytes / sizeof(float));
        const uint32_t length = query->query.length > 0 ? query->query.length : FULL;
        const uint32_t valid = target->length_axes[t] == 1 ? count / FULL * length : count;
        float most = 0;
        for (uint32_t e = 0; e < valid; e++) {
            most = fmaxf(most, fabsf(exact[e]));
        }
        for (uint32_t e = 0; e < count; e++) {
            const float wanted = e < valid ? exact[e] : 0;
            furthest = fmaxf(furthest, fabsf(got[e] - wanted) / most);
            if (!(fabsf(got[e] - wanted) <= (e < valid ? apart * most : 0))) {
                (void)fprintf(stderr, "output %u[%u] of sequence %u, %u long: %g, not %g\n", t, e, query->k,
                              query->query.length, (double)got[e], (double)wanted);
                EXPECT(!"the answer of the exact model");
            }
        }
        exact += valid;
    }
    return furthest;
}

/* The name of the variant that answered. */
static void
expect_variant(const char *application, uint32_t variant, const char *wanted)
{
    json_t *status = leatd_request(session, "{\"op\":\"status\"}"), *app;
    size_t a;

    json_array_foreach(json_object_get(status, "applications"), a, app) {
        if (strcmp(json_string_value(json_object_get(app, "name")), application) == 0) {
            const char *name = json_string_value(json_array_get(json_object_get(app, "models"), variant));
            EXPECT(name != NULL && strcmp(name, wanted) == 0);
            EXPECT(json_array_size(json_object_get(app, "models")) == json_array_size(json_object_get(app, "instances")));
        }
    }
    json_decref(status);
}

/*
 * All lengths, one query after the other and all at once, three sequences of each, by variants of the model `variant`; `models`:
 * what the names of the exact ones begin with.
 */
static void
expect_served(const char *name, const char *variant, const char *models, float apart)
{
    const struct leat_target target = find(name);
    struct leat_completion done[QUERIES];
    float *exact[LENGTHS][QUERIES];
    struct leat_query batch[QUERIES];
    char text[64];

    EXPECT(target.length_max == FULL && target.length_count == 3);
    EXPECT(target.lengths[0] == 8 && target.lengths[1] == 16 && target.lengths[2] == FULL);
    for (uint32_t t = 0; t < target.input_count; t++) {
        EXPECT(target.length_axes[t] == 1 && target.tensors[t].dims[1] == FULL);
    }
    for (uint32_t q = 0; q < QUERIES; q++) {
        queries[q].query = (struct leat_query)LEAT_QUERY_INIT;
        queries[q].query.target = target.id;
        queries[q].query.user_data = q;
        for (uint32_t t = 0; t < target.input_count + target.output_count; t++) {
            EXPECT(leat_tensor_alloc(session, target.tensors[t].item_bytes, &queries[q].query.tensors[t]) == LEAT_OK);
        }
    }
    for (uint32_t l = 0; l < LENGTHS; l++) {
        (void)snprintf(text, sizeof(text), "%s-%u", models, lengths[l]);
        const struct leat_target bound = find(text);
        for (uint32_t k = 0; k < 3; k++) {
            exact[l][k] = exact_answer(&bound, k, lengths[l]);
            prepare(&target, &queries[0], k, l);
            EXPECT(leat_run(session, &queries[0].query, done) == LEAT_OK && done[0].outcome == LEAT_OUTCOME_OK);
            const float furthest = expect_answer(&target, &queries[0], exact[l][k], apart);
            EXPECT(apart == f32_apart || furthest > f32_apart);
        }
        (void)snprintf(text, sizeof(text), lengths[l] <= 8 ? "%s@8" : lengths[l] <= 16 ? "%s@16" : "%s", variant);
        expect_variant(name, done[0].variant, text);
    }
    for (uint32_t round = 0; round < LEAT_TEST_ROUNDS(8); round++) {
        size_t submitted, count;
        for (uint32_t q = 0; q < QUERIES; q++) {
            prepare(&target, &queries[q], (uint32_t)(leat_test_random(&random_state) % 3),
                    (uint32_t)(leat_test_random(&random_state) % LENGTHS));
            queries[q].query.length *= queries[q].which + 1 < LENGTHS || q % 2 == 0; /* none said is the longest */
            batch[q] = queries[q].query;
        }
        EXPECT(leat_submit_batch(session, batch, QUERIES, &submitted) == LEAT_OK && submitted == QUERIES);
        for (uint32_t left = QUERIES; left > 0; left -= (uint32_t)count) {
            EXPECT(leat_wait(session, done, QUERIES, UINT64_MAX, &count) == LEAT_OK);
            for (size_t i = 0; i < count; i++) {
                const struct query *query = &queries[done[i].user_data];
                EXPECT(done[i].outcome == LEAT_OUTCOME_OK);
                (void)expect_answer(&target, query, exact[query->which][query->k], apart);
            }
        }
    }
    queries[0].query.length = FULL + 1;
    EXPECT(leat_submit(session, &queries[0].query, NULL) == LEAT_ERR_INVALID);
    EXPECT(strstr(leat_error_text(), "1 to 32 positions") != NULL);
    for (uint32_t q = 0; q < QUERIES; q++) {
        for (uint32_t t = 0; t < target.input_count + target.output_count; t++) {
            leat_tensor_free(session, queries[q].query.tensors[t]);
        }
    }
    for (uint32_t l = 0; l < LENGTHS; l++) {
        for (uint32_t k = 0; k < 3; k++) {
            free(exact[l][k]);
        }
    }
}

/* ---- What leat says ------------------------------------------------------------------------------ */

static void
add_exact(const char *model, const char *path)
{
    char name[64], dim[64];

    for (uint32_t l = 0; l < LENGTHS; l++) {
        (void)snprintf(name, sizeof(name), "%s-%u", model, lengths[l]);
        (void)snprintf(dim, sizeof(dim), "sequence=%u", lengths[l]);
        LEAT(0, name, "model", "add", name, path, "--dim", dim, "--items-max", "1");
    }
}

static void
test_refusals(const char *bert, const char *gru, const char *conformer)
{
    LEAT(3, "(operator Gather)", "model", "add", "gru", gru, "--dim", "sequence=4,8");
    LEAT(3, "padding could change its result", "model", "add", "gru", gru, "--dim", "sequence=4,8", "--backend", "reference");
    LEAT(3, "depends on the length of the sequence", "model", "add", "conformer", conformer, "--dim", "frames=32,64");
    LEAT(3, "the longest last", "model", "add", "bad", bert, "--dim", "sequence=16,8");
    LEAT(3, "the longest last", "model", "add", "bad", bert, "--dim", "sequence=8,8");
    LEAT(3, "2 to 8 of them", "model", "add", "bad", bert, "--dim", "sequence=1,2,3,4,5,6,7,8,9");
    LEAT(3, "1 to 32767", "model", "add", "bad", bert, "--dim", "sequence=8,32768");
    LEAT(3, "node ", "model", "add", "bad", bert, "--dim", "sequence=8,33"); /* it has 32 positions */
    LEAT(3, "beside the batch, free is 'sequence'", "model", "add", "bad", bert, "--dim", "frames=4,8");
    static const char *const malformed[] = {"sequence=8,", "sequence=,8", "sequence=8,,16", "sequence=8,0", "sequence=8,x"};
    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++) {
        LEAT(2, "is malformed", "model", "add", "bad", bert, "--dim", malformed[i]);
    }
    LEAT(0, "", "model", "list", "--json");
    EXPECT(strstr(command.out, "gru") == NULL && strstr(command.out, "conformer") == NULL && strstr(command.out, "bad") == NULL);
}

static void
test_shown(void)
{
    LEAT(0, "dimensions sequence=8,16,32\n", "model", "show", "bert");
    LEAT(0, "\nbert@16: sequences of up to 16\n", "model", "show", "bert");
    LEAT(0, "shorter", "model", "show", "bert", "--json");
    json_t *shown = json_loads(command.out, 0, NULL);
    const json_t *shorter = json_object_get(shown, "shorter");
    EXPECT(json_array_size(shorter) == 2);
    for (size_t s = 0; s < 2; s++) {
        const json_t *one = json_array_get(shorter, s);
        EXPECT(leatd_number(one, "length") == (s == 0 ? 8 : 16));
        EXPECT(strcmp(json_string_value(json_object_get(one, "name")), s == 0 ? "bert@8" : "bert@16") == 0);
        const json_t *points = json_object_get(json_array_get(json_object_get(one, "classes"), 0), "points");
        EXPECT(json_array_size(points) == 2 && leatd_number(json_array_get(points, 0), "p50_ns") > 0);
    }
    json_decref(shown);
    LEAT(0, "bert@8", "run", "bert", "--length", "3");
    LEAT(0, "variant 'bert'", "run", "bert");
    LEAT(1, "1 to 32 positions", "run", "bert", "--length", "33");
    LEAT(1, "no model here has sequences", "run", "bert-5", "--length", "1");
    LEAT(2, "", "run", "bert", "--length", "0");
}

/* For calibration, at full length: an array for each input, by their names. */
static const char *
write_set(void)
{
    static const char *const tensors[] = {"input_ids", "attention_mask", "token_type_ids"};
    static char set[1024];
    char path[256];
    size_t used = 0;

    for (size_t t = 0; t < sizeof(tensors) / sizeof(tensors[0]); t++) {
        struct npy_array array = {.dtype = LEAT_DTYPE_I64, .rank = 2, .dims = {SAMPLES, FULL}, .elements = SAMPLES * FULL};
        int64_t *numbers = array.data = calloc(array.elements, sizeof(*numbers));
        EXPECT(numbers != NULL);
        for (uint32_t k = 0; k < SAMPLES; k++) {
            fill(numbers + k * FULL, tensors[t], k, FULL, FULL);
        }
        (void)snprintf(path, sizeof(path), "%s/%s.npy", leatd.root.path, tensors[t]);
        EXPECT(npy_write(path, &array) == LEAT_OK);
        npy_free(&array);
        used += (size_t)snprintf(set + used, sizeof(set) - used, "%s%s=%s", t > 0 ? "," : "", tensors[t], path);
        EXPECT(used < sizeof(set));
    }
    return set;
}

/* Ordered by itself, and where leat looks what precisions are worth it: then it is tried, and kept or left out. */
static void
add_int8(const char *bert)
{
    const char *set = write_set();

    LEAT(0, "agree with f32", "model", "add", "whole", bert, "--dim", "sequence=8,16,32", "--precision", "int8", "--validation",
         set, "--max-loss", "1", "--items-max", "4");
    LEAT(0, "\nwhole@16: sequences of up to 16\n", "model", "show", "whole");
    LEAT(0, "-int8", "model", "add", "tried", bert, "--dim", "sequence=8,16,32", "--variants", "--validation", set, "--max-loss",
         "1");
    LEAT(0, "removed tried", "model", "remove", "tried");
}

/* One application of two models, decided with regard to lengths, or without any. */
static void
test_applications(void)
{
    LEAT(0, "texts", "app", "add", "texts", "--models", "bert,plain", "--selector", "fixed");
    LEAT(0, "alike", "app", "add", "alike", "--models", "bert", "--latency", "1s", "--late", "serve", "--selector", "jellyfish");
    LEAT(3, "differ in inputs, outputs or lengths", "app", "add", "other", "--models", "bert,bert-32");
    LEAT(0, "\nplain@8: sequences of up to 8\n", "app", "show", "texts");
    expect_served("texts", "bert", "bert", f32_apart);
    expect_served("alike", "bert", "bert", f32_apart);
}

static void
expect_all(void)
{
    session = leatd_open_session(&leatd, 64, 4 << 20);
    expect_served("bert", "bert", "bert", f32_apart);
    expect_served("distil", "distil", "distil", f32_apart);
    expect_served("plain", "plain", "bert", f32_apart);
    if (has_int8) {
        expect_served("whole", "whole", "bert", int8_apart);
    }
    leat_close(session);
}

int
main(void)
{
    char yaml[1024];

    leat_test_init();
    random_state = leat_test_seed;
    has_int8 = (leat_backend_precisions(&leat_backend_cpu) & LEAT_PRECISION_BIT(LEAT_PRECISION_INT8)) != 0;
    leatd_init(&leatd);
    char *bert = zoo_file(leatd.root.path, "bert-tiny"), *distil = zoo_file(leatd.root.path, "distilbert"), *gru = zoo_file(leatd.root.path, "gru-classifier"),
         *conformer = zoo_file(leatd.root.path, "conformer-ctc-small");
    leatd_start(&leatd, "");
    test_refusals(bert, gru, conformer);
    LEAT(0, "added bert", "model", "add", "bert", bert, "--dim", "sequence=8,16,32", "--items-max", "4");
    LEAT(0, "added plain", "model", "add", "plain", bert, "--dim", "sequence=8,16,32", "--backend", "reference");
    LEAT(0, "added distil", "model", "add", "distil", distil, "--dim", "sequence=8,16,32");
    if (has_int8) {
        add_int8(bert);
    }
    add_exact("bert", bert);
    add_exact("distil", distil);
    test_shown();
    session = leatd_open_session(&leatd, 64, 4 << 20);
    test_applications();
    leat_close(session);
    expect_all();
    for (int round = 0; round < 2; round++) {
        leatd_end(&leatd, round == 0 ? SIGKILL : SIGTERM);
        (void)snprintf(yaml, sizeof(yaml), "models: [{name: fixed, path: %s, dims: [\"sequence=8,16,32\"]}]\n", bert);
        leatd_start(&leatd, round == 0 ? "" : yaml);
        EXPECT(!leatd_logged(&leatd, "will be measured again"));
        expect_all();
        test_shown();
    }
    session = leatd_open_session(&leatd, 64, 4 << 20);
    leat_close(session);
    LEAT(0, "fixed@16", "run", "fixed", "--length", "9");
    LEAT(3, "is served by", "model", "remove", "bert");
    LEAT(0, "removed", "app", "remove", "texts");
    LEAT(0, "removed", "app", "remove", "alike");
    LEAT(0, "removed bert", "model", "remove", "bert");
    leatd_end(&leatd, SIGTERM);
    leatd_fini(&leatd);
    free(bert);
    free(distil);
    free(gru);
    free(conformer);
    return 0;
}
