# SPDX-License-Identifier: Apache-2.0
"""scipy.optimize.linear_sum_assignment as a peer of bench/lap.c, one request a line.

load FILE ROWS COLUMNS COUNT   float64 matrices, one after the other: answers "ok"
run TIMES                      solves all of them TIMES times: answers the mean time in ns and the sum of the least costs
"""
import sys
import time

import numpy
import scipy
from scipy.optimize import linear_sum_assignment

print(scipy.__version__, flush=True)
matrices = []
for line in sys.stdin:
    words = line.split()
    if words[0] == "load":
        rows, columns, count = map(int, words[2:])
        matrices = list(numpy.fromfile(words[1]).reshape(count, rows, columns))
        print("ok", flush=True)
    else:
        times = int(words[1])
        total = 0.0
        begin = time.perf_counter_ns()
        for _ in range(times):
            for matrix in matrices:
                linear_sum_assignment(matrix)
        took = time.perf_counter_ns() - begin
        for matrix in matrices:
            total += matrix[linear_sum_assignment(matrix)].sum()
        print(took / (times * len(matrices)), f"{total:.0f}", flush=True)
