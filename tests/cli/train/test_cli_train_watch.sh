#!/bin/sh
# test_cli_train_watch.sh - what `mha train` measures on the way: loss on text set aside, samples, log, page.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
train() { "$MHA" train -t 1 "$@"; }
lines_with() { grep -c "$1" "$2/training.jsonl"; }

counting 80 >text
printf 'a line that nobody learns from, of the number 7 and the number 8, which comes after it\nand another one\n' >other
expect 0 "$MHA" tokenizer train -q --vocab-size 300 -o bpe -f text
expect 0 "$MHA" tokenizer train -q --vocab-size 90 --type wordpiece -o wp -f text

# A share of the data, or a file: measured before the first step, every so often, and at the end; on the same sequences.
expect 0 train --json --shape gpt2:2x2x16 --tokenizer bpe -f text --length 16 --batch 4 --steps 33 --rate 0.01 --eval-share 0.25 \
    --eval-every 10 --save-every 20 -o share
[ "$(lines_with eval_loss share)" = 5 ] || fail "eval_loss stands in $(lines_with eval_loss share) lines, not 0, 10, 20, 30, 33"
at eval_loss "$(tail -n 1 share/training.jsonl | "$JSON_AT" eval_loss)"
first=$(sed -n 1p share/training.jsonl | "$JSON_AT" eval_loss)
awk -v a="$first" -v b="$("$JSON_AT" eval_loss <out)" -v p="$("$JSON_AT" perplexity <out)" \
    'BEGIN { d = exp(b) / p - 1; exit !(b < a - 0.5 && d * d < 1e-8) }' || fail "held-out loss from $first: $(cat out)"
has err 'step 10 of 33'
has err 'held-out loss'
has err 'saved'
# Nothing of what is set aside is learned from, and nothing that is measured changes what is learned.
expect 0 train -q --shape gpt2:2x2x16 --tokenizer bpe -f text --length 16 --batch 4 --steps 33 --rate 0.01 --eval-share 0.25 \
    --eval-every 33 --eval-sequences 3 --sample 'the number' -o quiet
same share/model.safetensors quiet/model.safetensors 'how often it is measured'
[ ! -s err ] || fail "-q speaks: $(cat err)"
expect 0 train -q --shape gpt2:2x2x16 --tokenizer bpe -f text --length 16 --batch 4 --steps 33 --rate 0.01 -o all
cmp -s share/model.safetensors all/model.safetensors && fail 'what is set aside was learned from'
expect 0 train -q --shape gpt2:2x2x16 --tokenizer bpe -f text --length 16 --batch 4 --steps 33 --rate 0.01 --eval other -o file
same all/model.safetensors file/model.safetensors 'a file to measure on'
"$JSON_AT" eval.sequences <file/training.json >sequences
[ "$(cat sequences)" -ge 2 ] || fail "the file to measure on has $(cat sequences) sequences"
expect 0 train -q --shape bert:1x2x16 --tokenizer wp -f text --length 16 --steps 12 --eval-share 0.2 --eval-every 4 -o encoder
[ "$(lines_with eval_loss encoder)" = 4 ] || fail 'an encoder is not measured'

# Samples: in the log, in the page, on stderr; drawn from the seed.
expect 0 train --shape gpt2:2x2x16 --tokenizer bpe -f text --length 32 --steps 20 --sample 'the number' --sample '' --sample-every 10 \
    --sample-tokens 6 -o samples
[ "$(lines_with '"samples":\[{"prompt":"the number","text":"' samples)" = 3 ] || fail 'samples are not at 0, 10 and 20'
has err '  the number'
harmless err
has samples/training.html '"prompt":"the number"'
expect 0 train -q --shape gpt2:2x2x16 --tokenizer bpe -f text --length 32 --steps 20 --sample 'the number' --sample '' --sample-every 10 \
    --sample-tokens 6 -o again
sed 's/,"seconds":[^,}]*//' samples/training.jsonl >a
sed 's/,"seconds":[^,}]*//' again/training.jsonl >b
same a b 'samples'

# A signal is looked at while it measures: the measure is left out, and the step is kept.
head -c 200000 /dev/zero >zeros.bin
"$MHA" train -t 1 --shape gpt2:1x2x16 --vocab 50 --tokens zeros.bin --length 16 --batch 1 --steps 100 --eval-share 0.9 --eval-every 2 \
    --eval-sequences 1000000 -o cut >out 2>err &
victim=$!
while [ ! -s cut/training.jsonl ] || [ "$(wc -l <cut/training.jsonl 2>/dev/null)" -lt 2 ]; do sleep 0.01; done
kill -TERM $victim
wait $victim
[ $? = 143 ] || fail 'a signal while it measures'
[ "$(lines_with eval_loss cut)" = 1 ] || fail "a measure that was cut short is in the log: $(cat cut/training.jsonl)"
set --
for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do set -- "$@" --sample $n; done
"$MHA" train -t 1 --shape gpt2:4x4x64 --tokenizer bpe -f text --length 512 --batch 1 --steps 100 --sample-tokens 400 "$@" -o cut.samples >out 2>err &
victim=$!
while ! grep -q '^  1' err; do sleep 0.01; done
kill -TERM $victim
wait $victim
[ $? = 143 ] || fail 'a signal while it writes samples'
[ "$(lines_with samples cut.samples)" = 0 ] || fail 'samples that were cut short are in the log'

# The log in another place, begun anew with --force alone.
expect 0 train -q --shape gpt2:1x1x8 --tokenizer bpe -f text --length 16 --steps 3 --log log.jsonl -o logged
same log.jsonl logged/training.jsonl
refused 2 train -q --shape gpt2:1x1x8 --tokenizer bpe -f text --length 16 --steps 3 --log log.jsonl -o logged2
expect 0 train -q --resume -o logged --steps 5
same log.jsonl logged/training.jsonl '--log after --resume'

# Older checkpoints stay under names of their own, as many as are wanted; each is a checkpoint to go on from.
expect 0 train -q --shape gpt2:1x1x8 --tokenizer bpe -f text --length 16 --steps 14 --save-every 3 --keep 2 -o old/
kept=$(echo old.step-*)
[ "$kept" = 'old.step-12 old.step-9' ] || fail "--keep 2 kept $kept"
expect 0 train -q --resume --keep 0 -o old.step-9
same old/model.safetensors old.step-9/model.safetensors 'an older checkpoint that went on'
rm -rf old
refused 2 train -q --shape gpt2:1x1x8 --tokenizer bpe -f text --length 16 --steps 2 --keep 2 -o old
has err 'old.step-9 exists'
expect 0 train -q --shape gpt2:1x1x8 --tokenizer bpe -f text --length 16 --steps 2 --keep 2 -o old --force
[ "$(echo old.step-*)" = 'old.step-1 old.step-9' ] || fail "--force left $(echo old.step-*)" # a training went on in 9

# Killed between two renames, where a file system cannot exchange folders: the one checkpoint that there is gets its name back.
mv old .old.old.4711
expect 0 train --resume --steps 3 -o old/
has err 'restored old from .old.old.4711'
{ [ ! -e .old.old.4711 ] && [ "$(wc -l <old/training.jsonl)" = 4 ]; } || fail 'what was left was not taken up'

# What cannot be.
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe -f text --eval other --eval-share 0.1 -o x
has err '--eval and --eval-share are mutually exclusive'
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe -f text --eval-share 1 -o x
refused 3 train --shape gpt2:1x1x8 --tokenizer bpe -f text --eval nowhere -o x
refused 3 train --shape gpt2:1x1x8 --tokenizer bpe -f other --length 16 --eval-share 0.9 -o x
has err 'leaves no sequence to train on'
refused 2 train --shape bert:1x1x8 --tokenizer wp -f text --sample the -o x
has err '--sample requires a decoder'
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe -f text --length 8 --sample 'the number 1 comes before the number 2 and so on' -o x
has err 'fills the context of the model'
echo 'more' >>other
refused 3 train --resume --steps 34 -o file
has err 'data of --eval changed since the checkpoint'
expect 0 train -q --resume --steps 34 -o file --eval other
echo 'and one more' >>other
refused 3 train -q --resume --steps 35 -o file
printf '{"eval": ["other"]}' >named.json # the same in a file of settings
expect 0 train -q --resume --steps 35 -o file --config named.json
[ ! -e x ] || fail 'a failure has left a folder'
finish
