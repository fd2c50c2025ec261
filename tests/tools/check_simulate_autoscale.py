#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Goal     leat simulate --autoscale says what its runs found, whatever the number of threads; its files are well-formed and agree; what
         is wrong is told.
Method   The command as a process. CSV, JSON and SVG are read by Python's own parsers and compared with one another.
"""
import csv
import json
import os
import sys
import tempfile
import xml.etree.ElementTree as xml

from simulate_command import leat, write

DATA = os.path.realpath(sys.argv[2])
POLICIES = ["static-cpu", "static-gpu", "replicate-cpu", "replicate-gpu", "infaas", "leat"]


LOAD = ("--autoscale", f"{DATA}/resnet50.csv", "--trace", f"{DATA}/fluctuating.rates", "--duration", "100s", "--seeds", 2)
HEAD = ("application,objective_ms,share,variant,hardware,batch_ms,item_ms,max_batch,memory_gb,cpu_cores,inferentia_cores,gpu_share,load_s\n")
ROW = "a,500,1,v,cpu,0,200,1,1.75,4,0,0,6.8\n"


def check_files():
    said = json.loads(leat(*LOAD, "--json", "--csv", "rows.csv", "--svg", "cost.svg", "--violations-svg", "violations.svg"))
    assert said["simulated"] is True and [r["policy"] for r in said["results"]] == POLICIES
    with open("rows.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(POLICIES) * 2 * 100 and all(r["source"] == "simulated" for r in rows)
    for result in said["results"]:
        for number, seed in enumerate(("1", "2")):
            mine = [r for r in rows if r["policy"] == result["policy"] and r["seed"] == seed]
            arrived, violated = (sum(int(r[key]) for r in mine) for key in ("arrived", "violated"))
            assert abs(result["violation_share"][number] * arrived - violated) < 1e-3
            assert abs(sum(float(r["cost"]) for r in mine) - result["cost"][number]) < 1e-2
            parts = sum(result[f"cost_{h}"][number] for h in ("cpu", "inferentia", "gpu"))
            assert abs(parts - result["cost"][number]) < 1e-9 * parts
            assert abs(result["in_time_qps"][number] * 100 - (arrived - violated)) < 1e-6
    arrivals = {tuple(r["arrived"] for r in rows if r["policy"] == p and r["seed"] == "1") for p in POLICIES}
    assert len(arrivals) == 1, "queries come the same for all"
    for name in ("cost.svg", "violations.svg"):
        text = "".join(xml.parse(name).getroot().itertext())
        assert "simulated" in text and "replicate-gpu" in text
    for threads in (1, 3):
        assert json.loads(leat(*LOAD, "--json", "--threads", threads)) == said
    assert b"violations" in leat(*LOAD, "--policy", "infaas,leat")


def check_options():
    """What is asked for is done: no GPU, no cost of GPUs; more kept in hand, fewer late; nothing dropped."""
    def result(*more):
        return json.loads(leat(*LOAD, "--json", "--policy", "leat", *more))["results"][0]
    assert max(result("--gpus", 0, "--rate", 300)["cost_gpu"]) == 0 < min(result("--rate", 700)["cost_gpu"])
    assert sum(result("--deviations", 0, "--hold", "1s")["violation_share"]) > sum(result("--deviations", 3)["violation_share"])
    assert result("--drop", 0, "--rate", 5000)["dropped_share"] == [0, 0]
    assert sum(result("--steady", "2s")["instances_started"]) > sum(result("--steady", "20s")["instances_started"])


def check_errors():
    leat("--autoscale", "x.csv", code=2, says=["--trace is needed"])
    leat("--autoscale", "none.csv", "--trace", "none", code=1, says=["none.csv"])
    leat(*LOAD, "--policy", "best", code=2, says=["'best' is none"])
    leat(*LOAD, "--policy", "ilp", code=2, says=["integer programs"])
    leat(*LOAD, "--headroom", "0.5", code=2, says=["0.5"])
    leat(*LOAD, "--steady", "1s", code=2, says=["1s"])
    trace = write("rate.txt", "10\n")
    for text, word in ((HEAD, "no variant"), ("a,b\n1,2\n", "application"), (HEAD + ROW.replace("cpu", "tpu", 1), "'tpu' is none"),
                       (HEAD + ROW + ROW.replace("500", "400"), "another objective"), (HEAD + ROW * 33, "more than 32"),
                       (HEAD + ROW + ROW.replace("a,", "b,") + ROW, "do not follow one another"),
                       (HEAD + ROW.replace(",200,", ",0,"), "item_ms")):
        leat("--autoscale", write("bad.csv", text), "--trace", trace, code=1, says=["bad.csv", word])
    assert b"--autoscale FILE" in leat("--autoscale", "x", "--help")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    check_files()
    check_options()
    check_errors()
