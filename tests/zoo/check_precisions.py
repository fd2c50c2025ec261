# SPDX-License-Identifier: Apache-2.0
"""What int8 and bf16 cost on whole networks of leat-zoo, against ONNX Runtime's answers in f32.

An output's signal-to-noise ratio is the energy of ONNX Runtime's answer over that of what ours differs by, in dB,
over ITEMS inputs that calibration has not seen. A network's is that of its worst output, for networks of images the
mean over several seeds: with random weights one is 20 dB better than another.

int8  At least what BOUNDS says, and at most WORSE_DB worse than the yardstick: ONNX Runtime's own static quantisation
      (QDQ form, u8 activations, s8 weights by channel), calibrated on the same inputs and computed as the file says.
      With VNNI; with AVX2 and no AVX-512, where weights have between 7 and 8 bits, COARSER_DB less. Not with AVX-512 alone,
      where they have 7.
bf16  At least what BOUNDS says. Where the processor has no bf16, the bound is still checked of the arithmetic: backend
      cpu computes the network in f32 with both operands of each convolution and product rounded to bf16 by Cast.

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
COARSER_DB = 3.0
LOW_DB = 8.0  # below it, networks are as they are for their activations
OPSET = 13  # the first whose DequantizeLinear has an axis, and whose Cast knows bf16
FULL = ["resnet50", "mobilenetv2", "efficientnet-b0", "bert-base", "dlrm-rm2", "wide-deep"]
# ONNX Runtime's quantiser finds the least float, which masks add, in a range, and makes NaN of it.
NO_YARDSTICK = ["t5-small-encoder"]
# Least dB: int8 at test size, int8 as published (None: not compared), bf16 at test size. About 3 less than measured, 100
# where nothing is in 8 bits.
BOUNDS = {
    "lenet5": (30, None, 38),
    "vgg16": (13, None, 19),
    "googlenet": (8, None, 15),
    "inceptionv3": (4, None, 9),
    "resnet18": (23, None, 34),
    "resnet50": (14, 16, 25),
    "resnext50": (11, None, 23),
    "mobilenetv2": (12, 11, 26),
    "mobilenetv2-64": (12, None, 26),
    "mobilenetv3-large": (18, None, 35),
    "efficientnet-b0": (7, 10, 23),
    "shufflenetv2": (3, None, 12),
    "yolov3-tiny": (24, None, 35),
    "yolov5n": (10, None, 20),
    "bert-tiny": (36, None, 44),
    "bert-base": (27, 25, 37),
    "distilbert": (33, None, 44),
    "t5-small-encoder": (33, None, 43),
    "t5-small-decoder": (29, None, 38),
    "lstm-lm": (100, None, 49),
    "lstm-classifier": (100, None, 51),
    "gru-classifier": (100, None, 50),
    "whisper-tiny-encoder": (32, None, 42),
    "conformer-ctc-small": (45, None, 48),
    "mlp-recommender": (38, None, 47),
    "ncf": (42, None, 54),
    "wide-deep": (59, 49, 57),
    "mt-wnd": (43, None, 52),
    "dlrm-rm2": (37, 35, 47),
    "dlrm-criteo": (48, None, 51),
    "dien": (41, None, 54),
    "mlp": (37, None, 43),
}

# And with AVX2, where products of odd sizes, windows of one axis and convolutions by groups have 7 bits at most, and all about 0.
BOUNDS_AVX2 = {"dien": 34, "conformer-ctc-small": 35}


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
    test, full, narrow = BOUNDS[model["name"]]
    least = test if size == "test" else full
    if processor() == "avx2":
        least = BOUNDS_AVX2.get(model["name"], least - COARSER_DB if LOW_DB <= least < 100 else least)
    assert ours is None or ours >= least, ("int8", ours, least)
    assert theirs is None or ours >= theirs - WORSE_DB, ("int8 beside ONNX Runtime's", ours, theirs)
    for value in (bf16, arithmetic):
        assert value is None or value >= narrow, ("bf16", bf16, arithmetic, narrow)


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
