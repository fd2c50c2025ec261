/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/recurrent_body.h - what recurrent_kernel.h lists, in vectors of CPU_VECTOR_BITS. Included by one file for
 * each width.
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/loops/direct_kernel.h"
#include "kernels/cpu/loops/exponential.h"
#include "kernels/cpu/loops/logarithm.h"
#include "kernels/cpu/loops/recurrent_kernel.h"

enum {
    CHUNK_ROWS = 48,       /* inputs, of some steps and all items, whose products with the weights are made at once */
    PRODUCTS_EACH = 32768, /* multiplications of a step that are worth one more member */
};

/* Gates lie in the order i, o, f, c of an LSTM and z, r, h of a GRU. */
enum { INPUT, OUTPUT, FORGET, CELL };
enum { UPDATE, RESET, STATE };

struct work {
    const struct cpu_recurrent *r;
    const struct cpu_recurrent_operands *o;
    int64_t batch, hidden, gates, directions;
    int64_t padded;    /* hidden, up to whole vectors */
    int64_t chunk;     /* steps of which from_x is there at once */
    float *from_x;     /* [directions][gates][chunk * batch][padded] */
    float *bias;       /* [directions][gates + 1][padded]: what is added to from_x, and to a product that lies apart */
    float *h[2];       /* [directions][batch][padded], of this step and the next */
    float *c, *update; /* the same: an LSTM's cells; of a GRU z, */
    float *reset;      /* r, or r h, */
    float *apart;      /* and the product that r comes before */
    const float **rows; /* [CHUNK_ROWS or batch], this member's */
};

/* Some of one direction. */
struct units {
    int64_t direction, first, vectors;
};

/* ---- Geometry --------------------------------------------------------------------------------------- */

static int64_t
vectors_of(const struct leat_recurrent *g)
{
    return (g->hidden + CPU_LANES - 1) / CPU_LANES;
}

static int64_t
chunk_of(const struct leat_recurrent *g)
{
    const int64_t steps = CHUNK_ROWS / g->batch;
    return steps < 1 ? 1 : steps < g->steps ? steps : g->steps;
}

/* One direction and gate is packed as the weights of a convolution of one pixel. */
static struct cpu_direct
gate_of(int64_t hidden, int64_t inner)
{
    return (struct cpu_direct){.inputs = inner, .outputs = hidden, .kernel_down = 1, .kernel_across = 1};
}

static size_t
gate_floats(int64_t hidden, int64_t inner)
{
    const struct cpu_direct gate = gate_of(hidden, inner);
    return ROWS_KERNEL.weights_bytes(&gate) / sizeof(float);
}

static size_t
weights_bytes(const struct leat_recurrent *g, int64_t inner)
{
    return g->directions * g->gates * gate_floats(g->hidden, inner) * sizeof(float);
}

static void
pack(uint32_t directions, uint32_t gates, int64_t hidden, int64_t inner, const float *weights, float *ret_packed)
{
    const struct cpu_direct gate = gate_of(hidden, inner);

    for (uint32_t i = 0; i < directions * gates; i++) {
        ROWS_KERNEL.pack(&gate, weights + i * hidden * inner, ret_packed + i * gate_floats(hidden, inner));
    }
}

static int64_t
rows_of(const struct leat_recurrent *g)
{
    return chunk_of(g) * g->batch;
}

static int64_t
states_of(const struct leat_recurrent *g)
{
    return g->directions * g->batch * vectors_of(g) * CPU_LANES;
}

static int64_t
biases_of(const struct leat_recurrent *g)
{
    return g->directions * (g->gates + 1) * vectors_of(g) * CPU_LANES;
}

/* The members' lists of rows come first. */
static size_t
list_bytes(const struct leat_recurrent *g)
{
    return (size_t)leat_round_up((uint64_t)rows_of(g) * sizeof(float *), 64);
}

static uint32_t
members_of(const struct cpu_recurrent *r, uint32_t threads)
{
    const struct leat_recurrent *g = &r->geometry;
    const int64_t vectors = g->directions * vectors_of(g);
    const int64_t products = vectors * CPU_LANES * g->gates * g->hidden * g->batch / PRODUCTS_EACH;
    const int64_t most = products < vectors ? products : vectors;

    return most < 1 ? 1 : most < (int64_t)threads ? (uint32_t)most : threads;
}

static size_t
scratch_bytes(const struct cpu_recurrent *r, uint32_t threads)
{
    const struct leat_recurrent *g = &r->geometry;
    const int64_t floats = states_of(g) * (chunk_of(g) * g->gates + 5) + biases_of(g);
    return list_bytes(g) * members_of(r, threads) + (size_t)floats * sizeof(float);
}

static struct work
work_of(const struct cpu_recurrent *r, const struct cpu_recurrent_operands *o, void *scratch, uint32_t member, uint32_t members)
{
    const struct leat_recurrent *g = &r->geometry;
    struct work w = {.r = r, .o = o, .batch = g->batch, .hidden = g->hidden, .gates = g->gates, .directions = g->directions,
                     .padded = vectors_of(g) * CPU_LANES, .chunk = chunk_of(g)};
    const int64_t states = states_of(g);

    w.rows = (const float **)((unsigned char *)scratch + member * list_bytes(g));
    w.from_x = (float *)((unsigned char *)scratch + members * list_bytes(g));
    w.bias = w.from_x + w.chunk * w.gates * states;
    w.h[0] = w.bias + biases_of(g);
    w.h[1] = w.h[0] + states;
    w.c = w.update = w.h[1] + states;
    w.reset = w.update + states;
    w.apart = w.reset + states;
    return w;
}

/* What is there of one gate's weights. */
static const float *
weights_of(const struct work *w, const float *packed, int64_t inner, const struct units *u, int64_t gate)
{
    return packed + (u->direction * w->gates + gate) * (int64_t)gate_floats(w->hidden, inner);
}

/* Of the first item in a step, all units. */
static float *
from_x_of(const struct work *w, int64_t step, const struct units *u, int64_t gate)
{
    return w->from_x + ((u->direction * w->gates + gate) * w->chunk + step % w->chunk) * w->batch * w->padded;
}

/* `gate` is w->gates of the product that lies apart. */
static float *
bias_of(const struct work *w, const struct units *u, int64_t gate)
{
    return w->bias + (u->direction * (w->gates + 1) + gate) * w->padded;
}

static int64_t
state_at(const struct work *w, int64_t item, const struct units *u)
{
    return (u->direction * w->batch + item) * w->padded + u->first;
}

static int64_t
length_of(const struct work *w, int64_t item)
{
    return w->o->lengths != NULL ? w->o->lengths[item] : w->r->geometry.steps;
}

/* Which step of an item is the n-th. */
static int64_t
step_of(const struct work *w, int64_t n, int64_t item, int64_t direction)
{
    const bool backwards = w->r->geometry.reverse || direction == 1;
    return backwards && n < length_of(w, item) ? length_of(w, item) - 1 - n : n;
}

/* How many there are from the units' vector v on. */
static int64_t
there(const struct work *w, const struct units *u, int64_t v)
{
    return w->hidden - u->first - v * CPU_LANES;
}

/* ---- Products --------------------------------------------------------------------------------------- */

/* Rows times the weights of one gate; bias is NULL: the products are added to what the result has. */
static void
multiply(const struct work *w, const struct units *u, int64_t count, int64_t inner, const float *weights, const float *bias,
         float *result)
{
    const struct cpu_direct gate = {.inputs = inner, .outputs = w->padded, .kernel_down = 1, .kernel_across = 1, .add = bias == NULL,
                                    .least = -INFINITY, .most = INFINITY};
    const int64_t first = u->first / CPU_LANES;

    ROWS_KERNEL.multiply(&gate, w->rows, count, weights, bias, first, first + u->vectors, result);
}

/* The product of a GRU with reset_after keeps its bias to itself. */
static bool
is_apart(const struct work *w, int64_t gate)
{
    return w->r->reset_after && gate == STATE;
}

CPU_KERNEL static void
load_biases(const struct work *w, const struct units *u)
{
    const int64_t of_half = w->gates * w->hidden;

    for (int64_t gate = 0; gate < w->gates; gate++) {
        for (int64_t v = 0; v < u->vectors; v++) {
            const int64_t unit = u->first + v * CPU_LANES;
            cpu_floats of_x = CPU_V(setzero)(), of_h = CPU_V(setzero)();
            if (w->o->bias != NULL) {
                const float *from = w->o->bias + u->direction * 2 * of_half + gate * w->hidden + unit;
                of_x = cpu_load_first(from, there(w, u, v));
                of_h = cpu_load_first(from + of_half, there(w, u, v));
            }
            if (is_apart(w, gate)) {
                CPU_V(store)(bias_of(w, u, w->gates) + unit, of_h);
                of_h = CPU_V(setzero)();
            }
            CPU_V(store)(bias_of(w, u, gate) + unit, CPU_V(add)(of_x, of_h));
        }
    }
}

/* What the inputs of steps begin..end add to the gates. */
static void
add_inputs(const struct work *w, const struct units *u, int64_t begin, int64_t end)
{
    const struct leat_recurrent *g = &w->r->geometry;
    const int64_t count = (end - begin) * w->batch;

    for (int64_t row = 0; row < count; row++) {
        const int64_t item = row % w->batch, step = step_of(w, begin + row / w->batch, item, u->direction);
        w->rows[row] = w->o->x + (g->batch_first ? item * g->steps + step : step * w->batch + item) * g->input;
    }
    for (int64_t gate = 0; gate < w->gates; gate++) {
        multiply(w, u, count, g->input, weights_of(w, w->o->weights, g->input, u, gate), bias_of(w, u, gate),
                 from_x_of(w, begin, u, gate));
    }
}

/* Rows are what a state, [directions][batch][padded], has of all units. */
static void
list_states(const struct work *w, const struct units *u, const float *state)
{
    for (int64_t item = 0; item < w->batch; item++) {
        w->rows[item] = state + (u->direction * w->batch + item) * w->padded;
    }
}

/* What the listed states add to a gate in a step; to `result`, where bias is not NULL. */
static void
add_state(const struct work *w, const struct units *u, int64_t gate, const float *bias, float *result)
{
    multiply(w, u, w->batch, w->hidden, weights_of(w, w->o->recurrence, w->hidden, u, gate), bias, result);
}

/* ---- Cells ------------------------------------------------------------------------------------------ */

/* Those that few models have: cells call them, and stay as small as they are without. */
CPU_KERNEL __attribute__((noinline)) static cpu_floats
activate_rarely(enum leat_recurrent_function function, float alpha, float beta, cpu_floats x)
{
    const cpu_floats zero = CPU_V(setzero)(), a = CPU_V(set1)(alpha), b = CPU_V(set1)(beta);

    switch (function) {
    case LEAT_RECURRENT_AFFINE:
        return CPU_V(fmadd)(a, x, b);
    case LEAT_RECURRENT_ELU:
        return cpu_if_less(x, zero, CPU_V(mul)(a, cpu_exponential_less_one(x)), x);
    case LEAT_RECURRENT_LEAKY_RELU:
        return cpu_if_less(x, zero, CPU_V(mul)(a, x), x);
    case LEAT_RECURRENT_SCALED_TANH:
        return CPU_V(mul)(a, cpu_tanh(CPU_V(mul)(b, x)));
    case LEAT_RECURRENT_SOFTPLUS:
        return cpu_soft_plus(x);
    default: /* ThresholdedRelu */
        return cpu_if_less(a, x, x, zero);
    }
}

/* Function f, g or h of a direction. */
CPU_INLINE cpu_floats
activate(const struct work *w, const struct units *u, uint32_t which, cpu_floats x)
{
    const struct leat_recurrent *g = &w->r->geometry;
    const enum leat_recurrent_function function = g->functions[u->direction][which];
    const float alpha = g->alpha[u->direction][which], beta = g->beta[u->direction][which];

    switch (function) {
    case LEAT_RECURRENT_SIGMOID:
        return cpu_sigmoid(x);
    case LEAT_RECURRENT_TANH:
        return cpu_tanh(x);
    case LEAT_RECURRENT_RELU: /* in these orders NaN stays NaN */
        return CPU_V(max)(CPU_V(setzero)(), x);
    case LEAT_RECURRENT_HARD_SIGMOID:
        x = CPU_V(fmadd)(CPU_V(set1)(alpha), x, CPU_V(set1)(beta));
        return CPU_V(min)(cpu_all(1), CPU_V(max)(CPU_V(setzero)(), x));
    case LEAT_RECURRENT_SOFTSIGN:
        return CPU_V(div)(x, CPU_V(add)(cpu_all(1), cpu_abs(x)));
    case LEAT_RECURRENT_AFFINE:
    case LEAT_RECURRENT_ELU:
    case LEAT_RECURRENT_LEAKY_RELU:
    case LEAT_RECURRENT_SCALED_TANH:
    case LEAT_RECURRENT_SOFTPLUS:
    case LEAT_RECURRENT_THRESHOLDED_RELU:
        break;
    }
    return activate_rarely(function, alpha, beta, x);
}

CPU_INLINE cpu_floats
gate(const struct work *w, const struct units *u, uint32_t which, cpu_floats x)
{
    const cpu_floats most = CPU_V(set1)(w->r->clip > 0 ? w->r->clip : INFINITY);
    const cpu_floats least = CPU_V(sub)(CPU_V(setzero)(), most);

    return activate(w, u, which, CPU_V(max)(least, CPU_V(min)(most, x)));
}

/* The weight of a cell's own peephole times the cell; peepholes lie in the order i, o, f. */
CPU_INLINE cpu_floats
peep(const struct work *w, const struct units *u, int64_t which, int64_t v, cpu_floats cell)
{
    const int64_t at = (3 * u->direction + which) * w->hidden + u->first + v * CPU_LANES;

    return w->o->peepholes == NULL ? CPU_V(setzero)()
                                   : CPU_V(mul)(cell, cpu_load_first(w->o->peepholes + at, there(w, u, v)));
}

/* One vector of a step's gates, `apart` floats from each other: the new state. */
CPU_INLINE cpu_floats
lstm_cell(const struct work *w, const struct units *u, const float *gates, int64_t apart, int64_t v, float *cell)
{
    const cpu_floats old = CPU_V(load)(cell), in = CPU_V(load)(gates), out = CPU_V(load)(gates + OUTPUT * apart);
    const cpu_floats i = gate(w, u, 0, CPU_V(add)(in, peep(w, u, INPUT, v, old)));
    const cpu_floats f = w->r->coupled
                         ? CPU_V(sub)(cpu_all(1), i)
                         : gate(w, u, 0, CPU_V(add)(CPU_V(load)(gates + FORGET * apart), peep(w, u, FORGET, v, old)));
    const cpu_floats candidate = gate(w, u, 1, CPU_V(load)(gates + CELL * apart));
    const cpu_floats c = CPU_V(fmadd)(f, old, CPU_V(mul)(i, candidate));
    const cpu_floats o = gate(w, u, 0, CPU_V(add)(out, peep(w, u, OUTPUT, v, c)));

    CPU_V(store)(cell, c);
    return CPU_V(mul)(o, activate(w, u, 2, c));
}

CPU_INLINE cpu_floats
gru_cell(const struct work *w, const struct units *u, const float *gates, int64_t apart, cpu_floats update, cpu_floats old)
{
    const cpu_floats candidate = gate(w, u, 1, CPU_V(load)(gates + STATE * apart));
    return CPU_V(fmadd)(update, old, CPU_V(mul)(CPU_V(sub)(cpu_all(1), update), candidate));
}

/* Of a GRU, before the candidate: z and r, or r times the state. */
CPU_KERNEL static void
open_gates(const struct work *w, const struct units *u, int64_t n, const float *old)
{
    for (int64_t item = 0; item < w->batch; item++) {
        const int64_t at = state_at(w, item, u), unit = item * w->padded + u->first;
        for (int64_t lane = 0; lane < u->vectors * CPU_LANES; lane += CPU_LANES) {
            const cpu_floats z = gate(w, u, 0, CPU_V(load)(from_x_of(w, n, u, UPDATE) + unit + lane));
            const cpu_floats r = gate(w, u, 0, CPU_V(load)(from_x_of(w, n, u, RESET) + unit + lane));
            CPU_V(store)(w->update + at + lane, z);
            CPU_V(store)(w->reset + at + lane, w->r->reset_after ? r : CPU_V(mul)(r, CPU_V(load)(old + at + lane)));
        }
    }
}

/* Of a GRU with reset_after: r comes before the sum with the product that lies apart. */
CPU_KERNEL static void
reset_product(const struct work *w, const struct units *u, int64_t n)
{
    for (int64_t item = 0; item < w->batch; item++) {
        const int64_t at = state_at(w, item, u);
        float *state = from_x_of(w, n, u, STATE) + item * w->padded + u->first;
        for (int64_t lane = 0; lane < u->vectors * CPU_LANES; lane += CPU_LANES) {
            const cpu_floats r = CPU_V(load)(w->reset + at + lane), product = CPU_V(load)(w->apart + at + lane);
            CPU_V(store)(state + lane, CPU_V(fmadd)(r, product, CPU_V(load)(state + lane)));
        }
    }
}

static void
write_y(const struct work *w, const struct units *u, int64_t step, int64_t item, const float *state)
{
    const struct leat_recurrent *g = &w->r->geometry;
    const int64_t place = g->batch_first ? (item * g->steps + step) * w->directions + u->direction
                                         : (step * w->directions + u->direction) * w->batch + item;
    const int64_t left = w->hidden - u->first, all = u->vectors * CPU_LANES, count = left < all ? left : all;
    float *y = w->o->y + place * w->hidden + u->first;

    if (state != NULL) {
        memcpy(y, state, (size_t)count * sizeof(*y));
    } else {
        memset(y, 0, (size_t)count * sizeof(*y));
    }
}

/* The n-th step of all items, whose gates are summed up: from state `old` to `next`, and y. */
CPU_KERNEL static void
run_cells(const struct work *w, const struct units *u, int64_t n, const float *old, float *next)
{
    const int64_t apart = w->chunk * w->batch * w->padded;

    for (int64_t item = 0; item < w->batch; item++) {
        const int64_t at = state_at(w, item, u);
        const float *gates = from_x_of(w, n, u, 0) + item * w->padded + u->first;
        const bool runs = n < length_of(w, item);
        for (int64_t v = 0; v < u->vectors; v++) {
            const int64_t lane = v * CPU_LANES;
            cpu_floats h = CPU_V(load)(old + at + lane);
            if (runs) {
                h = w->gates == 4   ? lstm_cell(w, u, gates + lane, apart, v, w->c + at + lane)
                    : w->gates == 3 ? gru_cell(w, u, gates + lane, apart, CPU_V(load)(w->update + at + lane), h)
                                    : gate(w, u, 0, CPU_V(load)(gates + lane));
            }
            CPU_V(store)(next + at + lane, h);
        }
        write_y(w, u, step_of(w, n, item, u->direction), item, runs ? next + at : NULL);
    }
}

/* ---- Steps ------------------------------------------------------------------------------------------ */

/* Where a state tensor of the node has these units of an item. */
static int64_t
tensor_at(const struct work *w, int64_t item, const struct units *u)
{
    return (w->r->geometry.batch_first ? item * w->directions + u->direction : u->direction * w->batch + item) * w->hidden +
           u->first;
}

CPU_KERNEL static void
load_state(const struct work *w, const struct units *u, const float *tensor, float *state)
{
    for (int64_t item = 0; item < w->batch; item++) {
        for (int64_t v = 0; v < u->vectors; v++) {
            const int64_t from = tensor_at(w, item, u) + v * CPU_LANES;
            const cpu_floats x = tensor != NULL ? cpu_load_first(tensor + from, there(w, u, v)) : CPU_V(setzero)();
            CPU_V(store)(state + state_at(w, item, u) + v * CPU_LANES, x);
        }
    }
}

CPU_KERNEL static void
store_state(const struct work *w, const struct units *u, const float *state, float *tensor)
{
    for (int64_t item = 0; item < w->batch && tensor != NULL; item++) {
        for (int64_t v = 0; v < u->vectors; v++) {
            cpu_store_first(tensor + tensor_at(w, item, u) + v * CPU_LANES, there(w, u, v),
                            CPU_V(load)(state + state_at(w, item, u) + v * CPU_LANES));
        }
    }
}

/* Who else has units of the same directions: those who wait for each other. */
struct others {
    struct leat_team *team;
    uint32_t members;
};

static void
wait_for(const struct others *others)
{
    if (others->members > 1) {
        leat_team_barrier(others->team, others->members);
    }
}

/* A member's units: two stretches at most, one of each direction. */
struct share {
    struct units units[2];
    uint32_t count;
};

/* Steps after which no item runs. */
static int64_t
steps_of(const struct work *w)
{
    int64_t most = 0;

    for (int64_t item = 0; item < w->batch; item++) {
        most = length_of(w, item) > most ? length_of(w, item) : most;
    }
    return most;
}

/* Everything of the n-th step that comes before its cells; the state before it is of all members. */
static void
sum_gates(const struct work *w, const struct share *share, int64_t n, const float *old, const struct others *others)
{
    const bool gru = w->gates == 3, before = gru && !w->r->reset_after;

    for (uint32_t i = 0; i < share->count; i++) {
        const struct units *u = &share->units[i];
        list_states(w, u, old);
        for (int64_t gate = 0; gate < (gru ? STATE : w->gates); gate++) {
            add_state(w, u, gate, NULL, from_x_of(w, n, u, gate));
        }
        if (gru) {
            open_gates(w, u, n, old);
        }
        if (gru && !before) {
            add_state(w, u, STATE, bias_of(w, u, w->gates), w->apart + u->direction * w->batch * w->padded);
            reset_product(w, u, n);
        }
    }
    if (before) {
        wait_for(others); /* r h is of all members, too */
    }
    for (uint32_t i = 0; before && i < share->count; i++) {
        list_states(w, &share->units[i], w->reset);
        add_state(w, &share->units[i], STATE, NULL, from_x_of(w, n, &share->units[i], STATE));
    }
}

static void
run_steps(const struct work *w, const struct share *share, const struct others *others)
{
    const struct cpu_recurrent_operands *o = w->o;
    const int64_t steps = w->r->geometry.steps, needed = steps_of(w);

    for (uint32_t i = 0; i < share->count; i++) {
        load_biases(w, &share->units[i]);
        load_state(w, &share->units[i], o->first_h, w->h[0]);
        if (w->gates == 4) {
            load_state(w, &share->units[i], o->first_c, w->c);
        }
    }
    for (int64_t n = 0; n < steps; n++) {
        const int64_t end = n + w->chunk < needed ? n + w->chunk : needed;
        for (uint32_t i = 0; n < needed && n % w->chunk == 0 && i < share->count; i++) {
            add_inputs(w, &share->units[i], n, end);
        }
        if (n <= needed) { /* even where nothing is summed: others may still read the state before the last */
            wait_for(others);
        }
        if (n < needed) {
            sum_gates(w, share, n, w->h[n % 2], others);
        }
        for (uint32_t i = 0; i < share->count; i++) {
            run_cells(w, &share->units[i], n, w->h[n % 2], w->h[(n + 1) % 2]);
        }
    }
    for (uint32_t i = 0; i < share->count; i++) {
        store_state(w, &share->units[i], w->h[steps % 2], o->last_h);
        if (w->gates == 4) {
            store_state(w, &share->units[i], w->c, o->last_c);
        }
    }
}

static void
run(const struct cpu_recurrent *r, const struct cpu_recurrent_operands *o, void *scratch, struct leat_team *team,
    uint32_t member, uint32_t members)
{
    const int64_t vectors = vectors_of(&r->geometry), all = r->geometry.directions * vectors;
    const int64_t first = all * member / members, last = all * (member + 1) / members;
    /* Whole directions run one after another: the weights of one stay in a cache that those of two do not fit into. */
    const bool whole = r->geometry.directions % members == 0;
    const struct others others = {team, whole ? 1 : members};
    const struct work w = work_of(r, o, scratch, member, members);
    struct share share = {.count = 0};

    for (int64_t v = first, next; v < last; v = next) {
        next = (v / vectors + 1) * vectors < last ? (v / vectors + 1) * vectors : last;
        share.units[share.count++] = (struct units){v / vectors, v % vectors * CPU_LANES, next - v};
        if (whole || next == last) {
            run_steps(&w, &share, &others);
            share.count = 0;
        }
    }
}

const struct cpu_recurrent_kernel CPU_SIZED(cpu_recurrent) = {weights_bytes, pack, scratch_bytes, members_of, run};
