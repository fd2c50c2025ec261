# SPDX-License-Identifier: Apache-2.0
"""What leat-zoo writes is valid ONNX and runs elsewhere: the ONNX checker and ONNX Runtime on every model.

Outputs have the shapes that leat-zoo claims, are finite and of sane size, differ between items, and an item
gives the same alone as in a batch. With constants in a file of their own they are the same bytes.
At test size the engine's backends are given the same inputs, at the same lengths: no output is further from ONNX
Runtime's than 1e-4 of the largest value of that output.

Usage: check_onnxruntime.py LEAT_ZOO RUN_MODEL full|test [NAME]...
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnxruntime
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
try:
    import onnx
except ImportError:
    onnx = None
    print("the onnx package is absent: no checker")

ITEMS = 3
SEED = 1
MISSING = {"yolov5n-nms", "yolov5n-crops", "yolov5n-crops-128"}  # sizes of outputs depend on tensor contents


def make_inputs(model, extents, rng):
    inputs = {}
    for port in model["inputs"]:
        shape = [extents.get(d, d) for d in port["dims"]]
        if port["dtype"] == "f32":
            inputs[port["name"]] = rng.standard_normal(shape, dtype=np.float32)
        elif port["end"] == 2 and "mask" in port["name"]:  # ones, then zeros; never none
            lengths = rng.integers(1, shape[1] + 1, size=(shape[0], 1))
            lengths[0] = shape[1]
            inputs[port["name"]] = (np.arange(shape[1])[None, :] < lengths).astype(np.int64)
        else:
            inputs[port["name"]] = rng.integers(0, port["end"], size=shape, dtype=np.int64)
    return inputs


def check_shape(model, port, extents, value):
    assert value.ndim == len(port["dims"]), (port, value.shape)
    for dim, extent in zip(port["dims"], value.shape):
        assert extents.setdefault(dim, dim if isinstance(dim, int) else extent) == extent, (port, value.shape)


def check_values(name, value):
    assert np.isfinite(value).all(), name
    deviation = float(value.std())
    assert 1e-3 < deviation and np.abs(value).max() < 1e4, (name, deviation, np.abs(value).max())
    for i in range(1, len(value)):
        difference = float(np.sqrt(((value[i] - value[0]) ** 2).mean()))
        assert difference > 0.05 * deviation and difference > 1e-3, (name, i, difference, deviation)


def items_of(port, value, first):
    """One array for each item. Where the first axis is no batch, column 0 of the first output says which item a row belongs to."""
    if port["dims"][0] == "N":
        return list(value)
    return [value[first[:, 0] == i, 1:] if value is first else value[first[:, 0] == i] for i in range(ITEMS)]


def check_run(model, session, extents, rng):
    names = [port["name"] for port in model["outputs"]]
    inputs = make_inputs(model, {**extents, "N": ITEMS}, rng)
    whole = session.run(names, inputs)
    alone = [session.run(names, {k: v[i:i + 1] for k, v in inputs.items()}) for i in range(ITEMS)]
    for o, port in enumerate(model["outputs"]):
        check_shape(model, port, {**extents, "N": ITEMS}, whole[o])
        items = items_of(port, whole[o], whole[0])
        if port["dims"][0] == "N":
            check_values(port["name"], whole[o])
        else:
            assert np.isfinite(whole[o]).all() and all(len(item) > 0 for item in items), [len(i) for i in items]
            assert not np.array_equal(items[0], items[1])
        for i, item in enumerate(items):
            single = alone[i][o][0] if port["dims"][0] == "N" else alone[i][o][:, 1:] if o == 0 else alone[i][o]
            assert item.shape == single.shape, (port["name"], item.shape, single.shape)
            scale = max(1e-3, float(np.abs(item).max()))
            assert np.abs(item - single).max() <= 1e-3 * scale, (port["name"], np.abs(item - single).max(), scale)
    return whole


def make_session(path, optimised=True):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    if not optimised:  # which makes one node of a Pad with zeros and a MaxPool, and pads with less than that
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def write_and_load(zoo, size, model, path, *more):
    subprocess.run([zoo, "write", model["name"], "--size", size, "--seed", str(SEED), "-o", path, *more],
                   check=True, stdout=subprocess.DEVNULL)
    if onnx is not None:
        onnx.checker.check_model(path, full_check=True)
    return make_session(path)


def check_engine(run_model, model, path, extents, rng):
    inputs = make_inputs(model, {**extents, "N": ITEMS}, rng)
    names = [port["name"] for port in model["outputs"]]
    expected = make_session(path, optimised=False).run(names, inputs)
    answer = subprocess.run([run_model, path, str(ITEMS), *[f"{name}={extent}" for name, extent in extents.items()]],
                            input=b"".join(inputs[port["name"]].tobytes() for port in model["inputs"]),
                            capture_output=True)
    if answer.returncode == 3 and model["name"] in MISSING:
        print(f"{model['name']}: not run by the engine: {answer.stderr.decode().strip()}")
        return
    assert answer.returncode == 0, answer.stderr.decode()
    values = np.frombuffer(answer.stdout, dtype=np.float32)
    assert values.size == 2 * sum(value.size for value in expected), (values.size, [v.shape for v in expected])
    for backend in ["reference", "cpu"]:
        for name, value in zip(names, expected):
            assert value.dtype == np.float32
            got, values = values[:value.size].reshape(value.shape), values[value.size:]
            apart, largest = float(np.abs(got - value).max()), float(np.abs(value).max())
            assert apart <= 1e-4 * largest, (backend, name, extents, apart, largest)


def check_model(zoo, run_model, size, model, path):
    session = write_and_load(zoo, size, model, path)
    given = {port.name: port.shape for port in session.get_inputs()}
    assert given == {port["name"]: port["dims"] for port in model["inputs"]}, given

    wanted = {dim for port in model["inputs"] for dim in port["dims"]} - {"N"}
    nominal = {name: extent for name, extent in model["symbols"].items() if name in wanted}
    rng = np.random.Generator(np.random.PCG64(SEED))
    others = {name: max(4, extent // 3) for name, extent in nominal.items()}
    outputs = check_run(model, session, nominal, rng)
    if size == "test":
        for lengths in [nominal] + ([others] if nominal else []):
            check_engine(run_model, model, path, lengths, rng)
        apart = write_and_load(zoo, size, model, path, "--external-data")
        assert os.path.getsize(path + ".data") > 0
        inputs = make_inputs(model, {**nominal, "N": ITEMS}, np.random.Generator(np.random.PCG64(SEED)))
        for one, other in zip(outputs, apart.run([port["name"] for port in model["outputs"]], inputs)):
            assert np.array_equal(one, other)
    if nominal:  # at other lengths as well
        check_run(model, session, others, rng)
    print(f"{model['name']}: outputs",
          *[f"{list(value.shape)} of deviation {float(value.std()):.3g}" for value in outputs], flush=True)


def main():
    zoo, run_model, size, *names = sys.argv[1:]
    listed = json.loads(subprocess.run([zoo, "list", "--size", size, "--json"], check=True, capture_output=True,
                                       text=True).stdout)["models"]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        for model in listed:
            if names and model["name"] not in names:
                continue
            try:
                check_model(zoo, run_model, size, model, path)
            except Exception as error:  # every model is looked at
                failed += 1
                print(f"{model['name']}: FAILED: {type(error).__name__}: {error}", flush=True)
    sys.exit(1 if failed else 0)


main()
