/* SPDX-License-Identifier: Apache-2.0 */
/* MatMulInteger with a constant matrix, alone or with what makes floats of its sums. */
#include "base/align.h"
#include "kernels/cpu/integers.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"
#include "kernels/team.h"

enum { A, PACKED, WIDE, RESULT, OTHERS, ARGS_MAX = OTHERS + 6 }; /* then those of places[], and the addend */
enum { TEAM_LEAST = 1 << 18 }; /* products that are worth a team */

/* What a node may have beside its matrices: which of its inputs they are; 0: none. */
enum { A_ZERO, B_ZERO, A_SCALE, B_SCALE, BIAS, PLACES };
static const uint32_t of_sums[PLACES] = {2, 3, 0, 0, 0}, of_floats[PLACES] = {4, 5, 2, 3, 6};

static const uint32_t *
places_of(const struct leat_node *node)
{
    return node->op->kind == LEAT_OP_MATMUL_INTEGER ? of_sums : of_floats;
}

static const struct cpu_integers_kernel *
kernel_here(void)
{
    return cpu_has_avx512() ? &cpu_integers_avx512 : &cpu_integers_avx2;
}

/* Its sizes and types; the second operand is one matrix. */
static struct cpu_integers
integers_of(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *a = leat_node_input(graph, node, 0), *b = leat_node_input(graph, node, 1);
    const int64_t inner = a->dims[a->rank - 1];

    return (struct cpu_integers){.rows = (int64_t)leat_value_elements(a) / inner,
                                 .inner = inner,
                                 .columns = (int64_t)leat_value_elements(b) / inner,
                                 .a_signed = a->dtype == LEAT_DTYPE_I8,
                                 .b_signed = b->dtype == LEAT_DTYPE_I8};
}

/* ---- Runs ------------------------------------------------------------------------------------------- */

struct work {
    const struct cpu_call *call;
    struct cpu_integers p;
    uint32_t members;
};

/* What the node has, in the order of places[]; the step has what is there behind the others. */
static void
find_others(const struct cpu_call *call, struct cpu_integers *p)
{
    const struct leat_node *node = call->step->node;
    const uint32_t *places = places_of(node);
    const void *found[PLACES] = {NULL};
    int64_t counts[PLACES] = {0};
    uint32_t arg = OTHERS;

    for (uint32_t i = 0; i < PLACES; i++) {
        const struct leat_value *value = places[i] != 0 ? leat_node_input(call->program->graph, node, places[i]) : NULL;
        if (value != NULL) {
            found[i] = call->pointers[arg++];
            counts[i] = (int64_t)leat_value_elements(value);
        }
    }
    p->a_zeros = found[A_ZERO];
    p->a_zero_count = counts[A_ZERO];
    p->b_zeros = found[B_ZERO];
    p->b_zero_count = counts[B_ZERO];
    p->a_scale = found[A_SCALE];
    p->b_scales = found[B_SCALE];
    p->b_scale_count = counts[B_SCALE];
    p->bias = found[BIAS];
    p->addend = node->fused_add != LEAT_VALUE_NONE ? call->pointers[arg] : NULL;
}

/* Members that are to have all rows wait until they are there. */
static void
run_member(void *context, uint32_t member, uint32_t size)
{
    const struct work *work = context;
    const struct cpu_integers_kernel *kernel = kernel_here();
    void *const *pointers = work->call->pointers;
    const int64_t rows = work->p.rows, members = work->members;

    (void)size;
    if (member >= work->members) {
        return;
    }
    kernel->widen(&work->p, pointers[A], rows * member / members, rows * (member + 1) / members, pointers[WIDE]);
    if (members > 1) {
        leat_team_barrier(work->call->team, work->members);
    }
    kernel->multiply(&work->p, pointers[WIDE], pointers[PACKED], pointers[RESULT], member, work->members);
}

static enum leat_status
multiply(const struct cpu_call *call)
{
    const uint32_t threads = call->program->threads;
    struct work work = {call, integers_of(call->program->graph, call->step->node), 1};

    find_others(call, &work.p);
    work.members = threads > 1 && work.p.rows * work.p.columns >= TEAM_LEAST / work.p.inner ? threads : 1;
    if (work.members > 1) {
        leat_team_run(call->team, run_member, &work);
    } else {
        run_member(&work, 0, 1);
    }
    return LEAT_OK;
}

/* ---- Lowering --------------------------------------------------------------------------------------- */

static void
pack(const struct leat_value *b, void *ret_packed)
{
    const int64_t columns = b->rank > 1 ? b->dims[b->rank - 1] : 1;

    kernel_here()->pack(b->data, b->dtype == LEAT_DTYPE_I8, (int64_t)leat_value_elements(b) / columns, columns, ret_packed);
}

/* Not where b is computed, or several matrices. */
static bool
runs_here(const struct cpu_builder *b)
{
    const struct leat_value *w = leat_node_input(b->graph, b->node, 1);
    const size_t count = leat_value_elements(w);

    for (uint32_t d = 0; d + 2 < w->rank; d++) {
        if (w->dims[d] != 1) {
            return false;
        }
    }
    return cpu_vector_lanes() > 0 && w->data != NULL && count > 0 &&
           leat_value_elements(leat_node_input(b->graph, b->node, 0)) > 0;
}

enum leat_status
cpu_lower_integers(struct cpu_builder *b)
{
    const struct leat_node *node = b->node;
    const uint32_t *places = places_of(node);
    const dnnl_memory_desc_t none = {.ndims = 0};
    struct cpu_arg args[ARGS_MAX] = {{0, 0}};
    uint32_t count = OTHERS;
    struct cpu_step *step;

    if (!runs_here(b)) {
        return LEAT_AGAIN;
    }
    const struct cpu_integers p = integers_of(b->graph, node);
    enum leat_status status = cpu_plain(b, node->inputs[0], &args[A].tensor);
    if (status == LEAT_OK) {
        const size_t bytes = kernel_here()->packed_bytes(p.inner, p.columns);
        status = cpu_constant_packed(b, node->inputs[1], pack, bytes, &args[PACKED].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &none, (size_t)(p.rows * ((p.inner + 1) / 2)) * 2 * sizeof(int16_t), &args[WIDE].tensor);
    }
    for (uint32_t i = 0; i < PLACES && status == LEAT_OK; i++) {
        if (places[i] != 0 && leat_node_input(b->graph, node, places[i]) != NULL) {
            status = cpu_plain(b, node->inputs[places[i]], &args[count++].tensor);
        }
    }
    if (status == LEAT_OK && node->fused_add != LEAT_VALUE_NONE) {
        status = cpu_plain(b, node->fused_add, &args[count++].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[RESULT].tensor);
    }
    return status == LEAT_OK ? cpu_add_kernel(b, multiply, args, count, &step) : status;
}
