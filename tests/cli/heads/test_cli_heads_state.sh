#!/bin/sh
# test_cli_heads_state.sh - a run of `mha heads` that is killed at random times and resumed with --state must print the
# same bytes as an uninterrupted run: statistics, scores with and without a loss, and leave-one-out ablation. The state
# of a different run must be rejected.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

words='you keep the count, and then again, they said: wait for the tank'
awk -v w="$words" 'BEGIN { for (i = 0; i < 6000; i++) print w, i, w }' >long
head -n 3000 long >half
awk -v w="$words" 'BEGIN { for (i = 0; i < 10000; i++) print "you keep the count " i "\tand then they said " i }' >pairs
head -n 4000 pairs >short

now() { date +%s.%N; }
seed=$(date +%s)
echo "random times from seed $seed"

# moment SECONDS: prints a random time from 0.1 to 0.6 of the duration SECONDS.
moment() {
    seed=$((seed + 1))
    awk -v seed=$seed -v took="$1" 'BEGIN { srand(seed); print took * (0.1 + 0.5 * rand()) }'
}

# killed NAME OPTIONS...: kills three runs with these options, then completes the run and compares its output. A run that
# completes before it is killed is repeated.
killed() {
    name=$1
    shift
    begin=$(now)
    expect 0 "$MHA" heads -m "$tiny" --json -t 1 --no-progress "$@"
    cp out whole
    took=$(awk -v a="$begin" -v b="$(now)" 'BEGIN { print b - a }')
    kills=0 tries=0
    while [ $kills -lt 3 ] && [ $tries -lt 12 ]; do
        "$MHA" heads -m "$tiny" --json -t 1 --no-progress "$@" --state "$name" >/dev/null 2>&1 &
        run=$!
        sleep "$(moment "$took")"
        kill -9 $run 2>/dev/null
        wait $run 2>/dev/null
        if [ $? = 137 ]; then kills=$((kills + 1)); else rm -f "$name".*; fi
        tries=$((tries + 1))
    done
    [ $kills -gt 0 ] || fail "$name: at least one run must be killed"
    ls "$name".* >files 2>/dev/null || echo "$name: no state was saved before a kill"
    expect 0 "$MHA" heads -m "$tiny" --json -t 1 --no-progress "$@" --state "$name"
    same out whole "$name, after $kills kills"
    [ -s "$name.statistics" ] || fail "$name: must write $name.statistics"
    begin=$(now)
    expect 0 "$MHA" heads -m "$tiny" --json -t 1 --no-progress "$@" --state "$name" # the state is complete
    same out whole "$name, from a complete state"
}

killed statistics -f long
killed jacobian -f half --by jacobian_probe
killed gate -f pairs --by gate --loss pairs --batch 8
killed loo -f short --by loo
for file in jacobian.jacobian_probe gate.gate loo.loo; do
    [ -s $file ] || fail "$file must exist"
done
[ ! -e statistics.gate ] || fail 'scores must not be measured without --by'

# The state of other texts, models or options must be rejected. Each score must have a separate state file.
printf '%s\n' "$words" "and then again" >few
run() { "$MHA" heads -m "$tiny" --json -t 1 "$@"; }
expect 0 run -f few --by jacobian_probe --state one
expect 0 run -f few --by confidence --state one
[ -s one.confidence ] || fail 'one.confidence must exist'
refused 2 run -f few --by jacobian_probe --probes 5 --state one
has err 'one.jacobian_probe: state must be from a run with the same options (got jacobian_probe'
refused 2 run -f few --by jacobian_probe --seed 5 --state one
has err 'state must be from a run with the same options'
refused 2 run -f half --by jacobian_probe --state one
has err 'one.statistics: state must be from a run with the same model and data (got other data)'
refused 2 "$MHA" heads -m "$data/models/bert-tiny" --json -t 1 'keep' --state one
has err 'one.statistics: state must be from a run with the same model and data (got'
refused 2 "$MHA" heads -m "$tiny" --dtype bf16 --json -t 1 -f few --state one
has err 'another model'
printf 'no state' >one.statistics
refused 3 run -f few --state one
has err 'one.statistics'
refused 2 run -f few --state ''
refused 2 run -f few --by gate --loss mlm --state early
[ ! -e early.statistics ] || fail 'a usage error must be found before statistics are saved'
refused 2 run --maps 'you keep the count' --state one

# With --state, mha report must save its measurements on --data and reuse them.
report() { "$MHA" report -m "$tiny" -t 1 'you keep the count' --data few --by loo --diversity --force "$@"; }
expect 0 report -o plain.html
expect 0 report -o kept.html --state page
same plain.html kept.html 'a report with --state'
for file in page.loo page.diversity; do
    [ -s $file ] || fail "the report must save $file"
done
expect 0 report -o kept.html --state page
same plain.html kept.html 'a report from --state'
refused 2 "$MHA" report -m "$tiny" 'you keep the count' --state page -o other.html
finish
