# SPDX-License-Identifier: Apache-2.0
"""What leat-zoo writes is valid ONNX and runs elsewhere: the ONNX checker and ONNX Runtime on every model.

Outputs have the shapes that leat-zoo claims, are finite and of sane size, differ between items, and an item
gives the same alone as in a batch. With constants in a file of their own they are the same bytes.
Backend cpu, and at test size reference too, are given the same inputs, at the same lengths: no output is further from
ONNX Runtime's than 1e-4 of the largest value of that output. What detectors say of boxes, each kind by itself, is no
further by root mean square than 5e-4 of its size either; of those that suppress boxes the same are left, in the same order where
scores differ by more than that.

Usage: check_onnxruntime.py LEAT_ZOO RUN_MODEL full|test [NAME]...
"""
import os
import sys
import tempfile

try:
    import numpy as np
    import onnxruntime  # noqa: F401, what networks need
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
try:
    import onnx
except ImportError:
    onnx = None
    print("the onnx package is absent: no checker")

from networks import (list_models, make_inputs, make_session, nominal_extents, run_engine, run_session, varies,
                      write_model)

ITEMS = 3
SEED = 1
CLOSE = 1e-4
COLUMN_CLOSE = 5e-4  # of a place in an image of 640 pixels: a third of one
SCORE = 6  # of detections: the column that they are ordered by


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
    if not varies(port):
        return list(value)
    return [value[first[:, 0] == i, 1:] if value is first else value[first[:, 0] == i] for i in range(ITEMS)]


def check_run(model, session, extents, rng):
    names = [port["name"] for port in model["outputs"]]
    inputs = make_inputs(model, extents, ITEMS, rng)
    whole = session.run(names, inputs)
    alone = [session.run(names, {k: v[i:i + 1] for k, v in inputs.items()}) for i in range(ITEMS)]
    for o, port in enumerate(model["outputs"]):
        check_shape(model, port, {**extents, "N": ITEMS}, whole[o])
        items = items_of(port, whole[o], whole[0])
        if not varies(port):
            check_values(port["name"], whole[o])
        else:
            assert np.isfinite(whole[o]).all() and len(whole[o]) > 0
            assert not np.array_equal(items[0], items[1])
        for i, item in enumerate(items):
            single = alone[i][o][0] if not varies(port) else alone[i][o][:, 1:] if o == 0 else alone[i][o]
            assert item.shape == single.shape, (port["name"], item.shape, single.shape)
            scale = max(1e-3, float(np.abs(item).max(initial=0)))
            assert (np.abs(item - single) <= 1e-3 * scale).all(), (port["name"], np.abs(item - single).max(), scale)
    return whole


def check_format(path):
    if onnx is not None:
        onnx.checker.check_model(path, full_check=True)


def match_rows(ours, theirs):
    """Which row of ours is each of theirs. Only those whose scores are as good as equal may have changed places."""
    scale = np.abs(theirs).max(axis=0, initial=1e-9)
    apart = np.abs(ours[None, :, :] - theirs[:, None, :]) / scale
    rows = apart.max(axis=2).argmin(axis=1) if len(theirs) > 0 else np.zeros(0, dtype=int)
    assert sorted(rows) == list(range(len(theirs))), rows
    assert (np.abs(theirs[rows, SCORE] - theirs[:, SCORE]) <= CLOSE).all(), (rows, theirs[:, SCORE])
    return rows


def match_detections(model, ours, theirs):
    """Answers of a detector, items joined, ours in the order of theirs."""
    assert [len(item) for item in ours[0]] == [len(item) for item in theirs[0]], [len(item) for item in ours[0]]
    rows = [match_rows(*items) for items in zip(ours[0], theirs[0])]
    joined = [np.concatenate([item[order] for item, order in zip(port, rows)]) for port in ours]
    assert len(joined[0]) > 0
    return joined, [np.concatenate(port) for port in theirs]


def check_apart(what, one, other, slack=0.0):
    apart, largest = np.abs(one - other), float(np.abs(other).max())
    assert (apart <= CLOSE * largest + slack).all(), (what, float(apart.max()), largest)


def check_columns(what, one, other):
    """What is said of a box is of many kinds: each of them counts by itself."""
    axes = tuple(range(one.ndim - 1))
    apart, size = (np.sqrt((value ** 2).mean(axis=axes)) for value in (one - other, other))
    assert (apart <= COLUMN_CLOSE * size).all(), (what, apart, size)


def crop_slack(images, one, other):
    """How far crops may be apart because boxes are: by that much along either axis, where pixels differ most."""
    boxes = np.abs(one - other)[:, 1:5].max(axis=1)
    return (boxes * sum(np.abs(np.diff(images, axis=axis)).max() for axis in (2, 3)))[:, None, None, None]


def check_answer(model, inputs, ours, theirs, backend):
    if varies(model["outputs"][0]):
        ours, theirs = match_detections(model, ours, theirs)
    else:
        ours, theirs = ([np.stack(items) for items in answer] for answer in (ours, theirs))
    for port, one, other in zip(model["outputs"], ours, theirs):
        what = (backend, port["name"])
        is_crop = port["name"] == "crops"
        check_apart(what, one, other, crop_slack(inputs["images"], ours[0], theirs[0]) if is_crop else 0.0)
        if "yolo" in model["name"] and not is_crop:
            check_columns(what, one, other)


def check_engine(run_model, size, model, path, extents, rng):
    """What backend cpu answers."""
    inputs = make_inputs(model, extents, ITEMS, rng)
    expected = run_session(make_session(path, optimised=False), model, inputs)
    for backend in ["reference", "cpu"] if size == "test" else ["cpu"]:  # plain loops would take an hour
        code, answer = run_engine(run_model, model, path, extents, inputs, expected, backend)
        assert code == 0, answer
        check_answer(model, inputs, answer, expected, backend)
    return inputs, answer


def check_external_data(zoo, run_model, size, model, path, session_inputs, outputs, engine_inputs, answer):
    """The same bytes where constants are in a file of their own."""
    write_model(zoo, size, model, SEED, path, "--external-data")
    check_format(path)
    assert os.path.getsize(path + ".data") > 0
    for one, other in zip(outputs, make_session(path).run([port["name"] for port in model["outputs"]], session_inputs)):
        assert np.array_equal(one, other)
    code, apart = run_engine(run_model, model, path, nominal_extents(model), engine_inputs, answer)
    assert code == 0, apart
    for ours, theirs in zip(apart, answer):
        assert all(np.array_equal(one, other) for one, other in zip(ours, theirs))


def check_model(zoo, run_model, size, model, path):
    write_model(zoo, size, model, SEED, path)
    check_format(path)
    session = make_session(path)
    given = {port.name: port.shape for port in session.get_inputs()}
    assert given == {port["name"]: port["dims"] for port in model["inputs"]}, given

    nominal = nominal_extents(model)
    rng = np.random.Generator(np.random.PCG64(SEED))
    others = {name: max(4, extent // 3) for name, extent in nominal.items()}
    outputs = check_run(model, session, nominal, rng)
    if nominal:  # at other lengths as well
        check_run(model, session, others, rng)
        check_engine(run_model, size, model, path, others, rng)
    del session  # gigabytes
    inputs, answer = check_engine(run_model, size, model, path, nominal, rng)
    if size == "test":
        first = make_inputs(model, nominal, ITEMS, np.random.Generator(np.random.PCG64(SEED)))
        check_external_data(zoo, run_model, size, model, path, first, outputs, inputs, answer)
    print(f"{model['name']}: outputs",
          *[f"{list(value.shape)} of deviation {float(value.std()):.3g}" for value in outputs], flush=True)


def main():
    zoo, run_model, size, *names = sys.argv[1:]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        for model in list_models(zoo, size):
            if names and model["name"] not in names:
                continue
            try:
                check_model(zoo, run_model, size, model, path)
            except Exception as error:  # every model is looked at
                failed += 1
                print(f"{model['name']}: FAILED: {type(error).__name__}: {error}", flush=True)
    sys.exit(1 if failed else 0)


main()
