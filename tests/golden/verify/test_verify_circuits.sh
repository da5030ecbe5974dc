#!/bin/sh
# Checks recorded measures of circuits (patching, attribution, paths, knockout) on the built-in model and three small
# checkpoints with `mha verify --golden`, with the oldest and the newest instruction set. Wrong weights and unknown
# names must be detected.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
requires_golden

mkdir models
ln -s "$data/models/gpt2-tiny" "$data/models/bert-mlm-tiny" "$data/heads/tinylm" models
refused 2 "$MHA" verify --golden "$data/circuits"
for isa in $("$MHA" --version | sed -n 's/^this CPU has: *//p' | tr ' ' '\n' | sed -n '1p;$p' | sort -u); do
    expect 0 "$MHA" verify --golden "$data/circuits" -m models --isa "$isa" -q --json
    at kind circuits
    at failed 0
    at refused 0
    at groups.builtin-words.failed 0
    at groups.bert-masked.passed 110
done

# With the weights of another model of the same shape, results must differ.
mkdir swapped
cp -r models/bert-mlm-tiny/ models/tinylm/ swapped
cp -r "$data/families/gpt2" swapped/gpt2-tiny
got=0
"$MHA" verify --golden "$data/circuits" -m swapped -q >out 2>err || got=$?
case $got in
3 | 4) ;;
*) fail "other weights: the exit status must be 3 or 4 (got $got)" ;;
esac

# Unknown tensors, keys and parts must be rejected.
mkdir broken
cp "$data"/circuits/*.safetensors broken
for edit in 's/"denoise.resid_pre"/"denoise.resid_past"/' 's/"position": 6/"place": 6/' 's/"knockout"$/"knockdown"/' \
    's/"metrics": \[/"metrics": [ "loss",/' 's/"gpt2-random.safetensors": {/"gpt2.safetensors": {/'; do
    sed -e "$edit" "$data/circuits/index.json" >broken/index.json
    refused 3 "$MHA" verify --golden broken -m models
done
finish
