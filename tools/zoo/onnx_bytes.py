# SPDX-License-Identifier: Apache-2.0
"""Writes ONNX files without any ONNX package: the few protocol-buffer messages that a graph needs.

Field numbers are those of onnx.proto (IR version 7, operator set 13).
"""
import struct

import numpy as np

FLOAT, UINT8, INT64 = 1, 2, 7
ATTRIBUTE_FLOAT, ATTRIBUTE_INT, ATTRIBUTE_INTS, ATTRIBUTE_STRINGS = 1, 2, 7, 8


def _varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _int(field, value):
    return _varint(field << 3) + _varint(value)


def _bytes(field, value):
    if isinstance(value, str):
        value = value.encode()
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _attribute(name, value):
    head = _bytes(1, name)
    if isinstance(value, float):
        return head + _varint(2 << 3 | 5) + struct.pack("<f", value) + _int(20, ATTRIBUTE_FLOAT)
    if isinstance(value, int):
        return head + _int(3, value) + _int(20, ATTRIBUTE_INT)
    if isinstance(value[0], str):
        return head + b"".join(_bytes(9, v) for v in value) + _int(20, ATTRIBUTE_STRINGS)
    return head + b"".join(_int(8, v) for v in value) + _int(20, ATTRIBUTE_INTS)


def _value_info(name, element, dims):
    """dims[0] is a symbol, the batch; the others are numbers."""
    shape = b"".join(_bytes(1, _bytes(2, d) if isinstance(d, str) else _int(1, d)) for d in dims)
    return _bytes(1, name) + _bytes(2, _bytes(1, _int(1, element) + _bytes(2, shape)))


def _node(op, name, inputs, output, attributes):
    return (b"".join(_bytes(1, i) for i in inputs) + _bytes(2, output) + _bytes(3, name) + _bytes(4, op) +
            b"".join(_bytes(5, _attribute(key, attributes[key])) for key in sorted(attributes)))


class Graph:
    """Collects nodes and constants in the order of their making; bytes() is the finished file."""

    def __init__(self, name):
        self.name = name
        self.nodes, self.initializers = [], []

    def constant(self, name, array):
        element = {"float32": FLOAT, "int64": INT64}[array.dtype.name]
        raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        self.initializers.append(b"".join(_int(1, d) for d in array.shape) + _int(2, element) +
                                 _bytes(8, name) + _bytes(9, raw))
        return name

    def node(self, op, name, inputs, **attributes):
        self.nodes.append([op, name, list(inputs), name + ".out", attributes])
        return name + ".out"

    def rename(self, old, new):
        """Gives a value another name, in the node that makes it and in those that read it."""
        for node in self.nodes:
            node[2] = [new if i == old else i for i in node[2]]
            node[3] = new if node[3] == old else node[3]

    def bytes(self, inputs, outputs):
        """inputs and outputs: lists of (name, element type, dims)."""
        graph = (b"".join(_bytes(1, _node(*n)) for n in self.nodes) + _bytes(2, self.name) +
                 b"".join(_bytes(5, i) for i in self.initializers) +
                 b"".join(_bytes(11, _value_info(*i)) for i in inputs) +
                 b"".join(_bytes(12, _value_info(*o)) for o in outputs))
        opset = _bytes(1, "") + _int(2, 13)
        return _int(1, 7) + _bytes(2, "leat-zoo") + _bytes(7, graph) + _bytes(8, opset)
