# SPDX-License-Identifier: Apache-2.0
"""A small LSTM with a dense layer behind its last step, its gradients, and Adam. All in double precision.

Source   Gates as in S. Hochreiter and J. Schmidhuber, "Long Short-Term Memory", 1997, with a forget gate; cell and output pass
         a rectifier instead of the hyperbolic tangent, as in Themis' predictor. Adam: D. Kingma and J. Ba, 2015.
Shapes   x f64[batch][steps], one number a step; kernel f64[4 units], recurrent f64[units][4 units], bias f64[4 units], dense
         f64[units], offset f64[1]. Gates lie in the order input, output, forget, cell, as ONNX has them.
"""
import numpy as np

PARTS = ("kernel", "recurrent", "bias", "dense", "offset")


def _orthogonal(rng, rows, columns):
    q, r = np.linalg.qr(rng.standard_normal((columns, rows)))
    return (q * np.sign(np.diag(r))).T


class Network:
    """All parameters lie in one vector; the parts are views of it."""

    def __init__(self, units, rng):
        self.units = units
        sizes = {"kernel": (4 * units,), "recurrent": (units, 4 * units), "bias": (4 * units,), "dense": (units,), "offset": (1,)}
        self.vector = np.zeros(sum(int(np.prod(s)) for s in sizes.values()))
        self.gradient = np.zeros_like(self.vector)
        at = 0
        for part in PARTS:
            count = int(np.prod(sizes[part]))
            setattr(self, part, self.vector[at:at + count].reshape(sizes[part]))
            setattr(self, "d_" + part, self.gradient[at:at + count].reshape(sizes[part]))
            at += count
        limit = np.sqrt(6 / (1 + 4 * units))
        self.kernel[:] = rng.uniform(-limit, limit, 4 * units)
        self.recurrent[:] = _orthogonal(rng, units, 4 * units)
        self.bias[2 * units:3 * units] = 1  # at first it forgets little
        limit = np.sqrt(6 / (units + 1))
        self.dense[:] = rng.uniform(-limit, limit, units)

    def forward(self, x):
        """f64[batch]; what backward() needs is kept."""
        u = self.units
        h = c = np.zeros((len(x), u))
        self.steps = []
        for t in range(x.shape[1]):
            z = x[:, t:t + 1] * self.kernel + h @ self.recurrent + self.bias
            gates = 1 / (1 + np.exp(-z[:, :3 * u]))
            i, o, f = gates[:, :u], gates[:, u:2 * u], gates[:, 2 * u:]
            g = np.maximum(z[:, 3 * u:], 0)
            previous = c
            c = f * previous + i * g
            active = np.maximum(c, 0)
            self.steps.append((x[:, t], h, previous, gates, g, c, active))
            h = o * active
        self.last = h
        return h @ self.dense + self.offset[0]

    def backward(self, d_out):
        """Adds nothing: the gradient of the sum of d_out * forward(x) replaces what was there."""
        u = self.units
        self.gradient[:] = 0
        self.d_dense[:] = d_out @ self.last
        self.d_offset[0] = d_out.sum()
        d_h = d_out[:, None] * self.dense
        d_c = 0
        d_z = np.empty((len(d_out), 4 * u))
        for x, h, previous, gates, g, c, active in reversed(self.steps):
            i, o, f = gates[:, :u], gates[:, u:2 * u], gates[:, 2 * u:]
            d_c = d_c + d_h * o * (c > 0)
            d_z[:, :u] = d_c * g
            d_z[:, u:2 * u] = d_h * active
            d_z[:, 2 * u:3 * u] = d_c * previous
            d_z[:, :3 * u] *= gates * (1 - gates)
            d_z[:, 3 * u:] = d_c * i * (g > 0)
            self.d_kernel += x @ d_z
            self.d_recurrent += h.T @ d_z
            self.d_bias += d_z.sum(axis=0)
            d_h = d_z @ self.recurrent.T
            d_c = d_c * f

    def loss(self, x, y, l1):
        """Mean squared error and the penalty; gradient of both."""
        error = self.forward(x) - y
        self.backward(2 * error / len(y))
        self.d_kernel += l1 * np.sign(self.kernel)
        return np.mean(error * error) + l1 * np.abs(self.kernel).sum()


class Adam:
    def __init__(self, network, rate=1e-3):
        self.network, self.rate, self.step = network, rate, 0
        self.m, self.v = np.zeros_like(network.vector), np.zeros_like(network.vector)

    def update(self):
        self.step += 1
        gradient = self.network.gradient
        self.m += 0.1 * (gradient - self.m)
        self.v += 0.001 * (gradient * gradient - self.v)
        rate = self.rate * np.sqrt(1 - 0.999 ** self.step) / (1 - 0.9 ** self.step)
        self.network.vector -= rate * self.m / (np.sqrt(self.v) + 1e-7)
