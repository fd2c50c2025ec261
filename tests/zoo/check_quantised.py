# SPDX-License-Identifier: Apache-2.0
"""Models that ONNX Runtime's quantiser made, in QDQ form, answer here what they answer there.

Networks of leat-zoo in test size, batch normalisation folded by ONNX Runtime, weights in s8 by channel, activations in u8 and
in s8.
Both backends, on what passes make of the file, and cpu without the passes that look for 8-bit numbers too, against ONNX
Runtime without its optimisations, which computes what the file says:
on average answers are one step of the last quantisation apart at most. A sum that is rounded otherwise makes a step somewhere, and
that more of them in each layer behind it; EfficientNet is left out, for ONNX Runtime's own optimisations move its answers by 28.
A network of sequences is bound to several lengths too, and sequences of each size run at all that hold them: the reference
backend answers what it does where the network is bound to that very size, bit by bit, cpu as near as above, and zeros
behind the end.

Usage: check_quantised.py LEAT_ZOO RUN_MODEL [NAME]...
"""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ITEMS = 3
LENGTH = 16  # of sequences
LENGTHS = [8, LENGTH]
POSITIONS = [1, 3, 8, 11, LENGTH]
NAMES = ["lenet5", "mlp", "resnet50", "resnext50", "mobilenetv2", "googlenet", "shufflenetv2", "bert-tiny"]
PASSES = ["shift-quantised", "fuse-quantised", "fold-dequantised"]
FORMS = [("reference", []), ("cpu", [])] + [("cpu", ["-w", names]) for names in [*PASSES, ",".join(PASSES)]]
TYPES = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}


def make_session(path, level, written=None):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    if written is not None:
        options.optimized_model_filepath = written
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def make_inputs(session, rng):
    inputs = {}
    for port in session.get_inputs():
        shape = [ITEMS] + [LENGTH if isinstance(dim, str) else dim for dim in port.shape[1:]]
        inputs[port.name] = (rng.standard_normal(shape, dtype=np.float32) if port.type == "tensor(float)"
                             else rng.integers(0, 2, size=shape, dtype=np.int64))
    return inputs


class Reader(CalibrationDataReader):
    def __init__(self, feeds):
        self.feeds = iter(feeds)

    def get_next(self):
        return next(self.feeds, None)


def check(run_model, path, rng):
    session = make_session(path, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    inputs = make_inputs(session, rng)
    expected = session.run(None, inputs)
    lengths = {dim for port in session.get_inputs() for dim in port.shape[1:] if isinstance(dim, str)}
    text = []
    for backend, without in FORMS:
        answer = subprocess.run([run_model, "-b", backend, *without, path, str(ITEMS),
                                 *[f"{name}={LENGTH}" for name in lengths]],
                                input=b"".join(inputs[port.name].tobytes() for port in session.get_inputs()), capture_output=True)
        assert answer.returncode == 0, answer.stderr.decode()
        values = np.frombuffer(answer.stdout, dtype=np.float32)
        assert values.size == sum(value.size for value in expected), (values.size, [v.shape for v in expected])
        for value in expected:
            got, values = values[:value.size].reshape(value.shape), values[value.size:]
            step = float(np.diff(np.unique(value)).min())
            apart = np.abs(got - value) / step
            assert np.abs(value).max() > 20 * step, (backend, without, step)
            assert apart.mean() <= 1, (backend, without, apart.mean(), apart.max(), step)
            text.append(f"{' '.join([backend, *without])} {apart.mean():.2g} steps, {apart.max():.2g} at most;")
    return text


def run(arguments, inputs):
    answer = subprocess.run(arguments, input=b"".join(value.tobytes() for value in inputs), capture_output=True)
    assert answer.returncode == 0, answer.stderr.decode()
    return np.frombuffer(answer.stdout, dtype=np.float32)


def check_lengths(run_model, path, rng):
    """All positions count; behind the end there is whatever a client may have left there."""
    session = make_session(path, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    [name] = {dim for port in session.get_inputs() for dim in port.shape[1:] if isinstance(dim, str)}
    furthest = 0
    for positions in POSITIONS:
        inputs = list(make_inputs(session, rng).values())
        for value, port in zip(inputs, session.get_inputs()):
            if "mask" in port.name:
                value[:, :positions] = 1
            value[:, positions:] = rng.integers(-2**62, 2**62, size=value[:, positions:].shape)
        alone = [np.ascontiguousarray(value[:, :positions]) for value in inputs]
        expected = session.run(None, {port.name: value for port, value in zip(session.get_inputs(), alone)})
        for backend in ["reference", "cpu"]:
            one = [run_model, "-b", backend, path, str(ITEMS), f"{name}={positions}"]
            several = [run_model, "-b", backend, "-l", f"{name}={positions}:{','.join(map(str, LENGTHS))}", path, str(ITEMS)]
            answers, served = run(one, alone), run(several, inputs)
            for _ in [length for length in LENGTHS if length >= positions]:
                rest = answers
                for value in expected:
                    wanted, rest = rest[:value.size].reshape(value.shape), rest[value.size:]
                    shape = list(value.shape)
                    if value.ndim == 3:
                        shape[1] = LENGTH
                    got, served = served[:np.prod(shape)].reshape(shape), served[np.prod(shape):]
                    if value.ndim == 3:
                        assert not got[:, positions:].any(), (backend, positions)
                        got = got[:, :positions]
                    apart = np.abs(got - wanted) / float(np.diff(np.unique(value)).min())
                    most = 0 if backend == "reference" else 1
                    assert apart.mean() <= most, (backend, positions, apart.mean(), apart.max())
                    furthest = max(furthest, apart.max())
                assert rest.size == 0
            assert served.size == 0
    return [f"at {len(LENGTHS)} lengths: {furthest:.2g} steps at most"]


def main():
    zoo, run_model, *names = sys.argv[1:]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path, folded, quantised = (os.path.join(folder, name) for name in ("model.onnx", "folded.onnx", "quantised.onnx"))
        for name in names or NAMES:
            subprocess.run([zoo, "write", name, "--size", "test", "-o", path], check=True, stdout=subprocess.DEVNULL)
            session = make_session(path, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC, folded)
            for activations, kind in TYPES.items():
                rng = np.random.Generator(np.random.PCG64(1))
                quantize_static(folded, quantised, Reader([make_inputs(session, rng)]), quant_format=QuantFormat.QDQ,
                                per_channel=True, activation_type=kind, weight_type=QuantType.QInt8)
                try:
                    text = check(run_model, quantised, rng)
                    if "bert" in name:
                        text += check_lengths(run_model, quantised, rng)
                    print(f"{name}, {activations}:", *text, flush=True)
                except Exception as error:  # every model is looked at
                    failed += 1
                    print(f"{name}, {activations}: FAILED: {type(error).__name__}: {error}", flush=True)
    sys.exit(1 if failed else 0)


main()
