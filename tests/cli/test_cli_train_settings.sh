#!/bin/sh
# test_cli_train_settings.sh - settings of `mha train` that are kept, go on, change, or make no sense: what is said of them.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
train() { "$MHA" train -t 1 "$@"; }
setting() { "$JSON_AT" "settings.$2" <"$1/training.json"; }

i=0
while [ $i -lt 80 ]; do
    echo "the number $i comes before the number $((i + 1)), and after it the number $((i + 2)) waits"
    i=$((i + 1))
done >text
expect 0 "$MHA" tokenizer train -q --vocab-size 300 -o bpe -f text
small='--shape gpt2:1x1x8 --tokenizer bpe --length 16'

# A name that training.json cannot hold is refused before the first step.
latin=$(printf 'caf\351')
cp text "$latin"
mkdir "$latin.folder"
# shellcheck disable=SC2086 # options
{
    refused 3 train $small --steps 1 -o x -f "$latin"
    has err 'caf\xe9": not UTF-8'
    refused 3 train $small --steps 1 -o x -f text --log "$latin.jsonl"
    has err '--log "'
}
cd "$latin.folder" || exit 1
refused 3 train --shape gpt2:1x1x8 --tokenizer ../bpe --length 16 --steps 1 -o "$work/x" -f ../text
has err 'not UTF-8'
cd .. || exit 1

[ ! -e x ] || fail 'a failure has left a folder'
finish
