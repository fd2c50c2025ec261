# SPDX-License-Identifier: Apache-2.0
"""The peer of bench/engine_life.c: one life of a model in ONNX Runtime.

engine_life_peer.py [MODEL INPUTS BATCH CPU RUNS PAUSES NAME=SIZE...]

Prints the version of ONNX Runtime, nothing where it is not there; and, of a model with one thread on that CPU, with free dimensions of
these sizes and indices drawn anew before each run: ns of the session's creation, of the first run, of the median and of the
99th percentile of the RUNS that follow, of the median of PAUSES more, each after a pause of 20 ms, and the bytes that were
resident at most, at the end and before the session. INPUTS has the elements of each input; of one of whole numbers, the number
that they are below.
"""
import mmap
import os
import sys
import time

import numpy

try:
    import onnxruntime
except ImportError:
    sys.exit(0)

MEMORY_BYTES = 1 << 30
TYPES = {"tensor(float)": numpy.float32, "tensor(int64)": numpy.int64}


def peak_bytes():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) * 1024


def timed(call, *arguments):
    begin = time.perf_counter_ns()
    call(*arguments)
    return time.perf_counter_ns() - begin


def draw(indices, drawn):
    """The next of a life into (OrtValue, shape, end) each, by the hash of bench/engine_life.c. Returns how many were drawn."""
    for value, shape, end in indices:
        count = int(numpy.prod(shape))
        x = numpy.arange(drawn, drawn + count, dtype=numpy.uint64) * numpy.uint64(0x9e3779b97f4a7c15)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xbf58476d1ce4e5b9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94d049bb133111eb)
        value.update_inplace(((x >> numpy.uint64(32)) % numpy.uint64(end)).astype(numpy.int64).reshape(shape))
        drawn += count
    return drawn


def bind(session, file, batch, sizes):
    """The binding, and of inputs that are indices what draw() needs."""
    shapes = {t.name: [batch] + [sizes.get(dim, dim) for dim in t.shape[1:]] for t in session.get_inputs() + session.get_outputs()}
    binding, indices = session.io_binding(), []
    for tensor in session.get_inputs():
        kind, shape = TYPES[tensor.type], shapes[tensor.name]
        if kind == numpy.int64:
            value = onnxruntime.OrtValue.ortvalue_from_numpy(numpy.zeros(shape, kind))
            indices.append((value, shape, int(numpy.fromfile(file, kind, 1)[0])))
        else:
            value = onnxruntime.OrtValue.ortvalue_from_numpy(numpy.fromfile(file, kind, numpy.prod(shape)).reshape(shape))
        binding.bind_ortvalue_input(tensor.name, value)
    for tensor in session.get_outputs():
        binding.bind_ortvalue_output(tensor.name, onnxruntime.OrtValue.ortvalue_from_shape_and_type(shapes[tensor.name],
                                                                                                   TYPES[tensor.type]))
    return binding, indices


def have_memory():
    """Another process has just had a GiB, as in bench/engine_life.c."""
    child = os.fork()
    if child == 0:
        memory = mmap.mmap(-1, MEMORY_BYTES)
        memory.madvise(mmap.MADV_HUGEPAGE)
        memory.write(bytes(MEMORY_BYTES))
        os._exit(0)
    os.waitpid(child, 0)


def live(model, inputs, batch, runs, pauses, sizes):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = 1
    for name, size in sizes.items():  # not the batch: that makes nothing faster
        options.add_free_dimension_override_by_name(name, size)
    have_memory()
    empty = peak_bytes()
    begin = time.perf_counter_ns()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    load_ns = time.perf_counter_ns() - begin
    with open(inputs, "rb") as file:
        binding, indices = bind(session, file, batch, sizes)
    drawn = draw(indices, 0)
    first_ns = timed(session.run_with_iobinding, binding)
    runs_ns = []
    for _ in range(runs):
        drawn = draw(indices, drawn)
        runs_ns.append(timed(session.run_with_iobinding, binding))
    runs_ns.sort()
    paused_ns = []
    for _ in range(pauses):
        time.sleep(0.02)
        drawn = draw(indices, drawn)
        paused_ns.append(timed(session.run_with_iobinding, binding))
    paused_ns.sort()
    print(load_ns, first_ns, runs_ns[len(runs_ns) // 2], runs_ns[len(runs_ns) * 99 // 100], paused_ns[pauses // 2], peak_bytes(),
          empty)


print(onnxruntime.__version__, flush=True)
if len(sys.argv) > 1:
    model, inputs, batch, cpu, runs, pauses = sys.argv[1:7]
    os.sched_setaffinity(0, {int(cpu)})
    live(model, inputs, int(batch), int(runs), int(pauses), {n: int(s) for n, s in (word.split("=") for word in sys.argv[7:])})
