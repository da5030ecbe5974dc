#!/bin/sh
# test_cli_train_settings.sh - tests messages of `mha train` about kept, derived, changed and invalid settings.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
train() { "$MHA" train -t 1 "$@"; }
setting() { "$JSON_AT" "settings.$2" <"$1/training.json"; }

counting 80 >text
expect 0 "$MHA" tokenizer train -q --vocab-size 300 -o bpe -f text
small='--shape gpt2:1x1x8 --tokenizer bpe --length 16'

# A file name that is not UTF-8, which training.json cannot contain, must be rejected before the first step.
latin=$(printf 'caf\351')
cp text "$latin"
mkdir "$latin.folder"
# shellcheck disable=SC2086 # splits the variable into words
{
    refused 3 train $small --steps 1 -o x -f "$latin"
    has err 'must be UTF-8'
    refused 3 train $small --steps 1 -o x -f text --log "$latin.jsonl"
    has err '--log must be UTF-8'
}
cd "$latin.folder" || exit 1
refused 3 train --shape gpt2:1x1x8 --tokenizer ../bpe --length 16 --steps 1 -o "$work/x" -f ../text
has err 'must be UTF-8'
cd .. || exit 1

# On resume with another rate or number of steps, defaults that depend on them must be computed again, and given values
# must be kept. All changes must be reported.
# shellcheck disable=SC2086
expect 0 train -q $small -f text --steps 300 --save-every 100 --keep 2 -o whole
mv whole.step-100 lower
cp -r whole.step-200 warm
expect 0 train --resume --rate 1e-5 --keep 0 -o lower
has err 'rate is now 1e-5 (was 0.001)'
has err 'floor is now 1e-6 (was 0.0001)'
expect 0 train --resume --steps 600 --keep 0 --dropout 0.1 --embedding-dropout 0 -o whole
has err 'warmup is now 12 (was 6)'
has err 'dropout is now 0.1 (was 0.0)'
has err 'embedding_dropout is now 0.0 (was unset)'
has_not err 'floor'
expect 0 train -q --resume --steps 201 --keep 0 --warmup 5 --floor 1e-5 -o warm
expect 0 train --resume --steps 203 --rate 2e-3 -o warm
has_not err 'warmup'
has_not err 'floor'
refused 2 train --resume --rate 1e-6 -o warm
has err '--floor must be at most --rate = 1e-06 (got 1e-05)'
[ "$(setting warm warmup)" = 5 ] || fail "a given warmup must stay 5 (got $(setting warm warmup))"
# shellcheck disable=SC2086
expect 0 train -q $small -f text --steps 2 -o early
sed -e 's/"steps": 2/"steps": 300/' -e 's/"warmup": 0/"warmup": 6/' early/training.json >longer
mv longer early/training.json
expect 0 train --resume --steps 3 -o early
has err 'warmup is now 0 (was 6)'

# A settings file must be able to clear a flag.
# shellcheck disable=SC2086
expect 0 train -q $small -f text --steps 2 --recompute -o flag
echo '{"recompute": false}' >no.json
expect 0 train --resume --config no.json --steps 3 -o flag
has err 'recompute is now unset (was true)'

# A message about an error in the JSON of --shape must name --shape.
refused 3 train --shape '{"model_type":"gpt2","n_layer":"x"}' --tokenizer bpe -f text -o x
has err 'mha train: --shape: n_layer must be an integer'
has_not err 'config.json'
refused 3 train --shape '{' --tokenizer bpe -f text -o x
has err "--shape: string or '}' expected"
# A message about an error in a file of the tokenizer folder must name this file.
cp -r bpe spoilt
echo '{"eos_token_id":"x"}' >spoilt/generation_config.json
refused 3 train --shape gpt2:1x1x8 --tokenizer spoilt -f text -o x
has err 'mha train: spoilt/generation_config.json: eos_token_id must be'

# If all steps are complete, the command must succeed and print a message; --steps below the number of completed steps must be rejected.
expect 0 train --resume -o flag
steps=$("$JSON_AT" settings.steps <flag/training.json)
expect 0 train --resume --steps "$steps" -o flag
has err "flag: all $steps steps are complete; to continue, give a larger --steps"
cp flag/training.json before.json
refused 2 train --resume --steps $((steps - 1)) -o flag
has err "--steps must be at least the $steps steps of the checkpoint (got $((steps - 1)))"
same flag/training.json before.json 'a rejected command must not change the settings'

# --workers must be a power of two that divides --accumulate, and must be saved for --resume only if it was given.
# shellcheck disable=SC2086
{
    refused 2 train $small -f text --steps 2 --workers 3 -o x
    has err '--workers must be a power of two (got 3)'
    refused 2 train $small -f text --steps 2 --workers 4 --accumulate 6 -o x
    has err '--accumulate must be a multiple of --workers = 4 (got 6)'
    refused 2 train $small -f text --steps 2 --reduce sum -o x
    has err '--reduce must be one of tree, fast (got "sum")'
    expect 0 train -q $small -f text --steps 4 --workers 4 --schedule constant -o four
    expect 0 train -q $small -f text --steps 2 --workers 4 --schedule constant -o two
    expect 0 train -q $small -f text --steps 4 --accumulate 4 --schedule constant -o order
    expect 0 train -q $small -f text --steps 4 --workers 4 --schedule constant --reduce fast -o fast
}
expect 0 train -q --resume --steps 4 -o two
same four/training.safetensors two/training.safetensors 'resumed with --workers'
[ "$(setting two accumulate)" = 4 ] || fail "--accumulate must equal --workers, 4, by default (got $(setting two accumulate))"
same order/model.safetensors fast/model.safetensors 'one process, with and without --reduce fast'
cmp -s four/model.safetensors order/model.safetensors && fail 'the weights of four workers and one worker must differ'
"$JSON_AT" settings.workers <order/training.json >/dev/null && fail 'a run without --workers must not save the setting'

# A run without trainable tensors, a file of ids without --tokens, and a changed --length on resume must be rejected.
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe --length 16 -f text --freeze '*' -o x
has err 'frozen must leave at least one tensor to train'
refused 2 train --shape gpt2:1x1x8 --vocab 50 --length 16 --tokens a.bin b.bin -o x
has err 'each token file requires its own --tokens'
refused 3 train --resume --length 8 --steps 9 -o flag
has err '--length 8 changes how the data is split'

# A log in which a line has no valid seconds must be rejected.
cp -r flag log
sed 's/,"seconds":[^,}]*//' flag/training.jsonl >log/training.jsonl
refused 3 train --resume --steps 9 -o log
has err 'line 1: seconds must be a number from 0 to 1.79769e+308 (got nothing)'
sed 's/"seconds":[^,}]*/"seconds":-1e300/' flag/training.jsonl >log/training.jsonl
refused 3 train --resume --steps 9 -o log
has err 'line 1: seconds must be a number from 0 to 1.79769e+308 (got -1.0000000000000001e300)'

[ ! -e x ] || fail 'a failed command must not create a folder'
finish
