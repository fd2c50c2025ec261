# SPDX-License-Identifier: Apache-2.0
"""The training code is right and repeatable: gradients against differences, data against the files.

Usage: check_training.py TOOLS_ZOO
"""
import os
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: python3-numpy is not installed")
    sys.exit(77)

sys.path.insert(0, sys.argv[1])
import digits_data
import digits_layers as dl


def widen(layer):
    """f64 instead of f32, so that differences of nearby losses mean something."""
    for parameter in layer.parameters():
        parameter[0] = parameter[0].astype(np.float64)


def check_gradients(name, layer, x, rng):
    widen(layer)
    probe = rng.normal(size=layer.forward(x, True).shape)

    def loss():
        return float((layer.forward(x, True) * probe).sum())

    loss()
    dx = layer.backward(probe)
    targets = [(p[0], p[1]) for p in layer.parameters()] + ([(x, dx)] if dx is not None else [])
    for k, (value, gradient) in enumerate(targets):
        for _ in range(6):
            at = tuple(rng.integers(0, s) for s in value.shape)
            old, step = value[at], 1e-6
            value[at] = old + step
            up = loss()
            value[at] = old - step
            down = loss()
            value[at] = old
            numeric = (up - down) / (2 * step)
            assert abs(numeric - gradient[at]) <= 1e-4 * (1 + abs(numeric)), (name, k, at, numeric, gradient[at])


def test_gradients():
    rng = np.random.Generator(np.random.PCG64(5))
    image = rng.normal(size=(4, 8, 8, 3))
    dense = dl.Dense(rng, 8 * 8 * 3, 5)
    block = dl.Residual(dl.Sequence(dl.Conv(rng, 3, 6, 3, 2, 1, bias=False), dl.BatchNorm(6), dl.Relu(),
                                    dl.Conv(rng, 6, 6, 3, 1, 1, bias=False), dl.BatchNorm(6)),
                        dl.Sequence(dl.Conv(rng, 3, 6, 1, 2, 0, bias=False), dl.BatchNorm(6)))
    same = dl.Residual(dl.Sequence(dl.Conv(rng, 3, 3, 3, 1, 1), dl.Relu()))
    cases = {
        "flatten, dense": dl.Sequence(dl.Flatten((8, 8, 3), dense), dense),
        "convolution": dl.Conv(rng, 3, 4, 3),
        "strided, padded convolution": dl.Conv(rng, 3, 4, 5, 2, 2),
        "normalisation": dl.BatchNorm(3),
        "rectifier, maximum": dl.Sequence(dl.Relu(), dl.MaxPool()),
        "maximum": dl.MaxPool(),
        "global average": dl.GlobalAverage(),
        "residual block": block,
        "residual block with identity": same,
    }
    for name, layer in cases.items():
        check_gradients(name, layer, image.copy(), rng)


def test_data():
    small = digits_data.make([3, 1], 50)
    again = digits_data.make([3, 1], 50)
    other = digits_data.make([3, 2], 50)
    assert (small[0] == again[0]).all() and (small[1] == again[1]).all()
    assert (small[0] != other[0]).any()

    # The checked-in images are what the generator draws. Mathematical functions may differ in the last
    # bit between processors, which can move a pixel by one grey level.
    folder = os.path.join(sys.argv[1], "digits")
    with open(os.path.join(folder, "accuracies.csv")) as file:
        seed = int(file.readlines()[1].rstrip().rsplit(",", 1)[1])
    images = np.load(os.path.join(folder, "validation.inputs.npy"))
    labels = np.load(os.path.join(folder, "validation.labels.npy"))
    drawn = digits_data.make([seed, 2], len(labels))
    assert (drawn[1] == labels).all()
    difference = np.abs(drawn[0].astype(int) - images)
    assert difference.max() <= 1 and (difference > 0).mean() < 1e-3


test_gradients()
test_data()
