#!/bin/sh
# test_cli_train_kill.sh - a training run that is killed twenty times while it writes checkpoints, and resumed each time,
# must be bitwise identical to an uninterrupted run: weights, optimizer state, and the log except for seconds.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

# The text is small and every step saves a checkpoint, so that most kills occur while a checkpoint is written.
counting 60 >text
expect 0 "$MHA" tokenizer train -q --vocab-size 300 -o tok -f text
set -- --shape gpt2:2x2x16 --tokenizer tok -f text --length 16 --batch 2 --steps 120 --save-every 1 --keep 2 \
    --eval-share 0.2 --eval-every 7 --eval-sequences 2 --sample the --sample-every 9 --sample-tokens 3 -t 1 -q
expect 0 "$MHA" train "$@" -o whole

taken() { wc -l 2>/dev/null <killed/training.jsonl || echo 0; }

kills=0 rounds=0 half=0 seed=$$
echo "seed $seed"
while [ $kills -lt 20 ] && [ $rounds -lt 200 ]; do
    rounds=$((rounds + 1))
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    before=$(taken)
    "$MHA" train --resume "$@" -o killed >out 2>err &
    victim=$!
    # Every other round waits until the run has made progress, so that the test also ends on a slow machine.
    while [ $((rounds % 2)) = 0 ] && [ "$(taken)" -le "$before" ] && kill -0 $victim 2>/dev/null; do sleep 0.01; done
    sleep "0.0$((seed / 65536 % 10))$((seed / 7 % 10))"
    kill -KILL $victim 2>/dev/null && kills=$((kills + 1))
    wait $victim 2>/dev/null
    status=$?
    [ $status = 137 ] || [ $status = 0 ] || fail "round $rounds: exit status must be 137 or 0 (got $status: $(cat err))"
    for name in .killed.tmp.*; do [ ! -e "$name" ] || half=$((half + 1)); done
    # The folder may be missing before the first checkpoint; if it exists, it must be a complete checkpoint.
    [ ! -e killed ] || "$MHA" info -m killed >out 2>err || fail "round $rounds: the checkpoint must be complete (got $(cat err))"
    if [ $status = 0 ]; then # the run is complete, so the test starts a new run
        same whole/model.safetensors killed/model.safetensors "seed $seed"
        rm -rf killed killed.step-*
    fi
done
echo "$kills kills in $rounds rounds; $half incomplete checkpoints"
[ $kills -ge 20 ] || fail "the run must be killed more often (got $kills kills in $rounds rounds)"
expect 0 "$MHA" train --resume "$@" -o killed
for name in model.safetensors training.safetensors config.json tokenizer.json; do same "whole/$name" "killed/$name"; done
sed 's/,"seconds":[^,}]*//' whole/training.jsonl >a
sed 's/,"seconds":[^,}]*//' killed/training.jsonl >b
same a b 'the log'
[ "$(wc -l <a)" = 121 ] || fail "the log must have 121 lines (got $(wc -l <a))"
kept=0
for folder in killed.step-*; do
    kept=$((kept + 1))
    expect 0 "$MHA" info -m "$folder"
done
[ $kept -le 2 ] || fail "--keep 2 must keep at most 2 checkpoints (got $kept)"
leftovers=$(find . -name '.killed.*')
[ -z "$leftovers" ] || fail "no temporary file may remain (got $leftovers)"
finish
