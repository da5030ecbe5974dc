#!/bin/sh
# test_cli_train_watch.sh - tests the evaluation during `mha train`: held-out loss, samples, log and page.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
train() { "$MHA" train -t 1 "$@"; }
lines_with() { grep -c "$1" "$2/training.jsonl"; }

counting 80 >text
printf 'a line that nobody learns from, of the number 7 and the number 8, which comes after it\nand another one\n' >other
expect 0 "$MHA" tokenizer train -q --vocab-size 300 -o bpe -f text
expect 0 "$MHA" tokenizer train -q --vocab-size 90 --type wordpiece -o wp -f text

# The held-out loss must be measured on a fraction of the data or on a file: before the first step, at intervals, and
# after the last step, always on the same sequences.
expect 0 train --json --shape gpt2:2x2x16 --tokenizer bpe -f text --length 16 --batch 4 --steps 33 --rate 0.01 --eval-share 0.25 \
    --eval-every 10 --save-every 20 -o share
[ "$(lines_with eval_loss share)" = 5 ] || fail "eval_loss must be in 5 lines, steps 0, 10, 20, 30, 33 (got $(lines_with eval_loss share) lines)"
at eval_loss "$(tail -n 1 share/training.jsonl | "$JSON_AT" eval_loss)"
first=$(sed -n 1p share/training.jsonl | "$JSON_AT" eval_loss)
awk -v a="$first" -v b="$("$JSON_AT" eval_loss <out)" -v p="$("$JSON_AT" perplexity <out)" \
    'BEGIN { d = exp(b) / p - 1; exit !(b < a - 0.5 && d * d < 1e-8) }' || fail "the held-out loss must decrease by more than 0.5 from $first, and must agree with the perplexity: $(cat out)"
has err 'step 10 of 33'
has err 'held-out loss'
has err 'saved'
# Held-out data must not be used for training, and measurements must not affect training.
expect 0 train -q --shape gpt2:2x2x16 --tokenizer bpe -f text --length 16 --batch 4 --steps 33 --rate 0.01 --eval-share 0.25 \
    --eval-every 33 --eval-sequences 3 --sample 'the number' -o quiet
same share/model.safetensors quiet/model.safetensors 'the interval of measurements'
[ ! -s err ] || fail "-q must suppress all messages (got $(cat err))"
expect 0 train -q --shape gpt2:2x2x16 --tokenizer bpe -f text --length 16 --batch 4 --steps 33 --rate 0.01 -o all
cmp -s share/model.safetensors all/model.safetensors && fail 'held-out data must not be used for training'
expect 0 train -q --shape gpt2:2x2x16 --tokenizer bpe -f text --length 16 --batch 4 --steps 33 --rate 0.01 --eval other -o file
same all/model.safetensors file/model.safetensors 'an evaluation file'
"$JSON_AT" eval.sequences <file/training.json >sequences
[ "$(cat sequences)" -ge 2 ] || fail "the evaluation file must have at least 2 sequences (got $(cat sequences))"
expect 0 train -q --shape bert:1x2x16 --tokenizer wp -f text --length 16 --steps 12 --eval-share 0.2 --eval-every 4 -o encoder
[ "$(lines_with eval_loss encoder)" = 4 ] || fail 'an encoder must have a held-out loss'

# Samples must appear in the log, on the page and on stderr; the seed must determine them.
expect 0 train --shape gpt2:2x2x16 --tokenizer bpe -f text --length 32 --steps 20 --sample 'the number' --sample '' --sample-every 10 \
    --sample-tokens 6 -o samples
[ "$(lines_with '"samples":\[{"prompt":"the number","text":"' samples)" = 3 ] || fail 'samples must be at steps 0, 10 and 20'
has err '  the number'
harmless err
has samples/training.html '"prompt":"the number"'
expect 0 train -q --shape gpt2:2x2x16 --tokenizer bpe -f text --length 32 --steps 20 --sample 'the number' --sample '' --sample-every 10 \
    --sample-tokens 6 -o again
sed 's/,"seconds":[^,}]*//' samples/training.jsonl >a
sed 's/,"seconds":[^,}]*//' again/training.jsonl >b
same a b 'samples'

# After a signal during a measurement, the measurement must be discarded, and the step must be kept.
head -c 200000 /dev/zero >zeros.bin
"$MHA" train -t 1 --shape gpt2:1x2x16 --vocab 50 --tokens zeros.bin --length 16 --batch 1 --steps 100 --eval-share 0.9 --eval-every 2 \
    --eval-sequences 1000000 -o cut >out 2>err &
victim=$!
while [ ! -s cut/training.jsonl ] || [ "$(wc -l <cut/training.jsonl 2>/dev/null)" -lt 2 ]; do sleep 0.01; done
kill -TERM $victim
wait $victim
[ $? = 143 ] || fail 'after a signal during a measurement, the exit status must be 143'
[ "$(lines_with eval_loss cut)" = 1 ] || fail "an interrupted measurement must not be in the log (got $(cat cut/training.jsonl))"
set --
for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do set -- "$@" --sample $n; done
"$MHA" train -t 1 --shape gpt2:4x4x64 --tokenizer bpe -f text --length 512 --batch 1 --steps 100 --sample-tokens 400 "$@" -o cut.samples >out 2>err &
victim=$!
while ! grep -q '^  1' err; do sleep 0.01; done
kill -TERM $victim
wait $victim
[ $? = 143 ] || fail 'after a signal during sampling, the exit status must be 143'
[ "$(lines_with samples cut.samples)" = 0 ] || fail 'interrupted samples must not be in the log'

# An existing file of --log must be overwritten only with --force.
expect 0 train -q --shape gpt2:1x1x8 --tokenizer bpe -f text --length 16 --steps 3 --log log.jsonl -o logged
same log.jsonl logged/training.jsonl
refused 2 train -q --shape gpt2:1x1x8 --tokenizer bpe -f text --length 16 --steps 3 --log log.jsonl -o logged2
expect 0 train -q --resume -o logged --steps 5
same log.jsonl logged/training.jsonl '--log after --resume'

# --keep must save earlier checkpoints in separate folders, each of which can be resumed.
expect 0 train -q --shape gpt2:1x1x8 --tokenizer bpe -f text --length 16 --steps 14 --save-every 3 --keep 2 -o old/
kept=$(echo old.step-*)
[ "$kept" = 'old.step-12 old.step-9' ] || fail "--keep 2 must keep the checkpoints of steps 9 and 12 (got $kept)"
expect 0 train -q --resume --keep 0 -o old.step-9
same old/model.safetensors old.step-9/model.safetensors 'a run resumed from an earlier checkpoint'
rm -rf old
refused 2 train -q --shape gpt2:1x1x8 --tokenizer bpe -f text --length 16 --steps 2 --keep 2 -o old
has err 'old.step-9 exists'
expect 0 train -q --shape gpt2:1x1x8 --tokenizer bpe -f text --length 16 --steps 2 --keep 2 -o old --force
[ "$(echo old.step-*)" = 'old.step-1 old.step-9' ] || fail "--force must keep old.step-9, from which a run was resumed (got $(echo old.step-*))"

# On a file system that cannot exchange folders, a kill between two renames leaves only the old folder. The next run must
# restore this folder.
mv old .old.old.4711
expect 0 train --resume --steps 3 -o old/
has err 'restored old from .old.old.4711'
{ [ ! -e .old.old.4711 ] && [ "$(wc -l <old/training.jsonl)" = 4 ]; } || fail 'the checkpoint must be restored'

# Invalid options and data must be rejected.
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe -f text --eval other --eval-share 0.1 -o x
has err '--eval and --eval-share are mutually exclusive'
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe -f text --eval-share 1 -o x
refused 3 train --shape gpt2:1x1x8 --tokenizer bpe -f text --eval nowhere -o x
refused 3 train --shape gpt2:1x1x8 --tokenizer bpe -f other --length 16 --eval-share 0.9 -o x
has err '--eval-share must leave a sequence for training'
refused 2 train --shape bert:1x1x8 --tokenizer wp -f text --sample the -o x
has err '--sample requires a decoder'
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe -f text --length 8 --sample 'the number 1 comes before the number 2 and so on' -o x
has err "must leave space for a new token in the model's context"
echo 'more' >>other
refused 3 train --resume --steps 34 -o file
has err 'data of --eval changed since the checkpoint'
expect 0 train -q --resume --steps 34 -o file --eval other
echo 'and one more' >>other
refused 3 train -q --resume --steps 35 -o file
printf '{"eval": ["other"]}' >named.json # the same option in a settings file
expect 0 train -q --resume --steps 35 -o file --config named.json
[ ! -e x ] || fail 'a failed command must not create a folder'
finish
