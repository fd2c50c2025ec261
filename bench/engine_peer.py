# SPDX-License-Identifier: Apache-2.0
"""The peer of bench/engine.c, ONNX Runtime, one request a line; it starts with its version, "-" where it is not there.

load MODEL INPUTS OUTPUTS BATCH CPU... NAME=SIZE...   reads an ONNX file, and the inputs of BATCH items from INPUTS; free
                                         dimensions are given their sizes; one thread on each CPU; runs once and
                                         writes the outputs to OUTPUTS: answers "ok"
quantise MODEL INPUTS BATCH NAME=SIZE... makes int8 models of it in the forms that its documentation names for this kind of CPU,
                                         calibrated on these inputs: answers "ok"; "missing" where a package is
keep NUMBER PATH                         writes one of them to PATH, 0 or 1: QDQ with u8 or with s8 activations: answers "ok"
load_quantised ...                       as load, of what the last `quantise` made: the one that runs fastest, in rounds; answers
                                         what it is called
run COUNT                                answers the time in ns of each run, after one that is not counted
"""
import os
import shutil
import sys
import tempfile
import time

import numpy

answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer

try:
    import onnxruntime
except ImportError:
    print("-", file=answers, flush=True)
    sys.exit(0)

TYPES = {"tensor(float)": numpy.float32, "tensor(int64)": numpy.int64}
FORMS = ("QDQ-u8", "QDQ-s8", "QOperator-u8", "dynamic")  # what quantise() makes
ROUNDS = 4


ALL_CPUS = os.sched_getaffinity(0)


def read_inputs(session, path, batch, sizes):
    with open(path, "rb") as file:
        for tensor in session.get_inputs():
            shape = [batch] + [sizes.get(dim, dim) for dim in tensor.shape[1:]]
            yield tensor.name, numpy.fromfile(file, TYPES[tensor.type], numpy.prod(shape)).reshape(shape)


def quantise(model, inputs, batch, sizes, folder):
    """Returns the paths of what it made."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.tools.onnx_model_utils import make_dim_param_fixed

    class Reader(CalibrationDataReader):
        def __init__(self, feed):
            self.feeds = iter([feed])

        def get_next(self):
            return next(self.feeds, None)

    os.sched_setaffinity(0, ALL_CPUS)
    fixed, prepared = os.path.join(folder, "fixed"), os.path.join(folder, "prepared")
    network = onnx.load(model)
    for name, size in sizes.items():
        make_dim_param_fixed(network.graph, name, size)
    onnx.save(network, fixed)
    # What its quant_pre_process() is for, which drops what it has optimised where it may not infer symbolic shapes.
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = prepared
    feed = dict(read_inputs(onnxruntime.InferenceSession(fixed, options, providers=["CPUExecutionProvider"]), inputs, batch, {}))
    # Left out: QOperator with s8 activations, which the documentation warns of on x86, and which takes many times as long.
    forms = [(QuantFormat.QDQ, QuantType.QUInt8), (QuantFormat.QDQ, QuantType.QInt8), (QuantFormat.QOperator, QuantType.QUInt8)]
    for number, (form, activations) in enumerate(forms):
        quantize_static(prepared, os.path.join(folder, str(number)), Reader(feed), quant_format=form, per_channel=True,
                        activation_type=activations, weight_type=QuantType.QInt8)
    # What it names for transformers. Convolutions would be slower so.
    dynamic = os.path.join(folder, str(len(forms)))
    quantize_dynamic(prepared, dynamic, per_channel=True, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"])
    return [os.path.join(folder, str(number)) for number in range(len(forms) + 1)]


def load(model, inputs, outputs, batch, cpus, sizes):
    os.sched_setaffinity(0, {cpus[0]})  # the thread that calls is the first of the pool
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = len(cpus)
    if len(cpus) > 1:  # CPUs count from 1; none is named for the thread that calls
        options.add_session_config_entry("session.intra_op_thread_affinities", ";".join(str(c + 1) for c in cpus[1:]))
    for name, size in sizes.items():  # not the batch: that makes nothing faster
        options.add_free_dimension_override_by_name(name, size)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, values in read_inputs(session, inputs, batch, sizes):
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(values))
    for tensor in session.get_outputs():
        shape = [batch] + [sizes.get(dim, dim) for dim in tensor.shape[1:]]
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, TYPES[tensor.type])
        binding.bind_ortvalue_output(tensor.name, value)
    session.run_with_iobinding(binding)
    with open(outputs, "wb") as file:
        for value in binding.get_outputs():
            value.numpy().tofile(file)
    return session, binding


def run(session, binding, count):
    """Times in ns, after a run that is not counted."""
    spent_ns = []
    for _ in range(count + 1):
        begin = time.perf_counter_ns()
        session.run_with_iobinding(binding)
        spent_ns.append(time.perf_counter_ns() - begin)
    return spent_ns[1:]


def load_fastest(models, *how):
    """The session, the binding and the number of the one with the shortest run of all rounds, in which they take turns: a machine
    may be slow for seconds. What takes half as long again as the fastest in a round is out."""
    loaded = {number: load(model, *how) for number, model in enumerate(models)}
    least = dict.fromkeys(loaded, float("inf"))
    for _ in range(ROUNDS):
        spent = {number: min(run(*loaded[number], 2)) for number in loaded}
        loaded = {number: kept for number, kept in loaded.items() if spent[number] <= 1.5 * min(spent.values())}
        least = {number: min(least[number], spent[number]) for number in loaded}
    number = min(least, key=least.get)
    return *loaded[number], number


print(onnxruntime.__version__, file=answers, flush=True)
quantised, folder = [], tempfile.TemporaryDirectory()
for line in sys.stdin:
    words = [word for word in line.split() if "=" not in word]
    sizes = {name: int(size) for name, size in (word.split("=") for word in line.split() if "=" in word)}
    answer = "ok"
    if words[0] == "quantise":
        try:
            quantised = quantise(*words[1:3], int(words[3]), sizes, folder.name)
        except ImportError:
            answer = "missing"
    elif words[0] == "keep":
        shutil.copyfile(quantised[int(words[1])], words[2])
    elif words[0] == "run":
        answer = " ".join(map(str, run(session, binding, int(words[1]))))
    else:
        session = binding = None  # the last one's memory and threads go first
        how = *words[2:4], int(words[4]), [int(word) for word in words[5:]], sizes
        if words[0] == "load_quantised":
            session, binding, number = load_fastest(quantised, *how)
            answer = FORMS[number]
        else:
            session, binding = load(words[1], *how)
    print(answer, file=answers, flush=True)
