/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines: what flows along the edges of one, whether it fits, and where it lies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/status.h"
#include "ipc/wire.h"
#include "runtime/pipeline_spec.h"

enum {
    EACH_QUERIES = 16, /* that a repeating stage asks for an item at the most, if batches allow it: workers share them */
    NOT_AN_OUTPUT = 255,
};

#define BYTES_MAX (UINT64_C(1) << 37) /* as large as an arena can be configured */

/* What stage s makes: its output o, as those who read it see it. */
struct value {
    struct leat_tensor_info info;
    uint32_t readers;    /* bit s: of stage s */
    uint32_t count_of;   /* where it varies in dimension 1: the stage whose answer says how much of it is there */
    uint32_t count_size; /* and which of the sizes of that */
    uint32_t output;     /* of the pipeline's, or NOT_AN_OUTPUT */
    uint64_t bytes;      /* of all items of a query, rounded up */
    uint64_t offset;     /* in the workspace */
};

struct binding {
    const struct leat_pipeline_spec *spec;
    struct leat_pipeline *pipeline;
    const struct leat_target *targets[LEAT_PIPELINE_STAGES_MAX];
    struct value values[LEAT_PIPELINE_STAGES_MAX][LEAT_TENSORS_MAX]; /* [stage][output] */
    uint32_t before[LEAT_PIPELINE_STAGES_MAX];                       /* bit t: stage t has ended when the stage begins */
};

/* "f32[N,0..16,4]" */
struct type_text {
    char text[192];
};

static struct type_text
type_of(const struct leat_tensor_info *info)
{
    struct type_text type;
    size_t used = (size_t)snprintf(type.text, sizeof(type.text), "%s[N", leat_dtype_text(info->dtype));

    for (uint32_t d = 1; d < info->rank && used < sizeof(type.text); d++) {
        used += (size_t)snprintf(type.text + used, sizeof(type.text) - used, ",%s%lld", d == info->varying ? "0.." : "",
                                 (long long)info->dims[d]);
    }
    if (used < sizeof(type.text)) {
        (void)snprintf(type.text + used, sizeof(type.text) - used, "]");
    }
    return type;
}

static bool
same_type(const struct leat_tensor_info *a, const struct leat_tensor_info *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && a->item_bytes == b->item_bytes &&
           memcmp(&a->dims[1], &b->dims[1], (a->rank - 1) * sizeof(a->dims[0])) == 0;
}

/* ---- Names ------------------------------------------------------------------------------------ */

/* Of the input or output of that name; UINT32_MAX, and a list of those that there are in `list`, where there is none. */
static uint32_t
find_tensor(const struct leat_target *target, bool output, const char *name, char list[512])
{
    const uint32_t first = output ? target->input_count : 0;
    const uint32_t count = output ? target->output_count : target->input_count;
    size_t used = 0;

    for (uint32_t t = 0; t < count; t++) {
        if (strcmp(target->tensors[first + t].name, name) == 0) {
            return t;
        }
        if (used < 512) {
            used += (size_t)snprintf(list + used, 512 - used, "%s'%s'", t > 0 ? ", " : "", target->tensors[first + t].name);
        }
    }
    return UINT32_MAX;
}

/* What a stage makes under that name; `where` says who asks. */
static enum leat_status
find_value(struct binding *binding, const char *where, const struct leat_pipeline_source *source, struct value **ret_value)
{
    const struct leat_pipeline_spec_stage *stage = &binding->spec->stages[source->stage];
    char list[512] = "";

    const uint32_t o = find_tensor(binding->targets[source->stage], true, source->tensor, list);
    if (o == UINT32_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s: application '%s' of stage '%s' has no output '%s', but %s", where,
                         stage->application, stage->name, source->tensor, list);
    }
    *ret_value = &binding->values[source->stage][o];
    return LEAT_OK;
}

static enum leat_status
find_applications(struct binding *binding, const struct leat_pipeline_house *house)
{
    for (uint32_t s = 0; s < binding->spec->stage_count; s++) {
        const struct leat_pipeline_spec_stage *stage = &binding->spec->stages[s];
        const struct leat_target *target = house->find(house->context, stage->application);
        if (target == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOT_FOUND,
                             "stage '%s': there is no application or model '%s': add it first; a pipeline cannot be a "
                             "stage",
                             stage->name, stage->application);
        }
        if (target->length_max > 0) {
            return LEAT_FAIL(
                LEAT_ERR_UNSUPPORTED,
                "stage '%s': model '%s' has sequences of several lengths, which a pipeline does not tell its stages: "
                "add the model with one length",
                stage->name, stage->application);
        }
        binding->targets[s] = target;
        for (uint32_t t = 0; t < s; t++) {
            if ((stage->after >> t & 1) != 0) {
                binding->before[s] |= 1u << t | binding->before[t];
            }
        }
    }
    return LEAT_OK;
}

/* ---- Stages ----------------------------------------------------------------------------------- */

/* Which stage repeats: each of its items is an element of this value. */
static enum leat_status
bind_each(struct binding *binding, uint32_t s)
{
    const struct leat_pipeline_spec_stage *stage = &binding->spec->stages[s];
    struct leat_pipeline_stage *own = &binding->pipeline->stages[s];
    char where[LEAT_NAME_MAX + 32];
    struct value *value;

    own->each_stage = UINT32_MAX;
    if (!stage->repeats) {
        return LEAT_OK;
    }
    (void)snprintf(where, sizeof(where), "stage '%s': 'each'", stage->name);
    const enum leat_status status = find_value(binding, where, &stage->each, &value);
    if (status != LEAT_OK) {
        return status;
    }
    const char *source = binding->spec->stages[stage->each.stage].name;
    if (value->count_of != stage->each.stage) {
        return binding->pipeline->stages[stage->each.stage].each_stage != UINT32_MAX
                   ? LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "%s: stage '%s' repeats itself: give both the same 'each'", where,
                               source)
                   : LEAT_FAIL(
                         LEAT_ERR_SHAPE,
                         "%s: %s.%s is %s, which does not vary in its first dimension behind the items: leave 'each' out",
                         where, source, stage->each.tensor, type_of(&value->info).text);
    }
    own->each_stage = stage->each.stage;
    own->each_size = value->count_size;
    own->each_max = (uint32_t)value->info.dims[1];
    LEAT_ASSERT(own->each_max >= 1 && own->each_max <= LEAT_SIZE_MAX); /* as the model's signature has it */
    value->readers |= 1u << s;
    return LEAT_OK;
}

/* What items of the stage are of a source: the source as it is or, where the stage repeats, its elements. */
static enum leat_status
items_of(const struct binding *binding, uint32_t s, const struct leat_pipeline_edge *edge, const struct value *value,
         struct leat_tensor_info *ret_info)
{
    const struct leat_pipeline_stage *own = &binding->pipeline->stages[s];
    const struct leat_pipeline_spec_stage *stage = &binding->spec->stages[s],
                                          *source = &binding->spec->stages[edge->source.stage];
    const bool repeated = binding->pipeline->stages[edge->source.stage].each_stage != UINT32_MAX;

    *ret_info = value->info;
    if (own->each_stage == UINT32_MAX) {
        return !repeated
                   ? LEAT_OK
                   : LEAT_FAIL(
                         LEAT_ERR_SHAPE,
                         "stage '%s': input '%s' reads %s.%s, of which there is as much as stage '%s' has items: give the "
                         "stage the same 'each', or make that an output of the pipeline",
                         stage->name, edge->name, source->name, edge->source.tensor, source->name);
    }
    if (value->count_of != own->each_stage || value->info.dims[1] != (int64_t)own->each_max ||
        (repeated && value->count_size != own->each_size)) {
        return LEAT_FAIL(LEAT_ERR_SHAPE,
                         "stage '%s': input '%s' reads %s.%s, which is %s, and the stage repeats for each of '%s': it can "
                         "read what varies as that does, of the same stage or of one with the same 'each'",
                         stage->name, edge->name, source->name, edge->source.tensor, type_of(&value->info).text,
                         stage->each.tensor);
    }
    ret_info->rank--;
    ret_info->varying = 0;
    memmove(&ret_info->dims[1], &ret_info->dims[2], (LEAT_RANK_MAX - 2) * sizeof(ret_info->dims[0]));
    ret_info->item_bytes /= own->each_max;
    return LEAT_OK;
}

/* An input of the pipeline, which is what its first reader says it is. */
static enum leat_status
read_input(struct binding *binding, uint32_t s, const struct leat_pipeline_edge *edge, const struct leat_tensor_info *info,
           struct leat_pipeline_tensor *ret_tensor)
{
    struct leat_target *target = &binding->pipeline->target;
    const struct leat_pipeline_spec_stage *stage = &binding->spec->stages[s];
    uint32_t i = 0;

    if (stage->repeats) {
        return LEAT_FAIL(LEAT_ERR_SHAPE,
                         "stage '%s': input '%s' reads input.%s, but the stage repeats for each of '%s': it can read what "
                         "varies as that does, of the same stage or of one with the same 'each'",
                         stage->name, edge->name, edge->source.tensor, stage->each.tensor);
    }
    while (i < target->input_count && strcmp(target->tensors[i].name, edge->source.tensor) != 0) {
        i++;
    }
    if (i == target->input_count) {
        if (i == LEAT_TENSORS_MAX) {
            return LEAT_FAIL(LEAT_ERR_LIMIT, "stage '%s': input.%s is one input too many: %d are the limit", stage->name,
                             edge->source.tensor, LEAT_TENSORS_MAX);
        }
        target->tensors[i] = *info;
        (void)strcpy(target->tensors[i].name, edge->source.tensor);
        target->input_count++;
    } else if (!same_type(&target->tensors[i], info)) {
        return LEAT_FAIL(
            LEAT_ERR_SHAPE, "stage '%s': input '%s' is %s, but another stage reads input.%s as %s: they need an input each",
            stage->name, edge->name, type_of(info).text, edge->source.tensor, type_of(&target->tensors[i]).text);
    }
    *ret_tensor = (struct leat_pipeline_tensor){LEAT_PIPELINE_CLIENT, i};
    return LEAT_OK;
}

static const struct leat_pipeline_edge *
find_edge(const struct leat_pipeline_spec_stage *stage, const char *input)
{
    for (uint32_t e = 0; e < stage->edge_count; e++) {
        if (strcmp(stage->edges[e].name, input) == 0) {
            return &stage->edges[e];
        }
    }
    return NULL;
}

static enum leat_status
bind_inputs(struct binding *binding, uint32_t s)
{
    const struct leat_pipeline_spec_stage *stage = &binding->spec->stages[s];
    const struct leat_target *target = binding->targets[s];
    struct leat_pipeline_stage *own = &binding->pipeline->stages[s];
    char where[LEAT_NAME_MAX + LEAT_TENSOR_NAME_MAX + 32], list[512] = "";

    for (uint32_t e = 0; e < stage->edge_count; e++) {
        if (find_tensor(target, false, stage->edges[e].name, list) == UINT32_MAX) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "stage '%s': application '%s' has no input '%s', but %s", stage->name,
                             stage->application, stage->edges[e].name, list);
        }
    }
    for (uint32_t i = 0; i < target->input_count; i++) {
        const struct leat_pipeline_edge *edge = find_edge(stage, target->tensors[i].name);
        struct leat_tensor_info items;
        struct value *value;
        if (edge == NULL) {
            return LEAT_FAIL(LEAT_ERR_INVALID,
                             "stage '%s': input '%s' of application '%s' has no source: add it to the stage's 'inputs'",
                             stage->name, target->tensors[i].name, stage->application);
        }
        if (edge->source.stage == LEAT_PIPELINE_INPUT) {
            const enum leat_status status = read_input(binding, s, edge, &target->tensors[i], &own->tensors[i]);
            if (status != LEAT_OK) {
                return status;
            }
            continue;
        }
        (void)snprintf(where, sizeof(where), "stage '%s': input '%s'", stage->name, edge->name);
        enum leat_status status = find_value(binding, where, &edge->source, &value);
        if (status == LEAT_OK) {
            status = items_of(binding, s, edge, value, &items);
        }
        if (status != LEAT_OK) {
            return status;
        }
        if (!same_type(&items, &target->tensors[i])) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "%s is %s, but %s.%s is %s%s", where, type_of(&target->tensors[i]).text,
                             binding->spec->stages[edge->source.stage].name, edge->source.tensor,
                             type_of(&value->info).text,
                             own->each_stage != UINT32_MAX ? ", and an element of it has another shape" : "");
        }
        value->readers |= 1u << s;
    }
    return LEAT_OK;
}

/* What the stage makes, as others see it. */
static enum leat_status
bind_outputs(struct binding *binding, uint32_t s)
{
    const struct leat_pipeline_spec_stage *stage = &binding->spec->stages[s];
    const struct leat_target *target = binding->targets[s];
    struct leat_pipeline_stage *own = &binding->pipeline->stages[s];

    for (uint32_t o = 0; o < target->output_count; o++) {
        const struct leat_tensor_info *made = &target->tensors[target->input_count + o];
        struct value *value = &binding->values[s][o];
        *value = (struct value){.info = *made, .output = NOT_AN_OUTPUT, .count_of = UINT32_MAX};
        if (made->varying == 1) {
            value->count_of = s;
            value->count_size = own->size_count;
        }
        own->size_count += made->varying != 0;
        if (own->each_stage == UINT32_MAX) {
            continue;
        }
        if (made->varying != 0) {
            return LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                             "stage '%s': output '%s' of application '%s' is %s: a stage with 'each' may have none "
                             "that varies",
                             stage->name, made->name, stage->application, type_of(made).text);
        }
        if (made->rank == LEAT_RANK_MAX || !leat_mul_u64(made->item_bytes, own->each_max, &value->info.item_bytes)) {
            return LEAT_FAIL(LEAT_ERR_LIMIT,
                             "stage '%s': output '%s' is %s, and one for each of up to %u is more than there can be",
                             stage->name, made->name, type_of(made).text, own->each_max);
        }
        value->info.rank++;
        memmove(&value->info.dims[2], &value->info.dims[1], (LEAT_RANK_MAX - 2) * sizeof(value->info.dims[0]));
        value->info.dims[1] = own->each_max;
        value->info.varying = 1;
        value->count_of = own->each_stage;
        value->count_size = own->each_size;
    }
    return LEAT_OK;
}

/* So many items of a repeating stage lie on a multiple of LEAT_TENSOR_ALIGN in all of its tensors; a power of two. */
static uint32_t
aligned_items(const struct leat_target *target)
{
    uint32_t items = 1;
    for (uint32_t t = 0; t < target->input_count + target->output_count; t++) {
        while (items * target->tensors[t].item_bytes % LEAT_TENSOR_ALIGN != 0) {
            items *= 2;
        }
    }
    return items;
}

/* How many items a query of a repeating stage has. */
static enum leat_status
divide_items(struct binding *binding, uint32_t s)
{
    const struct leat_pipeline_spec_stage *stage = &binding->spec->stages[s];
    const struct leat_target *target = binding->targets[s];
    struct leat_pipeline_stage *own = &binding->pipeline->stages[s];
    const uint32_t step = aligned_items(target);

    if (step > target->items_max && own->each_max > target->items_max) {
        return LEAT_FAIL(LEAT_ERR_LIMIT,
                         "stage '%s': only every %u items of '%s' lie on a multiple of %u bytes, and a query to it has %u "
                         "items at most: add the model with --items-max %u",
                         stage->name, step, stage->application, LEAT_TENSOR_ALIGN, target->items_max, step);
    }
    uint32_t items = step;
    while (items * EACH_QUERIES < own->each_max && items + step <= target->items_max) {
        items += step;
    }
    own->each_items = items < own->each_max ? items : own->each_max;
    return LEAT_OK;
}

static enum leat_status
bind_stage(struct binding *binding, uint32_t s)
{
    const struct leat_pipeline_spec_stage *stage = &binding->spec->stages[s];
    const struct leat_target *target = binding->targets[s];
    struct leat_pipeline_stage *own = &binding->pipeline->stages[s];

    (void)strcpy(own->name, stage->name);
    (void)strcpy(own->application_name, stage->application);
    own->application = (uint16_t)target->id;
    own->after = stage->after;
    own->input_count = target->input_count;
    own->output_count = target->output_count;
    for (uint32_t t = 0; t < target->input_count + target->output_count; t++) {
        own->item_bytes[t] = target->tensors[t].item_bytes;
    }
    enum leat_status status = bind_each(binding, s);
    if (status == LEAT_OK) {
        status = bind_inputs(binding, s);
    }
    if (status == LEAT_OK) {
        status = bind_outputs(binding, s);
    }
    return status == LEAT_OK && stage->repeats ? divide_items(binding, s) : status;
}

/* ---- The pipeline as a whole ------------------------------------------------------------------ */

static enum leat_status
add_outputs(struct binding *binding)
{
    const struct leat_pipeline_spec *spec = binding->spec;
    struct leat_pipeline *pipeline = binding->pipeline;
    struct leat_target *target = &pipeline->target;
    char where[LEAT_TENSOR_NAME_MAX + 16];
    struct value *value;

    if (target->input_count + spec->output_count + 1 > LEAT_TENSORS_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%u inputs and %u outputs, and 'stage_ns': a query has %d tensors at most",
                         target->input_count, spec->output_count, LEAT_TENSORS_MAX);
    }
    for (uint32_t o = 0; o < spec->output_count; o++) {
        const struct leat_pipeline_edge *edge = &spec->outputs[o];
        (void)snprintf(where, sizeof(where), "outputs.%s", edge->name);
        const enum leat_status status = find_value(binding, where, &edge->source, &value);
        if (status != LEAT_OK) {
            return status;
        }
        if (strcmp(edge->name, "stage_ns") == 0) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "%s: that is the name of the output with the stages' times: choose another",
                             where);
        }
        if (value->output != NOT_AN_OUTPUT) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "%s: %s.%s is output '%s' already: it lies in one place only", where,
                             spec->stages[edge->source.stage].name, edge->source.tensor, spec->outputs[value->output].name);
        }
        value->output = o;
        struct leat_tensor_info *info = &target->tensors[target->input_count + o];
        *info = value->info;
        (void)strcpy(info->name, edge->name);
        if (info->varying != 0) {
            if (pipeline->size_count == LEAT_SIZES_MAX) {
                return LEAT_FAIL(LEAT_ERR_LIMIT, "%s: an answer tells %u sizes at most, and as many outputs vary already",
                                 where, LEAT_SIZES_MAX);
            }
            uint32_t at = value->count_size, of = value->count_of;
            if (of == UINT32_MAX) { /* it varies in another dimension than 1 */
                of = edge->source.stage;
                at = 0;
                for (const struct value *v = binding->values[of]; v < value; v++) {
                    at += v->info.varying != 0;
                }
            }
            pipeline->size_of[pipeline->size_count] = of;
            pipeline->size_at[pipeline->size_count++] = at;
        }
    }
    target->output_count = spec->output_count + 1;
    struct leat_tensor_info *times = &target->tensors[target->input_count + spec->output_count];
    *times = (struct leat_tensor_info){.name = "stage_ns",
                                       .dtype = LEAT_DTYPE_U64,
                                       .rank = 3,
                                       .dims = {-1, spec->stage_count, 2},
                                       .item_bytes = (uint64_t)spec->stage_count * 2 * sizeof(uint64_t)};
    return LEAT_OK;
}

/* How many items a query may have; what bounds it goes to `why`. */
static uint32_t
most_items(const struct binding *binding, char why[256])
{
    uint32_t most = LEAT_PIPELINE_ITEMS_MAX;

    (void)snprintf(why, 256, "no more are possible");
    for (uint32_t s = 0; s < binding->spec->stage_count; s++) {
        const struct leat_pipeline_stage *own = &binding->pipeline->stages[s];
        if (own->each_stage == UINT32_MAX && binding->targets[s]->items_max < most) {
            most = binding->targets[s]->items_max;
            (void)snprintf(why, 256, "stage '%s' takes no more", own->name);
        }
        for (uint32_t t = 0; t < own->input_count + own->output_count && own->each_stage != UINT32_MAX && most > 1; t++) {
            if (own->item_bytes[t] * own->each_max % LEAT_TENSOR_ALIGN != 0) {
                most = 1;
                (void)snprintf(why, 256, "%u times '%s' of stage '%s' is no multiple of %u bytes", own->each_max,
                               binding->targets[s]->tensors[t].name, own->name, LEAT_TENSOR_ALIGN);
            }
        }
    }
    const uint32_t size_count = binding->pipeline->size_count;
    if (size_count > 0 && LEAT_SIZES_MAX / size_count < most) {
        most = LEAT_SIZES_MAX / size_count;
        (void)snprintf(why, 256, "an answer tells %u sizes, and %u outputs vary", LEAT_SIZES_MAX, size_count);
    }
    return most;
}

static enum leat_status
choose_items(struct binding *binding)
{
    char why[256];
    const uint32_t most = most_items(binding, why);

    if (binding->spec->items_max > most) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "'items_max' may be %u at most: %s", most, why);
    }
    binding->pipeline->target.items_max = binding->spec->items_max != 0 ? binding->spec->items_max : most;
    return LEAT_OK;
}

/* ---- The workspace ---------------------------------------------------------------------------- */

struct block {
    struct value *value;
    uint32_t stage;
};

/* Has the one's life ended, whatever happens, before the other's begins? */
static bool
ends_before(const struct binding *binding, const struct block *block, const struct block *other)
{
    const uint32_t users = block->value->readers | 1u << block->stage;
    return (users & ~binding->before[other->stage]) == 0;
}

/* Larger ones first; of the same size, in the order of stages. */
static int
compare_blocks(const void *a, const void *b)
{
    const struct block *x = a, *y = b;
    if (x->value->bytes != y->value->bytes) {
        return x->value->bytes > y->value->bytes ? -1 : 1;
    }
    return x->value < y->value ? -1 : 1;
}

/* At the lowest place that nothing has whose life overlaps with its own; `placed` are those before it. */
static uint64_t
place_block(const struct binding *binding, const struct block *blocks, uint32_t placed)
{
    const struct block *own = &blocks[placed];
    uint64_t offset = 0;

    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t b = 0; b < placed; b++) {
            const struct value *other = blocks[b].value;
            const bool apart = offset + own->value->bytes <= other->offset || other->offset + other->bytes <= offset;
            if (!apart && !ends_before(binding, own, &blocks[b]) && !ends_before(binding, &blocks[b], own)) {
                offset = other->offset + other->bytes;
                moved = true;
            }
        }
    }
    return offset;
}

static enum leat_status
lay_out(struct binding *binding, uint64_t memory_bytes)
{
    struct leat_pipeline *pipeline = binding->pipeline;
    struct block blocks[LEAT_PIPELINE_STAGES_MAX * LEAT_TENSORS_MAX];
    uint32_t count = 0;

    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        for (uint32_t o = 0; o < pipeline->stages[s].output_count; o++) {
            struct value *value = &binding->values[s][o];
            const uint64_t most = value->output == NOT_AN_OUTPUT ? memory_bytes : BYTES_MAX;
            if (!leat_mul_u64(value->info.item_bytes, pipeline->target.items_max, &value->bytes) || value->bytes > most) {
                return LEAT_FAIL(
                    LEAT_ERR_LIMIT, "%s.%s is %s: for %u items it takes more than the %llu bytes of %s: lower 'items_max'",
                    pipeline->stages[s].name, value->info.name, type_of(&value->info).text, pipeline->target.items_max,
                    (unsigned long long)most, most == memory_bytes ? "limits.pipeline_memory" : "any arena");
            }
            value->bytes = leat_round_up(value->bytes, LEAT_TENSOR_ALIGN);
            if (value->output == NOT_AN_OUTPUT) {
                blocks[count++] = (struct block){value, s};
            }
        }
    }
    qsort(blocks, count, sizeof(blocks[0]), compare_blocks);
    for (uint32_t b = 0; b < count; b++) { /* 48 values of at most memory_bytes: no sum overflows */
        struct value *value = blocks[b].value;
        value->offset = place_block(binding, blocks, b);
        const uint64_t end = value->offset + value->bytes;
        pipeline->workspace_bytes = end > pipeline->workspace_bytes ? end : pipeline->workspace_bytes;
    }
    return LEAT_OK;
}

static enum leat_status
choose_runs(struct binding *binding, uint64_t memory_bytes)
{
    struct leat_pipeline *pipeline = binding->pipeline;
    const uint64_t bytes = pipeline->workspace_bytes;
    const uint64_t fit = bytes > 0 ? memory_bytes / 4 / bytes : LEAT_PIPELINE_RUNS_DEFAULT;

    pipeline->runs_max = binding->spec->in_flight != 0      ? binding->spec->in_flight
                         : fit > LEAT_PIPELINE_RUNS_DEFAULT ? LEAT_PIPELINE_RUNS_DEFAULT
                                                            : (uint32_t)(fit > 0 ? fit : 1);
    if (bytes > memory_bytes / pipeline->runs_max) {
        return LEAT_FAIL(LEAT_ERR_LIMIT,
                         "what lies between its stages takes %llu bytes, %u times, and limits.pipeline_memory is %llu: "
                         "lower 'in_flight' or 'items_max', or raise that",
                         (unsigned long long)bytes, pipeline->runs_max, (unsigned long long)memory_bytes);
    }
    return LEAT_OK;
}

/* Where each stage finds what it reads, and puts what it makes. */
static void
tell_places(struct binding *binding)
{
    struct leat_pipeline *pipeline = binding->pipeline;

    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        struct leat_pipeline_stage *own = &pipeline->stages[s];
        for (uint32_t o = 0; o < own->output_count; o++) {
            const struct value *value = &binding->values[s][o];
            own->tensors[own->input_count + o] =
                value->output != NOT_AN_OUTPUT
                    ? (struct leat_pipeline_tensor){LEAT_PIPELINE_CLIENT, pipeline->target.input_count + value->output}
                    : (struct leat_pipeline_tensor){LEAT_PIPELINE_WORKSPACE, (uint32_t)(value->offset / LEAT_TENSOR_ALIGN)};
        }
    }
    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        struct leat_pipeline_stage *own = &pipeline->stages[s];
        for (uint32_t i = 0; i < own->input_count; i++) {
            const struct leat_pipeline_edge *edge =
                find_edge(&binding->spec->stages[s], binding->targets[s]->tensors[i].name);
            if (edge->source.stage == LEAT_PIPELINE_INPUT) {
                continue;
            }
            struct value *value;
            /* It was found when the stage was bound. */
            LEAT_MUST(find_value(binding, "", &edge->source, &value) == LEAT_OK);
            const struct leat_pipeline_stage *source = &pipeline->stages[edge->source.stage];
            own->tensors[i] =
                source->tensors[source->input_count + (uint32_t)(value - binding->values[edge->source.stage])];
        }
    }
}

enum leat_status
leat_pipeline_bind(const struct leat_pipeline_spec *spec, const struct leat_pipeline_house *house,
                   struct leat_pipeline **ret_pipeline)
{
    struct binding *binding = calloc(1, sizeof(*binding));
    struct leat_pipeline *pipeline = calloc(1, sizeof(*pipeline));
    enum leat_status status =
        binding != NULL && pipeline != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a pipeline");

    LEAT_ASSERT(spec->stage_count >= 1 && spec->stage_count <= LEAT_PIPELINE_STAGES_MAX);
    if (status == LEAT_OK) {
        binding->spec = spec;
        binding->pipeline = pipeline;
        (void)strcpy(pipeline->name, spec->name);
        pipeline->latency_ns = spec->latency_ns;
        pipeline->late = spec->late;
        pipeline->stage_count = spec->stage_count;
        status = find_applications(binding, house);
    }
    for (uint32_t s = 0; s < spec->stage_count && status == LEAT_OK; s++) {
        status = bind_stage(binding, s);
    }
    if (status == LEAT_OK) {
        status = add_outputs(binding);
    }
    if (status == LEAT_OK) {
        status = choose_items(binding);
    }
    if (status == LEAT_OK) {
        status = lay_out(binding, house->memory_bytes);
    }
    if (status == LEAT_OK) {
        status = choose_runs(binding, house->memory_bytes);
    }
    if (status == LEAT_OK) {
        tell_places(binding);
    }
    free(binding);
    if (status != LEAT_OK) {
        free(pipeline);
        return status;
    }
    *ret_pipeline = pipeline;
    return LEAT_OK;
}
