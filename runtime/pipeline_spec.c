/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/pipeline_spec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/align.h"
#include "base/status.h"

#define INPUT_NAME "input" /* of the client's query, among stages */

/* ---- Members ---------------------------------------------------------------------------------- */

/* Is every member one of those listed? `allowed` ends with NULL; `where` is for messages. */
static enum leat_status
check_keys(const json_t *object, const char *where, const char *const *allowed)
{
    char list[256] = "";
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, key, value) { /* only read */
        size_t used = 0, k = 0;
        while (allowed[k] != NULL && strcmp(allowed[k], key) != 0) {
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", k > 0 ? ", " : "", allowed[k]);
            k++;
        }
        if (allowed[k] == NULL) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "%s has no member '%.64s': there are %s", where, key, list);
        }
    }
    return LEAT_OK;
}

/* Does the name do for a pipeline or a stage? A stage's has no dot either. */
static bool
name_is_good(const char *name)
{
    const size_t length = name != NULL ? strlen(name) : 0;
    return length > 0 && length < LEAT_NAME_MAX && name[0] != '.' && name[0] != '-' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == length;
}

static enum leat_status
read_count(const json_t *object, const char *key, uint32_t max, uint32_t *ret_count)
{
    const json_t *value = json_object_get(object, key);

    if (value == NULL) {
        return LEAT_OK;
    }
    const json_int_t count = json_integer_value(value);
    if (!json_is_integer(value) || count < 1 || count > (json_int_t)max) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'%s' must be a whole number from 1 to %u", key, max);
    }
    *ret_count = (uint32_t)count;
    return LEAT_OK;
}

static enum leat_status
read_latency(const json_t *object, uint64_t *ret_latency_ns)
{
    const json_t *value = json_object_get(object, "latency_ms");
    const double latency_ns = json_number_value(value) * 1e6;

    if (value != NULL &&
        (!json_is_number(value) || !(latency_ns >= 1000) || latency_ns > (double)LEAT_PIPELINE_LATENCY_MAX_NS)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'latency_ms' must be a number from 0.001 to 3600000, or left out for none");
    }
    *ret_latency_ns = (uint64_t)llround(latency_ns);
    return LEAT_OK;
}

static enum leat_status
read_late(const json_t *object, enum leat_pipeline_late *ret_late)
{
    static const char *const texts[] = {
        [LEAT_PIPELINE_DROP] = "drop", [LEAT_PIPELINE_DROP_THRICE] = "drop_thrice", [LEAT_PIPELINE_SERVE] = "serve"};
    const json_t *value = json_object_get(object, "late");

    for (uint32_t l = 0; l < LEAT_COUNT_OF(texts); l++) {
        if (value == NULL || (json_is_string(value) && strcmp(json_string_value(value), texts[l]) == 0)) {
            *ret_late = (enum leat_pipeline_late)l;
            return LEAT_OK;
        }
    }
    return LEAT_FAIL(LEAT_ERR_INVALID, "'late' must be \"drop\", \"drop_thrice\" or \"serve\"");
}

/* ---- Edges ------------------------------------------------------------------------------------ */

static uint32_t
find_stage(const struct leat_pipeline_spec *spec, const char *name, size_t length)
{
    uint32_t s = 0;
    while (s < spec->stage_count &&
           (strlen(spec->stages[s].name) != length || memcmp(spec->stages[s].name, name, length) != 0)) {
        s++;
    }
    return s;
}

static enum leat_status
report_stages(const struct leat_pipeline_spec *spec, const char *where, const char *name, int length)
{
    char list[LEAT_PIPELINE_STAGES_MAX * (LEAT_NAME_MAX + 4)] = "";
    size_t used = 0;

    for (uint32_t s = 0; s < spec->stage_count; s++) {
        used += (size_t)snprintf(list + used, sizeof(list) - used, "'%s', ", spec->stages[s].name);
    }
    return LEAT_FAIL(LEAT_ERR_INVALID, "%s: there is no stage '%.*s', but %sand '" INPUT_NAME "'", where,
                     length < 64 ? length : 64, name, list);
}

/* "STAGE.OUTPUT" or "input.NAME". */
static enum leat_status
read_source(const struct leat_pipeline_spec *spec, const char *where, const json_t *value,
            struct leat_pipeline_source *ret_source)
{
    const char *text = json_string_value(value);
    const char *dot = text != NULL ? strchr(text, '.') : NULL;

    if (dot == NULL || dot == text || dot[1] == '\0' || strlen(dot + 1) >= sizeof(ret_source->tensor)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s must be \"STAGE.OUTPUT\" or \"" INPUT_NAME ".NAME\"%s%.80s%s", where,
                         text != NULL ? ", not '" : "", text != NULL ? text : "", text != NULL ? "'" : "");
    }
    const size_t length = (size_t)(dot - text);
    (void)strcpy(ret_source->tensor, dot + 1);
    if (length == strlen(INPUT_NAME) && memcmp(text, INPUT_NAME, length) == 0) {
        ret_source->stage = LEAT_PIPELINE_INPUT;
        return LEAT_OK;
    }
    ret_source->stage = find_stage(spec, text, length);
    return ret_source->stage < spec->stage_count ? LEAT_OK : report_stages(spec, where, text, (int)length);
}

/* {"name": source, ...} */
static enum leat_status
read_edges(const struct leat_pipeline_spec *spec, const char *where, const json_t *object, struct leat_pipeline_edge *edges,
           uint32_t *ret_count)
{
    char place[LEAT_NAME_MAX + LEAT_TENSOR_NAME_MAX + 32];
    uint32_t count = 0;
    const char *key;
    json_t *value;

    if (json_object_size(object) == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s must be an object {\"NAME\": \"SOURCE\", ...} with a member at least",
                         where);
    }
    json_object_foreach((json_t *)(uintptr_t)object, key, value) { /* only read */
        if (count == LEAT_TENSORS_MAX) {
            return LEAT_FAIL(LEAT_ERR_LIMIT, "%s: more than %d tensors", where, LEAT_TENSORS_MAX);
        }
        if (key[0] == '\0' || strlen(key) >= sizeof(edges->name)) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "%s: names have 1 to %d bytes", where, LEAT_TENSOR_NAME_MAX - 1);
        }
        (void)snprintf(place, sizeof(place), "%s.%s", where, key);
        const enum leat_status status = read_source(spec, place, value, &edges[count].source);
        if (status != LEAT_OK) {
            return status;
        }
        (void)strcpy(edges[count++].name, key);
    }
    *ret_count = count;
    return LEAT_OK;
}

/* ---- Stages ----------------------------------------------------------------------------------- */

/* Its names; the rest once all stages have theirs. */
static enum leat_status
read_stage_names(struct leat_pipeline_spec *spec, const json_t *object)
{
    static const char *const allowed[] = {"name", "application", "each", "inputs", NULL};
    const json_t *given = json_object_get(object, "name");
    const char *application = json_string_value(json_object_get(object, "application"));
    const char *name = given != NULL ? json_string_value(given) : application;
    char where[32];

    (void)snprintf(where, sizeof(where), "stages[%u]", spec->stage_count);
    if (!json_is_object(object)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s must be an object", where);
    }
    const enum leat_status status = check_keys(object, where, allowed);
    if (status != LEAT_OK) {
        return status;
    }
    if (!name_is_good(application)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s: 'application' must be the name of an application or model", where);
    }
    if (!name_is_good(name) || strchr(name, '.') != NULL || strcmp(name, INPUT_NAME) == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID,
                         "%s: the name of a stage has 1 to %d letters, digits, '_' and '-', and is not \"" INPUT_NAME
                         "\": give it a 'name'",
                         where, LEAT_NAME_MAX - 1);
    }
    if (find_stage(spec, name, strlen(name)) < spec->stage_count) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s: there is a stage '%s' already: give one of them another 'name'", where,
                         name);
    }
    struct leat_pipeline_spec_stage *stage = &spec->stages[spec->stage_count++];
    (void)strcpy(stage->name, name);
    (void)strcpy(stage->application, application);
    return LEAT_OK;
}

static uint32_t
bit_of(const struct leat_pipeline_source *source)
{
    return source->stage == LEAT_PIPELINE_INPUT ? 0 : 1u << source->stage;
}

/* What it reads, and of whom. */
static enum leat_status
read_stage_edges(struct leat_pipeline_spec *spec, struct leat_pipeline_spec_stage *stage, const json_t *object)
{
    const json_t *each = json_object_get(object, "each");
    char where[LEAT_NAME_MAX + 32];

    (void)snprintf(where, sizeof(where), "stage '%s': inputs", stage->name);
    enum leat_status status = read_edges(spec, where, json_object_get(object, "inputs"), stage->edges, &stage->edge_count);
    if (status == LEAT_OK && each != NULL) {
        (void)snprintf(where, sizeof(where), "stage '%s': 'each'", stage->name);
        stage->repeats = true;
        status = read_source(spec, where, each, &stage->each);
        if (status == LEAT_OK && stage->each.stage == LEAT_PIPELINE_INPUT) {
            status = LEAT_FAIL(LEAT_ERR_INVALID, "%s must be an output of a stage: inputs have as many items as the query",
                               where);
        }
    }
    if (status != LEAT_OK) {
        return status;
    }
    stage->after = stage->repeats ? bit_of(&stage->each) : 0;
    for (uint32_t e = 0; e < stage->edge_count; e++) {
        stage->after |= bit_of(&stage->edges[e].source);
    }
    return LEAT_OK;
}

static enum leat_status
read_stages(const json_t *object, struct leat_pipeline_spec *spec)
{
    const json_t *stages = json_object_get(object, "stages");
    const size_t count = json_array_size(stages);
    enum leat_status status = LEAT_OK;

    if (count == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'stages' must be a list of objects with one at least");
    }
    if (count > LEAT_PIPELINE_STAGES_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%zu stages: a pipeline has %u at most", count, LEAT_PIPELINE_STAGES_MAX);
    }
    for (size_t s = 0; s < count && status == LEAT_OK; s++) {
        status = read_stage_names(spec, json_array_get(stages, s));
    }
    for (size_t s = 0; s < count && status == LEAT_OK; s++) {
        status = read_stage_edges(spec, &spec->stages[s], json_array_get(stages, s));
    }
    return status;
}

/* ---- Order ------------------------------------------------------------------------------------ */

/* Stages that wait for one another; `left` are those without an order. */
static enum leat_status
report_cycle(const struct leat_pipeline_spec *spec, uint32_t left)
{
    char text[LEAT_PIPELINE_STAGES_MAX * (LEAT_NAME_MAX + 16)];
    uint32_t at = (uint32_t)__builtin_ctz(left);
    size_t used = 0;

    for (uint32_t i = 0; i < spec->stage_count; i++) { /* until it is on the cycle, for each of them reads of another */
        at = (uint32_t)__builtin_ctz(spec->stages[at].after & left);
    }
    const uint32_t first = at;
    used = (size_t)snprintf(text, sizeof(text), "'%s'", spec->stages[at].name);
    do {
        at = (uint32_t)__builtin_ctz(spec->stages[at].after & left);
        used += (size_t)snprintf(text + used, sizeof(text) - used, " of '%s'", spec->stages[at].name);
    } while (at != first && used < sizeof(text));
    return LEAT_FAIL(LEAT_ERR_INVALID, "stages read in a circle: %s: one of these edges has to go", text);
}

static void
renumber(struct leat_pipeline_source *source, const uint32_t *places)
{
    source->stage = source->stage == LEAT_PIPELINE_INPUT ? LEAT_PIPELINE_INPUT : places[source->stage];
}

/* Each behind those that it reads of, else as they were given. */
static enum leat_status
sort_stages(struct leat_pipeline_spec *spec)
{
    struct leat_pipeline_spec_stage sorted[LEAT_PIPELINE_STAGES_MAX];
    uint32_t places[LEAT_PIPELINE_STAGES_MAX], count = 0;
    uint32_t left = (1u << spec->stage_count) - 1;

    while (left != 0) {
        uint32_t s = 0;
        while (s < spec->stage_count && ((left >> s & 1) == 0 || (spec->stages[s].after & left) != 0)) {
            s++;
        }
        if (s == spec->stage_count) {
            return report_cycle(spec, left);
        }
        left &= ~(1u << s);
        places[s] = count;
        sorted[count++] = spec->stages[s];
    }
    for (uint32_t s = 0; s < count; s++) {
        struct leat_pipeline_spec_stage *stage = &sorted[s];
        uint32_t after = 0;
        for (uint32_t old = 0; old < count; old++) {
            after |= (stage->after >> old & 1) << places[old];
        }
        stage->after = after;
        renumber(&stage->each, places);
        for (uint32_t e = 0; e < stage->edge_count; e++) {
            renumber(&stage->edges[e].source, places);
        }
    }
    for (uint32_t o = 0; o < spec->output_count; o++) {
        renumber(&spec->outputs[o].source, places);
    }
    memcpy(spec->stages, sorted, count * sizeof(sorted[0]));
    return LEAT_OK;
}

/* A stage that nobody asks for would only take time. */
static enum leat_status
check_uses(const struct leat_pipeline_spec *spec)
{
    uint32_t used = 0;

    for (uint32_t s = 0; s < spec->stage_count; s++) {
        used |= spec->stages[s].after;
    }
    for (uint32_t o = 0; o < spec->output_count; o++) {
        const struct leat_pipeline_edge *output = &spec->outputs[o];
        if (output->source.stage == LEAT_PIPELINE_INPUT) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "outputs.%s: an input is no output: the client has it", output->name);
        }
        used |= 1u << output->source.stage;
    }
    for (uint32_t s = 0; s < spec->stage_count; s++) {
        if ((used >> s & 1) == 0) {
            return LEAT_FAIL(LEAT_ERR_INVALID,
                             "nobody reads what stage '%s' makes: leave it out, or add one of its outputs to 'outputs'",
                             spec->stages[s].name);
        }
    }
    return LEAT_OK;
}

enum leat_status
leat_pipeline_spec_read(const json_t *object, struct leat_pipeline_spec *ret_spec)
{
    static const char *const allowed[] = {"name",      "latency_ms", "late",    "in_flight",
                                          "items_max", "stages",     "outputs", NULL};
    const json_t *name = json_object_get(object, "name");
    struct leat_pipeline_spec spec = {.name = ""};

    if (!json_is_object(object)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a pipeline is described by a JSON object");
    }
    enum leat_status status = check_keys(object, "a pipeline", allowed);
    if (status == LEAT_OK && name != NULL) {
        if (!name_is_good(json_string_value(name))) {
            return LEAT_FAIL(LEAT_ERR_INVALID,
                             "a pipeline's 'name' has 1 to %d letters, digits, '.', '_' or '-', and starts with a "
                             "letter, digit or '_'",
                             LEAT_NAME_MAX - 1);
        }
        (void)strcpy(spec.name, json_string_value(name));
    }
    if (status == LEAT_OK) {
        status = read_latency(object, &spec.latency_ns);
    }
    if (status == LEAT_OK) {
        status = read_late(object, &spec.late);
    }
    if (status == LEAT_OK) {
        status = read_count(object, "in_flight", LEAT_PIPELINE_RUNS_MAX, &spec.in_flight);
    }
    if (status == LEAT_OK) {
        status = read_count(object, "items_max", LEAT_PIPELINE_ITEMS_MAX, &spec.items_max);
    }
    if (status == LEAT_OK) {
        status = read_stages(object, &spec);
    }
    if (status == LEAT_OK) {
        status = read_edges(&spec, "outputs", json_object_get(object, "outputs"), spec.outputs, &spec.output_count);
    }
    if (status == LEAT_OK) {
        status = check_uses(&spec);
    }
    if (status == LEAT_OK) {
        status = sort_stages(&spec);
    }
    if (status == LEAT_OK) {
        *ret_spec = spec;
    }
    return status;
}
