# SPDX-License-Identifier: Apache-2.0
"""Layers of the digits models: forward, backward, and the ONNX nodes that mean the same.

Activations are f32[n][h][w][c] while training (a convolution is then one matrix product per layer);
ONNX wants [n][c][h][w], so export transposes the weights and never the data.
Each layer has forward(x, training), backward(dy), parameters() -> [[value, gradient], ...],
out_shape(shape), macs(shape) and export(graph, name, x) -> the name of its output; shapes are
(h, w, c) of one item, or (c,).
"""
import numpy as np


class Layer:
    def parameters(self):
        return []

    def constants(self):
        """Arrays that are stored with the model but not trained by gradient."""
        return []

    def out_shape(self, shape):
        return shape

    def macs(self, shape):
        return 0


class Dense(Layer):
    def __init__(self, rng, inputs, outputs):
        self.w = [rng.normal(0, np.sqrt(2 / inputs), (inputs, outputs)).astype(np.float32), None]
        self.b = [np.zeros(outputs, np.float32), None]
        self.order = None  # rows of w in ONNX's order, when the input was flattened from [h][w][c]

    def parameters(self):
        return [self.w, self.b]

    def forward(self, x, training):
        self.x = x
        return x @ self.w[0] + self.b[0]

    def backward(self, dy):
        self.w[1] = self.x.T @ dy
        self.b[1] = dy.sum(axis=0)
        return dy @ self.w[0].T

    def out_shape(self, shape):
        return (self.w[0].shape[1],)

    def macs(self, shape):
        return self.w[0].size

    def export(self, graph, name, x):
        w = self.w[0] if self.order is None else self.w[0][self.order]
        return graph.node("Gemm", name, [x, graph.constant(name + ".weight", w.T),
                                         graph.constant(name + ".bias", self.b[0])], transB=1)


class Conv(Layer):
    def __init__(self, rng, inputs, outputs, kernel, stride=1, pad=0, bias=True):
        fan_in = kernel * kernel * inputs
        self.w = [rng.normal(0, np.sqrt(2 / fan_in), (fan_in, outputs)).astype(np.float32), None]
        self.b = [np.zeros(outputs, np.float32), None] if bias else None
        self.inputs, self.kernel, self.stride, self.pad = inputs, kernel, stride, pad

    def parameters(self):
        return [self.w] if self.b is None else [self.w, self.b]

    def out_shape(self, shape):
        side = [(s + 2 * self.pad - self.kernel) // self.stride + 1 for s in shape[:2]]
        return (*side, self.w[0].shape[1])

    def macs(self, shape):
        oh, ow, _ = self.out_shape(shape)
        return oh * ow * self.w[0].size

    def forward(self, x, training):
        k, s, p = self.kernel, self.stride, self.pad
        padded = np.pad(x, ((0, 0), (p, p), (p, p), (0, 0))) if p else x
        self.padded_shape = padded.shape
        windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), (1, 2))[:, ::s, ::s]
        n, oh, ow = windows.shape[:3]
        self.columns = windows.transpose(0, 1, 2, 4, 5, 3).reshape(n * oh * ow, -1)
        y = self.columns @ self.w[0]
        if self.b is not None:
            y += self.b[0]
        return y.reshape(n, oh, ow, -1)

    def backward(self, dy):
        k, s, p = self.kernel, self.stride, self.pad
        n, oh, ow, outputs = dy.shape
        flat = dy.reshape(-1, outputs)
        self.w[1] = self.columns.T @ flat
        if self.b is not None:
            self.b[1] = flat.sum(axis=0)
        if self.inputs == 1:
            return None  # the image needs no gradient
        dcolumns = (flat @ self.w[0].T).reshape(n, oh, ow, k, k, self.inputs)
        dx = np.zeros(self.padded_shape, np.float32)
        for i in range(k):
            for j in range(k):
                dx[:, i:i + s * oh:s, j:j + s * ow:s] += dcolumns[:, :, :, i, j]
        return dx[:, p:dx.shape[1] - p, p:dx.shape[2] - p]

    def export(self, graph, name, x):
        k = self.kernel
        w = self.w[0].reshape(k, k, self.inputs, -1).transpose(3, 2, 0, 1)
        inputs = [x, graph.constant(name + ".weight", w)]
        if self.b is not None:
            inputs.append(graph.constant(name + ".bias", self.b[0]))
        return graph.node("Conv", name, inputs, dilations=[1, 1], group=1, kernel_shape=[k, k],
                          pads=[self.pad] * 4, strides=[self.stride] * 2)


class BatchNorm(Layer):
    EPSILON = 1e-5
    KEEP = 0.95  # of the running statistics, per step

    def __init__(self, channels):
        self.gamma = [np.ones(channels, np.float32), None]
        self.beta = [np.zeros(channels, np.float32), None]
        self.mean = np.zeros(channels, np.float32)
        self.var = np.ones(channels, np.float32)

    def parameters(self):
        return [self.gamma, self.beta]

    def constants(self):
        return [self.mean, self.var]

    def forward(self, x, training):
        mean, var = self.mean, self.var
        if training:
            flat = x.reshape(-1, x.shape[-1])
            mean = flat.mean(axis=0)
            var = (flat * flat).mean(axis=0) - mean * mean
            self.mean = np.float32(self.KEEP) * self.mean + np.float32(1 - self.KEEP) * mean
            self.var = np.float32(self.KEEP) * self.var + np.float32(1 - self.KEEP) * var
        self.inverse = 1 / np.sqrt(var + np.float32(self.EPSILON))
        self.normal = (x - mean) * self.inverse
        return self.normal * self.gamma[0] + self.beta[0]

    def backward(self, dy):
        flat = dy.reshape(-1, dy.shape[-1])
        self.beta[1] = flat.sum(axis=0)
        self.gamma[1] = (flat * self.normal.reshape(flat.shape)).sum(axis=0)
        n = np.float32(len(flat))
        return (self.gamma[0] * self.inverse) * (dy - self.beta[1] / n - self.normal * (self.gamma[1] / n))

    def export(self, graph, name, x):
        arrays = [("scale", self.gamma[0]), ("bias", self.beta[0]), ("mean", self.mean), ("var", self.var)]
        return graph.node("BatchNormalization", name,
                          [x] + [graph.constant(f"{name}.{key}", value) for key, value in arrays],
                          epsilon=self.EPSILON)


class Relu(Layer):
    def forward(self, x, training):
        self.positive = x > 0
        return x * self.positive

    def backward(self, dy):
        return dy * self.positive

    def export(self, graph, name, x):
        return graph.node("Relu", name, [x])


class MaxPool(Layer):
    """2x2, stride 2; the gradient goes to every position that holds the maximum."""

    def out_shape(self, shape):
        return (shape[0] // 2, shape[1] // 2, shape[2])

    def forward(self, x, training):
        n, h, w, c = x.shape
        self.blocks = x.reshape(n, h // 2, 2, w // 2, 2, c)
        self.y = self.blocks.max(axis=(2, 4), keepdims=True)
        return self.y.reshape(n, h // 2, w // 2, c)

    def backward(self, dy):
        n, h, w, c = dy.shape
        dx = (self.blocks == self.y) * dy.reshape(n, h, 1, w, 1, c)
        return dx.reshape(n, h * 2, w * 2, c)

    def export(self, graph, name, x):
        return graph.node("MaxPool", name, [x], kernel_shape=[2, 2], pads=[0] * 4, strides=[2, 2])


class GlobalAverage(Layer):
    def out_shape(self, shape):
        return (shape[2],)

    def forward(self, x, training):
        self.shape = x.shape
        return x.mean(axis=(1, 2))

    def backward(self, dy):
        _, h, w, _ = self.shape
        return np.broadcast_to(dy[:, None, None] / np.float32(h * w), self.shape)

    def export(self, graph, name, x):
        pooled = graph.node("GlobalAveragePool", name, [x])
        return graph.node("Flatten", name + ".flat", [pooled], axis=1)


class Flatten(Layer):
    """Training flattens [h][w][c], ONNX [c][h][w]; the Dense layer after it keeps the permutation."""

    def __init__(self, shape, dense):
        dense.order = np.arange(np.prod(shape)).reshape(shape).transpose(2, 0, 1).reshape(-1)

    def out_shape(self, shape):
        return (int(np.prod(shape)),)

    def forward(self, x, training):
        self.shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, dy):
        return dy.reshape(self.shape)

    def export(self, graph, name, x):
        return graph.node("Flatten", name, [x], axis=1)


class Sequence(Layer):
    def __init__(self, *layers):
        self.layers = layers

    def parameters(self):
        return [p for layer in self.layers for p in layer.parameters()]

    def constants(self):
        return [c for layer in self.layers for c in layer.constants()]

    def out_shape(self, shape):
        for layer in self.layers:
            shape = layer.out_shape(shape)
        return shape

    def macs(self, shape):
        total = 0
        for layer in self.layers:
            total += layer.macs(shape)
            shape = layer.out_shape(shape)
        return total

    def forward(self, x, training):
        for layer in self.layers:
            x = layer.forward(x, training)
        return x

    def backward(self, dy):
        for layer in reversed(self.layers):
            dy = layer.backward(dy)
        return dy

    def export(self, graph, name, x):
        for i, layer in enumerate(self.layers):
            x = layer.export(graph, f"{name}.{i}", x)
        return x


class Residual(Layer):
    """relu(body(x) + shortcut(x)); the shortcut is the identity where it is None."""

    def __init__(self, body, shortcut=None):
        self.body, self.shortcut, self.relu = body, shortcut, Relu()

    def parameters(self):
        return self.body.parameters() + (self.shortcut.parameters() if self.shortcut else [])

    def constants(self):
        return self.body.constants() + (self.shortcut.constants() if self.shortcut else [])

    def out_shape(self, shape):
        return self.body.out_shape(shape)

    def macs(self, shape):
        return self.body.macs(shape) + (self.shortcut.macs(shape) if self.shortcut else 0)

    def forward(self, x, training):
        side = self.shortcut.forward(x, training) if self.shortcut else x
        return self.relu.forward(self.body.forward(x, training) + side, training)

    def backward(self, dy):
        dy = self.relu.backward(dy)
        return self.body.backward(dy) + (self.shortcut.backward(dy) if self.shortcut else dy)

    def export(self, graph, name, x):
        body = self.body.export(graph, name + ".body", x)
        side = self.shortcut.export(graph, name + ".shortcut", x) if self.shortcut else x
        total = graph.node("Add", name + ".add", [body, side])
        return self.relu.export(graph, name + ".relu", total)
