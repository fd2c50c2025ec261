#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Goal     leat simulate --stages says what its runs found, whatever the number of threads; its files are well-formed and agree; what
         is wrong is told.
Method   The command as a process. CSV, JSON and SVG are read by Python's own parsers and compared with one another; loads whose
         outcome can be worked out by hand are compared with that.
"""
import csv
import json
import os
import sys
import tempfile
import xml.etree.ElementTree as xml

from simulate_command import leat, write

DATA, NETWORK = map(os.path.realpath, sys.argv[2:4])
SVG = "{http://www.w3.org/2000/svg}"


HEAD = "alpha,beta,gamma,zeta,max_batch,max_cores\n"
VIDEO = ("--stages", f"{DATA}/stages.csv", "--pipeline", "video", "--objective", "780ms", "--trace", f"{DATA}/video.rates",
         "--duration", "60s", "--seeds", 2)


def check_files():
    said = json.loads(leat(*VIDEO, "--json", "--csv", "rows.csv", "--svg", "cores.svg", "--violations-svg", "violations.svg"))
    assert said["simulated"] is True and [r["scaler"] for r in said["results"]] == ["fa2", "sponge", "themis", "leat"]
    with open("rows.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 2 * 60
    for result in said["results"]:
        for number, seed in enumerate(("1", "2")):
            mine = [r for r in rows if r["scaler"] == result["scaler"] and r["seed"] == seed]
            arrived, violated = (sum(int(r[key]) for r in mine) for key in ("arrived", "violated"))
            left = result["violation_share"][number] * arrived - violated
            assert -1e-6 < left < 40, "what is left at the end is a violation too, and little"
            assert abs(sum(float(r["cores"]) for r in mine) / 60 - result["cores_mean"][number]) < 1e-3
    arrivals = {tuple(r["arrived"] for r in rows if r["scaler"] == s and r["seed"] == "1") for s in ("fa2", "themis", "leat")}
    assert len(arrivals) == 1, "queries come the same for all"
    for name in ("cores.svg", "violations.svg"):
        text = "".join(xml.parse(name).getroot().itertext())
        assert "simulated" in text and "sponge" in text
    for threads in (1, 3):
        assert json.loads(leat(*VIDEO, "--json", "--threads", threads)) == said
    assert b"violations" in leat(*VIDEO, "--scaler", "none,leat")


def check_by_hand():
    """One instance of one core takes 10 ms: 50 a second are carried, half of 200, if those go that have no time left."""
    write("one.csv", HEAD + "0,0,0,10,1,1\n")
    for rate, least, most in ((50, 0, 0.001), (200, 0.4, 0.6)):
        write("rate.txt", f"{rate}\n" * 50)
        result = json.loads(leat("--stages", "one.csv", "--objective", "100ms", "--trace", "rate.txt", "--scaler", "none", "--json", "--drop", 0.89,
                                 "--seeds", 3))["results"][0]
        assert all(least <= share <= most for share in result["violation_share"]), result
        assert all(abs(c - 1) < 1e-6 for c in result["cores_mean"]) and result["resizes"] == [0.0] * 3
    # 160 a second take two instances of one core, with deviations three; and one where 15 ms are all that there is, but by leat's model two.
    for stage, rate, objective, deviations, fa2, slack in (("0,0,0,10,1,1", 160, "100ms", 2, 2, 3), ("0,0,10,0,1,4", 160, "100ms", 2, 2, 3),
                                                           ("0,0,0,10,1,1", 160, "100ms", 0, 2, 2), ("0,0,0,10,1,1", 50, "15ms", 0, 1, 2)):
        write("two.csv", HEAD + stage + "\n")
        write("rate.txt", f"{rate}\n" * 50)
        results = json.loads(leat("--stages", "two.csv", "--objective", objective, "--trace", "rate.txt", "--scaler", "fa2,fa2-slack", "--json",
                                  "--deviations", deviations, "--seeds", 3))["results"]
        assert [set(r["cores_max"]) for r in results] == [{fa2}, {slack}], (stage, rate, deviations, results)
    write("rate.txt", "200\n" * 50)
    # Three times that takes three instances: Themis' half that adds them does so, and ends without violations.
    result = json.loads(leat("--stages", "one.csv", "--objective", "100ms", "--trace", "rate.txt", "--scaler", "fa2,leat", "--json",
                             "--start-delay", "1ms", "--rate", 250))["results"]
    assert all(3 <= r["cores_max"][0] <= 6 and r["violation_share"][0] < 0.1 for r in result), result


def check_no_time():
    """A fit says -10 ms of one query, 20 ms of two: one takes as long, and nobody plans with less. Of two revisions."""
    write("odd.csv", "revision," + HEAD + "old,0,0,0,-1,1,\nnew,0,30,0,-40,4,2\n")
    write("seldom.txt", "0.05\n" * 1000)
    odd = ("--stages", "odd.csv", "--objective", "200ms", "--json", "--drop", 0, "--trace")
    said = json.loads(leat(*odd, "seldom.txt", "--revision", "new", "--scaler", "none"))
    assert said["revision"] == "new" and said["results"][0]["latency_p50_ns"] == [20 * 10**6], said
    # One core carries 100 a second in batches of four, and never an end of queries one by one.
    write("busy.txt", "150\n" * 100)
    said = json.loads(leat(*odd, "busy.txt", "--revision", "new", "--scaler", "fa2,leat", "--start-delay", "0s"))
    for result in said["results"]:
        assert 2 <= result["cores_mean"][0] <= 4 and result["violation_share"][0] < 0.05, result
    leat(*odd, "seldom.txt", code=1, says=["odd.csv", "old, new", "--revision"])
    leat(*odd, "seldom.txt", "--revision", "old", code=1, says=["odd.csv:2", "max_cores"])
    write("apps.csv", "revision,application," + HEAD + "old,find,0,0,0,10,1,1\nnew,find,0,0,0,20,1,1\n")
    find = graph("one.json", [stage("find", "find", ["input.x"])], "find.y", 200)
    one = ("--stages", "apps.csv", "--graph", find, *odd[4:], "seldom.txt")
    for revision, ms in (("old", 10), ("new", 20)):
        said = json.loads(leat(*one, "--revision", revision, "--scaler", "none"))
        assert said["results"][0]["latency_p50_ns"] == [ms * 10**6], said
    leat(*one, code=1, says=["apps.csv", "application find", "old, new"])


def check_most():
    """As many cores as there are; more for as long as cores that go are not yet free, though what starts holds its own."""
    def most(delay):
        said = leat("--stages", f"{DATA}/stages.csv", "--pipeline", "nlp", "--objective", "2550ms", "--trace", f"{DATA}/nlp.rates", "--scaler", "leat",
                    "--cores", 33, "--seeds", 3, "--resize-delay", delay, "--json")
        return max(json.loads(said)["results"][0]["cores_max"])
    assert most("0s") == 33 and most("1ms") >= 34


def check_forecasts():
    """One instance carries 50 a second with its batch of one. Who knows of the jump at 40 s has enough before it comes."""
    write("jump.txt", "30\n" * 40 + "200\n" * 20)

    def run(*more):
        said = json.loads(leat("--stages", "one.csv", "--objective", "100ms", "--trace", "jump.txt", "--json", "--seeds", 3, *more))
        return said["forecast"], {r["scaler"]: r for r in said["results"]}

    none, usual = run("--scaler", "themis,leat")
    _, plain = run("--scaler", "themis,leat", "--forecast", "none", "--hold", "1s")
    assert none is None
    told = {}
    for name in ("last", "mean", "maximum", "trend", "quantile50", "quantile90", "quantile99", NETWORK, "oracle"):
        said, told[name] = run("--scaler", "fa2,leat,themis", "--forecast", name)
        assert said == name
    assert told["last"]["themis"] == plain["themis"] == usual["themis"] and told["quantile50"]["leat"] == usual["leat"], "defaults"
    assert told["oracle"]["leat"]["violation_share"][0] < 0.02 < 0.1 < plain["leat"]["violation_share"][0], (told["oracle"], plain)
    assert told["quantile99"]["leat"]["cores_mean"][0] > told["quantile50"]["leat"]["cores_mean"][0]
    assert len({json.dumps(t["fa2"]) for t in told.values()}) == 1, "FA2 asks for none"
    for threads in (1, 3):
        assert run("--scaler", "fa2,leat,themis", "--forecast", NETWORK, "--threads", threads)[1] == told[NETWORK]


APPLICATIONS = "application,alpha,beta,gamma,zeta,max_batch,max_cores,items_min,items_max\n"


def stage(name, application, sources, each=None):
    return {"name": name, "application": application, "inputs": {f"in{n}": source for n, source in enumerate(sources)}} | (
        {"each": each} if each else {})


def graph(name, stages, outputs, latency_ms=None):
    return write(name, json.dumps({"stages": stages, "outputs": {f"out{n}": output for n, output in enumerate(outputs.split())}} | (
        {"latency_ms": latency_ms} if latency_ms else {})))


def check_graphs():
    """A chain as the daemon takes it is the chain of the table; what fans out, joins and repeats takes its longest way."""
    with open(f"{DATA}/stages.csv") as file:
        rows = [r for r in csv.DictReader(file) if r["pipeline"] == "nlp"]
    keys = HEAD.strip().split(",")
    write("apps.csv", "application," + HEAD + "".join(f"app{n}," + ",".join(r[k] for k in keys) + "\n" for n, r in enumerate(rows)))
    chain = graph("chain.json", [stage(f"s{n}", f"app{n}", [f"s{n - 1}.y" if n else "input.x"]) for n in range(len(rows))],
                  f"s{len(rows) - 1}.y", 2550)
    load = ("--trace", f"{DATA}/nlp.rates", "--duration", "60s", "--json")
    table = json.loads(leat("--stages", f"{DATA}/stages.csv", "--pipeline", "nlp", "--objective", "2550ms", *load))
    said = json.loads(leat("--stages", "apps.csv", "--graph", chain, *load))
    assert len(rows) == 3 and said["results"] == table["results"] and said["graphs"][0]["objective_ns"] == 2550 * 10**6

    write("apps.csv", APPLICATIONS + "find,0,0,0,10,1,1,0,1\nwide,0,0,0,35,1,1,0,1\ncrop,0,10,0,0,4,1,2,2\njoin,0,0,0,5,1,1,0,1\n")
    both = [stage("find", "find", ["input.x"]), stage("wide", "wide", ["find.y"]), stage("crop", "crop", ["find.crops"], "find.crops"),
            stage("join", "join", ["wide.y", "find.y"])]
    write("calm.txt", "0.01\n" * 1000)
    calm = ("--stages", "apps.csv", "--trace", "calm.txt", "--json", "--scaler", "none", "--drop", 0)
    for late in (0, 1):
        result = json.loads(leat(*calm, "--graph", graph("both.json", both, "join.y crop.y", 50 - late)))["results"][0]
        assert result["latency_p50_ns"][0] == 50 * 10**6 and result["violation_share"][0] == late, result
    result = json.loads(leat(*calm, "--graph", graph("crops.json", both[:1] + both[2:3], "crop.y"), "--objective", "1s"))["results"][0]
    assert result["latency_p50_ns"][0] == 30 * 10**6, result
    unsaid = json.loads(leat(*calm[:5], "--graph", "crops.json", "--objective", "1s"))["results"]
    assert [r["scaler"] for r in unsaid] == ["none", "leat"], unsaid # the others know chains only

    # Two on one box: one asks for five times what its stage carries, by a trace of its own.
    write("busy.txt", "500\n" * 60)
    for cores, least, most in ((3, 0.3, 1), (16, 0, 0.05)):
        said = json.loads(leat("--stages", "apps.csv", "--graph", graph("one.json", both[:1], "find.y", 200), "--graph",
                               graph("two.json", both[:1], "find.y", 200) + ",busy.txt", "--trace", "calm.txt", "--duration", "60s", "--cores",
                               cores, "--scaler", "leat", "--json", "--start-delay", "1ms"))
        result = said["results"][0]
        assert least <= result["violation_share_worst"][0] <= most and result["cores_max"][0] <= cores + 1e-6, result
        assert [g["trace"] for g in said["graphs"]] == [None, "busy.txt"]

    leat(*calm[:4], "--scaler", "leat,themis", "--graph", "both.json", code=1, says=["themis", "one after another"])
    leat(*calm, "--graph", chain, code=1, says=["apps.csv", "app0"])
    leat(*calm, "--graph", "crops.json", code=1, says=["crops.json", "latency_ms"])
    leat(*calm, "--graph", "crops.json", "--objective", "1s", "--pipeline", "x", code=2, says=["--graph"])
    leat(*calm, "--graph", write("bad.json", "{"), code=1, says=["bad.json"])
    leat(*calm, "--graph", graph("self.json", [stage("find", "find", ["find.y"])], "find.y", 50), code=1, says=["self.json", "find"])
    leat(*calm, "--graph", "both.json,nowhere.txt", code=1, says=["nowhere.txt"])
    write("apps.csv", "application," + HEAD + "find,0,0,0,10,1,1\ncrop,0,10,0,0,4,1\n")
    leat(*calm, "--graph", "crops.json", "--objective", "1s", code=1, says=["crop", "items_min"])


def check_errors():
    leat("--stages", "one.csv", code=2, says=["--objective"])
    leat("--stages", "one.csv", "--objective", "100ms", code=2, says=["--trace"])
    leat(*VIDEO, "--scaler", "leat,fa3", code=2, says=["fa3"])
    leat(*VIDEO, "--objective", "1us", code=2, says=["milliseconds"])
    leat(*VIDEO, "--rate", "1e9", code=2, says=["queries in a run", "--rate"])
    leat(*VIDEO, "--hold", "1ms", code=2, says=["--hold"])
    leat(*VIDEO, "--forecast", "lasts", code=1, says=["lasts"])
    leat(*VIDEO, "--forecast", write("bad.onnx", "no model"), code=1, says=["leat simulate"])
    leat(*VIDEO, "--batches", "half", code=2, says=["half"])
    leat(*VIDEO, "--csv", "nowhere/x.csv", code=1, says=["nowhere"])
    leat("--stages", f"{DATA}/stages.csv", "--objective", "1s", "--trace", "rate.txt", code=1, says=["pipeline"])
    for text, word in ((HEAD, "no stage"), ("alpha,beta\n1,2\n", "gamma"), (HEAD + "1,1,1,1,0,1\n", "max_batch"), (HEAD + "x,1,1,1,1,1\n", "alpha"),
                       (HEAD + "0,0,0,-1,1,1\n", "no time"), (HEAD + "1,1,1,1,1,1\n" * 9, "more than 8")):
        leat("--stages", write("bad.csv", text), "--objective", "1s", "--trace", "rate.txt", code=1, says=["bad.csv", word])
    assert b"--stages FILE" in leat("--stages", "x", "--help")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    check_files()
    check_by_hand()
    check_no_time()
    check_most()
    check_forecasts()
    check_graphs()
    check_errors()
