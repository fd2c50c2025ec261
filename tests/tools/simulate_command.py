# SPDX-License-Identifier: Apache-2.0
"""`leat simulate` as a process, for the checks of it; their first argument is the command."""
import json
import os
import subprocess
import sys

LEAT = os.path.realpath(sys.argv[1])


def leat(*arguments, code=0, says=(), **how):
    """Its standard output; what it says on standard error, nothing but errors and notes, has all words of `says`."""
    done = subprocess.run([LEAT, "simulate", *map(str, arguments)], capture_output=True, **how)
    text = done.stderr.decode(errors="replace")
    assert done.returncode == code, f"{arguments}: exit code {done.returncode}, not {code}: {text}"
    assert (text == "") == (code == 0 and not says), f"{arguments}: on standard error: {text}"
    for word in says:
        assert word in text, f"{arguments}: '{word}' is not in: {text}"
    return done.stdout


def results(*arguments, says=()):
    found = json.loads(leat(*arguments, "--json", says=says))
    assert found["simulated"] is True
    return found["results"]


def write(name, text):
    with open(name, "w") as file:
        file.write(text)
    return name
