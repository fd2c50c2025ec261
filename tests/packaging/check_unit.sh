#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The unit file is one that systemd accepts, without complaints, and keeps its hardening.
# Usage: check_unit.sh UNIT EXAMPLE_CONFIG SYSUSERS
set -eu
unit=$1 example=$2 sysusers=$3

command -v systemd-analyze > /dev/null || { echo "skipped: systemd-analyze is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# verify wants the programs to exist; the daemon is not installed here.
sed "s|=leatd|=$(command -v true)|" "$unit" > "$work/leatd.service"
systemd-analyze verify --man=no "$work/leatd.service" > "$work/out" 2>&1 || {
    cat "$work/out"
    echo "systemd-analyze verify refuses the unit"
    exit 1
}
# Other units of this machine may be complained about; ours may not.
if grep leatd.service "$work/out"; then
    echo "systemd-analyze verify complains about the unit"
    exit 1
fi

# A planted mistake is noticed, so the check above means something.
sed 's|^WatchdogSec=.*|WatchdogSec=soon|' "$work/leatd.service" > "$work/leatd-wrong.service"
systemd-analyze verify --man=no "$work/leatd-wrong.service" > "$work/wrong" 2>&1 || :
grep -q leatd-wrong.service "$work/wrong" || { echo "a wrong WatchdogSec= went unnoticed"; exit 1; }

# Exposure in tenths, 0 best to 100 worst; offline, so nothing of this machine counts.
exposure=$(systemd-analyze security --offline=true --no-pager "$work/leatd.service" 2> /dev/null |
    sed -n 's/.*Overall exposure level for leatd.service: \([0-9]*\)\.\([0-9]\).*/\1\2/p')
[ -n "$exposure" ] || { echo "systemd-analyze security says nothing"; exit 1; }
[ "$exposure" -le 25 ] || { echo "exposure $exposure/100 is above 25"; exit 1; }

# It starts wherever the programs were installed, with settings or without.
if grep '^ExecStart.*[=/]leatd' "$unit" | grep -E '/|--config'; then
    echo "the unit wants a folder or a file that need not be there"
    exit 1
fi

# Unit, example and user agree on where things are.
grep -q '^socket: /run/leat/' "$example" && grep -q '^RuntimeDirectory=leat$' "$unit"
grep -q '^state_dir: /var/lib/leat$' "$example" && grep -q '^StateDirectory=leat$' "$unit"
grep -q '^u leat ' "$sysusers" && grep -q '^User=leat$' "$unit"

# The daemon ends by itself before systemd kills it: the drain, the two seconds after it, and time to spare.
drain=$(sed -n 's/^drain: \([0-9]*\)s$/\1/p' "$example")
stop=$(sed -n 's/^TimeoutStopSec=\([0-9]*\)s$/\1/p' "$unit")
[ -n "$drain" ] && [ -n "$stop" ] && [ "$((drain + 10))" -le "$stop" ] || {
    echo "drain: ${drain}s does not fit TimeoutStopSec=${stop}s"
    exit 1
}
echo "exposure $exposure of 100"
