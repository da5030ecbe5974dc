#!/bin/sh
# test_cli_model_folder.sh - if -m does not name a checkpoint folder, the message must state what a model must be, what
# was found, and where to get a model.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
rule='a model must be a folder with config.json, tokenizer.json and model.safetensors, or a GGUF file, or minilm, or builtin'

# not_a_model NAME WHAT: every command must reject the model NAME with a message that contains the rule and WHAT.
not_a_model() {
    for command in heads embed score 'generate -n 1' tokenize info 'diff -m builtin'; do
        case $command in info | diff*) text='' ;; *) text=hello ;; esac
        # shellcheck disable=SC2086 # splits the variable into words
        refused 3 "$MHA" $command -m "$1" $text
        has err "$rule"
        has err "$2"
    done
    refused 3 "$MHA" train --from "$1" -f texts -o x
    has err "$2"
}
echo hello >texts

not_a_model nowhere 'got a path that does not exist'
has err 'hf download openai-community/gpt2 --local-dir gpt2'
not_a_model bultin 'did you mean builtin?'
not_a_model organization/name 'hf download organization/name --local-dir name'
mkdir models
not_a_model models/name 'hf download openai-community/gpt2 --local-dir gpt2'
printf 'GGUF\003\000\000\000' >model.gguf
not_a_model model.gguf 'model.gguf: tensor count must have 8 bytes'
printf '\200\002}q' >pickle.bin
not_a_model pickle.bin 'a Python pickle'
not_a_model texts 'file must be safetensors, .npy or GGUF'
not_a_model "$tiny/model.safetensors" 'give the folder that contains it'
not_a_model /dev/null 'must be a regular file'

# An incomplete folder must be rejected, except by mha tokenize, which requires only tokenizer.json.
lacks() {
    refused 3 "$MHA" heads -m "$1" hello
    has err "$2"
}
mkdir empty pickled cache
lacks empty "$rule (got a folder without config.json)"
cp "$tiny/config.json" "$tiny/tokenizer.json" pickled
lacks pickled 'pickled/model.safetensors'
cp pickle.bin pickled/pytorch_model.bin
lacks pickled 'weights must be safetensors (got pytorch_model.bin)'
expect 0 "$MHA" tokenize -m pickled hello
rm pickled/config.json
mv model.gguf pickled
lacks pickled 'weights must be safetensors (got model.gguf)'
mkdir cache/snapshots
lacks cache 'give a subfolder of cache/snapshots'
[ ! -e x ] || fail 'a failed command must not create a folder'

# The name of a folder need not be UTF-8; pages and JSON contain it with escapes.
odd=$(printf 'odd\377')
cp -r "$here/share/mha/builtin" "$odd"
expect 0 "$MHA" live -q -m "$odd" -o live.html Once
has live.html 'odd\\xff'
expect 0 "$MHA" report -q --json -m "$odd" -o "$odd.html" Once
at model 'odd\xff'
at output 'odd\xff.html'
expect 0 "$MHA" report -q -m "$odd" --compare "$odd" -o page.html --force Once
has page.html 'odd\\xff'
cp -r "$data/seq2seq/bart" "$odd-bart"
expect 0 "$MHA" report -q --json -m "$odd-bart" -o pair.html --source a --target b
at model 'odd\xff-bart'
expect 0 "$MHA" diff --json -m "$odd" -m "$odd"
at a.model 'odd\xff'
finish
