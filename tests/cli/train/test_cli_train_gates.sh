#!/bin/sh
# test_cli_train_gates.sh - tests `mha train --gates`: gates must close all but a given number of heads. Also tests
# saving, resuming and pruning.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
train() { "$MHA" train -t 1 "$@"; }

counting 80 >text
expect 0 "$MHA" tokenizer train -q --vocab-size 300 -o bpe -f text
expect 0 train -q --shape gpt2:2x4x32 --tokenizer bpe -f text --steps 30 --rate 0.01 --length 16 --batch 4 -o base

# Gates must close 5 of 8 heads in the first quarter of the steps, in which the weights must be frozen; the log must
# record the number of open heads.
gates='--length 16 --batch 4 --steps 30'
# shellcheck disable=SC2086 # splits the variable into words
expect 0 train -q --json --from base -f text $gates --gates l0 --heads 3 --eval-share 0.1 -o pruned
at heads 3
closed=$(sed 's/.*"gates": *//' out | tr -dc '01.,' | tr ',' '\n' | grep -c '^0\.0*$')
[ "$closed" = 5 ] || fail "5 gates must be 0 (got $closed: $(cat out))"
"$JSON_AT" settings.gates_end <pruned/training.json >out
has out 7
[ "$(sed -n 8p pruned/training.jsonl | "$JSON_AT" rate)" = 0.0 ] || fail 'weights must not be trained before the gates are frozen'
[ "$(sed -n 9p pruned/training.jsonl | "$JSON_AT" rate)" != 0.0 ] || fail 'weights must be trained after the gates are frozen'
[ "$(sed -n 31p pruned/training.jsonl | "$JSON_AT" open_heads)" = 3.0 ] || fail "the last step must have 3 open heads: $(tail -n 1 pruned/training.jsonl)"
[ "$(sed -n 2p pruned/training.jsonl | "$JSON_AT" open_heads | cut -c 1)" = 7 ] || fail 'the first step must have 7 open heads'

# The text output must have one line per layer, with a dot for each closed head. Pruning the closed heads must not change
# the loss.
# shellcheck disable=SC2086
expect 0 train -q --from base -f text $gates --gates l0 --heads 3 -o again
has out '3 open heads'
[ "$(grep -c '^layer [01]  ' out)" = 2 ] || fail "the output must have a line for each of 2 layers (got $(cat out))"
list=$(sed -n 's/^layer \([01]\)  */\1 /p' out | awk '{ for (h = 2; h <= NF; h++) if ($h == ".") printf "%s%d.%d", n++ ? "," : "", $1, h - 2 }')
expect 0 "$MHA" prune -q --json -m again --heads "$list" -o small -f text
at heads.1 3
cp out judged
awk -v a="$("$JSON_AT" quality.loss.0 <judged)" -v b="$("$JSON_AT" quality.loss.1 <judged)" 'BEGIN { exit !(a > 0 && a - b < 1e-6 && b - a < 1e-6) }' ||
    fail "pruning closed heads must not change the loss (got $(cat judged))"

# A resumed run must equal an uninterrupted run, even if it was interrupted before the gates were frozen or its folder
# was renamed.
# shellcheck disable=SC2086
expect 0 train -q --from base -f text $gates --gates l0 --heads 3 --gates-end 20 --save-every 14 --keep 2 -o straight
mv straight.step-14 part
expect 0 train -q --resume --keep 0 -o part
same part/model.safetensors straight/model.safetensors 'resumed'
same part/training.safetensors straight/training.safetensors 'resumed'

# After the gates are frozen, their settings must not change, and more steps must not change the step at which they were frozen.
expect 0 train --json --resume --heads 6 --gates-end 31 --steps 32 -o part
has err 'the gates were frozen after step 20'
has_not err 'heads is now'
has_not err 'gates_end is now'
at heads 3
[ "$("$JSON_AT" settings.heads <part/training.json)" = 3 ] || fail 'training.json must have the same number of heads'
expect 0 train --resume --steps 62 -o pruned
has_not err 'gates'

# With --gates l0 and --heads, gates are computed from the values of heads, so --gate-rate must be rejected.
# shellcheck disable=SC2086
refused 2 train -q --from base -f text $gates --gates l0 --heads 3 --gate-rate 0.5 -o none
has err '--gate-rate must not be combined with --gates l0 and --heads'

# With --gates-only, only the gates must be trained.
# shellcheck disable=SC2086
expect 0 train -q --json --from base -f text $gates --gates l1 --heads 4 --gate-rate 0.5 --gates-only -o only
at heads 4
"$JSON_AT" settings.gates_end <only/training.json >out
has out 15
expect 0 "$MHA" info --json -m only

# Gates added on resume must be trained for the first quarter of the remaining steps and then frozen. An interruption
# must not change the result.
later='--gates l0 --heads 3 --schedule constant --warmup 0'
# shellcheck disable=SC2086
expect 0 train -q --from base -f text --length 16 --batch 4 --steps 6 --schedule constant --warmup 0 -o joined
refused 2 train -q --resume --steps 20 --gates l0 --gates-end 5 -o joined
has err '--gates-end must be after --gates-start = 6 (got 5)'
# shellcheck disable=SC2086
expect 0 train -q --json --resume --steps 20 --save-every 8 --keep 2 $later -o joined
at heads 3
"$JSON_AT" settings.gates_start <joined/training.json >out
has out 6
"$JSON_AT" settings.gates_end <joined/training.json >out
has out 9
[ "$(sed -n 9p joined/training.jsonl | "$JSON_AT" open_heads)" != 3.0 ] || fail 'gates must not be frozen before step 9'
mv joined.step-8 stopped
expect 0 train -q --resume --keep 0 -o stopped
same joined/model.safetensors stopped/model.safetensors 'joined'

# With --gates-together, weights must be trained from the first step. The weights of a new model must be trained too,
# because it has no useful heads yet.
# shellcheck disable=SC2086
expect 0 train -q --from base -f text $gates --gates l0 --heads 3 --gates-together -o together
[ "$(sed -n 2p together/training.jsonl | "$JSON_AT" rate)" != 0.0 ] || fail 'weights must not be frozen with --gates-together'
# shellcheck disable=SC2086
expect 0 train -q --shape gpt2:2x4x32 --tokenizer bpe -f text $gates --gates l0 --heads 3 -o new
[ "$(sed -n 2p new/training.jsonl | "$JSON_AT" rate)" != 0.0 ] || fail 'weights of a new model must not be frozen'

# Invalid combinations must be rejected.
refused 2 train --from base -f text --gates l0 --gates-only --gates-together -o x
has err '--gates-only and --gates-together are mutually exclusive'
refused 2 train --from base -f text --heads 3 -o x
has err '--heads requires --gates'
refused 2 train --from base -f text --gates l2 -o x
has err '--gates must be one of l0, l1 (got "l2")'
refused 2 train --from base -f text --gates l0 --heads 9 --length 16 -o x
has err 'gates.heads must be from 2 (one per layer) to 8 (all heads of the model) (got 9)'
refused 2 train --from base -f text --gates l0 --heads 3 --length 16 --steps 10 --gates-end 11 -o x
has err '--gates-end 11 must not be after the last of 10 steps if --heads 3 is given'
[ ! -e x ] || fail 'a failed command must not create a folder'
finish
