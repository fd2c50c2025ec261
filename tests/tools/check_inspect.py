# SPDX-License-Identifier: Apache-2.0
"""leat model inspect: its numbers add up, its table and picture show them, its refusals say why, and a model of the daemon is
the file that was added.

Usage: check_inspect.py LEAT LEATD LEAT_ZOO
"""
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

leat, leatd, zoo = (os.path.abspath(path) for path in sys.argv[1:4])


def run(*arguments, code=0, says=""):
    done = subprocess.run([leat, *arguments], capture_output=True, text=True)
    assert done.returncode == code and says in done.stdout + done.stderr, (arguments, done)
    return done.stdout


def inspect(*arguments):
    return json.loads(run("model", "inspect", *arguments, "--json"))


def write(name, *arguments):
    subprocess.run([zoo, "write", name, "--size", "test", "-o", f"{name}.onnx", *arguments], check=True, stdout=subprocess.DEVNULL)
    return f"{name}.onnx"


def check_graph(graph, other):
    assert graph["nodes"] and graph["run_ns"] > 0 and 0 < graph["bound_bytes"] <= graph["planned_bytes"], graph
    assert 0 <= graph["inputs_copied"] <= graph["inputs"], graph
    total = graph["ends_ns"]
    for n, node in enumerate(graph["nodes"]):
        assert 0 <= node["layouts_ns"] <= node["time_ns"] and all(producer < n for producer in node["from"]), node
        assert (node["time_ns"] > 0) == (node["kernel"] != ""), node
        assert ("gone_by" in node) == (other is not None and node["name"] not in other), node
        total += node["time_ns"]
    assert abs(total - graph["steps_ns"]) <= 1e-6 * total
    assert graph["flop"] == sum(node["flop"] for node in graph["nodes"])


def check_model(path, *arguments):
    seen = inspect(path, "--runs", "3", *arguments)
    after = {node["name"] for node in seen["after"]["nodes"]}
    check_graph(seen["before"], after)
    check_graph(seen["after"], None)
    assert seen["runs"] == 3 and seen["passes"][-1]["nodes"] >= len(seen["after"]["nodes"])
    passes = {step["pass"] for step in seen["passes"]} | {"known shapes"}
    gone = {node["gone_by"] for node in seen["before"]["nodes"] if "gone_by" in node}
    assert gone and gone <= passes, gone
    return seen


def check_without(lenet, seen):
    """Each pass by itself and all of them can be left out; what they do is then not done, and the rest is."""
    listed = json.loads(run("model", "inspect", "--passes", "--json"))["passes"]
    names = [one["pass"] for one in listed]
    lines = run("model", "inspect", "--passes").splitlines()
    assert [line.split()[0] for line in lines] == names == [step["pass"] for step in seen["passes"]]
    assert seen["without"] == []
    assert all(one["does"] and line.endswith(one["does"]) for one, line in zip(listed, lines))
    for name in names:
        less = inspect(lenet, "--runs", "1", "--without", name)
        assert less["without"] == [name]
        assert [step["pass"] for step in less["passes"]] == [one for one in names if one != name]
        assert name not in {node.get("gone_by") for node in less["before"]["nodes"]}
        assert less["after"]["flop"] == seen["after"]["flop"]
        assert (less["after"]["planned_bytes"] > 1.2 * less["after"]["bound_bytes"]) == (name == "plan-memory"), (name, less)
    less = inspect(lenet, "--runs", "3", "--without", "fuse-activation", "--svg", "less.svg")
    check_graph(less["before"], {node["name"] for node in less["after"]["nodes"]})
    check_graph(less["after"], None)
    assert "Conv+Relu" not in {node["op"] for node in less["after"]["nodes"]}
    assert len(less["after"]["nodes"]) > len(seen["after"]["nodes"])
    check_picture("less.svg", less)
    with open("less.svg") as file:
        assert "after the passes, without fuse-activation" in file.read()
    none = inspect(lenet, "--runs", "1", "--without", ",".join(names))
    assert none["passes"] == [] and none["without"] == names
    shown = [[(node["name"], node["op"]) for node in none[when]["nodes"]] for when in ("before", "after")]
    assert shown[0] == shown[1], shown
    table = run("model", "inspect", lenet, "--runs", "1", "--without", "fuse-activation,fuse-add")
    assert "without fuse-activation: " in table and "without fuse-add: " in table
    for wrong in ("fuse", "", "fuse-add,", "fuse-add,none"):
        run("model", "inspect", lenet, "--without", wrong, code=2, says="there is no pass '")
        run("model", "inspect", lenet, "--without", wrong, code=2, says=", ".join(names))
    run("model", "inspect", "--passes", lenet, code=2, says="--passes takes no file or name")
    run("model", "list", "--without", "fuse-add", code=2, says="--without")
    run("model", "remove", "nobody", "--passes", code=2, says="--passes")


def check_picture(path, seen):
    svg = "{http://www.w3.org/2000/svg}"
    root = tree.parse(path).getroot()
    names = {element.text.split(":")[0] for element in root.iter(f"{svg}title")}
    for when in ("before", "after"):
        for node in seen[when]["nodes"]:
            assert node["name"] in names, node
    groups = [element for element in root.iter(f"{svg}g") if element.find(f"{svg}title") is not None]
    assert len(groups) == len(seen["before"]["nodes"]) + len(seen["after"]["nodes"])
    assert all(element.find(f"{svg}rect") is not None for element in groups)


def check_files():
    lenet = write("lenet5")
    seen = check_model(lenet, "--svg", "lenet5.svg")
    check_picture("lenet5.svg", seen)
    assert [node["op"] for node in seen["after"]["nodes"]].count("Conv+Relu") == 2, seen["after"]
    assert {"fuse-activation"} <= {node.get("gone_by") for node in seen["before"]["nodes"]}
    table = run("model", "inspect", lenet, "--runs", "1")
    for node in seen["before"]["nodes"] + seen["after"]["nodes"]:
        assert node["name"] in table, node
    assert "gone by fuse-activation" in table and "after: " in table and "GFLOP/s" in table
    check_without(lenet, seen)
    check_model(write("resnet50"), "--items", "2", "--cores", str(min(2, len(os.sched_getaffinity(0)))))
    twice = check_model(lenet, "--items", "8")
    assert twice["after"]["flop"] == 8 * seen["after"]["flop"] and twice["items"] == 8
    bert = write("bert-tiny")
    shorter, longer = (check_model(bert, "--dim", f"sequence={length}") for length in (8, 16))
    assert shorter["after"]["flop"] < longer["after"]["flop"]
    run("model", "inspect", bert, code=1, says="dimension 'sequence' is free: --dim sequence=N")
    run("model", "inspect", bert, "--dim", "width=3", code=1, says="width")
    run("model", "inspect", lenet, "--dim", "width", code=2, says="--dim")
    run("model", "inspect", lenet, "--runs", "0", code=2, says="--runs")
    run("model", "inspect", lenet, "--cores", "1,2", code=2, says="--cores")
    run("model", "inspect", lenet, "--cores", "64", code=1 if len(os.sched_getaffinity(0)) < 64 else 0)
    run("model", "inspect", lenet, "--precision", "f7", code=2, says="f7")
    run("model", "inspect", lenet, "--svg", "nowhere/x.svg", code=1, says="cannot write")
    run("model", "inspect", "./none.onnx", code=1, says="none.onnx")
    run("model", "inspect", "/dev/null", code=1, says="no regular file")
    run("model", "inspect", code=2, says="one file or name")
    least = 2 * seen["before"]["bound_bytes"] + seen["before"]["model_bytes"]
    for memory in (1, 1000, seen["before"]["model_bytes"], seen["before"]["model_bytes"] + 1):
        run("model", "inspect", lenet, "--runs", "1", "--memory", str(memory), code=1, says="limit")
    check_model(lenet, "--memory", f"{least + (16 << 20)}B")
    check_model(lenet, "--memory", "64MiB")
    for wrong in ("0", "much"):
        run("model", "inspect", lenet, "--memory", wrong, code=2, says="--memory")
    run("model", "list", "--memory", "1GiB", code=2, says="--memory")
    run("model", "inspect", "nobody", "--socket", "none.sock", code=1, says="no daemon")
    with open("text.onnx", "w") as file:
        file.write("no model")
    run("model", "inspect", "text.onnx", code=1, says="text.onnx")
    apart = write("mlp", "--external-data")
    assert os.path.exists("mlp.onnx.data")
    check_model(apart)
    check_model(os.path.abspath(apart))
    return lenet, seen, shorter["after"]["flop"]


def check_networks():
    """Each network that the engine runs, at its nominal lengths, in both forms: every node is in either, with what was fused."""
    os.mkdir("zoo")
    subprocess.run([zoo, "write", "--all", "--size", "test", "-o", "zoo"], check=True, stdout=subprocess.DEVNULL)
    listed = json.loads(subprocess.run([zoo, "list", "--size", "test", "--json"], check=True, capture_output=True).stdout)
    fused = set()
    for model in listed["models"]:
        free = {dim for one in model["inputs"] for dim in one["dims"][1:]} & model["symbols"].keys()
        lengths = [f"--dim={name}={model['symbols'][name]}" for name in free]
        arguments = [f"zoo/{model['name']}.onnx", "--runs", "1", *lengths]
        table, seen = run("model", "inspect", *arguments), inspect(*arguments)
        for when in ("before", "after"):
            operators = {node["op"] for node in seen[when]["nodes"]}
            fused.update(operators)
            assert operators <= set(table.split()), (model["name"], operators)
    assert {"Conv+Relu", "Conv+Clip", "Conv+Swish", "Conv+HardSwish", "Conv+LeakyRelu"} <= fused, fused


def check_daemon(lenet, seen, shorter):
    os.environ["LEAT_SOCKET"] = os.path.abspath("leat.sock")
    with open("leat.yaml", "w") as file:
        file.write(f"models: [{{name: configured, path: {os.path.abspath(lenet)}}}]\nworkers: [{{count: 1}}]\n"
                   "limits: {model_memory: 16MiB}\n")
    daemon = subprocess.Popen([leatd, "--config", "leat.yaml", "--socket", os.environ["LEAT_SOCKET"], "--state-dir", "state"],
                              stderr=subprocess.DEVNULL)
    try:
        run("status", "--wait")
        run("model", "add", "kept", lenet)
        run("model", "add", "none", "--synthetic", "{}")
        run("model", "add", "text", "bert-tiny.onnx", "--dim", "sequence=8")
        kept = check_model("kept")
        for when in ("before", "after"):
            shown = [[(node["name"], node["op"], node["flop"]) for node in one[when]["nodes"]] for one in (kept, seen)]
            assert shown[0] == shown[1], shown
        large = ("model", "inspect", "kept", "--items", "4096", "--runs", "1")
        run(*large, code=1, says="limit")
        run(*large, "--memory", "4GiB")
        assert check_model("text")["after"]["flop"] == shorter
        assert check_model("text", "--dim", "sequence=16")["after"]["flop"] > shorter
        run("model", "inspect", "configured", code=3, says="where the configuration says")
        run("model", "inspect", "none", code=3, says="is synthetic")
        run("model", "inspect", "nobody", code=3, says="there is no model 'nobody'")
        os.rename(lenet, "kept") # a file comes before a model
        os.environ["LEAT_SOCKET"] = "none.sock"
        check_model("kept")
    finally:
        daemon.terminate()
    assert daemon.wait() == 0


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    check_networks()
    check_daemon(*check_files())
    os.chdir("/")
