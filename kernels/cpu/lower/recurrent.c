/* SPDX-License-Identifier: Apache-2.0 */
/* RNN, GRU and LSTM with constant weights, on a kernel of our own; others, and CPUs without AVX2, take plain loops. */
#include "base/align.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/recurrent.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"
#include "kernels/payload.h"

/* Inputs and outputs of the node, in its order. */
enum { X, W, R, B, LENGTHS, FIRST_H, FIRST_C, PEEPHOLES, INPUTS };
enum { Y, LAST_H, LAST_C, OUTPUTS };
/* args: the scratch, then all inputs and all outputs; the scratch stands for those that the node does not have. */
enum { SCRATCH, FIRST_INPUT, FIRST_OUTPUT = FIRST_INPUT + INPUTS, ARGS = FIRST_OUTPUT + OUTPUTS };

static enum leat_status
recurrent_of(const struct leat_graph *graph, const struct leat_node *node, struct cpu_recurrent *ret)
{
    *ret = (struct cpu_recurrent){
        .coupled = node->op->kind == LEAT_OP_LSTM && leat_node_int(node, "input_forget", 0) != 0,
        .reset_after = node->op->kind == LEAT_OP_GRU && leat_node_int(node, "linear_before_reset", 0) != 0,
        .clip = leat_node_float(node, "clip", 0),
    };
    return leat_recurrent_of(graph, node, &ret->geometry);
}

/* ---- The step --------------------------------------------------------------------------------------- */

struct work {
    const struct cpu_call *call;
    struct cpu_recurrent recurrent;
    struct cpu_recurrent_operands operands;
    uint32_t members;
};

static void
run_member(void *context, uint32_t member, uint32_t size)
{
    const struct work *work = context;

    (void)size;
    if (member < work->members) {
        cpu_recurrent_run(&work->recurrent, &work->operands, work->call->pointers[SCRATCH], work->call->team, member,
                          work->members);
    }
}

static const void *
input_of(const struct cpu_call *call, uint32_t i)
{
    return leat_node_input(call->program->graph, call->step->node, i) != NULL ? call->pointers[FIRST_INPUT + i] : NULL;
}

static void *
output_of(const struct cpu_call *call, uint32_t o)
{
    return leat_node_output(call->program->graph, call->step->node, o) != NULL ? call->pointers[FIRST_OUTPUT + o] : NULL;
}

/* Behind the kernel's scratch: the lengths that were checked. */
static size_t
lengths_at(const struct cpu_recurrent *recurrent, uint32_t threads)
{
    return (size_t)leat_round_up(cpu_recurrent_scratch_bytes(recurrent, threads), CPU_ALIGN);
}

/* Untrusted: each is read once. */
static enum leat_status
take_lengths(const struct cpu_call *call, const struct leat_recurrent *g, const void *lengths, int32_t *ret_lengths)
{
    for (int64_t item = 0; item < g->batch; item++) {
        const int64_t length = leat_payload_i32(lengths, (size_t)item);
        if (length < 0 || length > g->steps) {
            return LEAT_NODE_FAIL(call->step->node, LEAT_ERR_SHAPE, "a sequence of %lld in %lld steps", (long long)length,
                                  (long long)g->steps);
        }
        ret_lengths[item] = (int32_t)length;
    }
    return LEAT_OK;
}

static enum leat_status
run_recurrent(const struct cpu_call *call)
{
    struct work work = {
        .call = call,
        .operands = {.x = input_of(call, X), .weights = input_of(call, W), .recurrence = input_of(call, R), .bias = input_of(call, B),
                     .first_h = input_of(call, FIRST_H), .first_c = input_of(call, FIRST_C),
                     .peepholes = input_of(call, PEEPHOLES), .y = output_of(call, Y), .last_h = output_of(call, LAST_H),
                     .last_c = output_of(call, LAST_C)},
    };

    const void *lengths = input_of(call, LENGTHS);
    enum leat_status status = recurrent_of(call->program->graph, call->step->node, &work.recurrent);
    if (status == LEAT_OK && lengths != NULL) {
        unsigned char *scratch = call->pointers[SCRATCH];
        int32_t *taken = (int32_t *)(void *)(scratch + lengths_at(&work.recurrent, call->program->threads));
        status = take_lengths(call, &work.recurrent.geometry, lengths, taken);
        work.operands.lengths = taken;
    }
    if (status != LEAT_OK) {
        return status;
    }
    work.members = cpu_recurrent_members(&work.recurrent, call->program->threads);
    if (work.members > 1) {
        leat_team_run(call->team, run_member, &work);
    } else {
        run_member(&work, 0, 1);
    }
    return LEAT_OK;
}

/* ---- Lowering --------------------------------------------------------------------------------------- */

static void
pack(const struct leat_value *value, uint32_t gates, void *ret_packed)
{
    cpu_recurrent_pack((uint32_t)value->dims[0], gates, value->dims[1] / gates, value->dims[2], value->data, ret_packed);
}

static void
pack_rnn(const struct leat_value *value, void *ret_packed)
{
    pack(value, 1, ret_packed);
}

static void
pack_gru(const struct leat_value *value, void *ret_packed)
{
    pack(value, 3, ret_packed);
}

static void
pack_lstm(const struct leat_value *value, void *ret_packed)
{
    pack(value, 4, ret_packed);
}

static enum leat_status
add_weights(struct cpu_builder *b, const struct leat_recurrent *g, uint32_t input, int64_t inner, uint32_t *ret_tensor)
{
    const cpu_pack how = g->gates == 4 ? pack_lstm : g->gates == 3 ? pack_gru : pack_rnn;
    return cpu_constant_packed(b, b->node->inputs[input], how, cpu_recurrent_weights_bytes(g, inner), ret_tensor);
}

static enum leat_status
add_operands(struct cpu_builder *b, const struct leat_recurrent *g, struct cpu_arg args[ARGS])
{
    const struct leat_node *node = b->node;

    enum leat_status status = add_weights(b, g, W, g->input, &args[FIRST_INPUT + W].tensor);
    if (status == LEAT_OK) {
        status = add_weights(b, g, R, g->hidden, &args[FIRST_INPUT + R].tensor);
    }
    for (uint32_t i = 0; i < INPUTS && status == LEAT_OK; i++) {
        if (i != W && i != R && leat_node_input(b->graph, node, i) != NULL) {
            status = cpu_plain(b, node->inputs[i], &args[FIRST_INPUT + i].tensor);
        }
    }
    for (uint32_t o = 0; o < OUTPUTS && status == LEAT_OK; o++) {
        if (leat_node_output(b->graph, node, o) != NULL) {
            status = cpu_plain_output(b, o, &args[FIRST_OUTPUT + o].tensor);
        }
    }
    return status;
}

enum leat_status
cpu_lower_recurrent(struct cpu_builder *b)
{
    const dnnl_memory_desc_t none = {.ndims = 0};
    struct cpu_arg args[ARGS];
    struct cpu_recurrent recurrent;
    struct cpu_step *step;
    uint32_t scratch;

    enum leat_status status = recurrent_of(b->graph, b->node, &recurrent);
    const struct leat_recurrent *g = &recurrent.geometry;
    if (status != LEAT_OK || leat_node_input(b->graph, b->node, W)->data == NULL ||
        leat_node_input(b->graph, b->node, R)->data == NULL || g->steps < 1 || g->batch < 1 || g->input < 1 ||
        !cpu_has_avx2()) {
        return status == LEAT_OK ? LEAT_AGAIN : status;
    }
    const size_t bytes = lengths_at(&recurrent, b->program->threads) + (size_t)g->batch * sizeof(int32_t);
    status = cpu_new_tensor(b, &none, bytes, &scratch);
    for (uint32_t i = 0; i < ARGS; i++) {
        args[i] = (struct cpu_arg){0, scratch};
    }
    if (status == LEAT_OK) {
        status = add_operands(b, g, args);
    }
    return status == LEAT_OK ? cpu_add_kernel(b, run_recurrent, args, ARGS, &step) : status;
}
