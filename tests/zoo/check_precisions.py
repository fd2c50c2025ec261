# SPDX-License-Identifier: Apache-2.0
"""What int8 and bf16 cost on whole networks of leat-zoo, against ONNX Runtime's answers in f32.

An output's signal-to-noise ratio is the energy of ONNX Runtime's answer over that of what ours differs by, in dB,
over ITEMS inputs that calibration has not seen. A network's is that of its worst output, for networks of images the
mean over several seeds: with random weights one is 20 dB better than another.

int8  At most MARGIN_DB, and for some networks SCATTER_DB, less than MEASURED, and at most WORSE_DB worse than the yardstick: ONNX Runtime's own static quantisation
      (QDQ form, u8 activations, s8 weights by channel), calibrated on the same inputs and computed as the file says.
      With VNNI, and with AVX2 and no AVX-512, where weights have between 7 and 8 bits; not with AVX-512 alone, where
      they have 7. Steps of activations, or of weights, that are a quarter too coarse are found with AVX2.
bf16  The arithmetic, at most MARGIN_DB less than MEASURED: backend cpu computes the network in f32 with both operands of each
      convolution and product rounded to bf16 by Cast. Where the processor has bf16, NARROWER_DB less: activations stay bf16.

Left out: networks whose outputs vary in size, for a detection that is kept or not is no matter of dB.
At full size one seed of the networks that bench_engine compares, in int8, fewer inputs.

Usage: check_precisions.py LEAT_ZOO RUN_MODEL full|test [NAME]...
"""
import logging
import os
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnx.version_converter
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from networks import (NO_PRECISION, list_models, make_inputs, make_session, nominal_extents, run_engine,
                      run_session, varies, write_model)

ITEMS = 8
CALIBRATION_ITEMS = {"test": 64, "full": 8}
IMAGE_SEEDS = 3
WORSE_DB = 2.0
MARGIN_DB = {"vnni": 1.5, "avx2": 1.0}  # with VNNI, in which the engine was measured some time ago, a little more
SCATTER_DB = {"efficientnet-b0": 0.7, "yolov5n": 0.7}  # by which three seeds' mean differs for kernels that are as exact by twelve
NARROWER_DB = 3.0
FLOATS_DB = 100.0
OPSET = 13  # the first whose DequantizeLinear has an axis, and whose Cast knows bf16
# ONNX Runtime's quantiser finds the least float, which masks add, in a range, and makes NaN of it.
NO_YARDSTICK = ["t5-small-encoder"]
# What was measured, in dB: int8 at test size with VNNI and with AVX2 alone (None: all is in floats, and exact to FLOATS_DB), and the
# arithmetic of bf16, the lower of both processors.
MEASURED = {
    "lenet5": (33.6, 30.6, 41.0),
    "vgg16": (16.6, 13.1, 22.9),
    "googlenet": (11.5, 8.6, 18.0),
    "inceptionv3": (7.8, 5.8, 12.0),
    "resnet18": (26.6, 25.2, 37.6),
    "resnet50": (17.1, 15.6, 28.2),
    "resnext50": (14.5, 14.0, 26.6),
    "mobilenetv2": (15.4, 14.8, 29.6),
    "mobilenetv2-64": (15.4, 14.8, 29.6),
    "mobilenetv3-large": (21.5, 19.2, 38.2),
    "efficientnet-b0": (10.6, 7.5, 25.2),
    "shufflenetv2": (6.0, 7.2, 15.7),
    "yolov3-tiny": (27.4, 25.1, 38.1),
    "yolov5n": (13.1, 9.3, 23.6),
    "bert-tiny": (39.5, 38.1, 47.9),
    "bert-base": (30.5, 25.7, 40.2),
    "distilbert": (36.1, 34.3, 47.7),
    "t5-small-encoder": (36.1, 33.7, 46.2),
    "t5-small-decoder": (32.8, 31.0, 41.2),
    "lstm-lm": (None, None, 52.6),
    "lstm-classifier": (None, None, 54.4),
    "gru-classifier": (None, None, 53.4),
    "whisper-tiny-encoder": (35.7, 32.5, 45.9),
    "conformer-ctc-small": (48.4, 40.0, 51.2),
    "mlp-recommender": (41.8, 43.1, 50.9),
    "ncf": (45.1, 45.1, 57.3),
    "wide-deep": (62.3, 61.6, 60.9),
    "mt-wnd": (46.9, 43.7, 55.2),
    "dlrm-rm2": (40.6, 42.3, 50.1),
    "dlrm-criteo": (51.7, 45.9, 54.4),
    "dien": (44.5, 37.8, 57.2),
    "mlp": (40.2, 35.9, 46.6),
}
# int8 at full size, likewise.
PUBLISHED = {
    "resnet50": (19.6, 17.1),
    "mobilenetv2": (14.1, 13.5),
    "efficientnet-b0": (13.1, 12.6),
    "bert-base": (28.7, 26.1),
    "wide-deep": (52.7, 53.5),
    "dlrm-rm2": (38.3, 37.8),
}
FULL = list(PUBLISHED)


class Reader(CalibrationDataReader):
    def __init__(self, feeds):
        self.feeds = iter(feeds)

    def get_next(self):
        return next(self.feeds, None)


def ratio_db(answer, expected):
    """Of the worst output."""
    ratios = []
    for one, other in zip(answer, expected):
        one, other = (np.concatenate([item.ravel() for item in items]).astype(np.float64) for items in (one, other))
        assert np.isfinite(one).all()
        ratios.append(10 * np.log10((other ** 2).sum() / max(((one - other) ** 2).sum(), 1e-30)))
    return float(min(ratios))


def convert(path):
    """To OPSET, where it is older."""
    model = onnx.load(path)
    if all(entry.version < OPSET for entry in model.opset_import if entry.domain in ("", "ai.onnx")):
        onnx.save(onnx.version_converter.convert_version(model, OPSET), path)


def quantise(path, calibration, folder):
    """ONNX Runtime's: batch normalisation is folded first, as its documentation advises."""
    folded, quantised = (os.path.join(folder, name) for name in ("folded.onnx", "quantised.onnx"))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = folded
    options.log_severity_level = 3
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    quantize_static(folded, quantised, Reader([calibration]), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    return quantised


def round_operands(path, folder):
    """The network in which convolutions and products see both operands as bf16 has them."""
    model, rounded, nodes = onnx.load(path), os.path.join(folder, "rounded.onnx"), []
    known = {}
    for node in model.graph.node:
        for i in [0, 1] if node.op_type in ("Conv", "Gemm", "MatMul") else []:
            name = node.input[i]
            if name not in known:
                known[name] = f"{name}/bf16"
                nodes.append(onnx.helper.make_node("Cast", [name], [f"{name}/narrow"], to=onnx.TensorProto.BFLOAT16))
                nodes.append(onnx.helper.make_node("Cast", [f"{name}/narrow"], [known[name]], to=onnx.TensorProto.FLOAT))
            node.input[i] = known[name]
        nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, rounded)
    return rounded


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = file.read()
    return "vnni" if "avx512_vnni" in flags else "avx512" if "avx512bw" in flags else "avx2"


def measure(zoo, run_model, size, model, seed, folder, skipped):
    """dB of ours in int8, of the yardstick, of ours in bf16 and of its arithmetic; None: `skipped` says why."""
    path, extents = os.path.join(folder, "model.onnx"), nominal_extents(model)
    write_model(zoo, size, model, seed, path)
    rng = np.random.Generator(np.random.PCG64(seed))
    calibration, inputs = (make_inputs(model, extents, items, rng) for items in (CALIBRATION_ITEMS[size], ITEMS))
    expected = run_session(make_session(path, optimised=False), model, inputs)

    def ours(of, **options):
        code, answer = run_engine(run_model, model, of, extents, inputs, expected, **options)
        assert code in (0, NO_PRECISION), answer
        if code == NO_PRECISION:
            skipped.add(answer)
        return ratio_db(answer, expected) if code == 0 else None

    int8 = ours(path, precision="int8", calibration=calibration) if processor() != "avx512" else None
    theirs = bf16 = arithmetic = None
    if size == "test":
        bf16 = ours(path, precision="bf16")
        convert(path)
        arithmetic = ours(round_operands(path, folder))
    if int8 is not None and model["name"] not in NO_YARDSTICK:
        convert(path)
        session = make_session(quantise(path, calibration, folder), optimised=False)
        theirs = ratio_db(run_session(session, model, inputs), expected)
    return int8, theirs, bf16, arithmetic


def seeds_of(size, model):
    """Of images at test size: few channels, many layers."""
    is_small = size == "test" and any(len(port["dims"]) == 4 for port in model["inputs"])
    return range(1, 1 + (IMAGE_SEEDS if is_small else 1))


def mean(values):
    return None if any(value is None for value in values) else float(np.mean(values))


def check(model, size, ours, theirs, bf16, arithmetic):
    def text(value):
        return "-" if value is None else f"{value:.1f}"

    print(f"{model['name']}: int8 {text(ours)} dB, ONNX Runtime's {text(theirs)}, bf16 {text(bf16)}, its arithmetic "
          f"{text(arithmetic)}", flush=True)
    vnni, avx2, narrow = MEASURED[model["name"]]
    if size == "full":
        vnni, avx2 = PUBLISHED[model["name"]]
    fast = processor()
    least = avx2 if fast == "avx2" else vnni
    least = FLOATS_DB if least is None else least - MARGIN_DB.get(fast, 0) - SCATTER_DB.get(model["name"], 0)
    assert ours is None or ours >= least, ("int8", ours, least)
    assert theirs is None or ours >= theirs - WORSE_DB, ("int8 beside ONNX Runtime's", ours, theirs)
    assert arithmetic is None or arithmetic >= narrow - MARGIN_DB["avx2"], ("arithmetic of bf16", arithmetic, narrow)
    assert bf16 is None or bf16 >= narrow - NARROWER_DB, ("bf16", bf16, narrow)


def main():
    zoo, run_model, size, *names = sys.argv[1:]
    logging.disable(logging.WARNING)  # advice of the quantiser
    failed, skipped = 0, {"int8: this processor has AVX-512, but no VNNI"} if processor() == "avx512" else set()
    for model in list_models(zoo, size):
        if (names and model["name"] not in names) or (size == "full" and model["name"] not in FULL):
            continue
        if any(varies(port) for port in model["outputs"]):
            continue
        try:
            measured = []
            for seed in seeds_of(size, model):
                with tempfile.TemporaryDirectory() as folder:
                    measured.append(measure(zoo, run_model, size, model, seed, folder, skipped))
            check(model, size, *(mean(values) for values in zip(*measured)))
        except Exception as error:  # every model is looked at
            failed += 1
            print(f"{model['name']}: FAILED: {type(error).__name__}: {error}", flush=True)
    for reason in skipped:
        print(f"not compared: {reason}")
    sys.exit(1 if failed else 0)


main()
