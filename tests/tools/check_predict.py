#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Goal     tools/predict learns what it says: gradients are those of the loss, quantiles are quantiles, windows are as described, and
         the checked-in weights are what the script writes.
Method   Differences of nearby losses, away from kinks; the optimality conditions of quantile regression on drawn data; a short
         training on a drawn load, twice, which must end below where it began and with the same files.

Usage: check_predict.py SOURCE_FOLDER
"""
import csv
import os
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: python3-numpy is not installed")
    sys.exit(77)

ROOT = sys.argv[1]
SEED = int(os.environ.get("LEAT_SEED", 1))
sys.path.insert(0, os.path.join(ROOT, "tools/predict"))
import lstm
import train

print(f"seed {SEED}")


def check_gradients(rng):
    network = lstm.Network(7, rng)
    network.bias[21:] += 0.5  # cells that the rectifiers let pass
    x, y = rng.uniform(0.5, 1.5, (5, 6)), rng.uniform(0.5, 1.5, 5)
    network.loss(x, y, 1e-2)
    gradient = network.gradient.copy()
    kinks = 0
    for k in range(len(gradient)):
        slopes, old = [], network.vector[k]
        for step in (1e-6, -1e-6):
            network.vector[k] = old + step
            up = network.loss(x, y, 1e-2)
            network.vector[k] = old
            slopes.append((up - network.loss(x, y, 1e-2)) / step)
        if abs(slopes[0] - slopes[1]) > 1e-4:
            kinks += 1  # a rectifier switches in between
            continue
        assert abs(np.mean(slopes) - gradient[k]) < 1e-6 + 1e-5 * abs(gradient[k]), (k, slopes, gradient[k])
    assert kinks < len(gradient) / 50, kinks
    assert np.count_nonzero(gradient) > 0.9 * len(gradient)


def check_quantiles(rng):
    x = rng.uniform(0.5, 1.5, (4000, 6))
    y = x @ [0, 0.1, 0.1, 0.2, 0.2, 0.4] * rng.lognormal(0, 0.2, 4000)
    for share in (0.5, 0.9, 0.99):
        w = train.quantile_regression(x, y, share)
        r = y - x @ w
        # No direction is downhill, but for the few points that the plane goes through.
        on = np.abs(r) < 1e-4
        slope = x[~on].T @ (share - (r[~on] < 0))
        assert on.sum() <= 30 and np.all(np.abs(slope) <= np.abs(x[on]).sum(axis=0) + 1e-6), (share, slope, on.sum())
        assert abs(np.mean(r <= 0) - share) < 0.01


def check_windows():
    inputs, targets = train.windows(np.concatenate([np.zeros(7), np.repeat(np.arange(1, 81), 1), np.zeros(3)]).astype(float))
    assert inputs.tolist() == [[10, 20, 30, 40, 50, 60], [20, 30, 40, 50, 60, 70]] and targets.tolist() == [70, 80]
    assert abs(train.trend(np.array([[1.0, 2, 3, 4, 5, 6]]))[0] - 7) < 1e-12


def check_training(rng, folder):
    """Every run of the script on 19 days of a quiet load with a daily wave."""
    seconds = np.arange(19 * train.DAY_S)
    rates = rng.poisson(3 + 2 * np.sin(2 * np.pi * seconds / train.DAY_S))
    trace = os.path.join(folder, "rates.txt")
    np.savetxt(trace, rates, fmt="%d")
    train.DAY_S //= 12  # of 2 h
    files = []
    for run in ("a", "b"):
        sys.argv = ["train.py", "--twitter", trace, "--epochs", "2", "--output", os.path.join(folder, run), "--weights",
                    os.path.join(folder, run + ".h")]
        train.main()
        files.append([open(os.path.join(folder, path), "rb").read()
                      for path in (run + ".h", *(f"{run}/{n}" for n in ("lstm.onnx", "samples.csv", "figures.csv")))])
    assert files[0] == files[1]
    with open(os.path.join(folder, "a/figures.csv")) as file:
        mape = {row["forecast"]: float(row["mape_percent"]) for row in csv.DictReader(file)}
    assert mape["quantile50"] < mape["last"] and mape["lstm"] < mape["last"], mape
    text = open(os.path.join(ROOT, "sched/forecast_weights.h")).read()
    weights = {q: [float(w) for w in text.split(f"_{q} {{")[1].split("}")[0].split(",")] for q in train.QUANTILES}
    assert train.weights_header(weights) == text


check_gradients(np.random.default_rng(SEED))
check_quantiles(np.random.default_rng(SEED))
check_windows()
with tempfile.TemporaryDirectory() as name:
    check_training(np.random.default_rng(SEED), name)
