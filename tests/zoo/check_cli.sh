#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# leat-zoo's command line: exit codes, files, repeatability. Usage: check_cli.sh LEAT_ZOO
set -eu
zoo=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

expect() { # expect CODE ARGUMENT...
    want=$1
    shift
    code=0
    "$zoo" "$@" > out 2> err || code=$?
    [ "$code" -eq "$want" ] || { cat err; echo "leat-zoo $*: exit code $code, not $want"; exit 1; }
    [ "$want" -eq 0 ] || grep -q 'leat-zoo' err || { echo "leat-zoo $*: no message"; exit 1; }
}

expect 0 --help
grep -q '^example: ' out
expect 0 write --help
expect 0 list
for name in lenet5 mlp mlp-recommender resnet50; do
    grep -q "^$name " out || { echo "$name is not in the list"; exit 1; }
done
expect 0 list --json
[ "$(wc -l < out)" -eq 1 ]
grep -q '{"name": "user", "dtype": "i64", "dims": \["N", 1\], "end": 100000}' out

expect 2
expect 2 paint
expect 2 list resnet18
expect 2 write
expect 2 write resnet19
expect 2 write lenet5 mlp
expect 2 write lenet5 --size huge
expect 2 write lenet5 --seed -1
expect 2 write lenet5 --seed 18446744073709551616
expect 2 write lenet5 --seed
expect 2 write lenet5 --colour red
expect 2 write --all
expect 2 write lenet5 --json
expect 2 list --external-data
[ "$(ls | grep -c onnx)" -eq 0 ] || { echo "a refused command wrote a file"; exit 1; }

expect 0 write lenet5
[ -s lenet5.onnx ]
expect 0 write lenet5 --seed 1 -o again.onnx
cmp lenet5.onnx again.onnx
expect 0 write lenet5 --seed 2 -o other.onnx
! cmp -s lenet5.onnx other.onnx || { echo "the seed makes no difference"; exit 1; }

expect 0 write lenet5 --external-data -o apart.onnx
[ "$(wc -c < apart.onnx)" -lt 10000 ]
[ "$(wc -c < apart.onnx.data)" -gt 200000 ]

expect 0 write --all --size test -o one
expect 0 write --all --size test -o two
diff -r one two
[ "$(ls one/*.onnx | wc -l)" -eq "$("$zoo" list | tail -n +2 | wc -l)" ]

# Failures leave nothing behind.
expect 1 write lenet5 -o missing/lenet5.onnx
mkdir taken
expect 1 write lenet5 -o taken
expect 1 write lenet5 --external-data -o missing/lenet5.onnx
expect 1 write lenet5 --external-data -o taken
[ ! -e taken.data ] || { echo "a data file stays behind"; exit 1; }
[ ! -e taken.part ] || { echo "a temporary file stays behind"; exit 1; }
expect 1 write --all -o lenet5.onnx
