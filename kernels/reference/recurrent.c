/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RNN, GRU and LSTM as the ONNX operator descriptions write them: one direction, one item, one step after another.
 * States are kept in double.
 */
#include "kernels/recurrent.h"

#include <math.h>
#include <string.h>

#include "kernels/reference/element.h"

/* One item in one direction. */
struct cell {
    const struct leat_eval *eval;
    struct leat_recurrent g;
    size_t direction, item, hidden;
    double *h, *c;           /* [hidden] */
    double *from_x, *from_h; /* [gates * hidden], with their biases */
};

size_t
leat_workspace_recurrent(const struct leat_graph *graph, const struct leat_node *node)
{
    struct leat_recurrent g;
    const enum leat_status status = leat_recurrent_of(graph, node, &g);
    LEAT_ASSERT(status == LEAT_OK);
    return (size_t)(2 + 2 * g.gates) * (size_t)g.hidden * sizeof(double);
}

static const float *
operand(const struct cell *cell, uint32_t input, size_t per_direction)
{
    if (leat_eval_input(cell->eval, input) == NULL) {
        return NULL;
    }
    return (const float *)leat_eval_in(cell->eval, input) + cell->direction * per_direction;
}

/* First element of this item in a state tensor; of this item and step in y. */
static size_t
state_at(const struct cell *cell)
{
    const size_t directions = cell->g.directions, batch = (size_t)cell->g.batch;
    return cell->hidden * (cell->g.batch_first ? cell->item * directions + cell->direction
                                               : cell->direction * batch + cell->item);
}

static size_t
output_at(const struct cell *cell, size_t step)
{
    const size_t directions = cell->g.directions, batch = (size_t)cell->g.batch,
                 steps = (size_t)cell->g.steps;
    return cell->hidden * (cell->g.batch_first
                               ? (cell->item * steps + step) * directions + cell->direction
                               : (step * directions + cell->direction) * batch + cell->item);
}

static void
load_state(const struct cell *cell, uint32_t input, double *state)
{
    for (size_t k = 0; k < cell->hidden; k++) {
        state[k] =
            leat_eval_input(cell->eval, input) != NULL
                ? (double)((const float *)leat_eval_in(cell->eval, input))[state_at(cell) + k]
                : 0;
    }
}

static void
store_state(const struct cell *cell, uint32_t output, const double *state)
{
    for (size_t k = 0; leat_eval_output(cell->eval, output) != NULL && k < cell->hidden; k++) {
        ((float *)leat_eval_out(cell->eval, output))[state_at(cell) + k] = (float)state[k];
    }
}

/* What x of this step and the state before it add to all gates. */
static void
project(const struct cell *cell, size_t step)
{
    const size_t input = (size_t)cell->g.input, rows = cell->g.gates * cell->hidden;
    const size_t place = cell->g.batch_first ? cell->item * (size_t)cell->g.steps + step
                                             : step * (size_t)cell->g.batch + cell->item;
    const float *x = (const float *)leat_eval_in(cell->eval, 0) + place * input;
    const float *w = operand(cell, 1, rows * input), *r = operand(cell, 2, rows * cell->hidden);
    const float *bias = operand(cell, 3, 2 * rows);

    for (size_t row = 0; row < rows; row++) {
        double from_x = bias != NULL ? (double)bias[row] : 0;
        double from_h = bias != NULL ? (double)bias[rows + row] : 0;
        for (size_t k = 0; k < input; k++) {
            from_x += (double)w[row * input + k] * (double)x[k];
        }
        for (size_t k = 0; k < cell->hidden; k++) {
            from_h += (double)r[row * cell->hidden + k] * cell->h[k];
        }
        cell->from_x[row] = from_x;
        cell->from_h[row] = from_h;
    }
}

static double
clip(const struct cell *cell, double x)
{
    const double limit = (double)leat_node_float(cell->eval->node, "clip", 0);
    return limit <= 0 || isnan(x) ? x : x < -limit ? -limit : x > limit ? limit : x;
}

/* Function f, g or h of the cell's direction. */
static double
activate(const struct cell *cell, uint32_t which, double x)
{
    const double alpha = (double)cell->g.alpha[cell->direction][which], beta = (double)cell->g.beta[cell->direction][which];

    switch (cell->g.functions[cell->direction][which]) {
    case LEAT_RECURRENT_SIGMOID:
        return 1 / (1 + exp(-x));
    case LEAT_RECURRENT_TANH:
        return tanh(x);
    case LEAT_RECURRENT_RELU:
        return x < 0 ? 0 : x;
    case LEAT_RECURRENT_HARD_SIGMOID:
        x = alpha * x + beta;
        return x < 0 ? 0 : x > 1 ? 1 : x;
    case LEAT_RECURRENT_AFFINE:
        return alpha * x + beta;
    case LEAT_RECURRENT_ELU:
        return x < 0 ? alpha * expm1(x) : x;
    case LEAT_RECURRENT_LEAKY_RELU:
        return x < 0 ? alpha * x : x;
    case LEAT_RECURRENT_SCALED_TANH:
        return alpha * tanh(beta * x);
    case LEAT_RECURRENT_SOFTPLUS:
        return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
    case LEAT_RECURRENT_THRESHOLDED_RELU:
        return x > alpha ? x : 0;
    case LEAT_RECURRENT_SOFTSIGN:
        break;
    }
    return x / (1 + fabs(x));
}

static double
gate(const struct cell *cell, double x)
{
    return activate(cell, 0, clip(cell, x));
}

static void
step_rnn(const struct cell *cell)
{
    for (size_t k = 0; k < cell->hidden; k++) {
        cell->h[k] = gate(cell, cell->from_x[k] + cell->from_h[k]);
    }
}

/* Gates lie in the order i, o, f, c; peepholes in the order i, o, f. */
static void
step_lstm(const struct cell *cell)
{
    const size_t n = cell->hidden;
    const float *p = operand(cell, 7, 3 * n);
    const bool coupled = leat_node_int(cell->eval->node, "input_forget", 0) != 0;

    for (size_t k = 0; k < n; k++) {
        const double peep_i = p != NULL ? (double)p[k] * cell->c[k] : 0;
        const double peep_f = p != NULL ? (double)p[2 * n + k] * cell->c[k] : 0;
        const double i = gate(cell, cell->from_x[k] + cell->from_h[k] + peep_i);
        const double f =
            coupled ? 1 - i
                    : gate(cell, cell->from_x[2 * n + k] + cell->from_h[2 * n + k] + peep_f);
        const double candidate =
            activate(cell, 1, clip(cell, cell->from_x[3 * n + k] + cell->from_h[3 * n + k]));
        cell->c[k] = f * cell->c[k] + i * candidate;
        const double peep_o = p != NULL ? (double)p[n + k] * cell->c[k] : 0;
        const double o = gate(cell, cell->from_x[n + k] + cell->from_h[n + k] + peep_o);
        cell->h[k] = o * activate(cell, 2, cell->c[k]);
    }
}

/* Gates lie in the order z, r, h. What the reset gate lets through of the state is multiplied before or after. */
static void
step_gru(const struct cell *cell)
{
    const size_t n = cell->hidden, rows = 3 * n;
    const bool after = leat_node_int(cell->eval->node, "linear_before_reset", 0) != 0;
    const float *r = operand(cell, 2, rows * n), *bias = operand(cell, 3, 2 * rows);

    for (size_t k = 0; k < n; k++) { /* from_x keeps z and r from here on, c the new state */
        cell->from_x[k] = gate(cell, cell->from_x[k] + cell->from_h[k]);
        cell->from_x[n + k] = gate(cell, cell->from_x[n + k] + cell->from_h[n + k]);
    }
    for (size_t k = 0; k < n; k++) {
        double from_h = cell->from_x[n + k] * cell->from_h[2 * n + k];
        if (!after) {
            from_h = bias != NULL ? (double)bias[rows + 2 * n + k] : 0;
            for (size_t j = 0; j < n; j++) {
                from_h += (double)r[(2 * n + k) * n + j] * cell->from_x[n + j] * cell->h[j];
            }
        }
        const double candidate = activate(cell, 1, clip(cell, cell->from_x[2 * n + k] + from_h));
        cell->c[k] = (1 - cell->from_x[k]) * candidate + cell->from_x[k] * cell->h[k];
    }
    memcpy(cell->h, cell->c, n * sizeof(*cell->h));
}

static void
run_item(struct cell *cell, size_t length)
{
    const bool backwards = cell->g.reverse || cell->direction == 1;
    float *y = leat_eval_out(cell->eval, 0);

    load_state(cell, 5, cell->h);
    if (cell->g.gates == 4) {
        load_state(cell, 6, cell->c);
    }
    for (size_t i = 0; i < (size_t)cell->g.steps; i++) {
        const size_t step = i < length && backwards ? length - 1 - i : i;
        if (i < length) {
            project(cell, step);
            (cell->g.gates == 4 ? step_lstm : cell->g.gates == 3 ? step_gru : step_rnn)(cell);
        }
        for (size_t k = 0; k < cell->hidden; k++) {
            y[output_at(cell, step) + k] = i < length ? (float)cell->h[k] : 0;
        }
    }
    store_state(cell, 1, cell->h);
    if (cell->g.gates == 4) {
        store_state(cell, 2, cell->c);
    }
}

LEAT_REFERENCE_FUNCTION(recurrent)
{
    const bool has_lengths = leat_eval_input(eval, 4) != NULL;
    struct cell cell = {.eval = eval};

    const enum leat_status status = leat_recurrent_of(eval->graph, eval->node, &cell.g);
    if (status != LEAT_OK) {
        return status;
    }
    cell.hidden = (size_t)cell.g.hidden;
    cell.h = eval->workspace;
    cell.c = cell.h + cell.hidden;
    cell.from_x = cell.c + cell.hidden;
    cell.from_h = cell.from_x + cell.g.gates * cell.hidden;
    for (cell.item = 0; cell.item < (size_t)cell.g.batch; cell.item++) {
        const int64_t length =
            has_lengths ? leat_eval_int(eval, 4, cell.item) : cell.g.steps;
        if (length < 0 || length > cell.g.steps) {
            return LEAT_NODE_FAIL(eval->node, LEAT_ERR_SHAPE, "a sequence of %lld in %lld steps",
                                  (long long)length, (long long)cell.g.steps);
        }
        for (cell.direction = 0; cell.direction < cell.g.directions; cell.direction++) {
            run_item(&cell, (size_t)length);
        }
    }
    return LEAT_OK;
}
