/* SPDX-License-Identifier: Apache-2.0 */
/* MatMulInteger with a constant matrix, alone or with what makes floats of its sums, and ConvInteger. */
#include "base/align.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/integers.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"
#include "kernels/team.h"

enum { A, PACKED, SCRATCH, RESULT, OTHERS, ARGS_MAX = OTHERS + 6 }; /* then those of places[], and the addend */
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
    const uint32_t vnni = dnnl_cpu_isa_avx512_core_vnni;
    return (dnnl_get_effective_cpu_isa() & vnni) == vnni ? &cpu_integers_vnni
           : cpu_has_avx512()                            ? &cpu_integers_avx512
                                                         : &cpu_integers_avx2;
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
    kernel->prepare(&work->p, pointers[A], pointers[PACKED], rows * member / members, rows * (member + 1) / members,
                    pointers[SCRATCH]);
    if (members > 1) {
        leat_team_barrier(work->call->team, work->members);
    }
    kernel->multiply(&work->p, pointers[SCRATCH], pointers[PACKED], pointers[RESULT], member, work->members);
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
    return cpu_vector_lanes() > 0 && w->data != NULL && count > 0 && count <= INT32_MAX && /* places in it have 32 bits */
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
        status = cpu_new_tensor(b, &none, kernel_here()->scratch_bytes(p.rows, p.inner), &args[SCRATCH].tensor);
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

/* ---- Convolutions ----------------------------------------------------------------------------------- */

enum { SOURCE, WEIGHTS, WIDE, SUMS, IMAGES, ZEROS, CONV_ARGS = ZEROS + 2 }; /* then the source's zero point and the weights' */

struct conv_work {
    const struct cpu_call *call;
    struct cpu_integers weights; /* rows are outputs of all groups */
    struct cpu_integers_conv p;
    struct leat_window window;
    uint32_t members;
};

static int64_t
taps_of(const struct leat_window *w)
{
    return w->kernel[0] * w->kernel[1] * w->kernel[2];
}

static size_t
sums_bytes(int64_t outputs)
{
    return (size_t)(outputs * kernel_here()->panel) * sizeof(int32_t);
}

static enum leat_status
describe_conv(const struct leat_graph *graph, const struct leat_node *node, struct conv_work *ret)
{
    const struct leat_value *x = leat_node_input(graph, node, 0), *w = leat_node_input(graph, node, 1);
    const int64_t groups = leat_node_int(node, "group", 1);

    const enum leat_status status = leat_window_of(graph, node, &ret->window);
    if (status == LEAT_OK) {
        const int64_t taps = taps_of(&ret->window);
        ret->weights = (struct cpu_integers){
            .rows = w->dims[0], .inner = w->dims[1] * taps, .columns = 1, .a_signed = w->dtype == LEAT_DTYPE_I8};
        ret->p = (struct cpu_integers_conv){.items = x->dims[0],
                                            .groups = groups,
                                            .inputs = w->dims[1],
                                            .outputs = w->dims[0] / groups,
                                            .taps = taps,
                                            .window = &ret->window,
                                            .source_signed = x->dtype == LEAT_DTYPE_I8};
    }
    return status;
}

static void
run_conv_member(void *context, uint32_t member, uint32_t size)
{
    const struct conv_work *work = context;
    const struct cpu_integers_kernel *kernel = kernel_here();
    void *const *pointers = work->call->pointers;
    const int64_t rows = work->weights.rows, members = work->members;

    (void)size;
    if (member >= work->members) {
        return;
    }
    kernel->widen(&work->weights, pointers[WEIGHTS], rows * member / members, rows * (member + 1) / members, pointers[WIDE]);
    if (members > 1) {
        leat_team_barrier(work->call->team, work->members);
    }
    int32_t *sums = (int32_t *)(void *)((unsigned char *)pointers[SUMS] + member * sums_bytes(work->p.outputs));
    kernel->convolve(&work->p, pointers[SOURCE], pointers[WIDE], sums, pointers[IMAGES], member, work->members);
}

static enum leat_status
convolve(const struct cpu_call *call)
{
    const struct leat_graph *graph = call->program->graph;
    const struct leat_node *node = call->step->node;
    const struct leat_value *zero = leat_node_input(graph, node, 2), *zeros = leat_node_input(graph, node, 3);
    const size_t results = leat_value_elements(leat_node_output(graph, node, 0));
    struct conv_work work = {.call = call};

    LEAT_MUST(describe_conv(graph, node, &work) == LEAT_OK);
    if (zero != NULL) {
        const uint8_t *of_source = call->pointers[ZEROS];
        work.p.source_zero = work.p.source_signed ? (int8_t)of_source[0] : of_source[0];
    }
    if (zeros != NULL) {
        work.weights.a_zeros = call->pointers[ZEROS + (zero != NULL)];
        work.weights.a_zero_count = (int64_t)leat_value_elements(zeros);
    }
    work.members = results >= (size_t)(TEAM_LEAST / work.weights.inner) ? call->program->threads : 1;
    if (work.members > 1) {
        leat_team_run(call->team, run_conv_member, &work);
    } else {
        run_conv_member(&work, 0, 1);
    }
    return LEAT_OK;
}

/* Places in a plane have 32 bits. */
static bool
convolves_here(const struct leat_graph *graph, const struct leat_node *node, const struct conv_work *work)
{
    return cpu_vector_lanes() > 0 && work->p.taps <= CPU_INTEGERS_TAPS_MAX &&
           leat_value_elements(leat_node_output(graph, node, 0)) > 0 && leat_value_elements(leat_node_input(graph, node, 1)) > 0 &&
           leat_value_elements(leat_node_input(graph, node, 0)) <= INT32_MAX;
}

enum leat_status
cpu_lower_conv_integer(struct cpu_builder *b)
{
    const struct leat_node *node = b->node;
    const dnnl_memory_desc_t none = {.ndims = 0};
    struct cpu_arg args[CONV_ARGS] = {{0, 0}};
    struct conv_work work = {.call = NULL};
    uint32_t count = ZEROS;
    struct cpu_step *step;

    enum leat_status status = describe_conv(b->graph, node, &work);
    if (status == LEAT_OK && !convolves_here(b->graph, node, &work)) {
        return LEAT_AGAIN;
    }
    for (uint32_t i = 0; i < 2 && status == LEAT_OK; i++) {
        status = cpu_plain(b, node->inputs[i], &args[SOURCE + i].tensor);
    }
    if (status == LEAT_OK) {
        const size_t bytes = (size_t)(work.weights.rows * ((work.weights.inner + 1) / 2)) * 2 * sizeof(int16_t);
        status = cpu_new_tensor(b, &none, bytes, &args[WIDE].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &none, b->program->threads * sums_bytes(work.p.outputs), &args[SUMS].tensor);
    }
    for (uint32_t i = 2; i < 4 && status == LEAT_OK; i++) {
        if (leat_node_input(b->graph, node, i) != NULL) {
            status = cpu_plain(b, node->inputs[i], &args[count++].tensor);
        }
    }
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[IMAGES].tensor);
    }
    return status == LEAT_OK ? cpu_add_kernel(b, convolve, args, count, &step) : status;
}
