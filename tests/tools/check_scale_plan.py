#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Goal     leat scale plan answers what Themis' programs do, in cost, latency, batches, cores and instances, and with leat the
         least cores of all; what is wrong is told.
Method   The command as a process, on the three pipelines of the paper at many rates. The programs are written down here again,
         as dictionaries of latencies in the order of their rules; leat's answers are checked against all combinations of ways.
"""
import csv
import json
import math
import os
import subprocess
import sys
import tempfile

LEAT, DATA = map(os.path.realpath, sys.argv[1:3])
STAGES = f"{DATA}/stages.csv"
OBJECTIVES = {"video": 780, "sentiment": 1350, "nlp": 2550}
CORES_BEFORE_LAST = 32


def plan(*arguments, code=0, says=()):
    done = subprocess.run([LEAT, "scale", "plan", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, f"{arguments}: exit code {done.returncode}, not {code}: {done.stderr}"
    assert all(word in done.stderr for word in says) and (done.stderr == "") == (code == 0), f"{arguments}: {done.stderr}"
    return done.stdout


def listed(numbers):
    return ",".join(map(str, numbers))


def stages_of(said):
    return [(s["instances"], s["cores"], s["batch"]) for s in said["stages"]]


def read_pipelines(path=STAGES, names=OBJECTIVES):
    pipelines = {name: [] for name in names}
    with open(path) as file:
        for row in csv.DictReader(file):
            if row["pipeline"] not in names:
                continue
            models = [float(row[key]) for key in ("alpha", "beta", "gamma", "zeta")]
            pipelines[row["pipeline"]].append((models, int(row["max_batch"]), int(row["max_cores"])))
    return pipelines


def latency(stage, batch, cores):
    alpha, beta, gamma, zeta = stage[0]
    return alpha * batch / cores + beta * batch + gamma / cores + zeta


# ---- Themis -------------------------------------------------------------------------------------------


def taken_ms(stage, batch, cores, rate):
    return int(latency(stage, batch, cores)) + 1000 * (batch - 1) // rate


def program(stages, objective, rate, instances=None):
    """(cost, latency, [(instances, cores, batch)]) or None; vertical with instances, else horizontal."""
    if rate == 0:
        least = [min((c, b) for c in range(1, s[2] + 1) for b in range(1, s[1] + 1) if latency(s, b, c) > 0)
                 for s in stages]
        took = sum(int(latency(s, b, c)) for s, (c, b) in zip(stages, least))
        return sum(c for c, _ in least), took, [(1, c, b) for c, b in least]
    reached = {0: (0, [])}
    for number, stage in enumerate(stages):
        after = {}
        for before in sorted(reached, reverse=True):
            cost, choices = reached[before]
            if number > 0 and instances and cost > CORES_BEFORE_LAST:
                continue
            for cores in range(1, stage[2] + 1 if instances else 2):
                for batch in range(1, stage[1] + 1):
                    taken = taken_ms(stage, batch, cores, rate)
                    served = 1000 * batch // taken if taken > 0 else 0
                    if latency(stage, batch, cores) <= 0:
                        continue
                    if before + taken > objective or served == 0 or (instances and served * instances[number] < rate):
                        continue
                    replicas = instances[number] if instances else math.ceil(rate / served)
                    more = cost + (cores if instances else replicas)
                    if before + taken not in after or more < after[before + taken][0]:
                        after[before + taken] = (more, choices + [(replicas, cores, batch)])
        reached = after
    in_time = [(cost, at, choices) for at, (cost, choices) in reached.items() if at < objective]
    return min(in_time, key=lambda found: found[:2]) if in_time else None


def grown(stages, objective, rate, instances):
    found = program(stages, objective, rate, instances)
    if found:
        return *found, [0] * len(stages)
    left, right = 1, rate
    while right - left > 1:
        middle = (left + right) // 2
        if program(stages, objective, middle, instances):
            left = middle
        else:
            right = middle
    found = program(stages, objective, left, instances) if left < rate else None
    if not found:
        return None
    cost, at, choices = found
    rest = rate - left
    each = [1000 * b // taken_ms(s, b, c, rest) for s, (_, c, b) in zip(stages, choices)]
    if 0 in each:
        return None
    added = [math.ceil(rest / served) for served in each]
    return cost, at, [(n + more, c, b) for (n, c, b), more in zip(choices, added)], added


def check_paper(pipelines, table=STAGES, objectives=OBJECTIVES):
    cases, more = 0, 0
    for name, stages in pipelines.items():
        objective = objectives[name]
        base = ("--stages", table, "--pipeline", name, "--objective", f"{objective}ms", "--mode", "paper", "--json")
        for rate in (0, 1, 2, 5, 9, 13, 20, 33, 47, 62):
            found = program(stages, objective, rate)
            if found:
                said = json.loads(plan(*base, "--rate", rate, "--scaling", "horizontal"))
                assert (said["cost"], said["latency_ms"], stages_of(said)) == found, (name, rate, said, found)
            else:
                plan(*base, "--rate", rate, "--scaling", "horizontal", code=1, says=["no plan carries"])
            for instances in ([1, 1, 1], [4, 3, 2]):
                instances = instances[:len(stages)]
                found = grown(stages, objective, rate, instances)
                if not found:
                    plan(*base, "--rate", rate, "--scaling", "vertical", "--instances", listed(instances), code=1,
                         says=["no plan"])
                    continue
                cost, at, choices, added = found
                said = json.loads(plan(*base, "--rate", rate, "--scaling", "vertical", "--instances", listed(instances)))
                assert (said["cost"], said["latency_ms"]) == (cost, at), (name, rate, instances, said, cost, at)
                assert stages_of(said) == choices, (name, rate, said, choices)
                assert [s["added_instances"] for s in said["stages"]] == added
                more += any(added)
                cases += 1
            cases += 1
        vertical = (*base, "--rate", 5, "--scaling", "vertical")
        one = json.loads(plan(*vertical))
        assert one == json.loads(plan(*vertical, "--instances", listed([1] * len(stages)))), "the default"
        assert one["mode"] == "paper" and one["scaling"] == "vertical"
        assert one["rate_qps"] == 5 and one["objective_ms"] == objective
    return cases, more


# ---- leat ----------------------------------------------------------------------------------------------


def ways(stage, demand, instances, cores_max):
    """By cost, the least latency; leat's times are whole nanoseconds."""
    best = {}
    for cores in range(1, cores_max + 1):
        for batch in range(1, stage[1] + 1):
            took = int(latency(stage, batch, cores) * 1e6) / 1e6
            if took <= 0:
                continue
            least = math.ceil(demand * took / 1000 / batch - 1e-9)
            for n in [instances] if instances else range(max(1, least), max(1, least) + 12):
                if n >= least:
                    best[n * cores] = min(best.get(n * cores, math.inf), took + took / n)
    return best


def check_leat(pipelines, table=STAGES, objectives=OBJECTIVES):
    for name, stages in pipelines.items():
        for rate in (1, 7, 12.5, 30):
            for scaling in ("both", "horizontal", "vertical"):
                instances = [3] * len(stages) if scaling == "vertical" else [None] * len(stages)
                reached = {0: 0}
                for stage, n in zip(stages, instances):
                    after = {}
                    for cost, at in reached.items():
                        for price, took in ways(stage, rate, n, 1 if scaling == "horizontal" else stage[2]).items():
                            after[cost + price] = min(after.get(cost + price, math.inf), at + took)
                    reached = after
                in_time = [cost for cost, at in reached.items() if at <= objectives[name]]
                options = ["--instances", listed(instances)] if scaling == "vertical" else []
                options += ["--stages", table, "--pipeline", name, "--objective", f"{objectives[name]}ms", "--rate", rate,
                            "--scaling", scaling, "--deviations", 0, "--json"]
                if not in_time:
                    plan(*options, code=1, says=["no plan carries"])
                    continue
                said = json.loads(plan(*options))
                assert said["cost"] == min(in_time), (name, rate, scaling, said, min(in_time))
                found = 0
                for s, stage in zip(said["stages"], stages):
                    took = latency(stage, s["batch"], s["cores"])
                    assert s["instances"] * s["batch"] / took * 1000 >= rate * (1 - 1e-6) and s["added_instances"] == 0
                    found += took + took / s["instances"]
                assert abs(found - said["latency_ms"]) < 1e-3 and found <= objectives[name] + 1e-3, (said, found)
                assert said["cost"] == sum(s["instances"] * s["cores"] for s in said["stages"])
                assert said["mode"] == "leat" and said["scaling"] == scaling and said["demand_qps"] == rate
    more = json.loads(plan("--stages", STAGES, "--pipeline", "video", "--objective", "780ms", "--rate", 30, "--json"))
    assert more["demand_qps"] > 30 and more["scaling"] == "both", "two deviations are the default"


HEAD = "pipeline,alpha,beta,gamma,zeta,max_batch,max_cores\n"


def check_no_time():
    """Fits that say 0 or less of some sizes: those are left out, and a table is refused where there are no others."""
    objectives = {"some": 700, "one": 300}
    with open("odd.csv", "w") as file:
        file.write(HEAD + "other,0,0,0,-1,1,1\nanother,,,,,,\n"
                   "some,60,40,-30,-90,8,8\nsome,20,5,0,3,4,4\none,-5,25,2,-40,6,3\n")
    pipelines = read_pipelines("odd.csv", objectives)
    assert all(latency(stages[0], 1, 1) < 0 < latency(stages[0], 6, 1) for stages in pipelines.values())
    check_paper(pipelines, "odd.csv", objectives)
    check_leat(pipelines, "odd.csv", objectives)
    for options in ((), ("--mode", "paper", "--scaling", "vertical")):
        plan("--stages", "odd.csv", "--pipeline", "other", "--objective", "1s", "--rate", 1, *options, code=1,
             says=["odd.csv:2", "no time"])


def check_revisions():
    """One of several, whatever else is wrong with others; which there are is told where it is not clear."""
    with open("revised.csv", "w") as file:
        file.write("revision," + HEAD + "old,a,0,0,0,10,1,\nnew,a,0,0,0,20,1,1\nold,b,0,0,0,30,1,1\nnew,a,0,0,0,40,1,1\n")
    asked = ("--stages", "revised.csv", "--objective", "1s", "--rate", 1)
    assert len(json.loads(plan(*asked, "--pipeline", "a", "--revision", "new", "--json"))["stages"]) == 2
    assert len(json.loads(plan(*asked, "--pipeline", "b", "--json"))["stages"]) == 1, "there is one only"
    plan(*asked, "--pipeline", "a", code=1,
         says=["revised.csv: more than one revision", "pipeline a", "--revision", ": old, new\n"])
    plan(*asked, "--pipeline", "a", "--revision", "old", code=1, says=["revised.csv:2", "max_cores"])
    plan(*asked, "--pipeline", "b", "--revision", "new", code=1,
         says=["revision new has no stage of pipeline b", ": there are old\n"])
    plan(*asked, "--pipeline", "c", "--revision", "new", code=1, says=["no stage of pipeline c"])
    plan("--stages", STAGES, "--pipeline", "nlp", "--objective", "3s", "--rate", 1, "--revision", "x", code=1,
         says=["no column revision"])
    with open("many.csv", "w") as file:
        file.write("revision," + HEAD + "".join(f"r{n % 20},a,0,0,0,10,1,1\n" for n in range(40)))
    many = ("--stages", "many.csv", *asked[2:], "--pipeline", "a")
    plan(*many, code=1, says=[": r0, r1, ", "r15, others\n"])
    assert len(json.loads(plan(*many, "--revision", "r19", "--json"))["stages"]) == 2


def check_errors():
    video = ("--stages", STAGES, "--pipeline", "video", "--objective", "780ms")
    paper = (*video, "--rate", 5, "--mode", "paper")
    plan(*video, code=2, says=["--rate"])
    plan("--stages", STAGES, "--rate", 5, code=2, says=["--objective"])
    plan("--objective", "1s", "--rate", 5, code=2, says=["--stages"])
    plan("--stages", STAGES, "--objective", "780ms", "--rate", 5, code=1, says=["pipeline"])
    plan("--stages", "none.csv", "--objective", "780ms", "--rate", 5, code=1, says=["none.csv"])
    plan(*video, "--rate", -1, code=2, says=["-1"])
    plan(*video, "--rate", "nan", code=2, says=["nan"])
    plan(*video, "--rate", 5, "--objective", "1500us", code=2, says=["whole milliseconds"])
    plan(*video, "--rate", 5, "--mode", "papers", code=2, says=["papers"])
    plan(*video, "--rate", 5, "--scaling", "diagonal", code=2, says=["diagonal"])
    plan(*video, "--rate", 5, "--instances", "1,1", code=2, says=["--scaling vertical"])
    plan(*video, "--rate", 5, "--scaling", "vertical", "--cores", 0, code=2, says=["0"])
    plan(*video, "--rate", 5, "now", code=2, says=["now"])
    plan(*paper, code=2, says=["vertical or horizontal"])
    plan(*paper, "--scaling", "both", code=2, says=["both"])
    plan(*paper, "--scaling", "vertical", "--cores", 8, code=2, says=["--cores"])
    plan(*paper, "--scaling", "vertical", "--deviations", 1, code=2, says=["--deviations"])
    plan(*video, "--rate", 5.5, "--mode", "paper", "--scaling", "vertical", code=2, says=["whole queries"])
    for text in ("1", "1,1,1", "1,", "0,1", "1,x", "1,1,", ",", "", "1;1"):
        plan(*paper, "--scaling", "vertical", "--instances", text, code=2, says=["--instances", "2 numbers"])
    for mode in (("--mode", "paper", "--scaling", "vertical"), ("--mode", "paper", "--scaling", "horizontal"), ()):
        plan(*video, "--rate", 5, "--objective", "20ms", *mode, code=1, says=["no plan carries 5 ", "within 20 ms"])
    plan(*video, "--rate", 1000, "--cores", 8, code=1, says=["no plan carries 1000"])
    text = plan(*video, "--rate", 60, "--mode", "paper", "--scaling", "vertical")
    assert "cost 11" in text and "75 ms" in text and "33 cores" in text
    assert "--scaling NAME" in plan("--help")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    found = read_pipelines()
    counted, rises = check_paper(found)
    assert counted >= 71 and rises > 10, (counted, rises)
    check_leat(found)
    check_no_time()
    check_revisions()
    check_errors()
