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
    # Three times that takes three instances: Themis' half that adds them does so, and ends without violations.
    result = json.loads(leat("--stages", "one.csv", "--objective", "100ms", "--trace", "rate.txt", "--scaler", "fa2,leat", "--json",
                             "--start-delay", "1ms", "--rate", 250))["results"]
    assert all(3 <= r["cores_max"][0] <= 6 and r["violation_share"][0] < 0.1 for r in result), result


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


def check_errors():
    leat("--stages", "one.csv", code=2, says=["--objective"])
    leat("--stages", "one.csv", "--objective", "100ms", code=2, says=["--trace"])
    leat(*VIDEO, "--scaler", "leat,fa3", code=2, says=["fa3"])
    leat(*VIDEO, "--objective", "1us", code=2, says=["milliseconds"])
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
    check_forecasts()
    check_errors()
