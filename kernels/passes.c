/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/align.h"
#include "kernels/passes/passes.h"

const struct leat_pass leat_passes[] = {
    {"fold-constants", "compute nodes whose inputs are all constant, and sizes that are known", leat_pass_fold_constants},
    {"fold-shapes", "make constants of sizes that are known, and of targets of Reshape that are but for one entry", leat_pass_fold_shapes},
    {"split-einsums", "make products of matrices of Einsums that are such, and of what brings axes into order",
     leat_pass_split_einsums},
    {"remove-identities", "drop nodes that return their input", leat_pass_remove_identities},
    {"shift-quantised", "count results that are quantised to s8 as u8", leat_pass_shift_quantised},
    {"fuse-quantised", "multiply, add and move 8-bit numbers where DequantizeLinear and QuantizeLinear stand around it",
     leat_pass_fuse_quantised},
    {"fold-dequantised", "compute weights from the 8-bit numbers that the file has", leat_pass_fold_dequantised},
    {"fuse-integers", "scale sums of products of 8-bit numbers, and add a bias to them, where they are made",
     leat_pass_fuse_integers},
    {"fuse-layer-norm", "make one node of mean, deviation, scale and shift", leat_pass_fuse_layer_norm},
    {"fuse-gelu", "make one node of GELU, by Erf or by Tanh", leat_pass_fuse_gelu},
    {"fuse-swish", "make one node of x Sigmoid(x) or x HardSigmoid(x)", leat_pass_fuse_swish},
    {"fuse-embedding", "add up rows of a table as they are looked up", leat_pass_fuse_embedding},
    {"fuse-attention", "make one node of Softmax(scale Q K^T + mask) V and of what splits and merges heads",
     leat_pass_fuse_attention},
    {"sink-transposes", "move Transposes below what works element by element, where that leaves fewer",
     leat_pass_sink_transposes},
    {"merge-transposes", "make one Transpose of two in a row, or none", leat_pass_merge_transposes},
    {"fold-bias", "add a constant after Conv, Gemm or MatMul into its bias", leat_pass_fold_bias},
    {"fold-batch-norm", "scale the weights of a Conv instead of its result",
     leat_pass_fold_batch_norm},
    {"fuse-add", "let Conv, Gemm, MatMul and MatMulIntegerToFloat add another tensor to their result", leat_pass_fuse_add},
    {"fuse-activation", "let Conv, Gemm and MatMul apply an activation", leat_pass_fuse_activation},
    {"remove-dead-code", "drop nodes and constants that no output needs",
     leat_pass_remove_dead_code},
    {"propagate-layouts", "hand on results as their kernels make them, in blocks or channels last: plain at the edges alone", NULL},
    {"plan-in-place", "write results over what nobody reads any more, and reshape without a copy", NULL},
    {"plan-memory", "give the same memory to what does not live at once", NULL},
};
enum { PLAN_PASSES = 3 };
_Static_assert(LEAT_PLANS_ALL == (1 << PLAN_PASSES) - 1, "one bit each");
const size_t leat_pass_count = LEAT_COUNT_OF(leat_passes) - PLAN_PASSES, leat_all_pass_count = LEAT_COUNT_OF(leat_passes);

/* Where numbers of 8 bits are multiplied is decided of the outermost graph alone (leat_graph_split_quantised). */
static bool
is_for_outermost(const struct leat_pass *pass)
{
    return pass->run == leat_pass_shift_quantised || pass->run == leat_pass_fuse_quantised ||
           pass->run == leat_pass_fold_dequantised || pass->run == leat_pass_fuse_integers;
}

static enum leat_status
run_passes(struct leat_graph *graph, uint64_t mask, bool inside)
{
    _Static_assert(LEAT_COUNT_OF(leat_passes) <= 64, "one bit each");
    for (size_t i = 0; i < leat_pass_count; i++) {
        bool changed = false;
        if ((mask >> i & 1) == 0 || (inside && is_for_outermost(&leat_passes[i]))) {
            continue;
        }
        enum leat_status status = leat_passes[i].run(graph, &changed);
        if (status == LEAT_OK && changed) {
            status = leat_graph_infer(graph); /* shapes may have become known */
        }
        if (status != LEAT_OK) {
            return leat_err_prefix(status, "pass %s", leat_passes[i].name);
        }
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        /* In bodies of loops sizes may be the first iteration's alone. */
        for (uint32_t a = 0; a < node->attribute_count && node->op->kind == LEAT_OP_IF; a++) {
            if (!leat_node_runs(graph, node, &node->attributes[a])) {
                continue; /* what it has need not even fit */
            }
            const enum leat_status status = run_passes(node->attributes[a].graph, mask, true); /* as deep as the file nests them */
            if (status != LEAT_OK) {
                return leat_node_failed(node, status);
            }
        }
    }
    return LEAT_OK;
}

enum leat_status
leat_graph_optimise(struct leat_graph *graph, uint64_t mask)
{
    graph->planned_without = (uint32_t)(~mask >> leat_pass_count & LEAT_PLANS_ALL);
    return run_passes(graph, mask, false);
}

/* leat_all_pass_count where there is none. */
static size_t
find_pass(const char *name, size_t length)
{
    for (size_t p = 0; p < leat_all_pass_count; p++) {
        if (strlen(leat_passes[p].name) == length && memcmp(leat_passes[p].name, name, length) == 0) {
            return p;
        }
    }
    return leat_all_pass_count;
}

static enum leat_status
refuse_name(const char *name, size_t length)
{
    char known[512] = "";
    size_t used = 0;

    for (size_t p = 0; p < leat_all_pass_count && used < sizeof(known); p++) {
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", p > 0 ? ", " : "", leat_passes[p].name);
    }
    return LEAT_FAIL(LEAT_ERR_INVALID, "there is no pass '%.*s'; there are %s", (int)(length < 64 ? length : 64), name,
                     known);
}

enum leat_status
leat_passes_without(const char *names, uint64_t *ret_mask)
{
    uint64_t mask = UINT64_MAX;

    for (const char *name = names; name != NULL;) {
        const size_t length = strcspn(name, ","), pass = find_pass(name, length);
        if (pass == leat_all_pass_count) {
            return refuse_name(name, length);
        }
        mask &= ~(UINT64_C(1) << pass);
        name = name[length] != '\0' ? name + length + 1 : NULL;
    }
    *ret_mask = mask;
    return LEAT_OK;
}
