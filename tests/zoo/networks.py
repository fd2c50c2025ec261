# SPDX-License-Identifier: Apache-2.0
"""What checks of whole networks share: models of leat-zoo, inputs for them, and how ONNX Runtime and the engine answer.

An answer is a list of arrays for each output, one for each item: of a detector these differ in size.
"""
import json
import subprocess

import numpy as np
import onnxruntime

UNSUPPORTED, NO_PRECISION = 3, 4  # exit codes of run_model


def list_models(zoo, size):
    text = subprocess.run([zoo, "list", "--size", size, "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(text)["models"]


def write_model(zoo, size, model, seed, path, *more):
    subprocess.run([zoo, "write", model["name"], "--size", size, "--seed", str(seed), "-o", path, *more],
                   check=True, stdout=subprocess.DEVNULL)


def nominal_extents(model):
    """Of dimensions that inputs leave free, but the batch."""
    wanted = {dim for port in model["inputs"] for dim in port["dims"]} - {"N"}
    return {name: extent for name, extent in model["symbols"].items() if name in wanted}


def make_inputs(model, extents, items, rng):
    inputs = {}
    for port in model["inputs"]:
        shape = [items if d == "N" else extents.get(d, d) for d in port["dims"]]
        if port["dtype"] == "f32":
            inputs[port["name"]] = rng.standard_normal(shape, dtype=np.float32)
        elif port["end"] == 2 and "mask" in port["name"]:  # ones, then zeros; never none
            lengths = rng.integers(1, shape[1] + 1, size=(shape[0], 1))
            lengths[0] = shape[1]
            inputs[port["name"]] = (np.arange(shape[1])[None, :] < lengths).astype(np.int64)
        else:
            inputs[port["name"]] = rng.integers(0, port["end"], size=shape, dtype=np.int64)
    return inputs


def make_session(path, optimised=True):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    if not optimised:  # which makes one node of a Pad with zeros and a MaxPool, and pads with less than that
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def varies(port):
    """Its sizes depend on contents: there is no batch, and items are run alone."""
    return port["dims"][0] != "N"


def run_session(session, model, inputs):
    names = [port["name"] for port in model["outputs"]]
    items = len(next(iter(inputs.values())))
    if not any(varies(port) for port in model["outputs"]):
        return [list(value) for value in session.run(names, inputs)]
    alone = [session.run(names, {name: value[i:i + 1] for name, value in inputs.items()}) for i in range(items)]
    return [[answer[o] if varies(port) else answer[o][0] for answer in alone] for o, port in enumerate(model["outputs"])]


def run_engine(run_model, model, path, extents, inputs, expected, backend="cpu", precision="f32", calibration=None):
    """0 and the answer, in the shapes of the expected one; or the exit code where there is none, and why."""
    def join(arrays):
        return b"".join(arrays[port["name"]].tobytes() for port in model["inputs"])

    items = len(next(iter(inputs.values())))
    known = len(next(iter(calibration.values()))) if calibration else 0
    done = subprocess.run([run_model, "-b", backend, "-p", precision, "-c", str(known), path, str(items),
                           *[f"{name}={extent}" for name, extent in extents.items()]],
                          input=(join(calibration) if calibration else b"") + join(inputs), capture_output=True)
    if done.returncode in (UNSUPPORTED, NO_PRECISION):
        return done.returncode, done.stderr.decode().strip()
    assert done.returncode == 0, done.stderr.decode()
    varying = [o for o, port in enumerate(model["outputs"]) if varies(port)]
    values_end = len(done.stdout) - 2 * items * len(varying)
    values = np.frombuffer(done.stdout[:values_end], dtype=np.float32)
    sizes = np.frombuffer(done.stdout[values_end:], dtype=np.uint16).reshape(items, len(varying))
    answer = []
    for o, port in enumerate(model["outputs"]):
        assert all(value.dtype == np.float32 for value in expected[o])
        shape = list(expected[o][0].shape)
        if o in varying:  # as many rows as there can be, zeros behind those that there are
            shape[0] = model["symbols"][port["dims"][0]]
        count = items * int(np.prod(shape))
        assert values.size >= count, (port, values.size, count)
        whole, values = values[:count].reshape([items, *shape]), values[count:]
        if o in varying:
            found = sizes[:, varying.index(o)]
            assert all(not row[size:].any() for row, size in zip(whole, found)), port
            whole = [row[:size] for row, size in zip(whole, found)]
        answer.append(list(whole))
    assert values.size == 0, values.size
    return 0, answer
