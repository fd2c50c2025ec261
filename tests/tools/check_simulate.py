#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Goal     leat simulate says what its runs found, whatever the number of threads; its files are whole and well-formed; what
         is wrong is told with its place.
Method   The command as a process, on small profiles. Where the answer can be worked out by hand it is compared; CSV, JSON and
         SVG are read by Python's own parsers and compared with one another.
"""
import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

from simulate_command import LEAT, leat, results, write

LEATD = os.path.realpath(sys.argv[2])
SAMPLED = sys.argv[3:] == ["sampled"]  # with a sanitizer, under which a run takes several times as long
SVG = "{http://www.w3.org/2000/svg}"
seed = int(os.environ.get("LEAT_SEED", "1"))
print("seed", seed)


def read(name):
    with open(name, "rb") as file:
        return file.read()


def profiles():
    draw = random.Random(seed)
    with open("profile.csv", "w") as file:
        print("model,instance,batch,s0,s1,s2,s3", file=file)
        for model in ("m", "other"):
            for name, fixed, each in (("fast", 2, 0.02), ("slow", 1, 0.06)):
                for batch in range(10, 210, 10):
                    times = [f"{(fixed + each * batch) * draw.uniform(0.9, 1.1):.4f}" for _ in range(4)]
                    print(model, name, batch, *times, sep=",", file=file)
    write("plain.csv", "model,instance,batch,mean_ms\nm,x,1,10\nm,y,1,20\n")
    write("sizes.csv", "items,weight\n20,5\n100,3\n200,1\n")
    write("one.csv", "items\n1\n")
    write("prices.csv", "instance,price_usd_per_hour\nslow,0.25\nfast,1.5\n")


# Two mixes and all routers, at all seeds: what the other checks are about.
GRID = ("--profile", "profile.csv", "--model", "m", "--sizes", "sizes.csv", "--objective", "20ms", "--mix", "2,1", "--mix",
        "fast=1,slow=4", "--queries", 2000, "--seeds", 3, "--seed", seed)
# Every time is known: 10 ms on x, 20 on y.
PLAIN = ("--profile", "plain.csv", "--model", "m", "--sizes", "one.csv", "--arrivals", "constant", "--router", "fcfs",
         "--queries", 1000)


def check_help():
    text = leat("--help").decode()
    assert "\nexample: leat simulate" in text and "Every figure is simulated" in text


def check_repeats():
    grid = [800 if SAMPLED and argument == 2000 else argument for argument in GRID]  # queries
    for case in (("--router", "all,oracle"), ("--rate", "50,150,400", "--prediction-noise", "5%", "--service-noise", "0.05"),
                 ("--learn", "--service-noise", "10%"),
                 ("--router", "fcfs", "--arrivals", "bursty", "--later-sizes", "gaussian:50:20", "--change-at", 700)):
        outputs = set()
        for threads in (1, 7) if SAMPLED else (1, 2, 7, 7):
            out = leat(*grid, *case, "--json", "--threads", threads, "--csv", "r.csv", "--svg", "r.svg")
            outputs.add((out, leat(*grid, *case, "--threads", threads), read("r.csv"), read("r.svg")))
        assert len(outputs) == 1, case
        assert outputs != {(leat(*grid, *case, "--seed", seed + 50, "--json"), *next(iter(outputs))[1:])}


def check_known():
    """Late are 10 of 1000 where each waits a little longer than the one before: gaps of 9.995 ms, see below."""
    for mix, most_qps in (("1,0", 100.05), ("2,0", 200.2), ("x=1", 100.05)):
        (r,) = results(*PLAIN, "--objective", "15ms", "--mix", mix, "--tolerance", "0.1%")
        assert most_qps * 0.9985 < r["throughput_median_qps"] <= most_qps * 1.0001, r
        assert r["violation_share_median"] <= 0.01 and r["latency_p50_median_ns"] >= 10e6
    (r,) = results(*PLAIN, "--objective", "15ms", "--mix", "0,3")
    assert r["throughput_median_qps"] == 0 and r["latency_p99_median_ns"] is None  # 20 ms are never in time
    slow, fast = results(*PLAIN, "--objective", "15ms", "--mix", "1,0", "--rate", "50,400")
    assert slow["violation_share"] == [0] and slow["latency_max_ns"] == [10e6] and slow["rate_qps"] == 50
    # Every 2.5 ms one more: response i is 10 + 7.5 i ms, late but for the first.
    assert fast["violation_share"] == [0.999]
    assert abs(fast["latency_max_ns"][0] - (10 + 7.5 * 999) * 1e6) < 10 and abs(fast["latency_p50_ns"][0] - (10 + 7.5 * 499) * 1e6) < 10
    (r,) = results(*PLAIN[:-4], "--queries", 1000, "--objective", "15ms", "--mix", "3,0", "--router", "oracle")
    assert abs(r["throughput_median_qps"] - 1000 / 3.34) < 0.01, r  # 334 queries on the first, of 10 ms


def check_arrivals_file():
    write("times", "# seconds\n" + "".join(f"{5 + 0.02 * i}\n" for i in range(101)))
    plain = [*PLAIN, "--objective", "15ms", "--mix", "1,0", "--arrivals", "times"]
    (r,) = results(*plain, "--rate", "own")
    assert abs(r["rate_qps"] - 50) < 1e-6 and r["violation_share"] == [0]
    (r,) = results(*plain, "--rate", "100.4")
    assert r["violation_share"][0] > 0  # scaled, and repeated up to 1000 queries
    write("sized", "".join(f"{0.02 * i} 30\n" for i in range(101)))
    write("thirty.csv", "items\n30\n")
    write("unsized", "".join(f"{0.02 * i}\n" for i in range(101)))
    unsized_grid = (*GRID[:4], *GRID[6:])
    assert results(*unsized_grid, "--arrivals", "sized") == results(*unsized_grid, "--arrivals", "unsized", "--sizes", "thirty.csv")
    leat(*GRID, "--arrivals", "sized", code=2, says=("no --sizes",))
    leat(*unsized_grid, "--arrivals", "unsized", code=2, says=("--sizes is needed",))
    write("sized", "0 30\n1 201\n")
    leat(*unsized_grid, "--arrivals", "sized", code=1, says=("query of 201 items",))
    leat(*GRID, "--arrivals", "Poisson", code=1, says=("neither constant, poisson nor bursty: cannot open Poisson",))


def check_change():
    """From --change-at on sizes are others, and take other times."""
    common = ("--profile", "profile.csv", "--model", "m", "--mix", "1,0", "--router", "fcfs", "--arrivals", "constant", "--rate",
              "1", "--objective", "5ms", "--queries", 100, "--sizes", "one.csv")
    assert results(*common)[0]["violation_share"] == [0]  # 10 items: 2.2 ms
    assert results(*common, "--later-sizes", "gaussian:200:0", "--change-at", 30)[0]["violation_share"] == [0.7]  # 6 ms
    larger = (*common, "--later-sizes", "gaussian:201:0", "--change-at", 30, "--seeds", 2)
    assert json.loads(leat(*larger, "--json"))["clipped"] == 140
    assert b"140 of 200 were drawn larger than the profile's end, 200 items" in leat(*larger)
    assert b"drawn larger" not in leat(*common)


def check_depth():
    """That of workers' queues is leatd's unless it is told; fcfs goes by predictions, which err, the more the longer they are."""
    said = subprocess.run([LEATD, "--config", write("empty.yaml", ""), "--check-config", "--json"], check=True, capture_output=True)
    daemon = json.loads(said.stdout)["settings"]["worker_queue_depth"]
    busy = (*GRID, "--router", "fcfs,matching", "--rate", "600", "--json")
    default, same, one, most = (json.loads(leat(*busy, *depth)) for depth in ((), ("--depth", daemon), ("--depth", 1), ("--depth", 64)))
    assert default == same and default["worker_queue_depth"] == daemon
    assert len({json.dumps(of["results"][0]) for of in (default, one, most)}) == 3
    assert default["results"][1] == one["results"][1] == most["results"][1]  # matching gives to idle workers only


def check_learning():
    """What is learned errs where the profile does not, and soon less; where there is always an idle worker, nothing changes."""
    busy = (*GRID, "--router", "laxity,fcfs", "--rate", "300", "--json")
    told, learned = (json.loads(leat(*busy, *learn)) for learn in ((), ("--learn",)))
    assert told["learned"] is False and learned["learned"] is True and told["results"] != learned["results"]
    for one, other in zip(told["results"], learned["results"]):
        assert abs(one["violation_share_mean"] - other["violation_share_mean"]) < 0.15, (one, other)
    assert b"; times learned\n" in leat(*GRID, "--router", "fcfs", "--learn")
    plain = (*PLAIN, "--objective", "15ms", "--mix", "2,0", "--rate", "50,150")
    assert results(*plain) == results(*plain, "--learn")


def check_agreement():
    """JSON, CSV and figure say the same."""
    found = results(*GRID, "--router", "all,oracle", "--prices", "prices.csv", "--csv", "g.csv", "--svg", "g.svg")
    rows = list(csv.DictReader(io.StringIO(read("g.csv").decode())))
    assert len(rows) == 3 * len(found)
    for i, row in enumerate(rows):
        of = found[i // 3]
        assert row["source"] == "simulated" and row["model"] == "m" and row["router"] == of["router"]
        assert row["mix"] == "+".join(map(str, of["mix"])) and row["seed"] == str(seed + i % 3)
        assert float(row["throughput_qps"]) == of["throughput_qps"][i % 3]
        assert float(row["price_usd_per_hour"]) == of["price_usd_per_hour"] == {2: 3.25, 1: 2.5}[of["mix"][0]]
        if of["router"] != "oracle" and of["throughput_qps"][i % 3] > 0:
            assert int(row["queries"]) == 2000 and int(row["late"]) / 2000 == of["violation_share"][i % 3] <= 0.01
            assert int(row["p99_ns"]) == of["latency_p99_ns"][i % 3] <= 20e6
            assert int(row["pairs"]) == 2000
    for of in found:
        values = sorted(of["throughput_qps"])
        assert of["throughput_median_qps"] == values[1] and [of["throughput_min_qps"], of["throughput_max_qps"]] == values[::2]
        assert abs(of["throughput_mean_qps"] - sum(values) / 3) < 1e-9 * values[2] + 1e-12
        assert of["router"] == "oracle" or values[2] <= 1.05 * max(o["throughput_max_qps"] for o in found if o["mix"] == of["mix"] and o["router"] == "oracle")
    figure = xml.parse("g.svg").getroot()
    bars = [bar for bar in figure.iter(SVG + "rect") if bar.find(SVG + "title") is not None]
    assert len(bars) == len(found)
    tallest, most = max((float(bar.get("height")), of["throughput_median_qps"]) for bar, of in zip(bars, found))
    for bar, of in zip(bars, found):
        assert abs(float(bar.get("height")) - of["throughput_median_qps"] / most * tallest) < 0.02
        assert bar.find(SVG + "title").text.startswith(f"{of['router']}, {'+'.join(map(str, of['mix']))}: ")
    texts = [text.text for text in figure.iter(SVG + "text")]
    assert texts[0].startswith("Simulated: ") and "allowable throughput (queries/s)" in texts
    assert "workers: fast + slow" in texts and "oracle" in texts


def check_rates_figure():
    found = results(*GRID, "--rate", "10,200,400,800", "--svg", "l.svg")
    figure = xml.parse("l.svg").getroot()
    points = list(figure.iter(SVG + "circle"))
    assert len(points) == len(found) and len([p for p in figure.iter(SVG + "path")]) == len(found) // 4
    ys = {}
    for point, of in zip(points, found):
        ys.setdefault(float(point.get("cy")), []).append(of["violation_share_median"])
        assert point.find(SVG + "title").text.split(":")[0].endswith(f", {of['rate_qps']:g}")
    shares = [sum(share) / len(share) for _, share in sorted(ys.items())]
    assert shares == sorted(shares, reverse=True) and len(shares) > 3  # higher means more
    assert any(text.text == "1 % allowed" for text in figure.iter(SVG + "text"))


def check_hostile_names():
    name = b'<&">]]>\xff\xc0\x80\xed\xa0\x80\x01\x7f, \xc3\xa9 \xf0\x9f\x8c\x8a'
    with open("names.csv", "wb") as file:
        file.write(b'model,instance,batch,mean_ms\n"' + name.replace(b'"', b'""') + b'","<&>",1,10\n')
    arguments = ("simulate", "--profile", "names.csv", "--model", name, "--sizes", "one.csv", "--mix", "<&>=1", "--objective",
                 "1s", "--queries", "100", "--router", "fcfs", "--svg", "n.svg", "--csv", "n.csv", "--json")
    out = subprocess.run([LEAT, *arguments], check=True, capture_output=True).stdout
    assert json.loads(out)["model"] is None and json.loads(out)["classes"] == ["<&>"]  # not UTF-8
    texts = [text.text for text in xml.parse("n.svg").getroot().iter(SVG + "text")]
    assert texts[0] == 'Simulated: allowable throughput, <&">]]>' + "?" * 8 + ", é \N{WATER WAVE}", texts[0]
    assert "workers: <&>" in texts
    with open("n.csv", newline="", encoding="latin-1") as file:
        assert [row["model"] for row in csv.DictReader(file)] == [name.decode("latin-1")]


def check_many():
    """Colours come round, names slant; all of it stays well-formed."""
    mixes = [argument for fast in range(8) for slow in range(8) for argument in ("--mix", f"{fast},{slow + (fast == 0)}")]
    small = (*GRID[:8], *mixes, "--queries", 50, "--sizes", "sizes.csv")
    for case, marks, says in (
            (("--router", "fcfs"), "rect", ("warning: simulated 50 queries",)),  # which are soon over
            (("--router", "fcfs,round_robin", "--rate", "5,1000000"), "circle", ())):
        found = results(*small, *case, "--svg", "many.svg", says=says)
        drawn = [mark for mark in xml.parse("many.svg").getroot().iter(SVG + marks) if mark.find(SVG + "title") is not None]
        assert len(drawn) == len(found)
    leat(*small, "--mix", "1,1", code=2)  # the 65th


def check_usage():
    for arguments, word in (
            ((), "--profile is needed"),
            (("--profile", "profile.csv"), "--model is needed"),
            (GRID[:6], "--mix is needed"),
            ((*GRID[:6], "--mix", "1"), "--objective is needed"),
            ((*GRID, "extra"), "'extra' is no option"),
            ((*GRID, "--colour"), "'--colour' is no option"),
            ((*GRID, "--queries", "0"), "--queries: '0' is malformed or out of range"),
            ((*GRID, "--queries=0"), "'--queries=0' is malformed or out of range"),
            ((*GRID, "--queries"), "'--queries' is no option, or its value is missing"),
            ((*GRID, "--queries", "1e3"), "out of range"),
            ((*GRID, "--queries", "50000000"), "--queries times --seeds"),
            ((*GRID, "--seeds", "0"), "out of range"),
            ((*GRID, "--objective", "0"), "out of range"),
            ((*GRID, "--objective", "soon"), "out of range"),
            ((*GRID, "--violations", "1"), "out of range"),
            ((*GRID, "--violations", "100%"), "out of range"),
            ((*GRID, "--violations", "-1%"), "out of range"),
            ((*GRID, "--violations", "1%%"), "out of range"),
            ((*GRID, "--percentile", "101"), "out of range"),
            ((*GRID, "--tolerance", "0"), "out of range"),
            ((*GRID, "--threads", "0"), "out of range"),
            ((*GRID, "--learn", "--prediction-noise", "1%"), "contradict"),
            ((*GRID, "--learn", "--percentile", "49"), "50 to 99.9"),
            ((*GRID, "--learn", "--percentile", "99.95"), "50 to 99.9"),
            ((*GRID, "--depth", "0"), "out of range"),
            ((*GRID, "--depth", "65"), "out of range"),
            ((*GRID, "--router", "fastest"), "no router 'fastest'; there are clockwork, "),
            ((*GRID, "--router", ","), "--router: no name"),
            ((*GRID, "--router", "oracle", "--rate", "5"), "oracle"),
            ((*GRID, "--rate", "own"), "rate of its own"),
            ((*GRID, "--rate", "5,4"), "rising"),
            ((*GRID, "--rate", "5,nan"), "'nan' is no rate"),
            ((*GRID, "--rate", ","), "--rate: no rate"),
            ((*GRID, "--change-at", "5"), "go together"),
            ((*GRID, "--later-sizes", "sizes.csv"), "go together"),
            ((*GRID, "--later-sizes", "sizes.csv", "--change-at", "2000"), "not below --queries"),
            ((*GRID, "--sizes", "gaussian:5"), "gaussian:MEAN:DEVIATION"),
            ((*GRID, "--sizes", "gaussian:5:1:2"), "gaussian:MEAN:DEVIATION"),
            ((*GRID, "--base", "medium"), "no class 'medium'"),
            ((*GRID, "--classes", "a,b,c,d,e,f,g,h,i"), "there can be 8"),
            ((*GRID, "--mix", "1,2,3"), "--mix 1,2,3"),
            ((*GRID, "--mix", "0,0"), "--mix 0,0"),
            ((*GRID, "--mix", "fast=1,fast=2"), "--mix fast=1,fast=2"),
            ((*GRID, "--mix", "medium=1"), "are: fast slow"),
            ((*GRID, "--mix", "200,57"), "1 to 256 workers"),
            ((*GRID, "--mix", "-1,2"), "--mix -1,2"),
    ):
        leat(*arguments, code=2, says=(word, "Try 'leat simulate --help'"))


def check_wrong_inputs():
    write("broken.csv", "model,instance,batch,s0\nm,x,1,2\nm,x,2,zero\n")
    write("zero.csv", "items\n0\n")
    write("large.csv", "items\n300\n")
    write("backwards", "2\n1\n")
    for arguments, words in (
            ((*GRID, "--profile", "broken.csv"), ("broken.csv:3:", "zero")),
            ((*GRID, "--profile", "nowhere.csv"), ("nowhere.csv",)),
            ((*GRID, "--model", "n"), ("no model 'n'",)),
            ((*GRID, "--classes", "fast,medium"), ("'medium'",)),
            ((*GRID, "--sizes", "zero.csv"), ("zero.csv:2:",)),
            ((*GRID, "--sizes", "prices.csv"), ("prices.csv:1:", "items")),
            ((*GRID, "--sizes", "large.csv"), ("300 items", "ends at 200")),
            ((*GRID, "--sizes", "gaussian:0:1"), ("mean 0",)),
            ((*GRID, "--prices", "sizes.csv"), ("sizes.csv:1:", "instance")),
            ((*GRID, "--arrivals", "backwards"), ("backwards:2:",)),
            ((*GRID, "--svg", "nowhere/x.svg"), ("--svg", "nowhere/x.svg")),
            ((*GRID, "--csv", "."), ("--csv",)),
    ):
        leat(*arguments, code=1, says=words)


def check_files():
    os.mkdir("files")
    link = "files/link.csv"
    write("files/target.csv", "old")
    os.symlink("target.csv", link)
    for _ in range(2):
        leat(*GRID, "--router", "fcfs", "--csv", link, "--svg", "files/new.svg")
    assert os.path.islink(link) and read("files/target.csv").startswith(b"source,")
    assert sorted(os.listdir("files")) == ["link.csv", "new.svg", "target.csv"]
    assert os.stat("files/new.svg").st_mode & 0o777 == 0o666 & ~0o027
    assert leat(*GRID, "--router", "fcfs", "--csv", "/dev/stdout", "--json").count(b"\nsimulated,") == 6  # behind the object
    if os.path.exists("/dev/full"):
        leat(*GRID, "--router", "fcfs", "--csv", "/dev/full", code=1, says=("/dev/full",))


def on_terminal(*arguments):
    """Started with a terminal as its standard error; returns the process and our end of that."""
    ours, its = os.openpty()
    process = subprocess.Popen([LEAT, "simulate", *map(str, arguments)], stdout=subprocess.PIPE, stderr=its)
    os.close(its)
    return process, ours


def shown_on(terminal, until=b"\r\x1b[K"):
    shown = b""
    while until not in shown:
        shown += os.read(terminal, 4096)
    return shown


def check_terminal():
    """Progress on a terminal, nothing in a pipe (every other check), the same results."""
    process, terminal = on_terminal(*GRID, "--json")
    shown = shown_on(terminal)
    assert b"simulated 1 of " in shown and shown.endswith(b"\r\x1b[K"), shown
    assert process.communicate()[0] == leat(*GRID, "--json") and process.returncode == 0


def check_interruption():
    """Amid work that takes minutes, SIGINT ends it and leaves no file."""
    os.mkdir("stopped")
    signal.signal(signal.SIGINT, signal.default_int_handler) # behind & in a shell it is ignored, in what it starts, too
    process, terminal = on_terminal(*GRID, "--seeds", 1000, "--queries", 20000, "--csv", "stopped/a.csv", "--svg", "stopped/a.svg")
    shown_on(terminal, b"simulated 1 of ")
    process.send_signal(signal.SIGINT)
    assert process.communicate()[0] == b"" and process.returncode == -signal.SIGINT
    assert os.listdir("stopped") == []


with tempfile.TemporaryDirectory(prefix="leat-test-") as folder:
    os.chdir(folder)
    os.umask(0o027)
    profiles()
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            print(name, flush=True)
            check()
    os.chdir("/")
