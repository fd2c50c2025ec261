/* SPDX-License-Identifier: Apache-2.0 */
/* Views, Concat and Split, and the way out for everything that oneDNN does not do. */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"
#include "kernels/reference/reference.h"

enum { SHARED_LEAST = 16 << 10 /* bytes for each member of a team */ };

enum leat_status
cpu_lower_view(struct cpu_builder *b)
{
    const uint32_t from = b->node->inputs[0], to = b->node->outputs[0];
    const dnnl_memory_desc_t md = cpu_value_md(&b->graph->values[to]);
    uint32_t plain, view;

    if (b->node->output_count > 1 && b->node->outputs[1] != LEAT_VALUE_NONE) {
        return LEAT_AGAIN; /* Dropout's mask */
    }
    if (!cpu_model_plans(b->model, LEAT_PLANS_IN_PLACE)) {
        return LEAT_AGAIN; /* a copy */
    }
    enum leat_status status = cpu_plain(b, from, &plain);
    if (status == LEAT_OK) {
        status = cpu_view(b, plain, &md, &view);
    }
    if (status == LEAT_OK) {
        b->aliased[from] = b->aliased[to] = true;
        cpu_set_output(b, 0, view);
    }
    return status;
}

/* ---- Concat ----------------------------------------------------------------------------------------- */

/* args: inputs, then the output. outer: rows; per input, its own bytes per row come from its size. */
static void
concat_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const uint32_t inputs = step->arg_count - 1;
    const size_t row = step->inner;
    unsigned char *out = call->pointers[inputs];
    size_t done = 0;

    for (uint32_t i = 0; i < inputs; i++) {
        const size_t bytes = call->program->tensors[step->args[i].tensor].bytes / step->outer;
        const unsigned char *in = call->pointers[i];
        for (size_t o = begin; o < end && bytes > 0; o++) {
            memcpy(out + o * row + done, in + o * bytes, bytes);
        }
        done += bytes;
    }
}

static enum leat_status
run_concat(const struct cpu_call *call)
{
    const size_t row = call->step->inner;
    cpu_share(call, concat_part, call->step->outer, row > 0 ? SHARED_LEAST / row + 1 : 1);
    return LEAT_OK;
}

static enum leat_status
concat_plain(struct cpu_builder *b, struct cpu_arg *args, size_t outer)
{
    const uint32_t count = b->node->input_count;
    struct cpu_step *step;
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        status = cpu_plain(b, b->node->inputs[i], &args[i].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[count].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, run_concat, args, count + 1, &step);
    }
    if (status == LEAT_OK) {
        step->outer = outer;
        step->inner = leat_value_bytes(leat_node_output(b->graph, b->node, 0)) / outer;
    }
    return status;
}

/* That takes a reorder for each input, and allocates in each run. */
static bool
copies_apart(const_dnnl_primitive_desc_t pd)
{
    const char *kernel = "";
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &kernel) == dnnl_success &&
           strncmp(kernel, "ref", 3) == 0;
}

/* The part of `all` that has `length` of the axis, from `begin` on. False where blocks of `all` would be cut. */
static bool
part_md(const dnnl_memory_desc_t *all, int axis, int64_t begin, int64_t length, dnnl_memory_desc_t *ret_md)
{
    dnnl_dims_t dims, offsets = {0};

    memcpy(dims, all->dims, sizeof(dims));
    dims[axis] = length;
    offsets[axis] = begin;
    return dnnl_memory_desc_init_submemory(ret_md, all, dims, offsets) == dnnl_success;
}

/* Inputs in layouts that differ: each is reordered into its part of a result in layout `as`, or a plain one. */
static enum leat_status
concat_apart(struct cpu_builder *b, const struct cpu_arg *args, int axis, const dnnl_memory_desc_t *as)
{
    const uint32_t count = b->node->input_count;
    const dnnl_memory_desc_t plain = cpu_value_md(leat_node_output(b->graph, b->node, 0));
    dnnl_memory_desc_t all = *as, part;
    uint32_t output, view;
    int64_t begin = 0;

    for (uint32_t i = 0; i < count; i++) {
        const int64_t length = leat_node_input(b->graph, b->node, i)->dims[axis];
        if (!part_md(&all, axis, begin, length, &part)) {
            all = plain;
            all.data_type = as->data_type;
        }
        begin += length;
    }
    enum leat_status status = cpu_new_tensor(b, &all, dnnl_memory_desc_get_size(&all), &output);
    begin = 0;
    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        const int64_t length = leat_node_input(b->graph, b->node, i)->dims[axis];
        LEAT_MUST(part_md(&all, axis, begin, length, &part));
        status = cpu_view(b, output, &part, &view);
        if (status == LEAT_OK) {
            status = cpu_add_reorder(b, args[i].tensor, view);
        }
        begin += length;
    }
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, output);
    }
    return status;
}

/* Feature maps: each in the layout that it has. */
static enum leat_status
concat_primitive(struct cpu_builder *b, struct cpu_arg *args, int axis)
{
    const uint32_t count = b->node->input_count;
    dnnl_memory_desc_t *mds = calloc(count, sizeof(*mds));
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t pd = NULL;
    bool all_plain = true;
    enum leat_status status = mds == NULL ? LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan") : LEAT_OK;

    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        args[i].id = DNNL_ARG_MULTIPLE_SRC + (int)i;
        status = cpu_best(b, b->node->inputs[i], &args[i].tensor);
        if (status == LEAT_OK) {
            mds[i] = b->program->tensors[args[i].tensor].md;
        }
        if (status == LEAT_OK && mds[i].data_type != mds[0].data_type) { /* not all were made in the model's precision */
            mds[i].data_type = mds[0].data_type;
            status = cpu_in_layout(b, b->node->inputs[i], &mds[i], &args[i].tensor);
        }
        const dnnl_memory_desc_t plain = cpu_value_md(leat_node_input(b->graph, b->node, i));
        all_plain = all_plain && cpu_same_bytes(&mds[i], &plain);
    }
    if (status == LEAT_OK) {
        status = CPU_TRY(b, "attributes", dnnl_primitive_attr_create(&attributes));
    }
    if (status == LEAT_OK) {
        status = CPU_TRY(b, "attributes", dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    }
    if (status == LEAT_OK) {
        const dnnl_status_t made = dnnl_concat_primitive_desc_create(&pd, NULL, (int)count, axis, mds, attributes,
                                                                     cpu_model_engine(b->model));
        status = made == dnnl_unimplemented ? LEAT_AGAIN : CPU_TRY(b, "concatenation", made);
    }
    (void)dnnl_primitive_attr_destroy(attributes);
    free(mds);
    if (status != LEAT_OK) {
        return status;
    }
    const dnnl_memory_desc_t dst = cpu_query_md(pd, dnnl_query_dst_md);
    const bool plain_loops = cpu_is_plain_loops(pd);
    if (plain_loops && (all_plain || copies_apart(pd))) {
        (void)dnnl_primitive_desc_destroy(pd);
        return all_plain ? LEAT_AGAIN : concat_apart(b, args, axis, &dst);
    }
    args[count].id = DNNL_ARG_DST;
    status = cpu_new_tensor(b, &dst, dnnl_memory_desc_get_size(&dst), &args[count].tensor);
    if (status != LEAT_OK) {
        (void)dnnl_primitive_desc_destroy(pd);
        return status;
    }
    status = cpu_add_primitive(b, pd, args, count + 1);
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, args[count].tensor);
    }
    return status;
}

enum leat_status
cpu_lower_concat(struct cpu_builder *b)
{
    const struct leat_value *y = leat_node_output(b->graph, b->node, 0);
    const int64_t axis = leat_node_axis(b->node, 0, y->rank);
    size_t outer = 1;
    bool feature_maps = cpu_value_md(y).ndims != 0 && y->rank >= 3 && b->node->input_count <= 64;

    if (leat_value_elements(y) == 0) {
        return LEAT_AGAIN;
    }
    for (int64_t d = 0; d < axis; d++) {
        outer *= (size_t)y->dims[d];
    }
    for (uint32_t i = 0; i < b->node->input_count; i++) {
        feature_maps = feature_maps && leat_value_elements(leat_node_input(b->graph, b->node, i)) > 0;
    }
    struct cpu_arg *args = calloc((size_t)b->node->input_count + 1, sizeof(*args));
    if (args == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    enum leat_status status = feature_maps ? concat_primitive(b, args, (int)axis) : LEAT_AGAIN;
    if (status == LEAT_AGAIN) {
        status = concat_plain(b, args, outer);
    }
    free(args);
    return status;
}

/* ---- Split ------------------------------------------------------------------------------------------ */

/* args: the input and an output, whose row of `inner` bytes begins at dims[0] of the input's, of dims[1] bytes. count: rows. */
static void
split_rows(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const unsigned char *in = (const unsigned char *)call->pointers[0] + step->dims[0];
    unsigned char *out = call->pointers[1];

    for (size_t row = begin; row < end; row++) {
        memcpy(out + row * step->inner, in + row * (size_t)step->dims[1], step->inner);
    }
}

static enum leat_status
run_split(const struct cpu_call *call)
{
    cpu_share(call, split_rows, call->step->count, SHARED_LEAST / call->step->inner + 1);
    return LEAT_OK;
}

/* One step for each part that somebody reads. */
enum leat_status
cpu_lower_split(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0);
    const int64_t axis = leat_node_axis(b->node, 0, x->rank);
    int64_t sizes[LEAT_NODE_OUTPUTS_MAX], element = (int64_t)leat_dtype_bytes(x->dtype), done = 0;
    struct cpu_arg args[2] = {{0, 0}, {0, 0}};
    struct cpu_step *step;
    size_t rows = 1;

    if (leat_value_elements(x) == 0 || !leat_split_sizes(b->graph, b->node, sizes)) {
        return LEAT_AGAIN;
    }
    for (uint32_t d = 0; d < x->rank; d++) {
        rows *= d < (uint32_t)axis ? (size_t)x->dims[d] : 1;
        element *= d > (uint32_t)axis ? x->dims[d] : 1;
    }
    enum leat_status status = cpu_plain(b, b->node->inputs[0], &args[0].tensor);
    for (uint32_t o = 0; o < b->node->output_count && status == LEAT_OK; done += sizes[o++] * element) {
        const struct leat_value *part = leat_node_output(b->graph, b->node, o);
        if (part == NULL) {
            continue;
        }
        status = cpu_plain_output(b, o, &args[1].tensor);
        if (status != LEAT_OK || leat_value_elements(part) == 0) {
            continue;
        }
        status = cpu_add_kernel(b, run_split, args, 2, &step);
        if (status == LEAT_OK) {
            step->count = rows;
            step->inner = (size_t)(sizes[o] * element);
            step->dims[0] = done;
            step->dims[1] = x->dims[axis] * element;
        }
    }
    return status;
}

/* ---- The reference functions ------------------------------------------------------------------------- */

static enum leat_status
run_reference(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    const struct leat_graph *graph = call->program->graph;
    const bool has_workspace = step->node->op->workspace_bytes != NULL;
    const struct leat_eval eval = {.graph = call->live != NULL ? call->live : graph,
                                   .node = step->node,
                                   .data = call->values,
                                   .values = call->live != NULL ? call->live->values : NULL,
                                   .workspace = has_workspace ? call->pointers[step->arg_count - 1] : NULL};
    if (call->live != NULL) {
        const enum leat_status status = leat_reference_shrink_outputs(graph, call->live, (uint32_t)(step->node - graph->nodes));
        if (status != LEAT_OK) {
            return status;
        }
    }
    return leat_reference_run_node(&eval);
}

bool
cpu_is_reference(const struct cpu_step *step)
{
    return step->kernel == run_reference;
}

enum leat_status
cpu_lower_reference(struct cpu_builder *b)
{
    const struct leat_node *node = b->node;
    struct cpu_arg *args = calloc((size_t)node->input_count + node->output_count + 2, sizeof(*args));
    struct cpu_step *step;
    uint32_t count = 0;
    enum leat_status status = args == NULL ? LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan") : LEAT_OK;

    for (uint32_t i = 0; i < node->input_count && status == LEAT_OK; i++) {
        if (node->inputs[i] != LEAT_VALUE_NONE) {
            status = cpu_plain(b, node->inputs[i], &args[count++].tensor);
        }
    }
    if (node->fused_add != LEAT_VALUE_NONE && status == LEAT_OK) {
        status = cpu_plain(b, node->fused_add, &args[count++].tensor);
    }
    for (uint32_t o = 0; o < node->output_count && status == LEAT_OK; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE) {
            status = cpu_plain_output(b, o, &args[count++].tensor);
        }
    }
    if (node->op->workspace_bytes != NULL && status == LEAT_OK) {
        const dnnl_memory_desc_t bytes = {.ndims = 0};
        status = cpu_new_tensor(b, &bytes, leat_reference_workspace_bytes(b->graph, node), &args[count++].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, run_reference, args, count, &step);
    }
    free(args);
    return status;
}
