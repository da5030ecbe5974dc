#!/bin/sh
# test_cli_model_kinds.sh - commands must reject models of a kind that they do not support with the name of the model or
# the option, not with names of the library's functions and fields.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

counting 20 >text
expect 0 "$MHA" tokenizer train -q --vocab-size 270 -o tok -f text
for model in seq2seq/whisper seq2seq/bart vision/clip-eos families/gpt2; do
    cp -r "$data/$model" .
    [ -e "${model#*/}/tokenizer.json" ] || cp tok/tokenizer.json "${model#*/}"
done
# kind CODE MESSAGE COMMAND...: the command must fail with this message, without a name of the library.
kind() {
    code=$1 message=$2
    shift 2
    refused "$code" "$MHA" "$@"
    has err "$message"
    has_not err 'mha_'
    has_not err 'NULL'
}

# ---- models that read audio ----
audio='whisper must read text (got whisper, which reads audio: use mha transcribe)'
for command in embed score generate logits heads lens 'attribute --answer t' 'report -o page.html' 'draw --head 0.0 -o map.png' \
    'draw --ids --head 0.0 -o map.png'; do
    # shellcheck disable=SC2086 # words
    kind 3 "$audio" $command -m whisper 1
done
kind 3 "$audio" heads --by gradmag -m whisper -f text
kind 3 "$audio" prune --count 1 -m whisper -f text -o pruned
kind 3 "$audio" diff -m whisper -m whisper -f text

# ---- encoder-decoders ----
kind 3 'a text for an encoder-decoder must be a source and a target, separated by one tab' score -m bart hello
kind 3 'text: line 1: a text for an encoder-decoder must be a source and a target, separated by one tab' score -m bart -f text
kind 2 'bart is an encoder-decoder: mha report --source TEXT --target TEXT draws its attention maps' draw -m bart --head 0.0 -o map.png hello
kind 3 'model must not be an encoder-decoder (got bart)' patch -m bart t --corrupted a --answer t
kind 3 'model must not be an encoder-decoder (got bart)' train --from bart -f text --steps 1 -o run
kind 3 'teacher must not be an encoder-decoder (got bart)' train --shape gpt2:1x1x8 --tokenizer bart --teacher bart -f text --steps 1 -o run

# ---- other kinds ----
kind 3 '--raw is required for a post-norm model (got bert' circuit -m "$tiny"
kind 2 'hidden_size of the teacher must be 8, that of the model, to compare states (got 48)' \
    train --shape gpt2:1x1x8 --tokenizer "$tiny" --teacher "$tiny" -f text --steps 1 -o run
kind 3 'vision/clip-eos: texts require tokenizer.json; give token ids with --ids instead' heads -m "$data/vision/clip-eos" hello
kind 3 'model must read texts (got vit)' diff -m "$data/vision/vit-classes" -m "$data/vision/vit-classes" -f text
kind 3 "gpt2/tokenizer.json: the id of token \"the\" must be less than the model's vocab_size 64 (got 2" score -m gpt2 'the number'
# The vocabulary of an image model is not one of tokens, so its circuits have no copying score.
expect 0 "$MHA" circuit --json -m "$data/vision/vit-classes"
has out 'the model reads images'

# ---- options ----
kind 2 '--count must be at most 6, the number of heads above the floor of each layer (got 100)' \
    prune --by ov_norm --count 100 -m gpt2 -o pruned
kind 2 '--kv-heads must be a divisor of 4, the head count of layer 0 (got 3)' regroup --kv-heads 3 --method mean --ridge 0 -m gpt2 -o grouped
kind 2 '--key-heads must be a divisor of 4, the head count of layer 0 (got 3)' regroup --key-heads 3 --method mean --ridge 0 -m gpt2 -o grouped
kind 2 '--value-heads must be a divisor of 4, the head count of layer 0 (got 3)' regroup --value-heads 3 --method mean --ridge 0 -m gpt2 -o grouped

# ---- files whose names look like the start of a message ----
printf 'not a tensor file' >mha_file
refused 3 "$MHA" info mha_file
has err 'mha info: mha_file: '
cp -r gpt2 'count m'
printf '{' >'count m/config.json'
refused 3 "$MHA" prune --by ov_norm --count 1 -m 'count m' -o pruned
has err 'mha prune: count m/config.json: '
finish
