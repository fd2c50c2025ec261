/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups in tables and ranges of tensors. */
#include <stdatomic.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"
#include "kernels/payload.h"
#include "kernels/team.h"

enum {
    AHEAD = 12,             /* rows that are asked for before they are read: tables do not fit into the caches */
    BAG_COLUMNS = 32,       /* whose sums stay in registers */
    AHEAD_BYTES = 512,      /* of each */
    SHARED_LEAST = 16 << 10, /* bytes for each member of a team */
    TOGETHER_MAX = 256,     /* look-ups, each of which is compared with all before it */
    SLICES_MAX = 256        /* of an input, each of which is compared with all */
};

/* ---- Indices ---------------------------------------------------------------------------------------- */

/* Untrusted: read once, and what was read is checked. False, and *ret untouched, when it is outside of 0..rows. */
static bool
row_at(const struct cpu_step *step, const unsigned char *indices, size_t i, size_t *ret)
{
    const int64_t rows = step->dims[0];
    const int64_t index = step->element_bytes == sizeof(int32_t) ? leat_payload_i32(indices, i) : leat_payload_i64(indices, i);

    if (LEAT_UNLIKELY(index < -rows || index >= rows)) {
        return false;
    }
    *ret = (size_t)(index < 0 ? index + rows : index);
    return true;
}

/* Asks for the row that index i names, if it names one; `last` is the number of indices. */
static void
prefetch_row(const struct cpu_step *step, const unsigned char *data, const unsigned char *indices, size_t i, size_t last)
{
    size_t row;

    if (i < last && row_at(step, indices, i, &row)) {
        const unsigned char *from = data + row * step->inner;
        for (size_t byte = 0; byte < step->inner && byte < AHEAD_BYTES; byte += 64) {
            __builtin_prefetch(from + byte);
        }
    }
}

static enum leat_status
outside(const struct cpu_call *call)
{
    return LEAT_NODE_FAIL(call->step->node, LEAT_ERR_SHAPE, "an index is outside of %lld rows",
                          (long long)call->step->dims[0]);
}

/* Whoever reads an index checks it; what is wrong is said by the thread that runs the plan, for errors are its own. */
static enum leat_status
share_look_ups(const struct cpu_call *call, bool (*part)(const struct cpu_call *call, size_t begin, size_t end),
               size_t count, size_t bytes)
{
    return cpu_share_checked(call, part, count, bytes > 0 ? SHARED_LEAST / bytes + 1 : 1) ? LEAT_OK : outside(call);
}

/* ---- Gather ----------------------------------------------------------------------------------------- */

/* args: data, indices, output. outer x dims[0] rows of `inner` bytes; `count` indices of element_bytes. */
static bool
gather_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const unsigned char *data = call->pointers[0], *indices = call->pointers[1];
    unsigned char *out = call->pointers[2];
    const size_t plane = (size_t)step->dims[0] * step->inner;

    for (size_t i = begin; i < end; i++) {
        size_t row;
        if (!row_at(step, indices, i, &row)) {
            return false;
        }
        if (step->outer == 1) {
            prefetch_row(step, data, indices, i + AHEAD, end);
        }
        const unsigned char *from = data + row * step->inner;
        unsigned char *to = out + i * step->inner;
        if (step->inner == sizeof(float)) {
            for (size_t o = 0; o < step->outer; o++, from += plane, to += step->count * sizeof(float)) {
                memcpy(to, from, sizeof(float));
            }
            continue;
        }
        for (size_t o = 0; o < step->outer; o++, from += plane, to += step->count * step->inner) {
            memcpy(to, from, step->inner);
        }
    }
    return true;
}

static enum leat_status
gather(const struct cpu_call *call)
{
    return share_look_ups(call, gather_part, call->step->count, call->step->outer * call->step->inner);
}

/* ---- Several at once -------------------------------------------------------------------------------- */

struct together {
    const struct cpu_call *first;
    uint32_t members;
    atomic_uint wrong; /* the first look-up with an index outside, or CPU_NONE; as in cpu_share_checked() */
};

static struct cpu_call
call_of(const struct cpu_call *first, uint32_t k)
{
    struct cpu_call call = *first;

    call.step += k;
    call.pointers += call.step->first_arg - first->step->first_arg;
    return call;
}

/* A member's rows of each. The first rows of a table come while those of the one before are read. */
static void
run_together(void *context, uint32_t member, uint32_t size)
{
    struct together *t = context;
    const uint32_t count = t->first->step->together;

    (void)size;
    for (uint32_t k = 0; k < count && member < t->members; k++) {
        const struct cpu_call call = call_of(t->first, k);
        const size_t rows = call.step->count, begin = rows * member / t->members, end = rows * (member + 1) / t->members;
        if (k + 1 < count) {
            const struct cpu_call next = call_of(t->first, k + 1);
            const size_t last = next.step->count * (member + 1) / t->members;
            for (size_t i = next.step->count * member / t->members, a = 0; a < AHEAD && next.step->outer == 1; i++, a++) {
                prefetch_row(next.step, next.pointers[0], next.pointers[1], i, last);
            }
        }
        if (!gather_part(&call, begin, end)) {
            uint32_t wrong = atomic_load_explicit(&t->wrong, memory_order_relaxed);
            while (k < wrong && !atomic_compare_exchange_weak_explicit(&t->wrong, &wrong, k, memory_order_relaxed,
                                                                       memory_order_relaxed)) {
            }
            return;
        }
    }
}

enum leat_status
cpu_look_up_together(const struct cpu_call *first)
{
    struct together t = {.first = first, .wrong = CPU_NONE};
    size_t bytes = 0;

    for (uint32_t k = 0; k < first->step->together; k++) {
        const struct cpu_step *step = first->step + k;
        bytes += step->count * step->outer * step->inner;
    }
    const size_t rows = first->step->count, worth = bytes / SHARED_LEAST, most = worth < rows ? worth : rows;
    const size_t threads = first->program->threads;
    t.members = (uint32_t)(most < 1 ? 1 : most < threads ? most : threads);
    if (t.members > 1) {
        leat_team_run(first->team, run_together, &t);
    } else {
        run_together(&t, 0, 1);
    }
    const uint32_t wrong = atomic_load_explicit(&t.wrong, memory_order_relaxed);
    if (wrong == CPU_NONE) {
        return LEAT_OK;
    }
    const struct cpu_call call = call_of(first, wrong);
    return outside(&call);
}

/* As many rows as the step `from`, and it looks into nothing that one from there on makes. */
static bool
may_join(const struct cpu_program *program, uint32_t from, const struct cpu_step *step)
{
    if (step->kernel != gather || step->count != program->steps[from].count) {
        return false;
    }
    for (const struct cpu_step *other = program->steps + from; other < step; other++) {
        const uint32_t made = program->tensors[other->args[2].tensor].buffer;
        if (made == program->tensors[step->args[0].tensor].buffer || made == program->tensors[step->args[1].tensor].buffer) {
            return false;
        }
    }
    return true;
}

void
cpu_join_look_ups(struct cpu_program *program)
{
    for (uint32_t s = 0, end; s < program->step_count; s = end > s ? end : s + 1) {
        for (end = s; end < program->step_count && end - s < TOGETHER_MAX && may_join(program, s, &program->steps[end]);) {
            program->steps[end].behind = end - s;
            end++;
        }
        program->steps[s].together = end - s > 1 ? end - s : 0;
    }
    for (uint32_t i = 0; i < program->buffer_count; i++) { /* what one writes, none may read before */
        struct cpu_buffer *buffer = &program->buffers[i];
        if (buffer->first != CPU_NONE && buffer->first < program->step_count) {
            buffer->first -= program->steps[buffer->first].behind;
        }
    }
}

/* ---- Lowering --------------------------------------------------------------------------------------- */

/* Table and indices as they are, and the step's parameters that say what they are. */
static enum leat_status
add_look_up(struct cpu_builder *b, enum leat_status (*kernel)(const struct cpu_call *call), int64_t axis,
            struct cpu_step **ret_step)
{
    const struct leat_value *data = leat_node_input(b->graph, b->node, 0), *indices = leat_node_input(b->graph, b->node, 1);
    struct cpu_arg args[3] = {{0, 0}, {0, 0}, {0, 0}};

    if (leat_value_elements(leat_node_output(b->graph, b->node, 0)) == 0) {
        return LEAT_AGAIN; /* no index is used, so none is wrong */
    }
    enum leat_status status = cpu_table(b, b->node->inputs[0], &args[0].tensor);
    if (status == LEAT_OK) {
        status = cpu_plain(b, b->node->inputs[1], &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[2].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, kernel, args, 3, ret_step);
    }
    if (status != LEAT_OK) {
        return status;
    }
    struct cpu_step *step = *ret_step;
    step->outer = 1;
    step->inner = leat_dtype_bytes(data->dtype);
    for (uint32_t d = 0; d < data->rank; d++) {
        step->outer *= (int64_t)d < axis ? (size_t)data->dims[d] : 1;
        step->inner *= (int64_t)d > axis ? (size_t)data->dims[d] : 1;
    }
    step->count = leat_value_elements(indices);
    step->dims[0] = data->dims[axis];
    step->element_bytes = leat_dtype_bytes(indices->dtype);
    return LEAT_OK;
}

enum leat_status
cpu_lower_gather(struct cpu_builder *b)
{
    struct cpu_step *step;
    return add_look_up(b, gather, leat_node_axis(b->node, 0, leat_node_input(b->graph, b->node, 0)->rank), &step);
}

/* ---- Sums of rows ----------------------------------------------------------------------------------- */

/* As gather, for bags of dims[1] indices each: `columns`, a constant or fewer than BAG_COLUMNS, of one bag from `first` on. */
static inline __attribute__((always_inline)) bool
sum_bag(const struct cpu_call *call, size_t item, size_t last, size_t first, const size_t columns)
{
    const struct cpu_step *step = call->step;
    const unsigned char *data = call->pointers[0], *indices = call->pointers[1];
    const size_t bag = (size_t)step->dims[1];
    float sums[BAG_COLUMNS] = {0};

    for (size_t i = item * bag; i < (item + 1) * bag; i++) {
        size_t row;
        if (!row_at(step, indices, i, &row)) {
            return false;
        }
        if (first == 0) {
            prefetch_row(step, data, indices, i + AHEAD, last * bag);
        }
        const float *from = (const float *)(const void *)(data + row * step->inner) + first;
        for (size_t c = 0; c < columns; c++) {
            sums[c] += from[c];
        }
    }
    memcpy((float *)call->pointers[2] + item * (step->inner / sizeof(float)) + first, sums, columns * sizeof(*sums));
    return true;
}

static bool
bag_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const size_t width = call->step->inner / sizeof(float);

    for (size_t item = begin; item < end; item++) {
        for (size_t first = 0; first < width; first += BAG_COLUMNS) {
            const size_t left = width - first;
            if (!(left >= BAG_COLUMNS ? sum_bag(call, item, end, first, BAG_COLUMNS) : sum_bag(call, item, end, first, left))) {
                return false;
            }
        }
    }
    return true;
}

static enum leat_status
bag(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    return share_look_ups(call, bag_part, step->outer, (size_t)step->dims[1] * step->inner);
}

enum leat_status
cpu_lower_embedding_bag(struct cpu_builder *b)
{
    const struct leat_value *indices = leat_node_input(b->graph, b->node, 1);
    struct cpu_step *step;
    const enum leat_status status = add_look_up(b, bag, 0, &step);
    if (status == LEAT_OK) {
        step->outer = (size_t)indices->dims[0];
        step->dims[1] = indices->dims[1];
    }
    return status;
}

/* ---- Slice ------------------------------------------------------------------------------------------ */

/*
 * args: input, output. Rows of `inner` bytes; dims count them, strides say where they lie in the input, in bytes. Where that is by
 * item, the first dim counts these.
 */
static void
slice_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const bool by_item = call->program->tensors[step->args[0].tensor].by_item;
    const unsigned char *const *items = call->pointers[0];
    unsigned char *out = call->pointers[1];

    for (size_t row = begin; row < end; row++) {
        ptrdiff_t offset = (ptrdiff_t)step->outer;
        size_t rest = row;
        for (uint32_t d = step->rank; d-- > (by_item ? 1 : 0);) {
            offset += (ptrdiff_t)(rest % (size_t)step->dims[d]) * step->strides[d];
            rest /= (size_t)step->dims[d];
        }
        const unsigned char *in = by_item ? items[rest] : call->pointers[0];
        memcpy(out + row * step->inner, in + offset, step->inner);
    }
}

static enum leat_status
slice(const struct cpu_call *call)
{
    cpu_share(call, slice_part, call->step->count, SHARED_LEAST / call->step->inner + 1);
    return LEAT_OK;
}

/* Of which axis but the first it takes a part alone, one element after the other; 0: it does something else. */
static uint32_t
axis_of(const struct leat_value *x, const struct leat_slice *range)
{
    uint32_t axis = 0, cut = 0;

    for (uint32_t d = 0; d < x->rank; d++) {
        if (range->start[d] != 0 || range->step[d] != 1 || range->count[d] != x->dims[d]) {
            axis = range->step[d] == 1 ? d : 0;
            cut++;
        }
    }
    return cut == 1 ? axis : 0;
}

/* The node, which slices the same value, does so along the same axis, and no element that it takes is in the range. */
static bool
slices_beside(const struct cpu_builder *b, const struct leat_node *node, uint32_t axis, const struct leat_slice *range)
{
    struct leat_slice own;
    bool known = false;

    return leat_slice_of(b->graph, node, &own, &known) == LEAT_OK && known &&
           axis_of(leat_node_input(b->graph, node, 0), &own) == axis &&
           (own.start[axis] >= range->start[axis] + range->count[axis] ||
            range->start[axis] >= own.start[axis] + own.count[axis]);
}

/*
 * Parts of a large input that are read once, where queries have them: what is behind them sees the same numbers in all of its
 * steps, though a client may change them. So no two that slice it read the same. Who else reads it takes what it reads as
 * numbers alone, or has it copied for all.
 */
static bool
slices_apart(const struct cpu_builder *b, const struct leat_slice *range)
{
    const struct leat_graph *graph = b->graph;
    const uint32_t value = b->node->inputs[0], axis = axis_of(&graph->values[value], range);
    uint32_t slices = 0;
    bool apart = axis != 0;

    for (uint32_t n = 0; n < graph->node_count && apart; n++) {
        const struct leat_node *node = &graph->nodes[n];
        if (node != b->node && node->op->kind == LEAT_OP_SLICE && node->inputs[0] == value) {
            apart = slices++ < SLICES_MAX && slices_beside(b, node, axis, range);
        }
    }
    return apart;
}

enum leat_status
cpu_lower_slice(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *y = leat_node_output(b->graph, b->node, 0);
    struct cpu_arg args[2] = {{0, 0}};
    struct leat_slice range;
    struct cpu_step *step;
    bool known;
    int64_t stride[LEAT_RANK_MAX], size = (int64_t)leat_dtype_bytes(x->dtype);

    enum leat_status status = leat_slice_of(b->graph, b->node, &range, &known);
    if (status != LEAT_OK) {
        return status;
    }
    if (!known || leat_value_elements(y) == 0) {
        return LEAT_AGAIN;
    }
    status = cpu_plain(b, b->node->inputs[0], &args[0].tensor);
    if (status == LEAT_OK && cpu_gathers(b, args[0].tensor) && slices_apart(b, &range)) {
        status = cpu_by_item(b, args[0].tensor, &args[0].tensor);
        status = status == LEAT_AGAIN ? LEAT_OK : status;
    }
    const bool by_item = status == LEAT_OK && b->program->tensors[args[0].tensor].by_item;
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, slice, args, 2, &step);
    }
    if (status != LEAT_OK) {
        return status;
    }
    step->inner = (size_t)size;
    step->rank = x->rank;
    for (uint32_t d = x->rank; d-- > 0;) {
        stride[d] = size;
        size *= x->dims[d];
        step->outer += (size_t)(range.start[d] * stride[d]);
    }
    /* Neighbours that follow each other in both are copied at once. */
    while (step->rank > (by_item ? 1 : 0)) {
        const uint32_t d = step->rank - 1;
        if (range.step[d] != 1) {
            break;
        }
        step->inner *= (size_t)range.count[d];
        step->rank--;
        if (range.count[d] != x->dims[d]) {
            break;
        }
    }
    step->count = leat_value_bytes(y) / step->inner;
    for (uint32_t d = 0; d < step->rank; d++) {
        step->dims[d] = range.count[d];
        step->strides[d] = range.step[d] * stride[d];
    }
    return LEAT_OK;
}
