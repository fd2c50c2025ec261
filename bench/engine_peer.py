# SPDX-License-Identifier: Apache-2.0
"""The peer of bench/engine.c, ONNX Runtime, one request a line; it starts with its version, "-" where it is not there.

load MODEL INPUTS OUTPUTS BATCH CPU... NAME=SIZE...   reads an ONNX file, and the inputs of BATCH items from INPUTS; free
                                         dimensions are given their sizes; one thread on each CPU; runs once and
                                         writes the outputs to OUTPUTS: answers "ok"
run COUNT                                answers the time in ns of each run, after one that is not counted
"""
import os
import sys
import time

import numpy

try:
    import onnxruntime
except ImportError:
    print("-", flush=True)
    sys.exit(0)

TYPES = {"tensor(float)": numpy.float32, "tensor(int64)": numpy.int64}


def load(model, inputs, outputs, batch, cpus, sizes):
    os.sched_setaffinity(0, {cpus[0]})  # the thread that calls is the first of the pool
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = len(cpus)
    if len(cpus) > 1:  # CPUs count from 1; none is named for the thread that calls
        options.add_session_config_entry("session.intra_op_thread_affinities", ";".join(str(c + 1) for c in cpus[1:]))
    for name, size in sizes.items():
        options.add_free_dimension_override_by_name(name, size)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    with open(inputs, "rb") as file:
        for tensor in session.get_inputs():
            shape = [batch] + [sizes.get(dim, dim) for dim in tensor.shape[1:]]
            values = numpy.fromfile(file, TYPES[tensor.type], numpy.prod(shape)).reshape(shape)
            binding.bind_ortvalue_input(tensor.name, onnxruntime.OrtValue.ortvalue_from_numpy(values))
    for tensor in session.get_outputs():
        shape = [batch] + [sizes.get(dim, dim) for dim in tensor.shape[1:]]
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, TYPES[tensor.type])
        binding.bind_ortvalue_output(tensor.name, value)
    session.run_with_iobinding(binding)
    with open(outputs, "wb") as file:
        for value in binding.get_outputs():
            value.numpy().tofile(file)
    return session, binding


print(onnxruntime.__version__, flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "load":
        session = binding = None  # the last one's memory and threads go first
        sizes = dict(word.split("=") for word in words[5:] if "=" in word)
        session, binding = load(*words[1:4], int(words[4]), [int(word) for word in words[5:] if "=" not in word],
                                {name: int(size) for name, size in sizes.items()})
        print("ok", flush=True)
    else:
        session.run_with_iobinding(binding)
        spent_ns = []
        for _ in range(int(words[1])):
            begin = time.perf_counter_ns()
            session.run_with_iobinding(binding)
            spent_ns.append(time.perf_counter_ns() - begin)
        print(*spent_ns, flush=True)
