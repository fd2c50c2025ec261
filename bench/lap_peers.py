# SPDX-License-Identifier: Apache-2.0
"""Peers of bench/lap.c that live in Python packages, one request a line; it starts with their versions, "-" for none.

load FILE ROWS COLUMNS COUNT   float64 matrices, one after the other: answers "ok"
run PEER TIMES                 solves all of them TIMES times: answers the mean time in ns and the sum of the least costs

scipy is called as its users call it. The solvers in the extension modules of lap and lapjv are called themselves,
without what their packages do before, and what such a call takes on a matrix of one entry is left out.
"""
import ctypes
import importlib
import sys
import time
from importlib.metadata import version

import numpy


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


def scipy_calls(matrices):
    solver = importlib.import_module("scipy.optimize").linear_sum_assignment
    return [(solver, (matrix,)) for matrix in matrices], lambda: [solver(matrix) for matrix in matrices]


def lap_calls(matrices):
    """int lapjv_internal(unsigned n, double *cost[], int *x, int *y), for costs below 1e6: a power of 2 keeps them whole."""
    solver = ctypes.PyDLL(importlib.import_module("lap._lapjv").__file__)["_Z14lapjv_internaljPPdPiS1_"]
    scaled = [matrix * 2.0**-12 for matrix in matrices]
    columns = [numpy.zeros((2, len(matrix)), numpy.int32) for matrix in matrices]
    rows = [(ctypes.c_void_p * len(matrix))(*(row.ctypes.data for row in matrix)) for matrix in scaled]
    calls = [(solver, (ctypes.c_uint(len(r)), r, pointer(c[0]), pointer(c[1]))) for r, c in zip(rows, columns)]
    return calls, lambda: scaled and [(range(len(c[0])), c[0]) for c in columns]


def lapjv_calls(matrices, real, letter):
    """real lap<true: AVX2, false: silent>(int n, const real *cost, int *x, int *y, real *u, real *v)"""
    solver = ctypes.PyDLL(importlib.import_module("lapjv").__file__)[f"_Z3lapILb1ELb0Ei{letter}ET2_iPKS0_PT1_S4_PS0_S5_"]
    costs = [matrix.astype(real) for matrix in matrices]
    columns = [numpy.zeros((2, len(matrix)), numpy.int32) for matrix in matrices]
    duals = [numpy.zeros((2, len(matrix)), real) for matrix in matrices]
    calls = [(solver, (ctypes.c_int(len(m)), pointer(m), pointer(c[0]), pointer(c[1]), pointer(d[0]), pointer(d[1])))
             for m, c, d in zip(costs, columns, duals)]
    return calls, lambda: costs and duals and [(range(len(c[0])), c[0]) for c in columns]


def spent_ns(made, times):
    calls, _ = made  # the latter keeps the arrays
    begin = time.perf_counter_ns()
    for _ in range(times):
        for solver, arguments in calls:
            solver(*arguments)
    return time.perf_counter_ns() - begin


makers = {
    "scipy": scipy_calls,
    "lap": lap_calls,
    "lapjv-f64": lambda matrices: lapjv_calls(matrices, numpy.float64, "d"),
    "lapjv-f32": lambda matrices: lapjv_calls(matrices, numpy.float32, "f"),
}


def version_of(package, peer):
    try:
        makers[peer]([numpy.ones((1, 1))])  # finds its solver
        return version(package)
    except (ImportError, AttributeError):
        return "-"


print(version_of("scipy", "scipy"), version_of("lap", "lap"), version_of("lapjv", "lapjv-f64"), flush=True)
matrices, made = [], {}
for line in sys.stdin:
    words = line.split()
    if words[0] == "load":
        rows, columns, count = map(int, words[2:])
        matrices, made = list(numpy.fromfile(words[1]).reshape(count, rows, columns)), {}
        print("ok", flush=True)
        continue
    peer, times = words[1], int(words[2])
    if peer not in made:
        made[peer] = makers[peer](matrices)
    took_ns = spent_ns(made[peer], times)
    if peer != "scipy":
        took_ns -= spent_ns(makers[peer]([numpy.ones((1, 1))] * len(matrices)), times)
    _, answers = made[peer]
    total = sum(matrix[answer].sum() for matrix, answer in zip(matrices, answers()))
    print(took_ns / (times * len(matrices)), f"{total:.0f}", flush=True)
