#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# leatd serves models through the plug-in onnxruntime: those that leat runs too answer the same, also with weights in another file
# and with a dimension that is given a value; one with a Scan is served; all over a restart and on a team of two.
# Usage: check_onnxruntime_backend.sh LEATD LEAT LEAT_ZOO PLUGIN LIBRARY
set -eu
leatd=$1 leat=$2 zoo=$3 plugin=$4 library=$5
work=$(mktemp -d)
daemon=
finish() {
    [ -z "$daemon" ] || { kill -KILL "$daemon" && wait "$daemon"; } 2> /dev/null || true
    rm -rf "$work"
}
trap finish EXIT
cp "$plugin" "$work/onnxruntime.so" # with a mode that is right whatever the umask was
chmod 644 "$work/onnxruntime.so"
export LEAT_SOCKET="$work/leat.sock"
start() {
    "$leatd" --config "$work/leat.yaml" --socket "$LEAT_SOCKET" --state-dir "$work/state" 2> "$work/log" &
    daemon=$!
    until "$leat" status --wait=1s > /dev/null 2>&1; do
        kill -0 "$daemon" 2> /dev/null || { cat "$work/log"; exit 1; }
    done
}
stop() {
    kill -TERM "$daemon"
    wait "$daemon" || { cat "$work/log"; exit 1; }
    daemon=
}
agree() { # two files of f32 behind an .npy header of 128 bytes
    tail -c +129 "$1" | od -An -v -tf4 -w4 > "$work/a"
    tail -c +129 "$2" | od -An -v -tf4 -w4 > "$work/b"
    paste "$work/a" "$work/b" | awk '
        {d = $1 - $2; d = d < 0 ? -d : d; m = $1 < 0 ? -$1 : $1; if (d > 1e-4 + 1e-3 * m) bad = 1; if ($1 != 0) some = 1}
        END {exit bad || !some || NR == 0}' || { echo "answers differ:"; paste "$work/a" "$work/b" | head; exit 1; }
}
configure() { # cores
    cat > "$work/leat.yaml" << TEXT
backends: [{name: onnxruntime, path: $work/onnxruntime.so, options: "$library"}]
workers: [{count: 1, cores: $1}]
TEXT
}

configure 1
if ! "$leatd" --config "$work/leat.yaml" --state-dir "$work/state" --check-config > /dev/null 2> "$work/log"; then
    cat "$work/log"
    grep -qE 'there is no file|cannot open shared object|belongs to user|write to it|too old' "$work/log" || exit 1
    echo "skipped: no ONNX Runtime that may be loaded"
    exit 77
fi
"$zoo" write lenet5 --size test -o "$work/lenet5.onnx" > /dev/null
"$zoo" write dien --size test -o "$work/dien.onnx" > /dev/null
start
"$leat" model add ours "$work/lenet5.onnx"
"$leat" model add theirs "$work/lenet5.onnx" --backend onnxruntime --items-max auto
"$leat" model add outside "$work/dien.onnx" --backend onnxruntime
# Weights in another file, and a dimension that is given a value.
"$zoo" write lenet5 --size test --external-data -o "$work/apart.onnx" > /dev/null
"$zoo" write bert-tiny --size test -o "$work/bert.onnx" > /dev/null
"$leat" model add apart "$work/apart.onnx" --backend onnxruntime | grep -q 'in files'
rm "$work"/apart.*
"$leat" model add bert "$work/bert.onnx" --backend onnxruntime --dim sequence=16
"$leat" model add bert-ours "$work/bert.onnx" --dim sequence=16
refuse() { # text, then words for leat
    text=$1
    shift
    if "$leat" "$@" > "$work/out" 2>&1 || ! grep -q "$text" "$work/out"; then
        cat "$work/out"
        exit 1
    fi
}
refuse "no dimension 'length' can be given a value" model add bad "$work/bert.onnx" --backend onnxruntime --dim sequence=16 --dim length=3
refuse 'has a free or empty dimension 1' model add bad "$work/bert.onnx" --backend onnxruntime
"$leat" model list | grep -q '^theirs *onnxruntime' || { "$leat" model list; exit 1; }
for round in 1 2; do
    for model in ours theirs; do
        "$leat" run $model --output "$work/$model.npy" --items 3 > /dev/null
    done
    "$leat" run apart --output "$work/apart.npy" --items 3 > /dev/null
    "$leat" run bert --output "$work/bert.npy" --items 2 > /dev/null
    "$leat" run bert-ours --output "$work/bert-ours.npy" --items 2 > /dev/null
    agree "$work/ours.npy" "$work/theirs.npy"
    agree "$work/ours.npy" "$work/apart.npy"
    agree "$work/bert-ours.npy" "$work/bert.npy"
    "$leat" run outside --items 2 > "$work/out" || { cat "$work/out"; exit 1; }
    stop
    [ $round = 1 ] || break
    [ "$(nproc)" -le 2 ] || configure 2
    start
done
