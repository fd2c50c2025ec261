# SPDX-License-Identifier: Apache-2.0
"""Upper bounds of the Kairos paper (HPDC 2023, equations 9 to 15) for each mix that 2.5 USD an hour buys.

Reads the allocator's numbers in the given folder and prints what bounds.csv there holds. Shares nothing with sched/pool.c:
mixes by brute force, exact fractions, one equation after the other.
"""
import csv
import itertools
import sys
from fractions import Fraction

BUDGET = Fraction("2.5")
MODELS = ["ncf", "rm2", "wnd", "mtwnd", "dien"]


def rows(name):
    with open(f"{sys.argv[1]}/{name}", newline="") as file:
        return list(csv.DictReader(file))


instances = rows("instances.csv")
names = [row["instance"] for row in instances]
prices = [Fraction(row["price_usd_per_hour"]) for row in instances]
profile = {(row["model"], row["instance"]): row for row in rows("allocator_profile.csv")}
rate_below = {
    (row["model"], row["instance"], row["cut_batch"]): Fraction(row["qps_for_batches_below_cut"])
    for row in rows("allocator_qps_by_cut.csv")
}


def bound(model, mix):
    u, v = mix[0], {name: count for name, count in zip(names[1:], mix[1:]) if count > 0}
    q_b = Fraction(profile[model, names[0]]["qps_standalone"])
    if not v:
        return u * q_b
    f, best = max((Fraction(profile[model, name]["small_ratio_f"]), name) for name in v)
    tau = Fraction(profile[model, best]["base_time_ratio"])
    s = profile[model, best]["vio_batch_s"]
    q_a = {name: rate_below[model, name, s] for name in v}
    # A base spends 1 - tau of its time on the 1 - f of its queries that are larger than s.
    q_b_plus = q_b * (1 - f) / (1 - tau)
    c = sum(v[name] * q_a[name] for name in v) * (1 - f) / f  # equation 14
    if u * q_b_plus <= c:  # equations 12 and 15: the base is the bottleneck
        return u * q_b_plus / (1 - f)
    slack = (u * q_b_plus - c) / (u * q_b_plus)  # equation 10
    return sum(v[name] * q_a[name] for name in v) / f + slack * u * q_b  # equations 13 and 15


print(",".join(names + MODELS))
for mix in itertools.product(*(range(int(row["max_count_in_search"]) + 1) for row in instances)):
    if mix[0] >= 1 and sum(n * price for n, price in zip(mix, prices)) <= BUDGET:
        print(",".join([*map(str, mix), *(f"{float(bound(model, mix)):.10g}" for model in MODELS)]))
