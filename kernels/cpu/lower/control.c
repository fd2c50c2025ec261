/* SPDX-License-Identifier: Apache-2.0 */
/*
 * If whose condition is payload: both branches are programs of their own, which read the values around where these lie. Their
 * buffers share one tensor of the program around, since one of the two runs.
 */
#include <stdlib.h>

#include "kernels/cpu/program.h"
#include "kernels/graph_build.h"
#include "kernels/op.h"

/*
 * The loops in a branch have so many iterations together, which the reference functions count; products of 8-bit numbers that
 * cannot be done in such here are taken apart in the outermost graph alone (leat_graph_split_quantised).
 */
static bool
stays_whole(const struct leat_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        const enum leat_op_kind kind = node->op->kind;
        if (kind == LEAT_OP_LOOP || kind == LEAT_OP_SCAN || kind == LEAT_OP_QLINEAR_CONV || kind == LEAT_OP_QLINEAR_MATMUL) {
            return true;
        }
        for (uint32_t a = 0; a < node->attribute_count && kind == LEAT_OP_IF; a++) {
            if (stays_whole(node->attributes[a].graph)) {
                return true;
            }
        }
    }
    return false;
}

/* The condition, what both branches read, what the node makes, and where the branches' buffers lie. */
static enum leat_status
make_args(struct cpu_builder *b, size_t scratch_bytes, struct cpu_arg *args, uint32_t *ret_count)
{
    const dnnl_memory_desc_t bytes = {.ndims = 0};
    const struct leat_node *node = b->node;
    enum leat_status status = LEAT_OK;
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->input_count && status == LEAT_OK; i++) {
        status = cpu_plain(b, node->inputs[i], &args[count++].tensor);
    }
    for (uint32_t o = 0; o < node->output_count && status == LEAT_OK; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE) {
            status = cpu_plain_output(b, o, &args[count++].tensor);
        }
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &bytes, scratch_bytes, &args[count++].tensor);
    }
    *ret_count = count;
    return status;
}

enum leat_status
cpu_lower_if(struct cpu_builder *b)
{
    static const char *const names[] = {"else_branch", "then_branch"};
    const struct leat_node *node = b->node;
    struct cpu_branch branches[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
    size_t scratch_bytes = 0;
    uint32_t arg_count = 0;
    bool condition;

    if (leat_if_condition(b->graph, node, &condition)) { /* too large to be unrolled; the other branch need not even fit */
        return LEAT_AGAIN;
    }
    for (int i = 0; i < 2; i++) {
        if (stays_whole(leat_node_graph(node, names[i], &branches[i].first_input))) {
            return LEAT_AGAIN;
        }
    }
    struct cpu_arg *args = calloc((size_t)node->input_count + node->output_count + 1, sizeof(*args));
    enum leat_status status = args == NULL ? LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan") : LEAT_OK;
    for (int i = 0; i < 2 && status == LEAT_OK; i++) {
        struct leat_graph *inner = leat_node_graph(node, names[i], &branches[i].first_input);
        status = cpu_program_build_branch(b, inner, &branches[i].program);
        if (status == LEAT_OK && branches[i].program->scratch_bytes > scratch_bytes) {
            scratch_bytes = branches[i].program->scratch_bytes;
        }
    }
    if (status == LEAT_OK) {
        status = make_args(b, scratch_bytes, args, &arg_count);
    }
    if (status == LEAT_OK) {
        branches[0].scratch = branches[1].scratch = arg_count - 1;
        status = cpu_add_branches(b, branches, args, arg_count);
    } else {
        cpu_program_destroy(branches[0].program);
        cpu_program_destroy(branches[1].program);
    }
    free(args);
    return status;
}
