#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Learns to forecast the load: the highest second of the next ten from the highest seconds of the last six times ten.

    tools/predict/train.py --twitter rps_2021-08_days01-19.txt.xz     # into tools/predict and sched/forecast_weights.h

Writes lstm.onnx (the network of Themis' predictor), samples.csv (what it answers here, for the engine to agree with), figures.csv
(how far each forecast is off on days that nothing was learned from) and the constants of the quantile regressions. Needs
python3-numpy and nothing else; the same seed gives the same files.
"""
import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_name] = "1"  # sums then have one order

import argparse
import csv
import lzma
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tools/zoo"))
sys.path.insert(0, HERE)
import lstm
import onnx_bytes

DAY_S = 86400
WINDOW_S = 10
WINDOWS = 6
UNITS, L1, BATCH, EPOCHS, PATIENCE = 25, 1e-5, 16, 50, 3
QUANTILES = (50, 90, 99)


def read_rates(path):
    """Queries in each second."""
    with (lzma.open if path.endswith(".xz") else open)(path, "rt") as file:
        return np.array(file.read().split(), dtype=np.float64)


def windows(rates):
    """f64[n][6] and f64[n]: maxima of six windows and that of the next. Seconds without a query are gaps of the recording."""
    rates = rates[rates > 0]
    maxima = rates[:len(rates) // WINDOW_S * WINDOW_S].reshape(-1, WINDOW_S).max(axis=1)
    inputs = np.lib.stride_tricks.sliding_window_view(maxima, WINDOWS)[:-1]
    return inputs.copy(), maxima[WINDOWS:].copy()


def scaled(inputs, targets):
    """By the mean of the six: what is learned then holds for loads of any height."""
    mean = inputs.mean(axis=1)
    return inputs / mean[:, None], targets / mean


# ---- What is learned ---------------------------------------------------------------------------------


def train_lstm(fit, stop, seed, epochs):
    """Stops when the loss on `stop` has not fallen for some passes; the best weights count."""
    rng = np.random.Generator(np.random.PCG64(seed))
    network = lstm.Network(UNITS, rng)
    adam = lstm.Adam(network)
    (x, y), (x_stop, y_stop) = scaled(*fit), scaled(*stop)
    best, kept, since = np.inf, network.vector.copy(), 0
    for epoch in range(epochs):
        order = rng.permutation(len(y))
        for at in range(0, len(y) - BATCH + 1, BATCH):
            chosen = order[at:at + BATCH]
            network.loss(x[chosen], y[chosen], L1)
            adam.update()
        loss = np.mean((network.forward(x_stop) - y_stop) ** 2)
        print(f"lstm: pass {epoch + 1}, loss {loss:.6f}", file=sys.stderr, flush=True)
        since = since + 1 if loss >= best else 0
        if loss < best:
            best, kept = loss, network.vector.copy()
        if since == PATIENCE:
            break
    network.vector[:] = kept.astype(np.float32)  # as the file has them
    return network


def quantile_regression(x, y, share, rounds=300):
    """Weights w that minimise the sum of r * (share - (r < 0)), r = y - x w: majorised by parabolas (D. Hunter and K. Lange, 2000)."""
    w = np.full(x.shape[1], 1 / x.shape[1])
    for n in range(rounds):
        weight = 1 / (max(1e-1 * 0.9 ** n, 1e-6) + np.abs(y - x @ w))
        w = np.linalg.solve(x.T @ (x * weight[:, None]), x.T @ (y * weight) + (2 * share - 1) * x.sum(axis=0))
    return w


def trend(inputs):
    """The line through the six with the least squared error, one window on."""
    return inputs @ np.array([-5, -2, 1, 4, 7, 10]) / 15


# ---- What is written -----------------------------------------------------------------------------------


def export(network):
    u = network.units
    graph = onnx_bytes.Graph("forecast")

    def constant(name, array):
        return graph.constant(name, np.asarray(array, dtype=np.float32))

    mean = graph.node("ReduceMean", "mean", ["maxima_qps"], axes=[1], keepdims=1)
    mean = graph.node("Max", "height", [mean, constant("height.least", [[1e-6]])])
    x = graph.node("Div", "scale", ["maxima_qps", mean])
    x = graph.node("Transpose", "steps", [x], perm=[1, 0])
    x = graph.node("Unsqueeze", "inputs", [x, graph.constant("inputs.axes", np.array([2]))])
    bias = np.concatenate([network.bias, np.zeros(4 * u)])
    x = graph.node("LSTM", "lstm", [x, constant("lstm.kernel", network.kernel[None, :, None]),
                                    constant("lstm.recurrent", network.recurrent.T[None]), constant("lstm.bias", bias[None])],
                   hidden_size=u, activations=["Sigmoid", "Relu", "Relu"])
    x = graph.node("Gather", "last", [x, graph.constant("last.step", np.array(WINDOWS - 1))], axis=0)
    x = graph.node("Squeeze", "state", [x, graph.constant("state.axes", np.array([0]))])
    x = graph.node("Gemm", "dense", [x, constant("dense.weight", network.dense[:, None]), constant("dense.bias", network.offset)])
    x = graph.node("Mul", "unscale", [x, mean])
    graph.rename(x, "highest_qps")
    return graph.bytes([("maxima_qps", onnx_bytes.FLOAT, ["N", WINDOWS])], [("highest_qps", onnx_bytes.FLOAT, ["N", 1])])


HEADER = """/* SPDX-License-Identifier: Apache-2.0 */
/* Written by tools/predict/train.py, which says how: linear quantile regression on 14 days of the Twitter stream, August 2021. */
#ifndef LEAT_SCHED_FORECAST_WEIGHTS_H
#define LEAT_SCHED_FORECAST_WEIGHTS_H

"""


def weights_header(weights):
    lines = [f"#define LEAT_FORECAST_WEIGHTS_{q} {{{', '.join(f'{w:.6f}' for w in weights[q])}}}" for q in QUANTILES]
    return HEADER + "\n".join(lines) + "\n\n#endif /* LEAT_SCHED_FORECAST_WEIGHTS_H */\n"


def figures(forecasts, target):
    for name, forecast in forecasts.items():
        off = (forecast - target) / target
        yield {"forecast": name, "mape_percent": f"{100 * np.abs(off).mean():.3f}", "mean_error_percent": f"{100 * off.mean():.3f}",
               "exceeded_percent": f"{100 * (target > forecast).mean():.3f}"}


def write_rows(path, rows):
    rows = list(rows)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def samples(network, inputs):
    """Of all heights, from quiet to bursts, and some that never came."""
    chosen = inputs[np.linspace(0, len(inputs) - 1, 40).astype(int)]
    made = np.array([[1, 1, 1, 1, 1, 1], [5, 10, 20, 40, 80, 160], [160, 80, 40, 20, 10, 5], [0, 0, 0, 0, 0, 100], [3000, 1, 3000, 1, 3000, 1]])
    for row in np.concatenate([chosen, made]):
        forecast = network.forward((row / row.mean())[None])[0] * row.mean()
        yield {**{f"window_{n}": f"{v:g}" for n, v in enumerate(row)}, "highest_qps": f"{forecast:.9g}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--twitter", metavar="FILE", required=True, help="queries second by second, 19 days from 2021-08-01; .xz or not")
    parser.add_argument("--output", metavar="DIR", default=HERE, help="(default: %(default)s)")
    parser.add_argument("--weights", metavar="FILE", default=os.path.join(ROOT, "sched/forecast_weights.h"), help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="at most (default: %(default)s)")
    options = parser.parse_args()
    rates = read_rates(options.twitter)
    if len(rates) < 19 * DAY_S:
        sys.exit(f"train.py: {options.twitter} has {len(rates)} seconds: 19 days are needed")
    learned, judged = windows(rates[:14 * DAY_S]), windows(rates[14 * DAY_S:19 * DAY_S])

    weights = {q: quantile_regression(*scaled(*learned), q / 100) for q in QUANTILES}
    network = train_lstm(windows(rates[:12 * DAY_S]), windows(rates[12 * DAY_S:14 * DAY_S]), options.seed, options.epochs)

    inputs, target = judged
    mean = inputs.mean(axis=1)
    forecasts = {"last": inputs[:, -1], "mean": mean, "maximum": inputs.max(axis=1), "trend": trend(inputs)}
    forecasts.update({f"quantile{q}": inputs @ weights[q] for q in QUANTILES})
    forecasts["lstm"] = network.forward(inputs / mean[:, None]) * mean
    os.makedirs(options.output, exist_ok=True)
    with open(os.path.join(options.output, "lstm.onnx"), "wb") as file:
        file.write(export(network))
    with open(options.weights, "w") as file:
        file.write(weights_header(weights))
    write_rows(os.path.join(options.output, "samples.csv"), samples(network, inputs))
    write_rows(os.path.join(options.output, "figures.csv"), figures(forecasts, target))


if __name__ == "__main__":
    main()
