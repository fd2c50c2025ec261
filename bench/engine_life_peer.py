# SPDX-License-Identifier: Apache-2.0
"""The peer of bench/engine_life.c: one life of a model in ONNX Runtime.

engine_life_peer.py [MODEL INPUTS BATCH CPU WINDOW_NS NAME=SIZE...]

Prints the version of ONNX Runtime, nothing where it is not there; and, of a model with one thread on that CPU, with free dimensions of
these sizes: ns of the session's creation, of the first run, of the median and of the 99th percentile of those that follow for
WINDOW_NS, and the bytes that were resident at most, at the end and before the session.
"""
import os
import sys
import time

import numpy

try:
    import onnxruntime
except ImportError:
    sys.exit(0)

TYPES = {"tensor(float)": numpy.float32, "tensor(int64)": numpy.int64}


def peak_bytes():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) * 1024


def timed(call, *arguments):
    begin = time.perf_counter_ns()
    call(*arguments)
    return time.perf_counter_ns() - begin


def bind(session, file, batch, sizes):
    """One binding for each set of inputs: all of one tensor's lie behind one another."""
    shapes = {t.name: [batch] + [sizes.get(dim, dim) for dim in t.shape[1:]] for t in session.get_inputs() + session.get_outputs()}
    set_bytes = sum(int(numpy.prod(shapes[t.name])) * TYPES[t.type]().itemsize for t in session.get_inputs())
    bindings = [session.io_binding() for _ in range(os.fstat(file.fileno()).st_size // set_bytes)]
    for tensor in session.get_inputs():
        for binding in bindings:
            values = numpy.fromfile(file, TYPES[tensor.type], numpy.prod(shapes[tensor.name])).reshape(shapes[tensor.name])
            binding.bind_ortvalue_input(tensor.name, onnxruntime.OrtValue.ortvalue_from_numpy(values))
    for tensor in session.get_outputs():
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shapes[tensor.name], TYPES[tensor.type])
        for binding in bindings:
            binding.bind_ortvalue_output(tensor.name, value)
    return bindings


def live(model, inputs, batch, window_ns, sizes):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = 1
    for name, size in sizes.items():  # not the batch: that makes nothing faster
        options.add_free_dimension_override_by_name(name, size)
    empty = peak_bytes()
    begin = time.perf_counter_ns()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    load_ns = time.perf_counter_ns() - begin
    with open(inputs, "rb") as file:
        bindings = bind(session, file, batch, sizes)
    first_ns = timed(session.run_with_iobinding, bindings[0])
    runs_ns, spent_ns = [], 0
    while len(runs_ns) < 20000 and (len(runs_ns) < 3 or spent_ns < window_ns):
        runs_ns.append(timed(session.run_with_iobinding, bindings[(len(runs_ns) + 1) % len(bindings)]))
        spent_ns += runs_ns[-1]
    runs_ns.sort()
    print(load_ns, first_ns, runs_ns[len(runs_ns) // 2], runs_ns[len(runs_ns) * 99 // 100], peak_bytes(), empty)


print(onnxruntime.__version__, flush=True)
if len(sys.argv) > 1:
    model, inputs, batch, cpu, window_ns = sys.argv[1:6]
    os.sched_setaffinity(0, {int(cpu)})
    live(model, inputs, int(batch), int(window_ns), {n: int(s) for n, s in (word.split("=") for word in sys.argv[6:])})
