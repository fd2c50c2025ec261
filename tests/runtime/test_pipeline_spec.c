/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A description of a pipeline becomes what the dispatcher runs, or an error that names place and way out;
 *          memory is shared between tensors only where no order of events has them alive at once.
 * Method   Each error once, by a description that has just that mistake. What is accepted is looked at field by field.
 *          Random graphs are played in random orders, each stage painting what it makes and looking at what it reads.
 */
#include "tests/runtime/pipeline_house.h"

#include "tests/leat_test.h"

static json_t *
parse(const char *text)
{
    json_error_t error;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (object == NULL) {
        (void)fprintf(stderr, "%s\n%s\n", error.text, text);
    }
    EXPECT(object != NULL);
    return object;
}

static enum leat_status
make(const char *text, struct leat_pipeline **ret_pipeline)
{
    struct leat_pipeline_spec spec;
    json_t *object = parse(text);

    enum leat_status status = leat_pipeline_spec_read(object, &spec);
    if (status == LEAT_OK) {
        status = leat_pipeline_bind(&spec, &house, ret_pipeline);
    }
    json_decref(object);
    return status;
}

static struct leat_pipeline *
make_good(const char *text)
{
    struct leat_pipeline *pipeline = NULL;
    if (make(text, &pipeline) != LEAT_OK) {
        (void)fprintf(stderr, "%s\n%s\n", text, leat_error_text());
        EXPECT(!"the description is good");
    }
    return pipeline;
}

/* ---- Errors ----------------------------------------------------------------------------------- */

#define MAP(name, source) "{\"name\":\"" name "\",\"application\":\"map\",\"inputs\":{\"x\":\"" source "\"}}"
#define DETECT            "{\"application\":\"detect\",\"inputs\":{\"images\":\"input.image\"}}"
#define EACH(application) \
    "{\"name\":\"c\",\"application\":\"" application "\",\"each\":\"detect.crops\",\"inputs\":{\"x\":\"detect.crops\"}}"
#define OF(stages, outputs) "{\"stages\":[" stages "],\"outputs\":{" outputs "}}"

static const struct {
    const char *text;
    enum leat_status status;
    const char *says;
} wrong[] = {
    /* The object and its members. */
    {"[]", LEAT_ERR_INVALID, "described by a JSON object"},
    {"3", LEAT_ERR_INVALID, "described by a JSON object"},
    {"{}", LEAT_ERR_INVALID, "'stages' must be a list"},
    {"{\"stage\":1}", LEAT_ERR_INVALID, "no member 'stage': there are name, latency_ms"},
    {"{\"name\":\"-x\"}", LEAT_ERR_INVALID, "a pipeline's 'name'"},
    {"{\"name\":7}", LEAT_ERR_INVALID, "a pipeline's 'name'"},
    {"{\"name\":\"\"}", LEAT_ERR_INVALID, "a pipeline's 'name'"},
    {"{\"name\":\"0123456789012345678901234567890123456789012345678901234567890123\"}", LEAT_ERR_INVALID, "1 to 63"},
    {"{\"latency_ms\":0}", LEAT_ERR_INVALID, "'latency_ms' must be"},
    {"{\"latency_ms\":-1}", LEAT_ERR_INVALID, "'latency_ms' must be"},
    {"{\"latency_ms\":1e300}", LEAT_ERR_INVALID, "'latency_ms' must be"},
    {"{\"latency_ms\":\"5\"}", LEAT_ERR_INVALID, "'latency_ms' must be"},
    {"{\"late\":\"never\"}", LEAT_ERR_INVALID, "\"drop_thrice\""},
    {"{\"late\":true}", LEAT_ERR_INVALID, "\"drop_thrice\""},
    {"{\"in_flight\":0}", LEAT_ERR_INVALID, "'in_flight' must be a whole number from 1 to 1024"},
    {"{\"in_flight\":1025}", LEAT_ERR_INVALID, "'in_flight'"},
    {"{\"in_flight\":1.5}", LEAT_ERR_INVALID, "'in_flight'"},
    {"{\"items_max\":1025}", LEAT_ERR_INVALID, "'items_max' must be a whole number from 1 to 1024"},
    {"{\"stages\":{}}", LEAT_ERR_INVALID, "'stages' must be a list"},
    {"{\"stages\":[]}", LEAT_ERR_INVALID, "'stages' must be a list"},
    {"{\"stages\":[1,2,3,4,5,6,7,8,9]}", LEAT_ERR_LIMIT, "9 stages: a pipeline has 8 at most"},
    /* Stages and their names. */
    {"{\"stages\":[1]}", LEAT_ERR_INVALID, "stages[0] must be an object"},
    {"{\"stages\":[{\"app\":\"map\"}]}", LEAT_ERR_INVALID, "stages[0] has no member 'app'"},
    {"{\"stages\":[{}]}", LEAT_ERR_INVALID, "stages[0]: 'application' must be"},
    {"{\"stages\":[{\"application\":\"a b\"}]}", LEAT_ERR_INVALID, "stages[0]: 'application' must be"},
    {"{\"stages\":[{\"application\":\"resnet.v1\"}]}", LEAT_ERR_INVALID, "give it a 'name'"},
    {"{\"stages\":[{\"application\":\"input\"}]}", LEAT_ERR_INVALID, "is not \"input\""},
    {"{\"stages\":[{\"application\":\"map\",\"name\":1}]}", LEAT_ERR_INVALID, "stages[0]: the name of a stage"},
    {"{\"stages\":[{\"application\":\"map\"},{\"application\":\"map\"}]}", LEAT_ERR_INVALID, "a stage 'map' already"},
    /* Edges. */
    {"{\"stages\":[{\"application\":\"map\"}]}", LEAT_ERR_INVALID, "stage 'map': inputs must be an object"},
    {"{\"stages\":[{\"application\":\"map\",\"inputs\":[]}]}", LEAT_ERR_INVALID, "stage 'map': inputs must be an object"},
    {"{\"stages\":[{\"application\":\"map\",\"inputs\":{\"x\":1}}]}", LEAT_ERR_INVALID,
     "inputs.x must be \"STAGE.OUTPUT\""},
    {"{\"stages\":[{\"application\":\"map\",\"inputs\":{\"x\":\"input\"}}]}", LEAT_ERR_INVALID, "not 'input'"},
    {"{\"stages\":[{\"application\":\"map\",\"inputs\":{\"x\":\".y\"}}]}", LEAT_ERR_INVALID, "not '.y'"},
    {"{\"stages\":[{\"application\":\"map\",\"inputs\":{\"x\":\"input.\"}}]}", LEAT_ERR_INVALID, "not 'input.'"},
    {"{\"stages\":[{\"application\":\"map\",\"inputs\":{\"\":\"input.x\"}}]}", LEAT_ERR_INVALID, "names have 1 to 63"},
    {OF(MAP("a", "nobody.y"), "\"y\":\"a.y\""), LEAT_ERR_INVALID,
     "inputs.x: there is no stage 'nobody', but 'a', and 'input'"},
    {OF(MAP("a", "input.x"), "\"y\":\"b.y\""), LEAT_ERR_INVALID, "outputs.y: there is no stage 'b'"},
    {OF(MAP("a", "input.x"), ""), LEAT_ERR_INVALID, "outputs must be an object"},
    {"{\"stages\":[" MAP("a", "input.x") "]}", LEAT_ERR_INVALID, "outputs must be an object"},
    {OF(MAP("a", "input.x"), "\"x\":\"input.x\",\"y\":\"a.y\""), LEAT_ERR_INVALID, "outputs.x: an input is no output"},
    {OF(MAP("a", "input.x") "," MAP("b", "input.x"), "\"y\":\"a.y\""), LEAT_ERR_INVALID,
     "nobody reads what stage 'b' makes"},
    {OF(MAP("a", "a.y"), "\"y\":\"a.y\""), LEAT_ERR_INVALID, "in a circle: 'a' of 'a'"},
    {OF(MAP("z", "input.x") "," MAP("a", "b.y") "," MAP("b", "c.y") "," MAP("c", "b.y"), "\"y\":\"a.y\",\"z\":\"z.y\""),
     LEAT_ERR_INVALID, "of 'b'"},
    {OF("{\"application\":\"map\",\"each\":\"input.x\",\"inputs\":{\"x\":\"input.x\"}}", "\"y\":\"map.y\""),
     LEAT_ERR_INVALID, "'each' must be an output of a stage"},
    {OF("{\"application\":\"map\",\"each\":3,\"inputs\":{\"x\":\"input.x\"}}", "\"y\":\"map.y\""), LEAT_ERR_INVALID,
     "'each' must be"},
    /* Applications. */
    {OF("{\"application\":\"gone\",\"inputs\":{\"x\":\"input.x\"}}", "\"y\":\"gone.y\""), LEAT_ERR_NOT_FOUND,
     "no application or model 'gone': add it first"},
    {OF("{\"application\":\"text\",\"inputs\":{\"x\":\"input.x\"}}", "\"y\":\"text.y\""), LEAT_ERR_UNSUPPORTED,
     "add the model with one length"},
    {OF("{\"application\":\"map\",\"inputs\":{\"z\":\"input.x\"}}", "\"y\":\"map.y\""), LEAT_ERR_INVALID,
     "has no input 'z', but 'x'"},
    {OF("{\"application\":\"join\",\"inputs\":{\"left\":\"input.x\"}}", "\"y\":\"join.sum\""), LEAT_ERR_INVALID,
     "input 'right' of application 'join' has no source"},
    {OF(MAP("a", "input.x"), "\"y\":\"a.x\""), LEAT_ERR_INVALID,
     "outputs.y: application 'map' of stage 'a' has no output 'x', but 'y'"},
    {OF(MAP("a", "input.x") "," MAP("b", "a.z"), "\"y\":\"b.y\""), LEAT_ERR_INVALID,
     "stage 'b': input 'x': application 'map' of stage 'a' has no output 'z'"},
    /* Types. */
    {OF(DETECT ",{\"application\":\"map\",\"inputs\":{\"x\":\"detect.boxes\"}}", "\"y\":\"map.y\""), LEAT_ERR_SHAPE,
     "stage 'map': input 'x' is f32[N,16], but detect.boxes is f32[N,0..16,4]"},
    {OF(MAP("a", "input.x") ",{\"application\":\"bits\",\"inputs\":{\"x\":\"a.y\"}}", "\"y\":\"bits.y\""), LEAT_ERR_SHAPE,
     "is i32[N,16], but a.y is f32[N,16]"},
    {OF(MAP("a", "input.x") ",{\"application\":\"bits\",\"inputs\":{\"x\":\"input.x\"}}", "\"y\":\"bits.y\",\"z\":\"a.y\""),
     LEAT_ERR_SHAPE, "input 'x' is i32[N,16], but another stage reads input.x as f32[N,16]"},
    {OF(DETECT ",{\"application\":\"map\",\"each\":\"detect.scores\",\"inputs\":{\"x\":\"detect.crops\"}}",
        "\"y\":\"map.y\""),
     LEAT_ERR_SHAPE, "but detect.crops is f32[N,0..16,3,32,32], and an element"},
    /* Stages that repeat. */
    {OF(MAP("a", "input.x") ",{\"application\":\"join\",\"each\":\"a.y\",\"inputs\":{\"left\":\"a.y\",\"right\":\"a.y\"}}",
        "\"y\":\"join.sum\""),
     LEAT_ERR_SHAPE, "a.y is f32[N,16], which does not vary in its first dimension behind the items: leave 'each' out"},
    {OF("{\"application\":\"wide\",\"inputs\":{\"x\":\"input.x\"}},{\"application\":\"map\",\"each\":\"wide.y\",\"inputs\":"
        "{\"x\":\"wide.y\"}}",
        "\"y\":\"map.y\""),
     LEAT_ERR_SHAPE, "wide.y is f32[N,2,0..9], which does not vary in its first"},
    {OF(DETECT
        "," EACH("classify") ",{\"name\":\"d\",\"application\":\"map\",\"each\":\"c.prob\",\"inputs\":{\"x\":\"c.prob\"}}",
        "\"y\":\"d.y\""),
     LEAT_ERR_UNSUPPORTED, "stage 'c' repeats itself: give both the same 'each'"},
    {OF(DETECT "," EACH("counts"), "\"y\":\"c.y\""), LEAT_ERR_UNSUPPORTED,
     "is f32[N,0..5,2]: a stage with 'each' may have none"},
    {OF(DETECT "," EACH("deep"), "\"y\":\"c.y\""), LEAT_ERR_LIMIT, "one for each of up to 16"},
    {OF(DETECT "," EACH("classify4"), "\"y\":\"c.prob\""), LEAT_ERR_LIMIT, "add the model with --items-max 8"},
    {OF(DETECT "," EACH("classify") ",{\"application\":\"join\",\"inputs\":{\"left\":\"c.prob\",\"right\":\"c.prob\"}}",
        "\"y\":\"join.sum\""),
     LEAT_ERR_SHAPE, "give the stage the same 'each', or make that an output"},
    {OF(DETECT ",{\"name\":\"c\",\"application\":\"boxes2\",\"each\":\"detect.crops\",\"inputs\":{\"box\":\"detect.boxes\","
               "\"prob\":\"input.prob\"}}",
        "\"y\":\"c.y\""),
     LEAT_ERR_SHAPE, "reads input.prob, but the stage repeats for each of 'crops'"},
    {OF(DETECT "," MAP("m", "input.m") ",{\"name\":\"c\",\"application\":\"boxes2\",\"each\":\"detect.crops\",\"inputs\":{"
                                       "\"box\":\"detect.boxes\",\"prob\":\"m.y\"}}",
        "\"y\":\"c.y\""),
     LEAT_ERR_SHAPE, "reads m.y, which is f32[N,16], and the stage repeats for each of 'crops'"},
    {OF(DETECT "," EACH("classify") ",{\"name\":\"d\",\"application\":\"boxes2\",\"each\":\"detect.scores\",\"inputs\":{"
                                    "\"box\":\"detect.boxes\",\"prob\":\"c.prob\"}}",
        "\"y\":\"d.y\""),
     LEAT_ERR_SHAPE, "reads c.prob, which is f32[N,0..16,10], and the stage repeats for each of 'scores'"},
    /* Too much. */
    {OF(MAP("a", "input.x"), "\"y\":\"a.y\",\"z\":\"a.y\""), LEAT_ERR_INVALID, "outputs.z: a.y is output 'y' already"},
    {OF(MAP("a", "input.x"), "\"stage_ns\":\"a.y\""), LEAT_ERR_INVALID, "choose another"},
    {"{\"items_max\":5,\"stages\":[" MAP("a", "input.x") "],\"outputs\":{\"y\":\"a.y\"}}", LEAT_ERR_LIMIT,
     "'items_max' may be 4 at most: stage 'a' takes no more"},
    {"{\"items_max\":2,\"stages\":[{\"application\":\"find\",\"inputs\":{\"x\":\"input.x\"}},{\"name\":\"c\","
     "\"application\":\"join\","
     "\"each\":\"find.found\",\"inputs\":{\"left\":\"find.found\",\"right\":\"find.found\"}}],\"outputs\":{\"y\":\"c.sum\"}"
     "}",
     LEAT_ERR_LIMIT, "6 times 'rest' of stage 'c' is no multiple of 64 bytes"},
    {"{\"items_max\":3,\"stages\":[{\"application\":\"find\",\"inputs\":{\"x\":\"input.x\"}},{\"name\":\"c\","
     "\"application\":\"map\","
     "\"each\":\"find.found\",\"inputs\":{\"x\":\"find.found\"}}],\"outputs\":{\"y\":\"c.y\",\"found\":\"find.found\"}}",
     LEAT_ERR_LIMIT, "an answer tells 4 sizes, and 2 outputs vary"},
    {"{\"in_flight\":1024,\"stages\":[" DETECT "," EACH("classify") "],\"outputs\":{\"y\":\"c.prob\"}}", LEAT_ERR_LIMIT,
     "1024 times, and limits.pipeline_memory is 67108864"},
};

static void
test_errors(void)
{
    for (size_t w = 0; w < LEAT_COUNT_OF(wrong); w++) {
        struct leat_pipeline *pipeline = NULL;
        const enum leat_status status = make(wrong[w].text, &pipeline);
        if (status != wrong[w].status || strstr(leat_error_text(), wrong[w].says) == NULL) {
            (void)fprintf(stderr, "%s\ngot %d: %s\nnot %d: %s\n", wrong[w].text, (int)status,
                          status == LEAT_OK ? "" : leat_error_text(), (int)wrong[w].status, wrong[w].says);
            EXPECT(!"the error says what is wrong");
        }
        EXPECT(pipeline == NULL);
    }
}

/* Stages `a` and, if it has inputs, `b`, which have so many each, all of the pipeline's own; so many outputs of `a` and one of `b` are its. */
static enum leat_status
make_many(const char *application, uint32_t a_inputs, uint32_t b_inputs, uint32_t outputs, struct leat_pipeline **ret_pipeline)
{
    char text[8192];
    size_t used = 0;

#define PUT(...) used += (size_t)snprintf(text + used, sizeof(text) - used, __VA_ARGS__)
    PUT("{\"stages\":[");
    for (uint32_t s = 0; s < (b_inputs > 0 ? 2 : 1); s++) {
        PUT("%s{\"name\":\"%c\",\"application\":\"%s\",\"inputs\":{", s > 0 ? "," : "", "ab"[s], application);
        for (uint32_t i = 0; i < (s > 0 ? b_inputs : a_inputs); i++) {
            PUT("%s\"i%u\":\"input.%c%u\"", i > 0 ? "," : "", i, "ab"[s], i);
        }
        PUT("}}");
    }
    PUT("],\"outputs\":{");
    for (uint32_t o = 0; o < outputs; o++) {
        PUT("%s\"o%u\":\"a.y%u\"", o > 0 ? "," : "", o, o);
    }
    PUT("%s}}", b_inputs > 0 ? ",\"last\":\"b.y0\"" : "");
#undef PUT
    EXPECT(used < sizeof(text));
    return make(text, ret_pipeline);
}

static void
test_many_tensors(void)
{
    enum { INPUTS = HOUSE_MANY_INPUTS, OUTPUTS = LEAT_TENSORS_MAX - INPUTS };
    struct leat_pipeline *pipeline = NULL;
    char says[128];

    EXPECT(make_many("many", INPUTS, 0, OUTPUTS - 1, &pipeline) == LEAT_OK);
    EXPECT(pipeline->target.input_count == INPUTS && pipeline->target.output_count == OUTPUTS);
    EXPECT(pipeline->stages[0].tensors[INPUTS + 1].index == INPUTS + 1 && pipeline->workspace_bytes > 0);
    free(pipeline);
    pipeline = NULL;
    EXPECT(make_many("many", INPUTS, 0, OUTPUTS, &pipeline) == LEAT_ERR_LIMIT);
    (void)snprintf(says, sizeof(says), "%d inputs and %d outputs, and 'stage_ns': a query has %d tensors at most", INPUTS, OUTPUTS,
                   LEAT_TENSORS_MAX);
    EXPECT(strstr(leat_error_text(), says) != NULL);
    EXPECT(make_many("many", INPUTS, INPUTS, 1, &pipeline) == LEAT_ERR_LIMIT);
    (void)snprintf(says, sizeof(says), "input.b%d is one input too many", LEAT_TENSORS_MAX - INPUTS);
    EXPECT(strstr(leat_error_text(), says) != NULL);
    EXPECT(make_many("map", LEAT_TENSORS_MAX + 1, 0, 1, &pipeline) == LEAT_ERR_LIMIT);
    (void)snprintf(says, sizeof(says), "more than %d tensors", LEAT_TENSORS_MAX);
    EXPECT(strstr(leat_error_text(), says) != NULL);
}

/* One tensor alone is larger than all of the memory. */
static void
test_memory(void)
{
    struct leat_pipeline_house small = house;
    struct leat_pipeline_spec spec;
    struct leat_pipeline *pipeline;
    json_t *object = parse(OF(DETECT "," EACH("classify"), "\"y\":\"c.prob\""));

    EXPECT(leat_pipeline_spec_read(object, &spec) == LEAT_OK);
    small.memory_bytes = 16 * 3 * 32 * 32 * 4 - 64;
    EXPECT(leat_pipeline_bind(&spec, &small, &pipeline) == LEAT_ERR_LIMIT);
    EXPECT(strstr(leat_error_text(), "detect.crops is f32[N,0..16,3,32,32]: for 1 items it takes more than") != NULL);
    small.memory_bytes = 16 * 3 * 32 * 32 * 4 + 1024; /* boxes and scores are not read, but made */
    EXPECT(leat_pipeline_bind(&spec, &small, &pipeline) == LEAT_OK);
    EXPECT(pipeline->runs_max == 1 && pipeline->workspace_bytes == 16 * 3 * 32 * 32 * 4 + 256 + 64);
    free(pipeline);
    small.memory_bytes *= 1000;
    EXPECT(leat_pipeline_bind(&spec, &small, &pipeline) == LEAT_OK && pipeline->runs_max == LEAT_PIPELINE_RUNS_DEFAULT);
    free(pipeline);
    small.memory_bytes /= 10; /* a quarter of it */
    EXPECT(leat_pipeline_bind(&spec, &small, &pipeline) == LEAT_OK);
    EXPECT(pipeline->runs_max == small.memory_bytes / 4 / pipeline->workspace_bytes && pipeline->runs_max > 1);
    free(pipeline);
    json_decref(object);
}

/* ---- What is accepted ------------------------------------------------------------------------- */

static bool
lies(struct leat_pipeline_tensor tensor, enum leat_pipeline_place place, uint32_t index)
{
    return tensor.place == place && tensor.index == index;
}

static void
test_linear(void)
{
    /* Given the wrong way round. */
    struct leat_pipeline *p =
        make_good("{\"name\":\"two\",\"latency_ms\":1.5,\"late\":\"drop_thrice\",\"in_flight\":7,\"stages\":["
                  "{\"name\":\"second\",\"application\":\"map\",\"inputs\":{\"x\":\"map.y\"}},"
                  "{\"application\":\"map\",\"inputs\":{\"x\":\"input.in\"}}],\"outputs\":{\"out\":\"second.y\"}}");

    EXPECT(strcmp(p->name, "two") == 0 && p->latency_ns == 1500000 && p->late == LEAT_PIPELINE_DROP_THRICE &&
           p->runs_max == 7);
    EXPECT(p->stage_count == 2 && strcmp(p->stages[0].name, "map") == 0 && strcmp(p->stages[1].name, "second") == 0);
    EXPECT(p->stages[0].after == 0 && p->stages[1].after == 1 && p->stages[1].application == 4);
    EXPECT(p->stages[0].each_stage == UINT32_MAX && p->stages[1].item_bytes[0] == 64 && p->stages[1].item_bytes[1] == 64);
    EXPECT(lies(p->stages[0].tensors[0], LEAT_PIPELINE_CLIENT, 0) &&
           lies(p->stages[0].tensors[1], LEAT_PIPELINE_WORKSPACE, 0));
    EXPECT(lies(p->stages[1].tensors[0], LEAT_PIPELINE_WORKSPACE, 0) &&
           lies(p->stages[1].tensors[1], LEAT_PIPELINE_CLIENT, 1));
    EXPECT(p->target.items_max == 4 && p->workspace_bytes == 4 * 64 && p->size_count == 0);
    EXPECT(p->target.input_count == 1 && p->target.output_count == 2);
    EXPECT(strcmp(p->target.tensors[0].name, "in") == 0 && strcmp(p->target.tensors[1].name, "out") == 0);
    const struct leat_tensor_info *times = &p->target.tensors[2];
    EXPECT(strcmp(times->name, "stage_ns") == 0 && times->dtype == LEAT_DTYPE_U64 && times->rank == 3 &&
           times->item_bytes == 32);
    EXPECT(times->dims[0] == -1 && times->dims[1] == 2 && times->dims[2] == 2 && times->varying == 0);
    free(p);
}

/* A stage alone has nothing between, and one that is an output is read where the client has it. */
static void
test_outputs(void)
{
    struct leat_pipeline *p = make_good(OF(MAP("a", "input.x"), "\"y\":\"a.y\""));
    EXPECT(p->workspace_bytes == 0 && p->runs_max == LEAT_PIPELINE_RUNS_DEFAULT && p->name[0] == '\0' &&
           p->latency_ns == 0);
    free(p);
    p = make_good("{\"items_max\":3,\"stages\":[" MAP("a", "input.x") "," MAP(
        "b", "a.y") "],\"outputs\":{\"z\":\"b.y\",\"y\":\"a.y\"}}");
    EXPECT(p->workspace_bytes == 0 && p->target.items_max == 3 && lies(p->stages[1].tensors[0], LEAT_PIPELINE_CLIENT, 2));
    EXPECT(lies(p->stages[1].tensors[1], LEAT_PIPELINE_CLIENT, 1));
    free(p);
    p = make_good(OF(DETECT ",{\"application\":\"whole\",\"inputs\":{\"x\":\"detect.boxes\"}}",
                     "\"y\":\"whole.y\",\"s\":\"detect.scores\""));
    EXPECT(p->size_count == 1 && p->size_of[0] == 0 && p->size_at[0] == 1 && p->stages[0].size_count == 3); /* read whole */
    free(p);
    p = make_good(OF("{\"application\":\"wide\",\"inputs\":{\"x\":\"input.x\"}}", "\"y\":\"wide.y\""));
    EXPECT(p->size_count == 1 && p->size_of[0] == 0 && p->size_at[0] == 0 && p->target.tensors[1].varying == 2);
    free(p);
}

static void
test_each(void)
{
    struct leat_pipeline *p = make_good(
        OF(DETECT
           "," EACH("classify") ",{\"name\":\"d\",\"application\":\"boxes2\",\"each\":\"detect.crops\",\"inputs\":{\"box\":"
                                "\"detect.boxes\",\"prob\":\"c.prob\"}}",
           "\"boxes\":\"detect.boxes\",\"labels\":\"c.prob\",\"y\":\"d.y\""));
    const struct leat_pipeline_stage *c = &p->stages[1], *d = &p->stages[2];

    EXPECT(p->target.items_max == 1 && c->after == 1 && d->after == 3);
    EXPECT(c->each_stage == 0 && c->each_size == 2 && c->each_max == 16 && c->each_items == 8 && c->size_count == 0);
    EXPECT(d->each_stage == 0 && d->each_size == 2 && d->each_max == 16 && d->each_items == 8);
    EXPECT(p->size_count == 3 && p->size_of[0] == 0 && p->size_at[0] == 0);
    EXPECT(p->size_of[1] == 0 && p->size_at[1] == 2 && p->size_of[2] == 0 && p->size_at[2] == 2);
    const struct leat_tensor_info *labels = &p->target.tensors[2];
    EXPECT(labels->rank == 3 && labels->dims[1] == 16 && labels->dims[2] == 10 && labels->varying == 1 &&
           labels->item_bytes == 640);
    EXPECT(lies(d->tensors[0], LEAT_PIPELINE_CLIENT, 1) && lies(d->tensors[1], LEAT_PIPELINE_CLIENT, 2));
    EXPECT(lies(d->tensors[2], LEAT_PIPELINE_CLIENT, 3) && c->tensors[0].place == LEAT_PIPELINE_WORKSPACE);
    free(p);
    /* It repeats for each of the same stage where that is described behind it. */
    p = make_good(OF(EACH("classify") "," DETECT, "\"labels\":\"c.prob\""));
    EXPECT(strcmp(p->stages[1].name, "c") == 0 && p->stages[1].each_stage == 0 && p->stages[1].each_max == 16);
    free(p);
    /* Many items a query where each lies on a multiple of 64, and one for each where they are few. */
    p = make_good("{\"items_max\":2,\"stages\":[{\"application\":\"find\",\"inputs\":{\"x\":\"input.x\"}},{\"name\":\"c\","
                  "\"application\":"
                  "\"map\",\"each\":\"find.found\",\"inputs\":{\"x\":\"find.found\"}}],\"outputs\":{\"y\":\"c.y\"}}");
    EXPECT(p->stages[1].each_items == 1 && p->stages[1].each_max == 6 && p->target.items_max == 2);
    free(p);
    p = make_good(
        OF("{\"application\":\"find\",\"inputs\":{\"x\":\"input.x\"}},{\"name\":\"c\",\"application\":\"join\",\"each\":"
           "\"find.found\",\"inputs\":{\"left\":\"find.found\",\"right\":\"find.found\"}}",
           "\"y\":\"c.sum\""));
    EXPECT(p->target.items_max == 1 && p->stages[1].each_items == 6); /* all at once: no multiple of 64 is needed then */
    free(p);
}

static uint32_t
overlaps(const struct leat_pipeline *p, uint32_t s, uint32_t t)
{
    const struct leat_pipeline_stage *a = &p->stages[s], *b = &p->stages[t];
    const struct leat_pipeline_tensor x = a->tensors[a->input_count], y = b->tensors[b->input_count];
    return x.place == LEAT_PIPELINE_WORKSPACE && y.place == LEAT_PIPELINE_WORKSPACE && x.index == y.index;
}

/* The first and the third of a chain share; branches that run side by side never do. */
static void
test_sharing(void)
{
    struct leat_pipeline *p =
        make_good(OF(MAP("a", "input.x") "," MAP("b", "a.y") "," MAP("c", "b.y") "," MAP("d", "c.y"), "\"y\":\"d.y\""));
    EXPECT(p->workspace_bytes == 2 * 256 && overlaps(p, 0, 2) && !overlaps(p, 0, 1) && !overlaps(p, 1, 2));
    free(p);
    p = make_good(OF(MAP("a", "input.x") "," MAP("b", "a.y") "," MAP(
                         "c", "a.y") ",{\"application\":\"join\",\"inputs\":{\"left\":\"b.y\","
                                     "\"right\":\"c.y\"}}",
                     "\"y\":\"join.rest\""));
    EXPECT(p->stages[3].after == 6 && p->workspace_bytes == 3 * 256); /* join.sum, which nobody reads, where a.y was */
    EXPECT(!overlaps(p, 0, 1) && !overlaps(p, 0, 2) && !overlaps(p, 1, 2) && overlaps(p, 0, 3));
    free(p);
}

/* ---- Random graphs ---------------------------------------------------------------------------- */

struct graph {
    char text[8192];
    size_t used;
    uint32_t stage_count;
    struct {
        bool joins;
        uint32_t sources[2]; /* stages, UINT32_MAX: the input */
    } stages[LEAT_PIPELINE_STAGES_MAX];
};

static void put(struct graph *graph, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void
put(struct graph *graph, const char *format, ...)
{
    __builtin_va_list arguments;
    __builtin_va_start(arguments, format);
    graph->used += (size_t)vsnprintf(graph->text + graph->used, sizeof(graph->text) - graph->used, format, arguments);
    __builtin_va_end(arguments);
    EXPECT(graph->used < sizeof(graph->text));
}

static void
put_source(struct graph *graph, const char *name, uint32_t source)
{
    if (source == UINT32_MAX) {
        put(graph, "\"%s\":\"input.x\"", name);
    } else {
        put(graph, "\"%s\":\"s%u.%s\"", name, source, graph->stages[source].joins ? "sum" : "y");
    }
}

/* Stages read of earlier ones; those that nobody reads are outputs, four of them at the most. */
static bool
draw_graph(struct graph *graph, uint64_t *random)
{
    uint32_t used = 0, outputs = 0;

    *graph = (struct graph){.stage_count = 1 + (uint32_t)(leat_test_random(random) % LEAT_PIPELINE_STAGES_MAX)};
    put(graph, "{\"in_flight\":3,\"stages\":[");
    for (uint32_t s = 0; s < graph->stage_count; s++) {
        graph->stages[s].joins = leat_test_random(random) % 2 == 0;
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t source = (uint32_t)(leat_test_random(random) % (s + 1));
            graph->stages[s].sources[i] = source == s ? UINT32_MAX : source;
            used |= source == s || (i == 1 && !graph->stages[s].joins) ? 0 : 1u << source;
        }
        put(graph, "%s{\"name\":\"s%u\",\"application\":\"%s\",\"inputs\":{", s > 0 ? "," : "", s,
            graph->stages[s].joins ? "join" : "map");
        put_source(graph, graph->stages[s].joins ? "left" : "x", graph->stages[s].sources[0]);
        if (graph->stages[s].joins) {
            put(graph, ",");
            put_source(graph, "right", graph->stages[s].sources[1]);
        }
        put(graph, "}}");
    }
    put(graph, "],\"outputs\":{");
    for (uint32_t s = 0; s < graph->stage_count; s++) {
        if ((used >> s & 1) == 0) {
            put(graph, "%s\"o%u\":\"s%u.%s\"", outputs > 0 ? "," : "", s, s, graph->stages[s].joins ? "sum" : "y");
            outputs++;
        }
    }
    put(graph, "}}");
    return outputs <= 4;
}

/* What is painted where: whose output it is, and which of its. */
struct paint {
    uint32_t client[LEAT_TENSORS_MAX];
    uint32_t units[64 * LEAT_PIPELINE_STAGES_MAX];
};

/* Paints it, or asks whether it still has the paint. */
static bool
brush(const struct leat_pipeline *p, struct paint *paint, uint32_t s, uint32_t tensor, uint32_t colour, bool look)
{
    const struct leat_pipeline_stage *stage = &p->stages[s];
    const struct leat_pipeline_tensor at = stage->tensors[tensor];
    uint32_t *to = at.place == LEAT_PIPELINE_CLIENT ? &paint->client[at.index] : &paint->units[at.index];
    const uint64_t bytes = stage->item_bytes[tensor] * p->target.items_max;
    const uint64_t count = at.place == LEAT_PIPELINE_CLIENT ? 1 : (bytes + LEAT_TENSOR_ALIGN - 1) / LEAT_TENSOR_ALIGN;
    bool same = true;

    EXPECT(at.place == LEAT_PIPELINE_CLIENT || at.index + count <= p->workspace_bytes / LEAT_TENSOR_ALIGN);
    for (uint64_t u = 0; u < count; u++) {
        same = same && to[u] == colour;
        to[u] = look ? to[u] : colour;
    }
    return same;
}

static uint32_t
colour_of(uint32_t stage, uint32_t output)
{
    return 100 + stage * 10 + output;
}

/* Stage s of the graph has another number in the pipeline? It has not: each read of earlier ones only. */
static void
check_inputs(const struct leat_pipeline *p, const struct graph *graph, struct paint *paint, uint32_t s)
{
    for (uint32_t i = 0; i < p->stages[s].input_count; i++) {
        const uint32_t source = graph->stages[s].sources[i];
        EXPECT(brush(p, paint, s, i, source == UINT32_MAX ? 1 : colour_of(source, 0), true));
    }
}

static void
play(const struct leat_pipeline *p, const struct graph *graph, uint64_t *random)
{
    struct paint paint = {.client = {1}};
    const uint32_t all = (1u << p->stage_count) - 1;
    uint32_t running = 0, ended = 0;

    while (ended != all) {
        const uint32_t s = (uint32_t)(leat_test_random(random) % p->stage_count);
        const struct leat_pipeline_stage *stage = &p->stages[s];
        if ((running >> s & 1) != 0) {
            check_inputs(p, graph, &paint, s);
            for (uint32_t o = 0; o < stage->output_count; o++) {
                EXPECT(brush(p, &paint, s, stage->input_count + o, colour_of(s, o), true));
            }
            running &= ~(1u << s);
            ended |= 1u << s;
        } else if ((ended >> s & 1) == 0 && (stage->after & ~ended) == 0) {
            check_inputs(p, graph, &paint, s);
            running |= 1u << s;
            for (uint32_t o = 0; o < stage->output_count; o++) {
                (void)brush(p, &paint, s, stage->input_count + o, colour_of(s, o), false);
            }
        }
    }
    for (uint32_t s = 0; s < p->stage_count; s++) { /* what the client gets */
        const struct leat_pipeline_stage *stage = &p->stages[s];
        EXPECT(stage->tensors[stage->input_count].place == LEAT_PIPELINE_WORKSPACE ||
               brush(p, &paint, s, stage->input_count, colour_of(s, 0), true));
    }
}

static void
test_random_graphs(void)
{
    uint64_t random = leat_test_seed, shared = 0;

    for (int round = 0; round < 3000; round++) {
        struct graph graph;
        uint64_t apart = 0;
        if (!draw_graph(&graph, &random)) {
            continue;
        }
        struct leat_pipeline *p = make_good(graph.text);
        for (uint32_t s = 0; s < p->stage_count; s++) {
            for (uint32_t o = 0; o < p->stages[s].output_count; o++) {
                const struct leat_pipeline_stage *stage = &p->stages[s];
                const uint64_t bytes = stage->item_bytes[stage->input_count + o] * p->target.items_max;
                apart +=
                    stage->tensors[stage->input_count + o].place == LEAT_PIPELINE_WORKSPACE ? leat_round_up(bytes, 64) : 0;
            }
        }
        EXPECT(p->workspace_bytes <= apart);
        shared += p->workspace_bytes < apart;
        for (int i = 0; i < 5; i++) {
            play(p, &graph, &random);
        }
        free(p);
    }
    EXPECT(shared > 100);
}

int
main(void)
{
    leat_test_init();
    house_init();
    test_errors();
    test_many_tensors();
    test_memory();
    test_linear();
    test_outputs();
    test_each();
    test_sharing();
    test_random_graphs();
    return 0;
}
