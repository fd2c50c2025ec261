#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the digits data set, trains the digits family on it and writes models and figures.

    tools/zoo/train_digits.py                      # everything, into tools/zoo/digits
    tools/zoo/train_digits.py --only digits-lenet --output /tmp/digits

Needs python3-numpy and nothing else. With a fast BLAS (Debian: libopenblas0-pthread) it is some
five times quicker than with the reference one.
"""
import os

# One thread per training process: sums then have one order, so a run can be repeated bit for bit.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import csv
import multiprocessing
import sys
import time

import numpy as np

sys.dont_write_bytecode = True
import digits_data
import onnx_bytes
from digits_layers import (BatchNorm, Conv, Dense, Flatten, GlobalAverage, MaxPool, Relu, Residual,
                           Sequence)

IMAGE = (digits_data.SIDE, digits_data.SIDE, 1)
TRAIN_ITEMS = 60000
VALIDATION_ITEMS = 1200
BATCH = 100


def linear(rng):
    dense = Dense(rng, 784, 10)
    return Sequence(Flatten(IMAGE, dense), dense)


def mlp(rng):
    first = Dense(rng, 784, 72)
    return Sequence(Flatten(IMAGE, first), first, Relu(), Dense(rng, 72, 10))


def cnn(rng):
    last = Dense(rng, 7 * 7 * 10, 10)
    return Sequence(Conv(rng, 1, 6, 5, stride=2, pad=2), Relu(),
                    Conv(rng, 6, 10, 3, stride=2, pad=1), Relu(), Flatten((7, 7, 10), last), last)


def lenet(rng):
    first = Dense(rng, 5 * 5 * 10, 48)
    return Sequence(Conv(rng, 1, 4, 5, pad=2), Relu(), MaxPool(), Conv(rng, 4, 10, 5), Relu(), MaxPool(),
                    Flatten((5, 5, 10), first), first, Relu(), Dense(rng, 48, 10))


def conv_bn(rng, inputs, outputs, kernel, stride=1):
    return [Conv(rng, inputs, outputs, kernel, stride, kernel // 2, bias=False), BatchNorm(outputs)]


def block(rng, inputs, outputs, stride):
    body = Sequence(*conv_bn(rng, inputs, outputs, 3, stride), Relu(), *conv_bn(rng, outputs, outputs, 3))
    same = inputs == outputs and stride == 1
    return Residual(body, None if same else Sequence(*conv_bn(rng, inputs, outputs, 1, stride)))


def resnet(rng, widths):
    stem, middle, wide = widths
    return Sequence(*conv_bn(rng, 1, stem, 5, 2), Relu(), block(rng, stem, stem, 1),
                    block(rng, stem, middle, 2), block(rng, middle, wide, 2), GlobalAverage(),
                    Dense(rng, wide, 10))


# name -> (how to build it, passes over the training set); cost and accuracy rise from line to line.
FAMILY = {
    "digits-linear": (linear, 8),
    "digits-mlp": (mlp, 24),
    "digits-cnn": (cnn, 12),
    "digits-lenet": (lenet, 12),
    "digits-resnet": (lambda rng: resnet(rng, (12, 20, 28)), 8),
    "digits-resnet-wide": (lambda rng: resnet(rng, (24, 40, 56)), 8),
}


def to_float(images):
    """u8[n][1][28][28] to f32[n][28][28][1], scaled as the ONNX files scale."""
    return images.reshape(-1, *IMAGE).astype(np.float32) * np.float32(1 / 255)


def accuracy(model, images, labels):
    right = 0
    for i in range(0, len(images), 500):
        scores = model.forward(to_float(images[i:i + 500]), False)
        right += int((scores.argmax(axis=1) == labels[i:i + 500]).sum())
    return right / len(labels)


def adam_steps(parameters, moments, step, rate):
    for (value, gradient), (m, v) in zip(parameters, moments):
        m += np.float32(0.1) * (gradient - m)
        v += np.float32(0.001) * (gradient * gradient - v)
        scale = np.float32(rate * np.sqrt(1 - 0.999 ** step) / (1 - 0.9 ** step))
        value -= scale * m / (np.sqrt(v) + np.float32(1e-8))


def train(name, seed, images, labels):
    build, epochs = FAMILY[name]
    rng = np.random.Generator(np.random.PCG64([seed, list(FAMILY).index(name)]))
    model = build(rng)
    parameters = model.parameters()
    moments = [(np.zeros_like(p[0]), np.zeros_like(p[0])) for p in parameters]
    steps = epochs * (len(images) // BATCH)
    step = 0
    for epoch in range(epochs):
        order = rng.permutation(len(images))
        loss = 0.0
        for i in range(0, len(images) - BATCH + 1, BATCH):
            step += 1
            chosen = order[i:i + BATCH]
            scores = model.forward(to_float(images[chosen]), True)
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            scores /= scores.sum(axis=1, keepdims=True)
            at = (np.arange(BATCH), labels[chosen])
            loss -= float(np.log(scores[at] + 1e-12).mean())
            scores[at] -= 1
            model.backward(scores / np.float32(BATCH))
            adam_steps(parameters, moments, step, 2e-3 * (0.5 + 0.5 * np.cos(np.pi * step / steps)) + 1e-5)
        print(f"{name}: epoch {epoch + 1} of {epochs}, loss {loss * BATCH / len(images):.4f}",
              file=sys.stderr, flush=True)
    return model


def export(name, model):
    graph = onnx_bytes.Graph(name)
    x = graph.node("Cast", "cast", ["image"], to=onnx_bytes.FLOAT)
    x = graph.node("Mul", "scale", [x, graph.constant("scale.factor", np.array(1 / 255, np.float32))])
    graph.rename(model.export(graph, "layer", x), "scores")
    return graph.bytes([("image", onnx_bytes.UINT8, ["N", 1, 28, 28])],
                       [("scores", onnx_bytes.FLOAT, ["N", 10])])


def row_of(name, seed, model, validation):
    """One line of accuracies.csv."""
    arrays = [p[0] for p in model.parameters()] + model.constants()
    return {"name": name, "parameters": sum(a.size for a in arrays),
            "mflop_per_item": f"{2e-6 * model.macs(IMAGE):.6f}",
            "validation_accuracy": f"{accuracy(model, *validation):.6f}", "seed": seed}


_data = {}  # of a training process, inherited from its parent


def set_data(training, validation):
    _data.update(training=training, validation=validation)


def train_and_write(job):
    name, seed, output = job
    begin = time.monotonic()
    model = train(name, seed, *_data["training"])
    with open(os.path.join(output, name + ".onnx"), "wb") as file:
        file.write(export(name, model))
    row = row_of(name, seed, model, _data["validation"])
    print(f"{name}: accuracy {row['validation_accuracy']} in {time.monotonic() - begin:.0f} s",
          file=sys.stderr, flush=True)
    return row


def write_figures(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", metavar="DIR", default=os.path.join(here, "digits"),
                        help="where to write (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the data set and of every model (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, help="models trained at a time (default: 2)")
    parser.add_argument("--only", metavar="NAME", action="append", choices=list(FAMILY),
                        help="train this model and no other; may be repeated. accuracies.csv then has its line alone")
    options = parser.parse_args()
    if options.seed < 0 or options.jobs < 1:
        parser.error("--seed must not be negative and --jobs must be at least 1")

    os.makedirs(options.output, exist_ok=True)
    training = digits_data.make([options.seed, 1], TRAIN_ITEMS)
    validation = digits_data.make([options.seed, 2], VALIDATION_ITEMS)
    np.save(os.path.join(options.output, "validation.inputs.npy"), validation[0])
    np.save(os.path.join(options.output, "validation.labels.npy"), validation[1])

    names = [name for name in FAMILY if options.only is None or name in options.only]
    jobs = [(name, options.seed, options.output) for name in reversed(names)]
    with multiprocessing.get_context("fork").Pool(options.jobs, set_data, (training, validation)) as pool:
        rows = pool.map(train_and_write, jobs, chunksize=1)  # the longest first
    write_figures(os.path.join(options.output, "accuracies.csv"), rows[::-1])


if __name__ == "__main__":
    main()
