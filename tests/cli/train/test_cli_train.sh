#!/bin/sh
# test_cli_train.sh - tests `mha train`: new models and checkpoints, data from texts and token files, settings from files
# and options, and interruptions.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
train() { "$MHA" train -t 1 "$@"; }
same_log() {
    sed 's/,"seconds":[^,}]*//' "$1/training.jsonl" >log.a
    sed 's/,"seconds":[^,}]*//' "$2/training.jsonl" >log.b
    same log.a log.b "$3"
}

counting 80 | sed 'n;n;n;G' >text # a blank line after every fourth line
expect 0 "$MHA" tokenizer train -q --vocab-size 300 -o bpe -f text
expect 0 "$MHA" tokenizer train -q --vocab-size 90 --type wordpiece -o wp -f text
small='--length 16 --batch 4 --seed 5'

# For each family, the loss must decrease, and the output folder must be a complete checkpoint.
for shape in gpt2:2x2x16 llama:2x2x16 qwen3:1x2x16 bert:2x2x16; do
    tokenizer=bpe
    [ $shape != bert:2x2x16 ] || tokenizer=wp
    # shellcheck disable=SC2086 # splits the variable into words
    expect 0 train -q --json --shape $shape --tokenizer $tokenizer -f text --steps 40 --rate 0.01 $small -o ${shape%%:*}
    at family "${shape%%:*}"
    at steps 40
    at tokens 2560
    first=$(sed -n 2p "${shape%%:*}/training.jsonl" | "$JSON_AT" loss)
    last=$("$JSON_AT" loss <out)
    awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < a - 0.5) }' || fail "$shape: the loss must decrease (got $first, then $last)"
    expect 0 "$MHA" info -m "${shape%%:*}"
    for name in config.json model.safetensors tokenizer.json training.safetensors training.json training.jsonl; do
        [ -s "${shape%%:*}/$name" ] || fail "$shape: $name must exist"
    done
    [ "$(wc -l <"${shape%%:*}/training.jsonl")" = 41 ] || fail "$shape: the log must have 41 lines"
done
expect 0 "$MHA" generate -m gpt2 -n 4 'the number'

# --export must write only the model, in bf16, and must not overwrite an existing folder.
# shellcheck disable=SC2086
expect 0 train -q --shape gpt2:2x2x16 --tokenizer bpe -f text --steps 3 $small --export alone -o kept
expect 0 "$MHA" info -m alone --json
at dtype bf16
[ ! -e alone/training.safetensors ] || fail 'the exported folder must not contain the optimizer state'
expect 0 "$MHA" generate -m alone -n 4 'the number'
# shellcheck disable=SC2086
refused 2 train -q --shape gpt2:2x2x16 --tokenizer bpe -f text --steps 3 $small --export alone -o again
has err 'alone exists'
[ ! -e again ] || fail 'a rejected command must not start training'
expect 0 train -q --resume -o kept --steps 5 --export-dtype f32 # exports to the folder of the first run
expect 0 "$MHA" info -m alone --json
at dtype f32
refused 2 train -q --shape gpt2:2x2x16 --tokenizer bpe -f text --export-dtype int4 --export there -o again
has err '(got "int4")'
refused 2 train -q --shape gpt2:2x2x16 --tokenizer bpe -f text --export-dtype f16 -o again

# The result must depend on the seed, but not on the number of threads.
# shellcheck disable=SC2086
{
    expect 0 "$MHA" train -t 3 -q --shape gpt2:2x2x16 --tokenizer bpe -f text --steps 40 --rate 0.01 $small -o threads
    expect 0 train -q --shape gpt2:2x2x16 --tokenizer bpe -f text --steps 40 --rate 0.01 --length 16 --batch 4 -s 6 -o other
}
same gpt2/model.safetensors threads/model.safetensors '3 threads'
same_log gpt2 threads '3 threads'
cmp -s gpt2/model.safetensors other/model.safetensors && fail 'another seed must give different weights'

# Settings must be read from the file of --config; options on the command line must override them.
cat >settings.json <<'JSON'
{"shape": {"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 16}, "tokenizer": "bpe",
 "file": ["text"], "steps": 7, "length": 16, "batch": 4, "seed": 5, "rate": 0.01, "recompute": true, "freeze": "*wpe.weight"}
JSON
expect 0 train -q --config settings.json --steps 9 --log log.csv -o both
[ "$(wc -l <both/training.jsonl)" = 10 ] || fail '--steps must override the file'
[ "$(sed -n 1p log.csv)" = 'step,loss,rate,norm,tokens,seconds,eval_loss,open_heads' ] || fail "log.csv must begin with the names of its columns (got $(sed -n 1p log.csv))"
[ "$(wc -l <log.csv)" = 11 ] || fail 'log.csv must have 11 lines'
"$JSON_AT" settings.freeze.0 <both/training.json >out
has out 'wpe.weight'
bad_settings() {
    echo "$1" >wrong.json
    refused 3 train --config wrong.json --steps 1 -o x
    has err "$2"
}
bad_settings '{"rat": 1}' 'unknown setting "rat"'
bad_settings '{"rate": "x"}' '"rate" must be a number from'
bad_settings '{"steps": 0}' '"steps" must be a whole number from 1'
bad_settings '{"file": [3]}' '"file" must be a list of strings'
bad_settings '{"recompute": 1}' '"recompute" must be true or false'
bad_settings '{"shape": 3}' '"shape" must be a string, or an object'
bad_settings '{"rate": 1, "rate": 2}' 'duplicate'
bad_settings '[1]' 'must be an object of settings'
bad_settings '{"rate' 'line 1'
refused 3 train --config nowhere.json -o x
has err 'mha train: nowhere.json: No such file or directory'
printf '{"model_type": "gpt2",\n "n_layer" 2}' >wrong.json
refused 3 train --shape wrong.json --tokenizer bpe -f text -o x
has err 'wrong.json: line 2: '

# When a checkpoint is trained, tensors of --freeze must stay unchanged, and other tensors must change.
# shellcheck disable=SC2086
expect 0 train -q --from gpt2 -f text --steps 2 --rate 0.01 $small --freeze '*wte.weight' --freeze '*wpe.weight' -o tuned
refused 2 train -q --from gpt2 -f text --steps 2 --freeze '*nothing*' -o x
has err 'must match a tensor of the model'
expect 0 train -q -m llama -f text --steps 2 -o tuned.llama
expect 0 train -q -m bert -f text --steps 2 -o tuned.bert
refused 2 train -m llama --shape gpt2:1x1x8 -f text -o x
has err '--shape must not be given with --from, since --from defines the shape and tokenizer'

# With --documents, each line, paragraph or file must be one document that ends with an end-of-text token.
for how in line:80 paragraph:20 whole:1; do
    expect 0 train -q --documents "${how%:*}" --shape gpt2:1x1x8 --tokenizer bpe -f text --steps 1 --length 16 -o "docs.${how%:*}"
    "$JSON_AT" data.tokens <"docs.${how%:*}/training.json" >"tokens.${how%:*}"
done
[ "$(cat tokens.line)" -lt "$(cat tokens.whole)" ] || fail 'the newlines of a whole file must be tokens'
cat text text >twice
expect 0 train -q --documents whole --shape gpt2:1x1x8 --tokenizer bpe -f text text --steps 1 --length 16 -o docs.two
[ "$("$JSON_AT" data.tokens <docs.two/training.json)" = $((2 * $(cat tokens.whole))) ] || fail 'two files must be read as two documents'
for old in lines:line blank:paragraph; do # names of the first version, which a training.json may contain
    printf '{"documents": "%s"}' "${old%:*}" >old.json
    expect 0 train -q --config old.json --shape gpt2:1x1x8 --tokenizer bpe -f text --steps 1 --length 16 -o docs.old --force
    [ "$("$JSON_AT" data.tokens <docs.old/training.json)" = "$(cat "tokens.${old#*:}")" ] || fail "documents ${old%:*} must mean ${old#*:}"
done
expect 0 train --shape gpt2:1x1x8 --tokenizer bpe -f text --steps 1 --length 16 -o docs.line --force
has err 'text: skipped 20 blank lines'
{ printf '\357\273\277' && cat text; } >marked
expect 0 train -q --shape gpt2:1x1x8 --tokenizer bpe -f marked --steps 1 --length 16 -o docs.marked
[ "$("$JSON_AT" data.digest <docs.marked/training.json)" = "$("$JSON_AT" data.digest <docs.line/training.json)" ] ||
    fail 'a byte order mark must not change the data'
# shellcheck disable=SC2002 # tests a pipe
cat text | "$MHA" train -t 1 -q --shape gpt2:1x1x8 --tokenizer bpe --steps 1 --length 16 -o docs.piped >out 2>err || fail 'a pipe must be read'
[ "$("$JSON_AT" data.digest <docs.piped/training.json)" = "$("$JSON_AT" data.digest <docs.line/training.json)" ] || fail 'data from a pipe must equal data from a file'

# After a signal, the run must complete its step, save a checkpoint, and print the command that resumes it. The resumed
# run must equal an uninterrupted run.
# shellcheck disable=SC2086
set -- --shape gpt2:2x2x16 --tokenizer bpe -f text --steps 400 --save-every 50 $small
expect 0 train -q "$@" -o whole
"$MHA" train -t 1 "$@" -o stopped >out 2>err &
victim=$!
while [ ! -s stopped/training.jsonl ] || [ "$(wc -l <stopped/training.jsonl 2>/dev/null)" -lt 20 ]; do sleep 0.01; done
kill -TERM $victim
wait $victim
status=$?
[ $status = 143 ] || fail "after SIGTERM, the exit status must be 143 (got $status)"
[ ! -s out ] || fail 'a stopped training run must not print a result'
has err 'continue with mha train --resume -o stopped'
(cd / && "$MHA" train -q -t 1 --resume -o "$work/stopped") >out 2>err || fail "--resume must succeed in another working directory (got $(cat err))"
same whole/model.safetensors stopped/model.safetensors SIGTERM
same whole/training.safetensors stopped/training.safetensors SIGTERM
same_log whole stopped SIGTERM
expect 0 train -q --json --resume -o stopped
at steps 400
same whole/model.safetensors stopped/model.safetensors 'the resumed and the uninterrupted run'
# Changed data must be accepted only if -f is given again; a larger number of steps must always be accepted.
cp text moved
expect 0 train -q --resume -o stopped --steps 401
echo 'another line' >>text
refused 3 train --resume -o stopped --steps 402
has err 'data changed since the checkpoint'
expect 0 train --resume -o stopped --steps 402 -f text
has err 'data changed: results will differ'
# The data may also be given again by a settings file.
echo 'one more' >>text
refused 3 train --resume -o stopped --steps 403
printf '{"file": "text"}' >named.json
expect 0 train --resume -o stopped --steps 403 --config named.json
has err 'data changed: results will differ'
cp stopped/training.jsonl held.jsonl
printf '{"step":0,"tokens":0,"seconds":0}\nnonsense\n' >stopped/training.jsonl
refused 3 train --resume -o stopped --steps 404
has err 'stopped/training.jsonl: line 2 must be the record of a step; repair the log, or move it away'
printf '{"step":0,"tokens":0,"seconds":0}\n' >stopped/training.jsonl
refused 3 train --resume -o stopped --steps 404
has err 'training.jsonl: must contain the records up to step 403 (the log ends earlier); repair the log, or move it away'
# If the log is missing, a new log must begin, and the weights must equal those of a run with a complete log.
cp -r stopped logless
rm logless/training.jsonl
expect 0 train --resume -o logless
has err 'logless/training.jsonl does not exist: the log begins at step 403'
has out 'logless: 403 steps'
has_not out nan
expect 0 train -q --json --resume -o logless --steps 406
at steps 406
[ "$(wc -l <logless/training.jsonl)" = 4 ] || fail "the log must have 4 lines, from step 403 on: $(cat logless/training.jsonl)"
cp held.jsonl stopped/training.jsonl
expect 0 train -q --resume -o stopped --steps 406
same stopped/model.safetensors logless/model.safetensors 'without its log'
mv moved text

# On resume, the checkpoint must define the model, and changes of other settings must be reported. After two signals in
# succession, the checkpoint must be complete.
expect 0 train --resume -o gpt2 --shape gpt2:9x9x9 --steps 41 --batch 5
has err 'ignoring shape: the checkpoint defines the model'
has err 'batch is now 5 (was 4)'
has err 'steps is now 41 (was 40)'
"$MHA" train -t 1 --resume -o gpt2 --steps 4000 >out 2>err &
victim=$!
while [ "$(wc -l <gpt2/training.jsonl)" -lt 60 ]; do sleep 0.01; done
kill -TERM $victim
kill -TERM $victim 2>/dev/null
wait $victim
status=$?
[ $status = 143 ] || fail "after two signals, the exit status must be 143 (got $status)"
expect 0 "$MHA" info -m gpt2

# Text from stdin must give the same model as text from a file.
train -q --shape gpt2:1x1x8 --tokenizer bpe -f - --length 16 --steps 2 -o stdin <text >out 2>err || fail "stdin must be accepted (got $(cat err))"
expect 0 train -q --shape gpt2:1x1x8 --tokenizer bpe -f text --length 16 --steps 2 -o file
same stdin/model.safetensors file/model.safetensors stdin

# If a result is not finite, the error must name the step and the layer, and the last checkpoint must be kept.
refused 1 train --shape gpt2:2x2x16 --tokenizer bpe -f text --steps 50 --rate 1e6 --clip 0 --save-every 2 --length 16 -o nan
has err 'step '
has err 'layer'
has err 'nan contains the last checkpoint'
expect 0 "$MHA" info -m nan

# A symbolic link must be rejected before the first step, not at the first checkpoint.
ln -s gpt2 link
refused 2 train --resume --steps 5000 -o link
has err 'a symbolic link'
for options in '--resume --steps 5000' '--shape gpt2:1x1x8 --tokenizer bpe -f text' '--shape gpt2:1x1x8 --tokenizer bpe -f text --force'; do
    # shellcheck disable=SC2086 # splits the variable into words
    refused 2 train $options -o link/
    has err 'a symbolic link'
done

# An existing folder, usage errors and invalid data must be rejected.
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe -f text -o gpt2
has err '--resume continues it'
mkdir mine
touch mine/thing
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe -f text -o mine
refused 1 train --shape gpt2:1x1x8 --tokenizer bpe -f text -o mine --force
has err 'not a checkpoint file'
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe -f text
has err 'missing -o FOLDER'
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe -o x
has err 'missing data: give texts with -f FILE'
refused 2 train -f text -o x
has err 'missing model'
for bad in 'gpt2:2x3x16' 'gpt5:1x1x8' 'gpt2:1x1' 'gpt2:0x1x8' 'gpt2:1x1x8x9'; do
    refused 2 train --shape "$bad" --tokenizer bpe -f text -o x
    has err "or a config.json (got \"$bad\")"
done
refused 2 train --shape gpt2:1x1x8 -f text -o x
has err 'give --tokenizer FOLDER or --vocab N'
refused 3 train --shape gpt2:1x1x8 --vocab 300 -f text -o x
has err 'missing tokenizer for the texts'
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe -f text --rate 0 -o x
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe -f text --steps x -o x
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe -f text --schedule linear -o x
has err '--schedule must be one of cosine, constant'
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe -f text --floor 1 -o x
has err '--floor must be at most --rate'
refused 2 train --shape gpt2:1x1x8 --tokenizer bpe -f text --steps 3 --warmup 4 -o x
refused 2 train --from gpt2 -f text --length 17 -o x
has err '--length must be at most the 16 tokens of the model'
refused 3 train --shape gpt2:1x1x8 --tokenizer bpe -f nowhere -o x
: >empty
refused 3 train --shape gpt2:1x1x8 --tokenizer bpe -f empty -o x
has err 'empty: the data must have at least 2 tokens (got 0)'
echo 'too short' >short # a text shorter than --length, so the command must reduce --length to the length of the text
expect 0 train --shape gpt2:1x1x8 --tokenizer bpe -f short -o shortened
short=$("$JSON_AT" data.tokens <shortened/training.json)
has err "using --length $short instead of 128: the data has only $short tokens"
[ "$("$JSON_AT" settings.length <shortened/training.json)" = "$short" ] || fail 'the sequence length must be the length of the text'
expect 0 train --resume --steps 2 -o shortened
expect 0 train -q -m bert -f short --steps 1 -o shortened.bert
refused 3 train --shape gpt2:1x1x8 --tokenizer bpe -f text --length 64 --eval short -o x
has err 'short: the data must have at least 64 tokens'
printf 'one\ntwo \377\n' >broken
refused 3 train --shape gpt2:1x1x8 --tokenizer bpe -f broken -o x
has err 'broken: line 2: '
# A line that is too long must be rejected before memory is exhausted; it must not be skipped.
cp text endless
truncate -s +600M endless
cat text >>endless
refused 3 with_little "$MHA" train --shape gpt2:1x1x8 --tokenizer bpe -f endless --length 16 -o x
has err "endless: line $(($(wc -l <text) + 1)): a text must be at most 16 MiB"
rm endless
refused 3 train --from "$tiny" -f text -o x
has err 'no language-model head'

# Tests files of token ids: raw ids, ids after the header of llm.c, and .npy. The error for an invalid id must name its
# index.
i=0
while [ $i -lt 200 ]; do
    # shellcheck disable=SC2059 # octal escapes
    printf "\\$(printf %03o $((i * 7 % 50)))\\000"
    i=$((i + 1))
done >ids.bin
expect 0 train -q --json --shape gpt2:1x1x8 --vocab 50 --tokens ids.bin --length 16 --steps 3 -o ids
at steps 3
"$JSON_AT" data.tokens <ids/training.json >out
has out 200
{
    # magic number 20240520, version 1, and 200 tokens
    printf '\210\330\064\001\001\000\000\000\310\000\000\000'
    head -c 1012 /dev/zero
    cat ids.bin
} >llmc.bin
expect 0 train -q --shape gpt2:1x1x8 --vocab 50 --tokens llmc.bin --length 16 --steps 3 -o llmc
same ids/model.safetensors llmc/model.safetensors 'the header of llm.c'
{
    printf '\223NUMPY\001\000v\000'
    printf "%-117s\n" "{'descr': '<u2', 'fortran_order': False, 'shape': (200,), }"
    cat ids.bin
} >ids.npy
expect 0 train -q --shape gpt2:1x1x8 --vocab 50 --tokens ids.npy --length 16 --steps 3 -o npy
same ids/model.safetensors npy/model.safetensors '.npy'
refused 3 train --shape gpt2:1x1x8 --vocab 43 --tokens ids.bin --length 16 --steps 3 -o x
has err 'ids.bin: ids[7] must be at least 0 and below the model'\''s vocab_size 43 (got 49)'
head -c 399 ids.bin >odd.bin
refused 3 train --shape gpt2:1x1x8 --vocab 50 --tokens odd.bin --length 16 -o x
has err 'odd number of bytes'
head -c 1400 llmc.bin >cut.bin
refused 3 train --shape gpt2:1x1x8 --vocab 50 --tokens cut.bin --length 16 -o x
has err 'the llm.c header must have version 1'
: >none.bin
refused 3 train --shape gpt2:1x1x8 --vocab 50 --tokens none.bin --length 16 -o x
refused 3 train --shape gpt2:1x1x8 --vocab 50 --tokens text --length 16 -o x
refused 2 train --shape gpt2:1x1x8 --vocab 50 --tokens ids.bin -f text --length 16 -o x
[ ! -e x ] || fail 'a failed command must not create a folder'
finish
