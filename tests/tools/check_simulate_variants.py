#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Goal     leat simulate --profiles says what its runs found, whatever the number of threads; its files are well-formed and agree;
         what is wrong is told.
Method   The command as a process. Where the answer can be worked out by hand it is compared; CSV, JSON and SVG are read by
         Python's own parsers and compared with one another.
"""
import csv
import os
import tempfile
import xml.etree.ElementTree as xml

from simulate_command import leat, results, write

SVG = "{http://www.w3.org/2000/svg}"
seed = int(os.environ.get("LEAT_SEED", "1"))
print("seed", seed)


def files():
    with open("profiles.csv", "w") as file:
        print("task,model,batch_size,p95_us,mean_us", file=file)
        for name, fixed, each in (("quick", 4000, 1000), ("middle", 8000, 2000), ("good", 16000, 4000), ("dull", 17000, 4000)):
            for batch in (1, 2, 4, 8, 16, 32):
                print("t", name, batch, fixed + each * batch, (fixed + each * batch) / 2, sep=",", file=file)
        print("other,quick,1,1,1\nother,quick,2,1,1", file=file)
    write("accuracies.csv", "model,accuracy\nquick,60\nmiddle,70\ngood,80\ndull,75\n")
    write("trace.csv", "start_s,qps\n0,100\n1,300\n2,200\n")
    write("times", "".join(f"{i / 50}\n" for i in range(1, 500)))


BASE = ("--profiles", "profiles.csv", "--accuracies", "accuracies.csv", "--task", "t", "--objective", "100ms",
        "--workers", 4, "--seed", seed, "--duration", "10s")
GRID = (*BASE, "--rates", "50:350:100", "--selector", "jellyfish,greedy", "--seeds", 3)


def check_help():
    both = leat("--help").decode()
    assert "leat simulate --profile FILE" in both and "leat simulate --profiles FILE" in both and "jellyfish" in both
    text = leat("--profiles", "x", "--help").decode()
    assert text in both and "example: leat simulate --profiles" in text
    assert leat("--stages", "x", "--help").decode() in both


def check_by_hand():
    """50 queries a second, one at a time, evenly: each is served alone, at once, by what the selector is known to choose."""
    even = (*BASE, "--arrivals", "constant", "--rate", 50, "--duration", "9.99s")
    for selector, variant, latency_ns in (("fixed", 0, 5000000), ("jellyfish", 2, 20000000), ("greedy", 2, 20000000),
                                         ("infaas", 0, 5000000)):
        found = results(*even, "--selector", selector)[0]
        assert found["selector"] == selector and found["router"] == "fcfs" and found["rate_qps"] == 50
        assert found["accuracy"] == [(0.6, 0.7, 0.8)[variant]] and found["violation_share"] == [0]
        assert found["latency_p50_ns"] == found["latency_p99_ns"] == found["latency_max_ns"] == [latency_ns]
        assert found["arrived"] == found["served"] == 499 and found["waiting"] == found["expired"] == found["rejected"] == 0
        assert found["batches"] == [[1, 499]]
        assert [row["queries"] for row in found["variants"]] == [499 * (v == variant) for v in range(4)]
        assert [row["variant"] for row in found["variants"]] == ["quick", "middle", "good", "dull"]
        assert abs(found["utilisation"][0] - 499 * latency_ns / 39.96e9) < 1e-3
    # Half the time by the mean; a front without the dull one; one variant by name.
    assert results(*even, "--selector", "fixed", "--statistic", "mean")[0]["latency_max_ns"] == [2500000]
    assert len(results(*even, "--variants", "front")[0]["variants"]) == 3
    only = results(*even, "--variants", "dull,middle", "--selector", "fixed")[0]
    assert [row["variant"] for row in only["variants"]] == ["middle", "dull"] and only["accuracy"] == [0.7]
    # An objective that nothing can meet: late if served, none served in time if dropped.
    late = results(*even, "--objective", "1ms", "--selector", "greedy")[0]
    assert late["violation_share"] == [1] and late["served"] == late["served_late"] == 499 and late["accuracy"] == [0.6]


def check_overload():
    flood = (*BASE, "--arrivals", "constant", "--rate", 100000, "--duration", "2s", "--selector", "jellyfish")
    served = results(*flood)[0]
    assert served["arrived"] == served["served"] + served["waiting"] and served["violation_share"][0] > 0.9
    dropped = results(*flood, "--late", "drop")[0]
    assert dropped["arrived"] == dropped["served"] + dropped["waiting"] + dropped["expired"] and dropped["expired"] > 150000
    aborted = results(*flood, "--abort", 5000)[0]
    assert aborted["runs_aborted"] == 1 and aborted["violation_share"] == [1] and aborted["accuracy"] == [0.6]


def check_files_agree():
    found = results(*GRID, "--csv", "a.csv", "--svg", "a.svg", "--late-svg", "b.svg")
    with open("a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(found) == 8 and len(rows) == 24
    for case, at in zip(found, range(0, 24, 3)):
        same = rows[at:at + 3]
        assert {row["selector"] for row in same} == {case["name"]} and {float(row["rate_qps"]) for row in same} == {case["rate_qps"]}
        assert [row["seed"] for row in same] == [str(seed + i) for i in range(3)]
        for key, column in (("accuracy", "accuracy"), ("violation_share", "violation_share"), ("utilisation", "utilisation"),
                            ("latency_p99_ns", "p99_ns")):
            assert [float(row[column]) for row in same] == case[key], (key, case)
        for key in ("arrived", "served", "served_late", "expired", "rejected", "waiting", "waiting_late"):
            assert sum(int(row[key]) for row in same) == case[key]
        assert sum(row["queries"] for row in case["variants"]) == case["served"] == sum(n * k for n, k in case["batches"])
    assert [case["rate_qps"] for case in found[::2]] == [50, 150, 250, 350]
    assert {case["arrived"] for case in found[:2]} == {found[0]["arrived"]}  # the same queries for both
    for name, label in (("a.svg", "accuracy"), ("b.svg", "late")):
        root = xml.parse(name).getroot()
        text = " ".join(node.text or "" for node in root.iter(SVG + "text"))
        assert root.tag == SVG + "svg" and label in text and "simulated" in text and "jellyfish" in text
    assert leat(*GRID, "--json", "--threads", 1) == leat(*GRID, "--json", "--threads", 7)
    lines = leat(*GRID).decode().splitlines()
    assert lines[0].startswith("simulated: 4 variants, 4 workers") and sum(line.startswith("greedy") for line in lines) == 4


def check_arrivals():
    own = results(*BASE, "--trace", "trace.csv")[0]
    assert own["rate_qps"] == 200 and abs(own["arrived"] - 2000) < 6 * 45 + 100  # ten seconds are three cycles and a third
    cut = results(*BASE, "--trace", "trace.csv", "--trace-cycle", "1s")[0]
    assert cut["rate_qps"] == 100 and abs(cut["arrived"] - 1000) < 6 * 32
    scaled = results(*BASE, "--trace", "trace.csv", "--rate", "20,2000")
    assert abs(scaled[0]["arrived"] - 200) < 6 * 15 + 10 and abs(scaled[1]["arrived"] - 20000) < 6 * 150 + 1000
    times = results(*BASE, "--arrivals", "times")[0]
    assert times["arrived"] == 499 and abs(times["rate_qps"] - 50) < 1e-6
    assert results(*BASE, "--arrivals", "times", "--rate", 500)[0]["arrived"] == 499
    uneven = results(*BASE, "--rate", 300, "--dispersion", 20, "--selector", "fixed")[0]
    even = results(*BASE, "--rate", 300, "--selector", "fixed")[0]
    assert uneven["latency_p99_ns"] > even["latency_p99_ns"]
    bursty = results(*BASE, "--rate", 300, "--arrivals", "bursty", "--burst-factor", 9, "--burst-mean", "100ms",
                     "--selector", "fixed")[0]
    assert bursty["latency_p99_ns"] > even["latency_p99_ns"]
    fine = (*BASE, "--rate", 620, "--rate-step", 5)
    assert results(*fine) == results(*fine, "--load", "known") != results(*fine, "--load", "measured")
    assert results(*fine, "--load", "measured", "--window", "100ms") != results(*fine, "--load", "measured")


def check_errors():
    write("bad.csv", "model,batch_size,p95_us,accuracy\na,1,x,0.5\n")
    write("nothing", "no policy")
    for code, arguments, words in (
            (2, ("--profiles", "profiles.csv"), ["--objective is needed"]),
            (2, BASE, ["--rate is needed"]),
            (2, (*BASE, "--rate", "0"), ["--rate"]),
            (2, (*BASE, "--rate", "5,4"), ["rising"]),
            (2, (*BASE, "--rate", "5:4:1"), ["range"]),
            (2, (*BASE, "--rate", "5:9"), ["range"]),
            (2, (*BASE, "--rate", "1:1000:1"), ["at most 256"]),
            (2, (*BASE, "--rate", "5", "--selector", "none"), ["no selector 'none'"]),
            (2, (*BASE, "--rate", "5", "--selector", "mdp"), ["mdp needs a --policy"]),
            (2, (*BASE, "--rate", "5", "--router", "none"), ["none"]),
            (2, (*BASE, "--rate", "5", "--workers", 257), ["'257'"]),
            (2, (*BASE, "--rate", "5", "--trace", "trace.csv", "--arrivals", "bursty"), ["contradict"]),
            (2, (*BASE, "--rate", "5", "--trace-cycle", "1s"), ["without --trace"]),
            (2, (*BASE, "--rate", "5", "--arrivals", "bursty", "--dispersion", "2"), ["--dispersion"]),
            (2, (*BASE, "--arrivals", "times", "--load", "known"), ["--load known"]),
            (2, (*BASE, "--rate", "5", "extra"), ["'extra'"]),
            (1, (*BASE, "--rate", "5", "--task", "none"), ["profiles.csv"]),
            (1, (*BASE, "--rate", "5", "--trace", "none.csv"), ["none.csv"]),
            (1, (*BASE, "--rate", "5", "--arrivals", "none"), ["none"]),
            (1, (*BASE, "--rate", "5", "--policy", "nothing"), ["nothing: "]),
            (1, (*BASE, "--rate", "5", "--policy", "absent"), ["absent"]),
            (1, (*BASE, "--rate", "5", "--csv", "/nonexistent/a.csv"), ["--csv"]),
            (1, (*BASE, "--rate", "5", "--profiles", "bad.csv", "--accuracies", "bad.csv"), ["bad.csv:2: "])):
        leat(*arguments, code=code, says=words)


with tempfile.TemporaryDirectory(prefix="leat-test-") as folder:
    os.chdir(folder)
    files()
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            print(name, flush=True)
            check()
    os.chdir("/")
