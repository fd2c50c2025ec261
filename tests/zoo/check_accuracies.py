# SPDX-License-Identifier: Apache-2.0
"""The digits models are as accurate and as large as accuracies.csv says.

Reads the ONNX files with a parser of its own and evaluates them with plain numpy in ONNX's layout; shares
no code with the training. Usage: check_accuracies.py TOOLS_ZOO
"""
import csv
import math
import os
import struct
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: python3-numpy is not installed")
    sys.exit(77)


def fields(data):
    """(field number, value) of one protocol-buffer message: int, f32 or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            size = varint()
            assert at + size <= len(data), "truncated"
            yield key >> 3, data[at:at + size]
            at += size
        else:
            assert key & 7 == 5, "unexpected wire type"
            yield key >> 3, struct.unpack("<f", data[at:at + 4])[0]
            at += 4


def every(message, number):
    return [value for field, value in fields(message) if field == number]


def one(message, number, otherwise=None):
    found = every(message, number)
    return found[0] if found else otherwise


def tensor(message):
    kind = {1: "<f4", 7: "<i8"}[one(message, 2)]
    return np.frombuffer(one(message, 9), kind).reshape(every(message, 1))


def attributes(node):
    found = {}
    for attribute in every(node, 5):
        kind = one(attribute, 20)
        found[one(attribute, 1).decode()] = {1: one(attribute, 2), 2: one(attribute, 3),
                                             7: every(attribute, 8)}[kind]
    return found


def conv(x, w, b=None, *, kernel_shape, pads, strides, group, dilations):
    assert group == 1 and dilations == [1, 1] and list(w.shape[2:]) == kernel_shape
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    oh = (x.shape[2] - w.shape[2]) // strides[0] + 1
    ow = (x.shape[3] - w.shape[3]) // strides[1] + 1
    y = np.zeros((len(x), w.shape[0], oh, ow), np.float32)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            part = x[:, :, i:i + strides[0] * oh:strides[0], j:j + strides[1] * ow:strides[1]]
            y += np.einsum("ncij,oc->noij", part, w[:, :, i, j], optimize=True)
    return y if b is None else y + b[:, None, None]


def max_pool(x, *, kernel_shape, pads, strides):
    assert kernel_shape == strides == [2, 2] and pads == [0] * 4
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))


def batch_norm(x, scale, bias, mean, var, *, epsilon):
    factor = scale / np.sqrt(var + epsilon)
    return x * factor[:, None, None] + (bias - mean * factor)[:, None, None]


def gemm(x, w, b, *, transB):
    assert transB == 1
    return x @ w.T + b


OPERATORS = {
    "Add": lambda x, y: x + y,
    "BatchNormalization": batch_norm,
    "Cast": lambda x, *, to: {1: x.astype(np.float32)}[to],
    "Conv": conv,
    "Flatten": lambda x, *, axis: x.reshape(len(x), -1),
    "Gemm": gemm,
    "GlobalAveragePool": lambda x: x.mean(axis=(2, 3), keepdims=True),
    "MaxPool": max_pool,
    "Mul": lambda x, y: x * y,
    "Relu": lambda x: np.maximum(x, 0),
}


class Model:
    def __init__(self, path):
        with open(path, "rb") as file:
            model = file.read()
        assert one(model, 1) == 7 and one(one(model, 8), 2) == 13
        graph = one(model, 7)
        self.constants = {one(t, 8).decode(): tensor(t) for t in every(graph, 5)}
        self.nodes = [(one(n, 4).decode(), [i.decode() for i in every(n, 1)], one(n, 2).decode(), attributes(n))
                      for n in every(graph, 1)]
        self.inputs = [one(i, 1).decode() for i in every(graph, 11)]
        self.outputs = [one(o, 1).decode() for o in every(graph, 12)]
        assert self.inputs == ["image"] and self.outputs == ["scores"]
        self.parameters = sum(c.size for c in self.constants.values() if c.ndim > 0)
        assert all(np.isfinite(c).all() for c in self.constants.values())

    def run(self, images):
        """scores f32[n][10] and the multiply-adds of one item."""
        values = dict(self.constants, image=images)
        multiply_adds = 0
        for op, inputs, output, attribute in self.nodes:
            y = OPERATORS[op](*[values[i] for i in inputs], **attribute)
            if op in ("Conv", "Gemm"):
                multiply_adds += values[inputs[1]].size * math.prod(y.shape[2:])
            values[output] = y
        return values["scores"], multiply_adds


def main():
    folder = os.path.join(sys.argv[1], "digits")
    images = np.load(os.path.join(folder, "validation.inputs.npy"))
    labels = np.load(os.path.join(folder, "validation.labels.npy"))
    assert images.dtype == np.uint8 and images.shape == (len(labels), 1, 28, 28) and len(labels) >= 1000
    assert (np.bincount(labels, minlength=10) == len(labels) // 10).all()

    with open(os.path.join(folder, "accuracies.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 5 and list(rows[0]) == ["name", "parameters", "mflop_per_item", "validation_accuracy", "seed"]
    on_disk = sorted(f for f in os.listdir(folder) if f.endswith(".onnx"))
    assert on_disk == sorted(row["name"] + ".onnx" for row in rows), on_disk

    before, cost_before = None, 0.0
    for row in rows:
        model = Model(os.path.join(folder, row["name"] + ".onnx"))
        scores, multiply_adds = model.run(images)
        assert scores.shape == (len(labels), 10) and scores.dtype == np.float32
        right = scores.argmax(axis=1) == labels
        stated = float(row["validation_accuracy"])
        print(f"{row['name']}: {right.mean():.4f}, stated {stated:.4f}")
        # Another order of summation may move an item that lies on the fence, no more.
        assert abs(right.mean() - stated) <= 1.5 / len(labels)
        assert model.parameters == int(row["parameters"])
        assert abs(2e-6 * multiply_adds - float(row["mflop_per_item"])) < 1e-6
        assert 2e-6 * multiply_adds > cost_before, "cost must rise from model to model"
        if before is not None:
            # Paired test on the items that the two models judge differently: 2.3 deviations are 1 %.
            gained, lost = int((right & ~before).sum()), int((before & ~right).sum())
            print(f"    gains {gained}, loses {lost} against the smaller one")
            assert gained - lost > 2.3 * math.sqrt(gained + lost), "no clear gain over the smaller model"
        before, cost_before = right, 2e-6 * multiply_adds


main()
