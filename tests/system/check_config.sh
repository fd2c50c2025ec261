#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What cannot be served is refused by leatd --check-config, with its place in the file, and serving says the same.
# Usage: check_config.sh LEATD
set -eu
leatd=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir folder
: > empty
echo nonsense > nonsense

run() { "$leatd" --config leat.yaml --socket "$work/socket" --state-dir "$work/state" "$@" > out 2> err; }

# refused PLACE TEXT < CONFIGURATION
refused() {
    cat > leat.yaml
    if run --check-config; then echo "accepted:"; cat leat.yaml; exit 1; fi
    mv err checked
    if run; then echo "served:"; cat leat.yaml; exit 1; fi
    cmp -s checked err || { echo "checking and serving differ:"; cat checked err; exit 1; }
    grep -qF "leat.yaml:$1: " checked && grep -qF "$2" checked || { echo "expected $1 ... $2, got:"; cat checked; exit 1; }
}

refused 2:20 'cannot open nowhere: No such file' << 'END'
models:
- {name: a,  path: nowhere}
END
refused 1:27 'folder is a folder' << 'END'
models: [{name: a,  path: folder}]
END
refused 1:27 'empty is empty' << 'END'
models: [{name: a,  path: empty}]
END
refused 3:5 "there is no model 'b'" << 'END'
applications:
- {name: both, models: [a,
    b]}
models: [{name: a, backend: synthetic}]
END
refused 1:23 "is called 'a'" << 'END'
applications: [{name: a, models: [a]}]
models: [{name: a, backend: synthetic}]
END
refused 2:8 'CPU 4095 ' << 'END'
dispatcher:
  cpu: 4095
END
refused 1:18 'CPU 4095 ' << 'END'
workers: [{cpus: "4095"}]
END
refused 1:20 'allowed are 1 to 1023' << 'END'
limits: {sessions: 4000}
END
refused 1:19 'allowed are 1 to 256' << 'END'
workers: [{cores: 257}]
END
refused 4:24 'nowhere' << 'END'
models:
- name: a
  backend: synthetic
  synthetic: { times:  nowhere, times_model: m}
END
printf 'model,instance,batch,mean_ms\nm,cpu,8,1\nm,cpu,4,1\n' > times.csv
refused 1:60 'times.csv:3: batch 4: sizes of an instance are to rise' << 'END'
models: [{name: a, backend: synthetic, synthetic: { times: times.csv, times_model: m}}]
END
refused 1:60 "times.csv has no model 'n'" << 'END'
models: [{name: a, backend: synthetic, synthetic: {times:  times.csv, times_model: n}}]
END
printf 'model,instance,batch,mean_ms\nm,cpu,4,1\nm,cpu,8,1\nm,small,4,1\n' > times.csv
refused 1:52 "on class 'cpu' times.csv has times up to 8: lower it" << 'END'
models: [{name: a, backend: synthetic, items_max:  9, synthetic: {times: times.csv, times_model: m}}]
END
refused 3:3 "on class 'small' times.csv has times up to 4" << 'END'
workers: [{class: cpu, count: 1}, {class: small, count: 1}]
models:
- {name: a, backend: synthetic, synthetic: {times: times.csv, times_model: m}}
END
refused 2:59 "times.csv has no times of 'm' on 'large', a class of workers" << 'END'
workers: [{class: cpu, count: 1}, {class: large, count: 1}]
models: [{name: a, backend: synthetic, synthetic: {times: times.csv, times_model: m}}]
END
refused 1:32 "2 could be had, but there are 3 workers of class 'a'" << 'END'
classes: [{name: a, count_max: 2}]
workers: [{class: a, count: 1}, {class: a, count: 2}]
END
cat > leat.yaml << 'END'
classes: [{name: small}, {name: cpu}, {name: large, count_max: 3}]
workers: [{class: cpu, count: 1}]
models: [{name: a, backend: synthetic, synthetic: {times: times.csv, times_model: m}}]
END
run --check-config
[ "$(grep -c 'note: there are no workers of this class' out)" -eq 2 ] || { echo "no note:"; cat out; exit 1; }
run --check-config --json
[ "$(grep -o '"workers_in_force":[01]' out | sort | uniq -c | tr -d '\n ')" = '2"workers_in_force":01"workers_in_force":1' ] ||
    { cat out; exit 1; }

# What the workers' classes make of an application's router and selector.
for workers in 'class: a' 'class: b'; do
    cat > leat.yaml << END
classes: [{name: a, price: 0.526, count_max: 5}, {name: b}]
workers: [{class: a, count: 1}, {$workers, count: 1}]
applications: [{name: x, models: [m]}]
models: [{name: m, backend: synthetic}]
END
    run --check-config
    case $workers in
    *a) expected='router: auto is fcfs here: workers are of 1 class' selector=fixed ;;
    *) expected='here: workers are of 2 classes' selector=single ;;
    esac
    grep -qF "$expected" out && grep -qF "selector: auto is $selector here" out && grep -qF 'price: 0.526' out || { echo "not in force: $expected"; cat out; exit 1; }
    run --check-config --json
    grep -qF '"price_micro_per_hour":526000' out && grep -qF '"router_in_force":' out &&
        grep -qF "\"selector_in_force\":\"$selector\"" out || { cat out; exit 1; }
done

# With a choice of models it is mdp, whose policy may be a file.
cat > leat.yaml << 'END'
applications:
- {name: x, models: [m, n], latency: 10ms}
models: [{name: m, backend: synthetic, accuracy: 0.5}, {name: n, backend: synthetic, accuracy: 0.6}]
END
run --check-config
grep -qF "selector: auto is mdp here" out || { cat out; exit 1; }
echo nonsense > policy
for line in 'policy: policy' 'selector: mdp, policy: policy' 'selector: mdp, policy: none' 'selector: fixed, policy: policy'; do
    sed -i "2s/latency: 10ms.*/latency: 10ms, $line}/" leat.yaml
    code=0
    run --check-config || code=$?
    [ $code -ne 0 ] && grep -q 'leat.yaml:2:[0-9]*: applications\[0\].policy: ' err || { echo "$line: $code"; cat err; exit 1; }
done

# What only loading shows has a place too.
cat > leat.yaml << 'END'
models:
- {name: a, path: nonsense}
END
run --check-config
if run; then echo "served nonsense"; exit 1; fi
grep -qF 'leat.yaml:2:3: models[0]: ' err || { echo "no place:"; cat err; exit 1; }

code=0
run --json || code=$?
[ $code -eq 2 ] && grep -qF -- '--json goes with --check-config' err || { echo "served with --json: $code"; cat err; exit 1; }

# Checking made nothing.
rm -rf state
cat > leat.yaml << 'END'
applications: [{name: a, models: [b]}]
models: [{name: b, backend: synthetic}]
END
run --check-config
[ ! -e state ] || { echo "checking made a state_dir"; exit 1; }
